"""The syntax of interventions as text: `zero z L1H1`, `patch resid_pre L2 @5 from "…"`; `read_edits` reads, `EditText` writes it.

    EDITS      an EDIT, or several with ; between them
    EDIT       OPERATION SITE WHERE [AT] [AMOUNT] [align ALIGN] [along SITE WHERE [AT]]
    OPERATION  zero mean scale set freeze patch project project_out
    SITE       resid_pre q k v scores pattern z result mlp_out
    WHERE      L1H1, or L1H1,L1H3 of one layer; L1: the whole layer
    AT         @5 or @5,9: positions; @9<-4: at scores and pattern, the cell of destination 9 and source 4; <-4: its whole column
    AMOUNT     scale: by 0.5   set: to 0 or to 0.1,0.2,…   patch: from PROMPT   mean: of PROMPT (this prompt without it)
               project, project_out: on 0.1,0.2,… or on " cat", or on " cat" - " dog": the directions that W_U reads
    PROMPT     "a text", or [0,5,9]: token ids as they are
    ALIGN      same, or for each position here the one there: 0,1,-1 (−1: none); left out, it is worked out as in the window

A position may be negative, from the end of the prompt, or a text: `@" cat"` is its last token where it occurs last. What names
text or counts from the end needs a model and a prompt: `story/edits_in_model.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from circuitlab.errors import UsageError, quoted
from circuitlab.model.intervention import DIRECTED, SITE_NAMES, Intervention, Op, Site
from circuitlab.model.subject import Head

Place = int | str  # a position, or a text whose last token is there
T = TypeVar("T")
OPS: tuple[str, ...] = get_args(Op)
EXAMPLE = 'Write it like `zero z L1H1`, `scale z L1H1,L1H3 by 0.5` or `patch resid_pre L2 @5 from "…"`.'
_AMOUNT: Mapping[str, str] = {"scale": "by", "set": "to", "patch": "from", "mean": "of", "project": "on", "project_out": "on"}
LITERAL = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""  # a text in quotation marks
_PIECE = re.compile(
    rf"""\s*(?:(?P<text>{LITERAL})
    |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign><-|[@,;\[\]-]))""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class SiteText:
    """A site as written: positions and sources may be negative or texts; `()` means all."""

    name: str
    layer: int
    heads: tuple[int, ...] = ()
    positions: tuple[Place, ...] = ()
    sources: tuple[Place, ...] = ()

    def __str__(self) -> str:
        where = ",".join(str(Head(self.layer, h)) for h in self.heads) or f"L{self.layer}"
        at = f" @{_listed(self.positions)}" if self.positions else ""
        sources = f"<-{_listed(self.sources)}" if self.sources else ""
        return f"{self.name} {where}{at}{'' if at or not sources else ' '}{sources}"


@dataclass(frozen=True)
class EditText:
    """One intervention as written; `str` writes it, and `read_edits` reads that again as the same.

    `value`: numbers, or one or two texts of tokens whose unembedding directions are meant (the first minus the second).
    `source`: another prompt as text or ids, () for none. `align`: None where it is to be worked out, () the same positions.
    """

    op: str
    site: SiteText
    value: tuple[float, ...] | tuple[str, ...] = ()
    source: str | tuple[int, ...] = ()
    align: tuple[int, ...] | None = None
    path_from: SiteText | None = None

    def __str__(self) -> str:
        parts = [self.op, str(self.site)]
        if self.value:
            named = isinstance(self.value[0], str)
            parts += [_AMOUNT[self.op], (" - " if named else ",").join(map(_literal, self.value))]
        if isinstance(self.source, str) or self.source:
            prompt = _literal(self.source) if isinstance(self.source, str) else f"[{_listed(self.source)}]"
            parts += [_AMOUNT[self.op], prompt]
        if self.align is not None:
            parts += ["align", _listed(self.align) or "same"]
        if self.path_from is not None:
            parts += ["along", str(self.path_from)]
        return " ".join(parts)


def text_of_edit(edit: Intervention) -> EditText:
    """An intervention as it is written; `plain_edit` of what is read again is the same intervention."""
    site = lambda one: SiteText(one.name, one.layer, one.heads, one.positions, one.sources)
    sender = None if edit.path_from is None else site(edit.path_from)
    align = edit.align if edit.op == "patch" else None
    return EditText(edit.op, site(edit.site), tuple(map(float, edit.value)), edit.source, align, sender)


