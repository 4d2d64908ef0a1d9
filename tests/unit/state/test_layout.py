import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from millpond.errors import DamagedStateError, StateError
from millpond.state import blobs, layout, view
from millpond.state.blobs import hash_key
from millpond.state.codec import Codec
from millpond.state.key_context import KeyContext
from millpond.state.layout import Pages
from millpond.state.store import MemoryStore
from millpond.state.view import State

quick = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

KEYS = [None, b"", *(b"key-%d" % i for i in range(12))]
NAMES = ["a", "b", "ü", (1, 2), 5, "\x1fodd"]
SIZES = [0, 1, 30, 60, 100, 200, 500]


@pytest.fixture
def small(monkeypatch):
    """Pages that split, and values that move out, after a few bytes."""
    with_sizes(monkeypatch, page=200, large=100)


def with_sizes(patch, *, page, large):
    patch.setattr(layout, "PAGE_BYTES", page)
    patch.setattr(layout, "NAMES_PAGE_BYTES", page)
    patch.setattr(layout, "LARGE_BYTES", large)
    patch.setattr(view, "LARGE_BYTES", large)


class Group:
    """A key group, and a dict of dicts that must always look the same."""

    def __init__(self, groups=1):
        self.store = MemoryStore()
        self.groups = groups
        self.model = {}
        self.reload()

    def reload(self):
        self.scope = KeyContext(Codec(), undo=False)
        self.pages = Pages(self.store, self.scope.codec, self.groups)
        self.scope.open(self.pages)
        self.state = State(self.scope)

    def flush(self):
        self.pages.flush()
        self.reload()

    def set(self, key, name, value):
        self.scope.bind(key)
        self.state.set(name, value)
        self.model.setdefault(key, {})[name] = value

    def delete(self, key, name):
        self.scope.bind(key)
        self.state.delete(name)
        self.model.get(key, {}).pop(name, None)

    def content(self):
        found = {}
        for key, _ in list(self.pages.scan()):
            self.scope.bind(key)
            found[key] = {name: self.state.get(name) for name in self.state}
        return found

    def expected(self):
        return {key: names for key, names in self.model.items() if names}


actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("set"),
            st.sampled_from(KEYS),
            st.sampled_from(NAMES),
            st.sampled_from(SIZES),
            st.sampled_from([bytes, str, list]),
        ),
        st.tuples(st.just("delete"), st.sampled_from(KEYS), st.sampled_from(NAMES)),
        st.tuples(st.just("read"), st.sampled_from(KEYS)),
        st.tuples(st.just("flush")),
    ),
    max_size=60,
)


