"""The architectures of llama.cpp that have a family here: their configuration, the names of their tensors, what is undone.

`general.architecture` names one. A name of a tensor stands without `.weight` or `.bias`, `{i}` for the layer and `{e}` for an
expert.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.gguf.tensors import GgufTensors
from circuitlab.model.loading.gguf import configurations as of
from circuitlab.model.loading.gguf.configuration import Config
from circuitlab.model.loading.gguf.said import Said
from circuitlab.model.loading.gguf.undoing import (
    BLOCK,
    From,
    Heads,
    Step,
    as_row,
    by_head,
    halves,
    minus_one,
    rows_of,
    transposed,
)

Names = Mapping[str, str]
_DAMAGED = "The file is damaged or of a newer variant: fetch it again, or open the Hugging Face folder it was converted from."

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
_ONE_EXPERT = re.compile(r"(ffn_(?:gate|up|down))\.(\d{1,5})")
_READ = ("rope_freqs", "rope_factors_short", "rope_factors_long", "attn_rot_embd")


@dataclass(frozen=True)
class Architecture:
    """One architecture: its configuration in Hugging Face's form, where its tensors go, and the steps by name of the tensor."""

    config: Callable[[Said, GgufTensors], Config]
    names: Names | Callable[[Said], Names]
    steps: Mapping[str, Step] = field(default_factory=dict)


_NEOX: Names = {
    "token_embd": "gpt_neox.embed_in",
    "output_norm": "gpt_neox.final_layer_norm",
    "output": "embed_out",
    "attn_norm": "gpt_neox.layers.{i}.input_layernorm",
    "attn_qkv": "gpt_neox.layers.{i}.attention.query_key_value",
    "attn_output": "gpt_neox.layers.{i}.attention.dense",
    "ffn_norm": "gpt_neox.layers.{i}.post_attention_layernorm",
    "ffn_up": "gpt_neox.layers.{i}.mlp.dense_h_to_4h",
    "ffn_down": "gpt_neox.layers.{i}.mlp.dense_4h_to_h",
}
_BLOOM: Names = {
    "token_embd": "transformer.word_embeddings",
    "token_embd_norm": "transformer.word_embeddings_layernorm",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "transformer.h.{i}.input_layernorm",
    "attn_qkv": "transformer.h.{i}.self_attention.query_key_value",
    "attn_output": "transformer.h.{i}.self_attention.dense",
    "ffn_norm": "transformer.h.{i}.post_attention_layernorm",
    "ffn_up": "transformer.h.{i}.mlp.dense_h_to_4h",
    "ffn_down": "transformer.h.{i}.mlp.dense_4h_to_h",
}
_GPT2: Names = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "transformer.h.{i}.ln_1",
    "attn_qkv": "transformer.h.{i}.attn.c_attn",
    "attn_output": "transformer.h.{i}.attn.c_proj",
    "ffn_norm": "transformer.h.{i}.ln_2",
    "ffn_up": "transformer.h.{i}.mlp.c_fc",
    "ffn_down": "transformer.h.{i}.mlp.c_proj",
}
_MPT: Names = {
    "token_embd": "transformer.wte",
    "output_norm": "transformer.norm_f",
    "output": "lm_head",
    "attn_norm": "transformer.blocks.{i}.norm_1",
    "attn_qkv": "transformer.blocks.{i}.attn.Wqkv",
    "attn_output": "transformer.blocks.{i}.attn.out_proj",
    "ffn_norm": "transformer.blocks.{i}.norm_2",
    "ffn_up": "transformer.blocks.{i}.ffn.up_proj",
    "ffn_down": "transformer.blocks.{i}.ffn.down_proj",
}
_EXAONE: Names = {
    "token_embd": "transformer.wte",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "transformer.h.{i}.ln_1",
    "attn_q": "transformer.h.{i}.attn.attention.q_proj",
    "attn_k": "transformer.h.{i}.attn.attention.k_proj",
    "attn_v": "transformer.h.{i}.attn.attention.v_proj",
    "attn_output": "transformer.h.{i}.attn.attention.out_proj",
    "ffn_norm": "transformer.h.{i}.ln_2",
    "ffn_gate": "transformer.h.{i}.mlp.c_fc_0",
    "ffn_up": "transformer.h.{i}.mlp.c_fc_1",
    "ffn_down": "transformer.h.{i}.mlp.c_proj",
}
_QK_NORMS = {"attn_q_norm": _AT + "self_attn.q_norm", "attn_k_norm": _AT + "self_attn.k_norm"}
_PLAIN_MLP = {"ffn_up": _AT + "mlp.c_fc", "ffn_down": _AT + "mlp.c_proj"}
_FUSED_MLP = {"ffn_up": _AT + "mlp.gate_up_proj", "ffn_down": _AT + "mlp.down_proj"}
_AFTER = {"post_attention_norm": _AT + "post_attention_layernorm", "post_ffw_norm": _AT + "post_feedforward_layernorm"}
_AROUND = {
    "attn_norm": _AT + "input_layernorm",
    "post_attention_norm": _AT + "post_attention_layernorm",
    "ffn_norm": _AT + "pre_feedforward_layernorm",
    "post_ffw_norm": _AT + "post_feedforward_layernorm",
}
_GLM4_NORMS = {
    "attn_norm": _AT + "input_layernorm",
    "post_attention_norm": _AT + "post_self_attn_layernorm",
    "ffn_norm": _AT + "post_attention_layernorm",
    "post_ffw_norm": _AT + "post_mlp_layernorm",
}
_PHI: Names = {
    **_ENDS,
    **_ATTENTION,
    "output_norm": "model.final_layernorm",
    "attn_output": _AT + "self_attn.dense",
    "attn_norm": _AT + "input_layernorm",
    "ffn_up": _AT + "mlp.fc1",
    "ffn_down": _AT + "mlp.fc2",
}
_PHI3: Names = {
    **_ENDS,
    **_NORMS,
    **_FUSED_MLP,
    "attn_qkv": _AT + "self_attn.qkv_proj",
    "attn_output": _AT + "self_attn.o_proj",
}
_STABLELM: Names = {
    **LLAMA,
    "attn_q_norm": _AT + "self_attn.q_layernorm.norms.{e}",
    "attn_k_norm": _AT + "self_attn.k_layernorm.norms.{e}",
}
_GAINS: Mapping[str, Step] = dict.fromkeys(
    ("attn_norm", "ffn_norm", "output_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm"), minus_one
)


