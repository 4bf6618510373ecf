"""The tokens of a text as the model reads them: ids, visible pieces, positions and the words that they are parts of."""

from __future__ import annotations

from dataclasses import dataclass

from circuitlab.disk.json_types import JsonDict
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.notebook_html import table

_BREAKS = ("·", "↵", "⇥", "␍", "⍽")  # visible forms of whitespace, as `Tokenizer.display` has them


@dataclass(frozen=True)
class Token:
    """One token of a prompt. `piece`: its text with every character visible; `word`: which word it is part of, counted from 0,
    None for special tokens, which are of no text."""

    position: int
    id: int
    piece: str
    word: int | None


@dataclass(frozen=True)
class Tokenized:
    """The tokens of a prompt, in order; `words`: its words, each a run of pieces of which only the first begins with a space."""

    tokens: tuple[Token, ...]
    words: tuple[str, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids, as every `tokens` argument takes them."""
        return tuple(token.id for token in self.tokens)

    def rows(self) -> list[JsonDict]:
        """Plain values, one row a token: position, id, piece, word and its text."""
        text = lambda word: None if word is None else self.words[word]
        return [
            {"position": t.position, "id": t.id, "piece": t.piece, "word": t.word, "word_text": text(t.word)} for t in self.tokens
        ]

    def _repr_html_(self) -> str:
        return table(("position", "id", "piece", "word"), [[str(v) for v in list(row.values())[:4]] for row in self.rows()])


def tokenized(tokenizer: Tokenizer, ids: tuple[int, ...]) -> Tokenized:
    """The tokens of these ids. A word ends where a piece begins with whitespace, or behind a special token."""
    words: list[str] = []
    tokens: list[Token] = []
    within = False
    for position, token in enumerate(ids):
        piece = tokenizer.display(token)
        if tokenizer.is_special(token):
            tokens.append(Token(position, token, piece, None))
            within = False
            continue
        if not within or piece.startswith(_BREAKS):
            words.append("")
        words[-1] += piece
        within = True
        tokens.append(Token(position, token, piece, len(words) - 1))
    return Tokenized(tuple(tokens), tuple(word.strip("".join(_BREAKS)) for word in words))
