"""Bigram counts of a training text, written beside a model for `model/records/corpus_bigrams.py`.

    python -m circuitlab.training.bigrams models/NAME --text corpus/en_novels:0.27 … stdlib:0.45

with the `--text` of the model's card. Pairs are counted within each text's training part and weighted by share / tokens, as
training draws them; held-out text is not counted. Where not all pairs fit in `limit` bytes, the most frequent are written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from circuitlab.counting import number_of
from circuitlab.disk.files import whole
from circuitlab.errors import BadModel
from circuitlab.model.records.corpus_bigrams import FILE, FORMAT
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import Stream, find_sources, tokenised
from circuitlab.training.files import beside

LIMIT = 2_950_000  # bytes


@dataclass(frozen=True, eq=False)
class Counts:
    """Weighted counts: `pairs` [n] ascending codes `token · d_vocab + successor`, `counts` [n], `unigrams` [d_vocab]."""

    n_vocab: int
    pairs: np.ndarray
    counts: np.ndarray
    unigrams: np.ndarray
    n_tokens: int


def count_bigrams(streams: Iterable[Stream], n_vocab: int) -> Counts:
    """Bigrams and single tokens of the training parts, weighted by share; they sum to about the number of tokens."""
    codes, weights, single, n_tokens, shares = [], [], np.zeros(n_vocab), 0, 0.0
    for stream in streams:
        tokens = stream.train.astype(np.int64)
        stream_codes, stream_counts = np.unique(tokens[:-1] * n_vocab + tokens[1:], return_counts=True)
        codes.append(stream_codes)
        weights.append(stream_counts * (stream.share / len(tokens)))
        single += np.bincount(tokens, minlength=n_vocab) * (stream.share / len(tokens))
        n_tokens, shares = n_tokens + len(tokens), shares + stream.share
    pairs, index = np.unique(np.concatenate(codes), return_inverse=True)
    counts = np.bincount(index, np.concatenate(weights), len(pairs)) * (n_tokens / shares)
    single = single * (n_tokens / shares) + 1  # one more of each, so that no token is impossible
    return Counts(n_vocab, pairs, counts, single / single.sum(), n_tokens)


def write(path: Path, counts: Counts, text: str, limit: int = LIMIT) -> bool:
    """Write the file, at most `limit` bytes. Returns whether it holds all pairs."""
    n = counts.n_vocab
    id_type = np.uint16 if n <= 65536 else np.uint32
    most = (limit - 16 * (n + 1) - 2048) // (np.dtype(id_type).itemsize + 1)
    chosen = np.sort(np.argsort(-counts.counts, kind="stable")[: max(most, 0)])
    pairs, logs = counts.pairs[chosen], np.log(counts.counts[chosen])
    low, high = (float(logs.min()), float(logs.max())) if len(logs) else (0.0, 0.0)
    scale = np.array([low, (high - low) / 255 or 1.0])
    tensors = {
        "offsets": np.searchsorted(pairs, np.arange(n + 1) * n).astype(np.uint32),
        "successors": (pairs % n).astype(id_type),
        "steps": np.rint((logs - scale[0]) / scale[1]).astype(np.uint8),
        "scale": scale,
        "unigrams": counts.unigrams.astype(np.float32),
        "totals": np.bincount(counts.pairs // n, counts.counts, n).astype(np.float32),
    }
    complete = len(chosen) == len(counts.pairs)
    metadata = {"format": FORMAT, "complete": str(complete).lower(), "text": f"{text}, {number_of(counts.n_tokens, 'token')}"}
    with whole(path, fresh=beside(path)) as fresh:
        save_file(tensors, str(fresh), metadata=metadata)
    return complete


def write_bigrams(model: Path, text: list[str], limit: int = LIMIT) -> Path:
    """Count the texts (as `circuitlab train --text` takes them) with a model's tokenizer and write its `bigrams.safetensors`."""
    tokenizer = Tokenizer.from_file(model / "tokenizer.json")
    if not (model / "config.json").is_file():
        raise BadModel(
            "That is not a model.",
            expected="a directory with config.json and tokenizer.json",
            got=str(model),
            remedy="Name a model's folder.",
        )
    from circuitlab.model.loading.checkpoint import read_json

    config = read_json(model / "config.json")
    streams = [tokenised(source, tokenizer, int(config.get("n_ctx", 256))) for source in find_sources(text)]
    labels = ", ".join(f"{s.label} {s.share:g}" for s in streams)
    write(model / FILE, count_bigrams(streams, int(config.get("d_vocab", tokenizer.n_tokens))), labels, limit)
    return model / FILE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m circuitlab.training.bigrams")
    parser.add_argument("model", type=Path, help="a model directory with a tokenizer.json")
    parser.add_argument("--text", nargs="+", required=True, metavar="FILE", help="files, folders or stdlib; NAME:SHARE")
    args = parser.parse_args()
    path = write_bigrams(args.model, args.text)
    sys.stdout.write(f"{path}: {number_of(path.stat().st_size, 'byte')}\n")
