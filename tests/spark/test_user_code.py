"""Modules of the user, variables of the program and resources, in worker processes."""

import importlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TypedDict

import pytest

import millpond as mp
from millpond.errors import ResourceError

pytestmark = pytest.mark.spark

RECORDS = [{"n": i} for i in range(40)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of modules; what is imported from it is forgotten after the test."""
    place = tmp_path / "program"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    # What another test has loaded under that name.
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        if str(place) in str(getattr(sys.modules[name], "__path__", "")) or str(place) in str(
            getattr(sys.modules[name], "__file__", "")
        ):
            del sys.modules[name]


def lines(file):
    return file.read_text().split() if file.exists() else []


def run_in_batches(app, function, **options):
    """What comes out of a function for the records, in batches of four; and how many batches."""
    topic = app.topic("in")
    if not Path(app.config.topics_dir, "in").exists():
        with app.get_producer() as producer:
            for record in RECORDS:
                producer.produce(topic, key=str(record["n"]), value=record)
    sdf = app.dataframe(topic).apply(lambda value: value)
    sdf.group_by("n").apply(function, stateful=True)
    return app.run(drain=True)


NOTING = """
import os, pathlib

with open(pathlib.Path(__file__).parent / "loaded.txt", "a") as file:
    file.write(f"{{os.getpid()}}\\n")

CALLS = []

def answer(value, state):
    from . import later  # imported on first use
    CALLS.append(value)
    return {answer!r}, later.NAME, len(CALLS)
"""


def test_a_module_beside_the_program_is_imported_once_per_worker_process(folder, make_app):
    package = folder / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("from . import rules\n")
    (package / "rules.py").write_text(NOTING.format(answer="first"))
    (package / "later.py").write_text("NAME = 'later'\n")
    rules = importlib.import_module("shop.rules")
    app = make_app(max_records_per_batch=4)

    came = run_in_batches(app, rules.answer)

    assert {value[:2] for value in came} == {("first", "later")}
    assert len(app.reports) >= 10
    # What the module keeps is there in the next batch: as many processes began to count.
    assert 1 <= Counter(calls for *_, calls in came)[1] <= 2
    loaded = lines(package / "loaded.txt")
    assert loaded[0] == str(os.getpid())
    assert len(loaded) > 1
    assert set(Counter(loaded).values()) == {1}

    # Changed and reloaded, as in a notebook: the next run in the same session goes by it.
    (package / "rules.py").write_text(NOTING.format(answer="second"))
    importlib.reload(rules)
    again = run_in_batches(make_app("other"), rules.answer)
    assert {value[:2] for value in again} == {("second", "later")}


class Base(TypedDict):
    n: int


class Priced(Base, total=False):
    price: float


def test_variables_of_the_program_stay_with_the_process_and_resources_are_closed(
    make_app, tmp_path
):
    opened, closed, calls = tmp_path / "opened", tmp_path / "closed", []

    @mp.resource
    def database():
        with opened.open("a") as file:
            file.write(f"{os.getpid()}\n")
        yield {"price": 2}
        with closed.open("a") as file:
            file.write(f"{os.getpid()}\n")

    def price(value: Priced, state) -> Priced:
        calls.append(value)  # stays where it is: in the process
        return Priced(n=len(calls), price=database()["price"])

    came = run_in_batches(make_app(max_records_per_batch=4), price)

    assert calls == []
    assert {value["price"] for value in came} == {2}
    workers = lines(opened)
    assert workers
    assert str(os.getpid()) not in workers
    assert sorted(lines(closed)) == sorted(workers) == sorted(set(workers))
    # Every process has counted on from batch to batch.
    assert Counter(value["n"] for value in came)[1] == len(workers)


def test_a_resource_that_cannot_be_opened_ends_the_run_with_its_name(make_app):
    @mp.resource
    def database():
        raise ConnectionError("nobody listens on port 5432")
        yield

    app = make_app(on_error="dead-letter")

    with pytest.raises(ResourceError, match=r"'database' \(test_user_code\.py:\d+\) could not"):
        run_in_batches(app, lambda value, state: database())


BESIDE = """
import os, pathlib
import millpond as mp

HERE = pathlib.Path(__file__).parent

def note(word):
    with open(HERE / "log.txt", "a") as file:
        file.write(f"{word}:{os.getpid()}\\n")

note("loaded")

@mp.resource
def database():
    note("opened")
    yield 10
    note("closed")
"""

MAIN = """
from typing import TypedDict

import millpond as mp
import beside

class Order(TypedDict):
    n: int

class Priced(Order, total=False):
    price: int

def price(value: Order) -> Priced:
    return Priced(n=value["n"], price=beside.database())

app = mp.Application(
    state_dir="state", topics_dir="topics", loglevel=None, master="local[2]",
    max_records_per_batch=5,
)
sdf = app.dataframe(source=[{"n": i} for i in range(20)])
sdf.group_by("n").apply(price).apply(lambda v, state: v["price"], stateful=True)
print(app.run())
"""


def test_a_file_that_python_runs_from_another_folder(tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "main.py").write_text(MAIN)
    (tmp_path / "programs" / "beside.py").write_text(BESIDE)

    command = [sys.executable, "programs/main.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([10] * 20)
    noted = lines(tmp_path / "programs" / "log.txt")
    pids = {
        word: {n.partition(":")[2] for n in noted if n.startswith(word)}
        for word in ("loaded", "opened", "closed")
    }
    assert set(Counter(noted).values()) == {1}  # each process did each of it once
    assert pids["closed"] == pids["opened"] < pids["loaded"]  # the driver opened nothing
