"""Functions that are `async def` are refused where they are given."""

import functools
import threading

import pytest

import millpond as mp
from millpond.errors import ConfigError, StepError
from millpond.testing import frame, run_local


async def one(value):
    return value


async def two(value, state):
    return value


async def three(key, value, state):
    return value, state


async def many(value):
    yield value


class Caller:
    async def __call__(self, value):
        return value


class Sink:
    async def write(self, batch):
        pass


class Total(mp.Aggregation):
    def start(self):
        return 0

    async def add(self, state, value, timestamp):
        return state + value

    def result(self, state):
        return state


async def asked(*record):
    return True


async def nothing():
    return 0


CALLS = {
    "apply": lambda sdf: sdf.apply(one),
    "partial": lambda sdf: sdf.apply(functools.partial(two, state=1)),
    "object": lambda sdf: sdf.apply(Caller()),
    "generator": lambda sdf: sdf.apply(many, expand=True),
    "update": lambda sdf: sdf.update(two, stateful=True),
    "filter": lambda sdf: sdf.filter(one),
    "column": lambda sdf: sdf[sdf["a"].apply(one)],
    "stateful_map": lambda sdf: sdf.stateful_map("n", three),
    "initial": lambda sdf: sdf.stateful_map("n", lambda k, v, s: (v, s), initial=nothing),
    "on_timer": lambda sdf: sdf.apply(lambda v, s: v, stateful=True, on_timer=three),
    "group_by": lambda sdf: sdf.group_by(one),
    "set_timestamp": lambda sdf: sdf.set_timestamp(asked),
    "watermark": lambda sdf: sdf.watermark(on=one),
    "drop_duplicates": lambda sdf: sdf.drop_duplicates(on=one),
    "update_state": lambda sdf: sdf.update_state(two, name="t"),
    "to_topic": lambda sdf: sdf.to_topic(asked),
    "sink function": lambda sdf: sdf.sink(two),
    "sink object": lambda sdf: sdf.sink(Sink()),
    "on_late": lambda sdf: sdf.tumbling_window(10, on_late=asked),
    "before_update": lambda sdf: sdf.tumbling_window(10, before_update=asked),
    "after_update": lambda sdf: sdf.hopping_window(10, 5, after_update=asked),
    "aggregation": lambda sdf: sdf.agg(n=Total()),
    "reduce": lambda sdf: sdf.agg(n=mp.Reduce(two, lambda value: value)),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_async_function_is_refused_at_the_call(name):
    with pytest.raises(ConfigError, match=r"async \(test_async_functions\.py:\d+\)(.|\n)*Fix: "):
        CALLS[name](frame())


@pytest.mark.parametrize(
    "give",
    [
        lambda app: app.topic("t", timestamp_extractor=asked),
        lambda app: app.topic("t", value_deserializer=one),
        lambda app: app.migration("default", 1)(one),
        lambda app: mp.Application(on_processing_error=asked, loglevel=None),
    ],
    ids=["timestamp_extractor", "deserializer", "migration", "on_processing_error"],
)
def test_an_async_function_is_refused_by_the_application(give, tmp_path):
    app = mp.Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)

    with pytest.raises(ConfigError, match=r"async \(test_async_functions\.py:\d+\)(.|\n)*Fix: "):
        give(app)


def test_a_coroutine_that_a_function_returns_is_an_error_of_its_record():
    async def fetch(value):
        return value

    with pytest.raises(StepError, match="returned a coroutine(.|\n)*Fix: .*asyncio.run"):
        run_local(frame().apply(lambda value: fetch(value)), [1])


def test_what_cannot_move_is_named_by_its_own_type():
    with pytest.raises(StepError, match="a value of type lock cannot move"):
        run_local(frame().apply(lambda value: threading.Lock()), [1])
