"""Sources that users write: what they are given, and what is said where they are wrong."""

from __future__ import annotations

import math

import pytest

import millpond as mp
from millpond.connectors.as_source import as_source
from millpond.connectors.polled_source import PollSpool
from millpond.errors import ConfigError, SourceError
from millpond.state.codec import Codec
from millpond.testing import END, LocalEngine, frame, run_local


class Numbers(mp.Source):
    name = "numbers"

    def __init__(self, ends=None, records=None):
        self.end_of = {"a": 3, "b": 2} if ends is None else ends
        self.records = records

    def ends(self):
        return self.end_of

    def read(self, partition, start, end):
        if self.records is not None:
            return self.records
        return ((partition, number) for number in range(start, end))


def reader_of(source):
    return as_source(source, Codec()).reader("")


def read(source, start=0, end=3):
    batches = reader_of(source).read("0 a", start, end)
    return [row for batch in batches for row in batch.to_pylist()]


# --- partitions and positions ---------------------------------------------------------------


def test_partitions_have_the_numbers_of_their_first_appearance():
    source = Numbers({"eu": 5, "us": 0})
    reader = reader_of(source)
    begin = reader.initial("latest")

    first = reader.ends(begin)
    source.end_of = {"jp": 1, "us": 2, "eu": 5}
    second = reader.ends(first)

    assert (begin, first) == ({}, {"0 eu": 5, "1 us": 0})
    assert second == {"2 jp": 1, "1 us": 2, "0 eu": 5}
    assert [reader.number_of(partition) for partition in second] == [2, 1, 0]


def test_a_source_says_where_a_new_group_begins():
    class Late(Numbers):
        def starts(self):
            return self.ends()

    assert reader_of(Late({"a b": 7})).initial("earliest") == {"0 a b": 7}


def test_records_have_the_offsets_they_are_given_or_follow_one_another():
    given = [("k", 1), mp.Record("k", 2, 5, [("h", b"1")], offset=4), 3]

    found = read(Numbers(records=given), 0, 10)

    assert [row["offset"] for row in found] == [0, 4, 5]
    assert [row["timestamp"] for row in found] == [None, 5, None]
    assert [row["key"] is None for row in found] == [False, False, True]


def test_many_records_come_in_several_batches():
    batches = list(reader_of(Numbers()).read("0 a", 0, 25_000))

    assert [batch.num_rows for batch in batches] == [10_000, 10_000, 5_000]


def test_an_engine_reads_what_is_new():
    source = Numbers({"a": 2})
    engine = LocalEngine(frame(source))
    engine.read_sources()
    first = list(engine.run())
    source.end_of = {"a": 3, "b": 1}
    engine.read_sources()

    assert first == [0, 1]
    assert engine.run() == [0, 1, 2, 0]


def test_an_engine_after_another_one_reads_what_that_one_has_not():
    source = Numbers({"a": 2})
    before = LocalEngine(frame(source))
    before.read_sources()
    before.run()
    source.end_of = {"a": 3}
    after = LocalEngine(frame(source), after=before)
    after.read_sources()

    assert after.run() == [2]


def test_a_test_may_give_the_records_itself():
    sdf = frame(Numbers()).apply(lambda value: value + 1)

    assert run_local(sdf, [("k", 1), ("k", 2, 5, {"h": b"1"})]) == [2, 3]
    assert run_local(sdf, {"numbers": [5, END]}) == [6]


def test_registered_types_can_be_keys(tmp_path):
    from dataclasses import dataclass

    app = mp.Application(state_dir=tmp_path, loglevel=None)

    @app.register_type
    @dataclass(frozen=True)
    class User:
        name: str

    sdf = app.dataframe(source=Numbers({"a": 1}, [(User("ann"), 1)]))

    assert run_local(sdf.apply(lambda v, key, t, h: key, metadata=True)) == [User("ann")]


# --- what is refused where it is given ------------------------------------------------------


