"""Of the heads themselves: random blocks repeated, own tokens in OV rows, and the sources of skip-trigrams."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from circuitlab.analysis.attention.head_scores import HeadScoresResult
from circuitlab.analysis.attribution.skip_trigrams_in_text import SkipTrigramsInTextResult
from circuitlab.analysis.base import TextRef
from circuitlab.analysis.behaviour.in_context import InContextResult
from circuitlab.analysis.circuits.own_tokens import OwnTokensResult
from circuitlab.analysis.circuits.skip_trigrams import SkipTrigramsResult
from circuitlab.api.model import Model
from circuitlab.counting import number_of
from circuitlab.errors import Refused
from circuitlab.model.subject import Head
from circuitlab.witnesses.estimate import Mean, mean_of

BLOCK, SAMPLES = 50, 16  # random tokens said twice
LISTED = 40  # skip-trigrams of a head
MOST = 64  # heads whose skip-trigrams in use are looked for: each reads the text


class RandomBlocks(NamedTuple):
    """`prefix_matching` of the best head, `best`; `saved`: loss of the first saying minus that of the second, nats."""

    prefix_matching: Mean
    best: Head | None
    saved: Mean


def random_blocks(model: Model) -> RandomBlocks:
    """The model on `SAMPLES` blocks of `BLOCK` random tokens, each said twice."""
    told = {"block": BLOCK, "repeats": 2}
    losses = model.compute("in_context", set={"on": "random", "texts": SAMPLES, **told}).result
    assert isinstance(losses, InContextResult)
    saved = mean_of(losses.repetitions[:, 0] - losses.repetitions[:, 1])
    if not model.config.n_layers:
        return RandomBlocks(mean_of([]), None, saved)
    scores = model.compute("head_scores", set={"samples": SAMPLES, **told}).result
    assert isinstance(scores, HeadScoresResult)
    by_head, sd = scores.of("prefix_matching"), scores.spread[scores.names.index("prefix_matching")]
    layer, head = np.unravel_index(int(by_head.argmax()), by_head.shape)
    error = float(sd[layer, head]) / np.sqrt(SAMPLES)
    return RandomBlocks(Mean(float(by_head[layer, head]), error, SAMPLES), Head(int(layer), int(head)), saved)


def own_tokens(model: Model) -> np.ndarray:
    """[layer, head]: share of OV rows in which the own token is among the first ten; of a large vocabulary a sample of rows."""
    if not model.config.n_layers:
        return np.zeros((0, model.config.n_heads))
    result = model.compute("own_tokens").result
    assert isinstance(result, OwnTokensResult)
    return result.top10


def sources_by_weights(model: Model) -> np.ndarray:
    """[layer, head]: different sources among a head's `LISTED` strongest skip-trigrams by its weights."""
    shape = model.config.n_layers, model.config.n_heads
    sources = np.zeros(shape)
    for head in (Head(*at) for at in np.ndindex(shape)):
        listed = model.compute("skip_trigrams", set={"head": head, "k": LISTED}).result
        assert isinstance(listed, SkipTrigramsResult)
        sources[head] = len(np.unique(listed.source))
    return sources


def sources_in_use(model: Model, text: Path, texts: int, length: int) -> np.ndarray:
    """[layer, head]: different sources among a head's `LISTED` strongest skip-trigrams in use on a text.

    `text`: held-out prose, of which `texts` pieces of `length` tokens are read. Raises `Refused` for more than `MOST` heads.
    """
    c = model.config
    shape = c.n_layers, c.n_heads
    if c.n_layers * c.n_heads > MOST:
        raise Refused(f"each of {number_of(c.n_layers * c.n_heads, 'head')} would read the text anew; at most {MOST} do.")
    piece = {"on": "file", "text": TextRef(str(text)), "texts": texts, "length": length}
    sources = np.zeros(shape)
    for head in (Head(*at) for at in np.ndindex(shape)):
        used = model.compute("skip_trigrams_in_text", set={"head": head, "sources": c.d_vocab, **piece}).result
        assert isinstance(used, SkipTrigramsInTextResult)
        sources[head] = sources_used(used)
    return sources


def sources_used(used: SkipTrigramsInTextResult) -> int:
    """Different sources among the `LISTED` pairs of source and out that gained the most nats in the text."""
    nats = np.nan_to_num(used.out_nats, nan=-np.inf)
    rows = np.repeat(np.arange(len(nats)), nats.shape[1])
    best = np.argsort(-nats.ravel(), kind="stable")[:LISTED]
    return len(np.unique(used.source[rows[best]][nats.ravel()[best] > 0]))
