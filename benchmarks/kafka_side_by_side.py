"""Millpond and Quix Streams on one Kafka broker: throughput and latency, in one run.

python kafka_side_by_side.py QUIX_PYTHON [RECORDS]      prints the tables of docs/benchmarks.md

The same topics, the same function, one program at a time. Output topics carry the broker's own
time of arrival; rates and latencies are taken from that, so no program measures itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / name) for name in ("kafka", "shared")]

from broker import Broker  # noqa: E402

import millpond as mp  # noqa: E402
from millpond.connectors.kafka.clients import KafkaConsumer  # noqa: E402
from millpond.connectors.kafka.connection import Connection  # noqa: E402
from millpond.connectors.kafka.reader import KafkaReader  # noqa: E402
from millpond.connectors.kafka.topics import describe  # noqa: E402

QUIX = sys.argv[1]
RECORDS = int(sys.argv[2]) if len(sys.argv) > 2 else 6_000_000
PARTITIONS = 4

# Quix reads the same topic, and is stopped when it has done so much of it: about a minute's work.
PART = RECORDS // 4
QUIET = 8  # seconds without a record after which a program ends

console = Console()


class Bench:
    """A broker, its topics, and the programs that run on it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self.connection = Connection(mp.ConnectionConfig(broker.address))
        self.number = 0

    def create(self, name: str) -> str:
        settings = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
        new = NewTopic(name, PARTITIONS, 1, config=settings)
        for future in self.connection.admin().create_topics([new]).values():
            future.result(20)
        while describe(self.connection, name) is None:
            time.sleep(0.1)
        return name

    def fill(self, keys: int) -> str:
        name = self.create(f"clicks-{keys}")
        producer = Producer(
            {
                "bootstrap.servers": self.broker.address,
                "linger.ms": 50,
                "queue.buffering.max.messages": 1_000_000,
                "partitioner": "murmur2_random",
            }
        )
        users = np.random.default_rng(0).integers(0, keys, RECORDS)
        for i, user in enumerate(users.tolist()):
            value = b'{"user_id":"k%d","amount":%d,"event":"click"}' % (user, i % 1000)
            producer.produce(name, value, b"k%d" % user)
            if i % 100_000 == 0:
                producer.flush()
        producer.flush()
        return name

    def start(self, what: str, topic: str, out: str) -> subprocess.Popen[bytes]:
        self.number += 1
        script, python = {
            "millpond": ("kafka_millpond.py", sys.executable),
            "quix": ("kafka_quix.py", QUIX),
        }[what]
        state = self.folder / f"state-{self.number}"
        arguments = [self.broker.address, str(state), topic, out, str(QUIET)]
        return subprocess.Popen([python, str(HERE / script), *arguments])

    def arrivals(self, topic: str) -> np.ndarray:
        """When each record of a topic arrived, in milliseconds, in order."""
        reader = KafkaReader(self.connection, topic, "")
        times = [
            batch.column("timestamp").to_numpy()
            for partition, end in reader.latest().items()
            for batch in reader.read(partition, 0, end)
        ]
        return np.sort(np.concatenate(times)) if times else np.zeros(0)

    def arrivals_by_id(self, topic: str) -> dict[int, int]:
        with KafkaConsumer(self.connection) as consumer:
            return {json.loads(r.value)["id"]: r.timestamp for r in consumer.read(topic)}

    def throughput(
        self, what: str, topic: str, processes: int, records: int
    ) -> tuple[float, float]:
        """Return records/s from the start of the program, and after the first tenth."""
        out = self.create(f"{what}-{processes}-{topic}")
        reader = KafkaReader(self.connection, out, "")
        began = time.time() * 1000
        running = [self.start(what, topic, out) for _ in range(processes)]
        while sum(reader.latest().values()) < records:
            assert all(process.poll() is None for process in running), f"{what} ended too early"
            time.sleep(0.5)
        for process in running:
            process.terminate()
        assert all(process.wait() == 0 for process in running)
        times = self.arrivals(out)
        # What was counted above has the marks of transactions in it, a few.
        assert len(times) > 0.999 * records, f"{what}: {len(times)} of {records} records came out"
        records = min(records, len(times))
        times = times[:records]
        seconds, rest = (times[-1] - began) / 1000, (times[-1] - times[records // 10]) / 1000
        return records / seconds, 0.9 * records / rest

    def latency(self, what: str, rate: int, seconds: int = 30) -> tuple[float, float]:
        """Return the median and the 99th percentile of one record's way, in milliseconds."""
        topic, out = self.create(f"in-{what}-{rate}"), self.create(f"out-{what}-{rate}")
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 0})
        numbers = count()

        def send(most: int) -> None:
            began = time.monotonic()
            for i in range(most):
                producer.produce(topic, b'{"id":%d}' % next(numbers), b"k%d" % (i % 100))
                producer.poll(0)
                time.sleep(max(0.0, began + (i + 1) / rate - time.monotonic()))
            producer.flush()

        process = self.start(what, topic, out)
        while not len(self.arrivals(out)):  # until it is warm
            send(rate // 2 or 1)
        send(5 * rate)
        first = next(numbers)
        send(seconds * rate)
        assert process.wait() == 0
        sent, came = self.arrivals_by_id(topic), self.arrivals_by_id(out)
        ways = [came[number] - sent[number] for number in sent if number > first]
        return float(np.median(ways)), float(np.percentile(ways, 99))


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="millpond-kafka-") as name,
        Broker(Path(name) / "kafka", java_options=("-Xmx1g", "-XX:TieredStopAtLevel=4")) as broker,
    ):
        bench = Bench(broker, Path(name))
        table = Table(title="Running count per key, Kafka to Kafka (records/s: all / warm)")
        for column in (
            "keys",
            "Quix, 1 process",
            "Quix, 2 processes",
            "Millpond",
            "ratio to 1",
            "to 2",
        ):
            table.add_column(column)
        for keys in (10_000, 1_000_000):
            topic = bench.fill(keys)
            one, two = (bench.throughput("quix", topic, processes, PART) for processes in (1, 2))
            ours = bench.throughput("millpond", topic, 1, RECORDS)
            shown = [f"{all_:,.0f} / {warm:,.0f}" for all_, warm in (one, two, ours)]
            ratios = [
                f"{ours[0] / theirs[0]:.1f} / {ours[1] / theirs[1]:.1f}" for theirs in (one, two)
            ]
            table.add_row(f"{keys:,}", *shown, *ratios)
        console.print(table)
        ways = Table(title="One record from topic to topic (ms: median / 99th percentile)")
        for column in ("records/s", "Quix", "Millpond"):
            ways.add_column(column)
        for rate in (10, 1_000):
            found = [bench.latency(what, rate) for what in ("quix", "millpond")]
            ways.add_row(f"{rate:,}", *(f"{median:,.0f} / {high:,.0f}" for median, high in found))
        console.print(ways)


if __name__ == "__main__":
    main()
