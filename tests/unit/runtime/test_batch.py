"""Records are brought to their groups, and into the order of their origins, however far apart."""

from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.wire.packed_rows import BEFORE, BEHIND, by_group, in_order, records_schema

ENDS = [-(2**63), 2**63 - 1]

sources = st.integers(0, 2) | st.sampled_from([BEFORE, BEHIND])
partitions = st.integers(0, 3) | st.sampled_from([2**40, 2**63 - 1])
offsets = st.integers(0, 20) | st.integers(1000, 1020) | st.sampled_from(ENDS)
origins = st.lists(st.tuples(sources, partitions, offsets), max_size=40)


def batch_of(found):
    """Records that tell by their values how they came."""
    source, partition, offset = zip(*found, strict=True) if found else ((), (), ())
    numbers = [b"%d" % number for number in range(len(found))]
    columns = [pa.nulls(len(found), pa.binary()), numbers, [0] * len(found)]
    arrays = [*columns, source, partition, offset]
    schema = records_schema(0)
    made = [pa.array(a, f.type) for a, f in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def came(batch):
    return [int(value) for value in batch.column("value").to_pylist()]


@given(origins)
@example([(0, 0, ENDS[1]), (0, 0, ENDS[0])])
@example([(0, 0, ENDS[1]), (0, 0, ENDS[0]), (1, 0, 5), (1, 0, 4)])
def test_records_are_in_the_order_of_their_origin(found):
    expected = sorted(range(len(found)), key=found.__getitem__)  # stable, like ours
    assert came(in_order(batch_of(found))) == expected


def test_many_partitions_with_gaps_are_in_order():
    numbers = np.random.default_rng(5)
    found = [(s, p, o * 2) for s in range(2) for p in range(8) for o in range(p * 10, 500)]
    shuffled = [found[i] for i in numbers.permutation(len(found))]
    ordered = in_order(batch_of(shuffled))
    assert [shuffled[i] for i in came(ordered)] == found


@pytest.mark.parametrize("groups", [1, 2, 32, 2**15 + 1, 2**16, 2**16 + 1])
@given(st.lists(st.none() | st.binary(max_size=3), max_size=40))
def test_every_record_comes_to_the_group_of_its_key(groups, keys):
    batch = batch_of([(0, 0, number) for number in range(len(keys))])
    batch = batch.set_column(0, "key", pa.array(keys, pa.binary()))
    wanted = {}
    for number, key in enumerate(keys):
        group = 0 if key is None else crc32(key) % groups
        wanted.setdefault(group, []).append(number)
    assert {group: came(part) for group, part in by_group(batch, groups)} == wanted
