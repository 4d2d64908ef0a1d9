"""What the JVM and its workers write on standard error: noise goes, what matters stays whole."""

import io
import time

from millpond.spark.session import _pass_on

DYING = """Traceback (most recent call last):
  File "util.py", line 822, in local_connect_and_auth
    sock.connect(path)
FileNotFoundError: [Errno 2] No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "daemon.py", line 8, in main
    connect()
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


def passed_on(text, capsys):
    _pass_on(io.BytesIO(text.encode()))
    return capsys.readouterr().err


def test_workers_that_die_with_their_query_say_nothing(capsys):
    assert passed_on(DYING, capsys) == ""
    assert passed_on(DYING + DYING, capsys) == ""


def test_a_chain_of_errors_is_told_whole(capsys):
    assert passed_on(SERIOUS, capsys) == SERIOUS
    assert passed_on(SERIOUS + "behind\n", capsys) == SERIOUS + "behind\n"
    assert passed_on(SERIOUS + DYING, capsys) == SERIOUS
    assert passed_on(DYING + SERIOUS, capsys) == SERIOUS


def test_who_is_ended_while_he_writes_says_nothing(capsys):
    assert passed_on("before\n" + SERIOUS[: SERIOUS.index("KeyError")], capsys) == "before\n"
    assert passed_on(SERIOUS.partition("\n")[0] + "\n", capsys) == ""


def test_a_traceback_that_comes_slowly_is_one(capsys):
    def slowly():
        for line in (SERIOUS + DYING).splitlines(keepends=True):
            time.sleep(0.4 if line.startswith((" ", "KeyError", "pyspark")) else 0)
            yield line.encode()

    _pass_on(slowly())

    assert capsys.readouterr().err == SERIOUS


def test_noise_goes_and_the_rest_stays(capsys):
    text = "26/11/15 WARN Something\nSetting default log level\nout of memory\n"

    assert passed_on(text + DYING + "killed\n", capsys) == "out of memory\nkilled\n"
