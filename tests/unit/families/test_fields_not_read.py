"""Fields that a family of `transformers` does not read, in files that state them: here they decide nothing either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.families.agreement import assert_reopened_agrees, saved

LLAMA = {
    "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GEMMA = {**LLAMA, "head_dim": 8, "sliding_window": 5}
GPT = {"vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 48, "bos_token_id": 1, "eos_token_id": 2}
NEO = {
    "vocab_size": 31, "hidden_size": 24, "num_layers": 2, "num_heads": 3, "max_position_embeddings": 48, "window_size": 5,
    "attention_types": [[["global", "local"], 1]],
}  # fmt: skip
BLOOM = {"vocab_size": 31, "hidden_size": 24, "n_layer": 2, "n_head": 6, "seq_length": 48}
MPT = {"vocab_size": 31, "d_model": 24, "n_layers": 2, "n_heads": 3, "max_seq_len": 48}
OPT = {**LLAMA, "ffn_dim": 40, "word_embed_proj_dim": 24}
HALF, WIDE = {"partial_rotary_factor": 0.5}, {"head_dim": 12}
OF_GGUF = {"rotary_columns": 2, "of_gguf": {"columns": 2, "divisors": [2.0, 3.0]}}  # what GGUF says, in a folder
ROTATING_ALL = (
    "Llama", "Mistral", "Qwen2", "Olmo", "Olmo2", "Olmo3", "SmolLM3", "Granite", "Starcoder2", "Cohere", "Exaone4", "Falcon",
)  # fmt: skip
# configuration of `transformers`, sizes, fields, and whether a note says that they are not used
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool]] = {
    **{name: (f"{name}Config", LLAMA, HALF, True) for name in ROTATING_ALL},
    "Gemma2": ("Gemma2Config", GEMMA, HALF, True),
    "Gemma3": ("Gemma3TextConfig", GEMMA, {"attn_logit_softcapping": 0.02}, True),
    "GPTNeoX": ("GPTNeoXConfig", {**LLAMA, "num_attention_heads": 3}, {"num_key_value_heads": 1}, False),
    "GPT2": ("GPT2Config", GPT, WIDE, False),
    "GPTBigCode": ("GPTBigCodeConfig", GPT, WIDE, False),
    "OpenAIGPT": ("OpenAIGPTConfig", GPT, WIDE, False),
    "GPTJ": ("GPTJConfig", {**GPT, "rotary_dim": 4}, WIDE, False),
    "GPTNeo": ("GPTNeoConfig", NEO, WIDE, False),
    "Bloom": ("BloomConfig", BLOOM, WIDE, False),
    "Mpt": ("MptConfig", MPT, WIDE, False),
    "OPT": ("OPTConfig", OPT, WIDE, False),
    "Llama, GGUF": ("LlamaConfig", LLAMA, OF_GGUF, False),
    "Phi, GGUF": ("PhiConfig", LLAMA, OF_GGUF, False),
    "Gemma3, GGUF": ("Gemma3TextConfig", GEMMA, OF_GGUF, False),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_transformers_does_not_read_changes_no_number(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    kind, sizes, fields, noted = CASES[name]
    saved(tmp_path, getattr(transformers, kind)(**sizes))
    file = tmp_path / "config.json"
    stated = json.loads(file.read_text())
    if isinstance(rope := stated.get("rope_parameters"), dict) and "partial_rotary_factor" in fields:
        for one in [part for part in rope.values() if isinstance(part, dict)] or [rope]:
            one |= fields
    file.write_text(json.dumps(stated | fields))
    opened = assert_reopened_agrees(tmp_path)
    assert any("is not used" in note for note in opened.notes) is noted
