"""`Application`: names topics, makes frames, and `run()` joins plan and Spark.

Takes settings and the user's frames; gives a running query and what comes out of it.
"""

from __future__ import annotations

import inspect
import logging
import math
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import here
from millpond.arguments.duration import Duration, milliseconds
from millpond.arguments.hints import missing, public
from millpond.arguments.quix import APPLICATION, check_keywords, warn_ignored
from millpond.arguments.windows import MAX_FUTURE_MS
from millpond.config import Config
from millpond.connectors.as_source import as_source
from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.embedded import EmbeddedBroker
from millpond.connectors.log import Log
from millpond.connectors.protocols import (
    Broker,
    PollSource,
    Source,
    SourceSettings,
    TopicConsumer,
    TopicProducer,
)
from millpond.connectors.serde import Deserializer, Serializer
from millpond.connectors.sources import FileSource, ListSource, SparkSource
from millpond.connectors.topic import TimestampExtractor, Topic, TopicConfig, make_topic
from millpond.driver.gather import BatchReport
from millpond.driver.waiting import Waiting
from millpond.errors import ConfigError, DamagedStateError, MillpondError, StateError, shown
from millpond.folders import Scratch
from millpond.frame import StreamingDataFrame, clocking
from millpond.options import (
    ErrorCallback,
    ErrorPolicy,
    FlatKeywords,
    Format,
    KafkaOptions,
    LostRecords,
    OffsetReset,
    SparkOptions,
    StateOptions,
)
from millpond.program import load_guard
from millpond.program.explain import explain
from millpond.program.graph import Graph, GraphOptions
from millpond.program.plan import make_plan
from millpond.program.routes import goes_on
from millpond.program.steps import Read, SourceInfo
from millpond.state.codec import Codec
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Files

if TYPE_CHECKING:
    from millpond.operations.items import StateItem
    from millpond.program.plan import Plan
    from millpond.spark.request import Backfill, Limits
    from millpond.storage.compare import Verdict
    from millpond.storage.lock import Hold

__all__ = ["Application"]

logger = logging.getLogger("millpond")

T = TypeVar("T", bound=type)
Lift = TypeVar("Lift", bound=Callable[[dict[Any, Any]], dict[Any, Any]])

_HINTS = {
    "add_source": "app.dataframe(source=...) reads a list, files, a rate, Spark, or a mp.Source.",
    "is_quix_app": "there is no Quix Cloud here.",
    "setup_topics": "leave it out: topics that are missing are made when the program starts.",
    "dataframes": "app.explain() shows what was built.",
}


