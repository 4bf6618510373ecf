"""Batches: batch k of a seed is a pure function of the streams, so a resumed run sees what an unbroken one would.

Every sequence is BOS and a random window of one stream; streams are drawn by their shares. A share of the sequences is instead
a block of uniformly random tokens repeated; in shares of the others something is repeated (`repeats.py`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from circuitlab.training.corpus import Stream
from circuitlab.training.recipe import Data, Stage
from circuitlab.training.repeats import NamePieces, copy_segment, put_name, repeated_block, say_phrases_again


def batch(
    streams: tuple[Stream, ...], data: Data, stage: Stage, vocab: int, seed: int, step: int, pieces: NamePieces | None = None
) -> Tensor:
    """[batch, context] ids, BOS (id 0) first. `pieces` are needed where `data` has names."""
    rng = np.random.default_rng([seed, step])
    shares = np.array([s.share for s in streams])
    picks = rng.choice(len(streams), size=stage.batch, p=shares / shares.sum())
    n_random = _count(rng, stage.batch * data.random_repeat)
    ids = np.zeros((stage.batch, stage.context), dtype=np.int64)
    for row in range(stage.batch):
        body = ids[row, 1:]
        if row < n_random:
            body[:] = repeated_block(rng, len(body), vocab, data.block)
            continue
        tokens = streams[picks[row]].train
        start = rng.integers(0, len(tokens) - len(body))
        body[:] = tokens[start : start + len(body)]
        _say_again(rng, body, data, pieces)
    return torch.from_numpy(ids)


def _say_again(rng: np.random.Generator, body: np.ndarray, data: Data, pieces: NamePieces | None) -> None:
    """At most one kind of repetition per sequence. A share of 0 draws no random numbers: such recipes keep their batches."""
    if not (data.phrases or data.names):
        if rng.random() < data.self_copy:
            copy_segment(rng, body, data.segment)
        return
    draw = rng.random()
    if draw < data.self_copy:
        copy_segment(rng, body, data.segment)
    elif draw < data.self_copy + data.phrases:
        say_phrases_again(rng, body, data.phrase, data.phrase_times)
    elif draw < data.self_copy + data.phrases + data.names and pieces is not None:
        put_name(rng, body, pieces, data.name, data.name_times)


def _count(rng: np.random.Generator, expected: float) -> int:
    whole = int(expected)
    return whole + int(rng.random() < expected - whole)
