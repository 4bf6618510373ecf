"""Hugging Face GPT-J directories (Wang and Komatsuzaki 2021).

Attention and MLP are parallel and read the output of one LayerNorm, whose tensors serve for both. The first `rotary_dim` columns
of each head rotate, in interleaved pairs. Attention has no biases; the MLP and the unembedding have.
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, opener, shared_norm, tied_note
from circuitlab.model.loading.family import Family
from circuitlab.model.loading.huggingface import activation, flag, head_size, number, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, linear, norm, stored

_DEFAULTS = {
    "n_positions": 2048,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": False,
}


def read_config(config: Mapping[str, object]) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of a GPT-J `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    d_model, n_heads = size(config, "n_embd"), size(config, "n_head")
    d_head = head_size({}, d_model, n_heads)
    n_rotary = _rotary_columns(config, d_head)
    model = ModelConfig(
        n_layers=size(config, "n_layer"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=d_head,
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "n_positions"),
        d_mlp=size(config, "n_inner", 4 * d_model),
        positions="rotary",
        rotary=Rotary(pairs="interleaved", dims=n_rotary),
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon"),
        activation=activation(config, "activation_function", "gelu_new"),
        parallel=True,
        biases=("mlp", "unembed"),
        tied=flag(config, "tie_word_embeddings", False),
        family="gptj",
    )
    stated = "" if "rotary_dim" in config else " (not stated, the family's own)"
    rotary_note = f"rotary positions rotate {n_rotary} of {number_of(d_head, 'column')}{stated}, interleaved, base 10000"
    notes = (scale_note(model.score_scale, d_head, "the family's own"), "one norm for attention and MLP", rotary_note)
    return model, (*notes, *tied_note(model), *assumed)


def _rotary_columns(config: Mapping[str, object], d_head: int) -> int:
    """How many columns of each head rotate. `null` is refused: with it the family's own code rotates none."""
    n_rotary = size(config, "rotary_dim", 0) if "rotary_dim" in config else 64
    if not 0 < n_rotary <= d_head or n_rotary % 2:
        raise BadModel(
            "The configuration's rotary_dim does not fit the heads.",
            expected=f"an even number of the {number_of(d_head, 'column')}",
            got=str(n_rotary),
        )
    return n_rotary


def layout(config: ModelConfig) -> Layout:
    """Where GPT-J keeps its tensors."""
    ends = {"embed.W_E": stored("wte.weight"), **norm("unembed.norm", "ln_f", bias=True), "unembed.b_U": stored("lm_head.bias")}
    ends |= {} if config.tied else {"unembed.W_U": linear("lm_head")}
    at = "h.{i}.attn."
    block: dict[str, Stored] = shared_norm("h.{i}.ln_1")
    block |= attention(config, f"{at}q_proj", f"{at}k_proj", f"{at}v_proj", f"{at}out_proj")
    block |= mlp(config, "h.{i}.mlp.fc_in", "h.{i}.mlp.fc_out")
    # masks and tables that older files carry
    return Layout(ends, block, (".attn.bias", ".attn.masked_bias", ".embed_positions", "lm_head.weight"), ("transformer.",))


FAMILY = Family("gptj", "GPT-J", lambda f: f.model_type == "gptj", opener(read_config, layout, "GPT-J"))
