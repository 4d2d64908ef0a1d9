"""State as tables and files: for SQL, for pandas, for other programs; and back from a file.

Takes an opened group; gives one row for each value (scope, store, key, name, value as JSON,
expires), or one row for each key with a column for each name.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from millpond.connectors.serde import key_from_text
from millpond.errors import ConfigError, StateError, ValueTypeError, shown
from millpond.operations.edits import edit, find_place, place, version_in
from millpond.operations.fields import Fields
from millpond.operations.queries import is_asked, scan, table_of
from millpond.operations.session import At, Opened
from millpond.state.codec import Codec
from millpond.state.edit import Edit
from millpond.state.plain import from_plain, from_text, to_plain
from millpond.storage.audit import Import
from millpond.storage.files import is_remote

__all__ = ["FORMATS", "export", "import_file", "to_arrow", "to_spark"]

FORMATS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}

_SCHEMA = pa.schema(
    [
        ("scope", pa.string()),
        ("store", pa.string()),
        ("key", pa.string()),
        ("name", pa.string()),
        ("value", pa.string()),
        ("expires", pa.timestamp("ms", tz="UTC")),
    ]
)

# Rows that are written at a time.
_SOME = 20_000

# Columns that a table of keys may have.
_MOST_NAMES = 1_000


def to_spark(opened: Opened, store: str | None, at: At) -> Any:
    """Return a Spark DataFrame with a row for each value; workers make it."""
    from millpond.spark.statestore import as_text

    manifest, batch = opened.view(at)
    rows = opened.reader(manifest).rows(batch)
    asked = [
        (scope, name)
        for scope, names in manifest.stores.items()
        for name in names
        if is_asked(scope, name, store)
    ]
    # Workers know no aggregations of the user's: fields have the states that are kept.
    fields = Fields(manifest, None, Codec(), to_plain)
    return as_text(rows, asked, opened.key_forms(manifest), fields)


def to_arrow(opened: Opened, store: str | None, at: At) -> pa.Table:
    """Return a table with a row for each key, or each window of a key, and a column for each name.

    Values that do not fit one type stay as JSON text. The state of `update_state` is a table
    already.
    """
    table = _kept_table(opened, store, at)
    if table is not None:
        return table
    columns: dict[str, dict[int, Any]] = {}
    rows: dict[tuple[str, ...], int] = {}
    places: list[tuple[Any, ...]] = []
    fields = opened.fields(opened.view(at)[0])
    for item in scan(opened, store, at):
        name = item.name if isinstance(item.name, str) else json.dumps(item.name, default=str)
        is_window = fields.has_windows(item.scope, item.store)
        place = (item.scope, item.store, repr(item.key), *[name] * is_window)
        row = rows.setdefault(place, len(rows))
        if row == len(places):
            places.append((item.scope, item.store, item.key))
        for column, value in (item.value if is_window else {name: item.value}).items():
            columns.setdefault(column, {})[row] = value
        if len(columns) > _MOST_NAMES:
            msg = f"the state has more than {_MOST_NAMES} names, too many for columns."
            raise StateError(msg + "\nFix: to_spark(), which has a row for each value.")
    several = len({place[:2] for place in places}) > 1
    by_name: dict[str, list[Any]] = {}
    if several:
        by_name = {"scope": [p[0] for p in places], "store": [p[1] for p in places]}
    by_name["key"] = [p[2] for p in places]
    for name, column in columns.items():
        values = [column.get(row) for row in range(len(places))]
        by_name[f"{name}_" if name in by_name else name] = values
    return pa.table({name: _array(values) for name, values in by_name.items()})


def _kept_table(opened: Opened, store: str | None, at: At) -> pa.Table | None:
    table = table_of(opened, store, at)
    if table is None:
        return None
    manifest, batch = opened.view(at)
    kept = opened.reader(manifest).tables(*table, batch)
    parts = [pa.ipc.open_stream(part).read_all() for part in kept]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


def _array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if v is None else json.dumps(v, default=str) for v in values])


def export(opened: Opened, path: str, store: str | None, at: At, format: str | None) -> int:
    """Write a row for each value to a file, or to a folder of files; return how many."""
    kind = format or FORMATS.get(Path(path).suffix)
    if kind not in ("parquet", "csv", "json"):
        msg = f"the format of {path!r} is not known."
        raise ConfigError(msg + "\nFix: a name that ends in .parquet, .csv or .jsonl, or --format.")
    table = _kept_table(opened, store, at)
    if table is not None:
        return _write_table(opened, table, path, kind)
    frame = to_spark(opened, store, at)
    if is_remote(path):
        frame = frame.cache()
        frame.write.format(kind).option("header", True).mode("errorifexists").save(path)
        return int(frame.count())
    with _writer(Path(path), kind) as write:
        count = 0
        for rows in _some(frame):
            write(rows)
            count += len(rows)
    return count


def _write_table(opened: Opened, table: pa.Table, path: str, kind: str) -> int:
    """Write the rows of a table of `update_state`, with its own columns."""
    if is_remote(path):
        frame = opened.session.createDataFrame(table)
        frame.write.format(kind).option("header", True).mode("errorifexists").save(path)
        return int(table.num_rows)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pc.write_csv(table, path)
    else:
        lines = (json.dumps(row, default=str) + "\n" for row in table.to_pylist())
        Path(path).write_text("".join(lines))
    return int(table.num_rows)


def _some(frame: Any) -> Iterator[list[tuple[Any, ...]]]:
    rows: list[tuple[Any, ...]] = []
    for row in frame.toLocalIterator(prefetchPartitions=True):
        rows.append(tuple(row))
        if len(rows) == _SOME:
            yield rows
            rows = []
    yield rows


class _writer:
    """Writes rows to one file, which appears when all is written."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path = path
        self._aside = path.with_name(f".{path.name}.writing")
        self._kind = kind

    def __enter__(self) -> Any:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._kind == "parquet":
            self._parquet = pq.ParquetWriter(self._aside, _SCHEMA)
            return self._write_parquet
        self._file = self._aside.open("w", newline="")
        if self._kind == "csv":
            self._csv = csv.writer(self._file)
            self._csv.writerow(_SCHEMA.names)
            return self._write_csv
        return self._write_json

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        (self._parquet if self._kind == "parquet" else self._file).close()
        if kind is None:
            self._aside.replace(self._path)
        else:
            self._aside.unlink(missing_ok=True)

    def _write_parquet(self, rows: list[tuple[Any, ...]]) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
        arrays = [pa.array(column, f.type) for column, f in zip(columns, _SCHEMA, strict=True)]
        self._parquet.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))

    def _write_csv(self, rows: list[tuple[Any, ...]]) -> None:
        self._csv.writerows(
            (*row[:5], "" if row[5] is None else row[5].isoformat()) for row in rows
        )

    def _write_json(self, rows: list[tuple[Any, ...]]) -> None:
        for scope, store, key, name, value, expires in rows:
            line = {"scope": scope, "store": store, "key": key, "name": name}
            line["value"] = json.loads(value)
            if expires is not None:
                line["expires"] = expires.isoformat()
            self._file.write(json.dumps(line) + "\n")


