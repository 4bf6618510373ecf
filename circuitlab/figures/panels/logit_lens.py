"""Logit lens: what the model would predict if it stopped after each layer, and the norm of the stream there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.logit_lens import LogitLensParams, LogitLensResult, logit_lens
from circuitlab.analysis.attribution.residual_norms import ResidualNormsParams, ResidualNormsResult, residual_norms
from circuitlab.counting import probability
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import (
    caption,
    destination,
    equal_column,
    pick_position,
    prompt_of,
    quoted,
    texts,
    token_at,
    top_level,
)
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.marks import Axis, ColourMap, Figure, Heatmap, Hit, Lines, RowColumn, Rows, ids
from circuitlab.model.subject import Target
from circuitlab.state.state import State

Colour = Literal["probability", "rank", "entropy", "divergence"]
Statistics = Literal["each layer's own", "the final layer's"]
TOP = 5
COLOURS = {
    "probability": "probability of the token that follows",
    "rank": "rank of the token that follows, log scale",
    "entropy": "entropy",
    "divergence": "divergence of the final prediction from this one (KL)",
}
GRID = ("grid",)


@dataclass(frozen=True)
class LogitLensView:
    """The controls of the logit lens."""

    page: Literal["grid", "norms"] = control("grid", label="Page", kind="tabs")
    colour: Colour = control(
        "probability",
        label="Colour",
        tip="Of the token that really follows: probability or rank. Of all tokens: entropy, or divergence from the end",
        when="page",
        values=GRID,
    )
    positions: int = control(
        14,
        label="Positions",
        tip="How many positions are shown, the selected one among them",
        low=1,
        high=4096,
        when="page",
        values=GRID,
    )
    between: bool = control(False, label="Between", tip="Also the stream between attention and MLP", when="page", values=GRID)
    statistics: Statistics = control(
        "each layer's own",
        label="Norm",
        tip="Whose statistics the final norm uses: the layer's own, or those recorded at the end (then layers add up)",
        when="page",
        values=GRID,
    )


def _view(state: State) -> LogitLensView:
    return state.view("logit_lens", LogitLensView)


def window(state: State, positions: int) -> tuple[int, int]:
    """First and last position of the page of `positions` that holds the selected one: hovering within it needs no request."""
    n, width = len(state.tokens), max(1, positions)
    first = destination(state) // width * width
    first = max(0, min(first, n - width))
    return first, min(first + width, n) - 1


def requests(state: State, facts: Facts) -> Requests | Why:
    """The lens on the positions that are shown, or the norms."""
    view = _view(state)
    if view.page == "norms":
        return {"norms": Request(residual_norms, ResidualNormsParams(), state.subject)}
    params = LogitLensParams(window(state, view.positions), TOP, view.between, view.statistics, state.selection.target)
    return {"lens": Request(logit_lens, params, state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
    view = _view(state)
    if view.page == "norms":
        return _norms(state, facts, answers.of("norms", residual_norms))
    return _grid(state, facts, view, answers.of("lens", logit_lens))


def _coloured(result: LogitLensResult, colour: Colour) -> np.ndarray:
    """[stage, pos], the last stage on top."""
    if colour == "rank":
        with np.errstate(divide="ignore"):
            values = np.where(result.rank > 0, np.log10(np.maximum(result.rank, 1)), np.nan)
    else:
        values = {"probability": np.exp(result.log_prob), "entropy": result.entropy, "divergence": result.kl}[colour]
    return np.ascontiguousarray(values[::-1], dtype=np.float32)


def _axes(result: LogitLensResult, facts: Facts, tokens: tuple[int, ...]) -> tuple[Axis, Axis]:
    first = int(result.positions[0])
    names = facts.tokens(tuple(tokens[p] for p in result.positions))
    x = Axis("after", names, tokens=True) if first == 0 else Axis("after", tuple(f"{first + i} {t}" for i, t in enumerate(names)))
    return x, Axis("stage", tuple(result.stages[::-1]))


def _grid(state: State, facts: Facts, view: LogitLensView, answer: Answer[LogitLensResult]) -> Figure:
    result, tokens = answer.result, prompt_of(answer)
    values = memo(answer, ("values", view.colour), lambda: _coloured(result, view.colour))
    x, y = memo(answer, ("axes", tokens), lambda: _axes(result, facts, tokens))
    places = np.flatnonzero(result.positions == destination(state))
    at = int(places[0]) if places.size else len(result.positions) - 1
    heat = Heatmap(
        name="lens",
        values=values,
        levels=(0.0, memo(answer, ("top", view.colour), lambda: top_level(values))),
        map=_map(view.colour),
        unit={"probability": "p", "rank": "log₁₀ rank"}.get(view.colour, "nats"),
        x=x,
        y=y,
        col=at,
        square=False,
        row_ids=memo(answer, "stages", lambda: ids(np.arange(len(result.stages))[::-1])),
        col_ids=memo(answer, "columns", lambda: ids(result.positions)),
        texts=memo(answer, "texts", lambda: _top_texts(result, facts)),
    )
    targeted = answer.request.params.target != Target()
    rows = memo(answer, ("table", at, targeted), lambda: _table(result, facts, at, targeted))
    shown = (len(result.positions), len(tokens)) if len(result.positions) < len(tokens) else None
    reading = f"colour: {COLOURS[view.colour]}, cells: the most probable token"
    return Figure(((heat,), (rows,)), _title(answer, facts, at), caption(answer, reading), shown, weights=(1.7, 1.0))


def _map(colour: Colour) -> ColourMap:
    return "magnitude" if colour == "probability" else "loss"


def _top_texts(result: LogitLensResult, facts: Facts) -> np.ndarray:
    """[stage, pos] the most probable token, the last stage on top; empty where nothing is computed."""
    token_texts = {int(i): facts.token_text(int(i)) for i in np.unique(result.ids[..., 0]) if i >= 0}
    top = result.ids[::-1, :, 0]
    return np.array([[token_texts.get(int(i), "") for i in row] for row in top], dtype=object)


def _title(answer: Answer[LogitLensResult], facts: Facts, at: int) -> str:
    result = answer.result
    after = f"after {token_at(int(result.positions[at]), prompt_of(answer), facts)}"
    if result.actual[at] < 0:
        return f"{after}: end of the prompt, nothing follows"
    follows = quoted(facts.token_text(int(result.actual[at])))
    if (result.rank[:, at] < 1).any():
        return f"{after}: {follows} follows"
    leads = np.flatnonzero((result.rank[:, at] == 1) & (result.equal[:, at] < 2))
    since = f"first at {result.stages[leads[0]]}" if leads.size else "never first"
    return f"{after}: {follows} follows, {since}"


def _table(result: LogitLensResult, facts: Facts, at: int, targeted: bool) -> Rows:
    """The selected position, one row a stage, the last on top; `targeted`: with a column of the target's logit."""
    back = slice(None, None, -1)
    by_rank = [_tokens_of_rank(result, facts, at, i) for i in range(result.ids.shape[2])]
    columns = (
        RowColumn("stage", np.array(result.stages[::-1], dtype=object)),
        RowColumn(
            "p", np.exp(result.log_prob[back, at]), digits=3, tip="probability of the token that follows", reads="probability"
        ),
        RowColumn("rank", _or_empty(result.rank[back, at]), digits=0, tip="of the token that follows"),
        *equal_column(result.equal[back, at]),
        RowColumn("entropy", result.entropy[back, at], digits=2, tip="nats"),
        RowColumn("KL", result.kl[back, at], digits=2, tip="KL divergence of the final prediction from this one, nats"),
    )
    if targeted:
        columns += (RowColumn("target", result.value[back, at], digits=2, tip="what is measured, at this stage, in logits"),)
    likely = np.array(["  ".join(row) for row in zip(*by_rank, strict=True)], dtype=object)
    columns += (RowColumn("most probable", likely, tokens=True, tip="tokens and their probabilities"),)
    return Rows("stages", columns, ids(np.arange(len(result.stages))[::-1]))


