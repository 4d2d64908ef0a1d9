"""Aggregations and windows, by the names of their fields.

Takes what a store keeps of a key, bytes of the codec, with the layouts of then; gives for `agg`
each field with its value, and for windows each window with its start, its end and its fields. With
an application a field has the result of its aggregation, without one the state that it keeps.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.msgpack import Ext

from millpond.aggregations import Aggregation
from millpond.arguments.joins import is_join, side_names
from millpond.errors import ValueTypeError, shown
from millpond.program.layouts import Layout, following
from millpond.program.plan import Plan
from millpond.program.steps import RUNNING, Aggregate, Window
from millpond.state.codec import TUPLE, Codec
from millpond.storage.manifest import Manifest
from millpond.worker.session_window import kept_states, session_parts
from millpond.worker.totals import NOTHING, Totals

__all__ = ["Fields", "has_named_parts"]

_WINDOW = re.compile(r"(tumbling|hopping|session|sliding|\w+_count)_window_(\d+)")

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

Shown = list[tuple[Any, Any]]
"""Names and values: of `agg` fields; of windows what tells them apart, and all of the window."""


def has_named_parts(manifest: Manifest, scope: str, store: str) -> bool:
    """Tell whether names of a store that people see are none under which it keeps something."""
    settings = manifest.settings.get(scope, {}).get(store, "")
    found = _WINDOW.match(settings)
    if settings == RUNNING or is_join(settings):
        return True
    return found is not None and found[1] not in ("tumbling", "hopping")


class _Form(NamedTuple):
    """How one store keeps what it keeps."""

    kind: str
    """A kind of window, or "agg"."""
    length: int
    fields: Layout
    layouts: list[Layout]
    totals: Totals
    """Lifts what is kept to the layout of then; its aggregations say nothing."""
    aggregations: dict[str, Aggregation]
    """Those of the program, where it has the same under the same field."""
    step: Aggregate | Window | None
    kept_states: bool


class Fields:
    """Shows what the stores of a group keep, as of one batch."""

    def __init__(
        self, manifest: Manifest, plan: Plan | None, codec: Codec, value: Callable[[bytes], Any]
    ) -> None:
        self._codec = codec
        self._value = value
        self._forms: dict[tuple[str, str], _Form] = {}
        self._joins: set[tuple[str, str]] = set()
        for scope, stores in manifest.settings.items():
            for store, settings in stores.items():
                if is_join(settings):
                    self._joins.add((scope, store))
                    continue
                layouts = manifest.layouts.get(scope, {}).get(store, [])
                form = _form_of(settings, layouts, _step_of(plan, scope, store))
                if form is not None:
                    self._forms[scope, store] = form

    def has(self, scope: str, store: str) -> bool:
        """Tell whether a store is that of `agg`, or of a window, and its fields are known."""
        return (scope, store) in self._forms or (scope, store) in self._joins

    def has_windows(self, scope: str, store: str) -> bool:
        """Tell whether the values of a store are windows: dicts with start, end and fields."""
        form = self._forms.get((scope, store))
        return form is not None and form.kind != "agg"

    def shown(self, scope: str, store: str, name: bytes, value: bytes | None) -> Shown:
        """Return names and values for people; of what is none of theirs, nothing."""
        form = self._forms.get((scope, store))
        if value is None:
            return []  # there is nothing under this name
        if (scope, store) in self._joins:
            return self._joined(_unpack(name), _opened(_unpack(value)))
        if form is None:
            return [(self._value(name), self._value(value))]
        kept = _opened(_unpack(value))
        if form.kind == "agg":
            return list(self._fields(form, kept).items())
        if form.kind in ("tumbling", "hopping"):
            start = _unpack(name)
            return [self._time_window(form, start, kept)] if start else []  # "" is a clock
        if form.kind == "session":
            return [self._session(form, session) for session in kept[2]]
        if form.kind == "sliding":
            return self._sliding(form, value)
        return [
            (str(number), {"start": start, "end": end, **self._fields(form, states)})
            for number, (_, start, end, states) in enumerate(kept)
        ]

    def _joined(self, name: Any, kept: Any) -> Shown:
        """Return a record or a row that a join keeps; its heads say nothing to people."""
        if name in ("row", "left", "right") or type(name) is list:
            row = "row" if kept[1] is not None else "deleted"
            shown = name if type(name) is str else f"{name[0]} {self._value(_pack(name[1]))}"
            return [(shown, {"time": kept[0], row: self._value(_pack(kept[1]))})]
        side, _, number = name.partition(".")
        if not number:
            return []
        timestamp, value = kept[0], self._value(_pack(kept[1]))
        side = side_names["lr".index(side[0])]
        return [(f"{side} {timestamp} {number}", {"side": side, "time": timestamp, "value": value})]

    def _time_window(self, form: _Form, start: str, kept: Any) -> tuple[str, Any]:
        window = {"start": int(start), "end": int(start) + form.length}
        if type(kept) is not tuple:
            return start, {**window, **self._fields(form, kept)}
        revision, states = kept
        return start, {**window, **self._fields(form, states), "revision": revision}

    def _session(self, form: _Form, session: list[Any]) -> tuple[str, Any]:
        start, last = session[:2]
        window = {"start": start, "end": last + 1}
        opened = [*session[:2], list(map(_opened, session[2])), *session[3:]]
        records, kept = session_parts(opened, form.kept_states)
        if not records:
            return str(start), {**window, **self._fields(form, session[2])}
        if form.step is None:  # nobody can tell what the records give
            fields = {} if kept is None else self._fields(form, kept)
            return str(start), {**window, **fields, "records": len(records)}
        # The records are there: any result of the program can be made.
        layouts = following(form.layouts, form.step.layout)
        totals = Totals(form.step.aggregations, layouts=layouts)
        decoded = self._codec.decode(_pack(session))
        states = totals.start() if decoded[3:] in ([], [None]) else totals.read(decoded[3])
        for _, timestamp, value in decoded[2]:
            states = totals.add(states, value, timestamp)
        results = totals.result(states)
        mine = {n: self._plain(results[n]) if n in form.aggregations else None for n in form.fields}
        return str(start), {**window, **mine}

    def _sliding(self, form: _Form, value: bytes) -> Shown:
        if form.step is None:
            _, _, items, ends = _opened(_unpack(value))
            times = [_opened(item)[0] for item in items]
            counts = [bisect_right(times, e) - bisect_left(times, e - form.length) for e in ends]
            return [
                (str(end), {"start": _start(end, form.length), "end": end, "records": count})
                for end, count in zip(ends, counts, strict=True)
            ]
        _, _, items, ends = self._codec.decode(value)
        found: Shown = []
        for end in ends:
            totals = Totals(form.step.aggregations)
            states = totals.start()
            inside = [item for item in items if end - form.length <= item[0] <= end]
            for timestamp, _, one in sorted(inside, key=lambda item: item[1]):
                states = totals.add(states, one, timestamp)
            results = {n: self._plain(result) for n, result in totals.result(states).items()}
            found.append((str(end), {"start": _start(end, form.length), "end": end, **results}))
        return found

    def _fields(self, form: _Form, kept: list[Any]) -> dict[str, Any]:
        """Return the value of each field, of the states that are kept."""
        states = form.totals.lifted(kept)
        return {
            name: self._field(form, name, state)
            for name, state in zip(form.fields, states, strict=True)
        }

    def _field(self, form: _Form, name: str, kept: Any) -> Any:
        aggregation = form.aggregations.get(name)
        if aggregation is None:
            return None if kept is NOTHING else self._value(_pack(kept))
        state = aggregation.start() if kept is NOTHING else self._codec.decode(_pack(kept))
        by_arrival = form.kind.endswith("_count")
        result = aggregation.result_by_arrival if by_arrival else aggregation.result
        return self._plain(result(state))

    def _plain(self, result: Any) -> Any:
        try:
            return self._value(self._codec.encode(result))
        except ValueTypeError:  # a result need not be what state can keep
            return shown(result)


def _form_of(settings: str, layouts: list[Layout], step: Aggregate | Window | None) -> _Form | None:
    found = _WINDOW.match(settings)
    kind, length = ("agg", 0) if found is None else (found[1], int(found[2]))
    if not layouts and kind != "sliding":
        return None
    fields = layouts[-1] if layouts else {}
    known = {} if step is None else step.aggregations
    mine = {n: a for n, a in known.items() if fields.get(n) == str(a.signature)}
    totals = Totals(dict.fromkeys(fields, Aggregation()), layouts=layouts)
    is_kept = bool(layouts) and kept_states(layouts[0], known)
    return _Form(kind, length, fields, layouts, totals, mine, step, is_kept)


def _step_of(plan: Plan | None, scope: str, store: str) -> Aggregate | Window | None:
    stages = () if plan is None else plan.stages
    return next(
        (
            step
            for stage in stages
            for step in stage.steps
            if stage.scope == scope and isinstance(step, Aggregate | Window) and step.store == store
        ),
        None,
    )


def _start(end: int, length: int) -> int:
    return max(0, end - length) if end >= 0 else end - length


def _opened(kept: Any) -> Any:
    """Return a tuple in its stored form as one; what is in it stays as it is stored."""
    is_tuple = type(kept) is Ext and kept.code == TUPLE
    return tuple(_unpack(kept.data)) if is_tuple else kept
