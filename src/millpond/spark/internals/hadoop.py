"""Files of every place that Hadoop knows: s3a://, hdfs://, abfs://.

Takes a Spark session, whose settings have what a store asks for (an endpoint, a key); gives
`Files`. Not for data: everything passes py4j, one call after the other.

Relies on: `sessionState().newHadoopConf()` of the JVM's session; Hadoop's own classes, the names of
    its exceptions, and the texts of a missing connector and of a conditional write that conflicts.
Seen with: 4.3, with Hadoop 3.5.
Without it: state in an object store or HDFS cannot be reached, or a start race is lost.
For Spark 4.4: the version of Hadoop that it brings; `RemoteFileChangedException`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from millpond.errors import StateError
from millpond.spark.internals.jvm import array_of, java_session, jvm_of
from millpond.spark.internals.settings import OBJECT_STORE
from millpond.storage.files import FileInfo, is_object_store

__all__ = ["HadoopFiles"]

_MISSING = "java.io.FileNotFoundException"

# What S3 reports where a file was replaced between two requests, or exists already.
_CHANGED = "org.apache.hadoop.fs.s3a.RemoteFileChangedException"

# What is reported where a file exists already.
_TAKEN = ("org.apache.hadoop.fs.FileAlreadyExistsException", _CHANGED)

# What S3 says where another one writes the same file in this moment, and may yet fail; how often
# and after how many seconds it is asked again.
_CONFLICT, _TRIES, _PAUSE = "ConditionalRequestConflict", 20, 0.1


class HadoopFiles:
    """Files through Hadoop's own client."""

    def __init__(self, session: SparkSession) -> None:
        jvm = jvm_of(session)
        # A copy, with what the session has set beyond the context.
        self._conf = java_session(session).sessionState().newHadoopConf()
        for key, value in OBJECT_STORE.items():
            self._conf.setIfUnset(key, value)
        hadoop = jvm.org.apache.hadoop.fs
        # Looking a class up costs a call for each dot of its name.
        self._path, self._context, self._util = hadoop.Path, hadoop.FileContext, hadoop.FileUtil
        self._streams, self._crc32c = jvm.org.apache.commons.io.IOUtils, jvm.java.util.zip.CRC32C
        rename = hadoop.Options.Rename
        self._replace = array_of(session, rename, rename.OVERWRITE)
        self._keep = array_of(session, rename, rename.NONE)
        self._systems: dict[str, Any] = {}

    def read(self, path: str) -> bytes | None:
        with _telling(path):
            for attempt in range(_TRIES):
                try:
                    return self._read_once(path)
                except Py4JJavaError as error:
                    if _kind(error) == _MISSING:
                        return None
                    # It was replaced between the request for its size and the one for its bytes.
                    if _kind(error) != _CHANGED or attempt == _TRIES - 1:
                        raise
        return None

    def _read_once(self, path: str) -> bytes:
        stream = self._system(path).open(self._path(path))
        try:
            return bytes(self._streams.toByteArray(stream))
        finally:
            stream.close()

    def measured(self, path: str) -> tuple[int, int | None]:
        data, found = self.read(path) or b"", self._crc32c()
        found.update(data)
        return len(data), found.getValue()

    def write(self, path: str, data: bytes) -> None:
        with _telling(path):
            if is_object_store(path):
                self._util.write(self._system(path), self._path(path), data)
            else:
                self._move(self._write_aside(path, data), path, self._replace)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file where there is none; of many who try at once, one gets True.

        Where an answer is lost on the way and asked for again, the one who made the file may get
        False.
        """
        with _telling(path):
            try:
                if is_object_store(path):
                    self._put_if_absent(path, data)
                else:
                    self._move(self._write_aside(path, data), path, self._keep)
            except Py4JJavaError as error:
                if _kind(error) in _TAKEN:
                    return False
                raise
            return True

    def entries(self, path: str) -> list[FileInfo]:
        with _telling(path):
            try:
                found = self._system(path).listStatus(self._path(path))
            except Py4JJavaError as error:
                if _kind(error) == _MISSING:
                    return []
                raise
            infos = (
                FileInfo(
                    s.getPath().getName(), s.isDirectory(), s.getLen(), s.getModificationTime()
                )
                for s in found
            )
            return sorted(infos)

    def copy(self, source: str, target: str, share: bool = True) -> None:
        with _telling(source):
            start = (self._system(source), self._path(source))
            end = (self._system(target), self._path(target))
            try:
                self._util.copy(*start, *end, False, True, self._conf)
            except Py4JJavaError as error:
                if _kind(error) == _MISSING:
                    raise FileNotFoundError(source) from error
                raise

    def delete(self, path: str) -> None:
        with _telling(path):
            self._system(path).delete(self._path(path), True)

    def _put_if_absent(self, path: str, data: bytes) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._put_once(path, data)
            except Py4JJavaError as error:
                if not tries_left or _CONFLICT not in str(error.java_exception.toString()):
                    raise
                time.sleep(_PAUSE)
        return None

    def _put_once(self, path: str, data: bytes) -> None:
        builder = self._system(path).createFile(self._path(path))
        if urlsplit(path).scheme == "s3a":
            builder.must("fs.option.create.conditional.overwrite", "true")
        else:
            builder.overwrite(False)
        stream = builder.build()
        stream.write(data)
        stream.close()

    def _write_aside(self, path: str, data: bytes) -> str:
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/.{name}.{uuid4().hex}"
        try:
            self._util.write(self._system(path), self._path(aside), data)
        except Py4JJavaError as error:
            if _kind(error) != _MISSING:
                raise
            self._system(path).mkdirs(self._path(folder))
            self._util.write(self._system(path), self._path(aside), data)
        return aside

    def _move(self, source: str, target: str, how: Any) -> None:
        end = self._path(target)
        try:
            context = self._context.getFileContext(end.toUri(), self._conf)
            context.rename(self._path(source), end, how)
        except BaseException:
            self._system(source).delete(self._path(source), True)
            raise

    def _system(self, path: str) -> Any:
        address = urlsplit(path)
        key = f"{address.scheme}://{address.netloc}"
        if key not in self._systems:
            self._systems[key] = self._path(path).getFileSystem(self._conf)
        return self._systems[key]


def _kind(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())


@contextmanager
def _telling(path: str) -> Iterator[None]:
    """Say what Hadoop said, without the JVM's stack."""
    try:
        yield
    except Py4JJavaError as error:
        text = str(error.java_exception.toString())
        fix = "check the address, that the store answers, and that this user may write there."
        if "No FileSystem for scheme" in text or "ClassNotFoundException" in text:
            fix = (
                "Spark lacks the connector of this store; see 'State in S3 or HDFS' in "
                "docs/operations.md."
            )
        raise StateError(f"{path} cannot be reached: {text}\nFix: {fix}") from error
