"""What `lab.open` is told holds for every question, and the command line says the same with its options."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

from circuitlab import api
from circuitlab.cli.parser import main
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadMachine, UsageError
from circuitlab.model.forward import forward
from circuitlab.model.subject import Conventions
from tests.models import CONFIGS, directory, weights_of

TEXT = "the cat<|bos|> saw"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(directory(tmp_path_factory.mktemp("m"), CONFIGS["gpt2"], d_vocab=260))


def test_conventions_hold_for_every_question(folder: str) -> None:
    model = api.open(folder, use=Engine(ModelStore()), dtype="float64", raw=True, bos=False)
    under = Conventions(False, False, "float64")
    assert model.tokens(TEXT) == model.tokens(TEXT, bos=True)[1:]
    assert model.subject(TEXT).conventions == under and model.subject(TEXT).tokens == model.tokens(TEXT)
    for other in (model.edit("zero z L1H1"), model.at_step(None)):
        assert (other.conventions, other.bos) == (under, False)
    state = model.state(TEXT)
    assert (state.conventions, state.bos, state.tokens) == (under, False, model.tokens(TEXT))
    assert model.subject(TEXT, conventions=Conventions()).conventions == Conventions()
    assert "float64" in repr(model)

    loss = model.compute("token_loss", text=TEXT).result.loss
    assert loss.dtype == np.float64
    weights, _ = weights_of(CONFIGS["gpt2"])  # the tensors of the folder: raw logits are theirs
    logits = forward(weights, model.tokens(TEXT)).logits()
    result = model.compute("predictions", text=TEXT, whole=True, position=0).result
    np.testing.assert_allclose(result.all_logits, logits[0].numpy(), atol=1e-4)
    assert abs(float(logits[0].mean())) > 1e-3, "centred logits would be others"


def test_the_machine_is_set_on_the_engine(folder: str) -> None:
    use = Engine(ModelStore())
    before = torch.get_num_threads()
    try:
        api.open(folder, use=use, budget=0.5, threads=before + 1, device="cpu")
        assert use.memory == GIB // 2 and torch.get_num_threads() == before + 1 and use.device == "cpu"
        api.open(folder, use=use)
        assert use.memory == GIB // 2 and torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    with pytest.raises(BadMachine):
        api.open(folder, use=use, device="cuda:77")
    for wrong in ({"dtype": "float16"}, {"threads": 0}, {"threads": True}, {"budget": 0}, {"budget": "much"}):
        with pytest.raises(UsageError) as caught:
            api.open(folder, use=use, **wrong)  # type: ignore[arg-type]
        assert next(iter(wrong)) in caught.value.what and caught.value.expected


def test_every_argument_is_in_the_help() -> None:
    words = inspect.getdoc(api.open) or ""
    for name in inspect.signature(api.open).parameters:
        assert name == "model" or f"`{name}`:" in words, name


def test_the_options_say_the_same(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.npz"
    ask = lambda *more: main(["compute", "predictions", folder, "--text", TEXT, "--set", "whole=true", "--npz", str(out), *more])
    for options, arguments in (
        ([], {}),
        (["--dtype", "float64"], {"dtype": "float64"}),
        (["--raw"], {"raw": True}),
        (["--no-bos"], {"bos": False}),
        (["--bos"], {"bos": True}),
        (["--no-special"], {"special": False}),
    ):
        assert ask(*options) == 0
        model = api.open(folder, use=Engine(ModelStore()), **arguments)  # type: ignore[arg-type]
        wanted = model.compute("predictions", text=TEXT, whole=True, fresh=True).result.all_logits
        found = np.load(out)["all_logits"]
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert ask("--dtype", "float16") == 2 and ask("--bos", "--no-bos") == 2
    assert main(["compute", "token_loss", "--at", "a.circuitlab", "--raw"]) == 2
    capsys.readouterr()
