"""`millpond state scan`: many values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from millpond.cli.state.output import at_most, show_items
from millpond.cli.state.target import AsJson, At, Config, Group, Limit, Store, Target, open_state
from millpond.errors import ConfigError
from millpond.operations.items import StateItem

__all__ = ["scan"]


def scan(
    target: Target,
    prefix: Annotated[str | None, typer.Option(help="Keys that begin with this.")] = None,
    where: Annotated[
        str | None, typer.Option(help="A Python expression of key, name, value, store.")
    ] = None,
    store: Store = None,
    at: At = None,
    limit: Limit = 100,
    group: Group = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show many values."""
    opened = open_state(target, group, config)
    found = opened.scan(prefix, None if where is None else _condition(where), store, at)
    show_items(at_most(limit, found), as_json)


def _condition(text: str) -> Callable[[StateItem], bool]:
    try:
        code = compile(text, "--where", "eval")
    except SyntaxError as error:
        raise ConfigError(f"--where {text!r}: {error}.\nFix: as in 'value > 100'.") from None

    def holds(item: StateItem) -> bool:
        store = _StoreName(item.store)
        store.full = f"{item.scope}/{item.store}"
        names = {"key": item.key, "name": item.name, "value": item.value, "store": store}
        try:
            return bool(eval(code, names))
        except NameError as error:
            msg = f"--where {text!r}: {error}."
            raise ConfigError(msg + "\nFix: it knows key, name, value and store.") from None
        except Exception:
            return False  # a value of another kind is not what is looked for

    return holds


class _StoreName(str):
    """The name of a store; it also equals the name with its key scope, as it is shown."""

    full: str

    def __eq__(self, other: object) -> bool:
        return str(self) == other or self.full == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
