"""Head scores (prefix matching, previous token, …) on repeated random tokens or on the prompt; definitions: `score_definitions`.

The random protocol (Olsson et al. 2022): BOS if the model has one, then a block of random tokens, repeated; several samples with
a stated seed (`samples`); a short context has fewer repeats, then smaller blocks, and the caption says so. The control is the
attention to the same positions when the tokens there are random and, if the vocabulary allows, all different: the part of a
score that depends on positions alone. On the prompt it is one such draw after the prompt's own first token, with the prompt's
own interventions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attention.score_definitions import SCORES, UNITS
from circuitlab.analysis.base import Column, Ctx, Inputs, Need, Result, Table, added, analysis, at_least, naming, over
from circuitlab.analysis.behaviour.samples import (
    check_counts,
    control_words,
    different_random,
    drawable,
    drawn_words,
    edit_words,
    fit_to_context,
    indistinct,
    no_room,
    repeated_random,
    run_on,
)
from circuitlab.analysis.cost import of_layers
from circuitlab.analysis.ordering import head_names
from circuitlab.caption_parts import sampled
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import patterns
from circuitlab.model.run import Run
from circuitlab.model.subject import Head
from circuitlab.model.weights import bos_of

TOKENS = 1024  # per batch, few enough to cancel within one layer in time
CELLS = 2**21  # of patterns scored at a time, for the same reason


@dataclass(frozen=True)
class HeadScoresParams:
    """`on`: repeated random tokens, or the prompt. `samples` of `block` random tokens × `repeats`, drawn with `seed`.

    Fewer repeats, then smaller blocks, if the context is shorter. `edited`: random tokens, and the control, with the subject's
    interventions (the prompt always has them).
    """

    on: Literal["random", "text"] = "random"
    block: int = at_least(1, 25)
    repeats: int = at_least(1, 4)
    samples: int = at_least(1, 10)
    seed: int = at_least(0, 0)
    edited: bool = added(5, False)

    @property
    def needs(self) -> Need:
        """Random tokens need no prompt: their scores stay cached while the prompt changes."""
        return ("edits" if self.edited else "weights") if self.own_texts else "tokens"

    @property
    def own_texts(self) -> bool:
        """Whether positions are those of other tokens than the prompt."""
        return self.on == "random"


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadScoresResult(Result):
    """`mean`, `spread` (standard deviation over samples), `control` [score, layer, head]; NaN: not computed."""

    mean: np.ndarray = over("score", "layer", "head", unit="{units}")
    spread: np.ndarray = over("score", "layer", "head", unit="{units}")
    control: np.ndarray = over("score", "layer", "head", unit="{units}")
    names: tuple[str, ...] = naming("score", tuple(SCORES))

    @property
    def units(self) -> dict[str, str]:
        """The unit of each score, by its name."""
        return {name: UNITS[name] for name in self.names}

    def of(self, name: str) -> np.ndarray:
        """[layer, head] means of one score."""
        return self.mean[self.names.index(name)]

    def best(self, name: str) -> Head | None:
        """The head of the highest mean of one score, None where no head has one."""
        values = self.of(name)
        if not np.isfinite(values).any():
            return None
        layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
        return Head(int(layer), int(head))

    def across(self) -> Mapping[str, np.ndarray]:
        """`mean` and `control`, [score, layer, head]."""
        return {"mean": self.mean, "control": self.control}

    def table(self) -> Table:
        """One row per head."""
        columns = [Column("head", head_names(*np.indices(self.mean.shape[1:]).reshape(2, -1)))]
        for i, name in enumerate(self.names):
            each = {"": self.mean, "_sd": self.spread, "_control": self.control}
            columns += [Column(f"{name}{what}", values[i].ravel(), self.units[name]) for what, values in each.items()]
        return Table(tuple(columns))


def scores_on(
    inputs: Inputs,
    tokens: Tensor,
    judged: Tensor,
    ctx: Ctx,
    text: str,
    edited: bool = False,
    show: Callable[[np.ndarray], None] = lambda scores: None,
) -> np.ndarray:
    """[score, sample, layer, head] of a batch of prompts; `judged`: the tokens that the scores compare.

    `edited`: with the subject's interventions, one prompt after the other. `show`: called with the scores of the layers so far,
    NaN for the others, where the prompts are of one batch.
    """
    config, edits = inputs.weights.config, inputs.subject.edits if edited else ()
    if edits:
        each = []
        for i, (one, its) in enumerate(zip(tokens, judged, strict=True)):
            ctx.tick(i, len(tokens), text)
            run = run_on(inputs, tuple(one.tolist()), prompt=False, edited=True, ctx=ctx)
            each.append(_of_run(run, its, ctx, text))
        return np.stack(each, axis=1)
    out = np.full((len(SCORES), len(tokens), config.n_layers, config.n_heads), np.nan)
    step = max(1, TOKENS // tokens.shape[1])
    for start in range(0, len(tokens), step):
        some = slice(start, start + step)
        for layer, pattern in patterns(inputs.weights, tokens[some]):
            ctx.tick(start * config.n_layers + layer * len(pattern), len(tokens) * config.n_layers, text)
            out[:, some, layer] = all_scores(pattern, judged[some], config.window(layer))
            if step >= len(tokens) and layer + 1 < config.n_layers:
                show(out)
    return out


def all_scores(pattern: Tensor, tokens: Tensor, window: int) -> np.ndarray:
    """[score, ..., head]: all scores of patterns [..., head, dest, src] on tokens [..., pos], in a layer with this window."""
    with torch.inference_mode():
        return torch.stack([score(pattern, tokens, window) for score in SCORES.values()]).double().cpu().numpy()


def hidden_words(config: ModelConfig, mean: np.ndarray, judged: Tensor) -> tuple[str, ...]:
    """For captions: scores of `mean` [score, layer, head] that layers lack on `judged` [sample, pos] by their windows alone."""
    said, even = list[str](), torch.zeros(len(judged), 1, judged.shape[1], judged.shape[1])
    for (name, score), values in zip(SCORES.items(), mean, strict=True):
        hidden = [layer for layer in np.flatnonzero(np.isnan(values).all(axis=-1)).tolist() if config.window(layer)]
        if hidden and not bool(torch.isnan(score(even, judged)).any()):
            where = ", ".join(f"{layer} (window {config.window(layer)})" for layer in hidden)
            said.append(f"no {name.replace('_', ' ')} in layer{'s' * (len(hidden) > 1)} {where}: no source that counts is seen")
    return tuple(said)


def sample_words(config: ModelConfig, p: HeadScoresParams) -> str:
    """The random tokens, for a caption: `25 random tokens × 4`, or as much of it as fits the context."""
    fit = fit_to_context(config, p.block, p.repeats)
    return "" if fit is None else fit.words(p.block, p.repeats)


def short_sample(config: ModelConfig, p: HeadScoresParams) -> str:
    """The sample in short, beside a number: `on 10 × 25 × 4` (samples × block × repeats), or `on this prompt`."""
    fit = fit_to_context(config, p.block, p.repeats)
    if p.on == "text":
        return "on this prompt"
    return "" if fit is None else f"on {p.samples} × {fit.block} × {fit.repeats}".replace(" ", "\u00a0")


def _refuse(config: ModelConfig, p: HeadScoresParams) -> str | None:
    return None if p.on == "text" else indistinct(p.block, p.repeats) or no_room(config, p.block, p.repeats)


def _memory(config: ModelConfig, n: int, p: HeadScoresParams) -> int:
    length = min(p.block * p.repeats + 1, config.n_ctx) if p.on == "random" else n
    samples = p.samples if p.on == "random" else 1
    return 4 * samples * (3 * config.n_heads * length**2 + 8 * length * config.d_model)


def _holds(version: int, config: ModelConfig, p: HeadScoresParams) -> bool:
    """Version 4 had no interventions on random tokens; 3 knew of no windows and no smaller output vocabulary, and said of every
    model that its BOS is not drawn.
    """
    drawn_as_said = config.prepend_bos and config.d_vocab > p.block
    whole = not any(config.windows) and config.d_vocab_out >= config.d_vocab
    before = version == 3 and whole and (p.on == "text" or drawn_as_said)
    return not p.edited and (version == 4 or before)


def _cost(config: ModelConfig, n: int, p: HeadScoresParams) -> float:
    return p.samples * 2 * of_layers(config, min(p.block * p.repeats, config.n_ctx)) if p.own_texts else of_layers(config, n)


@analysis(version=5, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, holds=_holds, cost=_cost)
def head_scores(inputs: Inputs, p: HeadScoresParams, ctx: Ctx) -> HeadScoresResult:
    """Head scores: prefix matching, previous, duplicate, first and current token, entropy and mean distance of every head."""
    words = inputs.convention_words()
    if p.on == "text":
        return _on_text(inputs, p, ctx, words)
    check_counts(block=p.block, repeats=p.repeats, samples=p.samples)
    config, bos = inputs.weights.config, bos_of(inputs.weights)
    fit = fit_to_context(config, p.block, p.repeats)
    assert fit is not None  # else refused
    repeated = repeated_random(config, bos, fit.block, fit.repeats, p.samples, p.seed)
    drawn = drawn_words(config, bos, fit.block)
    sample = sampled(
        f"{number_of(p.samples, 'sample')} of {'BOS + ' if bos is not None else ''}{sample_words(config, p)}, seed {p.seed}"
    )

    def result(scores: np.ndarray, control: np.ndarray, *more: str, done: float = 1.0) -> HeadScoresResult:
        return HeadScoresResult(
            mean=scores.mean(axis=1),
            spread=scores.std(axis=1, ddof=1) if p.samples > 1 else np.full_like(scores[:, 0], np.nan),
            control=control.mean(axis=1),
            conventions=(*words, sample, *drawn, *more, *edit_words(inputs, p.edited)),
            done=done,
        )

    share = lambda part: float(np.isfinite(part[0, 0]).any(-1).mean()) / 2  # of both batches, the layers that have a score
    later = lambda part: ctx.partial(result(part, np.full_like(part, np.nan), done=share(part)))
    scores = scores_on(inputs, repeated, repeated, ctx, "repeated random tokens", p.edited, later)
    other = repeated.clone()
    rng, size = np.random.default_rng(p.seed + 1), (p.samples, fit.block * fit.repeats)
    ids, differ = different_random(drawable(config, bos), size, rng)
    other[:, repeated.shape[1] - size[1] :] = torch.as_tensor(ids)
    later = lambda part: ctx.partial(result(scores, part, done=0.5 + share(part)))
    control = scores_on(inputs, other, repeated, ctx, "control", p.edited, later)
    hidden = hidden_words(config, scores.mean(axis=1), repeated)
    return result(scores, control, control_words(config, differ), *hidden)


def _on_text(inputs: Inputs, p: HeadScoresParams, ctx: Ctx, words: tuple[str, ...]) -> HeadScoresResult:
    tokens, config = inputs.subject.tokens, inputs.weights.config
    mean = _of_run(inputs.run(), torch.tensor(tokens), ctx, "this prompt")
    control = np.full_like(mean, np.nan)
    n = len(tokens)
    control_text = "no control: nothing to draw from" if n > 1 else "no control of one token"
    pool = drawable(config, bos_of(inputs.weights))
    pool = pool[pool != tokens[0]]
    if pool.size and n > 1:
        ids, differ = different_random(pool, (1, n - 1), np.random.default_rng(p.seed + 1))
        control_text = f"{control_words(config, differ)}; the first is the prompt's, seed {p.seed + 1}, one draw"
        other = inputs.run((tokens[0], *ids[0].tolist()))
        control = _of_run(other, torch.tensor(tokens), ctx, "control")
    return HeadScoresResult(
        mean=mean,
        spread=np.full_like(mean, np.nan),
        control=control,
        conventions=(
            *words,
            f"this prompt, {number_of(n, 'token')}: one sample, no sd",
            control_text,
            *hidden_words(config, mean, torch.tensor([tokens])),
        ),
    )


def _of_run(run: Run, judged: Tensor, ctx: Ctx, text: str) -> np.ndarray:
    """[score, layer, head] of one run; `judged` [pos]: the tokens that the scores compare."""
    config = run.weights.config
    scores = np.full((len(SCORES), config.n_layers, config.n_heads), np.nan)
    step = max(1, CELLS // run.n**2)
    for layer in range(config.n_layers):
        for start in range(0, config.n_heads, step):
            ctx.tick(layer * config.n_heads + start, config.n_layers * config.n_heads, text)
            heads = tuple(range(start, min(start + step, config.n_heads)))
            scores[:, layer, start : start + step] = all_scores(run.get("pattern", layer, heads), judged, config.window(layer))
    return scores
