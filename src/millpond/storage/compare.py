"""A program and the state that it will meet: does one fit the other?

Takes the manifest of the state and the plan of the program; gives a `Verdict` for every store.
`run` refuses what is refused here, and `millpond check` shows it before anybody deploys it. Where
only state that cannot be used stands against a program, somebody may accept that it is left.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import msgspec

from millpond.errors import StateError
from millpond.program.layouts import Layout, change, text_of
from millpond.program.plan import Plan
from millpond.storage.claims import Claims, Era
from millpond.storage.rename_guess import Place, commands, likely_renames

__all__ = ["Says", "Verdict", "check", "compare", "fingerprint", "needs_reshape"]

Says = Literal["reuse", "new", "migrate", "reshape", "orphaned", "reset", "dropped", "refuse"]

# Stores from which a message proposes to move state.
_WAYS = 3

ACCEPT = 'millpond check --accept APP.py, or Application(on_state_change="accept")'


class Known(Protocol):
    """What a manifest says about state."""

    layers: int
    stores: dict[str, list[str]]
    active: dict[str, list[str]] | None
    layer_of: dict[str, int]
    settings: dict[str, dict[str, str]]
    layouts: dict[str, dict[str, list[Layout]]]
    keys: dict[str, str]
    versions: dict[str, dict[str, int]]
    timers: dict[str, list[str]]
    earlier: list[Era]

    def claims(self) -> Claims:
        """Return all that is said of the state."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of one store."""

    scope: str
    store: str
    says: Says
    why: str
    fix: str = ""
    then: Says | None = None
    """What a refused store becomes where the change is accepted; None: it cannot be accepted."""

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.store}"

    @property
    def can_accept(self) -> bool:
        """Whether this is refused until somebody accepts it."""
        return self.says == "refuse" and self.then is not None


_ACCEPTED: dict[Says, str] = {
    "new": "it starts empty, as was accepted",
    "reset": "it starts empty, and what is there is dropped, as was accepted",
    "dropped": "nothing can keep it, and it is dropped, as was accepted",
    "reuse": "the program goes on with it as it was left, as was accepted",
    "migrate": "its values are migrated as they are read, as was accepted",
    "reshape": "it goes on as it was left, in a rewritten checkpoint, as was accepted",
    "orphaned": "nothing uses it; it is kept, as was accepted",
}


def compare(known: Known, plan: Plan, group: str, accept: bool = False) -> list[Verdict]:
    """Return what becomes of every store of the state and of the program.

    Args:
        known: What the manifest says.
        plan: The program.
        group: The consumer group.
        accept: Whether a change is accepted that leaves state behind.
    """
    kept = {(scope, store) for scope, stores in known.stores.items() for store in stores}
    asked = {(scope, store) for scope, stores in plan.stores().items() for store in stores}
    if needs_reshape(known, plan) and any(read.source.kind == "spark" for read in plan.reads):
        places = sorted(kept | asked)
        return [Verdict(*place, "refuse", *_of_spark(known, plan, group)) for place in places]
    gone, new = kept - asked, asked - kept
    verdicts = []
    for place in sorted(kept & asked):
        verdict = _of_kept(known, plan, *place, group, accept)
        if verdict.says != "refuse" and not _was_used(known, *place):
            # Without its state, the step may look like another one that was renamed.
            looks_renamed = place in likely_renames(known, plan, gone, {*new, place})
            verdict = _of_unused(known, verdict, looks_renamed)
        verdicts.append(verdict)
    verdicts += _of_new(new, gone, known, plan, group)
    verdicts += _of_timers(known, plan, group)
    verdicts += [_of_gone(known, plan, *place, group) for place in sorted(gone)]
    return [_accepted(verdict) for verdict in verdicts] if accept else verdicts


def _of_spark(known: Known, plan: Plan, group: str) -> tuple[str, str]:
    """Offsets of Spark's own sources lie in the checkpoint, in a form that is Spark's."""
    why = (
        f"the state of group {group!r} was written by a program with {known.layers} change(s) of "
        f"key, and this one has {plan.layers}, or has them in another order. The checkpoint cannot "
        "be rewritten for that, because it has the offsets of a source of Spark's own."
    )
    fix = "use another consumer_group, or start over: app.clear_state(reset_offsets=True)."
    return why, fix


def _accepted(verdict: Verdict) -> Verdict:
    if verdict.then is None or not verdict.can_accept:
        return verdict
    why = _ACCEPTED.get(verdict.then, "as was accepted")
    return replace(verdict, says=verdict.then, why=why, fix="", then=None)


def check(known: Known, plan: Plan, group: str, accept: bool = False) -> None:
    """Refuse a program that the state does not fit."""
    refused = [v for v in compare(known, plan, group, accept) if v.says == "refuse"]
    # What nobody can accept comes first: accepting the rest would not help.
    refused.sort(key=lambda verdict: verdict.can_accept)
    if refused:
        first, *others = refused
        more = f"\nAlso refused, as `check` shows: {', '.join(v.name for v in others)}."
        raise StateError(f"{first.why}{more * bool(others)}\nFix: {first.fix}")


