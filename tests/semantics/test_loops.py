"""What a run keeps for its caller makes no difference to what it does.

A run that collects decodes the keys of all records; one that does not leaves them as they are, and
takes faster routes.
"""

import random

import pytest

import millpond as mp
from millpond.errors import StepError
from millpond.testing import LocalEngine
from millpond.worker import record_loop
from millpond.worker.exits import Exits


def count(value, state):
    total = state.get("n", 0) + 1
    state.set("n", total)
    return {**value, "n": total}


def count_for_a_while(value, state):
    total = state.get("n", 0) + 1
    state.set("n", total, ttl=5)
    return {**value, "n": total}


def placed(value, state):
    found = mp.message_context()
    return {**count(value, state), "at": [found.topic, found.partition, found.offset]}


def copies(value):
    return [{**value, "copy": number} for number in range(value["x"] % 4)]


def branches(sdf, out, other):
    counted = sdf.apply(count, stateful=True)
    counted.filter(lambda value: value["n"] > 1).to_topic(other)
    return counted.to_topic(out)


PROGRAMS = {
    "count": lambda sdf, out, _: sdf.apply(count, stateful=True).to_topic(out),
    "stateless": lambda sdf, out, _: sdf.apply(copies, expand=True).to_topic(out),
    "filtered": lambda sdf, out, _: (
        sdf.filter(lambda value: value["x"] % 2).apply(count, stateful=True).to_topic(out)
    ),
    "expiring": lambda sdf, out, _: sdf.apply(count_for_a_while, stateful=True).to_topic(out),
    "expanded": lambda sdf, out, _: (
        sdf.apply(count, stateful=True).apply(copies, expand=True).to_topic(out)
    ),
    "regrouped": lambda sdf, out, _: (
        sdf.apply(count, stateful=True).group_by("x").apply(count, stateful=True).to_topic(out)
    ),
    "placed": lambda sdf, out, _: sdf.apply(placed, stateful=True).to_topic(out),
    "totals by record": lambda sdf, out, _: sdf.agg(n=mp.Count(), s=mp.Sum("x")).to_topic(out),
    "totals by batch": lambda sdf, out, _: (
        sdf.group_by("x").agg(n=mp.Count(), emit="batch").to_topic(out)
    ),
    "branches": branches,
}


def everything(make, items, cut, *, collect):
    app = mp.Application(consumer_group="loops", loglevel=None)
    sdf = make(app.dataframe(app.topic("in")), app.topic("out"), app.topic("other"))
    engine = LocalEngine(sdf, clock=lambda: 1_000, collect=collect)
    engine.feed(items)
    engine.run(batches=cut)
    stores = {place: dict(store.blobs) for place, store in engine.stores.items()}
    counts = [{n: vars(c) for n, c in report.stages.items()} for report in engine.reports]
    return dict(engine.topics), stores, counts


@pytest.mark.parametrize("chunk", [0, 2_000, 8 * 1024 * 1024])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_that_collects_does_the_same(name, chunk, monkeypatch):
    monkeypatch.setattr(record_loop, "_CHUNK_BYTES", chunk)
    numbers = random.Random(name)
    items = [
        (numbers.choice(["a", "b", "c", None]), {"x": numbers.randrange(9)}, numbers.randrange(60))
        for _ in range(900)
    ]
    cut = numbers.choice([None, 257, 600])

    kept = everything(PROGRAMS[name], items, cut, collect=True)
    left = everything(PROGRAMS[name], items, cut, collect=False)

    assert kept == left
    assert left[0]["out"]


@pytest.mark.parametrize("collect", [False, True])
def test_a_failure_is_reported_alike(collect):
    def failing(value, state):
        return 1 / (value["x"] - 7)

    items = [("a", {"x": n}) for n in range(9)]
    make = lambda sdf, out, _: sdf.apply(failing, stateful=True).to_topic(out)  # noqa: E731
    with pytest.raises(StepError, match=r"test_loops.py:\d+\) failed on topic 'in'.*offset 7"):
        everything(make, items, None, collect=collect)


def test_what_an_expansion_gives_leaves_in_chunks(monkeypatch):
    monkeypatch.setattr(record_loop, "_CHUNK_BYTES", 100_000)
    held = []
    flush = Exits.flush

    def noted(self, entered, seen, counts):
        held.append(max((sum(map(len, e.values)) for e in self.emitters), default=0))
        return flush(self, entered, seen, counts)

    monkeypatch.setattr(Exits, "flush", noted)
    app = mp.Application(consumer_group="loops", loglevel=None)
    many = app.dataframe(app.topic("in")).apply(lambda value: [value] * 20, expand=True)
    engine = LocalEngine(many.to_topic(app.topic("out")), collect=False)
    engine.feed([("a", {"x": "y" * 50})] * 3_000)
    engine.run()

    assert len(engine.topics["out"]) == 60_000
    assert max(held) < 500_000  # a stretch of 256 records makes 300 KB of them
