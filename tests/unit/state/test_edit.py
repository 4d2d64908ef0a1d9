import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import StateError
from millpond.state.codec import Codec
from millpond.state.edit import Edit, apply_edits, decode_edits, encode_edits
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.migrate import MigratingState
from millpond.state.rows import changes, group_rows, group_timers, key_items
from millpond.state.store import MemoryStore
from millpond.state.stored import version_name
from millpond.state.view import State

GROUPS = 1
codec = Codec()
encode, decode = codec.encode, codec.decode


def filled(contents, *, ttl=None):
    """A group with values: {(key, store, name): value}."""
    store = MemoryStore()
    write(store, contents, ttl=ttl)
    return store


def write(store, contents, *, ttl=None, gone=()):
    pages = Pages(store, codec, GROUPS)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    for (key, held_in, name), value in contents.items():
        view.bind(key)
        State(view, held_in).set(name, value, ttl)
    for key, held_in, name in gone:
        view.bind(key)
        State(view, held_in).delete(name)
    pages.flush()


def contents_of(store):
    return {
        (row.key, row.store, decode(row.name)): decode(row.value)
        for row in group_rows(store, GROUPS)
    }


places = st.tuples(
    st.sampled_from([None, b"a", b"b", b"c"]),
    st.sampled_from(["default", "other"]),
    st.sampled_from(["x", "\x1fodd", 7, ("t", 1)]),
)
contents = st.dictionaries(places, st.integers() | st.text(max_size=3) | st.tuples(st.booleans()))


@settings(max_examples=150, deadline=None)
@given(contents, contents, st.sets(places))
def test_edits_do_what_a_program_would_have_done(before, written, gone):
    gone = {place for place in gone if place not in written}
    edits = [Edit("set", k, s, encode(n), encode(v)) for (k, s, n), v in written.items()]
    edits += [Edit("delete", k, s, encode(n)) for k, s, n in gone]
    edited, expected = filled(before), filled(before)

    changed = apply_edits(edited, decode_edits(encode_edits(edits)), GROUPS)
    write(expected, written, gone=gone)

    assert contents_of(edited) == contents_of(expected)
    assert edited.blobs == expected.blobs
    differing = {p for p in before.keys() | written.keys() if p not in gone or p in before}
    assert changed == sum(
        before.get(p) != contents_of(edited).get(p)
        or type(before.get(p)) is not type(contents_of(edited).get(p))
        for p in differing
    )


def test_a_value_that_is_edited_expires_when_it_would_have():
    store = filled({(b"a", "default", "x"): 1}, ttl=1000)

    apply_edits(store, [Edit("set", b"a", "default", encode("x"), encode("y" * 50_000))], GROUPS)

    (row,) = group_rows(store, GROUPS)
    assert (len(decode(row.value)), row.expires) == (50_000, 1000)


def test_a_key_is_deleted_with_its_timers():
    store = MemoryStore()
    pages = Pages(store, codec, GROUPS)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    view.bind(b"a")
    state = State(view, owner="step")
    state.set("x", 1)
    state.set_timer("t", at=5)
    pages.flush()
    assert len(list(group_timers(store, GROUPS))) == 1

    apply_edits(store, [Edit("delete", b"a")], GROUPS)

    assert list(group_timers(store, GROUPS)) == []
    assert key_items(store, GROUPS, b"a") is None


@settings(max_examples=60, deadline=None)
@given(contents)
def test_a_store_is_renamed_and_back(before):
    store = filled(before)

    apply_edits(store, [Edit("rename", None, "default", new_store="new")], GROUPS)
    moved = contents_of(store)
    apply_edits(store, [Edit("rename", None, "new", new_store="default")], GROUPS)

    assert contents_of(store) == before
    assert moved == {(k, "new" if s == "default" else s, n): v for (k, s, n), v in before.items()}


@settings(max_examples=60, deadline=None)
@given(contents, st.sampled_from(["default", "other", "none"]))
def test_a_store_that_is_dropped_leaves_the_others_as_they_were(before, dropped):
    store = filled(before)
    kept = {place: value for place, value in before.items() if place[1] != dropped}

    gone = apply_edits(store, [Edit("drop", None, dropped)], GROUPS)

    assert contents_of(store) == kept
    assert gone == len(before) - len(kept)


