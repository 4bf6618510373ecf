"""Circuit faithfulness: every head or edge outside the circuit is ablated; what remains, against random sets of the same size.

    faithfulness(S) = (F(S) − F(∅)) / (F(all) − F(∅))          F(S): the metric with everything outside S ablated
    completeness(S) = (F(all) − F(all ∖ S)) / (F(all) − F(∅))  how much is lost when S itself is ablated
    minimality(m)   = faithfulness(S) − faithfulness(S ∖ m)    what is lost when m leaves the circuit

Faithfulness 1: the circuit does as well as the model; above 1: better. Completeness 1: nothing of the behaviour is left without
the circuit. The two need not agree, since other heads can back up ablated ones (Wang et al. 2022, Interpretability in the Wild,
sections 4 and 5, whose differences are here divided by F(all) − F(∅)). MLPs, embeddings, norms and biases stay, and patterns are
recomputed.

A head is ablated for all of its readers. An edge is ablated for one reader: the query, key or value of a later head is computed
from the residual stream without the sender's output (`_edge_ablation`). "All" edges lead from each head to each later head
through Q, K and V and, with `through` "logits", from each head to the unembedding. The way through MLPs is never ablated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from circuitlab.analysis.base import Ctx, Inputs, analysis, at_least
from circuitlab.analysis.cost import of_run
from circuitlab.analysis.interventions._circuit_sets import CUT, KEPT, NONE, Sets, edge_sets, head_sets
from circuitlab.analysis.interventions._metric import Effect
from circuitlab.analysis.interventions._other_sets import n_others
from circuitlab.analysis.interventions.ablation_sweep import (
    AblationSweep,
    How,
    prepare_sweep,
    sweep_bytes,
    sweep_conventions,
    sweep_refusal,
    ticker,
)
from circuitlab.analysis.interventions.edges import Through, count
from circuitlab.analysis.interventions.faithfulness_result import KeepOnlyResult
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head, Target

__all__ = ["KeepOnlyParams", "KeepOnlyResult", "keep_only"]

MOST = 10_000


@dataclass(frozen=True)
class KeepOnlyParams:
    """The circuit: `heads` (() for all), or `edges` by name, as `L0H1->L1H2:K` and `L1H2->logits`, and no heads.

    `through`: the kinds of edges that may be ablated or drawn. `how`, `source`, `effect`, `target`, `position` as in `ablation`.
    `samples` random sets of as many heads or edges are drawn with `seed`, no two alike and none the circuit; all others, where
    there are no more.
    """

    heads: tuple[Head, ...] = ()
    how: How = "zero"
    source: tuple[int, ...] = ()
    effect: Effect = "loss"
    target: Target = Target()
    position: int = -1
    samples: int = at_least(0, 20)
    seed: int = at_least(0, 0)
    edges: tuple[str, ...] = ()
    through: tuple[Through, ...] = ("Q", "K", "V")


def _result(sweep: AblationSweep, sets: Sets, values: np.ndarray, words: tuple[str, ...]) -> KeepOnlyResult:
    k, n = len(sets.members), len(sets.random)
    return KeepOnlyResult(
        intact=sweep.before,
        bare=float(values[NONE]),
        circuit=float(values[KEPT]),
        without=float(values[CUT]),
        members=sets.members.copy(),
        left_out=values[3 : 3 + k].copy(),
        random_members=sets.random.copy(),
        random_kept=values[3 + k : 3 + k + n].copy(),
        random_cut=values[3 + k + n :].copy(),
        unit=sweep.measure.unit,
        of=sets.of,
        conventions=words,
        done=float(np.mean(~np.isnan(values))),
    )


def _left_by(previous: object, values: np.ndarray, sets: Sets) -> np.ndarray:
    """The values that a cancelled attempt already holds, in the order of the sets."""
    if not isinstance(previous, KeepOnlyResult) or not np.array_equal(previous.random_members, sets.random):
        return values
    first = [previous.bare, previous.circuit, previous.without]
    return np.concatenate([first, previous.left_out, previous.random_kept, previous.random_cut])


def _refuse(config: ModelConfig, p: KeepOnlyParams) -> str | None:
    if not 0 <= p.samples <= MOST:
        return f"the number of random sets must be 0 to {MOST}."
    if p.edges and p.heads:
        return "a circuit is a set of heads or a set of edges: give one of the two."
    if p.edges and config.norm_placement != "pre":
        return "edges need pre-norm blocks: here a norm stands between a head's output and the residual stream."
    return sweep_refusal(config, p.how, p.source, p.effect)


def _memory(config: ModelConfig, n: int, p: KeepOnlyParams) -> int:
    heads, wide = config.n_layers * config.n_heads, n * config.d_model
    if not p.edges:
        size = len(p.heads) or heads
        return 32 * p.samples * size + 3 * heads * (p.samples + size) + sweep_bytes(config, n, p.source)
    trial = config.n_layers * n * (config.d_model + (config.n_heads + 2 * config.n_kv_heads) * config.d_head)
    streams = min(len(p.edges), heads) * wide + (9 * config.n_heads + 8) * wide  # senders one by one; readers' streams of a layer
    random = 64 * p.samples * len(p.edges)
    edges = 64 * count(config, p.through) + 4 * heads**2
    return 8 * (trial + streams + 4 * config.n_heads * n * n) + edges + random + sweep_bytes(config, n, p.source)


def _cost(config: ModelConfig, n: int, p: KeepOnlyParams) -> float:
    """Of some twenty circuits: those drawn at random to compare with, and the one that is chosen."""
    return 20 * of_run(config, n)


@analysis(version=4, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, cost=_cost)
def keep_only(inputs: Inputs, p: KeepOnlyParams, ctx: Ctx) -> KeepOnlyResult:
    """Circuit faithfulness, completeness and minimality of a set of heads or edges, against random sets of the same size."""
    config = inputs.weights.config
    draw = (p.samples, p.seed)
    sets: Sets = edge_sets(config, p.edges, p.through, *draw) if p.edges else head_sets(config, p.heads, *draw)
    sweep = prepare_sweep(inputs, p.how, p.source, False, p.effect, p.target, p.position, ticker(ctx, 0, 1, "the whole model"))
    words = (*inputs.convention_words(), *sweep_conventions(sweep), *sets.words(), _sample(p, sets))
    k, n = len(sets.members), len(sets.random)
    total = 3 + k + 2 * n
    values = _left_by(ctx.previous, np.full(total, np.nan), sets)
    waiting = np.flatnonzero(np.isnan(values)) if not np.isnan(sweep.before) else np.zeros(0, dtype=np.int64)
    # the circuit and each sample's two sets come early and together
    order = sorted(waiting.tolist(), key=lambda i: i if i < 3 + k else 3 + k + (i - 3 - k) % n)
    step = sets.at_once(sweep.run.n)
    for batch in (order[i : i + step] for i in range(0, len(order), step)):
        done = int((~np.isnan(values)).sum())
        values[batch] = sets.values(sweep, batch, ticker(ctx, done, total, f"set {done + 1}/{total}"))
        ctx.partial(_result(sweep, sets, values, words))
    return _finished(_result(sweep, sets, values, words), "edge" if p.edges else "head")


def _sample(p: KeepOnlyParams, sets: Sets) -> str:
    """What the circuit is compared with."""
    size = len(sets.members)
    members, others = number_of(size, "edge" if p.edges else "head"), n_others(sets.of, size)
    if not p.samples:
        return "no random sets"
    if others > p.samples:
        return f"{number_of(p.samples, 'random set')} of {members}, all different, the circuit not among them, seed {p.seed}"
    return f"all {number_of(others, 'other set')} of {members}" if others else f"there is no other set of {members}"


def _finished(result: KeepOnlyResult, what: str) -> KeepOnlyResult:
    if not np.isnan(result.whole):
        return replace(result, done=1.0)
    words = f"faithfulness not computed: ablating every {what} changes nothing"
    return replace(result, done=1.0, conventions=(*result.conventions, words))
