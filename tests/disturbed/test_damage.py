"""Files of a checkpoint are cut, changed and deleted, one at a time and two at a time.

The next start runs right, or stops with an error that names the file and the command that mends
it; after that command, state and outputs are those of a run that nothing happened to.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict

import pytest

import millpond as mp
from millpond import admin
from millpond.errors import DamagedStateError

pytestmark = pytest.mark.spark

# `make test` does a few, `make soak` all.

CASES = int(os.environ.get("MILLPOND_DAMAGES", "6"))
BATCHES, RECORDS = 14, 10


def add(value, state):
    state.set("total", state.get("total", 0) + value)
    state.set("last", value, ttl=30)
    state.set_timer("quiet", after=3)
    return state.get("total")


def went_quiet(key, state, timer):
    return f"{key} was quiet at {timer.at}"


def program(folder, spark, **options):
    app = mp.Application(
        consumer_group="g",
        state_dir=folder / "state",
        topics_dir=folder / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=RECORDS,
        spark=spark,
        loglevel=None,
        **options,
    )
    topic = app.topic("in", key_deserializer="str", max_future=None)
    frame = app.dataframe(topic).watermark(0)
    frame.apply(add, stateful=True, on_timer=went_quiet).to_topic(app.topic("out"))
    thirds = frame.group_by(lambda value: value % 3, name="third")
    thirds.tumbling_window(40).agg(n=mp.Count()).final().to_topic(app.topic("windows"))
    return app


def produce(app, first, last):
    with app.get_producer() as producer:
        for number in range(first, last):
            producer.produce("in", key=f"key-{number % 5}", value=number, timestamp=number)


def result(app):
    with app.get_consumer() as consumer:
        written = [(r.key, r.value) for name in ("out", "windows") for r in consumer.read(name)]
    with admin.open(app) as state:
        kept = {(str(i.key), i.store, str(i.name)): i.value for i in state.scan()}
        kept |= {(str(t.key), t.name): t.at for t in state.timers()}
    return written, kept


@pytest.fixture(scope="module")
def saved(spark, tmp_path_factory):
    """A state with a history, and what it comes to when nothing happens to it."""
    folder = tmp_path_factory.mktemp("whole")
    app = program(folder, spark)
    produce(app, 0, BATCHES * RECORDS)
    app.run(drain=True)
    ahead, folder = tmp_path_factory.mktemp("ahead"), _settled(folder, tmp_path_factory)
    shutil.copytree(folder, ahead, dirs_exist_ok=True)
    other = program(ahead, spark)
    produce(other, BATCHES * RECORDS, (BATCHES + 2) * RECORDS)
    other.run(drain=True)
    return folder, result(other)


def _settled(folder, tmp_path_factory):
    """A copy in which nothing moves any more: Spark's maintenance still works on the original."""
    for _ in range(10):
        copy = tmp_path_factory.mktemp("settled")
        try:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
        except shutil.Error:
            continue
        return copy
    raise AssertionError("the folder never came to rest")


def kinds(state):
    """The files of a state by kind."""
    found = defaultdict(list)
    for file in sorted(state.rglob("*")):
        relative = file.relative_to(state)
        if file.is_file() and file.name != "lock":
            parts = [p if not p[:1].isdigit() else "N" for p in relative.parts[:-1]]
            name = file.name.lstrip(".")
            number = name.split("_")[0].split(".")[0].split("-")[0]
            kind = name[len(number) :].partition(".")[2] if number.isdigit() else name
            found["/".join([*parts, ("." if file.name[0] == "." else "") + kind])].append(relative)
    return found


def damage(file, how, dice):
    data = file.read_bytes()
    if how == "delete" or not data:
        file.unlink()
    elif how == "truncate":
        file.write_bytes(data[: dice.randrange(len(data))])
    else:
        place = dice.randrange(len(data))
        flipped = data[place] ^ (1 << dice.randrange(8))
        file.write_bytes(data[:place] + bytes([flipped]) + data[place + 1 :])


def cases():
    """Every kind of file in every way first, then pairs of any two; the same ones every time."""
    return range(CASES)


def chosen(state, case):
    dice = random.Random(case)
    by_kind = kinds(state)
    ways = ("truncate", "flip", "delete")
    singles = [(kind, way) for kind in sorted(by_kind) for way in ways]
    dice_order = random.Random(2026)
    dice_order.shuffle(singles)
    if case < len(singles):
        kind, way = singles[case]
        # The newest files count most.
        file = dice.choice(by_kind[kind][-3:] if case % 2 else by_kind[kind])
        return [(file, way)], dice
    files = [file for found in by_kind.values() for file in found]
    return [(file, dice.choice(ways)) for file in dice.sample(files, 2)], dice


@pytest.fixture
def damaged(saved, spark, tmp_path):
    """A copy that a case was done to, with more to read; and what was done."""

    def make(case, **options):
        shutil.copytree(saved[0], tmp_path, dirs_exist_ok=True)
        app = program(tmp_path, spark, **options)
        with admin.open(app) as state:
            state._opened.reader(state._opened.manifest())  # the folder has moved
        produce(app, BATCHES * RECORDS, (BATCHES + 2) * RECORDS)
        done, dice = chosen(tmp_path / "state", case)
        for file, how in done:
            damage(tmp_path / "state" / file, how, dice)
        return app, done

    return make


@pytest.mark.parametrize("case", cases())
def test_a_start_refuses_damage_if_and_only_if_a_repair_does_something(case, saved, damaged):
    app, done = damaged(case)
    with admin.open(app) as state:
        is_whole = state.verify().is_whole
        if is_whole:
            assert state.repair().problems == [], done

    try:
        app.run(drain=True)
        is_refused = False
    except DamagedStateError as error:
        is_refused = True
        assert "millpond state repair" in str(error)
        assert str(app.config.state_dir) in str(error)  # and which file, as far as Spark knows it
        assert "\tat " not in str(error)
        with admin.open(app) as state:
            assert state.repair().problems
        app.run(drain=True)

    assert is_refused is not is_whole, done
    assert result(app) == saved[1], done


def test_an_application_may_repair_its_state_by_itself(saved, damaged, tmp_path):
    app, _ = damaged(0, recover="auto")
    generation = max((tmp_path / "state" / "g" / "generations").iterdir())
    last = max(int(f.name) for f in (generation / "commits").glob("[0-9]*"))
    (generation / "offsets" / str(last)).write_text("torn")

    app.run(drain=True)

    assert result(app) == saved[1]
    with admin.open(app) as state:
        assert "repair" in {entry["what"] for entry in state.audit()}
