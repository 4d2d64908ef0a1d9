"""With which options Java is started."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from millpond.spark import session
from millpond.spark.internals import class_archive

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize("mine", ["", "-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseZGC"])
def test_it_starts_with_ours_whatever_the_user_adds(tmp_path, monkeypatch, mine, lasts):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # an archive comes with a quieter log
    options = session._java_options({}, lasts=lasts).split() + mine.split()

    command = [class_archive.find_java(), *options, "-XX:+PrintFlagsFinal", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "warning" not in (done.stderr + done.stdout.partition("[Global flags]")[0]).lower()
    for flag, value in {
        "TieredStopAtLevel": 4 if lasts else 1,
        "ReservedCodeCacheSize": 240 * 2**20,
        "G1UseAdaptiveIHOP": "false",
        "MinHeapFreeRatio": 10,
    }.items():
        assert re.search(rf" {flag} += {value} ", done.stdout), flag


def test_a_heap_of_another_size_has_regions_as_java_chooses():
    larger = {"spark.driver.memory": "16g"}
    assert "G1HeapRegionSize=4m" in session._java_options({}, lasts=True)
    assert "G1HeapRegionSize" not in session._java_options(larger, lasts=True)


TELLS = """
import os

import millpond.spark.session as session
from millpond.spark.internals.jvm_process import end_jvm

opened = session.open_session

def fake_start(*arguments, **named):
    context = opened(*arguments, **named).sparkContext
    beans = context._jvm.java.lang.management.ManagementFactory
    print(beans.getRuntimeMXBean().getInputArguments().toString())
    print("broadcast", context.getConf().get("spark.broadcast.blockSize"), flush=True)
    end_jvm()
    os._exit(0)

session.open_session = fake_start

import millpond as mp

def app(state_dir="state"):
    return mp.Application(consumer_group="g", state_dir=state_dir, topics_dir="topics")

def topic(app):
    app.dataframe(app.topic("in")).print()
    return app

def numbers(app):
    app.dataframe(source=mp.ListSource([1, 2, 3])).print()
    return app
"""


@pytest.mark.parametrize(
    ("run", "has_both"),
    [
        ("topic(app()).run()", True),
        ("topic(app('hdfs://127.0.0.1:1/state')).run()", True),
        ("numbers(app()).run()", False),
    ],
)
def test_what_lasts_has_both_compilers(tmp_path, run, has_both):
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -Dmine=kept\n")
    done = subprocess.run(
        [sys.executable, "-c", TELLS + run],
        cwd=tmp_path,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert ("TieredStopAtLevel=1" not in done.stdout) is has_both, done
    assert "G1UseAdaptiveIHOP, -XX:MinHeapFreeRatio=10, -XX:G1HeapRegionSize=4m" in done.stdout
    assert re.search(r"G1HeapRegionSize.*-Dmine=kept", done.stdout)  # what comes last wins
    assert "broadcast 256k" in done.stdout
