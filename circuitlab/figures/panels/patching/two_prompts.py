"""What both pages of Patching share: the two prompts above the effects, their scale, and the target on both in words."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any, Literal

import numpy as np

from circuitlab.analysis.interventions.patching import PatchingResult
from circuitlab.analysis.interventions.path_patching import PathPatchingResult
from circuitlab.counting import number
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption, quoted, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Facts
from circuitlab.figures.marks import Axis, Figure, Heatmap, Mark, Tokens
from circuitlab.state.state import UNCUT, State

Show = Literal["effect", "normalised"]
PatchResult = PatchingResult | PathPatchingResult
PatchAnswer = Answer[PatchingResult] | Answer[PathPatchingResult]
PatchAxes = tuple[Axis, Axis, np.ndarray, np.ndarray]  # across and down, and the ids of rows and of columns
Strips = tuple[tuple[Tokens], tuple[Tokens]]


def under_prompts(
    state: State,
    facts: Facts,
    answer: PatchAnswer,
    rows: tuple[tuple[Mark, float], ...],
    what: str,
    caption_parts: tuple[str, ...] = (),
) -> Figure:
    """Marks, one a row with its relative height, under both prompts. `what` is patched: the title adds the target's values.

    `caption_parts` come between the answer's own caption and the words about the two texts.
    """
    strips = _prompts(state, facts, answer)
    source = source_name(state, answer)
    title = f"{what} · {_measured(answer.result, facts, source)}"
    grid = (*strips, *((mark,) for mark, _ in rows))
    parts = caption(answer, *caption_parts, _texts_words(source))
    return Figure(grid, title, parts, weights=(*_strip_weights(strips), *(height for _, height in rows)))


def _prompts(state: State, facts: Facts, answer: PatchAnswer) -> Strips:
    """The pinned prompt above this one: one colour for tokens that differ, another for those without a partner."""
    result, own = answer.result, answer.request.subject.tokens
    source = answer.request.params.source or own

    def make() -> tuple[Tokens, Tokens]:
        partner = np.full(len(source), -1)
        partner[result.align[result.align >= 0]] = np.flatnonzero(result.align >= 0)
        differs = np.isin(np.arange(len(source)), result.align[result.differs])
        return (
            _strip("pinned", source, partner, differs, facts, "this prompt"),
            _strip("text", own, result.align, result.differs, facts, "the pinned one"),
        )

    above, below = memo(answer, "prompts", make)
    at = state.selection.destination
    partner = int(result.align[at]) if at is not None and at < len(result.align) else -1
    above = replace(above, row=partner if partner >= 0 else None)
    return (above,), (replace(below, row=at, locked=state.selection.locked),)


def _strip(name: str, tokens: tuple[int, ...], partner: np.ndarray, differs: np.ndarray, facts: Facts, other: str) -> Tokens:
    texts = facts.tokens(tokens)
    values = np.where(differs, 0.45, np.where(partner < 0, -0.45, np.nan)).astype(np.float32)
    pairing = lambda i: f"beside position {partner[i]} of {other}" if partner[i] >= 0 else f"no partner in {other}"
    tips = tuple(f"{i} {text} (id {tokens[i]}) · {pairing(i)}" for i, text in enumerate(texts))
    return Tokens(name, texts, values, (-1.0, 1.0), "signed", tips=tips)


def _strip_weights(strips: Strips) -> tuple[float, float]:
    """Relative heights of the two prompts above a figure of about 4, by the lines they take in a narrow panel."""
    lines = [ceil(sum(len(text) + 0.5 for text in strip[0].texts) / 58) for strip in strips]
    return min(0.32 * lines[0] + 0.05, 1.1), min(0.32 * lines[1] + 0.05, 1.1)


def source_name(state: State, answer: PatchAnswer) -> str:
    """The name of the run that the answer's activations come from: the pin's, or that of this prompt without interventions."""
    pin, own = state.pinned, answer.request.subject.tokens
    source = answer.request.params.source or own
    from_pin = pin is not None and pin.subject.tokens == source
    return "pinned" if from_pin or source != own else UNCUT


def _texts_words(source: str) -> str:
    """For a caption: which text is which, and what the colours mean; `source` as `source_name` gives it."""
    if source == UNCUT:
        return "text: both runs read this one; above it the run without interventions"
    return "text: the pinned prompt above this one, orange where they differ, blue without a partner"


def _measured(result: PatchResult, facts: Facts, other: str) -> str:
    """The target in token texts, and its value on both prompts."""
    names = [quoted(facts.token_text(int(i))) for i in result.ids if i >= 0]
    other_value = f"{other}: no partner" if np.isnan(result.other) else f"{other} {number(result.other)}"
    return f"{' − '.join(names) or 'direction'}: here {number(result.clean)}, {other_value}"


def scale(show: Show, values: np.ndarray, result: PatchResult) -> tuple[str, float]:
    """Unit and largest magnitude of the shown values."""
    if show == "normalised":
        return "share", top_level(values)
    return "logits" if (result.ids >= 0).any() else "units", top_level(values)


def effect_map(name: str, answer: PatchAnswer, show: Show, values: np.ndarray, axes: PatchAxes, **more: Any) -> Heatmap:
    """A map of the shown `values` [row, column]; `more` of a `Heatmap`."""
    unit, top = memo(answer, ("scale", show), lambda: scale(show, values, answer.result))
    x, y, rows, cols = axes
    return Heatmap(name, values, (-top, top), x, y, "signed", unit, square=False, row_ids=rows, col_ids=cols, **more)


def effects_of(show: Show, result: PatchResult) -> np.ndarray:
    """The effects of a result, or their shares."""
    return result.normalised if show == "normalised" else result.effect


def no_share(show: Show, result: PatchResult) -> str:
    """Why there is no normalised effect; "" if there is one, or none is to be shown."""
    if show == "effect" or np.isfinite(result.normalised).any() or not np.isfinite(result.values).any():
        return ""
    return "The target is nearly the same on both prompts, so there is no share of the difference: show the effect."
