"""Training curves of one or several models: losses, in-context scores, head scores and phase changes by tokens seen.

    in-context score   late loss − early loss; of a repeated sequence, second repetition − first (`training/scores`)
    dloss/dln(i)       slope of the least-squares line through (ln j, loss(j)), i/ratio ≤ j ≤ i·ratio (`in_context`)
    phase change       where the in-context score falls fastest (`training/_phase_change`)

(Olsson et al. 2022, "In-context Learning and Induction Heads".) Nothing is computed from weights here: a series is read from the
file that was measured once (`model/records/series_measures`), so that curves of a whole training are drawn at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, SeriesRef, Table, analysis, at_least, naming, over
from circuitlab.analysis.behaviour.in_context import log_slope
from circuitlab.analysis.training._phase_change import PhaseRule
from circuitlab.analysis.training._provenance import indices_of, words_on_sequences
from circuitlab.analysis.training.scores import (
    KINDS,
    RANDOM,
    TEXT,
    OnText,
    best,
    by_text,
    on_text,
    over_texts,
    phase_of,
    same_text,
    same_texts,
    scores_of,
)
from circuitlab.caption_parts import About, Part, Sense, reworded
from circuitlab.counting import number_of
from circuitlab.errors import BadInput, BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.series_measures import HEAD_ARRAYS, OWN_ARRAYS, SeriesMeasures
from circuitlab.model.subject import ModelRef

LARGEST = 2**22  # numbers in a series: more than any shipped one has; the memory estimate assumes it


@dataclass(frozen=True)
class TrainingSeriesParams:
    """`models`: at least one; `control`: a model without layers, measured on the same texts.

    `share`, `threshold` (nats), `steeper`, `apart`, `first` (tokens): the rule of a phase change on repeated sequences
    (`_phase_change`); `threshold_text`, `apart_text`: on text, where the score changes less under the same noise. `ratio`: the
    range of a slope by ln index.
    """

    models: tuple[SeriesRef, ...] = ()
    control: SeriesRef | None = None
    threshold: float = 1.0
    threshold_text: float = 0.1
    share: float = 0.5
    steeper: float = 2.0
    apart: float = 1.03
    apart_text: float = 1.2
    first: int = at_least(0, 1)
    ratio: float = 1.5

    def rule(self, kind: int) -> PhaseRule:
        """The rule for an index into `KINDS`."""
        if kind == TEXT:
            return PhaseRule(self.threshold_text, self.share, self.steeper, self.apart_text, self.first)
        return PhaseRule(self.threshold, self.share, self.steeper, self.apart, self.first)

    def words(self) -> str:
        """The rules of all kinds in a sentence."""
        return (
            f"{self.rule(RANDOM).words(f' ({self.threshold_text:g} on text)')}, between points whose tokens differ by a factor "
            f"of {self.apart:g} ({self.apart_text:g} on text) or more"
        )


HEAD_UNITS = {"copying": "dimensionless", "zeroed_text": "nats", "zeroed_repeated": "nats"} | dict.fromkeys(
    OWN_ARRAYS, "share of rows"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSeriesResult(Result):
    """All points of all models, one model after the other. Losses and scores in nats; NaN for what a model does not have.

    `names` of the models; `model`, `steps`, `tokens`, `checkpoint` (below 0: none) and bool `is_final` [point];
    `loss` [point]; `scores` [point, kind] of `KINDS`; `repetitions` [point, kind, repetition] mean losses on the two repeated
    kinds; `loss_by_index`, `derivative` (by ln index) [point, index]: index i is the token at position i + 1; `heads` [point,
    measure, layer, head]: measures are `HEAD_ARRAYS`, those of zeroed heads in nats; `shapes` [model, 2] layers and heads.
    `controlled` [point]: the score on text minus the control's on the same texts, NaN if the texts differ.
    `each`, `each_error` [point]: the score on text over the `n_each` [point] texts with recorded losses, and its standard error
    over texts; `each_controlled`, `each_controlled_error` [point]: minus the control's, texts paired.
    `between`, `between_error` [model, model]: the last score of the first model minus the second's, over the same texts, paired;
    NaN if the texts differ. `phase` [model, kind, 2]: tokens seen at the beginning and end of the phase change; `fall`
    [model, kind] of the score in it, `rise` [model, kind] of the best prefix-matching score in it. `windows` [model, 4]: first
    and last early index, first and last late index, as positions in the text.
    """

    names: tuple[str, ...] = naming("model")
    model: np.ndarray = over("point", unit="index")
    steps: np.ndarray = over("point", unit="steps")
    tokens: np.ndarray = over("point", unit="tokens")
    checkpoint: np.ndarray = over("point", unit="index", none=True)
    is_final: np.ndarray = over("point", unit="true or false")
    loss: np.ndarray = over("point", unit="nats")
    scores: np.ndarray = over("point", "kind", unit="nats")
    repetitions: np.ndarray = over("point", "repeated kind", "repetition", unit="nats")
    loss_by_index: np.ndarray = over("point", "index", unit="nats")
    derivative: np.ndarray = over("point", "index", unit="nats")
    heads: np.ndarray = over("point", "measure", "layer", "head", unit="{head_units}")
    shapes: np.ndarray = over("model", "layers and heads", unit="layers and heads")
    controlled: np.ndarray = over("point", unit="nats")
    each: np.ndarray = over("point", unit="nats")
    each_error: np.ndarray = over("point", unit="nats")
    n_each: np.ndarray = over("point", unit="texts")
    each_controlled: np.ndarray = over("point", unit="nats")
    each_controlled_error: np.ndarray = over("point", unit="nats")
    between: np.ndarray = over("model", "other model", unit="nats")
    between_error: np.ndarray = over("model", "other model", unit="nats")
    phase: np.ndarray = over("model", "kind", "begin and end", unit="tokens")
    fall: np.ndarray = over("model", "kind", unit="nats")
    rise: np.ndarray = over("model", "kind", unit="share of attention")
    windows: np.ndarray = over("model", "first and last index", unit="position")

    ENTRIES: ClassVar[Mapping[str, Sequence[str]]] = {"kind": KINDS, "measure": HEAD_ARRAYS}

    def entries_along(self, axis: str) -> Sequence[str] | None:
        return self.names if axis == "other model" else KINDS[:TEXT] if axis == "repeated kind" else None

    @property
    def head_units(self) -> dict[str, str]:
        """The unit of each measure of heads, by its name."""
        return {name: HEAD_UNITS.get(name, "share of attention") for name in HEAD_ARRAYS}

    def of(self, measure: str) -> np.ndarray:
        """[point, layer, head] of one of `HEAD_ARRAYS`."""
        return self.heads[:, HEAD_ARRAYS.index(measure)]

    def points(self, model: int) -> np.ndarray:
        """Indices of one model's points."""
        return np.flatnonzero(self.model == model)

    def table(self) -> Table:
        """One row per point."""
        prefix = best(self.of("prefix_matching"))
        return Table(
            (
                Column("model", np.array(self.names, dtype=object)[self.model]),
                Column("step", self.steps),
                Column("tokens", self.tokens),
                Column("checkpoint", self.checkpoint, of="count"),
                Column("final weights", self.is_final),
                Column("loss", self.loss, "nats"),
                *(Column(f"in-context score, {kind}", self.scores[:, i], "nats") for i, kind in enumerate(KINDS)),
                Column("on text, minus the control", self.controlled, "nats"),
                Column("texts measured one by one", self.n_each, of="count"),
                Column("on these", self.each, "nats"),
                Column("standard error over texts", self.each_error, "nats"),
                Column("on these, minus the control", self.each_controlled, "nats"),
                Column("standard error, texts paired", self.each_controlled_error, "nats"),
                Column("best prefix matching", prefix),
            )
        )


