"""The one QApplication: style, pyqtgraph's options and the bundled fonts, set before the first widget."""

from __future__ import annotations

import os

import pyqtgraph as pg
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QApplication

from circuitlab.disk.paths import resource
from circuitlab.draw.look.theme import LIGHT, apply_theme

_LOADED = "circuitlab_prepared"


def application(offscreen: bool = False) -> QApplication:
    """The running application, or a new one; `offscreen` needs no display. Style and fonts are set once."""
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        if offscreen:
            os.environ["QT_QPA_PLATFORM"] = "offscreen"
        # Qt hands each fill of more than 95 spans, a grid line even, to threads and waits for them: 80 µs a line against 3.
        os.environ.setdefault("QT_NO_GUI_THREADPOOL", "1")
        app = QApplication(["circuitlab"])
    if not app.property(_LOADED):
        app.setProperty(_LOADED, True)
        # Row-major images draw three times as fast as column-major ones of the same size.
        pg.setConfigOptions(imageAxisOrder="row-major", antialias=True, useNumba=False, useOpenGL=False)
        app.setApplicationName("circuitlab")
        app.setApplicationDisplayName("CircuitLab")
        app.setStyle("Fusion")
        load_fonts()
        apply_theme(app, LIGHT)
    return app


def load_fonts() -> tuple[str, ...]:
    """Add the bundled fonts to Qt, which ships none, and return their family names."""
    families: list[str] = []
    for path in sorted(resource("fonts").glob("*.[ot]tf")):
        families += QFontDatabase.applicationFontFamilies(QFontDatabase.addApplicationFont(str(path)))
    return tuple(dict.fromkeys(families))
