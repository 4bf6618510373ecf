"""Models that cannot be opened, and why: kinds that differ in what a model is, recognised from `config.json` alone.

Each refusal is one entry of a table: what the model is, why it is not opened, and what to do instead. The table is consulted
before any weight is read, so that the error gives the reason and not merely the first tensor that has no place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.json_types import JsonObject
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
    recognises: Callable[[JsonObject], bool] = lambda config: False


_SUPPORTED_EXPERTS = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe")  # the mixtures of experts that have a family


def _is_mixture(config: Mapping[str, object]) -> bool:
    if config.get("model_type") in _SUPPORTED_EXPERTS or config.get("use_moe") is False:
        return False
    counts = (config.get(n) for n in ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"))
    return any(isinstance(n, int) and n > 1 for n in counts)


_SENSES = (
    "vision_config audio_config speech_config visual vision_cfg vision_tower mm_vision_tower img_processor mm_audio_tower "
    "audio_processor"
).split()


def _sees_or_hears(config: Mapping[str, object]) -> bool:
    if config.get("model_type") == "gemma3":
        return False
    return any(isinstance(config.get(n), Mapping) or (n != "vision_config" and bool(config.get(n))) for n in _SENSES)


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
        "This is a Phi of 2023, whose tensors are stored under other names.",
        "the files of Phi-1, Phi-1.5 and Phi-2 as they are since January 2024, model_type phi",
        "Download the model again from where it comes from: the present files of microsoft/phi-1, phi-1_5 and phi-2 are opened. "
        "A fine-tuned one can be imported with a map of its parameter names.",
        _names("mixformer-sequential phi-msft"),
    ),
    Refusal(
        "This is an encoder-decoder.",
        "one stream in which each token sees those before it; here a second stack reads another text through cross-attention",
        "Open a decoder-only model, for instance of the GPT-2, Llama or Gemma families.",
        _names(
            "t5 mt5 umt5 longt5 bart mbart pegasus marian m2m_100 led blenderbot prophetnet fsmt whisper t5gemma "
            "bigbird_pegasus speech-encoder-decoder encoder-decoder vision-encoder-decoder"
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
            "mamba mamba2 falcon_mamba rwkv rwkv5 rwkv6 rwkv7 jamba zamba zamba2 bamba recurrent_gemma xlstm nemotron_h "
            "granitemoehybrid lfm2 "
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
            "gemma3n gemma4 wav2vec2 hubert musicgen internvl internvl_chat phi4_multimodal phi3_v florence2 molmo minicpmv "
            "minicpmo deepseek_vl_v2 got_ocr2 janus chameleon emu3 cogvlm git imagegpt llava_llama llava_mistral llava_qwen "
            "bunny-phi moondream1 qwen2_audio qwen2_5_omni ultravox speecht5 speech_to_text bark encodec moshi csm dia vits "
            "seamless_m4t"
        ),
        _sees_or_hears,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Lacking:
    """What one architecture has that is not computed here, in words, and what to do instead, "" where its kind says it."""

    has: str
    instead: str = ""


_DISTILLED = (
    "Open one of its distilled models, which are Qwen 2 and Llama (DeepSeek-R1-Distill-…), or a mixture with a known router."
)
LACKING: Mapping[str, Lacking] = {
    "deepseek_v2": Lacking("latent attention (MLA), and experts of which some see every token"),
    "deepseek_v3": Lacking("latent attention (MLA), and experts chosen by groups with a bias each", _DISTILLED),
    "gpt_oss": Lacking("a sink in each head's softmax, and biased experts with a clamped activation"),
    "glm4_moe": Lacking(
        "experts chosen by groups with a bias each, and one that sees every token",
        "Open GLM-4 (glm, glm4), which has one MLP for all tokens, or a mixture with a known router.",
    ),
    "granitemoe": Lacking(
        "experts whose input weights are fused, and Granite's four factors around them",
        "Open the dense Granite of the same size (granite-3.1-2b-instruct), or a mixture with a known router.",
    ),
    "qwen3_5": Lacking(
        "an image encoder, and recurrent layers (linear attention) in the text part, which cannot be opened alone either",
        "Open Qwen 3 or Qwen 2.5, which have attention in every block.",
    ),
    "whisper": Lacking("an encoder of sound in front of the decoder of text"),
    "baichuan": Lacking(
        "queries, keys and values in one W_pack, an unembedding with rows of length 1 (Baichuan 2), ALiBi (13B)",
        "Convert the 7B model to Llama's form, which it computes, or import it with a map of its parameter names.",
    ),
    "chatglm": Lacking(
        "a rotation of half of each head's columns in pairs, and fused weights under names of its own",
        "Open GLM-4 in the form of transformers (THUDM/glm-4-9b-chat-hf), or import it with a map of its parameter names.",
    ),
    "minimind": Lacking(
        "Llama's architecture under names of its own",
        "Convert it to Llama's form with the scripts of its repository, or import it with a map of its parameter names.",
    ),
}


def refuse_unsupported(config: Mapping[str, object]) -> None:
    """Raise `BadModel` for a model of a kind that is not opened."""
    kind = config.get("model_type")
    named = str(kind)[:60] if isinstance(kind, str) else "none stated"
    for refusal in TABLE:
        if (isinstance(kind, str) and kind in refusal.model_types) or refusal.recognises(config):
            lacking = LACKING.get(named, Lacking(""))
            got = f"model_type {named!r}" + (f": {lacking.has}" if lacking.has else "")
            raise BadModel(refusal.what, expected=refusal.why, got=got, remedy=lacking.instead or refusal.instead)


def refuse_original(path: Path) -> None:
    """Raise `BadModel` for a folder, or a file in it, in the form of Llama's and Mistral's makers: params.json and weights.

    Where files in Hugging Face's form lie beside them, those are read and this is no error.
    """
    folder = path if path.is_dir() else path.parent
    result = [path.name] if folder != path else sorted(f.name for f in folder.glob("consolidated*"))
    if not (result and result[0].startswith("consolidated") and (folder / "params.json").is_file()):
        return
    if folder == path and any((folder / name).exists() for name in _HUGGING_FACE):
        return
    raise BadModel(
        "This is a Llama or Mistral as its makers give it away, not in Hugging Face's form.",
        expected="config.json and model.safetensors (or its shards)",
        got=f"params.json and {result[0][:60]} in {shown(folder)}",
        remedy="Open the Hugging Face folder of the same model, or convert it: transformers has convert_llama_weights_to_hf.py "
        "and convert_mistral_weights_to_hf.py.",
    )


_HUGGING_FACE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


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
