"""Who may read what is written: the log and what is kept of one's work the person alone; a saved file whoever could before."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from circuitlab.disk import paths
from circuitlab.disk.files import whole, write_whole
from circuitlab.gui.docks.log import file_handler
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.session_files.last import keep_last
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.session import Session
from circuitlab.story.setup import Setup
from circuitlab.training import files as run_files
from circuitlab.unforeseen import write_log
from tests.models import CONFIGS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: modes of files")


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_log_is_the_persons_alone() -> None:
    write_log("a path that says who one is")
    assert (_mode(paths.state_home()), _mode(paths.log_file())) == (0o700, 0o600)


def test_what_an_earlier_version_left_open_is_closed() -> None:
    paths.state_home().mkdir(parents=True, mode=0o755)
    paths.log_file().touch(0o644)
    write_log("more")
    assert (_mode(paths.state_home()), _mode(paths.log_file())) == (0o700, 0o600)


def test_the_log_of_the_window_is_the_persons_alone() -> None:
    handler = file_handler()
    assert handler is not None
    try:
        handler.emit(logging.makeLogRecord({"msg": "a line", "levelno": logging.INFO}))
        assert (_mode(paths.state_home()), _mode(paths.log_file())) == (0o700, 0o600)
    finally:
        handler.close()


def test_what_is_kept_of_the_work_is_the_persons_alone() -> None:
    keep_last(Session({}, Setup()), None, False)
    assert _mode(paths.state_home()) == 0o700
    recovery = Recovery()
    recovery.write(Session({}, Setup()), None)
    assert _mode(recovery.folder) == 0o700 and recovery.path.is_file()
    recovery.remove()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o664])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_file_stays_as_private_as_it_is_while_it_is_written(mode: int, fresh: bool, tmp_path: Path) -> None:
    (path := tmp_path / "mine").write_bytes(b"old")
    path.chmod(mode)
    with whole(path, fresh=tmp_path / "mine.new" if fresh else None) as beside:
        assert _mode(beside) & 0o077 == mode & 0o077
        with beside.open("wb") as file:
            file.write(b"new")
            assert _mode(beside) & 0o077 == mode & 0o077
    assert (_mode(path), path.read_bytes()) == (mode, b"new")


def test_a_new_file_is_as_the_mask_has_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"")
    run_files.write_whole(tmp_path / "b", b"")
    assert {_mode(tmp_path / name) for name in "ab"} == {0o644}


@pytest.mark.parametrize("fresh", [False, True])
def test_a_library_that_puts_a_file_of_its_own_there_hides_nothing(fresh: bool, tmp_path: Path) -> None:
    path, own = tmp_path / "out", tmp_path / "library"
    with whole(path, fresh=tmp_path / "out.new" if fresh else None) as beside:
        own.touch(0o600)
        own.write_bytes(b"of the library")
        os.replace(own, beside)
    assert (_mode(path), path.read_bytes()) == (0o644, b"of the library")


def test_weights_can_be_read_by_whoever_reads_what_lies_beside_them(tmp_path: Path) -> None:
    config = CONFIGS["gpt2"]
    save_directory(tmp_path / "m", config, random_tensors(config), card="# m")
    assert {_mode(path) for path in (tmp_path / "m").iterdir()} == {0o644}
