"""How a text is split before the merges of a byte-level BPE, by the name that llama.cpp gives it (`tokenizer.ggml.pre`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circuitlab.errors import BadModel, quoted

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
LLAMA3 = f"{_WORDS}\\p{{N}}{{1,3}}{_OTHERS}{_END}"
QWEN2 = f"{_WORDS}\\p{{N}}{_OTHERS}{_END}"
_UPPER, _LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
TEKKEN = f"{_UPPER}*{_LOWER}+|{_UPPER}+{_LOWER}*|\\p{{N}}{_SIGNS}{_END}"
GPT4O = f"{_UPPER}*{_LOWER}+{_SHORT}?|{_UPPER}+{_LOWER}*{_SHORT}?|\\p{{N}}{{1,3}}{_SIGNS}{_END}"
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"  # as its tokenizer.json has it; llama.cpp's own escapes differ
_CHINESE = "[一-龥ࠀ-一가-퟿]+"
_DEEPSEEK_SIGNS = r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + _END
_CASED_LETTERS = r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^ა-ჿ]]+"  # of the scripts that had case when it was written, which Georgian had not
_FULL_WIDTH = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"
DEEPSEEK = ("[\r\n]", _CASED_LETTERS, _FULL_WIDTH, r"\s+$", _CHINESE, r"\p{N}+")
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CHINESE, r"\p{N}")
DEEPSEEK_3 = (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK_SIGNS)
FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")


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
_LLAMA3 = Rules("split as Llama 3 does", (LLAMA3,))
_QWEN2 = Rules("split as Qwen 2 does", (QWEN2,), composed=True)
_BLOOM = Rules("split as BLOOM does", (BLOOM,))
# names of llama.cpp -> how they split; which of them compose characters (NFC) and keep whole words, no file says
_RULES: Mapping[str, Rules] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "jais", "exaone4", "trillion", "granite-docling"), _GPT2),
    "olmo": Rules("split as GPT-2 does, NFC", (GPT2,), composed=True),
    **dict.fromkeys(("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "minerva"), _DIGITS),
    "command-r": Rules("single digits, then split as GPT-2 does, NFC", (r"\p{N}", GPT2), composed=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), Rules("split as Llama 3 does", (LLAMA3,), True)),
    **dict.fromkeys(("glm4", "chatglm-bpe", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "stablelm2": Rules("split as Qwen 2 does", (QWEN2,)),
    "tekken": Rules("split as Mistral's Tekken does", (TEKKEN,), True),
    **dict.fromkeys(("gpt-4o", "llama4"), Rules("split as GPT-4o's tokenizer does", (GPT4O,))),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), _BLOOM),
    "falcon": Rules("split as Falcon does", FALCON),
    "deepseek-llm": Rules("split as DeepSeek does", DEEPSEEK),
    "deepseek-coder": Rules("split as DeepSeek-Coder does", DEEPSEEK_CODER),
    "deepseek-v3": Rules("split as DeepSeek 3 does", DEEPSEEK_3),
}
# of files from before the key: the architectures whose models had one way of splitting
_BEFORE: Mapping[str, str] = {
    "gpt2": "gpt-2",
    "gptneox": "olmo",  # GPT-NeoX's tokenizer, which OLMo took over
    "starcoder": "starcoder",
    "starcoder2": "starcoder",
    "falcon": "falcon",
    "mpt": "mpt",
    "bloom": "bloom",
    "qwen2": "qwen2",
    "stablelm": "stablelm2",
    "phi2": "phi-2",
    "command-r": "command-r",
    "olmo": "olmo",
}


def rules_of(pre: Any, architecture: Any) -> Rules:
    """The rules of a name; where the file has none, those of its architecture. Raises `BadModel` for an unknown one."""
    name = pre if isinstance(pre, str) else _BEFORE.get(architecture, "") if isinstance(architecture, str) else ""
    rules = _RULES.get(name)
    if rules is None:
        raise BadModel(
            "The way in which this tokenizer splits a text is not known.",
            expected="tokenizer.ggml.pre: " + " ".join(_RULES),
            got=quoted(pre) if pre is not None else "nothing",
            remedy="Open it with --assume tokenizer=PATH of the model's tokenizer.json, or tokenizer=none for ids.",
        )
    return rules
