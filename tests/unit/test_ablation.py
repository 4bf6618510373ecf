"""Ablation against whole forward passes with interventions, against loops written here, and against finite differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.behaviour.in_context import windows
from circuitlab.analysis.interventions import _metric, ablation_sweep
from circuitlab.analysis.interventions._gradient_estimate import first_order, for_autograd
from circuitlab.analysis.interventions.ablation import AblationParams, AblationResult
from circuitlab.analysis.interventions.ablation_sweep import Holding, prepare_sweep
from circuitlab.engine import store
from circuitlab.engine.engine import Engine
from circuitlab.engine.in_flight import InFlight
from circuitlab.engine.inputs import InputsOf
from circuitlab.engine.recording_context import RecordingContext
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.forward import forward, forward_from, rerun_from
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from circuitlab.model.run import Run
from circuitlab.model.saving import random_tensors
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.model.weights import Norm, Unembed
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 3, 5, 6, 5, 3, 2, 5)
OTHER = (0, 2, 2, 6, 1, 4)
EDITS = (
    Intervention("scale", Site("resid_pre", 1), (0.7,)),
    Intervention("mean", Site("v", 1, (0,))),
    Intervention("zero", Site("z", 0, (1,))),
    Intervention("patch", Site("pattern", 1, (2,)), source=OTHER),
    Intervention("mean", Site("result", 1, (0,))),
    Intervention("scale", Site("result", 0, (2,), (3, 4, 5)), (1.5,)),
)
PATH = (Intervention("zero", Site("k", 1, (0,)), path_from=Site("result", 0, (0, 2))),)


class Asker:
    """An engine on one model, in double precision."""

    def __init__(self, path: Path, conventions: Conventions | None = None) -> None:
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{path}")
        self.conventions = conventions or Conventions(dtype="float64")

    @property
    def weights(self) -> Any:
        return self.engine.store.open(self.ref).weights(self.conventions)

    def request(self, params: AblationParams, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> Request:
        return Request.named("ablation", params, Subject(self.ref, tokens, edits, self.conventions))

    def __call__(self, params: AblationParams, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> AblationResult:
        return self.engine.answer(self.request(params, tokens, edits)).result  # type: ignore[return-value]

    def losses(self, tokens: tuple[int, ...], edits: Any) -> np.ndarray:
        return forward(self.weights, tokens, edits).losses().numpy()


@pytest.fixture
def ask(tmp_path: Path) -> Asker:
    return Asker(directory(tmp_path / "m", CONFIGS["gpt2"]))


def by_intervention(how: str, heads: tuple[Head, ...]) -> tuple[Intervention, ...]:
    op, source = {"zero": ("zero", ()), "mean": ("mean", ()), "other": ("mean", OTHER), "resample": ("patch", OTHER)}[how]
    return tuple(Intervention(op, Site("z", h.layer, (h.head,)), source=source) for h in heads)  # type: ignore[arg-type]


def params(how: str, **more: Any) -> AblationParams:
    return AblationParams(how="mean" if how == "other" else how, source=OTHER if how in ("other", "resample") else (), **more)  # type: ignore[arg-type]


def fitting(config: ModelConfig, edits: tuple[Intervention, ...]) -> tuple[Intervention, ...]:
    """These interventions on the first head where the model has few."""
    if config.n_heads >= 4:
        return edits
    edits = tuple(replace(e, site=replace(e.site, heads=(0,) if e.site.heads else ())) for e in edits)
    return tuple(replace(e, path_from=replace(e.path_from, heads=(0,))) if e.path_from else e for e in edits)


NAMES = ("smeared", "gpt2", "llama", "post-residual", "post-sublayer", "both-norms-capped", "parallel", "odd")
CASES = [(n, e) for n in NAMES for e in ((), EDITS, PATH) if e is not PATH or n in ("smeared", "gpt2", "parallel")]


@pytest.mark.parametrize(("name", "edits"), CASES)
def test_every_head_alone_is_the_whole_pass_with_that_head_cut(tmp_path: Path, name: str, edits: Any) -> None:
    config = CONFIGS[name]
    edits = fitting(config, edits)
    asker = Asker(directory(tmp_path / "m", config))
    before = asker.losses(TOKENS, edits)
    for how in ("zero", "mean", "other", "resample"):
        result = asker(params(how), edits=edits)
        assert result.exact.all()
        assert result.baseline == pytest.approx(before.mean(), abs=1e-10)
        for head in (Head(0, config.n_heads - 1), Head(1, 1)):
            after = asker.losses(TOKENS, (*edits, *by_intervention(how, (head,))))
            np.testing.assert_allclose(result.token_change[head][1:], after - before, atol=1e-6)
            assert result.effect[head] == pytest.approx((after - before).mean(), abs=1e-9)
        assert np.isnan(result.token_change[..., 0]).all()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("how", ["zero", "mean", "other", "resample"])
@pytest.mark.parametrize("name", ["smeared", "gpt2", "parallel"])
def test_the_same_ablation_a_second_time_changes_nothing(tmp_path: Path, name: str, how: str, frozen: bool) -> None:
    """Exactly, in single precision too: no other order of additions stands for an effect."""
    asker = Asker(directory(tmp_path / "m", CONFIGS[name]), Conventions(dtype="float32"))
    cut = tuple(Head(layer, 1) for layer in range(CONFIGS[name].n_layers))
    long = TOKENS * 2
    result = asker(params(how, what="set", heads=cut, frozen=frozen), long, by_intervention(how, cut))
    for head in cut:
        assert result.effect[head] == 0 and not result.token_change[head][1:].any()
    assert result.set_effect[0] == 0 and not result.set_change[0, 1:].any()
    both = asker(params("zero", what="set", heads=(cut[0], Head(0, 0))), long, by_intervention("zero", cut))
    alone = asker(params("zero", heads=(Head(0, 0),)), long, by_intervention("zero", cut))
    assert both.set_effect[0] == pytest.approx(alone.effect[0, 0], abs=1e-5) and alone.effect[0, 0]


def normed(x: torch.Tensor, t: dict[str, torch.Tensor], name: str, config: ModelConfig) -> torch.Tensor:
    if config.norm == "none":
        return x
    x = x - x.mean(1, keepdim=True) if config.norm == "layer" else x
    x = x / (x.square().mean(1, keepdim=True) + config.norm_eps).sqrt() * t[f"{name}.gain"]
    return x + t[f"{name}.bias"] if config.norm == "layer" else x


def with_held_patterns(config: ModelConfig, t: dict[str, torch.Tensor], run: Run, cut: tuple[Head, ...]) -> np.ndarray:
    """Losses of a model written out plainly, its patterns those of `run`, the outputs of the heads of `cut` zero."""
    x = t["embed.W_E"][list(run.tokens)]
    x = x + t["embed.W_pos"][: run.n] if config.positions == "learned" else x
    for i in range(config.n_layers):
        read, added = normed(x, t, f"layers.{i}.attn_norm", config), torch.zeros_like(x)
        for h in range(config.n_heads):
            group = h // config.group
            v = read @ t[f"layers.{i}.W_V"][group] + (t[f"layers.{i}.b_V"][group] if "v" in config.biases else 0)
            if Head(i, h) not in cut:
                added += run.get("pattern", i)[h] @ v @ t[f"layers.{i}.W_O"][h]
        x = x + added + (t[f"layers.{i}.b_O"] if "o" in config.biases else 0)
        if config.d_mlp:
            mlp = {k.rpartition(".")[2]: v for k, v in t.items() if k.startswith(f"layers.{i}.mlp.")}
            read = normed(x, t, f"layers.{i}.mlp_norm", config)
            up = read @ mlp["W_in"] + mlp.get("b_in", 0)
            gate = torch.nn.functional.silu(read @ mlp["W_gate"]) * up if config.gated else None
            hidden = torch.nn.functional.gelu(up, approximate="tanh") if gate is None else gate
            x = x + hidden @ mlp["W_out"] + mlp.get("b_out", 0)
    logits = normed(x, t, "unembed.norm", config) @ t["unembed.W_U"]
    return -logits.log_softmax(1)[torch.arange(run.n - 1), torch.tensor(run.tokens[1:])].numpy()


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_held_patterns_stay_while_values_change(tmp_path: Path, name: str) -> None:
    config = replace(CONFIGS[name], n_layers=3)
    asker = Asker(directory(tmp_path / "m", config))
    tensors = {k: v.double() for k, v in random_tensors(config, 0, 0.35).items()}
    run = forward(asker.weights, TOKENS)
    heads = (Head(0, 1), Head(1, 2), Head(1, 3))
    held = asker(AblationParams(frozen=True, what="set", heads=heads))
    free = asker(AblationParams(what="set", heads=heads))
    before = with_held_patterns(config, tensors, run, ())
    np.testing.assert_allclose(before.mean(), held.baseline, atol=1e-5)
    for head in heads:
        wanted = with_held_patterns(config, tensors, run, (head,)) - before
        np.testing.assert_allclose(held.token_change[head][1:], wanted, atol=1e-5)
        assert not np.allclose(free.token_change[head][1:], wanted, atol=1e-3)
    wanted = with_held_patterns(config, tensors, run, heads) - before
    np.testing.assert_allclose(held.set_change[0, 1:], wanted, atol=1e-5)
    assert held.set_effect[0] == pytest.approx(wanted.mean(), abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edits", [(), EDITS], ids=["plain", "edited"])
def test_in_the_last_layer_held_and_recomputed_patterns_are_the_same(tmp_path: Path, name: str, edits: Any) -> None:
    edits = fitting(CONFIGS[name], edits)
    asker = Asker(directory(tmp_path / "m", CONFIGS[name]))
    free, held = asker(AblationParams(), edits=edits), asker(AblationParams(frozen=True), edits=edits)
    np.testing.assert_array_equal(free.effect[-1], held.effect[-1])
    if name != "odd":  # of seven tokens
        assert not np.allclose(free.effect[0], held.effect[0], atol=1e-6)


def test_held_patterns_are_those_of_the_run_with_its_interventions(ask: Asker) -> None:
    """Along a path everything is computed one by one: the same numbers as the batch where the path leads to no value."""
    edits = (Intervention("zero", Site("q", 1, (0,))),)
    idle = Intervention("scale", Site("k", 1, (3,)), (1.0,), path_from=Site("result", 0, (0,)))
    batch, single = (ask(AblationParams(frozen=True), edits=e) for e in (edits, (*edits, idle)))
    np.testing.assert_allclose(batch.effect, single.effect, atol=1e-10)
    clean = ask(AblationParams(frozen=True))
    assert not np.allclose(clean.effect[0], batch.effect[0], atol=1e-6)


SLOPES = [("attention-only", False), ("gpt2", True), ("llama", False), ("llama", True), ("both-norms-capped", False)]
SLOPES += [("post-residual", True), ("parallel", False), ("smeared-rotary", True), ("experts", False), ("shared-expert", True)]
SLOPES += [("solu", False)]


@pytest.mark.parametrize(("name", "frozen"), SLOPES)
@pytest.mark.parametrize("edits", [(), EDITS], ids=["plain", "edited"])
def test_the_estimate_is_the_slope_of_a_small_change(tmp_path: Path, name: str, frozen: bool, edits: Any) -> None:
    """A head scaled by 1 ± ε: twice ε times the gradient times the activation."""
    asker = Asker(directory(tmp_path / "m", CONFIGS[name]))
    subject, size = Subject(asker.ref, TOKENS, edits, asker.conventions), 1e-5
    model = asker.engine.store.open(asker.ref)
    for effect, target in (("second_half", Target()), ("target", Target((3, 5)))):
        inputs = InputsOf(asker.engine, model, subject, RecordingContext(NullContext(), InFlight()), asker.engine.cache)
        made = prepare_sweep(inputs, "zero", (), frozen, effect, target, -2, lambda: None, True)  # type: ignore[arg-type]
        estimate = first_order(made, lambda: None)
        for head in (Head(0, 0), Head(0, 2), Head(1, 1)):
            values = []
            for share in (1 - size, 1 + size):
                scaled = (*edits, Intervention("scale", Site("z", head.layer, (head.head,)), (share,)))
                editor = (Holding if frozen else Plain)(scaled, made.run, lambda tokens: forward(asker.weights, tokens))
                final = rerun_from(made.run, scaled, editor, head.layer)[None, made.measure.dest]
                values.append(float(made.measure(made.run, final, lambda: None)[0]))
            slope = (values[1] - values[0]) / (2 * size)
            assert float(estimate[head]) == pytest.approx(-slope, rel=1e-4, abs=1e-8)


def test_estimates_of_a_model_whose_tensors_are_read_when_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In inference mode: the same numbers as of the one in memory."""
    path = directory(tmp_path / "m", CONFIGS["shared-expert"])
    wanted = Asker(path, Conventions())(AblationParams())
    monkeypatch.setattr(store, "SMALL", 0)
    np.testing.assert_allclose(Asker(path, Conventions())(AblationParams()).effect, wanted.effect, atol=1e-5)


