"""Which fields of a record change on the way through a stage, and how they are written.

Takes the plan, gives `Changes` for each edge and output, so that whatever a stage does not
touch is never decoded, copied or encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from millpond.connectors import inflight
from millpond.connectors.headers import decode_headers, encode_headers
from millpond.connectors.serde import BytesDeserializer, BytesSerializer
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError, Failure, shown
from millpond.plan.plan import Edge, Output, Plan, Stage
from millpond.runtime.batch import HEADERS, PATH, records_schema
from millpond.runtime.emit import Changes
from millpond.state.codec import Codec
from millpond.steps.kinds import (
    Aggregate,
    KeyBy,
    Late,
    Map,
    Merge,
    Read,
    Step,
    UpdateState,
    Watermark,
    Window,
    Write,
)

__all__ = ["DeadLetters", "edge_changes", "needs_metadata", "output_changes", "plain_key"]


def needs_metadata(plan: Plan, stage: Stage) -> bool:
    """Tell whether a stage must decode key, timestamp and headers of its records."""
    for output in plan.outputs:
        if output.step not in stage.steps:
            continue
        if output.kind in ("print", "sink", "collect"):
            return True
        if isinstance(output.step, Write) and not _keeps_key(plan, stage, output.step):
            return True
    if any(e.source_stage == stage.number and _is_merged(plan, e) for e in plan.edges):
        return True
    return any(step.uses_metadata for step in stage.steps if not isinstance(step, Write))


def edge_changes(plan: Plan, stage: Stage, edge: Edge, codec: Codec) -> Changes:
    """Return what changes on the way to another stage."""
    value = None if edge.raw_of is not None else inflight.encode
    key = None if edge.raw_key_of is not None else _typed_key(codec)
    return _with_path(plan, stage, edge.after, value, key)


def output_changes(plan: Plan, stage: Stage, output: Output) -> Changes:
    """Return what changes on the way to the outside."""
    step = output.step
    assert step is not None
    if isinstance(step, Write) and output.kind == "write":
        key = None if _keeps_key(plan, stage, step) else _written_key(step)
        return _with_path(plan, stage, step, _written_value(step), key, topic=step.topic is None)
    if output.kind == "count":
        return Changes()
    return _with_path(plan, stage, step, inflight.encode, None, with_key=True)


def _with_path(
    plan: Plan, stage: Stage, step: Step, value: Any, key: Any, **options: bool
) -> Changes:
    way = _path(plan, stage, step)
    kinds = {s.kind for s in way if isinstance(s, Map)}
    makes = any(isinstance(s, Window | Late | UpdateState) for s in way)
    makes = makes or any(isinstance(s, Aggregate) and s.emit == "batch" for s in way)
    makes = makes or any(isinstance(s, Map) and s.on_timer is not None for s in way)
    reads = any(isinstance(s, Read) and s.source.timestamp_extractor is not None for s in way)
    stamps = any(isinstance(s, Watermark) and s.on is not None for s in way)
    return Changes(
        value,
        key,
        timestamp="timestamp" in kinds or makes or reads or stamps,
        headers=encode_headers if "headers" in kinds or makes else None,
        path="expand" in kinds or makes,
        **options,
    )


def _path(plan: Plan, stage: Stage, step: Step) -> set[Step]:
    """Return the steps of the stage through which records reach a step, itself included."""
    inside = set(stage.steps)
    found: set[Step] = set()
    todo = [step]
    while todo:
        current = todo.pop()
        if current in inside and current not in found:
            found.add(current)
            todo.extend(current.parents)
    return found


def _is_merged(plan: Plan, edge: Edge) -> bool:
    return edge.raw_key_of is None and any(
        isinstance(step, Merge) for step in _path(plan, plan.stages[edge.source_stage], edge.after)
    )


def _keeps_key(plan: Plan, stage: Stage, step: Write) -> bool:
    """Tell whether the key's bytes can be written as they were read."""
    if step.topic is None or step.key or not isinstance(step.topic.key_serializer, BytesSerializer):
        return False
    path = _path(plan, stage, step)
    if any(isinstance(s, KeyBy | UpdateState) for s in path):
        return False
    if stage.number == 0:
        reads = [s for s in path if isinstance(s, Read)]
    else:
        arriving = [e.raw_key_of for e in plan.edges if e.target == stage.number]
        if None in arriving:
            return False
        reads = [plan.reads[number] for number in arriving if number is not None]
    return all(isinstance(read.source.key_deserializer, BytesDeserializer) for read in reads)


