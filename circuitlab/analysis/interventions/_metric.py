"""What an ablation is measured by: a mean loss, an in-context score, or a target; its value, and its slope at the last stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.analysis.behaviour.in_context import windows
from circuitlab.analysis.target import Aim, aim_at, position_of
from circuitlab.model import block
from circuitlab.model.run import ROWS, Run, unembed
from circuitlab.model.subject import Target
from circuitlab.model.weights import Norm, Weights

Effect = Literal["loss", "second_half", "target", "in_context"]

CELLS = 2**22  # logits at a time: a tile that stays in the cache, and below the time in which cancelling must be noticed
WIDTH = 10  # tokens averaged at either end of the in-context score, as in `in_context`


@dataclass(frozen=True, eq=False)
class Measure:
    """One number of a run: Σ coefficients · losses of the tokens after `at` [row], or the value of `aim` at `at`.

    `dest`: the positions of the last stream that are needed. No rows: there is nothing to measure.
    """

    tokens: tuple[int, ...]
    at: Tensor
    coefficients: Tensor
    aim: Aim | None
    words: str
    unit: str

    @property
    def dest(self) -> slice:
        """From the first to the last position that is read."""
        return slice(int(self.at.min()), int(self.at.max()) + 1) if len(self.at) else slice(0, 1)

    def losses(self, run: Run, final: Tensor, tick: Callable[[], None]) -> Tensor:
        """[batch, row], nats, of last streams [batch, dest, d_model]; a tile of logits at a time, each with its `tick()`."""
        if not len(self.at):
            return final.new_zeros(len(final), 0)
        rows = final[:, self.at - self.dest.start].flatten(0, 1)
        wanted = torch.tensor(self.tokens)[self.at + 1].repeat(len(final))
        return token_losses(run.weights, rows, wanted, tick).unflatten(0, (len(final), -1))

    def value(self, run: Run, final: Tensor, losses: Tensor) -> Tensor:
        """[batch] float64; NaN where there is nothing to measure."""
        if self.aim is not None:
            return self.aim.measure(run.weights, final)[:, 0].double()
        if not len(self.at):
            return torch.full((len(final),), torch.nan, dtype=torch.float64)
        return losses.double() @ self.coefficients

    def slope(self, run: Run, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """(losses [row], gradient [pos, d_model] of the value with respect to the run's last stream).

        Of a loss by a logit: softmax − 1 at the token itself.
        """
        assert run.final is not None
        out, ends, cap = torch.zeros_like(run.final), run.weights.unembed(), run.weights.config.logit_soft_cap
        if self.aim is not None:
            out[self.at] = _before_norm(run.weights, run.final[self.at], self.aim.D)
            return run.final.new_zeros(0), out
        losses, tokens = [run.final.new_zeros(0)], torch.tensor(self.tokens)
        for rows, share in zip(self.at.split(ROWS), self.coefficients.split(ROWS), strict=True):
            tick()
            logits, wanted = unembed(run.weights, ends, run.final[rows]), tokens[rows + 1]
            losses.append(F.cross_entropy(logits, wanted, reduction="none"))
            by_logit = torch.softmax(logits, dim=-1)
            by_logit[torch.arange(len(rows)), wanted] -= 1
            by_logit *= share.to(logits.dtype)[:, None]
            by_logit = by_logit * (1 - (logits / cap).square()) if cap else by_logit
            tick()
            out[rows] = _before_norm(run.weights, run.final[rows], by_logit @ ends.W_U.T)
        return torch.cat(losses), out

    def __call__(self, run: Run, final: Tensor, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """(value [batch], losses [batch, row]); a target leaves losses out: [batch, 0]."""
        losses = final.new_zeros(len(final), 0) if self.aim is not None else self.losses(run, final, tick)
        return self.value(run, final, losses), losses


def token_losses(weights: Weights, x: Tensor, ids: Tensor, tick: Callable[[], None]) -> Tensor:
    """[row], nats: losses of the tokens `ids` [row] after last streams x [row, d_model].

    `ln Σ exp(logit)` goes over tiles of the vocabulary with all rows at once: each weight is read once, no row is kept whole.
    """
    config, ends = weights.config, weights.unembed()
    x = block.normalise(x, ends.norm, config.norm, config.norm_eps) if config.final_norm else x
    top, total, own = x.new_full((len(x),), -torch.inf), x.new_zeros(len(x)), x.new_zeros(len(x))
    width = max(1, CELLS // len(x))
    for start in range(0, config.d_vocab_out, width):
        tick()
        some = slice(start, start + width)
        tile = block.affine(x, ends.W_U[:, some], None if ends.b_U is None else ends.b_U[some])
        tile = block.soft_cap(tile, config.logit_soft_cap)
        here = torch.nonzero((ids >= start) & (ids < start + width))[:, 0]
        own[here] = tile[here, ids[here] - start]
        higher = torch.maximum(top, tile.amax(dim=-1))
        total = total * (top - higher).exp() + tile.sub_(higher[:, None]).exp_().sum(dim=-1)
        top = higher
    return total.log() - (own - top)  # in this order: a loss of almost nothing keeps its digits


def measure_of(inputs: Inputs, run: Run, effect: Effect, target: Target, position: int) -> Measure:
    """What is measured on this prompt. Raises `BadInput` for a target or a position that is not there."""
    n, nothing = run.n, torch.zeros(0, dtype=torch.float64)
    if effect == "target":
        at = position_of(n, position)
        aim = aim_at(inputs, target, (at,), run)
        return Measure(run.tokens, torch.tensor([at]), nothing, aim, f"{aim.words} at position {at}", "logit")
    if effect == "in_context":
        return _in_context(run)
    first = (n + 1) // 2 if effect == "second_half" else 1  # BOS and a block twice: exactly the second block
    at = torch.arange(first, n) - 1
    share = torch.full((len(at),), 1 / max(1, len(at)), dtype=torch.float64)
    where = f"tokens {first} to {n - 1}" if len(at) else "no token: there is no loss"
    return Measure(run.tokens, at, share, None, f"mean loss of {where}", "nats")


def _in_context(run: Run) -> Measure:
    """Late minus early loss of this one prompt, at the indices that `in_context` takes."""
    (first, stop), (begin, last) = windows(run.n, 0, 0, WIDTH)
    early, late = torch.arange(first, stop + 1), torch.arange(begin, last + 1)
    if not first <= stop < begin <= last:
        early = late = early[:0]
    at = torch.cat([early, late]) - 1
    share = torch.cat([-torch.ones(len(early)), torch.ones(len(late))]).double() / max(1, len(early))
    said = f"{_span(late)} minus {_span(early)}" if len(at) else "too few tokens"
    return Measure(run.tokens, at, share, None, f"in-context score of one prompt: loss of {said}", "nats")


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
