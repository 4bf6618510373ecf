"""Scores of every head, on repeated random tokens or on the prompt itself. Definitions: `scores_of_patterns`.

The random protocol (Olsson et al. 2022): BOS where the model has one, a block of random tokens, repeated; several samples by a
stated seed. The control is the attention to the very same positions where the tokens are as many, drawn at random once. Which
tokens are common is not known of an arbitrary model, so none but the special BOS is left out; the captions say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis
from circuitlab.analysis.scores_of_patterns import SCORES
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import patterns
from circuitlab.model.subject import Head


@dataclass(frozen=True)
class HeadScoresParams:
    """`on`: repeated random tokens, or the prompt. `block` random tokens × `repeats`, `samples` of them, by `seed`."""

    on: Literal["random", "text"] = "random"
    block: int = 25
    repeats: int = 4
    samples: int = 10
    seed: int = 0

    @property
    def needs(self) -> Literal["weights", "tokens"]:
        """Random tokens need no prompt: their scores are kept while the text changes."""
        return "weights" if self.on == "random" else "tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadScoresResult(Result):
    """`mean`, `spread` (standard deviation over samples), `control` [score, layer, head]; NaN: not computed."""

    mean: np.ndarray
    spread: np.ndarray
    control: np.ndarray
    names: tuple[str, ...] = tuple(SCORES)

    def of(self, name: str) -> np.ndarray:
        """[layer, head] means of one score."""
        return self.mean[self.names.index(name)]

    def table(self) -> Table:
        """One row a head."""
        layer, head = np.indices(self.mean.shape[1:]).reshape(2, -1)
        names = np.array([str(Head(int(a), int(b))) for a, b in zip(layer, head, strict=True)])
        columns = [Column("head", names)]
        for i, name in enumerate(self.names):
            columns += [Column(name, self.mean[i].ravel()), Column(f"{name}_sd", self.spread[i].ravel())]
            columns += [Column(f"{name}_control", self.control[i].ravel())]
        return Table(tuple(columns))


def random_tokens(config: ModelConfig, bos: int | None, p: HeadScoresParams, repeats: int) -> Tensor:
    """[sample, pos] ids: BOS where there is one, then a random block `repeats` times."""
    rng = np.random.default_rng(p.seed)
    allowed = np.array([t for t in range(config.d_vocab) if t != bos])
    once = rng.choice(allowed, size=(p.samples, p.block))
    body = np.tile(once, (1, repeats))
    start = np.zeros((p.samples, 0 if bos is None else 1), dtype=np.int64) + (bos or 0)
    return torch.from_numpy(np.concatenate([start, body], axis=1))


def scores_on(inputs: Inputs, tokens: Tensor, judged: Tensor, ctx: Ctx, text: str) -> np.ndarray:
    """[score, sample, layer, head] of a batch of prompts, without interventions; which positions count is read from `judged`."""
    config = inputs.weights.config
    out = np.full((len(SCORES), len(tokens), config.n_layers, config.n_heads), np.nan)
    for layer, pattern in patterns(inputs.weights, tokens):
        ctx.tick(layer, config.n_layers, text)
        for i, score in enumerate(SCORES.values()):
            for sample, ids in enumerate(judged):
                out[i, sample, layer] = score(pattern[sample], ids).double().numpy()
    return out


def _refuse(config: ModelConfig, p: HeadScoresParams) -> str | None:
    longest = p.block * p.repeats + 1
    if p.on == "random" and longest > config.n_ctx:
        return f"{p.block} × {p.repeats} random tokens do not fit the context of {config.n_ctx}; use a smaller block."
    if p.on == "random" and config.d_vocab < 2:
        return "a vocabulary of one token has no random text."
    return None


def _memory(config: ModelConfig, n: int, p: HeadScoresParams) -> int:
    length = p.block * p.repeats + 1 if p.on == "random" else n
    samples = p.samples if p.on == "random" else 1
    return 4 * samples * (3 * config.n_heads * length**2 + 8 * length * config.d_model)


@analysis(version=1, needs="tokens", lane="slow", memory=_memory, refuse=_refuse)
def head_scores(inputs: Inputs, p: HeadScoresParams, ctx: Ctx) -> HeadScoresResult:
    """Prefix matching, previous, duplicate, first, current token, entropy and distance of every head."""
    words = inputs.subject.conventions.words()
    if p.on == "text":
        return _on_text(inputs, ctx, words)
    if p.block < 1 or p.repeats < 1 or p.samples < 1:
        raise BadInput("The sample is empty.", expected="block, repeats, samples ≥ 1", got=str(p))
    tokenizer = inputs.weights.tokenizer
    bos = tokenizer.bos if tokenizer is not None and inputs.weights.config.prepend_bos else None
    repeated = random_tokens(inputs.weights.config, bos, p, p.repeats)
    found = scores_on(inputs, repeated, repeated, ctx, "repeated random tokens")
    length = HeadScoresParams(block=p.block * p.repeats, samples=p.samples, seed=p.seed + 1)
    unrepeated = random_tokens(inputs.weights.config, bos, length, 1)
    control = scores_on(inputs, unrepeated, repeated, ctx, "control")
    spread = found.std(axis=1, ddof=1) if p.samples > 1 else np.full_like(found[:, 0], np.nan)
    said = f"{p.samples} samples of {'BOS + ' if bos is not None else ''}{p.block} random tokens × {p.repeats}, seed {p.seed}"
    return HeadScoresResult(
        mean=found.mean(axis=1),
        spread=spread,
        control=control.mean(axis=1),
        conventions=(
            *words,
            said,
            "uniform over the vocabulary but BOS",
            "control: the same positions, tokens drawn without a repeat",
            "no interventions",
        ),
    )


def _on_text(inputs: Inputs, ctx: Ctx, words: tuple[str, ...]) -> HeadScoresResult:
    config, run = inputs.weights.config, inputs.run()
    ids = torch.tensor(inputs.subject.tokens)
    mean = np.full((len(SCORES), config.n_layers, config.n_heads), np.nan)
    for layer in range(config.n_layers):
        ctx.tick(layer, config.n_layers, "this prompt")
        pattern = run.get("pattern", layer)
        for i, score in enumerate(SCORES.values()):
            mean[i, layer] = score(pattern, ids).double().numpy()
    nothing = np.full_like(mean, np.nan)
    said = f"this prompt, {run.n} tokens: one sample, no spread"
    return HeadScoresResult(mean=mean, spread=nothing, control=nothing.copy(), conventions=(*words, said))
