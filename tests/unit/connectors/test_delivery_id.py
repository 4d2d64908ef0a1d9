"""Ids of deliveries: one for the same records at the same sink, another for anything else."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.connectors.delivery_id import DeliveryId, delivery_id
from millpond.errors import ConfigError, MillpondError
from millpond.testing import LocalEngine, frame, run_local

PARTS = st.tuples(
    st.sampled_from(["g/1", "g/2"]),
    st.integers(0, 2),
    st.sampled_from([{"in": {"0": 5}}, {"in": {"0": 6}}]),
    st.sampled_from(["save", "save-2"]),
)


@given(PARTS, PARTS)
def test_ids_are_equal_only_where_everything_is(one, other):
    assert (delivery_id(*one) == delivery_id(*other)) == (one == other)


def test_an_id_is_a_text_that_can_be_a_file_name():
    name = delivery_id("g/1", 3, {"in": {"0": 5}}, "save")

    assert name.startswith("save-3-")
    assert name.replace("-", "").isalnum()
    assert pickle.loads(pickle.dumps(name)) == name
    assert {name: 1}[str(name)] == 1


@pytest.mark.parametrize("compare", ["__lt__", "__le__", "__gt__", "__ge__"])
def test_ids_have_no_order(compare):
    with pytest.raises(MillpondError, match=r"have no order.*\nFix: store the id under a unique"):
        getattr(DeliveryId("a"), compare)("b")


def test_a_stored_id_cannot_be_ordered_with_a_new_one():
    with pytest.raises(MillpondError, match="have no order"):
        sorted(["save-1-ab", DeliveryId("save-2-cd")])


def test_a_sink_that_asks_for_the_batch_number_gets_a_fix():
    class Old:
        def write(self, batch):
            self.last = batch.batch_id

    sdf = frame()
    sdf.sink(Old())

    with pytest.raises(AttributeError, match=r"no batch_id.*\nFix: use batch.delivery_id"):
        run_local(sdf, [1])


def test_each_batch_and_each_sink_has_its_own_id():
    seen, sdf = [], frame()
    sdf.sink(lambda records, delivery_id: seen.append(delivery_id), name="a")
    sdf.sink(lambda records, delivery_id: seen.append(delivery_id), name="b")

    run_local(sdf, [1, 2, 3], batches=[2])

    assert len(set(seen)) == len(seen) == 4
    assert [name.split("-")[0] for name in seen] == ["a", "b", "a", "b"]


def test_a_replayed_batch_has_the_id_it_had():
    seen, sdf = [], frame()

    def save(records, delivery_id):
        seen.append(delivery_id)
        if len(seen) == 1:
            raise OSError("the database is away")

    sdf.sink(save)
    engine = LocalEngine(sdf)
    engine.feed([1, 2])
    with pytest.raises(OSError, match="away"):
        engine.run()
    engine.run()

    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_two_sinks_of_one_name_are_refused_and_a_name_helps():
    def save(records, delivery_id): ...

    sdf = frame()
    sdf.sink(save)

    with pytest.raises(ConfigError, match=r'sink \'save\' already.*\nFix: .*name="save-2"'):
        sdf.sink(partial(save))
    sdf.sink(partial(save), name="save-2")
    assert run_local(sdf, [1]) == [1, 1]


def test_list_sinks_need_no_names():
    one, two, sdf = mp.ListSink(), mp.ListSink(), frame()
    sdf.sink(one)
    sdf.sink(two)

    run_local(sdf, [1])

    assert one == two == [1]


def test_the_name_of_a_function_is_checked_too():
    def save(records, delivery_id):
        pass

    save.__name__ = "a/../b"

    with pytest.raises(
        ConfigError, match=r"cannot be the name of a sink.*\nFix: .*name=\"results\""
    ):
        frame().sink(save)
    frame().sink(save, name="results")


def test_a_sink_name_is_checked():
    with pytest.raises(ConfigError, match="cannot be the name of a sink"):
        frame().sink(mp.ListSink(), name="a/b")
