"""Sources that users write, on Spark: the example of docs/sources-and-sinks.md, and what fails."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import nullcontext
from pathlib import Path

import pytest

import millpond as mp
from millpond.errors import ConfigError, SourceError, StateError
from millpond.testing import run_local

pytestmark = pytest.mark.spark

DOCUMENT = Path(__file__).parents[2] / "docs" / "sources-and-sinks.md"
ORDERS = [(n, ["FR", "JP", "BR"][n % 3], f"u{n % 7}", n, 1000 * n) for n in range(1, 301)]


def documented(name):
    """The code block of the document that defines a class, as a namespace."""
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    code = next(block for block in blocks if f"class {name}(" in block)
    names = {"mp": mp, "__name__": "documented"}
    code = re.split(r"^(?:with sqlite3|assert )", code, flags=re.MULTILINE)[0]
    exec(compile(code, "documented.py", "exec"), names)
    return names


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE orders (id INTEGER, country TEXT, user TEXT, amount INTEGER, at INTEGER)"
        )
    insert(path, ORDERS)
    return str(path)


def insert(path, rows):
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)


class DiesOnce:
    """A sink that dies when it has stored a batch, as a process may before the commit."""

    def __init__(self, at):
        self.calls, self.at, self.deliveries = 0, at, {}

    def write(self, batch):
        self.calls += 1
        again = self.deliveries.setdefault(batch.delivery_id, list(batch.records))
        assert again == list(batch.records), "a replay brought other records"
        if self.calls == self.at:
            raise KeyboardInterrupt

    @property
    def records(self):
        return [record for records in self.deliveries.values() for record in records]


def test_the_documented_table_is_read_once_by_several_tasks_and_after_a_kill(make_app, shop):
    names = documented("OrdersTable")
    sink = DiesOnce(at=3)

    def run():
        app = make_app(max_records_per_batch=200)
        source = names["OrdersTable"](shop)
        app.dataframe(source=source).apply(names["total"], stateful=True).sink(sink, name="totals")
        with pytest.raises(KeyboardInterrupt) if sink.calls < 3 else nullcontext():
            app.run(drain=True)

    run()
    known = len(sink.deliveries)
    run()
    more = [(n, "FR", "u1", n, 1000 * n) for n in (301, 302)] + [(303, "KE", "u1", 1, 0)]
    insert(shop, more)
    run()

    assert known < len(sink.deliveries)
    expected = {}
    for number, _, user, amount, _ in [*ORDERS, *more]:
        expected.setdefault(user, []).append(amount)
    assert len(sink.records) == len(ORDERS) + len(more)
    last = {}
    for record in sink.records:
        last[record.key] = max(record.value, last.get(record.key, 0))
    assert last == {user: sum(amounts) for user, amounts in expected.items()}
    places = [(record.partition, record.offset) for record in sink.records]
    assert len(set(places)) == len(places)
    assert {p for p, _ in places} == {0, 1, 2, 3}


def test_spark_gives_what_the_local_engine_gives(make_app, shop):
    names = documented("OrdersTable")

    def program(app):
        return app.dataframe(source=names["OrdersTable"](shop)).apply(names["total"], stateful=True)

    local = run_local(program(make_app("local")))
    app = make_app()
    program(app)

    assert sorted(app.run(drain=True)) == sorted(local)


def test_the_documented_poll_goes_on_after_a_kill(make_app):
    names = documented("Events")
    names["pages"].update({n: [f"u{n}"] for n in range(3, 40)})
    sink = DiesOnce(at=1)

    def run():
        app = make_app()
        source = names["Events"](names["get"])
        app.dataframe(source=source).apply(names["visits"], stateful=True).sink(sink, name="v")
        app.run(drain=True)

    with pytest.raises(KeyboardInterrupt):
        run()
    names["pages"].update({40: ["ann", "ann"]})
    run()

    users = ["ann", "bob", "ann", *(f"u{n}" for n in range(3, 40)), "ann", "ann"]
    expected, seen = [], {}
    for user in users:
        seen[user] = seen.get(user, 0) + 1
        expected.append((user, seen[user]))
    assert sorted(record.value for record in sink.records) == sorted(expected)


class Broken(mp.Source):
    name = "broken"

    def __init__(self, what):
        self.what = what

    def ends(self):
        if self.what == "ends":
            raise OSError("no route to the table")
        return {"eu": 5}

    def read(self, partition, start, end):
        yield from range(3)
        if self.what == "read":
            raise OSError("no route to the table")
        yield {"read less": 1, "value": (n for n in [])}[self.what]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("ends", r"source 'broken' \(test_own_sources.py:\d+\): ends\(\) raised OSError: no route"),
        ("read", r"read\('eu', 0, 5\), after offset 2, raised OSError: no route to the table \(te"),
        ("value", r"read\('eu', 0, 5\) gave a record at offset 3 that cannot be sent: .*generator"),
    ],
)
def test_a_source_that_fails_ends_the_run_with_its_name_and_position(make_app, what, message):
    app = make_app(on_error="dead-letter")
    app.dataframe(source=Broken(what)).apply(lambda value: value)

    with pytest.raises(SourceError, match=message) as caught:
        app.run(drain=True)

    assert "\nFix: " in str(caught.value)


def test_a_source_that_cannot_be_sent_is_named(make_app):
    source = Broken("read")
    source.connection = sqlite3.connect(":memory:")
    app = make_app()
    app.dataframe(source=source).apply(lambda value: value)

    text = r"source 'broken' \(test_own_sources.py:\d+\) cannot be sent to workers: .*Connection"
    with pytest.raises(ConfigError, match=text):
        app.run(drain=True)


def test_a_spool_that_is_lost_is_not_begun_again(make_app, tmp_path):
    names = documented("Events")

    def run():
        app = make_app()
        app.dataframe(source=names["Events"](names["get"])).apply(lambda event: event["user"])
        return app.run(drain=True)

    run()
    (spool,) = tmp_path.rglob(".polled/events")
    shutil.rmtree(spool)

    with pytest.raises(StateError, match="3 records of source 'events' were read, and .* has 0"):
        run()


def test_an_error_of_a_poll_ends_the_run(make_app):
    class Away(mp.PollSource):
        name = "away"

        def poll(self, position):
            raise ConnectionError("refused")

    app = make_app()
    app.dataframe(source=Away()).apply(lambda value: value)

    with pytest.raises(SourceError, match=r"source 'away' .* poll\(None\) raised ConnectionError"):
        app.run(drain=True)
