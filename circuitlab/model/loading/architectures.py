"""What a `config.json` calls its architecture, brought to the name and fields of today.

Files of transformers 1 and 2 state `architectures` and no `model_type`. Falcon and StableLM came with code of their own before
they were part of transformers, and called themselves and some fields otherwise; the tensors are the same (transformers'
`convert_custom_code_checkpoint.py`; `modeling_stablelm_epoch.py` beside the files of Stability AI).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.loading.refusals import TABLE
from circuitlab.model.loading.rotary_scaling import OF_GGUF

_OPENED = (
    "gpt2 openai-gpt gpt_neo gpt_neox gptj gpt_bigcode opt bloom falcon mpt llama mistral mixtral qwen2 qwen3 qwen2_moe "
    "qwen3_moe gemma gemma2 phi phi3 olmo olmo2 olmo3 olmoe stablelm smollm3 granite starcoder2 nemotron glm glm4 exaone exaone4 "
    "cohere cohere2"
).split()
_CLASS = re.compile(r"(?P<family>[A-Za-z0-9_]{1,60}?)(?P<head>LMHeadModel|DoubleHeadsModel|For[A-Z][A-Za-z]{1,60}|Model)")
_CLASSIFIERS = ("Classification", "QuestionAnswering", "MultipleChoice", "RewardModel")
_FALCON = {"n_head": "num_attention_heads", "n_layer": "num_hidden_layers", "n_head_kv": "num_kv_heads"}
_STABLELM = {"norm_eps": "layer_norm_eps", "rope_pct": "partial_rotary_factor"}


def of_today(config: Mapping[str, object]) -> tuple[JsonObject, tuple[str, ...]]:
    """The configuration under the name and with the fields that its family has today, and notes on what was read otherwise.

    Raises `BadModel` for an older form that a family does not cover.
    """
    config = _stated(config)
    named, name = _class_of(config)
    notes: tuple[str, ...] = ()
    if config.get("model_type") is None and named is not None:
        kind = _kinds().get(_squashed(named["family"]))
        if kind is not None:
            config = {**config, "model_type": kind}
            notes = (f"config.json states no model_type: {kind}, as its architecture is {name}",)
    kind = config.get("model_type")
    if kind in ("RefinedWeb", "RefinedWebModel"):
        config, notes = _falcon(config), (f"model_type {kind}, an older name of Falcon: read as falcon",)
    elif kind == "stablelm_epoch":
        config, notes = _stablelm(config), ("model_type stablelm_epoch, an older name of StableLM: read as stablelm",)
    if named is not None and named["head"].endswith(_CLASSIFIERS):
        notes += (f"saved with another head ({name}), which is left out: the logits are those of its unembedding",)
    return config, notes


def _stated(config: Mapping[str, object]) -> JsonObject:
    """Without what only the reader of another format may say: in a folder it is a field that nobody reads."""
    own = {name: value for name, value in config.items() if name != OF_GGUF}
    inner = own.get("text_config")
    return {**own, "text_config": _stated(inner)} if isinstance(inner, Mapping) and OF_GGUF in inner else own


def _class_of(config: Mapping[str, object]) -> tuple[re.Match[str] | None, str]:
    """The class that a file names as its architecture, in its parts, and whole."""
    stated = config.get("architectures")
    name = stated[0] if isinstance(stated, list) and stated and isinstance(stated[0], str) else ""
    return _CLASS.fullmatch(name), name


def _kinds() -> dict[str, str]:
    """Model types by their squashed names: those that are opened, and those that are refused by name."""
    return {_squashed(kind): kind for kind in (*_OPENED, *(kind for refusal in TABLE for kind in sorted(refusal.model_types)))}


def _squashed(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _renamed(config: Mapping[str, object], kind: str, names: Mapping[str, str]) -> JsonDict:
    return {"model_type": kind} | {names.get(n, n): v for n, v in config.items() if n != "model_type"}


def _falcon(config: Mapping[str, object]) -> JsonDict:
    """Fields that are not stated have the values of the older code, which are not those of today."""
    older = {"multi_query": False, "parallel_attn": False, "bias": False, "alibi": False}
    return older | _renamed(config, "falcon", _FALCON) | {"new_decoder_architecture": config.get("n_head_kv") is not None}


def _stablelm(config: Mapping[str, object]) -> JsonDict:
    if config.get("rotary_scaling_factor", 1) != 1:
        raise BadModel(
            "The rotary angles of this StableLM are rescaled in a way that is not supported.",
            expected="rotary_scaling_factor 1",
            got=quoted(config["rotary_scaling_factor"]),
            remedy="Open the present files of the model, whose model_type is stablelm.",
        )
    return _renamed(config, "stablelm", _STABLELM)
