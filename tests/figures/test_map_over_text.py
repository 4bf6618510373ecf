"""A map over its text: the text has indices when the axes have, and on a large stage both stand in the middle."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import picture
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import LIGHT
from circuitlab.figures.marks import Axis, Figure, Heatmap, Tokens
from tests.figures.paper_files import texts

LARGE = replace(LIGHT, small=17.6, normal=20.8, large=24.0)


def figure(n: int) -> Figure:
    names = tuple(f"t{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(n))
    values = np.tril(np.ones((n, n), np.float32))
    axis = lambda label: Axis(label, names, tokens=True)
    heat = Heatmap("map", values, (0.0, 1.0), x=axis("source"), y=axis("destination"), unit="weight")
    return Figure(((heat,), (Tokens("text", names, values[-1]),)), "title", ("caption",), weights=(4.0, 1.0))


def settled(view, theme, size, n):
    view.set_theme(theme)
    view.resize(*size)
    view.show_figure(figure(n))
    view.grab()
    QApplication.processEvents()
    return view.widget("map"), view.widget("text")


def has_indices(heat) -> bool:
    return any(axis.labels.index_step(axis.room) for axis in (heat.left_axis, heat.bottom_axis))


@pytest.mark.parametrize("n", [12, 39, 42, 90])
@pytest.mark.parametrize("size", [(1400, 720), (640, 560), (640, 300), (360, 300)], ids=str)
@pytest.mark.parametrize("theme", [LIGHT, LARGE], ids=["usual", "large"])
def test_the_text_has_indices_exactly_when_the_axes_have(view, theme, size, n):
    heat, words = settled(view, theme, size, n)
    before = words.viewport().grab().toImage()
    assert bool(words._every) == has_indices(heat)
    if words._every:
        words.show_indices(0)
        words.setMinimumHeight(0)
        assert words.viewport().grab().toImage() != before


def test_the_tokens_of_a_map_on_paper_are_found_by_their_indices(qapp):
    for width, named in ((84.0, False), (174.0, True)):
        made = figure(42)
        written = texts(ET.fromstring(picture(made, ".svg", Paper(width_mm=width, text="fonts"))))
        for i, name in enumerate(made.grid[1][0].texts):
            result = [t for t in written if t.said == name]
            assert len(result) == (3 if named else 1)
            if named or i % 5:
                continue
            token = result[0].box
            below = [t for t in written if t.said == str(i) and 0 < t.box.top() - token.bottom() < token.height()]
            assert [t for t in below if abs(t.box.center().x() - token.center().x()) < 2], (i, name)


@pytest.mark.parametrize("n", [20, 39])
def test_on_a_large_stage_map_and_text_stand_in_the_middle_and_use_the_height(view, n):
    heat, words = settled(view, LIGHT, (1456, 720), n)
    left = heat.viewport().mapTo(view, QPoint(0, 0)).x() + heat.left_axis.sceneBoundingRect().left()
    right = heat.viewport().mapTo(view, QPoint(0, 0)).x() + heat.bar.sceneBoundingRect().right()
    assert abs((left + right) / 2 - view.width() / 2) < 40
    assert abs(words.mapTo(view, words.rect().center()).x() - view.width() / 2) < 3
    assert (words._boxes[:, 1] == 0).all() and words.width() < 0.8 * view.width(), (
        "one line, that begins no further left than it must"
    )
    assert heat.frame().height() + heat.bottom_axis.height() > 0.93 * heat.viewport().height() - n
    assert heat.viewport().height() + words.height() > 0.9 * view.height()


def test_names_of_tokens_grow_with_the_text(view):
    sizes = []
    for theme in (LIGHT, LARGE):
        heat, _ = settled(view, theme, (1456, 1000), 20)
        sizes.append(heat.left_axis.labels.labelling(heat.left_axis.room).font.pixelSize())
    assert sizes[0] == round(LIGHT.normal) and sizes[1] == round(LARGE.normal)
