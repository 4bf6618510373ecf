"""Parts of captions in stored answers of format 1, which were texts alone: what each meant, where a figure asks for that."""

from __future__ import annotations

import re

from circuitlab.caption_parts import About, Essential, Part, Sense

_OF = r"(?:[^:]+: )?"  # the model that it is of, where a series has several
_ABOUT = tuple(
    (re.compile(pattern), about)
    for pattern, about in (
        (_OF + r"in-context score on text: tokens \d", About.IN_CONTEXT),
        (r"on repeated sequences: second repetition without its first token", About.IN_CONTEXT),
        (r"slope by ln index: least squares", About.SLOPE),
        (r"phase change: the steepest fall of the score", About.PHASE_CHANGE),
    )
)
_RANDOM = re.compile(_OF + r"(\d+ × \d+) random tokens( × 2), seed \d+")
_OF_DIFFERENCES = ((re.compile(r"pattern: rows sum to 1"), "pattern"), (re.compile(r"rows sum to .*"), ""))


def with_sense(part: str) -> str:
    """A part of a caption as format 1 has it, with what it means; the same object where no figure asks for that."""
    sense = _sense(part)
    return part if sense is None else Essential(part, sense) if isinstance(part, Essential) else Part(part, sense)


def _sense(part: str) -> Sense | None:
    stays = next((stays for pattern, stays in _OF_DIFFERENCES if pattern.fullmatch(part)), None)
    if stays is not None:
        return Sense(of_differences=stays)
    if found := _RANDOM.fullmatch(part):
        return Sense(About.SAMPLE, brief=found[1] + found[2])
    about = next((about for pattern, about in _ABOUT if pattern.match(part)), None)
    return None if about is None else Sense(about)
