"""Text <-> ids, and the display form of a token in which nothing is invisible.

Wraps a `tokenizers` file (`tokenizer.json`). Special tokens are never added unasked and never parsed out of text: BOS is put in
front by whoever builds the prompt, and is on the screen when it is there.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path

from tokenizers import Tokenizer as _Tokenizer

from circuitlab.errors import BadInput, BadModel
from circuitlab.files import write_whole
from circuitlab.model.files.whole_file import WholeFile

_LARGEST = 64 * 2**20
_BOS_NAMES = ("<|bos|>", "<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>", "[BOS]")
_VISIBLE = {" ": "·", "\n": "↵", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}


@lru_cache(maxsize=1)
def _byte_of() -> dict[str, int]:
    """The byte each character of a byte-level vocabulary stands for (GPT-2's reversible mapping)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def visible(text: str) -> str:
    """`text` with spaces, newlines, tabs and control characters made visible."""
    return "".join(_VISIBLE.get(c, c if c.isprintable() else f"⟨{ord(c):02x}⟩") for c in text)


class Tokenizer:
    """A tokenizer. `bos` is the id of its beginning-of-sequence token, None where it has none.

    `adds_bos`: whether the model's own tokenizer puts it in front of a text. `notes`: what was assumed about its files.
    """

    adds_bos = False
    notes: tuple[str, ...] = ()

    def __init__(self, inner: _Tokenizer, bos: int | None = None) -> None:
        self._inner = inner
        self._inner.no_truncation()
        self._inner.no_padding()
        added = inner.get_added_tokens_decoder()
        self._special = {i: str(t.content) for i, t in added.items() if t.special}
        self._byte_level = inner.decoder is not None and b'"ByteLevel"' in inner.decoder.__getstate__()
        self.bos = bos if bos is not None else self.likely_bos()
        self.n_tokens: int = inner.get_vocab_size(with_added_tokens=True)
        self.display = lru_cache(maxsize=None)(self._display)

    @classmethod
    def from_file(cls, path: Path, bos: int | None = None) -> Tokenizer:
        """Open a `tokenizer.json`. Raises `BadModel`."""
        file = WholeFile(path)
        if file.size > _LARGEST:
            raise BadModel(f"{file.name} is too large.", expected=f"at most {_LARGEST >> 20} MiB", got=f"{file.size} bytes")
        data = file.read(0, file.size)
        try:
            return cls(_Tokenizer.from_str(data.decode("utf-8")), bos)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises bare Exception on a malformed file, and its panics are not even that
            raise BadModel(
                f"{file.name} cannot be read.",
                expected="a tokenizers file",
                got=str(error).partition("\n")[0][:200],
                remedy="Fetch or write it again, or take it away and go on by token ids.",
            ) from error

    def likely_bos(self) -> int | None:
        """A special token whose name says that it begins a text."""
        names = {text: i for i, text in self._special.items()}
        return next((names[n] for n in _BOS_NAMES if n in names), None)

    def first_added(self) -> int | None:
        """The special token that the tokenizer itself puts in front of a text, None where it adds nothing there."""
        self._inner.encode_special_tokens = True
        plain, whole = (self._inner.encode("a", add_special_tokens=added).ids for added in (False, True))
        return whole[0] if plain and whole[1 : 1 + len(plain)] == plain and whole[0] in self._special else None

    def id_of(self, text: str) -> int | None:
        """The id of the token spelled so in the vocabulary, special ones included."""
        return self._inner.token_to_id(text)

    def file_text(self) -> str:
        """What stands in its `tokenizer.json`."""
        return self._inner.to_str(pretty=False)

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`. Raises `BadMachine`."""
        write_whole(path, self.file_text().encode())

    def encode(self, text: str, bos: bool = False) -> tuple[int, ...]:
        """Ids of `text`; with BOS in front where asked and there is one. Text that looks special stays text where it can."""
        self._inner.encode_special_tokens = True
        ids = tuple(self._inner.encode(text, add_special_tokens=False).ids)
        return (self.bos, *ids) if bos and self.bos is not None else ids

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of ids, special tokens left out; bytes that are no UTF-8 become U+FFFD."""
        return self._inner.decode(list(ids), skip_special_tokens=True)

    def raw(self, token: int) -> str:
        """The vocabulary's own spelling. Raises `BadInput` for an id that is not in it."""
        piece = self._inner.id_to_token(token)
        if piece is None:
            raise BadInput("There is no such token.", expected=f"0..{self.n_tokens - 1}", got=str(token))
        return piece

    def _display(self, token: int) -> str:
        if token in self._special:
            return self._special[token]
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
        """The id of exactly this text as one token (visible spaces accepted), or None."""
        ids = self.encode(text.replace("·", " ").replace("↵", "\n"))
        return ids[0] if len(ids) == 1 else None

    def search(self, text: str, most: int) -> tuple[int, ...]:
        """Ids of tokens a person may mean: the id itself, the exact token, tokens that begin so, tokens that contain it.

        Case and a leading space do not count, but tokens that agree in them come first.
        """
        wanted = visible(text)
        if not wanted:
            return ()
        low = wanted.lower().lstrip("·") or wanted
        names = self._folded
        found = [int(text)] if text.isdecimal() and int(text) < len(names) else []
        found += [] if (exact := self.find(text)) is None else [exact]
        begins = [i for i, name in enumerate(names) if name.startswith(low)]
        found += sorted(begins, key=lambda i: (len(names[i]), not self.display(i).startswith(wanted), i))
        if len(found) < most:
            found += [i for i, name in enumerate(names) if low in name]
        return tuple(dict.fromkeys(found))[:most]

    @cached_property
    def _folded(self) -> list[str]:
        """Display forms in lower case without their leading spaces."""
        return [self.display(i).lower().lstrip("·") for i in range(self.n_tokens)]


def _partly(data: bytes) -> str:
    """Bytes with what is UTF-8 as text and the rest as ⟨e2⟩: partial characters stay visible and apart."""
    out = ""
    for piece in data.decode("utf-8", errors="surrogateescape"):
        code = ord(piece)
        out += f"⟨{code - 0xDC00:02x}⟩" if 0xDC80 <= code <= 0xDCFF else visible(piece)
    return out
