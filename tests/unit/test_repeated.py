"""A notebook cell that is run again: its steps are there twice, which is warned about once."""

import logging
from functools import partial

import pytest

import millpond as mp
from millpond.errors import ConfigError, PlanError
from millpond.testing import run_local


@pytest.fixture
def app(tmp_path):
    return mp.Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)


@pytest.fixture
def warned(caplog):
    """The warnings so far, without their Fix."""
    logger = logging.getLogger("millpond")
    propagate, logger.propagate = logger.propagate, True

    def messages():
        return [r.getMessage().partition("\n")[0] for r in caplog.records]

    with caplog.at_level(logging.WARNING, "millpond"):
        yield messages
    logger.propagate = propagate


class Notebook:
    """Runs cells as a kernel does: one namespace, and files named after the text of a cell."""

    def __init__(self, **names):
        self.names = dict(names)

    def run(self, cell):
        exec(compile(cell, f"/tmp/ipykernel_7/{abs(hash(cell))}.py", "exec"), self.names)


COUNT = """
def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")
"""
CELL = COUNT + "sdf.apply(count, stateful=True).to_topic(out)"
FRAME = "sdf = app.dataframe(app.topic('in')); out = app.topic('out')"
RECORDS = [("a", 1), ("a", 2)]


def outputs(notebook):
    run = run_local(notebook.names["sdf"], RECORDS)
    return [record.value for record in run.topics["out"]]


def test_a_cell_that_is_run_again(app, warned):
    notebook = Notebook(app=app)
    notebook.run(FRAME)
    notebook.run(CELL)
    assert outputs(notebook) == [b"1", b"2"] and warned() == []

    notebook.run(CELL)

    assert outputs(notebook) == [b"1", b"2", b"3", b"4"]
    assert len(warned()) == 1
    assert "apply count is in the program twice" in warned()[0]
    assert "each record changes its state twice" in warned()[0]


def test_a_warning_is_given_once_and_its_fix_works(app, warned):
    notebook = Notebook(app=app)
    notebook.run(FRAME)
    for _ in range(2):
        notebook.run(CELL)
    app.explain()
    app.explain()
    assert len(warned()) == 1

    app.clear_graph()
    notebook.run(FRAME)
    notebook.run(CELL)

    assert outputs(notebook) == [b"1", b"2"]
    assert len(warned()) == 1


def test_a_cell_that_is_edited_and_run_again(app, warned):
    notebook = Notebook(app=app)
    notebook.run(FRAME)
    notebook.run(CELL)
    notebook.run(CELL.replace("+ 1", "+ 10"))

    app.explain()

    assert [text.rpartition(": ")[2] for text in warned()] == ["the older one still runs."]


def test_a_cell_that_puts_a_stateful_step_after_itself(app, warned):
    notebook = Notebook(app=app)
    notebook.run(FRAME + COUNT)
    for _ in range(2):
        notebook.run("sdf = sdf.apply(count, stateful=True)")

    app.explain()

    assert len(warned()) == 1 and "changes its state twice" in warned()[0]


def test_a_stateless_branch_that_is_there_twice(app, warned):
    sdf, out = app.dataframe(app.topic("in")), app.topic("out")
    for _ in range(2):
        sdf.apply(str).to_topic(out)

    app.explain()

    assert len(warned()) == 1 and "everything comes out twice" in warned()[0]


def larger(value, than):
    return value > than


def test_loops_that_build_different_branches_are_no_repetition(app, warned):
    sdf = app.dataframe(app.topic("in"))
    for limit in (1, 2):
        sdf.filter(lambda value, limit=limit: value > limit).to_topic(app.topic("a"))
        sdf.filter(partial(larger, than=limit)).to_topic(app.topic("b"))
        sdf[sdf["n"] > limit].to_topic(app.topic("c"))
        sdf.apply(str).to_topic(app.topic(f"d{limit}"))
        make = (lambda bound: lambda value: value > bound)(limit)
        sdf.filter(make).apply(str).print()
        sdf.group_by("user", name=f"g{limit}").agg(name=f"t{limit}", n=mp.Count()).print()
    for _ in range(3):
        sdf = sdf.apply(lambda value: value)

    app.explain()

    assert warned() == []


def test_different_functions_on_one_frame_are_no_repetition(app, warned):
    notebook = Notebook(app=app)
    notebook.run(FRAME + COUNT)
    notebook.run("sdf.apply(count, stateful=True).print()")
    notebook.run("sdf.apply(lambda value: 1).print()")
    notebook.run("sdf.apply(lambda value: 2).print()")

    app.explain()

    assert warned() == []


def test_a_named_store_twice_says_what_to_do_in_a_notebook(app):
    sdf = app.dataframe(app.topic("in"))
    for _ in range(2):
        sdf.agg(name="totals", n=mp.Count())

    with pytest.raises(PlanError, match=r"under the name 'totals'(.|\n)*app\.clear_graph\(\)"):
        app.explain()

    app.clear_graph()
    app.dataframe(app.topic("in")).agg(name="totals", n=mp.Count())
    assert "totals" in app.explain()


def test_a_frame_twice_says_how_to_build_the_program_again(app):
    app.dataframe(app.topic("in"))
    with pytest.raises(ConfigError, match=r"frame for 'in' already(.|\n)*app\.clear_graph\(\)"):
        app.dataframe(app.topic("in"))

    app.clear_graph()

    assert app.dataframe(app.topic("in")) is not None


def test_a_frame_from_before_cannot_be_used(app):
    old = app.dataframe(app.topic("in"))
    app.clear_graph()

    with pytest.raises(ConfigError, match=r"apply \(test_repeated.py:\d+\) is called on a frame"):
        old.apply(str)

    app.dataframe(app.topic("in")).apply(str)


def test_clearing_keeps_types_and_migrations(app):
    @app.migration("default", from_version=1)
    def lift(values):
        return values

    app.clear_graph()

    assert app.graph.migrations["default"] == {1: lift}
    assert app.graph.options.codec is app.codec
