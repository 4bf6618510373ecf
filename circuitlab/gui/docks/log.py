"""The Log panel: the lines of the log, filtered by level and by text; the same lines go to the log file."""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QComboBox, QDockWidget, QHBoxLayout, QLineEdit, QPlainTextEdit, QWidget

from circuitlab.disk.paths import log_file, private_file, private_folder
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.work.app_context import AppContext

MOST_LINES = 5000
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
FORMAT = "%(asctime)s  %(levelname)-7s  %(name)s  %(message)s"


class LogHandler(QObject, logging.Handler):
    """Hands records to the GUI thread, whatever thread they come from: `line_logged(level, line)`."""

    line_logged = Signal(int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        QObject.__init__(self, parent)
        logging.Handler.__init__(self, logging.DEBUG)
        self.setFormatter(logging.Formatter(FORMAT, "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:  # type: ignore[override]
        """Report one record to the window."""
        with suppress(RuntimeError):  # the window is gone; the file handler has the line
            self.line_logged.emit(record.levelno, self.format(record))


class _PrivateFile(RotatingFileHandler):
    """A log that nobody else reads."""

    def _open(self) -> TextIOWrapper:
        descriptor = private_file(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), self.encoding, self.errors)


def file_handler(level: str = "INFO") -> logging.Handler | None:
    """The handler of the log file, None if that cannot be written."""
    try:
        private_folder(log_file().parent)
        handler = _PrivateFile(log_file(), maxBytes=2_000_000, backupCount=2, encoding="utf-8", delay=True)
    except OSError:
        return None
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.setLevel(level)
    return handler


class LogDock(QDockWidget):
    """See the module."""

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__("Log", parent)
        self.context = context
        self.setObjectName("dock.log")
        self.lines: deque[tuple[int, str]] = deque(maxlen=MOST_LINES)
        self.level = QComboBox(self)
        self.level.addItems(LEVELS)
        self.level.setCurrentText("INFO")
        self.level.setAccessibleName("Lowest level shown")
        self.search = QLineEdit(self)
        self.search.setPlaceholderText("Search")
        self.search.setAccessibleName("Search the log")
        self.search.setClearButtonEnabled(True)
        self.text = QPlainTextEdit(self)
        self.text.setReadOnly(True)
        self.text.setAccessibleName("Log")
        self.text.setMaximumBlockCount(MOST_LINES)
        self.text.setPlaceholderText("Nothing at this level yet.")
        self.text.setFont(context.theme.font(context.theme.small, mono=True))
        self.setWidget(self.text)
        self.bar = TitleBar(self, context, self._make_controls)
        context.theme_changed.connect(self._set_theme)
        self.handler = LogHandler(self)
        self.handler.line_logged.connect(self._add_line)
        self.level.currentTextChanged.connect(self.fill)
        self.search.textChanged.connect(self.fill)
        self._file_handler = file_handler(context.settings["log_level"])
        context.settings.changed.connect(self._setting_changed)
        root = logging.getLogger("circuitlab")
        root.setLevel(logging.DEBUG)
        for handler in (self.handler, self._file_handler):
            if handler is not None:
                root.addHandler(handler)

    def _make_controls(self, parent: QWidget) -> QWidget:
        controls = QWidget(parent)
        row = QHBoxLayout(controls)
        row.setContentsMargins(0, 0, 8, 0)
        row.addWidget(self.level)
        row.addWidget(self.search, 1)
        return controls

    @Slot(object)
    def _set_theme(self, theme: Theme) -> None:
        self.text.setFont(theme.font(theme.small, mono=True))

    def _passes(self, level: int, line: str) -> bool:
        return level >= getattr(logging, self.level.currentText()) and self.search.text().lower() in line.lower()

    @Slot(str)
    def _setting_changed(self, name: str) -> None:
        if name == "log_level" and self._file_handler is not None:
            self._file_handler.setLevel(self.context.settings[name])

    @Slot(int, str)
    def _add_line(self, level: int, line: str) -> None:
        self.lines.append((level, line))
        if self._passes(level, line):
            self.text.appendPlainText(line)

    @Slot()
    def fill(self, *_: object) -> None:
        """List the lines that pass the filter."""
        self.text.setPlainText("\n".join(line for level, line in self.lines if self._passes(level, line)))

    def close_log(self) -> None:
        """Remove the handlers, and close the log file."""
        root = logging.getLogger("circuitlab")
        for handler in (self.handler, self._file_handler):
            if handler is not None:
                root.removeHandler(handler)
        if self._file_handler is not None:
            self._file_handler.close()
