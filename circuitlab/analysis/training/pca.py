"""Checkpoints of models as points in one plane: principal components of their losses on the same tokens.

    X[point, text]     the loss of one fixed token in each of many texts; points are checkpoints of all models, texts are the same
    X − mean = U S Vᵀ  the mean over points; coordinates: U S of the two largest singular values, nats
    explained_k        S_k² / Σ S², of the variance over points

(Olsson et al. 2022, "In-context Learning and Induction Heads": models and checkpoints in the plane of per-token losses; at a
phase change the path turns.) Nearby points have losses on the same tokens; the two axes have no meaning of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, SeriesRef, Table, analysis, at_least, over
from circuitlab.analysis.training._provenance import texts_of, words_on_tokens
from circuitlab.analysis.training.series import memory_of_series, points_of, read, refuse_unnamed
from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.records.series_measures import SeriesMeasures

FEWEST = 3  # points: two always lie on a line


@dataclass(frozen=True)
class TrainingPcaParams:
    """`models`: at least one. `first`: checkpoints that have seen fewer tokens are left out. `strict`: models that are not known
    to be measured on the texts of the first model are an error; otherwise they are left out, and the conventions say so.
    """

    models: tuple[SeriesRef, ...] = ()
    first: int = at_least(0, 0)
    strict: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingPcaResult(Result):
    """`names` of the models; `model`, `steps`, `tokens`, `checkpoint` (below 0: none) and bool `is_final` [point].

    `coordinates` [point, 2] nats; `explained` [component] shares of the variance, the largest first; `loss` [point] mean loss
    over the texts; `n_texts`.
    """

    names: tuple[str, ...]
    model: np.ndarray = over("point", unit="index")
    steps: np.ndarray = over("point", unit="steps")
    tokens: np.ndarray = over("point", unit="tokens")
    checkpoint: np.ndarray = over("point", unit="index", none=True)
    is_final: np.ndarray = over("point", unit="true or false")
    coordinates: np.ndarray = over("point", "component", unit="nats")
    explained: np.ndarray = over("principal component", unit="share of variance")
    loss: np.ndarray = over("point", unit="nats")
    n_texts: int

    def table(self) -> Table:
        """One row per point."""
        return Table(
            (
                Column("model", np.array(self.names, dtype=object)[self.model]),
                Column("step", self.steps),
                Column("tokens", self.tokens),
                Column("checkpoint", self.checkpoint, of="count"),
                Column("final weights", self.is_final),
                Column("component 1", self.coordinates[:, 0], "nats"),
                Column("component 2", self.coordinates[:, 1], "nats"),
                Column("loss", self.loss, "nats"),
            )
        )


@analysis(version=2, needs="weights", lane="live", memory=memory_of_series, refuse=refuse_unnamed, doubles=False)
def training_pca(inputs: Inputs, p: TrainingPcaParams, ctx: Ctx) -> TrainingPcaResult:
    """PCA of per-token losses over checkpoints: two principal components, for one or several models."""
    names, measures, without = _comparable(*read(inputs, p.models, ctx), p.strict)
    at = points_of(measures)
    counted = at.tokens >= p.first
    losses = np.concatenate([m["token_loss"] for m in measures]).astype(float)[counted]
    if len(losses) < FEWEST:
        raise BadInput(
            "There are too few points for a plane.",
            expected=f"at least {FEWEST}",
            got=str(len(losses)),
            remedy="Lower first, or measure more checkpoints: circuitlab measure MODEL.",
        )
    if not np.isfinite(losses).all():
        raise BadInput(
            "Some losses were not measured.",
            expected="a loss of every text at every point",
            got="NaN or infinity",
            remedy="Measure the checkpoints again: circuitlab measure MODEL.",
        )
    ctx.tick(0, 1, "principal components")
    model = at.model[counted]
    longest = int(np.bincount(model).argmax())
    coordinates, explained, remainder = components(losses, np.flatnonzero(model == longest))
    return TrainingPcaResult(
        names=names,
        model=model,
        steps=at.steps[counted],
        tokens=at.tokens[counted],
        checkpoint=at.checkpoint[counted],
        is_final=at.checkpoint[counted] == -1,
        coordinates=coordinates,
        explained=explained,
        loss=losses.mean(axis=1),
        n_texts=losses.shape[1],
        conventions=(
            *words_on_tokens(measures[0]),
            f"losses in nats: {number_of(len(losses), 'point')} × {number_of(losses.shape[1], 'text')}, centred over points; "
            "components in float64",
            f"not shown: {1 - explained[:2].sum():.1%} of the variance",
            f"signs: {names[longest]} ends to the right of where it begins, and above",
            *([f"left out, not known to be measured on the same texts: {', '.join(without)}"] if without else []),
        ),
        remainder=remainder,
    )


def components(losses: np.ndarray, path: np.ndarray) -> tuple[np.ndarray, np.ndarray, Remainder]:
    """(coordinates [point, 2], shares of the variance [component], remainder) of losses [point, text].

    A component's sign is arbitrary. It is chosen so that the coordinate of the last point of `path` (indices) is not smaller than
    that of the first; if they are equal, so that the largest coordinate is positive. With the path of the model with most points,
    the plane is not mirrored when another model is opened.
    """
    centred = losses - losses.mean(axis=0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    whole = u * s
    top = np.zeros((len(losses), 2))
    top[:, : min(2, len(s))] = whole[:, :2]
    for column in top.T:
        along = column[path[-1]] - column[path[0]]
        size = float(np.abs(column).max())
        towards = along if abs(along) > 1e-9 * size else column[int(np.abs(column).argmax())]
        column *= -1 if towards < 0 else 1
    total = float((s**2).sum())
    explained = s**2 / total if total > 0 else np.zeros(len(s))
    left = np.abs(whole @ vt - centred).max(initial=0.0)
    return top, explained, Remainder(float(left), float(np.abs(centred).max(initial=0.0)), "nats", "largest centred loss")


def _comparable(
    names: tuple[str, ...], measures: list[SeriesMeasures], strict: bool
) -> tuple[tuple[str, ...], list[SeriesMeasures], tuple[str, ...]]:
    """(names, measures) of the models measured on the texts of the first one, and the names of the others.

    Raises `BadInput` for others if `strict`.
    """
    n, sha256 = texts_of(measures[0])
    # a series without a hash of its texts is known to have the same texts as itself only
    alike = lambda m: m is measures[0] or (bool(sha256) and texts_of(m) == (n, sha256))
    same = {name: m for name, m in zip(names, measures, strict=True) if alike(m)}
    others = tuple(name for name in names if name not in same)
    if others and strict:
        raise BadInput(
            "These models were not measured on the same texts.",
            expected=f"the {number_of(n, 'text')} of {names[0]} (sha256 {sha256[:12] or 'unknown'}…)",
            got=f"other or unknown texts for {', '.join(others)}",
            remedy="Leave those models out, or measure all of them on the same files: circuitlab measure MODEL --text FILES.",
        )
    return tuple(same), list(same.values()), others
