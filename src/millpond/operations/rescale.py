"""The state divided into more or fewer parts.

Takes an opened group that is stopped; gives a plan. Where the plan is applied, a new generation is
made whose last batch has the same state in other partitions, and the two are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from millpond.errors import ConfigError, StateError
from millpond.operations.basis import Basis, basis_of
from millpond.operations.generations import new_generation, user_name
from millpond.operations.session import Opened
from millpond.storage.audit import Rescale
from millpond.storage.manifest import Manifest

__all__ = ["RescalePlan", "Rescaled", "apply_rescale", "plan_rescale", "prepare_rescale"]


@dataclass(frozen=True)
class RescalePlan:
    """What dividing the state again means."""

    partitions_before: int
    partitions: int
    groups: int
    """Key groups: each is in one part."""
    basis: Basis

    def __str__(self) -> str:
        return (
            f"the state, now in {self.partitions_before} part(s), is divided into "
            f"{self.partitions}: its {self.groups} key groups move as they are, nothing is "
            "replayed and nothing is put out"
        )


@dataclass(frozen=True)
class Rescaled:
    """State before and after it was divided again."""

    partitions_before: int
    partitions: int
    blobs: int
    bytes: int
    checksum: str


def prepare_rescale(opened: Opened, partitions: int) -> RescalePlan:
    """Return the plan of dividing the state into so many parts; nothing is changed."""
    manifest = opened.manifest()
    return plan_rescale(manifest, partitions, basis_of(opened.directory, manifest))


def plan_rescale(manifest: Manifest, partitions: int, basis: Basis) -> RescalePlan:
    """Return the plan of dividing the state into so many parts."""
    if type(partitions) is not int or not 1 <= partitions <= manifest.groups:
        msg = f"partitions must be 1 to {manifest.groups}, got {partitions!r}."
        raise ConfigError(msg + "\nFix: the number of key groups is the most there can be.")
    if partitions == manifest.partitions:
        msg = f"the state has {partitions} partition(s) already; nothing was changed."
        raise ConfigError(msg + "\nFix: give another number, or leave the state as it is.")
    return RescalePlan(manifest.partitions, partitions, manifest.groups, basis)


def apply_rescale(opened: Opened, plan: RescalePlan) -> Rescaled:
    """Divide the state as planned.

    Raises:
        StateError: where the state is not the one that the plan was made from, or is not the same
            in its new parts.
    """
    from millpond.spark.rescale import fingerprint, repartition

    before = opened.reader(opened.manifest())
    with new_generation(opened, "rescale", basis=plan.basis) as new:
        last = opened.batch(None, new.old)
        expected = fingerprint(before.blobs(last))
        repartition(opened.session, new.checkpoint, plan.partitions)
        new.manifest.partitions = plan.partitions
        after = opened.reader(new.manifest)
        found = fingerprint(after.blobs(new.checkpoint.last() or 0))
        if found != expected:
            msg = (
                f"after the rescale the state has {found}, before it had {expected}; nothing was "
                "changed.\nFix: millpond state verify."
            )
            raise StateError(msg)
        new.manifest.note(
            Rescale(
                before=plan.partitions_before,
                partitions=plan.partitions,
                by=user_name(),
                state=found,
            )
        )
    return Rescaled(plan.partitions_before, plan.partitions, *expected)
