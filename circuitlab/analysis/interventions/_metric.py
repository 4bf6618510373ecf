"""The metric of an ablation (a mean loss, an in-context score, or a target) and its gradient at the final residual stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.analysis.behaviour.in_context import windows
from circuitlab.analysis.target import TargetVector, position_of, target_at
from circuitlab.model import block
from circuitlab.model.run import ROWS, Run, unembed
from circuitlab.model.subject import Target
from circuitlab.model.weights import Norm, Weights

Effect = Literal["loss", "second_half", "target", "in_context"]

CELLS = 2**22  # logits per tile: small enough for the processor's cache and for cancelling in time
WIDTH = 10  # tokens averaged at either end of the in-context score, as in `in_context`


@dataclass(frozen=True, eq=False)
class Measure:
    """One number of a run: Σ coefficients · losses of the tokens after positions `at` [row], or the target `aim` at `at`.

    Without rows there is nothing to measure, and the value is NaN.
    """

    tokens: tuple[int, ...]
    at: Tensor
    coefficients: Tensor
    aim: TargetVector | None
    words: str
    unit: str

    @property
    def dest(self) -> slice:
        """The positions of the final stream that are needed: from the first to the last that is read."""
        return slice(int(self.at.min()), int(self.at.max()) + 1) if len(self.at) else slice(0, 1)

    def losses(self, run: Run, final: Tensor, tick: Callable[[], None]) -> Tensor:
        """[batch, row] losses in nats of final streams [batch, dest, d_model]; `tick()` is called once per tile of logits."""
        if not len(self.at):
            return final.new_zeros(len(final), 0)
        rows = final[:, self.at - self.dest.start].flatten(0, 1)
        targets = torch.tensor(self.tokens)[self.at + 1].repeat(len(final))
        return token_losses(run.weights, rows, targets, tick).unflatten(0, (len(final), -1))

    def value(self, run: Run, final: Tensor, losses: Tensor) -> Tensor:
        """[batch] float64 values of the metric; NaN if there is nothing to measure."""
        if self.aim is not None:
            return self.aim.measure(run.weights, final)[:, 0].double()
        if not len(self.at):
            return torch.full((len(final),), torch.nan, dtype=torch.float64)
        return losses.double() @ self.coefficients

    def slope(self, run: Run, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """(losses [row], gradient [pos, d_model] of the value with respect to the run's final stream).

        The gradient of a loss with respect to the logits is softmax(logits) minus the one-hot target.
        """
        assert run.final is not None
        out, ends, cap = torch.zeros_like(run.final), run.weights.unembed(), run.weights.config.logit_soft_cap
        if self.aim is not None:
            out[self.at] = _before_norm(run.weights, run.final[self.at], self.aim.D)
            return run.final.new_zeros(0), out
        losses, tokens = [run.final.new_zeros(0)], torch.tensor(self.tokens)
        for rows, share in zip(self.at.split(ROWS), self.coefficients.split(ROWS), strict=True):
            tick()
            logits, targets = unembed(run.weights, ends, run.final[rows]), tokens[rows + 1]
            losses.append(F.cross_entropy(logits, targets, reduction="none"))
            by_logit = torch.softmax(logits, dim=-1)
            by_logit[torch.arange(len(rows)), targets] -= 1
            by_logit *= share.to(logits.dtype)[:, None]
            by_logit = by_logit * (1 - (logits / cap).square()) if cap else by_logit
            tick()
            out[rows] = _before_norm(run.weights, run.final[rows], by_logit @ ends.W_U.T)
        return torch.cat(losses), out

    def __call__(self, run: Run, final: Tensor, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """(value [batch], losses [batch, row]); with a target no losses are computed: [batch, 0]."""
        losses = final.new_zeros(len(final), 0) if self.aim is not None else self.losses(run, final, tick)
        return self.value(run, final, losses), losses


def token_losses(weights: Weights, x: Tensor, ids: Tensor, tick: Callable[[], None]) -> Tensor:
    """[row] losses in nats of the tokens `ids` [row] that follow final streams x [row, d_model].

    `ln Σ exp(logit)` is accumulated over tiles of the vocabulary for all rows at once: W_U is read once, and no whole row of
    logits is kept.
    """
    config, ends = weights.config, weights.unembed()
    x = block.normalise(x, ends.norm, config.norm, config.norm_eps) if config.final_norm else x
    top, total, own = x.new_full((len(x),), -torch.inf), x.new_zeros(len(x)), x.new_zeros(len(x))
    width = max(1, CELLS // len(x))
    for start in range(0, config.d_vocab_out, width):
        tick()
        columns = slice(start, start + width)
        tile = block.affine(x, ends.W_U[:, columns], None if ends.b_U is None else ends.b_U[columns])
        tile = block.soft_cap(tile, config.logit_soft_cap)
        in_tile = torch.nonzero((ids >= start) & (ids < start + width))[:, 0]
        own[in_tile] = tile[in_tile, ids[in_tile] - start]
        higher = torch.maximum(top, tile.amax(dim=-1))
        total = total * (top - higher).exp() + tile.sub_(higher[:, None]).exp_().sum(dim=-1)
        top = higher
    return total.log() - (own - top)  # in this order a loss near 0 keeps its digits


def measure_of(inputs: Inputs, run: Run, effect: Effect, target: Target, position: int) -> Measure:
    """The metric on this prompt. Raises `BadInput` for an invalid target or position."""
    n, nothing = run.n, torch.zeros(0, dtype=torch.float64)
    if effect == "target":
        at = position_of(n, position)
        aim = target_at(inputs, target, (at,), run)
        return Measure(run.tokens, torch.tensor([at]), nothing, aim, f"{aim.words}, position {at}", "logit")
    if effect == "in_context":
        return _in_context(run)
    first = (n + 1) // 2 if effect == "second_half" else 1  # of BOS and a block twice, exactly the second block
    at = torch.arange(first, n) - 1
    share = torch.full((len(at),), 1 / max(1, len(at)), dtype=torch.float64)
    where = f"tokens {first} to {n - 1}" if len(at) else "no token: there is no loss"
    return Measure(run.tokens, at, share, None, f"mean loss on {where}", "nats")


def _in_context(run: Run) -> Measure:
    """Late minus early loss of this one prompt, at the indices that `in_context` uses."""
    (first, stop), (begin, last) = windows(run.n, 0, 0, WIDTH)
    early, late = torch.arange(first, stop + 1), torch.arange(begin, last + 1)
    if not first <= stop < begin <= last:
        early = late = early[:0]
    at = torch.cat([early, late]) - 1
    share = torch.cat([-torch.ones(len(early)), torch.ones(len(late))]).double() / max(1, len(early))
    window_words = f"{_span(late)} minus {_span(early)}" if len(at) else "too few tokens"
    return Measure(run.tokens, at, share, None, f"in-context score of one prompt: loss on {window_words}", "nats")


def _span(tokens: Tensor) -> str:
    return f"tokens {int(tokens[0])} to {int(tokens[-1])}" if len(tokens) > 1 else f"token {int(tokens[0])}"


def _before_norm(weights: Weights, x: Tensor, slope: Tensor) -> Tensor:
    """A gradient with respect to the normalised final streams, taken back through the final norm to x [row, d_model]."""
    c, gain = weights.config, weights.unembed().norm.gain
    if not c.final_norm or c.norm == "none":
        return slope
    with torch.inference_mode(False), torch.enable_grad():
        x = x.clone().requires_grad_()
        normed = block.normalise(x, Norm(None if gain is None else gain.clone()), c.norm, c.norm_eps)
        return torch.autograd.grad(normed, x, slope.clone())[0]
