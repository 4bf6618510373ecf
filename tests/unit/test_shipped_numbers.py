"""What the shipped series and cards say, computed again from the files by code that shares nothing with what wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.behaviour.model_comparison import SideBySideParams
from circuitlab.analysis.training.pca import TrainingPcaParams
from circuitlab.disk.paths import model_dir, shipped_models
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.records.series_measures import has_series
from circuitlab.model.subject import ModelRef, Subject
from tests.reference import slow_trained
from tests.rounding import check_largest, check_ranks
from tests.shipped_models import config_of

MODELS = ["attn-only-1l-smeared", "attn-only-2l", "gpt-mini"]
BLOCK = 50


def _about(folder: Path) -> Any:
    with safe_open(str(folder / "series.safetensors"), framework="numpy") as file:
        return json.loads(file.metadata()["about"])


def _whole(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a series, point in front, and `steps`."""
    with safe_open(str(folder / "series.safetensors"), framework="numpy") as file:
        return {"steps": np.array(_about(folder)["steps"])} | {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _series(folder: Path, step: int) -> dict[str, np.ndarray]:
    """The arrays at a step."""
    result = _whole(folder)
    return {name: array[result["steps"].tolist().index(step)] for name, array in result.items()}


def _random(n_vocab: int) -> np.ndarray:
    """BOS, 50 tokens drawn evenly, the same again; 16 times."""
    once = np.random.default_rng(20_220_308).integers(1, n_vocab, size=(16, BLOCK))
    return np.concatenate([np.zeros((16, 1), np.int64), once, once], axis=1)


@pytest.fixture(scope="module", params=MODELS)
def point(request: pytest.FixtureRequest) -> Any:
    """(weights, tokens, run, series at the same step): the first step at which a head has formed, in the phase change."""
    name = request.param
    formed = _whole(model_dir(name))["prefix_matching"].max((1, 2)) > 0.7
    step = int(_whole(model_dir(name))["steps"][formed.argmax()])
    w, tokens = slow_trained.weights(model_dir(name), step), _random(config_of(name)["d_vocab"])
    return w, tokens, slow_trained.ran(w, tokens), _series(model_dir(name), step)


def test_losses_on_repeats(point: Any) -> None:
    w, _, run, said = point
    np.testing.assert_allclose(run.losses.mean(0), said["repeated_loss_by_index"], atol=5e-5)
    first, second = run.losses[:, :BLOCK].mean(), run.losses[:, BLOCK + 1 :].mean()
    evenly = np.log(len(w["embed.W_E"] if "embed.W_E" in w else w["transformer.wte.weight"]))
    assert evenly < first < evenly + 1, "the first block cannot be foretold"
    assert 2 < second < 6, "the second is half learnt"


def test_head_scores(point: Any) -> None:
    w, tokens, run, said = point
    for layer, pattern in enumerate(run.patterns):
        np.testing.assert_allclose(slow_trained.prefix_matching(pattern, tokens), said["prefix_matching"][layer], atol=2e-5)
        np.testing.assert_allclose(slow_trained.previous_token(pattern), said["previous_token"][layer], atol=2e-5)
        for head in range(pattern.shape[1]):
            assert slow_trained.copying(w, layer, head) == pytest.approx(said["copying"][layer, head], abs=1e-5)
    assert said["prefix_matching"].max() > 0.7


def test_what_is_lost_without_a_head_while_all_look_where_they_did(point: Any) -> None:
    w, tokens, run, said = point
    rise = said["zeroed_repeated"]
    layer, head = np.unravel_index(rise.argmax(), rise.shape)
    without = slow_trained.ran(w, tokens, run.patterns, (int(layer), int(head)), BLOCK + 2).losses
    assert (without - run.losses[:, BLOCK + 1 :]).mean() == pytest.approx(rise[layer, head], abs=2e-5)
    assert rise.max() > 3


@pytest.mark.parametrize("name", ["attn-only-1l-smeared", "gpt-mini"])
def test_models_side_by_side_show_the_losses_of_their_files(name: str) -> None:
    random = _random(config_of(name)["d_vocab"])[3]
    tokens = np.concatenate([random[:30], random[1:12]])
    subject = Subject(ModelRef(f"builtin:{name}"), tuple(tokens.tolist()))
    result: Any = Engine(ModelStore()).answer(Request.named("side_by_side", SideBySideParams(), subject)).result
    logits = slow_trained.logits(slow_trained.weights(model_dir(name), None), tokens[None])[0]
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    own = p[np.arange(len(tokens) - 1), tokens[1:]]
    np.testing.assert_allclose(result.loss[1:], -np.log(own), atol=5e-5)
    check_ranks(result.rank[1:], p[:-1], own, rtol=1e-4)
    check_largest(result.predicted[:, None], p, rtol=1e-4)
    np.testing.assert_allclose(result.probability, p.max(-1), rtol=1e-4)
    assert np.isnan(result.loss[0]) and result.rank[0] == -1 and result.mean == pytest.approx(-np.log(own).mean(), abs=1e-4)


def test_the_plane_of_the_shipped_models_is_that_of_the_products_of_points() -> None:
    """From the small side: eigenvectors of [point, point], where the panel takes singular vectors of [point, text]."""
    measured = [name for name in shipped_models() if has_series(model_dir(name))]
    tokens = {name: _about(model_dir(name))["said"]["sha256"]["tokens"] for name in measured}
    names = ("attn-only-2l", *sorted(one for one in tokens if tokens[one] == tokens["attn-only-2l"] and one != "attn-only-2l"))
    assert len(names) > 1
    refs = tuple(SeriesRef(f"builtin:{name}") for name in names)
    request = Request.named("training_pca", TrainingPcaParams(refs), Subject(ModelRef(refs[0].source)))
    result: Any = Engine(ModelStore()).answer(request).result
    losses = np.concatenate([_whole(model_dir(name))["token_loss"] for name in names]).astype(np.float64)
    centred = losses - losses.mean(0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    for k in (0, 1):
        wanted = vectors[:, -1 - k] * np.sqrt(values[-1 - k])
        wanted *= np.sign(wanted @ result.coordinates[:, k])
        np.testing.assert_allclose(result.coordinates[:, k], wanted, atol=1e-8)
        assert result.explained[k] == pytest.approx(values[-1 - k] / values.sum())
    np.testing.assert_allclose(result.loss, losses.mean(1), atol=1e-6)
