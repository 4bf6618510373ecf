"""What may lie in a folder where a file belongs, and what may happen to a file."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path


def _put_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _put_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _put_link(file: Path, to: str) -> None:
    file.unlink()
    file.symlink_to(to)


def _put_link_out(file: Path) -> None:
    outside = file.parent.parent / f"outside-{file.parent.name}"
    outside.mkdir(exist_ok=True)
    shutil.move(file, outside / file.name)
    file.symlink_to(outside / file.name)


def _loop(file: Path) -> None:
    _put_link(file, "second")
    (file.parent / "second").symlink_to(file.name)


def instead(file: Path, rng: random.Random) -> str:
    kinds = {
        "nothing": lambda: file.unlink(),
        "a folder": lambda: _put_folder(file),
        "a pipe": lambda: _put_pipe(file),
        "endless zeros": lambda: _put_link(file, "/dev/zero"),
        "a terminal": lambda: _put_link(file, "/dev/tty"),
        "a link in a circle": lambda: _loop(file),
        "a link to nowhere": lambda: _put_link(file, "/nowhere/at/all"),
        "a link out of the folder": lambda: _put_link_out(file),
        "a file nobody may read": lambda: file.chmod(0),
        "a file with holes, 2 TiB": lambda: os.truncate(file, 2**41),
    }
    kind = rng.choice(sorted(kinds))
    kinds[kind]()
    return f"{kind} instead of {file.name}"


def beside(file: Path, rng: random.Random) -> str:
    """Something more in the folder."""
    names = [
        b"\xff\xfe.bin",
        b"extra.safetensors",
        b"config.json.bak",
        b"tokenizer.json",
        b"pytorch_model.bin",
        b"model.safetensors",
    ]
    name = rng.choice(names)
    target = os.path.join(os.fsencode(file.parent), name)
    if os.path.lexists(target):
        return f"{name!r} was there already"
    rng.choice(
        [os.mkdir, os.mkfifo, lambda p: os.symlink(os.fsencode(file), p), lambda p: Path(os.fsdecode(p)).write_bytes(b"{}")]
    )(target)
    return f"{name!r} beside {file.name}"


PLACES = (instead, instead, beside)
