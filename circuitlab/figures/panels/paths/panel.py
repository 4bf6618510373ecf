"""Paths: why this token, as a sum over the heads that each part of the prediction passed through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from circuitlab.analysis.attribution.path_expansion import Measure, PathExpansionParams, PathExpansionResult, path_expansion
from circuitlab.analysis.attribution.path_terms import refuse_on_stream
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams, own_tokens
from circuitlab.analysis.composition.virtual_head import VirtualHeadParams, VirtualHeadResult, virtual_head
from circuitlab.analysis.interventions.ablation import AblationParams, ablation
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.counting import number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Refused
from circuitlab.figures.contracts.common import (
    caption,
    captions,
    destination,
    number,
    pick_position,
    quoted,
    token_axis,
    top_level,
)
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import no_head, of_weights, pick_edge, selected_edge, weights_refusal
from circuitlab.figures.marks import Bars, Figure, Heatmap, Hit, Rows, Tokens, empty
from circuitlab.figures.panels.overview import pick_head
from circuitlab.figures.panels.paths.tables import HEAD, NONE, PAIR, Terms, head_rows, order_sums, term_rows
from circuitlab.model.subject import Head
from circuitlab.session.state import State

TITLE = "Paths"
Order = Literal["all", "0 direct", "1 head", "2 pairs"]


@dataclass(frozen=True)
class PathsView:
    """The controls of the paths."""

    page: Literal["terms", "heads", "pair"] = control("terms", label="Page", kind="tabs")
    order: Order = control("all", label="Order", tip="How many heads a path passes through", when="page", values=("terms",))
    sort: Literal["size", "raising first", "order"] = control(
        "size", label="Sort", tip="Size: strongest first, whether it raises or lowers", when="page", values=("terms",)
    )
    top: int = control(
        40, label="Top", tip="How many paths are listed; the others are summed", low=1, high=1000, when="page", values=("terms",)
    )
    measure: Measure = control("logit", label="Measure", tip="A log-probability has one term more: minus logsumexp")


def _view(state: State) -> PathsView:
    return state.view("paths", PathsView)


def _later(state: State, facts: Facts) -> tuple[Head, Head] | Why:
    """The pair whose composed pattern is read: the chosen edge, or two chosen heads of different layers."""
    found = selected_edge(state, facts) or tuple(sorted(state.selection.heads[:2]))
    if len(found) == 2 and found[0].layer < found[1].layer < facts.config.n_layers:
        return found[0], found[1]
    if facts.config.n_layers == 0:
        return no_head(state.selection.head, facts)
    if facts.config.n_layers == 1:
        return Why("A model of one layer has no pairs of heads: none reads what another wrote.")
    return Why("Click a pair of heads in Terms, or an edge in Composition, to see its composed pattern.")


def requests(state: State, facts: Facts) -> Requests | Why:
    """The expansion at the selected position, and what stands beside it: copying scores and ablations, or the pair's pattern."""
    if not state.tokens:
        return Why("Type some text in the Prompt to see by which paths its next token is predicted.")
    if (reason := refuse_on_stream(facts.config)) is not None:
        return Why(Refused(reason).what)
    view, target, position = _view(state), state.selection.target, destination(state)
    measure: Measure = "logit" if target.direction else view.measure
    asked: dict[str, Request[Any]] = {
        "paths": Request(path_expansion, PathExpansionParams(target, position, measure=measure), state.subject)
    }
    if view.page == "heads":
        if weights_refusal(facts) is None:
            asked["copying"] = Request(copying_scores, CopyingScoresParams(diagonal="none", qk=False), of_weights(state))
            if own_tokens.refuse(facts.config, OwnTokensParams()) is None:
                asked["own"] = Request(own_tokens, OwnTokensParams(), of_weights(state))
        cut = AblationParams(effect="target", target=target, position=position)
        asked["ablation"] = Request(ablation, cut, state.subject)
    if view.page == "pair":
        heads = _later(state, facts)
        if isinstance(heads, Why):
            return heads
        asked["pair"] = Request(virtual_head, VirtualHeadParams(*heads), state.subject)
    return asked


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
    paths = answers.find("paths", path_expansion)
    if "pair" in answers:
        return _pair(state, facts, answers.of("pair", virtual_head), paths)
    if paths is None:
        return Figure(title=TITLE)
    return _heads(state, facts, paths, answers) if _view(state).page == "heads" else _terms(state, facts, paths)


