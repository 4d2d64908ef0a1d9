"""What MkDocs does for the site besides its own work.

Takes the Markdown of `docs/` and of the repository's root; gives pages whose links work on the site
as they do in the repository, and refuses a site that asks another server for something or that
leaves out a public name.
"""

import ast
import html
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

# Pages that lie outside of docs/, and their names on the site.
OUTSIDE = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
EXAMPLES = "examples.md"

# Folders of pictures that take the colours of the page, so they become part of it.
DRAWN = ("images/diagrams", "images/plots")

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]*)(#[^)\s]*)?(?=\))")
NAME = re.compile(r"(?<=<code>)\w{28,}(?=</code>)")
PICTURE = re.compile(
    r'<p><img alt="(?P<alt>[^"]*)" src="[^"]*'
    rf'(?P<folder>{"|".join(DRAWN)})/(?P<name>[\w-]+)\.svg" ?/?></p>'
)
LOADED = re.compile(
    r'<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\ssrc="(?P<src>(?:https?:)?//[^"]+)"'
    r'|<link\b(?=[^>]*\srel="(?:stylesheet|preconnect|preload|icon)")[^>]*\shref="(?P<href>(?:https?:)?//[^"]+)"'
    r"|url\((?P<url>[\"']?https?:[^)]+)\)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and one with all examples."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    files.append(File.generated(config, EXAMPLES, content=_examples()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links and blocks of code be what they are in the repository."""
    uri = page.file.src_uri
    inside = {site: path for path, site in OUTSIDE.items()}
    folder = posixpath.dirname(inside.get(uri, "" if uri == EXAMPLES else f"docs/{uri}"))
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_with_links(markdown[end : fence.start()], folder, uri), fence[0]]
        end = fence.end()
    text = "".join([*parts, _with_links(markdown[end:], folder, uri)])
    return re.sub(r"^```python no-run$", "```python", text, flags=re.MULTILINE)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawings into the page, where they see its colours; let long names break."""

    def inline(found: re.Match[str]) -> str:
        path = ROOT / "docs" / found["folder"] / f"{found['name']}.svg"
        label = found["alt"]
        drawing = path.read_text().replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
        return f'<figure class="diagram">{drawing}</figure>'

    content = NAME.sub(lambda found: found[0].replace("_", "_<wbr>"), content)
    return PICTURE.sub(inline, content)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that loads anything from elsewhere, or lacks a public name."""
    pages = {path: path.read_text() for path in Path(config.site_dir).rglob("*.html")}
    foreign = [
        f"{path.name} loads {html.unescape(next(filter(None, found.groups())))}"
        for path, text in pages.items()
        for found in LOADED.finditer(text)
    ]
    for sheet in Path(config.site_dir).rglob("*.css"):
        loads = re.findall(r"url\([\"']?https?:[^)]+\)|@import", sheet.read_text())
        foreign += [f"{sheet.name} loads {found}" for found in loads]
    anchors = {
        found for text in pages.values() for found in re.findall(r' id="(millpond[^"]*)"', text)
    }
    missing = sorted(_public_names() - anchors)
    problems = [*foreign, *(f"{name} is on no reference page" for name in missing)]
    if problems:
        raise PluginError("The site is not complete:\n" + "\n".join(problems))


def _with_links(text: str, folder: str, uri: str) -> str:
    """Return text whose links lead to pages of the site."""

    def lead(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        place = _place(path)
        if place is None:
            return found[0]
        site, own = place
        return posixpath.relpath(site, posixpath.dirname(uri) or ".") + (anchor or own)

    return LINK.sub(lead, text)


def _place(path: str) -> tuple[str, str] | None:
    """Return the page and the anchor of a file of the repository, if the site has it."""
    if path in OUTSIDE:
        return OUTSIDE[path], ""
    if path == "examples" or path.startswith("examples/"):
        name = posixpath.basename(path)
        return EXAMPLES, "" if path == "examples" else "#" + name.replace(".", "").lower()
    return (path.removeprefix("docs/"), "") if path.startswith("docs/") else None


def _examples() -> str:
    """Return a page with every example: what it says of itself, and its code."""
    found = sorted((ROOT / "examples").glob("*.py"))
    first = [path for path in found if path.stem in ("quickstart", "running_sum")]
    parts = [
        "# Examples",
        "Complete programs. A test runs each of them and compares what it prints with its first "
        "lines. Run one with `python examples/NAME.py` in a clone of the repository.",
    ]
    for path in [*first, *(path for path in found if path not in first)]:
        code = path.read_text()
        says = (ast.get_docstring(ast.parse(code)) or "").partition("Prints:")[0].strip()
        parts.append(f"## {path.name}\n\n{says}\n\n```python\n{code.strip()}\n```")
    return "\n\n".join(parts)


def _public_names() -> set[str]:
    """Return the public names of the package, and the public methods of its main classes."""
    package = ROOT / "src" / "millpond"
    modules = {
        "millpond": package / "__init__.py",
        "millpond.testing": package / "testing" / "__init__.py",
        "millpond.admin": package / "admin" / "__init__.py",
        "millpond.errors": package / "errors.py",
        "millpond.options": package / "options.py",
    }
    names = {f"{module}.{name}" for module, path in modules.items() for name in _exported(path)}
    places = [
        ("millpond.Application", package / "app" / "application.py", "Application"),
        ("millpond.Application", package / "app" / "frames.py", "Frames"),
        ("millpond.StreamingDataFrame", package / "frame.py", "StreamingDataFrame"),
        ("millpond.State", package / "state" / "view.py", "State"),
        ("millpond.admin.Admin", package / "admin" / "__init__.py", "Admin"),
        ("millpond.testing.LocalEngine", package / "testing" / "engine.py", "LocalEngine"),
    ]
    for name, path, kind in places:
        names |= {f"{name}.{method}" for method in _methods(path, kind)}
    return names - {"millpond.testing.LocalEngine.complete", "millpond.testing.LocalEngine.limits"}


def _exported(path: Path) -> list[str]:
    for node in ast.parse(path.read_text()).body:
        is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        if is_all:
            return ast.literal_eval(node.value)
    raise PluginError(f"{path} has no __all__.")


def _methods(path: Path, name: str) -> list[str]:
    """Return the public methods of a class; those that a type checker must not see are no part."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            inside = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            return [item.name for item in inside if not item.name.startswith("_")]
    raise PluginError(f"{path} has no class {name}.")
