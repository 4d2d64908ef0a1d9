"""The application of a file, for commands."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from millpond.app import Application
from millpond.errors import ConfigError

__all__ = ["load_application"]


def load_application(target: str) -> Application:
    """Return the application of a file: the named one, or the only one."""
    file, _, name = target.partition(":")
    path = Path(file)
    if not path.exists():
        msg = f"there is no file {file!r}.\nFix: is the path right, seen from {Path.cwd()}?"
        raise ConfigError(msg)
    if path.suffix != ".py":
        msg = f"{file!r} is no Python file.\nFix: the file with the application, as in app.py"
        raise ConfigError(msg)
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = {n: v for n, v in vars(module).items() if isinstance(v, Application)}
    if name in found:
        return found[name]
    if len(found) == 1 and not name:
        return next(iter(found.values()))
    names = ", ".join(found) or "none"
    msg = (
        f"{file} has {len(found)} applications ({names}).\n"
        f"Fix: make one at the top of the file, outside of `if __name__`, and name it: {file}:app"
    )
    raise ConfigError(msg)
