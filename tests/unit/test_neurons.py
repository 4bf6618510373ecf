"""Neurons against activations and output rows written out in numpy, and against the MLP's own contribution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.neurons import NeuronsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Refused
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, ModelRef, Subject, Target
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import _act
from tests.reference.slow_parts import SlowParts
from tests.rounding import check_largest

TOKENS = (0, 5, 3, 5, 2, 6, 1, 2, 5)
SHAPED = {**CONFIGS, "layer-norms-behind": replace(CONFIGS["gpt2"], norm_placement="both")}
RAW = Conventions(fold_norm=False, centre=False, dtype="float64")
P, TARGET = 6, 4
SHAPES = ("gpt2", "llama", "both-norms-capped", "layer-norms-behind", "post-sublayer", "parallel", "tied-scaled")


class Asker:
    """An engine on one model."""

    def __init__(self, path: Path) -> None:
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{path}")
        self.tensors = load_file(path / "model.safetensors")

    def __call__(self, name: str, params: Any, tokens: Any = TOKENS, edits: Any = (), conventions: Conventions = RAW) -> Any:
        return self.engine.answer(Request.named(name, params, Subject(self.ref, tokens, edits, conventions))).result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def asker(folder: Path, name: str) -> Asker:
    path = folder / name
    return Asker(path if path.exists() else directory(path, SHAPED[name], tokenizer=False))


def _slow(ask: Asker, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Activations, effects on the target's logit [layer, neuron] and what a unit writes [layer, neuron, d_vocab_out], at P."""
    c = SHAPED[name]
    slow = SlowParts(c, ask.tensors, TOKENS)
    t, acts, effects, writes = slow.model.t, [], [], []
    for layer, x in enumerate(slow.streams):
        source = x if c.parallel else slow.mids[layer]
        read = slow.model._named_norm(layer, "mlp_norm", source) if c.norm_placement in ("pre", "both") else source
        get = lambda n, layer=layer: t.get(f"layers.{layer}.mlp.{n}", np.zeros(1))
        act = read @ get("W_in") + get("b_in")
        act = _act(read @ get("W_gate") + get("b_gate"), c.activation) * act if c.gated else _act(act, c.activation)
        whole, rows, unit = act @ get("W_out") + get("b_out"), [], []
        after, post = c.norm_placement in ("post_sublayer", "both"), f"layers.{layer}.mlp_post_norm"
        for n in range(c.d_mlp):
            part = np.zeros_like(x)
            part[P] = act[P, n] * get("W_out")[n]
            part = slow.frozen(post, whole, part) if after else part
            rows.append(slow.to_logits(part)[P, TARGET])
            direction = get("W_out")[n]
            if after:
                direction = direction - direction.mean() if c.norm == "layer" else direction
                direction = direction * t.get(f"{post}.gain", 1.0)
            direction = direction - direction.mean() if c.norm == "layer" else direction
            direction = direction * t.get("unembed.norm.gain", 1.0)
            out = direction @ (t["embed.W_E"].T if c.tied else t["unembed.W_U"])
            unit.append(out - out.mean())
        acts.append(act[P])
        effects.append(rows)
        writes.append(unit)
    return np.array(acts), np.array(effects), np.array(writes)


@pytest.mark.parametrize("name", SHAPES)
def test_neurons_are_activation_times_what_their_row_writes(folder: Path, name: str) -> None:
    ask = asker(folder, name)
    acts, effects, writes = _slow(ask, name)
    result = ask("neurons", NeuronsParams(Target((TARGET,)), P, k=11, tokens=3))
    layer, neuron = result.layer, result.neuron
    assert len(layer) == 11
    check_largest(np.ravel_multi_index((layer, neuron), effects.shape), np.abs(effects).ravel())
    np.testing.assert_allclose(result.activation, acts[layer, neuron], atol=1e-10)
    np.testing.assert_allclose(result.effect, effects[layer, neuron], atol=1e-10)
    for row, (i, n) in enumerate(zip(layer, neuron, strict=True)):
        check_largest(result.top_ids[row], writes[i, n])
        check_largest(result.bottom_ids[row], -writes[i, n])
        np.testing.assert_allclose(result.top[row], writes[i, n, result.top_ids[row]], atol=1e-10)
    np.testing.assert_allclose(result.summed, effects.sum(1), atol=1e-10)
    assert result.n_neurons == effects.size
    assert result.remainder.size < 1e-10


