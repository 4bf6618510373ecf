"""The prompts that the numbers of a report or a sheet are of, in full: their texts, tokens and ids, each prompt once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import BadInput
from circuitlab.model.text.tokenizer import Tokenizer

_Key = tuple[str, tuple[int, ...]]  # what tokens mean, and which they are
PATCHED = "source of a patch"  # another prompt, whose values an intervention or a panel puts into this one


@dataclass(frozen=True)
class PromptText:
    """One prompt. `tokens`: their display forms, () for a model without a tokenizer; `bos`: which special token is first,
    in words.

    `uses`: where its numbers stand.
    """

    text: str
    ids: tuple[int, ...]
    tokens: tuple[str, ...] = ()
    bos: str = ""
    uses: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Where it is used."""
        return "; ".join(self.uses)

    @property
    def heading(self) -> str:
        """`name` as a heading."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def facts(self) -> tuple[str, ...]:
        """How many tokens, which, and their ids: apart by spaces, of which no token has one."""
        count = ", ".join(filter(None, (number_of(len(self.ids), "token"), self.bos)))
        tokens = f"tokens: {' '.join(token.replace(' ', '·') for token in self.tokens)}" if self.tokens else ""
        return tuple(filter(None, (count, tokens, f"ids: {' '.join(map(str, self.ids))}")))

    def lines(self) -> tuple[str, ...]:
        """For a page that keeps line breaks: the text as it is, then `facts`."""
        return (*((f"“{self.text}”",) if self.tokens else ()), *self.facts)

    def plain(self) -> tuple[str, ...]:
        """For a text file: as `lines`, the text in one line, as JSON writes it."""
        return (*((_quoted(self.text),) if self.tokens else ()), *(_printable(line) for line in self.facts))


@dataclass
class Prompts:
    """Gathers prompts as answers come, in their order."""

    engine: Engine
    _uses: dict[_Key, dict[tuple[str, str], None]] = field(default_factory=dict[_Key, dict[tuple[str, str], None]])
    _texts: dict[_Key, PromptText] = field(default_factory=dict[_Key, PromptText])

    def add(self, answers: Iterable[Answer], where: str, side: str = "") -> None:
        """Those of answers. `where`: "step 3", "A"; `side`: "reference", "" for now. Raises `BadModel`."""
        for answer in answers:
            for tokens, role in _prompts_of(answer.request):
                tokenizer = self.engine.store.open(answer.request.subject.model).opened.weights.tokenizer
                key = ("" if tokenizer is None else tokenizer.vocabulary), tokens
                self._uses.setdefault(key, {})[role or side, where] = None
                if key in self._texts:
                    continue
                if tokenizer is None:
                    self._texts[key] = PromptText("", tokens)
                    continue
                shown = tuple(map(tokenizer.display, tokens))
                bos = "no BOS"
                if tokenizer.is_special(tokens[0]):
                    bos = "BOS first" if tokens[0] == tokenizer.bos else f"{shown[0]} first"
                self._texts[key] = PromptText(_text(tokenizer, tokens, shown), tokens, shown, bos)

    def texts(self) -> tuple[PromptText, ...]:
        """Each prompt once."""
        each = ((text, _uses_words(self._uses[key])) for key, text in self._texts.items())
        return tuple(PromptText(text.text, text.ids, text.tokens, text.bos, uses) for text, uses in each)


def _prompts_of(request: Request) -> Iterator[tuple[tuple[int, ...], str]]:
    """The tokens that a request reads, each with its part in it, "" for its own prompt."""
    params = request.params
    if request.prompt:
        yield request.prompt, ""
    if getattr(params, "reads_other", False) and getattr(params, "source", ()):
        yield params.source, PATCHED
    yield from ((edit.source, PATCHED) for edit in request.edits if edit.source)


def _text(tokenizer: Tokenizer, tokens: tuple[int, ...], shown: tuple[str, ...]) -> str:
    """The text of a prompt; its tokens, where it cannot be read back from them."""
    try:
        return tokenizer.told(tokens)
    except BadInput:
        return "".join(shown)


def _uses_words(uses: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Where a prompt is used: ("steps 1, 3", "reference in step 2")."""
    by_role: dict[str, list[str]] = {}
    for role, where in uses:
        by_role.setdefault(role, []).append(where)
    return tuple(" in ".join(filter(None, (role, _counted(where)))) for role, where in by_role.items())


def _counted(where: list[str]) -> str:
    """("step 1", "step 3") as "steps 1, 3"."""
    places = list(filter(None, where))
    if len(places) > 1 and all(place.startswith("step ") for place in places):
        return f"steps {', '.join(place.removeprefix('step ') for place in places)}"
    return ", ".join(places)


def _quoted(text: str) -> str:
    return _printable(json.dumps(text, ensure_ascii=False))


def _printable(text: str) -> str:
    """With what no editor shows as escapes."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
