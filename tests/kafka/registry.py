"""A real schema registry for tests: Apicurio Registry, which speaks Confluent's API.

Confluent's own is not to be had from a public Maven repository. Apicurio's server comes from there
through the Ivy inside PySpark, once, into ~/.cache/millpond, and runs on 127.0.0.1 with its
schemas in memory. 3.0 is the last line that runs on Java 17.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp  # noqa: F401  (order.proto imports its file)
from machine import SPARK_JARS, free_ports, java, run

from millpond.connectors.segments import locked

__all__ = ["AN_ORDER", "A_CLICK", "A_PERSON", "CLICK", "NEWER", "PERSON", "Apicurio", "Order"]

APICURIO = "3.0.9"
_CACHE = Path.home() / ".cache" / "millpond"

CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "shop",
    "fields": [{"name": "user", "type": "string"}, {"name": "count", "type": "long"}],
}
NEWER = {**CLICK, "fields": [*CLICK["fields"], {"name": "page", "type": "string", "default": "/"}]}
PERSON = {"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}}
A_CLICK, A_PERSON = {"user": "ann", "count": 2}, {"name": "ann"}


def order_class():
    """A class as protoc would write it, with an import of its own and one of protobuf's."""
    field = descriptor_pb2.FieldDescriptorProto
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="till", syntax="proto3")
    amount = money.message_type.add(name="Amount")
    amount.field.add(name="cents", number=1, type=field.TYPE_INT32, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="till", syntax="proto3")
    order.dependency.extend(["money.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="NotThisOne")
    message = order.message_type.add(name="Order")
    message.field.add(name="user", number=1, type=field.TYPE_STRING, label=1)
    for number, (name, kind) in enumerate(
        [("total", ".till.Amount"), ("at", ".google.protobuf.Timestamp")], start=2
    ):
        message.field.add(name=name, number=number, type=11, label=1, type_name=kind)
    pool = descriptor_pool.Default()
    for file in (money, order):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("till.Order"))


Order = order_class()
AN_ORDER = {"user": "ann", "total": {"cents": 5}, "at": "2026-01-01T00:00:00Z"}


class Apicurio:
    """One server; a `with` block starts and stops it."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "registry.log"
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def __enter__(self) -> Apicurio:
        home = apicurio_home()
        (jar,) = home.glob("*-runner.jar")
        settings = (f"quarkus.http.port={self.port}", "quarkus.http.host=127.0.0.1")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [java(), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                 *(f"-D{setting}" for setting in settings), "-jar", str(jar)],
                cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # all it has is in memory
        self._process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{self.url}/subjects", timeout=5)
                return
            time.sleep(0.1)
        tail = self.log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"the registry did not start; the end of {self.log}:\n{tail}")


def apicurio_home() -> Path:
    """Return the folder of the server; the first call on a machine fetches it (104 MB)."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    home = _CACHE / f"apicurio-{APICURIO}"
    with locked(_CACHE / "lock"):
        if not home.exists():
            aside = home.with_suffix(".writing")
            shutil.rmtree(aside, ignore_errors=True)
            with tarfile.open(fetched_archive()) as archive:
                archive.extractall(aside, filter="data")
            aside.rename(home)
    return home


def fetched_archive() -> str:
    module, settings = _CACHE / "apicurio.ivy.xml", _CACHE / "apicurio.settings.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="millpond" module="registry"/><dependencies>'
        f'<dependency org="io.apicurio" name="apicurio-registry-app" rev="{APICURIO}">'
        '<artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>'
        "</dependency></dependencies></ivy-module>"
    )
    # Without its pom, whose parent is not published; the archive has all that it needs.
    settings.write_text(
        '<ivysettings><settings defaultResolver="maven"/><resolvers>'
        '<ibiblio name="maven" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
    )
    (ivy,) = SPARK_JARS.glob("ivy-*.jar")
    found = _CACHE / "apicurio.path"
    options = ("-cache", str(_CACHE / "ivy"), "-types", "tar.gz", "-cachepath", str(found))
    files = ("-settings", str(settings), "-ivy", str(module))
    run([java(), "-jar", str(ivy), "-warn", *files, *options])
    return found.read_text().strip()
