"""Skip-trigrams in use, against loops over destinations and sources, cutting the head there, and other analyses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

import circuitlab.api as lab
from circuitlab.analysis.attribution.skip_trigrams_in_text import (
    EXAMPLES,
    WIDTH,
    SkipTrigramsInTextParams,
    SkipTrigramsInTextResult,
)
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams
from circuitlab.analysis.base import TextRef
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.disk.paths import resource
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.figures.marks import Hit
from circuitlab.figures.panels.circuits.in_text import _used, pick_example
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.state.gestures import without_stale_positions
from circuitlab.state.state import State
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel
from tests.reference.whole_circuits import Whole, centred
from tests.unit.test_tables import made

DOUBLE = Conventions(dtype="float64")
TOKENS = (0, 5, 4, 5, 3, 5, 1, 2, 5, 4, 5, 9, 5, 4, 3)
HEAD = Head(0, 1)
ONE_LAYER = replace(CONFIGS["attention-only"], n_layers=1)


def answer(path: Path, name: str, params: Any, edits: tuple[Intervention, ...] = (), tokens: tuple[int, ...] = TOKENS) -> Any:
    subject = Subject(ModelRef(f"file:{path}"), tokens, edits, DOUBLE)
    return Engine(ModelStore()).answer(Request.named(name, params, subject)).result


def in_use(path: Path, **more: Any) -> SkipTrigramsInTextResult:
    fixed = {k: more.pop(k) for k in ("edits", "tokens") if k in more}
    return answer(path, "skip_trigrams_in_text", SkipTrigramsInTextParams(**{"head": HEAD, "least": 0.0} | more), **fixed)


class ByHand:
    """g(i, j) [dest, src], and the loss that leaving out a source costs, for one layer without norms."""

    def __init__(self, path: Path, tokens: tuple[int, ...]) -> None:
        t = {name: tensor.double().numpy() for name, tensor in load_file(path / "model.safetensors").items()}
        logits, _, patterns = SlowModel(ONE_LAYER, t).run(tokens)
        h, n = HEAD.head, len(tokens)
        self.A = patterns[0][h]
        self.effect = np.zeros((n, n, logits.shape[1]))  # [dest, src, out]
        for i in range(n):
            for j in range(i + 1):
                value = t["embed.W_E"][tokens[j]] @ t["layers.0.W_V"][h] @ t["layers.0.W_O"][h]
                self.effect[i, j] = self.A[i, j] * (value @ t["unembed.W_U"])
        centred = self.effect - self.effect.mean(2, keepdims=True)
        self.gain = np.array([[centred[i, j, tokens[i + 1]] for j in range(n)] for i in range(n - 1)])
        self.tokens, self.logits = np.array(tokens), logits

    def loss(self, i: int, without: np.ndarray | float = 0.0) -> float:
        row = self.logits[i] - without
        return float(np.log(np.exp(row).sum()) - row[self.tokens[i + 1]])

    def nats(self, i: int, source: int) -> float:
        return self.loss(i, self.effect[i, self.tokens == source].sum(0)) - self.loss(i)


def test_it_is_what_loops_over_destinations_and_sources_say(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", ONE_LAYER, tokenizer=False)
    result, by_hand = in_use(path), ByHand(path, TOKENS)
    n, tokens = len(TOKENS) - 1, by_hand.tokens
    assert result.predicted == n and len(result.source)
    for row, s in enumerate(result.source.tolist()):
        at = tokens == s
        nats = np.array([by_hand.nats(i, s) for i in range(n)])
        assert result.count[row] == (by_hand.A[:n, at].sum(1) > 0).sum()
        assert result.attention[row] == pytest.approx(by_hand.A[:n, at].sum())
        assert result.logit[row] == pytest.approx(by_hand.gain[:, at].sum())
        assert result.nats[row] == pytest.approx(nats.sum())
        for ids, values, of in (
            (result.destination, result.destination_nats, tokens[:n]),
            (result.out, result.out_nats, tokens[1:]),
        ):
            sums = {int(t): nats[of == t].sum() for t in np.unique(of)}
            expected = sorted((v for v in sums.values() if v > 0), reverse=True)[:WIDTH]
            assert values[row][: len(expected)] == pytest.approx(np.array(expected))
            assert [sums[t] for t in ids[row][: len(expected)].tolist()] == pytest.approx(expected)
            assert (ids[row][len(expected) :] == -1).all() and np.isnan(values[row][len(expected) :]).all()
        first, i = result.example[row, 0], int(np.where(by_hand.A[:n, at].sum(1) > 0, nats, -np.inf).argmax())
        assert first.tolist() == [0, int(np.where(at, by_hand.A[i], -1).argmax()), i]
        assert result.example_nats[row, 0] == pytest.approx(nats[i])
        assert result.example_logit[row, 0] == pytest.approx(by_hand.gain[i, at].sum())
        trigrams = [(TOKENS[d], TOKENS[d + 1]) for text, _, d in result.example[row].tolist() if text >= 0]
        seen = {(TOKENS[k], TOKENS[k + 1]) for k in range(n) if by_hand.A[k, at].sum() > 0}
        assert len(set(trigrams)) == len(trigrams) == min(EXAMPLES, len(seen))
    assert np.all(np.diff(result.nats) <= 0)
    assert (result.texts == tokens[None]).all()
    assert result.total == pytest.approx(by_hand.gain.sum())
    ranked = in_use(path, by="logit")
    assert np.all(np.diff(ranked.logit) <= 0) and ranked.logit[0] == result.logit.max()


def test_cutting_the_head_at_a_source_costs_the_nats_and_takes_the_logits(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", ONE_LAYER, tokenizer=False)
    result, n = in_use(path), len(TOKENS) - 1
    losses = answer(path, "token_loss", TokenLossParams()).loss
    for s, nats in zip(result.source.tolist(), result.nats.tolist(), strict=True):
        at = tuple(np.flatnonzero(np.array(TOKENS) == s).tolist())
        cut = Intervention("zero", Site("pattern", 0, (HEAD.head,), (), at))
        assert (answer(path, "token_loss", TokenLossParams(), (cut,)).loss - losses)[1 : n + 1].sum() == pytest.approx(nats)
    s, (_, source, d) = result.source[0], result.example[0, 0].tolist()
    assert TOKENS[source] == s and result.example_nats[0, 0] > 0
    at = tuple(np.flatnonzero(np.array(TOKENS) == s).tolist())
    one = Intervention("zero", Site("pattern", 0, (HEAD.head,), (d,), at))
    change = answer(path, "token_loss", TokenLossParams(), (one,)).loss - losses
    assert change[d + 1] == pytest.approx(result.example_nats[0, 0]) and np.nansum(np.abs(change)) == pytest.approx(change[d + 1])


@pytest.mark.parametrize("name", ["gpt2", "both-norms-capped", "llama", "post-sublayer"])
def test_the_logits_are_those_of_each_token_through_the_head(tmp_path: Path, name: str) -> None:
    path, head = directory(tmp_path / "m", CONFIGS[name], tokenizer=False), Head(1, 2)
    result, sums = in_use(path, head=head, sources=99, by="logit"), dict[int, float]()
    for i in range(len(TOKENS) - 1):
        params = TokenAttributionParams(Target((TOKENS[i + 1],)), i, (head,))
        for j, value in enumerate(answer(path, "token_attribution", params).values[0].tolist()):
            sums[TOKENS[j]] = sums.get(TOKENS[j], 0.0) + (0.0 if np.isnan(value) else value)
    assert dict(zip(result.source.tolist(), result.logit.tolist(), strict=True)) == pytest.approx(sums, rel=1e-6, abs=1e-9)
    assert result.total == pytest.approx(sum(sums.values()), rel=1e-6)


def test_rows_and_the_rest_add_up_to_the_whole_with_interventions_too(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"], tokenizer=False)
    half = Intervention("scale", Site("z", 0, (1,)), (0.5,))
    replaced = Intervention("mean", Site("result", 0, (1,), (3, 4)))
    whole = in_use(path, sources=2)
    for edits in ((), (half,), (replaced,)):
        result = in_use(path, sources=2, edits=edits)
        assert result.logit.sum() + result.bos + result.others + result.placed == pytest.approx(result.total)
        assert (abs(result.placed) > 1e-9) == (edits == (replaced,))
        assert result.remainder is not None and result.remainder.size < 1e-10
    assert in_use(path, sources=99, edits=(half,)).total != pytest.approx(whole.total)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "tied-scaled"])
def test_each_source_has_its_rank_by_weights(tmp_path: Path, name: str) -> None:
    path, c = made(tmp_path, name)
    result, slow = in_use(path, head=Head(1, 2), sources=99), Whole(path, c)
    strengths = np.linalg.norm(centred(slow.qk(Head(1, 2))), axis=0) * np.linalg.norm(centred(slow.ov(Head(1, 2))), axis=1)
    for s, rank, equal in zip(result.source.tolist(), result.weights_rank.tolist(), result.weights_equal.tolist(), strict=True):
        near = np.abs(strengths / strengths[s] - 1) < 1e-9
        assert (
            int((strengths > strengths[s])[~near].sum()) + 1 <= rank <= int((strengths > strengths[s])[~near].sum()) + near.sum()
        )
        assert equal >= 1
    assert any("rank by weights" in part for part in result.conventions)


def test_without_tables_there_is_no_rank_by_weights(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["post-residual"], tokenizer=False)
    result = in_use(path)
    assert (result.weights_rank == -1).all() and any(part.startswith("no rank by weights: ") for part in result.conventions)


def test_in_a_trained_model_the_example_goes_with_the_heads_attention_to_its_source() -> None:
    """The shipped model of one layer, on made prose: cut, each example's out costs the nats more that it was said to gain."""
    model = lab.open("attn-only-1l", use=Engine(ModelStore()))
    passages = {"on": "file", "text": TextRef(str(resource("prose", "passages.txt"))), "texts": 4, "length": 128}
    head = int(model.compute("copying_scores").result.copying[0].argmax())
    result = model.compute("skip_trigrams_in_text", set={"head": Head(0, head), "sources": 5, **passages}).result
    assert len(result.source) == 5
    for row, s in enumerate(result.source.tolist()):
        for k, (text, source, d) in enumerate(result.example[row].tolist()):
            tokens = [t for t in result.texts[text].tolist() if t >= 0]
            at = tuple(i for i, t in enumerate(tokens) if t == s and i <= d)
            cut = Intervention("zero", Site("pattern", 0, (head,), (d,), at))
            before, after = (model.compute("token_loss", tokens=tokens, edits=e).result.loss[d + 1] for e in ((), cut))
            assert source in at and result.example_nats[row, k] > 0.05
            assert after - before == pytest.approx(result.example_nats[row, k], abs=1e-4)


