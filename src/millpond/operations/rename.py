"""State under another name: a store, a whole key scope, or the timers of a function.

Takes an opened group that is stopped; makes a new generation in which the state has the name that
the program asks for. What the program could not read is refused.
"""

from __future__ import annotations

import shlex
from typing import Any

from msgspec.structs import replace

from millpond.errors import StateError
from millpond.operations.edit_batch import run_rows
from millpond.operations.edits import edit, find_place
from millpond.operations.session import Opened
from millpond.state.edit import Edit
from millpond.storage.audit import Rename
from millpond.storage.claims import Claims, said_in
from millpond.storage.manifest import Manifest
from millpond.storage.rename_guess import Place, why_not_movable

__all__ = ["rename"]


def rename(opened: Opened, old: str, new: str, dry_run: bool = False) -> int:
    """Move state to another name, of a store or of a whole key scope."""
    manifest, _ = opened.view(None)
    event = Rename(old=old, new=new)
    if old in manifest.stores:
        return _rename_scope(opened, manifest, old, new, event, dry_run)
    if old.endswith("()"):
        return _rename_timers(opened, manifest, old, new, dry_run)
    scope, store = find_place(manifest, old)
    new_scope, _, new_store = new.rpartition("/")
    if new_scope not in ("", scope):
        _check_alone(manifest, (scope, store), (new_scope, new_store))
        return _rename_scope(opened, manifest, scope, new_scope, event, dry_run)
    if new_store in manifest.stores[scope]:
        raise _taken(manifest, f"{scope}/{new_store}")
    _check_movable(opened, manifest, (scope, store), (scope, new_store))
    if dry_run:
        return 0

    def amend(claims: Claims) -> Claims:
        for about in said_in(claims):
            said = about.get(scope)
            if isinstance(said, list) and store in said:
                said[said.index(store)] = new_store
            elif isinstance(said, dict) and store in said:
                said[new_store] = said.pop(store)
        _use(claims, scope, [new_store])
        return claims

    edits = [(scope, Edit("rename", None, store, new_store=new_store))]
    renamed = {f"{scope}/{store}": f"{scope}/{new_store}"}
    return edit(opened, edits, event, amend, renamed)


def _use(claims: Claims, scope: str, stores: list[str]) -> None:
    """Let stores be in use: whoever renames them wants to go on with them as they are."""
    if claims.active is not None:
        mine = claims.active.setdefault(scope, [])
        mine += [store for store in stores if store not in mine]


def _check_alone(manifest: Manifest, old: Place, new: Place) -> None:
    """Refuse to move one of several stores to another key scope."""
    scope, new_scope = old[0], new[0]
    if len(manifest.stores[scope]) > 1 or old[1] != new[1]:
        names = f"{'/'.join(old)} and {'/'.join(new)}"
        msg = f"{names} differ in the key scope, and {scope!r} has other state."
        move = f"millpond state rename APP.py {shlex.join([scope, new_scope])}"
        raise StateError(f"{msg}\nFix: rename the whole scope: {move}.")


def _rename_timers(opened: Opened, manifest: Manifest, old: str, new: str, dry_run: bool) -> int:
    """Let the timers that one function has set fire in another one."""
    (scope, _, owner), (new_scope, _, new_owner) = old.rpartition("/"), new.rpartition("/")
    known = [f"{s}/{name}" for s, names in manifest.timers.items() for name in names]
    if old not in known:
        msg = f"there are no timers of {old}; there are those of {', '.join(known) or 'none'}."
        raise StateError(msg + "\nFix: name one of these.")
    plan = opened.plan()
    there = [new_owner] if plan is None else plan.timers().get(scope, [])
    if new_scope != scope or not new_owner.endswith("()") or new_owner not in there:
        names = ", ".join(f"{scope}/{name}" for name in there) or "none has timers"
        msg = f"{new} names no function with timers in {scope}."
        raise StateError(f"{msg}\nFix: name the function that they are to fire in: {names}.")
    if dry_run:
        return 0

    def amend(claims: Claims) -> Claims:
        names = [new_owner if name == owner else name for name in claims.timers[scope]]
        claims.timers[scope] = list(dict.fromkeys(names))
        return claims

    edits = [(scope, Edit("rename-timers", None, owner[:-2], new_store=new_owner[:-2]))]
    return edit(opened, edits, Rename(old=old, new=new), amend)


def _taken(manifest: Manifest, name: str) -> StateError:
    """Return that a name is in use, and what becomes of what is under it."""
    scope, _, store = name.rpartition("/")
    before = [
        era.until
        for era in manifest.earlier
        if store not in era.stores.get(scope, []) and name not in era.stores
    ]
    since = f", of the records since batch {before[-1] + 1}" if before else ""
    fix = (
        f"choose another name; or drop the state under {name}{since}: millpond state drop APP.py "
        f"{shlex.quote(name)}"
    )
    if before:
        fix += (
            "; or keep both: rewind to before it, if that batch is kept, without the outputs "
            f"since, and rename then: millpond state rewind APP.py --to {before[-1]}"
        )
    return StateError(f"there is state under {name} already.\nFix: {fix}.")


def _check_movable(opened: Opened, manifest: Manifest, old: Place, new: Place) -> None:
    """Refuse to move state to where it could not be read."""
    if why := why_not_movable(manifest, opened.plan(), old, new):
        msg = (
            f"{why}\nFix: let {'/'.join(new)} start empty: millpond check --accept APP.py; or drop "
        )
        msg += f"the old state: millpond state drop APP.py {shlex.quote('/'.join(old))}."
        raise StateError(msg)


def _rename_scope(
    opened: Opened, manifest: Manifest, old: str, new: str, event: Rename, dry_run: bool
) -> int:
    from millpond.spark.edit import moved

    if new in manifest.stores:
        raise _taken(manifest, new)
    for store in manifest.stores[old]:
        _check_movable(opened, manifest, (old, store), (new, store))
    if dry_run:
        return 0

    def rows(known: Manifest) -> Any:
        return moved(opened.reader(known).blobs(opened.batch(None, known)), old, new)

    def amend(claims: Claims) -> Claims:
        for said in said_in(claims):
            if old in said:
                said[new] = said.pop(old)
        if claims.active is not None and new not in claims.active:
            _use(claims, new, claims.stores[new])
        return claims

    renamed = {f"{old}/{store}": f"{new}/{store}" for store in manifest.stores[old]}
    event = replace(event, scopes=(old, new))
    return run_rows(opened, rows, event, amend, renamed=renamed)
