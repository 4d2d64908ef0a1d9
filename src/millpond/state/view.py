"""What a user's function sees: the state of one key.

Takes the pages of a key group; the loop binds one `State` per store to each record's key in
turn. Values go in and come out as copies. Writes of the current record can be undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec
from msgspec.msgpack import Ext

from millpond.arguments.duration import Duration, milliseconds, moment
from millpond.errors import ConfigError, ValueTypeError, shown
from millpond.state.blobs import CONTAINER, EXPIRING, LARGE_VALUE, value_size
from millpond.state.codec import Codec
from millpond.state.cursor import Cursor, Place
from millpond.state.layout import LARGE_BYTES, MOST_BYTES, Entry, Pages
from millpond.state.names import Names, Taken
from millpond.state.timer_index import NEVER

__all__ = [
    "DEFAULT_STORE",
    "KeyScope",
    "State",
    "StepClock",
    "StoredItem",
    "Timer",
    "name_bytes",
    "store_of",
    "stored_items",
    "stored_name",
    "stored_timers",
    "stored_value",
    "version_name",
]

DEFAULT_STORE = "default"

# Names of other stores, and names of the default store that begin with this mark, are written
# as mark + store + mark + name. So the common case costs nothing. Names that are not text are
# their encoding; there the store goes before it, after a byte no encoding begins with.
_MARK = "\x1f"

# Names that belong to no store, so they have one mark only: the timers of a key, for each clock the
# moment of its timer, and for each store the version of its values.
_TIMERS = _MARK + "t"
_TIMER_AT = _MARK + "h"
_VERSION = _MARK + "m"
_BYTE_MARK = b"\xc1"
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MISSING = object()

# More names than there are stores: what is left of a key is not only the versions of its values.
_FEW = 100

# Names whose stored form is remembered; the number only bounds memory.
_REMEMBERED = 1_000

WALL = "wall"
"""The name of the wall clock among the clocks of a stage."""

UNSET: Any = object()
"""Stands for a ttl that was not given."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def _moment(value: Ext) -> int:
    """Return when an expiring value is gone."""
    return int.from_bytes(memoryview(value.data)[:8], "big", signed=True)


class Timer(NamedTuple):
    """A timer of a key: its name, its moment and its clock.

    >>> Timer("silence", 65_000)
    Timer(name='silence', at=65000, clock='event')
    """

    name: str
    at: int
    """When, in milliseconds since 1970."""
    clock: Literal["event", "processing"] = "event"


class StepClock:
    """What time it is for one step; set at the beginning of each batch."""

    __slots__ = ("delay_ms", "late_mark", "name", "tag", "watermark")

    def __init__(self, name: str = "", delay_ms: int = 0) -> None:
        self.name = name
        """Which clock of the stage it goes by."""
        self.tag = crc32(name.encode()).to_bytes(4, "big")
        """The same, short enough to be kept with every value that expires."""
        self.delay_ms = delay_ms
        """How far it is behind that clock."""
        self.watermark = NEVER
        """What has ended up to here is over."""
        self.late_mark = NEVER
        """What has ended up to here was over before the batch: records for it are late."""


