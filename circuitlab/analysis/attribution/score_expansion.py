"""One pre-softmax attention score as a sum over pairs of components that wrote the destination's and the source's stream.

    score(d, s) = scale · q_d · k_s = Σ_{c, c′} scale · q_d^c · k_s^{c′}        (with ALiBi − slope · (d − s))

c, c′ run over embedding, position, biases, earlier MLPs, earlier heads and interventions (`score_parts`), before a soft cap, at
the recorded scales of norms and q/k norms, smearing and rotation included. Terms are grouped by the sides that a head wrote:

    none: neither     Q: the destination's     K: the source's     both                       (Elhage et al. 2021)

ALiBi is a term of its own, −slope · (d − s), which neither stream holds: it is the entry of the component ALiBi with itself.

Softmax depends only on differences within a row, so each term is also given centred: minus its mean over the sources that the
mask and window of the row allow. A term that is the same at every source raises the raw score but changes no attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from circuitlab.analysis.attribution.query_key_parts import ScorePartsParams, ScorePartsResult, score_parts, words
from circuitlab.analysis.base import Column, Ctx, Inputs, Remainder, Result, Table, analysis, naming, over, scalar
from circuitlab.analysis.ordering import descending
from circuitlab.analysis.target import position_of
from circuitlab.counting import number_of
from circuitlab.model import block
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run
from circuitlab.model.subject import Head

GROUPS = ("none", "Q", "K", "both")
THROUGH = ("Q", "K", "both as Q", "both as K")


@dataclass(frozen=True)
class ScoreExpansionParams:
    """One cell of one head's pattern; position −1 is the last. `source` None: the one that the destination attends to most."""

    head: Head = Head(0, 0)
    destination: int = -1
    source: int | None = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreExpansionResult(Result):
    """`terms`, `centred` float64 [dest component, src component]; their sums are `score` and `score − row_mean`.

    Components, the same on both axes: `names_dest`, `names_src`, `kinds`, `heads` int64 [component, 2], −1 for no head.
    `groups`, `groups_centred` [4] in the order of GROUPS. `through`, `through_centred` [earlier head, 4] in the order of THROUGH:
    the terms of each head in `earlier` [earlier head, 2] in the query alone, in the key alone, and, with a head on the other side
    too, in the query and in the key. `softmax_score`: this cell's input to softmax, soft-capped and with interventions, NaN if
    the mask hides it (`seen` false); `attention`: its weight; `n_sources`: how many sources the row's mean is over.
    """

    terms: np.ndarray = over("destination component", "source component", unit="score")
    centred: np.ndarray = over("destination component", "source component", unit="score")
    names_dest: tuple[str, ...] = naming("destination component")
    names_src: tuple[str, ...] = naming("source component")
    kinds: tuple[str, ...] = naming("component")
    heads: np.ndarray = over("component", "(layer, head)", unit="index", none=True)
    groups: np.ndarray = over("group", unit="score")
    groups_centred: np.ndarray = over("group", unit="score")
    earlier: np.ndarray = over("earlier head", "(layer, head)", unit="index")
    through: np.ndarray = over("earlier head", "way", unit="score")
    through_centred: np.ndarray = over("earlier head", "way", unit="score")
    score: float = scalar("score")
    row_mean: float = scalar("score")
    softmax_score: float = scalar("score")
    attention: float
    destination: int
    source: int
    seen: bool
    n_sources: int

    ENTRIES: ClassVar[Mapping[str, Sequence[str]]] = {"group": GROUPS, "way": THROUGH}

    def table(self) -> Table:
        """One row per pair of components, the largest centred terms first."""
        dest, src = np.unravel_index(descending(self.centred, by_size=True), self.centred.shape)
        return Table(
            (
                Column("destination side", np.array(self.names_dest)[dest]),
                Column("source side", np.array(self.names_src)[src]),
                Column("term", self.terms[dest, src], "score"),
                Column("centred", self.centred[dest, src], "score"),
            )
        )

    ACROSS: ClassVar = {"shares": "dimensionless"}

    def across(self) -> Mapping[str, np.ndarray]:
        """Group sums, raw and centred, and each group's share of the centred score (NaN if that is 0)."""
        whole = self.groups_centred.sum()
        shares = self.groups_centred / whole if whole else np.full(4, np.nan)
        return {"groups": self.groups, "groups_centred": self.groups_centred, "shares": shares}


def grouped(terms: np.ndarray, by_head: np.ndarray) -> np.ndarray:
    """[4] in the order of GROUPS: sums of `terms` [dest component, src component], `by_head` bool [component]."""
    sides = ((~by_head, ~by_head), (by_head, ~by_head), (~by_head, by_head), (by_head, by_head))
    return np.array([terms[np.ix_(dest, src)].sum() for dest, src in sides])


def through_heads(terms: np.ndarray, by_head: np.ndarray) -> np.ndarray:
    """[earlier head, 4]: each head's terms by side, in the order of THROUGH; arguments as in `grouped`."""
    rows, columns = terms[by_head], terms[:, by_head]
    sums = [rows[:, ~by_head].sum(1), columns[~by_head].sum(0), rows[:, by_head].sum(1), columns[by_head].sum(0)]
    return np.stack(sums, axis=1)


