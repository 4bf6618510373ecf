"""What fills a folder × {killed before each of its calls, killed in the middle of its writes}: the next run completes it, and
nothing is lost that was there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

if sys.platform == "win32":
    pytest.skip("needs a POSIX system: processes that are killed", allow_module_level=True)

from circuitlab.analysis.base import NullContext
from circuitlab.disk import paths
from circuitlab.disk.file_lock import FileLock
from circuitlab.disk.unfinished_folder import unfinished_folder
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, Cancelled, CircuitLabError, UsageError
from circuitlab.model.archives.getting import get
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.importing import streamed
from circuitlab.model.importing.by_map import ImportMap, canonical, survey
from circuitlab.model.importing.streamed import Tick, need_empty, stream_directory
from circuitlab.model.loading import open_model
from circuitlab.sweep.journal import NAME as JOURNAL
from circuitlab.sweep.journal import lines_in
from circuitlab.sweep.run import run
from circuitlab.sweep.shelf import shelve, shelved
from circuitlab.sweep.spec import spec_of
from tests.archive_server import Web, serving
from tests.faults.calls import KILLED, cut, cuts, walk
from tests.models import CONFIGS, byte_tokenizer, directory, weights_of
from tests.shipped_archives import NAME, Installed, install
from tests.unit.test_sweep import MACHINE, declared


def _bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


def _each_kill(act: Callable[[], object], folder: Path, prepare: Callable[[], object], sizes: Iterable[int]) -> Iterator[str]:
    """Where `act` was killed, each time after `prepare`: before each of its calls under a folder, then in its writes."""
    for call, how in walk(act, folder, 0, prepare):
        assert how == KILLED
        yield f"killed before call {call}"
    for at in cuts(sizes):
        prepare()
        if cut(act, at) == KILLED:
            yield f"killed at byte {at} of a file"


def _told(name: str, kills: int) -> None:
    print(f"{name:24} {kills:3} kills")
    assert kills > 10


# -- the checkpoints of a shipped model -------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return install(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["file", "web"])
def test_an_archive_that_is_got_anew(installed: Installed, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of files of which one is damaged: those are there, or the new ones, also where no new ones can be got."""
    home, place, expected = (
        paths.data_home(),
        installed.archive.fetched_folder,
        _bytes_in(installed.checkout / NAME / "checkpoints"),
    )
    damaged = {**expected, min(expected): b"damaged"}

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        (place / "checkpoints").mkdir(parents=True)
        for name, data in damaged.items():
            (place / "checkpoints" / name).write_bytes(data)

    with serving(Web(installed.zips)) as web:
        installed.address(f"{web.url}/v1")
        archive = installed.archive
        act = lambda: get(archive, str(installed.zips) if source == "file" else "")
        kills = 0
        for where in _each_kill(act, home, prepare, [*map(len, expected.values()), archive.zip.size]):
            kills += 1
            with contextlib.suppress(BadInput):  # where there is something to get
                get(archive, str(installed.zips / "gone.zip"))
            assert _bytes_in(place / "checkpoints") in (damaged, expected), where
            act()
            assert _bytes_in(place / "checkpoints") == expected, where
            left = {path.name for path in place.parent.iterdir()}
            assert left == {place.name}, f"{where}: {left}"
    _told(f"an archive, {source}", kills)


# -- an import ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_import(tmp_path: Path) -> None:
    """Into a new folder: what a killed one leaves is a whole model, or nothing that the next one minds; and the next one, which
    finds either, is done."""
    config, (_, tensors) = CONFIGS["gpt2"], weights_of(CONFIGS["gpt2"])
    result, parts = survey(ImportMap(config, canonical(config, tensors)), ResidentTensors(tensors))
    assert not result.problems
    folder, origin = tmp_path / "home" / "model", {"from": "a.pt", "assumed": [], "unseen": []}
    act = lambda: stream_directory(folder, parts, byte_tokenizer(), origin=origin)
    prepare = lambda: shutil.rmtree(folder, ignore_errors=True)
    act()
    expected, sizes, kills, ended = _bytes_in(folder), _sizes(folder), 0, 0
    for where in _each_kill(act, folder, prepare, sizes):
        kills += 1
        whole = (folder / "model.safetensors").exists()
        if whole:
            left = _bytes_in(folder)
            left.pop(".importing", None)
            assert left == expected, where
        elif folder.exists():
            with pytest.raises(CircuitLabError):
                open_model(folder)
        if not whole or (folder / ".importing").exists():
            act()
        assert _bytes_in(folder) == expected, where
        ended += whole
    assert ended, "no kill came after the weights"
    _told("an import", kills)


# -- a sweep -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_shelf(tmp_path: Path) -> None:
    store, shelf = ModelStore(), tmp_path / "shelf"
    ref = reference(str(directory(tmp_path / "model", CONFIGS["gpt2"])))
    sha256 = store.sha256(store.open(ref).ref)
    act = lambda: shelve(shelf, [(ref, sha256)], store, NullContext())
    prepare = lambda: shutil.rmtree(shelf, ignore_errors=True)
    prepare()
    act()
    expected, kills = _bytes_in(shelf), 0
    for where in _each_kill(act, shelf, prepare, map(len, expected.values())):
        kills += 1
        there = shelved(shelf, sha256)
        assert there is None or store.sha256_unopened(there) == sha256, where
        act()
        assert _bytes_in(shelf) == expected, where
    _told("a shelf", kills)


