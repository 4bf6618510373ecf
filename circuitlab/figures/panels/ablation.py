"""What breaks when a head is ablated: every head one by one, estimates first; chosen heads together and in pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from circuitlab.analysis.interventions.ablation import AblationParams, AblationResult, Effect, ablation
from circuitlab.analysis.interventions.ablation_sweep import How
from circuitlab.analysis.ordering import descending
from circuitlab.caption_parts import Essential
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import (
    caption,
    captions,
    destination,
    digits,
    pick_position,
    prompt_of,
    rows_of_heads,
    top_level,
)
from circuitlab.figures.contracts.facts import HEADS_ELSEWHERE, PINNED_ELSEWHERE
from circuitlab.figures.contracts.heads import head_map, head_rank, pick_head
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import selected_heads
from circuitlab.figures.contracts.vocabulary import foreign
from circuitlab.figures.marks import Axis, Figure, Heatmap, Hit, RowColumn, Rows, Tokens, empty, ids
from circuitlab.model.subject import Head
from circuitlab.state.state import State

Measured = Literal["loss", "second half", "target", "in-context score"]
EFFECTS: dict[Measured, Effect] = {
    "loss": "loss",
    "second half": "second_half",
    "target": "target",
    "in-context score": "in_context",
}
NEEDS_TOKENS = "Type some text in the Prompt to see what breaks when a head is ablated."
MOST = 12  # chosen heads of which all pairs are taken


@dataclass(frozen=True)
class AblationView:
    """The controls of the ablation panel."""

    page: Literal["heads", "sets"] = control("heads", label="", kind="tabs", tip="Heads one by one, or chosen heads together")
    how: How = control(
        "zero", label="By", tip="Ablate by: a head's z becomes zero, its mean over this text, or z on the pinned reference's text"
    )
    effect: Measured = control("loss", label="On", tip="What is measured; the target is the one chosen in the bar above")
    frozen: bool = control(False, label="Hold patterns", tip="Later patterns stay as recorded: only what is moved changes")


def base_params(state: State, facts: Facts, how: How, effect: Measured) -> AblationParams | Why:
    """How heads are ablated and what is measured, here and in Circuit faithfulness; Why where a pin is missing."""
    pin = state.pinned
    if how == "resample" and pin is None:
        return Why(
            "Resampling takes z of another text: pin one (Pin, in the bar above), then come back to this text.", PINNED_ELSEWHERE
        )
    if how == "resample" and foreign(state, facts):
        return Why(
            "The pinned text is in another vocabulary, whose ids mean other words in this model: pin a text of this model."
        )
    source = pin.subject.tokens if how == "resample" and pin is not None else ()
    params = AblationParams(how=how, effect=EFFECTS[effect], source=source)
    if effect != "target":
        return params
    # a locked position only: a sweep does not run after the pointer
    at = destination(state) if state.selection.locked else len(state.tokens) - 1
    return replace(params, target=state.selection.target, position=at)


def too_short(state: State) -> str:
    """Why no loss could be measured."""
    if len(state.tokens) < 2:
        return "A single token has no loss: type more text, or measure the target."
    return "This text is too short for an in-context score: type more, or measure the loss."


def _view(state: State) -> AblationView:
    return state.view("ablation", AblationView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """All heads, or the chosen ones together and in pairs."""
    view = _view(state)
    base = base_params(state, facts, view.how, view.effect)
    if isinstance(base, Why):
        return base
    ask = lambda **more: Request(ablation, replace(base, frozen=view.frozen, **more), state.subject)
    if view.page == "heads":
        return {"each": ask()}
    heads = tuple(sorted(selected_heads(state, facts)))
    if len(heads) < 2:
        return Why("Shift-click a second head in All heads: two or more are ablated together here.", HEADS_ELSEWHERE)
    if len(heads) > MOST:
        return Why(
            f"{number_of(len(heads), 'head')} are chosen; pairs are taken of at most {MOST}: Shift-click some away in All heads."
        )
    return {"set": ask(what="set", heads=heads), "pairs": ask(what="pairs", heads=heads)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The map, the ranking and the text; or sets."""
    if _view(state).page == "heads":
        return _heads(state, facts, answers.of("each", ablation))
    return _sets(state, facts, answers.of("set", ablation), answers.of("pairs", ablation))


