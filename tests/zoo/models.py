"""The models of the zoo: small, random, in float64, by a table of features; `drawn` combines features at random."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from circuitlab.errors import BadModel
from circuitlab.model.config import Experts, ModelConfig, Rotary
from circuitlab.model.lazy_weights import expected_shapes
from circuitlab.model.saving import save_directory
from circuitlab.testing.models import byte_tokenizer
from tests.zoo.forward import Model

BASE: dict[str, Any] = {"n_layers": 2, "n_heads": 2, "d_model": 8, "d_head": 4, "d_vocab": 13, "n_ctx": 16}
BASE |= {"positions": "learned"}
FULL = BASE | {"norm": "layer", "d_mlp": 10, "biases": ("q", "k", "v", "o", "mlp"), "n_heads": 3, "d_head": 3}
RMS = BASE | {"norm": "rms", "d_mlp": 10, "positions": "rotary", "gated": True, "activation": "silu"}
RMS |= {"d_model": 10, "n_heads": 4, "n_kv_heads": 2}


def _of(base: dict[str, Any], **changes: Any) -> ModelConfig:
    return ModelConfig(**base | changes)


MODELS: dict[str, ModelConfig] = {
    "attention only": _of(BASE),
    "no positions": _of(BASE, positions="none", n_layers=3),
    "shortformer": _of(BASE, positions="shortformer", smeared_keys=True),
    "shortformer layernorm": _of(FULL, positions="shortformer", position_layers=(1,)),
    "shortformer grouped": _of(BASE, positions="shortformer", n_heads=4, n_kv_heads=2, biases=("q", "k")),
    "sinusoidal": _of(BASE, positions="sinusoidal"),
    "sinusoidal layernorm": _of(FULL, positions="sinusoidal", activation="gelu_new"),
    "gpt2": _of(FULL),
    "gpt neo": _of(FULL, windows=(0, 3), score_scale=1.0, biases=("o", "mlp")),
    "layernorm rotary": _of(FULL, positions="rotary", d_head=4, gated=True, activation="silu", biases=()),
    "mistral": _of(RMS, windows=(4, 4)),
    "qwen 3": _of(RMS, qk_norm="rms"),
    "layernorm attention only": _of(FULL, d_mlp=0, biases=("v", "o"), n_layers=3),
    "llama": _of(RMS),
    "multi-query": _of(RMS, n_kv_heads=1, position_layers=(0,), biases=("q", "k", "v")),
    "partial rotation": _of(RMS, rotary=Rotary(pairs="interleaved", dims=2), smeared_keys=True, biases=("k",)),
    "parallel": _of(FULL, parallel=True, positions="rotary", rotary=Rotary(dims=2), activation="gelu_new"),
    "parallel rms": _of(RMS, parallel=True, gated=False, activation="relu2"),
    "alibi": _of(FULL, positions="alibi", windows=(0, 4), activation="relu"),
    "alibi one layer": _of(FULL, positions="alibi", position_layers=(0,), n_heads=4, n_kv_heads=2, d_head=2),
    "gemma 2": _of(
        RMS,
        norm_placement="both",
        score_soft_cap=3.0,
        logit_soft_cap=5.0,
        windows=(3, 0),
        embed_scale=3.0,
        tied=True,
        score_scale=0.4,
    ),
    "gemma 3": _of(
        RMS,
        norm_placement="both",
        rotary=Rotary(base=1e6, amplitude=1.2),
        rotary_windowed=Rotary(),
        windows=(3, 0),
        qk_norm="rms",
        n_kv_heads=1,
        embed_scale=3.0,
        tied=True,
        activation="gelu_new",
    ),
    "olmo 2": _of(RMS, norm_placement="post_sublayer", qk_norm="rms", qk_norm_over="all"),
    "post-residual": _of(FULL, norm_placement="post_residual", final_norm=False, activation="gelu"),
    "post-residual rms": _of(RMS, norm_placement="post_residual"),
    "post-sublayer layernorm": _of(FULL, norm_placement="post_sublayer"),
    "q/k layernorm": _of(FULL, qk_norm="layer", activation="quick_gelu"),
    "experts": _of(RMS, d_mlp=5, experts=Experts(3, 2, renormalise=True)),
    "shared expert": _of(FULL, d_mlp=5, biases=("q",), experts=Experts(3, 1, shared=4, shared_gate=True)),
    "solu": _of(FULL, activation="solu_ln"),
    "no layer": _of(BASE, n_layers=0),
    "no layer normed": _of(FULL, n_layers=0, biases=("unembed",)),
    "one layer": _of(RMS, n_layers=1),
    "one head": _of(FULL, n_heads=1, d_head=8),
    "vocabulary 3": _of(RMS, d_vocab=3),
    "vocabulary 3 layernorm": _of(FULL, d_vocab=3, tied=True),
    "smaller output": _of(FULL, d_vocab_out=7, biases=("q", "unembed")),
    "larger output": _of(BASE, d_vocab_out=17),
    "wide heads": _of(RMS, d_head=14, d_model=6),
    "no final norm": _of(RMS, final_norm=False, biases=("unembed", "o")),
    "short context": _of(BASE, n_ctx=11, d_vocab=13),
    "bytes": _of(FULL, d_vocab=257, prepend_bos=True, n_heads=2),
}

# The model that is most like those of each checkpoint family.
FAMILIES: dict[str, str] = {
    **dict.fromkeys(("bloom", "mpt"), "alibi"),
    **dict.fromkeys(("circuitlab", "transformer_lens"), "shortformer"),
    **dict.fromkeys(("cohere", "falcon", "gpt_neox", "gptj", "phi", "stablelm"), "parallel"),
    **dict.fromkeys(("exaone", "gemma", "granite", "llama", "llama2c", "phi3"), "llama"),
    **dict.fromkeys(("exaone4", "olmo2", "olmo3"), "olmo 2"),
    **dict.fromkeys(("gpt2", "lecture_gpt", "nanogpt", "opt"), "gpt2"),
    **dict.fromkeys(("gpt_bigcode", "qwen2", "smollm3"), "multi-query"),
    **dict.fromkeys(("mixtral", "olmoe"), "experts"),
    **dict.fromkeys(("nemotron", "olmo", "starcoder2"), "layernorm rotary"),
    "gemma2": "gemma 2",
    "gemma3": "gemma 3",
    "glm": "partial rotation",
    "gpt_neo": "gpt neo",
    "mistral": "mistral",
    "openai_gpt": "post-residual",
    "qwen3": "qwen 3",
    "qwen_moe": "shared expert",
}

LENGTHS = (1, 2, 11)  # of prompts
LARGEST = 1000  # entry of the stream of a model that is drawn

Feature = Callable[[ModelConfig], bool]

FEATURES: dict[str, Feature] = {
    "one key-value head a head": lambda c: bool(c.n_layers) and c.group == 1,
    "grouped": lambda c: 1 < c.n_kv_heads < c.n_heads,
    "multi-query": lambda c: c.n_kv_heads == 1 < c.n_heads,
    "one head": lambda c: c.n_heads == 1,
    "d_head > d_model": lambda c: c.d_head > c.d_model,
    "no layer": lambda c: c.n_layers == 0,
    "one layer": lambda c: c.n_layers == 1,
    "vocabulary of 3": lambda c: c.d_vocab <= 3,
    "smaller output vocabulary": lambda c: c.d_vocab_out < c.d_vocab,
    "larger output vocabulary": lambda c: c.d_vocab_out > c.d_vocab,
    "tied": lambda c: c.tied,
    "tokenizer with BOS": lambda c: c.prepend_bos,
    "learned positions": lambda c: c.positions == "learned",
    "no positions": lambda c: c.positions == "none",
    "shortformer": lambda c: c.positions == "shortformer",
    "sinusoidal": lambda c: c.positions == "sinusoidal",
    "rotary": lambda c: c.positions == "rotary",
    "partly rotated heads": lambda c: c.rotary is not None and 0 < c.rotary.dims < c.d_head,
    "two rotations": lambda c: c.rotary_windowed is not None,
    "ALiBi": lambda c: c.positions == "alibi",
    "layers without positions": lambda c: bool(c.position_layers) and len(c.position_layers) < c.n_layers,
    "smeared keys": lambda c: c.smeared_keys,
    "sliding window": lambda c: any(c.windows),
    "q/k norm of heads": lambda c: c.qk_norm != "none" and c.qk_norm_over == "head",
    "q/k norm over all heads": lambda c: c.qk_norm != "none" and c.qk_norm_over == "all",
    "attention biases": lambda c: bool({"q", "k", "v", "o"} & set(c.biases)) and c.n_layers > 0,
    "unembedding bias": lambda c: "unembed" in c.biases,
    "no norm": lambda c: c.norm == "none",
    "LayerNorm": lambda c: c.norm == "layer",
    "RMS norm": lambda c: c.norm == "rms",
    "norm after the residual": lambda c: c.norm_placement == "post_residual",
    "norm after sublayers": lambda c: c.norm_placement == "post_sublayer",
    "norms on both sides": lambda c: c.norm_placement == "both",
    "no final norm": lambda c: c.norm != "none" and not c.final_norm,
    "score soft cap": lambda c: c.score_soft_cap > 0,
    "logit soft cap": lambda c: c.logit_soft_cap > 0,
    "attention only": lambda c: c.attention_only and c.n_layers > 0,
    "gated MLP": lambda c: c.gated and c.experts is None,
    "ungated MLP": lambda c: c.n_layers > 0 and not c.attention_only and not c.gated and c.experts is None,
    "SoLU": lambda c: c.activation == "solu_ln",
    "experts": lambda c: c.experts is not None,
    "shared expert": lambda c: c.experts is not None and c.experts.shared > 0,
    "parallel blocks": lambda c: c.parallel,
}


def features_of(config: ModelConfig) -> frozenset[str]:
    """The names of those that a configuration has."""
    return frozenset(name for name, has in FEATURES.items() if has(config))


def sample() -> tuple[str, ...]:
    """A few models that have every feature among them: the one with most new ones first."""
    missing, chosen = set(FEATURES), list[str]()
    while missing:
        best = max(MODELS, key=lambda name: len(missing & features_of(MODELS[name])))
        if not (new := missing & features_of(MODELS[best])):
            raise AssertionError(f"no model of the zoo has {sorted(missing)}")
        missing -= new
        chosen.append(best)
    return tuple(chosen)


def tensors_of(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Random tensors by canonical name: gains near 1, everything else near 0 with a spread that softmax notices.

    float64, of numbers that are float32: small models are read as that.
    """
    tensors = {}
    for name, shape in expected_shapes(config).items():
        rng = np.random.default_rng([seed, crc32(name.encode())])
        value = rng.normal(size=shape)
        value = 1 + 0.3 * value if name.endswith(".gain") else 0.6 * value
        tensors[name] = value.astype(np.float32).astype(np.float64)
    return tensors


