"""The architectures of llama.cpp that have a family here: their configuration, the names of their tensors, what is undone.

`general.architecture` names one. A name of a tensor stands without `.weight` or `.bias`, `{i}` for the layer and `{e}` for an
expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.gguf.tensors import GgufTensors
from circuitlab.model.loading.gguf.configuration import Config, assumed_window, common, rms_eps, rotary
from circuitlab.model.loading.gguf.said import Said
from circuitlab.model.loading.gguf.undoing import BLOCK, From, Heads, Step, halves, rows_of

Names = Mapping[str, str]

_ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_AT = "model.layers.{i}."
_ATTENTION = {
    "attn_q": _AT + "self_attn.q_proj",
    "attn_k": _AT + "self_attn.k_proj",
    "attn_v": _AT + "self_attn.v_proj",
    "attn_output": _AT + "self_attn.o_proj",
}
_MLP = {"ffn_gate": _AT + "mlp.gate_proj", "ffn_up": _AT + "mlp.up_proj", "ffn_down": _AT + "mlp.down_proj"}
_NORMS = {"attn_norm": _AT + "input_layernorm", "ffn_norm": _AT + "post_attention_layernorm"}
LLAMA: Names = {**_ENDS, **_ATTENTION, **_MLP, **_NORMS}
_HALVES: Mapping[str, Step] = {"attn_q": halves("q"), "attn_k": halves("k")}
# tensors from which the configuration is read, and tables of angles
_READ = ("rope_freqs", "rope_factors_short", "rope_factors_long", "attn_rot_embd")


@dataclass(frozen=True)
class Architecture:
    """One architecture: its configuration in Hugging Face's form, where its tensors go, and the steps by name of the tensor."""

    config: Callable[[Said, GgufTensors], Config]
    names: Names | Callable[[Said], Names]
    steps: Mapping[str, Step] = field(default_factory=dict)


def _llama(said: Said, tensors: GgufTensors) -> Config:
    config = common(said, rms_norm_eps=rms_eps(said), hidden_act="silu", **rotary(said, tensors))
    if window := assumed_window(said):
        return {**config, "model_type": "mistral", "sliding_window": window}
    return {**config, "model_type": "llama"}


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(_llama, LLAMA, _HALVES),
}


def architecture_of(said: Said) -> Architecture:
    """Raises `BadModel` for one that has no family here."""
    found = ARCHITECTURES.get(said.architecture)
    if found is None:
        raise BadModel(
            "The architecture of this GGUF file is not supported.",
            expected=" ".join(sorted(ARCHITECTURES)),
            got=quoted(said.architecture) if said.architecture else "no general.architecture",
            remedy="Open a model of one of these, or the Hugging Face folder that this file was converted from.",
        )
    return found


def table_of(said: Said, architecture: Architecture) -> dict[str, From]:
    """Hugging Face's name of each tensor -> where it lies in the file. Raises `BadModel` for a tensor that has no place."""
    names = architecture.names if isinstance(architecture.names, Mapping) else architecture.names(said)
    table: dict[str, From] = {}
    for name, packed in said.header.tensors.items():
        match = BLOCK.fullmatch(name)
        i, inner = (int(match[1]), match[2]) if match else (0, name)
        stem, _, ending = inner.rpartition(".")
        if stem in _READ or (match and i >= said.n_layers):
            continue
        for target, where in _targets(stem, names, architecture.steps, From(name), packed.shape):
            if (full := f"{target.replace('{i}', str(i))}.{ending}") in table:
                raise BadModel(f"{said.header.name} has a tensor twice.", expected=f"one of {full}", got=name)
            table[full] = where
    return table


def _targets(stem: str, names: Names, steps: Mapping[str, Step], where: From, shape: tuple[int, ...]) -> list[tuple[str, From]]:
    """(name with {i}, where it lies) of what one tensor of the file holds."""
    own = lambda stem: (steps[stem],) if stem in steps else ()
    if stem == "attn_qkv" and stem not in names and "attn_q" in names:
        return [(names[f"attn_{x}"], where.then(rows_of(x), *own(f"attn_{x}"))) for x in "qkv"]
    if stem not in names:
        raise BadModel(
            f"The tensor {where.name} has no place in this architecture.",
            expected="tensors of the architecture that the file names",
            got=f"{where.name}, {shape}",
            remedy="The file may be of a newer variant: open the Hugging Face folder that it was converted from.",
        )
    target, where = names[stem], where.then(*own(stem))
    if "{e}" in target:
        n = shape[0] if shape else 0
        return [(target.replace("{e}", str(e)), From(where.name, where.steps, e)) for e in range(n)]
    return [(target, where)]


def heads_of(config: Mapping[str, Any], d_head: int) -> Heads:
    """The heads that a configuration names."""
    n = next(config[name] for name in ("num_attention_heads", "n_head", "n_heads") if name in config)
    kv = next((config[name] for name in ("num_key_value_heads", "num_kv_heads") if config.get(name)), n)
    if not n or not kv or n % kv:
        raise BadModel("Query heads do not divide into key-value groups.", expected="a multiple", got=f"{n} and {kv}")
    return Heads(n, kv, d_head)
