"""The face: `StreamingDataFrame`. Each method checks its arguments, makes one step, returns.

Names, arguments and in-place rules are those of Quix Streams. In place: `update`, `to_topic`,
`print`, `fill`, `drop`, `sink` and `sdf[...] = ...`. Every other method gives a new frame and
leaves this one as it was; a frame that nobody keeps is a branch that still runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from millpond.callsite import function_name, here
from millpond.column import Column, Evaluate, field
from millpond.connectors.inflight import copy_value
from millpond.connectors.sinks import as_sink
from millpond.connectors.topic import Topic
from millpond.errors import ConfigError, MillpondError, shown
from millpond.steps.graph import Graph
from millpond.steps.kinds import Callback, Emit, Fold, KeyBy, Map, MapKind, Merge, Step, Write

__all__ = ["StreamingDataFrame"]


class StreamingDataFrame:
    """A stream of records and what is done with them. Made by `Application.dataframe()`.

    A function given to `apply`, `update` or `filter` is called with the value; with
    `stateful=True` with (value, state); with `metadata=True` with (value, key, timestamp,
    headers); with both with (value, key, timestamp, headers, state).
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, head: Step) -> None:
        self._graph = graph
        self._head = head

    # --- functions of a record --------------------------------------------------------------

    def apply(
        self,
        func: Callable[..., Any],
        *,
        stateful: bool = False,
        expand: bool = False,
        metadata: bool = False,
    ) -> StreamingDataFrame:
        """Replace each value by what a function gives for it; None is a value like any other.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> run_local(frame(ListSource([1, 2])).apply(lambda value: value * 10))
        [10, 20]

        Args:
            func: The function.
            stateful: Also pass the state of the record's key.
            expand: The function gives an iterable; each item goes on as a record of its own.
            metadata: Also pass key, timestamp and headers.
        """
        return self._map("expand" if expand else "apply", func, stateful, metadata)

    def update(
        self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False
    ) -> StreamingDataFrame:
        """Call a function that changes the value, or does something else; in place.

        What the function returns is ignored.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> sdf = frame(ListSource([{"a": 1}]))
        >>> run_local(sdf.update(lambda value: value.update(b=2)))
        [{'a': 1, 'b': 2}]
        """
        return self._here(self._map("update", func, stateful, metadata))

    def filter(
        self, func: Callable[..., Any], *, stateful: bool = False, metadata: bool = False
    ) -> StreamingDataFrame:
        """Keep the records for which a function gives something true.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> run_local(frame(ListSource([1, 2, 3])).filter(lambda value: value > 1))
        [2, 3]
        """
        return self._map("filter", func, stateful, metadata)

    def stateful_map(
        self,
        name: str,
        function: Callable[[Any, Any, Any], tuple[Any, Any]],
        initial: Any = None,
    ) -> StreamingDataFrame:
        """Call `function(key, value, state) -> (output, new state)` for each record.

        A new state of None drops the key's state; the next call sees the initial one.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> def add(key, value, total):
        ...     return total + value, total + value
        >>> run_local(frame(ListSource([1, 2, 3])).stateful_map("sum", add, initial=0))
        [1, 3, 6]

        Args:
            name: The name under which the state is kept.
            function: The function.
            initial: The state of a key that has none: a value, or a function that makes one.
        """
        if not isinstance(name, str) or not name or "\x1f" in name or not _is_utf8(name):
            msg = f"stateful_map() needs a name, got {shown(name)}.\nFix: stateful_map('sum', f)."
            raise ConfigError(msg)
        _check_function(function, 3, "stateful_map")
        return self._then(
            Fold(
                parents=(self._head,),
                call_site=here(),
                name=name,
                function=function,
                initial=initial,
            )
        )

    def set_timestamp(self, func: Callable[[Any, Any, int, Any], int]) -> StreamingDataFrame:
        """Give each record the timestamp that `func(value, key, timestamp, headers)` returns."""
        return self._map("timestamp", func, False, True)

    def set_headers(self, func: Callable[[Any, Any, int, Any], Any]) -> StreamingDataFrame:
        """Give each record the headers that `func(value, key, timestamp, headers)` returns."""
        return self._map("headers", func, False, True)

    # --- keys -------------------------------------------------------------------------------

    def group_by(
        self,
        key: str | Callable[[Any], Any],
        name: str | None = None,
        value_deserializer: Any = "json",
        key_deserializer: Any = "json",
        value_serializer: Any = "json",
        key_serializer: Any = "json",
    ) -> StreamingDataFrame:
        """Give each record a new key; state that follows belongs to it. As often as one likes.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> def count(value, state):
        ...     state.set("n", state.get("n", 0) + 1)
        ...     return value["user"], state.get("n")
        >>> sdf = frame(ListSource([{"user": "a"}, {"user": "b"}, {"user": "a"}]))
        >>> run_local(sdf.group_by("user").apply(count, stateful=True))
        [('a', 1), ('b', 1), ('a', 2)]

        Args:
            key: A field of the value, or a function of the value.
            name: The name under which state is kept. Default: the field, or the function's name.
            value_deserializer: Not needed here; there is no topic in between.
            key_deserializer: Not needed here.
            value_serializer: Not needed here.
            key_serializer: Not needed here.
        """
        if isinstance(key, str):
            column, function = key, _Field(key)
            name = name or column
        else:
            _check_function(key, 1, "group_by")
            function = key  # type: ignore[assignment]
            name = name or function_name(key)
            if name == "lambda":
                msg = (
                    "group_by() with a lambda needs a name, because state is kept under it.\n"
                    'Fix: group_by(lambda value: ..., name="something").'
                )
                raise ConfigError(msg)
        step = KeyBy(parents=(self._head,), call_site=here(), name=name, function=function)
        return self._then(step)

    key_by = group_by
    """The same under the name others give it."""

    # --- fields -----------------------------------------------------------------------------

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return Column(lambda value, *rest: field(value, item), item, self._head)
        if isinstance(item, list):
            names = list(item)
            return self.apply(
                _named(lambda value: {n: field(value, n) for n in names}, f"select {names}")
            )
        if isinstance(item, Column | StreamingDataFrame):
            column = self._column(item)
            return self._then(self._of_column("filter", column, column._evaluate))
        msg = (
            f"sdf[...] takes a field, a list of fields, or a condition; got {shown(item)}.\n"
            'Fix: sdf["a"], sdf[["a", "b"]] or sdf[sdf["a"] > 1].'
        )
        raise ConfigError(msg)

    def __setitem__(self, name: Any, item: Any) -> None:
        if isinstance(item, Column | StreamingDataFrame):
            column = self._column(item)
            evaluate = column._evaluate
            assign = lambda value, *rest: _assign(value, name, evaluate(value, *rest))  # noqa: E731
            text = f"{name} = {column._text}"
            self._here(self._then(self._of_column("update", column, assign, text)))
        else:
            self.update(
                _named(
                    lambda value: _assign(value, name, copy_value(item)),
                    f"{name} = {shown(item, 30)}",
                )
            )

    def contains(self, keys: str | list[str]) -> Column:
        """Tell for each record whether its value has a field, or all of several fields."""
        names = [keys] if isinstance(keys, str) else list(keys)
        return Column(
            lambda value, *rest: all(name in value for name in names),
            f"contains {names}",
            self._head,
        )

    def fill(self, *columns: str, **mapping: Any) -> StreamingDataFrame:
        """Put None, or the given value, into fields that are missing or None; in place.

        >>> from millpond.testing import ListSource, frame, run_local
        >>> run_local(frame(ListSource([{"a": 1}])).fill("b", c=0))
        [{'a': 1, 'b': None, 'c': 0}]
        """
        if not columns and not mapping:
            msg = 'fill() needs fields to fill.\nFix: sdf.fill("a", b=0).'
            raise ConfigError(msg)
        wanted = {**dict.fromkeys(columns), **mapping}

        def fill(value: Any) -> None:
            for name, missing in wanted.items():
                if value.get(name) is None:
                    value[name] = copy_value(missing)

        return self.update(fill)

    def drop(self, columns: str | list[str], errors: str = "raise") -> StreamingDataFrame:
        """Take fields out of the value; in place. `errors="ignore"` lets them be missing."""
        names = [columns] if isinstance(columns, str) else list(columns)
        if errors not in ("raise", "ignore") or not names:
            msg = (
                f"drop() takes fields and errors='raise' or 'ignore'; got {shown((names, errors))}."
            )
            raise ConfigError(msg + '\nFix: sdf.drop("a", errors="ignore").')

        def drop(value: Any) -> None:
            for name in names:
                if errors == "raise":
                    field(value, name)
                value.pop(name, None)

        return self.update(drop)

    # --- outputs ----------------------------------------------------------------------------

    def to_topic(
        self,
        topic: Topic | Callable[[Any, Any, int, Any], Topic],
        key: Callable[[Any], Any] | None = None,
    ) -> StreamingDataFrame:
        """Write each record to a topic; in place, records also go on.

        Args:
            topic: The topic, or a function of (value, key, timestamp, headers) that returns one.
            key: A function of the value that gives the key to write. Default: the record's key.
        """
        if isinstance(topic, Topic):
            name, choose = topic.name, None
        elif isinstance(topic, str):
            msg = f"to_topic() takes a topic, not its name, got {topic!r} ({here()})."
            raise ConfigError(msg + f'\nFix: sdf.to_topic(app.topic("{topic}")).')
        else:
            _check_function(topic, 4, "to_topic")
            name, choose = function_name(topic), topic
        if key is not None:
            _check_function(key, 1, "to_topic(key=...)")
        fixed = topic if isinstance(topic, Topic) else None
        return self._here(
            self._then(
                Write(
                    parents=(self._head,),
                    call_site=here(),
                    name=name,
                    topic=fixed,
                    choose=choose,
                    key=key,
                )
            )
        )

    def print(self, pretty: bool = True, metadata: bool = False) -> StreamingDataFrame:
        """Show each value in the terminal of the driver; in place, records also go on."""
        options = {"pretty": pretty, "metadata": metadata}
        return self._here(self._emit("print", "print", 0, options))

    def sink(self, sink: Any) -> None:
        """Give each batch to a Python sink on the driver; nothing can follow.

        Args:
            sink: A `ListSink`, any object with `write(batch)`, or a function of
                (records, batch_id) as Spark's `foreachBatch` takes one.
        """
        self._graph.sinks.append(as_sink(sink))
        name = getattr(sink, "__name__", type(sink).__name__)
        self._emit("sink", name, len(self._graph.sinks) - 1, {})

    def concat(self, other: StreamingDataFrame) -> StreamingDataFrame:
        """Return a frame with the records of both."""
        if not isinstance(other, StreamingDataFrame) or other._graph is not self._graph:
            msg = f"concat() takes a frame of the same application, got {shown(other)}."
            raise ConfigError(msg + "\nFix: make both with app.dataframe(...).")
        parents = (self._head, other._head)
        return self._then(Merge(parents=parents, call_site=here(), name="concat"))

    # --- making steps -----------------------------------------------------------------------

    def _map(
        self, kind: MapKind, function: Callable[..., Any], stateful: bool, metadata: bool
    ) -> StreamingDataFrame:
        verb = {"timestamp": "set_timestamp", "headers": "set_headers"}.get(kind, kind)
        _check_function(function, 1 + 3 * metadata + stateful, verb)
        return self._then(
            Map(
                parents=(self._head,),
                call_site=here(),
                name=function_name(function),
                kind=kind,
                callback=Callback(function, takes_state=stateful, takes_metadata=metadata),
            )
        )

    def _of_column(self, kind: MapKind, column: Column, function: Evaluate, text: str = "") -> Map:
        callback = Callback(function, column._takes_state, column._takes_metadata)
        return Map(
            parents=(self._head,),
            call_site=here(),
            name=text or column._text,
            kind=kind,
            callback=callback,
        )

    def _emit(
        self, kind: Any, name: str, number: int, options: dict[str, Any]
    ) -> StreamingDataFrame:
        return self._then(
            Emit(
                parents=(self._head,),
                call_site=here(),
                name=name,
                kind=kind,
                number=number,
                options=options,
            )
        )

    def _then(self, step: Step) -> StreamingDataFrame:
        return StreamingDataFrame(self._graph, self._graph.add(step))

    def _here(self, other: StreamingDataFrame) -> StreamingDataFrame:
        self._head = other._head
        return self

    def _column(self, item: Column | StreamingDataFrame) -> Column:
        """Return a column of this frame, from a column or from `sdf.apply(...)`."""
        if isinstance(item, Column):
            if item._head is not self._head:
                msg = (
                    f"column {item._text} was taken from another frame, or before this one was "
                    'changed.\nFix: take it from the frame at the place of use: sdf[sdf["a"] > 1].'
                )
                raise ConfigError(msg)
            return item
        steps: list[Map] = []
        step = item._head
        while step is not self._head:
            if not isinstance(step, Map) or step.kind != "apply":
                msg = (
                    f"only sdf.apply(...) of this very frame can be used as a column, not {step} "
                    f"({step.call_site}).\nFix: use apply() on the same frame."
                )
                raise ConfigError(msg)
            steps.insert(0, step)
            step = step.parents[0]
        self._graph.use_as_expression(list(steps))
        return _column_of(steps, self._head)


