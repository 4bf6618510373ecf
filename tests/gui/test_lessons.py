"""Lessons in the window: walked to their ends, left again, and what is in the text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCharFormat

from circuitlab.disk import paths
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons import links
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.window import Window
from circuitlab.lessons import lesson as lesson_module
from circuitlab.lessons.lesson import Lesson, files, read
from circuitlab.model.subject import Head
from circuitlab.story.values import not_computed, why_not_computed
from tests.gui.driving import docks_on_screen, settle
from tests.lesson_models import write_models
from tests.real_file import LESSONS, brought

SHIPPED = {path.stem: path for path in files()}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def small(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models under the shipped names."""
    shipped = paths.shipped
    monkeypatch.setattr(paths, "shipped", lambda kind: models if kind == "models" else shipped(kind))


@pytest.fixture
def opened(qtbot: Any) -> Iterator[Callable[[], Window]]:
    made: list[Window] = []

    def open_window() -> Window:
        window = gui.make_window(None, "one two one two", remember=False)
        made.append(window)
        window.context.failed.disconnect(window.dialogs.show_error)
        window.resize(1280, 800)
        window.show()
        settle(qtbot, window)
        return window

    yield open_window
    for window in made:
        window.close()
        window.deleteLater()


def walk(qtbot: Any, window: Window, lesson: Lesson) -> None:
    """To its end; every complaint of every step at once."""
    failures: list[BaseException] = []
    window.context.failed.connect(failures.append)
    before, tour = window.context.document.recorded, window.lessons.tour
    wrong: list[str] = []
    window.lessons.begin(lesson)
    for number, step in enumerate(lesson.steps):
        assert tour.number == number
        settle(qtbot, window)
        wrong += [f"{step.title}: {said}" for said in complaints(window, lesson, number)]
        wrong += [f"{step.title}: {error}" for error in failures]
        failures.clear()
        tour.next()
    settle(qtbot, window)
    assert not wrong, "\n".join(wrong)
    assert tour.lesson is None and tour.places.done(lesson)
    assert window.context.document.recorded == before


def complaints(window: Window, lesson: Lesson, number: int) -> Iterator[str]:
    """What is wrong with a step as it stands on the screen."""
    tour = window.lessons.tour
    if tour.error is not None:
        yield str(tour.error)
    yield from (f"{{{name}}} {said}" for name, said in tour.value_texts.items() if "not computed" in said or said == "…")
    text = window.lessons.page.text.toPlainText()
    if "{" in text.replace("{ }", "") and any(f"{{{name}}}" in text for name in tour.value_texts):
        yield "a value that stands unreplaced in the text"
    for name in lesson.setup(number).show:
        if not on_screen(window.docks[name]):
            yield f"{name} is not to be seen"
    for name, dock in window.docks.items():
        if isinstance(dock, PanelDock) and on_screen(dock):
            figure = dock.view.figure
            if dock.feed.exchange.failures:
                yield f"{name} failed: {next(iter(dock.feed.exchange.failures.values()))}"
            elif not figure.marks() and not figure.why_empty:
                yield f"{name} is empty and does not say why"
            elif "could not be drawn" in figure.why_empty:
                yield f"{name}: {figure.why_empty}"


