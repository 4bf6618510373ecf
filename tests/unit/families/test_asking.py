"""Which family is asked first: opening a model imports its own family and no other, and finds the same one as asking all."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.loading import families, family, open_model
from circuitlab.model.loading.checkpoint import Checkpoint
from tests.models import directory

SPELT = {"gemma3_text": "gemma3", "glm4": "glm", "cohere2": "cohere", "openai-gpt": "openai_gpt", "gpt_neox": "gpt_neox"}


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the families' modules, as they are asked for."""
    names: list[str] = []

    def noted(name: str) -> Any:
        names.append(name.rpartition(".")[2])
        return importlib.import_module(name)

    monkeypatch.setattr(family, "importlib", type("Noted", (), {"import_module": staticmethod(noted)}))
    return names


def test_a_folder_of_ours_imports_one_family(tmp_path: Path, imported: list[str]) -> None:
    open_model(directory(tmp_path / "m", tokenizer=False))
    assert imported == ["circuitlab_dir"]


@pytest.mark.parametrize("kind", SPELT)
def test_a_family_is_found_by_its_name(tmp_path: Path, imported: list[str], kind: str) -> None:
    result = Checkpoint(tmp_path, tmp_path, {"model_type": kind}, tensors=ResidentTensors({}))
    claiming = next(f for f in family.candidates(result) if f.claims(result))
    assert claiming.name == SPELT[kind]
    assert imported[-1] == SPELT[kind]
    assert len(imported) <= 2  # and perhaps one that it is named after


def test_the_order_changes_nothing(tmp_path: Path) -> None:
    """Every family that goes by `model_type` is the one and only one that claims its own."""
    kinds = [
        *SPELT,
        *(f.name.replace("_", "-") for f in families()),
        *(f.name for f in families()),
        "qwen2_moe",
        "qwen3_moe",
        "new",
    ]
    for kind in kinds:
        result = Checkpoint(tmp_path, tmp_path, {"model_type": kind}, tensors=ResidentTensors({}))
        first, every = (next((f for f in order if f.claims(result)), None) for order in (family.candidates(result), families()))
        assert first is every, kind


def test_the_readme_names_every_family() -> None:
    """By the first word of its title; kinds of files by what they are called."""
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("| Hugging Face folders |") :].partition("\n\n")[0].lower()
    titles = [f.title.removeprefix("a ") for f in families() if f.name != "circuitlab"]
    assert [t for t in titles if t.split()[0].lower() not in table and not t.startswith("the ")] == []
