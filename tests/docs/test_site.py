"""The site has every page, every public name, every setting and every command.

`make docs` checks more, on the built pages: dead links, names without a docstring, and requests to
other servers.
"""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import typer

from millpond import Application, KafkaOptions, SparkOptions, StateOptions
from millpond.cli.main import command

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
MODULES = ("millpond", "millpond.testing", "millpond.admin", "millpond.errors", "millpond.options")

# Options of nearly every command, which the page lists once for a group.
SHARED = {"--topics-dir", "--broker", "-X", "--group", "--json", "-c"}


def commands_of(group, path):
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands_of(found, f"{path} {name}")
        else:
            yield f"{path} {name}", {o for p in found.params for o in (*p.opts, *p.secondary_opts)}


COMMANDS = dict(commands_of(typer.main.get_command(command), "millpond"))


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w./-]+\.md$", navigation, re.MULTILINE)
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    outside = {"architecture.md", "changelog.md", "contributing.md", "examples.md", "security.md"}

    assert sorted(named) == sorted(pages | outside)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_a_reference_page(module):
    shown = {
        name
        for page in REFERENCE.glob("*.md")
        for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    }

    names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    assert names - shown == set()


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Application", Application),
        ("State", StateOptions),
        ("Kafka", KafkaOptions),
        ("Spark", SparkOptions),
    ],
)
def test_the_page_of_settings_has_each_with_its_default(title, kind):
    text = (REFERENCE / "configuration.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    table = section.split("| --- | --- | --- |\n")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", table, re.MULTILINE))

    parameters = inspect.signature(kind).parameters.values()
    own = {p.name: default_of(p) for p in parameters if p.kind is not p.VAR_KEYWORD}
    assert rows == own


def default_of(parameter):
    """A default as text; that of a dict is made for each object."""
    return "{}" if "factory" in repr(parameter.default) else repr(parameter.default)


def test_the_page_of_commands_has_each():
    text = (REFERENCE / "commands.md").read_text()
    named = re.findall(r"^\| `(millpond(?: [a-z]+)+)", text, re.MULTILINE)

    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_page_of_commands_has_the_options_of(name):
    text = (REFERENCE / "commands.md").read_text()
    [row] = [line for line in text.splitlines() if re.match(rf"\| `{name}[ `]", line)]
    options = {option for option in COMMANDS[name] if option.startswith("-")}

    assert set(re.findall(r"`(--?[\w-]+)`", row.split("|")[2])) - SHARED == options - SHARED
    assert all(f"`{option}" in text for option in options)
