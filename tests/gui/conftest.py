"""One window on a small random model. A dialog that nobody expects fails its test with what it says, and waits for no hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QLabel, QMessageBox

from circuitlab.draw.look.app import application
from circuitlab.gui.checkpoints import playing
from circuitlab.gui.docks import prompt
from circuitlab.gui.lessons import own_story
from circuitlab.gui.sessions import coming_back
from circuitlab.gui.shell import dialogs
from circuitlab.gui.shell.dialogs import ErrorDialog
from circuitlab.gui.shell.window import Window
from circuitlab.gui.training import process
from tests.gui.driving import shown_window
from tests.models import directory
from tests.patience import SECONDS

BOXES = ("about", "aboutQt", "critical", "information", "question", "warning")  # they wait for an answer by themselves
FILES = ("getExistingDirectory", "getOpenFileName", "getOpenFileNames", "getSaveFileName")


@pytest.fixture(scope="session")
def qapp() -> QApplication:
    """pytest-qt's application is ours, also for a test that is run alone: its style, fonts, and pyqtgraph's order of axes."""
    return application()


def _words(dialog: QDialog) -> str:
    if isinstance(dialog, QMessageBox):
        return " ".join(filter(None, (dialog.text(), dialog.informativeText())))
    return " ".join(label.text() for label in dialog.findChildren(QLabel))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no slow panel, no process that does not stop, no pause of somebody who types, and no long work."""
    for module in (playing, process):
        monkeypatch.setattr(module, "PATIENCE", int(2 * SECONDS * 1000))
    for module, name in ((prompt, "BURST"), (own_story, "PAUSE"), (dialogs, "LONG"), (coming_back, "PATIENCE")):
        monkeypatch.setattr(module, name, 2 * SECONDS)


@pytest.fixture(autouse=True)
def no_unexpected_dialog(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A dialog that waits for an answer (`exec`), or reports an error (`open`), fails the test, unless the test replaces it."""
    seen: list[str] = []

    def closed(dialog: QDialog, *_: Any) -> int:
        seen.append(f"{type(dialog).__name__} “{dialog.windowTitle()}”: {_words(dialog)}")
        return int(QDialog.DialogCode.Rejected)

    def refused(kind: type[QDialog], name: str) -> Callable[..., Any]:
        def say(*arguments: Any, **more: Any) -> Any:
            seen.append(f"{kind.__name__}.{name}: {' '.join(a for a in arguments if isinstance(a, str))}")
            if name == "getExistingDirectory":
                return ""
            return ("", "") if kind is QFileDialog else QMessageBox.StandardButton.NoButton

        return say

    def opened(dialog: QDialog) -> None:
        closed(dialog)
        dialog.done(0)

    for box in (QDialog, QMessageBox):
        monkeypatch.setattr(box, "exec", closed)
    for box in (ErrorDialog, QMessageBox):  # other dialogs that are opened without an event loop are what a test drives
        monkeypatch.setattr(box, "open", opened)
    for kind, names in ((QMessageBox, BOXES), (QFileDialog, FILES)):
        for name in names:
            monkeypatch.setattr(kind, name, staticmethod(refused(kind, name)))
    yield
    assert not seen, f"a dialog that nobody expected: {'; '.join(seen)}"


@pytest.fixture
def window(qtbot: Any, tmp_path: Path) -> Iterator[Window]:
    with shown_window(qtbot, directory(tmp_path / "model")) as made:
        yield made
