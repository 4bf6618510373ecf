"""Applying interventions: `Editor` rewrites values as the forward pass, or a recomputation in `Run`, produces them.

A tensor at a site is [..., pos, width] (resid_pre, mlp_out) or [..., head, pos, width]; for scores and pattern the width is
the source axis. Values are never written in place, so that captured ones do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import DIRECTED, HEADLESS, Intervention, Site, SiteName
from circuitlab.model.path_reading import READS, Reading
from circuitlab.model.weights import Weights


class Activations(Protocol):
    """What an editor reads of a forward pass (`Run`): its weights, its length and the values of the layers computed so far."""

    @property
    def weights(self) -> Weights:
        """The weights of the pass."""
        ...

    @property
    def n(self) -> int:
        """Number of positions."""
        ...

    def get(self, name: str, layer: int, heads: tuple[int, ...] = ()) -> Tensor:
        """A named value of one layer, interventions included."""
        ...


SourceRun = Callable[[tuple[int, ...]], Activations]
Cells = tuple[SiteName, Tensor, list[Intervention]]  # q, k or v; chosen bool [head, pos or 1, 1]; what acts on their input


def check_edits(config: ModelConfig, edits: tuple[Intervention, ...], n_tokens: int) -> None:
    """Raise `BadInput` where an intervention names a layer, head or position that does not exist."""
    for edit in edits:
        for site in (edit.site, edit.path_from):
            if site is not None:
                _check_site(config, site, n_tokens)
        if edit.path_from is not None and config.norm_placement not in ("pre",):
            raise BadInput(
                "A path intervention needs norms before the sublayers.",
                expected="pre",
                got=config.norm_placement,
                remedy="Intervene on a whole activation instead, or open a model of that kind.",
            )
        if edit.align and len(edit.align) != n_tokens:
            raise BadInput(
                "The alignment of a patch does not fit the prompt.",
                expected=number_of(n_tokens, "position"),
                got=str(len(edit.align)),
                remedy="Give one position, or none, for each token of the prompt.",
            )


def _check_site(config: ModelConfig, site: Site, n_tokens: int) -> None:
    heads = config.n_kv_heads if site.name in ("k", "v") else config.n_heads
    for what, values, limit in (
        ("layer", (site.layer,), config.n_layers),
        ("head", site.heads, heads),
        ("position", (*site.positions, *site.sources), n_tokens),
    ):
        if bad := [v for v in values if not 0 <= v < limit]:
            raise BadInput(
                f"An intervention names a {what} that does not exist.",
                expected=f"0..{limit - 1}",
                got=str(bad),
                remedy="Change the intervention to one that is within the model and the prompt.",
            )
    if site.name == "mlp_out" and config.attention_only:
        raise BadInput(
            "This model has no MLP.",
            expected="an attention site",
            got="mlp_out",
            remedy="Choose a site of attention, or a model with MLPs.",
        )


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

    def readings(self, run: Activations, layer: int) -> list[Reading]:
        """The changed readings of this layer, from interventions along paths; `run` holds all earlier layers.

        Each sender's output is computed once, for all its readers.
        """
        cells = [each for name in READS for each in self._cells(run, layer, name)]
        senders = sorted({(e.path_from.layer, e.path_from.name) for _, _, edits in cells for e in edits if e.path_from})
        changes = [torch.zeros_like(run.get("resid_pre", 0)) for _ in cells]
        for at, name in senders:
            written = run.get(name, at)
            for i, (_, _, edits) in enumerate(cells):
                acting = [e for e in edits if e.path_from and (e.path_from.layer, e.path_from.name) == (at, name)]
                if acting:
                    changes[i] += self._change(acting, written)
        return [Reading(name, chosen, change) for (name, chosen, _), change in zip(cells, changes, strict=True)]

    def _cells(self, run: Activations, layer: int, name: SiteName) -> list[Cells]:
        """The cells of one site, grouped by the interventions along paths that act on them."""
        edits = self.paths(layer, name)
        if not edits:
            return []
        config = run.weights.config
        n_heads = config.n_heads if name == "q" else config.n_kv_heads
        n = run.n if any(e.site.positions for e in edits) else 1
        like = torch.empty(n_heads, n, 1, device=run.get("resid_pre", 0).device)
        member = torch.stack([self.where(e.site, like, 0, None).expand(n_heads, n, 1).flatten() for e in edits])
        groups, group_of = torch.unique(member, dim=1, return_inverse=True)
        cells = []
        for i, group in enumerate(groups.T):
            if bool(group.any()):
                chosen = (group_of == i).reshape(n_heads, n, 1)
                cells.append((name, chosen, [e for e, acts in zip(edits, group.tolist(), strict=True) if acts]))
        return cells

    def _change(self, edits: list[Intervention], written: Tensor) -> Tensor:
        """[pos, d_model]: the output of one layer's heads, or of its MLP, after the operations less that before them."""
        changed = written.clone()
        for edit in edits:
            sender: Site = edit.path_from  # type: ignore[assignment]
            if sender.heads:
                heads = list(sender.heads)
                changed[heads] = self.operate(edit, sender, changed[heads], 0, sender.heads)
            else:
                changed = self.operate(edit, sender, changed, 0, None)
        change = changed - written
        return change.sum(0) if change.dim() == 3 else change

    def apply(self, name: str, layer: int, x: Tensor, start: int = 0, heads: tuple[int, ...] | None = None) -> Tensor:
        """x after every intervention at this site. x begins at position `start`; `heads` says which heads it holds."""
        if (name, layer) not in self._sites:
            return x
        for edit in self.edits:
            if edit.path_from is None and (edit.site.name, edit.site.layer) == (name, layer):
                x = self.operate(edit, edit.site, x, start, heads)
        return x

    def kept_share(self, layer: int, names: tuple[SiteName, ...], like: Tensor) -> Tensor:
        """[..., pos, 1]: the factor that the interventions at these sites leave of the computed values, shaped as `like`.

        `like` [(head,) pos, any], of the whole prompt. "scale" leaves its factor, every other operation 0 where it acts: not at
        the positions of a patch that have no partner.
        """
        factor = torch.ones_like(like[..., :1])
        acting = (e for name in names for e in self.edits if (e.site.name, e.site.layer) == (name, layer) and e.path_from is None)
        for edit in acting:
            where = self.where(edit.site, factor, 0, None)
            if edit.op == "patch":
                where = where & (torch.tensor(edit.partners(len(self._tokens)), device=factor.device) >= 0)[:, None]
            left = factor * edit.value[0] if edit.op == "scale" else torch.zeros_like(factor)
            factor = torch.where(where, left, factor)
        return factor

    def operate(self, edit: Intervention, site: Site, x: Tensor, start: int, heads: tuple[int, ...] | None) -> Tensor:
        """x with one operation applied to the chosen heads and positions."""
        chosen = self.where(site, x, start, heads)
        return torch.where(chosen, self._new_value(edit, site, x, start, heads), x)

    def where(self, site: Site, x: Tensor, start: int, heads: tuple[int, ...] | None) -> Tensor:
        """Bool, broadcastable to x: where the site is."""
        on = x.device
        rows = torch.ones(x.shape[-2], dtype=torch.bool, device=on)
        if site.positions:
            positions = torch.arange(start, start + x.shape[-2], device=on)
            rows = torch.isin(positions, torch.tensor(site.positions, device=on))
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
        if edit.op in DIRECTED:
            return _projected(edit, x)
        if edit.op == "mean" and not edit.source:
            return x.mean(dim=-2, keepdim=True).expand_as(x)
        run = self._source(edit.source or self._tokens)
        donor = run.get(site.name, site.layer, heads or ())
        if edit.op == "mean":
            return donor.mean(dim=-2, keepdim=True).expand_as(x)
        return self._aligned(edit, site, x, donor, start)

    def _constant(self, edit: Intervention, x: Tensor) -> Tensor:
        if len(edit.value) not in (1, x.shape[-1]):
            raise BadInput(
                f"The value set at {edit.site.name} has the wrong width.",
                expected=f"1 or {number_of(x.shape[-1], 'number')}",
                got=str(len(edit.value)),
                remedy="Give as many numbers as the site is wide.",
            )
        return torch.tensor(edit.value, dtype=x.dtype, device=x.device).expand_as(x)

    def _aligned(self, edit: Intervention, site: Site, x: Tensor, donor: Tensor, start: int) -> Tensor:
        """The donor's values at the positions that correspond to those of x, and x where none does."""
        partners = torch.tensor(edit.partners(len(self._tokens)), device=x.device)
        rows = partners[start : start + x.shape[-2]]
        taken = donor[..., rows.clamp(min=0), :]
        if site.name in ("scores", "pattern"):
            columns = partners[: x.shape[-1]]
            taken = taken[..., columns.clamp(min=0)]
            taken = torch.where(columns >= 0, taken, x) if site.name == "scores" else taken * (columns >= 0)
        return torch.where((rows >= 0)[:, None], taken, x)


def _projected(edit: Intervention, x: Tensor) -> Tensor:
    """The component of x along the direction, or x without it. Raises `BadInput` for a direction of another width."""
    if len(edit.value) != x.shape[-1]:
        raise BadInput(
            f"The direction at {edit.site.name} has the wrong width.",
            expected=number_of(x.shape[-1], "number"),
            got=str(len(edit.value)),
            remedy="Give as many numbers as the site is wide.",
        )
    direction = torch.tensor(edit.value, dtype=torch.float64)
    unit = (direction / direction.norm()).to(dtype=x.dtype, device=x.device)
    along = (x @ unit)[..., None] * unit
    return along if edit.op == "project" else x - along
