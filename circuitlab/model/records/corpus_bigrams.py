"""Bigram counts of the text a model was trained on: `bigrams.safetensors` beside the model's weights.

    log P(j | i) = log (c_ij + β_i u_j) / (Σ_j c_ij + β_i),     β_i = distinct successors of i + its successors not stored

(Witten and Bell 1991, interpolated with the frequencies u of single tokens, one added to each count; for tokens without
successors P is u). Counts are weighted by the shares of the texts in training, and stored as quantised logarithms, accurate to a
few hundredths of a nat. `training/bigrams.py` writes the file:

    offsets [d_vocab + 1], successors [pair] (ascending in each row), steps [pair] uint8; count = exp(scale[0] + scale[1] · step)
    unigrams [d_vocab] sums to 1; totals [d_vocab]: weighted successors of each token, stored or not
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from circuitlab.counting import number_of
from circuitlab.disk.regular_file import Stamp, stamp_of
from circuitlab.errors import BadModel, cause
from circuitlab.model.config import ModelConfig
from circuitlab.model.sources.references import resolve
from circuitlab.model.subject import ModelRef

FILE = "bigrams.safetensors"
FORMAT = "circuitlab-bigrams-1"
_NAMES = ("offsets", "scale", "steps", "successors", "totals", "unigrams")


@dataclass(frozen=True, eq=False)
class CorpusBigrams:
    """Bigrams of a corpus. `complete`: every pair of the text is stored; `text`: its name.

    `steps` [pair]: quantised logarithms of the counts as a file has them, or the logarithms themselves (`counted`).
    """

    offsets: np.ndarray
    successors: np.ndarray
    steps: np.ndarray
    scale: np.ndarray
    unigrams: np.ndarray
    totals: np.ndarray
    complete: bool
    text: str

    @property
    def n_vocab(self) -> int:
        """The number of tokens."""
        return len(self.unigrams)

    def row(self, token: int) -> tuple[np.ndarray, np.ndarray]:
        """(ids [n] ascending, counts [n] float64) of the tokens that follow a token."""
        pairs = slice(int(self.offsets[token]), int(self.offsets[token + 1]))
        return self.successors[pairs].astype(np.int64), np.exp(self.scale[0] + self.scale[1] * self.steps[pairs])

    def log_probs(self, token: int) -> np.ndarray:
        """[d_vocab] float64 log P(· | token), smoothed as above."""
        ids, counts = self.row(token)
        total = float(counts.sum())
        smoothing = len(ids) + max(float(self.totals[token]) - total, 0.0)
        P = smoothing * self.unigrams.astype(np.float64)
        P[ids] += counts
        return np.log(P / (total + smoothing) if total + smoothing > 0 else self.unigrams.astype(np.float64))

    def follows(self, token: int, after: np.ndarray) -> np.ndarray:
        """[n] bool: whether each token of `after` [n] follows `token` anywhere in the text, as far as pairs are stored."""
        return np.isin(after, self.row(token)[0])

    def words(self) -> str:
        """A line for the caption."""
        return f"corpus: {self.text}; Witten-Bell smoothing with single tokens"


def corpus_of(ref: ModelRef, c: ModelConfig) -> CorpusBigrams | None:
    """The bigrams stored beside a model, None without them. Raises `BadModel` for a file of another vocabulary."""
    path = resolve(ref) / FILE
    if not path.is_file():
        return None
    bigrams = _read(path, stamp_of(path.stat()))
    if not bigrams.n_vocab == c.d_vocab == c.d_vocab_out:
        raise BadModel(
            f"{FILE} counts the tokens of another vocabulary.",
            expected=number_of(c.d_vocab, "token"),
            got=str(bigrams.n_vocab),
            remedy=_AGAIN,
        )
    return bigrams


def counted(tokens: Sequence[int], n_vocab: int, text: str) -> CorpusBigrams:
    """The bigrams of a text in tokens, every pair of it, in counts that are exact."""
    ids = np.asarray(tokens, dtype=np.int64)
    pairs, counts = np.unique(ids[:-1] * n_vocab + ids[1:], return_counts=True)
    single = np.bincount(ids, minlength=n_vocab) + 1.0  # one more of each, so that no token is impossible
    return CorpusBigrams(
        offsets=np.searchsorted(pairs, np.arange(n_vocab + 1) * n_vocab),
        successors=pairs % n_vocab,
        steps=np.log(counts),
        scale=np.array([0.0, 1.0]),
        unigrams=single / single.sum(),
        totals=np.bincount(pairs // n_vocab, counts, n_vocab).astype(np.float64),
        complete=True,
        text=f"{text}, {number_of(len(ids), 'token')}",
    )


_AGAIN = "Remove the file, or count the text again with the model's own tokenizer."


@lru_cache(maxsize=2)
def _read(path: Path, stamp: Stamp) -> CorpusBigrams:
    """One version of the file."""
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT or set(file.keys()) != set(_NAMES):
                raise BadModel(f"{FILE} is of another format.", expected=FORMAT, got=json.dumps(metadata)[:200], remedy=_AGAIN)
            arrays = {name: file.get_tensor(name) for name in _NAMES}
    except (SafetensorError, OSError, ValueError) as error:
        raise BadModel(f"{FILE} is damaged.", expected="a whole safetensors file", got=cause(error), remedy=_AGAIN) from error
    n, pairs = len(arrays["unigrams"]), len(arrays["successors"])
    offsets = arrays["offsets"]
    sound = len(offsets) == n + 1 and offsets[0] == 0 and offsets[-1] == pairs == len(arrays["steps"])
    sound = sound and bool((np.diff(offsets.astype(np.int64)) >= 0).all()) and len(arrays["totals"]) == n
    if not sound or (pairs and int(arrays["successors"].max()) >= n):
        raise BadModel(
            f"{FILE} contradicts itself.",
            expected=FORMAT,
            got=f"{number_of(pairs, 'pair')} of {number_of(n, 'token')}",
            remedy=_AGAIN,
        )
    return CorpusBigrams(
        **arrays, complete=metadata.get("complete") == "true", text=metadata.get("text", "a text that is not named")
    )
