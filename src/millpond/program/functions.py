"""The user's functions on their way to workers: pickled here, and loaded once to see that it works.

Takes a value made of steps; gives its bytes, the modules it refers to by name, and the copy that
was loaded. What cannot be sent, or not be loaded again, is an error that names the step, its place
and the variable.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import io
import pickle
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import cloudpickle
from cloudpickle.cloudpickle import subimport

from millpond.arguments.callsite import PACKAGE, function_name
from millpond.errors import ConfigError
from millpond.program.steps import Step
from millpond.program.user_code import program_modules

__all__ = ["Packed", "callables_of", "pack", "unpack"]

# How deep a variable is looked for: a function, what it calls, what that calls.
_DEPTH = 4


@dataclass(frozen=True)
class Packed:
    """Something that was pickled, and can be loaded."""

    data: bytes
    modules: frozenset[str]
    """The modules that it refers to by name."""
    copy: Any
    """What was loaded from it, as a worker does."""


def pack(whole: Any, steps: Iterable[Step] = ()) -> Packed:
    """Pickle something for workers, and load it.

    Args:
        whole: What is sent.
        steps: The steps in it, so that an error can name the one that does not work.

    Raises:
        ConfigError: with the step, its place, and the variable that cannot be sent.
    """
    with _programs_by_value():
        try:
            return _packed(whole)
        except Exception as error:
            raise _refusal(error, steps) from error


def unpack(data: bytes) -> Any:
    """Return what was packed."""
    return pickle.loads(data)


def _packed(whole: Any) -> Packed:
    with io.BytesIO() as file:
        _Pickler(file).dump(whole)
        data = file.getvalue()
    loader = _Unpickler(io.BytesIO(data))
    copy = loader.load()
    return Packed(data, frozenset(loader.modules), copy)


@contextmanager
def _programs_by_value() -> Iterator[None]:
    """In this block, functions of a module that holds an application are sent by value."""
    known = cloudpickle.list_registry_pickle_by_value()
    modules = [module for module in program_modules() if module.__name__ not in known]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):
    """Writes what cloudpickle does, and typed dicts that are derived from others."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if typing.is_typeddict(obj) and isinstance(reduced, tuple) and reduced[1][2] == (dict,):
            # Its only base is dict, from which no typed dict can be made: it is made as a first
            # one, and has its fields set, those of its bases among them.
            kind, name, _, *rest = reduced[1]
            first = getattr(sys.modules[kind.__module__], "TypedDict", typing.TypedDict)
            return (reduced[0], (kind, name, (first,), *rest), *reduced[2:])
        if reduced is NotImplemented and _goes_by_value(obj):
            return _by_value(obj)
        return reduced


def _goes_by_value(value: Any) -> bool:
    """Tell whether a value is of the program itself, which workers do not import."""
    module = getattr(value, "__module__", None)
    return module == "__main__" or module in cloudpickle.list_registry_pickle_by_value()


def _by_value(value: Any) -> Any:
    """Return how to make a value again that Python knows by its name only, as pickle has it."""
    if isinstance(value, functools._lru_cache_wrapper):
        return _cached, (value.cache_parameters(), value.__wrapped__)
    if isinstance(value, typing.NewType):
        return typing.NewType, (value.__name__, value.__supertype__)
    if isinstance(value, typing.ParamSpec | typing.TypeVarTuple):
        return type(value), (value.__name__,)
    return NotImplemented


