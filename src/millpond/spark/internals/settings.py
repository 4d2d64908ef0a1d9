"""The settings of Spark, each with its reason, and what a checkpoint is written in.

Relies on: the names and values of settings, some of them internal; the class names of the state
    store's provider and of the managers of checkpoint files, which moved between packages before.
Seen with: 4.3.
Without it: a class that is not found ends the first query. A setting of another name has no effect
    and is not reported; so the test compares `FORMATS` with every setting that Spark has.
For Spark 4.4: `SQLConf`, `RocksDBConf`; new settings whose name has `version`, `format` or
    `evolution`.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from millpond.errors import ConfigError
from millpond.spark.secrets import REDACTED, REDACTION
from millpond.storage.files import is_object_store, is_remote

__all__ = [
    "FILE_MANAGER",
    "FORMATS",
    "LOCAL",
    "NO_FORMATS",
    "OBJECT_STORE",
    "PAYLOAD_FILES",
    "PIPELINED_STATE",
    "QUERY",
    "SESSION",
    "WITH_SECRET",
    "file_manager",
    "is_on",
]

# Set where Spark is started here.
SESSION = {
    # A page for people who want it is asked for with spark_config; without it a start is faster.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Outputs of a batch pass the driver; their size is bounded by max_records_per_batch.
    "spark.driver.maxResultSize": "0",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    # What Spark's page and its log of events do not show.
    REDACTION: REDACTED,
}

LOCAL = {
    # Listening on the loopback address only; on a cluster the workers must reach the driver.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Workers are forked with their imports done.
    "spark.python.daemon.module": "millpond.spark.internals.daemon",
    # The buffer that each broadcast takes, of which a batch makes three, some kilobytes each. Spark
    # takes 4 MB by default: two thirds of all memory that a small batch asked for.
    "spark.broadcast.blockSize": "256k",
}

# Other users of the machine could connect to Spark's ports, too. Spark makes a secret for each
# start; for a cluster, the user has to.
WITH_SECRET = {"spark.authenticate": "true"}

# Set in the session of ours, whoever started Spark.
QUERY = {
    # State larger than memory, and the only provider that transformWithState takes.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Upload changes per batch, snapshots in the background.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Counting rows costs a read per write; we count keys ourselves.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Replans a batch that is too small to gain from it.
    "spark.sql.adaptive.enabled": "false",
    # Rows are packed: one may hold a whole key group, so few make a message.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1024",
    # How far back people can look.
    "spark.sql.streaming.minBatchesToRetain": "100",
}

PIPELINED_STATE = "spark.millpond.pipelinedState"
"""Many requests to the state server at a time (`internals.state_client`)."""

PAYLOAD_FILES = "spark.millpond.payloadFiles"
"""Records between stages in files, with a local master (`wire.payloads`)."""

OBJECT_STORE = {
    # The stream that Hadoop 3.5 takes by default remembers what it has read. Of a commit that was
    # written again after a repair it asked for the old one: "412, pre-conditions did not hold".
    "fs.s3a.input.stream.type": "classic",
}

# What a checkpoint is written in: the forms of Spark 4.3, as `storage.spark_files` reads them.
# Nobody's settings change them; a checkpoint in another form could not be repaired.
FORMATS = {
    # Checksums, and a batch that is run again never mixes with its first attempt.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.transformWithState.stateSchemaVersion": "3",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion": "2",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.queryEvolution.enableSinkEvolution": "false",
}

NO_FORMATS = {
    # Of operators that Millpond has none of.
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.sessionWindow.stateFormatVersion",
    # Written down by Spark in the offset log, and read from there.
    "spark.sql.streaming.stateStore.compression.codec",
    # How a checksum is made and looked at, not whether.
    "spark.sql.streaming.checkpoint.fileChecksum.skipCreationIfFileMissingChecksum",
    "spark.sql.streaming.stateStore.fileChecksumThreadPoolSize",
    "spark.sql.streaming.stateStore.rowChecksum.readVerificationRatio",
    "spark.sql.streaming.stateStore.formatValidation.enabled",
    # How much of a schema may change.
    "spark.sql.streaming.stateStore.valueStateSchemaEvolutionThreshold",
}
"""Settings that sound as if they chose a format of the checkpoint, and do not for Millpond's."""

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"


def file_manager(state_dir: str) -> str:
    """Return what writes the files of a checkpoint.

    The one of FileContext replaces a file in one step, as HDFS can. On a local disk it starts a
    chmod process for every file (measured: 206 ms a batch, and 132 with the other one), whose
    rename replaces, too. In an object store a file appears whole, and nothing is renamed.
    """
    by_context = is_remote(state_dir) and not is_object_store(state_dir)
    return f"{_MANAGERS}.File{'Context' if by_context else 'System'}BasedCheckpointFileManager"


def is_on(session: SparkSession, key: str) -> bool:
    """Tell whether something that is only speed is on: it is, unless the user says false.

    Raises:
        ConfigError: where the setting is neither true nor false.
    """
    asked = str(session.conf.get(key, "true")).lower()
    if asked not in ("true", "false"):
        msg = f"{key} is true or false, not {asked[:40]!r}."
        raise ConfigError(f'{msg}\nFix: spark_config={{"{key}": "false"}}, or leave it out.')
    return asked == "true"
