"""TransformerLens: state dicts of a `HookedTransformer` (.pt, .pth, .safetensors), with its configuration or without.

The configuration is the JSON beside the file, or a dict that was saved with the weights. Without one the architecture is inferred
from names and shapes, and whatever these leave open is listed as an assumption. Sizes always come from the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from circuitlab.errors import BadModel
from circuitlab.model.config import BiasName, ModelConfig
from circuitlab.model.files.renamed import RenamedTensors
from circuitlab.model.files.tensors import TensorSource
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.hooked_axes import STREAM_AXIS, Axes, axes, short
from circuitlab.model.loading.hooked_config import Architecture, read_config
from circuitlab.model.loading.hooked_inference import infer
from circuitlab.model.loading.huggingface import size
from circuitlab.model.loading.layout import Layout, Stored, Which, lay_out, stored

_BUFFERS = ("attn.mask", "attn.IGNORE", "attn.rotary_sin", "attn.rotary_cos")
_BIASES: tuple[tuple[BiasName, str], ...] = (("q", "attn.b_Q"), ("k", "attn.b_K"), ("v", "attn.b_V"), ("o", "attn.b_O"))
_BLOCK = re.compile(r"blocks\.(\d+)\.")
_ANY_BLOCK = re.compile(r"((?:[A-Za-z_]\w*\.)+)(\d+)\.(attn\.)?_?W_[QKVO]$")  # of lists of blocks by any name
_OF_ATTENTION = re.compile(r"_?[Wb]_[QKVO]$")


@dataclass(frozen=True)
class Names:
    """The names of a file behind their common prefix, and shapes and tensors by them.

    `called`: what the file calls its list of blocks where that is not `blocks`; they go by that name here all the same.
    """

    source: TensorSource
    prefix: str
    all: frozenset[str]
    called: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.all

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return self.source.shape(self.prefix + name)

    def tensor(self, name: str) -> Tensor:
        """One tensor."""
        return self.source.tensor(self.prefix + name)

    @property
    def n_layers(self) -> int:
        """How many blocks there are."""
        return 1 + max((int(m[1]) for n in self.all if (m := _BLOCK.match(n))), default=-1)

    def attention(self, which: str, layer: int = 0) -> str:
        """The name of `W_K` … in one layer: grouped heads are kept under names with an underscore."""
        plain = f"blocks.{layer}.attn.{which}"
        grouped = f"blocks.{layer}.attn._{which}"
        return grouped if grouped in self else plain


def names_of(source: TensorSource | None) -> Names | None:
    """The names where they are TransformerLens', None where they are not."""
    if source is None:
        return None
    for name in sorted(source.names()):
        prefix = name.removesuffix("embed.W_E")
        if prefix == name or prefix.endswith(("un", "pos_")):
            continue
        rest = frozenset(n.removeprefix(prefix) for n in source.names() if n.startswith(prefix))
        if "unembed.W_U" in rest and not any(n.startswith("layers.") for n in rest):
            return _with_blocks(Names(source, prefix, rest))
    return None


def _with_blocks(names: Names) -> Names:
    """With `blocks.0.attn.W_Q` in place of `attn_blocks.0.attn.W_Q` or `attn_blocks.0.W_Q`, where one list of blocks is there."""
    lists = {(m[1], m[3]) for n in names.all if (m := _ANY_BLOCK.match(n))}
    if len(lists) != 1 or lists == {("blocks.", "attn.")}:
        return names  # several: what is not `blocks` is left over, and refused
    ((called, inner),) = lists
    table = {}
    for name in names.all:
        number, dot, rest = name.removeprefix(called).partition(".")
        if name.startswith(called) and number.isdecimal() and dot:
            ours = f"attn.{rest}" if inner is None and _OF_ATTENTION.match(rest) else rest
            table[f"{names.prefix}blocks.{number}.{ours}"] = names.prefix + name
    source = RenamedTensors(names.source, table)
    rest = frozenset(n.removeprefix(names.prefix) for n in source.names() if n.startswith(names.prefix))
    return Names(source, names.prefix, rest, called.rstrip("."))


