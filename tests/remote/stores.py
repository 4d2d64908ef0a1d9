"""Real storage for tests on 127.0.0.1: S3 (Moto's server) and HDFS (a NameNode, a DataNode).

Takes a folder for data and logs; gives the address of an empty folder in the store, and what
Spark needs settings to reach it.
"""

from __future__ import annotations

import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from machine import SPARK_JARS, Process, free_ports, jars, java, run

__all__ = ["Store", "hdfs", "s3", "s3_jars"]

(_CLIENT,) = SPARK_JARS.glob("hadoop-client-api-*.jar")

# The one place that pins what is run. The connector must be of the very version of Spark's Hadoop;
# the SDK and the accelerator are what that connector was built with (hadoop-project's pom).
_HADOOP = _CLIENT.stem.rpartition("-")[2]
_SDK, _ACCELERATOR = "2.35.4", "1.3.1"

# hadoop-aws asks for the SDK as one jar of 600 MB; what it uses of it has 9 MB.
_S3A = f"""
<dependency org="org.apache.hadoop" name="hadoop-aws" rev="{_HADOOP}" conf="default->master"/>
<dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3"
    rev="{_ACCELERATOR}" conf="default->master"/>
<dependency org="software.amazon.awssdk" name="s3" rev="{_SDK}" conf="default"/>
<dependency org="software.amazon.awssdk" name="sts" rev="{_SDK}" conf="default"/>
<dependency org="software.amazon.awssdk" name="s3-transfer-manager" rev="{_SDK}" conf="default"/>
<!-- Spark has these, newer. -->
<exclude org="io.netty"/><exclude org="org.slf4j"/><exclude org="org.apache.httpcomponents"/>
<exclude org="commons-codec"/><exclude org="commons-logging"/>
"""

# NameNode and DataNode in one jar, made to go with the client jars that Spark has.
_HDFS = f"""
<dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{_HADOOP}"
    conf="default->master"/>
"""

_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.apache.logging.log4j.level=WARN",
)


class Store(NamedTuple):
    """A running store.

    Attributes:
        url: The address of a folder in it.
        spark_config: What a Spark session needs to read and write there.
    """

    url: str
    spark_config: dict[str, str]


# --- S3 -------------------------------------------------------------------------------------


@contextmanager
def s3(folder: Path) -> Iterator[Store]:
    """Run an S3 server with one bucket, in memory; any key and secret will do."""
    (port,) = free_ports(1)
    endpoint, bucket = f"http://127.0.0.1:{port}", "millpond"
    command = [sys.executable, str(Path(__file__).with_name("s3_app.py")), str(port)]
    with Process(command, folder / "s3.log") as server:
        server.wait_until(lambda: _answers(f"{endpoint}/{bucket}", "PUT"))
        yield Store(f"s3a://{bucket}/state", _s3_config(endpoint))


def _s3_config(endpoint: str) -> dict[str, str]:
    settings = {
        "endpoint": endpoint,
        # Without one, the connector asks Amazon where the bucket is.
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        # What is being uploaded waits in memory, not in files below /tmp.
        "fast.upload.buffer": "bytebuffer",
        "access.key": "key",
        "secret.key": "secret",
    }
    config = {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
    return {"spark.jars": s3_jars(), **config}


def s3_jars() -> str:
    """Return what Spark needs to know of s3a://, in its own settings."""
    return ",".join(jars(f"s3a-{_HADOOP}", _S3A))


def _answers(url: str, method: str) -> bool:
    """Tell whether a server answers, be it with a refusal."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


# --- HDFS -----------------------------------------------------------------------------------


@contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """Run an HDFS of one NameNode and one DataNode, empty at first."""
    port, http, *data = free_ports(5)
    url = f"hdfs://127.0.0.1:{port}"
    settings = {
        "fs.defaultFS": url,
        "hadoop.tmp.dir": str(folder),
        "dfs.namenode.name.dir": (folder / "name").as_uri(),
        "dfs.namenode.http-address": f"127.0.0.1:{http}",
        "dfs.datanode.data.dir": (folder / "data").as_uri(),
        "dfs.datanode.address": f"127.0.0.1:{data[0]}",
        "dfs.datanode.http.address": f"127.0.0.1:{data[1]}",
        "dfs.datanode.ipc.address": f"127.0.0.1:{data[2]}",
        "dfs.replication": "1",
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    spark_jars = (SPARK_JARS.glob(name) for name in ("hadoop-client-*", "*slf4j*", "log4j-*"))
    path = [*jars(f"hdfs-{_HADOOP}", _HDFS), *(str(jar) for some in spark_jars for jar in some)]
    temporary = f"-Djava.io.tmpdir={folder}"  # of the web server inside
    command = [java(), *_JAVA_OPTIONS, temporary, "-cp", os.pathsep.join(path)]
    server = "org.apache.hadoop.hdfs.server"
    name_node = [*command, f"{server}.namenode.NameNode", *options]
    data_node = [*command, f"{server}.datanode.DataNode", *options]
    run([*name_node, "-format", "-nonInteractive"])
    beans = f"http://127.0.0.1:{http}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    is_ready = re.compile('"FSState" : "Operational".*"NumLiveDataNodes" : 1', re.DOTALL)
    with (
        Process(name_node, folder / "namenode.log") as names,
        Process(data_node, folder / "datanode.log"),
    ):
        names.wait_until(lambda: is_ready.search(_read(beans)) is not None)
        yield Store(f"{url}/state", _HDFS_CONFIG)


_HDFS_CONFIG = {
    "spark.hadoop.dfs.replication": "1",
    # A file is whole when the DataNode has reported its last block to the NameNode. A client that
    # asks a moment too early asks again after this time, doubled each time: 400 ms, 5 times.
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    "spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries": "11",
}


def _read(url: str) -> str:
    with suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
        return str(answer.read(), "utf-8")
    return ""
