"""Which fields of a record change on the way through a stage, and how they are written.

Takes the plan, gives `Changes` for each edge and output, so that whatever a stage does not
touch is never decoded, copied or encoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from millpond.connectors.serde import BytesSerializer
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError, shown
from millpond.program.metadata import keeps_key
from millpond.program.plan import Edge, Output, Plan, Stage
from millpond.program.steps import (
    Aggregate,
    Join,
    Late,
    Map,
    Read,
    Step,
    UpdateState,
    Watermark,
    Window,
    Write,
)
from millpond.state.codec import Codec
from millpond.wire import any_value
from millpond.wire.headers import encode_headers
from millpond.worker.emit import Changes

__all__ = ["as_json", "edge_changes", "output_changes", "plain_key"]


def edge_changes(plan: Plan, stage: Stage, edge: Edge, codec: Codec) -> Changes:
    """Return what changes on the way to another stage."""
    value = None if edge.raw_of is not None else any_value.encode
    key = None if edge.raw_key_of is not None else _typed_key(codec)
    return _with_path(plan, stage, edge.after, value, key)


def output_changes(plan: Plan, stage: Stage, output: Output) -> Changes:
    """Return what changes on the way to the outside."""
    step = output.step
    assert step is not None
    if isinstance(step, Write) and output.kind == "write":
        key = None if keeps_key(plan, stage, step) else _written_key(step)
        return _with_path(plan, stage, step, _written_value(step), key, topic=step.topic is None)
    if output.kind == "count":
        return Changes()
    return _with_path(plan, stage, step, any_value.encode, None, with_key=True)


def _with_path(
    plan: Plan, stage: Stage, step: Step, value: Any, key: Any, **options: bool
) -> Changes:
    way = plan.path_to(step, stage)
    kinds = {s.kind for s in way if isinstance(s, Map)}
    makes = any(isinstance(s, Window | Join | Late | UpdateState) for s in way)
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
    return as_json(key)


def as_json(value: Any) -> bytes:
    """Return any value as JSON for people; where that fails, what Python shows of it."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except Exception:  # a record that cannot be written must not be lost for that
        return repr(value).encode("utf-8", "backslashreplace")
