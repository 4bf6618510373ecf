"""Models with unusual parts: positions that are computed, layers without positions, few tokens, a smaller output vocabulary.

Numbers against numpy in double precision that shares no code with the program; captions against what the model has.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from circuitlab.analysis.attention.copying_on_random_tokens import CopyingHeadScoreParams
from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.residual_norms import ResidualNormsParams
from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams
from circuitlab.analysis.base import find_analysis
from circuitlab.analysis.behaviour.in_context import InContextParams
from circuitlab.analysis.checks.privileged_basis import PrivilegedBasisParams
from circuitlab.analysis.checks.rotation_invariance import RotationCheckParams, random_orthogonal
from circuitlab.analysis.circuits.direct_path import DirectPathParams
from circuitlab.analysis.circuits.factors import exactness
from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.circuits.qk_table import QkTableParams
from circuitlab.analysis.circuits.rounding import below
from circuitlab.analysis.circuits.skip_trigrams import SkipTrigramsParams
from circuitlab.analysis.circuits.token_circuits import TokenCircuitsParams
from circuitlab.analysis.composition.subspace_overlap import SubspaceOverlapParams
from circuitlab.analysis.composition.virtual_weight import VirtualWeightParams
from circuitlab.analysis.interventions.ablation import AblationParams
from circuitlab.analysis.ordering import Ranks, all_ranks, rank_in
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams
from circuitlab.analysis.spectra.singular_vectors import SingularVectorsParams
from circuitlab.counting import number, ranked
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.heads import head_rank
from circuitlab.figures.panels.spectra.chosen_heads import rounding_words, singular_values
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.models import CONFIGS, FULL, TINY, directory

TOKENS = (0, 5, 3, 5, 2, 6, 1, 2, 5)
FOLDED, RAW = Conventions(dtype="float64"), Conventions(fold_norm=False, centre=False, dtype="float64")
WAVES = replace(FULL, positions="sinusoidal")
SHORT = replace(FULL, positions="shortformer")
SOME_ROTATE = replace(CONFIGS["llama"], position_layers=(0,))
SOME_SLOPE = replace(CONFIGS["alibi"], position_layers=(0,))
FEW_OUT = replace(TINY, d_vocab=12, d_vocab_out=7, prepend_bos=False)


class Asker:
    """An engine on one model in double precision; `t`: its tensors."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        self.path = path if path.exists() else directory(path, config, tokenizer=False)
        self.engine, self.ref, self.config = Engine(ModelStore()), ModelRef(f"file:{self.path}"), config
        self.t = {name: array.astype(np.float64) for name, array in load_file(self.path / "model.safetensors").items()}

    def __call__(self, name: str, params: Any, tokens: tuple[int, ...] = TOKENS, conventions: Conventions = FOLDED) -> Any:
        return self.engine.answer(Request.named(name, params, Subject(self.ref, tokens, (), conventions))).result

    def words(self, name: str, params: Any, conventions: Conventions = FOLDED, tokens: tuple[int, ...] = TOKENS) -> str:
        return " | ".join(self(name, params, tokens, conventions).conventions)


