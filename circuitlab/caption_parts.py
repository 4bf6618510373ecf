"""Which parts of a caption stay in sight where there is no room for all of them."""

from __future__ import annotations


class Essential(str):
    """A part of a caption that a reader must not have to look for. Other parts are plain texts, which give way to an ellipsis.

    Essential are remainders, what is not yet or not wholly drawn, what is estimated, and how two texts are matched.
    """

    __slots__ = ()


def reworded(part: str, text: str) -> str:
    """`text` in place of a part, as essential as that was."""
    return Essential(text) if isinstance(part, Essential) else text
