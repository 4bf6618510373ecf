"""What a session names is read as far as its size says, can be given up, and is asked of no other machine."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from circuitlab.analysis.base import NullContext, TextRef
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams
from circuitlab.disk import regular_file
from circuitlab.engine import texts
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, Cancelled
from circuitlab.model import prompts
from circuitlab.model.subject import ModelRef
from circuitlab.session_files import file_table, model_search
from circuitlab.session_files.model_search import located
from circuitlab.session_files.session import FileEntry, ModelEntry, Session
from circuitlab.story.setup import Setup
from tests.models import CONFIGS, byte_tokenizer, directory

TINY = next(iter(CONFIGS.values()))
PROC = pytest.mark.skipif(sys.platform != "linux", reason="needs a POSIX system: /proc")
HOLE = 2**34  # bytes of a file that is nearly nothing but a hole
OTHER = ("//host/share/a", r"\\host\share\a", r"\\?\C:\a", r"\\.\pipe\a")


@pytest.fixture
def hole(tmp_path: Path) -> Path:
    with (path := tmp_path / "hole.tsv").open("wb") as file:
        file.truncate(HOLE)
    return path


class _Counted(NullContext):
    """Gives up at the third tick."""

    ticks = 0

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.ticks += 1
        if self.ticks == 3:
            raise Cancelled


def _settled(path: str) -> str:
    params = texts.Texts().settled(OverPromptsParams(TextRef(path)))
    assert params is not None
    return params.file.sha256


def _stopping(after: int) -> tuple[list[int], object]:
    asked: list[int] = []
    return asked, lambda: asked.append(1) or len(asked) >= after


@PROC
def test_a_file_is_read_no_further_than_its_size_says(tmp_path: Path) -> None:
    """/proc/self/pagemap is a regular file of 0 bytes with 256 GB in it."""
    assert os.path.isfile("/proc/self/pagemap") and not os.path.getsize("/proc/self/pagemap")
    (empty := tmp_path / "empty").touch()
    assert file_table.file_sha256("/proc/self/pagemap") == file_table.file_sha256(str(empty)) != ""
    assert _settled("/proc/self/pagemap") == file_table.file_sha256(str(empty))
    assert texts.checked_text(TextRef("/proc/self/pagemap")) == ""
    assert list(texts.read_text(TextRef("/proc/self/pagemap"), byte_tokenizer(), NullContext(), 2**30)) == []
    assert regular_file.sha256_of((Path("/proc/self/pagemap"),)) == file_table.file_sha256(str(empty))


@PROC
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/proc"])
def test_a_device_is_no_file(device: str) -> None:
    assert file_table.file_sha256(device) == ""
    with pytest.raises(OSError, match="not a file"):
        regular_file.opened_regular(device)
    with pytest.raises(BadInput):
        texts.checked_text(TextRef(device))


def test_hashing_what_a_session_names_is_given_up_at_once(hole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_table, "LARGEST_HASHED", 2 * HOLE)
    asked, stopped = _stopping(3)
    session = Session({}, Setup(), files={"a": FileEntry(str(hole), "7" * 64)})
    with pytest.raises(Cancelled):
        located(session, tmp_path, ModelStore(), stopped=stopped)  # type: ignore[arg-type]
    assert len(asked) == 3
    ctx = _Counted()
    with pytest.raises(Cancelled):
        texts.Texts().settled(OverPromptsParams(TextRef(str(hole))), ctx=ctx)
    assert ctx.ticks == 3


def test_a_hole_is_neither_hashed_nor_read_into_memory(hole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(file_table, "sha256_of", lambda *_: read.append(1))
    assert file_table.file_sha256(str(hole)) == "" and not read
    with pytest.raises(BadInput, match="too large") as caught:
        texts.checked_text(TextRef(str(hole)))
    assert "MiB" in caught.value.expected


def test_a_prompt_set_has_a_bounded_number_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MOST", 3)
    assert len(prompts.lines_of("a\n\n# c\nb\nc\n")) == 3
    with pytest.raises(BadInput, match="too many prompts"):
        prompts.lines_of("a\nb\nc\nd")


def test_reading_a_prompt_set_can_be_given_up(tmp_path: Path) -> None:
    ctx = _Counted()
    with pytest.raises(Cancelled):
        prompts.read_prompts("a\n" * 100, "set", byte_tokenizer(), TINY, lambda i, n: ctx.tick(i, n))
    assert ctx.ticks == 3


@pytest.mark.parametrize("path", OTHER)
def test_another_machine_is_not_asked(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for module in (os, os.path):
        for name in ("stat", "lstat", "isfile", "exists", "isdir", "open", "scandir"):
            if (plain := getattr(module, name, None)) is not None:
                listening = lambda where, *rest, plain=plain, **more: (asked.append(str(where)), plain(where, *rest, **more))[1]
                monkeypatch.setattr(module, name, listening)
    monkeypatch.setattr(model_search, "look", lambda where, *_: asked.append(str(where)))
    store = ModelStore()
    monkeypatch.setattr(store, "sha256_unopened", lambda ref, *_: asked.append(ref.source) or "")
    monkeypatch.setattr(model_search, "shipped_models", lambda: ())
    models = {"m": ModelEntry(ModelRef(f"file:{path}"), "7" * 64, (path,)), "n": ModelEntry(ModelRef(f"file:{path}"))}
    result = located(Session(models, Setup(), files={"f": FileEntry(path, "7" * 64)}), tmp_path, store)
    assert result.missing_files == ("f",)
    for read in (_settled, lambda one: texts.checked_text(TextRef(one))):
        with pytest.raises(BadInput):
            read(path)
    assert not [one for one in asked if one.removeprefix("file:").replace("\\", "/").startswith("//")]


def test_a_session_on_another_machine_has_its_models_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_search, "shipped_models", lambda: ())
    model = directory(tmp_path / "m")
    there = f"/{model}"  # two slashes: the same file here
    entry = ModelEntry(ModelRef(f"file:{there}"), ModelStore().sha256(ModelRef(f"file:{model}")))
    session, monkey = Session({"other": entry}, Setup()), tmp_path / "empty"
    monkey.mkdir()
    assert located(session, monkey, ModelStore()).missing == ("other",)
    assert not located(session, Path(f"/{tmp_path}"), ModelStore()).missing
    assert not located(replace(session, models={"m": entry}), monkey, ModelStore(), recent=(f"file:{there}",)).missing


@PROC
def test_weights_that_are_no_file_have_no_hash(tmp_path: Path) -> None:
    folder = directory(tmp_path / "m")
    weights = folder / "model.safetensors"
    weights.unlink()
    weights.symlink_to("/dev/zero")
    with pytest.raises(BadModel):
        ModelStore().sha256_unopened(ModelRef(f"file:{folder}"))
