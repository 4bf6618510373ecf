"""A step that plays as a file, read back by another library: how many frames, how long each, and that each is its checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PySide6.QtCore import QPoint, QPointF, QRect
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QScrollBar, QWidget

from circuitlab import api
from circuitlab.analysis.base import NullContext
from circuitlab.cli.parser import main
from circuitlab.draw.export.animation import rgb_bytes
from circuitlab.draw.export.film import FilmPage, drawn
from circuitlab.draw.export.pictures import discard
from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.slide import MOST_PIXELS, Film, Frame, Slide
from circuitlab.draw.painted.mark import PaintedMark
from circuitlab.errors import BadInput, BadMachine, Cancelled, UsageError
from circuitlab.figures.contracts.panel import find_panel, panels
from circuitlab.figures.marks import Axis, Figure, Heatmap, Tokens
from circuitlab.gui.presenter.stage_views import pictures_of
from circuitlab.model.records.series import METRICS
from circuitlab.report.content import report_of
from circuitlab.report.film import FilmPlan, film_scenes, filmed
from circuitlab.report.render import figure_of
from circuitlab.report.requests import panels_at, shown_panels
from circuitlab.report.saved_session import FILM_NOT_DRAWN, SavedStep
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.film import scenes_of_training, without_repeat
from circuitlab.story.setup import Setup, Sweep
from circuitlab.story.story import Step
from tests.talks import TEXT, talk

SMALL = Slide(640, 360)
FIGURE = slice(90, 300)  # its rows that have neither the value nor the bar of how far the film is
FILM = 3  # the step of the talk that plays


pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talk(tmp_path_factory.mktemp("film"))


@pytest.fixture
def step(path: Path) -> SavedStep:
    return api.session(path).steps[FILM]


class Stopped(NullContext):
    """Cancelled after so many ticks."""

    def __init__(self, after: int) -> None:
        self.left = after

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.left -= 1
        if self.left < 0:
            raise Cancelled


def frames_of(path: Path) -> tuple[list[np.ndarray], list[int]]:
    """Each frame [y, x, 3] and how long it stays, in ms, as Pillow reads them."""
    pictures, times = [], []
    with Image.open(path) as image:
        for i in range(image.n_frames):  # type: ignore[attr-defined]
            image.seek(i)
            pictures.append(np.array(image.convert("RGB")))
            times.append(int(image.info["duration"]))
    return pictures, times


def pixels(image: QImage) -> np.ndarray:
    return np.frombuffer(rgb_bytes(image), np.uint8).reshape(image.height(), image.width(), 3)


def plan(step: SavedStep, *panels: str) -> FilmPlan:
    final = step.state.model
    scenes = scenes_of_training(step.of.engine.store, step.state, replace(final, checkpoint=0), final)
    return FilmPlan(scenes, tuple(map(find_panel, panels or ("attention", "predictions"))), "A title")


@pytest.fixture
def pages() -> Iterator[list[FilmPage]]:
    opened: list[FilmPage] = []
    yield opened
    for page in opened:
        discard(page)


def test_each_frame_of_the_file_is_the_picture_of_its_checkpoint(step: SavedStep, tmp_path: Path, pages: list[FilmPage]) -> None:
    out = tmp_path / "a.webp"
    assert step.film(out, SMALL) == ()
    pictures, times = frames_of(out)
    assert times == [250, 250, 250, 1500], "the end stays"
    film, lacking = filmed(step.of.engine, plan(step))
    assert [frame.words for frame in film.frames] == ["step 3", "step 5", "step 9", "final weights"] and not lacking
    film = replace(film, title=step.title)
    pages.append(page := FilmPage(film, SMALL))
    for i in (2, 0, 3, 1):  # in another order: what a frame shows does not hang on what was shown before it
        page.show_frame(i)
    for i in (1, 3, 0, 2):
        page.show_frame(i)
        assert np.array_equal(pixels(page.image()), pictures[i]), i
    assert len({picture.tobytes() for picture in pictures}) == 4
    with Image.open(out) as image:
        assert image.info["loop"] == 0
        said = image.info["xmp"].decode("utf-8")
    assert "centred" in said and "step 3" in said and str(tmp_path) not in said


def test_cells_have_the_colours_of_what_the_checkpoint_computes(step: SavedStep, pages: list[FilmPage]) -> None:
    film, _ = filmed(step.of.engine, plan(step, "attention"))
    pages.append(page := FilmPage(film, SMALL))
    images = [image for image in drawn(film, SMALL) if image is not None]
    for i in range(len(film.frames)):
        page.show_frame(i)
    widget = page.views[0].widget("attention")
    for scene, image, frame in zip(plan(step).scenes, images, film.frames, strict=True):
        ref, head = scene.state.model, scene.state.selection.head
        model = api.Model(ref, step.of.engine)
        values = model.compute("attention", tokens=scene.state.tokens, set={"heads": str(head)}).result.values[0]
        mark = frame.figures[0].find("attention")
        assert isinstance(mark, Heatmap)
        wanted = rgb(values, mark.levels, mark.map, SMALL.look)
        n = len(values)
        for row, col in ((n - 1, 0), (n - 1, n - 1), (2, 1), (n - 2, 3)):
            at = widget.to_pixels(np.array([col + 0.3]), np.array([row + 0.3]))[0]
            spot = widget.viewport().mapTo(page, QPointF(*at).toPoint())
            assert np.abs(pixels(image)[spot.y(), spot.x()].astype(int) - wanted[row, col]).max() <= 2, (frame.words, row, col)


def test_colours_mean_the_same_in_all_frames(step: SavedStep) -> None:
    one = plan(step, "residual")
    film, _ = filmed(step.of.engine, one)
    maps = lambda figures: {m.levels for figure in figures for m in figure.marks() if isinstance(m, Heatmap)}
    (held,) = maps(frame.figures[0] for frame in film.frames)
    own = maps(figure_of(step.of.engine, one.panels[0], scene.state) for scene in one.scenes)
    assert len(own) > 1 and held == (min(low for low, _ in own), max(high for _, high in own))


def test_axes_and_places_are_the_same_in_all_frames(step: SavedStep, pages: list[FilmPage]) -> None:
    film, _ = filmed(step.of.engine, plan(step, "spectra", "residual", "attribution"))
    pages.append(page := FilmPage(film, SMALL))
    for i in range(len(film.frames)):
        page.show_frame(i)
    places: set[Any] = set()
    alone: set[Any] = set()
    for i in range(len(film.frames)):
        page.show_frame(i)
        seen = []
        for view in page.views:
            seen.append(view.geometry().getRect())
            for widget in view._widgets.values():
                seen.append(widget.geometry().getRect())
                if hasattr(widget, "box"):
                    seen += [widget.frame().getRect(), *map(tuple, widget.box.viewRange())]
                    alone.add((widget.mark_name, widget.full_range()))
                if hasattr(widget, "_span"):
                    seen.append(widget._span)
        places.add(tuple(seen))
    assert len(places) == 1
    assert len(alone) > len({name for name, _ in alone}), "left to themselves their axes differ"


def test_a_film_has_no_hole_for_a_panel_without_a_figure(step: SavedStep, tmp_path: Path) -> None:
    out = tmp_path / "a.webp"
    (remark,) = step.film(out, SMALL, ("attention", "patching"))
    assert "atching" in remark and len(frames_of(out)[0]) == 4
    with pytest.raises(BadInput):
        step.film(tmp_path / "b.webp", SMALL, ("patching",))
    assert not (tmp_path / "b.webp").exists()


def test_a_gif_has_the_same_colours_in_all_frames(step: SavedStep, tmp_path: Path) -> None:
    webp, gif = tmp_path / "a.webp", tmp_path / "a.gif"
    step.film(webp, replace(SMALL, fps=8.0, loop=False))
    step.film(gif, replace(SMALL, fps=8.0, loop=False))
    (exact, _), (near, times) = frames_of(webp), frames_of(gif)
    assert [round(t / 10) for t in times] == [12, 12, 12, 150]  # hundredths of a second
    for a, b in zip(exact, near, strict=True):
        assert np.abs(a.astype(int) - b).mean() < 2.0
        assert (a == 255).all(axis=2).sum() == (b == 255).all(axis=2).sum(), "the ground is the ground"
    with Image.open(gif) as image:
        assert b"step 3" in image.info["comment"] and "loop" not in image.info


def test_forwards_backwards_and_the_last_checkpoint_once(step: SavedStep) -> None:
    engine, final = step.of.engine, step.state.model
    points = lambda *ends: [
        s.words
        for s in without_repeat(
            engine.store, scenes_of_training(engine.store, step.state, *(replace(final, checkpoint=c) for c in ends))
        )
    ]
    assert points(0, None) == ["step 3", "step 5", "step 9", "final weights"]
    assert points(None, 1) == ["final weights", "step 9", "step 5"]
    assert points(1, 0) == ["step 5", "step 3"]
    folder = Path(final.source.removeprefix("file:"))
    for step_of_final, expected in ((9, ["step 3", "step 5", "final weights"]), (12, 4)):
        (folder / METRICS).write_text(f'{{"step": {step_of_final}}}')
        assert points(0, None) == expected or len(points(0, None)) == expected, "the same weights are shown once"
    (folder / METRICS).unlink()


def test_along_a_parameter_of_the_constructed_model(tmp_path: Path) -> None:
    model = api.open("rope-induction")
    state = model.state("A B C A B")
    scenes = film_scenes(state, "offset=1:3")
    assert [scene.words for scene in scenes] == ["offset 1", "offset 2", "offset 3"]
    film, _ = filmed(model.engine, FilmPlan(scenes, (find_panel("attention"),)))
    for k, frame in enumerate(film.frames, 1):
        assert any(f"offset={k}" in part for part in frame.figures[0].about) or k == 1
    assert [s.words for s in film_scenes(state, "offset=3:1")] == ["offset 3", "offset 2", "offset 1"]
    assert len(film_scenes(state, "alpha=1:20")) == 25 and len(film_scenes(state, "alpha=1:20:4")) == 4
    for wrong in ("offset", "offset=1", "variant=K:S", "nothing=1:2", "offset=a:b", "alpha=nan:1", "bos=0:1"):
        with pytest.raises(UsageError):
            film_scenes(state, wrong)
    with pytest.raises(BadInput):
        film_scenes(api.open("attn-only-1l").state("a b"), "alpha=1:2")


def test_without_pillow_it_is_said_what_to_install_before_anything_is_computed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr("circuitlab.report.film.filmed", lambda *_: pytest.fail("computed"))
    assert main(["film", f"{path}#{FILM + 1}", "-o", str(tmp_path / "a.webp")]) == BadMachine.exit_code
    assert "circuitlab[film]" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [
        ["-o", "a.mp4"],
        ["-o", "a.webp", "--size", "1280"],
        ["-o", "a.webp", "--size", "10x10"],
        ["-o", "a.webp", "--fps", "0"],
        ["-o", "a.webp", "--fps", "nan"],
        ["-o", "a.webp", "--panel", "nothing"],
        ["-o", "a.webp", "--panel", "heads", "--panel", "heads"],
        ["-o", "a.webp", "--over", "checkpoint=0:final:9"],
        ["-o", "a.webp", "--over", "checkpoint=early:final"],
        [
            "-o",
            "a.webp",
            *(word for name in ("attention", "heads", "spectra", "residual", "paths") for word in ("--panel", name)),
        ],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_what_no_film_is_is_refused(wrong: list[str], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["film", f"{path}#{FILM + 1}", *wrong]) == 2
    assert not list(tmp_path.iterdir())


def test_the_command_writes_what_the_step_writes(
    path: Path, step: SavedStep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_api, by_command = tmp_path / "a.webp", tmp_path / "b.webp"
    step.film(by_api, replace(SMALL, theme="dark", fps=2.0), ("attention",))
    words = ["film", f"{path}#{FILM + 1}", "-o", str(by_command), "--size", "640x360", "--theme", "dark", "--fps", "2"]
    assert main([*words, "--panel", "attention"]) == 0
    assert by_api.read_bytes() == by_command.read_bytes()
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.startswith(f"{by_command}: 4 frames, 640 × 360 px") and "step 3" in printed.out


def test_a_step_that_names_an_arrangement_alone_plays_the_panels_in_front_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arranged = Step("", "", Setup(model="mine", prompt=TEXT, heads=("L1H1",), arrange="Explore", play=(0, "final")))
    step = api.session(path := talk(tmp_path, (arranged,))).steps[0]
    written: list[FilmPlan] = []
    write = lambda engine, plan, *_: written.append(plan) or ()
    monkeypatch.setattr("circuitlab.report.saved_session.write_plan", write)
    monkeypatch.setattr("circuitlab.cli.film_command.write_plan", write)
    step.film(tmp_path / "a.webp", SMALL)
    assert main(["film", f"{path}#1", "-o", str(tmp_path / "a.webp")]) == 0
    shown = [(tuple(panel.name for panel in plan.panels), plan.left_out) for plan in written]
    assert shown == [(FRONTS["Explore"], ())] * 2


def test_report_sheet_film_and_stage_show_the_same_panels(tmp_path: Path) -> None:
    named = Setup(model="mine", prompt=TEXT, show=("heads", "attention"), arrange="Explore", play=(0, "final"))
    used = replace(named, show=("heads", "predictions", "attention"), stage=("attention",))
    setups = [used, replace(named, alone=True), replace(named, show=("gone",)), replace(named, show=(), arrange="gone"), named]
    session = api.session(talk(tmp_path, tuple(Step("", "", setup) for setup in setups)))
    of_used = ("attention", "heads", "predictions")  # what was used is before what stood beside it
    shown = [of_used, ("attention",), (), FRONTS["Explore"], ("heads", "attention")]
    for setup, names in zip(setups, shown, strict=True):
        assert tuple(panel.name for panel in shown_panels(setup, FRONTS)) == names
        assert pictures_of(setup)[0] == (setup.stage or names)
        assert set(panels_at(setup, FRONTS)) >= set(shown_panels(setup, FRONTS))
    content = report_of(session.session, session.engine, FRONTS)
    for step, section, names in zip(session.steps[:2], content.sections, shown[:2], strict=False):
        assert tuple(panel.name for panel in step.film_plan().panels) == (step.setup.stage or names)
        assert tuple(dict.fromkeys(one.drawn.panel.name for one in section.figures)) == names
        cells = step.sheet(Paper(width_mm=174)).cells
        assert tuple(cell.panel for cell in cells) == names
        assert all(FILM_NOT_DRAWN in cell.figure.caption for cell in cells)


def test_a_film_that_is_cancelled_leaves_the_old_file(step: SavedStep, tmp_path: Path) -> None:
    out = tmp_path / "a.webp"
    for at in (2, 9, 14):  # while it is computed, measured, drawn
        out.write_bytes(b"as it was")
        with pytest.raises(Cancelled):
            step.film(out, SMALL, ctx=Stopped(at))
        assert out.read_bytes() == b"as it was" and list(tmp_path.iterdir()) == [out]


def test_too_many_dots_are_refused_before_they_are_computed(step: SavedStep, tmp_path: Path) -> None:
    n = len(plan(step).scenes)
    assert n * 7680 * 7680 < MOST_PIXELS
    with pytest.raises(UsageError, match="too many dots"):
        Slide(7680, 7680).check(MOST_PIXELS // 7680**2 + 1)


def test_a_step_that_plays_nothing_is_filmed_where_it_is_said_what_plays(path: Path, tmp_path: Path) -> None:
    session = api.session(path)
    for still in (session.steps[0], session.now):
        with pytest.raises(BadInput) as raised:
            still.film(tmp_path / "a.webp", SMALL)
        assert f"#{FILM + 1} {session.steps[FILM].title}" in raised.value.expected and "checkpoint=0:final" in raised.value.remedy
    assert not list(tmp_path.iterdir())
    session.steps[0].film(tmp_path / "a.webp", SMALL, ("attention",), "checkpoint=0:final")
    assert len(frames_of(tmp_path / "a.webp")[0]) == 4
    session.steps[FILM].film(tmp_path / "b.webp", SMALL, ("attention",), "checkpoint=9:5")
    assert len(frames_of(tmp_path / "b.webp")[0]) == 2
    with pytest.raises(BadInput, match="no checkpoints"):
        session.steps[4].film(tmp_path / "c.webp", SMALL, (), "checkpoint=0:final")


def test_a_step_plays_a_parameter_of_the_constructed_model(tmp_path: Path) -> None:
    source = {"model": "construct:rope-induction", "text": "A B C A B", "show": ["attention"], "play": {"offset": [1, 3]}}
    session = {
        "circuitlab": "session",
        "version": 1,
        "now": {"model": "construct:rope-induction"},
        "story": {"title": "", "steps": [{"title": "It looks further back", "text": "", "set": source}]},
    }
    (path := tmp_path / "lab.circuitlab").write_text(json.dumps(session), encoding="utf-8")
    step = api.session(path).steps[0]
    assert step.setup.play == Sweep("offset", 1, 3)
    step.film(tmp_path / "step.webp", SMALL)
    step.film(tmp_path / "over.webp", SMALL, over="offset=1:3")
    assert (tmp_path / "step.webp").read_bytes() == (tmp_path / "over.webp").read_bytes()
    pictures, _ = frames_of(tmp_path / "step.webp")
    assert len({picture[FIGURE].tobytes() for picture in pictures}) == 3


def test_a_part_that_the_step_shows_is_shown_in_every_frame(tmp_path: Path, pages: list[FilmPage]) -> None:
    zoomed = Setup(
        model="mine",
        prompt=TEXT,
        heads=("L1H1",),
        show=("attention",),
        play=(3, "final"),
        zoom={"attention/attention": (1, 1, 4, 4)},
    )
    step = api.session(talk(tmp_path / "zoomed", (Step("A part", "", zoomed),))).steps[0]
    film, _ = filmed(step.of.engine, replace(plan(step, "attention"), zoom=step.setup.zoom))
    pages.append(page := FilmPage(film, SMALL))
    for i in range(len(film.frames)):
        page.show_frame(i)
        assert page.views[0].visible_parts() == {"attention": (1.0, 1.0, 4.0, 4.0)}


LONG = "A title that goes on for longer than any slide is wide, and for as long again, so that it ends in an ellipsis. " * 3


def outside(page: FilmPage) -> list[tuple[str, QRect]]:
    """What stands beyond the edge of its part of the slide."""
    beyond = []
    for view in (page, *page.views):
        for child in view.findChildren(QWidget):
            rect = QRect(child.mapTo(view, QPoint(0, 0)), child.size())
            if child.isVisibleTo(page) and not rect.isEmpty() and (rect.left() < 0 or rect.right() >= view.width()):
                beyond.append((type(child).__name__, rect))
    return beyond


@pytest.fixture(scope="module")
def films(path: Path) -> list[tuple[list[str], Film]]:
    """Each panel with two others beside it, and their names; without those of which none has a figure here."""
    step, playing, made = api.session(path).steps[FILM], tuple(map(find_panel, panels())), []
    for three in (playing[i : i + 3] for i in range(0, len(playing), 3)):
        with suppress(BadInput):
            film, _ = filmed(step.of.engine, replace(plan(step), panels=three, title=LONG))
            made.append(([panel.name for panel in three], film))
    return made


@pytest.mark.parametrize("size", [(1280, 720), (640, 360), (480, 480), (240, 240)], ids=str)
def test_a_slide_does_not_grow_with_what_stands_on_it(
    films: list[tuple[list[str], Film]], pages: list[FilmPage], size: tuple[int, int]
) -> None:
    """Nothing is beyond the right edge, and nothing scrolls."""
    slide, wrong = Slide(*size), []
    assert len(films) > 5
    for names, film in films:
        pages.append(page := FilmPage(film, slide))
        for k in range(2):
            page.show_frame(k)
        assert (page.width(), page.height()) == size
        bars = [bar for bar in page.findChildren(QScrollBar) if bar.isVisibleTo(page) and bar.maximum() > bar.minimum()]
        wrong += [(names, what) for what in (*outside(page), *bars)]
    assert not wrong


def test_text_without_room_is_said(pages: list[FilmPage]) -> None:
    texts = tuple(f"·t{i}" for i in range(90))
    axis = Axis("token", texts, tokens=True)
    heat = Heatmap("map", np.eye(90, dtype=np.float32), (0.0, 1.0), x=axis, y=axis)
    figure = Figure(((heat,), (Tokens("text", texts, np.linspace(0, 1, 90, dtype=np.float32)),)), "A", ("c",))
    pages.append(page := FilmPage(Film((Frame((figure,), "step 0"),), "A title"), Slide(240, 240)))
    page.show_frame(0)
    cut = [mark for view in page.views for mark in view.findChildren(PaintedMark) if mark.isVisibleTo(page)]
    cut = [mark for mark in cut if mark.verticalScrollBar().maximum() >= max(mark.line_height(), 1)]
    assert cut and all(mark.without_room() for mark in cut)


def test_a_title_of_one_frame_is_not_above_the_others(step: SavedStep) -> None:
    """As proposed where nobody writes one: the figure's at the checkpoint that was shown."""
    film, _ = filmed(step.of.engine, plan(step, "heads"))
    titles = [frame.figures[0].title for frame in film.frames]
    assert len(set(titles)) > 1, "a title that changes"
    for title in (titles[1], titles[1][:-3] + "…"):
        assert filmed(step.of.engine, replace(plan(step, "heads"), title=title))[0].title == ""
    assert film.title == "A title"


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("a\nb\x1b", "a b\\u001b"),
        ("\u202e\u05e9\u05dc\u05d5\u05dd", "\\u202e\u05e9\u05dc\u05d5\u05dd"),
        ("\U0001f9e0 <b>", "\U0001f9e0 <b>"),
        ("x" * 500, "…"),
    ],
    ids=["lines", "direction", "emoji", "long"],
)
def test_the_title_of_a_step_is_one_line_of_the_slide(step: SavedStep, pages: list[FilmPage], title: str, shown: str) -> None:
    one = replace(plan(step, "predictions"), title=title)
    film, _ = filmed(step.of.engine, replace(one, scenes=one.scenes[:2]))
    pages.append(page := FilmPage(film, SMALL))
    page.show_frame(0)
    assert page.title_text == shown or (shown == "…" and page.title_text.endswith("x…"))
    assert not outside(page)