# Keys whose encoding is remembered by a task; the number only bounds memory.
_REMEMBERED = 200_000


def _typed_key(codec: Codec) -> Callable[[Any, Any], bytes | None]:
    encode = codec.encode
    known: dict[str, bytes] = {}

    def typed_key(value: Any, key: Any) -> bytes | None:
        if type(key) is str:
            found = known.get(key)
            if found is None:
                found = encode(key)
                if len(known) < _REMEMBERED:
                    known[key] = found
            return found
        if isinstance(key, dict | set | list):
            msg = (
                f"a key must be hashable, as in a dict; got {shown(key)}.\n"
                "Fix: give a number, a text or a tuple."
            )
            raise ConfigError(msg)
        return None if key is None else encode(key)

    return typed_key


def _written_value(step: Write) -> Callable[[Any], bytes | None]:
    if step.topic is None:
        return lambda pair: None if pair[0] is None else pair[1].value_serializer(pair[0])
    return step.topic.value_serializer


def _written_key(step: Write) -> Callable[[Any, Any], bytes | None]:
    fixed, choose_key = step.topic, step.key

    def write_key(value: Any, key: Any) -> bytes | None:
        topic: Topic
        topic = fixed if fixed is not None else value[1]
        if choose_key is not None:
            key = choose_key(value if fixed is not None else value[0])
        if key is None:
            return None
        if isinstance(topic.key_serializer, BytesSerializer):
            return plain_key(key)
        return topic.key_serializer(key)

    return write_key


def plain_key(key: Any) -> bytes | None:
    """Return a key as bytes where no serializer was chosen: text as UTF-8, the rest as JSON."""
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode("utf-8", "backslashreplace")
    return _json(key)


class DeadLetters:
    """Records on which a step failed, as they entered the stage, with what happened in headers."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[bytes | None] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        index: int,
        entered: pa.RecordBatch,
        entry: Readable,
        failure: Failure,
        *,
        is_record: bool = True,
    ) -> None:
        """Put a record aside: a producer's bytes as they are, anything else as JSON.

        A timer that failed before a record has the record's key, and no value.
        """
        value, key = (entered.column(name)[index].as_py() for name in ("value", "key"))
        value = value if is_record else None
        if value is not None and not entry.is_raw_value:
            value = _readable(value, entry.decode_value, _json)
        if key is not None and not entry.is_raw_key:
            key = _readable(key, entry.decode_key, plain_key)
        self._rows.append(index)
        self._values.append(value)
        self._keys.append(key)
        facts = {
            "error": failure.error,
            "traceback": failure.traceback,
            "step": failure.step,
            "call_site": failure.call_site,
            "topic": failure.topic,
            "partition": str(failure.partition),
            "offset": str(failure.offset),
        }
        own = None
        if "headers" in entered.schema.names:
            own = decode_headers(entered.column("headers")[index].as_py())
        added = [(f"millpond.{name}", _text(text)) for name, text in facts.items()]
        self._headers.append(encode_headers([*(own or []), *added]))

    def take(self, entered: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Return the dead letters, and begin anew."""
        taken = entered.take(pa.array(self._rows, pa.int64()))
        found = {name: taken.column(name) for name in taken.schema.names}
        found["key"] = pa.array(self._keys, pa.binary())
        found["value"] = pa.array(self._values, pa.binary())
        found["headers"] = pa.array(self._headers, pa.binary())
        flags = HEADERS | (PATH if "path" in found else 0)
        schema = records_schema(flags)
        self.__init__()  # type: ignore[misc]
        return pa.RecordBatch.from_arrays([found[n] for n in schema.names], schema=schema), flags


class Readable(Protocol):
    """How the bytes of a record are read (see `entry.Entry`)."""

    @property
    def decode_value(self) -> Callable[[bytes], Any]: ...
    @property
    def decode_key(self) -> Callable[[bytes], Any]: ...
    @property
    def is_raw_value(self) -> bool: ...
    @property
    def is_raw_key(self) -> bool: ...


def _readable(data: bytes, decode: Callable[[bytes], Any], write: Callable[[Any], Any]) -> Any:
    """Return a field for people; bytes that cannot be read stay as they are."""
    try:
        return write(decode(data))
    except Exception:
        return data


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except Exception:  # a record that cannot be written must not be lost for that
        return repr(value).encode("utf-8", "backslashreplace")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")
