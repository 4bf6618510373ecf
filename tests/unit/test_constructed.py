"""`rope-induction`: what its construction proves, on the model's own forward pass and on the weight analyses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from circuitlab.model.forward import forward
from circuitlab.model.sourced import CanonicalParts, SourcedWeights
from circuitlab.model.tensors import ResidentTensors
from tests.constructed import directory_of, gap, letter_tokenizer, rope_induction

EPSILON = 0.01


def _weights(**changes: float) -> SourcedWeights:
    config, tensors = rope_induction(**changes)  # type: ignore[arg-type]
    return SourcedWeights(config, None, CanonicalParts(config, ResidentTensors(tensors)), torch.float64)


def _texts(config_letters: int, n: int, count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(0)
    return [(0, *(int(t) for t in rng.integers(1, config_letters + 1, n - 1))) for _ in range(count)]


def test_the_constants_are_those_that_the_proof_asks_for() -> None:
    config, _ = rope_induction()
    g = gap(config)
    assert g == pytest.approx(0.686, abs=5e-4)
    assert math.log(64 / EPSILON) / g <= 12.8
    assert math.log(64 / EPSILON) / (0.5 - EPSILON) <= 17.9


@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.parametrize(("letters", "d_head"), [(26, 32), (4, 16)])
def test_every_repeat_is_completed(letters: int, d_head: int, offset: int) -> None:
    sharper = {"alpha": 17.1} if d_head == 16 else {}  # g is .515 there
    weights = _weights(letters=letters, d_head=d_head, offset=offset, **sharper)
    repeats = 0
    for tokens in _texts(letters, 64, 4):
        run = forward(weights, tokens)
        first, second = run.get("pattern", 0)[0], run.get("pattern", 1)[0]
        rows = torch.arange(offset, len(tokens))
        assert float(first[rows, rows - offset].min()) >= 1 - EPSILON
        logits = run.logits()
        for m in range(offset, len(tokens)):
            held = [n for n in range(offset, m + 1) if tokens[n - offset] == tokens[m] and tokens[m] != 0]
            if not held:
                assert float(second[m, 0]) >= 1 - EPSILON
                assert float(logits[m].max() - logits[m].min()) <= 20 * EPSILON
                continue
            repeats += 1
            assert float(second[m, held].sum()) >= 1 - EPSILON
            counts = np.bincount([tokens[n] for n in held], minlength=weights.config.d_vocab)
            assert counts[int(logits[m].argmax())] == counts.max()
    assert repeats > 100


def test_one_continuation_is_certain() -> None:
    tokens = (0, *range(1, 27), 5)
    run = forward(_weights(), tokens)
    assert float(run.log_probs()[-1].exp()[6]) > 0.9999


def test_the_literal_reading_of_the_shift_looks_forward_and_fails() -> None:
    config, tensors = rope_induction()
    from circuitlab.model.positions import rotate

    assert config.rotary is not None
    tensors["layers.0.W_Q"][0, -1] = 12.8 * rotate(tensors["layers.0.W_K"][0, -1:], config.rotary, 1)[0]
    run = forward(SourcedWeights(config, None, CanonicalParts(config, ResidentTensors(tensors)), torch.float64), (0, 1, 2, 3, 4))
    pattern = run.get("pattern", 0)[0]
    assert bool((pattern.diagonal()[1:] > 0.9).all())


def test_a_weak_alpha_spreads_as_the_construction_says() -> None:
    for alpha, mass in ((1.0, 0.44), (2.0, 0.66), (5.0, 0.94), (10.0, 0.998)):
        pattern = forward(_weights(alpha=alpha), _texts(26, 64, 1)[0]).get("pattern", 0)[0]
        assert float(pattern[63, 62]) == pytest.approx(mass, abs=0.006)


def test_the_directory_opens_and_reads_letters(tmp_path: Path) -> None:
    from circuitlab.engine.store import ModelStore
    from circuitlab.model.subject import ModelRef

    opened = ModelStore().open(ModelRef(f"file:{directory_of(tmp_path / 'm')}")).opened
    config, tensors = rope_induction()
    assert opened.weights.config == config
    torch.testing.assert_close(opened.weights.embed().W_E.double(), tensors["embed.W_E"])
    assert letter_tokenizer().encode("AZ")[-2:] == (1, 26)
