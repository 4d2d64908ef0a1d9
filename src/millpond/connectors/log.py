"""The embedded log: topics as folders, for a laptop, a test, a demo.

    topics/<topic>/topic.json                                  see `topic_file`
    topics/<topic>/<partition>/<first offset>-<end>.arrow      see `log_partition`, `segments`

Takes tables of (key, value, timestamp, headers), gives them back by offset. Offsets are dense.
Nothing is ever trimmed: offsets that are in no file were lost, and are not given to other records.
"""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from millpond.connectors import topic_file
from millpond.connectors.log_partition import Partition
from millpond.connectors.segments import locked, sync_above, sync_folder, writing
from millpond.connectors.topic_file import folders, read_topic, used
from millpond.errors import DamagedTopicError, TopicError
from millpond.folders import make_folder

__all__ = ["Log"]

logger = logging.getLogger("millpond")

# Where a topic is moved before its files are deleted.
_DELETED = ".deleted"


class Log:
    """All topics below a folder.

    >>> import tempfile
    >>> from millpond.connectors.segments import SEGMENT
    >>> log = Log(tempfile.mkdtemp())
    >>> log.create("clicks", 1)
    >>> log.append("clicks", 0, pa.table({"key": [b"a"], "value": [b"1"], "timestamp": [0],
    ...     "headers": [None]}, SEGMENT))
    True
    >>> log.end("clicks", 0)
    1
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._counts: dict[str, int] = {}

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        described = {file.parent.name for file in self.path.glob("*/topic.json")}
        with_records = {place.name for place in self.path.glob("*") if used(place)}
        return sorted(described | with_records)

    def exists(self, topic: str) -> bool:
        """Tell whether the topic has been created."""
        return (self.path / topic / "topic.json").exists() or used(self.path / topic) > 0

    def create(self, topic: str, partitions: int, *, is_input: bool = False) -> None:
        """Create a topic; one that is there already keeps its partitions.

        Args:
            topic: Its name.
            partitions: How many it gets.
            is_input: Whether it is created only because it is read. Somebody who creates it for
                another reason confirms its name.
        """
        file = self.path / topic / "topic.json"
        if self._describes(file, partitions) and (is_input or not topic_file.is_input(file)):
            return  # who only reads may have no right to write
        with writing(f"topic {topic!r}", self.path):
            self._create(topic, partitions, is_input=is_input)

    def _create(self, topic: str, partitions: int, *, is_input: bool) -> None:
        folder, file = self.path / topic, self.path / topic / "topic.json"
        make_folder(folder)
        with locked(folder / "lock"):
            if self._describes(file, partitions):
                if not is_input:
                    topic_file.confirm(file)
                return
            if used(folder):
                logger.warning("%s was lost and is written again: %d partitions", file, partitions)
            for number in range(partitions, folders(folder)):  # of a start that was cut short
                shutil.rmtree(folder / str(number))
            for number in range(partitions):
                (folder / str(number)).mkdir(exist_ok=True)
            sync_above(file)  # before there is a topic, all its folders have their names
            topic_file.write_topic(file, partitions, is_input=is_input)

    def _describes(self, file: Path, partitions: int) -> bool:
        """Tell whether a topic has its description; one that is lost may be written again.

        Raises:
            DamagedTopicError: it is lost, and was that of a topic with more or less partitions.
        """
        try:
            return read_topic(file) is not None
        except FileNotFoundError:
            return False
        except DamagedTopicError:
            if used(file.parent) and folders(file.parent) != partitions:
                raise
            return False

    def is_unconfirmed(self, topic: str) -> bool:
        """Tell whether a topic was created only because it is read, and is empty."""
        if not topic_file.is_input(self.path / topic / "topic.json"):
            return False
        return not any(self.end(topic, number) for number in range(self.partitions(topic)))

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        if topic not in self._counts:
            try:
                self._counts[topic] = int(
                    read_topic(self.path / topic / "topic.json")["partitions"]
                )
            except FileNotFoundError:
                raise self._unknown(topic) from None
        return self._counts[topic]

    def _unknown(self, topic: str) -> TopicError:
        known = ", ".join(self.topics()) or "none"
        msg = f"topic {topic!r} does not exist in {self.path} (there: {known})."
        words = shlex.join([topic, "--topics-dir", str(self.path)])
        fix = f"write to it first; or check topics_dir; or millpond topics create {words}"
        return TopicError(f"{msg}\nFix: {fix}")

    def start(self, topic: str, partition: int) -> int:
        """Return the offset of the first record of a partition, which is never trimmed."""
        self._partition(topic, partition)
        return 0

    def end(self, topic: str, partition: int) -> int:
        """Return the offset of the next record of a partition."""
        return self._partition(topic, partition).end()

    def record_bytes(self, topic: str, partition: int, offset: int) -> int:
        """Return about how many bytes a record of a partition takes from an offset on."""
        return self._partition(topic, partition).record_bytes(offset)

    def last_batch(self, topic: str, partition: int, writer: str) -> tuple[int, str]:
        """Return the number of a writer's last batch, and its `reads`; -1 where there is none."""
        return self._partition(topic, partition).last_batch(writer)

    def read(
        self, topic: str, partition: int, start: int, end: int, *, skips_lost: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition from `start` up to, not including, `end`."""
        return self._partition(topic, partition).read(start, end, skips_lost=skips_lost)

    def delete(self, topic: str) -> None:
        """Delete a topic with its records.

        Raises:
            TopicError: there is none.
        """
        if not self.exists(topic):
            raise self._unknown(topic)
        # Renamed first: whoever reads or writes it sees all of it, or nothing.
        aside = self.path / _DELETED / f"{topic}-{uuid4().hex[:8]}"
        with writing(f"topic {topic!r}", self.path), locked(self.path / topic / "lock"):
            make_folder(aside.parent)
            (self.path / topic).rename(aside)
            sync_folder(self.path)
        shutil.rmtree(self.path / _DELETED, ignore_errors=True)
        self._counts.pop(topic, None)
        for place in [place for place in self._partitions if place[0] == topic]:
            del self._partitions[place]

    def append(
        self,
        topic: str,
        partition: int,
        table: pa.Table,
        writer: str = "",
        batch: int = 0,
        reads: str = "",
    ) -> bool:
        """Add records to a partition; return False where the writer's batch is there already."""
        return self._partition(topic, partition).append(table, writer, batch, reads)

    def verify(self, topic: str) -> tuple[list[DamagedTopicError], int]:
        """Read all of a topic; return what is damaged, and how many segments have no checksum."""
        damaged: list[DamagedTopicError] = []
        unsummed = 0
        try:
            count = self.partitions(topic)
        except DamagedTopicError as error:
            damaged.append(error)
            count = folders(self.path / topic)
        for number in range(count):
            found, old = Partition(self.path / topic / str(number)).verify()
            damaged += found
            unsummed += old
        return damaged, unsummed

    def repair(self, topic: str) -> list[tuple[int, int, int]]:
        """Give up what is damaged or gone, so that readers and writers go on without it.

        Returns:
            The partition of each range, its first offset and the one after its last.
        """
        given_up: list[tuple[int, int, int]] = []
        for number in range(self.partitions(topic)):
            with writing(f"topic {topic!r}, partition {number},", self.path):
                lost = self._partition(topic, number).give_up()
            given_up += ((number, *place) for place in lost)
        return given_up

    def merge(self, topic: str) -> None:
        """Merge the small segments of a topic, as appending does from time to time."""
        for number in range(self.partitions(topic)):
            self._partition(topic, number).merge()

    def _partition(self, topic: str, number: int) -> Partition:
        found = self._partitions.get((topic, number))
        if found is None:
            if not 0 <= number < self.partitions(topic):
                msg = (
                    f"topic {topic!r} has no partition {number}, it has {self.partitions(topic)}.\n"
                    "Fix: choose one of these."
                )
                raise TopicError(msg)
            found = Partition(self.path / topic / str(number))
            self._partitions[topic, number] = found
        return found
