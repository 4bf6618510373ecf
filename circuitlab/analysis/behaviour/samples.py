"""Samples for measurements on text: repeated random tokens, and pieces of a text file.

Random tokens (Olsson et al. 2022): BOS if the model has one, then a block of tokens drawn uniformly, repeated. Tokens that the
model cannot predict are not drawn, nor is BOS; other rare tokens are unknown for an arbitrary model, so none is left out. In a
short context there are fewer repeats, then smaller blocks, but none below `LEAST` tokens: in a block of two, the token after an
earlier occurrence is the previous token, so that a previous-token head could not be told from an induction head.

A text is split into consecutive pieces of equal length, each after a BOS if the model has one; the rest at the end is dropped. If
there are more pieces than requested, some are drawn with a seed. A text shorter than one piece is one short piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs, Need, TextRef
from circuitlab.caption_parts import sampled
from circuitlab.counting import number_of
from circuitlab.disk.paths import base_name
from circuitlab.errors import BadInput, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.run import Run
from circuitlab.model.weights import bos_of

LEAST = 3  # tokens in a repeated block
MOST = 10**9  # of one count; what fits in memory is another question


def drawable(config: ModelConfig, bos: int | None) -> np.ndarray:
    """The ids that random text is drawn from: all that can be read and predicted, except BOS."""
    ids = np.arange(min(config.d_vocab, config.d_vocab_out))
    return ids if bos is None else ids[ids != bos]


def drawn_words(config: ModelConfig, bos: int | None, block: int) -> tuple[str, ...]:
    """For captions: what random tokens are drawn from, and that some occur twice in a block where there are too few."""
    n = drawable(config, bos).size
    of = "the vocabulary" if config.d_vocab_out >= config.d_vocab else "the tokens that can be predicted"
    few = f"{number_of(n, 'token')} to draw {block} from: some occur twice in a block, before its first repetition"
    return (f"uniform over {of}{'' if bos is None else ' without BOS'}", *([few] if n < block else []))


def repeated_random(config: ModelConfig, bos: int | None, block: int, repeats: int, samples: int, seed: int) -> Tensor:
    """[sample, pos] ids: BOS if there is one, then a block of `different_random` tokens `repeats` times."""
    rng = np.random.default_rng(seed)
    once, _ = different_random(drawable(config, bos), (samples, block), rng)
    body = np.tile(once, (1, repeats))
    start = np.full((samples, 0 if bos is None else 1), bos or 0, dtype=np.int64)
    return torch.as_tensor(np.concatenate([start, body], axis=1))


def different_random(pool: np.ndarray, size: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, bool]:
    """([sample, pos] ids, whether the ids of a sample all differ): no token twice if the pool is large enough.

    Drawn uniformly; repeats within a sample are drawn again from the remaining tokens.
    """
    rows = rng.choice(pool, size=size)
    if pool.size < size[1]:
        return rows, False
    for row in rows:
        first = np.unique(row, return_index=True)[1]
        again = np.setdiff1d(np.arange(size[1]), first)
        if again.size:
            row[again] = rng.choice(np.setdiff1d(pool, row), size=again.size, replace=False)
    return rows, True


def control_words(config: ModelConfig, differ: bool) -> str:
    """Words for the caption on a control with tokens of `different_random`."""
    if differ:
        return "control: the same positions, tokens drawn without a repeat"
    n = number_of(min(config.d_vocab, config.d_vocab_out), "token")
    return f"control: the same positions, random tokens, some drawn twice: the vocabulary has only {n}"


class Repeated(NamedTuple):
    """The length of a block of random tokens, and its number of repeats."""

    block: int
    repeats: int

    def words(self, block: int, repeats: int) -> str:
        """For captions: the sizes, and the requested ones if the context has no room for them."""
        more = "" if self == (block, repeats) else f" (no room for {block} × {repeats})"
        return f"{self.block} random tokens × {self.repeats}{more}"


def fit_to_context(config: ModelConfig, block: int, repeats: int) -> Repeated | None:
    """The part of `block` × `repeats` that fits the context, after a BOS if there is one (see the module); None: no room."""
    room = config.n_ctx - config.prepend_bos
    if block * repeats <= room:
        return Repeated(block, repeats)
    fewer = max(min(repeats, 2), min(repeats, room // max(block, 1)))
    smaller = min(block, room // max(fewer, 1))
    return Repeated(smaller, fewer) if smaller >= min(LEAST, block) else None


def no_room(config: ModelConfig, block: int, repeats: int) -> str | None:
    """Why random tokens cannot be repeated in this model's context, or None."""
    if min(config.d_vocab, config.d_vocab_out) < 2:
        return "a vocabulary of one token has no random text."
    if fit_to_context(config, block, repeats) is None:
        return f"the context of {config.n_ctx} has no room for {number_of(min(block, LEAST), 'random token')} twice."
    return None


