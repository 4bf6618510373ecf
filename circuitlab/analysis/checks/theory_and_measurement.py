"""Theory against measurement: what the weights of each head predict beside what it is measured to do, and how far they agree.

Predicted from weights, of each head:

    own token in top 10      share of tokens among the ten largest of their own row of W_E W_OV W_U            (`own_tokens`)
    OV copying               Σλ/Σ|λ| of W_E W_OV W_U                                                           (`copying_scores`)
    QK positivity            Σλ/Σ|λ| of W_E W_QK W_Eᵀ                                                          (`copying_scores`)
    positivity through earlier heads    Σλ/Σ|λ| of W_E W_QK (Σ_e p_e W_OV^e)ᵀ W_Eᵀ, p_e the previous-token score of an earlier
                             head                                                                     (`previous_head_spectrum`)
    K-composition            ‖W_OV^e W_QKᵀ‖ / (‖W_OV^e‖ ‖W_QK‖), the largest with a head e of an earlier layer whose
                             previous-token score is at least `previous`                                         (`composition`)

Measured on random tokens:

    prefix matching          attention to what followed earlier occurrences of the token                          (`head_scores`)
    copying (repeated), copying (unrepeated)    share of what it raises on the tokens attended to          (`copying_head_score`)
    ablation                 rise of the loss of a block's second repetition, its first token left out, when the head is zeroed
                                                                                                                     (`ablation`)

Which earlier head is a previous-token head is itself measured: that enters the last two predictions. Each predicted quantity is
correlated with each measured one over all heads that have both (`rank_correlation`), rank 1 the largest value. The two part most
where the ranks differ most. Olsson et al. 2022 (arguments 3 and 4) and Elhage et al. 2021 make these predictions; the
correlation is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from circuitlab.analysis.attention.copying_on_random_tokens import CopyingHeadScoreParams, copying_head_score
from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores, sample_words
from circuitlab.analysis.base import AnyAnalysis, Column, Ctx, Inputs, Result, Table, analysis, at_least, over
from circuitlab.analysis.behaviour.samples import Repeated, check_counts, fit_to_context, no_room, repeated_random
from circuitlab.analysis.circuits.factors import BEFORE_SMEARING, exactness
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams, own_tokens
from circuitlab.analysis.composition.scores import CompositionParams, CompositionResult, composition
from circuitlab.analysis.interventions.ablation import AblationParams, ablation
from circuitlab.analysis.ordering import head_names
from circuitlab.analysis.rank_correlation import WORDS, correlation, rank_differences, ranks_of_both
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.analysis.spectra.positivity_plane import PreviousHeadSpectrumParams, previous_head_spectrum
from circuitlab.caption_parts import About, Essential, Part, Sense, about_of, sense_of
from circuitlab.counting import number, number_of, probability
from circuitlab.model.config import ModelConfig
from circuitlab.model.weights import bos_of

CENTRED_SOURCES = "positivity: sources’ W_E centred over the vocabulary, destinations’ not"
PREDICTED = ("own token in top 10", "OV copying", "QK positivity", "positivity through earlier heads", "K-composition")
MEASURED = ("prefix matching", "copying (repeated)", "copying (unrepeated)", "ablation")
UNITS = {
    "own token in top 10": "share of tokens", "OV copying": "dimensionless", "QK positivity": "dimensionless",
    "positivity through earlier heads": "dimensionless", "K-composition": "dimensionless",
    "prefix matching": "share of attention", "copying (repeated)": "dimensionless", "copying (unrepeated)": "dimensionless",
    "ablation": "nats",
}  # fmt: skip
BLOCK = 25  # random tokens of the block that is repeated while heads are ablated, as in `head_scores`


@dataclass(frozen=True)
class TheoryAndMeasurementParams:
    """`previous`: the least previous-token score of an earlier head whose K-composition counts.

    Heads are ablated on `samples` blocks of 25 random tokens × 2, drawn with `seed`; `frozen`: later patterns are held.
    """

    previous: float = 0.5
    samples: int = at_least(1, 4)
    frozen: bool = True
    seed: int = at_least(0, 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class TheoryAndMeasurementResult(Result):
    """`predicted` [predicted, layer, head] and `measured` [measured, layer, head]; NaN: not computed.

    `rho`, `low`, `high` [predicted, measured]: Spearman's ρ and the ends of its 95 % interval over the `n` [predicted, measured]
    heads that have both values. `source` [layer, head, (layer, head)]: the earlier head of the K-composition, below 0 for none.
    """

    predicted: np.ndarray = over("predicted", "layer", "head", unit="{units_predicted}")
    measured: np.ndarray = over("measured", "layer", "head", unit="{units_measured}")
    rho: np.ndarray = over("predicted", "measured", unit="dimensionless")
    low: np.ndarray = over("predicted", "measured", unit="dimensionless")
    high: np.ndarray = over("predicted", "measured", unit="dimensionless")
    n: np.ndarray = over("predicted", "measured", unit="heads")
    source: np.ndarray = over("layer", "head", "(layer, head)", unit="index", none=True)

    FRAME_IS_TABLE: ClassVar[bool] = True
    ENTRIES: ClassVar[Mapping[str, Sequence[str]]] = {"predicted": PREDICTED, "measured": MEASURED}

    @property
    def units_predicted(self) -> dict[str, str]:
        """The unit of each predicted quantity, by its name."""
        return {name: UNITS[name] for name in PREDICTED}

    @property
    def units_measured(self) -> dict[str, str]:
        """The unit of each measured quantity, by its name."""
        return {name: UNITS[name] for name in MEASURED}

    def of(self, name: str) -> np.ndarray:
        """[layer, head] of one predicted or measured quantity."""
        return self.predicted[PREDICTED.index(name)] if name in PREDICTED else self.measured[MEASURED.index(name)]

    def differences(self, predicted: str, measured: str) -> np.ndarray:
        """[layer, head]: rank by what is measured minus rank by what is predicted, 1 the largest; NaN without both."""
        return rank_differences(self.of(predicted), self.of(measured))

    def ranks(self, predicted: str, measured: str) -> tuple[np.ndarray, np.ndarray]:
        """[layer, head] each: ranks by what is predicted and by what is measured among heads that have both, 1 the largest."""
        return ranks_of_both(self.of(predicted), self.of(measured))

    def table(self) -> Table:
        """A row for each head and each pair of quantities with their units, and the correlation of the pair with its interval."""
        heads = head_names(*np.indices(self.predicted.shape[1:]).reshape(2, -1))
        pairs, k = [(i, j) for i in range(len(PREDICTED)) for j in range(len(MEASURED))], len(heads)
        each = lambda of: np.repeat(np.array([of(i, j) for i, j in pairs]), k)
        every = lambda of: np.concatenate([np.ravel(of(i, j)) for i, j in pairs]).astype(float)
        ranked = lambda i, j: self.ranks(PREDICTED[i], MEASURED[j])
        return Table(
            (
                Column("predicted quantity", each(lambda i, j: PREDICTED[i])),
                Column("measured quantity", each(lambda i, j: MEASURED[j])),
                Column("head", np.tile(heads, len(pairs))),
                Column("predicted", every(lambda i, j: self.predicted[i])),
                Column("predicted unit", each(lambda i, j: UNITS[PREDICTED[i]])),
                Column("measured", every(lambda i, j: self.measured[j])),
                Column("measured unit", each(lambda i, j: UNITS[MEASURED[j]])),
                Column("predicted rank, 1 the largest", every(lambda i, j: ranked(i, j)[0])),
                Column("measured rank, 1 the largest", every(lambda i, j: ranked(i, j)[1])),
                Column("measured − predicted rank", every(lambda i, j: self.differences(PREDICTED[i], MEASURED[j])), "ranks"),
                Column("Spearman's rho", each(lambda i, j: float(self.rho[i, j])), "dimensionless"),
                Column("95 % from", each(lambda i, j: float(self.low[i, j])), "dimensionless"),
                Column("95 % to", each(lambda i, j: float(self.high[i, j])), "dimensionless"),
                Column("heads with both", each(lambda i, j: int(self.n[i, j])), "heads", of="count"),
            )
        )


_PARTS: dict[str, tuple[AnyAnalysis, object]] = {
    "own token in top 10": (own_tokens, OwnTokensParams()),
    "OV copying": (copying_scores, CopyingScoresParams()),
    "QK positivity": (copying_scores, CopyingScoresParams()),
    "positivity through earlier heads": (previous_head_spectrum, PreviousHeadSpectrumParams(pairs=False)),
    "K-composition": (composition, CompositionParams()),
    "prefix matching": (head_scores, HeadScoresParams()),
    "copying (repeated)": (copying_head_score, CopyingHeadScoreParams()),
    "copying (unrepeated)": (copying_head_score, CopyingHeadScoreParams()),
}


def _part(name: str, p: TheoryAndMeasurementParams) -> tuple[AnyAnalysis, object]:
    """The analysis that a quantity is read from, and what it is asked."""
    return (ablation, AblationParams(frozen=p.frozen)) if name == "ablation" else _PARTS[name]


def _why_not(c: ModelConfig, name: str, p: TheoryAndMeasurementParams) -> str | None:
    """Why a quantity is not computed of this model, or None."""
    if name in ("positivity through earlier heads", "K-composition") and c.n_layers < 2:
        return "one layer has no earlier heads to compose with."
    analysis_of, params = _part(name, p)
    wrong = analysis_of.refuse(c, params)
    if name == "ablation":
        return wrong or no_room(c, BLOCK, 2)
    if name == "K-composition":
        return wrong or head_scores.refuse(c, HeadScoresParams())
    return wrong


def _refuse(c: ModelConfig, p: TheoryAndMeasurementParams) -> str | None:
    for names in (PREDICTED, MEASURED):
        reasons = [_why_not(c, name, p) for name in names]
        if all(reasons):
            return next(reason for reason in reasons if reason)
    return None


def _memory(c: ModelConfig, n: int, p: TheoryAndMeasurementParams, dtype: str = "float32") -> int:
    """The largest of the analyses that are asked, one after the other, and the result with its partial results."""
    asked = [_part(name, p) for name in (*PREDICTED, *MEASURED) if _why_not(c, name, p) is None]
    largest = max((one.memory(c, 2 * BLOCK + 1, params, dtype) for one, params in asked), default=0)
    return largest + 3 * 8 * c.n_layers * c.n_heads * (len(PREDICTED) + len(MEASURED) + 2)


def _cost(c: ModelConfig, n: int, p: TheoryAndMeasurementParams) -> float:
    asked = dict(_part(name, p) for name in (*PREDICTED, *MEASURED) if _why_not(c, name, p) is None)
    return sum(one.cost(c, 2 * BLOCK, params) * (p.samples if one is ablation else 1) for one, params in asked.items())


@analysis(version=5, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def theory_and_measurement(inputs: Inputs, p: TheoryAndMeasurementParams, ctx: Ctx) -> TheoryAndMeasurementResult:
    """Theory against measurement: what each head's weights predict beside what is measured, with rank correlations."""
    check_counts(samples=p.samples)
    c = inputs.weights.config
    quantities = _Quantities(inputs, p, ctx)
    values = {name: np.full((c.n_layers, c.n_heads), np.nan) for name in (*PREDICTED, *MEASURED)}
    reasons = {name: reason for name in values if (reason := _why_not(c, name, p)) is not None}
    ways = [name for name in values if name not in reasons]
    for i, name in enumerate(ways):
        ctx.tick(i, len(ways), name)
        values[name] = quantities.of(name)
        if i + 1 < len(ways):
            ctx.partial(_result(inputs, p, values, quantities, reasons, (i + 1) / len(ways)))
    return _result(inputs, p, values, quantities, reasons, 1.0)


