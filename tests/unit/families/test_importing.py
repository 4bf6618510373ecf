"""Import by a map, and models straight from tensors: against the models that the tensors were taken from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.errors import BadModel, Cancelled, UsageError
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.forward import forward
from circuitlab.model.importing.by_map import map_of, refuse_problems, survey
from circuitlab.model.importing.streamed import stream_directory
from circuitlab.model.loading import open_model
from tests.models import CONFIGS, weights_of

IDS = (3, 0, 7, 7, 2, 9)


def _flat(x: Tensor) -> Tensor:
    """[head, d_model, d_head] -> [d_model, head · d_head]."""
    return x.permute(1, 0, 2).flatten(1)


def _foreign(tensors: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """A GPT-2-shaped model in a form of nobody's: joined, transposed, stacked over layers, offset."""
    get = lambda i, name: tensors[f"layers.{i}.{name}"]
    made = {"net.tok": tensors["embed.W_E"].T, "net.pos": tensors["embed.W_pos"], "net.head": tensors["unembed.W_U"].T}
    made |= {"net.end.g": tensors["unembed.norm.gain"] - 1, "net.end.b": tensors["unembed.norm.bias"], "net.step": torch.ones(1)}
    for i in range(n_layers):
        qkv = [_flat(get(i, f"W_{n}")) for n in "QKV"]
        made[f"net.{i}.qkv.w"] = torch.cat(qkv, dim=1).T
        inner = [get(i, f"b_{n}") for n in "QKV"]
        made[f"net.{i}.qkv.b"] = torch.stack(inner, dim=1).flatten()  # [head, (q | k | v), d_head]
        made |= {f"net.{i}.out.w": get(i, "W_O").flatten(0, 1).T, f"net.{i}.out.b": get(i, "b_O")}
        made[f"net.{i}.mask"] = torch.ones(3, 3).bool()
    for name in ("mlp.W_in", "mlp.b_in", "mlp.W_out", "mlp.b_out", "attn_norm.gain", "attn_norm.bias", "mlp_norm.gain"):
        made[f"net.stack.{name}"] = torch.stack([get(i, name) for i in range(n_layers)])
    made["net.stack.mlp_norm.bias"] = torch.stack([get(i, "mlp_norm.bias") for i in range(n_layers)])
    return {name: x.contiguous() for name, x in made.items()}


MAP = """
prefix = "net."
ignore = [".mask"]
[config]
{config}
[tensors]
"embed.W_E" = {{ from = "tok", transpose = true }}
"embed.W_pos" = "pos"
"unembed.W_U" = {{ from = "head", transpose = true }}
"unembed.norm.gain" = {{ from = "end.g", offset = 1 }}
"unembed.norm.bias" = "end.b"
W_Q = {{ from = "{{i}}.qkv.w", transpose = true, split = "q", heads = true }}
W_K = {{ from = "{{i}}.qkv.w", transpose = true, split = "k", heads = true }}
W_V = {{ from = "{{i}}.qkv.w", transpose = true, split = "v", heads = true }}
b_Q = {{ from = "{{i}}.qkv.b", split = "q within heads", heads = true }}
b_K = {{ from = "{{i}}.qkv.b", split = "k within heads", heads = true }}
b_V = {{ from = "{{i}}.qkv.b", split = "v within heads", heads = true }}
W_O = {{ from = "{{i}}.out.w", transpose = true, heads = true }}
b_O = "{{i}}.out.b"
"""
STACKED = ("mlp.W_in", "mlp.b_in", "mlp.W_out", "mlp.b_out", "attn_norm.gain", "attn_norm.bias", "mlp_norm.gain", "mlp_norm.bias")


