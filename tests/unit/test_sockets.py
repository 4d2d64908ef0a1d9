"""The folder where the JVM and Python workers meet."""

import stat
import tempfile
from pathlib import Path

import pytest

from millpond.spark.internals import sockets

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
def test_where_temporary_files_lie_too_deep_sockets_have_a_shorter_folder(
    monkeypatch, tmp_path, name
):
    if name != "missing":
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert Path(sockets.socket_settings()[FOLDER]).parent == Path(runtime)

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / name))
    folder = Path(sockets.socket_settings()[FOLDER])
    assert folder.parent == Path("/tmp")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert name == "missing" or not list((tmp_path / name).iterdir())


def test_where_there_can_be_no_sockets_at_all_everything_goes_by_tcp(monkeypatch, tmp_path):
    monkeypatch.setattr(sockets, "_places", lambda: iter([tmp_path / "missing"]))

    assert sockets.socket_settings() == {ENABLED: "false"}
