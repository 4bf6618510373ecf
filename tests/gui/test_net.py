"""The net under the tests of the window: a dialog that nobody expects is a failure with its words, not a wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyqtgraph as pg
import pytest
from PySide6.QtCore import QPoint

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Figure, Heatmap
from tests.conftest import ROOT
from tests.gui.driving import pixels
from tests.patience import SECONDS

pytest_plugins = ["pytester"]

SAMPLES = """
from circuitlab.draw.look.plain_text import confirmed
from circuitlab.errors import BadModel
from circuitlab.gui.shell.errors import ErrorDialog
from PySide6.QtWidgets import QFileDialog, QMessageBox


def test_error(qtbot):
    dialog = ErrorDialog(BadModel("The file is torn.", remedy="Fetch it again."))
    qtbot.addWidget(dialog)
    dialog.exec()


def test_error_beside_the_event_loop(qtbot):
    dialog = ErrorDialog(BadModel("The file is worn."))
    qtbot.addWidget(dialog)
    dialog.open()


def test_question(qtbot):
    assert not confirmed(None, "Close", "Is it so?")


def test_about(qtbot):
    QMessageBox.about(None, "About", "A laboratory.")


def test_file(qtbot):
    assert QFileDialog.getOpenFileName(None, "Which file") == ("", "")


def test_expected(qtbot, monkeypatch):
    monkeypatch.setattr(ErrorDialog, "exec", lambda dialog: None)
    dialog = ErrorDialog(BadModel("The file is torn."))
    qtbot.addWidget(dialog)
    dialog.exec()
"""


def test_a_dialog_that_nobody_expects_is_a_failure_with_its_words(pytester: pytest.Pytester) -> None:
    names = "qapp, no_unexpected_dialog"
    pytester.makeconftest(f"from tests.conftest import *\nfrom tests.gui.conftest import {names}\n")
    pytester.makeini(f"[pytest]\nqt_api = pyside6\npythonpath = {ROOT}\n")
    pytester.makepyfile(test_samples=SAMPLES)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", timeout=SECONDS)
    assert result.parseoutcomes() == {"passed": 6, "errors": 5}, result.stdout.str()
    for words in ("*The file is torn. Fetch it again.*", "*The file is worn.*", "*Is it so?*", "*A laboratory.*", "*Which file*"):
        result.stdout.fnmatch_lines(["*nobody expected*" + words])


def test_a_map_drawn_by_a_test_alone_has_its_rows_from_the_top(qtbot: Any) -> None:
    """Without a window: the application alone decides what an image's first axis is."""
    assert pg.getConfigOption("imageAxisOrder") == "row-major"
    view = FigureView()
    qtbot.addWidget(view)
    view.resize(400, 400)
    values = np.zeros((4, 4), np.float32)
    values[0] = 1.0
    view.show_figure(Figure(((Heatmap("m", values, (0.0, 1.0)),),)))
    view.show()
    image, mark = pixels(view), view.widget("m")
    spot = lambda x, y: mark.viewport().mapTo(view, QPoint(*mark.to_pixels(np.array([x]), np.array([y]))[0].astype(int)))
    colour = lambda at: image[at.y(), at.x(), :3].tolist()
    assert colour(spot(2.5, 0.5)) != colour(spot(0.5, 2.5))
    assert colour(spot(0.5, 2.5)) == colour(spot(2.5, 2.5))
