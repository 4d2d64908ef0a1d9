"""Input that is too large, empty, odd or wrong: it works, or the error says what to do."""

import json
import re
from collections import Counter
from dataclasses import dataclass

import pytest

from millpond import Application
from millpond.errors import (
    ConfigError,
    DamagedStateError,
    MillpondError,
    StateError,
    StepError,
)
from millpond.testing import ListSource, LocalEngine, frame, run_local


@pytest.fixture
def app(tmp_path):
    return Application(topics_dir=tmp_path, state_dir=tmp_path, loglevel=None)


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


def offsets(run):
    return [int(dict(record.headers)["millpond.offset"]) for record in run.dead_letters]


# --- large ----------------------------------------------------------------------------------


def test_a_value_of_5_mb_under_one_key():
    def keep(value, state):
        before = state.get("blob", b"")
        state.set("blob", value * 5_000_000)
        return len(before), before[:1]

    run = run_local(
        frame().apply(keep, stateful=True),
        [("k", b"a"), ("k", b"b"), ("l", b"c")],
        batches=[1, 1, 1],
    )

    assert list(run) == [(0, b""), (5_000_000, b"a"), (0, b"")]
    assert run.state("k") == {"blob": b"b" * 5_000_000}


def test_ten_thousand_names_under_one_key():
    def name_all(value, state):
        if value == "set":
            for i in range(10_000):
                state.set(f"name-{i}", i)
        state.set("last", value)
        return len(state)

    run = run_local(
        frame().apply(name_all, stateful=True),
        [("k", "set"), ("k", "look"), ("l", "look")],
        batches=[1, 1],
    )

    assert list(run) == [10_001, 10_001, 1]
    assert run.state("k")["name-9999"] == 9999


def test_a_key_of_1_mb(app):
    key = b"k" * 1_000_000
    sdf = app.dataframe(app.topic("in")).apply(count, stateful=True).to_topic(app.topic("out"))

    run = run_local(sdf, [(key, {}), (key, {}), (key[:-1], {})], batches=[1])

    assert list(run) == [1, 2, 1]
    assert run.topics["out"][0].key == key


def test_a_record_of_5_mb(app):
    sdf = app.dataframe(app.topic("in")).group_by("k").apply(count, stateful=True)

    assert run_local(sdf, [{"k": 1, "text": "x" * 5_000_000}] * 2) == [1, 2]


def test_output_of_more_than_a_chunk_keeps_its_order():
    sdf = (
        frame()
        .group_by(lambda value: 0, name="all")
        .apply(lambda value, state: (value, "x" * 40_000), stateful=True)
    )

    assert [number for number, _ in run_local(sdf, range(600))] == list(range(600))


def test_an_error_about_a_large_record_is_short():
    def fail(value, key, timestamp, headers):
        raise ValueError("bad")

    with pytest.raises(StepError) as caught:
        run_local(frame().apply(fail, metadata=True), [(b"k" * 10**6, "x" * 10**6)])

    assert len(str(caught.value)) < 3000


# --- empty, None, unicode -------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, b"", b"\x00", "ä€😀".encode(), b"\xff"])
@pytest.mark.parametrize(
    "value", [None, b"null", b'""', b"{}", b"[]", b"0", '"ä😀\\u0000"'.encode()]
)
def test_empty_and_odd_keys_and_values_of_a_topic(app, key, value):
    sdf = app.dataframe(app.topic("in"))
    sdf = sdf.apply(lambda v, k, t, h, state: [v, count(v, state)], stateful=True, metadata=True)
    sdf.to_topic(app.topic("out"))

    run = run_local(sdf, [(key, value), (key, value)])

    expected = None if value is None else json.loads(value)
    assert list(run) == [[expected, 1], [expected, 2]]
    assert [record.key for record in run.topics["out"]] == [key, key]


def test_a_batch_without_records_does_nothing():
    run = run_local(frame().apply(count, stateful=True), [], batches=[0, 5])

    assert list(run) == []
    assert run.reports == []


