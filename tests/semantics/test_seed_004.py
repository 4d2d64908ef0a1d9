"""Stateful processing with late data, table by table.

The tables are those of a well-known explanation of stateful streaming: a shop that counts the
clicks of its users batch by batch, some of which come late; then sessions, accounts and sensors.
Each batch of a table is fed by itself, and the table is what is known after it.
"""

from datetime import timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from millpond import Application, Count, Latest, Max, Mean, Sum
from millpond.testing import CRASH, LocalEngine, ManualClock, frame, run_local

HOUR = 3_600_000


def at(time: str) -> int:
    """The milliseconds of a time of day."""
    hours, minutes, seconds = map(int, time.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1000


def click(user: str, time: str) -> dict:
    return {"user_id": f"user_{user}", "event": "click", "timestamp": at(time)}


def counts(text: str) -> list[dict]:
    """`A:1 B:2` as records."""
    return [{"key": key, "count": int(n)} for key, n in (pair.split(":") for pair in text.split())]


def table(engine: LocalEngine, key: str, value: str) -> dict:
    """What a sink that keeps the last row of each key would show."""
    return {row[key]: row[value] for row in engine.values}


# --- three ways to keep a sum per key -------------------------------------------------------


def running_sums(sdf):
    def add(value, state):
        state.set("sum", state.get("sum", 0) + value["count"])
        return {"key": value["key"], "count": state.get("sum")}

    return sdf.group_by("key").apply(add, stateful=True)


def running_aggregates(emit):
    def sums(sdf):
        totals = sdf.group_by("key").agg(count=Sum("count"), emit=emit)
        return totals.apply(lambda value, key, *_: {"key": key, **value}, metadata=True)

    return sums


def update_state(batch, state):
    """The update function of the explanation: count the batch, unite, count again."""
    counted = summed(batch)
    return summed(pa.concat_tables([counted, state]))


def summed(rows):
    return rows.group_by("key").aggregate([("count", "sum")]).rename_columns(["key", "count"])


STATE = pa.schema([("key", pa.string()), ("count", pa.int64())])


def updated_tables(sdf):
    return sdf.group_by("key").update_state(update_state, "counts", schema=STATE)


def updated_pandas(sdf):
    def update(batch, state):
        import pandas as pd

        both = pd.concat([batch[["key", "count"]], state])
        return both.groupby("key", as_index=False)["count"].sum()

    return sdf.group_by("key").update_state(update, "counts", tables="pandas")


WAYS = {
    "state": running_sums,
    "agg by record": running_aggregates("record"),
    "agg by batch": running_aggregates("batch"),
    "update_state": updated_tables,
    "update_state with pandas": updated_pandas,
}


@pytest.fixture(params=WAYS)
def sums(request):
    return WAYS[request.param]


# --- without and with state -----------------------------------------------------------------

INTRODUCTION = [counts("A:1 B:2 A:1"), counts("A:1 C:3 B:1"), counts("A:2 A:1")]


def test_without_state_each_batch_is_on_its_own():
    engine = LocalEngine(
        frame().group_by("key").update_state(lambda batch, state: summed(batch), "none", "all")
    )
    tables = []
    for batch in INTRODUCTION:
        known = len(engine.values)
        engine.feed(batch)
        engine.run()
        tables.append({row["key"]: row["count"] for row in engine.values[known:]})

    assert tables == [{"A": 2, "B": 2}, {"A": 1, "B": 1, "C": 3}, {"A": 3}]


def test_with_state_totals_grow_over_the_batches(sums):
    engine = LocalEngine(sums(frame()))
    tables = []
    for batch in INTRODUCTION:
        engine.feed(batch)
        engine.run()
        tables.append(table(engine, "key", "count"))

    assert tables == [{"A": 2, "B": 2}, {"A": 3, "B": 3, "C": 3}, {"A": 6, "B": 3, "C": 3}]


def test_a_batch_that_crashes_counts_once(sums):
    engine = LocalEngine(sums(frame()))
    engine.feed([*INTRODUCTION[0], *INTRODUCTION[1], CRASH, *INTRODUCTION[2]])
    with pytest.raises(Exception, match="CRASH"):
        engine.run()
    engine.run()

    assert table(engine, "key", "count") == {"A": 6, "B": 3, "C": 3}


# --- clicks ---------------------------------------------------------------------------------

BATCH_1 = [
    click("A", "10:00:00"),
    click("B", "10:00:15"),
    click("A", "10:00:30"),
    click("C", "10:00:45"),
]
BATCH_2 = [click("A", "10:01:00"), click("D", "10:01:15"), click("B", "09:59:30")]  # B is late


def clicks_per_user(emit="record"):
    clicks = frame().watermark(on="timestamp").group_by("user_id").agg(clicks=Count(), emit=emit)
    return clicks.apply(lambda value, key, *_: {"user_id": key, **value}, metadata=True)


@pytest.mark.parametrize("emit", ["record", "batch"])
def test_batch_1_counts_the_clicks_of_each_user(emit):
    engine = LocalEngine(clicks_per_user(emit))
    engine.feed(BATCH_1)
    engine.run()

    assert table(engine, "user_id", "clicks") == {"user_A": 2, "user_B": 1, "user_C": 1}


@pytest.mark.parametrize("emit", ["record", "batch"])
def test_batch_2_counts_a_late_click(emit):
    engine = LocalEngine(clicks_per_user(emit))
    for batch in (BATCH_1, BATCH_2):
        engine.feed(batch)
        engine.run()

    expected = {"user_A": 3, "user_B": 2, "user_C": 1, "user_D": 1}
    assert table(engine, "user_id", "clicks") == expected


def test_by_record_every_click_has_the_total_after_it():
    values = run_local(clicks_per_user(), BATCH_1 + BATCH_2)

    assert [(value["user_id"], value["clicks"]) for value in values] == [
        ("user_A", 1),
        ("user_B", 1),
        ("user_A", 2),
        ("user_C", 1),
        ("user_A", 3),
        ("user_D", 1),
        ("user_B", 2),
    ]


def test_by_batch_each_user_of_the_batch_comes_once():
    engine = LocalEngine(clicks_per_user("batch"))
    engine.feed(BATCH_1)
    engine.run()
    engine.feed(BATCH_2)
    values = engine.run()

    assert [(value["user_id"], value["clicks"]) for value in values] == [
        ("user_A", 2),
        ("user_B", 1),
        ("user_C", 1),
        ("user_A", 3),
        ("user_D", 1),
        ("user_B", 2),
    ]


@pytest.mark.parametrize("emit", ["record", "batch"])
def test_batch_10_adds_very_late_clicks_to_what_is_there(emit):
    engine = LocalEngine(clicks_per_user(emit))
    engine.feed(
        [click("A", "10:07:00")] * 5 + [click("B", "10:07:30")] * 3 + [click("C", "10:07:45")] * 2
    )
    engine.run()
    before = table(engine, "user_id", "clicks")
    engine.feed([click("B", "09:45:00"), click("A", "10:02:00"), click("E", "10:08:00")])
    engine.run()

    assert before == {"user_A": 5, "user_B": 3, "user_C": 2}
    assert table(engine, "user_id", "clicks") == {
        "user_A": 6,
        "user_B": 4,
        "user_C": 2,
        "user_E": 1,
    }


def test_a_late_click_of_batch_5_makes_two_clicks_of_user_b_three():
    engine = LocalEngine(clicks_per_user())
    for batch in (BATCH_1, BATCH_2, [click("A", "10:05:00")], [click("B", "10:01:30")]):
        engine.feed(batch)
        engine.run()

    assert table(engine, "user_id", "clicks")["user_B"] == 3


def test_a_query_shows_8_clicks_and_after_late_data_10():
    engine = LocalEngine(clicks_per_user())
    engine.feed([click("A", f"10:04:{second:02}") for second in range(8)])
    engine.run()
    at_10_05 = table(engine, "user_id", "clicks")["user_A"]
    engine.feed([click("A", "10:03:00"), click("A", "10:03:30")])
    engine.run()

    assert (at_10_05, table(engine, "user_id", "clicks")["user_A"]) == (8, 10)


def test_an_event_that_arrives_five_minutes_late_is_in_every_later_result():
    engine = LocalEngine(clicks_per_user())
    engine.feed([click("A", "10:04:00")])
    engine.run()
    engine.feed([click("A", "10:00:00")])  # arrives at 10:05
    engine.run()
    engine.feed([click("A", "10:10:00")])
    engine.run()

    assert [value["clicks"] for value in engine.values] == [1, 2, 3]


# --- a watermark of ten minutes -------------------------------------------------------------


def test_within_the_watermark_a_window_takes_late_clicks_and_after_it_none():
    clicks = frame().watermark(timedelta(minutes=10), on="timestamp").group_by("user_id")
    window = clicks.tumbling_window(timedelta(minutes=1)).agg(clicks=Count())
    totals = window.final()
    late = window.late().apply(lambda report: ("late", report["timestamp"]))
    records = [
        click("A", "10:00:00"),
        click("A", "10:08:00"),
        click("A", "10:00:30"),  # eight minutes late: on time
        click("A", "10:20:00"),
        click("A", "10:00:45"),  # twenty minutes late: late
    ]

    values = run_local(totals.concat(late), records, batches=1)

    assert values == [
        {"start": at("10:00:00"), "end": at("10:01:00"), "clicks": 2},
        {"start": at("10:08:00"), "end": at("10:09:00"), "clicks": 1},
        ("late", at("10:00:45")),
    ]
    assert sum(report.late for report in values.reports) == 1


# --- sessions -------------------------------------------------------------------------------


def views(times: str) -> list[tuple]:
    return [("session_123", {"page": "/"}, at(time)) for time in times.split()]


ON_TIME = (
    "10:00:00 10:00:30 10:01:00 10:01:30 10:02:00 10:03:00 10:04:00 10:05:00 10:06:00 10:07:00"
)
LATE = "10:15:30 10:02:30 10:03:30 10:04:30 10:05:30"


def test_a_session_has_its_start_its_last_activity_and_its_page_views():
    sessions = frame().session_window(timedelta(minutes=30)).agg(page_views=Count())
    values = run_local(sessions.current(), views(ON_TIME) + views(LATE), batches=1)

    assert len(values) == 15
    assert values[9] == {"start": at("10:00:00"), "end": at("10:07:00") + 1, "page_views": 10}
    assert values[-1] == {"start": at("10:00:00"), "end": at("10:15:30") + 1, "page_views": 15}


def test_a_session_is_given_once_when_it_has_been_quiet_for_half_an_hour():
    sessions = frame().session_window(timedelta(minutes=30)).agg(page_views=Count()).final()
    engine = LocalEngine(sessions)
    engine.feed(views(ON_TIME) + views(LATE))
    engine.feed([("another", {"page": "/"}, at("10:45:30"))])
    before = list(engine.run())
    engine.feed([("another", {"page": "/"}, at("10:45:31"))])

    assert before == []
    assert engine.run() == [{"start": at("10:00:00"), "end": at("10:15:30") + 1, "page_views": 15}]


def test_a_late_view_joins_two_sessions():
    sessions = frame().session_window(timedelta(minutes=30)).agg(page_views=Count()).current()
    values = run_local(sessions, views("10:00:00 10:50:00 10:25:00"))

    assert values[-1] == {"start": at("10:00:00"), "end": at("10:50:00") + 1, "page_views": 3}


def user_session(events, state):
    """The state function of the explanation, of one event: count, and expire after 30 minutes."""
    seen = state.get("events", 0) + 1
    state.set("events", seen)
    state.set_timer("timeout", after=timedelta(minutes=30))
    return seen


def session_expired(key, state, timer):
    counted = state.get("events")
    state.delete("events")
    return key, "session_expired", counted


def test_a_timeout_of_30_minutes_expires_a_session():
    sdf = frame().apply(user_session, stateful=True, on_timer=session_expired)
    records = [
        ("user_A", "click", at("10:00:00")),
        ("user_A", "click", at("10:20:00")),
        ("user_B", "click", at("10:49:59")),
        ("user_B", "click", at("10:50:00")),
        ("user_A", "click", at("10:51:00")),
    ]
    expected = [1, 2, 1, 2, ("user_A", "session_expired", 2), 1]

    assert run_local(sdf, records) == expected
    assert run_local(sdf, records, batches=1) == expected


def test_a_timeout_by_the_wall_clock_needs_no_further_event():
    def by_the_wall(event, state):
        state.set("events", state.get("events", 0) + 1)
        state.set_timer("timeout", after=timedelta(minutes=30), clock="processing")
        return state.get("events")

    clock = ManualClock(at("10:00:00"))
    sdf = frame().apply(by_the_wall, stateful=True, on_timer=session_expired)
    engine = LocalEngine(sdf, clock=clock)
    engine.feed([("user_A", "click"), ("user_A", "click")])
    engine.run()
    clock.advance(30 * 60_000 - 1)
    before = list(engine.run())
    clock.advance(1)

    assert before == [1, 2]
    assert engine.run() == [1, 2, ("user_A", "session_expired", 2)]


def test_an_idle_stream_ends_its_last_session():
    clock = ManualClock(at("11:00:00"))
    sdf = frame().watermark(idle_after=timedelta(minutes=1))
    sessions = sdf.session_window(timedelta(minutes=30)).agg(page_views=Count()).final()
    engine = LocalEngine(sessions, clock=clock)
    engine.feed(views(ON_TIME))
    before = list(engine.run())
    clock.advance(60_000)

    assert before == []
    assert engine.run() == [{"start": at("10:00:00"), "end": at("10:07:00") + 1, "page_views": 10}]


# --- accounts -------------------------------------------------------------------------------

TRANSACTIONS = [
    ("t1", "1000.00", "10:00:05"),
    ("t2", "-49.50", "10:02:10"),
    ("t5", "-200.00", "10:08:41"),
    ("t8", "-0.01", "10:14:22"),
    ("t3", "0.01", "10:03:33"),  # late
    ("t5", "-200.00", "10:08:41"),  # again
    ("t4", "500.00", "10:05:00"),  # late
    ("t7", "12.25", "10:11:59"),
    ("t6", "-12.25", "10:10:02"),
    ("t1", "1000.00", "10:00:05"),  # again
]


@pytest.mark.parametrize("cut", [None, 1, 3])
def test_a_balance_is_right_despite_late_and_repeated_transactions(cut):
    records = [
        ("account_456", {"id": name, "amount": Decimal(amount), "at": time}, at(time))
        for name, amount, time in TRANSACTIONS
    ]
    balances = (
        frame()
        .drop_duplicates(on="id")
        .agg(balance=Sum("amount"), last_transaction=Latest("at"), transaction_count=Count())
    )

    values = run_local(balances, records, batches=cut)

    assert len(values) == 8
    assert values[-1] == {
        "balance": Decimal("1250.50"),
        "last_transaction": "10:14:22",
        "transaction_count": 8,
    }


# --- sensors --------------------------------------------------------------------------------


def a_day_of_readings() -> list[tuple]:
    """One reading a minute for a day, 23.5 on average, each pair in the wrong order."""
    minutes = [minute ^ 1 for minute in range(1440)]
    return [("sensor_789", 23.0 + minute % 2, minute * 60_000) for minute in minutes]


@pytest.mark.parametrize("cut", [None, 7])
def test_an_average_is_right_although_readings_come_out_of_order(cut):
    sensors = frame().agg(total_readings=Count(), average_temp=Mean(), hottest=Max())
    values = run_local(sensors, a_day_of_readings(), batches=cut)

    assert values[-1] == {"total_readings": 1440, "average_temp": 23.5, "hottest": 24.0}


@pytest.mark.parametrize("cut", [None, 1, 100])
def test_with_enough_lateness_every_window_is_whole_however_batches_are_cut(cut):
    window = frame().watermark(timedelta(minutes=1)).tumbling_window(timedelta(hours=1))
    hours = window.agg(readings=Count(), average=Mean())
    values = run_local(hours.final(), a_day_of_readings(), batches=cut)

    expected = [
        {"start": hour * HOUR, "end": (hour + 1) * HOUR, "readings": 60, "average": 23.5}
        for hour in range(23)  # the last hour waits for a later reading
    ]
    assert values == expected
    assert not any(report.late for report in values.reports)


# --- time to live ---------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [None, 1])
def test_state_of_an_hour_ago_has_expired(cut):
    def count(event, state):
        state.set("events", state.get("events", 0) + 1, ttl=timedelta(hours=1))
        return state.get("events")

    records = [
        ("user_A", "click", at("10:00:00")),
        ("user_A", "click", at("10:59:59")),
        ("user_A", "click", at("11:59:58")),
        ("user_A", "click", at("12:59:58")),  # an hour before the last update
    ]

    assert run_local(frame().apply(count, stateful=True), records, batches=cut) == [1, 2, 3, 1]


def test_expired_state_leaves_the_store_without_a_further_event_of_its_key():
    def count(event, state):
        state.set("events", state.get("events", 0) + 1, ttl=timedelta(hours=1))

    engine = LocalEngine(frame().update(count, stateful=True))
    engine.feed([(f"user_{number}", "click", at("10:00:00")) for number in range(50)])
    engine.run()
    kept = sum(sum(report.keys.values()) for report in engine.reports[-1:])
    engine.feed([("user_X", "click", at("11:00:00"))])
    engine.run()

    assert kept == 50
    assert sum({k: n for r in engine.reports for k, n in r.keys.items()}.values()) == 1


def test_a_default_of_an_hour_holds_for_the_whole_application():
    app = Application(state_ttl=timedelta(hours=1), loglevel=None)
    sdf = app.dataframe(source=[]).agg(clicks=Count())
    records = [("user_A", "click", at(time)) for time in ("10:00:00", "10:59:59", "12:00:00")]

    assert [value["clicks"] for value in run_local(sdf, records)] == [1, 2, 1]
