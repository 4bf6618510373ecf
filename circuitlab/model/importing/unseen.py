"""Assumptions of an import by a map: defaults of fields it leaves out, and what the shapes of tensors cannot show."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.loading.layout import LaidOut

# field of the configuration: whether it matters for this model, and what its default means
_DEFAULTS: dict[str, tuple[Callable[[ModelConfig], bool], str]] = {
    "positions": (lambda c: True, "learned positions, added to the embedding"),
    "rotary": (lambda c: c.positions == "rotary", "rotary halves with base 10000"),
    "norm": (lambda c: True, "no norms at all"),
    "norm_placement": (lambda c: c.norm != "none", "before each sublayer"),
    "final_norm": (lambda c: c.norm != "none", "one before the unembedding"),
    "norm_eps": (lambda c: c.norm != "none", "torch's default for LayerNorm"),
    "d_mlp": (lambda c: c.n_layers > 0, "attention-only blocks"),
    "activation": (lambda c: c.d_mlp > 0, "the exact GELU"),
    "gated": (lambda c: c.d_mlp > 0, "no gate"),
    "parallel": (lambda c: c.d_mlp > 0, "the MLP reads the output of attention"),
    "score_scale": (lambda c: c.n_layers > 0, "1/√d_head"),
    "n_kv_heads": (lambda c: c.n_heads > 1, "every head has its own keys and values"),
    "biases": (lambda c: True, "none anywhere"),
    "tied": (lambda c: True, "the unembedding is separate"),
    "embed_scale": (lambda c: True, "embeddings are not scaled"),
    "windows": (lambda c: c.n_layers > 0, "no sliding window"),
    "qk_norm": (lambda c: c.n_layers > 0, "queries and keys are not normalised"),
    "score_soft_cap": (lambda c: c.n_layers > 0, "scores are not capped"),
    "logit_soft_cap": (lambda c: True, "logits are not capped"),
    "prepend_bos": (lambda c: True, "prompts begin with their first token"),
}  # fmt: skip


def defaults(config: ModelConfig, stated: Collection[str]) -> tuple[Assumption, ...]:
    """Every field that matters and that the map leaves out, with its default."""
    relevant = ((name, why) for name, (matters, why) in _DEFAULTS.items() if name not in stated and matters(config))
    return tuple(Assumption(name, _shown(getattr(config, name)), (), why) for name, why in relevant)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value in ((), None) else str(value)


def unseen(parts: LaidOut) -> tuple[str, ...]:
    """What would fit even if it were wrong, in sentences."""
    square, alike = list[str](), dict[str, list[str]]()
    for name, where in {**parts.layout.ends, **parts.layout.layer(0)}.items():
        names = [parts.full(n) for n in where.names()]
        if not names or names[0] not in parts.source.names():
            continue
        shape = parts.source.shape(names[0])
        if len(shape) > 1 and shape[-1] == shape[-2]:
            square.append(name)
        if name in ("W_Q", "W_K", "W_V", "mlp.W_in", "mlp.W_gate"):
            alike.setdefault(f"{names[0]} {math.prod(shape)}", []).append(name)
    lines = [f"square, so that their shape does not show whether they are transposed: {', '.join(square)}"] if square else []
    order = [n for group in alike.values() if len(group) > 1 for n in group]
    lines += [f"cut from one tensor, in the order that the map states: {', '.join(order)}"] if order else []
    c = parts.config
    if c.n_layers and c.n_heads > 1:
        lines.append("that the columns of a head are contiguous, and that W_Q and W_K are not swapped")
    return tuple(lines)
