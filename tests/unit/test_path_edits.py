"""Several interventions along paths: every receiver reads the stream without all of its cut senders, against loops over heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Op, Site, SiteName
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from tests.models import CONFIGS, weights_of
from tests.reference.slow_edges import Edge, SlowEdges

TOKENS = (0, 5, 3, 5, 6, 5, 3, 2, 5)
NAMES: dict[str, SiteName] = {"Q": "q", "K": "k", "V": "v"}
MODELS = ("attention-only", "gpt2", "llama", "odd", "parallel", "smeared-rotary")


def of(config: ModelConfig) -> tuple[LazyWeights, dict[str, torch.Tensor]]:
    tensors = weights_of(config)[1]
    return LazyWeights(config, None, CanonicalParts(config, ResidentTensors(tensors)), torch.float64), tensors


def double(name: str) -> tuple[LazyWeights, dict[str, torch.Tensor]]:
    return of(replace(CONFIGS[name], n_layers=3))


def edit(edge: Edge, op: Op = "zero", positions: tuple[int, ...] = ()) -> Intervention:
    sender, layer, head, kind = edge
    source = Site("mlp_out", sender[1]) if sender[0] == "mlp" else Site("result", sender[0], (sender[1],))
    return Intervention(op, Site(NAMES[kind], layer, (head,), positions), path_from=source)


def same(weights: LazyWeights, edits: tuple[Intervention, ...], slow: SlowEdges) -> None:
    found = forward(weights, TOKENS, edits).logits().numpy()
    np.testing.assert_allclose(found, slow.final(TOKENS), atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_two_senders_of_one_receiver_are_both_missing(name: str) -> None:
    weights, tensors = double(name)
    for kind in "QKV":
        cut: set[Edge] = {((0, 1), 2, 0, kind), ((1, 2), 2, 0, kind)}
        both = tuple(map(edit, sorted(cut)))
        same(weights, both, SlowEdges(weights.config, tensors, cut))
        clean = forward(weights, TOKENS).logits()
        one = forward(weights, TOKENS, both[:1]).logits()
        other = forward(weights, TOKENS, both[1:]).logits()
        together = forward(weights, TOKENS, both).logits()
        assert min((together - x).abs().max() for x in (clean, one, other)) > 1e-6


@pytest.mark.parametrize("op", ["zero", "mean"])
@pytest.mark.parametrize("name", MODELS)
def test_many_edges_of_many_heads_with_mlps_and_chosen_positions(name: str, op: Op) -> None:
    weights, tensors = double(name)
    c, rng = weights.config, np.random.default_rng(3)
    senders = [(0, h) for h in range(c.n_heads)] + [(1, h) for h in range(c.n_heads)]
    senders += [] if c.attention_only else [("mlp", 0), ("mlp", 1)]
    edges = [(s, 2, h, k) for s in senders for k in "QKV" for h in range(c.n_heads if k == "Q" else c.n_kv_heads)]
    edges += [((0, s), 1, h, k) for s in range(c.n_heads) for k in "QKV" for h in range(c.n_kv_heads)]
    cut: set[Edge] = {edges[i] for i in rng.permutation(len(edges))[: len(edges) // 2]}
    order = [sorted(cut, key=str)[i] for i in rng.permutation(len(cut))]
    same(weights, tuple(edit(e, op) for e in order), SlowEdges(c, tensors, cut, by=op))
    at = (3, 4, 8)
    same(weights, tuple(edit(e, op, at) for e in order), SlowEdges(c, tensors, cut, at, by=op))


def test_a_sender_named_twice_is_cut_once_and_operations_follow_one_another() -> None:
    weights, tensors = double("gpt2")
    edge: Edge = ((0, 1), 2, 3, "K")
    several = Intervention("zero", Site("k", 2, (3,)), path_from=Site("result", 0, (1, 2)))
    slow = SlowEdges(weights.config, tensors, {edge, ((0, 2), 2, 3, "K")})
    same(weights, (edit(edge), several, edit(edge)), slow)
    scale = lambda by: Intervention("scale", Site("k", 2, (3,)), (by,), path_from=Site("result", 0, (1,)))
    halves = forward(weights, TOKENS, (scale(0.5), scale(0.5))).logits()
    torch.testing.assert_close(halves, forward(weights, TOKENS, (scale(0.25),)).logits(), atol=1e-12, rtol=0)
    same(weights, (scale(7.0), edit(edge)), SlowEdges(weights.config, tensors, {edge}))


def test_receivers_may_share_some_senders_only_and_only_where_they_overlap() -> None:
    weights, _ = double("attention-only")
    first, second = ((0, 1), 2, 0, "V"), ((1, 0), 2, 0, "V")
    edits = (edit(first, "zero", (2, 3, 4)), edit(second, "zero", (4, 5)))
    found = forward(weights, TOKENS, edits).get("v", 2)[0].numpy()
    wanted = {}
    for rows, cut in (((0, 1, 6, 7, 8), set()), ((2, 3), {first}), ((4,), {first, second}), ((5,), {second})):
        run = forward(weights, TOKENS, tuple(map(edit, sorted(cut)))).get("v", 2)[0].numpy()
        wanted |= {row: run[row] for row in rows}
    np.testing.assert_allclose(found, np.stack([wanted[row] for row in range(len(TOKENS))]), atol=1e-12)
    assert np.abs(found[4] - found[3]).max() > 1e-6


def test_one_norm_over_all_heads_is_taken_of_the_changed_stream() -> None:
    config = replace(CONFIGS["olmo2"], n_layers=2, norm_placement="pre")
    weights, tensors = of(config)
    cut: set[Edge] = {((0, 1), 1, 0, "Q"), ((0, 2), 1, 0, "Q"), ((0, 3), 1, 1, "K"), ((0, 0), 1, 1, "V")}
    same(weights, tuple(map(edit, sorted(cut))), SlowEdges(config, tensors, cut))
