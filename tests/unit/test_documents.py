"""Documents: what is read is what was written, or an error, whatever happened to the bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.documents import parsed, sealed, unsealed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
CONTENTS = st.dictionaries(st.text().filter(lambda name: name != "crc"), VALUES, min_size=1)


@given(CONTENTS, st.sampled_from([None, 2]))
def test_a_document_is_read_as_it_was_written(content, indent):
    assert repr(unsealed(sealed(content, indent))) == repr(content)


@given(CONTENTS, st.data())
def test_a_document_in_which_a_bit_is_flipped_is_refused_or_the_same(content, data):
    written = sealed(content)
    place = data.draw(st.integers(0, len(written) - 1))
    changed = bytearray(written)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = unsealed(bytes(changed))
    except ValueError:
        return
    # The name of the checksum was hit, or the two texts mean the same (1e5 and 1E5).
    found = {name: value for name, value in found.items() if name in content}
    assert repr(found) == repr(content)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[1]",
        "{",
        "[" * 100_000,
        '{"a": 1e999}',
        '{"a": ' * 100_000,
        b"\xff\xfe",
        "9" * 5000,
    ],
)
def test_what_is_no_document_is_one_kind_of_error(text):
    with pytest.raises(ValueError, match=r"."):
        unsealed(text)


def test_a_document_of_an_older_version_has_no_checksum():
    assert unsealed(json.dumps({"a": 1})) == {"a": 1}
    assert parsed("") is parsed(None) is None
