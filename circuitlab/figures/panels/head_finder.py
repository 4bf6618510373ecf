"""Head finder: every head by any two scores, coloured by a third, with its control; and all scores of all heads in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from circuitlab.analysis.attention.copying_on_random_tokens import (
    CopyingHeadScoreParams,
    copying_head_score,
)
from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import Analysis
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams, own_tokens
from circuitlab.analysis.circuits.vocabulary_rows import Embedding
from circuitlab.analysis.composition.scores import CompositionParams, composition
from circuitlab.analysis.ordering import descending, head_names
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import captions, has_mlps, head_column, hints, published, rows_of_heads
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Axis, Figure, Hit, Points, RowColumn, Rows, empty, ids
from circuitlab.figures.panels.heads import published_column, random_scores, ranks
from circuitlab.figures.panels.overview import pick_head
from circuitlab.model.subject import Head
from circuitlab.state.state import State

Score = Literal[
    "prefix matching",
    "previous token",
    "duplicate token",
    "first token",
    "current token",
    "entropy",
    "mean distance",
    "copying (repeated)",
    "copying (unrepeated)",
    "OV copying",
    "own token in top 10",
    "own token first",
    "QK positivity",
    "Q-composition, largest",
    "K-composition, largest",
    "V-composition, largest",
    "layer",
]
KINDS = {"Q-composition, largest": "Q", "K-composition, largest": "K", "V-composition, largest": "V"}
TABLE: tuple[Score, ...] = tuple(name for name in get_args(Score) if name != "layer")
SHORT = {
    "prefix matching": "prefix",
    "previous token": "previous",
    "duplicate token": "duplicate",
    "first token": "first",
    "current token": "current",
    "mean distance": "distance",
    "copying (repeated)": "raises attended",
    "copying (unrepeated)": "once",
    "own token in top 10": "own in 10",
    "own token first": "own first",
    "Q-composition, largest": "Q-comp.",
    "K-composition, largest": "K-comp.",
    "V-composition, largest": "V-comp.",
}
TIPS = {
    "prefix matching": "Attention to what followed earlier occurrences of the token",
    "previous token": "Attention to the token before",
    "duplicate token": "Attention to earlier occurrences of the token",
    "first token": "Attention to the first position",
    "current token": "Attention to the token itself",
    "entropy": "Entropy of its attention, nats",
    "mean distance": "How far back it attends, positions",
    "copying (repeated)": "Share of the logits it raises that falls on what it attends to, on repeated random tokens: −1 to 1, "
    "chance near −1",
    "copying (unrepeated)": "The same on random tokens that occur once",
    "OV copying": "Σλ / Σ|λ| of W_E W_OV W_U, from the weights alone: mixtures of tokens count as well",
    "own token in top 10": "Share of tokens that are among the ten largest entries of their own row of W_E W_OV W_U",
    "own token first": "Share of tokens that are the largest entry of their own row",
    "QK positivity": "Σλ / Σ|λ| of W_E W_QK W_Eᵀ",
    "Q-composition, largest": "Largest composition score with any earlier head",
    "K-composition, largest": "Largest composition score with any earlier head",
    "V-composition, largest": "Largest composition score with any earlier head",
}
SIGNED = ("copying (repeated)", "copying (unrepeated)", "OV copying", "QK positivity")
FREE = ("entropy", "mean distance", "layer")  # without a natural upper end: axes start at 0


@dataclass(frozen=True)
class HeadFinderView:
    """The controls of the head finder."""

    page: Literal["plane", "table"] = control(
        "plane", label="", tip="Two scores against each other, or all heads in a table", kind="tabs"
    )
    y: Score = control("prefix matching", label="Up", tip="The score on the vertical axis", when="page", values=("plane",))
    x: Score = control(
        "own token in top 10", label="Right", tip="The score on the horizontal axis", when="page", values=("plane",)
    )
    colour: Score = control("layer", label="Colour", tip="A third score, as colour", when="page", values=("plane",))
    on: Literal["random", "text"] = control("random", label="On", tip="Attention scores on repeated random tokens or the prompt")
    after_mlp: bool = control(
        False,
        label="After the first MLP",
        tip="Tokens as later heads read them: W_E + MLP₀ instead of W_E",
        only=has_mlps,
    )
    top: int = control(200, label="Top", tip="How many heads are shown, the highest first", low=1, high=2000, kind="slider")


def _view(state: State) -> HeadFinderView:
    return state.view("head_finder", HeadFinderView)


def _shown_scores(view: HeadFinderView) -> tuple[Score, ...]:
    return TABLE if view.page == "table" else (view.y, view.x, view.colour)


def role_of(score: str) -> str:
    """The role of the answer that holds a score; "" for the layer, which needs none."""
    if score.startswith("copying"):
        return "copying"
    if score.startswith("own token"):
        return "own"
    return {"layer": "", "OV copying": "weights", "QK positivity": "weights"}.get(
        score, "composition" if score in KINDS else "scores"
    )


def requests(state: State, facts: Facts) -> Requests | Why:
    """What the shown scores need; a score that this model refuses is left out of the table, and leaves the plane empty."""
    view = _view(state)
    if view.on == "text" and not state.tokens:
        return Why("Type some text in the Prompt to score the heads on it.")
    random = random_scores(facts)
    deep = view.after_mlp and has_mlps(facts) and facts.config.n_layers > 1
    embed: Embedding = "after the first MLP" if deep else "tokens"
    subject = state.subject if view.on == "text" else of_weights(state)
    by_role: dict[str, tuple[Analysis[Any, Any], Any]] = {
        "scores": (head_scores, HeadScoresParams(on="text") if view.on == "text" else random),
        "copying": (copying_head_score, CopyingHeadScoreParams()),
        "weights": (copying_scores, CopyingScoresParams(diagonal="none", embed=embed)),
        "composition": (composition, CompositionParams()),
        "own": (own_tokens, OwnTokensParams(embed=embed)),
    }
    allowed: dict[str, Request[Any]] = {}
    for role in dict.fromkeys(filter(None, map(role_of, _shown_scores(view)))):
        analysis, params = by_role[role]
        reason = analysis.refuse(facts.config, HeadScoresParams() if params is None else params)
        if reason is None:
            allowed[role] = Request(analysis, params, subject if role == "scores" else of_weights(state))
        elif view.page == "plane":
            return Why(f"No such score here: {reason} Choose another one above.")
    return allowed or Why("This model has none of these scores: choose the plane, and other scores.")


def values_of(score: str, answers: Answers, facts: Facts) -> np.ndarray | None:
    """[layer, head] of one score; None while its answer has not come."""
    role = role_of(score)
    if not role:
        layers, heads = facts.config.n_layers, facts.config.n_heads
        return np.repeat(np.arange(layers, dtype=float)[:, None], heads, axis=1)
    if role not in answers:
        return None
    if role == "scores":
        return answers.of(role, head_scores).result.of(score.replace(" ", "_"))
    if role == "own":
        own = answers.of(role, own_tokens).result
        return own.top1 if score == "own token first" else own.top10
    if role == "copying":
        return answers.of(role, copying_head_score).result.of("unrepeated" if "unrepeated" in score else "repeated")
    if role == "weights":
        weights = answers.of(role, copying_scores).result
        return weights.copying if score == "OV copying" else weights.qk_positivity
    result = answers.of(role, composition).result
    by_pair = result.scores[result.kinds.index(KINDS[score])]

    def largest() -> np.ndarray:
        largest_scores = np.where(np.isnan(by_pair), -np.inf, by_pair).max(axis=(2, 3))
        return np.where(np.isfinite(largest_scores), largest_scores, np.nan)

    return memo(answers[role], score, largest)


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The plane with the highest heads beside it, or the table."""
    view = _view(state)
    scores: dict[Score, np.ndarray | None] = {name: values_of(name, answers, facts) for name in _shown_scores(view)}
    if view.page == "table":
        return _table(state, facts, answers, {name: values for name, values in scores.items() if values is not None})
    y, x, colour = (scores[name] for name in (view.y, view.x, view.colour))
    if y is None or x is None or colour is None:
        return Figure(title="Head finder")
    y, x, colour = (np.where(np.isfinite(v), v, np.nan) for v in (y, x, colour))
    if np.isnan(x + y).all():
        return empty("No head has both scores on this text: choose others, or On random.", "Head finder")
    order = descending(y)
    order = order[np.isfinite((x + y).ravel()[order])]
    top = order[: max(1, view.top)]
    layer, head = np.unravel_index(top, y.shape)
    names = tuple(head_names(layer, head).tolist())
    keys = ids(layer, head)
    controls = _controls(view, answers, x, y, top)
    low, high = _range(colour.ravel()[top])
    points = Points(
        name="plane",
        x=x.ravel()[top],
        y=y.ravel()[top],
        ids=keys,
        labels=names,
        tips=tuple(_tip(names[i], view, x, y, colour, int(k), hints(facts)) for i, k in enumerate(top)),
        values=colour.ravel()[top].astype(np.float32),
        levels=(low - 0.5 * (high - low), high),  # so that the lowest is visible against the paper
        chosen=rows_of_heads(state, keys),
        x_axis=Axis(view.x),
        y_axis=Axis(view.y),
        sight=(*_ends(view.x, facts), *_ends(view.y, facts)),
        controls=controls,
    )
    colour_words = f"colour: {view.colour}, {number(low, '.3g')} (faint) to {number(high, '.3g')} (strong)"
    rings = "" if controls is None else "ring: the control, joined to its head"
    notes = (
        colour_words,
        rings,
        *_notes((view.x, view.y, view.colour), answers),
        "a score is a hint, not a mechanism",
        published(facts),
    )
    text = captions(tuple(answers.values()), *notes)
    shown = (len(top), y.size) if len(top) < y.size else None
    return Figure(((points,),), _title(state, view, x, y), text, shown)


