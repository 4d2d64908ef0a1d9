"""The state directory of one consumer group.

    state_dir/<group>/
      lock                     held while an application runs; free when it dies. Elsewhere than
                               on this machine: lock-<n>, whose highest number holds
      manifest.json            format, key groups, partitions, scopes and stores, generation
      generations/0001/        a Spark checkpoint; see `checkpoint`
      clock-0001.json          what the last batch saw of the time; without it, it is replayed
      journal-0001.json        what the latest batches read: a batch that is replayed is the same
      sources/                 spools of list sources, file lists of file sources

Takes a path and a group; gives the checkpoint to use and where its sources stand. Changing
what Spark cannot change (no more state, other offsets, other values) is a new generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from msgspec import UNSET

from millpond.connectors.file_list import COPY, LIST, parse_list
from millpond.connectors.log_partition import Partition
from millpond.errors import ConfigError, DamagedStateError
from millpond.program.plan import Plan
from millpond.storage.audit import Accept, ClearState
from millpond.storage.batch_source import offsets_in
from millpond.storage.checkpoint import Batch, Checkpoint, Problem, damaged
from millpond.storage.claims import claims_of
from millpond.storage.clock_file import read_clock
from millpond.storage.compare import Verdict, check, compare, fingerprint
from millpond.storage.durable import sync_all
from millpond.storage.files import Files, Location, is_remote, local
from millpond.storage.journal import Journal, read_journal
from millpond.storage.lock import Hold, holder_of, locked, taken_over
from millpond.storage.manifest import Manifest, lease_in, read_manifest, stream_of

__all__ = ["StateDirectory"]


class StateDirectory:
    """The folder of one consumer group.

    Args:
        state_dir: The folder of all groups: a path, or an address such as s3a://bucket/state.
        group: The consumer group.
        remote: Gives the files of an address; asked only where `state_dir` is one.
    """

    def __init__(
        self, state_dir: str | Path, group: str, remote: Callable[[], Files] | None = None
    ) -> None:
        self.group = group
        self.folder = root(state_dir, remote) / group
        self.hold: Hold | None = None
        """The group's lock, while it is held."""

    @property
    def sources(self) -> Location:
        return self.folder / "sources"

    def spool(self, topics_dir: str | Path) -> str:
        """Return where lists are written for workers, which read files of their machine only."""
        if self.folder.is_local:
            return self.sources.path
        return str(Path(topics_dir).absolute() / ".sources" / self.group)

    def generation(self, manifest: Manifest) -> Location:
        """Return the folder of the current generation."""
        return self.generation_folder(manifest.generation)

    def generation_folder(self, number: int) -> Location:
        return self.folder / "generations" / f"{number:04}"

    def checkpoint(self, manifest: Manifest) -> Checkpoint:
        """Return the checkpoint of the current generation."""
        return Checkpoint(self.generation(manifest))

    def clock_file(self, manifest: Manifest) -> Location:
        """Return where what is known about the time is kept between batches."""
        return self.folder / f"clock-{manifest.generation:04d}.json"

    def journal_file(self, manifest: Manifest) -> Location:
        """Return where it is written down what the latest batches read."""
        return self.folder / f"journal-{manifest.generation:04d}.json"

    # --- the lock ---------------------------------------------------------------------------

    @contextmanager
    def held(self, what: str) -> Iterator[Hold]:
        """Hold the group's lock, or say who does."""
        above = 0 if self.folder.is_local else self._last_lease()
        with locked(self.folder, self.group, what, above) as hold:
            self.hold = hold
            try:
                yield hold
            finally:
                self.hold = None

    def is_held(self) -> bool:
        """Tell whether somebody holds the lock."""
        return holder_of(self.folder) is not None

    # --- the manifest -----------------------------------------------------------------------

    def load(self) -> Manifest | None:
        """Return the manifest, or None where the group has never run.

        Raises:
            DamagedStateError: where it is damaged, or gone though there is state.
        """
        file = self.folder / "manifest.json"
        text = file.text()
        if text is None:
            if (self.folder / "generations").entries():
                raise damaged(file, "it is gone")
            return None
        try:
            return read_manifest(text, str(file))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(file, error) from error

    def recalled(self) -> Manifest:
        """Return the manifest from one of its copies."""
        for number in reversed(self.generations()):
            file = self.folder / f"manifest-{number:04d}.json"
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                return read_manifest(file.text() or "", str(file))
            copy = read_journal(self.folder / f"journal-{number:04d}.json").manifest
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                return read_manifest(copy, str(file))
        msg = f"the manifest of group {self.group!r} and all its copies are gone."
        fix = "millpond state restore, if there is a backup; or app.clear_state(True)."
        raise DamagedStateError(f"{msg}\nFix: {fix}")

    def save(self, manifest: Manifest) -> None:
        """Write the manifest, and a second one beside the checkpoint that it belongs to.

        Raises:
            GroupInUseError: where the lock is another's by now.
        """
        if self.hold is not None:
            self.hold.check()
            if self.hold.number and self._last_lease() > self.hold.number:
                raise taken_over(self.group, "a later holder, which has written the manifest")
            manifest.lease = self.hold.number
        data = manifest.encode()
        (self.folder / f"manifest-{manifest.generation:04d}.json").write(data)
        (self.folder / "manifest.json").write(data)

    def _last_lease(self) -> int:
        """Return the number of the lease under which the manifest was written, if that is known."""
        return lease_in((self.folder / "manifest.json").text())

    def begin(self, manifest: Manifest) -> None:
        """Make a generation the current one, once all that it has is on the disk."""
        if self.folder.is_local:
            sync_all(self.generation(manifest).path, self.sources.path)
        self.save(manifest)

    def compare(self, plan: Plan, *, accept: bool = False) -> list[Verdict]:
        """Return what becomes of every store of the state and of a program."""
        known = self.known(plan) or Manifest(1, 1, layers=plan.layers)
        return self.verdicts(known, plan, accept=accept)

    def verdicts(self, known: Manifest, plan: Plan, *, accept: bool) -> list[Verdict]:
        """Return what becomes of every store of a state and of a program."""
        return compare(known, plan, self.group, accept or self.is_accepted(known, plan))

    def check(self, plan: Plan, *, accept: bool = False) -> Manifest | None:
        """Refuse a plan that the state does not fit; return what is known of the state."""
        manifest = self.known(plan)
        if manifest is not None:
            check(manifest, plan, self.group, accept or self.is_accepted(manifest, plan))
        return manifest

    def accept(self, plan: Plan) -> list[Verdict]:
        """Write down that the change to a plan is accepted; return what will become of stores."""
        manifest, known = self.load(), self.known(plan)
        if manifest is None or known is None:
            return self.compare(plan)
        verdicts = compare(known, plan, self.group)
        check(known, plan, self.group, accept=True)
        if any(verdict.says == "refuse" for verdict in verdicts):
            manifest.accepted = fingerprint(known, verdicts)
            manifest.note(Accept(change=manifest.accepted))
            self.save(manifest)
        return self.verdicts(known, plan, accept=True)

    def is_accepted(self, known: Manifest, plan: Plan) -> bool:
        """Tell whether exactly this change of the program was accepted."""
        return bool(known.accepted) and known.accepted == self.change(known, plan)

    def change(self, known: Manifest, plan: Plan) -> str:
        """Return what stands for exactly the change from a state to a program."""
        return fingerprint(known, compare(known, plan, self.group))

    def known(self, plan: Plan) -> Manifest | None:
        """Return the manifest, without what it says about state that is not there."""
        manifest = self.load()
        if manifest is None:
            return None
        for problem in self.damage(manifest):
            raise damaged(problem.file, problem.what)
        last = self.checkpoint(manifest).last()
        manifest = manifest.at(last)
        if last is None:
            manifest.layers = plan.layers
        return manifest

    def damage(self, manifest: Manifest) -> list[Problem]:
        """Return what is damaged of what the next start needs, in the order in which it is found.

        This is what the start, `verify`, `repair` and `recover="auto"` go by. Files of state are
        not among it: who needs to know reads the state of the batch that `goes_on_from` names.
        """
        checkpoint, journal = self.checkpoint(manifest), read_journal(self.journal_file(manifest))
        is_new = not manifest.replay_until and not checkpoint.planned() + checkpoint.committed()
        found: list[Problem] = []
        if is_new and (journal.batches or self.clock_file(manifest).exists()):
            found.append(Problem(str(checkpoint.folder), "its batches are gone"))
        if lost := self.lost_commit(manifest):
            found.append(Problem(str(lost), "it is gone"))
        found += checkpoint.problems(manifest.at(checkpoint.last()).layers)
        found += self.lost_lists(manifest) + self.damaged_spools(manifest)
        if found:
            return list({problem.file: problem for problem in found}.values())
        if self._lacks(manifest, journal):
            what = "it lacks batches that must be done as they were before"
            return [Problem(str(self.journal_file(manifest)), what)]
        last = checkpoint.last()
        if last is None or not self._takes_back(manifest):
            return []
        if checkpoint.is_by_hand(last):
            return [Problem(str(self.clock_file(manifest)), "it is gone")]
        if last and last - 1 not in checkpoint.committed():
            return [Problem(str(checkpoint.committed_file(last - 1)), "it is gone")]
        return []

    def lost_lists(self, manifest: Manifest) -> list[Problem]:
        """Return the lists of files that batches have read and nobody knows any more.

        A copy of a list does as well, so nothing is lost where one of the two can be read.
        """
        if not self.folder.is_local:  # they are where the topics are; the start looks at them
            return []
        checkpoint, problems = self.checkpoint(manifest), []
        journal = read_journal(self.journal_file(manifest))
        read = [manifest.start_offsets, *map(offsets_in, journal.batches.values())]
        for number in checkpoint.planned()[-2:]:
            with suppress(DamagedStateError):
                if (batch := checkpoint.batch(number)) is not None:
                    read.append(batch.offsets)
        for name in sorted({name for places in read for name in places} - {*manifest.topic_ids}):
            count = max(places.get(name, {}).get("files", 0) for places in read)
            places = [self.sources / (name + ending) for ending in (LIST, COPY)]
            if not any(len(parse_list(place.text()) or ()) >= count for place in places):
                what = f"which files source {name!r} has read is not known any more"
                problems.append(Problem(str(places[0]), what))
        return problems

    def damaged_spools(self, manifest: Manifest) -> list[Problem]:
        """Return the spools of lists that lack records which the next start reads."""
        if not self.folder.is_local:
            return []
        offsets = manifest.start_offsets
        with suppress(DamagedStateError):
            checkpoint, last = self.checkpoint(manifest), self.goes_on_from(manifest)
            batch = None if last is None else checkpoint.batch(last)
            offsets = offsets if batch is None else batch.offsets
        problems = []
        for name, places in offsets.items():
            spool = Path(self.sources.path) / name / "0"
            if spool.is_dir() and "0" in places:
                damaged_records, _ = Partition(spool).verify(places["0"])
                problems += [Problem(str(spool), _first(error)) for error in damaged_records[:1]]
        return problems

    def goes_on_from(self, manifest: Manifest) -> int | None:
        """Return the batch whose state the next start loads, where nothing is damaged."""
        last = self.checkpoint(manifest).last()
        if last is None or not self._takes_back(manifest):
            return last
        return last - 1 if last else None

    def _lacks(self, manifest: Manifest, journal: Journal) -> bool:
        """Tell whether a batch was begun of which nobody knows what it reads."""
        seq, checkpoint = self.committed_clock(manifest), self.checkpoint(manifest)
        last = checkpoint.last()
        begun = checkpoint.batch(0 if last is None else last + 1)
        known = {0 if begun is None else begun.clock.seq, *journal.batches}
        until = max(*known, journal.delivered + 1, manifest.replay_until, self._seen(manifest))
        return not known.issuperset(range(seq + 1, until + 1))

    def _seen(self, manifest: Manifest) -> int:
        """Return the clock of the last batch that was delivered and seen, as far as it is known."""
        known = read_clock(self.clock_file(manifest))
        return -1 if known is None else known.seq

    def _takes_back(self, manifest: Manifest) -> bool:
        """Tell whether the last batch is done once more, because what it saw is lost."""
        checkpoint, seq = self.checkpoint(manifest), self.committed_clock(manifest)
        is_next_planned = (checkpoint.last() or 0) + 1 in checkpoint.planned()
        return 0 < seq > self._seen(manifest) and not is_next_planned

    def lost_commit(self, manifest: Manifest) -> Location | None:
        """Return the commit from which the generation should go on, where it is not there.

        It would look like a batch that was begun and not done; but this one was made manually.
        """
        checkpoint = self.checkpoint(manifest)
        last = checkpoint.last()
        if manifest.since < 0 or (last is not None and last >= manifest.since):
            return None
        return checkpoint.committed_file(manifest.since)

    def admit(self, plan: Plan, groups: int, partitions: int, *, accept: bool = False) -> Manifest:
        """Return the manifest under which a plan may run, or refuse it."""
        known = self.check(plan, accept=accept)
        manifest = known or Manifest(groups, partitions, id=uuid4().hex)
        for number in self.generations():  # of a change that was cut short at its end
            if number > manifest.generation:
                self.drop_generation(number)
        checkpoint = self.checkpoint(manifest)
        checkpoint.settle()
        checkpoint.remove_leftovers()
        manifest.say(claims_of(plan, manifest.claims()), checkpoint.last())
        manifest.stream = manifest.stream or stream_of(self.group, manifest)
        self.save(manifest)
        return manifest

    def known_keys(self, manifest: Manifest) -> int | None:
        """Return how many keys there were after the last batch that ran; None: not known."""
        known = read_clock(self.clock_file(manifest))
        if known is None or known.keys is UNSET:
            return None
        return sum(count for _, _, count in known.keys)

    # --- where the sources stand ------------------------------------------------------------

    def committed(self, manifest: Manifest) -> Batch | None:
        """Return the last batch that is done; None before the first."""
        checkpoint = self.checkpoint(manifest)
        last = checkpoint.last()
        if last is None:
            return None
        batch = checkpoint.batch(last)
        if batch is None:
            raise damaged(checkpoint.planned_file(last), "it is gone")
        return batch

    def committed_offsets(self, manifest: Manifest) -> dict[str, dict[str, int]]:
        """Return the offsets up to which the current generation has processed its sources."""
        batch = self.committed(manifest)
        return manifest.start_offsets if batch is None else batch.offsets

    def committed_clock(self, manifest: Manifest) -> int:
        """Return the number of the clock of the last committed batch; 0 before the first."""
        batch = self.committed(manifest)
        return 0 if batch is None else batch.clock.seq

    def journal(self, manifest: Manifest) -> Journal:
        """Return what the latest batches read; nothing where that is not known.

        Raises:
            DamagedStateError: where it is needed: batches are to be done as they were before.
        """
        file = self.journal_file(manifest)
        journal = read_journal(file)
        missing = set(range(self.committed_clock(manifest) + 1, manifest.replay_until + 1))
        if missing - journal.batches.keys():
            raise damaged(file, "it lacks batches that must be done as they were before")
        return journal

    def take_back(self, manifest: Manifest) -> None:
        """Let the last committed batch be done once more, with the same records and time.

        Where the next one is planned already, its clock has what that batch saw: nothing to do.
        """
        checkpoint = self.checkpoint(manifest)
        last = checkpoint.last()
        if last is None or last + 1 in checkpoint.planned():
            return
        if checkpoint.is_by_hand(last):  # a program would not do it again as it was
            raise damaged(self.clock_file(manifest), "it is gone")
        if manifest.since >= last:
            manifest.since = last - 1
            self.save(manifest)
        checkpoint.take_back(last)

    # --- generations ------------------------------------------------------------------------

    def clear(self, *, reset_offsets: bool) -> None:
        """Begin a generation without state; keep or forget the offsets."""
        try:
            manifest = self.load()
        except DamagedStateError:
            manifest = self._recalled_or_none() if reset_offsets else self.recalled()
        if manifest is None:  # there never was one, or nothing is left of it
            self.drop_others()
            (self.folder / "manifest.json").delete()
            return
        start: dict[str, dict[str, int]] = {}
        if not reset_offsets:
            # A source that this generation did not read keeps the place it had before.
            start = {**manifest.start_offsets, **self._offsets_to_keep(manifest)}
        old = manifest.generation
        manifest.generation = self.next_generation()
        manifest.stream = stream_of(self.group, manifest)
        manifest.start_offsets = start
        manifest.topic_ids = {} if reset_offsets else manifest.topic_ids
        manifest = manifest.at(None)
        manifest.replay_until = manifest.live_from = 0
        manifest.backfill, manifest.since = None, -1
        manifest.note(ClearState(reset_offsets=reset_offsets))
        self.begin(manifest)
        if reset_offsets:  # after the manifest: the old offsets refer to what is removed here
            self.sources.delete()
        self.drop_generation(old)

    def _recalled_or_none(self) -> Manifest | None:
        try:
            return self.recalled()
        except DamagedStateError:
            return None

    def _offsets_to_keep(self, manifest: Manifest) -> dict[str, dict[str, int]]:
        try:
            return self.committed_offsets(manifest)
        except DamagedStateError as error:
            msg = f"where the sources stand is not known: {str(error).partition(chr(10))[0]}"
            fix = "app.clear_state(reset_offsets=True), which starts over."
            raise DamagedStateError(f"{msg}\nFix: {fix}") from error

    def next_generation(self) -> int:
        """Return a number that no generation has had."""
        try:
            manifest = self.load()
        except DamagedStateError:
            manifest = self._recalled_or_none()
        return max([*self.generations(), 0 if manifest is None else manifest.generation]) + 1

    def generations(self) -> list[int]:
        """Return the generations that are kept."""
        found = (self.folder / "generations").entries()
        return sorted(int(info.name) for info in found if info.name.isdigit())

    def abandon(self, number: int) -> None:
        """Remove a generation that did not become the current one."""
        if self.hold is not None and self.hold.lost_to:
            return  # who has taken over may be making one of the same number
        try:
            manifest = self.load()
        except DamagedStateError:
            if any(info.name.startswith("manifest") for info in self.folder.entries()):
                return  # nobody can tell; the next change removes it
            manifest = None
        if manifest is None or manifest.generation != number:
            self.drop_generation(number)

    def drop_others(self, *kept: int) -> None:
        """Remove all generations but some."""
        for number in self.generations():
            if number not in kept:
                self.drop_generation(number)

    def drop_generation(self, number: int) -> None:
        """Remove a generation and what belongs to it."""
        self.generation_folder(number).delete()
        for name in ("clock", "journal", "manifest"):
            (self.folder / f"{name}-{number:04d}.json").delete()


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def root(state_dir: str | Path, remote: Callable[[], Files] | None) -> Location:
    """Return the folder of all groups."""
    if not is_remote(state_dir):
        return local(state_dir)
    if remote is None:
        msg = f"state_dir={str(state_dir)!r} needs Spark to be reached.\nFix: pass its files."
        raise ConfigError(msg)
    return Location(remote(), str(state_dir).rstrip("/"))
