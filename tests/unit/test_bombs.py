"""Small files that would fill the memory or never end: refused, or opened, within limits of memory and of steps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fuzz.multiplied import multiplied
from tests.fuzz.sharing import written
from tests.fuzz.tokenizer_bombs import tokenizers
from tests.limited import MIB, Outcome, tried
from tests.models import byte_tokenizer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is limited, and read from /proc")


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tokenizers(tmp_path_factory.mktemp("tokenizers"))


def failures(files: dict[str, Path], of: dict[Path, Outcome]) -> str:
    return "\n".join(f"{name}: {of[path]}" for name, path in files.items() if of[path].kind == "FAILED")


def test_values_that_a_pickle_shares_are_not_walked_again_and_again(tmp_path: Path) -> None:
    files = written(tmp_path / "files")
    outcomes = tried("tests.limited:read_a_pickle", files.values(), memory=256 * MIB)
    assert not failures(files, outcomes)
    of = {name: outcomes[path] for name, path in files.items()}
    for name in ("sizes of doubled tuples", "a storage called by doubled tuples", "a version of doubled tuples"):
        assert of[name].refused, name
    for name in ("dictionaries by calls", "attributes again and again", "bytes of one text", "arguments again and again"):
        assert of[name].refused and "copied again and again" in of[name].text, (name, of[name])
    assert of["doubled tuples as a value"].kind == "opened"  # of which only a bounded part was looked at
    assert max(one.peak for one in outcomes.values()) < 128 * MIB


def test_what_an_honest_pickle_copies_is_within_its_length(tmp_path: Path) -> None:
    from collections import OrderedDict

    from circuitlab.model.files.pickled import read_pickle

    layers = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(40)))
    plain = {f"name {i}": list(range(10)) for i in range(200)}
    for how in ({}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 5}):
        for held in (
            layers,
            OrderedDict(layers.state_dict()),
            {"model": layers.state_dict(), "args": plain, "sizes": [torch.Size((1, 2))] * 50},
        ):
            torch.save(held, tmp_path / "a.pt", **how)
            contents = read_pickle(tmp_path / "a.pt")
            assert contents is not None and len(contents.tensors.names()) == 80


def test_sizes_are_compared_with_the_names_that_are_there(tmp_path: Path) -> None:
    files = multiplied(tmp_path)
    outcomes = tried("tests.limited:open_a_model", files.values())
    assert not failures(files, outcomes)
    assert all(one.refused for one in outcomes.values()), outcomes
    assert max(one.peak for one in outcomes.values()) < 256 * MIB


def test_a_tokenizer_that_the_library_cannot_hold_is_refused_or_held_by_a_child(heavy: dict[str, Path]) -> None:
    outcomes = tried("tests.limited:open_a_tokenizer", heavy.values(), memory=512 * MIB)
    assert not failures(heavy, outcomes)
    refused = {name for name, path in heavy.items() if outcomes[path].refused}
    assert {n for n in heavy if "piece" in n or "added" in n} <= refused
    assert max(one.peak for one in outcomes.values()) < 256 * MIB


@pytest.mark.parametrize("name", ["a template of 300,000 ids", "a prefix of ten million letters", "a decoder's prefix"])
def test_large_steps_run_in_a_process_of_their_own(heavy: dict[str, Path], name: str) -> None:
    from circuitlab.model.text.tokenizer_rules import impossible, unbounded

    spec = json.loads(heavy[name].read_text("utf-8"))
    assert "very many values" in unbounded(spec) and impossible(spec) == ("", "")


def test_every_shipped_tokenizer_is_within_the_bounds() -> None:
    from circuitlab.disk.paths import shipped
    from circuitlab.model.text.tokenizer_rules import LONGEST_PIECE, impossible, unbounded

    files = sorted(shipped("models").glob("*/tokenizer.json"))
    assert files
    for file in files:
        spec = json.loads(file.read_text("utf-8"))
        assert unbounded(spec) == "" and impossible(spec) == ("", "")
        assert 8 * max(map(len, spec["model"]["vocab"])) < LONGEST_PIECE


@pytest.mark.parametrize(
    "change",
    [lambda s: s["model"].update(vocab={"a" * 5000: 0}, merges=[]), lambda s: s.update(added_tokens=[{"content": "a" * 5000}])],
)
def test_what_is_too_long_is_said(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from circuitlab.errors import BadModel
    from circuitlab.model.text.tokenizer import Tokenizer

    spec = json.loads(byte_tokenizer().file_text())
    change(spec)
    with pytest.raises(BadModel) as raised:
        Tokenizer.from_bytes(json.dumps(spec).encode())
    assert "4,096 characters" in raised.value.expected and raised.value.got == "one of 5,000"
