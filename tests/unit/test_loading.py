"""Commands load a program without running it, from a file, a package or a factory."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import millpond as mp
from millpond.cli.loading import act_on_application, load_application
from millpond.cli.main import command
from millpond.errors import ConfigError, StateError
from millpond.program import load_guard

APP = """
import millpond as mp
app = mp.Application(consumer_group="loaded", auto_offset_reset="earliest", loglevel=None)
"""
COUNT = """
def count(value, state):
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")
app.dataframe(app.topic("in")).apply(count, stateful=True).to_topic(app.topic("out"))
"""
AFTER = """
open("after", "w").close()
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder to work in; modules that were loaded from it are gone afterwards."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), dict(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in [n for n in sys.modules if n not in modules]:
        is_of_project = str(tmp_path) in str(getattr(sys.modules[name], "__file__", None))
        if is_of_project or name.partition(".")[0] == "pkg":
            del sys.modules[name]


def write(files):
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def called(*arguments):
    done = CliRunner().invoke(command, [*arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


# --- a program is not run -------------------------------------------------------------------

CALLS = ["app.run()", "app.run(timeout=1)", "app.backfill()", "app.run(drain=True)[0]"]


@pytest.mark.parametrize("call", CALLS)
def test_explain_does_not_run_an_unguarded_file(call):
    write({"app.py": APP + COUNT + call + AFTER})

    assert "apply count   state in/default" in called("explain", "app.py")

    assert sorted(p.name for p in Path().iterdir() if p.name != "__pycache__") == ["app.py"]


def test_check_does_not_run_an_unguarded_file():
    write({"app.py": APP + COUNT + "app.run(timeout=1)" + AFTER})

    assert "in/default" in called("check", "app.py")

    assert not Path("state").exists() and not Path("after").exists()


def test_state_does_not_run_an_unguarded_file():
    write({"app.py": APP + COUNT + "app.run(timeout=1)" + AFTER})

    with pytest.raises(StateError, match="'loaded'"):  # there is no state of the group yet
        called("state", "ls", "app.py")

    assert not Path("after").exists()


def test_a_program_that_catches_exceptions_around_run_is_not_run_either():
    guarded = "try:\n    app.run()\nexcept Exception:\n    open('after', 'w').close()\n"
    write({"app.py": APP + COUNT + guarded})

    assert "apply count" in called("explain", "app.py")

    assert not Path("after").exists()


def test_a_thread_that_runs_the_program_ends_without_a_word():
    thread = "import threading\nt = threading.Thread(target=app.run)\nt.start()\nt.join()\n"
    write({"app.py": APP + COUNT + thread})

    explain = [sys.executable, "-m", "millpond.cli.main", "explain", "app.py"]
    done = subprocess.run(explain, capture_output=True, text=True)

    assert "apply count" in done.stdout
    assert done.stderr == ""


def test_a_program_inside_a_function_is_found_where_it_runs():
    inside = "def main():\n" + "".join(f"    {line}\n" for line in (APP + COUNT).splitlines())
    write({"app.py": inside + "    app.run()\nmain()\n"})

    assert "apply count" in called("explain", "app.py")


def test_an_application_after_the_run_of_another_is_named_in_the_error():
    second = "\nsecond = mp.Application(loglevel=None)\n"
    write({"app.py": APP + COUNT + "app.run()" + second})

    with pytest.raises(ConfigError, match=r"no 'second'; it was loaded up to run\(\) \(app.py:9\)"):
        load_application("app.py:second")


def test_looking_at_a_program_writes_no_records_and_clears_no_state():
    produced = "with app.get_producer() as producer:\n    producer.produce('in', value='1')\n"
    write({"app.py": APP + "app.clear_state()\n" + produced + COUNT})
    Path("state/loaded").mkdir(parents=True)
    Path("state/loaded/kept").touch()

    called("explain", "app.py")

    assert Path("state/loaded/kept").exists() and not Path("topics").exists()


def test_a_run_writes_the_records_that_its_file_writes():
    produced = "with app.get_producer() as producer:\n    producer.produce('in', value='1')\n"
    write({"app.py": APP + produced + COUNT + "app.run()"})

    def act(app):
        with app.get_consumer() as consumer:
            assert [record.value for record in consumer.read("in")] == [1]

    assert acted_on("app.py", act) == ["loaded"]


def acted_on(target, act=lambda app: None, command="run"):
    """The groups of the applications that a command ran."""
    groups = []
    act_on_application(
        target, lambda app: (groups.append(app.config.consumer_group), act(app)), command
    )
    return groups


OPENED = """
from contextlib import contextmanager
is_open = []
@contextmanager
def connection():
    is_open.append(True)
    yield
    is_open.clear()
def main():
    with connection():
        app.run(count=3)
        open("after", "w").close()
"""


@pytest.mark.parametrize("command", ["run", "backfill"])
def test_what_a_file_opens_around_run_is_open_while_the_command_runs_it(command):
    write({"app.py": APP + COUNT + OPENED + "main()"})
    seen = []

    def act(app):
        seen.append(list(sys.modules["app"].is_open))

    assert acted_on("app.py", act, command) == ["loaded"]
    assert seen == [[True]]
    assert not Path("after").exists()


def test_what_a_run_raises_reaches_the_file_that_called_it():
    caught = "try:\n    app.run()\nexcept ValueError:\n    open('caught', 'w').close()\n    raise\n"
    write({"app.py": APP + COUNT + caught})

    def act(app):
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        acted_on("app.py", act)

    assert Path("caught").exists()


def test_a_file_that_tries_again_after_a_failure_is_run_again_and_no_third_time():
    again = "try:\n    app.run()\nexcept ValueError:\n    app.run()\n"
    write({"app.py": APP + COUNT + again})
    failures = [ValueError("it failed")]

    def act(app):
        if failures:
            raise failures.pop()

    assert acted_on("app.py", act) == ["loaded", "loaded"]


def test_of_two_applications_the_named_one_is_run_where_its_file_runs_it():
    second = "second = mp.Application(consumer_group='second', loglevel=None)\n"
    write({"app.py": APP + COUNT + second + "second.run()"})

    assert acted_on("app.py:second") == ["second"]
    assert acted_on("app.py:app") == ["loaded"]
    with pytest.raises(ConfigError, match="2 applications"):
        acted_on("app.py")


def test_a_function_that_runs_what_it_makes_is_run_once():
    inside = "def make():\n" + "".join(f"    {line}\n" for line in (APP + COUNT).splitlines())
    write({"app.py": inside + "    app.run()\n    return app\n"})

    assert acted_on("app.py:make") == ["loaded"]


def test_a_backfill_in_the_file_is_not_left_out_of_a_run():
    write({"app.py": APP + COUNT + "app.backfill()\napp.run()"})

    with pytest.raises(ConfigError, match=r"backfill\(\) itself \(app.py:9\)(.|\n)*Fix:"):
        acted_on("app.py")

    assert acted_on("app.py", command="backfill") == ["loaded"]


# --- packages and factories -----------------------------------------------------------------

PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/steps.py": "from pkg.sub.numbers import one\ndef plus(value):\n    return value + one\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/numbers.py": "one = 1\n",
    "pkg/main.py": "from .steps import plus\nfrom pkg.sub import numbers\n"
    + APP
    + "app.dataframe(app.topic('in')).apply(plus)\n"
    + "def make_app():\n    return app\n",
}
FORMS = ["pkg/main.py", "pkg/main.py:app", "pkg.main", "pkg.main:app"]


@pytest.mark.parametrize("target", [*FORMS, "pkg.main:make_app", "pkg/main.py:make_app()"])
def test_a_program_in_a_package(target):
    write(PACKAGE)

    assert "apply plus" in called("explain", target)
    assert "keeps no state" in called("check", target)


def test_state_of_a_program_in_a_package():
    write(PACKAGE)

    with pytest.raises(StateError, match="'loaded'"):  # the name of the group
        called("state", "ls", "pkg.main:app")


def test_a_package_that_imports_its_own_program_has_it_once():
    write({**PACKAGE, "pkg/__init__.py": "from pkg.main import app\n"})

    assert load_application("pkg/main.py") is sys.modules["pkg"].app
    assert load_application("pkg:app") is not None


def test_a_package_whose_import_runs_the_program_does_not_run_it():
    main = PACKAGE["pkg/main.py"] + "app.run()\n"
    write({**PACKAGE, "pkg/__init__.py": "from pkg.main import app\n", "pkg/main.py": main})

    assert "apply plus" in called("explain", "pkg/main.py")


def test_a_file_beside_a_module_named_like_one_of_pythons():
    write({**PACKAGE, "pkg/logging.py": "raise Exception('not this one')\n"})
    before = sys.modules["logging"]

    load_application("pkg/main.py")

    assert sys.modules["logging"] is before


@pytest.mark.parametrize("stem", ["json", "sched"])  # one that is loaded already, and one not
def test_a_program_named_like_a_module_of_python_does_not_replace_it(stem):
    write({f"{stem}.py": APP + COUNT})

    load_application(f"{stem}.py")

    assert str(sys.modules[stem].__file__) != str(Path(f"{stem}.py").absolute())
    assert json.loads("1") == 1


def test_a_relative_import_outside_a_package_and_its_fix():
    write({n: t for n, t in PACKAGE.items() if n != "pkg/__init__.py"})

    with pytest.raises(ConfigError, match=r"relative import(.|\n)*Fix: .*pkg\.main"):
        load_application("pkg/main.py")

    assert "apply plus" in called("explain", "pkg.main")  # as the Fix says
    Path("pkg/__init__.py").touch()
    assert "apply plus" in called("explain", "pkg/main.py")  # as it says, too


def test_a_script_can_import_packages_of_the_folder_one_is_in():
    text = "from pkg.steps import plus\n" + APP + "app.dataframe(app.topic('in')).apply(plus)\n"
    write({**PACKAGE, "scripts/program.py": text})

    assert "apply plus" in called("explain", "scripts/program.py")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("missing.py", "no file 'missing.py'"),
        ("pkg.missing:app", "no file and no module 'pkg.missing'"),
        ("missing.module:app", "no file and no module 'missing.module'"),
        ("pkg/main.py:other", "no 'other'"),
        ("pkg.steps", "0 applications"),
        ("pkg.steps:plus", "needs arguments: value"),
        ("pkg.wrong:make", "returned a value of type int, not an application"),
        ("pkg/data.txt", "no Python file"),
    ],
)
def test_what_is_no_program(target, text):
    wrong = {"pkg/wrong.py": "def make():\n    return 1\n", "pkg/data.txt": ""}
    write({**PACKAGE, **wrong})

    with pytest.raises(ConfigError, match=rf"{text}(.|\n)*Fix: "):
        load_application(target)


def test_an_import_that_fails_inside_the_program_is_not_hidden():
    write({**PACKAGE, "pkg/main.py": "import surely_not_there\n"})

    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        load_application("pkg.main:app")


def test_several_applications_are_named_and_the_fix_is_followed(tmp_path):
    file = tmp_path / "two.py"
    file.write_text(
        "import millpond as mp\n"
        "one = mp.Application(consumer_group='one', loglevel=None)\n"
        "two = mp.Application(consumer_group='two', loglevel=None)\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_application(str(file))

    first = re.search(r"Fix: name one: (\S+) or ", str(caught.value))[1]

    assert load_application(first).config.consumer_group == "one"


def test_a_producer_of_a_module_that_a_worker_has_loaded_loses_nothing_silently(tmp_path):
    app = mp.Application(topics_dir=tmp_path, loglevel=None)
    with load_guard.loads(looks=True):
        producer = app.get_producer()
        producer.produce("alerts", b"while it is loaded")

    with pytest.raises(
        ConfigError, match=r"writes nothing \(test_loading(.|\n)*Fix: .*mp.resource"
    ):
        producer.produce("alerts", b"by a function")
