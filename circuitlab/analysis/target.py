"""The target at a position: a logit, a logit difference or a direction, as a linear function of the normalised final stream.

    value = n(x_L) · D + offset,        n: the final norm (the identity without one),   D: a column of W_U, or a difference of two

At a recorded norm scale s it is linear in the residual stream itself, so the contributions of components add up:

    value = x_L · D' + constant,        D' = s · centre(gain ∘ D) (LayerNorm; RMSNorm does not centre)
    constant = bias · D + offset

Logits are those before the soft cap, in models that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circuitlab.analysis.base import Inputs
from circuitlab.analysis.ordering import rank_in
from circuitlab.counting import number_of, ranked
from circuitlab.errors import BadInput
from circuitlab.model import block
from circuitlab.model.folding import final_norm
from circuitlab.model.recorded_norm import before_norm
from circuitlab.model.run import Run
from circuitlab.model.subject import Target
from circuitlab.model.weights import Weights

MINUS_MEAN = ", minus its mean over the vocabulary"  # for captions of a logit that is measured against the mean over all tokens


@dataclass(frozen=True, eq=False)
class TargetVector:
    """A target at `positions` [n]: directions `D` [n, d_model], `offset` [n] (from b_U), token `ids` int64 [n, 2], −1 for none.

    `words` names it in a caption; `of` is the part of its name after the quantity, as in "logit" of one token. `centred`: it is a
    logit minus its mean over the vocabulary.
    """

    positions: Tensor
    D: Tensor
    offset: Tensor
    ids: Tensor
    words: str
    of: str = ""
    centred: bool = False

    def measure(self, weights: Weights, x: Tensor) -> Tensor:
        """[..., n]: the target's values for final streams x [..., n, d_model], each normalised by its own scale."""
        c, ends = weights.config, weights.unembed()
        if c.final_norm:
            x = block.normalise(x, ends.norm, c.norm, c.norm_eps)
        return (x * self.D).sum(-1) + self.offset

    def at_scale(self, weights: Weights, scale: Tensor) -> tuple[Tensor, Tensor]:
        """(D' [n, d_model], constant [n]) at recorded norm scales [n, 1] (`final_scale`)."""
        c, ends = weights.config, weights.unembed()
        if not c.final_norm or c.norm == "none":
            return self.D, self.offset
        constant = self.offset if ends.norm.bias is None else self.offset + self.D @ ends.norm.bias
        return before_norm(self.D, ends.norm, c.norm) * scale, constant


def final_scale(weights: Weights, x: Tensor) -> Tensor:
    """[..., pos, 1]: the factor 1/scale of the final norm for final streams x [..., pos, d_model]; 1 without a final norm."""
    c = weights.config
    return block.norm_scale(x, c.norm if c.final_norm else "none", c.norm_eps)


def position_of(n: int, position: int) -> int:
    """A position of a prompt of n tokens as an index from 0; −1 is the last. Raises `BadInput` outside the prompt."""
    index = position if position >= 0 else n + position
    if not 0 <= index < n:
        raise BadInput(
            "There is no such position.",
            expected=f"0..{n - 1}, or -1 for the last",
            got=str(position),
            remedy="Choose a position of the prompt, or leave it out for the last.",
        )
    return index


def target_at(inputs: Inputs, target: Target, positions: Sequence[int], run: Run | None = None) -> TargetVector:
    """The target at these positions of `run`; by default of the subject's own run.

    A target without ids is the token that follows; after the last token, and where a token follows that the model cannot
    predict, the run's own most probable token, and `words` say so.
    Raises `BadInput` for ids outside the vocabulary and for a direction whose length is not d_model.
    """
    weights, run = inputs.weights, run or inputs.run()
    c, ends = weights.config, weights.unembed()
    where = torch.tensor(list(positions), dtype=torch.int64)
    if target.direction:
        if len(target.direction) != c.d_model:
            raise BadInput(
                "The direction has another width.",
                expected=number_of(c.d_model, "number"),
                got=str(len(target.direction)),
                remedy="Give a direction of the model's own width.",
            )
        return _direction(weights, torch.tensor(target.direction, dtype=ends.W_U.dtype), where)
    ids, equal = _ids(run, target, where)
    D = ends.W_U[:, ids[:, 0]].T.contiguous()
    offset = torch.zeros(len(where), dtype=D.dtype) if ends.b_U is None else ends.b_U[ids[:, 0]]
    if len(target.tokens) == 2:
        D = D - ends.W_U[:, ids[:, 1]].T
        offset = offset if ends.b_U is None else offset - ends.b_U[ids[:, 1]]
    # folding has centred W_U then; from a difference of two logits the mean drops out
    centred = inputs.subject.conventions.centre and not c.logit_soft_cap and len(target.tokens) != 2
    of = _name(run, target, where, equal)
    words = f"logit {of}{' before the soft cap' * bool(c.logit_soft_cap)}{MINUS_MEAN * centred}"
    return TargetVector(where, D, offset, ids, words, of, centred)


