import pytest

from millpond.errors import ValueTypeError
from millpond.state.codec import Codec
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.store import MemoryStore
from millpond.state.view import State


@pytest.fixture
def scope():
    scope = KeyContext(Codec(), undo=True)
    scope.open(Pages(MemoryStore(), scope.codec, 1))
    scope.bind(b"key")
    return scope


@pytest.fixture
def state(scope):
    return State(scope)


def test_what_was_set_is_there(state):
    state.set("a", [1])

    assert state.get("a") == [1]
    assert state.exists("a")
    assert "a" in state
    assert state["a"] == [1]


def test_what_was_never_set_is_the_default(state):
    assert state.get("a") is None
    assert state.get("a", 5) == 5
    assert not state.exists("a")
    with pytest.raises(KeyError):
        state["a"]


def test_none_is_a_value(state):
    state.set("a", None)

    assert state.exists("a")
    assert state.get("a", "default") is None


def test_delete_forgets_and_does_not_mind_what_is_not_there(state):
    state.set("a", 1)

    state.delete("a")
    state.delete("a")

    assert not state.exists("a")
    assert state.get("a", "gone") == "gone"


def test_del_of_what_is_not_there_is_a_key_error(state):
    state["a"] = 1
    del state["a"]

    with pytest.raises(KeyError):
        del state["a"]


def test_keys_are_in_the_order_they_were_first_set(state):
    for name in ("b", "a", 3, "b"):
        state.set(name, 1)

    assert state.keys() == ["b", "a", 3]
    assert list(state) == ["b", "a", 3]
    assert len(state) == 3


@pytest.mark.parametrize(
    "name",
    ["", "ä", "\x1f", "\x1f\x1f", "\x1fother\x1fa", 1, True, 1.0, None, (1, "a"), b"a", b"\xc1"],
)
def test_any_value_can_be_a_name(state, name):
    state.set(name, "kept")

    assert state.get(name) == "kept"
    assert state.keys() == [name]
    assert type(state.keys()[0]) is type(name)
    state.delete(name)
    assert state.keys() == []


def test_names_of_different_types_are_different(state):
    for value, name in enumerate([1, True, 1.0, "1", b"1", (1,), None, "None"]):
        state.set(name, value)

    assert [state.get(name) for name in [1, True, 1.0, "1", b"1", (1,), None, "None"]] == list(
        range(8)
    )


def test_stores_of_one_key_do_not_see_each_other(scope):
    stores = [State(scope, name) for name in ("default", "a", "ab", "b", "ä")]
    names = ["", "a", "a\x1fb", "\x1fa\x1f", 5, b"\xc1a\x1f", (1,)]
    for number, store in enumerate(stores):
        for name in names:
            store.set(name, number)

    for number, store in enumerate(stores):
        assert store.keys() == names
        assert {store.get(name) for name in names} == {number}


def test_a_name_with_a_lone_surrogate_is_refused(state):
    with pytest.raises(ValueTypeError, match="lone surrogate"):
        state.set("\ud800", 1)
    assert state.get("\ud800", "default") == "default"


def test_a_value_that_cannot_be_kept_changes_nothing(state):
    state.set("a", 1)

    with pytest.raises(ValueTypeError, match="Fix:"):
        state.set("a", object())

    assert state.get("a") == 1


def test_bytes_are_kept_as_they_are(state):
    state.set_bytes("a", b"\x00")

    assert state.get_bytes("a") == b"\x00"
    assert state.get_bytes("b") is None
    assert state.get_bytes("b", b"default") == b"default"


def test_bytes_are_asked_of_a_value_of_another_type(state):
    state.set("a", {"n": [1, None]})
    state.set("b", None)
    state.set("c", {(1, 2): 3})

    assert state.get_bytes("a") == b'{"n":[1,null]}'
    assert state.get_bytes("b", b"default") == b"null"
    with pytest.raises(
        ValueTypeError, match=r"get_bytes\('c'\) found a value of type dict(.|\n)*Fix:"
    ):
        state.get_bytes("c")
    with pytest.raises(ValueTypeError, match="takes bytes(.|\n)*Fix:"):
        state.set_bytes("a", "text")


def test_values_go_in_and_come_out_as_copies(state):
    mine = {"list": [1]}
    state.set("a", mine)
    mine["list"].append(2)
    state.get("a")["list"].append(3)

    assert state.get("a") == {"list": [1]}


def test_undo_takes_back_every_write_since_keep(scope, state):
    state.set("kept", 1)
    state.set("changed", 1)
    scope.keep()

    state.set("changed", 2)
    state.set("changed", 3)
    state.delete("kept")
    state.set("new", [1])
    scope.undo()

    assert {name: state.get(name) for name in state} == {"kept": 1, "changed": 1}


def test_undo_gives_a_deleted_name_its_place_back(scope, state):
    state.set("a", 1)
    state.set("b", 2)
    scope.keep()

    state.delete("a")
    scope.undo()

    assert state.keys() == ["a", "b"]


def test_undo_reaches_the_writes_of_every_store(scope, state):
    other = State(scope, "other")
    state.set("a", 1)
    other.set("a", 1)

    scope.undo()

    assert state.keys() == other.keys() == []


def test_undo_of_the_first_write_of_a_key_leaves_no_key(scope, state):
    state.set("a", 1)
    scope.undo()

    scope.pages.flush()

    assert scope.pages.keys == 0
    assert list(scope.pages.scan()) == []


def test_a_key_without_names_is_no_key(scope, state):
    state.set("a", 1)
    scope.keep()
    scope.pages.flush()
    scope.open(scope.pages)
    scope.bind(b"key")
    state.delete("a")
    scope.pages.flush()

    assert scope.pages.keys == 0


def test_the_state_shows_what_it_keeps(state):
    state.set("a", 1)

    assert repr(state) == "State({'a': '1'})"


@pytest.mark.parametrize("value", [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30])
def test_ints_of_any_size_are_kept(scope, state, value):
    state.set("a", value)
    scope.pages.flush()
    scope.open(scope.pages)
    scope.bind(b"key")

    assert state.get("a") == value
