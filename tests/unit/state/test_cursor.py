"""The record in hand: who moves the cursor, and where it points afterwards."""

import re
from pathlib import Path

import pyarrow as pa

import millpond
from millpond.record import NOWHERE, MessageContext
from millpond.state.cursor import Cursor

ROOT = Path(millpond.__file__).parent


def test_only_the_cursor_and_two_loops_write_its_fields():
    writes = re.compile(r"cursor\.(index|path|place|timestamp) =(?!=)")
    found = [path for path in ROOT.rglob("*.py") if writes.search(path.read_text())]

    names = {str(path.relative_to(ROOT)) for path in found}
    assert names == {"worker/record_loop.py", "worker/expand.py"}


def test_children_have_places_of_their_own_and_the_parent_is_in_hand_again():
    cursor = Cursor(["in"])
    cursor.at(3)

    paths = [(item, cursor.path) for item in cursor.children("ab")]

    assert paths == [("a", b"\0\0\0\0\0"), ("b", b"\0\0\0\0\1")]
    assert (cursor.index, cursor.path) == (3, None)


def test_children_of_children_keep_the_order_of_their_parents():
    cursor = Cursor(["in"])

    paths = [cursor.path for _ in cursor.children("ab") for _ in cursor.children("xy")]

    assert paths == sorted(paths)
    assert len(set(paths)) == 4


def test_another_time_gives_the_one_before():
    cursor = Cursor(["in"])
    cursor.at_time(5)

    before = cursor.at_time(9)

    assert (before, cursor.timestamp) == (5, 9)


def test_it_knows_where_its_record_came_from():
    cursor = Cursor(["in", "other"])
    cursor.enter(*(pa.array(column) for column in ([0, 1], [2, 3], [40, 50], [b"abc", None])))
    cursor.at(1)

    assert cursor.context() == MessageContext("other", 3, 50, 0)
    cursor.at(0)
    assert cursor.context() == MessageContext("in", 2, 40, 3)
    cursor.leave()
    assert cursor.context() == MessageContext("", NOWHERE, -1)