def test_autograd_gets_no_tensor_of_inference_mode() -> None:
    """Of every kind of part, experts included, which a device keeps as they were read during the forward pass."""
    for name in ("gpt2", "solu", "shared-expert", "post-sublayer"):
        with torch.inference_mode():
            made = {n: t.clone() for n, t in random_tensors(CONFIGS[name]).items()}
            layer = LazyWeights(CONFIGS[name], None, CanonicalParts(CONFIGS[name], ResidentTensors(made))).layer(1)
        with torch.inference_mode(False):
            tensors = list(tensors_in(for_autograd(layer)))
        assert len(tensors) > 8 and not any(t.is_inference() for t in tensors)


def tensors_in(part: Any) -> Iterator[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        yield part
    elif is_dataclass(part) or isinstance(part, Sequence):
        for inner in part if isinstance(part, Sequence) else vars(part).values():
            yield from () if isinstance(inner, str) else tensors_in(inner)


class Plain(Editor):
    def __init__(self, edits: Any, run: Run, source: Any) -> None:
        super().__init__(edits, run.tokens, source)


class Watcher(NullContext):
    """Remembers partial results; stops after `most` of them."""

    def __init__(self, most: int = 10**9) -> None:
        self.seen: list[AblationResult] = []
        self.most = most

    def partial(self, result: Any) -> None:
        self.seen.append(result)

    def tick(self, done: int, total: int, text: str = "") -> None:
        assert done <= total
        if len(self.seen) >= self.most:
            raise Cancelled


def test_estimates_come_first_and_exact_values_replace_them_last_layer_first(ask: Asker) -> None:
    watcher = Watcher()
    request = ask.request(AblationParams(), tokens=tuple([*TOKENS] * 5))
    result = ask.engine.answer(request, watcher).result
    assert isinstance(result, AblationResult)
    begun, first, second = watcher.seen[:3]
    assert np.isfinite(begun.effect[-1]).all() and np.isnan(begun.effect[0]).all()  # the last layer is estimated first
    assert set(begun.table().columns[2].values) == {"first-order", "not computed"}
    assert not first.exact.any()
    assert np.isfinite(first.effect).all()
    assert np.isnan(first.token_change).all()
    assert second.exact[-1].any() and not second.exact[0].any()
    assert result.exact.all()
    assert any("first-order" in word for word in first.conventions)
    assert not any("first-order" in word for word in result.conventions)
    assert set(first.table().columns[2].values) == {"first-order"}


def test_what_a_cancelled_sweep_holds_is_gone_on_from(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation_sweep, "AT_ONCE", 2 * len(TOKENS))
    request = ask.request(AblationParams(what="pairs", heads=(Head(0, 0), Head(0, 2), Head(1, 1))))
    with pytest.raises(Cancelled):
        ask.engine.answer(request, Watcher(3))
    again = Watcher()
    result = ask.engine.answer(request, again).result
    fresh = ask.engine.answer(request, fresh=True).result
    assert isinstance(result, AblationResult) and isinstance(fresh, AblationResult)
    assert again.seen[0].done > 0.4  # two batches were there
    np.testing.assert_allclose(result.effect, fresh.effect, atol=1e-12)
    np.testing.assert_allclose(result.set_change, fresh.set_change, atol=1e-12)


@pytest.mark.parametrize("name", ["attention-only", "llama", "both-norms-capped", "parallel"])
def test_sets_and_pairs_are_cut_together(tmp_path: Path, name: str) -> None:
    asker = Asker(directory(tmp_path / "m", CONFIGS[name]))
    heads, before = (Head(1, 0), Head(0, 3), Head(0, 1)), asker.losses(TOKENS, EDITS)
    for how in ("zero", "mean", "resample"):
        together = asker(params(how, what="set", heads=heads), edits=EDITS)
        wanted = asker.losses(TOKENS, (*EDITS, *by_intervention(how, heads))) - before
        np.testing.assert_allclose(together.set_change[0, 1:], wanted, atol=1e-6)
        assert together.set_names == ("L0H1 + L0H3 + L1H0",)
        assert together.exact.sum() == 3
        assert np.isnan(together.effect[~together.exact]).all()  # nothing was estimated
        assert together.set_sums[0] == pytest.approx(sum(together.effect[h] for h in heads))
        pairs = asker(params(how, what="pairs", heads=heads), edits=EDITS)
        assert pairs.set_names == ("L0H1 + L0H3", "L0H1 + L1H0", "L0H3 + L1H0")
        for effect, two in zip(pairs.set_effect, combinations(sorted(heads), 2), strict=True):
            wanted = asker.losses(TOKENS, (*EDITS, *by_intervention(how, two))) - before
            assert effect == pytest.approx(wanted.mean(), abs=1e-9)


def test_pairs_without_heads_are_of_the_strongest(ask: Asker) -> None:
    result = ask(AblationParams(what="pairs", most=3))
    strongest = np.argsort(-np.abs(result.effect).ravel())[:3]
    assert {tuple(h) for h in result.members.reshape(-1, 2).tolist()} == {divmod(int(i), 4) for i in strongest}
    assert len(result.set_effect) == 3
    assert result.exact.all()
    assert result.table().n_rows == 8 + 3


def test_what_is_measured(ask: Asker) -> None:
    tokens, cut = tuple(list(TOKENS) * 4), Intervention("zero", Site("z", 0, (2,)))
    before, after = ask.losses(tokens, ()), ask.losses(tokens, (cut,))
    n = len(tokens)
    half = ask(AblationParams(effect="second_half"), tokens)
    assert half.effect[0, 2] == pytest.approx((after - before)[n // 2 - 1 :].mean(), abs=1e-9)
    assert np.isnan(half.token_change[0, 2, : n // 2]).all()
    score = ask(AblationParams(effect="in_context"), tokens)
    (a, b), (c, d) = windows(n, 0, 0, 10)
    wanted = lambda losses: losses[c - 1 : d].mean() - losses[a - 1 : b].mean()
    assert score.baseline == pytest.approx(wanted(before), abs=1e-9)
    assert score.effect[0, 2] == pytest.approx(wanted(after) - wanted(before), abs=1e-9)
    logits = [forward(ask.weights, tokens, edits).logits()[7] for edits in ((), (cut,))]
    pair = ask(AblationParams(effect="target", target=Target((3, 5)), position=7), tokens)
    assert pair.effect[0, 2] == pytest.approx(float((logits[1] - logits[0])[3] - (logits[1] - logits[0])[5]), abs=1e-9)
    assert pair.unit == "logit"
    assert "position 7" in " ".join(pair.conventions)
    follows = ask(AblationParams(effect="target", position=7), tokens)
    assert follows.effect[0, 2] == pytest.approx(float((logits[1] - logits[0])[tokens[8]]), abs=1e-9)


@pytest.mark.parametrize("how", ["zero", "mean", "other", "resample"])
def test_only_what_is_measured_is_computed_in_the_last_layer(ask: Asker, how: str) -> None:
    before = ask.losses(TOKENS, ())
    for head in (Head(0, 2), Head(1, 3)):
        cuts = by_intervention(how, (head,))
        half = ask(params(how, effect="second_half"))
        wanted = (ask.losses(TOKENS, cuts) - before)[4:]
        assert half.effect[head] == pytest.approx(wanted.mean(), abs=1e-9)
        one = ask(params(how, effect="target", target=Target((3,)), position=4))
        logits = [forward(ask.weights, TOKENS, edits).logits()[4, 3] for edits in (cuts, ())]
        assert one.effect[head] == pytest.approx(float(logits[0] - logits[1]), abs=1e-9)


@pytest.mark.parametrize("name", ["attention-only", "smeared", "odd"])
def test_behind_the_last_layer_only_the_logits_are_changed(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of twice d_head tokens and more take the way through W_O W_U; the numbers are those of whole passes."""
    monkeypatch.setattr(ablation_sweep, "ROWS", 7)
    asker, used = Asker(directory(tmp_path / "m", CONFIGS[name])), []
    through = ablation_sweep.last_layer_losses
    monkeypatch.setattr(ablation_sweep, "last_layer_losses", lambda *a: used.append(1) or through(*a))
    tokens, heads = tuple([0, *TOKENS[1:]] * 4), (Head(1, 0), Head(1, 2))
    edits = fitting(CONFIGS[name], EDITS[:4])
    before = asker.losses(tokens, edits)
    for how in ("zero", "mean", "other", "resample"):
        result = asker(params(how, what="set", heads=heads), tokens, edits)
        for head in heads:
            wanted = asker.losses(tokens, (*edits, *by_intervention(how, (head,)))) - before
            np.testing.assert_allclose(result.token_change[head][1:], wanted, atol=1e-6)
        wanted = asker.losses(tokens, (*edits, *by_intervention(how, heads))) - before
        np.testing.assert_allclose(result.set_change[0, 1:], wanted, atol=1e-6)
    half = asker(AblationParams(effect="second_half"), tokens)
    wanted = asker.losses(tokens, by_intervention("zero", heads[:1])) - asker.losses(tokens, ())
    assert half.effect[1, 0] == pytest.approx(wanted[17:].mean(), abs=1e-9)
    idle = 2 if name == "odd" else 0  # all its heads read one mean of v, so that the mean of z is z
    assert len(used) == 4 * 2 - idle + 1  # the set and its heads each time, then all heads of the layer in one go
    used.clear()
    asker(AblationParams(), tokens, fitting(CONFIGS[name], EDITS))  # what heads write there is changed afterwards
    assert not used


def test_a_single_token_has_no_loss_and_says_so_but_has_logits(ask: Asker) -> None:
    for effect in ("loss", "second_half", "in_context"):
        result = ask(AblationParams(effect=effect), (3,))  # type: ignore[arg-type]
        assert np.isnan(result.effect).all() and not result.exact.any()
        assert "no loss" in " ".join(result.conventions) or "too few" in " ".join(result.conventions)
    assert ask(AblationParams(effect="target"), (3,)).exact.all()
    full = ask(AblationParams(), tuple([3, 4] * 24))
    assert np.isfinite(full.effect).all()


def test_the_same_request_afresh_is_bit_equal_and_only_exact_values_are_averaged(ask: Asker) -> None:
    request = ask.request(AblationParams(what="set", heads=(Head(1, 1),)))
    one, two = (ask.engine.answer(request, fresh=True) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    across = one.result.across()["effect"]
    assert np.isfinite(across[1, 1]) and np.isnan(across[0]).all()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (AblationParams(how="resample"), "another text"),
        (AblationParams(what="set"), "heads"),
        (AblationParams(what="pairs", heads=(Head(0, 1),)), "2 to"),
        (AblationParams(what="pairs", most=1000), "2 to"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Asker, asked: AblationParams, words: str) -> None:
    with pytest.raises(Refused, match=words):
        ask(asked)


def test_a_head_or_a_position_that_is_not_there_is_said(ask: Asker) -> None:
    with pytest.raises(BadInput, match="head"):
        ask(AblationParams(heads=(Head(2, 0),)))
    with pytest.raises(BadInput, match="position"):
        ask(AblationParams(effect="target", position=9))


def test_ticks_come_twice_a_layer_and_with_every_tile_that_is_unembedded(ask: Asker) -> None:
    class Counter(NullContext):
        n = 0

        def tick(self, done: int, total: int, text: str = "") -> None:
            self.n += text.startswith("ablation")

    counter = Counter()
    ask.engine.answer(ask.request(AblationParams(heads=(Head(0, 0),))), counter)
    assert counter.n == 4 + 1


@pytest.mark.parametrize("edits", [EDITS, PATH], ids=["edited", "path"])
@pytest.mark.parametrize("name", ["smeared", "llama", "gpt2", "parallel"])
def test_a_batch_of_streams_goes_on_with_the_interventions_of_the_run(tmp_path: Path, name: str, edits: Any) -> None:
    weights = Asker(directory(tmp_path / "m", CONFIGS[name])).weights
    run = forward(weights, TOKENS, edits)
    streams = torch.stack([run.get("resid_post", 0), 2 * run.get("resid_post", 0)])
    out = forward_from(weights, run, 1, streams)
    torch.testing.assert_close(out[0], run.logits(), atol=1e-9, rtol=1e-9)
    assert not torch.allclose(out[1], out[0])
    torch.testing.assert_close(forward_from(weights, run, 1, streams, slice(3, 5)), out[:, 3:5], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("cells", [1, 12, 60, 10**6])
@pytest.mark.parametrize("cap", [0.0, 5.0])
def test_losses_over_tiles_of_the_vocabulary(cells: int, cap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As −log softmax of whole rows in float64, wherever tiles end; a loss of almost nothing keeps its digits."""
    monkeypatch.setattr(_metric, "CELLS", cells)
    made = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=made)
    bias, gain, shift = draw(23), draw(8), draw(8)
    ends = Unembed(3 * draw(8, 23), bias, Norm(gain, shift))
    config = SimpleNamespace(final_norm=True, norm="layer", norm_eps=1e-5, logit_soft_cap=cap, d_vocab_out=23)
    weights: Any = SimpleNamespace(config=config, unembed=lambda: ends)
    x, ids, ticks = draw(6, 8), torch.tensor([0, 22, 7, 7, 11, 3]), []

    def logits() -> torch.Tensor:
        """[row, d_vocab] in double precision."""
        centred = x.double() - x.double().mean(-1, keepdim=True)
        read = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + shift
        whole = read @ ends.W_U.double() + bias
        return cap * torch.tanh(whole / cap) if cap else whole

    ids[5] = logits()[5].argmax()
    if not cap:
        bias[ids[5]] += 12  # all but certain
    wanted = -torch.log_softmax(logits(), dim=-1)[torch.arange(6), ids]
    result = _metric.token_losses(weights, x, ids, lambda: ticks.append(None))
    np.testing.assert_allclose(result.double(), wanted, rtol=2e-6, atol=2e-6)
    assert cap or abs(float(result[5] - wanted[5])) < 2e-7
    assert len(ticks) == -(-23 // max(1, cells // 6))
