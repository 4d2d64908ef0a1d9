"""What workers must have: this package, the user's modules, and what was made of the program.

Takes the plan and its settings; gives a `Shipment`, which Spark carries to every worker. There the
user's modules are imported once for each process, and the plan is loaded once for each run.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from millpond.errors import EngineError, MillpondError
from millpond.folders import Scratch
from millpond.program.functions import pack, unpack
from millpond.program.plan import Plan
from millpond.program.user_code import Code, code_of
from millpond.program.user_code import enter as enter_code
from millpond.resource import Scope, enter
from millpond.spark import resource_closing
from millpond.spark.logs import log_in_worker
from millpond.worker.settings import Settings

__all__ = ["Shipment", "send_package", "ship"]

# Plans that a worker process keeps: several runs may share it.
_KEPT = 4


@dataclass(frozen=True)
class Shipment:
    """A program as it was pickled on the driver, with the code that it needs."""

    run: str
    """The name of the run."""
    code: Code
    data: bytes
    """The plan and the settings, pickled."""
    readers: bytes
    """Likewise: what reads the sources."""
    folder: Path | None
    """Where workers on this machine say that they have opened something."""

    def load_plan(self) -> tuple[Plan, Settings]:
        """Return plan and settings; this process loads them once in a run.

        So what functions keep in variables of the program stays as long as the process, as it does
        in variables of modules.
        """
        self._enter()
        name = (self.run, hashlib.sha256(self.data).digest())
        if name not in _plans:
            _plans[name] = self._loaded(self.data)
            for old in list(_plans)[:-_KEPT]:
                del _plans[old]
        plan, settings = _plans[name]
        log_in_worker(settings.loglevel)  # now that modules have set up what they want
        return plan, settings

    def load_readers(self) -> Any:
        """Return what reads the sources, new for each task."""
        self._enter()
        return self._loaded(self.readers)

    def _enter(self) -> None:
        enter_code(self.code)
        enter(_scope(self.run, self.folder))

    def _loaded(self, data: bytes) -> Any:
        try:
            return unpack(data)
        except MillpondError:
            raise
        except Exception as error:
            fix = "a module that was changed after it was imported must be reloaded before run()"
            if isinstance(error, ModuleNotFoundError):
                fix = f"let the workers find {error.name}: install it, or put it beside the program"
            msg = f"a worker cannot load the program: {type(error).__name__}: {error}\nFix: {fix}."
            raise EngineError(msg) from error


def ship(plan: Plan, settings: Settings, readers: Any, folder: Path | None) -> Shipment:
    """Return what carries a program to the workers; it is loaded once here, so that errors show.

    Raises:
        ConfigError: where it cannot be sent, with the step and its place.
    """
    program, reading = pack((plan, settings), plan.children), pack(readers)
    files = {step.call_site.path for step in plan.children}
    code = code_of(files, program.modules | reading.modules)
    return Shipment(uuid4().hex, code, program.data, reading.data, folder)


# --- in a worker ----------------------------------------------------------------------------

_plans: dict[tuple[str, bytes], tuple[Plan, Settings]] = {}

_scopes: dict[str, Scope] = {}


def _scope(run: str, folder: Path | None) -> Scope:
    if run not in _scopes:
        scope = _scopes[run] = Scope(lambda: resource_closing.announce(scope, folder))
    return _scopes[run]


# --- on the driver --------------------------------------------------------------------------


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
