"""The factors that weight analyses read, against the model's own scores and outputs; and the products of the embeddings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.circuits.embedding_products import EmbeddingProductsParams, embedding_products
from circuitlab.analysis.circuits.factors import embedding, exactness, heads_of, refuse_inexact, rotated
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, embedding_gram
from circuitlab.engine.engine import Engine
from circuitlab.engine.inputs import InputsOf
from circuitlab.engine.recording_context import RecordingContext
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel
from circuitlab.model.config import Rotary
from circuitlab.model.forward import forward
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 9, 5, 7, 5, 9, 200, 5)


DOUBLE = Conventions(dtype="float64")


def _inputs(path: Path, conventions: Conventions = DOUBLE) -> InputsOf:
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{path}")
    ctx = RecordingContext(NullContext(), engine._in_flight)
    return InputsOf(engine, engine.store.open(ref), Subject(ref, (), (), conventions), ctx, engine.cache)


ROTARY = ("rotary-half", "rotary-one-layer", "rotary-partial", "amplitude")


@pytest.mark.parametrize("name", [*ROTARY, "no-positions", "odd", "alibi"])
def test_factors_give_the_models_scores_and_results_of_layer_0(tmp_path: Path, name: str) -> None:
    config = CONFIGS.get(name) or replace(CONFIGS["rotary-half"], rotary=Rotary(amplitude=1.3))
    config = replace(config, positions="none") if name == "odd" else config
    config = replace(config, norm="none", biases=()) if name == "alibi" else config
    inputs = _inputs(directory(tmp_path / "m", config))
    tokens = tuple(t % config.d_vocab for t in TOKENS)
    run, heads, x = forward(inputs.weights, tokens), heads_of(inputs, 0), embedding(inputs.weights)[list(tokens)]
    for h in range(config.n_heads):
        scores, result = run.get("scores", 0)[h], run.get("pattern", 0)[h] @ x @ heads.W_V[h] @ heads.W_O[h]
        for d in range(len(tokens)):
            for s in range(d + 1):
                q = rotated(x[d] @ heads.W_Q[h], config, 0, d - s)
                expected = config.score_scale * q @ (x[s] @ heads.W_K[h])
                at_distance = config.slopes[h] * (d - s) if config.slopes else 0.0
                torch.testing.assert_close(scores[d, s], expected - at_distance)
        torch.testing.assert_close(run.get("result", 0)[h], result)


def test_a_norm_behind_the_sublayer_scales_what_a_head_writes_by_a_positive_number(tmp_path: Path) -> None:
    config = CONFIGS["post-sublayer"]
    inputs = _inputs(directory(tmp_path / "m", config))
    run, heads = forward(inputs.weights, TOKENS), heads_of(inputs, 0)
    wrote = run.get("resid_mid", 0) - run.get("resid_pre", 0)
    summed = sum(run.get("z", 0)[h] @ heads.W_O[h] for h in range(config.n_heads))
    assert isinstance(summed, torch.Tensor)
    ratio = wrote / summed
    assert bool((ratio > 0).all())
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))


def test_exactness_is_named_and_the_norm_on_the_stream_refused() -> None:
    assert exactness(CONFIGS["attention-only"]) == exactness(CONFIGS["gpt2"]) == "exact"
    assert exactness(CONFIGS["llama"]).startswith("offset")
    assert exactness(CONFIGS["alibi"]).startswith("exact but for ALiBi")
    assert exactness(CONFIGS["post-sublayer"]).startswith("exact up to")
    assert "stream" in (refuse_inexact(CONFIGS["post-residual"]) or "")
    assert refuse_inexact(CONFIGS["llama"]) is None


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "tied-scaled", "llama"])
@pytest.mark.parametrize("centre", [True, False])
def test_embedding_products_are_the_products(tmp_path: Path, name: str, centre: bool) -> None:
    inputs = _inputs(directory(tmp_path / "m", CONFIGS[name]), Conventions(centre=centre, dtype="float64"))
    products = inputs.answer(embedding_products, EmbeddingProductsParams())
    W_E = embedding(inputs.weights).numpy()
    W_U = inputs.presented(Conventions(centre=False, dtype="float64")).unembed().W_U.numpy()
    np.testing.assert_allclose(products.unembed_embed(False), W_U @ W_E, atol=1e-10)
    np.testing.assert_allclose(products.unembed_embed(True), (W_U - W_U.mean(1, keepdims=True)) @ W_E, atol=1e-10)
    centred = W_E - W_E.mean(0)
    gram = inputs.answer(embedding_gram, EmbeddingGramParams())
    np.testing.assert_allclose(gram.gram(False), W_E.T @ W_E, atol=1e-10)
    np.testing.assert_allclose(gram.gram(True), centred.T @ W_E, atol=1e-10)


def test_a_weight_that_is_not_finite_is_named_also_in_a_mapped_file(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    from safetensors.torch import load_file, save_file

    tensors = load_file(path / "model.safetensors")
    tensors["layers.1.W_K"][0, 0, 0] = float("nan")
    save_file(tensors, path / "model.safetensors")
    store = ModelStore(largest_copy=1000)
    engine, ref = Engine(store), ModelRef(f"file:{path}")
    store.largest_copy = 1000
    model = engine.store.open(ref)
    assert not model.opened.weights.resident
    assert "read from the file" in model.opened.notes[-1]
    inputs = InputsOf(engine, model, Subject(ref), RecordingContext(NullContext(), engine._in_flight), engine.cache)
    heads_of(inputs, 0)
    with pytest.raises(BadModel, match=r"layers\.1\.W_K"):
        heads_of(inputs, 1)


def test_a_mapped_model_gives_the_same_answers(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    request = Request.named("embedding_products", EmbeddingProductsParams(), Subject(ModelRef(f"file:{path}")))
    resident = Engine(ModelStore())
    mapped = Engine(ModelStore())
    mapped.store.largest_copy = 1000
    wanted, found = resident.answer(request).result.arrays(), mapped.answer(request).result.arrays()
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
    assert not mapped.store.open(request.subject.model).opened.weights.resident
