"""How an application runs: one Spark session, one state directory, one run at a time.

Takes an application and when a run ends; gives what came out. Changes and repairs state before the
run where that was accepted.
"""

from __future__ import annotations

import logging
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from millpond.connectors.sources import ListSource, SparkSource
from millpond.driver.gather import BatchReport
from millpond.driver.waiting import Waiting
from millpond.errors import ConfigError, DamagedStateError, MillpondError
from millpond.folders import Scratch
from millpond.program.plan import Plan, make_plan
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Files

if TYPE_CHECKING:
    from millpond.app.application import Application
    from millpond.operations.items import StateItem
    from millpond.operations.session import Opened
    from millpond.spark.request import Backfill, Limits
    from millpond.spark.run import SparkRun
    from millpond.storage.compare import Verdict
    from millpond.storage.lock import Hold

__all__ = ["Runner"]

logger = logging.getLogger("millpond")


class Runner:
    """Runs an application, and keeps what its runs share."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._run: SparkRun | None = None
        self.is_long = True
        """Whether what is run, or will be, is a long run; decides how Java is started."""
        self.reports: deque[BatchReport] = deque(maxlen=1000)

    @property
    def is_running(self) -> bool:
        """Whether there is a run now."""
        return self._run is not None

    @property
    def waiting(self) -> list[Waiting]:
        """What the run waits for now."""
        return [] if self._run is None else list(self._run.waiting)

    def stop(self) -> None:
        """Stop the run after the current batch, if there is one."""
        if self._run is not None:
            self._run.stop()

    def check_idle(self) -> None:
        """Refuse what cannot be done during a run.

        Raises:
            MillpondError: there is one.
        """
        if self._run is not None:
            raise MillpondError("this application is running.\nFix: stop() it first.")

    def run(
        self, *, timeout: float, count: int, drain: bool, collect: bool, metadata: bool
    ) -> list[Any]:
        """Run, and return what came out; repair damaged state once, where that was accepted."""
        from millpond.spark.request import Limits

        self.check_idle()
        sources = self._app.graph.sources.values()
        are_lists = all(isinstance(source, ListSource) for source in sources)
        has_end = bool(timeout or count or drain or are_lists)
        self.is_long = not has_end
        limits = Limits(timeout, count, drain, collect=collect and has_end, metadata=metadata)
        try:
            return self._start(limits)
        except DamagedStateError as error:
            if self._app.config.recover != "auto" or self._keeps_nothing:
                raise
            self._repair(error)
        return self._start(limits)

    def backfill(self, backfill: Backfill) -> None:
        """Run over history to its end."""
        from millpond.spark.request import Limits

        limits = Limits(timeout=0, count=0, drain=True, collect=False, metadata=False)
        self._start(limits, backfill)

    def _start(self, limits: Limits, backfill: Backfill | None = None) -> list[Any]:
        from millpond.spark.request import Program
        from millpond.spark.run import SparkRun
        from millpond.spark.session import check_start

        app = self._app
        check_start(app.config.master, app.config.spark, app.config.spark_config)
        with ExitStack() as stack:
            directory = self.directory(stack)
            hold = stack.enter_context(directory.held("running"))
            program = Program(
                app.config,
                app.graph,
                app.codec,
                app.broker,
                app.topics,
                self.reports,
                self.session,
                self._fit_state,
            )
            self._run = SparkRun(program, directory, limits, hold, backfill)
            try:
                return self._run.run()
            finally:
                self._run = None

    def _fit_state(self, plan: Plan, hold: Hold) -> None:
        """Change the state so that the program can go on with it, where that was accepted."""
        if self._keeps_nothing:
            return
        from millpond.operations.fit import fit

        opened = self.opened()
        opened.hold = opened.directory.hold = hold
        fit(opened, plan, self._accepts)

    def _repair(self, error: DamagedStateError) -> None:
        from millpond.operations.repair import repair

        logger.warning("%s", str(error).partition("\nFix:")[0])
        self.session()  # as the next run wants it, which shares it
        logger.warning("%s", repair(self.opened(), lose_edits=False))

    # --- the state --------------------------------------------------------------------------

    def clear(self, *, reset_offsets: bool) -> None:
        """Delete the state of the group, and its offsets where that is asked."""
        config = self._app.config
        foreign = [s for s in self._app.graph.sources.values() if isinstance(s, SparkSource)]
        if foreign and not reset_offsets:
            msg = (
                f"the offsets of {foreign[0].name!r} are Spark's own and cannot be kept without "
                "the state.\nFix: clear_state(reset_offsets=True), which starts over."
            )
            raise ConfigError(msg)
        directory = StateDirectory(config.state_dir, config.consumer_group, self._files)
        with directory.held("clear_state()"):
            directory.clear(reset_offsets=reset_offsets)
            if reset_offsets:
                shutil.rmtree(directory.spool(config.topics_dir), ignore_errors=True)

    def scan(self) -> Iterator[StateItem]:
        """Yield everything that the state has."""
        from millpond.operations.queries import scan

        opened = self.opened()
        return iter(()) if opened.is_empty() else scan(opened)

    def check(self, *, accept: bool) -> list[Verdict]:
        """Compare the program with its state; accept the change where that is asked."""
        with ExitStack() as stack:
            directory, plan = self.directory(stack), make_plan(self._app.graph)
            if accept:
                with directory.held("check --accept"):
                    return directory.accept(plan)
            return directory.compare(plan, accept=self._accepts)

    def opened(self) -> Opened:
        """Return the group, for what looks at its state or changes it."""
        from millpond.operations.session import Opened

        return Opened(self._app, None, {})

    @property
    def _keeps_nothing(self) -> bool:
        return self._app.config.persistence == "none"

    @property
    def _accepts(self) -> bool:
        return self._app.config.on_state_change == "accept"

    def directory(self, stack: ExitStack) -> StateDirectory:
        """Return the state directory; a temporary one is deleted with the stack."""
        config = self._app.config
        path = config.state_dir
        if self._keeps_nothing:
            path = str(stack.enter_context(Scratch("millpond-state-")))
        return StateDirectory(path, config.consumer_group, self._files)

    def _files(self) -> Files:
        """Return the files of a state directory that only Hadoop can reach."""
        from millpond.spark.internals.hadoop import HadoopFiles

        return HadoopFiles(self.session(self._app.config.state_dir))

    def session(self, state_dir: str = "") -> Any:
        """Return the Spark session that all of the application shares."""
        from millpond.spark.session import open_session

        config = self._app.config
        return open_session(
            config.master,
            config.spark,
            config.spark_config,
            config.consumer_group,
            state_dir,
            lasts=self.is_long,
        )
