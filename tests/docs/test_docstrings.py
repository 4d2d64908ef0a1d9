"""Every public name says what it does, and has an example that runs."""

import importlib
import inspect

import pytest

from millpond.windowed import WindowDefinition, WindowedFrame

# Documented by tables and by the pages that explain them; an example would need Spark.
NO_EXAMPLE_NEEDED = ("millpond.admin", "millpond.errors", "millpond.options")

# Classes whose methods each need an example. For the others, the one of the class is enough.
METHOD_BY_METHOD = (
    "Application",
    "Column",
    "Run",
    "State",
    "StreamingDataFrame",
    "WindowDefinition",
    "WindowedFrame",
)

# What an example cannot do without Spark, and what nobody is to call.
WITHOUT_A_JVM_IMPOSSIBLE = {"Application.run", "Application.backfill", "SparkSource"}
NOT_TO_BE_CALLED = {"Application.Quix"}


def public(module):
    """The names of a module that are classes or functions, with what they are."""
    found = importlib.import_module(module)
    things = {name: getattr(found, name) for name in found.__all__}
    return {n: t for n, t in things.items() if inspect.isclass(t) or inspect.isfunction(t)}


def methods(kind):
    """The public methods and properties that a class defines, and that its own bases define."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("millpond")]
    for name, found in [pair for base in bases for pair in vars(base).items()]:
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
        if isinstance(found, property):
            found = found.fget
        if inspect.isfunction(found) and not name.startswith("_"):
            yield name, found


NAMES = {**public("millpond"), **public("millpond.testing")}
NAMES |= {"WindowDefinition": WindowDefinition, "WindowedFrame": WindowedFrame}


@pytest.mark.parametrize("module", ["millpond", "millpond.testing", *NO_EXAMPLE_NEEDED])
def test_every_public_name_says_what_it_is(module):
    assert [name for name, thing in public(module).items() if not inspect.getdoc(thing)] == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_has_an_example(name):
    assert ">>>" in (NAMES[name].__doc__ or "") or name in WITHOUT_A_JVM_IMPOSSIBLE


@pytest.mark.parametrize("name", METHOD_BY_METHOD)
def test_every_method_has_an_example(name):
    without = {f"{name}.{m}" for m, f in methods(NAMES[name]) if ">>>" not in (f.__doc__ or "")}

    assert without - WITHOUT_A_JVM_IMPOSSIBLE - NOT_TO_BE_CALLED == set()


@pytest.mark.parametrize("name", METHOD_BY_METHOD)
def test_every_argument_of_a_method_is_explained(name):
    missing = {
        f"{name}.{method}({argument})"
        for method, function in methods(NAMES[name])
        for argument in list(inspect.signature(function).parameters)[1:]
        if f"{argument}:" not in (function.__doc__ or "")
    }

    assert {m for m in missing if m.partition("(")[0] not in NOT_TO_BE_CALLED} == set()
