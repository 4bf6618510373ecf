"""Points of a training by what they are, so that a number in a text is of the same moment in every model's training.

    first           the first point that was measured
    checkpoint      the one that the step shows, of the final weights the last
    begin, end      the first and the last point of the phase change on repeated random tokens; middle: halfway in tokens seen
    begin-1000      the point nearest to so many training steps before or after one of these

Of a result over one or several trainings the points of the first one are meant.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from circuitlab.counting import number_of
from circuitlab.errors import BadInput

_POINT = re.compile(r"(first|checkpoint|begin|middle|end)(?:\s*([+-])\s*(\d{1,9}))?")


def point_of(word: str, result: Any, checkpoint: int | None) -> int | None:
    """The index of a point, by the word for it; None if the word is none of these, or the result not one over trainings.

    `checkpoint`: the index of the checkpoint that is shown, None for the final weights. Raises `BadInput` for a phase change that
    the training does not have, and for a checkpoint that was not measured.
    """
    match = _POINT.fullmatch(word)
    if match is None or not all(hasattr(result, name) for name in ("model", "steps", "tokens", "checkpoint", "phase")):
        return None
    own = np.flatnonzero(result.model == 0)
    if match[1] == "first":
        point = int(own[0])
    elif match[1] == "checkpoint":
        at = own[-1:] if checkpoint is None else own[result.checkpoint[own] == checkpoint]
        if not at.size:
            raise _missing(word, f"one of {number_of(len(own), 'measured point')}", f"checkpoint {checkpoint}")
        point = int(at[0])
    else:
        begin, end = result.phase[0, 0]
        if not np.isfinite(begin + end):
            raise _missing(word, "a training with a phase change on repeated random tokens", "none")
        tokens = {"begin": begin, "middle": (begin + end) / 2, "end": end}[match[1]]
        point = int(own[np.abs(result.tokens[own] - tokens).argmin()])
    if match[2] is None:
        return point
    step = result.steps[point] + int(match[2] + match[3])
    return int(own[np.abs(result.steps[own] - step).argmin()])


def _missing(word: str, expected: str, got: str) -> BadInput:
    return BadInput(
        f"The training has no point {word}.", expected=expected, got=got, remedy="Read another point, or one by its number."
    )
