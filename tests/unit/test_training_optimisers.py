"""Muon against its definition and torch's; the loss at a share of the positions; runs with both are taken up bit-equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from circuitlab.training.card import card_text
from circuitlab.training.cross_entropy import ROWS, mean_cross_entropy
from circuitlab.training.loop import Trainer, chosen_places, initial_tensors, rate_at
from circuitlab.training.optimisers import Muon, optimisers_of, orthogonalised
from circuitlab.training.recipe import Optimiser, Recipe
from tests.unit.test_training_bits import assert_same, narrow, streams, trained


def sampled() -> Recipe:
    """The narrow recipe by Muon, at half of the positions, with positions of their own angles."""
    recipe = narrow()
    optimiser = replace(recipe.optimiser, method="muon", matrix_rate=4e-3, loss_share=0.5)
    first, *later = recipe.stages
    return replace(recipe, optimiser=optimiser, positions_angles=(2.0, 0.02), stages=(replace(first, repeats=2.0), *later))


@pytest.mark.parametrize("shape", [(8, 20, 5), (8, 5, 20), (6, 6), (30, 7)])
def test_a_direction_has_the_singular_vectors_of_the_momentum_and_values_near_one(shape: tuple[int, ...]) -> None:
    u = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    left, values, right = torch.linalg.svd(u, full_matrices=False)
    (result,) = orthogonalised([u])
    inside = left.mT @ result @ right.mT
    kept = values > 0.1 * values.max(-1, keepdim=True).values  # five steps leave the smallest behind
    diagonal = inside.diagonal(dim1=-2, dim2=-1)
    assert float((inside - torch.diag_embed(diagonal)).abs().max()) < 1e-9
    assert float(diagonal[kept].min()) > 0.6 and float(diagonal[kept].max()) < 1.3


def test_matrices_are_orthogonalised_each_by_itself() -> None:
    rng = torch.Generator().manual_seed(3)
    heads, wide, tall = (torch.randn(s, generator=rng, dtype=torch.float64) for s in ((4, 12, 3), (2, 3, 12), (12, 3)))
    together = orthogonalised([heads, wide, tall])
    for matrices, directions in zip((heads, wide, tall[None]), (*together[:2], together[2][None]), strict=True):
        for matrix, direction in zip(matrices, directions, strict=True):
            torch.testing.assert_close(direction, orthogonalised([matrix])[0], atol=1e-12, rtol=0)


def test_a_step_of_muon_is_that_of_torch() -> None:
    """torch's is for single matrices and orthogonalises in bfloat16."""
    rng = torch.Generator().manual_seed(4)
    start = torch.randn(24, 8, generator=rng)
    ours, theirs = (start.clone().requires_grad_() for _ in range(2))
    one = Muon([ours], Optimiser(10, matrix_rate=0.02, momentum=0.9, matrix_decay=0.1))
    two = torch.optim.Muon([theirs], 0.02, 0.1, 0.9, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        gradient = torch.randn(24, 8, generator=rng)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        one.step()
        two.step()
    moved = float((theirs.detach() - start).norm())
    assert float((ours.detach() - theirs.detach()).norm()) < 0.02 * moved


def test_the_matrices_of_the_layers_are_muons_and_the_rest_adams(tmp_path: Path) -> None:
    tensors = initial_tensors(sampled(), sampled().config())
    names = {id(value): name for name, value in tensors.items()}
    parts = optimisers_of(sampled().optimiser, tensors)
    of = lambda part: {names[id(p)] for group in parts[part].param_groups for p in group["params"]}
    assert of("muon") == {f"layers.{i}.W_{part}" for i in range(2) for part in "QKVO"}
    assert of("adam") == {"embed.W_E", "embed.W_pos", "unembed.W_U"}
    assert set(optimisers_of(narrow().optimiser, tensors)) == {"adam"}
    trainer = Trainer(sampled(), streams(), tmp_path)
    trainer.one_step()
    rates = {name: optimiser.param_groups[0]["lr"] for name, optimiser in trainer.optimisers.items()}
    assert rates == {"adam": rate_at(sampled().optimiser, 0), "muon": pytest.approx(4e-3 / 20)}


def test_places_are_drawn_anew_each_step_and_none_twice() -> None:
    recipe = sampled()
    one, again, next_one = (chosen_places(recipe, step, 41) for step in (3, 3, 4))
    assert one is not None and again is not None and next_one is not None
    assert torch.equal(one, again) and not torch.equal(one, next_one)
    assert len(one) == len(set(one.tolist())) == 20 and one.tolist() == sorted(one.tolist())
    times = np.zeros(41)
    for step in range(2000):
        places = chosen_places(recipe, step, 41)
        assert places is not None
        times[places.numpy()] += 1
    assert np.abs(times / 2000 - 20 / 41).max() < 0.05, "every place as often as every other"
    assert chosen_places(narrow(), 3, 41) is None
    few = replace(recipe, optimiser=replace(recipe.optimiser, loss_share=1e-6))
    alone = chosen_places(few, 0, 41)
    assert alone is not None and len(alone) == 1


def test_the_loss_of_a_share_is_the_mean_over_its_places(tmp_path: Path) -> None:
    recipe = sampled()
    whole = replace(recipe, optimiser=replace(recipe.optimiser, loss_share=1.0))
    part, every = (Trainer(r, streams(), tmp_path / n) for r, n in ((recipe, "part"), (whole, "every")))
    tokens = torch.from_numpy(np.random.default_rng(1).integers(1, 300, (4, 32)))
    every_loss = float(every._loss(tokens).detach())
    drawn = []
    for part.step in range(300):
        drawn.append(float(part._loss(tokens).detach()))
    assert np.std(drawn) > 0
    assert np.mean(drawn) == pytest.approx(every_loss, abs=4 * float(np.std(drawn)) / 300**0.5)


def test_the_loss_of_rounded_logits_is_that_of_torch() -> None:
    rng = torch.Generator().manual_seed(5)
    z = (4 * torch.randn(2 * ROWS + 7, 90, generator=rng)).bfloat16()
    z[3, 5] = 300  # exp overflows where the highest is not taken off
    targets = torch.randint(0, 90, (len(z),), generator=rng)
    ours, theirs = (z.clone().requires_grad_() for _ in range(2))
    one, two = mean_cross_entropy(ours, targets), F.cross_entropy(theirs.float(), targets)
    assert one.dtype == torch.float32 and float(one.detach()) == pytest.approx(float(two.detach()), rel=1e-6)
    (3 * one).backward()
    (3 * two).backward()
    assert ours.grad is not None and theirs.grad is not None
    torch.testing.assert_close(ours.grad.float(), theirs.grad.float(), atol=2e-5, rtol=0.02)
    full = z.float().requires_grad_()
    mean_cross_entropy(full, targets).backward()
    assert full.grad is not None and full.grad.dtype == torch.float32


def test_a_run_by_muon_at_a_share_of_positions_is_taken_up_bit_equal(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole = trained(tmp_path / "whole", recipe=sampled())
        trained(tmp_path / "stopped", 77, sampled())
        assert_same(whole, trained(tmp_path / "stopped", recipe=sampled()))
        other = trained(tmp_path / "adam", recipe=narrow())
        assert not torch.equal(whole.weights.tensors["layers.0.W_Q"], other.weights.tensors["layers.0.W_Q"])
    finally:
        torch.set_num_threads(threads)


def test_positions_begin_with_the_angles_of_the_recipe() -> None:
    recipe = sampled()
    table = initial_tensors(recipe, recipe.config())["embed.W_pos"]
    i = np.arange(8)
    angles = 2.0 * (0.02 / 2.0) ** (2 * i / 16)
    np.testing.assert_allclose(table[5].numpy(), np.concatenate([np.sin(5 * angles), np.cos(5 * angles)]), atol=1e-6)


def test_the_card_says_how_the_steps_were_made(tmp_path: Path) -> None:
    trainer = Trainer(sampled(), streams(), tmp_path)
    card = card_text(trainer, trainer.measured(), "circuitlab train")
    assert "matrices of the layers: Muon (orthogonalised momentum 0.95, by head), rate 0.004, weight decay 0.1," in card
    assert "everything else: AdamW (0.9, 0.98), rate 0.003" in card
    assert "from step 0: 4 × 32 tokens, shares of repetition times 2; from step 130: 2 × 48 tokens\n" in card
    assert "loss of a step at 50% of its positions, drawn at random" in card
