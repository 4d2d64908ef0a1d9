"""What a source, a sink and a broker must do to take part.

A source hands out ranges of records by partition and offset, and gives the same records for the
same range, always: that is what makes a replay exact. A sink receives each committed batch. The
protocols are complete: the engine calls nothing that is not here. A class that inherits from one
gets what most of its kind do alike.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol, Self, runtime_checkable

import pyarrow as pa

from millpond.arguments.windows import Clocking
from millpond.connectors.limits import Limits
from millpond.connectors.serde import Deserializer
from millpond.connectors.topic import Topic
from millpond.record import Headers, Record

__all__ = [
    "Broker",
    "Offsets",
    "Sink",
    "SinkBatch",
    "Located",
    "PollSource",
    "Source",
    "SourceKind",
    "SourceReader",
    "SourceSettings",
    "TopicConsumer",
    "TopicProducer",
    "TopicWriter",
]

Offsets = dict[str, int]
"""Partition (its number, as text: Spark keeps offsets as JSON) to offset."""


Located = tuple[int, int, pa.RecordBatch]
"""The number of a partition, the offset of a first record, and records in a row from there on."""


class SourceReader(Protocol):
    """Reads one source; lives in the driver's reader process and in workers, so it is pickled."""

    waits_for: str = ""
    """Who is waited for where no records come; "" where that is nobody."""
    away_since: float | None = None
    """Since when it gives no answer, by the monotonic clock; None: it answers."""
    counts_files: bool = False
    """Whether offsets count files, each of which is read whole, and not records."""
    fresh_for: float = 0.0
    """For how many seconds ends are believed; an idle query asks a hundred times a second."""

    def initial(self, reset: str) -> Offsets:
        """Return where a new group starts: reset is "earliest", "latest" or "error"."""

    def ends(self, begin: Offsets) -> Offsets:
        """Return the end of each partition, to plan a batch that begins at `begin`.

        Where looking writes something, only one process calls this, and `known` does not.
        """

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range, in the schema of a log segment.

        A column `offset` is added where offsets have gaps. A time that is null is that of the
        batch.
        """

    def known(self, begin: Offsets) -> Offsets:
        """Return the ends as far as they are known, for people; any process may call this."""
        return self.ends(begin)

    def fetch(self, ranges: list[tuple[str, int, int]]) -> None:
        """Prepare to read ranges, which are (partition, start, end) and are read next."""
        return

    def located(self, partition: str, start: int, end: int) -> Iterator[Located]:
        """Yield the records of a range, each part with its place."""
        position = start
        for part in self.read(partition, start, end):
            yield self.number_of(partition), position, part
            position += part.num_rows

    def number_of(self, partition: str) -> int:
        """Return the number under which records have a partition; -1: each has its own."""
        return int(partition) if partition.isdecimal() else -1

    def place_of(self, partition: int, offset: int) -> str:
        """Return where a record was, in words; "" where number and offset say all."""
        return ""

    def record_bytes(self, partition: str, offset: int) -> int:
        """Return about how many bytes a record takes from an offset on; 0: not known."""
        return 0

    def fitting(self, start: int, end: int, most_bytes: int) -> int:
        """Return the end of the files from `start` on that make so many bytes; at least one."""
        return end


class Broker(Protocol):
    """Where topics live: the embedded log or Kafka."""

    def connect(self) -> None:
        """Make sure that it answers, before anything else is done."""

    def prepare(self, topic: Topic, known_as: str | None = None, *, reads: bool = False) -> str:
        """Make or check a topic; return the id that tells it from another of its name."""

    def reader(self, topic: Topic) -> SourceReader:
        """Return the reader of a topic that was prepared."""

    def writer(
        self,
        group: str,
        stream: str,
        writes: bool,
        positions: Callable[[int], dict[str, Offsets]],
    ) -> TopicWriter:
        """Return what writes the outputs of batches.

        Args:
            group: The consumer group.
            stream: The lineage of its deliveries.
            writes: Whether the program writes to topics at all.
            positions: Gives, for a batch, the offsets up to which it reads each topic.
        """

    def delete(self, topic: str) -> None:
        """Delete a topic with its records."""

    def producer(self) -> TopicProducer:
        """Return a producer for Python programs."""

    def consumer(self) -> TopicConsumer:
        """Return a consumer for Python programs."""

    def listed(self) -> list[tuple[str, int, int]]:
        """Return the name, the partitions and the number of records of each topic."""


class TopicWriter(Protocol):
    """Appends the records of a batch to a topic, once: a number that comes again writes nothing."""

    waits_for: str = "the topics"
    """Who is waited for where a batch is not taken."""

    def write(self, topic: str, batch: pa.RecordBatch, batch_id: int, reads: str = "") -> None:
        """Take the records of a batch for a topic; `reads` is a digest of what it reads."""

    def complete(self, batch_id: int) -> None:
        """Let readers of the topics see all of the batch.

        Raises:
            RecordsRefused: they see nothing of it; it may be written again without some records.
        """
        return

    def limits(self, topic: str) -> Limits | None:
        """Return what a topic takes of a record; None: any record."""
        return None

    def close(self) -> None:
        """Let go of what the writer holds."""
        return


class TopicProducer(Protocol):
    """Writes records to topics: what `Application.get_producer` returns, whatever the broker.

    >>> from millpond import Application
    >>> app = Application(consumer_group="shop")
    >>> with app.get_producer() as producer:
    ...     producer.produce("clicks", key="ann", value=b"{}")
    """

    def produce(
        self,
        topic: str | Topic,
        value: Any = None,
        key: Any = None,
        headers: Headers | Mapping[str, Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        *,
        on_delivery: Callable[[Any, Record], Any] | None = None,
    ) -> None:
        """Write a record, now or with the next `flush`."""

    def poll(self, timeout: float = 0.0) -> int:
        """Write records that have an `on_delivery`; return for how many it was called."""

    def flush(self, timeout: float | None = None) -> int:
        """Write what is held back; return how many records are left, which is 0."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class TopicConsumer(Protocol):
    """Reads records of topics: what `Application.get_consumer` returns, whatever the broker.

    >>> from millpond import Application
    >>> app = Application(consumer_group="shop")
    >>> with app.get_producer() as producer:
    ...     producer.produce(app.topic("visits"), key="ann", value={"page": "/"})
    >>> with app.get_consumer() as consumer:
    ...     [record.value for record in consumer.read("visits")]
    [{'page': '/'}]
    """

    def subscribe(self, topics: list[str | Topic], from_end: bool = False) -> None:
        """Choose the topics that `poll` reads."""

    def seek(self, partition: Any) -> None:
        """Go on at another place: `partition` has `topic`, `partition` and `offset`."""

    def poll(self, timeout: float | None = 0.0) -> Record | None:
        """Return the next record, or None if none comes within `timeout` seconds; None: wait."""

    def read(self, topic: str | Topic) -> Iterator[Record]:
        """Yield every record that a topic holds now."""

    def close(self) -> None:
        """Stop reading."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@runtime_checkable
class Source(Protocol):
    """A source of your own whose records can be read again: a table, an archive, a log.

    It has partitions with names. Each is a row of records with offsets, which are ints that grow.
    Millpond asks for the ends, decides which ranges a batch reads, writes that down, and reads the
    ranges in workers, several at a time. A range may be read again, after a failure or in another
    process, and must give the same records: that is what makes results exactly once. So the object
    is pickled, and opens its connections in `ends` and `read`.

    >>> class Squares(Source):
    ...     name = "squares"
    ...     def ends(self):
    ...         return {"even": 3, "odd": 2}
    ...     def read(self, partition, start, end):
    ...         for offset in range(start, end):
    ...             yield (2 * offset + (partition == "odd")) ** 2
    >>> from millpond.testing import frame, run_local
    >>> run_local(frame(Squares()))
    [0, 4, 16, 1, 9]
    """

    name: str
    """State and offsets belong to it."""

    @abstractmethod
    def ends(self) -> Mapping[str, int]:
        """Return for each partition the offset after its last record. It never goes back."""

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> Iterable[Any]:
        """Yield the records of a partition with offsets from `start` up to, not including, `end`.

        A record is a value, `(key, value[, timestamp[, headers]])` or a `Record`, in the order of
        the offsets. A `Record` has its offset; others follow one another from `start` on. One
        without a timestamp, or with None, has the time of the batch.
        """

    def starts(self) -> Mapping[str, int]:
        """Return where a group begins that is new; partitions that are not named begin at 0.

        `return self.ends()` leaves out what is there before the first run.
        """
        return {}


@runtime_checkable
class PollSource(Protocol):
    """A source of your own that cannot be read again: an HTTP API, a web socket, a queue.

    What `poll` gives is written to the state directory, together with the position after it, before
    a batch uses it. So a replay reads it there, and `poll` goes on exactly where it was. It is
    called in one thread of the program, one call after the other; the object is not pickled.

    >>> class Numbers(PollSource):
    ...     name = "numbers"
    ...     def poll(self, position):
    ...         page = position or 0
    ...         return ([page, page + 1], page + 2) if page < 4 else ([], page)
    >>> from millpond.testing import frame, run_local
    >>> run_local(frame(Numbers()))
    [0, 1, 2, 3]
    """

    name: str
    """State and offsets belong to it."""
    interval: float = 1.0
    """How many seconds to wait after a poll that gave nothing."""

    @abstractmethod
    def poll(self, position: Any) -> tuple[Iterable[Any], Any]:
        """Return the records after a position, and the position after them.

        It is None at first, and any JSON value later. Records are those of `Source.read`, without
        offsets, and their values are of types that state can keep. Return within seconds: no
        records, where there are none.
        """


SourceKind = Literal["topic", "list", "rate", "files", "spark", "custom", "polled"]


class SourceSettings(Protocol):
    """A source as the program knows it: its name, and how its records are read."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> SourceKind: ...

    @property
    def clocking(self) -> Clocking:
        """How its time is determined, unless the user sets it otherwise."""

    @property
    def value_deserializer(self) -> Deserializer:
        """What turns the bytes of a value into the value."""

    @property
    def key_deserializer(self) -> Deserializer:
        """What turns the bytes of a key into the key."""


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The records that one batch of the stream brings to a sink, in input order.

    >>> batch = SinkBatch("shop-1", [Record("ann", 1, 0), Record("bob", 2, 0)])
    >>> batch.delivery_id, [record.value for record in batch]
    ('shop-1', [1, 2])
    """

    delivery_id: str
    """Identifies these records at this sink, across restarts, restores and rewinds.

    The same id means the same part of the input. Other parts, and other sinks, never have it."""
    records: Sequence[Record]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.records)

    @property
    def batch_id(self) -> NoReturn:
        """Removed: numbers of batches come again with other records, after a restore."""
        msg = (
            "a SinkBatch has no batch_id: numbers come again with other records after a restore."
            "\nFix: use batch.delivery_id, a text that is unique for these records and this sink."
        )
        raise AttributeError(msg)


class Sink(Protocol):
    """Receives each batch once it is computed, before it is committed.

    If the process dies in between, the same records come again with the same `delivery_id`. A sink
    that stores the id with the records, in one transaction, and skips an id that it has stored,
    is therefore exactly once.

    >>> class Table:
    ...     def __init__(self):
    ...         self.deliveries = {}
    ...
    ...     def write(self, batch):
    ...         self.deliveries[batch.delivery_id] = [record.value for record in batch]
    >>> from millpond.testing import frame, run_local
    >>> sdf, table = frame(), Table()
    >>> sdf.sink(table)
    >>> _ = run_local(sdf, ["a", "b"])
    >>> list(table.deliveries.values())
    [['a', 'b']]
    """

    def write(self, batch: SinkBatch) -> object:
        """Write one batch. An exception stops the run; the batch is not committed."""
