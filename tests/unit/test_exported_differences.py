"""Tables of two answers as one: rows by what names them, numbers now, in the reference and now minus it, against a plain join."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.base import Column, Table, analyses
from circuitlab.engine.export_data import AnswerExport, export_of, write_answers
from circuitlab.engine.export_difference import compared, differences
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head
from circuitlab.session.cuts import ablation
from tests.models import FULL, byte_tokenizer, directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("differences")
    directory(made / "one", FULL)
    save_directory(made / "two", FULL, random_tensors(FULL, 1, 0.35), byte_tokenizer())
    return made


def asked(folder: Path, which: str, name: str, **given: Any) -> AnswerExport:
    return export_of(api.engine(), api.open(str(folder / which)).compute(name, "abab", **given), identified=False)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("# ")))


def number(text: str) -> float:
    return float(text) if text else math.nan


def test_circuit_tables_have_both_sides_and_their_difference(folder: Path) -> None:
    given = {"head": "L1H2", "token": "66", "k": "260"}  # the whole row: what either side lists the other lists too
    now, ref = (asked(folder, which, "token_circuits", set=given) for which in ("one", "two"))
    change = differences({"token": now}, {"token": ref})["token"]
    rows = rows_of(change.data("csv").decode())
    assert [*rows[0]][:4] == ["table", "end", "id", "token"] and len(rows) == now.table().n_rows
    assert {row["table"] for row in rows} == {"raises", "attends to", "raised by", "attended to by"}
    sides: list[dict[tuple[str, str], float]] = []
    for what in (now, ref):  # by table and token, whatever the order
        result: Any = what.answer.result
        pairs = (zip(ids, values, strict=True) for ids, values in zip(result.top_ids, result.top, strict=True))
        sides.append({(table, str(i)): v for table, pair in zip(result.tables, pairs, strict=True) for i, v in pair})
    for row in rows:
        key = row["table"], row["id"]
        assert number(row["value"]) == pytest.approx(sides[0][key]) and number(row["value, reference"]) == pytest.approx(
            sides[1][key]
        )
        assert number(row["Δ value"]) == pytest.approx(sides[0][key] - sides[1][key], abs=1e-5)


def test_what_one_side_lists_alone_has_no_difference(folder: Path) -> None:
    now, ref = (asked(folder, which, "token_circuits", set={"token": 66, "k": 3}) for which in ("one", "two"))
    rows = rows_of(differences({"token": now}, {"token": ref})["token"].data("csv").decode())
    assert len(rows) > now.table().n_rows and any(row["Δ value"] == "" for row in rows)
    for row in rows:
        assert (row["Δ value"] == "") == (row["value"] == "" or row["value, reference"] == "")
        assert row["value"] or row["value, reference"]


def test_a_rank_that_is_not_there_makes_no_difference(folder: Path) -> None:
    now, ref = (asked(folder, which, "token_loss") for which in ("one", "two"))
    rows = rows_of(differences({"loss": now}, {"loss": ref})["loss"].data("csv").decode())
    assert [rows[0][name] for name in ("rank", "rank, reference", "Δ rank", "Δ loss (nats)")] == [""] * 4
    for row, here, there in zip(rows[1:], now.answer.result.rank[1:], ref.answer.result.rank[1:], strict=True):  # type: ignore[attr-defined]
        assert number(row["Δ rank"]) == here - there


def test_tokens_of_other_vocabularies_are_not_each_other() -> None:
    side = lambda text: Table(
        (Column("id", np.array([5]), of="token"), Column("token", np.array([text])), Column("p", np.array([0.5])))
    )
    made = compared(side("a"), side("b"))
    assert made is not None and made.n_rows == 2
    assert np.isnan(made.columns[-1].values).all()
    same = compared(side("a"), side("a"))
    assert same is not None and same.columns[-1].values.tolist() == [0.0]


def test_tables_whose_rows_have_no_names_of_their_own_are_not_matched() -> None:
    twice = Table((Column("kind", np.array(["a", "a"])), Column("value", np.array([1.0, 2.0]))))
    assert compared(twice, twice) is None
    other = Table((Column("kind", np.array(["a"])), Column("size", np.array([1.0]))))
    assert compared(other, replace(twice, columns=(twice.columns[0], twice.columns[1]))) is None


OF_FILES = {"over_prompts", "rotation_clock", "training_pca", "training_series"}  # and of a model that has them


@pytest.mark.parametrize("name", sorted(set(analyses()) - OF_FILES))
def test_every_form_of_every_analysis_is_written_beside_a_reference(folder: Path, tmp_path: Path, name: str) -> None:
    """Of a cut against the model as it is; what is the same on both sides differs by nothing."""
    model = api.open(str(folder / "one"))
    sides = [
        export_of(api.engine(), model.compute(name, "abab", edits=tuple(map(ablation, cut))), identified=False)
        for cut in ((Head(0, 1),), (Head(0, 1), Head(0, 2)))
    ]
    made = differences({"x": sides[0]}, {"x": sides[1]})
    assert made or name == "keep_only"  # of which a random set may come twice
    if not made:
        return
    for form in ("csv", "json", "npz"):
        write_answers(made, tmp_path / f"a.{form}")
    columns = json.loads((tmp_path / "a.json").read_text())["columns"]
    held = np.load(tmp_path / "a.npz")
    assert {*columns} == {*held.files} - {"about"} and len({len(c) for c in columns.values()}) == 1
    same = differences({"x": sides[0]}, {"x": sides[0]})["x"].table
    for column in same.columns:
        if column.name.startswith("Δ "):
            values = np.asarray(column.values, dtype=complex)
            assert (values[~np.isnan(values) & ~np.isinf(values)] == 0).all()
    assert np.load(io.BytesIO(differences({"x": sides[0]}, {"x": sides[0]})["x"].data("npz")))["about"]