def _result(
    inputs: Inputs,
    p: TheoryAndMeasurementParams,
    values: Mapping[str, np.ndarray],
    quantities: _Quantities,
    reasons: Mapping[str, str],
    done: float,
) -> TheoryAndMeasurementResult:
    pairs = [[correlation(values[a], values[b]) for b in MEASURED] for a in PREDICTED]
    of = lambda field, dtype: np.array([[getattr(pair, field) for pair in row] for row in pairs], dtype=dtype)
    return TheoryAndMeasurementResult(
        predicted=np.stack([values[name] for name in PREDICTED]),
        measured=np.stack([values[name] for name in MEASURED]),
        rho=of("rho", float),
        low=of("low", float),
        high=of("high", float),
        n=of("n", np.int64),
        source=quantities.source.copy(),
        conventions=(*inputs.convention_words(), *_words(inputs, p, quantities, reasons)),
        done=done,
    )


def _words(inputs: Inputs, p: TheoryAndMeasurementParams, quantities: _Quantities, reasons: Mapping[str, str]) -> Iterator[str]:
    c = inputs.weights.config
    yield f"products of weights: {exactness(c, inputs.subject.conventions)}"
    yield from (BEFORE_SMEARING,) if c.smeared_keys else ()
    yield from (Essential(part) for part in left_out(c))
    yield WORDS
    by_reason: dict[str, list[str]] = {}
    absent = {**reasons, **quantities.reasons}
    for name, reason in absent.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield Essential(f"not computed: {' and '.join(names)}, {reason}".rstrip("."), Sense(About.NOT_COMPUTED, tuple(names)))
    front = "BOS + " if bos_of(inputs.weights) is not None else ""
    yield CENTRED_SOURCES
    if "positivity through earlier heads" not in absent:
        yield _of("positivity through earlier heads", words="their W_OV weighted by their previous-token scores and added")
    yield from (_of(name, words=words) for name, words in quantities.baselines.items())
    if "K-composition" not in absent:
        chance = f", chance {number(quantities.chance)}" if quantities.chance is not None else ""
        yield _of(
            "K-composition", words=f"with heads whose previous-token score is {p.previous:g} or more on random tokens{chance}"
        )
    if "prefix matching" not in reasons:
        scores = HeadScoresParams()
        sample, fit = f"{number_of(scores.samples, 'sample')} of {front}", fit_to_context(c, scores.block, scores.repeats)
        assert fit is not None  # else a reason
        repeated = f"{sample}{sample_words(c, scores)}, seed {scores.seed}"
        yield _of("prefix matching", "copying (repeated)", words=repeated, about=About.SAMPLE)
        once = f"{sample}{number_of(fit.block, 'random token')}, seed {scores.seed}"
        yield _of("copying (unrepeated)", words=once, about=About.SAMPLE)
    if "ablation" not in reasons:
        held = "later patterns held at their recorded values" if p.frozen else "later patterns recomputed"
        sample = f"{number_of(p.samples, 'sample')} of {front}{quantities.fit.words(BLOCK, 2)}, seed {p.seed}"
        rise = f"rise of the loss of the second repetition with z set to zero, {held}; {sample}"
        yield _of("ablation", words=rise, about=About.SAMPLE)
    yield "no interventions"


