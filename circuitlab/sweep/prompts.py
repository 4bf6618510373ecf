"""The prompts of a sweep as one model reads them. One that it cannot read says why, and the others stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from circuitlab.analysis.base import TextRef
from circuitlab.disk.paths import resource
from circuitlab.engine.texts import checked_text, text_of
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.model.config import ModelConfig
from circuitlab.model.prompts import Prompt, lines_of, read_prompt
from circuitlab.model.subject import Target
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.sweep.spec import PromptSource

Reader = Callable[[Tokenizer, ModelConfig], Prompt]


@dataclass(frozen=True)
class Line:
    """A prompt before any model has read it. `number`: from 1, its line of a prompt set, or which of the source it is."""

    number: int
    text: str
    read: Reader


@dataclass(frozen=True)
class Given:
    """A prompt of a source, as a model reads it, or why it cannot. `of_set`: it is a line of a prompt set, with its answers.

    `special`: spellings of special tokens in it are read as these tokens.
    """

    source: str
    number: int
    text: str
    prompt: Prompt | None
    why: CircuitLabError | None = None
    of_set: bool = False
    special: bool = False


class Prompts:
    """The prompts of the sources, whose files are read once."""

    def __init__(self, sources: tuple[PromptSource, ...], folder: Path) -> None:
        self._sources = [(source, _text(source, folder)) for source in sources]
        self._lines = {source.name: _lines(source, text) for source, text in self._sources if not _window(source)}

    def read_by(self, tokenizer: Tokenizer | None, config: ModelConfig) -> list[Given]:
        """All prompts, in their order. `config`: says whether BOS begins them."""
        return [given for source, text in self._sources for given in self._given(source, text, tokenizer, config)]

    def _given(self, source: PromptSource, text: str, tokenizer: Tokenizer | None, config: ModelConfig) -> Iterator[Given]:
        if tokenizer is None:
            remedy = "Leave it out, or put a tokenizer.json beside its weights."
            why = BadInput("The model has no tokenizer.", expected="a model that reads text", got=source.name, remedy=remedy)
            yield Given(source.name, 0, "", None, why)
            return
        window = _window(source)
        lines = _windows(text, window, source.most, tokenizer, config) if window else self._lines[source.name]
        for line in lines:
            try:
                yield Given(
                    source.name, line.number, line.text, line.read(tokenizer, config), None, bool(source.set), source.special
                )
            except CircuitLabError as error:
                yield Given(source.name, line.number, line.text, None, error)


def _text(source: PromptSource, folder: Path) -> str:
    """The text of the file of a source; "" of one without. Raises `BadInput`."""
    if not (name := source.set or source.file):
        return ""
    path = folder / name
    if source.set and not path.is_file():
        shipped = resource("prompts", f"{name}.tsv")
        if not shipped.is_file():
            known = " ".join(sorted(p.stem for p in resource("prompts").glob("*.tsv")))
            remedy = "Check the spelling, or give a file of one prompt a line."
            raise BadInput("There is no such prompt set.", expected=f"a file, or one of {known}", got=name, remedy=remedy)
        path = shipped
    return text_of(checked_text(TextRef(str(path))).encode("utf-8"))


def _window(source: PromptSource) -> int:
    """The tokens of a prompt of a text that is divided into windows, 0 for all others."""
    return int(source.split.partition(":")[2] or 0)


def _lines(source: PromptSource, text: str) -> list[Line]:
    lines = list(_divided(source, text))
    if not lines:
        name = source.name
        raise BadInput(f"{name} holds no prompt.", expected="at least one", got="none", remedy="Give a file with text.")
    return lines[: source.most or None]


def _divided(source: PromptSource, text: str) -> Iterator[Line]:
    if source.set:
        for number, fields in lines_of(text):
            yield Line(number, fields[0], partial(_of_set, number, fields, source.name))
        return
    pieces = re.split(r"\n[^\S\n]*\n\s*", text) if source.split == "paragraphs" else text.split("\n")
    for number, piece in enumerate((p for p in pieces if p.strip()) if source.file else source.texts, 1):
        yield Line(number, piece, partial(_of_text, piece, source.special))


def _of_set(number: int, fields: tuple[str, ...], name: str, tokenizer: Tokenizer, config: ModelConfig) -> Prompt:
    return read_prompt(number, fields, name, tokenizer, config)


def _of_text(text: str, special: bool, tokenizer: Tokenizer, config: ModelConfig) -> Prompt:
    return Prompt(text, tokenizer.prompt(text, config.n_ctx, config.prepend_bos, special), Target())


def _windows(text: str, window: int, most: int, tokenizer: Tokenizer, config: ModelConfig) -> Iterator[Line]:
    """Windows of so many tokens, BOS among them; a shorter one at the end is left out unless it is the only one."""
    first = (tokenizer.bos,) if tokenizer.bos is not None and config.prepend_bos else ()
    ids, size = tokenizer.encode(text), max(1, window - len(first))
    count = max(1, len(ids) // size)
    for i in range(count if not most else min(count, most)):
        piece = tuple(ids[i * size : (i + 1) * size])
        words = tokenizer.decode(piece)
        yield Line(i + 1, words, lambda _t, _c, piece=piece, words=words: Prompt(words, (*first, *piece), Target()))


def under_bos(config: ModelConfig, bos: bool | None) -> ModelConfig:
    """The configuration with this beginning of prompts; None: as the model was trained."""
    return config if bos is None else replace(config, prepend_bos=bos)
