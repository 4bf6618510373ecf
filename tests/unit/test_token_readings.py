"""What circuit tables read of a token, against scores and outputs worked out from the tensors of the file in plain numpy.

In the first layer a head meets tokens alone: a row of its tables is then what the model itself computes, source by source.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.analysis.base import analyses
from circuitlab.analysis.circuits.embedding_products import EmbeddingProductsParams
from circuitlab.analysis.circuits.factors import exactness
from circuitlab.analysis.circuits.largest_entries import LargestEntriesParams
from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.circuits.ov_top_tokens import OvTopTokensParams
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams
from circuitlab.analysis.circuits.qk_table import QkTableParams
from circuitlab.analysis.circuits.skip_trigrams import SkipTrigramsParams
from circuitlab.analysis.circuits.token_circuits import TokenCircuitsParams
from circuitlab.analysis.circuits.token_readings import WITHOUT_MLP, left_unscaled, token_words, without_mlp
from circuitlab.analysis.circuits.vocabulary_grams import EmbeddingGramParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams
from circuitlab.analysis.spectra.qk_spectrum import QkSpectrumParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.subject import Head, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.unit.test_tables import DOUBLE, ask

HEAD, N = Head(0, 2), 50
NORMED: dict[str, Any] = {"positions": "none", "rotary": None, "n_layers": 2, "d_vocab": N, "d_vocab_out": N, "final_norm": False}
KINDS = {
    "rms": replace(CONFIGS["attention-only"], norm="rms", norm_placement="pre", **NORMED),
    "layer": replace(CONFIGS["attention-only"], norm="layer", norm_placement="pre", biases=("q", "k", "v"), **NORMED),
    "scaled": replace(CONFIGS["attention-only"], norm="rms", norm_placement="both", embed_scale=5.0, **NORMED),
}


class Own:
    """The first layer of a file as the model computes it: nothing is folded, centred or factored."""

    def __init__(self, path: Path, c: ModelConfig) -> None:
        self.c, self.t = c, {n: v.double().numpy() for n, v in load_file(path / "model.safetensors").items()}
        x = self.t["embed.W_E"] * c.embed_scale
        x = x - x.mean(1, keepdims=True) if c.norm == "layer" else x
        self.scale = 1 / np.sqrt((x**2).mean(1) + c.norm_eps)  # of each token
        self.read = x * self.scale[:, None] * self.t["layers.0.attn_norm.gain"] + self.t.get("layers.0.attn_norm.bias", 0)

    def of(self, name: str) -> np.ndarray:
        return self.read @ self.t[f"layers.0.W_{name}"][HEAD.head] + self.t.get(f"layers.0.b_{name}", np.zeros((9, 1)))[HEAD.head]

    def scores(self) -> np.ndarray:
        """[destination, source]: the score of each source token at each destination."""
        return self.c.score_scale * self.of("Q") @ self.of("K").T

    def outputs(self) -> np.ndarray:
        """[source, out]: what attending to nothing but a source adds to the logits, without a final norm."""
        written = self.of("V") @ self.t["layers.0.W_O"][HEAD.head]
        if self.c.norm_placement == "both":
            written = written * self.t["layers.0.attn_post_norm.gain"]  # up to its scale, which is the position's
        return written @ self.t["unembed.W_U"]


@pytest.fixture(params=list(KINDS))
def model(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Own]:
    """A file whose tokens are of very different lengths."""
    c = KINDS[request.param]
    path = directory(tmp_path / request.param, c, tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    tensors["embed.W_E"] *= torch.randn(N, 1, generator=torch.Generator().manual_seed(7)).exp()
    save_file(tensors, path / "model.safetensors")
    return path, Own(path, c)


def by_id(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A whole row that is listed in order, by token."""
    assert sorted(ids.tolist()) == list(range(N))
    return values[np.argsort(ids)]


def without_mean(x: np.ndarray) -> np.ndarray:
    return x - x.mean(-1, keepdims=True)


