"""Keep only these edges: against a decoder in loops, against whole passes with an intervention an edge, and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.interventions._edge_ablation import Cut, as_interventions, cut_final, cut_of
from circuitlab.analysis.interventions.ablation_sweep import Replacement
from circuitlab.analysis.interventions.circuit_faithfulness import KeepOnlyParams, KeepOnlyResult
from circuitlab.analysis.interventions.edges import KINDS, Edge, count, universe
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused, UsageError
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import unembed
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.reference.slow_edges import SlowEdges, losses
from tests.unit.test_path_edits import TOKENS, edit, of

OTHER = (0, 2, 2, 6, 1, 4)
EDITS = (
    Intervention("scale", Site("v", 0, (1,)), (2.0,)),
    Intervention("zero", Site("pattern", 1, (0,), (3,))),
    Intervention("scale", Site("result", 0, (2,)), (1.5,)),
    Intervention("zero", Site("resid_pre", 2, (), (4,))),
)
PATHS = (
    Intervention("scale", Site("k", 2, (1,)), (3.0,), path_from=Site("result", 0, (0, 2))),
    Intervention("mean", Site("v", 1), path_from=Site("result", 0, (1,))),
)
CIRCUIT = ("L0H1->L1H0:K", "L0H2->L2H1:V", "L1H0->L2H1:Q")
WITH_ENDS = (*CIRCUIT, "L2H1->logits", "L0H0->logits")
MODELS = ("attention-only", "gpt2", "llama", "odd", "parallel", "smeared-rotary")
ALL = ("Q", "K", "V", "logits")


def slow_cut(config: Any, rows: np.ndarray) -> tuple[set[Any], set[Any]]:
    """Edges to heads and heads that the unembedding does not read, as the slow decoder takes them."""
    reader = lambda d, kind: d if kind == 0 else d // config.group
    edges = {((a, b), c, reader(d, k), KINDS[k]) for a, b, c, d, k in rows.tolist() if k < 3}
    return edges, {(a, b) for a, b, _, _, k in rows.tolist() if k == 3}


def by_interventions(weights: Any, rows: np.ndarray, op: Any, source: tuple[int, ...], edits: Any) -> np.ndarray:
    """Losses of a pass with one intervention for every cut edge between heads."""
    config = weights.config
    made = []
    for a, b, c, d, k in rows.tolist():
        site = Site(("q", "k", "v")[k], c, (d if k == 0 else d // config.group,))  # type: ignore[arg-type]
        made.append(Intervention(op, site, source=source, path_from=Site("result", a, (b,))))
    return forward(weights, TOKENS, (*edits, *made)).losses().numpy()


def fast(weights: Any, rows: np.ndarray, through: Any, replacement: Replacement, edits: Any = ()) -> np.ndarray:
    run = forward(weights, TOKENS, edits)
    cut = cut_of(weights.config, rows, through)
    final = cut_final(run, cut, replacement, lambda other: forward(weights, other), lambda: None)
    return unembed(weights, weights.unembed(), final).numpy()


@pytest.mark.parametrize("through", [("Q", "K", "V"), ALL, ("K",), ("V", "logits"), ("logits",)], ids="".join)
@pytest.mark.parametrize("name", MODELS)
def test_a_pass_with_edges_cut_is_that_of_a_decoder_in_loops(name: str, through: Any) -> None:
    weights, tensors = of(replace(CONFIGS[name], n_layers=3))
    every, rng = universe(weights.config, through), np.random.default_rng(1)
    for how, share in (("zero", 1.0), ("zero", 0.5), ("mean", 0.93), ("zero", 0.04)):
        if through != ALL and share in (0.04, 0.5):
            continue
        rows = every.rows[rng.random(len(every)) < share]
        edges, unread = slow_cut(weights.config, rows)
        slow = SlowEdges(weights.config, tensors, edges, by=how, unread=unread)
        np.testing.assert_allclose(fast(weights, rows, through, Replacement(how)), slow.final(TOKENS), atol=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("edits", [(), EDITS, (*PATHS, EDITS[2])], ids=["plain", "edited", "paths"])
@pytest.mark.parametrize("how", ["zero", "mean", "resample"])
@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_it_is_an_intervention_for_every_edge(name: str, how: Any, edits: Any) -> None:
    weights, _ = of(replace(CONFIGS[name], n_layers=3))
    every, rng = universe(weights.config, ("Q", "K", "V")), np.random.default_rng(2)
    op, source = {"zero": ("zero", ()), "mean": ("mean", OTHER), "resample": ("patch", OTHER)}[how]
    replacement = Replacement(how, source, forward(weights, OTHER) if source else None)
    for share in (0.1, 0.9) if name == "gpt2" else (0.5,):
        rows = every.rows[rng.random(len(every)) < share]
        wanted = by_interventions(weights, rows, op, source, edits)
        np.testing.assert_allclose(losses(fast(weights, rows, every.through, replacement, edits), TOKENS), wanted, atol=1e-9)
        few = as_interventions(cut_of(weights.config, rows, every.through), replacement)
        assert len(few) < len(rows)
        np.testing.assert_allclose(forward(weights, TOKENS, (*edits, *few)).losses().numpy(), wanted, atol=1e-9)


class Lab:
    """An engine on one model of three layers, in double precision."""

    def __init__(self, path: Path, name: str = "gpt2") -> None:
        self.config = replace(CONFIGS[name], n_layers=3, windows=())
        self.engine = Engine(ModelStore())
        self.ref = ModelRef(f"file:{directory(path / name, self.config)}")
        self.conventions = Conventions(dtype="float64", fold_norm=False, centre=False)

    def request(self, p: KeepOnlyParams, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> Request:
        return Request.named("keep_only", p, Subject(self.ref, tokens, edits, self.conventions))

    def __call__(self, p: KeepOnlyParams, tokens: tuple[int, ...] = TOKENS, edits: Any = ()) -> KeepOnlyResult:
        return self.engine.answer(self.request(p, tokens, edits)).result  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_shares_are_those_of_the_definition(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path, name)
    result = lab(KeepOnlyParams(edges=WITH_ENDS, through=ALL, samples=2, seed=5))
    weights, tensors = of(lab.config)
    every = {tuple(row) for row in universe(lab.config, ALL).rows.tolist()}

    def loss(cut: Any) -> float:
        edges, unread = slow_cut(lab.config, np.array(sorted(cut)).reshape(-1, 5))
        return float(losses(SlowEdges(weights.config, tensors, edges, unread=unread).final(TOKENS), TOKENS).mean())

    circuit = {Edge.parse(e).grouped(lab.config).row() for e in WITH_ENDS}
    assert {tuple(m) for m in result.members.tolist()} == circuit
    full, bare = loss(()), loss(every)
    share = lambda value: (value - bare) / (full - bare)
    assert (result.intact, result.bare) == (pytest.approx(full, abs=1e-9), pytest.approx(bare, abs=1e-9))
    assert result.faithfulness == pytest.approx(share(loss(every - circuit)), abs=1e-8)
    assert result.completeness == pytest.approx(1 - share(loss(circuit)), abs=1e-8)
    first = tuple(result.members[0].tolist())
    assert result.minimality[0] == pytest.approx(result.faithfulness - share(loss(every - circuit | {first})), abs=1e-8)
    for i, members in enumerate(result.random_members.tolist()):
        drawn = {tuple(m) for m in members}
        assert len(drawn) == len(circuit) and drawn <= every and drawn != circuit
        assert result.random_faithfulness[i] == pytest.approx(share(loss(every - drawn)), abs=1e-8)
        assert result.random_completeness[i] == pytest.approx(1 - share(loss(drawn)), abs=1e-8)
    said = " ".join(result.conventions)
    assert (
        "2 random sets of 5 edges" in said
        and "seed 5" in said
        and f"{len(every)} in all" in said
        and "never ablated: embeddings" in said
    )
    assert result.table().n_rows == 1 + 5 + 2 and result.table().columns[1].name == "edges"


def test_with_interventions_of_the_subject_and_paths_among_them(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    weights, _ = of(lab.config)
    rows = universe(lab.config, ("Q", "K", "V")).rows
    for edits in (EDITS, PATHS):
        result = lab(KeepOnlyParams(edges=CIRCUIT, samples=1), edits=edits)
        kept = [tuple(m) for m in result.members.tolist()]
        rest = np.array([r for r in rows.tolist() if tuple(r) not in kept])
        assert result.circuit == pytest.approx(float(by_interventions(weights, rest, "zero", (), edits).mean()), abs=1e-9)
        assert result.bare == pytest.approx(float(by_interventions(weights, rows, "zero", (), edits).mean()), abs=1e-9)
        assert result.intact == pytest.approx(float(forward(weights, TOKENS, edits).losses().mean()), abs=1e-9)


def test_all_edges_are_faithful_and_complete_and_all_but_one_way_is_not_cut(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    names = tuple(str(Edge.of(row)) for row in universe(lab.config, ("K",)).rows)
    result = lab(KeepOnlyParams(edges=names, through=("K",), samples=1))
    assert result.faithfulness == pytest.approx(1, abs=1e-9)
    assert result.completeness == pytest.approx(1, abs=1e-9)
    weights, _ = of(lab.config)
    no_keys = by_interventions(weights, universe(lab.config, ("K",)).rows, "zero", (), ()).mean()
    assert result.bare == pytest.approx(float(no_keys), abs=1e-9)


def test_edges_have_names_numbers_and_are_counted() -> None:
    for name in MODELS:
        config = replace(CONFIGS[name], n_layers=3)
        for through in (("Q", "K", "V"), ALL, ("V",), ("logits",)):
            every = universe(config, through)  # type: ignore[arg-type]
            assert len(every) == count(config, through) == len({tuple(r) for r in every.rows.tolist()})  # type: ignore[arg-type]
            names = [str(Edge.of(row)) for row in every.rows]
            assert [Edge.parse(n).row() for n in names] == [tuple(r) for r in every.rows.tolist()]
            np.testing.assert_array_equal(every.find(config, reversed(names)), np.arange(len(every)))
    assert len(universe(replace(CONFIGS["gpt2"], n_layers=12, n_heads=12, n_kv_heads=12), ("Q", "K", "V")).rows) == 3 * 66 * 144
    assert Edge.parse(" l0h1 → L2H3:k ") == Edge(Head(0, 1), Head(2, 3), "K")
    llama = CONFIGS["llama"]
    assert str(Edge.parse("L0H1->L1H3:V").grouped(llama)) == "L0H1->L1H2:V"
    assert str(Edge.parse("L0H1->L1H3:Q").grouped(llama)) == "L0H1->L1H3:Q"
    for bad in ("L0H1->L1H2", "L0H1", "L0H1->L1H2:Z", ""):
        with pytest.raises(UsageError, match="edge"):
            Edge.parse(bad)


def test_what_cannot_be_asked_is_refused_or_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with pytest.raises(Refused, match="heads or"):
        lab(KeepOnlyParams((Head(0, 0),), edges=CIRCUIT))
    with pytest.raises(UsageError, match="edge"):
        lab(KeepOnlyParams(edges=("nothing",)))
    for absent in ("L1H0->L1H1:K", "L2H0->L1H1:K", "L0H9->L1H0:Q", "L0H0->logits", "L0H0->L1H9:V"):
        with pytest.raises(BadInput, match="no such edge"):
            lab(KeepOnlyParams(edges=(absent,)))
    with pytest.raises(BadInput, match="no edge"):
        lab(KeepOnlyParams(edges=CIRCUIT, through=()))
    for name in ("both-norms-capped", "post-residual", "post-sublayer"):
        with pytest.raises(Refused, match="Edges need"):
            Lab(tmp_path, name)(KeepOnlyParams(edges=CIRCUIT))


def test_one_token_the_longest_prompt_and_one_layer(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    assert np.isnan(lab(KeepOnlyParams(edges=CIRCUIT, samples=2), (3,)).faithfulness)
    assert np.isfinite(lab(KeepOnlyParams(edges=CIRCUIT, effect="target", samples=2), (3,)).faithfulness)
    assert np.isfinite(lab(KeepOnlyParams(edges=CIRCUIT, samples=0), tuple([3, 4] * 24)).faithfulness)
    one = Lab(tmp_path / "one")
    one.config = replace(one.config, n_layers=1)
    one.ref = ModelRef(f"file:{directory(tmp_path / 'single', one.config)}")
    with pytest.raises(BadInput, match="no edge"):
        one(KeepOnlyParams(edges=("L0H0->L1H0:K",)))
    assert np.isfinite(one(KeepOnlyParams(edges=("L0H0->logits",), through=("logits",), samples=1)).faithfulness)


class Watcher(NullContext):
    """Stops after some partial results."""

    def __init__(self, most: int = 10**9) -> None:
        self.seen: list[KeepOnlyResult] = []
        self.most = most

    def partial(self, result: Any) -> None:
        self.seen.append(result)

    def tick(self, done: int, total: int, text: str = "") -> None:
        assert done <= total
        if len(self.seen) >= self.most:
            raise Cancelled


def test_what_a_cancelled_attempt_holds_is_gone_on_from_and_afresh_it_is_bit_equal(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    request = lab.request(KeepOnlyParams(edges=CIRCUIT, samples=3))
    with pytest.raises(Cancelled):
        lab.engine.answer(request, Watcher(4))
    rest = Watcher()
    result = lab.engine.answer(request, rest).result
    assert len(rest.seen) == 3 + 3 + 6 - 4
    fresh = [lab.engine.answer(request, fresh=True) for _ in range(2)]
    assert fresh[0].fingerprint == fresh[1].fingerprint
    assert isinstance(result, KeepOnlyResult) and isinstance(fresh[0].result, KeepOnlyResult)
    np.testing.assert_allclose(result.random_cut, fresh[0].result.random_cut, atol=1e-12)


def test_a_cut_knows_its_first_layer_and_its_senders() -> None:
    config = replace(CONFIGS["llama"], n_layers=3)
    rows = np.array([Edge.parse(e).grouped(config).row() for e in CIRCUIT])
    cut: Cut = cut_of(config, rows, ("Q", "K", "V"))
    assert cut.first == 1
    some, every = cut.senders(0)
    assert some.tolist() == [False, True, True, False] and not bool(every.any())
    none = cut_of(config, rows[:0], ("Q",))
    assert none.first == 3
    whole = cut_of(config, universe(config, ("Q", "K", "V")).rows, ("Q", "K", "V"))
    assert all(bool(whole.senders(i)[1].all()) for i in (0, 1))
    assert edit(((0, 1), 1, 0, "K")).path_from == Site("result", 0, (1,))
    assert torch.equal(whole.part(1, 1)[:, 0], torch.ones(2, 4, dtype=torch.bool))
