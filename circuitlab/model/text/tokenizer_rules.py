"""Whether the cost of a `tokenizer.json` is bounded by the length of the text: only known steps and expressions count as bounded.

A regular expression can take time exponential in the text, and thirty replacements of `a` by `aa` turn one letter into 10⁹.
Neither can be stopped once it runs in a thread, so a tokenizer that is not known to be harmless runs in a separate process
(`tokenizer_process`). The check is made once, when a file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

IDS = 2**24  # the library writes a vocabulary as a list up to its largest id: one of a billion takes 4 GB
_MOST_STEPS = 64
_MOST_GROWTH = 256  # times the length of the text
_LONGEST_WORD = 200  # characters: WordPiece is quadratic in them
_LARGEST_STEPS = 2**16  # characters and values of all steps; a template of 700,000 ids makes as many of each text
LONGEST_PIECE = 4096  # characters of a token: the library takes a Unigram vocabulary apart by a call within a call for each
MOST_OF_UNIGRAM = 2**22  # characters of all its tokens, each of which takes some 200 bytes
_END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
_CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER, _SHORT = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

# The expressions by which public models of our families split text, each linear in the length of the text: every alternative is
# one run of one class.
KNOWN = frozenset(
    (
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\n+|[^\S\n]+(?=\S)|[^\S\n]+",  # ours
        f"{_WORDS}\\p{{N}}{_OTHERS}{_END}",
        f"{_WORDS}\\p{{N}}{{1,3}}{_OTHERS}{_END}",
        f"{_CASED}*{_LOWER}+{_SHORT}|{_CASED}+{_LOWER}*{_SHORT}|\\p{{N}}{{1,3}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*{_END}",
        f"{_CASED}*{_LOWER}+|{_CASED}+{_LOWER}*|\\p{{N}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*{_END}",
        " ?[^(\\s|[.,!?…。，、।۔،])]+",
        r"\p{N}{1,3}",
        r"\p{N}",
        r"[0-9][0-9][0-9]",
        r"[0-9]",
        r"\d{1,3}",
        r"\d",
        r" {2,}",
        r"\s+",
        "[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        "[一-龥ࠀ-一가-퟿]+",
        r"[\p{P}\$\+<=>\^~\|`]+",
    )
)

# The most characters that a step can make of one.
_NORMALISERS = {
    "NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "Strip": 1, "StripAccents": 1, "BertNormalizer": 4, "Nmt": 1,
    "ByteLevel": 4,
}  # fmt: skip
_PRE_TOKENIZERS = {
    "ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Metaspace", "Punctuation", "Digits",
    "CharDelimiterSplit", "UnicodeScripts",
}  # fmt: skip
_DECODERS = {"ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Strip", "WordPiece", "BPEDecoder", "CTC"}
_MODELS = {"BPE", "Unigram", "WordLevel", "WordPiece"}


TEXT_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


class _Unknown(Exception):
    """A step that is not known to be bounded."""


def unbounded(spec: Mapping[str, Any]) -> str:
    """The part of a tokenizer's description that is not known to be bounded by the length of the text, "" if there is none."""
    try:
        _check_size([spec.get(part) for part in TEXT_STEPS])
        _check_growth(_steps(spec.get("normalizer"), "normalizers"), _normaliser)
        for step in _steps(spec.get("pre_tokenizer"), "pretokenizers"):
            _pre_tokenizer(step)
        _check_growth(_steps(spec.get("decoder"), "decoders"), _decoder)
        for step in _steps(spec.get("post_processor"), "processors"):
            _post_processor(step)
        _model(spec.get("model"))
    except _Unknown as unknown:
        return str(unknown)
    return ""


def _check_size(steps: Any) -> None:
    """Raise `_Unknown` where steps hold long texts or very many values."""
    waiting, room = [steps], _LARGEST_STEPS
    while waiting:
        value = waiting.pop()
        inner = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        room -= 1 + (len(value) if isinstance(value, str) else len(inner))
        if room < 0:
            raise _Unknown("steps with very many values")
        waiting += inner


