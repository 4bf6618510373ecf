"""Small models: random tensors of any configuration, in memory or as directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from circuitlab.model.config import Experts, ModelConfig, Rotary
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.text.tokenizer import Tokenizer

TINY = ModelConfig(n_layers=2, n_heads=4, d_model=24, d_head=6, d_vocab=260, n_ctx=48, positions="shortformer", prepend_bos=True)
FULL = replace(TINY, positions="learned", norm="layer", d_mlp=40, activation="gelu_new", biases=("q", "k", "v", "o", "mlp"))

CONFIGS: dict[str, ModelConfig] = {
    "attention-only": TINY,
    "smeared": replace(TINY, smeared_keys=True),
    "gpt2": FULL,
    "no-positions": replace(TINY, positions="none"),
    "sinusoidal": replace(TINY, positions="sinusoidal"),
    "rotary-half": replace(TINY, positions="rotary", rotary=Rotary(pairs="half")),
    "rotary-one-layer": replace(TINY, positions="rotary", rotary=Rotary(pairs="interleaved"), position_layers=(0,)),
    "rotary-partial": replace(TINY, positions="rotary", rotary=Rotary(dims=4)),
    "llama": replace(
        FULL, positions="rotary", rotary=Rotary(), norm="rms", gated=True, activation="silu", biases=(), n_kv_heads=2
    ),
    "alibi": replace(FULL, positions="alibi", windows=(0, 5)),
    "smeared-rotary": replace(TINY, positions="rotary", rotary=Rotary(), smeared_keys=True, n_kv_heads=2),
    "post-residual": replace(FULL, norm_placement="post_residual", final_norm=False),
    "post-sublayer": replace(FULL, norm="rms", norm_placement="post_sublayer", qk_norm="rms", biases=()),
    "both-norms-capped": replace(
        FULL, norm="rms", norm_placement="both", score_soft_cap=5.0, logit_soft_cap=9.0, windows=(3, 0), biases=()
    ),
    "parallel": replace(FULL, parallel=True, activation="relu"),
    "odd": replace(TINY, d_head=5, n_heads=3, n_kv_heads=1, d_vocab=7, d_vocab_out=11, score_scale=1.0, biases=("unembed",)),
    "olmo2": replace(
        FULL,
        positions="rotary",
        norm="rms",
        norm_placement="post_sublayer",
        qk_norm="rms",
        qk_norm_over="all",
        gated=True,
        activation="silu",
        biases=(),
        n_kv_heads=2,
    ),
    "gemma3": replace(
        FULL,
        positions="rotary",
        rotary=Rotary(base=1e6, amplitude=1.2),
        rotary_windowed=Rotary(),
        windows=(3, 0),
        norm="rms",
        norm_placement="both",
        qk_norm="rms",
        gated=True,
        activation="gelu_new",
        biases=(),
        n_kv_heads=1,
        embed_scale=3.0,
        tied=True,
    ),
    "experts": replace(
        FULL, norm="rms", positions="rotary", gated=True, activation="silu", biases=(), d_mlp=8, experts=Experts(5, 2, True)
    ),
    "shared-expert": replace(
        FULL, gated=False, biases=("q",), d_mlp=8, experts=Experts(3, 2, False, shared=12, shared_gate=True)
    ),
    "solu": replace(FULL, activation="solu_ln"),
    "tied-scaled": replace(FULL, tied=True, embed_scale=3.0, activation="gelu"),
}


def weights_of(config: ModelConfig, seed: int = 0, scale: float = 0.35) -> tuple[LazyWeights, dict[str, torch.Tensor]]:
    """Random weights of a configuration, and the tensors that they are made of."""
    tensors = random_tensors(config, seed, scale)
    return LazyWeights(config, None, CanonicalParts(config, ResidentTensors(tensors))), tensors


def byte_tokenizer() -> Tokenizer:
    """BOS (id 0) and one token a byte: 257 tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Inner(BPE(vocab={"<|bos|>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[]))
    inner.add_special_tokens(["<|bos|>"])
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner)


def directory(path: Path, config: ModelConfig = TINY, tokenizer: bool = True, seed: int = 0, **changes: object) -> Path:
    """A CircuitLab model directory with random weights."""
    made = replace(config, **changes)
    save_directory(path, made, random_tensors(made, seed, 0.35), byte_tokenizer() if tokenizer else None)
    return path
