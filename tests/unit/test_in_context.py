"""Loss by index, in-context score, its slope and repetitions, against definitions in loops over a slow model."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from circuitlab.analysis.base import NullContext, SeriesRef, TextRef, find_analysis
from circuitlab.analysis.behaviour.in_context import InContextParams, InContextResult, log_slope, windows
from circuitlab.analysis.behaviour.samples import pieces
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.api import save
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import read_stored, stored_bytes
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.records.series_measures import HEAD_ARRAYS, SeriesMeasures
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel
from tests.series_files import lay_beside

CUT = (Intervention("zero", Site("result", 0)),)


class Asker:
    """An engine on one model."""

    def __init__(self, path: Path) -> None:
        self.path, self.engine, self.ref = path, Engine(ModelStore()), ModelRef(f"file:{path}")

    def request(self, params: Any, tokens: Any = (), edits: Any = (), name: str = "in_context") -> Request:
        return Request.named(name, params, Subject(self.ref, tokens, edits, Conventions(dtype="float64")))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.engine.answer(self.request(*args, **kwargs)).result

    def slow_losses(self, tokens: list[int]) -> list[float]:
        config = self.engine.store.open(self.ref).opened.weights.config
        logits = SlowModel(config, load_file(self.path / "model.safetensors")).run(tuple(tokens))[0]
        found = []
        for i, row in enumerate(logits[:-1]):
            found.append(math.log(np.exp(row - row.max()).sum()) + row.max() - row[tokens[i + 1]])
        return found


@pytest.fixture
def ask(tmp_path: Path) -> Asker:
    return Asker(directory(tmp_path / "m"))


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped"])
def test_losses_on_repeated_random_tokens(tmp_path: Path, name: str) -> None:
    ask = Asker(directory(tmp_path / "m", CONFIGS[name]))
    result = ask(InContextParams(block=4, repeats=3, texts=3, seed=5))
    drawn = np.random.default_rng(5).choice(np.arange(1, 260), size=(3, 4))  # 0 is BOS
    each = np.array([ask.slow_losses([0, *block.tolist() * 3]) for block in drawn])
    np.testing.assert_allclose(result.losses[:, 1:], each, atol=1e-9)
    np.testing.assert_allclose(result.loss[1:], each.mean(0), atol=1e-9)
    np.testing.assert_allclose(result.spread[1:], each.std(0, ddof=1), atol=1e-9)
    assert np.isnan(result.losses[:, 0]).all()
    # each[:, i] is the loss of token i + 1: repetition r stands at 1 + 4 r …, its first token left out
    wanted = [[each[t, 4 * r + 1 : 4 * r + 4].mean() for r in range(3)] for t in range(3)]
    np.testing.assert_allclose(result.repetitions, wanted, atol=1e-9)
    assert result.starts == (1, 5, 9)


def test_the_score_is_late_minus_early_and_says_where(ask: Asker) -> None:
    result = ask(InContextParams(block=20, repeats=2, texts=4))
    n = 41
    early, late = range(4, 8), range(37, 41)  # min(50, 41 / 10) and as many as that; the last is 40
    assert result.early == (4, 7) and result.late == (37, 40)
    wanted = [np.mean([row[i] for i in late]) - np.mean([row[i] for i in early]) for row in result.losses]
    np.testing.assert_allclose(result.scores, wanted)
    assert result.score == pytest.approx(np.mean(wanted))
    assert result.error == pytest.approx(np.std(wanted, ddof=1) / 2)
    assert "in-context score: tokens 37–40 minus 4–7" in result.conventions
    chosen = ask(InContextParams(block=20, repeats=2, texts=4, early=10, late=30, width=1))
    np.testing.assert_allclose(chosen.scores, result.losses[:, 30] - result.losses[:, 10])
    assert n == result.losses.shape[1]
    assert windows(512, 0, 0, 1) == ((50, 50), (500, 500))  # the paper's


def test_the_slope_of_a_logarithm_is_its_factor() -> None:
    index = np.arange(200)
    with np.errstate(divide="ignore"):
        loss = 3.0 - 0.7 * np.log(index)
    loss[0] = np.nan
    found = log_slope(loss, 1.5)
    assert np.isnan(found[:2]).all()  # index 1 has no neighbour within 1.5
    np.testing.assert_allclose(found[2:], -0.7, atol=1e-9)
    noisy = loss + np.random.default_rng(0).normal(size=200)
    for i in (2, 9, 60, 199):
        near = [j for j in index[1:] if i / 1.5 <= j <= i * 1.5]
        wanted = np.polyfit(np.log(near), noisy[near], 1)[0]
        assert log_slope(noisy, 1.5)[i] == pytest.approx(wanted)
    assert np.isnan(log_slope(np.array([np.nan]), 2.0)).all()


def test_the_prompt_is_one_noisy_text_with_its_interventions(ask: Asker) -> None:
    tokens = (0, 5, 9, 5, 7, 5, 9, 200, 5, 3, 3, 4)
    for edits in ((), CUT):
        result = ask(InContextParams(on="prompt"), tokens, edits)
        loss = ask(TokenLossParams(), tokens, edits, name="token_loss").loss
        np.testing.assert_allclose(result.loss, loss, rtol=1e-5)
    assert np.isnan(result.spread).all()
    assert "noise" in " ".join(result.conventions)
    assert np.isnan(ask(InContextParams(on="prompt"), (1,)).loss).all()
    assert math.isnan(ask(InContextParams(on="prompt"), (1, 2)).score)
    assert np.isfinite(ask(InContextParams(on="prompt"), (1, 2)).loss[1])
    assert np.isfinite(ask(InContextParams(on="prompt"), (3,) * 48).loss[1:]).all()


def test_a_file_is_cut_into_pieces(ask: Asker, tmp_path: Path) -> None:
    text = tmp_path / "story.txt"
    text.write_text("abcdefghij" * 10, encoding="utf-8")
    result = ask(InContextParams(on="file", text=TextRef(str(text)), texts=4, length=9))
    letters = [i + 1 for i in _bytes(ask, "abcdefghij")]
    assert len(result.losses) == 4
    chosen = np.sort(np.random.default_rng(0).choice(np.arange(0, 93, 8), size=4, replace=False))
    for row, start in zip(result.losses, chosen, strict=True):
        piece = [0, *[letters[(start + i) % 10] - 1 for i in range(8)]]
        np.testing.assert_allclose(row[1:], ask.slow_losses(piece), atol=1e-9)
    assert "4 pieces of 9 tokens from story.txt, seed 0" in result.conventions
    with pytest.raises(Refused, match="text file"):
        ask(InContextParams(on="file"))


def _bytes(ask: Asker, text: str) -> tuple[int, ...]:
    tokenizer = ask.engine.store.open(ask.ref).opened.weights.tokenizer
    assert tokenizer is not None
    return tokenizer.encode(text)


def test_short_pieces_take_the_memory_of_a_short_context() -> None:
    """What is asked of a model with a long context is not refused for the length of pieces that nobody asked for."""
    long, analysis = replace(CONFIGS["llama"], n_ctx=100_000), find_analysis("in_context")
    of = lambda config, length: analysis.memory(config, 0, InContextParams(on="file", length=length), "float32")
    assert of(long, 64) == of(replace(long, n_ctx=64), 0) == of(replace(long, n_ctx=64), 500)
    assert of(long, 0) > 500 * of(long, 64)


def test_pieces_follow_each_other() -> None:
    assert pieces(tuple(range(1, 11)), 0, 4, 9, 0) == [(0, 1, 2, 3), (0, 4, 5, 6), (0, 7, 8, 9)]
    assert pieces((1, 2, 3, 4), None, 2, 9, 0) == [(1, 2), (3, 4)]
    assert pieces((1, 2), 0, 40, 9, 0) == [(0, 1, 2)]
    assert len(pieces(tuple(range(100)), None, 4, 3, 1)) == 3
    with pytest.raises(BadInput):
        pieces((), 0, 4, 1, 0)


def test_interventions_act_where_they_are_asked_for(ask: Asker) -> None:
    params = InContextParams(block=5, texts=2)
    plain = ask(params)
    again = ask.engine.answer(ask.request(params, (1, 2), CUT), fresh=True).result
    np.testing.assert_array_equal(again.arrays()["losses"], plain.losses)
    assert params.needs == "weights" and replace(params, edited=True).needs == "tokens"
    cut = ask(replace(params, edited=True), (1, 2), CUT)
    assert not np.allclose(cut.losses[:, 1:], plain.losses[:, 1:])
    tokens = tuple(np.random.default_rng(0).choice(np.arange(1, 260), size=(2, 5))[0].tolist())
    own = ask(TokenLossParams(), (0, *tokens, *tokens), CUT, name="token_loss").loss
    np.testing.assert_allclose(cut.losses[0], own, rtol=1e-5)
    assert "no interventions" in plain.conventions and "no interventions" not in cut.conventions
    without_prompt = ask(replace(params, edited=True), (), CUT)
    np.testing.assert_allclose(without_prompt.losses, cut.losses, rtol=1e-6)


class Stopping(NullContext):
    """Cancels at the n-th tick; keeps what it was shown."""

    def __init__(self, after: int) -> None:
        self.left, self.shown = after, list[InContextResult]()

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.left -= 1
        if self.left < 0:
            raise Cancelled

    def partial(self, result: Any) -> None:
        self.shown.append(result)


def test_a_cancelled_attempt_is_gone_on_from(ask: Asker) -> None:
    request = ask.request(InContextParams(block=6, texts=8))
    stopping = Stopping(18)
    with pytest.raises(Cancelled):
        ask.engine.answer(request, stopping)
    half = stopping.shown[-1]
    assert 0 < half.done < 1 and np.isfinite(half.loss[1:]).all() and len(half.scores) == len(stopping.shown)
    more = Stopping(10**9)
    on, fresh = ask.engine.answer(request, more), ask.engine.answer(request, NullContext(), fresh=True)
    assert on.fingerprint == fresh.fingerprint == ask.engine.answer(request, NullContext(), fresh=True).fingerprint
    assert len(more.shown) + len(stopping.shown) == 7  # of eight texts the last needs no snapshot


def test_what_does_not_fit_is_fitted_or_refused(tmp_path: Path, ask: Asker) -> None:
    assert "23 random tokens × 2" in " ".join(ask(InContextParams(texts=1)).conventions)  # 48 of context
    with pytest.raises(Refused, match="room"):
        Asker(directory(tmp_path / "b", CONFIGS["attention-only"], n_ctx=2))(InContextParams(repeats=2))
    with pytest.raises(BadInput):
        ask(InContextParams(texts=0))
    with pytest.raises(Refused, match="predict"):
        Asker(directory(tmp_path / "c", CONFIGS["attention-only"], d_vocab_out=8))(InContextParams(on="prompt"))


def test_across_prompts_there_is_the_score(ask: Asker) -> None:
    result = ask(InContextParams(on="prompt"), (0, 5, 9, 5, 7, 5, 9, 200, 5, 3, 3, 4))
    assert result.across()["score"] == result.score


def without_layers(path: Path, **changes: Any) -> Path:
    """A zero-layer model that was measured: a control is known by what was measured of it."""
    folder, n = directory(path, replace(CONFIGS["attention-only"], n_layers=0, **changes)), 4
    widths = {"loss_by_index": 11, "repeated_loss_by_index": 10, "repeated_text_loss_by_index": 10, "token_loss": 30}
    arrays = {name: np.ones((1, width), np.float32) for name, width in widths.items()} | {"loss": np.ones(1, np.float32)}
    arrays |= {name: np.zeros((1, 0, n), np.float32) for name in HEAD_ARRAYS}
    lay_beside(folder, SeriesMeasures((1,), (1,), (None,), arrays, {}))
    return folder


def test_the_control_is_a_model_without_layers_on_the_same_texts(ask: Asker, tmp_path: Path) -> None:
    bare = without_layers(tmp_path / "bare")
    words = " ".join(f"{chr(97 + i % 23)}{chr(97 + i * 7 % 19)}" for i in range(200))
    (tmp_path / "text.txt").write_text(words)
    plain = InContextParams(on="file", text=TextRef(str(tmp_path / "text.txt")), texts=5, length=40, early=4, late=36, width=3)
    alone, found = ask(plain), ask(replace(plain, control=SeriesRef(f"file:{bare}")))
    np.testing.assert_array_equal(found.loss, alone.loss)
    assert np.isnan(alone.controlled) and np.isnan(alone.control).all()
    assert [c.name for c in found.table().columns] == [*(c.name for c in alone.table().columns), "loss of the control"]
    other = Asker(bare)
    (tokens, _), scores = texts_of_file(ask, plain), []
    losses = np.array([other.slow_losses(list(text)) for text in tokens])
    for row in losses:  # index i is losses[i − 1]
        scores.append(row[33:36].mean() - row[3:6].mean())
    np.testing.assert_allclose(found.control[1:], losses.mean(0), atol=1e-9)
    np.testing.assert_allclose(found.control_scores, scores, atol=1e-9)
    differences = alone.scores - np.array(scores)
    assert found.controlled == pytest.approx(differences.mean())
    assert found.controlled_error == pytest.approx(differences.std(ddof=1) / np.sqrt(5))
    assert found.error == pytest.approx(alone.scores.std(ddof=1) / np.sqrt(5))
    assert any(word.startswith("control: bare") for word in found.conventions)
    asked = replace(plain, control=SeriesRef(f"file:{bare}"))
    answer = ask.engine.answer(Request.named("in_context", asked, Subject(ask.ref)))
    save(answer, tmp_path / "a.json")
    kept = json.loads((tmp_path / "a.json").read_text())
    for name in ("score", "error", "controlled", "controlled_error"):
        assert kept["result"][name] == pytest.approx(getattr(found, name)) and answer.result.unit_of(name) == "nats"


def test_an_answer_is_of_the_control_that_is_there(ask: Asker, tmp_path: Path) -> None:
    """Neither one in the cache nor one of a session, where the control has other weights since, beside the same measures."""
    bare = without_layers(tmp_path / "bare")
    (tmp_path / "text.txt").write_text("abcdefg hijk " * 40)
    plain = InContextParams(on="file", text=TextRef(str(tmp_path / "text.txt")), texts=5, length=40, early=4, late=36, width=3)
    request = Request.named("in_context", replace(plain, control=SeriesRef(f"file:{bare}")), Subject(ask.ref))
    first, weights = ask.engine.answer(request), (bare / "model.safetensors").read_bytes()
    assert [sha256 for _, sha256 in first.provenance.others] == [hashlib.sha256(weights).hexdigest()]
    assert ask.engine.cached(request) is not None and not ask.engine.answer(replace(request, params=plain)).provenance.others
    by_name = {"bare": ModelRef(f"file:{bare}"), ask.ref.name: ask.ref}
    kept = read_stored(stored_bytes(ask.engine.identified(first)), by_name.__getitem__)
    changed = {name: 1.5 * value for name, value in load_file(bare / "model.safetensors").items()}
    save_file(changed, bare / "model.safetensors", {"format": "circuitlab-1"})
    assert ask.engine.cached(request) is None
    second = ask.engine.answer(request)
    assert second.result.controlled != first.result.controlled and second.result.score == first.result.score
    assert second.result.controlled == Asker(ask.path).engine.answer(request).result.controlled
    elsewhere = Engine(ModelStore())
    elsewhere.hold([kept])
    assert elsewhere.held(request) is None and not elsewhere.answer(request).provenance.stored
    (bare / "model.safetensors").write_bytes(weights)
    elsewhere = Engine(ModelStore())
    elsewhere.hold([kept])
    held = elsewhere.held(request)
    assert held is not None and held.result is kept.result
    assert elsewhere.cached(request) is not None, "known without reading now"
    shutil.move(bare, tmp_path / "gone")
    elsewhere = Engine(ModelStore())
    elsewhere.hold([kept])
    assert elsewhere.held(request) is not None, "by its name, where no control is here"


def test_stored_answers_that_do_not_say_which_control_are_of_another_version() -> None:
    holds, config = find_analysis("in_context").holds, CONFIGS["gpt2"]
    assert holds(5, config, InContextParams()) and not holds(5, config, InContextParams(control=SeriesRef("builtin:a")))
    assert not holds(4, config, InContextParams())


def texts_of_file(ask: Asker, params: InContextParams) -> tuple[list[tuple[int, ...]], str]:
    weights = ask.engine.store.open(ask.ref).opened.weights
    assert weights.tokenizer is not None and params.text is not None
    tokens = weights.tokenizer.encode(Path(params.text.path).read_text(), False)
    return pieces(tokens, weights.tokenizer.bos, params.length, params.texts, params.seed), ""


def test_what_is_no_control_is_refused(ask: Asker, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words and some more words" * 20)
    params = InContextParams(on="file", text=TextRef(str(text)), texts=2, length=20)
    deep = tmp_path / "deep"
    directory(deep)
    (deep / "series.safetensors").write_bytes((without_layers(tmp_path / "z") / "series.safetensors").read_bytes())
    with pytest.raises(BadInput, match="more than the previous token"):
        ask(replace(params, control=SeriesRef(f"file:{deep}")))
    with pytest.raises(Refused, match="no control"):
        ask(InContextParams(control=SeriesRef(f"file:{tmp_path / 'z'}")))
    foreign = without_layers(tmp_path / "foreign")
    rules = json.loads((foreign / "tokenizer.json").read_text())
    a, b = (next(t for t, i in rules["model"]["vocab"].items() if i == n) for n in (70, 71))
    rules["model"]["vocab"][a], rules["model"]["vocab"][b] = 71, 70
    (foreign / "tokenizer.json").write_text(json.dumps(rules))
    with pytest.raises(BadInput, match="other tokens"):
        ask(replace(params, control=SeriesRef(f"file:{foreign}")))


@pytest.mark.parametrize("ratio", [1e5, 1e308])
def test_a_slope_over_all_indices_is_one_line(ratio: float) -> None:
    loss = np.concatenate([[np.nan], 3 - 0.5 * np.log(np.arange(1, 40))])
    np.testing.assert_allclose(log_slope(loss, ratio)[1:], -0.5, rtol=1e-9)
