"""Names of key scopes: the identity of state.

State belongs to (key scope, store). A scope is named after what gave the records their key:
the source, then each `group_by` on the way. Position in the program does not matter.
"""

from __future__ import annotations

from millpond.errors import PlanError
from millpond.program.cut import Cut
from millpond.program.graph import Graph
from millpond.program.steps import Join, KeyBy, Read, Step

__all__ = ["name_scopes"]


def name_scopes(graph: Graph, cut: Cut) -> dict[int, str]:
    """Return the scope name of each stateful stage; refuse two scopes of one name."""
    names = {number: _scope_name(start) for number, start in cut.starts.items()}
    seen: dict[str, int] = {}
    for number, name in names.items():
        if name in seen:
            one, other = cut.starts[seen[name]], cut.starts[number]
            msg = (
                f"two frames keep state under the same name {name!r}: {one} ({one.call_site}) and "
                f"{other} ({other.call_site}).\n"
                "Fix: give one of them another name=..., in its group_by or join; or use one frame."
            )
            raise PlanError(msg)
        seen[name] = number
    return names


def _scope_name(step: Step) -> str:
    if isinstance(step, Read):
        return step.source.name
    below = "+".join(sorted({_scope_name(parent) for parent in step.parents}))
    return f"{below}/{step.name}" if isinstance(step, KeyBy | Join) else below
