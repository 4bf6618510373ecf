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
from circuitlab.analysis.attention import overview
from circuitlab.analysis.base import Column, Table, analyses
from circuitlab.engine.export_data import AnswerExport, export_of, write_answers
from circuitlab.engine.export_difference import compared, differences
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head
from circuitlab.report.answer_data import rows_words, shown_table
from circuitlab.state.cuts import ablation
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
        assert row["Δ rank"] == str(here - there) and row["rank, reference"] == str(there)  # whole numbers, as they were


@pytest.mark.parametrize("size", [64, 3])
def test_a_difference_of_all_heads_has_what_is_drawn_of_each(folder: Path, size: int) -> None:
    """Every cell of both sheets, by head and place: largest values that are the same do not say that patterns are."""
    model = api.open(str(folder / "one"))
    now, ref = (
        export_of(api.engine(), model.compute("attention_overview", "abab", edits=cut, set={"size": size}), identified=False)
        for cut in ((ablation(Head(0, 1)),), ())
    )
    sheets: list[Any] = [side.answer.result for side in (now, ref)]
    rows = rows_of(differences({"overview": now}, {"overview": ref})["overview"].data("csv").decode())
    drawn, edge = sheets[0].sheet - sheets[1].sheet, sheets[0].tile + sheets[0].gap
    assert sheets[0].step == (1 if size == 64 else 2) and np.nanmax(np.abs(drawn)) > 1e-3
    assert len(rows) == np.isfinite(drawn).sum()
    down, across = ("destination", "source") if size == 64 else ("destination from", "source from")
    for row in rows:
        layer, head = map(int, row["head"][1:].split("H"))
        at = (layer * edge + int(row[down]) // sheets[0].step, head * edge + int(row[across]) // sheets[0].step)
        assert number(row["Δ value"]) == pytest.approx(drawn[at], abs=1e-7), row
        assert number(row["value"]) == pytest.approx(sheets[0].sheet[at])
        assert row[f"{down} token"] == now.tokens[int(row[down])]  # type: ignore[index]


def test_of_more_cells_than_a_table_takes_those_that_change_most_are_listed_and_it_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = api.open(str(folder / "one"))
    now, ref = (
        export_of(api.engine(), model.compute("attention_overview", "ababab", edits=cut), identified=False)
        for cut in ((ablation(Head(0, 1)),), ())
    )
    whole = differences({"o": now}, {"o": ref})["o"].table
    monkeypatch.setattr(overview, "MOST_CELLS", 5)
    change = differences({"o": now}, {"o": ref})["o"]
    sizes = np.abs(whole.columns[-1].values)
    assert (np.diff(sizes) <= 0).all() and sizes[4] > 0 and not whole.left_out
    assert [c.values.tolist() for c in change.table.columns] == [c.values[:5].tolist() for c in whole.columns]
    said = f"of {whole.n_rows:,} cells the 5 that change most"
    assert f'# rows: "{said}"' in change.data("csv").decode() and json.loads(change.data("json"))["rows"] == said
    assert said in repr(change) and change.to_pandas().attrs["rows"] == said
    assert rows_words(shown_table(change.table, most=3)) == f"the first 3 of 5 rows · {said}"


def test_sheets_of_other_tiles_differ_by_head(folder: Path) -> None:
    sides = [asked(folder, "one", "attention_overview", set={"size": size}) for size in (64, 3)]
    rows = rows_of(differences({"o": sides[0]}, {"o": sides[1]})["o"].data("csv").decode())
    assert len(rows) == sides[0].answer.result.largest.size and "value" not in rows[0]  # type: ignore[attr-defined]


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


OF_FILES = {"construction", "over_prompts", "rotation_clock", "training_pca", "training_series"}  # and of a model that has them


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
    signs = [json.loads((tmp_path / "a.json").read_text())["Δ"], json.loads(str(held["about"]))["Δ"]]
    head = next(line for line in (tmp_path / "a.csv").read_text().splitlines() if line.startswith("# Δ: "))
    assert [*signs, json.loads(head.removeprefix("# Δ: "))] == ["now − reference"] * 3
    assert {*columns} == {*held.files} - {"about"} and len({len(c) for c in columns.values()}) == 1
    same = differences({"x": sides[0]}, {"x": sides[0]})["x"].table
    for column in same.columns:
        if column.name.startswith("Δ "):
            values = np.asarray(column.values, dtype=complex)
            assert (values[~np.isnan(values) & ~np.isinf(values)] == 0).all()
    assert np.load(io.BytesIO(differences({"x": sides[0]}, {"x": sides[0]})["x"].data("npz")))["about"]


WHOLE = {
    "predictions": {"k": 3, "whole": True},
    "token_circuits": {"head": "L1H2", "token": 66, "k": 3, "whole": True},
}


@pytest.mark.parametrize(("name", "set"), WHOLE.items())
def test_each_side_has_the_rows_that_the_other_lists_where_they_are_known(folder: Path, name: str, set: dict[str, Any]) -> None:
    now, ref = (asked(folder, which, name, set=set) for which in ("one", "two"))
    change = differences({"x": now}, {"x": ref})["x"]
    columns = {column.name: column for column in change.table.columns}
    value = "logit" if name == "predictions" else "value"
    assert change.table.n_rows > now.table().n_rows, "they list different tokens"
    for side, what in (("", now), (", reference", ref)):
        result: Any = what.answer.result
        for i, row in enumerate(columns["id"].values.tolist()):
            whole = result.all_logits if name == "predictions" else result.rows[result.tables.index(columns["table"].values[i])]
            assert columns[f"{value}{side}"].values[i] == pytest.approx(whole[row], rel=1e-6)
    short = {key: v for key, v in set.items() if key != "whole"}
    without = differences({"x": asked(folder, "one", name, set=short)}, {"x": asked(folder, "two", name, set=short)})["x"]
    assert np.isnan(next(c for c in without.table.columns if c.name == f"Δ {value}").values.astype(float)).any()
