"""nanoGPT, llama2.c and the shared checkpoints: against a forward pass in plain torch, `transformers`, and stored values."""

from __future__ import annotations

import argparse
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.errors import BadModel
from circuitlab.model import block
from circuitlab.model.folding import under
from circuitlab.model.forward import forward
from circuitlab.model.loading import open_model
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions

IDS = (3, 0, 7, 7, 2, 9)


# -- nanoGPT -----------------------------------------------------------------------------------------------------------------


def _nanogpt(d: int, layers: int, vocab: int, length: int, bias: bool) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(d)
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (vocab, d), "wpe.weight": (length, d), "ln_f.weight": (d,)}
    for i in range(layers):
        linear = {"attn.c_attn": (3 * d, d), "attn.c_proj": (d, d), "mlp.c_fc": (4 * d, d), "mlp.c_proj": (d, 4 * d)}
        shapes |= {f"h.{i}.{n}.weight": s for n, s in linear.items()} | {f"h.{i}.ln_{k}.weight": (d,) for k in (1, 2)}
        shapes |= {f"h.{i}.{n}.bias": s[:1] for n, s in linear.items()} if bias else {}
        shapes |= {f"h.{i}.ln_{k}.bias": (d,) for k in (1, 2)} if bias else {}
    shapes |= {"ln_f.bias": (d,)} if bias else {}
    made = {f"transformer.{n}": torch.randn(s, generator=rng) * 0.4 for n, s in shapes.items()}
    return made | {"lm_head.weight": made["transformer.wte.weight"]}


