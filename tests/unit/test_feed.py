"""How records are given to the local engine: by source, with a key, a timestamp and headers."""

import pytest

import millpond as mp
from millpond.errors import ConfigError, StepError
from millpond.testing import END, ListSource, LocalEngine, frame, run_local


def two_sources(tmp_path):
    app = mp.Application(topics_dir=tmp_path, loglevel=None)
    clicks = app.dataframe(app.topic("clicks")).apply(lambda value: ("click", value))
    users = app.dataframe(app.topic("users")).apply(lambda value: ("user", value))
    return clicks.concat(users)


def headers_of():
    return frame().apply(lambda value, key, timestamp, headers: headers, metadata=True)


def test_feed_by_source(tmp_path):
    engine = LocalEngine(two_sources(tmp_path))

    engine.feed({"users": [1], "clicks": [2, 3]})
    engine.feed([4], "users")

    assert sorted(engine.run()) == [("click", 2), ("click", 3), ("user", 1), ("user", 4)]


def test_a_list_for_two_sources_is_refused_and_the_fix_works(tmp_path):
    with pytest.raises(ConfigError) as refused:
        run_local(two_sources(tmp_path), [1])

    assert str(refused.value).endswith(
        "Fix: give records by source: {'clicks': [...], 'users': [...]}."
    )
    assert run_local(two_sources(tmp_path), {"clicks": [1], "users": []}) == [("click", 1)]


def test_one_record_instead_of_a_list_is_refused():
    engine = LocalEngine(frame(name="clicks"))

    with pytest.raises(ConfigError, match=r"reads \['clicks'\], not 'user'(.|\n)*list of one"):
        engine.feed({"user": "ann"})
    with pytest.raises(ConfigError, match=r"got \{'user': 'ann'\}(.|\n)*in a list"):
        engine.feed({"clicks": {"user": "ann"}})

    engine.feed([{"user": "ann"}])
    assert engine.run() == [{"user": "ann"}]


@pytest.mark.parametrize("headers", [{"a": b"1"}, [("a", b"1")], {"a": "1"}])
def test_headers_of_a_list(headers):
    assert run_local(headers_of(), [("k", 1, 5, headers)]) == [[("a", b"1")]]


def test_headers_of_a_topic(tmp_path):
    app = mp.Application(topics_dir=tmp_path, loglevel=None)
    seen = app.dataframe(app.topic("in")).apply(lambda v, k, t, h: (v, k, t, h), metadata=True)

    assert run_local(seen, [("k", 1, 5, {"a": b"1"}), ("k", 2, 6, None)]) == [
        (1, b"k", 5, [("a", b"1")]),
        (2, b"k", 6, None),
    ]


def test_a_timestamp_of_none_before_headers_is_now():
    times = frame().apply(lambda value, key, timestamp, headers: timestamp, metadata=True)

    assert run_local(times, [("k", 1, None, {})], clock=lambda: 77) == [77]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ((1, 2, 3, 4), "a tuple of four is .*got 4"),
        (("k", 1, 2, [("a", 1)]), "a tuple of four is .*got .*'a', 1"),
        (("a", "b", "c", "d"), "timestamp must be an int .*got 'c'"),
        ((1, 2, 3.5), "timestamp must be an int .*got 3.5"),
    ],
)
def test_a_tuple_that_is_no_record_is_refused_and_the_fix_works(record, text):
    with pytest.raises(ConfigError, match=rf"{text}(.|\n)*Fix: .*\(key, the tuple\)"):
        run_local(frame(), [record])
    with pytest.raises(ConfigError, match=text):
        run_local(frame(ListSource([record])))

    assert run_local(frame(), [(None, record)]) == [record]


def test_longer_and_shorter_tuples_are_values():
    assert run_local(frame(), [(1,), (1, 2, 3, 4, 5)]) == [(1,), (1, 2, 3, 4, 5)]


@pytest.mark.parametrize("batches", [None, 1])
def test_a_batch_that_a_sink_has_failed_on_is_replayed_as_it_was(batches):
    """What came meanwhile, or another size of batches, does not change it: nothing is lost."""
    stored, failures = mp.ListSink(), [OSError("away")]

    def save(records, delivery_id):
        if failures:
            raise failures.pop()

    sdf = frame()
    sdf.sink(stored)
    sdf.sink(save)
    engine = LocalEngine(sdf)
    engine.feed([1, 2])
    with pytest.raises(OSError, match="away"):
        engine.run(batches=batches)
    engine.feed([3])

    engine.run()

    assert stored == [1, 2, 3]


def test_what_sink_returns_is_no_frame_and_the_error_says_so():
    with pytest.raises(ConfigError, match=r"got None(.|\n)*Fix: sink\(\) returns None: give the"):
        run_local(frame().sink(print), [1])


def test_a_function_for_a_sink_takes_records_and_the_delivery_id():
    with pytest.raises(ConfigError, match=r"\(records, delivery_id\), which it does not take"):
        frame().sink(lambda records: None)


def test_a_class_is_no_sink_and_the_fix_has_parentheses():
    with pytest.raises(ConfigError, match=r"the class ListSink(.|\n)*Fix: sdf.sink\(ListSink\("):
        frame().sink(mp.ListSink)


def test_what_is_due_at_an_end_mark_is_done_again_where_it_has_failed():
    failures = [ValueError("once")]

    def fail_once(window):
        if failures:
            raise failures.pop()
        return window["n"]

    sdf = frame(ListSource([], "list")).watermark(0, on=lambda value: value)
    sdf = sdf.tumbling_window(1000).agg(n=mp.Count()).final().apply(fail_once)
    engine = LocalEngine(sdf, copy_functions=False)
    engine.feed([1, 2, 3, 1500, END, 1600, 2500, END])

    with pytest.raises(StepError, match="once"):
        engine.run(batches=10)
    engine.run()
    run = engine.run()

    assert [value for value in run if isinstance(value, int)] == [3, 2]
    assert sum(report.read for report in engine.reports) == 6


def test_topics_have_the_outputs_of_a_replayed_batch_once(tmp_path):
    app, failures = mp.Application(topics_dir=tmp_path, loglevel=None), [OSError("away")]

    def save(records, delivery_id):
        if failures:
            raise failures.pop()

    sdf = frame()
    sdf.to_topic(app.topic("out"))
    sdf.sink(save)
    engine = LocalEngine(sdf)
    engine.feed([1, 2])
    with pytest.raises(OSError, match="away"):
        engine.run()

    engine.run()

    assert [record.value for record in engine.topics["out"]] == [b"1", b"2"]


def test_a_record_that_fails_in_a_test_does_not_fail_the_next_one():
    sdf = frame().apply(lambda value: 1 / value)
    with pytest.raises(StepError, match="ZeroDivisionError"):
        sdf.test(0)

    assert [value for value, *_ in sdf.test(2)] == [0.5]
