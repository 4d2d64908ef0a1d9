"""What the JVM and its workers write to standard error: the user's lines arrive as they are."""

import io
import sysconfig
import time

import pytest

from millpond.spark.stderr import pass_on

STDLIB = sysconfig.get_paths()["stdlib"]
PYSPARK = f"{STDLIB}/site-packages/pyspark"
DYING = f"""Traceback (most recent call last):
  File "{PYSPARK}/util.py", line 822, in local_connect_and_auth
    sock.connect(path)
FileNotFoundError: [Errno 2] No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 88, in _run_code
  File "{PYSPARK}/daemon.py", line 8, in main
    connect()
  File "{STDLIB}/socket.py", line 706, in readinto
    return self._sock.recv_into(b)
pyspark.errors.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket.
"""
SERIOUS = """Traceback (most recent call last):
  File "a.py", line 1, in f
    g()
KeyError: 'a'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in h
    f()
ValueError: wrong
"""
AT_START = """WARNING: Using incubator modules: jdk.incubator.vector
Starting Streaming TransformWithStateInPandas Python worker.

Streaming TransformWithStateInPandas Python worker Starting execution of UDF: <bound method f>.

"""


def passed_on(text, capsys):
    pass_on(io.BytesIO(text.encode()))
    return capsys.readouterr().err


def test_workers_that_die_with_their_query_are_not_shown(capsys):
    assert passed_on(DYING, capsys) == ""
    assert passed_on(DYING + DYING, capsys) == ""


def test_chain_of_errors_is_shown_whole(capsys):
    assert passed_on(SERIOUS, capsys) == SERIOUS
    assert passed_on(SERIOUS + "after\n", capsys) == SERIOUS + "after\n"
    assert passed_on(SERIOUS + DYING, capsys) == SERIOUS
    assert passed_on(DYING + SERIOUS, capsys) == SERIOUS


@pytest.mark.parametrize("place", ["/home/ann/shop.py", f"{STDLIB}/site-packages/redis/client.py"])
def test_connection_that_breaks_in_the_users_code_is_shown(capsys, place):
    broken = f'''Traceback (most recent call last):
  File "{PYSPARK}/worker.py", line 8, in main
    process()
  File "{place}", line 3, in price
    sock.send(b"x")
BrokenPipeError: [Errno 32] Broken pipe
'''
    assert passed_on(broken, capsys) == broken


def test_process_that_is_ended_while_it_writes_is_not_shown(capsys):
    assert passed_on("before\n" + DYING[: DYING.index("FileNot")], capsys) == "before\n"
    assert passed_on(DYING.partition("\n")[0] + "\n", capsys) == ""


def test_traceback_that_comes_slowly_is_one(capsys):
    def slowly():
        for line in (SERIOUS + DYING).splitlines(keepends=True):
            time.sleep(0.4 if line.startswith(("    g()", "KeyError")) else 0)
            yield line.encode()

    pass_on(slowly())

    assert capsys.readouterr().err == SERIOUS


def test_lines_of_the_user_arrive_as_they_are(capsys):
    text = (
        "[2026-11-15 10:00:00] WARNING root: price is negative\nINFO of mine\n\n"
        "WARN: none left\n:: loading settings\nout of memory\nkilled\n"
    )

    assert passed_on(text, capsys) == text
    assert passed_on(AT_START + text, capsys) == text
