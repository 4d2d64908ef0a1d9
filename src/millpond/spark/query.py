"""The running query: each batch's rows to a handler on the driver, until it is asked to stop.

Takes the packed rows; calls `handle(rows, batch_id)` before each commit. What the handler
raises ends the query and is raised again by `check`, as it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from millpond import errors
from millpond.errors import (
    DamagedStateError,
    EngineError,
    MillpondError,
    StateError,
    StepError,
    UnsupportedCheckpointError,
)
from millpond.spark.internals.error_texts import (
    disk_trouble,
    file_in,
    is_damage,
    is_of_spark,
    is_unsupported,
    missing_module,
    named_error,
    python_part,
    said,
    what_is_damaged,
)
from millpond.spark.internals.query_status import has_looked
from millpond.spark.internals.query_stop import HandlerError, is_stop, sleep_until_stopped
from millpond.storage.checkpoint import Checkpoint
from millpond.wire.packed_rows import Row

__all__ = ["Query", "engine_error"]

# Seconds that a stop waits for a trigger in which no batch has begun.
_PATIENCE = 5.0

Handler = Callable[[Iterable[Row], int], None]


# Seconds in which a stop that was asked for reaches the thread of the query.
_REACHED = 30.0


# Seconds that the query gets to end where nobody waits for it.
_LEFT = 2.0


class Query:
    """A Spark query of ours."""

    def __init__(
        self,
        rows: DataFrame,
        checkpoint: Checkpoint,
        handle: Handler,
        *,
        interval: float,
        drain: bool,
        is_enough: Callable[[], bool],
    ) -> None:
        self._handle = handle
        self._is_enough = is_enough
        self._checkpoint = checkpoint
        self._error: BaseException | None = None
        self._stopping = threading.Event()
        self._has_looked = False
        self._is_in_batch = False
        self._asked_at = 0.0
        self._is_made = threading.Event()
        self._stopper: threading.Thread | None = None
        writer = rows.writeStream.foreachBatch(self._each).option(
            "checkpointLocation", checkpoint.folder.path
        )
        if drain:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(interval * 1000)} milliseconds")
        self._query: StreamingQuery = writer.start()
        self._is_made.set()

    def _each(self, batch: DataFrame, batch_id: int) -> None:
        if self._stopping.is_set() or self._is_enough():
            self._stop_before(batch)
        self._is_in_batch = True
        try:
            self._handle(_collected(batch), batch_id)
            self._has_looked = True
        except BaseException as error:
            if self._error is None:
                self._error = error
            raise HandlerError(type(error).__name__) from None
        finally:
            self._is_in_batch = False

    def _stop_before(self, batch: DataFrame) -> None:
        """Stop the query at the beginning of a batch of which nothing has been done yet.

        An error raised here ends the query, too, but as a failure: Spark logs it with its stack.
        This is the query's own thread. So another one stops the query, which interrupts this one
        where it sleeps in Java, and Spark takes that for what it is.
        """
        self._stopper = threading.Thread(target=self._stop_when_made, daemon=True)
        self._stopper.start()
        sleep_until_stopped(batch, _REACHED)

    def _stop_when_made(self) -> None:
        self._is_made.wait(_REACHED)
        with suppress(Exception):  # it may be stopped at the end of the run as well
            self._query.stop()

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    @property
    def is_busy(self) -> bool:
        """Whether it has something to process, or has not looked at its sources yet."""
        status = self._query.status
        self._has_looked = self._has_looked or has_looked(status)
        return bool(status["isDataAvailable"]) or not self._has_looked

    def ask_to_stop(self) -> None:
        """Let no further batch begin."""
        self._asked_at = self._asked_at or time.monotonic()
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Wait; return whether the query has ended."""
        if self._stopping.is_set() and self.is_active and not self._is_in_batch:
            # A source that does not answer keeps a trigger active; it is not waited for.
            is_stuck = time.monotonic() - self._asked_at > _PATIENCE
            if is_stuck or not self._query.status["isTriggerActive"]:
                self._query.stop()
        return bool(self._ended(seconds))

    def _ended(self, seconds: float) -> Any:
        try:
            return self._query.awaitTermination(seconds)
        except Exception:
            return True  # `check` tells why

    def check(self) -> None:
        """Raise what ended the query, if it was not a stop."""
        if self._stopper is not None:  # Spark calls a query ended whose thread is still at it
            self._stopper.join(_REACHED)
        if self._error is not None:
            if isinstance(self._error, MillpondError | KeyboardInterrupt):
                raise self._error
            is_ours = not hasattr(self._error, "__notes__")  # a sink's own error has a note
            is_of_the_disk = isinstance(self._error, OSError) and is_ours
            if not is_of_spark(self._error) and not is_of_the_disk:
                raise self._error
            raise engine_error(self._error, self._checkpoint) from self._error
        try:
            failure = self._query.exception()
        except Exception as error:
            failure = error
        if failure is not None and not is_stop(failure):
            raise engine_error(failure, self._checkpoint)

    def abandon(self) -> None:
        """End the query without waiting for what it does; its batch is not committed."""
        stopper = threading.Thread(target=self._stop_when_made, daemon=True)
        stopper.start()
        stopper.join(_LEFT)

    def stop(self) -> None:
        """End the query now; a batch in progress is not committed."""
        if self.is_active:
            self._query.stop()


