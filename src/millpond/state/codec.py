"""Values to bytes and back, each type as it went in.

MessagePack, with extension types for what MessagePack would flatten (a tuple is not a list).
Takes exact types only: a subclass would come back as its base, so it is refused. The registry
of user types travels with the codec to the workers.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec.msgpack import Ext

from millpond.errors import ConfigError, ValueTypeError, shown

__all__ = ["ATOMS", "Codec"]

T = TypeVar("T", bound=type)

# Types that MessagePack gives back unchanged and that nobody can mutate.
ATOMS = frozenset({type(None), bool, int, float, str, bytes})

# Extension types; written bytes depend on them.
TUPLE, SET, FROZENSET, PAIRS, BIGINT = 10, 11, 12, 13, 14
DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_CODE = 20, 21, 22, 23, 24, 25
ENUM, DATACLASS, STRUCT, FLAG = 30, 31, 32, 33

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1

SUPPORTED = (
    "None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime, date, time, "
    "timedelta, Decimal, UUID, and registered dataclasses, enums and msgspec structs"
)


class Codec:
    """Encodes and decodes values of state, keys and list sources.

    >>> codec = Codec()
    >>> codec.decode(codec.encode({"seen": {1, 2}, "at": (3, 4)}))
    {'seen': {1, 2}, 'at': (3, 4)}
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types: dict[str, type] = {}
        for registered in types:
            self.register(registered)
        self._connect()

    def _connect(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(ext_hook=self._unpack).decode
        self._packers: dict[type, Callable[[Any], Any]] = {
            int: self._pack_int,
            str: _pack_str,
            list: self._pack_list,
            dict: self._pack_dict,
            tuple: lambda v: self._ext(TUPLE, self._pack_list(v)),
            # In one order: equal sets are one key, however they were made.
            set: lambda v: self._ext(SET, sorted(self._pack_list(v), key=self._encode)),
            frozenset: lambda v: self._ext(FROZENSET, sorted(self._pack_list(v), key=self._encode)),
            datetime: lambda v: self._ext(DATETIME, _pack_datetime(v)),
            date: lambda v: self._ext(DATE, v.isoformat()),
            time: lambda v: self._ext(TIME, _pack_time(v)),
            timedelta: lambda v: self._ext(TIMEDELTA, [v.days, v.seconds, v.microseconds]),
            Decimal: lambda v: self._ext(DECIMAL, str(v)),
            UUID: lambda v: Ext(UUID_CODE, v.bytes),
        }

    def __getstate__(self) -> dict[str, type]:
        return self._types

    def __setstate__(self, types: dict[str, type]) -> None:
        self._types = types
        self._connect()

    def register(self, registered: T) -> T:
        """Let values of this dataclass, enum or msgspec struct be kept in state.

        The type is written by its qualified name without the module, so the module may move.
        """
        is_known = dataclasses.is_dataclass(registered) or (
            isinstance(registered, type) and issubclass(registered, enum.Enum | msgspec.Struct)
        )
        if not isinstance(registered, type) or not is_known:
            msg = (
                f"register_type() takes a dataclass, an Enum or a msgspec.Struct, got "
                f"{shown(registered)}.\nFix: make it one of these, or keep a dict instead."
            )
            raise ConfigError(msg)
        name = _type_name(registered)
        other = self._types.get(name)
        if (
            other is not None
            and other is not registered
            and other.__module__ != registered.__module__
        ):
            msg = (
                f"two types named {name!r} were registered ({other.__module__} and "
                f"{registered.__module__}).\nFix: rename one of them."
            )
            raise ConfigError(msg)
        self._types[name] = registered
        return registered

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value, or refuse it with a clear error."""
        kind = type(value)
        if kind in ATOMS and kind is not int and kind is not str:
            return self._encode(value)
        try:
            return self._encode(self._pack(value))
        except RecursionError:
            msg = (
                f"a value of type {kind.__name__} is nested too deeply, or contains itself.\n"
                "Fix: keep a flat structure, or ids instead of references."
            )
            raise ValueTypeError(msg) from None

    def encode_equal(self, value: Any) -> bytes:
        """Return the same bytes for equal numbers (1, 1.0, True) and for dicts in any order."""
        return self.encode(_as_equals(value))

    def decode(self, data: bytes | memoryview) -> Any:
        """Return a fresh value from its bytes."""
        return self._decode(data)

    def _pack(self, value: Any) -> Any:
        kind = type(value)
        packer = self._packers.get(kind)
        if packer is not None:
            return packer(value)
        if kind in ATOMS:
            return value
        name = _type_name(kind)
        if self._types.get(name) is kind:
            return self._pack_registered(kind, name, value)
        raise _refusal(value, kind)

    def _pack_int(self, value: int) -> Any:
        if _INT_MIN <= value <= _INT_MAX:
            return value
        return Ext(BIGINT, value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))

    def _pack_list(self, values: Iterable[Any]) -> list[Any]:
        return [self._pack(value) for value in values]

    def _pack_dict(self, value: dict[Any, Any]) -> Any:
        if all(type(key) is str for key in value):
            return {_pack_str(key): self._pack(item) for key, item in value.items()}
        pairs = [[self._pack(key), self._pack(item)] for key, item in value.items()]
        return self._ext(PAIRS, pairs)

    def _pack_registered(self, kind: type, name: str, value: Any) -> Ext:
        if issubclass(kind, enum.Enum):
            if issubclass(kind, enum.Flag):  # a combination has no name of its own
                return self._ext(FLAG, [name, self._pack(value.value)])
            return self._ext(ENUM, [name, value.name])
        if issubclass(kind, msgspec.Struct):
            fields: Iterable[str] = kind.__struct_fields__
            code = STRUCT
        else:
            fields = [field.name for field in dataclasses.fields(value)]
            code = DATACLASS
        return self._ext(code, [name, {key: self._pack(getattr(value, key)) for key in fields}])

    def _ext(self, code: int, content: Any) -> Ext:
        return Ext(code, self._encode(content))

    def _unpack(self, code: int, data: memoryview) -> Any:
        if code == BIGINT:
            return int.from_bytes(data, "big", signed=True)
        if code == UUID_CODE:
            return UUID(bytes=bytes(data))
        content = self._decode(data)
        plain = _UNPACKERS.get(code)
        if plain is not None:
            return plain(content)
        if code in (ENUM, DATACLASS, STRUCT, FLAG):
            return self._unpack_registered(code, *content)
        msg = (
            f"state holds a value of kind {code}, which this version of Millpond does not know.\n"
            "Fix: run the version that wrote it, or a newer one."
        )
        raise ValueTypeError(msg)

    def _unpack_registered(self, code: int, name: str, content: Any) -> Any:
        kind: Any = self._types.get(name)
        if kind is None:
            msg = (
                f"state holds a value of type {name!r}, which is not registered.\n"
                f"Fix: call app.register_type({name}) before running."
            )
            raise ValueTypeError(msg)
        if code == ENUM:
            return kind[content]
        if code == FLAG:
            return kind(content)
        if code == STRUCT:
            return _struct(kind, content)
        value = kind.__new__(kind)  # as it was: not through __init__, which may compute
        for key, item in content.items():
            object.__setattr__(value, key, item)
        return value


# The largest power of ten of a float; beyond it a Decimal equals none.
_FLOAT_DIGITS = 307


def _as_equals(value: Any) -> Any:
    """Return a value in which numbers and dicts that are equal are written in one way."""
    kind = type(value)
    if kind is bool or (kind is float and value.is_integer()):
        return int(value)
    if kind is Decimal:
        return _decimal_as_equals(value)
    if kind is dict:
        pairs = [(_as_equals(key), _as_equals(item)) for key, item in value.items()]
        return dict(sorted(pairs, key=lambda pair: (str(type(pair[0])), repr(pair[0]))))
    if kind in (list, tuple, set, frozenset):
        return kind(map(_as_equals, value))
    return value


def _decimal_as_equals(value: Decimal) -> Any:
    """Return the int or float that equals a Decimal, or the Decimal without zeros at its end."""
    if not value.is_finite():
        return value
    if not value:
        return 0
    sign, digits, exponent = value.as_tuple()
    kept = "".join(map(str, digits)).rstrip("0")
    places = int(exponent) + len(digits) - len(kept)
    if abs(value.adjusted()) <= _FLOAT_DIGITS:
        if places >= 0:
            return int(value)
        if value == float(value):
            return float(value)
    return Decimal((sign, tuple(map(int, kept)), places))


def _struct(kind: Any, content: dict[str, Any]) -> Any:
    value = kind(**content)
    if hasattr(kind, "__post_init__"):  # it may have computed: the fields are put back
        for key, item in content.items():
            msgspec.structs.force_setattr(value, key, item)
    return value


def _type_name(kind: type) -> str:
    return kind.__qualname__.rpartition("<locals>.")[2]


def _refusal(value: Any, kind: type) -> ValueTypeError:
    hint = "keep a value of one of these types"
    if dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum | msgspec.Struct):
        hint = f"call app.register_type({kind.__name__}) before running"
    elif kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "item"):
        hint = "convert it first, for example with value.item() or value.tolist()"
    elif base := next((b for b in (dict, list, tuple, set, str, int) if issubclass(kind, b)), None):
        hint = f"convert it first, with {base.__name__}(value)"
    return ValueTypeError(
        f"state cannot keep a value of type {kind.__module__}.{kind.__qualname__}: "
        f"{shown(value)}.\nIt keeps {SUPPORTED}.\nFix: {hint}."
    )


def _pack_str(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            msg = (
                f"state cannot keep text with a lone surrogate: {shown(value)}.\n"
                "Fix: decode the text with errors='replace', or keep its bytes."
            )
            raise ValueTypeError(msg) from None
    return value


def _pack_zone(value: datetime | time) -> Any:
    zone = value.tzinfo
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        packed = [offset.days, offset.seconds, offset.microseconds]
        return packed if name == timezone(offset).tzname(None) else [*packed, name]
    msg = (
        f"state cannot keep a time with the time zone {shown(zone)}.\n"
        "Fix: use datetime.timezone or zoneinfo.ZoneInfo, or convert to UTC."
    )
    raise ValueTypeError(msg)


def _pack_datetime(value: datetime) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.fold, _pack_zone(value)]


def _pack_time(value: time) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.fold, _pack_zone(value)]


def _zone(packed: Any) -> Any:
    if isinstance(packed, str):
        return ZoneInfo(packed)
    return None if packed is None else timezone(timedelta(*packed[:3]), *packed[3:])


_UNPACKERS: dict[int, Callable[[Any], Any]] = {
    TUPLE: tuple,
    SET: set,
    FROZENSET: frozenset,
    PAIRS: lambda pairs: {key: item for key, item in pairs},  # noqa: C416 - pairs are lists
    DATETIME: lambda c: datetime.fromisoformat(c[0]).replace(fold=c[1], tzinfo=_zone(c[2])),
    DATE: date.fromisoformat,
    TIME: lambda c: time.fromisoformat(c[0]).replace(fold=c[1], tzinfo=_zone(c[2])),
    TIMEDELTA: lambda c: timedelta(days=c[0], seconds=c[1], microseconds=c[2]),
    DECIMAL: Decimal,
}