def test_a_store_is_dropped_with_its_timers_its_versions_and_what_is_large():
    store = MemoryStore()
    pages = Pages(store, codec, GROUPS)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    for key in (b"a", b"b"):
        view.bind(key)
        state = State(view, owner="step")
        state.set("x", "large" * 10_000, 1_000)
        for number in range(4_000):
            state.set(f"name-{number}", "many names" * 2)
        state.set_timer("t", at=5)
        view.put(version_name("default"), 2)
    State(view, "other").set("y", 1)
    pages.put_table("default", b"table")
    pages.flush()

    gone = apply_edits(store, [Edit("drop", None, "default")], GROUPS)

    assert gone == 2 * 4_001 + 1
    assert contents_of(store) == {(b"b", "other", "y"): 1}
    assert list(group_timers(store, GROUPS)) == []
    assert key_items(store, GROUPS, b"a") is None
    assert Pages(store, codec, GROUPS).table("default") is None
    assert not [blob for blob in store.blobs if blob[:1] in (b"v", b"n", b"u")]
    assert version_name("default") not in dict(Pages(store, codec, GROUPS).scan())[b"b"]


def test_a_store_without_timers_leaves_those_of_the_others():
    store = filled({(b"a", "other", "x"): 1})
    pages = Pages(store, codec, GROUPS)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    view.bind(b"a")
    State(view, owner="step").set_timer("t", at=5)
    pages.flush()

    apply_edits(store, [Edit("drop", None, "other")], GROUPS)

    assert len(list(group_timers(store, GROUPS))) == 1


# --- changes --------------------------------------------------------------------------------

numbered = st.dictionaries(
    st.tuples(st.integers(0, 400).map(lambda n: b"%d" % n), st.just("default"), st.just("x")),
    st.integers(0, 3) | st.just("large" * 10_000),
    max_size=120,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(numbered, min_size=1, max_size=4))
def test_the_changes_of_batches_lead_from_one_state_to_the_next_whatever_the_pages_did(batches):
    store, blobs_before, written = MemoryStore(), {}, []
    states = [{}]
    for number, batch in enumerate(batches):
        write(store, batch)
        ids = blobs_before.keys() | store.blobs.keys()
        # What a batch wrote: a page is written again even where only a blob after it changed.
        written.append(
            (
                number,
                {
                    i: store.blobs.get(i)
                    for i in ids
                    if i[:1] == b"p" or blobs_before.get(i) != store.blobs.get(i)
                },
            )
        )
        blobs_before = dict(store.blobs)
        states.append(contents_of(store))

    found = list(changes({}, written, GROUPS))

    for number, (old, new) in enumerate(zip(states, states[1:], strict=False)):
        mine = {(c.key, c.store, decode(c.name)): c for c in found if c.batch == number}
        differing = {p for p in old.keys() | new.keys() if old.get(p) != new.get(p)}
        assert mine.keys() == differing
        for place, change in mine.items():
            assert (change.before and decode(change.before)) == old.get(place)
            assert (change.after and decode(change.after)) == new.get(place)


# --- versions -------------------------------------------------------------------------------


def lifted(store, key):
    """What a program of version 2 sees, whose values are ten times those of version 1."""
    view = KeyContext(codec, undo=False)
    view.open(Pages(store, codec, GROUPS))
    view.bind(key)
    state = MigratingState(view, "s", {1: lambda values: {n: v * 10 for n, v in values.items()}})
    return {name: state.get(name) for name in list(state.keys())}


def touched(store, key):
    """Let a program of version 2 lift a key."""
    pages = Pages(store, codec, GROUPS)
    view = KeyContext(codec, undo=False)
    view.open(pages)
    view.bind(key)
    MigratingState(view, "s", {1: lambda values: {n: v * 10 for n, v in values.items()}}).get("x")
    pages.flush()


def test_a_value_that_is_set_is_of_the_version_of_its_store():
    store = filled({})

    apply_edits(store, [Edit("set", b"a", "s", encode("x"), encode(4), version=2)], GROUPS)

    assert lifted(store, b"a") == {"x": 4}


def test_a_store_that_is_renamed_keeps_its_versions():
    store = filled({(b"a", "old", "x"): 5, (b"b", "old", "x"): 6})
    apply_edits(store, [Edit("rename", None, "old", new_store="s")], GROUPS)
    touched(store, b"a")

    apply_edits(store, [Edit("rename", None, "s", new_store="t")], GROUPS)
    apply_edits(store, [Edit("rename", None, "t", new_store="s")], GROUPS)

    assert lifted(store, b"a") == {"x": 50}
    assert lifted(store, b"b") == {"x": 60}


def test_values_of_two_versions_are_not_mixed():
    store = filled({(b"a", "s", "x"): 5})
    edit = Edit("set", b"a", "s", encode("y"), encode(4), version=2)

    with pytest.raises(StateError, match=r"version 1(.|\n)*Fix:"):
        apply_edits(store, [edit], GROUPS)

    apply_edits(store, [Edit("delete", b"a", "s"), edit], GROUPS)
    assert lifted(store, b"a") == {"y": 4}
    apply_edits(store, [Edit("delete", b"a", "s", encode("y"))], GROUPS)
    assert contents_of(store) == {}
    write(store, {(b"a", "s", "x"): 5})
    assert lifted(store, b"a") == {"x": 50}
