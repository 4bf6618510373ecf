"""What is zoomed leaves the window as it is seen, and says that it is a part; everything else is drawn whole."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QPainter, QWheelEvent
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import export
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.plots.lines import PLAIN
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Axis, Figure, Heatmap, Lines, Points, ids

N = 40
CELLS = np.zeros((N, N), np.float32)
CELLS[8:14, 8:14] = 1.0  # only here is there anything
MAP = Heatmap("map", CELLS, (0.0, 1.0), x=Axis("source"), y=Axis("destination"), colour_bar=False)
CURVE = Lines("curve", np.arange(N, dtype=float), np.sin(np.arange(N))[None], ("a",), x_axis=Axis("step"), y_axis=Axis("loss"))
DOTS = Points("dots", np.arange(N, dtype=float), np.arange(N, dtype=float), ids(np.arange(N)), x_axis=Axis("a"), y_axis=Axis("b"))
FULL = Paper(caption="full")


def shown(view: FigureView, mark: Any) -> Any:
    view.resize(640, 520)
    view.show_figure(Figure(((mark,),), "T", ("a caption",)))
    view.grab()
    QApplication.processEvents()
    return view.widget(mark.name)


def written(view: FigureView, path: Path, whole: bool = False) -> QImage:
    export(view.as_shown(), path, FULL, {} if whole else view.parts())
    if path.suffix == ".png":
        return QImage(str(path)).convertToFormat(QImage.Format.Format_RGB32)
    renderer = QSvgRenderer(str(path))
    image = QImage(renderer.defaultSize() * 4, QImage.Format.Format_RGB32)
    image.fill(Qt.GlobalColor.white)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()
    return image


def dark(image: QImage) -> int:
    """Pixels in the colour of the largest value."""
    data = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)[:, :, :3].astype(int)
    return int((np.abs(data - np.array([0x5E, 0x1A, 0x23])).sum(axis=2) < 24).sum())


def test_a_part_has_a_frame_and_a_label_at_a_cell_that_is_cut(view: FigureView) -> None:
    names = tuple(f"n{i}" for i in range(N))
    widget = shown(view, replace(MAP, x=Axis("source", names), y=Axis("destination", names)))
    drawn = lambda: widget.viewport().grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    corner = lambda image: image.pixelColor(widget.frame().toRect().topLeft() + QPoint(0, 20)).name()
    assert corner(drawn()) != view.theme.colour("line").name()
    widget.show_part(((20.0, 23.4), (20.0, 23.4)))  # white cells, the last without its middle
    for axis, side in ((widget.bottom_axis, widget.frame().width()), (widget.left_axis, widget.frame().height())):
        drawn()
        assert axis.place(23) > side, "its middle is not seen"
        assert side * 3 / 3.4 < axis._seen_place(23, side, 10.0) < side, "its label is on what is"
        assert axis._seen_place(23, side, side) == axis.place(23), "where it has room"
        assert axis._seen_place(21, side, 10.0) == axis.place(21)
    assert corner(drawn()) == view.theme.colour("line").name()


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_zoomed_map_is_exported_as_it_is_seen(view: FigureView, tmp_path: Path, suffix: str) -> None:
    widget = shown(view, MAP)
    assert view.parts() == {} and "part:" not in view.whole_caption
    whole = dark(written(view, tmp_path / f"a{suffix}"))
    widget.show_part(((8.0, 14.0), (8.0, 14.0)))  # all of it has the largest value
    assert re.findall(r"(\w+) 8–13 of 0–39", view.part_words()) == ["source", "destination"]
    assert view.part_words() in view.whole_caption
    part = written(view, tmp_path / f"b{suffix}")
    assert dark(part) > 20 * whole > 0
    file = tmp_path / f"b{suffix}"
    text = QImage(str(file)).text("Description") if suffix == ".png" else file.read_text("utf-8")
    assert view.part_words() in text, "the file says that it is a part"
    widget.show_part(((20.0, 30.0), (20.0, 30.0)))  # where there is nothing
    assert dark(written(view, tmp_path / f"c{suffix}")) == 0
    assert abs(dark(written(view, tmp_path / f"d{suffix}", whole=True)) - whole) <= 0.02 * whole
    widget.reset_view()
    assert view.parts() == {} and "part:" not in view.whole_caption
    assert abs(dark(written(view, tmp_path / f"e{suffix}")) - whole) <= 0.02 * whole


def test_what_lies_outside_is_not_in_the_file(view: FigureView, tmp_path: Path) -> None:
    widget = shown(view, MAP)
    export(view.as_shown(), tmp_path / "whole.svg", FULL, view.parts())
    widget.show_part(((20.0, 30.0), (20.0, 30.0)))
    export(view.as_shown(), tmp_path / "part.svg", FULL, view.parts())
    paths = lambda name: (tmp_path / name).read_text().count("231a5e")
    assert paths("whole.svg") and not paths("part.svg")


@pytest.mark.parametrize("mark", [CURVE, DOTS], ids=["curve", "dots"])
def test_plots_keep_their_ranges(view: FigureView, tmp_path: Path, mark: Any) -> None:
    widget = shown(view, mark)
    at = QPointF(widget.frame().center())
    none, phase = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase
    for _ in range(4):
        wheel = QWheelEvent(
            at, QPointF(widget.mapToGlobal(at.toPoint())), QPoint(), QPoint(0, 240), Qt.MouseButton.NoButton, none, phase, False
        )
        QApplication.sendEvent(widget.viewport(), wheel)
    ((x0, x1), (y0, y1)) = view.parts()[mark.name]
    assert 0 < x0 < x1 < N - 1
    words = view.part_words()
    assert words.startswith("part: ") and f"{mark.x_axis.label} " in words and f"{mark.y_axis.label} " in words
    export(view.as_shown(), tmp_path / "a.svg", FULL, view.parts())
    assert words.split(",")[0].encode() in (tmp_path / "a.svg").read_bytes()
    made = FigureView(paper=FULL)
    made.resize(640, 520)
    made.show_figure(view.figure)
    made.show_parts(view.parts())
    assert np.allclose(made.widget(mark.name).box.viewRange(), [[x0, x1], [y0, y1]], rtol=1e-3)
    made.deleteLater()


def test_keys_zoom_as_the_wheel_does(view: FigureView, qtbot: Any) -> None:
    widget = shown(view, CURVE)
    qtbot.keyClick(widget, Qt.Key.Key_Plus)
    assert "curve" in view.parts()
    view.show_figure(Figure(((Lines("curve", CURVE.x, CURVE.ys + 0.1, ("a",), x_axis=CURVE.x_axis, y_axis=CURVE.y_axis),),), "T"))
    assert "curve" in view.parts(), "what was zoomed by hand stays"
    qtbot.keyClick(widget, Qt.Key.Key_R)
    assert view.parts() == {}


def test_curves_do_not_run_out_of_their_frame(view: FigureView, tmp_path: Path) -> None:
    widget = shown(view, CURVE)
    widget.show_part(((10.0, 20.0), (-0.2, 0.2)))
    image = written(view, tmp_path / "a.png")
    top = image.copy(image.width() // 2, 0, image.width() // 2, round(image.height() * 0.1))  # beside the title
    assert {top.pixel(i, j) & 0xFFFFFF for i in range(top.width()) for j in range(top.height())} == {0xFFFFFF}
    export(view.as_shown(), tmp_path / "a.svg", FULL, view.parts())
    root = ET.parse(tmp_path / "a.svg").getroot()
    ink = "#{:02x}{:02x}{:02x}".format(*PLAIN[0])
    curves = [e for e in root.iter() if ink in (e.get("stroke"), e.get("fill")) and len(e)]
    clipped = {id(inside) for outer in root.iter() if outer.get("clip-path") for inside in outer.iter()}
    assert curves and all(id(curve) in clipped for curve in curves)
    export(view.as_shown(), tmp_path / "a.pdf", replace(FULL, text="outlines"), view.parts())
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
