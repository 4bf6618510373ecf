"""The table of a card: a row for each thing that can be seen, a column for each model or step."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from circuitlab.analysis.training.scores import repetitions
from circuitlab.counting import number, number_of
from circuitlab.errors import BadModel
from circuitlab.model.records.series_measures import read_series
from circuitlab.training.files import write_whole
from circuitlab.witnesses.estimate import Mean
from circuitlab.witnesses.heads import BLOCK, LISTED, SAMPLES
from circuitlab.witnesses.prompt_sets import NAMES
from circuitlab.witnesses.prose import DEAD, PASSAGES, PIECE
from circuitlab.witnesses.record import Witnesses

HEADING = "## What it can be seen to do"
NONE = "–"  # not measured
FEW = 6  # layers that have numbers of their own, and heads that are named
_SETS = {
    "literal_copying": "literal copying, one token decides",
    "literal_copying_two_tokens": "literal copying, two tokens or more decide",
    "names_continued": "names of several words continued",
    NAMES: "a name said again after a sentence or two, its first token",
    "names_repeated": "names repeated, the indirect object",
}


def table(columns: Mapping[str, Witnesses]) -> list[str]:
    """Lines of Markdown; `columns`: title -> what was measured. Below it what was not, and why."""
    rows = [_rows(witnesses) for witnesses in columns.values()]
    titles = list(dict.fromkeys(title for row in rows for title in row))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {title} | {' | '.join(row.get(title, NONE) for row in rows)} |" for title in titles]
    absent = dict[str, list[str]]()
    for title, witnesses in columns.items():
        for part, why in witnesses.absent.items():
            absent.setdefault(f"{part.replace('_', ' ')}: {why}", []).append(title)
    notes = [f"{NONE} {words} ({', '.join(of)})." for words, of in absent.items()]
    return [*lines, *(["", *notes] if notes else [])]


def _rows(w: Witnesses) -> dict[str, str]:
    """Title of a row -> its words."""
    rows: dict[str, str] = {}
    for name, words in _SETS.items():
        first, other = w.sets[name]["first"], w.sets[name]["over_other"]
        rows[f"{words}: first choice; above the other answer"] = f"{_count(first)}; {_count(other)}" if first.n else NONE
        if name in w.names:
            rows["names of several tokens, the first of them given, said to the end"] = _count(w.names[name])
    twice, best, bare = w.said_twice, w.best, not w.heads["on_bos"]
    rows[f"{PIECE} tokens of held-out prose said twice, where one place decides: right first choice"] = twice["first"].words()
    rows["the same tokens said once"] = twice["once"].words()
    rows["mass of the best induction head on the right source"] = _of(twice["mass"], best.get("text"))
    rows["its mass on the first token there"] = twice["bos"].words()
    rows[f"random blocks, {SAMPLES} × {BLOCK} × 2: prefix matching"] = _of(w.random["prefix_matching"], best.get("random"))
    rows["nats saved by the second saying"] = w.random["saved"].words()
    rows["in-context score on held-out prose, nats"] = w.in_context["score"].words(sign=True)
    rows["minus that of the model without layers"] = w.in_context["controlled"].words(sign=True)
    rows["heads with their own token in the top ten of half their OV rows"] = _heads(w.heads["own_tokens"], 0.5)
    rests = f"heads that rest on the first token with {DEAD} or more, also in prose said twice"
    rows[rests] = "no heads" if bare else NONE if _unknown(w.heads["on_bos"]) else _dead(w)
    for key, words in (("in_use", "in use"), ("by_weights", "by weights")):
        rows[f"different sources among a head's {LISTED} strongest skip-trigrams, {words}"] = _span(w.heads[key])
    rows["words of the prose that are split"] = w.words["split"].words(".3f")
    return rows


def _count(mean: Mean) -> str:
    """ "22 of 24" """
    return f"{round(mean.mean * mean.n)} of {mean.n}" if mean.n else NONE


def _of(mean: Mean, head: str | None) -> str:
    return mean.words() + (f" ({head})" if head else "")


def _unknown(values: list[list[float]]) -> bool:
    return bool(np.isnan(np.array(values)).all())


def _heads(values: list[list[float]], least: float) -> str:
    """How many heads of each layer have so much; of many layers in all, and the layers that have the most."""
    if not values:
        return "no heads"
    if _unknown(values):
        return NONE
    counts, heads = [sum(v >= least for v in row) for row in values], len(values[0])
    if len(values) <= FEW:
        return ", ".join(f"{n} of {heads}" for n in counts) + (" by layer" if len(values) > 1 else "")
    most = max(counts)
    where = f", most in layer {counts.index(most)} ({most} of {heads})" if most else ""
    return f"{sum(counts)} of {heads * len(values)}{where}"


def _dead(w: Witnesses) -> str:
    named = ", ".join(w.dead[:FEW]) + (" …" if len(w.dead) > FEW else "")
    return number_of(len(w.dead), "head") + (f": {named}" if named else "")


def _span(values: list[list[float]]) -> str:
    """Fewest, median, most over heads, by layer; of many layers in all."""
    if not values:
        return "no heads"
    if _unknown(values):
        return NONE
    of = lambda row: f"{min(row):.0f} to {max(row):.0f}, median {np.median(row):.0f}"
    return "; ".join(map(of, values if len(values) <= FEW else [np.ravel(values)]))


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


def _prose_words(protocol: Mapping[str, Any]) -> str:
    """Which prose it was."""
    texts = protocol["text"]
    return "Prose is the passages that ship" if texts == [PASSAGES[-1]] else f"Prose is held out of {', '.join(texts)}"


def section(witnesses: Witnesses, command: str, repeated: str = "") -> str:
    """The section of a card."""
    p = witnesses.protocol
    description = (
        "Answers of the engine, measured by the command below. Prompt sets are those that ship; above the other answer has a"
        f" chance of a half. {_prose_words(p)}: {number_of(p['pieces'], 'piece')} of"
        f" {PIECE} tokens said twice, counted where the token stood exactly once before, errors over pieces;"
        f" in context: {number_of(p['pieces'], 'piece')} of {number_of(p['length'], 'token')}. {repeated}"
    )
    return "\n".join(
        [HEADING, "", textwrap.fill(description, 130), "", *table({witnesses.model: witnesses}), "", f"`{command}`", ""]
    )


def describe(folder: Path, witnesses: Witnesses, command: str) -> None:
    """Write the section into the folder's `card.md`, in place of an earlier one. Raises `BadMachine`."""
    card = folder / "card.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    before, _, rest = text.partition(HEADING)
    after = rest[at + 1 :] if (at := rest.find("\n## ")) >= 0 else ""
    whole = f"{before.rstrip()}\n\n{section(witnesses, command, repeated_text_words(folder))}\n{after}".rstrip() + "\n"
    write_whole(card, whole.encode())
