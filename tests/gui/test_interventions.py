"""The list of interventions, the menus that offer them, comparing with the uncut run, and what is measured."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QApplication

from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.engine.request import Request
from circuitlab.figures.marks import Edges, Hit, Rows, Tokens
from circuitlab.figures.panels.circuit.panel import KeepOnlyView
from circuitlab.gui.docks.interventions import InterventionsDock
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.strip import SIGNS
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, Target
from circuitlab.state.cuts import ablation, with_edits, words
from circuitlab.state.state import Kind
from tests.gui.driving import dock, heat, settle
from tests.words import minus

KINDS: tuple[Kind, ...] = ("Q", "K", "V")


def strip(window: Window) -> Tokens:
    mark = window.prompt.losses.view.figure.marks()[0]
    assert isinstance(mark, Tokens)
    return mark


def cut(window: Window, name: str, hit: Hit | None, title: str) -> None:
    """Through the menu under the right button."""
    menu = dock(window, name).actions_menu
    menu.aim(hit)
    next(a for a in menu.offers_menu.actions() if a.text().startswith(title)).trigger()


def test_a_cell_is_cut_from_its_menu_listed_switched_and_removed(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("interventions")
    listed = window.docks["interventions"]
    assert isinstance(listed, InterventionsDock)
    assert listed.hint.isVisible()
    before = heat(window).values
    cut(window, "attention", Hit("attention", (4, 2)), "Cut the attention of L0H0 from 4 to 2")
    settle(qtbot, window)
    after = heat(window).values
    assert after[4, 2] == 0
    np.testing.assert_allclose(np.delete(after[4], 2), np.delete(before[4], 2), atol=1e-6)
    (row,) = listed.rows
    assert re.search(r"pattern.*L0H0.*\b4\b.*\b2\b", row.label.text())
    shown = re.search(r"mean loss (\S+) → (\S+) nats \((\S+)\)", listed.effect.text())
    assert shown is not None
    before_cut, after_cut, change = (Decimal(text.replace("−", "-")) for text in shown.groups())
    assert after_cut - before_cut == change != 0
    qtbot.mouseClick(row.on, Qt.MouseButton.LeftButton, pos=QPoint(6, row.on.height() // 2))
    settle(qtbot, window)
    np.testing.assert_allclose(heat(window).values, before, atol=1e-6)
    assert window.context.document.state.edits[0][1] is False
    qtbot.mouseClick(row.remove, Qt.MouseButton.LeftButton)
    settle(qtbot, window)
    assert not window.context.document.state.edits
    assert listed.hint.isVisible()


def test_the_first_cut_makes_before_and_after_one_key_apart(qtbot: Any, window: Window) -> None:
    assert strip(window).map == "loss"
    cut(window, "overview", None, "Zero L0H0")
    settle(qtbot, window)
    state = window.context.document.state
    assert state.reference is not None and state.reference.label == "uncut"
    now = heat(window)
    window.state_commands.compare("reference")
    settle(qtbot, window)
    assert heat(window).levels == now.levels  # one scale for before and after
    window.state_commands.compare("difference")
    settle(qtbot, window)
    change = strip(window)
    assert change.map == "signed"
    assert minus("uncut") in window.prompt.losses.view.figure.caption
    assert np.nanmax(np.abs(change.values)) > 0
    window.context.document.undo()
    window.context.document.undo()
    window.context.document.undo()
    settle(qtbot, window)
    assert window.context.document.state.reference is None
    assert not window.context.document.state.edits


def test_a_cut_is_seen_though_the_reference_was_shown(qtbot: Any, window: Window) -> None:
    """Panels of the reference, which a cut leaves as it is, would show that nothing has happened."""
    cut(window, "attention", Hit("attention", (4, 2)), "Cut the attention of L0H0 from 4 to 2")
    window.state_commands.compare("reference")
    settle(qtbot, window)
    assert heat(window).values[4, 2] > 0 and "uncut" in dock(window, "attention").view.figure.title
    cut(window, "attention", Hit("attention", (3, 1)), "Cut the attention of L0H0 from 3 to 1")
    settle(qtbot, window)
    values = heat(window).values
    assert values[4, 2] == values[3, 1] == 0
    assert "uncut" in window.status.readout.text() and window.context.document.recorded.compare == "now"
    window.state_commands.compare("difference")
    settle(qtbot, window)
    assert heat(window).values[3, 1] < 0
    cut(window, "attention", Hit("attention", (3, 2)), "Cut the attention of L0H0 from 3 to 2")
    assert window.context.document.recorded.compare == "difference", "there a cut is seen"
    window.state_commands.compare("reference")
    (edit, _), *_ = window.context.document.recorded.edits
    window.state_commands.switch(edit, False)
    assert window.context.document.recorded.compare == "reference", "what was asked for last stays"
    window.state_commands.switch(edit, True)
    assert window.context.document.recorded.compare == "now"
    window.state_commands.clear_edits()
    window.state_commands.compare("reference")
    window.state_commands.ablate()
    settle(qtbot, window)
    assert window.context.document.recorded.compare == "now", "also where there was no reference yet"


def test_after_a_cut_the_reference_has_the_text_that_is_typed_on(qtbot: Any, window: Window) -> None:
    cut(window, "overview", None, "Zero L0H0")
    window.state_commands.compare("difference")
    settle(qtbot, window)
    window.context.document.apply(window.context.document.recorded.with_heads(Head(1, 0)), "a head that reads the cut one")
    typed = window.prompt.editor.toPlainText() + " two"
    window.prompt.editor.setPlainText(typed)
    qtbot.waitUntil(lambda: window.context.document.recorded.text == typed)
    settle(qtbot, window)
    state, top = window.context.document.state, window.top
    change = heat(window).values
    assert change.shape == (len(state.tokens),) * 2
    engine, zeroed = window.context.engine, state.subject
    asked = (Request.named("attention", AttentionParams((Head(1, 0),)), s) for s in (zeroed, replace(zeroed, edits=())))
    patterns = [engine.answer(request).result.values[0] for request in asked]  # type: ignore[attr-defined]
    np.testing.assert_allclose(change, patterns[0] - patterns[1], atol=1e-6)
    assert np.nanmax(np.abs(change)) > 1e-4
    assert top.pinned.text() == "vs uncut" and not top.unpin.isVisible()
    assert "blocks" not in dock(window, "attention").view.figure.caption
    assert np.isfinite(strip(window).values[-1]), "the token just typed has a change of its own"


def test_prompts_of_different_lengths_are_aligned_in_the_difference(qtbot: Any, window: Window) -> None:
    window.state_commands.pin()
    state = window.context.document.recorded
    tokens = state.tokens
    window.context.document.apply(state.with_tokens((*tokens[:3], 7, *tokens[3:])), "insert")
    window.state_commands.compare("difference")
    settle(qtbot, window)
    found = heat(window)
    assert found.values.shape == (len(tokens) + 1, len(tokens) + 1)
    assert np.isnan(found.values[3]).all()  # the new token has no partner
    assert abs(found.values[1, 0]) < 1e-5  # before it nothing has changed
    assert "blocks" in dock(window, "attention").view.figure.caption
    assert np.isnan(strip(window).values[3])


def test_what_is_measured_is_chosen_in_the_bar_and_from_a_token(qtbot: Any, window: Window) -> None:
    assert "next token" in window.top.target.text()
    tokens = dock(window, "predictions").view.figure.find("tokens")
    assert tokens is not None
    token = int(tokens.ids[2][0])  # type: ignore[attr-defined]
    cut(window, "predictions", Hit("tokens", (token,)), "Measure")
    assert window.context.document.state.selection.target == Target((token,))
    window.top.target._second_chosen(token + 1)
    assert window.context.document.state.selection.target == Target((token, token + 1))
    assert "−" in window.top.target.text()
    window.top.target.menu().aboutToShow.emit()
    window.top.target.follows.trigger()
    assert window.context.document.state.selection.target == Target()


def test_a_head_that_another_model_lacks_is_not_offered(qtbot: Any, window: Window) -> None:
    window.context.document.apply(window.context.document.state.select(heads=(Head(9, 9),)), "far")
    menu = dock(window, "attention").actions_menu
    menu.aim(None)
    assert not [a for a in menu.offers_menu.actions() if "L9H9" in a.text()]


def test_the_chosen_edge_is_kept_and_let_go_under_the_right_button(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("keep_only")
    document = window.context.document
    document.apply(document.state.select(edge=(Head(0, 1), Head(1, 2)), edge_kind="K"), "edge")
    settle(qtbot, window)
    panel = dock(window, "keep_only")
    title = "Keep the edge L0H1 → L1H2 through K"
    cut(window, "composition", None, title)
    settle(qtbot, window)
    kept = panel.view.figure.find("kept")
    assert isinstance(kept, Rows)
    assert kept.columns[0].values.tolist() == ["kept"]
    assert kept.columns[1].values.tolist() == ["L0H1 → L1H2  K"]
    assert "L0H1→L1H2:K" in panel.view.figure.title
    assert not document.state.edits  # a circuit to look at, not an intervention
    view: KeepOnlyView = document.state.view("keep_only", KeepOnlyView)
    assert (view.of, view.edges) == ("edges", "L0H1->L1H2:K")
    menu = panel.actions_menu
    menu.aim(None)
    names = [a.text() for a in menu.offers_menu.actions()]
    assert not [n for n in names if n.startswith("Keep the edge")]
    cut(window, "keep_only", None, "Remove the edge L0H1 → L1H2")
    settle(qtbot, window)
    assert not document.state.view("keep_only", KeepOnlyView).edges
    document.undo()
    assert document.state.view("keep_only", KeepOnlyView).edges == "L0H1->L1H2:K"


def test_an_edge_of_the_drawn_graph_is_kept_from_its_own_menu(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("composition")
    settle(qtbot, window)
    graph = next(m for m in dock(window, "composition").view.figure.marks() if isinstance(m, Edges))
    assert graph.edge_ids is not None
    hit = Hit(graph.name, (1, *graph.edge_ids[0].tolist()))
    before = window.context.document.state.selection
    cut(window, "composition", hit, "Keep the edge ")
    settle(qtbot, window)
    *_, dest_layer, dest, source_layer, source, kind = graph.edge_ids[0].tolist()
    state = window.context.document.state
    kept = f"{Head(source_layer, source)}->{Head(dest_layer, dest)}:{KINDS[kind]}"
    assert state.view("keep_only", KeepOnlyView).edges == kept
    assert state.selection == before


def test_the_head_under_the_pointer_is_zeroed_and_what_is_selected_stays(qtbot: Any, window: Window) -> None:
    document, at = window.context.document, Head(1, 3)
    document.apply(document.recorded.with_heads(Head(0, 1)).select(destination=4, locked=True), "elsewhere")
    window.layout_of_docks.go_to("overview")
    settle(qtbot, window)
    before = document.recorded.selection
    tiles = dock(window, "overview").view.figure.marks()[0]
    cut(window, "overview", Hit(tiles.name, (*at,)), f"Zero {at}")
    settle(qtbot, window)
    assert [edit for edit, on in document.recorded.edits if on] == [ablation(at)]
    assert document.recorded.selection == before
    cut(window, "overview", Hit(tiles.name, (*at,)), f"Restore {at}")
    assert not document.recorded.edits and document.recorded.selection == before


def right_clicked(window: Window, name: str, mark: str, item: tuple[int, ...]) -> list[str]:
    """What the menu offers on an item of a picture, through the event that Qt sends."""
    widget, menu = dock(window, name).view.widget(mark), dock(window, name).actions_menu
    boxes = widget._boxes() if item[0] == 0 else None
    at = boxes[item[1]].center() if boxes is not None else QPointF(*widget._lines()[item[1]].mean(axis=0))
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at.toPoint(), widget.mapToGlobal(at.toPoint()))
    QApplication.sendEvent(widget.viewport(), event)
    offered = [a.text() for a in menu.offers_menu.actions()]
    menu.hide()
    return offered


def test_the_menu_is_about_what_is_pointed_at_not_about_the_chosen_edge(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("composition")
    settle(qtbot, window)
    graph = next(m for m in dock(window, "composition").view.figure.marks() if isinstance(m, Edges))
    assert graph.edge_ids is not None
    *_, dest_layer, dest, source_layer, source, kind = graph.edge_ids[0].tolist()
    document = window.context.document
    document.apply(document.state.with_edge(Head(source_layer, source), Head(dest_layer, dest), KINDS[kind]), "edge")
    settle(qtbot, window)
    other = next(i for i, key in enumerate(graph.edge_ids.tolist()) if key[-5:-1] != [dest_layer, dest, source_layer, source])
    names = [graph.labels[n] for n in graph.ends[other]]
    assert f"{names[0]} → {names[1]}" in right_clicked(window, "composition", graph.name, (1, other))[0]
    node = next(i for i, label in enumerate(graph.labels) if label not in (f"L{dest_layer}H{dest}", f"L{source_layer}H{source}"))
    offered = right_clicked(window, "composition", graph.name, (0, node))
    assert offered[0] == f"Zero {graph.labels[node]}"
    assert not [text for text in offered if "→" in text], "a head is pointed at, not a path"
    menu = dock(window, "composition").actions_menu  # from its button it is about the selection again
    menu.aboutToShow.emit()
    menu.offers_menu.aboutToShow.emit()
    assert f"L{source_layer}H{source} → L{dest_layer}H{dest}" in next(a.text() for a in menu.offers_menu.actions())


def test_the_bar_names_what_is_cut_however_little_room_it_has(qtbot: Any, window: Window) -> None:
    document, top = window.context.document, window.top
    document.apply(document.recorded.with_heads(Head(1, 1)), "another head than the cut one")
    document.apply(with_edits(document.recorded, ablation(Head(0, 1))), "cut")
    for stage in range(SIGNS + 1):
        top.compact(stage)
        assert "L0H1" in top.edits.text() and "✕" in top.edits.text(), stage
    assert top.edits.text() == "L0H1 ✕"
    document.apply(with_edits(document.recorded, ablation(Head(1, 2)), ablation(Head(1, 3))), "two more")
    for stage in range(SIGNS + 1):
        top.compact(stage)
        assert "L0H1" in top.edits.text() and "+2" in top.edits.text(), stage
    assert all(f"z of {head}" in top.edits.toolTip() for head in ("L0H1", "L1H2", "L1H3"))


def test_an_intervention_on_a_path_is_read_whole_in_the_narrow_dock(qtbot: Any, window: Window) -> None:
    """Its words end with the path, which tells two of them apart."""
    context = window.context
    paths = [Intervention("zero", Site("k", 1, (2,)), path_from=Site("result", 0, (head,))) for head in (1, 2)]
    context.apply(with_edits(context.document.recorded, *paths), "two paths")
    window.layout_of_docks.go_to("interventions")
    settle(qtbot, window)
    shown = window.docks["interventions"]
    assert window.width() == 1280 and isinstance(shown, InterventionsDock) and len(shown.rows) == 2
    for row, edit in zip(shown.rows, paths, strict=True):
        label = row.label
        assert label.text() == words(edit) == label.toolTip() and label.isVisible()
        assert label.fontMetrics().horizontalAdvance(label.text()) > label.width(), "or one line would do"
        assert label.height() >= label.heightForWidth(label.width()) > label.fontMetrics().height()
        assert row.remove.geometry().right() <= row.rect().right() and row.width() <= shown.area.viewport().width()
