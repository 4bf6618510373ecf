"""Batches: batch k of a seed is a pure function of the streams, so that a resumed run sees the batches of an unbroken one.

Every sequence is BOS and a random window of one stream; streams are drawn by their shares. A share of the sequences is instead
a repeated block of uniformly random tokens; in shares of the others text is repeated (`repeats.py`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from circuitlab.training.corpus import Stream
from circuitlab.training.recipe import Data, Stage
from circuitlab.training.repeats import NamePieces, copy_segment, insert_name, repeat_passage, repeat_phrases, repeated_block


def batch(
    streams: tuple[Stream, ...], data: Data, stage: Stage, vocab: int, seed: int, step: int, pieces: NamePieces | None = None
) -> Tensor:
    """[batch, context] ids, BOS (id 0) first. `pieces` are needed where `data` has names."""
    data = data.times(stage.repeats).counted(stage.counts)
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
        _repeat(rng, body, data, pieces)
    return torch.from_numpy(ids)


def _repeat(rng: np.random.Generator, body: np.ndarray, data: Data, pieces: NamePieces | None) -> None:
    """Add at most one kind of repetition to a sequence.

    Without phrases, names and passages the random numbers are those of before there were any: such recipes keep their batches.
    """
    if not (data.phrases or data.names or data.passages):
        if rng.random() < data.self_copy:
            copy_segment(rng, body, data.segment)
        return
    copies, phrases, names, passages = np.cumsum([data.self_copy, data.phrases, data.names, data.passages])
    draw = rng.random()
    if draw < copies:
        copy_segment(rng, body, data.segment)
    elif draw < phrases:
        repeat_phrases(rng, body, data.phrase, data.phrase_times)
    elif draw < names and pieces is not None:
        insert_name(rng, body, pieces, data.name, data.name_times)
    elif names <= draw < passages:
        repeat_passage(rng, body, data.passage)


def _count(rng: np.random.Generator, expected: float) -> int:
    least = int(expected)
    return least + int(rng.random() < expected - least)
