"""What a prompt set gives that is no map of heads: neurons, distances, receivers of paths, and orders of terms, with spread."""

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
WAYS = "QKV"


@dataclass(frozen=True)
class Listed:
    """The array as a list: `places` [n] into its flattened entries, the first being listed first; a name and a key for each."""

    head: str
    places: np.ndarray
    names: tuple[str, ...]
    keys: np.ndarray
    total: int


RANKED = ("neurons", "path_patching")


def listed(result: OverPromptsResult, analysis: str) -> Listed:
    """Neurons and receivers by size of their mean, distances and orders as they are counted; what no prompt has is left out."""
    known = np.flatnonzero(result.n.ravel() > 0)
    if analysis in RANKED:
        known = known[descending(result.mean.ravel()[known], by_size=True)]
    places = known[:LISTED]
    where = np.unravel_index(places, result.mean.shape)
    names = tuple(_name(analysis, tuple(map(int, at)), result) for at in zip(*where, strict=True))
    return Listed(TITLES[analysis], places, names, ids(*where), len(known))


TITLES = {"neurons": "neuron", "path_patching": "receiver", "token_attribution": "distance", "term_importance": "terms"}


def _name(analysis: str, at: tuple[int, ...], result: OverPromptsResult) -> str:
    if analysis == "neurons":
        return f"L{at[0]}N{at[1]}"
    if analysis == "path_patching":
        return f"{Head(*at[1:])} by {WAYS[at[0]]}"
    if analysis == "token_attribution":
        return f"{at[0]}" if at[0] < NEAR else f"{NEAR} and more"
    beyond = at[0] > TermImportanceParams().orders
    return "all beyond" if beyond else "direct path" if at[0] == 0 else f"order {at[0]}"


def rows_of(answer: Answer, result: OverPromptsResult, analysis: str) -> tuple[Rows, tuple[int, int] | None]:
    """The list with mean, spread, how many prompts agree in sign and have it; (listed, of how many) where not all are."""
    found = memo(answer, ("list", analysis), lambda: listed(result, analysis))

    def make() -> tuple[RowColumn, ...]:
        mean, sd, n = (a.ravel()[found.places] for a in (result.mean, result.sd, result.n))
        each = result.values.reshape(len(result.values), -1)[:, found.places]
        top = top_level(mean)
        places = digits(top)
        in_how_many = RowColumn("prompts", n, digits=0, tip="in which there is such a value")
        return (
            RowColumn(found.head, np.array(found.names, dtype=object)),
            RowColumn("mean", mean, digits=places, bar=True, levels=(-top, top)),
            RowColumn("sd", sd, digits=places, tip="standard deviation over prompts"),
            RowColumn(
                "same sign",
                (np.sign(each) == np.sign(mean)).sum(0) / np.maximum(n, 1),
                digits=2,
                tip="share of prompts whose value has the sign of the mean",
            ),
            *((in_how_many,) if (n != result.counted).any() else ()),
        )

    columns = memo(answer, ("columns", analysis), make)
    rows = Rows("list", columns, found.keys, ranked=analysis in RANKED)
    return rows, (len(found.places), found.total) if len(found.places) < found.total else None


def curve_of(answer: Answer, result: OverPromptsResult) -> Lines:
    """The mean by distance, one standard deviation on either side dashed."""

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


def leading(answer: Answer, result: OverPromptsResult, analysis: str) -> tuple[str, np.ndarray]:
    """(the name of the first entry of the list, its value [prompt])."""
    found = memo(answer, ("list", analysis), lambda: listed(result, analysis))
    if not found.names:
        return "", np.full(len(result.prompts), np.nan)
    largest = int(np.argmax(np.abs(result.mean.ravel()[found.places])))
    name = found.names[largest]
    said = f"distance {name}" if analysis == "token_attribution" else name
    return said, result.values.reshape(len(result.values), -1)[:, found.places[largest]]
