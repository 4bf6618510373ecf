"""The composition graph: which heads read what earlier heads write, through their queries, keys or values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from circuitlab.analysis.attention.head_scores import HeadScoresParams, HeadScoresResult, head_scores, short_sample
from circuitlab.analysis.base import Result
from circuitlab.analysis.composition.scores import CompositionParams, CompositionResult, composition
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.spectra.pair_positivity import PairPositivityParams, PairPositivityResult, pair_positivity
from circuitlab.caption_parts import Essential, OnPaper, Sense
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import bounded
from circuitlab.figures.contracts.common import (
    caption,
    captions,
    edge_hints,
    head_column,
    hints,
    published,
    top_level,
)
from circuitlab.figures.contracts.heads import group_name, pick_head, sharing
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import of_weights, pick_edge, weights_refusal
from circuitlab.figures.marks import Axis, Edges, Figure, Heatmap, Hit, Mark, RowColumn, Rows, ids
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head
from circuitlab.state.state import Kind, State

KINDS: tuple[Kind, ...] = ("Q", "K", "V")
Measure = Literal["minus baseline", "score", "z", "positivity"]
BASED: tuple[Measure, ...] = ("minus baseline", "score", "z")  # measures of composition scores, through any of the three
UNITS = {"minus baseline": "score − baseline", "score": "score", "z": "z", "positivity": "positivity"}
MARKED = 0.4  # a head with such a score is marked
MANY = 64  # heads: of a model with more, a graph has those with an edge, and hues for those that are selected
NOTE, MOST_NOTES = 160, 4  # characters of a note on paper, and notes
POSITIVITY = "Σλ / Σ|λ|: near 1, the destination looks for the tokens that the source moved to the keys"
MARKS = {"prefix_matching": "ind", "previous_token": "prev"}


@dataclass(frozen=True)
class CompositionView:
    """The controls of the composition graph."""

    form: Literal["auto", "graph", "matrix", "list"] = control(
        "auto", label="As", kind="tabs", tip=f"auto: a graph, or of a model with more than {MANY} heads the list"
    )
    through: Literal["Q K V", "apart", "Q", "K", "V"] = control(
        "Q K V",
        label="",
        tip="Through queries, keys, values: together in one picture, each in its own, or one of them",
        when="by",
        values=BASED,
    )
    by: Measure = control(
        "minus baseline",
        label="By",
        tip=(
            "The score, its excess over the baseline of a random rotation, or that excess in standard deviations; or of keys the "
            "positivity of the pair: Σλ / Σ|λ| of the later head's QK circuit behind the earlier head's OV circuit"
        ),
    )
    top: int = control(60, label="Top", tip="How many edges are drawn at most", low=1, high=5000, kind="slider")
    least: float = control(0.0, label="≥", tip="Edges of a smaller score are left out", low=0.0, high=1.0, kind="slider")


class Pairs(NamedTuple):
    """Pairs of heads, strongest first: `kind` 0..2, heads as layer and head [m], `score`, `z`, `value` by the chosen measure."""

    kind: np.ndarray
    dest_layer: np.ndarray
    dest: np.ndarray
    src_layer: np.ndarray
    src: np.ndarray
    score: np.ndarray
    z: np.ndarray
    value: np.ndarray

    def take(self, rows: np.ndarray) -> Pairs:
        """The pairs in these rows."""
        return Pairs(*(column[rows] for column in self))

    def keys(self) -> np.ndarray:
        """[m, 5] ids: destination, source, kind."""
        return ids(self.dest_layer, self.dest, self.src_layer, self.src, self.kind)


def requests(state: State, facts: Facts) -> Requests | Why:
    """All kinds at once, so that changing what is shown computes nothing; the positivity of pairs only where it is shown, as it
    takes long; and the scores that name heads."""
    if (why := weights_refusal(facts)) is not None:
        return why
    if facts.config.n_layers < 2:
        return Why("This model has one layer: no head has an earlier one to read from.")
    subject = of_weights(state)
    pairs = {"positivity": Request(pair_positivity, PairPositivityParams(scores="centred"), subject)}
    return {
        "composition": Request(composition, CompositionParams(), subject),
        **(pairs if _view(state).by == "positivity" else {}),
        "scores": Request(head_scores, HeadScoresParams(), subject),
    }


def _view(state: State) -> CompositionView:
    return state.view("composition", CompositionView)


def _form(view: CompositionView, facts: Facts) -> Literal["graph", "matrix", "list"]:
    """The form that is drawn: of many heads a graph hides more than it shows."""
    if view.form != "auto":
        return view.form
    return "list" if facts.config.n_layers * facts.config.n_heads > MANY else "graph"


def _kinds(view: CompositionView) -> tuple[str, ...]:
    if view.by == "positivity":
        return ("K",)
    return (view.through,) if view.through in KINDS else KINDS


@dataclass(frozen=True)
class _Found:
    """The answers that pairs are read from; `positivity` where that is their measure."""

    composition: Answer[CompositionResult]
    positivity: Answer[PairPositivityResult] | None = None

    @property
    def result(self) -> CompositionResult:
        return self.composition.result

    @property
    def both(self) -> tuple[Answer[Result] | None, ...]:
        """What values derived from both are remembered by."""
        return self.composition, self.positivity

    def measured(self, by: Measure) -> np.ndarray:
        """[kind, dest_layer, dest_head, src_layer, src_head] of the measure."""
        return _measured(self.result, by, None if self.positivity is None else self.positivity.result)


def _measured(result: CompositionResult, by: Measure, positivity: PairPositivityResult | None = None) -> np.ndarray:
    """[kind, dest_layer, dest_head, src_layer, src_head] of the measure; positivity has values of keys alone."""
    if by == "positivity":
        values = np.full(result.scores.shape, np.nan)
        if positivity is not None:
            values[result.kinds.index("K")] = positivity.pairs
        return values
    if by == "z":
        return result.z
    return result.scores if by == "score" else result.scores - np.float32(result.baseline)


def pairs_of(result: CompositionResult, by: Measure, positivity: PairPositivityResult | None = None) -> Pairs:
    """Every pair that has a value, strongest first."""
    values = _measured(result, by, positivity)
    scored = np.flatnonzero(np.isfinite(values))
    order = scored[descending(values.ravel()[scored])]
    columns = (*np.unravel_index(order, values.shape), *(array.ravel()[order] for array in (result.scores, result.z, values)))
    return Pairs(*columns)


def _shown(found: _Found, view: CompositionView, kinds: tuple[str, ...]) -> tuple[Pairs, int]:
    """The pairs that are drawn, and how many there are of these kinds."""

    def make() -> tuple[Pairs, int]:
        positivity = None if found.positivity is None else found.positivity.result
        pairs = memo(found.both, ("pairs", view.by), lambda: pairs_of(found.result, view.by, positivity))
        of_kinds = pairs.take(np.flatnonzero(np.isin(pairs.kind, [KINDS.index(k) for k in kinds])))
        strong = (of_kinds.value if view.by == "positivity" else of_kinds.score) >= view.least
        strong &= (of_kinds.value > 0) if view.by != "score" else True
        return of_kinds.take(np.flatnonzero(strong)[: view.top]), len(of_kinds.kind)

    return memo(found.both, ("shown", view.by, view.top, view.least, kinds), make)


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Graph, matrix or list."""
    view = _view(state)
    positive = answers.of("positivity", pair_positivity) if view.by == "positivity" else None
    answer = _Found(answers.of("composition", composition), positive)
    kinds, form = _kinds(view), _form(view, facts)
    groups = [(k,) for k in kinds] if view.through == "apart" or form == "matrix" else [kinds]
    shown = [_shown(answer, view, group) for group in groups]
    if form == "matrix":
        marks: tuple[Mark, ...] = tuple(_matrix(answer, view, kind, state) for kind in kinds)
        counted = None
    else:
        counted = (sum(len(pairs.kind) for pairs, _ in shown), sum(n for _, n in shown))
        if form == "list":
            pairs, total = _shown(answer, view, kinds)
            marks, counted = (replace(_list(answer, view, pairs, kinds, state, facts), total=total),), None
        else:
            behaviour = _behaviour(answers.find("scores", head_scores))
            marks = tuple(
                _graph(answer, view, pairs, group, state, facts, behaviour)
                for group, (pairs, _) in zip(groups, shown, strict=True)
            )
    words = _marked(facts, answers.find("scores", head_scores)) if form == "graph" else ""
    key, note_texts = _daggers(facts, [pairs for pairs, _ in shown]) if form == "graph" else ("", OnPaper(""))
    title = _title(answer, state.selection.edge, state.selection.edge_kind) + (f" · † {key}" if key else "")
    wide = Essential(f"wider lines: larger {UNITS[view.by]}", Sense(of_differences="")) if form == "graph" else ""
    n = facts.config.n_layers * facts.config.n_heads
    left_out = (
        Essential(f"of {number_of(n, 'head')} those with an edge, and selected ones") if form == "graph" and n > MANY else ""
    )
    more = (
        wide,
        left_out,
        sharing(facts.config) if form == "graph" else "",
        words,
        ("† " if key else "") + published(facts),
        note_texts,
    )
    if positive is None:
        return Figure((marks,), title, caption(answer.composition, *more), counted)
    said = {"K-composition": answer.composition, "positivity": positive}
    return Figure((marks,), title, captions(said, _computed(answer), *more), counted)


