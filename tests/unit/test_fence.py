"""What relies on Spark's internals is in `spark/internals` only, and each part has a live test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import millpond

ROOT = Path(millpond.__file__).parent
INTERNALS = ROOT / "spark" / "internals"
FILES = ROOT / "storage" / "spark_files"
FENCE = sorted(p for p in [*INTERNALS.glob("*.py"), *FILES.glob("*.py")] if p.stem != "__init__")
OUTSIDE = sorted(p for p in ROOT.rglob("*.py") if not p.is_relative_to(INTERNALS))
LIVE = Path(__file__).parents[1] / "spark" / "test_internals.py"

# What modules outside may import of PySpark: what its documentation has. Of py4j: nothing.
PUBLIC = {
    "pyspark",
    "pyspark.errors",
    "pyspark.sql",
    "pyspark.sql.datasource",
    "pyspark.sql.functions",
    "pyspark.sql.streaming",
    "pyspark.sql.types",
}

# Attributes of PySpark's and py4j's objects that are not public.
PRIVATE = {
    "_active_spark_context",
    "_gateway",
    "_instantiatedSession",
    "_java_object",
    "_jbuilder",
    "_jc",
    "_jconf",
    "_jdf",
    "_jrdd",
    "_jreader",
    "_jsc",
    "_jschema",
    "_jsparkSession",
    "_jsq",
    "_jvm",
    "_jwrite",
    "_mapStateClient",
    "_sc",
    "_stateName",
    "_stateful_processor_api_client",
    "_streamingCheckpointManager",
    "java_exception",
    "java_gateway",
    "sockfile",
}

# What a text must not have: something is recognised by it, or found by a name that may change.
TEXTS = {
    "a class of Java": r"\borg\.(apache|rocksdb)\.|\bjava\.(io|lang|util)\.",
    "a module of PySpark": r"\bpyspark\.(daemon|worker|sql|cloudpickle|zip|java_gateway)"
    r"|StateMessage_pb2",
    "py4j": r"(?i)\bpy4j\b",
    "an exception of Java": r"\b(?!Py4JJava)[A-Z]\w+Exception\b",
    "an error class of Spark": r"\b(?!SPARK_|PYSPARK_|JAVA_)[A-Z]{4,}_[A-Z]{3,}_[A-Z_]{3,}"
    r"|SQLSTATE|STDS_|\bTID\b",
    "a status or error of Spark in English": r"Waiting for (data|next)|exited unexpectedly"
    r"|No module named|No space left",
    "a setting of Spark": r"^spark\.(python|broadcast|authenticate|ui|sql\.(?!shuffle))",
    "a file of a checkpoint": r"_stateSchema|\b_metadata\b|\.changelog|^commits$|\.crc\b",
    "the state reader": r"^(statestore|operatorId|stateVarName|user_map_\w+|change_type)$",
}

# Where such a text may be, and why.
ALLOWED = {
    # Looks at the module of a session's class, before pyspark is imported.
    "spark/versions.py": ("a module of PySpark",),
    # The formats of files are the other half of the fence; `Checkpoint` copies and removes them.
    "storage/spark_files/": ("a file of a checkpoint", "a setting of Spark"),
    "storage/checkpoint.py": ("a file of a checkpoint",),
}


def name_of(path):
    return str(path.relative_to(ROOT))


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def texts(tree):
    """The constants of a module, without docstrings."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documents:
            yield node.lineno, node.value


def is_allowed(name, kind):
    return any(name.startswith(place) and kind in kinds for place, kinds in ALLOWED.items())


@pytest.mark.parametrize("path", OUTSIDE, ids=name_of)
def test_nothing_outside_of_the_fence_touches_internals_of_spark(path):
    tree, name = ast.parse(path.read_text()), name_of(path)
    theirs = {m for m in imports(tree) if m.split(".")[0] in ("pyspark", "py4j")}
    private = {
        f"{node.lineno}: {node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in PRIVATE
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }
    said = {
        f"{line}: {kind}: {text[:60]!r}"
        for line, text in texts(tree)
        for kind, pattern in TEXTS.items()
        if re.search(pattern, text) and not is_allowed(name, kind)
    }

    assert theirs <= PUBLIC
    assert private == set()
    assert said == set()


@pytest.mark.parametrize("path", FENCE, ids=name_of)
def test_a_part_of_the_fence_says_what_it_relies_on_and_has_a_live_test(path):
    document = ast.get_docstring(ast.parse(path.read_text())) or ""
    asked = ["Relies on:", "For Spark 4.4:"]
    asked += ["Seen with:", "Without it:"] if path.is_relative_to(INTERNALS) else []
    tests = [n.name for n in ast.parse(LIVE.read_text()).body if isinstance(n, ast.FunctionDef)]

    assert [part for part in asked if f"\n{part}" not in document] == []
    assert any(name.startswith(f"test_{path.stem}_") for name in tests), tests
