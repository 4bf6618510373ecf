"""The formats of written files, numbers and pictures, each named once: writers, command line and dialogs read them here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SESSION = ".circuitlab"  # the suffix of session files


@dataclass(frozen=True)
class Format:
    """`name` is the suffix without its point; `kind` says in a file dialog what is in it, `kinds` in a zip of several.

    `text`: it can be printed.
    """

    name: str
    kind: str
    kinds: str = ""
    text: bool = True

    @property
    def suffix(self) -> str:
        """With its point."""
        return f".{self.name}"


# The first of each is what a dialog offers.
DATA = (Format("csv", "Table", "Tables"), Format("npz", "Arrays", text=False), Format("json", "JSON"))
FILMS = (Format("webp", "Film", text=False), Format("gif", "Animated GIF", text=False))
REPORTS = (Format("html", "Page"), Format("pdf", "PDF"))
PICTURES = (Format("pdf", "PDF"), Format("svg", "Vector picture"), Format("png", "Picture", text=False))


def is_session(path: Path) -> bool:
    """Whether a path is that of a session file, which need not exist; a folder with its suffix is a model's."""
    return path.suffix.lower() == SESSION and not os.path.isdir(path)


def is_picture(path: Path) -> bool:
    """Whether a path is that of a picture, which need not exist."""
    return path.suffix.lower() in suffixes(PICTURES) and not os.path.isdir(path)


def opens_as_session(path: Path) -> bool:
    """Whether a path is opened for what it shows: a session, or a picture with its view inside."""
    return is_session(path) or is_picture(path)


def suffixes(formats: tuple[Format, ...]) -> tuple[str, ...]:
    """`.csv`, `.npz`, …"""
    return tuple(one.suffix for one in formats)


def listed(formats: tuple[Format, ...], last: str = ", ") -> str:
    """ "CSV, NPZ, JSON"; `last` stands in front of the last one."""
    names = [one.name.upper() for one in formats]
    return last.join((", ".join(names[:-1]), names[-1]))


def dialog_filter(formats: tuple[Format, ...], zipped: bool = False) -> str:
    """What a file dialog lets choose from: "Table (*.csv);;…", or zips of several files each."""
    more = ".zip" if zipped else ""
    return ";;".join(f"{(zipped and one.kinds) or one.kind} (*{one.suffix}{more})" for one in formats)
