"""Errors in plain words with a report to copy; after which the window goes on."""

from __future__ import annotations

import logging
import platform
import sys
import threading
import traceback
from types import TracebackType

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMessageBox, QWidget

from circuitlab import __version__
from circuitlab.errors import CircuitLabError

log = logging.getLogger("circuitlab.errors")


def report(error: BaseException) -> str:
    """What a person can paste into an issue."""
    lines = "".join(traceback.format_exception(error))
    return f"CircuitLab {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n{lines}"


class ErrorDialog(QMessageBox):
    """One error. "Copy report" puts everything on the clipboard."""

    def __init__(self, error: BaseException, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        known = isinstance(error, CircuitLabError)
        self.setIcon(QMessageBox.Icon.Warning if known else QMessageBox.Icon.Critical)
        self.setWindowTitle(error.title if known else "Something went wrong")
        self.setTextFormat(self.textFormat().PlainText)
        if isinstance(error, CircuitLabError):
            self.setText(error.what)
            parts = [f"Expected: {error.expected}" if error.expected else "", f"Got: {error.got}" if error.got else ""]
            self.setInformativeText("\n".join(p for p in (*parts, error.remedy) if p))
        else:
            self.setText("This is a fault in CircuitLab. Your work is as it was; the window goes on.")
            self.setInformativeText(f"{type(error).__name__}: {error}")
        self.report = report(error)
        self.setDetailedText(self.report)
        self.copy = self.addButton("Copy report", QMessageBox.ButtonRole.ActionRole)
        self.setDefaultButton(self.addButton(QMessageBox.StandardButton.Close))
        self.buttonClicked.connect(self._clicked)

    @Slot(object)
    def _clicked(self, button: object) -> None:
        if button is self.copy:
            QGuiApplication.clipboard().setText(self.report)


class ErrorHook(QObject):
    """Catches what nobody else does, on any thread, and tells the window."""

    caught = Signal(object)

    def install(self) -> None:
        """Take the hooks of interpreter and threads."""
        sys.excepthook = self._main
        threading.excepthook = self._thread

    def _main(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        log.critical("unhandled", exc_info=error)
        self.caught.emit(error)

    def _thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            log.critical("unhandled on %s", args.thread, exc_info=args.exc_value)
            self.caught.emit(args.exc_value)
