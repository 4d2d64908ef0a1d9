"""What cannot be sent to workers is reported before Spark is started, with its step and place."""

import functools
import importlib
import math
import re
import sqlite3
import subprocess
import sys
import threading
from typing import Required, TypedDict, get_type_hints

import pytest

import millpond as mp
from millpond.errors import ConfigError
from millpond.program.functions import pack
from millpond.testing import LocalEngine, frame, run_local


@pytest.fixture
def app(tmp_path):
    return mp.Application(state_dir=tmp_path, topics_dir=tmp_path, loglevel=None)


def test_a_function_that_holds_a_connection(app):
    connection = sqlite3.connect(":memory:")

    def look_up(value):
        return connection.execute("select 1").fetchone()

    app.dataframe(source=[1]).apply(lambda value: value).apply(look_up)

    with pytest.raises(ConfigError, match=r"apply \(test_shipping\.py:\d+\).*sqlite3(.|\n)*Fix:"):
        app.run()


def test_a_function_that_holds_the_application(app):
    app.dataframe(source=[1]).apply(lambda value: app.config)

    with pytest.raises(ConfigError, match=r"apply \(test_shipping\.py:\d+\)(.|\n)*Fix:"):
        app.run()


def test_an_error_function_that_holds_a_lock(tmp_path):
    lock = threading.Lock()
    app = mp.Application(
        state_dir=tmp_path, loglevel=None, on_processing_error=lambda *_: lock.locked()
    )
    app.dataframe(source=[1]).apply(lambda value: value)

    with pytest.raises(ConfigError, match=r"function of the application(.|\n)*Fix:"):
        app.run()


def test_the_local_engine_refuses_it_too_and_names_the_variable():
    lock = threading.Lock()

    def helper():
        return lock.locked()

    def locked(value):
        return helper()

    with pytest.raises(
        ConfigError,
        match=r"apply \(test_shipping\.py:\d+\): variable 'lock' in 'helper' "
        r"\(test_shipping\.py:\d+\), of type lock, cannot be sent(.|\n)*Fix: .*@mp\.resource",
    ):
        run_local(frame().apply(lambda value: value).apply(locked), [1])


class Torn:
    """It can be pickled, and not be loaded again."""

    def __setstate__(self, state):
        raise TypeError("no way back")


def test_what_cannot_be_loaded_again_is_refused_before_the_run():
    torn = Torn()
    torn.value = 1

    with pytest.raises(ConfigError, match=r"filter \(.*variable 'torn' in 'lambda'.*no way back"):
        run_local(frame().filter(lambda value: torn is None), [1])


@pytest.mark.parametrize(
    "held",
    [sys.__stderr__, (i for i in range(3)), threading.Lock()],
    ids=["file", "gen", "lock"],
)
def test_open_files_generators_and_locks_are_refused(held):
    with pytest.raises(ConfigError, match=r"update \(test_shipping.py:\d+\): variable 'held'"):
        run_local(frame().update(lambda value: held), [1])


def test_typed_dicts_that_are_derived_from_others_can_be_sent():
    class Order(TypedDict):
        n: Required[int]

    class Priced(Order, total=False):
        price: float

    def price(value: Order) -> Priced:
        return Priced(n=value["n"], price=2.0)

    copy = pack((Priced, price)).copy[0]
    run = run_local(frame().apply(price), [{"n": 1}])

    assert list(run) == [{"n": 1, "price": 2.0}]
    assert copy.__required_keys__ == {"n"}
    assert copy.__optional_keys__ == {"price"}
    assert get_type_hints(copy) == {"n": int, "price": float}


def test_functions_run_as_copies_and_a_changed_variable_is_warned_of(caplog):
    seen, quiet = [], {"a": 1}

    def look(value):
        seen.append(value)
        return quiet["a"]

    sdf = frame().apply(look)
    engine = LocalEngine(sdf)
    for _ in range(2):
        engine.feed([1])
        engine.run()

    assert seen == []
    (warning,) = [r.getMessage() for r in caplog.records]
    assert re.match(
        r"apply \(test_shipping\.py:\d+\) changed the variable 'seen', .*Fix: ", warning
    )


RULES = """
SEEN, N = [], 0

class Held:
    total = 0

    def __init__(self):
        self.count = 0

    def take(self, value):
        self.count += 1

    def __call__(self, value):
        self.count += 1

HELD = Held()

def append(value):
    SEEN.append(value)

def count(value):
    global N
    N += 1

def of_a_class(value):
    Held.total += 1

def of_an_object(value):
    HELD.count += 1

def called(value):
    append(value)
"""


