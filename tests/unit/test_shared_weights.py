"""One model under two paths is held once, as far as it is known to be one; what differs in anything that counts is not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from circuitlab.analysis.behaviour.token_loss import TokenLossParams, token_loss
from circuitlab.engine import store as store_module
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.loading.checkpoint import weight_files
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import ModelRef, Subject
from tests.models import TINY, byte_tokenizer, directory


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of any size are read as large ones are: without their hash, tensor by tensor."""
    monkeypatch.setattr(store_module, "SMALL", 0)


def linked(source: Path, target: Path) -> Path:
    """The same files under other names of the disk."""
    target.mkdir()
    for file in source.iterdir():
        os.link(file, target / file.name)
    return target


def two(tmp_path: Path, again: Callable[[Path, Path], object]) -> tuple[ModelRef, ModelRef]:
    first = directory(tmp_path / "first" / "model")
    (tmp_path / "second").mkdir()
    again(first, tmp_path / "second" / "model")
    return ModelRef(f"file:{first}"), ModelRef(f"file:{tmp_path / 'second' / 'model'}")


@pytest.mark.usefixtures("large")
def test_one_file_under_two_names_is_held_once_at_once(tmp_path: Path) -> None:
    a, b = two(tmp_path, linked)
    store = ModelStore()
    first = store.open(a)
    store.read_whole(a)
    alone = store.held_bytes
    second = store.open(b)
    store.read_whole(b)
    assert second.opened.weights is first.opened.weights and not second.sha256
    assert store.held_bytes - alone < 2 * store_module.BESIDES, "the words of the second, and no weight"
    assert (second.ref, second.path) != (first.ref, first.path)


@pytest.mark.usefixtures("large")
def test_equal_files_are_held_once_when_their_hashes_are_known(tmp_path: Path) -> None:
    a, b = two(tmp_path, shutil.copytree)
    engine = Engine(ModelStore())
    store, first, second = engine.store, *map(engine.store.open, (a, b))
    request = Request(token_loss, TokenLossParams(), Subject(b, (1, 2, 3, 4)))
    before = engine.answer(request).result.loss
    own = second.opened.weights
    store.sha256(a)
    assert second.opened.weights is own, "one hash says nothing"
    store.sha256(b)
    assert second.opened.weights is first.opened.weights is not own
    engine.cache.drop(lambda key: True)
    torch.testing.assert_close(torch.tensor(engine.answer(request).result.loss), torch.tensor(before), equal_nan=True)


def test_a_small_copy_is_known_when_it_is_opened(tmp_path: Path) -> None:
    a, b = two(tmp_path, shutil.copytree)
    store = ModelStore()
    assert store.open(a).opened.weights is store.open(b).opened.weights


def other_epsilon(first: Path, second: Path) -> None:
    linked(first, second)
    config = json.loads((second / "config.json").read_text("utf-8"))
    (second / "config.json").unlink()
    (second / "config.json").write_text(json.dumps(config | {"prepend_bos": not config["prepend_bos"]}), "utf-8")


def without_tokenizer(first: Path, second: Path) -> None:
    linked(first, second)
    for file in second.glob("*tokenizer*"):
        file.unlink()


def other_weights(first: Path, second: Path) -> None:
    save_directory(second, TINY, random_tensors(TINY, 5, 0.35), byte_tokenizer())


@pytest.mark.parametrize("again", [other_epsilon, without_tokenizer, other_weights])
def test_what_is_read_otherwise_is_held_apart(tmp_path: Path, again: Callable[[Path, Path], object]) -> None:
    a, b = two(tmp_path, again)
    store = ModelStore()
    first, second = store.open(a), store.open(b)
    assert store.sha256(a) and store.sha256(b)
    assert first.opened.weights is not second.opened.weights


def test_what_changed_since_is_not_taken_from_the_other(tmp_path: Path) -> None:
    """The first was read, then replaced: the second, a copy of what is there now or of what was, reads its own file."""
    a, b = two(tmp_path, shutil.copytree)
    store = ModelStore()
    first = store.open(a)
    (file,) = weight_files(first.path)
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes()[:-64] + bytes(64))
    os.replace(other, file)
    assert store.open(b).opened.weights is not first.opened.weights
    again = store.reload(a)
    assert again.opened.weights is not store.open(b).opened.weights and again.sha256 != store.open(b).sha256
