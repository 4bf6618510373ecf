"""Scores taken apart, against the definition written out over positions and writers in double precision."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.analysis.attribution.score_expansion import GROUPS, ScoreExpansionParams, ScoreExpansionResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel, _rotated
from tests.shipped_models import induction_head
from tests.unit.test_composition import gauged

TOKENS = (0, 5, 3, 5, 2, 5, 3, 6, 5)
HEAD = Head(2, 2)
CLASSES = [
    "attention-only",
    "smeared",
    "gpt2",
    "sinusoidal",
    "rotary-partial",
    "alibi",
    "llama",
    "smeared-rotary",
    "post-residual",
    "post-sublayer",
    "both-norms-capped",
    "parallel",
    "odd",
    "tied-scaled",
]
Parts = dict[str, np.ndarray]


def deep(name: str) -> ModelConfig:
    config = CONFIGS[name]
    return replace(config, n_layers=3, windows=(3, 0, 0) if config.windows else ())


def ask(path: Path, p: Any, edits: Any = (), tokens: tuple[int, ...] = TOKENS, **conventions: Any) -> ScoreExpansionResult:
    subject = Subject(ModelRef(f"file:{path}"), tokens, edits, Conventions(**{"dtype": "float64", **conventions}))
    result = Engine(ModelStore()).answer(Request.named("score_expansion", p, subject)).result
    assert isinstance(result, ScoreExpansionResult)
    return result


def whole(parts: Parts) -> np.ndarray:
    return np.sum(list(parts.values()), axis=0)


class SlowParts:
    """Every writer's vector, one position at a time, followed through every norm at the scale of the whole."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        self.c, self.m = config, SlowModel(config, load_file(path / "model.safetensors"))

    def behind(self, parts: Parts, prefix: str, kind: str) -> Parts:
        """Parts through a norm that sees their sum."""
        if kind == "none":
            return parts
        total = whole(parts)
        centred = lambda x: x - x.mean(-1, keepdims=True) if kind == "layer" else x
        deviation = np.sqrt((centred(total) ** 2).mean(-1, keepdims=True) + self.c.norm_eps)
        gain, bias = self.m.t.get(f"{prefix}.gain", 1.0), self.m.t.get(f"{prefix}.bias")
        made = {name: centred(x) / deviation * gain for name, x in parts.items()}
        if bias is not None:
            made["norm biases"] = made.get("norm biases", 0) + np.tile(bias, (len(total), 1))
        return made

    def stream(self, tokens: tuple[int, ...], layer: int) -> Parts:
        c, m, at = self.c, self.m, "layers.{}."
        parts = {"embedding": np.stack([m.t["embed.W_E"][i] * c.embed_scale for i in tokens])}
        first = m.run(tokens)[1][0]
        if c.positions in ("learned", "sinusoidal"):
            parts["position"] = first - parts["embedding"]
        before, after = c.norm_placement in ("pre", "both"), c.norm_placement in ("post_sublayer", "both")
        for i in range(layer):
            x, prefix = whole(parts), at.format(i)
            written = self._heads(i, m._named_norm(i, "attn_norm", x) if before else x)
            parts = {**parts, **(self.behind(written, f"{prefix}attn_post_norm", c.norm) if after else written)}
            merged = whole(parts)
            if c.norm_placement == "post_residual":
                parts = self.behind(parts, f"{prefix}attn_post_norm", c.norm)
                merged = whole(parts)
            if c.d_mlp:
                source = x if c.parallel else merged
                out = m._mlp(i, m._named_norm(i, "mlp_norm", source) if before else source)
                parts[f"MLP {i}"] = m._named_norm(i, "mlp_post_norm", out) if after else out
                if c.norm_placement == "post_residual":
                    parts = self.behind(parts, f"{prefix}mlp_post_norm", c.norm)
        return parts

    def _heads(self, i: int, read: np.ndarray) -> Parts:
        c, m = self.c, self.m
        pattern = m._attention(i, read)[1]
        found = {}
        for h in range(c.n_heads):
            v = m._vectors(i, "V", c.kv_head(h), read)
            found[f"L{i}H{h}"] = pattern[h] @ v @ m.t[f"layers.{i}.W_O"][h]
        if "o" in c.biases:
            found[f"b_O {i}"] = np.tile(m.t[f"layers.{i}.b_O"], (len(read), 1))
        return found

    def side(self, which: str, head: Head, tokens: tuple[int, ...]) -> Parts:
        """Parts [pos, d_head] of the queries (Q) or keys (K)."""
        c, t, at = self.c, self.m.t, f"layers.{head.layer}."
        row = head.head if which == "Q" else c.kv_head(head.head)
        parts = self.stream(tokens, head.layer)
        if c.norm_placement in ("pre", "both"):
            parts = self.behind(parts, f"{at}attn_norm", c.norm)
        if c.positions == "shortformer":
            parts["position"] = t["embed.W_pos"][: len(tokens)]
        made = {name: x @ t[f"{at}W_{which}"][row] for name, x in parts.items()}
        if which.lower() in c.biases:
            made[f"b_{which}"] = np.tile(t[f"{at}b_{which}"][row], (len(tokens), 1))
        made = self.behind(made, f"{at}{which.lower()}_norm", c.qk_norm)
        if which == "K" and c.smeared_keys:
            share = 1 / (1 + math.exp(-t[f"{at}smear"][row]))
            made = {
                n: np.stack([x[0], *(share * x[j] + (1 - share) * x[j - 1] for j in range(1, len(x)))]) for n, x in made.items()
            }
        if c.positions == "rotary":
            windowed = bool(c.windows and c.windows[head.layer])
            made = {n: np.stack([_rotated(v, p, c, windowed) for p, v in enumerate(x)]) for n, x in made.items()}
        return made


