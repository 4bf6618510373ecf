"""A report as one HTML page that needs nothing besides: no script, no network, figures as vectors, their numbers inside.

    html = page(session, engine, fronts, ctx)      # opens models, computes, draws
    html = page_of(report)                         # draws what a worker has computed: on the thread of the window

All that comes from a person, a tokenizer or a file passes `markup.text`, `markup.prose` or `inline_svg.inline`. The same report
gives the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass

from circuitlab import __version__
from circuitlab.analysis.base import Ctx
from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.errors import CircuitLabError, reason
from circuitlab.figures.marks import joined
from circuitlab.report.answer_data import AnswerData, ShownTable, rows_words
from circuitlab.report.content import ModelFacts, Report, Section, compared_words, report_of
from circuitlab.report.inline_svg import inline
from circuitlab.report.markup import prose, text
from circuitlab.report.plates import PAPER, PlateCaption, StepPlate, Unshown, plates_of
from circuitlab.report.requests import Fronts
from circuitlab.report.style import STYLE
from circuitlab.session_files.session import Session

LARGEST_DATA = 16 * 2**20  # bytes of all files inside a page
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
ORIGIN = "Where this comes from"
_HASH = re.compile("sha256 ([0-9a-f]{8,})")
MIME = {"csv": "text/csv", "json": "application/json", "npz": "application/octet-stream"}


def page(
    session: Session,
    engine: Engine,
    fronts: Fronts,
    ctx: Ctx | None = None,
    source: str = "",
    asides: bool = False,
    paper: Paper = PAPER,
) -> str:
    """The whole page of a session's story, computed now. `fronts`, `source`: see `report_of`; `asides`: with the speaker's own.

    Raises `Cancelled`; what cannot be computed is said in its place.
    """
    return page_of(report_of(session, engine, fronts, ctx, source), asides, paper)


def page_of(report: Report, asides: bool = False, paper: Paper = PAPER) -> str:
    """The whole page of a report."""
    return "".join(page_parts(report, asides, paper))


def page_parts(report: Report, asides: bool = False, paper: Paper = PAPER) -> Iterator[str]:
    """The page in parts, two for each figure: a window draws the next where its events leave room."""
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{text(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="CircuitLab {text(__version__)}">\n<title>{text(report.title)}</title>\n'
        f'<style>{STYLE}</style>\n</head>\n<body>\n<div class="sheet">\n'
    )
    yield from body_parts(report, asides, paper)
    yield "</div>\n</body>\n</html>\n"


def body_parts(report: Report, asides: bool, paper: Paper) -> Iterator[str]:
    """What stands between head and end of the page, in parts."""
    writer = _Writer(report, asides, paper)
    yield _head(report)
    yield "<main>\n"
    for number, section in enumerate(report.sections, start=1):
        yield from writer.section(section, number)
    yield "</main>\n"
    yield _origin(report)


# -- what stands around the steps -----------------------------------------------------------------------------------------------


def _head(report: Report) -> str:
    source = f" of {report.source}" if report.source else ""
    parts = [f'<header>\n<p class="kicker">Report{text(source)}</p>\n<h1 dir="auto">{text(report.title)}</h1>\n']
    if len(report.sections) > 1:
        steps = (
            f'<li><a href="#step-{i}" dir="auto">{text(section.title)}</a></li>\n' for i, section in enumerate(report.sections, 1)
        )
        last = f'<li class="last"><a href="#origin">{ORIGIN}</a></li>\n'
        parts.append(f'<nav aria-label="Contents">\n<ol>\n{"".join(steps)}{last}</ol>\n</nav>\n')
    return "".join((*parts, "</header>\n"))


def _origin(report: Report) -> str:
    parts = [f'<footer class="facts" id="origin">\n<h2>{ORIGIN}</h2>\n']
    for heading, entries in origin_words(report):
        named = "".join(map(_entry, entries))
        parts.append(f"<h3>{text(heading)}</h3>\n{named}")
    return "".join((*parts, "</footer>\n"))


def _entry(entry: Entry) -> str:
    name, lines = entry
    if not name:
        return "".join(f'<p dir="auto">{text(line)}</p>\n' for line in lines)
    words = "".join(f'<dd dir="auto">{with_hashes(line, "span")}</dd>' for line in lines)
    return f'<dl><dt dir="auto">{text(name)}</dt>{words}</dl>\n'


def with_hashes(line: str, tag: str) -> str:
    """A line of text as HTML, each hash in it as an element of the class `hash`."""
    return _HASH.sub(lambda match: f'sha256 <{tag} class="hash">{match[1]}</{tag}>', text(line))


Entry = tuple[str, tuple[str, ...]]  # a name, "" for none, and lines about it


def origin_words(report: Report) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """What a report says of its origin: headings, and under each what it is about with lines of text."""
    if report.models:
        yield "Model" if len(report.models) == 1 else "Models", tuple((one.name, _model_lines(one)) for one in report.models)
    if conventions := tuple(dict.fromkeys(joined(*one.conventions) for one in report.sections if one.conventions)):
        yield "Conventions", (("", conventions),)
    if report.prompts:
        yield "Prompt" if len(report.prompts) == 1 else "Prompts", tuple((one.heading, one.lines()) for one in report.prompts)
    if report.notes:
        yield "Notes", tuple((about or "This session", (words,)) for about, words in report.notes)
    versions = ", ".join(f"{name} {version}" for name, version in report.versions)
    yield "Numbers", (("", (*report.origins, f"Report written with {versions}.")),)


def _model_lines(model: ModelFacts) -> tuple[str, ...]:
    lines = [joined(model.origin, model.sizes), f"assumed: {', '.join(model.assumed)}" if model.assumed else "", *model.remarks]
    return (*filter(None, lines), *(f"{which}: sha256 {sha256 or 'not known'}" for which, sha256 in model.weights))


# -- steps --------------------------------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    """Writes the steps, and counts their figures and the bytes inside."""

    report: Report
    asides: bool
    paper: Paper
    figures: int = 0
    size: int = 0

    def section(self, section: Section, number: int) -> Iterator[str]:
        several = len(self.report.sections) > 1
        counted = f'<span class="number">{number}</span>' if several else ""
        heading = f'<h2 id="heading-{number}" dir="auto">{counted}{text(section.title)}</h2>\n'
        yield f'<section id="step-{number}" aria-labelledby="heading-{number}">\n{heading}'
        if section.text.strip():
            yield f'<div class="prose">\n{prose(section.text)}</div>\n'
        if self.asides and section.aside.strip():
            yield f'<div class="prose aside">\n{prose(section.aside)}</div>\n'
        yield from (f'<p class="remark">{text(line)}</p>\n' for line in section.remarks)
        if section.error is not None:
            yield _failed("This step could not be set up.", section.error)
        for one in plates_of(section, self.paper):
            yield ""  # it has been laid out, and is painted in the next part
            yield self.plate(one)
        yield "</section>\n"

    def plate(self, one: StepPlate | Unshown) -> str:
        """A figure with its caption and its numbers, or why there is none."""
        if isinstance(one, Unshown):
            return _failed(one.what, one.error, one.explain)
        number = self.figures + 1
        try:
            svg = inline(one.plate.svg(), f"f{number}-", one.caption.spoken)
        except CircuitLabError as error:
            return _failed(f"{one.caption.parts[0].title} could not be drawn.", error)
        finally:
            one.plate.close()
        self.figures = number
        caption, data = _caption(number, one.caption), self.data(one)
        return f'<figure id="figure-{number}">\n<div class="plate">{svg.markup}</div>\n{caption}{data}</figure>\n'

    def data(self, one: StepPlate) -> str:
        """The numbers of a figure, folded."""
        answers = "".join(
            self._answer(data, part.letter)
            for figure, part in zip(one.figures, one.caption.parts, strict=True)
            for data in figure.data
        )
        return f"<details>\n<summary>Numbers of figure {self.figures}</summary>\n{answers}</details>\n" if answers else ""

    def _answer(self, data: AnswerData, letter: str) -> str:
        title, rows = joined(letter, data.title), rows_words(data.table)
        return f"<h4>{text(title)} <small>{text(rows)}{self._file(data, letter)}</small></h4>\n{_table(data.table)}"

    def _file(self, data: AnswerData, letter: str) -> str:
        """The link to take an answer away, or why there is none."""
        if data.file is None:
            return text(f" · no file inside: {data.why}")
        if self.size + len(data.file) > LARGEST_DATA:
            return text(
                f" · no file inside: the page would be larger than {LARGEST_DATA >> 20} MiB; `circuitlab compute` writes it"
            )
        self.size += len(data.file)
        name = f"figure-{self.figures}{letter.lower()}-{data.name}.{data.form}"
        content = base64.b64encode(data.file).decode("ascii")
        return f' · <a download="{text(name)}" href="data:{MIME[data.form]};base64,{content}">{text(data.form.upper())}</a>'


def _failed(what: str, error: CircuitLabError | None, explain: bool = True) -> str:
    """Why something is not there, in its place, and what to do."""
    lines = [f"<p><strong>{text(what)}</strong></p>"]
    if error is not None and explain:
        lines.append(f"<p>{text(reason(error))}</p>")
    if error is not None and (compared := compared_words(error)):
        lines.append(f"<p>{text(compared)}</p>")
    if error is not None and error.remedy:
        lines.append(f'<p class="do">{text(error.remedy)}</p>')
    return f'<div class="failed" role="note">\n{"".join(lines)}</div>\n'


def caption_html(number: int, caption: PlateCaption) -> str:
    """A caption as HTML: what is shown; on a line of its own what it is of, and under which conventions."""
    parts = [f"<b>Figure {number}.</b>"]
    for part in caption.parts:
        letter = f"<b>{text(part.letter)}</b> " if part.letter else ""
        words = f" {text(part.words)}." if part.words else ""
        full_stop = "" if part.title.endswith(("?", "!", ".")) else "."
        parts.append(f'<span class="title" dir="auto">{letter}{text(part.title)}{full_stop}</span>{words}')
    shared = joined(caption.of, caption.words)
    return " ".join(parts) + (f"<br>{text(shared)}" if shared else "")


def _caption(number: int, caption: PlateCaption) -> str:
    return f'<figcaption id="f{number}-caption">{caption_html(number, caption)}</figcaption>\n'


def _table(table: ShownTable) -> str:
    name = lambda numeric: ' class="n"' if numeric else ' dir="auto"'
    heads = "".join(f'<th scope="col"{name(n)}>{text(head)}</th>' for head, n in zip(table.heads, table.numeric, strict=True))
    row = lambda cells: "".join(f"<td{name(n)}>{text(cell)}</td>" for cell, n in zip(cells, table.numeric, strict=True))
    rows = "\n".join(f"<tr>{row(cells)}</tr>" for cells in table.cells)
    return f'<div class="rows" tabindex="0"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n'
