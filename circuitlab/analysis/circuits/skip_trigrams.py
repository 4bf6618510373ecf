"""Skip-trigrams of a head, source … destination → out, from its QK and OV circuits together, and candidates for "bugs".

    score(s, d, o) = QK[d, s] · OV[s, o],     both minus the means of their rows (over sources, over out tokens), both > 0

(Elhage et al. 2021, "One-layer attention-only transformers": since QK and OV factorise, a head also promotes crossed triples that
nobody would write, such as "keep … in bay".) A *bug candidate* is a triple among the strongest destinations and outs of a source
whose bigram destination → out is nowhere in the training text, although the text has that destination with another of these outs,
and that out with another of these destinations. What is left of it in the whole model is measured in prompts made for it:
p(out | s d) against p(out | d) without the source, and against the text's own p(out | d), which is smoothed (`corpus_bigrams`).
The text is that which the model was trained on, where its bigrams are beside the model, or any file.

With `source` −1 the sources are those of the longest QK columns and OV rows, ‖QK[:, s]‖ · ‖OV[s, :]‖.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, TextRef, added, analysis, at_least, over
from circuitlab.analysis.circuits.effective_embedding import cost_of_readings
from circuitlab.analysis.circuits.factors import is_token_map, rotated, words
from circuitlab.analysis.circuits.ov_table import ov_bias_words
from circuitlab.analysis.circuits.qk_table import check_distance, score_words
from circuitlab.analysis.circuits.token_readings import Embedding, read_as, refuse_table
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams, embedding_gram
from circuitlab.analysis.circuits.vocabulary_rows import (
    BLOCK,
    OneHead,
    Side,
    check_count,
    check_token,
    one_head,
    out_factor,
    side_of,
)
from circuitlab.analysis.cost import of_gram, of_run
from circuitlab.analysis.ordering import descending
from circuitlab.counting import number_of
from circuitlab.disk.paths import base_name
from circuitlab.errors import Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import logits
from circuitlab.model.records.corpus_bigrams import CorpusBigrams, corpus_of, counted
from circuitlab.model.subject import Head
from circuitlab.model.weights import bos_of

TOGETHER, LONGEST = 32, 3  # prompts of bugs that are run together, and their tokens
WIDTH = 32  # destinations and outs of a source among which bug candidates are searched
FORMULA = "score(s, d, o) = QK[d, s] · OV[s, o], each minus the mean of its row, both > 0"


@dataclass(frozen=True)
class SkipTrigramsParams:
    """`k` triples of one `source`, or (−1) of the `sources` strongest ones; `bugs`: only bug candidates.

    `text`: a file that no bug is a bigram of, None for the training text, whose bigrams lie beside some models.
    `distance` from source to destination (rotary models; 0 is position-free). `embed`: what the head reads of each token.
    """

    head: Head = Head(0, 0)
    k: int = at_least(1, 40)
    sources: int = at_least(1, 64)
    source: int = at_least(-1, -1)
    bugs: bool = False
    distance: int = at_least(0, 0)
    embed: Embedding = "normalised tokens"
    text: TextRef | None = added(4, None)


@dataclass(frozen=True, kw_only=True, eq=False)
class SkipTrigramsResult(Result):
    """`source`, `destination`, `out` int64, `qk`, `ov`, `score` [≤ k], the largest score first; `formula` of the score.

    For bug candidates: in the text `known_out` follows the destination, and `known_destination` precedes the out, the strongest
    such of the same source; else −1. `followed`: how many tokens follow the destination in the text, as training weighs its
    texts; none of them is the bug's out. `probability`, `without_source`, `in_corpus` [≤ k] float64: of the out after a prompt of
    BOS (if the model has one), source and destination; after BOS and destination; after the destination in the text. Else NaN.
    """

    source: np.ndarray = over("trigram", unit="token id")
    destination: np.ndarray = over("trigram", unit="token id")
    out: np.ndarray = over("trigram", unit="token id")
    qk: np.ndarray = over("trigram", unit="score")
    ov: np.ndarray = over("trigram", unit="logit")
    score: np.ndarray = over("trigram", unit="score · logit")
    known_out: np.ndarray = over("trigram", unit="token id", none=True)
    known_destination: np.ndarray = over("trigram", unit="token id", none=True)
    probability: np.ndarray = over("trigram", unit="probability")
    without_source: np.ndarray = over("trigram", unit="probability")
    in_corpus: np.ndarray = over("trigram", unit="probability")
    followed: np.ndarray = over("trigram", unit="tokens", since=4)
    formula: str

    def table(self) -> Table:
        """One row per triple."""
        tokens = lambda *names: tuple(Column(name, getattr(self, name), of="token") for name in names)
        numbers = tuple(Column(name, getattr(self, name), str(self.unit_of(name))) for name in ("qk", "ov", "score"))
        measured = ("probability", "without_source", "in_corpus")
        numbers += tuple(Column(name.replace("_", " "), getattr(self, name), "probability") for name in measured)
        numbers += (Column("followed", self.followed, "tokens"),)
        return Table((*tokens("source", "destination", "out"), *numbers, *tokens("known_out", "known_destination")))


def _refuse(c: ModelConfig, p: SkipTrigramsParams) -> str | None:
    if p.bugs and not is_token_map(c):
        return "input and output vocabulary differ: the text has no bigrams to compare with."
    return refuse_table(c, p.embed, (p.head,))


def _memory(c: ModelConfig, n: int, p: SkipTrigramsParams) -> int:
    n_sources = 1 if p.source >= 0 else min(max(p.sources, 1), c.d_vocab)
    width = WIDTH if p.bugs else max(p.k, 1)
    ends = c.d_vocab + c.d_vocab_out + BLOCK
    factors = 0 if p.source >= 0 else 3 * c.d_head * ends
    prompts = TOGETHER * LONGEST * (4 * c.d_vocab_out + c.n_layers * 8 * c.d_model) if p.bugs else 0
    whole = c.d_vocab * c.d_model if p.embed == "after the first MLP" else 0
    numbers = whole + prompts + factors + 2 * n_sources * ends + 4 * ends + 10 * c.d_model * c.d_head + 4 * c.d_model
    return 8 * (numbers + n_sources * (12 * width + 6 * min(p.k, width * width)) + 6 * width**2)


def _holds(version: int, config: ModelConfig, p: SkipTrigramsParams) -> bool:
    """Version 3 knew of no other text than the training text, and did not say how often a destination is in it."""
    return version == 3 and p.text is None


def cost_of_strengths(c: ModelConfig) -> float:
    """`source_strengths`."""
    return of_gram(c) + 2.0 * c.d_head * c.d_model * (2 * c.d_vocab + c.d_vocab_out)


def _cost(c: ModelConfig, n: int, p: SkipTrigramsParams) -> float:
    one = p.source >= 0
    factors = 0.0 if one else cost_of_strengths(c) + cost_of_readings(c, p.embed)
    through = c.d_model if one else c.d_head  # a row of the OV circuit, where the others' factor is not made for it
    rows = 2.0 * (1 if one else p.sources) * (c.d_vocab * c.d_model + through * c.d_vocab_out)
    return factors + rows + (p.k * 2 * of_run(c, LONGEST) if p.bugs else 0.0)


@analysis(version=4, needs="weights", of_heads=True, lane="slow", memory=_memory, refuse=_refuse, holds=_holds, cost=_cost)
def skip_trigrams(inputs: Inputs, p: SkipTrigramsParams, ctx: Ctx) -> SkipTrigramsResult:
    """Skip-trigrams source … destination → out that a head promotes most, or the "bugs" among them, absent from the text."""
    c = inputs.weights.config
    check_count(min(p.k, p.sources))
    check_distance(c, p.distance)
    if p.source != -1:
        check_token(p.source, c.d_vocab)
    corpus = _corpus(inputs, p.text) if p.bugs else None
    with torch.inference_mode():
        head = one_head(inputs, p.head)
        side = side_of(inputs, p.head, p.embed)
        sources, qk, ov = (_strongest if p.source == -1 else _one)(inputs, p, head, side, ctx)
        triples = _Triples(p.k)
        for i, source in enumerate(sources):
            ctx.tick(i, len(sources), "triples of each source")
            triples.add(source, _desc(qk[:, i], p), _desc(ov[i], p), corpus)
        best, values = triples.best()
        measured = _measured(inputs, best, corpus, ctx)
    formula = FORMULA
    if corpus is not None:
        formula += f"; among the {WIDTH} strongest d and o of s, d → o not in the text, d → o′ and d′ → o in it"
    source_words = (
        f"the {number_of(len(sources), 'source')} of largest ‖QK[:, s]‖ · ‖OV[s, :]‖" if p.source == -1 else "one source"
    )
    conventions = (
        source_words,
        side.words,
        *score_words(c, head, p.distance, "query bias left out"),
        ov_bias_words(head),
        corpus.words() if corpus else "",
    )
    source, destination, out, known_out, known_destination = np.ascontiguousarray(best.T)
    qk, ov, score = np.ascontiguousarray(values.T.astype(inputs.subject.conventions.dtype))
    probability, without_source, in_corpus = measured
    followed = np.full(len(best), np.nan) if corpus is None else corpus.totals[destination].astype(np.float64)
    return SkipTrigramsResult(
        source=source,
        destination=destination,
        out=out,
        qk=qk,
        ov=ov,
        score=score,
        known_out=known_out,
        known_destination=known_destination,
        probability=probability,
        without_source=without_source,
        in_corpus=in_corpus,
        followed=followed,
        formula=formula,
        conventions=words(inputs, *conventions, scores=(p.head.layer,), unscaled=side.unscaled, beside_ov=True),
    )


def _measured(inputs: Inputs, triples: np.ndarray, corpus: CorpusBigrams | None, ctx: Ctx) -> np.ndarray:
    """[(with source, without, in the text), trigram] float64: probabilities of outs of bug candidates [trigram, 5], else NaN."""
    probabilities = np.full((3, len(triples)), np.nan)
    if corpus is None or not len(triples):
        return probabilities
    source, destination, out = triples[:, :3].T
    bos = bos_of(inputs.weights)
    begin = [] if bos is None or inputs.weights.config.n_ctx < LONGEST else [np.full(len(triples), bos)]
    for row, prompt in enumerate(((*begin, source, destination), (*begin, destination))):
        tokens = np.stack(prompt, axis=1)[:, -inputs.weights.config.n_ctx :]
        for start in range(0, len(tokens), TOGETHER):
            ctx.tick(start, len(tokens), "prompts of bugs")
            some = slice(start, start + TOGETHER)
            log_p = torch.log_softmax(logits(inputs.weights, torch.as_tensor(tokens[some]))[:, -1].double(), dim=-1)
            probabilities[row, some] = log_p.gather(1, torch.as_tensor(out[some])[:, None])[:, 0].exp().cpu().numpy()
    probabilities[2] = [np.exp(corpus.log_probs(int(d))[o]) for d, o in zip(destination, out, strict=True)]
    return probabilities


def _corpus(inputs: Inputs, text: TextRef | None) -> CorpusBigrams:
    """The bigrams of a file, or the training text's. Raises `Refused` if it is not known which bigrams the text lacks."""
    if text is not None:
        return counted(inputs.text(text), inputs.weights.config.d_vocab, base_name(text.path))
    corpus = corpus_of(inputs.subject.model, inputs.weights.config)
    if corpus is None:
        absent = "there are no bigrams of a training text beside this model, so it is not known which ones it lacks"
        raise Refused(f"{absent}: choose a text (text=FILE).")
    if not corpus.complete:
        raise Refused("the file of bigrams leaves out rare ones, so it is not known which ones the text lacks.")
    return corpus


