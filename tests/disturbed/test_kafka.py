"""The same on Kafka: programs, executors and the broker are killed, readers see no difference.

`make test` kills a few times; `make soak` sets MILLPOND_KILLS to 25.
"""

from __future__ import annotations

import os
import random
import signal

import pytest
from broker import Broker
from cluster import Cluster

from disturbed import KILLS, Run, assert_equal

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RECORDS = 42_000 if KILLS < 5 else 200_000


def test_killed_and_cut_off_every_record_counts_exactly_once(spark, tmp_path):
    with Broker(tmp_path / "kafka") as broker:
        undisturbed = Run(tmp_path / "undisturbed", RECORDS, broker.address).undisturbed()
        killed = Run(tmp_path / "killed", RECORDS, broker.address)

        def restart_broker(done: int) -> bool:
            is_time = done % 5 == min(3, KILLS - 1)
            if is_time:
                broker.kill()
                broker.start()
            return is_time

        assert killed.killed(KILLS, restart_broker) == KILLS

        assert_equal(killed, undisturbed, spark)


@pytest.mark.cluster
def test_executors_killed_on_a_cluster_every_record_counts_exactly_once(spark, tmp_path):
    kills, moments = max(3, KILLS), random.Random(13)
    with Broker(tmp_path / "kafka") as broker, Cluster(tmp_path / "cluster") as cluster:
        undisturbed = Run(tmp_path / "undisturbed", RECORDS, broker.address).undisturbed()
        killed = Run(tmp_path / "killed", RECORDS, broker.address, cluster.address)

        done = 0
        with killed.started() as process:
            while done < kills and killed.at_work(process, moments):
                executors = cluster.executors()
                if executors:
                    os.kill(moments.choice(executors), signal.SIGKILL)
                    done += 1
            killed.ended_well(process)

        assert done == kills
        assert_equal(killed, undisturbed, spark)
