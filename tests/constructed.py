"""`rope-induction`: a two-layer model, written by hand, that provably completes A B … A → B; exact fixture of weight analyses.

Row vectors. Residual `tok[0..V) | prev[0..V) | out[0..V) | one`, V = letters + 1, BOS = token 0; no norm, no MLP, no bias, one
head a layer, score scale 1, rotary positions in layer 0 alone (interleaved pairs, θ_i = 10000^(−2i/d_head)).

1. Layer 0 copies `tok` of position m − o into `prev`: constant key c = (1, 0, 1, 0, …) and query `α c R(−o)ᵀ`, so that the score
   is `α Σ_i cos((n − m + o) θ_i)`, largest at n = m − o.
2. Layer 1 looks for positions whose `prev` is the current `tok` (score β), rests on BOS otherwise (score β σ), and copies the
   `tok` it finds, times γ, to `out`, which is all that W_U reads.

With context ≤ N, g = min over the rivals Δ of Σ_i (1 − cos Δθ_i), α ≥ ln(N/ε)/g and β ≥ ln(N/ε)/(½ − ε), both heads put at least
1 − ε where they should, and logit_t = γ · (attention on positions that hold t).
"""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor

from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.positions import rotate
from circuitlab.model.saving import save_directory
from circuitlab.model.text.tokenizer import Tokenizer

SIGMA = 0.5  # score of the resting place, in units of β


def rope_induction(
    letters: int = 26,
    d_head: int = 32,
    alpha: float = 12.8,
    beta: float = 17.9,
    gamma: float = 20.0,
    n_ctx: int = 64,
    offset: int = 1,
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """(configuration, float64 tensors by canonical name). The defaults hold ε = 0.01 for 64 tokens.

    `offset` o > 0: layer 0 looks o positions back. Raises `ValueError` where `d_head` is odd or less than letters + 1.
    """
    V = letters + 1
    if d_head < V or d_head % 2 or offset < 1:
        raise ValueError(f"d_head must be even and at least {V}, offset at least 1; got {d_head}, {offset}")
    rotary = Rotary(pairs="interleaved")
    config = ModelConfig(
        n_layers=2,
        n_heads=1,
        d_model=3 * V + 1,
        d_head=d_head,
        d_vocab=V,
        n_ctx=n_ctx,
        positions="rotary",
        rotary=rotary,
        position_layers=(0,),
        score_scale=1.0,
        prepend_bos=True,
    )
    tokens, one = torch.arange(V), 3 * V
    tok, prev, out = tokens, tokens + V, tokens + 2 * V
    zeros = lambda *shape: torch.zeros(shape, dtype=torch.float64)
    tensors = {"embed.W_E": zeros(V, config.d_model), "unembed.W_U": zeros(config.d_model, V)}
    tensors["embed.W_E"][tokens, tok] = 1
    tensors["embed.W_E"][:, one] = 1
    tensors["unembed.W_U"][out, tokens] = 1
    for i in range(2):
        tensors |= {f"layers.{i}.W_{n}": zeros(1, config.d_model, d_head) for n in "QKV"}
        tensors[f"layers.{i}.W_O"] = zeros(1, d_head, config.d_model)
    constant = zeros(1, d_head)
    constant[:, 0::2] = 1
    tensors["layers.0.W_K"][0, one] = constant[0]
    tensors["layers.0.W_Q"][0, one] = alpha * rotate(constant, rotary, -offset)[0]
    tensors["layers.0.W_V"][0, tok, tokens] = 1
    tensors["layers.0.W_O"][0, tokens, prev] = 1
    letter = tokens[1:]
    tensors["layers.1.W_Q"][0, tok[1:], letter] = beta
    tensors["layers.1.W_Q"][0, one, 0] = beta
    tensors["layers.1.W_K"][0, prev[1:], letter] = 1
    tensors["layers.1.W_K"][0, tok[0], 0] = SIGMA
    tensors["layers.1.W_V"][0, tok[1:], letter] = 1
    tensors["layers.1.W_O"][0, tokens, out] = gamma
    return config, tensors


def letter_tokenizer(letters: int = 26) -> Tokenizer:
    """BOS (id 0) and one token a letter, from A."""
    names = string.ascii_letters.swapcase()[:letters]
    inner = Inner(BPE(vocab={"<|bos|>": 0, **{c: i + 1 for i, c in enumerate(names)}}, merges=[]))
    inner.add_special_tokens(["<|bos|>"])
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner)


def directory_of(path: Path, letters: int = 26, d_head: int = 32, **changes: float) -> Path:
    """A CircuitLab model directory of `rope_induction`, float32, with the letters' tokenizer."""
    config, tensors = rope_induction(letters, d_head, **changes)  # type: ignore[arg-type]
    save_directory(path, config, {n: t.float() for n, t in tensors.items()}, letter_tokenizer(letters))
    return path


def gap(config: ModelConfig, offset: int = 1) -> float:
    """g: how far below the peak, in units of α, the best rival of layer 0 scores within the context."""
    assert config.rotary is not None
    theta = torch.tensor(config.rotary.frequencies(config.d_head), dtype=torch.float64)
    rivals = torch.tensor([d for d in range(1 - config.n_ctx, offset + 1) if d != 0])
    return float((1 - torch.cos(rivals[:, None] * theta)).sum(1).min())
