"""The alphabet as a tokenizer: BOS and one token per letter; other characters are dropped."""

from __future__ import annotations

import string
from functools import lru_cache

from tokenizers import Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner
from tokenizers.models import BPE

from circuitlab.model.text.tokenizer import Tokenizer

LETTERS = string.ascii_uppercase + string.ascii_lowercase


@lru_cache(maxsize=8)
def letter_tokenizer(letters: int) -> Tokenizer:
    """BOS (id 0), then A, B, C … With at most 26 letters, lower case counts as upper case. Spaces between letters are ignored."""
    names = LETTERS[:letters]
    folded = [normalizers.Replace(c.lower(), c) for c in names] if letters <= 26 else []
    inner = Inner(BPE(vocab={"<|bos|>": 0, **{c: i + 1 for i, c in enumerate(names)}}, merges=[]))
    inner.add_special_tokens(["<|bos|>"])
    inner.normalizer = normalizers.Sequence([*folded, normalizers.Replace(Regex(f"[^{names}]"), "")])
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return Tokenizer(inner, 0)
