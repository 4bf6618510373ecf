"""TransformerLens: state dicts of a `HookedTransformer` (.pt, .pth, .safetensors), with its configuration or without.

The configuration is the JSON beside the file, or a dict saved with the weights; a tokenizer that it names is taken from the hub's
cache where none lies beside the weights. Without one the architecture is inferred from
names and shapes, and whatever these leave open is listed as an assumption. Sizes always come from the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, UsageError, printable, quoted
from circuitlab.model.config import BiasName, ModelConfig
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.hooked_axes import STREAM_AXIS, Axes, axes, short
from circuitlab.model.loading.hooked_config import Architecture, in_todays_words, read_config
from circuitlab.model.loading.hooked_inference import infer
from circuitlab.model.loading.hooked_names import Names, names_of
from circuitlab.model.loading.hooked_sizes import Sizes, check_stated, sizes_of
from circuitlab.model.loading.huggingface import flag
from circuitlab.model.loading.layout import Layout, Stored, Which, lay_out, stored
from circuitlab.model.sources.hub import HubName, tokenizer_folder
from circuitlab.model.text.tokenizer import Tokenizer

_BUFFERS = ("attn.mask", "attn.IGNORE", "attn.rotary_sin", "attn.rotary_cos")
_BIASES: tuple[tuple[BiasName, str], ...] = (("q", "attn.b_Q"), ("k", "attn.b_K"), ("v", "attn.b_V"), ("o", "attn.b_O"))


def stated_config(checkpoint: Checkpoint) -> JsonObject:
    """The `HookedTransformerConfig` beside the weights or saved with them, {} without one."""
    candidates = [checkpoint.config, checkpoint.metadata, *(v for v in checkpoint.metadata.values() if isinstance(v, Mapping))]
    return in_todays_words(next((c for c in candidates if "d_model" in c and "n_layers" in c), {}))


def _stream_vectors(names: Names) -> Iterable[tuple[int, ...]]:
    """Shapes of the gains and biases over the stream."""
    ends = (".ln1.w", ".ln2.w", "ln_final.w", "attn.b_O", "mlp.b_out")
    return [names.shape(n) for n in names.all if n.endswith(ends)]


def _weight_shapes(names: Names) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of embedding, unembedding and first block, by name."""
    first = [n for n in names.all if n.startswith("blocks.0.")] if names.n_layers else []
    weights = [n for n in (*first, "embed.W_E", "unembed.W_U", "pos_embed.W_pos") if n in names and short(n) in STREAM_AXIS]
    shapes = {n: names.shape(n) for n in weights}
    if bad := [f"{n} {s}" for n, s in shapes.items() if len(s) not in (2, 3)]:
        raise BadModel("A weight has the wrong number of axes.", expected="2, or 3 with heads", got=", ".join(bad[:4]))
    return shapes


def _biases(names: Names, sizes: Sizes) -> tuple[tuple[BiasName, ...], tuple[str, ...]]:
    """The stored biases that are not zero everywhere, and a note about those that are."""
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
    """The configuration of a model of this architecture and these sizes."""
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
    if arch.embed_norm or "embed.ln.w" in names:  # a LayerNorm, whatever kind the other norms are
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
    """W_Q … of one layer: with an axis of heads or flat, the axes in either order."""
    exchanged = short(name) in file_axes.transposed
    if len(names.shape(name.replace("{i}", "0"))) == 2:
        return _oriented(stored(name), short(name), file_axes).heads(which)
    return stored(name).then(lambda c, x: x.transpose(1, 2)) if exchanged else stored(name)


def _mlp_biases(config: ModelConfig) -> dict[str, Stored]:
    """Biases of the MLP. With a gate TransformerLens adds `b_in` to the gated product: a constant `b_in W_out` of the output."""
    b_in, b_out = stored("blocks.{i}.mlp.b_in"), stored("blocks.{i}.mlp.b_out")
    if not config.gated:
        return {"mlp.b_in": b_in, "mlp.b_out": b_out}
    zero = b_in.then(lambda c, x: torch.zeros_like(x))
    total = b_out.joined((b_in, stored("blocks.{i}.mlp.W_out")), lambda b_out, b_in, W_out: b_out + b_in @ W_out)
    return {"mlp.b_in": zero, "mlp.b_gate": zero, "mlp.b_out": total}


