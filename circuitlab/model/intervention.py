"""Interventions as data: what can be ablated, frozen or patched inside a forward pass.

An `Intervention` is an operation at a `Site`. Sites name the values of a block in the order in which they arise:

    resid_pre -> q, k, v -> scores -> pattern -> z -> result -> (attention added) -> mlp_out

`q`, `k` and `v` are what attention uses: after biases, q/k norm, smearing and rotation. `scores` are after the score scale
and soft cap, before the mask. `z` is `pattern @ v`, `result` is `z W_O` of one head. Interventions on one site act in the
order in which they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from circuitlab.errors import UsageError, quoted
from circuitlab.model.whole_numbers import whole_numbers

SiteName = Literal["resid_pre", "q", "k", "v", "scores", "pattern", "z", "result", "mlp_out"]
Op = Literal["zero", "mean", "scale", "set", "freeze", "patch", "project", "project_out"]

SITE_NAMES: tuple[str, ...] = get_args(SiteName)
HEADLESS: frozenset[str] = frozenset({"resid_pre", "mlp_out"})
DIRECTED: frozenset[str] = frozenset({"project", "project_out"})  # operations whose value is a direction


def _convert_to_tuples(value: object, *names: str) -> None:
    """Convert these fields, any sequences of whole numbers, to tuples of int. Raises `UsageError`."""
    for name in names:
        object.__setattr__(value, name, whole_numbers(getattr(value, name), name))


@dataclass(frozen=True)
class Site:
    """A place in the forward pass; `()` means all heads or all positions. Key and value heads are `n_kv_heads` many.

    At `scores` and `pattern` a position is a destination, and `sources` names columns: single cells of attention.
    """

    name: SiteName
    layer: int
    heads: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _convert_to_tuples(self, "heads", "positions", "sources")
        if self.sources and self.name not in ("scores", "pattern"):
            raise UsageError(
                f"The site {self.name} has no sources.",
                expected="sources at scores or pattern only",
                got=str(self.sources),
                remedy="Change the intervention as expected.",
            )
        if self.name not in SITE_NAMES:
            raise UsageError(
                "There is no such site.",
                expected=" ".join(SITE_NAMES),
                got=quoted(self.name),
                remedy="Change the intervention as expected.",
            )
        if self.heads and self.name in HEADLESS:
            raise UsageError(
                f"The site {self.name} has no heads.",
                expected="no heads",
                got=str(self.heads),
                remedy="Change the intervention as expected.",
            )


@dataclass(frozen=True)
class Intervention:
    """One operation at one site.

    - `zero`: the value becomes 0. `scale`: it is multiplied by `value[0]`.
    - `set`: it becomes `value`, one number or one per element of the site's last axis.
    - `mean`: it becomes its own mean over positions (of `source` if given, else of this prompt; at `scores` and `pattern`
      over destinations).
    - `freeze`: it becomes its value in the run of the same tokens without interventions.
    - `patch`: it becomes its value in the run on the tokens `source` without interventions; `align[i]` is the position there
      that corresponds to position i here, -1 for none (the value is left alone); empty: the same position.
    - `project`: only its component along the direction `value` stays, (x · v / v · v) v; `project_out`: that component is taken
      away (directional ablation, Arditi et al. 2024). Not at `scores` and `pattern`, whose last axis is the prompt.
    - `path_from`: instead of replacing the site's value, recompute it from an input in which the operation has been applied to
      the output of the sender at `path_from` only. For `q`, `k`, `v` and a `result` or `mlp_out` sender. Where several act on
      one cell, its input has the changes of all senders together.
    """

    op: Op
    site: Site
    value: tuple[float, ...] = ()
    source: tuple[int, ...] = ()
    align: tuple[int, ...] = ()
    path_from: Site | None = None

    def __post_init__(self) -> None:
        _convert_to_tuples(self, "source", "align")
        if self.op not in get_args(Op):
            raise UsageError(
                "There is no such intervention.",
                expected=" ".join(get_args(Op)),
                got=quoted(self.op),
                remedy="Change the intervention as expected.",
            )
        if self.op == "scale" and len(self.value) != 1:
            raise UsageError(
                "The intervention scale takes one number.",
                expected="value of length 1",
                got=str(self.value),
                remedy="Change the intervention as expected.",
            )
        if self.op == "set" and not self.value:
            raise UsageError(
                "The intervention set takes at least one number.",
                expected="value of length ≥ 1",
                got="()",
                remedy="Change the intervention as expected.",
            )
        self._check_direction()
        if self.op == "patch" and not self.source:
            raise UsageError(
                "The intervention patch takes the tokens of another run.",
                expected="source tokens",
                got="()",
                remedy="Change the intervention as expected.",
            )
        if self.align and self.op != "patch":
            raise UsageError(
                "Only a patch has an alignment.",
                expected="no align",
                got=f"{self.op} with align",
                remedy="Change the intervention as expected.",
            )
        self._check_path()

    def _check_direction(self) -> None:
        if self.op not in DIRECTED:
            return
        if self.site.name in ("scores", "pattern"):
            raise UsageError(
                f"At {self.site.name} there is no direction to project on.",
                expected="a site whose width belongs to the model",
                got=f"{self.op} at {self.site.name}",
                remedy="Set, scale or zero cells of attention instead.",
            )
        if not any(self.value):
            raise UsageError(
                f"The intervention {self.op} takes a direction.",
                expected="numbers that are not all 0",
                got=quoted(self.value[:8]) if self.value else "none",
                remedy="Give as many numbers as the site is wide.",
            )

    def _check_path(self) -> None:
        sender = self.path_from
        if sender is None:
            return
        if self.site.name not in ("q", "k", "v") or sender.name not in ("result", "mlp_out"):
            raise UsageError(
                "A path leads from a result or mlp_out to a q, k or v.",
                expected="site q, k or v; path_from result or mlp_out",
                got=f"site {self.site.name}; path_from {sender.name}",
                remedy="Change the intervention as expected.",
            )
        if sender.layer >= self.site.layer:
            raise UsageError(
                "A path leads from an earlier layer to a later one.",
                expected=f"path_from.layer < {self.site.layer}",
                got=str(sender.layer),
                remedy="Change the intervention as expected.",
            )

    def fits(self, n_tokens: int) -> bool:
        """Whether it applies to a prompt of this length."""
        sites = (self.site,) if self.path_from is None else (self.site, self.path_from)
        inside = all(p < n_tokens for site in sites for p in (*site.positions, *site.sources))
        return inside and (not self.align or len(self.align) == n_tokens)

    def partners(self, n_tokens: int) -> tuple[int, ...]:
        """For each position of a prompt of `n_tokens`, the one of the other prompt whose value it takes, −1 for none."""
        limit = len(self.source) or n_tokens
        return tuple(a if a < limit else -1 for a in self.align or range(n_tokens))

    def acts_before(self, end: int, n_tokens: int) -> bool:
        """Whether it may change anything at the first `end` positions of a prompt of `n_tokens`: not times 1, nor by a patch that
        has a partner for none of them."""
        if self.op == "scale" and self.value == (1.0,):
            return False
        partners = self.partners(n_tokens) if self.op == "patch" else range(n_tokens)
        at = [p for p in range(end) if partners[p] >= 0]
        at = [p for p in at if not self.site.positions or p in self.site.positions]
        sender = self.path_from.positions if self.path_from is not None else ()
        return any(not sender or p in sender for p in at)

    @property
    def depends_on_prompt(self) -> bool:
        """Whether a change at the end of the prompt can change this operation at earlier positions."""
        return self.op == "mean" and not self.source
