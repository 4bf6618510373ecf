"""Parts of captions in stored answers of format 1, which were texts alone: what each meant, where a figure asks for that."""

from __future__ import annotations

import re

from circuitlab.analysis.behaviour.over_prompts import SPREAD
from circuitlab.analysis.checks.theory_and_measurement import MEASURED, PREDICTED
from circuitlab.analysis.circuits.own_tokens import OWN
from circuitlab.caption_parts import About, Essential, Part, Sense
from circuitlab.model.subject import CENTRED

_OF = r"(?:[^:]++: )?"  # the model that it is of, where a series has several
_ABOUT = tuple(
    (re.compile(pattern), about)
    for pattern, about in (
        (_OF + r"in-context score on text: tokens \d", About.IN_CONTEXT),
        (r"on repeated sequences: second repetition without its first token", About.IN_CONTEXT),
        (r"slope by ln index: least squares", About.SLOPE),
        (r"chance \S{1,9}: logits that have nothing to do with attention", About.CHANCE),
        (r"mean of (?:\d{1,9} of )?[\d,]{1,12} prompts? of ", About.MEAN),
        (re.escape(SPREAD) + "$", About.SPREAD),
        (r"phase change: the steepest fall of the score", About.PHASE_CHANGE),
    )
)
_READING = {*CENTRED.values(), "norm folded", "norm not folded", "float32", "float64"}
_DRAWN, _SEED = re.compile(r"\bsamples?\b|\bpieces?\b|random tokens"), re.compile(r"\bseed \d")
_RANDOM = re.compile(_OF + r"(\d{1,9} × \d{1,9}) random tokens( × 2), seed \d{1,12}")
_NOT_COMPUTED, _QUANTITIES = "not computed: ", (*PREDICTED, *MEASURED)
_OWN, _CIRCUIT = re.compile(rf"{OWN} of (.*+)"), re.compile(r"(OV|QK): rows minus their means over ")
_OF_DIFFERENCES = ((re.compile(r"pattern: rows sum to 1"), "pattern"), (re.compile(r"rows sum to .*+"), ""))


def with_sense(part: str) -> str:
    """A part of a caption as format 1 has it, with what it means; the same object where no figure asks for that."""
    sense = _sense(part)
    return part if sense is None else Essential(part, sense) if isinstance(part, Essential) else Part(part, sense)


def _is_of_sample(part: str) -> bool:
    drawn = _DRAWN.search(part)
    return drawn is not None and not part.startswith("control") and _SEED.search(part, drawn.end()) is not None


def _sense(part: str) -> Sense | None:
    stays = next((stays for pattern, stays in _OF_DIFFERENCES if pattern.fullmatch(part)), None)
    if stays is not None:
        return Sense(of_differences=stays)
    if result := _RANDOM.fullmatch(part):
        return Sense(About.SAMPLE, brief=result[1] + result[2])
    if part.startswith((_NOT_COMPUTED, *_QUANTITIES)):
        about = About.NOT_COMPUTED if part.startswith(_NOT_COMPUTED) else About.SAMPLE if _is_of_sample(part) else None
        return Sense(about, tuple(name for name in _QUANTITIES if name in part))
    if result := _OWN.fullmatch(part):
        return Sense(quantities=(OWN,), brief=result[1])
    if result := _CIRCUIT.match(part):
        return Sense(quantities=(result[1],))
    if part in _READING:
        return Sense(About.READING)
    if part == "exact":
        return Sense(About.EXACT)
    if _is_of_sample(part):
        return Sense(About.SAMPLE)
    about = next((about for pattern, about in _ABOUT if pattern.match(part)), None)
    return None if about is None else Sense(about)
