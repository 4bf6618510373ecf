"""Virtual weights against the materialised product of the whole matrices, in double precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.composition.virtual_weight import VirtualWeightParams
from circuitlab.analysis.composition.virtual_weight_path import Place, path_between
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.constructed import directory_of
from tests.models import CONFIGS, directory

DOUBLE = Conventions(dtype="float64")
WRITERS = ("embedding", "position", "head", "mlp")
READERS = ("QK query", "QK key", "OV", "mlp", "unembedding")


def _ask(path: Path, p: VirtualWeightParams, conventions: Conventions = DOUBLE, engine: Engine | None = None) -> Any:
    engine = engine or Engine(ModelStore())
    return engine.answer(Request.named("virtual_weight", p, Subject(ModelRef(f"file:{path}"), (), (), conventions))).result


class Slow:
    """Whole matrices, read and folded here: norm gains into readers, centring as the conventions say."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        self.c = config
        self.t = {n: v.double().numpy() for n, v in load_file(path / "model.safetensors").items()}
        self.centring = config.norm == "layer" and config.norm_placement == "pre"

    def gain(self, name: str) -> np.ndarray:
        return np.diag(self.t.get(f"{name}.gain", np.ones(self.c.d_model)))

    def wrote(self, W: np.ndarray) -> np.ndarray:
        return W - W.mean(-1, keepdims=True) if self.centring else W

    def head(self, head: Head) -> tuple[np.ndarray, np.ndarray]:
        """W_QK, W_OV."""
        layer, kv = f"layers.{head.layer}.", head.head // self.c.group
        g = np.eye(self.c.d_model) if self.c.positions == "shortformer" else self.gain(f"{layer}attn_norm")
        W = {n: self.reads(g @ self.t[f"{layer}W_{n}"][head.head if n == "Q" else kv]) for n in "QKV"}
        return W["Q"] @ W["K"].T, W["V"] @ self.wrote(self.t[f"{layer}W_O"][head.head])

    def mlp(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        name = f"layers.{layer}.mlp"
        return self.reads(self.gain(f"layers.{layer}.mlp_norm") @ self.t[f"{name}.W_in"]), self.wrote(self.t[f"{name}.W_out"])

    def writer(self, p: VirtualWeightParams) -> np.ndarray:
        if p.writer == "head":
            return self.head(p.writer_head)[1]
        if p.writer == "mlp":
            return self.mlp(p.writer_layer)[1]
        name = "W_E" if p.writer == "embedding" else "W_pos"
        value = self.t[f"embed.{name}"] * (self.c.embed_scale if name == "W_E" else 1)
        return value if self.c.positions == "shortformer" and name == "W_pos" else self.wrote(value)

    def reads(self, W: np.ndarray) -> np.ndarray:
        """Without what LayerNorms take away before anyone reads: the mean over d_model."""
        return W - W.mean(0) if self.centring else W

    def reader(self, p: VirtualWeightParams) -> np.ndarray:
        if p.reader == "unembedding":
            W_U = self.t.get("unembed.W_U", self.t["embed.W_E"].T)
            W_U = self.reads(self.gain("unembed.norm") @ W_U)
            return W_U - W_U.mean(1, keepdims=True)
        if p.reader == "mlp":
            return self.mlp(p.reader_layer)[0]
        W_QK, W_OV = self.head(p.reader_head)
        return {"QK query": W_QK, "QK key": W_QK.T, "OV": W_OV}[p.reader]

    def heads(self, layer: int) -> np.ndarray:
        return sum((self.head(Head(layer, h))[1] for h in range(self.c.n_heads)), np.zeros((self.c.d_model,) * 2))

    def path(self, p: VirtualWeightParams) -> np.ndarray:
        """The formula of the module, factor by factor."""
        eye = np.eye(self.c.d_model)
        M = lambda k: np.matmul(*self.mlp(k)) if p.mlp == "linear" else 0 * eye
        first = {"head": p.writer_head.layer + 1, "mlp": p.writer_layer + 1}.get(p.writer, 0)
        own = p.writer == "head" and not self.c.parallel
        last = p.reader_layer if p.reader == "mlp" else p.reader_head.layer
        last = self.c.n_layers if p.reader == "unembedding" else last
        if p.writer == "head" and p.reader == "mlp" and p.writer_head.layer == last:
            return eye
        P = eye + M(p.writer_head.layer) if own else eye
        for k in range(first, last):
            P = P @ (eye + self.heads(k) + M(k)) if self.c.parallel else P @ (eye + self.heads(k)) @ (eye + M(k))
        return P @ (eye + self.heads(last)) if p.reader == "mlp" and not self.c.parallel else P


def _three(name: str) -> ModelConfig:
    return replace(CONFIGS[name], n_layers=4)


def _cases(config: ModelConfig) -> list[VirtualWeightParams]:
    base = VirtualWeightParams(writer_head=Head(0, 2), reader_head=Head(3, 1), reader_layer=3, k=6)
    found = [replace(base, writer=w, reader=r) for w in WRITERS for r in READERS]  # type: ignore[arg-type]
    from circuitlab.analysis.base import find_analysis

    return [p for p in found if find_analysis("virtual_weight").refuse(config, p) is None]


def _compare(found: Any, A: np.ndarray, P: np.ndarray, B: np.ndarray) -> None:
    product, scale = A @ P @ B, np.linalg.norm(A) * np.linalg.norm(B)
    assert found.norm == pytest.approx(np.linalg.norm(product), rel=1e-9)
    assert found.relative == pytest.approx(np.linalg.norm(product) / scale, rel=1e-9)
    assert found.direct_norm == pytest.approx(np.linalg.norm(A @ B), rel=1e-9)
    assert found.writer_norm * found.reader_norm == pytest.approx(scale, rel=1e-9)
    U, s, Vt = np.linalg.svd(product, full_matrices=False)
    wanted = np.zeros(len(found.singular_values))
    wanted[: min(len(wanted), len(s))] = s[: len(wanted)]
    np.testing.assert_allclose(found.singular_values, wanted, atol=1e-7 * s[0])
    assert s[len(wanted) :].max(initial=0) < 1e-7 * s[0]
    for ids, values, vectors in ((found.left_ids, found.left, U.T), (found.right_ids, found.right, Vt)):
        for i in range(int((s[: len(ids)] > 1e-6 * s[0]).sum()) if ids.size else 0):
            order = np.argsort(-abs(vectors[i]), kind="stable")[: ids.shape[1]]
            np.testing.assert_allclose(abs(values[i]), abs(vectors[i][order]), atol=1e-5)
            np.testing.assert_allclose(abs(vectors[i][ids[i]]), abs(values[i]), atol=1e-5)
    if found.left_ids.size and found.right_ids.size:
        for i in range(int((s[: len(found.left_ids)] > 1e-6 * s[0]).sum())):
            sign = np.sign(U.T[i][found.left_ids[i]] * found.left[i])
            other = np.sign(Vt[i][found.right_ids[i]] * found.right[i])
            assert len({*sign, *other}) == 1


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "parallel", "tied-scaled"])
def test_products_are_those_of_the_whole_matrices(tmp_path: Path, name: str, across: bool) -> None:
    config = _three(name)
    path = directory(tmp_path / "m", config, tokenizer=False)
    engine, slow = Engine(ModelStore()), Slow(path, config)
    for p in _cases(config):
        p = replace(p, across=across and p.writer != "position", mlp="linear" if config.d_mlp and not config.gated else "none")
        P = slow.path(p)
        result = _ask(path, p, engine=engine)
        _compare(result, slow.writer(p), P if p.across else np.eye(config.d_model), slow.reader(p))
        if p.across:
            assert result.across_norm == result.norm
        elif not np.isnan(result.across_norm):
            assert result.across_norm == pytest.approx(np.linalg.norm(slow.writer(p) @ P @ slow.reader(p)), rel=1e-9)


