"""A second run gives the same bits; so does one that was killed by the system, or asked to stop, and taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from circuitlab.errors import Cancelled
from circuitlab.training import loop
from circuitlab.training.command import Interrupts
from circuitlab.training.corpus import Stream
from circuitlab.training.loop import Trainer
from circuitlab.training.recipe import Checkpoints, Recipe, Stage
from circuitlab.training.recipe_file import read_recipe

ROOT = Path(__file__).resolve().parents[2]


def narrow() -> Recipe:
    """The two-layer recipe at a width that trains 200 steps in a second; its stages, rates, augmentation and seeds."""
    shipped = read_recipe("attn-only-2l")
    return replace(
        shipped,
        vocab=300,
        model={**shipped.model, "d_model": 16, "d_head": 4},
        stages=(Stage(0, 32, 4), Stage(130, 48, 2)),
        data=replace(shipped.data, block=(8, 15), segment=(6, 15)),
        optimiser=replace(shipped.optimiser, steps=200, warmup=20),
        checkpoints=Checkpoints(64, (100, 150), 25),
    )


def streams(vocab: int = 300) -> tuple[Stream, ...]:
    rng = np.random.default_rng(0)
    make = lambda label, share: Stream(label, share, *(rng.integers(1, vocab, n).astype(np.uint16) for n in (9000, 900)))
    return make("a", 0.75), make("b", 0.25)


def trained(out: Path, stop_at: int | None = None, recipe: Recipe | None = None) -> Trainer:
    recipe = recipe or narrow()
    trainer = Trainer(recipe, streams(recipe.vocab), out)
    trainer.resume()
    trainer.train(lambda line: None, stop_at)
    return trainer


def assert_same(one: Trainer, two: Trainer) -> None:
    assert one.step == two.step and one.tokens_seen == two.tokens_seen
    assert one.history == two.history
    assert all(torch.equal(one.weights.tensors[n], two.weights.tensors[n]) for n in one.weights.tensors)
    for step in one.recipe.checkpoints.steps(200):
        name = Path("checkpoints") / f"step-{step:06d}.safetensors"
        assert (one.out / name).read_bytes() == (two.out / name).read_bytes()
    assert (one.out / "metrics.json").read_bytes() == (two.out / "metrics.json").read_bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from circuitlab.training import loop
from tests.unit.test_training_bits import trained
loop.SAVE_EVERY = 40
step = loop.Trainer.one_step
def killed(self):
    if self.step == 127:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self)
loop.Trainer.one_step = killed
trained(Path(sys.argv[1]))
"""


def test_two_hundred_steps_again_and_after_a_kill_are_bit_equal(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole, again = trained(tmp_path / "whole"), trained(tmp_path / "again")
        assert len(whole.history) == len(whole.recipe.checkpoints.steps(200)) == 7
        assert_same(whole, again)
        call = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
        done = subprocess.run(call, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-500:]
        taken_up = Trainer(narrow(), streams(), tmp_path / "killed")
        assert taken_up.resume() and taken_up.step == 120
        assert_same(whole, trained(tmp_path / "killed"))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_a_whole_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    recipe = replace(narrow(), optimiser=replace(narrow().optimiser, steps=30), checkpoints=Checkpoints(16))
    whole = Trainer(recipe, streams(), tmp_path / "whole")
    whole.train(lambda line: None)
    step = Trainer.one_step

    def asked(self: Trainer) -> float:
        if self.step == 11:
            os.kill(os.getpid(), number)
        return step(self)

    monkeypatch.setattr(loop.Trainer, "one_step", asked)
    before = signal.getsignal(number)
    with Interrupts() as interrupts, pytest.raises(Cancelled, match="Stopped at step 12") as raised:
        interrupts.deferred = True
        Trainer(recipe, streams(), tmp_path / "stopped").train(lambda line: None, stop=lambda: interrupts.requested)
    assert raised.value.exit_code == 130
    assert signal.getsignal(number) == before
    monkeypatch.undo()
    again = Trainer(recipe, streams(), tmp_path / "stopped")
    assert again.resume() and again.step == 12
    again.train(lambda line: None)
    assert again.history == whole.history


def test_a_second_signal_does_not_wait() -> None:
    with Interrupts() as interrupts:
        interrupts.deferred = True
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with Interrupts(), pytest.raises(KeyboardInterrupt):  # before training: nothing to save
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.slow
def test_two_hundred_steps_of_the_shipped_recipe_are_bit_equal(tmp_path: Path) -> None:
    recipe = read_recipe("attn-only-2l")
    one, two = (trained(tmp_path / n, 200, recipe) for n in "ab")
    assert one.step == 200 and len(one.history) == 3
    assert one.history == two.history
    assert all(torch.equal(one.weights.tensors[n], two.weights.tensors[n]) for n in one.weights.tensors)
