"""Path expansion against materialised products, against a frozen forward pass written here, and against closed forms."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from circuitlab.analysis.attribution.path_expansion import PathExpansionParams, PathExpansionResult
from circuitlab.analysis.base import NullContext
from circuitlab.analysis.composition.virtual_head import VirtualHeadParams, VirtualHeadResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.model import block
from circuitlab.model.folding import final_norm, under
from circuitlab.model.forward import embedded, forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.model.weights import Norm
from tests.constructed import directory_of
from tests.models import CONFIGS, directory

TOKENS, OTHER = (0, 5, 4, 5, 3, 5, 1, 2, 5), (1, 6, 6, 2, 3, 1, 0, 2, 4)
PLAIN = Conventions(fold_norm=False, centre=False, dtype="float64")
DOUBLE = Conventions(dtype="float64")
EDITS = {
    "cut": (Intervention("zero", Site("z", 0, (1,))), Intervention("scale", Site("result", 1, (2,)), (-2.0,))),
    "values": (Intervention("zero", Site("v", 0, (0,))), Intervention("set", Site("v", 1, (0,), (1, 3)), (0.3,))),
    "replaced": (
        Intervention("mean", Site("z", 1, (1,), (2, 8))),
        Intervention("patch", Site("z", 0, (0,)), source=OTHER[:5], align=(0, -1, 2, 3, 4, -1, 7, 4, 3)),
        Intervention("set", Site("result", 0, (2,)), (0.3,)),
    ),
    "stream": (
        Intervention("zero", Site("resid_pre", 0, (), (2,))),
        Intervention("patch", Site("resid_pre", 1, (), (2, 8)), source=OTHER),
        Intervention("scale", Site("resid_pre", 1, (), (1,)), (3.0,)),
    ),
    "pattern": (
        Intervention("zero", Site("q", 0, (0,))),
        Intervention("mean", Site("pattern", 1, (1,))),
        Intervention("scale", Site("pattern", 0), (0.5,)),
    ),
}


class Model:
    """An engine on one directory, and the run under the same conventions to compare with."""

    def __init__(self, path: Path, conventions: Conventions = PLAIN) -> None:
        self.engine, self.ref, self.conventions = Engine(ModelStore()), ModelRef(f"file:{path}"), conventions

    def __call__(self, p: Any = None, tokens: tuple[int, ...] = TOKENS, edits: Any = (), name: str = "path_expansion") -> Any:
        subject = Subject(self.ref, tokens, edits, self.conventions)
        return self.engine.answer(Request.named(name, p or PathExpansionParams(), subject)).result

    def run(self, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> Run:
        return forward(under(self.engine.store.open(self.ref).opened.weights, self.conventions), tokens, edits)


Make = Callable[..., Model]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`model(name, conventions, n_layers)`: a random model of one of the test shapes, made once."""

    @cache
    def make(name: str, conventions: Conventions = PLAIN, n_layers: int = 3) -> Model:
        windows = (3, 0, 4)[:n_layers] if CONFIGS[name].windows else ()
        config = replace(CONFIGS[name], n_layers=n_layers, windows=windows)
        return Model(directory(tmp_path_factory.mktemp("m") / "m", config, tokenizer=False), conventions)

    return make


def terms(found: PathExpansionResult) -> dict[tuple[tuple[int, int], ...], np.ndarray]:
    """by_source of every path of order ≥ 1, by its heads."""
    pairs = zip(found.order, found.heads, found.by_source, strict=True)
    return {tuple((int(a), int(b)) for a, b in row if a >= 0): values for k, row, values in pairs if k}


def adds_up(found: PathExpansionResult, most: float) -> None:
    """Terms, paths left out and deeper orders against the whole; every head's orders against what it writes."""
    assert found.remainder is not None and found.remainder.of > 0
    deeper = found.orders[int(found.order.max()) + 1 :].sum()
    for left in (
        found.remainder.size,
        abs(found.value.sum() + found.left_out.sum() + deeper - found.whole),
        abs(found.head_orders.sum(-1) - found.head_total).max(),
        abs(found.head_orders.sum((0, 1))[1:] - found.orders[1:]).max(),
    ):
        assert left <= most * found.remainder.of
    assert found.done == 1


