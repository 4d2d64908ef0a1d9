"""Records that a deserializer or a function ignores by raising `IgnoreMessage`."""

import pytest

import millpond as mp
from millpond.errors import StepError
from millpond.testing import frame, run_local


class Wanted(mp.Deserializer):
    """A deserializer as programs for Quix Streams write them."""

    def __call__(self, value, ctx):
        if value == b"unwanted":
            raise mp.IgnoreMessage("of no interest")
        return f"{ctx.topic} {ctx.field} {value.decode()}"


def wanted_only(value, *rest):
    if value == 2:
        raise mp.IgnoreMessage("of no interest")
    return value


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_record_that_a_deserializer_ignores_counts_as_filtered(on_error, is_keyed):
    app = mp.Application(on_error=on_error, loglevel=None)
    sdf = app.dataframe(app.topic("in", value_deserializer=Wanted()))
    if is_keyed:
        sdf = sdf.apply(lambda value, state: value, stateful=True)

    run = run_local(sdf, [("k", b"1", 1), ("k", b"unwanted", 2), ("k", b"3", 3)])

    assert run == ["in value 1", "in value 3"]
    assert run.dead_letters == []
    (report,) = run.reports
    assert (report.read, report.reconciles) == (3, True)
    assert sum(stage.filtered for stage in report.stages.values()) == 1


FUNCTIONS = {
    "apply": lambda sdf: sdf.apply(wanted_only),
    "stateful": lambda sdf: sdf.apply(wanted_only, stateful=True),
    "expand": lambda sdf: sdf.apply(lambda value: [wanted_only(value)], expand=True),
    "generator": lambda sdf: sdf.apply(
        lambda value: (wanted_only(value) for _ in "1"), expand=True
    ),
    "update": lambda sdf: sdf.update(wanted_only),
    "filter": lambda sdf: sdf.filter(wanted_only),
    "column": lambda sdf: sdf[sdf.apply(wanted_only)],
    "set_timestamp": lambda sdf: sdf.set_timestamp(wanted_only),
    "set_headers": lambda sdf: sdf.set_headers(lambda value, *rest: wanted_only(value) and None),
    "group_by": lambda sdf: sdf.group_by(wanted_only),
    "stateful_map": lambda sdf: sdf.stateful_map("n", lambda k, v, n: (wanted_only(v), 1)),
    "watermark": lambda sdf: sdf.watermark(on=wanted_only),
}


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_record_that_a_function_ignores_ends_there_and_other_branches_see_it(name, on_error):
    sdf = frame()
    FUNCTIONS[name](sdf.apply(lambda value: value)).apply(lambda value: ("after", value))
    sdf.apply(lambda value: ("beside", value))

    run = run_local(sdf, [1, 2, 3], on_error=on_error)

    assert [value for word, value in run if word == "after"] == [1, 3]
    assert [value for word, value in run if word == "beside"] == [1, 2, 3]
    assert run.dead_letters == []
    assert all(report.reconciles for report in run.reports)


def test_a_timestamp_extractor_may_ignore_a_record():
    app = mp.Application(loglevel=None)
    topic = app.topic("in", timestamp_extractor=wanted_only)

    assert run_local(app.dataframe(topic), [1, 2, 3]) == [1, 3]


def test_an_aggregation_may_not_ignore_a_record():
    window = frame().tumbling_window(10).reduce(wanted_only, wanted_only)

    with pytest.raises(StepError, match="IgnoreMessage"):
        run_local(window.final(), [("k", 2, 0)])
