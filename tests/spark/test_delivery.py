"""Every kind of sink receives every record, whatever is done to the state in between.

Four sinks of one program, three of them on one database, each skip a delivery that they have. What
a state command should write again arrives again; everything else arrives once.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter

import pytest

import millpond as mp
from millpond import admin

pytestmark = pytest.mark.spark

KINDS = ("object", "function", "protocol", "list")


class Table:
    """The exactly-once sink of docs/sources-and-sinks.md, for one of several tables."""

    def __init__(self, path, table):
        self.path, self.table = path, table
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY)")
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} (value INTEGER)")

    def write(self, batch):
        with sqlite3.connect(self.path) as db:
            new = db.execute("INSERT OR IGNORE INTO deliveries VALUES (?)", [batch.delivery_id])
            if new.rowcount:
                rows = [(record.value,) for record in batch]
                db.executemany(f"INSERT INTO {self.table} VALUES (?)", rows)


class ProtocolSink(Table, mp.Sink):
    pass


def add(value, state):
    state.set("n", state.get("n", 0) + 1)
    return value


def fold(key, value, state):
    return value, (state or 0) + 1


def with_default(frame):
    return frame.apply(add, stateful=True)


def with_renamed(frame):
    return frame.stateful_map("renamed", fold)


def with_group(frame):
    total = with_default(frame)
    total.group_by(lambda value: value % 2, name="parity").apply(add, stateful=True)
    return total


class World:
    """One application with a sink of each kind, and what its sinks hold."""

    def __init__(self, make_app, folder):
        self.make_app, self.folder = make_app, folder
        self.path = folder / "results.db"
        self.list = mp.ListSink()
        self.fails = False
        self.written = 0
        self.app = self.make("test")

    def make(self, group, order=KINDS, program=with_default):
        app = self.make_app(group)
        total = program(app.dataframe(app.topic("in", key_deserializer="str")))
        inner = Table(self.path, "function")
        sinks = {
            "object": Table(self.path, "object"),
            "function": lambda records, delivery_id: inner.write(
                mp.SinkBatch(delivery_id, records)
            ),
            "protocol": ProtocolSink(self.path, "protocol"),
            "list": self.list,
        }
        for kind in order:
            total.sink(sinks[kind])
        total.sink(self.fail, name="failing")
        return app

    def fail(self, records, delivery_id):
        if self.fails:
            raise OSError("the database is away")

    def write(self, count=10):
        with self.app.get_producer() as producer:
            for number in range(self.written, self.written + count):
                producer.produce("in", key="k", value=str(number).encode())
        self.written += count

    def run(self, app=None):
        (app or self.app).run(drain=True, collect=False)

    def held(self):
        """How often each sink holds each value."""
        found = {"list": Counter(self.list)}
        with sqlite3.connect(self.path) as db:
            for kind in KINDS[:3]:
                found[kind] = Counter(v for (v,) in db.execute(f"SELECT value FROM {kind}"))
        return found

    def expect(self, twice=(), thrice=()):
        wanted = Counter(range(self.written)) + Counter(twice) + Counter(thrice)
        assert self.held() == dict.fromkeys(KINDS, wanted)


@pytest.fixture
def world(make_app, tmp_path):
    world = World(make_app, tmp_path)
    world.write()
    world.run()
    return world


def test_restore_loses_no_record(world, tmp_path):
    with admin.open(world.app) as state:
        state.backup(tmp_path / "backup")
    world.write()
    world.run()
    for again in (1, 2):  # a second restore of the same backup begins another lineage
        with admin.open(world.app) as state:
            state.restore(tmp_path / "backup")
        world.write()
        world.run()
        with admin.open(world.app) as state:
            assert state.get("k") == {"n": world.written}
        world.expect(twice=range(10, 20), thrice=range(10, 30) if again == 2 else ())


def test_restore_into_an_empty_directory_loses_no_record(world, tmp_path):
    with admin.open(world.app) as state:
        state.backup(tmp_path / "backup")
    world.write()
    world.run()
    shutil.rmtree(tmp_path / "state" / "test")
    with admin.open(world.app) as state:
        state.restore(tmp_path / "backup")
    world.write()
    world.run()

    world.expect(twice=range(10, 20))


@pytest.mark.parametrize("outputs", ["keep", "again"])
def test_rewind_loses_no_record(world, outputs):
    world.write()
    world.run()
    with admin.open(world.app) as state:
        state.rewind(0, outputs=outputs)
    world.write()
    world.run()

    world.expect(twice=range(10, 20) if outputs == "again" else ())


@pytest.mark.parametrize("reset_offsets", [False, True])
def test_clear_loses_no_record(world, reset_offsets):
    world.app.clear_state(reset_offsets)
    world.write()
    world.run()

    world.expect(twice=range(10) if reset_offsets else ())


def test_fork_delivers_its_own_records(world):
    world.write()
    world.run()
    with admin.open(world.app) as state:
        state.fork("copy", at=0)
    world.write()
    world.run()
    world.run(world.make("copy"))

    world.expect(twice=range(10, 30))


def test_repair_delivers_nothing_twice(world, tmp_path):
    world.write()
    world.run()
    (last,) = (tmp_path / "state/test/generations/0001/commits").glob("1")
    last.write_bytes(b"")
    with admin.open(world.app) as state:
        state.repair()
    world.write()
    world.run()

    world.expect()


def test_an_older_copy_of_the_state_directory_loses_no_record(world, tmp_path):
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    world.write()
    world.run()
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    world.write()
    world.run()

    world.expect(twice=range(10, 20))


def test_replay_after_a_failure_delivers_once_whatever_the_order_of_sinks(world):
    world.write()
    world.fails = True
    with pytest.raises(OSError, match="away"):
        world.run()
    world.fails = False
    world.run(world.make("test", order=tuple(reversed(KINDS))))
    world.write()
    world.run()

    world.expect()


CHANGES = {
    "set": (lambda state: state.set("k", {"n": 1}), with_default),
    "drop": (lambda state: state.drop("in/default"), with_default),
    "rename": (lambda state: state.rename("in/default", "in/renamed"), with_renamed),
    "rescale": (lambda state: state.rescale(1), with_default),
    "another group_by": (lambda state: None, with_group),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_delivery_that_failed_is_replayed_once_after_a_change(world, change):
    command, program = CHANGES[change]
    world.write()
    world.fails = True
    with pytest.raises(OSError, match="away"):
        world.run()
    with admin.open(world.app) as state:
        generation = state.info().generation
        command(state)
    world.fails = False
    world.app = world.make("test", program=program)
    world.run()
    world.expect()
    with admin.open(world.app) as state:
        assert state.info().generation == generation + 1
    world.write()
    world.run()

    world.expect()


def test_replay_of_a_spark_source_delivers_once(make_app, spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"n": 1}\n')
    seen, fails = [], [True]

    def save(records, delivery_id):
        seen.append((delivery_id, [record.value["n"] for record in records]))
        if fails.pop():
            raise OSError("the database is away")
        fails.append(False)

    app = make_app()
    frame = spark.readStream.schema("n long").json(str(tmp_path / "in"))
    app.dataframe(source=mp.SparkSource(frame)).sink(save)
    with pytest.raises(OSError, match="away"):
        app.run(drain=True)
    fails.append(False)
    app.run(drain=True)

    (first, values), second = seen
    assert second == (first, values)
    assert values == [1]
