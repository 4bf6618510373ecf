"""Paths: a target as a sum over paths through the heads, the same by head beside its ablation, and composed patterns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.path_expansion import Measure, PathExpansionParams, PathExpansionResult, path_expansion
from circuitlab.analysis.attribution.path_terms import refuse_on_stream
from circuitlab.analysis.base import Result
from circuitlab.analysis.circuits.own_tokens import OWN, OwnTokensParams, own_tokens
from circuitlab.analysis.composition.virtual_head import VirtualHeadParams, VirtualHeadResult, virtual_head
from circuitlab.analysis.interventions.ablation import AblationParams, ablation
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.caption_parts import Essential
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Refused
from circuitlab.figures.contracts.common import caption, captions, destination, pick_position, quoted, token_axis, top_level
from circuitlab.figures.contracts.facts import PAIR_ELSEWHERE
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import no_head, of_weights, pick_edge, selected_edge
from circuitlab.figures.marks import Bars, Figure, Heatmap, Hit, Rows, Tokens, empty
from circuitlab.figures.panels.paths.tables import HEAD, NONE, PAIR, Terms, head_rows, order_sums, term_rows
from circuitlab.model.subject import Head
from circuitlab.state.state import State

TITLE = "Paths"
Order = Literal["all", "0 direct", "1 head", "2 pairs"]


@dataclass(frozen=True)
class PathsView:
    """The controls of the paths."""

    page: Literal["terms", "heads", "pair"] = control("terms", label="Page", kind="tabs")
    order: Order = control("all", label="Order", tip="Number of heads a path passes through", when="page", values=("terms",))
    sort: Literal["size", "raising first", "order"] = control(
        "size", label="Sort", tip="size: largest magnitude first, whichever the sign", when="page", values=("terms",)
    )
    top: int = control(
        40, label="Top", tip="How many paths to list; the others are summed", low=1, high=1000, when="page", values=("terms",)
    )
    measure: Measure = control("logit", label="Measure", tip="A log-probability has one more term: minus logsumexp")


def _view(state: State) -> PathsView:
    return state.view("paths", PathsView)


def _composed_pair(state: State, facts: Facts) -> tuple[Head, Head] | Why:
    """The pair whose composed pattern is drawn: the chosen edge, or two chosen heads of different layers."""
    pair = selected_edge(state, facts) or tuple(sorted(state.selection.heads[:2]))
    if len(pair) == 2 and pair[0].layer < pair[1].layer < facts.config.n_layers:
        return pair[0], pair[1]
    if facts.config.n_layers == 0:
        return no_head(state.selection.head, facts)
    if facts.config.n_layers == 1:
        return Why("Heads of a one-layer model do not compose: none reads another's output.")
    return Why("Click a pair of heads in Terms, or an edge in Composition, to see its composed pattern.", PAIR_ELSEWHERE)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The expansion at the selected position; with it copying scores and ablations, or the composed pattern of a pair."""
    if (reason := refuse_on_stream(facts.config)) is not None:
        return Why(Refused(reason).what)
    view, target, position = _view(state), state.selection.target, destination(state)
    measure: Measure = "logit" if target.direction else view.measure
    requests_by_role: dict[str, Request[Result]] = {
        "paths": Request(path_expansion, PathExpansionParams(target, position, measure=measure), state.subject)
    }
    if view.page == "heads":
        weights = of_weights(state)
        ablations = AblationParams(effect="target", target=target, position=position)
        requests_by_role |= {
            "copying": Request(copying_scores, CopyingScoresParams(diagonal="none", qk=False), weights),
            "own": Request(own_tokens, OwnTokensParams(), weights),
            "ablation": Request(ablation, ablations, state.subject),
        }
    if view.page == "pair":
        heads = _composed_pair(state, facts)
        if isinstance(heads, Why):
            return heads
        requests_by_role["pair"] = Request(virtual_head, VirtualHeadParams(*heads), state.subject)
    return requests_by_role


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The open page."""
    paths = answers.find("paths", path_expansion)
    if "pair" in answers:
        return _pair(state, facts, answers.of("pair", virtual_head), paths)
    if paths is None:
        return Figure(title=TITLE)
    return _heads(state, facts, paths, answers) if _view(state).page == "heads" else _terms(state, facts, paths)


def _title(facts: Facts, answer: Answer[PathExpansionResult]) -> str:
    result = answer.result
    params: PathExpansionParams = answer.request.params
    tokens = answer.request.subject.tokens
    names = [quoted(facts.token_text(int(i))) for i in result.target_ids if i >= 0]
    target = " − ".join(names) or "the direction"
    measure = "log p" if params.measure == "log_prob" else "logit"
    token = quoted(facts.token_text(tokens[result.position]))
    return f"{measure} of {target} after {result.position} {token} = {number(result.whole)}"


def _terms(state: State, facts: Facts, answer: Answer[PathExpansionResult]) -> Figure:
    """The sum of each order as bars, above the table of paths."""
    view, result = _view(state), answer.result
    if (_order(view.order) or 0) >= len(result.orders):
        return empty(f"{_layers(len(result.orders) - 1)}, so no path is that long: choose another order.", TITLE)
    rows = _term_table(state, answer)
    bars = _orders(answer, view)
    grid, weights = ((bars,), (rows,)), (len(bars.values) + 0.6, 8.0)
    caption_parts = caption(answer, "the rows add up to the whole" if view.order == "all" else "")
    return Figure(grid, _title(facts, answer), caption_parts, weights=weights)


def _term_table(state: State, answer: Answer[PathExpansionResult], also: np.ndarray = NONE) -> Rows:
    """The table of terms; `also`: ids of terms that it must list because a reference lists them."""
    view, result = _view(state), answer.result
    make = lambda: term_rows(result, _order(view.order), view.sort, max(1, view.top), also)
    terms = memo(answer, ("terms", view.order, view.sort, view.top, also.tobytes()), make)
    return Rows(
        "terms",
        terms.columns,
        terms.ids,
        chosen=_chosen(state, terms),
        searchable=terms.shown > 30,
        ranked=view.sort == "size",
        absent=np.nan if result.n_left_out.any() else 0.0,
        including=lambda also: _term_table(state, answer, also),
        total=terms.total,
    )


def _layers(n: int) -> str:
    return f"This model has {number_of(n, 'layer') if n > 0 else 'no layers'}"


def _order(order: Order) -> int | None:
    return None if order == "all" else int(order[0])


def _orders(answer: Answer[PathExpansionResult], view: PathsView) -> Bars:
    """A bar for each order; high orders share one."""
    values, names = memo(answer, "orders", lambda: order_sums(answer.result))
    order = _order(view.order)
    return Bars("orders", values, names, chosen=() if order is None or order >= len(values) else (order,))


def _chosen(state: State, terms: Terms) -> tuple[int, ...]:
    """Indices of the rows of the chosen pair, or else of the chosen heads."""
    selection, keys = state.selection, set[tuple[int, ...]]()
    if selection.edge is not None and selection.edge_kind == "V":
        keys.add((PAIR, *selection.edge[0], *selection.edge[1]))
    else:
        keys |= {(HEAD, *head, -1, -1) for head in selection.heads}
    return tuple(i for i, key in enumerate(terms.ids.tolist()) if tuple(key) in keys)


def _heads(state: State, facts: Facts, answer: Answer[PathExpansionResult], answers: Answers) -> Figure:
    """Theory beside measurement for each head: what its weights predict, what it adds here, what its ablation changes."""
    copying, ablated = answers.find("copying", copying_scores), answers.find("ablation", ablation)
    own_answer = answers.find("own", own_tokens)
    scores, effects = None if copying is None else copying.result, None if ablated is None else ablated.result
    own = None if own_answer is None else own_answer.result
    table = memo((answer, scores, effects, own), "heads", lambda: head_rows(answer.result, scores, effects, own))
    chosen = tuple(i for i, head in enumerate(table.ids.tolist()) if Head(*head) in state.selection.heads)
    estimated = effects is not None and not effects.exact.all()
    note = Essential("≈ first-order estimate, until the exact value replaces it") if estimated else ""
    rows = Rows("heads", table.columns, table.ids, chosen=chosen, searchable=table.shown > 30, ranked=True)
    caption_parts = captions({"paths": answer, "copying": copying, OWN: own_answer, "ablation": ablated}, note)
    return Figure(((rows,),), _title(facts, answer), caption_parts)


def _pair(state: State, facts: Facts, answer: Answer[VirtualHeadResult], paths: Answer[PathExpansionResult] | None) -> Figure:
    """The composed pattern of a pair of heads, and its row at the destination as text."""
    heads = answer.request.params.earlier, answer.request.params.later
    title = f"{heads[0]} → {heads[1]} · composed pattern"
    result = answer.result
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
    token = quoted(facts.token_text(state.tokens[position]))
    reading = Essential(f"text: what {position} {token} attends to through both heads")
    return Figure(((heat,), (text,)), title + _adds(paths, heads), caption(answer, reading), weights=(4.0, 1.0))


def _adds(answer: Answer[PathExpansionResult] | None, heads: tuple[Head, Head]) -> str:
    """For the title: what the pair adds to the target, "" if the expansion does not list the pair."""
    if answer is None:
        return ""
    result = answer.result
    if result.heads.shape[1] < 2:
        return ""
    is_pair = (result.order == 2) & (result.heads[:, :2] == np.array(heads)).all((1, 2))
    unit = "nats" if answer.request.params.measure == "log_prob" else "logit"
    return f" · adds {number(result.value[is_pair][0])} {unit}" if is_pair.any() else ""


def pick(state: State, hit: Hit) -> State:
    """Choose a head, a pair of heads (as an edge through V), an order, or a position of the composed pattern."""
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
    """List only the paths of this order, or all of them if it was chosen already."""
    view, choices = _view(state), ("0 direct", "1 head", "2 pairs")
    if order >= len(choices):
        return state
    return state.with_view("paths", replace(view, order="all" if view.order == choices[order] else choices[order]))


HELP = (
    "The prediction as a sum over paths. With this run's patterns and norm scales held fixed, the final residual stream is a "
    "sum of products: the embedding itself (order 0), the embedding moved by one head (order 1, A x W_OV), by two heads in "
    "turn (order 2, a virtual head with pattern A A′ and OV circuit W_OV′ W_OV), and so on. The target's column of W_U reads "
    "each of them. MLP outputs are sources like the embedding, as recorded in this run; the final bias is that of the last norm "
    "and of W_U. The rows add up to the number in the title; the remainder is rounding.\n\n"
    "Terms: paths through one head, then through pairs. Heads: everything a head writes, whatever it read, beside the copying "
    "score of its weights and the change of the target when the head is ablated. That change has the opposite sign, and another "
    "size where later heads read the head's output or compensate for its loss.\n\n"
    "Click a head to open it in every panel, a pair to follow it in the weight panels (V), a bar to list that order alone. "
    "Double-click a pair for its composed pattern, whose rows do not sum to 1 where a norm stands between the two heads."
)

PANEL = register(
    Panel(
        name="paths",
        title=TITLE,
        view=PathsView,
        equation="x_0 W_U + Σ_h A^h x_0 W_OV^h W_U + Σ A^{h2} A^{h1} x_0 W_OV^{h1} W_OV^{h2} W_U + … + MLPs, biases",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, “Path expansion of logits”",
        help=HELP,
        needs_tokens="Type some text in the Prompt to see which paths predict its next token.",
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        area="bottom",
        order=120,
        opens="attention",
    )
)
