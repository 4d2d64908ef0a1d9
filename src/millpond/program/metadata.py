"""Which stages decode the key, the timestamp and the headers of their records, and what for."""

from __future__ import annotations

from millpond.connectors.serde import BytesDeserializer, BytesSerializer
from millpond.program.plan import Edge, Plan, Stage
from millpond.program.steps import KeyBy, Map, Merge, Read, Step, UpdateState, Write

__all__ = ["keeps_key", "metadata_reason"]


def metadata_reason(plan: Plan, stage: Stage) -> str:
    """Return why a stage must decode key, timestamp and headers of its records; "": it need not."""
    for step in stage.steps:
        if step.uses_metadata and not isinstance(step, Write):
            return _reason_of(step)
    for output in plan.outputs:
        if output.step not in stage.steps:
            continue
        if output.kind == "collect":
            return "the results are collected with their keys"
        if isinstance(output.step, Write) and not keeps_key(plan, stage, output.step):
            return f"{output.step.where} serializes keys"
    for edge in plan.edges:
        merge = _merge_above(plan, edge) if edge.source_stage == stage.number else None
        if merge is not None:
            return f"{merge.where} has keys of several sources"
    return ""


def _reason_of(step: Step) -> str:
    if isinstance(step, Read):
        return f"the timestamp_extractor of {step.name!r} takes one record at a time"
    asks = isinstance(step, Map) and step.callback.takes_metadata
    wants = "asks for metadata" if asks else "needs key, time or headers"
    return f"{step.where} {wants}"


def _merge_above(plan: Plan, edge: Edge) -> Step | None:
    if edge.raw_key_of is not None:
        return None
    path = plan.path_to(edge.after, plan.stages[edge.source_stage])
    return next((step for step in plan.children if step in path and isinstance(step, Merge)), None)


def keeps_key(plan: Plan, stage: Stage, step: Write) -> bool:
    """Tell whether the key's bytes can be written as they were read."""
    if step.topic is None or step.key or not isinstance(step.topic.key_serializer, BytesSerializer):
        return False
    path = plan.path_to(step, stage)
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