@pytest.mark.slow
def test_a_sweep_whose_writes_are_cut(tmp_path: Path) -> None:
    """Killed before each of its calls it is in tests/unit/test_sweep.py."""
    data = declared(tmp_path, arrays=True, models={"open": ["gpt2"]}, prompts=[{"texts": ["abcabc", "q"]}], edits=[])
    out, machine = tmp_path / "out", replace(MACHINE, shelf=tmp_path / "shelf")
    act = lambda: run(spec_of(data, tmp_path), out, machine)
    act()
    expected, sizes, kills = _bytes_in(out), [*_sizes(out), *_sizes(tmp_path / "shelf")], 0
    same = [
        name for name in expected if name.endswith((".csv", ".toml", "plan.json")) and name != "cells.csv"
    ]  # that has seconds
    for at in cuts(sizes):
        for folder in (out, tmp_path / "shelf"):
            shutil.rmtree(folder, ignore_errors=True)
        if cut(act, at) != KILLED:
            continue
        kills += 1
        kept = _done(out)
        act()
        assert all((out / name).read_bytes() == expected[name] for name in same), at
        assert _done(out)[: len(kept)] == kept, f"cut at {at}: what was kept is not asked again"
        assert not [path.name for path in tmp_path.rglob("*") if path.name.startswith(".new-") or path.suffix == ".new"], at
    _told("a sweep", kills)


def _done(folder: Path) -> list[str]:
    """The cells that the journal says are done, in its order."""
    return [line["cell"] for line in lines_in(folder)] if (folder / JOURNAL).exists() else []


# -- folders that are being filled -------------------------------------------------------------------------------------------


def test_a_folder_that_somebody_fills_is_left_alone(tmp_path: Path) -> None:
    """Also by another one in the same process; one without a lock is one that nobody fills."""
    (tmp_path / ".new-0123456789ab").mkdir()
    with unfinished_folder(tmp_path) as one:
        with unfinished_folder(tmp_path) as other:
            assert one.is_dir() and other.is_dir() and one != other
            assert not (tmp_path / ".new-0123456789ab").exists()
        assert one.is_dir() and not other.exists()
    assert not list(tmp_path.iterdir())


def test_an_import_that_was_killed_at_its_end_is_completed_by_the_same_one_alone(tmp_path: Path) -> None:
    """Its lock file has stayed, which nobody holds: another model is not written over it, and it is not removed either."""
    config, (_, tensors) = CONFIGS["gpt2"], weights_of(CONFIGS["gpt2"])
    folder, origin = tmp_path / "model", {"from": "a.pt", "assumed": [], "unseen": []}

    def write(values: dict[str, torch.Tensor], said: dict[str, object], tick: Tick = lambda *_: None) -> int:
        _, parts = survey(ImportMap(config, canonical(config, values)), ResidentTensors(values))
        return stream_directory(folder, parts, byte_tokenizer(), tick, said)

    nbytes = write(tensors, origin)
    whole = _bytes_in(folder)
    last = sorted(tensors)[-1]
    others = {**tensors, last: tensors[last] + 1}
    (folder / ".importing").write_bytes(b" 1\n")
    left = _bytes_in(folder)
    for values, said in ((others, origin), (tensors, {**origin, "from": "b.pt"})):
        with pytest.raises(UsageError, match="another model"):
            write(values, said)
        assert _bytes_in(folder).keys() == left.keys() and whole.items() <= _bytes_in(folder).items()

    def stop(*_: object) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        write(tensors, origin, stop)
    assert whole.items() <= _bytes_in(folder).items()
    assert write(tensors, origin) == nbytes and _bytes_in(folder) == whole
    with pytest.raises(UsageError, match="not empty"):
        write(tensors, origin)
    assert _bytes_in(folder) == whole, "one that has ended well is somebody's"


def test_a_model_that_another_import_has_finished_meanwhile_is_somebodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the folder and its lock: it is not touched, and no lock file stays beside it."""
    config, (_, tensors) = CONFIGS["gpt2"], weights_of(CONFIGS["gpt2"])
    folder, last = tmp_path / "model", sorted(tensors)[-1]

    def write(values: dict[str, torch.Tensor]) -> int:
        _, parts = survey(ImportMap(config, canonical(config, values)), ResidentTensors(values))
        return stream_directory(folder, parts, byte_tokenizer())

    def looked(path: Path) -> None:
        need_empty(path)
        monkeypatch.setattr(streamed, "need_empty", need_empty)
        write({**tensors, last: tensors[last] + 1})
        whole.update(_bytes_in(folder))

    whole = dict[str, bytes]()
    monkeypatch.setattr(streamed, "need_empty", looked)
    with pytest.raises(UsageError, match="not empty"):
        write(tensors)
    assert whole and _bytes_in(folder) == whole


def test_a_folder_that_is_being_imported_into_is_said_to_be(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / ".importing")
    assert lock.take() is None
    with pytest.raises(UsageError, match="being imported") as raised:
        need_empty(tmp_path)
    assert f"process {os.getpid()}" in raised.value.got
    lock.release()
    need_empty(tmp_path)
    for name in ("notes.txt", "weights.pt"):  # what no killed import leaves
        (tmp_path / name).write_bytes(b"somebody's")
        with pytest.raises(UsageError, match="not empty"):
            need_empty(tmp_path)
        (tmp_path / name).unlink()