def _experts(at: str, gate: str, up: str, down: str) -> Names:
    """Llama's names with experts in place of the MLP."""
    of = f"{_AT}{at}.experts.{{e}}."
    each = {"ffn_gate_exps": of + gate, "ffn_up_exps": of + up, "ffn_down_exps": of + down}
    return {**_ENDS, **_ATTENTION, **_NORMS, **each, "ffn_gate_inp": f"{_AT}{at}.gate"}


_MIXTRAL = _experts("block_sparse_moe", "w1", "w3", "w2")
_MOE = {**_experts("mlp", "gate_proj", "up_proj", "down_proj"), **_QK_NORMS}
_SHARED = {
    "ffn_gate_shexp": _AT + "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": _AT + "mlp.shared_expert.up_proj",
    "ffn_down_shexp": _AT + "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": _AT + "mlp.shared_expert_gate",
}


def _falcon_names(said: Said) -> Names:
    """BLOOM's names but for the norms: with two in a block, one is for the MLP and one for attention."""
    names = {name: where for name, where in _BLOOM.items() if name not in ("token_embd_norm", "ffn_norm")}
    if said.tensor("blk.0.attn_norm_2.weight"):
        return {**names, "attn_norm": "transformer.h.{i}.ln_mlp", "attn_norm_2": "transformer.h.{i}.ln_attn"}
    return names


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(of.llama, lambda said: _MIXTRAL if said.size("expert_count", 0) else LLAMA, _HALVES),
    "granite": Architecture(of.granite, LLAMA, _HALVES),
    "smollm3": Architecture(of.smollm3, LLAMA, _HALVES),
    "olmo": Architecture(of.olmo, LLAMA, _HALVES),
    "olmo2": Architecture(of.olmo2, {**_ENDS, **_ATTENTION, **_MLP, **_QK_NORMS, **_AFTER}),
    "olmoe": Architecture(of.olmoe, _MOE),
    "qwen2": Architecture(of.qwen2, LLAMA),
    "qwen3": Architecture(of.qwen3, {**LLAMA, **_QK_NORMS}),
    "qwen2moe": Architecture(of.qwen2moe, {**_MOE, **_SHARED}, {"ffn_gate_inp_shexp": as_row}),
    "qwen3moe": Architecture(of.qwen3moe, _MOE),
    "gemma": Architecture(of.gemma, LLAMA, _GAINS),
    "gemma2": Architecture(of.gemma2, {**_ENDS, **_ATTENTION, **_MLP, **_AROUND}, _GAINS),
    "gemma3": Architecture(of.gemma3, {**_ENDS, **_ATTENTION, **_MLP, **_AROUND, **_QK_NORMS}, _GAINS),
    "gpt2": Architecture(of.gpt2, _GPT2, dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), transposed)),
    "starcoder": Architecture(of.starcoder, _GPT2),
    "starcoder2": Architecture(of.starcoder2, {**_ENDS, **_ATTENTION, **_NORMS, **_PLAIN_MLP}),
    "gptneox": Architecture(of.gptneox, _NEOX, {"attn_qkv": by_head}),
    "bloom": Architecture(of.bloom, _BLOOM, {"attn_qkv": by_head}),
    "falcon": Architecture(of.falcon, _falcon_names, {"attn_qkv": by_head}),
    "mpt": Architecture(of.mpt, _MPT),
    "phi2": Architecture(of.phi2, _PHI),
    "phi3": Architecture(of.phi3, _PHI3),
    "stablelm": Architecture(of.stablelm, _STABLELM),
    "command-r": Architecture(of.command_r, {**LLAMA, **_QK_NORMS}),
    "cohere2": Architecture(of.cohere2, LLAMA),
    "nemotron": Architecture(of.nemotron, LLAMA, dict.fromkeys(("attn_norm", "ffn_norm", "output_norm"), minus_one)),
    "exaone": Architecture(of.exaone, _EXAONE),
    "exaone4": Architecture(of.exaone4, {**_ENDS, **_ATTENTION, **_MLP, **_QK_NORMS, **_AFTER}),
    "chatglm": Architecture(of.chatglm, {**_ENDS, **_ATTENTION, **_NORMS, **_FUSED_MLP}),
    "glm4": Architecture(of.glm4, {**_ENDS, **_ATTENTION, **_FUSED_MLP, **_GLM4_NORMS}),
}


