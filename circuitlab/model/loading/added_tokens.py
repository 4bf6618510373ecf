"""Tokens that files beside a vocabulary add to it, or name as special ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tokenizers import AddedToken

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, cause, quoted
from circuitlab.model.loading.checkpoint import read_json

SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


def optional(file: Path) -> JsonObject:
    """A JSON object from a file, an empty one where there is none. Raises `BadModel`."""
    return read_json(file) if os.path.lexists(file) else {}


def need_ids(added: Mapping[int, AddedToken], id_of: Callable[[str], int | None], name: str) -> None:
    """Raise `BadModel` where a token has not the id that the files state."""
    for number, token in added.items():
        if id_of(token.content) != number:
            what, got = f"the added token {token.content[:40]!r} at id {number}", str(id_of(token.content))
            raise BadModel(f"{name} and the added tokens do not fit.", expected=what, got=got)


def added_tokens(folder: Path, settings: Mapping[str, object], vocab: Mapping[str, int]) -> dict[int, AddedToken]:
    """Tokens that are matched in a text before all rules, by id: special ones, which stand for no text, and others (Phi's runs of
    spaces). `added_tokens.json` says of none which it is; there those are special that the files name as BOS, EOS and so on.
    """
    named = _special(folder, settings)
    ids = {token: vocab[token] for token in (*named, "<|endoftext|>") if token in vocab}
    stated = {content: n for content, n in optional(folder / "added_tokens.json").items() if is_id(n)}
    added = {n: _token(content, content in named or content in ids) for content, n in {**ids, **stated}.items()}
    table = settings.get("added_tokens_decoder")
    for number, token in table.items() if isinstance(table, Mapping) else ():
        content = token.get("content") if isinstance(token, Mapping) else None
        if isinstance(content, str) and content and number.isascii() and number.isdecimal() and len(number) < 10:
            how = {name: token.get(name) is True for name in ("lstrip", "rstrip", "single_word", "normalized")}
            added[int(number)] = _token(content, token.get("special") is True or content in named, **how)
    return dict(sorted(added.items()))


def _token(content: str, special: bool, **how: bool) -> AddedToken:
    try:
        return AddedToken(content, special=special, **{"normalized": not special, **how})
    except UnicodeEncodeError as error:
        what, remedy = f"The added token {quoted(content)} is not Unicode.", "Fetch the tokenizer's files again."
        raise BadModel(what, expected="whole characters", got=cause(error), remedy=remedy) from error


def is_id(value: object) -> bool:
    """Whether a value of a file is a number that an id can be."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _special(folder: Path, settings: Mapping[str, object]) -> tuple[str, ...]:
    """The spellings of the tokens that the files name as special ones."""
    result: dict[str, None] = {}
    for data in (settings, optional(folder / "special_tokens_map.json")):
        listed = data.get("additional_special_tokens")
        for token in (*(data.get(name) for name in SPECIAL_NAMES), *(listed if isinstance(listed, list) else ())):
            text = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(text, str) and text:
                result[text] = None
    return tuple(result)
