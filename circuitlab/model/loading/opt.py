"""Hugging Face OPT directories (Zhang et al. 2022).

GPT-2's shape with ReLU; the first two rows of the table of positions are unused. OPT-350m normalises the stream after each
addition instead of before each sublayer, has no final norm, and embeds into fewer columns than the stream has: the linear maps
between them, `project_in` and `project_out`, are multiplied into the embedding and the unembedding.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import attention, filled, mlp, tied_note
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.huggingface import activation, flag, head_size, scale_note, size
from circuitlab.model.loading.layout import Layout, Stored, lay_out, linear, norm, stored

_DEFAULTS = {
    "max_position_embeddings": 2048,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True,
}


def read_config(config: Mapping[str, object]) -> tuple[ModelConfig, tuple[str, ...]]:
    """Our configuration of an OPT `config.json`, with what was assumed."""
    config, assumed = filled(config, _DEFAULTS)
    d_model, n_heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    before, projected = flag(config, "do_layer_norm_before", True), _projected(config)
    tied = flag(config, "tie_word_embeddings", True)
    model = ModelConfig(
        n_layers=size(config, "num_hidden_layers"),
        n_heads=n_heads,
        d_model=d_model,
        d_head=head_size({}, d_model, n_heads),
        d_vocab=size(config, "vocab_size"),
        n_ctx=size(config, "max_position_embeddings"),
        d_mlp=size(config, "ffn_dim"),
        positions="learned",
        norm="layer",
        norm_placement="pre" if before else "post_residual",
        final_norm=before and not flag(config, "_remove_final_layer_norm", False),
        norm_eps=1e-5,
        activation=activation(config, "activation_function", "relu"),
        biases=("q", "k", "v", "o", "mlp") if flag(config, "enable_bias", True) else (),
        tied=tied and not projected,
        family="opt",
    )
    notes = [
        scale_note(model.score_scale, model.d_head, "the family's own"),
        "the first two rows of the position table are unused",
    ]
    if projected:
        same = ", both from one table" if tied else ""
        width = size(config, "word_embed_proj_dim")
        notes.append(
            f"embedding and unembedding pass through {number_of(width, 'column')}{same}; they include project_in and project_out"
        )
    notes += [] if before else ["norms after each addition, none before the unembedding"]
    notes += ["no norm before the unembedding"] if before and not model.final_norm else []
    notes += [] if flag(config, "layer_norm_elementwise_affine", True) else ["norms have neither gains nor biases"]
    return model, (*notes, *tied_note(model), *assumed)


def _projected(config: Mapping[str, object]) -> bool:
    """Whether the embedding has another width than the stream."""
    return size(config, "word_embed_proj_dim", size(config, "hidden_size")) != size(config, "hidden_size")


def layout(config: ModelConfig, projected: bool, one_table: bool, affine: bool) -> Layout:
    """Where OPT keeps its tensors. `one_table`: embedding and unembedding share it; `affine`: norms have gains and biases."""
    table, out = stored("embed_tokens.weight"), linear("embed_tokens" if one_table else "lm_head")
    ends = {"embed.W_E": table, "embed.W_pos": stored("embed_positions.weight").then(lambda c, x: x[2:])}
    if projected:
        ends["embed.W_E"] = table.joined([linear("project_in")], _product)
        ends["unembed.W_U"] = linear("project_out").joined([out], _product)
    elif not config.tied:
        ends["unembed.W_U"] = out
    at = "layers.{i}."
    place = "norm" if config.norm_placement == "pre" else "post_norm"
    block: dict[str, Stored] = attention(
        config, *(f"{at}self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj"))
    )
    block |= mlp(config, f"{at}fc1", f"{at}fc2")
    if affine:
        ends |= norm("unembed.norm", "final_layer_norm", bias=True) if config.final_norm else {}
        block |= norm(f"attn_{place}", f"{at}self_attn_layer_norm", bias=True)
        block |= norm(f"mlp_{place}", f"{at}final_layer_norm", bias=True)
    # a version number in older files, and the second name of a tied embedding
    return Layout(ends, block, ("decoder.version", "lm_head.weight"), ("model.decoder.", "decoder."))


def _product(a: Tensor, b: Tensor) -> Tensor:
    return a.float() @ b.float()  # in half precision the product would be rounded


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    config, notes = read_config(checkpoint.config)
    one_table = flag(checkpoint.config, "tie_word_embeddings", True)
    where = layout(
        config, _projected(checkpoint.config), one_table, flag(checkpoint.config, "layer_norm_elementwise_affine", True)
    )
    parts, unused = lay_out(config, where, checkpoint.needed(), keep == "resident")
    return Opened(LazyWeights(config, find_tokenizer(checkpoint.folder), parts), (*notes, *unused), checkpoint.files, "", "OPT")


FAMILY = Family("opt", "OPT", lambda f: f.model_type == "opt", _load)