def architecture_of(said: Said) -> Architecture:
    """Raises `BadModel` for one that has no family here."""
    result = ARCHITECTURES.get(said.architecture)
    if result is None:
        raise BadModel(
            "The architecture of this GGUF file is not supported.",
            expected=" ".join(sorted(ARCHITECTURES)),
            got=quoted(said.architecture) if said.architecture else "no general.architecture",
            remedy="Open a model of one of these, or the Hugging Face folder that this file was converted from.",
        )
    return result


def table_of(said: Said, architecture: Architecture) -> dict[str, From]:
    """Hugging Face's name of each tensor -> where it lies in the file. Raises `BadModel` for a tensor that has no place."""
    names = architecture.names if isinstance(architecture.names, Mapping) else architecture.names(said)
    table: dict[str, From] = {}
    for name, packed in said.header.tensors.items():
        match = BLOCK.fullmatch(name)
        i, inner = (int(match[1]), match[2]) if match else (0, name)
        stem, _, ending = inner.rpartition(".")
        if stem in _READ or (match and said.n_layers <= i < said.size("block_count")):  # blocks that predict further tokens
            continue
        if match and i >= said.n_layers:
            what = f"The tensor {name} is of a layer that the model does not have."
            raise BadModel(what, expected=number_of(said.n_layers, "layer"), got=f"layer {i}", remedy=_DAMAGED)
        applied = {} if ending == "bias" and architecture.steps.get(stem) is minus_one else architecture.steps
        for target, where in _targets(stem, names, applied, From(name), packed.shape):
            if (full := f"{target.replace('{i}', str(i))}.{ending}") in table:
                raise BadModel(f"{said.header.name} has a tensor twice.", expected=f"one of {full}", got=name)
            table[full] = where
    return table


def _targets(stem: str, names: Names, steps: Mapping[str, Step], where: From, shape: tuple[int, ...]) -> list[tuple[str, From]]:
    """(name with {i}, where it lies) of what one tensor of the file holds."""
    own = lambda stem: (steps[stem],) if stem in steps else ()
    if (one := _ONE_EXPERT.fullmatch(stem)) and f"{one[1]}_exps" in names:  # files of the first months of experts
        return [(names[f"{one[1]}_exps"].replace("{e}", one[2]), where)]
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


def heads_of(config: JsonObject, d_head: int) -> Heads:
    """The heads that a configuration names."""
    n = next(config[name] for name in ("num_attention_heads", "n_head", "n_heads") if name in config)
    kv = next((config[name] for name in ("num_key_value_heads", "num_kv_heads") if config.get(name)), n)
    if not n or not kv or n % kv:
        raise BadModel("Query heads do not divide into key-value groups.", expected="a multiple", got=f"{n} and {kv}")
    return Heads(n, kv, d_head)
