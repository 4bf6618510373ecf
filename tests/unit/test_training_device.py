"""Training on a device: a stand-in that holds its numbers in main memory and refuses to mix with the CPU's (tests/elsewhere.py).

What a device's own kernels compute is not shown by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from circuitlab.training import metrics
from circuitlab.training.command import device_of
from circuitlab.training.corpus import Stream
from circuitlab.training.loop import Trainer
from circuitlab.training.recipe import Checkpoints, Recipe
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.state import read_state
from tests.elsewhere import NAME, Elsewhere, Far


@pytest.fixture
def recipe() -> Recipe:
    return read_recipe("tiny")


def streams() -> tuple[Stream, ...]:
    rng = np.random.default_rng(0)
    return (Stream("a", 1.0, *(rng.integers(1, 300, n).astype(np.uint16) for n in (4000, 200))),)


def gpt2(recipe: Recipe) -> Recipe:
    biases = ["q", "k", "v", "o", "mlp"]
    model = {**recipe.model, "positions": "learned", "norm": "layer", "d_mlp": 24, "biases": biases, "tied": True}
    return replace(recipe, model={**model, "activation": "gelu_new"})


@pytest.mark.parametrize("shape", [lambda r: r, gpt2])
def test_a_run_begun_on_a_device_ends_on_the_cpu_and_the_other_way_round(
    recipe: Recipe, tmp_path: Path, shape: Callable[[Recipe], Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(shape(recipe), checkpoints=Checkpoints(16))
    monkeypatch.setattr(metrics, "SAMPLES", 3)
    monkeypatch.setattr(metrics, "TEXTS", 4)
    # the stand-in takes no views in inference mode of what was made outside of it
    monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad())
    whole = Trainer(recipe, streams(), tmp_path / "whole")
    whole.train(lambda line: None)
    with Elsewhere():
        there = Trainer(recipe, streams(), tmp_path / "a", NAME)
        assert all(isinstance(v, Far) for v in there.weights.tensors.values())
        there.train(lambda line: None, 9)
    saved, _ = read_state(tmp_path / "a" / "state")
    assert saved is not None and saved["step"] == 9
    assert all(type(v) is torch.Tensor and v.device.type == "cpu" for v in saved["tensors"].values())
    moments = [v for one in saved["adam"]["state"].values() for v in one.values()]
    assert moments and all(v.device.type == "cpu" for v in moments)
    here = Trainer(recipe, streams(), tmp_path / "a")
    assert here.resume()
    here.train(lambda line: None, 15)
    with Elsewhere():
        again = Trainer(recipe, streams(), tmp_path / "a", NAME)
        assert again.resume() and again.step == 15
        again.train(lambda line: None)
    saved, _ = read_state(tmp_path / "a" / "state")
    assert saved is not None
    for name, value in whole.weights.tensors.items():
        if name.endswith("b_K"):  # moves no pattern: its gradient is rounding, which AdamW makes as large as any other
            continue
        torch.testing.assert_close(saved["tensors"][name], value.detach(), atol=1e-5, rtol=1e-4)
    for one, two in zip(again.history, whole.history, strict=True):
        assert one["loss"] == pytest.approx(two["loss"], abs=1e-4)


def test_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of("auto") == device_of("cpu") == "cpu"
    monkeypatch.setattr("circuitlab.model.devices.checked", lambda name: name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of("auto") == "cuda"
    assert device_of("cuda:1") == "cuda:1"


def test_products_are_those_of_float32(recipe: Recipe, tmp_path: Path) -> None:
    Trainer(recipe, streams(), tmp_path / "a")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
