"""Which modules go to workers, and how they are imported there."""

import importlib
import json
import pickle
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import cloudpickle
import pytest

from millpond.program.functions import pack
from millpond.program.user_code import code_of

WORKER = """
import json, pickle, sys
from millpond.program import user_code
codes, expression = pickle.loads(bytes.fromhex(sys.argv[1]))
given = []
for code in codes:
    user_code.enter(code)
    given.append(eval(expression))
print(json.dumps(given))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on the path; what is imported from it is forgotten after the test."""
    place = tmp_path / "program"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        where = (getattr(sys.modules[name], part, "") for part in ("__file__", "__path__"))
        if any(str(place) in str(found) for found in where):
            del sys.modules[name]


def in_worker(code, expression):
    """What an expression gives in a process that has the code, and no file of it."""
    return in_turn([code], expression)[0]


def in_turn(codes, expression):
    """What an expression gives in a process that has one code after the other."""
    given = pickle.dumps((codes, expression)).hex()
    command = [sys.executable, "-c", WORKER, given]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_worker_imports_packages_with_relative_imports_as_they_were(folder):
    (folder / "shop/deep").mkdir(parents=True)
    (folder / "shop/__init__.py").write_text("NAME = 'shop'\n")
    (folder / "shop/rules.py").write_text(
        "from . import prices\nfrom .deep.most import VALUE\n"
        "def price(): \n    from .late import LATE\n    return prices.PRICE + VALUE + LATE\n"
    )
    (folder / "shop/prices.py").write_text("PRICE = 1\n")
    (folder / "shop/deep/most.py").write_text("VALUE = 10\n")  # a namespace package
    (folder / "shop/late.py").write_text("LATE = 100\n")  # imported on first use
    rules = importlib.import_module("shop.rules")

    packed = pack(rules.price)
    code = code_of([], packed.modules)
    for file in folder.rglob("*.py"):
        file.write_text("raise SystemExit\n")  # what was read when the run began is what runs

    assert sorted(code.modules) == [
        "shop", "shop.deep", "shop.deep.most", "shop.late", "shop.prices", "shop.rules",
    ]  # fmt: skip
    assert in_worker(code, "__import__('shop.rules').rules.price()") == 111
    assert in_worker(code, "__import__('shop.rules').rules.__file__") == rules.__file__


def test_modules_come_from_the_imports_of_the_program(folder):
    (folder / "helper.py").write_text("import json, millpond, numpy\nimport other\n")
    (folder / "other.py").write_text("def answer():\n    return 42\n")
    (folder / "main.py").write_text("import helper, missing.module, os.path\n")

    code = code_of([str(folder / "main.py")], [])

    assert sorted(code.modules) == ["helper", "other"]
    assert in_worker(code, "__import__('other').answer()") == 42


def test_the_digest_tells_a_changed_module(folder):
    (folder / "helper.py").write_text("N = 1\n")
    before = code_of([], ["helper"])
    (folder / "helper.py").write_text("N = 2\n")

    assert code_of([], ["helper"]).digest != before.digest
    assert code_of([], ["helper"]).digest == code_of([], ["helper"]).digest
    assert in_worker(before, "__import__('helper').N") == 1


COUNTED = """
import importlib
CALLS = []
def count():
    CALLS.append(1)
    return {name!r}, len(CALLS), importlib.import_module("other").NAME
"""


def test_programs_that_share_a_process_have_their_own_modules_each_imported_once(folder):
    codes = []
    for name in "ab":
        (folder / "helper.py").write_text(COUNTED.format(name=name))
        (folder / "other.py").write_text(f"NAME = {name!r}\n")
        codes.append(code_of([], ["helper", "other"]))
    a, b = codes

    came = in_turn([a, b, b, a, b], "__import__('helper').count()")

    assert came == [["a", 1, "a"], ["b", 1, "b"], ["b", 2, "b"], ["a", 2, "a"], ["b", 3, "b"]]


def test_modules_stay_imported_in_a_process_where_the_next_program_has_them_too(folder):
    (folder / "helper.py").write_text(COUNTED.format(name="helper"))
    (folder / "other.py").write_text("NAME = 'other'\n")
    (folder / "more.py").write_text("NAME = 'more'\n")
    first, second = code_of([], ["helper", "other"]), code_of([], ["helper", "other", "more"])

    assert first.digest != second.digest
    came = in_turn([first, second], "__import__('helper').count()")
    assert came == [["helper", 1, "other"], ["helper", 2, "other"]]


def test_other_files_beside_a_module_are_read_where_they_are(folder):
    (folder / "data.txt").write_text("7")
    (folder / "helper.py").write_text(
        "import pathlib\nN = int((pathlib.Path(__file__).parent / 'data.txt').read_text())\n"
    )

    assert in_worker(code_of([], ["helper"]), "__import__('helper').N") == 7


def test_a_compiled_module_is_sent_to_a_machine_that_does_not_have_it(folder):
    made = next(Path(sysconfig.get_path("stdlib")).rglob("xxlimited.*.so"))
    beside = folder / made.name
    shutil.copy(made, beside)
    importlib.import_module("xxlimited")

    code = code_of([], ["xxlimited"])
    beside.unlink()

    assert in_worker(code, "__import__('xxlimited').foo(2, 3)") == 5


PROGRAM = """
import millpond as mp

FACTOR = 2
app = mp.Application(loglevel=None)

def double(value):
    return value * FACTOR

app.run()
AFTER = 1
"""


def test_functions_of_a_module_with_an_application_are_sent_by_value(folder):
    (folder / "program.py").write_text(PROGRAM.replace("app.run()", ""))
    program = importlib.import_module("program")

    packed = pack(program.double)

    assert "program" not in packed.modules
    assert packed.copy is not program.double
    assert packed.copy(4) == 8
    assert not cloudpickle.list_registry_pickle_by_value()


def test_a_program_that_a_module_imports_is_not_run_in_a_worker(folder):
    (folder / "program.py").write_text(PROGRAM)
    (folder / "helper.py").write_text("def f(v):\n    import program\n    return program.double(v)")

    code = code_of([], ["helper"])

    assert sorted(code.modules) == ["helper", "program"]
    assert in_worker(code, "__import__('helper').f(21)") == 42
    assert in_worker(code, "hasattr(__import__('program'), 'AFTER')") is False
