"""The store on Spark's state server, against a server of our own that says what it was asked."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from types import SimpleNamespace

import pytest
from contracts import check_store
from pyspark.sql.streaming.proto import StateMessage_pb2 as messages
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

from millpond.errors import EngineError
from millpond.spark.internals.state_client import Pipelined


class Server:
    """Answers as Spark does: in order, one by one; gives up after an error without hanging up."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.socket, self.stream = theirs, theirs.makefile("rwb")
        self.hangs_up_at, self.last_words = None, b""
        self.blobs, self.asked, self.fails_at, self.row = {}, [], None, row_of_spark
        client = StatefulProcessorApiClient.__new__(StatefulProcessorApiClient)
        client.sockfile = ours.makefile("rwb")
        ours.settimeout(20)  # a test that waits forever fails instead
        wrapped = SimpleNamespace(_stateful_processor_api_client=client)
        self.state = SimpleNamespace(_stateName="pages", _mapStateClient=wrapped)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while head := self.stream.read(8):
            version, length = struct.unpack(">ii", head)
            assert version == 0
            request = messages.StateRequest.FromString(self.stream.read(length))
            call = request.stateVariableRequest.mapStateCall
            answer = messages.StateResponse()
            if len(self.asked) == self.hangs_up_at:
                self.stream.write(self.last_words)
                self.stream.close()
                self.socket.close()
                return
            if len(self.asked) == self.fails_at:
                answer.statusCode, answer.errorMessage = 1, "no such thing"
            else:
                answer.value = self._done(call)
            data = answer.SerializeToString()
            self.stream.write(struct.pack(">i", len(data)) + data)
            self.stream.flush()
            if answer.statusCode:
                return

    def _done(self, call):
        kind = call.WhichOneof("method")
        self.asked.append(kind)
        (blob_id,) = pickle.loads(getattr(call, kind).userKey)
        if kind == "updateValue":
            (self.blobs[blob_id],) = pickle.loads(call.updateValue.value)
        elif kind == "removeKey":
            self.blobs.pop(blob_id, None)
        elif blob_id in self.blobs:
            return self.row(self.blobs[blob_id])
        return b""


def row_of_spark(blob):
    """A row as Spark 4.3 pickles it, byte for byte."""
    field = b'{"name":"blob","type":"binary","nullable":true,"metadata":{}}'
    schema = b'{"type":"struct","fields":[' + field + b"]}"
    text = blob.decode("latin-1").encode()
    return (
        b"\x80\x02cpyspark.sql.types\n_create_row_inbound_converter\nq\x00"
        b"cpyspark.sql.types\n_parse_datatype_json_string\n"
        b"X" + struct.pack("<i", len(schema)) + schema + b"q\x01\x85Rq\x02\x85R"
        b"(cbuiltins\nbytes\nc__builtin__\nbytearray\n"
        b"X" + struct.pack("<i", len(text)) + text + b"q\x03X\x07\x00\x00\x00latin-1q\x04"
        b"\x86Rq\x05\x85Rq\x06tRq\x07."
    )


@pytest.fixture
def server():
    return Server()


def test_many_blobs_come_and_go_in_order(server):
    store = Pipelined(server.state)
    for i in range(500):
        store.put(b"p%d" % i, b"x" * (i * 200))
    store.delete(b"p7")
    store.settle()
    assert len(server.blobs) == 499

    store.fetch([b"p%d" % i for i in range(500)])
    assert server.asked.count("getValue") == 500
    assert [len(store.get(b"p%d" % i) or b"") for i in range(500)] == [
        0 if i == 7 else i * 200 for i in range(500)
    ]
    assert server.asked.count("getValue") == 500


def test_the_store_on_spark_keeps_the_contract(server):
    check_store(Pipelined(server.state))


def test_what_was_fetched_is_forgotten_where_it_is_written(server):
    store = Pipelined(server.state)
    store.put(b"p", b"old")
    store.fetch([b"p"])
    store.put(b"p", b"new")
    assert store.get(b"p") == b"new"
    store.delete(b"p")
    assert store.get(b"p") is None


@pytest.mark.parametrize("fails_at", [0, 1, 40])
def test_a_server_that_gives_up_is_not_waited_for(server, fails_at):
    server.fails_at = fails_at
    store = Pipelined(server.state)
    with pytest.raises(EngineError, match=r"gave up: no such thing(.|\n)*Fix:"):
        for i in range(100):
            store.put(b"%d" % i, b"x")
        store.settle()

    for call in (store.settle, lambda: store.get(b"1"), lambda: store.fetch([b"2"])):
        with pytest.raises(EngineError, match="gave up"):
            call()


BLOBS = (b"", b"x", bytes(range(256)) * 9, b"bytearray\nX" * 3, b"q\x03X\x07\x00\x00\x00latin-1")


@pytest.mark.parametrize("blob", BLOBS)
def test_the_bytes_of_a_row_are_cut_out(server, blob):
    # What PySpark itself would read, and what we take without it.
    assert pickle.loads(row_of_spark(blob))[0] == blob
    server.blobs[b"p"] = blob
    assert Pipelined(server.state).get(b"p") == blob


@pytest.mark.parametrize("blob", BLOBS)
def test_a_row_that_is_pickled_otherwise_is_unpickled(server, blob):
    server.row = lambda blob: pickle.dumps((bytearray(blob),))
    server.blobs[b"p"] = blob
    assert Pipelined(server.state).get(b"p") == blob


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize(
    "last_words", [b"", b"\0\0", struct.pack(">i", 2000), b"\0\0\1\0\x1a\xff\x01"]
)
def test_a_server_that_hangs_up_is_not_taken_for_one_without_blobs(server, at, last_words):
    server.hangs_up_at, server.last_words = at, last_words
    with pytest.raises(EOFError):
        Pipelined(server.state).fetch([b"p%d" % i for i in range(5)])
