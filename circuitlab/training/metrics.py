"""The metrics of every checkpoint: losses, in-context score, and head scores on repeated random tokens.

Repeated random tokens: BOS, a block of 50 uniformly random tokens, the same block again; 16 samples with a fixed seed.
`rep1`, `rep2` are the mean losses of the tokens of the first and of the second block (the second without its first token, which
cannot be predicted). In-context score: mean loss late in the context minus mean loss at one tenth of it, on held-out text.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.attention.score_definitions import SCORES
from circuitlab.disk.json_types import JsonDict
from circuitlab.model.forward import logits, patterns
from circuitlab.model.weights import Weights
from circuitlab.training.corpus import Stream

BLOCK, SAMPLES, TEXTS, SEED = 50, 16, 48, 20_220_308
_NAMES = ("prefix_matching", "previous_token", "duplicate_token", "first_token")


def losses(w: Weights, tokens: Tensor, rows: int = 8) -> Tensor:
    """[batch, pos − 1], nats: loss of each token after the first."""
    with torch.inference_mode():
        parts = []
        for batch in tokens.split(rows):
            out = logits(w, batch)[:, :-1]
            parts.append(F.cross_entropy(out.flatten(0, 1), batch[:, 1:].flatten(), reduction="none").view(len(batch), -1))
        return torch.cat(parts)


def repeated_random(vocab: int, n_ctx: int) -> Tensor:
    """[SAMPLES, 1 + 2 · block] ids, BOS (0) first; the block is shorter in a short context."""
    block = min(BLOCK, (n_ctx - 1) // 2)
    rng = np.random.default_rng(SEED)
    blocks = rng.integers(1, vocab, size=(SAMPLES, block))
    bos = np.zeros((SAMPLES, 1), dtype=np.int64)
    return torch.from_numpy(np.concatenate([bos, blocks, blocks], axis=1))


def held_out_texts(streams: tuple[Stream, ...], context: int) -> Tensor:
    """[texts, context] ids: evenly spaced windows of the held-out text, by the sources' shares, BOS first."""
    rows = []
    for stream in streams:
        count = max(1, round(TEXTS * stream.share))
        starts = np.linspace(0, len(stream.held_out) - context, count).astype(int)
        rows += [np.concatenate([[0], stream.held_out[s : s + context - 1]]) for s in starts]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


def head_scores(w: Weights, tokens: Tensor) -> dict[str, list[list[float]]]:
    """Mean scores [layer][head] over the rows of `tokens`."""
    by_name: dict[str, list[list[float]]] = {name: [] for name in _NAMES}
    for _, pattern in patterns(w, tokens):
        for name in _NAMES:
            scores = torch.stack([SCORES[name](p, t) for p, t in zip(pattern, tokens, strict=True)])
            by_name[name].append([round(v, 5) for v in scores.mean(0).tolist()])
    return by_name


def measure(w: Weights, streams: tuple[Stream, ...], context: int) -> JsonDict:
    """All metrics of one checkpoint, as plain values for JSON. `context`: the length of the texts in training."""
    device = w.embed().W_E.device
    repeated = repeated_random(w.config.d_vocab, min(context, w.config.n_ctx)).to(device)
    block = (repeated.shape[1] - 1) // 2
    repeated_loss = losses(w, repeated).mean(0)
    by_index = losses(w, held_out_texts(streams, context).to(device)).mean(0)
    early = max(1, context // 10)
    late = by_index[-max(1, context // 10) :].mean()
    return {
        "loss": float(by_index.mean()),
        "loss_by_index": [round(v, 5) for v in by_index.tolist()],
        "context": context,
        "texts": TEXTS,
        "in_context_score": float(late - by_index[early - 1 : 2 * early].mean()),
        "in_context_indices": {"early": [early, 2 * early], "late": [context - max(1, context // 10), context - 1]},
        "rep1": float(repeated_loss[:block].mean()),
        "rep2": float(repeated_loss[block + 1 :].mean()),
        "repeated": {"block": block, "samples": SAMPLES, "seed": SEED},
        "heads": head_scores(w, repeated),
    }
