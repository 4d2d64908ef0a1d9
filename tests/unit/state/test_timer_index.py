import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import StateError
from millpond.state import timer_index
from millpond.state.store import MemoryStore
from millpond.state.timer_index import NEVER, TimerIndex

quick = settings(max_examples=150, deadline=None)

KEYS = [None, b"", b"a", b"b", b"key-\xff"]
YEAR = 365 * 24 * 3600 * 1000

# Near and far, both sides of zero, and the edges of the narrowest buckets.
moments = st.one_of(
    st.integers(-3_000, 3_000),
    st.integers(-5, 5).flatmap(lambda n: st.integers(n * 1024 - 1, n * 1024 + 1)),
    st.integers(0, 50 * YEAR),
    st.integers(-(2**62), 2**62),
)
hints = st.lists(st.tuples(moments, st.sampled_from(KEYS)), max_size=8)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), hints),
        st.tuples(st.just("take"), moments),
        st.tuples(st.just("flush"), moments | st.just(NEVER)),
        st.tuples(st.just("reload"), st.none()),
    ),
    max_size=25,
)


class Group:
    """An timer_index that can be loaded again, and the list of hints it must hold."""

    def __init__(self, name=b"e0", store=None):
        self.store = store or MemoryStore()
        self.name = name
        self.timer_index = TimerIndex(self.store, name)
        self.model = []

    def add(self, *hints):
        for due, key in hints:
            self.timer_index.add(due, key)
        self.model += hints

    def take(self, clock):
        due = [hint for hint in self.model if hint[0] <= clock]
        self.model = [hint for hint in self.model if hint[0] > clock]
        return self.timer_index.take_due(clock), in_order(due)

    def flush(self, clock):
        self.timer_index.flush(clock)

    def reload(self, clock=0):
        """Write what has changed, and read it as the next batch does."""
        if self.timer_index.is_changed:
            self.flush(clock)
        self.timer_index = TimerIndex(self.store, self.name, self.timer_index.head)

    def next_due(self):
        return min((due for due, _ in self.model), default=None)

    def chunks(self):
        return [blob for blob in self.store.blobs if blob[:1] == b"a" and self.name in blob]


def in_order(hints):
    return sorted(hints, key=lambda hint: (hint[0], hint[1] or b""))


def by_time_and_key(hints):
    """Of one moment, the hints of None and of b"" may come in either order."""
    return [(due, key or b"") for due, key in hints]


@quick
@given(actions=actions, chunk_bytes=st.sampled_from([1, 40, 16 * 1024]))
def test_it_gives_exactly_the_hints_that_are_due_however_often_it_is_written(actions, chunk_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_index, "_CHUNK_BYTES", chunk_bytes)
        group, clock = Group(), 0
        for verb, argument in actions:
            if verb == "add":
                group.add(*argument)
            elif verb == "take":
                clock = argument
                found, expected = group.take(clock)
                assert by_time_and_key(found) == by_time_and_key(expected)
                assert sorted(map(repr, found)) == sorted(map(repr, expected))
            elif verb == "flush":
                group.flush(argument)
            else:
                group.reload(clock)
            assert group.timer_index.next_due == group.next_due()
        group.reload(clock)

        found, expected = group.take(2**63 - 1)

        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        assert group.timer_index.next_due is None
        group.reload(clock)
        assert group.timer_index.head == []
        assert group.store.blobs == {}


@quick
@given(hints=hints, clock=moments)
def test_it_says_when_its_head_must_be_written(hints, clock):
    group = Group()
    assert not group.timer_index.is_changed
    group.add(*hints)
    assert group.timer_index.is_changed == bool(hints)
    group.reload()
    before = group.timer_index.head
    assert not group.timer_index.is_changed

    group.take(clock)

    is_other = any(due <= clock for due, _ in hints)
    assert group.timer_index.is_changed == is_other
    assert (group.timer_index.head != before) == is_other


@quick
@given(one=hints, other=hints, clock=moments)
def test_the_agendas_of_two_clocks_in_one_store_do_not_mix(one, other, clock):
    first = Group(b"e0")
    second = Group(b"wall", first.store)
    first.add(*one)
    second.add(*other)
    first.reload()
    second.reload()

    found, expected = first.take(clock)

    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    first.reload()
    second.reload()
    rest, _ = second.take(2**63 - 1)
    assert sorted(map(repr, rest)) == sorted(map(repr, other))


def test_a_hint_is_given_once():
    group = Group()
    group.add((10, b"a"), (20, b"a"))
    group.reload()

    assert group.timer_index.take_due(9) == []
    assert group.timer_index.take_due(10) == [(10, b"a")]
    group.reload()
    assert group.timer_index.take_due(10) == []
    assert group.timer_index.next_due == 20
    assert group.timer_index.take_due(20) == [(20, b"a")]


