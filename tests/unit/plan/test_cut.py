import pytest

from millpond.errors import PlanError
from millpond.program.graph import Graph
from millpond.program.plan import make_plan
from millpond.program.validate import check_graph
from millpond.testing import ListSource, frame


def same(value):
    return value


def keep(value, state):
    return value


def shape(sdf):
    """The plan as (scope, layer, names of its steps) for each stage."""
    plan = make_plan(sdf._graph)
    return [(s.scope, s.layer, [step.name for step in s.steps]) for s in plan.stages]


def test_steps_without_state_are_one_stage():
    sdf = frame().apply(same).filter(same)

    assert shape(sdf) == [("", 0, ["list", "same", "same"])]


def test_records_move_as_late_as_possible():
    sdf = frame().apply(same).apply(keep, stateful=True).apply(same)

    assert shape(sdf) == [("", 0, ["list", "same"]), ("list", 1, ["keep", "same"])]


def test_all_stateful_steps_of_one_key_are_one_stage():
    sdf = frame().apply(keep, stateful=True).apply(same).stateful_map("sum", lambda k, v, s: (v, s))

    plan = make_plan(sdf._graph)

    assert shape(sdf) == [("", 0, ["list"]), ("list", 1, ["keep", "same", "sum"])]
    assert plan.stores() == {"list": ["default", "sum"]}
    assert plan.layers == 1


def test_a_change_of_key_without_state_after_it_moves_nothing():
    sdf = frame().group_by("a").apply(same)

    assert len(shape(sdf)) == 1


def test_a_change_of_key_that_is_replaced_by_another_moves_once():
    sdf = frame().group_by("a").apply(same).group_by("b").apply(keep, stateful=True)

    assert shape(sdf) == [("", 0, ["list", "a", "same", "b"]), ("list/a/b", 1, ["keep"])]


def test_each_change_of_key_with_state_after_it_is_a_layer():
    sdf = frame().group_by("a").apply(keep, stateful=True).group_by("b").apply(keep, stateful=True)

    assert shape(sdf) == [
        ("", 0, ["list", "a"]),
        ("list/a", 1, ["keep", "b"]),
        ("list/a/b", 2, ["keep"]),
    ]


def test_branches_with_state_of_one_key_share_a_stage():
    sdf = frame()
    sdf.apply(same).apply(keep, stateful=True)
    sdf.filter(same).apply(keep, stateful=True)

    assert shape(sdf) == [("", 0, ["list"]), ("list", 1, ["same", "keep", "same", "keep"])]


def test_branches_with_different_keys_are_stages_of_one_layer():
    sdf = frame()
    sdf.group_by("a").apply(keep, stateful=True)
    sdf.group_by("b").apply(keep, stateful=True)

    assert shape(sdf) == [
        ("", 0, ["list", "a", "b"]),
        ("list/a", 1, ["keep"]),
        ("list/b", 1, ["keep"]),
    ]


def test_a_branch_without_state_stays_where_its_records_are():
    sdf = frame()
    sdf.apply(same).print()
    sdf.apply(keep, stateful=True)

    assert shape(sdf) == [("", 0, ["list", "same", "print"]), ("list", 1, ["keep"])]


def test_a_merge_after_stages_of_different_layers_comes_after_both():
    sdf = frame()
    one = sdf.group_by("a").apply(keep, stateful=True).group_by("b").apply(keep, stateful=True)
    two = sdf.group_by("c").apply(keep, stateful=True)
    one.concat(two).apply(keep, stateful=True)

    stages = {scope: layer for scope, layer, _ in shape(sdf)}

    assert stages == {"": 0, "list/a": 1, "list/a/b": 2, "list/c": 1, "list/a/b+list/c": 3}


def test_bytes_pass_untouched_where_nothing_is_done_before_state():
    sdf = frame().apply(keep, stateful=True)

    (edge,) = make_plan(sdf._graph).edges

    assert (edge.raw_of, edge.raw_key_of) == (0, 0)


def test_keys_pass_untouched_where_the_key_is_that_of_the_source():
    sdf = frame().apply(same).apply(keep, stateful=True)

    (edge,) = make_plan(sdf._graph).edges

    assert (edge.raw_of, edge.raw_key_of) == (None, 0)


# --- names ----------------------------------------------------------------------------------


def test_names_of_scopes_do_not_depend_on_the_place_in_the_program():
    one = frame()
    one.group_by("a").apply(keep, stateful=True)
    one.group_by("b").apply(keep, stateful=True)
    other = frame()
    other.group_by("b").apply(same).apply(keep, stateful=True)
    other.apply(same)
    other.group_by("a").apply(keep, stateful=True)

    assert set(make_plan(one._graph).stores()) == set(make_plan(other._graph).stores())


def test_the_order_of_a_concat_does_not_change_the_name():
    def scopes(swap):
        sdf = frame()
        one, two = sdf.group_by("a"), sdf.group_by("b")
        (two.concat(one) if swap else one.concat(two)).apply(keep, stateful=True)
        return set(make_plan(sdf._graph).stores())

    assert scopes(False) == scopes(True) == {"list/a+list/b"}


def test_two_scopes_of_one_name_are_refused_with_both_places():
    sdf = frame()
    sdf.group_by("a").apply(keep, stateful=True)
    sdf.apply(same).group_by("a").apply(keep, stateful=True)

    with pytest.raises(PlanError, match=r"test_cut.py:\d+(.|\n)*test_cut.py:\d+(.|\n)*Fix:"):
        make_plan(sdf._graph)


# --- checks ---------------------------------------------------------------------------------


def test_a_program_without_a_frame_is_refused():
    with pytest.raises(PlanError, match="no frame to run(.|\n)*Fix:"):
        check_graph(Graph())


def test_two_stateful_maps_of_one_name_are_refused_with_both_places():
    sdf = frame(ListSource([])).stateful_map("sum", lambda k, v, s: (v, s))
    sdf = sdf.stateful_map("sum", lambda k, v, s: (v, s))

    place = r"stateful_map \(test_cut.py:\d+\)"
    with pytest.raises(PlanError, match=rf"{place} and {place}(.|\n)*Fix:"):
        check_graph(sdf._graph)
