"""The program that is watched at every change of a file.

It has two layers of state, and everything that can leave: outputs, windows, late records, dead
letters, timers, and a sink that stores each delivery once.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from pathlib import Path

import pyarrow as pa

import millpond as mp
from millpond import admin
from millpond.connectors.log import Log
from millpond.connectors.segments import SEGMENT
from millpond.errors import DamagedStateError, StateError
from millpond.storage.directory import StateDirectory

BATCH, BATCHES = 12, 5


def add(value, state):
    if value % 17 == 16:
        raise ValueError("refused")
    state.set("total", state.get("total", 0) + value)
    state.set("last", value, ttl=30)
    state.set_timer("quiet", after=9)
    return state.get("total")


def went_quiet(key, state, timer):
    return f"{key} was quiet at {timer.at}"


def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


class Deliveries:
    """Stores each delivery in a file of its own, named by its id; it may come again as it was."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def write(self, batch):
        self.folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps([[str(record.key), record.value] for record in batch])
        place = self.folder / batch.delivery_id
        if place.exists():
            assert place.read_text() == content, (
                f"{batch.delivery_id} came again with other records"
            )
            return
        aside = self.folder / f".{batch.delivery_id}.tmp"
        aside.write_text(content)
        aside.replace(place)


def program(folder, spark=None, group="g", third="third", more=False, **options):
    """Return the program; `third` is the name of its second key, `more` gives it a third one."""
    folder = Path(folder)
    app = mp.Application(
        consumer_group=group,
        state_dir=options.pop("state_dir", folder / "state"),
        topics_dir=folder / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=BATCH,
        spark=spark,
        master=None if spark else "local[2]",
        on_error="dead-letter",
        loglevel=None,
        **options,
    )
    topic = app.topic("in", key_deserializer="str", max_future=None)
    frame = app.dataframe(topic).watermark(0)
    totals = frame.apply(add, stateful=True, on_timer=went_quiet)
    totals.to_topic(app.topic(f"{group}-out"))
    sums = totals.filter(lambda value: isinstance(value, int))
    sums.sink(Deliveries(folder / f"{group}-sink"), name="deliveries")
    thirds = sums.group_by(lambda value: value % 3, name=third)
    window = thirds.tumbling_window(7).agg(n=mp.Count(), sum=mp.Sum())
    closed = window.final()
    closed.to_topic(app.topic(f"{group}-windows"))
    if more:
        counts = closed.group_by(lambda value: value["n"] % 2, name="parity")
        counts.apply(count, stateful=True).to_topic(app.topic(f"{group}-counts"))
    window.late().to_topic(app.topic(f"{group}-late"))
    return app


def produce(app, first=0, last=BATCH * BATCHES):
    with app.get_producer() as producer:
        for number in range(first, last):
            behind = 25 if number % 11 == 10 else 0  # late, once windows have closed
            producer.produce("in", number, f"key-{number % 5}", timestamp=max(0, number - behind))


def records(app, topic):
    if topic not in {name for name, _, _ in app.broker.listed()}:
        return []
    with app.get_consumer() as consumer:
        return [(r.key, r.value, r.timestamp) for r in consumer.read(topic)]


def delivered(folder, group="g"):
    """What the sink stores: the records of its deliveries, in any order."""
    found = Path(folder).glob(f"{group}-sink/deliveries-*")
    return sorted(place.read_text() for place in found)


def result(app, folder, group="g"):
    """Everything that can be seen of a program that has run."""
    topics = ("out", "windows", "late", "counts", "small", "dead-letters")
    names = [f"{group}.{name}" if name == "dead-letters" else f"{group}-{name}" for name in topics]
    with admin.open(app) as state:
        kept = {(str(i.key), i.store, str(i.name)): i.value for i in state.scan()}
        timers = {(str(t.key), t.name): t.at for t in state.timers()}
    written = {name: found for name in names if (found := records(app, name))}
    return {"written": written, "sink": delivered(folder, group), "state": kept, "timers": timers}


def copied(folder, target):
    """Copy what a program has left."""
    for _ in range(20):
        try:
            shutil.copytree(folder, target)
        except (shutil.Error, FileNotFoundError):  # Spark's maintenance was at work
            shutil.rmtree(target)
        else:
            return target
    raise AssertionError(f"{folder} never came to rest")


def _kept(app):
    return str(Path(app.config.state_dir).parent / "kept")


def _back_up_and_go_on(app):
    admin.open(app).backup(_kept(app))
    produce(app, 3 * BATCH, 4 * BATCH)
    app.run(drain=True)


