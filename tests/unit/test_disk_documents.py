"""The journal and the clock file: as version 0.1.0 wrote them, as they are written, and damaged."""

import json
from copy import deepcopy

import pytest
from msgspec import UNSET

from millpond.documents import sealed, unsealed
from millpond.errors import StateError
from millpond.storage.batch_source import clock_in, rename_scope_in, with_renamed_stores
from millpond.storage.clock_file import ClockFile, KnownTime, read_clock
from millpond.storage.files import local
from millpond.storage.journal import Journal, read_journal

PLANNED = {
    "millpond": {"clicks": {"0": 30}},
    "clock": {
        "seq": 3, "now": 1_003, "marks": {"clicks": 900}, "before": {}, "wake": {"clicks": [1]},
        "seen": {"clicks": 1_000}, "arrived": {"clicks": 1_002},
    },
}  # fmt: skip

# As version 0.1.0 wrote them: no number of a format, and the clock without a checksum.
OLD_CLOCK = {
    "seq": 3, "seen": {"clicks": 1_000}, "arrived": {"clicks": 1_002},
    "due": {"clicks": {"1": {"wall": 5_000}}}, "is_sure": True, "keys": [["clicks", 1, 7]],
    "planned": PLANNED,
}  # fmt: skip
OLD_JOURNAL = {"delivered": 1, "batches": {"3": PLANNED}, "manifest": {"format": 1}}


@pytest.fixture
def file(tmp_path):
    return local(tmp_path / "document.json")


def test_the_clock_of_version_0_1_0_is_read(file):
    file.write(json.dumps(OLD_CLOCK).encode())

    known = read_clock(file)

    assert known == KnownTime(
        seq=3,
        seen={"clicks": 1_000},
        arrived={"clicks": 1_002},
        due={"clicks": {"1": {"wall": 5_000}}},
        is_sure=True,
        keys=[("clicks", 1, 7)],
        planned=PLANNED,
    )
    assert clock_in(known.planned).seen == {"clicks": 1_000}


def test_the_journal_of_version_0_1_0_is_read(file):
    file.write(sealed(OLD_JOURNAL))

    assert read_journal(file) == Journal(1, {3: PLANNED}, {"format": 1})


def test_documents_are_written_as_before_with_the_number_of_their_format(file):
    ClockFile(file).write(KnownTime(**OLD_CLOCK, room=None))
    clock = unsealed(file.text())
    file.write(Journal(1, {3: PLANNED}, {"format": 1}).encode())
    journal = unsealed(file.text())

    assert clock == {**OLD_CLOCK, "room": None, "format": 1}
    assert journal == {**OLD_JOURNAL, "format": 1}


def test_what_is_asked_again_forgets_what_was_due_and_the_keys(file):
    known = KnownTime(**OLD_CLOCK).asked_again()
    file.write(known.encode())

    assert (known.due, known.is_sure, known.keys) == ({}, False, UNSET)
    assert "keys" not in unsealed(file.text())


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"seq": 3}', '{"seq": "3", "seen": {}}', '{"delivered": 1}']
)
def test_a_damaged_document_is_not_known(file, text):
    file.write(text.encode())

    assert read_clock(file) is None
    assert read_journal(file) == Journal()


def test_a_document_of_a_newer_version_is_refused_and_not_damaged(file):
    file.write(sealed({**OLD_CLOCK, "format": 2, "mood": "good"}))
    with pytest.raises(StateError, match="has format 2(.|\n)*up to 1.\nFix: run the version that"):
        read_clock(file)

    file.write(sealed({**OLD_JOURNAL, "format": 2}))
    with pytest.raises(StateError, match="has format 2(.|\n)*up to 1.\nFix: run the version that"):
        read_journal(file)


def test_what_was_planned_is_kept_as_it_was_read():
    planned = deepcopy(PLANNED)
    planned["clock"] |= {"mood": "good", "reached": {"a/x": 1}}

    renamed = with_renamed_stores(planned, {"a/x": "b/x"})
    rename_scope_in(renamed, "clicks", "views")

    assert renamed["clock"]["reached"] == {"b/x": 1}
    assert renamed["clock"]["wake"] == {"views": [1]}
    assert renamed["clock"]["mood"] == "good"