def mlp_jacobian(path: Path, config: ModelConfig, layer: int, read: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """[d_model, d_model] of what a layer's MLP writes by the stream, from central differences, the norm's scale held."""
    t = {n: v.double() for n, v in load_file(path / "model.safetensors").items()}
    part = lambda name: t.get(f"layers.{layer}.{name}", torch.zeros(()))
    act = {"gelu_new": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "silu": torch.nn.functional.silu}
    act = {**act, "relu": torch.relu}[config.activation]

    def wrote(x: torch.Tensor) -> torch.Tensor:
        x = x - x.mean(-1, keepdim=True) if config.norm == "layer" else x
        x = x * float(scale.item()) * t.get(f"layers.{layer}.mlp_norm.gain", torch.ones(())) + part("mlp_norm.bias")
        up = x @ part("mlp.W_in") + part("mlp.b_in")
        if config.gated:
            return (act(x @ part("mlp.W_gate") + part("mlp.b_gate")) * up) @ part("mlp.W_out")
        return act(up) @ part("mlp.W_out")

    x, step, eye = torch.as_tensor(read), 1e-5, torch.eye(config.d_model, dtype=torch.float64)
    return np.stack([((wrote(x + step * e) - wrote(x - step * e)) / (2 * step)).numpy() for e in eye])


@pytest.mark.parametrize("name", ["gpt2", "llama", "parallel"])
def test_jacobians_are_those_of_the_mlps_at_recorded_scales(tmp_path: Path, name: str) -> None:
    """Head L0H2 to the unembedding across a middle layer, each factor from differences of the model's own formulas."""
    config, tokens = replace(CONFIGS[name], n_layers=3), (0, 7, 3, 7, 9)
    path = directory(tmp_path / "m", config)
    plain = Conventions(False, False, "float64")
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{path}")
    run = forward(engine.store.open(ref).weights(plain, "cpu"), tokens)
    slow = Slow(path, config)
    base = VirtualWeightParams("head", Head(0, 2), reader="unembedding", across=True, k=3)

    def raw_heads(layer: int) -> np.ndarray:
        t = slow.t
        gain = t.get(f"layers.{layer}.attn_norm.gain", np.ones(config.d_model))[:, None]
        centring = np.eye(config.d_model) - (config.norm == "layer") / config.d_model
        pairs = (
            (centring @ (gain * t[f"layers.{layer}.W_V"][h // config.group]), t[f"layers.{layer}.W_O"][h])
            for h in range(config.n_heads)
        )
        return sum((value @ out for value, out in pairs), np.zeros((config.d_model,) * 2))

    for mlp, positions in (("Jacobian at the position", [3]), ("mean Jacobian", [0, 1, 2, 3, 4])):
        p = replace(base, mlp=mlp, position=3)  # type: ignore[arg-type]
        result = engine.answer(Request.named("virtual_weight", p, Subject(ref, tokens, (), plain))).result
        eye, P = np.eye(config.d_model), np.eye(config.d_model)
        for layer in range(3):
            name_of = "resid_pre" if config.parallel else "resid_mid"
            read, scale = run.get(name_of, layer).numpy(), run.get("mlp_norm_scale", layer).numpy()
            J = np.mean([mlp_jacobian(path, config, layer, read[t], scale[t]) for t in positions], axis=0)
            heads = raw_heads(layer) * float(run.get("attn_norm_scale", layer).numpy()[positions].mean())
            if config.parallel:
                P = P @ (eye + heads + J) if layer else P
            else:
                P = P @ (eye + heads) @ (eye + J) if layer else P @ (eye + J)
        product = slow.t["layers.0.W_V"][2 // config.group] @ slow.t["layers.0.W_O"][2] @ P @ slow.t["unembed.W_U"]
        assert result.norm == pytest.approx(np.linalg.norm(product), rel=1e-5)
        said = " · ".join(result.conventions)
        assert "not exact" in said and "recorded scales" in said
        assert ("position 3" in said) == (len(positions) == 1) and ("mean of 5 positions" in said) == (len(positions) > 1)


def test_only_the_direct_product_is_called_exact(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", replace(CONFIGS["gpt2"], n_layers=3))
    base = VirtualWeightParams("head", Head(0, 2), reader="unembedding", k=3)
    direct = _ask(path, base)
    assert "exact" in direct.conventions and direct.baseline == pytest.approx(23**-0.5)  # nobody reads the mean over d_model
    for mlp, words in (
        ("none", "not exact: patterns are assumed"),
        ("linear", "not exact: patterns are assumed, MLPs are taken as"),
    ):
        across = _ask(path, replace(base, across=True, mlp=mlp))
        assert "exact" not in across.conventions and any(word.startswith(words) for word in across.conventions)
    one_step = _ask(path, replace(base, writer_head=Head(2, 0), across=True))
    assert "exact" in one_step.conventions, "nothing stands between"


def test_chance_is_the_rms_over_random_turns_of_both_ends(tmp_path: Path) -> None:
    config = _three("attention-only")
    path = directory(tmp_path / "m", config)
    p = VirtualWeightParams("head", Head(0, 2), reader="QK key", reader_head=Head(3, 1), across=True, k=3)
    found, slow, rng = _ask(path, p), Slow(path, config), np.random.default_rng(0)
    A, P, B = slow.head(Head(0, 2))[1], slow.path(p), slow.head(Head(3, 1))[0].T
    turn = lambda: np.linalg.qr(rng.normal(size=P.shape))[0]
    shares = [np.linalg.norm(A @ turn() @ P @ turn() @ B) / (np.linalg.norm(A) * np.linalg.norm(B)) for _ in range(400)]
    assert found.baseline == pytest.approx(np.sqrt(np.mean(np.square(shares))), rel=0.05)
    assert found.baseline > 1.2 * 24**-0.5, "the layers between add: two factors alone would give another level"


def test_the_path_stands_in_the_order_of_the_blocks() -> None:
    gpt2 = replace(CONFIGS["gpt2"], n_layers=4)
    head, mlp = Place("heads", 0), Place("mlp", 2)
    assert path_between(gpt2, head, mlp, True) == [
        Place("mlp", 0), Place("heads", 1), Place("mlp", 1), Place("heads", 2),
    ]  # fmt: skip
    assert path_between(gpt2, head, Place("mlp", 0), True) == []
    assert path_between(gpt2, mlp, None, False) == [Place("heads", 3)]
    assert path_between(replace(gpt2, parallel=True), head, mlp, True) == [Place("block", 1)]
    assert path_between(CONFIGS["attention-only"], None, Place("heads", 1), True) == [Place("heads", 0)]


def _gauged(path: Path, config: ModelConfig) -> None:
    """W_Q S, W_K S⁻ᵀ, W_V T, T⁻¹ W_O with S and T of each key-value group."""
    tensors, rng = load_file(path / "model.safetensors"), np.random.default_rng(1)
    near_one = lambda: torch.tensor(np.eye(config.d_head) + 0.3 * rng.normal(size=(config.d_head,) * 2))
    for layer in range(config.n_layers):
        W_Q, W_K, W_V, W_O = (tensors[f"layers.{layer}.W_{n}"] for n in "QKVO")
        for kv in range(config.n_kv_heads):
            S, T = near_one(), near_one()
            group = slice(kv * config.group, (kv + 1) * config.group)
            W_Q[group], W_K[kv] = W_Q[group] @ S, W_K[kv] @ torch.linalg.inv(S).T
            W_O[group], W_V[kv] = torch.linalg.inv(T) @ W_O[group], W_V[kv] @ T
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd"])
def test_nothing_depends_on_the_gauge(tmp_path: Path, name: str) -> None:
    config = _three(name)
    plain, gauged = (directory(tmp_path / n, config, tokenizer=False) for n in "ab")
    for path in (plain, gauged):
        save_file({n: v.double() for n, v in load_file(path / "model.safetensors").items()}, path / "model.safetensors")
    _gauged(gauged, config)
    engine = Engine(ModelStore())
    for p in _cases(config):
        p = replace(p, across=p.writer != "position")
        a, b = _ask(plain, p, engine=engine), _ask(gauged, p, engine=engine)
        assert b.norm == pytest.approx(a.norm, rel=3e-6)
        assert b.relative == pytest.approx(a.relative, rel=3e-6)
        np.testing.assert_allclose(b.singular_values, a.singular_values, atol=3e-6 * a.singular_values[0])


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    gpt2, plain = (directory(tmp_path / n, CONFIGS[n], tokenizer=False) for n in ("gpt2", "attention-only"))
    ask = lambda path, **changes: _ask(path, VirtualWeightParams(**changes))
    with pytest.raises(Refused, match="before"):
        ask(gpt2, writer="head", writer_head=Head(1, 0), reader="OV", reader_head=Head(0, 0))
    with pytest.raises(Refused, match="after the writer"):
        ask(gpt2, writer="head", writer_head=Head(1, 0), reader="QK key", reader_head=Head(1, 2))
    with pytest.raises(Refused, match="no MLP"):
        ask(plain, reader="mlp")
    with pytest.raises(Refused, match="never to the stream"):
        ask(plain, writer="position")
    with pytest.raises(Refused, match="L7H0"):
        ask(plain, reader="OV", reader_head=Head(7, 0))
    with pytest.raises(Refused, match="gated"):
        ask(directory(tmp_path / "l", CONFIGS["llama"], tokenizer=False), mlp="linear")
    with pytest.raises(Refused, match="positions: rotary"):
        ask(tmp_path / "l", writer="position")
    one = directory(tmp_path / "one", replace(CONFIGS["gpt2"], n_layers=1), tokenizer=False)
    with pytest.raises(Refused, match="no L1H0"):
        ask(one, writer="head", reader="OV")
    assert ask(one, writer="head", reader="mlp", reader_layer=0).norm > 0


def test_a_head_of_norm_0_writes_nothing(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["gpt2"], tokenizer=False)
    tensors = load_file(path / "model.safetensors")
    tensors["layers.0.W_O"][0] = 0
    save_file(tensors, path / "model.safetensors")
    for reader in READERS:
        result = _ask(path, VirtualWeightParams(writer="head", reader=reader, across=True))  # type: ignore[arg-type]
        assert result.norm == result.relative == 0
        assert all(np.isfinite(a).all() for a in result.arrays().values())


def test_a_vocabulary_of_three_and_half_precision(tmp_path: Path) -> None:
    config = replace(CONFIGS["attention-only"], d_vocab=3, d_vocab_out=3)
    path = directory(tmp_path / "m", config, tokenizer=False)
    tensors = {n: v.half() for n, v in load_file(path / "model.safetensors").items()}
    save_file(tensors, path / "model.safetensors")
    p = VirtualWeightParams(across=True)
    found, slow = _ask(path, p), Slow(path, config)
    assert found.singular_values.shape == (3,)
    assert found.right_ids.shape == found.left_ids.shape == (3, 3)
    _compare(found, slow.writer(p), slow.path(p), slow.reader(p))


def test_a_mapped_model_gives_the_same_numbers(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", _three("gpt2"), tokenizer=False)
    store = ModelStore()
    mapped = Engine(store)
    store.largest_copy = 1000
    for p in (
        VirtualWeightParams(across=True),
        VirtualWeightParams(writer="head", reader="mlp", reader_layer=3, across=True),
    ):
        assert _ask(path, p, Conventions(), mapped).norm == _ask(path, p, Conventions()).norm
    assert not mapped.store.open(ModelRef(f"file:{path}")).opened.weights.resident


def test_a_cancel_is_heard(tmp_path: Path) -> None:
    class Impatient(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            if text.startswith("layer 1"):
                raise Cancelled

    path = directory(tmp_path / "m", CONFIGS["gpt2"], tokenizer=False)
    request = Request.named("virtual_weight", VirtualWeightParams(across=True), Subject(ModelRef(f"file:{path}")))
    with pytest.raises(Cancelled):
        Engine(ModelStore()).answer(request, Impatient())


def test_the_hand_built_model_has_the_virtual_weights_that_were_put_into_it(tmp_path: Path) -> None:
    path = directory_of(tmp_path / "m")
    ask = lambda **changes: _ask(path, VirtualWeightParams(writer="head", **changes))
    assert ask(reader="QK query").norm == 0
    assert ask(reader="OV").norm == 0
    keys = ask(reader="QK key")
    V, sigma = 27, 0.5
    assert keys.relative == pytest.approx(np.sqrt((V - 1) / (V * (V - 1 + sigma**2))), rel=1e-6)
    assert keys.baseline == pytest.approx(1 / np.sqrt(82))
    np.testing.assert_allclose(keys.singular_values, [17.9] * 26 + [0] * 6, atol=1e-4)
    assert ask(reader="unembedding").norm == 0
    both = ask(reader="unembedding", across=True)
    assert both.norm == 0  # layer 1 carries what layer 0 wrote to no place that W_U reads
    copied = _ask(path, VirtualWeightParams(writer="head", writer_head=Head(1, 0)))
    centred = np.linalg.svd(20 * np.eye(27)[1:] - 20 / 27)[1]  # W_U centred over the vocabulary
    np.testing.assert_allclose(copied.singular_values[:26], centred, rtol=1e-5)
    assert "tie" in copied.conventions[-1]
