"""What can go wrong, and what to do about it.

    MillpondError
    ├── ConfigError       (ValueError)  an argument or setting cannot work
    ├── PlanError                       the frames, taken together, cannot run
    ├── StepError                       a user's function failed on a record
    ├── StateError                      the state directory and the program do not fit
    │   ├── GroupInUseError             another application runs with this consumer group
    │   ├── DamagedStateError           files of the state are torn, changed or gone
    │   └── UnsupportedCheckpointError  another version of Spark wrote the state
    ├── ValueTypeError    (TypeError)   a value that state cannot keep
    ├── SerializationError              bytes that a (de)serializer cannot read or write
    │   └── RegistryError               the schema registry is away or refuses
    ├── FutureTimestampError            a record's time is too far ahead of the wall clock
    ├── TopicError                      a topic is missing or used wrongly
    │   └── DamagedTopicError           a file of the embedded log is torn, changed or gone
    ├── SourceError                     a source of the user's own failed, or broke its contract
    ├── BrokerError                     Kafka cannot be reached, or refuses
    ├── ResourceError                   a resource of the user's could not be opened
    ├── EngineError                     Spark itself failed or could not be started
    ├── IgnoreMessage                   raised by the user: the record in hand goes no further
    └── SimulatedCrash                  a CRASH mark of the test kit was reached

Every text says what happened, where, and how to fix it (`Fix: ...`).
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "MillpondError",
    "ConfigError",
    "PlanError",
    "StepError",
    "StateError",
    "GroupInUseError",
    "DamagedStateError",
    "UnsupportedCheckpointError",
    "ValueTypeError",
    "SerializationError",
    "RegistryError",
    "FutureTimestampError",
    "TopicError",
    "DamagedTopicError",
    "SourceError",
    "BrokerError",
    "ResourceError",
    "EngineError",
    "IgnoreMessage",
    "SimulatedCrash",
    "Failure",
    "shown",
]

# What commands in a text call the program.
_PROGRAM = "APP.py"
_FILE = re.compile(r"\.py(:\w+)?$")
_MODULE = re.compile(r"^[^\W\d]\w*(\.\w+)*(:\w+(\(\))?)?$")


def shown(value: object, limit: int = 80) -> str:
    """Return `repr(value)`, cut so that an error never prints a whole record."""
    try:
        text = repr(value)
    except Exception as error:  # an int of 5,000 digits, or a class of the user's
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def with_program(text: str) -> str:
    """Return a text whose commands name the program that runs, where it is a file.

    >>> with_program("millpond state repair APP.py")  # in a session or a test there is no file
    'millpond state repair APP.py'
    """
    return text.replace(_PROGRAM, _program()) if _PROGRAM in text else text


def _program() -> str:
    """Return the program as it was typed: after `python`, or after a command of `millpond`."""
    main, *words = sys.argv or [""]
    if Path(main).name == "millpond":
        typed = next(filter(_FILE.search, words), "") or _module(words)
    else:  # a module, as in `python -m pytest`, has a spec
        is_file = getattr(sys.modules.get("__main__"), "__spec__", None) is None
        typed = main if is_file and _FILE.search(main) else ""
    return shlex.quote(typed) if typed else _PROGRAM


def _module(words: list[str]) -> str:
    """Return the module that a command runs: the first word after it that is no option."""
    after = 2 if words[:1] == ["state"] else 1
    if words[:1] == ["topics"]:
        return ""
    given = next((word for word in words[after:] if not word.startswith("-")), "")
    return given if _MODULE.search(given) and not Path(given).is_dir() else ""


class MillpondError(Exception):
    """Base of every error this library raises on purpose."""

    def __str__(self) -> str:
        return with_program(super().__str__())


class ConfigError(MillpondError, ValueError):
    """An argument or a setting cannot work. Raised at the call that passed it."""


class PlanError(MillpondError):
    """The frames of an application, taken together, cannot run. Raised before Spark starts."""


class StateError(MillpondError):
    """The state directory does not fit the program, or cannot be used.

    What to do: nothing was changed; follow the `Fix:` line, then run again.
    """


class GroupInUseError(StateError):
    """Another application with the same consumer group is running.

    What to do: stop the other one, or choose another `consumer_group`.
    """


class DamagedStateError(StateError):
    """Files of the state are torn, changed or gone.

    What to do: `millpond state repair`, which goes back to the last batch that is whole and says
    what is replayed; or `Application(recover="auto")`, which does that at the start.
    """


class UnsupportedCheckpointError(StateError):
    """Another version of Spark, or other settings of it, wrote the state.

    Nothing is damaged, and nothing was changed. What to do: run the application with the versions
    that wrote it.
    """


class ValueTypeError(MillpondError, TypeError):
    """A value of a type that state cannot keep. Raised at `set`, before anything changes."""


class SerializationError(MillpondError):
    """A serializer or deserializer was given something it cannot handle."""


class RegistryError(SerializationError):
    """The schema registry is away, lets nobody in, or refuses a schema.

    No record is to blame, so it ends the run whatever `on_error` says. What to do: follow the
    `Fix:` line and run again.
    """


class FutureTimestampError(MillpondError):
    """A record's time is further ahead of the wall clock than `max_future` allows.

    Such a record is set aside in any case, whatever `on_error` says: it would move the clock
    of the whole stream and close everybody's windows.
    """


class TopicError(MillpondError):
    """A topic is missing, or used in a way it does not allow."""


class DamagedTopicError(TopicError):
    """A file of the embedded log is torn or changed: it does not fit its checksum.

    What to do: nothing of it was read. Restore the file from a copy; `millpond topics verify`
    lists every damaged file.
    """


class SourceError(MillpondError):
    """A source of the user's own raised an error, or gave what a source may not give.

    What to do: follow the `Fix:` line and run again; nothing of the batch was committed. The error
    that the source raised is its cause, where both were in one process.
    """


class BrokerError(MillpondError):
    """A Kafka broker cannot be reached, does not let us in, or refuses what is asked.

    What to do: follow the `Fix:` line and run again; nothing was lost.
    """


class ResourceError(MillpondError):
    """A resource, made with `@mp.resource`, could not be opened.

    No record is to blame, so it ends the run whatever `on_error` says. What to do: follow the
    `Fix:` line and run again; the error that opening raised is its cause.
    """


class EngineError(MillpondError):
    """Spark failed, or could not be started.

    What to do: the text carries Spark's own message; state and offsets are as of the last
    committed batch, so running again is safe.
    """


class IgnoreMessage(MillpondError):
    """Raise it in a deserializer or a function of a record: the record goes no further.

    It is as if a filter had refused the record, which counts as filtered.

    >>> from millpond.testing import frame, run_local
    >>> def positive(value):
    ...     if value < 0:
    ...         raise IgnoreMessage
    ...     return value
    >>> run_local(frame().apply(positive), [1, -1, 2])
    [1, 2]
    """


class SimulatedCrash(MillpondError):
    """A `CRASH` mark in a test source was reached; nothing of that batch was committed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The facts about one record on which a step failed; travels from worker to driver."""

    step: str
    call_site: str
    topic: str
    partition: int
    offset: int
    key: str
    error: str
    traceback: str
    exception: bytes | None = field(default=None, repr=False)
    """The pickled exception, where it could be pickled."""
    row: str = ""
    """Which row of which file the record is, where it is one."""
    place: str = ""
    """Where it was, where that is no one record, or the step did not fail by itself."""
    fix: str = ""
    """What to do, where it is not to correct the function."""


class StepError(MillpondError):
    """A user's function, or a deserializer, failed on a record and `on_error` is "stop".

    Nothing of the batch was committed. What to do: fix the function (or the record's reader)
    and run again; the run continues with this batch. Or set `on_error="dead-letter"`.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        self.step = failure.step
        self.call_site = failure.call_site
        super().__init__(failure)

    def __str__(self) -> str:
        f = self.failure
        if f.fix:
            text = f"{f.step} ({f.call_site}) {f.error} {f.place}.\nFix: {f.fix}."
            return f"{text}\n\n{f.traceback.rstrip()}" if f.traceback else text
        if f.partition < 0:  # no record, but a timer or a window whose time had come
            what, place = "timer", f"at time {f.offset} of key {f.key}"
        else:
            what = "record"
            place = f"on topic {f.topic!r}, partition {f.partition}, offset {f.offset}, key {f.key}"
            place = f"on {f.row}, key {f.key}" if f.row else place
        # An error of ours has said how to fix it already.
        fix = "Then" if "\nFix: " in f.error else "Fix: fix the function and"
        text = (
            f"{f.step} ({f.call_site}) failed {place}: {f.error}\n"
            f"{fix} run again, the run continues with this batch: nothing of it was "
            f'committed. Or set Application(on_error="dead-letter") to set such {what}s aside.'
        )
        return f"{text}\n\n{f.traceback.rstrip()}" if f.traceback else text

    def __reduce__(self) -> tuple[Any, ...]:
        return StepError, (self.failure,)