def control_of(score: str, answers: Answers) -> np.ndarray | None:
    """[layer, head]: the same score on unrepeated tokens, None where a score has no such control."""
    if role_of(score) != "scores" or "scores" not in answers:
        return None
    result = answers.of("scores", head_scores).result
    control = result.control[result.names.index(score.replace(" ", "_"))]
    return None if np.isnan(control).all() else control


def _controls(view: HeadFinderView, answers: Answers, x: np.ndarray, y: np.ndarray, top: np.ndarray) -> np.ndarray | None:
    """[head, 2]: each head's control values (x, y); along an axis without a control the head's own value."""
    ends = control_of(view.x, answers), control_of(view.y, answers)
    if all(end is None for end in ends):
        return None
    return np.stack([(v if c is None else c).ravel()[top] for c, v in zip(ends, (x, y), strict=True)], axis=1).astype(float)


def _ends(score: str, facts: Facts) -> tuple[float, float]:
    """The range of an axis that is always in view: the whole range of the score, or enough to tell heads from noise."""
    if score in SIGNED:
        return -1.0, 1.0
    if score in FREE:
        return 0.0, float(max(1, facts.config.n_layers - 1)) if score == "layer" else 1.0
    return (0.0, 0.5) if score in KINDS else (0.0, 1.0)


