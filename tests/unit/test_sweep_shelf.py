"""Models of a sweep on a shelf, by the hash of their weights, for workers that have them not or have others under that name."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuitlab.analysis.base import Ctx
from circuitlab.errors import BadMachine
from circuitlab.sweep import shelf
from circuitlab.sweep.run import run
from circuitlab.sweep.spec import spec_of
from circuitlab.sweep.work import Machine, Order, Outcome, work
from tests.models import CONFIGS, directory
from tests.series_files import keep_scaled
from tests.unit.test_sweep import MACHINE, declared, swept


class Elsewhere:
    """A worker with an engine of its own, as of another machine."""

    size = 1

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def outcomes(self, orders: Sequence[Order], ctx: Ctx) -> Generator[Outcome, None, None]:
        yield from work(self.machine, tuple(orders))


def question(tmp_path: Path) -> dict[str, Any]:
    """Of a model and of each point of a training."""
    data = declared(tmp_path, models={"open": ["gpt2", "series"], "steps": "all"}, analyses=[{"name": "token_loss"}], edits=[])
    directory(tmp_path / "series", CONFIGS["attention-only"])
    keep_scaled(tmp_path / "series", {0: 0.25, 3: 0.5})
    return data


@pytest.mark.parametrize("there", ["nothing", "another model"])
def test_the_numbers_are_those_of_the_models_themselves(tmp_path: Path, there: str) -> None:
    data = question(tmp_path)
    swept(tmp_path, data)
    shelved = replace(MACHINE, shelf=tmp_path / "shelf")

    def without(engine: Any) -> Any:
        for name in ("gpt2", "series"):
            shutil.move(tmp_path / name, tmp_path / f"{name}-elsewhere")
            if there == "another model":
                directory(tmp_path / name, CONFIGS["attention-only"], n_layers=1)
        return Elsewhere(shelved)

    run(spec_of(data, tmp_path), tmp_path / "elsewhere", shelved, without)
    assert (tmp_path / "elsewhere" / "table.csv").read_bytes() == (tmp_path / "out" / "table.csv").read_bytes()
    assert len(list((tmp_path / "shelf").iterdir())) == 4  # gpt2; series at 0, at 3 and finally; nothing unfinished


def test_what_stands_on_the_shelf_is_not_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, shelved = question(tmp_path), replace(MACHINE, shelf=tmp_path / "shelf")
    run(spec_of(data, tmp_path), tmp_path / "one", shelved)
    monkeypatch.setattr(shelf, "_copy", None)  # would raise
    run(spec_of(data, tmp_path), tmp_path / "two", shelved)


@pytest.mark.parametrize("what", ["another byte", "half", "no weights"])
def test_a_damaged_copy_on_the_shelf_is_replaced(tmp_path: Path, what: str) -> None:
    """It was taken for the model: each cell said that its weights had changed, at every run anew."""
    data, shelved = question(tmp_path), replace(MACHINE, shelf=tmp_path / "shelf")
    swept(tmp_path, data)
    run(spec_of(data, tmp_path), tmp_path / "one", shelved)
    copies = {file: file.read_bytes() for file in (tmp_path / "shelf").rglob("*") if file.is_file()}
    file = next(file for file in copies if file.name == shelf.WEIGHTS)
    if what == "no weights":
        file.unlink()
    else:
        data_there = copies[file]
        other = data_there[: len(data_there) // 2] if what == "half" else data_there[:-1] + bytes([data_there[-1] ^ 1])
        file.write_bytes(other)
    run(spec_of(data, tmp_path), tmp_path / "two", shelved)
    assert {file: file.read_bytes() for file in (tmp_path / "shelf").rglob("*") if file.is_file()} == copies
    assert (tmp_path / "two" / "table.csv").read_bytes() == (tmp_path / "out" / "table.csv").read_bytes()


def test_a_copy_with_other_weights_is_not_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = question(tmp_path)
    copy = shutil.copyfile

    def damaged(source: Path, target: Path) -> None:
        copy(source, target)
        if source.suffix == ".safetensors":
            data = bytearray(target.read_bytes())
            data[-1] ^= 1
            target.write_bytes(data)

    monkeypatch.setattr(shelf.shutil, "copyfile", damaged)
    with pytest.raises(BadMachine, match="shelf"):
        run(spec_of(data, tmp_path), tmp_path / "out", replace(MACHINE, shelf=tmp_path / "shelf"))
    assert list((tmp_path / "shelf").iterdir()) == []
