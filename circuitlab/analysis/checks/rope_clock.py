"""The clock hands of the constructed induction model, and its attention by formula beside its attention as measured.

    layer 0    score(m, n) = α Σ_i cos((n − m + o) θ_i)          all hands up at n = m − o, nowhere else
    layer 1    score(m, n) = β Σ_j A⁰[n, j] code(t_m) · code(t_j) + β σ [t_n is BOS]

with m destination, n source, o the offset, θ_i the angle that hand i turns in one position (Su et al. 2021, section 3.4; the
construction is Wendler's). The bounds are those of `circuitlab.model.constructed.closed_forms`; what is measured is the model's
own forward pass, without interventions. `remainder` is by how much the two attentions differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, over, read_only
from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.constructed import RopeInduction, closed_forms, parameters_of
from circuitlab.model.constructed.matrices import stream
from circuitlab.model.run import Run


@dataclass(frozen=True)
class RotationClockParams:
    """`epsilon`: the share of attention that may stray, for the bounds; above 0 and below ½."""

    epsilon: float = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationClockResult(Result):
    """Δ = source − destination + offset, from −(n_ctx − 1) to the offset; destinations and sources are positions of the prompt.

    `theta` [pair] radians a position; `delta` [delta] int64; `curve` [delta] Σ cos(Δ θ_i); `hands` [delta, pair] radians, −π … π.
    `gap`, `rival`: how far the best rival is below the peak (in units of `alpha`), and at which Δ. `alpha_needed`, `beta_needed`:
    from where on at most `epsilon` strays on every text (on most, less will do); infinite where no value is enough for all.
    `predicted`, `measured` [layer, dest, src]: attention by formula and as it is, NaN where a destination cannot see.
    `wanted` [layer, dest, src] bool: where it should be: on m − o; on positions `o` behind which stands the destination's token,
    on BOS where there is none. `mass` [layer, dest]: measured attention on them, NaN where none is wanted.
    `logits`, `measured_logits` [dest, token] by formula and as they are, where centring has taken the mean out put back to the
    formula's; `followed` [dest, token] int64: how often that token has
    followed the destination's (`offset` behind); `margin` [dest]: the least measured logit of the most frequent ones, less
    the largest of all others (above 0: predicted rightly), NaN where nothing repeats. `letters` [query, key]: attention of each
    letter if layer 1 stood before the whole alphabet, every letter once where it looks: softmax over keys of β code · code.
    `stream` [step, pos, d_model] after the embedding, layer 0 and layer 1; `places`: (name, first, one past the last) of its
    coordinates.
    """

    theta: np.ndarray = over("pair", unit="radian")
    delta: np.ndarray = over("delta", unit="positions")
    curve: np.ndarray = over("delta", unit="dimensionless")
    hands: np.ndarray = over("delta", "pair", unit="radian")
    predicted: np.ndarray = over("layer", "destination", "source", unit="share of attention")
    measured: np.ndarray = over("layer", "destination", "source", unit="share of attention")
    wanted: np.ndarray = over("layer", "destination", "source", unit="true or false")
    mass: np.ndarray = over("layer", "destination", unit="share of attention")
    logits: np.ndarray = over("destination", "token", unit="logit")
    measured_logits: np.ndarray = over("destination", "token", unit="logit")
    followed: np.ndarray = over("destination", "token", unit="times")
    margin: np.ndarray = over("destination", unit="logit")
    letters: np.ndarray = over("query", "key", unit="share of attention")
    stream: np.ndarray = over("step", "position", "dimension", unit="residual units")
    places: tuple[tuple[str, int, int], ...]
    parameters: str
    offset: int
    alpha: float
    beta: float
    gap: float
    rival: int
    epsilon: float
    alpha_needed: float
    beta_needed: float

    def right(self) -> tuple[int, int]:
        """(k, n): destinations whose most probable token is one that followed most often, of those with something to follow."""
        known = self.margin[~np.isnan(self.margin)]
        return int((known > 0).sum()), len(known)

    def table(self) -> Table:
        """One row a Δ: the distance of the source, the sum of cosines, and every hand in radians."""
        hands = [Column(f"hand_{i}", self.hands[:, i], "radian") for i in range(self.hands.shape[1])]
        return Table(
            (
                Column("delta", self.delta, "positions"),
                Column("source_minus_destination", self.delta - self.offset, "positions"),
                Column("sum_of_cosines", self.curve),
                *hands,
            )
        )


def _memory(config: ModelConfig, n: int, p: RotationClockParams) -> int:
    each = 3 * config.d_model + 4 * config.d_head + 5 * config.d_vocab
    curves = 4 * config.n_ctx * (config.d_head + config.d_vocab)
    return 8 * (12 * n * n + curves + n * each + 3 * config.d_vocab**2)


def _refuse(config: ModelConfig, p: RotationClockParams) -> str | None:
    if parameters_of(config) is None:
        return "only of a model whose parameters are known: open construct:rope-induction."
    return None


@analysis(version=3, needs="tokens", lane="live", memory=_memory, refuse=_refuse)
def rotation_clock(inputs: Inputs, p: RotationClockParams, ctx: Ctx) -> RotationClockResult:
    """Clock hands, sum of cosines, and both layers' attention of the constructed model, by formula and as measured."""
    if not 0 < p.epsilon < 0.5:
        raise BadInput("The parameter epsilon is out of range.", expected="above 0, below 0.5", got=f"{p.epsilon:g}")
    made = parameters_of(inputs.weights.config)
    assert made is not None  # `_refuse`
    tokens, run = inputs.subject.tokens, inputs.run(edits=())
    ctx.tick(0, 2, "the formulas")
    seen = np.tril(np.ones((run.n, run.n), dtype=bool))
    predicted = np.stack([closed_forms.attention_0(made, tokens), closed_forms.attention_1(made, tokens)])
    ctx.tick(1, 2, "the model")
    measured = np.stack([run.get("pattern", layer)[0].double().cpu().numpy() for layer in (0, 1)])
    off = float(np.abs(predicted - measured).max())
    wanted, followed = _wanted(made, tokens), _followed(made, tokens)
    logits = _on_mean(run.logits().double().cpu().numpy(), expected := closed_forms.logits(made, tokens))
    mass = np.where(wanted.any(axis=2), (measured * wanted).sum(axis=2), np.nan)
    return RotationClockResult(
        **_of_parameters(made, p.epsilon),
        predicted=np.where(seen, predicted, np.nan),
        measured=np.where(seen, measured, np.nan),
        wanted=wanted,
        mass=mass,
        logits=expected,
        measured_logits=logits,
        followed=followed,
        margin=_margin(logits, followed),
        stream=_stream(run),
        places=tuple((name, at.start, at.stop) for name, at in stream(made).items()),
        conventions=(
            *inputs.subject.conventions.words(),
            f"{made}, prompts of up to {number_of(made.n_ctx, 'token')}",
            f"bounds for ε = {p.epsilon:g}",
            "this prompt, no interventions",
        ),
        remainder=Remainder(off, 1.0, "of attention"),
    )