def check_counts(**counts: int) -> None:
    """Raise `BadInput` for counts of a sample, by name, of which one is below 1 or beyond any sample."""
    if min(counts.values()) < 1:
        got = ", ".join(f"{name} {count}" for name, count in counts.items() if count < 1)
        raise BadInput("The sample is empty.", expected=f"{', '.join(counts)} ≥ 1", got=got, remedy="Change these counts.")
    if max(counts.values()) > MOST:
        name, count = max(counts.items(), key=lambda one: one[1])
        got = f"{name} {quoted(count)}"
        raise BadInput("The sample is too large.", expected=f"{name} at most {MOST:,}", got=got, remedy="Choose a smaller one.")


def refuse_loss(config: ModelConfig) -> str | None:
    """Why a text has no mean loss in this model, or None: some tokens can be read but not predicted."""
    return None if config.d_vocab_out >= config.d_vocab else "this model cannot predict every token that it reads."


def indistinct(block: int, repeats: int) -> str | None:
    """Why a pattern on such tokens says nothing about induction, or None."""
    if repeats > 1 and 0 < block < LEAST:
        return (
            f"a block of {block} is too short: the token after an earlier occurrence is the previous one; take {LEAST} or more."
        )
    return None


def pieces(tokens: Sequence[int], bos: int | None, length: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """At most `count` pieces of `length` tokens each, BOS included, in the order of the text. Raises `BadInput` without any."""
    front = () if bos is None else (bos,)
    step = length - len(front)
    if not tokens:
        raise BadInput("The text is empty.", expected="a text of one token or more", got="none", remedy="Choose another file.")
    if step < 1 or count < 1:
        raise BadInput(
            "The text has no piece of that length.",
            expected="one piece or more, longer than BOS",
            got=f"{number_of(count, 'piece')} of {number_of(length, 'token')}",
            remedy="Choose longer pieces, or more of them.",
        )
    if len(tokens) <= step:
        return [(*front, *tokens)]
    starts = np.arange(0, len(tokens) - step + 1, step)
    if len(starts) > count:
        starts = np.sort(np.random.default_rng(seed).choice(starts, size=count, replace=False))
    return [(*front, *tokens[s : s + step]) for s in starts.tolist()]


def needs_of(own_texts: bool, edited: bool) -> Need:
    """What is needed of a subject to measure on the prompt, or on texts of one's own, with or without its interventions.

    Own texts without them need no prompt: what was measured stays cached while the prompt changes. Interventions may name
    positions, which are those of the prompt.
    """
    return "weights" if own_texts and not edited else "tokens"


def edit_words(inputs: Inputs, edited: bool) -> tuple[str, ...]:
    """For captions of a sample: "no interventions", or nothing if it is run with the subject's own."""
    return () if edited and inputs.subject.edits else ("no interventions",)


def text_pieces(
    inputs: Inputs, ref: TextRef | None, length: int, texts: int, seed: int, edited: bool
) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    """(pieces of a file, or for None the prompt itself; words for the caption)."""
    if ref is None:
        n = len(inputs.subject.tokens)
        return [inputs.subject.tokens], (f"this prompt, {number_of(n, 'token')}: a single text, so no sd and much noise",)
    config = inputs.weights.config
    chosen = pieces(inputs.text(ref), bos_of(inputs.weights), min(length or config.n_ctx, config.n_ctx), texts, seed)
    name = base_name(ref.path)
    sample_words = sampled(f"{number_of(len(chosen), 'piece')} of {number_of(len(chosen[0]), 'token')} from {name}, seed {seed}")
    return chosen, (sample_words, *edit_words(inputs, edited))


def run_on(inputs: Inputs, tokens: tuple[int, ...], prompt: bool, edited: bool, ctx: Ctx) -> Run:
    """The run on one text: the prompt's own, or an uncached one with or without the subject's interventions."""
    if prompt:
        return inputs.run()
    edits = inputs.subject.edits if edited else ()
    return forward(inputs.weights, tokens, edits, tick=lambda i, n: ctx.tick(i, n, "forward pass"))


def losses_of(run: Run, ctx: Ctx) -> np.ndarray:
    """[pos − 1] float64 losses of the run in nats."""
    return run.losses(lambda row: ctx.tick(row, run.n, "unembedding")).double().cpu().numpy()
