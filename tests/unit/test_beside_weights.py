"""What people save beside weights: passed over and listed, never run; and under which key the weights themselves lie."""

from __future__ import annotations

import argparse
import collections
import datetime
import enum
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.errors import BadModel
from circuitlab.model.files.pickled import Pickled, read_pickle
from circuitlab.model.forward import forward
from circuitlab.model.loading import open_model
from circuitlab.model.loading.assumptions import YOUR_CHOICE
from tests.fuzz.corpus import CORPUS, gpt2_tensors

FORMATS = [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}, {"pickle_protocol": 5}]
WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}


@dataclass
class Settings:
    """As people have them in their training scripts."""

    n_head: int = 4
    where: Path = Path("/tmp/x")
    text: str = "abc"


class Slotted:
    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 3


class Attributes(dict):  # type: ignore[type-arg]
    """As Lightning's hyperparameters are."""


class Mode(enum.Enum):
    FAST = 1


def _optimiser() -> dict[str, Any]:
    layer = torch.nn.Linear(2, 2)
    made = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    made.step()
    return made.state_dict()


HARMLESS: dict[str, Any] = {
    "array": np.zeros((3, 2)),
    "names": np.array(["x", "yy"]),
    "half": np.float16(1.5),
    "args": argparse.Namespace(n_head=4, out=Path("/tmp/y"), lr=1e-3),
    "out": Path("/tmp/z"),
    "seen": {1, 2, "a"},
    "frozen": frozenset({(1, 2)}),
    "when": datetime.datetime(2020, 1, 2),
    "counts": collections.Counter("aab"),
    "groups": collections.defaultdict(list, {"k": [1]}),
    "recent": collections.deque([1, 2]),
    "config": Settings(),
    "slotted": Slotted(),
    "hyper": Attributes(width=3),
    "kind": torch.nn.GELU,
    "activation": torch.nn.GELU(),
    "optimizer": _optimiser(),
    "rng": torch.get_rng_state(),
    "nested": {"path": Path("/tmp/n"), "size": 7},
    "complex": 1 + 2j,
}


def _read(path: Path, under: str | None = None) -> Pickled:
    contents = read_pickle(path, under)
    assert contents is not None
    return contents


@pytest.mark.parametrize("how", FORMATS)
def test_harmless_objects_are_passed_over_and_listed(tmp_path: Path, how: dict[str, Any]) -> None:
    torch.save({"model": WEIGHTS, "step": 5, **HARMLESS}, tmp_path / "a.pt", **how)
    result = _read(tmp_path / "a.pt")
    assert result.tensors.names() == set(WEIGHTS) and torch.equal(result.tensors.copy("a"), WEIGHTS["a"])
    assert result.metadata["step"] == 5
    assert result.metadata["args"] == {"n_head": 4, "lr": 1e-3}, "plain attributes are read"
    assert result.metadata["config"] == {"n_head": 4, "text": "abc"} and result.metadata["slotted"] == {"size": 3}
    assert result.metadata["hyper"] == {"width": 3} and result.metadata["nested"] == {"size": 7}
    assert "optimizer" not in result.metadata
    for name, value in HARMLESS.items():
        torch.save({"model": WEIGHTS, name: value}, tmp_path / "one.pt", **how)
        one = _read(tmp_path / "one.pt")
        assert len(one.skipped) == 1 and one.skipped[0].startswith(name), (name, one.skipped)
    assert len(result.skipped) == 13 and result.skipped[-1] == f"and {len(HARMLESS) - 12} more"


