"""The edges of a circuit in its panel: the list, the chosen edge that may join it, what is offered under the right button."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from circuitlab.analysis.interventions.ablation_sweep import How
from circuitlab.analysis.interventions.edges import Edge
from circuitlab.analysis.interventions.faithfulness_result import KeepOnlyResult
from circuitlab.counting import number_of
from circuitlab.engine.request import Answer
from circuitlab.errors import UsageError
from circuitlab.figures.contracts.common import top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Facts, Why, control
from circuitlab.figures.contracts.selection_reading import has_head, selected_edge
from circuitlab.figures.marks import Hit, RowColumn, Rows
from circuitlab.figures.panels.ablation import Measured
from circuitlab.session.cuts import Offer, register_offer
from circuitlab.session.state import State

KEPT, OFFERED = 0, 1  # rows of the list: an edge in it, the chosen edge that is not
MOST = 400  # edges in the list: one pass is made without each


@dataclass(frozen=True)
class KeepOnlyView:
    """The controls of the circuit panel."""

    of: Literal["heads", "edges"] = control(
        "heads", label="", kind="tabs", tip="The chosen heads alone, or a list of edges between heads alone"
    )
    edges: str = control(
        "",
        label="Edges",
        tip="The circuit, as L0H1->L1H2:K with commas between; empty: the edge chosen in Composition",
        when="of",
        values=("edges",),
    )
    how: How = control(
        "zero", label="By", tip="What all others write becomes: zero, its mean over this text, or the pinned text's"
    )
    effect: Measured = control("loss", label="On", tip="What is measured; the target is the one chosen in the bar above")
    ends: bool = control(
        False,
        label="Logits too",
        tip="Edges from heads to the logits are cut as well; kept are those listed as L1H2->logits",
        when="of",
        values=("edges",),
    )
    samples: int = control(20, label="Random sets", tip="How many sets of as many stand beside", low=0, high=1000)
    seed: int = control(0, label="Seed", tip="By which the random sets are drawn", low=0, high=9999)


def view_of(state: State) -> KeepOnlyView:
    """The settings."""
    return state.view("keep_only", KeepOnlyView)


def listed(view: KeepOnlyView) -> tuple[Edge, ...]:
    """The edges in the list, each once. Raises `UsageError`."""
    return tuple(dict.fromkeys(Edge.parse(text) for text in view.edges.replace(";", ",").split(",") if text.strip()))


def chosen_edge(state: State, facts: Facts) -> Edge | None:
    """The edge that is chosen in Composition, as the model names it."""
    found = selected_edge(state, facts)
    return None if found is None else Edge(*found, state.selection.edge_kind).grouped(facts.config)


def edges_of(state: State, facts: Facts) -> tuple[Edge, ...] | Why:
    """The circuit: the listed edges, or the chosen one where none is listed."""
    if facts.config.norm_placement != "pre":
        return Why("In this model what a head writes passes a norm of its own: edges cannot be cut. Choose heads.")
    if facts.config.n_layers < 2 and not view_of(state).ends:
        return Why("One layer has no edges between heads: tick “Logits too”, or choose heads.")
    try:
        edges = tuple(dict.fromkeys(edge.grouped(facts.config) for edge in listed(view_of(state))))
    except UsageError as error:
        return Why(f"The list of edges cannot be read at {error.got}: write edges as L0H1->L1H2:K, with commas between.")
    one = chosen_edge(state, facts)
    edges = edges or (() if one is None else (one,))
    if not edges:
        return Why("Choose an edge in Composition: it becomes the circuit, and its row here adds it to the list.")
    if len(edges) > MOST:
        return Why(f"{number_of(len(edges), 'edge')} are listed, {MOST} can be: take some out of the list.")
    for edge in edges:
        if why := _impossible(edge, state, facts):
            return Why(why)
    return edges


def _impossible(edge: Edge, state: State, facts: Facts) -> str:
    if not has_head(edge.source, facts) or (edge.dest is not None and not has_head(edge.dest, facts)):
        return f"This model has no {edge}: take it out of the list."
    if edge.dest is None:
        return (
            "" if view_of(state).ends else f"{edge} is cut and kept with “Logits too” only: tick it, or take it out of the list."
        )
    return "" if edge.dest.layer > edge.source.layer else f"{edge} does not lead to a later layer: take it out of the list."


def list_of(answer: Answer, result: KeepOnlyResult, state: State, facts: Facts) -> Rows:
    """The edges of the circuit with what each adds; the chosen edge first where it is not in the list."""
    here, kept = chosen_edge(state, facts), {edge.grouped(facts.config) for edge in listed(view_of(state))}

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        edges, lost = [Edge.of(row) for row in result.members], 100 * result.minimality
        if here is not None and here not in edges:
            edges, lost = [here, *edges], np.concatenate([[np.nan], lost])
        name = lambda edge: f"{edge.source} → {'logits' if edge.dest is None else f'{edge.dest}  {edge.kind}'}"
        top = top_level(lost)
        columns = (
            RowColumn("", np.array(["kept" if edge in kept else "+ add" for edge in edges], dtype=object)),
            RowColumn("edge", np.array([name(edge) for edge in edges], dtype=object)),
            RowColumn("lost without it, %", lost, digits=1, bar=True, levels=(-top, top)),
        )
        return columns, np.array([(KEPT if e in kept else OFFERED, *e.row()) for e in edges], dtype=np.int64)

    columns, keys = memo(answer, ("list", here, frozenset(kept)), make)
    at = () if here is None else tuple(np.flatnonzero((keys[:, 1:] == here.row()).all(axis=1)).tolist())
    heading = "Click “+ add” to keep the edge" if (keys[:, 0] == OFFERED).any() else "Kept; Shift-click lets one go"
    return Rows("kept", columns, keys, chosen=at, heading=heading)


def with_edges(state: State, edges: tuple[Edge, ...]) -> State:
    """The state with these edges as the circuit of this panel."""
    return state.with_view("keep_only", replace(view_of(state), of="edges", edges=", ".join(map(str, dict.fromkeys(edges)))))


def pick_edge(state: State, hit: Hit) -> State:
    """“+ add” keeps an edge, Shift-click lets one go, a click makes it the chosen one."""
    edge, kept = Edge.of(hit.id[1:]), listed(view_of(state))
    if hit.id[0] == OFFERED:
        return with_edges(state, (*kept, edge))
    if hit.gesture == "shift-click":
        return with_edges(state, tuple(e for e in kept if e != edge))
    if edge.dest is None or edge.kind == "logits":
        return state.with_heads(edge.source)
    return state.with_edge(edge.source, edge.dest, edge.kind)


@register_offer
def offers(state: State, config: Any) -> tuple[Offer, ...]:
    """To take the chosen edge into the circuit of this panel, or out of it."""
    found = state.selection.edge
    if found is None or config.norm_placement != "pre" or not found[0].layer < found[1].layer < config.n_layers:
        return ()
    edge = Edge(*found, state.selection.edge_kind).grouped(config)
    try:
        kept = listed(view_of(state))
    except UsageError:
        return ()
    what = f"the edge {found[0]} → {found[1]} through {edge.kind}"
    if edge in kept:
        return (Offer(f"Let {what} go (Keep only this circuit)", with_edges(state, tuple(e for e in kept if e != edge))),)
    return (Offer(f"Keep {what} (Keep only this circuit)", with_edges(state, (*kept, edge))),)
