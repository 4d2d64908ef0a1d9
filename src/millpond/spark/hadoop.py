"""Files of every place that Hadoop knows: s3a://, hdfs://, abfs://.

Takes a Spark session, whose settings have what a store asks for (an endpoint, a key); gives
`Files`. Each call is a few trips to the JVM.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from millpond.errors import StateError
from millpond.files import FileInfo

__all__ = ["HadoopFiles"]

# Where a file appears when it is closed, and a rename is a copy.
_OBJECT_STORES = ("s3a", "s3", "abfs", "abfss", "gs", "wasb", "wasbs")


class HadoopFiles:
    """Files through Hadoop's own client."""

    def __init__(self, session: SparkSession) -> None:
        self._gateway: Any = session.sparkContext._gateway
        self._jvm: Any = session._jvm
        self._conf = session._jsc.hadoopConfiguration()

    def read(self, path: str) -> bytes | None:
        system, place = self._at(path)
        try:
            stream = system.open(place)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise _told(path, error) from error

    def write(self, path: str, data: bytes) -> None:
        system, place = self._at(path)
        try:
            if path.partition(":")[0] in _OBJECT_STORES:
                self._put(system.create(place, True), data)
                return
            aside = self._jvm.org.apache.hadoop.fs.Path(f"{path}.writing")
            self._put(system.create(aside, True), data)
            kinds = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
            options = self._gateway.new_array(kinds, 1)
            options[0] = kinds.OVERWRITE
            contexts = self._jvm.org.apache.hadoop.fs.FileContext
            contexts.getFileContext(place.toUri(), self._conf).rename(aside, place, options)
        except Py4JJavaError as error:
            raise _told(path, error) from error

    def create(self, path: str, data: bytes) -> bool:
        system, place = self._at(path)
        try:
            self._put(system.create(place, False), data)
        except Py4JJavaError as error:
            if "AlreadyExists" in str(error.java_exception.toString()):
                return False
            raise _told(path, error) from error
        return True

    def entries(self, path: str) -> list[FileInfo]:
        system, place = self._at(path)
        try:
            found = system.listStatus(place)
        except Py4JJavaError as error:
            if _is_missing(error):
                return []
            raise _told(path, error) from error
        infos = [
            FileInfo(s.getPath().getName(), s.isDirectory(), s.getLen(), s.getModificationTime())
            for s in found
        ]
        return sorted(infos)

    def copy(self, source: str, target: str) -> None:
        system, place = self._at(source)
        other, to = self._at(target)
        try:
            util = self._jvm.org.apache.hadoop.fs.FileUtil
            util.copy(system, place, other, to, False, True, self._conf)
        except Py4JJavaError as error:
            if _is_missing(error):
                raise FileNotFoundError(source) from error
            raise _told(target, error) from error

    def delete(self, path: str) -> None:
        system, place = self._at(path)
        try:
            system.delete(place, True)
        except Py4JJavaError as error:
            if not _is_missing(error):
                raise _told(path, error) from error

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        try:
            return place.getFileSystem(self._conf), place
        except Py4JJavaError as error:
            raise _told(path, error) from error

    def _put(self, stream: Any, data: bytes) -> None:
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()


def _is_missing(error: Py4JJavaError) -> bool:
    return "FileNotFoundException" in str(error.java_exception.toString())


def _told(path: str, error: Py4JJavaError) -> StateError:
    text = str(error.java_exception.toString())
    fix = "is the address right, and may this user write there?"
    if "No FileSystem for scheme" in text or "ClassNotFoundException" in text:
        fix = (
            "the connector is missing; for s3a://, spark_config={'spark.jars.packages': "
            "'org.apache.hadoop:hadoop-aws:...'} of Spark's own Hadoop version."
        )
    return StateError(f"{path} cannot be reached: {text}\nFix: {fix}")
