"""One run of an application on Spark, from the first setting to the last batch.

Takes the program and its state directory; makes everything that a batch needs, in a straight line,
starts the query, and gives what came out. `batch_handler` is what happens with each batch, `follow`
what happens meanwhile.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.config import PARTITIONS, groups_for
from millpond.connectors.custom_source import CustomSource
from millpond.connectors.sources import SparkSource
from millpond.connectors.topic import make_topic
from millpond.driver.deliver import Delivery
from millpond.driver.progress import Meter
from millpond.driver.timekeeper import Timekeeper, clockwork_of
from millpond.driver.waiting import Waiting
from millpond.errors import ConfigError, StateError
from millpond.folders import Scratch
from millpond.program.functions import pack
from millpond.program.plan import Plan, make_plan
from millpond.program.steps import Write
from millpond.resource import Scope
from millpond.spark.batch_handler import BatchHandler, BatchInHand
from millpond.spark.code_shipping import send_package, ship
from millpond.spark.compile import compile_plan
from millpond.spark.follow import Follower
from millpond.spark.internals.own_session import methods_kept
from millpond.spark.internals.py4j_logs import without_py4j_log
from millpond.spark.internals.settings import PAYLOAD_FILES, is_on
from millpond.spark.internals.state_server_log import without_missing_keys
from millpond.spark.query import Query, engine_error
from millpond.spark.request import Backfill, Limits, Program
from millpond.spark.resource_closing import close_all
from millpond.spark.run_sources import RunSources
from millpond.spark.run_state import RunState
from millpond.spark.session import partitions_of
from millpond.spark.source import ReaderSettings
from millpond.spark.stop_signals import StopSignals
from millpond.spark.watchdog import Watchdog
from millpond.storage.clock_file import ClockFile
from millpond.storage.directory import StateDirectory
from millpond.storage.durable import Disk
from millpond.storage.lock import Hold
from millpond.storage.manifest import Manifest
from millpond.worker.settings import Settings

__all__ = ["SparkRun"]

logger = logging.getLogger("millpond")


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
        self._directory = directory
        self._limits = limits
        self._hold = hold
        self._backfill = backfill
        self._plan: Plan = make_plan(program.graph, collect=limits.collect)
        self._signals = StopSignals()
        self._watchdog: Watchdog | None = None

    def stop(self) -> None:
        """Stop after the current batch."""
        self._signals.stop.set()

    @property
    def waiting(self) -> list[Waiting]:
        """What does not answer at present; for people."""
        return [] if self._watchdog is None else self._watchdog.waiting

    def run(self) -> list[Any]:
        """Run to the end and return what came out."""
        program, config = self._program, self._program.config
        # What cannot work is reported before Spark is started: that takes seconds.
        pack((self._plan, config.on_processing_error, program.codec), self._plan.children)
        self._check_backfill(self._directory.check(self._plan, accept=program.accepts))
        for source in program.graph.sources.values():
            if isinstance(source, CustomSource):
                _check_sendable(source)
        program.broker.connect()
        keys: dict[tuple[str, int], int] = {}
        scope = Scope()  # what sinks have opened, on the driver
        with Meter(config.consumer_group, keys, self._signals.stop) as meter, ExitStack() as stack:
            stack.enter_context(methods_kept())
            stack.enter_context(without_py4j_log())
            session = program.session(self._directory.folder.path)
            stack.enter_context(without_missing_keys(session))
            # After Spark was started, which sets its own.
            stack.enter_context(self._signals.handled())
            stack.callback(scope.close)
            folders = _folders(session, stack)
            stack.callback(self._kill_busy)  # when they have been asked to close what is open
            if folders.opened is not None:
                stack.callback(close_all, folders.opened.path)

            manifest = self._admit(session)
            sources = RunSources(program, self._directory, manifest, self._limits, self._backfill)
            sources.feeder.start()
            clock_file = ClockFile(self._directory.clock_file(manifest))
            keeper = self._keeper(manifest, clock_file, keys)
            journal = self._directory.journal(manifest)
            state = RunState(keeper)
            meter.held_back = state.held_back
            watchdog = self._watchdog = self._make_watchdog(folders, sources)
            in_hand = BatchInHand(program, self._directory, manifest)
            delivery = self._delivery(manifest, in_hand, watchdog, meter, stack)
            handler = BatchHandler(
                program,
                self._plan,
                self._directory,
                manifest,
                self._hold,
                self._limits,
                self._backfill,
                in_hand=in_hand,
                sources=sources,
                keeper=keeper,
                clock_file=clock_file,
                journal=journal,
                delivery=delivery,
                disk=self._disk(manifest, stack),
                payloads=folders.payloads,
                watchdog=watchdog,
                state=state,
                scope=scope,
                keys=keys,
                meter=meter,
            )
            sources.begin()
            cores = session.sparkContext.defaultParallelism
            readers = sources.settings(
                cores, keeper.work, clock_file.path, journal, self._plan.waits
            )
            query = self._start(session, manifest, folders, readers, handler, state)
            meter.started()
            Follower(
                query,
                program,
                self._limits,
                sources=sources,
                state=state,
                watchdog=watchdog,
                meter=meter,
                signals=self._signals,
            ).follow()
        return delivery.collected

    # --- what a batch needs -----------------------------------------------------------------

    def _check_backfill(self, manifest: Manifest | None) -> None:
        """Let no live run begin while a backfill has not ended."""
        if manifest is not None and manifest.backfill is not None and self._backfill is None:
            group = self._program.config.consumer_group
            msg = f"a backfill of group {group!r} was begun and has not ended."
            fix = "app.backfill(...) goes on with it; app.clear_state(True) starts over."
            raise StateError(f"{msg}\nFix: {fix}")

    def _admit(self, session: SparkSession) -> Manifest:
        """Let the state directory admit the program; return the manifest under which it runs."""
        asked = partitions_of(session)
        is_local = session.sparkContext.master.startswith("local")
        groups = groups_for(asked, is_local=is_local)
        self._program.fit_state(self._plan, self._hold)
        accepts = self._program.accepts
        manifest = self._directory.admit(self._plan, groups, asked, accept=accepts)
        manifest.backfill = None if self._backfill is None else self._backfill.begun
        session.conf.set(PARTITIONS, str(manifest.partitions))
        send_package(session)
        return manifest

    def _keeper(
        self, manifest: Manifest, file: ClockFile, keys: dict[tuple[str, int], int]
    ) -> Timekeeper:
        """Return what decides the time, as it was after the last batch."""
        tells_all = self._program.has_foreign_sources
        keeper = Timekeeper(clockwork_of(self._plan, manifest.groups, tells_all=tells_all))
        seq, known = self._directory.committed_clock(manifest), file.load()
        if seq and (known is None or known.seq < seq):
            logger.warning("%s is lost or old: the last batch is replayed", file)
            self._directory.take_back(manifest)
            seq, known = self._directory.committed_clock(manifest), None
        keeper.load(None if known is None else known.of_timekeeper(), seq)
        if known is not None:
            keys.update({(scope, g): n for scope, g, n in known.keys or []})
        keeper.is_sure = keeper.is_sure or not seq
        return keeper

    def _make_watchdog(self, folders: _Folders, sources: RunSources) -> Watchdog:
        folder = None if folders.places is None else folders.places.path
        program = self._program
        limit = program.config.step_timeout
        return Watchdog(folder, self._plan, program.codec, sources.readers, limit)

    def _kill_busy(self) -> None:
        if self._watchdog is not None:
            self._watchdog.kill_busy()

    def _delivery(
        self,
        manifest: Manifest,
        in_hand: BatchInHand,
        watchdog: Watchdog,
        meter: Meter,
        stack: ExitStack,
    ) -> Delivery:
        """Return what delivers outputs; topics that are written are there afterwards."""
        program = self._program
        group = program.config.consumer_group
        dead_letters = f"{group}.dead-letters"
        steps = [s for s in program.graph.steps if isinstance(s, Write)]
        written = {s.topic.name: s.topic for s in steps if s.topic is not None}
        if program.config.on_error == "dead-letter":
            written[dead_letters] = program.topics.get(dead_letters) or make_topic(dead_letters)
        for topic in written.values():
            program.broker.prepare(topic)
        writes = bool(steps or written)
        writer = program.broker.writer(group, manifest.stream, writes, in_hand.positions)
        stack.callback(writer.close)
        return Delivery(
            self._plan,
            program.graph.sinks,
            writer,
            dead_letters,
            meter.show,
            stream=manifest.stream,
            metadata=self._limits.metadata,
            waits=watchdog.waits,
            on_error=program.config.on_error,
        )

    def _disk(self, manifest: Manifest, stack: ExitStack) -> Disk | None:
        """Return what syncs the files of batches, where that is wanted and can be done."""
        folder, config = self._directory.folder, self._program.config
        is_kept = config.persistence != "none"
        if not folder.is_local or config.durability != "power" or not is_kept:
            return None
        disk = Disk(folder.path, self._directory.generation(manifest).path)
        stack.callback(disk.close)
        return disk

    # --- the query --------------------------------------------------------------------------

    def _start(
        self,
        session: SparkSession,
        manifest: Manifest,
        folders: _Folders,
        readers: ReaderSettings,
        handler: BatchHandler,
        state: RunState,
    ) -> Query:
        """Compile the plan and start it as one query."""
        program, limits = self._program, self._limits
        sources = program.graph.sources.items()
        frames = {name: source for name, source in sources if isinstance(source, SparkSource)}
        checkpoint = self._directory.checkpoint(manifest)
        opened = None if folders.opened is None else folders.opened.path
        shipped = ship(self._plan, self._settings(manifest, folders), readers.readers, opened)
        try:
            rows = compile_plan(session, self._plan, shipped, readers, frames, manifest.partitions)
        except PySparkException as error:
            raise engine_error(error, checkpoint) from error
        return Query(
            rows,
            checkpoint,
            handler.handle,
            interval=program.config.commit_interval,
            drain=limits.drain,
            is_enough=lambda: bool(limits.count) and state.outputs >= limits.count,
        )

    def _settings(self, manifest: Manifest, folders: _Folders) -> Settings:
        config = self._program.config
        last = self._directory.committed(manifest)
        return Settings(
            manifest.groups,
            self._program.codec,
            config.on_error,
            config.on_processing_error,
            payloads=None if folders.payloads is None else folders.payloads.path,
            layouts=manifest.layouts,
            loglevel=config.loglevel,
            reached={} if last is None else last.clock.reached,
            places=None if folders.places is None else folders.places.path,
        )


def _check_sendable(source: CustomSource) -> None:
    """Refuse a source that cannot be sent to workers."""
    try:
        pack(source.reader(""))
    except ConfigError as error:
        raise source.unsendable(error.__cause__ or error) from error


@dataclass(frozen=True)
class _Folders:
    """Folders that workers can reach: on this machine; None on a cluster."""

    places: Scratch | None
    """Where each worker says what it is at."""
    payloads: Scratch | None
    """Records on their way between stages."""
    opened: Scratch | None
    """Which workers have opened something."""


def _folders(session: SparkSession, stack: ExitStack) -> _Folders:
    def folder(prefix: str) -> Scratch | None:
        if not session.sparkContext.master.startswith("local"):
            return None
        try:
            made = Scratch(prefix)
        except OSError:  # a run works without: rows carry everything
            return None
        stack.callback(made.remove)
        return made

    with_files = is_on(session, PAYLOAD_FILES)
    return _Folders(
        places=folder("millpond-places-"),
        payloads=folder("millpond-rows-") if with_files else None,
        opened=folder("millpond-opened-"),
    )
