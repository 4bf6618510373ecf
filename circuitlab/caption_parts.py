"""The parts of a caption: what each is about where that decides who says it, and which stay in sight where there is no room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self


class About(Enum):
    """What a part is about, where a figure, a title or a comparison asks for that. Values stand in files."""

    READING = "reading"  # precision, folding and centring, which a window says once for all of its panels
    EXACT = "exact"  # nothing was left out or assumed
    SAMPLE = "sample"  # how many were drawn, and how
    CHANCE = "chance"  # what a quantity is by chance
    NOT_COMPUTED = "not computed"  # why a quantity has no value
    IN_CONTEXT = "in-context score"  # its definition
    SLOPE = "slope"  # how the slope of a loss by index is taken
    PHASE_CHANGE = "phase change"  # its rule
    MEAN = "mean"  # what values are the mean of
    SPREAD = "spread"  # what is said of their deviations from it
    REMAINDER = "remainder"  # what a decomposition leaves
    PROGRESS = "progress"  # what of an answer is there so far


@dataclass(frozen=True)
class Sense:
    """What a part means beyond its words.

    `quantities`: the names of those that it is about, () where it is about all; `brief`: as a title says it; `of_differences`:
    what of it holds for differences of the values that it is about, None for all of it; `begins`: whose it is, as its words
    begin, which a line says once for parts that stand together.
    """

    about: About | None = None
    quantities: tuple[str, ...] = ()
    brief: str = ""
    of_differences: str | None = None
    begins: str = ""


NO_SENSE = Sense()


class Part(str):
    """A part of a caption with its `sense`. Two are equal where their words are; a plain text is a part without sense."""

    __slots__ = ("sense",)
    sense: Sense

    def __new__(cls, text: str = "", sense: Sense = NO_SENSE) -> Self:
        part = super().__new__(cls, text)
        part.sense = sense
        return part

    def __reduce__(self) -> tuple[type[Part], tuple[str, Sense]]:
        return type(self), (str(self), self.sense)


class Essential(Part):
    """A part of a caption that a reader must not have to look for. Other parts are texts that give way to an ellipsis.

    Essential are remainders, interventions, what a difference is to, the scale of colours that have no bar, what is not yet or
    not wholly drawn, what is estimated, how two texts are matched, and which token the text below a map is read from. On a stage
    the longest of many go before the picture is a speck.
    """

    __slots__ = ()


class Intervened(Essential):
    """An intervention under which the numbers are. In a sheet it stands before all else, with the letters of its parts."""

    __slots__ = ()


class Reference(Essential):
    """What the reference is that numbers are compared with."""

    __slots__ = ()


class OnPaper(Essential):
    """A part that only paper needs, where nobody can point at what it explains."""

    __slots__ = ()


def sampled(text: str) -> Part:
    """A part that says how many were drawn, and how."""
    return Part(text, Sense(About.SAMPLE))


def sense_of(part: str) -> Sense:
    """What a part means beyond its words; a plain text nothing."""
    return part.sense if isinstance(part, Part) else NO_SENSE


def about_of(part: str) -> About | None:
    """What a part is about; None for a plain text."""
    return sense_of(part).about


def reworded(part: str, text: str) -> str:
    """`text` in place of a part, as essential as that was and in its sense."""
    return type(part)(text, part.sense) if isinstance(part, Part) else text


def essential(part: str) -> Essential:
    """The part, which must not be looked for, in its sense."""
    return part if isinstance(part, Essential) else Essential(part, sense_of(part))


def whose(said: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Each part of several captions once, in the order in which they are said, with the names of those that say it; () for all.

    `said`: the parts of each caption by its name.
    """
    names: dict[str, dict[str, None]] = {}
    for name, parts in said.items():
        for part in parts:
            names.setdefault(part, {})[name] = None
    return {part: () if len(of) == len(said) else tuple(of) for part, of in names.items()}


def of_each(said: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """One caption of several, by name: what all say, and in its place, behind names, what only these say.

    What is about these quantities, as its sense says, has their names in its own words. What the same ones say stands together.
    """
    parts = whose(said)
    own = lambda part, names: set(names) <= set(sense_of(part).quantities)
    places: dict[tuple[str, ...], int] = {}
    for i, names in enumerate(parts.values()):
        places.setdefault(names, i)
    together = sorted(enumerate(parts.items()), key=lambda one: places[one[1][1]] if one[1][1] else one[0])
    return tuple(_begun(part, f"{', '.join(names)}: ", own(part, names)) for _, (part, names) in together)


def _begun(part: str, begins: str, own: bool) -> str:
    """A part behind the names of whose it is; as it is where its `own` words have them."""
    if own and not (begins and part.startswith(begins)):
        return part
    kind = type(part) if isinstance(part, Part) else Part
    return kind(part if own else f"{begins}{part}", replace(sense_of(part), begins=begins))


def in_line(parts: Iterable[str], between: str) -> str:
    """Parts in one line, what they begin with once where it is the same; "" is none."""
    line, last = "", ""
    for part in filter(None, parts):
        begins = sense_of(part).begins
        if begins and begins == last and part.startswith(begins):
            line += f"; {part[len(begins) :]}"
        else:
            line += f"{between}{part}" if line else part
        last = begins
    return line


def of_difference(part: str) -> str:
    """What of a part of both sides holds for their difference; "" for nothing."""
    stays = sense_of(part).of_differences
    return part if stays is None else reworded(part, stays)
