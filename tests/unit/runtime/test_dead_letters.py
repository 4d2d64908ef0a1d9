"""Dead letters that are too large for their topic."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millpond import Application
from millpond.testing import run_local
from millpond.wire.dead_letters import cut_to_fit, timed_to_fit
from millpond.wire.headers import decode_headers, encode_headers

FACTS = ["error", "traceback", "step", "call_site", "topic", "partition", "offset"]
WHAT_A_BROKER_ADDS = 200


def letter(key, value, own=(), texts=()):
    """Return a dead letter as a batch of one record."""
    texts = [*texts, *["x"] * (len(FACTS) - len(texts))]
    facts = [(f"millpond.{name}", text) for name, text in zip(FACTS, texts, strict=True)]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key], pa.binary()),
            "value": pa.array([value], pa.binary()),
            "headers": pa.array([encode_headers([*own, *facts])], pa.binary()),
            "timestamp": pa.array([1], pa.int64()),
        }
    )


def parts(batch):
    (row,) = batch.to_pylist()
    return row["key"], row["value"], decode_headers(row["headers"])


def size(batch):
    key, value, headers = parts(batch)
    return (
        len(key or b"")
        + len(value or b"")
        + sum(len(name) + len(text or b"") + 10 for name, text in headers)
        + WHAT_A_BROKER_ADDS
    )


def test_what_fits_stays_as_it_is():
    small = letter(b"key", b"value")

    assert cut_to_fit(small, 1_000_000) is small


def test_a_value_that_is_too_large_is_cut_and_a_header_says_so():
    key, value, headers = parts(cut_to_fit(letter(b"k", b"v" * 999_900), 1_000_000))

    assert key == b"k"
    assert 990_000 < len(value) < 999_900
    assert headers[-1] == ("millpond.cut", b"the value from byte %d of 999900 on" % len(value))


def test_headers_of_the_record_are_left_out_before_what_was_said_about_it():
    whole = letter(b"k", b"v" * 400_000, own=[("h", "x" * 620_000)])

    key, value, headers = parts(cut_to_fit(whole, 1_000_000))

    assert (key, len(value)) == (b"k", 400_000)
    assert [name for name, _ in headers] == [*[f"millpond.{f}" for f in FACTS], "millpond.cut"]
    assert headers[-1][1] == b"1 headers of the record"


sizes = st.integers(0, 30_000)


@given(
    key=st.none() | sizes.map(lambda n: b"k" * n),
    value=st.none() | sizes.map(lambda n: b"v" * n),
    own=st.lists(st.tuples(st.sampled_from(["a", "millpond.error"]), sizes.map(lambda n: "h" * n))),
    texts=st.lists(sizes.map(lambda n: "t" * n), max_size=2),
    largest=st.integers(4_000, 40_000),
)
def test_each_dead_letter_fits_and_is_the_beginning_of_the_whole(key, value, own, texts, largest):
    whole = letter(key, value, own, texts)

    cut = cut_to_fit(whole, largest)

    assert size(cut) <= largest
    assert cut.schema == whole.schema
    found_key, found_value, headers = parts(cut)
    for found, original in ((found_key, key), (found_value, value)):
        assert (found is None) == (original is None)
        assert (original or b"").startswith(found or b"")
    is_as_it_was = (found_key, found_value, headers) == parts(whole)
    assert (headers[-1][0] == "millpond.cut") != is_as_it_was


def test_errors_that_quote_fifty_million_characters_are_shortened():
    def quote(value):
        raise ValueError("<" + "x" * 50_000_000 + ">")

    app = Application()
    frame = app.dataframe(app.topic("texts"))
    frame.apply(quote)

    run = run_local(frame, [("k", 1)], on_error="dead-letter")

    headers = dict(run.dead_letters[0].headers)
    error = headers["millpond.error"].decode()
    assert error.startswith("ValueError: <xxx")
    assert error.endswith("xxx>")
    assert "\n... 49996" in error
    assert len(error) < 5_000
    assert len(headers["millpond.traceback"]) < 20_000


def test_a_time_that_the_topic_refuses_becomes_that_of_the_batch_and_a_header_says_so():
    refused = pa.concat_batches([letter(b"a", b"1"), letter(b"b", b"2"), letter(b"c", b"3")])
    refused = refused.set_column(3, "timestamp", pa.array([-5, 100, 2**62], pa.int64()))

    found = timed_to_fit(refused, 0, 1_000, 200)

    assert found.column("timestamp").to_pylist() == [200, 100, 200]
    headers = [dict(decode_headers(packed)) for packed in found.column("headers").to_pylist()]
    assert [h.get("millpond.timestamp") for h in headers] == [b"-5", None, str(2**62).encode()]
    assert found.column("value").to_pylist() == [b"1", b"2", b"3"]
    assert timed_to_fit(refused.slice(1, 1), 0, 1_000, 200) == refused.slice(1, 1)


def test_a_batch_whose_own_time_the_topic_refuses_gives_the_nearest_one():
    assert timed_to_fit(letter(b"a", b"1"), 500, 1_000, 200)["timestamp"].to_pylist() == [500]
