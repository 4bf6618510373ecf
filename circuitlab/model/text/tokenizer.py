"""Text <-> ids, and the display form of a token, in which every character is visible.

Wraps a `tokenizers` file (`tokenizer.json`). Special tokens are added, and read from a text that spells them, only where that is
asked for: `Reading` says how. The rules of a file run here only if their cost is known to be bounded by the length of the text
(`tokenizer_rules`), otherwise in a separate process, within limits. Models of SentencePiece to which `tokenizers` would give
other ids are encoded by `sentencepiece_encoder`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import Tokenizer as _Tokenizer
from tokenizers.models import WordLevel

from circuitlab.counting import number_of
from circuitlab.disk.files import write_whole
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput, BadModel, TooLong, cause, quoted
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.text.chat_template import ChatTemplate
from circuitlab.model.text.reading import Front, SpecialSwitch
from circuitlab.model.text.sentencepiece_encoder import KEY, SentencePieceEncoder
from circuitlab.model.text.sentencepiece_normaliser import LongestKeys
from circuitlab.model.text.tokenizer_process import TokenizerProcess, failed
from circuitlab.model.text.tokenizer_rules import TEXT_STEPS, impossible, unbounded

log = logging.getLogger("circuitlab.tokenizer")
T = TypeVar("T")
_QUICK = 8000  # characters: encoded in 2 to 4 ms by tokenizers whose rules are bounded
_AT_ONCE, _CHARACTERS_A_TOKEN = 2**16, 16  # characters of a prompt that are encoded without looking whether it is too long
_CACHED_TEXTS, _LONGEST_CACHED = 64, 200_000  # texts whose tokens are cached, and characters of the longest
_REMEDY = "Fetch or write the file again, or remove it and use token ids."
_LARGEST = 64 * 2**20
_MOST_CHARACTERS = 2**17
_BOS_NAMES = ("<|bos|>", "<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>", "[BOS]")
_VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}


@lru_cache(maxsize=1)
def _byte_of() -> dict[str, int]:
    """The byte each character of a byte-level vocabulary stands for (GPT-2's reversible mapping)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def byte_characters() -> tuple[str, ...]:
    """The character that stands for each byte in a byte-level vocabulary."""
    character_of = {byte: character for character, byte in _byte_of().items()}
    return tuple(character_of[byte] for byte in range(256))


def visible(text: str) -> str:
    """`text` with spaces, newlines, tabs and control characters made visible."""
    return "".join(_VISIBLE.get(c, c if c.isprintable() else f"⟨{ord(c):02x}⟩") for c in text)


def refuse_vocabulary(spec: object) -> None:
    """Raise `BadModel` for the description of a tokenizer whose vocabulary the library could not hold."""
    expected, got = impossible(spec)
    if expected:
        raise BadModel("The vocabulary cannot be held.", expected=expected, got=got, remedy=_REMEDY)


class Tokenizer:
    """A tokenizer. `bos` is the id of its beginning-of-sequence token, None without one.

    `adds_bos`: whether the model's own tokenizer prepends it to a text. `notes`: what was assumed about its files. `chat`: how
    the model was trained to read messages, None where no file says so.
    """

    adds_bos = False
    chat: ChatTemplate | None = None
    notes: tuple[str, ...] = ()
    _unknown: int | None = None  # of Unigram, of which the library's object does not say it

    def __init__(
        self, inner: _Tokenizer, bos: int | None = None, own: TokenizerProcess | SentencePieceEncoder | None = None
    ) -> None:
        """`own`: encodes and decodes in place of `inner`, which then has only the vocabulary."""
        self._inner, self._own = inner, own
        self._cache: OrderedDict[tuple[str, bool], tuple[int, ...] | BadInput] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._inner.no_truncation()
        self._inner.no_padding()
        added = inner.get_added_tokens_decoder()
        self._special = {i: str(t.content) for i, t in sorted(added.items()) if t.special}
        self._spellings = LongestKeys(str(t.content) for t in added.values() if t.special and t.content)
        self._changes_first = any(t.special and t.normalized for t in added.values())  # spellings are sought after the normaliser
        self._byte_level = inner.decoder is not None and b'"ByteLevel"' in inner.decoder.__getstate__()
        self._switch = SpecialSwitch(inner)
        self.bos = bos if bos is not None else self.likely_bos()
        self.n_tokens: int = inner.get_vocab_size(with_added_tokens=True)
        self.display = lru_cache(maxsize=None)(self._display)

    @cached_property
    def content(self) -> str:
        """A hash of vocabulary and rules: equal for tokenizers that give the same ids for every text, except for BOS."""
        spec = json.loads(self._inner.to_str())
        added = [t for t in spec.get("added_tokens") or () if t.get("id") != self.bos]  # matched before all rules
        parts = [_stated(spec.get(part)) for part in ("normalizer", "pre_tokenizer", "model")]
        rules = json.dumps([*parts, _stated(added)], sort_keys=True)
        if self._own is not None:  # the inner tokenizer has only the vocabulary
            rules += sha256(self._own.data).hexdigest()
        return hashlib.sha256(rules.encode()).hexdigest()

    @classmethod
    def from_file(cls, path: Path, bos: int | None = None) -> Tokenizer:
        """Open a `tokenizer.json`. Raises `BadModel`."""
        file = WholeFile(path)
        if file.size > _LARGEST:
            raise BadModel(
                f"{file.name} is too large.",
                expected=f"at most {_LARGEST >> 20} MiB",
                got=number_of(file.size, "byte"),
                remedy=_REMEDY,
            )
        return cls.from_bytes(file.read(0, file.size), file.name, bos)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "tokenizer.json", bos: int | None = None) -> Tokenizer:
        """The tokenizer of a `tokenizer.json`'s bytes; `name`: the file's, for errors. Raises `BadModel`."""
        try:
            text = data.decode("utf-8")
            spec = json.loads(text, object_pairs_hook=_once)
            refuse_vocabulary(spec)
            if not isinstance(spec, dict):
                return cls(_Tokenizer.from_str(text), bos)  # which says what it is
            tokenizer = cls._described(spec, data, name, bos)
            model = spec.get("model")
            unknown = model.get("unk_id") if isinstance(model, dict) else None
            tokenizer._unknown = unknown if isinstance(unknown, int) else None
            return tokenizer
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises bare Exception on a malformed file; its panics are BaseException
            expected = error.expected if isinstance(error, BadModel) else "a tokenizers file"
            reason = error.got if isinstance(error, BadModel) else cause(error)
            raise BadModel(f"{name} cannot be read.", expected=expected, got=reason, remedy=_REMEDY) from error

    @classmethod
    def _described(cls, spec: JsonDict, data: bytes, name: str, bos: int | None) -> Tokenizer:
        """The tokenizer of a description, where its rules may run. Raises whatever the library does, and `ValueError`."""
        if isinstance(model := spec.get("model"), dict) and KEY in model:
            return cls._of_sentencepiece(spec, data, bos)
        if not (reason := unbounded(spec)):
            return cls(_Tokenizer.from_str(data.decode("utf-8")), bos)
        log.info("%s encodes in a separate process: %s", name, reason)
        bare = _Tokenizer.from_str(json.dumps({**spec, **dict.fromkeys(TEXT_STEPS)}))
        tokenizer = cls(bare, bos, TokenizerProcess(data))
        tokenizer._byte_level = '"ByteLevel"' in json.dumps(spec.get("decoder"))
        return tokenizer

    @classmethod
    def _of_sentencepiece(cls, spec: JsonDict, data: bytes, bos: int | None) -> Tokenizer:
        """The tokenizer of a description that says what SentencePiece does beyond `tokenizers`. Raises `ValueError`."""
        bare = {**spec, **dict.fromkeys(TEXT_STEPS), "decoder": spec.get("decoder")}
        if reason := unbounded(bare):
            raise ValueError(f"{reason} beside rules of SentencePiece")
        inner = _Tokenizer.from_str(json.dumps(bare))
        return cls(inner, bos, SentencePieceEncoder(inner, spec, data))

    def likely_bos(self) -> int | None:
        """A special token whose name is one of the usual names of BOS."""
        return next((self._special_ids[n] for n in _BOS_NAMES if n in self._special_ids), None)

    def first_added(self) -> int | None:
        """The special token that the tokenizer itself prepends to a text, None if it prepends none.

        Raises `BadModel` if it cannot encode a single letter in time.
        """
        text = "a" if self._characters is None or "a" in self._characters else min(self._characters)
        try:
            plain, with_special = self._ids(text), self._ids(text, added=True)
        except BadInput as error:
            what = "The model's tokenizer cannot encode the letter ‘a’."
            raise BadModel(what, expected=error.expected, got=error.got, remedy=_REMEDY) from error
        follows = bool(plain) and with_special[1 : 1 + len(plain)] == plain
        return with_special[0] if follows and with_special[0] in self._special else None

    def id_of(self, text: str) -> int | None:
        """The id of the token with this spelling in the vocabulary, special tokens included."""
        try:
            return self._inner.token_to_id(text)
        except UnicodeEncodeError:  # half of a character, which no vocabulary holds
            return None

    @property
    def unknown(self) -> int | None:
        """The id of the token for what the vocabulary cannot spell, None without one that is named."""
        if isinstance(name := getattr(self._inner.model, "unk_token", None), str):
            return self._inner.token_to_id(name)
        return self._special_ids.get("<unk>") if self._unknown is None else self._unknown

    def file_text(self) -> str:
        """The text of its `tokenizer.json`."""
        return self._inner.to_str(pretty=False) if self._own is None else self._own.data.decode("utf-8")

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`. Raises `BadMachine`."""
        write_whole(path, self.file_text().encode())

    def quick(self, text: str, special: bool = False) -> bool:
        """Whether `encode` returns within a few milliseconds, as it must for a keystroke."""
        quick = _QUICK if self._own is None else self._own.quick
        return len(text) <= quick or (text, self.spells(text, special)) in self._cache

    @property
    def special_tokens(self) -> Mapping[int, str]:
        """The spellings of all special tokens by their ids."""
        return self._special

    def spells(self, text: str, special: bool = True) -> bool:
        """Whether a text may hold a special token's spelling, so that reading them (`special`) makes a difference."""
        return special and bool(self._spellings.keys) and (self._changes_first or any(True for _ in self._spellings.found(text)))

    def encode(self, text: str, bos: Front = False, special: bool = False) -> tuple[int, ...]:
        """Ids of `text`, after BOS if `bos` is set and there is one, or after the special token that it spells.

        `special`: the spelling of a special token becomes its id, as `transformers` reads a text (`split_special_tokens=False`);
        otherwise it is encoded as letters if possible.

        Other threads keep running. Raises `BadInput` if the tokenizer fails on the text or does not finish in time.
        """
        return (*self.front(bos), *self._cached_ids(text, self.spells(text, special)))

    def front(self, bos: Front) -> tuple[int, ...]:
        """The id that stands in front of a text, () for none. Raises `BadInput` for what is no special token of it."""
        if isinstance(bos, str):
            return (self._special_id(bos),)
        return (self.bos,) if bos and self.bos is not None else ()

    def chosen_front(self, bos: Front) -> tuple[bool, str]:
        """(whether BOS stands in front, the spelling of another special token that does, "" for none). Raises as `front` does."""
        ids = self.front(bos)
        return ids == (self.bos,), self._special[ids[0]] if ids and ids != (self.bos,) else ""

    @cached_property
    def _special_ids(self) -> Mapping[str, int]:
        """The ids of all special tokens by their spellings."""
        return {text: i for i, text in self._special.items()}

    def _special_id(self, spelling: str) -> int:
        ids = self._special_ids
        if spelling not in ids:
            some = " ".join(islice(ids, 8)) + (" …" if len(ids) > 8 else "")
            raise BadInput(
                "There is no such special token.",
                expected=f"one of {some}" if ids else "a tokenizer with special tokens",
                got=quoted(spelling),
                remedy="Choose one of the model's own; `circuitlab info` lists them.",
            )
        return ids[spelling]

    def encode_uncached(self, text: str) -> tuple[int, ...]:
        """`encode` without BOS, for a part of a long text: it does not displace prompts from the cache."""
        return self._ids(text)

    @property
    def single_characters(self) -> bool:
        """Whether every token is one character, so that a text can be divided anywhere."""
        return self._characters is not None

    def prompt(self, text: str, most: int, bos: Front = False, special: bool = False) -> tuple[int, ...]:
        """`encode`, but no more of a text is read than shows that it has more than `most` tokens: 240 bytes a character.

        Raises `TooLong` for such a text, `BadInput` as `encode` does.
        """
        head = self.long_enough(text, most, special)
        if len(head) < len(text):
            part = f"the first {len(head):,} of {number_of(len(text), 'character')}"
            got = f"more than {number_of(len(self._ids(head, self.spells(head, special))), 'token')} in {part}"
            raise TooLong("The prompt is longer than the model's context.", most, got)
        return self.encode(text, bos, special)

    def long_enough(self, text: str, most: int, special: bool = False) -> str:
        """The text, or a beginning of it that alone has more than `most` tokens. Raises `BadInput` as `encode` does.

        A beginning may have a few tokens more than its part of the whole, where the cut divides one; it has many more here.
        """
        size = max(_AT_ONCE, _CHARACTERS_A_TOKEN * most)
        while size < len(text):
            if len(self._ids(text[:size], self.spells(text[:size], special))) > most + most // 8 + 64:
                return text[:size]
            size *= 2
        return text

    def beginning(self, text: str, most: int, bos: Front = False, special: bool = False) -> str:
        """The longest prefix of `text` that encodes to at most `most` tokens. Raises `BadInput` as `encode` does."""
        most_ids = most - len(self.front(bos))
        text = self.long_enough(text, most, special)
        special = self.spells(text, special)
        ids = self._cached_ids(text, special)
        if len(ids) <= most_ids:
            return text
        prefix = self.decode(ids[:most_ids], special).rstrip("\ufffd")
        if text.startswith(prefix) and len(self._ids(prefix, special)) <= most_ids:
            return prefix
        fits, over = 0, len(text)  # the tokenizer changes the text, or splits a prefix differently from the whole
        while over - fits > 1:
            middle = (fits + over) // 2
            fits, over = (middle, over) if len(self._ids(text[:middle], special)) <= most_ids else (fits, middle)
        return text[:fits]

    def cut(self, text: str, most: int, bos: Front = False, special: bool = False) -> tuple[str, tuple[int, ...]]:
        """A text and its ids, of one with more than `most` tokens the first of them and their text. Raises as `encode` does."""
        ids = self.encode(self.long_enough(text, most, special), bos, special)
        return (text, ids) if len(ids) <= most else (self.decode(ids[len(self.front(bos)) : most], special), ids[:most])

    def text_of(self, ids: tuple[int, ...], bos: Front = False, special: bool = False) -> str:
        """The text that is read as exactly these ids, "" where none is: part of a character, a merge across a seam.

        Raises `BadInput` as `encode` does.
        """
        front = self.front(bos)
        text = self.decode(ids[len(front) :], special)
        return text if self.encode(text, bos, special) == ids else ""

    def _cached_ids(self, text: str, special: bool) -> tuple[int, ...]:
        """`_ids` with a cache of recent texts, failures included, so that nobody waits twice for the same text."""
        with self._cache_lock:
            outcome = self._cache.get((text, special))
        if outcome is None:
            try:
                outcome = self._ids(text, special)
            except BadInput as error:
                outcome = error
            if len(text) <= _LONGEST_CACHED or isinstance(outcome, BadInput):
                with self._cache_lock:
                    self._cache[text, special] = outcome
                    while len(self._cache) > _CACHED_TEXTS:
                        self._cache.popitem(last=False)
        if isinstance(outcome, BadInput):
            raise BadInput(outcome.what, expected=outcome.expected, got=outcome.got, remedy=outcome.remedy)
        return outcome

    def _ids(self, text: str, special: bool = False, added: bool = False) -> tuple[int, ...]:
        """Ids. `special`: spellings of special tokens are read; `added`: with the tokens that the file's template adds."""
        _need_characters(text)
        if self._own is not None:
            return tuple(_guarded(lambda own=self._own: own.encode(text, special, added)))
        if self._characters is not None and (unknown := sorted(set(text) - self._characters)):
            raise BadInput(
                "The model's vocabulary consists of single characters and lacks some of these.",
                expected=f"its {number_of(len(self._characters), 'character')}",
                got="no " + " ".join(map(visible, unknown[:20])) + (" …" if unknown[20:] else ""),
                remedy="Remove or replace these characters.",
            )
        # a batch of one: unlike `encode`, it lets other threads run
        with self._switch.reading(special):
            return _guarded(lambda: tuple(self._inner.encode_batch_fast([text], add_special_tokens=added)[0].ids))

    @cached_property
    def _characters(self) -> frozenset[str] | None:
        """All tokens, if they are single characters and nothing else can be encoded; None for other vocabularies."""
        if not isinstance(self._inner.model, WordLevel) or self.n_tokens > _MOST_CHARACTERS:
            return None
        vocab = self._inner.get_vocab(with_added_tokens=True)
        return frozenset(vocab) if self._inner.model.unk_token not in vocab and all(len(t) == 1 for t in vocab) else None

    def decode(self, ids: tuple[int, ...], special: bool = False) -> str:
        """Text of ids, in which special tokens are spelled (`special`) or left out; bytes that are not UTF-8 become U+FFFD.

        Raises `BadInput` as `encode` does.
        """
        if self._own is not None:
            return _guarded(lambda own=self._own: own.decode(list(ids), special))
        with self._switch.reading(None):
            return _guarded(lambda: self._inner.decode(list(ids), skip_special_tokens=not special))

    def told(self, ids: tuple[int, ...]) -> str:
        """Text of a prompt for people: its special tokens are spelled, except for BOS in front. Raises `BadInput`."""
        return self.decode(ids[1:] if ids[:1] == (self.bos,) else ids, special=True)

    def is_special(self, token: int) -> bool:
        """Whether a token stands for no text, as BOS."""
        return token in self._special

    def raw(self, token: int) -> str:
        """The spelling in the vocabulary. Raises `BadInput` for an id outside it."""
        piece = self._inner.id_to_token(token)
        if piece is None:
            raise BadInput(
                "There is no such token.",
                expected=f"0..{self.n_tokens - 1}",
                got=str(token),
                remedy="Choose an id in this range.",
            )
        return piece

    def _display(self, token: int) -> str:
        if token in self._special:
            return visible(self._special[token])
        piece = self._inner.id_to_token(token)
        if piece is None:
            return f"⟨id {token}⟩"
        if not self._byte_level:
            return visible(piece.replace("▁", " "))
        table = _byte_of()
        if any(c not in table for c in piece):
            return visible(piece)
        data = bytes(table[c] for c in piece)
        try:
            return visible(data.decode("utf-8"))
        except UnicodeDecodeError:
            return _partly(data)

    def find(self, text: str) -> int | None:
        """The id of the single token that is exactly this text (visible spaces accepted), or None."""
        if isinstance(self._own, TokenizerProcess):  # called for every letter typed into a search
            shown = visible(text)
            return next((i for i in range(self.n_tokens) if self.display(i) == shown), None)
        try:
            ids = self.encode(text.replace("·", " ").replace("↵", "\n"))
        except BadInput:
            return None
        return ids[0] if len(ids) == 1 else None

    @cached_property
    def vocabulary(self) -> str:
        """A hash, equal for tokenizers in which every id has the same text, whatever files they were read from."""
        names = sorted((i, text) for text, i in self._inner.get_vocab(with_added_tokens=True).items())
        return sha256(json.dumps([self._byte_level, names]).encode()).hexdigest()

    def shown_as(self, display: str) -> int | None:
        """The id with this display form; None if there is none or more than one."""
        return self._by_display.get(display)

    @cached_property
    def _by_display(self) -> dict[str, int | None]:
        ids: dict[str, int | None] = {}
        for i in range(self.n_tokens):
            ids[text] = None if (text := self.display(i)) in ids else i
        return ids

    def search(self, text: str, most: int) -> tuple[int, ...]:
        """Ids that match a search: the id itself, the exact token, tokens that begin with the text, tokens that contain it.

        Case and a leading space are ignored, but tokens that match them come first.
        """
        query = visible(text)
        if not query:
            return ()
        low = query.lower().lstrip("·") or query
        names = self._folded
        ids = [int(text)] if text.isdecimal() and int(text) < len(names) else []
        ids += [] if (exact := self.find(text)) is None else [exact]
        begins = [i for i, name in enumerate(names) if name.startswith(low)]
        ids += sorted(begins, key=lambda i: (len(names[i]), not self.display(i).startswith(query), i))
        if len(ids) < most:
            ids += [i for i, name in enumerate(names) if low in name]
        return tuple(dict.fromkeys(ids))[:most]

    @cached_property
    def _folded(self) -> list[str]:
        """Display forms in lower case without their leading spaces."""
        return [self.display(i).lower().lstrip("·") for i in range(self.n_tokens)]


def _partly(data: bytes) -> str:
    """Bytes as text, those that are not UTF-8 as ⟨e2⟩, so that partial characters stay visible and distinct."""
    out = ""
    for piece in data.decode("utf-8", errors="surrogateescape"):
        code = ord(piece)
        out += f"⟨{code - 0xDC00:02x}⟩" if 0xDC80 <= code <= 0xDCFF else visible(piece)
    return out


def _need_characters(text: str) -> None:
    """Raise `BadInput` for a text with half of a character (a lone surrogate), as files can hold and no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        what, remedy = "This text is not Unicode.", "Remove or replace it."
        raise BadInput(what, expected="whole characters", got=cause(error), remedy=remedy) from error


def _guarded(work: Callable[[], T]) -> T:
    """Turns whatever the library raises into `BadInput`; its panics are BaseException."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError, BadInput):
        raise
    except BaseException as error:
        raise failed(str(error) or type(error).__name__) from error


def _stated(value: object) -> Any:
    """What a part of a file says, without fields that say no or nothing: versions of the library write more of them."""
    if isinstance(value, dict):
        return {name: _stated(one) for name, one in value.items() if one is not None and one is not False}
    return [_stated(one) for one in value] if isinstance(value, list) and value and isinstance(value[0], dict) else value


def _once(pairs: list[tuple[str, object]]) -> JsonDict:
    """An object without duplicate keys, as it would be a guess which one counts. Vocabularies (large objects) are exempt."""
    by_name = dict(pairs)
    if len(by_name) < len(pairs) <= 64:
        raise ValueError("an object has a key twice")
    return by_name
