"""A run that is ended and taken up again says only what is so: its step, its weights, whose folder it is, what is left."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.disk import file_lock
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.loading import open_model
from circuitlab.training import loop
from circuitlab.training.corpus import find_sources
from circuitlab.training.files import alone_in, holder_of
from circuitlab.training.identity import claim, holds, identity
from circuitlab.training.loop import Trainer
from circuitlab.training.metrics import losses, repeated_random
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.series_points import points_of
from tests.training_runs import A_STEP, progress, train, written


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return written(tmp_path / "text.txt")


def test_a_model_between_two_checkpoints_is_described_as_it_is(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "6") == 0
    result = json.loads((out / "model" / "metrics.json").read_text())
    assert (result["step"], result["tokens"]) == (6, 6 * A_STEP[0])
    weights = open_model(out / "model").weights
    random = losses(weights, repeated_random(weights.config.d_vocab, 24)).mean(0)
    assert result["rep1"] == pytest.approx(float(random[: len(random) // 2].mean()), abs=1e-5), "of these weights"
    kept = json.loads((out / "metrics.json").read_text())["checkpoints"]
    assert [c["step"] for c in kept] == [0, 4] and kept[-1]["rep1"] != result["rep1"]
    assert [(p.step, p.checkpoint) for p in points_of(out / "model")] == [(0, 0), (4, 1), (6, None)]
    assert "6 of 20 steps, 576 tokens" in open_model(out / "model").card
    assert train(text, out) == 0
    assert "3; 20 steps," in open_model(out / "model").card
    assert [p.step for p in points_of(out / "model")] == [0, 4, 8, 14, 16, 18, 20]


def test_a_finished_run_that_is_started_again_is_still_finished(text: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert train(text, tmp_path / "run") == 0
        result = progress(tmp_path / "run")
        assert (result["state"], result["step"], result["tokens"]) == ("done", 20, 12 * A_STEP[0] + 8 * A_STEP[1])
        assert result["seconds"] > 0


@pytest.mark.parametrize("step", [7, 19])
def test_stopped_in_any_step_it_ends_there(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """In the last one too: what is left to do then takes minutes of a large model."""
    whole, out = tmp_path / "whole", tmp_path / "run"
    assert train(text, whole) == 0
    one_step = Trainer.one_step

    def asked(self: Trainer) -> float:
        if self.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return one_step(self)

    monkeypatch.setattr(loop.Trainer, "one_step", asked)
    assert train(text, out) == 130
    assert not (out / "model").exists()
    assert (progress(out)["state"], progress(out)["step"]) == ("failed", step + 1)
    assert progress(out)["error"].startswith(f"Stopped at step {step + 1};")
    monkeypatch.undo()
    assert train(text, out) == 0
    for name in ("metrics.json", "model/model.safetensors", "model/metrics.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_what_a_lost_state_had_kept_is_no_part_of_the_model(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "6") == train(text, out, "--stop-at", "9") == 0
    (out / "state" / "state.pt").write_bytes(b"lost")
    for path in (out / "model" / "checkpoints").iterdir():
        path.unlink()
    assert train(text, out, "--stop-at", "7") == 0
    assert [p.step for p in points_of(out / "model")] == [0, 4, 7]
    assert (out / "checkpoints" / "step-000008.safetensors").is_file()


def test_a_folder_in_which_nothing_was_trained_takes_another_run(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, more = tmp_path / "run", tmp_path / "more.txt"
    little = written(tmp_path / "little.txt", 0)
    assert train(little, out, recipe="attn-only-2l") == 3
    assert (out / "state" / "run.json").is_file()
    assert train(text, out) == 0, "the remedy was more text, or another recipe"
    written(more, 61)
    assert train(more, out) == 3
    assert "holds another run" in capsys.readouterr().err


def test_tokens_of_another_text_are_not_taken_over(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that broke off when its text was read has left tokens and a tokenizer, which are not the next one's."""

    def broken(*words: Any) -> None:
        raise KeyboardInterrupt

    out, whole = tmp_path / "run", tmp_path / "whole"
    monkeypatch.setattr(loop, "initial_tensors", broken)
    assert train(written(tmp_path / "other.txt", 90), out) == 130
    assert (out / "state" / "tokens-0.npz").is_file()
    monkeypatch.undo()
    assert train(text, out) == train(text, whole) == 0
    for name in ("state/tokenizer.json", "model/model.safetensors"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_looking_whose_folder_it_is_changes_nothing(text: Path, tmp_path: Path) -> None:
    state = tmp_path / "run" / "state"
    state.mkdir(parents=True)
    ours = identity(read_recipe("tiny"), find_sources([str(text)]), None)
    assert not holds(state, ours) and not list(state.iterdir())
    claim(state, ours)
    before = (state / "run.json").read_bytes()
    assert holds(state, ours)
    other = ours | {"tokenizer": "another"}
    assert not holds(state, other) and (state / "run.json").read_bytes() == before
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "checkpoints" / "step-000000.safetensors").touch()
    with pytest.raises(BadInput, match="another run"):
        holds(state, other)