def _of(*quantities: str, words: str, about: About | None = None) -> Part:
    """What is said of these quantities."""
    return Part(f"{', '.join(quantities)}: {words}", Sense(about, quantities))


def left_out(c: ModelConfig) -> Iterator[str]:
    """What the predictions leave out in a model of this configuration."""
    if not c.attention_only:
        yield "predictions leave out MLPs: they read W_E alone, and heads after the first layer read what MLPs wrote too"
    parts = ["the scale of each norm"] if c.norm != "none" else []
    parts += ["biases"] if set(c.biases) & {"q", "k", "v", "o"} else []
    parts += [] if c.positions == "none" else ["how queries and keys depend on positions"]
    if parts:
        yield f"predictions leave out {' and '.join((', '.join(parts[:-1]), parts[-1])) if parts[:-1] else parts[0]}"


def _baseline(name: str, result: Any) -> str:
    """What a quantity is by chance, with the sample that its analysis took, as that states both; "" where it states none."""
    if name == "own token in top 10":
        rows = next(filter(None, (sense_of(part).brief for part in result.conventions)))
        return f"{rows}, chance {probability(result.chance10)}"
    if name == "prefix matching":
        control = result.control[result.names.index("prefix_matching")]
        return f"control at the same places of other random tokens {number(control.min())} to {number(control.max())}"
    return next((part for part in result.conventions if about_of(part) is About.CHANCE), "")


