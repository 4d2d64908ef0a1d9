"""`millpond state history`: each change of a key, and the records that caused it."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.state.keys import by_key
from millpond.cli.state.output import nothing, short_time, show, time_text
from millpond.cli.state.target import AsJson, Config, Group, Store, Target, open_state
from millpond.errors import shown
from millpond.operations.items import ChangedValue
from millpond.record import Record

__all__ = ["history"]


def history(
    target: Target,
    key: str,
    store: Store = None,
    records: Annotated[bool, typer.Option(help="Also the records that caused each change.")] = True,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show each change of a key: batch, time, before, after, and the records that caused it."""
    opened = open_state(target, group, config)
    found: list[ChangedValue] = by_key(key, lambda k: opened.history(k, store, records))
    if not found:
        nothing(f"No change of {key} is kept.", as_json)
    rows = []
    shown: set[int] = set()
    for change in found:
        row = {
            "batch": change.batch,
            "time": time_text(change.time_ms) if as_json else short_time(change.time_ms),
            "store": f"{change.scope}/{change.store}",
            "name": change.name,
            "before": change.before,
            "after": change.after,
        }
        if as_json:
            row["by_hand"] = change.is_by_hand
            row["records"] = [record._asdict() for record in change.records]
        else:  # for people: once a batch
            causes = ["manual"] if change.is_by_hand else [_record(r) for r in change.records]
            row["records"] = "" if change.batch in shown else "\n".join(causes)
        shown.add(change.batch)
        rows.append(row)
    show(rows, as_json)


def _record(record: Record) -> str:
    place = f"{record.topic}[{record.partition}] {record.offset}"
    return f"{place}: {shown(record.value, 60)}"
