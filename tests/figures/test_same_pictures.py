"""The same request is the same picture, byte for byte; and what a picture says of itself draws it again."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from circuitlab import api
from circuitlab.disk.formats import PICTURES, suffixes
from circuitlab.draw.export.pictures import picture
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.theme import DARK, LIGHT, apply_theme
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput
from circuitlab.figures.contracts.panel import panels
from circuitlab.report.render import figure_of, view_text, write
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.picture_view import PictureView
from circuitlab.state.state import Pin, State
from tests.models import FULL, directory

ROOT = Path(__file__).resolve().parents[2]
TEXT = "one two three one two"
SLOW = [pytest.param(suffix, marks=pytest.mark.slow if suffix == ".png" else ()) for suffix in suffixes(PICTURES)]


pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with everything that a panel may ask for but a training."""
    return directory(tmp_path_factory.mktemp("models") / "mine", FULL)


@cache
def looked_at(folder: Path, panel: str) -> tuple[Engine, State]:
    """A State in which a panel has a figure, beside a reference."""
    engine = Engine(ModelStore(), 4 * GIB)
    model = api.open("attn-only-2l" if panel in ("training", "prompt_sets") else str(folder), use=engine)
    other = model.state("one two four one two")
    state = replace(
        model.state(TEXT, heads="L1H2,L0H1", destination=4, source=1), pins=(Pin("other", other.subject, text=other.text),)
    )
    return engine, replace(state, compare="now" if panel in ("training", "laboratory") else "difference")


@pytest.mark.parametrize("suffix", SLOW)
@pytest.mark.parametrize("panel", panels())
def test_a_picture_is_drawn_again_by_what_it_says(mine: Path, tmp_path: Path, panel: str, suffix: str) -> None:
    engine, state = looked_at(mine, panel)
    figure = figure_of(engine, panels()[panel], state)
    assert figure.grid or panel == "laboratory", figure.why_empty
    first, second, third = (tmp_path / f"{name}{suffix}" for name in "abc")
    view = view_text(engine, PictureView(state, panel))
    write(figure, first, Paper(), view=view)
    write(figure, second, Paper(), view=view)
    assert first.read_bytes() == second.read_bytes()
    said = opened_session(first, engine).now
    assert said.state == replace(state, views={}) and said.setup.show == (panel,)
    if figure.why_empty:
        with pytest.raises(BadInput, match="nothing to draw"):
            said.figure(panel, out=third)
        assert not third.exists()
        return
    said.figure(panel, out=third)
    assert first.read_bytes() == third.read_bytes()


def test_the_theme_of_the_window_and_its_text_size_are_in_no_file(qapp, mine: Path) -> None:
    engine, state = looked_at(mine, "attention")
    figures = [figure_of(engine, panels()[name], state) for name in ("attention", "predictions")]
    drawn = lambda: [picture(figure, suffix, Paper()) for figure in figures for suffix in suffixes(PICTURES)]
    light = drawn()
    try:
        apply_theme(qapp, replace(DARK, small=14.0, normal=17.0, large=19.0))
        assert drawn() == light
    finally:
        apply_theme(qapp, LIGHT)


def test_a_pdf_is_as_its_format_says(mine: Path) -> None:
    """Each object stands where the table says, each reference leads to one, and no time is told."""
    engine, state = looked_at(mine, "attention")
    data = picture(figure_of(engine, panels()["attention"], state), ".pdf", Paper(), view='{"a": "5 0 R (D:2026)"}')
    at = int(data.rpartition(b"startxref\n")[2].split()[0])
    lines = data[at:].split(b"\n")
    first, count = map(int, lines[1].split())
    places = [int(line[:10]) for line in lines[2 : 2 + count]]
    assert (lines[0], first, lines[2][11:18]) == (b"xref", 0, b"65535 f") and all(
        len(line) == 19 for line in lines[2 : 2 + count]
    )
    for number, place in enumerate(places[1:], 1):
        assert data[place:].startswith(b"%d 0 obj\n" % number)
    assert int(re.search(rb"/Size (\d+)", data[at:])[1]) == count
    heads = b"".join(re.findall(rb"\d+ 0 obj\n(.*?)(?:stream\n|endobj)", data, re.DOTALL))
    assert {int(n) for n in re.findall(rb"(\d+) 0 R", heads)} <= set(range(1, count))
    assert b"Date" not in heads and b"5 0 R (D:2026)" in data
    assert len(set(re.findall(rb"/FontName /([A-Z]{6})\+", heads))) == heads.count(b"/FontName") > 1
