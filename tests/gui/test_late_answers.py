"""Answers that come late: to a dock that nobody sees, to a state that is no longer shown, to a question nobody asks any more."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.engine.request import Request
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.facts import Answers, Facts
from circuitlab.figures.contracts.questions import Questions
from circuitlab.figures.marks import Figure
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.window import Window
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head
from circuitlab.state.state import State
from tests.gui.driving import dock, heat, settle
from tests.models import TINY
from tests.words import fault_in_figure, still_of

SLOW = {"prompt_sets", "term_importance", "training"}  # seconds each; their docks are the same class


def panel_docks(window: Window) -> list[PanelDock]:
    return [d for d in window.docks.values() if isinstance(d, PanelDock) and d.panel.name not in SLOW]


def test_a_hidden_dock_draws_nothing_under_a_newer_state(qtbot: Any, window: Window, caplog: pytest.LogCaptureFixture) -> None:
    document = window.context.document
    last = len(document.state.tokens) - 1
    edge = document.state.with_edge(Head(0, 1), Head(1, 2), "K").select(destination=last, source=last - 1, locked=True)
    document.apply(edge, "an edge")
    docks = panel_docks(window)
    for each in docks:
        each.refresh()  # as if it had been in front
    settle(qtbot, window)
    window.context.runner.cancel_all()
    exchanges = [d.feed.exchange for d in docks]
    late = [(e.slot(side, role), a) for e in exchanges for side in ("now", "ref") for role, a in e.answers[side].items()]
    assert len({slot.parent() for slot, _ in late}) > 15
    for each in docks:
        each.hide()
    document.apply(document.state.with_tokens(document.state.tokens[:2]).with_heads(Head(0, 3)), "another prompt")
    before = {d.panel.name: d.view.figure for d in docks}
    caplog.clear()
    for slot, answer in late:
        slot.answered.emit(answer, slot.role)
        slot.failed.emit(CircuitLabError("it failed late"), slot.role)
    assert not fault_in_figure(caplog.text)
    for each in docks:
        assert each.view.figure is before[each.panel.name], each.panel.name
    attention = dock(window, "attention")
    attention.show()
    settle(qtbot, window)
    assert heat(window).values.shape == (2, 2)
    assert attention.view.figure.title.startswith("L0H3")


def test_what_is_drawn_is_of_the_state_that_asked_for_it(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a drag: three heads are asked for, the answer to the second comes, the third is still being computed."""
    document, attention, engine = window.context.document, dock(window, "attention"), window.context.engine
    document.apply(document.state.with_heads(Head(0, 0)), "first")
    settle(qtbot, window)
    monkeypatch.setattr(window.context.runner, "ask", lambda slot, request: None)
    asked, slot = list[Request](), attention.feed.exchange.slot("now", "attention")
    for head in (Head(1, 1), Head(1, 3)):
        document.apply(document.state.with_heads(head), "next")
        asked.append(attention.feed.exchange.requests["now"]["attention"])
        assert attention.view.figure.title.startswith("L0H0")
    assert attention.feed.waiting
    slot.answered.emit(engine.answer(asked[0]), slot.role)
    assert attention.view.figure.title.startswith("L1H1")
    assert attention.feed.waiting
    slot.answered.emit(engine.answer(asked[1]), slot.role)
    assert attention.view.figure.title.startswith("L1H3")
    assert not attention.feed.waiting
    slot.answered.emit(engine.answer(asked[0]), slot.role)
    attention.feed.draw()
    assert attention.view.figure.title.startswith("L1H3"), "a slower answer to an earlier question takes nobody's place"
    assert attention.feed.exchange.answers["now"]["attention"].request == asked[1]


