"""A link that somebody has packed beside a file is never followed by what the program writes there of itself."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from circuitlab.cli.parser import main
from circuitlab.disk.file_lock import FileLock, holder_of
from circuitlab.disk.files import linked, made_folder, need_writable, whole, write_together, write_whole
from circuitlab.disk.own_files import fresh_file, open_own, open_plain
from circuitlab.errors import BadMachine
from circuitlab.gui.sessions.file_hold import FileHold
from circuitlab.gui.sessions.file_work import previous_path, save_file
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.results import SessionFile
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_lock import session_lock
from circuitlab.sweep.journal import NAME, Journal
from circuitlab.training import files as run_files
from tests.fuzz.links import PLANTS, beside_a_session, ours_in, plant, untouched, used

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: links, pipes")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A file of the person's own, which has nothing to do with what they open."""
    return ours_in(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a stranger has packed."""
    (tmp_path / "packed").mkdir()
    return tmp_path / "packed"


KINDS = tuple(kind for kind in PLANTS if kind != "zeros")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_beside_a_named_file_replaces_a_link(folder: Path, ours: Path, kind: str) -> None:
    for name, write in {
        "whole": lambda path: write_whole(path, b"new"),
        "together": lambda path: write_together({path: b"new"}),
        "own": lambda path: run_files.write_whole(path, b"new"),
        "fresh": lambda path: write_whole(path, b"new", fresh=folder / "fresh.new"),
        "previous": lambda path: write_whole(path, b"new", previous=folder / "before"),
    }.items():
        plant(kind, folder / name, ours)
        plant(kind, folder / "fresh.new", ours)
        plant(kind, folder / "before", ours)
        plant(kind, run_files.beside(folder / name), ours)
        need_writable(folder / name, named=False)
        write(folder / name)
        assert (folder / name).read_bytes() == b"new" and not (folder / name).is_symlink()
        assert untouched(ours), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_before_is_kept_beside_and_not_where_a_link_leads(folder: Path, ours: Path, kind: str) -> None:
    for fresh in (None, folder / "fresh.new"):
        (folder / "a").write_bytes(b"old")
        plant(kind, folder / "before", ours)
        plant(kind, folder / "before.new", ours)
        write_whole(folder / "a", b"new", previous=folder / "before", fresh=fresh)
        assert ((folder / "a").read_bytes(), (folder / "before").read_bytes()) == (b"new", b"old")
        assert not (folder / "before").is_symlink() and untouched(ours)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_name_of_a_file_replaces_a_link(folder: Path, ours: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a").write_bytes(b"weights")
    for links in (True, False):
        if not links:
            monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links")))
        else:
            plant(kind, folder / "b", ours)
        if kind != "second name" or links:
            plant(kind, folder / "b.new", ours)
        linked(folder / "a", folder / "b", folder / "b.new")
        assert (folder / "b").read_bytes() == b"weights" and not (folder / "b").is_symlink() and untouched(ours)
        (folder / "b").unlink()


def test_a_link_is_followed_where_a_person_has_named_it(folder: Path, ours: Path) -> None:
    plant("link", folder / "named", ours)
    write_whole(folder / "named", b"asked for", named=True)
    assert (folder / "named").is_symlink() and ours.read_bytes() == b"asked for"
    with whole(folder / "named", named=True) as beside:
        beside.write_bytes(b"again")
    assert ours.read_bytes() == b"again"


@pytest.mark.parametrize("kind", KINDS)
def test_saving_a_session_writes_no_file_that_was_linked_beside_it(folder: Path, ours: Path, kind: str) -> None:
    path = folder / "talk.circuitlab"
    save_file(SessionFile(Session()), path)
    before = path.read_bytes()
    plant(kind, previous_path(path), ours)
    save_file(SessionFile(Session(unknown={"changed": 1})), path)
    assert path.read_bytes() != before == previous_path(path).read_bytes()
    assert not previous_path(path).is_symlink() and untouched(ours)


@pytest.mark.parametrize("kind", KINDS)
def test_opening_a_session_leaves_what_was_linked_beside_it(folder: Path, ours: Path, kind: str) -> None:
    path = folder / "talk.circuitlab"
    path.write_bytes(b"{}")
    lock = folder / ".talk.circuitlab.lock"
    plant(kind, lock, ours)
    assert session_lock(path).path == lock
    hold, other = FileHold(), FileHold()
    assert hold.other(path) is None  # nobody has it open
    assert untouched(ours)
    assert hold.take(path) is None
    assert lock.read_bytes().split()[0] == str(os.getpid()).encode() and not lock.is_symlink()
    assert other.take(path) is not None and (seen := other.other(path)) is not None and seen.pid == os.getpid()
    hold.release()
    assert not lock.exists() and untouched(ours)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_locked_by_a_file_of_its_own(folder: Path, ours: Path, kind: str) -> None:
    plant(kind, folder / "lock", ours)
    with run_files.alone_in(folder):
        assert run_files.holder_of(folder) == os.getpid() and not (folder / "lock").is_symlink()
    assert untouched(ours)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_grow_and_logs_are_files_of_their_own(folder: Path, ours: Path, kind: str) -> None:
    plant(kind, folder / NAME, ours)
    journal = Journal(folder)
    journal.append({"cell": "a", "status": "done"})
    journal.close()
    plant(kind, folder / "log", ours)
    fresh_file(folder / "log").close()
    plant(kind, folder / "part", ours)
    if kind != "second name":
        assert open_plain(folder / "part") is None
    with open_own(folder / "part") as file:
        file.write(b"one")
    with open_own(folder / "part") as file:
        file.write(b" two")
    assert (folder / "part").read_bytes() == b"one two" and b'"cell":"a"' in (folder / NAME).read_bytes()
    assert untouched(ours) and not any(path.is_symlink() for path in folder.iterdir())


def test_a_lock_that_is_a_file_is_taken_by_one_alone(folder: Path) -> None:
    one, two = FileLock(folder / "lock"), FileLock(folder / "lock")
    assert one.take() is None and two.take() is not None and holder_of(folder / "lock") is not None
    one.release()
    assert holder_of(folder / "lock") is None and two.take() is None
    two.release(remove=True)
    assert holder_of(folder / "lock") is None and not (folder / "lock").exists()


def test_a_lock_that_a_backup_has_linked_stays_with_who_has_it(folder: Path) -> None:
    one, two = FileLock(folder / "lock"), FileLock(folder / "lock")
    assert one.take() is None
    os.link(folder / "lock", folder / "backup")
    assert (holder := two.take()) is not None and holder.pid == os.getpid()
    one.release()
    assert two.take() is None and (folder / "backup").stat().st_nlink == 1
    two.release(remove=True)


@pytest.mark.parametrize("kind", KINDS)
def test_an_autosave_replaces_links(folder: Path, ours: Path, kind: str) -> None:
    recovery = Recovery(folder, spacing=0)
    for path in (recovery.path, folder / f"{recovery.id}.lock", folder / f"{recovery.id}.new"):
        plant(kind, path, ours)
    recovery.write(Session(), None)
    assert recovery.path.is_file() and not recovery.path.is_symlink() and untouched(ours)
    recovery.remove()


def test_a_folder_of_a_run_is_none_that_a_link_leads_to(folder: Path, ours: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "model").symlink_to(ours.parent)
    for path in (folder / "run" / "model", folder / "run" / "model" / "checkpoints"):
        with pytest.raises(BadMachine, match="link is in the way"):
            made_folder(path, within=folder / "run")
    (folder / "named").symlink_to(folder / "run")
    made_folder(folder / "named" / "state", within=folder / "named")  # the person's own link
    assert (folder / "run" / "state").is_dir() and untouched(ours)


@pytest.mark.parametrize("name", ["state", "checkpoints", "model"])
def test_training_into_a_strangers_folder_stays_there(
    folder: Path, ours: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = folder / "run", folder / "text.txt"
    text.write_text("the grey heron stood in the shallow water\n" * 60 + "".join(map(chr, range(0xC0, 0x180))) * 9, "utf-8")
    out.mkdir()
    (out / name).symlink_to(ours.parent)
    assert main(["train", "tiny", "--text", str(text), "--out", str(out), "--no-measure"]) == 3
    assert "link is in the way" in capsys.readouterr().err and untouched(ours)


def test_what_lies_in_the_folder_of_a_run_is_replaced(folder: Path, ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, text = folder / "run", folder / "text.txt"
    text.write_text("the grey heron stood in the shallow water\n" * 60 + "".join(map(chr, range(0xC0, 0x180))) * 9, "utf-8")
    written = ["metrics.json", "progress.json", "state/tokenizer.json", "state/state.pt", "state/run.json", "model/card.md"]
    written += [
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
        "model/checkpoints/step-000008.safetensors",
    ]
    for name in written:
        for path in (out / name, out / f"{name}.new"):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.name not in ("run.json", "tokenizer.json") and not path.name.startswith("state.pt"):  # these are read first
                path.symlink_to(ours)
    assert main(["train", "tiny", "--text", str(text), "--out", str(out), "--no-measure"]) == 0, capsys.readouterr().err
    assert untouched(ours) and not [name for name in written if (out / name).is_symlink()]


@pytest.mark.parametrize("seed", range(60))
def test_a_session_among_planted_files_is_opened_saved_and_closed(tmp_path: Path, seed: int) -> None:
    path, said = beside_a_session(tmp_path, random.Random(seed))
    used(path)
    assert untouched(tmp_path / "home" / "profile"), said
