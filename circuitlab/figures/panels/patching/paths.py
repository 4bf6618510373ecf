"""The page of path patching: one head's or MLP's output, read by the query, key or value of every later head."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circuitlab.analysis.interventions.path_patching import PathPatchingResult
from circuitlab.analysis.ordering import descending
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import digits, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import WITHOUT_HEADS, Facts
from circuitlab.figures.contracts.selection_reading import has_head, no_head, selected_edge
from circuitlab.figures.marks import Axis, Figure, Heatmap, Hit, RowColumn, Rows, ids
from circuitlab.figures.panels.patching.two_prompts import Show, effect_map, effects_of, under_prompts
from circuitlab.model.subject import Head
from circuitlab.state.state import Kind, State

LISTED = 30
INPUTS: tuple[Kind, ...] = ("Q", "K", "V")


def sender_of(state: State, facts: Facts) -> Head | None:
    """The head whose paths are shown: the earlier head of the chosen pair, else the leading head."""
    edge = selected_edge(state, facts)
    if edge is not None:
        return edge[0]
    return state.selection.head if has_head(state.selection.head, facts) else None


def why_no_path(state: State, facts: Facts) -> str:
    """Why there is no path to show; "" if there is one."""
    config, head = facts.config, sender_of(state, facts)
    if config.norm_placement != "pre":
        return "This model's norms follow its sublayers, so the output of one head cannot be patched into one reader."
    if not config.n_layers:
        return WITHOUT_HEADS
    if config.n_layers < 2:
        return "A one-layer model has no path from head to head: see the grid."
    if head is None:
        return no_head(state.selection.head, facts).text
    if head.layer + 1 >= config.n_layers:
        return f"{head} is in the last layer, where no head reads it: choose an earlier head in All heads."
    return ""


def figure_of_paths(state: State, facts: Facts, answer: Answer[PathPatchingResult], show: Show) -> Figure:
    """Both prompts, a map of receivers for queries, keys and values, and a table of the strongest paths."""
    result, params = answer.result, answer.request.params
    sender: Head = params.sender
    name = f"MLP of layer {sender.layer}" if params.writer == "mlp" else str(sender)
    path = _chosen(state, facts, sender)
    table = memo(answer, "table", lambda: _strongest(result, sender))
    chosen_rows = tuple(i for i, key in enumerate(table.ids.tolist()) if path is not None and key == [*sender, *path])
    table = replace(table, chosen=chosen_rows)
    heat = _map(answer, result, sender, show, path)
    rows = (heat, min(1.5 + 0.15 * len(heat.values), 3.0)), (table, 2.0)
    return under_prompts(state, facts, answer, rows, f"{name} → one later head")


def _chosen(state: State, facts: Facts, sender: Head) -> tuple[int, int, int] | None:
    """(layer, input, head) of the receiver in the chosen pair, if the pair is a path from the sender."""
    edge = selected_edge(state, facts)
    if edge is None or edge[0] != sender or edge[1].layer <= sender.layer:
        return None
    return edge[1].layer, INPUTS.index(state.selection.edge_kind), edge[1].head


def _map(answer: Answer, result: PathPatchingResult, sender: Head, show: Show, path: tuple[int, int, int] | None) -> Heatmap:
    """A row for each later layer; columns are its heads by query, then by key, then by value."""
    first = sender.layer + 1
    values = memo(answer, ("map", show), lambda: _side_by_side(effects_of(show, result)[:, first:]))
    axes = memo(answer, "axes", lambda: _axes(result, sender))
    row, col = (None, None) if path is None else (path[0] - first, axes[3].tolist().index([*path[1:]]))
    return effect_map("paths", answer, show, values, axes, row=row, col=col)


def _side_by_side(values: np.ndarray) -> np.ndarray:
    """[input, layer, head] as [layer, input · head] float32, with an empty column between inputs."""
    gap = np.full((values.shape[1], 1), np.nan)
    blocks = [block for by_input in values for block in (gap, by_input)][1:]
    return np.concatenate(blocks, axis=1).astype(np.float32)


def _axes(result: PathPatchingResult, sender: Head) -> tuple[Axis, Axis, np.ndarray, np.ndarray]:
    """Axes and ids: of rows (sender, receiving layer), of columns (input, head), of an empty column (−1, −1)."""
    n_layers, n_heads = result.values.shape[1:]
    keys, ticks = [], []
    for name in result.names:
        if keys:
            keys.append((-1, -1))
            ticks.append("")
        keys += [(INPUTS.index(name), h) for h in range(n_heads)]
        ticks += [f"{name}{h}" for h in range(n_heads)]
    later = np.arange(sender.layer + 1, n_layers)
    full = lambda value: np.full(len(later), value)
    rows = ids(full(sender.layer), full(sender.head), later)
    return (
        Axis("query Q, key K or value V of head", tuple(ticks)),
        Axis("layer", tuple(f"L{i}" for i in later)),
        rows,
        ids(*np.array(keys).T),
    )


def _strongest(result: PathPatchingResult, sender: Head) -> Rows:
    """Table of the paths by size of their effect; ids are (sender, layer, input, head)."""
    into, layer, head = np.nonzero(np.isfinite(result.values))
    effect, share = result.effect[into, layer, head], result.normalised[into, layer, head]
    order = descending(effect, by_size=True)[:LISTED]
    names = [f"{Head(int(layer[i]), int(head[i]))} by {result.names[into[i]]}" for i in order]
    top = top_level(effect)
    columns = (
        RowColumn("receiver", np.array(names, dtype=object)),
        RowColumn("effect", effect[order], digits=digits(top), bar=True, levels=(-top, top), tip="change of the target"),
        RowColumn("share", share[order], digits=3, tip="share of the difference between the two prompts"),
    )
    full = lambda value: np.full(len(order), value)
    kinds = np.array([INPUTS.index(result.names[into[i]]) for i in order], dtype=np.int64)
    keys = ids(full(sender.layer), full(sender.head), layer[order], kinds, head[order])
    return Rows("strongest", columns, keys, heading="strongest paths", ranked=True, total=len(effect))


def pick_path(state: State, hit: Hit) -> State:
    """A cell or a row chooses the pair; picked again, it chooses the sender alone."""
    if len(hit.id) != 5 or min(hit.id) < 0:
        return state
    sender, receiver = Head(*hit.id[:2]), Head(hit.id[2], hit.id[4])
    kind: Kind = INPUTS[hit.id[3]]
    selection = state.selection
    if selection.edge == (sender, receiver) and selection.edge_kind == kind:
        return state.with_heads(sender)
    return state.with_edge(sender, receiver, kind)
