import inspect
import os
import pickle
import subprocess
import sys

import pytest

from millpond import Application, errors
from millpond.arguments.callsite import PACKAGE
from millpond.connectors.json_serde import JSONDeserializer
from millpond.errors import (
    ConfigError,
    Failure,
    MillpondError,
    StateError,
    StepError,
    ValueTypeError,
    shown,
)
from millpond.testing import frame, run_local


def boom(value):
    raise KeyError("missing")


def caught(sdf, items, **options):
    with pytest.raises(StepError) as error:
        run_local(sdf, items, **options)
    return error.value


def test_every_error_is_a_millpond_error():
    kinds = [k for _, k in inspect.getmembers(errors, inspect.isclass) if issubclass(k, Exception)]

    assert all(issubclass(kind, MillpondError) for kind in kinds)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ValueTypeError, TypeError)
    assert {k.__name__ for k in kinds} <= set(errors.__all__)


def test_an_error_of_a_step_names_step_place_and_record():
    error = caught(frame().apply(boom), [("k", 1), ("k", 2)])
    text = str(error)

    assert text.startswith("apply 'boom' (test_errors.py:")
    assert "topic 'list', partition 0, offset 0" in text
    assert "KeyError: 'missing'" in text
    assert "Fix:" in text
    assert 'raise KeyError("missing")' in text
    assert "continues with this batch: nothing of it was committed" in text


def test_the_traceback_has_the_users_lines_and_none_of_ours():
    assert "/millpond/" not in caught(frame().apply(boom), [1]).failure.traceback


def test_the_cause_is_the_users_exception():
    error = caught(frame().apply(boom), [1])

    assert isinstance(error.__cause__, KeyError)


def test_an_exception_that_cannot_be_pickled_is_no_problem():
    class Local(Exception):
        def __init__(self, one, two):
            super().__init__("local")

    def fail(value):
        raise Local(1, 2)

    error = caught(frame().apply(fail), [1])

    assert "Local: local" in str(error)
    assert error.__cause__ is None


def test_an_exception_that_cannot_be_shown_is_no_problem():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def fail(value):
        raise Silent

    assert "Silent" in str(caught(frame().apply(fail), [1]))


def test_the_first_record_that_failed_is_named_whatever_the_number_of_key_groups():
    def fail(value, state):
        raise ValueError(value)

    for groups in (1, 3, 8):
        error = caught(
            frame().apply(fail, stateful=True), [(f"k{i}", i) for i in range(9)], groups=groups
        )
        assert error.failure.offset == 0


def test_bytes_that_cannot_be_read_name_the_source(tmp_path):
    from millpond import Application

    app = Application(topics_dir=tmp_path, state_dir=tmp_path, loglevel=None)
    sdf = app.dataframe(app.topic("in")).apply(lambda value: value)

    error = caught(sdf, [b"{half"])

    assert str(error).startswith("reading of 'in' (test_errors.py:")


def test_a_step_error_travels():
    failure = Failure("apply 'f'", "a.py:1", "in", 0, 5, "b'k'", "ValueError: x", "Traceback", None)
    error = StepError(failure)

    again = pickle.loads(pickle.dumps(error))

    assert str(again) == str(error)
    assert (again.step, again.call_site, again.failure) == ("apply 'f'", "a.py:1", failure)


def test_values_in_texts_are_cut():
    assert shown("short") == "'short'"
    assert len(shown("x" * 1000)) == 80
    assert len(shown("x" * 1000, 30)) == 30


def test_the_users_line_is_shown_however_deep_the_error_arose():
    def keep(value, state):
        state.set("x", {"a": {"b": [{"c": [[[object()]]]}]}})  # this line

    with pytest.raises(StepError) as caught:
        run_local(frame().apply(keep, stateful=True), [("k", 1)])

    traceback = caught.value.failure.traceback
    assert "# this line" in traceback
    assert "codec.py" not in traceback


def test_the_users_own_chain_of_errors_is_shown():
    def fail(value):
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise RuntimeError("outer") from error

    with pytest.raises(StepError) as caught:
        run_local(frame().apply(fail), [1])

    assert "KeyError: 'inner'" in caught.value.failure.traceback
    assert "direct cause" in caught.value.failure.traceback