def test_records_without_a_timestamp_get_one():
    (time,) = run_local(frame().apply(lambda v, k, t, h: t, metadata=True), [1])

    assert type(time) is int
    assert time > 1_600_000_000_000


# --- invalid input --------------------------------------------------------------------------


def test_invalid_json_is_a_dead_letter_and_nothing_else_is_lost(app):
    sdf = app.dataframe(app.topic("in")).apply(count, stateful=True)

    run = run_local(
        sdf, [("k", b"{}"), ("k", b"{half"), ("k", b"\xff"), ("k", b"{}")], on_error="dead-letter"
    )

    assert list(run) == [1, 2]
    assert offsets(run) == [1, 2]
    assert [record.value for record in run.dead_letters] == [b"{half", b"\xff"]
    assert [record.key for record in run.dead_letters] == [b"k", b"k"]
    assert run.reports[0].reconciles


def test_invalid_json_stops_the_run_with_a_fix(app):
    sdf = app.dataframe(app.topic("in")).apply(count, stateful=True)

    with pytest.raises(StepError, match="reading of 'in'(.|\n)*offset 0(.|\n)*Fix:"):
        run_local(sdf, [b"{half"])


def test_a_key_that_cannot_be_read_is_a_dead_letter(app):
    sdf = app.dataframe(app.topic("in", key_deserializer="int"))
    sdf = sdf.apply(lambda v, k, t, h: k, metadata=True)

    run = run_local(sdf, [(b"\0\0\0\1", {}), (b"x", {})], on_error="dead-letter")

    assert list(run) == [1]
    assert offsets(run) == [1]


def test_a_lone_surrogate_can_be_processed_and_is_refused_where_it_would_be_kept():
    def program():
        return frame(ListSource([], pickles=True))

    assert run_local(program().apply(lambda v: v + "!"), [(None, "\ud800")]) == ["\ud800!"]

    with pytest.raises(StepError, match="lone surrogate(.|\n)*Fix:"):
        run_local(
            program().update(lambda v, state: state.set("v", v), stateful=True), [(None, "\ud800")]
        )


def test_a_lone_surrogate_that_cannot_be_written_names_the_step(app):
    source = ListSource([], "in", pickles=True)
    sdf = app.dataframe(source=source).to_topic(app.topic("out"))

    with pytest.raises(StepError, match="to_topic 'out'(.|\n)*Fix:"):
        run_local(sdf, ["\ud800"])


# Values and keys that cannot go on: whatever refuses them, it is the record that failed.


def keyed(sdf, key):
    return sdf.group_by(lambda value: key(value), name="k").apply(count, stateful=True)


def second_is_a_generator(sdf):
    return sdf.apply(lambda value: (i for i in ()) if value == 2 else value)


def branched(sdf):
    sdf.filter(lambda value: False)
    return sdf.filter(lambda value: isinstance(value, int))


def timed(sdf, moment):
    return sdf.set_timestamp(lambda value, key, time, headers: moment if value == 2 else time)


CANNOT_GO_ON = {
    "a key of another type": lambda sdf: keyed(sdf, lambda v: object() if v == 2 else v),
    "a key with a lone surrogate": lambda sdf: keyed(sdf, lambda v: "\ud800" if v == 2 else v),
    "a value that cannot move": lambda sdf: keyed(second_is_a_generator(sdf), lambda v: 1),
    "a value that cannot come to the driver": second_is_a_generator,
    "a value that cannot be copied": lambda sdf: branched(second_is_a_generator(sdf)),
    "headers that are none": lambda sdf: sdf.set_headers(
        lambda value, key, time, headers: 5 if value == 2 else None
    ),
    "a time that is no time": lambda sdf: timed(sdf, 2**70),
    "a time before all times": lambda sdf: timed(sdf, -(2**70)),
}


