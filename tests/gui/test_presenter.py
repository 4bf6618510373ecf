"""The stage: a story is walked by a clicker's keys, pointed at and shown again, and the session stays what it was."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QKeyEvent, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSlider, QApplication, QWidget

from circuitlab.draw.tables.rows import RowsMark
from circuitlab.errors import Cancelled
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.presenter.keys import DIGITS, KEYS
from circuitlab.gui.presenter.stage import Stage
from circuitlab.gui.presenter.stage_views import pictures_of
from circuitlab.gui.presenter.step_words import first_line, line_of
from circuitlab.gui.presenter.steps_ahead import StepsAhead
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import Head
from circuitlab.story.film import title_at_frame
from circuitlab.story.resolver import Ready
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from tests import pointer
from tests.gui.driving import TEXT, command, settle, shown_window
from tests.gui.training import checkpoints, measures
from tests.models import directory
from tests.patience import SECONDS

Key = Qt.Key
CTRL = Qt.KeyboardModifier.ControlModifier
STEPS = (0, 100, 200, 300, 400)
HEAD = Setup(heads=("L1H2",), destination=3, locked=False, show=("attention",))
TALK = (
    Step("A head", "It looks *back*.\n\nMore for the notes.", HEAD, aside="slowly"),
    Step("Two figures", "", Setup(heads=("L0H1",), show=("attention", "heads"))),
    Step("Without it", "", Setup(cut=("L0H1",), show=("predictions", "attention", "overview"), compare="difference")),
    Step("Scores", "", Setup(cut=(), show=("composition",), alone=True)),
)  # fmt: skip


def tell(window: Window, *steps: Step) -> None:
    work = window.context.document.work
    window.context.document.edit(replace(work, story=Story("A talk", steps)), "tell")


def still(qtbot: Any, stage: Stage) -> None:
    """Until the step is drawn, and every other one is set up."""
    runner = stage.context.runner
    qtbot.waitUntil(lambda: not stage.waiting and not runner.busy and not stage.film.running)
    QApplication.processEvents()


def press(stage: Stage, key: Qt.Key, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    """A key arrives at the native window, as from the keyboard."""
    QTest.keyClick(stage.windowHandle(), key, keys)


def heads(stage: Stage) -> tuple[str, ...]:
    return tuple(map(str, stage.context.document.state.selection.heads))


def picture(stage: Stage) -> np.ndarray:
    """The pixels of the stage."""
    image = stage.page.grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4)[..., :3].copy()


@pytest.fixture
def on(qtbot: Any) -> Iterator[Callable[..., Stage]]:
    """A stage for the story of a window, at a step."""
    stages: list[Stage] = []

    def opened(window: Window, step: int = 0, prepared: Mapping[int, Ready] | None = None) -> Stage:
        stage = Stage(window.context.document.work.story, window.context, None, prepared)
        stages.append(stage)
        stage.resize(960, 540)
        stage.show()
        stage.go(step)
        still(qtbot, stage)
        return stage

    yield opened
    for stage in stages:
        stage.close()
        stage.deleteLater()


@pytest.fixture
def stage(qtbot: Any, window: Window, on: Callable[..., Stage]) -> Stage:
    tell(window, *TALK)
    return on(window)


def test_each_step_is_shown_as_its_words_say(qtbot: Any, window: Window, stage: Stage) -> None:
    announced: list[int] = []
    stage.step_changed.connect(announced.append)
    names, written = list[list[str]](), list[tuple[str, str]]()
    for _ in TALK:
        names.append([feed.panel.name for feed in stage.views.feeds])
        written.append((stage.page.title.text, stage.page.line.text))
        assert all(feed.view.isVisible() and feed.view.figure.grid for feed in stage.views.feeds)
        assert stage.page.footer.text.startswith(f"{stage.index + 1} / 4")
        assert stage.context.name_of(stage.context.document.state.model) in stage.page.footer.text, "whose numbers they are"
        assert ("L0H1" in stage.page.footer.text) == (stage.step.title == "Without it"), "what is cut is said"
        assert f" · {window.context.name_of(stage.context.document.state.model)} · " in stage.page.footer.text
        stage.next()
        still(qtbot, stage)
    assert names == [["attention"], ["attention", "heads"], ["predictions", "attention", "overview"], ["composition"]]
    assert written == [("A head", "It looks back."), ("Two figures", ""), ("Without it", ""), ("Scores", "")]
    assert announced == [1, 2, 3] and stage.index == 3, "after the last step nothing happens"
    stage.back()
    still(qtbot, stage)
    state = stage.context.document.state
    assert stage.index == 2 and state.subject.edits and state.compare == "difference"


def test_a_kept_view_has_its_own_panel_on_the_stage_and_the_others_at_a_key(
    qtbot: Any, window: Window, on: Callable[..., Stage]
) -> None:
    window.layout_of_docks.go_to("attention")
    settle(qtbot, window)
    QTest.keyClick(window, Key.Key_K, CTRL)
    settle(qtbot, window)
    (step,) = window.context.document.work.story.steps
    assert step.setup is not None and len(step.setup.show) > 2 and step.setup.stage == ("attention",)
    named = Step("Both", "", Setup(show=("attention", "heads")))
    tell(window, step, named, Step("Said", "", Setup(show=("attention", "heads"), stage=("heads",))))
    stage = on(window)
    seen = lambda: [feed.panel.name for feed in stage.views.feeds if feed.view.isVisible()]
    before = picture(stage)
    assert seen() == ["attention"] and "(V)" in stage.picture_words and stage.page.title.text == step.title
    for name in (n for n in step.setup.show if n != "attention"):
        press(stage, Key.Key_V)
        still(qtbot, stage)
        assert seen() == [name] and stage.index == 0
        assert stage.page.title.text == panels()[name].title, "the step's title is about another panel"
    press(stage, Key.Key_V)
    still(qtbot, stage)
    assert set(seen()) == set(step.setup.show[:4]) and stage.page.title.text == step.title
    press(stage, Key.Key_V)
    still(qtbot, stage)
    assert seen() == ["attention"] and (picture(stage) == before).all()
    for own, other in ((["attention", "heads"], "Both"), (["heads"], "Attention")):
        press(stage, Key.Key_V)
        stage.next()
        still(qtbot, stage)
        assert seen() == own, "another step begins with its own picture"
        press(stage, Key.Key_V)
        assert stage.page.title.text == other, "where all panels are named its title is about each"


ON = (Key.Key_PageDown, Key.Key_Right, Key.Key_Down, Key.Key_Space, Key.Key_Return, Key.Key_Enter, Key.Key_N)
BACK = (Key.Key_PageUp, Key.Key_Left, Key.Key_Up, Key.Key_Backspace)


def test_the_keys_of_a_clicker_walk_from_wherever_the_keyboard_is(qtbot: Any, window: Window, stage: Stage) -> None:
    before = window.context.document.work
    stage.go(1)
    still(qtbot, stage)
    places = [stage, *(w for w in stage.findChildren(QWidget) if w.isVisible() and w.focusPolicy() != Qt.FocusPolicy.NoFocus)]
    assert len(places) > 4, "marks, views and their parts"
    for i, place in enumerate(places):
        place.setFocus(Qt.FocusReason.OtherFocusReason)
        chosen = stage.context.document.recorded
        press(stage, ON[i % len(ON)])
        assert stage.index == 2, place
        press(stage, BACK[i % len(BACK)])
        assert stage.index == 1 and stage.context.document.state == chosen, "a step is walked, no cell of a figure"
    for key in (*ON, *BACK):
        stage.go(1)
        press(stage, key)
        assert stage.index == (2 if key in ON else 0), key
    for key, index in ((Key.Key_End, 3), (Key.Key_Home, 0)):
        press(stage, key)
        assert stage.index == index
    still(qtbot, stage)
    mark = stage.views.feeds[0].view.walked
    assert mark is not None
    mark.setFocus()
    read_out = mark.accessibleDescription()
    press(stage, Key.Key_Left)
    assert stage.focusWidget() is mark and mark.accessibleDescription() == read_out, "nor where no step is before it"
    assert window.context.document.work == before


def test_every_key_of_the_table_does_something_and_no_other_reaches_a_mark(qtbot: Any, stage: Stage) -> None:
    keys = [key for entry in KEYS for key in entry.keys]
    assert len(keys) == len(set(keys))
    acts: list[str] = []
    for key in keys:
        if key != Key.Key_Escape:
            press(stage, key)  # also without a talk, which adds to what they do
    while stage.aids.back_out():
        pass
    stage.go(0)
    for entry in KEYS:
        if entry.action != "digit":
            stage.acts[entry.action] = lambda name=entry.action: acts.append(name)
    for entry in KEYS:
        if entry.action != "digit":
            for key in entry.keys:
                press(stage, key)
    assert acts == [entry.action for entry in KEYS if entry.action != "digit" for _ in entry.keys]
    acts.clear()
    mark = stage.views.feeds[0].view.walked
    assert mark is not None
    mark.setFocus()
    before = stage.context.document.state
    for key in (Key.Key_Tab, Key.Key_X, Key.Key_Delete, Key.Key_F5):
        press(stage, key)
    press(stage, Key.Key_Right, CTRL)
    assert acts == [] and stage.context.document.state == before


def test_a_number_and_enter_go_to_that_step(qtbot: Any, stage: Stage) -> None:
    press(stage, Key.Key_3)
    assert stage.index == 0 and stage.aids.typing
    press(stage, Key.Key_Enter)
    assert stage.index == 2 and not stage.aids.typing
    for key in (Key.Key_9, Key.Key_Return):
        press(stage, key)
    assert stage.index == 2 and stage.aids.typing, "there is no ninth step"
    for key in (Key.Key_Backspace, Key.Key_1, Key.Key_Return):
        press(stage, key)
    assert stage.index == 0 and len(DIGITS) == 10
    still(qtbot, stage)


def test_a_key_that_is_held_down_counts_once(qtbot: Any, stage: Stage) -> None:
    for held in (False, True, True):
        event = QKeyEvent(QEvent.Type.KeyPress, Key.Key_PageDown, Qt.KeyboardModifier.NoModifier, "", held)
        QApplication.sendEvent(stage.windowHandle(), event)
    assert stage.index == 1
    still(qtbot, stage)


def test_what_follows_the_present_step_is_set_up_before_what_is_behind_it(qapp: Any) -> None:
    begun: list[int] = []
    steps = [Step(str(i)) for i in range(4)]
    runner = SimpleNamespace(do=lambda slot, title, number: begun.append(number))
    tour: Any = SimpleNamespace(
        lesson=SimpleNamespace(steps=steps),
        number=1,
        ready="1",
        prepared={},
        title="A talk",
        setting_up=lambda number: number,
        context=SimpleNamespace(runner=runner),
    )
    ahead = StepsAhead(tour, {}, qapp)
    ahead.go_on()
    while len(tour.prepared) < len(steps):
        ahead._slot.finished.emit("ready", None)
    assert begun == [2, 3, 0]


def test_of_a_step_with_one_panel_alone_that_one_is_shown() -> None:
    assert pictures_of(Setup(show=("attention", "heads"), alone=True)) == (("heads",),)
    assert pictures_of(Setup(show=("attention", "heads")))[0] == ("attention", "heads")


def test_esc_takes_back_one_thing_after_the_other_and_then_ends(qtbot: Any, stage: Stage) -> None:
    press(stage, Key.Key_B)
    press(stage, Key.Key_Escape)
    assert stage.isVisible() and not stage.aids.active
    press(stage, Key.Key_W)
    press(stage, Key.Key_PageDown)
    assert stage.index == 0 and not stage.aids.active, "what lies over the step is lifted before another is shown"
    with qtbot.waitSignal(stage.ended):
        press(stage, Key.Key_Escape)
    assert not stage.isVisible()


def test_what_is_done_on_the_stage_is_forgotten_and_the_session_never_hears_of_it(
    qtbot: Any, window: Window, on: Callable[..., Stage]
) -> None:
    tell(window, *TALK)
    document, before, shown = window.context.document, window.context.document.work, window.context.document.state
    stage = on(window)
    view = stage.views.feeds[0].view
    mark = view.widget("attention")
    pointer.move(stage, QPoint(1, 1))
    still(qtbot, stage)
    untouched, state = picture(stage), stage.context.document.state
    place = mark.viewport().mapTo(mark, mark.frame().center().toPoint())
    pointer.move(mark, place)
    assert stage.context.document.state != state, "hovering previews"
    pointer.drag(mark, place)
    still(qtbot, stage)
    assert stage.context.document.recorded != state and not np.array_equal(picture(stage), untouched)
    press(stage, Key.Key_R)
    still(qtbot, stage)
    assert stage.context.document.state == state
    np.testing.assert_array_equal(picture(stage), untouched, "the exact picture, with the pointer where it was")
    pointer.drag(mark, place)
    view.zoom(0.5)
    stage.next()
    stage.back()
    still(qtbot, stage)
    assert stage.context.document.state == state
    np.testing.assert_array_equal(picture(stage), untouched)
    assert document.work == before and document.state == shown and not document.after


TABLE = Step("Without it", "", Setup(prompt=TEXT, cut=("L0H1",), show=("predictions",), compare="difference"))
PLAIN = Step("What comes next", "", Setup(prompt=TEXT, show=("predictions",), compare="now"))
SORT, SCROLL = "sort", "scroll"


def in_a_table(stage: Stage, *acts: str | int) -> RowsMark:
    """Do these things by hand in the table of predictions: click a row, by its number in view, scroll or sort."""
    mark = stage.views.feeds[0].view.widget("tokens")
    viewport, header = mark.table.viewport(), mark.table.horizontalHeader()
    for act in acts:
        if act == SORT:
            column = next(i for i in range(header.count() - 1, 0, -1) if not header.isSectionHidden(i))
            at = QPoint(header.sectionViewportPosition(column) + header.sectionSize(column) // 2, header.height() // 2)
            pointer.drag(header.viewport(), at, at)
            assert mark.model.sorted_by is not None
        elif act == SCROLL:
            mark.table.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction.SliderToMaximum)
        else:
            pointer.drag(viewport, mark.table.visualRect(mark.model.index(mark.table.rowAt(0) + int(act), 1)).center())
    return mark


@pytest.mark.slow
@pytest.mark.parametrize("step", [TABLE, PLAIN], ids=["difference", "now"])
@pytest.mark.parametrize("acts", [(1,), (SCROLL, 2), (SORT, 0), (2, SORT, SCROLL)], ids=str)
def test_a_table_that_was_touched_comes_back_as_it_was(
    qtbot: Any, window: Window, on: Callable[..., Stage], step: Step, acts: tuple[str | int, ...]
) -> None:
    tell(window, step, TALK[0], PLAIN)
    stage = on(window)
    pointer.move(stage, QPoint(1, 1))
    still(qtbot, stage)
    untouched = picture(stage)
    for key in (Key.Key_R, Key.Key_PageDown, Key.Key_End):
        in_a_table(stage, *acts)
        still(qtbot, stage)
        assert not np.array_equal(picture(stage), untouched)
        press(stage, key)
        still(qtbot, stage)
        if key == Key.Key_End:
            in_a_table(stage, 0)
        press(stage, Key.Key_Home)
        still(qtbot, stage)
        np.testing.assert_array_equal(picture(stage), untouched)


@pytest.mark.parametrize("step", [TABLE, PLAIN], ids=["difference", "now"])
def test_esc_releases_what_was_selected_before_it_ends(qtbot: Any, window: Window, on: Callable[..., Stage], step: Step) -> None:
    tell(window, step)
    stage = on(window)
    state = stage.context.document.state
    mark = in_a_table(stage, 1)
    pointer.move(stage, QPoint(1, 1))
    still(qtbot, stage)
    assert mark.table.selectionModel().hasSelection()
    press(stage, Key.Key_Escape)
    still(qtbot, stage)
    assert stage.isVisible() and stage.context.document.recorded == state
    assert not mark.table.selectionModel().hasSelection()
    with qtbot.waitSignal(stage.ended):
        press(stage, Key.Key_Escape)


def test_a_step_of_words_alone_begins_with_the_picture_of_the_step_before(
    qtbot: Any, window: Window, on: Callable[..., Stage]
) -> None:
    tell(window, TALK[0], Step("The same, in other words"))
    stage = on(window)
    state = stage.context.document.state
    stage.context.apply(state.with_heads(Head(0, 0)), "as by a click")
    stage.next()
    still(qtbot, stage)
    assert stage.context.document.state == state and [feed.panel.name for feed in stage.views.feeds] == ["attention"]


def test_many_models_close_neither_that_of_the_step_nor_that_of_the_window(
    qtbot: Any, window: Window, tmp_path: Path, on: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = window.context.engine.store
    monkeypatch.setattr(store, "_room", 0)
    store.most = 1
    folders = [str(directory(tmp_path / name)) for name in "abc"]
    tell(window, *(Step(name, "", Setup(model=f"file:{name}", prompt=TEXT, show=("attention",))) for name in folders))
    stage = on(window)
    for _ in folders:
        assert store.peek(stage.context.document.state.model) is not None and stage.views.feeds[0].view.figure.grid
        assert store.peek(window.context.document.state.model) is not None
        stage.next()
        still(qtbot, stage)
    assert len(store._models) <= 4
    stage.close()
    assert not +store._kept and store.peek(window.context.document.state.model) is not None
    settle(qtbot, window)


def test_slow_work_of_the_window_gives_way_to_that_of_the_stage_and_begins_again(
    qtbot: Any, window: Window, stage: Stage
) -> None:
    runner, order, begun = window.context.runner, list[str](), list[str]()
    done = lambda value, role: order.append(str(value))
    failed = lambda error, role: order.append(f"{role}: {type(error).__name__}")

    def work(job: Job) -> str:
        begun.append(job.title)
        if begun.count("window") == 1 and job.cancelled.wait(SECONDS):
            raise Cancelled
        return job.title

    mine, theirs = (WorkSlot(owner, name, finished=done, failed=failed) for owner, name in ((stage, "s"), (window, "w")))
    runner.do(theirs, "window", work, "slow")
    qtbot.waitUntil(lambda: begun == ["window"])
    runner.do(mine, "stage", lambda job: job.title, "slow")
    qtbot.waitUntil(lambda: len(order) == 2)
    assert order == ["stage", "window"] and begun == ["window", "window"] and not runner.busy
    begun.clear()
    runner.do(theirs, "window", work, "slow")
    qtbot.waitUntil(lambda: begun == ["window"])
    runner.do(mine, "stage", lambda job: job.title, "slow")
    runner.cancel_slot(theirs)
    qtbot.waitUntil(lambda: not runner.busy)
    assert order[2:] == ["w: Cancelled", "stage"], "what was cancelled by hand does not begin again"


def test_requests_of_the_stage_go_first(qtbot: Any, window: Window, stage: Stage) -> None:
    runner, order = window.context.runner, list[str]()
    done = lambda value, role: order.append(str(value))
    slots = {name: WorkSlot(owner, finished=done) for name, owner in (("first", window), ("window", window), ("stage", stage))}
    for name, slot in slots.items():
        runner.do(slot, name, lambda job, name=name: name, "io")
    qtbot.waitUntil(lambda: len(order) == 3)
    assert order == ["first", "stage", "window"]
    work = lambda job: job.cancelled.wait(SECONDS)
    for owner in (stage, window):
        runner.do(WorkSlot(owner, finished=done), "waits", work, "slow")
    stages, windows = runner.jobs
    stage.close()
    assert stages.cancelled.is_set() and not windows.cancelled.is_set(), "nobody waits for it any more"
    assert runner.lead is None
    windows.cancelled.set()
    qtbot.waitUntil(lambda: not runner.busy)


def test_the_commands_present_from_the_first_step_or_from_here(qtbot: Any, window: Window) -> None:
    menus = window.menus
    menus.refresh()
    assert not command(window, "present").isEnabled(), "there is no story"
    menus.enable()
    tell(window, Step("Begin", setup=Setup(prompt=TEXT)), *TALK)
    window.preparing.prepare()
    window.lessons.begin_own(2)
    settle(qtbot, window)
    command(window, "full-screen").trigger()
    assert window.isFullScreen() and command(window, "full-screen").shortcut().toString() == "F11"
    command(window, "full-screen").trigger()
    assert not window.isFullScreen() and command(window, "maximise").shortcut().toString() == "F10"
    for name, step in (("present-first", 0), ("present-here", 2)):
        command(window, name).trigger()
        stage = window.presenting.stage
        assert stage is not None and stage.isFullScreen() and stage.index == step
        still(qtbot, stage)
        assert stage.page.title.text == window.presenting.story.steps[step].title
        stage.end()
        assert window.presenting.stage is None
    settle(qtbot, window)


@pytest.mark.parametrize("first", ["stage", "window"])
@pytest.mark.parametrize("busy", [False, True])
def test_either_can_be_closed_first(qtbot: Any, window: Window, first: str, busy: bool) -> None:
    tell(window, *TALK)
    window.presenting.begin(2)
    stage = window.presenting.stage
    assert stage is not None and {entry.action for entry in KEYS} == {"digit", *stage.acts}
    if not busy:
        still(qtbot, stage)
    (stage if first == "stage" else window).close()
    assert window.presenting.stage is None and not stage.isVisible()
    if first == "stage":
        assert window.isVisible()
        settle(qtbot, window)


def test_a_step_without_its_model_says_so_and_the_others_are_shown(qtbot: Any, window: Window, on: Callable[..., Stage]) -> None:
    gone = Step("Go\u202ene", "", Setup(model="file:/nowhere/at-all", show=("attention",)))
    tell(
        window,
        TALK[0],
        gone,
        replace(TALK[0], setup=replace(TALK[0].setup or Setup(), model=window.context.document.state.model.source)),
    )
    stage = on(window)
    stage.next()
    still(qtbot, stage)
    assert stage.problem is not None and "cannot be shown" in stage.page.line.text and not stage.views.feeds
    assert stage.page.footer.text == "2 / 3", "no model is named under it"
    assert stage.page.title.text == "Go\\u202ene", "what would turn the line around is shown"
    stage.next()
    still(qtbot, stage)
    assert stage.problem is None and [feed.panel.name for feed in stage.views.feeds] == ["attention"]


def test_a_step_of_a_panel_that_there_is_not_says_so_and_shows_no_other(
    qtbot: Any, window: Window, on: Callable[..., Stage]
) -> None:
    words = Setup(show=("attentoin",), stage=("attentoin",))
    tell(window, TALK[0], Step("Misspelt", "", words), Step("Words alone", "Nothing set."), TALK[0])
    stage = on(window)
    for line in ("This step cannot be shown: No such panel: attentoin.", "No such panel: attentoin. Nothing set."):
        stage.next()
        still(qtbot, stage)
        assert stage.page.line.text == line and not stage.views.feeds
    stage.next()
    still(qtbot, stage)
    assert stage.problem is None and [feed.panel.name for feed in stage.views.feeds] == ["attention"]


def test_a_film_plays_on_the_stage_until_its_end_or_a_key(
    qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: Callable[..., Stage]
) -> None:
    folder = directory(tmp_path / "trained")
    checkpoints(folder, STEPS)
    measures(folder, STEPS, 600, fall=1)
    film = Step("Film", "", Setup(show=("attention",), play=(0, "final")))
    with shown_window(qtbot, folder) as window:
        tell(window, film, Step("A checkpoint", "", Setup(checkpoint=100)))
        before = window.context.document.work
        stage = on(window, 1)
        stage.film.player.speed = 1000
        points: list[int | None] = []
        drawn: list[bool] = []

        def changed(old: Any, new: Any) -> None:
            drawn.append(stage.views.waiting)
            points.append(new.model.checkpoint)

        stage.context.document.changed.connect(changed)
        footers, places, shares = list[str](), list[str](), list[float]()

        def written() -> None:
            footers.append(stage.page.footer.text)
            places.append(stage.page.place.text)
            shares.append(stage.page.film.share if stage.page.film is not None else 0.0)

        stage.views.drawn.connect(written)
        stage.go(0)
        qtbot.waitUntil(lambda: stage.film.running)
        assert stage.context.holds_scales and not window.context.holds_scales
        still(qtbot, stage)
        said = " ".join(footers)
        assert all(f"trained · {when}" in said for when in (*(f"step {n} ·" for n in STEPS), "final weights"))
        assert "final weights" in stage.page.footer.text
        assert list(dict.fromkeys(places)) == [*(f"step {n}" for n in STEPS), "final weights"], "large, in step with the picture"
        assert list(dict.fromkeys(shares)) == [(i + 1) / 6 for i in range(6)]
        assert points == [0, 1, 2, 3, 4, None] and not stage.context.holds_scales
        points.clear()
        press(stage, Key.Key_R)
        qtbot.waitUntil(lambda: stage.film.running)
        press(stage, Key.Key_F)
        at = len(points)
        still(qtbot, stage)
        assert stage.context.holds_scales and len(points) == at, "it waits while nobody sees it"
        press(stage, Key.Key_F)
        qtbot.waitUntil(lambda: stage.film.running and len(points) > 2)
        with monkeypatch.context() as patch:
            patch.setattr(stage.tour, "go", lambda *_, **__: None)  # while a model is being opened nothing else changes
            press(stage, Key.Key_PageDown)
            assert not stage.film.running
        press(stage, Key.Key_PageDown)
        still(qtbot, stage)
        assert stage.context.document.state.model.checkpoint == 1 and not stage.page.place.isVisible()
        stage.back()
        qtbot.waitUntil(lambda: stage.film.running)
        stage.context.apply(stage.context.document.state.with_heads(Head(1, 3)), "as by a click")
        assert not stage.film.running, "who clicks looks at this point"
        still(qtbot, stage)
        stage.next()
        still(qtbot, stage)
        assert window.context.document.work == before
        stage.close()
        window.checkpoints.loop.setChecked(True)
        window.checkpoints.play_or_stop()
        assert window.checkpoints.player.playing
        window.presenting.begin(1)
        assert not window.checkpoints.player.playing, "nothing goes on behind the stage"
        window.presenting.end()
        settle(qtbot, window)


def test_a_film_is_held_to_talk_over_it_and_esc_stops_it_first(qtbot: Any, tmp_path: Path, on: Callable[..., Stage]) -> None:
    folder = directory(tmp_path / "trained")
    checkpoints(folder, STEPS)
    measures(folder, STEPS, 600, fall=1)
    with shown_window(qtbot, folder) as window:
        tell(window, Step("Before"), Step("Film", "", Setup(show=("attention",), play=(0, "final"))))
        stage = on(window)
        points: list[int | None] = []
        stage.context.document.changed.connect(lambda old, new: points.append(new.model.checkpoint))
        middle = stage.page.rect().center()
        click = lambda: QTest.mouseClick(stage.windowHandle(), Qt.MouseButton.LeftButton, pos=middle)
        ways = (click, *(lambda key=key: press(stage, key) for key in (Key.Key_X, Key.Key_F, Key.Key_B)))
        stage.next()
        for number, way in enumerate(ways, 1):
            qtbot.waitUntil(lambda number=number: stage.film.running and len(points) > number)
            way()
            assert not stage.film.running
            still(qtbot, stage)
            at, state = len(points), stage.context.document.state
            press(stage, Key.Key_Shift)
            assert (len(points), stage.context.document.state) == (at, state), "the frame stays, and no mark heard of it"
            way()
            assert stage.film.running, "and it goes on"
            qtbot.waitUntil(lambda at=at: len(points) > at)
            assert points[at - 1 : at + 1] in [[n, n + 1] for n in range(4)] + [[4, None]], "from there"
        still(qtbot, stage)
        press(stage, Key.Key_R)
        press(stage, Key.Key_L)
        for held in (False, True):
            qtbot.waitUntil(lambda: stage.film.running)
            if held:
                press(stage, Key.Key_X)
            press(stage, Key.Key_Escape)
            assert not stage.film.running and not stage.film.in_sight and stage.aids.ringed and stage.isVisible()
            press(stage, Key.Key_X)
            assert not stage.film.running, "it has been stopped"
            press(stage, Key.Key_R)
        qtbot.waitUntil(lambda: stage.film.running)
        for _ in "film", "ring":
            assert stage.isVisible()
            press(stage, Key.Key_Escape)
        assert stage.isVisible() and not stage.aids.ringed and not stage.film.running
        press(stage, Key.Key_Escape)
        assert not stage.isVisible()
        settle(qtbot, window)


def test_the_title_of_a_film_is_that_of_the_frame(qtbot: Any, tmp_path: Path, on: Callable[..., Stage]) -> None:
    folder = directory(tmp_path / "trained")
    checkpoints(folder, STEPS)
    measures(folder, STEPS, 600, fall=1)
    with shown_window(qtbot, folder) as window:
        window.layout_of_docks.go_to("training")
        settle(qtbot, window)
        kept = window.layout_of_docks.current_panel.view.figure.title
        assert kept.startswith("step 600 (final): loss")
        film = Setup(show=("training",), play=(0, "final"))
        tell(
            window,
            Step(kept, "", film),
            Step(kept[:27] + "…", "", film),
            Step("At 3 loss 5", "", film),
            Step(kept, "", replace(film, play=None)),
        )
        stage = on(window, 3)
        assert stage.page.title.text == kept, "a step that plays nothing is called as it is"
        assert "trained · final weights · " in stage.page.footer.text
        for step, own in ((0, ""), (1, ""), (2, "At 3 loss 5")):
            stage.go(step)
            qtbot.waitUntil(lambda: stage.film.running and not stage.waiting)
            for at in (0, 100, 200):
                stage.film.player.stop()
                stage.context.go(replace(stage.context.document.state.model, checkpoint=STEPS.index(at)), "film", "film")
                qtbot.waitUntil(lambda: not stage.waiting)
                shown = stage.views.feeds[0].view.figure.title
                assert shown.startswith(f"step {at}:") and shown != kept
                assert stage.page.footer.text.startswith(f"{step + 1} / 4 · trained · step {at} · "), (
                    "also under a title of one's own"
                )
                assert stage.page.title.text == own or (not own and shown.startswith(stage.page.title.text))


@pytest.mark.parametrize(
    ("title", "at_frame"),
    [
        ("L1H1 · pattern", "L1H1 · pattern"),
        ("L1H1 · pattern · position 26", "L1H1 · pattern · position 26"),
        ("L1H1 · pattern · 2", "L1H1 · pattern · 2"),
        ("A head", None),
    ],
)
def test_what_tells_a_film_apart_from_another_step_stays_in_its_title(title: str, at_frame: str | None) -> None:
    assert title_at_frame(title, ["All 8 heads", "L1H1 · pattern"]) == at_frame


class Hand:
    """Random events at the native window of a stage: the pointer, its buttons and wheel, every key, other sizes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.keys = [key for entry in KEYS for key in entry.keys] + [Key.Key_Tab, Key.Key_A, Key.Key_Menu, Key.Key_Delete]

    def play(self, stage: Stage) -> None:
        rng = self.rng
        at = QPoint(rng.randrange(stage.width()), rng.randrange(stage.height()))
        getattr(self, rng.choice(("move", "move", "click", "click", "drag", "turn", "key", "key", "resize")))(stage, at)
        QApplication.processEvents()

    def move(self, stage: Stage, at: QPoint) -> None:
        pointer.move(stage, at)

    def click(self, stage: Stage, at: QPoint) -> None:
        pointer.move(stage, at)
        button = self.rng.choice((Qt.MouseButton.LeftButton, Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton))
        modifier = self.rng.choice((Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier))
        act = self.rng.choice((QTest.mouseClick, QTest.mouseClick, QTest.mouseDClick))
        act(stage.windowHandle(), button, modifier, at)

    def drag(self, stage: Stage, at: QPoint) -> None:
        pointer.drag(stage, at, at + QPoint(9, 5), at + QPoint(30, 12))

    def turn(self, stage: Stage, at: QPoint) -> None:
        modifier = self.rng.choice((Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier))
        angle, none = QPoint(0, self.rng.choice((120, -120))), Qt.MouseButton.NoButton
        where = QPointF(at), QPointF(stage.mapToGlobal(at))
        event = QWheelEvent(*where, QPoint(), angle, none, modifier, Qt.ScrollPhase.NoScrollPhase, False)
        QApplication.sendEvent(stage.windowHandle(), event)

    def key(self, stage: Stage, at: QPoint) -> None:
        press(stage, self.rng.choice(self.keys))

    def resize(self, stage: Stage, at: QPoint) -> None:
        if self.rng.random() < 0.2:
            stage.resize(self.rng.randrange(400, 1400), self.rng.randrange(300, 900))


