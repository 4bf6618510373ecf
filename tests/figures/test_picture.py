"""A figure in a notebook: one picture a cell, of its paper, whose names clash with none beside it, without a display."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtGui import QImage

from circuitlab import api
from circuitlab.errors import UsageError
from circuitlab.figures.marks import Figure, Heatmap
from circuitlab.report import picture as module
from circuitlab.report.picture import IN_NOTEBOOK, PLAIN, PNG, SVG, Picture

TEXT = "one two one two"


@pytest.fixture(scope="module")
def picture() -> Picture:
    return api.open("attn-only-2l").figure("attention", text=TEXT, heads="L1H3")


def test_a_cell_draws_one_picture_and_says_it_in_words(qapp, picture: Picture) -> None:
    data, more = picture._repr_mimebundle_()
    assert set(data) == {SVG, PLAIN} and not more
    assert picture.title in data[PLAIN] and "L1H3" in data[PLAIN]
    root = ET.fromstring(data[SVG])
    assert root.get("width") == f"{IN_NOTEBOOK.width_mm:g}mm" and data[SVG].startswith("<svg")
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 20
    # IPython would take either beside the bundle, and draw twice
    assert not hasattr(picture, "_repr_svg_") and not hasattr(picture, "_repr_png_")


def test_ids_are_unlike_those_of_other_pictures_and_lead_somewhere(qapp, picture: Picture) -> None:
    other = replace(picture, figure=replace(picture.figure, title='another id="g0" href="#g0"'))
    of = lambda svg: set(re.findall(r'\sid="([^"]+)"', re.sub(r">[^<]*<", "><", svg)))
    first, second = picture.svg(), other.svg()
    assert of(first) and not of(first) & of(second)
    assert picture.svg() == first
    referred = re.findall(r'(?:href="#|url\(#)([^")]+)', re.sub(r">[^<]*<", "><", second))
    assert referred and set(referred) <= of(second)
    assert ET.fromstring(second).find("{http://www.w3.org/2000/svg}title").text == 'another id="g0" href="#g0"'  # type: ignore[union-attr]


def test_it_is_set_on_its_own_paper(qapp, picture: Picture, tmp_path: Path) -> None:
    narrow = replace(picture, paper=api.Paper(width_mm=120, ink="grey"))
    assert ET.fromstring(narrow.svg()).get("width") == "120mm"
    narrow.save(tmp_path / "a.svg")
    picture.save(tmp_path / "b.svg", width_mm=120, ink="grey")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    api.open("attn-only-2l").figure("attention", text=TEXT, heads="L1H3", out=tmp_path / "c.svg", paper=narrow.paper)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "c.svg").read_bytes()
    assert picture.save(tmp_path / "d.pdf", width_mm=84).read_bytes().startswith(b"%PDF")
    with pytest.raises(UsageError):
        picture.save(tmp_path / "e.pdf", width=84)
    with pytest.raises(UsageError):
        picture.save(tmp_path / "e.gif")
    assert not list(tmp_path.glob("e.*"))


def test_a_saved_picture_can_be_opened_for_what_it_shows(qapp, picture: Picture, tmp_path: Path) -> None:
    now = api.session(picture.save(tmp_path / "a.png")).now
    assert now.state.text == TEXT and str(now.state.selection.head) == "L1H3"


def test_a_png_is_asked_for_or_taken_where_the_svg_would_be_too_large(qapp, monkeypatch, picture: Picture) -> None:
    data, more = picture._repr_mimebundle_(include={PNG})
    assert set(data) == {PNG} and set(more) == {PNG}
    image = QImage.fromData(data[PNG])
    assert abs(image.width() - 2 * more[PNG]["width"]) <= 2  # two dots a pixel
    grey = np.array([image.pixelColor(x, image.height() // 2).lightness() for x in range(image.width())])
    assert grey.min() < 200 < grey.max()
    monkeypatch.setattr(module, "LARGEST_SVG", 1000)
    assert set(picture._repr_mimebundle_()[0]) == {PNG, PLAIN}
    assert set(picture._repr_mimebundle_(exclude={PNG})[0]) == {SVG, PLAIN}


def test_its_figure_is_data_and_its_name_is_short(qapp, picture: Picture) -> None:
    mark = picture.figure.find("attention")
    assert isinstance(mark, Heatmap) and "“attention”" in repr(picture) and len(repr(picture)) < 200
    assert "nothing here" in repr(Picture(Figure(why_empty="nothing here")))


def test_a_script_without_a_display_draws_and_runs_no_event_loop(tmp_path: Path) -> None:
    code = """
import circuitlab.api as lab
picture = lab.open("attn-only-2l").figure("attention", text="one two one two", heads="L1H3")
import sys
assert "PySide6.QtWidgets" not in sys.modules
data, _ = picture._repr_mimebundle_()
from PySide6.QtGui import QGuiApplication
print(QGuiApplication.platformName(), "<svg" in data["image/svg+xml"])
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    root = str(Path(__file__).resolve().parents[2])
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"PYTHONPATH": root}, cwd=tmp_path, capture_output=True, text=True
    )
    assert run.stdout.split() == ["offscreen", "True"], run.stderr
