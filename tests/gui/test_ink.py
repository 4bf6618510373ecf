"""Colours of what has a style sheet, whatever lay in memory where it lies."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import shiboken6
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QLabel, QWidget

import circuitlab
from circuitlab.draw.look.app import application
from circuitlab.draw.look.plain_text import InkLabel
from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.look.style_rules import set_role, set_sheet
from circuitlab.draw.look.theme import LIGHT, apply_theme
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.gui.widgets import chrome

GONE, INK = "#123456", "#00aa00"
STAGE = stage_theme(1000)
SOURCE = Path(circuitlab.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_drawn_by_the_sheet_of_what_is_gone(seed: int) -> None:
    """Labels under a sheet, few of which are ever polished, come and go; left to Qt a tenth of these pages are wrong."""
    application(offscreen=True)
    rng, kept = random.Random(seed), list[QWidget]()
    for _ in range(60):
        for i in range(rng.randrange(50)):
            widget = QWidget()
            widget.setStyleSheet(f"QLabel {{ color: {GONE}; }}")
            for _ in range(20):
                QLabel("x", widget)
            if i % 5 == 0:
                widget.grab()
            kept.append(widget)
        if rng.random() < 0.7:
            kept.clear()
        page = _page()
        image = page.grab().toImage()
        drawn = {image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(0, image.height(), 2)}
        shiboken6.delete(page)
        assert INK in drawn and GONE not in drawn
    kept.clear()


def _page() -> QWidget:
    page = QWidget()
    page.resize(260, 130)
    set_sheet(page, "QToolTip { color: blue }")
    for i in range(3):
        part = QWidget(page)
        part.setGeometry(0, 40 * i, 260, 40)
        set_sheet(part, "QToolTip { color: blue }")
        for j in range(10):
            label = InkLabel("■", part)
            label.set_ink(QColor(INK))
            label.move(4 + 24 * j, 4)
    return page


def test_sheets_are_given_in_one_way() -> None:
    files = [p for p in SOURCE.rglob("*.py") if re.search(r"(?<!app)\.setStyleSheet\(", p.read_text(encoding="utf-8"))]
    assert [p.relative_to(SOURCE).as_posix() for p in files] == ["draw/look/style_rules.py"]


@pytest.mark.parametrize("sheet", ["", "QToolTip { color: blue }"])
def test_a_role_shows_at_once_with_and_without_a_sheet_above(sheet: str) -> None:
    app = application(offscreen=True)
    apply_theme(app, LIGHT, chrome.sheet(LIGHT))
    page = QWidget()
    set_sheet(page, sheet)
    label = QLabel("■■■", page)
    inks = []
    for role in ("caption", "warning", "caption", ""):
        set_role(label, role)
        page.grab()
        inks.append(label.palette().color(label.foregroundRole()).name())
    assert inks[0] == inks[2] and len(set(inks)) == 3
    assert inks[1] == QColor(LIGHT.accent).name()


def test_an_ink_stays_where_a_label_comes_under_another_sheet() -> None:
    application(offscreen=True)
    view, page = FigureView(STAGE), QWidget()
    set_sheet(page, "QLabel { color: #00aa00; }")
    wanted = STAGE.colour("text").name()
    seen = [view._title.palette().color(view._title.foregroundRole()).name()]
    for _ in range(2):
        view.setParent(page)
        page.grab()
        seen.append(view._title.palette().color(view._title.foregroundRole()).name())
        view.setParent(None)
    assert seen == [wanted] * 3 and view._caption.palette().color(view._caption.foregroundRole()) == STAGE.colour("muted")
