"""Of several who take a lease over, each pausing wherever a store is asked, one holds it.

Every interleaving is tried. An actor is a function that asks a store. For each step it is run from
its beginning with the answers that it has had, up to what it asks next. So the files of the store
with the answers of each actor are all that there is to know, and such a state is looked at once.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

import pytest

from millpond.errors import GroupInUseError, StateError
from millpond.storage import lease
from millpond.storage.directory import StateDirectory
from millpond.storage.files import FileInfo, Location
from millpond.storage.lease import Owner, holder, take
from millpond.storage.lock import locked
from millpond.storage.manifest import Manifest

NOW, DEAD = 1_000_000_000, 0
"""Times of the store, in milliseconds: now, and when a holder that is silent renewed its lease."""


class Memory:
    """A store in memory, whose clock stands still."""

    def __init__(self, files=None, now=NOW):
        self.files, self.now = dict(files or {}), now

    def read(self, path):
        return self.files[path][0] if path in self.files else None

    def write(self, path, data):
        self.files[path] = (data, self.now)

    def create(self, path, data):
        if path in self.files:
            return False
        self.write(path, data)
        return True

    def entries(self, path):
        files = sorted(self.files.items())
        return [FileInfo(name.rpartition("/")[2], False, 1, time) for name, (_, time) in files]

    def delete(self, path):
        self.files.pop(path, None)


class Paused(BaseException):
    """An actor has come to something that it has no answer for yet."""


class Replayed:
    """A store that gives the answers of before, and then pauses at what is asked next."""

    def __init__(self, answers):
        self._left, self.asked = list(answers), None

    def __getattr__(self, name):
        def ask(*values):
            if self._left:
                return self._left.pop(0)
            self.asked = (name, values)
            raise Paused

        return ask


class Refused(Exception):
    pass


def at(store):
    return Location(store, "g")


def machine(name):
    return Owner(f"id of {name}", 1, name, "p")


def taker(name, folder, said):
    """Take the lease, do some work, let it go."""
    try:
        mine = take(folder, machine(name), Refused)
    except Refused:
        return
    said("taken", name)
    for _ in range(2):
        said("asks", name)
        if mine.lost_to():
            return
        said("passed", name)
    mine.let_go()


def waking(name, folder, said):
    """Hold lease 1, which was not renewed for long, and go on."""
    mine = lease.Lease(folder, 1, machine(name))
    for is_first in (True, False):
        if is_first and not mine.lost_to():
            mine.renew()  # as `Hold.check` does after a pause
        said("asks", name)
        if mine.lost_to():
            return
        said("passed", name)


@cache
def run(actor, answers):
    """Return what an actor asks after these answers (None: it is done), and what it has said."""
    store, said = Replayed(answers), []
    with suppress(Paused):
        actor(at(store), lambda *event: said.append(event))
    return store.asked, tuple(said)


def step(actor, answers, files):
    """Let an actor ask its store once; return its answers and the files after that."""
    (name, values), _ = run(actor, answers)
    store = Memory(files)
    answer = getattr(store, name)(*values)
    return (*answers, tuple(answer) if isinstance(answer, list) else answer), store.files


class State(NamedTuple):
    """The files of the store, and where everybody is."""

    files: frozenset
    answers: tuple
    """What each actor was answered; of one that is done, only what it has said."""
    holder: str
    """Who was the last to take the lease."""
    outdated: frozenset
    """Those whose check was begun when another one was the last to take it."""

    def after(self, number, actor):
        answers, files = step(actor, self.answers[number], dict(self.files))
        before = run(actor, self.answers[number])[1]
        asked, said = run(actor, answers)
        holds, outdated = self.holder, set(self.outdated)
        for what, name in said[len(before) :]:
            if what == "taken":
                holds = name
            elif what == "asks" and name != holds:
                outdated.add(name)
            elif what == "passed" and name in outdated:
                raise TwoHolders(f"{name} passed a check after the taking by {holds}")
        place = Done(said) if asked is None else answers
        places = (*self.answers[:number], place, *self.answers[number + 1 :])
        return State(frozenset(files.items()), places, holds, frozenset(outdated))


class Done(tuple):
    """What an actor has said to its end."""


def explore(actors, files=None, first="first"):
    """Go through all interleavings; yield each end, as files and what each actor has said."""
    begin = State(frozenset((files or SILENT).items()), ((),) * len(actors), first, frozenset())
    todo, seen = [begin], set()
    while todo:
        state = todo.pop()
        moving = [n for n, place in enumerate(state.answers) if not isinstance(place, Done)]
        if not moving:
            yield dict(state.files), state.answers
        following = {state.after(number, actors[number]) for number in moving} - seen
        seen |= following
        todo += following


class TwoHolders(AssertionError):
    pass


def content(name, **more):
    return json.dumps({"owner": f"id of {name}", "who": f"process 1 on {name}", **more}).encode()


SILENT = {"g/lock-1": (content("first"), DEAD), "g/lock-now": (b"now", NOW)}


def names_of(said, what):
    return {name for events in said for event, name in events if event == what}


@pytest.mark.parametrize("takers", [["a", "b"], ["a", "b", "c"]], ids=len)
def test_of_those_who_take_over_at_once_never_two_hold(takers):
    ends = list(explore([partial(taker, name) for name in takers]))

    # Who comes after the last one has let go takes it, too.
    assert {len(names_of(said, "taken")) for _, said in ends} == {*range(1, len(takers) + 1)}
    assert all(names_of(said, "taken") == names_of(said, "passed") for _, said in ends)
    assert all(len([name for name in files if name[-1].isdigit()]) >= 1 for files, _ in ends)


def test_a_holder_that_wakes_up_while_others_take_over_is_not_one_of_two():
    ends = list(explore([partial(waking, "first"), partial(taker, "a"), partial(taker, "b")]))

    kept = [said for _, said in ends if said[0][-1] == ("passed", "first")]
    lost = [said for _, said in ends if not said[0] or said[0][-1] == ("asks", "first")]
    assert kept and lost and len(kept) + len(lost) == len(ends)
    assert all(names_of(said, "passed") & {"a", "b"} for said in lost)


def test_the_search_finds_two_holders_where_files_are_written_without_condition(monkeypatch):
    """As before: the last one to write has it. The search must be able to fail."""

    def unconditional(self, path, data):
        self.write(path, data)
        return True

    monkeypatch.setattr(Memory, "create", unconditional)

    with pytest.raises(TwoHolders):
        list(explore([partial(taker, "a"), partial(taker, "b")]))


# --- one after the other --------------------------------------------------------------------


def test_a_number_is_not_used_twice_and_files_of_earlier_numbers_go():
    store = Memory()

    for name in ("a", "b", "c"):
        take(at(store), machine(name), Refused).let_go()

    assert [name for name in store.files if name != "g/lock-now"] == ["g/lock-3"]
    assert take(at(store), machine("d"), Refused, above=7).number == 8


def test_a_lease_is_free_when_it_was_not_renewed_for_a_minute_of_the_store_s_own_clock():
    store = Memory()
    take(at(store), machine("a"), Refused)
    with pytest.raises(Refused, match="process 1 on a"):
        take(at(store), machine("b"), Refused)

    store.now += 59_000
    assert holder(at(store)) == "process 1 on a"
    store.now += 1_000

    assert holder(at(store)) is None
    assert take(at(store), machine("b"), Refused).number == 2


@pytest.mark.parametrize(("age", "is_free"), [(1_000, False), (61_000, True)])
def test_a_lock_of_an_earlier_version_is_respected(age, is_free):
    store = Memory({"g/lock": (content("old", heard_ms=0), NOW - age)})

    if is_free:
        assert take(at(store), machine("new"), Refused).lost_to() == ""
        assert "g/lock" not in store.files
    else:
        with pytest.raises(Refused, match="process 1 on old"):
            take(at(store), machine("new"), Refused)


def test_an_earlier_version_that_starts_beside_a_holder_ends_it():
    store = Memory()
    mine = take(at(store), machine("new"), Refused)

    store.write("g/lock", content("old"))

    assert mine.lost_to() == "process 1 on old"


def test_who_created_a_lease_and_did_not_get_the_answer_has_it():
    class Forgetful(Memory):
        def create(self, path, data):
            super().create(path, data)
            return False

    assert take(at(Forgetful()), machine("a"), Refused).number == 1


def test_who_finds_its_lock_file_removed_does_not_go_on():
    store = Memory()
    mine = take(at(store), machine("a"), Refused)
    store.delete("g/lock-1")

    assert "removed" in mine.lost_to()


def test_who_may_only_read_goes_by_the_clock_of_this_machine():
    class ReadOnly(Memory):
        def write(self, path, data):
            raise StateError("no")

    assert holder(at(ReadOnly({"g/lock-1": (content("a"), DEAD)}))) is None


# --- the manifest ---------------------------------------------------------------------------


def directory_in(store):
    return StateDirectory("s3a://bucket", "g", lambda: store)


def test_a_manifest_is_not_written_by_who_has_lost_the_lease():
    store = Memory()
    directory = directory_in(store)
    with directory.held("a test"):
        directory.save(Manifest(8, 2))
        at_folder = directory.folder / "lock-2"
        at_folder.create(content("other"))

        with pytest.raises(GroupInUseError, match=r"taken over by process 1 on other(.|\n)*Fix:"):
            directory.save(Manifest(16, 2))

    assert directory.load().groups == 8


def test_a_manifest_of_a_later_holder_is_not_overwritten_even_where_its_lease_is_gone():
    store = Memory()
    directory = directory_in(store)
    with directory.held("a test"):
        later = directory_in(store)
        later.save(Manifest(8, 2, lease=5))

        with pytest.raises(GroupInUseError, match="a later holder"):
            directory.save(Manifest(16, 2))

    assert directory.load().groups == 8
    with directory.held("a test") as hold:
        assert hold.number == 6
        directory.save(directory.load())
    assert directory.load().lease == 6


def test_who_cannot_ask_the_store_does_not_go_on():
    class Away(Memory):
        is_away = False

        def entries(self, path):
            if self.is_away:
                raise StateError("the store does not answer.\nFix: wait.")
            return super().entries(path)

    store = Away()
    with locked(at(store), "g", "a test") as hold:
        hold.check()
        store.is_away = True

        with pytest.raises(StateError, match=r"does not answer(.|\n)*Fix:"):
            hold.check()


def test_a_store_that_lists_nothing_is_not_asked_forever():
    class Blind(Memory):
        def entries(self, path):
            return []

    with pytest.raises(Refused, match="takes it now"):
        take(at(Blind()), machine("a"), Refused)