def refuse_unnamed(config: ModelConfig, p: Any) -> str | None:
    """Why no series can be read: none is named (also of `training_pca`)."""
    return None if p.models else "no training series is named: give models=NAME, the model's own for instance."


def memory_of_series(config: ModelConfig, n: int, p: Any) -> int:
    """Bytes of every series at its largest possible size, as float32 and as float64, with a copy."""
    return 5 * 4 * LARGEST * max(1, len(p.models))


@analysis(version=3, needs="weights", lane="live", memory=memory_of_series, refuse=refuse_unnamed, doubles=False)
def training_series(inputs: Inputs, p: TrainingSeriesParams, ctx: Ctx) -> TrainingSeriesResult:
    """Training curves: losses, in-context scores, head scores and phase changes along the training of one or several models."""
    if (
        min(p.threshold, p.threshold_text) <= 0
        or not 0 < p.share <= 1
        or min(p.apart, p.apart_text) < 1
        or p.first < 0
        or p.ratio <= 1
    ):
        expected = "thresholds > 0, 0 < share ≤ 1, apart ≥ 1, first ≥ 0, ratio > 1"
        raise BadInput(
            "The rule of a phase change cannot be applied.",
            expected=expected,
            got=_rules(p),
            remedy="Change the parameters to such values.",
        )
    names, measures = read(inputs, p.models, ctx)
    at = points_of(measures)
    ends = np.array([indices_of(m) for m in measures])
    scores, phases = [scores_of(m) for m in measures], [_phases(m, p) for m in measures]
    control = _control(inputs, p.control)
    texts, between = [on_text(m, control) for m in measures], _between(measures)
    return TrainingSeriesResult(
        names=names,
        model=at.model,
        steps=at.steps,
        tokens=at.tokens,
        checkpoint=at.checkpoint,
        is_final=at.checkpoint == -1,
        loss=_joined(measures, lambda m: m["loss"]),
        scores=np.concatenate([s[0] for s in scores]),
        repetitions=np.concatenate([s[1] for s in scores]),
        loss_by_index=_joined(measures, lambda m: m["loss_by_index"]),
        derivative=_joined(measures, lambda m: slopes(m["loss_by_index"], p.ratio, ctx)),
        heads=_joined(measures, lambda m: np.stack([m[name] for name in HEAD_ARRAYS], axis=1)),
        shapes=np.array([m["copying"].shape[1:] for m in measures]),
        controlled=np.concatenate([t.controlled for t in texts]),
        each=np.concatenate([t.each.mean for t in texts]),
        each_error=np.concatenate([t.each.error for t in texts]),
        n_each=np.concatenate([t.each.texts for t in texts]),
        each_controlled=np.concatenate([t.each_controlled.mean for t in texts]),
        each_controlled_error=np.concatenate([t.each_controlled.error for t in texts]),
        between=between[0],
        between_error=between[1],
        phase=np.stack([q[0] for q in phases]),
        fall=np.stack([q[1] for q in phases]),
        rise=np.stack([q[2] for q in phases]),
        windows=ends,
        conventions=_words(names, measures, ends, p, control, texts),
    )


