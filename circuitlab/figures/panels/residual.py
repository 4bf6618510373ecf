"""The residual stream: which heads share subspaces of it, and whether its basis is privileged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.checks.privileged_basis import PrivilegedBasisParams, PrivilegedBasisResult, privileged_basis
from circuitlab.analysis.checks.rotation_invariance import RotationCheckParams, RotationCheckResult, rotation_check
from circuitlab.analysis.composition.subspace_overlap import SubspaceOverlapParams, SubspaceOverlapResult, Which, subspace_overlap
from circuitlab.analysis.ordering import head_names
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, top_level
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import (
    leading_head,
    of_weights,
    selected_edge,
    selected_heads,
    weights_refusal,
)
from circuitlab.figures.marks import Axis, Figure, Heatmap, Hit, Lines, RowColumn, Rows, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

OVERLAP = ("overlap", "what spans all")


@dataclass(frozen=True)
class ResidualView:
    """The controls of the residual stream."""

    page: Literal["overlap", "what spans all", "basis", "rotation"] = control("overlap", label="Page", kind="tabs")
    left: Which = control(
        "writes",
        label="What a head",
        tip="What the head of a row does: writes, or reads for q, k or v",
        when="page",
        values=OVERLAP,
    )
    right: Which = control("reads_k", label="against", tip="What the head of a column does", when="page", values=("overlap",))
    seed: int = control(
        0, label="Seed", tip="Seed of the random basis", low=0, high=9999, when="page", values=("basis", "rotation")
    )


def _view(state: State) -> ResidualView:
    return state.view("residual", ResidualView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """What the open page shows."""
    view = _view(state)
    if view.page in OVERLAP:
        if (why := weights_refusal(facts)) is not None:
            return why
        head = leading_head(state, facts)
        if isinstance(head, Why):
            return head
        heads = selected_heads(state, facts)
        first, second = selected_edge(state, facts) or ((heads[1], head) if len(heads) > 1 else (head, head))
        params = SubspaceOverlapParams(view.left, view.right, first, second)
        return {"overlap": Request(subspace_overlap, params, of_weights(state))}
    if not state.tokens:
        return Why("Type some text in the Prompt: the stream is recorded while the model reads it.")
    if view.page == "basis":
        return {"basis": Request(privileged_basis, PrivilegedBasisParams(view.seed), state.subject)}
    return {"rotation": Request(rotation_check, RotationCheckParams(view.seed), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
    view = _view(state)
    if view.page in OVERLAP:
        answer = answers.of("overlap", subspace_overlap)
        return _overlap(answer) if view.page == "overlap" else _spanning(answer)
    if view.page == "basis":
        return _basis(answers.of("basis", privileged_basis))
    return _rotation(answers.of("rotation", rotation_check))


def _names(answer: Answer[SubspaceOverlapResult], shape: tuple[int, ...]) -> tuple[Axis, Axis, np.ndarray]:
    """All heads as axes of rows and of columns, and their ids."""

    def make() -> tuple[Axis, Axis, np.ndarray]:
        layer, head = np.indices(shape).reshape(2, -1)
        names = tuple(head_names(layer, head).tolist())
        return Axis("head", names), Axis("against head", names), ids(layer, head)

    return memo(answer, "names", make)


def _overlap(answer: Answer[SubspaceOverlapResult]) -> Figure:
    result = answer.result
    shape = result.left_rank.shape
    rows, cols, keys = _names(answer, shape)
    values = memo(answer, "matrix", lambda: result.mean_cos2.reshape(shape[0] * shape[1], -1).astype(np.float32))
    params = answer.request.params
    first, second = params.first, params.second
    place = lambda head: head.layer * shape[1] + head.head
    by_rank = float(result.chance[(*first, *second)])
    heat = Heatmap(
        name="overlap",
        values=values,
        levels=(0.0, memo(answer, "top", lambda: top_level(values))),
        unit="mean cos²",
        x=cols,
        y=rows,
        row=place(first),
        col=place(second),
        row_ids=keys,
        col_ids=keys,
    )

    def angles() -> Lines:
        x = np.arange(1, len(result.cosines) + 1, dtype=float)
        chance = np.full_like(x, np.sqrt(by_rank))
        return Lines(
            "angles",
            x,
            np.stack([result.cosines, chance]),
            ("cosine", "√(chance cos²)"),
            dashed=(False, True),
            x_axis=Axis("principal angle"),
            y_axis=Axis("cosine"),
        )

    mean = f"mean cos² {result.mean_cos2[(*first, *second)]:.3f}, chance {by_rank:.3f}"
    mean = mean if np.isfinite(by_rank) else "no angle"
    title = f"{first} {_side(params.left)} · {second} {_side(params.right)}: {mean}"
    return Figure(((heat,), (memo(answer, "angles", angles),)), title, caption(answer), weights=(3.0, 1.2))


def _side(side: Which) -> str:
    """What a head does on one side, in a title."""
    return {"reads_q": "query reads", "reads_k": "key reads", "reads_v": "value reads"}.get(side, side.replace("_", " "))


def _spanning(answer: Answer[SubspaceOverlapResult]) -> Figure:
    result = answer.result
    rows, _, keys = _names(answer, result.left_rank.shape)
    whole = result.weighted.reshape(len(result.weighted_names), -1)
    present = [i for i, row in enumerate(whole) if np.isfinite(row).any()]
    if not present and not answer.complete:
        return Figure(title="What spans all", why_empty="The embeddings are read after the first overlaps of heads.")
    absent = [name for i, name in enumerate(result.weighted_names) if i not in present]
    values = memo(answer, "weighted", lambda: np.ascontiguousarray(whole[present].T, dtype=np.float32))
    columns = memo(answer, "columns", lambda: Axis("", tuple(result.weighted_names[i] for i in present)))
    heat = Heatmap(
        name="spanning",
        values=values,
        levels=(0.0, memo(answer, "highest", lambda: top_level(values))),
        unit="overlap",
        x=columns,
        y=rows,
        row_ids=keys,
        col_ids=memo(answer, "none", lambda: np.zeros((values.shape[1], 0), dtype=np.int64)),
        square=False,
    )
    title = f"what a head {_side(answer.request.params.left)}, against what spans all · chance {result.weighted_baseline:.3f}"
    words = [f"not in this model: {', '.join(absent)}"] if absent else []
    return Figure(((heat,),), title, caption(answer, "weighted by singular values: these span every direction", *words))


def _basis(answer: Answer[PrivilegedBasisResult]) -> Figure:
    result = answer.result

    def dimensions() -> Lines:
        x = np.arange(1, result.kurtosis.shape[1] + 1, dtype=float)
        sort = lambda values: -np.sort(-values)
        ys = np.stack([sort(v) for v in (result.kurtosis[-1], result.control[-1], result.weights, result.weights_control)])
        names = ("last stream", "in a random basis", "weights that write it", "weights, random basis")
        dashed = (False, True, False, True)
        return Lines("dimensions", x, ys, names, dashed=dashed, x_axis=Axis("dimension, by size"), y_axis=Axis("kurtosis"))

    def layers() -> Lines:
        x = np.arange(len(result.token_kurtosis), dtype=float)
        names = ("over dimensions", "in a random basis")
        ys = np.stack([result.token_kurtosis, result.token_control])
        axis = Axis("stream before layer", tuple(str(i) for i in range(len(x))))
        return Lines("layers", x, ys, names, dashed=(False, True), x_axis=axis, y_axis=Axis("kurtosis, mean over positions"))

    marks = ((memo(answer, "dimensions", dimensions),), (memo(answer, "layers", layers),))
    title = f"kurtosis of the stream over {number_of(result.n_positions, 'position')} · 3 for a normal distribution"
    return Figure(marks, title, caption(answer, "above the random basis: the basis is privileged"))


def _rotation(answer: Answer[RotationCheckResult]) -> Figure:
    result = answer.result

    def make() -> Rows:
        columns = (
            RowColumn("model", np.array(result.names, dtype=object)),
            RowColumn("largest |Δ logit|", np.array([number(d, ".2e") for d in result.difference], dtype=object)),
            RowColumn("of the range", np.array([number(d / result.logit_range, ".1e") for d in result.difference], dtype=object)),
        )
        return Rows("rotation", columns, ids(np.arange(len(result.names))))

    title = f"every weight rotated by one random orthogonal matrix · logits span {result.logit_range:.1f}"
    return Figure(((memo(answer, "rows", make),),), title, caption(answer))


def pick(state: State, hit: Hit) -> State:
    """A cell chooses its two heads, a row its head."""
    if not hit.id or hit.gesture not in ("click", "shift-click", "double-click"):
        return state
    if hit.mark == "overlap" and len(hit.id) == 4:
        first, second = Head(*hit.id[:2]), Head(*hit.id[2:])
        if first.layer < second.layer:  # only an earlier head composes with a later one
            return state.with_edge(first, second, state.selection.edge_kind)
        return state.with_heads(*dict.fromkeys((second, first)))
    if hit.mark == "spanning" and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    return state


PANEL = register(
    Panel(
        name="residual",
        title="Residual stream",
        view=ResidualView,
        equation="mean cos² = ‖Q₁ᵀQ₂‖² / d_head over principal angles;  kurtosis = E[(x − μ)⁴] / σ⁴ of each dimension",
        source="Elhage et al. 2021, “Subspaces and residual stream bandwidth”, “Privileged basis”",
        help="Which heads write to subspaces that others read; and whether a rotation of all weights changes the logits.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Attribution has what the direct path adds to each logit",
        area="centre",
        order=110,
    )
)
