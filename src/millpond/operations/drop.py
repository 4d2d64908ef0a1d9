"""Dropping stores: everything that was kept under a name goes, from all keys.

Takes an opened group and names of stores or key scopes; gives a plan. Where the plan is applied, a
new generation is made without their values, timers and notes of when to look at a key. The workers
do it, each for its key groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import ConfigError, StateError
from millpond.operations.basis import Basis, basis_of
from millpond.operations.edit_batch import frame_of, run_rows
from millpond.operations.session import Opened
from millpond.program.steps import TABLE
from millpond.state.edit import Edit, encode_edits
from millpond.storage.audit import Accept, Drop
from millpond.storage.claims import without
from millpond.storage.manifest import Manifest
from millpond.storage.rename_guess import Place

__all__ = ["DropPlan", "apply_drop", "drop_places", "places_of", "plan_drop", "prepare_drop"]


@dataclass(frozen=True)
class DropPlan:
    """What goes when stores are dropped."""

    stores: list[str]
    values: int
    """Values that they have."""
    keys: int
    """Keys that have these values."""
    tables: list[str]
    """Those of them that are tables of `update_state`."""
    in_use: list[str]
    """The stores that the program uses: they start empty."""
    basis: Basis

    def __str__(self) -> str:
        names = ", ".join(self.stores)
        text = f"{names}: {self.values:,} value(s) of {self.keys:,} key(s) are dropped"
        if self.tables:
            text += f", and the table(s) {', '.join(self.tables)}"
        if self.in_use:
            text += f"; the program uses {', '.join(self.in_use)}, which then starts empty"
        return text + "; all other state stays"


def prepare_drop(opened: Opened, names: Sequence[str]) -> DropPlan:
    """Return the plan of dropping stores; what would go is counted."""
    manifest, batch = opened.view(None)
    places = places_of(manifest, names)
    program = opened.plan()
    asked = {} if program is None else program.stores()
    basis = basis_of(opened.directory, manifest)
    return plan_drop(manifest, places, asked, _count(opened, manifest, places, batch), basis)


def places_of(manifest: Manifest, names: Sequence[str]) -> list[Place]:
    """Return the stores that names mean."""
    places = sorted({place for name in names for place in _places(manifest, name)})
    if not places:
        msg = "drop() was given no store."
        raise ConfigError(msg + f"\nFix: name one of {', '.join(_known(manifest))}.")
    return places


def plan_drop(
    manifest: Manifest,
    places: Sequence[Place],
    asked: Mapping[str, Collection[str]],
    count: tuple[int, int],
    basis: Basis,
) -> DropPlan:
    """Return the plan of dropping stores.

    Args:
        manifest: What is said of the state.
        places: The stores.
        asked: The stores that the program uses, by key scope.
        count: How many values the stores have, and of how many keys.
        basis: The state as it is.
    """
    return DropPlan(
        ["/".join(place) for place in places],
        *count,
        [f"{s}/{n}" for s, n in places if manifest.settings.get(s, {}).get(n) == TABLE],
        [f"{s}/{n}" for s, n in places if n in asked.get(s, [])],
        basis,
    )


def apply_drop(opened: Opened, plan: DropPlan) -> None:
    """Drop stores as planned.

    Raises:
        StateError: where the state is not the one that the plan was made from.
    """
    manifest, _ = opened.view(None)
    drop_places(opened, places_of(manifest, plan.stores), Drop, basis=plan.basis)


def _places(manifest: Manifest, name: str) -> list[Place]:
    """Return the stores that a name means: one by its full name, all of a scope, or the only one.

    A name that ends with a slash is always that of a key scope.
    """
    every = [(scope, store) for scope, stores in manifest.stores.items() for store in stores]
    for found in (
        [place for place in every if name == "/".join(place)],
        [place for place in every if name.removesuffix("/") == place[0]],
    ):
        if found:
            return found
    found = [place for place in every if name == place[1]]
    if len(found) != 1:
        known = _known(manifest)
        what = f"{name!r} names {len(found)} stores" if found else f"there is no store {name!r}"
        first = "/".join(found[0]) if found else (known or ["none"])[0]
        msg = f"{what}; there are {', '.join(known) or 'none'}."
        raise StateError(msg + f"\nFix: name a store with its key scope, as in {first}.")
    return found


def _known(manifest: Manifest) -> list[str]:
    return [f"{scope}/{store}" for scope, stores in manifest.stores.items() for store in stores]


def _count(opened: Opened, manifest: Manifest, places: list[Place], batch: int) -> tuple[int, int]:
    """Return how many values stores have, and of how many keys."""
    from millpond.spark.statestore import counted, telling

    reader = opened.reader(manifest)
    with telling(reader.checkpoint):
        return counted(reader.rows(batch), places)


def drop_places(
    opened: Opened,
    places: Iterable[Place],
    kind: type[Drop] | type[Accept],
    settle: Callable[[Manifest], None] | None = None,
    basis: Basis | None = None,
) -> None:
    """Drop stores in a new generation.

    Args:
        opened: The group.
        places: The stores.
        kind: What the audit calls it.
        settle: Writes into the manifest what else is to be known of the state from then on.
        basis: The state that this was planned for. Default: any.
    """
    from millpond.spark.edit import CLEAR, EDITS

    gone = sorted(places)

    def rows(known: Manifest) -> Any:
        found: list[tuple[str, int, int, bytes]] = []
        for scope in sorted({scope for scope, _ in gone}):
            stores = [store for held_in, store in gone if held_in == scope]
            is_whole = set(known.stores[scope]) == set(stores)
            edits = encode_edits(Edit("drop", None, store) for store in stores)
            row = (CLEAR, b"") if is_whole else (EDITS, edits)
            found += [(scope, group, *row) for group in range(known.groups)]
        return frame_of(opened, found)

    event = kind(stores=["/".join(place) for place in gone])
    run_rows(opened, rows, event, lambda claims: without(claims, gone), settle=settle, basis=basis)
