"""The logit lens against streams, norm and softmax written out in numpy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.analysis.attribution import logit_lens as module
from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.logit_lens import FINAL, OWN, LogitLensParams
from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, ModelRef, Subject, Target
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel, _norm
from tests.reference.slow_parts import SlowParts
from tests.rounding import check_largest, check_ranks

TOKENS = (0, 5, 3, 5, 2, 6, 1, 2, 5)
RAW = Conventions(fold_norm=False, centre=False, dtype="float64")
SHAPES = ("attention-only", "gpt2", "llama", "both-norms-capped", "odd", "parallel", "post-residual")


class Asker:
    """An engine on one model."""

    def __init__(self, path: Path) -> None:
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{path}")
        self.tensors = load_file(path / "model.safetensors")

    @property
    def weights(self) -> Any:
        return self.engine.store.open(self.ref).weights(RAW)

    def request(self, params: Any, tokens: Any = TOKENS, edits: Any = (), conventions: Conventions = RAW) -> Request:
        return Request.named("logit_lens", params, Subject(self.ref, tokens, edits, conventions))

    def __call__(self, params: Any, tokens: Any = TOKENS, edits: Any = (), conventions: Conventions = RAW) -> Any:
        return self.engine.answer(self.request(params, tokens, edits, conventions)).result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def asker(folder: Path, name: str) -> Asker:
    path = folder / name
    return Asker(path if path.exists() else directory(path, CONFIGS[name], tokenizer=False))


def _log_probs(model: SlowModel, x: np.ndarray, recorded: np.ndarray | None) -> np.ndarray:
    """[d_vocab_out] of one stream vector: its own statistics, or those of the stream `recorded`."""
    c, t = model.c, model.t
    if c.final_norm and c.norm != "none":
        gain, bias = t.get("unembed.norm.gain"), t.get("unembed.norm.bias")
        if recorded is None:
            x = _norm(x, c.norm, gain, bias, c.norm_eps)
        else:
            of = recorded - recorded.mean() if c.norm == "layer" else recorded
            x = (x - x.mean() if c.norm == "layer" else x) / math.sqrt((of**2).mean() + c.norm_eps)
            x = x * (1 if gain is None else gain) + (0 if bias is None else bias)
    logits = x @ (t["embed.W_E"].T if c.tied else t["unembed.W_U"]) + (t["unembed.b_U"] if "unembed" in c.biases else 0)
    logits = c.logit_soft_cap * np.tanh(logits / c.logit_soft_cap) if c.logit_soft_cap else logits
    return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("statistics", [OWN, FINAL])
def test_every_stage_is_the_softmax_of_its_own_stream(folder: Path, name: str, statistics: Any) -> None:
    ask = asker(folder, name)
    c = ask.weights.config
    model = SlowModel(c, ask.tensors)
    logits, streams, _ = model.run(TOKENS)
    assert forward(ask.weights, TOKENS).final is not None
    last: Any = forward(ask.weights, TOKENS).final
    result = ask(LogitLensParams(k=4, statistics=statistics))
    assert result.stages == (*(f"L{i} in" for i in range(c.n_layers)), "final")
    for p in range(len(TOKENS)):
        end = logits[p] - logits[p].max() - math.log(np.exp(logits[p] - logits[p].max()).sum())
        for stage, x in enumerate((*streams, last.numpy())):
            recorded = last[p].numpy() if statistics == FINAL else None
            lp = _log_probs(model, x[p], recorded)
            assert result.entropy[stage, p] == pytest.approx(float(-(np.exp(lp) * lp).sum()), abs=1e-9)
            assert result.kl[stage, p] == pytest.approx(float((np.exp(end) * (end - lp)).sum()), abs=1e-9)
            check_largest(result.ids[stage, p], lp)
            np.testing.assert_allclose(result.probs[stage, p], np.exp(lp[result.ids[stage, p]]), atol=1e-10)
            if p + 1 < len(TOKENS):
                assert result.log_prob[stage, p] == pytest.approx(float(lp[TOKENS[p + 1]]), abs=1e-9)
                check_ranks(result.rank[stage, p], lp, lp[TOKENS[p + 1]])
    np.testing.assert_allclose(result.kl[-1], 0, atol=1e-12)
    assert np.isnan(result.log_prob[:, -1]).all() and (result.rank[:, -1] == -1).all()
    assert result.actual.tolist() == [*TOKENS[1:], -1]


@pytest.mark.parametrize("name", ["gpt2", "llama", "both-norms-capped"])
def test_the_stage_between_is_the_stream_after_attention(folder: Path, name: str) -> None:
    ask = asker(folder, name)
    slow = SlowParts(ask.weights.config, ask.tensors, TOKENS)
    result = ask(LogitLensParams(mid=True))
    assert result.stages == ("L0 in", "L0 mid", "L1 in", "L1 mid", "final")
    for layer in range(2):
        for p in (0, 4, 8):
            lp = _log_probs(slow.model, slow.mids[layer][p], None)
            assert result.entropy[2 * layer + 1, p] == pytest.approx(float(-(np.exp(lp) * lp).sum()), abs=1e-9)


@pytest.mark.parametrize("name", ["attention-only", "parallel"])
def test_without_a_stage_between_there_is_none(folder: Path, name: str) -> None:
    assert asker(folder, name)(LogitLensParams(mid=True)).stages == ("L0 in", "L1 in", "final")


def test_the_lens_sees_interventions(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    cut = (Intervention("zero", Site("mlp_out", 0)), Intervention("scale", Site("resid_pre", 1, positions=(4,)), (0.5,)))
    run = forward(ask.weights, TOKENS, cut)
    model = SlowModel(ask.weights.config, ask.tensors)
    result = ask(LogitLensParams(), edits=cut)
    lp = _log_probs(model, run.get("resid_pre", 1)[4].numpy(), None)
    assert result.log_prob[1, 4] == pytest.approx(float(lp[TOKENS[5]]), abs=1e-9)
    np.testing.assert_allclose(result.log_prob[2, :-1], -run.losses().numpy(), atol=1e-9)


def test_at_the_final_scale_stages_differ_by_what_was_written_between(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    target = Target((4, 2))
    lens = ask(LogitLensParams(statistics=FINAL, target=target, position=6))
    request = Request.named("direct_attribution", DirectAttributionParams(target, "all"), Subject(ask.ref, TOKENS, (), RAW))
    parts: Any = ask.engine.answer(request).result
    others = dict(zip(parts.names, parts.others, strict=True))
    for layer in range(2):
        wrote = parts.heads[layer].sum(0) + others[f"attention bias L{layer}"] + others[f"MLP L{layer}"]
        np.testing.assert_allclose(lens.value[layer + 1] - lens.value[layer], wrote, atol=1e-9)
    np.testing.assert_allclose(lens.value[-1], parts.total, atol=1e-10)
    np.testing.assert_array_equal(lens.across()["value"], lens.value[:, 6])


@pytest.mark.parametrize("rows", [1, 2, 32])
def test_tiles_and_ranges_change_no_number(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    ask = asker(folder, "llama")
    whole = ask(LogitLensParams(mid=True, k=3))
    monkeypatch.setattr(module, "ROWS", rows)
    part = ask(LogitLensParams((2, -2), mid=True, k=3, position=4))
    np.testing.assert_array_equal(part.positions, np.arange(2, 8))
    for name in ("ids", "probs", "log_prob", "rank", "entropy", "kl", "value"):
        np.testing.assert_allclose(getattr(part, name), getattr(whole, name)[:, 2:8], atol=1e-12)
    assert part.at == 2 and whole.at == 8
    assert not ask(LogitLensParams((2, 3))).across()  # the last position is not among them


class _Stops(NullContext):
    """Cancels at the first tick of a tile after the first; keeps the partial results."""

    def __init__(self, stops: bool = True) -> None:
        self.stops, self.shown, self.seen = stops, [], set()

    def tick(self, done: int, total: int, text: str = "") -> None:
        if text.startswith("position"):
            self.seen.add(text)
            if self.stops and len(self.seen) > 1:
                raise Cancelled()

    def partial(self, result: Any) -> None:
        self.shown.append(result)


def test_a_cancelled_lens_is_gone_on_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asker(folder, "gpt2")
    monkeypatch.setattr(module, "ROWS", 4)
    request = ask.request(LogitLensParams(k=2))
    stops = _Stops()
    with pytest.raises(Cancelled):
        ask.engine.answer(request, stops)
    assert [p.done for p in stops.shown] == [pytest.approx(4 / 27), pytest.approx(8 / 27), pytest.approx(12 / 27)]
    assert np.isnan(stops.shown[0].entropy[:-1]).all() and not np.isnan(stops.shown[0].entropy[-1, :4]).any()
    assert (stops.shown[-1].ids[:, 4:] == -1).all() and np.isnan(stops.shown[-1].entropy[:, 4:]).all()
    goes_on = _Stops(stops=False)
    result: Any = ask.engine.answer(request, goes_on).result
    assert goes_on.seen == {"position 4", "position 8"}
    fresh: Any = ask.engine.answer(request, fresh=True).result
    for name, array in result.arrays().items():
        np.testing.assert_array_equal(array, getattr(fresh, name))


@pytest.mark.parametrize("tokens", [(3,), tuple([3, 4] * 24)])
@pytest.mark.parametrize("name", ["attention-only", "odd"])
def test_short_and_long_prompts_have_every_number(folder: Path, name: str, tokens: Any) -> None:
    result = asker(folder, name)(LogitLensParams(k=400), tokens, conventions=Conventions())
    assert not np.isnan(result.entropy).any() and not np.isnan(result.value).any()
    assert result.ids.shape == (3, len(tokens), CONFIGS[name].d_vocab_out) and (result.ids >= 0).all()
    assert not np.isnan(result.log_prob[:, :-1]).any()
    assert result.table().n_rows == 3 * len(tokens)


def test_conventions_change_no_probability(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    raw, folded = (ask(LogitLensParams(), conventions=c) for c in (RAW, Conventions(dtype="float64")))
    np.testing.assert_allclose(folded.probs, raw.probs, atol=1e-10)
    np.testing.assert_allclose(folded.kl, raw.kl, atol=1e-10)
    with pytest.raises(BadInput, match="position"):
        ask(LogitLensParams((0, 9)))
