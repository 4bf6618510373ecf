"""The shipped prompt sets: how often the answer is the model's first choice, and how often it beats the other answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circuitlab.analysis.behaviour.predictions import PredictionsResult
from circuitlab.analysis.behaviour.token_loss import TokenLossResult
from circuitlab.analysis.ordering import Ranks, rank_in
from circuitlab.api.model import Model
from circuitlab.disk.paths import resource
from circuitlab.model.prompts import Prompt, lines_of, read_prompts
from circuitlab.witnesses.estimate import Mean, mean_of
from circuitlab.witnesses.prose import tokenizer_of

NAMES = "names_said_again"  # the set whose answers most tokenizers split
SETS = ("literal_copying", "literal_copying_two_tokens", "names_continued", NAMES, "names_repeated")


class OnSet(NamedTuple):
    """`first`: share of prompts whose answer's first token is more probable than all others; `over_other`: than the other
    answer's; `probability` of it. Means over prompts.
    """

    first: Mean
    over_other: Mean
    probability: Mean


def prompts_of(model: Model, name: str) -> tuple[Prompt, ...]:
    """The prompts of a shipped set, read by the model's tokenizer."""
    file = resource("prompts", f"{name}.tsv")
    opened = model.engine.store.open(model.ref).opened.weights
    return read_prompts(file.read_text(encoding="utf-8"), file.name, opened.tokenizer, opened.config)


def on_set(model: Model, name: str) -> OnSet:
    """The model on a shipped set. Raises `BadInput` where its tokenizer does not fit."""
    rows = [_on_prompt(model, prompt) for prompt in prompts_of(model, name)]
    return OnSet(*(mean_of(column) for column in np.array(rows, dtype=float).T))


def names_to_the_end(model: Model) -> Mean:
    """Share of the names of `NAMES` that the model says to the end: each of its tokens after the first is the first choice.

    The tokens before are given. Over names of several tokens. Raises `BadInput` where its tokenizer does not fit.
    """
    tokenizer, ends = tokenizer_of(model), list[float]()
    lines = lines_of(resource("prompts", f"{NAMES}.tsv").read_text(encoding="utf-8"))
    for (_, (_, name, _)), prompt in zip(lines, prompts_of(model, NAMES), strict=True):
        spelled = tokenizer.encode(name)
        if len(spelled) < 2:
            continue
        losses = model.compute("token_loss", tokens=(*prompt.tokens, *spelled)).result
        assert isinstance(losses, TokenLossResult)
        rest = slice(len(prompt.tokens) + 1, None)
        ends.append(float((Ranks(losses.rank[rest], losses.equal[rest]).last == 1).all()))
    return mean_of(ends)


def _on_prompt(model: Model, prompt: Prompt) -> tuple[float, float, float]:
    """(first choice, over the other answer, probability) of one prompt."""
    result = model.compute("predictions", tokens=prompt.tokens, k=1, whole=True).result
    assert isinstance(result, PredictionsResult)
    logits = result.all_logits.astype(np.float64)
    answer, *others = prompt.target.tokens
    log_sum = float(result.logits[0]) - float(result.log_probs[0])
    beats = float(all(logits[answer] > logits[other] for other in others)) if others else float("nan")
    return float(rank_in(logits, logits[answer]).last == 1), beats, float(np.exp(logits[answer] - log_sum))
