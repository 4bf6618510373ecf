"""Which parts of a caption stay in sight where there is no room for all of them."""

from __future__ import annotations


class Essential(str):
    """A part of a caption that a reader must not have to look for. Other parts are plain texts, which give way to an ellipsis.

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


def reworded(part: str, text: str) -> str:
    """`text` in place of a part, as essential as that was."""
    return type(part)(text) if isinstance(part, Essential) else text
