"""A talk from the window: stage and speaker's view of each step, nothing computed for it, and the window as it was at the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QMimeData, QPoint, QRect, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QLabel, QTableView, QWidget

from circuitlab.draw.look.stage_theme import CAPITAL
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.engine import Engine
from circuitlab.figures.contracts.panel import Panel, panels
from circuitlab.figures.marks import Figure, empty, joined
from circuitlab.gui.presenter.dialog import PresentDialog
from circuitlab.gui.presenter.next_picture import laid_out, page_picture, reduced
from circuitlab.gui.presenter.options import TalkOptions, remember, remembered
from circuitlab.gui.presenter.screens import Screen
from circuitlab.gui.presenter.talk import Talk
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.held_figures import held_figure
from circuitlab.session_files.session import Note
from circuitlab.state.constructed import parameters
from circuitlab.state.state import State
from circuitlab.story.setup import Setup, Sweep
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from tests.conftest import ROOT
from tests.gui.driving import TEXT, command, settle, shown_window
from tests.gui.training import checkpoints, measures
from tests.models import directory
from tests.talks import computed

Key = Qt.Key
STEPS = (
    Step(
        "A head",
        "It looks *back*.",
        Setup(prompt=TEXT, heads=("L1H2",), destination=3, show=("attention",)),
        aside="say **slowly**",
    ),
    Step("Two figures", "Both.", Setup(heads=("L0H1",), show=("attention", "heads"))),
    Step("Without it", "", Setup(cut=("L0H1",), show=("predictions",)), aside="the end"),
)


@pytest.fixture
def told(window: Window) -> Iterator[Window]:
    """A window with a story of three steps."""
    work = window.context.document.work
    window.context.document.edit(replace(work, story=Story("A talk", STEPS)), "tell")
    yield window
    window.presenting.end()


def ready(qtbot: Any, window: Window) -> None:
    window.preparing.prepare()
    qtbot.waitUntil(lambda: window.preparing.readiness.is_ready and not window.context.runner.busy)


def begun(qtbot: Any, window: Window, **options: Any) -> Talk:
    """A talk on a prepared story, whose first step is drawn."""
    ready(qtbot, window)
    window.presenting.present(TalkOptions(**{"windowed": True, **options}))
    talk = window.presenting.talk
    assert talk is not None
    drawn(qtbot, talk)
    return talk


def drawn(qtbot: Any, talk: Talk) -> None:
    qtbot.waitUntil(lambda: not talk.stage.waiting and not talk.stage.context.runner.busy)
    QApplication.processEvents()


def press(widget: QWidget, key: Qt.Key) -> None:
    QTest.keyClick(widget.windowHandle(), key)


def said(widget: QWidget) -> str:
    return " | ".join(label.text() for label in widget.findChildren(QLabel))


def test_the_speaker_reads_the_note_of_each_step_and_what_comes_next(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told)
    view = talk.view
    assert view.isVisible() and view.geometry() == told.rect()
    assert view.notes.toPlainText() == "say slowly"
    assert "1 / 3" in said(view) and "Two figures" in said(view)
    qtbot.waitUntil(lambda: told.preparing.readiness.line in said(view))
    press(talk.stage, Key.Key_PageDown)
    assert view.notes.toPlainText() == "Both."
    press(talk.stage, Key.Key_End)
    assert view.notes.toPlainText() == "the end"
    assert "3 / 3" in said(view) and not view.on.isEnabled()
    view.back.click()
    assert talk.stage.index == 1


def test_notes_of_the_session_on_what_a_step_shows_stand_under_its_own(qtbot: Any, told: Window) -> None:
    notes, ref = told.context.notes, told.context.document.recorded.model
    token = told.context.document.recorded.tokens[1]
    write = lambda subject, text: notes.write(notes.on_model(ref, subject), text, ref)
    write(Note("", head="L1H2"), "the *first* one\n\n    only after <b>commas</b>")
    write(Note("", head="L0H1"), "writes what L1H2 reads")
    write(Note("", head="L1H3"), "in no step")
    write(Note("", edge=("L0H1", "L1H2")), "chosen in no step")
    notes.write(notes.token(ref, token), "rare", ref)
    notes.write(Note("", panel="heads"), "sort by copying")
    notes.write(Note(""), "on the session")
    other = ModelRef("file:/not/here")
    notes.write(Note("", head="L1H2", model="not here"), "of another model", other)
    talk = begun(qtbot, told)
    rare = ["‘" + told.context.facts(ref).token_text(token) + "’: rare"]
    head, cut = ["L1H2: the *first* one", "only after <b>commas</b>"], ["L0H1: writes what L1H2 reads"]
    read = lambda: [line for line in talk.view.notes.toPlainText().replace("\u2028", "\n").splitlines() if line]
    assert read() == ["say slowly", *head, *rare]
    assert [line for line in talk.peek.notes.toPlainText().replace("\u2028", "\n").splitlines() if line] == read()
    press(talk.stage, Key.Key_PageDown)
    assert read() == ["Both.", *cut, *rare, f"{panels()['heads'].title}: sort by copying"]
    press(talk.stage, Key.Key_PageDown)
    assert read() == ["the end", *cut, *rare]
    state = talk.stage.context.document.recorded.with_heads(Head(1, 3))
    ablated = [note.text for note in notes.shown_by(state, ())]
    assert ablated == ["writes what L1H2 reads", "in no step", "rare"], "a head that is ablated and not chosen"
    edge = [note.edge for note in notes.shown_by(state.with_edge(Head(0, 1), Head(1, 2), "K"), ())]
    assert ("L0H1", "L1H2") in edge


def test_the_notes_stay_where_they_are_scrolled_to_until_the_next_step(qtbot: Any, told: Window) -> None:
    work = told.context.document.work
    long = replace(STEPS[0], aside="\n\n".join(f"line {i}" for i in range(80)))
    told.context.document.edit(replace(work, story=Story("A talk", (long, long))), "tell")
    talk = begun(qtbot, told)
    bar = talk.view.notes.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 60 and not talk.view.picture.image.isNull())
    bar.setValue(50)
    talk.stage.tour.value_changed.emit()  # a number of the step has come
    assert bar.value() == 50 and not talk.view.picture.image.isNull()
    press(talk.stage, Key.Key_PageDown)
    assert bar.value() == 0


def test_keys_at_the_speakers_view_walk_the_stage(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told)
    told.activateWindow()
    qtbot.waitUntil(lambda: talk.view.hasFocus())
    for key, index in ((Key.Key_Right, 1), (Key.Key_Space, 2), (Key.Key_Backspace, 1), (Key.Key_Home, 0)):
        press(told, key)
        assert talk.stage.index == index
    press(told, Key.Key_B)
    assert talk.stage.aids.curtain.colour == "black"
    press(told, Key.Key_Escape)
    assert talk.stage.aids.curtain.colour == ""
    assert told.presenting.talk is talk
    press(told, Key.Key_Escape)
    assert told.presenting.talk is None


def pixels(image: QImage) -> np.ndarray:
    image = image.convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).astype(int)


def written(page: QWidget) -> list[str]:
    """What is read on a page: its lines, and of each figure title, caption, counts and rows."""
    labels = [label.text() for label in page.findChildren(QLabel) if label.isVisibleTo(page) and label.text()]
    tables = [table for table in page.findChildren(QTableView) if table.isVisibleTo(page)]
    rows = sorted(f"rows to {table.rowAt(table.viewport().height() - 1)}" for table in tables)
    views = [joined(*view.caption_parts) for view in page.findChildren(FigureView) if view.isVisibleTo(page)]
    return [page.title.text, page.line.text, page.footer.text, *sorted(labels), *rows, *sorted(views)]  # type: ignore[attr-defined]


def test_the_next_picture_is_the_page_that_comes_next_and_nothing_is_computed_for_it(
    qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings, work = list[Any](), told.context.document.work
    numbers = Step("A number", "It costs {loss} nats.", STEPS[2].setup, (Value("loss", "token_loss", {}, "mean", ".2f"),))
    told.context.document.edit(replace(work, story=Story("A talk", (*STEPS, numbers))), "tell")
    monkeypatch.setattr("circuitlab.gui.presenter.talk.page_picture", lambda *page: drawings.append(page) or page_picture(*page))
    talk = begun(qtbot, told)
    for size in ((1280, 720), (1920, 1080)):
        talk.stage.resize(*size)
        press(talk.stage, Key.Key_Home)
        drawn(qtbot, talk)
        for _ in talk.stage.story.steps[1:]:
            talk._pictures.clear()
            with computed() as requests:
                talk._draw()
            assert not requests
            words, rows, page_size, room, dark = drawings[-1]
            page = laid_out(words, rows, page_size, dark)
            qtbot.addWidget(page)
            assert page.size() == talk.stage.page.size()
            coming, small = written(page), talk.view.picture.image
            press(talk.stage, Key.Key_Right)
            drawn(qtbot, talk)
            assert coming == written(talk.stage.page)
            seen = reduced(talk.stage.page.grab().toImage(), room)
            assert np.abs(pixels(small) - pixels(seen)).max() <= 2
            assert (pixels(small) < 128).any()
        assert re.search(r"costs \d+\.\d\d nats", coming[1]), "of held answers, too"


def test_the_next_picture_has_the_parts_and_the_beginning_of_its_step_and_is_drawn_again_until_it_is_whole(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, sweep = (1.0, 1.0, 4.0, 4.0), Sweep("offset", 3, 1)
    lab = Setup(model="construct:rope-induction", prompt="A B C A B", show=("attention",), play=sweep)
    zoomed = Setup(show=("attention",), zoom={"attention/attention": part})
    work = window.context.document.work
    story = Story("A talk", (STEPS[0], Step("A part", "", zoomed), Step("Further back", "", lab)))
    window.context.document.edit(replace(work, story=story), "tell")
    asked, drawings, absent = list[State](), list[Any](), [True]

    def held(engine: Engine, panel: Panel, state: State) -> Figure:
        asked.append(state)
        return empty("not yet", panel.title) if absent[0] else held_figure(engine, panel, state)

    def page(words: object, rows: Any, *more: Any) -> QImage:
        drawings.append(rows)
        return QImage(9, 9, QImage.Format.Format_RGB32)

    monkeypatch.setattr("circuitlab.gui.presenter.talk.held_figure", held)
    monkeypatch.setattr("circuitlab.gui.presenter.talk.page_picture", page)
    talk = begun(qtbot, window)
    qtbot.waitUntil(lambda: len(drawings) > 0)
    assert drawings[-1][0][0][2] == {"attention": part}
    absent[0] = False
    for count in (True, False):  # what was not whole is drawn once more, and then it is kept
        drawings.clear()
        talk._draw()
        assert bool(drawings) is count
    press(talk.stage, Key.Key_Right)
    drawn(qtbot, talk)
    qtbot.waitUntil(lambda: len(drawings) > 0)
    beginning = parameters(asked[-1])
    assert beginning is not None and beginning.offset == 3
    window.presenting.end()


def test_the_speaker_sees_what_is_on_the_stage_and_what_lies_over_it(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told)
    view = talk.view
    qtbot.waitUntil(lambda: not view.mirror.image.isNull())
    plain = view.on_stage.text()
    size = view.mirror.image.size()
    scaled = talk.stage.grab().toImage().scaled(size, mode=Qt.TransformationMode.SmoothTransformation)
    assert np.abs(pixels(view.mirror.image) - pixels(scaled)).max() <= 2
    for key, word in ((Key.Key_B, "black"), (Key.Key_W, "white")):
        press(talk.stage, key)
        qtbot.waitUntil(lambda word=word: word in view.on_stage.text())  # pyright: ignore[reportCallIssue]
    qtbot.waitUntil(lambda: (pixels(view.mirror.image) == 255).all())
    press(talk.stage, Key.Key_Escape)
    qtbot.waitUntil(lambda: view.on_stage.text() == plain)


def test_the_speaker_sees_the_film_that_plays_on_the_stage(qtbot: Any, tmp_path: Path) -> None:
    folder, points = directory(tmp_path / "trained"), tuple(range(0, 700, 100))
    checkpoints(folder, points)
    measures(folder, points, 800, fall=1)
    with shown_window(qtbot, folder) as window:
        steps = (STEPS[1], Step("Film", "", Setup(show=("attention",), play=(0, "final"))), STEPS[0])
        work = window.context.document.work
        window.context.document.edit(replace(work, story=Story("A talk", steps)), "tell")
        talk = begun(qtbot, window)
        stage, shown = talk.stage, list[np.ndarray]()
        show = talk.view.show_stage

        def record(image: QImage) -> None:
            show(image)
            if stage.film.running:
                shown.append(pixels(image))

        talk.view.show_stage = record
        press(stage, Key.Key_Right)
        qtbot.waitUntil(lambda: stage.film.running)
        qtbot.waitUntil(lambda: not stage.film.running)
        assert len(shown) >= 2 and (shown[0] != shown[-1]).any(), "its frames, and not only what came after the last one"
        assert not talk.view.picture.image.isNull(), "what comes next is there as soon as after any other step"
        window.presenting.end()
        settle(qtbot, window)


def test_a_file_that_is_dropped_on_the_speakers_view_opens_nothing(qtbot: Any, told: Window, tmp_path: Path) -> None:
    talk = begun(qtbot, told)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path))])
    left = Qt.MouseButton.LeftButton
    enter = QDragEnterEvent(QPoint(600, 400), Qt.DropAction.CopyAction, data, left, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(talk.view, enter)
    assert (enter.isAccepted(), enter.dropAction()) == (True, Qt.DropAction.IgnoreAction)


def test_the_window_is_given_back_as_it_was(qtbot: Any, told: Window) -> None:
    place, state = told.geometry(), told.context.document.work
    talk = begun(qtbot, told)
    press(talk.stage, Key.Key_Right)
    press(talk.stage, Key.Key_Escape)
    assert told.presenting.talk is None
    assert told.geometry() == place
    assert all(view.isHidden() for view in told.findChildren(QWidget, "speaker"))
    assert told.context.document.work == state
    again = begun(qtbot, told)
    assert again is not talk and again.stage.index == 0


def test_with_one_screen_the_note_is_peeked_at_and_the_window_is_left_alone(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told, windowed=False)
    assert talk.view.isHidden()
    assert talk.stage.isFullScreen()
    drawn(qtbot, talk)
    seen = lambda: pixels(talk.stage.grab().toImage())
    before, page = seen(), talk.stage.page
    whole = page.size()
    with computed() as requests:
        press(talk.stage, Key.Key_A)
        QApplication.processEvents()
    assert not requests and talk.peek.isVisible()
    assert talk.peek.notes.toPlainText() == "say slowly"
    note, step = talk.peek.geometry(), page.geometry()
    assert not note.intersects(step) and note.united(step) == talk.stage.rect(), "the step has the room above"
    assert page.rect().contains(page.footer.geometry()) and page.theme.small < before.shape[0] / 50 / CAPITAL
    for dark in (True, False):  # whatever the window's own theme is
        page.dark = dark
        written = seen()[note.top() + 10 : note.bottom(), note.left() : note.right()].reshape(-1, 3)
        assert np.ptp(written, axis=0).min() > 150, "the note is read on either ground"
    press(talk.stage, Key.Key_B)
    assert not seen().any(), "black is black"
    press(talk.stage, Key.Key_B)
    press(talk.stage, Key.Key_Right)
    drawn(qtbot, talk)
    assert talk.peek.notes.toPlainText() == "No notes for this step." and talk.peek.geometry() == note
    high = lambda: talk.peek.notes.document().size().height()
    talk.peek.show_notes("A long note. " * 80)
    assert talk.peek.height() <= talk.stage.height() / 2 and high() <= talk.peek.height(), "set smaller, not cut"
    assert talk.peek.more.isHidden()
    talk.peek.show_notes("A longer note. " * 400)
    QApplication.processEvents()
    assert high() > talk.peek.height() <= talk.stage.height() / 2 and talk.peek.more.isVisible(), "and that it goes on is said"
    assert talk.peek.rect().contains(talk.peek.more.geometry())
    press(talk.stage, Key.Key_Left)
    drawn(qtbot, talk)
    press(talk.stage, Key.Key_A)
    drawn(qtbot, talk)
    assert talk.peek.isHidden() and page.size() == whole and (seen() == before).all()


def test_with_two_screens_the_audience_never_reads_the_note(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told)
    assert talk.screens.two
    before = pixels(talk.stage.grab().toImage())
    for press_at in (talk.stage, told):
        press(press_at, Key.Key_A)
        drawn(qtbot, talk)
        assert talk.peek.isHidden() and (pixels(talk.stage.grab().toImage()) == before).all()
    assert talk.view.notes.toPlainText() == "say slowly"


def test_a_frozen_picture_stays_while_the_speaker_goes_on_and_is_said(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told)
    stage, view = talk.stage, talk.view
    seen = lambda: pixels(stage.grab().toImage())
    first, calm = seen(), view.on_stage.palette().color(view.on_stage.foregroundRole())
    press(stage, Key.Key_F)
    assert "frozen" in view.on_stage.text() and "1 / 3" in view.on_stage.text()
    assert view.on_stage.palette().color(view.on_stage.foregroundRole()) == talk.view.theme.colour("accent") != calm
    assert view.after.text() == "Next: Two figures"
    press(stage, Key.Key_PageDown)
    drawn(qtbot, talk)
    assert (stage.index, stage.seen) == (1, 0)
    assert (seen() == first).all()
    assert view.notes.toPlainText() == "Both." and "2 / 3" in view.count.text()
    assert "1 / 3" in view.on_stage.text() and view.after.text().endswith("Two figures")
    qtbot.waitUntil(lambda: not view.picture.image.isNull())
    behind = view.picture.image
    for key in (Key.Key_Home, Key.Key_End, Key.Key_Up):  # whichever way one goes
        press(stage, key)
    drawn(qtbot, talk)
    assert stage.index == 1 and (seen() == first).all()
    press(stage, Key.Key_F)
    drawn(qtbot, talk)
    assert (stage.seen, view.after.text()) == (1, "Next: Without it") and "frozen" not in view.on_stage.text()
    assert view.on_stage.palette().color(view.on_stage.foregroundRole()) == calm
    came = reduced(stage.grab().toImage(), view.picture.room())
    assert np.abs(pixels(behind) - pixels(came)).max() <= 2, "what stood behind it was the picture that came"


def test_with_one_screen_the_step_behind_a_frozen_picture_is_said_small_at_its_foot(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told, windowed=False)
    stage = talk.stage
    before, high = pixels(stage.grab().toImage()), stage.height()
    pictures: list[np.ndarray] = []
    for key in (Key.Key_F, Key.Key_PageDown):
        press(stage, key)
        drawn(qtbot, talk)
        pictures.append(pixels(stage.grab().toImage()))
        changed = np.argwhere((pictures[-1] != before).any(axis=2))
        assert len(changed) and changed[:, 0].min() > 0.95 * high and changed[:, 1].min() > stage.width() / 2
    assert (pictures[0] != pictures[1]).any(), "the number is that of the present step"
    press(stage, Key.Key_Escape)
    drawn(qtbot, talk)
    assert told.presenting.talk is talk and stage.seen == 1
    assert (pixels(stage.grab().toImage())[: high // 2] != before[: high // 2]).any()


def test_the_clock_runs_from_the_beginning_and_t_pauses_it(qtbot: Any, told: Window) -> None:
    talk = begun(qtbot, told, minutes=5)
    assert talk.clock.running
    press(talk.stage, Key.Key_T)
    assert not talk.clock.running
    assert "left" in talk.view.left.text()
    press(told, Key.Key_T)
    assert talk.clock.running


@pytest.mark.parametrize("dark", [False, True])
def test_the_stage_begins_at_the_step_and_on_the_ground_that_were_chosen(qtbot: Any, told: Window, dark: bool) -> None:
    talk = begun(qtbot, told, first=1, dark=dark)
    assert talk.stage.index == 1
    assert talk.stage.page.theme.dark is dark
    ground = talk.stage.grab().toImage().pixelColor(3, 3)
    assert (ground.lightness() < 50) is dark


def test_the_dialog_shows_what_is_ready_and_begins_as_chosen(qtbot: Any, told: Window) -> None:
    ready(qtbot, told)
    command(told, "present").trigger()
    (dialog,) = told.findChildren(PresentDialog)
    assert told.preparing.readiness.line in said(dialog)
    assert dialog.prepare.isHidden()
    fields = dialog.form.widgets
    assert isinstance(fields["first"], QComboBox) and fields["first"].count() == 3
    fields["first"].setCurrentIndex(2)
    fields["screen"].setCurrentIndex(fields["screen"].count() - 1)
    fields["dark"].setCurrentIndex(1)
    fields["minutes"].setValue(45)
    assert dialog.options == TalkOptions("", True, 2, True, 45)
    dialog.begin.click()
    talk = told.presenting.talk
    assert talk is not None
    assert (talk.stage.index, talk.clock.minutes) == (2, 45)
    assert not talk.stage.isFullScreen()


def test_an_unprepared_story_is_prepared_from_the_dialog(qtbot: Any, told: Window) -> None:
    command(told, "present").trigger()
    (dialog,) = told.findChildren(PresentDialog)
    assert not dialog.prepare.isHidden()
    dialog.prepare.click()
    qtbot.waitUntil(lambda: dialog.prepare.isHidden())
    assert told.preparing.readiness.line in said(dialog)
    dialog.reject()
    assert told.presenting.talk is None


def test_how_a_talk_was_given_is_remembered_but_for_its_step() -> None:
    assert remembered() == TalkOptions()
    remember(TalkOptions("beamer", True, 3, True, 12))
    assert remembered() == TalkOptions("beamer", True, 0, True, 12)


def test_the_screen_that_the_stage_was_swapped_to_is_that_of_the_next_talk(
    qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [Screen("laptop", QRect(0, 0, 800, 800)), Screen("beamer", QRect(800, 0, 800, 600))]
    monkeypatch.setattr("circuitlab.gui.presenter.presenting.attached", lambda: two)
    talk = begun(qtbot, told, screen="beamer")
    talk.screens._screens = lambda: two
    talk.screens.settle()
    press(talk.stage, Key.Key_S)
    assert talk.screens.at == "laptop"
    talk.end()
    told.presenting.from_start()
    assert told.presenting.talk is not None
    assert told.presenting.talk.options.screen == "laptop"
    told.presenting.end()
    monkeypatch.setattr("circuitlab.gui.presenter.presenting.attached", lambda: two[:1])
    begun(qtbot, told, screen="laptop").end()
    told.presenting.from_start()
    assert told.presenting.talk is not None
    assert told.presenting.talk.options.screen == "", "the only screen there was is not chosen where there are two"


def test_a_panel_that_floats_does_not_lie_over_the_notes(qtbot: Any, told: Window) -> None:
    dock = told.docks["attention"]
    dock.setFloating(True)
    dock.show()
    talk = begun(qtbot, told)
    assert dock.isHidden()
    talk.end()
    assert dock.isVisible()
    assert dock.isFloating()


def test_closing_the_window_ends_the_talk(qtbot: Any, told: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = begun(qtbot, told)
    monkeypatch.setattr(told.sessions, "may_close", lambda: True)
    ended: list[bool] = []
    talk.ended.connect(lambda: ended.append(True))
    told.close()
    assert ended
    assert told.presenting.talk is None


# -- a real X server with two screens ---------------------------------------------------------------------------------------

FOUR_PRESSES = """
import json, os, sys, time, traceback
from pathlib import Path
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtCore import Qt
from circuitlab.draw.look.app import application
from circuitlab.draw.look.stage_theme import CAPITAL
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.engine import Engine
from circuitlab.gui.shell import present
from circuitlab.gui.shell.main import show_fitting
from tests.patience import SECONDS

