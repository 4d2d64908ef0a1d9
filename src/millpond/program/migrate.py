"""Migrations: functions that lift the values of a key to the next version of a program.

`state.migrate` calls them when a key is next used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millpond.arguments.async_functions import refuse_async
from millpond.errors import ConfigError, shown

__all__ = ["Lift", "add_migration"]

Lift = TypeVar("Lift", bound=Callable[[dict[Any, Any]], dict[Any, Any]])


def add_migration(
    migrations: dict[str, dict[int, Any]], store: str, from_version: int
) -> Callable[[Lift], Lift]:
    """Return a decorator that adds its function to the migrations of a store.

    Raises:
        ConfigError: the version is no number from 1 on, or has a migration.
    """
    if type(from_version) is not int or from_version < 1:
        msg = f"from_version must be an int of 1 or more, got {shown(from_version)}."
        raise ConfigError(msg + "\nFix: from_version=1 for what has no version yet.")
    lifts = migrations.setdefault(store, {})
    if from_version in lifts:
        msg = f"there is a migration of {store!r} from version {from_version} already."
        raise ConfigError(msg + f"\nFix: from_version={from_version + 1}.")

    def take(function: Lift) -> Lift:
        refuse_async(function, "@app.migration")
        lifts[from_version] = function
        return function

    return take
