"""The command `millpond state`: parse, call `millpond.admin`, print. One module a feature."""

from __future__ import annotations

import typer

from millpond.cli.state.audit import audit
from millpond.cli.state.backup import backup, restore
from millpond.cli.state.clear import clear
from millpond.cli.state.diff import diff
from millpond.cli.state.drop import drop
from millpond.cli.state.edit import delete, set_values
from millpond.cli.state.export import export, import_file
from millpond.cli.state.fork import fork
from millpond.cli.state.get import get
from millpond.cli.state.history import history
from millpond.cli.state.ls import list_groups
from millpond.cli.state.rename import rename
from millpond.cli.state.repair import repair
from millpond.cli.state.rescale import rescale
from millpond.cli.state.rewind import rewind
from millpond.cli.state.scan import scan
from millpond.cli.state.timers import timers
from millpond.cli.state.top import top
from millpond.cli.state.verify import verify

__all__ = ["state"]

state = typer.Typer(
    help="Look into state, repair, rewind, rescale and move it. TARGET is APP.py or a state "
    "directory.",
    no_args_is_help=True,
)

# In the order in which `--help` shows them.
for _name, _command in (
    ("ls", list_groups),
    ("get", get),
    ("scan", scan),
    ("history", history),
    ("diff", diff),
    ("top", top),
    ("timers", timers),
    ("export", export),
    ("audit", audit),
    ("verify", verify),
    ("repair", repair),
    ("rewind", rewind),
    ("fork", fork),
    ("backup", backup),
    ("restore", restore),
    ("set", set_values),
    ("delete", delete),
    ("clear", clear),
    ("import", import_file),
    ("drop", drop),
    ("rename", rename),
    ("rescale", rescale),
):
    state.command(_name)(_command)
