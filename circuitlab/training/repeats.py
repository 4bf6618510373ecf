"""Repetition in a training sequence: random blocks, copied segments, phrases, invented names, passages.

Every function works on the ids [pos] of one sequence without its BOS, in place where it changes text, and draws from the given
generator. The card states the share of each kind (`recipe.Data`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from circuitlab.model.text.tokenizer import Tokenizer

_CAPITALISED = re.compile(r" [A-Z][a-z]+")
_LETTERS = re.compile(r"[a-z]{2,}")


@dataclass(frozen=True, eq=False)
class NamePieces:
    """The tokens of a vocabulary from which names are invented: ids of beginnings and continuations, and which ids begin a word.

    `first`: a space, a capital, small letters (" Har"); `later`: small letters without a space ("ville"); `begins_word`
    [vocab] bool: tokens that begin with a space, before which a name may stand.
    """

    first: np.ndarray
    later: np.ndarray
    begins_word: np.ndarray


def name_pieces(tokenizer: Tokenizer) -> NamePieces:
    """The pieces of names that a vocabulary holds."""
    texts = [tokenizer.decode((i,)) for i in range(tokenizer.n_tokens)]
    ids = lambda shape: np.array([i for i, text in enumerate(texts) if shape.fullmatch(text)], dtype=np.int64)
    return NamePieces(ids(_CAPITALISED), ids(_LETTERS), np.array([text.startswith(" ") for text in texts]))


def repeated_block(rng: np.random.Generator, n: int, vocab: int, block: tuple[int, int]) -> np.ndarray:
    """[n] ids: uniformly random tokens (never BOS), a block of them repeated to the end."""
    length = int(rng.integers(block[0], min(block[1], n // 2) + 1))
    return np.resize(rng.integers(1, vocab, size=length), n)


def copy_segment(rng: np.random.Generator, body: np.ndarray, segment: tuple[int, int]) -> None:
    """Copy a segment of `body` to a later place of it, without overlap. Does nothing where no segment is short enough."""
    longest = min(segment[1], len(body) // 2)
    if longest < segment[0]:
        return
    length = int(rng.integers(segment[0], longest + 1))
    source = int(rng.integers(0, len(body) - 2 * length + 1))
    target = int(rng.integers(source + length, len(body) - length + 1))
    body[target : target + length] = body[source : source + length]


def repeat_phrases(rng: np.random.Generator, body: np.ndarray, phrase: tuple[int, int], times: tuple[int, int]) -> None:
    """Copy several short phrases of `body` to later places of it, one after the other."""
    for _ in range(int(rng.integers(times[0], times[1] + 1))):
        copy_segment(rng, body, phrase)


def repeat_passage(rng: np.random.Generator, body: np.ndarray, passage: tuple[int, int]) -> None:
    """Say the beginning of `body` again and again to its end, twice at least. Does nothing where half of it is too short."""
    longest = min(passage[1], len(body) // 2)
    if longest >= passage[0]:
        body[:] = np.resize(body[: int(rng.integers(passage[0], longest + 1))].copy(), len(body))


def insert_name(
    rng: np.random.Generator, body: np.ndarray, pieces: NamePieces, name: tuple[int, int], times: tuple[int, int]
) -> None:
    """Insert an invented name in front of several words of `body`; the text after it moves on and is cut at the end."""
    length = int(rng.integers(name[0], name[1] + 1))
    invented = np.concatenate([rng.choice(pieces.first, 1), rng.choice(pieces.later, length - 1)])
    words = np.flatnonzero(pieces.begins_word[body])
    count = min(int(rng.integers(times[0], times[1] + 1)), len(words))
    places = np.sort(rng.choice(words, count, replace=False))
    body[:] = np.insert(body, np.repeat(places, length), np.tile(invented, count))[: len(body)]
