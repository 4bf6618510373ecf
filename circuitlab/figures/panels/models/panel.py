"""Models side by side: the same text through several models, loss per token beside each other and differenced."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from circuitlab.analysis.behaviour.model_comparison import SideBySideParams, SideBySideResult, side_by_side
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import captions, destination, number, pick_position, quoted, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, register
from circuitlab.figures.marks import ColourMap, Figure, Hit, RowColumn, Rows, Tokens, ids
from circuitlab.figures.panels.models.models import (
    Measure,
    Shown,
    SideBySideView,
    base_of,
    entries,
    shown,
    subject_of,
    view_of,
)
from circuitlab.session.state import State

WIDE = 12  # characters that a column's header may have
CONTRAST = 1.0  # nats: a smaller largest difference is not stretched over the whole colour map
Scale = tuple[ColourMap, tuple[float, float]]


def requests(state: State, facts: Facts) -> Requests | Why:
    """The same tokens on every model."""
    if not state.tokens:
        return Why("Type some text in the Prompt to see what each model makes of it.")
    params = SideBySideParams(facts.tokens(state.tokens))
    asked = enumerate(entries(state))
    return {f"model {i}": Request(side_by_side, params, subject_of(e, state)) for i, e in asked if e.ref is not None}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The models, and their losses as columns of a table or as texts in colour."""
    models = shown(state, answers)
    view = view_of(state)
    base, table = base_of(models, view.measure), _models(models, state, facts)
    measured = captions(tuple(m.answer for m in models if m.answer is not None), _words(view, base))
    said, title = (*_not_compared(models), *measured), _title(models, state)
    if view.page == "table":
        return Figure(((table,), (_tokens(models, base, state, facts),)), title, said, weights=(1.0, 1.0))
    strips = tuple((_strip(i, m, models, base, state, facts),) for i, m in enumerate(models) if m.result is not None)
    # headings say what the upper table says, and the caption who is not compared: the texts get the room
    return Figure(strips, title, said, weights=(1.0,) * len(strips)) if strips else Figure(((table,),), title, said)


def _title(models: tuple[Shown, ...], state: State) -> str:
    means = ", ".join(f"{m.short} {number(m.result.mean)}" for m in models if m.result is not None)
    if not means:
        return "no model of the list reads these tokens"
    if len(state.tokens) == 1:
        return "one token alone has no loss"
    family = models[0].entry.name.removesuffix(models[0].short).rstrip("-")
    return f"{family} {means}: mean loss in nats".strip()


def _words(view: SideBySideView, base: Shown | None) -> str:
    measure = view.measure
    if measure == "top token" and view.page == "table":
        return "the most probable token in place of each, given what stands before it"
    if measure in ("probability", "top token"):
        return "probability of each token, given what stands before it"
    if base is None:
        return "loss of each token, given what stands before it, in nats"
    return f"loss less that of {base.entry.name}, in nats: blue is better than it, orange worse; its own loss as it is"


def _not_compared(models: tuple[Shown, ...]) -> tuple[str, ...]:
    return tuple(f"{m.entry.name} is not compared: {m.why}" for m in models if m.why)


def _values(model: Shown, base: Shown | None, measure: Measure) -> np.ndarray:
    """[pos] what is shown of one model, the same array for the same answers."""
    result = model.result
    assert result is not None
    assert model.answer is not None
    if measure in ("probability", "top token"):
        return memo(model.answer, "probability", lambda: np.exp(-result.loss))
    if base is None or base.result is None or base is model:
        return result.loss
    there = base.result.loss
    return memo((result, base.result), "less", lambda: result.loss - there)


def _scale(model: Shown, models: tuple[Shown, ...], base: Shown | None, measure: Measure) -> Scale:
    """Colour map and levels, one scale for all models that show the same."""
    if measure in ("probability", "top token"):
        return "magnitude", (0.0, 1.0)
    alike = [m for m in models if m.result is not None and (base is None or (m is base) == (model is base))]
    top = max(top_level(_values(m, base, measure)) for m in alike)
    if base is None or model is base:
        return "loss", (0.0, top)
    return "signed", (-max(top, CONTRAST), max(top, CONTRAST))


def _models(models: tuple[Shown, ...], state: State, facts: Facts) -> Rows:
    """One row a model: its mean loss, and what it made of the selected token."""
    at, known = destination(state), [m.result for m in models]
    first = next((r for r in known if r is not None), None)
    short = next((m.short for m, r in zip(models, known, strict=True) if r is not None), "")

    def make() -> tuple[RowColumn, ...]:
        of = lambda read: np.array([np.nan if r is None else read(r) for r in known], dtype=float)
        mean, rank = of(lambda r: r.mean), of(lambda r: r.rank[at])
        change = mean - (np.nan if first is None else first.mean)
        top = max(top_level(change), CONTRAST)
        said = [m.why or (r.words[at - 1] if r is not None and at else "") for m, r in zip(models, known, strict=True)]
        return (
            RowColumn("model", np.array([m.short for m in models], dtype=object), tip="Click to open it on this text"),
            RowColumn("mean", mean, digits=2, tip="mean loss of the text's tokens, nats"),
            RowColumn(f"− {short}", change, digits=2, map="signed", levels=(-top, top), tip=f"mean less that of {short}"),
            RowColumn("loss", of(lambda r: r.loss[at]), digits=2, tip="of the selected token, nats"),
            RowColumn("rank", np.where(rank > 0, rank, np.nan), digits=0, tip="of the selected token, given what is before it"),
            RowColumn("guess", np.array(said, dtype=object), tokens=True, tip="the most probable token in its place"),
        )

    columns = memo(tuple(known), ("models", state.tokens, at, *((m.entry.name, m.why) for m in models)), make)
    token = quoted(facts.token_text(state.tokens[at]))
    heading = f"loss, rank and first guess: at {at} {token}" if at else f"{token} is first: nothing foretells it"
    chosen = tuple(i for i, m in enumerate(models) if m.entry.open)
    return Rows("models", columns, once_ids(len(models)), chosen=chosen, heading=heading)