def _of_parameters(made: RopeInduction, epsilon: float) -> dict[str, Any]:
    """The fields that are the same for every prompt."""
    delta, rival = closed_forms.rivals(made), closed_forms.best_rival(made)
    return {
        "theta": read_only(made.theta(), np.float64),
        "delta": delta.astype(np.int64),
        "curve": closed_forms.sum_of_cosines(made, delta),
        "hands": closed_forms.hands(made, delta),
        "letters": closed_forms.letters(made),
        "parameters": str(made),
        "offset": made.offset,
        "alpha": made.alpha,
        "beta": made.beta,
        "gap": rival.gap,
        "rival": rival.delta,
        "epsilon": epsilon,
        "alpha_needed": closed_forms.alpha_needed(made, epsilon),
        "beta_needed": closed_forms.beta_needed(made, epsilon),
    }


def _wanted(made: RopeInduction, tokens: tuple[int, ...]) -> np.ndarray:
    """[layer, dest, src] bool."""
    before = np.eye(len(tokens), k=-made.offset, dtype=bool)
    after = closed_forms.targets(made, tokens)
    unmatched, rest = ~after.any(axis=1, keepdims=True), np.array([[t == 0 for t in tokens]])
    after |= np.tril(unmatched & rest)
    return np.stack([before, after])


def _on_mean(logits: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[dest, token] with the mean of the formula's: a constant over all tokens, which the softmax does not see."""
    return logits + (expected - logits).mean(axis=1, keepdims=True)


def _followed(made: RopeInduction, tokens: tuple[int, ...]) -> np.ndarray:
    """[dest, token] int64."""
    return closed_forms.targets(made, tokens).astype(np.int64) @ np.eye(made.d_vocab, dtype=np.int64)[list(tokens)]


def _margin(logits: np.ndarray, followed: np.ndarray) -> np.ndarray:
    """[dest] of the tokens that followed most often over all others; NaN where none did."""
    most = followed.max(axis=1, keepdims=True)
    best = followed == most
    margin = np.where(best, logits, np.inf).min(axis=1) - np.where(best, -np.inf, logits).max(axis=1)
    return np.where(most[:, 0] > 0, margin, np.nan)


def _stream(run: Run) -> np.ndarray:
    """[step, pos, d_model]: what stands in the stream at first and behind each layer."""
    assert run.final is not None
    steps = [run.get("resid_pre", 0), run.get("resid_post", 0), run.final]
    return np.stack([x.cpu().numpy() for x in steps])