def test_a_qk_row_has_the_models_own_differences_of_scores_between_sources(model: tuple[Path, Own]) -> None:
    path, own = model
    wanted, engine = without_mean(own.scores()), Engine(ModelStore())
    turned = 0
    for token in range(0, N, 7):
        result = ask(path, "qk_table", QkTableParams(HEAD, token, k=N), engine=engine)
        row = by_id(result.top_ids, result.top)
        row = row + (by_id(result.bias_top_ids, result.bias_top) if len(result.bias_top) else 0)
        np.testing.assert_allclose(row, wanted[token], atol=1e-9)
        np.testing.assert_array_equal(np.argsort(row), np.argsort(wanted[token]))
        raw = ask(path, "qk_table", QkTableParams(HEAD, token, k=N, embed="tokens"), engine=engine)
        turned += int(raw.top_ids[0] != result.top_ids[0])
        assert "exact" in result.conventions or any("per position" in one for one in result.conventions)
        assert any("W_E rows as the norm before attention scales them" in one for one in result.conventions)
        assert any("W_E rows unnormalised: up to a scale per token" in one for one in raw.conventions)
        assert "exact" not in raw.conventions
    assert turned > 1  # the scale of a token is not in W_E alone: other sources come first


def test_the_scores_are_those_of_a_run_on_the_two_tokens(model: tuple[Path, Own]) -> None:
    """That the plain numbers above are the model's: prompts of a source and a destination."""
    path, own = model
    w = Engine(ModelStore()).store.open(ModelRef(f"file:{path}")).weights(DOUBLE, "cpu")
    for source, destination in ((3, 9), (41, 0)):
        scores = forward(w, (source, destination)).get("scores", 0)
        assert float(scores[HEAD.head, 1, 0]) == pytest.approx(own.scores()[destination, source], abs=1e-9)


def test_an_ov_row_is_what_attending_to_the_source_adds(model: tuple[Path, Own]) -> None:
    path, own = model
    bias = own.t.get("layers.0.b_V", np.zeros((9, own.c.d_head)))[HEAD.head]
    bias = bias + own.t.get("layers.0.attn_norm.bias", np.zeros(own.c.d_model)) @ own.t["layers.0.W_V"][HEAD.head]
    shift = bias @ own.t["layers.0.W_O"][HEAD.head] @ own.t["unembed.W_U"]  # the same for every source: left out, and said
    wanted, engine = without_mean(own.outputs() - shift), Engine(ModelStore())
    for token in (0, 13, 31):
        result = ask(path, "ov_table", OvTableParams(HEAD, token, k=N), engine=engine)
        np.testing.assert_allclose(by_id(result.top_ids, result.top), wanted[token], atol=1e-9)
        column = ask(path, "ov_table", OvTableParams(HEAD, token, "out", k=N), engine=engine)
        np.testing.assert_allclose(by_id(column.top_ids, column.top), wanted[:, token], atol=1e-9)
        raw = ask(path, "ov_table", OvTableParams(HEAD, token, "out", k=N, embed="tokens"), engine=engine)
        np.testing.assert_allclose(by_id(raw.top_ids, raw.top) * own.scale, wanted[:, token], atol=1e-9)
    every = ask(path, "ov_top_tokens", OvTopTokensParams(HEAD, N), engine=engine)
    np.testing.assert_allclose(every.values, -np.sort(-wanted), atol=1e-9)
    most = ask(path, "largest_entries", LargestEntriesParams(HEAD, k=20), engine=engine)
    np.testing.assert_allclose(most.values, -np.sort(-wanted.ravel())[:20], atol=1e-9)


