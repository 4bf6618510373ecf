"""Keep only this circuit: ablate all but the chosen heads or listed edges, and compare with random sets of the same size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circuitlab.analysis.interventions.circuit_faithfulness import KeepOnlyParams, KeepOnlyResult, keep_only
from circuitlab.analysis.interventions.edges import Edge, Through
from circuitlab.analysis.interventions.faithfulness_result import names_of
from circuitlab.counting import number, ranked
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.facts import HEADS_ELSEWHERE
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, register
from circuitlab.figures.contracts.selection_reading import selected_heads
from circuitlab.figures.marks import Axis, Bars, Figure, Hit, Points, empty
from circuitlab.figures.panels.ablation import NEEDS_TOKENS, base_params, too_short
from circuitlab.figures.panels.circuit.edges import KeepOnlyView, edges_of, list_of, pick_edge, view_of, with_edges
from circuitlab.model.subject import Head
from circuitlab.state.state import State

FAITHFUL = Axis("faithfulness, %")
COMPLETE = Axis("completeness, %")
TITLE = "Keep only this circuit"


def requests(state: State, facts: Facts) -> Requests | Why:
    """Faithfulness of the circuit: the chosen heads, or the listed edges."""
    view = view_of(state)
    base = base_params(state, facts, view.how, view.effect)
    if isinstance(base, Why):
        return base
    params = KeepOnlyParams((), base.how, base.source, base.effect, base.target, base.position, view.samples, view.seed)
    if view.of == "edges":
        edges = edges_of(state, facts)
        if isinstance(edges, Why):
            return edges
        ways: tuple[Through, ...] = ("Q", "K", "V", "logits") if view.ends else ("Q", "K", "V")
        return {"circuit": Request(keep_only, replace(params, edges=tuple(map(str, edges)), through=ways), state.subject)}
    heads = tuple(sorted(selected_heads(state, facts)))
    if not heads:
        return Why("Choose the heads of a circuit: click one in All heads, Shift-click adds more.", HEADS_ELSEWHERE)
    return {"circuit": Request(keep_only, replace(params, heads=heads), state.subject)}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """Faithfulness against completeness, and below it what is lost without each head or edge."""
    answer = answers.of("circuit", keep_only)
    result = answer.result
    if np.isnan(result.intact):
        return empty(too_short(state), TITLE)
    if np.isnan(result.whole) and result.done == 1:
        what = "edge" if result.are_edges else "head"
        why = f"Ablating every {what} changes nothing here, so there is no share to take: choose another measure or text."
        return empty(why, TITLE)
    below = list_of(answer, result, state, facts) if result.are_edges else _minimality(answer, result)
    weights = (1.4, 1.0) if result.are_edges else (2.0, 1.0)
    return Figure(((_plane(answer, result),), (below,)), _title(result), caption(answer, *_values(result)), weights=weights)


def _title(result: KeepOnlyResult) -> str:
    what, few = ("edges", 2) if result.are_edges else ("heads", 4)
    members = " ".join(map(_shown, result.names)) if len(result.names) <= few else f"{len(result.names)} {what}"
    if np.isnan(result.faithfulness):
        return f"only {members}"
    rank, n = result.rank("faithfulness")
    among = f" ({ranked(*rank, n)})" if n > 1 else ""
    return f"only {members}: faithfulness {_percent(result.faithfulness)}{among}, completeness {_percent(result.completeness)}"


def _percent(share: float) -> str:
    return number(share, ".0%")


def _shown(name: str) -> str:
    return name.replace("->", "→")


def _values(result: KeepOnlyResult) -> tuple[str, ...]:
    """Parts of the caption: the values behind the shares, the mean and spread of the random sets, what the ring marks."""
    what = "edges" if result.are_edges else "heads"
    measurements = {
        f"all {what}": result.intact,
        "none": result.bare,
        "only these": result.circuit,
        "without these": result.without,
    }
    values = ", ".join(f"{name} {number(value, '.3f')}" for name, value in measurements.items() if not np.isnan(value))
    random = result.random_faithfulness
    random = random[~np.isnan(random)]
    spread = f" ± {random.std(ddof=1):.0%} (sd)" if len(random) > 1 else ""
    sets = "all other sets" if result.all_others else "random sets"
    random_sets = f"{sets}: faithfulness {_percent(float(random.mean()))}{spread}" if len(random) else ""
    return f"{values} {result.unit}", random_sets, f"ringed: the {what} kept"


def _plane(answer: Answer, result: KeepOnlyResult) -> Points:
    def make() -> tuple[np.ndarray, ...]:
        x = 100 * np.concatenate([[result.faithfulness], result.random_faithfulness])
        y = 100 * np.concatenate([[result.completeness], result.random_completeness])
        keys = np.stack([np.asarray(members, dtype=np.int64).ravel() for members in (result.members, *result.random_members)])
        finite = np.flatnonzero(~np.isnan(x) & ~np.isnan(y))
        return x[finite], y[finite], keys[finite]

    x, y, keys = memo(answer, "points", make)
    width = result.members.shape[1]
    names = memo(answer, "names", lambda: tuple(_name(key.reshape(-1, width)) for key in keys))
    tip = lambda i: f"{names[i]}  faithfulness {number(x[i], '.1f')} %, completeness {number(y[i], '.1f')} %"
    own = tuple(np.flatnonzero((keys == result.members.ravel()).all(axis=1)).tolist())
    values = memo(answer, "shade", lambda: np.where(np.arange(len(x)) == 0, 1.0, 0.35))
    return Points(
        name="plane",
        x=x,
        y=y,
        ids=keys,
        tips=memo(answer, "tips", lambda: tuple(map(tip, range(len(x))))),
        values=values,
        levels=(0.0, 1.0),
        size=8.0,
        chosen=own[:1],
        x_axis=FAITHFUL,
        y_axis=COMPLETE,
    )


def _name(members: np.ndarray) -> str:
    names = [_shown(name) for name in names_of(members)]
    return " ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _minimality(answer: Answer, result: KeepOnlyResult) -> Bars:
    heads = [Head(*h) for h in result.members.tolist()]
    return Bars(
        name="minimality",
        values=memo(answer, "minimality", lambda: np.round(100 * result.minimality, 1)),
        labels=memo(answer, "labels", lambda: tuple(f"without {h}" for h in heads)),
        hues=memo(answer, "hues", lambda: tuple(head_hue(h) for h in heads)),
        unit="% of faithfulness lost",
    )


def pick(state: State, hit: Hit) -> State:
    """A bar makes its head the leading one, a row of the table chooses or adds an edge, a point makes its set the circuit."""
    if hit.gesture not in ("click", "shift-click", "double-click") or not hit.id:
        return state
    if hit.mark == "kept":
        return pick_edge(state, hit)
    if hit.gesture == "shift-click":
        return state
    if hit.mark == "minimality":
        heads = tuple(sorted(state.selection.heads))
        if hit.id[0] >= len(heads):
            return state
        first = heads[hit.id[0]]
        return state.with_heads(first, *(h for h in state.selection.heads if h != first))
    if hit.mark == "plane" and view_of(state).of == "edges":
        return with_edges(state, tuple(Edge.of(row) for row in np.array(hit.id).reshape(-1, 5)))
    if hit.mark == "plane":
        pairs = np.array(hit.id).reshape(-1, 2).tolist()
        return state.with_heads(*(Head(*h) for h in pairs))
    return state


PANEL = register(
    Panel(
        name="keep_only",
        title="Keep only this circuit",
        view=KeepOnlyView,
        equation="faithfulness = (F(S) − F(∅)) / (F(all) − F(∅));   completeness = (F(all) − F(all∖S)) / (F(all) − F(∅))",
        source="Wang et al. 2022, Interpretability in the Wild (criteria; their differences divided by F(all) − F(∅))",
        help=(
            "S is the set of chosen heads (Shift-click adds one). F(S) is the measured value when every head outside S is "
            "ablated; MLPs and embeddings stay. Far to the right, the chosen heads alone do what the model does; far up, it "
            "fails without them. The other points are random sets of the same size, all different and none of them the circuit, "
            "which should stand out from them; where there are few sets, they are all there are. "
            "Bars: how much faithfulness is lost when a head leaves the circuit; near zero, the head is not needed. Click a "
            "point to choose its heads.\n\n"
            "Edges: an edge is ablated for one reader. The query, key or value of the later head is computed from the stream "
            "x − Σ z_s W_O, where s are the heads whose edges to it are ablated. Every edge from a head to a later head is "
            "ablated unless it is listed; with “Logits too”, so is every edge to the unembedding. Edges to MLPs are never "
            "ablated. Choose an edge in Composition, then click “+ add” here, or “Keep the edge …” in the context menu."
        ),
        needs_tokens=NEEDS_TOKENS,
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Paths has the direct path, which is the whole model",
        area="bottom",
        order=150,
        opens="attention",
    )
)