_SourcesFound = tuple[list[int], Tensor, Tensor]


def _one(inputs: Inputs, p: SkipTrigramsParams, head: OneHead, side: Side, ctx: Ctx) -> _SourcesFound:
    """([source], QK column [d_vocab, 1], OV row [1, d_vocab_out]) of one source."""
    x, W_U = side.row(p.source), inputs.weights.unembed().W_U
    qk = _scores(inputs.weights.config, side, head, ((x - side.mean(ctx)) @ head.W_K)[None], p.distance, ctx)
    row = ((x @ head.W_V) @ head.W_O) @ W_U
    return [p.source], qk, (row - row.mean())[None]


class _Factors(NamedTuple):
    """Of every source: centred `keys` and `values` [d_vocab, d_head]; `outs` [d_head, ≥ n] of `n` tokens out; `strengths`
    [d_vocab] float64, (‖QK[:, s]‖ · ‖OV[s, :]‖)².
    """

    keys: Tensor
    values: Tensor
    outs: Tensor
    n: int
    strengths: Tensor


def _factors(inputs: Inputs, head: OneHead, side: Side, embed: Embedding, distance: int, ctx: Ctx) -> _Factors:
    """Lengths of columns and rows come from d_head × d_head Gram matrices."""
    c, read = inputs.weights.config, read_as(embed, head.head)
    products = inputs.answer(embedding_gram, EmbeddingGramParams(read, read))
    keys, values = side.times(head.W_K, ctx, "keys"), side.times(head.W_V, ctx, "values")
    keys -= keys.mean(0)
    outs, n = out_factor(inputs, head.W_O, ctx)
    W_Q = side.met(rotated(head.W_Q, c, head.head.layer, distance).double())
    column = _squares(keys, W_Q.T @ torch.tensor(products.gram(False)) @ W_Q)
    row = _squares(values, (outs @ outs.T).double())
    return _Factors(keys, values, outs, n, column * row)


