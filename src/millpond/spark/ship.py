"""What workers must have: this package, and the user's own modules.

Takes the session and the program's call sites. Modules that lie beside the program travel by
value inside the functions; on a cluster the package itself is sent along.
"""

from __future__ import annotations

import atexit
import shutil
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import cloudpickle
from pyspark import cloudpickle as spark_cloudpickle
from pyspark.sql import SparkSession

from millpond.errors import ConfigError
from millpond.modules import module_of
from millpond.spark.scratch import Scratch
from millpond.steps.kinds import Step

__all__ = ["check_functions", "send_package", "send_users_modules"]

_INSTALLED = ("site-packages", "dist-packages")


def check_functions(steps: Iterable[Step], others: Iterable[Any]) -> None:
    """Refuse functions that cannot be sent to workers.

    Args:
        steps: The steps of the program; each can be sent if those before it can.
        others: What else is sent.

    Raises:
        ConfigError: with the step and its place.
    """
    whole = list(steps)
    try:
        cloudpickle.dumps((whole, list(others)))
    except Exception as error:
        step = next((step for step in whole if not _can_be_sent(step)), None)
        where = f"{step.verb} ({step.call_site})" if step else "a function of the application"
        msg = (
            f"{where} cannot be sent to the workers: {str(error) or type(error).__name__}\n"
            "Fix: make connections, locks and clients inside the function, or in a module of "
            "their own on first use; take plain values from outside, not the application."
        )
        raise ConfigError(msg) from error


def _can_be_sent(step: Step) -> bool:
    try:
        cloudpickle.dumps(step)
    except Exception:
        return False
    return True


def send_users_modules(program_files: Iterable[str]) -> None:
    """Let functions of modules that lie beside the program, or its package, be pickled by value."""
    folders = {module_of(Path(file).resolve())[0] for file in program_files if Path(file).exists()}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or module.__name__ in ("__main__", "millpond"):
            continue
        path = _resolved(file)
        is_ours = module.__name__.startswith("millpond.")
        if not is_ours and not set(_INSTALLED) & set(path.parts) and folders & set(path.parents):
            for pickler in (cloudpickle, spark_cloudpickle):
                pickler.register_pickle_by_value(module)


@cache
def _resolved(file: str) -> Path:
    return Path(file).resolve()


def send_package(session: SparkSession) -> None:
    """Send this package to the workers of a cluster; local workers have it already."""
    context = session.sparkContext
    if context.master.startswith("local"):
        return
    package = Path(__file__).parents[1]
    # One archive per process: Spark refuses a second file of the same name at another path.
    context.addPyFile(_archive(package))


@cache
def _archive(package: Path) -> str:
    scratch = Scratch("millpond-package-")
    atexit.register(scratch.remove)
    return shutil.make_archive(
        f"{scratch.path}/millpond", "zip", root_dir=package.parent, base_dir=package.name
    )
