"""The plane of the training panel: checkpoints of models by their losses on the same tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from circuitlab.analysis.training.pca import TrainingPcaResult
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, Figure, Points, ids
from circuitlab.figures.panels.training.points import OWN, current_point, model_hues, pinned_point, short
from circuitlab.state.state import State


def plane(state: State, answer: Answer[TrainingPcaResult]) -> Figure:
    """A path for each model through a point for each checkpoint; the current checkpoint is ringed."""
    result = answer.result
    at, pin = current_point(result, state.model), pinned_point(result, state)
    share = result.explained
    axes = memo(answer, "axes", lambda: tuple(Axis(f"component {k + 1} ({s:.0%})") for k, s in enumerate([*share, 0.0][:2])))
    ringed = ([] if at is None else [(at, f"step {result.steps[at]:,}")]) + ([] if pin is None else [pin])
    names = dict(ringed)
    points = Points(
        "plane",
        **memo(answer, "points", lambda: _columns(result)),
        labels=tuple(names.get(i, "") for i in range(len(result.steps))),
        size=6.0,
        chosen=tuple(i for i, _ in ringed),
        x_axis=axes[0],
        y_axis=axes[1],
    )
    n = len(result.names)
    checkpoints, tokens = number_of(len(result.steps), "checkpoint"), number_of(result.n_texts, "token")
    title = f"{number_of(n, 'model')}, {checkpoints} by their losses on {tokens}"
    return Figure(
        ((points,),),
        title,
        caption(answer, "a path is a training, from its first checkpoint to its last; ringed: the current one"),
    )


def _columns(result: TrainingPcaResult) -> dict[str, Any]:
    hue_of = np.array(model_hues(result.names))
    hues = hue_of[result.model]
    tips = tuple(
        f"{result.names[m]} · step {s:,} · {short(t)} tokens · loss {number(v, '.3f')}"
        for m, s, t, v in zip(result.model, result.steps, result.tokens, result.loss, strict=True)
    )
    models = np.unique(result.model)
    return {
        "x": result.coordinates[:, 0].copy(),
        "y": result.coordinates[:, 1].copy(),
        "ids": ids(OWN - result.model, np.full(len(hues), -1), result.checkpoint),
        "hues": hues,
        "tips": tips,
        "paths": tuple(tuple(np.flatnonzero(result.model == m).tolist()) for m in models),
        "legend": tuple((result.names[m], int(hue_of[m])) for m in models),
    }
