"""Models side by side: the loss of several models on each token of the same text, and how far two models differ."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from circuitlab.analysis.behaviour.model_comparison import SideBySideParams, SideBySideResult, side_by_side
from circuitlab.counting import number, probability, ranked
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import captions, destination, equal_column, pick_position, quoted, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, register
from circuitlab.figures.marks import ColourMap, Figure, Hit, RowColumn, Rows, Tokens, ids
from circuitlab.figures.panels.models.models import (
    ComparedModel,
    Measure,
    SideBySideView,
    baseline_of,
    compared_models,
    entries,
    subject_of,
    view_of,
)
from circuitlab.state.state import State

WIDE = 12  # characters in the header of a column, at most
CONTRAST = 1.0  # nats: colours of a difference span at least this much, so that small ones look small
Scale = tuple[ColourMap, tuple[float, float]]


def requests(state: State, facts: Facts) -> Requests | Why:
    """The same tokens through every model of the list."""
    params = SideBySideParams(facts.tokens(state.tokens))
    models = enumerate(entries(state))
    return {f"model {i}": Request(side_by_side, params, subject_of(e, state)) for i, e in models if e.ref is not None}


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """A table of the models, and their losses as columns of a table or as coloured texts."""
    models = compared_models(state, answers)
    answered = tuple(m.answer for m in models if m.answer is not None)
    texts: tuple[str, ...] = answered[0].request.params.texts
    view, at = view_of(state), min(destination(state), len(texts) - 1)
    baseline, table = baseline_of(models, view.measure), _models(models, texts, at)
    said = captions({m.short: m.answer for m in models if not m.why}, _cell_words(view, baseline))
    caption_parts = (*_not_compared(models), *said)
    title = _title(models, texts)
    if view.page == "table":
        tokens = _tokens(models, baseline, view.measure, texts, at)
        return Figure(((table,), (tokens,)), title, caption_parts, weights=(1.0, 1.0))
    strips = tuple((_strip(i, m, models, baseline, state, texts),) for i, m in enumerate(models) if m.result is not None)
    # the texts' headings replace the table of models, and the caption names models that are not compared
    if not strips:
        return Figure(((table,),), title, caption_parts)
    return Figure(strips, title, caption_parts, weights=(1.0,) * len(strips))


def _title(models: tuple[ComparedModel, ...], texts: tuple[str, ...]) -> str:
    """The mean loss of each model."""
    means = ", ".join(f"{m.short} {number(m.result.mean)}" for m in models if m.result is not None)
    if not means:
        return "no model of the list reads these tokens"
    if len(texts) == 1:
        return "a single token has no loss"
    family = models[0].entry.name.removesuffix(models[0].short).rstrip("-")
    return f"{family} {means}: mean loss in nats".strip()


def _cell_words(view: SideBySideView, baseline: ComparedModel | None) -> str:
    """For the caption: what the cells are."""
    measure = view.measure
    if measure == "top token" and view.page == "table":
        return "the most probable token at each position, given those before it"
    if measure in ("probability", "top token"):
        return "probability of each token, given those before it"
    if baseline is None:
        return "loss of each token, given those before it, in nats"
    return f"loss minus that of {baseline.entry.name}, in nats: blue better, orange worse; for {baseline.entry.name} its own loss"


def _not_compared(models: tuple[ComparedModel, ...]) -> tuple[str, ...]:
    return tuple(f"{m.entry.name} is not compared: {m.why}" for m in models if m.why)


def _values(model: ComparedModel, baseline: ComparedModel | None, measure: Measure) -> np.ndarray:
    """[pos] the values shown for one model; the same array for the same answers."""
    result = model.result
    assert result is not None
    assert model.answer is not None
    if measure in ("probability", "top token"):
        return memo(model.answer, "probability", lambda: np.exp(-result.loss))
    if baseline is None or baseline.result is None or baseline is model:
        return result.loss
    baseline_loss = baseline.result.loss
    return memo((result, baseline.result), "less", lambda: result.loss - baseline_loss)


def _scale(model: ComparedModel, models: tuple[ComparedModel, ...], baseline: ComparedModel | None, measure: Measure) -> Scale:
    """Colour map and levels; models that show the same quantity share one scale."""
    if measure in ("probability", "top token"):
        return "magnitude", (0.0, 1.0)
    same_kind = [m for m in models if m.result is not None and (baseline is None or (m is baseline) == (model is baseline))]
    top = max(top_level(_values(m, baseline, measure)) for m in same_kind)
    if baseline is None or model is baseline:
        return "loss", (0.0, top)
    return "signed", (-max(top, CONTRAST), max(top, CONTRAST))


def _models(models: tuple[ComparedModel, ...], texts: tuple[str, ...], at: int) -> Rows:
    """A row for each model: its mean loss, and its loss, rank and first guess at the selected token."""
    results = [m.result for m in models]
    first = next((r for r in results if r is not None), None)
    short = next((m.short for m, r in zip(models, results, strict=True) if r is not None), "")

    def make() -> tuple[RowColumn, ...]:
        of = lambda read: np.array([np.nan if r is None else read(r) for r in results], dtype=float)
        mean, rank = of(lambda r: r.mean), of(lambda r: r.rank[at])
        change = mean - (np.nan if first is None else first.mean)
        top = max(top_level(change), CONTRAST)
        guesses = [m.why or (r.words[at - 1] if r is not None and at else "") for m, r in zip(models, results, strict=True)]
        return (
            RowColumn("model", np.array([m.short for m in models], dtype=object), tip="Click to open the model on this text"),
            RowColumn("mean", mean, digits=2, tip="mean loss over the tokens of the text, nats"),
            RowColumn(f"− {short}", change, digits=2, map="signed", levels=(-top, top), tip=f"mean loss minus that of {short}"),
            RowColumn("loss", of(lambda r: r.loss[at]), digits=2, tip="loss of the selected token, nats"),
            RowColumn("rank", np.where(rank > 0, rank, np.nan), digits=0, tip="rank of the selected token among all predictions"),
            *equal_column(of(lambda r: r.equal[at])),
            RowColumn("guess", np.array(guesses, dtype=object), tokens=True, tip="the most probable token at its position"),
        )

    columns = memo(tuple(results), ("models", at, *((m.entry.name, m.why) for m in models)), make)
    token = quoted(texts[at])
    heading = f"loss, rank and first guess: at {at} {token}" if at else f"{token} comes first: nothing predicts it"
    chosen = tuple(i for i, m in enumerate(models) if m.entry.open)
    return Rows("models", columns, row_ids(len(models)), chosen=chosen, heading=heading)


@lru_cache(maxsize=64)
def row_ids(n: int) -> np.ndarray:
    """[n, 1] ids from 0 on, the same array each time."""
    return ids(np.arange(n))


def _tokens(
    models: tuple[ComparedModel, ...], baseline: ComparedModel | None, measure: Measure, texts: tuple[str, ...], at: int
) -> Rows:
    """A row for each token, a column for each model."""
    n = len(texts)
    answered = [m for m in models if m.result is not None]

    def make() -> tuple[RowColumn, ...]:
        return (
            RowColumn("#", np.arange(n), digits=0),
            RowColumn("token", np.array(texts, dtype=object), tokens=True),
            *(_column(m, answered, baseline, measure) for m in answered),
        )

    columns = memo(
        tuple(m.result for m in answered),
        ("tokens", texts, measure, baseline and baseline.short, tuple(m.short for m in answered)),
        make,
    )
    return Rows("tokens", columns, row_ids(n), chosen=(at,))


def _column(model: ComparedModel, answered: list[ComparedModel], baseline: ComparedModel | None, measure: Measure) -> RowColumn:
    result, name = model.result, model.entry.name
    assert result is not None
    if measure == "top token":
        words = np.array(["", *result.words[:-1]], dtype=object)
        return RowColumn(model.short, words, tokens=True, tip=f"the most probable token at this position according to {name}")
    kind, levels = _scale(model, tuple(answered), baseline, measure)
    minus = "" if baseline is None or baseline is model else f" minus {baseline.short}"
    values = _values(model, baseline, measure).astype(float)
    header = f"{model.short} − {baseline.short}" if minus and baseline is not None else model.short
    header = header if len(header) <= WIDE else f"Δ {model.short}"
    return RowColumn(header, values, digits=2, map=kind, levels=levels, tip=f"{name}{minus}")


def _strip(
    i: int,
    model: ComparedModel,
    models: tuple[ComparedModel, ...],
    baseline: ComparedModel | None,
    state: State,
    texts: tuple[str, ...],
) -> Tokens:
    """The text, coloured by how one model predicts it."""
    measure, result = view_of(state).measure, model.result
    assert result is not None
    kind, levels = _scale(model, models, baseline, measure)
    tips = memo((result,), ("tips", texts), lambda: _tips(result, texts))
    at, locked = state.selection.destination, state.selection.locked
    unit = "" if kind == "magnitude" else "nats"
    values = _values(model, baseline, measure)
    heading = _heading(model, baseline, destination(state))
    return Tokens(f"text {i}", texts, values, levels, kind, unit, tips, at, locked, heading=heading)


def _heading(model: ComparedModel, baseline: ComparedModel | None, at: int) -> str:
    """The model's name, its mean, and how it predicts the selected token."""
    result = model.result
    assert result is not None
    minus, mean = "", f"{number(result.mean)} nats"
    if baseline is not None and baseline.result is not None and baseline is not model:
        minus, mean = f" − {baseline.short}", f"{number(result.mean - baseline.result.mean, '+.2f')} nats"
    heading = f"{model.entry.name}{minus} · mean {mean}"
    if at < 1:
        return heading
    return f"{heading} · at {at}: {_loss_and_rank(result, at)}, guess {quoted(result.words[at - 1])}"


