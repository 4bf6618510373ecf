"""The state of a run: what torch reads of it, and files that whoever sent a folder put in its place."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten

from circuitlab.errors import BadInput
from circuitlab.training.loop import Trainer
from circuitlab.training.recipe import Recipe
from circuitlab.training.state import FILE, read_state, write_state
from tests.fuzz.sharing import PROGRAMS, archive
from tests.limited import MIB, tried
from tests.unit.test_training_device import recipe as recipe  # a fixture
from tests.unit.test_training_device import streams


def stated(folder: Path, data: bytes) -> Path:
    """A folder with a state of these bytes, with the digest that is theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(b"circuitlab-state-1 " + hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    return folder


def saved_by_torch(value: Any, **how: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **how)
    return buffer.getvalue()


def state_of(folder: Path) -> dict[str, Any]:
    state, skipped = read_state(folder)
    assert state is not None and not skipped
    return state


def test_a_state_is_read_as_torch_reads_it(recipe: Recipe, tmp_path: Path) -> None:
    trainer = Trainer(recipe, streams(), tmp_path)
    trainer.train(lambda line: None, 3)
    state = state_of(tmp_path / "state")
    data = (tmp_path / "state" / FILE).read_bytes().partition(b"\n")[2]
    wanted = torch.load(io.BytesIO(data), weights_only=True)
    (ours, our_shape), (theirs, their_shape) = tree_flatten(state), tree_flatten(wanted)
    assert our_shape == their_shape and len(ours) > 20
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other) if torch.is_tensor(other) else (type(one), one) == (type(other), other)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")
def test_a_hostile_state_is_refused_within_memory_and_steps(tmp_path: Path) -> None:
    folders = {}
    for i, (name, program) in enumerate(PROGRAMS.items()):
        archive(tmp_path / "archive", program)
        folders[name] = stated(tmp_path / str(i), (tmp_path / "archive").read_bytes())
    whole = torch.zeros(2**18)  # 1 MiB, of which 300 views are 300 MiB
    views = {"tensors": {str(i): whole[i:] for i in range(300)}, "step": 1, "seconds": 0.0, "tokens": 1, "history": "[]"}
    folders["views"] = stated(tmp_path / "views", saved_by_torch(views))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as members:
        members.writestr("archive/data.pkl", b"\x80\x02}.")
        members.writestr("archive/data/0", bytes(600 * MIB))
    folders["packed"] = stated(tmp_path / "packed", packed.getvalue())
    outcomes = tried("tests.limited:read_a_state", folders.values(), 256 * MIB)
    assert {name: outcomes[path].text for name, path in folders.items() if outcomes[path].kind != "BadInput"} == {}
    assert max(one.peak for one in outcomes.values()) < 128 * MIB


def test_a_state_of_another_kind_is_refused(tmp_path: Path) -> None:
    good = {"tensors": {}, "step": 1, "seconds": 0.0, "tokens": 1, "history": "[]"}
    (tmp_path / "good").mkdir()
    write_state(tmp_path / "good", good)
    assert state_of(tmp_path / "good") == good
    for i, value in enumerate([3, {"step": 1}, good | {"more": {1, 2}}, good | {"more": torch.zeros(2, dtype=torch.int64)}]):
        with pytest.raises(BadInput, match="damaged"):
            read_state(stated(tmp_path / str(i), saved_by_torch(value)))
    with pytest.raises(BadInput, match="damaged"):
        read_state(stated(tmp_path / "older", saved_by_torch(good, _use_new_zipfile_serialization=False)))


@pytest.mark.parametrize("change", ["shape", "name", "history", "step", "moment", "groups"])
def test_a_state_that_does_not_fit_is_refused_before_it_is_taken(recipe: Recipe, tmp_path: Path, change: str) -> None:
    trainer = Trainer(recipe, streams(), tmp_path)
    trainer.train(lambda line: None, 2)
    state = state_of(tmp_path / "state")
    name = next(name for name, value in state["tensors"].items() if value.ndim == 2)
    if change == "shape":
        state["tensors"][name] = torch.zeros(())  # torch would fill the whole tensor with it
    elif change == "name":
        state["tensors"]["more"] = state["tensors"].pop(name)
    elif change == "history":
        state["history"] = '[{"step": []}]'
    elif change == "step":
        state["step"] = None
    elif change == "moment":
        state["adam"]["state"][0]["exp_avg"] = torch.zeros(3, 5)
    else:
        state["adam"]["param_groups"] = [1]
    write_state(tmp_path / "state", state)
    with pytest.raises(BadInput, match="another one"):
        Trainer(recipe, streams(), tmp_path).resume()
