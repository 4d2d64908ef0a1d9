"""The package as it is installed: its version, its metadata, what an index page shows."""

import re
from importlib.metadata import metadata

import pytest
from typer.testing import CliRunner

import millpond
from millpond.cli import main
from millpond.driver.gather import BatchReport


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_command_shows_the_version(word):
    shown = CliRunner().invoke(main.command, [word])

    assert shown.exit_code == 0
    assert shown.output == f"millpond {metadata('millpond')['Version']}\n"


def test_the_metadata_has_authors_and_says_that_the_package_is_typed():
    found = metadata("millpond")

    assert found["Author"] == "The Millpond authors"
    assert "Typing :: Typed" in found.get_all("Classifier")
    assert found["License-Expression"] == "Apache-2.0"


def test_the_text_for_an_index_page_has_no_relative_link():
    text = metadata("millpond").get_payload() or metadata("millpond")["Description"]

    assert "# Millpond" in text
    assert re.findall(r"\]\((?!https?:)", text) == []


def test_reports_can_be_cut():
    app = millpond.Application(loglevel=None)
    assert app.reports[-1:] == []

    app._runner.reports.extend(BatchReport(n) for n in range(3))

    assert [report.batch_id for report in app.reports[-2:]] == [1, 2]
