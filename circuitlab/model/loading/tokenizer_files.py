"""The tokenizer of a model folder: the files it is read from, its BOS, and where it does not fit the model.

`tokenizer.json` is used as it is. `vocab.json` with `merges.txt` become GPT-2's byte-level BPE (Radford et al. 2019), with Qwen's
way of splitting text where `tokenizer_config.json` names that class; or GPT-1's BPE of lower-cased words (Radford et al. 2018),
where pieces that end a word are marked `</w>`. What else there is stands in
one file (`lone_vocabulary`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner
from tokenizers.models import BPE

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, cause
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.added_tokens import SPECIAL_NAMES, added_tokens, is_id, need_ids, optional
from circuitlab.model.loading.checkpoint import read_json
from circuitlab.model.loading.lone_vocabulary import from_one_file, unread
from circuitlab.model.loading.other_formats import refuse_format
from circuitlab.model.loading.tokenizer_beside import difference
from circuitlab.model.text.chat_template import LARGEST as LARGEST_TEMPLATE
from circuitlab.model.text.chat_template import ChatTemplate, template_among, too_large
from circuitlab.model.text.tokenizer import Tokenizer, refuse_vocabulary

# How Qwen's tokenizer splits a text before the merges: digits one by one, line ends apart.
_QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_END = "</w>"  # ends the pieces that end a word, in a vocabulary that marks them
_LARGEST_MERGES = 16 * 2**20


def find_tokenizer(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer, None without one that is read. Raises `BadModel` for damaged files.

    A `tokenizer.json` itself states whether it prepends BOS to a text; for other files `add_bos_token` does, or their class.
    """
    tokenizer = _from_files(folder)
    if tokenizer is None:
        return None
    settings = optional(folder / "tokenizer_config.json")
    prepended, flag = tokenizer.first_added(), settings.get("add_bos_token")
    has_template = (folder / "tokenizer.json").is_file()
    candidates = (prepended, _stated_bos(folder, tokenizer, settings), tokenizer.likely_bos())
    tokenizer.bos = next((id for id in candidates if id is not None), None)
    flagged = flag is True or (flag is None and tokenizer.adds_bos)
    tokenizer.adds_bos = prepended is not None if has_template else flagged and tokenizer.bos is not None
    if has_template and isinstance(flag, bool) and flag != tokenizer.adds_bos:
        what = "prepends BOS" if tokenizer.adds_bos else "prepends nothing"
        tokenizer.notes = (f"tokenizer.json {what} to a text, tokenizer_config.json says otherwise; the former is followed",)
    tokenizer.notes += difference(folder, tokenizer) if has_template else ()
    text, why = _template_text(folder, settings)
    named = {**optional(folder / "special_tokens_map.json"), **settings}
    spelled = lambda token: token.get("content") if isinstance(token, Mapping) else token
    tokens = ((name, token) for name in SPECIAL_NAMES if isinstance(token := spelled(named.get(name)), str))
    tokenizer.chat = ChatTemplate(text, tuple(tokens)) if text else None
    tokenizer.notes += (f"its chat template is not read: {why}",) if why else ()
    return tokenizer


def _template_text(folder: Path, settings: JsonObject) -> tuple[str, str]:
    """(how messages become a text, "" for nothing; why a template is not read); its own file comes before the settings."""
    path = folder / "chat_template.jinja"
    if not path.is_file():
        text = template_among(settings.get("chat_template"))
        return ("", too_large(len(text))) if len(text) > LARGEST_TEMPLATE else (text, "")
    try:
        if (file := WholeFile(path)).size > LARGEST_TEMPLATE:
            return "", too_large(file.size)
        return file.read(0, file.size).decode("utf-8", "replace"), ""
    except BadModel as error:
        return "", f"{error.what} {error.got}"


def fitted(weights: LazyWeights, folder: Path) -> tuple[LazyWeights, tuple[str, ...]]:
    """The weights, with `prepend_bos` where the tokenizer prepends it, and notes on where tokenizer and model do not fit."""
    tokenizer, config = weights.tokenizer, weights.config
    if tokenizer is None:
        return weights, unread(folder)
    notes = list(tokenizer.notes)
    if tokenizer.bos is not None and tokenizer.bos >= config.d_vocab:
        notes.append(f"the tokenizer's BOS, id {tokenizer.bos}, is outside the vocabulary of {config.d_vocab}: not used")
        tokenizer.bos, tokenizer.adds_bos = None, False
    if tokenizer.n_tokens != config.d_vocab:
        larger = tokenizer.n_tokens > config.d_vocab
        effect = "text with tokens beyond these cannot be run" if larger else "higher ids have no text"
        notes.append(f"the tokenizer has {number_of(tokenizer.n_tokens, 'token')}, the model {config.d_vocab:,}: {effect}")
    if tokenizer.adds_bos and not config.prepend_bos:
        weights = LazyWeights(replace(config, prepend_bos=True), tokenizer, weights.parts, weights.dtype)
    return weights, tuple(notes)


