"""How a text is split before the merges of a byte-level BPE, by the name that llama.cpp gives it (`tokenizer.ggml.pre`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circuitlab.errors import BadModel, quoted

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = f"{_WORDS}\\p{{N}}{{1,3}}{_OTHERS}{_END}"
QWEN2 = f"{_WORDS}\\p{{N}}{_OTHERS}{_END}"


@dataclass(frozen=True)
class Rules:
    """`expressions`: each divides what the one before has left. `whole_words`: a piece that is a token stays one, whatever its
    merges; `composed`: the text is NFC first."""

    words: str
    expressions: tuple[str, ...]
    whole_words: bool = False
    composed: bool = False


_GPT2 = Rules("split as GPT-2 does", (GPT2,))
_DIGITS = Rules("single digits, then split as GPT-2 does", (r"\p{N}", GPT2))
_RULES: Mapping[str, Rules] = {
    "gpt-2": _GPT2,
    "smollm": _DIGITS,
}


def rules_of(pre: Any, architecture: Any) -> Rules:
    """The rules of a name; where the file has none, those of its architecture. Raises `BadModel` for an unknown one."""
    rules = _RULES.get(pre if isinstance(pre, str) else "gpt-2")
    if rules is None:
        raise BadModel(
            "The way in which this tokenizer splits a text is not known.",
            expected=" ".join(_RULES),
            got=quoted(pre),
            remedy="Open it with --assume tokenizer=PATH of the model's tokenizer.json, or tokenizer=none for ids.",
        )
    return rules
