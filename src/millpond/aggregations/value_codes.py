"""Values as bytes that are equal where the values are: how `CountDistinct` tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import (
    MAX_PREC,
    Decimal,
)
from typing import Any
from uuid import UUID

from millpond.aggregations.base import plain
from millpond.aggregations.numeric import context

__all__ = ["BY_VALUE", "UNROUNDED", "by_value", "code_of"]

UNROUNDED = context(MAX_PREC)


def code_of(value: Any) -> bytes:
    """Return bytes that are equal for numbers, or values of one type, that are equal."""
    kind = type(value)
    if kind not in _CODERS:
        value = plain(value)
        kind = type(value)
    return _CODERS[kind](value)


def _coded_items(mark: bytes, coded: Iterable[bytes]) -> bytes:
    return mark + b"".join(b"%d:%b" % (len(item), item) for item in coded)


def _coded_float(value: float) -> bytes:
    return b"i%x" % int(value) if value.is_integer() else b"f" + repr(value).encode()


def _coded_decimal(value: Decimal) -> bytes:
    """Return the code of the int or float that equals a Decimal, or else one of its own."""
    if value.is_nan():
        return b"Dnan"
    if not value:
        return b"i0"
    if value.is_finite() and abs(value.adjusted()) <= _FLOAT_DIGITS:
        if value == value.to_integral_value():
            return b"i%x" % int(value)
        if value == float(value):
            return _coded_float(float(value))
    return b"D" + str(UNROUNDED.normalize(value)).encode()


# The largest power of ten of a float; beyond it a Decimal equals none.
_FLOAT_DIGITS = 307


# In a set of codes: they tell values apart, not types. No value has this code.
BY_VALUE = b""


def by_value(state: set[bytes]) -> set[bytes]:
    """Return a state; what version 0.1 wrote kept equal numbers of unlike types apart."""
    return state if BY_VALUE in state else {BY_VALUE, *map(_recoded, state)}


def _recoded(code: bytes) -> bytes:
    mark, rest = code[:1], code[1:]
    if mark == b"b":
        return b"i" + rest
    if mark == b"f":
        return _coded_float(float(rest))
    if mark == b"D":
        return _coded_decimal(Decimal(rest.decode()))
    if mark not in (b"[", b"(", b"{", b"<", b"="):
        return code
    items = []
    while rest:
        length, _, rest = rest.partition(b":")
        items.append(_recoded(rest[: int(length)]))
        rest = rest[int(length) :]
    return _coded_items(mark, items if mark in (b"[", b"(") else sorted(items))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_MICROSECOND = timedelta(microseconds=1)


def _coded_datetime(value: datetime) -> bytes:
    if value.utcoffset() is None:
        return b"N" + value.replace(tzinfo=None).isoformat().encode()
    return b"A%d" % ((value - _EPOCH) // _MICROSECOND)  # one moment, in whatever time zone


# Written to state: a change here makes values unlike that were counted before.
_CODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda v: b"0",
    str: lambda v: b"s" + v.encode("utf-8", "surrogatepass"),
    int: lambda v: b"i%x" % v,
    bool: lambda v: b"i%d" % v,
    float: _coded_float,
    bytes: lambda v: b"y" + v,
    Decimal: _coded_decimal,
    datetime: _coded_datetime,
    date: lambda v: b"d" + v.isoformat().encode(),
    time: lambda v: b"t" + v.isoformat().encode(),
    timedelta: lambda v: b"e%d" % (v // _MICROSECOND),
    UUID: lambda v: b"u" + v.bytes,
    list: lambda v: _coded_items(b"[", map(code_of, v)),
    tuple: lambda v: _coded_items(b"(", map(code_of, v)),
    set: lambda v: _coded_items(b"{", sorted(map(code_of, v))),
    frozenset: lambda v: _coded_items(b"<", sorted(map(code_of, v))),
    dict: lambda v: _coded_items(b"=", sorted(code_of(pair) for pair in v.items())),
}
