"""The contract suites: our own classes keep to them, and what does not is found."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import defaultdict
from contextlib import suppress
from itertools import count

import pyarrow as pa
import pyarrow.parquet
import pytest
from contracts import check_broker, check_store, check_writer

import millpond as mp
from millpond.connectors.embedded import EmbeddedBroker
from millpond.connectors.log import Log
from millpond.connectors.sources import Spool
from millpond.connectors.topic import make_topic
from millpond.state.store import MemoryStore
from millpond.testing import check_sink, check_source
from millpond.testing.reader_contract import check_reader
from millpond.testing.topics import LocalWriter
from millpond.worker.history import HistoryReader

# --- sources --------------------------------------------------------------------------------


class Table(mp.Source):
    """A source that keeps the contract: rows by country, with gaps in their numbers."""

    name = "orders"

    def __init__(self, rows):
        self.rows = rows

    def ends(self):
        return {country: max(numbers) + 1 for country, numbers in self.rows.items()}

    def read(self, partition, start, end):
        for number, user in sorted(self.rows[partition].items()):
            if start <= number < end:
                yield mp.Record(user, {"n": number}, None, offset=number)


ROWS = {"eu": {0: "ann", 3: "bob", 4: "ann", 9: "eve"}, "us": {1: "joe", 2: "ann"}}


def test_a_table_keeps_the_contract():
    check_source(lambda: Table(ROWS))


def test_a_table_that_grows_keeps_the_contract():
    rows = {country: dict(numbers) for country, numbers in ROWS.items()}

    check_source(lambda: Table(rows), grow=lambda: rows.update(jp={5: "kei"}))


class Shuffled(Table):
    def read(self, partition, start, end):
        found = list(super().read(partition, start, end))
        values = [record.value for record in found]
        random.shuffle(values)
        return [r._replace(value=value) for r, value in zip(found, values, strict=True)]


class Stamped(Table):
    def read(self, partition, start, end):
        for record in super().read(partition, start, end):
            time.sleep(0.002)
            yield record._replace(timestamp=time.time_ns() // 1_000_000)


class Unnumbered(Table):
    def read(self, partition, start, end):
        for record in super().read(partition, start, end):
            yield record.key, record.value


class Backwards(Table):
    asked = count(100, -1)

    def ends(self):
        return {"eu": next(self.asked)}


class Repeating(Table):
    def read(self, partition, start, end):
        for record in super().read(partition, start, end):
            yield record
            yield record


class Greedy(Table):
    def read(self, partition, start, end):
        return super().read(partition, start, end + 5)


class Connected(Table):
    def __init__(self, rows):
        super().__init__(rows)
        self.connection = sqlite3.connect(":memory:")


class Consuming(Table):
    def read(self, partition, start, end):
        found = list(super().read(partition, start, end))
        self.rows = {**self.rows, partition: {9: "eve"}}
        return found


class Empty(Table):
    def ends(self):
        return {}


WRONG = [
    (Shuffled, r"read\('\w+', 0, \d+\).* gives another value: .*the same range must always"),
    (Stamped, "gives another timestamp: .*the time of the clock is another one in a replay"),
    (Unnumbered, r"read in two pieces that meet at \d+, gives another offset: .*offset=\.\.\."),
    (Backwards, "ends at 99, but this group has read it up to 100"),
    (Repeating, "gave offset 0 after 0.*\nFix: .*each once"),
    (Greedy, r"read\('eu', 0, \d\) gave a record with offset \d"),
    (Connected, r"cannot be sent to workers: .*Connection.* Open connections in ends\(\)"),
    (Consuming, "gives another|record.s., and gave 4 before"),
    (Empty, "nothing to check"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_source_that_breaks_the_contract_gets_an_error_that_says_how(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check_source(lambda: wrong(ROWS))


def test_a_source_that_does_not_grow_gets_an_error():
    with pytest.raises(AssertionError, match=r"records were added, and ends\(\) gives"):
        check_source(lambda: Table(ROWS), grow=lambda: None)


def test_a_source_that_is_none_of_the_users_is_refused():
    with pytest.raises(AssertionError, match="is for a Source or a PollSource, got"):
        check_source(lambda: mp.RateSource(1))


class Pages(mp.PollSource):
    """A polled source that keeps the contract."""

    name = "pages"

    def __init__(self, pages):
        self.pages = pages

    def poll(self, position):
        number = position["page"] if position else 0
        if number >= len(self.pages):
            return [], {"page": number}
        return self.pages[number], {"page": number + 1}


def test_pages_keep_the_contract():
    pages = [[("ann", 1)], [("ann", 2), ("bob", 3)]]

    check_source(lambda: Pages(pages), grow=lambda: pages.append([("eve", 4)]))


class Tuples(Pages):
    def poll(self, position):
        return [1], (1, 2)


class Stuck(Pages):
    def poll(self, position):
        return [1], {"page": 1}


class Inclusive(Pages):
    def poll(self, position):
        page = position or 0
        return self.pages[max(0, page - 1) : page + 1][:1] * (page < 2), page + 1


class NoPair(Pages):
    def poll(self, position):
        return [1]


class Unkept(Pages):
    def poll(self, position):
        return [object()], 1


class Forgetful(Pages):
    """Knows by itself how far it is, and nothing of positions."""

    def poll(self, position):
        self.pages, page = self.pages[1:], self.pages[:1]
        return (page[0], 0) if page else ([], 0)


WRONG_POLLS = [
    (Tuples, r"position \(1, 2\), which JSON reads as \[1, 2\]"),
    (Stuck, r"poll\(\{'page': 1\}\) gave|gives 1 again, as did the poll before"),
    (Inclusive, "again, as did the poll before: it must give what comes after the position"),
    (NoPair, r"must return \(records, position\), it returned \[1\]"),
    (Unkept, "poll.. gave a record that cannot be kept: .*object"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG_POLLS, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_polled_source_that_breaks_the_contract_gets_an_error_that_says_how(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check_source(lambda: wrong([["a"], ["b"]]))


def test_a_polled_source_that_forgets_where_it_is_begins_again():
    with pytest.raises(AssertionError, match="of a new object gives 'b' again"):
        check_source(lambda: Forgetful([["b"]]), grow=lambda: None)


# --- readers of our own ---------------------------------------------------------------------


def items_in(folder, items):
    source = mp.ListSource(items, name="list")
    spool = Spool(source, str(folder))
    while spool.advance(3, 1_700_000_000_000):
        pass
    return source


def test_the_reader_of_a_list_keeps_the_contract(tmp_path):
    source = items_in(tmp_path, [("ann", n, n) for n in range(10)])

    check_reader(lambda: source.reader(str(tmp_path)))


def test_the_reader_of_a_rate_keeps_the_contract():
    for ramp_up in (0, 1_000):
        source = mp.RateSource(10, count=40, ramp_up=ramp_up)
        check_reader(lambda: source.reader(""), {"1000": 0})


def test_the_reader_of_a_topic_keeps_the_contract(tmp_path):
    broker = EmbeddedBroker(Log(tmp_path), {})
    broker.prepare(make_topic("clicks", config=mp.TopicConfig(num_partitions=3)))

    def produce():
        with broker.producer() as producer:
            for n in range(30):
                producer.produce("clicks", key=f"k{n}", value=b"%d" % n, headers={"n": b"1"})

    produce()

    check_reader(lambda: broker.reader(make_topic("clicks")), grow=produce)


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_the_reader_of_files_keeps_the_contract(tmp_path, format):
    def write(name):
        if format == "parquet":
            table = pa.table({"a": [1, 3], "b": [2, 4]})
            pa.parquet.write_table(table, tmp_path / "in" / f"{name}.parquet")
            return
        rows = ['{"a": 1}', '{"a": 2}'] if format == "json" else ["a,b", "1,2", "3,4"]
        (tmp_path / "in" / f"{name}.{format}").write_text("\n".join(rows))

    (tmp_path / "in").mkdir()
    write("1"), write("2"), write("3")
    source = mp.FileSource(tmp_path / "in", format)

    check_reader(lambda: source.reader(str(tmp_path / "spool")), grow=lambda: write("4"))


def test_the_reader_of_history_keeps_the_contract(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"a": 1}\n{"a": 2}')
    files = mp.FileSource(tmp_path / "in")
    topic = make_topic("clicks")

    check_reader(lambda: HistoryReader(files.reader(str(tmp_path / "spool")), topic))


# --- sinks ----------------------------------------------------------------------------------


class SQLiteSink:
    """The sink of docs/sources-and-sinks.md."""

    def __init__(self, path):
        self.connection = sqlite3.connect(path)
        self.connection.execute("CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY)")
        self.connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT, value TEXT)")

    def write(self, batch):
        with self.connection:
            cursor = self.connection.execute(
                "INSERT OR IGNORE INTO deliveries VALUES (?)", [batch.delivery_id]
            )
            if cursor.rowcount:
                rows = [(record.key, json.dumps(record.value)) for record in batch]
                self.connection.executemany("INSERT INTO results VALUES (?, ?)", rows)


def stored(path):
    connection = sqlite3.connect(path)
    try:
        return list(connection.execute("SELECT key, value FROM results"))
    finally:
        connection.close()


def test_a_list_keeps_the_contract():
    for sink in (mp.ListSink(), mp.ListSink(metadata=True)):
        check_sink(lambda sink=sink: sink, lambda sink=sink: sink)


def test_a_sink_with_a_table_of_deliveries_keeps_the_contract(tmp_path):
    SQLiteSink(tmp_path / "results.db")

    check_sink(lambda: SQLiteSink(tmp_path / "results.db"), lambda: stored(tmp_path / "results.db"))


def test_a_sink_with_a_file_for_each_delivery_keeps_the_contract(tmp_path):
    def save(records, delivery_id):
        text = "\n".join(json.dumps(record.value) for record in records)
        (tmp_path / "writing").write_text(text)
        (tmp_path / "writing").rename(tmp_path / f"{delivery_id}.json")

    def read():
        return [line for file in tmp_path.glob("*.json") for line in file.read_text().split("\n")]

    check_sink(lambda: save, read)


class Storage:
    """What a wrong sink writes to; it outlives the sink."""

    def __init__(self):
        self.rows, self.ids = [], set()


class Appending:
    """At least once."""

    def __init__(self, storage):
        self.storage = storage

    def write(self, batch):
        self.storage.rows += [record.value for record in batch]


class Halves(Appending):
    def write(self, batch):
        if batch.delivery_id not in self.storage.ids:
            for record in batch:
                self.storage.rows.append(record.value)
            self.storage.ids.add(batch.delivery_id)


class TooEarly(Appending):
    def write(self, batch):
        if batch.delivery_id not in self.storage.ids:
            self.storage.ids.add(batch.delivery_id)
            super().write(batch)


class InMemory(Appending):
    def __init__(self, storage):
        super().__init__(storage)
        self.ids = set()

    def write(self, batch):
        if batch.delivery_id not in self.ids:
            super().write(batch)
            self.ids.add(batch.delivery_id)


class ByContent(Appending):
    def write(self, batch):
        new = [record.value for record in batch]
        self.storage.rows += [value for value in new if value not in self.storage.rows]


class Silent(Appending):
    def write(self, batch):
        with suppress(Exception):
            super().write(batch)


WRONG_SINKS = [
    (Appending, "the same delivery came twice, the sink has 6 new record.s., and not 3"),
    (Halves, "failed in its middle, the sink has 2 new record.s., and not 0: write all or nothing"),
    (TooEarly, "came again, complete, the sink has 0 new .*do not keep the id"),
    (InMemory, "came to a new object, as after a restart, .*store the id with the records"),
    (ByContent, "another delivery with the same records, .* by their id, not by their records"),
    (Silent, "raised nothing: the batch would be lost"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG_SINKS, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_sink_that_breaks_the_contract_gets_an_error_that_says_how(wrong, message):
    storage = Storage()

    with pytest.raises(AssertionError, match=message):
        check_sink(lambda: wrong(storage), lambda: storage.rows)


def test_a_sink_may_be_at_least_once():
    storage = Storage()

    check_sink(lambda: Appending(storage), lambda: storage.rows, exactly_once=False)


# --- stores, writers and brokers ------------------------------------------------------------


def test_the_store_in_memory_keeps_the_contract():
    check_store(MemoryStore())


def test_a_store_that_returns_what_was_deleted_is_found():
    class Hoarding(MemoryStore):
        def delete(self, blob_id):
            pass

    with pytest.raises(AssertionError, match="a blob that was deleted is gone"):
        check_store(Hoarding())


def test_the_writer_of_the_embedded_log_keeps_the_contract(tmp_path):
    broker = EmbeddedBroker(Log(tmp_path), {})

    def read(topic):
        return [record.value for record in broker.consumer().read(topic)]

    check_writer(lambda: broker.writer("g", "stream", True, lambda number: {}), read)


def test_the_writer_of_the_local_engine_keeps_the_contract():
    topics = defaultdict(list)
    writer = LocalWriter(topics)

    check_writer(lambda: writer, lambda topic: [record.value for record in topics[topic]])


def test_a_writer_that_writes_again_is_found():
    class Again(LocalWriter):
        def write(self, topic, batch, batch_id, reads=""):
            self._written.clear()
            super().write(topic, batch, batch_id, reads)

    topics = defaultdict(list)
    writer = Again(topics)

    with pytest.raises(AssertionError, match="a batch that comes again writes nothing"):
        check_writer(lambda: writer, lambda topic: [record.value for record in topics[topic]])


def test_the_embedded_log_keeps_the_contract_of_brokers(tmp_path):
    check_broker(EmbeddedBroker(Log(tmp_path), {}))
