"""Parts shared by families of decoders: linear maps with and without bias, a norm that two sublayers share, defaults.

A family reads its configuration with `filled`, declares its blocks with `attention` and `mlp`, and is opened by `opener`.
"""

from __future__ import annotations

from collections.abc import Callable

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.family import Keep, Opened, tokenizer_of
from circuitlab.model.loading.huggingface import flag, head_size, number, size
from circuitlab.model.loading.layout import Layout, Stored, Which, lay_out, linear, norm, stored
from circuitlab.model.loading.rotary_scaling import context, of_gguf, rotary

ReadConfig = Callable[[JsonObject], tuple[ModelConfig, tuple[str, ...]]]


def filled(config: JsonObject, defaults: JsonObject) -> tuple[JsonDict, tuple[str, ...]]:
    """The configuration with a family's defaults for missing fields, and a note that names them."""
    assumed = [name for name in defaults if config.get(name) is None]
    values = ", ".join(f"{name} {str(defaults[name]).lower()}" for name in assumed)
    return {**config, **{name: defaults[name] for name in assumed}}, (
        f"not stated, the family's own: {values}",
    ) if values else ()


def rotary_fields(config: JsonObject, d_head: int, partial: float | None, n_ctx: int) -> tuple[Rotary, int, tuple[str, ...]]:
    """Rotary positions of the first columns of each head, in halves, the context length, and notes.

    `partial` and `n_ctx` are the family's defaults, as in `rotary`. Raises `BadModel` if no pair would rotate.
    """
    positions, rescaling_notes = rotary(config, d_head, partial=partial)
    n_positions, context_notes = context(config, n_ctx)
    name, stated = "partial_rotary_factor", config.get("rope_parameters") or config.get("rope_scaling") or {}
    assumed_share = partial is not None and not {name, "columns"} & {*stated, *config, *of_gguf(config)}
    width, assumed = positions.dims or d_head, ", as the file states no share" if assumed_share else ""
    return (
        positions,
        n_positions,
        (
            f"rotary positions rotate {width} of {number_of(d_head, 'column')}{assumed}, base {positions.base:g}",
            *rescaling_notes,
            *context_notes,
        ),
    )


def tied_note(config: ModelConfig) -> tuple[str, ...]:
    """Whether the unembedding is the embedding."""
    return ("unembedding tied to the embedding",) if config.tied else ()


def alibi_notes(config: ModelConfig) -> tuple[str, ...]:
    """Notes on ALiBi (Press et al. 2021): the slopes of the heads, and that the formula itself has no context limit."""
    first, last = max(config.slopes), min(config.slopes)
    steepest = config.slopes.index(first)
    return (
        f"ALiBi: scores fall by {first:.3g} (head {steepest}) to {last:.3g} per position, the same in every layer",
        f"context {config.n_ctx}: that of training; ALiBi itself has no limit",
    )


def rotary_sizes(
    config: JsonObject, rotary_config: JsonObject, partial: float | None, default_context: int
) -> tuple[JsonDict, tuple[str, ...]]:
    """The fields of `ModelConfig` that LayerNorm decoders with partial rotary positions state alike, and notes on the rotation.

    `rotary_config` holds the rotary parameters: `config` itself, with older names replaced. Raises `BadModel`.
    """
    d_model, n_heads = size(config, "hidden_size"), size(config, "num_attention_heads")
    d_head = head_size(config, d_model, n_heads)
    rotary, n_ctx, notes = rotary_fields(rotary_config, d_head, partial, default_context)
    fields = {
        "n_layers": size(config, "num_hidden_layers"),
        "n_heads": n_heads,
        "n_kv_heads": size(config, "num_key_value_heads", n_heads),
        "d_model": d_model,
        "d_head": d_head,
        "d_vocab": size(config, "vocab_size"),
        "n_ctx": n_ctx,
        "d_mlp": size(config, "intermediate_size"),
        "positions": "rotary",
        "rotary": rotary,
        "norm": "layer",
        "norm_eps": number(config, "layer_norm_eps"),
        "tied": flag(config, "tie_word_embeddings", False),
    }
    return fields, notes


def linear_with_bias(ours: str, theirs: str, bias: bool, which: Which | None = None) -> dict[str, Stored]:
    """W_`ours` and, if `bias`, b_`ours` of a torch `Linear`; `which`: split by head. `ours` may begin with "mlp."."""
    place, _, name = ours.rpartition(".")
    at = f"{place}." if place else ""
    maps = {f"{at}W_{name}": linear(theirs), **({f"{at}b_{name}": stored(f"{theirs}.bias")} if bias else {})}
    split = lambda key, where: where if which is None or (which == "o" and key.startswith("b_")) else where.heads(which)
    return {key: split(key, where) for key, where in maps.items()}


def attention(config: ModelConfig, q: str, k: str, v: str, o: str) -> dict[str, Stored]:
    """The four maps of attention, each a separate `Linear`, with the biases that the configuration names."""
    maps: dict[str, Stored] = {}
    names: dict[Which, str] = {"q": q, "k": k, "v": v, "o": o}
    for which, theirs in names.items():
        maps |= linear_with_bias(which.upper(), theirs, which in config.biases, which)
    return maps


def fused_attention(config: ModelConfig, qkv: str, o: str) -> dict[str, Stored]:
    """The four maps of attention from two `Linear`s, the first with queries, key and value of each key-value head adjacent."""
    maps = linear_with_bias("O", o, "o" in config.biases, "o")
    parts: tuple[Which, ...] = ("q", "k", "v")
    for which in parts:
        fused = linear_with_bias(which.upper(), qkv, which in config.biases)
        maps |= {name: where.within_heads(which).heads(which) for name, where in fused.items()}
    return maps


def mlp(config: ModelConfig, up: str, down: str, gate: str = "") -> dict[str, Stored]:
    """The maps of an MLP, each a `Linear`."""
    bias = "mlp" in config.biases
    maps = {**linear_with_bias("mlp.in", up, bias), **linear_with_bias("mlp.out", down, bias)}
    return maps | (linear_with_bias("mlp.gate", gate, bias) if gate else {})


def shared_norm(theirs: str) -> dict[str, Stored]:
    """One LayerNorm whose output both attention and MLP read: the same tensors twice."""
    return {**norm("attn_norm", theirs, bias=True), **norm("mlp_norm", theirs, bias=True)}


def opener(read_config: ReadConfig, layout: Callable[[ModelConfig], Layout], title: str) -> Callable[[Checkpoint, Keep], Opened]:
    """The `load` of a family whose configuration determines its layout."""

    def load(checkpoint: Checkpoint, keep: Keep) -> Opened:
        read = read_config(checkpoint.config)
        return lay_out_and_open(read, layout(read[0]), checkpoint, keep, title)

    return load


def lay_out_and_open(
    read: tuple[ModelConfig, tuple[str, ...]], where: Layout, checkpoint: Checkpoint, keep: Keep, title: str
) -> Opened:
    """The model whose tensors lie as `where` says. Raises `BadModel`."""
    config, notes = read
    parts, unused = lay_out(config, where, checkpoint.needed(), keep == "resident")
    return Opened(LazyWeights(config, tokenizer_of(checkpoint), parts), (*notes, *unused), checkpoint.files, "", title)