def source_strengths(inputs: Inputs, head: Head, ctx: Ctx) -> np.ndarray:
    """[d_vocab] float64: (‖QK[:, s]‖ · ‖OV[s, :]‖)² of every source s, by which `skip_trigrams` chooses sources.

    Rotary positions left out. The caller has asked `refuse_table`.
    """
    embed: Embedding = SkipTrigramsParams.embed
    with torch.inference_mode():
        side = side_of(inputs, head, embed)
        return _factors(inputs, one_head(inputs, head), side, embed, 0, ctx).strengths.cpu().numpy()


def _strongest(inputs: Inputs, p: SkipTrigramsParams, head: OneHead, side: Side, ctx: Ctx) -> _SourcesFound:
    """As `_one`, of the strongest sources."""
    factors = _factors(inputs, head, side, p.embed, p.distance, ctx)
    chosen = torch.topk(factors.strengths, min(p.sources, len(factors.keys))).indices
    qk = _scores(inputs.weights.config, side, head, factors.keys[chosen], p.distance, ctx)
    return chosen.tolist(), qk, (factors.values[chosen] @ factors.outs)[:, : factors.n]


def _squares(W: Tensor, gram: Tensor) -> Tensor:
    """[row] float64: w G wᵀ of each row w, clamped at 0."""
    return ((W @ gram.to(W.dtype)) * W).sum(1, dtype=torch.float64).clamp(min=0)


