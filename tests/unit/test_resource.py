"""Resources: opened on first use, once for a run in a process, and closed at its end."""

import subprocess
import sys

import pytest

import millpond as mp
from millpond.errors import ConfigError, ResourceError, StepError
from millpond.program.functions import pack
from millpond.testing import LocalEngine, frame, run_local


def noting(file):
    """A resource that writes down when it is opened and closed."""

    @mp.resource
    def numbers():
        with file.open("a") as log:
            log.write("open ")
        yield {"a": 1, "b": 2}
        with file.open("a") as log:
            log.write("close ")

    return numbers


def test_it_is_opened_once_for_a_run_and_closed_at_its_end(tmp_path):
    file = tmp_path / "log"
    numbers = noting(file)
    sdf = frame().apply(lambda value: numbers()[value])
    both = sdf.group_by(str, name="text").apply(lambda v, state: v + numbers()["b"], stateful=True)
    engine = LocalEngine(both)

    engine.feed(["a", "b", "a"])
    assert list(engine.run(batches=1)) == [3, 4, 3]
    assert file.read_text() == "open close "
    engine.feed(["a"])
    engine.run()

    assert file.read_text() == "open close open close "


def test_one_that_is_not_used_is_not_opened(tmp_path):
    numbers = noting(tmp_path / "log")

    run_local(frame().apply(lambda value: numbers()[value]), [])

    assert not (tmp_path / "log").exists()


def test_it_is_closed_where_the_run_fails(tmp_path):
    numbers = noting(tmp_path / "log")

    with pytest.raises(StepError, match="KeyError: 'c'"):
        run_local(frame().apply(lambda value: numbers()[value]), ["a", "c"])

    assert (tmp_path / "log").read_text() == "open close "


def test_a_sink_uses_it_too(tmp_path):
    numbers, sdf = noting(tmp_path / "log"), frame()
    came = []
    sdf.sink(lambda records, delivery_id: came.extend(numbers()[r.value] for r in records))

    run_local(sdf, ["a", "b"], batches=1)

    assert came == [1, 2]
    assert (tmp_path / "log").read_text() == "open close "


def test_the_latest_is_closed_first():
    order = []

    @mp.resource
    def pool():
        yield "pool"
        order.append("pool")

    @mp.resource
    def connection():
        yield f"connection of a {pool()}"
        order.append("connection")

    run = run_local(frame().apply(lambda value: connection()), [1], copy_functions=False)

    assert list(run) == ["connection of a pool"]
    assert order == ["connection", "pool"]


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
def test_one_that_cannot_be_opened_ends_the_run_with_its_name_and_place(on_error):
    @mp.resource
    def database():
        raise ConnectionError("nobody listens")
        yield

    with pytest.raises(
        ResourceError, match=r"'database' \(test_resource\.py:\d+\) could not be opened: Conn"
    ) as caught:
        run_local(frame().apply(lambda value: database()), [1], on_error=on_error)

    assert "\nFix: " in str(caught.value)
    assert "Met by apply 'lambda' (test_resource.py:" in caught.value.__notes__[0]


def test_one_that_yields_nothing_is_an_error():
    @mp.resource
    def nothing():
        if False:
            yield

    with pytest.raises(ResourceError, match="it yields nothing(.|\n)*Fix: "):
        run_local(frame().apply(lambda value: nothing()), [1])


def test_one_that_cannot_be_closed_is_reported(caplog):
    @mp.resource
    def sticky():
        yield 1
        raise OSError("stuck")

    @mp.resource
    def twice():
        yield 1
        yield 2

    run_local(frame().apply(lambda value: sticky() + twice()), [1])

    messages = [record.getMessage() for record in caplog.records]
    assert messages[0].startswith("resource 'twice' (test_resource.py:")
    assert messages[0].endswith("yields more than once; what follows the second is not done")
    assert messages[1].endswith("could not be closed: OSError: stuck")


@pytest.mark.parametrize("given", [lambda: 1, lambda a: (yield a), 5])
def test_what_is_no_generator_function_is_refused(given):
    with pytest.raises(ConfigError, match=r"@mp\.resource takes a generator(.|\n)*Fix: "):
        mp.resource(given)


def test_an_async_generator_is_refused():
    async def opens():
        yield 1

    with pytest.raises(ConfigError, match=r"'opens' is async \(test_resource\.py:\d+\)"):
        mp.resource(opens)


@mp.resource
def of_module():
    """What it is for."""
    yield 1


def test_it_has_the_name_and_text_of_its_function_and_goes_by_name():
    assert of_module.__name__ == "of_module"
    assert of_module.__doc__ == "What it is for."
    assert pack(of_module).copy is of_module


def test_copies_of_one_share_what_is_open(tmp_path):
    numbers = noting(tmp_path / "log")

    assert pack(numbers).copy == numbers == pack(numbers).copy
    assert pack(numbers).copy != noting(tmp_path / "log")


def test_outside_of_a_run_it_is_closed_when_the_process_ends():
    program = """
import millpond as mp

@mp.resource
def number():
    print("open")
    yield 1
    print("close")

print(number() + number())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["open", "2", "close"]
