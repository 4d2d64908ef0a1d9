"""Which store that is gone may be one that is new, under another name?

Takes what the manifest says and the plan of the program; gives for each new store the stores that
could have been renamed to it, and the commands that move their state. Only stores that the last
program used, and that this one does not, are candidates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from millpond.arguments.joins import is_join
from millpond.program.layouts import Layout, change
from millpond.program.plan import Plan
from millpond.program.steps import TABLE

__all__ = [
    "Guess",
    "Kept",
    "Place",
    "commands",
    "form_of",
    "likely_renames",
    "why_not_movable",
    "window_of",
]

Place = tuple[str, str]
"""A key scope and a store."""

_NAMES = re.compile(r"[^+/]+")

_WINDOW = re.compile(r"((?:tumbling|hopping|sliding|session)(?:_count)?_window)_\d+(?:_\d+)?")


class Kept(Protocol):
    """What a manifest says about state."""

    stores: dict[str, list[str]]
    active: dict[str, list[str]] | None
    settings: dict[str, dict[str, str]]
    layouts: dict[str, dict[str, list[Layout]]]
    keys: dict[str, str]


@dataclass(frozen=True)
class Guess:
    """What a new store may have been."""

    olds: list[Place]
    """The stores that are gone and could be the new one, the nearest first."""
    likely: list[Place]
    """Those of which something says so: their scope, their name, or that there is no other pair."""


def likely_renames(
    known: Kept, plan: Plan, gone: set[Place], new: set[Place]
) -> dict[Place, Guess]:
    """Return what each new store may have been; those that are certainly new are left out.

    A new store is certainly new where no store of its form is gone but those that have kept the
    name of their step in another key scope.
    """
    used = {place for place in gone if _was_used(known, place)}
    before = {place: form_of(known.settings.get(place[0], {}).get(place[1])) for place in used}
    settings = plan.settings()
    now = {place: form_of(settings.get(place[0], {}).get(place[1])) for place in new}
    found: dict[Place, Guess] = {}
    # What has kept the name of its step is in the same step now, under other keys.
    kept = {old for old in used for store in new if old[1] == store[1] and old[0] != store[0]}
    for place, form in sorted(now.items()):
        alike = [
            old
            for old, kind in before.items()
            if kind == form and (old not in kept or _is_related(old, place))
        ]
        alike.sort(key=lambda old: (old[0] != place[0], old[1] != place[1], old))
        others = list(now.values()).count(form)
        is_only_pair = len(alike) == others == 1
        likely = [old for old in alike if is_only_pair or _is_related(old, place)]
        # Of a topic that was renamed, the rest of the scope's name has stayed.
        nearest = max((_in_common(old, place) for old in likely), default=0)
        likely = [old for old in likely if _in_common(old, place) == nearest]
        if alike:
            found[place] = Guess(alike, likely)
    return found


def _was_used(known: Kept, place: Place) -> bool:
    """Tell whether the last program used a store; all of them, where that is not known."""
    scope, store = place
    return known.active is None or store in known.active.get(scope, [])


def _in_common(old: Place, new: Place) -> int:
    """Return how many names two key scopes share, of topics and of what has changed the key."""
    ours, theirs = (set(_NAMES.findall(scope)) for scope, _ in (old, new))
    return len(ours & theirs) - len(ours ^ theirs)


def _is_related(old: Place, new: Place) -> bool:
    return old[0] == new[0] or old[1] == new[1]


def form_of(settings: str | None) -> str:
    """Return in which form a store of these settings is kept; windows over time are one form.

    >>> form_of("session_window_1800000, closed by watermark"), form_of(None)
    ('window', 'values')
    >>> form_of("hopping_count_window_10_5, closed by key")
    'count_window'
    """
    if not settings:
        return "values"
    if settings == TABLE:
        return TABLE
    if is_join(settings):
        return "join"
    found = _WINDOW.match(settings)
    if found is None:
        return "agg"
    return "count_window" if found[1].endswith("_count_window") else "window"


def window_of(text: str) -> str | None:
    """Return the window, with its lengths, that settings or the name of a store speak of."""
    found = _WINDOW.search(text)
    return found[0] if found else None


def commands(known: Kept, plan: Plan, old: Place, new: Place) -> list[tuple[str, str]]:
    """Return the renames, one after the other, that move a store; none where it cannot move."""
    (scope, store), (new_scope, new_store) = old, new
    if why_not_movable(known, plan, old, new) or _is_of_another_kind(old, new):
        return []
    if scope == new_scope:
        return [(f"{scope}/{store}", f"{scope}/{new_store}")]
    asked = plan.stores()
    if scope in asked or new_scope in known.stores:
        return []
    # The other stores of the scope go with it, so each must be wanted there, and be read.
    others = {s for s in known.stores[scope] if s != store and _was_used(known, (scope, s))}
    if not others <= set(asked[new_scope]) or (store != new_store and store in asked[new_scope]):
        return []
    if any(why_not_movable(known, plan, (scope, s), (new_scope, s)) for s in known.stores[scope]):
        return []
    moves = [(scope, new_scope)]
    if store != new_store:
        moves.append((f"{new_scope}/{store}", f"{new_scope}/{new_store}"))
    return moves


def _is_of_another_kind(old: Place, new: Place) -> bool:
    """Tell whether one store is that of functions with a `State`, and the other most likely not.

    Those share the store "default". `stateful_map` has a store with a name, and one value in it.
    """
    return (old[1] == "default") != (new[1] == "default")


def why_not_movable(known: Kept, plan: Plan | None, old: Place, new: Place) -> str:
    """Return why the state of one store cannot be read as that of another; empty: it can."""
    before = known.settings.get(old[0], {}).get(old[1])
    names = "/".join(old), "/".join(new)
    asked = {} if plan is None else plan.stores()
    if plan is None or new[1] not in asked.get(new[0], []):
        # Without the program, the name of a window's store has its lengths.
        was, wanted = window_of(before or ""), window_of(new[1])
        if was is not None and wanted is not None and was != wanted:
            return f"{names[0]} is the state of {was}, and {names[1]} names {wanted}."
        return ""
    now = plan.settings().get(new[0], {}).get(new[1])
    if before != now:
        made = [text or "values that a function sets" for text in (before, now)]
        return (
            f"{names[0]} was made with\n  {made[0]}\nand the program keeps under {names[1]}\n"
            f"  {made[1]}"
        )
    layouts = known.layouts.get(old[0], {}).get(old[1])
    fields = plan.layouts().get(new[0], {}).get(new[1])
    if layouts and fields and (lost := change(layouts[-1], fields).removed):
        return f"{names[1]} has no {', '.join(lost)}, so {names[0]} would lose what it has there."
    kinds = known.keys.get(old[0]), plan.keys().get(new[0])
    if kinds[0] is not None and (kinds[0] == "typed") is not (kinds[1] == "typed"):
        return f"the keys of {names[0]} are {kinds[0]}, and those of {names[1]} are {kinds[1]}."
    return ""