def _notes(scores: tuple[str, ...], answers: Answers) -> tuple[str, ...]:
    """Caption parts that some scores need: the chance level of the own-token scores."""
    if not any(score.startswith("own token") for score in scores) or "own" not in answers:
        return ()
    own = answers.of("own", own_tokens).result
    return (f"own token: chance {number(own.chance10, '.4f')} in the top 10, {number(own.chance1, '.5f')} first",)


def _range(values: np.ndarray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0


def _tip(
    name: str,
    view: HeadFinderView,
    x: np.ndarray,
    y: np.ndarray,
    colour: np.ndarray,
    i: int,
    published_names: Mapping[tuple[int, int], str],
) -> str:
    parts = dict(zip((view.y, view.x, view.colour), (y, x, colour), strict=True))
    score_words = [f"{score} {number(values.ravel()[i], '.3g')}" for score, values in parts.items()]
    return " · ".join(filter(None, (name, *score_words, published_names.get(divmod(i, x.shape[1]), ""))))


def _title(state: State, view: HeadFinderView, x: np.ndarray, y: np.ndarray) -> str:
    """The leading head with its value and rank on both axes."""
    head = state.selection.head
    if not (head.layer < y.shape[0] and head.head < y.shape[1]):
        return "Head finder"
    both = {view.y: y, view.x: x}
    score_words = [f"{name} {number(v[head])} (rank {ranks(v)[head]})" for name, v in both.items() if np.isfinite(v[head])]
    return f"{head} · " + (" · ".join(score_words) or "not scored") + f" · {number_of(y.size, 'head')}"


def _table(state: State, facts: Facts, answers: Answers, scores: dict[Score, np.ndarray]) -> Figure:
    """All scores that have been computed, one row a head, sortable by any column."""
    if not scores:
        return Figure(title="Head finder")
    lead = next(iter(scores.values()))
    layers, view = facts.config.n_layers, _view(state)
    order = descending(lead)[: max(1, view.top)]
    layer, head = np.unravel_index(order, lead.shape)
    depth = np.array([f"{int(i) + 1} / {layers}" for i in layer], dtype=object)
    columns = [head_column(layer, head), RowColumn("layer", depth, tip="Depth, counted from 1")]
    for name, values in scores.items():
        flat, bar = values.ravel()[order], name == "prefix matching"
        columns += [RowColumn(SHORT.get(name, name), flat, digits=2, bar=bar, levels=(0.0, 1.0), tip=TIPS[name])]
        if name == "prefix matching" and (other := control_of(name, answers)) is not None:
            columns += [RowColumn("control", other.ravel()[order], digits=2, tip="Prefix matching where no token is repeated")]
    columns += published_column(facts.known_heads(), layer, head)
    keys = ids(layer, head)
    rows = Rows("table", tuple(columns), keys, chosen=rows_of_heads(state, keys), sort=(2, "down"), ranked=True, total=lead.size)
    by_role = requests(state, facts)
    refused = isinstance(by_role, Why) or any(role_of(score) not in by_role for score in TABLE)
    missing = "left out: scores that this model's weights do not allow" if refused else ""
    return Figure(
        ((rows,),),
        f"{number_of(lead.size, 'head')}, {number_of(len(scores), 'score')}",
        captions(tuple(answers.values()), missing, *_notes(TABLE, answers), published(facts)),
    )


def pick(state: State, hit: Hit) -> State:
    """A point or a row chooses its head."""
    if hit.mark in ("plane", "table") and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    return state


assert set(get_args(Score)) >= set(TABLE)

PANEL = register(
    Panel(
        name="head_finder",
        title="Head finder",
        view=HeadFinderView,
        equation="prefix matching: Σ_{s ≤ d, t_{s−1} = t_d} A[d,s];  copying: 2 · Σ_s A[d,s] ℓ_d[t_s] / Σ_t ℓ_d[t] − 1",
        source="Olsson et al. 2022, In-context Learning and Induction Heads; Elhage et al. 2021 for OV copying and composition",
        help=(
            "Every head is a point. Choose a score for each axis and one for the colour: what a head attends to on repeated "
            "random tokens, whether it copies (own tokens in the rows of its OV circuit, or the circuit's eigenvalues), how "
            "strongly it composes with an earlier head. A ring marks the same head on tokens that are not repeated: only a "
            "score far from its ring is about repetition. Heads with high values on two scores are candidates: an induction "
            "head has high prefix matching and raises the tokens that it attends to. Hover a point for its values; a click "
            "chooses it everywhere. The second page has all scores of all heads; a click on a column's name sorts by it.\n\n"
            "“copying (repeated)” is the measure of Olsson et al.: of all that a head raises among the tokens of the prompt, the "
            "share that falls on what it attends to, rescaled to −1 to 1. Chance is not 0: a head whose logits are unrelated to "
            "its attention gives the attended token one share in as many as there are different tokens (26: −0.92). Nor does a "
            "real head reach 1: each of the twenty-five other tokens is raised a little, which adds up, and a head with a third "
            "of all that it raises on its target has −0.33. Compare heads of one model with each other by it, not with 0."
        ),
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        of_heads=True,
        instead="Models side by side has its loss beside those of models that have some",
        area="left",
        order=45,
        opens="attention",
    )
)
