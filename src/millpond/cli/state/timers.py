"""`millpond state timers`: the timers that wait."""

from __future__ import annotations

from millpond.cli.state.output import at_most, show, time_text
from millpond.cli.state.target import AsJson, At, Config, Group, Limit, Target, open_state

__all__ = ["timers"]


def timers(
    target: Target,
    at: At = None,
    limit: Limit = 100,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show the timers that wait."""
    found = at_most(limit, open_state(target, group, config).timers(at))
    show(({**timer._asdict(), "at": time_text(timer.at)} for timer in found), as_json)
