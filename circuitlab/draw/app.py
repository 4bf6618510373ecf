"""The application object: Fusion, bundled fonts, pyqtgraph's options. Torch has been imported before (see launch)."""

from __future__ import annotations

import os
import sys
from functools import lru_cache

import pyqtgraph as pg
from PySide6.QtGui import QFont, QFontDatabase
from PySide6.QtWidgets import QApplication

from circuitlab.draw.theme import LIGHT, apply_theme
from circuitlab.paths import resource

SANS, MONO = "Inter", "JetBrains Mono"


def application(offscreen: bool = False) -> QApplication:
    """The application, made now if there is none."""
    made = QApplication.instance()
    if isinstance(made, QApplication):
        _prepare(made)
        return made
    if offscreen:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    app = QApplication(sys.argv[:1])
    app.setApplicationName("CircuitLab")
    app.setDesktopFileName("circuitlab")
    _prepare(app)
    return app


def _prepare(app: QApplication) -> None:
    if app.property("circuitlab"):
        return
    app.setProperty("circuitlab", True)
    pg.setConfigOptions(imageAxisOrder="row-major", antialias=True)
    app.setStyle("Fusion")
    for file in sorted(resource("fonts").glob("*.[ot]tf")):
        QFontDatabase.addApplicationFont(str(file))
    app.setFont(sans(LIGHT.normal))
    apply_theme(app, LIGHT)


def sans(points: float, bold: bool = False) -> QFont:
    """The interface face, figures of equal width."""
    font = QFont(SANS)
    font.setPointSizeF(points)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    if hasattr(font, "setFeature"):  # Qt 6.7
        font.setFeature(QFont.Tag("tnum"), 1)
    return font


@lru_cache(maxsize=8)
def mono(points: float) -> QFont:
    """The face of tokens. Not to be changed by who gets it."""
    font = QFont(MONO)
    font.setPointSizeF(points)
    font.setStyleHint(QFont.StyleHint.Monospace)
    return font
