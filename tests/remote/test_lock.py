"""One run at a time works on a group, where no system keeps the lock: numbered files say who holds.

All interleavings of takers and of a holder that wakes up: `tests/unit/test_lease.py`.
"""

from __future__ import annotations

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from millpond.errors import GroupInUseError
from millpond.storage import lease, lock

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 0.2)
    monkeypatch.setattr(lease, "_DEAD", 3.0)


def written(folder, number):
    (info,) = (info for info in folder.entries() if info.name == f"lock-{number}")
    return info.modified_ms


def owner_of(folder, number):
    return json.loads((folder / f"lock-{number}").read())["owner"]


def left_behind(folder, number, *, host, process):
    """Leave what a holder leaves that died without a word."""
    content = {"owner": "other", "who": f"process {process} on {host}", "process": "p"}
    (folder / f"lock-{number}").write(json.dumps(content).encode())


def test_who_comes_second_is_refused_until_the_first_lets_go(store):
    with lock.locked(store, "group", "running"):
        first = written(store, 1)
        with pytest.raises(GroupInUseError, match=f"process {os.getpid()} on"):
            lock.locked(store, "group", "running").__enter__()
        assert lock.holder_of(store) is not None
        time.sleep(1.5)
        assert written(store, 1) > first

    assert lock.holder_of(store) is None
    with lock.locked(store, "group", "running") as hold:
        assert hold.number == 2
        numbers = [info.name for info in store.entries() if info.name != "lock-now"]
        assert numbers == ["lock-2"]


def test_a_holder_on_another_machine_counts_as_dead_when_it_is_silent(store):
    left_behind(store, 1, host="elsewhere", process=1)
    with pytest.raises(GroupInUseError, match="process 1 on elsewhere"):
        lock.locked(store, "group", "running").__enter__()

    time.sleep(4.2)
    with lock.locked(store, "group", "running") as hold:
        assert hold.number == 2
        assert owner_of(store, 2) != "other"


@pytest.mark.parametrize("process", [2**22 + 1, os.getpid()], ids=["gone", "ours"])
def test_a_holder_that_died_on_this_machine_need_not_be_waited_for(store, process):
    """Its number may be ours now: in a container it is the same at every start."""
    left_behind(store, 1, host=socket.gethostname(), process=process)

    with lock.locked(store, "group", "running") as hold:
        assert hold.number == 2


def test_of_many_who_take_over_at_once_one_holds(store):
    left_behind(store, 1, host=socket.gethostname(), process=2**22 + 1)

    def take(number):
        owner = lease.Owner(f"id {number}", number, "elsewhere", "p")
        try:
            return lease.take(store, owner, GroupInUseError).owner.process
        except GroupInUseError:
            return None

    with ThreadPoolExecutor(4) as threads:
        (won,) = (owner for owner in threads.map(take, range(2, 6)) if owner)
    assert owner_of(store, 2) == f"id {won}"


def test_who_was_replaced_while_it_was_silent_learns_of_it_at_the_next_check(store, monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 60.0)
    with lock.locked(store, "group", "running") as hold:
        hold.check()
        left_behind(store, 2, host="elsewhere", process=1)

        with pytest.raises(GroupInUseError, match=r"taken over by process 1 on elsewhere"):
            hold.check()
    assert hold.lost_to == "process 1 on elsewhere"
    assert owner_of(store, 2) == "other"  # the lease of another is left alone


def test_who_was_paused_and_not_replaced_renews_its_lease_before_it_goes_on(store, monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 60.0)
    monkeypatch.setattr(lock, "_SILENT", 1.0)
    with lock.locked(store, "group", "running") as hold:
        before = written(store, 1)
        time.sleep(1.2)
        hold.check()
        assert written(store, 1) > before


def test_who_was_paused_and_finds_its_lease_gone_does_not_go_on(store):
    """Another one has taken over, has done its work and has let go; somebody has cleaned up."""
    with lock.locked(store, "group", "running") as hold:
        (store / "lock-1").delete()
        with pytest.raises(GroupInUseError, match="taken over"):
            hold.check()