def _collected(batch: DataFrame) -> Iterator[Row]:
    """Yield the rows of a batch; the batch runs when the first one is asked for."""
    # As Arrow: `collect` has the JVM write bytes as text, 0.25 s for half a million records.
    # All columns: choosing two had the batch planned again, 10 ms each time.
    for part in batch.toArrow().to_batches():
        kinds = part.column("kind").to_pylist()
        for kind, payload in zip(kinds, part.column("payload"), strict=True):
            yield Row("", -1, kind, payload.as_buffer())


def engine_error(error: BaseException, checkpoint: Checkpoint) -> MillpondError:
    """Return Spark's message as an error of ours, without the JVM's stack."""
    text = said(error)
    name, about = named_error(text)
    if isinstance(kind := getattr(errors, name, None), type) and kind is not StepError:
        return kind(about)  # type: ignore[no-any-return]
    if trouble := disk_trouble(text):
        file = file_in(text)
        state = checkpoint.folder.path.partition("/generations/")[0]
        what = "the state" if not file or file.startswith(state) else "a file of the run"
        return StateError(
            f"{what} cannot be written: {trouble} ({file or state}).\n"
            "Fix: make room for it, or make the folder writable, and run again: the batch was not "
            "committed, and the run continues with it."
        )
    if is_unsupported(text, checkpoint):
        return UnsupportedCheckpointError(
            f"another version of Spark wrote the state: {what_is_damaged(text, checkpoint)}.\n"
            "Fix: run the application with the versions of pyspark and millpond that wrote it."
        )
    if is_damage(text, checkpoint.folder.path):
        return DamagedStateError(
            f"Spark cannot load the state: {what_is_damaged(text, checkpoint)}.\n"
            "Fix: millpond state repair APP.py repairs it, millpond state verify APP.py says more; "
            'Application(recover="auto") repairs it at the start.'
        )
    fix, missing = "see the message above", missing_module(text)
    if missing.partition(".")[0] == "millpond":
        where = "set PYSPARK_PYTHON to a Python that has millpond, before Spark starts"
        fix = f"{where}; the workers run a Python without it"
    elif missing:
        where = "install it, or put it beside the program, or its folder into PYTHONPATH"
        fix = f"let the workers find {missing}: {where}"
    return EngineError(
        f"Spark stopped the query: {python_part(text)[:4000]}\n"
        f"Fix: {fix}; state and offsets are as of the last committed batch."
    )
