"""The key whose state is in view, for all stores of a stage.

Takes the pages of a key group; binds keys, writes and forgets names, registers the key for the
moments at which something is due. Writes of the record in hand can be undone.
"""

from __future__ import annotations

from typing import Any

from msgspec.msgpack import Ext

from millpond.state.blobs import EXPIRING, LARGE_VALUE, value_size
from millpond.state.codec import Codec
from millpond.state.cursor import Cursor, Place
from millpond.state.layout import LARGE_BYTES, Entry, Pages
from millpond.state.names import Names, Taken
from millpond.state.stored import (
    TIMER_AT,
    TIMERS,
    expiry_of,
    is_version,
    pack_timers,
    replaced,
    tag_of,
    unpack_timers,
)

__all__ = ["KeyContext"]

_MISSING = object()

# More names than there are stores: what is left of a key is not only the versions of its values.
_FEW = 100


class KeyContext:
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
        name = TIMER_AT + clock
        entry = self.cursor.place.entry
        pending = None if entry is None else entry.get(name)
        if pending is None or due < pending:
            self.put(name, due)
            self.pages.timer_index(clock).add(due, self.cursor.place.key)

    def take_timer(self, due: int, clock: str) -> bool:
        """Tell whether the timer for `due` is the one the key in view waits for; forget it then."""
        entry = self.cursor.place.entry
        name = TIMER_AT + clock
        if entry is None or entry.get(name) != due:
            return False
        del entry[name]
        self.cursor.place.page.is_changed = True
        return True

    def has_timers(self) -> bool:
        """Tell whether the key in view has any timers."""
        return self.cursor.place.entry is not None and TIMERS in self.cursor.place.entry

    def timers(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Return the timers of the key in view, by the step that set them."""
        return unpack_timers((self.cursor.place.entry or {}).get(TIMERS))

    def put_timers(self, timers: dict[str, dict[str, tuple[int, str]]]) -> None:
        if timers:
            self.put(TIMERS, pack_timers(timers))
        else:
            self.remove(TIMERS)

    def expiring(self) -> list[tuple[str | bytes, int, bytes]]:
        """Return what of the key in view expires: its name, when, and the tag of its clock."""
        found = []
        for name, value in (self.cursor.place.entry or {}).items():
            if type(value) is Ext:
                stored = self.pages.large_value(value) if value.code == LARGE_VALUE else value
                if type(stored) is Ext and stored.code == EXPIRING:
                    found.append((name, expiry_of(stored), tag_of(stored)))
        return found

    def drop(self, name: str | bytes) -> None:
        """Forget a name for good: not because of a record, so there is nothing to undo."""
        entry = self.cursor.place.entry
        if entry is not None and entry.pop(name, _MISSING) is not _MISSING:
            self.cursor.place.page.is_changed = True
            is_few = type(entry) is dict or len(entry) < _FEW
            if is_few and all(map(is_version, entry)):
                entry.clear()  # the version of nothing

    def replace(self, name: str | bytes, value: Any) -> None:
        """Put another value in the place of one; it still goes when that would have gone."""
        before = (self.cursor.place.entry or {}).get(name)
        if type(before) is Ext and before.code == LARGE_VALUE:
            before = self.pages.large_value(before)
        if type(before) is Ext and before.code == EXPIRING:
            value = replaced(before, value)
        if value_size(value) > LARGE_BYTES:
            self.cursor.place.page.has_large = True
        self.put(name, value)

    def expiry(self, value: Ext) -> int | None:
        """Return when a stored value expires, or None."""
        if value.code == LARGE_VALUE:
            stored = self.pages.large_value(value)
            return self.expiry(stored) if type(stored) is Ext else None
        return expiry_of(value) if value.code == EXPIRING else None

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
