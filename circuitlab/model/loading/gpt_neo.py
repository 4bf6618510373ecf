"""Hugging Face GPT-Neo directories (Black et al. 2021): GPT-2's shape with unscaled scores and local attention in some layers.

Scores are `q·k` itself, without 1/√d_head. Layers are "global" or "local"; a local destination sees the last `window_size`
positions, itself included. Queries, keys and values have no biases. `Linear` weights are stored [out, in].
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice, repeat

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, opener, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.huggingface import activation, flag, head_size, number, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "max_position_embeddings": 2048,
    "window_size": 256,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}


def read_config(config: Mapping[str, object]) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a GPT-Neo `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    d_model, n_heads, n_layers = (size(config, n) for n in ("hidden_size", "num_heads", "num_layers"))
    windows, window_notes = _windows(config, n_layers)
    model = ModelConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=d_model,
        d_head=head_size({}, d_model, n_heads),
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "max_position_embeddings"),
        d_mlp=size(config, "intermediate_size", 4 * d_model),
        positions="learned",
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation=activation(config, "activation_function", "gelu_new"),
        biases=("o", "mlp"),
        tied=flag(config, "tie_word_embeddings", True),
        score_scale=1.0,
        windows=windows,
        family="gpt_neo",
    )
    scale = scale_note(1.0, model.d_head, "GPT-Neo does not scale q·k")
    return model, (scale, *tied_note(model), *window_notes, *assumed)


def _windows(config: Mapping[str, object], n_layers: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The window of each layer, () without local layers, and a note; `attention_layers` goes before `attention_types`."""
    kinds = config.get("attention_layers")
    kinds = _expanded(config, n_layers) if kinds is None else kinds
    if not isinstance(kinds, list) or len(kinds) != n_layers or set(map(str, kinds)) - {"global", "local"}:
        raise BadModel(
            "The configuration's kinds of attention do not fit the layers.",
            expected=f"global or local for each of {number_of(n_layers, 'layer')}",
            got=quoted(kinds, 120),
        )
    if "local" not in kinds:
        return (), ()
    width, local = size(config, "window_size"), [i for i, kind in enumerate(kinds) if kind == "local"]
    if width < 1:  # a window of 0 stands for all positions
        raise BadModel(
            "The configuration's window of local attention is empty.", expected="a window_size of at least 1", got=str(width)
        )
    note = f"local attention over {number_of(width, 'position')} in layers {', '.join(map(str, local))}"
    return tuple(width if kind == "local" else 0 for kind in kinds), (note,)


def _expanded(config: JsonObject, n_layers: int) -> list[str]:
    """`[[["global", "local"], 12]]`: each list repeated as often as stated; at most one more than there are layers."""
    expanded: list[str] = []
    try:
        for kinds, times in config["attention_types"]:
            layers = chain.from_iterable(repeat(tuple(kinds), times if kinds else 0))
            expanded += map(str, islice(layers, n_layers + 1 - len(expanded)))
        return expanded
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadModel(
            "The configuration's attention_types cannot be read.",
            expected='[[["global", "local"], 12]] or attention_layers',
            got=quoted(config.get("attention_types"), 120),
        ) from error


def layout(config: ModelConfig) -> Layout:
    """Where GPT-Neo keeps its tensors."""
    ends = {"embed.W_E": stored("wte.weight"), "embed.W_pos": stored("wpe.weight"), **norm("unembed.norm", "ln_f", bias=True)}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "h.{i}.attn.attention."
    block: dict[str, Stored] = {**norm("attn_norm", "h.{i}.ln_1", bias=True), **norm("mlp_norm", "h.{i}.ln_2", bias=True)}
    block |= attention(config, f"{at}q_proj", f"{at}k_proj", f"{at}v_proj", f"{at}out_proj")
    block |= mlp(config, "h.{i}.mlp.c_fc", "h.{i}.mlp.c_proj")
    # the masks that older files carry
    return Layout(ends, block, (".attention.bias", ".attention.masked_bias", "lm_head.weight"), ("transformer.",))


FAMILY = Family("gpt_neo", "GPT-Neo", lambda f: f.model_type == "gpt_neo", opener(read_config, layout, "GPT-Neo"))
