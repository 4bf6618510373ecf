"""Families with ALiBi against `transformers`: BLOOM, MPT, and Falcon, which has rotary kinds too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from circuitlab.errors import BadModel
from circuitlab.model.config import alibi_slopes
from circuitlab.model.forward import forward, logits
from circuitlab.model.loading import open_model
from tests.unit.families.agreement import assert_agrees, assert_agrees_in_bfloat16, assert_analyses_work, configuration, saved

FALCON = {
    "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "max_position_embeddings": 64,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
NEWER = {**FALCON, "new_decoder_architecture": True}
RW = {**FALCON, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}
BLOOM = {"vocab_size": 31, "hidden_size": 24, "n_layer": 2, "n_head": 6, "seq_length": 48, "bos_token_id": 1, "eos_token_id": 2}
MPT = {"vocab_size": 31, "d_model": 24, "n_layers": 2, "n_heads": 4, "max_seq_len": 48, "bos_token_id": 1, "eos_token_id": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("BloomConfig", BLOOM),
    "bloom, one layer, odd sizes": ("BloomConfig", {**BLOOM, "n_layer": 1, "n_head": 5, "hidden_size": 35, "vocab_size": 7}),
    "mpt": ("MptConfig", MPT),
    "mpt, a number of heads that is no power of two": (
        "MptConfig",
        {**MPT, "n_heads": 3, "attn_config": {"softmax_scale": 0.4}},
    ),
    "mpt, a ratio that transformers does not read": ("MptConfig", {**MPT, "expansion_ratio": 2}),
    "falcon 7b": ("FalconConfig", {**FALCON, "num_attention_heads": 3}),
    "falcon 40b": ("FalconConfig", {**NEWER, "num_kv_heads": 2, "ffn_hidden_size": 17}),
    "falcon 11b, one norm": (
        "FalconConfig",
        {**NEWER, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
    ),
    "falcon rw": ("FalconConfig", RW),
}  # fmt: skip


def made(name: str) -> Any:
    kind, changes = CASES[name]
    return configuration(kind, {}, changes)


def reference(path: Path, name: str) -> Any:
    """The saved model. Of Falcon with ALiBi: as it attends by default, with patterns.

    Where patterns are asked for, `transformers` adds the bias twice, with the mask and with the scores; the fused attention it
    runs by default adds the mask alone, and so does this.
    """
    model = saved(path, made(name))
    if name == "falcon rw":
        once = lambda module, args, kwargs: (args, {**kwargs, "alibi": torch.zeros_like(kwargs["alibi"])})
        for layer in model.transformer.h:
            layer.self_attention.register_forward_pre_hook(once, with_kwargs=True)
    return model


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_transformers(tmp_path: Path, name: str) -> None:
    opened = assert_agrees(tmp_path, reference(tmp_path, name))
    assert any(note.startswith("score scale") for note in opened.notes)
    assert any(note.startswith("ALiBi") for note in opened.notes) == (opened.weights.config.positions == "alibi")


def test_falcon_adds_the_bias_once(tmp_path: Path) -> None:
    """The fused attention of `transformers`, whose numbers people know, against what is held to above."""
    transformers = pytest.importorskip("transformers")
    model, ids = reference(tmp_path, "falcon rw"), torch.arange(20)[None]
    fused = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa", local_files_only=True).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(ids, output_attentions=True).logits, fused(ids).logits, atol=1e-4, rtol=1e-4)


def test_the_mlp_of_mpt_is_as_wide_as_its_tensors(tmp_path: Path) -> None:
    """MosaicML's own code makes it as wide as expansion_ratio says, `transformers` always four times the model's width."""
    model = saved(tmp_path / "four", made("mpt"))
    for block in model.transformer.blocks:
        block.ffn.up_proj, block.ffn.down_proj = (torch.nn.Linear(*shape, bias=False) for shape in ((24, 48), (48, 24)))
    model.save_pretrained(tmp_path / "two")
    fields = json.loads((tmp_path / "two" / "config.json").read_text())
    for stated in (2, 4):
        (tmp_path / "two" / "config.json").write_text(json.dumps({**fields, "expansion_ratio": stated}))
        opened = assert_agrees(tmp_path / "two", model)
        assert opened.weights.config.d_mlp == 48
        assert any("not the 96 of expansion_ratio" in note for note in opened.notes) is (stated == 4)


@pytest.mark.parametrize("name", ["bloom", "mpt"])
def test_bfloat16(tmp_path: Path, name: str) -> None:
    assert_agrees_in_bfloat16(tmp_path, made(name))


@pytest.mark.parametrize("name", ["bloom", "falcon rw", "falcon 40b"])
def test_analyses_work(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(name))
    assert_analyses_work(tmp_path)


@pytest.mark.parametrize("name", ["bloom", "falcon 40b"])
def test_a_prefix_and_a_batch_see_the_same_distances(tmp_path: Path, name: str) -> None:
    saved(tmp_path, made(name))
    weights = open_model(tmp_path).weights
    ids = tuple(torch.randint(0, 31, (17,), generator=torch.Generator().manual_seed(3)).tolist())
    whole = forward(weights, ids)
    after = forward(weights, ids, prefix=forward(weights, (*ids[:11], 0, 0)))
    assert after.reused == 11
    for result in (after.logits(), logits(weights, torch.tensor([ids, ids[::-1]]))[0]):
        torch.testing.assert_close(result, whole.logits(), atol=1e-5, rtol=1e-5)
    rows = after.get("pattern", 1, (2,), slice(12, 15))
    torch.testing.assert_close(rows, whole.get("pattern", 1)[2:3, 12:15], atol=1e-6, rtol=1e-5)


REFUSED: dict[str, dict[str, Any]] = {
    "clipping": {"attn_config": {"clip_qkv": 6.0}},
    "norms of queries": {"attn_config": {"qk_ln": True}},
    "one key for all": {"attn_config": {"attn_type": "multiquery_attention"}},
    "no ALiBi": {"attn_config": {"alibi": False}},
    "other slopes": {"attn_config": {"alibi_bias_max": 16}},
    "biases": {"no_bias": False},
    "a scale of the logits": {"logit_scale": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_represented_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mpt", **MPT, **REFUSED[name]}))
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(BadModel) as refused:
        open_model(tmp_path)
    assert "lack" not in refused.value.what  # of the configuration, not of the first tensor that is missing


def test_slopes_are_those_of_the_paper() -> None:
    """Press et al. 2021, section 3: 1/2 … 1/256 for 8 heads; 1/√2, 1/2, 1/(2√2) … for 16; and their code for other numbers."""
    assert alibi_slopes(8) == tuple(2.0**-i for i in range(1, 9))
    assert alibi_slopes(16) == pytest.approx([2 ** (-i / 2) for i in range(1, 17)])
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for n in (1, 2, 3, 5, 6, 7, 12, 20, 48, 71, 112):
        assert alibi_slopes(n) == pytest.approx(bloom._get_alibi_slopes(n, torch.device("cpu")).tolist()), n


@pytest.mark.parametrize("stated", [True, False])
def test_bloom_under_transformer_lens_names(tmp_path: Path, stated: bool) -> None:
    """With its configuration, and without, where the person says that there is ALiBi."""
    model = saved(tmp_path / "hf", made("bloom"))
    inner, d, heads = model.transformer, 24, 6
    split = lambda x: x.reshape(heads, 3, d // heads, *x.shape[1:])
    held = {
        "embed.W_E": inner.word_embeddings.weight,
        "unembed.W_U": inner.word_embeddings.weight.T,
        "unembed.b_U": torch.zeros(31),
    }
    norms = {"embed.ln": inner.word_embeddings_layernorm, "ln_final": inner.ln_f}
    for i, block in enumerate(inner.h):
        at, qkv = f"blocks.{i}.", block.self_attention.query_key_value
        for k, which in enumerate("QKV"):
            held[f"{at}attn.W_{which}"] = split(qkv.weight)[:, k].transpose(1, 2)
            held[f"{at}attn.b_{which}"] = split(qkv.bias)[:, k]
        held |= {f"{at}attn.W_O": block.self_attention.dense.weight.T.reshape(heads, -1, d)}
        held |= {f"{at}attn.b_O": block.self_attention.dense.bias}
        for name, linear in (("in", block.mlp.dense_h_to_4h), ("out", block.mlp.dense_4h_to_h)):
            held |= {f"{at}mlp.W_{name}": linear.weight.T, f"{at}mlp.b_{name}": linear.bias}
        norms |= {f"{at}ln1": block.input_layernorm, f"{at}ln2": block.post_attention_layernorm}
    for name, norm in norms.items():
        held |= {f"{name}.w": norm.weight, f"{name}.b": norm.bias}
    held = {name: value.detach().contiguous().clone() for name, value in held.items()}
    cfg = {
        "n_layers": 2, "d_model": d, "n_ctx": 48, "d_head": 4, "n_heads": heads, "d_mlp": 96, "d_vocab": 31, "eps": 1e-5,
        "act_fn": "gelu_new", "normalization_type": "LN", "positional_embedding_type": "alibi", "post_embedding_ln": True,
    }  # fmt: skip
    torch.save({"model": held, "cfg": cfg} if stated else held, tmp_path / "model.pt")
    assume = {} if stated else {"positions": "alibi", "n_ctx": "48"}
    ids = torch.randint(0, 31, (20,), generator=torch.Generator().manual_seed(4))
    run = forward(open_model(tmp_path / "model.pt", assume=assume).weights, tuple(ids.tolist()))
    with torch.no_grad():
        torch.testing.assert_close(run.logits(), model(ids[None]).logits[0], atol=1e-4, rtol=1e-4)
