"""Byte-level BPE whose tokens are bytes with a rank, as tiktoken has it, described as a `tokenizer.json` would describe it.

There is no list of merges: of two neighbours whose bytes join to a token, those are joined first whose token has the lowest rank.
Every such pair, in that order, is the list, as in the converter of `transformers`; what is a token as a whole stays one. Read are
`tekken.json` (Mistral), which says how a text is split and where its special tokens are, and the `tokenizer.model` of Llama 3, of
which that is known.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel, cause
from circuitlab.model.loading.gguf.splitting import LLAMA3
from circuitlab.model.text.not_read import NotRead
from circuitlab.model.text.tokenizer import byte_characters

LARGEST = 64 * 2**20  # bytes; the tekken.json of Mistral Nemo has 15 million
_LONGEST = 256  # bytes of a token, which is divided at each of them; Llama 3 has one of 128 spaces
_MOST_MERGES = 2**20  # of Llama 3's: 280,147
_MOST_TOKENS = 2**20
_REMEDY = "Fetch the file again, or remove it and use token ids."
_LLAMA3_TOKENS, _LLAMA3_SPECIAL = 128_000, 256
# those on which the versions of Llama 3 agree; the others are shown as reserved
_LLAMA3_NAMES = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id", 7: "end_header_id", 9: "eot_id"}
# of files from before special tokens stood in them
_TEKKEN_NAMES = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG] <pad> "
    "[IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()


def is_tiktoken(data: bytes) -> bool:
    """Whether the first line is a token in base64 and its rank."""
    token, space, rank = data[:400].partition(b"\n")[0].strip().partition(b" ")
    return bool(space) and rank.isdigit() and token.rstrip(b"=").replace(b"+", b"").replace(b"/", b"").isalnum()


def llama3_description(data: bytes, name: str, named: Mapping[int, str]) -> JsonDict:
    """A file of tiktoken's, if it is that of Llama 3. `named`: special tokens that another file names, by id.

    Raises `BadModel` for a damaged file, `NotRead` for that of another model.
    """
    lines = data.splitlines()
    if len(lines) != _LLAMA3_TOKENS:
        number = number_of(len(lines), "token")
        raise NotRead(f"it is a vocabulary of tiktoken with {number}; how a text is split is known of Llama 3's, with 128,000")
    try:
        pairs = [line.split() for line in lines]
        if [int(rank) for _, rank in pairs] != list(range(len(pairs))):
            raise ValueError("ranks that are not in order")
        tokens = [base64.b64decode(token, validate=True) for token, _ in pairs]
    except (ValueError, binascii.Error) as error:
        raise _damaged(name, "a token in base64 and its rank in each line", error) from error
    special, reserved = {}, 0
    for i in range(_LLAMA3_SPECIAL):
        known = _LLAMA3_NAMES.get(i)
        special[len(tokens) + i] = f"<|{known}|>" if known else f"<|reserved_special_token_{reserved}|>"
        reserved += known is None
    return _description(tokens, 0, special | {i: text for i, text in named.items() if i in special}, LLAMA3, name)


def tekken_description(data: bytes, name: str) -> JsonDict:
    """A `tekken.json`. Raises `BadModel` for a damaged file, `NotRead` for one that no model has."""
    try:
        file: Any = json.loads(data)
        config = file["config"]
        expression = config["pattern"]
        listed = file.get("special_tokens")
        special = {t["rank"]: t["token_str"] for t in listed} if listed is not None else dict(enumerate(_TEKKEN_NAMES))
        n_special, n_tokens = (config.get(f"default_{what}") for what in ("num_special_tokens", "vocab_size"))
        n_special = len(special) if n_special is None else n_special
        n_all = len(file["vocab"]) + n_special if n_tokens is None else n_tokens
        if not (_is_number(n_special) and _is_number(n_all) and n_special <= n_all <= _MOST_TOKENS):
            raise ValueError("numbers of tokens that do not fit")
        if not all(_is_number(i) and i < n_special and isinstance(text, str) and text for i, text in special.items()):
            raise ValueError("special tokens that are not numbered")
        kept = file["vocab"][: n_all - n_special]
        if (
            not isinstance(expression, str)
            or len(kept) != n_all - n_special
            or any(not _is_number(t["rank"]) or t["rank"] != i for i, t in enumerate(kept))
        ):
            raise ValueError("tokens that are not in the order of their ranks")
        tokens = [base64.b64decode(t["token_bytes"], validate=True) for t in kept]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(name, "a vocabulary of Mistral's Tekken", error) from error
    fillers = {i: f"<SPECIAL_{i}>" for i in range(n_special)}
    return _description(tokens, n_special, fillers | special, expression, name)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _damaged(name: str, expected: str, error: Exception) -> BadModel:
    what = f"no {error}" if isinstance(error, KeyError) else cause(error, 120)
    return BadModel(f"{name} cannot be read.", expected=expected, got=what or "a damaged file", remedy=_REMEDY)


def _description(tokens: Sequence[bytes], first: int, special: Mapping[int, str], expression: str, name: str) -> JsonDict:
    """Tokens with the ids from `first` on, and special ones by id. Raises `BadModel` and `NotRead`."""
    spelled = byte_characters()
    ranks = {token: i for i, token in enumerate(tokens)}
    names = ["".join(map(spelled.__getitem__, token)) for token in tokens]
    vocab = {text: first + i for i, text in enumerate(names)}
    ids = {text: i for i, text in special.items()}
    if len(vocab) != len(tokens) or len(ids) != len(special) or b"" in ranks or ids.keys() & vocab.keys():
        raise BadModel(
            f"{name} cannot be read.", expected="tokens spelled differently", got="one twice, or empty", remedy=_REMEDY
        )
    if missing := [byte for byte in range(256) if bytes((byte,)) not in ranks]:
        raise BadModel(f"{name} cannot be read.", expected="a token for each byte", got=f"none for {missing[0]}", remedy=_REMEDY)
    merges: list[tuple[int, int, int]] = []
    for token, rank in ranks.items():
        if len(token) > _LONGEST:
            raise NotRead(f"it has tokens longer than {number_of(_LONGEST, 'byte')}")
        halves = ((ranks.get(token[:k]), ranks.get(token[k:])) for k in range(1, len(token)))
        merges += [(rank, a, b) for a, b in halves if a is not None and b is not None]
        if len(merges) > _MOST_MERGES:
            raise NotRead(f"it has more than {number_of(_MOST_MERGES, 'merge')}")
    how = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, **how} for i, text in sorted(special.items())],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, to_bytes]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": ids | vocab,
            "merges": [[names[a], names[b]] for _, a, b in sorted(merges)],
            "ignore_merges": True,
            "byte_fallback": False,
            "fuse_unk": False,
        },
    }
