"""Samples that several measurements share: repeated random tokens, and a text file cut into pieces.

Random tokens (Olsson et al. 2022): BOS where the model has one, a block of tokens drawn uniformly, repeated. Which tokens are
common is not known of an arbitrary model, so none but BOS is left out, and none that the model cannot predict is drawn.

A text is cut into pieces of equal length, one after the other, each behind a BOS where the model has one; what is left at the
end is dropped. Of more pieces than are wanted some are drawn, by a seed. A text shorter than one piece is one short piece.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs, TextRef
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.run import ROWS, Run
from circuitlab.model.weights import Weights


def bos_of(weights: Weights) -> int | None:
    """The token that every prompt of this model begins with, None without one."""
    return weights.tokenizer.bos if weights.tokenizer is not None and weights.config.prepend_bos else None


def drawable(config: ModelConfig, bos: int | None) -> np.ndarray:
    """Ids that random text is drawn from: all that can be read and predicted, but BOS."""
    found = np.arange(min(config.d_vocab, config.d_vocab_out))
    return found if bos is None else found[found != bos]


def repeated_random(config: ModelConfig, bos: int | None, block: int, repeats: int, samples: int, seed: int) -> Tensor:
    """[sample, pos] ids: BOS where there is one, then a random block `repeats` times."""
    rng = np.random.default_rng(seed)
    once = rng.choice(drawable(config, bos), size=(samples, block))
    body = np.tile(once, (1, repeats))
    start = np.full((samples, 0 if bos is None else 1), bos or 0, dtype=np.int64)
    return torch.as_tensor(np.concatenate([start, body], axis=1))


def largest_block(config: ModelConfig, block: int, repeats: int) -> int:
    """`block`, or what of it fits the context `repeats` times behind a BOS; 0 where nothing does."""
    return min(block, (config.n_ctx - 1) // max(repeats, 1))


def pieces(tokens: tuple[int, ...], bos: int | None, length: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """At most `count` pieces of `length` tokens each, BOS included, in the order of the text. Raises `BadInput` without any."""
    front = () if bos is None else (bos,)
    step = length - len(front)
    if step < 1 or not tokens or count < 1:
        raise BadInput("The text gives no piece.", expected="a text, and pieces longer than BOS", got=f"{len(tokens)} tokens")
    if len(tokens) <= step:
        return [(*front, *tokens)]
    starts = np.arange(0, len(tokens) - step + 1, step)
    if len(starts) > count:
        starts = np.sort(np.random.default_rng(seed).choice(starts, size=count, replace=False))
    return [(*front, *tokens[s : s + step]) for s in starts]


def text_pieces(
    inputs: Inputs, file: bool, ref: TextRef | None, length: int, texts: int, seed: int, behind: str
) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    """Pieces of a file, or the prompt itself; and how a caption names them."""
    if not file:
        n = len(inputs.subject.tokens)
        return [inputs.subject.tokens], (f"this prompt, {n} tokens: one text, no spread, much noise",)
    assert ref is not None
    config = inputs.weights.config
    made = pieces(inputs.text(ref), bos_of(inputs.weights), min(length or config.n_ctx, config.n_ctx), texts, seed)
    name = ref.path.replace("\\", "/").rpartition("/")[2]
    said = f"{len(made)} pieces of {len(made[0])} tokens of {name}, seed {seed}"
    return made, tuple(w for w in (said, behind) if w)


def run_on(inputs: Inputs, tokens: tuple[int, ...], prompt: bool, edited: bool, ctx: Ctx) -> Run:
    """The run of one text: the prompt's own, or a passing one with or without the subject's interventions."""
    if prompt:
        return inputs.run()
    edits = inputs.subject.edits if edited else ()
    return forward(inputs.weights, tokens, edits, tick=lambda i, n: ctx.tick(i, n, "forward pass"))


def losses_of(run: Run, ctx: Ctx) -> np.ndarray:
    """[pos − 1] nats: the run's losses, a tile of rows at a time."""
    targets = torch.tensor(run.tokens[1:])
    parts = []
    with torch.inference_mode():
        for start in range(0, run.n - 1, ROWS):
            ctx.tick(start, run.n, "unembedding")
            rows = slice(start, min(start + ROWS, run.n - 1))
            parts.append(F.cross_entropy(run.logits(rows), targets[rows], reduction="none").double().cpu().numpy())
    return np.concatenate(parts) if parts else np.zeros(0)
