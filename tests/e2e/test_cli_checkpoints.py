"""The command line along a checkpoint series: one step, all of them, and what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import circuitlab.api as lab
from circuitlab.cli.parser import main
from tests.models import directory
from tests.series_files import keep_scaled
from tests.words import lacks_series

STEPS = (0, 64, 1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three checkpoints: the final weights times 0, 1/2 and 1."""
    made = directory(tmp_path / "m")
    keep_scaled(made, dict(zip(STEPS, (0, 0.5, 1), strict=True)), torch.float32)
    (made / "metrics.json").write_text('{"step": 1000}')
    return made


def _ask(path: Path, *more: str) -> int:
    return main(["compute", "token_loss", str(path), "--tokens", "0,5,9,5", *more])


def test_all_checkpoints_give_what_each_gives_alone(path: Path, tmp_path: Path) -> None:
    files = {form: tmp_path / f"all.{form}" for form in ("npz", "csv", "json")}
    assert _ask(path, "--checkpoint", "all", *(w for form, f in files.items() for w in (f"--{form}", str(f)))) == 0
    data = np.load(files["npz"])
    about = json.loads(str(data["about"]))
    assert data["loss"].shape == (4, 4) and about["axes"]["loss"] == ["checkpoint", "position"]
    said = {"npz": list(zip(data["step"].tolist(), data["final"].tolist(), strict=True))}
    model = lab.open(str(path))
    assert model.steps == STEPS
    for i, step in enumerate((*STEPS, None)):
        alone = model.at_step(step).compute("token_loss", tokens=(0, 5, 9, 5)).result
        assert np.array_equal(alone.arrays()["loss"], data["loss"][i], equal_nan=True)
    assert np.array_equal(data["loss"][2], data["loss"][3], equal_nan=True), "the last checkpoint holds the final weights"
    assert not np.array_equal(data["loss"][1], data["loss"][2], equal_nan=True)
    parts = json.loads(files["json"].read_text())
    said["json"] = [(p["step"], p["final"]) for p in parts]
    assert [p["subject"]["model"]["checkpoint"] for p in parts] == [0, 1, 2, None]
    rows = [line.split(",") for line in files["csv"].read_text().splitlines() if not line.startswith("#")]
    assert rows[0][:2] == ["step", "final"]
    said["csv"] = [(int(r[0]), r[1] == "true") for r in rows[1::4]]
    said["about"] = [(c["step"], c["final"]) for c in about["checkpoints"]]
    assert all(one == [*((s, False) for s in STEPS), (1000, True)] for one in said.values()), said


def test_the_step_of_final_weights_is_empty_everywhere_where_nothing_says_it(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path / "metrics.json").unlink()
    files = {form: tmp_path / f"all.{form}" for form in ("npz", "csv", "json")}
    assert _ask(path, "--checkpoint", "all", *(w for form, f in files.items() for w in (f"--{form}", str(f)))) == 0
    data = np.load(files["npz"])
    assert np.isnan(data["step"][3]) and data["final"].tolist() == [False, False, False, True]
    assert json.loads(files["json"].read_text())[3]["step"] is None
    assert files["csv"].read_text().splitlines()[-1].startswith(",true,")
    assert _ask(path, "--checkpoint", "all") == 0
    assert "not known" in capsys.readouterr().out
    assert _ask(path, "--checkpoint", "64", "--json", "-") == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["step"], one["final"]) == (64, False)


def test_one_checkpoint_is_asked_by_its_step(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ask(path, "--checkpoint", "64", "--csv", "-") == 0
    one = capsys.readouterr().out
    assert '"checkpoint": 1' in one
    assert _ask(path, "--checkpoint", "65") == 3
    assert "0 64 1000" in capsys.readouterr().err
    assert _ask(path, "--checkpoint", "soon") == 2
    assert _ask(path, "--checkpoint", "all") == 0
    assert "final" in capsys.readouterr().out


def test_a_model_without_a_series_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = directory(tmp_path / "alone")
    assert _ask(made, "--checkpoint", "all") == 3
    assert lacks_series(capsys.readouterr().err)
    assert _ask(made, "--checkpoint", "64") == 3
    assert lacks_series(capsys.readouterr().err)
    assert main(["figure", "attention", str(made), "--tokens", "0,1", "--checkpoint", "all", "-o", str(tmp_path / "a.png")]) == 2


def test_a_folder_in_the_way_is_said_before_the_work(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken.csv").mkdir()
    monkeypatch.setattr("circuitlab.api.open", lambda *given, **more: pytest.fail("a model was opened"))
    assert _ask(path, "--checkpoint", "all", "--csv", str(tmp_path / "taken.csv")) == 3