def written(path: Path, config: ModelConfig, tensors: dict[str, np.ndarray]) -> Path:
    """The model as a directory of float64 weights; with a tokenizer where the vocabulary is that of bytes."""
    tokenizer = byte_tokenizer() if config.d_vocab == 257 else None
    save_directory(path, config, {name: torch.tensor(value) for name, value in tensors.items()}, tokenizer)
    return path


def prompt(config: ModelConfig, n: int) -> tuple[int, ...]:
    """n tokens, some of which repeat, beginning with 0."""
    return tuple((0, 5, 9, 5, 2, 11, 5, 9, 1, 2, 7)[i] % config.d_vocab for i in range(n))


def _choices(rng: np.random.Generator) -> Iterable[tuple[str, Any]]:
    pick = lambda *options: options[int(rng.integers(len(options)))]
    n_layers, n_heads, d_head = pick(1, 2, 3), pick(1, 2, 4), pick(2, 4, 10)
    yield from {"n_layers": n_layers, "n_heads": n_heads, "d_head": d_head, "d_model": pick(6, 8, 12)}.items()
    yield "n_kv_heads", pick(*(k for k in (1, 2, 4) if n_heads % k == 0))
    yield from {"d_vocab": (vocabulary := pick(3, 5, 13)), "d_vocab_out": pick(vocabulary, vocabulary, 3, 17)}.items()
    positions = pick("none", "learned", "shortformer", "sinusoidal", "rotary", "rotary", "alibi")
    yield "positions", positions
    yield "position_layers", pick((), (), (n_layers - 1,))
    yield (
        "rotary",
        Rotary(pairs=pick("half", "interleaved"), dims=pick(0, 2), amplitude=pick(1.0, 1.3)) if positions == "rotary" else None,
    )
    yield from {
        "norm": pick("none", "layer", "rms"),
        "norm_placement": pick("pre", "pre", "post_residual", "post_sublayer", "both"),
    }.items()
    yield from {
        "final_norm": pick(True, True, False),
        "windows": pick((), (3,) * n_layers),
        "smeared_keys": pick(False, False, True),
    }.items()
    yield from {"d_mlp": pick(0, 9, 9), "gated": pick(True, False), "parallel": pick(False, False, True)}.items()
    yield "activation", pick("relu", "gelu", "gelu_new", "silu", "quick_gelu", "relu2", "solu_ln")
    yield "experts", pick(None, None, None, Experts(3, 2, renormalise=pick(True, False), shared=pick(0, 4)))
    yield from {"qk_norm": pick("none", "none", "rms", "layer"), "qk_norm_over": pick("head", "head", "all")}.items()
    yield "biases", tuple(b for b in ("q", "k", "v", "o", "mlp", "unembed") if rng.random() < 0.4)
    yield from {
        "score_soft_cap": pick(0.0, 0.0, 2.0),
        "logit_soft_cap": pick(0.0, 0.0, 4.0),
        "embed_scale": pick(1.0, 2.0),
    }.items()


def drawn(seed: int) -> ModelConfig:
    """A configuration whose features are drawn at random, the first possible one of this seed.

    None whose stream grows beyond `LARGEST`, as it may without norms: at 10⁵ scores are 10¹⁰, and patterns lack ten digits.
    """
    rng = np.random.default_rng(seed)
    while True:
        chosen = dict(_choices(rng))
        if chosen["qk_norm_over"] == "all" and "qk" in str(chosen["biases"]):
            continue
        try:
            config = _of(BASE, **chosen)
        except BadModel:
            continue
        passed = Model(config, tensors_of(config))(prompt(config, LENGTHS[-1]))
        if max(float(np.abs(block.post).max()) for block in passed.blocks) < LARGEST:
            return config
