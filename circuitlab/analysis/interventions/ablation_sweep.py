"""Many ablations on one prompt in batches: what replaces z, what is measured, and the changed forward passes.

    resid_mid' = resid_pre + Σ_h z'_h W_O^h + b_O,     z'_h = 0, a mean, or another text's z if head h is ablated, else z_h

An ablation replaces z, so that the head's output `z W_O` changes and the output bias stays. It equals an intervention at site `z`
that follows the subject's own. A batch starts from the recorded residual stream of the first layer in which a head is ablated.
Later layers are recomputed for each ablation, or with every pattern held at its recorded value (the pattern-preserving ablation
of Olsson et al. 2022); the last one only for the positions that are measured. An ablation that replaces z by what it is already
changes nothing, and is not run: another order of the same additions would differ from none by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs
from circuitlab.analysis.behaviour.samples import refuse_loss
from circuitlab.analysis.circuits.factors import has_bias
from circuitlab.analysis.interventions._metric import CELLS, Effect, Measure, measure_of
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor
from circuitlab.model.forward import after_heads, attended, rerun_from
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import ROWS, Run, unembed
from circuitlab.model.subject import Target

How = Literal["zero", "mean", "resample"]

ROUNDING = 16  # units in the last place of the largest z: a mean of means differs from them by less
AT_ONCE = 768  # rows (ablations × positions) per batch: a longer call could not be cancelled for a second


@dataclass(frozen=True, eq=False)
class Replacement:
    """What replaces the z of an ablated head. `other`: the clean run on the tokens `source`; None: this run itself."""

    how: How
    source: tuple[int, ...] = ()
    other: Run | None = None

    def __call__(self, layer: int, z: Tensor, start: int = 0) -> Tensor:
        """The replacement for z [..., head, pos, d_head], whose first position is `start`; broadcastable to z."""
        if self.how == "zero":
            return torch.zeros_like(z)
        donor = z if self.other is None else self.other.get("z", layer)
        if self.how == "mean":
            return donor.mean(dim=-2, keepdim=True)
        donor = donor[..., start : start + z.shape[-2], :]  # past the end of the other text z is left unchanged
        n = donor.shape[-2]
        return torch.cat([donor.expand(*z.shape[:-2], n, -1), z[..., n:, :]], dim=-2)

    def edit(self, layer: int, heads: tuple[int, ...]) -> Intervention:
        """The same ablation as an `Intervention`."""
        op = "patch" if self.how == "resample" else self.how
        return Intervention(op, Site("z", layer, heads), source=self.source)

    def words(self) -> str:
        """For captions."""
        other_text = f"another text of {number_of(len(self.source), 'token')}"
        if self.how == "zero":
            return "zero ablation of z"
        if self.how == "mean":
            whose = "this prompt" if self.other is None else other_text
            return f"mean ablation: z replaced by its mean over the positions of {whose}"
        return f"resample ablation: z replaced by that of {other_text}, position by position"

    def notes(self, run: Run) -> tuple[str, ...]:
        """For captions: what this does not do to a prompt of this length, and what zero takes away besides."""
        config, kept = run.weights.config, len(self.source)
        if self.how == "zero":
            return ("the value bias that heads carry is taken away too",) if has_bias(config, "v") else ()
        if self.how == "mean" and self.other is None and run.n == 1:
            return ("the mean over one position is its own value: nothing is ablated",)
        if self.how == "resample" and kept < run.n:
            return (f"positions from {kept} on have no counterpart there and keep their own z",)
        return ()


def replacement_from(inputs: Inputs, how: How, source: tuple[int, ...]) -> Replacement:
    """The replacement, with the forward pass on the other text if it needs one."""
    return Replacement(how, source, inputs.run(source, ()) if how != "zero" and source else None)


def at_once(n: int) -> int:
    """How many ablations of a prompt of n tokens fit in one batch."""
    return max(1, AT_ONCE // n)


def ablated_streams(run: Run, cut: Tensor, replacement: Replacement, held: bool, dest: slice, tick: Callable[[], None]) -> Tensor:
    """[batch, dest, d_model]: final residual streams with the heads of `cut` bool [batch, layer, head] ablated.

    Not for a run with interventions along paths: see `ablated_one`. `tick()` is called twice per layer.
    """
    weights, last = run.weights, run.weights.config.n_layers - 1
    touched = cut.any(dim=0).any(dim=1)
    first = int(touched.int().argmax())
    x, z = run.get("resid_pre", first)[None], run.get("z", first)[None]
    for i in range(first, last + 1):
        layer, narrow = weights.layer(i), i == last and not _needs_all(run, replacement, i, bool(touched[i]))
        rows = dest if narrow else slice(None)
        tick()
        if i > first:
            x = run.editor.apply("resid_pre", i, x)
            z = attended(run, i, layer, x, held, rows)
        elif narrow:
            z = z[..., rows, :]
        if touched[i]:
            z = torch.where(cut[:, i, :, None, None], replacement(i, z, rows.start or 0), z)
        tick()
        x = after_heads(run, i, layer, x[..., rows, :], z)
        if i == last and not narrow:
            x = x[..., dest, :]
    return x.expand(len(cut), -1, -1)


def last_layer_losses(run: Run, cut: Tensor, replacement: Replacement, measure: Measure, tick: Callable[[], None]) -> Tensor:
    """[batch, row] losses in nats with last-layer heads ablated, `cut` bool [batch, head], where only W_U follows.

    The logits change by (z'_h − z_h) (W_O^h W_U): d_head products per token instead of d_model.
    """
    last, ends = run.weights.config.n_layers - 1, run.weights.unembed()
    z, W_O = run.get("z", last), run.weights.layer(last).W_O
    change, tables = (replacement(last, z) - z)[:, measure.at], {}
    for h in torch.nonzero(cut.any(dim=0))[:, 0].tolist():
        tick()
        tables[h] = W_O[h] @ ends.W_U
    assert run.final is not None
    targets, out = torch.tensor(run.tokens)[measure.at + 1], z.new_zeros(len(cut), len(measure.at))
    for rows in torch.arange(len(measure.at)).split(ROWS):
        logits = unembed(run.weights, ends, run.final[measure.at[rows]])
        for one, losses in zip(cut, out, strict=True):
            tick()
            changes = [change[h, rows] @ tables[h] for h in torch.nonzero(one)[:, 0].tolist()]
            losses[rows] = F.cross_entropy(sum(changes, logits), targets[rows], reduction="none")
    return out


def _needs_all(run: Run, replacement: Replacement, layer: int, cuts: bool) -> bool:
    """Whether the last layer needs every position: it has interventions, or z is replaced by the mean over this run."""
    return (cuts and replacement.how == "mean" and replacement.other is None) or any(e.site.layer == layer for e in run.edits)


class Holding(Editor):
    """An editor that applies a run's interventions and holds every pattern at its value in that run."""

    def __init__(self, edits: tuple[Intervention, ...], run: Run, source: Callable[[tuple[int, ...]], Run]) -> None:
        super().__init__(edits, run.tokens, source)
        self._run = run

    def touches(self, layer: int, *names: str) -> bool:
        """Whether anything happens at these sites; at patterns it always does."""
        return "pattern" in names or super().touches(layer, *names)

    def apply(self, name: str, layer: int, x: Tensor, start: int = 0, heads: tuple[int, ...] | None = None) -> Tensor:
        """The recorded pattern, or x after the interventions at this site."""
        if name == "pattern":
            return self._run.get("pattern", layer, heads or (), slice(start, start + x.shape[-2]))
        return super().apply(name, layer, x, start, heads)


def ablated_one(inputs: Inputs, run: Run, cut: Tensor, replacement: Replacement, held: bool) -> Tensor:
    """[1, pos, d_model]: one ablation, bool [layer, head], run as interventions, which is also right along paths."""
    layers = torch.nonzero(cut.any(dim=1))[:, 0].tolist()
    if not layers:
        assert run.final is not None
        return run.final[None]
    edits = run.edits + tuple(replacement.edit(i, tuple(torch.nonzero(cut[i])[:, 0].tolist())) for i in layers)
    other = replacement.other
    source = lambda tokens: other if other is not None and tokens == replacement.source else inputs.run(tokens, ())
    editor = Holding(edits, run, source) if held else Editor(edits, run.tokens, source)
    return rerun_from(run, edits, editor, layers[0])[None]


def has_paths(run: Run) -> bool:
    """Whether the run has interventions along paths."""
    return any(e.path_from is not None for e in run.edits)


@dataclass(frozen=True, eq=False)
class AblationSweep:
    """One prompt, ready for ablations of sets of heads under one replacement and one measure.

    `before`: the measure without ablation; `losses` [row]: the losses that enter it; `slope` [pos, d_model]: its gradient with
    respect to the final residual stream, None unless requested. `held`: later patterns keep their recorded values.
    """

    inputs: Inputs
    run: Run
    replacement: Replacement
    measure: Measure
    held: bool
    before: float
    losses: Tensor
    slope: Tensor | None = None
    _idle: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def idle(self, layer: int) -> Tensor:
        """[head] bool: whether z is what would replace it but for rounding, as after the same ablation in the subject itself."""
        if layer not in self._idle:
            z = self.run.get("z", layer)
            change, size = ((self.replacement(layer, z) - z).abs().amax((-1, -2)), z.abs().amax((-1, -2)))
            self._idle[layer] = (change <= ROUNDING * torch.finfo(z.dtype).eps * size).cpu()
        return self._idle[layer]

    def _effective(self, heads: Tensor) -> Tensor:
        """The heads of bool [batch, layer, head] that are not idle."""
        layers = torch.nonzero(heads.any(dim=0).any(dim=1))[:, 0].tolist()
        effective = heads.clone()
        for i in layers:
            effective[:, i] &= ~self.idle(i)
        return effective

    @property
    def linear_end(self) -> bool:
        """Whether logits are linear in the last layer's z and `last_layer_losses` is the cheaper way."""
        c, last = self.run.weights.config, self.run.weights.config.n_layers - 1
        plain = c.attention_only and (c.norm == "none" or not c.final_norm) and c.norm_placement == "pre" and not c.logit_soft_cap
        edited = self.run.editor.touches(last, "result")
        return plain and not edited and self.measure.aim is None and len(self.measure.at) >= 2 * c.d_head

    def at_once(self, layer: int) -> int:
        """How many single-head ablations of a layer fit in one batch."""
        c = self.run.weights.config
        return c.n_heads if self.linear_end and layer == c.n_layers - 1 else at_once(self.run.n)

    def cut(self, heads: Tensor, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """(value [batch], losses [batch, row]) with the heads of bool [batch, layer, head] ablated."""
        with torch.inference_mode():
            effective = self._effective(heads)
            runs = effective.any(dim=-1).any(dim=-1)
            value = torch.full((len(heads),), self.before, dtype=torch.float64)
            losses = self.losses.expand(len(heads), -1).clone()
            if bool(runs.any()):
                changed, changed_losses = self._cut(effective[runs], tick)
                value[runs] = changed.to(value)
                losses[runs.to(losses.device)] = changed_losses.to(losses)
            return value, losses

    def _cut(self, heads: Tensor, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """The same, of ablations that change something."""
        dest = self.measure.dest
        with torch.inference_mode():
            if self.linear_end and not bool(heads[:, :-1].any()):
                losses = last_layer_losses(self.run, heads[:, -1], self.replacement, self.measure, tick)
                return self.measure.value(self.run, self.run.final[None], losses), losses  # type: ignore[index]
            if not has_paths(self.run):
                return self.measure(self.run, ablated_streams(self.run, heads, self.replacement, self.held, dest, tick), tick)
            measured = []
            for one in heads:
                tick()
                final = ablated_one(self.inputs, self.run, one, self.replacement, self.held)[:, dest]
                measured.append(self.measure(self.run, final, tick))
            return torch.cat([v for v, _ in measured]), torch.cat([losses for _, losses in measured])


def prepare_sweep(
    inputs: Inputs,
    how: How,
    source: tuple[int, ...],
    held: bool,
    effect: Effect,
    target: Target,
    position: int,
    tick: Callable[[], None],
    sloped: bool = False,
) -> AblationSweep:
    """A sweep over the subject's own run, interventions included. Raises `BadInput` as `measure_of` does.

    `tick()` is called between tiles of rows. `sloped`: compute the gradient for first-order estimates too.
    """
    replacement, run = replacement_from(inputs, how, source), inputs.run()
    measure, slope = measure_of(inputs, run, effect, target, position), None
    assert run.final is not None
    with torch.inference_mode():
        final = run.final[None, measure.dest]
        if sloped:
            losses, slope = measure.slope(run, tick)
            value = measure.value(run, final, losses[None])
        else:
            value, (losses,) = measure(run, final, tick)
    return AblationSweep(inputs, run, replacement, measure, held, float(value[0]), losses, slope)


def sweep_conventions(sweep: AblationSweep) -> tuple[str, ...]:
    """The conventions of the replacement and the measure, for captions."""
    patterns = "later patterns held at their recorded values" if sweep.held else "later patterns recomputed"
    n = len(sweep.run.edits)
    edits = (f"on top of {number_of(n, 'intervention')}",) if n else ()
    notes = sweep.replacement.notes(sweep.run)
    return (sweep.replacement.words(), *notes, patterns, *edits, f"{sweep.measure.words}, {sweep.measure.unit}")


def sweep_refusal(config: ModelConfig, how: How, source: tuple[int, ...], effect: Effect) -> str | None:
    """Why this ablation or its measure does not apply to the model, or None."""
    if how == "resample" and not source:
        return "resample ablation takes z from another text: give that text's tokens as source."
    if effect != "target" and (reason := refuse_loss(config)):
        return f"{reason} Measure a target instead of the loss."
    return None


def sweep_bytes(config: ModelConfig, n: int, source: tuple[int, ...] = ()) -> int:
    """Memory bound in bytes: a batch of ablations, the unembedding of a tile, and the run on the other text."""
    rows, heads = max(n, AT_ONCE), config.n_heads * config.d_head
    block = rows * (8 * config.d_model + 10 * heads + 3 * config.d_mlp)
    patterns = 3 * config.n_heads * n * rows  # of each at once, where scores are capped or interventions see patterns
    tables = heads * config.d_vocab_out if config.attention_only and n > 2 * config.d_head else 0
    other = len(source) * config.n_layers * (config.d_model + 3 * heads)
    logits = 3 * ROWS * config.d_vocab_out + 3 * min(CELLS, rows * config.d_vocab_out)
    return 8 * (block + patterns + logits + tables + other)


def ticker(ctx: Ctx, done: int, total: int, text: str) -> Callable[[], None]:
    """A `tick()` that reports one fixed state of progress."""
    return lambda: ctx.tick(done, total, text)
