"""A key or a password of the program's settings is nowhere where others could read it."""

from __future__ import annotations

import planted
import pytest

pytestmark = pytest.mark.spark

PROGRAM = r"""
import logging

import planted

watch = planted.Watch()
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("py4j").setLevel(logging.DEBUG)

import millpond as mp

SECRET = planted.SECRET
# By name, and inside of a value.
HADOOPS = {
    "fs.s3a.secret.key": SECRET + r"-s3: ü=\#x",
    "fs.azure.account.key.x.dfs.core.windows.net": SECRET + "-azure",
    "fs.azure.sas.box.x.blob.core.windows.net": SECRET + "-sas",
    "javax.jdo.option.ConnectionURL": f"jdbc:h2:x;user=a;password={SECRET}-jdbc",
}
app = mp.Application(
    consumer_group="secrets",
    state_dir="state",
    topics_dir="topics",
    loglevel="DEBUG",
    spark_config={
        **planted.settings(),
        **{f"spark.hadoop.{name}": value for name, value in HADOOPS.items()},
        "spark.driver.defaultJavaOptions": f"-Dhidden.token={SECRET}-default",
        "spark.driver.memory": "1500m",
    },
)
password = SECRET + "-closure"  # travels to workers in a pickled function


def count(value, state):
    assert password
    state.set("n", state.get("n", 0) + 1)
    return state.get("n")


app.dataframe(source=[1, 2]).apply(count, stateful=True).to_topic(app.topic("out"))
assert app.run() == [1, 2]

warned = []
logging.getLogger("millpond").addFilter(lambda record: warned.append(record.getMessage()) or True)
app._runner.session()
assert not [line for line in warned if "no effect" in line]

from pyspark import SparkContext

context = SparkContext._active_spark_context
hadoop = context._jsc.hadoopConfiguration()
assert {name: hadoop.get(name) for name in HADOOPS} == HADOOPS
java = context._jvm.java.lang.System
assert java.getProperty("javax.net.ssl.trustStorePassword") == SECRET + "-store"
assert java.getProperty("hidden.token") == SECRET + "-default"
assert java.getProperty("mine") == "a b"
assert context._jvm.java.lang.Runtime.getRuntime().maxMemory() == 1500 * 1024 * 1024

# Another user of the machine: comes to the driver's port, and has no secret.
scala = context._jvm.org.apache.spark
conf = context._jsc.sc().conf().clone().set("spark.authenticate", "false")
nothing = context._jvm.scala.Option.empty()
security = scala.SecurityManager(conf, nothing, None)
stranger = scala.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, security, False)
try:
    port = conf.get("spark.driver.port")
    stranger.setupEndpointRefByURI(f"spark://MapOutputTracker@127.0.0.1:{port}")
    answer = "came in"
except Exception as error:
    answer = str(error)
planted.report(app, watch, answer=answer)
"""


def test_a_secret_is_in_no_command_line_log_page_or_file(tmp_path):
    found = planted.run(tmp_path, PROGRAM)

    answer = found.pop("answer")
    assert found == planted.NOWHERE
    assert "Exception" in answer
    assert "MapOutputTracker" not in answer.partition("\n")[0]
