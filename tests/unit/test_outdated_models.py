"""When a model is not what its files hold now: weights by their size and times, and where these say nothing by their bytes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from circuitlab.engine import open_model
from circuitlab.engine.file_changes import FileChange
from circuitlab.engine.store import ModelStore, reference
from circuitlab.model.subject import ModelRef
from tests.copied import copied_with_times, touched
from tests.models import directory


@pytest.fixture
def ref(tmp_path: Path) -> ModelRef:
    return ModelRef(f"file:{directory(tmp_path / 'm')}")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a ctime that moves with what is written")
def test_weights_that_are_copied_with_their_times_over_those_that_were_read_are_others(ref: ModelRef) -> None:
    store, file = ModelStore(), Path(ref.source[5:]) / "model.safetensors"
    model, read = store.open(ref), file.read_bytes()
    sha256, key = store.sha256(ref), model.key
    copied_with_times(read[:-64] + bytes(64), file)
    assert model.changed_on_disk and model.file_change == FileChange(changed=("model.safetensors",)) and model.outdated
    assert store.sha256_unopened(ref) == hashlib.sha256(file.read_bytes()).hexdigest() != sha256
    again = store.open_now(ref)
    assert again is not model and again.key != key and store.sha256_of(ref, key) == sha256
    copied_with_times(read, file)
    assert model.file_change is None, "they are again what it was read from"
    assert again.file_change is not None and store.reload(ref).sha256 == sha256


@pytest.mark.skipif(sys.platform == "win32", reason="needs a ctime that moves with what is written")
def test_a_configuration_that_is_copied_with_its_times_is_another(ref: ModelRef) -> None:
    store, file = ModelStore(), Path(ref.source[5:]) / "config.json"
    model, read = store.open(ref), file.read_bytes()
    other = read.replace(b'"score_scale": 0.4', b'"score_scale": 0.5')
    assert other != read and len(other) == len(read)
    copied_with_times(other, file)
    assert (
        model.file_change == FileChange(changed=("config.json",)) and store.open_now(ref).opened.weights.config.score_scale > 0.5
    )
    copied_with_times(read, file)
    assert model.file_change is None


@pytest.mark.skipif(sys.platform == "win32", reason="needs a ctime that moves with a mode")
def test_weights_that_are_only_touched_are_read_once_and_are_the_same(ref: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    store, file, reads = ModelStore(), Path(ref.source[5:]) / "model.safetensors", list[list[Path]]()
    model = store.open(ref)
    store.sha256(ref)
    digest = open_model.sha256_of
    monkeypatch.setattr(open_model, "sha256_of", lambda files: reads.append(list(files)) or digest(files))
    for _ in range(2):
        before = model.key
        touched(file)
        assert [model.file_change for _ in range(3)] == [None] * 3 and not model.changed_on_disk and not model.outdated
        assert model.key == before and store.open_now(ref) is model
    assert reads == [[file]] * 2
    model.sha256 = ""  # as of a large file that nobody has hashed
    touched(file)
    assert model.file_change == FileChange(changed=("model.safetensors",)), "that it is the same is not known"
    assert len(reads) == 2


def test_weights_that_are_preferred_to_those_that_were_read_make_it_outdated(tmp_path: Path) -> None:
    folder = directory(tmp_path / "gpt2")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    moved = (folder / "model.safetensors").rename(tmp_path / "apart")
    store, ref = ModelStore(), reference(str(folder))
    assert [file.name for file in store.open(ref).opened.files] == ["pytorch_model.bin"]
    assert not store.open(ref).outdated
    moved.rename(folder / "model.safetensors")
    assert [file.name for file in store.open_now(ref).opened.files] == ["model.safetensors"]


@pytest.mark.parametrize("name", ["tokenizer.model", "chat_template.jinja", "tokenizer.json"])
def test_what_has_come_beside_the_weights_makes_it_outdated(ref: ModelRef, name: str) -> None:
    model = ModelStore().open(ref)
    assert not model.outdated
    (Path(ref.source[5:]) / name).write_bytes(b"{}")
    assert model.outdated
