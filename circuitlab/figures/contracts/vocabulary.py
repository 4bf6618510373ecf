"""Which tokens of the reference's model correspond to ours: by id in the same vocabulary, else by text where that is exact.

In another vocabulary the same id means another text, and the same text may be split into other tokens. Tokens and positions of
a State are therefore carried over to such a reference by their texts, or refused with the reason.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from circuitlab.analysis.base import read_only
from circuitlab.analysis.interventions.alignment import Alignment, alignment_of
from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.figures.contracts.facts import Facts
from circuitlab.model.subject import Target
from circuitlab.state.state import Pin, State

_by_id = lru_cache(maxsize=16)(alignment_of)


def one_vocabulary(state: State, pin: Pin, facts: Facts, ref_facts: Facts) -> bool:
    """Whether an id means the same text in both models; checkpoints of one training share a vocabulary."""
    same = facts is ref_facts or state.model.source == pin.subject.model.source
    return same or facts.vocabulary() == ref_facts.vocabulary()


def aligned(state: State, pin: Pin, facts: Facts, ref_facts: Facts) -> Alignment:
    """Which position of the pinned prompt corresponds to each of ours."""
    if one_vocabulary(state, pin, facts, ref_facts):
        return _by_id(state.tokens, pin.subject.tokens)
    return _by_text(facts.tokens(state.tokens), ref_facts.tokens(pin.subject.tokens))


@lru_cache(maxsize=16)
def _by_text(texts: tuple[str, ...], ref_texts: tuple[str, ...]) -> Alignment:
    """In equal texts the tokens that cover the same characters; in others tokens of the same text, in equal blocks."""
    align = _of_one_text(texts, ref_texts)
    if align is None:
        text_ids = {text: i for i, text in enumerate(dict.fromkeys((*texts, *ref_texts)))}
        alignment = alignment_of(tuple(text_ids[t] for t in texts), tuple(text_ids[t] for t in ref_texts))
        align = np.where(alignment.differs, -1, alignment.align)
    matched = int((align >= 0).sum())
    words = Essential(f"another vocabulary: {matched} of {number_of(len(texts), 'token')} have a counterpart of the same text")
    return Alignment(read_only(align), np.zeros(len(texts), dtype=bool), words)


def _of_one_text(texts: tuple[str, ...], ref_texts: tuple[str, ...]) -> np.ndarray | None:
    """By the characters that tokens cover, BOS aside; None where the texts are not equal."""
    for bos, ref_bos in ((0, 0), (1, 1), (1, 0), (0, 1)):
        if "".join(texts[bos:]) == "".join(ref_texts[ref_bos:]):
            by_span = {span: i + ref_bos for i, span in enumerate(_spans(ref_texts[ref_bos:]))}
            positions = [by_span.get(span, -1) for span in _spans(texts[bos:])]
            return np.array([*([0] if bos and ref_bos else [-1] * bos), *positions], dtype=np.int64)
    return None


def _spans(texts: tuple[str, ...]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(t) for t in texts]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def aligned_with_reference(state: State, facts: Facts) -> Alignment:
    """Which position of the reference's prompt corresponds to each of ours; by ids where its model is not open."""
    pin = state.reference
    assert pin is not None
    return aligned(state, pin, facts, facts.others(pin.subject.model) or facts)


def pinned_state(state: State, pin: Pin, facts: Facts, ref_facts: Facts) -> State | str:
    """`state.at(pin)` with its tokens and positions carried over; or why one of them has no counterpart in the reference."""
    selection, same_ids = state.selection, one_vocabulary(state, pin, facts, ref_facts)
    if same_ids and pin.subject.tokens == state.tokens:
        return state.at(pin)
    align = aligned(state, pin, facts, ref_facts).align
    for name in ("destination", "source"):
        at = getattr(selection, name)
        if at is not None and at < len(align) and align[at] < 0:
            return f"its prompt has no counterpart of ‘{facts.token_text(state.tokens[at])}’ at {at}"
    carried = lambda at: None if at is None or at >= len(align) else int(align[at])
    ref_state = state.at(pin).select(destination=carried(selection.destination), source=carried(selection.source))
    if same_ids:
        return ref_state
    texts = {i: facts.token_text(i) for i in (*selection.target.tokens, *(() if selection.token is None else (selection.token,)))}
    counterparts = {i: ref_facts.token_of(text) for i, text in texts.items()}
    if missing := [texts[i] for i, other in counterparts.items() if other is None]:
        return f"no token of its vocabulary is ‘{missing[0]}’"
    return ref_state.select(
        token=None if selection.token is None else counterparts[selection.token],
        target=Target(tuple(counterparts[i] for i in selection.target.tokens), selection.target.direction),  # type: ignore[misc]
    )


def pinned(state: State, facts: Facts) -> State | str:
    """The state as its reference has it; or why the reference has no counterpart of what is selected."""
    pin = state.reference
    assert pin is not None
    ref_facts = facts if pin.subject.model == state.model else facts.others(pin.subject.model)
    return state.at(pin) if ref_facts is None else pinned_state(state, pin, facts, ref_facts)


def foreign(state: State, facts: Facts) -> bool:
    """Whether the reference's prompt is in another vocabulary, whose ids mean other texts in the open model."""
    pin = state.reference
    ref_facts = None if pin is None else facts.others(pin.subject.model)
    return pin is not None and ref_facts is not None and not one_vocabulary(state, pin, facts, ref_facts)
