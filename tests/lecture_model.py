"""The module classes of Karpathy's lecture "Let's build GPT", as its published code has them, and steps on the way to it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZES = {"vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "n_ctx": 9}


class Head(nn.Module):
    def __init__(self, d_model: int, d_head: int, n_ctx: int, by_width: bool) -> None:
        super().__init__()
        self.key = nn.Linear(d_model, d_head, bias=False)
        self.query = nn.Linear(d_model, d_head, bias=False)
        self.value = nn.Linear(d_model, d_head, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(n_ctx, n_ctx)))
        self.by_width = by_width

    def forward(self, x: Tensor) -> Tensor:
        T, C = x.shape[-2:]
        k, q = self.key(x), self.query(x)
        scores = q @ k.transpose(-2, -1) * (C if self.by_width else k.shape[-1]) ** -0.5
        scores = scores.masked_fill(self.tril[:T, :T] == 0, float("-inf"))  # type: ignore[index]
        return F.softmax(scores, dim=-1) @ self.value(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_ctx: int, projected: bool, by_width: bool) -> None:
        super().__init__()
        d_head = d_model // n_heads
        self.heads = nn.ModuleList([Head(d_model, d_head, n_ctx, by_width) for _ in range(n_heads)])
        if projected:
            self.proj = nn.Linear(d_head * n_heads, d_model)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.proj(out) if hasattr(self, "proj") else out


class FeedForward(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model), nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int, n_ctx: int, projected: bool, normed: bool, mlp: bool, by_width: bool) -> None:
        super().__init__()
        self.sa = MultiHeadAttention(d_model, n_heads, n_ctx, projected, by_width)
        if mlp:
            self.ffwd = FeedForward(d_model)
        if normed:
            self.ln1, self.ln2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.sa(self.ln1(x) if hasattr(self, "ln1") else x)
        return x + self.ffwd(self.ln2(x) if hasattr(self, "ln2") else x) if hasattr(self, "ffwd") else x


class GPTLanguageModel(nn.Module):
    def __init__(self, projected: bool = True, normed: bool = True, mlp: bool = True, by_width: bool = False) -> None:
        super().__init__()
        d, n = SIZES["d_model"], SIZES["n_ctx"]
        self.token_embedding_table = nn.Embedding(SIZES["vocab"], d)
        self.position_embedding_table = nn.Embedding(n, d)
        blocks = [Block(d, SIZES["n_heads"], n, projected, normed, mlp, by_width) for _ in range(SIZES["n_layers"])]
        self.blocks = nn.Sequential(*blocks)
        if normed:
            self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, SIZES["vocab"])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embedding_table(ids) + self.position_embedding_table(torch.arange(ids.shape[-1]))
        x = self.blocks(x)
        return self.lm_head(self.ln_f(x) if hasattr(self, "ln_f") else x)


def lecture(seed: int = 0, **steps: bool) -> GPTLanguageModel:
    """A model of random weights, large enough that attention is not uniform."""
    torch.manual_seed(seed)
    model = GPTLanguageModel(**steps).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model
