"""The view around the marks: titles, reasons, reuse, waiting, keys, and nothing left behind."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel

from circuitlab.draw.app import application, load_fonts
from circuitlab.draw.theme import DARK, LIGHT, apply_theme
from circuitlab.draw.view import FigureView
from circuitlab.figures.marks import Bars, Figure, Heatmap, Hit, Tokens, empty

VALUES = np.eye(4, dtype=np.float32)


def heat(name="map", values=VALUES) -> Heatmap:
    return Heatmap(name, values, (0.0, 1.0))


def shown(view) -> set[str]:
    return {label.text() for label in view.findChildren(QLabel) if label.isVisible() and label.text()}


def test_title_caption_and_pruning_are_said_literally(view):
    view.show_figure(Figure(((heat(),),), "<s> & L0H1", "norm folded · <b>", (200, 9412)))
    assert {"<s> & L0H1", "norm folded · <b>", "showing 200 of 9,412"} <= shown(view)
    labels = view.findChildren(QLabel, options=Qt.FindChildOption.FindDirectChildrenOnly)
    assert {label.textFormat() for label in labels} == {Qt.TextFormat.PlainText}


def test_why_empty_takes_the_place_of_the_picture(view):
    view.show_figure(Figure(((heat(),),), "A"))
    view.show_figure(empty("Type some text.", "Attention"))
    assert shown(view) == {"Type some text.", "Attention"}
    view.show_figure(Figure(((heat(),),), "B"))
    assert shown(view) == {"B"}


def test_a_figure_without_an_answer_keeps_the_old_picture(view):
    first = Figure(((heat(),),), "A")
    view.show_figure(first)
    view.show_figure(Figure(title="A"))
    assert view.figure is first


def test_widgets_are_used_again_by_type_and_name(view):
    view.show_figure(Figure(((heat("a"),), (heat("b"),)), "two"))
    a, b = view.widget("a"), view.widget("b")
    view.show_figure(Figure(((heat("a"), Bars("c", np.ones(2), ("x", "y"))),), "other"))
    assert view.widget("a") is a
    assert b.isHidden()


def test_weights_share_the_height(view):
    view.show_figure(Figure(((heat("a"),), (heat("b"),)), "two", weights=(3.0, 1.0)))
    view.grab()
    QApplication.processEvents()
    assert 2.5 < view.widget("a").height() / view.widget("b").height() < 3.5


def test_text_without_weights_takes_what_it_needs(view):
    view.show_figure(Figure(((heat(),), (Tokens("t", ("a", "b"), np.zeros(2)),)), "two"))
    view.grab()
    QApplication.processEvents()
    assert view.widget("t").height() < 60 < view.widget("map").height()


def test_busy_waits_before_it_dims(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A"))
    veil = view._busy
    view.set_busy(True)
    assert not veil.isVisible()
    qtbot.waitUntil(veil.isVisible, timeout=2000)
    view.set_busy(False)
    assert not veil.isVisible()
    view.set_busy(True)
    view.set_busy(False)
    assert not veil._delay.isActive()


def test_right_click_asks_for_a_menu(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A"))
    view.grab()
    widget = view.widget("map")
    at = QPoint(*map(round, widget.to_pixels(np.array([1.5]), np.array([2.5]))[0]))
    with qtbot.waitSignal(view.context_requested) as asked:
        event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, widget.mapToGlobal(at))
        QApplication.sendEvent(widget.viewport(), event)
    assert asked.args[0] == Hit("map", (2, 1), "click")


def test_escape_is_said_once(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A"))
    hits = []
    view.picked.connect(hits.append)
    qtbot.keyClick(view.widget("map"), Qt.Key.Key_Escape)
    assert hits == [Hit("map", (), "leave")]


def test_copy_image(view):
    view.show_figure(Figure(((heat(),),), "A"))
    view.copy_image()
    assert QGuiApplication.clipboard().image().width() == view.width() * view.devicePixelRatio()


def test_themes_change_the_chrome(view):
    view.show_figure(Figure(((heat(),), (Tokens("t", ("a",), np.ones(1)),)), "A"))
    for theme in (DARK, LIGHT):
        view.set_theme(theme)
        image = view.grab().toImage()
        assert image.pixelColor(image.width() - 3, image.height() // 2).name() == theme.background


def test_the_application_has_our_fonts_and_both_palettes(qapp):
    assert {"Inter", "Noto Sans Mono"} <= set(load_fonts())
    for theme in (DARK, LIGHT):
        apply_theme(qapp, theme)
        assert qapp.palette().window().color().name() == theme.window
    assert application() is qapp


def test_twenty_thousand_emits(qapp):
    view = FigureView()
    seen = []
    view.hovered.connect(lambda hit, text: seen.append(text))
    hit = Hit("map", (1, 2), "hover")
    for _ in range(20_000):
        view.hovered.emit(hit, "x")
    assert len(seen) == 20_000
    view.deleteLater()


def test_nothing_is_left_behind(qapp):
    before = len(qapp.topLevelWidgets())
    for i in range(3):
        view = FigureView()
        view.show_figure(Figure(((heat(f"m{i}"),), (Tokens("t", ("a",), np.ones(1)),)), "A"))
        view.set_busy(True)
        view.grab()
        view.deleteLater()
        del view
    from PySide6.QtCore import QCoreApplication, QEvent

    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    assert len(qapp.topLevelWidgets()) == before
