"""What becomes of a record, or of a timer, on which a step failed.

Takes a `StepFailure` where the record in hand is known. What the record did is undone; then it is
let go (`on_processing_error`), set aside as a dead letter (`on_error`), or the run ends (`Fatal`).
Nothing here is called for a record that does not fail.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from millpond.arguments.callsite import PACKAGE
from millpond.errors import (
    EngineError,
    Failure,
    FutureTimestampError,
    IgnoreMessage,
    MillpondError,
    RegistryError,
    ResourceError,
    StateError,
    shown,
)
from millpond.program.steps import Read
from millpond.record import NOWHERE, MessageContext
from millpond.state.cursor import Cursor
from millpond.state.key_context import KeyContext
from millpond.worker.compose import Finisher
from millpond.worker.current_step import ENDINGS, failure_of
from millpond.worker.dead_letters import DeadLetters
from millpond.worker.emit import Emitter, StepFailure
from millpond.worker.entry import Entry

__all__ = ["Failures", "Fatal"]


# Frames of a user's functions that are shown at most.
_FRAMES = 20

# Characters of an error and of a traceback that are kept. Some quote the whole record.
_ERROR, _TRACEBACK = 4_000, 16_000

# Bytes of an exception that is raised again on the driver, as the cause of the run's error.
_EXCEPTION = 1024 * 1024


class Fatal(Exception):
    """A failure that ends the run; carries what is reported to the driver."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Failures:
    """Settles the failures of one stage."""

    def __init__(
        self,
        context: KeyContext,
        emitters: list[Emitter],
        finishers: list[Finisher],
        letters: DeadLetters,
        *,
        undo: bool,
        on_error: str,
        on_processing_error: Callable[..., bool] | None,
        more: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.caught: tuple[type[BaseException], ...] = (StepFailure, *ENDINGS, *more)
        """What is a failure of the record in hand."""
        self._cursor = context.cursor
        self._context = context
        self._emitters = emitters
        self._finishers = finishers
        self._undo = undo
        self._on_error = on_error
        self._on_processing_error = on_processing_error
        self._record: Callable[[int], pa.RecordBatch]
        self._entries: Sequence[Entry]
        self._letters = letters
        self.rows: dict[int, None] = {}
        """The records in hand that were set aside."""
        self._timers = 0

    def begin(self, record: Callable[[int], pa.RecordBatch], entries: Sequence[Entry]) -> None:
        """Take records in hand: `record` gives one of them; `entries` has one or one per record."""
        self._record, self._entries, self.rows = record, entries, {}

    def settle(self, failure: StepFailure, marks: Sequence[int]) -> bool:
        """Undo what the record in hand did, and let it go or put it aside.

        Args:
            failure: What went wrong.
            marks: How much each emitter had before the record.

        Returns:
            Whether the record is to be tried again: it did not fail itself but a timer that was
            due before it, and that timer is gone now.

        Raises:
            Fatal: where the run ends.
        """
        rows = failure.rows or (self._cursor.index,)
        self._cursor.at(rows[0])
        self._take_back(rows[0], marks)
        # Of the key in view where it failed. A timer that the record itself has set is gone by now,
        # and would be set again: it is the record that fails.
        if failure.firing is not None and not failure.firing.drop():
            failure.firing = None
        self._context.keep()
        if self._goes_aside(failure):
            self._put_aside(rows, failure)
        return failure.firing is not None

    def attempt(self, call: Callable[[], None]) -> bool:
        """Do what is no record but may fail like one; tell whether it is done."""
        path, timestamp = self._cursor.path, self._cursor.timestamp
        marks = [len(emitter) for emitter in self._emitters] if self._undo else []
        while True:
            try:
                call()
                return True
            except self.caught as error:
                if not self.settle(failure_of(error, self._entry(self._cursor.index).read), marks):
                    return False
            self._cursor.at(self._cursor.index, path)
            self._cursor.at_time(timestamp)

    def describe(self, failure: StepFailure, cursor: Cursor | None = None) -> Failure:
        """Return what is reported of a failure on the record in hand."""
        cursor = cursor or self._cursor
        record, entry = self._record(cursor.index), self._entry(cursor.index)
        context = cursor.context()
        if failure.firing is not None:
            context = MessageContext("", NOWHERE, failure.firing.at)
        elif context.partition == NOWHERE:
            context = MessageContext("", NOWHERE, record.column("timestamp")[0].as_py())
        key = record.column("key")[0].as_py()
        if key is not None and not entry.is_raw_key:
            key = entry.decode_key(key)
        return _facts(failure, context, key)

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the key, value and headers of the record in hand."""
        record = self._record(self._cursor.index)
        names = ("key", "value", "headers")
        columns = {name: record.column(name)[0] for name in names if name in record.schema.names}
        return {name: len(field.as_buffer() or b"") for name, field in columns.items()}

    def take_timers(self) -> int:
        """Return how many timers were set aside in front of a record, and begin again."""
        timers, self._timers = self._timers, 0
        return timers

    def clear(self) -> None:
        """Forget what was set aside."""
        self.rows, self._timers = {}, 0

    def _take_back(self, row: int, marks: Sequence[int]) -> None:
        """Undo what a record has done in state and outputs."""
        if not self._undo:
            return
        self._context.undo()
        for emitter, mark in zip(self._emitters, marks, strict=True):
            emitter.cut_to(mark)
        for finisher in self._finishers:
            finisher.forget(row)

    def _goes_aside(self, failure: StepFailure) -> bool:
        """Tell whether a record becomes a dead letter; if not, it is let go."""
        if isinstance(failure.error, FutureTimestampError):
            return True  # whatever the settings say
        if isinstance(failure.error, IgnoreMessage) and not failure.step.is_stateful:
            return False  # likewise: it could be read, and is not wanted
        if isinstance(failure.error, RegistryError | ResourceError | StateError | EngineError):
            raise Fatal(self.describe(failure))  # likewise: the record is not to blame
        if self._on_processing_error is not None:
            try:
                logger = logging.getLogger("millpond")
                if self._on_processing_error(failure.error, self._cursor.context(), logger):
                    return False
            except (Exception, *ENDINGS) as error:
                raise Fatal(self.describe(StepFailure(failure.step, error))) from error
        if self._on_error == "stop":
            raise Fatal(self.describe(failure))
        return True

    def _put_aside(self, rows: Sequence[int], failure: StepFailure) -> None:
        is_record = failure.firing is None
        # A record that gave several items may be named for each, and for more than one step.
        rows = [row for row in dict.fromkeys(rows) if not (is_record and row in self.rows)]
        for row in rows:
            self._cursor.at(row)
            record, entry = self._record(row), self._entry(row)
            self._letters.add(row, record, entry, self.describe(failure), is_record=is_record)
        if is_record:
            self.rows.update(dict.fromkeys(rows))
        else:
            self._timers += 1

    def _entry(self, row: int) -> Entry:
        return self._entries[row if len(self._entries) > 1 else 0]


def _facts(failure: StepFailure, context: MessageContext, key: Any) -> Failure:
    """Return a failure in words, with its exception where that can be pickled."""
    error, step = failure.error, failure.step
    pickled = _pickled(error)
    return Failure(
        step=f"reading of {step.name!r}" if isinstance(step, Read) else str(step),
        call_site=str(step.call_site),
        topic=context.topic,
        partition=context.partition,
        offset=context.offset,
        key=shown(key),
        error=_without_middle(_error_text(error), _ERROR),
        traceback=_without_middle(_users_part(error), _TRACEBACK),
        exception=pickled,
    )


def _pickled(error: BaseException) -> bytes | None:
    """Return an exception as bytes, where it can be loaded again and quotes no huge record."""
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return None
    return pickled if len(pickled) <= _EXCEPTION else None


def _error_text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _without_middle(text: str, limit: int) -> str:
    """Return a text of bounded length: where it begins, and where it ends."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - limit} characters left out ...\n{text[-half:]}"


def _users_part(error: BaseException) -> str:
    """Return a traceback without what lies inside this package; "" where nothing is left."""
    full = traceback.TracebackException.from_exception(error)
    left = _without_ours(full)
    if left is None:
        return ""
    if left is full and isinstance(error, MillpondError) and left.__cause__ is None:
        # Its text is reported already, and has all there is to say.
        return "".join(["Traceback (most recent call last):\n", *left.stack.format()])
    return "".join(left.format())


def _without_ours(part: traceback.TracebackException) -> traceback.TracebackException | None:
    """Return a chain of tracebacks without our own frames, nor errors that have no others."""
    below = part.__cause__ or (None if part.__suppress_context__ else part.__context__)
    inner = None if below is None else _without_ours(below)
    frames = [f for f in part.stack if not f.filename.startswith(PACKAGE)][-_FRAMES:]
    if not frames:
        return inner
    if inner and list(inner.format_exception_only()) == list(part.format_exception_only()):
        inner = None  # the same error, met a second time
    part.stack = traceback.StackSummary.from_list(frames)
    part.__cause__ = inner if part.__cause__ else None
    part.__context__ = inner
    return part
