"""A program and the state that it will meet: does one fit the other?

Takes the manifest of the state and the plan of the program; gives a `Verdict` for every store.
`run` refuses what is refused here, and `millpond check` shows it before anybody deploys it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from millpond.errors import StateError
from millpond.plan.plan import Plan

__all__ = ["Verdict", "check", "compare"]


class Known(Protocol):
    """What a manifest says about state."""

    layers: int
    stores: dict[str, list[str]]
    layer_of: dict[str, int]
    settings: dict[str, dict[str, str]]
    keys: dict[str, str]
    versions: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Verdict:
    """What becomes of one store."""

    scope: str
    store: str
    says: Literal["reuse", "new", "migrate", "orphaned", "refuse"]
    why: str
    fix: str = ""

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.store}"


def compare(known: Known, plan: Plan, group: str) -> list[Verdict]:
    """Return what becomes of every store of the state and of the program."""
    kept = {(scope, store) for scope, stores in known.stores.items() for store in stores}
    asked = {(scope, store) for scope, stores in plan.stores().items() for store in stores}
    gone, new = kept - asked, asked - kept
    verdicts = [_of_kept(known, plan, *place, group) for place in sorted(kept & asked)]
    verdicts += _of_new(sorted(new), sorted(gone), known, plan, group)
    return [*verdicts, *(_of_gone(known, plan, *place, group) for place in sorted(gone))]


def check(known: Known, plan: Plan, group: str) -> None:
    """Refuse a program that the state does not fit."""
    for verdict in compare(known, plan, group):
        if verdict.says == "refuse":
            raise StateError(f"{verdict.why}\nFix: {verdict.fix}")


def _of_kept(known: Known, plan: Plan, scope: str, store: str, group: str) -> Verdict:
    refusals = [
        *_other_layers(known, plan, group),
        *_moved(known, plan, scope, group),
        *_made_otherwise(known, plan, scope, store, group),
        *_other_keys(known, plan, scope, group),
        *_older_program(known, plan, scope, store, group),
    ]
    if refusals:
        return Verdict(scope, store, "refuse", *refusals[0])
    was, version = _versions(known, plan, scope, store)
    if version > was:
        why = f"its values are lifted from version {was} to {version} as they are read"
        return Verdict(scope, store, "migrate", why)
    before, now = known.keys.get(scope), plan.keys().get(scope)
    if before is not None and before != now:
        return Verdict(scope, store, "reuse", f"keys were read as {before} and are now as {now}")
    return Verdict(scope, store, "reuse", "the program goes on with it")


def _of_gone(known: Known, plan: Plan, scope: str, store: str, group: str) -> Verdict:
    for why, fix in _other_layers(known, plan, group):
        return Verdict(scope, store, "refuse", why, fix)
    return Verdict(scope, store, "orphaned", "nothing in the program uses it; it is kept")


def _of_new(
    new: list[tuple[str, str]], gone: list[tuple[str, str]], known: Known, plan: Plan, group: str
) -> Iterator[Verdict]:
    """What looks like a rename is refused: state that nothing reads beside a store that is new."""
    for scope, store in new:
        if known.stores and known.layers != plan.layers:
            yield Verdict(scope, store, "refuse", *next(_other_layers(known, plan, group)))
        elif gone:
            old = ", ".join("/".join(place) for place in gone)
            # State of windows and aggregations fits nothing that is made in another way.
            made = {place: known.settings.get(place[0], {}).get(place[1]) for place in gone}
            wants = plan.settings().get(scope, {}).get(store)
            fitting = ["/".join(place) for place in gone if made[place] == wants]
            wanted = ", ".join("/".join(place) for place in new)
            why = (
                f"group {group!r} has state under {old}, which this program does not use; it asks "
                f"for {wanted} instead. Was something renamed?"
            )
            move = ""
            if fitting:
                move = f", or move the state: millpond state rename APP.py {fitting[0]} "
                move += f"{scope}/{store}"
            fix = (
                f"use the old name (of the topic, the group_by or the stateful_map){move}; or use "
                "another consumer_group, or start without state: app.clear_state()."
            )
            yield Verdict(scope, store, "refuse", why, fix)
        else:
            yield Verdict(scope, store, "new", "it starts empty")


def _other_layers(known: Known, plan: Plan, group: str) -> Iterator[tuple[str, str]]:
    if known.layers != plan.layers:
        why = (
            f"the state of group {group!r} was written by a program with {known.layers} change(s) "
            f"of key; this one has {plan.layers}."
        )
        yield why, "use another consumer_group, or start without state: app.clear_state()."


def _moved(known: Known, plan: Plan, scope: str, group: str) -> Iterator[tuple[str, str]]:
    """State that would be looked for in another Spark operator than has it."""
    layer = next(stage.layer for stage in plan.stages if stage.scope == scope)
    before = known.layer_of.get(scope, layer)
    if before != layer:
        why = (
            f"the state {scope!r} of group {group!r} was kept behind {before} change(s) of key and "
            f"is now behind {layer}: it would not be found."
        )
        fix = (
            "put the stateful step back where it was, or use another consumer_group, or start "
            "without state: app.clear_state()."
        )
        yield why, fix


def _made_otherwise(
    known: Known, plan: Plan, scope: str, store: str, group: str
) -> Iterator[tuple[str, str]]:
    """State that was made by another window or another aggregation."""
    now = plan.settings().get(scope, {}).get(store)
    before = known.settings.get(scope, {}).get(store, now)
    if now is not None and before != now:
        why = (
            f"the state {scope}/{store} of group {group!r} was made with\n  {before}\nand the "
            f"program now asks for\n  {now}"
        )
        fix = (
            "put it back, or give the step another name= (it starts empty), or use another "
            "consumer_group, or start without state: app.clear_state()."
        )
        yield why, fix


def _other_keys(known: Known, plan: Plan, scope: str, group: str) -> Iterator[tuple[str, str]]:
    """Keys that are written in another way: none would be found again."""
    now = plan.keys().get(scope)
    before = known.keys.get(scope, now)
    if (before == "typed") is not (now == "typed"):
        why = f"the keys of {scope!r} in group {group!r} were {before} and are now {now}."
        fix = "put it back, or use another consumer_group."
        yield why, fix


def _older_program(
    known: Known, plan: Plan, scope: str, store: str, group: str
) -> Iterator[tuple[str, str]]:
    was, version = _versions(known, plan, scope, store)
    if version < was:
        why = (
            f"the state {scope}/{store} of group {group!r} is of version {was}; this program knows "
            f"versions up to {version}."
        )
        yield why, "run the newer program, or rewind to before it ran: millpond state rewind."


def _versions(known: Known, plan: Plan, scope: str, store: str) -> tuple[int, int]:
    """Return the version of a store, and the one that the program wants."""
    was = known.versions.get(scope, {}).get(store, 1)
    return was, plan.versions().get(scope, {}).get(store, 1)
