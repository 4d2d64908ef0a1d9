"""What a topic takes of a record: times, sizes and keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.connectors.limits import Limits, refused
from millpond.wire.headers import encode_headers
from millpond.wire.packed_rows import HEADERS, records_schema

NOW, HOUR = 1_794_700_000_000, 3_600_000


def batch_of(*rows):
    """Rows of (key, value, timestamp, headers), as outputs come from the stages."""
    columns = [
        [key for key, _, _, _ in rows],
        [value for _, value, _, _ in rows],
        [moment for _, _, moment, _ in rows],
        [0] * len(rows),
        [0] * len(rows),
        list(range(len(rows))),
        [encode_headers(headers) for _, _, _, headers in rows],
    ]
    schema = records_schema(HEADERS)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def times_of(*moments):
    return batch_of(*((b"k", b"v", moment, None) for moment in moments))


KAFKA = Limits(sent=1_000_000, kept=1_048_588, old=2**63 - 1, ahead=HOUR)


def test_times_before_1970_and_too_far_ahead_are_refused():
    batch = times_of(NOW, -1, 0, NOW + HOUR, NOW + HOUR + 1, 2**63 - 1, -(2**63))

    found = refused(KAFKA, "out", batch, NOW)

    assert sorted(found) == [1, 4, 5, 6]
    assert "-1, is before 1970" in found[1]
    assert "3600001 ms ahead" in found[4]
    assert "topic 'out' takes 3600000 at most" in found[4]
    assert all("\nFix: " in why for why in found.values())


def test_a_time_that_is_too_old_for_the_topic_is_refused():
    limits = Limits(sent=1_000_000, old=HOUR, ahead=HOUR)

    found = refused(limits, "out", times_of(NOW - HOUR - 1, NOW - HOUR), NOW)

    assert list(found) == [0]
    assert "message.timestamp.before.max.ms" in found[0]


def test_a_topic_with_times_of_its_own_takes_all():
    limits = Limits(sent=1_000_000, old=HOUR, ahead=HOUR, has_times=False)

    for wall in (None, NOW):
        assert refused(limits, "out", times_of(-5, NOW + 2 * HOUR, -(2**63)), NOW, wall) == {}


def test_after_a_refusal_there_is_room_for_clocks_that_differ_and_for_a_late_replay():
    limits = Limits(sent=1_000_000, old=HOUR)
    wall = NOW + 3 * HOUR  # the batch is replayed three hours after it was planned
    batch = times_of(NOW, wall - HOUR // 2, NOW + HOUR, NOW + HOUR - 300_000)

    assert refused(limits, "out", batch, NOW) == {}
    assert sorted(refused(limits, "out", times_of(NOW), NOW, wall)) == [0]
    assert sorted(refused(limits, "out", times_of(NOW + HOUR), NOW, NOW)) == [0]
    assert sorted(refused(limits, "out", times_of(NOW + HOUR - 300_000), NOW, NOW)) == []


def test_a_record_that_compression_may_make_fit_is_refused_only_after_the_broker_has_done_so():
    limits = Limits(sent=1_000_000, kept=10_000)
    batch = batch_of((b"k", b"v" * 20_000, NOW, None))

    assert refused(limits, "out", batch, NOW) == {}
    assert "20001 bytes" in refused(limits, "out", batch, NOW, NOW)[0]


def test_a_compacted_topic_refuses_what_has_no_key():
    limits = Limits(sent=1_000_000, needs_key=True)
    batch = batch_of((None, b"v", NOW, None), (b"", b"v", NOW, None))

    found = refused(limits, "out", batch, NOW)

    assert list(found) == [0]
    assert "no key" in found[0]


def varint(number: int) -> int:
    """The bytes of a length as Kafka writes it."""
    zigzag, size = 2 * abs(number) - (number < 0), 1
    while zigzag > 127:
        zigzag, size = zigzag >> 7, size + 1
    return size


names = st.text(max_size=80)
values = st.none() | st.integers(0, 70_000).map(lambda n: b"h" * n)


@given(
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(names, values), max_size=8),
)
@pytest.mark.filterwarnings("ignore")
def test_no_record_is_taken_that_librdkafka_finds_too_large(key, value, headers):
    """It adds 36 bytes to key, value and headers, and these have their lengths beside them."""
    size = 36 + len(key or b"") + len(value or b"")
    for name, data in headers:
        length = len(name.encode())
        size += varint(length) + length
        size += varint(-1 if data is None else len(data)) + len(data or b"")

    found = refused(Limits(sent=size - 1), "out", batch_of((key, value, NOW, headers)), NOW)

    assert list(found) == [0]