def _computed(found: _Found) -> str:
    """For the caption: of which pairs the positivity is known, while it is not of all; else ""."""
    if found.positivity is None or found.positivity.complete:
        return ""
    known, every = found.positivity.result.known(), int(np.isfinite(found.result.scores[found.result.kinds.index("K")]).sum())
    return Essential(f"positivity so far of {known:,} of {number_of(every, 'pair')}, those of high K-composition first")


def _daggers(facts: Facts, shown: Sequence[Pairs]) -> tuple[str, OnPaper]:
    """What the daggers of a graph of these pairs mean, "" without any, and for paper the texts of one's own notes."""
    if (known_heads := facts.known_heads()) is None:
        return "", OnPaper("")
    drawn = {pair for pairs in shown for pair in _source_and_dest(pairs.keys())} if known_heads.edges else ()
    texts = [bounded(text, NOTE) for text in known_heads.note_texts(drawn)]
    more = (f"and {len(texts) - MOST_NOTES} more",) if len(texts) > MOST_NOTES else ()
    return known_heads.key(drawn), OnPaper(f"† your notes: {'; '.join((*texts[:MOST_NOTES], *more))}" if texts else "")


def _source_and_dest(edge_ids: np.ndarray) -> list[tuple[Head, Head]]:
    """The heads of edges [m, 5] as `Pairs.keys` has them."""
    return [(Head(*key[2:4]), Head(*key[:2])) for key in edge_ids.tolist()]


