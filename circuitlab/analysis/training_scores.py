"""Scores of what was measured along a training: the in-context score on each kind of text, and where it has a phase change.

    in-context score   on text: mean loss of the late indices − mean loss of the early ones
                       on a sequence that is repeated: mean loss of the second repetition but for its first token − of the first

    controlled         the score on text minus that of a model without layers at the same indices of the same texts: tokens at
                       some indices are dearer for reasons of the text alone, which a model that sees one token back shows
    standard errors    of both, from how the losses scatter over the indices of either end

The Training panel and the card of a shipped model say these numbers, and both take them from here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circuitlab.analysis.training_phase import PhaseRule, phase_change
from circuitlab.analysis.training_said import indices_of
from circuitlab.model.series_measures import SeriesMeasures

RANDOM, REPEATED, TEXT = 0, 1, 2
KINDS = ("repeated random tokens", "repeated text", "text")


class Phase(NamedTuple):
    """`first`, `last` point of the window; `fall` of the score between them in nats; `before`, `after`: the best
    prefix-matching score of a head at either end, NaN without heads.
    """

    first: int
    last: int
    fall: float
    before: float
    after: float


def repetitions(losses: np.ndarray) -> np.ndarray:
    """[..., repetition] mean losses of losses [..., 2 · block]; the second without its first token, which nothing foretells."""
    losses, block = losses.astype(float), losses.shape[-1] // 2
    if block < 2:
        return np.full((*losses.shape[:-1], 2), np.nan)
    return np.stack([losses[..., :block].mean(-1), losses[..., block + 1 : 2 * block].mean(-1)], axis=-1)


def late_minus_early(by_index: np.ndarray, ends: tuple[int, int, int, int]) -> np.ndarray:
    """[...], nats: the score of `loss_by_index` [..., index]; `ends`: early first and last, late first and last position.

    NaN where the text is too short for two ends that are apart.
    """
    by_index = by_index.astype(float)
    if not 1 <= ends[1] < ends[2]:
        return np.full(by_index.shape[:-1], np.nan)
    mean = lambda first, last: by_index[..., first - 1 : last].mean(-1)
    return mean(*ends[2:]) - mean(*ends[:2])


def error_of(by_index: np.ndarray, ends: tuple[int, int, int, int]) -> np.ndarray:
    """[...], nats: standard error of `late_minus_early`, from the scatter of the losses over the indices of either end."""
    by_index = by_index.astype(float)
    spans = [by_index[..., first - 1 : last] for first, last in (ends[:2], ends[2:])]
    if not 1 <= ends[1] < ends[2] or min(span.shape[-1] for span in spans) < 2:
        return np.full(by_index.shape[:-1], np.nan)
    return np.sqrt(sum(span.var(-1, ddof=1) / span.shape[-1] for span in spans))


class Controlled(NamedTuple):
    """[point] each, nats: the score on text and its standard error; both again, minus the control's losses. NaN: no control."""

    score: np.ndarray
    error: np.ndarray
    controlled: np.ndarray
    controlled_error: np.ndarray


def on_text(m: SeriesMeasures, control: SeriesMeasures | None) -> Controlled:
    """Scores on text; `control`: what was measured of a model without layers, of whose points the last is taken."""
    ends, by_index = indices_of(m), m["loss_by_index"]
    plain = late_minus_early(by_index, ends), error_of(by_index, ends)
    if control is None or not same_texts(m, control):
        nothing = np.full(len(by_index), np.nan)
        return Controlled(*plain, nothing, nothing.copy())
    left = by_index.astype(float) - control["loss_by_index"][-1].astype(float)
    return Controlled(*plain, late_minus_early(left, ends), error_of(left, ends))


def same_texts(m: SeriesMeasures, control: SeriesMeasures) -> bool:
    """Whether the control has no layers and was measured on the very same held-out texts."""
    texts = [hashes.get("held_out") if isinstance(hashes := s.said.get("sha256"), dict) else None for s in (m, control)]
    return not control["copying"].shape[1] and texts[0] is not None and texts[0] == texts[1]


def scores_of(m: SeriesMeasures) -> tuple[np.ndarray, np.ndarray]:
    """([point, kind] in-context scores, [point, kind, repetition] mean losses of the repeated kinds), nats."""
    means = np.stack([repetitions(m[f"{name}_loss_by_index"]) for name in ("repeated", "repeated_text")], axis=1)
    text = late_minus_early(m["loss_by_index"], indices_of(m))
    return np.column_stack([means[:, :, 1] - means[:, :, 0], text]), means


def best(values: np.ndarray) -> np.ndarray:
    """[point]: the largest over heads of values [point, layer, head], NaN without heads."""
    flat = values.reshape(len(values), -1).astype(float)
    return np.where(np.isnan(flat).all(axis=1), np.nan, np.fmax.reduce(flat, axis=1, initial=-np.inf))


def phase_of(m: SeriesMeasures, kind: int, rule: PhaseRule) -> Phase | None:
    """The phase change of the score on one of `KINDS`, None where the rule finds none."""
    score, prefix = scores_of(m)[0][:, kind], best(m["prefix_matching"])
    found = phase_change(np.array(m.tokens, dtype=float), score, rule)
    if found is None:
        return None
    first, last = found
    return Phase(first, last, float(score[first] - score[last]), float(prefix[first]), float(prefix[last]))