def _from_files(folder: Path) -> Tokenizer | None:
    if os.path.lexists(folder / "tokenizer.json"):  # also where it is not a file, which is then an error
        refuse_format(folder / "tokenizer.json", "a tokenizers file")
        return Tokenizer.from_file(folder / "tokenizer.json")
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _from_pieces(folder)
    return from_one_file(folder)


def _stated_bos(folder: Path, tokenizer: Tokenizer, settings: Mapping[str, object]) -> int | None:
    """The id of the token that the files name as BOS, by its text or by its id."""
    config = optional(folder / "config.json")
    named = (settings, optional(folder / "special_tokens_map.json"))  # the later one wins, unless the former has the table
    for data in (*(named if "added_tokens_decoder" in settings else reversed(named)), config):
        token = data.get("bos_token")
        text = token.get("content") if isinstance(token, Mapping) else token
        bos = tokenizer.id_of(text) if isinstance(text, str) else None
        if bos is not None:
            return bos
    inner = config.get("text_config")
    bos = config.get("bos_token_id", inner.get("bos_token_id") if isinstance(inner, Mapping) else None)
    if not is_id(bos) or bos >= tokenizer.n_tokens:
        return None
    # the first Llamas in Hugging Face's form say 0, which is what stands for the unknown
    return None if bos == tokenizer.unknown and tokenizer.likely_bos() is not None else bos


def _from_pieces(folder: Path) -> Tokenizer:
    """`vocab.json` and `merges.txt` as a tokenizer. Raises `BadModel`."""
    vocab = read_json(folder / "vocab.json")
    if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in vocab.values()):
        raise BadModel("vocab.json does not number its tokens.", expected="token: id", got="other values")
    word_ends = sum(piece.endswith(_END) for piece in vocab)
    refuse_vocabulary({"model": {"vocab": vocab}})
    return _lower_cased(folder, vocab) if 4 * word_ends > len(vocab) else _byte_level(folder, vocab)


def _lower_cased(folder: Path, vocab: dict[str, int]) -> Tokenizer:
    """GPT-1's: lower-cased words and punctuation marks, split into pieces of which the last ends in `</w>`."""
    inner = _bpe(folder, vocab, unk_token="<unk>" if "<unk>" in vocab else None, end_of_word_suffix=_END)
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.BPEDecoder(suffix=_END)
    inner.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in ("<unk>",) if name in vocab])
    tokenizer = Tokenizer(inner)
    tokenizer.notes = ("tokenizer built from vocab.json and merges.txt, as GPT-1's BPE of lower-cased words",)
    return tokenizer


def _byte_level(folder: Path, vocab: dict[str, int]) -> Tokenizer:
    """GPT-2's and Qwen's."""
    settings = optional(folder / "tokenizer_config.json")
    inner = _bpe(folder, vocab)
    space = settings.get("add_prefix_space") is True
    qwen = str(settings.get("tokenizer_class") or "").startswith("Qwen2")
    if qwen:
        inner.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(_QWEN_SPLIT), behavior="isolated")
        inner.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(space, use_regex=False)])
    else:
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    inner.decoder = decoders.ByteLevel()
    _add(inner, added_tokens(folder, settings, vocab), "vocab.json")
    tokenizer = Tokenizer(inner)
    whose = "Qwen's" if qwen else "GPT-2's"
    tokenizer.notes = (f"tokenizer built from vocab.json and merges.txt, as {whose} byte-level BPE",)
    return tokenizer


def _bpe(folder: Path, vocab: dict[str, int], **options: object) -> Inner:
    pairs: list[tuple[str, str]] = []
    file = WholeFile(folder / "merges.txt")
    if file.size > _LARGEST_MERGES:
        raise BadModel(
            "merges.txt is too large.", expected=f"at most {_LARGEST_MERGES >> 20} MiB", got=number_of(file.size, "byte")
        )
    data = file.read(0, file.size)
    try:
        for line in data.decode("utf-8").split("\n"):
            left, space, right = line.rstrip("\r").partition(" ")
            if space and not line.startswith("#version"):
                pairs.append((left, right))
        return Inner(BPE(vocab=vocab, merges=pairs, **options))
    except Exception as error:  # the library raises bare Exception for merges of unknown pieces
        raise BadModel("merges.txt does not fit vocab.json.", expected="merges of its tokens", got=cause(error)) from error


def _add(inner: Inner, added: Mapping[int, AddedToken], name: str) -> None:
    """Give a tokenizer its added tokens, which must get the ids that the files state. Raises `BadModel`."""
    inner.add_tokens(list(added.values()))  # at once: the library builds its search for all of them anew at each call
    need_ids(added, inner.token_to_id, name)
