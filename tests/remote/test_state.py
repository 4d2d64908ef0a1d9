"""State in S3 and in HDFS: workers share no disk, and one of them is lost with all it had."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stores
from cluster import Cluster

import millpond as mp

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "programs" / "totals.py"
RECORDS, KEYS = 3_000, 7


@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_state_outlives_the_worker_that_had_it(kind, tmp_path):
    app = mp.Application(topics_dir=tmp_path / "topics", loglevel=None)
    source, out = app.topic("in"), app.topic("out", key_deserializer="str")
    with app.get_producer() as producer:
        for i in range(RECORDS):
            producer.produce(source, key=f"k{i % KEYS}", value=i)

    def written() -> list[tuple[str, int]]:
        if not (tmp_path / "topics" / "out").exists():
            return []
        return [(record.key, record.value) for record in app.get_consumer().read(out)]

    with getattr(stores, kind)(tmp_path) as store, Cluster(tmp_path / "cluster") as cluster:
        arguments = [str(tmp_path), store.url, json.dumps(store.spark_config), cluster.address]
        with (tmp_path / "errors.txt").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            while len(written()) < 800 and process.poll() is None:
                time.sleep(0.2)
            both_had_state = cluster.has_state(1) and cluster.has_state(2)
            cluster.lose(1)
            said, _ = process.communicate(timeout=300)
        finally:
            process.kill()
            process.wait()

    assert process.returncode == 0, (tmp_path / "errors.txt").read_text()[-3000:]
    assert both_had_state

    def total(count: int) -> dict[str, int]:
        return {"total": sum(i for i in range(count) if i % KEYS == 3)}

    assert json.loads(said) == {
        "at batch 4": total(500),
        "at the end": total(RECORDS),
        "problems": [],
        "rewound to 5": total(600),
        "run again": total(RECORDS),
        "set and rescaled": {"total": 7},
    }
    # Nothing came out twice, though batches were done again.
    totals: dict[str, int] = {}
    expected = []
    for i in range(RECORDS):
        totals[f"k{i % KEYS}"] = totals.get(f"k{i % KEYS}", 0) + i
        expected.append((f"k{i % KEYS}", totals[f"k{i % KEYS}"]))
    assert sorted(written()) == sorted([*expected, ("k3", 7)])
