"""Estimates of the memory of a forward pass from sizes alone, made before anything is computed."""

from __future__ import annotations

from circuitlab.model.config import ModelConfig


def estimate_run(config: ModelConfig, n_tokens: int, dtype: str = "float32") -> int:
    """Bytes of one run: streams, queries, keys and values of every layer, and the last stream."""
    per_layer = config.d_model + (config.n_heads + 2 * config.n_kv_heads) * config.d_head
    return (8 if dtype == "float64" else 4) * n_tokens * (per_layer * config.n_layers + config.d_model)


def estimate_streaming(config: ModelConfig, dtype: str = "float32") -> int:
    """Peak bytes of weights in a forward pass of a memory-mapped model: one block, or the embedding if that is larger."""
    wide = 8 if dtype == "float64" else 4
    ends = max(config.d_vocab, config.d_vocab_out) * config.d_model
    outside = config.d_vocab * config.d_model + (0 if config.tied else config.d_model * config.d_vocab_out)
    block = (config.n_parameters() - outside) // max(1, config.n_layers)
    if config.experts is not None:  # stored experts stay mapped and are converted one at a time
        block -= (config.experts.n - 1) * config.expert_parameters()
    return wide * max(block, ends)


def estimate_weights(config: ModelConfig, dtype: str = "float32") -> int:
    """Bytes of all weights in memory."""
    return (8 if dtype == "float64" else 4) * config.n_parameters()
