"""What a user passes as a source, to the source that the program reads.

Takes anything; gives one of our sources, or an error that says what is missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

from millpond.arguments.async_functions import refuse_async
from millpond.arguments.callsite import here
from millpond.connectors.custom_source import CustomSource
from millpond.connectors.polled_source import PolledSource
from millpond.connectors.protocols import PollSource, Source, SourceSettings
from millpond.connectors.sources import FileSource, ListSource, RateSource, SparkSource
from millpond.connectors.topic import Topic, check_name
from millpond.errors import ConfigError, shown
from millpond.state.codec import Codec

__all__ = ["as_source"]

_OURS = (Topic, ListSource, RateSource, FileSource, SparkSource, CustomSource, PolledSource)

# What a source of the user's own has, beside its name.
_MEMBERS = {"Source": {"ends", "read", "starts"}, "PollSource": {"poll", "interval"}}


def as_source(given: Any, codec: Codec, taken: Collection[str] = ()) -> SourceSettings:
    """Return the source for what the user passed: one of ours, an own one, or an iterable.

    Args:
        given: What was passed.
        codec: What encodes keys and values.
        taken: Names that a source without a name does not get.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(given, _OURS):
        if isinstance(given, ListSource):
            given.codec = codec
        return given
    if isinstance(given, type):
        msg = f"dataframe() got the class {given.__name__}, not an object of it ({here()})."
        raise ConfigError(f"{msg}\nFix: dataframe(source={given.__name__}(...)).")
    if isinstance(given, Source):
        _check(given, ends=(given.ends, 0), read=(given.read, 3), starts=(given.starts, 0))
        return CustomSource(given, here(), codec)
    if isinstance(given, PollSource):
        _check(given, poll=(given.poll, 1))
        if type(given.interval) not in (int, float) or not 0 <= given.interval < 86_400:
            msg = f"interval of source {given.name!r} is seconds, got {shown(given.interval)}"
            raise ConfigError(f"{msg} ({here()}).\nFix: interval = 1.0.")
        return PolledSource(given, here(), codec)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | dict):
        numbers = [f"list-{i}" for i in range(2, 1000)]
        return ListSource(given, next(n for n in ["list", *numbers] if n not in taken), codec)
    raise _refusal(given)


def _check(given: Source | PollSource, **methods: tuple[Callable[..., Any], int]) -> None:
    """Refuse methods that cannot be called as they will be."""
    if "name" not in dir(given):
        raise _refusal(given)
    check_name(given.name, "source")
    for name, (method, count) in methods.items():
        what = f"{type(given).__name__}.{name}()"
        refuse_async(method, what)
        try:
            inspect.signature(method).bind(*range(count))
        except ValueError:
            continue  # a builtin without a signature
        except TypeError:
            wanted = {"read": "(partition, start, end)", "poll": "(position)"}.get(name, "()")
            msg = f"{what} is called with {wanted}, which it does not take ({here()})."
            raise ConfigError(f"{msg}\nFix: def {name}{wanted}, with self.") from None


def _refusal(given: Any) -> ConfigError:
    """Return what is wrong with an object that is no source, and not far from one."""
    members = set(dir(given))
    for kind, wanted in _MEMBERS.items():
        if wanted & members:
            missing = sorted({*wanted, "name"} - members)
            its = "attribute" if missing[0] in ("name", "interval") else "method"
            msg = f"{type(given).__name__} has no {its} {missing[0]!r} ({here()})"
            fix = f"inherit from mp.{kind} and give it what is missing: {', '.join(missing)}"
            return ConfigError(f"{msg}, so it is no source.\nFix: {fix}.")
    return ConfigError(
        f"dataframe() cannot read {shown(given)} ({here()}).\n"
        'Fix: pass a topic, made with app.topic("name"), a list or a source.'
    )