def _tokens_of_rank(result: LogitLensResult, facts: Facts, at: int, i: int) -> np.ndarray:
    """[stage] the token of rank i + 1 and its probability, the last stage on top; empty where nothing is computed."""
    tokens, probabilities = result.ids[::-1, at, i], result.probs[::-1, at, i]
    pairs = zip(texts(np.maximum(tokens, 0), facts), probabilities, tokens, strict=True)
    return np.array([f"{name} {probability(p, 2)}" if token >= 0 else "" for name, p, token in pairs], dtype=object)


def _or_empty(rank: np.ndarray) -> np.ndarray:
    return np.where(rank > 0, rank.astype(float), np.nan)


def _norms(state: State, facts: Facts, answer: Answer[ResidualNormsResult]) -> Figure:
    result, tokens = answer.result, prompt_of(answer)
    at = destination(state)

    def lines() -> Lines:
        x = np.arange(len(result.stages), dtype=float)
        own = f"after {token_at(at, tokens, facts)}"
        ys = np.stack([result.stream[:, at], result.stream.mean(axis=1)]).astype(float)
        axis = Axis("stage", result.stages)
        return Lines("stream", x, ys, (own, "mean over positions"), dashed=(False, True), x_axis=axis, y_axis=Axis("length"))

    def rows() -> Rows:
        top = top_level(result.added)
        columns = (
            RowColumn("adds", np.array(result.components, dtype=object)),
            RowColumn("length", result.added[:, at], digits=2, bar=True, levels=(0.0, top), tip="length of what it adds here"),
            RowColumn("mean", result.added.mean(axis=1), digits=2, tip="mean over positions"),
            RowColumn(
                "cosine", result.cosine[:, at], digits=2, map="signed", levels=(-1.0, 1.0), tip="with the stream it is added to"
            ),
        )
        return Rows("added", columns, ids(np.arange(len(result.components))))

    curves, table = memo(answer, ("lines", at, tokens), lines), memo(answer, ("rows", at), rows)
    title = f"the stream is {result.stream[0, at]:.1f} long at the start, {result.stream[-1, at]:.1f} at the end"
    return Figure(((curves,), (table,)), title, caption(answer), weights=(1.4, 1.0))


def pick(state: State, hit: Hit) -> State:
    """A column of the grid is a position: hover reads it, a click locks it."""
    if hit.mark != "lens":
        return state
    return pick_position(state, Hit(hit.mark, hit.id[1:], hit.gesture))


PANEL: Panel = register(
    Panel(
        name="logit_lens",
        title="Logit lens",
        view=LogitLensView,
        equation="p_stage = softmax(norm(x_stage) W_U + b_U), x_stage [pos, d_model] the stream at that stage",
        source="nostalgebraist 2020, interpreting GPT: the logit lens; divergence: Belrose et al. 2023",
        help="Rows are stages of the model, the last on top; columns are positions. A cell holds the token that the model would "
        "find most probable if it stopped there; its colour says how the token that really follows stands. Click a column to "
        "read it below. Norms: the length of the stream at each stage, and what each part adds to it, in length and direction.",
        needs_tokens="Type some text in the Prompt to see what each layer would predict.",
        requests=requests,
        draw=draw,
        pick=pick,
        area="bottom",
        order=124,
    )
)
