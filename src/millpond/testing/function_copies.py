"""Functions of a local run as copies, as a worker has them.

Takes a plan and its settings; gives copies, and warns of each variable that a function has changed
in its copy only: on Spark nobody else would see the change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.program.changed_variables import Outside, changed_variables, outside
from millpond.program.functions import callables_of, pack
from millpond.program.plan import Plan
from millpond.program.user_code import is_users_module
from millpond.worker.settings import Settings

__all__ = ["copied"]

logger = logging.getLogger("millpond")


@contextmanager
def copied(plan: Plan, settings: Settings, warned: set[str]) -> Iterator[tuple[Plan, Settings]]:
    """Give copies of a plan and its settings for one run.

    Args:
        plan: The plan.
        settings: The settings.
        warned: The warnings that were given already; new ones are added.
    """
    packed = pack((plan, settings), plan.children)
    plan_copy, settings_copy = packed.copy
    before = _outside(plan, plan_copy, settings_copy)
    try:
        yield plan_copy, settings_copy
    finally:
        for who, after in _outside(plan, plan_copy, settings_copy).items():
            for name in changed_variables(before[who], after):
                _warn(f"{who} changed the variable {name!r}", warned)


def _outside(plan: Plan, plan_copy: Plan, settings: Settings) -> dict[str, Outside]:
    """Return what the variables hold that are outside of the functions."""
    pairs = zip(plan.children, plan_copy.children, strict=True)
    called = {f"{step.verb} ({step.call_site})": callables_of(copy) for step, copy in pairs}
    if (on_error := settings.on_processing_error) is not None:
        called["on_processing_error"] = [on_error]
    return {who: outside(callables, is_users_module) for who, callables in called.items()}


def _warn(warning: str, warned: set[str]) -> None:
    if warning in warned:
        return
    warned.add(warning)
    logger.warning(
        "%s, which is outside of its function. On Spark each worker process has a copy "
        "of its own, which ends with the run, so nobody else sees the change. Fix: "
        "return the value, or keep it in state; a test sees the calls of a function "
        "with copy_functions=False; for a cache, ignore this.",
        warning,
    )