def test_a_patch_that_leaves_positions_alone_leaves_their_sources(tmp_path: Path) -> None:
    path, head = directory(tmp_path / "m", CONFIGS["gpt2"], tokenizer=False), Head(1, 2)
    patch = Intervention("patch", Site("result", 1, (2,)), source=TOKENS[1:4][::-1])
    result = in_use(path, head=head, sources=99, by="logit", edits=(patch,))
    sums: dict[int, float] = {}
    for i in range(3, len(TOKENS) - 1):  # those of before without the patch, in the last layer
        params = TokenAttributionParams(Target((TOKENS[i + 1],)), i, (head,))
        for j, value in enumerate(np.nan_to_num(answer(path, "token_attribution", params).values[0]).tolist()):
            sums[TOKENS[j]] = sums.get(TOKENS[j], 0.0) + value
    assert dict(zip(result.source.tolist(), result.logit.tolist(), strict=True)) == pytest.approx(sums, rel=1e-6, abs=1e-9)
    assert result.placed and result.remainder is not None and result.remainder.size < 1e-10


def test_in_a_file_the_beginning_is_no_source_and_each_piece_has_its_own_places(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", ONE_LAYER)
    file = tmp_path / "words.txt"
    file.write_text("the cat sat on the mat, the dog on the log")
    result = in_use(path, on="file", text=TextRef(str(file)), length=12, texts=9, sources=99, tokens=())
    assert result.texts.shape == (3, 12) and (result.texts[:, 0] == 0).all()
    assert 0 not in result.source and result.bos != 0
    assert result.predicted == 33
    sums = [ByHand(path, tuple(text)).gain for text in result.texts.tolist()]
    assert result.total == pytest.approx(sum(g.sum() for g in sums))
    assert result.bos == pytest.approx(sum(g[:, 0].sum() for g in sums))
    for row, s in enumerate(result.source.tolist()):
        for text, source, destination in result.example[row].tolist():
            assert text < 0 or (result.texts[text, source] == s and source <= destination < 11)
    used = in_use(path, on="file", text=TextRef(str(file)), length=12, texts=9, sources=99, least=0.2, tokens=())
    patterns = [ByHand(path, tuple(text)).A[:11] for text in result.texts.tolist()]
    for s, count in zip(used.source.tolist(), used.count.tolist(), strict=True):
        assert count == sum((A[:, text == s].sum(1) >= 0.2).sum() for A, text in zip(patterns, result.texts, strict=True))
    facts: Any = SimpleNamespace(bos=0, config=ONE_LAYER, token_text=str)
    few = in_use(path, on="file", text=TextRef(str(file)), length=12, texts=9, sources=2, tokens=())
    request: Any = SimpleNamespace(params=SkipTrigramsInTextParams(HEAD, "file"))
    provenance: Any = None
    listed = Answer(request, few, True, provenance)
    table = _used(facts, listed, 0)
    assert len(table.ids) == 2 and table.total == len(result.source) > 2


def test_a_single_token_has_used_nothing_and_a_file_must_be_chosen(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", ONE_LAYER, tokenizer=False)
    result = in_use(path, tokens=(3,))
    assert result.source.tolist() == [3] and (result.example == -1).all() and result.example.shape == (1, EXAMPLES, 3)
    assert result.count[0] == result.nats[0] == result.total == result.predicted == 0
    with pytest.raises(Refused, match="file"):
        in_use(path, on="file")
    for least in (-1.0, 1.5, float("nan")):
        with pytest.raises(BadInput, match="share"):
            in_use(path, least=least)


def test_an_example_that_is_clicked_on_an_earlier_prompts_picture_has_its_own_positions() -> None:
    drawn = State(ModelRef("file:m"), tokens=(1, 2, 3)).select(destination=2)
    state = drawn.with_tokens((4, 5)).select(destination=1, source=0)
    picked = pick_example(state, Hit("examples", (0, 3, 1, 0, 7, 8, 9, 10, 11, -1)))
    assert picked.tokens == (7, 8, 9, 10, 11) and not picked.bos
    assert without_stale_positions(drawn, state, picked) == picked
    assert (picked.selection.destination, picked.selection.source, picked.selection.locked) == (3, 1, True)
    assert pick_example(state, Hit("examples", (0, 3, 1, 0, 7, 8, 9, 10, 11), "hover")) is state