def _title(facts: Facts, answer: Answer[PathExpansionResult]) -> str:
    result = answer.result
    asked: PathExpansionParams = answer.request.params
    tokens = answer.request.subject.tokens
    names = [quoted(facts.token_text(int(i))) for i in result.target_ids if i >= 0]
    of = " − ".join(names) or "the direction"
    what = "log p" if asked.measure == "log_prob" else "logit"
    after = quoted(facts.token_text(tokens[result.position]))
    return f"{what} of {of} after {result.position} {after} = {number(result.whole)}"


def _terms(state: State, facts: Facts, answer: Answer[PathExpansionResult]) -> Figure:
    """Sums per order above the paths themselves."""
    view, result = _view(state), answer.result
    if (_order(view.order) or 0) >= len(result.orders):
        return empty(f"{_layers(len(result.orders) - 1)}, so no path is that long: choose another order.", TITLE)
    rows, made = _listed(state, answer)
    bars = _orders(answer, view)
    grid, weights = ((bars,), (rows,)), (len(bars.values) + 0.6, 8.0)
    said = caption(answer, "the rows add up to the whole" if view.order == "all" else "")
    return Figure(grid, _title(facts, answer), said, (made.shown, made.total), weights=weights)


def _listed(state: State, answer: Answer[PathExpansionResult], also: np.ndarray = NONE) -> tuple[Rows, Terms]:
    """The table of terms, with those that a reference lists."""
    view, result = _view(state), answer.result
    make = lambda: term_rows(result, _order(view.order), view.sort, max(1, view.top), also)
    made = memo(answer, ("terms", view.order, view.sort, view.top, also.tobytes()), make)
    rows = Rows(
        "terms",
        made.columns,
        made.ids,
        chosen=_chosen(state, made),
        searchable=made.shown > 30,
        ranked=view.sort == "size",
        absent=np.nan if result.n_left_out.any() else 0.0,
        including=lambda also: _listed(state, answer, also)[0],
    )
    return rows, made


def _layers(n: int) -> str:
    return f"This model has {number_of(n, 'layer') if n > 0 else 'no layers'}"


def _order(order: Order) -> int | None:
    return None if order == "all" else int(order[0])


def _orders(answer: Answer[PathExpansionResult], view: PathsView) -> Bars:
    """A bar per order, the deep ones together."""
    values, names = memo(answer, "orders", lambda: order_sums(answer.result))
    order = _order(view.order)
    return Bars("orders", values, names, chosen=() if order is None or order >= len(values) else (order,))


def _chosen(state: State, made: Terms) -> tuple[int, ...]:
    """Rows of the chosen pair, else of the chosen heads."""
    selection, wanted = state.selection, set[tuple[int, ...]]()
    if selection.edge is not None and selection.edge_kind == "V":
        wanted.add((PAIR, *selection.edge[0], *selection.edge[1]))
    else:
        wanted |= {(HEAD, *head, -1, -1) for head in selection.heads}
    return tuple(i for i, key in enumerate(made.ids.tolist()) if tuple(key) in wanted)


def _heads(state: State, facts: Facts, answer: Answer[PathExpansionResult], answers: Answers) -> Figure:
    """Theory beside measurement: what the weights predict, what the head adds here, what is lost without it."""
    copying, ablated = answers.find("copying", copying_scores), answers.find("ablation", ablation)
    beside = answers.find("own", own_tokens)
    predicted, lost = None if copying is None else copying.result, None if ablated is None else ablated.result
    own = None if beside is None else beside.result
    table = memo((answer, predicted, lost, own), "heads", lambda: head_rows(answer.result, predicted, lost, own))
    picked = tuple(i for i, head in enumerate(table.ids.tolist()) if Head(*head) in state.selection.heads)
    notes = list[str]()
    if predicted is None and weights_refusal(facts) is not None:
        notes.append("no copying score: the weights of this model cannot be read without a text")
    if lost is not None and not lost.exact.all():
        notes.append("≈ first-order estimate, until the exact value replaces it")
    rows = Rows("heads", table.columns, table.ids, chosen=picked, searchable=table.shown > 30, ranked=True)
    caption_parts = captions(tuple(a for a in (answer, copying, beside, ablated) if a is not None), *notes)
    return Figure(((rows,),), _title(facts, answer), caption_parts)