def plain_edit(edit: EditText) -> Intervention:
    """The intervention that is written. Raises `UsageError` where it names text, which only an open model can read."""
    texts = [*edit.site.positions, *edit.site.sources, *edit.value, edit.source]
    texts += [*edit.path_from.positions, *edit.path_from.sources] if edit.path_from else []
    if named := [text for text in texts if isinstance(text, str)]:
        raise UsageError(
            "The intervention names text, and there is no model to read it.",
            expected="token ids and positions",
            got=quoted(named[0]),
            remedy="Pass the words to an open model, or write ids as in [0,5,9].",
        )
    site: Callable[[SiteText], Site] = lambda s: Site(s.name, s.layer, s.heads, s.positions, s.sources)  # type: ignore[arg-type]
    sender = None if edit.path_from is None else site(edit.path_from)
    return Intervention(edit.op, site(edit.site), edit.value, edit.source, edit.align or (), sender)  # type: ignore[arg-type]


def read_edits(text: str) -> tuple[EditText, ...]:
    """The interventions that a text says, several with ; between them. Raises `UsageError`: what was expected, and where."""
    reader = _Reader(text)
    edits = [_edit(reader)]
    while reader.takes(";"):
        if reader.at_end:
            break
        edits.append(_edit(reader))
    if not reader.at_end:
        raise reader.wrong(_still(edits[-1]))
    return tuple(edits)


def _still(edit: EditText) -> str:
    """What may follow an intervention that has been read so far."""
    given = edit.value or edit.source or edit.op not in _AMOUNT
    may = ["@ and positions"] if not (edit.site.positions or edit.site.sources) and (not given or edit.op not in _AMOUNT) else []
    may += [] if given else [_AMOUNT[edit.op]]
    may += ["align"] if edit.op == "patch" and edit.align is None else []
    return " or ".join([*may, *([] if edit.path_from else ["along"]), "; and another one", "the end"])


