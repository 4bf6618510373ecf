"""What a session shows of itself in a notebook: its steps, and under them its report, in a frame of its own.

The report is a page with a style sheet; in a frame that runs no script it can change nothing of the notebook around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from circuitlab import notebook_html as html
from circuitlab.counting import number_of
from circuitlab.model.subject import Conventions
from circuitlab.report.content import Report
from circuitlab.state.cuts import words
from circuitlab.story.setup import FINAL, Encoded, Other, Random, Setup

LARGEST = 8 * 2**20  # bytes of a page that is kept in a notebook's file
HEIGHT = 640  # px; a frame without scripts cannot tell its own
MOST = 40  # steps in the table
HEADS = ("#", "step", "model", "prompt", "conventions", "interventions", "heads", "compared", "shows")


def step_words(title: str, setup: Setup) -> tuple[str, ...]:
    """What of a step its numbers depend on, as its words say it, in the order of `HEADS`: no model is opened."""
    model = " at ".join(str(word) for word in (setup.model, setup.checkpoint) if word not in (None, FINAL))
    match setup.prompt:
        case str() as prompt:
            pass
        case Encoded(text=prompt):
            pass
        case Random(block=block, repeats=repeats):
            prompt = f"{number_of(block, 'random token')} × {repeats}"
        case None:
            prompt = ""
        case ids:
            prompt = number_of(len(ids), "token")
    conventions = "" if setup.conventions is None else " · ".join(setup.conventions.unlike(Conventions(), None))
    heads, shows = " ".join(setup.heads or ()), " ".join(setup.show) or setup.arrange
    return title, model, prompt, conventions, _interventions(setup), heads, _compared(setup), shows


def _interventions(setup: Setup) -> str:
    """Those that are in force."""
    cut = [f"{head} zeroed" for head in setup.cut or ()]
    return ", ".join((*cut, *(words(edit) for edit, on in setup.edits or () if on)))


def _compared(setup: Setup) -> str:
    """What is shown of a comparison, and with which reference where it has a name."""
    if setup.compare in (None, "now"):
        return ""
    first = setup.pin[0] if isinstance(setup.pin, tuple) and setup.pin else None
    label = first.label if isinstance(first, Other) else ""
    return f"{setup.compare}: {label}" if label else str(setup.compare)


def table_of_steps(name: str, title: str, rows: Sequence[Sequence[str]]) -> str:
    """A session's title and a row for each step, as `HEADS` names it, without what no step has."""
    listed = [(str(i), *row) for i, row in enumerate(rows[:MOST], 1)]
    columns = [i for i, _ in enumerate(HEADS) if any(row[i] for row in listed)]
    numbered = [[row[i] for i in columns] for row in listed]
    more = f"and {number_of(len(rows) - MOST, 'step')} more" if len(rows) > MOST else ""
    table = html.table([HEADS[i] for i in columns], numbered) if numbered else ""
    return (
        html.line(html.bold(title or name), html.text_html(name if title else ""))
        + table
        + html.line(html.text_html(more), quiet=True)
    )


def framed(report: Report) -> str:
    """The report as a page in a frame, without the files of its numbers, which Python has; "" for one that is too large."""
    from circuitlab.report.page import page_of

    without = lambda section: replace(section, figures=tuple(replace(one, data=()) for one in section.figures))
    page = page_of(replace(report, sections=tuple(map(without, report.sections))))
    if len(page) > LARGEST:
        return html.line(
            html.text_html('The report is too large for a notebook: `.report("report.html")` writes it.'), quiet=True
        )
    style = f"width:100%;height:{HEIGHT}px;border:1px solid rgba(128,128,128,0.5)"
    return f'<iframe sandbox="" title="Report" style="{style}" srcdoc="{escape(page)}"></iframe>'
