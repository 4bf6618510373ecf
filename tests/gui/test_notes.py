"""Notes in the window: written where one points, marked where published heads are, taken back by undo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QMenu

from circuitlab.draw.look.paper import Paper
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Edges, Heatmap, Hit, Rows
from circuitlab.figures.panels.composition import KINDS, CompositionView
from circuitlab.gui.panel.note_dialog import NoteDialog
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.session import ModelEntry, Note
from tests.gui.driving import dock, pixels, settle
from tests.gui.test_token_menu import AT, chosen, entry, opened, titles


def dialog(window: Window) -> NoteDialog:
    """The one that is open."""
    return next(one for one in window.findChildren(NoteDialog) if one.isVisible())


def write(window: Window, menu: QMenu, start: str, text: str) -> None:
    """A note by an entry of a Note menu."""
    menu.aboutToShow.emit()
    entry(menu, start).trigger()
    open_dialog = dialog(window)
    open_dialog.editor.setPlainText(text)
    open_dialog.keep.click()
    QApplication.processEvents()


def notes_menu(window: Window, panel: str, hit: Hit | None = None) -> QMenu:
    menu = dock(window, panel).actions_menu
    menu.aim(hit)
    return menu.notes_menu


def test_a_head_that_is_noted_is_marked_where_a_published_one_would_be(qtbot: Any, window: Window) -> None:
    document, name = window.context.document, window.context.document.recorded.model.name
    menu = notes_menu(window, "overview", Hit("heads", (1, 3), "click"))
    assert titles(menu) == ["Note on L1H3…", f"Note on {dock(window, 'overview').panel.title}…"]
    write(window, menu, "Note on L1H3", "copies names\nonly after commas")
    (note,) = document.work.notes
    assert (note.model, note.head, note.text) == (name, "L1H3", "copies names\nonly after commas")
    assert document.work.models[name].ref == document.recorded.model
    heads = dock(window, "overview").view.figure.find("heads")
    assert isinstance(heads, Heatmap)
    assert heads.hints == {(1, 3): "your note: copies names only after commas"}
    assert dock(window, "overview").view.widget("heads").readout((1, 3)).endswith("only after commas")
    shown_to_others = window.context.beside(document.recorded, window).facts().known_heads()
    assert shown_to_others is None or not shown_to_others.notes, "an audience sees no sign of it"
    window.layout_of_docks.go_to("heads")
    settle(qtbot, window)
    ranking = dock(window, "heads").view.figure.find("ranking")
    assert isinstance(ranking, Rows)
    column = next(c for c in ranking.columns if c.name == "your note")
    assert {head: text for head, text in zip(map(tuple, ranking.ids.tolist()), column.values, strict=True) if text} == {
        (1, 3): "copies names only after commas"
    }
    window.context.apply(document.recorded.with_heads(Head(1, 3)), "select")
    assert "your note" in window.top.heads.text() and "only after commas" in window.top.heads.toolTip()
    document.undo()
    document.undo()
    settle(qtbot, window)
    assert not document.work.notes
    ranking = dock(window, "heads").view.figure.find("ranking")
    assert isinstance(ranking, Rows) and all(c.name != "your note" for c in ranking.columns)


def test_a_note_is_seen_in_the_pixels_of_its_head_and_nowhere_else(qtbot: Any, window: Window) -> None:
    context = window.context
    context.apply(context.document.recorded.with_view("composition", CompositionView(top=5)), "few edges")
    window.layout_of_docks.go_to("composition")
    settle(qtbot, window)
    write(window, notes_menu(window, "attention"), "Note on L0H0", "the first")  # from now on there is room for badges
    settle(qtbot, window)
    graph = dock(window, "composition").view.widget("composition")
    nodes = [tuple(node) for node in graph.mark.node_ids.tolist()]
    free = next(i for i, badge in enumerate(graph.mark.badges) if not badge)
    before = pixels(graph)
    write(window, notes_menu(window, "overview", Hit("heads", nodes[free], "click")), "Note on L", "seen here")
    settle(qtbot, window)
    figure = dock(window, "composition").view.figure
    drawn = figure.find("composition")
    assert isinstance(drawn, Edges) and drawn.badges[free] == "†" and "† your note" in figure.title
    changed = np.argwhere((pixels(graph) != before).any(axis=2))
    box = graph._boxes()[free]
    assert len(changed), "its dagger"
    x, y = changed[:, 1], changed[:, 0]
    assert box.left() - 12 <= x.min() and x.max() <= box.right() + 12
    assert box.top() - 24 <= y.min() and y.max() <= box.bottom()


def test_a_note_on_an_edge_is_marked_on_its_line_and_read_there(qtbot: Any, window: Window) -> None:
    context = window.context
    context.apply(context.document.recorded.with_view("composition", CompositionView(top=40)), "some edges")
    window.layout_of_docks.go_to("composition")
    settle(qtbot, window)
    graph = dock(window, "composition").view.widget("composition")
    pairs = [tuple(key[:4]) for key in graph.mark.edge_ids.tolist()]
    often = next(pair for pair in pairs if pairs.count(pair) > 1)
    lines = [i for i, pair in enumerate(pairs) if pair == often]
    write(window, notes_menu(window, "attention"), "Note on L0H0", "the first")  # from now on there is room for badges
    dest, source = Head(*often[:2]), Head(*often[2:])
    context.apply(context.document.recorded.with_edge(source, dest, KINDS[graph.mark.edge_ids[lines[0]][4]]), "an edge")
    settle(qtbot, window)
    assert not graph.mark.edge_badges
    write(window, notes_menu(window, "composition"), f"Note on {source} → {dest}", "who tells it")
    settle(qtbot, window)
    assert [i for i, badge in enumerate(graph.mark.edge_badges) if badge] == lines[:1], "once, whatever goes through it"
    read = [i for i in range(len(pairs)) if graph.readout((1, i)).endswith("your note: who tells it")]
    assert read == lines
    noted = [node for node, badge in zip(graph.mark.node_ids.tolist(), graph.mark.badges, strict=True) if "†" in badge]
    assert noted == [[0, 0]], "heads only for notes on heads"
    figure = dock(window, "composition").view.figure
    assert figure.caption.endswith(f"† your notes: L0H0 “the first”; {source}→{dest} “who tells it”")
    assert "who tells it" not in dock(window, "composition").view.whole_caption, "on the screen it can be pointed at"
    printed = FigureView(paper=Paper(caption="short"))
    qtbot.addWidget(printed)
    printed.show_figure(figure)
    printed.lay_out_for_paper(400)
    assert "who tells it" in printed._caption.text(), "nor is its text left out of a short caption on paper"
    bare = replace(graph.mark, edge_badges=())
    grid = tuple(tuple(bare if mark is graph.mark else mark for mark in row) for row in figure.grid)
    pictures = []
    for each in (figure, replace(figure, grid=grid)):
        view = FigureView()
        qtbot.addWidget(view)
        view.resize(dock(window, "composition").view.size())
        view.show_figure(each)
        graph = view.widget("composition")
        pictures.append(pixels(graph))
    changed = (pictures[0] != pictures[1]).any(axis=2)
    x, y = graph._lines([lines[0]])[0].mean(axis=0)
    spots = np.argwhere(changed)
    assert len(spots), "the sign on the line"
    assert np.abs(spots - (y, x)).max() < 14


def test_a_note_on_an_edge_a_token_and_a_panel(qtbot: Any, window: Window) -> None:
    context, document = window.context, window.context.document
    context.apply(document.recorded.with_edge(Head(0, 1), Head(1, 2), "K"), "an edge")
    settle(qtbot, window)
    write(window, notes_menu(window, "composition"), "Note on L0H1 → L1H2", "who tells it")
    heads = dock(window, "overview").view.figure.find("heads")
    assert isinstance(heads, Heatmap) and not heads.hints
    assert "your notes: L0H1→L1H2" in dock(window, "overview").view.figure.caption
    write(window, notes_menu(window, "composition"), "Note on Composition", "a panel")
    assert (
        "a panel" in dock(window, "composition").bar.title.toolTip() and "a panel" not in dock(window, "heads").bar.more.toolTip()
    )
    token = document.recorded.tokens[AT]
    menu = opened(window)
    (title,) = titles(menu.notes_menu)
    assert context.notes.token(document.recorded.model, token).token in (token, title[len("Note on ‘") : -2])
    chosen(menu, entry(menu.notes_menu, "Note on"))
    dialog(window).editor.setPlainText("often")
    qtbot.keyClick(dialog(window).editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    QApplication.processEvents()
    assert [(n.edge, n.panel, n.token is not None) for n in document.work.notes] == [
        (("L0H1", "L1H2"), "", False),
        (None, "composition", False),
        (None, "", True),
    ]
    tips = window.prompt.losses.view.widget("prompt").mark.tips
    assert [tip.endswith("your note: often") for tip in tips] == [k == token for k in document.recorded.tokens]


def test_a_note_is_read_again_changed_cancelled_and_deleted(qtbot: Any, window: Window) -> None:
    document = window.context.document
    write(window, notes_menu(window, "overview", Hit("heads", (0, 2), "click")), "Note on L0H2", "one")
    menu = notes_menu(window, "attention", None)
    window.context.apply(document.recorded.with_heads(Head(0, 2)), "select")
    menu.aboutToShow.emit()
    entry(menu, "Your note on L0H2").trigger()
    assert dialog(window).editor.toPlainText() == "one"
    dialog(window).editor.setPlainText("two")
    dialog(window).cancel.click()
    assert document.work.notes[0].text == "one"
    entry(menu, "Your note on L0H2").trigger()
    assert not dialog(window).delete.isHidden()
    dialog(window).delete.click()
    assert document.work.notes == () and "L0H2" in document.undo_label
    document.undo()
    assert document.work.notes[0].text == "one"


def test_notes_on_another_model_are_not_shown(qtbot: Any, window: Window) -> None:
    document = window.context.document
    other = {"other": ModelEntry(ModelRef("builtin:gpt-mini"))}
    document.edit(replace(document.work, notes=(Note("x", model="other", head="L0H0"),), models=other), "a note")
    settle(qtbot, window)
    heads = dock(window, "overview").view.figure.find("heads")
    assert isinstance(heads, Heatmap) and not heads.hints