class _Quantities:
    """Each quantity by its name, from the analysis that computes it; those of one analysis are asked once."""

    def __init__(self, inputs: Inputs, p: TheoryAndMeasurementParams, ctx: Ctx) -> None:
        self._inputs, self._p, self._ctx = inputs, p, ctx
        c = inputs.weights.config
        self.source = np.full((c.n_layers, c.n_heads, 2), -1)
        self.reasons: dict[str, str] = {}
        self.chance: float | None = None  # of K-composition, once that has been asked
        self.baselines: dict[str, str] = {}  # what a quantity is without any structure, and of how much it is measured

    @property
    def fit(self) -> Repeated:
        """The random tokens that heads are ablated on."""
        fit = fit_to_context(self._inputs.weights.config, BLOCK, 2)
        assert fit is not None  # else refused
        return fit

    def of(self, name: str) -> np.ndarray:
        """[layer, head] float64."""
        if name == "ablation":
            return self._ablation()
        part, params = _part(name, self._p)
        result = self._inputs.answer(part, params)
        if baseline := _baseline(name, result):
            self.baselines[name] = baseline
        read: Mapping[str, Callable[[], np.ndarray]] = {
            "own token in top 10": lambda: result.top10,
            "OV copying": lambda: result.copying,
            "QK positivity": lambda: result.qk_positivity,
            "positivity through earlier heads": lambda: result.weighted,
            "K-composition": lambda: self._with_previous_heads(result),
            "prefix matching": lambda: result.of("prefix_matching"),
            "copying (repeated)": lambda: result.of("repeated"),
            "copying (unrepeated)": lambda: result.of("unrepeated"),
        }
        return np.array(read[name](), dtype=float)

    def _with_previous_heads(self, result: CompositionResult) -> np.ndarray:
        """[layer, head] the largest K-composition score with a previous-token head."""
        scores, self.chance = result.scores[result.kinds.index("K")], result.baseline
        previous = self._inputs.answer(head_scores, HeadScoresParams()).of("previous_token") >= self._p.previous
        among = np.where(previous & np.isfinite(scores), scores, -np.inf)
        n_layers, n_heads = previous.shape
        flat = among.reshape(n_layers, n_heads, -1)
        best = flat.argmax(axis=-1)
        largest = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
        some = np.isfinite(largest)
        self.source[some] = np.stack(np.divmod(best[some], n_heads), axis=-1)
        if not some.any():
            self.reasons["K-composition"] = (
                f"no head of an earlier layer has a previous-token score of {self._p.previous:g} or more."
            )
        return np.where(some, largest, np.nan)

    def _ablation(self) -> np.ndarray:
        """[layer, head] mean rise of the loss of the second repetition, without its first token, over all samples."""
        weights, p, fit = self._inputs.weights, self._p, self.fit
        total = np.zeros((weights.config.n_layers, weights.config.n_heads))
        for i, tokens in enumerate(repeated_random(weights.config, bos_of(weights), fit.block, 2, p.samples, p.seed).tolist()):
            self._ctx.tick(i, p.samples, "ablation")
            result = self._inputs.at(tuple(tokens)).answer(ablation, AblationParams(frozen=p.frozen))
            total += result.token_change[:, :, len(tokens) - fit.block + 1 :].mean(axis=-1, dtype=float)
        return total / p.samples