def test_the_same_hint_twice_is_given_twice():
    group = Group()
    group.add((10, b"a"), (10, b"a"))
    group.reload()

    assert group.timer_index.take_due(10) == [(10, b"a"), (10, b"a")]


def test_hints_of_one_moment_come_in_the_order_of_their_keys():
    group = Group()
    group.add((10, b"b"), (10, b"a"), (5, b"z"))
    group.reload()
    group.add((10, b"0"))

    assert group.timer_index.take_due(10) == [(5, b"z"), (10, b"0"), (10, b"a"), (10, b"b")]


def test_an_empty_agenda_reads_and_writes_nothing():
    group = Group()

    assert group.timer_index.next_due is None
    assert group.timer_index.take_due(10**15) == []
    group.flush(5)
    assert group.timer_index.head == []
    assert (group.store.reads, group.store.writes) == (0, 0)


def test_a_chunk_that_is_missing_is_a_state_error():
    group = Group()
    group.add((10, b"a"))
    group.reload()
    group.store.blobs.clear()

    with pytest.raises(StateError, match="a part of the timer index is missing"):
        group.timer_index.take_due(10)


def test_every_chunk_begins_with_its_version():
    group = Group()
    group.add((10, b"a"), (YEAR, b"b"))
    group.reload()

    assert {blob[0] for blob in group.store.blobs.values()} == {1}


# --- what a batch costs ---------------------------------------------------------------------


def filled(count, spread=YEAR, begin=YEAR):
    """A timer index with so many timers far away, added by many batches."""
    group = Group()
    step = max(1, count // 50)
    for low in range(0, count, step):
        far = range(low, min(low + step, count))
        group.add(*((begin + n * spread // count, b"far-%d" % n) for n in far))
        group.reload()
    return group


def cost(group, act):
    store = group.store
    reads, writes = store.reads, store.writes
    act()
    return store.reads - reads, store.writes - writes


def one_batch(group, now):
    """A batch of one second: a few hints are added, a few are due."""
    group.add(*((now + n * 700, b"near-%d" % n) for n in range(20)))
    group.take(now + 1_000)
    group.reload(now + 1_000)


@pytest.mark.parametrize("count", [100, 1_000, 30_000])
def test_the_cost_of_a_batch_does_not_depend_on_the_hints_that_are_far_away(count):
    group = filled(count)

    reads, writes = zip(
        *(cost(group, lambda now=now: one_batch(group, now)) for now in range(0, 60_000, 1_000)),
        strict=True,
    )

    # 14 seconds of hints lie in at most as many buckets, each of one chunk.
    assert max(reads) <= 16
    assert max(writes) <= 32


@pytest.mark.parametrize("count", [100, 30_000])
def test_a_batch_in_which_nothing_is_due_reads_and_writes_nothing(count):
    group = filled(count)

    def batch():
        assert group.timer_index.take_due(1_000) == []
        assert not group.timer_index.is_changed

    assert cost(group, batch) == (0, 0)


@pytest.mark.parametrize("count", [100, 30_000])
def test_a_hint_that_is_added_far_away_reads_and_writes_one_chunk(count):
    group = filled(count)

    def batch():
        group.add((YEAR + 5, b"new"))
        group.reload()

    reads, writes = cost(group, batch)
    assert reads <= 1
    assert writes == 1


def test_chunks_stay_small_when_hints_are_added_one_by_one():
    group = Group()
    for n in range(4_000):
        group.add((YEAR + n, b"a-key-of-some-length-%d" % n))
        group.reload()

    assert max(map(len, group.store.blobs.values())) < 2 * 16 * 1024
    assert 4 < len(group.chunks()) < 40


def test_a_hint_is_moved_a_few_times_only_until_it_is_due():
    count = 2_000
    group = filled(count, spread=30 * 24 * 3600 * 1000, begin=3600 * 1000)
    written = group.store.writes
    moves, left = 0, count
    now = 0
    while left:
        now += 3 * 3600 * 1000
        taken, _ = group.take(now)
        left -= len(taken)
        moves += len(group.timer_index._fresh)
        group.reload(now)

    # Buckets get narrower by the logarithm of the distance: about a dozen widths in a month.
    assert moves < 8 * count
    assert group.store.writes - written < 8 * count
    assert group.store.blobs == {}


def test_the_head_grows_with_the_logarithm_of_the_time_ahead():
    group = filled(30_000, spread=20 * YEAR, begin=0)

    assert len(group.timer_index.head) < 400
