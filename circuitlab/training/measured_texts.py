"""The texts on which a training series is measured: the same for every model of a tokenizer, so that models can be compared.

Each begins with BOS. Held-out windows are evenly spaced, in proportion to each source's share; repeated random tokens are those
of `training/metrics.py`; repeated text is BOS, a piece of a window, and the same piece again. Many further windows, for the loss
of one token each, are drawn with a fixed seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.training.corpus import Stream
from circuitlab.training.metrics import SEED, repeated_random

WINDOWS, CONTEXT, HALF = 256, 128, 63
ZEROED = 64  # windows, evenly spaced among those, on which heads are zero-ablated
TOKENS = 2048  # windows in each of which the loss of the last token is stored
TOKENS_SEED = 20_220_924


@dataclass(frozen=True, eq=False)
class MeasuredTexts:
    """Ids: `held_out` [window, pos], `random` [sample, 1 + 2 · block], `repeated` [window, 1 + 2 · half], `many` [text, pos].

    `zeroing`: the held-out windows on which heads are zero-ablated. `protocol` describes them all, for `series.safetensors`.
    """

    held_out: Tensor
    random: Tensor
    repeated: Tensor
    many: Tensor
    zeroing: Tensor
    protocol: JsonDict


def texts_for(
    config: ModelConfig,
    bos: int,
    streams: tuple[Stream, ...],
    windows: int = WINDOWS,
    context: int = CONTEXT,
    many: int | None = None,
) -> MeasuredTexts:
    """The texts for models of a vocabulary and a context. `many` None: `TOKENS`, or as many as the held-out text allows.

    Raises `BadInput` for too little held-out text.
    """
    context = min(context, config.n_ctx)
    if context < 4:
        raise BadInput(
            "The context is too short to be measured.",
            expected="at least 4 tokens",
            got=str(context),
            remedy="Set a longer --context.",
        )
    if many is None:
        many = min(TOKENS, *(max(1, int((_n_windows(s, context) - 1) / s.share)) for s in streams))
    held_out = _windows(streams, bos, context, [_even_starts(s, context, windows) for s in streams])
    half = min(HALF, (context - 1) // 2)
    piece = held_out[:, 1 : 1 + half]
    rng = np.random.default_rng(TOKENS_SEED)
    counts = zip(streams, _counts(streams, many), strict=True)
    random_windows = _windows(streams, bos, context, [_random_starts(s, context, n, rng) for s, n in counts])
    random = repeated_random(config.d_vocab, min(context, config.n_ctx))
    random = torch.where(random == bos, 0, random)
    random[:, 0] = bos
    repeated = torch.cat([held_out[:, :1], piece, piece], dim=1)
    zeroing = held_out[np.linspace(0, len(held_out) - 1, min(ZEROED, len(held_out))).round().astype(int)]
    protocol = _protocol(streams, held_out, random, repeated, random_windows) | {"zeroed_texts": len(zeroing)}
    return MeasuredTexts(held_out, random, repeated, random_windows, zeroing, protocol)


def held_out_of(stream: Stream, bos: int, context: int, windows: int) -> Tensor:
    """[window, context] ids: evenly spaced windows of one source's held-out text, `windows` times its share of them."""
    return _windows((stream,), bos, context, [_even_starts(stream, context, windows)])


def _counts(streams: tuple[Stream, ...], total: int) -> list[int]:
    """The number of windows of each source: by share, at least one, `total` in all if possible (largest remainders)."""
    exact = [s.share * total for s in streams]
    counts = [int(e) for e in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return [max(1, n) for n in counts]


def _n_windows(stream: Stream, context: int) -> int:
    """The number of different windows in the held-out text. Raises `BadInput`."""
    n = len(stream.held_out) - (context - 1) + 1
    if n < 1:
        raise BadInput(
            f"{stream.label} has too little held-out text.",
            expected=f"at least {number_of(context - 1, 'token')}",
            got=str(len(stream.held_out)),
            remedy="Give more text, or a shorter --context.",
        )
    return n


def _even_starts(stream: Stream, context: int, windows: int) -> np.ndarray:
    """[window] start indices of evenly spaced windows."""
    count = max(1, round(windows * stream.share))
    return np.linspace(0, _n_windows(stream, context) - 1, count).astype(int)


def _random_starts(stream: Stream, context: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """[window] start indices of random windows, ascending, without repetition. Raises `BadInput` if there are not enough."""
    n = _n_windows(stream, context)
    if count > n:
        raise BadInput(
            f"{stream.label} has too little held-out text.",
            expected=f"room for {number_of(count, 'different window')} of {number_of(context, 'token')}",
            got=number_of(len(stream.held_out), "token"),
            remedy="Give more text, or fewer --tokens.",
        )
    return np.sort(rng.choice(n, size=count, replace=False))


def _windows(streams: tuple[Stream, ...], bos: int, context: int, starts: list[np.ndarray]) -> Tensor:
    """[window, context] ids, BOS first."""
    rows = [
        np.concatenate([[bos], stream.held_out[start : start + context - 1]])
        for stream, stream_starts in zip(streams, starts, strict=True)
        for start in stream_starts
    ]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


def sha256(ids: Tensor) -> str:
    """sha256 of the ids as little-endian int64, row by row."""
    return hashlib.sha256(np.ascontiguousarray(ids.numpy().astype("<i8")).tobytes()).hexdigest()


def _protocol(streams: tuple[Stream, ...], held_out: Tensor, random: Tensor, repeated: Tensor, many: Tensor) -> JsonDict:
    context = held_out.shape[1]
    tenth = max(1, context // 10)
    return {
        "sources": [{"label": s.label, "share": round(s.share, 6), "held_out": len(s.held_out)} for s in streams],
        "texts": len(held_out),
        "context": context,
        "early": [tenth, 2 * tenth],
        "late": [context - tenth, context - 1],
        "indices": "token positions, both ends included: loss_by_index[..., a − 1 : b]",
        "block": (random.shape[1] - 1) // 2,
        "samples": len(random),
        "seed": SEED,
        "half": (repeated.shape[1] - 1) // 2,
        "tokens": len(many),
        "tokens_position": many.shape[1] - 1,
        "tokens_seed": TOKENS_SEED,
        "sha256": {
            "held_out": sha256(held_out),
            "random": sha256(random),
            "repeated_text": sha256(repeated),
            "tokens": sha256(many),
        },
    }