def _heads(state: State, facts: Facts, answer: Answer[AblationResult]) -> Figure:
    result = answer.result
    if np.isnan(result.baseline):
        return empty(too_short(state), "Ablation")
    marks = ((_map(answer, result, state), _ranking(answer, result, state)),)
    text = _text(answer, result, state, facts)
    exact, n = int(result.exact.sum()), result.exact.size
    estimates = "" if exact == n else Essential(f"{exact} of {n} exact; hatched, ≈: first-order estimates")
    words = (estimates, *_reading(result))
    grid = marks if text is None else (*marks, (text,))
    weights = () if text is None else (3.0, 1.0)
    return Figure(grid, _title(result, state.selection.head), caption(answer, *words), weights=weights)


def _reading(result: AblationResult) -> tuple[str, str]:
    worse = "positive: the loss rises without the head" if result.unit == "nats" else "negative: the head was raising it"
    return f"before: {number(result.baseline, '.3f')} {result.unit}", worse  # with the interventions that are on


def _title(result: AblationResult, head: Head) -> str:
    """The leading head's own entry of the answer, which is one to all heads, and its rank."""
    if not (head.layer < result.effect.shape[0] and head.head < result.effect.shape[1]):
        return "Ablation"
    rank, sign = head_rank(np.abs(result.effect), head), "" if result.exact[head] else "≈ "
    return f"without {head}: {sign}{number(result.effect[head], '+.3f')} {result.unit}, {rank}"


def _map(answer: Answer, result: AblationResult, state: State) -> Heatmap:
    values = memo(answer, "map", lambda: result.effect.astype(np.float32))
    top = top_level(values)
    rows = lambda: tuple(f"L{i}" if exact.all() else f"≈ L{i}" for i, exact in enumerate(result.exact))
    return head_map(
        state,
        values,
        (-top, top),
        map="signed",
        unit=result.unit,
        y=memo(answer, "y", lambda: Axis("layer", rows())),
        hatched=memo(answer, "hatched", lambda: _estimated(result)),
        texts=memo(answer, "texts", lambda: np.where(_estimated(result), "≈", "")) if _estimated(result).any() else None,
    )


def _estimated(result: AblationResult) -> np.ndarray:
    """Bool [layer, head]: where a first-order estimate stands for the exact value."""
    return ~result.exact & ~np.isnan(result.effect)


def _ranking(answer: Answer, result: AblationResult, state: State) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        order = descending(result.effect, by_size=True)
        layer, head = np.unravel_index(order, result.effect.shape)
        name = lambda a, b: f"{Head(a, b)}" if result.exact[a, b] else f"{Head(a, b)} ≈"
        names = np.array([name(int(a), int(b)) for a, b in zip(layer, head, strict=True)], dtype=object)
        values, top = result.effect.ravel()[order], top_level(result.effect)
        columns = (
            RowColumn("without", names, tip="≈: a first-order estimate; else exact"),
            RowColumn(result.unit, values, digits=digits(top), bar=True, levels=(-top, top), tip="after − before"),
        )
        return columns, ids(layer, head)

    columns, keys = memo(answer, "rows", make)
    return Rows("ranking", columns, keys, chosen=rows_of_heads(state, keys), ranked=True)


def _text(answer: Answer, result: AblationResult, state: State, facts: Facts) -> Tokens | None:
    """The prompt coloured by how ablating the leading head changes each token's loss; None where that is not computed."""
    head = state.selection.head
    if not (head.layer < result.effect.shape[0] and head.head < result.effect.shape[1]) or not result.exact[head]:
        return None
    values = memo(answer, ("text", head), lambda: result.token_change[head].copy())
    return None if np.isnan(values).all() else _coloured(answer, values, ("tips", head), state, facts)


def _coloured(answer: Answer, values: np.ndarray, key: tuple[object, ...], state: State, facts: Facts) -> Tokens:
    texts, top = facts.tokens(prompt_of(answer)), top_level(values)
    tip = lambda i: f"{i} {texts[i]}" + ("" if np.isnan(values[i]) else f"  loss {number(values[i], '+.3f')} nats")
    tips = memo(answer, (*key, texts), lambda: tuple(map(tip, range(len(texts)))))
    return Tokens(
        name="text",
        texts=texts,
        values=values,
        levels=(-top, top),
        map="signed",
        unit="nats",
        tips=tips,
        row=state.selection.destination,
        locked=state.selection.locked,
    )


