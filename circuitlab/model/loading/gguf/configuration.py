"""A Hugging Face configuration from what a GGUF file says: what all architectures have, rotary positions, windows.

Widths, biases and ties are taken from the tensors. What the format stores for no architecture, or not for this one, is an
assumption that the person may correct.
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel
from circuitlab.model.files.gguf.tensors import GgufTensors
from circuitlab.model.loading.gguf.said import Said
from circuitlab.model.loading.rotary_scaling import OF_GGUF

Config = JsonDict


def d_head(said: Said) -> int:
    """Columns of a head: stated, or the width divided by the heads. Raises `BadModel`."""
    if said.has("attention.key_length"):
        keys, values = said.size("attention.key_length"), said.size("attention.value_length", said.size("attention.key_length"))
        if keys != values or not 0 < keys <= 65_536:
            raise BadModel(
                "Keys and values of different widths are not supported." if keys != values else "Heads beyond any model.",
                expected="one width of at most 65,536 columns",
                got=f"{keys} and {values}",
            )
        return keys
    heads, width = said.size("attention.head_count"), said.size("embedding_length")
    if not heads or width % heads or not width:
        raise BadModel("The heads do not divide the width.", expected="a multiple of the heads", got=f"{width}, {heads}")
    return width // heads


def common(said: Said, **more: object) -> Config:
    """The fields of a decoder with RMSNorms, rotary positions and grouped heads, under Llama's names."""
    heads = said.size("attention.head_count")
    return {
        "hidden_size": said.size("embedding_length"),
        "num_hidden_layers": said.n_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": said.size("attention.head_count_kv", heads),
        "head_dim": d_head(said),
        "intermediate_size": _d_mlp(said),
        "vocab_size": said.rows("token_embd.weight"),
        "max_position_embeddings": said.size("context_length"),
        "tie_word_embeddings": not said.tensor("output.weight"),
        "attention_bias": any(said.tensor(f"blk.0.attn_{x}.bias") for x in ("q", "k", "v", "qkv", "output")),
        "mlp_bias": any(said.tensor(f"blk.0.ffn_{x}.bias") for x in ("gate", "up", "down")),
        **more,
    }


def _d_mlp(said: Said) -> int:
    if said.n_layers == 0:
        return said.size("feed_forward_length")
    return said.columns("blk.0.ffn_down.weight", "blk.0.ffn_down_exps.weight", "blk.0.ffn_down.0.weight")


def rms_eps(said: Said) -> float:
    """The number that is added to the mean square."""
    return said.number("attention.layer_norm_rms_epsilon")


def layer_eps(said: Said) -> float:
    """The number that is added to the variance."""
    return said.number("attention.layer_norm_epsilon")


def rotary(said: Said, tensors: GgufTensors, base: float = 10000.0, base_of: str = "llama.cpp's own") -> Config:
    """Base, rotated columns and rescaling; `base`: where the file states none, which is then assumed."""
    if said.has("rope.freq_base"):
        base = said.number("rope.freq_base")
    else:
        base = said.ask.number("rotary_base", base, f"{base_of}; the file states none")
    columns = d_head(said)
    fields: Config = {"rope_theta": base}
    added: Config = {}
    turning = said.size("rope.dimension_count", columns)
    if turning != columns:
        if not 2 <= turning <= columns:
            raise BadModel("The rotated columns do not fit the heads.", expected=f"2 to {columns}", got=str(turning))
        added["columns"] = turning
    if said.tensor("rope_freqs.weight"):
        added["divisors"] = tensors.tensor("rope_freqs.weight").flatten().tolist()
    else:
        fields |= _rescaling(said, tensors)
    return {**fields, OF_GGUF: added}


def _rescaling(said: Said, tensors: GgufTensors) -> Config:
    """The rescaling of the frequencies, under Hugging Face's names."""
    if said.tensor("rope_factors_short.weight"):
        return _longrope(said, tensors)
    kind = said.text(f"{said.architecture}.rope.scaling.type", "linear" if said.has("rope.scaling.factor") else "none")
    factor = said.number("rope.scaling.factor", said.number("rope.scale_linear", 0.0))
    if kind == "none" or not factor:
        return {}
    if not 0 < factor < 2**20:
        raise BadModel("The rotary rescaling is impossible.", expected="a factor above 0, below a million", got=f"{factor:g}")
    if kind == "linear":
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}} if factor != 1 else {}
    if kind != "yarn":
        raise BadModel("The rotary rescaling is not known.", expected="none, linear, yarn or longrope", got=kind[:60])
    scaling: Config = {"rope_type": "yarn", "factor": factor}
    if said.has("rope.scaling.original_context_length"):
        scaling["original_max_position_embeddings"] = said.size("rope.scaling.original_context_length")
    for ours, theirs in (("attention_factor", "attn_factor"), ("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if said.has(f"rope.scaling.{theirs}"):
            scaling[ours] = said.number(f"rope.scaling.{theirs}")
    return {"rope_scaling": scaling}


def _longrope(said: Said, tensors: GgufTensors) -> Config:
    short, long = (tensors.tensor(f"rope_factors_{n}.weight").flatten().tolist() for n in ("short", "long"))
    original = said.size("rope.scaling.original_context_length", said.size("context_length"))
    scaling: Config = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    if said.has("rope.scaling.attn_factor"):
        scaling["attention_factor"] = said.number("rope.scaling.attn_factor")
    return {"rope_scaling": scaling, "original_max_position_embeddings": original}


def assumed_window(said: Said, default: int = 0, why: str = "the format stores none for this architecture") -> int:
    """Positions that a destination sees, assumed: 0 means all."""
    text = said.ask.text("sliding_window", str(default) if default else "none", ("none",), why)
    if text == "none":
        return 0
    if not (text.isascii() and text.isdecimal() and int(text[:12]) > 0):
        raise BadModel("The assumption sliding_window cannot be read.", expected="none or a number of positions", got=text[:40])
    return int(text[:12])


def stated_window(said: Said) -> int | None:
    """Positions that a destination of a windowed layer sees; None without windows."""
    return said.size("attention.sliding_window", 0) or None


def window_pattern(said: Said, windowed: list[bool]) -> list[str]:
    """Hugging Face's kinds of layers: by the pattern that the file has, else as `windowed` says."""
    stored = said.value("attention.sliding_window_pattern")
    if stored is not None and not isinstance(stored, int | bool) and len(stored) >= said.n_layers:
        windowed = [bool(v) for v in stored[: said.n_layers]]
    elif isinstance(stored, int) and not isinstance(stored, bool) and stored > 0:
        windowed = [bool((i + 1) % stored) for i in range(said.n_layers)]
    return ["sliding_attention" if w else "full_attention" for w in windowed]


def without(config: Mapping[str, object], *names: str) -> Config:
    """The configuration without these fields."""
    return {name: value for name, value in config.items() if name not in names}
