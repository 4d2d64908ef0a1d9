"""A changed program on the state that the local engine has kept: what becomes of that state.

Takes what the engine before has said of its state, and a plan; refuses what `run` would refuse on
Spark, and drops from the stores what is accepted to be lost.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import msgspec

from millpond.errors import StateError
from millpond.program.plan import Plan
from millpond.state.edit import Edit, apply_edits
from millpond.state.store import MemoryStore
from millpond.storage.claims import claims_of, without
from millpond.storage.compare import compare
from millpond.storage.manifest import Manifest

__all__ = ["succeed"]

Stores = MutableMapping[tuple[str, int], MemoryStore]
"""The stores of each key scope and group."""


def succeed(known: Manifest, plan: Plan, stores: Stores, accept: bool) -> Manifest:
    """Return what is said of the state with a program; drop from the stores what it loses.

    Args:
        known: What was said of the state with the program before.
        plan: The changed program.
        stores: Its state.
        accept: Whether state may be left behind.

    Raises:
        StateError: where the state does not fit, and that is not accepted.
    """
    # There are no operators of Spark's here.
    known = msgspec.structs.replace(known, layers=plan.layers, layer_of={})
    verdicts = compare(known, plan, "local", accept)
    refused = [verdict for verdict in verdicts if verdict.says == "refuse"]
    for verdict in sorted(refused, key=lambda verdict: verdict.can_accept):
        fix = 'change the program back, or LocalEngine(on_state_change="accept").'
        raise StateError(f"{verdict.why}\nFix: {fix if verdict.can_accept else verdict.fix}")
    lost = {(v.scope, v.store) for v in verdicts if v.says in ("reset", "dropped")}
    for place, kept in stores.items():
        if edits := [Edit("drop", None, store) for scope, store in lost if scope == place[0]]:
            apply_edits(kept, edits, known.groups)
    now = Manifest(known.groups, known.partitions)
    now.say(claims_of(plan, without(known.claims(), lost)), None)
    return now
