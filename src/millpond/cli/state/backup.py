"""`millpond state backup` and `restore`: a copy in another state directory, and back."""

from __future__ import annotations

from millpond.cli.state.output import answer
from millpond.cli.state.plan import apply_plan
from millpond.cli.state.target import AsJson, Config, DryRun, Group, Target, Yes, open_state

__all__ = ["backup", "restore"]


def backup(
    target: Target, path: str, group: Group = None, as_json: AsJson = False, config: Config = None
) -> None:
    """Copy the state to another state directory."""
    batch = open_state(target, group, config).backup(path)
    answer(f"{path} holds the state of batch {batch}.", as_json, path=path, batch=batch)


def restore(
    target: Target,
    path: str,
    dry_run: DryRun = False,
    yes: Yes = False,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Replace the state with that of a backup."""
    opened = open_state(target, group, config)
    plan = opened.restore(path, dry_run=True)
    apply_plan(opened, plan, "restore", dry_run=dry_run, yes=yes, as_json=as_json)
    batch = plan.batch
    answer(f"The state is that of batch {batch} of the backup.", as_json, path=path, batch=batch)