def fingerprint(known: Known, verdicts: Iterable[Verdict]) -> str:
    """Return what stands for exactly this change of exactly this state."""
    said = [(v.scope, v.store, v.says, v.why) for v in verdicts if v.says != "reuse"]
    text = json.dumps([msgspec.to_builtins(known.claims()), said], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def needs_reshape(known: Known, plan: Plan) -> bool:
    """Tell whether Spark's checkpoint must have another form: operators, or scopes in them."""
    return known.layers != plan.layers or any(_moves(known, plan, scope) for scope in plan.stores())


def _moves(known: Known, plan: Plan, scope: str) -> bool:
    layer = next(stage.layer for stage in plan.stages if stage.scope == scope)
    return known.layer_of.get(scope, layer) != layer


# --- stores that are on both sides ----------------------------------------------------------


def _of_kept(known: Known, plan: Plan, scope: str, store: str, group: str, accept: bool) -> Verdict:
    for why, fix in _older_program(known, plan, scope, store, group):
        return Verdict(scope, store, "refuse", why, fix)
    refusals = [
        *_made_otherwise(known, plan, scope, store, group),
        *_other_keys(known, plan, scope, group),
    ]
    if refusals:
        return Verdict(scope, store, "refuse", *refusals[0], then="reset")
    for verdict in _of_layouts(known, plan, scope, store, group, accept):
        return verdict
    was, version = _versions(known, plan, scope, store)
    if version > was:
        why = f"its values are migrated from version {was} to {version} as they are read"
        return Verdict(scope, store, "migrate", why)
    if known.layers != plan.layers or _moves(known, plan, scope):
        why = "the checkpoint is rewritten for the new key changes at the start; nothing is lost"
        return Verdict(scope, store, "reshape", why)
    before, now = known.keys.get(scope), plan.keys().get(scope)
    if before is not None and before != now:
        return Verdict(scope, store, "reuse", f"keys were read as {before} and are now as {now}")
    return Verdict(scope, store, "reuse", "the program goes on with it")


def _was_used(known: Known, scope: str, store: str) -> bool:
    """Tell whether the last program used a store; all of them, where that is not known."""
    return known.active is None or store in known.active.get(scope, [])


def _of_unused(known: Known, verdict: Verdict, looks_renamed: bool) -> Verdict:
    """Refuse to go on with state that the last program did not use: it lacks what came since."""
    scope, store = verdict.scope, verdict.store
    used = [era.until for era in known.earlier if store in (era.active or {}).get(scope, [])]
    last = f", last in batch {used[-1]}" if used else ""
    why = f"an earlier program used {verdict.name}{last}; what came since is not in it."
    empty = _drop([verdict.name])
    if looks_renamed:
        empty += ", then millpond check --accept APP.py"
    fix = f"go on with it as it was left: {ACCEPT}; or let it start empty: {empty}"
    if used:
        back = f"millpond state rewind APP.py --to {used[-1]}"
        fix += (
            "; or rewind to that batch, if it is kept, so that it takes the records since, without "
            f"any outputs of them (--outputs again writes those of all steps): {back}"
        )
    return Verdict(scope, store, "refuse", why, f"{fix}.", then=verdict.says)


def _made_otherwise(
    known: Known, plan: Plan, scope: str, store: str, group: str
) -> Iterator[tuple[str, str]]:
    """State that was made by another window or another kind of step."""
    now = plan.settings().get(scope, {}).get(store)
    layout = plan.layouts().get(scope, {}).get(store)
    if now is not None and layout and store not in known.layouts.get(scope, {}):
        now = text_of(now, layout)  # nobody could take apart what version 0.1.0 wrote
    # A manifest that says nothing of a scope is older than settings are.
    before = known.settings.get(scope, {store: now}).get(store)
    if before != now:
        made = [text or "values that a function sets" for text in (before, now)]
        why = (
            f"the state {scope}/{store} of group {group!r} was made with\n  {made[0]}\nand the "
            f"program now asks for\n  {made[1]}"
        )
        yield why, _start_empty(f"{scope}/{store}")


def _of_layouts(
    known: Known, plan: Plan, scope: str, store: str, group: str, accept: bool
) -> Iterator[Verdict]:
    """State of aggregations of which the program adds or removes some."""
    layouts = known.layouts.get(scope, {}).get(store)
    asked = plan.layouts().get(scope, {}).get(store)
    if not layouts or not asked:
        return
    changed = change(layouts[-1], asked)
    if changed.removed and not accept:
        refusal = changed.refusal(f"{scope}/{store}", group)
        yield Verdict(scope, store, "refuse", *refusal, then="migrate")
    elif changed.removed or changed.added:
        yield Verdict(scope, store, "migrate", changed.why)


def _other_keys(known: Known, plan: Plan, scope: str, group: str) -> Iterator[tuple[str, str]]:
    """Keys that are written in another way: none would be found again."""
    now = plan.keys().get(scope)
    before = known.keys.get(scope, now)
    if (before == "typed") is not (now == "typed"):
        why = f"the keys of {scope!r} in group {group!r} were {before} and are now {now}."
        yield why, _start_empty(scope)


def _start_empty(name: str) -> str:
    return (
        f"put it back; or let it start empty, which drops its old state: {ACCEPT}, or "
        f"{_drop([name])}."
    )


def _drop(names: Iterable[str]) -> str:
    return f"millpond state drop APP.py {shlex.join(names)}"


def _rename(old: str, new: str) -> str:
    return f"millpond state rename APP.py {shlex.join([old, new])}"


def _older_program(
    known: Known, plan: Plan, scope: str, store: str, group: str
) -> Iterator[tuple[str, str]]:
    was, version = _versions(known, plan, scope, store)
    if version < was:
        why = (
            f"the state {scope}/{store} of group {group!r} is of version {was}; this program knows "
            f"versions up to {version}."
        )
        fix = "run the newer program"
        batches = [
            era.until
            for era in known.earlier
            if store in era.stores.get(scope, [])
            and _version_in(era.versions, scope, store) <= version
        ]
        if batches:
            fix += f", or rewind to before it ran: millpond state rewind APP.py --to {batches[-1]}"
        yield why, f"{fix}."


def _versions(known: Known, plan: Plan, scope: str, store: str) -> tuple[int, int]:
    """Return the version of a store, and the one that the program wants."""
    return _version_in(known.versions, scope, store), _version_in(plan.versions(), scope, store)


def _version_in(versions: dict[str, dict[str, int]], scope: str, store: str) -> int:
    return versions.get(scope, {}).get(store, 1)


# --- stores that are on one side only -------------------------------------------------------


def _of_gone(known: Known, plan: Plan, scope: str, store: str, group: str) -> Verdict:
    if scope in plan.stores():
        for refusal in _other_keys(known, plan, scope, group):
            return Verdict(scope, store, "refuse", *refusal, then="dropped")
    if plan.layers:
        return Verdict(scope, store, "orphaned", "nothing in the program uses it; it is kept")
    why = (
        f"group {group!r} has the state {scope}/{store}, and a checkpoint of this program, which "
        "keeps no state, has no place for it."
    )
    fix = f"use another consumer_group; or drop it: {ACCEPT}, or {_drop(known.stores)}."
    return Verdict(scope, store, "refuse", why, fix, then="dropped")


def _of_timers(known: Known, plan: Plan, group: str) -> Iterator[Verdict]:
    """Timers of functions that are not there any more, or have another name now."""
    for scope, names in known.timers.items():
        now = plan.timers().get(scope, [])
        others = [name for name in now if name not in names]
        for name in names:
            if name in now or scope not in plan.stores():
                continue
            if not others:
                why = "the function is not in the program; its timers fire once it is back"
                yield Verdict(scope, name, "orphaned", why)
                continue
            why = (
                f"in group {group!r}, timers that {name} in {scope} has set would never fire: the "
                f"program has {', '.join(others)} instead. Was the function renamed?"
            )
            ways = [_rename(f"{scope}/{name}", f"{scope}/{other}") for other in others[:_WAYS]]
            fix = (
                f"use the old name; or give the timers to the new one: {', or '.join(ways)}; or "
                f"leave them: {ACCEPT}."
            )
            yield Verdict(scope, name, "refuse", why, fix, then="orphaned")


def _of_new(
    new: set[Place], gone: set[Place], known: Known, plan: Plan, group: str
) -> Iterator[Verdict]:
    """What looks like a rename is refused: state that nothing reads beside a store that is new."""
    guesses = likely_renames(known, plan, gone, new)
    for scope, store in sorted(new):
        if (scope, store) not in guesses:
            yield Verdict(scope, store, "new", "it starts empty")
            continue
        guess = guesses[scope, store]
        names = ["/".join(old) for old in guess.olds]
        why = (
            f"group {group!r} has state under {', '.join(names)}, which this program does not use; "
            f"it asks for {scope}/{store} instead. Was something renamed?"
        )
        found = (commands(known, plan, old, (scope, store)) for old in guess.likely)
        ways = [", then ".join(_rename(*move) for move in moves) for moves in found if moves]
        fix = "use the old name (of the topic, the group_by or the step)"
        fix += f"; or move the state: {', or '.join(ways[:_WAYS])}" if ways else ""
        fix += f"; or let it start empty, and keep the old state as an orphan: {ACCEPT}"
        fix += f"; or drop the old state: {_drop(names)}."
        yield Verdict(scope, store, "refuse", why, fix, then="new")
