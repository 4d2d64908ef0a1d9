"""The audit of a group: one event for each manual change of its state.

Takes what a manifest has on disk; gives events, one class for each kind, and back. A kind that is
not known, of a newer version, is kept as it is and shown. `text` is the line for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

__all__ = [
    "Accept",
    "Backup",
    "ClearState",
    "Delete",
    "Drop",
    "EditEvent",
    "EndBackfill",
    "Event",
    "Fork",
    "Import",
    "Rename",
    "Repair",
    "Rescale",
    "Reshape",
    "Restore",
    "Rewind",
    "SetValues",
    "UnknownEvent",
    "edited_batches",
    "entry_of",
    "event_of",
]


class Event(
    msgspec.Struct, tag_field="what", omit_defaults=True, forbid_unknown_fields=True, kw_only=True
):
    """A manual change. `at` and `generation` are filled in when it is noted in a manifest."""

    at: str = ""
    """When it was made: ISO 8601, in UTC."""
    generation: int = 0
    """The generation that it made."""
    batch: int | None = None
    """The last batch of that generation."""
    by: str = ""
    """The user who made it."""

    is_copy: ClassVar[bool] = False
    """Whether the generation was not made from the one before it."""

    @property
    def what(self) -> str:
        """The kind of the event."""
        return str(self.__struct_config__.tag)

    @property
    def edited(self) -> int | None:
        """The batch in which people changed values; None: in no batch."""
        return None

    @property
    def text(self) -> str:
        """What it changed, in one line."""
        raise NotImplementedError


# --- other generations ----------------------------------------------------------------------


class Rewind(Event, tag="rewind"):
    """State and input went back to a batch."""

    to: int
    outputs: str

    @property
    def text(self) -> str:
        return f"to batch {self.to}, outputs: {self.outputs}"


class Repair(Event, tag="repair"):
    """The state went back to the last batch that was whole; None: to the beginning."""

    files: list[str]

    @property
    def text(self) -> str:
        return f"damaged: {', '.join(self.files)}"


class Restore(Event, tag="restore"):
    """The state of a backup took the place of that of the group."""

    is_copy = True

    @property
    def text(self) -> str:
        return "from a backup"


class Fork(Event, tag="fork"):
    """This group is a copy of another one."""

    is_copy = True
    of: str

    @property
    def text(self) -> str:
        return f"of group {self.of}"


class Backup(Event, tag="backup"):
    """This group is a backup."""

    is_copy = True

    @property
    def text(self) -> str:
        return "to this state directory"


class ClearState(Event, tag="clear_state"):
    """The state was removed."""

    is_copy = True
    reset_offsets: bool

    @property
    def text(self) -> str:
        return "sources begin again" if self.reset_offsets else "sources go on where they are"


class Rescale(Event, tag="rescale"):
    """The state was divided into more or fewer parts."""

    before: int
    partitions: int
    state: tuple[int, int, str]
    """Pages, bytes and checksum."""

    @property
    def text(self) -> str:
        return f"{self.before} -> {self.partitions} parts, checksum {self.state[2]}"


class Reshape(Event, tag="reshape"):
    """The checkpoint was written again for a program with more or fewer key changes."""

    before: int
    layers: int
    last_batch: int
    """The last batch of the generation before; those of this one count from 0."""
    state: tuple[int, int, str]

    @property
    def text(self) -> str:
        return f"{self.before} -> {self.layers} key changes, after batch {self.last_batch}"


# --- batches of edits -----------------------------------------------------------------------


class EditEvent(Event, kw_only=True):
    """A batch in which people changed values."""

    changed: int | None = None
    """How many values were changed."""

    @property
    def edited(self) -> int | None:
        return None if self.changed is None else self.batch


class SetValues(EditEvent, tag="set"):
    """Values of keys were set."""

    store: str
    keys: list[str]
    values: dict[str, str] | None = None
    """What was set, where it is one key."""

    @property
    def text(self) -> str:
        given = "" if self.values is None else f": {_pairs(self.values)}"
        return f"{', '.join(self.keys)} in {self.store}{given}"


class Import(EditEvent, tag="import"):
    """Values of keys were set from a file."""

    file: str
    rows: int

    @property
    def text(self) -> str:
        return f"{self.rows} rows of {self.file}"


class Delete(EditEvent, tag="delete"):
    """A key, or one name of it, was deleted."""

    keys: list[str]
    store: str
    name: str | None = None

    @property
    def text(self) -> str:
        what = "" if self.name is None else f"{self.name} of "
        return f"{what}{', '.join(self.keys)} in {self.store}"


class Rename(EditEvent, tag="rename"):
    """State was moved to another name."""

    old: str
    new: str
    scopes: tuple[str, str] | None = None
    """The key scope before and after, where a whole one was moved."""

    @property
    def text(self) -> str:
        return f"{self.old} -> {self.new}"


class Drop(EditEvent, tag="drop"):
    """Stores were dropped."""

    stores: list[str]

    @property
    def text(self) -> str:
        return ", ".join(self.stores)


class Accept(EditEvent, tag="accept"):
    """A change of the program was accepted, or what it loses was dropped."""

    change: str | None = None
    stores: list[str] | None = None

    @property
    def text(self) -> str:
        return f"change {self.change}" if self.stores is None else f"drops {', '.join(self.stores)}"


class EndBackfill(EditEvent, tag="backfill"):
    """A backfill ended, and the live run begins at these offsets."""

    offsets: dict[str, dict[str, int]]

    @property
    def text(self) -> str:
        return f"the live run begins at {_pairs(self.offsets)}"


class UnknownEvent(Event, tag="?"):
    """An event of a kind, or of a form, that this version does not know."""

    entry: dict[str, Any]

    @property
    def what(self) -> str:
        return str(self.entry.get("what", "?"))

    @property
    def edited(self) -> int | None:
        batch = self.entry.get("batch") if "changed" in self.entry else None
        return batch if isinstance(batch, int) else None

    @property
    def text(self) -> str:
        known = ("what", *Event.__struct_fields__)
        return _pairs({name: value for name, value in self.entry.items() if name not in known})


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


# --- on disk --------------------------------------------------------------------------------

_Known = (
    Rewind
    | Repair
    | Restore
    | Fork
    | Backup
    | ClearState
    | Rescale
    | Reshape
    | SetValues
    | Import
    | Delete
    | Rename
    | Drop
    | Accept
    | EndBackfill
)


def event_of(entry: dict[str, Any]) -> Event:
    """Return the event of an entry on disk; one that is not known is kept as it is."""
    try:
        event: Event = msgspec.convert(entry, _Known)
        return event
    except msgspec.ValidationError:
        known = {name: entry.get(name) for name in Event.__struct_fields__ if name in entry}
        try:
            return msgspec.convert({"what": "?", **known, "entry": entry}, UnknownEvent)
        except msgspec.ValidationError:  # not even these are as they were
            return UnknownEvent(entry=entry)


def entry_of(event: Event) -> dict[str, Any]:
    """Return the entry of an event, as it is on disk."""
    if isinstance(event, UnknownEvent):
        return event.entry
    content = msgspec.to_builtins(event)
    first = {"at": event.at, "what": event.what, "generation": event.generation}
    return {**first, **content}


def edited_batches(events: Iterable[Event]) -> list[int]:
    """Return the batches in which people changed the state, as far as they still count."""
    found: list[int] = []
    for event in events:
        if event.edited is not None:
            found.append(event.edited)
        elif isinstance(event, Reshape):  # batches count from 0 again
            found = []
        elif isinstance(event, Rewind | Repair | Restore | ClearState):
            last = event.to if isinstance(event, Rewind) else event.batch
            found = [batch for batch in found if last is not None and batch <= last]
    return found