def _map(path: Path, extra: str = "", without: str = "\0") -> Path:
    said = "\n".join(f"{n} = {json.dumps(v)}" for n, v in CONFIGS["gpt2"].to_json().items())
    text = MAP.format(config=said) + "".join(f'"{n}" = "stack.{n}[{{i}}]"\n' for n in STACKED) + extra
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith(without)))
    return path


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The file of a form that no family knows."""
    save_file(_foreign(weights_of(CONFIGS["gpt2"])[1], 2), tmp_path / "their.safetensors")
    return tmp_path / "their.safetensors"


def test_a_map_makes_the_same_model(foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadModel, match="family is unknown"):
        open_model(foreign)
    assert main(["import", str(foreign), "--map", str(_map(tmp_path / "map.toml")), "--output", str(tmp_path / "ours")]) == 0
    said = capsys.readouterr().out
    assert "unused 1: net.step" in said and "no tokenizer" in said
    weights, tensors = weights_of(CONFIGS["gpt2"])
    opened = open_model(tmp_path / "ours")
    assert opened.weights.config == CONFIGS["gpt2"]
    assert torch.allclose(forward(opened.weights, IDS).logits(), forward(weights, IDS).logits(), atol=1e-5)
    written = load_file(tmp_path / "ours" / "model.safetensors")
    assert all(torch.equal(written[n], x) for n, x in tensors.items() if n != "unembed.norm.gain")
    assert main(["import", str(foreign), "--map", str(tmp_path / "map.toml"), "--output", str(tmp_path / "ours")]) == 2


def test_check_writes_nothing_and_says_all_that_is_wrong(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(foreign), "--map", str(_map(tmp_path / "good.toml")), "--check"]) == 0
    wrong = _map(tmp_path / "wrong.toml", 'smear = "pos"\n', without="b_O").read_text()
    wrong = wrong.replace('"{i}.out.w", transpose = true', '"{i}.out.w"').replace('"pos"\n"unembed', '"place"\n"unembed')
    (tmp_path / "wrong.toml").write_text(wrong)
    assert main(["import", str(foreign), "--map", str(tmp_path / "wrong.toml"), "--check"]) == 3
    said = capsys.readouterr().out
    assert "embed.W_pos: there is no tensor place" in said
    assert "layers.1.b_O (24,): the map" in said
    assert "layers.0.smear has no place" in said
    assert said.count("problem:") == 5
    assert sorted(f.name for f in tmp_path.iterdir()) == ["good.toml", "their.safetensors", "wrong.toml"]
    assert main(["import", str(foreign), "--map", str(tmp_path / "wrong.toml")]) == 3
    assert not (tmp_path / "their-circuitlab").exists()


def test_shapes_that_do_not_fit_are_said_with_both(foreign: Path, tmp_path: Path) -> None:
    text = _map(tmp_path / "map.toml").read_text().replace("d_vocab = 260", "d_vocab = 261")
    (tmp_path / "map.toml").write_text(text)
    from circuitlab.model.importing.by_map import read_map
    from circuitlab.model.loading.checkpoint import tensors_at

    result, _ = survey(read_map(tmp_path / "map.toml"), tensors_at(foreign).needed())
    assert result.problems[0] == "embed.W_E from net.tok (24, 260): becomes (260, 24), not (261, 24)"


CONFIG = {"n_layers": 1, "n_heads": 2, "d_model": 6, "d_head": 3, "d_vocab": 7, "n_ctx": 5, "positions": "none"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"W_Q": {"from": "q", "transposed": True}}, "unknown steps"),
        ({"W_Q": {"transpose": True}}, "cannot be read"),
        ({"W_Q": {"from": "q", "split": "x"}}, "split"),
        ({"W_Q": {"from": "q", "half": 2}}, "half"),
        ({"W_Q": {"from": "q", "permute": [0, 0]}}, "permute"),
        ({"W_Q": {"from": "q", "offset": "1"}}, "offset"),
        ({"mlp.W_in": {"from": "q", "heads": True}}, "no heads"),
        ({"W_Q": {"from": "q", "transpose": 1}}, "transpose"),
    ],
)
def test_lines_that_cannot_be_read_are_refused(line: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        map_of({"config": CONFIG, "tensors": line})


def test_maps_that_are_no_maps_are_refused(tmp_path: Path, foreign: Path) -> None:
    for text in ("= 1", "[layers]\na = 1", '[config]\nn_layers = "two"'):
        (tmp_path / "map.toml").write_text(text)
        assert main(["import", str(foreign), "--map", str(tmp_path / "map.toml")]) in (2, 3)
    assert main(["import", str(foreign), "--map", str(tmp_path / "none.toml")]) == 2


def test_permuted_and_halved_tensors(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=rng)
    names = {"e": draw(7, 6), "u": draw(6, 7), "qkvo": draw(3, 2, 6), "v": draw(2, 6, 6)}
    lines = {"embed.W_E": "e", "unembed.W_U": "u", "W_Q": {"from": "qkvo", "permute": [1, 2, 0]}}
    lines |= {"W_K": {"from": "v", "half": 0}, "W_V": {"from": "v", "half": 1}, "W_O": {"from": "qkvo", "permute": [1, 0, 2]}}
    result, parts = survey(map_of({"config": CONFIG, "tensors": lines}), ResidentTensors(names))
    assert result.problems == () and result.unused == ()
    layer = parts.layer(0)
    assert torch.equal(layer["W_Q"], names["qkvo"].permute(1, 2, 0)) and torch.equal(layer["W_V"], names["v"][..., 3:])


def test_a_stopped_import_leaves_no_weights(foreign: Path, tmp_path: Path) -> None:
    from circuitlab.model.importing.by_map import read_map
    from circuitlab.model.loading.checkpoint import tensors_at

    _, parts = survey(read_map(_map(tmp_path / "map.toml")), tensors_at(foreign).needed())

    def tick(done: int, total: int, name: str) -> None:
        if done > total // 2:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        stream_directory(tmp_path / "ours", parts, None, tick)
    assert not (tmp_path / "ours").exists()


# -- from Python -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["attention-only", "llama", "both-norms-capped", "solu", "odd"])
def test_a_transformer_straight_from_tensors(name: str) -> None:
    weights, tensors = weights_of(CONFIGS[name])
    model = lab.Transformer(CONFIGS[name], {n: x.numpy() for n, x in tensors.items()})
    ids = (1, 5, 2, 2, 6)
    values = model.compute("predictions", tokens=ids).result.arrays()
    assert values
    opened = model.engine.store.open(model.ref).opened
    assert torch.equal(forward(opened.weights, ids).logits(), forward(weights, ids).logits())


def test_norms_may_be_left_out_and_bfloat16_stays(tmp_path: Path) -> None:
    _, tensors = weights_of(CONFIGS["gpt2"])
    bare = {n: x.bfloat16() for n, x in tensors.items() if not n.endswith(("norm.gain", "norm.bias"))}
    lab.Transformer(CONFIGS["gpt2"].to_json(), bare, tokenizer="attn-only-2l", folder=tmp_path / "model")
    written = load_file(tmp_path / "model" / "model.safetensors")
    assert written["layers.0.W_Q"].dtype == torch.bfloat16 and torch.equal(written["layers.1.mlp_norm.gain"], torch.ones(24))
    assert (tmp_path / "model" / "tokenizer.json").is_file()


def test_tensors_that_do_not_fit_are_all_named() -> None:
    _, tensors = weights_of(CONFIGS["attention-only"])
    del tensors["layers.0.W_K"]
    tensors |= {"layers.7.W_Q": torch.zeros(1), "embed.W_E": torch.zeros(2, 2)}
    with pytest.raises(BadModel) as caught:
        lab.Transformer(CONFIGS["attention-only"], tensors)
    for words in ("there is no tensor layers.0.W_K", "layers.7.W_Q has no place", "becomes (2, 2), not (260, 24)"):
        assert words in caught.value.got
    _, tensors = weights_of(CONFIGS["attention-only"])
    tensors["layers.1.W_V"][0, 0, 0] = np.nan
    with pytest.raises(BadModel, match="not numbers"):
        lab.Transformer(CONFIGS["attention-only"], tensors)


_FITS = {"wte": (24, 24), "q": (24, 15), "v": (15,), "u": (24, 260)}
_MISFITS = [  # a line of the map, and what its problem has to name: what is needed, what is there
    ({"embed.W_E": {"identity": True}}, ("embed.W_E", "identity", "d_model is 24", "d_vocab 260")),
    ({"W_Q": {"identity": True}}, ("W_Q", "identity", "d_model is 24", "n_heads · d_head 15")),
    ({"W_O": {"identity": True}}, ("W_O", "identity", "d_model is 24", "n_heads · d_head 15")),
    ({"W_K": {"from": "wte", "heads": True}}, ("3 heads of 5", "15", "24")),
    ({"W_K": {"from": "q", "split": "q", "heads": True}}, ("45 columns", "15")),
    ({"W_K": {"from": "wte", "split": "k within heads", "heads": True}}, ("45", "24")),
    ({"W_K": {"from": "v", "transpose": True}}, ("transpose", "2 axes", "(15,)")),
    ({"W_K": {"from": "wte", "permute": [0, 2, 1]}}, ("permute [0, 2, 1]", "3 axes", "(24, 24)")),
    ({"W_K": {"from": "v", "half": 0}}, ("even", "15")),
]


@pytest.mark.parametrize(("line", "named"), _MISFITS, ids=[str(line) for line, _ in _MISFITS])
def test_a_tensor_of_the_wrong_size_is_told_in_our_words(line: dict, named: tuple[str, ...]) -> None:
    config = {"n_layers": 1, "n_heads": 3, "d_head": 5, "d_model": 24, "d_vocab": 260, "n_ctx": 8}
    made = map_of({"config": config, "tensors": line})
    found, _ = survey(made, ResidentTensors({name: torch.zeros(shape) for name, shape in _FITS.items()}))
    (ours,) = line
    problem = next(p for p in found.problems if ours in p and "does not state" not in p)
    assert all(part in problem for part in named), problem
    assert not any(word in problem for word in ("unflatten", "Dimension", "dimension", "sizes [", "sparse"))
    with pytest.raises(BadModel, match="complete model") as caught:
        refuse_problems(found)
    assert problem in caught.value.got and "--check" in caught.value.remedy


def test_an_error_of_the_maps_configuration_names_the_map_and_no_file() -> None:
    with pytest.raises(BadModel) as caught:
        map_of({"config": {"n_layers": 2}})
    assert "[config] of the map" in caught.value.what and "config.json" not in str(caught.value)
    assert "n_layers" in caught.value.expected and "d_model" in caught.value.got
