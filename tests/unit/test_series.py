"""Checkpoint series: each step opens like the final weights, is known apart from them, and what is not there is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.analysis.predictions import PredictionsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel
from circuitlab.model.series import series_of
from circuitlab.model.subject import ModelRef, Subject
from tests.models import directory

STEPS = (0, 64, 1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with three checkpoints: the final weights times 0, 1/2 and 1, in half precision."""
    made = directory(tmp_path / "m")
    final = load_file(made / "model.safetensors")
    (made / "checkpoints").mkdir()
    for i, step in enumerate(STEPS):
        save_file({n: (t * i / 2).half() for n, t in final.items()}, made / "checkpoints" / f"step-{step:06d}.safetensors")
    (made / "checkpoints" / "notes.txt").write_text("not a step")
    return made


def test_steps_come_in_the_order_of_training(path: Path) -> None:
    assert [step for step, _ in series_of(path)] == list(STEPS)
    store = ModelStore()
    assert store.open(ModelRef(f"file:{path}")).opened.steps == STEPS
    assert store.open(ModelRef(f"file:{path}", 1)).opened.steps == STEPS
    assert series_of(path.parent) == ()


def test_a_checkpoint_has_its_own_weights_and_its_own_answers(path: Path) -> None:
    engine = Engine(ModelStore())
    final = load_file(path / "model.safetensors")["layers.0.W_Q"]
    for i, factor in enumerate((0, 0.5, 1)):
        weights = engine.store.open(ModelRef(f"file:{path}", i)).opened.weights
        assert torch.equal(weights.layer(0).W_Q, (final * factor).half().float())
    ask = lambda i: Request("predictions", PredictionsParams(), Subject(ModelRef(f"file:{path}", i), (0, 5, 9)))
    first, last = engine.answer(ask(0)), engine.answer(ask(2))
    assert any(not np.array_equal(a, last.result.arrays()[n]) for n, a in first.result.arrays().items())
    assert first.provenance.weights != last.provenance.weights, "each is known by the hash of its own file"
    assert engine.cached(ask(1)) is None


def test_what_is_not_there_is_said(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"no such checkpoint") as caught:
        ModelStore().open(ModelRef(f"file:{path}", 3))
    assert caught.value.expected == "0..2"
    with pytest.raises(BadModel, match="no checkpoint series"):
        ModelStore().open(ModelRef(f"file:{directory(tmp_path / 'other')}", 0))
    with pytest.raises(BadModel, match="was not trained"):
        ModelStore().open(ModelRef("construct:rope-induction", 0))
