"""The training loop: deterministic by seed, resumable after being killed, its state in `OUT/state`.

    loss = mean cross-entropy of every token after the first;   AdamW;   warm-up, then cosine

Everything that decides step k (weights, optimiser, batch) is a function of the state file and of k, so that a run that was killed
and resumed ends bit-equal to one that was not.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from circuitlab.errors import BadMachine
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import logits
from circuitlab.model.positions import sinusoid_table
from circuitlab.model.sourced import expected_shapes
from circuitlab.model.trainable import TrainableWeights
from circuitlab.training.batches import batch
from circuitlab.training.corpus import Stream
from circuitlab.training.metrics import measure
from circuitlab.training.recipe import Optimiser, Recipe

SAVE_EVERY = 500
Say = Callable[[str], None]


def initial_tensors(recipe: Recipe, config: ModelConfig) -> dict[str, Tensor]:
    """Normal weights by the recipe's standard deviations; gains 1, biases 0; positions sinusoidal with its amplitude."""
    generator = torch.Generator().manual_seed(recipe.seed)
    made: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        short = name.rpartition(".")[2]
        if short == "W_pos":
            made[name] = recipe.positions_amplitude * sinusoid_table(shape[0], shape[1])
        elif short == "gain":
            made[name] = torch.ones(shape)
        elif short in ("bias", "smear") or short.startswith("b_"):
            made[name] = torch.zeros(shape)
        else:
            made[name] = torch.randn(shape, generator=generator) * recipe.init.get(short, 0.02)
    return made


def rate_at(o: Optimiser, step: int) -> float:
    """The learning rate of a step: linear warm-up, then cosine down to `final` of it at the last step."""
    if step < o.warmup:
        return o.rate * (step + 1) / o.warmup
    share = (step - o.warmup) / max(1, o.steps - o.warmup)
    return o.rate * (o.final + (1 - o.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))


class Trainer:
    """One training run in a directory."""

    def __init__(self, recipe: Recipe, streams: tuple[Stream, ...], out: Path, device: str = "cpu") -> None:
        self.recipe, self.streams, self.out = recipe, streams, out
        self.config = recipe.config()
        self.weights = TrainableWeights(self.config, initial_tensors(recipe, self.config))
        o = recipe.optimiser
        parameters = list(self.weights.tensors.values())
        self.adam = torch.optim.AdamW(parameters, lr=o.rate, betas=o.betas, weight_decay=o.weight_decay, foreach=True)
        self.step, self.seconds, self.tokens_seen = 0, 0.0, 0
        self.history: list[dict[str, Any]] = []
        (out / "checkpoints").mkdir(parents=True, exist_ok=True)
        (out / "state").mkdir(exist_ok=True)

    @property
    def state_file(self) -> Path:
        """Where the run can be taken up again."""
        return self.out / "state" / "state.pt"

    def resume(self) -> bool:
        """Take up a killed run; False where there is none."""
        if not self.state_file.is_file():
            return False
        saved = torch.load(self.state_file, weights_only=True)
        with torch.no_grad():
            for name, value in saved["tensors"].items():
                self.weights.tensors[name].copy_(value)
        self.adam.load_state_dict(saved["adam"])
        self.step, self.seconds, self.tokens_seen = saved["step"], saved["seconds"], saved["tokens"]
        self.history = json.loads(saved["history"])
        return True

    def save(self) -> None:
        """Write the state whole or not at all."""
        state = {
            "tensors": self.weights.snapshot(),
            "adam": self.adam.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.tokens_seen,
            "history": json.dumps(self.history),
        }
        _atomically(self.state_file, lambda path: torch.save(state, path))

    def train(self, say: Say, stop_at: int | None = None) -> None:
        """Train to the recipe's last step (or `stop_at`), saving and measuring on the way."""
        last = self.recipe.optimiser.steps
        kept = set(self.recipe.checkpoints.steps(last))
        began, begun_at, tokens_then = time.monotonic(), self.seconds, self.tokens_seen
        running = 0.0
        while self.step <= (last if stop_at is None else stop_at):
            if self.step in kept and not any(h["step"] == self.step for h in self.history):
                self.checkpoint(say)
            if self.step == last or self.step == stop_at:
                break
            loss = self.one_step()
            running = loss if not running else 0.95 * running + 0.05 * loss
            self.seconds = begun_at + time.monotonic() - began
            if self.step % 50 == 0:
                speed = (self.tokens_seen - tokens_then) / max(1e-9, self.seconds - begun_at)
                say(self._line(running, speed))
            if self.step % SAVE_EVERY == 0:
                self.save()
        self.save()

    def _line(self, loss: float, speed: float) -> str:
        o, left = self.recipe.optimiser, self.recipe.optimiser.steps - self.step
        stage = self.recipe.stage(self.step)
        minutes = left * stage.batch * stage.context / max(speed, 1e-9) / 60
        return f"step {self.step}/{o.steps}  loss {loss:.3f}  {speed:,.0f} tokens/s  {minutes:.0f} min left"

    def one_step(self) -> float:
        """One step of the optimiser; returns the loss."""
        recipe, o = self.recipe, self.recipe.optimiser
        stage = recipe.stage(self.step)
        tokens = batch(self.streams, recipe.data, stage, recipe.vocab, recipe.seed, self.step)
        for group in self.adam.param_groups:
            group["lr"] = rate_at(o, self.step)
        out = logits(self.weights, tokens[:, :-1])
        loss = F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].flatten())
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.tensors.values()), o.clip)
        self.adam.step()
        self.step += 1
        self.tokens_seen += tokens.numel()
        return float(loss.detach())

    def checkpoint(self, say: Say) -> None:
        """Keep the weights (float16) and their metrics."""
        found = measure(self.weights, self.streams, self.recipe.stage(max(0, self.step - 1)).context)
        half = {name: value.contiguous() for name, value in self.weights.snapshot(torch.float16).items()}
        path = self.out / "checkpoints" / f"step-{self.step:06d}.safetensors"
        _atomically(path, lambda p: save_file(half, str(p)))
        self.history.append({"step": self.step, "tokens": self.tokens_seen, **found})
        text = json.dumps({"recipe": self.recipe.name, "seed": self.recipe.seed, "checkpoints": self.history})
        _atomically(self.out / "metrics.json", lambda p: p.write_text(text, encoding="utf-8"))
        say(f"checkpoint {self.step}: {summary(found)}")


def summary(found: dict[str, Any]) -> str:
    """One line on a checkpoint's metrics."""
    scored = {n: [(v, i, h) for i, row in enumerate(rows) for h, v in enumerate(row)] for n, rows in found["heads"].items()}
    best = {n: max(scores) for n, scores in scored.items() if scores}  # a model without layers has no heads
    heads = "  ".join(f"{n} {v:.2f} (L{i}H{h})" for n, (v, i, h) in best.items() if n in ("prefix_matching", "previous_token"))
    return f"loss {found['loss']:.3f}  rep1 {found['rep1']:.2f}  rep2 {found['rep2']:.2f}  {heads}"


def _atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Write beside, then replace. Raises `BadMachine` where the disk is full or read-only."""
    fresh = path.with_name(path.name + ".new")
    try:
        write(fresh)
        os.replace(fresh, path)
    except (OSError, RuntimeError) as error:
        raise BadMachine(
            f"{path.name} could not be written.",
            expected="a writable disk with room",
            got=str(error),
            remedy="Free space, then resume.",
        ) from error
