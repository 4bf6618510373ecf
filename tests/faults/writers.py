"""The writers that are walked: what lies there before, what is written, and how what is there afterwards reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from circuitlab.disk.file_lock import FileLock
from circuitlab.disk.files import linked, moved, write_together, write_whole
from circuitlab.gui.sessions.file_work import previous_path, save_file
from circuitlab.session_files.last import keep_last, last, last_path
from circuitlab.session_files.orphans import orphans
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.recovery_files import lock_path
from circuitlab.session_files.results import SessionFile, read_file
from circuitlab.session_files.session import Session
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.training.state import read_state, write_state

OLD, NEW = b"old " * 3000, b"new, " * 3000  # longer than a buffer


@dataclass(frozen=True)
class Writer:
    """`before(folder)` makes what is there; `write(folder)` writes; `found(folder)` says what is there now: "old", "new", "both"
    where both are kept, or what is wrong. `modules`: those of the package whose ways of writing it goes."""

    name: str
    before: Callable[[Path], object]
    write: Callable[[Path], object]
    found: Callable[[Path], str]
    modules: tuple[str, ...] = ("disk/files.py",)


def _session(steps: int) -> Session:
    return Session(now=Setup(heads=("L0H1",)), story=Story("", tuple(Step(f"step {i}", "x" * 9000) for i in range(steps))))


def _read(path: Path) -> str:
    data = path.read_bytes() if path.exists() else b""
    return "old" if data == OLD else "new" if data == NEW else f"half: {len(data)} bytes"


def _previous(folder: Path) -> str:
    """The file, of which the one before is kept: whatever is there is whole."""
    kept = folder / "a~"
    return _read(folder / "a") if not kept.exists() or kept.read_bytes() in (OLD, NEW) else "half of the previous one"


def _together(folder: Path) -> str:
    """The first is new only where all are."""
    first, second = _read(folder / "a"), _read(folder / "b")
    return first if second in (first, "new") else f"{first}, beside which {second}"


def _saved(folder: Path) -> str:
    path = folder / "a.circuitlab"
    kept = previous_path(path)
    steps = len(read_file(path).session.story.steps)
    if kept.exists() and len(read_file(kept).session.story.steps) != 1:
        return "half of the previous one"
    return {1: "old", 2: "new"}.get(steps, f"{steps} steps")


def _autosaved(folder: Path) -> str:
    found = orphans(folder)
    if found.damaged or len(found.orphans) != 1:
        return f"{len(found.damaged)} damaged, {len(found.orphans)} sessions"
    return {1: "old", 2: "new"}[len(found.orphans[0].read().story.steps)]


def _window(folder: Path) -> Recovery:
    """The one whose recovery file it is, each time."""
    window = Recovery(folder, spacing=0)
    window.id = "0" * 32
    window._lock = FileLock(lock_path(folder, window.id))
    return window


def _autosave(folder: Path) -> None:
    window = _window(folder)
    try:
        window.write(_session(2), None)
    finally:
        window.leave()


def _autosave_before(folder: Path) -> None:
    window = _window(folder)
    window.write(_session(1), None)
    window.leave()


def _kept(folder: Path) -> str:
    """Both sessions were never saved: the older one may only move over to the recovery files."""
    left = last()
    steps = {len(left.session.story.steps)} if left is not None else set[int]()
    recovered = {len(one.read().story.steps) for one in orphans().orphans}
    if 1 not in steps | recovered:
        return "the other window's session is gone"
    return "new" if 2 in steps else "old"


def _clear_kept(folder: Path) -> None:
    shutil.rmtree(last_path().parent, ignore_errors=True)
    keep_last(_session(1), None, True)


def _run(step: int) -> dict[str, object]:
    return {"tensors": {"w": torch.ones(3000)}, "step": step, "seconds": 1.0, "tokens": 9, "history": {}}


def _state(folder: Path) -> str:
    saved, _ = read_state(folder)
    return "none" if saved is None else {1: "old", 2: "new"}[saved["step"]]


WRITERS = (
    Writer("a file", lambda f: write_whole(f / "a", OLD), lambda f: write_whole(f / "a", NEW), lambda f: _read(f / "a")),
    Writer(
        "a file and the one before", lambda f: write_whole(f / "a", OLD), lambda f: write_whole(f / "a", NEW, f / "a~"), _previous
    ),
    Writer(
        "a file of a run",
        lambda f: write_whole(f / "a", OLD),
        lambda f: write_whole(f / "a", NEW, f / "a~", fresh=f / "a.new"),
        _previous,
        ("disk/files.py", "training/files.py"),
    ),
    Writer(
        "files together",
        lambda f: write_together({f / "a": OLD, f / "b": OLD}),
        lambda f: write_together({f / "a": NEW, f / "b": NEW}),
        _together,
    ),
    Writer(
        "a second name",
        lambda f: write_together({f / "a": OLD, f / "b": NEW}),
        lambda f: linked(f / "b", f / "a", f / "a.new"),
        lambda f: _read(f / "a"),
    ),
    Writer(
        "another name",
        lambda f: write_together({f / "a": OLD, f / "b": NEW}),
        lambda f: moved(f / "b", f / "a"),
        lambda f: _read(f / "a"),
    ),
    Writer(
        "a session",
        lambda f: save_file(SessionFile(_session(1)), f / "a.circuitlab"),
        lambda f: save_file(SessionFile(_session(2)), f / "a.circuitlab"),
        _saved,
        ("gui/sessions/file_work.py",),
    ),
    Writer("an autosave", _autosave_before, _autosave, _autosaved, ("session_files/recovery.py", "disk/file_lock.py")),
    Writer("the last session", _clear_kept, lambda f: keep_last(_session(2), None, True), _kept, ("session_files/last.py",)),
    Writer(
        "a run's state",
        lambda f: write_state(f, _run(1)),
        lambda f: write_state(f, _run(2)),
        _state,
        ("training/state.py",),
    ),
)