def test_a_model_lists_what_lay_beside_it(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    wanted = forward(open_model(path).weights, (1, 2, 3)).logits()
    (path / "model.safetensors").unlink()
    torch.save({"model": gpt2_tensors(), "args": argparse.Namespace(x=Path("y")), "seen": {1}}, path / "pytorch_model.bin")
    opened = open_model(path)
    assert torch.equal(forward(opened.weights, (1, 2, 3)).logits(), wanted)
    (note,) = [n for n in opened.notes if "beside the weights" in n]
    assert "args (argparse.Namespace" in note and "seen (builtins.set)" in note


class _Runs:
    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("how", FORMATS)
def test_calls_within_harmless_objects_are_refused_and_not_run(tmp_path: Path, how: dict[str, Any]) -> None:
    ran = tmp_path / "ran"
    trick = _Runs(os.mkdir, str(ran))
    for value in (argparse.Namespace(x=trick), {1: [trick]}, (trick,), Attributes(x=trick), Settings(text=trick)):  # type: ignore[arg-type]
        torch.save({"model": WEIGHTS, "args": value}, tmp_path / "a.pt", **how)
        with pytest.raises(BadModel, match="mkdir; it was not run"):
            read_pickle(tmp_path / "a.pt")
        assert not ran.exists()
    torch.save({"model": WEIGHTS, "mode": Mode.FAST}, tmp_path / "a.pt", **how)
    with pytest.raises(BadModel, match="Mode"):  # a class that is called cannot be told from a function
        read_pickle(tmp_path / "a.pt")


@pytest.mark.parametrize("key", ["net", "model_state", "a.b", "weights"])
def test_weights_lie_under_any_key(tmp_path: Path, key: str) -> None:
    held: dict[str, Any] = dict(WEIGHTS)
    for part in reversed(key.split(".")):
        held = {part: held, "epoch": 3, "optim": _optimiser()}
    torch.save(held, tmp_path / "a.pt")
    result = _read(tmp_path / "a.pt")
    assert result.under == key and not result.usual and result.tensors.names() == set(WEIGHTS)
    assert result.metadata["epoch"] == 3 and any("optim" in s for s in result.skipped)


def test_of_several_keys_the_person_says_which(tmp_path: Path) -> None:
    torch.save({"net": WEIGHTS, "net_ema": {n: 2 * x for n, x in WEIGHTS.items()}}, tmp_path / "a.pt")
    with pytest.raises(BadModel, match="several keys") as refused:
        read_pickle(tmp_path / "a.pt")
    assert refused.value.asks == {"under": ("net", "net_ema")}
    assert "net_ema" in refused.value.got and "--assume under=" in refused.value.remedy
    assert torch.equal(_read(tmp_path / "a.pt", "net_ema").tensors.copy("b"), 2 * WEIGHTS["b"])
    with pytest.raises(BadModel, match="under that key"):
        read_pickle(tmp_path / "a.pt", "other")
    torch.save({"model": WEIGHTS, "ema": {n: 2 * x for n, x in WEIGHTS.items()}}, tmp_path / "a.pt")
    assert torch.equal(_read(tmp_path / "a.pt").tensors.copy("b"), WEIGHTS["b"]), "the usual key is taken as it is"
    assert torch.equal(_read(tmp_path / "a.pt", "ema").tensors.copy("b"), 2 * WEIGHTS["b"])


def test_the_key_is_an_assumption_that_can_be_corrected(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    (path / "model.safetensors").unlink()
    twice = {n: 2 * x for n, x in gpt2_tensors().items()}
    torch.save({"net": {"sgd": gpt2_tensors()}}, path / "pytorch_model.bin")
    listed = {a.name: a.value for a in open_model(path).assumptions}
    assert listed["under"] == "net.sgd"
    torch.save({"net": gpt2_tensors(), "ema": twice}, path / "pytorch_model.bin")
    opened = open_model(path, assume={"under": "ema"})
    assert {a.name: a.why for a in opened.assumptions}["under"].endswith(YOUR_CHOICE)
    assert torch.equal(opened.weights.embed().W_E, twice["wte.weight"])


def test_a_module_saved_whole_is_read_as_its_state_dict(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.TransformerEncoderLayer(4, 2, 8), torch.nn.Linear(4, 5))
    model[2].weight = model[0].weight
    for held in (model, {"net": model, "step": 1}):
        torch.save(held, tmp_path / "a.pt")
        result = _read(tmp_path / "a.pt")
        assert result.tensors.names() == set(model.state_dict())
        assert all(torch.equal(result.tensors.copy(n), x) for n, x in model.state_dict().items())
        assert result.tensors.alias("2.weight") == result.tensors.alias("0.weight")


class Configured(torch.nn.Module):
    """As nanoGPT and TransformerLens have their sizes at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.inner = Settings(), torch.nn.Linear(2, 3)


def test_the_attributes_of_a_module_saved_whole_are_read_too(tmp_path: Path) -> None:
    torch.save(Configured(), tmp_path / "a.pt")
    result = _read(tmp_path / "a.pt")
    assert result.metadata["config"] == {"n_head": 4, "text": "abc"} and result.metadata["training"] is True
    assert result.tensors.names() == {"inner.weight", "inner.bias"}


def test_a_file_that_repeats_itself_is_looked_at_once(tmp_path: Path) -> None:
    """A few bytes that name one large thing many times cost no more than a small file."""
    wide = [0] * 9_000
    held: dict[str, Any] = {"model": WEIGHTS, **{f"k{i}": {str(j): [wide] for j in range(50)} for i in range(200)}}
    held["modules"] = dict.fromkeys(map(str, range(2000)), torch.nn.Sequential(*[torch.nn.Linear(2, 2)] * 50))
    torch.save(held, tmp_path / "a.pt")
    result = _read(tmp_path / "a.pt")
    assert result.tensors.names() == set(WEIGHTS) and len(result.metadata) < 200


def test_large_vocabularies_are_not_cut_off(tmp_path: Path) -> None:
    torch.save({"model": WEIGHTS, "stoi": {chr(0x4E00 + i): i for i in range(12_000)}}, tmp_path / "a.pt")
    assert len(_read(tmp_path / "a.pt").metadata["stoi"]) == 12_000


def test_a_configuration_saved_with_the_weights_names_the_family(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    wanted = forward(open_model(path).weights, (1, 2, 3)).logits()
    torch.save({"model": gpt2_tensors(), "config": config, "args": argparse.Namespace(out=path)}, tmp_path / "one.pt")
    assert torch.equal(forward(open_model(tmp_path / "one.pt").weights, (1, 2, 3)).logits(), wanted)
    torch.save({"model": gpt2_tensors(), "config": {**config, "model_type": "bert"}}, tmp_path / "one.pt")
    with pytest.raises(BadModel, match="encoder"):
        open_model(tmp_path / "one.pt")


def test_arrays_of_numpy_alone_say_what_to_do(tmp_path: Path) -> None:
    torch.save({n: x.numpy() for n, x in WEIGHTS.items()}, tmp_path / "a.pt")
    with pytest.raises(BadModel, match="NumPy arrays") as refused:
        read_pickle(tmp_path / "a.pt")
    assert "from_numpy" in refused.value.remedy
    torch.save({"model": WEIGHTS, "history": np.zeros(10**6)}, tmp_path / "a.pt")
    with pytest.raises(BadModel, match="too much besides tensors"):
        read_pickle(tmp_path / "a.pt")


@pytest.mark.parametrize("how", FORMATS[1:2])
def test_a_pickle_cut_short_anywhere_is_said_to_be_damaged(tmp_path: Path, how: dict[str, Any]) -> None:
    torch.save({"model": WEIGHTS, "args": argparse.Namespace(x={1}, y=np.float16(1))}, tmp_path / "a.pt", **how)
    data = (tmp_path / "a.pt").read_bytes()
    for n in range(2, len(data) - 1, 7):
        (tmp_path / "b.pt").write_bytes(data[:n])
        with pytest.raises(BadModel):
            read_pickle(tmp_path / "b.pt")
