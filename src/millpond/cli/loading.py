"""The application of a file or a module, for commands.

Takes APP.py, APP.py:name, pkg.mod or pkg.mod:name, where the name is that of an application or of
a function that returns one. The program is built, not run: see `millpond.program.load_guard`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from millpond.app import Application
from millpond.errors import ConfigError
from millpond.program import load_guard
from millpond.program.load_guard import AtCall, Reached
from millpond.program.modules import module_of

__all__ = ["act_on_application", "is_program", "load_application"]

Act = Callable[[Application], object]


def is_program(target: str) -> bool:
    """Return whether a target is a program: APP.py, or a module with a name as in pkg.mod:app."""
    place, _, name = target.partition(":")
    is_module = _is_dotted(place) and name.removesuffix("()").isidentifier()
    return place.endswith(".py") or (is_module and not Path(place).is_dir())


def load_application(target: str) -> Application:
    """Return the application of a file or a module: the named one, or the only one.

    The file writes and clears nothing.

    Args:
        target: APP.py, APP.py:name, pkg.mod or pkg.mod:name.
    """
    place, _, name = target.partition(":")
    modules: list[ModuleType] = []
    reached = _until_it_runs(lambda: _load(place, modules), place)
    return _chosen(modules, place, name.removesuffix("()"), reached)


def act_on_application(target: str, act: Act, command: Literal["run", "backfill"]) -> None:
    """Load an application, and run or backfill it.

    Where its file calls `run()` or `backfill()` itself, that is done there, in place of the call:
    what the file has opened around it is still open.
    """
    place, _, name = target.partition(":")
    name = name.removesuffix("()")
    modules: list[ModuleType] = []
    acted: list[Application] = []

    def act_once(application: Application) -> None:
        acted.append(application)
        act(application)

    def at_call(reached: Reached) -> None:
        is_left_out = command == "run" and reached.call == "backfill()"
        if not is_left_out and _is_meant(reached.application, modules, name):
            act_once(reached.application)

    reached = _until_it_runs(lambda: _load(place, modules), place, at_call)
    if reached is not None and reached.call == "backfill()" and command == "run":
        msg = (
            f"{place} calls backfill() itself ({reached.call_site}), and `millpond run` would "
            f"leave it out.\nFix: run the file with python, or put the call under `if __name__ == "
            f"'__main__':` and use `millpond backfill {target}` before `millpond run {target}`."
        )
        raise ConfigError(msg)
    if not acted:
        made = _chosen(modules, place, name, reached, lambda r: act_once(r.application))
        if not acted:
            act(made)


def _is_meant(application: Application, modules: list[ModuleType], name: str) -> bool:
    """Tell whether an application is the one that is asked for, while its file is loaded."""
    names = vars(modules[0]) if modules else {}
    found = [value for value in names.values() if isinstance(value, Application)]
    if name:
        return names.get(name) is application
    return all(value is application for value in found)


def _load(place: str, modules: list[ModuleType]) -> None:
    spec = _spec(place)
    assert spec.loader is not None
    known = sys.modules.get(spec.name)
    if "." in spec.name and known is not None and known.__file__ == spec.origin:
        modules.append(known)  # its package imports it
        return
    module = importlib.util.module_from_spec(spec)
    modules.append(module)
    sys.modules[spec.name] = module  # as an import does: what it imports may import it
    spec.loader.exec_module(module)


# --- which module ---------------------------------------------------------------------------


def _spec(place: str) -> ModuleSpec:
    if place.endswith(".py") or not _is_dotted(place):
        return _spec_of_file(Path(place))
    _put_on_path(Path.cwd(), at=0)
    try:  # imports the packages around it
        spec = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # an import in one of the packages
        spec = None
    if spec is not None and spec.loader is not None and spec.origin is not None:
        return spec
    if Path(place).exists():
        return _spec_of_file(Path(place))
    msg = f"there is no file and no module {place!r}.\nFix: give a path as seen from "
    raise ConfigError(msg + f"{Path.cwd()}, as in app.py, or a module, as in pkg.mod:app.")


def _spec_of_file(path: Path) -> ModuleSpec:
    if not path.exists():
        msg = f"there is no file {str(path)!r}.\nFix: give its path as seen from {Path.cwd()}."
        raise ConfigError(msg)
    if path.suffix != ".py":
        msg = f"{str(path)!r} is no Python file.\nFix: name the file with the application, as in "
        raise ConfigError(msg + "app.py.")
    file = path.absolute()
    root, name = module_of(file)
    if "." in name:
        _put_on_path(root, at=0)
        # Last, so that pkg/logging.py is `logging` to nobody.
        _put_on_path(file.parent, at=len(sys.path))
        importlib.import_module(name.rpartition(".")[0])
    else:
        name = _free_name(file)
        _put_on_path(root, at=0)
        _put_on_path(Path.cwd(), at=1)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    return spec


def _free_name(file: Path) -> str:
    """Return the name of a file as a module; another one where that would replace a module."""
    if file.stem in sys.stdlib_module_names:
        importlib.import_module(file.stem)  # before the folder of the file is on the path
    taken = sys.modules.get(file.stem)
    is_itself = taken is None or getattr(taken, "__file__", None) == str(file)
    return file.stem if is_itself else f"{file.stem}__app"


def _put_on_path(folder: Path, at: int) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(at, str(folder))


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


# --- which application ----------------------------------------------------------------------


def _until_it_runs(
    execute: Callable[[], object], place: str, at_call: AtCall | None = None
) -> Reached | None:
    """Execute a program up to its first `run()` or `backfill()`; return where that was.

    Args:
        execute: Executes it.
        place: The file or the module.
        at_call: What is done there; None: nothing, and the program writes and clears nothing.
    """
    try:
        with load_guard.loads(looks=at_call is None, at_call=at_call):
            execute()
    except load_guard.Reached as reached:
        return reached
    except ImportError as error:
        if "attempted relative import" not in str(error):
            raise
        folder = Path(place).absolute().parent
        msg = (
            f"{place} has a relative import, and its folder is no package: {error}.\n"
            f"Fix: in {folder.parent}, name the module: {folder.name}.{Path(place).stem}; or put "
            f"an empty __init__.py beside the file."
        )
        raise ConfigError(msg) from None
    return None


def _chosen(
    modules: list[ModuleType],
    place: str,
    name: str,
    reached: Reached | None,
    at_call: AtCall | None = None,
) -> Application:
    names = vars(modules[0]) if modules else {}
    found = {n: v for n, v in names.items() if isinstance(v, Application)}
    if name in found:
        return found[name]
    if name and callable(names.get(name)):
        return _made(names[name], f"{place}:{name}", at_call)
    if reached is not None and not (modules and name) and not found:
        return reached.application  # type: ignore[no-any-return]
    if len(found) == 1 and not name:
        return next(iter(found.values()))
    s = "s" * (len(found) != 1)
    msg = f"{place} has {len(found)} application{s} ({', '.join(found) or 'none'})"
    if name:
        msg += f", and no {name!r}"
    if reached is not None:
        msg += f"; it was loaded up to {reached.call} ({reached.call_site})"
    if found:
        raise ConfigError(f"{msg}.\nFix: name one: {' or '.join(f'{place}:{n}' for n in found)}.")
    msg += (
        ".\nFix: make one at the top of the file, outside of `if __name__`, and name it: "
        f"{place}:app. Or name a function that returns one: {place}:make_app."
    )
    raise ConfigError(msg)


def _made(factory: Callable[[], Any], target: str, at_call: AtCall | None) -> Application:
    """Return what a function makes."""
    needed = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        msg = f"{target} needs arguments: {', '.join(needed)}.\nFix: give each a default."
        raise ConfigError(msg)
    made: list[Any] = []
    reached = _until_it_runs(lambda: made.append(factory()), target.partition(":")[0], at_call)
    result = reached.application if reached is not None else made[0]
    if not isinstance(result, Application):
        msg = f"{target}() returned a value of type {type(result).__name__}, not an application.\n"
        raise ConfigError(msg + "Fix: let it return the mp.Application that it makes.")
    return result
