"""A group whose state is looked at or changed.

Takes an application, its file, or a state directory; gives what all commands need: the manifest,
the checkpoint, a Spark session that stays, and the way from stored bytes to keys and values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millpond.config import Config
from millpond.connectors.protocols import Broker
from millpond.connectors.serde import deserializer, serializer
from millpond.errors import ConfigError, MillpondError, StateError, shown
from millpond.operations.fields import Fields
from millpond.program.graph import Graph
from millpond.program.plan import Plan, make_plan
from millpond.state.codec import Codec
from millpond.state.plain import from_plain, to_plain
from millpond.storage.audit import Reshape
from millpond.storage.checkpoint import Checkpoint
from millpond.storage.directory import StateDirectory
from millpond.storage.files import Location
from millpond.storage.lock import Hold
from millpond.storage.manifest import Manifest
from millpond.worker.key_group import key_decoder

if TYPE_CHECKING:
    from millpond.spark.statestore import StateReader

__all__ = ["At", "Opened"]

At = int | str | datetime | None
"""A batch, a time (the last batch planned up to then), or None: the last one committed."""


class Program(Protocol):
    """What is asked of an application whose state is opened."""

    config: Config
    graph: Graph
    codec: Codec
    broker: Broker


class Opened:
    """One group; everything is read when it is asked for, so it may run meanwhile."""

    def __init__(
        self,
        target: Program | str | Path,
        group: str | None,
        options: dict[str, Any],
        *,
        plain: bool = False,
    ) -> None:
        self.app = None if isinstance(target, str | Path) else target
        self._is_plain = plain or self.app is None
        self._options = options
        self.on_spark: Callable[[], None] = lambda: None
        """Called when Spark is about to be started, which takes seconds."""
        self.hold: Hold | None = None
        """The group's lock, where the caller has it already."""
        if self.app is not None:
            config = self.app.config
            state_dir, group = config.state_dir, group or config.consumer_group
            self._options = {
                "master": config.master,
                "spark": config.spark,
                **{name: value for name, value in options.items() if value},
                "config": {**config.spark_config, **(options.get("config") or {})},
            }
        else:
            state_dir = str(target)
        self._state_dir = state_dir
        self.directory = StateDirectory(state_dir, group or self._only_group(), self.files)

    def _only_group(self) -> str:
        found = groups_in(self._state_dir, self.files)
        if len(found) == 1:
            return found[0]
        msg = f"{self._state_dir} has {len(found)} groups ({', '.join(found) or 'none'})."
        fix = "check the folder."
        if found:
            fix = f"choose one: --group {found[0]}, or group={found[0]!r} in Python."
        raise ConfigError(f"{msg}\nFix: {fix}")

    def is_empty(self) -> bool:
        """Tell whether the group has no state yet."""
        manifest = self.directory.load()
        if manifest is None or not manifest.layers:
            return True
        return self.directory.checkpoint(manifest).last() is None

    @contextmanager
    def held(self, what: str) -> Iterator[Hold]:
        """Hold the group's lock; once only, where the caller has it."""
        if self.hold is not None:
            yield self.hold
            return
        with self.directory.held(what) as hold:
            yield hold

    # --- Spark ------------------------------------------------------------------------------

    @property
    def session(self) -> Any:
        """A Spark session; started when it is first needed."""
        from millpond.spark.session import has_session, open_session

        options = self._options
        if options.get("spark") is None and not has_session():
            self.on_spark()
        return open_session(
            options.get("master"),
            options.get("spark"),
            options.get("config") or {},
            "state",
            self._state_dir,
        )

    def files(self) -> Any:
        from millpond.spark.internals.hadoop import HadoopFiles

        return HadoopFiles(self.session)

    def sibling(self, group: str, state_dir: str | None = None) -> StateDirectory:
        """Return the directory of another group, in this state directory or another."""
        return StateDirectory(state_dir or self._state_dir, group, self.files)

    def reader(self, manifest: Manifest, folder: Location | None = None) -> StateReader:
        """Return what reads the state of the current generation, or of a folder."""
        from millpond.spark.code_shipping import send_package
        from millpond.spark.statestore import StateReader

        if not manifest.layers:
            msg = f"the program of group {self.directory.group!r} keeps no state."
            raise StateError(msg + "\nFix: check the group.")
        session = self.session
        send_package(session)
        checkpoint = Checkpoint(folder or self.directory.generation(manifest))
        if (
            self.hold is not None or not self.directory.is_held()
        ):  # who runs has done it, and nobody writes beside him
            with suppress(OSError, StateError):  # a folder that was moved and may only be read
                checkpoint.settle()
        return StateReader(session, checkpoint, manifest.layers, manifest.groups)

    # --- which state ------------------------------------------------------------------------

    def manifest(self) -> Manifest:
        manifest = self.directory.load()
        if manifest is None:
            msg = (
                f"there is no state of group {self.directory.group!r} in {str(self._state_dir)!r}."
            )
            raise StateError(msg + "\nFix: check the folder, or run the application first.")
        return manifest

    def view(self, at: At) -> tuple[Manifest, int]:
        """Return the batch that is meant, and the manifest as it was after it."""
        manifest = self.manifest()
        batch = self.batch(at, manifest)
        return manifest.at(batch), batch

    def batch(self, at: At, manifest: Manifest) -> int:
        """Return the batch that is meant."""
        checkpoint = self.directory.checkpoint(manifest)
        done = checkpoint.committed()
        if not done:
            msg = f"group {self.directory.group!r} has committed no batch yet."
            raise StateError(msg + "\nFix: run the application first.")
        if at is None:
            return done[-1]
        if isinstance(at, str):
            at = int(at) if at.isdigit() else moment(at)
        if isinstance(at, datetime):
            return _batch_at(checkpoint, done, at, _of_another_shape(manifest))
        if at not in done:
            msg = f"batch {at} is not kept; there are {done[0]} to {done[-1]}."
            fix = f"\nFix: choose one of these, as in batch {done[-1]}."
            raise StateError(msg + _of_another_shape(manifest) + fix)
        return at

    # --- keys and values --------------------------------------------------------------------

    def plan(self) -> Plan | None:
        """Return the plan of the program, where there is one."""
        return None if self.app is None else make_plan(self.app.graph)

    @property
    def codec(self) -> Codec:
        return self.app.codec if self.app is not None else Codec()

    def value(self, data: bytes | None) -> Any:
        """Return a value for people: as the program knows it, or as JSON can say it."""
        if data is None:
            return None
        return to_plain(data) if self._is_plain else self.codec.decode(data)

    def stored(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        return from_plain(value) if self._is_plain else self.codec.encode(value)

    def fields(self, manifest: Manifest) -> Fields:
        """Return what shows aggregations and windows by the names of their fields."""
        return Fields(manifest, self.plan(), self.codec, self.value)

    def key_forms(self, manifest: Manifest) -> dict[str, str]:
        """Return how the keys of each scope are read."""
        plan = self.plan()
        return {**manifest.keys, **({} if plan is None else plan.keys())}

    def key_reader(self, manifest: Manifest, scope: str) -> Callable[[bytes | None], Any]:
        """Return what reads the keys of a scope."""
        plan = None if self._is_plain else self.plan()
        form = self.key_forms(manifest).get(scope)
        if plan is not None and any(stage.scope == scope for stage in plan.stages):
            decode: Callable[[bytes], Any] = key_decoder(plan, scope, self.codec)
        elif form == "typed":
            decode = self.value
        else:
            decode = bytes if form in (None, "own") else deserializer(form)
        return lambda key: None if key is None else decode(key)

    def possible_key(
        self, manifest: Manifest, scope: str, key: Any, *, is_asked: bool
    ) -> list[bytes | None]:
        """Return the stored form of a key; nothing where it is none of a scope nobody asked for."""
        try:
            return [self.key_bytes(manifest, scope, key)]
        except ConfigError:
            if is_asked:
                raise
            return []

    def key_bytes(self, manifest: Manifest, scope: str, key: Any) -> bytes | None:
        """Return the stored form of a key.

        Raises:
            ConfigError: where it cannot be a key of this scope.
        """
        form = self.key_forms(manifest).get(scope, "bytes")
        if key is None:
            return None
        if form == "typed":
            return self.stored(key)
        if isinstance(key, bytes):
            return key
        if form in ("own", "bytes"):
            form = "str"
        try:
            return serializer(form)(key)
        except MillpondError as error:
            msg = f"{shown(key)} is no key of {scope!r}, whose keys are of kind {form}."
            raise ConfigError(msg + "\nFix: give it in that form.") from error


def groups_in(state_dir: str, files: Callable[[], Any]) -> list[str]:
    """Return the groups that have state in a directory."""
    from millpond.storage.directory import root

    found = []
    for info in root(state_dir, files).entries():
        folder = root(state_dir, files) / info.name
        names = {inner.name for inner in folder.entries()} if info.is_folder else set()
        if names & {"manifest.json", "generations"}:
            found.append(info.name)
    return found


def _of_another_shape(manifest: Manifest) -> str:
    """Return why there is nothing before the first batch, where the checkpoint was rewritten."""
    found = [event for event in manifest.audit if isinstance(event, Reshape)]
    if not found:
        return ""
    return (
        f" Batches before {found[-1].at} are of another shape of the checkpoint (the program "
        "has other key changes since). Only a backup of that time goes back to them: millpond "
        "state restore APP.py PATH."
    )


def _batch_at(checkpoint: Checkpoint, done: list[int], at: datetime, more: str) -> int:
    limit = int(at.timestamp() * 1000)
    times = [(n, batch.time_ms) for n in done if (batch := checkpoint.batch(n)) is not None]
    before = [number for number, time_ms in times if time_ms <= limit]
    if not before:
        first = datetime.fromtimestamp(times[0][1] / 1000).isoformat(timespec="seconds")
        msg = f"no batch is kept from {at} or before; the oldest is of {first}.{more}"
        raise StateError(msg + f"\nFix: choose a later time, or batch {done[0]}.")
    return before[-1]


def moment(text: str) -> datetime:
    """Return the moment of a text: ISO 8601, or a time of today."""
    try:
        if re.fullmatch(r"\d\d?:\d\d(:\d\d)?", text):
            clock = [int(part) for part in text.split(":")]
            hours, minutes, *rest = clock
            today = datetime.now().replace(microsecond=0)
            return today.replace(hour=hours, minute=minutes, second=sum(rest))
        return datetime.fromisoformat(text)
    except ValueError:
        msg = f"{text!r} is neither a batch nor a time."
        raise ConfigError(msg + "\nFix: a number, 10:05, or 2026-11-15T10:05.") from None
