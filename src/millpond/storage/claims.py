"""What a manifest says of the state: what a program adds to it, and what goes with a store.

Takes and gives `Manifest.claims()`: dicts by key scope of what is known of its stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.program.layouts import following
from millpond.program.plan import Plan

__all__ = ["claims_of", "without"]


def claims_of(plan: Plan, known: dict[str, Any]) -> dict[str, Any]:
    """Return what is said of the state with a program; what earlier ones kept stays."""
    known["layers"] = plan.layers
    known["layer_of"].update({s.scope: s.layer for s in plan.stages if s.stores})
    known["keys"].update(plan.keys())
    for name, said in (("versions", plan.versions()), ("settings", plan.settings())):
        for scope, by_store in said.items():
            known[name].setdefault(scope, {}).update(by_store)
    for scope, layouts in plan.layouts().items():
        before = known["layouts"].setdefault(scope, {})
        before.update({s: following(before.get(s, []), now) for s, now in layouts.items()})
    for scope, stores in plan.stores().items():
        mine = known["stores"].setdefault(scope, [])
        mine += [store for store in stores if store not in mine]
    known["active"] = plan.stores()
    for scope, names in plan.timers().items():
        mine = known["timers"].setdefault(scope, [])
        mine += [name for name in names if name not in mine]
    return known


def without(claims: dict[str, Any], places: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return what is said of the state without some stores."""
    said = [about for about in claims.values() if isinstance(about, dict)]
    for scope, store in places:
        if store == "default":  # the only one whose functions can set timers
            claims["timers"].pop(scope, None)
        for about in said:
            mine = about.get(scope)
            if isinstance(mine, list) and store in mine:
                mine.remove(store)
            elif isinstance(mine, dict):
                mine.pop(store, None)
    for scope in [scope for scope, stores in claims["stores"].items() if not stores]:
        for about in said:
            about.pop(scope, None)
    return claims
