"""What ablations share: what is put in place of z, what is measured, and many ablations of one prompt at a time.

    resid_mid' = resid_pre + Σ_h z'_h W_O^h + b_O,     z'_h = 0, a mean, or another text's z where a head is cut, else its own

An ablation replaces z, so a head's output `z W_O` goes and the output bias stays: the same as an intervention at site `z` after
the subject's own ones. A batch begins at the first layer in which anything is cut, from the recorded stream there; later layers
are computed again for each (or with every pattern held at its recorded value: the pattern-preserving ablation of Olsson et al.
2022), in the last one only for the positions that are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.base import Ctx, Inputs
from circuitlab.analysis.interventions._metric import CELLS, Effect, Measure, measure_of
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor
from circuitlab.model.forward import after_heads, attended, rerun_from
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import ROWS, Run, unembed
from circuitlab.model.subject import Target

How = Literal["zero", "mean", "resample"]

AT_ONCE = 768  # rows (ablations × positions) that go through a block together: a call of a second could not be cancelled


@dataclass(frozen=True, eq=False)
class Put:
    """What a cut head's z becomes. `other`: the clean run on another text; None: this run itself (zero needs none)."""

    how: How
    source: tuple[int, ...] = ()
    other: Run | None = None

    def __call__(self, layer: int, z: Tensor, start: int = 0) -> Tensor:
        """Every head's replacement for z [..., head, pos, d_head], which begins at position `start`; broadcastable to it."""
        if self.how == "zero":
            return torch.zeros_like(z)
        there = z if self.other is None else self.other.get("z", layer)
        if self.how == "mean":
            return there.mean(dim=-2, keepdim=True)
        there = there[..., start : start + z.shape[-2], :]  # past the end of the other text z stays as it is
        n = there.shape[-2]
        return torch.cat([there.expand(*z.shape[:-2], n, -1), z[..., n:, :]], dim=-2)

    def edit(self, layer: int, heads: tuple[int, ...]) -> Intervention:
        """The same as an intervention."""
        op = "patch" if self.how == "resample" else self.how
        return Intervention(op, Site("z", layer, heads), source=self.source)

    def words(self) -> str:
        """For captions."""
        if self.how == "zero":
            return "zero ablation of z"
        if self.how == "mean":
            whose = "this prompt" if self.other is None else f"another text of {number_of(len(self.source), 'token')}"
            return f"z becomes its mean over the positions of {whose}"
        return f"z becomes that of another text of {number_of(len(self.source), 'token')}, position by position"


def put_of(inputs: Inputs, how: How, source: tuple[int, ...]) -> Put:
    """The replacement; runs the other text where there is one."""
    return Put(how, source, inputs.run(source, ()) if how != "zero" and source else None)


