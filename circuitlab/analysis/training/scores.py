"""Scores of what was measured along a training: the in-context score on each kind of text, and where it has a phase change.

    in-context score   on text: mean loss of the late indices − mean loss of the early ones
                       on a sequence that is repeated: mean loss of the second repetition but for its first token − of the first

    controlled         the score on text minus that of a model without layers at the same indices of the same texts: tokens at
                       some indices are dearer for reasons of the text alone, which a model that sees one token back shows
    standard errors    over texts, of which each has a score of its own: standard deviation / √texts. Where two models or two
                       points are compared, it is that of the differences text by text: the same texts are dear to both

The losses of each text were not always kept, and not of every text: what has a standard error is the mean over the texts whose
losses were, and without them there is none.

The Training panel and the card of a shipped model say these numbers, and both take them from here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circuitlab.analysis.training._provenance import indices_of
from circuitlab.analysis.training.phase_change import PhaseRule, phase_change
from circuitlab.model.records.series_measures import SeriesMeasures

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


class Measured(NamedTuple):
    """[...] each: the mean over texts and its standard error, nats; of how many texts, 0 where their losses were not kept."""

    mean: np.ndarray
    error: np.ndarray
    texts: np.ndarray


def by_text(m: SeriesMeasures) -> np.ndarray:
    """[point, text], nats: the in-context score of each text; NaN where its losses were not kept."""
    return m["late_by_text"].astype(float) - m["early_by_text"].astype(float)


def over_texts(scores: np.ndarray) -> Measured:
    """Of scores, or of differences between them text by text, [..., text]; NaN for less than two texts."""
    known = np.isfinite(scores)
    n = known.sum(-1)
    mean = np.where(known, scores, 0).sum(-1) / np.maximum(n, 1)
    squares = (np.where(known, scores - mean[..., None], 0) ** 2).sum(-1)
    enough = n > 1
    error = np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1))
    return Measured(np.where(enough, mean, np.nan), np.where(enough, error, np.nan), n)


def sources_kept(m: SeriesMeasures) -> tuple[str, ...]:
    """The sources whose texts' own losses were kept at the last point, () where the file does not say which text is whose."""
    known, sources, at, kept = np.isfinite(by_text(m)[-1]), m.protocol.get("sources"), 0, []
    for source in sources if isinstance(sources, list) else ():
        count = max(1, round(len(known) * source["share"]))
        kept += [str(source["label"])] if known[at : at + count].any() else []
        at += count
    return tuple(kept) if at == len(known) else ()


class OnText(NamedTuple):
    """Of the score on text at each [point], nats: over all texts, and that minus the control's, NaN without one.

    `each`, `each_controlled`: over the texts whose own losses were kept, with standard errors, texts paired with the control's.
    """

    score: np.ndarray
    controlled: np.ndarray
    each: Measured
    each_controlled: Measured


def on_text(m: SeriesMeasures, control: SeriesMeasures | None) -> OnText:
    """Scores on text; `control`: what was measured of a model without layers, of whose points the last is taken."""
    ends, by_index, each = indices_of(m), m["loss_by_index"], by_text(m)
    score = late_minus_early(by_index, ends)
    if control is None or not same_texts(m, control):
        return OnText(score, np.full(len(by_index), np.nan), over_texts(each), over_texts(np.full_like(each, np.nan)))
    left = by_index.astype(float) - control["loss_by_index"][-1].astype(float)
    beside = by_text(control)[-1]
    paired = each - beside if each.shape[1:] == beside.shape else np.full_like(each, np.nan)
    return OnText(score, late_minus_early(left, ends), over_texts(each), over_texts(paired))


def same_text(m: SeriesMeasures, other: SeriesMeasures) -> bool:
    """Whether both were measured on the very same held-out texts."""
    texts = [hashes.get("held_out") if isinstance(hashes := s.protocol.get("sha256"), dict) else None for s in (m, other)]
    return texts[0] is not None and texts[0] == texts[1]


def same_texts(m: SeriesMeasures, control: SeriesMeasures) -> bool:
    """Whether the control has no layers and was measured on the very same held-out texts."""
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
    """The phase change of the score on one of `KINDS`, None where the rule finds none."""
    score, prefix = scores_of(m)[0][:, kind], best(m["prefix_matching"])
    found = phase_change(np.array(m.tokens, dtype=float), score, rule)
    if found is None:
        return None
    first, last = found
    return Phase(first, last, float(score[first] - score[last]), float(prefix[first]), float(prefix[last]))
