"""What a manifest says of the state: whose it is, and how it is to be read.

It changes with the program, and by manual changes. Takes what is said and a plan, or names of
stores; gives what is said from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, Self

import msgspec

from millpond.program.layouts import Layout, following
from millpond.program.plan import Plan

__all__ = ["Claims", "Era", "Names", "claims_of", "said_in", "without"]

Names = dict[str, list[str]]
"""Names by key scope."""


class Claims(msgspec.Struct, kw_only=True):
    """What is said of the state."""

    layers: int = 0
    stores: Names = msgspec.field(default_factory=dict)
    """Stores of each key scope, those of earlier programs included."""
    active: Names | None = None
    """The stores that the last program used; None: not known, an older version wrote this."""
    layer_of: dict[str, int] = msgspec.field(default_factory=dict)
    """The layer, so the Spark operator, that has the state of each key scope."""
    settings: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """How the windows and aggregates of each key scope were made, aggregations aside."""
    layouts: dict[str, dict[str, list[Layout]]] = msgspec.field(default_factory=dict)
    """All layouts that the states of each store have had, the present one last."""
    keys: dict[str, str] = msgspec.field(default_factory=dict)
    """How the keys of each key scope are read: "typed", or the name of a deserializer."""
    versions: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """To which version the values of each store are lifted; where nothing is said, 1."""
    timers: Names = msgspec.field(default_factory=dict)
    """The functions of each key scope that set timers, those of earlier programs included, each
    as "name()"."""

    def claims(self) -> Claims:
        """Return what is said, as a copy."""
        return Claims(**_copied(self))

    def saying(self, claims: Claims, **others: Any) -> Self:
        """Return the same with other claims."""
        return msgspec.structs.replace(self, **_copied(claims), **others)


class Era(Claims, forbid_unknown_fields=True):
    """What was said of the state up to a batch, where something else is said now."""

    until: int

    @classmethod
    def of(cls, claims: Claims, until: int) -> Era:
        """Return what was said until a batch."""
        return cls(until=until, **_copied(claims))


def _copied(claims: Claims) -> dict[str, Any]:
    return {name: deepcopy(getattr(claims, name)) for name in Claims.__struct_fields__}


def said_in(claims: Claims) -> Iterator[dict[str, Any]]:
    """Yield each thing that is said, by key scope."""
    for name in Claims.__struct_fields__:
        said = getattr(claims, name)
        if isinstance(said, dict):
            yield said


def claims_of(plan: Plan, known: Claims) -> Claims:
    """Return what is said of the state with a program; what earlier ones kept stays."""
    known.layers = plan.layers
    known.layer_of.update({s.scope: s.layer for s in plan.stages if s.stores})
    known.keys.update(plan.keys())
    for scope, versions in plan.versions().items():
        known.versions.setdefault(scope, {}).update(versions)
    for scope, settings in plan.settings().items():
        known.settings.setdefault(scope, {}).update(settings)
    for scope, layouts in plan.layouts().items():
        before = known.layouts.setdefault(scope, {})
        before.update({s: following(before.get(s, []), now) for s, now in layouts.items()})
    for scope, stores in plan.stores().items():
        mine = known.stores.setdefault(scope, [])
        mine += [store for store in stores if store not in mine]
    known.active = plan.stores()
    for scope, names in plan.timers().items():
        mine = known.timers.setdefault(scope, [])
        mine += [name for name in names if name not in mine]
    return known


def without(claims: Claims, places: Iterable[tuple[str, str]]) -> Claims:
    """Return what is said of the state without some stores."""
    for scope, store in places:
        if store == "default":  # the only one whose functions can set timers
            claims.timers.pop(scope, None)
        for about in said_in(claims):
            mine = about.get(scope)
            if isinstance(mine, list) and store in mine:
                mine.remove(store)
            elif isinstance(mine, dict):
                mine.pop(store, None)
    for scope in [scope for scope, stores in claims.stores.items() if not stores]:
        for about in said_in(claims):
            about.pop(scope, None)
    return claims
