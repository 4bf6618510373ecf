"""In the window: what the tip names is what a click takes, and nothing stays behind at the pointer."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint

from circuitlab.draw.plots.plot import PlotMark
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Hit
from circuitlab.gui.shell.window import Window
from tests.figures.test_mark_gestures import receiver
from tests.figures.test_pointing import clicked, moved
from tests.gui.driving import dock, settle

SPOTS = ((0.2, 0.3), (0.35, 0.7), (0.55, 0.5))


def view_of(window: Window, name: str) -> FigureView:
    return window.prompt.losses.view if name == "prompt" else dock(window, name).view


def places_in(widget: Any) -> list[QPoint]:
    """Of the viewport: inside the picture, without axes."""
    target = receiver(widget)
    room = widget.frame().toRect() if isinstance(widget, PlotMark) else target.rect()
    return [QPoint(round(room.x() + x * room.width()), round(room.y() + y * room.height())) for x, y in SPOTS]


@pytest.mark.parametrize("compared", [False, True])
def test_hover_then_click_without_moving_is_one_thing(qtbot: Any, window: Window, compared: bool) -> None:
    if compared:
        window.state_commands.pin()
        window.prompt.editor.setPlainText("two one two one")
        window.prompt.commit()
        window.state_commands.compare("difference")
    for name in ("attention", "heads", "predictions", "prompt", "overview"):
        if name != "prompt":
            window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        _hover_and_click(qtbot, window, view_of(window, name))


def _hover_and_click(qtbot: Any, window: Window, view: FigureView) -> None:
    told = list[Hit]()
    view.hovered.connect(lambda hit, said: told.append(hit))
    view.picked.connect(told.append)
    widget = view.widget(view.figure.marks()[0].name)
    target, hovers = receiver(widget), 0
    for at in places_in(widget):
        told.clear()
        where, corner, size = target.mapToGlobal(at), target.mapToGlobal(QPoint()), target.size()
        moved(target, at)
        settle(qtbot, window)
        if not told or told[-1].gesture != "hover":
            continue
        hovers += 1
        assert (target.mapToGlobal(QPoint()), target.size()) == (corner, size), "moved under the pointer"
        clicked(window, where)
        settle(qtbot, window)
        assert [hit.id for hit in told if hit.gesture == "click"] == [next(h.id for h in told if h.gesture == "hover")]
    assert hovers
