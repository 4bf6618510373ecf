"""A keystroke is paid for where it shows: the window around the panels is not laid out again. Counted, not timed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, QSize
from PySide6.QtWidgets import QApplication, QDockWidget, QWidget

from circuitlab.gui.panel.title_bar import TitleBar
from tests.gui.driving import dock, heat, settle, shown_window
from tests.models import directory


class LayoutRequests(QObject):
    """How often one widget was asked to lay itself out."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.count = 0
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.LayoutRequest
        return False


def test_a_keystroke_lays_out_no_window(qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hints: Counter[QDockWidget] = Counter()

    def size_hint(bar: TitleBar) -> QSize:
        hints[bar.dock] += 1
        return QWidget.sizeHint(bar)

    monkeypatch.setattr(TitleBar, "sizeHint", size_hint, raising=False)  # before the window: Qt remembers what is overridden
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        assert set(hints) >= {d for d in window.docks.values() if d.isVisible()}
        window.status.refresh()
        QApplication.processEvents()  # the first layout is over
        requests = LayoutRequests(window)
        hints.clear()
        tokens = len(window.context.document.state.tokens)
        for n, letter in enumerate("xyz", 1):
            qtbot.keyClicks(window.prompt.editor, letter)
            settle(qtbot, window)
            window.status.refresh()
            assert heat(window).values.shape == (tokens + n, tokens + n)
        assert requests.count == 0
        del hints[window.prompt]  # which measures its own height
        assert max(hints.values(), default=0) <= 3  # once a bar and keystroke
        assert window.prompt.count.text().startswith(f"{tokens + 3} /")
        dock(window, "attention").close()
        qtbot.waitUntil(lambda: requests.count > 0)  # it is counted at all