@pytest.mark.parametrize(
    ("function", "variable"),
    [
        ("append", "SEEN"),
        ("count", "N"),
        ("of_a_class", "Held.total"),
        ("of_an_object", "HELD.count"),
        ("called", "SEEN"),
        ("Held().take", "Held.count"),
        ("Held()", "Held.count"),
        ("[].append", "list of append()"),
    ],
)
def test_a_change_outside_of_a_function_is_warned_of(
    function, variable, tmp_path, monkeypatch, caplog
):
    name = f"rules_{abs(hash(function))}"
    (tmp_path / f"{name}.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    rules = importlib.import_module(name)

    run_local(frame().update(eval(function, vars(rules))), [1, 2])

    (warning,) = [r.getMessage() for r in caplog.records]
    assert re.match(
        rf"update \(.*\) changed the variable '{re.escape(variable)}', .*Fix: ", warning
    )


def test_a_change_in_a_module_that_a_function_names_is_warned_of(tmp_path, monkeypatch, caplog):
    (tmp_path / "rules_of_all.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    rules = importlib.import_module("rules_of_all")

    run_local(frame().update(lambda value: rules.SEEN.append(value)), [1])

    assert [r.getMessage().split("variable ")[1][:12] for r in caplog.records] == ["'rules.SEEN'"]


SEEN = []


def remember(value, *_):
    SEEN.append(value)
    return True


@pytest.mark.parametrize(
    ("step", "on_error", "who"),
    [
        (lambda sdf: sdf[sdf["a"].apply(remember)], None, "filter"),
        (lambda sdf: sdf[(sdf["a"] + 1).apply(remember) & ~(sdf["a"] == 2)], None, "filter"),
        (lambda sdf: sdf.apply(lambda value: 1 / 0), remember, "on_processing_error"),
    ],
)
def test_a_change_by_a_column_or_on_processing_error_is_warned_of(step, on_error, who, caplog):
    run_local(step(frame()), [{"a": 1}], on_processing_error=on_error)

    (warning,) = [r.getMessage() for r in caplog.records]
    assert re.match(rf"{who}( \(test_shipping\.py:\d+\))? changed the variable 'SEEN'", warning)


def test_a_function_of_a_wrapper_is_named_where_it_is_written():
    @functools.singledispatch
    def plus(value):
        return value

    with pytest.raises(ConfigError) as caught:
        run_local(frame().apply(plus), [1])

    assert re.match(
        r"apply \(test_shipping.py:\d+\): what wraps 'plus' \(test_shipping.py:\d+\) cannot be "
        r"sent(.|\n)*Fix: move it into a module beside the program",
        str(caught.value),
    )


def test_a_variable_that_does_not_equal_its_copy_is_not_taken_for_changed(caplog):
    limits, names = [math.nan], {"of": object}

    run_local(frame().apply(lambda value: (limits[0], len(names))), [1])

    assert caplog.records == []


def test_classes_of_the_program_are_not_changed_by_a_run():
    seen = []

    class Basket:
        def put(self, value):
            seen.append(value)
            return value

    run_local(frame().apply(lambda value: Basket().put(value)), [1])
    Basket().put(2)

    assert seen[-1] == 2


def test_functions_run_as_they_are_where_a_test_wants_to_see_their_calls():
    seen = []

    run_local(frame().update(lambda value: seen.append(value)), [1, 2], copy_functions=False)

    assert seen == [1, 2]


def test_every_run_takes_functions_as_they_are_then():
    factor = [2]
    engine = LocalEngine(frame().apply(lambda value: value * factor[0]))

    engine.feed([1])
    engine.run()
    factor[0] = 3
    engine.feed([1])

    assert list(engine.run()) == [2, 3]


def test_functions_share_what_they_change_within_a_run():
    numbers = []

    def note(value):
        numbers.append(value)
        return value

    sdf = frame().apply(note).group_by(str, name="text").apply(lambda v: sum(numbers))

    assert run_local(sdf, [1, 2]) == [1, 3]


_PROGRAM = """
import functools, pickle, sys
from typing import Callable, NewType, ParamSpec

import millpond as mp
from millpond.program.functions import pack
from millpond.testing import frame

UserId = NewType("UserId", int)
P = ParamSpec("P")

@functools.lru_cache(maxsize=7)
def parsed(value):
    return value * 2

@functools.wraps(parsed)
def wrapped(value):
    return parsed(value) + 1

class Prices:
    @staticmethod
    @functools.cache
    def of(value):
        return value * 3

def typed(value: UserId) -> Callable[P, int]:
    return UserId(value) + 4

calls = [parsed, wrapped, Prices.of, typed]
pickle.dump([pack(call).data for call in calls], open(sys.argv[1], "wb"))
"""

_WORKER = """
import pickle, sys
from millpond.program.functions import unpack

calls = [unpack(data) for data in pickle.load(open(sys.argv[1], "rb"))]
print([call(10) for call in calls], calls[0].cache_info().maxsize)
"""


def in_another_process(code, file):
    command = [sys.executable, "-c", code, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_functions_with_caches_and_new_types_of_the_main_file_reach_another_process(tmp_path):
    in_another_process(_PROGRAM, tmp_path / "sent")

    assert in_another_process(_WORKER, tmp_path / "sent") == "[20, 21, 30, 14] 7\n"


class _OnlyByName:
    """Pickled as a name of the main file, as objects made in C are."""

    def __reduce__(self):
        return "only"


def test_what_only_the_main_file_knows_is_refused_with_its_step(monkeypatch):
    value = _OnlyByName()
    monkeypatch.setattr(sys.modules["__main__"], "only", value, raising=False)
    monkeypatch.setattr(_OnlyByName, "__module__", "__main__")

    with pytest.raises(ConfigError) as caught:
        run_local(frame().apply(lambda record: value), [1])

    text = str(caught.value)
    assert re.match(r"apply \(test_shipping\.py:\d+\): variable 'value' in 'lambda'", text)
    assert "'only' of the main file is known to the program alone" in text
    assert text.endswith(
        "\nFix: move it into a module beside the program, and import it from there."
    )


def test_an_error_that_has_a_fix_of_its_own_has_no_second_one(app):
    with pytest.raises(ConfigError) as caught:
        run_local(frame().apply(lambda value: app), [1])

    assert str(caught.value).count("Fix: ") == 1
    assert "Fix: pass it what it needs" in str(caught.value)


def test_a_function_without_a_module_is_named_like_any_other():
    names = {"lock": threading.Lock()}
    exec("def locked(value):\n    return lock.locked()", names)

    with pytest.raises(ConfigError, match=r"variable 'lock' in 'locked'(.|\n)*Fix: "):
        run_local(frame().apply(names["locked"]), [1])