@lru_cache(maxsize=64)
def once_ids(n: int) -> np.ndarray:
    """[n, 1] ids counted from 0, the same array each time."""
    return ids(np.arange(n))


def _tokens(models: tuple[Shown, ...], base: Shown | None, state: State, facts: Facts) -> Rows:
    """One row a token, one column a model."""
    measure, n = view_of(state).measure, len(state.tokens)
    known = [m for m in models if m.result is not None]

    def make() -> tuple[RowColumn, ...]:
        words = np.array(facts.tokens(state.tokens), dtype=object)
        return (
            RowColumn("#", np.arange(n), digits=0),
            RowColumn("token", words, tokens=True),
            *(_column(m, known, base, measure) for m in known),
        )

    columns = memo(tuple(m.result for m in known), ("tokens", state.tokens, measure, base and base.short, _shorts(known)), make)
    return Rows("tokens", columns, once_ids(n), chosen=(destination(state),))


def _shorts(models: list[Shown]) -> tuple[str, ...]:
    return tuple(m.short for m in models)


def _column(model: Shown, known: list[Shown], base: Shown | None, measure: Measure) -> RowColumn:
    result, name = model.result, model.entry.name
    assert result is not None
    if measure == "top token":
        words = np.array(["", *result.words[:-1]], dtype=object)
        return RowColumn(model.short, words, tokens=True, tip=f"what {name} takes for the most probable in its place")
    kind, levels = _scale(model, tuple(known), base, measure)
    less = "" if base is None or base is model else f" less {base.short}"
    values = _values(model, base, measure).astype(float)
    header = f"{model.short} − {base.short}" if less and base is not None else model.short
    header = header if len(header) <= WIDE else f"Δ {model.short}"
    return RowColumn(header, values, digits=2, map=kind, levels=levels, tip=f"{name}{less}")


def _strip(i: int, model: Shown, models: tuple[Shown, ...], base: Shown | None, state: State, facts: Facts) -> Tokens:
    """The text as one model reads it."""
    measure, result = view_of(state).measure, model.result
    assert result is not None
    kind, levels = _scale(model, models, base, measure)
    texts = facts.tokens(state.tokens)
    tips = memo((result,), ("tips", state.tokens), lambda: _tips(result, texts))
    at, locked = state.selection.destination, state.selection.locked
    unit = "" if kind == "magnitude" else "nats"
    values = _values(model, base, measure)
    heading = _heading(model, base, destination(state))
    return Tokens(f"text {i}", texts, values, levels, kind, unit, tips, at, locked, heading=heading)


def _heading(model: Shown, base: Shown | None, at: int) -> str:
    """Whose text it is, its mean, what it makes of the token that is read."""
    result = model.result
    assert result is not None
    less, mean = "", f"{number(result.mean)} nats"
    if base is not None and base.result is not None and base is not model:
        less, mean = f" − {base.short}", f"{number(result.mean - base.result.mean, '+.2f')} nats"
    said = f"{model.entry.name}{less} · mean {mean}"
    if at < 1:
        return said
    return f"{said} · at {at}: {_fate(result, at)}, guess {quoted(result.words[at - 1])}"


def _fate(result: SideBySideResult, at: int) -> str:
    """What the model made of a token that is not the first."""
    if result.rank[at] < 1:
        return "a token that it cannot predict"
    return f"loss {number(float(result.loss[at]))} nats, rank {int(result.rank[at]):,}"


def _tips(result: SideBySideResult, texts: tuple[str, ...]) -> tuple[str, ...]:
    def tip(i: int) -> str:
        if not i:
            return f"0 {texts[0]}: nothing foretells it"
        return f"{i} {texts[i]}: {_fate(result, i)}; most probable {quoted(result.words[i - 1])} {result.probability[i - 1]:.2f}"

    return tuple(map(tip, range(len(texts))))


def pick(state: State, hit: Hit) -> State:
    """A token is selected everywhere; a model's row opens it, on the same text."""
    if hit.mark.startswith("text "):
        return pick_position(state, hit)
    if not hit.id or hit.gesture not in ("click", "double-click"):
        return state
    if hit.mark == "tokens":
        return state.select(destination=hit.id[0], locked=True, token=None)
    if hit.mark == "models":
        chosen = entries(state)[hit.id[0]]
        return state if chosen.ref is None or chosen.open else replace(state, model=chosen.ref)
    return state


PANEL: Panel = register(
    Panel(
        name="side_by_side",
        title="Models side by side",
        view=SideBySideView,
        equation="loss_t = −ln p(x_t | x_<t);   Δ_t = loss_t of a model − loss_t of another;   mean over t ≥ 1",
        source="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits: zero, one and two layers",
        help="The same tokens [pos] through several models. Without layers a model knows only which token follows which; one "
        "layer adds tokens further back and copying; two layers find what followed the last time. Sort the table by a difference "
        "to see which tokens a layer is good for: names that come again, ends of words. The upper table (the headings of the "
        "texts) has the mean of all tokens, and at the selected one its loss, its rank and what the model held for most "
        "probable there. Click a token to select it everywhere, a model to open it on this text. Interventions stay with the "
        "open model. Models are compared only where they read the same tokens. The pin is the other way to compare two: pin "
        "(Ctrl+P), open another model: the Prompt colours every token by how its loss changed, while every panel shows its own "
        "difference.",
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        area="centre",
        order=62,
    )
)
