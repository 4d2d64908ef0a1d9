"""A key or a password of the program's settings is nowhere where others could read it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

PROGRAM = """
import logging, subprocess
from pathlib import Path

import millpond as mp

logging.basicConfig(level=logging.DEBUG)
SECRET = r"tr0ub4dor: ü=\\#x"
app = mp.Application(
    consumer_group="secrets",
    state_dir="state",
    topics_dir="topics",
    spark_config={
        "spark.hadoop.fs.s3a.secret.key": SECRET,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    },
)
password = SECRET  # travels to workers in a pickled function


def count(value, state):
    assert password
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


app.dataframe(source=[1, 2]).apply(count, stateful=True).to_topic(app.topic("out"))
assert app.run() == [1, 2]

from pyspark import SparkContext

context = SparkContext._active_spark_context
assert context._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == SECRET
print("page:", context.uiWebUrl)
pid = context._gateway.proc.pid
lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
print("java:", b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes())
print("seen:", [line for line in lines if b"tr0ub4dor" in line])
print("config:", app.config)
"""


@pytest.mark.spark
def test_a_secret_is_in_no_command_line_log_or_file_and_the_page_is_local(tmp_path):
    (tmp_path / "program").mkdir()
    program = tmp_path / "program" / "secrets_app.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "program")},
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert ran.returncode == 0, ran.stderr
    assert "java: True\nseen: []\n" in ran.stdout
    assert re.search(r"^page: http://127\.0\.0\.1:\d+$", ran.stdout, re.MULTILINE)
    assert "DEBUG" in ran.stderr or "INFO" in ran.stderr
    for text in (ran.stdout, ran.stderr):
        assert "tr0ub4dor" not in text and b"tr0ub4dor".hex() not in text
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p != program]
    assert len(files) > 10
    assert [p for p in files if b"tr0ub4dor" in p.read_bytes()] == []
