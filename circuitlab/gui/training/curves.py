"""The curves of a run while it trains: the training loss, the losses at the checkpoints and the scores of the heads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.marks import Axis, Figure, Lines, Mark, empty
from circuitlab.gui.training.job import Curves
from circuitlab.model.subject import Head
from circuitlab.training.recipe import Recipe

STEP, TRAINING, NATS = Axis("step", whole=True), Axis("training loss, nats"), Axis("loss, nats")
MOST = 2000  # points of the training loss that are drawn
LOSSES = ("held-out text", "random tokens", "the same again")


def longer(recipe: Recipe) -> tuple[tuple[float, str], ...]:
    """The steps at which the sequence length changes, which shows in the loss."""
    return tuple((float(s.start), f"sequences of {s.context}") for s in sorted(recipe.stages, key=lambda s: s.start) if s.start)


def curves_of(losses: Mapping[int, float], curves: Curves | None, marks: tuple[tuple[float, str], ...] = ()) -> Figure:
    """The figure. `losses`: training loss by step; `marks`: named steps. Curves without a measurement yet are left out."""
    reached = tuple((at, name) for at, name in marks if losses and at <= max(losses))
    top: list[Mark] = [_training(losses, reached)] if len(losses) > 1 else []
    if curves is None or len(curves.steps) < 2:
        waiting = "The first curves come with the second checkpoint."
        return Figure((tuple(top),), "", (waiting,)) if top else empty(waiting, "")
    ys = np.stack([curves.held_out, curves.first, curves.second])
    top.append(Lines("loss at checkpoints", curves.steps, ys, LOSSES, x_axis=STEP, y_axis=NATS))
    caption = "losses in nats", "random tokens: a block of them, then the same again, which only a model that copies foretells"
    if not curves.heads:
        return Figure((tuple(top),), "", (*caption, "a model without layers has no heads"))
    heads = (_heads("prefix matching", curves, curves.prefix), _heads("previous token", curves, curves.previous))
    best = ", ".join(f"{m.name} {m.ys[m.chosen[0], -1]:.2f} ({m.names[m.chosen[0]]})" for m in heads)
    return Figure((tuple(top), heads), "", (f"best heads: {best}", *caption, "scores on repeated random tokens"))


def _training(losses: Mapping[int, float], marks: tuple[tuple[float, str], ...]) -> Lines:
    steps = np.array(sorted(losses), dtype=float)
    steps = steps[:: -max(1, -(-len(steps) // MOST))][::-1].copy()  # the newest point is always included
    ys = np.array([[losses[int(s)] for s in steps]])
    return Lines("training loss", steps, ys, ("running mean",), marks=marks, x_axis=STEP, y_axis=TRAINING)


def _heads(name: str, curves: Curves, scores: np.ndarray) -> Lines:
    """One curve per head, the best one thick."""
    names, hues = [], []
    for layer, head in curves.heads:
        names.append(str(Head(layer, head)))
        hues.append(head_hue(Head(layer, head)))
    best = int(np.nanargmax(scores[:, -1]))
    axis = Axis(name)
    return Lines(name, curves.steps, scores, tuple(names), tuple(hues), chosen=(best,), x_axis=STEP, y_axis=axis)