def _plain_nanogpt(w: dict[str, Tensor], heads: int, layers: int, gelu: str) -> Tensor:
    """Logits of `IDS`, written out as the model's paper has it."""
    get = lambda name: w.get(f"transformer.{name}")
    d = w["lm_head.weight"].shape[1]
    linear = lambda x, name: F.linear(x, w[f"transformer.{name}.weight"], get(f"{name}.bias"))
    norm = lambda x, name: F.layer_norm(x, (d,), get(f"{name}.weight"), get(f"{name}.bias"), 1e-5)
    n = len(IDS)
    x = w["transformer.wte.weight"][list(IDS)] + w["transformer.wpe.weight"][:n]
    for i in range(layers):
        q, k, v = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(d, dim=1)
        q, k, v = (t.view(n, heads, d // heads).transpose(0, 1) for t in (q, k, v))
        scores = (q @ k.transpose(1, 2) / math.sqrt(d // heads)).masked_fill(~torch.ones(n, n).tril().bool(), -math.inf)
        x = x + linear((scores.softmax(-1) @ v).transpose(0, 1).reshape(n, d), f"h.{i}.attn.c_proj")
        hidden = F.gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate=gelu)
        x = x + linear(hidden, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["lm_head.weight"].T


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_nanogpt_computes_what_its_definition_says(tmp_path: Path, bias: bool, prefix: str) -> None:
    tensors = _nanogpt(12, 2, 11, 8, bias)
    held = {f"{prefix}{n}": v for n, v in tensors.items()} | {f"{prefix}transformer.h.0.attn.bias": torch.ones(1, 1, 8, 8)}
    args = {"n_layer": 2, "n_head": 3, "n_embd": 12, "block_size": 8, "bias": bias, "vocab_size": 11, "dropout": 0.0}
    torch.save({"model": held, "model_args": args, "iter_num": 5, "optimizer": {"state": {}}}, tmp_path / "ckpt.pt")
    opened = open_model(tmp_path / "ckpt.pt")
    wanted = _plain_nanogpt(tensors, 3, 2, "none")
    assert torch.allclose(forward(opened.weights, IDS).logits(), wanted, atol=2e-5)
    folded = forward(under(opened.weights, Conventions()), IDS).log_probs()
    assert torch.allclose(folded, wanted.log_softmax(-1), atol=2e-4)
    assert opened.weights.config.tied and opened.weights.config.n_ctx == 8 and opened.family == "nanoGPT"
    tanh = open_model(tmp_path / "ckpt.pt", assume={"activation": "gelu_new"})
    assert torch.allclose(forward(tanh.weights, IDS).logits(), _plain_nanogpt(tensors, 3, 2, "tanh"), atol=2e-5)


@pytest.mark.parametrize("name", ["transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.mlp.c_fc.weight"])
@pytest.mark.parametrize("value", [torch.tensor(1.0), torch.ones(3), torch.ones(2, 2, 2), torch.zeros(0, 4)])
def test_nanogpts_whose_matrices_are_none_are_refused(tmp_path: Path, name: str, value: Tensor) -> None:
    torch.save({"model": {**_nanogpt(12, 2, 11, 8, True), name: value}, "model_args": {"n_head": 3}}, tmp_path / "ckpt.pt")
    with pytest.raises(BadModel):
        open_model(tmp_path / "ckpt.pt")


def test_nanogpt_without_arguments_must_be_told_its_heads(tmp_path: Path) -> None:
    tensors = _nanogpt(12, 1, 11, 8, False)
    torch.save(tensors, tmp_path / "ckpt.pt")
    with pytest.raises(BadModel, match="do not say what n_heads is"):
        open_model(tmp_path / "ckpt.pt")
    opened = open_model(tmp_path / "ckpt.pt", assume={"n_heads": "2"})
    assert torch.allclose(forward(opened.weights, IDS).logits(), _plain_nanogpt(tensors, 2, 1, "none"), atol=2e-5)
    with pytest.raises(BadModel, match="heads do not divide"):
        open_model(tmp_path / "ckpt.pt", assume={"n_heads": "5"})


@pytest.mark.parametrize("name", ["model_args", "config", "args"])
def test_nanogpt_takes_its_heads_from_whatever_object_names_them(tmp_path: Path, name: str) -> None:
    tensors = _nanogpt(12, 1, 11, 8, False)
    for value in ({"n_head": 2}, argparse.Namespace(n_head=2, out=Path("x"))):
        torch.save({"net": tensors, name: value}, tmp_path / "ckpt.pt")
        opened = open_model(tmp_path / "ckpt.pt")
        assert torch.allclose(forward(opened.weights, IDS).logits(), _plain_nanogpt(tensors, 2, 1, "none"), atol=2e-5)


# -- llama2.c ----------------------------------------------------------------------------------------------------------------


def _llama(tied: bool) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6}
    config = transformers.LlamaConfig(
        **sizes, num_key_value_heads=2, vocab_size=31, max_position_embeddings=16, rms_norm_eps=1e-5, tie_word_embeddings=tied
    )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def _neighbours(weight: Tensor, heads: int) -> Tensor:
    """Rotary halves -> neighbouring pairs, of a projection [head · d_head, d_model]."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _written(path: Path, model: Any, tied: bool, version: int) -> None:
    """A file as llama2.c's export writes it."""
    s, layers = model.state_dict(), range(2)
    stack = lambda name: [s[f"model.layers.{i}.{name}.weight"] for i in layers]
    turn = lambda name, heads: [_neighbours(x, heads) for x in stack(name)]
    attention = [
        *turn("self_attn.q_proj", 6),
        *turn("self_attn.k_proj", 2),
        *stack("self_attn.v_proj"),
        *stack("self_attn.o_proj"),
    ]
    mlp = [*stack("mlp.gate_proj"), *stack("mlp.down_proj"), *stack("mlp.up_proj")]
    first, second, last = stack("input_layernorm"), stack("post_attention_layernorm"), [s["model.norm.weight"]]
    table, output = [s["model.embed_tokens.weight"]], [] if tied else [s["lm_head.weight"]]
    sizes = (24, 40, 2, 6, 2, -31 if version == 0 and not tied else 31, 16)
    if version == 0:
        head = struct.pack("<7i", *sizes)
        order = [*table, *first, *attention, *second, *mlp, *last, torch.zeros(2, 16, 2), *output]
    else:
        head = struct.pack("<Ii7iB", 0x616B3432, 1, *sizes, tied).ljust(256, b"\0")
        order = [*first, *second, *last, *table, *attention, *mlp, *output]
    path.write_bytes(head + b"".join(x.contiguous().numpy().astype("<f4").tobytes() for x in order))


@pytest.mark.parametrize("keep", ["resident", "mapped"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("version", [0, 1])
def test_llama2c_agrees_with_transformers(tmp_path: Path, tied: bool, version: int, keep: Any) -> None:
    model = _llama(tied)
    _written(tmp_path / "model.bin", model, tied, version)
    opened = open_model(tmp_path / "model.bin", keep)
    ids = (1, 5, 30, 2, 2, 17, 9)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    assert torch.allclose(forward(opened.weights, ids).logits(), theirs, atol=1e-4)
    assert opened.weights.config.tied is tied and opened.weights.resident is (keep == "resident")


def test_a_width_whose_first_byte_begins_a_pickle_is_no_pickle(tmp_path: Path) -> None:
    sizes = (128, 1, 1, 1, 1, 1, 1)
    count = 128 * (1 + 1 + 4 * 128 + 1 + 3 + 1) + 2 * 64
    (tmp_path / "model.bin").write_bytes(struct.pack("<7i", *sizes) + bytes(4 * count))
    assert open_model(tmp_path / "model.bin").weights.config.d_model == 128


@pytest.mark.parametrize("cut", [-4, 4])
def test_another_length_is_not_llama2c(tmp_path: Path, cut: int) -> None:
    _written(tmp_path / "model.bin", _llama(True), True, 0)
    data = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(data[:cut] if cut < 0 else data + bytes(cut))
    with pytest.raises(BadModel):
        open_model(tmp_path / "model.bin")


# -- the shared checkpoints --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stories(shared_dir: Path) -> Path:
    """The stories260K folder."""
    folder = shared_dir / "checkpoints" / "stories260K"
    if not folder.is_dir():
        pytest.skip("needs ../shared/checkpoints/stories260K")
    return folder


def _greedy(opened: Any, n_bytes: int) -> bytes:
    ids: tuple[int, ...] = (1,)
    run: Run | None = None
    while True:
        run = forward(opened.weights, ids, prefix=run)
        ids = (*ids, int(run.logits(slice(len(ids) - 1, None)).argmax()))
        text = opened.weights.tokenizer.decode(ids).encode()
        if len(text) >= n_bytes:
            return text


@pytest.mark.parametrize("name", ["stories260K.bin", "."])
def test_stories_continue_as_stored(stories: Path, name: str) -> None:
    expected = (stories / "expected_greedy.txt").read_bytes()
    assume = {"tokenizer": str(stories / "tok512.bin")} if name == "." else None
    opened = open_model(stories / name, assume=assume)
    assert _greedy(opened, len(expected))[: len(expected)] == expected


def test_stories_are_one_model_in_two_formats(stories: Path) -> None:
    ours, twin = open_model(stories / "stories260K.bin"), open_model(stories)
    tokenizer = ours.weights.tokenizer
    assert tokenizer is not None
    text = "Once upon a time there was a café, and Lily said: no!\n\t你好"
    ids = tokenizer.encode(text, True)
    assert ids[0] == 1 and tokenizer.decode(ids) == text
    assert (forward(ours.weights, ids).logits() - forward(twin.weights, ids).logits()).abs().max() < 5e-5


def test_sorting_model_has_its_25_stored_activations(shared_dir: Path) -> None:
    folder = shared_dir / "checkpoints" / "llm-viz-nano-sort"
    if not folder.is_dir():
        pytest.skip("needs ../shared/checkpoints/llm-viz-nano-sort")
    stored = np.load(folder / "partials.npz")
    weights = open_model(folder).weights
    checked = set[str]()
    for row, ids in enumerate(stored["idx"].astype(int)):
        for name, value in _partials(weights, tuple(ids.tolist())).items():
            theirs = stored[name][min(row, len(stored[name]) - 1)]
            seen = np.isfinite(theirs)
            assert np.abs(np.asarray(value)[seen] - theirs[seen]).max() < 1e-5, name
            checked.add(name)
    assert checked == set(stored.files) and len(checked) == 25


def _partials(w: Any, ids: tuple[int, ...]) -> dict[str, Any]:
    """The stored activations by their names, of one row of ids."""
    run, c, layer, embed = forward(w, ids), w.config, w.layer(0), w.embed()
    read = block.normalise(run.get("resid_pre", 0), layer.attn_norm, c.norm, c.norm_eps)
    mid = run.get("resid_mid", 0)
    second = block.normalise(mid, layer.mlp_norm, c.norm, c.norm_eps)
    q, k, v = (run.get(name, 0) for name in ("q", "k", "v"))
    end = w.unembed().norm
    assert run.final is not None
    return {
        "idx": ids,
        "tok_emb": embed.W_E[list(ids)],
        "pos_emb": embed.W_pos,
        "x": run.get("resid_pre", 0),
        "ln1": read,
        "q": q,
        "k": k,
        "v": v,
        "qkv": torch.cat([block.merge_heads(x) for x in (q, k, v)], dim=-1),
        "att": run.get("scores", 0),
        "attSm": run.get("pattern", 0),
        "y": block.merge_heads(run.get("z", 0)),
        "yProj": run.get("attn_out", 0),
        "attnResid": mid,
        "ln2": second,
        "fc": second @ layer.mlp.W_in + layer.mlp.b_in,
        "gelu": block.mlp_hidden(c, layer.mlp, second),
        "mlp": run.get("mlp_out", 0),
        "mlpResid": run.get("resid_post", 0),
        **{f"block{i}": run.get("resid_post", i) for i in range(3)},
        "ln_f": block.normalise(run.final, end, c.norm, c.norm_eps),
        "lm_head": run.logits(),
        "probs": run.log_probs().exp(),
    }
