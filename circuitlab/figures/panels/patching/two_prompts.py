"""What figures about two prompts share: both as text with what differs in colour, and the target on both in words."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Literal

import numpy as np

from circuitlab.analysis.interventions.patching import PatchingResult
from circuitlab.analysis.interventions.path_patching import PathPatchingResult
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import number, quoted, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Facts
from circuitlab.figures.marks import Tokens
from circuitlab.session.state import UNCUT, State

Show = Literal["effect", "normalised"]
Strips = tuple[tuple[Tokens], tuple[Tokens]]


def prompts(state: State, facts: Facts, answer: Answer[PatchingResult] | Answer[PathPatchingResult]) -> Strips:
    """The pinned prompt over this one: tokens that differ from their partner in one colour, those without one in another."""
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
    said = lambda i: f"beside position {partner[i]} of {other}" if partner[i] >= 0 else f"no partner in {other}"
    tips = tuple(f"{i} {text} (id {tokens[i]}) · {said(i)}" for i, text in enumerate(texts))
    return Tokens(name, texts, values, (-1.0, 1.0), "signed", tips=tips)


def strip_weights(strips: Strips) -> tuple[float, float]:
    """Relative heights of the two prompts over a picture of about 4: by their length, as it falls in a narrow panel."""
    lines = [ceil(sum(len(text) + 0.5 for text in strip[0].texts) / 58) for strip in strips]
    return min(0.32 * lines[0] + 0.05, 1.1), min(0.32 * lines[1] + 0.05, 1.1)


def whose(state: State) -> str:
    """What the run is called that values are taken from."""
    return UNCUT if state.pinned is None else "pinned"


def read_beside(state: State) -> str:
    """For a caption: how the two texts stand."""
    if state.pinned is None:
        return "text: both runs read this one; uncut above"
    return "text: the pinned one above this one, orange where they differ, blue without a partner"


def measured(result: PatchingResult | PathPatchingResult, facts: Facts, other: str) -> str:
    """What is measured, in token texts, and its value on both prompts."""
    names = [quoted(facts.token_text(int(i))) for i in result.ids if i >= 0]
    there = f"no partner {other}" if np.isnan(result.other) else f"{other} {number(result.other)}"
    return f"{' − '.join(names) or 'direction'}: here {number(result.clean)}, {there}"


def scale(show: Show, values: np.ndarray, result: PatchingResult | PathPatchingResult) -> tuple[str, float]:
    """Unit and largest magnitude of what is shown."""
    if show == "normalised":
        return "share", top_level(values)
    return "logits" if (result.ids >= 0).any() else "units", top_level(values)


def shown(show: Show, result: PatchingResult | PathPatchingResult) -> np.ndarray:
    """What is asked for of a result's effects."""
    return result.normalised if show == "normalised" else result.effect


def no_share(show: Show, result: PatchingResult | PathPatchingResult) -> str:
    """Why there is no normalised effect, "" where there is one or none is asked for."""
    if show == "effect" or np.isfinite(result.normalised).any() or not np.isfinite(result.values).any():
        return ""
    return "The target is as good as the same on both prompts, so there is no share of the difference: show the effect."
