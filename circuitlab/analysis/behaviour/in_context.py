"""In-context learning: the loss by token index, the in-context score, and the loss of each repetition of random tokens.

    loss(i)          mean over texts of −ln p(t_i | t_0 … t_{i−1}), nats
    in-context score mean over texts of (mean loss of late tokens − mean loss of early ones); negative: in-context learning
    dloss/dln(i)     slope of the least-squares line through (ln j, loss(j)), i/ratio ≤ j ≤ i·ratio

Olsson et al. (2022) take the 500th and the 50th token of 10 000 texts of 512. Here the early tokens begin at min(50, n/10) and
the late ones end at min(500, n − 1) of n; up to `width` tokens are averaged at either end. On repeated random tokens the mean
loss of each repetition is given too, without its first token, which cannot be predicted.

Tokens at some indices of a text are harder than at others, whatever the context. The control removes that: a model without
layers sees only the previous token, so its score on the same texts is due to the texts alone. `control` is its loss by index,
`controlled` the score minus its score, text by text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from circuitlab.analysis.base import (
    Column,
    Ctx,
    Inputs,
    Need,
    Result,
    SeriesRef,
    Table,
    TextRef,
    analysis,
    at_least,
    over,
    scalar,
)
from circuitlab.analysis.behaviour.samples import (
    check_counts,
    drawn_words,
    edit_words,
    fit_to_context,
    losses_of,
    needs_of,
    no_room,
    refuse_loss,
    repeated_random,
    run_on,
    text_pieces,
)
from circuitlab.analysis.cost import of_run
from circuitlab.caption_parts import sampled
from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import ROWS
from circuitlab.model.subject import ModelRef
from circuitlab.model.weights import bos_of


@dataclass(frozen=True)
class InContextParams:
    """`on`: repeated random tokens, the prompt, or pieces of the file `text`; `texts` of them, drawn with `seed`.

    `length`: tokens of a piece, 0 for the model's context. `block` random tokens × `repeats`, fewer if the context is shorter.
    `early`, `late`: indices, 0 for the defaults; `width`: tokens averaged at either end. `ratio`: the range of indices of the
    slope. `edited`: with the subject's interventions (the prompt always has them).
    """

    on: Literal["random", "prompt", "file"] = "random"
    text: TextRef | None = None
    texts: int = at_least(1, 32)
    length: int = at_least(0, 0)
    block: int = at_least(1, 50)
    repeats: int = at_least(1, 2)
    seed: int = at_least(0, 0)
    early: int = at_least(0, 0)
    late: int = at_least(0, 0)
    width: int = at_least(1, 10)
    ratio: float = 1.5
    edited: bool = False
    control: SeriesRef | None = None

    @property
    def needs(self) -> Need:
        """Random tokens and files need no prompt: their losses stay cached while the prompt changes."""
        return needs_of(self.own_texts, self.edited)

    @property
    def own_texts(self) -> bool:
        """Whether positions are those of other texts than the prompt, whose interventions may be in force in them."""
        return self.on != "prompt"


@dataclass(frozen=True, kw_only=True, eq=False)
class InContextResult(Result):
    """`losses` [text, pos] in nats, NaN at the first token and if not computed. Over the computed texts:

    `loss`, `spread` (standard deviation over texts), `derivative` (by ln index) [pos], nats; `scores` [text]: late minus early
    loss, NaN if the text is too short for both; `repetitions` [text, repetition]: mean loss of each without its first token, no
    columns on text. `early`, `late`: (first, last) index; `starts`: where repetitions begin. `control` [pos] and
    `control_scores` [text]: loss and score of the control on the same texts, NaN without one.

    `score`: the in-context score, mean over texts; `controlled`: minus the control's on the same texts; `error`,
    `controlled_error`: their standard errors over texts, the second with texts paired; NaN for one text or without a control.
    """

    losses: np.ndarray = over("text", "position", unit="nats")
    loss: np.ndarray = over("position", unit="nats")
    spread: np.ndarray = over("position", unit="nats")
    derivative: np.ndarray = over("position", unit="nats")
    scores: np.ndarray = over("text", unit="nats")
    repetitions: np.ndarray = over("text", "repetition", unit="nats")
    control: np.ndarray = over("position", unit="nats")
    control_scores: np.ndarray = over("text", unit="nats")
    early: tuple[int, int]
    late: tuple[int, int]
    starts: tuple[int, ...] = ()
    ACROSS: ClassVar = {"score": "nats", "controlled": "nats"}
    score: float = scalar("nats")
    error: float = scalar("nats")
    controlled: float = scalar("nats")
    controlled_error: float = scalar("nats")

    def table(self) -> Table:
        """One row per index."""
        columns = [
            Column("index", np.arange(len(self.loss))),
            Column("loss", self.loss, "nats"),
            Column("sd", self.spread, "nats"),
            Column("d loss / d ln index", self.derivative, "nats"),
        ]
        if not np.isnan(self.control).all():  # where there is one
            columns.append(Column("loss of the control", self.control, "nats"))
        return Table(tuple(columns))

    def across(self) -> Mapping[str, np.ndarray]:
        """The in-context score, as it is and minus the control's."""
        return {"score": np.array(self.score), "controlled": np.array(self.controlled)}


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def log_slope(loss: np.ndarray, ratio: float) -> np.ndarray:
    """[pos]: least-squares slope of loss [pos] against ln(index) over i/ratio … i·ratio; NaN for fewer than two indices."""
    out = np.full(len(loss), np.nan)
    x = np.log(np.arange(1, len(loss) + 1, dtype=float))  # x[i − 1] belongs to index i
    for i in range(1, len(loss)):
        first, last = math.ceil(i / ratio), math.floor(min(i * ratio, len(loss) - 1))
        if last > first:
            near = x[first - 1 : last] - x[first - 1 : last].mean()
            out[i] = near @ loss[first : last + 1] / (near @ near)
    return out


