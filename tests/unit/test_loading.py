"""Opening models: what is wrong is said with what was expected, what came and what to do."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.errors import BadModel
from circuitlab.model.config import Experts, ModelConfig, Rotary
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.forward import forward
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights, expected_shapes
from circuitlab.model.loading import families, open_model
from circuitlab.model.loading.layout import LaidOut, Layout, stored
from circuitlab.model.saving import random_tensors
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from tests.models import CONFIGS, byte_tokenizer, directory


def _rewrite(path: Path, **changes: object) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))


def _damage(path: Path, what: str) -> None:
    weights = path / "model.safetensors"
    data = weights.read_bytes()
    if what == "no weights":
        weights.unlink()
    elif what == "no config":
        (path / "config.json").unlink()
    elif what == "truncated":
        weights.write_bytes(data[: len(data) // 2])
    elif what == "not safetensors":
        weights.write_bytes(b"PK\x03\x04" + data[4:])
    elif what == "header lies":
        weights.write_bytes(struct.pack("<Q", 2**60) + data[8:])
    elif what == "empty file":
        weights.write_bytes(b"")
    elif what == "config is a list":
        (path / "config.json").write_text("[1]")
    elif what == "config is no JSON":
        (path / "config.json").write_text("{")
    elif what == "unknown family":
        (path / "config.json").write_text('{"model_type": "neither"}')
    elif what == "unknown field":
        _rewrite(path, n_experts=8)
    elif what == "wrong shape":
        _rewrite(path, d_vocab=300)
    elif what == "bad size":
        _rewrite(path, n_heads="four")
    elif what == "bad tokenizer":
        (path / "tokenizer.json").write_text("{}")
    else:
        _edit_tensors(weights, what)


def _edit_tensors(weights: Path, what: str) -> None:
    tensors = load_file(weights)
    if what == "NaN":
        tensors["layers.1.W_K"][1, 2, 3] = torch.nan
    elif what == "infinite":
        tensors["embed.W_E"][0, 0] = torch.inf
    elif what == "missing tensor":
        del tensors["layers.0.W_Q"]
    elif what == "unused tensor":
        tensors["layers.7.W_Q"] = torch.zeros(1)
    elif what == "integers":
        tensors["layers.0.W_Q"] = tensors["layers.0.W_Q"].to(torch.int64)
    save_file(tensors, weights)


DAMAGE = {
    "no weights": "model.safetensors does not exist",
    "no config": "config.json is missing",
    "truncated": "damaged or not a safetensors",
    "not safetensors": "is a checkpoint of torch under the name of another kind",
    "header lies": "damaged or not a safetensors",
    "empty file": "is empty",
    "config is a list": "not a JSON object",
    "config is no JSON": "not JSON",
    "unknown family": "family is unknown",
    "unknown field": "n_experts",
    "wrong shape": "wrong shape",
    "bad size": "n_heads",
    "bad tokenizer": "tokenizer.json",
    "NaN": "not numbers",
    "infinite": "not numbers",
    "missing tensor": "layers.0.W_Q",
    "unused tensor": "layers.7.W_Q",
    "integers": "dtype",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_directory_is_refused_in_words(tmp_path: Path, what: str) -> None:
    path = directory(tmp_path / "m")
    _damage(path, what)
    with pytest.raises(BadModel) as caught:
        open_model(path)
    assert DAMAGE[what] in str(caught.value)
    assert caught.value.expected
    assert caught.value.got
    assert caught.value.exit_code == 3


def _gpt2(path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11, n_positions=16, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_head": 3}, "divide"),
        ({"n_embd": "8"}, "n_embd"),
        ({"activation_function": "swishy"}, "activation"),
        ({"add_cross_attention": True}, "Cross-attention"),
        ({"n_layer": 3}, "lack"),
        ({"vocab_size": 12}, "wrong shape"),
        ({"tie_word_embeddings": False}, "lm_head"),
    ],
)
def test_gpt2_directories_that_contradict_themselves_are_refused(tmp_path: Path, changes: dict, words: str) -> None:
    path = _gpt2(tmp_path)
    _rewrite(path, **changes)
    with pytest.raises(BadModel, match=words):
        open_model(path)


def test_gpt2_says_what_was_assumed_and_what_is_unused(tmp_path: Path) -> None:
    path = _gpt2(tmp_path)
    tensors = load_file(path / "model.safetensors")
    prefix = "transformer." if any(n.startswith("transformer.") for n in tensors) else ""
    tensors[f"{prefix}h.0.extra"] = torch.zeros(2)
    tensors[f"{prefix}h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    save_file(tensors, path / "model.safetensors")
    notes = " ".join(open_model(path).notes)
    assert "h.0.extra" in notes
    assert "attn.bias" not in notes
    assert "score scale" in notes
    assert "tied" in notes


@pytest.mark.parametrize("name", CONFIGS)
def test_a_saved_model_is_the_same_model(tmp_path: Path, name: str) -> None:
    path = directory(tmp_path / "m", CONFIGS[name], tokenizer=False)
    opened = open_model(path)
    assert opened.weights.config == CONFIGS[name]
    assert opened.weights.tokenizer is None
    expected = random_tensors(CONFIGS[name], 0, 0.35)
    assert torch.equal(opened.weights.layer(0).W_Q, expected["layers.0.W_Q"])


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_counted_by_their_shapes(name: str) -> None:
    assert CONFIGS[name].n_parameters() == sum(t.numel() for t in random_tensors(CONFIGS[name]).values())


@pytest.mark.parametrize(
    "changes",
    [
        {"n_heads": 0},
        {"d_model": -1},
        {"n_kv_heads": 3},
        {"positions": "relative"},
        {"positions": "alibi", "slopes": (0.5, 0.25)},
        {"positions": "alibi", "score_soft_cap": 5.0},
        {"slopes": (0.5, 0.25, 0.125, 0.0625)},
        {"experts": Experts(4, 2)},
        {"d_mlp": 8, "biases": ("mlp",), "experts": Experts(4, 2)},
        {"windows": (1,)},
        {"rotary": Rotary(dims=5)},
        {"rotary": Rotary(theta=(1.0, 2.0))},
        {"biases": ("x",)},
        {"parallel": True},
        {"score_scale": float("nan")},
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(changes: dict) -> None:
    with pytest.raises(BadModel):
        ModelConfig(**{"n_layers": 2, "n_heads": 4, "d_model": 8, "d_head": 2, "d_vocab": 9, "n_ctx": 4, **changes})


def test_references_are_read() -> None:
    from circuitlab.model.loading import resolve

    assert resolve(ModelRef("file:somewhere")) == Path("somewhere")
    with pytest.raises(BadModel):
        resolve(ModelRef("builtin:no-such-model"))
    with pytest.raises(BadModel):
        resolve(ModelRef("ftp:x"))


def test_families_are_found() -> None:
    assert {f.name for f in families()} >= {"circuitlab", "gpt2"}


NASTY = "naïve  café\n\t x\u00a0y 🙂 e\u0301 <s> <|bos|> \u202e \x00 ﷽"


def test_text_survives_a_byte_level_tokenizer() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode(NASTY)
    assert tokenizer.decode(ids) == NASTY
    assert 0 not in ids
    assert tokenizer.encode("a", bos=True)[0] == tokenizer.bos == 0


def test_tokens_are_shown_with_nothing_invisible() -> None:
    tokenizer = byte_tokenizer()
    assert [tokenizer.display(i) for i in tokenizer.encode(" \n\t")] == ["·", "↵", "⇥"]
    assert tokenizer.display(tokenizer.encode("é")[0]) == "⟨c3⟩"
    assert tokenizer.display(0) == "<|bos|>"
    assert tokenizer.display(9999) == "⟨id 9999⟩"


def test_the_real_gpt2_tokenizer_round_trips(shared_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(shared_dir / "tokenizers" / "gpt2" / "tokenizer.json")
    assert tokenizer.n_tokens == 50257
    assert tokenizer.encode("Hello world") == (15496, 995)
    assert tokenizer.decode(tokenizer.encode(NASTY)) == NASTY


def test_llm_viz_nano_sort_matches_its_stored_activations(shared_dir: Path) -> None:
    import numpy as np

    from circuitlab.model.forward import forward

    folder = shared_dir / "checkpoints" / "llm-viz-nano-sort"
    stored = np.load(folder / "partials.npz")
    weights = open_model(folder).weights
    for row, ids in enumerate(stored["idx"].astype(int)):
        run = forward(weights, tuple(ids.tolist()))
        for i in range(3):
            np.testing.assert_allclose(run.get("resid_post", i).numpy(), stored[f"block{i}"][row], atol=1e-5)
        np.testing.assert_allclose(run.log_probs().exp().numpy(), stored["probs"][row], atol=1e-5)
        for ours, theirs in (
            ("pattern", "attSm"),
            ("q", "q"),
            ("k", "k"),
            ("v", "v"),
            ("attn_out", "yProj"),
            ("mlp_out", "mlp"),
        ):
            np.testing.assert_allclose(run.get(ours, 0).numpy(), stored[theirs][row], atol=1e-5)


@pytest.mark.parametrize("sizes", [(0, 0), (4, 5), (4, 0), (2.0, 1)])
def test_experts_that_cannot_be_are_refused(sizes: tuple) -> None:
    with pytest.raises(BadModel):
        Experts(*sizes)


class Watched(ResidentTensors):
    """Tensors that remember which of them were asked for."""

    def __init__(self, tensors: dict) -> None:
        super().__init__(tensors)
        self.asked: set[str] = set()

    def tensor(self, name: str) -> torch.Tensor:
        self.asked.add(name)
        return super().tensor(name)


@pytest.mark.parametrize("laid_out", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "shared-expert"])
def test_only_what_is_used_is_read(name: str, laid_out: bool) -> None:
    """The attention of a layer without its MLP, the embedding without the unembedding, the experts that a token is sent to."""
    config = replace(CONFIGS[name], n_layers=1)
    source = Watched(random_tensors(config))
    names = list(expected_shapes(config))
    ends = {n: stored(n) for n in names if not n.startswith("layers.")}
    block = {n.removeprefix("layers.0."): stored(n) for n in names if n.startswith("layers.0.")}
    parts = LaidOut(config, Layout(ends, block), source) if laid_out else CanonicalParts(config, source)
    weights = LazyWeights(config, None, parts)
    source.asked.clear()
    weights.embed()
    assert source.asked == {"embed.W_E", "embed.W_pos"}
    weights.layer(0, mlp=False)
    assert "layers.0.W_Q" in source.asked
    assert not any(".mlp." in n for n in source.asked)
    forward(weights, (3,))
    experts = {n.split(".experts.")[1].split(".")[0] for n in source.asked if ".experts." in n}
    assert len(experts) == (config.experts.active if config.experts else 0)
    assert "unembed.W_U" not in source.asked
