"""Links between pages lead somewhere in the repository; `make docs` checks those of the site."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(page):
    """The anchors that a page has on an index of repositories."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {text.strip().replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    dead = []
    for target, anchor in LINK.findall(FENCE.sub("", page.read_text())):
        path = (page.parent / target).resolve() if target else page
        is_known = not anchor or path.suffix != ".md" or anchor in anchors(path)
        if not path.exists() or not is_known:
            dead.append(f"{target}#{anchor}")

    assert dead == []