def _pair(state: State, facts: Facts, answer: Answer[VirtualHeadResult], paths: Answer[PathExpansionResult] | None) -> Figure:
    """The composed pattern of the chosen pair."""
    heads = answer.request.params.earlier, answer.request.params.later
    title = f"{heads[0]} → {heads[1]} · composed pattern"
    result = answer.result
    state = state.with_tokens(answer.request.subject.tokens)  # while another prompt is computed, the old picture stays
    top = memo(answer, "top", lambda: top_level(result.pattern))
    below = memo(answer, "below", lambda: bool(np.nanmin(result.pattern) < 0))
    values = memo(answer, "values", lambda: result.pattern.astype(np.float32))
    heat = Heatmap(
        name="pattern",
        values=values,
        levels=(-top if below else 0.0, top),
        map="signed" if below else "magnitude",
        unit="weight",
        x=token_axis("source", state.tokens, facts),
        y=token_axis("destination", state.tokens, facts),
        row=state.selection.destination,
        col=state.selection.source,
        blank="masked",
    )
    position = destination(state)
    text = Tokens(
        name="text",
        texts=heat.x.ticks,
        values=values[position],
        levels=heat.levels,
        map=heat.map,
        unit=heat.unit,
        tips=tuple(f"{i} {t} (id {state.tokens[i]})" for i, t in enumerate(heat.x.ticks)),
        row=state.selection.destination,
        locked=state.selection.locked,
    )
    reading = f"text: reached by {position} {quoted(facts.token_text(state.tokens[position]))} through both heads"
    return Figure(((heat,), (text,)), title + _adds(paths, heads), caption(answer, reading), weights=(4.0, 1.0))


def _adds(answer: Answer[PathExpansionResult] | None, heads: tuple[Head, Head]) -> str:
    """What the pair adds to the target, where it is listed."""
    if answer is None:
        return ""
    result = answer.result
    if result.heads.shape[1] < 2:
        return ""
    here = (result.order == 2) & (result.heads[:, :2] == np.array(heads)).all((1, 2))
    unit = "nats" if answer.request.params.measure == "log_prob" else "logit"
    return f" · adds {number(result.value[here][0])} {unit}" if here.any() else ""


def pick(state: State, hit: Hit) -> State:
    """A head, a pair of heads (as an edge through V), an order, or a position of the composed pattern."""
    if hit.mark == "text":
        return pick_position(state, hit)
    if hit.mark == "pattern":
        if len(hit.id) == 2 and hit.gesture in ("click", "double-click"):
            return state.select(destination=hit.id[0], source=hit.id[1], locked=True, token=None)
        return pick_position(state, hit)
    if hit.mark == "heads" and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    if hit.gesture not in ("click", "shift-click", "double-click") or not hit.id:
        return state
    if hit.mark == "orders":
        return _pick_order(state, hit.id[0])
    if hit.mark != "terms":
        return state
    kind, *places = hit.id
    if kind == HEAD:
        return pick_head(state, Head(*places[:2]), hit.gesture)
    if kind == PAIR:
        chosen = pick_edge(state, Head(*places[:2]), Head(*places[2:4]), "V")
        return chosen.with_view("paths", replace(_view(state), page="pair")) if hit.gesture == "double-click" else chosen
    return state


def _pick_order(state: State, order: int) -> State:
    """Only the paths of this order; again: all of them."""
    view, wanted = _view(state), ("0 direct", "1 head", "2 pairs")
    if order >= len(wanted):
        return state
    return state.with_view("paths", replace(view, order="all" if view.order == wanted[order] else wanted[order]))


HELP = (
    "The prediction as a sum. With this run's patterns and norm scales held as recorded, the final stream is a sum of products: "
    "the embedding itself (order 0), what each head makes of it (order 1, A x W_OV), what a head makes of what an earlier one "
    "wrote (order 2, a virtual head: pattern A A′, circuit W_OV′ W_OV), and so on; each is read with the target's column of W_U. "
    "MLP outputs are recorded sources like the embedding; the final bias is that of the last norm and of W_U. The rows add up to "
    "the number in the title; the remainder is rounding.\n\n"
    "Terms: what a head does with these sources directly, then pairs. Heads: all that a head writes, whatever it read, beside "
    "the copying score of its weights and the change of the target when it is ablated, which has the other sign, and another "
    "size where later heads read it or make up for it.\n\n"
    "Click a head to open it everywhere, a pair to follow it in the weight panels (V), a bar to list that order alone; "
    "double-click a pair for its composed pattern, whose rows do not sum to 1 where a norm stands between the two."
)

PANEL = register(
    Panel(
        name="paths",
        title=TITLE,
        view=PathsView,
        equation="x_0 W_U + Σ_h A^h x_0 W_OV^h W_U + Σ A^{h2} A^{h1} x_0 W_OV^{h1} W_OV^{h2} W_U + … + MLPs, biases",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, “Path expansion of logits”",
        help=HELP,
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        area="bottom",
        order=120,
        opens="attention",
    )
)
