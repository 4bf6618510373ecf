"""Devices: everything made in the right place, answers keyed by it, refusals with the number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.base import Result, find_analysis
from circuitlab.engine import engine as engine_module
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadMachine, OverBudget
from circuitlab.model import folding
from circuitlab.model.devices import devices, making_on
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import NAMES
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.elsewhere import NAME, Elsewhere
from tests.models import CONFIGS, directory

TOKENS = (4, 6, 10, 4, 6, 10, 12, 4)
CUT = (Intervention("zero", Site("z", 0, (1,))), Intervention("scale", Site("resid_pre", 1, positions=(2,)), (0.5,)))
SMALL = {"n_ctx": 16, "d_vocab": 40, "d_vocab_out": 40, "tokenizer": False}
ANALYSES = (
    "attention composition copying_scores direct_attribution largest_entries logit_lens neurons ov_spectrum path_expansion "
    "predictions qk_spectrum score_expansion token_loss"
).split()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device of the tests is there, without a limit. Wrappers cannot be made in inference mode: without gradients instead."""
    monkeypatch.setattr(engine_module, "checked", lambda name: name)
    monkeypatch.setattr(engine_module, "memory_of", lambda name: 0)
    monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad() if mode else torch.enable_grad())
    with Elsewhere():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    """A model with norms, MLPs, biases and learned positions."""
    return reference(str(directory(tmp_path_factory.mktemp("devices") / "m", CONFIGS["gpt2"], **SMALL)))


def _answer(name: str, subject: Subject, device: str = "cpu", memory: int = GIB) -> Any:
    result = find_analysis(name)
    return Engine(ModelStore(), memory, device).answer(Request.named(name, result.params(), subject), fresh=True)


