"""Applying interventions: `Editor` rewrites values as the forward pass, or a recomputation in `Run`, produces them.

A tensor at a site is [..., pos, width] (resid_pre, mlp_out) or [..., head, pos, width]; for scores and pattern the width is
the source axis. Values are never written in place: what was captured stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import HEADLESS, Intervention, Site
from circuitlab.model.path_reading import Reading, readings_of

if TYPE_CHECKING:
    from circuitlab.model.run import Run

SourceRun = Callable[[tuple[int, ...]], "Run"]


def check_edits(config: ModelConfig, edits: tuple[Intervention, ...], n_tokens: int) -> None:
    """Raise `BadInput` where an intervention names a layer, head or position that does not exist."""
    for edit in edits:
        for site in (edit.site, edit.path_from):
            if site is not None:
                _check_site(config, site, n_tokens)
        if edit.path_from is not None and config.norm_placement not in ("pre",):
            raise BadInput("A path intervention needs norms before the sublayers.", expected="pre", got=config.norm_placement)
        if edit.align and len(edit.align) != n_tokens:
            raise BadInput(
                "The alignment of a patch does not fit the prompt.",
                expected=number_of(n_tokens, "position"),
                got=str(len(edit.align)),
            )


def _check_site(config: ModelConfig, site: Site, n_tokens: int) -> None:
    heads = config.n_kv_heads if site.name in ("k", "v") else config.n_heads
    for what, values, limit in (
        ("layer", (site.layer,), config.n_layers),
        ("head", site.heads, heads),
        ("position", (*site.positions, *site.sources), n_tokens),
    ):
        if bad := [v for v in values if not 0 <= v < limit]:
            raise BadInput(f"An intervention names a {what} that is not there.", expected=f"0..{limit - 1}", got=str(bad))
    if site.name == "mlp_out" and config.attention_only:
        raise BadInput("This model has no MLP.", expected="an attention site", got="mlp_out")


class Editor:
    """The interventions of one run. `source(tokens)` gives the clean run on other tokens."""

    def __init__(self, edits: tuple[Intervention, ...], tokens: tuple[int, ...], source: SourceRun) -> None:
        self.edits, self._tokens, self._source = edits, tokens, source
        self._sites = {(e.site.name, e.site.layer) for e in edits}

    def touches(self, layer: int, *names: str) -> bool:
        """Whether any intervention acts at one of these sites of this layer."""
        return any((name, layer) in self._sites for name in names)

    def paths(self, layer: int, name: str) -> list[Intervention]:
        """Interventions at this site that act along a path only."""
        return [e for e in self.edits if e.path_from is not None and (e.site.name, e.site.layer) == (name, layer)]

    def readings(self, run: Run, layer: int) -> list[Reading]:
        """What reads another stream in this layer, because of interventions along paths; earlier layers of `run` are done."""
        return readings_of(self, run, layer)

    def apply(self, name: str, layer: int, x: Tensor, start: int = 0, heads: tuple[int, ...] | None = None) -> Tensor:
        """x after every intervention at this site. x begins at position `start`; `heads` says which heads it holds."""
        if (name, layer) not in self._sites:
            return x
        for edit in self.edits:
            if edit.path_from is None and (edit.site.name, edit.site.layer) == (name, layer):
                x = self.operate(edit, edit.site, x, start, heads)
        return x

    def operate(self, edit: Intervention, site: Site, x: Tensor, start: int, heads: tuple[int, ...] | None) -> Tensor:
        """One operation on the chosen heads and positions of x, everything else as it was."""
        chosen = self.where(site, x, start, heads)
        return torch.where(chosen, self._new_value(edit, site, x, start, heads), x)

    def where(self, site: Site, x: Tensor, start: int, heads: tuple[int, ...] | None) -> Tensor:
        """Bool, broadcastable to x: where the site is."""
        on = x.device
        rows = torch.ones(x.shape[-2], dtype=torch.bool, device=on)
        if site.positions:
            here = torch.arange(start, start + x.shape[-2], device=on)
            rows = torch.isin(here, torch.tensor(site.positions, device=on))
        chosen = rows[:, None]
        if site.name not in HEADLESS and site.heads:
            head_indices = torch.arange(x.shape[-3], device=on) if heads is None else torch.tensor(heads, device=on)
            chosen = torch.isin(head_indices, torch.tensor(site.heads, device=on))[:, None, None] & chosen
        if site.sources:
            chosen = chosen & torch.isin(torch.arange(x.shape[-1], device=on), torch.tensor(site.sources, device=on))
        return chosen

    def _new_value(self, edit: Intervention, site: Site, x: Tensor, start: int, heads: tuple[int, ...] | None) -> Tensor:
        if edit.op == "zero":
            return torch.zeros_like(x)
        if edit.op == "scale":
            return x * edit.value[0]
        if edit.op == "set":
            return self._constant(edit, x)
        if edit.op == "mean" and not edit.source:
            return x.mean(dim=-2, keepdim=True).expand_as(x)
        run = self._source(edit.source or self._tokens)
        taken = run.get(site.name, site.layer, heads or ())
        if edit.op == "mean":
            return taken.mean(dim=-2, keepdim=True).expand_as(x)
        return self._aligned(edit, site, x, taken, start)

    def _constant(self, edit: Intervention, x: Tensor) -> Tensor:
        if len(edit.value) not in (1, x.shape[-1]):
            raise BadInput(
                f"The value set at {edit.site.name} has the wrong width.",
                expected=f"1 or {number_of(x.shape[-1], 'number')}",
                got=str(len(edit.value)),
            )
        return torch.tensor(edit.value, dtype=x.dtype, device=x.device).expand_as(x)

    def _aligned(self, edit: Intervention, site: Site, x: Tensor, other: Tensor, start: int) -> Tensor:
        here = range(start, start + x.shape[-2])
        align = edit.align or tuple(range(len(self._tokens)))
        limit = other.shape[-2]
        rows = torch.tensor([align[p] if align[p] < limit else -1 for p in here], device=x.device)
        taken = other[..., rows.clamp(min=0), :]
        if site.name in ("scores", "pattern"):
            columns = torch.tensor([a if a < limit else -1 for a in align[: x.shape[-1]]], device=x.device)
            taken = taken[..., columns.clamp(min=0)]
            taken = torch.where(columns >= 0, taken, x) if site.name == "scores" else taken * (columns >= 0)
        return torch.where((rows >= 0)[:, None], taken, x)
