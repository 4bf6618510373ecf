"""Copying of heads on random tokens, written out over the whole vocabulary; and the control of head scores on the prompt."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from circuitlab.analysis.attention.copying_on_random_tokens import CopyingHeadScoreParams
from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attention.prefix_matching import PrefixStripeParams
from circuitlab.analysis.attention.score_definitions import SCORES
from circuitlab.analysis.base import NullContext
from circuitlab.analysis.behaviour.samples import check_counts, different_random, fit_to_context, repeated_random
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.saving import save_directory
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel

EXACT = Conventions(dtype="float64")


def answer(path: Path, name: str, params: Any, tokens: Any = (), edits: Any = (), said: Conventions = EXACT) -> Any:
    return Engine(ModelStore()).answer(Request.named(name, params, Subject(ModelRef(f"file:{path}"), tokens, edits, said))).result


def slow_copying(path: Path, config: Any, tokens: list[int], counted: list[int]) -> np.ndarray:
    """[layer, head] from the definition, logits over the whole vocabulary, one destination after the other."""
    slow = SlowModel(config, load_file(path / "model.safetensors"))
    _, streams, patterns = slow.run(tuple(tokens))
    t = slow.t
    W_U = t["embed.W_E"].T if config.tied else t["unembed.W_U"]
    out = np.zeros((config.n_layers, config.n_heads))

    def gains(name: str) -> Any:
        return t.get(f"{name}.gain", 1.0)

    for layer in range(config.n_layers):
        x = streams[layer]
        if config.norm != "none":
            x = x - x.mean(-1, keepdims=True) if config.norm == "layer" else x
            x = x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * gains(f"layers.{layer}.attn_norm")
        for head in range(config.n_heads):
            group = head // (config.n_heads // config.n_kv_heads)
            A = patterns[layer][head]
            shares = []
            for d in counted:
                written = A[d] @ x @ t[f"layers.{layer}.W_V"][group] @ t[f"layers.{layer}.W_O"][head]
                if config.norm_placement == "both":
                    written = written * gains(f"layers.{layer}.attn_post_norm")
                if config.norm == "layer":
                    written = written - written.mean()
                raised = (written * gains("unembed.norm")) @ W_U
                raised = np.maximum(raised - raised.mean(), 0)
                whole = sum(raised[i] for i in set(tokens))
                if whole > 0:
                    shares.append(sum(A[d, s] * raised[tokens[s]] for s in range(d + 1)) / whole)
            out[layer, head] = 2 * np.mean(shares) - 1
    return out


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped", "smeared-rotary", "tied-scaled"])
def test_copying_is_the_share_of_what_is_raised_that_is_attended_to(tmp_path: Path, name: str) -> None:
    path = directory(tmp_path / "m", CONFIGS[name])
    result = answer(path, "copying_head_score", CopyingHeadScoreParams(block=6, repeats=3, samples=2, seed=4))
    drawn = np.random.default_rng(4).choice(np.arange(1, 260), size=(2, 6)).tolist()
    once = [slow_copying(path, CONFIGS[name], [0, *b], list(range(1, 7))) for b in drawn]
    thrice = []
    for b in drawn:
        tokens = [0, *b * 3]
        thrice.append(slow_copying(path, CONFIGS[name], tokens, [d for d in range(19) if tokens[d] in tokens[:d]]))
    np.testing.assert_allclose(result.of("unrepeated"), np.mean(once, axis=0), atol=1e-9)
    np.testing.assert_allclose(result.of("repeated"), np.mean(thrice, axis=0), atol=1e-9)
    np.testing.assert_allclose(result.spread[1], np.std(thrice, axis=0, ddof=1), atol=1e-9)


@pytest.mark.parametrize("name", ["attention-only", "gpt2"])
def test_no_convention_changes_copying(tmp_path: Path, name: str) -> None:
    path, params = directory(tmp_path / "m", CONFIGS[name]), CopyingHeadScoreParams(block=5, repeats=2, samples=2)
    plain = answer(path, "copying_head_score", params, said=Conventions(False, False, "float64"))
    np.testing.assert_allclose(answer(path, "copying_head_score", params).mean, plain.mean, atol=1e-10)


def copying_model(path: Path, sign: float) -> Path:
    """One head that attends evenly (W_Q = 0) and writes back `sign` times what it reads: W_E W_V W_O W_U = sign · 1."""
    config = replace(
        CONFIGS["attention-only"], n_layers=1, n_heads=1, n_kv_heads=1, d_model=12, d_head=12, d_vocab=12, d_vocab_out=12
    )
    eye = torch.eye(12)
    tensors = {
        "embed.W_E": eye,
        "embed.W_pos": torch.zeros(48, 12),
        "unembed.W_U": eye.clone(),
        "layers.0.W_Q": torch.zeros(1, 12, 12),
        "layers.0.W_K": torch.zeros(1, 12, 12),
        "layers.0.W_V": eye[None].clone(),
        "layers.0.W_O": sign * eye[None],
    }
    save_directory(path, config, {n: t.contiguous() for n, t in tensors.items()}, None)
    return path


def test_an_even_copier_in_closed_form(tmp_path: Path) -> None:
    """Without a BOS: 1 token of one is r = 1; two different ones raise both by A = 1/2, of which each is attended by 1/2."""
    path = copying_model(tmp_path / "m", 1.0)
    result = answer(path, "copying_head_score", CopyingHeadScoreParams(block=1, repeats=2, samples=3))
    assert result.of("unrepeated")[0, 0] == pytest.approx(1)
    assert result.of("repeated")[0, 0] == pytest.approx(1)
    # a head that lowers what it attends to raises tokens outside the prompt alone: 0/0
    lowers = answer(
        copying_model(tmp_path / "b", -1.0), "copying_head_score", CopyingHeadScoreParams(block=1, repeats=2, samples=3)
    )
    assert np.isnan(lowers.mean).all()
    two = answer(path, "copying_head_score", CopyingHeadScoreParams(block=2, repeats=1, samples=60))
    # c = 1/12 of the sum: the raised logits are A − 1/12. d = 0 sees one token: 1. d = 1 sees two different ones: 1/2
    assert two.of("unrepeated")[0, 0] == pytest.approx(2 * 0.75 - 1)


def test_samples_and_refusals(tmp_path: Path) -> None:
    path = directory(tmp_path / "m")
    said = " ".join(answer(path, "copying_head_score", CopyingHeadScoreParams(samples=1)).conventions)
    assert "BOS + 23 random tokens × 2 (no room for 25 × 4) and once" in said  # 48 of context: fewer repeats first
    with pytest.raises(Refused, match="stream"):
        answer(directory(tmp_path / "p", CONFIGS["post-residual"]), "copying_head_score", CopyingHeadScoreParams())
    with pytest.raises(Refused, match="room"):
        answer(directory(tmp_path / "s", n_ctx=3), "copying_head_score", CopyingHeadScoreParams())
    with pytest.raises(BadInput):
        answer(path, "copying_head_score", CopyingHeadScoreParams(samples=0))
    request = Request.named("copying_head_score", CopyingHeadScoreParams(samples=2), Subject(ModelRef(f"file:{path}")))
    engine = Engine(ModelStore())
    assert len({engine.answer(request, NullContext(), fresh=True).fingerprint for _ in range(2)}) == 1


@pytest.mark.parametrize(
    ("n_ctx", "asked", "wanted"),
    [(256, (25, 4), (25, 4)), (100, (25, 4), (25, 3)), (60, (25, 4), (25, 2)), (48, (25, 4), (23, 2)), (8, (25, 4), (3, 2)),
     (7, (25, 4), (3, 2)), (6, (25, 4), None), (8, (2, 3), (2, 3)), (8, (5, 1), (5, 1)), (4, (5, 1), (3, 1))],
)  # fmt: skip
def test_a_short_context_takes_fewer_repeats_before_smaller_blocks(n_ctx: int, asked: Any, wanted: Any) -> None:
    assert fit_to_context(replace(CONFIGS["attention-only"], n_ctx=n_ctx), *asked) == wanted


def previous_and_induction(path: Path, n_ctx: int) -> Path:
    """Layer 0's head looks one position back; layer 1's finds nothing: both by positions alone, so that tokens mean nothing."""
    d = 12 + n_ctx
    config = replace(
        CONFIGS["attention-only"], n_layers=1, n_heads=1, n_kv_heads=1, d_model=d, d_head=n_ctx, d_vocab=12, d_vocab_out=12,
        n_ctx=n_ctx, positions="learned", score_scale=1.0,
    )  # fmt: skip
    read, back = torch.zeros(1, d, n_ctx), torch.zeros(1, d, n_ctx)
    for i in range(n_ctx):
        read[0, 12 + i, i] = back[0, 12 + i, min(i + 1, n_ctx - 1)] = 30.0**0.5 * 3
    tensors = {
        "embed.W_E": torch.eye(12, d), "embed.W_pos": torch.cat([torch.zeros(n_ctx, 12), torch.eye(n_ctx)], 1),
        "unembed.W_U": torch.eye(d, 12), "layers.0.W_Q": read, "layers.0.W_K": back,
        "layers.0.W_V": torch.zeros(1, d, n_ctx), "layers.0.W_O": torch.zeros(1, n_ctx, d),
    }  # fmt: skip
    save_directory(path, config, {n: t.contiguous() for n, t in tensors.items()}, None)
    return path


@pytest.mark.parametrize("n_ctx", [7, 8, 12])
def test_on_a_short_context_a_previous_token_head_is_no_induction_head(tmp_path: Path, n_ctx: int) -> None:
    result = answer(previous_and_induction(tmp_path / "m", n_ctx), "head_scores", HeadScoresParams())
    assert result.of("previous_token")[0, 0] > 0.99
    assert result.of("prefix_matching")[0, 0] < 0.01
    assert any("random tokens × " in word and "no room for 25 × 4" in word for word in result.conventions)


def test_no_block_under_three_is_repeated(tmp_path: Path) -> None:
    short, long = directory(tmp_path / "s", n_ctx=6), directory(tmp_path / "l")
    for name, params in (("head_scores", HeadScoresParams()), ("prefix_stripe", PrefixStripeParams())):
        with pytest.raises(Refused, match="context of 6 has no room"):
            answer(short, name, params)
        with pytest.raises(Refused, match="too short"):
            answer(long, name, replace(params, block=2))


def test_the_control_draws_no_token_twice_where_the_vocabulary_has_as_many() -> None:
    rng = np.random.default_rng(0)
    rows, differ = different_random(np.arange(40), (50, 30), rng)
    assert differ and all(len(set(row)) == 30 for row in rows.tolist())
    rows, differ = different_random(np.arange(9), (5, 30), rng)
    assert not differ and rows.shape == (5, 30)


def test_an_empty_sample_is_refused_by_what_is_missing() -> None:
    check_counts(block=1, repeats=2)
    with pytest.raises(BadInput) as refused:
        check_counts(block=0, repeats=2, samples=1)
    assert refused.value.got == "block 0"


def test_a_block_holds_no_token_twice(tmp_path: Path) -> None:
    config = replace(CONFIGS["attention-only"], d_vocab=30, d_vocab_out=30)
    made = repeated_random(config, 0, 25, 2, 20, 1)
    assert all(len(set(row[1:26].tolist())) == 25 and row[1:26].tolist() == row[26:].tolist() for row in made)


def test_a_control_that_draws_twice_says_so(tmp_path: Path) -> None:
    few = directory(tmp_path / "few", d_vocab=9, d_vocab_out=9, tokenizer=False)
    said = " · ".join(answer(few, "head_scores", HeadScoresParams(samples=2)).conventions)
    assert "drawn twice" in said and "without a repeat" not in said
    said = " · ".join(answer(directory(tmp_path / "many"), "head_scores", HeadScoresParams(samples=2)).conventions)
    assert "without a repeat" in said


def test_a_batch_is_scored_as_its_samples(tmp_path: Path) -> None:
    pattern = torch.rand(3, 2, 9, 9).tril().softmax(-1)
    tokens = torch.tensor([[0, 1, 2, 1, 2, 1, 3, 3, 0], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1] * 9])
    for name, score in SCORES.items():
        whole = score(pattern, tokens)
        assert whole.shape == (3, 2)
        for i in range(3):
            torch.testing.assert_close(whole[i], score(pattern[i], tokens[i]), equal_nan=True, msg=name)
    assert torch.isnan(SCORES["prefix_matching"](pattern, tokens)[1]).all()
    assert not torch.isnan(SCORES["prefix_matching"](pattern, tokens)[0]).any()


@pytest.mark.parametrize("edits", [(), (Intervention("zero", Site("resid_pre", 1)),)])
def test_the_control_of_a_prompt_is_its_positions_on_other_tokens(tmp_path: Path, edits: Any) -> None:
    path, tokens = directory(tmp_path / "m"), (0, 5, 9, 5, 7, 5, 9, 200, 5)
    result = answer(path, "head_scores", HeadScoresParams(on="text", seed=4), tokens, edits)
    drawn = np.random.default_rng(5).choice(np.arange(1, 260), size=8).tolist()
    slow = SlowModel(CONFIGS["attention-only"], load_file(path / "model.safetensors"))
    patterns = slow.run((0, *drawn))[2]
    wanted = np.zeros(4)
    for head in range(4):
        rows = []
        for d in range(9):
            targets = [s for s in range(1, d + 1) if tokens[s - 1] == tokens[d]]
            rows += [sum(patterns[0][head][d, s] for s in targets)] if targets else []
        wanted[head] = np.mean(rows)
    np.testing.assert_allclose(result.control[0, 0], wanted, atol=1e-9)
    other = answer(path, "head_scores", HeadScoresParams(on="text", seed=4), tokens)
    assert edits == () or not np.allclose(result.control[0, 1], other.control[0, 1])  # the interventions act on it too
    assert any("control" in word for word in result.conventions)
    assert set(result.across()) == {"mean", "control"}
    one = answer(path, "head_scores", HeadScoresParams(on="text"), (3,))
    assert np.isfinite(one.of("entropy")).all()


@pytest.mark.parametrize("on", ["scores", "stripe"])
def test_on_random_tokens_interventions_act_where_they_are_asked_for_and_need_no_prompt(tmp_path: Path, on: str) -> None:
    """Against prefix matching of the slow forward pass, which has no interventions, on weights in which the head is cut out."""
    config = CONFIGS["attention-only"]
    path, cut = directory(tmp_path / "whole", config), (Intervention("zero", Site("z", 0, (1,))),)
    tensors = load_file(path / "model.safetensors")
    tensors["layers.0.W_O"][1] = 0.0
    name, params = (
        ("head_scores", HeadScoresParams(block=6, repeats=2, samples=2, edited=True))
        if on == "scores"
        else ("prefix_stripe", PrefixStripeParams(Head(1, 0), block=6, edited=True))
    )
    assert params.needs == "edits" and replace(params, edited=False).needs == "weights"
    result, plain = answer(path, name, params, edits=cut), answer(path, name, replace(params, edited=False), edits=cut)
    assert "no interventions" in plain.conventions and "no interventions" not in result.conventions
    bos = 0 if config.prepend_bos else None
    rows = repeated_random(config, bos, 6, 2, 2 if on == "scores" else 1, 0).tolist()
    expected = []
    for tokens in rows:
        _, _, patterns = SlowModel(config, tensors).run(tuple(tokens))
        A, counted = patterns[1][0], []
        for d, now in enumerate(tokens):
            sources = [s for s in range(1, d + 1) if tokens[s - 1] == now]
            counted += [sum(A[d][s] for s in sources)] if sources else []
        expected.append(np.mean(counted))
    found = result.of("prefix_matching")[1, 0] if on == "scores" else result.score
    np.testing.assert_allclose(found, np.mean(expected), rtol=1e-6)
    before = plain.of("prefix_matching")[1, 0] if on == "scores" else plain.score
    assert abs(found - before) > 1e-6


def test_layers_are_shown_as_they_come(tmp_path: Path) -> None:
    """The scores of each layer, then of each layer the control; none that is shown is another in the end."""
    shown = list[Any]()

    class Shows(NullContext):
        def partial(self, result: Any) -> None:
            shown.append(result)

    subject = Subject(ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['gpt2'])}"), (), (), EXACT)
    whole: Any = Engine(ModelStore()).answer(Request.named("head_scores", HeadScoresParams(), subject), Shows()).result
    layers = whole.mean.shape[1]
    assert len(shown) == 2 * (layers - 1) and all(0 < a.done < b.done < 1 for a, b in pairwise(shown))
    for i, one in enumerate(shown):
        of_scores, of_control = (i + 1, 0) if i < layers - 1 else (layers, i - layers + 2)
        assert [np.isfinite(x[0]).all(1).tolist() for x in (one.mean, one.control)] == [
            [layer < n for layer in range(layers)] for n in (of_scores, of_control)
        ]
        np.testing.assert_array_equal(one.mean[:, :of_scores], whole.mean[:, :of_scores])
        np.testing.assert_array_equal(one.spread[:, :of_scores], whole.spread[:, :of_scores])
        np.testing.assert_array_equal(one.control[:, :of_control], whole.control[:, :of_control])