def test_the_class_itself_is_refused():
    with pytest.raises(ConfigError, match=r"the class Numbers.*py:\d+(.|\n)*Fix: .*Numbers\(...\)"):
        frame(Numbers)


class NoStarts:
    name = "x"

    def ends(self):
        return {}

    def read(self, partition, start, end):
        return []


class NoName(mp.Source):
    def ends(self):
        return {}

    def read(self, partition, start, end):
        return []


class NoInterval:
    name = "x"

    def poll(self, position):
        return [], None


class FewArguments(Numbers):
    def read(self, partition):
        return []


class Awaited(Numbers):
    async def ends(self):
        return {}


class OddName(Numbers):
    name = "a/b"


class OddInterval(mp.PollSource):
    name = "x"
    interval = -1

    def poll(self, position):
        return [], None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (NoStarts, r"NoStarts has no method 'starts' \(test_own_sources.py:\d+\)(.|\n)*mp.Source"),
        (NoName, r"NoName has no attribute 'name' (.|\n)*Fix: inherit from mp.Source and give it"),
        (
            NoInterval,
            "NoInterval has no attribute 'interval'(.|\n)*Fix: inherit from mp.PollSource",
        ),
        (FewArguments, r"read\(\) is called with \(partition, start, end\), which it does not"),
        (Awaited, "asynchronous|async"),
        (OddName, "'a/b' cannot be the name of a source"),
        (OddInterval, "interval of source 'x' is seconds, got -1"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_an_object_that_is_no_source_is_refused_with_what_is_missing(wrong, message):
    with pytest.raises(ConfigError, match=message):
        frame(wrong())


def test_a_source_without_read_cannot_be_made():
    class Half(mp.Source):
        name = "half"

        def ends(self):
            return {}

    with pytest.raises(TypeError, match="abstract.*read"):
        Half()


# --- what is refused while it runs ----------------------------------------------------------


@pytest.mark.parametrize("given", [None, [("a", 1)], {"a": -1}, {"a": True}, {1: 1}, {"": 1}])
def test_ends_that_are_no_offsets_are_refused(given):
    class Odd(Numbers):
        def ends(self):
            return given

    with pytest.raises(SourceError, match=r"ends\(\) must return a dict(.|\n)*Fix: return \{\"0\""):
        reader_of(Odd()).ends({})


def test_ends_that_go_back_are_refused():
    with pytest.raises(SourceError, match="'a' ends at 3, but this group has read it up to 5"):
        reader_of(Numbers()).ends({"0 a": 5})


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ("abc", "must give records, one after the other, it returned 'abc'"),
        (mp.Record("k", 1, None), "must give records, one after the other"),
        ([1, 2, 3, 4], r"gave more than 3 record\(s\)(.|\n)*Fix: .*up to, not including, 3"),
        ([mp.Record("k", 1, 5, offset=3)], "gave a record with offset 3"),
        ([mp.Record("k", 1, 5, offset=1)] * 2, "gave offset 1 after 1"),
        ([mp.Record("k", 1, 5, offset="1")], "whose offset is '1'"),
        ([("k", 1, "now")], "whose timestamp is 'now'(.|\n)*Fix: give milliseconds"),
        ([("k", 1, -(10**20))], "whose timestamp is -100000000000000000000"),
        ([1, (object(), 1)], "a record at offset 1 that cannot be sent: .*object"),
        ([1, ("k", 1, 5, 7)], "a record at offset 1 that cannot be sent: headers must be"),
    ],
)
def test_records_that_cannot_be_records_are_refused(records, message):
    with pytest.raises(SourceError, match=message) as caught:
        read(Numbers(records=records))

    assert str(caught.value).startswith("source 'numbers' (test_own_sources.py:")
    assert "read('a', 0, 3)" in str(caught.value)


def test_a_value_that_cannot_be_sent_is_named_with_its_offset():
    with pytest.raises(SourceError, match="offset 1 that cannot be sent: .*type generator"):
        read(Numbers(records=[1, (n for n in [])]))


