"""The same on Kafka: programs, executors and the broker are killed, readers see no difference.

`make test` kills once; `make soak` sets MILLPOND_KILLS to 25.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from broker import Broker
from cluster import Cluster

from disturbed import KILLS, Run, assert_equal

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory):
    """A broker that may be killed, if it is started again."""
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def undisturbed(spark, own_broker, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("runs") / "undisturbed", own_broker.address).undisturbed(
        spark
    )


def test_killed_and_cut_off_every_record_counts_exactly_once(
    spark, own_broker, undisturbed, tmp_path
):
    killed = Run(tmp_path / "killed", own_broker.address)

    def restart_broker(done: int) -> bool:
        is_time = done % 5 == min(3, KILLS - 1)
        if is_time:
            own_broker.kill()
            own_broker.start()
        return is_time

    assert killed.killed(KILLS, restart_broker) == KILLS

    assert_equal(killed, undisturbed, spark)


@pytest.mark.soak  # beside it, tests/remote/test_cluster.py loses a worker in `make test`
@pytest.mark.cluster
def test_executors_killed_on_a_cluster_every_record_counts_exactly_once(
    spark, own_broker, undisturbed, tmp_path
):
    moments, done = random.Random(13), 0
    with Cluster(tmp_path / "cluster") as cluster:
        killed = Run(tmp_path / "executors", own_broker.address, cluster.address)

        with killed.started() as process:
            while done < KILLS and killed.at_work(process, moments):
                executors = cluster.executors()
                if executors:
                    os.kill(moments.choice(executors), signal.SIGKILL)
                    done += 1
            killed.ended_well(process)

    assert done == KILLS
    assert_equal(killed, undisturbed, spark)


def test_a_program_waits_for_a_broker_that_is_away(spark, own_broker, undisturbed, tmp_path):
    """Longer than any request waits for its answer; `make soak`: for more than a minute."""
    away = 15 if KILLS < 5 else 75
    cut_off = Run(tmp_path / "cut-off", own_broker.address)

    with cut_off.started() as process:
        assert cut_off.at_work(process, random.Random(17))
        own_broker.kill()
        time.sleep(away)
        assert process.poll() is None
        own_broker.start()
        cut_off.ended_well(process)

    assert_equal(cut_off, undisturbed, spark)