def _norms(config: ModelConfig, names: Names, arch: Architecture) -> tuple[dict[str, Stored], dict[str, Stored]]:
    """Gains and biases of the norms in a block, and of the final norm."""

    def gain(ours: str, theirs: str, kind: str) -> dict[str, Stored]:
        gain_tensor = {f"{ours}.gain": stored(f"{theirs}.w")}
        return gain_tensor | ({f"{ours}.bias": stored(f"{theirs}.b")} if kind == "layer" else {})

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
    """Scores of layer i divided by i + 1, by way of its queries or of the gain of their norm."""
    names = ("q_norm.gain",) if config.qk_norm != "none" else ("W_Q", "b_Q")
    divided = lambda where, i: where.then(lambda c, x: x / (i + 1))
    return {i: {n: divided(block[n], i) for n in names if n in block} for i in range(1, config.n_layers)}


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    ask = Assumed(checkpoint.assume)
    names, stated = names_of(checkpoint.needed()), stated_config(checkpoint)
    assert names is not None  # `_claims` has checked it
    d_model = stated.get("d_model") if isinstance(stated.get("d_model"), int) else None
    file_axes = axes(_weight_shapes(names), _stream_vectors(names), d_model, ask)
    sizes = sizes_of(names, file_axes, stated, ask)
    check_stated(stated, sizes)
    arch = read_config(stated, sizes.d_head, sizes.n_layers) if stated else infer(names, sizes, file_axes, ask)
    if stated and stated.get("act_fn") is None and sizes.d_mlp:
        raise BadModel("The configuration has no activation.", expected="act_fn", got="a model with MLPs")
    if stated:
        _check_mlps(stated, sizes)
    biases, zero_biases = _biases(names, sizes)
    config = configuration(sizes, arch, biases, "blocks.0.mlp.W_gate" in names)
    parts, unused = lay_out(config, layout(config, names, file_axes, arch), names.source, keep == "resident")
    notes = [f"the file calls its blocks {names.block_list}"] if names.block_list else []
    notes += [*arch.notes, *zero_biases, *unused, *_notes(file_axes, arch, config)]
    notes += ["no configuration: what the tensors do not show is assumed"] if not stated else []
    tokenizer, note = _tokenizer(checkpoint, stated)
    notes += [note] if note else []
    weights = LazyWeights(config, tokenizer, parts)
    return Opened(weights, tuple(notes), checkpoint.files, "", "TransformerLens", tuple(ask.assumptions))


def _check_mlps(stated: JsonObject, sizes: Sizes) -> None:
    """Raise `BadModel` where the configuration has MLPs and the tensors have none, or the other way about."""
    attn_only, d_mlp = flag(stated, "attn_only", False), stated.get("d_mlp")
    if sizes.n_layers and attn_only == bool(sizes.d_mlp) and (sizes.d_mlp or d_mlp not in (None, 0, -1)):
        raise BadModel(
            "The configuration's attn_only contradicts the tensors.",
            expected="no MLPs: attn_only is on" if attn_only else f"MLPs with d_mlp {quoted(d_mlp, 20)}: attn_only is off",
            got=f"MLPs with d_mlp {sizes.d_mlp}" if sizes.d_mlp else "layers of attention alone",
            remedy="Put the configuration of these weights beside them, or download both again.",
        )


def _tokenizer(checkpoint: Checkpoint, stated: JsonObject) -> tuple[Tokenizer | None, str]:
    """The tokenizer beside the weights, else the one of the hub's cache that the configuration names, with a note on it."""
    if (beside := find_tokenizer(checkpoint.folder)) is not None:
        return beside, ""
    name = stated.get("tokenizer_name")
    if not isinstance(name, str) or not name:
        return None, ""
    try:
        folder = tokenizer_folder(HubName.parse(name))
    except UsageError:  # a path on the machine of whoever trained it
        folder = None
    if folder is None:
        return None, (
            f"no tokenizer: the configuration names {printable(name)}, which is neither beside the weights nor in the hub's"
            " cache; prompts can be typed as ids"
        )
    return find_tokenizer(folder), f"the tokenizer is {name} of the hub, which the configuration names"


def _notes(file_axes: Axes, arch: Architecture, config: ModelConfig) -> list[str]:
    notes = [f"stored transposed: {' '.join(sorted(file_axes.transposed))}"] if file_axes.transposed else []
    if config.norm != "none" and not arch.gains:
        notes.append("norms without gain and bias: folded into the weights before they were saved")
    if arch.by_layer:
        notes.append("queries of layer i divided by i + 1 (scale_attn_by_inverse_layer_idx)")
    if config.gated and "mlp" in config.biases:
        notes.append("b_in of the gated MLP moved into b_out")
    return notes


def _claims(checkpoint: Checkpoint) -> bool:
    return not checkpoint.model_type and "format" not in checkpoint.config and names_of(checkpoint.tensors) is not None


FAMILY = Family("transformer_lens", "a TransformerLens state dict", _claims, _load, last=True)