def as_named(parts: Parts, names: tuple[str, ...], bias: str) -> np.ndarray:
    """[component, pos, d_head] in the order of `names`; norm biases that have been folded stand with the head's own."""
    parts = dict(parts)
    if "norm biases" in parts and "norm biases" not in names:
        parts[bias] = parts.pop("norm biases") + parts.get(bias, 0)
    assert set(parts) <= set(names)
    none = np.zeros_like(next(iter(parts.values())))
    return np.stack([parts.get(name, none) for name in names])


@pytest.mark.parametrize(
    ("name", "fold"), [(n, True) for n in CLASSES] + [(n, False) for n in ("gpt2", "llama", "post-residual", "post-sublayer")]
)
def test_terms_are_products_of_what_was_written(tmp_path: Path, name: str, fold: bool) -> None:
    config = deep(name)
    slow = SlowParts(directory(tmp_path / "m", config), config)
    d, s = 7, 4
    result = ask(tmp_path / "m", ScoreExpansionParams(HEAD, d, s), fold_norm=fold, centre=fold)
    q = as_named(slow.side("Q", HEAD, TOKENS), result.names_dest, "b_Q")
    k = as_named(slow.side("K", HEAD, TOKENS), result.names_src, "b_K")
    every = config.score_scale * np.einsum("ci,esi->sce", q[:, d], k[:, : d + 1])
    if config.positions == "alibi":
        own = result.names_dest.index("ALiBi")
        every[:, own, own] = -config.slopes[HEAD.head] * (d - np.arange(d + 1))
    np.testing.assert_allclose(result.terms, every[s], atol=1e-5)  # weights are float32 on disk, the rest is double
    np.testing.assert_allclose(result.centred, every[s] - every.mean(0), atol=1e-5)
    assert result.score == pytest.approx(float(every[s].sum()), abs=1e-5)
    assert result.row_mean == pytest.approx(float(every.sum((1, 2)).mean()), abs=1e-5)
    pattern = slow.m.run(TOKENS)[2][HEAD.layer][HEAD.head]
    assert result.attention == pytest.approx(pattern[d, s], abs=1e-6)
    raw = every.sum((1, 2))
    read = config.score_soft_cap * np.tanh(raw / config.score_soft_cap) if config.score_soft_cap else raw
    np.testing.assert_allclose(np.exp(read) / np.exp(read).sum(), pattern[d, : d + 1], atol=1e-6)
    assert result.softmax_score == pytest.approx(read[s], abs=1e-5)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped"])
def test_the_remainder_is_small_in_single_precision(tmp_path: Path, name: str) -> None:
    result = ask(directory(tmp_path / "m", deep(name)), ScoreExpansionParams(HEAD, -1, 3), dtype="float32")
    assert result.remainder is not None
    assert result.remainder.of > 0
    assert result.remainder.size <= 1e-4 * result.remainder.of
    assert result.remainder.size == pytest.approx(abs(result.score - result.terms.sum()))


