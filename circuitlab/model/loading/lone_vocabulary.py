"""The tokenizer of a folder that has neither a `tokenizer.json` nor `vocab.json` with `merges.txt`: one file holds it.

That is a model of SentencePiece (`tokenizer.model`, `spiece.model`), Mistral's `tekken.json`, or a list of tiktoken's, which
Llama 3 calls `tokenizer.model`, too, and keeps in a folder `original`. What is not read is named, with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadModel
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.loading.added_tokens import added_tokens, need_ids, optional
from circuitlab.model.loading.byte_ranks import LARGEST, is_tiktoken, llama3_description, tekken_description
from circuitlab.model.text.not_read import NotRead
from circuitlab.model.text.sentencepiece_file import LARGEST as LARGEST_SENTENCEPIECE
from circuitlab.model.text.sentencepiece_file import description
from circuitlab.model.text.tokenizer import Tokenizer

_NAMES = ("tekken.json", "tokenizer.model", "spiece.model", "original/tokenizer.model")
_ADDS_BOS = ("LlamaTokenizer", "LLaMATokenizer", "CodeLlamaTokenizer", "GemmaTokenizer")  # where nothing is stated
_OTHERS = {
    "sentencepiece.bpe.model": "models that have it number its pieces otherwise",
    "tokenizer.tiktoken": "a list of tiktoken's, which does not say how a text is split",
    "qwen.tiktoken": "a list of tiktoken's, which does not say how a text is split",
    "tiktoken.model": "a list of tiktoken's, which does not say how a text is split",
}


def from_one_file(folder: Path) -> Tokenizer | None:
    """The tokenizer, with the tokens that were added to it; None for a kind that is not read. Raises `BadModel`."""
    if (name := _name(folder)) is None:
        return None
    settings = optional(folder / "tokenizer_config.json")
    try:
        spec, how, adds_bos = _described(folder / name, settings)
    except NotRead:
        return None
    vocab = _vocab(spec)
    added = {n: token for n, token in added_tokens(folder, settings, vocab).items() if vocab.get(token.content) != n}
    spec["added_tokens"] += [
        {"id": n, "content": t.content, "single_word": t.single_word, "lstrip": t.lstrip, "rstrip": t.rstrip}
        | {"normalized": False, "special": t.special}
        for n, t in added.items()
    ]
    tokenizer = Tokenizer.from_bytes(json.dumps(spec).encode(), name)
    need_ids(added, tokenizer.id_of, name)
    tokenizer.adds_bos = adds_bos
    tokenizer.notes = (f"tokenizer built from {name}, as {how}",)
    return tokenizer


def unread(folder: Path) -> tuple[str, ...]:
    """A note on the file of a kind that is not read, if the folder has one."""
    result = next(((name, why) for name, why in _OTHERS.items() if (folder / name).is_file()), None)
    if (name := _name(folder)) is not None:
        try:
            _described(folder / name, {})
        except NotRead as reason:
            result = (name, str(reason))
    if result is None:
        return ()
    return (
        f"no tokenizer: {result[0]} is not read ({result[1]}). Prompts can be typed as ids; for text put a tokenizer.json of the "
        "same model beside the weights",
    )


def _name(folder: Path) -> str | None:
    return next((name for name in _NAMES if (folder / name).is_file()), None)


def _described(path: Path, settings: JsonObject) -> tuple[JsonDict, str, bool]:
    """(the contents of a `tokenizer.json`, what it is, whether BOS is put in front where nothing is stated).

    Raises `BadModel` for a damaged file, `NotRead` for one of a kind that is not read.
    """
    file = WholeFile(path)
    start = file.read(0, min(file.size, 400))
    tekken, tiktoken = path.name == "tekken.json", is_tiktoken(start)
    most = LARGEST if tekken or tiktoken else LARGEST_SENTENCEPIECE
    if file.size > most:
        raise BadModel(f"{file.name} is too large.", expected=f"at most {most >> 20} MiB", got=number_of(file.size, "byte"))
    data = file.read(0, file.size)
    if tekken:
        return tekken_description(data, file.name), "Mistral's Tekken", True
    if tiktoken:
        return llama3_description(data, file.name, _named(settings)), "Llama 3's byte-level BPE", True
    spec = description(data, file.name, False if settings.get("add_prefix_space") is False else None)
    kind = settings.get("tokenizer_class")
    adds_bos = file.name == "tokenizer.model" and (not isinstance(kind, str) or kind.removesuffix("Fast") in _ADDS_BOS)
    unigram = spec["model"]["type"] == "Unigram"
    return spec, f"SentencePiece's {'Unigram model' if unigram else 'BPE'}", adds_bos


def _vocab(spec: JsonDict) -> dict[str, int]:
    vocab = spec["model"]["vocab"]
    return {text: n for n, (text, _) in enumerate(vocab)} if isinstance(vocab, list) else vocab


def _named(settings: JsonObject) -> dict[int, str]:
    """The tokens that `tokenizer_config.json` names by id."""
    table, named = settings.get("added_tokens_decoder"), {}
    for number, token in table.items() if isinstance(table, dict) else ():
        content = token.get("content") if isinstance(token, dict) else None
        if isinstance(content, str) and content and number.isascii() and number.isdecimal() and len(number) < 10:
            named[int(number)] = content
    return named
