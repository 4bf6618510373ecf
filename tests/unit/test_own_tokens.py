"""Own tokens in the rows of OV circuits, against the whole matrix in double precision; and closed forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from circuitlab.analysis.circuits import own_tokens as module
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Refused
from circuitlab.model.saving import save_directory
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, TINY, directory

EXACT = Conventions(dtype="float64")
ALL = OwnTokensParams()


def answer(path: Path, params: OwnTokensParams = ALL, said: Conventions = EXACT) -> Any:
    return (
        Engine(ModelStore()).answer(Request.named("own_tokens", params, Subject(ModelRef(f"file:{path}"), (), (), said))).result
    )


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("name", ["attention-only", "llama", "smeared-rotary"])
def test_shares_are_those_of_the_whole_matrices(tmp_path: Path, name: str, fold: bool) -> None:
    config, path = CONFIGS[name], directory(tmp_path / "m", CONFIGS[name])
    t = {k: v.astype(np.float64) for k, v in load_file(path / "model.safetensors").items()}
    result = answer(path, said=Conventions(fold, fold, "float64"))
    W_E = t["embed.W_E"] * config.embed_scale
    W_U = t["embed.W_E"].T if config.tied else t["unembed.W_U"]
    W_U = W_U * t.get("unembed.norm.gain", np.ones(config.d_model))[:, None] if fold else W_U
    for layer in range(config.n_layers):
        for head in range(config.n_heads):
            gain = t.get(f"layers.{layer}.attn_norm.gain", 1.0) if fold else 1.0  # raw weights are as their file has them
            value = t[f"layers.{layer}.W_V"][head // (config.n_heads // config.n_kv_heads)]
            rows = (W_E * gain) @ value @ t[f"layers.{layer}.W_O"][head]
            rows = rows @ W_U
            rank = 1 + (rows > np.diag(rows)[:, None]).sum(1)
            assert result.top1[layer, head] == pytest.approx((rank <= 1).mean(), abs=1.5 / config.d_vocab)
            assert result.top10[layer, head] == pytest.approx((rank <= 10).mean(), abs=1.5 / config.d_vocab)
    assert result.chance10 == pytest.approx(10 / config.d_vocab)


def test_a_copying_score_of_nearly_one_may_raise_no_token_itself(tmp_path: Path) -> None:
    """W_OV = 2 · 1 1ᵀ/12 − 0.01 I: one large positive eigenvalue, and every token lowers itself below the rest."""
    config = replace(TINY, n_layers=1, n_heads=2, n_kv_heads=2, d_model=12, d_head=12, d_vocab=12, d_vocab_out=12)
    eye, ones = torch.eye(12), torch.ones(12, 12) / 12
    mixed = torch.stack([torch.diag(torch.arange(1.0, 13.0)) @ ones * 12 - 0.01 * eye, eye])
    tensors = {
        "embed.W_E": eye, "embed.W_pos": torch.zeros(48, 12), "unembed.W_U": eye.clone(), "layers.0.W_Q": torch.zeros(2, 12, 12),
        "layers.0.W_K": torch.zeros(2, 12, 12), "layers.0.W_V": torch.stack([eye, eye]), "layers.0.W_O": mixed,
    }  # fmt: skip
    save_directory(tmp_path / "m", config, {n: x.contiguous() for n, x in tensors.items()}, None)
    result = answer(tmp_path / "m")
    assert result.top1[0].tolist() == [0.0, 1.0]
    zero = {**tensors, "layers.0.W_O": torch.zeros(2, 12, 12)}
    save_directory(tmp_path / "z", config, {n: x.contiguous() for n, x in zero.items()}, None)
    assert np.isnan(answer(tmp_path / "z").top10).all(), "of entries that are all the same none has a rank"


def test_some_heads_a_sample_and_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    whole, one = answer(path), answer(path, OwnTokensParams((Head(1, 2),)))
    assert one.top10[1, 2] == whole.top10[1, 2] and np.isfinite(one.top10).sum() == 1
    behind = answer(path, OwnTokensParams(embed="after the first MLP"))
    np.testing.assert_array_equal(behind.top10[0], whole.top10[0])
    assert not np.array_equal(behind.top10[1], whole.top10[1])
    monkeypatch.setattr(module, "WHOLE", 100)
    monkeypatch.setattr(module, "SAMPLE", 52)
    some = answer(path)
    assert some.n_tokens == 52 and any("52 of 260 rows: ±" in word for word in some.conventions)
    with pytest.raises(Refused, match="own token"):
        answer(directory(tmp_path / "o", CONFIGS["odd"]))
    with pytest.raises(Refused, match="no MLP"):
        answer(directory(tmp_path / "a"), OwnTokensParams(embed="after the first MLP"))
