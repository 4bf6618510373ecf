"""An exception in what Qt calls to paint may end the process: every painter of the window is guarded, and draws the reason."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QWidget

import circuitlab.gui
from circuitlab.draw.look import guarded
from circuitlab.gui.checkpoints.series import Point
from circuitlab.gui.checkpoints.series_slider import SeriesSlider
from circuitlab.gui.widgets.labels import ShortLabel

GUI = Path(circuitlab.gui.__file__).parent


def _is_guarded(function: ast.FunctionDef) -> bool:
    decorators = [node.id for node in function.decorator_list if isinstance(node, ast.Name)]
    calls = [node.func.id for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return "guarded_widget" in decorators or "guarded" in calls


def test_every_painter_of_the_window_is_guarded() -> None:
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in GUI.rglob("*.py")}
    functions = [(file, node) for file, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    painters = [(file, function) for file, function in functions if function.name in ("paintEvent", "paint")]
    assert len(painters) >= 7
    assert not [f"{file.name}, line {f.lineno}" for file, f in painters if not _is_guarded(f)]


def _label(parent: QWidget) -> QWidget:
    label = ShortLabel(parent)
    label.setText("a line of text")
    return label


def _slider(parent: QWidget) -> QWidget:
    slider = SeriesSlider(parent)
    slider.show_points(tuple(Point(i, 10 * i, 100 * i) for i in range(3)))
    return slider


@pytest.mark.parametrize(("make", "name"), [(_label, "_elides"), (_slider, "points")])
def test_a_painter_that_fails_draws_the_reason(
    qtbot: Any, make: Callable[[QWidget], QWidget], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded._LOGGED.clear()
    parent = QWidget()
    qtbot.addWidget(parent)
    widget = make(parent)
    widget.resize(400, 60)
    parent.resize(400, 60)
    parent.show()
    QApplication.processEvents()
    whole = widget.grab().toImage()
    value = getattr(widget, name)
    setattr(widget, name, ("not a value of it",))
    marred = widget.grab().toImage()
    assert marred.size() == whole.size() and marred != whole
    assert widget.grab().toImage() == marred
    assert len([r for r in caplog.records if r.name == "circuitlab.draw"]) == 1  # once, however often it is painted
    setattr(widget, name, value)
    assert widget.grab().toImage() == whole
