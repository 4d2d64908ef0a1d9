"""State that people can look into, repair, rewind and move.

    from millpond import admin

    with admin.open(app) as state:
        state.get("alice")
        state.history("alice")

Reading works while the application runs and shows committed batches; changing needs it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from millpond.app import Application
from millpond.operations import edits, export, queries
from millpond.operations.backup import backup
from millpond.operations.drop import DropPlan, apply_drop, prepare_drop
from millpond.operations.fork import fork
from millpond.operations.items import (
    ChangedValue,
    Difference,
    GroupInfo,
    KeySize,
    KeyTimer,
    StateItem,
)
from millpond.operations.rename import rename
from millpond.operations.repair import RepairPlan, repair
from millpond.operations.rescale import Rescaled, RescalePlan, apply_rescale, prepare_rescale
from millpond.operations.restore import RestorePlan, apply_restore, prepare_restore
from millpond.operations.rewind import RewindPlan, apply_rewind, prepare_rewind
from millpond.operations.session import At, Opened
from millpond.operations.verify import Problem, Verified, verify
from millpond.storage.audit import entry_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Admin",
    "ChangedValue",
    "Difference",
    "DropPlan",
    "GroupInfo",
    "KeySize",
    "KeyTimer",
    "Problem",
    "RepairPlan",
    "RescalePlan",
    "Rescaled",
    "RestorePlan",
    "RewindPlan",
    "StateItem",
    "Verified",
    "open",
]


def open(
    target: Application | str | Path,
    group: str | None = None,
    *,
    master: str | None = None,
    spark: Any = None,
    spark_config: dict[str, str] | None = None,
    plain: bool = False,
) -> Admin:
    """Open the state of a consumer group.

    Args:
        target: An application, or a state directory. With an application, values come back as
            the types that it registered; without, as what JSON can say.
        group: The consumer group. Default: that of the application, or the only one there is.
        master: Any Spark master. Default: that of the application, or `local[*]`.
        spark: A SparkSession to use instead of making one.
        spark_config: Settings for the session that is made.
        plain: Whether values are what JSON can say though there is an application.
    """
    options = {"master": master, "spark": spark, "config": spark_config}
    return Admin(Opened(target, group, options, plain=plain))


class Admin:
    """The state of one consumer group. A context manager; Spark starts when it is needed.

    `at` is a batch, a time (`datetime`, "10:05", "2026-11-15T10:05": the last batch planned up to
    then), or None for the last batch committed. `store` is the name of a store, of a key scope,
    or both: "default", "clicks", "clicks/default".
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._opened.directory.group

    @property
    def folder(self) -> str:
        """Where the group keeps its state."""
        return str(self._opened.directory.folder)

    def on_spark(self, called: Callable[[], None]) -> None:
        """Have a function called when Spark is about to be started."""
        self._opened.on_spark = called

    def check_free(self, what: str) -> None:
        """Refuse to go on while the application runs."""
        with self._opened.directory.held(what):
            pass

    def clear(self, reset_offsets: bool = False) -> None:
        """Begin without state; sources go on where they are, or begin again."""
        with self._opened.directory.held("clear"):
            self._opened.directory.clear(reset_offsets=reset_offsets)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    # --- looking ----------------------------------------------------------------------------

    def info(self) -> GroupInfo:
        """Return what there is: generations, stores, keys, bytes, batches, watermark."""
        return queries.info(self._opened)

    def is_empty(self) -> bool:
        """Tell whether the group has no state yet."""
        return self._opened.is_empty()

    def get(self, key: Any, store: str | None = None, at: At = None) -> dict[Any, Any]:
        """Return the names and values of one key; empty where it has none."""
        return queries.get(self._opened, key, store, at)

    def items(self, key: Any, store: str | None = None, at: At = None) -> list[StateItem]:
        """Return the values of one key in every store that has it."""
        return queries.items(self._opened, key, store, at)

    def scan(
        self,
        prefix: str | None = None,
        where: Callable[[StateItem], bool] | None = None,
        store: str | None = None,
        at: At = None,
    ) -> Iterator[StateItem]:
        """Yield every value.

        Args:
            prefix: Only keys that begin with this text.
            where: Only items for which it is true, as in `lambda item: item.value > 100`.
            store: Only this store.
            at: State at this batch or time.
        """
        return queries.scan(self._opened, store, at, prefix, where)

    def timers(self, at: At = None) -> Iterator[KeyTimer]:
        """Yield every timer that waits."""
        return queries.timers(self._opened, at)

    def history(
        self, key: Any, store: str | None = None, records: bool = True
    ) -> list[ChangedValue]:
        """Return each change of a key, the oldest first, as far back as batches are kept.

        Args:
            key: The key.
            store: Only this store.
            records: Also find the records that caused the latest changes, where the source still
                has them (it needs the application, and reads those batches again).
        """
        return queries.history(self._opened, key, store, records)

    def diff(self, before: At, after: At = None, store: str | None = None) -> Iterator[Difference]:
        """Yield every value that two batches do not have in common."""
        return queries.diff(self._opened, before, after, store)

    def top(self, limit: int = 10, by: str = "bytes") -> list[KeySize]:
        """Return the keys that keep most ("bytes") or changed most often ("changes")."""
        return queries.top(self._opened, limit, by)

    # --- tables and files -------------------------------------------------------------------

    def to_spark(self, store: str | None = None, at: At = None) -> Any:
        """Return a Spark DataFrame with a row for each value.

        Columns: scope, store, key, name, value (JSON), expires.
        """
        return export.to_spark(self._opened, store, at)

    def to_arrow(self, store: str | None = None, at: At = None) -> pa.Table:
        """Return an Arrow table with a row for each key and a column for each name."""
        return export.to_arrow(self._opened, store, at)

    def to_pandas(self, store: str | None = None, at: At = None) -> Any:
        """Return a pandas DataFrame with a row for each key and a column for each name."""
        return export.to_arrow(self._opened, store, at).to_pandas()

    def sql(self, query: str, store: str | None = None, at: At = None) -> Any:
        """Return what a query finds in the table `state`: a row for each key, as in `to_arrow`."""
        session = self._opened.session
        session.createDataFrame(self.to_arrow(store, at)).createOrReplaceTempView("state")
        return session.sql(query)

    def export(
        self, path: str | Path, store: str | None = None, at: At = None, format: str | None = None
    ) -> int:
        """Write a row for each value to a file; return how many.

        Args:
            path: A name that ends in .parquet, .csv or .jsonl; an address such as
                s3a://bucket/folder becomes a folder of files.
            store: Only this store.
            at: State at this batch or time.
            format: "parquet", "csv" or "json", where the name does not say it.
        """
        return export.export(self._opened, str(path), store, at, format)

    def audit(self) -> list[dict[str, Any]]:
        """Return what was done to the state manually, the latest last."""
        return [entry_of(event) for event in self._opened.manifest().audit]

    # --- health -----------------------------------------------------------------------------

    def verify(self) -> Verified:
        """Read every file, compare checksums, take every page apart; say what is damaged."""
        return verify(self._opened)

    def repair(self, lose_edits: bool = True, dry_run: bool = False) -> RepairPlan:
        """Go back to the last batch that is whole; the batches after it are replayed.

        What they put out is not written a second time.

        Args:
            lose_edits: Whether manual changes may be lost that come after that batch.
            dry_run: Only say what is damaged and what would be replayed.
        """
        return repair(self._opened, lose_edits=lose_edits, dry_run=dry_run)

    # --- changing ---------------------------------------------------------------------------

    def set(self, key: Any, values: dict[Any, Any], store: str | None = None) -> int:
        """Set names of a key; the others stay. Return how many values changed.

        A value that expires still does when it would have.
        """
        scope, name = edits.place(self._opened, store)
        return edits.set_values(self._opened, scope, name, [(key, values)])

    def delete(self, key: Any, name: Any = edits.ALL, store: str | None = None) -> int:
        """Delete one name of a key, or all it has; return how many values are gone.

        Args:
            key: The key.
            name: The name. Default: all names.
            store: In which store. Default: with a name, the only store there is; without, in
                every store, and the key's timers too.
        """
        return edits.delete(self._opened, key, name, store)

    def import_file(self, path: str | Path, store: str | None = None) -> int:
        """Set the values of a file as `export` writes it; return how many changed.

        Args:
            path: A .parquet, .csv or .jsonl file with the columns key, name and value.
            store: Where rows go that do not say it themselves.
        """
        return export.import_file(self._opened, str(path), store)

    def rename(self, old: str, new: str, dry_run: bool = False) -> int:
        """Move state to another name: a store ("clicks/total") or a whole key scope ("clicks").

        Args:
            old: What it is called.
            new: What it is to be called.
            dry_run: Only look whether it can be moved.
        """
        return rename(self._opened, old, new, dry_run)

    def drop(self, *stores: str, dry_run: bool = False) -> DropPlan:
        """Drop stores: their values and timers go from all keys, all other state stays.

        Args:
            stores: Names of stores ("clicks/total"), or of a whole key scope ("clicks").
            dry_run: Only count what would go.
        """
        plan = prepare_drop(self._opened, stores)
        if not dry_run:
            apply_drop(self._opened, plan)
        return plan

    def rewind(self, to: At, outputs: str = "keep", dry_run: bool = False) -> RewindPlan:
        """Take state and input back to a batch or a time; the next run goes on from there.

        Args:
            to: The batch or the time.
            outputs: "keep": the batches after it are replayed as they were, and what they put
                out is not written a second time. "again": all that is replayed is written again.
            dry_run: Only say what it would mean.
        """
        plan = prepare_rewind(self._opened, to, outputs)
        if not dry_run:
            apply_rewind(self._opened, plan)
        return plan

    def fork(self, group: str, at: At = None, state_dir: str | None = None) -> int:
        """Copy the state to a group of another name, which goes on by itself.

        Returns the batch from which it goes on. The application may run meanwhile.
        """
        return fork(self._opened, group, at, state_dir)

    def backup(self, path: str | Path) -> int:
        """Copy the state to another state directory; return the batch it is of.

        The application may run meanwhile.
        """
        return backup(self._opened, str(path))

    @overload
    def restore(self, path: str | Path, dry_run: Literal[False] = False) -> int: ...

    @overload
    def restore(self, path: str | Path, dry_run: Literal[True]) -> RestorePlan: ...

    def restore(self, path: str | Path, dry_run: bool = False) -> int | RestorePlan:
        """Replace the state with that of a backup; return the batch it is of.

        Records after that batch are read again, and what they give is written again.
        `dry_run`: only say what it would mean.
        """
        plan = prepare_restore(self._opened, str(path))
        if dry_run:
            return plan
        apply_restore(self._opened, plan)
        return plan.batch

    @overload
    def rescale(self, partitions: int, dry_run: Literal[False] = False) -> Rescaled: ...

    @overload
    def rescale(self, partitions: int, dry_run: Literal[True]) -> RescalePlan: ...

    def rescale(self, partitions: int, dry_run: bool = False) -> Rescaled | RescalePlan:
        """Divide the state into more or fewer parts: so many tasks work on it at a time.

        `dry_run`: only say what it would mean.
        """
        plan = prepare_rescale(self._opened, partitions)
        return plan if dry_run else apply_rescale(self._opened, plan)

    def apply(
        self, plan: RewindPlan | RepairPlan | RescalePlan | RestorePlan | DropPlan
    ) -> Rescaled | None:
        """Do what a plan says, as a call with `dry_run=True` gave it.

            plan = state.rewind("10:05", dry_run=True)
            print(plan)
            state.apply(plan)

        Raises:
            StateError: the state has changed since the plan was made. Nothing is changed then.
        """
        if isinstance(plan, RescalePlan):
            return apply_rescale(self._opened, plan)
        if isinstance(plan, RewindPlan):
            apply_rewind(self._opened, plan)
        elif isinstance(plan, RestorePlan):
            apply_restore(self._opened, plan)
        elif isinstance(plan, DropPlan):
            apply_drop(self._opened, plan)
        else:
            repair(self._opened, lose_edits=True, planned=plan)
        return None
