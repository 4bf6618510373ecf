"""What every family is held to: `transformers` on the same random weights, at several lengths and in both conventions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.model.folding import under
from circuitlab.model.forward import forward
from circuitlab.model.loading import Opened, open_model
from circuitlab.model.subject import Conventions

LENGTHS = (1, 2, 7, 13)


def saved(path: Path, config: Any, dtype: torch.dtype = torch.float32, shards: str = "5GB") -> Any:
    """A random model of `transformers` saved under `path`; weights large enough that attention is not uniform."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = 0.3 if p.dim() > 1 else 0.2
            p.add_(spread * torch.randn_like(p)) if "norm" in name or p.dim() == 1 else p.copy_(spread * torch.randn_like(p))
    model.to(dtype).save_pretrained(path, max_shard_size=shards)
    return model


def assert_agrees(path: Path, model: Any, tolerance: float = 1e-4) -> Opened:
    """Logits, patterns and folded log-probabilities of the saved model against `model`'s own."""
    opened = open_model(path)
    c = opened.weights.config
    generator = torch.Generator().manual_seed(1)
    for n in (*[m for m in LENGTHS if m <= c.n_ctx], min(c.n_ctx, 40)):
        ids = torch.randint(0, c.d_vocab, (n,), generator=generator)
        with torch.no_grad():
            theirs = model(ids[None], output_attentions=True)
        run = forward(opened.weights, tuple(ids.tolist()))
        _close(run.logits(), theirs.logits[0], tolerance, f"logits of {n} tokens")
        for i in range(c.n_layers):
            _close(run.get("pattern", i), theirs.attentions[i][0], tolerance, f"attention of layer {i}, {n} tokens")
        folded = forward(under(opened.weights, Conventions()), tuple(ids.tolist()))
        _close(
            folded.log_probs(), torch.log_softmax(theirs.logits[0].float(), -1), max(tolerance, 2e-4), "folded log-probabilities"
        )
    mapped = forward(open_model(path, "mapped").weights, tuple(ids.tolist()))
    _close(mapped.logits(), run.logits(), 1e-6, "mapped against resident")
    return opened


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float, what: str) -> None:
    scale = max(1.0, float(theirs.abs().max()))
    assert float((ours - theirs.float()).abs().max()) <= tolerance * scale, what