def made(kind, size):
    return {bytes: b"x" * size, str: "ü" * size, list: ["x"] * (size // 2)}[kind]


def perform(group, action):
    verb, *rest = action
    if verb == "set":
        key, name, size, kind = rest
        group.set(key, name, made(kind, size))
    elif verb == "delete":
        group.delete(*rest)
    elif verb == "read":
        group.scope.bind(rest[0])
        assert {n: group.state.get(n) for n in group.state} == group.model.get(rest[0], {})
    else:
        group.flush()


@quick
@given(
    actions=actions, page=st.sampled_from([60, 200, 1000]), large=st.sampled_from([50, 100, 400])
)
def test_pages_behave_like_a_dict_of_dicts(actions, page, large):
    with pytest.MonkeyPatch.context() as patch:
        with_sizes(patch, page=page, large=large)
        group = Group()

        for action in actions:
            perform(group, action)
            if action[0] == "flush":
                assert group.content() == group.expected()
                assert group.pages.keys == len(group.expected())

        group.flush()
        assert group.content() == group.expected()
        assert group.pages.keys == len(group.expected())


@quick
@given(
    actions=actions, page=st.sampled_from([60, 200, 1000]), large=st.sampled_from([50, 100, 400])
)
def test_no_blob_is_left_when_everything_is_deleted(actions, page, large):
    with pytest.MonkeyPatch.context() as patch:
        with_sizes(patch, page=page, large=large)
        group = Group()
        for action in actions:
            perform(group, action)
        group.flush()

        for key in KEYS:
            for name in NAMES:
                group.delete(key, name)
        group.flush()

        assert set(group.store.blobs) <= {b"h"}
        assert group.pages.keys == 0


def blobs_of(group, key, entry):
    """Return the blobs that an entry of a page refers to."""
    found = set()
    if isinstance(entry, Ext):
        assert entry.code == blobs.MANY_NAMES
        prefix = b"n" + blobs.digest(key, "")
        count = msgspec.msgpack.decode(entry.data)[0]
        found |= {prefix + number.to_bytes(4, "big") for number in range(count)}
        parts = [group.store.blobs[i] for i in found if i in group.store.blobs]
        entry = {n: v for b in parts for n, (_, v) in msgspec.msgpack.decode(b[1:]).items()}
    large = (v for v in entry.values() if isinstance(v, Ext) and v.code == blobs.LARGE_VALUE)
    return found | {bytes(value.data) for value in large}


@quick
@given(actions=actions, page=st.sampled_from([60, 200]), large=st.sampled_from([50, 100]))
def test_every_blob_is_referred_to(actions, page, large):
    with pytest.MonkeyPatch.context() as patch:
        with_sizes(patch, page=page, large=large)
        group = Group()
        for action in actions:
            perform(group, action)
        group.flush()

        in_use = {b"h"}
        for blob_id, blob in group.store.blobs.items():
            if blob_id[:1] == b"p":
                in_use.add(blob_id)
                entries, _ = msgspec.msgpack.decode(blob[1:])
                for key, entry in entries.items():
                    in_use |= blobs_of(group, key, entry)
        assert set(group.store.blobs) <= in_use


def test_pages_grow_with_the_keys():
    group = Group(groups=4)
    for i in range(20_000):
        group.set(b"key-%d" % i, "n", i)

    group.flush()

    assert group.pages.count > 20
    assert group.pages.keys == 20_000
    sizes = [len(blob) for blob_id, blob in group.store if blob_id[:1] == b"p"]
    assert max(sizes) < 8 * layout.PAGE_BYTES
    assert group.content() == group.expected()


def test_a_batch_reads_and_writes_the_pages_it_touches_only():
    group = Group()
    for i in range(20_000):
        group.set(b"key-%d" % i, "n", i)
    group.flush()
    group.store.reads = group.store.writes = 0

    group.reload()
    group.set(b"key-5", "n", -1)
    group.pages.flush()

    assert group.store.reads == 2  # the head and one page
    assert group.store.writes <= 2


def test_a_group_of_larger_pages_is_divided_little_by_little(monkeypatch):
    monkeypatch.setattr(layout, "PAGE_BYTES", 4096)
    group = Group()
    for i in range(50_000):
        group.set(b"key-%d" % i, "n", i)
    group.flush()
    before = group.pages.count
    monkeypatch.setattr(layout, "PAGE_BYTES", 1024)

    group.reload()
    group.scope.bind(b"key-5")
    assert group.state.get("n") == 5
    group.pages.flush()
    assert group.pages.count == before  # nothing was written, so nothing is divided

    for i in range(200):
        group.store.reads = group.store.writes = 0
        group.reload()
        group.set(b"key-%d" % i, "n", -i)
        group.flush()
        assert group.store.reads <= 30
        assert group.store.writes <= 60
    assert group.pages.count > 3 * before
    assert group.content() == group.expected()


def test_a_batch_that_changes_nothing_writes_nothing():
    group = Group()
    group.set(b"a", "n", 1)
    group.flush()
    group.store.writes = 0

    group.scope.bind(b"a")
    assert group.state.get("n") == 1
    group.pages.flush()

    assert group.store.writes == 0


def test_a_large_value_does_not_make_its_neighbours_slow():
    group = Group()
    group.set(b"big", "blob", b"x" * 1_000_000)
    group.set(b"small", "n", 1)
    group.flush()

    pages = [blob for blob_id, blob in group.store if blob_id[:1] == b"p"]

    assert max(map(len, pages)) < 1000
    assert group.content() == group.expected()


def test_a_large_value_that_is_not_touched_is_not_written_again(small):
    group = Group()
    group.set(b"big", "blob", b"x" * 500)
    group.flush()
    before = dict(group.store.blobs)

    group.set(b"big", "n", 1)
    large_reads = []
    real = group.store.get
    group.store.get = lambda blob_id: (large_reads.append(blob_id), real(blob_id))[1]
    group.pages.flush()

    (blob_id,) = [b for b in before if b[:1] == b"v"]
    assert group.store.blobs[blob_id] == before[blob_id]
    assert blob_id not in large_reads


def test_a_value_that_becomes_small_gives_its_blob_back(small):
    group = Group()
    group.set(b"k", "v", b"x" * 500)
    group.flush()
    group.set(b"k", "v", b"x")
    group.flush()

    assert {blob_id[:1] for blob_id in group.store.blobs} == {b"h", b"p"}
    assert group.content() == group.expected()


def test_a_key_that_becomes_large_and_small_again_gives_its_blob_back(small):
    group = Group()
    for i in range(50):
        group.set(b"k", f"name-{i}", i)
    group.flush()
    kinds_when_large = {blob_id[:1] for blob_id in group.store.blobs}
    for i in range(49):
        group.delete(b"k", f"name-{i}")
    group.flush()

    assert b"n" in kinds_when_large
    assert {blob_id[:1] for blob_id in group.store.blobs} == {b"h", b"p"}
    assert group.content() == {b"k": {"name-49": 49}}


def test_one_name_of_very_many_is_read_and_written_alone():
    group = Group()
    for i in range(200_000):
        group.set(b"k", f"name-{i}", i)
    group.flush()
    group.set(b"k", "name-0", 0)  # pages that the first writing left too full are split here
    group.flush()

    group.store.reads = group.store.writes = 0
    group.scope.bind(b"k")
    assert group.state.get("name-177777") == 177777
    reads = group.store.reads
    group.state.set("name-177777", -1)
    group.flush()

    assert reads == 2  # the key's page, and one page of names
    assert group.store.writes == 2
    assert max(len(blob) for _, blob in group.store) < 8 * layout.PAGE_BYTES
    group.scope.bind(b"k")
    assert group.state.get("name-177777") == -1
    assert group.state.keys()[177776:177779] == ["name-177776", "name-177777", "name-177778"]


@pytest.mark.parametrize("left", [0, 1, 60])
def test_of_a_key_that_had_very_many_names_no_empty_pages_stay(left):
    group = Group()
    for i in range(100_000):
        group.set(b"k", f"name-{i}", i)
    group.flush()
    assert len(group.store.blobs) > 400

    for i in range(100_000 - left):
        group.delete(b"k", f"name-{i}")
    group.flush()

    assert {blob_id[:1] for blob_id in group.store.blobs} == ({b"h", b"p"} if left else {b"h"})
    assert group.pages.keys == bool(left)
    assert group.content() == group.expected()


def test_what_a_failed_record_did_to_a_key_with_many_names_is_undone(small):
    group = Group()
    for i in range(100):
        group.set(b"k", f"name-{i}", i)
    group.flush()
    scope = KeyContext(Codec(), undo=True)
    scope.open(group.pages)
    scope.bind(b"k")
    state = State(scope)
    before = [(name, state.get(name)) for name in list(state.keys())]

    state.delete("name-7")
    state.set("name-7", "other")
    state.delete("name-8")
    state.set("new", 1)
    state.set("name-9", "other")
    scope.undo()

    assert [(name, state.get(name)) for name in list(state.keys())] == before
    group.pages.flush()
    group.reload()
    assert group.content() == group.expected()


def test_a_page_of_names_that_is_missing_is_reported(small):
    group = Group()
    for i in range(100):
        group.set(b"k", f"name-{i}", i)
    group.flush()
    gone = next(b for b in group.store.blobs if b[:1] == b"n")
    kept = group.store.blobs.pop(gone)
    group.reload()

    lost = msgspec.msgpack.decode(kept[1:])
    group.scope.bind(b"k")
    with pytest.raises(DamagedStateError, match="missing from the state(.|\n)*Fix:"):
        group.state.get(next(iter(lost)))
    with pytest.raises(DamagedStateError, match="missing from the state(.|\n)*Fix:"):
        group.content()
    group.store.blobs[gone] = blobs.VERSION + blobs.encode({})
    group.reload()
    with pytest.raises(DamagedStateError, match="has 100 names(.|\n)*Fix:"):
        group.content()


def test_every_change_of_a_name_shows_in_the_page_of_its_key(small):
    group = Group()
    for i in range(100):
        group.set(b"k", f"name-{i}", i)
    group.flush()
    before = dict(group.store.blobs)
    group.set(b"k", "name-50", 51)
    group.flush()

    changed = {b[:1] for b, blob in group.store.blobs.items() if before.get(b) != blob}
    assert changed == {b"p", b"n"}


def test_large_values_of_a_large_key_survive_a_change_of_a_neighbour(small):
    group = Group()
    for i in range(30):
        group.set(b"k", f"name-{i}", b"x" * 150)
    group.flush()
    group.set(b"other", "n", 1)
    group.flush()
    group.set(b"other", "n", 2)
    group.scope.bind(b"k")  # read, not changed
    group.flush()

    assert group.content() == group.expected()


def test_ids_of_blobs_are_plain_bytes(small):
    asked = []

    class Strict(MemoryStore):
        def get(self, blob_id):
            asked.append(type(blob_id))
            return super().get(blob_id)

        def delete(self, blob_id):
            asked.append(type(blob_id))
            super().delete(blob_id)

    group = Group()
    group.store = Strict()
    group.reload()
    for i in range(20):
        group.set(b"k", f"name-{i}", b"x" * 150)
    group.flush()
    group.content()
    for i in range(20):
        group.delete(b"k", f"name-{i}")
    group.flush()

    assert set(asked) == {bytes}


def test_the_hash_of_a_key_never_changes():
    assert hash_key(None) == 0
    assert hash_key(b"") == 0
    assert [hash_key(b"a"), hash_key(b"abc")] == [3904355907, 891568578]


def test_the_page_of_a_key_is_found_again_after_every_split(small):
    group = Group(groups=3)
    for i in range(300):
        group.set(b"key-%d" % i, "n", i)
        if i % 10 == 0:
            group.flush()
            assert group.content() == group.expected()


# --- what can be wrong with the bytes -------------------------------------------------------


def test_a_page_of_a_newer_format_is_refused():
    group = Group()
    group.set(b"a", "n", 1)
    group.flush()
    group.store.blobs[b"p\0\0\0\0"] = b"\x03" + group.store.blobs[b"p\0\0\0\0"][1:]

    group.reload()
    with pytest.raises(StateError, match="format 3(.|\n)*Fix:"):
        group.scope.bind(b"a")


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x01\xff\xff", b"\x01\x92"])
def test_a_damaged_page_is_refused(damage):
    group = Group()
    group.set(b"a", "n", 1)
    group.flush()
    group.store.blobs[b"p\0\0\0\0"] = damage

    group.reload()
    with pytest.raises(StateError, match="Fix:"):
        group.scope.bind(b"a")


def test_a_large_value_that_is_missing_is_refused(small):
    group = Group()
    group.set(b"a", "v", b"x" * 500)
    group.flush()
    (blob_id,) = [b for b in group.store.blobs if b[:1] == b"v"]
    del group.store.blobs[blob_id]

    group.scope.bind(b"a")
    with pytest.raises(StateError, match="missing from the state(.|\n)*Fix:"):
        group.state.get("v")


# --- the golden file ------------------------------------------------------------------------


def golden_blobs(version):
    """The store of a key group as a format wrote it: MessagePack of id -> blob, compressed.

    Never write the files again: add another one for a new format.
    """
    file = Path(__file__).parent / f"page-v{version}.bin"
    return msgspec.msgpack.decode(zlib.decompress(file.read_bytes()))


def golden_content():
    """What the file holds."""
    found = {None: {"n": 0}, b"": {"n": 1, "empty": b""}}
    for i in range(900):
        found[b"key-%d" % i] = {"n": i, "text": "ä" * (i % 7), 5: (i, [None, 1.5, True]), "s": {i}}
    found[b"large value"] = {"v": b"\x00\x01" * 40_000, "list": [0] * 40_000}
    found[b"many names"] = {f"name-{i}": i for i in range(3_000)}
    found[b"both"] = {**{f"name-{i}": i for i in range(3_000)}, "v": "x" * 50_000}
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_state_written_by_every_format_is_read(version):
    blobs = golden_blobs(version)
    group = Group(groups=8)
    group.store = MemoryStore(blobs)

    group.reload()

    assert {blob[0] for blob in blobs.values()} == {version}
    assert {b[:1] for b in blobs} == {b"h", b"p", b"v", b"k" if version == 1 else b"n"}
    assert group.content() == golden_content()
    assert group.pages.keys == len(golden_content())
    assert group.pages.count > 1


@pytest.mark.parametrize("version", [1, 2])
def test_state_written_by_every_format_can_be_written_to(version):
    group = Group(groups=8)
    group.store = MemoryStore(golden_blobs(version))
    group.reload()
    group.model = golden_content()

    group.set(b"key-7", "n", "changed")
    group.set(b"many names", "one more", 1)
    group.delete(b"large value", "v")
    group.flush()

    assert group.content() == group.expected()
