"""A real Kafka broker for tests: one process on 127.0.0.1, controller and broker in one.

Takes a folder for its data and, where wanted, users with passwords; gives the address of a
running broker.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from machine import free_ports, jars, java, run

__all__ = ["KAFKA", "Broker"]

# The one place that pins what is run. slf4j-simple must be of the slf4j that Kafka asks for.
KAFKA = "4.3.1"
_ARTIFACTS = f"""
<dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA}" conf="default"/>
<dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default"/>
"""

# Kafka wants 22 characters of base 64; every broker of a test may have the same.
_CLUSTER = "millpond-test-cluster0"

_JAVA_OPTIONS = (
    "-Xmx512m",
    # Halves the start: a test broker ends before the better compiler has paid for itself.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One broker holds the only copy of everything.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Fewer files to make when the first group and the first transaction come.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # A group is ready at once; it need not wait for members that are still starting.
    "group.initial.rebalance.delay.ms": "0",
    # Tests write records of any time; a topic that shall forget old ones says so itself.
    "log.retention.ms": "-1",
    # Retention and compaction are looked after every half second, not after minutes.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "500",
    # The default takes 128 MiB of the heap.
    "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    # A transaction whose producer is gone is aborted soon after its own timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # After a kill, the controller takes the new process only when the old one has been silent so
    # long: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

# Everybody on the plain listener may do everything; users with a password need an ACL.
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
}


class Broker:
    """One broker; a `with` block starts and stops it.

    Args:
        folder: Where its settings, data and log are kept.
        users: Name to password. Where given, there is a second listener, `sasl_address`, that
            asks for SASL/PLAIN, and its users may do what ACLs allow: at first nothing.
        java_options: Given to the JVM after our own; for benchmarks.
    """

    def __init__(
        self,
        folder: Path,
        users: dict[str, str] | None = None,
        java_options: tuple[str, ...] = (),
    ) -> None:
        self.log = folder / "broker.log"
        self._folder = folder
        self._users = users or {}
        self._java_options = java_options
        # Chosen once: clients find the broker again after a restart.
        self._port, self._controller_port, self._sasl_port = free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def sasl_address(self) -> str:
        assert self._users, "this broker was made without users"
        return f"127.0.0.1:{self._sasl_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "this broker is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the broker and wait until it answers; the first time, prepare its storage."""
        assert self._process is None, "this broker is running already"
        if not (self._folder / "data" / "meta.properties").exists():
            self._format()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the process in good order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """End the process as if the machine had lost power; `start` begins from what is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start with the same ports and data."""
        self.stop()
        self.start()

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self._settings().items()]
        self._properties.write_text("".join(lines))
        tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties))
        run([*self._java(), *tool])

    def _settings(self) -> dict[str, str]:
        listeners = {"PLAIN": self._port, "CONTROLLER": self._controller_port}
        if self._users:
            listeners["SASL"] = self._sasl_port
        settings = {
            **_SETTINGS,
            "listeners": ",".join(f"{n}://127.0.0.1:{port}" for n, port in listeners.items()),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self._folder / "data"),
        }
        if self._users:
            passwords = " ".join(f'user_{n}="{word}"' for n, word in self._users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            settings |= _AUTHORIZER
            settings["listener.name.sasl.plain.sasl.jaas.config"] = f"{module} {passwords};"
        return settings

    def _java(self) -> list[str]:
        path = os.pathsep.join(jars(f"kafka-{KAFKA}", _ARTIFACTS))
        return [java(), *_JAVA_OPTIONS, *self._java_options, "-cp", path]

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "log_level": 0}
        admin = AdminClient({"bootstrap.servers": self.address, **quick})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(KafkaException):
                if admin.list_topics(timeout=0.2).brokers:
                    return
        tail = self.log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"the broker did not start; the end of {self.log}:\n{tail}")
