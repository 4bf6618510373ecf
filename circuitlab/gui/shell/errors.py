"""The dialog of an error, in plain words and with a report to copy, and the hook for uncaught exceptions."""

from __future__ import annotations

import logging
import platform
import sys
import threading
import traceback
from types import TracebackType

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QDialogButtonBox, QGridLayout, QLabel, QLineEdit, QMessageBox, QPlainTextEdit, QPushButton, QWidget

from circuitlab import __version__
from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import PlainBox
from circuitlab.errors import LONGEST, CircuitLabError, UnknownFamily, bounded, reason

LINES = 16  # lines of a list that are visible at once
log = logging.getLogger("circuitlab.errors")


def report(error: BaseException) -> str:
    """The text for a bug report: versions, platform, traceback."""
    lines = "".join(traceback.format_exception(error))
    return f"CircuitLab {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n{lines}"


class ErrorDialog(PlainBox):
    """Shows one error. “Copy report” copies the report to the clipboard."""

    def __init__(self, error: BaseException, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.copy_command: QPushButton | None = None
        anticipated = isinstance(error, CircuitLabError)
        self.setIcon(QMessageBox.Icon.Warning if anticipated else QMessageBox.Icon.Critical)
        self.setWindowTitle(error.title if anticipated else "Something went wrong")
        self.setTextFormat(self.textFormat().PlainText)
        if isinstance(error, CircuitLabError):
            self.setText(bounded(error.what, 2 * LONGEST))
            parts = [f"Expected: {error.expected}" if error.expected else "", f"Got: {error.got}" if error.got else ""]
            known = f"Opened: {error.known}" if isinstance(error, UnknownFamily) and error.known else ""
            self.setInformativeText("\n".join(bounded(p, 4 * LONGEST) for p in (*parts, error.remedy, known) if p))
        else:
            self.setText("This is a bug in CircuitLab. Your work is unchanged, and you can go on.")
            self.setInformativeText(reason(error))
        for label in self.findChildren(QLabel):  # Qt guesses for each of them whether its text is markup
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.report = report(error)
        self.setDetailedText(self.report)
        self.copy = self.addButton("Copy report", QMessageBox.ButtonRole.ActionRole)
        self.setDefaultButton(self.addButton(QMessageBox.StandardButton.Close))
        self.buttonClicked.connect(self._clicked)
        if isinstance(error, UnknownFamily) and error.tensors:
            self._add_tensors(error)

    def _add_tensors(self, error: UnknownFamily) -> None:
        """Add the names of the file's tensors and the command that imports it, to be copied."""
        names = QPlainTextEdit("\n".join((f"{number_of(error.n_tensors, 'tensor')}:", *error.tensors)), self)
        names.setReadOnly(True)
        names.setAccessibleName("The file's own tensors")
        names.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        names.setMinimumSize(520, min(len(error.tensors) + 3, LINES) * names.fontMetrics().lineSpacing())
        command = QLineEdit(error.command, self)
        command.setReadOnly(True)
        command.setCursorPosition(0)
        command.setAccessibleName("The command that imports it")
        grid = self.layout()
        assert isinstance(grid, QGridLayout)
        row = grid.rowCount()
        buttons = self.findChild(QDialogButtonBox)
        for widget in (names, command, buttons):  # the buttons stay at the bottom
            if widget is not None:
                grid.removeWidget(widget)
                grid.addWidget(widget, row, 0, 1, grid.columnCount())
                row += 1
        self._command = error.command
        self.copy_command = self.addButton("Copy command", QMessageBox.ButtonRole.ActionRole)

    @Slot(object)
    def _clicked(self, button: object) -> None:
        if button is self.copy:
            QGuiApplication.clipboard().setText(self.report)
        elif button is self.copy_command:
            QGuiApplication.clipboard().setText(self._command)


class ErrorHook(QObject):
    """Reports uncaught exceptions, on any thread: `caught(error)`."""

    caught = Signal(object)

    def install(self) -> None:
        """Replace the hooks of the interpreter and of threads."""
        sys.excepthook = self._on_main_thread
        threading.excepthook = self._on_other_thread

    def _on_main_thread(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        log.critical("unhandled", exc_info=error)
        self.caught.emit(error)

    def _on_other_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            log.critical("unhandled on %s", args.thread, exc_info=args.exc_value)
            self.caught.emit(args.exc_value)
