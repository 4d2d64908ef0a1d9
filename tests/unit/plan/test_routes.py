"""The routes of a program's stages, as a table."""

import re

import pytest

import millpond as mp
from millpond.program.plan import make_plan
from millpond.program.routes import routes_of

UNDO = "; each can be undone: on_error='dead-letter'"
ONE = "takes one record at a time"
TOTALS = "on totals: its records were combined before they moved"


def count(value, state):
    return 1


def twice(value):
    return [value, value]


def size(value):
    return len(value)


def with_key(value, key, timestamp, headers):
    return key


def with_key_and_state(value, key, timestamp, headers, state):
    return key


def own_time(value, headers, timestamp, timestamp_type):
    return value["at"]


def totals(sdf, **more):
    return sdf.agg(n=mp.Count(), s=mp.Sum("x"), **more)


def two_branches(sdf):
    totals(sdf.group_by("user"), emit="batch")
    sdf.apply(count, stateful=True)


# (program of a frame, a route for each stage): what a run without settings of its own does.
PROGRAMS = {
    "a stateful function": (
        lambda sdf: sdf.apply(count, stateful=True),
        ["forwarded untouched", f"record by record: apply 'count' {ONE}"],
    ),
    "a function before it": (
        lambda sdf: sdf.filter(size).apply(count, stateful=True),
        [f"record by record: filter 'size' {ONE}", f"record by record: apply 'count' {ONE}"],
    ),
    "metadata": (
        lambda sdf: sdf.apply(with_key_and_state, stateful=True, metadata=True),
        ["forwarded untouched", "record by record: apply 'with_key_and_state' asks for metadata"],
    ),
    "metadata before state": (
        lambda sdf: sdf.apply(size).apply(with_key, metadata=True).apply(count, stateful=True),
        [
            "record by record: apply 'with_key' asks for metadata",
            f"record by record: apply 'count' {ONE}",
        ],
    ),
    "a sink": (
        lambda sdf: sdf.sink(print),
        ["record by record: sink 'print' needs key, time or headers"],
    ),
    "nothing": (lambda sdf: sdf, ["record by record: they leave the program"]),
    "totals of each record": (
        totals,
        ["forwarded untouched", f"record by record: agg {ONE}"],
    ),
    "totals of each batch": (
        lambda sdf: totals(sdf, emit="batch"),
        ["in columns, combined", TOTALS],
    ),
    "totals by a field": (
        lambda sdf: totals(sdf.group_by("user"), emit="batch"),
        ["in columns, combined by 'user'", TOTALS],
    ),
    "totals by a function": (
        lambda sdf: totals(sdf.group_by(size, name="size"), emit="batch"),
        ["record by record: group_by 'size' has a function, not a field", TOTALS],
    ),
    "a filter before totals": (
        lambda sdf: totals(sdf.filter(size).group_by("user"), emit="batch"),
        [f"record by record: filter 'size' {ONE}", TOTALS],
    ),
    "totals of an expansion": (
        lambda sdf: totals(sdf.apply(twice, expand=True), emit="batch"),
        [f"record by record: expand 'twice' {ONE}", TOTALS],
    ),
    "final windows": (
        lambda sdf: sdf.tumbling_window(1_000).count().final(),
        ["in columns, combined", TOTALS],
    ),
    "windows while they grow": (
        lambda sdf: sdf.tumbling_window(1_000).count().current(),
        [
            "forwarded untouched",
            "record by record: window 'tumbling_window_1000_count' needs key, time or headers",
        ],
    ),
    "duplicates": (
        lambda sdf: sdf.drop_duplicates("id"),
        [
            "record by record: apply 'key and value' asks for metadata",
            f"record by record: drop_duplicates {ONE}",
        ],
    ),
    "two branches": (
        two_branches,
        [
            f"record by record: group_by 'user' {ONE}",
            f"record by record: apply 'count' {ONE}",
            TOTALS,
        ],
    ),
    "totals after state": (
        lambda sdf: totals(sdf.apply(count, stateful=True).group_by("user"), emit="batch"),
        [
            "forwarded untouched",
            f"record by record: apply 'count' {ONE}",
            f"record by record: agg {ONE}",
        ],
    ),
    "a watermark that sets records aside": (
        lambda sdf: (
            sdf.apply(twice, expand=True).watermark(0).tumbling_window(1_000).count().final()
        ),
        [
            "record by record: watermark needs key, time or headers; each can be undone: "
            "watermark sets aside records of the future",
            "record by record: each can be undone: watermark sets aside records of the future",
        ],
    ),
}


def routes(make, goes_on="", **topic):
    """The routes of a program, without the files and lines in them."""
    app = mp.Application(loglevel=None)
    make(app.dataframe(app.topic("in", **topic)))
    plan = make_plan(app.graph)
    found = [routes_of(plan, stage, goes_on).entries for stage in plan.stages]
    return [re.sub(r" \([\w.]+:\d+\)", "", str(r)) for entries in found for r in entries.values()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_on_these_routes(name):
    make, expected = PROGRAMS[name]

    assert routes(make) == expected


def test_records_are_not_combined_where_one_that_fails_may_be_set_aside():
    make, _ = PROGRAMS["totals by a field"]

    assert routes(make, "on_error='dead-letter'") == [
        f"record by record: group_by 'user' {ONE}{UNDO}",
        "record by record: each can be undone: on_error='dead-letter'",
    ]


def test_what_is_forwarded_cannot_fail():
    make, _ = PROGRAMS["a stateful function"]

    assert routes(make, "on_error='dead-letter'") == [
        "forwarded untouched",
        f"record by record: apply 'count' {ONE}{UNDO}",
    ]


@pytest.mark.parametrize("name", ["a stateful function", "totals of each batch"])
def test_a_timestamp_extractor_looks_at_each_record(name):
    make, _ = PROGRAMS[name]

    first, _ = routes(make, timestamp_extractor=own_time)

    assert first == f"record by record: the timestamp_extractor of 'in' {ONE}"


def test_a_deserializer_of_the_users_takes_one_value_at_a_time():
    make, _ = PROGRAMS["totals of each batch"]

    first, _ = routes(make, value_deserializer=lambda data: {"x": len(data)})

    assert first == f"record by record: the value_deserializer of 'in' {ONE}"


def test_each_source_has_a_route_of_its_own():
    app = mp.Application(loglevel=None)
    app.dataframe(app.topic("orders")).apply(count, stateful=True)
    totals(app.dataframe(app.topic("clicks")).group_by("user"), emit="batch")

    text = app.explain()

    assert "from 'orders': runs forwarded untouched\n" in text
    assert "from 'clicks': runs in columns, combined by 'user'\n" in text


def test_explain_goes_by_the_settings_of_the_application():
    app = mp.Application(loglevel=None, on_error="dead-letter")
    totals(app.dataframe(app.topic("in")), emit="batch")

    text = app.explain()

    assert "combined" not in text
    assert re.search(r"runs record by record: .*each can be undone: on_error='dead-letter'", text)
