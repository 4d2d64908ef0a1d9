"""Layouts: which aggregations the states of a store belong to, and how that may change.

`agg` and windows keep a list of states, one for each aggregation. A layout says what is in that
list: fields in their order, each with the signature of its aggregation. Takes the layouts that a
store has had and the one that a program asks for; gives what changed, the text that says so, and
where each state of an older list belongs. A state is the same where field and signature are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.program.steps import RUNNING

__all__ = [
    "Change",
    "Layout",
    "Layouts",
    "change",
    "following",
    "from_text",
    "origins",
    "settings_of",
    "text_of",
    "translated",
]

Layout = dict[str, str]
"""For each field, in the order of the states, the signature of its aggregation."""

Layouts = Sequence[Layout]
"""All that a store has had; the last one is written now, a state says by number which it has."""

# One field as version 0.1.0 wrote it, `spent=Sum(amount)`. Where a column, or a signature of the
# user's, has one of these signs in it, nobody can tell where a field ends: the text is kept.
_FIELD = re.compile(r"([^()=,]+)=([^()=,]+(?:\([^()=]*\))?)(?:, |$)")
_WINDOW = re.compile(r"(\w+, closed by (?:watermark|key)(?:, corrected)?): (.+)", re.DOTALL)


@dataclass(frozen=True)
class Change:
    """What a program changes in a layout; a field with another signature is removed and added."""

    kept: Layout
    added: Layout
    removed: Layout

    @property
    def why(self) -> str:
        """What becomes of the fields, where the change is made."""
        parts = [f"drops {', '.join(self.removed)}"] if self.removed else []
        if self.added:
            begin = "starts empty" if len(self.added) == 1 else "start empty"
            beside = f" beside {', '.join(self.kept)}" if self.kept else ""
            parts.append(f"{', '.join(self.added)} {begin}{beside}")
        return "; ".join(parts)

    def refusal(self, place: str, group: str) -> tuple[str, str]:
        """Return why what would be lost is refused, and what to do."""
        lost = []
        for name, signature in self.removed.items():
            now = f"is now {self.added[name]}" if name in self.added else "is no longer there"
            lost.append(f"  {name} was {signature} and {now}")
        fields = "\n".join(lost)
        why = (
            f"the state {place} of group {group!r} would lose what it has aggregated in "
            f"{', '.join(self.removed)}:\n{fields}"
        )
        them = "it" if len(lost) == 1 else "them"
        fix = (
            f"put {them} back, or have {them} dropped: millpond check --accept APP.py, or "
            'Application(on_state_change="accept"); an aggregation under a new field starts '
            "empty and needs neither."
        )
        return why, fix


def change(known: Layout, asked: Layout) -> Change:
    """Return what a program changes.

    >>> changed = change({"n": "Count()", "spent": "Sum()"}, {"most": "Max()", "n": "Count()"})
    >>> changed.why
    'drops spent; most starts empty beside n'
    """
    kept = {name: signature for name, signature in known.items() if asked.get(name) == signature}
    added = {name: signature for name, signature in asked.items() if name not in kept}
    removed = {name: signature for name, signature in known.items() if name not in kept}
    return Change(kept, added, removed)


def following(known: Layouts, asked: Layout) -> list[Layout]:
    """Return the layouts of a store under a program.

    Another order of the same fields is no other layout: states stay where they are.

    >>> following([{"n": "Count()"}], {"most": "Max()", "n": "Count()"})
    [{'n': 'Count()'}, {'n': 'Count()', 'most': 'Max()'}]
    """
    if not known:
        return [dict(asked)]
    changed = change(known[-1], asked)
    if not changed.added and not changed.removed:
        return list(known)
    return [*known, {**changed.kept, **changed.added}]


def origins(layouts: Layouts) -> list[list[int | None]]:
    """Return, for each layout, where in a list of it the states of the last one are; None: new.

    What was removed in between is new, though an old list still has a state of that name.

    >>> origins([{"a": "Sum()", "b": "Sum()"}, {"a": "Sum()"}, {"a": "Sum()", "b": "Sum()"}])
    [[0, None], [0, None], [0, 1]]
    """
    now = layouts[-1]
    found: list[list[int | None]] = []
    for number, layout in enumerate(layouts):
        places = {name: place for place, name in enumerate(layout)}
        later = layouts[number:]
        stayed = {name for name in now if all(way.get(name) == now[name] for way in later)}
        found.append([places[name] if name in stayed else None for name in now])
    return found


# --- what version 0.1.0 wrote ---------------------------------------------------------------


def text_of(settings: str, layout: Layout) -> str:
    """Return the settings of a store as version 0.1.0 wrote them: with the aggregations.

    >>> text_of("tumbling_window_10, closed by key", {"n": "Count()"})
    'tumbling_window_10, closed by key: n=Count()'
    """
    fields = ", ".join(f"{name}={signature}" for name, signature in layout.items())
    return fields if settings == RUNNING else f"{settings}: {fields}"


def settings_of(text: str) -> str | None:
    """Return the settings without the aggregations, of a text that may have them."""
    window = _WINDOW.fullmatch(text)
    if window is not None:
        return window[1]
    return RUNNING if from_text(text) is not None else None


def from_text(text: str) -> Layout | None:
    """Return the layout in a text of version 0.1.0; None where it is not certain.

    >>> from_text("n=Count(), spent=Sum(amount)")
    {'n': 'Count()', 'spent': 'Sum(amount)'}
    >>> from_text("spent=Sum(amount (in EUR), or so)")
    """
    window = _WINDOW.fullmatch(text)
    rest = text if window is None else window[2]
    found: Layout = {}
    place = 0
    while place < len(rest):
        field = _FIELD.match(rest, place)
        if field is None or field[1] in found:
            return None
        found[field[1]] = field[2]
        place = field.end()
    is_whole = bool(found) and not rest.endswith(", ")
    return found if is_whole else None


def translated(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of state, where version 0.1.0 wrote it, as it is said now.

    Where a text cannot be taken apart for certain it stays as it is, and has no layout.
    """
    settings: dict[str, dict[str, str]] = {}
    layouts = {scope: dict(stores) for scope, stores in claims.get("layouts", {}).items()}
    for scope, stores in claims.get("settings", {}).items():
        settings[scope] = dict(stores)
        for store, text in stores.items():
            if store in layouts.get(scope, {}):
                continue
            layout, rest = from_text(text), settings_of(text)
            if rest is not None and _keeps_records(rest):
                settings[scope][store] = rest
            elif rest is not None and layout is not None:
                settings[scope][store] = rest
                layouts.setdefault(scope, {})[store] = [layout]
    return {**claims, "settings": settings, "layouts": layouts}


def _keeps_records(settings: str) -> bool:
    """Tell whether a store has the records themselves, from which any result can be made."""
    return settings.startswith("sliding_window_")
