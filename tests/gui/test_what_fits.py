"""A selection names what its model has, whoever makes it: one place where States enter the window sees to that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.engine.store import reference
from circuitlab.figures.marks import Gesture, Hit
from circuitlab.gui.shell.palette import Palette
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.document import Document
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.state.cuts import ablation, with_edits
from circuitlab.state.model_change import without_missing
from circuitlab.state.state import Pin, Selection, State
from tests.gui.driving import dock, settle
from tests.models import TINY, directory

LARGE, SMALL, NONE = ModelRef("builtin:large"), ModelRef("builtin:small"), ModelRef("builtin:none")
CONFIGS: dict[ModelRef, ModelConfig] = {
    LARGE: replace(TINY, n_layers=3, n_heads=5, n_kv_heads=5, d_vocab=30, d_vocab_out=30),
    SMALL: replace(TINY, n_layers=2, n_heads=1, n_kv_heads=1, d_vocab=9, d_vocab_out=9),
    NONE: replace(TINY, n_layers=0, n_heads=2, n_kv_heads=2, d_vocab=9, d_vocab_out=9),
}
heads = st.builds(Head, st.integers(-1, 4), st.integers(-1, 6))
some = st.lists(heads, min_size=1, max_size=3).map(tuple)
positions = st.one_of(st.none(), st.integers(-1, 9))
targets = st.one_of(st.just(Target()), st.builds(lambda t: Target((t,)), st.integers(0, 40)))
selections = st.builds(
    lambda h, d, s, t, e, g: Selection(h, d, s, d is not None, t, e, target=g),
    some,
    positions,
    positions,
    st.one_of(st.none(), st.integers(0, 40)),
    st.one_of(st.none(), st.tuples(heads, heads)),
    targets,
)
states = st.builds(State, st.sampled_from(list(CONFIGS)), selection=selections)
MOVES = st.one_of(
    st.builds(lambda s, m: lambda d: d.apply(replace(d.recorded, selection=s), m), selections, st.sampled_from(["", "a", "b"])),
    st.builds(lambda h: lambda d: d.apply(d.recorded.with_heads(*h), "heads"), some),
    st.builds(lambda a, b: lambda d: d.apply(d.recorded.with_edge(a, b, "Q"), "edge"), heads, heads),
    st.builds(lambda ref: lambda d: d.apply(replace(d.recorded, model=ref), "model"), st.sampled_from(list(CONFIGS))),
    st.builds(lambda n: lambda d: d.apply(replace(d.recorded, text="", tokens=(1,) * n), "text"), st.integers(0, 6)),
    st.builds(lambda s: lambda d: d.apply(s, "a state from elsewhere"), states),
    st.just(lambda d: d.undo()),
    st.just(lambda d: d.redo()),
    st.just(lambda d: d.end_preview()),
)  # fmt: skip


def misfit(config: ModelConfig, state: State) -> str:
    """What the selection names and the model or the prompt does not have, said independently of `fitting`."""
    chosen, n = state.selection, len(state.tokens)
    if config.n_layers:
        for head in (*chosen.heads, *(chosen.edge or ())):
            if head.layer not in range(config.n_layers) or head.head not in range(config.n_heads):
                return str(head)
    elif chosen.heads != (Head(0, 0),) or chosen.edge is not None:
        return f"{chosen.heads} without layers"
    for at in (chosen.destination, chosen.source):
        if at is not None and at not in range(n):
            return f"position {at} of {n}"
    ids = (*chosen.target.tokens, *(() if chosen.token is None else (chosen.token,)))
    return next((f"token {i}" for i in ids if i not in range(config.d_vocab)), "")


@given(st.lists(MOVES, max_size=12))
def test_no_move_leaves_a_selection_that_its_model_does_not_have(moves: list[Any]) -> None:
    document = Document(State(LARGE, tokens=(1, 2, 3)))
    document.fit = lambda state, shown: without_missing(CONFIGS[state.model], state, shown.selection)
    for move in moves:
        move(document)
        for state in (document.state, document.recorded):
            assert not misfit(CONFIGS[state.model], state)


@given(selections)
def test_what_fits_is_the_same_object_and_what_does_not_gives_way_to_what_was_chosen(selection: Selection) -> None:
    state, config = State(LARGE, tokens=(1, 2, 3), selection=selection), CONFIGS[LARGE]
    before = Selection((Head(2, 4),))
    made = without_missing(config, state, before)
    assert (made is state) == (not misfit(config, state) and not (selection.locked and selection.destination is None))
    there = tuple(h for h in selection.heads if h.layer in range(3) and h.head in range(5))
    assert made.selection.heads == (there or before.heads)


@pytest.fixture
def two(qtbot: Any, window: Window, tmp_path: Path) -> Window:
    """A window on a model of 2 × 1, its reference one of 2 × 4."""
    window.state_commands.pin()
    window.open_model(str(directory(tmp_path / "one", replace(TINY, n_heads=1, n_kv_heads=1))))
    qtbot.waitUntil(lambda: window.context.facts().config.n_heads == 1)
    settle(qtbot, window)
    return window


def test_a_head_of_the_reference_that_the_model_does_not_have_is_not_chosen(qtbot: Any, two: Window) -> None:
    document, said = two.context.document, list[str]()
    two.context.message.connect(said.append)
    two.state_commands.compare("reference")
    settle(qtbot, two)
    heads = dock(two, "heads")
    before = document.recorded.selection
    gestures: tuple[Gesture, ...] = ("hover", "click", "shift-click", "double-click")
    for gesture in gestures:
        heads.view.hovered.emit(Hit("map", (1, 3), gesture), "") if gesture == "hover" else heads.feed.picked(
            Hit("map", (1, 3), gesture)
        )
        for state in (document.state, document.recorded):
            assert not misfit(two.context.facts().config, state)
    assert document.recorded.selection.heads == before.heads
    assert any("L1H3" in words for words in said)


def test_a_head_from_a_palette_that_was_open_when_the_model_changed(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = str(directory(tmp_path / "one", replace(TINY, n_heads=1, n_kv_heads=1)))

    def choose(palette: Palette) -> None:
        palette.line.setText("L1H3")
        assert palette.entries[0].title == "L1H3"
        window.open_model(small)
        qtbot.waitUntil(lambda: window.context.facts().config.n_heads == 1)
        palette.choose()

    monkeypatch.setattr(Palette, "exec", choose)
    window.dialogs.show_palette()
    settle(qtbot, window)
    assert not misfit(window.context.facts().config, window.context.document.recorded)


def test_a_menu_that_was_open_when_the_model_changed_acts_on_what_is_there(qtbot: Any, window: Window, tmp_path: Path) -> None:
    heads, document = dock(window, "heads"), window.context.document
    menu = heads.actions_menu
    menu.aim(Hit("map", (1, 3)))
    zero = next(a for a in menu.offers_menu.actions() if a.data() == "Zero L1H3")
    window.open_model(str(directory(tmp_path / "one", replace(TINY, n_heads=1, n_kv_heads=1))))
    qtbot.waitUntil(lambda: window.context.facts().config.n_heads == 1)
    settle(qtbot, window)
    now = document.recorded
    zero.trigger()
    assert document.recorded == now, "the earlier model and its prompt must not come back by a menu of theirs"


def test_a_state_of_another_vocabulary_is_fitted_though_its_model_was_closed(window: Window, tmp_path: Path) -> None:
    from circuitlab.state.model_change import state_for

    context = window.context
    other = context.engine.store.open(
        reference(str(directory(tmp_path / "odd", replace(TINY, n_heads=1, n_kv_heads=1, d_vocab=300))))
    )
    state = replace(context.document.recorded, model=other.ref, text="", tokens=(259, 400), selection=Selection((Head(1, 3),)))
    made = state_for(other, state, None, context.document.recorded)
    assert all(t < 300 for t in made.tokens) and made.selection.heads == (Head(0, 0),)


@pytest.mark.parametrize("kept", [True, False])
def test_ids_typed_by_hand_and_cuts_stay_where_they_are_the_same_tokens(
    qtbot: Any, window: Window, tmp_path: Path, kept: bool
) -> None:
    """Another model has the same tokenizer, or one in which two tokens have changed places."""
    context, other = window.context, directory(tmp_path / "other")
    words = json.loads((other / "tokenizer.json").read_text("utf-8"))
    vocabulary = words["model"]["vocab"]
    if not kept:
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        (other / "tokenizer.json").write_text(json.dumps(words), "utf-8")
    ids = (vocabulary["a"], vocabulary["b"], vocabulary["a"])
    state = replace(context.document.recorded, text="", tokens=ids, bos=False)
    context.document.apply(with_edits(state, ablation(Head(0, 1))), "ids")
    settle(qtbot, window)
    assert context.document.recorded.tokens == ids and context.document.recorded.edits
    context.loader.show(replace(context.document.recorded, model=reference(str(other))), "model")
    qtbot.waitUntil(lambda: not context.loader.waiting)
    assert context.document.recorded.model == reference(str(other))
    assert (context.document.recorded.tokens == ids) == bool(context.document.recorded.edits) == kept


def test_pins_of_another_shape_do_not_matter(window: Window) -> None:
    """A pin keeps its own selection: it is about its own model."""
    context: AppContext = window.context
    state = context.document.recorded
    pin = Pin("there", state.subject, Selection((Head(7, 7),)))
    context.document.apply(replace(state, pins=(pin,)), "pin")
    assert context.document.recorded.pins == (pin,)
