"""About how many floating-point operations an analysis takes, by which the window does the cheap ones first.

An estimate from sizes alone, to tell a tenth of a second from ten: what is done once and kept for others is counted in full.
"""

from __future__ import annotations

from circuitlab.model.config import ModelConfig

# Operations per n³ that take as long as the spectrum of an n × n matrix, n near 64, beside matrix products in float32
EIGENVALUES = 150.0  # of any matrix
SPECTRUM = 40.0  # of a symmetric one

ASSUMED = 32  # tokens of a prompt that is not known


def of_layers(config: ModelConfig, n: int) -> float:
    """All layers at n tokens: two operations for each of their weights that a token meets."""
    outside = config.d_vocab * config.d_model + (0 if config.tied else config.d_model * config.d_vocab_out)
    return 2.0 * n * max(0, config.n_parameters() - outside)


def of_logits(config: ModelConfig, n: int) -> float:
    """The logits at n positions."""
    return 2.0 * n * config.d_model * config.d_vocab_out


def of_run(config: ModelConfig, n: int) -> float:
    """A forward pass over n tokens with all logits."""
    return of_layers(config, n) + of_logits(config, n)


def of_gram(config: ModelConfig) -> float:
    """A product [d_model, d_model] over the vocabulary, as W_Eᵀ W_E is."""
    return 2.0 * config.d_vocab * config.d_model**2


def of_spectra(config: ModelConfig, n_heads: int) -> float:
    """Eigenvalues and singular values of circuits of `n_heads` heads, 0 meaning all, from products over the vocabulary."""
    products = 6.0 * config.d_model**2 * config.d_head
    return (n_heads or config.n_layers * config.n_heads) * (products + 2 * (EIGENVALUES + SPECTRUM) * config.d_head**3)


def one_run(config: ModelConfig, n: int, params: object) -> float:
    """The estimate for an analysis that declares none: one forward pass over the prompt, or over a short one."""
    return of_run(config, n or ASSUMED)
