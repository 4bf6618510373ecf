"""Bigrams of direct path and corpus, and skip-trigrams, against counts by hand and materialised circuits."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tokenizers import pre_tokenizers

from circuitlab.analysis.base import TextRef
from circuitlab.analysis.circuits.bigram import BigramParams
from circuitlab.analysis.circuits.direct_path import DirectPathParams
from circuitlab.analysis.circuits.largest_entries import LargestEntriesParams
from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.circuits.ov_top_tokens import OvTopTokensParams
from circuitlab.analysis.circuits.qk_table import QkTableParams
from circuitlab.analysis.circuits.skip_trigrams import WIDTH, SkipTrigramsParams
from circuitlab.disk.regular_file import stamp_at
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.corpus_bigrams import FILE, _read
from circuitlab.model.subject import Conventions, Head, ModelRef
from circuitlab.training.bigrams import count_bigrams, write, write_bigrams
from circuitlab.training.corpus import Stream
from tests.models import CONFIGS, byte_tokenizer, directory
from tests.reference.slow_forward import SlowModel
from tests.reference.whole_circuits import Whole, as_double, centred, gauged
from tests.rounding import check_largest
from tests.unit.test_tables import DOUBLE, ask, made

RAW = Conventions(centre=False, dtype="float64")


def _streams(n: int) -> tuple[Stream, Stream]:
    """Two texts of unequal share over the first half of the vocabulary."""
    rng, none = np.random.default_rng(0), np.zeros(0, np.uint16)
    draw = lambda size: (rng.integers(0, max(n // 2, 1), size) * rng.random(size)).astype(np.uint16)
    return Stream("a", 0.75, draw(300), none), Stream("b", 0.25, draw(500), none)


class ByHand:
    """The published formulas over plain dictionaries."""

    def __init__(self, streams: tuple[Stream, ...], n: int) -> None:
        self.n, self.pairs, self.single = n, Counter[tuple[int, int]](), Counter[int]()
        total = sum(len(s.train) for s in streams)
        for s in streams:
            weight, tokens = s.share * total / len(s.train), s.train.tolist()
            for pair in pairwise(tokens):
                self.pairs[pair] += weight  # type: ignore[assignment]
            for token in tokens:
                self.single[token] += weight  # type: ignore[assignment]
        self.total = total

    def log_prob(self, i: int, j: int) -> float:
        u = (self.single[j] + 1) / (self.total + self.n)
        row = {b: c for (a, b), c in self.pairs.items() if a == i}
        return math.log((row.get(j, 0) + len(row) * u) / (sum(row.values()) + len(row))) if row else math.log(u)


def with_corpus(path: Path, n: int, limit: int = 10**6) -> ByHand:
    write(path / FILE, count_bigrams(_streams(n), n), "two texts", limit)
    return ByHand(_streams(n), n)


def _corpus(path: Path) -> Any:
    return _read(path / FILE, stamp_at(path / FILE))


def test_corpus_bigrams_are_the_counts_by_hand(tmp_path: Path) -> None:
    hand = with_corpus(tmp_path, 40)
    result = _corpus(tmp_path)
    assert result.complete
    for i in range(40):
        ids, counts = result.row(i)
        wanted = sorted((b, c) for (a, b), c in hand.pairs.items() if a == i)
        assert ids.tolist() == [b for b, _ in wanted]
        np.testing.assert_allclose(counts, [c for _, c in wanted], rtol=0.02)
        assert result.follows(i, np.arange(40)).tolist() == [(i, j) in hand.pairs for j in range(40)]
        np.testing.assert_allclose(result.log_probs(i), [hand.log_prob(i, j) for j in range(40)], atol=0.02)
        assert np.exp(result.log_probs(i)).sum() == pytest.approx(1, abs=1e-6)


def test_what_does_not_fit_is_left_out_the_rarest_first(tmp_path: Path) -> None:
    hand = with_corpus(tmp_path, 40, limit=16 * 41 + 2048 + 3 * 50)
    result = _corpus(tmp_path)
    assert not result.complete
    assert len(result.steps) == 50
    kept = [c for i in range(40) for c in result.row(i)[1]]
    assert min(kept) >= sorted(hand.pairs.values())[-50] * 0.98
    assert all(np.exp(result.log_probs(i)).sum() == pytest.approx(1, abs=1e-6) for i in range(40))
    total = {i: sum(c for (a, _), c in hand.pairs.items() if a == i) for i in range(40)}
    token = max(total, key=lambda i: total[i])
    ids, counts = result.row(token)
    backed = len(ids) + total[token] - counts.sum()  # what is not kept goes to the single tokens
    assert 0 < len(ids) < sum(a == token for a, _ in hand.pairs)
    wanted = np.log(backed * result.unigrams[39] / (backed + counts.sum()))
    assert result.log_probs(token)[39] == pytest.approx(wanted, abs=1e-5)


def test_texts_are_counted_with_the_models_tokenizer(tmp_path: Path) -> None:
    path = directory(tmp_path / "m")
    (tmp_path / "text.txt").write_text("abab" * 200)
    assert write_bigrams(path, [str(tmp_path / "text.txt")]) == path / FILE
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    a, b = (1 + alphabet.index(c) for c in "ab")
    result = _corpus(path)
    assert result.row(a)[0].tolist() == [b]
    assert result.row(b)[0].tolist() == [a]
    assert result.text == "text.txt 1, 705 tokens"  # all but two contexts that are held out
    assert ask(path, "bigram", BigramParams(a)).corpus_log_probs.shape == (20,)


def _direct(path: Path, c: ModelConfig) -> np.ndarray:
    """[token, out] logits of the model without its layers."""
    slow = Whole(path, c)
    x = slow.norm(slow.W_E) if c.final_norm else slow.W_E
    b = slow.t.get("unembed.b_U", np.zeros(c.d_vocab_out)) + slow.shift("unembed.norm") @ slow.t.get(
        "unembed.W_U", slow.t["embed.W_E"].T
    )
    return x @ slow.W_U + b - b.mean()


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "tied-scaled"])
@pytest.mark.parametrize("conventions", [DOUBLE, RAW])
def test_the_direct_path_is_the_model_without_layers(tmp_path: Path, name: str, conventions: Conventions) -> None:
    path, c = made(tmp_path, name)
    logits = _direct(path, c)
    P = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    hand = with_corpus(path, c.d_vocab) if c.d_vocab == c.d_vocab_out else None
    for token in (0, 5):
        result = ask(path, "bigram", BigramParams(token, 9), conventions)
        order = result.ids
        check_largest(order, logits[token])
        np.testing.assert_allclose(result.logits, (logits - logits.mean(1, keepdims=True))[token][order], atol=1e-5)
        np.testing.assert_allclose(result.probabilities, P[token][order], rtol=1e-6)
        assert result.table().n_rows == 9
        if hand is None:
            assert np.isnan(result.corpus_log_probs).all()
            assert np.isnan([result.correlation, result.correlation_all, result.symmetry]).all()
            continue
        likely = np.array([hand.log_prob(token, j) for j in range(c.d_vocab)])
        np.testing.assert_allclose(result.corpus_log_probs, likely[order], atol=0.02)
        assert result.correlation == pytest.approx(np.corrcoef(logits[token], likely)[0, 1], abs=0.01)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "tied-scaled"])
def test_symmetry_and_correlation_of_the_whole_path(tmp_path: Path, name: str) -> None:
    path, c = made(tmp_path, name)
    hand, slow = with_corpus(path, c.d_vocab), Whole(path, c)
    result = ask(path, "direct_path", DirectPathParams())
    P = (slow.W_E - slow.W_E.mean(0)) @ slow.W_U
    assert result.symmetry == pytest.approx((P * P.T).sum() / (P**2).sum(), abs=1e-9)
    logits = _direct(path, c)
    likely = np.array([[hand.log_prob(i, j) for j in range(c.d_vocab)] for i in range(0, c.d_vocab, 20)])
    rows = [np.corrcoef(a, b)[0, 1] for a, b in zip(logits[::20], likely, strict=True)]
    np.testing.assert_allclose(result.rows[::20], rows, atol=0.01)
    exact = np.array([_corpus(path).log_probs(i) for i in range(c.d_vocab)])
    a, b = logits - logits.mean(1, keepdims=True), exact - exact.mean(1, keepdims=True)
    assert result.correlation == pytest.approx((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()), abs=1e-9)


def test_a_tied_path_is_a_similarity(tmp_path: Path) -> None:
    path, _ = made(tmp_path, "attention-only", tied=True)
    for conventions in (DOUBLE, RAW):
        assert ask(path, "direct_path", DirectPathParams(), conventions).symmetry == pytest.approx(1, abs=1e-9)


def test_a_path_of_zeros_and_a_file_that_is_not_the_models(tmp_path: Path) -> None:
    path, c = made(tmp_path, "attention-only")
    tensors = load_file(path / "model.safetensors")
    tensors["unembed.W_U"] *= 0
    save_file(tensors, path / "model.safetensors")
    with_corpus(path, c.d_vocab)
    result = ask(path, "bigram", BigramParams(3))
    assert np.isnan([result.symmetry, result.correlation, result.correlation_all]).all()
    with_corpus(path, 99)
    with pytest.raises(BadModel, match="another vocabulary"):
        ask(path, "bigram", BigramParams(3))
    (path / FILE).write_bytes(b"nothing")
    with pytest.raises(BadModel, match="damaged"):
        ask(path, "bigram", BigramParams(3))
    with pytest.raises(BadInput, match="token"):
        ask(path, "bigram", BigramParams(260))


HEAD = Head(1, 2)


def _triples(path: Path, c: ModelConfig, distance: int, sources: list[int]) -> dict[tuple[int, int, int], float]:
    """Every triple of some sources with its score."""
    slow, found = Whole(path, c), {}
    qk, ov = centred(slow.qk(HEAD, distance)), centred(slow.ov(HEAD))
    for s in sources:
        for d in np.flatnonzero(qk[:, s] > 0):
            for o in np.flatnonzero(ov[s] > 0):
                found[s, int(d), int(o)] = float(qk[d, s] * ov[s, o])
    return found


def _check(found: Any, wanted: dict[tuple[int, int, int], float], k: int) -> None:
    best = [*zip(found.source.tolist(), found.destination.tolist(), found.out.tolist(), strict=True)]
    assert len(best) == min(k, len(wanted))
    places = {triple: i for i, triple in enumerate(wanted)}
    check_largest([places[triple] for triple in best], [*wanted.values()])
    np.testing.assert_allclose(found.score, [wanted[t] for t in best], rtol=1e-5)
    np.testing.assert_allclose(found.qk * found.ov, found.score, rtol=1e-5)
    assert found.table().n_rows == len(best)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "smeared-rotary", "tied-scaled"])
def test_skip_trigrams_are_the_largest_products(tmp_path: Path, name: str) -> None:
    path, c = made(tmp_path, name)
    for distance in (0, 3):
        one = ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 30, source=4, distance=distance))
        _check(one, _triples(path, c, distance, [4]), 30)
        slow = Whole(path, c)
        qk, ov = centred(slow.qk(HEAD, distance)), centred(slow.ov(HEAD))
        strong = np.argsort(-np.linalg.norm(qk, axis=0) * np.linalg.norm(ov, axis=1))[:3].tolist()
        some = ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 30, 3, distance=distance))
        _check(some, _triples(path, c, distance, strong), 30)
    assert one.formula.startswith("score(s, d, o) = QK[d, s] · OV[s, o]")
    assert (one.known_out == -1).all()


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_bugs_are_crossed_triples_that_the_text_never_holds(tmp_path: Path, name: str) -> None:
    path, c = made(tmp_path, name, d_vocab=40, d_vocab_out=40)
    hand = with_corpus(path, 40)
    seen = lambda d, o: (d, o) in hand.pairs
    strong = lambda row: [int(i) for i in np.argsort(-row)[:WIDTH] if row[i] > 0]
    slow = Whole(path, c)
    qk, ov, wanted = centred(slow.qk(HEAD)), centred(slow.ov(HEAD)), {}
    for s in (4, 9):
        ds, os = strong(qk[:, s]), strong(ov[s])
        for d in ds:
            for o in os:
                if not seen(d, o) and any(seen(d, x) for x in os) and any(seen(x, o) for x in ds):
                    wanted[s, d, o] = float(qk[d, s] * ov[s, o])
        result = ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 500, source=s, bugs=True))
        _check(result, {t: v for t, v in wanted.items() if t[0] == s}, 500)
        for d, o, known_out, known_destination in zip(
            result.destination, result.out, result.known_out, result.known_destination, strict=True
        ):
            assert known_out == next(x for x in os if seen(int(d), x))
            assert known_destination == next(x for x in ds if seen(x, int(o)))
        model = SlowModel(c, slow.t)
        for i, (d, o) in enumerate(zip(result.destination.tolist(), result.out.tolist(), strict=True)):
            for tokens, p in (((s, d), result.probability[i]), ((d,), result.without_source[i])):
                row = model.run(tokens)[0][-1]
                assert p == pytest.approx(np.exp(row[o]) / np.exp(row).sum(), rel=1e-6)
            assert result.in_corpus[i] == pytest.approx(math.exp(hand.log_prob(d, o)), rel=0.05)
    assert wanted


def test_the_prompt_of_a_bug_begins_as_prompts_of_the_model_do(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["attention-only"], n_layers=1)
    with_corpus(path, CONFIGS["attention-only"].d_vocab)
    result = ask(path, "skip_trigrams", SkipTrigramsParams(Head(0, 1), 5, bugs=True))
    model = SlowModel(CONFIGS["attention-only"], load_file(path / "model.safetensors"))
    model.c = replace(model.c, n_layers=1)
    for i, (s, d, o) in enumerate(zip(result.source.tolist(), result.destination.tolist(), result.out.tolist(), strict=True)):
        row = model.run((0, s, d))[0][-1]
        assert result.probability[i] == pytest.approx(np.exp(row[o]) / np.exp(row).sum(), rel=1e-6)
    plain = ask(path, "skip_trigrams", SkipTrigramsParams(Head(0, 1), 5))
    assert len(plain.probability) == 5 and np.isnan([plain.probability, plain.without_source, plain.in_corpus]).all()


def test_bugs_are_looked_for_in_any_text(tmp_path: Path) -> None:
    """The same text as a file and as the bigrams beside a model, which are counted elsewhere: the same bugs, exact counts."""
    path = directory(tmp_path / "m", CONFIGS["attention-only"])
    file = tmp_path / "words.txt"
    file.write_text("".join(map(chr, np.random.default_rng(3).integers(33, 126, 3000))), encoding="utf-8")
    tokens = np.array(byte_tokenizer().encode(file.read_text(encoding="utf-8")), np.uint16)
    p = SkipTrigramsParams(HEAD, 50, bugs=True, text=TextRef(str(file)))
    found = ask(path, "skip_trigrams", p)
    assert any(part.startswith("corpus: words.txt, 3,000 tokens") for part in found.conventions)
    write(path / FILE, count_bigrams([Stream("a", 1.0, tokens, tokens[:0])], CONFIGS["attention-only"].d_vocab), "a")
    beside = ask(path, "skip_trigrams", replace(p, text=None))
    assert len(found.source) and (found.score == beside.score).all() and (found.out == beside.out).all()
    pairs = Counter(pairwise(tokens.tolist()))
    for i, (d, o) in enumerate(zip(found.destination.tolist(), found.out.tolist(), strict=True)):
        followers = {b: n for (a, b), n in pairs.items() if a == d}
        assert o not in followers and found.followed[i] == sum(followers.values()) == pytest.approx(beside.followed[i], rel=1e-5)
        unigram = ((tokens == o).sum() + 1) / (len(tokens) + CONFIGS["attention-only"].d_vocab)
        expected = len(followers) * unigram / (sum(followers.values()) + len(followers)) if followers else unigram
        assert found.in_corpus[i] == pytest.approx(expected)
    assert np.isnan(ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 5)).followed).all()


def test_bugs_need_a_text(tmp_path: Path) -> None:
    path, c = made(tmp_path, "attention-only")
    p = SkipTrigramsParams(bugs=True)
    with pytest.raises(Refused, match=r"no bigrams.*choose a text \(text=FILE\)"):
        ask(path, "skip_trigrams", p)
    with_corpus(path, c.d_vocab, limit=16 * 261 + 2048 + 30)
    with pytest.raises(Refused, match="rare"):
        ask(path, "skip_trigrams", p)
    with pytest.raises(Refused, match="vocabulary differ"):
        ask(made(tmp_path, "odd")[0], "skip_trigrams", p)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd"])
def test_no_triple_depends_on_the_gauge(tmp_path: Path, name: str) -> None:
    plain, other = (directory(tmp_path / n, CONFIGS[name], tokenizer=False) for n in "ab")
    as_double(plain)
    gauged(other, CONFIGS[name])
    for p in (SkipTrigramsParams(HEAD, 20, 5, distance=2), SkipTrigramsParams(HEAD, 20, source=3)):
        a, b = (ask(path, "skip_trigrams", p) for path in (plain, other))
        for field in ("source", "destination", "out"):
            np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
        np.testing.assert_allclose(a.score, b.score, rtol=1e-4)


def test_a_head_of_norm_0_and_a_vocabulary_of_three_have_triples_or_none(tmp_path: Path) -> None:
    path, c = made(tmp_path, "attention-only", d_vocab=3, d_vocab_out=3, n_layers=1)
    tensors = {n: v.half() for n, v in load_file(path / "model.safetensors").items()}
    tensors["layers.0.W_O"][0] = 0
    save_file(tensors, path / "model.safetensors")
    with_corpus(path, c.d_vocab)
    for source in (-1, 1):
        assert ask(path, "skip_trigrams", SkipTrigramsParams(Head(0, 0), source=source)).score.shape == (0,)
        assert 0 < len(ask(path, "skip_trigrams", SkipTrigramsParams(Head(0, 1), source=source)).score) <= 40
        assert ask(path, "skip_trigrams", SkipTrigramsParams(Head(0, 0), source=source, bugs=True)).table().n_rows == 0
    assert ask(path, "bigram", BigramParams(2)).ids.shape == (3,)
    with pytest.raises(BadInput, match="token"):
        ask(path, "skip_trigrams", SkipTrigramsParams(source=3))


def test_a_mapped_model_gives_the_same_numbers(tmp_path: Path) -> None:
    path, c = made(tmp_path, "gpt2")
    store = ModelStore()
    mapped = Engine(store)
    store.largest_copy = 1000
    with_corpus(path, c.d_vocab)
    for name, p in (
        ("ov_table", OvTableParams(Head(1, 2), 3, embed="after the first MLP")),
        ("qk_table", QkTableParams(Head(1, 2), 3)),
        ("ov_top_tokens", OvTopTokensParams(Head(1, 2))),
        ("largest_entries", LargestEntriesParams(Head(1, 2), "QK")),
        ("bigram", BigramParams(3)),
        ("skip_trigrams", SkipTrigramsParams(Head(1, 2), bugs=True)),
    ):
        a, b = ask(path, name, p, Conventions(), mapped).arrays(), ask(path, name, p, Conventions()).arrays()
        assert all(np.array_equal(a[field], b[field], equal_nan=True) for field in a), name
    assert not mapped.store.open(ModelRef(f"file:{path}")).opened.weights.resident