def _sets(state: State, facts: Facts, together: Answer[AblationResult], pairs: Answer[AblationResult]) -> Figure:
    """All chosen heads together first, then each, then pairs by their effect beyond the sum of both."""
    one, two = together.result, pairs.result
    if np.isnan(one.baseline):
        return empty(too_short(state), "Ablation of a set")
    columns, keys, together_row = memo((pairs, one), "sets", lambda: _set_rows(one, two))
    rows = Rows("sets", columns, keys, strong=together_row)
    values = memo(together, "change", lambda: one.set_change[0].copy())
    text = () if np.isnan(values).all() else ((_coloured(together, values, ("set tips",), state, facts),),)
    effect = one.set_effect[0] if len(one.set_effect) else np.nan
    without = f"without all {one.members.shape[1]}: {number(effect, '+.3f')} {one.unit}"
    title = "Ablation of a set" if np.isnan(effect) else without
    words = (*_reading(one), "beyond: together − the sum of each alone")
    return Figure(
        ((rows,), *text), title, captions({"together": together, "pairs": pairs}, *words), weights=(3.0, 1.0) if text else ()
    )


def _set_rows(one: AblationResult, two: AblationResult) -> tuple[tuple[RowColumn, ...], np.ndarray, tuple[int, ...]]:
    heads = [Head(*h) for h in one.members[0].tolist()] if len(one.members) else []
    order = descending(two.set_effect - two.set_sums, by_size=True)
    names = [" + ".join(map(str, heads)), *map(str, heads), *(two.set_names[i] for i in order)]
    single = np.array([one.effect[h] if one.exact[h] else np.nan for h in heads])
    effect = np.concatenate([one.set_effect, single, two.set_effect[order]])
    sums = np.concatenate([one.set_sums, np.full(len(heads), np.nan), two.set_sums[order]])
    top = top_level(effect)
    places = digits(top)
    columns = (
        RowColumn("without", np.array(names, dtype=object)),
        RowColumn(one.unit, effect, digits=places, bar=True, levels=(-top, top), tip="after − before"),
        RowColumn("sum", sums, digits=places, tip="of the effects of each alone"),
        RowColumn("beyond", effect - sums, digits=places, tip="together − sum of each; 0: the heads act apart"),
    )
    pair = [two.members[i].ravel().tolist() for i in order]
    keys = [[-1] * 4, *([h.layer, h.head, -1, -1] for h in heads), *pair]
    return columns, np.array(keys, dtype=np.int64), (0,)


def pick(state: State, hit: Hit) -> State:
    """A cell or a row chooses its head; in a set its heads go in front; a token is read everywhere."""
    if hit.mark in ("map", "ranking") and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    if hit.mark == "sets" and hit.gesture in ("click", "double-click") and max(hit.id, default=-1) >= 0:
        first = tuple(Head(*h) for h in np.array(hit.id).reshape(-1, 2).tolist() if h[0] >= 0)
        return state.with_heads(*first, *(h for h in state.selection.heads if h not in first))
    if hit.mark == "text":
        return pick_position(state, hit)
    return state


PANEL = register(
    Panel(
        name="ablation",
        title="Ablation",
        view=AblationView,
        equation="effect(h) = value(z_h replaced) − value;   ≈ Σ ∂value/∂z_h · (z'_h − z_h) until the exact value is there",
        source="Olsson et al. 2022, In-context Learning and Induction Heads, “pattern-preserving ablation”",
        help=(
            "Each cell: how much the measured value changes when this head's output is ablated and everything after it is "
            "computed again. Orange: the loss rises without it, so the head helps. Hatched cells and ≈ are first-order "
            "estimates, which exact values replace from the last layer down. Hold patterns: later heads attend as recorded, so "
            "only what is moved counts; a head that acts only on where later heads attend then has no effect. "
            "Heads stand in for one another: two that do little alone may matter together (Sets)."
        ),
        needs_tokens=NEEDS_TOKENS,
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Paths has the direct path, which is all that there is",
        area="bottom",
        order=140,
        opens="attention",
    )
)
