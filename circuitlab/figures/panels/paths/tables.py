"""The tables of Paths: the terms of an expansion; heads by their weights, their direct contributions and their ablations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from circuitlab.analysis.attribution.path_expansion import BIASES, NORMALISATION, PathExpansionResult, mlp_source
from circuitlab.analysis.circuits.own_tokens import OwnTokensResult
from circuitlab.analysis.interventions.ablation import AblationResult
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.spectra.copying_scores import CopyingScoresResult
from circuitlab.counting import number_of
from circuitlab.figures.contracts.common import digits, head_column, top_level
from circuitlab.figures.marks import RowColumn, ids
from circuitlab.figures.marks.texts import ALONE

DIRECT, HEAD, PAIR = 0, 1, 2  # the first number of a row's id: its kind of path; ALONE: a sum of terms not listed
FOLDED = 4  # orders from this one on share a bar
NONE = np.empty((0, 5), dtype=np.int64)
SHORT = {"embedding": "embed", "position": "pos", "intervention": "edits"}


@dataclass(frozen=True, eq=False)
class Terms:
    """Columns and ids of a table with `shown` of `total` terms. Ids are (kind, layer, head, layer, head), padded with −1."""

    columns: tuple[RowColumn, ...]
    ids: np.ndarray
    shown: int
    total: int


def order_sums(result: PathExpansionResult) -> tuple[np.ndarray, tuple[str, ...]]:
    """The sum of each order and its name; from `FOLDED` on in one sum."""
    orders = result.orders
    names = ["0 direct", "1 head", "2 pairs", *(f"{number_of(k, 'head')} deep" for k in range(3, len(orders)))][: len(orders)]
    if len(orders) > FOLDED + 1:
        return np.append(orders[:FOLDED], orders[FOLDED:].sum()), (*names[:FOLDED], f"{FOLDED} and deeper")
    return orders, tuple(names)


def groups(result: PathExpansionResult) -> list[tuple[str, np.ndarray]]:
    """(name, columns of `by_source`) of each group of sources: MLPs together, biases together, without groups that are zero."""
    together: dict[str, str] = dict.fromkeys(BIASES, "biases")
    together |= {mlp_source(layer): "MLPs" for layer in range(len(result.head_total))}
    kinds: dict[str, list[int]] = {}
    sources: list[str] = result.sources.tolist()
    for i, name in enumerate(sources):
        kinds.setdefault(together.get(name, name), []).append(i)
    candidates = [(kind, np.array(columns)) for kind, columns in kinds.items() if kind != NORMALISATION]
    return [(kind, columns) for kind, columns in candidates if result.by_source[result.order > 0][:, columns].any()]


def term_rows(result: PathExpansionResult, order: int | None, sort: str, top: int, also: np.ndarray = NONE) -> Terms:
    """The `top` largest terms (of one order, or of all), those with ids in `also`, and the sums of the rest: rows add up."""
    terms = np.flatnonzero(result.order == order if order is not None else np.full(len(result.order), True))
    values = result.value[terms]
    within = np.abs(values) / top_level(values) / 2
    ranks = {"size": -within, "raising first": -values, "order": result.order[terms] - within}
    largest = descending(values, by_size=True)[:top]
    required = set(map(tuple, also.tolist()))
    further = [i for i, key in enumerate(_keys(result, terms).tolist()) if tuple(key) in required] if required else []
    largest = np.array([*largest, *sorted(set(further) - set(largest.tolist()))], dtype=np.int64)
    rows = terms[largest[np.argsort(ranks[sort][largest], kind="stable")]]
    rest = _rest(result, order, terms, rows)
    names = np.array([*result.names()[rows], *(name for name, _ in rest)], dtype=object)
    contribution = np.concatenate([result.value[rows], [value for _, value in rest]])
    level = top_level(result.value[rows])
    places = digits(level)
    parts = groups(result)
    adds = RowColumn("adds", contribution, digits=places, levels=(-level, level), tip="contribution to the target")
    columns = [RowColumn("path", names), replace(adds, bar=True) if len(parts) < 2 else replace(adds, map="signed")]
    keys = np.concatenate([_keys(result, rows), np.tile([ALONE, -1, -1, -1, -1], (len(rest), 1))])
    if len(parts) > 1:
        blank, passes = np.full(len(rest), np.nan), result.order[rows] > 0
        for name, sources in parts:
            split = np.concatenate([np.where(passes, result.by_source[rows][:, sources].sum(1), np.nan), blank])
            tip = f"the part of it that starts from {name}"
            columns.append(RowColumn(SHORT.get(name, name), split, digits=places, map="signed", levels=(-level, level), tip=tip))
    total = len(terms) + int(result.n_left_out[slice(None) if order is None else slice(order, order + 1)].sum())
    return Terms(tuple(columns), ids(*keys.T), len(rows), total)


def _rest(result: PathExpansionResult, order: int | None, terms: np.ndarray, rows: np.ndarray) -> list[tuple[str, float]]:
    """(name, sum) of the terms that the table does not list: the smaller ones, and orders known only by their sum."""
    orders = range(len(result.orders)) if order is None else [k for k in (order,) if k < len(result.orders)]
    count = len(terms) - len(rows) + int(sum(result.n_left_out[k] for k in orders))
    smaller = result.value[np.setdiff1d(terms, rows)].sum() + sum(result.left_out[k] for k in orders)
    sums = [(f"{count:,} smaller", float(smaller))] if count else []
    deepest = int(result.order.max(initial=0))
    deeper = result.orders[deepest + 1 :] if order is None else result.orders[:0]
    if len(deeper):
        last = len(result.orders) - 1
        name = f"all of order {last}" if len(deeper) == 1 else f"all of orders {deepest + 1}–{last}"
        sums.append((name, float(deeper.sum())))
    return sums


def _keys(result: PathExpansionResult, rows: np.ndarray) -> np.ndarray:
    """[term, 5]: ids of terms."""
    keys = np.full((len(rows), 5), -1)
    keys[:, 0] = result.order[rows]
    width = min(4, 2 * result.heads.shape[1])
    keys[:, 1 : 1 + width] = result.heads[rows].reshape(len(rows), -1)[:, :width]
    direct = result.order[rows] == DIRECT
    keys[direct, 1] = np.arange(len(result.sources))[rows[direct]]
    return keys


def head_rows(
    result: PathExpansionResult,
    copying: CopyingScoresResult | None,
    ablated: AblationResult | None,
    own: OwnTokensResult | None = None,
) -> Terms:
    """A row per head, largest contribution first; a column appears once its answer is there. Ids are (layer, head)."""
    values = result.head_total
    order = descending(values, by_size=True)
    layer, head = np.unravel_index(order, values.shape)
    level = top_level(values)
    places = digits(level)
    column = lambda name, of, tip, **more: RowColumn(name, of.ravel()[order], tip=tip, **more)
    columns = [head_column(layer, head)]
    if copying is not None and copying.copying.shape == values.shape:
        tip = "predicted by the weights: OV copying score Σλ/Σ|λ|; 1: raises the tokens it attends to, −1: lowers them"
        columns.append(column("copying", copying.copying, tip, digits=2, map="signed", levels=(-1.0, 1.0)))
    if own is not None and own.top10.shape == values.shape:
        tip = "share of tokens that are among the ten largest entries of their own row of the head's OV circuit"
        columns.append(column("own in 10", own.top10, tip, digits=2))
    tip = "direct contribution: everything the head writes here, projected on the target"
    columns.append(column("adds", values, tip, digits=places, map="signed", levels=(-level, level)))
    if ablated is not None and ablated.effect.shape == values.shape:
        tip = "change of the target when the head is zero-ablated and everything after it is recomputed"
        columns.append(column("ablated", ablated.effect, tip, digits=places, map="signed", levels=(-level, level)))
        if not ablated.exact.all():
            mark = np.where(ablated.exact, "", np.where(np.isnan(ablated.effect), "", "≈"))
            columns.append(column("", mark, "≈ first-order estimate"))
    if result.head_orders.shape[2] > 2:
        direct, deeper = result.head_orders[..., 1], result.head_orders[..., 2:].sum(-1)
        columns.append(column("order 1", direct, "the part of “adds” read from embeddings, MLPs and biases", digits=places))
        columns.append(column("deeper", deeper, "the part of “adds” read from earlier heads' outputs", digits=places))
    return Terms(tuple(columns), ids(layer, head), values.size, values.size)
