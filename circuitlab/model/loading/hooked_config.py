"""The stated configuration of a TransformerLens model: the fields of its `HookedTransformerConfig`, as JSON or a dict.

Field names and defaults are those of TransformerLens 1 to 3, and of the configurations that its author's own models on the hub
have. A field that changes the architecture into an unsupported one is refused by name; fields about training, devices and hooks
are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import Activation, NormKind, Positions, Rotary
from circuitlab.model.loading.huggingface import flag, number, refuse, scale_note, size
from circuitlab.model.loading.rotary_scaling import rotary as rescaled

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "solu_ln": "solu_ln",
}
NORMS: dict[str | None, tuple[NormKind, bool]] = {
    "LN": ("layer", True),
    "LNPre": ("layer", False),
    "RMS": ("rms", True),
    "RMSPre": ("rms", False),
    None: ("none", False),
}
POSITIONS: dict[str, Positions] = {"standard": "learned", "shortformer": "shortformer", "rotary": "rotary", "alibi": "alibi"}
_REFUSED = {
    "num_experts": "A mixture of experts",
    "use_attention_sinks": "A sink in the softmax",
    "clip_qkv": "Clipping of queries, keys and values",
    "use_logn_attn": "Log-n scaling of queries",
    "use_dynamic_ntk_rope": "Rotary frequencies that change with the prompt's length",
    "load_in_4bit": "A quantised model",
}
_OLDER = {"normalization": "normalization_type", "ln_eps": "eps"}
_OLMO = ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM")


@dataclass(frozen=True)
class Architecture:
    """A model's architecture except for the sizes that its tensors show.

    `gains`: norms have stored gains (False: they are folded into the weights). `both`: norms before and after each sublayer.
    `embed_norm`: a norm of the embedding itself. `by_layer`: scores of layer i are divided by i + 1. `rotary_windowed`: the
    rotation in layers with a window, where it differs.
    """

    positions: Positions
    norm: NormKind
    gains: bool
    n_ctx: int = 0
    rotary: Rotary | None = None
    rotary_windowed: Rotary | None = None
    norm_eps: float = 1e-5
    both: bool = False
    embed_norm: bool = False
    activation: Activation = "gelu"
    parallel: bool = False
    qk_norm: NormKind = "none"
    score_scale: float = 0.0
    by_layer: bool = False
    score_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    windows: tuple[int, ...] = ()
    prepend_bos: bool = False
    notes: tuple[str, ...] = ()


def in_todays_words(config: JsonObject) -> JsonObject:
    """A configuration of the author's models (`normalization`, `ln_eps`, `shortformer_pos`) with the names of today beside them.

    Raises `BadModel` where both names are there and do not agree, or a value is of another type.
    """
    said = dict[str, object]()
    for old, new in _OLDER.items():
        if old in config:
            said[new] = config[old]
    if str(said.get("normalization_type", "")).lower() == "none":
        said["normalization_type"] = None
    if "shortformer_pos" in config:
        said["positional_embedding_type"] = "shortformer" if flag(config, "shortformer_pos", False) else "standard"
    for name, value in said.items():
        if name in config and config[name] != value:
            raise BadModel(
                f"The configuration says two things of {name}.",
                expected=f"the value that {name} has, {quoted(config[name], 40)}",
                got=f"{next((old for old, new in _OLDER.items() if new == name), 'shortformer_pos')} says {quoted(value, 40)}",
                remedy="Keep the one that the model was trained with, and remove the other from its JSON file.",
            )
    return {**config, **said}


def read_config(config: JsonObject, d_head: int, n_layers: int) -> Architecture:
    """The architecture that a `HookedTransformerConfig` states. Raises `BadModel` for an unsupported one."""
    _refuse(config)
    kind = _text_or_none(config, "normalization_type", "LN")
    if kind not in NORMS:
        raise BadModel("The norm is not known.", expected="LN LNPre RMS RMSPre or none", got=quoted(kind, 60))
    norm, gains = NORMS[kind]
    positions = POSITIONS[config.get("positional_embedding_type", "standard")]
    scale, scale_note = _score_scale(config, d_head)
    architecture = Architecture(
        positions=positions,
        norm=norm,
        gains=gains,
        n_ctx=size(config, "n_ctx"),
        norm_eps=number(config, "eps", 1e-5),
        both=flag(config, "use_normalization_before_and_after", False),
        embed_norm=flag(config, "post_embedding_ln", False),
        activation=_activation(config),
        parallel=flag(config, "parallel_attn_mlp", False),
        qk_norm="rms" if flag(config, "use_qk_norm", False) else "none",
        score_scale=scale,
        by_layer=flag(config, "scale_attn_by_inverse_layer_idx", False),
        score_soft_cap=max(0.0, number(config, "attn_scores_soft_cap", -1.0)),
        logit_soft_cap=max(0.0, number(config, "output_logits_soft_cap", -1.0)),
        windows=_windows(config, n_layers),
        prepend_bos=flag(config, "default_prepend_bos", True),
        notes=(scale_note,),
    )
    return _with_rotation(architecture, config, d_head) if positions == "rotary" else architecture


def _refuse(config: JsonObject) -> None:
    refuse(config, _REFUSED)
    positions = _text_or_none(config, "positional_embedding_type", "standard")
    if positions not in POSITIONS:
        raise BadModel("These positions are not supported.", expected=" ".join(POSITIONS), got=quoted(positions, 60))
    if config.get("attention_dir", "causal") != "causal":
        raise BadModel(
            "The model does not attend causally.", expected="attention_dir causal", got=quoted(config["attention_dir"], 60)
        )
    if flag(config, "final_rms", False) and config.get("normalization_type", "LN") in ("LN", "LNPre"):
        raise BadModel("The final norm is of another kind than the others.", expected="one kind of norm", got="final_rms")
    if config.get("original_architecture") in _OLMO:
        raise BadModel(
            "TransformerLens' form of this family is not supported.",
            expected="norms before the sublayers",
            got=str(config["original_architecture"]),
            remedy="Open its Hugging Face directory.",
        )


def _text_or_none(config: Mapping[str, object], name: str, default: str | None) -> str | None:
    """Text, or None. Raises `BadModel` for a value of another type."""
    value = config.get(name, default)
    if value is not None and not isinstance(value, str):
        raise BadModel(f"The configuration's {name} is not text.", expected="text", got=quoted(value, 60))
    return value


def _activation(config: Mapping[str, object]) -> Activation:
    if flag(config, "attn_only", False):
        return "gelu"  # not used: no MLPs
    name = _text_or_none(config, "act_fn", None)
    if name not in ACTIVATIONS or (name == "solu_ln" and config.get("gated_mlp")):
        raise BadModel("The activation is not known.", expected=" ".join(ACTIVATIONS), got=quoted(name))
    return ACTIVATIONS[name]


def _score_scale(config: Mapping[str, object], d_head: int) -> tuple[float, str]:
    """What `q·k` is multiplied by, before any division by layer, and the note about it."""
    if not flag(config, "use_attn_scale", True):
        return 1.0, scale_note(1.0, d_head, "use_attn_scale is off")
    divisor = number(config, "attn_scale", -1.0)
    if divisor == 0:
        raise BadModel("The configuration's attn_scale divides by zero.", expected="a number that is not 0", got="0")
    scale = 1 / divisor if divisor > 0 else 1 / math.sqrt(d_head)
    return scale, scale_note(scale, d_head, "from attn_scale" if divisor > 0 else "TransformerLens' default")


def _windows(config: Mapping[str, object], n_layers: int) -> tuple[int, ...]:
    """[layer] positions that a destination sees, 0 for all; () where attention is never local."""
    if not flag(config, "use_local_attn", False):
        return ()
    kinds, width = config.get("attn_types"), size(config, "window_size")
    if not isinstance(kinds, list | tuple) or len(kinds) != n_layers or any(k not in ("local", "global") for k in kinds):
        raise BadModel(
            "The configuration's attn_types cannot be read.", expected=f"local or global, {n_layers} times", got=quoted(kinds)
        )
    return tuple(width if kind == "local" else 0 for kind in kinds)


def _with_rotation(architecture: Architecture, config: Mapping[str, object], d_head: int) -> Architecture:
    """The architecture with its rotation, which may differ in layers with a window."""
    dims = size(config, "rotary_dim", d_head)
    pairs = "interleaved" if flag(config, "rotary_adjacent_pairs", False) else "half"
    base, factor = number(config, "rotary_base", 10000.0), number(config, "rotary_scaling_factor", 1.0)
    plain = Rotary(base=base, pairs=pairs, dims=0 if dims == d_head else dims)
    local = config.get("rotary_base_local")
    windowed = None if local is None else replace(plain, base=number(config, "rotary_base_local"))
    stated: JsonDict = {"rope_theta": base}
    if flag(config, "use_NTK_by_parts_rope", False):
        low, high = number(config, "NTK_by_parts_low_freq_factor", 1.0), number(config, "NTK_by_parts_high_freq_factor", 4.0)
        stated |= {"rope_type": "llama3", "factor": number(config, "NTK_by_parts_factor", 8.0)}
        stated |= {"low_freq_factor": low, "high_freq_factor": high}
        stated |= {"original_max_position_embeddings": size(config, "NTK_original_ctx_len", 8192)}
    elif flag(config, "use_yarn_rope", False):
        refuse(config, {"use_yarn_rope": "YaRN in TransformerLens' form"})
    elif factor != 1.0:
        stated |= {"rope_type": "linear", "factor": factor}
        windowed = windowed or (plain if architecture.windows else None)  # layers with a window are not rescaled
    if "rope_type" not in stated:
        return replace(architecture, rotary=plain, rotary_windowed=windowed)
    rescaled_rotary, notes = rescaled({"rope_parameters": stated}, dims)
    return replace(
        architecture,
        rotary=replace(plain, theta=rescaled_rotary.theta),
        rotary_windowed=windowed,
        notes=(*architecture.notes, *notes),
    )