@pytest.mark.parametrize("case", CANNOT_GO_ON)
def test_what_cannot_go_on_stops_the_run_and_names_the_record(case):
    sdf = CANNOT_GO_ON[case](frame())

    with pytest.raises(StepError, match=r"test_bad_input.py:\d+(.|\n)*offset 1(.|\n)*Fix:"):
        run_local(sdf, [1, 2, 3])


@pytest.mark.parametrize("case", CANNOT_GO_ON)
def test_what_cannot_go_on_is_a_dead_letter_and_nothing_else_is_lost(case):
    sdf = CANNOT_GO_ON[case](frame())

    run = run_local(sdf, [1, 2, 3], on_error="dead-letter")

    assert len(run) == 2
    assert offsets(run) == [1]
    assert run.reports[0].reconciles


@pytest.mark.parametrize(
    "value", [{(1, 2): 3}, {"a": "\ud800"}, 10**30, {1, 2}, object, b"\xff", float("nan")], ids=repr
)
def test_any_value_can_become_a_dead_letter(value):
    def fail(value, state):
        raise ValueError("bad")

    sdf = frame().apply(lambda v: value).group_by(lambda v: 1, name="k").apply(fail, stateful=True)

    run = run_local(sdf, [0], on_error="dead-letter")

    assert offsets(run) == [0]


def test_a_dead_letter_keeps_the_headers_of_the_record():
    def fail(value, state):
        raise ValueError("bad")

    sdf = frame().set_headers(lambda *record: [("trace", b"abc")]).apply(fail, stateful=True)

    (letter,) = run_local(sdf, [0], on_error="dead-letter").dead_letters

    assert ("trace", b"abc") in letter.headers
    assert dict(letter.headers)["millpond.error"] == b"ValueError: bad"


def test_a_dead_letter_of_a_list_can_be_read():
    def fail(value):
        raise ValueError("bad")

    (letter,) = run_local(
        frame().apply(fail), [("k", {"a": 1})], on_error="dead-letter"
    ).dead_letters

    assert json.loads(letter.value) == {"a": 1}


def test_a_dead_letter_says_what_happened_and_where():
    def fail(value):
        raise ValueError("bad")

    (letter,) = run_local(frame().apply(fail), [("k", 1)], on_error="dead-letter").dead_letters
    facts = {name: value.decode() for name, value in letter.headers}

    assert facts["millpond.error"] == "ValueError: bad"
    assert facts["millpond.step"] == "apply 'fail'"
    assert facts["millpond.call_site"].startswith("test_bad_input.py:")
    assert facts["millpond.topic"] == "list"
    assert 'raise ValueError("bad")' in facts["millpond.traceback"]


# --- wrong arguments ------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, 5, "name", ["a"], {}])
@pytest.mark.parametrize(
    "call",
    [
        lambda sdf, f: sdf.apply(f),
        lambda sdf, f: sdf.update(f),
        lambda sdf, f: sdf.filter(f),
        lambda sdf, f: sdf.set_timestamp(f),
        lambda sdf, f: sdf.set_headers(f),
        lambda sdf, f: sdf.stateful_map("name", f),
        lambda sdf, f: sdf.to_topic(f),
        lambda sdf, f: sdf.sink(f),
        lambda sdf, f: sdf.concat(f),
    ],
)
def test_something_that_is_no_function_is_refused_at_once(call, wrong):
    with pytest.raises(ConfigError, match="Fix:"):
        call(frame(), wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda sdf: sdf.apply(lambda: 1),
        lambda sdf: sdf.apply(lambda value, state: 1),
        lambda sdf: sdf.apply(lambda value: 1, stateful=True),
        lambda sdf: sdf.apply(lambda value: 1, metadata=True),
        lambda sdf: sdf.apply(lambda value, state: 1, stateful=True, metadata=True),
        lambda sdf: sdf.update(lambda: None),
        lambda sdf: sdf.filter(lambda value, state: True),
        lambda sdf: sdf.filter(lambda value: True, stateful=True),
        lambda sdf: sdf.group_by(lambda: 1, name="k"),
        lambda sdf: sdf.group_by(lambda value, state: 1, name="k"),
        lambda sdf: sdf.set_timestamp(lambda value: 1),
        lambda sdf: sdf.set_headers(lambda value: 1),
        lambda sdf: sdf.stateful_map("n", lambda value, state: 1),
        lambda sdf: sdf.to_topic(lambda value: 1),
    ],
)
def test_a_function_with_other_parameters_is_refused_at_once(call):
    with pytest.raises(ConfigError, match=r"argument\(s\)(.|\n)*Fix:"):
        call(frame())


