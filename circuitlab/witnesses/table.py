"""The table of a card: a row for each thing that can be seen, a column for each model or step."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from circuitlab.analysis.training.scores import repetitions
from circuitlab.counting import number, number_of
from circuitlab.errors import BadModel
from circuitlab.model.records.series_measures import read_series
from circuitlab.training.files import write_whole
from circuitlab.witnesses.estimate import Mean
from circuitlab.witnesses.heads import BLOCK, LISTED, SAMPLES
from circuitlab.witnesses.prose import DEAD, PIECE
from circuitlab.witnesses.record import Witnesses

HEADING = "## What it can be seen to do"
_SETS = {
    "literal_copying": "literal copying, one token decides",
    "literal_copying_two_tokens": "literal copying, two tokens or more decide",
    "names_continued": "names of several tokens continued",
    "names_repeated": "names repeated, the indirect object",
}


def table(columns: Mapping[str, Witnesses]) -> list[str]:
    """Lines of Markdown; `columns`: title -> what was measured."""
    rows = [_rows(found) for found in columns.values()]
    titles = list(dict.fromkeys(title for row in rows for title in row))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return [*lines, *(f"| {title} | {' | '.join(row.get(title, '–') for row in rows)} |" for title in titles)]


def _rows(w: Witnesses) -> dict[str, str]:
    """Title of a row -> its words."""
    rows: dict[str, str] = {}
    for name, words in _SETS.items():
        first, other = w.sets[name]["first"], w.sets[name]["over_other"]
        rows[f"{words}: first choice; above the other answer"] = f"{_count(first)}; {_count(other)}"
    twice, best = w.said_twice, w.best
    rows[f"{PIECE} tokens of held-out prose said twice, where one place decides: right first choice"] = twice["first"].words()
    rows["mass of the best induction head on the right source"] = _of(twice["mass"], best.get("text"))
    rows["its mass on BOS there"] = twice["bos"].words()
    rows[f"random blocks, {SAMPLES} × {BLOCK} × 2: prefix matching"] = _of(w.random["prefix_matching"], best.get("random"))
    rows["nats saved by the second saying"] = w.random["saved"].words()
    rows["in-context score on held-out prose, nats"] = w.in_context["score"].words(sign=True)
    rows["minus that of the model without layers"] = w.in_context["controlled"].words(sign=True)
    rows["heads with their own token in the top ten of half their OV rows"] = _heads(w.heads["own_tokens"], 0.5)
    rows[f"heads that rest on BOS with {DEAD} or more, also in prose said twice"] = number_of(len(w.dead), "head") + (
        f": {', '.join(w.dead)}" if w.dead else ""
    )
    for key, words in (("in_use", "in use"), ("by_weights", "by weights")):
        rows[f"different sources among a head's {LISTED} strongest skip-trigrams, {words}"] = _span(w.heads[key])
    return rows


def _count(mean: Mean) -> str:
    """ "22 of 24" """
    return f"{round(mean.mean * mean.n)} of {mean.n}" if mean.n else "–"


def _of(mean: Mean, head: str | None) -> str:
    return mean.words() + (f" ({head})" if head else "")


def _heads(values: list[list[float]], least: float) -> str:
    """How many heads of each layer have so much."""
    if not values:
        return "no heads"
    return ", ".join(f"{sum(v >= least for v in row)} of {len(row)}" for row in values) + (" by layer" if len(values) > 1 else "")


def _span(values: list[list[float]]) -> str:
    """Fewest, median, most over heads, by layer."""
    of = lambda row: f"{min(row):.0f} to {max(row):.0f}, median {np.median(row):.0f}"
    return "; ".join(of(row) for row in values) or "no heads"


def repeated_text_words(folder: Path) -> str:
    """A sentence on repeated text along training, from the series; "" without one."""
    try:
        m = read_series(folder)
    except BadModel:
        return ""
    second = repetitions(m["repeated_text_loss_by_index"])[:, 1]
    low = int(np.argmin(second))
    where = "at the end" if low == len(second) - 1 else f"at step {m.steps[low]:,}; {number(second[-1])} at the end"
    return f"Held-out text said again costs {number(second[low])} nats a token at least, {where}."


def section(found: Witnesses, command: str, repeated: str = "") -> str:
    """The section of a card."""
    p = found.protocol
    description = (
        "Answers of the engine, measured by the command below. Prompt sets are those that ship; above the other answer has a"
        f" chance of a half. Prose is held out of {', '.join(p['text'])}: {number_of(p['pieces'], 'piece')} of"
        f" {PIECE} tokens said twice, counted where the token stood exactly once before, errors over pieces;"
        f" in context: {number_of(p['pieces'], 'piece')} of {number_of(p['length'], 'token')}. {repeated}"
    )
    return "\n".join([HEADING, "", textwrap.fill(description, 130), "", *table({found.model: found}), "", f"`{command}`", ""])


def describe(folder: Path, found: Witnesses, command: str) -> None:
    """Write the section into the folder's `card.md`, in place of an earlier one. Raises `BadMachine`."""
    card = folder / "card.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    before, _, rest = text.partition(HEADING)
    after = rest[at + 1 :] if (at := rest.find("\n## ")) >= 0 else ""
    whole = f"{before.rstrip()}\n\n{section(found, command, repeated_text_words(folder))}\n{after}".rstrip() + "\n"
    write_whole(card, whole.encode())
