"""The numbers of each page of the induction laboratory as a table: one answer has those of all pages."""

from __future__ import annotations

import numpy as np

from circuitlab.analysis.base import Column, Table
from circuitlab.analysis.checks.rope_clock import RotationClockResult
from circuitlab.engine.request import Answer
from circuitlab.figures.panels.laboratory.pages import STEPS, coordinates, scaled
from circuitlab.figures.panels.laboratory.parameters import NAME, LaboratoryView
from circuitlab.model.constructed import RopeInduction
from circuitlab.state.constructed import parameters_of
from circuitlab.state.state import State


def table(state: State, answer: Answer) -> Table | None:
    """The numbers of the open page; None for the clock and the equations, whose answers have no other."""
    result, view = answer.result, state.view(NAME, LaboratoryView)
    p = parameters_of(answer.request.subject.model)
    if not isinstance(result, RotationClockResult) or p is None:
        return None
    if view.page in ("layer 0", "layer 1"):
        return _attention(result, int(view.page[-1]))
    if view.page == "stream":
        return _stream(result, [step for step in STEPS if view.after in ("all", step)], p)
    if view.page == "prediction":
        return _prediction(result)
    return _alphabet(result) if view.page == "rank one" else None


def _attention(r: RotationClockResult, layer: int) -> Table:
    """One row per visible (destination, source) of a layer."""
    dest, src = np.nonzero(~np.isnan(r.predicted[layer]))
    return Table(
        (
            Column("destination", dest, of="position"),
            Column("source", src, of="position"),
            Column("attention by formula", r.predicted[layer, dest, src], "share of attention"),
            Column("attention measured", r.measured[layer, dest, src], "share of attention"),
            Column("should attend", r.wanted[layer, dest, src]),
        )
    )


def _stream(r: RotationClockResult, steps: list[str], p: RopeInduction) -> Table:
    """One row per coordinate of each position after each of these steps, as they are drawn."""
    values = np.stack([scaled(r, STEPS.index(step), p) for step in steps])
    step, position, coordinate = np.indices(values.shape).reshape(3, -1)
    divided = ", out divided by γ" if p.gamma else ""
    return Table(
        (
            Column("after", np.array(steps, dtype=object)[step]),
            Column("position", position, of="position"),
            Column("coordinate", coordinate),
            Column("coordinate's name", np.array(coordinates(r, p).ticks, dtype=object)[coordinate]),
            Column(f"value{divided}", values.ravel(), "residual units"),
        )
    )


def _prediction(r: RotationClockResult) -> Table:
    """One row per position: by how much the right letter leads, and the most probable one. The letters have a table as drawn."""
    best = r.measured_logits.argmax(axis=1)
    at = np.arange(len(best))
    return Table(
        (
            Column("position", at, of="position"),
            Column("lead of the right letter", r.margin, "logit"),
            Column("most probable", best, of="token"),
            Column("its logit by formula", r.logits[at, best], "logit"),
            Column("its logit measured", r.measured_logits[at, best], "logit"),
        )
    )


def _alphabet(r: RotationClockResult) -> Table:
    """One row per pair of letters, each of which is the token after that of BOS and the letters before it."""
    query, key = np.indices(r.letters.shape).reshape(2, -1)
    return Table(
        (
            Column("letter of the query", query + 1, of="token"),
            Column("letter of the key", key + 1, of="token"),
            Column("attention by formula", r.letters.ravel(), "share of attention"),
        )
    )
