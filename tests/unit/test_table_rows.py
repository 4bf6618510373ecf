"""Each row of a table (CSV, copied tables) holds the number of the head, position and stage that it names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import Table, analyses
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef, Subject
from tests.models import FULL, directory

HEAD, PAIR = ("head",), ("destination", "source")
# By analysis: column of numbers -> (array, columns that say where in it, in the order of its axes).
ROWS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "ablation": {"effect": ("effect", ("ablated",))},
    "attention": {"value": ("values", ("head", "destination", "source"))},
    "composition": {"score": ("scores", ("kind", *PAIR)), "z": ("z", ("kind", *PAIR))},
    "copying_scores": {n: (n, HEAD) for n in ("copying", "copying_raw", "qk_positivity", "diagonal_share", "diagonal_mean")},
    "logit_lens": {n: (n, ("stage", "position")) for n in ("log_prob", "rank", "entropy", "kl", "value")},
    "own_tokens": {"top1": ("top1", HEAD), "top10": ("top10", HEAD)},
    "pair_positivity": {"positivity": ("pairs", PAIR), "positivity_raw": ("pairs_raw", PAIR)},
    "patching": {"patched": ("values", ("row", "position")), "inside the cone": ("inside", ("row", "position"))},
    "path_patching": {"patched": ("values", ("through", "receiver"))},
    "previous_head_spectrum": {"positivity": ("pairs", PAIR), "positivity_raw": ("pairs_raw", PAIR)},
    "score_expansion": {
        n: (array, ("destination side", "source side")) for n, array in (("term", "terms"), ("centred", "centred"))
    },
    "subspace_overlap": {n: (n, ("left", "right")) for n in ("mean_cos2", "max_cos")},
    "token_loss": {"loss": ("loss", ("position",)), "rank": ("rank", ("position",))},
    "virtual_head": {"value": ("pattern", PAIR)},
}


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Subject]:
    ref = ModelRef(f"file:{directory(tmp_path_factory.mktemp('m') / 'model', FULL)}")
    return Engine(ModelStore()), Subject(ref, (0, 5, 9, 5, 7, 5, 9))


NAMES = {"kind": "kinds", "stage": "stages", "through": "names"}  # of an axis: the field that names its steps
NAMES |= {"destination component": "names_dest", "source component": "names_src"}


def _place(result: Any, axis: str, name: Any) -> tuple[int, ...]:
    """The indices that a cell of a table names: one, or those of layer and head. `axis`: the array's next one."""
    if isinstance(name, int):
        return (name,)
    if axis in NAMES:
        return (getattr(result, NAMES[axis]).index(name),)
    layer, head = map(int, re.fullmatch(r"L(\d+)H(\d+)", name).groups())  # type: ignore[union-attr]
    listed = {"head": "heads", "row": "rows"}.get(axis)
    return (layer, head) if listed is None else (getattr(result, listed).tolist().index([layer, head]),)


WEIGHTED = "all earlier, weighted"  # rows of the positivity plane that belong to no pair


@pytest.mark.parametrize("name", ROWS)
def test_a_row_holds_the_number_of_what_it_names(subject: tuple[Engine, Subject], name: str) -> None:
    engine, of = subject
    params = analyses()[name].params()
    if "patching" in name:
        params = replace(params, source=(0, 5, 9, 200, 7, 5, 9))
    result: Any = engine.answer(Request.named(name, params, of)).result
    table: Table = result.table()
    columns = {c.name: c.values.tolist() for c in table.columns}
    for column, (array, keys) in ROWS[name].items():
        axes = result.axes_of(array)
        seen = set()
        rows = [row for row in range(table.n_rows) if columns.get("source", [""] * table.n_rows)[row] != WEIGHTED]
        for row in rows:
            place: tuple[int, ...] = ()
            for key in keys:
                place += _place(result, axes[len(place)], columns[key][row])
            np.testing.assert_equal(columns[column][row], getattr(result, array)[place].item(), err_msg=f"{column} {place}")
            seen.add(place)
        values = getattr(result, array)
        assert len(place) == values.ndim and len(seen) == len(rows)
        assert len({round(float(v), 12) for v in values.ravel() if v == v}) > 1, "numbers that are all alike prove nothing"