@pytest.mark.parametrize(
    "function", [str, len, print, lambda *values: 1, lambda value, extra=1: 1, "x".join]
)
def test_functions_that_can_be_called_with_a_value_are_taken(function):
    frame().apply(function)


@pytest.mark.parametrize("name", ["", None, 5, "a\x1fb", "\ud800"], ids=repr)
def test_a_stateful_map_needs_a_name(name):
    with pytest.raises(ConfigError, match="Fix:"):
        frame().stateful_map(name, lambda key, value, state: (value, state))


@pytest.mark.parametrize("key", [5, None, ["a"]])
def test_group_by_takes_a_field_or_a_function(key):
    with pytest.raises(ConfigError, match="Fix:"):
        frame().group_by(key)


def test_an_initial_state_that_cannot_be_kept_is_refused():
    with pytest.raises(MillpondError, match="Fix:"):
        run_local(
            frame().stateful_map("n", lambda key, value, state: (value, state), initial=1j), [1]
        )


def test_drop_takes_no_other_way_to_handle_errors():
    with pytest.raises(ConfigError, match="Fix:"):
        frame().drop("a", errors="warn")


@pytest.mark.parametrize("moment", [1.5, "now", None, True])
def test_a_record_of_a_list_has_a_time_in_milliseconds(moment):
    with pytest.raises(ConfigError, match="Fix:"):
        run_local(frame().apply(lambda value: value), [("k", 1, moment)])


def test_records_for_a_source_that_is_not_there_are_refused():
    with pytest.raises(ConfigError, match="Fix:"):
        run_local(frame().apply(lambda value: value), {"other": [1]})


def test_an_app_that_puts_records_aside_does_so_on_the_local_engine_too(tmp_path):
    app = Application(topics_dir=tmp_path, on_error="dead-letter", loglevel=None)
    sdf = app.dataframe(app.topic("t")).apply(lambda value: 1 / value)

    run = run_local(sdf, [1, 0, 2])

    assert run == [1.0, 0.5]
    assert offsets(run) == [1]
    with pytest.raises(StepError):
        run_local(sdf, [1, 0, 2], on_error="stop")


def test_an_app_that_lets_records_go_does_so_on_the_local_engine_too(tmp_path):
    app = Application(topics_dir=tmp_path, on_processing_error=lambda *_: True, loglevel=None)
    sdf = app.dataframe(app.topic("t")).apply(lambda value: 1 / value)

    assert run_local(sdf, [1, 0, 2]) == [1.0, 0.5]
    with pytest.raises(StepError):
        run_local(sdf, [1, 0, 2], on_processing_error=None)


def test_types_that_the_app_knows_are_known_on_the_local_engine_too(app):
    @app.register_type
    @dataclass
    class Point:
        x: int

    def keep(value, state):
        before = state.get("point")
        state.set("point", Point(value))
        return before

    sdf = app.dataframe(app.topic("t")).apply(keep, stateful=True)

    assert run_local(sdf, [("k", 1), ("k", 2)]) == [None, Point(1)]


def test_a_window_without_an_output_is_reported(caplog):
    sdf = frame()
    window = sdf.tumbling_window(1000).count()

    assert run_local(sdf, [1]) == [1]
    (message,) = caplog.messages
    assert re.search(r"nothing comes out of .*\(test_bad_input\.py:\d+\).*final\(\)", message)
    with pytest.raises(ConfigError, match=r"Fix: .*final\(\)"):
        run_local(window, [1])

    caplog.clear()
    window.final()
    run_local(sdf, [1])
    assert caplog.messages == []


