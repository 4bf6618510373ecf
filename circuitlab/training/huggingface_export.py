"""A trained model as a Hugging Face GPT-2 directory (Radford et al. 2019), which both `transformers` and CircuitLab open.

`Conv1D` weights are [in, out], our row-vector form; `c_attn` [d_model, 3 d_model] holds queries, keys and values of all heads
side by side; the unembedding is the transposed embedding where the two are tied. The tokenizer puts BOS (id 0) in front of a
text, as training did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from circuitlab.disk.files import whole
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput
from circuitlab.model.block import flat_in, flat_out
from circuitlab.model.config import ModelConfig
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.files import beside, write_whole

_ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "quick_gelu")  # GPT-2's configuration has the same names
_BIASES = {"q", "k", "v", "o", "mlp"}


def why_not(c: ModelConfig) -> str:
    """Why a configuration cannot be written as a GPT-2, in words; "" where it can."""
    wrong = {
        f"positions {c.positions}, not learned": c.positions != "learned",
        f"norm {c.norm}, not layer": c.norm != "layer",
        f"norm_placement {c.norm_placement}, not pre": c.norm_placement != "pre",
        "no final norm": not c.final_norm,
        "no MLP": c.attention_only,
        f"activation {c.activation}": c.activation not in _ACTIVATIONS,
        "a gated MLP": c.gated,
        "mixtures of experts": c.experts is not None,
        "parallel blocks": c.parallel,
        "smeared keys": c.smeared_keys,
        "norms of queries and keys": c.qk_norm != "none",
        "fewer key-value heads than heads": c.group != 1,
        "windows": any(c.windows),
        "soft caps": bool(c.score_soft_cap or c.logit_soft_cap),
        "a scaled embedding": c.embed_scale != 1,
        f"heads of {c.d_head} that do not make up d_model {c.d_model}": c.n_heads * c.d_head != c.d_model,
        f"score_scale {c.score_scale:g}": not math.isclose(c.score_scale, 1 / math.sqrt(c.d_head)),
        "an output vocabulary of its own": c.d_vocab_out != c.d_vocab,
        f"biases {' '.join(c.biases) or 'none'}, not q k v o mlp": set(c.biases) != _BIASES,
    }
    return ", ".join(reason for reason, is_so in wrong.items() if is_so)


def gpt2_config(c: ModelConfig) -> JsonDict:
    """`config.json`. Raises `BadInput` for a configuration that GPT-2 does not cover."""
    if reason := why_not(c):
        remedy = 'Leave out format = "gpt2" under [export] in the recipe, or change its [model].'
        raise BadInput("The model cannot be written as a GPT-2.", expected="GPT-2's architecture", got=reason, remedy=remedy)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": c.d_vocab,
        "n_positions": c.n_ctx,
        "n_embd": c.d_model,
        "n_layer": c.n_layers,
        "n_head": c.n_heads,
        "n_inner": c.d_mlp,
        "activation_function": c.activation,
        "layer_norm_epsilon": c.norm_eps,
        "scale_attn_weights": True,
        "tie_word_embeddings": c.tied,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": None,
        "torch_dtype": "float32",
    }


def gpt2_tensors(c: ModelConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Canonical tensors under GPT-2's names and in its layout, in their own dtype."""
    renamed = {"wte.weight": tensors["embed.W_E"], "wpe.weight": tensors["embed.W_pos"]}
    renamed |= {"ln_f.weight": tensors["unembed.norm.gain"], "ln_f.bias": tensors["unembed.norm.bias"]}
    for i in range(c.n_layers):
        ours = {n.removeprefix(f"layers.{i}."): value for n, value in tensors.items() if n.startswith(f"layers.{i}.")}
        renamed |= {f"h.{i}.{name}": value for name, value in _block(ours).items()}
    named = {f"transformer.{name}": value.contiguous() for name, value in renamed.items()}
    return named if c.tied else named | {"lm_head.weight": tensors["unembed.W_U"].T.contiguous()}


def _block(ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        "ln_1.weight": ours["attn_norm.gain"],
        "ln_1.bias": ours["attn_norm.bias"],
        "attn.c_attn.weight": torch.cat([flat_in(ours[n]) for n in ("W_Q", "W_K", "W_V")], dim=1),
        "attn.c_attn.bias": torch.cat([ours[n].flatten() for n in ("b_Q", "b_K", "b_V")]),
        "attn.c_proj.weight": flat_out(ours["W_O"]),
        "attn.c_proj.bias": ours["b_O"],
        "ln_2.weight": ours["mlp_norm.gain"],
        "ln_2.bias": ours["mlp_norm.bias"],
        "mlp.c_fc.weight": ours["mlp.W_in"],
        "mlp.c_fc.bias": ours["mlp.b_in"],
        "mlp.c_proj.weight": ours["mlp.W_out"],
        "mlp.c_proj.bias": ours["mlp.b_out"],
    }


def save_gpt2(path: Path, c: ModelConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer, card: str = "") -> None:
    """Write the directory; files are replaced whole. Raises `BadInput`, and `BadMachine` or OSError of a disk."""
    config = gpt2_config(c)
    path.mkdir(parents=True, exist_ok=True)
    _save(path / "model.safetensors", gpt2_tensors(c, tensors))
    _json(path / "config.json", config)
    _json(path / "generation_config.json", {"bos_token_id": 0, "eos_token_id": None})
    _json(path / "tokenizer.json", _with_bos(json.loads(tokenizer.file_text()), tokenizer))
    bos = tokenizer.raw(0)
    _json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "add_bos_token": True,
            "model_max_length": c.n_ctx,
            "clean_up_tokenization_spaces": False,
        },
    )
    _json(path / "special_tokens_map.json", {"bos_token": bos})
    if card:
        write_whole(path / "card.md", card.encode())


def save_gpt2_checkpoint(source: Path, path: Path, c: ModelConfig) -> None:
    """One checkpoint of a run (canonical names) under the names of the exported weights, in its own dtype."""
    _save(path, gpt2_tensors(c, load_file(str(source))))


def _with_bos(tokenizer: dict[str, object], words: Tokenizer) -> JsonDict:
    """A `tokenizer.json` that puts BOS in front of every text."""
    bos = words.raw(0)
    first, a, b = {"SpecialToken": {"id": bos, "type_id": 0}}, "A", "B"
    part = lambda which, kind: {"Sequence": {"id": which, "type_id": kind}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, part(a, 0)],
        "pair": [first, part(a, 0), part(b, 1)],
        "special_tokens": {bos: {"id": bos, "ids": [0], "tokens": [bos]}},
    }
    return tokenizer


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    with whole(path, fresh=beside(path)) as fresh:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, str(fresh), {"format": "pt"})


def _json(path: Path, value: object) -> None:
    indent = None if path.name == "tokenizer.json" else 1
    write_whole(path, (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode())
