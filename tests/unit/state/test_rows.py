"""State as rows: its values, its timers, and what each batch has changed."""

from millpond.state.codec import Codec
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.rows import Change, GroupRow, changes, group_rows, group_timers, key_items
from millpond.state.store import MemoryStore
from millpond.state.view import State

GROUPS = 1
codec = Codec()
encode = codec.encode


def write(store, *sets, gone=()):
    """Do to a key group what the functions of a batch do; return the blobs that it wrote."""
    before = dict(store.blobs)
    pages = Pages(store, codec, GROUPS)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    for key, held_in, name, value, ttl in sets:
        view.bind(key)
        State(view, held_in).set(name, value, ttl)
    for key, held_in, name in gone:
        view.bind(key)
        State(view, held_in).delete(name)
    pages.flush()
    written = {i: blob for i, blob in store.blobs.items() if before.get(i) != blob}
    return {**written, **{i: None for i in before if i not in store.blobs}}


def test_each_value_is_a_row_with_its_key_store_name_and_end():
    store = MemoryStore()

    write(
        store,
        (b"ann", "default", "n", 1, None),
        (b"ann", "seen", ("t", 2), "x", None),
        (None, "default", "n", 3, None),
    )

    assert sorted(group_rows(store, GROUPS), key=str) == sorted(
        [
            GroupRow(b"ann", "default", encode("n"), encode(1), None),
            GroupRow(b"ann", "seen", encode(("t", 2)), encode("x"), None),
            GroupRow(None, "default", encode("n"), encode(3), None),
        ],
        key=str,
    )
    assert list(group_timers(store, GROUPS)) == []


def test_the_values_of_one_key_are_its_own_and_a_key_that_is_not_there_has_none():
    store = MemoryStore()
    write(store, (b"ann", "default", "n", 1, None), (b"bob", "default", "n", 2, None))

    (item,) = key_items(store, GROUPS, b"bob")

    assert (item.store, item.name, item.value) == ("default", encode("n"), encode(2))
    assert key_items(store, GROUPS, b"eve") is None


def test_each_batch_tells_what_was_there_before_and_what_is_there_now():
    store = MemoryStore()
    write(store, (b"ann", "default", "n", 1, None), (b"bob", "default", "n", 5, None))
    base, kept = dict(store.blobs), dict(store.blobs)

    first = write(store, (b"ann", "default", "n", 2, None), (b"eve", "default", "n", 7, None))
    second = write(store, gone=[(b"bob", "default", "n")])
    third = write(store, (b"ann", "default", "n", 2, None))  # as it was

    n = encode("n")
    found = list(changes(base, [(8, first), (9, second), (10, third)], GROUPS))
    assert sorted(found, key=str) == sorted(
        [
            Change(8, b"ann", "default", n, encode(1), encode(2)),
            Change(8, b"eve", "default", n, None, encode(7)),
            Change(9, b"bob", "default", n, encode(5), None),
        ],
        key=str,
    )
    assert base == kept
