"""What can be cut where one points, how it is called, and cells of attention as a site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.state.cuts import ablation, offers, switched, with_edits, without_edit, words
from circuitlab.state.state import UNCUT, Pin, State
from tests.models import CONFIGS, directory

STATE = State(ModelRef("builtin:m"), tokens=(1, 2, 3, 4))
CONFIG = CONFIGS["attention-only"]


def titles(state: State, name: str = "attention-only") -> list[str]:
    return [o.title for o in offers(state, CONFIGS[name])]


def test_the_uncut_run_is_the_reference_beside_every_cut() -> None:
    cut = with_edits(STATE, ablation(Head(0, 1)))
    again = with_edits(cut, ablation(Head(0, 2)))
    for state in (cut, again):
        assert state.reference is not None and state.reference.label == UNCUT
        assert state.reference.subject == STATE.subject
    assert len(again.subject.edits) == 2
    assert with_edits(again, ablation(Head(0, 2))).edits == again.edits  # not twice
    pinned = replace(STATE, pins=(Pin("mine", STATE.subject),))
    assert with_edits(pinned, ablation(Head(0, 0))).reference == pinned.pins[0]


def test_switching_and_removing_touch_one_only() -> None:
    a, b = ablation(Head(0, 0)), ablation(Head(1, 0))
    both = with_edits(STATE, a, b)
    assert switched(both, a, False).subject.edits == (b,)
    assert switched(switched(both, a, False), a, True).subject.edits == (a, b)
    assert without_edit(both, a).edits == ((b, True),)


def test_a_shorter_prompt_switches_off_what_no_longer_fits_and_keeps_it() -> None:
    at, everywhere = Intervention("zero", Site("z", 0, (0,), (3,))), ablation(Head(1, 1))
    patch = Intervention("patch", Site("z", 0, (1,)), source=(5, 6, 7, 8), align=(0, 1, 2, 3))
    state = with_edits(STATE, at, everywhere, patch).with_tokens((1, 2, 3))
    assert dict(state.edits) == {at: False, everywhere: True, patch: False}
    assert state.subject.edits == (everywhere,)


def test_offers_follow_what_is_selected() -> None:
    state = STATE.select(heads=(Head(0, 1), Head(1, 2)), destination=None)
    assert "Zero L0H1 L1H2" in titles(state)
    assert not [t for t in titles(state) if "position" in t or "attention of" in t or "path" in t or "MLP" in t]
    cell = STATE.select(heads=(Head(1, 0),), destination=2, source=1)
    assert {"Zero L1H0 at position 2", "Cut the attention of L1H0 from 2 to 1"} <= set(titles(cell))
    edge = STATE.select(edge=(Head(0, 1), Head(1, 0)), edge_kind="K")
    assert "Cut the path L0H1 → L1H0 through K" in titles(edge)
    assert any("MLP of layer 0" in t for t in titles(STATE, "gpt2"))
    assert any("group" in t for t in titles(edge, "llama"))


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_what_is_in_force_is_offered_to_be_taken_back_and_to_nothing_else(name: str) -> None:
    heads, other = (Head(1, 2), Head(0, 1)), ablation(Head(1, 0))
    state = replace(STATE, pins=(Pin("theirs", replace(STATE.subject, tokens=(5, 9, 2, 6))),))
    state = state.select(heads=heads, destination=2, source=1, edge=(Head(0, 1), Head(1, 2)), edge_kind="V")
    elsewhere = with_edits(state, other)
    result = {o.title: o.state for o in offers(elsewhere, CONFIGS[name]) if len(o.state.edits) > 1}
    assert len(result) >= 7
    for title, cut in result.items():
        after = {o.title: o.state for o in offers(cut, CONFIGS[name])}
        assert title not in after, "it is done already"
        (back,) = (text for text, one in after.items() if one.edits == elsewhere.edits)
        assert after[back] == elsewhere and len(after) == len(offers(elsewhere, CONFIGS[name]))
        off = replace(cut, edits=tuple((edit, edit == other) for edit, _ in cut.edits))
        assert title in titles(off, name), "what is switched off is offered"
    zeroed = with_edits(STATE.select(heads=heads), ablation(heads[0]))
    assert "Zero L1H2 L0H1" in titles(zeroed), "one of the two is not zeroed"
    zeroed = with_edits(zeroed, ablation(heads[1]))
    assert "Restore L1H2 L0H1" in titles(zeroed) and not [t for t in titles(zeroed) if t.startswith("Zero L")]


def test_offers_patch_from_another_text_only_and_measure_chosen_tokens() -> None:
    other = Pin("theirs", replace(STATE.subject, tokens=(1, 9, 2, 3, 4)))
    state = replace(STATE, pins=(other,)).select(destination=1)
    result = {o.title: o.state for o in offers(state, CONFIG)}
    patch = result["Patch L0H0 from ‘theirs’"].subject.edits[0]
    assert (patch.source, patch.align) == ((1, 9, 2, 3, 4), (0, 2, 3, 4))
    assert any(t.startswith("Patch the stream before layer 0 at 1") for t in result)
    assert not [t for t in titles(replace(STATE, pins=(Pin("same", STATE.subject),))) if "Patch" in t]
    alone = Pin("short", replace(STATE.subject, tokens=(1, 9, 4)))  # nothing there stands for what is at 1 here
    assert not [t for t in titles(replace(state, pins=(alone,))) if "stream" in t]
    one = STATE.select(token=7)
    measured = {o.title: o.state for o in offers(one, CONFIG)}["Measure ‘7’"]
    assert measured.selection.target == Target((7,))
    pair = {o.title: o.state for o in offers(measured.select(token=9), CONFIG)}
    assert pair["Measure ‘7’ − ‘9’"].selection.target == Target((7, 9))
    assert pair["Measure the token that follows"].selection.target == Target()


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
def test_every_offer_is_an_intervention_that_the_model_can_take(tmp_path: Path, name: str) -> None:
    path = directory(tmp_path / "m", CONFIGS[name])
    weights = Engine(ModelStore()).store.open(ModelRef(f"file:{path}")).opened.weights
    state = replace(STATE, pins=(Pin("theirs", replace(STATE.subject, tokens=(5, 9, 2, 6))),))
    state = state.select(destination=2, source=1, edge=(Head(0, 1), Head(1, 3)), edge_kind="V")
    clean = forward(weights, state.tokens).logits()
    made = [o for o in offers(state, CONFIGS[name]) if o.state.subject.edits]
    assert len(made) >= 7
    for offer in made:
        moved = forward(weights, state.tokens, offer.state.subject.edits).logits()
        assert bool(torch.isfinite(moved).all()), offer.title
        frozen = "Freeze" in offer.title  # alone, it freezes what nothing moves
        assert torch.allclose(moved, clean, atol=1e-5) == frozen, offer.title
        assert all(words(e) for e in offer.state.subject.edits)


def test_a_cell_of_attention_is_a_site(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIG)
    weights = Engine(ModelStore()).store.open(ModelRef(f"file:{path}")).opened.weights
    tokens = (1, 2, 3, 4)
    cut = Intervention("zero", Site("pattern", 0, (1,), (3,), (0, 2)))
    before, after = forward(weights, tokens).get("pattern", 0), forward(weights, tokens, (cut,)).get("pattern", 0)
    wanted = before.clone()
    wanted[1, 3, [0, 2]] = 0
    np.testing.assert_array_equal(after.numpy(), wanted.numpy())
    with pytest.raises(UsageError):
        Site("z", 0, sources=(1,))
    with pytest.raises(BadInput):
        forward(weights, tokens, (Intervention("zero", Site("pattern", 0, sources=(4,))),))
