"""The rotary clock hands of the constructed induction model, and its attention by closed form against the forward pass.

    layer 0    score(m, n) = α Σ_i cos((n − m + o) θ_i)          all hands point up at n = m − o only
    layer 1    score(m, n) = β Σ_j A⁰[n, j] code(t_m) · code(t_j) + β σ [t_n is BOS]

with m destination, n source, o the offset, θ_i the angle by which hand i turns per position (Su et al. 2021, section 3.4; the
construction is Wendler's). The bounds are those of `circuitlab.model.constructed.closed_forms`; measured values are from the
model's own forward pass, without interventions. `remainder` is the difference of the two attentions.
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
    """`epsilon`: the share of attention allowed elsewhere, for the bounds; above 0 and below ½."""

    epsilon: float = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class RotationClockResult(Result):
    """Δ = source − destination + offset, from −(n_ctx − 1) to the offset; destinations and sources are positions of the prompt.

    `theta` [pair] radians per position; `delta` [delta] int64; `curve` [delta] Σ cos(Δ θ_i); `hands` [delta, pair] radians,
    −π … π. `gap`, `rival`: how far the best rival is below the peak (in units of `alpha`), and its Δ. `alpha_needed`,
    `beta_needed`: the least values with at most `epsilon` of the attention elsewhere on every text; infinite if there are none.
    `predicted`, `measured` [layer, dest, src]: attention by closed form and measured, NaN where the mask hides a source.
    `wanted` [layer, dest, src] bool: where attention should be: at m − o; at positions that are `o` after the destination's
    token, or at BOS if there are none. `mass` [layer, dest]: measured attention there, NaN without such a position.
    `logits`, `measured_logits` [dest, token] by closed form and measured, with the closed form's mean where centring removed it;
    `followed` [dest, token] int64: how often that token has followed the destination's (by `offset`); `margin` [dest]: the
    smallest measured logit of the most frequent followers minus the largest of all others (above 0: predicted correctly), NaN if
    nothing repeats. `letters` [query, key]: layer 1's attention of each letter over the whole alphabet, each letter once: softmax
    over keys of β code · code. `stream` [step, pos, d_model] after the embedding, layer 0 and layer 1; `places`: (name, first,
    one past the last) of its coordinates.
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
        """(k, n): k of the n destinations with followers predict one of their most frequent followers."""
        margins = self.margin[~np.isnan(self.margin)]
        return int((margins > 0).sum()), len(margins)

    def table(self) -> Table:
        """One row per Δ: the distance of the source, the sum of cosines, and every hand in radians."""
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
        return "this applies to the constructed induction model only: open construct:rope-induction."
    return None


@analysis(version=3, needs="tokens", lane="live", memory=_memory, refuse=_refuse)
def rotation_clock(inputs: Inputs, p: RotationClockParams, ctx: Ctx) -> RotationClockResult:
    """Rotary clock of the constructed induction model: hands, sum of cosines, attention by closed form and measured."""
    if not 0 < p.epsilon < 0.5:
        raise BadInput(
            "The parameter epsilon is out of range.",
            expected="above 0, below 0.5",
            got=f"{p.epsilon:g}",
            remedy="Change epsilon to a value within these bounds.",
        )
    parameters = parameters_of(inputs.weights.config)
    assert parameters is not None  # `_refuse`
    tokens, run = inputs.subject.tokens, inputs.run(edits=())
    ctx.tick(0, 2, "the formulas")
    visible = np.tril(np.ones((run.n, run.n), dtype=bool))
    predicted = np.stack([closed_forms.attention_0(parameters, tokens), closed_forms.attention_1(parameters, tokens)])
    ctx.tick(1, 2, "the model")
    measured = np.stack([run.get("pattern", layer)[0].double().cpu().numpy() for layer in (0, 1)])
    off = float(np.abs(predicted - measured).max())
    wanted, followed = _wanted(parameters, tokens), _followed(parameters, tokens)
    logits = _on_mean(run.logits().double().cpu().numpy(), expected := closed_forms.logits(parameters, tokens))
    mass = np.where(wanted.any(axis=2), (measured * wanted).sum(axis=2), np.nan)
    return RotationClockResult(
        **_of_parameters(parameters, p.epsilon),
        predicted=np.where(visible, predicted, np.nan),
        measured=np.where(visible, measured, np.nan),
        wanted=wanted,
        mass=mass,
        logits=expected,
        measured_logits=logits,
        followed=followed,
        margin=_margin(logits, followed),
        stream=_stream(run),
        places=tuple((name, at.start, at.stop) for name, at in stream(parameters).items()),
        conventions=(
            *inputs.convention_words(),
            f"{parameters}, prompts of up to {number_of(parameters.n_ctx, 'token')}",
            f"bounds for ε = {p.epsilon:g}",
            "this prompt, no interventions",
        ),
        remainder=Remainder(off, 1.0, "of attention"),
    )


def _of_parameters(parameters: RopeInduction, epsilon: float) -> dict[str, Any]:
    """The fields of the result that are the same for every prompt."""
    delta, rival = closed_forms.rivals(parameters), closed_forms.best_rival(parameters)
    return {
        "theta": read_only(parameters.theta(), np.float64),
        "delta": delta.astype(np.int64),
        "curve": closed_forms.sum_of_cosines(parameters, delta),
        "hands": closed_forms.hands(parameters, delta),
        "letters": closed_forms.letters(parameters),
        "parameters": str(parameters),
        "offset": parameters.offset,
        "alpha": parameters.alpha,
        "beta": parameters.beta,
        "gap": rival.gap,
        "rival": rival.delta,
        "epsilon": epsilon,
        "alpha_needed": closed_forms.alpha_needed(parameters, epsilon),
        "beta_needed": closed_forms.beta_needed(parameters, epsilon),
    }


def _wanted(parameters: RopeInduction, tokens: tuple[int, ...]) -> np.ndarray:
    """[layer, dest, src] bool: where attention should be."""
    before = np.eye(len(tokens), k=-parameters.offset, dtype=bool)
    after = closed_forms.targets(parameters, tokens)
    unmatched, rest = ~after.any(axis=1, keepdims=True), np.array([[t == 0 for t in tokens]])
    after |= np.tril(unmatched & rest)
    return np.stack([before, after])


def _on_mean(logits: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[dest, token]: logits with the closed form's mean, a constant over tokens to which softmax is invariant."""
    return logits + (expected - logits).mean(axis=1, keepdims=True)


def _followed(parameters: RopeInduction, tokens: tuple[int, ...]) -> np.ndarray:
    """[dest, token] int64: how often each token has followed the destination's token."""
    return closed_forms.targets(parameters, tokens).astype(np.int64) @ np.eye(parameters.d_vocab, dtype=np.int64)[list(tokens)]


def _margin(logits: np.ndarray, followed: np.ndarray) -> np.ndarray:
    """[dest]: the margin of the most frequent followers over all other tokens; NaN without followers."""
    most = followed.max(axis=1, keepdims=True)
    best = followed == most
    margin = np.where(best, logits, np.inf).min(axis=1) - np.where(best, -np.inf, logits).max(axis=1)
    return np.where(most[:, 0] > 0, margin, np.nan)


def _stream(run: Run) -> np.ndarray:
    """[step, pos, d_model]: the stream before the first layer and after each layer."""
    assert run.final is not None
    steps = [run.get("resid_pre", 0), run.get("resid_post", 0), run.final]
    return np.stack([x.cpu().numpy() for x in steps])
