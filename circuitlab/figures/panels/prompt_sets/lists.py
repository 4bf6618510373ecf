"""Averages over a prompt set that are not by head: neurons, distances, receivers of paths, and orders of terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.attribution.term_importance import TermImportanceParams
from circuitlab.analysis.attribution.token_attribution import NEAR
from circuitlab.analysis.behaviour.over_prompts import OverPromptsResult
from circuitlab.analysis.ordering import descending
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import digits, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, Lines, RowColumn, Rows, ids
from circuitlab.model.subject import Head

LISTED = 40
INPUTS = "QKV"


@dataclass(frozen=True)
class Entries:
    """Entries of an array in the order they are listed: `places` [n] into the flattened array, their names and their ids.

    `heading` is that of the column of names; `total` counts the entries of which the first `LISTED` are here.
    """

    heading: str
    places: np.ndarray
    names: tuple[str, ...]
    ids: np.ndarray
    total: int


RANKED = ("neurons", "path_patching")


def entries_of(result: OverPromptsResult, analysis: str) -> Entries:
    """Neurons and receivers by size of their mean, distances and orders ascending; entries that no prompt has are left out."""
    measured = np.flatnonzero(result.n.ravel() > 0)
    if analysis in RANKED:
        measured = measured[descending(result.mean.ravel()[measured], by_size=True)]
    places = measured[:LISTED]
    indices = np.unravel_index(places, result.mean.shape)
    names = tuple(_name(analysis, tuple(map(int, index))) for index in zip(*indices, strict=True))
    return Entries(HEADINGS[analysis], places, names, ids(*indices), len(measured))


HEADINGS = {"neurons": "neuron", "path_patching": "receiver", "token_attribution": "distance", "term_importance": "terms"}


def _name(analysis: str, index: tuple[int, ...]) -> str:
    if analysis == "neurons":
        return f"L{index[0]}N{index[1]}"
    if analysis == "path_patching":
        return f"{Head(*index[1:])} by {INPUTS[index[0]]}"
    if analysis == "token_attribution":
        return f"{index[0]}" if index[0] < NEAR else f"{NEAR} and more"
    beyond = index[0] > TermImportanceParams().orders
    return "all beyond" if beyond else "direct path" if index[0] == 0 else f"order {index[0]}"


def rows_of(answer: Answer, result: OverPromptsResult, analysis: str) -> Rows:
    """A table of entries with mean, sd and agreement in sign."""
    entries = memo(answer, ("list", analysis), lambda: entries_of(result, analysis))

    def make() -> tuple[RowColumn, ...]:
        mean, sd, n = (a.ravel()[entries.places] for a in (result.mean, result.sd, result.n))
        each = result.values.reshape(len(result.values), -1)[:, entries.places]
        top = top_level(mean)
        places = digits(top)
        n_prompts = RowColumn("prompts", n, digits=0, tip="number of prompts that have this entry")
        return (
            RowColumn(entries.heading, np.array(entries.names, dtype=object)),
            RowColumn("mean", mean, digits=places, bar=True, levels=(-top, top)),
            RowColumn("sd", sd, digits=places, tip="standard deviation over prompts"),
            RowColumn(
                "same sign",
                (np.sign(each) == np.sign(mean)).sum(0) / np.maximum(n, 1),
                digits=2,
                tip="share of prompts whose value has the sign of the mean",
            ),
            *((n_prompts,) if (n != result.counted).any() else ()),
        )

    columns = memo(answer, ("columns", analysis), make)
    return Rows("list", columns, entries.ids, ranked=analysis in RANKED, total=entries.total)


def curve_of(answer: Answer, result: OverPromptsResult) -> Lines:
    """The mean by distance; dashed, one standard deviation to either side."""

    def make() -> Lines:
        mean, sd = result.mean.astype(float), np.nan_to_num(result.sd.astype(float))
        return Lines(
            "distance",
            np.arange(len(mean), dtype=float),
            np.stack([mean, mean + sd, mean - sd]),
            ("mean", "mean + sd", "mean − sd"),
            hues=(0, 0, 0),
            dashed=(False, True, True),
            x_axis=Axis(f"tokens back; {len(mean) - 1}: and more"),
            y_axis=Axis("logit sent"),
        )

    return memo(answer, "curve", make)


def largest_entry(answer: Answer, result: OverPromptsResult, analysis: str) -> tuple[str, np.ndarray]:
    """The entry with the largest mean: (its name, its value [prompt])."""
    entries = memo(answer, ("list", analysis), lambda: entries_of(result, analysis))
    if not entries.names:
        return "", np.full(len(result.prompts), np.nan)
    largest = int(np.argmax(np.abs(result.mean.ravel()[entries.places])))
    name = entries.names[largest]
    if analysis == "token_attribution":
        name = f"distance {name}"
    return name, result.values.reshape(len(result.values), -1)[:, entries.places[largest]]
