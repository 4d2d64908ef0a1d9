"""The modules of the user that functions need, on their way to workers.

Takes the files of the program and the names of modules that its functions refer to; gives a
`Code`: the source of every module that is not installed, found by following imports. A worker
imports them as ordinary modules, from what was read when the run began, whatever becomes of the
files.
"""

from __future__ import annotations

import ast
import atexit
import hashlib
import importlib
import importlib.abc
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Any

from millpond.arguments.callsite import PACKAGE
from millpond.folders import Scratch
from millpond.program import load_guard

__all__ = ["Code", "Module", "code_of", "enter", "is_users_module", "program_modules"]

# Codes whose modules a worker process keeps: programs of one session may take turns in it.
_KEPT = 4

_INSTALLED = ("site-packages", "dist-packages")

_STDLIB = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib")}
)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the user: where it is on the driver, and what is in its file."""

    path: str
    """Its file; empty for a namespace package, which has none."""
    content: bytes = b""
    folders: tuple[str, ...] | None = None
    """Where its submodules are; None: it is no package."""


@dataclass(frozen=True)
class Code:
    """The user's modules, and the folders in which the driver finds others."""

    modules: dict[str, Module] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    """Folders that come before the standard library."""
    last: tuple[str, ...] = ()
    """Folders that come after it."""

    digest: str = ""
    """What tells this code from any other."""


# --- on the driver --------------------------------------------------------------------------


def program_modules() -> list[ModuleType]:
    """Return the modules that are programs: they hold an application.

    Importing one builds, and may run, the application, so its functions are sent as they are and
    not by name.
    """
    app = sys.modules.get("millpond.app")
    if app is None:
        return []
    return [
        module
        for name, module in _users_modules()
        if any(isinstance(value, app.Application) for value in list(vars(module).values()))
    ]


_looked_at: dict[str, tuple[Any, bool]] = {}
"""Modules that were looked at, and whether they are the user's: there are hundreds."""


def _users_modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in list(sys.modules.items()):
        known = _looked_at.get(name)
        if known is None or known[0] is not module:
            is_users = name != "__main__" and isinstance(module, ModuleType) and _is_users(module)
            known = _looked_at[name] = module, is_users
        if known[1]:
            yield name, module


def is_users_module(name: str) -> bool:
    """Tell whether a module that is imported is the user's: neither installed nor ours."""
    module = sys.modules.get(name)
    return name == "__main__" or (module is not None and _is_users(module))


def code_of(files: Iterable[str], names: Iterable[str]) -> Code:
    """Return the modules that a program needs in workers.

    Args:
        files: The files of the program.
        names: Modules that its functions refer to by name.
    """
    found: dict[str, Module] = {}
    waiting = [*names, *(module.__name__ for module in program_modules())]
    for file in files:
        if Path(file).is_file():
            waiting += _imported(Path(file).read_bytes(), _package_of(file))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None or not _is_users_spec(spec):
            continue
        waiting += [parent for parent in (name.rpartition(".")[0],) if parent]
        found[name] = module = _read(spec)
        package = name if module.folders is not None else name.rpartition(".")[0]
        if module.path.endswith(".py"):
            waiting += _imported(module.content, package)
        if module.folders is not None and module.path:  # what it has imported by other ways
            waiting += [other for other in list(sys.modules) if other.startswith(f"{name}.")]
    first, last = _folders()
    return Code(found, first, last, _digest(found, first, last))


def _digest(modules: dict[str, Module], *folders: tuple[str, ...]) -> str:
    made = hashlib.sha256(repr(folders).encode())
    for name, module in sorted(modules.items()):
        made.update(repr((name, module.path, module.folders, len(module.content))).encode())
        made.update(module.content)
    return made.hexdigest()[:32]


def _package_of(file: str) -> str:
    """Return the package of a file that is loaded, for its relative imports."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return getattr(module, "__package__", None) or ""
    return ""


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module is, without importing anything."""
    module = sys.modules.get(name)
    if module is not None:
        spec = getattr(module, "__spec__", None)
        return spec if isinstance(spec, ModuleSpec) else None
    parent, _, _ = name.rpartition(".")
    if name.partition(".")[0] in sys.stdlib_module_names:
        return None
    above = _spec(parent) if parent else None
    if parent and (above is None or above.submodule_search_locations is None):
        return None
    if above is not None and not _is_users_spec(above):
        return None
    try:
        places = None if above is None else above.submodule_search_locations
        return PathFinder.find_spec(name, places)
    except (ImportError, OSError, ValueError):
        return None


def _read(spec: ModuleSpec) -> Module:
    folders = spec.submodule_search_locations
    places = None if folders is None else tuple(map(str, folders))
    if not spec.has_location or spec.origin is None:
        return Module("", folders=places)
    loader: Any = spec.loader
    try:
        content = loader.get_data(spec.origin)
    except (OSError, AttributeError):
        content = b""
    return Module(spec.origin, content, places)


