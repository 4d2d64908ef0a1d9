"""Steps to closures: each step becomes one function that calls the next.

Takes the plan and a stage, gives `Push` functions; nothing is interpreted per record. An
exception of a user's function is wrapped once, here, with the step it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.connectors.inflight import copy_value
from millpond.connectors.topic import Topic
from millpond.errors import MillpondError, shown
from millpond.record import Origin
from millpond.runtime.emit import Emitter, Push, StepFailure
from millpond.state.codec import Codec
from millpond.state.view import KeyScope, State
from millpond.steps.kinds import Callback, Emit, Fold, KeyBy, Map, Merge, Step, Write

__all__ = ["Composer", "checked_timestamp", "fan_out"]


class Composer:
    """Builds the functions of one stage."""

    def __init__(
        self,
        children: Callable[[Step], Iterable[Step]],
        emitters: Callable[[Step], list[Emitter]],
        writers: dict[Step, Emitter],
        origin: Origin,
        scope: KeyScope,
    ) -> None:
        self._children = children
        self._emitters = emitters
        self._writers = writers
        self._origin = origin
        self._scope = scope
        self._state = State(scope)
        self._made: dict[Step, Push] = {}

    def below(self, step: Step) -> Push:
        """Return the function that hands on what a step gives."""
        sinks = [emitter.push() for emitter in self._emitters(step)]
        nexts = [self.push(child) for child in self._children(step)]
        return fan_out(sinks, nexts, step)

    def push(self, step: Step) -> Push:
        """Return the function of a step and all that follows it in the stage."""
        if step not in self._made:
            self._made[step] = self._make(step, self.below(step))
        return self._made[step]

    def _make(self, step: Step, give: Push) -> Push:
        if isinstance(step, Map):
            if step.kind == "apply" and step.callback.takes_state and not step.uses_metadata:
                return _apply_stateful(step, step.callback.function, self._state, give)
            return _MAPS[step.kind](step, _adapted(step.callback, self._state), give, self._origin)
        if isinstance(step, Fold):
            return _fold(step, State(self._scope, step.name), self._scope.codec, give)
        if isinstance(step, KeyBy):
            return _key_by(step, give)
        if isinstance(step, Write):
            return _write(step, self._writers[step], give)
        if isinstance(step, Emit):
            return _emit(self._writers[step].push(), give)
        assert isinstance(step, Merge), step
        return give


def fan_out(sinks: list[Push], nexts: list[Push], step: Step) -> Push:
    """Emitters encode at once, so they share the value; each branch but the last gets a copy."""
    pushes = [*sinks, *nexts]
    if len(pushes) == 1:
        return pushes[0]
    if not pushes:
        return _nothing
    *copied, last = nexts or [_nothing]

    def give_all(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        for sink in sinks:
            sink(value, key, timestamp, headers)
        for branch in copied:
            try:
                copy = copy_value(value)
            except Exception as error:
                raise StepFailure(step, error) from error
            branch(copy, key, timestamp, headers)
        last(value, key, timestamp, headers)

    return give_all


def _nothing(value: Any, key: Any, timestamp: int, headers: Any) -> None:
    pass


def _adapted(callback: Callback, state: State) -> Callable[[Any, Any, int, Any], Any]:
    """Return the user's function with the one signature the engine calls."""
    function = callback.function
    if callback.takes_state and callback.takes_metadata:
        return lambda value, key, timestamp, headers: function(
            value, key, timestamp, headers, state
        )
    if callback.takes_state:
        return lambda value, key, timestamp, headers: function(value, state)
    if callback.takes_metadata:
        return function
    return lambda value, key, timestamp, headers: function(value)


Call = Callable[[Any, Any, int, Any], Any]