# --- back from a file -----------------------------------------------------------------------


def import_file(opened: Opened, path: str, store: str | None) -> int:
    """Set the values of a file that `export` wrote, or one like it; return how many changed.

    Where a store is given, rows of others are left out.
    """
    manifest, _ = opened.view(None)
    forms = opened.key_forms(manifest)
    place_of = cache(lambda name: place(opened, name))
    edits = []
    for number, row in _rows(Path(path)):
        try:
            named = _store_of(row)
            is_other = store is not None and named is not None
            if is_other and not is_asked(*find_place(manifest, named), store):
                continue
            scope, held_in = place_of(named or store)
            key = key_from_text(forms.get(scope, "bytes"), row["key"])
            value = from_plain(row["value"])
            version = version_in(manifest, scope, held_in)
            name = from_text(row["name"])
            edits.append((scope, Edit("set", key, held_in, name, value, version=version)))
        except (KeyError, TypeError, ValueError, ValueTypeError, ConfigError, StateError) as error:
            what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            what, _, fix = what.partition("\nFix: ")
            msg = f"row {number} of {path} cannot be imported: {what} ({shown(row)})."
            fix = fix or "a row has key, name and value."
            raise ConfigError(f"{msg} Nothing was changed.\nFix: {fix}") from error
    return edit(opened, edits, Import(file=str(path), rows=len(edits)))


def _store_of(row: dict[str, Any]) -> str | None:
    if row.get("scope") and row.get("store"):
        return f"{row['scope']}/{row['store']}"
    return row.get("store") or row.get("scope")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file with their numbers; a file that cannot be read is named."""
    number = 0
    try:
        for number, row in enumerate(_read(path), 1):
            if not isinstance(row, dict):
                raise ValueError(f"{shown(row)} is no object with names")
            yield number, row
    except (ValueError, OSError, csv.Error, pa.ArrowException) as error:
        msg = f"row {number + 1} of {path} cannot be read: {error}. Nothing was changed."
        fix = "a file as `millpond state export` writes it: JSON lines, CSV or Parquet."
        raise ConfigError(f"{msg}\nFix: {fix}") from error


def _read(path: Path) -> Iterator[dict[str, Any]]:
    kind = FORMATS.get(path.suffix)
    if not path.exists() or kind is None:
        what = "there is no file" if kind else "the format is not known of"
        msg = f"{what} {str(path)!r}.\nFix: a file that ends in .parquet, .csv or .jsonl."
        raise ConfigError(msg)
    if kind == "json":
        for line in path.read_text().splitlines():
            if line.strip():
                yield json.loads(line)
        return
    if kind == "csv":
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                yield {**row, "value": _json(row.get("value"))}
        return
    for row in pq.read_table(path).to_pylist():
        yield {**row, "value": _json(row.get("value"))}


def _json(text: Any) -> Any:
    """Return a value that was written as JSON; what is none is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
