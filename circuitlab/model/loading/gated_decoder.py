"""Shared parts of Llama-like decoders: RMSNorm, rotary halves, grouped heads, a gated MLP, and the names of their tensors.

A family reads its `config.json` with `read` and replaces what differs. The layout follows from the configuration: norms by
`norm_placement`, biases and q/k norms where the configuration has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.config import BiasName, ModelConfig
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, tied_note
from circuitlab.model.loading.huggingface import activation, flag, head_size, number, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored
from circuitlab.model.loading.rotary_scaling import context, rotary

Read = tuple[ModelConfig, tuple[str, ...]]

# Ours -> theirs, for each placement of norms.
_NORMS: dict[str, dict[str, str]] = {
    "pre": {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
    "post_sublayer": {"attn_post_norm": "post_attention_layernorm", "mlp_post_norm": "post_feedforward_layernorm"},
    "both": {
        "attn_norm": "input_layernorm",
        "attn_post_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    },
}


def read(
    config: JsonObject,
    defaults: JsonObject,
    act: str = "hidden_act",
    base: float = 10000.0,
    partial: float | None = None,
) -> Read:
    """A Llama-like `ModelConfig` from a `config.json`, which a family alters by `dataclasses.replace`, and notes on assumptions.

    `defaults`: the family's values for missing fields; `act`: the activation's field; `base`: its default rotary base;
    `partial`: the default share of rotary columns, none in a family that rotates all of them.
    """
    config, assumed = filled(config, {"num_key_value_heads": config.get("num_attention_heads"), **defaults})
    d_model, n_heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    d_head = head_size(config, d_model, n_heads)
    rotary_positions, rotary_notes = rotary(config, d_head, base, partial)
    n_ctx, limited = context(config, defaults["max_position_embeddings"])
    model = ModelConfig(
        n_layers=size(config, "num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=size(config, "num_key_value_heads"),
        d_model=d_model,
        d_head=d_head,
        d_vocab=size(config, "vocab_size"),
        n_ctx=n_ctx,
        d_mlp=size(config, "intermediate_size"),
        positions="rotary",
        rotary=rotary_positions,
        norm="rms",
        norm_eps=number(config, "rms_norm_eps"),
        activation=activation(config, act, ""),
        gated=True,
        biases=biases(config),
        tied=flag(config, "tie_word_embeddings", False),
        family=str(config.get("model_type")),
    )
    return model, (*assumed, *rotary_notes, *limited)


def biases(config: Mapping[str, object]) -> tuple[BiasName, ...]:
    """The biases by the file's switches: of all four maps of attention, and of the MLP."""
    of_attention: tuple[BiasName, ...] = ("q", "k", "v", "o") if flag(config, "attention_bias", False) else ()
    return (*of_attention, "mlp") if flag(config, "mlp_bias", False) else of_attention


def filled_unless_null(config: Mapping[str, object], defaults: Mapping[str, object]) -> tuple[JsonObject, tuple[str, ...]]:
    """The configuration with defaults for missing fields, and a note; a field that is null stays null (none)."""
    assumed = ", ".join(f"{name} {value:g}" for name, value in defaults.items() if name not in config)
    return {**defaults, **config}, (f"not stated, the family's own: {assumed}",) if assumed else ()


def noted(config: ModelConfig, notes: tuple[str, ...], scale: str = "the family's own") -> Read:
    """The configuration with its notes, preceded by one on the score scale and its origin (`scale`)."""
    return config, (scale_note(config.score_scale, config.d_head, scale), *notes, *tied_note(config))


def layout(config: ModelConfig, minus_one: bool = False, prefixes: tuple[str, ...] = ("model.",)) -> Layout:
    """Where Llama-like models keep their tensors. `minus_one`: gains of norms are stored minus one (Gemma)."""
    at = "layers.{i}."
    names = (f"{at}self_attn.{which}_proj" for which in "qkvo")
    block = attention(config, *names) | mlp(config, f"{at}mlp.up_proj", f"{at}mlp.down_proj", f"{at}mlp.gate_proj")
    return Layout(ends(config, minus_one), block | norms(config, minus_one), BUFFERS, prefixes)


BUFFERS = (".rotary_emb.inv_freq", "lm_head.weight")  # the second is another name of a tied embedding


def ends(config: ModelConfig, minus_one: bool = False) -> dict[str, Stored]:
    """Embedding, final norm and unembedding."""
    tensors = {"embed.W_E": stored("embed_tokens.weight"), **norm("unembed.norm", "norm", bias=False, offset=minus_one)}
    return tensors if config.tied else tensors | {"unembed.W_U": linear("lm_head")}


def fused_mlp(name: str = "layers.{i}.mlp") -> dict[str, Stored]:
    """A gated MLP whose `gate_up_proj` holds W_gate, then W_in."""
    both = linear(f"{name}.gate_up_proj")
    return {"mlp.W_gate": both.half(0), "mlp.W_in": both.half(1), "mlp.W_out": linear(f"{name}.down_proj")}


def with_rotary_in(config: ModelConfig, layers: Iterable[int]) -> tuple[ModelConfig, tuple[str, ...]]:
    """The configuration with rotary positions in these layers only, and a note on the others."""
    rotating = tuple(layers)
    if len(rotating) == config.n_layers:
        return config, ()
    without = sorted(set(range(config.n_layers)) - set(rotating))
    note = f"no positions in layers {', '.join(map(str, without))}: scores there do not depend on distance"
    if not rotating:
        return replace(config, positions="none", rotary=None, rotary_windowed=None), (note,)
    return replace(config, position_layers=rotating), (note,)


def norms(config: ModelConfig, minus_one: bool = False, names: Mapping[str, str] | None = None) -> dict[str, Stored]:
    """The norms of a block, including those of queries and keys; `names` (ours -> theirs) if they are not Llama's."""
    tensors: dict[str, Stored] = {}
    for ours, theirs in (_NORMS[config.norm_placement] if names is None else names).items():
        tensors |= norm(ours, f"layers.{{i}}.{theirs}", bias=False, offset=minus_one)
    if config.qk_norm == "none":
        return tensors
    for which in ("q", "k"):
        gain = norm(f"{which}_norm", f"layers.{{i}}.self_attn.{which}_norm", bias=False, offset=minus_one)
        tensors |= {name: where.heads(which) if config.qk_norm_over == "all" else where for name, where in gain.items()}
    return tensors
