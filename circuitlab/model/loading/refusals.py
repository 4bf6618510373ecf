"""Models that cannot be opened, and why: kinds that differ in what a model is, recognised from `config.json` alone.

Each refusal is one entry of a table: what the model is, why it is not opened, and what to do instead. The table is consulted
before any weight is read, so that the error gives the reason and not merely the first tensor that has no place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.files.whole_file import shown
from circuitlab.model.records.series import series_of


@dataclass(frozen=True)
class Refusal:
    """One kind of model that is not opened: its `model_types` at Hugging Face, or a test of other fields (`recognises`)."""

    what: str
    why: str
    instead: str
    model_types: frozenset[str]
    recognises: Callable[[Mapping[str, Any]], bool] = lambda config: False


_SUPPORTED_EXPERTS = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe")  # the mixtures of experts that have a family


def _is_mixture(config: Mapping[str, Any]) -> bool:
    if config.get("model_type") in _SUPPORTED_EXPERTS:
        return False
    counts = (config.get(n) for n in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"))
    return any(isinstance(n, int) and n > 1 for n in counts)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


TABLE: tuple[Refusal, ...] = (
    Refusal(
        "This is a mixture of experts.",
        "one MLP for all tokens, or a router as in Mixtral, Qwen 2 and 3 MoE and OLMoE; this one's differs, or is not known here",
        "Open one of those, or a dense model of the same family. Attention alone can be studied: import its tensors with a map.",
        _names(
            "qwen3_next flex_olmo deepseek_v2 deepseek_v3 dbrx phimoe gpt_oss granitemoe "
            "jetmoe llama4 llama4_text ernie4_5_moe glm4_moe minimax nllb_moe switch_transformers dots1 hunyuan_v1_moe"
        ),
        _is_mixture,
    ),
    Refusal(
        "This is an encoder-decoder.",
        "one stream in which each token sees those before it; here a second stack reads another text through cross-attention",
        "Open a decoder-only model, for instance of the GPT-2, Llama or Gemma families.",
        _names(
            "t5 mt5 umt5 longt5 bart mbart pegasus marian m2m_100 led blenderbot prophetnet fsmt whisper t5gemma "
            "bigbird_pegasus"
        ),
        lambda config: config.get("is_encoder_decoder") is True,
    ),
    Refusal(
        "This is an encoder.",
        "a decoder; here tokens also see those after them, so that no next token is predicted",
        "Open a decoder-only model. The weights alone can be imported with a map, but on text they would run as another model.",
        _names(
            "bert roberta distilbert albert electra deberta deberta-v2 xlm-roberta xlm-roberta-xl camembert mpnet modernbert "
            "nomic_bert eurobert funnel longformer big_bird esm ernie layoutlm mobilebert squeezebert xlnet"
        ),
        lambda config: config.get("use_bidirectional_attention") is True,
    ),
    Refusal(
        "This is a state space or recurrent model.",
        "attention in every block; here information moves through a recurrent state, which has no pattern and no QK circuit",
        "Open a model with attention in every block: of this one the panels would show a part as if it were the whole.",
        _names(
            "mamba mamba2 falcon_mamba rwkv jamba zamba zamba2 bamba recurrent_gemma xlstm nemotron_h granitemoehybrid lfm2 "
            "falcon_h1 olmo_hybrid kimi_linear retnet hyena minimax_m1"
        ),
    ),
    Refusal(
        "This model reads or generates images or sound.",
        "text alone; here part of the residual stream comes from an image or audio encoder",
        "Open the text model it was built from. The text part of Gemma 3 can be opened by itself.",
        _names(
            "vit clip siglip siglip2 dinov2 dinov3_vit deit swin beit blip blip-2 llava llava_next llava_onevision "
            "qwen2_vl qwen2_5_vl qwen3_vl paligemma mllama idefics idefics2 idefics3 smolvlm fuyu kosmos-2 mistral3 "
            "gemma3n gemma4 wav2vec2 hubert musicgen internvl phi4_multimodal"
        ),
        lambda config: config.get("model_type") != "gemma3" and isinstance(config.get("vision_config"), Mapping),
    ),
)  # fmt: skip


def refuse_unsupported(config: Mapping[str, Any]) -> None:
    """Raise `BadModel` for a model of a kind, or stored in a form, that is not opened."""
    kind = config.get("model_type")
    named = str(kind)[:60] if isinstance(kind, str) else "none stated"
    for refusal in TABLE:
        if (isinstance(kind, str) and kind in refusal.model_types) or refusal.recognises(config):
            raise BadModel(refusal.what, expected=refusal.why, got=f"model_type {named!r}", remedy=refusal.instead)
    stored = config.get("quantization_config")
    if stored:
        method = stored.get("quant_method") or stored.get("quant_algo") if isinstance(stored, Mapping) else stored
        raise BadModel(
            "The weights are quantised.",
            expected="tensors of float32, float16 or bfloat16: packed integers are not weights until they are unpacked",
            got=f"quantization_config, method {str(method or 'not stated')[:40]!r}",
            remedy="Open the checkpoint it was made from, or dequantise it with the library that made it and save that.",
        )


def refuse_parts(path: Path) -> None:
    """Raise `BadModel`, which says where the model is, for one checkpoint of a series or the folder of a training run."""
    folder = path.parent.parent
    step = next((step for step, file in series_of(folder) if file == path), None)
    if step is not None:
        raise BadModel(
            "This is one checkpoint of a model.",
            expected="the model's folder, or a weight file that is a model by itself",
            got=f"step {step} of {shown(folder)}",
            remedy=f"Open {shown(folder)} and choose step {step}: --checkpoint {step}, or the slider of the window.",
        )
    if (path / "state" / "run.json").is_file():
        finished = (path / "model" / "config.json").is_file()
        otherwise = "Training has not ended: resume it, or watch it in File → Train a model…; the model is written at its end."
        raise BadModel(
            "This is the folder of a training run.",
            expected=f"a model: {shown(path / 'model')}",
            got=shown(path),
            remedy=f"Open {shown(path / 'model')}." if finished else otherwise,
        )
