"""The engine's forward pass against the zoo's own, on every model, in float64: logits, patterns, streams, what heads write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from circuitlab.engine.store import ModelStore
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, ModelRef
from tests.zoo import models
from tests.zoo.forward import Block, Model

RAW = Conventions(fold_norm=False, centre=False, dtype="float64")
FOLDED = Conventions(dtype="float64")
DRAWN = range(24)


def _agree(path: Path, config: ModelConfig, lengths: tuple[int, ...]) -> None:
    tensors = models.tensors_of(config)
    model, opened = Model(config, tensors), ModelStore().open(ModelRef(f"file:{models.written(path, config, tensors)}"))
    for tokens in (models.prompt(config, n) for n in lengths):
        own = model(tokens)
        for conventions in (RAW, FOLDED):
            run = forward(opened.weights(conventions), tokens)
            close(run.log_probs(), own.log_probs)
            for layer, block in enumerate(own.blocks):
                close(run.get("pattern", layer), block.pattern)
                if conventions is RAW:
                    _parts_agree(run, layer, block)
            if conventions is RAW:
                close(run.logits(), own.logits)


def _parts_agree(run: Run, layer: int, block: Block) -> None:
    parts = {"resid_pre": block.pre, "resid_mid": block.mid, "resid_post": block.post, "attn_out": block.attn_out}
    parts |= {"result": block.result, "q": block.q}
    parts |= {"mlp_out": block.mlp_out} if run.weights.config.d_mlp else {}
    for name, value in parts.items():
        close(run.get(name, layer), value)


def close(found: Tensor, wanted: np.ndarray) -> None:
    """They agree to ten digits of the largest number."""
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-10 * max(1.0, float(np.abs(wanted).max(initial=0))))


@pytest.mark.parametrize("name", models.MODELS)
def test_a_model_of_the_zoo_is_computed_as_its_definition_says(tmp_path: Path, name: str) -> None:
    _agree(tmp_path / "m", models.MODELS[name], models.LENGTHS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", DRAWN)
def test_so_is_any_other_one(tmp_path: Path, seed: int) -> None:
    _agree(tmp_path / "m", models.drawn(seed), (11,))


def test_a_few_models_have_every_feature() -> None:
    have = frozenset().union(*(models.features_of(models.MODELS[name]) for name in models.sample()))
    assert have == set(models.FEATURES) and len(models.sample()) < len(models.MODELS) / 2
