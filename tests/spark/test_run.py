"""Running, stopping, continuing, clearing: an application on Spark as its user sees it."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from enum import Enum
from types import ModuleType

import pytest

import millpond as mp
from millpond.connectors.log import Log
from millpond.errors import (
    EngineError,
    GroupInUseError,
    SimulatedCrash,
    StateError,
    StepError,
    TopicError,
)
from millpond.testing import CRASH, END

pytestmark = pytest.mark.spark


def add(key, value, total):
    return total + value, total + value


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


def produce(app, topic, records):
    with app.get_producer() as producer:
        for key, value in records:
            producer.produce(topic, value, key)


def test_running_sum_of_0_to_100_is_5050(make_app):
    app = make_app()
    app.dataframe(source=range(101)).stateful_map("sum", add, initial=0)

    assert app.run()[-1] == 5050


def test_sums_of_even_and_odd_numbers_are_kept_apart(make_app):
    app = make_app()
    sdf = app.dataframe(source=range(101)).key_by(lambda value: value % 2, name="parity")
    sdf.stateful_map("sum", add, initial=0)

    values = app.run(metadata=True)

    last = {value["_key"]: value["_value"] for value in values}
    assert last == {0: 2550, 1: 2500}


def test_a_program_that_fails_again_and_again_adds_every_integer_once(make_app, tmp_path):
    attempts = tmp_path / "attempts"
    attempts.mkdir()

    bad = {n * (n + 1) // 2 for n in range(39, 200, 40)}

    def fail_now_and_then(value):
        mark = attempts / str(value)
        if value in bad and not mark.exists():
            mark.touch()
            raise RuntimeError("Oh no!")

    failures = 0
    while True:
        app = make_app(max_records_per_batch=25)
        sdf = app.dataframe(source=range(200)).stateful_map("sum", add, initial=0)
        sdf.update(fail_now_and_then)
        sdf.to_topic(app.topic("sums"))
        try:
            app.run()
            break
        except StepError:
            failures += 1

    sums = [record.value for record in app.get_consumer().read("sums")]
    assert failures == 5
    assert sums == [n * (n + 1) // 2 for n in range(200)]


def test_running_again_continues(make_app):
    app = make_app()
    clicks = app.topic("clicks")
    app.dataframe(clicks).apply(count, stateful=True)
    produce(app, clicks, [("a", 1), ("b", 1), ("a", 1)])

    first = app.run(drain=True)
    produce(app, clicks, [("a", 1), ("c", 1)])
    second = app.run(drain=True)

    assert (first, second) == ([1, 1, 2], [3, 1])


def test_a_new_group_starts_at_the_end_by_default_and_says_so(make_app, caplog):
    caplog.set_level("INFO", logger="millpond")
    app = make_app(auto_offset_reset="latest")
    clicks = app.topic("clicks")
    app.dataframe(clicks)
    produce(app, clicks, [("a", 1)])
    assert app.run(drain=True) == []
    assert any("without the 1 records in it" in message for message in caplog.messages)

    produce(app, clicks, [("a", 2)])

    assert app.run(drain=True) == [2]


def test_timeout_stops_a_quiet_run_and_count_a_full_one(make_app):
    app = make_app(max_records_per_batch=10)
    clicks = app.topic("clicks")
    app.dataframe(clicks)
    produce(app, clicks, [("a", i) for i in range(30)])

    assert app.run(count=1) == [0]
    assert app.run(count=15) == list(range(1, 16))
    assert app.run(timeout=1.0) == list(range(16, 30))


def test_count_ends_soon_where_most_records_are_filtered_out(make_app):
    app = make_app()
    app.dataframe(source=list(range(5_000))).filter(lambda value: value % 1_000 == 999)

    values = app.run(count=2)

    assert values[:2] == [999, 1999]
    assert len(app.reports) < 20


def test_crash_and_end_marks_on_spark(make_app):
    app = make_app()
    app.dataframe(source=[1, 2, CRASH, 3, END, 4]).stateful_map("sum", add, initial=0)

    with pytest.raises(SimulatedCrash):
        app.run()

    assert app.run() == [1, 3, 6]
    assert app.run() == [10]
    assert app.run() == []


def test_clear_state_keeps_the_offsets_unless_asked_otherwise(make_app):
    app = make_app()
    clicks = app.topic("clicks")
    app.dataframe(clicks).apply(count, stateful=True)
    produce(app, clicks, [("a", 1), ("a", 1)])
    assert app.run(drain=True) == [1, 2]

    app.clear_state()
    produce(app, clicks, [("a", 1)])
    assert app.run(drain=True) == [1]

    app.clear_state(reset_offsets=True)
    assert app.run(drain=True) == [1, 2, 3]


def test_a_second_application_of_the_group_is_refused(make_app):
    app, other = make_app(), make_app()
    for one in (app, other):
        one.dataframe(one.topic("clicks"))
    thread = threading.Thread(target=app.run, daemon=True)
    thread.start()
    wait_until_held(app)

    with pytest.raises(GroupInUseError, match="in use by process"):
        other.run(drain=True)
    with pytest.raises(GroupInUseError, match="clear_state"):
        other.clear_state()
    app.stop()
    thread.join(60)

    assert not thread.is_alive()
    assert other.run(drain=True) == []


def wait_until_held(app):
    deadline = time.monotonic() + 60
    while not app._runner.is_running and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_current_batch(make_app, number):
    app = make_app(max_records_per_batch=50)
    clicks = app.topic("clicks")
    app.dataframe(clicks).apply(count, stateful=True).to_topic(app.topic("out"))
    produce(app, clicks, [("a", i) for i in range(500)])
    threading.Thread(target=signal_after_first_output, args=(app, number), daemon=True).start()

    app.run()

    done = len(list(app.get_consumer().read("out")))
    assert 50 <= done < 500
    app.run(drain=True)
    assert [record.value for record in app.get_consumer().read("out")] == list(range(1, 501))


def signal_after_first_output(app, number):
    log = Log(app.config.topics_dir)
    while not log.exists("out") or not log.end("out", 0):
        time.sleep(0.02)
    os.kill(os.getpid(), number)


def test_a_failing_function_stops_the_run_and_the_next_one_continues_with_the_record(make_app):
    app = make_app(max_records_per_batch=2)
    clicks = app.topic("clicks")
    produce(app, clicks, [("a", 1), ("a", 2), ("a", 3), ("b", 0), ("a", 5)])

    def invert(value, state):
        state.set("n", state.get("n", 0) + 1)
        return 60 // value

    app.dataframe(clicks).apply(invert, stateful=True).to_topic(app.topic("out"))
    with pytest.raises(StepError) as caught:
        app.run(drain=True)

    text = str(caught.value)
    for part in (
        "apply 'invert'",
        "test_run.py:",
        "'clicks'",
        "partition 0",
        "offset 3",
        "b'b'",
        "return 60 // value",
        "Fix:",
    ):
        assert part in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [r.value for r in app.get_consumer().read("out")] == [60, 30]
    mended = make_app(max_records_per_batch=2)
    mended.dataframe(mended.topic("clicks")).apply(
        lambda v, s: v and 60 // v, stateful=True
    ).to_topic(mended.topic("out"))
    mended.run(drain=True)
    assert [r.value for r in app.get_consumer().read("out")] == [60, 30, 20, 0, 12]


def test_a_very_long_error_is_an_error_like_any_other(make_app):
    app = make_app()
    clicks = app.topic("clicks")
    produce(app, clicks, [("a", 1)])

    def fail(value):
        raise ValueError("long\n" * 200_000)

    app.dataframe(clicks).apply(fail)

    with pytest.raises(StepError, match="ValueError: long"):
        app.run(drain=True)


def test_dead_letters_hold_the_record_and_what_happened(make_app):
    app = make_app(on_error="dead-letter")
    clicks = app.topic("clicks")
    app.dataframe(clicks).apply(lambda value: 60 // value)
    with app.get_producer() as producer:
        producer.produce("clicks", key="a", value=b"3")
        producer.produce("clicks", key="b", value=b"{not json")
        producer.produce("clicks", key="c", value=b"0")

    assert app.run(drain=True) == [20]

    letters = list(mp.Consumer(Log(app.config.topics_dir)).read("test.dead-letters"))
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"b", b"{not json"),
        (b"c", b"0"),
    ]
    headers = [dict(letter.headers) for letter in letters]
    assert b"cannot read as json" in headers[0]["millpond.error"]
    assert b"ZeroDivisionError" in headers[1]["millpond.error"]
    assert b"60 // value" in headers[1]["millpond.traceback"]
    assert headers[1]["millpond.offset"] == b"2"


def test_a_renamed_group_by_is_refused_instead_of_losing_its_state(make_app):
    app = make_app()
    clicks = app.topic("clicks")
    app.dataframe(clicks).group_by("user").apply(count_user, stateful=True)
    produce(app, clicks, [(None, {"user": "a"})])
    app.run(drain=True)

    renamed = make_app()
    renamed.dataframe(renamed.topic("clicks")).group_by("user", name="person").apply(
        count_user, stateful=True
    )
    with pytest.raises(StateError, match="clicks/user/default.*clicks/person/default"):
        renamed.run(drain=True)


def count_user(value, state):
    return count(value, state)


def test_persistence_none_leaves_nothing_behind(make_app, tmp_path):
    app = make_app(persistence="none")
    app.dataframe(source=[1, 2]).stateful_map("sum", add, initial=0)

    assert app.run() == [1, 3]
    assert not (tmp_path / "state").exists()
    assert app.run() == [1, 3]


def test_a_group_whose_state_was_deleted_writes_its_outputs_again(make_app, tmp_path):
    app = make_app()
    clicks = app.topic("clicks")
    app.dataframe(clicks).apply(count, stateful=True).to_topic(app.topic("out"))
    produce(app, clicks, [("a", 1), ("a", 1)])
    app.run(drain=True)

    shutil.rmtree(tmp_path / "state")
    app.run(drain=True)

    assert [record.value for record in app.get_consumer().read("out")] == [1, 2, 1, 2]


def test_a_topic_that_was_deleted_and_made_again_is_an_error_not_a_gap(make_app, tmp_path):
    app = make_app()
    clicks = app.topic("clicks")
    app.dataframe(clicks)
    produce(app, clicks, [("a", 1), ("a", 1)])
    app.run(drain=True)
    shutil.rmtree(tmp_path / "topics")

    again = make_app()
    produce(again, again.topic("clicks"), [("a", 1)])
    again.dataframe(again.topic("clicks"))

    with pytest.raises(TopicError, match="deleted and created again(.|\n)*Fix:"):
        again.run(drain=True)


def test_a_slow_iterable_does_not_hold_up_what_came_or_the_stop(make_app):
    app = make_app()

    def slowly():
        for i in range(1000):
            yield i
            time.sleep(0.05)

    app.dataframe(source=slowly())
    began = time.monotonic()

    values = app.run(count=5)
    rest = app.run(count=1)

    assert time.monotonic() - began < 40
    assert values == list(range(len(values)))
    assert rest[0] == len(values)


class Colour(Enum):
    RED = "red"


@dataclass
class Account:
    owner: str
    balance: int


def test_registered_types_are_kept_in_state(make_app):
    app = make_app()
    app.register_type(Colour)
    app.register_type(Account)

    def remember(value, state):
        before = state.get("account")
        state.set("account", Account(value, (before.balance if before else 0) + 1))
        state.set("colour", Colour.RED)
        return repr((before, state.get("colour")))

    app.dataframe(source=["ann", "ann"]).apply(remember, stateful=True)

    values = app.run()
    assert values == [
        "(None, <Colour.RED: 'red'>)",
        "(Account(owner='ann', balance=1), <Colour.RED: 'red'>)",
    ]


def test_many_records_go_by_files_that_are_gone_after_the_run(make_app, tmp_path, monkeypatch):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    app = make_app("files", max_records_per_batch=40_000)
    seen, totals = [], {}

    def look(records, delivery_id):
        seen.append(len(list(place.glob("millpond-rows-*/*"))))
        totals.update({record.key: record.value for record in records})

    items = [(f"user-{i % 50}", "x" * 100) for i in range(100_000)]
    sdf = app.dataframe(source=mp.ListSource(items, "visits"))
    sdf.apply(count_visits, stateful=True).sink(look)
    app.run()

    assert totals == {f"user-{i}": 2000 for i in range(50)}
    assert len(seen) >= 3 and 0 < max(seen) <= 8  # two tasks each of two stages, and none left over
    assert list(place.glob("millpond-rows-*")) == []


def count_visits(value, state):
    state.set("visits", state.get("visits", 0) + 1)
    return state.get("visits")


def test_a_module_elsewhere_on_the_path_is_found(make_app, tmp_path, monkeypatch):
    library = tmp_path / "library"
    library.mkdir()
    (library / "pricing_of_ours.py").write_text("def double(value):\n    return 2 * value\n")
    monkeypatch.syspath_prepend(library)
    pricing = importlib.import_module("pricing_of_ours")
    app = make_app()
    app.dataframe(source=[1]).apply(pricing.double)

    assert app.run(drain=True) == [2]


def test_a_module_that_workers_do_not_find_is_named(make_app, monkeypatch):
    made = ModuleType("made_in_memory")
    exec("def double(value): return 2 * value", vars(made))  # noqa: S102
    monkeypatch.setitem(sys.modules, "made_in_memory", made)
    app = make_app()
    app.dataframe(source=[1]).apply(made.double)

    with pytest.raises(EngineError, match="Fix: let the workers find made_in_memory: install it"):
        app.run(drain=True)


class Wanted(mp.Deserializer):
    """As programs for Quix Streams write them."""

    def __call__(self, value, ctx):
        if value == b"unwanted":
            raise mp.IgnoreMessage("of no interest")
        return f"{ctx.topic} {value.decode()}"


def test_records_that_are_ignored_count_as_filtered_and_the_others_go_on(make_app):
    def long_only(value, state):
        if len(value) < 4:
            raise mp.IgnoreMessage("too short")
        return value, count(value, state)

    app = make_app(auto_offset_reset="earliest", use_changelog_topics=False)
    topic = app.topic("t", value_deserializer=Wanted())
    with app.get_producer() as producer:
        for value in (b"1", b"unwanted", b"22", b"333"):
            producer.produce(topic.name, value, b"k")
    app.dataframe(topic).apply(long_only, stateful=True)

    assert app.run(drain=True) == [("t 22", 1), ("t 333", 2)]
    (report,) = [report for report in app.reports if report.read]
    assert report.reconciles
    assert sum(stage.filtered for stage in report.stages.values()) == 2
