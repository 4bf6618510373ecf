"""The training loop: deterministic by seed, resumable after being killed, its state in `OUT/state`.

    loss = mean cross-entropy of every token after the first, or of a share of them;   warm-up, then cosine

Everything that decides step k (weights, optimiser, batch) is a function of the state file and of k, so that a run that was killed
and resumed ends bit-equal to one that was not: on the CPU, with the same number of threads. Initial weights and batches are drawn
on the CPU whatever the device, and float32 products are computed as such (no TF32): a device adds its own rounding alone. A GPU
sums gradients in an order of its own, and two runs on it agree to rounding, not to the bit.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadInput, Cancelled, cause
from circuitlab.model.config import ModelConfig
from circuitlab.model.devices import making_on
from circuitlab.model.forward import streams as final_streams
from circuitlab.model.lazy_weights import expected_shapes
from circuitlab.model.positions import sinusoid_table
from circuitlab.model.run import unembed
from circuitlab.model.trainable import TrainableWeights
from circuitlab.training.batches import batch
from circuitlab.training.corpus import Stream
from circuitlab.training.cross_entropy import mean_cross_entropy
from circuitlab.training.files import write_whole
from circuitlab.training.metrics import measure
from circuitlab.training.metrics_file import write_run
from circuitlab.training.optimisers import optimisers_of
from circuitlab.training.progress import Progress, State, StepLine
from circuitlab.training.recipe import Optimiser, Recipe
from circuitlab.training.repeats import NamePieces
from circuitlab.training.series_points import tokens_after
from circuitlab.training.state import read_state, write_state

SAVE_EVERY, SAVE_SECONDS = 500, 60.0  # the state is saved after so many steps, or so long
_PLACES = 1  # tells the random numbers of places from those of the batch, which begin with the same seed and step
Say = Callable[[str], None]


def initial_tensors(recipe: Recipe, config: ModelConfig) -> dict[str, Tensor]:
    """Normal weights by the recipe's standard deviations; gains 1, biases 0; positions sinusoidal with its amplitude."""
    generator = torch.Generator().manual_seed(recipe.seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        short = name.rpartition(".")[2]
        if short == "W_pos":
            tensors[name] = recipe.positions_amplitude * sinusoid_table(shape[0], shape[1], angles=recipe.positions_angles)
        elif short == "gain":
            tensors[name] = torch.ones(shape)
        elif short in ("bias", "smear") or short.startswith("b_"):
            tensors[name] = torch.zeros(shape)
        else:
            tensors[name] = torch.randn(shape, generator=generator) * recipe.init.get(short, 0.02)
    return tensors


def rate_at(o: Optimiser, step: int, highest: float | None = None) -> float:
    """The learning rate of a step: linear warm-up to `highest` (None: `o.rate`), then cosine to `final` of it at the last."""
    rate = o.rate if highest is None else highest
    if step < o.warmup:
        return rate * (step + 1) / o.warmup
    share = (step - o.warmup) / max(1, o.steps - o.warmup)
    return rate * (o.final + (1 - o.final) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))


def chosen_places(recipe: Recipe, step: int, n: int) -> Tensor | None:
    """The places of a step, of n, whose loss is computed, ascending; None for all of them. At least one, without replacement."""
    if recipe.optimiser.loss_share == 1:
        return None
    rng = np.random.default_rng([recipe.seed, step, _PLACES])
    count = max(1, round(n * recipe.optimiser.loss_share))
    return torch.from_numpy(np.sort(rng.choice(n, size=count, replace=False)))


