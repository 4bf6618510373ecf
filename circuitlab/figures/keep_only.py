"""Keep only this circuit: the chosen heads alone, beside random sets of as many heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.keep_only import KeepOnlyParams, KeepOnlyResult
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.ablation import Measured, base_params, too_short
from circuitlab.figures.common import caption, once
from circuitlab.figures.hues import head_hue
from circuitlab.figures.marks import Axis, Bars, Figure, Hit, Points, empty
from circuitlab.figures.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.pivot import chosen
from circuitlab.model.subject import Head
from circuitlab.session.state import State

FAITHFUL = Axis("faithfulness, %")
COMPLETE = Axis("completeness, %")


@dataclass(frozen=True)
class KeepOnlyView:
    """The controls of the circuit panel."""

    how: Literal["zero", "mean", "resample"] = control(
        "zero", label="By", tip="What z of every other head becomes: zero, its mean over this text, or the pinned text's"
    )
    effect: Measured = control("loss", label="On", tip="What is measured; the target is the one chosen in the bar above")
    samples: int = control(20, label="Random sets", tip="How many sets of as many heads stand beside", low=0, high=1000)
    seed: int = control(0, label="Seed", tip="By which the random sets are drawn", low=0, high=9999)


def _view(state: State) -> KeepOnlyView:
    return state.view("keep_only", KeepOnlyView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The chosen heads are the circuit."""
    view = _view(state)
    base = base_params(state, view.how, view.effect)
    if isinstance(base, Why):
        return base
    heads = tuple(sorted(chosen(state, facts)))
    if not heads:
        return Why("Choose the heads of a circuit: click one in All heads, Shift-click adds more.")
    params = KeepOnlyParams(heads, base.how, base.source, base.effect, base.target, base.position, view.samples, view.seed)
    return {"circuit": Request("keep_only", params, state.subject)}


def figure(state: State, facts: Facts, now: Answers, ref: Answers) -> Figure:
    """The plane of faithfulness and completeness, and what each head adds."""
    asked = requests(state, facts)
    if isinstance(asked, Why):
        return empty(asked.text, "Keep only this circuit")
    answer = now.get("circuit")
    if answer is None:
        return Figure(title="Keep only this circuit")
    result = answer.result
    assert isinstance(result, KeepOnlyResult)
    if np.isnan(result.all_heads):
        return empty(too_short(state), "Keep only this circuit")
    if np.isnan(result.whole) and result.done == 1:
        why = "Ablating every head changes nothing here, so that no share can be taken: measure something else, or another text."
        return empty(why, "Keep only this circuit")
    grid = ((_plane(answer, result),), (_minimality(answer, result),))
    return Figure(grid, _title(result), caption(answer, *_values(result)), weights=(2.0, 1.0))


def _title(result: KeepOnlyResult) -> str:
    names = [str(Head(*h)) for h in result.heads.tolist()]
    said = " ".join(names) if len(names) <= 4 else f"{len(names)} heads"
    if np.isnan(result.faithfulness):
        return f"only {said}"
    rank, n = result.rank("faithfulness")
    among = f" (rank {rank} of {n})" if n > 1 else ""
    return f"only {said}: faithful {result.faithfulness:.0%}{among}, complete {result.completeness:.0%}"


def _values(result: KeepOnlyResult) -> tuple[str, ...]:
    """The values that shares are made of, and the random sets in two numbers."""
    named = {
        "all heads": result.all_heads,
        "none": result.no_heads,
        "only these": result.circuit,
        "without these": result.without,
    }
    values = ", ".join(f"{name} {value:.3f}" for name, value in named.items() if not np.isnan(value))
    random = result.random_faithfulness
    random = random[~np.isnan(random)]
    spread = f" ± {random.std(ddof=1):.0%} (sd)" if len(random) > 1 else ""
    beside = f"random sets: faithful {random.mean():.0%}{spread}" if len(random) else ""
    return f"{values} {result.unit}", beside, "ringed: the chosen heads"


def _plane(answer: Answer, result: KeepOnlyResult) -> Points:
    def make() -> tuple[np.ndarray, ...]:
        x = 100 * np.concatenate([[result.faithfulness], result.random_faithfulness])
        y = 100 * np.concatenate([[result.completeness], result.random_completeness])
        members = [result.heads, *(np.argwhere(one) for one in result.random_members)]
        keys = np.stack([np.asarray(one, dtype=np.int64).ravel() for one in members])
        known = np.flatnonzero(~np.isnan(x) & ~np.isnan(y))
        return x[known], y[known], keys[known]

    x, y, keys = once(answer, "points", make)
    names = once(answer, "names", lambda: tuple(_name(key) for key in keys))
    tip = lambda i: f"{names[i]}  faithful {x[i]:.1f} %, complete {y[i]:.1f} %"
    own = tuple(np.flatnonzero((keys == result.heads.ravel()).all(axis=1)).tolist())
    values = once(answer, "shade", lambda: np.where(np.arange(len(x)) == 0, 1.0, 0.35))
    return Points(
        name="plane",
        x=x,
        y=y,
        ids=keys,
        tips=once(answer, "tips", lambda: tuple(map(tip, range(len(x))))),
        values=values,
        levels=(0.0, 1.0),
        size=8.0,
        chosen=own[:1],
        x_axis=FAITHFUL,
        y_axis=COMPLETE,
    )


def _name(key: np.ndarray) -> str:
    return " ".join(str(Head(*map(int, h))) for h in key.reshape(-1, 2))


def _minimality(answer: Answer, result: KeepOnlyResult) -> Bars:
    heads = [Head(*h) for h in result.heads.tolist()]
    return Bars(
        name="minimality",
        values=once(answer, "minimality", lambda: np.round(100 * result.minimality, 1)),
        labels=once(answer, "labels", lambda: tuple(f"without {h}" for h in heads)),
        hues=once(answer, "hues", lambda: tuple(head_hue(h) for h in heads)),
        unit="% of faithfulness lost",
    )


def pick(state: State, hit: Hit) -> State:
    """A bar opens its head's place in the circuit; a point makes that set the circuit."""
    if hit.gesture not in ("click", "double-click") or not hit.id:
        return state
    if hit.mark == "minimality":
        heads = tuple(sorted(state.selection.heads))
        if hit.id[0] >= len(heads):
            return state
        first = heads[hit.id[0]]
        return state.select(heads=(first, *(h for h in state.selection.heads if h != first)))
    if hit.mark == "plane":
        pairs = np.array(hit.id).reshape(-1, 2).tolist()
        return state.select(heads=tuple(Head(*h) for h in pairs), edge=None)
    return state


PANEL = register(
    Panel(
        name="keep_only",
        title="Keep only this circuit",
        view=KeepOnlyView,
        equation="faithfulness = (F(S) − F(∅)) / (F(all) − F(∅));   completeness = (F(all) − F(all∖S)) / (F(all) − F(∅))",
        source="Wang et al. 2022, Interpretability in the Wild (criteria; their differences divided by F(all) − F(∅))",
        help=(
            "S are the chosen heads (Shift-click adds one); F is the measured value with only some heads left, every other "
            "head's output replaced; MLPs and embeddings stay. Right: the chosen heads do alone what the model does. Up: "
            "without them it is gone. The other points are random sets of as many heads: a circuit should stand out from them. "
            "Bars: what is lost when one head leaves the circuit; near zero: it is not needed. Click a point to take its heads."
        ),
        requests=requests,
        figure=figure,
        pick=pick,
        area="bottom",
        order=150,
        opens="attention",
    )
)