def _same(made: Result, wanted: Result) -> None:
    assert made.arrays().keys() == wanted.arrays().keys()
    for name, array in wanted.arrays().items():
        if array.dtype.kind in "fc":
            np.testing.assert_allclose(made.arrays()[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_on_another_device_mixes_nothing_and_finds_the_same(elsewhere: None, model: ModelRef, name: str) -> None:
    subject = Subject(model, TOKENS, CUT)
    made = _answer(name, subject, NAME)
    assert made.provenance.device == NAME
    _same(made.result, _answer(name, subject).result)


@pytest.mark.parametrize("config", ["llama", "both-norms-capped", "odd", "sinusoidal", "gemma3", "alibi", "shared-expert"])
def test_the_forward_pass_and_every_value_of_a_run(elsewhere: None, tmp_path: Path, config: str) -> None:
    small = SMALL if config != "odd" else {"tokenizer": False}
    ref = reference(str(directory(tmp_path / "m", CONFIGS[config], **small)))
    subject = Subject(ref, tuple(t % CONFIGS[config].d_vocab for t in TOKENS), CUT)
    runs = []
    for device in ("cpu", NAME):
        engine = Engine(ModelStore(), GIB, device)
        runs.append(engine.run_of(engine.store.open(ref), subject, engine_module.NullContext()))
    here, there = runs
    named = [n for n in NAMES if not (CONFIGS[config].attention_only and n.startswith("mlp"))]
    for layer in range(2):
        for name in named:
            made = there.get(name, layer)
            assert made.device.type == NAME
            wanted = here.get(name, layer).numpy()
            largest = float(np.abs(wanted[np.isfinite(wanted)]).max())
            np.testing.assert_allclose(made.cpu().numpy(), wanted, rtol=1e-4, atol=1e-5 * max(1, largest), err_msg=name)
    np.testing.assert_allclose(there.logits().cpu().numpy(), here.logits().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(there.losses().cpu().numpy(), here.losses().numpy(), rtol=1e-4, atol=1e-4)


def test_a_model_in_its_file_is_moved_layer_by_layer(elsewhere: None, model: ModelRef) -> None:
    engine = Engine(ModelStore(), GIB, NAME)
    engine.store.largest_copy = 0
    opened = engine.store.open(model)
    assert not opened.opened.weights.resident
    made = engine.answer(Request.named("composition", find_analysis("composition").params(), Subject(model)))
    _same(made.result, _answer("composition", Subject(model)).result)
    first = opened.weights(Conventions(), NAME).layer(0)
    assert first.W_Q.device.type == NAME
    assert opened.weights(Conventions(), NAME).layer(0).W_Q is not first.W_Q


def test_a_model_in_memory_is_moved_once_and_let_go_of(elsewhere: None, model: ModelRef) -> None:
    engine = Engine(ModelStore(), GIB, NAME)
    opened = engine.store.open(model)
    there = opened.weights(Conventions(fold_norm=False, centre=False), NAME)
    assert there.layer(0).W_Q is there.layer(0).W_Q
    assert there.embed().W_E.device.type == NAME
    engine.use_device("cpu")
    assert opened.weights(Conventions(fold_norm=False, centre=False), NAME) is not there


def test_answers_of_two_devices_are_two(elsewhere: None, model: ModelRef) -> None:
    engine = Engine(ModelStore(), GIB)
    request = Request.named("predictions", find_analysis("predictions").params(), Subject(model, TOKENS))
    engine.answer(request)
    engine.use_device(NAME)
    assert engine.cached(request) is None
    assert engine.answer(request).provenance.device == NAME
    engine.use_device("cpu")
    kept = engine.cached(request)
    assert kept is not None and kept.provenance.device == "cpu"


def test_without_float64_what_needs_it_is_computed_on_the_cpu(
    elsewhere: None, model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "has_doubles", lambda name: name == "cpu")
    subject = Subject(model, TOKENS)
    with Elsewhere(doubles=False):
        for name in ("attention", "attention_overview", "token_loss"):
            assert _answer(name, subject, NAME).provenance.device == NAME
        assert _answer("attention", replace(subject, conventions=Conventions(dtype="float64")), NAME).provenance.device == "cpu"
        assert _answer("composition", subject, NAME).provenance.device == "cpu"


def test_what_does_not_fit_on_the_device_is_refused_with_the_number(model: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "checked", lambda name: name)
    monkeypatch.setattr(engine_module, "memory_of", lambda name: 50_000)
    with pytest.raises(OverBudget) as told:
        _answer("predictions", Subject(model, TOKENS), "cuda")
    assert "of them weights" in str(told.value) and "cuda" in str(told.value)


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    there = [device.name for device in devices()]
    assert there[0] == "cpu"
    with pytest.raises(BadMachine) as told:
        Engine(ModelStore(), GIB, "cuda:77")
    assert "cpu" in str(told.value) and "cuda:77" in str(told.value)


def test_tokens_of_a_model_in_its_file_are_converted_alone(model: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ModelStore().open(model)
    store = ModelStore(largest_copy=0)
    for conventions in (Conventions(), Conventions(dtype="float64"), Conventions(centre=False), Conventions(fold_norm=False)):
        wanted, lying = whole.weights(conventions), store.open(model).weights(conventions)
        monkeypatch.setattr(folding.FoldedWeights, "_folded_embed", lambda self: pytest.fail("all of W_E was converted"))
        ids = torch.tensor([3, 1, 39])
        rows, some = folding.embed_rows(lying, ids), folding.embed_rows(lying, slice(2, 5))
        columns = folding.unembed_columns(lying, ids)
        monkeypatch.undo()
        torch.testing.assert_close(rows, wanted.embed().W_E[ids])
        torch.testing.assert_close(some, wanted.embed().W_E[2:5])
        torch.testing.assert_close(columns, wanted.unembed().W_U[:, ids], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(len(devices()) == 1, reason="no accelerator")
def test_an_accelerator_finds_what_the_cpu_finds(model: ModelRef) -> None:
    subject = Subject(model, TOKENS, CUT)
    for name in ANALYSES:
        _same(_answer(name, subject, devices()[1].name).result, _answer(name, subject).result)


def test_the_cpu_pays_for_no_context() -> None:
    with making_on("cpu"):
        assert torch.zeros(1).device.type == "cpu"
