"""Pages of all heads: OV copying and QK positivity scores, alone and composed with earlier heads."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from circuitlab.analysis.base import Result
from circuitlab.analysis.circuits.own_tokens import OWN, OwnTokensResult
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.spectra.copying_scores import CopyingScoresResult
from circuitlab.analysis.spectra.positivity_plane import PreviousHeadSpectrumResult
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption, captions, head_column, rows_of_heads
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, Figure, Lines, Points, RowColumn, Rows, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

BINS = np.linspace(-1, 1, 21)
COPYING = Axis("OV copying, Σλ / Σ|λ|")


def chance(own: OwnTokensResult | None) -> str:
    """For a caption: the chance that a token is among the ten largest of its row; "" without an answer."""
    return "" if own is None else f"own token in the top 10: chance {own.chance10:.4f}"


def own_share(own: OwnTokensResult | None, head: Head) -> str:
    """For a title: the share of tokens in the top ten of their own row; "" if unknown."""
    if own is None or not np.isfinite(own.top10[head]):
        return ""
    return f"own token in the top 10 of {own.top10[head]:.1%} of rows"


def _scatter(answer: Answer[Result], x: np.ndarray, y: np.ndarray, strength: np.ndarray, key: Hashable) -> dict[str, Any]:
    """All heads as points, the strongest first, as its name needs room most: x, y, strength [layer, head]; ids, names, hues."""

    def make() -> dict[str, Any]:
        order = descending(strength)
        layer, head = np.unravel_index(order, x.shape)
        heads = [Head(int(a), int(b)) for a, b in zip(layer, head, strict=True)]
        return {
            "x": x.ravel()[order].astype(float),
            "y": y.ravel()[order].astype(float),
            "ids": ids(layer, head),
            "labels": tuple(map(str, heads)),
            "hues": np.array([head_hue(h) for h in heads], dtype=np.int64),
        }

    return memo(answer, key, make)


def copying_page(
    state: State, answer: Answer[CopyingScoresResult], own_answer: Answer[OwnTokensResult] | None, raw: bool
) -> Figure:
    """A histogram of OV copying and QK positivity, and the copying score of every head by layer."""
    result = answer.result
    own = None if own_answer is None else own_answer.result
    ov, qk = (result.copying_raw, result.qk_positivity_raw) if raw else (result.copying, result.qk_positivity)

    def histogram() -> Lines:
        counts = [np.histogram(values[np.isfinite(values)], BINS)[0] for values in (ov, qk)]
        return Lines(
            name="histogram",
            x=np.repeat(BINS, 2)[1:-1],  # both ends of every bin
            ys=np.repeat(np.array(counts, dtype=float), 2, axis=1),
            names=("OV copying", "QK positivity"),
            dashed=(False, True),
            x_axis=Axis("score, Σλ / Σ|λ|"),
            y_axis=Axis("heads"),
        )

    layer = np.broadcast_to(np.arange(ov.shape[0])[:, None], ov.shape)
    points = _scatter(answer, ov, layer, ov, ("strip", raw))
    y_axis = memo(answer, "layers", lambda: Axis("layer", tuple(f"L{i}" for i in range(ov.shape[0]))))
    strip = Points(name="copying", **points, chosen=rows_of_heads(state, points["ids"]), x_axis=COPYING, y_axis=y_axis)
    head = state.selection.head
    scores = f"{head} copying {number(ov[head], '.3f')}", own_share(own, head), f"QK positivity {number(qk[head], '.3f')}"
    copies = f"{int((ov > 0.5).sum())} of {number_of(ov.size, 'head')} above 0.5"
    if own is not None:
        copies += f", {int((own.top10 > 0.5).sum())} with most own tokens in the top 10"
        strip = replace(strip, tips=memo((answer, own), ("tips", raw), lambda: _tips(points["ids"], ov, qk, own)))
    marks = ((memo(answer, ("histogram", raw), histogram),), (strip,))
    return Figure(
        marks,
        ", ".join(filter(None, scores)),
        captions({"copying": answer, OWN: own_answer}, copies, chance(own)),
        weights=(1.0, 1.6),
    )


def _tips(heads: np.ndarray, ov: np.ndarray, qk: np.ndarray, own: OwnTokensResult) -> tuple[str, ...]:
    """The scores of each of the `heads` [n, (layer, head)] in words."""
    return tuple(
        f"{h} · copying {number(ov[h], '.3f')}"
        f" · own token in the top 10 of {own.top10[h]:.1%}, first in {own.top1[h]:.1%} of rows"
        f" · QK positivity {number(qk[h], '.3f')}"
        for h in (Head(*key) for key in heads.tolist())
    )


def plane_page(state: State, answer: Answer[PreviousHeadSpectrumResult], raw: bool) -> Figure:
    """OV copying against positivity through earlier heads; beside it, the leading head with each earlier head."""
    result, asked = answer.result, answer.request.params.scores
    raw = raw if asked == "both" else asked == "raw"  # the answer may be older than the control
    weighted = result.weighted_raw if raw else result.weighted
    points = _scatter(answer, result.copying, weighted, result.copying + weighted, ("plane", raw))
    y_axis = memo(answer, "positivity", lambda: Axis("positivity through earlier heads"))
    plane = Points(name="plane", **points, chosen=rows_of_heads(state, points["ids"]), x_axis=COPYING, y_axis=y_axis)
    head = state.selection.head
    composed = "none" if np.isnan(weighted[head]) else number(weighted[head], ".3f")
    title = f"{head} copying {number(result.copying[head], '.3f')}, positivity through earlier heads {composed}"
    marks = (plane, _earlier(answer, raw, head)) if head.layer else (plane,)
    return Figure((marks,), title, caption(answer, "upper right: heads that match on what an earlier head moved, and copy"))


def _earlier(answer: Answer[PreviousHeadSpectrumResult], raw: bool, head: Head) -> Rows:
    """The earlier heads, ordered by the QK positivity of `head` composed with each."""
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        pairs = (result.pairs_raw if raw else result.pairs)[head][: head.layer]
        order = descending(pairs)
        layer, source = np.unravel_index(order, pairs.shape)
        positivity = RowColumn("positivity", pairs.ravel()[order], digits=3, bar=True, levels=(-1.0, 1.0))
        return (head_column(layer, source, "earlier"), positivity), ids(layer, source)

    columns, keys = memo(answer, ("earlier", raw, head), make)
    return Rows("earlier", columns, keys, heading=f"{head} composed with earlier heads", ranked=True)
