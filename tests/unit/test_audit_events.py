"""Events of the audit: on disk, as text, and which batches they leave as edits."""

import json

import pytest

from millpond.storage.audit import (
    Accept,
    Backup,
    ClearState,
    Delete,
    Drop,
    EndBackfill,
    Fork,
    Import,
    Rename,
    Repair,
    Rescale,
    Reshape,
    Restore,
    Rewind,
    SetValues,
    UnknownEvent,
    edited_batches,
    entry_of,
    event_of,
)
from millpond.storage.manifest import Manifest, read_manifest

WHEN = {"at": "2026-11-17T01:53:07+00:00", "generation": 2}

# Each kind as version 0.1.0, or the version that had it first, wrote it.
WRITTEN = [
    (
        {"what": "rewind", "to": 4, "outputs": "keep", "by": "ann"},
        Rewind,
        "to batch 4, outputs: keep",
    ),
    ({"what": "repair", "batch": 3, "files": ["a", "b"]}, Repair, "damaged: a, b"),
    ({"what": "restore", "batch": 3, "by": "ann"}, Restore, "from a backup"),
    ({"what": "fork", "of": "live", "batch": 3, "by": "ann"}, Fork, "of group live"),
    ({"what": "backup", "batch": 3, "by": "ann"}, Backup, "to this state directory"),
    ({"what": "clear_state", "reset_offsets": True}, ClearState, "sources begin again"),
    (
        {"what": "rescale", "before": 2, "partitions": 3, "by": "ann", "state": [7, 90, "ff"]},
        Rescale,
        "2 -> 3 parts, checksum ff",
    ),
    (
        {"what": "reshape", "before": 1, "layers": 2, "batch": 0, "last_batch": 9, "by": "ann",
         "state": [7, 90, "ff"]},
        Reshape,
        "1 -> 2 key changes, after batch 9",
    ),
    (
        {"what": "set", "changed": 1, "batch": 5, "by": "ann", "store": "s/default",
         "keys": ["'zoe'"], "values": {"'total'": "40"}},
        SetValues,
        "'zoe' in s/default: 'total' = 40",
    ),
    (
        {"what": "import", "changed": 2, "batch": 5, "by": "ann", "file": "a.jsonl", "rows": 2},
        Import,
        "2 rows of a.jsonl",
    ),
    (
        {"what": "delete", "changed": 0, "batch": 5, "by": "ann", "keys": ["'zoe'"], "store": "all",
         "name": "'n'"},
        Delete,
        "'n' of 'zoe' in all",
    ),
    (
        {"what": "rename", "changed": 4, "batch": 5, "by": "ann", "old": "a", "new": "b",
         "scopes": ["a", "b"]},
        Rename,
        "a -> b",
    ),
    (
        {"what": "drop", "changed": 4, "batch": 5, "by": "ann", "stores": ["s/a", "s/b"]},
        Drop,
        "s/a, s/b",
    ),
    ({"what": "accept", "change": "0af3"}, Accept, "change 0af3"),
    (
        {"what": "accept", "changed": 4, "batch": 5, "by": "ann", "stores": ["s/a"]},
        Accept,
        "drops s/a",
    ),
    (
        {"what": "backfill", "changed": 0, "batch": 5, "by": "ann", "offsets": {"t": {"0": 7}}},
        EndBackfill,
        "the live run begins at t = {'0': 7}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "kind", "text"), WRITTEN, ids=lambda v: getattr(v, "__name__", "")
)
def test_an_event_is_read_shown_and_written_as_it_was(entry, kind, text):
    entry = {**WHEN, **entry}

    event = event_of(entry)

    assert type(event) is kind
    assert event.text == text
    assert json.loads(json.dumps(entry_of(event))) == entry


def test_an_entry_begins_with_when_and_what():
    assert list(entry_of(event_of({"what": "restore", "by": "ann", **WHEN})))[:3] == [
        "at",
        "what",
        "generation",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"what": "teleport", "where": "away", "count": 3, **WHEN},
        {"what": "rewind", "to": 4, "outputs": "keep", "more": 1, **WHEN},
        {"what": "rewind", "to": "four", "outputs": "keep", "generation": "two"},
        {},
    ],
    ids=["kind", "field", "type", "empty"],
)
def test_an_event_that_is_not_known_is_shown_and_kept(entry):
    event = event_of(entry)

    assert isinstance(event, UnknownEvent)
    assert entry_of(event) == entry
    assert event.what == entry.get("what", "?")


def test_the_text_of_an_event_that_is_not_known_has_what_is_its_own():
    event = event_of({"what": "teleport", "where": "away", "count": 3, "by": "ann", **WHEN})

    assert event.text == "where = away, count = 3"
    assert event.generation == 2


def test_an_event_that_is_not_known_may_be_an_edit():
    assert edited_batches([event_of({"what": "teleport", "changed": 3, "batch": 8})]) == [8]


def test_edits_count_until_the_state_goes_back_to_before_them():
    edits = [Drop(stores=[], changed=1, batch=batch) for batch in (2, 5, 8)]

    assert edited_batches([*edits, Rewind(to=5, outputs="keep")]) == [2, 5]
    assert edited_batches([*edits, Repair(batch=2, files=[])]) == [2]
    assert edited_batches([*edits, Repair(batch=None, files=[])]) == []
    assert edited_batches([*edits, ClearState(reset_offsets=False)]) == []
    assert (
        edited_batches([*edits, Reshape(before=1, layers=2, last_batch=8, state=(0, 0, ""))]) == []
    )
    assert edited_batches([*edits, Accept(change="0af3")]) == [2, 5, 8]


def test_a_manifest_keeps_the_events_that_it_does_not_know():
    manifest = Manifest(8, 1)
    content = {**manifest.content(), "audit": [{"what": "teleport", **WHEN}]}

    known = read_manifest(content, "manifest.json")
    known.note(Restore(batch=3, by="ann"))

    assert [event.what for event in known.audit] == ["teleport", "restore"]
    assert known.content()["audit"][0] == {"what": "teleport", **WHEN}