def test_what_a_source_raises_is_named_with_the_call_and_the_line():
    class Failing(Numbers):
        def ends(self):
            raise OSError("the disk is gone.")

        def read(self, partition, start, end):
            yield from [1, 2]
            raise KeyError("user")

    line = r"\(test_own_sources.py:\d+\)"
    with pytest.raises(SourceError, match=rf"ends\(\) raised OSError: the disk is gone {line}\.\n"):
        reader_of(Failing()).ends({})
    text = (
        rf"read\('a', 0, 3\), after offset 1, raised KeyError: 'user' {line}(.|\n)*Failing.read\(\)"
    )
    with pytest.raises(SourceError, match=text) as caught:
        read(Failing())

    assert isinstance(caught.value.__cause__, KeyError)


# --- polled sources -------------------------------------------------------------------------


class Pages(mp.PollSource):
    name = "pages"
    interval = 0.0

    def __init__(self, *pages):
        self.pages = pages
        self.asked = []

    def poll(self, position):
        self.asked.append(position)
        page = position or 0
        return (self.pages[page], page + 1) if page < len(self.pages) else ([], page)


def spool_of(source, folder, drains=True):
    return PollSpool(as_source(source, Codec()), str(folder), drains=drains)


def test_a_spool_goes_on_at_the_position_after_its_last_record(tmp_path):
    first = spool_of(Pages([1, 2], [3]), tmp_path)
    counts = [first.advance(10, 5), first.advance(10, 5)]
    source = Pages([1, 2], [3], [4])
    second = spool_of(source, tmp_path)
    counts += [second.advance(10, 5), second.advance(10, 5)]

    assert counts == [2, 1, 1, 0]
    assert source.asked == [2, 3]
    assert (second.taken, second.is_done) == (4, True)
    found = source_values(source, tmp_path)
    assert found == [1, 2, 3, 4]


def source_values(source, folder):
    settings = as_source(source, Codec())
    reader = settings.reader(str(folder))
    parts = reader.read("0", 0, reader.ends({})["0"])
    return [settings.value_deserializer(v) for p in parts for v in p.column("value").to_pylist()]


def test_a_poll_that_failed_is_asked_for_again(tmp_path):
    class Failing(Pages):
        def poll(self, position):
            if position == 1:
                raise ConnectionError("reset by peer")
            return super().poll(position)

    spool = spool_of(Failing([1], [2]), tmp_path)
    spool.advance(10, 5)
    with pytest.raises(
        SourceError, match=r"poll\(1\) raised ConnectionError: reset by peer \(test_"
    ):
        spool.advance(10, 5)
    later = spool_of(Pages([1], [2]), tmp_path)
    later.advance(10, 5)

    assert source_values(Pages(), tmp_path) == [1, 2]


def test_a_source_that_gave_nothing_is_left_alone_for_a_while(tmp_path):
    source = Pages()
    source.interval = 60
    spool = spool_of(source, tmp_path, drains=False)

    assert [spool.advance(10, 5) for _ in range(3)] == [0, 0, 0]
    assert source.asked == [None]
    assert not spool.is_done


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([1], math.nan), "position nan, which JSON cannot hold"),
        (([1], {1: 2}), "which JSON reads as"),
        (([1], object()), "which JSON cannot hold"),
        ([1], r"must return \(records, position\)"),
        (("ab", 1), "must give records, one after the other"),
        (([object()], 1), "a record that cannot be kept: .*object"),
        (([("k", 1, 5, 7)], 1), "a record that cannot be kept: .*headers are a dict"),
        (([("k", 1, "x")], 1), "whose timestamp is 'x'"),
    ],
)
def test_what_cannot_be_kept_of_a_poll_is_refused(given, message, tmp_path):
    class Odd(Pages):
        def poll(self, position):
            return given

    with pytest.raises(SourceError, match=message) as caught:
        spool_of(Odd(), tmp_path).advance(10, 5)

    assert "\nFix: " in str(caught.value)
    assert "ListSource" not in str(caught.value)