def test_a_window_that_was_refused_is_forgotten(caplog):
    sdf = frame()
    with pytest.raises(ConfigError):
        sdf.tumbling_window(1000).agg()

    run_local(sdf, [1])

    assert caplog.messages == []


def test_a_test_that_asks_for_something_misspelt_gets_an_error(app):
    run = run_local(
        app.dataframe(app.topic("t")).apply(count, stateful=True).to_topic(app.topic("totals")),
        [("ann", 1)],
    )

    assert run.state("ann") == {"n": 1}
    assert len(run.topics["totals"]) == 1
    with pytest.raises(ConfigError, match=r"\['default'\], not 'defalt'(.|\n)*Fix:"):
        run.state("ann", store="defalt")
    with pytest.raises(ConfigError, match=r"totals.*not 'total'(.|\n)*Fix:"):
        run.topics["total"]


def test_a_topic_chosen_by_a_function_may_have_any_name(app):
    odd, even = app.topic("odd"), app.topic("even")
    sdf = app.dataframe(app.topic("t"))

    run = run_local(sdf.to_topic(lambda v, *_: odd if v % 2 else even), [1, 3])

    assert (len(run.topics["odd"]), len(run.topics["even"])) == (2, 0)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (
            frame().stateful_map("sum", lambda key, value, state: 5),
            r"\(output, new state\), got 5(.|\n)*Fix: return output, state",
        ),
        (frame().apply(lambda value: 5, expand=True), r"got 5(.|\n)*Fix: return a list"),
        (
            frame().watermark(0, on=lambda value: "2024-01-01T10:00:00"),
            r"got '2024(.|\n)*Fix: datetime\.fromisoformat",
        ),
        (
            frame().apply(lambda value, state: state.set("c", Counter()), stateful=True),
            r"Counter(.|\n)*Fix: convert it first, with dict\(value\)",
        ),
    ],
)
def test_what_a_function_gives_wrongly_is_reported_with_one_fix(program, text):
    with pytest.raises(StepError, match=text) as caught:
        run_local(program, [("k", 1)])

    assert str(caught.value).count("Fix: ") == 1


def test_records_that_are_no_records_are_refused():
    with pytest.raises(ConfigError, match="got 5(.|\n)*Fix:"):
        run_local(frame(), 5)


def test_the_error_for_a_timer_function_with_other_parameters_names_its_own():
    with pytest.raises(ConfigError, match=r"Fix: def function\(key, state, timer\)"):
        frame().apply(count, stateful=True, on_timer=lambda key, state: 1)


@pytest.mark.parametrize("handler", [None, lambda *_: True])
def test_damaged_state_ends_the_run_whatever_is_done_with_bad_records(handler):
    engine = LocalEngine(
        frame().apply(read_large, stateful=True),
        on_error="dead-letter",
        on_processing_error=handler,
    )
    engine.feed([("a", 1)])
    engine.run()
    for store in engine.stores.values():
        for blob_id in [b for b in store.blobs if b[:1] == b"v"]:
            del store.blobs[blob_id]

    engine.feed([("a", 2)])
    with pytest.raises(DamagedStateError, match="missing from the state(.|\n)*Fix:") as caught:
        engine.run()
    assert re.search(r"apply 'read_large' .*key 'a'", caught.value.__notes__[0])


def test_state_of_a_newer_version_ends_the_run_and_no_record_is_put_aside():
    engine = LocalEngine(frame().apply(read_large, stateful=True), on_error="dead-letter")
    engine.feed([("a", 1)])
    engine.run()
    for store in engine.stores.values():
        store.blobs.update({b: b"\x7f" + blob[1:] for b, blob in store if b[:1] == b"v"})

    engine.feed([("a", 2)])
    with pytest.raises(StateError, match="format 127(.|\n)*Fix:"):
        engine.run()


def read_large(value, state):
    before = state.get("large", b"")
    state.set("large", b"x" * 100_000)
    return len(before)