def stated_config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The `HookedTransformerConfig` beside the weights or saved with them, {} without one."""
    candidates = [checkpoint.config, checkpoint.metadata, *(v for v in checkpoint.metadata.values() if isinstance(v, Mapping))]
    return next((c for c in candidates if "d_model" in c and "n_layers" in c), {})


def _stream_vectors(names: Names) -> Iterable[tuple[int, ...]]:
    ends = (".ln1.w", ".ln2.w", "ln_final.w", "attn.b_O", "mlp.b_out")
    return [names.shape(n) for n in names.all if n.endswith(ends)]


def _weights(names: Names) -> dict[str, tuple[int, ...]]:
    """Shapes of the ends' weights and of those of the first block."""
    first = [n for n in names.all if n.startswith("blocks.0.")] if names.n_layers else []
    weights = [n for n in (*first, "embed.W_E", "unembed.W_U", "pos_embed.W_pos") if n in names and short(n) in STREAM_AXIS]
    shapes = {n: names.shape(n) for n in weights}
    if bad := [f"{n} {s}" for n, s in shapes.items() if len(s) not in (2, 3)]:
        raise BadModel("A weight has the wrong number of axes.", expected="2, or 3 with heads", got=", ".join(bad[:4]))
    return shapes


@dataclass(frozen=True)
class Sizes:
    """What the tensors' shapes say."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_vocab: int
    d_vocab_out: int
    d_mlp: int


def _sizes(names: Names, file_axes: Axes, config: Mapping[str, Any], ask: Assumed) -> Sizes:
    other = lambda name: _other_axis(names.shape(name), short(name), file_axes)
    n_heads, d_head = size(config, "n_heads", 1), size(config, "d_head", 1)  # stand so where no layer shows them
    n_kv = n_heads
    if names.n_layers:
        for part in ("W_Q", "W_K", "W_V", "W_O"):
            if names.attention(part) not in names:
                raise BadModel("The weights lack tensors.", expected=names.attention(part), got="blocks without it")
        n_heads, d_head = _heads(names, "Q", other, config, ask)
        keys = names.attention("W_K")
        n_kv = names.shape(keys)[0] if len(names.shape(keys)) == 3 else other(keys) // d_head
    inner = "blocks.0.mlp.W_in"
    return Sizes(
        names.n_layers, n_heads, n_kv, file_axes.d_model, d_head, other("embed.W_E"), other("unembed.W_U"),
        other(inner) if inner in names else 0,
    )  # fmt: skip


def _other_axis(shape: tuple[int, ...], which: str, file_axes: Axes) -> int:
    """The length of a weight's last axes that is not the stream's."""
    axis = STREAM_AXIS[which] ^ (which in file_axes.transposed)
    return shape[-2:][1 - axis]


def _heads(names: Names, part: str, other: Any, config: Mapping[str, Any], ask: Assumed) -> tuple[int, int]:
    """(heads, columns of each): from an axis of their own, a bias, the configuration, or what was said."""
    weight, bias = names.attention(f"W_{part}"), names.attention(f"b_{part}")
    if len(names.shape(weight)) == 3:
        return names.shape(weight)[0], other(weight)
    width = other(weight)
    if bias in names and len(names.shape(bias)) == 2:
        n = names.shape(bias)[0]
    elif isinstance(config.get("n_heads"), int):
        n = config["n_heads"]
    else:
        n = ask.size("n_heads", None, f"heads in an axis of their own; {weight} is {names.shape(weight)}")
    if n < 1 or width % n:
        raise BadModel("The heads do not divide their columns.", expected=f"a divisor of {width}", got=str(n))
    return n, width // n


def _biases(names: Names, sizes: Sizes) -> tuple[tuple[BiasName, ...], tuple[str, ...]]:
    """The biases that are there and not zero everywhere, and a note about those that are."""
    layers = range(sizes.n_layers)
    kinds: list[tuple[BiasName, list[str]]] = []
    for kind, name in _BIASES:
        kinds.append((kind, [names.attention(name.removeprefix("attn."), i) for i in layers]))
    kinds.append(("mlp", [f"blocks.{i}.mlp.{b}" for i in layers for b in ("b_in", "b_out")]))
    kinds.append(("unembed", ["unembed.b_U"]))
    stored_biases: list[tuple[BiasName, list[str]]] = [(kind, ns) for kind, ns in kinds if any(n in names for n in ns)]
    nonzero: tuple[BiasName, ...] = tuple(
        kind for kind, ns in stored_biases if any(n in names and bool((names.tensor(n) != 0).any()) for n in ns)
    )
    zero = [kind for kind, _ in stored_biases if kind not in nonzero]
    return nonzero, (f"biases that are zero everywhere left out: {' '.join(zero)}",) if zero else ()


def configuration(sizes: Sizes, arch: Architecture, biases: tuple[BiasName, ...], gated: bool) -> ModelConfig:
    """Our configuration."""
    shapes = {name: getattr(sizes, name) for name in Sizes.__dataclass_fields__}
    return ModelConfig(
        **shapes,
        n_ctx=arch.n_ctx,
        positions=arch.positions,
        rotary=arch.rotary,
        rotary_windowed=arch.rotary_windowed,
        norm=arch.norm,
        norm_placement="both" if arch.both else "pre",
        final_norm=arch.norm != "none",
        norm_eps=arch.norm_eps,
        activation=arch.activation,
        gated=gated,
        parallel=arch.parallel and sizes.d_mlp > 0,
        qk_norm=arch.qk_norm,
        biases=biases,
        score_scale=arch.score_scale,
        score_soft_cap=arch.score_soft_cap,
        logit_soft_cap=arch.logit_soft_cap,
        windows=arch.windows,
        prepend_bos=arch.prepend_bos,
        family="transformer_lens",
    )


def layout(config: ModelConfig, names: Names, file_axes: Axes, arch: Architecture) -> Layout:
    """Where the file keeps each tensor."""
    oriented = lambda name: _oriented(stored(name), short(name), file_axes)
    ends = {"embed.W_E": oriented("embed.W_E"), "unembed.W_U": oriented("unembed.W_U")}
    if arch.embed_norm or "embed.ln.w" in names:  # LayerNorm, whatever the others are
        ends["embed.W_E"] = ends["embed.W_E"].normed("embed.ln.w", "embed.ln.b", config.norm_eps)
    ends |= {"embed.W_pos": oriented("pos_embed.W_pos")} if config.stored_positions else {}
    ends |= {"unembed.b_U": stored("unembed.b_U")} if "unembed" in config.biases else {}
    block: dict[str, Stored] = {}
    for which in ("q", "k", "v", "o") if config.n_layers else ():
        part = which.upper()
        at = lambda name: names.attention(name).replace("blocks.0.", "blocks.{i}.")
        block[f"W_{part}"] = _oriented_heads(names, at(f"W_{part}"), which, file_axes)
        if which in config.biases:
            flat = which != "o" and len(names.shape(names.attention(f"b_{part}"))) == 1
            block[f"b_{part}"] = stored(at(f"b_{part}")).heads(which) if flat else stored(at(f"b_{part}"))
    if config.d_mlp:
        block |= {f"mlp.W_{name}": oriented(f"blocks.{{i}}.mlp.W_{name}") for name in ("in", "out")}
        block |= _mlp_biases(config) if "mlp" in config.biases else {}
        block |= {"mlp.W_gate": oriented("blocks.{i}.mlp.W_gate")} if config.gated else {}
    norms, final = _norms(config, names, arch)
    prefixes = (names.prefix,) if names.prefix else ("",)
    zero = tuple(n for n in ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U") if not _has_bias(config, n))
    buffers = (*_BUFFERS, *(f".{n}" for n in zero), *(f"._{n}" for n in zero))
    return Layout(ends | final, block | norms, buffers, prefixes, _by_layer(config, block | norms) if arch.by_layer else {})


def _has_bias(config: ModelConfig, name: str) -> bool:
    kind = {"b_in": "mlp", "b_out": "mlp", "b_U": "unembed"}.get(name, name[-1].lower())
    return kind in config.biases


def _oriented(where: Stored, which: str, file_axes: Axes) -> Stored:
    return where.T if which in file_axes.transposed else where


def _oriented_heads(names: Names, name: str, which: Which, file_axes: Axes) -> Stored:
    """W_Q … of one layer: heads in an axis of their own or flat, either order of the axes."""
    exchanged = short(name) in file_axes.transposed
    if len(names.shape(name.replace("{i}", "0"))) == 2:
        return _oriented(stored(name), short(name), file_axes).heads(which)
    return stored(name).then(lambda c, x: x.transpose(1, 2)) if exchanged else stored(name)


def _mlp_biases(config: ModelConfig) -> dict[str, Stored]:
    """Behind a gate TransformerLens adds `b_in` to the product, so that it is the constant `b_in W_out` of the output."""
    b_in, b_out = stored("blocks.{i}.mlp.b_in"), stored("blocks.{i}.mlp.b_out")
    if not config.gated:
        return {"mlp.b_in": b_in, "mlp.b_out": b_out}
    none = b_in.then(lambda c, x: torch.zeros_like(x))
    whole = b_out.joined((b_in, stored("blocks.{i}.mlp.W_out")), lambda out, inner, W: out + inner @ W)
    return {"mlp.b_in": none, "mlp.b_gate": none, "mlp.b_out": whole}


def _norms(config: ModelConfig, names: Names, arch: Architecture) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """Gains and biases of the norms in a block, and of the last one."""

    def gain(ours: str, theirs: str, kind: str) -> dict[str, Stored]:
        made = {f"{ours}.gain": stored(f"{theirs}.w")}
        return made | ({f"{ours}.bias": stored(f"{theirs}.b")} if kind == "layer" else {})

    at, block = "blocks.{i}.", {}
    if arch.gains and config.norm != "none":
        block |= gain("attn_norm", f"{at}ln1", config.norm)
        block |= gain("mlp_norm", f"{at}ln2", config.norm) if config.d_mlp else {}
    if arch.both:
        block |= gain("attn_post_norm", f"{at}ln1_post", config.norm)
        block |= gain("mlp_post_norm", f"{at}ln2_post", config.norm) if config.d_mlp else {}
    if config.activation == "solu_ln" and config.d_mlp and "blocks.0.mlp.ln.w" in names:
        block |= gain("mlp.norm", f"{at}mlp.ln", "layer")
    if config.qk_norm != "none":
        block |= gain("q_norm", f"{at}attn.q_norm", "rms") | gain("k_norm", f"{at}attn.k_norm", "rms")
    final = gain("unembed.norm", "ln_final", config.norm) if arch.gains and config.final_norm else {}
    return block, final


def _by_layer(config: ModelConfig, block: Mapping[str, Stored]) -> dict[int, dict[str, Stored]]:
    """Scores of layer i divided by i + 1: its queries are, or the gain of their norm."""
    names = ("q_norm.gain",) if config.qk_norm != "none" else ("W_Q", "b_Q")
    divided = lambda where, i: where.then(lambda c, x: x / (i + 1))
    return {i: {n: divided(block[n], i) for n in names if n in block} for i in range(1, config.n_layers)}


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    ask = Assumed(checkpoint.assume)
    names, fields = names_of(checkpoint.needed()), stated_config(checkpoint)
    assert names is not None  # it was claimed
    stated = fields.get("d_model") if isinstance(fields.get("d_model"), int) else None
    where = axes(_weights(names), _stream_vectors(names), stated, ask)
    sizes = _sizes(names, where, fields, ask)
    _agree(fields, sizes)
    configured = bool(fields)
    arch = read_config(fields, sizes.d_head, sizes.n_layers) if configured else infer(names, sizes, where, ask)
    if fields.get("act_fn") is None and configured and sizes.d_mlp:
        raise BadModel("The configuration has no activation.", expected="act_fn", got="a model with MLPs")
    biases, left = _biases(names, sizes)
    config = configuration(sizes, arch, biases, "blocks.0.mlp.W_gate" in names)
    parts, unused = lay_out(config, layout(config, names, where, arch), names.source, keep == "resident")
    notes = [f"the file calls its blocks {names.called}"] if names.called else []
    notes += [*arch.notes, *left, *unused, *_notes(where, arch, config)]
    notes += ["no configuration: what the tensors do not show is assumed"] if not configured else []
    weights = LazyWeights(config, find_tokenizer(checkpoint.folder), parts)
    return Opened(weights, tuple(notes), checkpoint.files, "", "TransformerLens", tuple(ask.assumptions))


def _notes(where: Axes, arch: Architecture, config: ModelConfig) -> list[str]:
    notes = [f"stored transposed, read so: {' '.join(sorted(where.transposed))}"] if where.transposed else []
    notes += (
        ["norms without gain and bias: folded into the weights before they were saved"]
        if (config.norm != "none" and not arch.gains)
        else []
    )
    notes += ["queries of layer i divided by i + 1 (scale_attn_by_inverse_layer_idx)"] if arch.by_layer else []
    return notes + (["b_in behind the gate moved into b_out"] if config.gated and "mlp" in config.biases else [])


def _agree(config: Mapping[str, Any], sizes: Sizes) -> None:
    """Raise `BadModel` where a stated size is not the tensors'."""
    for name in Sizes.__dataclass_fields__:
        value, shown_size = config.get(name), getattr(sizes, name)
        if (name == "d_mlp" and not shown_size) or value in (None, -1) or (name == "n_kv_heads"):
            continue
        if value != shown_size:
            raise BadModel(f"The configuration's {name} contradicts the tensors.", expected=repr(value)[:40], got=str(shown_size))


def _claims(checkpoint: Checkpoint) -> bool:
    return not checkpoint.model_type and "format" not in checkpoint.config and names_of(checkpoint.tensors) is not None


FAMILY = Family("transformer_lens", "a TransformerLens state dict", _claims, _load, last=True)
