"""One run at a time works on a group, where no system keeps the lock: a file says who lives."""

from __future__ import annotations

import json
import os
import time

import pytest

from millpond import lock
from millpond.errors import GroupInUseError

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 0.2)
    monkeypatch.setattr(lock, "_DEAD", 3.0)


def lease_of(folder):
    return json.loads((folder / "lock").read())


def left_behind(folder, *, host, process, seconds):
    """Leave what a holder leaves that died without a word."""
    lease = {"owner": "other", "who": f"process {process} on {host}", "process": "p"}
    heard = int((time.time() - seconds) * 1000)
    (folder / "lock").write(json.dumps({**lease, "heard_ms": heard}).encode())


def test_who_comes_second_is_refused_until_the_first_lets_go(store):
    with lock.locked(store, "group", "running"):
        first = lease_of(store)
        with pytest.raises(GroupInUseError, match=f"process {os.getpid()} on"):
            lock.locked(store, "group", "running").__enter__()
        assert lock.holder_of(store) is not None
        time.sleep(1.0)
        assert lease_of(store)["heard_ms"] > first["heard_ms"]

    assert lock.holder_of(store) is None
    with lock.locked(store, "group", "running"):
        pass


def test_a_holder_on_another_machine_counts_as_dead_when_it_is_silent(store):
    left_behind(store, host="elsewhere", process=1, seconds=1)
    with pytest.raises(GroupInUseError, match="process 1 on elsewhere"):
        lock.locked(store, "group", "running").__enter__()

    left_behind(store, host="elsewhere", process=1, seconds=4)
    with lock.locked(store, "group", "running"):
        assert lease_of(store)["owner"] != "other"


@pytest.mark.parametrize("process", [2**22 + 1, os.getpid()], ids=["gone", "ours"])
def test_a_holder_that_died_on_this_machine_need_not_be_waited_for(store, process):
    """Its number may be ours now: in a container it is the same at every start."""
    left_behind(store, host=lock.socket.gethostname(), process=process, seconds=0)

    with lock.locked(store, "group", "running"):
        assert lease_of(store)["owner"] != "other"


def test_who_was_replaced_while_it_was_silent_learns_of_it(store):
    with lock.locked(store, "group", "running") as hold:
        assert hold.lost_to == ""
        left_behind(store, host="elsewhere", process=1, seconds=0)
        deadline = time.monotonic() + 10
        while not hold.lost_to and time.monotonic() < deadline:
            time.sleep(0.05)

        with pytest.raises(GroupInUseError, match=r"taken over by process 1 on elsewhere"):
            hold.check()
    assert hold.lost_to == "process 1 on elsewhere"
    assert lease_of(store)["owner"] == "other"  # the lock of another is left alone


def test_who_cannot_say_that_it_lives_takes_itself_for_dead(store, monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 60.0)
    monkeypatch.setattr(lock, "_SILENT", 1.0)
    with lock.locked(store, "group", "running") as hold:
        time.sleep(1.1)
        hold.check()  # it has only been paused: it says so now
        monkeypatch.setattr(lock, "_lease", None)  # the store does not answer
        time.sleep(1.1)

        with pytest.raises(GroupInUseError, match=r"does not answer(.|\n)*Fix:"):
            hold.check()


def test_who_was_paused_and_finds_the_lock_gone_does_not_go_on(store, monkeypatch):
    """Another one has taken over, has done its work and has let go."""
    with lock.locked(store, "group", "running") as hold:
        monkeypatch.setattr(lock, "_SILENT", -1.0)
        (store / "lock").delete()
        with pytest.raises(GroupInUseError, match="taken over"):
            hold.check()