def _title(found: _Found, edge: tuple[Head, Head] | None, kind: Kind) -> str:
    """The chosen pair's own entry of the answer, which is one to all pairs; without a pair what was asked, and the baseline."""
    result = found.result
    asked = "Composition" if found.positivity is None else "Positivity of pairs, and K-composition"
    title = f"{asked} · baseline {result.baseline:.3f}"
    if edge is None or kind not in result.kinds:
        return title
    source, dest = edge
    if max(source.layer, dest.layer) >= result.scores.shape[1] or max(source.head, dest.head) >= result.scores.shape[2]:
        return title
    place = (result.kinds.index(kind), *dest, *source)
    score = f"{result.scores[place]:.3f}, z {number(result.z[place], '.1f')}"
    own = f"{kind}-composition {source} → {dest}: {score} · baseline {result.baseline:.3f}"
    if found.positivity is None or kind != "K":
        return own
    value = found.positivity.result.pairs[place[1:]]
    return (
        f"{own} · positivity {'not yet computed' if np.isnan(value) and not found.positivity.complete else number(value, '.3f')}"
    )


def _marked(facts: Facts, answer: Answer[HeadScoresResult] | None) -> str:
    """For the caption: what the numbers beside heads are, and on how many samples of what; "" without any."""
    if not _behaviour(answer):
        return ""
    assert answer is not None
    names, sample = "ind, prev: prefix matching and previous token", short_sample(facts.config, answer.request.params)
    return Essential(f"{names} from {MARKED:g}, where there is room, on random tokens, {sample} (samples × block × repeats)")


def _behaviour(answer: Answer[HeadScoresResult] | None) -> dict[Head, str]:
    """What heads do on repeated random tokens, where they score at least `MARKED`: head -> "ind 0.93"."""
    if answer is None:
        return {}
    result = answer.result

    def make() -> dict[Head, str]:
        names: dict[Head, str] = {}
        for score, short in MARKS.items():
            values = result.of(score)
            for layer, head in np.argwhere(np.nan_to_num(values) >= MARKED).tolist():
                key = Head(layer, head)
                names[key] = " ".join(t for t in (names.get(key, ""), f"{short} {values[layer, head]:.2f}") if t)
        return names

    return memo(answer, "named", make)


