"""One run of an application on Spark, from the first setting to the last batch.

Takes the application and its state directory; feeds list sources, watches the query, delivers
each batch, decides when to stop, and gives what came out.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.config import DEFAULT_BATCH, PARTITIONS, Config, groups_for
from millpond.connectors.protocols import Broker
from millpond.connectors.sources import (
    FileReader,
    FileSource,
    ListSource,
    RateSource,
    SparkSource,
    Spool,
)
from millpond.connectors.topic import Topic, make_topic
from millpond.driver.clock_jumps import JumpWatch
from millpond.driver.deliver import Delivery
from millpond.driver.gather import BatchReport, Gathered, gather, log_late
from millpond.driver.progress import Meter
from millpond.driver.timekeeper import Timekeeper, clockwork_of
from millpond.driver.waiting import Waiting
from millpond.errors import EngineError, MillpondError, SimulatedCrash, StateError, StepError
from millpond.folders import Scratch
from millpond.program.functions import pack
from millpond.program.graph import Graph
from millpond.program.plan import Plan, make_plan
from millpond.program.steps import Write
from millpond.resource import Scope, within
from millpond.spark.code_shipping import send_package, ship
from millpond.spark.compile import compile_plan
from millpond.spark.logs import without_missing_keys
from millpond.spark.query import Query, engine_error, without_py4j_log
from millpond.spark.resource_closing import close_all
from millpond.spark.session import methods_kept, partitions_of
from millpond.spark.source import ReaderSettings
from millpond.spark.watchdog import Watchdog
from millpond.state.codec import Codec
from millpond.storage.checkpoint import Batch
from millpond.storage.clock_file import ClockFile
from millpond.storage.directory import Journal, Manifest, StateDirectory
from millpond.storage.durable import Disk
from millpond.storage.lock import Hold
from millpond.wire.packed_rows import Row
from millpond.worker.history import HistoryReader
from millpond.worker.stage import Settings

__all__ = ["Backfill", "Limits", "Program", "SparkRun"]

# Items of a list that are spooled ahead of the query, and at a time.
_AHEAD, _AT_A_TIME = 500_000, 50_000

# Seconds that the end of a run waits for an iterable to give the item it was asked for.
_LAST_ITEM = 10.0

# Batches that the journal knows: as many as Spark keeps.
_NOTED = 100

# Seconds between two looks at the query where it may end by itself, where it may not, and between
# two computations of the lag. A look asks the JVM, two or three calls.
_LOOK, _GLANCE, _LAG = 0.05, 0.25, 0.5

# Seconds that the end of a run waits for the last look at the lag.
_LAST_LAG = 1.0

logger = logging.getLogger("millpond")


@dataclass(frozen=True)
class Program:
    """What an application consists of."""

    config: Config
    graph: Graph
    codec: Codec
    broker: Broker
    topics: dict[str, Topic]
    reports: deque[BatchReport]
    """Filled as batches are done."""
    session: Callable[[str], SparkSession]
    """Gives the session for a state directory; Spark is started when it is first called."""
    fit_state: Callable[[Plan, Hold], None]
    """Changes the state so that a plan can go on with it, where that was accepted."""


@dataclass(frozen=True)
class Limits:
    """When a run ends, and what it returns."""

    timeout: float
    count: int
    drain: bool
    collect: bool
    metadata: bool


@dataclass
class Backfill:
    """How a run over history differs from any other."""

    files: dict[str, FileSource] = field(default_factory=dict)
    """Files that stand for a topic."""
    until: dict[str, dict[str, int]] = field(default_factory=dict)
    """Up to where topics are read; those that are not named, up to where they end now."""
    outputs: bool = False
    """Whether what comes out is written."""
    begun: dict[str, Any] = field(default_factory=dict)
    """What the manifest says of it until it has ended."""
    read: int = 0
    """Records that were read."""
    dead: int = 0
    """Records that failed and were written to the dead letters."""


class SparkRun:
    """A run. Made and used once."""

    def __init__(
        self,
        program: Program,
        directory: StateDirectory,
        limits: Limits,
        hold: Hold,
        backfill: Backfill | None = None,
    ) -> None:
        self._program = program
        self._hold = hold
        self._backfill = backfill
        self._directory = directory
        self._limits = limits
        self._plan: Plan = make_plan(program.graph, collect=limits.collect)
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._feed_error: BaseException | None = None
        self._outputs = 0
        self._scope = Scope()
        """What sinks have opened, on the driver."""
        self._asked: list[tuple[int, float]] = []
        """The signals that asked for a stop, and when."""
        self._watchdog: Watchdog | None = None
        self._busy = time.monotonic()
        self._looked = -_LAG
        self._offsets: dict[str, dict[str, int]] = {}
        self._keys: dict[tuple[str, int], int] = {}
        """Keys in each scope and group, as far as they are known; for the eye."""

    def stop(self) -> None:
        """Stop behind the current batch."""
        self._stop.set()

    def run(self) -> list[Any]:
        """Run to the end and return what came out."""
        config = self._program.config
        # What cannot work is said before Spark is started: that takes seconds.
        sent = (self._plan, config.on_processing_error, self._program.codec)
        pack(sent, self._plan.children)
        self._check(self._directory.check(self._plan, accept=self._accepts))
        self._program.broker.connect()
        meter = Meter(config.consumer_group, self._keys, self._stop)
        with meter as self._meter, ExitStack() as stack:
            stack.enter_context(methods_kept())
            stack.enter_context(without_py4j_log())
            session = self._program.session(self._directory.folder.path)
            stack.enter_context(without_missing_keys(session))
            # After Spark was started, which sets its own.
            stack.enter_context(_signals(self._stop, self._asked))
            stack.callback(self._scope.close)
            self._places_folder = self._folder_here(session, stack, "millpond-places-")
            stack.callback(self._kill_busy)  # when they have been asked to close what is open
            self._payloads = self._folder_here(session, stack, "millpond-rows-")
            self._opened = self._folder_here(session, stack, "millpond-opened-")
            if self._opened is not None:
                stack.callback(close_all, self._opened.path)
            self._prepare(session)
            self._watchdog = self._make_watchdog()
            self._meter.held_back = self._keeper.held_back
            self._delivery = self._make_delivery(stack)
            self._disk = self._make_disk(stack)
            query = self._start(session)
            self._meter.started()
            self._follow(query)
        return self._delivery.collected

    # --- before -----------------------------------------------------------------------------

    def _check(self, manifest: Manifest | None) -> None:
        """Let no live run begin while a backfill has not ended."""
        if manifest is not None and manifest.backfill and self._backfill is None:
            group = self._program.config.consumer_group
            msg = f"a backfill of group {group!r} was begun and has not ended."
            fix = "app.backfill(...) goes on with it; app.clear_state(True) starts over."
            raise StateError(f"{msg}\nFix: {fix}")

    def _prepare(self, session: SparkSession) -> None:
        """Let the state directory admit the program, and make ready what a batch needs."""
        context = session.sparkContext
        asked = partitions_of(session)
        groups = groups_for(asked, is_local=context.master.startswith("local"))
        self._program.fit_state(self._plan, self._hold)
        self._manifest = self._directory.admit(self._plan, groups, asked, accept=self._accepts)
        self._manifest.backfill = {} if self._backfill is None else self._backfill.begun
        session.conf.set(PARTITIONS, str(self._manifest.partitions))
        send_package(session)
        self._prepare_sources()
        self._prepare_clock()
        self._journal = self._directory.journal(self._manifest)
        self._delivered = self._journal.delivered

    @property
    def _accepts(self) -> bool:
        return self._program.config.on_state_change == "accept"

    def _start(self, session: SparkSession) -> Query:
        """Compile the plan and start it as one query."""
        sources = self._program.graph.sources
        readers = self._reader_settings(session.sparkContext.defaultParallelism)
        frames = {
            name: source for name, source in sources.items() if isinstance(source, SparkSource)
        }
        partitions = self._manifest.partitions
        checkpoint = self._directory.checkpoint(self._manifest)
        opened = None if self._opened is None else self._opened.path
        shipped = ship(self._plan, self._settings(), self._readers, opened)
        try:
            rows = compile_plan(session, self._plan, shipped, readers, frames, partitions)
        except PySparkException as error:
            raise engine_error(error, checkpoint) from error
        return Query(
            rows,
            checkpoint,
            self._handle,
            interval=self._program.config.commit_interval,
            drain=self._limits.drain,
            is_enough=self._has_enough,
        )

    def _has_enough(self) -> bool:
        """Whether as many records have come out as were asked for."""
        return bool(self._limits.count) and self._outputs >= self._limits.count

    def _settings(self) -> Settings:
        config = self._program.config
        return Settings(
            self._manifest.groups,
            self._program.codec,
            config.on_error,
            config.on_processing_error,
            keeps_clock=self._has_foreign_sources(),
            payloads=None if self._payloads is None else self._payloads.path,
            layouts=self._manifest.layouts,
            loglevel=config.loglevel,
            places=None if self._places_folder is None else self._places_folder.path,
        )

    def _folder_here(self, session: SparkSession, stack: ExitStack, prefix: str) -> Scratch | None:
        """Return a folder that workers can reach: on this machine; None on a cluster."""
        if not session.sparkContext.master.startswith("local"):
            return None
        try:
            folder = Scratch(prefix)
        except OSError:  # it can be done without: rows carry everything
            return None
        stack.callback(folder.remove)
        return folder

    @property
    def waiting(self) -> list[Waiting]:
        """What does not answer at present; for people."""
        return [] if self._watchdog is None else self._watchdog.waiting

    def _make_watchdog(self) -> Watchdog:
        folder = None if self._places_folder is None else self._places_folder.path
        program = self._program
        limit = program.config.step_timeout
        return Watchdog(folder, self._plan, program.codec, self._readers, limit)

    def _kill_busy(self) -> None:
        if self._watchdog is not None:
            self._watchdog.kill_busy()

    def _has_foreign_sources(self) -> bool:
        return any(isinstance(s, SparkSource) for s in self._program.graph.sources.values())

    def _prepare_clock(self) -> None:
        work = clockwork_of(
            self._plan, self._manifest.groups, tells_all=self._has_foreign_sources()
        )
        self._keeper = Timekeeper(work)
        seq = self._directory.committed_clock(self._manifest)
        self._clock_file = ClockFile(self._directory.clock_file(self._manifest))
        content = self._clock_file.load()
        if seq and (content is None or content["seq"] < seq):
            # What the last batch saw is lost: it looks again.
            logger.warning("%s is lost or old: the last batch looks again", self._clock_file)
            self._directory.take_back(self._manifest)
            seq, content = self._directory.committed_clock(self._manifest), None
        self._keeper.load(content, seq)
        self._keys.update({(scope, g): n for scope, g, n in (content or {}).get("keys", [])})
        self._keeper.is_sure = self._keeper.is_sure or not seq

    def _prepare_sources(self) -> None:
        spool = self._directory.spool(self._program.config.topics_dir)
        self._readers: dict[str, Any] = {}
        self._spools: dict[str, Spool] = {}
        for name, settings in self._program.graph.sources.items():
            if isinstance(settings, Topic):
                self._readers[name] = self._topic_reader(settings)
            elif isinstance(settings, ListSource):
                self._spools[name] = Spool(settings, spool)
                self._readers[name] = settings.reader(spool)
            elif isinstance(settings, FileSource):
                reader = settings.reader(spool)
                reader.gives_failures = self._program.config.on_error == "dead-letter"
                self._readers[name] = reader
            elif isinstance(settings, RateSource):
                self._readers[name] = settings.reader(spool)
        self._check_lists(spool)
        self._feeder = threading.Thread(target=self._feed, name="millpond-feed", daemon=True)
        self._feeder.start()
        # A first piece of a list is ready when the query looks; a drain wants all of it.
        self._feeder.join(None if self._limits.drain else 0.3)
        for name, fed in self._spools.items():
            if fed.is_done and 0 < fed.taken <= self._position(name):
                logger.info("source %s: earlier runs have read all its %d items", name, fed.taken)

    def _check_lists(self, spool: str) -> None:
        """Refuse to count files anew: another order would give other records."""
        for name, offsets in self._directory.committed_offsets(self._manifest).items():
            reader, read = self._readers.get(name), offsets.get("files", 0)
            if isinstance(reader, FileReader | HistoryReader) and reader.known()["files"] < read:
                msg = (
                    f"{read} files of source {name!r} were read, and the list of them in {spool} "
                    "is gone.\nFix: put it back from where the application ran before, or start "
                    "over: app.clear_state(reset_offsets=True)."
                )
                raise StateError(msg)

    def _topic_reader(self, topic: Topic) -> Any:
        broker, known = self._program.broker, self._manifest.topic_ids
        steps = self._program.graph.steps
        written = {s.topic.name for s in steps if isinstance(s, Write) and s.topic is not None}
        known[topic.name] = broker.prepare(
            topic, known.get(topic.name), reads=topic.name not in written
        )
        if self._backfill is not None and topic.name in self._backfill.files:
            spool = self._directory.spool(self._program.config.topics_dir)
            files = self._backfill.files[topic.name].reader(spool)
            return HistoryReader(files, topic)
        return broker.reader(topic)

    def _reader_settings(self, cores: int) -> ReaderSettings:
        config = self._program.config
        starts = self._manifest.start_offsets
        committed = self._directory.committed_offsets(self._manifest)
        if self._backfill is not None and self._directory.committed(self._manifest) is None:
            starts.clear()  # history is read from its beginning, whatever was read once
            committed = {}
        for name, reader in self._readers.items():
            if name not in committed and name not in starts:
                # Written down once: "latest" at a replay of the first batch is another place.
                is_list = name in self._spools
                reset = config.auto_offset_reset if self._backfill is None else "earliest"
                starts[name] = {"0": 0} if is_list else reader.initial(reset)
                if sum(starts[name].values()) and reset == "latest":
                    logger.info(
                        "%s is new to this group and is read from its end on, without the %s "
                        'records in it; auto_offset_reset="earliest" reads them',
                        *(name, sum(starts[name].values())),
                    )
        self._directory.save(self._manifest)
        return ReaderSettings(
            readers=self._readers,
            starts=starts,
            reset=config.auto_offset_reset,
            limit=config.max_records_per_batch or DEFAULT_BATCH,
            tasks=cores,
            work=self._keeper.work,
            clock_file=self._clock_file.path,
            until={} if self._backfill is None else self._backfill.until,
            replay=self._journal.behind(self._directory.committed_clock(self._manifest)),
            room=self._limits.count or None,
        )

    def _make_delivery(self, stack: ExitStack) -> Delivery:
        app, manifest = self._program, self._manifest
        group = app.config.consumer_group
        dead_letters = f"{group}.dead-letters"
        steps = [s for s in app.graph.steps if isinstance(s, Write)]
        written = {s.topic.name: s.topic for s in steps if s.topic is not None}
        if app.config.on_error == "dead-letter":
            written[dead_letters] = app.topics.get(dead_letters) or make_topic(dead_letters)
        for topic in written.values():
            app.broker.prepare(topic)
        stream = manifest.stream
        writes = bool(steps or written)
        writer = app.broker.writer(group, stream, writes, self._positions)
        stack.callback(writer.close)
        return Delivery(
            self._plan,
            app.graph.sinks,
            writer,
            dead_letters,
            self._meter.show,
            stream=stream,
            metadata=self._limits.metadata,
            waits=None if self._watchdog is None else self._watchdog.waits,
            on_error=app.config.on_error,
        )

    def _positions(self, number: int) -> dict[str, dict[str, int]]:
        """Return the offsets up to which the batch in hand reads topics."""
        planned = self._batch.offsets
        sources = self._program.graph.sources
        return {name: o for name, o in planned.items() if isinstance(sources.get(name), Topic)}

    # --- each batch -------------------------------------------------------------------------

    def _handle(self, rows: Iterable[Row], batch_id: int) -> None:
        began = time.monotonic()
        self._hold.check()
        self._batch = self._planned(batch_id)
        gathered = self._gathered(rows, batch_id)
        self._crash_where_marked(gathered.report.read)
        number = self._number(batch_id)
        self._note_plan(number)
        self._sync()
        if number > self._delivered:
            self._hold.check()
            with within(self._scope):
                self._deliver(gathered, number)
        log_late(gathered.report, self._plan)
        self._keeper.observe(gathered.report, _now_ms(), self._batch.clock.get("marks", {}))
        self._outputs += gathered.report.outputs
        self._write_clock(gathered.report)
        self._hold.check()  # last of all: what follows is Spark's commit
        if self._payloads is not None:
            self._payloads.clear()
        self._busy = time.monotonic()
        if self._watchdog is not None:
            gathered.report.waited = self._watchdog.waits.take_done()
        gathered.report.seconds = time.monotonic() - began
        self._program.reports.append(gathered.report)
        if self._backfill is not None:
            self._backfill.read += gathered.report.read
        self._meter.batch(gathered.report)

    def _gathered(self, rows: Iterable[Row], batch_id: int) -> Gathered:
        """Return what a batch gave; a step that failed on a row of a file names the row."""
        try:
            return gather(rows, batch_id)
        except StepError as error:
            failure, cause = error.failure, error.__cause__
            reader = self._readers.get(failure.topic)
            if failure.partition < 0 or not isinstance(reader, FileReader):
                raise
            with suppress(MillpondError, OSError):  # the file may be gone by now
                row = reader.place_of(failure.partition, failure.offset)
                error = StepError(replace(failure, row=row))
            raise error from cause

    def _deliver(self, gathered: Gathered, number: int) -> None:
        """Deliver a batch; of a backfill that makes state only, what must not be lost."""
        reads, now = self._batch.reads, self._batch.now
        if self._backfill is not None:
            self._backfill.dead += self._delivery.count_dead_letters(gathered)
            if not self._backfill.outputs:
                self._delivery.deliver_dead_letters(gathered, number, reads, now)
                return
        self._delivery.deliver(gathered, number, reads, now)
        if self._backfill is not None:
            self._backfill.dead += gathered.report.refused

    def _planned(self, batch_id: int) -> Batch:
        batch = self._directory.checkpoint(self._manifest).batch(batch_id)
        return batch or Batch(batch_id, 0, 0)

    def _note_plan(self, number: int) -> None:
        """Write down what the batch reads, and that all before it is where it belongs."""
        if self._has_foreign_sources() or number < 0:
            return
        before = self._journal
        batches = {**before.batches, number + 1: self._batch.source}
        kept = {seq: batches[seq] for seq in sorted(batches) if seq > number - _NOTED}
        manifest = asdict(self._manifest)
        self._journal = Journal(max(before.delivered, number - 1), kept, manifest)
        self._directory.journal_file(self._manifest).put(self._journal.encode())

    def _make_disk(self, stack: ExitStack) -> Disk | None:
        """Return what syncs the files of batches, where that is wanted and can be done."""
        folder, config = self._directory.folder, self._program.config
        is_kept = config.persistence != "none"
        if not folder.is_local or config.durability != "power" or not is_kept:
            return None
        disk = Disk(folder.path, self._directory.generation(self._manifest).path)
        stack.callback(disk.close)
        return disk

    def _sync(self) -> None:
        """Have all that the batch needs on the disk: its plan, its state, and the batch before."""
        if self._disk is None:
            return
        journal = self._directory.journal_file(self._manifest)
        self._disk.sync(*([journal.path] if journal.exists() else []))

    def _number(self, batch_id: int) -> int:
        """Return the number under which a batch is delivered.

        That of its clock: batches that people put in between (an edit, a rescale) have none of
        their own, so what was begun before such a batch has the same number behind it. Records
        of Spark's own sources come without a clock. The first batch of all has none where there is
        nothing to read; then it gives nothing, and is no batch to anybody but Spark.
        """
        if self._has_foreign_sources():
            return batch_id
        return int(self._batch.clock.get("seq", 0)) - 1

    def _write_clock(self, report: BatchReport) -> None:
        """Leave what is known to the source, before the batch is committed."""
        known = {**self._keys, **report.keys}
        keys = [[scope, group, n] for (scope, group), n in known.items()]
        content = {**self._keeper.to_json(), "keys": keys, "planned": self._batch.source}
        self._clock_file.write({**content, "room": self._room(report)})

    def _room(self, report: BatchReport) -> int | None:
        """Return how many records the next batch may read, so that no more come out than asked.

        Where few of them come out, twice as many as in this batch: one by one would take forever.
        """
        if not self._limits.count:
            return None
        left = max(1, self._limits.count - self._outputs)
        return left if 2 * report.outputs >= report.read else max(left, 2 * report.read)

    def _crash_where_marked(self, read: int) -> None:
        for name, spool in self._spools.items():
            if spool.crash_at is not None and read:
                done = self._position(name)
                if done + read >= spool.crash_at:
                    spool.crash_at = None
                    msg = f"a CRASH mark of source {name!r} was reached."
                    raise SimulatedCrash(msg)

    # --- the loop ---------------------------------------------------------------------------

    def _follow(self, query: Query) -> None:
        """Watch the query to its end, and leave everything so that a later run can go on."""
        try:
            self._watch(query)
            self._check_query(query)
        except (ConnectionError, Py4JError) as error:
            msg = (
                f"Spark's JVM does not answer any more: {error}\n"
                "Fix: run again; state and offsets are as of the last committed batch."
            )
            raise EngineError(msg) from error
        except _AtOnce:
            self._ended.set()
            query.abandon()
            raise
        finally:
            if not self._ended.is_set():
                self._end(query)

    def _check_query(self, query: Query) -> None:
        """Raise what ended the query; where it was the loss of a worker, with step and record."""
        try:
            query.check()
        except EngineError as error:
            if self._asked and type(error) is EngineError:
                reason = str(error).partition("\n")[0]
                logger.warning("ending without the batch: Spark's processes have ended: %s", reason)
                raise _AtOnce(self._asked[0][0]) from None
            named = error if self._watchdog is None else self._watchdog.named(error)
            if named is error:
                raise
            raise named from None

    def _end(self, query: Query) -> None:
        self._ended.set()
        # It may not hide what ended the run: the JVM may be gone.
        with suppress(Exception):
            query.stop()
        # What it has in hand goes to the spool; a later run continues after it.
        self._feeder.join(_LAST_ITEM)

    def _watch(self, query: Query) -> None:
        """Watch the query until it has ended; the lag is looked for beside it."""
        over = threading.Event()
        looker = threading.Thread(target=self._know_lag, args=[over], daemon=True)
        looker.start()
        try:
            self._watch_query(query)
        finally:
            over.set()
        looker.join(_LAST_LAG)
        if not looker.is_alive():  # else it waits for a broker that is away
            self._looked = -_LAG
            self._meter.lag(self._shown_lag())

    def _watch_query(self, query: Query) -> None:
        next_look = 0.0
        limits, wall = self._limits, JumpWatch()
        ends_alone = limits.timeout or limits.count or limits.drain or self._spools
        while not query.wait(_LOOK if ends_alone or self._stop.is_set() else _GLANCE):
            if self._feed_error is not None:
                raise self._feed_error
            now = time.monotonic()
            if wall.log(_now_ms(), now) < 0 and self._program.config.commit_interval:
                logger.warning(
                    "Spark waits for the next batch of commit_interval by the wall clock, until it "
                    "shows what it did before.\nFix: stop the program, and run it again."
                )
            if now >= next_look and self._watchdog is not None:
                self._meter.waiting(self._watchdog.look())
                next_look = now + _LAG
            if limits.timeout and query.is_active and query.is_busy:
                self._busy = now
            if self._stop.is_set() or self._is_finished(now):
                self._meter.stopping()
                query.ask_to_stop()
            self._check_patience(now)

    def _know_lag(self, over: threading.Event) -> None:
        """Keep the lag known: in a thread of its own, because a broker may not answer."""
        with suppress(Py4JError, ConnectionError):  # the JVM is gone, which others say
            while True:
                self._meter.lag(self._shown_lag())
                if over.wait(_LAG):
                    return

    def _check_patience(self, now: float) -> None:
        """End the run where a signal asked for a stop and the batch does not end."""
        limit = self._program.config.stop_timeout
        if self._asked and now - self._asked[0][1] >= limit:
            what = "; ".join(map(str, self.waiting)) or "the batch is still at work"
            logger.warning("the batch did not end in %g s, ending without it: %s", limit, what)
            raise _AtOnce(self._asked[0][0])

    def _is_finished(self, now: float) -> bool:
        limits = self._limits
        if self._has_enough():
            return True
        if limits.timeout and now - self._busy >= limits.timeout:
            return True
        return self._sources_ended()

    def _sources_ended(self) -> bool:
        """Whether every source is a list, and every item has been committed."""
        if not self._spools or len(self._spools) < len(self._program.graph.sources):
            return False
        is_read = all(
            spool.is_done and self._position(name) >= spool.taken
            for name, spool in self._spools.items()
        )
        return is_read and self._keeper.is_settled(_now_ms())

    def _feed(self) -> None:
        """Keep the spools of list sources ahead of the query; runs in a thread of its own."""
        try:
            while not self._ended.is_set() and not all(s.is_done for s in self._spools.values()):
                taken = 0
                for name, spool in self._spools.items():
                    is_ahead = spool.taken - self._position(name) >= _AHEAD
                    if not spool.is_done and (self._limits.drain or not is_ahead):
                        taken += spool.advance(_AT_A_TIME, _now_ms())
                if not taken:
                    self._ended.wait(_LOOK)
        except BaseException as error:
            self._feed_error = error

    def _position(self, source: str) -> int:
        return sum(self._committed().get(source, {}).values())

    def _committed(self) -> dict[str, dict[str, int]]:
        """Return the offsets of the last batch; where that takes a journey, not too often."""
        now = time.monotonic()
        if self._directory.folder.is_local or now - self._looked > _LAG:
            self._offsets = self._directory.committed_offsets(self._manifest)
            self._looked = now
        return self._offsets

    def _shown_lag(self) -> int | None:
        """Return how many records wait; it is for the eye, so it may fail."""
        try:
            return self._lag()
        except (MillpondError, OSError) as error:
            logger.debug("the lag is not known: %s", error)
            return None

    def _lag(self) -> int | None:
        committed = self._committed()
        if not committed:
            return None
        waiting = 0
        for name, reader in self._readers.items():
            done = committed.get(name, {})
            if hasattr(reader, "known"):  # looking for files is the query's: it writes the list
                ends = reader.known()
            elif hasattr(reader, "latest_from"):
                ends = reader.latest_from(done)
            else:
                ends = reader.latest()
            waiting += sum(max(0, end - done.get(p, 0)) for p, end in ends.items())
        return waiting


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _AtOnce(BaseException):
    """A second signal came. py4j would log a KeyboardInterrupt with its stack."""


@contextmanager
def _signals(stop: threading.Event, asked: list[tuple[int, float]]) -> Iterator[None]:
    """While running, SIGINT and SIGTERM ask for a stop; a second one ends the run at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        if asked:
            logger.warning("%s again: ending without waiting for the batch", name)
            raise _AtOnce(number)
        asked.append((number, time.monotonic()))
        stop.set()
        logger.info("%s: stopping after the current batch; once more ends at once", name)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _AtOnce as ending:
        if ending.args[0] == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM) from None  # as a shell reports it
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
