"""Term importance against the sum over all paths, written out; its identities; and what a cancelled attempt leaves."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from circuitlab.analysis.attribution.term_importance import TermImportanceParams, TermImportanceResult, listed_orders
from circuitlab.analysis.base import NullContext, TextRef
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel

TOKENS = (0, 5, 9, 5, 7, 5, 9, 200, 5, 61, 7)
PLAIN = Conventions(fold_norm=False, centre=False, dtype="float64")
EXACT = Conventions(dtype="float64")


class Asker:
    """An engine on one model, in double precision."""

    def __init__(self, path: Path) -> None:
        self.path, self.engine, self.ref = path, Engine(ModelStore()), ModelRef(f"file:{path}")

    def __call__(self, params: Any, tokens: Any = TOKENS, edits: Any = (), said: Conventions = EXACT, name: str = "") -> Any:
        request = Request.named(name or "term_importance", params, Subject(self.ref, tokens, edits, said))
        return self.engine.answer(request).result

    def weights(self, said: Conventions) -> Any:
        return self.engine.store.open(self.ref).weights(said)


def asker(tmp_path: Path, name: str, **changes: Any) -> Asker:
    return Asker(directory(tmp_path / "m", CONFIGS[name], **changes))


def mean_loss(logits: np.ndarray, tokens: tuple[int, ...] = TOKENS) -> float:
    """Mean of −ln p of the tokens that follow."""
    each = []
    for i in range(len(tokens) - 1):
        row = logits[i]
        each.append(math.log(np.exp(row - row.max()).sum()) + row.max() - row[tokens[i + 1]])
    return float(np.mean(each))


def of_composed_heads(path: Path, config: Any, order: int, only: Any = None) -> np.ndarray:
    """[pos, d_vocab]: the sum over all paths through at most `order` heads, each A^{hk}…A^{h1} x_0 W_OV^{h1}…W_OV^{hk} W_U.

    `only` (layer, head) -> bool limits the heads.
    """
    slow = SlowModel(config, load_file(path / "model.safetensors"))
    _, streams, patterns = slow.run(TOKENS)
    t, group = slow.t, config.n_heads // config.n_kv_heads
    total = np.zeros_like(streams[0])
    for k in range(order + 1):
        for layers in combinations(range(config.n_layers), k):
            for heads in product(range(config.n_heads), repeat=k):
                term, chain = streams[0], list(zip(layers, heads, strict=True))
                if only is not None and not all(only(i, h) for i, h in chain):
                    continue
                for i, h in chain:
                    W_OV = t[f"layers.{i}.W_V"][h // group] @ t[f"layers.{i}.W_O"][h]
                    term = patterns[i][h] @ term @ W_OV
                total = total + term
    return total @ t["unembed.W_U"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("attention-only", {}),
        ("attention-only", {"n_layers": 3, "n_heads": 2, "n_kv_heads": 2}),
        ("smeared-rotary", {"n_layers": 3}),
    ],
)
def test_orders_are_sums_over_all_paths(tmp_path: Path, name: str, changes: Any) -> None:
    ask = asker(tmp_path, name, **changes)
    config = replace(CONFIGS[name], **changes)
    result = ask(TermImportanceParams())
    wanted = [mean_loss(of_composed_heads(ask.path, config, k)) for k in range(config.n_layers + 1)]
    np.testing.assert_allclose(result.losses[0], wanted, atol=1e-10)
    np.testing.assert_allclose(result.reduction, -np.diff([math.log(260), *wanted]), atol=1e-10)
    assert result.orders.tolist() == list(range(config.n_layers + 1))
    h, n = config.n_heads, config.n_layers
    chains = [sum(1 for _ in combinations(range(n), k)) * h**k for k in range(n + 1)]
    assert result.terms.tolist() == chains
    assert len(set(np.round(wanted, 6))) == n + 1  # every order matters here


def test_layers_and_heads_are_measured_by_their_paths_of_order_one(tmp_path: Path) -> None:
    ask = asker(tmp_path, "attention-only", n_layers=3, n_heads=2, n_kv_heads=2)
    config = replace(CONFIGS["attention-only"], n_layers=3, n_heads=2, n_kv_heads=2)
    result = ask(TermImportanceParams(heads=True))
    loss = lambda only: mean_loss(of_composed_heads(ask.path, config, 1, only))
    direct, every = loss(lambda i, h: False), loss(lambda i, h: True)
    for layer in range(3):
        alone, rest = loss(lambda i, h, at=layer: i == at), loss(lambda i, h, at=layer: i != at)
        np.testing.assert_allclose(result.layer_reduction[:, layer], [direct - alone, rest - every], atol=1e-10)
        for head in range(2):
            at = (layer, head)
            alone, rest = loss(lambda i, h, at=at: (i, h) == at), loss(lambda i, h, at=at: (i, h) != at)
            np.testing.assert_allclose(result.head_reduction[:, layer, head], [direct - alone, rest - every], atol=1e-10)


def recorded_paths(ask: Asker, order: int) -> np.ndarray:
    """[pos, d_model] final stream of all paths through at most `order` heads; norms, patterns and MLPs of the recorded run."""
    w = ask.weights(PLAIN)
    c, run = w.config, forward(w, TOKENS)
    arrays = {i: {n: run.get(n, i).numpy() for n in ("pattern", "attn_norm_scale")} for i in range(c.n_layers)}
    after = c.norm_placement == "both"

    def gain(norm: Any) -> Any:
        return 1.0 if norm.gain is None else norm.gain.numpy()

    def linear(x: np.ndarray, norm: Any, scale: np.ndarray) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True) if c.norm == "layer" else x
        return x * scale * gain(norm)

    def shift(norm: Any) -> Any:
        return 0.0 if norm.bias is None else norm.bias.numpy()

    def post_scale(i: int) -> np.ndarray:
        b_O = w.layer(i).b_O
        raw = run.get("result", i).numpy().sum(0) + (0 if b_O is None else b_O.numpy())
        return 1 / np.sqrt((raw**2).mean(-1, keepdims=True) + c.norm_eps)  # RMSNorm

    def behind(i: int, x: np.ndarray) -> np.ndarray:
        return linear(x, w.layer(i).attn_post_norm, post_scale(i)) if after else x

    base, total = run.get("resid_pre", 0).numpy(), {}
    bases = []
    for i in range(c.n_layers):
        layer = w.layer(i)
        bases.append(base)
        base = base + (0 if layer.b_O is None else behind(i, layer.b_O.numpy()[None]))
        base = base + (run.get("mlp_out", i).numpy() if layer.mlp is not None else 0)
    total[0] = base
    for k in range(1, order + 1):
        total[k] = np.zeros_like(base)
        for layers in combinations(range(c.n_layers), k):
            for heads in product(range(c.n_heads), repeat=k):
                term = bases[layers[0]]
                for step, (i, h) in enumerate(zip(layers, heads, strict=True)):
                    layer, g = w.layer(i), h // (c.n_heads // c.n_kv_heads)
                    read = linear(term, layer.attn_norm, arrays[i]["attn_norm_scale"])
                    read = read + shift(layer.attn_norm) if step == 0 else read
                    v = read @ layer.W_V[g].numpy()
                    v = v + layer.b_V[g].numpy() if step == 0 and layer.b_V is not None else v
                    term = behind(i, arrays[i]["pattern"][h] @ v @ layer.W_O[h].numpy())
                total[k] = total[k] + term
    return sum(total.values())  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["gpt2", "llama", "parallel", "both-norms-capped"])
def test_with_mlps_and_norms_recorded_scales_and_mlps_are_held(tmp_path: Path, name: str) -> None:
    ask = asker(tmp_path, name)
    result = ask(TermImportanceParams(), said=PLAIN)
    w = ask.weights(PLAIN)
    c, ends, final = w.config, w.unembed(), forward(w, TOKENS).final
    assert final is not None
    x = final - final.mean(-1, keepdim=True) if c.norm == "layer" else final
    scale = (1 / torch.sqrt((x**2).mean(-1, keepdim=True) + c.norm_eps)).numpy()
    for k in range(c.n_layers + 1):
        made = recorded_paths(ask, k)
        made = made - made.mean(-1, keepdims=True) if c.norm == "layer" else made
        made = made * scale * ends.norm.gain.numpy() + (0 if ends.norm.bias is None else ends.norm.bias.numpy())
        logits = made @ ends.W_U.numpy()
        logits = c.logit_soft_cap * np.tanh(logits / c.logit_soft_cap) if c.logit_soft_cap else logits
        assert result.losses[0, k] == pytest.approx(mean_loss(logits), abs=1e-9), k
    assert "MLP outputs" in " ".join(result.conventions)


EDITS: dict[str, tuple[Intervention, ...]] = {
    "none": (),
    "a head cut": (Intervention("zero", Site("result", 0, (1,))),),
    "scaled": (Intervention("scale", Site("z", 1, (0,)), (2.0,)), Intervention("scale", Site("pattern", 0), (0.5,))),
    "mean value": (Intervention("mean", Site("v", 1, (1,))), Intervention("freeze", Site("pattern", 1))),
    "stream set": (Intervention("set", Site("resid_pre", 1, positions=(3, 4)), (0.25,)),),
    "patched stream": (Intervention("patch", Site("resid_pre", 1), source=(0, 8, 8, 8, 1, 2, 3, 4, 5, 6, 7)),),
    "a path cut": (Intervention("zero", Site("k", 1), path_from=Site("result", 0, (0,))),),
}
SHAPES = ["attention-only", "gpt2", "both-norms-capped", "post-sublayer", "post-residual", "odd"]


@pytest.mark.parametrize("edits", EDITS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_last_order_is_the_models_own_loss_under_any_intervention(tmp_path: Path, name: str, edits: str) -> None:
    tokens = tuple(t % CONFIGS[name].d_vocab for t in TOKENS)
    ask = asker(tmp_path, name, tokenizer=False)
    cut = EDITS[edits]
    if name == "odd":
        cut = tuple(e for e in cut if e.op != "patch" and (e.site.name != "v"))
    if edits == "a path cut" and CONFIGS[name].norm_placement != "pre":
        with pytest.raises(BadInput, match="norms"):
            ask(TermImportanceParams(), tokens, cut)
        return
    result = ask(TermImportanceParams(), tokens, cut)
    loss = ask(TokenLossParams(), tokens, cut, name="token_loss").mean
    assert result.losses[0, -1] == pytest.approx(loss, rel=1e-6)
    assert result.whole[0] == pytest.approx(loss, rel=1e-6)
    assert result.remainder is not None and result.remainder.size < 1e-9


def test_values_along_a_path_are_refused_with_the_reason(tmp_path: Path) -> None:
    cut = (Intervention("zero", Site("v", 1), path_from=Site("result", 0, (0,))),)
    with pytest.raises(BadInput, match="path"):
        asker(tmp_path, "attention-only")(TermImportanceParams(), edits=cut)


def test_two_layers_reach_order_one_either_way_round(tmp_path: Path) -> None:
    result = asker(tmp_path, "gpt2")(TermImportanceParams())
    alone, last = result.layer_reduction
    assert alone[0] + last[1] == pytest.approx(result.reduction[1], abs=1e-10)
    assert alone[1] + last[0] == pytest.approx(result.reduction[1], abs=1e-10)


def test_one_head_a_layer_is_its_layer(tmp_path: Path) -> None:
    result = asker(tmp_path, "attention-only", n_heads=1, n_kv_heads=1)(TermImportanceParams(heads=True))
    np.testing.assert_array_equal(result.head_reduction[..., 0], result.layer_reduction)
    assert np.isnan(asker(tmp_path / "b", "attention-only")(TermImportanceParams()).head_reduction).all()


def test_heads_that_write_nothing_take_nothing_away(tmp_path: Path) -> None:
    ask = asker(tmp_path, "attention-only")
    file = ask.path / "model.safetensors"
    tensors = load_file(file)
    save_file({n: np.zeros_like(v) if "W_O" in n or n == "embed.W_E" else v for n, v in tensors.items()}, file)
    result = ask(TermImportanceParams(heads=True))
    np.testing.assert_allclose(result.reduction, 0, atol=1e-12)  # no logits at all: as uniform predictions
    np.testing.assert_allclose(result.head_reduction, 0, atol=1e-12)


def test_orders_past_the_limit_are_one_row(tmp_path: Path) -> None:
    ask = asker(tmp_path, "attention-only", n_layers=4, n_heads=2, n_kv_heads=2)
    whole, some = ask(TermImportanceParams()), ask(TermImportanceParams(orders=2))
    assert some.orders.tolist() == [0, 1, 2, 4]
    assert some.terms.tolist() == [1, 8, 24, 32 + 16]
    np.testing.assert_array_equal(some.losses, whole.losses[:, [0, 1, 2, 4]])
    assert some.reduction[-1] == pytest.approx(whole.reduction[3:].sum())
    assert some.name(3) == "orders 3–4"
    assert "orders 3–4" in some.table().columns[0].values
    assert some.remainder is not None and some.remainder.size < 1e-10
    assert listed_orders(replace(CONFIGS["attention-only"], n_layers=0), 4) == ([0], [1.0])


def test_a_file_is_cut_into_pieces_with_a_standard_error(tmp_path: Path) -> None:
    ask = asker(tmp_path, "attention-only")
    text = tmp_path / "a text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 3, encoding="utf-8")
    params = TermImportanceParams(text=TextRef(str(text)), texts=3, length=12)
    result = ask(params, (1,))
    read = ask.engine.store.open(ask.ref).opened.weights.tokenizer
    assert read is not None
    ids = read.encode(text.read_text())
    starts = np.sort(np.random.default_rng(0).choice(np.arange(0, len(ids) - 10, 11), size=3, replace=False))
    for row, start in enumerate(starts):
        piece = (0, *ids[start : start + 11])
        alone = ask(TermImportanceParams(), piece)
        np.testing.assert_allclose(result.losses[row], alone.losses[0], atol=1e-12)
        np.testing.assert_allclose(result.layers[row], alone.layers[0], atol=1e-12)
    gains = result.losses[:, 0] - result.losses[:, 1]
    assert result.reduction[1] == pytest.approx(gains.mean())
    assert result.error[1] == pytest.approx(gains.std(ddof=1) / math.sqrt(3))
    assert "3 pieces of 12 tokens from a text.txt, seed 0" in result.conventions
    assert params.needs == "weights"
    cut = (Intervention("zero", Site("result", 0)),)
    again = ask.engine.answer(Request.named("term_importance", params, Subject(ask.ref, (1,), cut, EXACT)), fresh=True).result
    np.testing.assert_array_equal(again.arrays()["losses"], result.losses)
    edited = ask(replace(params, edited=True), edits=cut)
    assert edited.layer_reduction[0, 0] == 0
    assert result.layer_reduction[0, 0] != 0


class Stopping(NullContext):
    """Cancels at the n-th tick; keeps what it was shown."""

    def __init__(self, after: int) -> None:
        self.left, self.shown, self.unembedded = after, list[TermImportanceResult](), 0

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.left -= 1
        if self.left < 0:
            raise Cancelled
        self.unembedded += text == "unembedding"

    def partial(self, result: Any) -> None:
        self.shown.append(result)


def test_a_cancelled_attempt_is_gone_on_from(tmp_path: Path) -> None:
    ask = asker(tmp_path, "attention-only", tokenizer=True)
    text = tmp_path / "text.txt"
    text.write_text("one two three four five six seven eight nine ten " * 3, encoding="utf-8")
    params = TermImportanceParams(text=TextRef(str(text)), texts=3, length=20, heads=True)
    request = Request.named("term_importance", params, Subject(ask.ref, (), (), EXACT))
    stopping = Stopping(70)
    with pytest.raises(Cancelled):
        ask.engine.answer(request, stopping)
    shown = stopping.shown
    assert len(shown) > 2 and all(0 < r.done < 1 for r in shown)
    assert all(a.done <= b.done for a, b in pairwise(shown))
    kept = shown[-1]
    more = Stopping(10**9)
    on = ask.engine.answer(request, more).result
    afresh = Stopping(10**9)
    fresh = ask.engine.answer(request, afresh, fresh=True)
    assert isinstance(on, TermImportanceResult)
    for name, array in fresh.result.arrays().items():
        np.testing.assert_array_equal(on.arrays()[name], array, err_msg=name)
    there = ~np.isnan(kept.losses)
    np.testing.assert_array_equal(kept.losses[there], on.losses[there])
    assert stopping.unembedded + more.unembedded <= afresh.unembedded + 2  # what was there is not measured again
    assert fresh.fingerprint == ask.engine.answer(request, NullContext(), fresh=True).fingerprint


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "odd"])
def test_short_and_full_prompts(tmp_path: Path, name: str) -> None:
    ask = asker(tmp_path, name, tokenizer=False)
    one = ask(TermImportanceParams(), (1,))
    assert np.isnan(one.losses).all() and one.table().n_rows == 3 + 4
    two = ask(TermImportanceParams(), (1, 2))
    assert np.isfinite(two.reduction).all() and np.isnan(two.error).all()
    assert np.isfinite(ask(TermImportanceParams(), (3,) * 48).layer_reduction).all()
    with pytest.raises(Refused):
        asker(tmp_path / "b", name, d_vocab=9, d_vocab_out=8, tokenizer=False)(TermImportanceParams(), (1, 2))


def test_across_prompts_every_part_keeps_its_shape(tmp_path: Path) -> None:
    ask = asker(tmp_path, "attention-only")
    shapes = [{k: v.shape for k, v in ask(TermImportanceParams(), t).across().items()} for t in ((0, 1, 2), TOKENS)]
    assert shapes[0] == shapes[1] == {"reduction": (3,), "layers": (2, 2), "heads": (2, 2, 4)}
