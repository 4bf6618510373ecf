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
from circuitlab.counting import number_of
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import captions, has_mlps, head_column, hints, published, rows_of_heads
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Axis, Figure, Hit, Points, RowColumn, Rows, empty, ids
from circuitlab.figures.panels.heads import published_column, random_scores, ranks
from circuitlab.figures.panels.overview import pick_head
from circuitlab.model.subject import Head
from circuitlab.session.state import State

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
    "entropy": "Of its attention, nats",
    "mean distance": "How far back it looks, positions",
    "copying (repeated)": "Share of what it raises that it attends to, on repeated random tokens: −1 to 1, chance near −1",
    "copying (unrepeated)": "The same on random tokens that occur once",
    "OV copying": "Σλ / Σ|λ| of W_E W_OV W_U, from the weights alone: of mixtures of tokens",
    "own token in top 10": "Share of tokens that stand among the ten largest of their own row of W_E W_OV W_U",
    "own token first": "Share of tokens that are the largest of their own row",
    "QK positivity": "Σλ / Σ|λ| of W_E W_QK W_Eᵀ",
    "Q-composition, largest": "With any earlier head",
    "K-composition, largest": "With any earlier head",
    "V-composition, largest": "With any earlier head",
}
SIGNED = ("copying (repeated)", "copying (unrepeated)", "OV copying", "QK positivity")
FREE = ("entropy", "mean distance", "layer")  # without an end that means something: drawn from 0


@dataclass(frozen=True)
class HeadFinderView:
    """The controls of the head finder."""

    page: Literal["plane", "table"] = control("plane", label="", tip="Two scores, or all heads in a table", kind="tabs")
    y: Score = control("prefix matching", label="Up", tip="The score that points stand high by", when="page", values=("plane",))
    x: Score = control("own token in top 10", label="Right", tip="The other score", when="page", values=("plane",))
    colour: Score = control("layer", label="Colour", tip="A third score", when="page", values=("plane",))
    on: Literal["random", "text"] = control("random", label="On", tip="Attention scores on repeated random tokens or the prompt")
    after_mlp: bool = control(
        False,
        label="After the first MLP",
        tip="What the weights say of tokens as later heads meet them: W_E + MLP₀",
        only=has_mlps,
    )
    top: int = control(200, label="Top", tip="How many heads, the highest first", low=1, high=2000, kind="slider")


def _view(state: State) -> HeadFinderView:
    return state.view("head_finder", HeadFinderView)


def _shown(view: HeadFinderView) -> tuple[Score, ...]:
    return TABLE if view.page == "table" else (view.y, view.x, view.colour)


def role_of(score: str) -> str:
    """Which answer a score is read from; "" for the layer."""
    if score.startswith("copying"):
        return "copying"
    if score.startswith("own token"):
        return "own"
    return {"layer": "", "OV copying": "weights", "QK positivity": "weights"}.get(
        score, "composition" if score in KINDS else "scores"
    )


def requests(state: State, facts: Facts) -> Requests | Why:
    """What the shown scores need; one that this model refuses is left out of the table and is the reason for no plane."""
    view = _view(state)
    if view.on == "text" and not state.tokens:
        return Why("Type some text in the Prompt to score the heads on it.")
    random = random_scores(facts)
    deep = view.after_mlp and has_mlps(facts) and facts.config.n_layers > 1
    embed: Embedding = "after the first MLP" if deep else "tokens"
    subject = state.subject if view.on == "text" else of_weights(state)
    wanted: dict[str, tuple[Analysis[Any, Any], Any]] = {
        "scores": (head_scores, HeadScoresParams(on="text") if view.on == "text" else random),
        "copying": (copying_head_score, CopyingHeadScoreParams()),
        "weights": (copying_scores, CopyingScoresParams(diagonal="none", embed=embed)),
        "composition": (composition, CompositionParams()),
        "own": (own_tokens, OwnTokensParams(embed=embed)),
    }
    asked: dict[str, Request[Any]] = {}
    for role in dict.fromkeys(filter(None, map(role_of, _shown(view)))):
        analysis, params = wanted[role]
        reason = analysis.refuse(facts.config, HeadScoresParams() if params is None else params)
        if reason is None:
            asked[role] = Request(analysis, params, subject if role == "scores" else of_weights(state))
        elif view.page == "plane":
            return Why(f"No such score here: {reason} Choose another one above.")
    return asked or Why("This model has none of these scores: choose the plane, and other scores.")