def _direction(weights: Weights, D: Tensor, where: Tensor) -> TargetVector:
    """A direction [d_model] of the final stream behind its norm, gain and bias included, whatever is folded."""
    c, norm, left = weights.config, final_norm(weights), weights.unembed().norm
    normed, shift = c.norm != "none" and c.final_norm, torch.zeros((), dtype=D.dtype)
    if left.gain is None and left.bias is None:  # those that are folded away are of the direction
        shift = shift if norm.bias is None else norm.bias @ D
        D = D if norm.gain is None else norm.gain * D
    words = f"a direction in the {'normalised ' * normed}final stream{', the gain of its norm included' * normed}"
    return TargetVector(where, D.expand(len(where), -1), shift.expand(len(where)), torch.full((len(where), 2), -1), words)


def _ids(run: Run, target: Target, where: Tensor) -> tuple[Tensor, int]:
    """The ids [position, 2] of the target, −1 for none; and how many tokens are equally the most probable one where that is
    the target, at most over positions."""
    n_out = run.weights.config.d_vocab_out
    if len(target.tokens) > 2:
        raise BadInput(
            "A target is one token or a pair.",
            expected="at most two ids",
            got=str(target.tokens),
            remedy="Name one or two tokens.",
        )
    if bad := [t for t in target.tokens if not 0 <= t < n_out]:
        raise BadInput(
            "A target is not in the vocabulary.",
            expected=f"ids 0..{n_out - 1}",
            got=str(bad),
            remedy="Choose an id of the vocabulary; `--text` with a text shows the ids of its tokens.",
        )
    ids = torch.full((len(where), 2), -1)
    if target.tokens:
        ids[:, : len(target.tokens)] = torch.tensor(target.tokens)
        return ids, 0
    most = 0
    for row, position in enumerate(where.tolist()):
        if _predictable(run, position):
            ids[row, 0] = run.tokens[position + 1]
        else:
            logits = run.logits(slice(position, position + 1))[0]
            ids[row, 0] = logits.argmax()
            most = max(most, int(rank_in(logits, logits[ids[row, 0]]).equal))
    return ids, most


def _predictable(run: Run, position: int) -> bool:
    """Whether a token follows, and one that the model can predict."""
    return position + 1 < run.n and run.tokens[position + 1] < run.weights.config.d_vocab_out


def _name(run: Run, target: Target, where: Tensor, equal: int) -> str:
    """The target's name without its quantity; `equal`: how many tokens are equally the most probable one."""
    if target.tokens:
        tokenizer = run.weights.tokenizer
        named = [f"‘{tokenizer.display(i)}’" if tokenizer is not None else f"token {i}" for i in target.tokens]
        return f"difference {' − '.join(named)}" if len(named) == 2 else f"of {named[0]}"
    without = [position for position in where.tolist() if not _predictable(run, position)]
    last = run.n - 1 in without
    if len(where) == 1 and without:
        tied = f" ({ranked(1, equal)})" if equal > 1 else ""
        return f"of the most probable token{tied}" + ("" if last else ", as the one that follows cannot be predicted")
    where_else = ["after the last token"] * last + ["before tokens that cannot be predicted"] * (len(without) > last)
    tied = f", or of one of up to {equal:,} equal" if equal > 1 else ""
    return "of the token that follows" + (f" ({' and '.join(where_else)}, of the most probable one{tied})" if without else "")
