"""A step that plays a training: from its first checkpoint to its last, until its end or a hand; kept, edited, taken back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from circuitlab.cli.parser import main
from circuitlab.gui.presenter.stage import Stage
from circuitlab.gui.shell.window import Window
from circuitlab.lessons.lesson import read
from circuitlab.story.setup import Setup, Sweep
from circuitlab.story.story import Step, Story
from tests import pointer
from tests.gui.driving import dock, save, shown_window
from tests.gui.test_lessons import settle
from tests.gui.test_zoom import steps, tell
from tests.gui.training import checkpoints, measures
from tests.models import directory

STEPS = (0, 100, 200, 300, 400)
ALL = [0, 1, 2, 3, 4, None]
CTRL = Qt.KeyboardModifier.ControlModifier


BEGINNINGS = WeakKeyDictionary[Window, list[bool]]()  # of films: a short one is over before anybody sees it run


@pytest.fixture
def trained(qtbot: Any, tmp_path: Path) -> Iterator[Window]:
    folder = directory(tmp_path / "trained")
    checkpoints(folder, STEPS)
    measures(folder, STEPS, 600, fall=1)
    with shown_window(qtbot, folder) as made:
        made.checkpoints.player.speed = 1000
        film, beginnings = made.checkpoints.film, list[bool]()
        film.changed.connect(lambda: beginnings.append(True) if film.running else None)
        BEGINNINGS[made] = beginnings
        yield made


class Seen:
    """The checkpoints that are shown, and whether each was drawn before the next."""

    def __init__(self, window: Window) -> None:
        self.window, self.points, self.unfinished = window, list[int | None](), list[int | None]()
        window.context.document.changed.connect(self._changed)

    def _changed(self, old: Any, new: Any) -> None:
        if old.model != new.model:
            self.points.append(new.model.checkpoint)
            if self.window.checkpoints.player.playing and self.window.context.loader.waiting:
                self.unfinished.append(old.model.checkpoint)


def ended(qtbot: Any, window: Window) -> None:
    """Until the film that runs, or is about to, is over."""
    qtbot.waitUntil(lambda: window.lessons.tour.ready is not None)
    qtbot.waitUntil(lambda: not window.context.loader.waiting and not window.checkpoints.film.running)
    settle(qtbot, window)
    BEGINNINGS[window].clear()


def begun(qtbot: Any, window: Window) -> None:
    qtbot.waitUntil(lambda: bool(BEGINNINGS[window]))
    BEGINNINGS[window].clear()


def show(window: Window, number: int = 0) -> None:
    window.lessons.begin_own(number)


def test_a_step_plays_its_film_to_the_end(qtbot: Any, trained: Window) -> None:
    tell(trained, {"play": (0, "final")}, {"heads": ("L1H2",)})
    recorded = trained.context.document.recorded
    seen = Seen(trained)
    show(trained)
    begun(qtbot, trained)
    page = trained.lessons.page
    assert page.play.isVisible() and "Stop" in page.play.text()
    assert trained.context.holds_scales, "a colour means the same number in every frame"
    ended(qtbot, trained)
    assert seen.points == ALL and not seen.unfinished
    assert not trained.checkpoints.player.playing and not trained.context.holds_scales
    assert "step 0" in page.play.text() and "final" in page.play.text() and not page.stray.isVisible()
    page.play.click()
    begun(qtbot, trained)
    ended(qtbot, trained)
    assert seen.points == [*ALL, *ALL], "again, from its beginning"
    trained.lessons.tour.next()
    settle(qtbot, trained)
    assert not page.play.isVisible() and seen.points == [*ALL, *ALL], "the next step plays nothing"
    trained.lessons.tour.leave()
    settle(qtbot, trained)
    assert trained.context.document.recorded == recorded


def test_a_film_between_two_checkpoints_forwards_and_backwards(qtbot: Any, trained: Window) -> None:
    tell(trained, {"play": (100, 290)}, {"play": ("final", 300), "checkpoint": 200})
    trained.checkpoints.loop.setChecked(True)
    seen = Seen(trained)
    show(trained)
    begun(qtbot, trained)
    ended(qtbot, trained)
    assert seen.points == [1, 2, 3], "those that were kept nearest to the steps; a film does not loop"
    trained.checkpoints.to(4)
    settle(qtbot, trained)
    trained.lessons.page.play.click()
    begun(qtbot, trained)
    ended(qtbot, trained)
    assert seen.points[3:] == [4, 1, 2, 3]
    trained.undo()
    settle(qtbot, trained)
    assert seen.points[7:] == [4], "playing is one step of undo"
    trained.lessons.tour.next()
    begun(qtbot, trained)
    ended(qtbot, trained)
    assert seen.points[8:] == [None, 4, 3]
    assert trained.lessons.tour.strayed, "the step itself shows step 200"
    assert trained.lessons.page.stray.isHidden(), "it has no numbers"


def interrupt(qtbot: Any, window: Window, by: str) -> None:
    view = dock(window, "attention").view
    if by == "key":
        QTest.keyClick(window.windowHandle(), Qt.Key.Key_A)
    elif by == "click":
        pointer.drag(window, QPoint(3, window.height() - 3), QPoint(3, window.height() - 3))
    elif by == "wheel":
        at = QPointF(view.mapTo(window, view.rect().center()))
        none, phase = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase
        turn = QWheelEvent(at, at, QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton, none, phase, False)
        QApplication.sendEvent(window.windowHandle(), turn)
    elif by == "shortcut":
        qtbot.keyClick(window, Qt.Key.Key_Right, Qt.KeyboardModifier.AltModifier)
    else:
        qtbot.mouseClick(window.lessons.page.play, Qt.MouseButton.LeftButton)


def test_any_input_stops_it(qtbot: Any, trained: Window) -> None:
    trained.checkpoints.player.speed = 1
    tell(trained, {"play": (0, "final")})
    for by in ("key", "click", "wheel", "shortcut", "button"):
        show(trained)
        begun(qtbot, trained)
        pointer.move(trained, QPoint(300, 300))
        QTest.keyPress(trained.windowHandle(), Qt.Key.Key_Control)
        QTest.keyRelease(trained.windowHandle(), Qt.Key.Key_Control)
        assert trained.checkpoints.film.running, "looking is no input, and a modifier is none yet"
        interrupt(qtbot, trained, by)
        assert not trained.checkpoints.film.running and not trained.checkpoints.player.playing, by
        settle(qtbot, trained)
        stopped = trained.context.document.recorded.model
        assert stopped.checkpoint != trained.lessons.tour.ready.state.model.checkpoint, by  # type: ignore[union-attr]
        assert trained.lessons.tour.strayed and "Play" in trained.lessons.page.play.text(), by
        trained.lessons.tour.leave()
        settle(qtbot, trained)


def test_going_on_or_leaving_stops_it(qtbot: Any, trained: Window) -> None:
    trained.checkpoints.player.speed = 1
    tell(trained, {"play": (0, "final")}, {"heads": ("L1H2",)})
    before = trained.context.document.recorded
    show(trained)
    begun(qtbot, trained)
    trained.lessons.tour.next()
    settle(qtbot, trained)
    assert not trained.checkpoints.player.playing and trained.context.document.recorded.model.checkpoint is None
    trained.lessons.tour.back()
    begun(qtbot, trained)
    trained.lessons.tour.leave()
    settle(qtbot, trained)
    assert not trained.checkpoints.player.playing and trained.context.document.recorded == before


def test_a_model_without_checkpoints_says_so(qtbot: Any, window: Window) -> None:
    tell(window, {"play": (0, "final"), "heads": ("L1H2",)})
    show(window)
    settle(qtbot, window)
    page = window.lessons.page
    assert "checkpoints" in page.warning.text() and page.warning.isVisible() and not page.play.isEnabled()
    assert str(window.context.document.recorded.selection.head) == "L1H2", "and shows the rest of the step"
    page.editor.edit.setChecked(True)
    page.refresh()
    assert page.editor.film.isHidden()


def test_a_first_checkpoint_that_cannot_be_read_leaves_the_step_as_it_is(qtbot: Any, trained: Window, tmp_path: Path) -> None:
    (tmp_path / "trained" / "checkpoints" / "step-000000.safetensors").write_bytes(b"nothing")
    tell(trained, {"play": (0, "final"), "heads": ("L1H2",)})
    show(trained)
    settle(qtbot, trained)
    page = trained.lessons.page
    assert page.warning.isVisible() and not page.play.isEnabled() and trained.lessons.tour.error is None
    assert str(trained.context.document.recorded.selection.head) == "L1H2"


def test_what_plays_is_kept_as_a_film(qtbot: Any, trained: Window, tmp_path: Path, capsys: Any) -> None:
    bar = trained.checkpoints
    bar.to(1)
    settle(qtbot, trained)
    bar.player.speed = 1
    bar.play_or_stop()
    qtbot.keyClick(trained, Qt.Key.Key_K, CTRL)
    assert bar.player.playing
    qtbot.waitUntil(lambda: len(steps(trained)) == 1)
    bar.player.stop()
    settle(qtbot, trained)
    (step,) = steps(trained)
    assert step.setup is not None and step.setup.play == (100, "final")
    assert trained.context.document.work.story.setup(0).checkpoint == "final", "its own checkpoint is the film's end"
    bar.player.speed = 1000
    bar.to(3)
    settle(qtbot, trained)
    next(a for a in trained.menus.actions if a.objectName() == "command.checkpoint-film").trigger()
    settle(qtbot, trained)
    assert (steps(trained)[1].setup or Setup()).play == (300, "final")
    save(qtbot, trained, tmp_path / "talk.circuitlab")
    assert main(["session", str(tmp_path / "talk.circuitlab")]) == 0
    assert 'play [100, "final"]' in capsys.readouterr().out
    assert main(["figure", "attention", "--at", str(tmp_path / "talk.circuitlab#1"), "-o", str(tmp_path / "a.svg")]) == 0
    seen = Seen(trained)
    show(trained)
    begun(qtbot, trained)
    ended(qtbot, trained)
    assert seen.points == [1, 2, 3, 4, None]


def test_a_film_kept_while_its_step_plays_it(qtbot: Any, trained: Window) -> None:
    trained.checkpoints.player.speed = 1
    tell(trained, {"play": (100, 300)})
    show(trained)
    begun(qtbot, trained)
    qtbot.keyClick(trained, Qt.Key.Key_K, CTRL)
    qtbot.waitUntil(lambda: len(steps(trained)) == 2)
    setup = trained.context.document.work.story.setup(1)
    assert setup.play == (100, 300) and setup.checkpoint == 300
    trained.lessons.tour.leave()
    settle(qtbot, trained)


def test_where_it_plays_is_edited_on_the_page_and_taken_back(qtbot: Any, trained: Window) -> None:
    tell(trained, {"heads": ("L1H2",)}, {"heads": ("L1H3",)})
    show(trained)
    settle(qtbot, trained)
    page = trained.lessons.page
    page.editor.edit.click()
    fields = page.editor.film
    assert fields.isVisible() and fields.first.currentText() == "no film" and not fields.last.isEnabled()
    before = steps(trained)
    seen = Seen(trained)

    def choose(box: Any, text: str) -> None:
        box.setCurrentIndex(box.findText(text))
        box.activated.emit(box.currentIndex())

    choose(fields.first, "step 200")
    ended(qtbot, trained)
    assert (steps(trained)[0].setup or Setup()).play == (200, "final") and steps(trained)[1] is before[1]
    assert seen.points == [2, 3, 4, None], "and it is shown at once"
    assert page.play.isVisible() and fields.last.isEnabled() and fields.last.currentText() == "final weights"
    choose(fields.last, "step 300")
    ended(qtbot, trained)
    assert (steps(trained)[0].setup or Setup()).play == (200, 300)
    choose(fields.first, "no film")
    settle(qtbot, trained)
    assert steps(trained) == before and not page.play.isVisible()
    trained.undo()
    settle(qtbot, trained)
    assert (steps(trained)[0].setup or Setup()).play == (200, 300) and page.play.isVisible()
    assert fields.first.currentText() == "step 200"


def test_a_parameter_that_plays_is_chosen_on_the_page_and_taken_back(qtbot: Any, trained: Window) -> None:
    """Beside a training's: the fields are those of the step's own model."""
    constructed = Setup(model="construct:rope-induction", prompt="A B C A B", show=("attention",))
    story = Story("", (Step("first", "One.", constructed), Step("other", "Two.", Setup(heads=("L1H0",)))))
    document = trained.context.document
    document.edit(replace(document.work, story=story), "a story")
    show(trained)
    settle(qtbot, trained)
    page, film = trained.lessons.page, trained.checkpoints.sweep
    film.player.speed = 1000
    page.editor.edit.click()
    fields = page.editor.sweep
    widgets = fields.form.widgets
    assert fields.isVisible() and page.editor.film.isHidden()
    assert widgets["parameter"].currentText() == "no film" and not widgets["first"].isEnabled()
    before = steps(trained)

    def plays() -> Any:
        qtbot.waitUntil(lambda: film.running)
        qtbot.waitUntil(lambda: not film.running)
        settle(qtbot, trained)
        return (steps(trained)[0].setup or Setup()).play

    widgets["parameter"].setCurrentIndex(widgets["parameter"].findData("offset"))
    widgets["parameter"].activated.emit(widgets["parameter"].currentIndex())
    first = plays()
    assert isinstance(first, Sweep) and first.name == "offset" and first.first < first.last
    widgets["last"].setValue(3)
    widgets["last"].editingFinished.emit()
    assert plays() == Sweep("offset", first.first, 3) and steps(trained)[1] is before[1]
    assert document.recorded.model.source == "construct:rope-induction?offset=3" and page.play.isVisible()
    widgets["parameter"].setCurrentIndex(0)
    widgets["parameter"].activated.emit(0)
    settle(qtbot, trained)
    assert steps(trained) == before and not page.play.isVisible()
    trained.undo()
    settle(qtbot, trained)
    assert (steps(trained)[0].setup or Setup()).play == Sweep("offset", first.first, 3)
    assert widgets["parameter"].currentData() == "offset" and widgets["last"].value() == 3


def test_zoomed_alone_and_playing_together(qtbot: Any, trained: Window) -> None:
    part = (2.0, 3.0, 12.0, 14.0)
    tell(trained, {"play": (0, 200), "show": ("attention",), "alone": True, "zoom": {"attention/attention": part}})
    ranges: list[Any] = []
    view = dock(trained, "attention").view
    seen = Seen(trained)
    show(trained)
    begun(qtbot, trained)
    qtbot.waitUntil(lambda: "attention" in view.visible_parts())
    trained.context.document.changed.connect(lambda old, new: ranges.append(view.visible_parts().get("attention")))
    ended(qtbot, trained)
    assert seen.points == [0, 1, 2] and set(ranges) <= {part} and view.visible_parts() == {"attention": part}


def test_a_lesson_may_play(qtbot: Any, trained: Window, tmp_path: Path) -> None:
    source = trained.context.document.recorded.model.source.removeprefix("file:")
    (tmp_path / "lesson.md").write_text(
        f'+++\ntitle = "Growing"\n+++\n\n## It grows\n\n```circuitlab\nmodel = "{source}"\ntext = "ab ab"\n'
        'show = ["attention"]\nplay = [300, "final"]\nzoom = { "attention/attention" = [0, 0, 3, 3] }\n```\n\nLook.\n',
        encoding="utf-8",
    )
    seen = Seen(trained)
    trained.lessons.begin(read(tmp_path / "lesson.md"))
    begun(qtbot, trained)
    ended(qtbot, trained)
    assert seen.points == [3, 4, None]
    assert dock(trained, "attention").view.visible_parts() == {"attention": (0.0, 0.0, 3.0, 3.0)}


def test_a_film_waits_for_its_first_model_and_is_given_up_where_one_goes_elsewhere(qtbot: Any, trained: Window) -> None:
    store, ref = trained.context.engine.store, trained.context.document.recorded.model
    film = trained.checkpoints.film
    is_closed = store.peek(replace(ref, checkpoint=1)) is None
    film.play(replace(ref, checkpoint=1), replace(ref, checkpoint=2))
    assert trained.context.loader.waiting is is_closed
    trained.checkpoints.to(4)
    settle(qtbot, trained)
    assert not film.running and trained.context.document.recorded.model.checkpoint == 4
    film.play(replace(ref, checkpoint=3), replace(ref, checkpoint=3))
    settle(qtbot, trained)
    assert not film.running and trained.context.document.recorded.model.checkpoint == 3, "one point is no film"


def test_a_step_plays_a_slider_of_the_laboratory_in_the_window_and_on_the_stage(qtbot: Any, trained: Window) -> None:
    constructed = "construct:rope-induction"
    setup = Setup(model=constructed, prompt="A B C A B", show=("attention",), play=Sweep("offset", 1, 3))
    story = Story("A slider", (Step("It looks further back", setup=setup),))
    trained.lessons.tour.start(story, 0)
    film, seen = trained.checkpoints.sweep, list[str]()
    film.player.speed = 1000
    trained.context.document.changed.connect(lambda old, new: seen.append(new.model.source) if old.model != new.model else None)
    qtbot.waitUntil(lambda: film.running)
    qtbot.waitUntil(lambda: not film.running)
    assert seen == [constructed, f"{constructed}?offset=2", f"{constructed}?offset=3"]
    assert not trained.lessons.tour.filming and not trained.context.holds_scales
    stage = Stage(story, trained.context)
    try:
        stage.resize(960, 540)
        stage.show()
        stage.film.player.speed = 1000
        stage.go(0)
        qtbot.waitUntil(lambda: stage.context.document.recorded.model.source == f"{constructed}?offset=3")
        qtbot.waitUntil(lambda: not stage.film.running and not stage.waiting)
    finally:
        stage.end()
        stage.deleteLater()