def test_groups_and_heads_are_sums_of_terms(tmp_path: Path) -> None:
    result = ask(directory(tmp_path / "m", deep("gpt2")), ScoreExpansionParams(HEAD, 7, 4))
    wrote = [name.startswith("L") for name in result.names_dest]
    assert wrote == [kind == "head" for kind in result.kinds]
    for terms, groups, through in (
        (result.terms, result.groups, result.through),
        (result.centred, result.groups_centred, result.through_centred),
    ):
        wanted: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
        by_head = {tuple(h): dict.fromkeys(("Q", "K", "dest", "src"), 0.0) for h in result.earlier}
        for i, first in enumerate(wrote):
            for j, second in enumerate(wrote):
                group = {(False, False): "none", (True, False): "Q", (False, True): "K", (True, True): "both"}[first, second]
                wanted[group] += terms[i, j]
                if first:
                    by_head[tuple(result.heads[i])]["dest" if second else "Q"] += terms[i, j]
                if second:
                    by_head[tuple(result.heads[j])]["src" if first else "K"] += terms[i, j]
        np.testing.assert_allclose(groups, list(wanted.values()), atol=1e-12)
        np.testing.assert_allclose(through, [list(by_head[tuple(h)].values()) for h in result.earlier], atol=1e-12)
    assert result.groups.sum() == pytest.approx(result.score)
    assert result.groups_centred.sum() == pytest.approx(result.score - result.row_mean)
    assert [tuple(h) for h in result.earlier] == [(i, h) for i in range(2) for h in range(4)]


EDITS = (
    Intervention("zero", Site("result", 0, (1,))),
    Intervention("scale", Site("resid_pre", 1, (), (1, 4, 7)), (0.5,)),
    Intervention("mean", Site("pattern", 1, (0,))),
    Intervention("set", Site("z", 1, (2,)), (0.3,)),
    Intervention("scale", Site("q", 2), (1.5,)),
    Intervention("set", Site("k", 2, (0,), (4,)), (0.25,)),
    Intervention("zero", Site("k", 2, (0,), (6,)), path_from=Site("result", 1, (0,))),
)


@pytest.mark.parametrize("name", CLASSES)
def test_sums_are_those_of_the_intervened_run(tmp_path: Path, name: str) -> None:
    config = deep(name)
    path = directory(tmp_path / "m", config)
    edits = tuple(e for e in EDITS if e.path_from is None or config.norm_placement == "pre")
    edits += () if config.attention_only else (Intervention("zero", Site("mlp_out", 0, (), (4,))),)
    head = Head(2, 0)
    result = ask(path, ScoreExpansionParams(head, 7, 4), edits)
    weights = Engine(ModelStore()).store.open(ModelRef(f"file:{path}")).weights(Conventions(dtype="float64"))
    run = forward(weights, TOKENS, edits)
    q, k = run.get("q", 2, (0,))[0].numpy(), run.get("k", 2, (0,))[0].numpy()
    scores = config.score_scale * k[:8] @ q[7]
    scores = scores - config.slopes[0] * (7 - np.arange(8)) if config.slopes else scores
    assert result.score == pytest.approx(scores[4], abs=1e-10)
    assert result.terms.sum() == pytest.approx(scores[4], abs=1e-10)
    assert result.centred.sum() == pytest.approx(scores[4] - scores.mean(), abs=1e-10)
    cut = result.names_dest.index("L0H1")
    np.testing.assert_allclose(result.terms[cut], 0, atol=1e-12)
    np.testing.assert_allclose(result.terms[:, cut], 0, atol=1e-12)
    assert "intervention" in result.kinds


def test_what_an_intervention_put_into_the_stream_is_its_own_term(tmp_path: Path) -> None:
    halved = (Intervention("scale", Site("resid_pre", 1), (0.5,)),)
    result = ask(directory(tmp_path / "m", deep("attention-only")), ScoreExpansionParams(HEAD, 7, 4), halved)
    before = [name in ("embedding", "L0H0", "L0H1", "L0H2", "L0H3") for name in result.names_dest]
    change = result.names_dest.index("interventions")
    np.testing.assert_allclose(result.terms[change], -0.5 * result.terms[before].sum(0), atol=1e-12)
    np.testing.assert_allclose(result.terms[:, change], -0.5 * result.terms[:, before].sum(1), atol=1e-12)


def test_a_key_bias_changes_no_attention(tmp_path: Path) -> None:
    result = ask(directory(tmp_path / "m", deep("gpt2")), ScoreExpansionParams(HEAD, 7, 4))
    column = result.names_src.index("b_K")
    assert np.abs(result.terms[:, column]).max() > 1e-3
    np.testing.assert_allclose(result.centred[:, column], 0, atol=1e-12)
    assert np.abs(result.centred[result.names_dest.index("b_Q")]).max() > 1e-3


@pytest.mark.parametrize("name", ["attention-only", "gpt2"])
def test_terms_do_not_depend_on_the_gauge(tmp_path: Path, name: str) -> None:
    config = replace(deep(name), biases=())
    tensors = random_tensors(config, 0, 0.35)
    save_directory(tmp_path / "a", config, tensors)
    save_directory(tmp_path / "b", config, {k: v.float() for k, v in gauged(config, tensors).items()})
    p = ScoreExpansionParams(HEAD, 7, 4)
    first, second = ask(tmp_path / "a", p), ask(tmp_path / "b", p)
    np.testing.assert_allclose(second.terms, first.terms, atol=2e-4)
    np.testing.assert_allclose(second.through_centred, first.through_centred, atol=2e-4)


