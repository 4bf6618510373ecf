"""Batches: batch k of a seed is a pure function of the streams, so a resumed run sees what an unbroken one would.

Every sequence is BOS and a random window of one stream; streams are drawn by their shares. A share of the sequences is instead
a block of uniformly random tokens repeated, and in a share of the others a segment is copied to a later place.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from circuitlab.training.corpus import Stream
from circuitlab.training.recipe import Data, Stage


def batch(streams: tuple[Stream, ...], data: Data, stage: Stage, vocab: int, seed: int, step: int) -> Tensor:
    """[batch, context] ids, BOS (id 0) first."""
    rng = np.random.default_rng([seed, step])
    shares = np.array([s.share for s in streams])
    picks = rng.choice(len(streams), size=stage.batch, p=shares / shares.sum())
    n_random = _count(rng, stage.batch * data.random_repeat)
    made = np.zeros((stage.batch, stage.context), dtype=np.int64)
    for row in range(stage.batch):
        body = made[row, 1:]
        if row < n_random:
            body[:] = repeated_block(rng, len(body), vocab, data.block)
            continue
        tokens = streams[picks[row]].train
        start = rng.integers(0, len(tokens) - len(body))
        body[:] = tokens[start : start + len(body)]
        if rng.random() < data.self_copy:
            copy_segment(rng, body, data.segment)
    return torch.from_numpy(made)


def _count(rng: np.random.Generator, expected: float) -> int:
    whole = int(expected)
    return whole + int(rng.random() < expected - whole)


def repeated_block(rng: np.random.Generator, n: int, vocab: int, block: tuple[int, int]) -> np.ndarray:
    """[n] ids: uniformly random tokens (never BOS), a block of them repeated to the end."""
    length = int(rng.integers(block[0], min(block[1], n // 2) + 1))
    return np.resize(rng.integers(1, vocab, size=length), n)


def copy_segment(rng: np.random.Generator, body: np.ndarray, segment: tuple[int, int]) -> None:
    """Copy a segment of `body` to a later place of it, in place; the two do not overlap."""
    longest = min(segment[1], len(body) // 2)
    if longest < segment[0]:
        return
    length = int(rng.integers(segment[0], longest + 1))
    source = int(rng.integers(0, len(body) - 2 * length + 1))
    target = int(rng.integers(source + length, len(body) - length + 1))
    body[target : target + length] = body[source : source + length]
