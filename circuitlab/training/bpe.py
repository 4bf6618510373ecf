"""A byte-level BPE tokenizer (Sennrich et al. 2016; bytes as in Radford et al. 2019) from text, with BOS as id 0.

Digits are single tokens, runs of spaces merge (indentation of code), and no text is ever out of vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as _Tokenizer

from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import Source, texts

BOS = "<|bos|>"
# words with their leading space; single digits; punctuation; newlines apart; other white space in runs
_SPLIT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\n+|[^\S\n]+(?=\S)|[^\S\n]+"


def train_tokenizer(sources: tuple[Source, ...], size: int, n_bytes: int) -> Tokenizer:
    """A tokenizer of `size` tokens from about `n_bytes` of text, by the sources' shares. Raises `BadInput`."""
    if size <= 256:
        raise BadInput(
            "The vocabulary is too small for the bytes.",
            expected="vocab of at least 257: the bytes and BOS",
            got=str(size),
            remedy="Set a larger vocab in the recipe.",
        )
    inner = _Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[BOS], initial_alphabet=alphabet, show_progress=False, max_token_length=24
    )
    inner.train_from_iterator(_sample(sources, n_bytes), trainer)
    if (most := inner.get_vocab_size()) < size:
        raise BadInput(
            "The text does not support so large a vocabulary.",
            expected=f"{number_of(size, 'token')} (vocab of the recipe)",
            got=f"{most:,}: no more pairs occur twice in it",
            remedy=f"Set vocab = {most} or less in a recipe of your own, give more text, or a --tokenizer.",
        )
    return Tokenizer(inner)


def _sample(sources: tuple[Source, ...], n_bytes: int) -> Iterator[str]:
    for source in sources:
        left = int(n_bytes * source.share)
        all_texts = list(texts(source))
        total = sum(map(len, all_texts))
        part = min(1.0, left / max(total, 1))
        for text in all_texts:  # an even cut of every file, so that no author dominates
            yield text[: max(200, int(len(text) * part))]
