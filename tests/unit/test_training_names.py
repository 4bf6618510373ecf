"""A model that was trained here is called like the folder of its run: two runs of one recipe are told apart everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.training.series import TrainingSeriesParams, TrainingSeriesResult
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.figures.panels.models.models import entries
from circuitlab.figures.panels.models.panel import SideBySideView
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.state.state import State
from tests.gui.training import measures
from tests.models import directory
from tests.training_runs import train, written


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("file:/runs/mine/model", "mine"),
        ("file:/runs/mine/model/", "mine"),
        ("file:C:\\runs\\mine\\model", "mine"),
        ("file:/runs/mine/so-far", "mine · so far"),
        ("file:/runs/model/model", "model"),
        ("file:/model", "model"),
        ("file:C:/model", "model"),
        ("file:model", "model"),
        ("file:/runs/mine/other", "other"),
        ("file:/a/model/weights.pt", "weights.pt"),
        ("hub:someone/model@main", "model@main"),
        ("hub:someone/model", "model"),
        ("builtin:gpt-mini", "gpt-mini"),
        ("", ""),
    ],
)
def test_what_a_model_is_called(source: str, name: str) -> None:
    assert ModelRef(source).name == name
    assert ModelRef(source, 3).name == f"{name} · checkpoint 3"


def test_two_runs_of_a_recipe_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = written(tmp_path / "text.txt")
    outs = [tmp_path / "first", tmp_path / "second", tmp_path / "more" / "second"]
    for seed, out in enumerate(outs):
        assert train(text, out, "--seed", str(seed), "--stop-at", "4") == 0
    models = [str(out / "model") for out in outs]
    store = ModelStore()
    assert [store.open(reference(m)).name for m in models] == ["first", "second", "second"]
    assert store.open(replace(reference(models[0]), checkpoint=1)).name == "first · step 4"
    capsys.readouterr()
    assert main(["compute", "token_loss", models[1], "--tokens", "0,5,9"]) == 0
    assert "token_loss · second · " in capsys.readouterr().out
    state = State(reference(models[0])).with_view("side_by_side", SideBySideView(models=", ".join(models)))
    assert [e.name for e in entries(state)] == ["first", f"{tmp_path.name}/second", "more/second"]


def test_names_of_series_are_those_of_the_runs(tmp_path: Path) -> None:
    models = [directory(tmp_path / run / "model") for run in ("one", "two")]
    for folder in models:
        measures(folder, (0, 5), 9, 0)
    refs = tuple(SeriesRef(f"file:{folder}") for folder in models)
    subject = Subject(ModelRef(refs[0].source))
    result = Engine(ModelStore()).answer(Request.named("training_series", TrainingSeriesParams(refs), subject)).result
    assert isinstance(result, TrainingSeriesResult)
    assert result.names == ("one", "two") and list(result.table().columns[0].values) == ["one"] * 3 + ["two"] * 3
