"""State directories as releases wrote them: the program, its records, and what must come of them.

Run as a script, this writes the archive of a test (`tests/spark/test_old_state.py`) with the
Millpond that is imported, of this or of an earlier release:

    PYTHONPATH=src python tests/shared/old_state.py tests/spark/old-state/NAME.tar.xz

Never write an archive of a release again. Add one for each new format on disk.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import millpond as mp

__all__ = ["BEFORE", "BATCH", "GROUP", "WINDOW_MS", "opened", "produce", "program"]

GROUP = "old"

# The release reads so many records in two batches.
BEFORE, BATCH = 40, 20

KEYS, STEP_MS, WINDOW_MS = 5, 1_000, 10_000


def count(value: Any, state: Any) -> Any:
    state.set("n", state.get("n", 0) + 1)
    state.set("last", value["amount"], ttl=3_600_000)
    state.set_timer("quiet", after=60_000)
    return {"n": state.get("n")}


def went_quiet(key: str, state: Any, timer: Any) -> Any:
    return {"quiet": state.get("n")}


def program(folder: Path, **options: Any) -> mp.Application:
    """A count, a window, timers and totals of one key, and totals of another."""
    app = mp.Application(
        consumer_group=GROUP,
        state_dir=folder / "state",
        topics_dir=folder / "topics",
        auto_offset_reset="earliest",
        max_records_per_batch=BATCH,
        loglevel=None,
        **options,
    )
    topic = app.topic("payments", key_deserializer="str", max_future=None)
    users = app.dataframe(topic).watermark(0)
    users.apply(count, stateful=True, on_timer=went_quiet).to_topic(app.topic("counts"))
    window = users.tumbling_window(WINDOW_MS).agg(n=mp.Count(), total=mp.Sum("amount"))
    window.final().to_topic(app.topic("windows"))
    users.agg(n=mp.Count(), most=mp.Max("amount")).to_topic(app.topic("totals"))
    users.group_by("kind").agg(n=mp.Count()).to_topic(app.topic("kinds"))
    return app


def produce(app: mp.Application, numbers: range, later_ms: int = 0) -> None:
    """Write payments; the number of each is its amount, and its time in seconds."""
    with app.get_producer() as producer:
        for number in numbers:
            producer.produce(
                "payments",
                key=f"user-{number % KEYS}",
                value={"amount": number, "kind": "even" if number % 2 == 0 else "odd"},
                timestamp=STEP_MS * number + later_ms,
            )


def opened(archive: Path, folder: Path) -> None:
    """Put what an archive holds into a folder."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def main(archive: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = program(folder, master="local[2]")
        produce(app, range(BEFORE))
        app.run(drain=True)
        with tarfile.open(archive, "w:xz") as packed:
            for part in ("state", "topics"):
                packed.add(folder / part, part)


if __name__ == "__main__":
    main(sys.argv[1])