def _cached(parameters: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Return a function with a cache, empty in each worker."""
    return functools.lru_cache(**parameters)(function)


class _Unpickler(pickle.Unpickler):
    """Loads, and notes the modules it is referred to."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        if name == "_class_setstate" and module == subimport.__module__:
            return _as_it_is
        if name == subimport.__name__ and module == subimport.__module__:
            return self._import
        if module == "__main__":
            raise _KnownByName(name)
        self.modules.add(module)
        return super().find_class(module, name)

    def _import(self, name: str) -> ModuleType:
        self.modules.add(name)
        return importlib.import_module(name)


class _KnownByName(Exception):
    """Something of the program's main file can be sent by its name only, and workers lack it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} of the main file is known to the program alone")


def _as_it_is(kind: type, state: Any) -> type:
    """Leave a class alone: in the process that pickled it, cloudpickle loads the class itself.

    It would set each of its attributes again, to copies that refer to copies of its variables.
    """
    return kind


# --- what does not work ---------------------------------------------------------------------


def _refusal(error: Exception, steps: Iterable[Step]) -> ConfigError:
    """Return what cannot be sent: the first step that fails, since each holds those before it."""
    step = next((step for step in steps if _failure(step) is not None), None)
    where = f"{step.verb} ({step.call_site})" if step else "a function of the application"
    culprit = None if step is None else _culprit(_own(step))
    reason = str(error) or type(error).__name__
    if culprit is not None:
        variable, function, value = culprit
        inner = inspect.unwrap(function)
        place = f"{function_name(function)!r} ({_place(inner)})"
        error = _failure(value) or error
        reason = str(error) or type(error).__name__
        if inner is function:
            where += f": {variable} in {place}, of type {type(value).__qualname__},"
        else:  # the variable is one of whoever wrapped it
            where += f": what wraps {place}"
    if "\nFix: " in reason:
        return ConfigError(f"{where} cannot be sent to the workers: {reason}")
    fix = (
        "open connections, clients, locks and files in a function decorated with @mp.resource, "
        "which opens them in each worker; take plain values from outside, not the application."
    )
    if isinstance(error, _KnownByName) or (culprit is not None and _is_code(culprit[2])):
        fix = "move it into a module beside the program, and import it from there."
    return ConfigError(f"{where} cannot be sent to the workers: {reason}\nFix: {fix}")


def _is_code(value: Any) -> bool:
    """Tell whether a value is a function or a class, with whatever it is wrapped in."""
    return isinstance(value, type) or hasattr(value, "__wrapped__") or inspect.isroutine(value)


def _failure(value: Any) -> Exception | None:
    try:
        _packed(value)
    except Exception as error:
        return error
    return None


def callables_of(step: Step) -> list[Any]:
    """Return what a step calls of the user's: functions, methods, objects with `__call__`."""
    return [
        called
        for found in _callables_in(_own(step), with_ours=True)
        for called in (_wrapped(found) if inspect.isfunction(found) else [found])
    ]


def _wrapped(function: Any) -> Iterator[Any]:
    """Yield a function of the user's; of one of ours, such as that of a column, what it wraps."""
    waiting, seen = [function], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if not inspect.isfunction(value):
            yield from _callables_in(value)
        elif not value.__code__.co_filename.startswith(PACKAGE):
            yield value
        else:
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]


def _own(step: Step) -> Any:
    """Return what a step has besides the steps before it."""
    return [getattr(step, f.name) for f in fields(step) if f.name not in ("parents", "call_site")]


def _culprit(value: Any, depth: int = _DEPTH) -> tuple[str, Any, Any] | None:
    """Return the innermost variable of a function that cannot be sent: name, function, value."""
    if not depth:
        return None
    for function in filter(_is_of_program, _functions_in(value)):
        for name, used in _variables(function):
            if _failure(used) is not None:
                return _culprit(used, depth - 1) or (name, function, used)
    return None


def _is_of_program(function: Any) -> bool:
    """Tell whether a function is not one of the standard library's."""
    return (getattr(function, "__module__", None) or "").partition(".")[
        0
    ] not in sys.stdlib_module_names


def _functions_in(value: Any) -> Iterator[Any]:
    """Yield the functions that a value is made of."""
    for called in _callables_in(value, with_ours=True):
        function = called.__func__ if inspect.ismethod(called) else called
        if inspect.isfunction(function):
            yield function


def _callables_in(value: Any, depth: int = _DEPTH, *, with_ours: bool = False) -> Iterator[Any]:
    """Yield the callables that a value is made of; of Millpond's, those that hold others."""
    if inspect.isfunction(value):
        is_ours = value.__code__.co_filename.startswith(PACKAGE)
        if not is_ours or (with_ours and value.__closure__):
            yield value
        return
    if inspect.isroutine(value):  # a method, of the user's or of a list
        yield value
        return
    if not depth or isinstance(value, type | str | bytes | ModuleType):
        return
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        if callable(value):
            yield value
        parts = [getattr(value, "func", None), *getattr(value, "__dict__", {}).values()]
        for kind in type(value).__mro__:
            parts += [getattr(value, name, None) for name in getattr(kind, "__slots__", ())]
    for part in parts:
        yield from _callables_in(part, depth - 1, with_ours=with_ours)


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables from outside that a function uses: names as a user says them."""
    try:
        found = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # an empty cell
        return
    for name, value in (*found.nonlocals.items(), *found.globals.items()):
        yield f"variable {name!r}", value
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield f"the default of {name!r}", parameter.default


def _place(function: Any) -> str:
    code = function.__code__
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