def test_all_tables_of_a_token_and_its_skip_trigrams_read_it_so(model: tuple[Path, Own]) -> None:
    path, own = model
    t, c = own.t, own.c
    gain = t["layers.0.attn_norm.gain"]
    x = own.read - t.get("layers.0.attn_norm.bias", 0)  # biases are rows of their own
    Q, K, V = (x @ t[f"layers.0.W_{name}"][HEAD.head] for name in "QKV")
    written = V @ t["layers.0.W_O"][HEAD.head] * (t["layers.0.attn_post_norm.gain"] if c.norm_placement == "both" else 1)
    qk, ov = c.score_scale * Q @ K.T, without_mean(written @ t["unembed.W_U"])
    assert gain.std() > 0.01
    engine = Engine(ModelStore())
    result = ask(path, "token_circuits", TokenCircuitsParams(HEAD, 11, k=N), engine=engine)
    rows = (ov[11], without_mean(qk)[11], ov[:, 11], qk[:, 11])
    for i, wanted in enumerate(rows):
        np.testing.assert_allclose(by_id(result.top_ids[i], result.top[i]), wanted, atol=1e-9)
    centred = without_mean(qk)
    scores = np.maximum(centred[:, :, None], 0) * np.maximum(ov[None], 0)  # [destination, source, out]
    of_one = ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 30, source=11), engine=engine)
    np.testing.assert_allclose(of_one.score, -np.sort(-scores[:, 11].ravel())[:30], atol=1e-9)
    of_all = ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 30, sources=N), engine=engine)
    np.testing.assert_allclose(of_all.score, -np.sort(-scores.ravel())[:30], atol=1e-9)
    raw = ask(path, "skip_trigrams", SkipTrigramsParams(HEAD, 30, source=11, embed="tokens"), engine=engine)
    assert raw.score[0] != pytest.approx(of_one.score[0], rel=1e-3)
    ranks = (ov >= np.diag(ov)[:, None]).sum(1)
    share = ask(path, "own_tokens", OwnTokensParams((HEAD,)), engine=engine)
    assert share.top10[HEAD] == pytest.approx((ranks <= 10).mean(), abs=1e-12)


def test_spectra_keep_the_matrices_of_the_papers_and_can_read_normalised_rows(model: tuple[Path, Own]) -> None:
    path, own = model
    engine, c = Engine(ModelStore()), own.c
    w = engine.store.open(ModelRef(f"file:{path}")).weights(DOUBLE, "cpu")
    W_E = w.embed().W_E.numpy() * c.embed_scale
    W_E = W_E - W_E.mean(1, keepdims=True) * (c.norm == "layer")  # which the norm takes off
    of_rows = {"tokens": W_E, "normalised tokens": W_E * own.scale[:, None]}
    gain, post = own.t["layers.0.attn_norm.gain"], own.t.get("layers.0.attn_post_norm.gain", 1.0)
    W_Q, W_K, W_V = (gain[:, None] * own.t[f"layers.0.W_{name}"][HEAD.head] for name in "QKV")
    W_OV = W_V @ (own.t["layers.0.W_O"][HEAD.head] * post)
    W_U = without_mean(own.t["unembed.W_U"])
    positive = lambda M: (lambda values: values.sum().real / np.abs(values).sum())(np.linalg.eigvals(M))
    for embed, E in of_rows.items():
        ov = ask(path, "ov_spectrum", OvSpectrumParams((HEAD,), embed=embed), engine=engine)  # type: ignore[arg-type]
        qk = ask(path, "qk_spectrum", QkSpectrumParams((HEAD,), embed=embed), engine=engine)  # type: ignore[arg-type]
        both = ask(path, "copying_scores", CopyingScoresParams(embed=embed), engine=engine)  # type: ignore[arg-type]
        copying, positivity = positive(E @ W_OV @ W_U), positive(E @ W_Q @ W_K.T @ (E - E.mean(0)).T)
        assert ov.copying[0] == pytest.approx(copying, abs=1e-8) == both.copying[HEAD]
        assert qk.positivity[0] == pytest.approx(positivity, abs=1e-8) == both.qk_positivity[HEAD]
        assert both.diagonal_mean[HEAD] == pytest.approx(np.trace(E @ W_OV @ W_U) / N, abs=1e-9)
        as_in_papers = embed == "tokens"
        for found in (ov, qk, both):
            said = " · ".join(found.conventions)
            assert ("W_E rows unnormalised (as in the paper)" in said) == as_in_papers == ("per token" in said)
    assert OvSpectrumParams().embed == EmbeddingProductsParams().embed == EmbeddingGramParams().source == "tokens"


