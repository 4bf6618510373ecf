"""How tests wait for the window and find what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from circuitlab.figures.marks import Heatmap
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.main import make_window
from circuitlab.gui.shell.window import Window

TEXT = "one two one two one"


def settle(qtbot: Any, window: Window) -> None:
    """Until every visible dock shows its answer."""
    qtbot.waitUntil(
        lambda: not window.waiting and not window.context.runner.busy and not window.prompt.timer.isActive(),
        timeout=20000,
    )
    QApplication.processEvents()


@contextmanager
def shown_window(qtbot: Any, source: str | Path, text: str = TEXT, arrangement: str = "Explore") -> Iterator[Window]:
    """A window on a model, every visible dock with its answer; closed at the end."""
    made = make_window(str(source), text, remember=False)
    made.resize(1280, 800)
    made.show()
    if arrangement != "Explore":
        made.layout_of_docks.arrange(arrangement)
    settle(qtbot, made)
    try:
        yield made
    finally:  # also where a test fails: its workers would go on under the next one
        made.close()
        made.deleteLater()


def dock(window: Window, name: str) -> PanelDock:
    found = window.docks[name]
    assert isinstance(found, PanelDock)
    return found


def heat(window: Window, name: str = "attention") -> Heatmap:
    mark = dock(window, name).view.figure.marks()[0]
    assert isinstance(mark, Heatmap)
    return mark


def pixels(widget: Any) -> np.ndarray:
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4).copy()
