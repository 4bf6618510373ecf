"""A head as a tensor product, and one head step by step, against a forward pass written out in loops."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.analysis.attribution.head_step import HeadStepParams, HeadStepResult
from circuitlab.analysis.attribution.tensor_identity import NAMES, TensorIdentityParams, TensorIdentityResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel
from tests.rounding import check_largest
from tests.unit.test_score_expansion import CLASSES, TOKENS, deep

HEAD, EARLIER = Head(2, 2), Head(0, 1)
EDITS = (
    Intervention("scale", Site("v", 2), (1.5,)),
    Intervention("mean", Site("z", 2, (2,), (3, 8))),
    Intervention("set", Site("result", 2, (2,), (5,)), (0.5,)),
    Intervention("set", Site("pattern", 0), (0.3,)),
    Intervention("scale", Site("result", 0, (1,)), (2.0,)),
    Intervention("scale", Site("resid_pre", 1), (0.5,)),
)


def ask(path: Path, name: str, p: Any, edits: Any = (), tokens: tuple[int, ...] = TOKENS, **conventions: Any) -> Any:
    subject = Subject(ModelRef(f"file:{path}"), tokens, edits, Conventions(**{"dtype": "float64", **conventions}))
    return Engine(ModelStore()).answer(Request.named(name, p, subject)).result


def identity(path: Path, p: TensorIdentityParams, *rest: Any, **more: Any) -> TensorIdentityResult:
    return ask(path, "tensor_identity", p, *rest, **more)


def step(path: Path, p: HeadStepParams, *rest: Any, **more: Any) -> HeadStepResult:
    return ask(path, "head_step", p, *rest, **more)


def run_of(path: Path, edits: Any = (), tokens: tuple[int, ...] = TOKENS) -> Run:
    weights = Engine(ModelStore()).store.open(ModelRef(f"file:{path}")).weights(Conventions(dtype="float64"))
    return forward(weights, tokens, edits)


def slow_head(path: Path, config: ModelConfig, head: Head) -> dict[str, np.ndarray]:
    """q, k, v, pattern and what the head writes, [pos, …] each."""
    model = SlowModel(config, load_file(path / "model.safetensors"))
    _, streams, patterns = model.run(TOKENS)
    x = streams[head.layer]
    read = model._named_norm(head.layer, "attn_norm", x) if config.norm_placement in ("pre", "both") else x
    group = config.kv_head(head.head)
    made = {w.lower(): model._vectors(head.layer, w, h, read) for w, h in (("Q", head.head), ("K", group), ("V", group))}
    pattern = patterns[head.layer][head.head]
    z = pattern @ made["v"]
    W_O = model.t[f"layers.{head.layer}.W_O"][head.head]
    return {**made, "x": x, "read": read, "pattern": pattern, "z": z, "result": z @ W_O, "W_O": W_O}


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("edits", [(), EDITS])
def test_every_reading_is_the_forward_pass(tmp_path: Path, name: str, edits: Any) -> None:
    path = directory(tmp_path / "m", deep(name))
    found = identity(path, TensorIdentityParams(HEAD, EARLIER), edits)
    run = run_of(path, edits)
    assert found.names == NAMES
    assert found.of[0] == found.of[1] == found.of[2] == pytest.approx(float(run.get("result", 2, (2,)).abs().max()))
    assert (found.difference <= 1e-12 * found.of).all(), found.difference
    assert (found.of > 0).all()
    assert found.remainder is not None and found.remainder.size == found.difference.max()
    together = run.get("z", 2)
    assert found.of[3] == pytest.approx(float((together @ run.weights.layer(2).W_O).sum(0).abs().max()))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_composed_head_is_the_later_one_on_what_the_earlier_wrote(tmp_path: Path, name: str) -> None:
    """By hand: what the earlier head wrote through the recorded norm of layer 2 without bias, then moved and mapped."""
    config = deep(name)
    path = directory(tmp_path / "m", config)
    written, later = slow_head(path, config, EARLIER)["result"], slow_head(path, config, HEAD)
    t = {k: v.astype(np.float64) for k, v in load_file(path / "model.safetensors").items()}
    x = later["x"]
    centred = (lambda a: a - a.mean(-1, keepdims=True)) if config.norm == "layer" else (lambda a: a)
    scale = 1 / np.sqrt((centred(x) ** 2).mean(-1, keepdims=True) + config.norm_eps)
    W_V = t["layers.2.W_V"][config.kv_head(2)]
    read = centred(written) * scale * t["layers.2.attn_norm.gain"]
    wanted = later["pattern"] @ read @ W_V @ later["W_O"]
    found = identity(path, TensorIdentityParams(HEAD, EARLIER), centre=False)
    assert found.of[4] == pytest.approx(np.abs(wanted).max(), rel=1e-5)


def test_single_precision_shows_a_difference_and_a_small_one(tmp_path: Path) -> None:
    found = identity(directory(tmp_path / "m", deep("gpt2")), TensorIdentityParams(HEAD, EARLIER), dtype="float32")
    assert (found.difference[:3] > 0).all()
    assert (found.difference < 1e-5 * found.of).all()


def test_what_is_not_computed_says_why(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("attention-only"), d_model=512)
    found = identity(path, TensorIdentityParams(HEAD))
    assert np.isnan(found.difference).tolist() == [False, False, True, False, True]
    assert "9 tokens × 512 = 4,608" in found.reasons[2]
    assert "no earlier head" in found.reasons[4]
    assert identity(path, TensorIdentityParams(HEAD), (), (1, 2, 3)).reasons[2] == ""
    with pytest.raises(Refused):
        identity(path, TensorIdentityParams(HEAD, Head(2, 1)))
    with pytest.raises(BadInput):
        identity(path, TensorIdentityParams(HEAD, Head(0, 9)))


def test_one_token_and_a_full_context(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("odd"))
    for tokens in ((1,), tuple([3, 1, 2, 6] * 12)):
        found = identity(path, TensorIdentityParams(HEAD, EARLIER), (), tokens)
        assert (found.difference <= 1e-12 * found.of).all()
        assert math.isfinite(step(path, HeadStepParams(HEAD), (), tokens).effect)


@pytest.mark.parametrize("name", CLASSES)
def test_each_step_is_the_slow_forward_pass(tmp_path: Path, name: str) -> None:
    config = deep(name)
    path = directory(tmp_path / "m", config)
    d, s = 7, 4
    found, slow = step(path, HeadStepParams(HEAD, d, s), fold_norm=False, centre=False), slow_head(path, config, HEAD)
    same = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5)  # weights are float32 on disk
    same(found.x_dest, slow["x"][d])
    same(found.x_source, slow["x"][s])
    same(found.read_value, slow["read"][s])
    W_pos = load_file(path / "model.safetensors").get("embed.W_pos") if config.positions == "shortformer" else None
    same(found.read_query, slow["read"][d] + (0 if W_pos is None else W_pos[d]))
    same(found.read_key, slow["read"][s] + (0 if W_pos is None else W_pos[s]))
    same(found.q, slow["q"][d])
    same(found.k, slow["k"][s])
    same(found.v, slow["v"][s])
    same(found.products, slow["q"][d] * slow["k"][s])
    same(found.dot, slow["q"][d] @ slow["k"][s])
    same(found.score, config.score_scale * found.dot)
    same(found.pattern, slow["pattern"][d])
    assert found.mask.tolist() == [i <= d for i in range(len(TOKENS))]
    assert np.isnan(found.scores).tolist() == (~found.mask).tolist()
    weights = np.exp(found.scores[: d + 1])
    same(weights / weights.sum(), slow["pattern"][d, : d + 1])
    assert found.softmax_score == found.scores[s]
    if not config.score_soft_cap:
        same(found.softmax_score, found.score + found.bias)
    same(found.weighted, slow["pattern"][d, s] * slow["v"][s])
    same(found.z, slow["z"][d])
    same(found.result, entering(path, config, d, slow["result"][d]))
    same(found.moved, entering(path, config, d, slow["pattern"][d, s] * slow["v"][s] @ slow["W_O"]))


def entering(path: Path, config: ModelConfig, d: int, x: np.ndarray) -> np.ndarray:
    """What a head has written as it enters the stream: behind the norm that follows, at its recorded scale, without its bias."""
    after = run_of(path).norm_after_heads(HEAD.layer, slice(d, d + 1))
    if after is None:
        return x
    gain = load_file(path / "model.safetensors").get(f"layers.{HEAD.layer}.attn_post_norm.gain")
    x = x - x.mean() if config.norm == "layer" else x
    return x * float(after[1]) * (1 if gain is None else gain)


def test_parts_of_all_sources_are_what_the_head_writes(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("llama"))
    found = [step(path, HeadStepParams(HEAD, 6, s)) for s in range(7)]
    np.testing.assert_allclose(sum(f.moved for f in found), found[0].result, atol=1e-12)
    assert sum(f.effect_moved for f in found) == pytest.approx(found[0].effect)


@pytest.mark.parametrize("name", ["attention-only", "odd"])
def test_the_effect_of_a_last_head_without_norms_is_what_cutting_it_takes_away(tmp_path: Path, name: str) -> None:
    path = directory(tmp_path / "m", deep(name))
    found = step(path, HeadStepParams(HEAD, 7, 4, k=3, target=Target((2, 5))))
    clean, cut = run_of(path).logits()[7], run_of(path, (Intervention("zero", Site("result", 2, (2,))),)).logits()[7]
    change = (clean - cut).numpy()
    assert found.effect == pytest.approx(change[2] - change[5])
    centred = change - change.mean()
    check_largest(found.top_ids, centred)
    check_largest(found.bottom_ids, -centred)
    np.testing.assert_allclose(found.top, centred[found.top_ids], atol=1e-10)
    np.testing.assert_allclose(found.bottom, centred[found.bottom_ids], atol=1e-10)


@pytest.mark.parametrize("name", ["gpt2", "both-norms-capped", "post-sublayer"])
def test_the_effect_is_read_at_the_recorded_scales(tmp_path: Path, name: str) -> None:
    """By hand, in the tensors themselves: what the head wrote through each norm behind it, at the scale of what went in."""
    config = deep(name)
    path = directory(tmp_path / "m", config)
    run, t = run_of(path), {k: v.astype(np.float64) for k, v in load_file(path / "model.safetensors").items()}
    x = run.get("result", 2, (2,))[0, 7].numpy()
    centred = (lambda a: a - a.mean()) if config.norm == "layer" else (lambda a: a)

    def through(x: np.ndarray, whole: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return centred(x) / np.sqrt((centred(whole) ** 2).mean() + config.norm_eps) * gain

    if config.norm_placement in ("both", "post_sublayer"):
        written = run.get("result", 2).sum(0)[7].numpy()
        x = through(x, written, t["layers.2.attn_post_norm.gain"])
    assert run.final is not None
    logits = through(x, run.final[7].numpy(), t["unembed.norm.gain"]) @ t["unembed.W_U"]
    found = step(path, HeadStepParams(HEAD, 7, 4, k=4, target=Target((3, 1))))
    assert found.effect == pytest.approx(logits[3] - logits[1], abs=1e-5)
    np.testing.assert_allclose(found.top, np.sort(logits - logits.mean())[::-1][:4], atol=1e-5)


def test_interventions_are_in_the_steps(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("gpt2"))
    found, run = step(path, HeadStepParams(HEAD, 8, 3), EDITS), run_of(path, EDITS)
    np.testing.assert_allclose(found.v, run.get("v", 2, (2,))[0, 3], atol=1e-12)
    np.testing.assert_allclose(found.z, run.get("z", 2, (2,))[0, 8], atol=1e-12)
    np.testing.assert_allclose(found.z, run.get("z", 2, (2,))[0, 3], atol=1e-12)  # the mean over positions
    assert step(path, HeadStepParams(HEAD, 5, 3), EDITS).result.tolist() == [0.5] * 24


def test_a_source_may_be_left_open_or_hidden(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("llama"))
    found = step(path, HeadStepParams(HEAD))
    assert (found.destination, found.source) == (8, int(found.pattern.argmax()))
    hidden = step(path, HeadStepParams(HEAD, 3, 6))
    assert not hidden.mask[6] and hidden.attention == 0
    assert math.isfinite(hidden.score) and not hidden.moved.any()
    with pytest.raises(BadInput):
        step(path, HeadStepParams(HEAD, 9))
    assert hidden.table().n_rows == CONFIGS["llama"].d_head


@pytest.mark.parametrize("name", ["tensor_identity", "head_step"])
def test_the_same_question_twice_is_bit_equal(tmp_path: Path, name: str) -> None:
    subject = Subject(ModelRef(f"file:{directory(tmp_path / 'm', deep('gpt2'))}"), TOKENS)
    params: Any = TensorIdentityParams(HEAD, EARLIER) if name == "tensor_identity" else HeadStepParams(HEAD)
    prints = [Engine(ModelStore()).answer(Request.named(name, params, subject), fresh=True).fingerprint for _ in range(2)]
    assert prints[0] == prints[1]
