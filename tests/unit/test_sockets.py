"""The folder where the JVM and Python workers meet."""

import stat
import tempfile
from pathlib import Path

import pytest

from millpond.spark import sockets

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(sockets, "_opened", [])
    yield
    for folder in sockets._opened:
        folder.remove()


def test_sockets_have_a_folder_of_this_program_that_nobody_else_enters(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        settings = sockets.socket_settings()
        folder = Path(settings[FOLDER])

        assert settings[ENABLED] == "true"
        assert sockets.socket_settings() == settings
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        folder.rmdir()
        assert sockets.socket_settings()[FOLDER] != str(folder)


@pytest.mark.parametrize("name", ["x" * 60, "missing"])
def test_where_there_can_be_no_sockets_workers_come_by_tcp(monkeypatch, tmp_path, name):
    folder = tmp_path / name
    if name != "missing":
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    assert sockets.socket_settings() == {ENABLED: "false"}