def test_a_run_that_was_begun_before_a_key_existed_is_taken_up(text: Path, tmp_path: Path) -> None:
    state = tmp_path / "run" / "state"
    state.mkdir(parents=True)
    ours = identity(read_recipe("tiny"), find_sources([str(text)]), None)
    older = json.loads(json.dumps(ours))
    for part, key in (("data", "phrases"), ("data", "name_times"), ("optimiser", "precision"), ("optimiser", "loss_share")):
        del older["recipe"][part][key]
    del older["recipe"]["positions_angles"], older["recipe"]["stages"][1]["repeats"], older["recipe"]["stages"][1]["counts"]
    (state / "run.json").write_text(json.dumps(older))
    (state / "state.pt").touch()
    assert holds(state, ours)
    changed = json.loads(json.dumps(ours))
    changed["recipe"]["data"]["phrases"] = 0.5
    with pytest.raises(BadInput, match=r"data\.phrases none there, 0\.5 now"):
        holds(state, changed)


def test_a_model_folder_is_no_place_for_a_run(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "4") == 0
    before = (out / "model" / "metrics.json").read_bytes()
    assert train(text, out / "model") == 3
    assert "step-000004.safetensors without run.json" in capsys.readouterr().err
    assert (out / "model" / "metrics.json").read_bytes() == before


def test_a_disk_without_locks_is_not_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(file: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_lock, "_take", refused)
    with pytest.raises(BadMachine, match="lock could not be written") as raised, alone_in(tmp_path):
        pass
    assert raised.value.got == "No locks available" and holder_of(tmp_path) is None
    monkeypatch.undo()
    with alone_in(tmp_path):
        assert holder_of(tmp_path) == os.getpid()
    assert holder_of(tmp_path) is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_lock_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "open_own", lambda path: os.fdopen(os.open("/dev/full", os.O_RDWR), "r+b"))
    monkeypatch.setattr(file_lock, "_still_there", lambda file, path: True)
    with pytest.raises(BadMachine, match="lock could not be written"), alone_in(tmp_path):
        pass


@pytest.mark.parametrize(
    "words", ["CUDA out of memory. Tried to allocate 2.00 GiB.", "DefaultCPUAllocator: can't allocate memory"]
)
def test_too_little_memory_is_said(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    def full(self: Trainer) -> float:
        raise (torch.OutOfMemoryError if "CUDA" in words else RuntimeError)(f"{words}\nmore")

    out = tmp_path / "run"
    assert train(text, out, "--stop-at", "6") == 0
    monkeypatch.setattr(loop.Trainer, "one_step", full)
    assert train(text, out) == 3
    said = capsys.readouterr().err
    assert "not enough memory to train" in said and "4 × 24 tokens on cpu" in said and words in said and "more\n" not in said
    assert "not enough memory" in progress(out)["error"]
    monkeypatch.undo()
    assert train(text, out) == 0


def test_the_time_that_is_left_is_that_of_the_tokens(tmp_path: Path) -> None:
    """Later stages have longer sequences: a step is no measure."""
    rng = np.random.default_rng(0)
    streams = (loop.Stream("a", 1.0, *(rng.integers(1, 300, n).astype(np.uint16) for n in (4000, 200))),)
    trainer = Trainer(read_recipe("tiny"), streams, tmp_path / "run")
    trainer.train(lambda line: None, 10)
    left = 2 * A_STEP[0] + 8 * A_STEP[1]
    assert f" {left / 60:.0f} min left" in trainer._line(5.0, 1.0)
