"""The prefix-matching stripe of one head: its pattern, and the cells that prefix matching counts.

    allowed[d, s] = 1 ≤ s ≤ d and t_{s−1} = t_d;      mass[d] = Σ_{s allowed} A[d, s]

The mean of the mass over destinations with an allowed source is the head's prefix-matching score (Olsson et al. 2022). On random
tokens it is the first sample of `head_scores` under the same block, repeats and seed; on the prompt, the prompt's own run.

It is not averaged over prompts: it is the picture of one pattern. `head_scores` averages prefix matching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from circuitlab.analysis.attention.score_definitions import prefix_matching_mask, seen
from circuitlab.analysis.base import Column, Ctx, Inputs, Need, Result, Table, added, analysis, at_least, over
from circuitlab.analysis.behaviour.samples import (
    check_counts,
    drawn_words,
    edit_words,
    fit_to_context,
    indistinct,
    no_room,
    repeated_random,
)
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.caption_parts import sampled
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head
from circuitlab.model.weights import bos_of


@dataclass(frozen=True)
class PrefixStripeParams:
    """`on`: repeated random tokens (fewer if the context is shorter), or the prompt.

    `edited`: random tokens with the subject's interventions (the prompt always has them).
    """

    head: Head = Head(0, 0)
    on: Literal["random", "prompt"] = "random"
    block: int = at_least(1, 25)
    repeats: int = at_least(1, 2)
    seed: int = at_least(0, 0)
    edited: bool = added(4, False)

    @property
    def needs(self) -> Need:
        """Random tokens need no prompt."""
        return ("edits" if self.edited else "weights") if self.own_texts else "tokens"

    @property
    def own_texts(self) -> bool:
        """Whether positions are those of other tokens than the prompt."""
        return self.on == "random"


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixStripeResult(Result):
    """`pattern` [dest, src]; `allowed` [dest, src] bool; `mass` [dest], NaN without an allowed source; `tokens` [pos]."""

    pattern: np.ndarray = over("destination", "source", unit="share of attention")
    allowed: np.ndarray = over("destination", "source", unit="true or false")
    mass: np.ndarray = over("destination", unit="share of attention")
    tokens: np.ndarray = over("position", unit="token id")

    @property
    def score(self) -> float:
        """Prefix matching on these tokens; NaN if no token occurs again."""
        computed = self.mass[~np.isnan(self.mass)]
        return float(computed.mean()) if computed.size else float("nan")

    def table(self) -> Table:
        """One row per destination."""
        return Table(
            (
                Column("position", np.arange(len(self.tokens))),
                Column("id", self.tokens, of="token"),
                Column("allowed sources", self.allowed.sum(axis=1)),
                Column("mass on them", self.mass, "share of attention"),
            )
        )


def _refuse(config: ModelConfig, p: PrefixStripeParams) -> str | None:
    return None if p.on == "prompt" else indistinct(p.block, p.repeats) or no_room(config, p.block, p.repeats)


def _memory(config: ModelConfig, n: int, p: PrefixStripeParams) -> int:
    length = min(p.block * p.repeats + 1, config.n_ctx) if p.on == "random" else n
    width = config.n_layers * (config.d_model + 3 * config.n_heads * config.d_head) + 12 * config.d_model
    return 8 * length * (width + 4 * length)


def _holds(version: int, config: ModelConfig, p: PrefixStripeParams) -> bool:
    """Version 3 had no interventions on random tokens."""
    return version == 3 and not p.edited


@analysis(version=4, needs="tokens", of_heads=True, lane="live", memory=_memory, refuse=_refuse, holds=_holds)
def prefix_stripe(inputs: Inputs, p: PrefixStripeParams, ctx: Ctx) -> PrefixStripeResult:
    """Prefix-matching stripe: one head's pattern, the cells that prefix matching counts, and its attention to them."""
    weights, config = inputs.weights, inputs.weights.config
    head = p.head
    check_heads(config, head)
    bos = bos_of(weights)
    if p.on == "random":
        check_counts(block=p.block, repeats=p.repeats)
        fit = fit_to_context(config, p.block, p.repeats)
        assert fit is not None  # else refused
        ids = tuple(repeated_random(config, bos, *fit, 1, p.seed)[0].tolist())
        run, front = inputs.run(ids, inputs.subject.edits if p.edited else ()), "BOS + " if bos is not None else ""
        drawn = drawn_words(config, bos, fit.block)
        sample = sampled(f"{front}{fit.words(p.block, p.repeats)}, seed {p.seed}, one sample")
        sample_words = (sample, *drawn, *edit_words(inputs, p.edited))
    else:
        run, sample_words = inputs.run(), (f"this prompt, {number_of(len(inputs.subject.tokens), 'token')}",)
    ids, window = torch.tensor(run.tokens), config.window(head.layer)
    there = prefix_matching_mask(ids)
    allowed = (there & seen(ids, window)).cpu().numpy()
    ctx.tick(0, 1, str(head))
    pattern = run.get("pattern", head.layer, (head.head,))[0].cpu().numpy()
    again = allowed.any(axis=1)
    mass = np.where(again, (pattern * allowed).sum(axis=1, dtype=float), np.nan)
    return PrefixStripeResult(
        pattern=pattern.copy(),
        allowed=allowed,
        mass=mass,
        tokens=np.array(run.tokens),
        conventions=(
            *inputs.convention_words(),
            *sample_words,
            f"{number_of(int(again.sum()), 'destination')} with a target",
            *_window_words(window, int(there.any(-1).sum()) - int(again.sum())),
        ),
    )


def _window_words(window: int, hidden: int) -> tuple[str, ...]:
    """For captions: how many destinations have targets, all of which the layer's window hides."""
    return (f"{number_of(hidden, 'more destination')} whose targets the window of {window} hides",) if hidden else ()