def _is_users(module: ModuleType) -> bool:
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if isinstance(spec, ModuleSpec):
        return _is_users_spec(spec)
    return isinstance(file, str) and _is_users_file(file)


def _is_users_spec(spec: ModuleSpec) -> bool:
    if spec.has_location and spec.origin is not None:
        is_code = spec.origin.endswith((".py", *EXTENSION_SUFFIXES))
        return is_code and _is_users_file(spec.origin)
    places = list(spec.submodule_search_locations or ())
    return bool(places) and any(_is_users_file(str(place)) for place in places)


@cache
def _is_users_file(file: str) -> bool:
    path = Path(file).resolve()
    is_installed = set(_INSTALLED) & set(path.parts) or str(path).startswith(_STDLIB)
    return not is_installed and not f"{path}/".startswith(PACKAGE)


def _imported(source: bytes, package: str) -> Iterator[str]:
    """Yield the names that a source imports, inside functions too; some are no modules."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _base(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = ".".join(parts[: len(parts) - node.level + 1])
    return ".".join(filter(None, (above, node.module)))


def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is on the driver's path besides Python itself: before it, and after it."""
    first: list[str] = []
    last: list[str] = []
    place = first
    for entry in sys.path:
        path = str(Path(entry or ".").resolve())
        if path.startswith(_STDLIB):
            place = last
        elif not set(_INSTALLED) & set(Path(path).parts) and not _is_zip_of_python(path):
            place.append(path)
    return tuple(first), tuple(last)


def _is_zip_of_python(path: str) -> bool:
    return Path(path).name == f"python{sys.version_info[0]}{sys.version_info[1]}.zip"


# --- in a worker ----------------------------------------------------------------------------


def enter(code: Code) -> None:
    """Let this process import the user's modules, each once.

    Spark keeps its Python processes between runs, and runs of one session share them. Modules stay
    imported where the next code has the same ones. Otherwise they are set aside for when their code
    is back, and what is imported next is of the new code.
    """
    finder = next((found for found in sys.meta_path if isinstance(found, _Finder)), None)
    if finder is None:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
    if finder.code.digest != code.digest:
        finder.take(code)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that were sent."""

    def __init__(self) -> None:
        self.code = Code()
        self._found: dict[str, Module] = {}
        self._aside: dict[str, dict[str, ModuleType]] = {}
        self._folders: list[str] = []

    def take(self, code: Code) -> None:
        """Find what was sent now, and nothing of what was sent before."""
        if any(code.modules.get(name) != module for name, module in self._found.items()):
            self._exchange(code)
        sys.path[:] = [folder for folder in sys.path if folder not in self._folders]
        first = [f for f in code.first if f not in sys.path[:1] and Path(f).exists()]
        last = [f for f in code.last if f not in sys.path and Path(f).exists()]
        sys.path[:] = [*first, *sys.path, *last]
        self._folders = [*first, *last]
        self.code = code

    def _exchange(self, code: Code) -> None:
        """Set all modules aside, since one may refer to another, and take those of a code back."""
        imported = {name: sys.modules.pop(name) for name in self._found if name in sys.modules}
        self._aside[self.code.digest] = imported
        back = self._aside.pop(code.digest, {})
        sys.modules.update(back)
        self._found = {name: code.modules[name] for name in back}
        for old in list(self._aside)[:-_KEPT]:
            del self._aside[old]
        importlib.invalidate_caches()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self.code.modules.get(name)
        if module is None:
            return None
        self._found[name] = module
        if not module.path:  # a namespace: what is found here has places, too
            spec = PathFinder.find_spec(name, path)
            if spec is None or spec.submodule_search_locations is None:
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = list(module.folders or ())
            return spec
        loader = _loader(name, module)
        places = None if module.folders is None else list(module.folders)
        return importlib.util.spec_from_file_location(
            name, loader.path, loader=loader, submodule_search_locations=places
        )


def _loader(name: str, module: Module) -> SourceFileLoader | ExtensionFileLoader:
    if module.path.endswith(".py"):
        return _Loader(name, module)
    path = Path(module.path)
    if not path.exists():  # the disk of another machine
        folder = Scratch("millpond-code-")
        atexit.register(folder.remove)
        path = folder.path / path.name
        path.write_bytes(module.content)
    return ExtensionFileLoader(name, str(path))


class _Loader(SourceFileLoader):
    """Loads a module from what was sent; other files beside it are read where they are."""

    def __init__(self, name: str, module: Module) -> None:
        super().__init__(name, module.path)
        self._content = module.content

    def get_data(self, path: str) -> bytes:
        return self._content if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        raise OSError  # compiled here: a file of compiled code may be of another version

    def exec_module(self, module: ModuleType) -> None:
        try:
            with load_guard.loads(looks=True):  # a program that is imported here is not run
                super().exec_module(module)
        except load_guard.Reached:
            pass  # its functions are made before it runs