class Application:
    """A stateful stream-processing program.

    >>> import millpond as mp
    >>> app = mp.Application(consumer_group="shop", auto_offset_reset="earliest")
    >>> clicks, totals = app.topic("clicks"), app.topic("totals")
    >>> sdf = app.dataframe(clicks).agg(clicks=mp.Count()).to_topic(totals)

    Args:
        broker_address: A Kafka broker, `host:port` or a `ConnectionConfig`. Default: topics are
            those of the embedded log.
        consumer_group: Who this program is: its state and its offsets belong to the group.
        state_dir: The folder that holds the state of all groups: a path, or an address such as
            s3a://bucket/state or hdfs://host/state.
        topics_dir: The folder of the embedded log.
        auto_offset_reset: Where a new group starts to read a topic: "latest", "earliest", or
            "error" to refuse.
        auto_create_topics: Whether topics that are missing are created, or an error.
        on_lost_records: What happens when Kafka deleted records before they were read, or segments
            of the embedded log are damaged or gone: "stop" the run, or "skip" them.
        commit_interval: The least time between two batches in seconds; one batch is one
            snapshot of state, outputs and offsets.
        max_records_per_batch: The most records a batch reads. Default: 1,000,000. Of large
                records it reads fewer: about 512 MiB.
        on_error: What happens when a function fails on a record: "stop" the run, or write the
            record to the topic `<group>.dead-letters` and go on ("dead-letter").
        on_processing_error: A function of (error, context, logger); if it returns True the
            record is let go. Its state writes are undone either way.
        step_timeout: How long one record may take, in seconds or as a `timedelta`; then its worker
            process is ended, and the run with a `StepError` that names step and record. Default:
            forever. With a local master.
        stop_timeout: How long the current batch may take after SIGINT or SIGTERM, in seconds or
            as a `timedelta`; then the run ends without it. Default: 30 s.
        state: How state is kept: its TTL, what it survives, what happens when it is damaged or the
            program has changed.
        kafka: How the broker is used: guarantee, patience, settings of its clients.
        spark: The Spark to run on: master, settings, or a SparkSession. A SparkSession may also be
            given as it is.
        loglevel: Level of the logger `millpond`; None leaves logging alone.
        **flat: Options of `state`, `kafka` and `spark` one by one, such as `state_ttl` or
            `master`; see `FlatKeywords`. Keywords of Quix Streams that have no meaning here are
            accepted and ignored, and one warning names them.
    """

    def __init__(
        self,
        broker_address: str | ConnectionConfig | None = None,
        *,
        consumer_group: str | None = "default",
        state_dir: str | Path | None = "state",
        topics_dir: str | Path = "topics",
        auto_offset_reset: OffsetReset = "latest",
        auto_create_topics: bool = True,
        on_lost_records: LostRecords = "stop",
        commit_interval: float = 0.0,
        max_records_per_batch: int | None = None,
        on_error: ErrorPolicy = "stop",
        on_processing_error: ErrorCallback | None = None,
        step_timeout: float | timedelta | None = None,
        stop_timeout: float | timedelta = 30.0,
        state: StateOptions | None = None,
        kafka: KafkaOptions | None = None,
        spark: SparkOptions | Any = None,
        loglevel: str | int | None = "INFO",
        **flat: Unpack[FlatKeywords],
    ) -> None:
        others: dict[str, Any] = {**flat}
        broker, engine = KafkaOptions.of(kafka, others), SparkOptions.of(spark, others)
        kept = StateOptions.of(state, others)
        own = [*inspect.signature(Application).parameters, *FlatKeywords.__annotations__]
        check_keywords("Application()", others, APPLICATION, own)
        if engine.session is not None:
            from millpond.spark.versions import check_session

            check_session(engine.session)
        refuse_async(on_processing_error, "on_processing_error=")
        self.config = Config(
            connection=_connection(broker_address, broker.broker_availability_timeout),
            processing_guarantee=broker.processing_guarantee,
            auto_create_topics=auto_create_topics,
            on_lost_records=on_lost_records,
            consumer_extra_config=dict(broker.consumer_extra_config),
            producer_extra_config=dict(broker.producer_extra_config),
            consumer_group="default" if consumer_group is None else consumer_group,
            state_dir="state" if state_dir is None else str(state_dir),
            topics_dir=str(topics_dir),
            auto_offset_reset=auto_offset_reset,
            commit_interval=commit_interval,
            max_records_per_batch=max_records_per_batch,
            on_error=on_error,
            on_processing_error=on_processing_error,
            recover=kept.recover,
            on_state_change=kept.on_change,
            durability=kept.durability,
            persistence=kept.persistence,
            state_ttl_ms=None if kept.ttl is None else milliseconds(kept.ttl, "state_ttl"),
            step_timeout=None if step_timeout is None else _seconds("step_timeout", step_timeout),
            stop_timeout=_seconds("stop_timeout", stop_timeout),
            master=engine.master,
            spark=engine.session,
            spark_config=dict(engine.config),
            loglevel=loglevel,
        )
        self.codec = Codec()
        self.graph = Graph(GraphOptions(on_error, on_processing_error, self.codec))
        self.topics: dict[str, Topic] = {}
        self.broker = self._make_broker()
        self._reports: deque[BatchReport] = deque(maxlen=1000)
        self._running: Any = None
        self._lasts = True
        """Whether what is run, or will be, is to run for long; decides how Java is started."""
        if loglevel is not None:
            _set_up_logging(loglevel)
        warn_ignored("Application()", others, APPLICATION)

    def _make_broker(self) -> Broker:
        config = self.config
        creates, skips_lost = config.auto_create_topics, config.on_lost_records == "skip"
        if config.connection is None:
            log = Log(Path(config.topics_dir).absolute())
            return EmbeddedBroker(log, self.topics, creates=creates, skips_lost=skips_lost)
        from millpond.connectors.kafka.broker import KafkaBroker
        from millpond.connectors.kafka.connection import Connection

        connection = Connection(
            config.connection, config.consumer_extra_config, config.producer_extra_config
        )
        return KafkaBroker(
            connection,
            self.topics,
            creates=creates,
            guarantee=config.processing_guarantee,
            skips_lost=skips_lost,
        )

    def __reduce__(self) -> Any:
        msg = (
            "a function that runs in workers refers to the application itself, which stays on the "
            "driver.\nFix: pass it what it needs: the topic, a number, a name."
        )
        raise MillpondError(msg)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing("an application", name, public(Application), _HINTS)

        @classmethod
        def Quix(cls, *_: Any, **__: Any) -> Any:
            """Say what to call instead: programs of Quix Streams have this."""
            msg = f"there is no Quix Cloud here ({here()})."
            raise ConfigError(f"{msg}\nFix: Application(broker_address=...).")

    # --- topics and frames ------------------------------------------------------------------

    def topic(
        self,
        name: str,
        value_deserializer: Format | Deserializer | type[Any] = "json",
        key_deserializer: Format | Deserializer | type[Any] = "bytes",
        value_serializer: Format | Serializer | type[Any] = "json",
        key_serializer: Format | Serializer | type[Any] = "bytes",
        config: TopicConfig | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        *,
        lateness: Duration = 0,
        max_future: Duration | None = MAX_FUTURE_MS,
        idle_after: Duration | None = None,
    ) -> Topic:
        """Return a topic to read from or to write to.

        >>> app = Application(consumer_group="shop")
        >>> app.topic("names", value_serializer="str").serialize(key="1", value="ann").value
        b'ann'

        Args:
            name: Its name.
            value_deserializer: "json", "bytes", "str", "int", "double", or an own one.
            key_deserializer: Likewise, for keys.
            value_serializer: Likewise, for values that are written.
            key_serializer: Likewise, for keys that are written.
            config: How the topic is made where it is missing.
            timestamp_extractor: Function of (value, headers, timestamp, timestamp type) that
                gives the time of a record in milliseconds.
            lateness: How late records may come and still be on time; see
                `StreamingDataFrame.watermark`.
            max_future: How far ahead of the wall clock a record's time may be; None: no limit.
            idle_after: After how long without a record the wall clock takes over.
        """
        topic = make_topic(
            name,
            value_deserializer,
            key_deserializer,
            value_serializer,
            key_serializer,
            config,
            timestamp_extractor,
            clocking(lateness, max_future, idle_after),
        )
        self.topics[name] = topic
        return topic

    def dataframe(
        self,
        topic: Topic | None = None,
        source: SourceSettings | Source | PollSource | Iterable[Any] | None = None,
        *,
        state_ttl: Duration | None = None,
    ) -> StreamingDataFrame:
        """Return a frame of the records of a topic or a source.

        >>> from millpond.testing import run_local
        >>> app = Application(consumer_group="shop")
        >>> clicks = app.dataframe(app.topic("clicks"))
        >>> run_local(clicks.apply(lambda value: value["page"]), [{"page": "/"}])
        ['/']

        Args:
            topic: A topic of this application.
            source: A `ListSource`, `RateSource`, `FileSource` or `SparkSource`, or one of your own:
                an object that implements `Source` or `PollSource`. A plain list or other iterable
                becomes a `ListSource`.
            state_ttl: How long state of this frame is seen that is set without a `ttl`.
                Default: that of the application.
        """
        if (topic is None) == (source is None):
            msg = "dataframe() takes a topic or a source.\nFix: app.dataframe(app.topic('clicks'))."
            raise ConfigError(msg)
        settings = self._checked(topic if topic is not None else source)
        self.graph.sources[settings.name] = settings
        read = Read(call_site=here(), name=settings.name, source=SourceInfo.of(settings))
        ttl_ms = self.config.state_ttl_ms
        if state_ttl is not None:
            ttl_ms = milliseconds(state_ttl, "state_ttl")
        return StreamingDataFrame(self.graph, self.graph.add(read), ttl_ms)

    def _checked(self, given: Any) -> SourceSettings:
        settings = as_source(given, self.codec, self.graph.sources)
        if settings.name in self.graph.sources:
            msg = (
                f"there is a frame for {settings.name!r} already.\n"
                "Fix: use that frame twice (each use is a branch), or give the source another "
                "name. To build the program again, as in a notebook: app.clear_graph() first."
            )
            raise ConfigError(msg)
        return settings

    def clear_graph(self) -> None:
        """Remove every frame with its steps, so that the program can be built again.

        For notebooks: a cell that is run again adds its steps again. Topics, registered types,
        migrations, state and offsets stay. Frames from before cannot be used any more.

        >>> app = Application(consumer_group="shop")
        >>> for _ in range(2):
        ...     app.clear_graph()
        ...     sdf = app.dataframe(app.topic("clicks")).print()
        >>> app.explain().count("topic 'clicks'")
        1
        """
        if self._running is not None:
            raise MillpondError("this application is running.\nFix: stop() it first.")
        self.graph = self.graph.cleared()

    def register_type(self, registered: T) -> T:
        """Let values of a dataclass, an enum or a msgspec struct be kept in state.

        Can be used as a decorator.

        >>> from dataclasses import dataclass
        >>> app = Application(consumer_group="shop")
        >>> @app.register_type
        ... @dataclass
        ... class Basket:
        ...     items: tuple

        Args:
            registered: The class.
        """
        return self.codec.register(registered)

    def migration(self, store: str, from_version: int) -> Callable[[Lift], Lift]:
        """Decorate a function that migrates the values of a key to the next version.

        The function receives the names and values that a key has in the store, and returns those
        that the new program needs. A key is migrated when it is next used; keys that a program
        without migrations wrote have version 1.

        >>> app = Application(consumer_group="shop")
        >>> @app.migration("default", from_version=1)
        ... def cents(values):
        ...     return {**values, "total": round(values["total"] * 100)}
        >>> cents({"total": 1.5})
        {'total': 150}

        Args:
            store: The name of the store, "default" where `apply` keeps it; or with its scope,
                "clicks/default".
            from_version: The version of the values that the function receives.
        """
        if type(from_version) is not int or from_version < 1:
            msg = f"from_version must be an int of 1 or more, got {shown(from_version)}."
            raise ConfigError(msg + "\nFix: from_version=1 for what has no version yet.")
        lifts = self.graph.migrations.setdefault(store, {})
        if from_version in lifts:
            msg = f"there is a migration of {store!r} from version {from_version} already."
            raise ConfigError(msg + f"\nFix: from_version={from_version + 1}.")

        def take(function: Lift) -> Lift:
            refuse_async(function, "@app.migration")
            lifts[from_version] = function
            return function

        return take

    # --- running ----------------------------------------------------------------------------

    def run(
        self,
        dataframe: StreamingDataFrame | None = None,
        timeout: float = 0.0,
        count: int = 0,
        collect: bool = True,
        metadata: bool = False,
        *,
        drain: bool = False,
    ) -> list[Any]:
        """Run, and return the values that came out, if the run has an end.

        Without arguments it runs until SIGINT, SIGTERM or `stop()`, or until every source has
        ended; it stops after the current batch. Running again continues.

            app.run()               # until it is stopped
            app.run(drain=True)     # until the records that exist now are processed
            app.run(timeout=10)     # until 10 seconds have passed without a record

        Args:
            dataframe: Not needed; every frame of the application runs.
            timeout: Stop after this many seconds without a new record.
            count: Stop when this many records have come out. There may be more if a record
                gives several, if most of them are filtered out, or if files are read.
            collect: Return the values that came out (with timeout, count or drain, or where
                all sources are finite lists).
            metadata: Return dicts that also have `_key`, `_timestamp`, `_headers`, `_topic`,
                `_partition` and `_offset`.
            drain: Process the records that exist now, then stop.
        """
        load_guard.stop_at(self, "run()")
        from millpond.spark.request import Limits

        if timeout < 0 or count < 0:
            msg = f"timeout and count must be 0 or more, got {timeout} and {count}."
            raise ConfigError(msg + "\nFix: leave them out to run without end.")
        if self._running is not None:
            msg = "this application is running already.\nFix: stop() it first."
            raise MillpondError(msg)
        has_end = bool(timeout or count or drain or self._is_finite())
        self._lasts = not has_end
        limits = Limits(timeout, count, drain, collect=collect and has_end, metadata=metadata)
        try:
            return self._run(limits)
        except DamagedStateError as error:
            if self.config.recover != "auto" or self.config.persistence == "none":
                raise
            self._repair(error)
        return self._run(limits)

    def backfill(
        self,
        files: dict[str, FileSource] | None = None,
        *,
        until: dict[str, dict[int, int]] | None = None,
        live_from: Literal["earliest", "latest"] = "earliest",
        outputs: bool = False,
    ) -> int:
        """Process history before the first run; the next run continues at exactly the next offset.

        Topics are read from their beginning to where they end now. Returns how many records were
        read. The state of the group must be empty. A backfill that was interrupted continues when
        it is called again; until then, no run begins.

            app.backfill()
            app.backfill({"payments": FileSource("archive", format="parquet", key="user")})

        Args:
            files: For a topic, the files that have its records from before it begins. They are
                read instead of the topic, in the order of their names.
            until: For a topic, the offset after the last record to be read, by partition.
                Default: where it ends.
            live_from: Where the next run begins to read a topic for which there are files:
                "earliest" or "latest".
            outputs: Whether what comes out is written; otherwise only state is made. Records that
                fail are written to the dead letters in any case.
        """
        load_guard.stop_at(self, "backfill()")
        from millpond.spark.request import Backfill, Limits

        if live_from not in ("earliest", "latest"):
            msg = f"live_from must be 'earliest' or 'latest', got {shown(live_from)}."
            raise ConfigError(msg + "\nFix: live_from='earliest': the files end where it begins.")
        topics = [name for name, s in self.graph.sources.items() if isinstance(s, Topic)]
        for name in {**(files or {}), **(until or {})}:
            if name not in topics:
                msg = f"the application reads the topics {topics}, not {name!r}."
                raise ConfigError(msg + "\nFix: name one of these.")
        if self.config.persistence == "none":
            msg = "a backfill makes state, and persistence='none' keeps none."
            raise ConfigError(msg + "\nFix: leave persistence= out.")
        self._lasts = True
        directory = self._directory(ExitStack())
        manifest = directory.load()
        begun = {} if manifest is None else manifest.backfill
        is_new = manifest is None or directory.checkpoint(manifest).last() is None
        if not is_new and not begun:
            msg = f"group {self.config.consumer_group!r} has state already; history comes first."
            raise StateError(msg + "\nFix: another consumer_group, or app.clear_state(True).")
        if begun and sorted(begun["live"]) != sorted(files or {}):
            msg = f"a backfill was begun with files for {sorted(begun['live']) or 'no topic'}."
            raise StateError(msg + "\nFix: give the same; or start over: app.clear_state(True).")
        ends = {n: {str(p): o for p, o in found.items()} for n, found in (until or {}).items()}
        if begun and ends not in ({}, begun["until"]):
            msg = f"a backfill was begun that reads up to {begun['until'] or 'where topics end'}."
            raise StateError(msg + "\nFix: give the same until=, or start over: clear_state(True).")
        if not begun:
            begun = {"until": ends, "live": self._live(files, live_from), "outputs": outputs}
        outputs = begun.get("outputs", outputs)
        backfill = Backfill(dict(files or {}), begun["until"], outputs, begun)
        limits = Limits(timeout=0, count=0, drain=True, collect=False, metadata=False)
        self._run(limits, backfill)
        if backfill.dead:
            logger.warning(
                "%s record(s) of the backfill failed and were written to topic %r",
                *(f"{backfill.dead:,}", f"{self.config.consumer_group}.dead-letters"),
            )
        from millpond.operations.mutations import end_backfill
        from millpond.operations.session import Opened

        end_backfill(Opened(self, None, {}))
        return backfill.read

    def _live(self, files: dict[str, FileSource] | None, place: str) -> dict[str, dict[str, int]]:
        """Return where the live run begins to read the topics for which there are files."""
        self.broker.connect()
        for name in files or {}:
            self.broker.prepare(self.topics[name], reads=True)
        return {n: self.broker.reader(self.topics[n]).initial(place) for n in files or {}}

    def _run(self, limits: Limits, backfill: Backfill | None = None) -> list[Any]:
        from millpond.spark.request import Program
        from millpond.spark.run import SparkRun
        from millpond.spark.session import check_start

        check_start(self.config.master, self.config.spark, self.config.spark_config)
        with ExitStack() as stack:
            directory = self._directory(stack)
            hold = stack.enter_context(directory.held("running"))
            program = Program(
                self.config,
                self.graph,
                self.codec,
                self.broker,
                self.topics,
                self._reports,
                self._session,
                self._fit_state,
            )
            self._running = SparkRun(program, directory, limits, hold, backfill)
            try:
                return self._running.run()  # type: ignore[no-any-return]
            finally:
                self._running = None

    def _fit_state(self, plan: Plan, hold: Hold) -> None:
        """Change the state so that the program can go on with it, where that was accepted."""
        if self.config.persistence == "none":
            return
        from millpond.operations.fit import fit
        from millpond.operations.session import Opened

        opened = Opened(self, None, {})
        opened.hold = opened.directory.hold = hold
        fit(opened, plan, self._accepts)

    @property
    def _accepts(self) -> bool:
        return self.config.on_state_change == "accept"

    def _repair(self, error: DamagedStateError) -> None:
        from millpond.operations.recovery import repair
        from millpond.operations.session import Opened

        logger.warning("%s", str(error).partition("\nFix:")[0])
        self._session()  # as the run wants it that comes next and shares it
        logger.warning("%s", repair(Opened(self, None, {}), lose_edits=False))

    def _is_finite(self) -> bool:
        return all(isinstance(source, ListSource) for source in self.graph.sources.values())

    def _directory(self, stack: ExitStack) -> StateDirectory:
        path = self.config.state_dir
        if self.config.persistence == "none":
            path = str(stack.enter_context(Scratch("millpond-state-")))
        return StateDirectory(path, self.config.consumer_group, self._files)

    def _files(self) -> Files:
        """Return the files of a state directory that only Hadoop can reach."""
        from millpond.spark.internals.hadoop import HadoopFiles

        return HadoopFiles(self._session(self.config.state_dir))

    def _session(self, state_dir: str = "") -> Any:
        """Return the session that all of this application shares."""
        from millpond.spark.session import open_session

        config = self.config
        return open_session(
            config.master,
            config.spark,
            config.spark_config,
            config.consumer_group,
            state_dir,
            lasts=self._lasts,
        )

    @property
    def reports(self) -> list[BatchReport]:
        """Reports of the latest 1,000 batches of this process, the last one at the end.

        >>> Application(consumer_group="shop").reports
        []
        """
        return list(self._reports)

    @property
    def waiting(self) -> list[Waiting]:
        """What the run waits for now: a step at a record, a sink, a broker.

        It has what has taken a second; the live line and the log begin at ten. Each has `what`,
        `since` (seconds since 1970), `seconds`, `more` (file and line, where known) and `fix`.

        >>> Application(consumer_group="shop").waiting
        []
        """
        return [] if self._running is None else list(self._running.waiting)

    def stop(self, fail: bool = False) -> None:
        """Stop the run after the current batch. Can be called from any thread.

        >>> Application(consumer_group="shop").stop()  # nothing runs: no effect

        Args:
            fail: Not needed; for programs of Quix Streams. A run that fails raises.
        """
        if self._running is not None:
            self._running.stop()

    def clear_state(self, reset_offsets: bool = False) -> None:
        """Delete the state of the group; the next run continues with the next record.

        >>> app = Application(consumer_group="shop")
        >>> app.clear_state()
        >>> app.clear_state(reset_offsets=True)

        Args:
            reset_offsets: Also delete the offsets, so that the next run starts over.

        Raises:
            GroupInUseError: while an application of the group is running.
        """
        if load_guard.is_left_out("clear_state()"):
            return
        foreign = [s for s in self.graph.sources.values() if isinstance(s, SparkSource)]
        if foreign and not reset_offsets:
            msg = (
                f"the offsets of {foreign[0].name!r} are Spark's own and cannot be kept without "
                "the state.\nFix: clear_state(reset_offsets=True), which starts over."
            )
            raise ConfigError(msg)
        directory = StateDirectory(self.config.state_dir, self.config.consumer_group, self._files)
        with directory.held("clear_state()"):
            directory.clear(reset_offsets=reset_offsets)
            if reset_offsets:
                shutil.rmtree(directory.spool(self.config.topics_dir), ignore_errors=True)

    def scan_state(self) -> Iterator[StateItem]:
        """Yield everything the group's state holds, as of the last committed batch.

        `millpond.admin` has more: one key, past batches, history, changes.

        >>> list(Application(consumer_group="new").scan_state())
        []
        """
        from millpond.operations.queries import scan
        from millpond.operations.session import Opened

        opened = Opened(self, None, {})
        return iter(()) if opened.is_empty() else scan(opened)

    def check(self, accept: bool = False) -> list[Verdict]:
        """Compare the program with its existing state; `run` refuses what this refuses.

        Returns a verdict for each store, with the reason: "reuse", "new", "migrate", "reshape",
        "orphaned" or "refuse"; "reset" or "dropped" where it was accepted.

        >>> import millpond as mp
        >>> app = Application(consumer_group="new")
        >>> sdf = app.dataframe(app.topic("clicks")).agg(clicks=mp.Count())
        >>> [(verdict.name, verdict.says) for verdict in app.check()]
        [('clicks/agg', 'new')]

        Args:
            accept: Accept exactly this change: the next run does not refuse it.
        """
        with ExitStack() as stack:
            directory, plan = self._directory(stack), make_plan(self.graph)
            if accept:
                with directory.held("check --accept"):
                    return directory.accept(plan)
            return directory.compare(plan, accept=self._accepts)

    def explain(self) -> str:
        """Return the plan as text: stages, names, how each runs, the user's file and line.

        >>> app = Application(consumer_group="shop")
        >>> sdf = app.dataframe(app.topic("clicks")).filter(bool)
        >>> print(app.explain())  # doctest: +ELLIPSIS
        1  read       topic 'clicks' ...
        """
        policy = goes_on(self.config.on_error, self.config.on_processing_error)
        return explain(make_plan(self.graph), policy)

    # --- topics from Python -----------------------------------------------------------------

    def get_producer(self, transactional: bool = False) -> TopicProducer:
        """Return a producer: a context manager with `produce` and `flush`.

        >>> app = Application(consumer_group="shop")
        >>> with app.get_producer() as producer:
        ...     producer.produce(app.topic("orders"), key="ann", value={"amount": 5})

        Args:
            transactional: Must be False; what a frame writes is a transaction with its batch.
        """
        if transactional:
            msg = f"a producer for Python programs has no transactions ({here()})."
            fix = "what must be written once is written by a frame: sdf.to_topic(topic)"
            raise ConfigError(f"{msg}\nFix: leave transactional out; {fix}.")
        if load_guard.is_left_out("get_producer()"):
            return load_guard.NoProducer()
        return self.broker.producer()

    def get_consumer(self, auto_commit_enable: bool | None = None) -> TopicConsumer:
        """Return a consumer: a context manager with `subscribe`, `poll`, `seek` and `read`.

        >>> app = Application(consumer_group="shop")
        >>> returns = app.topic("returns")
        >>> with app.get_producer() as producer:
        ...     producer.produce(returns, key="ann", value={"amount": 5})
        >>> with app.get_consumer() as consumer:
        ...     [record.value for record in consumer.read(returns)]
        [{'amount': 5}]

        Args:
            auto_commit_enable: Ignored, with a warning: this consumer joins no group.
        """
        if auto_commit_enable is not None:
            given = {"auto_commit_enable": "this consumer joins no group and commits no offsets"}
            warn_ignored("get_consumer()", given, given)
        return self.broker.consumer()


def _seconds(name: str, given: float | timedelta) -> float:
    """Return a length in seconds."""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:
        msg = f"{name} is seconds or a timedelta, more than 0; got {shown(given)}."
        raise ConfigError(f"{msg}\nFix: {name}=60.")
    return float(seconds)


def _connection(
    given: str | ConnectionConfig | None, patience: float | None
) -> ConnectionConfig | None:
    """Return how to connect to Kafka; None: topics are those of the embedded log."""
    if patience is not None and (not isinstance(patience, int | float) or not patience >= 0):
        msg = f"broker_availability_timeout is seconds, 0 or more; got {shown(patience)}."
        raise ConfigError(msg + "\nFix: broker_availability_timeout=120.")
    if given is None:
        return None
    connection = ConnectionConfig.of(given)
    return connection if patience is None else replace(connection, patience=patience or math.inf)


def _set_up_logging(level: str | int) -> None:
    try:
        logger.setLevel(level)
    except ValueError:
        msg = f"there is no loglevel {level!r}.\nFix: loglevel='INFO'."
        raise ConfigError(msg) from None
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s millpond: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