def _nodes(answer: _Found, facts: Facts) -> tuple[np.ndarray, tuple[str, ...], np.ndarray, np.ndarray]:
    """Positions (layers from below, every second one shifted by half a head so that edges pass beside), labels, hues, ids."""

    def make() -> tuple[np.ndarray, tuple[str, ...], np.ndarray, np.ndarray]:
        layer, head = np.indices((facts.config.n_layers, facts.config.n_heads)).reshape(2, -1)
        heads = [Head(int(a), int(b)) for a, b in zip(layer, head, strict=True)]
        xy = np.stack([head + 0.5 * (layer % 2), layer], axis=1).astype(float)
        return xy, tuple(map(str, heads)), np.array([head_hue(h) for h in heads]), ids(layer, head)

    return memo(answer.composition, "nodes", make)


class _Drawn(NamedTuple):
    """The nodes of a graph: `xy` [n, 2], labels, `hues` [n], `ids` [n, 2]; `ends` [m, 2] of its edges; names of rows.

    `alone`: those that have no edge, as indices of all heads.
    """

    xy: np.ndarray
    labels: tuple[str, ...]
    hues: np.ndarray
    ids: np.ndarray
    ends: np.ndarray
    rows: tuple[tuple[float, str], ...]
    brackets: tuple[tuple[int, ...], ...]
    alone: tuple[int, ...] = ()