def _apply(step: Map, call: Call, give: Push, origin: Origin) -> Push:
    def apply(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            result = call(value, key, timestamp, headers)
        except Exception as error:
            raise StepFailure(step, error) from error
        give(result, key, timestamp, headers)

    return apply


def _apply_stateful(step: Map, function: Callable[..., Any], state: State, give: Push) -> Push:
    """The commonest step of all, without the call in between."""

    def apply(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            result = function(value, state)
        except Exception as error:
            raise StepFailure(step, error) from error
        give(result, key, timestamp, headers)

    return apply


def _update(step: Map, call: Call, give: Push, origin: Origin) -> Push:
    def update(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            call(value, key, timestamp, headers)
        except Exception as error:
            raise StepFailure(step, error) from error
        give(value, key, timestamp, headers)

    return update


def _filter(step: Map, call: Call, give: Push, origin: Origin) -> Push:
    def keep(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            wanted = bool(call(value, key, timestamp, headers))
        except Exception as error:
            raise StepFailure(step, error) from error
        if wanted:
            give(value, key, timestamp, headers)

    return keep


def _expand(step: Map, call: Call, give: Push, origin: Origin) -> Push:
    def expand(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            results = iter(call(value, key, timestamp, headers))
        except Exception as error:
            raise StepFailure(step, error) from error
        before = origin.path
        number = 0
        while True:
            try:
                item = next(results)
            except StopIteration:
                break
            except Exception as error:
                raise StepFailure(step, error) from error
            origin.path = (before or b"") + number.to_bytes(5, "big")
            give(item, key, timestamp, headers)
            number += 1
        origin.path = before

    return expand


def _set_timestamp(step: Map, call: Call, give: Push, origin: Origin) -> Push:
    def set_timestamp(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            moment = checked_timestamp(call(value, key, timestamp, headers), "set_timestamp()")
        except Exception as error:
            raise StepFailure(step, error) from error
        give(value, key, moment, headers)

    return set_timestamp


def _set_headers(step: Map, call: Call, give: Push, origin: Origin) -> Push:
    def set_headers(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = call(value, key, timestamp, headers)
        except Exception as error:
            raise StepFailure(step, error) from error
        give(value, key, timestamp, new)

    return set_headers


_MAPS: dict[str, Callable[[Map, Call, Push, Origin], Push]] = {
    "apply": _apply,
    "update": _update,
    "filter": _filter,
    "expand": _expand,
    "timestamp": _set_timestamp,
    "headers": _set_headers,
}


def _fold(step: Fold, state: State, codec: Codec, give: Push) -> Push:
    function, initial = step.function, step.initial
    start: Callable[[], Any]
    if callable(initial):
        start = initial
    else:
        encoded = codec.encode(initial)
        start = lambda: codec.decode(encoded)  # noqa: E731 - a fresh copy each time
    missing = object()

    def fold(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            before = state.get("", missing)
            output, after = function(key, value, start() if before is missing else before)
            if after is None:
                state.delete("")
            else:
                state.set("", after)
        except Exception as error:
            raise StepFailure(step, error) from error
        give(output, key, timestamp, headers)

    return fold


def _key_by(step: KeyBy, give: Push) -> Push:
    function = step.function

    def key_by(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            new = function(value)
        except Exception as error:
            raise StepFailure(step, error) from error
        give(value, new, timestamp, headers)

    return key_by


def _write(step: Write, emitter: Emitter, give: Push) -> Push:
    if step.choose is None:
        return _emit(emitter.push(), give)
    choose = step.choose

    def write(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        try:
            topic = choose(value, key, timestamp, headers)
            if not isinstance(topic, Topic):
                raise _not_a_topic(topic)
        except Exception as error:
            raise StepFailure(step, error) from error
        emitter.add((value, topic), key, timestamp, headers, topic.name)
        give(value, key, timestamp, headers)

    return write


def _emit(add: Push, give: Push) -> Push:
    if give is _nothing:
        return add

    def emit(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        add(value, key, timestamp, headers)
        give(value, key, timestamp, headers)

    return emit


def checked_timestamp(moment: Any, what: str) -> int:
    """Return a timestamp that is an int, or say what is wrong."""
    if type(moment) is int and -(2**63) <= moment < 2**63:
        return moment
    msg = (
        f"{what} must give an int of milliseconds, got {shown(moment)}.\n"
        "Fix: int(moment.timestamp() * 1000) for a datetime, int(seconds * 1000) for seconds."
    )
    raise MillpondError(msg)


def _not_a_topic(given: Any) -> MillpondError:
    return MillpondError(
        f"the function given to to_topic() must return a topic, got {shown(given)}.\n"
        "Fix: make the topics with app.topic(...) and return one of them."
    )