def at_once(n: int) -> int:
    """How many ablations of a prompt of n tokens go together."""
    return max(1, AT_ONCE // n)


def cut_streams(run: Run, cut: Tensor, put: Put, held: bool, dest: slice, tick: Callable[[], None]) -> Tensor:
    """[batch, dest, d_model]: the last streams with the heads of `cut` bool [batch, layer, head] ablated.

    Not for a run with interventions along paths (`cut_one`). `tick()` is called twice a layer.
    """
    weights, last = run.weights, run.weights.config.n_layers - 1
    touched = cut.any(dim=0).any(dim=1)
    first = int(touched.int().argmax())
    x, z = run.get("resid_pre", first)[None], run.get("z", first)[None]
    for i in range(first, last + 1):
        layer, narrow = weights.layer(i), i == last and not _needs_all(run, put, i, bool(touched[i]))
        rows = dest if narrow else slice(None)
        tick()
        if i > first:
            x = run.editor.apply("resid_pre", i, x)
            z = attended(run, i, layer, x, held, rows)
        elif narrow:
            z = z[..., rows, :]
        if touched[i]:
            z = torch.where(cut[:, i, :, None, None], put(i, z, rows.start or 0), z)
        tick()
        x = after_heads(run, i, layer, x[..., rows, :], z)
        if i == last and not narrow:
            x = x[..., dest, :]
    return x.expand(len(cut), -1, -1)


def behind_last(run: Run, cut: Tensor, put: Put, measure: Measure, tick: Callable[[], None]) -> Tensor:
    """[batch, row], nats, with the last layer's heads of `cut` bool [batch, head] ablated, where nothing but W_U follows.

    The logits change by (z'_h − z_h) (W_O^h W_U): d_head products a token in place of d_model.
    """
    last, ends = run.weights.config.n_layers - 1, run.weights.unembed()
    z, W_O = run.get("z", last), run.weights.layer(last).W_O
    change, tables = (put(last, z) - z)[:, measure.at], {}
    for h in torch.nonzero(cut.any(dim=0))[:, 0].tolist():
        tick()
        tables[h] = W_O[h] @ ends.W_U
    assert run.final is not None
    wanted, out = torch.tensor(run.tokens)[measure.at + 1], z.new_zeros(len(cut), len(measure.at))
    for rows in torch.arange(len(measure.at)).split(ROWS):
        logits = unembed(run.weights, ends, run.final[measure.at[rows]])
        for one, losses in zip(cut, out, strict=True):
            tick()
            changes = [change[h, rows] @ tables[h] for h in torch.nonzero(one)[:, 0].tolist()]
            losses[rows] = F.cross_entropy(sum(changes, logits), wanted[rows], reduction="none")
    return out


def _needs_all(run: Run, put: Put, layer: int, cuts: bool) -> bool:
    """Whether the last layer cannot be computed for some positions alone: interventions, or a mean over the run itself."""
    return (cuts and put.how == "mean" and put.other is None) or any(e.site.layer == layer for e in run.edits)


class Holding(Editor):
    """The interventions of a run, and every pattern held at what it is in that run."""

    def __init__(self, edits: tuple[Intervention, ...], run: Run, source: Callable[[tuple[int, ...]], Run]) -> None:
        super().__init__(edits, run.tokens, source)
        self._run = run

    def touches(self, layer: int, *names: str) -> bool:
        """Patterns always are."""
        return "pattern" in names or super().touches(layer, *names)

    def apply(self, name: str, layer: int, x: Tensor, start: int = 0, heads: tuple[int, ...] | None = None) -> Tensor:
        """The recorded pattern, or x after every intervention at this site."""
        if name == "pattern":
            return self._run.get("pattern", layer, heads or (), slice(start, start + x.shape[-2]))
        return super().apply(name, layer, x, start, heads)


def cut_one(inputs: Inputs, run: Run, cut: Tensor, put: Put, held: bool) -> Tensor:
    """[1, pos, d_model]: one ablation, bool [layer, head], as interventions of a whole pass: right along paths too."""
    layers = torch.nonzero(cut.any(dim=1))[:, 0].tolist()
    if not layers:
        assert run.final is not None
        return run.final[None]
    edits = run.edits + tuple(put.edit(i, tuple(torch.nonzero(cut[i])[:, 0].tolist())) for i in layers)
    source = lambda tokens: put.other if put.other is not None and tokens == put.source else inputs.run(tokens, ())
    editor = Holding(edits, run, source) if held else Editor(edits, run.tokens, source)
    return rerun_from(run, edits, editor, layers[0])[None]


def has_paths(run: Run) -> bool:
    """Whether the run has interventions along paths."""
    return any(e.path_from is not None for e in run.edits)


@dataclass(frozen=True, eq=False)
class Bench:
    """One prompt on which sets of heads are cut and one thing is measured.

    `before`: the value of the run as it is, `losses` [row] what it is made of, `slope` [pos, d_model] its gradient with
    respect to the last stream, where it was asked for.
    """

    inputs: Inputs
    run: Run
    put: Put
    measure: Measure
    held: bool
    before: float
    losses: Tensor
    slope: Tensor | None = None

    @property
    def linear_end(self) -> bool:
        """Whether logits are linear in the last layer's z, and that is the cheaper way to many losses."""
        c, last = self.run.weights.config, self.run.weights.config.n_layers - 1
        plain = c.attention_only and (c.norm == "none" or not c.final_norm) and c.norm_placement == "pre" and not c.logit_soft_cap
        edited = self.run.editor.touches(last, "result")
        return plain and not edited and self.measure.aim is None and len(self.measure.at) >= 2 * c.d_head

    def at_once(self, layer: int) -> int:
        """How many heads of a layer are cut one by one in one go."""
        c = self.run.weights.config
        return c.n_heads if self.linear_end and layer == c.n_layers - 1 else at_once(self.run.n)

    def cut(self, heads: Tensor, tick: Callable[[], None]) -> tuple[Tensor, Tensor]:
        """(value [batch], losses [batch, row]) with the heads of bool [batch, layer, head] ablated; none: the run itself."""
        dest = self.measure.dest
        with torch.inference_mode():
            if self.linear_end and not bool(heads[:, :-1].any()):
                losses = behind_last(self.run, heads[:, -1], self.put, self.measure, tick)
                return self.measure.value(self.run, self.run.final[None], losses), losses  # type: ignore[index]
            if not has_paths(self.run):
                return self.measure(self.run, cut_streams(self.run, heads, self.put, self.held, dest, tick), tick)
            found = []
            for one in heads:
                tick()
                final = cut_one(self.inputs, self.run, one, self.put, self.held)[:, dest]
                found.append(self.measure(self.run, final, tick))
            return torch.cat([v for v, _ in found]), torch.cat([losses for _, losses in found])


def bench(
    inputs: Inputs,
    how: How,
    source: tuple[int, ...],
    held: bool,
    effect: Effect,
    target: Target,
    position: int,
    tick: Callable[[], None],
    sloped: bool = False,
) -> Bench:
    """The subject's own run, interventions included, made ready for ablations. Raises `BadInput`.

    `tick()` is called between tiles of rows. `sloped`: the slope for first-order estimates is measured in the same go.
    """
    put, run = put_of(inputs, how, source), inputs.run()
    measure, slope = measure_of(inputs, run, effect, target, position), None
    assert run.final is not None
    with torch.inference_mode():
        final = run.final[None, measure.dest]
        if sloped:
            losses, slope = measure.slope(run, tick)
            value = measure.value(run, final, losses[None])
        else:
            value, (losses,) = measure(run, final, tick)
    return Bench(inputs, run, put, measure, held, float(value[0]), losses, slope)


def said(made: Bench) -> tuple[str, ...]:
    """The conventions of what was cut and measured."""
    held = "later patterns held at their recorded values" if made.held else "later patterns recomputed"
    n = len(made.run.edits)
    own = (f"on top of {number_of(n, 'intervention')}",) if n else ()
    return (made.put.words(), held, *own, f"{made.measure.words}, {made.measure.unit}")


def refused(config: ModelConfig, how: How, source: tuple[int, ...], effect: Effect) -> str | None:
    """Why an ablation cannot be made or measured on this model, or None."""
    if how == "resample" and not source:
        return "resampling takes z of another text: give its tokens as source."
    if effect != "target" and config.d_vocab_out < config.d_vocab:
        return "this model cannot predict every token that it reads: measure a target in place of the loss."
    return None


def bytes_of(config: ModelConfig, n: int, source: tuple[int, ...] = ()) -> int:
    """A bound on what a batch of ablations, the unembedding of a tile and the other text's run hold."""
    rows, heads = max(n, AT_ONCE), config.n_heads * config.d_head
    block = rows * (8 * config.d_model + 10 * heads + 3 * config.d_mlp)
    patterns = 3 * config.n_heads * n * rows  # of each at once, where scores are capped or interventions see patterns
    tables = heads * config.d_vocab_out if config.attention_only and n > 2 * config.d_head else 0
    other = len(source) * config.n_layers * (config.d_model + 3 * heads)
    logits = 3 * ROWS * config.d_vocab_out + 3 * min(CELLS, rows * config.d_vocab_out)
    return 8 * (block + patterns + logits + tables + other)


def ticker(ctx: Ctx, done: int, total: int, text: str) -> Callable[[], None]:
    """A `tick()` at one place of the work."""
    return lambda: ctx.tick(done, total, text)
