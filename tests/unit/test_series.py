"""Checkpoint series: each step opens like the final weights, is known apart from them, and what is not there is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from circuitlab.analysis.behaviour.predictions import PredictionsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel
from circuitlab.model.records.series import FOLDER, checkpoint_of, series_of
from circuitlab.model.records.series_measures import FILE, GONE, HEAD_ARRAYS, SeriesMeasures, read_series, write_series
from circuitlab.model.subject import ModelRef, Subject
from tests.models import directory
from tests.series_files import keep_scaled

STEPS = (0, 64, 1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with three checkpoints: the final weights times 0, 1/2 and 1, in half precision."""
    made = directory(tmp_path / "m")
    keep_scaled(made, dict(zip(STEPS, (0, 0.5, 1), strict=True)))
    (made / "checkpoints" / "notes.txt").write_text("not a step")
    return made


def test_steps_come_in_the_order_of_training(path: Path) -> None:
    assert [step for step, _ in series_of(path)] == list(STEPS)
    store = ModelStore()
    assert store.open(ModelRef(f"file:{path}")).opened.steps == STEPS
    assert store.open(ModelRef(f"file:{path}", 1)).opened.steps == STEPS
    assert series_of(path.parent) == ()


def test_steps_are_numbers_whatever_their_names_look_like(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for name in ("step-1000", "step-20", "step-000900", "step-1000000", "step-x", "final"):
        (tmp_path / FOLDER / f"{name}.safetensors").touch()
    assert [step for step, _ in series_of(tmp_path)] == [20, 900, 1000, 1_000_000]
    assert checkpoint_of(tmp_path, 1).name == "step-000900.safetensors"


def test_a_checkpoint_has_its_own_weights_and_its_own_answers(path: Path) -> None:
    engine = Engine(ModelStore())
    final = load_file(path / "model.safetensors")["layers.0.W_Q"]
    for i, factor in enumerate((0, 0.5, 1)):
        weights = engine.store.open(ModelRef(f"file:{path}", i)).opened.weights
        assert torch.equal(weights.layer(0).W_Q, (final * factor).half().float())
    ask = lambda i: Request.named("predictions", PredictionsParams(), Subject(ModelRef(f"file:{path}", i), (0, 5, 9)))
    first, last = engine.answer(ask(0)), engine.answer(ask(2))
    assert any(not np.array_equal(a, last.result.arrays()[n]) for n, a in first.result.arrays().items())
    assert first.provenance.weights != last.provenance.weights, "each is known by the hash of its own file"
    assert engine.cached(ask(1)) is None


def test_what_is_not_there_is_said(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"no such checkpoint") as caught:
        ModelStore().open(ModelRef(f"file:{path}", 3))
    assert caught.value.expected == "0..2"
    assert "at_step" in caught.value.remedy
    with pytest.raises(BadModel, match="no checkpoint series"):
        ModelStore().open(ModelRef(f"file:{directory(tmp_path / 'other')}", 0))
    with pytest.raises(BadModel, match="was not trained"):
        ModelStore().open(ModelRef("construct:rope-induction", 0))


def test_a_checkpoint_by_its_file_says_where_it_belongs(path: Path) -> None:
    with pytest.raises(BadModel, match="one checkpoint of a model") as caught:
        ModelStore().open(ModelRef(f"file:{path / 'checkpoints' / 'step-000064.safetensors'}"))
    assert "--checkpoint 64" in caught.value.remedy and f"{path} " in caught.value.remedy


def test_the_folder_of_a_run_says_where_its_model_is(tmp_path: Path) -> None:
    (tmp_path / "run" / "state").mkdir(parents=True)
    (tmp_path / "run" / "state" / "run.json").write_text("{}")
    for said in ("has not ended", f"Open {tmp_path / 'run' / 'model'}"):
        with pytest.raises(BadModel, match="folder of a training run") as caught:
            ModelStore().open(ModelRef(f"file:{tmp_path / 'run'}"))
        assert said in caught.value.remedy
        directory(tmp_path / "run" / "model")


def _measures() -> SeriesMeasures:
    by_head = {name: np.zeros((2, 2, 2), np.float32) for name in HEAD_ARRAYS}
    rows = {
        n: np.ones((2, 7), np.float32)
        for n in ("loss_by_index", "repeated_loss_by_index", "repeated_text_loss_by_index", "token_loss")
    }
    arrays = {"loss": np.ones(2, np.float32), **rows, **by_head}
    return SeriesMeasures((0, 64), (0, 4096), (0, None), arrays, {"texts": 3})


def test_measures_come_back_as_they_were_written(path: Path) -> None:
    made = _measures()
    write_series(path, made)
    result = read_series(path)
    assert (result.steps, result.tokens, result.checkpoints, result.protocol) == ((0, 64), (0, 4096), (0, None), {"texts": 3})
    assert all(np.array_equal(result[name], made[name]) for name in made.arrays)
    assert not result["loss"].flags.writeable


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda m: replace(m, steps=(64, 0)), "order of training"),
        (lambda m: replace(m, tokens=(0,)), "tokens"),
        (lambda m: replace(m, checkpoints=("a", None)), "checkpoints"),
        (lambda m: replace(m, arrays={k: v for k, v in m.arrays.items() if k != "copying"}), "copying"),
        (lambda m: replace(m, arrays={**m.arrays, "loss": np.ones(3, np.float32)}), "loss"),
        (lambda m: replace(m, tokens=(4096, 0)), "order of training"),
        (lambda m: replace(m, tokens=(0, 2**70)), "tokens"),
        (lambda m: replace(m, arrays={**m.arrays, "copying": np.zeros((2, 3, 2), np.float32)}), "layers and heads"),
        (lambda m: replace(m, arrays={**m.arrays, "token_loss": np.zeros((2, 0), np.float32)}), "token_loss"),
    ],
)
def test_measures_that_contradict_themselves_are_refused(path: Path, change: Any, words: str) -> None:
    write_series(path, change(_measures()))
    with pytest.raises(BadModel) as caught:
        read_series(path)
    assert words in str(caught.value)


def test_measures_that_are_damaged_or_missing_are_refused(path: Path) -> None:
    with pytest.raises(BadModel, match="not measured"):
        read_series(path)
    half = b'{"loss":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    for damaged in (b"\x08\0\0\0\0\0\0\0{}      ", len(half).to_bytes(8, "little") + half + bytes(4)):
        (path / FILE).write_bytes(damaged)
        with pytest.raises(BadModel):
            read_series(path)


def test_points_may_have_lost_their_weights(path: Path) -> None:
    write_series(path, replace(_measures(), checkpoints=(GONE, None)))
    assert read_series(path).checkpoints == (GONE, None)
    write_series(path, replace(_measures(), checkpoints=(-1, None)))
    with pytest.raises(BadModel, match="contradicts"):
        read_series(path)
