"""What panels of heads share: the rank of one, the map of all heads, what they are called in a table, and choosing one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from circuitlab.analysis.ordering import all_ranks, rank_in
from circuitlab.counting import ranked
from circuitlab.errors import bounded
from circuitlab.figures.marks import Axis, Heatmap, RowColumn
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.known_heads import KnownHeads
from circuitlab.model.subject import Head
from circuitlab.state.state import Kind, State

NOTE = 48  # characters of a note in a table; the readout has all of it


def head_rank(values: np.ndarray, head: Head, among: bool = True) -> str:
    """In words: the rank of a head by `values` [layer, head], among those that have a value; "no rank" where it has none."""
    return ranked(*rank_in(values.ravel(), values[head]), int((~np.isnan(values)).sum()) * among)


def rank_column(values: np.ndarray) -> np.ndarray:
    """[row]: ranks from 1 among `values` [row], equal ones alike: whole numbers unless a row has no value, whose rank is NaN."""
    rank = all_ranks(values).rank
    return rank if (rank > 0).all() else np.where(rank > 0, rank.astype(float), np.nan)


@lru_cache(maxsize=16)
def head_axes(n_layers: int, n_heads: int, group: int = 1) -> tuple[Axis, Axis]:
    """Axes of a map of all heads: heads across, layers down; a bracket for each `group` of heads that share keys and values."""
    brackets = tuple((first, first + group) for first in range(0, n_heads, group)) if group > 1 else ()
    heads = Axis("head", tuple(f"H{h}" for h in range(n_heads)), brackets=brackets)
    return heads, Axis("layer", tuple(f"L{i}" for i in range(n_layers)))


def sharing(config: ModelConfig) -> str:
    """For the caption of a map of all heads: what its brackets mean; "" where every head has keys and values of its own."""
    return "brackets: heads with one key and one value" if config.group > 1 else ""


def group_name(config: ModelConfig, kind: Kind, head: int) -> str:
    """The heads that read one key, or one value, with this one, "H3–H5"; "" for queries, and where heads have their own."""
    if kind == "Q" or config.group == 1:
        return ""
    first = config.kv_head(head) * config.group
    return f"H{first}–H{first + config.group - 1}"


def head_map(state: State, values: np.ndarray, levels: tuple[float, float], group: int = 1, **more: object) -> Heatmap:
    """A map of all heads by `values` [layer, head], the leading one marked where it is among them; `more` of a `Heatmap`.

    `group`: how many heads share keys and values.
    """
    n_layers, n_heads = values.shape
    x, y = head_axes(n_layers, n_heads, group)
    head = state.selection.head
    inside = head.layer < n_layers and head.head < n_heads
    place = {"row": head.layer, "col": head.head} if inside else {}
    return Heatmap("map", values, levels, **{"x": x, "y": y, "turns": True, **place, **more})


def published_column(known_heads: KnownHeads | None, layer: np.ndarray, head: np.ndarray) -> tuple[RowColumn, ...]:
    """What papers call these heads, and the person's notes on them, a column each; () where there is nothing of either."""
    if known_heads is None:
        return ()
    heads = [Head(int(a), int(b)) for a, b in zip(layer, head, strict=True)]
    column = lambda name, texts, tip: RowColumn(name, np.array(texts, dtype=object), tip=tip)
    columns = []
    if known_heads.roles:
        tip = f"What papers call it: a hint; {known_heads.how}"
        columns.append(column("published", [known_heads.short(one) for one in heads], tip))
    if known_heads.notes:
        texts = [bounded(known_heads.notes.get(one, ""), NOTE) for one in heads]
        columns.append(replace(column("your note", texts, "Your own notes"), spare=True))
    return tuple(columns)


def pick_head(state: State, head: Head, gesture: str) -> State:
    """Click: this head alone. Shift-click: adds it, or removes it. A chosen pair is released."""
    if gesture not in ("click", "shift-click", "double-click"):
        return state
    heads = state.selection.heads
    if gesture == "shift-click":
        rest = tuple(h for h in heads if h != head)
        return state.with_heads(*((rest or heads) if head in heads else (*heads, head)))
    return state if heads == (head,) else state.with_heads(head)