class _Reader:
    """The pieces of a text, one after the other: texts, numbers, words and signs."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.kind, self.piece, self.start = "", "", 0
        self._next()

    @property
    def at_end(self) -> bool:
        return self.kind == "end"

    def _next(self) -> None:
        self.start = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        match = _PIECE.match(self.text, self.at)
        if match is None:
            self.kind, self.piece = ("end", "") if self.start == len(self.text) else ("other", self.text[self.start])
            return
        self.kind, self.piece, self.at = str(match.lastgroup), match[str(match.lastgroup)], match.end()

    def wrong(self, expected: str) -> UsageError:
        """The error where something else stands at this place than `expected`."""
        rest = self.text[self.start :]
        before = self.text[: self.start].rstrip()
        got = f"{quoted(rest, 60)} after {quoted(before[-40:])}" if rest and before else quoted(rest) if rest else "the end"
        got = got if rest or not before else f"the end after {quoted(before[-60:])}"
        return UsageError("An intervention cannot be read.", expected=expected, got=got, remedy=EXAMPLE)

    def takes(self, *pieces: str) -> str:
        """The word or sign that stands here if it is one of these, "" otherwise."""
        if self.kind in ("word", "sign") and self.piece in pieces:
            found = self.piece
            self._next()
            return found
        return ""

    def whole(self, expected: str) -> int:
        """A whole number."""
        if self.kind != "number" or not re.fullmatch(r"[+-]?\d{1,18}", self.piece):
            raise self.wrong(expected)
        value = int(self.piece)
        self._next()
        return value

    def number(self, expected: str) -> float:
        """A finite number."""
        if self.kind != "number" or not math.isfinite(float(self.piece)):
            raise self.wrong(expected)
        value = float(self.piece)
        self._next()
        return value

    def literal(self, expected: str) -> str:
        """A text in quotation marks."""
        if self.kind != "text":
            raise self.wrong(expected)
        try:
            value = unquoted(self.piece)
        except ValueError as error:
            raise self.wrong('a text whose \\ is followed by \\ " n t or u0041') from error
        self._next()
        return value

    def several(self, one: Callable[[], T]) -> tuple[T, ...]:
        """One or more, with commas between them."""
        found = [one()]
        while self.takes(","):
            found.append(one())
        return tuple(found)


def _edit(reader: _Reader) -> EditText:
    op = reader.takes(*OPS)
    if not op:
        raise reader.wrong(f"an operation: {' '.join(OPS)}")
    site = _site(reader, SITE_NAMES)
    word = _AMOUNT.get(op, "")
    if not word or not reader.takes(word):
        if word and op != "mean":
            raise reader.wrong(f"{word}, and {_AMOUNTS[op]}")
        amount: dict[str, Any] = {}
    elif word in ("from", "of"):
        amount = {"source": _prompt(reader)}
    else:
        amount = {"value": _value(reader, op)}
    align = _align(reader) if op == "patch" and reader.takes("align") else None
    sender = _site(reader, ("result", "mlp_out")) if reader.takes("along") else None
    return EditText(op, site, **amount, align=align, path_from=sender)


_AMOUNTS = {
    "scale": "a number",
    "set": "one number, or one for each element",
    "patch": 'another prompt: "a text", or ids [0,5,9]',
    "project": 'a direction: numbers, or a token such as " cat"',
    "project_out": 'a direction: numbers, or a token such as " cat"',
}


def _site(reader: _Reader, names: tuple[str, ...]) -> SiteText:
    name = reader.takes(*names)
    if not name:
        raise reader.wrong(f"a site: {' '.join(names)}")
    layer, heads = _where(reader)
    place = lambda: _place(reader)
    positions = reader.several(place) if reader.takes("@") else ()
    sources = reader.several(place) if reader.takes("<-") else ()
    return SiteText(name, layer, heads, positions, sources)


def _where(reader: _Reader) -> tuple[int, tuple[int, ...]]:
    """(layer, its heads)."""
    expected = "a head such as L1H1, or a layer such as L1"
    match = re.fullmatch(r"[Ll](\d{1,9})", reader.piece) if reader.kind == "word" else None
    if match:
        reader.takes(reader.piece)
        return int(match[1]), ()
    heads = reader.several(lambda: _head(reader, expected))
    if len({head.layer for head in heads}) > 1:
        got = ",".join(map(str, heads))
        remedy = f"Write one for each layer, with ; between them: … {heads[0]}; … {heads[-1]}."
        raise UsageError("An intervention is at one layer.", expected="heads of one layer", got=got, remedy=remedy)
    return heads[0].layer, tuple(head.head for head in heads)


def _head(reader: _Reader, expected: str) -> Head:
    if reader.kind != "word" or not re.fullmatch(r"[Ll]\d{1,9}[Hh]\d{1,9}", reader.piece):
        raise reader.wrong(expected)
    head = Head.parse(reader.piece)
    reader.takes(reader.piece)
    return head


def _place(reader: _Reader) -> Place:
    expected = 'a position such as 5, -1 or " cat"'
    return reader.literal(expected) if reader.kind == "text" else reader.whole(expected)


def _prompt(reader: _Reader) -> str | tuple[int, ...]:
    expected = 'another prompt: "a text", or ids [0,5,9]'
    if reader.kind == "text":
        return reader.literal(expected)
    if not reader.takes("["):
        raise reader.wrong(expected)
    ids = reader.several(lambda: reader.whole("a token id"))
    if not reader.takes("]"):
        raise reader.wrong(", or ]")
    return ids


def _value(reader: _Reader, op: str) -> tuple[float, ...] | tuple[str, ...]:
    if reader.kind != "text" or op not in DIRECTED:
        return reader.several(lambda: reader.number(_AMOUNTS[op]))
    tokens = [reader.literal(_AMOUNTS[op])]
    if reader.takes("-"):
        tokens.append(reader.literal('another token, such as " dog"'))
    return tuple(tokens)


def _align(reader: _Reader) -> tuple[int, ...]:
    expected = "same, or a position there for each position here, −1 for none"
    return () if reader.takes("same") else reader.several(lambda: reader.whole(expected))


def unquoted(piece: str) -> str:
    """The text of a literal in " or '. Raises `ValueError` for an escape that JSON does not have."""
    if piece[0] == "'":
        inner = re.sub(r'\\.|"', lambda m: {"\\'": "'", '"': '\\"'}.get(m[0], m[0]), piece[1:-1], flags=re.DOTALL)
        piece = f'"{inner}"'
    return json.loads(piece, strict=False)


def _literal(value: str | float) -> str:
    """A text in quotation marks, or a number that reads back as the same."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _listed(values: tuple[str | float, ...]) -> str:
    return ",".join(map(_literal, values))