def read(inputs: Inputs, models: tuple[SeriesRef, ...], ctx: Ctx) -> tuple[tuple[str, ...], list[SeriesMeasures]]:
    """(names, measures) of the models, each once. Raises `BadModel`, and `BadInput` for a series that is too large."""
    by_name: dict[str, SeriesMeasures] = {}
    for i, ref in enumerate(models):
        ctx.tick(i, len(models), "reading what was measured")
        name = ModelRef(ref.source).name
        name = ref.source if name in by_name else name
        by_name[name] = inputs.series(ref)
        if (size := sum(a.size for a in by_name[name].arrays.values())) > LARGEST:
            raise BadInput(
                f"The training series of {name} is too large.",
                expected=f"at most {LARGEST:,} numbers",
                got=f"{size:,}",
                remedy="Measure fewer checkpoints or fewer texts: circuitlab measure MODEL.",
            )
        if ref.source == inputs.subject.model.source:
            _of_this_model(inputs, name, by_name[name])
    return tuple(by_name), list(by_name.values())


def _of_this_model(inputs: Inputs, name: str, measures: SeriesMeasures) -> None:
    """Raise `BadModel` for a series with heads that the model beside it does not have."""
    config, (layers, heads) = inputs.weights.config, measures[HEAD_ARRAYS[0]].shape[1:]
    if layers > config.n_layers or (config.n_layers and heads > config.n_heads):
        raise BadModel(
            f"The training series beside {name} is of another model.",
            expected=f"{number_of(config.n_layers, 'layer')} × {number_of(config.n_heads, 'head')}",
            got=f"{layers} × {heads}",
            remedy="Measure its checkpoints: circuitlab measure MODEL --text FILES.",
        )


class Points(NamedTuple):
    """The points of several models, [point] int64 each: the model, and how far its training is."""

    model: np.ndarray
    steps: np.ndarray
    tokens: np.ndarray
    checkpoint: np.ndarray


def points_of(measures: list[SeriesMeasures]) -> Points:
    """The points of all models, one model after the other; `checkpoint` −1: the final weights, `GONE`: weights not kept."""
    integers = lambda rows: np.concatenate([np.array(row, dtype=np.int64) for row in rows])
    return Points(
        integers([[i] * len(m.steps) for i, m in enumerate(measures)]),
        integers([m.steps for m in measures]),
        integers([m.tokens for m in measures]),
        integers([[-1 if c is None else c for c in m.checkpoints] for m in measures]),
    )


def slopes(losses: np.ndarray, ratio: float, ctx: Ctx) -> np.ndarray:
    """[point, index]: d loss / d ln(index) of losses [point, index]; index i is position i + 1."""
    out = np.full(losses.shape, np.nan)
    for i, row in enumerate(losses.astype(float)):
        ctx.tick(i, len(losses), "slopes of the loss")
        out[i] = log_slope(np.concatenate([[np.nan], row]), ratio)[1:]
    return out