# no layers, and two of them; the slow set walks all
AT_ONCE = ("01-zero-layers", "05-induction")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in AT_ONCE else pytest.mark.slow) for n in sorted(SHIPPED)])
def test_every_lesson_can_be_walked_on_small_models(qtbot: Any, small: None, opened: Callable[[], Window], name: str) -> None:
    walk(qtbot, opened(), read(SHIPPED[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_lesson_can_be_walked_on_the_shipped_models(qtbot: Any, opened: Callable[[], Window], name: str) -> None:
    if name in LESSONS:
        brought()
    walk(qtbot, opened(), read(SHIPPED[name]))


# -- one of our own ------------------------------------------------------------------------------------------------------------

OWN = """+++
title = "Mine"
about = "One line."
minutes = 2
+++

## First

```circuitlab
model = "MODEL"
text = "ab cab"
destination = "ab"
heads = ["L1H3"]
show = ["attention", "predictions"]
[view.attention]
show = "scores"
[values.loss]
analysis = "token_loss"
read = "mean"
[values.rise]
analysis = "token_loss"
cut = ["L0H1"]
read = "mean"
minus = "loss"
format = "+.4f"
[values.next]
analysis = "predictions"
read = "ids[0]"
format = "token"
[values.wrong]
analysis = "token_loss"
read = "loss[99]"
```

Loss {loss}, {rise}, then {next}, {wrong}; `code {loss}`; [L0H2](head:L0H2) [there](panel:heads) [out](https://example.org/a).

## Second, talk

Nothing is set.

## Third

```circuitlab
text = "xyz"
show = ["heads"]
```

Words.

## Fourth

```circuitlab
model = "MODEL-none"
```

Words.
"""


@pytest.fixture
def own(window: Window) -> Lesson:
    """A lesson of the person's own on the model that is open."""
    source = window.context.document.state.model.source.removeprefix("file:")
    place = paths.config_home() / "lessons"
    place.mkdir(parents=True)
    (place / "mine.md").write_text(OWN.replace("MODEL", source), encoding="utf-8")
    window.context.failed.disconnect(window.dialogs.show_error)
    window.lessons.open()
    window.lessons.fill()
    return window.lessons.list.lessons[-1]


def test_a_lesson_is_begun_from_the_list_and_left_as_if_it_had_not_been(qtbot: Any, window: Window, own: Lesson) -> None:
    lessons, document, tour = window.lessons, window.context.document, window.lessons.tour
    before, docks_before = document.recorded, docks_on_screen(window)
    assert own.title == "Mine" and lessons.pages.currentIndex() == 0 and "lessons" in docks_before
    lessons.list.setCurrentRow(len(lessons.list.lessons) - 1)
    qtbot.keyClick(lessons.list, Qt.Key.Key_Return)
    settle(qtbot, window)
    assert lessons.pages.currentIndex() == 1 and docks_on_screen(window) == {"prompt", "attention", "predictions", "lessons"}
    assert window.width() == 1280, "beside a lesson there is room for its panels"
    state = document.recorded
    assert (state.text, state.selection.heads, state.selection.destination) == ("ab cab", (Head(1, 3),), 6)
    assert state.view("attention", panels()["attention"].view).show == "scores"
    window.lessons.page.next.click()
    settle(qtbot, window)
    assert document.recorded.text == "ab cab" and tour.number == 1, "a step without a block leaves the window alone"
    qtbot.keyClick(window, Qt.Key.Key_PageDown, Qt.KeyboardModifier.AltModifier)
    settle(qtbot, window)
    assert document.recorded.text == "xyz" and docks_on_screen(window) == {"prompt", "heads", "lessons"}
    document.undo()
    assert document.recorded.text == "ab cab", "a step of a lesson is one step of undo"
    window.lessons.page.again.click()
    settle(qtbot, window)
    assert document.recorded.text == "xyz"
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert tour.number == 2
    window.lessons.page.leave.click()
    settle(qtbot, window)
    assert document.recorded == before and not window.can_undo, "undo does not lead into the lesson"
    assert docks_on_screen(window) == docks_before and lessons.pages.currentIndex() == 0
    assert "3" in lessons.list.item(len(lessons.list.lessons) - 1).text()
    lessons.begin_named("mine")
    settle(qtbot, window)
    assert tour.number == 2 and document.recorded.text == "xyz", "it goes on where it was left"


def test_numbers_come_from_the_engine_and_say_when_they_do_not(qtbot: Any, window: Window, own: Lesson) -> None:
    window.lessons.begin(own)
    assert "Loss …, …" in window.lessons.page.text.toPlainText()
    settle(qtbot, window)
    context, said = window.context, window.lessons.tour.value_texts
    ask = lambda state: context.engine.answer(replace(request, subject=state)).result.mean
    request, state = window.lessons.tour.ready.requests["loss"][1], context.document.recorded
    loss, cut = ask(state.subject), ask(replace(state.subject, edits=window.lessons.tour.ready.requests["rise"][1].subject.edits))
    assert said["loss"] == f"{loss:.2f}" and said["rise"] == f"{cut - loss:+.4f}".replace("-", "−") and cut != loss
    text = window.lessons.page.text
    assert said["wrong"] == not_computed("wrong") and not_computed("wrong") in text.toPlainText(), "as in a report"
    assert why_not_computed("wrong", "") in window.lessons.page.warning.text() and window.lessons.page.warning.isVisible()
    assert f"Loss {said['loss']}, {said['rise']}" in text.toPlainText() and f"code {said['loss']}" in text.toPlainText()
    cursor = text.document().find(said["loss"])
    assert cursor.charFormat().anchorHref() == "value:loss" and "token_loss" in cursor.charFormat().toolTip()
    assert cursor.charFormat().underlineStyle() == QTextCharFormat.UnderlineStyle.DotLine


LATE = """+++
title = "Late"
about = "A number that takes long."
minutes = 1
+++

## First

```circuitlab
model = "MODEL"
text = "ab cab"
heads = ["L1H3"]
show = ["attention"]
[values.copying]
analysis = "copying_scores"
set = { qk = false }
read = "copying[L1H3]"
```

It is {copying}.

## Second

```circuitlab
text = "xyz"
```

Words.
"""


def test_a_number_that_comes_late_is_there_when_one_comes_back_to_its_step(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is left while its number is computed: that goes on, and is begun once."""
    context, tour, gate, begun = window.context, window.lessons.tour, threading.Event(), list[Any]()
    (tmp_path / "late.md").write_text(LATE.replace("MODEL", context.document.state.model.source), encoding="utf-8")
    answer = context.engine.answer

    def held(request: Any, ctx: Any, **more: Any) -> Any:
        if request.analysis.name == "copying_scores":
            begun.append(request)
            while not gate.wait(0.01):
                ctx.tick(0, 1)
        return answer(request, ctx, **more)

    monkeypatch.setattr(context.engine, "answer", held)
    window.lessons.begin(read(tmp_path / "late.md"))
    qtbot.waitUntil(lambda: len(begun) == 1)
    tour.next()
    qtbot.waitUntil(lambda: context.document.recorded.text == "xyz")
    gate.set()
    settle(qtbot, window)
    assert tour.number == 1 and context.engine.cached(begun[0]) is not None
    tour.back()
    settle(qtbot, window)
    copying = context.engine.cached(begun[0]).result.copying[1, 3]
    assert tour.value_texts == {"copying": f"{copying:.2f}".replace("-", "−")} and len(begun) == 1
    tour.leave()
    settle(qtbot, window)


def test_links_point_into_the_window_and_none_leaves_it_unasked(
    qtbot: Any, window: Window, own: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.lessons.begin(own)
    settle(qtbot, window)
    asked: list[str] = []
    went: list[str] = []
    monkeypatch.setattr(links.QDesktopServices, "openUrl", lambda url: went.append(url.toString()))
    answers = [False, True]
    monkeypatch.setattr(links, "confirmed", lambda parent, title, text: (asked.append(text), answers.pop(0))[1])
    text = window.lessons.page.text
    out, nowhere = "https://example.org/a", ("head:nonsense", "head:L9H9", "checkpoint:5")
    for href in ("head:L0H2", "panel:heads", out, out, *nowhere):
        text.anchorClicked.emit(href)
    settle(qtbot, window)
    assert window.context.document.recorded.selection.heads == (Head(0, 2),) and on_screen(window.docks["heads"])
    assert len(asked) == 2 and "https://example.org/a" in asked[0] and went == ["https://example.org/a"]


def test_what_cannot_be_set_up_is_said_and_walked_past(qtbot: Any, window: Window, own: Lesson) -> None:
    window.lessons.tour.start(own, 3)
    settle(qtbot, window)
    page = window.lessons.page
    assert not page.warning.isHidden() and page.warning.text()
    window.lessons.tour.back()
    settle(qtbot, window)
    assert page.warning.isHidden() and window.context.document.recorded.text == "xyz"
    window.lessons.tour.go(3)
    page.dots.chosen.emit(0)
    settle(qtbot, window)
    assert window.lessons.tour.number == 0 and window.context.document.recorded.text == "ab cab"


def test_the_page_says_when_the_window_shows_something_else_than_its_numbers(qtbot: Any, window: Window, own: Lesson) -> None:
    window.lessons.begin(own)
    settle(qtbot, window)
    page, document = window.lessons.page, window.context.document
    assert page.stray.isHidden()
    document.apply(document.recorded.select(heads=(Head(0, 2),)), "look at another head")
    assert page.stray.isHidden(), "another head is looked at, the numbers are of the same run"
    window.prompt.editor.setPlainText("other text")
    settle(qtbot, window)
    assert page.stray.isVisible()
    page.again.click()
    settle(qtbot, window)
    assert page.stray.isHidden() and document.recorded.text == "ab cab"


def test_lessons_are_opened_and_chosen_by_keys_alone(qtbot: Any, window: Window, own: Lesson) -> None:
    lessons = window.lessons
    lessons.close()
    window.activateWindow()
    qtbot.keyClick(window, Qt.Key.Key_F2)
    assert on_screen(lessons) and window.focusWidget() is lessons.list
    qtbot.keyClick(lessons.list, Qt.Key.Key_End)
    qtbot.keyClick(lessons.list, Qt.Key.Key_Return)
    settle(qtbot, window)
    assert lessons.tour.lesson is own
    qtbot.keyClick(window, Qt.Key.Key_F2)
    assert window.focusWidget() is lessons.page.text, "the keys scroll, and Tab goes from link to link"
    qtbot.keyClick(window.focusWidget(), Qt.Key.Key_PageDown, Qt.KeyboardModifier.AltModifier)
    settle(qtbot, window)
    assert lessons.tour.number == 1


def test_an_arrangement_of_the_window_leaves_the_lesson_its_column(qtbot: Any, window: Window, own: Lesson) -> None:
    window.lessons.begin(own)
    settle(qtbot, window)
    for name in ARRANGEMENTS:
        window.layout_of_docks.arrange(name)
        settle(qtbot, window)
        assert on_screen(window.lessons) and "prompt" in docks_on_screen(window) and len(docks_on_screen(window)) > 3
    window.lessons.tour.go(2)
    settle(qtbot, window)
    assert docks_on_screen(window) == {"prompt", "heads", "lessons"}


def test_every_lesson_stands_in_the_menu_and_the_palette(window: Window) -> None:
    titles = [lesson.title for lesson in window.lessons.list.lessons] or [read(path).title for path in SHIPPED.values()]
    assert [a.text() for a in window.menus.lessons] == [f"Lesson: {title}" for title in titles]


def test_no_lesson_is_parsed_on_the_thread_of_the_window(
    qtbot: Any, small: None, opened: Callable[[], Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    parse = lesson_module.parse
    monkeypatch.setattr(lesson_module, "parse", lambda *said: (threads.append(threading.current_thread()), parse(*said))[1])
    lesson_module._parsed.cache_clear()
    window = opened()
    assert len(window.menus.lessons) == len(SHIPPED) and not threads, "the menu has their titles"
    window.lessons.open()
    settle(qtbot, window)
    assert window.lessons.list.count() == len(SHIPPED)
    assert len(threads) == len(SHIPPED) and threading.main_thread() not in threads


def test_the_first_start_shows_the_lessons(qtbot: Any, small: None) -> None:
    made = gui.make_window(None, "one two")
    made.resize(1280, 800)
    made.show()
    settle(qtbot, made)
    assert on_screen(made.lessons) and made.lessons.list.count() == len(SHIPPED)
    made.layout_of_docks.go_to("predictions")
    made.close()
    made.deleteLater()
    second = gui.make_window(None, "one two")
    second.show()
    settle(qtbot, second)
    assert not on_screen(second.lessons), "from then on the layout is the person's own"
    second.close()
    second.deleteLater()
