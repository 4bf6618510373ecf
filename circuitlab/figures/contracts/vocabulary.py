"""Which of another model's tokens one's own are: by id where the vocabularies are equal, else by text where that is exact.

The same id means another text in another vocabulary, the same text may be cut into other tokens. So what names tokens and
positions is carried over to a reference of another vocabulary by what is written there, and refused in words where nothing is.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from circuitlab.analysis.base import read_only
from circuitlab.analysis.interventions.alignment import Alignment, alignment_of
from circuitlab.counting import number_of
from circuitlab.figures.contracts.facts import Facts
from circuitlab.model.subject import Target
from circuitlab.session.state import Pin, State

_by_id = lru_cache(maxsize=16)(alignment_of)


def one_vocabulary(state: State, pin: Pin, here: Facts, there: Facts) -> bool:
    """Whether an id means the same text in both models; checkpoints of one training need not be looked at."""
    same = here is there or state.model.source == pin.subject.model.source
    return same or here.vocabulary() == there.vocabulary()


def aligned(state: State, pin: Pin, here: Facts, there: Facts) -> Alignment:
    """Which position of the pinned prompt belongs to each of ours."""
    if one_vocabulary(state, pin, here, there):
        return _by_id(state.tokens, pin.subject.tokens)
    return _by_text(here.tokens(state.tokens), there.tokens(pin.subject.tokens))


@lru_cache(maxsize=16)
def _by_text(here: tuple[str, ...], there: tuple[str, ...]) -> Alignment:
    """Of equal texts the tokens that cover the same characters; of others the tokens that are spelled alike, in equal blocks."""
    align = _of_one_text(here, there)
    if align is None:
        number = {text: i for i, text in enumerate(dict.fromkeys((*here, *there)))}
        alignment = alignment_of(tuple(number[t] for t in here), tuple(number[t] for t in there))
        align = np.where(alignment.differs, -1, alignment.align)
    matched = int((align >= 0).sum())
    words = f"another vocabulary: {matched} of {number_of(len(here), 'token')} here stand for the same text there"
    return Alignment(read_only(align), np.zeros(len(here), dtype=bool), words)


def _of_one_text(here: tuple[str, ...], there: tuple[str, ...]) -> np.ndarray | None:
    """By the characters that tokens cover, beginnings of sequence aside; None where the texts are not equal."""
    for a, b in ((0, 0), (1, 1), (1, 0), (0, 1)):
        if "".join(here[a:]) == "".join(there[b:]):
            place = {span: i + b for i, span in enumerate(_spans(there[b:]))}
            places = [place.get(span, -1) for span in _spans(here[a:])]
            return np.array([*([0] if a and b else [-1] * a), *places], dtype=np.int64)
    return None


def _spans(texts: tuple[str, ...]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(t) for t in texts]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def aligned_with_reference(state: State, here: Facts) -> Alignment:
    """Which position of the reference's prompt belongs to each of ours; of a model that is not open, by ids."""
    pin = state.reference
    assert pin is not None
    return aligned(state, pin, here, here.others(pin.subject.model) or here)


def pinned_state(state: State, pin: Pin, here: Facts, there: Facts) -> State | str:
    """`state.at(pin)`, its tokens and positions carried over; or why one of them has no counterpart there."""
    selection, alike = state.selection, one_vocabulary(state, pin, here, there)
    if alike and pin.subject.tokens == state.tokens:
        return state.at(pin)
    align = aligned(state, pin, here, there).align
    for name in ("destination", "source"):
        at = getattr(selection, name)
        if at is not None and at < len(align) and align[at] < 0:
            return f"no token there stands for ‘{here.token_text(state.tokens[at])}’ at {at}"
    place = lambda at: None if at is None or at >= len(align) else int(align[at])
    ref_state = state.at(pin).select(destination=place(selection.destination), source=place(selection.source))
    if alike:
        return ref_state
    texts = {i: here.token_text(i) for i in (*selection.target.tokens, *(() if selection.token is None else (selection.token,)))}
    counterparts = {i: there.token_of(text) for i, text in texts.items()}
    if missing := [texts[i] for i, other in counterparts.items() if other is None]:
        return f"no token of its vocabulary is ‘{missing[0]}’"
    return ref_state.select(
        token=None if selection.token is None else counterparts[selection.token],
        target=Target(tuple(counterparts[i] for i in selection.target.tokens), selection.target.direction),  # type: ignore[misc]
    )


def pinned(state: State, here: Facts) -> State | str:
    """The state as its reference has it; or why nothing there is what is asked about here."""
    pin = state.reference
    assert pin is not None
    there = here if pin.subject.model == state.model else here.others(pin.subject.model)
    return state.at(pin) if there is None else pinned_state(state, pin, here, there)


def foreign(state: State, here: Facts) -> bool:
    """Whether the reference is a prompt of another vocabulary, whose ids mean other texts here."""
    pin = state.reference
    there = None if pin is None else here.others(pin.subject.model)
    return pin is not None and there is not None and not one_vocabulary(state, pin, here, there)
