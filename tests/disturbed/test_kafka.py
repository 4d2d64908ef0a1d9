"""The same on Kafka: programs, executors and the broker are killed, readers see no difference.

A program is also killed before each single call to Kafka, of the first two batches and of one in
the middle. `make test` kills once, and before three calls; `make soak` sets MILLPOND_KILLS to 25,
and MILLPOND_CRASHES for all calls.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from broker import Broker
from cluster import Cluster
from kafka_calls import IN_A_BATCH, IN_THE_FIRST

from disturbed import KILLS, SMALL, Run, assert_equal

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


# The calls before which the program is killed: those that take over the group, those of the first
# two batches and of one in the middle; and the commits of offsets beside them.
BATCHES = (1, 2, 4)
CALLS = (
    *(f"0 {call}" for call in IN_THE_FIRST),
    *(f"{batch} {call}" for batch in BATCHES for call in IN_A_BATCH),
    *(f"offsets {batch}" for batch in BATCHES),
)
if not int(os.environ.get("MILLPOND_CRASHES", "0")):
    CALLS = ("1 middle output", "2 commit", "4 committed")


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


def test_a_kill_before_any_call_to_kafka_leaves_no_trace(spark, own_broker, tmp_path):
    address = own_broker.address
    undisturbed = Run(tmp_path / "whole", address, size=SMALL).undisturbed(spark)

    for number, call in enumerate(CALLS):
        killed = Run(tmp_path / f"killed-{number}", address, size=SMALL)
        with killed.started("--die-before", call) as process:
            assert process.wait(120) == -signal.SIGKILL, f"{call}: {killed.said()}"
        killed.undisturbed(spark)
        assert_equal(killed, undisturbed, spark)

    print(f"{len(CALLS)} crash points at Kafka: {', '.join(CALLS)}")


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