class _Field:
    """A key taken from a field; a class so that plans can show it and workers unpickle it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any) -> Any:
        return field(value, self.name)


def _column_of(steps: list[Map], head: Step) -> Column:
    callbacks = [step.callback for step in steps]

    def evaluate(value: Any, key: Any, timestamp: int, headers: Any, state: Any) -> Any:
        for callback in callbacks:
            metadata = (key, timestamp, headers) if callback.takes_metadata else ()
            states = (state,) if callback.takes_state else ()
            value = callback.function(value, *metadata, *states)
        return value

    # Without state the engine passes four arguments, so the fifth is given here.
    takes_state = any(callback.takes_state for callback in callbacks)
    whole: Evaluate = evaluate
    if not takes_state:
        whole = lambda v, k, t, h: evaluate(v, k, t, h, None)  # noqa: E731
    text = " ".join(str(step.name) for step in steps)
    return Column(whole, text, head, takes_state=takes_state, takes_metadata=True)


def _assign(value: Any, name: Any, item: Any) -> None:
    try:
        value[name] = item
    except TypeError:
        msg = (
            f"field {name!r} cannot be set on a value of type {type(value).__name__}.\n"
            "Fix: columns need values that are dicts; use apply() for others."
        )
        raise MillpondError(msg) from None


def _is_utf8(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__ = name
    return function


def _check_function(function: Any, arguments: int, method: str) -> None:
    if not callable(function):
        msg = f"{method}() takes a function, got {shown(function)} ({here()})."
        msg += "\nFix: pass the function itself."
        raise ConfigError(msg)
    try:
        inspect.signature(function).bind(*range(arguments))
    except ValueError:
        return  # a builtin without a signature
    except TypeError:
        wanted: Sequence[str] = {
            1: ["value"],
            2: ["value", "state"],
            3: ["key", "value", "state"],
            4: ["value", "key", "timestamp", "headers"],
            5: ["value", "key", "timestamp", "headers", "state"],
        }[arguments]
        msg = (
            f"{method}() calls {function_name(function)!r} with {arguments} argument(s), "
            f"({', '.join(wanted)}), which it does not take ({here()}).\n"
            "Fix: change its parameters, or the stateful= and metadata= of the call: stateful=True "
            "passes the state, metadata=True key, timestamp and headers."
        )
        raise ConfigError(msg) from None
