"""Making the state fit a program, before the program runs.

Takes an opened group and a plan that its state does not refuse; drops what was accepted to be lost,
and gives the checkpoint the shape of the plan, each in a new generation. Nothing is changed where
the state fits as it is.
"""

from __future__ import annotations

import logging

from millpond.operations.drop import drop_places
from millpond.operations.reshape import reshape
from millpond.operations.session import Opened
from millpond.program.plan import Plan
from millpond.storage.audit import Accept
from millpond.storage.compare import needs_reshape
from millpond.storage.manifest import Manifest

__all__ = ["fit"]

logger = logging.getLogger("millpond")


def fit(opened: Opened, plan: Plan, accept: bool) -> None:
    """Change the state so that a program can go on with it.

    Args:
        opened: The group, held.
        plan: The program.
        accept: Whether the program accepts that state is left behind.
    """
    directory = opened.directory
    known = directory.known(plan)
    if known is None:
        return
    is_accepted = directory.is_accepted(known, plan)
    verdicts = directory.verdicts(known, plan, accept=accept)

    def settle(manifest: Manifest) -> None:
        manifest.active = adopted(manifest, plan)
        if is_accepted:  # what is left of the change, by this start or the next one
            manifest.accepted = directory.change(manifest, plan)

    lost = {(v.scope, v.store) for v in verdicts if v.says in ("reset", "dropped")}
    if lost:
        drop_places(opened, lost, Accept, settle)
        names = ", ".join(sorted("/".join(place) for place in lost))
        logger.info("%s: what was kept is dropped, as was accepted", names)
        known = directory.known(plan)
    if known is not None and needs_reshape(known, plan):
        reshape(opened, plan, settle)


def adopted(known: Manifest, plan: Plan) -> dict[str, list[str]]:
    """Return the stores that are in use when a program was accepted.

    What it leaves is an orphan from then on, even where the program ends before its first batch.
    """
    return {
        scope: [store for store in stores if store in known.stores.get(scope, [])]
        for scope, stores in plan.stores().items()
    }