def cell(run: Run, p: ScoreExpansionParams) -> tuple[int, int, slice]:
    """(destination, source, visible sources). Raises `BadInput` for positions outside the prompt."""
    d = position_of(run.n, p.destination)
    window = run.weights.config.window(p.head.layer)
    allowed = slice(max(0, d - window + 1) if window else 0, d + 1)
    if p.source is not None:
        return d, position_of(run.n, p.source), allowed
    return d, int(run.get("pattern", p.head.layer, (p.head.head,), slice(d, d + 1))[0, 0].argmax()), allowed


def _mean(k: np.ndarray) -> np.ndarray:
    """[component, d_head]: k [component, src, d_head] averaged over sources, as one product, the main cost of a cell."""
    return (np.full(k.shape[1], 1 / k.shape[1], k.dtype) @ k).astype(np.float64)


def _memory(c: ModelConfig, n: int, p: ScoreExpansionParams) -> int:
    components = p.head.layer * (c.n_heads + 2) + 5
    return 8 * (2 * components * n * c.d_head + 8 * components**2 + 3 * n * (n + c.d_head))


@analysis(version=1, needs="tokens", of_heads=True, lane="live", memory=_memory)
def score_expansion(inputs: Inputs, p: ScoreExpansionParams, ctx: Ctx) -> ScoreExpansionResult:
    """Attention score at one cell as terms of destination component × source component, grouped as none, Q, K and both."""
    run = inputs.run()
    parts = inputs.answer(score_parts, ScorePartsParams(p.head))
    ctx.tick(0, 1, "score expansion")
    d, s, allowed = cell(run, p)
    q = parts.scale * parts.q[:, d].astype(np.float64)
    terms = q @ parts.k[:, s].astype(np.float64).T
    centred = terms - q @ _mean(parts.k[:, allowed]).T
    parts, terms, centred = _with_alibi(inputs.weights.config, p.head, parts, (terms, centred), (d, s, allowed))
    by_head = parts.heads[:, 0] >= 0
    row, softmax_scores, pattern = _recorded_row(run, p.head, d)
    score, visible = float(row[s]), allowed.start <= s < allowed.stop
    warnings = () if visible else ("the mask hides this source: its score does not enter the softmax",)
    if run.editor.touches(p.head.layer, "scores", "pattern"):
        warnings += ("an intervention acts on the scores or the pattern: expanded is q · k before it acts",)
    return ScoreExpansionResult(
        terms=terms,
        centred=centred,
        names_dest=parts.named("Q"),
        names_src=parts.named("K"),
        kinds=parts.kinds,
        heads=parts.heads,
        groups=grouped(terms, by_head),
        groups_centred=grouped(centred, by_head),
        earlier=parts.heads[by_head],
        through=through_heads(terms, by_head),
        through_centred=through_heads(centred, by_head),
        score=score,
        row_mean=float(row[allowed].mean()),
        softmax_score=float(softmax_scores[s]) if visible else float("nan"),
        attention=float(pattern[s]) if visible else 0.0,
        destination=d,
        source=s,
        seen=visible,
        n_sources=allowed.stop - allowed.start,
        remainder=Remainder(
            abs(score - float(terms.sum())), float(np.abs(row[allowed]).max()), "in the score", "largest of the row"
        ),
        conventions=(*inputs.convention_words(), *_conventions(inputs.weights.config, p.head.layer, allowed), *warnings),
    )


def _with_alibi(
    c: ModelConfig, head: Head, parts: ScorePartsResult, terms: tuple[np.ndarray, np.ndarray], at: tuple[int, int, slice]
) -> tuple[ScorePartsResult, np.ndarray, np.ndarray]:
    """(components, terms, centred) with ALiBi as one more component; unchanged without ALiBi. `at`: (d, s, visible sources)."""
    if not (slopes := c.slopes_in(head.layer)):
        return parts, *terms
    d, s, allowed = at
    raw, mean = -slopes[head.head] * (d - s), -slopes[head.head] * (d - (allowed.start + allowed.stop - 1) / 2)
    whole, centred = (np.pad(x, ((0, 1), (0, 1))) for x in terms)
    whole[-1, -1], centred[-1, -1] = raw, raw - mean
    heads = np.concatenate([parts.heads, [(-1, -1)]])
    names = {"names": (*parts.names, "ALiBi"), "kinds": (*parts.kinds, "position"), "heads": heads}
    return replace(parts, **names), whole, centred


def _recorded_row(run: Run, head: Head, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[src] each, of one row: scale · q·k (with ALiBi) before a cap, the input of softmax, and the pattern."""
    c, rows, only = run.weights.config, slice(d, d + 1), (head.head,)
    with torch.inference_mode():
        q, k = run.get("q", head.layer, only, rows)[0].double(), run.get("k", head.layer, (c.kv_head(head.head),))[0].double()
        raw = block.biased(c, head.layer, c.score_scale * (q @ k.T)[None], d, only)[0, 0]
        scores, pattern = (run.get(name, head.layer, only, rows)[0, 0].double() for name in ("scores", "pattern"))
    return raw.cpu().numpy(), scores.cpu().numpy(), pattern.cpu().numpy()


def _conventions(c: ModelConfig, layer: int, allowed: slice) -> tuple[str, ...]:
    n = allowed.stop - allowed.start
    further = ", before the soft cap" if c.score_soft_cap else " − slope · distance (ALiBi)" * bool(c.slopes_in(layer))
    phrases = [f"score = q · k at the model's own scale{further}", *words(c, layer)]
    return (*phrases, f"centred: minus the mean over the row's {number_of(n, 'source')}")