def test_a_deserializer_that_fails_is_shown_once_with_its_line():
    def read(data):
        raise ValueError("odd")  # this line

    app = Application(loglevel=None)
    sdf = app.dataframe(app.topic("t", value_deserializer=read))

    with pytest.raises(StepError) as caught:
        run_local(sdf, [b"x"])

    traceback = caught.value.failure.traceback
    assert traceback.count("# this line") == 1
    assert traceback.count("ValueError: odd") == 1


def test_a_users_error_below_one_of_ours_is_shown_with_its_line():
    def read(text):
        raise RuntimeError("odd")  # this line

    app = Application(loglevel=None)
    sdf = app.dataframe(app.topic("t", value_deserializer=JSONDeserializer(loads=read)))

    with pytest.raises(StepError) as caught:
        run_local(sdf, [b"{}"])

    traceback = caught.value.failure.traceback
    assert "# this line" in traceback
    assert "RuntimeError: odd" in traceback


def test_a_package_whose_name_begins_like_ours_is_the_users():
    assert PACKAGE.endswith("millpond" + os.sep)


def test_a_record_whose_own_timer_fails_before_its_next_item_is_set_aside_once():
    def wait(at, state):
        state.set_timer("t", at=at)
        return at

    def fire(key, state, timer):
        raise ValueError(f"no {timer.at}")

    pairs = frame().apply(lambda at, state: [at, at + 1], stateful=True)
    sdf = pairs.apply(lambda pair: pair, expand=True).apply(wait, stateful=True, on_timer=fire)

    run = run_local(
        sdf, [("a", 100, 1), ("a", 3, 10), ("a", 300, 200)], on_error="dead-letter", batches=1
    )

    assert run == [100, 101, 300, 301]
    letters = [
        (r.key, r.value, dict(r.headers)["millpond.error"].decode()) for r in run.dead_letters
    ]
    # The record fails as a whole; the timer that it had moved is where it was, and fails later.
    assert letters == [(b"a", b"3", "ValueError: no 3"), (b"a", None, "ValueError: no 101")]


def test_a_record_of_several_items_that_fail_together_is_one_dead_letter():
    def refuse(batch, state):
        raise ValueError("no")

    items = frame().apply(lambda value, state: value, stateful=True)
    sdf = items.apply(lambda value: value, expand=True).update_state(refuse)

    run = run_local(sdf, [[{"a": 1}, {"a": 2}, {"a": 3}]], on_error="dead-letter")

    assert len(run.dead_letters) == run.reports[0].dead == 1


def test_what_cannot_be_shown_is_no_error_of_its_own():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    assert shown(10**5_000) == "<int that cannot be shown: ValueError>"
    assert shown([Odd()]) == "<list that cannot be shown: RuntimeError>"


FAILING = (
    'import millpond\nraise millpond.errors.StateError("Fix: millpond state repair APP.py.")\n'
)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["shop flow.py"], "millpond state repair 'shop flow.py'."),
        (["-m", "flow"], "millpond state repair APP.py."),
        (["-c", FAILING], "millpond state repair APP.py."),
    ],
)
def test_the_commands_of_an_error_name_the_program_that_runs(tmp_path, words, named):
    for name in ("shop flow.py", "flow.py"):
        (tmp_path / name).write_text(FAILING)

    ran = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert named in ran.stderr


def test_the_commands_of_an_error_name_the_program_that_was_given_to_millpond(monkeypatch):
    error = StateError("Fix: millpond state repair APP.py.")

    monkeypatch.setattr(sys, "argv", ["/bin/millpond", "check", "--accept", "apps/flow.py:app"])
    assert str(error) == "Fix: millpond state repair apps/flow.py:app."
    monkeypatch.setattr(sys, "argv", ["/bin/millpond", "state", "get", "pkg.flow:app", "ann"])
    assert str(error) == "Fix: millpond state repair pkg.flow:app."
    monkeypatch.setattr(sys, "argv", ["/bin/millpond", "run", "--drain", "pkg.flow"])
    assert str(error) == "Fix: millpond state repair pkg.flow."
    monkeypatch.setattr(sys, "argv", ["/bin/millpond", "topics", "verify", "clicks"])
    assert str(error) == "Fix: millpond state repair APP.py."
    monkeypatch.setattr(sys, "argv", ["/bin/millpond", "state", "verify", "state/shop"])
    assert str(error) == "Fix: millpond state repair APP.py."