@pytest.mark.parametrize("name", ["attention-only", "post"])
def test_without_a_norm_before_attention_both_readings_are_one_and_nothing_is_said_of_them(tmp_path: Path, name: str) -> None:
    plain = replace(CONFIGS["attention-only"], n_layers=2)
    c = plain if name == "attention-only" else replace(plain, norm="rms", norm_placement="post_sublayer")
    path, engine = directory(tmp_path / name, c, tokenizer=False), Engine(ModelStore())
    for kind, p in (("qk_table", QkTableParams(HEAD, 5)), ("ov_table", OvTableParams(HEAD, 5, "out"))):
        one, other = ask(path, kind, p, engine=engine), ask(path, kind, replace(p, embed="tokens"), engine=engine)
        np.testing.assert_array_equal(one.top_ids, other.top_ids)
        np.testing.assert_allclose(one.top, other.top, atol=1e-12)
        assert one.conventions == other.conventions and "W_E rows" not in " · ".join(one.conventions)


def test_a_scale_that_the_whole_stream_sets_is_said() -> None:
    """The norm of a later layer scales a token's part by all that is in the stream."""
    gpt2 = CONFIGS["gpt2"]
    assert exactness(gpt2) == "exact"
    assert left_unscaled(gpt2, "normalised tokens") == () and left_unscaled(gpt2, "tokens") == ("token",)
    assert left_unscaled(gpt2, "normalised tokens", shared=True) == ("position",)
    for embed in ("normalised tokens", "tokens"):
        assert "what earlier layers write left out" in token_words(gpt2, embed, Head(1, 0))
        assert "what earlier layers write left out" not in token_words(gpt2, embed, Head(0, 0))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("mlps", [True, False])
def test_a_reading_that_misleads_in_a_deep_model_says_what_it_leaves_out(tmp_path: Path, layers: int, mlps: bool) -> None:
    """Tables and spectra alike, of each head that reads tokens behind the first MLP; the papers' models are read as there."""
    config = replace(CONFIGS["gpt2" if mlps else "attention-only"], n_layers=layers)
    ref = ModelRef(f"file:{directory(tmp_path / 'm', config)}")
    engine, last = Engine(ModelStore()), Head(layers - 1, 0)
    every = ({"copying_scores": {}, "own_tokens": {}} if layers else {}) | ({"previous_head_spectrum": {}} if layers > 1 else {})
    of_head = {name: {"heads": (last,)} for name in ("ov_spectrum", "qk_spectrum")}
    of_head |= {name: {"head": last, "token": 5} for name in ("token_circuits", "ov_table", "qk_table")}
    for name, words in {**every, **of_head}.items():
        found = analyses()[name].params
        for embed in ("tokens", "after the first MLP"):
            if embed != "tokens" and (not mlps or not last.layer):
                continue
            answer = engine.answer(Request.named(name, found(**words, embed=embed), Subject(ref)))
            said = WITHOUT_MLP in " · ".join(answer.result.conventions)
            assert said == (mlps and layers > 2 and embed == "tokens"), (name, embed)


def test_a_head_of_the_first_layer_leaves_nothing_out() -> None:
    deep = replace(CONFIGS["gpt2"], n_layers=30)
    assert without_mlp(deep, "tokens", 0) == "" != without_mlp(deep, "tokens", 1)
    assert WITHOUT_MLP not in token_words(deep, "normalised tokens", Head(0, 1))
    assert WITHOUT_MLP in token_words(deep, "normalised tokens", Head(7, 1))
