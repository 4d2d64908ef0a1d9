"""`Application`: names topics, makes frames, and runs them.

Takes settings; gives frames, and what comes out of a run. `runner` does the running.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from millpond.app.backfill import History, apply_backfill, plan_of
from millpond.app.broker import make_broker
from millpond.app.frames import Frames
from millpond.app.runner import Runner
from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import here
from millpond.arguments.quix import APPLICATION, check_keywords, warn_ignored
from millpond.config import Config, seconds_of, set_up_logging, settings_of
from millpond.connectors.connection import ConnectionConfig
from millpond.connectors.protocols import (
    TopicConsumer,
    TopicProducer,
)
from millpond.connectors.sources import FileSource
from millpond.connectors.topic import Topic
from millpond.driver.gather import BatchReport
from millpond.driver.waiting import Waiting
from millpond.errors import ConfigError
from millpond.frame import StreamingDataFrame
from millpond.options import (
    ErrorCallback,
    ErrorPolicy,
    FlatKeywords,
    KafkaOptions,
    LostRecords,
    OffsetReset,
    SparkOptions,
    StateOptions,
)
from millpond.program import load_guard
from millpond.program.explain import explain
from millpond.program.graph import Graph, GraphOptions
from millpond.program.migrate import Lift, add_migration
from millpond.program.plan import make_plan
from millpond.program.routes import goes_on
from millpond.state.codec import Codec

if TYPE_CHECKING:
    from millpond.operations.items import StateItem
    from millpond.storage.compare import Verdict

__all__ = ["Application"]

T = TypeVar("T", bound=type)


class Application(Frames):
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
            **settings_of(broker_address, broker, engine, kept),
            auto_create_topics=auto_create_topics,
            on_lost_records=on_lost_records,
            consumer_group="default" if consumer_group is None else consumer_group,
            state_dir="state" if state_dir is None else str(state_dir),
            topics_dir=str(topics_dir),
            auto_offset_reset=auto_offset_reset,
            commit_interval=commit_interval,
            max_records_per_batch=max_records_per_batch,
            on_error=on_error,
            on_processing_error=on_processing_error,
            step_timeout=None if step_timeout is None else seconds_of("step_timeout", step_timeout),
            stop_timeout=seconds_of("stop_timeout", stop_timeout),
            loglevel=loglevel,
        )
        self.codec = Codec()
        self.graph = Graph(GraphOptions(on_error, on_processing_error, self.codec))
        self.topics: dict[str, Topic] = {}
        self.broker = make_broker(self.config, self.topics)
        self._runner = Runner(self)
        if loglevel is not None:
            set_up_logging(loglevel)
        warn_ignored("Application()", others, APPLICATION)

    # --- the program ------------------------------------------------------------------------

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
        self._runner.check_idle()
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
        return add_migration(self.graph.migrations, store, from_version)

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
        if timeout < 0 or count < 0:
            msg = f"timeout and count must be 0 or more, got {timeout} and {count}."
            raise ConfigError(msg + "\nFix: leave them out to run without end.")
        return self._runner.run(
            timeout=timeout, count=count, drain=drain, collect=collect, metadata=metadata
        )

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
        asked = History(files or {}, until or {}, live_from, outputs)
        plan = plan_of(self, self._runner, asked)
        return apply_backfill(self, self._runner, asked, plan)

    @property
    def reports(self) -> list[BatchReport]:
        """Reports of the latest 1,000 batches of this process, the last one at the end.

        >>> Application(consumer_group="shop").reports
        []
        """
        return list(self._runner.reports)

    @property
    def waiting(self) -> list[Waiting]:
        """What the run waits for now: a step at a record, a sink, a broker.

        It has what has taken a second; the live line and the log begin at ten. Each has `what`,
        `since` (seconds since 1970), `seconds`, `more` (file and line, where known) and `fix`.

        >>> Application(consumer_group="shop").waiting
        []
        """
        return self._runner.waiting

    def stop(self, fail: bool = False) -> None:
        """Stop the run after the current batch. Can be called from any thread.

        >>> Application(consumer_group="shop").stop()  # nothing runs: no effect

        Args:
            fail: Not needed; for programs of Quix Streams. A run that fails raises.
        """
        self._runner.stop()

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
        if not load_guard.is_left_out("clear_state()"):
            self._runner.clear(reset_offsets=reset_offsets)

    def scan_state(self) -> Iterator[StateItem]:
        """Yield everything the group's state holds, as of the last committed batch.

        `millpond.admin` has more: one key, past batches, history, changes.

        >>> list(Application(consumer_group="new").scan_state())
        []
        """
        return self._runner.scan()

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
        return self._runner.check(accept=accept)

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