def test_positions_are_counted_from_either_end(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("both-norms-capped"))
    last = ask(path, ScoreExpansionParams(HEAD, -1, -2))
    assert (last.destination, last.source, last.n_sources) == (8, 7, 9)
    np.testing.assert_array_equal(last.terms, ask(path, ScoreExpansionParams(HEAD, 8, 7)).terms)
    far = ask(path, ScoreExpansionParams(Head(0, 1), 8, 2))
    assert (far.n_sources, far.seen, far.attention) == (3, False, 0)  # a window of three
    assert math.isnan(far.softmax_score) and not math.isnan(far.score)
    assert any("mask hides" in word for word in far.conventions)
    assert far.centred.sum() == pytest.approx(far.score - far.row_mean)
    for destination, source in ((9, 0), (0, 9), (0, -10)):
        with pytest.raises(BadInput):
            ask(path, ScoreExpansionParams(HEAD, destination, source))
    with pytest.raises(BadInput):
        ask(path, ScoreExpansionParams(Head(3, 0)))


def test_without_a_source_it_is_the_one_most_attended_to(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", deep("llama"))
    result = ask(path, ScoreExpansionParams(HEAD, 6, None))
    others = [ask(path, ScoreExpansionParams(HEAD, 6, s)).attention for s in range(7)]
    assert result.source == int(np.argmax(others))
    assert sum(others) == pytest.approx(1)


def test_a_prompt_of_one_token_has_nothing_to_be_centred_against(tmp_path: Path) -> None:
    result = ask(directory(tmp_path / "m", deep("gpt2")), ScoreExpansionParams(HEAD), tokens=(4,))
    assert result.score == result.row_mean
    np.testing.assert_allclose(result.centred, 0, atol=1e-12)
    assert np.isnan(result.across()["shares"]).all() or np.isfinite(result.across()["shares"]).all()


def test_the_table_and_what_is_averaged(tmp_path: Path) -> None:
    result = ask(directory(tmp_path / "m", deep("odd")), ScoreExpansionParams(HEAD, 7, 4))
    columns = {c.name: c.values for c in result.table().columns}
    assert len(columns["term"]) == result.terms.size
    assert (np.diff(np.abs(columns["centred"])) <= 0).all()
    assert columns["term"].sum() == pytest.approx(result.score)
    averaged = result.across()
    assert averaged["shares"].sum() == pytest.approx(1)
    np.testing.assert_allclose(averaged["shares"], result.groups_centred / (result.score - result.row_mean))


def test_the_same_question_twice_is_bit_equal(tmp_path: Path) -> None:
    subject = Subject(ModelRef(f"file:{directory(tmp_path / 'm', deep('llama'))}"), TOKENS)
    prints = set()
    for other in (0, 1):
        engine = Engine(ModelStore())
        engine.answer(Request.named("score_expansion", ScoreExpansionParams(Head(1, other)), subject))
        prints.add(engine.answer(Request.named("score_expansion", ScoreExpansionParams(HEAD), subject), fresh=True).fingerprint)
    assert len(prints) == 1


def test_an_induction_cell_of_the_trained_model_is_keyed_by_its_previous_token_head() -> None:
    """The key that wins is what the previous-token head wrote there, whatever wrote the query."""
    engine, ref = Engine(ModelStore()), ModelRef("builtin:attn-only-2l")
    tokenizer = engine.store.open(ref).opened.weights.tokenizer
    assert tokenizer is not None
    text = "Captain Harville and Miss Penrose walked to the harbour. When the rain began, Captain Harville and Miss Pen"
    tokens = tuple(tokenizer.encode(text, True))
    weights = engine.store.open(ref).weights(Conventions())
    run = forward(weights, tokens)
    before = int(np.argmax([float(run.get("pattern", 0, (h,))[0].diagonal(-1).mean()) for h in range(weights.config.n_heads)]))
    d = max(i for i, token in enumerate(tokens) if tokenizer.decode((token,)) == " Har")  # the second time
    s = tokens.index(tokens[d]) + 1
    assert s < d
    result: Any = engine.answer(
        Request.named("score_expansion", ScoreExpansionParams(induction_head(), d, s), Subject(ref, tokens))
    ).result
    assert result.attention > 0.5
    total = result.score - result.row_mean
    keyed = result.through_centred[:, 1] + result.through_centred[:, 3]
    assert keyed.argmax() == before
    assert keyed[before] > 0.7 * total
    assert abs(result.groups_centred[0]) < 0.2 * total and abs(result.groups_centred[1]) < 0.2 * total
