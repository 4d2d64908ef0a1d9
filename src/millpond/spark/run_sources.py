"""The sources of one run: their readers, where they begin, and how many records wait.

Takes the program and its state directory; gives what the query needs to read.
"""

from __future__ import annotations

import logging
from typing import Any

from millpond.config import DEFAULT_BATCH
from millpond.connectors.polled_source import PolledSource, PollSpool
from millpond.connectors.protocols import Offsets, SourceReader
from millpond.connectors.sources import FileReader, FileSource, ListSource, SparkSource, Spool
from millpond.connectors.topic import Topic
from millpond.driver.timekeeper import Clockwork
from millpond.errors import MillpondError, StateError
from millpond.program.steps import Write
from millpond.spark.list_feeder import ListFeeder
from millpond.spark.request import Backfill, Limits, Program
from millpond.spark.run_state import CommittedOffsets
from millpond.spark.source import ReaderSettings
from millpond.storage.directory import StateDirectory
from millpond.storage.journal import Journal
from millpond.storage.manifest import Manifest
from millpond.worker.history import HistoryReader

__all__ = ["RunSources"]

logger = logging.getLogger("millpond")


class RunSources:
    """The sources of a run; made once, before the query starts."""

    def __init__(
        self,
        program: Program,
        directory: StateDirectory,
        manifest: Manifest,
        limits: Limits,
        backfill: Backfill | None,
    ) -> None:
        self._program = program
        self._directory = directory
        self._manifest = manifest
        self._limits = limits
        self._backfill = backfill
        self._spool = directory.spool(program.config.topics_dir)
        self.committed = CommittedOffsets(directory, manifest)
        self.spools: dict[str, Spool | PollSpool] = {}
        self.readers: dict[str, SourceReader] = {}
        for name, source in program.graph.sources.items():
            reader = self._reader(name, source)
            if reader is not None:
                self.readers[name] = reader
        self._check_lists()
        self._check_polled()
        self.feeder = ListFeeder(self.spools, self.committed, drains=limits.drain)

    # --- readers ----------------------------------------------------------------------------

    def _reader(self, name: str, source: Any) -> SourceReader | None:
        """Return what reads a source; None where Spark itself does."""
        if isinstance(source, Topic):
            return self._topic_reader(source)
        if isinstance(source, ListSource):
            self.spools[name] = Spool(source, self._spool)
            return source.reader(self._spool)
        if isinstance(source, PolledSource):
            drains = self._limits.drain
            self.spools[name] = PollSpool(source, self._spool, drains=drains)
            return source.reader(self._spool)
        if isinstance(source, FileSource):
            reader = source.reader(self._spool)
            reader.gives_failures = self._program.config.on_error == "dead-letter"
            return reader
        return None if isinstance(source, SparkSource) else source.reader(self._spool)

    def _topic_reader(self, topic: Topic) -> SourceReader:
        broker, known = self._program.broker, self._manifest.topic_ids
        steps = self._program.graph.steps
        written = {s.topic.name for s in steps if isinstance(s, Write) and s.topic is not None}
        known[topic.name] = broker.prepare(
            topic, known.get(topic.name), reads=topic.name not in written
        )
        if self._backfill is not None and topic.name in self._backfill.files:
            return HistoryReader(self._backfill.files[topic.name].reader(self._spool), topic)
        return broker.reader(topic)

    def _check_lists(self) -> None:
        """Refuse to count files again: another order would give other records."""
        for name, offsets in self._directory.committed_offsets(self._manifest).items():
            reader, read = self.readers.get(name), offsets.get("files", 0)
            if isinstance(reader, FileReader | HistoryReader) and reader.known({})["files"] < read:
                msg = (
                    f"{read} files of source {name!r} were read, and the list of them in "
                    f"{self._spool} is gone.\nFix: put it back from where the application ran "
                    "before, or start over: app.clear_state(reset_offsets=True)."
                )
                raise StateError(msg)

    def _check_polled(self) -> None:
        """Refuse to poll from the beginning where what was polled is lost."""
        for name, spool in self.spools.items():
            read = self.committed.position(name)
            if isinstance(spool, PollSpool) and spool.taken < read:
                msg = (
                    f"{read} records of source {name!r} were read, and {spool.path}/{name} has "
                    f"{spool.taken}, so the position after them is lost.\n"
                    "Fix: put the folder back from a backup, or start over: "
                    "app.clear_state(reset_offsets=True)."
                )
                raise StateError(msg)

    # --- what the query is given ------------------------------------------------------------

    def begin(self) -> None:
        """Note in the manifest where each source begins that this group has not read yet."""
        starts, committed = self._manifest.start_offsets, self._committed_at_start()
        if self._is_first_of_backfill():
            starts.clear()  # history is read from its beginning, whatever was read once
        for name, reader in self.readers.items():
            if name not in committed and name not in starts:
                # Recorded once: "latest" at a replay of the first batch is another place.
                starts[name] = self._start_of(name, reader)
        self._directory.save(self._manifest)

    def _start_of(self, name: str, reader: SourceReader) -> Offsets:
        if name in self.spools:
            return {"0": 0}
        is_whole = self._backfill is not None or name in self._program.graph.tables
        reset = "earliest" if is_whole else self._program.config.auto_offset_reset
        start = reader.initial(reset)
        is_topic = isinstance(self._program.graph.sources[name], Topic)
        if is_topic and any(start.values()) and reset == "latest":
            logger.info(
                "%s is new to this group and is read from its end on, without the %s "
                'records in it; auto_offset_reset="earliest" reads them',
                *(name, sum(start.values())),
            )
        return start

    def _is_first_of_backfill(self) -> bool:
        return self._backfill is not None and self._directory.committed(self._manifest) is None

    def _committed_at_start(self) -> dict[str, dict[str, int]]:
        if self._is_first_of_backfill():
            return {}
        return self._directory.committed_offsets(self._manifest)

    def settings(
        self,
        cores: int,
        work: Clockwork,
        clock_file: str,
        journal: Journal,
        waits: dict[str, tuple[str, ...]],
    ) -> ReaderSettings:
        """Return what the process that plans batches must know.

        Args:
            cores: How many tasks read at a time.
            work: What decides the time.
            clock_file: Where the driver leaves what it knows of the time.
            journal: What the latest batches have read.
            waits: For each source that waits the tables that must have been read before.
        """
        config = self._program.config
        return ReaderSettings(
            readers=self.readers,
            starts=self._manifest.start_offsets,
            reset=config.auto_offset_reset,
            limit=config.max_records_per_batch or DEFAULT_BATCH,
            tasks=cores,
            work=work,
            clock_file=clock_file,
            until={} if self._backfill is None else self._backfill.until,
            waits=waits,
            replay=journal.after(self._directory.committed_clock(self._manifest)),
            room=self._limits.count or None,
        )

    # --- how far they are -------------------------------------------------------------------

    def are_read(self) -> bool:
        """Tell whether every source is a list, and every item is in a committed batch."""
        if not self.spools or len(self.spools) < len(self._program.graph.sources):
            return False
        return self.feeder.is_read()

    def lag(self) -> int | None:
        """Return how many records wait, for people; None where that is not known."""
        try:
            return self._lag()
        except (MillpondError, OSError) as error:
            logger.debug("the lag is not known: %s", error)
            return None

    def _lag(self) -> int | None:
        committed = self.committed.now()
        if not committed:
            return None
        waiting = 0
        for name, reader in self.readers.items():
            done = committed.get(name, {})
            ends = reader.known(done)
            waiting += sum(max(0, end - done.get(p, 0)) for p, end in ends.items())
        return waiting
