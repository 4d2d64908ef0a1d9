"""A cluster whose workers share no disk; one of them is lost with all it had."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import stores
from cluster import QUICK_START, Cluster

import millpond as mp

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "programs" / "totals.py"
RECORDS, KEYS = 600, 7


@pytest.mark.parametrize("kind", ["s3", pytest.param("hdfs", marks=pytest.mark.soak)])
def test_state_outlives_the_worker_that_had_it(kind, tmp_path):
    app = mp.Application(topics_dir=tmp_path / "topics", loglevel=None)
    source, out = app.topic("in"), app.topic("out", key_deserializer="str")
    with app.get_producer() as producer:
        for i in range(RECORDS):
            producer.produce(source, key=f"k{i % KEYS}", value=i)

    def written() -> list[tuple[str, int]]:
        if not (tmp_path / "topics" / "out" / "topic.json").exists():
            return []
        return [(record.key, record.value) for record in app.get_consumer().read(out)]

    with getattr(stores, kind)(tmp_path) as store, Cluster(tmp_path / "cluster") as cluster:
        config = {**store.spark_config, "spark.executor.extraJavaOptions": QUICK_START}
        arguments = [str(tmp_path), store.url, json.dumps(config), cluster.address]
        with (tmp_path / "errors.txt").open("w") as errors:
            # From another folder, so that nothing is found by accident of the current one.
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=tmp_path,
            )
        try:
            while len(written()) < 300 and process.poll() is None:
                time.sleep(0.2)
            both_had_state = cluster.has_state(1) and cluster.has_state(2)
            cluster.lose(1)
            said, _ = process.communicate(timeout=300)
        finally:
            process.kill()
            process.wait()

    assert process.returncode == 0, (tmp_path / "errors.txt").read_text()[-3000:]
    assert both_had_state
    totals, expected = Counter(), []
    for i in range(RECORDS):
        key = f"k{i % KEYS}"
        totals[key] += i
        expected.append((key, totals[key]))
    at_1 = {"total": dict(expected[:200])["k3"]}
    assert json.loads(said) == [at_1, {"total": totals["k3"]}, []]
    # Nothing came out twice, though tasks ran again.
    assert sorted(written()) == sorted(expected)
