"""Alignment of two prompts: the partner position in the other prompt for each position of this one.

Prompts of equal length are aligned position by position. Otherwise the longest blocks of equal tokens are matched (Ratcliff and
Obershelp 1988, as in Python's `difflib`); a replaced block is aligned from its end, so that the last token of a name is paired
with the last token of the other name. Other positions have no partner: −1.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from circuitlab.analysis.base import read_only
from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of


@dataclass(frozen=True, eq=False)
class Alignment:
    """`align` int64 [pos]: each position's partner in the other prompt, −1 for none; `differs` bool [pos]: it is another token.

    `words` describes the alignment in a caption.
    """

    align: np.ndarray
    differs: np.ndarray
    words: str

    @property
    def whole(self) -> bool:
        """Whether both prompts have the same tokens at the same positions."""
        return self.first_difference == len(self.align)

    @property
    def first_difference(self) -> int:
        """The first position whose token or place differs in the other prompt; the prompt's length if none does."""
        other = self.differs | (self.align != np.arange(len(self.align)))
        return int(other.argmax()) if other.any() else len(self.align)


def alignment_of(tokens: tuple[int, ...], source: tuple[int, ...]) -> Alignment:
    """The alignment of this prompt's `tokens` with the other prompt's, `source`."""
    align = np.arange(len(tokens)) if len(tokens) == len(source) else _matched(tokens, source)
    partners = np.array(source)[np.maximum(align, 0)] if source else np.full(len(tokens), -1)
    differs = (align >= 0) & (partners != np.array(tokens))
    return Alignment(read_only(align), read_only(differs), _words(align, differs, len(source)))


def _matched(tokens: tuple[int, ...], source: tuple[int, ...]) -> np.ndarray:
    align = np.full(len(tokens), -1)
    for tag, i, i_end, j, j_end in SequenceMatcher(None, tokens, source, autojunk=False).get_opcodes():
        if tag in ("equal", "replace"):
            shared = min(i_end - i, j_end - j)
            align[i_end - shared : i_end] = np.arange(j_end - shared, j_end)
    return align


def _words(align: np.ndarray, differs: np.ndarray, n_other: int) -> str:
    n, alone = len(align), int((align < 0).sum())
    method = (
        "position by position"
        if n == n_other
        else f"by blocks of equal tokens ({number_of(n, 'token')} here, {n_other} in the other prompt)"
    )
    changed = number_of(int(differs.sum()), "token differs", "tokens differ")
    words = f"aligned {method}: {changed}" + (
        f", {number_of(alone, 'token here has', 'tokens here have')} no partner" if alone else ""
    )
    return words if n == n_other else Essential(words)