def test_numbers_of_a_text_stand_under_its_own_tokens(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another text of as many tokens: until its answer comes, the picture of the one before stays as it was."""
    document, engine, attention = window.context.document, window.context.engine, dock(window, "attention")
    before, draws = heat(window), list[bool]()
    panel = attention.panel

    def figure(state: State, facts: Facts, now: Answers, ref: Answers, asked: Questions | None = None) -> Figure:
        draws.append(all(answer.request.subject.tokens == state.tokens for answer in now.values()))
        return panel.figure(state, facts, now, ref, asked)

    monkeypatch.setattr(attention.feed, "panel", replace(panel, figure=figure))
    monkeypatch.setattr(window.context.runner, "ask", lambda slot, request: None)
    other = tuple((id + 1) % 7 for id in document.state.tokens)
    document.apply(document.state.with_tokens(other), "another text")
    attention.feed.draw()
    assert heat(window).x.ticks == before.x.ticks
    np.testing.assert_array_equal(heat(window).values, before.values)
    answer = engine.answer(attention.feed.exchange.requests["now"]["attention"])
    slot = attention.feed.exchange.slot("now", "attention")
    slot.answered.emit(answer, slot.role)
    assert draws and all(draws), "a figure is drawn of a State and the answers of another"
    assert heat(window).x.ticks != before.x.ticks
    assert not np.array_equal(heat(window).values, before.values)


def test_a_failure_of_what_nobody_asks_for_any_more_is_not_shown(qtbot: Any, window: Window) -> None:
    attention = dock(window, "attention")
    slot = attention.feed.exchange.slot("now", "of another page")
    slot.failed.emit(CircuitLabError("out of memory"), slot.role)
    assert attention.view.figure.grid
    assert not attention.view.figure.why_empty


def test_a_picture_of_the_model_before_says_so_while_another_one_is_computed(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every panel, with the engine held back for the second model: picture, title, view and the file's name agree."""
    context, document, docks, gate = window.context, window.context.document, panel_docks(window), threading.Event()
    last = len(document.state.tokens) - 1
    edge = document.state.with_edge(Head(0, 1), Head(1, 2), "K").select(destination=last, source=last - 1, locked=True)
    document.apply(edge, "an edge")
    for each in docks:
        monkeypatch.setattr(each.feed, "_shown", lambda: True)  # as if all were in front
        each.refresh()
    settle(qtbot, window)
    qtbot.waitUntil(lambda: not any(each.feed.waiting for each in docks))
    drawn = {each.panel.name for each in docks if each.view.figure.grid}
    assert len(drawn) > 20
    first, answer = document.state.model, context.engine.answer

    def held(request: Request[Any], ctx: Any, **more: Any) -> Any:
        while request.subject.model != first and not gate.wait(0.01):
            ctx.tick(0, 1)
        return answer(request, ctx, **more)

    monkeypatch.setattr(context.engine, "answer", held)
    save_directory(tmp_path / "another", TINY, random_tensors(TINY, 5, 0.35), context.tokenizer())
    window.opening.open(str(tmp_path / "another"))
    qtbot.waitUntil(lambda: document.state.model != first)
    names = {ref: context.facts(ref).name for ref in (first, document.state.model)}
    waiting = [each for each in docks if each.feed.waiting and each.view.figure.grid]
    assert len(waiting) > 15
    qtbot.waitUntil(lambda: all(each.view._pale for each in waiting if each.view.isVisible()))
    assert not np.isfinite(window.prompt.losses.view.figure.marks()[0].values).any()  # type: ignore[union-attr]
    for each in docks:
        view = each.feed.picture_view({})
        if view is None or not each.view.figure.grid:
            continue
        before = view.state.model == first
        assert before == (each.view.figure.about[0] == names[first]) == (each in waiting), each.panel.name
        assert each.actions_menu.subject().endswith(names[view.state.model]), each.panel.name
        if each.view._pale:
            assert each.view._title.text().endswith(still_of(names[first])) is before, each.panel.name
    gate.set()
    settle(qtbot, window)
    qtbot.waitUntil(lambda: not any(each.feed.waiting for each in docks))
    for each in docks:
        view = each.feed.picture_view({})
        assert view is not None and view.state.model == document.state.model, each.panel.name
        assert still_of(names[first]) not in each.view._title.text()