def impossible(spec: Any) -> tuple[str, str]:
    """(what a tokenizer's vocabulary must be, what it is) where the library could not hold it, ("", "") where it can.

    The vocabulary is held by this process also where the steps run in another one.
    """
    model = spec.get("model") if isinstance(spec, Mapping) else None
    if not isinstance(model, Mapping):
        return "", ""
    vocab, added = model.get("vocab"), spec.get("added_tokens")
    unigram = [p[0] if isinstance(p, list) and p else "" for p in vocab] if isinstance(vocab, list) else []
    pieces = [*(vocab if isinstance(vocab, Mapping) else ()), *unigram]
    pieces += [t.get("content") for t in added if isinstance(t, Mapping)] if isinstance(added, list) else []
    others = [value for name, value in model.items() if name not in ("vocab", "merges")]
    if (longest := max((len(p) for p in (*pieces, *others) if isinstance(p, str)), default=0)) > LONGEST_PIECE:
        return f"tokens of at most {LONGEST_PIECE:,} characters", f"one of {longest:,}"
    if (n := sum(len(p) for p in unigram if isinstance(p, str))) > MOST_OF_UNIGRAM:
        return f"at most {MOST_OF_UNIGRAM:,} characters of a Unigram vocabulary", f"{n:,}"
    ids = [*vocab.values()] if isinstance(vocab, Mapping) else []
    ids += [t.get("id") for t in added if isinstance(t, Mapping)] if isinstance(added, list) else []
    if (largest := max((i for i in ids if isinstance(i, int)), default=0)) >= IDS:
        return f"ids below {IDS}", f"a token with the id {largest}"
    return "", ""


def _steps(step: Any, inside: str) -> list[Mapping[str, Any]]:
    """The steps in order, with nested sequences flattened."""
    steps: list[Mapping[str, Any]] = []
    rest = [] if step is None else [step]
    while rest:
        first = rest.pop(0)
        if not isinstance(first, Mapping) or len(steps) >= _MOST_STEPS:
            raise _Unknown("a step that is not an object" if not isinstance(first, Mapping) else "very many steps")
        if first.get("type") == "Sequence":
            nested = first.get(inside)
            if not isinstance(nested, list) or len(nested) > _MOST_STEPS:
                raise _Unknown("very many steps")
            rest = [*nested, *rest]
        else:
            steps.append(first)
    return steps


def _check_growth(steps: list[Mapping[str, Any]], growth_of: Callable[[Mapping[str, Any]], float]) -> None:
    growth = 1.0
    for step in steps:
        growth *= growth_of(step)
    if growth > _MOST_GROWTH:
        raise _Unknown("a text that may grow without bound")


def _normaliser(step: Mapping[str, Any]) -> float:
    kind = step.get("type")
    if kind == "Replace":
        return _replacement(step)
    if kind == "Prepend":
        return _short(step.get("prepend"))
    if kind not in _NORMALISERS:
        raise _Unknown(f"the normaliser {str(kind)[:40]}")
    return _NORMALISERS[kind]


def _decoder(step: Mapping[str, Any]) -> float:
    kind = step.get("type")
    if kind == "Replace":
        return _replacement(step)
    if kind not in _DECODERS:
        raise _Unknown(f"the decoder {str(kind)[:40]}")
    return 1


def _short(text: Any) -> float:
    if not isinstance(text, str) or len(text) > _MOST_STEPS:
        raise _Unknown("a long prefix")
    return 1


def _replacement(step: Mapping[str, Any]) -> float:
    """The most characters inserted for one removed."""
    content, pattern = step.get("content"), step.get("pattern")
    if not isinstance(content, str) or not isinstance(pattern, Mapping):
        raise _Unknown("a replacement that cannot be read")
    text = pattern.get("String")
    if len(pattern) == 1 and isinstance(text, str) and text:
        return max(1.0, len(content) / len(text))
    _expression(pattern)
    return max(1.0, float(len(content)))


def _expression(pattern: Any) -> None:
    expression = pattern.get("Regex") if isinstance(pattern, Mapping) and len(pattern) == 1 else None
    if expression not in KNOWN:
        raise _Unknown("an unknown regular expression")


def _pre_tokenizer(step: Mapping[str, Any]) -> None:
    kind, pattern = step.get("type"), step.get("pattern")
    if kind == "Split":
        plain = isinstance(pattern, Mapping) and len(pattern) == 1 and isinstance(pattern.get("String"), str)
        if not plain:
            _expression(pattern)
    elif kind not in _PRE_TOKENIZERS:
        raise _Unknown(f"the pre-tokenizer {str(kind)[:40]}")


def _post_processor(step: Mapping[str, Any]) -> None:
    kind = step.get("type")
    if kind == "TemplateProcessing":
        pieces = [step.get("single"), step.get("pair")]
        if any(isinstance(p, list) and len(p) > _MOST_STEPS for p in pieces):
            raise _Unknown("a template of too many pieces")
    elif kind not in ("ByteLevel", "BertProcessing", "RobertaProcessing"):
        raise _Unknown(f"the processor {str(kind)[:40]}")


def _model(model: Any) -> None:
    kind = model.get("type", "BPE") if isinstance(model, Mapping) else None
    if kind not in _MODELS:
        raise _Unknown(f"the model {str(kind)[:40]}")
    longest = model.get("max_input_chars_per_word", 0)
    if not isinstance(longest, int) or longest > _LONGEST_WORD:
        raise _Unknown("words of any length")