def _phases(m: SeriesMeasures, p: TrainingSeriesParams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tokens [kind, 2], fall [kind], rise [kind] of the best prefix-matching score); NaN without a phase change."""
    phase, fall, rise = np.full((len(KINDS), 2), np.nan), np.full(len(KINDS), np.nan), np.full(len(KINDS), np.nan)
    for kind in range(len(KINDS)):
        if window := phase_of(m, kind, p.rule(kind)):
            phase[kind] = m.tokens[window.first], m.tokens[window.last]
            fall[kind], rise[kind] = window.fall, window.after - window.before
    return phase, fall, rise


def _between(measures: list[SeriesMeasures]) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard error) [model, model] of the differences of the last scores on the same texts."""
    mean, error = (np.full((len(measures), len(measures)), np.nan) for _ in range(2))
    last = [by_text(m)[-1] for m in measures]
    for i, j in np.ndindex(mean.shape):
        if i != j and same_text(measures[i], measures[j]) and last[i].shape == last[j].shape:
            mean[i, j], error[i, j], _ = over_texts(last[i] - last[j])
    return mean, error


def _errors(texts: list[OnText]) -> tuple[str, ...]:
    """For captions: the number of texts of standard errors."""
    counts = sorted({int(n) for t in texts for n in t.each.texts if n > 1})
    if not counts:
        return ("no standard errors: losses of single texts are not recorded",)
    over = " or ".join(number_of(n, "text") for n in counts)
    return (f"standard errors: over {over} with recorded losses, paired with the control",)


def _joined(measures: list[SeriesMeasures], array_of: Callable[[SeriesMeasures], np.ndarray]) -> np.ndarray:
    """Arrays [point, …] of models of different sizes, concatenated over points and padded with NaN.

    Raises `BadInput` if the result is mostly padding and too large.
    """
    arrays = [np.asarray(array_of(m), dtype=float) for m in measures]
    shape = np.array([a.shape for a in arrays])
    whole = (int(shape[:, 0].sum()), *shape[:, 1:].max(axis=0).tolist())
    if math.prod(whole) > LARGEST * len(measures):  # many points of one model, long texts of another
        got = " × ".join(map(str, whole))
        raise BadInput(
            "These series are too different in size.",
            expected=f"at most {number_of(LARGEST * len(measures), 'number')}",
            got=got,
            remedy="Compare fewer models, or models measured on texts of one length.",
        )
    out = np.full(whole, np.nan)
    row = 0
    for a in arrays:
        out[(slice(row, row + len(a)), *map(slice, a.shape[1:]))] = a
        row += len(a)
    return out


def _rules(p: TrainingSeriesParams) -> str:
    values = {"threshold": p.threshold, "threshold_text": p.threshold_text, "share": p.share, "ratio": p.ratio}
    values |= {"apart": p.apart, "apart_text": p.apart_text, "first": p.first}
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def _control(inputs: Inputs, ref: SeriesRef | None) -> SeriesMeasures | None:
    """The control's measures. Raises `BadInput` for a model that has layers."""
    if ref is None:
        return None
    control = inputs.series(ref)
    if layers := control["copying"].shape[1]:
        got = f"{ModelRef(ref.source).name}, {number_of(layers, 'layer')}"
        raise BadInput(
            "The control sees more than the previous token.",
            expected="a model without layers",
            got=got,
            remedy="Choose a model without layers, or leave out the control.",
        )
    return control


def _words(
    names: tuple[str, ...],
    measures: list[SeriesMeasures],
    ends: np.ndarray,
    p: TrainingSeriesParams,
    control: SeriesMeasures | None,
    texts: list[OnText],
) -> tuple[str, ...]:
    on = [
        (*words_on_sequences(m), Part(f"in-context score on text: tokens {c}–{d} minus {a}–{b}", Sense(About.IN_CONTEXT)))
        for m, (a, b, c, d) in zip(measures, ends.tolist(), strict=True)
    ]
    same = len(set(on)) == 1
    on_words = (
        on[0] if same else [reworded(word, f"{name}: {word}") for name, words in zip(names, on, strict=True) for word in words]
    )
    name = "" if p.control is None else ModelRef(p.control.source).name
    against = (f"control on text: {name}, without layers, on the same texts",) if name else ()
    if name and (
        others := [n for n, m in zip(names, measures, strict=True) if control is not None and not same_texts(m, control)]
    ):
        against = (*against, f"not computed: {', '.join(others)} minus the control, which was measured on other texts")
    return (
        *on_words,
        *against,
        *_errors(texts),
        Part("on repeated sequences: second repetition without its first token minus first repetition", Sense(About.IN_CONTEXT)),
        Part(
            f"slope by ln index: least squares over i/{p.ratio:g} … i·{p.ratio:g}, as far as there are indices",
            Sense(About.SLOPE),
        ),
        Part(p.words(), Sense(About.PHASE_CHANGE)),
    )