# ---------------------------------------------------------------------------------- the definition, matrices and all


@pytest.mark.parametrize("name", ["attention-only", "no-positions", "smeared-rotary", "odd"])
def test_every_path_of_an_attention_only_model_is_its_product_of_pattern_and_weights(model: Make, name: str) -> None:
    asker, position = model(name), 6
    run = asker.run()
    weights, c, n = run.weights, run.weights.config, len(TOKENS)
    x0 = weights.embed().W_E[list(TOKENS)].numpy()
    read = np.kron(np.eye(n)[position], weights.unembed().W_U[:, 2].numpy())  # of vec(x), position by position
    whole = {}
    for i, h in itertools.product(range(3), range(c.n_heads)):
        layer = weights.layer(i)
        W_OV = (layer.W_V[h // c.group] @ layer.W_O[h]).numpy()
        whole[i, h] = np.kron(run.get("pattern", i, (h,))[0].numpy(), W_OV.T)
    assert c.norm == "none"
    result = asker(PathExpansionParams(Target((2,)), position, order=3, most=0))
    got = terms(result)
    wanted = {}
    for k in (1, 2, 3):
        for layers in itertools.combinations(range(3), k):
            for heads in itertools.product(range(c.n_heads), repeat=k):
                path = tuple(zip(layers, heads, strict=True))
                out = x0.ravel()
                for head in path:
                    out = whole[head] @ out
                wanted[path] = read @ out
    assert set(got) == set(wanted)
    for path, value in wanted.items():
        assert got[path].sum() == pytest.approx(value, abs=1e-10)
    np.testing.assert_allclose(result.value[0], read @ x0.ravel(), atol=1e-12)
    for k in (1, 2, 3):
        assert result.orders[k] == pytest.approx(sum(v for path, v in wanted.items() if len(path) == k), abs=1e-9)


# ---------------------------------------------------------------------------------- norms: a frozen pass with a dial per head


def at_scale(x: Tensor, norm: Norm, kind: str, scale: Tensor) -> Tensor:
    x = (x - x.mean(-1, keepdim=True) if kind == "layer" else x) * scale
    return x if norm.gain is None else x * norm.gain


class Frozen:
    """The target of a run with each head's output multiplied by a dial, from some sources only, everything else as recorded.

    It is a polynomial in the dials: the coefficient of d_1 d_2 … is the path through those heads.
    """

    def __init__(self, run: Run, position: int, D: Tensor) -> None:
        self.run, self.c, self.position, self.D = run, run.weights.config, position, D
        self.x0 = embedded(self.c, run.weights.embed(), torch.tensor(run.tokens), 0)

    def __call__(self, dial: Tensor, embeddings: bool = True, mlp: tuple[int, ...] = (), biases: bool = False) -> float:
        c, run, zero = self.c, self.run, torch.zeros_like(self.x0)
        x = self.x0 if embeddings else zero
        for i in range(c.n_layers):
            layer, read = run.weights.layer(i), x
            if c.norm_placement in ("pre", "both"):
                read = at_scale(x, layer.attn_norm, c.norm, run.get("attn_norm_scale", i))
                read = read + layer.attn_norm.bias if biases and layer.attn_norm.bias is not None else read
            pattern, out = run.get("pattern", i), zero
            for h in range(c.n_heads):
                kv = h // c.group
                v = read @ layer.W_V[kv]
                v = v + layer.b_V[kv] if biases and layer.b_V is not None else v
                out = out + dial[i, h] * (pattern[h] @ v) @ layer.W_O[h]
            out = out + layer.b_O if biases and layer.b_O is not None else out
            if c.norm_placement in ("post_sublayer", "both"):
                written = run.get("result", i).sum(0) + (0 if layer.b_O is None else layer.b_O)
                out = at_scale(out, layer.attn_post_norm, c.norm, block.norm_scale(written, c.norm, c.norm_eps))
            x = x + out
            if i in mlp:
                x = x + run.get("mlp_out", i)
        ends = run.weights.unembed()
        assert run.final is not None
        if c.final_norm:
            x = at_scale(x, ends.norm, c.norm, block.norm_scale(run.final, c.norm, c.norm_eps))
        return float(x[self.position] @ self.D)

    def path(self, heads: tuple[tuple[int, int], ...], **sources: Any) -> float:
        """The coefficient of these dials, by inclusion and exclusion."""
        total = 0.0
        for k in range(len(heads) + 1):
            for some in itertools.combinations(heads, k):
                dial = torch.zeros(self.c.n_layers, self.c.n_heads, dtype=torch.float64)
                for head in some:
                    dial[head] = 1
                total += (-1) ** (len(heads) - k) * self(dial, **sources)
        return total

    def order(self, k: int, **sources: Any) -> float:
        """The sum of all paths of k heads: a coefficient of the polynomial in one dial for all."""
        at = np.linspace(-1, 1, self.c.n_layers + 1)
        dials = [torch.full((self.c.n_layers, self.c.n_heads), t, dtype=torch.float64) for t in at]
        values = [self(dial, **sources) for dial in dials]
        return float(np.polynomial.polynomial.polyfit(at, values, self.c.n_layers)[k])


SHAPES = ["gpt2", "llama", "both-norms-capped", "post-sublayer", "parallel", "tied-scaled", "sinusoidal", "smeared-rotary"]


@pytest.mark.parametrize("name", SHAPES)
def test_paths_are_the_coefficients_of_a_frozen_pass(model: Make, name: str) -> None:
    asker, position = model(name), 7
    run = asker.run()
    slow = Frozen(run, position, run.weights.unembed().W_U[:, 3] - run.weights.unembed().W_U[:, 1])
    result = asker(PathExpansionParams(Target((3, 1)), position))
    got, source = terms(result), {str(s): i for i, s in enumerate(result.sources)}
    first = [source[s] for s in ("embedding", "position") if s in source]
    mlps = () if run.weights.config.attention_only else (0, 1, 2)
    for path in [((0, 1),), ((2, 0),), ((0, 2), (1, 1)), ((1, 0), (2, 2)), ((0, 0), (2, 1))]:
        assert got[path][first].sum() == pytest.approx(slow.path(path), abs=1e-10)
        assert got[path].sum() == pytest.approx(slow.path(path, mlp=mlps, biases=True), abs=1e-10)
        for i in mlps:
            assert got[path][source[f"L{i} MLP"]] == pytest.approx(slow.path(path, embeddings=False, mlp=(i,)), abs=1e-10)
    for k in (1, 2, 3):
        assert result.orders[k] == pytest.approx(slow.order(k, mlp=mlps, biases=True), abs=1e-9)


# ---------------------------------------------------------------------------------- sums equal wholes


@pytest.mark.parametrize("edits", ["none", *EDITS])
@pytest.mark.parametrize("name", [n for n in CONFIGS if n != "post-residual"])
def test_all_terms_add_up_to_the_target(model: Make, name: str, edits: str) -> None:
    asker, chosen = model(name, DOUBLE), EDITS.get(edits, ())
    if edits == "values" and not CONFIGS[name].attention_only:
        mlps = (Intervention("zero", Site("mlp_out", 0)), Intervention("set", Site("mlp_out", 1), (0.1,)))
        cut = Intervention("zero", Site("v", 1, (0,)), path_from=Site("result", 0, (1,)))
        chosen = (*chosen, *mlps, *((cut,) if CONFIGS[name].norm_placement == "pre" else ()))
    run = asker.run(edits=chosen)
    result = asker(PathExpansionParams(Target((3,)), 5, 1), edits=chosen)
    adds_up(result, 1e-9)
    cap = CONFIGS[name].logit_soft_cap
    reached = float(run.logits()[5, 3])
    assert (cap * np.tanh(result.whole / cap) if cap else result.whole) == pytest.approx(reached, abs=1e-10)
    beside = asker(PathExpansionParams(Target((3,)), -1, 2, "log_prob", 7), edits=chosen)
    adds_up(beside, 1e-9)
    assert beside.whole == pytest.approx(float(run.log_probs()[-1, 3]), abs=1e-10)
    assert beside.n_left_out[2] == 3 * CONFIGS[name].n_heads ** 2 - 7


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped", "odd"])
@pytest.mark.parametrize("edits", ["none", "replaced", "stream"])
def test_single_precision_stays_within_a_ten_thousandth_of_the_range(model: Make, name: str, edits: str) -> None:
    asker = model(name, Conventions(), 4 if not CONFIGS[name].windows else 3)
    for p in (PathExpansionParams(), PathExpansionParams(order=0), PathExpansionParams(Target((3, 1)), 4, 4)):
        adds_up(asker(p, edits=EDITS.get(edits, ())), 1e-4)


def test_conventions_move_no_path_of_a_difference(model: Make) -> None:
    folded, plain = (model("gpt2", c) for c in (DOUBLE, PLAIN))
    p = PathExpansionParams(Target((3, 1)), 5, 3, most=0)
    a, b = terms(folded(p)), terms(plain(p))
    assert set(a) == set(b)
    np.testing.assert_allclose([a[k].sum() for k in a], [b[k].sum() for k in a], atol=1e-11)


def test_the_total_of_a_head_is_what_it_writes_read_at_the_target(model: Make) -> None:
    asker = model("llama")
    run = asker.run(edits=EDITS["replaced"])
    result = asker(PathExpansionParams(Target((3,)), 5), edits=EDITS["replaced"])
    ends = run.weights.unembed()
    assert run.final is not None and ends.norm.gain is not None
    scale = (run.final[5].square().mean() + run.weights.config.norm_eps).rsqrt()
    for i in range(3):
        wanted = run.get("result", i)[:, 5] * ends.norm.gain * scale @ ends.W_U[:, 3]
        np.testing.assert_allclose(result.head_total[i], wanted.numpy(), atol=1e-12)


# ---------------------------------------------------------------------------------- interventions


def test_a_head_that_is_cut_is_on_no_path_and_a_scaled_one_scales_its_paths(model: Make) -> None:
    asker = model("gpt2")
    edits = (Intervention("zero", Site("z", 0, (1,))), Intervention("scale", Site("result", 2, (2,)), (-2.0,)))
    cut, source = asker(edits=edits), asker(edits=edits).sources.tolist()
    assert all(not values.any() for path, values in terms(cut).items() if (0, 1) in path)
    assert cut.head_total[0, 1] == 0
    assert not cut.by_source[:, source.index("intervention")].any()
    half = asker(edits=(edits[0], replace(edits[1], value=(-4.0,))), p=PathExpansionParams(Target((3, 1))))
    once = asker(edits=edits, p=PathExpansionParams(Target((3, 1))))
    one, two = (np.array([v.sum() for path, v in terms(f).items() if path[-1] == (2, 2)]) for f in (once, half))
    np.testing.assert_allclose(one / one[0], two / two[0], rtol=1e-9)  # up to the final scale, which moved


def test_what_replaces_a_value_is_a_source_in_its_own_head(model: Make) -> None:
    asker = model("attention-only")
    result = asker(edits=(Intervention("set", Site("z", 0, (1,)), (0.25,)),))
    source = result.sources.tolist().index("intervention")
    for path, values in terms(result).items():
        assert bool(values[source]) == (path[0] == (0, 1))
        if (0, 1) in path:
            assert not values[:source].any()


# ---------------------------------------------------------------------------------- closed forms


def test_the_hand_built_induction_head_is_one_path(tmp_path: Path) -> None:
    path = directory_of(tmp_path / "c")
    asker, tokens = Model(path), (0, 3, 7, 9, 2, 3, 7, 5, 3)
    result = asker(PathExpansionParams(Target((7,))), tokens)
    pattern = asker.run(tokens).get("pattern", 1)[0, -1].numpy()
    attended = sum(pattern[s] for s, t in enumerate(tokens) if t == 7)
    assert attended > 0.97
    got = {path: values.sum() for path, values in terms(result).items()}
    assert got[(1, 0),] == pytest.approx(20 * attended, abs=1e-4)
    assert got[(0, 0),] == pytest.approx(0, abs=1e-6)
    assert got[(0, 0), (1, 0)] == pytest.approx(0, abs=1e-5)
    assert result.orders[0] == pytest.approx(0, abs=1e-6)
    adds_up(result, 1e-9)


def _previous(layer: int, n: int) -> tuple[Intervention, ...]:
    """Attention of a layer put on the position before (the first on itself)."""
    rows = [[float(s == max(d - 1, 0)) for s in range(n)] for d in range(n)]
    return tuple(Intervention("set", Site("pattern", layer, (), (d,)), tuple(row)) for d, row in enumerate(rows))


def test_two_previous_token_heads_are_a_virtual_head_that_looks_two_back(model: Make) -> None:
    asker, n = model("no-positions", n_layers=2), len(TOKENS)
    edits = (*_previous(0, n), *_previous(1, n))
    found: VirtualHeadResult = asker(VirtualHeadParams(Head(0, 1), Head(1, 2)), edits=edits, name="virtual_head")
    for d in range(n):
        np.testing.assert_array_equal(np.flatnonzero(np.nan_to_num(found.pattern[d])), [max(d - 2, 0)])
    assert found.sums_to_one
    w = asker.run().weights
    first, second = w.layer(0), w.layer(1)
    x = w.embed().W_E[TOKENS[-3]]
    wanted = x @ first.W_V[1] @ first.W_O[1] @ second.W_V[2] @ second.W_O[2] @ w.unembed().W_U[:, 3]
    values = terms(asker(PathExpansionParams(Target((3,))), edits=edits))
    assert values[(0, 1), (1, 2)].sum() == pytest.approx(float(wanted), abs=1e-12)


# ---------------------------------------------------------------------------------- virtual heads


@pytest.mark.parametrize("name", ["attention-only", "llama", "both-norms-capped", "gpt2"])
def test_a_composed_pattern_has_the_scale_between_its_two_patterns(model: Make, name: str) -> None:
    asker = model(name)
    run, c = asker.run(), CONFIGS[name]
    a, b = (run.get("pattern", i)[h].numpy() for i, h in ((0, 3), (2, 1)))
    scale = np.ones(len(TOKENS))
    if c.norm != "none":
        x = run.get("resid_pre", 2).numpy()
        x = x - x.mean(1, keepdims=True) if c.norm == "layer" else x
        scale = 1 / np.sqrt((x**2).mean(1) + c.norm_eps)
    if c.norm_placement == "both":
        written = run.get("result", 0).numpy().sum(0)
        scale = scale / np.sqrt((written**2).mean(1) + c.norm_eps)
    result = asker(VirtualHeadParams(Head(0, 3), Head(2, 1)), name="virtual_head")
    np.testing.assert_allclose(np.nan_to_num(result.pattern), b @ np.diag(scale) @ a, atol=1e-12)
    np.testing.assert_allclose(result.row_sums, (b @ np.diag(scale) @ a).sum(1), atol=1e-12)
    assert result.sums_to_one == (c.norm == "none")
    assert np.isnan(result.pattern[0, 1:]).all()
    assert result.table().n_rows == (~np.isnan(result.pattern)).sum()


def test_a_virtual_head_needs_two_layers(model: Make) -> None:
    asker = model("attention-only")
    with pytest.raises(Refused, match="earlier layer"):
        asker(VirtualHeadParams(Head(1, 0), Head(1, 2)), name="virtual_head")
    with pytest.raises(BadInput, match="no such head"):
        asker(VirtualHeadParams(Head(0, 0), Head(1, 9)), name="virtual_head")


# ---------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("name", ["attention-only", "both-norms-capped", "odd", "gpt2"])
@pytest.mark.parametrize("tokens", [(1,), tuple([3] * 48)])
def test_shortest_and_longest_prompts(model: Make, name: str, tokens: tuple[int, ...]) -> None:
    found = model(name, DOUBLE)(tokens=tokens)
    adds_up(found, 1e-9)
    assert all(not np.isnan(a).any() for a in found.arrays().values() if a.dtype.kind == "f")
    assert found.target_ids[1] == -1
    table = found.table()
    assert table.n_rows == len(found.order) + 1  # the third order, as a sum
    assert {c.name for c in table.columns} >= {"path", "order", "contribution", "from embedding"}


def test_what_is_left_out_is_the_smallest_and_is_summed(model: Make) -> None:
    asker = model("attention-only", DOUBLE)
    every, some = asker(PathExpansionParams(most=0)), asker(PathExpansionParams(most=5))
    sizes = np.sort(np.abs(every.value[every.order == 2]))[::-1]
    np.testing.assert_array_equal(np.abs(some.value[some.order == 2]), sizes[:5])
    assert some.left_out[2] == pytest.approx(every.value[every.order == 2].sum() - some.value[some.order == 2].sum())
    assert any("43 smaller paths" in word for word in some.conventions)
    assert {"head_total", "orders"} == set(some.across())


def test_a_direction_is_measured_in_the_normalised_stream(model: Make) -> None:
    asker = model("llama", DOUBLE)
    direction = tuple(np.random.default_rng(0).normal(size=24).tolist())
    found, run = asker(PathExpansionParams(Target(direction=direction), 4)), asker.run()
    assert run.final is not None
    end = final_norm(run.weights)  # with its gain, which the usual view has folded into W_U
    assert end.gain is not None
    x = block.normalise(run.final[4], end, "rms", run.weights.config.norm_eps)
    assert found.whole == pytest.approx(float(x @ torch.tensor(direction, dtype=torch.float64)), abs=1e-12)
    assert found.remainder is not None and found.remainder.of >= 2 * abs(found.whole)
    adds_up(found, 1e-9)
    with pytest.raises(Refused, match="log-probability"):
        asker(PathExpansionParams(Target(direction=direction), measure="log_prob"))


def test_what_cannot_be_asked(model: Make) -> None:
    with pytest.raises(Refused, match="stream itself"):
        model("post-residual")()
    asker = model("attention-only")
    for p in (PathExpansionParams(order=-1), PathExpansionParams(most=-1)):
        with pytest.raises(BadInput, match="out of bounds"):
            asker(p)
    with pytest.raises(BadInput, match="position"):
        asker(PathExpansionParams(position=9))


def test_listed_paths_come_before_deeper_orders_and_twice_is_the_same(model: Make) -> None:
    asker, seen = model("gpt2", Conventions()), []

    class Listening(NullContext):
        def partial(self, result: Any) -> None:
            seen.append(result)

    request = Request.named("path_expansion", PathExpansionParams(), Subject(asker.ref, TOKENS, (), asker.conventions))
    first = asker.engine.answer(request, Listening(), fresh=True)
    assert first.fingerprint == asker.engine.answer(request, NullContext(), fresh=True).fingerprint
    assert seen[0].done < 1
    result = first.result
    assert isinstance(result, PathExpansionResult)
    assert np.isnan(seen[0].orders[3]) and not np.isnan(result.orders).any()
    np.testing.assert_array_equal(seen[0].value, result.value)