@pytest.mark.parametrize(
    "events",
    [
        60,
        pytest.param(2_000, marks=pytest.mark.slow),
        pytest.param(10_000, marks=(pytest.mark.thorough, pytest.mark.timeout(3000))),
    ],
)
def test_random_events_on_the_stage_leave_the_session_as_it_was(
    qtbot: Any, window: Window, on: Callable[..., Stage], events: int
) -> None:
    tell(window, *TALK, *(Step(name, "", Setup(show=(name,))) for name in ("laboratory", "bigram", "residual", "circuits")))
    document = window.context.document
    work, shown, undo = document.work, document.state, document.undo_label
    changes: list[object] = []
    document.changed.connect(lambda *states: changes.append(states))
    document.work_changed.connect(lambda: changes.append("work"))
    stage, hand = on(window), Hand(17)
    for _ in range(events):
        hand.play(stage)
        if not stage.isVisible():  # by Esc
            stage = on(window)
    still(qtbot, stage)
    assert document.work is work and document.state is shown and document.undo_label == undo and not changes
    stage.aids.clear()
    stage.go(0)
    still(qtbot, stage)
    assert heads(stage) == ("L1H2",) and not stage.context.document.state.edits


def test_the_line_has_its_numbers_in_it(qtbot: Any, window: Window, on: Callable[..., Stage]) -> None:
    value, wrong = Value("loss", "token_loss", {}, "mean", ".2f"), Value("wrong", "token_loss", {}, "loss[999]", ".2f")
    tell(window, replace(TALK[0], text="It is {loss}, not {wrong}.", values=(value, wrong)), TALK[1])
    stage = on(window)
    for _ in range(2):  # computed, and at hand
        assert re.fullmatch(r"It is \d+\.\d\d, not \[wrong: not computed\]\.", stage.page.line.text), "as in window and report"
        stage.next()
        still(qtbot, stage)
        assert stage.page.line.text == ""
        stage.back()


def test_the_line_is_the_first_paragraph_as_it_is_read() -> None:
    assert first_line("# Title\n\nA *b* [c](value:d) `e`.\n\nMore") == "Title"
    assert first_line("A *b* [c](value:d) `e`.\nstill the same\n\nMore") == "A b c e. still the same"
    assert first_line("<script>x</script>") == "<script>x</script>" and first_line("") == ""


def test_a_panel_that_there_is_not_is_named_before_the_line() -> None:
    step = Step("One", "It *looks* back.", Setup(show=("attention", "nosuch\u202epanel", "prompt")))
    line = line_of(step, step.setup or Setup(), {}, {})
    assert "nosuch" in line and "prompt" not in line and "\u202e" not in line and line.endswith(". It looks back.")
    assert line_of(step, Setup(show=("attention",)), {}, {}) == "It looks back."