def _loss_and_rank(result: SideBySideResult, at: int) -> str:
    """The loss and rank of a token that is not the first."""
    if result.rank[at] < 1:
        return "a token it cannot predict"
    return f"loss {number(float(result.loss[at]))} nats, {ranked(int(result.rank[at]), int(result.equal[at]))}"


def _tips(result: SideBySideResult, texts: tuple[str, ...]) -> tuple[str, ...]:
    def tip(i: int) -> str:
        if not i:
            return f"0 {texts[0]}: nothing predicts it"
        guess = f"{quoted(result.words[i - 1])} {probability(result.probability[i - 1], 2)}"
        return f"{i} {texts[i]}: {_loss_and_rank(result, i)}; most probable {guess}"

    return tuple(map(tip, range(len(texts))))


def pick(state: State, hit: Hit) -> State:
    """Select a token in every panel; open the model of a row on the same text."""
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
        help="The same tokens [pos] through several models. A model without layers knows only which token tends to follow which; "
        "one layer adds copying and skip-trigrams, which read tokens further back; two layers add induction, which finds what "
        "followed last time. Sort the table by a difference to see which tokens a layer helps with: repeated names, ends of "
        "words. The upper table (in the view as text: the headings) has the mean loss over all tokens and, at the selected "
        "token, its loss, its rank and the model's most probable token. Click a token to select it in every panel, or a model "
        "to open it on this text. Interventions apply to the open model alone. Models are compared only if they read the same "
        "tokens. A pin is the other way to compare two models: pin (Ctrl+P), then open another model; the Prompt colours every "
        "token by the change of its loss, and each panel shows its own difference.",
        needs_tokens="Type some text in the Prompt to see how well each model predicts it.",
        requests=requests,
        draw=draw,
        optional="all",
        pick=pick,
        area="centre",
        order=62,
    )
)
