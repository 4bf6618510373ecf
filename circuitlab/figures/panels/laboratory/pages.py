"""The pages of the induction laboratory: clock, attention of both layers, stream, prediction, rank one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from circuitlab.analysis.checks.rope_clock import RotationClockResult
from circuitlab.analysis.ordering import descending
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption, destination, quoted
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Facts
from circuitlab.figures.marks import Axis, Dials, Figure, Heatmap, Lines, Mark, RowColumn, Rows, Tokens, ids
from circuitlab.figures.panels.laboratory.parameters import LaboratoryView
from circuitlab.figures.panels.laboratory.words import correct, enough, prose, share, worst
from circuitlab.model.constructed import RopeInduction
from circuitlab.state.state import State

_DELTA, _SUM = Axis("Δ = source − destination + o"), Axis("Σ cos(Δ θᵢ)")
_QUERY, _KEY = "letter of the query", "letter of the key"
STEPS = ("embedding", "layer 0", "layer 1")


@lru_cache(maxsize=16)
def _axis(label: str, names: tuple[str, ...]) -> Axis:
    """The same object for the same names, so that the axis is not laid out again."""
    return Axis(label, names, tokens=True)


def _names(state: State, facts: Facts) -> tuple[str, ...]:
    """The letters, with a short name for BOS."""
    return tuple("BOS" if t == 0 else facts.token_text(t) for t in state.tokens)


def _name(token: int, facts: Facts) -> str:
    return quoted(facts.token_text(token)) if token else "BOS"


def displayed_delta(state: State, r: RotationClockResult, view: LaboratoryView) -> int:
    """The Δ of the selected source, else the one picked beyond the prompt, else that of the best rival."""
    dest, src = destination(state), state.selection.source
    if src is not None and src <= dest:
        return src - dest + r.offset
    if view.far is not None and r.delta[0] <= view.far <= r.delta[-1]:
        return view.far
    return r.rival


def clock(state: State, facts: Facts, answer: Answer[RotationClockResult], view: LaboratoryView, p: RopeInduction) -> Figure:
    """The hands at one Δ, the sum of their heights over all Δ, and whether the lead of the peak is enough."""
    r = answer.result
    delta = displayed_delta(state, r, view)
    at = delta - int(r.delta[0])
    top = len(r.theta)
    dials = memo(answer, ("dials", delta), lambda: _dials(r, at))
    x = memo(answer, "delta", lambda: r.delta.astype(np.float64))
    ys = memo(answer, "curve", lambda: r.curve[None].copy())
    names = ("sum of the hands’ heights",)
    curve = Lines("curve", x, ys, names, marks=_marked(r, p), x_axis=_DELTA, y_axis=_SUM, steps=True, current=float(delta))
    distance = p.offset - delta
    place = "the destination itself" if not distance else f"{distance} back" if distance > 0 else f"{-distance} ahead"
    title = f"Δ = {number(delta, 'd')} (source {place}): the hands’ heights add up to {number(r.curve[at])} of {top}"
    bound = enough(r.alpha, r.alpha_needed, "α", r)
    lead = f"The best rival, Δ = {number(r.rival, 'd')}, is g = {number(r.gap, '.3g')} below the peak; {bound}."
    now = f"{lead} Mass on m\N{NO-BREAK SPACE}−\N{NO-BREAK SPACE}{p.offset}, worst row: {share(worst(r, 0))}. {correct(r)}"
    return Figure(
        ((dials,), (curve,), (prose("clock", p, now),)), title, caption(answer, "below each hand its θ, in radians per position")
    )


def _dials(r: RotationClockResult, at: int) -> Dials:
    hands = r.hands[at].copy()
    tips = tuple(
        f"hand {i} · θ {number(theta, '.3g')} rad per position · Δθ {number(angle)} rad · height {number(np.cos(angle), '.3f')}"
        for i, (theta, angle) in enumerate(zip(r.theta.tolist(), hands.tolist(), strict=True))
    )
    return Dials("hands", hands, tuple(map(_short, r.theta.tolist())), tips)


def _short(theta: float) -> str:
    """The label of a dial: its θ."""
    return f"{number(theta, '.2g')}" if theta >= 1e-2 else number(theta, ".0e").replace("e−0", "e−")


def _marked(r: RotationClockResult, p: RopeInduction) -> tuple[tuple[float, str], ...]:
    """Marks on the curve: the peak, the best rival, and the first alias of equal frequencies."""
    peak, rival = f"peak: n = m − {p.offset}", f"best rival: Δ = {number(r.rival, 'd')}"
    alias = ((-p.period, f"2π/θ = {number(p.period, 'g')}"),) if p.frequencies == "equal" and p.period <= p.n_ctx - 1 else ()
    if alias and r.rival == -p.period:
        return (*alias, (0.0, peak))
    if abs(r.rival) * 6 < len(r.delta):  # close to the peak: one label for both
        return (*alias, (0.0, ""), (float(min(r.rival, 0)), f"{peak}, {rival}"))
    return (*alias, (float(r.rival), rival), (0.0, peak))


def attention(state: State, facts: Facts, answer: Answer[RotationClockResult], layer: int, p: RopeInduction) -> Figure:
    """The attention of one layer by formula and as measured."""
    r, page = answer.result, f"layer {layer}"
    maps: list[Mark] = []
    for name, values in (("formula", r.predicted), ("measured", r.measured)):
        maps.append(
            Heatmap(
                name,
                memo(answer, (name, layer), lambda values=values: values[layer].astype(np.float32)),
                (0.0, 1.0),
                x=_axis(f"source, {'by formula' if name == 'formula' else name}", _names(state, facts)),
                y=_axis("destination", _names(state, facts)),
                unit="attention",
                row=state.selection.destination,
                col=state.selection.source,
                framed=memo(answer, ("wanted", layer), lambda: r.wanted[layer].copy()),
                colour_bar=False,
                blank="masked",
            )
        )
    off = memo(answer, ("off", layer), lambda: float(np.nanmax(np.abs(r.predicted[layer] - r.measured[layer]))))
    least = worst(r, layer)
    if layer == 0:
        title = f"Layer 0: worst row {share(least)} on m − {p.offset}, {number(1 - least, '.2g')} strays"
        bound = enough(r.alpha, r.alpha_needed, "α", r)
    else:
        title = f"Layer 1: worst row {share(least)} where it should be, {number(1 - least, '.2g')} strays"
        bound = enough(r.beta, r.beta_needed, "β", r)
    if np.isnan(least):
        title = f"{page.capitalize()}: no row has a position to attend to yet"
    now = f"{bound}. {correct(r)} Formula and measurement differ by at most {number(off, '.1e')}."
    grid = (tuple(maps), (prose(page, p, now),))
    return Figure(grid, title, caption(answer, "framed: where it should attend"))


def stream(state: State, facts: Facts, answer: Answer[RotationClockResult], view: LaboratoryView, p: RopeInduction) -> Figure:
    """Maps [position, coordinate] of the stream after each step; `out` is divided by γ, so that all share one scale."""
    r = answer.result
    steps = [s for s in STEPS if view.after in ("all", s)]
    x = memo(answer, "coordinates", lambda: coordinates(r, p))
    maps = []
    for step in steps:
        values = memo(answer, ("stream", step), lambda step=step: scaled(r, STEPS.index(step), p))
        signed = p.variant != "one-hot"
        maps.append(
            Heatmap(
                step,
                values,
                (-1.0, 1.0) if signed else (0.0, 1.0),
                map="signed" if signed else "magnitude",
                x=x,
                y=_axis(f"x{'⁰¹²'[STEPS.index(step)]}", _names(state, facts)),
                row=state.selection.destination,
                square=False,
                colour_bar=False,
            )
        )
    last = destination(state)
    after = "each step" if view.after == "all" else view.after
    title = f"After {after}: {number_of(len(state.tokens), 'position')} × {r.stream.shape[2]} coordinates"
    now = _mixed(r, last, p, _name(state.tokens[last], facts))
    grid = (*((m,) for m in maps), (prose("stream", p, now),))
    divided = f"out divided by γ = {number(p.gamma, 'g')}" if p.gamma else ""
    return Figure(grid, title, caption(answer, divided))


def scaled(r: RotationClockResult, step: int, p: RopeInduction) -> np.ndarray:
    """[pos, d_model] of the stream after a step, as it is drawn: `out` divided by γ."""
    values = r.stream[step].astype(np.float32)
    for name, first, stop in r.places:
        if name == "out" and p.gamma:
            values[:, first:stop] /= p.gamma
    return values


def coordinates(r: RotationClockResult, p: RopeInduction) -> Axis:
    """The axis of coordinates: spans with the names of subspaces, and a name for each coordinate."""
    letters = ("BOS", *(chr(65 + i) if i < 26 else chr(71 + i) for i in range(p.letters)))
    spans, ticks = [], [""] * r.stream.shape[2]
    for name, first, stop in sorted(r.places, key=lambda place: (place[1], -place[2])):
        if spans and first < spans[-1][1]:
            continue  # BOS is one of the tokens where letters are one-hot
        spans.append((first, stop, name))
        for i in range(first, stop):
            of = letters[i - first] if stop - first == len(letters) else str(i - first) if stop - first > 1 else ""
            ticks[i] = f"{name} {of}".strip()
    return Axis("", tuple(ticks), spans=tuple(spans))


def _mixed(r: RotationClockResult, last: int, p: RopeInduction, token: str) -> str:
    """How much of `prev` at the selected position comes from the token that should be there."""
    first, stop = next((a, b) for name, a, b in r.places if name == "prev")
    if last < p.offset:
        return f"Position {last} {token} has no position {p.offset} before it. {correct(r)}"
    mass = float(r.mass[0, last])
    length = float(np.linalg.norm(r.stream[1, last, first:stop]))
    content = f"At {last} {token}: {share(mass)} of prev comes from position {last - p.offset}, its length is {length:.3f}."
    return f"{content} {correct(r)}"


def prediction(state: State, facts: Facts, answer: Answer[RotationClockResult], p: RopeInduction) -> Figure:
    """What has followed, and the logit of each letter by formula and as measured, at the selected position."""
    r, last = answer.result, destination(state)
    followed, measured = r.followed[last], r.measured_logits[last]
    top = memo(answer, "margins", lambda: max(float(np.nanmax(np.abs(r.margin), initial=0.0)), 1e-9))
    margins = memo(answer, "margin", lambda: r.margin.astype(np.float32))
    words = _names(state, facts)
    text = Tokens("text", words, margins, (-top, top), "signed", "lead", row=last, locked=state.selection.locked)
    table = memo(answer, ("letters", last), lambda: _letters(r, facts, last))
    token = _name(state.tokens[last], facts)
    if followed.any():
        best = [quoted(facts.token_text(int(i))) for i in np.flatnonzero(followed == followed.max())]
        verdict = "right" if r.margin[last] > 0 else "wrong"
        title = f"After {last} {token}: {' or '.join(best)} followed most often; {verdict}, by {number(r.margin[last])}"
    else:
        rest = float(r.measured[1, last, 0]) if state.tokens[0] == 0 else float("nan")
        flat = number(float(np.ptp(measured)), ".2g")
        bos = f"{share(rest)} of the attention rests on BOS" if not np.isnan(rest) else "there is no BOS to rest on"
        title = f"After {last} {token}: nothing to continue with, {bos}; logits within {flat}"
    off = float(np.abs(r.logits[last] - measured).max())
    now = f"{correct(r)} Here formula and model differ by at most {number(off, '.1e')}."
    rows = Rows("letters", *table, sort=None, own=True)
    return Figure(
        ((text,), (rows,), (prose("prediction", p, now),)),
        title,
        caption(answer, "lead: logit of the right letter minus that of the best other"),
    )


def _letters(r: RotationClockResult, facts: Facts, last: int) -> tuple[tuple[RowColumn, ...], np.ndarray]:
    measured = r.measured_logits[last]
    weights = np.exp(measured - measured.max())
    order = descending(measured)
    top = max(float(np.abs(measured).max()), 1e-9)
    columns = (
        RowColumn("token", np.array([facts.token_text(t) if t else "BOS" for t in order.tolist()], dtype=object), tokens=True),
        RowColumn("followed", r.followed[last][order], digits=0, unit="times", tip="How often it has followed this token"),
        RowColumn("formula", r.logits[last][order], digits=3 if top < 1e3 else 1, tip="Logit by formula"),
        RowColumn("logit", measured[order], digits=3 if top < 1e3 else 1, tip="Logit of the model"),
        RowColumn("P", (weights / weights.sum())[order], digits=4, bar=True, levels=(0.0, 1.0), tip="softmax of the logits"),
    )
    return columns, ids(order)


def alphabet(state: State, facts: Facts, answer: Answer[RotationClockResult], p: RopeInduction) -> Figure:
    """The attention of layer 1, by formula, from every letter to every other."""
    r, token = answer.result, state.tokens[destination(state)]
    largest = memo(answer, "choices", lambda: r.letters.argmax(axis=1))
    names = memo(answer, "names", lambda: facts.tokens(tuple(range(1, len(largest) + 1))))
    own = int((largest == np.arange(len(largest))).sum())
    map_ = Heatmap(
        "alphabet",
        memo(answer, "alphabet", lambda: r.letters.astype(np.float32)),
        (0.0, 1.0),
        x=memo(answer, "keys", lambda: Axis(_KEY, names)),
        y=memo(answer, "queries", lambda: Axis(_QUERY, names)),
        unit="attention",
        row=token - 1 if token else None,
        framed=memo(answer, "largest", lambda: np.eye(len(largest), dtype=bool)[largest]),
    )
    n = len(largest)
    receivers = number_of(len(np.unique(largest)), "letter")
    title = f"{p.variant}: {own} of {number_of(n, 'letter')} attend most to themselves; the maxima fall on {receivers}"
    attended = np.array(state.tokens)[np.nanargmax(r.measured[1], axis=1)]
    letters = np.array(state.tokens) != 0
    own_here = int((attended == np.array(state.tokens))[letters].sum())
    positions = f"{own_here} of {number_of(int(letters.sum()), 'position')}"
    now = f"In this prompt layer 1 attends most to the token’s own letter at {positions}. {correct(r)}"
    text = prose("rank one", p, now)
    return Figure(((map_,), (text,)), title, caption(answer, "the alphabet: by formula, each letter once"))