def values_of(score: str, answers: Answers, facts: Facts) -> np.ndarray | None:
    """[layer, head] of one score; None while it is not there."""
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
    found = result.scores[result.kinds.index(KINDS[score])]

    def largest() -> np.ndarray:
        most = np.where(np.isnan(found), -np.inf, found).max(axis=(2, 3))
        return np.where(np.isfinite(most), most, np.nan)

    return memo(answers[role], score, largest)


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The plane with the highest heads beside it, or the table."""
    view = _view(state)
    found: dict[Score, np.ndarray | None] = {name: values_of(name, answers, facts) for name in _shown(view)}
    if view.page == "table":
        return _table(state, facts, answers, {k: v for k, v in found.items() if v is not None})
    y, x, colour = (found[name] for name in (view.y, view.x, view.colour))
    if y is None or x is None or colour is None:
        return Figure(title="Head finder")
    y, x, colour = (np.where(np.isfinite(v), v, np.nan) for v in (y, x, colour))
    if np.isnan(x + y).all():
        return empty("No head has both scores on this text: choose others, or On random.", "Head finder")
    order = descending(y)
    order = order[np.isfinite((x + y).ravel()[order])]
    kept = order[: max(1, view.top)]
    layer, head = np.unravel_index(kept, y.shape)
    names = tuple(head_names(layer, head).tolist())
    keys = ids(layer, head)
    picked = rows_of_heads(state, keys)
    controls = _controls(view, answers, x, y, kept)
    low, high = _range(colour.ravel()[kept])
    points = Points(
        name="plane",
        x=x.ravel()[kept],
        y=y.ravel()[kept],
        ids=keys,
        labels=names,
        tips=tuple(_tip(names[i], view, x, y, colour, int(k), hints(facts)) for i, k in enumerate(kept)),
        values=colour.ravel()[kept].astype(np.float32),
        levels=(low - 0.5 * (high - low), high),  # the lowest is still seen against the paper
        chosen=picked,
        x_axis=Axis(view.x),
        y_axis=Axis(view.y),
        sight=(*_ends(view.x, facts), *_ends(view.y, facts)),
        controls=controls,
    )
    said = f"colour: {view.colour}, {low:.3g} (faint) to {high:.3g} (strong)"
    rings = "" if controls is None else "ring: the control, joined to its head"
    notes = (said, rings, *_notes((view.x, view.y, view.colour), answers), "a score is a hint, not a mechanism", published(facts))
    text = captions(tuple(answers.values()), *notes)
    shown = (len(kept), y.size) if len(kept) < y.size else None
    return Figure(((points,),), _title(state, view, x, y), text, shown)


def control_of(score: str, answers: Answers) -> np.ndarray | None:
    """[layer, head]: the same score on its control, None where it has none."""
    if role_of(score) != "scores" or "scores" not in answers:
        return None
    result = answers.of("scores", head_scores).result
    control = result.control[result.names.index(score.replace(" ", "_"))]
    return None if np.isnan(control).all() else control


def _controls(view: HeadFinderView, answers: Answers, x: np.ndarray, y: np.ndarray, kept: np.ndarray) -> np.ndarray | None:
    """[head, 2]: where the control puts each head; along an axis without a control it stands where the head stands."""
    ends = control_of(view.x, answers), control_of(view.y, answers)
    if all(end is None for end in ends):
        return None
    return np.stack([(v if c is None else c).ravel()[kept] for c, v in zip(ends, (x, y), strict=True)], axis=1).astype(float)


def _ends(score: str, facts: Facts) -> tuple[float, float]:
    """What of an axis is in sight whatever the heads have: its whole range, or what tells heads from noise."""
    if score in SIGNED:
        return -1.0, 1.0
    if score in FREE:
        return 0.0, float(max(1, facts.config.n_layers - 1)) if score == "layer" else 1.0
    return (0.0, 0.5) if score in KINDS else (0.0, 1.0)


def _notes(scores: tuple[str, ...], answers: Answers) -> tuple[str, ...]:
    """What must be said beside some scores."""
    said = []
    if any(s.startswith("own token") for s in scores) and "own" in answers:
        own = answers.of("own", own_tokens).result
        said.append(f"own token: chance {own.chance10:.4f} in the top 10, {own.chance1:.5f} first")
    return tuple(said)


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
    named: Mapping[tuple[int, int], str],
) -> str:
    parts = dict(zip((view.y, view.x, view.colour), (y, x, colour), strict=True))
    said = [f"{score} {v.ravel()[i]:.3g}" for score, v in parts.items()]
    return " · ".join(filter(None, (name, *said, named.get(divmod(i, x.shape[1]), ""))))


def _title(state: State, view: HeadFinderView, x: np.ndarray, y: np.ndarray) -> str:
    """The leading head with its value and rank on both axes."""
    head = state.selection.head
    if not (head.layer < y.shape[0] and head.head < y.shape[1]):
        return "Head finder"
    both = {view.y: y, view.x: x}
    signed = lambda v: f"{v:.2f}".replace("-", "−")
    said = [f"{name} {signed(v[head])} (rank {ranks(v)[head]})" for name, v in both.items() if np.isfinite(v[head])]
    return f"{head} · " + (" · ".join(said) or "not scored") + f" · {number_of(y.size, 'head')}"


def _table(state: State, facts: Facts, answers: Answers, found: dict[Score, np.ndarray]) -> Figure:
    """All scores that are there, a row a head; sorted by any."""
    if not found:
        return Figure(title="Head finder")
    lead = next(iter(found.values()))
    layers, view = facts.config.n_layers, _view(state)
    order = descending(lead)[: max(1, view.top)]
    layer, head = np.unravel_index(order, lead.shape)
    depth = np.array([f"{int(i) + 1} / {layers}" for i in layer], dtype=object)
    columns = [head_column(layer, head), RowColumn("layer", depth, tip="Depth, counted from 1")]
    for name, values in found.items():
        flat, bar = values.ravel()[order], name == "prefix matching"
        columns += [RowColumn(SHORT.get(name, name), flat, digits=2, bar=bar, levels=(0.0, 1.0), tip=TIPS[name])]
        if name == "prefix matching" and (other := control_of(name, answers)) is not None:
            columns += [RowColumn("control", other.ravel()[order], digits=2, tip="Prefix matching where no token is repeated")]
    columns += published_column(facts.known_heads(), layer, head)
    keys = ids(layer, head)
    rows = Rows("table", tuple(columns), keys, chosen=rows_of_heads(state, keys), sort=(2, "down"), ranked=True)
    asked = requests(state, facts)
    refused = any(role not in asked for role in map(role_of, TABLE)) if not isinstance(asked, Why) else True
    missing = "left out: scores that this model's weights do not allow" if refused else ""
    shown = (len(order), lead.size) if len(order) < lead.size else None
    return Figure(
        ((rows,),),
        f"{number_of(lead.size, 'head')}, {number_of(len(found), 'score')}",
        captions(tuple(answers.values()), missing, *_notes(TABLE, answers), published(facts)),
        shown,
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
            "Every head is a point. Choose what stands upwards, to the right, and as colour: what a head attends to on repeated "
            "random tokens, whether it copies (own tokens in the rows of its OV circuit, or the circuit's eigenvalues), how "
            "strongly it composes with an earlier head. A ring shows where the same head stands on tokens that are not repeated: "
            "only what is far from its ring is about repetition. Heads that stand far out on two scores are candidates: an "
            "induction head has high prefix matching and raises the tokens that it reads. Hover a point for its values; a click "
            "chooses it everywhere. The second page has all scores of all heads; a click on a column's name sorts by it.\n\n"
            "“copying (repeated)” is the measure of Olsson et al.: of all that a head raises among the tokens of the prompt, the "
            "share that falls on what it attends to, from −1 to 1. Zero is not chance: a head whose logits have nothing to do "
            "with its attention has a share of one in as many as there are different tokens (26: −0.92). Nor is 1 in reach of a "
            "real head: the twenty-five tokens that it does not attend to get a little each, which adds up. The induction head "
            "of attn-only-2l raises its target by 13 logits and each of the others by 1.1: a third, −0.38. Compare heads of one "
            "model by it, not with 0."
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
