"""A secret that is planted in a program, and where it is looked for."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["NOWHERE", "SECRET", "Watch", "is_in", "report", "run", "settings"]

SECRET = "tr0ub4dor"
"""What every planted secret contains; the rest says where it was planted."""


def _forms() -> list[bytes]:
    """The secret as it is, in hexadecimal, as Java's properties and UTF-16, and in base64."""
    plain = SECRET.encode()
    forms = [plain, plain.hex().encode(), plain.hex().upper().encode(), SECRET.encode("utf-16-be")]
    forms.append("".join(f"\\u{ord(letter):04x}" for letter in SECRET).encode())
    for before in range(3):  # it may begin at any of the three places of a group
        text = base64.b64encode(b"\0" * before + plain).rstrip(b"=")
        forms.append(text[-(-8 * before // 6) : -1])  # without letters that have others' bits
    return forms


_FORMS = _forms()


def is_in(data: bytes) -> bool:
    return any(form in data for form in _FORMS)


def files_with(*folders: Path) -> list[str]:
    """The files in folders that contain a planted secret."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return [str(file) for file in files if is_in(file.read_bytes())]


def readable_by_others(folder: Path) -> list[Path]:
    """The files in a folder, itself open to everybody, that other users can read."""
    found = []
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
            found += readable_by_others(path)
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
            found.append(path)
    return found


class Watch:
    """Looks at the command lines of all processes, again and again, from the start on."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self.looks = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.wait(0.02):
            self.looks += 1
            for process in Path("/proc").glob("[0-9]*"):
                self._read(process / "cmdline")
                self._read(process / "environ")

    def _read(self, file: Path) -> None:
        try:
            content = file.read_bytes() if file.stat().st_mode & stat.S_IROTH else b""
        except OSError:  # it has ended
            return
        if is_in(content):
            self.seen.add(content)

    def end(self) -> list[bytes]:
        """What had a planted secret."""
        self._ends.set()
        self._thread.join()
        return sorted(self.seen)


_LOG4J = """
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/java.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
rootLogger.level = all
rootLogger.appenderRef.file.ref = file
"""


def run(folder: Path, program: str) -> dict[str, Any]:
    """Run a program that ends with `report`, with all that it can log; return its report."""
    for name in ("events", "tmp"):
        (folder / name).mkdir()
    (folder / "log4j2.properties").write_text(_LOG4J.format(folder=folder))
    (folder / "program.py").write_text(program)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": str(Path(__file__).parent),
        "PYSPARK_SUBMIT_ARGS": "--verbose pyspark-shell",
        **{name: value for name, value in os.environ.items() if name == "JAVA_HOME"},
    }
    command = [sys.executable, "program.py"]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=400)
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    printed = ran.stdout + ran.stderr
    assert b"Command to send: c" in printed
    assert b"Spark properties used" in printed
    assert b"DEBUG" in (folder / "java.log").read_bytes()
    assert list((folder / "events").rglob("events_*"))
    found = json.loads((folder / "report.json").read_text())
    found["printed"] = [line for line in printed.decode().splitlines() if is_in(line.encode())]
    found["files"] = files_with(folder)
    return found


NOWHERE = {
    "printed": [],
    "files": [],
    "pages": [],
    "commands": [],
    "open": [],
    "words": False,
    "looks": True,
    "page": "http://127.0.0.1",
}
"""What a report says where there is no secret anywhere."""


def settings() -> dict[str, str]:
    """Settings with which Spark shows and logs all that it can."""
    return {
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={Path.cwd()}/log4j2.properties "
            f"-Dmine='a b' -Djavax.net.ssl.trustStorePassword={SECRET}-store"
        ),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{Path.cwd()}/events",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
    }


def report(app: Any, watch: Watch, **more: Any) -> None:
    """Write what can be seen while the program runs."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    rest = f"api/v1/applications/{context.applicationId}"
    pages = ["environment/", "jobs/", "SQL/", "StreamingQuery/", "executors/", f"{rest}/jobs"]
    pages += [f"{rest}/environment", f"{rest}/sql?details=true&planDescription=true"]
    read = [urllib.request.urlopen(f"{context.uiWebUrl}/{page}").read() for page in pages]
    assert b"redacted" in read[pages.index(f"{rest}/environment")]
    files = readable_by_others(Path(os.environ["TMPDIR"]))
    found = {
        "page": context.uiWebUrl.rpartition(":")[0],
        "pages": [page for page, text in zip(pages, read, strict=True) if is_in(text)],
        "commands": [repr(line) for line in watch.end()],
        "looks": watch.looks > 20,
        "open": [str(path) for path in files if is_in(path.read_bytes())],
        "words": is_in(f"{app.config!r} {app!r} {app.explain()} {app.broker!r}".encode()),
    }
    Path("report.json").write_text(json.dumps({**found, **more}))
