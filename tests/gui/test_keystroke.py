"""A keystroke is paid for where it shows: the window around the panels is not laid out again, and each panel is asked once.

Counted, not timed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, QSize
from PySide6.QtWidgets import QApplication, QDockWidget, QWidget

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.state.state import State
from tests.gui.driving import dock, go, heat, settle, shown_window
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
        assert set(hints) >= {d for d in window.docks.values() if d.isVisible() and getattr(d, "filled", True)}
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


@contextmanager
def panels_asked() -> Iterator[list[tuple[str, State]]]:
    """Each call of a panel's own `requests` on this thread: the panel and the State that it is asked about."""
    of_panel = {sys.modules[panel.draw.__module__].requests.__code__: name for name, panel in panels().items()}
    asked = list[tuple[str, State]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in of_panel:
            asked.append((of_panel[frame.f_code], frame.f_locals["state"]))

    sys.setprofile(note)
    try:
        yield asked
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("compare", [None, "now", "reference", "difference"])
def test_a_keystroke_asks_each_panel_once_about_each_side(qtbot: Any, tmp_path: Path, compare: Any) -> None:
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        document = window.context.document
        if compare is not None:
            go(window, "pin")
            document.apply(replace(document.state, compare=compare), "compare")
            settle(qtbot, window)
        before = document.state.tokens
        with panels_asked() as asked:
            qtbot.keyClicks(window.prompt.editor, "x")
            settle(qtbot, window)
        now = document.state
        assert len(now.tokens) == len(before) + 1
        sides = {before: "ref", now.tokens: "now"}
        heads = now.selection.heads  # those of a State beside it are computed ahead
        counts = Counter((name, sides[state.tokens]) for name, state in asked if state.selection.heads == heads)
        shown = [one.panel.name for one in window.docks.values() if isinstance(one, PanelDock) and one.shown]
        assert len(shown) >= 3
        expected = [(name, side) for name in shown for side in (("now",) if compare is None else ("now", "ref"))]
        assert counts == Counter(expected)
