"""Direct attribution, token attribution and residual norms against every part written out in numpy, and against the model cut."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.residual_norms import ResidualNormsParams
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams
from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.models import CONFIGS, directory
from tests.reference.slow_parts import SlowParts

TOKENS = (0, 5, 3, 5, 2, 6, 1, 2, 5)
SHAPED = {**CONFIGS, "layer-norms-behind": replace(CONFIGS["gpt2"], norm_placement="both")}
RAW = Conventions(fold_norm=False, centre=False, dtype="float64")
DOUBLE = Conventions(dtype="float64")
SHAPES = (
    "attention-only",
    "smeared",
    "gpt2",
    "llama",
    "both-norms-capped",
    "layer-norms-behind",
    "post-sublayer",
    "odd",
    "parallel",
    "tied-scaled",
)
EDITS: tuple[Intervention, ...] = (
    Intervention("zero", Site("result", 0, (1,))),
    Intervention("mean", Site("z", 1, (0,))),
    Intervention("scale", Site("pattern", 0, (2,)), (0.5,)),
    Intervention("scale", Site("resid_pre", 1, positions=(2, 3)), (0.5,)),
    Intervention("set", Site("v", 1, (0,), (1,)), (0.3,)),
)


class Asker:
    """An engine on one model."""

    def __init__(self, path: Path) -> None:
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{path}")

    @property
    def config(self) -> Any:
        return self.engine.store.open(self.ref).opened.weights.config

    def subject(self, tokens: tuple[int, ...], edits: Any, conventions: Conventions) -> Subject:
        return Subject(self.ref, tokens, edits, conventions)

    def run(self, tokens: tuple[int, ...] = TOKENS, edits: Any = (), conventions: Conventions = RAW) -> Run:
        return forward(self.engine.store.open(self.ref).weights(conventions), tokens, edits)

    def __call__(self, name: str, params: Any, tokens: Any = TOKENS, edits: Any = (), conventions: Conventions = RAW) -> Any:
        return self.engine.answer(Request.named(name, params, self.subject(tokens, edits, conventions))).result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def asker(folder: Path, name: str) -> Asker:
    path = folder / name
    return Asker(path if path.exists() else directory(path, SHAPED[name], tokenizer=False))


@cache
def slow_parts(folder: Path, name: str) -> SlowParts:
    return SlowParts(SHAPED[name], load_file(folder / name / "model.safetensors"), TOKENS)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("positions", ["one", "all"])
def test_every_part_is_what_it_writes_at_the_recorded_scale(folder: Path, name: str, positions: Any) -> None:
    ask = asker(folder, name)
    slow = slow_parts(folder, name)
    result = ask("direct_attribution", DirectAttributionParams(Target((4,)), positions, 6))
    rows = [6] if positions == "one" else list(range(len(TOKENS)))
    wanted = lambda part: slow.to_logits(part)[rows, 4]
    for layer in range(ask.config.n_layers):
        for head in range(ask.config.n_heads):
            np.testing.assert_allclose(result.heads[layer, head], wanted(slow.heads[layer][head]), atol=1e-10)
    parts = dict(zip(result.names, result.others, strict=True))
    for part, x in slow.begins.items():
        np.testing.assert_allclose(parts.pop(part), wanted(x), atol=1e-10)
    for layer, x in enumerate(slow.mlps):
        np.testing.assert_allclose(parts.pop(f"MLP L{layer}"), wanted(x), atol=1e-10)
    for layer, x in enumerate(slow.biases):
        np.testing.assert_allclose(parts.pop(f"attention bias L{layer}", 0.0), wanted(x), atol=1e-10)
    np.testing.assert_allclose(parts.pop(result.names[-1]), slow.constant()[4], atol=1e-10)
    assert not parts
    assert result.across()["heads"].shape == result.heads.shape[:2]
    np.testing.assert_array_equal(result.across()["heads"], result.heads[:, :, rows.index(6)])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("edits", [(), EDITS], ids=["free", "cut"])
def test_parts_add_up_to_the_logit_of_the_token_that_follows(folder: Path, name: str, edits: Any) -> None:
    ask = asker(folder, name)
    result = ask("direct_attribution", DirectAttributionParams(positions="all"), edits=edits)
    logits = ask.run(edits=edits).logits().numpy()
    if cap := ask.config.logit_soft_cap:
        logits = cap * np.arctanh(logits / cap)
    follows = [*TOKENS[1:], int(logits[-1].argmax())]
    wanted = logits[np.arange(len(TOKENS)), follows]
    np.testing.assert_allclose(result.total, wanted, atol=1e-9)
    np.testing.assert_allclose(result.heads.sum((0, 1)) + result.others.sum(0), wanted, atol=1e-9)
    np.testing.assert_array_equal(result.ids[:, 0], follows)
    assert result.remainder.size < 1e-9
    for position in (0, 3, 8):
        one = ask("direct_attribution", DirectAttributionParams(position=position), edits=edits)
        np.testing.assert_allclose(one.heads[:, :, 0], result.heads[:, :, position], atol=1e-10)
        np.testing.assert_allclose(one.others[:, 0], result.others[:, position], atol=1e-10)
        assert one.remainder.size < 1e-9  # here the MLPs are computed, not what is left over


def test_without_a_final_norm_cutting_a_last_layer_head_takes_its_contribution_away(folder: Path) -> None:
    ask = asker(folder, "attention-only")
    target = Target((7, 9))
    result = ask("direct_attribution", DirectAttributionParams(target, "all"))
    whole = ask.run().logits()
    for head in range(4):
        cut = Intervention("zero", Site("result", 1, (head,)))
        change = (whole - ask.run(edits=(cut,)).logits()).numpy()
        np.testing.assert_allclose(result.heads[1, head], change[:, 7] - change[:, 9], atol=1e-10)
        assert not ask("direct_attribution", DirectAttributionParams(target, "all"), edits=(cut,)).heads[1, head].any()


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped"])
def test_a_logit_difference_is_the_same_under_every_convention(folder: Path, name: str) -> None:
    ask = asker(folder, name)
    raw, folded = (
        ask("direct_attribution", DirectAttributionParams(Target((3, 8)), "all"), conventions=c) for c in (RAW, DOUBLE)
    )
    np.testing.assert_allclose(folded.heads, raw.heads, atol=1e-9)
    np.testing.assert_allclose(folded.total, raw.total, atol=1e-9)
    single = ask("direct_attribution", DirectAttributionParams(Target((3, 8)), "all"), conventions=Conventions())
    np.testing.assert_allclose(single.heads, raw.heads, atol=2e-5)
    assert single.remainder.size <= 1e-4 * single.remainder.of


def test_a_direction_is_measured_in_the_normalised_final_stream(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    direction = tuple(np.random.default_rng(0).normal(size=24).tolist())
    result = ask("direct_attribution", DirectAttributionParams(Target(direction=direction), "all"))
    slow = slow_parts(folder, "gpt2")
    seen = slow.frozen("unembed.norm", slow.final, slow.heads[1][2])
    np.testing.assert_allclose(result.heads[1, 2], seen @ np.array(direction), atol=1e-10)


@pytest.mark.parametrize("tokens", [(3,), tuple([3, 4] * 24)])
def test_short_and_long_prompts_have_every_number(folder: Path, tokens: Any) -> None:
    for name in ("attention-only", "gpt2", "both-norms-capped"):
        for positions in ("one", "all"):
            result = asker(folder, name)("direct_attribution", DirectAttributionParams(positions=positions), tokens)
            assert not any(np.isnan(a).any() for a in result.arrays().values())
            assert result.table().n_rows == (result.heads[..., 0].size + len(result.names)) * len(result.total)


def test_a_norm_on_the_stream_is_refused_in_a_sentence(folder: Path) -> None:
    ask = asker(folder, "post-residual")
    for name, params in (("direct_attribution", DirectAttributionParams()), ("token_attribution", TokenAttributionParams())):
        with pytest.raises(Refused, match="residual stream itself"):
            ask(name, params)
    with pytest.raises(BadInput, match="position"):
        asker(folder, "gpt2")("direct_attribution", DirectAttributionParams(position=9))


class _Stops(NullContext):
    """Cancels at the nth tick that speaks of a layer of the analysis itself; keeps what partial results were shown."""

    def __init__(self, after: int) -> None:
        self.left, self.shown = after, []

    def tick(self, done: int, total: int, text: str = "") -> None:
        if text.startswith(("layer", "position")):
            self.left -= 1
            if self.left < 0:
                raise Cancelled()

    def partial(self, result: Any) -> None:
        self.shown.append(result)


def test_a_cancelled_attribution_is_gone_on_from(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    params = DirectAttributionParams(positions="all", position=2)
    request = Request.named("direct_attribution", params, ask.subject(TOKENS, (), RAW))
    stops = _Stops(1)
    with pytest.raises(Cancelled):
        ask.engine.answer(request, stops)
    assert [p.done for p in stops.shown] == [0.5]
    assert np.isnan(stops.shown[0].heads[1]).all() and not np.isnan(stops.shown[0].heads[0]).any()
    again = _Stops(1)  # one layer is left: a second tick would cancel
    result: Any = ask.engine.answer(request, again).result
    fresh: Any = ask.engine.answer(request, fresh=True).result
    np.testing.assert_array_equal(result.heads, fresh.heads)
    np.testing.assert_array_equal(result.others, fresh.others)


# --- token attribution ------------------------------------------------------------------------------------------------


def _sent(slow: SlowParts, layer: int, head: int, d: int, s: int) -> np.ndarray:
    """[d_vocab_out]: what source s sends to d through one head, into the logits minus their mean over the vocabulary."""
    c, t = slow.c, slow.model.t
    part = np.zeros_like(slow.final)
    part[d] = slow.patterns[layer][head, d, s] * slow.values[layer][head][s] @ t[f"layers.{layer}.W_O"][head]
    if c.norm_placement in ("post_sublayer", "both"):
        each = [slow.patterns[layer][h] @ slow.values[layer][h] @ t[f"layers.{layer}.W_O"][h] for h in range(c.n_heads)]
        whole = np.sum(each, axis=0) + (t[f"layers.{layer}.b_O"] if "o" in c.biases else 0)
        part = slow.frozen(f"layers.{layer}.attn_post_norm", whole, part)
    out = slow.to_logits(part)[d]
    return out - out.mean()


@pytest.mark.parametrize(
    "name", ["attention-only", "smeared", "gpt2", "llama", "both-norms-capped", "layer-norms-behind", "odd", "parallel"]
)
def test_sources_and_destinations_are_pattern_times_what_is_carried(folder: Path, name: str) -> None:
    ask = asker(folder, name)
    slow = slow_parts(folder, name)
    heads = (Head(1, 2), Head(0, 1), Head(1, 0))
    last = int((slow.logits[-1]).argmax())
    into = ask("token_attribution", TokenAttributionParams(position=5, heads=heads))
    out = ask("token_attribution", TokenAttributionParams(position=2, heads=heads, direction="destinations"))
    for i, (layer, head) in enumerate(heads):
        window = ask.config.window(layer) or len(TOKENS)
        for s in range(len(TOKENS)):
            wanted = _sent(slow, layer, head, 5, s)[TOKENS[6]] if 5 - window < s <= 5 else np.nan
            assert into.values[i, s] == pytest.approx(wanted, abs=1e-10, nan_ok=True)
        for d in range(len(TOKENS)):
            target = TOKENS[d + 1] if d + 1 < len(TOKENS) else last
            wanted = _sent(slow, layer, head, d, 2)[target] if 0 <= d - 2 < window else np.nan
            assert out.values[i, d] == pytest.approx(wanted, abs=1e-10, nan_ok=True)
    np.testing.assert_allclose(into.summed[:6], np.nansum(into.values, axis=0)[:6], atol=1e-12)
    assert np.isnan(into.summed[6:]).all() and np.isnan(out.summed[:2]).all()
    assert into.remainder.size < 1e-10 and out.remainder is None
    assert [tuple(h) for h in into.heads] == list(heads)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "layer-norms-behind"])
@pytest.mark.parametrize("edits", [(), EDITS], ids=["free", "cut"])
def test_sources_add_up_to_the_direct_contribution_of_each_head(folder: Path, name: str, edits: Any) -> None:
    ask = asker(folder, name)
    target = Target((4, 2))
    whole = ask("direct_attribution", DirectAttributionParams(target, position=7), edits=edits)
    result = ask("token_attribution", TokenAttributionParams(target, 7), edits=edits)
    each = np.nansum(result.values, axis=1) + result.placed
    np.testing.assert_allclose(each, whole.heads[:, :, 0].ravel(), atol=1e-10)
    assert result.total == pytest.approx(float(whole.total[0]), abs=1e-10)
    assert result.rest == pytest.approx(float(whole.others.sum()), abs=1e-10)
    assert result.remainder.size < 1e-10
    placed = {str(Head(*map(int, h))) for h, p in zip(result.heads, result.placed, strict=True) if abs(p) > 1e-12}
    assert placed == ({"L1H0"} if edits else set())  # the mean of z comes from no source; a zeroed head adds nothing
    assert not edits or not np.nan_to_num(result.values[1]).any()


def test_one_destination_and_one_source_meet_in_the_same_number(folder: Path) -> None:
    ask = asker(folder, "llama")
    into = ask("token_attribution", TokenAttributionParams(Target((4,)), 7), edits=EDITS[:1])
    out = ask("token_attribution", TokenAttributionParams(Target((4,)), 3, direction="destinations"), edits=EDITS[:1])
    np.testing.assert_allclose(into.values[:, 3], out.values[:, 7], atol=1e-12)


def test_centring_the_target_is_what_centred_weights_do(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    raw, centred = (ask("token_attribution", TokenAttributionParams(Target((4,)), 7), conventions=c) for c in (RAW, DOUBLE))
    np.testing.assert_allclose(raw.values, centred.values, atol=1e-10)
    assert raw.total == pytest.approx(centred.total, abs=1e-10)
    assert any("minus its mean over the vocabulary" in word for word in raw.conventions)


@pytest.mark.parametrize("direction", ["sources", "destinations"])
@pytest.mark.parametrize("tokens", [(3,), tuple([3, 4] * 24)])
def test_every_visible_source_has_a_number(folder: Path, direction: Any, tokens: Any) -> None:
    ask = asker(folder, "gpt2")
    result = ask("token_attribution", TokenAttributionParams(position=0, direction=direction), tokens)
    seen = ~np.isnan(result.values)
    assert seen[:, 0].all()
    assert seen[:, 1:].all() == (direction == "destinations") or len(tokens) == 1
    with pytest.raises(BadInput, match="head"):
        ask("token_attribution", TokenAttributionParams(heads=(Head(5, 0),)), tokens)


# --- residual norms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped", "parallel", "post-residual"])
def test_norms_are_lengths_and_cosines_of_what_is_added(folder: Path, name: str) -> None:
    ask = asker(folder, name)
    result = ask("residual_norms", ResidualNormsParams(3))
    parts = None if name == "post-residual" else slow_parts(folder, name)
    run = ask.run()
    stages = dict(zip(result.stages, result.stream, strict=True))
    np.testing.assert_allclose(stages["L1 in"], np.linalg.norm(run.get("resid_pre", 1).numpy(), axis=1), atol=1e-10)
    assert run.final is not None
    np.testing.assert_allclose(stages["final"], np.linalg.norm(run.final.numpy(), axis=1), atol=1e-10)
    if parts is None:
        return
    added = dict(zip(result.components, result.added, strict=True))
    cosine = dict(zip(result.components, result.cosine, strict=True))
    for layer, x in enumerate(parts.streams):
        out = np.sum(parts.heads[layer], axis=0) + parts.biases[layer]
        np.testing.assert_allclose(added[f"attention L{layer}"], np.linalg.norm(out, axis=1), atol=1e-10)
        wanted = [o @ s / np.linalg.norm(o) / np.linalg.norm(s) for o, s in zip(out, x, strict=True)]
        np.testing.assert_allclose(cosine[f"attention L{layer}"], wanted, atol=1e-10)
        if parts.mlps:
            onto = x if ask.config.parallel else parts.mids[layer]
            wanted = [o @ s / np.linalg.norm(o) / np.linalg.norm(s) for o, s in zip(parts.mlps[layer], onto, strict=True)]
            np.testing.assert_allclose(cosine[f"MLP L{layer}"], wanted, atol=1e-10)
            np.testing.assert_allclose(added[f"MLP L{layer}"], np.linalg.norm(parts.mlps[layer], axis=1), atol=1e-10)
    np.testing.assert_array_equal(result.across()["stream"], result.stream[:, 3])


def test_norms_of_a_cut_run_show_the_cut(folder: Path) -> None:
    ask = asker(folder, "gpt2")
    halved = Intervention("scale", Site("resid_pre", 1), (0.5,))
    free, cut = (ask("residual_norms", ResidualNormsParams(), edits=e) for e in ((), (halved,)))
    at = free.stages.index("L1 in")
    np.testing.assert_allclose(cut.stream[at], free.stream[at] / 2, rtol=1e-12)
    np.testing.assert_allclose(cut.cosine[cut.components.index("intervention L1")], -1, atol=1e-12)
    silent = ask("residual_norms", ResidualNormsParams(), edits=(Intervention("zero", Site("mlp_out", 0)),))
    assert not silent.added[silent.components.index("MLP L0")].any()
    long = ask("residual_norms", ResidualNormsParams(), tuple([3, 4] * 24))
    assert long.stream.shape == (5, 48) and not np.isnan(long.stream).any()


def test_cancelled_norms_are_gone_on_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asker(folder, "gpt2")
    monkeypatch.setattr("circuitlab.analysis.attribution.residual_norms.ROWS", 4)
    request = Request.named("residual_norms", ResidualNormsParams(), ask.subject(TOKENS, (), RAW))
    stops = _Stops(2)  # two layers of the first tile; the second tile is not begun
    with pytest.raises(Cancelled):
        ask.engine.answer(request, stops)
    assert [p.done for p in stops.shown] == [pytest.approx(4 / 9)]
    assert np.isnan(stops.shown[0].stream[:, 4:]).all()
    result: Any = ask.engine.answer(request, _Stops(4)).result
    fresh: Any = ask.engine.answer(request, fresh=True).result
    np.testing.assert_array_equal(result.stream, fresh.stream)
    np.testing.assert_array_equal(result.cosine, fresh.cosine)
    assert result.done == 1 and result.components == fresh.components


@pytest.mark.parametrize("site", ["z", "result"])
@pytest.mark.parametrize("more", [{}, {"align": (0, 1, 2, 4, 3, -1, -1, -1, -1)}], ids=["shorter", "no partner"])
def test_a_patch_that_leaves_a_position_alone_leaves_its_sources(folder: Path, site: Any, more: Any) -> None:
    """In the last layer a patch changes nothing but the positions that have a partner."""
    ask = asker(folder, "gpt2")
    source = (0, 2, 6, 1, 4) if not more else (0, 2, 6, 1, 4, 4, 4, 4, 4, 4)
    edits = (Intervention("patch", Site(site, 1, (1, 2)), source=source, **more),)
    assert not np.allclose(ask("token_attribution", TokenAttributionParams(position=4), edits=edits).placed, 0)
    for position in (5, 7, 8):
        p = TokenAttributionParams(Target((3,)), position)
        free, found = ask("token_attribution", p), ask("token_attribution", p, edits=edits)
        np.testing.assert_allclose(found.values, free.values, atol=1e-12)
        assert not found.placed.any() and found.remainder.size < 1e-10
    p = TokenAttributionParams(Target((3,)), 2, direction="destinations")
    free, found = ask("token_attribution", p), ask("token_attribution", p, edits=edits)
    np.testing.assert_allclose(found.values[:, 5:], free.values[:, 5:], atol=1e-12)
    assert not found.values[[5, 6], :5][:, 2:].any() and free.values[[5, 6], 2:5].all()
