"""What a user's function sees: the state of one key.

Takes the key in view; there is one `State` per store. Values go in and come out as copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec.msgpack import Ext

from millpond.arguments.duration import Duration, milliseconds, moment
from millpond.errors import ConfigError, ValueTypeError, shown
from millpond.state.blobs import CONTAINER, EXPIRING, LARGE_VALUE, value_size
from millpond.state.key_context import KeyContext
from millpond.state.layout import LARGE_BYTES, MOST_BYTES
from millpond.state.stored import (
    DEFAULT_STORE,
    INT_MAX,
    INT_MIN,
    StoreNames,
    expiring,
    expiry_of,
    is_atom,
    kept_value,
)
from millpond.state.timers import WALL, StepClock, Timer

__all__ = ["UNSET", "State"]

_MISSING = object()

UNSET: Any = object()
"""Stands for a ttl that was not given."""


class State:
    """The state of the current record's key: names and values. Made by Millpond for each call.

    Values go in and come out as copies: changing one without `set` changes nothing.

    >>> from millpond.testing import frame, run_local
    >>> def count(value, state):
    ...     total = state.get("total", 0) + 1
    ...     state.set("total", total)
    ...     return total
    >>> run_local(frame().apply(count, stateful=True), [("ann", 1), ("bob", 1), ("ann", 1)])
    [1, 1, 2]
    """

    __slots__ = (
        "_clock",
        "_context",
        "_cursor",
        "_keeps_longest",
        "_known",
        "_names",
        "_owner",
        "_ttl_ms",
    )

    def __init__(
        self,
        context: KeyContext,
        store: str = DEFAULT_STORE,
        *,
        clock: StepClock | None = None,
        ttl_ms: int | None = None,
        owner: str | None = None,
        keeps_longest: bool = False,
    ) -> None:
        self._context = context
        self._cursor = context.cursor
        self._keeps_longest = keeps_longest
        self._clock = clock or StepClock()
        self._ttl_ms = ttl_ms
        self._owner = owner
        self._names = StoreNames(store, context.codec)
        self._known = self._names.known

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value kept under a name, or the default.

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     before = state.get("last", "nothing")
        ...     state.set("last", value)
        ...     return before
        >>> run_local(frame().apply(f, stateful=True), ["a", "b"])
        ['nothing', 'a']

        Args:
            key: The name: text, or any other value that state can keep.
            default: What is returned where there is no value.
        """
        entry = self._cursor.place.entry
        if entry is None:
            return default
        name = self._known.get(key) if type(key) is str else None
        value = entry.get(name if name is not None else self._names.stored(key), _MISSING)
        if value is _MISSING:
            return default
        if type(value) is Ext:
            value = self._out(value)
            return default if value is _MISSING else value
        return value

    def set(self, key: Any, value: Any, ttl: Duration | None = UNSET) -> None:
        """Keep a value under a name.

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     is_known = "known" in state
        ...     state.set("known", True, ttl=60_000)
        ...     return is_known
        >>> visits = [("ann", "/", 0), ("ann", "/", 30_000), ("ann", "/", 95_000)]
        >>> run_local(frame().apply(f, stateful=True), visits)
        [False, True, False]

        Args:
            key: The name.
            value: The value.
            ttl: How long it is visible, counted from the record's own time: milliseconds or
                a `timedelta`; None: forever. Default: that of the step.

        Raises:
            ValueTypeError: for a value of a type that state cannot keep; nothing has changed.
        """
        kind = type(value)  # `is_atom`, without the call
        if kind is int:
            if not INT_MIN <= value <= INT_MAX:
                value = self._in(value)
        elif kind is not float and kind is not bool and value is not None:
            value = self._in(value)
        name: Any = self._known.get(key) if type(key) is str else None
        if name is None:
            name = self._names.stored(key)
        if ttl is not UNSET or self._ttl_ms is not None:
            value = self._expiring(name, value, ttl)
        context = self._context
        place = self._cursor.place
        if context.pages.timer_indexes and ttl is UNSET and self._ttl_ms is None:
            self._forget_expired(name)
        if place.entry is None or context.journal is not None:
            context.put(name, value)
        else:  # the common case of `put`, without the call
            place.entry[name] = value
            place.page.is_changed = True

    def delete(self, key: Any) -> None:
        """Delete a name; no error where it does not exist.

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     state.set("n", value)
        ...     state.delete("n")
        ...     return state.exists("n")
        >>> run_local(frame().apply(f, stateful=True), [1])
        [False]

        Args:
            key: The name.
        """
        self._context.remove(self._names.stored(key))

    def exists(self, key: Any) -> bool:
        """Tell whether a value is kept under a name (it may be None).

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     is_known = state.exists("user")
        ...     state.set("user", None)
        ...     return is_known
        >>> run_local(frame().apply(f, stateful=True), [1, 2])
        [False, True]

        Args:
            key: The name.
        """
        entry = self._cursor.place.entry
        value = _MISSING if entry is None else entry.get(self._names.stored(key), _MISSING)
        return value is not _MISSING and not self._has_expired(value)

    def get_bytes(self, key: Any, default: bytes | None = None) -> bytes | None:
        """Return the bytes kept under a name, or the default.

        Of a value that was kept with `set`, its JSON.

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     state.set("n", {"a": value})
        ...     return state.get_bytes("n")
        >>> run_local(frame().apply(f, stateful=True), [1])
        [b'{"a":1}']

        Args:
            key: The name.
            default: What is returned where there is no value.
        """
        value = self.get(key, _MISSING)
        if value is _MISSING:
            return default
        if type(value) is bytes:
            return value
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError) as error:
            msg = (
                f"get_bytes({key!r}) found a value of type {type(value).__name__}, which JSON "
                f"cannot say: {error}\n"
                "Fix: read it with get(), or write it with set_bytes()."
            )
            raise ValueTypeError(msg) from None

    def set_bytes(self, key: Any, value: bytes, ttl: Duration | None = UNSET) -> None:
        """Keep bytes under a name, as they are.

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     state.set_bytes("raw", value)
        ...     return state.get("raw")
        >>> run_local(frame().apply(f, stateful=True), [b"pond"])
        [b'pond']

        Args:
            key: The name.
            value: The bytes.
            ttl: As in `set`.
        """
        if type(value) is not bytes:
            msg = f"set_bytes() takes bytes, got {shown(value)}.\nFix: use set() for other types."
            raise ValueTypeError(msg)
        self.set(key, value, ttl)

    def keys(self) -> list[Any]:
        """Return the names this store keeps for the key, in the order they were first set.

        >>> from millpond.testing import frame, run_local
        >>> def f(value, state):
        ...     state.set(value, True)
        ...     return state.keys()
        >>> run_local(frame().apply(f, stateful=True), ["b", "a"])
        [['b'], ['b', 'a']]
        """
        entry = self._cursor.place.entry or {}
        stored = (name for name, value in entry.items() if not self._has_expired(value))
        return [own for name in stored for own in self._names.own(name)]

    def _replace(self, key: Any, value: Any) -> None:
        """Keep another value under a name; it expires when the one before would have."""
        stored = value if is_atom(value) else self._in(value)
        self._context.replace(self._names.stored(key), stored)

    # --- timers -----------------------------------------------------------------------------

    @property
    def timestamp(self) -> int:
        """The time of the record, or of the timer, in milliseconds since 1970.

        >>> from millpond.testing import frame, run_local
        >>> times = frame().apply(lambda value, state: state.timestamp, stateful=True)
        >>> run_local(times, [("ann", "click", 5_000)])
        [5000]
        """
        return self._cursor.timestamp

    def set_timer(
        self,
        name: str,
        *,
        at: int | datetime | None = None,
        after: Duration | None = None,
        clock: Literal["event", "processing"] = "event",
    ) -> None:
        """Call the step's `on_timer` for this key at a moment; replaces a timer of that name.

        >>> from millpond.testing import frame, run_local
        >>> def reading(value, state):
        ...     state.set_timer("silence", after=60_000)
        ...     return value
        >>> def silent(key, state, timer):
        ...     return f"{key} is silent"
        >>> sensors = frame().apply(reading, stateful=True, on_timer=silent)
        >>> run_local(sensors, [("one", 20, 0), ("two", 7, 90_000)])
        [20, 7, 'one is silent']

        Args:
            name: Which of the key's timers.
            at: The moment: milliseconds since 1970, or a `datetime` with a time zone.
            after: This long after the record's time (on the wall clock: after now).
            clock: "event": when the watermark passes the moment; "processing": when the wall
                clock does.
        """
        if self._owner is None:
            msg = (
                "set_timer() was called in a step without on_timer.\n"
                "Fix: apply(function, stateful=True, on_timer=function_of_key_state_and_timer)."
            )
            raise ConfigError(msg)
        if not isinstance(name, str) or (at is None) == (after is None):
            msg = f"set_timer() takes a name and one of at= and after=, got {shown(name)}."
            raise ConfigError(msg + '\nFix: state.set_timer("quiet", after=timedelta(minutes=5)).')
        if clock not in ("event", "processing"):
            msg = f"a timer's clock is 'event' or 'processing', got {shown(clock)}."
            raise ConfigError(msg + '\nFix: clock="event".')
        context = self._context
        if after is not None:
            now = self._cursor.timestamp if clock == "event" else context.now
            due = now + milliseconds(after, "after", least=0)
        else:
            due = moment(at, "at")
        if due < self._cursor.timestamp and clock == "event":
            # It fires at a moment that has passed and would see what has expired since then, if
            # no batch in between has removed it.
            self._forget_all_expired()
        timers = context.timers()
        timers.setdefault(self._owner, {})[name] = (due, clock)
        context.put_timers(timers)
        if clock == "event":
            context.register(due + self._clock.delay_ms, self._clock.name)
        else:
            context.register(due, WALL)

    def cancel_timer(self, name: str) -> None:
        """Remove a timer of this step and key; no error where there is none.

        >>> from millpond.testing import frame, run_local
        >>> def reading(value, state):
        ...     state.set_timer("silence", after=60_000)
        ...     state.cancel_timer("silence")
        ...     return state.timers()
        >>> run_local(frame().apply(reading, stateful=True, on_timer=lambda *of: None), [1])
        [[]]

        Args:
            name: The name of the timer.
        """
        timers = self._context.timers()
        if timers.get(self._owner or "", {}).pop(name, None) is not None:
            self._context.put_timers({owner: own for owner, own in timers.items() if own})

    def timers(self) -> list[Timer]:
        """Return the timers this step has set for the key, the next one first.

        >>> from millpond.testing import frame, run_local
        >>> def reading(value, state):
        ...     state.set_timer("silence", after=60_000)
        ...     return [(timer.name, timer.at) for timer in state.timers()]
        >>> sensors = frame().apply(reading, stateful=True, on_timer=lambda *of: None)
        >>> run_local(sensors, [("one", 20, 5_000)])
        [[('silence', 65000)]]
        """
        own = self._context.timers().get(self._owner or "", {})
        found = [Timer(name, at, clock) for name, (at, clock) in own.items()]  # type: ignore[arg-type]
        return sorted(found, key=lambda timer: (timer.at, timer.name))

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self.exists(key):
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key: Any) -> bool:
        return self.exists(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"State({ {name: shown(self.get(name)) for name in self.keys()} })"

    def _out(self, value: Ext) -> Any:
        if value.code == LARGE_VALUE:
            stored = self._context.pages.large_value(value)
            return self._out(stored) if type(stored) is Ext else stored
        if value.code == EXPIRING:
            if expiry_of(value) <= self._cursor.timestamp:
                return _MISSING
            stored = kept_value(value)
            return self._out(stored) if type(stored) is Ext else stored
        return self._context.codec.decode(bytes(value.data))

    def _has_expired(self, value: Any) -> bool:
        if type(value) is not Ext:
            return False
        expires = self._context.expiry(value)
        return expires is not None and expires <= self._cursor.timestamp

    def _forget_expired(self, name: str | bytes) -> int | None:
        """Forget what has expired as if it had been swept; return when what is there expires."""
        context = self._context
        before = None if self._cursor.place.entry is None else self._cursor.place.entry.get(name)
        expires = context.expiry(before) if type(before) is Ext else None
        if expires is not None and expires <= self._cursor.timestamp:
            context.remove(name)
        return expires

    def _forget_all_expired(self) -> None:
        """Forget what has expired by the time of the record, for the steps of this clock."""
        context = self._context
        for name, expires, tag in context.expiring():
            if expires <= self._cursor.timestamp and tag == self._clock.tag:
                context.remove(name)

    def _expiring(self, name: str | bytes, value: Any, ttl: Any) -> Any:
        """Return the stored form of a value that is seen for a while only."""
        old = self._forget_expired(name)
        ttl_ms = self._ttl_ms if ttl is UNSET else ttl
        if ttl_ms is None:
            return value
        expires = self._cursor.timestamp + milliseconds(ttl_ms, "ttl")
        if self._keeps_longest and old is not None:
            expires = max(expires, old)
        stored = expiring(expires, self._clock.tag, value)
        if value_size(stored) > LARGE_BYTES:
            self._cursor.place.page.has_large = True
        self._context.register(expires + self._clock.delay_ms, self._clock.name)
        return stored

    def _in(self, value: Any) -> Any:
        """Return the stored form of a value: text and bytes as they are, the rest encoded."""
        if type(value) is bytes:
            size = len(value)
        elif type(value) is str:
            size = len(value) if value.isascii() else len(self._context.codec.encode(value))
        else:
            value = Ext(CONTAINER, self._context.codec.encode(value))
            size = len(value.data)
        if size > MOST_BYTES:
            msg = (
                f"a value of {size:,} bytes is too large for state, which keeps values of up to "
                f"{MOST_BYTES:,} bytes.\n"
                "Fix: keep it in parts under several names, or keep a reference to it."
            )
            raise ValueTypeError(msg)
        if size > LARGE_BYTES:
            # The page exists before the entry does, so the mark is never lost.
            self._cursor.place.page.has_large = True
        return value