def _scores(c: ModelConfig, side: Side, head: OneHead, keys: Tensor, distance: int, ctx: Ctx) -> Tensor:
    """[d_vocab, source]: scores of every destination with centred keys [source, d_head], which carry the rotation."""
    reader = head.W_Q @ rotated(keys, c, head.head.layer, -distance).T
    return c.score_scale * side.times(reader, ctx, "destinations")


def _desc(row: Tensor, p: SkipTrigramsParams) -> tuple[np.ndarray, np.ndarray]:
    """(ids, values) of the largest positive entries of a row; the k largest products need no more than k of each list."""
    top = torch.topk(row, min(WIDTH if p.bugs else p.k, len(row)))
    positive = int((top.values > 0).sum())
    return top.indices[:positive].cpu().numpy(), top.values[:positive].double().cpu().numpy()


class _Triples:
    """The best triples of each source, sorted by `best`."""

    def __init__(self, k: int) -> None:
        self.k, self.ids, self.values = k, [np.zeros((0, 5), np.int64)], [np.zeros((0, 3))]

    def add(
        self, s: int, to: tuple[np.ndarray, np.ndarray], outs: tuple[np.ndarray, np.ndarray], corpus: CorpusBigrams | None
    ) -> None:
        """The triples of source `s` from its (ids, values) of destinations and of outs."""
        (d, qk), (o, ov) = to, outs
        scores = np.outer(qk, ov)
        from_text = np.full((2, *scores.shape), -1)
        if corpus is not None and scores.size:
            in_text = np.array([corpus.follows(int(token), o) for token in d])
            crossed = ~in_text & in_text.any(axis=1, keepdims=True) & in_text.any(axis=0, keepdims=True)
            from_text = np.stack(np.broadcast_arrays(o[in_text.argmax(1)][:, None], d[in_text.argmax(0)]))
            scores = np.where(crossed, scores, 0)
        best = descending(scores)[: self.k]
        i, j = np.unravel_index(best[scores.ravel()[best] > 0], scores.shape)
        self.ids.append(np.stack([np.full(len(i), s), d[i], o[j], from_text[0, i, j], from_text[1, i, j]], axis=1))
        self.values.append(np.stack([qk[i], ov[j], scores[i, j]], axis=1))

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """([triple, 5] ids: source, destination, out, known out, known destination; [triple, 3] QK, OV, score), the best k."""
        ids, values = np.concatenate(self.ids), np.concatenate(self.values)
        order = descending(values[:, 2])[: self.k]
        return ids[order], values[order]
