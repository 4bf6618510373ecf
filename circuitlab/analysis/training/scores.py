"""In-context scores along a training series, on each kind of text, and their phase changes.

    in-context score   on text: mean loss of the late indices − mean loss of the early ones
                       on a repeated sequence: mean loss of the second repetition without its first token − of the first

    controlled         the score on text minus that of a model without layers at the same indices of the same texts: tokens at
                       some indices are harder whatever the context, which a model that sees only the previous token shows
    standard errors    over texts, each with a score of its own: standard deviation / √texts. For a comparison of two models or
                       points it is that of the differences text by text, since the same texts are hard for both

Losses of single texts are recorded for some texts only, or not at all: standard errors are of the mean over these texts.

The Training panel and the card of a shipped model take these numbers from here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circuitlab.analysis.training._phase_change import PhaseRule, phase_change
from circuitlab.analysis.training._provenance import indices_of
from circuitlab.model.records.series_measures import SeriesMeasures

RANDOM, REPEATED, TEXT = 0, 1, 2
KINDS = ("repeated random tokens", "repeated text", "text")


class Phase(NamedTuple):
    """`first`, `last` point of the window; `fall` of the score in nats; `before`, `after`: the best prefix-matching score of a
    head at either end, NaN without heads.
    """

    first: int
    last: int
    fall: float
    before: float
    after: float


def repetitions(losses: np.ndarray) -> np.ndarray:
    """[..., repetition]: mean losses of losses [..., 2 · block]; the second without its first token, which is unpredictable."""
    losses, block = losses.astype(float), losses.shape[-1] // 2
    if block < 2:
        return np.full((*losses.shape[:-1], 2), np.nan)
    return np.stack([losses[..., :block].mean(-1), losses[..., block + 1 : 2 * block].mean(-1)], axis=-1)


def late_minus_early(by_index: np.ndarray, ends: tuple[int, int, int, int]) -> np.ndarray:
    """[...], nats: the score of `loss_by_index` [..., index]; `ends`: early first and last, late first and last position.

    NaN if the text is too short for two disjoint ends.
    """
    by_index = by_index.astype(float)
    if not 1 <= ends[1] < ends[2]:
        return np.full(by_index.shape[:-1], np.nan)
    mean = lambda first, last: by_index[..., first - 1 : last].mean(-1)
    return mean(*ends[2:]) - mean(*ends[:2])


class Measured(NamedTuple):
    """[...] each: the mean over texts and its standard error in nats; the number of texts, 0 if their losses are not recorded."""

    mean: np.ndarray
    error: np.ndarray
    texts: np.ndarray


def by_text(m: SeriesMeasures) -> np.ndarray:
    """[point, text], nats: the in-context score of each text; NaN if its losses are not recorded."""
    return m["late_by_text"].astype(float) - m["early_by_text"].astype(float)


def over_texts(scores: np.ndarray) -> Measured:
    """Mean and standard error of scores, or of their differences text by text, [..., text]; NaN for fewer than two texts."""
    measured = np.isfinite(scores)
    n = measured.sum(-1)
    mean = np.where(measured, scores, 0).sum(-1) / np.maximum(n, 1)
    squares = (np.where(measured, scores - mean[..., None], 0) ** 2).sum(-1)
    enough = n > 1
    error = np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1))
    return Measured(np.where(enough, mean, np.nan), np.where(enough, error, np.nan), n)


def sources_kept(m: SeriesMeasures) -> tuple[str, ...]:
    """The sources with recorded losses of single texts at the last point; () if the file does not assign texts to sources."""
    measured, sources, at, labels = np.isfinite(by_text(m)[-1]), m.protocol.get("sources"), 0, []
    for source in sources if isinstance(sources, list) else ():
        count = max(1, round(len(measured) * source["share"]))
        labels += [str(source["label"])] if measured[at : at + count].any() else []
        at += count
    return tuple(labels) if at == len(measured) else ()


class OnText(NamedTuple):
    """The score on text at each [point] in nats: over all texts, and minus the control's, NaN without one.

    `each`, `each_controlled`: over the texts with recorded losses, with standard errors, paired with the control's texts.
    """

    score: np.ndarray
    controlled: np.ndarray
    each: Measured
    each_controlled: Measured


def on_text(m: SeriesMeasures, control: SeriesMeasures | None) -> OnText:
    """Scores on text; `control`: the measures of a model without layers, of which the last point is taken."""
    ends, by_index, each = indices_of(m), m["loss_by_index"], by_text(m)
    score = late_minus_early(by_index, ends)
    if control is None or not same_texts(m, control):
        return OnText(score, np.full(len(by_index), np.nan), over_texts(each), over_texts(np.full_like(each, np.nan)))
    left = by_index.astype(float) - control["loss_by_index"][-1].astype(float)
    control_each = by_text(control)[-1]
    paired = each - control_each if each.shape[1:] == control_each.shape else np.full_like(each, np.nan)
    return OnText(score, late_minus_early(left, ends), over_texts(each), over_texts(paired))


def same_text(m: SeriesMeasures, other: SeriesMeasures) -> bool:
    """Whether both were measured on the same held-out texts."""
    texts = [hashes.get("held_out") if isinstance(hashes := s.protocol.get("sha256"), dict) else None for s in (m, other)]
    return texts[0] is not None and texts[0] == texts[1]


def same_texts(m: SeriesMeasures, control: SeriesMeasures) -> bool:
    """Whether the control has no layers and was measured on the same held-out texts."""
    return not control["copying"].shape[1] and same_text(m, control)


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
    """The phase change of the score on one of `KINDS`, or None."""
    score, prefix = scores_of(m)[0][:, kind], best(m["prefix_matching"])
    window = phase_change(np.array(m.tokens, dtype=float), score, rule)
    if window is None:
        return None
    first, last = window
    return Phase(first, last, float(score[first] - score[last]), float(prefix[first]), float(prefix[last]))
