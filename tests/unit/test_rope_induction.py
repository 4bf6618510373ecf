"""`construct:rope-induction`: bounds, closed forms, checked numbers, and everything that a wrong parameter breaks."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.attribution.path_expansion import PathExpansionParams
from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams
from circuitlab.analysis.base import analyses
from circuitlab.analysis.checks.rope_clock import RotationClockParams
from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, BadModel, CircuitLabError, OverBudget, Refused, UsageError
from circuitlab.model.constructed import SOURCES, RopeInduction, build, closed_forms, parameters_of
from circuitlab.model.constructed.features import codes, embedding, feature_map, features
from circuitlab.model.constructed.matrices import configuration, tensors
from circuitlab.model.forward import forward, logits
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.records.corpus_bigrams import corpus_of
from circuitlab.model.run import Run
from circuitlab.model.saving import save_directory
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.model.weights import Weights
from tests.constructed import letter_tokenizer, rope_induction
from tests.models import directory

EPSILON = 0.01
ONE_HOT, PLANE, RANK_ONE = RopeInduction(), RopeInduction.preset("sinusoidal"), RopeInduction.preset("rank-one")


def _weights(p: RopeInduction) -> Weights:
    return build(p).weights.as_stored()


def _run(p: RopeInduction, tokens: tuple[int, ...]) -> Run:
    return forward(_weights(p), tokens)


def _pattern(p: RopeInduction, tokens: tuple[int, ...], layer: int) -> np.ndarray:
    return _run(p, tokens).get("pattern", layer)[0].numpy()


def _text(p: RopeInduction, n: int, seed: int = 0) -> tuple[int, ...]:
    return (0, *(int(t) for t in np.random.default_rng(seed).integers(1, p.letters + 1, n - 1)))


def _share_right(p: RopeInduction, texts: int = 12) -> tuple[float, int]:
    """How many predictions are right where one letter alone has followed so far, and how many there are."""
    right = asked = 0
    for seed in range(texts):
        tokens = _text(p, p.n_ctx, seed)
        result = _run(p, tokens).logits().argmax(dim=1).tolist()
        for m in range(1, len(tokens)):
            after = [tokens[n] for n in range(1, m + 1) if tokens[n - 1] == tokens[m]]
            if len(set(after)) == 1:
                asked += 1
                right += result[m] == after[0]
    return right / asked, asked


# -- the matrices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"letters": 5, "d_head": 16}, {"offset": 3, "alpha": 20.0, "beta": 3.0, "gamma": 7.0}])
def test_the_one_hot_variant_is_the_proven_one(changes: dict[str, Any]) -> None:
    p = RopeInduction(**changes)
    config, proven = rope_induction(**changes)
    assert dataclasses.replace(configuration(p), family="") == config
    made = tensors(p)
    assert set(made) == set(proven)
    for name, value in proven.items():
        torch.testing.assert_close(made[name], value, rtol=1e-14, atol=1e-14)


def test_sinusoids_lie_in_a_plane_and_are_read_exactly() -> None:
    E = embedding(PLANE)[1:]
    assert np.linalg.matrix_rank(E) == 2
    np.testing.assert_allclose(E[13:], -E[:13], atol=1e-14)  # letters 13 apart are opposite
    np.testing.assert_allclose(E @ feature_map(PLANE), features(PLANE)[1:], atol=1e-12)
    constant = E @ np.linalg.lstsq(E, np.ones(26), rcond=None)[0]
    assert np.abs(constant - 1).max() == pytest.approx(1.0)  # no linear key is the same for all of them


@pytest.mark.parametrize("p", [ONE_HOT, PLANE, RANK_ONE], ids=str)
def test_the_prediction_is_the_second_heads_alone(p: RopeInduction) -> None:
    made = tensors(p)
    W_E, W_U = made["embed.W_E"], made["unembed.W_U"]
    assert not (W_E @ W_U).any()  # no direct path
    assert not (made["layers.0.W_O"][0] @ W_U).any()  # nothing of layer 0 alone
    assert configuration(p).d_model == (82 if p is ONE_HOT else 32 + 2 + 2 + 1 + 1)


def test_the_27th_letter_on_the_circle_would_be_the_first() -> None:
    letter = lambda i: [0.5 * math.sin(i * math.pi / 13 + 0.1 * j) for j in range(32)]
    np.testing.assert_allclose(embedding(PLANE)[1:], [letter(i) for i in range(26)], atol=1e-14)
    np.testing.assert_allclose(letter(26), letter(0), atol=1e-14)


# -- the theorem ------------------------------------------------------------------------------------------------------------


def test_the_checked_numbers() -> None:
    gaps = {d: closed_forms.best_rival(RopeInduction(d_head=d)) for d in (2, 4, 8, 16, 32, 64)}
    wanted = {2: (0.0002, -44), 4: (0.029, -19), 8: (0.208, -63), 16: (0.515, -1), 32: (0.686, -1), 64: (1.08, -1)}
    for d, (gap, delta) in wanted.items():
        assert gaps[d].gap == pytest.approx(gap, abs=6e-4 if d < 64 else 6e-3) and gaps[d].delta == delta
    assert closed_forms.alpha_needed(ONE_HOT, EPSILON) == pytest.approx(12.8, abs=0.05)
    assert closed_forms.beta_needed(ONE_HOT, EPSILON) == pytest.approx(17.9, abs=0.05)
    delta = 1 - math.cos(math.pi / 13)
    assert delta == pytest.approx(0.0291, abs=5e-5)
    assert 2 * math.log(6400) / delta < closed_forms.beta_needed(PLANE, EPSILON) < 615
    for mass, alpha in ((0.44, 1.0), (0.66, 2.0), (0.94, 5.0), (0.998, 10.0)):
        p = RopeInduction(alpha=alpha)
        assert _pattern(p, _text(p, 64), 0)[63, 62] == pytest.approx(mass, abs=0.006)


@pytest.mark.parametrize(
    "p",
    [
        ONE_HOT,
        RopeInduction(offset=2),
        RopeInduction(offset=3),
        RopeInduction(letters=4, d_head=16, alpha=17.1),
        RopeInduction(n_ctx=256, alpha=14.8, beta=20.8),
        PLANE,
    ],
    ids=str,
)
def test_at_the_bounds_each_head_looks_where_the_theorem_says(p: RopeInduction) -> None:
    assert p.alpha >= closed_forms.alpha_needed(p, EPSILON) and p.beta >= closed_forms.beta_needed(p, EPSILON)
    repeats = 0
    for seed in range(2):
        tokens = _text(p, p.n_ctx, seed)
        run, o = _run(p, tokens), p.offset
        first, second, scores = run.get("pattern", 0)[0], run.get("pattern", 1)[0], run.logits()
        rows = torch.arange(o, p.n_ctx)
        assert float(first[rows, rows - o].min()) >= 1 - EPSILON
        for m in range(o, p.n_ctx):
            held = [n for n in range(o, m + 1) if tokens[n - o] == tokens[m]]
            assert float(second[m, held or [0]].sum()) >= 1 - EPSILON
            if held:
                after = [tokens[n] for n in held]
                repeats += 1
                if p.variant == "one-hot" or len(set(after)) == 1:
                    assert after.count(int(scores[m].argmax())) == max(map(after.count, after))
            elif p.variant == "one-hot":
                assert float(scores[m].max() - scores[m].min()) <= p.gamma * EPSILON
    assert repeats > 60


@pytest.mark.parametrize("n_ctx", [16, 64, 256])
def test_the_bounds_hold_for_the_worst_rival_and_not_far_below(n_ctx: int) -> None:
    p = RopeInduction(n_ctx=n_ctx)
    sharp = dataclasses.replace(p, alpha=closed_forms.alpha_needed(p, EPSILON))
    tokens = _text(p, n_ctx)
    assert _pattern(sharp, tokens, 0)[range(1, n_ctx), range(n_ctx - 1)].min() >= 1 - EPSILON
    blunt = dataclasses.replace(p, alpha=sharp.alpha / 2)
    assert _pattern(blunt, tokens, 0)[range(1, n_ctx), range(n_ctx - 1)].min() < 1 - EPSILON


@pytest.mark.parametrize("p", [ONE_HOT, PLANE], ids=str)
def test_every_pair_of_letters_is_completed(p: RopeInduction) -> None:
    """A B … A -> B for all A ≠ B, with three other letters between and one in front."""
    pairs = list(itertools.permutations(range(1, 27), 2))
    others = [[t for t in range(1, 27) if t not in pair] for pair in pairs]
    rows = [[0, o[5], a, b, o[0], o[11], o[20], a] for (a, b), o in zip(pairs, others, strict=True)]
    with torch.inference_mode():
        result = logits(_weights(p), torch.tensor(rows))[:, -1]
    assert result.argmax(dim=1).tolist() == [b for _, b in pairs]
    assert float(result.softmax(dim=1)[range(len(pairs)), [b for _, b in pairs]].min()) > (0.9999 if p is ONE_HOT else 0.999)


def test_several_continuations_share_as_they_are_frequent_and_none_rests_on_bos() -> None:
    A, B, C = 1, 2, 3
    result = _run(ONE_HOT, (0, A, B, 9, A, C, 8, A, B, 7, A)).logits()[-1]
    assert float(result[B]) == pytest.approx(20 * 2 / 3, abs=0.2) and float(result[C]) == pytest.approx(20 / 3, abs=0.2)
    tokens = (0, *range(1, 27))
    assert _pattern(ONE_HOT, tokens, 1)[:, 0].min() >= 1 - EPSILON  # no repeat: every row rests
    assert _pattern(ONE_HOT, (0, A, A), 1)[2, 2] >= 1 - EPSILON  # behind the first A stands the second


def test_sinusoids_that_continue_in_two_ways_are_completed_in_between() -> None:
    """What stands in the plane is a mean of two directions: of D and F it is E, which never followed."""
    tokens = (0, 1, 4, 9, 1, 6, 8, 1)
    assert int(_run(PLANE, tokens).logits()[-1].argmax()) == 5
    assert set(_run(ONE_HOT, tokens).logits()[-1].topk(2).indices.tolist()) == {4, 6}


# -- closed forms -----------------------------------------------------------------------------------------------------------

CASES = [
    ONE_HOT,
    PLANE,
    RANK_ONE,
    RopeInduction(d_head=8, alpha=3.0, offset=2),
    RopeInduction(d_head=8, token_in_key=0.3),
    RopeInduction(letters=5, d_head=16, token_in_key=1.0, alpha=0.7),
    RopeInduction(rank=2),
    RopeInduction(rank=5, sigma=0.9, frequencies="equal"),
    RopeInduction.preset("sinusoidal", rank=1, token_in_key=0.5, d_head=2, alpha=2.0),
    RopeInduction(letters=52, d_head=64, base=500.0, bos=False),
]


@pytest.mark.parametrize("p", CASES, ids=str)
def test_the_closed_forms_are_what_the_model_computes(p: RopeInduction) -> None:
    tokens = _text(p, 40)[0 if p.bos else 1 :]
    run = _run(p, tokens)
    np.testing.assert_allclose(closed_forms.attention_0(p, tokens), run.get("pattern", 0)[0].numpy(), atol=1e-12)
    np.testing.assert_allclose(closed_forms.attention_1(p, tokens), run.get("pattern", 1)[0].numpy(), atol=1e-11)
    np.testing.assert_allclose(closed_forms.logits(p, tokens), run.logits().numpy(), atol=1e-8)


def test_the_sum_of_cosines_is_largest_at_the_offset_and_the_hands_stand_up_there() -> None:
    p = RopeInduction(offset=2, d_head=6)
    delta = closed_forms.rivals(p)
    by_hand = [sum(math.cos(d * 10000 ** (-2 * i / 6)) for i in range(3)) for d in delta]
    curve = closed_forms.sum_of_cosines(p, delta)
    np.testing.assert_allclose(curve, by_hand, atol=1e-12)
    assert delta[curve.argmax()] == 0 and curve.max() == 3 and delta[0] == -63 and delta[-1] == 2
    turned = closed_forms.hands(p, delta)
    assert not turned[delta == 0].any() and np.abs(turned).max() <= math.pi
    np.testing.assert_allclose(np.cos(turned).sum(axis=1), curve, atol=1e-12)


@pytest.mark.parametrize("letters", [2, 3, 7, 26])
def test_letters_below_full_rank_are_waves_whose_largest_product_is_with_themselves(letters: int) -> None:
    for rank in range(2, letters, 2):
        code = codes(RopeInduction(letters=letters, rank=rank))
        assert np.linalg.matrix_rank(code) == rank and not code[0].any()
        products = code[1:] @ code[1:].T
        np.testing.assert_allclose(products.diagonal(), 1, atol=1e-12)
        assert (products - 2 * np.eye(letters)).max() < 1 - 1e-9


# -- what breaks it ---------------------------------------------------------------------------------------------------------


def test_rank_two_completes_sinusoids_and_rank_one_does_not() -> None:
    share, asked = _share_right(PLANE)
    assert share == 1 and asked > 200
    share, _ = _share_right(dataclasses.replace(PLANE, rank=1))
    assert share < 0.2
    share, _ = _share_right(RANK_ONE)
    assert share < 0.2


def test_one_hot_letters_of_rank_one_fail_of_rank_two_need_a_sharper_layer() -> None:
    assert _share_right(RopeInduction(rank=1), 4)[0] < 0.3
    assert _share_right(RopeInduction(rank=2, beta=615.0, sigma=PLANE.sigma), 4)[0] == 1
    assert closed_forms.beta_needed(RopeInduction(rank=2), EPSILON) == math.inf  # σ = ½ lies below neighbouring letters


def test_the_rank_one_head_sends_everyone_to_the_extremes() -> None:
    tokens = (0, *np.random.default_rng(3).permutation(range(1, 27)).tolist())
    weights = _pattern(RANK_ONE, (*tokens, *tokens[1:]), 1)[27:, 1:27]  # every letter once in sight of every query
    chosen = [tokens[1 + int(i)] for i in weights.argmax(axis=1)]
    assert set(chosen) == {1, 14}  # the largest cosine and the smallest
    assert sum(c != t for c, t in zip(chosen, tokens[1:], strict=True)) == 24
    positive = features(RANK_ONE)[list(tokens[1:]), 1] > 0
    assert [c == 1 for c in chosen] == positive.tolist()


def test_without_bos_the_first_position_takes_itself_for_its_predecessor() -> None:
    p = RopeInduction(bos=False)
    assert not configuration(p).prepend_bos and closed_forms.beta_needed(p, EPSILON) == math.inf
    result = _run(p, (1, 2, 3, 4, 5, 1)).logits()[-1]
    assert float(result[1]) == pytest.approx(10, abs=0.1) and float(result[2]) == pytest.approx(10, abs=0.1)


def test_equal_frequencies_cannot_tell_a_period_apart() -> None:
    p = RopeInduction(frequencies="equal", period=8.0)
    assert closed_forms.best_rival(p) == (pytest.approx(0, abs=1e-12), -8)
    assert closed_forms.alpha_needed(p, EPSILON) == math.inf
    row = _pattern(p, _text(p, 40), 0)[33]
    np.testing.assert_allclose(row[[32, 24, 16, 8, 0]], 0.2, atol=1e-6)


def test_a_key_that_holds_the_token_looks_at_tokens_too() -> None:
    masses = [_pattern(RopeInduction(token_in_key=s), (0, *[5] * 4, *range(6, 26)), 0)[20, 19] for s in (0.0, 0.3, 0.6)]
    assert masses[0] > 0.999 > masses[1] > masses[2] and masses[2] < 0.5
    alone = _pattern(RopeInduction(token_in_key=1.0), (0, 5, 6, 7, 5), 0)[4]
    assert alone[[1, 4]].sum() > 0.99  # a key of nothing but the token finds itself, wherever it stands


def test_the_resting_place_must_lie_between_a_match_and_nothing() -> None:
    repeat, no_repeat = (0, 1, 2, 3, 1), (0, 1, 2, 3, 4)
    assert _pattern(RopeInduction(sigma=1.0), repeat, 1)[4, 0] > 0.4  # as good as a match
    assert _pattern(RopeInduction(sigma=0.0), no_repeat, 1)[4, 0] == pytest.approx(0.2, abs=0.01)  # as bad as anything
    assert _pattern(RopeInduction(beta=1.0), repeat, 1)[4, 2] < 0.5
    for sigma in (0.0, 1.0):
        assert closed_forms.beta_needed(RopeInduction(sigma=sigma), EPSILON) == math.inf


def test_too_few_hands_alias() -> None:
    for d, delta in ((2, -44), (4, -19)):
        p = RopeInduction(d_head=d)
        m = 63
        row = _pattern(p, _text(p, 64), 0)[m]
        assert row[m - 1 + delta] / row[m - 1] == pytest.approx(math.exp(-p.alpha * closed_forms.best_rival(p).gap), rel=1e-9)
        assert row[m - 1] < 0.8


# -- parameters -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"beta": math.inf}, "beta"),
        ({"gamma": "much"}, "gamma"),
        ({"sigma": 1.5}, "sigma"),
        ({"token_in_key": -0.1}, "token_in_key"),
        ({"d_head": 7}, "d_head"),
        ({"d_head": 0}, "d_head"),
        ({"offset": 0}, "back"),
        ({"offset": -1}, "back"),
        ({"offset": 64}, "back"),
        ({"letters": 53}, "letters"),
        ({"letters": True}, "letters"),
        ({"variant": "sinusoidal", "letters": 27}, "letters"),
        ({"variant": "sinusoidal", "rank": 3}, "rank"),
        ({"variant": "rank-one", "rank": 2}, "rank"),
        ({"rank": 27}, "rank"),
        ({"variant": "dense"}, "variant"),
        ({"frequencies": "random"}, "frequencies"),
        ({"period": 0.0}, "period"),
        ({"n_ctx": 1}, "n_ctx"),
        ({"bos": 1}, "bos"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(BadModel) as caught:
        RopeInduction(**changes)
    assert word in caught.value.what and caught.value.expected and caught.value.got


@pytest.mark.parametrize(
    "query", ["alfa=1", "alpha=1&alpha=2", "alpha=", "alpha", "alpha=x", "d_head=1.5", "bos=perhaps", "=3", "alpha=1&&beta=2"]
)
def test_references_that_cannot_be_read_are_usage_errors(query: str) -> None:
    with pytest.raises(UsageError) as caught:
        reference(f"construct:rope-induction?{query}")
    assert caught.value.expected and caught.value.exit_code == 2


def test_other_constructions_are_not_known() -> None:
    with pytest.raises(UsageError, match="constructed model"):
        reference("construct:skip-trigram")
    with pytest.raises(CircuitLabError):
        ModelStore().open(ModelRef("construct:rope-induction?offset=0"))
    with pytest.raises(BadModel, match="assume"):
        ModelStore().open(ModelRef(SOURCES[0], assume=(("norm", "layer"),)))
    with pytest.raises(BadModel, match="checkpoint"):
        ModelStore().open(ModelRef(SOURCES[0], checkpoint=1))


@pytest.mark.parametrize("p", [*CASES, RopeInduction(alpha=1e-5, base=1e12), RopeInduction(alpha=0.1 + 0.2)], ids=str)
def test_the_canonical_text_reads_back(p: RopeInduction) -> None:
    assert RopeInduction.parse(str(p)) == p and RopeInduction.parse(f"construct:{p}") == p


def test_equal_parameters_are_one_reference() -> None:
    wanted = ModelRef("construct:rope-induction?alpha=20&bos=false")
    for text in ("rope-induction?bos=no&alpha=20.0", "construct:rope-induction?alpha=2e1&bos=0&beta=17.9", wanted.source):
        assert reference(text) == wanted
    assert reference("rope-induction") == ModelRef(SOURCES[0]) == reference("rope-induction?variant=K")
    assert reference("rope-induction?variant=S&beta=615") == ModelRef("construct:rope-induction?variant=sinusoidal")


# -- as a model like any other ----------------------------------------------------------------------------------------------


def _ask(ref: ModelRef, name: str, params: Any, tokens: tuple[int, ...] = (), edits: Any = (), dtype: Any = "float64") -> Any:
    subject = Subject(ref, tokens, edits, Conventions(dtype=dtype))
    return Engine(ModelStore()).answer(Request.named(name, params, subject)).result


def test_the_store_knows_it_by_its_parameters() -> None:
    store = ModelStore()
    one, two = store.open(ModelRef(SOURCES[0])), store.open(reference("rope-induction?alpha=20"))
    other = store.open(ModelRef("construct:rope-induction?alpha=20.000"))
    assert one.key != two.key == other.key and two.sha256 == other.sha256 != one.sha256 and len(one.sha256) == 64
    assert one.sha256 == store.sha256(one.ref) == build(ONE_HOT).sha256 and not one.changed_on_disk
    assert store.reload(one.ref).key == one.key
    assert "W_Q" in one.opened.card and any("suffices" in note for note in one.opened.notes)
    assert corpus_of(one.ref, one.opened.weights.config) is None
    assert "below the bound" in " ".join(store.open(reference("rope-induction?alpha=2")).opened.notes)


def test_the_command_line_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "construct:rope-induction?alpha=20"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "27" in said and "α = 20 suffices on every text" in said and "12.8" in said
    assert main(["info", "rope-induction", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["source"] == SOURCES[0] and about["sha256"] == build(ONE_HOT).sha256 and about["tokenizer"]["n_tokens"] == 27
    assert main(["info", "rope-induction?alfa=20"]) == 2 and "no such parameter" in capsys.readouterr().err
    assert main(["info", "rope-induction?alpha=-1"]) == 3 and "alpha" in capsys.readouterr().err


def test_letters_are_typed_with_or_without_blanks() -> None:
    tokenizer = build(ONE_HOT).weights.tokenizer
    assert tokenizer is not None and tokenizer.n_tokens == 27 and tokenizer.bos == 0
    for text in ("ABCA", "a b c a", "A-B, C … A!"):
        assert tokenizer.encode(text, bos=True) == (0, 1, 2, 3, 1)
    assert tokenizer.decode((0, 1, 2, 26)) == "ABZ" and tokenizer.display(26) == "Z" and tokenizer.find("C") == 3
    assert tokenizer.encode("AZ") == letter_tokenizer().encode("AZ")
    large = build(RopeInduction(letters=30)).weights.tokenizer
    assert large is not None and large.encode("AaZd") == (1, 27, 26, 30)
    small = build(RopeInduction(letters=3)).weights.tokenizer
    assert small is not None and small.encode("abcdeDx") == (1, 2, 3) and small.encode("xyz") == ()


@pytest.mark.parametrize("p", [ONE_HOT, PLANE], ids=str)
def test_analyses_answer_on_it(p: RopeInduction) -> None:
    ref, tokens = ModelRef(f"construct:{p}"), (0, 3, 7, 11, 5, 9, 3)
    attention = _ask(ref, "attention", AttentionParams(), tokens).values
    np.testing.assert_allclose(np.tril(attention[1]), closed_forms.attention_1(p, tokens), atol=1e-6)
    scores = _ask(ref, "head_scores", HeadScoresParams(block=15, samples=2))
    assert scores.of("previous_token")[0, 0] > 0.98 and scores.of("prefix_matching")[1, 0] > 0.98
    composition = _ask(ref, "composition", CompositionParams()).scores[:, 1, 0, 0, 0]
    assert composition[0] == pytest.approx(0, abs=1e-7) and composition[2] == pytest.approx(0, abs=1e-7) and composition[1] > 0.1
    if p is ONE_HOT:
        assert composition[1] == pytest.approx(0.1915, abs=5e-5)
    table = _ask(ref, "ov_table", OvTableParams(head=Head(1, 0), token=7))
    assert int(table.top_ids[0]) == 7 and table.own_rank == 1
    paths = _ask(ref, "path_expansion", PathExpansionParams(), tokens)
    assert paths.remainder.size < 1e-9 * max(1.0, paths.remainder.of)
    expansion = _ask(ref, "score_expansion", ScoreExpansionParams(head=Head(1, 0), source=2), tokens)
    assert expansion.remainder.size < 1e-9 * max(1.0, expansion.remainder.of)
    assert expansion.score == pytest.approx(closed_forms.scores_1(p, tokens)[6, 2])


@pytest.mark.parametrize("p", [ONE_HOT, PLANE], ids=str)
def test_every_analysis_answers_or_says_why_not(p: RopeInduction) -> None:
    engine, silent = Engine(ModelStore()), []
    for name, found in analyses().items():
        try:
            result = engine.answer(
                Request.named(name, found.params(), Subject(ModelRef(f"construct:{p}"), (0, 1, 2, 3, 1, 2)))
            ).result
        except (BadInput, OverBudget):
            silent.append(name)
            continue
        left = result.remainder
        assert result.table().columns and (left is None or left.size < 1e-4 * max(1.0, left.of))
    assert len(silent) < len(analyses()) / 5  # MLP neurons, a prompt set, random texts longer than the context


@pytest.mark.parametrize("p", [ONE_HOT, PLANE, RANK_ONE, RopeInduction(d_head=8, offset=2, frequencies="equal")], ids=str)
def test_a_saved_copy_has_the_same_numbers_and_knows_its_parameters(p: RopeInduction, tmp_path: Path) -> None:
    made = build(p)
    save_directory(tmp_path / "m", configuration(p), tensors(p), made.weights.tokenizer, made.card)
    saved, ref, tokens = ModelRef(f"file:{tmp_path / 'm'}"), ModelRef(made.source), _text(p, 30)
    for dtype in ("float32", "float64"):
        ask = lambda where, d=dtype: _ask(where, "rotation_clock", RotationClockParams(), tokens, dtype=d)
        one, two = ask(ref), ask(saved)
        assert one.parameters == two.parameters == str(p)
        # what is saved is opened in float32; sharp scores of some hundreds carry that much further
        tolerance = 0 if dtype == "float32" else 1e-6 * p.beta
        for name, array in one.arrays().items():
            np.testing.assert_allclose(two.arrays()[name], array, rtol=0, atol=tolerance)
    opened = ModelStore().open(saved).opened
    assert opened.card == made.card and parameters_of(opened.weights.config) == p
    assert opened.weights.tokenizer is not None and opened.weights.tokenizer.encode("A b", True) == (0, 1, 2)


def test_the_clock_is_measured_beside_its_formula() -> None:
    tokens = _text(ONE_HOT, 50)
    result = _ask(ModelRef(SOURCES[0]), "rotation_clock", RotationClockParams(EPSILON), tokens)
    assert result.remainder.size < 1e-12 and result.gap == pytest.approx(0.686, abs=5e-4) and result.rival == -1
    assert result.predicted.shape == result.measured.shape == result.wanted.shape == (2, 50, 50)
    assert np.isnan(result.measured[:, 3, 4:]).all() and np.isnan(result.mass[0, 0])
    assert np.nanmin(result.mass) >= 1 - EPSILON
    assert result.curve[result.delta == 0] == 16 and result.hands.shape == (65, 16) == (len(result.delta), len(result.theta))
    assert result.stream.shape == (3, 50, 82) and ("prev", 27, 54) in result.places
    np.testing.assert_allclose(result.stream[1, 5, 27:54], np.eye(27)[tokens[4]], atol=0.01)
    table = result.table()
    assert table.n_rows == len(result.delta) and table.columns[1].values[result.delta == 0] == -1
    sharp = _ask(ModelRef(SOURCES[0]), "rotation_clock", RotationClockParams(1e-4), tokens)
    assert sharp.alpha_needed > result.alpha_needed and sharp.beta_needed > result.beta_needed
    cut = (Intervention("zero", Site("z", 0, (0,))),)
    again = _ask(ModelRef(SOURCES[0]), "rotation_clock", RotationClockParams(EPSILON), tokens, cut)
    np.testing.assert_array_equal(again.measured, result.measured)  # of the construction, whatever is cut


def test_the_clock_is_refused_elsewhere(tmp_path: Path) -> None:
    other = ModelRef(f"file:{directory(tmp_path / 'a')}")
    with pytest.raises(Refused, match="construct:rope-induction"):
        _ask(other, "rotation_clock", RotationClockParams(), (0, 1))
    for family in ("rope-induction", "rope-induction?alfa=2"):  # says so, is not
        claimed = ModelRef(f"file:{directory(tmp_path / family.replace('?', '_'), family=family)}")
        with pytest.raises(Refused):
            _ask(claimed, "rotation_clock", RotationClockParams(), (0, 1))
    for epsilon in (0.0, 0.5, -1.0, math.nan):
        with pytest.raises(BadInput, match="epsilon"):
            _ask(ModelRef(SOURCES[0]), "rotation_clock", RotationClockParams(epsilon), (0, 1))


@pytest.mark.parametrize("tokens", [(0,), (5,), (0, 0), (5, 5)])
@pytest.mark.parametrize("p", [ONE_HOT, PLANE, RANK_ONE, RopeInduction(bos=False)], ids=str)
def test_the_clock_on_the_shortest_prompts(p: RopeInduction, tokens: tuple[int, ...]) -> None:
    result = _ask(ModelRef(f"construct:{p}"), "rotation_clock", RotationClockParams(), tokens)
    assert result.remainder.size < 1e-12 and np.isfinite(result.logits).all()


def test_the_same_question_twice_is_bit_equal() -> None:
    engine, subject = Engine(ModelStore()), Subject(ModelRef(SOURCES[0]), _text(ONE_HOT, 64))
    request = Request.named("rotation_clock", RotationClockParams(), subject)
    assert engine.answer(request, fresh=True).fingerprint == engine.answer(request, fresh=True).fingerprint
    assert engine.answer(request).provenance.weights == build(ONE_HOT).sha256
