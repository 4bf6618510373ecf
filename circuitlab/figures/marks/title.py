"""The title of a figure in parts: what the panel says, which side of a comparison it is of, what is cut, what is beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from circuitlab.caption_parts import in_line

BETWEEN = " · "  # parts of a title or a caption, where they are written in one line


def joined(*parts: str) -> str:
    """Parts of a title or a caption in one line; "" is none."""
    return in_line(parts, BETWEEN)


@dataclass(frozen=True)
class TitleParts:
    """`own`: the parts of the panel. Before them `side`, where it is of one side of a comparison; behind them `cut`, `beside`, as
    what it stands or what it is the same in, and `note`; "" is none.
    """

    own: tuple[str, ...] = ()
    side: str = ""
    cut: str = ""
    beside: str = ""
    note: str = ""
    whole: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", joined(self.side, *self.own, self.cut, self.beside, self.note))


class Title(str):
    """A title in one line, with its `parts`. What a panel writes in one line is its own; see `parts_of`."""

    parts: TitleParts

    def __new__(cls, parts: TitleParts | str) -> Title:
        given = parts if isinstance(parts, TitleParts) else TitleParts(tuple(filter(None, parts.split(BETWEEN))))
        title = super().__new__(cls, given.whole if isinstance(parts, TitleParts) else parts)
        title.parts = given
        return title

    def __reduce__(self) -> tuple[type[Title], tuple[TitleParts]]:
        return Title, (self.parts,)


def parts_of(title: str) -> TitleParts:
    """The parts of a title; of one that is no `Title`, the panel's own as `joined` wrote them."""
    return title.parts if isinstance(title, Title) else Title(title).parts


def with_parts(title: str, **parts: str) -> Title:
    """The title with these parts: `side`, `cut`, `beside`, `note`."""
    return Title(replace(parts_of(title), **parts))
