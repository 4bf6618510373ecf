"""Head finder: every head by any two scores, coloured by a third, with its control; and all scores of all heads in one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from circuitlab.analysis.attention.copying_on_random_tokens import (
    CopyingHeadScoreParams,
    copying_head_score,
)
from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import AnyAnalysis, Result
from circuitlab.analysis.circuits.own_tokens import OWN, OwnTokensParams, own_tokens
from circuitlab.analysis.circuits.token_readings import Embedding
from circuitlab.analysis.composition.scores import CompositionParams, composition
from circuitlab.analysis.ordering import descending, head_names
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import captions, has_mlps, head_column, hints, published, rows_of_heads
from circuitlab.figures.contracts.heads import head_rank, pick_head, published_column
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import EDITED, EDITED_TIP, of_own_texts, of_weights
from circuitlab.figures.marks import Axis, Figure, Hit, Points, RowColumn, Rows, empty, ids
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
Role = Literal["scores", "copying", "weights", "composition", "own", ""]
SIGNED, SHARE, SMALL = (-1.0, 1.0), (0.0, 1.0), (0.0, 0.5)


@dataclass(frozen=True)
class Scored:
    """One score of every head: the role of the answer that holds it, "" for the layer, which needs none; what it is called
    there; for the table its header, "" for its name, and its tip; the range of an axis that is always in view.
    """

    role: Role
    entry: str = ""
    short: str = ""
    tip: str = ""
    ends: tuple[float, float] = SHARE


RAISED = "Share of the logits it raises that falls on what it attends to, on repeated random tokens: −1 to 1, chance near −1"
EARLIER = "Largest composition score with any earlier head"
SCORES: dict[Score, Scored] = {
    "prefix matching": Scored(
        "scores", "prefix_matching", "prefix", "Attention to what followed earlier occurrences of the token"
    ),
    "previous token": Scored("scores", "previous_token", "previous", "Attention to the token before"),
    "duplicate token": Scored("scores", "duplicate_token", "duplicate", "Attention to earlier occurrences of the token"),
    "first token": Scored("scores", "first_token", "first", "Attention to the first position"),
    "current token": Scored("scores", "current_token", "current", "Attention to the token itself"),
    "entropy": Scored("scores", "entropy", tip="Entropy of its attention, nats"),
    "mean distance": Scored("scores", "mean_distance", "distance", "How far back it attends, positions"),
    "copying (repeated)": Scored("copying", "repeated", "raises attended", RAISED, SIGNED),
    "copying (unrepeated)": Scored("copying", "unrepeated", "once", "The same on random tokens that occur once", SIGNED),
    "OV copying": Scored(
        "weights", "copying", "", "Σλ / Σ|λ| of W_E W_OV W_U, from the weights alone: mixtures of tokens count as well", SIGNED
    ),
    "own token in top 10": Scored(
        "own", "top10", "own in 10", "Share of tokens that are among the ten largest entries of their own row of W_E W_OV W_U"
    ),
    "own token first": Scored("own", "top1", "own first", "Share of tokens that are the largest entry of their own row"),
    "QK positivity": Scored("weights", "qk_positivity", "", "Σλ / Σ|λ| of W_E W_QK W_Eᵀ", SIGNED),
    "Q-composition, largest": Scored("composition", "Q", "Q-comp.", EARLIER, SMALL),
    "K-composition, largest": Scored("composition", "K", "K-comp.", EARLIER, SMALL),
    "V-composition, largest": Scored("composition", "V", "V-comp.", EARLIER, SMALL),
    "layer": Scored(""),
}
CALLED: dict[str, str] = {
    "scores": "attention scores",
    "copying": "copying (repeated, unrepeated)",
    "weights": "OV copying, QK positivity",
    "composition": "composition",
    "own": OWN,
}
TABLE: tuple[Score, ...] = tuple(name for name, score in SCORES.items() if score.role)


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
    edited: bool = control(False, label=EDITED, tip=EDITED_TIP, when="on", values=("random",))
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


def short(name: Score) -> str:
    """Its header in the table."""
    return SCORES[name].short or name


def _analyses(view: HeadFinderView, facts: Facts, edited: bool = False) -> dict[str, tuple[AnyAnalysis, object]]:
    """By role of the shown scores: the analysis that has them, and its parameters. `edited`: attention with interventions."""
    deep = view.after_mlp and has_mlps(facts) and facts.config.n_layers > 1
    embed: Embedding = "after the first MLP" if deep else "tokens"
    by_role: dict[str, tuple[AnyAnalysis, object]] = {
        "scores": (head_scores, HeadScoresParams(on=view.on, edited=edited)),
        "copying": (copying_head_score, CopyingHeadScoreParams()),
        "weights": (copying_scores, CopyingScoresParams(diagonal="none", embed=embed)),
        "composition": (composition, CompositionParams()),
        "own": (own_tokens, OwnTokensParams(embed=embed)),
    }
    roles = dict.fromkeys(SCORES[name].role for name in _shown_scores(view))
    return {role: by_role[role] for role in roles if role}


def _refusals(view: HeadFinderView, facts: Facts) -> dict[str, str]:
    """By role: why this model refuses it."""
    reasons = {role: one.refuse(facts.config, params) for role, (one, params) in _analyses(view, facts).items()}
    return {role: reason for role, reason in reasons.items() if reason is not None}


def requests(state: State, facts: Facts) -> Requests | Why:
    """What the shown scores need; a score that this model refuses is left out of the table, and leaves the plane empty."""
    view = _view(state)
    if view.on == "text" and not state.tokens:
        return Why("Type some text in the Prompt to score the heads on it.")
    refused = _refusals(view, facts)
    if refused and view.page == "plane":
        return Why(f"No such score here: {next(iter(refused.values()))} Choose another one above.")
    on_random, edited = of_own_texts(state, view.edited and view.on == "random")
    subjects = {"scores": state.subject if view.on == "text" else on_random}
    analyses = _analyses(view, facts, edited).items()
    asked = {role: Request(*of, subjects.get(role, of_weights(state))) for role, of in analyses if role not in refused}
    return asked or Why("This model has none of these scores: choose the plane, and other scores.")


def values_of(name: Score, answers: Answers, facts: Facts) -> np.ndarray | None:
    """[layer, head] of one score; None while its answer has not come."""
    score = SCORES[name]
    if not score.role:
        layers, heads = facts.config.n_layers, facts.config.n_heads
        return np.repeat(np.arange(layers, dtype=float)[:, None], heads, axis=1)
    if score.role not in answers:
        return None
    match score.role:
        case "scores":
            return answers.of(score.role, head_scores).result.of(score.entry)
        case "own":
            own = answers.of(score.role, own_tokens).result
            return own.top1 if score.entry == "top1" else own.top10
        case "copying":
            return answers.of(score.role, copying_head_score).result.of(score.entry)
        case "weights":
            weights = answers.of(score.role, copying_scores).result
            return weights.copying if score.entry == "copying" else weights.qk_positivity
        case "composition":
            result = answers.of(score.role, composition).result
            by_pair = result.scores[result.kinds.index(score.entry)]

    def largest() -> np.ndarray:
        largest_scores = np.where(np.isnan(by_pair), -np.inf, by_pair).max(axis=(2, 3))
        return np.where(np.isfinite(largest_scores), largest_scores, np.nan)

    return memo(answers[score.role], name, largest)


def _named(answers: Answers) -> dict[str, Answer[Result]]:
    """The answers by the scores that they give, for the caption."""
    return {CALLED[role]: answer for role, answer in answers.items()}


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
    text = captions(_named(answers), *notes)
    shown = (len(top), y.size) if len(top) < y.size else None
    return Figure(((points,),), _title(state, view, x, y), text, shown)


def control_of(name: Score, answers: Answers) -> np.ndarray | None:
    """[layer, head]: the same score on unrepeated tokens, None where a score has no such control."""
    if SCORES[name].role != "scores" or "scores" not in answers:
        return None
    result = answers.of("scores", head_scores).result
    control = result.control[result.names.index(SCORES[name].entry)]
    return None if np.isnan(control).all() else control


def _controls(view: HeadFinderView, answers: Answers, x: np.ndarray, y: np.ndarray, top: np.ndarray) -> np.ndarray | None:
    """[head, 2]: each head's control values (x, y); along an axis without a control the head's own value."""
    ends = control_of(view.x, answers), control_of(view.y, answers)
    if all(end is None for end in ends):
        return None
    return np.stack([(v if c is None else c).ravel()[top] for c, v in zip(ends, (x, y), strict=True)], axis=1).astype(float)


def _ends(name: Score, facts: Facts) -> tuple[float, float]:
    """The range of an axis that is always in view: the whole range of the score, or enough to tell heads from noise."""
    return (0.0, float(max(1, facts.config.n_layers - 1))) if name == "layer" else SCORES[name].ends


def _notes(names: tuple[Score, ...], answers: Answers) -> tuple[str, ...]:
    """Caption parts that some scores need: the chance level of the own-token scores."""
    if not any(SCORES[name].role == "own" for name in names) or "own" not in answers:
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
    score_words = [
        f"{name} {number(v[head])} ({head_rank(v, head, among=False)})" for name, v in both.items() if np.isfinite(v[head])
    ]
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
        columns += [RowColumn(short(name), flat, digits=2, bar=bar, levels=(0.0, 1.0), tip=SCORES[name].tip)]
        if name == "prefix matching" and (other := control_of(name, answers)) is not None:
            columns += [RowColumn("control", other.ravel()[order], digits=2, tip="Prefix matching where no token is repeated")]
    columns += published_column(facts.known_heads(), layer, head)
    keys = ids(layer, head)
    rows = Rows("table", tuple(columns), keys, chosen=rows_of_heads(state, keys), sort=(2, "down"), ranked=True, total=lead.size)
    missing = "left out: scores that this model's weights do not allow" if _refusals(view, facts) else ""
    return Figure(
        ((rows,),),
        f"{number_of(lead.size, 'head')}, {number_of(len(scores), 'score')}",
        captions(_named(answers), missing, *_notes(TABLE, answers), published(facts)),
    )


def pick(state: State, hit: Hit) -> State:
    """A point or a row chooses its head."""
    if hit.mark in ("plane", "table") and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    return state


assert set(get_args(Score)) == set(SCORES)

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