def _drawn(answer: _Found, facts: Facts, ends: np.ndarray, selected: set[tuple[int, int]], key: tuple[object, ...]) -> _Drawn:
    """Every head; of more than `MANY` those with an edge of `ends` and the selected ones, in rows of the layers that have any."""
    xy, labels, hues, node_ids = _nodes(answer, facts)
    n_layers, n_heads = facts.config.n_layers, facts.config.n_heads
    if n_layers * n_heads <= MANY:
        rows = memo(answer.composition, "rows", lambda: tuple((float(i), f"L{i}") for i in range(n_layers)))
        brackets = memo(answer.composition, "brackets", lambda: _brackets(facts.config, node_ids))
        return _Drawn(xy, labels, hues, node_ids, ends, rows, brackets)
    here = sorted(layer * n_heads + head for layer, head in selected if layer < n_layers and head < n_heads)
    alone = tuple(node for node in here if node not in ends)

    def make() -> _Drawn:
        nodes = np.unique(np.concatenate([ends.ravel(), np.array(alone, dtype=ends.dtype)]))
        layers, row = np.unique(nodes // n_heads, return_inverse=True)
        places = np.stack([nodes % n_heads + 0.5 * (row % 2), row], axis=1).astype(float)
        names = tuple(labels[node] for node in nodes.tolist())
        rows = tuple((float(i), f"L{layer}") for i, layer in enumerate(layers.tolist()))
        brackets = _brackets(facts.config, node_ids[nodes])
        return _Drawn(places, names, hues[nodes], node_ids[nodes], np.searchsorted(nodes, ends), rows, brackets, alone)

    drawn = memo(answer.both, ("drawn", *key, alone), make)
    own = lambda: np.where([tuple(node) in selected for node in drawn.ids.tolist()], drawn.hues, -1)
    return drawn._replace(hues=memo(answer.both, ("hues", *key, tuple(here)), own))


def _brackets(config: ModelConfig, node_ids: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The nodes of each key-value group of which several are drawn; () where every head has its own key and value."""
    if config.group == 1:
        return ()
    together: dict[tuple[int, int], list[int]] = {}
    for i, (layer, head) in enumerate(node_ids.tolist()):
        together.setdefault((layer, config.kv_head(head)), []).append(i)
    return tuple(tuple(nodes) for nodes in together.values() if len(nodes) > 1)


def _graph(
    answer: _Found,
    view: CompositionView,
    pairs: Pairs,
    kinds: tuple[str, ...],
    state: State,
    facts: Facts,
    behaviour: dict[Head, str],
) -> Edges:
    n_heads = facts.config.n_heads

    def make() -> tuple[np.ndarray, ...]:
        ends = np.stack([pairs.src_layer * n_heads + pairs.src, pairs.dest_layer * n_heads + pairs.dest], axis=1)
        return ends, (pairs.value / top_level(pairs.value)).astype(float), pairs.keys()

    key = (view.by, view.top, view.least, kinds)
    ends, weights, edge_ids = memo(answer.both, ("edges", *key), make)
    heads = {(h.layer, h.head) for h in state.selection.heads}
    drawn = _drawn(answer, facts, ends, heads, key)
    node_ids, of = drawn.ids, (*key, drawn.alone)
    published_names = hints(facts)
    mark = lambda node: " ".join(filter(None, (behaviour.get(Head(*node), ""), "†" if tuple(node) in published_names else "")))
    badge_key = ("badges", of, tuple(behaviour.items()), facts.known_heads())
    badges = memo(answer.both, badge_key, lambda: tuple(map(mark, node_ids.tolist())))
    edge_badges, edge_notes = _edge_notes(facts, edge_ids)
    return Edges(
        name="composition" if len(kinds) > 1 else f"composition {''.join(kinds)}",
        xy=drawn.xy,
        labels=drawn.labels,
        hues=drawn.hues,
        ends=drawn.ends,
        weights=weights,
        kinds=pairs.kind,
        chosen_nodes=tuple(i for i, node in enumerate(node_ids.tolist()) if tuple(node) in heads),
        chosen_edges=tuple(np.flatnonzero((edge_ids == _edge(state)).all(axis=1)).tolist()),
        values=pairs.value,
        unit=UNITS[view.by],
        node_ids=node_ids,
        edge_ids=edge_ids,
        badges=badges,
        hints=_hints(answer, facts, node_ids, of),
        rows=drawn.rows,
        brackets=drawn.brackets,
        edge_badges=edge_badges,
        edge_hints=edge_notes,
    )


def _hints(answer: _Found, facts: Facts, node_ids: np.ndarray, of: tuple[object, ...]) -> tuple[str, ...]:
    """[n]: what papers call each head, with the source; () where there is nothing of it. `of`: what the nodes follow from."""
    notes = hints(facts)
    make = lambda: tuple(notes.get((layer, head), "") for layer, head in node_ids.tolist())
    return memo(answer.both, ("hints", of, facts.known_heads()), make) if notes else ()


def _edge_notes(facts: Facts, edge_ids: np.ndarray) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the sign of a note, once for each pair; the person's note, through whichever input) by edge [m]; () without notes."""
    notes, pairs = edge_hints(facts), _source_and_dest(edge_ids)
    if not any(pair in notes for pair in pairs):
        return (), ()
    first = {pair: i for i, pair in reversed(tuple(enumerate(pairs)))}
    badges = tuple("†" if pair in notes and first[pair] == i else "" for i, pair in enumerate(pairs))
    return badges, tuple(notes.get(pair, "") for pair in pairs)


def _edge(state: State) -> tuple[int, ...]:
    """The chosen edge as an id; an id that no edge has where none is chosen."""
    edge = state.selection.edge
    return (-1,) * 5 if edge is None else (*edge[1], *edge[0], KINDS.index(state.selection.edge_kind))


def _levels(answer: _Found, view: CompositionView) -> tuple[float, float]:
    """The colour range of every kind's matrix."""
    if view.by == "positivity":
        return (-1.0, 1.0)
    top = memo(answer.both, ("top", view.by), lambda: top_level(answer.measured(view.by)))
    return (0.0 if view.by == "score" else -top, top)


def _ids_of(heads: list[Head]) -> np.ndarray:
    """[n, 2]."""
    return ids(np.array([h.layer for h in heads]), np.array([h.head for h in heads]))


def _matrix(answer: _Found, view: CompositionView, kind: str, state: State) -> Heatmap:
    result = answer.result
    n_layers, n_heads = result.scores.shape[1:3]
    n = (n_layers - 1) * n_heads

    def make() -> np.ndarray:
        by_pair = answer.measured(view.by)[result.kinds.index(kind)]
        return np.ascontiguousarray(by_pair[1:, :, :-1].reshape(n, n), dtype=np.float32)

    values = memo(answer.both, ("matrix", view.by, kind), make)
    heads = memo(answer.composition, "heads", lambda: [Head(i, h) for i in range(n_layers) for h in range(n_heads)])

    def axis(label: str, first: int) -> Axis:
        """The heads of all layers but one, from the layer `first` on; of many the layers have names in place of heads."""
        some = heads[first * n_heads :][:n]
        layers = [(i * n_heads, (i + 1) * n_heads, f"L{first + i}") for i in range(n_layers - 1)]
        return Axis(label, tuple(map(str, some)), spans=tuple(layers) if len(heads) > MANY else ())

    edge = state.selection.edge if state.selection.edge_kind == kind else None
    return Heatmap(
        name=kind,
        values=values,
        levels=_levels(answer, view),
        map="magnitude" if view.by == "score" else "signed",
        unit=UNITS[view.by],
        x=memo(answer.composition, ("x", kind), lambda: axis(f"source, {kind}", 0)),
        y=memo(answer.composition, "y", lambda: axis("destination", 1)),
        row=None if edge is None else (edge[1].layer - 1) * n_heads + edge[1].head,
        col=None if edge is None else edge[0].layer * n_heads + edge[0].head,
        row_ids=memo(answer.composition, "row_ids", lambda: _ids_of(heads[n_heads:])),
        col_ids=memo(answer.composition, "col_ids", lambda: _ids_of(heads[:n])),
        colour_bar=len(_kinds(view)) == 1,
    )


def _shared_column(config: ModelConfig, pairs: Pairs) -> tuple[RowColumn, ...]:
    """The heads that share the key or the value that an edge runs into; () where every head has its own."""
    if config.group == 1:
        return ()
    names = np.array([[group_name(config, kind, head) for head in range(config.n_heads)] for kind in KINDS], dtype=object)
    tip = "By these heads: edges into what one group shares are one edge, and a cut of it is one of all of them"
    return (RowColumn("shared", names[pairs.kind, pairs.dest], tip=tip),)


def _list(answer: _Found, view: CompositionView, pairs: Pairs, kinds: tuple[str, ...], state: State, facts: Facts) -> Rows:
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        heads = head_column(pairs.src_layer, pairs.src, "source"), head_column(pairs.dest_layer, pairs.dest, "destination")
        shared = _shared_column(facts.config, pairs)
        of_scores = (
            RowColumn("− baseline", pairs.score - np.float32(result.baseline), digits=3),
            RowColumn("z", pairs.z, digits=1, tip="(score² − 1/d) / sd, one side rotated at random; skewed: no p-value"),
        )
        if view.by == "positivity":
            positivity = RowColumn("positivity", pairs.value, digits=3, bar=True, levels=(-1.0, 1.0), tip=POSITIVITY)
            return (*heads, *shared, positivity, RowColumn("K-composition", pairs.score, digits=3), *of_scores), pairs.keys()
        score = RowColumn("score", pairs.score, digits=3, bar=True, levels=(0.0, top_level(pairs.score)))
        through = RowColumn("through", np.array(list(KINDS), dtype=object)[pairs.kind])
        return (through, *heads, *shared, score, *of_scores), pairs.keys()

    columns, keys = memo(answer.both, ("list", view.by, view.top, view.least, kinds), make)
    chosen = tuple(np.flatnonzero((keys == _edge(state)).all(axis=1)).tolist())
    return Rows("pairs", columns, keys, chosen=chosen, searchable=True, ranked=True)


def pick(state: State, hit: Hit) -> State:
    """A node chooses its head, an edge, a cell or a row its pair of heads."""
    if hit.gesture not in ("click", "shift-click", "double-click") or not hit.id:
        return state
    if hit.mark.startswith("composition") and hit.id[0] == 0:
        return pick_head(state, Head(*hit.id[1:3]), hit.gesture)
    place = hit.id[1:] if hit.mark.startswith("composition") else hit.id
    if hit.mark in KINDS:
        place = (*place, KINDS.index(hit.mark))
    if len(place) != 5 or place[0] <= place[2]:
        return state
    source, dest, kind = Head(*place[2:4]), Head(*place[:2]), KINDS[place[4]]
    return pick_edge(state, source, dest, kind)


PANEL = register(
    Panel(
        name="composition",
        title="Composition",
        view=CompositionView,
        equation=(
            "Q: ‖W_OV¹ W_QK²‖ / (‖W_OV¹‖ ‖W_QK²‖);  K: W_QK²ᵀ in its place;  V: W_OV²;  baseline √(1/d_model);  "
            "positivity: Σλ / Σ|λ| of W_E W_QK² W_OV¹ᵀ W_Eᵀ"
        ),
        source=(
            "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, “Three kinds of composition”, "
            "“Mechanistic view of induction heads”"
        ),
        help=(
            "Layers from below. Click an edge to read the pair in tables and spectra, a head to read it alone. By positivity, "
            "those pairs come first whose later head looks for the very tokens that the earlier head moved: so a previous-token "
            "head and its induction head stand out. Pairs of high K-composition are computed first."
        ),
        requests=requests,
        draw=draw,
        optional=("scores",),
        pick=pick,
        of_heads=True,
        instead="Paths has the direct path, which is all that there is",
        area="centre",
        shortcut="Ctrl+6",
        order=60,
        opens="circuits",
    )
)
