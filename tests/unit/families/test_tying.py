"""Files that hold a table for the embedding and one for the unembedding, whatever their configuration says of the two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.errors import BadModel
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from tests.unit.families.agreement import assert_reopened_agrees, saved
from tests.unit.families.test_fields_not_read import BLOOM, GEMMA, GPT, LLAMA, MPT, NEO, OPT

CASES: dict[str, dict[str, Any]] = {
    "Llama": LLAMA, "Gemma": GEMMA, "Gemma3Text": GEMMA, "Cohere": LLAMA, "Falcon": LLAMA, "GPTNeo": NEO, "GPT2": GPT,
    "GPTNeoX": {**LLAMA, "num_attention_heads": 3}, "GPTBigCode": GPT, "Bloom": BLOOM, "Mpt": MPT, "OPT": OPT,
    "Starcoder2": LLAMA,
}  # fmt: skip
UNTIED = "the two are not tied"


@pytest.mark.parametrize("stated", [True, None], ids=["called tied", "not said"])
@pytest.mark.parametrize("name", CASES)
def test_two_tables_of_different_numbers_are_two_tables(tmp_path: Path, name: str, stated: bool | None) -> None:
    transformers = pytest.importorskip("transformers")
    saved(tmp_path, getattr(transformers, f"{name}Config")(**CASES[name], tie_word_embeddings=False))
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text()) | {"tie_word_embeddings": stated}
    file.write_text(json.dumps({key: value for key, value in fields.items() if value is not None}))
    opened = assert_reopened_agrees(tmp_path)
    assert any(UNTIED in note for note in opened.notes) and not opened.weights.config.tied


@pytest.mark.parametrize("name", ["Llama", "Gemma"])
def test_two_tables_of_the_same_numbers_are_one(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    model = saved(tmp_path, getattr(transformers, f"{name}Config")(**CASES[name], tie_word_embeddings=True))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    ids = torch.randint(0, 31, (1, 23), generator=torch.Generator().manual_seed(1))
    opened = open_model(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(logits(opened.weights, ids), model(ids).logits, atol=1e-3, rtol=1e-4)
    assert opened.weights.config.tied and not any(UNTIED in note for note in opened.notes)


@pytest.mark.parametrize("name", [name for name in CASES if name != "GPTNeoX"])
def test_a_tied_table_may_be_stored_as_the_unembedding_alone(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    saved(tmp_path, getattr(transformers, f"{name}Config")(**CASES[name], tie_word_embeddings=True))
    tensors = load_file(tmp_path / "model.safetensors")
    table = next(n for n in tensors if n.endswith(("embed_tokens.weight", "wte.weight", "word_embeddings.weight")))
    save_file({"lm_head.weight" if n == table else n: x for n, x in tensors.items()}, tmp_path / "model.safetensors")
    opened = assert_reopened_agrees(tmp_path)
    assert any("stored as lm_head.weight alone" in note for note in opened.notes)


def test_an_embedding_that_is_not_tied_is_not_taken_from_the_unembedding(tmp_path: Path) -> None:
    """Here `transformers` draws the embedding at random."""
    transformers = pytest.importorskip("transformers")
    for name, table in {"Llama": "model.embed_tokens.weight", "GPTNeoX": "gpt_neox.embed_in.weight"}.items():
        saved(tmp_path, getattr(transformers, f"{name}Config")(**CASES[name], tie_word_embeddings=False))
        tensors = load_file(tmp_path / "model.safetensors")
        del tensors[table]
        save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(BadModel, match="lack tensors"):
            open_model(tmp_path)


def test_an_untied_gemma_3_beside_its_pictures_has_its_own_unembedding(tmp_path: Path) -> None:
    """Where the text model is one part of a file, names begin with it, and the configuration says it twice."""
    transformers = pytest.importorskip("transformers")
    model = saved(tmp_path, transformers.Gemma3TextConfig(**GEMMA, tie_word_embeddings=False))
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({f"language_model.{name}": value for name, value in tensors.items()}, tmp_path / "model.safetensors")
    fields = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gemma3", "text_config": fields, "tie_word_embeddings": True})
    )
    ids = torch.randint(0, 31, (1, 23), generator=torch.Generator().manual_seed(1))
    opened = open_model(tmp_path)
    with torch.no_grad():
        expected = model(ids).logits
    assert torch.allclose(logits(opened.weights, ids), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)
    assert not opened.weights.config.tied


def test_a_table_of_another_size_is_not_taken_for_the_unembedding(tmp_path: Path) -> None:
    """Which tables are meant is not guessed: the configuration's word stands."""
    transformers = pytest.importorskip("transformers")
    saved(tmp_path, transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True))
    tensors = load_file(tmp_path / "model.safetensors")
    for name, table in {"lm_head.weight": torch.ones(5, 24), "other.lm_head.weight": torch.ones(31, 24)}.items():
        save_file({**tensors, name: table}, tmp_path / "model.safetensors")
        assert open_model(tmp_path).weights.config.tied
