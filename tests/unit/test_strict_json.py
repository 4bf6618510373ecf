"""What is read generously in the JSON of model files, and what is not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from circuitlab.errors import BadModel
from circuitlab.model.files.strict_json import parse
from circuitlab.model.files.tensors import open_safetensors
from circuitlab.model.loading import open_model
from tests.models import directory


@pytest.mark.parametrize(
    "text", ["1000000000000000019884624838656", "1" + "0" * 308, "9" * 4000, str(2**63), "-" + "9" * 40], ids=len
)
def test_a_whole_number_beyond_64_bits_is_a_float(text: str) -> None:
    value = parse(f'{{"model_max_length": {text}}}'.encode(), "tokenizer_config.json")["model_max_length"]
    assert isinstance(value, float)
    assert value == float(text) or math.isinf(value)


@pytest.mark.parametrize("number", [0, 2**63 - 1, -(2**63), 512])
def test_a_whole_number_of_64_bits_is_itself(number: int) -> None:
    value = parse(json.dumps({"a": number}).encode(), "config.json")["a"]
    assert type(value) is int
    assert value == number


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"a": ' + "9" * 5000 + "}", "[" * 100_000, "{", "[]"], ids=len)
def test_what_is_ambiguous_or_without_end_is_refused(text: str) -> None:
    with pytest.raises(BadModel):
        parse(text.encode(), "config.json")


@pytest.mark.parametrize("name", ["n_layers", "d_model", "n_heads", "n_ctx", "d_vocab"])
@pytest.mark.parametrize("size", [10**30, -(10**30), 10**400], ids=lambda n: f"{float(str(n)):g}")
def test_where_a_number_decides_a_shape_it_is_refused_by_its_name(tmp_path: Path, name: str, size: int) -> None:
    folder = directory(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    assert name in config
    (folder / "config.json").write_text(json.dumps({**config, name: size}))
    with pytest.raises(BadModel, match=name):
        open_model(folder)


def test_a_header_that_gives_a_tensor_such_an_axis_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    header["a"]["shape"] = [10**30]
    text = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(BadModel):
        open_safetensors(tmp_path / "a.safetensors")