def windows(n: int, early: int, late: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """((first, last) early index, (first, last) late index) of texts of n tokens."""
    begin = min(early or min(50, max(1, n // 10)), max(1, n - 1))
    end = min(late or 500, n - 1)
    wide = max(1, min(width, begin))
    return (begin, begin + wide - 1), (max(1, end - wide + 1), max(1, end))


def _refuse(config: ModelConfig, p: InContextParams) -> str | None:
    if p.on == "file" and p.text is None:
        return "no text file was chosen: give text=PATH."
    if p.on == "random" and (reason := no_room(config, p.block, p.repeats)):
        return reason
    if p.control is not None and p.on == "random":
        unrepeated = f"block={p.block * p.repeats} repeats=1"
        return (
            f"random tokens need no control: its loss on them is the same at every index. Compare unrepeated ones, {unrepeated}."
        )
    return None if p.on == "random" else refuse_loss(config)


def _memory(config: ModelConfig, n: int, p: InContextParams) -> int:
    length = min(p.length or config.n_ctx, config.n_ctx) if p.on == "file" else p.block * p.repeats + 1 if p.on == "random" else n
    per_token = config.n_layers * (config.d_model + 3 * config.n_heads * config.d_head) + 12 * config.d_model
    return 8 * (length * (per_token + 4 * config.d_mlp + p.texts) + 3 * min(ROWS, length) * config.d_vocab_out)


def _holds(version: int, config: ModelConfig, p: InContextParams) -> bool:
    """Of version 5 nothing says which weights the control had."""
    return version == 5 and p.control is None


def _cost(config: ModelConfig, n: int, p: InContextParams) -> float:
    length = {"random": p.block * p.repeats, "prompt": n, "file": p.length or config.n_ctx}[p.on]
    return (p.texts if p.own_texts else 1) * of_run(config, min(length, config.n_ctx))


@analysis(version=6, needs="tokens", lane="slow", memory=_memory, refuse=_refuse, holds=_holds, cost=_cost)
def in_context(inputs: Inputs, p: InContextParams, ctx: Ctx) -> InContextResult:
    """In-context learning: loss by token index, in-context score, derivative by log index, loss of each repetition."""
    check_counts(texts=p.texts, block=p.block, repeats=p.repeats, width=p.width)
    if p.ratio <= 1 or min(p.length, p.early, p.late) < 0:
        got = f"ratio {p.ratio:g}, length {p.length}, early {p.early}, late {p.late}"
        raise BadInput(
            "There are no such indices.",
            expected="ratio > 1; length, early, late ≥ 0",
            got=got,
            remedy="Change the parameters to such values.",
        )
    texts, words = texts_of(inputs, p)
    n = len(texts[0])
    control = None if p.control is None else control_of(inputs, p.control)
    control_losses = np.full((len(texts), n), np.nan)
    for i, tokens in enumerate(texts if control is not None and n > 1 else ()):
        assert control is not None
        ctx.tick(i, len(texts), "the control")
        control_losses[i, 1:] = losses_of(control.run(tokens, ()), ctx)
    result = lambda losses, done: _result(inputs, p, losses, control_losses, words, done)
    losses, previous = np.full((len(texts), n), np.nan), ctx.previous
    if isinstance(previous, InContextResult) and previous.losses.shape == losses.shape:
        losses = previous.losses.copy()
    for i, tokens in enumerate(texts):
        ctx.tick(i, len(texts), "loss by index")
        if n < 2 or not np.isnan(losses[i, 1:]).all():
            continue
        losses[i, 1:] = losses_of(run_on(inputs, tokens, p.on == "prompt", p.edited, ctx), ctx)
        if i + 1 < len(texts):
            ctx.partial(result(losses.copy(), (i + 1) / len(texts)))
    return result(losses, 1.0)


def control_of(inputs: Inputs, ref: SeriesRef) -> Inputs:
    """The control model. Raises `BadInput` if it has layers or another tokenizer."""
    other = inputs.other(ref)
    mine, its = inputs.weights.tokenizer, other.weights.tokenizer
    if other.weights.config.n_layers:
        got = number_of(other.weights.config.n_layers, "layer")
        raise BadInput(
            "The control sees more than the previous token.",
            expected="a model without layers",
            got=got,
            remedy="Choose such a model, trained with this model's tokenizer, or leave out the control.",
        )
    if mine is None or its is None or mine.content != its.content:
        expected = "a model without layers that has this model's own tokenizer"
        raise BadInput(
            "The control reads other tokens.",
            expected=expected,
            got=ref.source,
            remedy="Choose such a model, trained with this model's tokenizer, or leave out the control.",
        )
    return other


def _result(
    inputs: Inputs, p: InContextParams, losses: np.ndarray, control_losses: np.ndarray, words: tuple[str, ...], done: float
) -> InContextResult:
    n, empty = losses.shape[1], np.full(losses.shape[1], np.nan)
    computed = ~np.isnan(losses[:, 1:]).all(axis=1) if n > 1 else np.zeros(len(losses), dtype=bool)
    losses_computed, control_computed = losses[computed], control_losses[computed]
    early, late = windows(n, p.early, p.late, p.width)
    fit = fit_to_context(inputs.weights.config, p.block, p.repeats) if p.on == "random" else None
    block = 0 if fit is None else fit.block
    starts = tuple(range(n - block * fit.repeats, n, block)) if fit is not None and block > 1 else ()
    loss = losses_computed.mean(axis=0) if len(losses_computed) else empty
    each = [losses_computed[:, s + 1 : s + block].mean(axis=1) for s in starts]
    both = late[0] > early[1]  # else the text is too short for two disjoint ends
    scores, others = (
        _window_mean(x, late) - _window_mean(x, early) if both else np.full(len(losses_computed), np.nan)
        for x in (losses_computed, control_computed)
    )
    mean = lambda values: float(values.mean()) if len(values) else math.nan
    return InContextResult(
        losses=losses,
        loss=loss,
        spread=losses_computed.std(axis=0, ddof=1) if len(losses_computed) > 1 else empty.copy(),
        derivative=log_slope(loss, p.ratio),
        scores=scores,
        score=mean(scores),
        error=_standard_error(scores),
        controlled=mean(scores - others),
        controlled_error=_standard_error(scores - others),
        control=control_computed.mean(axis=0) if len(control_computed) else empty.copy(),
        control_scores=others,
        repetitions=np.stack(each, axis=1) if each else np.empty((len(losses_computed), 0)),
        early=early,
        late=late,
        starts=starts,
        conventions=(
            *inputs.convention_words(),
            *words,
            _window_words(early, late),
            *((f"control: {ModelRef(p.control.source).name}, the same texts",) if p.control is not None else ()),
            f"slope: least squares over indices i/{p.ratio:g} … i·{p.ratio:g}",
        ),
        done=done,
    )


def _window_mean(losses: np.ndarray, window: tuple[int, int]) -> np.ndarray:
    return losses[:, window[0] : window[1] + 1].mean(axis=1)


def texts_of(inputs: Inputs, p: InContextParams) -> tuple[list[tuple[int, ...]], tuple[str, ...]]:
    """(texts to measure, words for the caption)."""
    config, bos = inputs.weights.config, bos_of(inputs.weights)
    if p.on == "random":
        fit = fit_to_context(config, p.block, p.repeats)
        assert fit is not None  # else refused
        samples = repeated_random(config, bos, *fit, p.texts, p.seed).tolist()
        front = "BOS + " if bos is not None else ""
        sample_words = sampled(f"{number_of(p.texts, 'sample')} of {front}{fit.words(p.block, p.repeats)}, seed {p.seed}")
        words = (sample_words, *drawn_words(config, bos, fit.block), *edit_words(inputs, p.edited))
        return [tuple(t) for t in samples], words
    return text_pieces(inputs, p.text if p.on == "file" else None, p.length, p.texts, p.seed, p.edited)


def _window_words(early: tuple[int, int], late: tuple[int, int]) -> str:
    if late[0] <= early[1]:
        return "the texts are too short for an in-context score"
    return f"in-context score: tokens {late[0]}–{late[1]} minus {early[0]}–{early[1]}"
