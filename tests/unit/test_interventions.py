"""Interventions against what they mean, computed by hand from the weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from circuitlab.errors import BadInput, UsageError
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from tests.models import CONFIGS, TINY, weights_of

TOKENS = (0, 3, 5, 1, 3, 5, 2, 6, 3)
OTHER = (0, 2, 2, 1, 6, 5, 4, 6, 1)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped", "parallel"])
@pytest.mark.parametrize("site", ["z", "result"])
def test_zeroing_a_head_is_zeroing_its_output_matrix(name: str, site: str) -> None:
    config = CONFIGS[name]
    weights, tensors = weights_of(config)
    cut = {k: v.clone() for k, v in tensors.items()}
    cut["layers.0.W_O"][2] = 0
    wanted = forward(LazyWeights(config, None, CanonicalParts(config, ResidentTensors(cut))), TOKENS).logits()
    run = forward(weights, TOKENS, (Intervention("zero", Site(site, 0, (2,))),))  # type: ignore[arg-type]
    torch.testing.assert_close(run.logits(), wanted, atol=1e-4, rtol=1e-4)


def test_a_site_limits_what_is_touched() -> None:
    weights, _ = weights_of(TINY)
    clean = forward(weights, TOKENS)
    run = forward(weights, TOKENS, (Intervention("scale", Site("v", 1, (3,), (4, 6)), (2.0,)),))
    wanted = clean.get("v", 1).clone()
    wanted[3, [4, 6]] *= 2
    torch.testing.assert_close(run.get("v", 1), wanted)
    assert torch.equal(run.get("v", 0), clean.get("v", 0))


def test_set_and_mean_do_what_they_say() -> None:
    weights, _ = weights_of(TINY)
    clean = forward(weights, TOKENS)
    run = forward(weights, TOKENS, (Intervention("mean", Site("q", 0, (1,))),))
    torch.testing.assert_close(run.get("q", 0)[1, 5], clean.get("q", 0)[1].mean(0))
    run = forward(weights, TOKENS, (Intervention("mean", Site("q", 0, (1,)), source=OTHER),))
    torch.testing.assert_close(run.get("q", 0)[1, 5], forward(weights, OTHER).get("q", 0)[1].mean(0))
    longer = (*OTHER, 7, 5, 4)  # all of the other prompt counts, however many tokens are edited
    run = forward(weights, TOKENS, (Intervention("mean", Site("q", 0, (1,)), source=longer),))
    torch.testing.assert_close(run.get("q", 0)[1, 5], forward(weights, longer).get("q", 0)[1].mean(0))
    run = forward(weights, TOKENS, (Intervention("set", Site("resid_pre", 1, (), (2,)), (0.5,)),))
    assert torch.equal(run.get("resid_pre", 1)[2], torch.full((24,), 0.5))


def test_patching_every_stream_of_a_layer_makes_the_other_run() -> None:
    weights, _ = weights_of(CONFIGS["gpt2"])
    run = forward(weights, TOKENS, (Intervention("patch", Site("resid_pre", 1), source=OTHER),))
    torch.testing.assert_close(run.logits(), forward(weights, OTHER).logits(), atol=1e-4, rtol=1e-4)


def test_patching_follows_the_alignment() -> None:
    weights, _ = weights_of(TINY)
    there = forward(weights, OTHER[:5])
    align = (-1, 0, 1, 2, 3, 4, -1, -1, -1)
    run = forward(weights, TOKENS, (Intervention("patch", Site("z", 0, (0,)), source=OTHER[:5], align=align),))
    clean = forward(weights, TOKENS)
    torch.testing.assert_close(run.get("z", 0)[0, 3], there.get("z", 0)[0, 2])
    torch.testing.assert_close(run.get("z", 0)[0, 7], clean.get("z", 0)[0, 7])
    torch.testing.assert_close(run.get("z", 0)[1], clean.get("z", 0)[1])


@pytest.mark.parametrize("name", ["pattern", "scores"])
@pytest.mark.parametrize("first", [0, 5])
def test_sources_without_a_partner_get_no_attention_and_keep_their_score(name: Any, first: int) -> None:
    weights, _ = weights_of(TINY)
    clean, there = forward(weights, TOKENS).get(name, 0)[2], forward(weights, OTHER[:5]).get(name, 0)[2]
    align = (0, 1, -1, 2, -1, 3, 4, -1, 0)
    run = forward(weights, TOKENS, (Intervention("patch", Site(name, 0, (2,)), source=OTHER[:5], align=align),))
    found = run.get(name, 0, (2,), slice(first, None))[0]
    for d in range(first, len(TOKENS)):
        for s in range(d + 1):
            alone = torch.tensor(0.0) if name == "pattern" else clean[d, s]
            wanted = clean[d, s] if align[d] < 0 else alone if align[s] < 0 else there[align[d], align[s]]
            torch.testing.assert_close(found[d - first, s], wanted)


def test_freezing_all_patterns_leaves_values_free() -> None:
    weights, _ = weights_of(TINY)
    clean = forward(weights, TOKENS)
    cut = Intervention("zero", Site("result", 0, (1,)))
    frozen = tuple(Intervention("freeze", Site("pattern", layer)) for layer in range(2))
    run = forward(weights, TOKENS, (cut, *frozen))
    assert torch.equal(run.get("pattern", 1), clean.get("pattern", 1))
    assert not torch.allclose(forward(weights, TOKENS, (cut,)).get("pattern", 1), clean.get("pattern", 1))
    assert not torch.allclose(run.get("z", 1), clean.get("z", 1))


def test_a_path_is_cut_for_its_receiver_alone() -> None:
    weights, _ = weights_of(TINY)
    clean = forward(weights, TOKENS)
    sender = Site("result", 0, (1,))
    run = forward(weights, TOKENS, (Intervention("zero", Site("k", 1, (2,)), path_from=sender),))
    read = clean.get("resid_pre", 1) - clean.get("result", 0, (1,))[0] + weights.embed().W_pos[: len(TOKENS)]
    torch.testing.assert_close(run.get("k", 1)[2], read @ weights.layer(1).W_K[2], atol=1e-5, rtol=1e-4)
    assert torch.equal(run.get("k", 1)[[0, 1, 3]], clean.get("k", 1)[[0, 1, 3]])
    assert torch.equal(run.get("q", 1), clean.get("q", 1))


def test_nothing_cached_is_written_to() -> None:
    weights, _ = weights_of(TINY)
    clean = forward(weights, TOKENS)
    before = [clean.get(n, 1).clone() for n in ("q", "k", "v", "resid_pre", "pattern")]
    forward(weights, TOKENS, (Intervention("patch", Site("pattern", 1), source=OTHER),))
    forward(weights, TOKENS, (Intervention("zero", Site("pattern", 1)),), prefix=clean)
    for kept, now in zip(before, (clean.get(n, 1) for n in ("q", "k", "v", "resid_pre", "pattern")), strict=True):
        assert torch.equal(kept, now)


def test_a_mean_over_this_prompt_reuses_no_prefix() -> None:
    weights, _ = weights_of(TINY)
    edit = (Intervention("mean", Site("q", 0, (1,))),)
    before = forward(weights, TOKENS, edit)
    assert forward(weights, (*TOKENS, 4), edit, prefix=before).reused == 0
    zero = (Intervention("zero", Site("z", 0, (1,))),)
    again = forward(weights, (*TOKENS, 4), zero, prefix=forward(weights, TOKENS, zero))
    assert again.reused == len(TOKENS)
    torch.testing.assert_close(again.logits(), forward(weights, (*TOKENS, 4), zero).logits(), atol=1e-5, rtol=1e-5)


def test_a_run_of_other_interventions_or_other_weights_is_no_prefix() -> None:
    weights, other = weights_of(TINY)[0], weights_of(TINY, seed=1)[0]
    zero = (Intervention("zero", Site("z", 0, (1,))),)
    wanted = forward(weights, (*TOKENS, 4), zero).logits()
    half = (Intervention("scale", Site("z", 0, (1,)), (0.5,)),)
    for prefix in (forward(weights, TOKENS), forward(weights, TOKENS, half), forward(other, TOKENS, zero)):
        run = forward(weights, (*TOKENS, 4), zero, prefix=prefix)
        assert run.reused == 0
        assert torch.equal(run.logits(), wanted)
    assert forward(weights, (*TOKENS, 4), (), prefix=forward(weights, TOKENS, zero)).reused == 0


@pytest.mark.parametrize("site", [Site("z", 2), Site("z", 0, (4,)), Site("q", 0, (), (9,)), Site("mlp_out", 0)])
def test_a_place_that_is_not_there_is_refused(site: Site) -> None:
    weights, _ = weights_of(TINY)
    with pytest.raises(BadInput):
        forward(weights, TOKENS, (Intervention("zero", site),))


def test_contradictions_are_refused_when_they_are_made() -> None:
    with pytest.raises(UsageError):
        Intervention("scale", Site("z", 0))
    with pytest.raises(UsageError):
        Intervention("patch", Site("z", 0))
    with pytest.raises(UsageError):
        Site("resid_pre", 0, (1,))
    with pytest.raises(UsageError):
        Intervention("zero", Site("q", 0), path_from=Site("result", 0))
