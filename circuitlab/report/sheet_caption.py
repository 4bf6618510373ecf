"""The caption of a sheet as plain text and as LaTeX: parts, conventions, the model with its hash, what was computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from circuitlab import __version__
from circuitlab.analysis.base import Result, SeriesRef, TextRef
from circuitlab.disk.paths import base_name
from circuitlab.engine.codec import as_text
from circuitlab.engine.request import Answer, Request
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.report.latex import comment, escaped
from circuitlab.report.prompts import PromptText
from circuitlab.report.sheet_cell import SheetCell

MADE = "Made with CircuitLab"
HASH = 12  # characters of a hash in LaTeX, whose comments have all of it


@dataclass(frozen=True, eq=False)
class SheetCaption:
    """`title`: of the whole; `shared`, `own`: what all parts say of themselves and what each says, by letter.

    `prompts`: all that its numbers are of, in full.
    """

    title: str
    cells: tuple[SheetCell, ...]
    shared: tuple[str, ...]
    own: Mapping[str, tuple[str, ...]]
    prompts: tuple[PromptText, ...] = ()

    def plain(self) -> str:
        """Paragraphs of text: the title, one for each part, what they share, models, what was computed."""
        parts = [f"{cell.letter}{'  ' if cell.letter else ''}{_line(_sentence(self._words(cell)))}" for cell in self.cells]
        shared = [_line(_sentence("; ".join(self.shared)))] if self.shared else []
        models = [_line(f"Model: {words}") for words in self.models()]
        paragraphs = ([_line(_sentence(self.title))], parts, shared, models, self._prompts(), list(map(_line, self.requests())))
        return "\n\n".join("\n".join(lines) for lines in (*filter(None, paragraphs), [f"{MADE} {__version__}."])) + "\n"

    def latex(self, picture: str, width_mm: float) -> str:
        r"""A `\caption` with bold letters; what was computed and whole hashes are comments."""
        letters = [
            (rf"\textbf{{{cell.letter}}}, " if cell.letter else "") + escaped(_sentence(self._words(cell))) for cell in self.cells
        ]
        models = [escaped(f"Model: {words}.") for words in self.models(HASH)]
        shared = [escaped(_sentence("; ".join(self.shared)))] if self.shared else []
        body = "\n  ".join((rf"\textbf{{{escaped(_sentence(self.title))}}}", *letters, *shared, *models))
        comments = [f"\\includegraphics[width={width_mm:g}mm]{{{picture}}}", *(f"Model: {m}" for m in self.models())]
        comments += [*self._prompts(), *self.requests(), f"{MADE} {__version__}."]
        return "\n".join((*map(comment, comments), rf"\caption[{escaped(self.title)}]{{%", f"  {body}}}", ""))

    def _words(self, cell: SheetCell) -> str:
        return "; ".join(filter(None, (cell.title, *self.own.get(cell.letter, ()))))

    def _prompts(self) -> list[str]:
        """The prompts in full, a few lines each."""
        named = ((f" ({one.name})" if one.name else "", one.plain()) for one in self.prompts)
        return [line for name, (first, *more) in named for line in (f"Prompt{name}: {first}", *more)]

    def models(self, characters: int = 64) -> list[str]:
        """The name, the training step and the hash, where it is known, of each model, and of each measured training."""
        answers = [answer for cell in self.cells for roles in cell.answers.values() for answer in roles.values()]
        series = (_training(ref, characters) for answer in answers for ref in _series(answer.request.params))
        return list(dict.fromkeys((*(_model(answer, characters) for answer in answers), *series)))

    def requests(self) -> list[str]:
        """What was computed for each part and its reference, a line each, in words: its data have the requests themselves."""
        lines: list[str] = []
        for cell in self.cells:
            of = f" for {cell.letter}" if cell.letter else ""
            for side, roles in cell.answers.items():
                words = dict.fromkeys(request_words(answer.request) for answer in roles.values())
                lines += [f"Computed{of}{', reference' if side == 'ref' else ''}: {'; '.join(words)}"] if words else []
        return lines


def request_words(request: Request[Result]) -> str:
    """The analysis, and the parameters that are not as declared, in words; files by their names alone."""
    fields = {f.name: f.default for f in dataclasses.fields(request.params) if f.init}
    values = {name: getattr(request.params, name) for name in fields}
    changed = ", ".join(_parameter(_spaced(name), value) for name, value in values.items() if value != fields[name])
    return f"{_spaced(request.analysis.name)}{f' ({changed})' if changed else ''}"


def _parameter(name: str, value: object) -> str:
    """A parameter with its value: "position 38"; one that is on by its name alone."""
    if value is True:
        return name
    return f"no {name}" if value is False or value is None else f"{name} {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, TextRef):
        return base_name(value.path)
    if isinstance(value, SeriesRef):
        return base_name(value.source)
    if isinstance(value, tuple) and not isinstance(value, (Head, Target)):
        return " ".join(map(_value, value))
    text = as_text(value)
    return _spaced(text) if isinstance(value, str) and value.isidentifier() else text


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _model(answer: Answer[Result], characters: int) -> str:
    ref: ModelRef = answer.request.subject.model
    config = answer.provenance.config[:characters]
    settings = f", configuration {config}{'…' if characters < len(answer.provenance.config) else ''}" if config else ""
    return f"{ref.named(1)}{_hash(answer.provenance.weights, characters)}{settings}"


def _series(params: Any) -> list[SeriesRef]:
    """The measured trainings that parameters name."""
    values = [getattr(params, f.name) for f in dataclasses.fields(params)]
    every = (one for value in values for one in (value if isinstance(value, tuple) else (value,)))
    return [one for one in every if isinstance(one, SeriesRef)]


def _training(ref: SeriesRef, characters: int) -> str:
    return f"{ModelRef(ref.source).named(1)}, measures of its whole training{_hash(ref.sha256, characters)}"


def _hash(sha256: str, characters: int) -> str:
    return f", sha256 {sha256[:characters]}{'…' if characters < len(sha256) else ''}" if sha256 else ", sha256 not known"


def _sentence(text: str) -> str:
    return f"{text}." if text and text[-1] not in ".!?…" else text


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
