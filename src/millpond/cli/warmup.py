"""Make the archive of classes that starts Spark faster: run a small program, keep what it loaded.

Takes nothing, gives a file in the user's cache folder (see `spark.archive`). The program runs in a
process of its own, whose JVM writes the archive when it ends.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

from millpond.app import Application
from millpond.connectors.sources import ListSource
from millpond.errors import EngineError
from millpond.folders import Scratch, make_folder
from millpond.state.view import State

__all__ = ["is_warm", "warm_up"]

# Archives that are kept, the newest: people have more than one Java, and an archive has 180 MB.
_KEPT = 3


def is_warm() -> bool:
    """Tell whether there is an archive for this Java and this Spark."""
    from millpond.spark.internals.class_archive import archive_file

    file = archive_file()
    return file is None or file.exists()


def warm_up(force: bool = False) -> Path:
    """Make the archive for this Java and this Spark, where there is none; return it.

    Raises:
        EngineError: where it cannot be made.
    """
    from millpond.spark.internals.class_archive import archive_file

    target = archive_file()
    if target is None:
        msg = "an archive needs a Java and the Spark that comes with the package pyspark."
        raise EngineError(msg + "\nFix: install Java 17 or newer; unset SPARK_HOME.")
    make_folder(target.parent)
    with (target.parent / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second finds it made
        if target.exists() and not force:
            return target
        aside = target.with_suffix(".making")
        aside.unlink(missing_ok=True)
        command = [sys.executable, "-m", "millpond.cli.warmup", str(aside)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not aside.exists():
            aside.unlink(missing_ok=True)
            msg = f"the archive was not made: {(done.stderr or done.stdout).strip()[-2000:]}"
            raise EngineError(
                f"{msg}\nFix: run a program first, to see its error; Spark starts without an "
                "archive, too."
            )
        aside.replace(target)
        by_age = sorted(target.parent.glob("*.jsa"), key=lambda file: -file.stat().st_mtime)
        for old in by_age[_KEPT:]:
            old.unlink(missing_ok=True)
    return target


def _train(target: Path) -> None:
    """Run what loads the classes of a usual program; the JVM has written them when this returns."""
    from millpond import admin
    from millpond.spark.internals.class_archive import options_to_make
    from millpond.spark.internals.jvm_process import end_jvm

    with Scratch("millpond-warmup-") as folder:
        app = Application(
            consumer_group="warmup",
            state_dir=f"{folder}/state",
            topics_dir=f"{folder}/topics",
            spark_config={"spark.driver.extraJavaOptions": options_to_make(target)},
            max_records_per_batch=20,
            loglevel=None,
        )
        records = [{"user": f"user-{n % 7}", "amount": n} for n in range(60)]
        frame = app.dataframe(source=ListSource(records, name="payments"))
        frame = frame.group_by("user").apply(_total, stateful=True)
        frame.to_topic(app.topic("totals"))
        app.run(drain=True)
        with admin.open(app) as state:
            state.get("user-3")
        if code := end_jvm():
            sys.exit(f"the JVM ended with {code}")


def _total(value: dict[str, Any], state: State) -> dict[str, Any]:
    total = state.get("total", 0) + value["amount"]
    state.set("total", total)
    return {**value, "total": total}


if __name__ == "__main__":
    _train(Path(sys.argv[1]))
