"""A film, and how it is set on a slide: size, frames a second, theme. Values that no film could have are refused. No Qt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from circuitlab.counting import number_of
from circuitlab.disk.formats import FILMS, suffixes
from circuitlab.errors import UsageError
from circuitlab.figures.marks import Figure
from circuitlab.story.zoom import Part

if TYPE_CHECKING:
    from circuitlab.draw.look.theme import Theme

Ground = Literal["light", "dark"]
LEAST_SIDE, MOST_SIDE = 240, 7680  # px
LEAST_FPS, MOST_FPS = 0.2, 30.0
MOST_PIXELS = 400_000_000  # of all frames: 430 frames of 1280 × 720
END = 1.5  # s for which the last frame stays, before a film that loops begins anew


@dataclass(frozen=True)
class Slide:
    """A film on a slide. Raises `UsageError` for what is no size, no speed or no theme.

    `width`, `height` in px; text grows with the height. `fps`: frames a second, each of which is one checkpoint. `theme`: of the
    ground. `loop`: it begins anew behind its end.
    """

    width: int = 1280
    height: int = 720
    fps: float = 4.0
    theme: Ground = "light"
    loop: bool = True

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            side = getattr(self, name)
            if not isinstance(side, int) or isinstance(side, bool) or not LEAST_SIDE <= side <= MOST_SIDE:
                raise _refused(name, f"{LEAST_SIDE} to {MOST_SIDE:,} px", side)
        fps = self.fps
        if (
            not isinstance(fps, (int, float))
            or isinstance(fps, bool)
            or not math.isfinite(fps)
            or not LEAST_FPS <= fps <= MOST_FPS
        ):
            raise _refused("speed", f"{LEAST_FPS:g} to {MOST_FPS:g} frames a second", fps)
        if self.theme not in get_args(Ground):
            raise _refused("theme", " ".join(get_args(Ground)), self.theme)

    @property
    def look(self) -> Theme:
        """The theme, its text as large as a slide of this height asks for; captions say all that there is room for."""
        from circuitlab.draw.look.stage_theme import stage_theme

        return replace(stage_theme(self.height, self.theme == "dark"), words="full")

    def durations(self, frames: int) -> list[int]:
        """How long each frame stays, in ms."""
        each = round(1000 / self.fps)
        return [each] * (frames - 1) + [max(each, round(1000 * END))]

    def check(self, frames: int) -> None:
        """Raises `UsageError` where so many frames would not fit into memory."""
        if frames * self.width * self.height > MOST_PIXELS:
            raise UsageError(
                "The film would have too many dots.",
                expected=f"at most {MOST_PIXELS // (self.width * self.height)} frames of {self.width} × {self.height}",
                got=f"{frames:,}",
                remedy="Take a smaller size, or a shorter part of the training.",
            )


@dataclass(frozen=True)
class Frame:
    """One frame: the figure of each panel, and in a few words where it stands: “step 4,000”."""

    figures: tuple[Figure, ...]
    words: str


@dataclass(frozen=True)
class Film:
    """`frames` in their order, all of the same panels. `title` stands above. `seen`: of each panel the visible parts of its
    marks, by name; () for whole figures.
    """

    frames: tuple[Frame, ...]
    title: str = ""
    seen: tuple[Mapping[str, Part], ...] = field(default=())

    @property
    def about(self) -> str:
        """What it shows, in words: model and prompt, its panels with their captions at the first and at the last frame."""
        first, last = self.frames[0], self.frames[-1]
        lines = [f"{number_of(len(self.frames), 'frame')}, {first.words} to {last.words}"]
        for frame in dict.fromkeys((first, last)):
            lines += [f"{frame.words}: {' · '.join((f.title, *f.about, *f.caption_parts))}" for f in frame.figures]
        return "\n".join(lines)


def size_of(text: str) -> tuple[int, int]:
    """`"1280x720"` -> (1280, 720). Raises `UsageError`."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise _refused("size", "WIDTHxHEIGHT such as 1280x720", text)
    return int(parts[0]), int(parts[1])


def film_format(path: Path) -> str:
    """The suffix of a file that a film can be written to. Raises `UsageError` for another."""
    suffix = path.suffix.lower()
    if suffix not in suffixes(FILMS):
        raise UsageError(
            "A film cannot be written in this format.",
            expected=" ".join(suffixes(FILMS)),
            got=path.suffix or "no suffix",
            remedy="Give the file one of these endings.",
        )
    return suffix


def _refused(what: str, expected: str, got: object) -> UsageError:
    return UsageError(
        f"A film cannot have this {what}.", expected=expected, got=str(got)[:80], remedy="Change it to such a value."
    )
