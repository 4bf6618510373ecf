"""What JSON files hold of the trained models, against published definitions computed from their safetensors in float64."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.disk.paths import model_dir
from circuitlab.engine.export_data import export_of, json_text
from tests.reference.slow_stages import Stages, output, stages
from tests.shipped_models import config_of, heads_of

TEXT = "The cat sat on the mat. The cat sat on the hat, and the dog"
TWO, MINI = "attn-only-2l", "gpt-mini"
HEADS, SIZES = heads_of(TWO), config_of(TWO)
GRID = (SIZES["n_layers"], SIZES["n_heads"])


@cache
def tokens_of(name: str) -> tuple[int, ...]:
    return api.open(name).tokens(TEXT)


@cache
def slow(name: str) -> Stages:
    return stages(model_dir(name), np.array(tokens_of(name)))


def exported(analysis: str, name: str, **given: str) -> Any:
    """The result as its file says it; null is NaN."""
    answer = api.open(name).compute(analysis, tokens=tokens_of(name), set=given)
    return json.loads(json_text(export_of(api.engine(), answer, identified=False)))["result"]


def array(found: Any) -> np.ndarray:
    plain = lambda v: [plain(x) for x in v] if isinstance(v, list) else np.nan if v is None else v
    return np.array(plain(found), float)


def centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean(-1, keepdims=True)


def same(found: Any, wanted: Any, atol: float) -> None:
    wanted = np.asarray(wanted, float)
    assert wanted.size and np.nanmax(np.abs(wanted)) > 100 * atol, "what is compared is more than its tolerance"
    np.testing.assert_allclose(array(found), wanted, rtol=0, atol=atol)


def W(layer: int, head: int, *names: str) -> list[np.ndarray]:
    """Matrices of a head of the attention-only model."""
    return [slow(TWO).w[f"layers.{layer}.{name}"][head] for name in names]


def test_the_overview_holds_what_each_head_moves() -> None:
    """The largest A · ‖v W_O‖ of each head: of patterns it is 1 everywhere, as the first position sees itself alone."""
    for name in (TWO, MINI):
        s, wanted = slow(name), []
        for layer, head in heads_of(name):
            moved = s.values[layer][head] @ output(s, layer, head)
            moved = centred(moved) if name == MINI else moved  # in front of a LayerNorm writing weights are centred
            wanted.append((s.patterns[layer][head] * np.linalg.norm(moved, axis=-1)).max())
        same(exported("attention_overview", name, show="contribution")["largest"], np.reshape(wanted, (2, -1)), 1e-4)


def test_the_prefix_stripe_is_the_attention_to_what_followed() -> None:
    head = int(np.argmax(exported("head_scores", TWO, samples="1")["mean"][0][1]))  # the best of layer 1 at prefix matching
    found = exported("prefix_stripe", TWO, head=f"L1H{head}")
    t = np.array(found["tokens"])
    A = stages(model_dir(TWO), t).patterns[1][head]
    allowed = np.tril(np.ones(A.shape, bool)) & (t[:, None] == np.append(-1, t[:-1])[None, :])
    np.testing.assert_array_equal(np.array(found["allowed"]), allowed)
    same(found["mass"], np.where(allowed.any(1), (A * allowed).sum(1), np.nan), 1e-5)
    assert np.nanmean(array(found["mass"])) > 0.3, "an induction head"


def test_own_tokens_are_counted_in_the_rows_of_the_whole_circuit() -> None:
    found, w = exported("own_tokens", TWO), slow(TWO).w
    ranks = []
    for layer, head in HEADS:
        V, out = W(layer, head, "W_V", "W_O")
        left, right = w["embed.W_E"] @ V, out @ w["unembed.W_U"]
        own = (left * right.T).sum(1)[:, None]
        parts = np.array_split(np.arange(len(left)), 8)  # rows at a time
        ranks.append(np.concatenate([(left[part] @ right >= own[part] - 1e-12).sum(1) for part in parts]))
    for name, most in (("top1", 1), ("top10", 10)):
        same(found[name], np.reshape([(r <= most).mean() for r in ranks], GRID), 3 / SIZES["d_vocab"])  # ties of float32


def test_the_direct_path_is_as_symmetric_as_its_matrix() -> None:
    w = slow(TWO).w
    P = (w["embed.W_E"] - w["embed.W_E"].mean(0)) @ centred(w["unembed.W_U"])
    assert exported("direct_path", TWO)["symmetry"] == pytest.approx((P * P.T).sum() / (P**2).sum(), abs=1e-8)


def test_subspaces_overlap_by_the_cosines_of_their_principal_angles() -> None:
    found = exported("subspace_overlap", TWO, left="writes", right="reads_k")
    span = lambda rows: np.linalg.svd(rows, full_matrices=False)[2][: SIZES["d_head"]]
    writes = [span(W(i, h, "W_V")[0] @ W(i, h, "W_O")[0]) for i, h in HEADS]
    reads = [span(W(i, h, "W_Q")[0] @ W(i, h, "W_K")[0].T) for i, h in HEADS]
    cosines = np.array([[np.linalg.svd(a @ b.T, compute_uv=False) for b in reads] for a in writes])
    same(found["mean_cos2"], (cosines**2).mean(-1).reshape(*GRID, *GRID), 1e-6)
    same(found["max_cos"], cosines[..., 0].reshape(*GRID, *GRID), 1e-6)


def test_a_virtual_head_attends_by_the_product_of_two_patterns() -> None:
    found = exported("virtual_head", TWO)
    (a, b), (c, d) = found["heads"]
    A = slow(TWO).patterns
    pattern = array(found["pattern"])
    np.testing.assert_allclose(np.nan_to_num(pattern), A[c][d] @ A[a][b], atol=1e-5)


def test_norms_and_cosines_of_what_is_added() -> None:
    for name in (TWO, MINI):
        found, s = exported("residual_norms", name), slow(name)
        seen = centred if name == MINI else lambda x: x
        same(found["stream"], [np.linalg.norm(seen(s.stream[stage]), axis=-1) for stage in found["stages"]], 1e-3)
        for part, (out, before) in s.added.items():
            row, (out, before) = found["components"].index(part), (seen(out), seen(before))
            size = np.linalg.norm(out, axis=-1)
            same(found["added"][row], size, 1e-3)
            same(found["cosine"][row], (out * before).sum(-1) / size / np.linalg.norm(before, axis=-1), 1e-5)


def test_what_each_source_sent_to_the_next_token() -> None:
    s, n = slow(TWO), len(tokens_of(TWO))
    d = n - 2
    target = centred(s.w["unembed.W_U"])[:, tokens_of(TWO)[n - 1]]
    wanted = np.full((len(HEADS), n), np.nan)
    for i, (layer, head) in enumerate(HEADS):
        wanted[i, : d + 1] = (s.patterns[layer][head][d] * (s.values[layer][head] @ output(s, layer, head) @ target))[: d + 1]
    same(exported("token_attribution", TWO, position=str(d))["values"], wanted, 1e-5)


def test_copying_and_positivity_are_shares_of_eigenvalues() -> None:
    found, w = exported("copying_scores", TWO), slow(TWO).w
    E, U = w["embed.W_E"], w["unembed.W_U"]
    share = lambda m: (lambda v: v.sum().real / np.abs(v).sum())(np.linalg.eigvals(m))
    keys = E - E.mean(0)
    for layer, head in HEADS:
        Q, K, V, out = W(layer, head, "W_Q", "W_K", "W_V", "W_O")
        for name, wanted in {
            "copying": share(out @ centred(U) @ E @ V),
            "copying_raw": share(out @ U @ E @ V),
            "qk_positivity": share((keys @ K).T @ (keys @ Q)),
            "qk_positivity_raw": share((E @ K).T @ (E @ Q)),
            "identity_likeness": np.trace(V @ out) / np.sqrt(SIZES["d_head"]) / np.linalg.norm(V @ out),
        }.items():
            assert found[name][layer][head] == pytest.approx(wanted, abs=1e-5), (name, layer, head)


def test_neurons_raise_the_next_token_by_their_direction() -> None:
    s, n = slow(MINI), len(tokens_of(MINI))
    x, U = s.stream["final"][n - 2], s.w["wte.weight"]
    scale = 1 / np.sqrt(x.var() + 1e-5)
    target = centred((U[tokens_of(MINI)[n - 1]] - U.mean(0)) * s.w["ln_f.weight"]) * scale
    wanted = [s.neurons[i][n - 2] * (s.w[f"h.{i}.mlp.c_proj.weight"] @ target) for i in range(2)]
    same(exported("neurons", MINI, position=str(n - 2))["every"], wanted, 1e-4)


def test_kurtosis_of_each_dimension_over_the_prompt() -> None:
    found = exported("privileged_basis", TWO)
    streams = [slow(TWO).stream[name][1:] for name in ("L0 in", "L1 in", "final")]  # BOS left out
    kurtosis = lambda x: ((x - x.mean(0)) ** 4).mean(0) / x.var(0) ** 2
    same(found["kurtosis"], [kurtosis(x) for x in streams], 1e-3)
    same(found["token_kurtosis"], [kurtosis(x.T).mean() for x in streams], 1e-3)
