"""Links and devices beside what is opened and saved: what is theirs must be as it was."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

OURS = b"export PATH\n"


def _socket(path: Path, to: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(".bound")
        os.rename(".bound", path.name)
    finally:
        os.chdir(here)


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, to: path.symlink_to(os.path.relpath(to, path.parent)),
    "second name": lambda path, to: os.link(to, path),
    "link to nothing": lambda path, to: path.symlink_to(to.parent / "new"),
    "circle": lambda path, to: path.symlink_to(path.name),
    "device": lambda path, to: path.symlink_to("/dev/full"),
    "zeros": lambda path, to: path.symlink_to("/dev/zero"),
    "pipe": lambda path, to: os.mkfifo(path),
    "socket": _socket,
    "link to a folder": lambda path, to: path.symlink_to(to.parent),
}


def plant(kind: str, path: Path, to: Path) -> None:
    """Put something in the place of a file: most kinds lead to `to`, which is the person's own."""
    path.unlink(missing_ok=True)
    PLANTS[kind](path, to)


def ours_in(folder: Path) -> Path:
    """A file of the person's own in a folder of its own."""
    path = folder / "home" / "profile"
    path.parent.mkdir(parents=True)
    path.write_bytes(OURS)
    return path


def untouched(ours: Path) -> bool:
    """Whether it is as it was, and nothing beside it."""
    return ours.read_bytes() == OURS and sorted(p.name for p in ours.parent.iterdir()) == [ours.name]


def beside_a_session(folder: Path, rng: random.Random) -> tuple[Path, list[str]]:
    """(a session with something at each name that the program makes of its own, what stands there)."""
    from circuitlab.session_files.session import Session
    from circuitlab.session_files.session_text import bytes_of

    ours = ours_in(folder)
    path = folder / "packed" / rng.choice(["talk.circuitlab", "a b.circuitlab", "ä.circuitlab", f"{'n' * 200}.circuitlab"])
    path.parent.mkdir()
    path.write_bytes(bytes_of(Session(unknown={"n": rng.randrange(10)}), path.parent))
    said = []
    for name in (f"{path.name}~", f".{path.name}.lock", ".0123456789ab.new", f"{path.name}.new", f"{path.name}~.new"):
        if rng.random() < 0.7:
            kind = rng.choice(sorted(PLANTS))
            plant(kind, path.with_name(name), ours)
            said.append(f"{kind} at {name}")
    return path, said


def use_and_look(path: str) -> None:
    """`used`, and a look at what is the person's own."""
    used(Path(path))
    assert untouched(Path(path).parent.parent / "home" / "profile")


def used(path: Path) -> None:
    """Opened, changed, saved twice and closed, as a window does."""
    from circuitlab.gui.sessions.file_hold import FileHold
    from circuitlab.gui.sessions.file_work import previous_path, save_file
    from circuitlab.session_files.results import SessionFile, read_file
    from circuitlab.session_files.session import Session

    hold = FileHold()
    assert hold.other(path) is None and hold.take(path) is None
    read_file(path)
    for n in (20, 21):
        save_file(SessionFile(Session(unknown={"n": n})), path)
    assert not previous_path(path).is_symlink() and read_file(path).session.unknown == {"n": 21}
    assert read_file(previous_path(path)).session.unknown == {"n": 20}
    hold.release()