SCALED = (Intervention("scale", Site("mlp_out", 0), (0.5,)),)
REPLACED = (Intervention("zero", Site("mlp_out", 0)), Intervention("mean", Site("mlp_out", 1)))
ELSEWHERE = (Intervention("zero", Site("mlp_out", 0, positions=(1,))), Intervention("zero", Site("result", 0, (1,))))


@pytest.mark.parametrize("name", ["gpt2", "llama", "both-norms-capped"])
@pytest.mark.parametrize("edits", [(), SCALED, REPLACED, ELSEWHERE], ids=["free", "scaled", "replaced", "elsewhere"])
def test_neurons_and_bias_add_up_to_the_mlp(folder: Path, name: str, edits: Any) -> None:
    ask = asker(folder, name)
    target = Target((TARGET, 9))
    result = ask("neurons", NeuronsParams(target, P, k=3), edits=edits)
    whole = ask("direct_attribution", DirectAttributionParams(target, position=P), edits=edits)
    mlps = [whole.others[whole.names.index(f"MLP L{i}"), 0] for i in range(2)]
    np.testing.assert_allclose(result.mlp, mlps, atol=1e-10)
    np.testing.assert_allclose(result.summed + result.bias + result.placed, mlps, atol=1e-10)
    assert result.total == pytest.approx(float(whole.total[0]), abs=1e-10)
    if edits == REPLACED:
        assert not result.summed.any() and result.mlp[0] == 0 and result.placed[1] != 0
        assert not result.effect.any()
    else:
        np.testing.assert_allclose(result.placed, 0, atol=1e-10)
        all_of_them = ask("neurons", NeuronsParams(target, P, k=80), edits=edits)
        np.testing.assert_allclose(
            [all_of_them.effect[all_of_them.layer == i].sum() for i in range(2)], result.summed, atol=1e-10
        )


def test_a_difference_is_the_same_under_every_convention(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    raw, folded = (
        ask("neurons", NeuronsParams(Target((4, 9)), P, k=7), conventions=c) for c in (RAW, Conventions(dtype="float64"))
    )
    np.testing.assert_array_equal(folded.neuron, raw.neuron)
    np.testing.assert_allclose(folded.effect, raw.effect, atol=1e-9)
    np.testing.assert_array_equal(folded.top_ids, raw.top_ids)
    np.testing.assert_allclose(folded.top, raw.top, atol=1e-9)


@pytest.mark.parametrize("tokens", [(3,), tuple([3, 4] * 24)])
def test_more_are_asked_for_than_there_are(folder: Path, tokens: Any) -> None:
    result = asker(folder, "gpt2")("neurons", NeuronsParams(k=500, tokens=900), tokens, conventions=Conventions())
    assert len(result.effect) == 80 and result.top_ids.shape == (80, 260)
    assert not any(np.isnan(a).any() for a in result.arrays().values())
    assert (np.diff(np.abs(result.effect)) <= 0).all()
    assert result.table().n_rows == 80


def test_a_model_of_attention_alone_is_refused_in_a_sentence(folder: Path) -> None:
    with pytest.raises(Refused, match="no MLP neurons"):
        asker(folder, "attention-only")("neurons", NeuronsParams())
    with pytest.raises(Refused, match="residual stream itself"):
        asker(folder, "post-residual")("neurons", NeuronsParams())


def test_a_patch_that_leaves_the_position_alone_leaves_its_neurons(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    p = NeuronsParams(Target((TARGET,)), P, k=5)
    free = ask("neurons", p)
    for source, align in (((0, 2, 6), ()), ((0, 2, 6, 1, 4), (0, 1, 2, 3, 4, 4, -1, -1, -1))):
        result = ask("neurons", p, edits=(Intervention("patch", Site("mlp_out", 1), source=source, align=align),))
        np.testing.assert_allclose(result.every, free.every, atol=1e-12)
        assert not result.placed.any() and result.summed.all()
        patched = ask("neurons", replace(p, position=2), edits=(Intervention("patch", Site("mlp_out", 1), source=source),))
        assert patched.placed[1] and not patched.every[1].any()
