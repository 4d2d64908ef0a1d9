"""What `make soak` says of vulnerabilities, by what pip-audit reports."""

import json
import re

import pytest
from audit import judge

SAFE = {"name": "rich", "version": "15.0", "vulns": []}
UNKNOWN = {"name": "millpond", "skip_reason": "distribution marked as editable"}
ONE = {"id": "PYSEC-2026-1", "fix_versions": ["3.2"], "aliases": []}
BAD = {"name": "flask", "version": "3.1", "vulns": [ONE, {**ONE, "fix_versions": []}]}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([SAFE, UNKNOWN], 0, "No known vulnerabilities in 1 packages; nothing is known of 1."),
        ([SAFE, BAD], 1, "flask 3.1: PYSEC-2026-1, corrected in 3.2\n"),
        ([BAD], 1, "corrected in no version yet\nFix:"),
        ([UNKNOWN], 0, "NOT AUDITED: (.|\n)*none of 1 packages"),
    ],
)
def test_a_vulnerability_fails_and_missing_data_is_said(packages, code, said):
    found, text = judge(json.dumps({"dependencies": packages, "fixes": []}), "")

    assert found == code
    assert re.search(said, text)


def test_data_that_cannot_be_reached_is_said_with_the_reason():
    assert judge("", "Traceback\nConnectionError: none") == (
        0,
        "NOT AUDITED: the data about vulnerabilities cannot be reached (ConnectionError: none).",
    )
