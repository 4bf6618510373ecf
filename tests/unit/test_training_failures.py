"""What goes wrong while training is said with what was expected, what came and what to do; and nothing is lost by it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from circuitlab.cli.parser import main
from circuitlab.disk.files import writing
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import Stream
from circuitlab.training.files import alone_in, write_whole
from circuitlab.training.loop import Trainer
from circuitlab.training.recipe_file import read_recipe
from tests.full_disk import no_room_for

WORDS = "the grey heron stood in the shallow water and the small boat went by; def f(x): return x + 1\n"
LETTERS = "".join(chr(i) for i in range(0xC0, 0x180)) * 9


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 60 + LETTERS, encoding="utf-8")
    return path


def train(text: Path | str, out: Path, *more: str, recipe: str = "tiny") -> int:
    return main(["train", recipe, "--text", str(text), "--out", str(out), "--no-measure", *more])


def recipe_file(tmp_path: Path, old: str, new: str) -> str:
    from circuitlab.disk.paths import resource

    shipped = resource("recipes", "tiny.toml").read_text(encoding="utf-8")
    assert old in shipped
    (tmp_path / "mine.toml").write_text(shipped.replace(old, new, 1), encoding="utf-8")
    return str(tmp_path / "mine.toml")


def progress(out: Path) -> dict[str, Any]:
    return json.loads((out / "progress.json").read_text(encoding="utf-8"))


WRITTEN = [
    "state/run.json.new",
    "state/tokenizer.json.new",
    "state/tokens-0.npz.new",
    "state/state.pt.new",
    "checkpoints/step-000008.safetensors.new",
    "metrics.json.new",
    "progress.json.new",
    "model/metrics.json.new",
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", WRITTEN)
def test_a_full_disk_is_said_and_the_same_command_goes_on(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    out = tmp_path / "run"
    with no_room_for(out / name):
        assert train(text, out) == 3
    said = capsys.readouterr().err
    assert "The disk is full" in said and "No space left" in said and "Free space" in said
    if not name.startswith(("state/run", "progress")):
        assert (progress(out)["state"], "disk is full" in progress(out)["error"]) == ("failed", True)
    (out / name).unlink(missing_ok=True)
    assert train(text, out) == 0
    assert not list(out.rglob("*.new"))
    assert progress(out)["state"] == "done"
    if name != WRITTEN[0]:
        return
    for other in WRITTEN[1:3]:
        assert (out / other.removesuffix(".new")).is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: a limit of file sizes")
def test_a_write_that_breaks_off_leaves_the_old_file(tmp_path: Path) -> None:
    import resource as limits

    path, big = tmp_path / "a", torch.zeros(10_000)
    write_whole(path, b"old")
    before = limits.getrlimit(limits.RLIMIT_FSIZE)
    limits.setrlimit(limits.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(BadMachine, match="disk is full"):
            write_whole(path, b"n" * 100_000)
        with pytest.raises(BadMachine, match="disk is full"), writing(path):
            save_file({"x": big}, str(tmp_path / "b"))
    finally:
        limits.setrlimit(limits.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert "a.new" not in [p.name for p in tmp_path.iterdir()]


def test_a_place_that_is_no_folder_is_said(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    assert train(text, tmp_path / "file") == 3
    assert train(text, tmp_path / "file" / "inside") == 3
    said = capsys.readouterr().err
    assert said.count("A file is in the way of a folder") == 2 and "do:" in said
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_that_may_not_be_written_is_said(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, *args: Any, **words: Any) -> None:  # root may write anywhere: the system cannot be asked
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refused)
    assert train(text, tmp_path / "o") == 3
    said = capsys.readouterr().err
    assert "cannot be written to" in said and "Permission denied" in said and "Choose another folder" in said
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (WORDS.encode(), "too little text"),
        (b"hello " * 99 + b"\xff" + b"hello " * 9, "byte 0xff at byte 594"),
        (b"\xef\xbb\xbfhello \xe9t\xe9", "byte 0xe9 at byte 9"),
        ("hello".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04" + b"a\0b" * 99, "a zero byte at byte 5"),
    ],
)
def test_text_that_cannot_be_trained_on_is_named(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "good.txt").write_bytes(text.read_bytes() if "little" not in said and "empty" not in said else data)
    (folder / "wrong.txt").write_bytes(data)
    assert train(folder, tmp_path / "o", "--tokenizer", str(_tokenizer(tmp_path, text))) == 3
    heard = capsys.readouterr().err
    assert said in heard
    if "byte" in said or "UTF" in said:
        assert "wrong.txt" in heard
        assert not (tmp_path / "o").exists()  # found before anything is written


def _tokenizer(tmp_path: Path, text: Path) -> Path:
    from circuitlab.training.bpe import train_tokenizer
    from circuitlab.training.corpus import find_sources

    path = tmp_path / "words.json"
    if not path.is_file():
        train_tokenizer(find_sources([str(text)]), 300, 10**6).save(path)
    return path


def test_a_folder_without_text_says_what_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"x")
    assert train(tmp_path / "pictures", tmp_path / "o") == 3
    said = capsys.readouterr().err
    assert "*.txt *.md *.py" in said and "pictures" in said


def test_a_share_of_nothing_is_refused(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(f"{text}:0", tmp_path / "o") == 3
    assert main(["train", "tiny", "--text", f"{text}:1", str(text), "--out", str(tmp_path / "o")]) == 3
    assert "nothing is left for text.txt" in capsys.readouterr().err


def test_how_large_a_vocabulary_the_text_supports_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("ab " * 400)
    assert train(tmp_path / "a.txt", tmp_path / "o") == 3
    said = capsys.readouterr().err
    most = int(said.split("vocab = ")[1].split()[0])
    assert 257 < most < 300
    assert train(tmp_path / "a.txt", tmp_path / "p", recipe=recipe_file(tmp_path, "vocab = 300", f"vocab = {most}")) == 0
    assert train(tmp_path / "a.txt", tmp_path / "q", recipe=recipe_file(tmp_path, "vocab = 300", f"vocab = {most + 1}")) == 3
    assert train(tmp_path / "a.txt", tmp_path / "r", recipe=recipe_file(tmp_path, "vocab = 300", "vocab = 200")) == 3
    assert "at least 257" in capsys.readouterr().err


def test_a_tokenizer_of_another_size_or_without_bos_is_refused(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _tokenizer(tmp_path, text)
    mine = recipe_file(tmp_path, "vocab = 300", "vocab = 301")
    assert train(text, tmp_path / "o", "--tokenizer", str(words), recipe=mine) == 3
    said = capsys.readouterr().err
    assert "301 tokens" in said and "300 in" in said and "vocab = 300" in said
    data = json.loads(words.read_text(encoding="utf-8"))
    data["added_tokens"] = []
    (tmp_path / "bare.json").write_text(json.dumps(data))
    assert Tokenizer.from_file(tmp_path / "bare.json").bos is None
    assert train(text, tmp_path / "o", "--tokenizer", str(tmp_path / "bare.json")) == 3
    assert "BOS as id 0" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_folder_of_another_run_is_not_taken_up(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "6") == 0
    kept = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    (tmp_path / "other.txt").write_text(WORDS * 61 + LETTERS, encoding="utf-8")
    tries: list[tuple[tuple[Any, ...], dict[str, str], str]] = [
        ((text, out, "--seed", "9"), {}, "seed 3 there, 9 now"),
        ((tmp_path / "other.txt", out), {}, "text other.txt: other content"),
        ((text, out), {"recipe": recipe_file(tmp_path, "rate = 3e-3", "rate = 2e-3")}, "optimiser.rate 0.003 there, 0.002 now"),
        ((text, out, "--tokenizer", str(_tokenizer(tmp_path, text))), {}, "another tokenizer"),
    ]
    for words, more, said in tries:
        assert train(*words, **more) == 3
        heard = capsys.readouterr().err
        assert "holds another run" in heard and said in heard and "--out" in heard
    assert main(["train", "tiny", "--text", str(text), str(text), "--out", str(out)]) == 3
    assert "share 1.0 there, 0.5 now" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == kept
    shutil.copy(text, tmp_path / "elsewhere.txt")  # the same text at another place is the same
    assert train(tmp_path / "elsewhere.txt", out) == 0
    (out / "state" / "run.json").unlink()
    assert train(text, out) == 3
    assert "without run.json" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "other"])
def test_a_damaged_state_falls_back_on_the_one_before(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert train(text, whole) == 0
    assert train(text, out, "--stop-at", "6") == train(text, out, "--stop-at", "9") == 0
    state = out / "state" / "state.pt"
    data = state.read_bytes()
    middle = len(data) // 2
    changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    state.write_bytes({"cut": data[:middle], "changed": changed, "empty": b"", "other": b"hello"}[damage])
    capsys.readouterr()
    assert train(text, out) == 0
    said = capsys.readouterr().out
    assert "resumed from state.previous.pt" in said and "resumed at step 6" in said
    for name in ("metrics.json", "model/model.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_without_any_whole_state_nothing_is_begun_anew(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "6") == 0
    for path in (out / "state").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-7])
    assert train(text, out) == 3
    assert "damaged" in capsys.readouterr().err


def test_damaged_tokens_are_made_again(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "6") == 0
    tokens = out / "state" / "tokens-0.npz"
    data = tokens.read_bytes()
    tokens.write_bytes(data[: len(data) // 2])
    assert train(text, out) == 0
    with np.load(tokens) as one:
        assert len(one["train"]) > 100


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read_recipe("tiny")
    rng = np.random.default_rng(0)
    streams = (Stream("a", 1.0, *(rng.integers(1, 300, n).astype(np.uint16) for n in (4000, 200))),)
    trainer = Trainer(recipe, streams, tmp_path / "a")
    clip = torch.nn.utils.clip_grad_norm_

    def poisoned(parameters: list[torch.Tensor], limit: float) -> torch.Tensor:
        norm = clip(parameters, limit)
        return norm * float("nan") if trainer.step == 7 else norm

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", poisoned)
    with pytest.raises(BadInput, match="diverged at step 8") as raised:
        trainer.train(lambda line: None)
    assert "Lower [optimiser] rate" in str(raised.value)
    again = Trainer(recipe, streams, tmp_path / "a")
    assert again.resume() and again.step == 7
    assert all(bool(v.isfinite().all()) for v in again.weights.tensors.values())
    with torch.no_grad():
        again.weights.tensors["unembed.W_U"].mul_(1e38)  # and a loss of its own
    with pytest.raises(BadInput, match="no longer a number"):
        again.train(lambda line: None)


def test_one_process_trains_in_a_folder(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    (out / "state").mkdir(parents=True)
    with alone_in(out / "state"):
        assert train(text, out) == 3
        said = capsys.readouterr().err
        assert "Another process is training in this folder" in said and f"process {os.getpid()}" in said
        assert not (out / "progress.json").exists()
    assert train(text, out) == 0


def test_a_device_that_is_not_there_is_said(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(text, tmp_path / "o", "--device", "cuda:99") == 3
    assert "There is no device cuda:99" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: pipes without a reader")
def test_a_run_whose_window_is_gone_goes_on_and_says_so_in_its_log(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    heard, said = os.pipe()
    os.close(heard)
    with os.fdopen(said, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        assert train(text, out) == 0
    assert json.loads((out / "progress.json").read_text(encoding="utf-8"))["state"] == "done" and (out / "model").is_dir()
    lines = (out / "train.log").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("text.txt: ") and lines[-1].startswith("model written to ")
