"""Skip-trigrams of a head as text uses them: the sources whose attention raised the tokens that came, with examples.

For destinations i of a text, the token t that came after i, and a source token s at positions j ≤ i:

    g(i, j) = A[i, j] · (v_j W_O · N_i) · (W_U[:, t] − mean over the vocabulary)          logits, the direct effect on t
    logit(s) = Σ over i, and over j with token s, of g(i, j)                               attention × OV, summed over the text
    nats(s)  = Σ over i of  loss without s − loss with it                                  of what s adds to the logits at i

N_i are the norms between the head and the logits, at their recorded scales (Elhage et al. 2021, "One-layer attention-only
transformers": there the skip-trigrams are ranked by weights alone, here by what they do; beside each source stands its rank by
weights, by ‖QK[:, s]‖ · ‖OV[s, :]‖ over all tokens, as `skip_trigrams` has it). Later layers are not run again:
in a model of one layer without norms, `nats` is what the loss rises by where the head's attention to s is cut. The beginning of
the text (BOS) is no source: what it adds is given apart, and

    total = Σ over all sources of logit(s) + BOS + what interventions put in place of the head's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.analysis.attribution._contributions import PARTS_SUM
from circuitlab.analysis.attribution._linear_reading import Passage
from circuitlab.analysis.base import (
    Column,
    Ctx,
    Inputs,
    Need,
    Remainder,
    Result,
    Table,
    TextRef,
    analysis,
    at_least,
    over,
    scalar,
)
from circuitlab.analysis.behaviour.samples import check_counts, needs_of, refuse_loss, run_on, text_pieces
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.circuits.skip_trigrams import SkipTrigramsParams, cost_of_strengths, source_strengths
from circuitlab.analysis.circuits.token_readings import refuse_table
from circuitlab.analysis.cost import ASSUMED, of_logits, of_run
from circuitlab.analysis.ordering import Ranks, all_ranks, descending
from circuitlab.errors import BadInput
from circuitlab.model.block import soft_cap
from circuitlab.model.config import ModelConfig
from circuitlab.model.run import Run, uncapped
from circuitlab.model.subject import Head
from circuitlab.model.weights import bos_of

WIDTH = 8  # destinations and outs that a source is listed with
SEVERAL = 8  # about how many sources a destination uses
EXAMPLES = 3  # places in the text that a source is listed with
ROWS, PAIRS = 64, 256  # destinations, and pairs of destination and source, whose logits are in memory together


@dataclass(frozen=True)
class SkipTrigramsInTextParams:
    """The `sources` tokens that one `head` used most, in the prompt or in `texts` pieces of the file `text`, drawn with `seed`.

    `by`: ranked by the nats gained, or by the effect on the logits, in which frequent tokens come first.
    `length`: tokens of a piece, 0 for the model's context. `least`: the attention from which a source counts as used, and its
    nats are computed. `edited`: with the subject's interventions (the prompt always has them).
    """

    head: Head = Head(0, 0)
    on: Literal["prompt", "file"] = "prompt"
    text: TextRef | None = None
    texts: int = at_least(1, 32)
    length: int = at_least(0, 256)
    seed: int = at_least(0, 0)
    sources: int = at_least(1, 40)
    by: Literal["nats", "logit"] = "nats"
    least: float = 0.02
    edited: bool = False

    @property
    def needs(self) -> Need:
        """A file needs no prompt."""
        return needs_of(self.own_texts, self.edited)

    @property
    def own_texts(self) -> bool:
        """Whether positions are those of other texts than the prompt, whose interventions may be in force in them."""
        return self.on != "prompt"


@dataclass(frozen=True, kw_only=True, eq=False)
class SkipTrigramsInTextResult(Result):
    """The most used sources, ranked as asked; sums over all destinations that have a next token.

    `source`, `count` int64 [row], `attention`, `logit`, `nats` float64 [row]: `count` destinations attend to it with `least` or
    more, and `nats` is summed over those. `destination`, `out` int64 [row, WIDTH], −1 for none: the tokens after which it was
    used, and those that came, with their shares of `nats`, `destination_nats` and `out_nats`, the largest first.

    `example` int64 [row, EXAMPLES, (text, source, destination)], −1 for none: positions in `texts` int64 [text, pos] (−1 past a
    text's end), each with another destination or out token, with `example_logit`, `example_nats` [row, EXAMPLES], the most nats
    first.

    `weights_rank`, `weights_equal` int64 [row]: the source's rank by weights among all tokens, and how many have an equal one; −1
    where the model has no such tables.

    `total`: the head's whole effect on the tokens that came, in logits; `bos`, `others` (sources that are not listed), `placed`
    (by interventions) are the parts of it beside the rows. `predicted`: how many tokens came.
    """

    source: np.ndarray = over("source", unit="token id")
    count: np.ndarray = over("source", unit="destinations")
    attention: np.ndarray = over("source", unit="share of attention")
    logit: np.ndarray = over("source", unit="logit")
    nats: np.ndarray = over("source", unit="nats")
    destination: np.ndarray = over("source", "rank", unit="token id", none=True)
    destination_nats: np.ndarray = over("source", "rank", unit="nats")
    out: np.ndarray = over("source", "rank", unit="token id", none=True)
    out_nats: np.ndarray = over("source", "rank", unit="nats")
    example: np.ndarray = over("source", "example", "(text, source, destination)", unit="index", none=True)
    example_logit: np.ndarray = over("source", "example", unit="logit")
    example_nats: np.ndarray = over("source", "example", unit="nats")
    texts: np.ndarray = over("text", "position", unit="token id", none=True)
    weights_rank: np.ndarray = over("source", unit="rank", none=True, since=3)
    weights_equal: np.ndarray = over("source", unit="tokens", none=True, since=3)
    total: float = scalar("logit")
    bos: float = scalar("logit")
    others: float = scalar("logit")
    placed: float = scalar("logit")
    predicted: int

    def table(self) -> Table:
        """One row per source, with its first destination and out."""
        return Table(
            (
                Column("source", self.source, of="token"),
                Column("destination", self.destination[:, 0], of="token"),
                Column("out", self.out[:, 0], of="token"),
                Column("count", self.count, of="count"),
                Column("attention", self.attention),
                Column("logit", self.logit, "logit"),
                Column("nats", self.nats, "nats"),
                Column("rank by weights", self.weights_rank, of="count"),
            )
        )


def _refuse(config: ModelConfig, p: SkipTrigramsInTextParams) -> str | None:
    if p.on == "file" and p.text is None:
        return "no text file was chosen: give text=PATH."
    return refuse_loss(config)


def _memory(config: ModelConfig, n: int, p: SkipTrigramsInTextParams) -> int:
    length, texts = (n, 1) if p.on == "prompt" else (min(p.length or config.n_ctx, config.n_ctx), p.texts)
    stream = config.n_layers * (config.d_model + 3 * config.n_heads * config.d_head) + 12 * config.d_model
    logits = (ROWS + 4 * PAIRS) * config.d_vocab_out
    strengths = 2 * config.d_head * (2 * config.d_vocab + config.d_vocab_out) + 4 * config.d_vocab + 2 * config.d_model**2
    places = 20 * texts * length * int(min(length, 1 / max(p.least, 1e-3)))
    return 8 * (
        length * (stream + 8 * length + 4 * config.d_mlp) + PAIRS * length + logits + 6 * config.d_vocab + places + strengths
    )


def _holds(version: int, config: ModelConfig, p: SkipTrigramsInTextParams) -> bool:
    """Version 2 had no ranks by weights."""
    return version == 2


def _cost(config: ModelConfig, n: int, p: SkipTrigramsInTextParams) -> float:
    texts, length = (1, n or ASSUMED) if p.on == "prompt" else (p.texts, min(p.length or config.n_ctx, config.n_ctx))
    used = of_logits(config, length * min(length, SEVERAL))
    return texts * (of_run(config, length) + used) + cost_of_strengths(config)


@analysis(version=3, needs="tokens", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, holds=_holds, cost=_cost)
def skip_trigrams_in_text(inputs: Inputs, p: SkipTrigramsInTextParams, ctx: Ctx) -> SkipTrigramsInTextResult:
    """Skip-trigrams in use: the sources through which a head raised the tokens that came, with nats gained and examples."""
    check_heads(inputs.weights.config, p.head)
    check_counts(texts=p.texts, sources=p.sources)
    if not 0 <= p.least <= 1:
        raise BadInput(
            "There is no such share of attention.",
            expected="a number from 0 to 1",
            got=f"least {p.least:g}",
            remedy="Change least to such a share.",
        )
    texts, words = text_pieces(inputs, p.text if p.on == "file" else None, p.length, p.texts, p.seed, p.edited)
    with torch.inference_mode():
        sums, used = _Sums(inputs, texts), _Used(inputs, p)
        for i, reading in _readings(inputs, p, texts, ctx):
            sums.add(reading)
            used.add(i, reading, ctx)
    count, nats = used.by_source(inputs.weights.config.d_vocab)
    chosen = sums.strongest(nats if p.by == "nats" else sums.logit, p.sources)
    by_weights, weights_words = _by_weights(inputs, p.head, ctx)
    bos_words = "BOS is no source" if bos_of(inputs.weights) is not None else ""
    scales = " at recorded norm scales" if inputs.weights.config.norm != "none" else ""
    counted = f"used from {p.least:.3g} of attention on, for count and nats"
    direct = f"direct effects{scales}, minus their mean over the vocabulary"
    return SkipTrigramsInTextResult(
        source=chosen,
        count=count[chosen],
        attention=sums.attention[chosen],
        logit=sums.logit[chosen],
        nats=nats[chosen],
        **used.arrays(chosen),  # pyright: ignore[reportArgumentType]
        texts=_padded(texts),
        **sums.parts(chosen),
        weights_rank=by_weights.rank[chosen],
        weights_equal=by_weights.equal[chosen],
        remainder=sums.remainder(),
        predicted=sums.predicted,
        conventions=tuple(filter(None, (*inputs.convention_words(), *words, direct, counted, bos_words, weights_words))),
    )


def _by_weights(inputs: Inputs, head: Head, ctx: Ctx) -> tuple[Ranks, str]:
    """(Ranks [d_vocab] of all sources by weights, words for the caption)."""
    c = inputs.weights.config
    if reason := refuse_table(c, SkipTrigramsParams.embed, (head,)):
        nowhere = np.full(c.d_vocab, -1)
        return Ranks(nowhere, nowhere), f"no rank by weights: {reason.rstrip('.')}"
    ranks = all_ranks(source_strengths(inputs, head, ctx))
    distance = ", rotary positions left out" if c.positions == "rotary" else ""
    return Ranks(ranks.rank.astype(np.int64), ranks.equal.astype(np.int64)), f"rank by weights: ‖QK[:, s]‖ · ‖OV[s, :]‖{distance}"


def _padded(texts: list[tuple[int, ...]]) -> np.ndarray:
    ids = np.full((len(texts), max(map(len, texts))), -1, dtype=np.int64)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return ids


@dataclass(frozen=True, eq=False)
class _Reading:
    """A head in one text. Over destinations with a next token: `A` [dest, src], `gain` [dest, src] g(i, j), `scale` [dest, 1].

    `moved` [src, d_model]: v_j W_O through the norms without their scale; `output` [dest]: the effect of all that the head wrote;
    `replaced` [dest]: whether an intervention acts on the head's output there, not on its sources.
    """

    run: Run
    tokens: np.ndarray
    A: Tensor
    gain: Tensor
    scale: Tensor
    moved: Tensor
    output: Tensor
    replaced: np.ndarray

    @property
    def came(self) -> np.ndarray:
        """[dest]: the tokens that came."""
        return self.tokens[1:]


def _readings(
    inputs: Inputs, p: SkipTrigramsInTextParams, texts: list[tuple[int, ...]], ctx: Ctx
) -> Iterator[tuple[int, _Reading]]:
    """(Index of the text, the head in it), of texts of which a token can be predicted."""
    unembed, mean = inputs.weights.unembed().W_U, inputs.weights.unembed().W_U.mean(dim=1)
    for i, tokens in enumerate(texts):
        ctx.tick(i, len(texts), "texts")
        if len(tokens) > 1:
            run = run_on(inputs, tokens, p.on == "prompt", p.edited, ctx)
            D = (unembed[:, torch.tensor(tokens[1:])] - mean[:, None]).T
            yield i, _read(run, p.head, D)


def _read(run: Run, head: Head, D: Tensor) -> _Reading:
    """`D` [dest, d_model]: the centred directions of the tokens that came."""
    c, i, only, dest = run.weights.config, head.layer, (head.head,), slice(0, run.n - 1)
    passage = Passage(run, i, c.n_layers, dest)
    v, W_O = run.get("v", i, (c.kv_head(head.head),))[0], run.weights.layer(i, mlp=False).W_O[head.head]
    share = run.editor.kept_share(i, ("z", "result"), v.new_empty(c.n_heads, run.n, 1))[head.head, dest, 0]
    A = run.get("pattern", i, only, dest)[0] * share[:, None]
    moved = passage.apply(v @ W_O)
    gain = A * (D @ moved.T) * passage.scale
    output = (passage.scale * passage.apply(run.get("result", i, only, dest)[0]) * D).sum(-1)
    return _Reading(run, np.array(run.tokens), A, gain, passage.scale, moved, output, (share != 1).numpy())


def _uncapped(run: Run, dest: slice) -> Tensor:
    assert run.final is not None
    return uncapped(run.weights, run.weights.unembed(), run.final[dest])


class _Sums:
    """Every source's attention and effect, summed over all destinations."""

    def __init__(self, inputs: Inputs, texts: list[tuple[int, ...]]) -> None:
        self.bos_id = bos_of(inputs.weights)
        self._occurs = np.zeros(inputs.weights.config.d_vocab, dtype=bool)
        self._occurs[np.concatenate(texts)] = True
        if self.bos_id is not None:
            self._occurs[self.bos_id] = False
        self.attention, self.logit = np.zeros((2, inputs.weights.config.d_vocab))
        self.total, self._placed, self.sizes, self.error, self.predicted = 0.0, 0.0, 0.0, 0.0, 0

    def add(self, reading: _Reading) -> None:
        """Add a text."""
        gain, output = reading.gain.double().cpu().numpy(), reading.output.double().cpu().numpy()
        np.add.at(self.logit, reading.tokens, gain.sum(0))
        np.add.at(self.attention, reading.tokens, reading.A.double().sum(0).cpu().numpy())
        self.predicted += len(output)
        self.total += float(output.sum())
        rest = output - gain.sum(1)
        self._placed += float(rest[reading.replaced].sum())
        self.error = max(self.error, float(np.abs(rest[~reading.replaced]).max(initial=0.0)))
        self.sizes = max(self.sizes, float(np.abs(gain).sum(1).max(initial=0.0)))

    def strongest(self, sums: np.ndarray, k: int) -> np.ndarray:
        """[row] the ids of the sources in the texts of the largest `sums` [d_vocab], BOS left out."""
        order = descending(np.where(self._occurs, sums, -np.inf))
        return order[: min(k, int(self._occurs.sum()))]

    def parts(self, chosen: np.ndarray) -> dict[str, float]:
        """The scalars of the result; they and the rows of `chosen` add up to `total`."""
        bos = 0.0 if self.bos_id is None else float(self.logit[self.bos_id])
        others = float(self.logit.sum()) - bos - float(self.logit[chosen].sum())
        return {"total": self.total, "bos": bos, "others": others, "placed": self._placed}

    def remainder(self) -> Remainder:
        """What sources and interventions leave of the head's effect at a destination, at most."""
        return Remainder(self.error, self.sizes, "logits", PARTS_SUM)


class _Used:
    """Where a source was used: pairs of a destination and all positions of one source, attended to enough."""

    def __init__(self, inputs: Inputs, p: SkipTrigramsInTextParams) -> None:
        self._least, self._unembed, self._cap = p.least, inputs.weights.unembed().W_U, inputs.weights.config.logit_soft_cap
        self._places, self._values = [np.zeros((0, 6), np.int64)], [np.zeros((0, 2))]

    def add(self, text: int, reading: _Reading, ctx: Ctx) -> None:
        """Add a text."""
        sources, of = np.unique(reading.tokens, return_inverse=True)
        of_source = torch.as_tensor(of[:, None] == np.arange(len(sources)), dtype=reading.A.dtype)
        attention, n = reading.A @ of_source, len(reading.came)
        for start in range(0, n, ROWS):
            ctx.tick(start, n, "nats gained")
            dest = slice(start, min(start + ROWS, n))
            where, which = torch.nonzero((attention[dest] >= self._least) & (attention[dest] > 0), as_tuple=True)
            logits = _uncapped(reading.run, dest) if len(where) else reading.A[:0]
            for k in range(0, len(where), PAIRS):
                i, s = where[k : k + PAIRS], which[k : k + PAIRS]
                A = reading.A[dest][i] * of_source[:, s].T
                self._values.append(self._gained(reading, dest, i, A, logits))
                at, j = i.numpy() + start, A.argmax(dim=1).cpu().numpy()
                place = (sources[s.numpy()], reading.tokens[at], reading.came[at], np.full(len(at), text), j, at)
                self._places.append(np.stack(place, axis=1))

    def _gained(self, reading: _Reading, dest: slice, i: Tensor, A: Tensor, logits: Tensor) -> np.ndarray:
        """[pair, (logit, nats)]: what attention `A` [pair, src] adds at destinations `i` of `dest`, whose logits are `logits`."""
        effect = (reading.scale[dest][i] * (A @ reading.moved)) @ self._unembed
        came = torch.as_tensor(reading.came[dest])[i]
        on_next = effect.gather(1, came[:, None])[:, 0] - effect.mean(dim=-1)
        nats = self._losses(logits[i] - effect, came) - self._losses(logits[i], came)
        return torch.stack([on_next, nats], dim=1).double().cpu().numpy()

    def _losses(self, logits: Tensor, came: Tensor) -> Tensor:
        return F.cross_entropy(soft_cap(logits, self._cap), came, reduction="none")

    def by_source(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(count [n] int64, nats [n]) of every source of a vocabulary of n."""
        source, nats = np.concatenate(self._places)[:, 0], np.concatenate(self._values)[:, 1]
        return np.bincount(source, minlength=n), np.bincount(source, weights=nats, minlength=n).astype(np.float64)

    def arrays(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Destinations, outs and examples of the chosen sources."""
        places, values = np.concatenate(self._places), np.concatenate(self._values)
        order = np.argsort(places[:, 0], kind="stable")
        low, high = (np.searchsorted(places[order, 0], chosen, side=side) for side in ("left", "right"))
        rows = [_listed(places[order[a:b]], values[order[a:b]]) for a, b in zip(low, high, strict=True)]
        return {name: np.stack([row[name] for row in rows]) if rows else empty for name, empty in _unlisted().items()}


def _listed(places: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """What one source is listed with, of its `places` [pair, 6] and `values` [pair, 2]."""
    row = {name: array[0] for name, array in _unlisted(1).items()}
    for name, token in (("destination", places[:, 1]), ("out", places[:, 2])):
        ids, of = np.unique(token, return_inverse=True)
        sums = np.bincount(of, weights=values[:, 1], minlength=len(ids))
        best = [k for k in descending(sums)[:WIDTH] if sums[k] > 0]
        row[name][: len(best)], row[f"{name}_nats"][: len(best)] = ids[best], sums[best]
    best_first = descending(values[:, 1])
    _, first = np.unique(places[best_first][:, 1:3], axis=0, return_index=True)  # each destination and out once
    best = best_first[np.sort(first)][:EXAMPLES]
    row["example"][: len(best)] = places[best][:, 3:]
    row["example_logit"][: len(best)], row["example_nats"][: len(best)] = values[best].T
    return row


def _unlisted(n: int = 0) -> dict[str, np.ndarray]:
    """Arrays of n rows without a value."""
    ids = {name: np.full((n, WIDTH), -1, dtype=np.int64) for name in ("destination", "out")}
    effects = {name: np.full((n, WIDTH), np.nan) for name in ("destination_nats", "out_nats")}
    places = {"example": np.full((n, EXAMPLES, 3), -1, dtype=np.int64)}
    return ids | effects | places | {name: np.full((n, EXAMPLES), np.nan) for name in ("example_logit", "example_nats")}