def failed(*error):
    traceback.print_exception(*error)
    os._exit(1)  # a worker that waits for its turn would wait for ever

sys.excepthook = failed
app = application()
window = present.window_of(Path(sys.argv[1]), 1)
show_fitting(window)
window.presenting.present_prepared(present.options_of(2, False, 1, False, 20))

def until(done):
    end = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < end
        app.processEvents()
        time.sleep(0.005)

until(lambda: window.presenting.talk is not None)
talk = window.presenting.talk
computed = []
compute = Engine._compute
Engine._compute = lambda self, cache, request, *more: computed.append(request) or compute(self, cache, request, *more)
seen = []
for press in range(4):
    until(lambda: not talk.stage.waiting and not talk.stage.context.runner.busy and not talk.view.picture.image.isNull())
    for _ in range(20):
        app.processEvents()
    shots = [screen.grabWindow(0).toImage() for screen in QGuiApplication.screens()]
    # the screens show the window and the stage, each from edge to edge
    places = [(window if window.screen() is screen else talk.stage).frameGeometry() for screen in QGuiApplication.screens()]
    colours = [len({image.pixelColor(x, y).rgb() for x in range(0, image.width(), 7) for y in range(0, image.height(), 7)})
               for image in shots]
    seen.append([talk.stage.index, talk.stage.screen().name(), window.screen().name(), talk.view.notes.toPlainText(), colours,
                 [place.getRect() for place in places], talk.view.isVisible()])
    if press < 3:
        QTest.keyClick((talk.stage, window)[press % 2].windowHandle(), Qt.Key.Key_PageDown)
talk.end()
window.close()
print(json.dumps([seen, len(computed)]))
"""


@pytest.mark.slow
def test_four_presses_of_a_clicker_on_a_real_x_server_with_two_screens(tmp_path: Path) -> None:
    from tests.talks import talk
    from tests.x_screens import x_server

    path = talk(tmp_path)
    with x_server(3200, 1080) as server:
        server.add("laptop", (0, 0, 1280, 800))
        server.add("beamer", (1280, 0, 1920, 1080))
        environment = {**os.environ, "QT_QPA_PLATFORM": "xcb", "DISPLAY": server.display}
        done = subprocess.run(
            [sys.executable, "-c", FOUR_PRESSES, str(path)],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr
    seen, computed = json.loads(done.stdout.splitlines()[-1])
    assert [one[0] for one in seen] == [0, 1, 2, 3]
    for _, stage, window, _, colours, places, covered in seen:
        assert (stage, window, covered) == ("beamer", "laptop", True)
        assert places[1] == [1280, 0, 1920, 1080]
        assert min(colours) > 8  # something is drawn on either
    assert seen[1][3] == "wait here"
    assert computed == 0
