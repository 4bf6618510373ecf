"""Edges in the circuit panel: the table of them, the chosen edge that can be added, the entries of the context menu."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

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
from circuitlab.model.config import ModelConfig
from circuitlab.state.cuts import Offer, register_offer
from circuitlab.state.state import State

KEPT, OFFERED = 0, 1  # kinds of rows in the table: an edge of the circuit; the chosen edge, which is not in it
EDGES_ELSEWHERE = "List the edges of the circuit, for instance --set edges=L0H3->L1H1:K."
MOST = 400  # edges in a circuit: minimality takes a forward pass for each


@dataclass(frozen=True)
class KeepOnlyView:
    """The controls of the circuit panel."""

    of: Literal["heads", "edges"] = control(
        "heads", label="", kind="tabs", tip="Keep only the chosen heads, or only a list of edges between heads"
    )
    edges: str = control(
        "",
        label="Edges",
        tip="The edges of the circuit, such as L0H1->L1H2:K, separated by commas; if empty, the edge chosen in Composition",
        when="of",
        values=("edges",),
    )
    how: How = control(
        "zero", label="By", tip="Ablate all the others by zero, by their mean over this text, or by the pinned text's values"
    )
    effect: Measured = control("loss", label="On", tip="What is measured; the target is chosen in the bar above")
    ends: bool = control(
        False,
        label="Logits too",
        tip="Ablate edges from heads to the logits as well, except those listed as L1H2->logits",
        when="of",
        values=("edges",),
    )
    samples: int = control(
        20, label="Random sets", tip="How many other sets of the same size to compare with, drawn at random", low=0, high=1000
    )
    seed: int = control(0, label="Seed", tip="Seed of the random sets", low=0, high=9999)


def view_of(state: State) -> KeepOnlyView:
    """The panel's controls in a state."""
    return state.view("keep_only", KeepOnlyView)


def typed_edges(view: KeepOnlyView) -> tuple[Edge, ...]:
    """The edges typed into the control, without repeats. Raises `UsageError` where one cannot be read."""
    return tuple(dict.fromkeys(Edge.parse(text) for text in view.edges.replace(";", ",").split(",") if text.strip()))


def chosen_edge(state: State, facts: Facts) -> Edge | None:
    """The edge chosen in Composition; keys and values belong to the first query head of their group."""
    pair = selected_edge(state, facts)
    return None if pair is None else Edge(*pair, state.selection.edge_kind).grouped(facts.config)


def edges_of(state: State, facts: Facts) -> tuple[Edge, ...] | Why:
    """The edges of the circuit: those listed, or the chosen one if none is listed; else why there is no circuit."""
    if facts.config.norm_placement != "pre":
        return Why("In this model each head's output passes through a norm, so edges cannot be ablated. Choose heads.")
    if facts.config.n_layers < 2 and not view_of(state).ends:
        return Why("A one-layer model has no edges between heads: tick “Logits too”, or choose heads.")
    try:
        edges = tuple(dict.fromkeys(edge.grouped(facts.config) for edge in typed_edges(view_of(state))))
    except UsageError as error:
        return Why(f"The list of edges cannot be read at {error.got}: write edges as L0H1->L1H2:K, separated by commas.")
    chosen = chosen_edge(state, facts)
    edges = edges or (() if chosen is None else (chosen,))
    if not edges:
        return Why(
            "Choose an edge in Composition: it becomes the circuit, and “+ add” in its row adds it to the list.", EDGES_ELSEWHERE
        )
    if len(edges) > MOST:
        return Why(f"{number_of(len(edges), 'edge')} are listed, and at most {MOST} can be: remove some from the list.")
    for edge in edges:
        if why := _impossible(edge, state, facts):
            return Why(why)
    return edges


def _impossible(edge: Edge, state: State, facts: Facts) -> str:
    """Why this edge cannot be part of a circuit in this model, "" where it can."""
    if not has_head(edge.source, facts) or (edge.dest is not None and not has_head(edge.dest, facts)):
        return f"This model has no {edge}: remove it from the list."
    if edge.dest is None:
        return "" if view_of(state).ends else f"{edge} counts only with “Logits too”: tick it, or remove the edge from the list."
    return "" if edge.dest.layer > edge.source.layer else f"{edge} does not lead to a later layer: remove it from the list."


def list_of(answer: Answer, result: KeepOnlyResult, state: State, facts: Facts) -> Rows:
    """A table of the circuit's edges and what is lost without each; the chosen edge comes first if it is not in the list."""
    chosen, circuit = chosen_edge(state, facts), {edge.grouped(facts.config) for edge in typed_edges(view_of(state))}

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        edges, lost = [Edge.of(row) for row in result.members], 100 * result.minimality
        if chosen is not None and chosen not in edges:
            edges, lost = [chosen, *edges], np.concatenate([[np.nan], lost])
        name = lambda edge: f"{edge.source} → {'logits' if edge.dest is None else f'{edge.dest}  {edge.kind}'}"
        top = top_level(lost)
        columns = (
            RowColumn("", np.array(["kept" if edge in circuit else "+ add" for edge in edges], dtype=object)),
            RowColumn("edge", np.array([name(edge) for edge in edges], dtype=object)),
            RowColumn("lost without it, %", lost, digits=1, bar=True, levels=(-top, top)),
        )
        return columns, np.array([(KEPT if e in circuit else OFFERED, *e.row()) for e in edges], dtype=np.int64)

    columns, keys = memo(answer, ("list", chosen, frozenset(circuit)), make)
    chosen_rows = () if chosen is None else tuple(np.flatnonzero((keys[:, 1:] == chosen.row()).all(axis=1)).tolist())
    heading = "Click “+ add” to keep the edge" if (keys[:, 0] == OFFERED).any() else "Kept; Shift-click removes an edge"
    return Rows("kept", columns, keys, chosen=chosen_rows, heading=heading)


def with_edges(state: State, edges: tuple[Edge, ...]) -> State:
    """The state with these edges as the circuit of this panel."""
    return state.with_view("keep_only", replace(view_of(state), of="edges", edges=", ".join(map(str, dict.fromkeys(edges)))))


def pick_edge(state: State, hit: Hit) -> State:
    """“+ add” adds an edge to the circuit, Shift-click removes one, and a click chooses it."""
    edge, circuit = Edge.of(hit.id[1:]), typed_edges(view_of(state))
    if hit.id[0] == OFFERED:
        return with_edges(state, (*circuit, edge))
    if hit.gesture == "shift-click":
        return with_edges(state, tuple(e for e in circuit if e != edge))
    if edge.dest is None or edge.kind == "logits":
        return state.with_heads(edge.source)
    return state.with_edge(edge.source, edge.dest, edge.kind)


@register_offer
def offers(state: State, config: ModelConfig) -> tuple[Offer, ...]:
    """The menu entry that adds the chosen edge to the circuit of this panel, or removes it."""
    pair = state.selection.edge
    if pair is None or config.norm_placement != "pre" or not pair[0].layer < pair[1].layer < config.n_layers:
        return ()
    edge = Edge(*pair, state.selection.edge_kind).grouped(config)
    try:
        circuit = typed_edges(view_of(state))
    except UsageError:
        return ()
    name = f"the edge {pair[0]} → {pair[1]} through {edge.kind}"
    if edge in circuit:
        return (Offer(f"Remove {name} (Keep only this circuit)", with_edges(state, tuple(e for e in circuit if e != edge))),)
    return (Offer(f"Keep {name} (Keep only this circuit)", with_edges(state, (*circuit, edge))),)