class KeyScope:
    """The key whose state is in view, shared by the states of all stores of a stage."""

    __slots__ = ("codec", "cursor", "journal", "now", "pages", "places")

    def __init__(self, codec: Codec, *, undo: bool, cursor: Cursor | None = None) -> None:
        self.codec = codec
        self.cursor = cursor or Cursor([])
        """Has the place in view, and the time of the record."""
        self.pages: Pages
        self.places: dict[bytes | None, Place] = {}
        self.journal: list[tuple[Entry, Any, Any]] | None = [] if undo else None
        """(entry, name, value before); for a delete all names, because their order counts.

        Where they are very many, what was taken, with its place in the order.
        """
        self.now = 0
        """The wall clock of the batch."""

    def open(self, pages: Pages) -> None:
        """Look at another group, or at the same one after its pages were written."""
        self.pages = pages
        self.places = {}

    def find(self, key: bytes | None) -> Place:
        """Return the place of a key that `places` does not know yet."""
        page = self.pages.page_of(key)
        place = self.places[key] = Place(key, page, self.pages.entry(page, key))
        return place

    def bind(self, key: bytes | None) -> None:
        """Bring the state of a key into view."""
        self.cursor.at_key(self.places.get(key) or self.find(key))

    def put(self, name: str | bytes, value: Any) -> None:
        place = self.cursor.place
        entry = place.entry
        if entry is None:
            entry = place.entry = place.page.entries[place.key] = {}
        if self.journal is not None:
            self.journal.append((entry, name, entry.get(name, _MISSING)))
        entry[name] = value
        place.page.is_changed = True

    def remove(self, name: str | bytes) -> None:
        entry = self.cursor.place.entry
        if entry is not None and name in entry:
            if type(entry) is Names:
                taken = entry.take(name)
                if self.journal is not None:
                    self.journal.append((entry, name, taken))
            else:
                if self.journal is not None:
                    self.journal.append((entry, tuple(entry), entry[name]))
                del entry[name]
            self.cursor.place.page.is_changed = True

    def register(self, due: int, clock: str) -> None:
        """See to it that the key in view is looked at when a clock shows `due`."""
        name = _TIMER_AT + clock
        entry = self.cursor.place.entry
        pending = None if entry is None else entry.get(name)
        if pending is None or due < pending:
            self.put(name, due)
            self.pages.timer_index(clock).add(due, self.cursor.place.key)

    def take_timer(self, due: int, clock: str) -> bool:
        """Tell whether the timer for `due` is the one the key in view waits for; forget it then."""
        entry = self.cursor.place.entry
        if entry is None or entry.get(_TIMER_AT + clock) != due:
            return False
        del entry[_TIMER_AT + clock]
        self.cursor.place.page.is_changed = True
        return True

    def has_timers(self) -> bool:
        """Tell whether the key in view has any timers."""
        return self.cursor.place.entry is not None and _TIMERS in self.cursor.place.entry

    def timers(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Return the timers of the key in view, by the step that set them."""
        stored = (self.cursor.place.entry or {}).get(_TIMERS)
        return {} if stored is None else _unpack(stored.data)

    def put_timers(self, timers: dict[str, dict[str, tuple[int, str]]]) -> None:
        if timers:
            self.put(_TIMERS, Ext(CONTAINER, _pack(timers)))
        else:
            self.remove(_TIMERS)

    def expiring(self) -> list[tuple[str | bytes, int, bytes]]:
        """Return what of the key in view expires: its name, when, and the tag of its clock."""
        found = []
        for name, value in (self.cursor.place.entry or {}).items():
            if type(value) is Ext:
                stored = self.pages.large_value(value) if value.code == LARGE_VALUE else value
                if type(stored) is Ext and stored.code == EXPIRING:
                    found.append((name, _moment(stored), bytes(memoryview(stored.data)[8:12])))
        return found

    def drop(self, name: str | bytes) -> None:
        """Forget a name for good: not because of a record, so there is nothing to undo."""
        entry = self.cursor.place.entry
        if entry is not None and entry.pop(name, _MISSING) is not _MISSING:
            self.cursor.place.page.is_changed = True
            is_few = type(entry) is dict or len(entry) < _FEW
            if is_few and all(type(n) is str and n.startswith(_VERSION) for n in entry):
                entry.clear()  # the version of nothing

    def replace(self, name: str | bytes, value: Any) -> None:
        """Put another value in the place of one; it still goes when that would have gone."""
        before = (self.cursor.place.entry or {}).get(name)
        if type(before) is Ext and before.code == LARGE_VALUE:
            before = self.pages.large_value(before)
        if type(before) is Ext and before.code == EXPIRING:
            value = Ext(EXPIRING, bytes(memoryview(before.data)[:12]) + _pack(value))
        if value_size(value) > LARGE_BYTES:
            self.cursor.place.page.has_large = True
        self.put(name, value)

    def expiry(self, value: Ext) -> int | None:
        """Return when a stored value expires, or None."""
        if value.code == LARGE_VALUE:
            stored = self.pages.large_value(value)
            return self.expiry(stored) if type(stored) is Ext else None
        return _moment(value) if value.code == EXPIRING else None

    def undo(self) -> None:
        """Take back every write since `keep`, newest first."""
        while self.journal:
            entry, name, before = self.journal.pop()
            if type(before) is Taken:
                entry.give_back(name, before)  # type: ignore[attr-defined]
            elif type(name) is tuple:  # names as they were before one was deleted
                entry.update({other: entry.pop(other, before) for other in name})
            elif before is _MISSING:
                entry.pop(name, None)
            else:
                entry[name] = before

    def keep(self) -> None:
        """Make the writes of the record final."""
        if self.journal:
            self.journal.clear()


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
        "_byte_prefix",
        "_clock",
        "_cursor",
        "_keeps_longest",
        "_names",
        "_owner",
        "_prefix",
        "_scope",
        "_ttl_ms",
    )

    def __init__(
        self,
        scope: KeyScope,
        store: str = DEFAULT_STORE,
        *,
        clock: StepClock | None = None,
        ttl_ms: int | None = None,
        owner: str | None = None,
        keeps_longest: bool = False,
    ) -> None:
        self._scope = scope
        self._cursor = scope.cursor
        self._keeps_longest = keeps_longest
        self._clock = clock or StepClock()
        self._ttl_ms = ttl_ms
        self._owner = owner
        self._names: dict[str, str] = {}
        is_default = store == DEFAULT_STORE
        self._prefix = "" if is_default else f"{_MARK}{store}{_MARK}"
        self._byte_prefix = b"" if is_default else _BYTE_MARK + f"{store}{_MARK}".encode()

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
        name = self._names.get(key) if type(key) is str else None
        value = entry.get(name if name is not None else self._name(key), _MISSING)
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
        kind = type(value)
        if kind is int:
            if not _INT_MIN <= value <= _INT_MAX:
                value = Ext(CONTAINER, self._scope.codec.encode(value))
        elif kind is not float and kind is not bool and value is not None:
            value = self._in(value)
        name: Any = self._names.get(key) if type(key) is str else None
        if name is None:
            name = self._name(key)
        if ttl is not UNSET or self._ttl_ms is not None:
            value = self._expiring(name, value, ttl)
        scope = self._scope
        place = self._cursor.place
        if scope.pages.timer_indexes and ttl is UNSET and self._ttl_ms is None:
            self._forget_expired(name)
        if place.entry is None or scope.journal is not None:
            scope.put(name, value)
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
        self._scope.remove(self._name(key))

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
        value = _MISSING if entry is None else entry.get(self._name(key), _MISSING)
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
        names = [self._own_name(n) for n, value in entry.items() if not self._has_expired(value)]
        return [name for name in names if name is not _MISSING]

    def _replace(self, key: Any, value: Any) -> None:
        """Keep another value under a name; it expires when the one before would have."""
        kind = type(value)
        is_number = kind is float or kind is bool or value is None
        is_number = is_number or (kind is int and _INT_MIN <= value <= _INT_MAX)
        self._scope.replace(self._name(key), value if is_number else self._in(value))

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
        scope = self._scope
        if after is not None:
            now = self._cursor.timestamp if clock == "event" else scope.now
            due = now + milliseconds(after, "after", least=0)
        else:
            due = moment(at, "at")
        if due < self._cursor.timestamp and clock == "event":
            # It fires at a moment that has passed and would see what has expired since then, if
            # no batch in between has removed it.
            self._forget_all_expired()
        timers = scope.timers()
        timers.setdefault(self._owner, {})[name] = (due, clock)
        scope.put_timers(timers)
        if clock == "event":
            scope.register(due + self._clock.delay_ms, self._clock.name)
        else:
            scope.register(due, WALL)

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
        timers = self._scope.timers()
        if timers.get(self._owner or "", {}).pop(name, None) is not None:
            self._scope.put_timers({owner: own for owner, own in timers.items() if own})

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
        own = self._scope.timers().get(self._owner or "", {})
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

    def __iter__(self) -> Any:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __repr__(self) -> str:
        return f"State({ {name: shown(self.get(name)) for name in self.keys()} })"

    def _out(self, value: Ext) -> Any:
        if value.code == LARGE_VALUE:
            stored = self._scope.pages.large_value(value)
            return self._out(stored) if type(stored) is Ext else stored
        if value.code == EXPIRING:
            if _moment(value) <= self._cursor.timestamp:
                return _MISSING
            stored = _unpack(memoryview(value.data)[12:])
            return self._out(stored) if type(stored) is Ext else stored
        return self._scope.codec.decode(bytes(value.data))

    def _has_expired(self, value: Any) -> bool:
        if type(value) is not Ext:
            return False
        expires = self._scope.expiry(value)
        return expires is not None and expires <= self._cursor.timestamp

    def _forget_expired(self, name: str | bytes) -> int | None:
        """Forget what has expired as if it had been swept; return when what is there expires."""
        scope = self._scope
        before = None if self._cursor.place.entry is None else self._cursor.place.entry.get(name)
        expires = scope.expiry(before) if type(before) is Ext else None
        if expires is not None and expires <= self._cursor.timestamp:
            scope.remove(name)
        return expires

    def _forget_all_expired(self) -> None:
        """Forget what has expired by the time of the record, for the steps of this clock."""
        scope = self._scope
        for name, expires, tag in scope.expiring():
            if expires <= self._cursor.timestamp and tag == self._clock.tag:
                scope.remove(name)

    def _expiring(self, name: str | bytes, value: Any, ttl: Any) -> Any:
        """Return the stored form of a value that is seen for a while only."""
        old = self._forget_expired(name)
        ttl_ms = self._ttl_ms if ttl is UNSET else ttl
        if ttl_ms is None:
            return value
        expires = self._cursor.timestamp + milliseconds(ttl_ms, "ttl")
        if self._keeps_longest and old is not None:
            expires = max(expires, old)
        stored = _pack(value)
        if len(stored) > LARGE_BYTES:
            self._cursor.place.page.has_large = True
        self._scope.register(expires + self._clock.delay_ms, self._clock.name)
        moment = expires.to_bytes(8, "big", signed=True)
        return Ext(EXPIRING, moment + self._clock.tag + stored)

    def _in(self, value: Any) -> Any:
        """Return the stored form of a value: text and bytes as they are, the rest encoded."""
        if type(value) is bytes:
            size = len(value)
        elif type(value) is str:
            size = len(value) if value.isascii() else len(self._scope.codec.encode(value))
        else:
            value = Ext(CONTAINER, self._scope.codec.encode(value))
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

    def _name(self, key: Any) -> str | bytes:
        """Return the stored form of a name; those of text are remembered."""
        if type(key) is not str:
            # A number or a tuple is its encoding, so 1, True and "1" stay apart.
            return self._byte_prefix + self._scope.codec.encode(key)
        if not key.isascii():
            self._scope.codec.encode(key)
        name = self._prefix + key
        if not self._prefix and key[:1] == _MARK:
            name = f"{_MARK}{_MARK}{key}"
        if len(self._names) < _REMEMBERED:
            self._names[key] = name
        return name

    def _own_name(self, name: str | bytes) -> Any:
        if isinstance(name, bytes):
            is_own = name.startswith(self._byte_prefix or _BYTE_MARK) is bool(self._byte_prefix)
            return self._scope.codec.decode(name[len(self._byte_prefix) :]) if is_own else _MISSING
        if self._prefix:
            return name[len(self._prefix) :] if name.startswith(self._prefix) else _MISSING
        if name[:1] != _MARK:
            return name
        return name[2:] if name[:2] == _MARK + _MARK else _MISSING


def version_name(store: str) -> str:
    """Return the name under which a key keeps the version of its values in a store."""
    return _VERSION + store


class StoredItem(NamedTuple):
    """One value of a key in its stored form: name and value are bytes of the codec."""

    store: str
    name: bytes
    value: bytes
    expires: int | None
    """When it is gone, in milliseconds since 1970; None: never."""


def stored_items(pages: Pages, entry: Entry) -> Iterator[StoredItem]:
    """Yield what an entry holds for its key: not what we keep there for ourselves."""
    for name, value in entry.items():
        if not _is_ours(name):
            plain_name = name_bytes(name)
            yield StoredItem(_store_of(name), plain_name, *_value_bytes(pages, value))


def stored_timers(entry: Entry) -> Iterator[tuple[str, Timer]]:
    """Yield the timers of a key, each with the step that set it."""
    stored = entry.get(_TIMERS)
    for step, timers in ({} if stored is None else _unpack(stored.data)).items():
        for name, (at, clock) in timers.items():
            yield step, Timer(name, at, clock)


def name_bytes(name: str | bytes) -> bytes:
    """Return the codec's form of a name, without the store."""
    store = _store_of(name)
    if isinstance(name, bytes):
        return name if store == DEFAULT_STORE else name[len(store.encode()) + 2 :]
    if store != DEFAULT_STORE:
        return _pack(name[len(store) + 2 :])
    return _pack(name[2:] if name[:2] == _MARK + _MARK else name)


def stored_name(store: str, name: bytes) -> str | bytes:
    """Return how an entry calls a name of a store, from the codec's form of the name."""
    plain = _unpack(name)
    if type(plain) is not str:
        is_default = store == DEFAULT_STORE
        return name if is_default else _BYTE_MARK + f"{store}{_MARK}".encode() + name
    if store != DEFAULT_STORE:
        return f"{_MARK}{store}{_MARK}{plain}"
    return f"{_MARK}{_MARK}{plain}" if plain[:1] == _MARK else plain


def stored_value(value: bytes) -> Any:
    """Return how an entry keeps a value, from the codec's form of it."""
    plain = _unpack(value)
    if type(plain) is int:
        is_atom = _INT_MIN <= plain <= _INT_MAX
    else:
        is_atom = plain is None or type(plain) in (bool, float, str, bytes)
    return plain if is_atom else Ext(CONTAINER, value)


def store_of(name: str | bytes) -> str | None:
    """Return the store that a name of an entry belongs to; None: it is none of a store's."""
    return None if _is_ours(name) else _store_of(name)


def _value_bytes(pages: Pages, value: Any) -> tuple[bytes, int | None]:
    """Return the codec's form of a stored value, and when it expires."""
    if type(value) is not Ext:
        return _pack(value), None
    if value.code == LARGE_VALUE:
        return _value_bytes(pages, pages.large_value(value))
    if value.code == EXPIRING:
        inner, _ = _value_bytes(pages, _unpack(memoryview(value.data)[12:]))
        return inner, _moment(value)
    return bytes(value.data), None


def _is_ours(name: str | bytes) -> bool:
    """Tell whether a name is none of a store's: a registered moment, the timers, a version."""
    return isinstance(name, str) and name[:1] == _MARK and _MARK not in name[1:]


def _store_of(name: str | bytes) -> str:
    if isinstance(name, bytes):
        is_marked = name[:1] == _BYTE_MARK
        return name[1:].partition(_MARK.encode())[0].decode() if is_marked else DEFAULT_STORE
    if name[:1] != _MARK:
        return DEFAULT_STORE
    return name[1:].partition(_MARK)[0] or DEFAULT_STORE