def waves(n: int, d: int) -> np.ndarray:
    """[n, d]: sines in the left half, cosines in the right one (Vaswani et al. 2017)."""
    angle = np.arange(n)[:, None] / 10000 ** (2 * np.arange(d // 2)[None] / d)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def less_mean(x: np.ndarray, axis: int = -1) -> np.ndarray:
    return x - x.mean(axis, keepdims=True)


# positions that are computed, with LayerNorm


def test_computed_positions_are_centred_like_all_that_is_written(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", WAVES)
    t, table = ask.t, waves(WAVES.n_ctx, WAVES.d_model)
    start = ask("residual_norms", ResidualNormsParams())
    wanted = less_mean(t["embed.W_E"][list(TOKENS)] + table[: len(TOKENS)])
    np.testing.assert_allclose(start.stream[0], np.linalg.norm(wanted, axis=1), rtol=1e-10)
    np.testing.assert_allclose(start.added[1], np.linalg.norm(less_mean(table[: len(TOKENS)]), axis=1), rtol=1e-10)
    product = less_mean(table) @ less_mean(t["unembed.norm.gain"][:, None] * t["unembed.W_U"])
    result = ask("virtual_weight", VirtualWeightParams(writer="position", reader="unembedding"))
    assert result.norm == pytest.approx(np.linalg.norm(product), rel=1e-9)
    raw = ask("residual_norms", ResidualNormsParams(), conventions=RAW)
    np.testing.assert_allclose(raw.added[1], np.linalg.norm(table[: len(TOKENS)], axis=1), rtol=1e-10)


@pytest.mark.parametrize("config", [WAVES, replace(WAVES, d_mlp=0, biases=())])
def test_with_computed_positions_no_rotation_moves_a_logit(tmp_path: Path, config: ModelConfig) -> None:
    ask = Asker(tmp_path / "m", config)
    result = ask("rotation_check", RotationCheckParams())
    assert result.difference[1] < 1e-11 * result.logit_range and result.reasons[1] == ""
    folded, plain = (ask("token_loss", find_analysis("token_loss").params(), conventions=c).loss for c in (FOLDED, RAW))
    np.testing.assert_allclose(folded, plain, atol=1e-10)


def shortformer_logits(config: ModelConfig, t: dict[str, np.ndarray], Q: np.ndarray) -> np.ndarray:
    """[pos, d_vocab] less their mean: centred weights, the stream rotated by Q, gains and biases of norms where they are."""
    causal = np.tril(np.ones((len(TOKENS), len(TOKENS)), dtype=bool))
    rms = lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps)
    x, pos = less_mean(t["embed.W_E"][list(TOKENS)]) @ Q, t["embed.W_pos"][: len(TOKENS)] @ Q
    for i in range(config.n_layers):
        get = lambda name, i=i: t[f"layers.{i}.{name}"]
        read = rms(x) * get("attn_norm.gain") + get("attn_norm.bias")
        out = np.zeros_like(x)
        for h in range(config.n_heads):
            q, k, v = ((read + pos * (n != "V")) @ (Q.T @ get(f"W_{n}")[h]) for n in "QKV")
            scores = np.where(causal, q @ k.T / np.sqrt(config.d_head), -np.inf)
            weight = np.exp(scores - scores.max(-1, keepdims=True))
            out += weight / weight.sum(-1, keepdims=True) @ v @ (less_mean(get("W_O")[h]) @ Q)
        x = x + out
    return less_mean(rms(x) @ (Q.T @ (t["unembed.norm.gain"][:, None] * t["unembed.W_U"])))


def test_before_added_positions_a_norm_keeps_its_bias_when_the_model_is_rotated(tmp_path: Path) -> None:
    config = replace(TINY, norm="layer")
    ask = Asker(tmp_path / "m", config)
    Q = random_orthogonal(config.d_model, 0, lambda: None).numpy()
    wanted = np.abs(shortformer_logits(config, ask.t, Q) - shortformer_logits(config, ask.t, np.eye(config.d_model))).max()
    result = ask("rotation_check", RotationCheckParams())
    assert wanted > 0.1 and result.difference[1] == pytest.approx(wanted, rel=1e-9)
    assert np.abs(ask.t["layers.0.attn_norm.bias"]).max() > 0.01


# few tokens


@pytest.mark.parametrize(("n", "chance"), [(3, "−0.33"), (5, "−0.60"), (260, "−0.92")])
def test_chance_is_of_the_tokens_that_are_different(tmp_path: Path, n: int, chance: str) -> None:
    ask = Asker(tmp_path / "m", replace(TINY, d_vocab=n, n_ctx=128))
    samples = CopyingHeadScoreParams(samples=3), HeadScoresParams(samples=3), InContextParams("random", texts=3, block=25)
    words = [ask.words(name, p) for name, p in zip(("copying_head_score", "head_scores", "in_context"), samples, strict=True)]
    assert f"chance {chance}:" in words[0]
    for said in words:
        assert (f"{n} tokens to draw 25 from" in said) == (n < 25)
        assert "uniform over the vocabulary" in said and "without BOS" not in said  # it has none


def test_chance_is_what_heads_without_preference_get(tmp_path: Path) -> None:
    """Heads that attend evenly and raise all tokens alike get the share of each token: no more than 1 in n different ones."""
    path = directory(tmp_path / "m", replace(TINY, d_vocab=10, n_ctx=128, n_layers=1), tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    rng, values = np.random.default_rng(0), []
    for _ in range(12):  # logits that have nothing to do with the tokens that are read
        tensors["unembed.W_U"] = rng.standard_normal(tensors["unembed.W_U"].shape).astype(np.float32)
        tensors["layers.0.W_Q"][:] = 0
        tensors["embed.W_E"][:] = rng.standard_normal((1, TINY.d_model))
        save_file(tensors, path / "model.safetensors")
        values.append(Asker(path, TINY)("copying_head_score", CopyingHeadScoreParams(samples=6)).of("repeated").ravel())
    said = Asker(path, TINY).words("copying_head_score", CopyingHeadScoreParams(samples=6))
    chance = float(said.split("chance ")[1].split(":")[0].replace("−", "-"))
    assert np.mean(values) == pytest.approx(chance, abs=0.05) and -0.8 < chance < -0.7


# an output vocabulary smaller than the input's


def test_a_token_that_cannot_be_predicted_is_no_target_in_silence(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", FEW_OUT)
    tokens = (0, 9, 3, 11, 5)
    words = lambda position: ask.words("direct_attribution", DirectAttributionParams(position=position), tokens=tokens)
    assert "of the most probable token, as the one that follows cannot be predicted" in words(0)
    assert "logit of the token that follows" in words(1) and "most probable" not in words(1)
    assert "of the most probable token" in words(4) and "cannot be predicted" not in words(4)
    every = ask.words("direct_attribution", DirectAttributionParams(positions="all"), tokens=tokens)
    assert "(after the last token and before tokens that cannot be predicted, of the most probable one)" in every
    sent = ask.words("token_attribution", TokenAttributionParams(position=0, direction="destinations"), tokens=tokens)
    assert "before tokens that cannot be predicted" in sent


def test_random_tokens_are_those_that_can_be_predicted_and_have_losses(tmp_path: Path) -> None:
    result = Asker(tmp_path / "m", FEW_OUT)("in_context", InContextParams("random", texts=4, block=6, repeats=2))
    assert np.isfinite(result.losses[:, 1:]).all()
    assert any("uniform over the tokens that can be predicted" in words for words in result.conventions)


def test_without_a_bos_random_tokens_may_fill_the_context(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", replace(TINY, n_ctx=6, prepend_bos=False))
    result = ask("head_scores", HeadScoresParams(samples=2))
    assert any("3 random tokens × 2" in words for words in result.conventions) and np.isfinite(result.of("prefix_matching")).all()


# a direction


@pytest.mark.parametrize("name", ["gpt2", "llama", "both-norms-capped", "post-sublayer", "attention-only"])
def test_a_direction_is_the_same_in_every_view(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    ask, D = Asker(tmp_path / "m", config), np.random.default_rng(3).standard_normal(config.d_model)
    p = DirectAttributionParams(Target(direction=tuple(D.tolist())), position=4)
    found = [ask("direct_attribution", p, conventions=c) for c in (FOLDED, RAW, replace(RAW, fold_norm=True))]
    from circuitlab.model.forward import forward

    x = forward(ask.engine.store.open(ask.ref).weights(RAW), TOKENS).final.numpy()[4]  # type: ignore[union-attr]
    if config.norm != "none":
        x = less_mean(x) if config.norm == "layer" else x
        x = x / np.sqrt((x**2).mean() + config.norm_eps) * ask.t["unembed.norm.gain"] + ask.t.get("unembed.norm.bias", 0)
    for one in found:
        assert one.total[0] == pytest.approx(float(x @ D), abs=1e-9)
        assert one.heads.sum() + one.others.sum() == pytest.approx(float(x @ D), abs=1e-9)
        assert any("its norm included" in words for words in one.conventions) == (config.norm != "none")


# gains before shortformer positions


def test_a_gain_that_is_not_folded_is_applied_once_between_the_ends(tmp_path: Path) -> None:
    """The ends have no gain, and no mean that folding takes off, so the view makes no difference; the steps have their gains."""
    config = replace(SHORT, n_layers=3)
    path = directory(tmp_path / "m", config, tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    tensors["unembed.norm.gain"][:] = 1
    tensors["unembed.W_U"] -= tensors["unembed.W_U"].mean(0)
    save_file(tensors, path / "model.safetensors")
    ask = Asker(path, config)
    for how in ("mean Jacobian", "Jacobian at the position"):
        p = VirtualWeightParams(across=True, mlp=how, position=5)  # type: ignore[arg-type]
        views = [replace(RAW, fold_norm=True), RAW]
        folded, raw = (ask("virtual_weight", p, conventions=c).across_norm for c in views)
        assert folded == pytest.approx(raw, rel=1e-9)
    assert np.abs(ask.t["layers.1.attn_norm.gain"] - 1).max() > 0.05


# captions


def test_exact_is_not_said_where_gains_are_left_out(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", CONFIGS["gpt2"])
    left = "not exact: gains and biases of norms left out"
    for name, p in (("qk_table", QkTableParams()), ("ov_table", OvTableParams()), ("virtual_weight", VirtualWeightParams())):
        assert left not in ask.words(name, p) and left in ask.words(name, p, RAW), name
        assert "exact" in ask(name, p).conventions and "exact" not in ask(name, p, conventions=RAW).conventions
    assert "exact" in ask("direct_path", DirectPathParams(), conventions=RAW).conventions  # it passes the norm itself
    assert exactness(CONFIGS["llama"], RAW, ()) == "not exact: gains of norms left out"
    assert exactness(CONFIGS["attention-only"], RAW) == "exact"
    behind = replace(CONFIGS["post-sublayer"], qk_norm="none")
    assert exactness(behind, RAW, (0,), ends=False) == "exact up to a positive scale per position"
    assert "left out" in exactness(behind, RAW, (), ends=True)


def test_only_what_reads_scores_depends_on_positions(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", SOME_ROTATE)
    first, second = (ask.words("qk_table", QkTableParams(Head(i, 1))) for i in (0, 1))
    assert "offset-dependent (rotary)" in first and "position-free (distance 0)" in first
    tables = ask.words("token_circuits", TokenCircuitsParams(Head(0, 1)))
    assert "QK offset-dependent (rotary)" in tables, "its OV circuits have no rotation"
    assert "rotary" not in second and "positions left out" not in second and "no positions in this layer" in second
    for name, p in (("ov_table", OvTableParams()), ("direct_path", DirectPathParams())):
        assert "rotary" not in ask.words(name, p)
    parts = [ask.words("score_expansion", ScoreExpansionParams(Head(i, 1))) for i in (0, 1)]
    assert "rotation included" in parts[0] and "rotation" not in parts[1]
    assert "MLPs as recorded" not in parts[0] and "MLPs as recorded" in parts[1]


def test_a_layer_without_slopes_has_no_word_on_them(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", SOME_SLOPE)
    parts = [ask.words("score_expansion", ScoreExpansionParams(Head(i, 1))) for i in (0, 1)]
    assert "− slope · distance (ALiBi)" in parts[0] and "ALiBi" not in parts[1]
    tables = [ask.words("qk_table", QkTableParams(Head(i, 1))) for i in (0, 1)]
    assert "but for ALiBi" in tables[0] and "ALiBi" not in tables[1]
    assert "ALiBi" not in ask.words("ov_table", OvTableParams())


def test_a_query_bias_is_named_where_there_is_one_and_as_what_becomes_of_it(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"], tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    for name in ("attn_norm.bias", "b_Q", "b_V"):
        tensors[f"layers.0.{name}"][:] = 0
    save_file(tensors, path / "model.safetensors")
    ask = Asker(path, CONFIGS["gpt2"])
    none, one = (ask("qk_table", QkTableParams(Head(i, 1))) for i in (0, 1))
    assert not any("query bias" in words for words in none.conventions) and not none.bias_top.size
    assert "query bias: a row of its own" in one.conventions and one.bias_top.size
    assert "query bias left out" in ask("skip_trigrams", SkipTrigramsParams(Head(1, 1))).conventions
    assert "value bias" not in ask.words("ov_table", OvTableParams(Head(0, 1)))
    assert "value bias left out" in ask.words("ov_table", OvTableParams(Head(1, 1)))
    for name in ("ov_spectrum", "copying_scores", "own_tokens"):
        assert "value bias" not in Asker(tmp_path / "n", TINY).words(name, find_analysis(name).params()), name


# estimates of memory


class Peak(TorchDispatchMode):
    """The largest number of bytes that tensors made meanwhile hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.now, self.most = dict[int, list[int]](), 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return tree_map(self._seen, func(*args, **(kwargs or {})))

    def _seen(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor) and (size := x.untyped_storage().nbytes()):
            place = x.untyped_storage().data_ptr()
            if place not in self.live:
                self.live[place] = [0, size]
                self.now += size
                self.most = max(self.most, self.now)
            self.live[place][0] += 1
            weakref.finalize(x, self._gone, place)
        return x

    def _gone(self, place: int) -> None:
        self.live[place][0] -= 1
        if not self.live[place][0]:
            self.now -= self.live.pop(place)[1]


@pytest.mark.parametrize(("d", "n_vocab"), [(2, 260), (8, 260), (18, 260), (96, 260), (8, 4000), (96, 4000)])
def test_what_a_basis_costs_is_near_what_is_said(tmp_path: Path, d: int, n_vocab: int) -> None:
    """Not below what is measured, and no more than some megabytes or some dozen times above."""
    config = replace(TINY, d_model=d, d_vocab=n_vocab, positions="rotary", rotary=Rotary())
    ask = Asker(tmp_path / "m", config)
    for name, p in (("privileged_basis", PrivilegedBasisParams()), ("rotation_check", RotationCheckParams())):
        request = Request.named(name, p, Subject(ask.ref, TOKENS, (), FOLDED))
        ask.engine.answer(request)  # what is cached is not of this analysis
        with Peak() as peak:
            ask.engine.answer(request, fresh=True)
        estimate: Any = find_analysis(name).memory
        said = estimate(config, len(TOKENS), p)
        assert 0 < peak.most <= said <= max(2**22, 40 * peak.most), (name, peak.most, said)


# windows


def test_a_window_that_hides_what_counts_is_no_score_of_0(tmp_path: Path) -> None:
    config = replace(FULL, windows=(3, 0), n_ctx=64)
    ask = Asker(tmp_path / "m", config)
    result = ask("head_scores", HeadScoresParams(block=6, repeats=3, samples=2))
    for name in ("prefix_matching", "duplicate_token"):
        assert np.isnan(result.of(name)[0]).all() and np.isfinite(result.of(name)[1]).all()
        assert f"no {name.replace('_', ' ')} in layer 0 (window 3): no source that counts is seen" in result.conventions
    assert np.isfinite(result.of("previous_token")).all() and not any("previous token in" in w for w in result.conventions)
    tokens = (4, 7, 7, 8, 9, 4, 6, 6)  # what followed the same token is 0 positions back from 2 and 7, and 4 from 5
    text = ask("head_scores", HeadScoresParams(on="text"), tokens)
    stripe = ask("prefix_stripe", find_analysis("prefix_stripe").params(Head(0, 1), "prompt"), tokens)
    pattern = ask("attention", find_analysis("attention").params((Head(0, 1),)), tokens).values[0]
    mass = [sum(pattern[d, s] for s in range(max(1, d - 2), d + 1) if tokens[s - 1] == tokens[d]) for d in (2, 7)]
    assert text.of("prefix_matching")[0, 1] == pytest.approx(np.mean(mass)) and stripe.score == pytest.approx(np.mean(mass))
    assert any("1 more destination whose targets the window of 3 hides" in words for words in stripe.conventions)
    assert not any("no prefix" in words for words in ask("head_scores", HeadScoresParams(on="text"), (4,)).conventions)


def test_a_distance_beyond_the_window_is_said(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", CONFIGS["gemma3"])
    words = lambda distance: ask.words("qk_table", QkTableParams(Head(0, 1), distance=distance))
    assert "beyond the window of 3" in words(3) and "beyond the window" not in words(2)
    assert "beyond the window" not in ask.words("qk_table", QkTableParams(Head(1, 1), distance=9))


# what an ablation does not do


def test_an_ablation_says_what_it_leaves_alone(tmp_path: Path) -> None:
    ask = Asker(tmp_path / "m", CONFIGS["gpt2"])
    one = AblationParams("mean", effect="target", target=Target((3,)))
    assert "nothing is ablated" in ask.words("ablation", one, tokens=(4,)) and not ask("ablation", one, (4,)).effect.any()
    assert "nothing is ablated" not in ask.words("ablation", one)
    short = AblationParams("resample", source=(1, 2, 3))
    assert "positions from 3 on have no counterpart there and keep their own z" in ask.words("ablation", short)
    assert "no counterpart" not in ask.words("ablation", AblationParams("resample", source=TOKENS))
    assert "value bias that heads carry is taken away too" in ask.words("ablation", AblationParams("zero"))
    assert "value bias" not in Asker(tmp_path / "n", TINY).words("ablation", AblationParams("zero"))
    said = "the value bias counts with the heads that carry it"
    assert said in ask("direct_attribution", DirectAttributionParams()).conventions
    assert said not in Asker(tmp_path / "n", TINY)("direct_attribution", DirectAttributionParams()).conventions


# ranks

ALIKE = (3, 5, 6, 7, 9)  # tokens that are predicted alike: their columns are zeros, and so their logits, however sums are rounded


def of_equals(path: Path, alike: tuple[int, ...]) -> Asker:
    """A model of 12 tokens with such ones."""
    path = directory(path, replace(TINY, d_vocab=12, d_vocab_out=12, positions="rotary", rotary=Rotary()), tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    tensors["unembed.W_U"][:, list(alike)] = 0
    save_file(tensors, path / "model.safetensors")
    return Asker(path, TINY)


def test_equal_tokens_have_one_rank_and_it_is_said_how_many_have_it(tmp_path: Path) -> None:
    ask = of_equals(tmp_path / "m", ALIKE)
    tokens = (0, 5, 3, 5, 2, 6, 1, 9, 5, 7)
    of = lambda name, **params: ask(name, find_analysis(name).params(**params), tokens, RAW)
    losses, beside, lens = of("token_loss"), of("side_by_side"), of("logit_lens")
    for position, follows in enumerate(tokens[1:]):
        found = of("predictions", position=position, k=12, whole=True)
        row = found.all_logits
        wanted = 1 + sum(row > row[follows]), 5 if follows in ALIKE else 1
        assert (found.actual_rank, found.actual_equal) == wanted
        assert (losses.rank[position + 1], losses.equal[position + 1]) == wanted
        assert (beside.rank[position + 1], beside.equal[position + 1]) == wanted
        assert (lens.rank[-1, position], lens.equal[-1, position]) == wanted
        listed = dict(zip(found.ids.tolist(), found.table().columns[0].values.tolist(), strict=True))
        assert listed == {i: 1 + int(sum(row > row[i])) for i in range(12)}
    assert losses.equal[0] == lens.equal[0, -1] == beside.equal[0] == -1
    own = of("ov_table", head=Head(0, 1), token=5, k=12)
    values = dict(zip(own.top_ids.tolist(), own.top.tolist(), strict=True))
    assert own.own_equal == sum(v == values[5] for v in values.values()) == 5
    assert own.own_rank == 1 + sum(v > values[5] for v in values.values())


def test_it_is_said_in_one_phrase() -> None:
    assert [ranked(1), ranked(1, 5), ranked(3, 1, 144), ranked(1, 5, 144), ranked(-1, 0, 9)] == [
        "rank 1",
        "rank 1, 5 equal",
        "rank 3 of 144",
        "rank 1 of 144, 5 equal",
        "no rank",
    ]


def test_a_token_that_ties_at_the_top_is_not_the_first_choice(tmp_path: Path) -> None:
    ask = of_equals(tmp_path / "m", tuple(range(12)))
    result = ask("predictions", find_analysis("predictions").params(position=1, whole=True))
    assert (result.actual_rank, result.actual_equal) == (1, 12) and set(result.ranks.tolist()) == {1}
    losses = ask("token_loss", find_analysis("token_loss").params())
    assert (Ranks(losses.rank[1:], losses.equal[1:]).last == 12).all()
    words = ask.words("direct_attribution", DirectAttributionParams())
    assert "of the most probable token (rank 1, 12 equal)" in words
    every = ask.words("direct_attribution", DirectAttributionParams(positions="all"))
    assert "of the most probable one, or of one of up to 12 equal" in every
    other = Asker(tmp_path / "n", TINY).words("direct_attribution", DirectAttributionParams())
    assert "of the most probable token" in other and "equal" not in other


def test_ranks_are_counted_as_they_are_defined() -> None:
    values = np.array([[2.0, np.nan, 7.0], [7.0, 7.0, -1.0]])
    found = all_ranks(values)
    np.testing.assert_array_equal(found.rank, [[4, -1, 1], [1, 1, 5]])
    np.testing.assert_array_equal(found.equal, [[1, 0, 3], [3, 3, 1]])
    for place, own in np.ndenumerate(values):
        assert rank_in(values.ravel(), own) == (found.rank[place], found.equal[place])
        one = rank_in(torch.tensor(values.ravel())[None], torch.tensor([[own]]))
        assert (int(one.rank), int(one.equal)) == (found.rank[place], found.equal[place])
    assert head_rank(values, Head(0, 2)) == "rank 1 of 5, 3 equal" and head_rank(values, Head(0, 0)) == "rank 4 of 5"
    assert head_rank(values, Head(0, 1)) == "no rank"


def test_chance_of_an_overlap_goes_by_the_ranks_and_ranks_by_the_file(tmp_path: Path) -> None:
    config = replace(TINY, d_model=32, d_head=8, positions="rotary", rotary=Rotary())
    path, rng = directory(tmp_path / "m", config, tokenizer=False), np.random.default_rng(0)
    tensors = load_file(path / "model.safetensors")
    tensors["layers.0.W_V"][0] = rng.standard_normal((32, 1)) @ rng.standard_normal((1, 8))  # rank 1, rounded to float32
    save_file(tensors, path / "model.safetensors")
    ask = Asker(path, config)
    p = SubspaceOverlapParams("writes", "writes", Head(0, 0), Head(1, 0))
    for conventions in (FOLDED, Conventions()):
        result = ask("subspace_overlap", p, conventions=conventions)
        assert result.left_rank[0, 0] == 1 and (np.delete(result.left_rank.ravel(), 0) == 8).all()
    chance = result.chance
    assert chance[0, 0, 0, 0] == pytest.approx(1 / 32) and chance[1, 0, 1, 1] == pytest.approx(8 / 32)
    assert chance[0, 0, 1, 1] == pytest.approx(8 / 32)
    random = rng.standard_normal((4000, 32))
    cos2 = (random[:, :8] ** 2).sum(1) / (random**2).sum(1)  # of a random direction with 8 dimensions
    assert cos2.mean() == pytest.approx(chance[0, 0, 1, 1], abs=0.01)
    np.testing.assert_allclose(result.table().columns[3].values, (result.mean_cos2 - chance).ravel(), atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "share", "known"),
    [(torch.bfloat16, 8e-3, "bfloat16"), (torch.float16, 1e-3, "float16"), (torch.float64, 1e-6, "float32")],
)
def test_what_numbers_are_known_to_is_what_the_file_had(tmp_path: Path, dtype: torch.dtype, share: float, known: str) -> None:
    """Also of a small file, which is copied as float32: numbers of a head of rank 1 are rounded as the file has them."""
    config = replace(TINY, d_model=32, d_head=8, positions="rotary", rotary=Rotary())
    path, rng = directory(tmp_path / "m", config, tokenizer=False), np.random.default_rng(0)
    tensors = {name: torch.tensor(array) for name, array in load_file(path / "model.safetensors").items()}
    tensors["layers.0.W_V"][0] = torch.tensor(rng.standard_normal((32, 1)) @ rng.standard_normal((1, 8)))
    save_tensors({name: value.to(dtype) for name, value in tensors.items()}, path / "model.safetensors")
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{path}")
    for conventions in (FOLDED, Conventions()):
        ask = lambda name, p, c=conventions: engine.answer(Request.named(name, p, Subject(ref, TOKENS, (), c))).result
        result = ask("subspace_overlap", SubspaceOverlapParams("writes", "writes"))
        assert result.left_rank[0, 0] == 1 and (np.delete(result.left_rank.ravel(), 0) == 8).all()
        heads = (Head(0, 0), Head(0, 1))
        bare = ask("ov_spectrum", OvSpectrumParams(heads, "bare"))
        assert bare.rounding.tolist() == [share] * 2
        small = below(bare.singular_values, bare.rounding)
        assert small.tolist() == [[False] + [True] * 7, [False] * 8]
        assert bare.table().columns[-1].values.tolist() == ["", *["rounding"] * 7, *[""] * 8]
        said = f"7 singular values under {number(share, '.0e')} of the largest (weights known to {known}) are rounding"
        assert said in bare.conventions
        vectors = ask("singular_vectors", SingularVectorsParams(Head(0, 0)))
        assert vectors.rounding == share and said in vectors.conventions
        assert not any("are rounding" in words for words in ask("ov_spectrum", OvSpectrumParams(heads[1:], "bare")).conventions)
    full = ask("ov_spectrum", OvSpectrumParams(heads))  # in float32, from squares in float32
    assert (full.singular_values[0, 1:] < full.rounding[0] * full.singular_values[0, 0]).all() and full.rounding[0] >= 6e-4
    assert ask("ov_spectrum", OvSpectrumParams(heads), FOLDED).rounding[0] == share


def test_singular_values_that_are_rounding_are_dashed(tmp_path: Path) -> None:
    config = replace(TINY, d_model=32, d_head=8, positions="rotary", rotary=Rotary())
    path, rng = directory(tmp_path / "m", config, tokenizer=False), np.random.default_rng(0)
    tensors = load_file(path / "model.safetensors")
    tensors["layers.0.W_V"][0] = rng.standard_normal((32, 3)) @ rng.standard_normal((3, 8))
    save_file(tensors, path / "model.safetensors")
    ask = Asker(path, config)
    heads = (Head(0, 0), Head(0, 1))
    answer = ask.engine.answer(
        Request.named("ov_spectrum", OvSpectrumParams(heads, "bare"), Subject(ask.ref, TOKENS, (), FOLDED))
    )
    curves, values = singular_values("OV", answer), answer.result.singular_values
    assert curves.names == ("L0H0", "L0H1", "L0H0 rounding") and curves.dashed == (False, False, True) and curves.named == (0, 1)
    np.testing.assert_array_equal(np.isfinite(curves.ys[0]), np.arange(8) < 3)
    np.testing.assert_array_equal(curves.ys[0][:3], values[0, :3])
    np.testing.assert_array_equal(curves.ys[1], values[1])
    assert np.isnan(curves.ys[2][:2]).all() and curves.ys[2][2] == values[0, 2]  # from the last one above on
    assert "dashed" in rounding_words([answer]) and not rounding_words([])


def test_a_head_of_zeros_has_no_rank_of_its_own_tokens(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", TINY, tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    tensors["layers.0.W_O"][1] = 0
    save_file(tensors, path / "model.safetensors")
    result = Asker(path, TINY)("own_tokens", find_analysis("own_tokens").params())
    assert np.isnan(result.top1[0, 1]) and np.isnan(result.top10[0, 1]) and np.isfinite(result.top1).sum() == 7
    assert any("have no rank" in words for words in result.conventions)
