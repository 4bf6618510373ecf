"""This run and the run on another prompt, aligned, with the target measured on both: the basis of all patching."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs, read_only
from circuitlab.analysis.interventions._partial_reruns import Span, Tick, span_of
from circuitlab.analysis.interventions.ablation_sweep import has_paths
from circuitlab.analysis.interventions.alignment import Alignment, alignment_of
from circuitlab.analysis.target import TargetVector, position_of, target_at
from circuitlab.counting import number
from circuitlab.errors import BadInput
from circuitlab.model.forward import check_tokens, forward
from circuitlab.model.intervention import Intervention
from circuitlab.model.run import Run
from circuitlab.model.subject import Target


@dataclass(frozen=True, eq=False)
class PromptPair:
    """`run` has the subject's interventions; `other_run`, on the tokens `source`, has none. The target is read at position `at`.

    `clean`, `other`: the target on this prompt, and on the other one at the partner of `at`; NaN without a partner.
    """

    inputs: Inputs
    run: Run
    other_run: Run
    aligned: Alignment
    aim: TargetVector
    at: int
    span: Span
    clean: float
    other: float

    @property
    def source(self) -> tuple[int, ...]:
        """The other prompt's tokens."""
        return self.other_run.tokens

    @property
    def align(self) -> tuple[int, ...]:
        """The alignment in the form of `Intervention.align`."""
        return tuple(self.aligned.align.tolist())

    @property
    def donor(self) -> str:
        """The run that activations are taken from, for captions."""
        return "this prompt without its interventions" if self.source == self.run.tokens else "the other prompt"

    @property
    def paths(self) -> bool:
        """Whether an intervention acts along a path, so that its effect depends on its sender's output in the changed run."""
        return has_paths(self.run)

    def shared(self, layer: int) -> int:
        """How many leading positions agree in both runs at this layer: the same tokens and no intervention so far."""
        return 0 if any(e.site.layer <= layer for e in self.run.edits) else self.aligned.first_difference

    def intervened(self, edit: Intervention, tick: Tick) -> Tensor:
        """[1]: the target of this run with one more intervention, from a forward pass of its own."""
        run, edits = self.run, (*self.run.edits, edit)
        changed = forward(run.weights, run.tokens, edits, None, lambda tokens: self.inputs.run(tokens, ()), lambda i, n: tick())
        assert changed.final is not None
        return self.aim.measure(run.weights, changed.final[self.at, None])

    def result_fields(self) -> dict[str, Any]:
        """What every result of patching says of the pair: alignment, target tokens, position, and the target's two values."""
        return {
            "align": self.aligned.align,
            "differs": self.aligned.differs,
            "ids": read_only(self.aim.ids[0].cpu().numpy().copy()),
            "clean": self.clean,
            "other": self.other,
            "at": self.at,
        }

    def words(self) -> tuple[str, ...]:
        """For captions: the target, its values on both prompts, the alignment."""
        alike = () if differ(self.clean, self.other) else (f"no normalised effect: {_why_alike(self.other)}",)
        values = f"{number(self.clean, '.3f')} on this prompt"
        values += "" if math.isnan(self.other) else f", {number(self.other, '.3f')} on {self.donor}"
        return (f"{self.aim.words}, position {self.at}: {values}", *alike, self.aligned.words, "later patterns recomputed")


class PatchEffects:
    """The effects in a result of patching. `values`: the target after each patch; `clean`, `other`: on either prompt.

    A base class without fields, so that each result keeps the order of its own.
    """

    values: np.ndarray
    clean: float
    other: float
    ACROSS: ClassVar[Mapping[str, str]] = {"effect": "logit", "normalised": "dimensionless"}

    @property
    def effect(self) -> np.ndarray:
        """Patched − clean, on the axes of `values`."""
        return self.values - self.clean

    @property
    def normalised(self) -> np.ndarray:
        """(patched − clean) / (other − clean), on the axes of `values`; NaN if both prompts give the same value."""
        if not differ(self.clean, self.other):
            return np.full_like(self.values, np.nan)
        return self.effect / (self.other - self.clean)


def prompt_pair(inputs: Inputs, source: tuple[int, ...], target: Target, position: int, contrast: bool, ctx: Ctx) -> PromptPair:
    """Both runs; `source` () stands for this prompt without its interventions.

    `contrast`: without a target, take the other prompt's most probable token minus this prompt's.
    Raises `BadInput` as the forward pass does, and if both runs are the same, so that nothing could be patched.
    """
    if source in ((), inputs.subject.tokens) and not inputs.subject.edits:
        raise BadInput(
            "There is nothing to patch: both runs are the same.",
            expected="source: the tokens of another prompt; or an intervention on this prompt, to be undone by patches",
            got="no source" if not source else "this prompt's own tokens, and no intervention",
            remedy="Give source=…, or ablate something first.",
        )
    if source:
        check_tokens(inputs.weights.config, source, "The other prompt")
    run = inputs.run()
    ctx.tick(0, 1, "run on the other prompt")
    other_run = inputs.run(source or run.tokens, ())
    aligned = alignment_of(run.tokens, other_run.tokens)
    at = position_of(run.n, position)
    partner = int(aligned.align[at])
    if contrast and partner >= 0 and not (target.tokens or target.direction):
        target = Target(tuple(dict.fromkeys((_top(other_run, partner), _top(run, at)))))
    aim = target_at(inputs, target, (at,), run)
    clean, other = _measured(aim, run, at), _measured(aim, other_run, partner) if partner >= 0 else math.nan
    return PromptPair(inputs, run, other_run, aligned, aim, at, span_of(run, at), clean, other)


def _top(run: Run, position: int) -> int:
    """The most probable token after a position."""
    return int(run.logits(slice(position, position + 1)).argmax())


def _measured(aim: TargetVector, run: Run, position: int) -> float:
    assert run.final is not None
    with torch.inference_mode():
        return float(aim.measure(run.weights, run.final[position, None])[0])


def differ(clean: float, other: float) -> bool:
    """Whether two target values are far enough apart to divide by their difference."""
    return abs(other - clean) > 1e-6 * max(1.0, abs(clean), abs(other))


def _why_alike(other: float) -> str:
    return "this position has no partner in the other prompt" if math.isnan(other) else "the target is the same in both runs"