def _damage(app):
    home = Path(app.config.state_dir, app.config.consumer_group, "generations", "0001", "offsets")
    place = max((f for f in home.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    place.write_text("torn")


def home(app):
    return Path(app.config.topics_dir).parent


def _write_import(app):
    row = {"key": "key-1", "name": "total", "value": 5000}
    (home(app) / "values.jsonl").write_text(json.dumps(row) + "\n")


def _lose_state(app):
    shutil.rmtree(app.config.state_dir)


def _clear_and_produce(app):
    app.clear_state()
    produce(app, 3 * BATCH, 4 * BATCH)


def _append_small(app):
    """Make a topic of as many segments as are merged."""
    log = Log(app.config.topics_dir)
    log.create("g-small", 1)
    for number in range(40):
        row = {"key": [b"k"], "value": [b"%d" % number], "timestamp": [number], "headers": [None]}
        log.append("g-small", 0, pa.table(row, SEGMENT), "writer", number)


# Each state command, and what else changes files by itself: what comes before it, and the command.
COMMANDS = {
    "clear_state": (None, lambda app: app.clear_state()),
    "rewind": (None, lambda app: admin.open(app).rewind(1)),
    "set": (None, lambda app: admin.open(app).set("key-1", {"total": 5000}, store="in/default")),
    "delete": (None, lambda app: admin.open(app).delete("key-1", store="in/default")),
    "rename": (None, lambda app: admin.open(app).rename("in/third", "in/renamed")),
    "rescale": (None, lambda app: admin.open(app).rescale(3)),
    "fork": (None, lambda app: admin.open(app).fork("forked")),
    "backup": (None, lambda app: admin.open(app).backup(_kept(app))),
    "restore": (_back_up_and_go_on, lambda app: admin.open(app).restore(_kept(app))),
    "repair": (_damage, lambda app: admin.open(app).repair()),
    "again": (None, lambda app: admin.open(app).rewind(1, outputs="again")),
    "import": (
        _write_import,
        lambda app: admin.open(app).import_file(home(app) / "values.jsonl", store="in/default"),
    ),
    "drop": (None, lambda app: admin.open(app).drop("in/third")),
    "accept": (None, lambda app: program(home(app), third="other").check(accept=True)),
    "reshape": (None, lambda app: program(home(app), more=True).run(drain=True)),
    "cleared": (_clear_and_produce, lambda app: app.run(drain=True)),
    "backfill": (_lose_state, lambda app: app.backfill()),
    "merge": (_append_small, lambda app: Log(app.config.topics_dir).merge("g-small")),
}


def batches(folder):
    """Run to the end, from nothing."""
    app = program(folder / "run")
    produce(app)
    enter("run")
    app.run(drain=True)
    enter("")


def changes(folder, chosen):
    """Run three batches, then each state command on a copy of what is there."""
    first = program(folder / "first")
    produce(first, 0, 3 * BATCH)
    first.run(drain=True)
    for name, (before, command) in COMMANDS.items():
        if chosen and name not in chosen:
            continue
        app = program(copied(folder / "first", folder / name))
        if before is not None:
            before(app)
        enter(name)
        command(app)
        enter("")


def go_on(folders):
    """Go on from what was left in each folder; leave beside it what came of it."""
    for folder in map(Path, folders):
        try:
            found = gone_on(folder)
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:1000]}"
        folder.with_name(f"{folder.name}.result").write_bytes(pickle.dumps(found))


def gone_on(folder):
    """Read what is still to come, and return what came of it all."""
    app = program(folder, **program_of(folder))
    is_repeated = folder.name in ("fork", "backup") and not copy_of(folder).exists()
    if is_repeated:
        COMMANDS[folder.name][1](app)
    try:
        is_repeated |= to_the_end(app, folder)
        is_repaired = False
    except DamagedStateError as error:
        assert "\nFix: millpond state repair " in str(error), str(error)
        admin.open(app).repair()
        is_repeated |= to_the_end(app, folder)
        is_repaired = True
    found = result(app, folder) | {"is repaired": is_repaired, "is repeated": is_repeated}
    if folder.name == "fork":
        forked = program(folder, group="forked")
        forked.run(drain=True)
        found["fork"] = result(forked, folder, "forked")
    if folder.name == "backup":
        with admin.open(folder / "kept") as state:
            found["backup"] = {(repr(i.key), i.store, str(i.name)): i.value for i in state.scan()}
    return found


def program_of(folder):
    """The program as it is from the command on."""
    manifest = folder / "state" / "g" / "manifest.json"
    if folder.name == "rename" and manifest.exists() and "in/renamed" in manifest.read_text():
        return {"third": "renamed"}
    return {"accept": {"third": "other"}, "reshape": {"more": True}}.get(folder.name, {})


def to_the_end(app, folder):
    """Go on as somebody does who meant the command to be done, and follows what errors say.

    Returns whether the command was to be given again.
    """
    is_repeated = False
    if folder.name == "backfill":
        known = StateDirectory(app.config.state_dir, "g").load()
        is_repeated = known is None or bool(known.backfill) or admin.open(app).is_empty()
        if is_repeated:
            app.backfill()
    produce(app, len(records(app, "in")))
    try:
        app.run(drain=True)
    except DamagedStateError:
        raise
    except StateError as error:
        assert folder.name == "accept" and "millpond check --accept" in str(error), str(error)
        app.check(accept=True)
        app.run(drain=True)
        is_repeated = True
    return is_repeated


def copy_of(folder):
    """The manifest of what a fork or a backup makes: it is written last."""
    names = {"fork": "state/forked", "backup": "kept/g"}
    return folder / names[folder.name] / "manifest.json"


if __name__ == "__main__":
    from file_events import enter

    what, *words = sys.argv[1:]
    if what == "batches":
        batches(Path(words[0]))
    elif what == "changes":
        changes(Path(words[0]), words[1:])
    else:
        go_on(words)
