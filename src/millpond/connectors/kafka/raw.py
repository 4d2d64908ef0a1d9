"""Records with a header name that is not UTF-8, which confluent_kafka cannot give.

Its `poll` and `consume` raise an error for such a record and drop it (2.16), so a group could never
get past it. Takes settings and a range; gives the records as librdkafka itself has them. Names are
decoded as Java's consumer decodes them: what is not UTF-8 becomes U+FFFD.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, cimpl

from millpond.errors import ConfigError

__all__ = ["RawMessage", "read_raw"]

# Milliseconds for which a record is waited for at a time; bytes of an error's text.
_WAIT, _TEXT = 500, 512

_CONSUMER = 1


class RawMessage(NamedTuple):
    """A record, or an error in its place, with the methods of confluent_kafka's."""

    place: int
    code: int
    fields: tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]

    def error(self) -> KafkaError | None:
        return KafkaError(self.code) if self.code else None

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return self.fields[0]

    def value(self) -> bytes | None:
        return self.fields[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.fields[2]

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.fields[3]


class _Message(Structure):
    """`rd_kafka_message_t` of rdkafka.h."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    )


@cache
def _library() -> Any:
    """Return librdkafka, which confluent_kafka has loaded already."""
    library = ctypes.CDLL(cimpl.__file__)
    for name, result, *takes in (
        ("conf_new", c_void_p),
        ("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
        ("conf_destroy", None, c_void_p),
        ("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t),
        ("destroy", None, c_void_p),
        ("topic_new", c_void_p, c_void_p, c_char_p, c_void_p),
        ("topic_destroy", None, c_void_p),
        ("consume_start", c_int, c_void_p, c_int32, c_int64),
        ("consume_stop", c_int, c_void_p, c_int32),
        ("consume", POINTER(_Message), c_void_p, c_int32, c_int),
        ("message_destroy", None, POINTER(_Message)),
        ("message_timestamp", c_int64, POINTER(_Message), c_void_p),
        ("message_headers", c_int, POINTER(_Message), POINTER(c_void_p)),
        ("header_get_all", c_int, c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p),
         POINTER(c_size_t)),
    ):  # fmt: skip
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, takes
    return library


def read_raw(
    settings: dict[str, Any], topic: str, partition: int, start: int
) -> Generator[RawMessage | None]:
    """Yield the records of a partition from an offset on; None where none came for a while.

    Args:
        settings: Of librdkafka; of those that are functions, none can be used.
        topic: The topic.
        partition: The partition.
        start: The first offset.
    """
    library = _library()
    with _client(settings) as client:
        place = library.rd_kafka_topic_new(client, topic.encode(), None)
        library.rd_kafka_consume_start(place, partition, start)
        try:
            while True:
                message = library.rd_kafka_consume(place, partition, _WAIT)
                if not message:
                    yield None
                    continue
                try:
                    found = _taken(message)
                finally:
                    library.rd_kafka_message_destroy(message)
                yield found
        finally:
            library.rd_kafka_consume_stop(place, partition)
            library.rd_kafka_topic_destroy(place)


@contextmanager
def _client(settings: dict[str, Any]) -> Iterator[Any]:
    library, said = _library(), ctypes.create_string_buffer(_TEXT)
    conf = library.rd_kafka_conf_new()
    for name, value in {**settings, "log_level": 0}.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        is_text = isinstance(value, str | int | float)
        if not is_text or library.rd_kafka_conf_set(
            conf, name.encode(), text.encode(), said, _TEXT
        ):
            library.rd_kafka_conf_destroy(conf)
            why = said.value.decode(errors="replace") or "it is a function"
            msg = f"a record has a header name that is not UTF-8, and setting {name!r}: {why}."
            raise ConfigError(
                f"{msg}\nFix: use settings that are text, or have the header written in UTF-8."
            )
    client = library.rd_kafka_new(_CONSUMER, conf, said, _TEXT)
    if not client:
        library.rd_kafka_conf_destroy(conf)
        raise KafkaException(KafkaError(KafkaError._FAIL, said.value.decode(errors="replace")))
    try:
        yield client
    finally:
        library.rd_kafka_destroy(client)


def _taken(message: Any) -> RawMessage:
    """Copy a record, whose memory is given back next."""
    library, found = _library(), message.contents
    if found.err:
        return RawMessage(found.offset, found.err, (None, None, 0, []))
    moment = library.rd_kafka_message_timestamp(message, None)
    key, value = _bytes(found.key, found.key_len), _bytes(found.payload, found.len)
    return RawMessage(found.offset, 0, (key, value, moment, list(_headers(message))))


def _headers(message: Any) -> Iterator[tuple[str, bytes | None]]:
    library, headers = _library(), c_void_p()
    if library.rd_kafka_message_headers(message, byref(headers)):
        return  # there are none
    name, value, size, number = c_char_p(), c_void_p(), c_size_t(), 0
    while not library.rd_kafka_header_get_all(
        headers, number, byref(name), byref(value), byref(size)
    ):
        yield (name.value or b"").decode("utf-8", "replace"), _bytes(value.value, size.value)
        number += 1


def _bytes(place: int | None, size: int) -> bytes | None:
    return None if place is None else ctypes.string_at(place, size)