class Trainer:
    """One training run in a directory. `device` is torch's name of an available device.

    Raises `BadInput` where the recipe inserts invented names and `pieces` of the vocabulary are missing.
    """

    def __init__(
        self,
        recipe: Recipe,
        streams: tuple[Stream, ...],
        out: Path,
        device: str = "cpu",
        progress: Progress | None = None,
        pieces: NamePieces | None = None,
    ) -> None:
        if recipe.data.names and (pieces is None or not (pieces.first.size and pieces.later.size)):
            got = (
                "none"
                if pieces is None
                else f"{number_of(pieces.first.size, 'beginning')}, {number_of(pieces.later.size, 'later piece')}"
            )
            raise BadInput(
                "Invented names need pieces of names.",
                expected="a vocabulary that has them",
                got=got,
                remedy="Set names = 0 under [data].",
            )
        self.recipe, self.streams, self.out, self.device, self.pieces = recipe, streams, out, device, pieces
        self.config = recipe.config()
        made_folder(out / "checkpoints", within=out)
        made_folder(out / "state", within=out)
        self.progress = progress or Progress(out, recipe.optimiser.steps)
        torch.set_float32_matmul_precision("highest")
        initial = initial_tensors(recipe, self.config)
        self.weights = TrainableWeights(self.config, {name: value.to(device) for name, value in initial.items()})
        o = recipe.optimiser
        self.optimisers = optimisers_of(o, self.weights.tensors)
        self.step, self.seconds, self.tokens_seen = 0, 0.0, 0
        self.history: list[JsonDict] = []
        self._saved_step, self._saved_at = 0, time.monotonic()

    def resume(self, say: Say = lambda line: None) -> bool:
        """Resume a killed run; False where there is none. Raises `BadInput` where no saved state is intact."""
        saved, skipped = read_state(self.out / "state")
        if saved is None:
            return False
        if skipped:
            say(skipped)
        try:
            self._take(saved)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
            raise BadInput(
                "The state of this run is that of another one.",
                expected="tensors, optimisers and counters of this recipe",
                got=cause(error),
                remedy="Restore the folder from a copy, or start again in another folder.",
            ) from error
        self._saved_step = self.step
        self.progress.values |= self._so_far()  # also where nothing is left to train
        return True

    def _take(self, saved: JsonObject) -> None:
        """Go on from a state; raises one of Python's errors where its names, shapes or kinds are not those of this run."""
        shapes = {name: value.shape for name, value in saved["tensors"].items()}
        if shapes != {name: value.shape for name, value in self.weights.tensors.items()}:
            raise ValueError("other names or shapes of tensors")
        step, seconds, tokens, history = int(saved["step"]), float(saved["seconds"]), int(saved["tokens"]), saved["history"]
        points = json.loads(history)
        if not isinstance(points, list) or not all(type(point["step"]) is int for point in points):
            raise ValueError("another history")
        with torch.no_grad():
            for name, value in saved["tensors"].items():
                self.weights.tensors[name].copy_(value)
        for name, optimiser in self.optimisers.items():
            optimiser.load_state_dict(saved[name])  # moves what belongs to a parameter to its device
            if not all(v.shape in ((), p.shape) for p, of in optimiser.state.items() for v in of.values() if torch.is_tensor(v)):
                raise ValueError("other shapes of moments")
        self.step, self.seconds, self.tokens_seen, self.history = step, seconds, tokens, points

    def save(self) -> None:
        """Write the state whole or not at all; the previous one is kept. Raises `BadMachine`."""
        state = {
            "tensors": {name: value.detach() for name, value in self.weights.tensors.items()},
            **{name: optimiser.state_dict() for name, optimiser in self.optimisers.items()},
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.tokens_seen,
            "history": json.dumps(self.history),
        }
        write_state(self.out / "state", state)
        self._saved_step, self._saved_at = self.step, time.monotonic()

    def train(self, say: Say, stop_at: int | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Train to the recipe's last step (or `stop_at`), saving and measuring on the way.

        Raises `Cancelled` after the step in which `stop` becomes true, and `BadInput` once the loss is not finite; the state of
        the last complete step is saved first.
        """
        last = self.recipe.optimiser.steps
        end = last if stop_at is None else min(stop_at, last)
        checkpoint_steps = set(self.recipe.checkpoints.steps(last))
        seconds_then, tokens_then, running = self.seconds, self.tokens_seen, 0.0
        while self.step <= end:
            if self.step in checkpoint_steps and not any(h["step"] == self.step for h in self.history):
                self.checkpoint(say)
            if self.step >= end:
                break
            if stop():
                raise self.stopped()
            start = time.monotonic()
            loss = self.one_step()
            self.seconds += time.monotonic() - start
            running = loss if not running else 0.95 * running + 0.05 * loss
            speed = (self.tokens_seen - tokens_then) / max(1e-9, self.seconds - seconds_then)
            self._report("training", loss=running, tokens_per_second=speed)
            if self.step % 50 == 0:
                say(self._line(running, speed))
            if self.step - self._saved_step >= SAVE_EVERY or time.monotonic() - self._saved_at >= SAVE_SECONDS:
                self.save()
        self.save()

    def stopped(self) -> Cancelled:
        """Save the state; the error that says the run was stopped."""
        self.save()
        return Cancelled(f"Stopped at step {self.step}; the state is saved, the same command resumes from there.")

    def _report(self, state: State, **values: float) -> None:
        self.progress.update(state, **self._so_far(), **values)

    def _so_far(self) -> JsonDict:
        return {"step": self.step, "tokens": self.tokens_seen, "seconds": round(self.seconds, 3)}

    def _line(self, loss: float, speed: float) -> str:
        steps = self.recipe.optimiser.steps
        minutes = (tokens_after(self.recipe, steps) - self.tokens_seen) / max(speed, 1e-9) / 60
        return str(StepLine(self.step, steps, loss, speed, minutes))

    def one_step(self) -> float:
        """One step of the optimiser; returns the loss. Raises `BadInput`, weights unchanged, where the loss is not finite."""
        recipe, o = self.recipe, self.recipe.optimiser
        stage = recipe.stage(self.step)
        tokens = batch(self.streams, recipe.data, stage, recipe.vocab, recipe.seed, self.step, self.pieces).to(self.device)
        for optimiser in self.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = rate_at(o, self.step, optimiser.defaults["lr"])
            optimiser.zero_grad(set_to_none=True)
        loss = self._loss(tokens)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(self.weights.tensors.values()), o.clip)
        value, length = float(loss.detach()), float(norm)
        if not (math.isfinite(value) and math.isfinite(length)):
            raise self._diverged(value, length)
        for optimiser in self.optimisers.values():
            optimiser.step()
        self.step += 1
        self.tokens_seen += tokens.numel()
        return value

    def _loss(self, tokens: Tensor) -> Tensor:
        """Mean cross-entropy of the tokens after the first, [batch, context] ids; of a share of them where the recipe has one."""
        targets = tokens[:, 1:]
        with self._precision():
            x = final_streams(self.weights, tokens[:, :-1])
            if (places := chosen_places(self.recipe, self.step, targets.numel())) is not None:
                places = places.to(self.device)
                x, targets = x.flatten(0, 1)[places], targets.flatten()[places]
            out = unembed(self.weights, self.weights.unembed(), x)
        return mean_cross_entropy(out.flatten(0, -2), targets.flatten())

    def _precision(self) -> AbstractContextManager[object]:
        """The precision to which factors of matrix products are rounded in a step."""
        kind = torch.device(self.device).type
        return nullcontext() if self.recipe.optimiser.precision == "float32" else torch.autocast(kind, torch.bfloat16)

    def _diverged(self, loss: float, norm: float) -> BadInput:
        self.save()
        return BadInput(
            f"Training diverged at step {self.step + 1}: the loss or its gradient is no longer a number.",
            expected="a finite loss and gradient",
            got=f"loss {loss:g}, norm of the gradient {norm:g}",
            remedy=f"Lower [optimiser] rate or [init] in the recipe and begin in another folder; step {self.step} is saved.",
        )

    def measured(self) -> JsonDict:
        """Metrics of the current weights: those of the last checkpoint if nothing was trained since."""
        if self.history and self.history[-1]["step"] == self.step:
            return self.history[-1]
        self._report("measuring")
        with making_on(self.device):
            metrics = measure(self.weights, self.streams, self.recipe.stage(max(0, self.step - 1)).context)
        return {"step": self.step, "tokens": self.tokens_seen, **metrics}

    def checkpoint(self, say: Say) -> None:
        """Write a checkpoint: the weights (float16) and their metrics."""
        metrics = self.measured()
        half = {name: value.cpu().contiguous() for name, value in self.weights.snapshot(torch.float16).items()}
        write_whole(self.out / "checkpoints" / f"step-{self.step:06d}.safetensors", save(half))
        self.history.append(metrics)
        write_run(self.out, self.recipe, self.history)
        say(f"checkpoint {self.step}: {summary(metrics)}")


def summary(metrics: JsonDict) -> str:
    """One line on a checkpoint's metrics."""
    scored = {n: [(v, i, h) for i, row in enumerate(rows) for h, v in enumerate(row)] for n, rows in metrics["heads"].items()}
    best = {n: max(scores) for n, scores in scored.items() if scores}  # a model without layers has no heads
    heads = "  ".join(f"{n} {v:.2f} (L{i}H{h})" for n, (v, i, h) in best.items() if n in ("prefix_matching", "previous_token"))
    return f"loss {metrics['loss']:.3f}  rep1 {metrics['rep1']:.2f}  rep2 {metrics['rep2']:.2f}  {heads}"
