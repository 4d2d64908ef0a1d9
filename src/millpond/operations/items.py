"""What people are shown of state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millpond.record import Record

__all__ = ["ChangedValue", "Difference", "GroupInfo", "KeySize", "KeyTimer", "StateItem"]


class StateItem(NamedTuple):
    """One value of state, and where it lies."""

    scope: str
    key: Any
    store: str
    name: Any
    value: Any
    expires: int | None = None
    """When it is gone, in milliseconds since 1970; None: never."""


class KeyTimer(NamedTuple):
    """A moment at which a key is to be called."""

    scope: str
    key: Any
    step: str
    name: str
    at: int
    clock: str


@dataclass(frozen=True)
class ChangedValue:
    """A change of one value by one batch."""

    batch: int
    time_ms: int
    """When the batch was planned."""
    scope: str
    key: Any
    store: str
    name: Any
    before: Any
    after: Any
    is_new: bool = False
    is_gone: bool = False
    is_by_hand: bool = False
    """Whether people did it, with `millpond state`."""
    records: list[Record] = field(default_factory=list)
    """The records of the batch that reached the key, where the source still has them."""


class Difference(NamedTuple):
    """A value that two batches do not have in common."""

    scope: str
    key: Any
    store: str
    name: Any
    before: Any
    after: Any
    is_new: bool
    is_gone: bool


class KeySize(NamedTuple):
    """How much a key keeps, and how often it changed."""

    scope: str
    key: Any
    bytes: int
    values: int
    changes: int | None
    """Batches that changed it, as far back as they are kept; None: they were not counted."""


@dataclass(frozen=True)
class GroupInfo:
    """A consumer group and its state."""

    group: str
    generation: int
    generations: list[int]
    partitions: int
    stores: list[str]
    keys: int | None
    """None: not known until the next batch."""
    bytes: int
    """Of all files of the generation."""
    first_batch: int | None
    last_batch: int | None
    last_commit_ms: int | None
    watermarks: dict[str, int]
    running: bool
