"""One's own story in the window: kept, worded, ordered, walked and left; everything is taken back by undo."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QApplication, QTabBar

from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.lessons.session_part import LEAST
from circuitlab.gui.panel.panel_dock import on_screen
from circuitlab.gui.shell.window import Window
from circuitlab.lessons.lesson import Lesson
from circuitlab.model.subject import Head
from circuitlab.session_files.session import Note
from circuitlab.state.state import State
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Encoded, Setup
from circuitlab.story.story import Step, Story
from tests.gui.driving import dock, docks_on_screen, settle

CTRL = Qt.KeyboardModifier.ControlModifier


def keep(qtbot: Any, window: Window, *heads: Head) -> Step:
    """The view as a step, by its key."""
    if heads:
        window.context.apply(window.context.document.recorded.with_heads(*heads), "select")
        settle(qtbot, window)
    before = len(window.lessons.own.story.steps)
    qtbot.keyClick(window, Qt.Key.Key_K, CTRL)
    settle(qtbot, window)
    assert len(window.lessons.own.story.steps) == before + 1
    return window.lessons.own.story.steps[-1]


def states(window: Window) -> list[State]:
    """What each step shows."""
    work, views = window.context.document.work, view_types()
    models = {name: entry.ref for name, entry in work.models.items()}
    resolver = Resolver(window.context.engine, views, State(window.context.document.recorded.model), None, models, tolerant=True)
    return [resolver.state(work.story.setup(number)) for number in range(len(work.story.steps))]


def tabs(window: Window) -> list[list[str]]:
    """The tabs of each place that has some."""
    bars = [bar for bar in window.findChildren(QTabBar) if bar.isVisible() and bar.count()]
    return sorted([bar.tabText(i) for i in range(bar.count())] for bar in bars)


def titles(window: Window) -> list[str]:
    return [step.title for step in window.lessons.own.story.steps]


@pytest.fixture
def told(qtbot: Any, window: Window) -> Window:
    """A window whose story has three steps, of three heads; the story is listed."""
    for i in range(3):
        keep(qtbot, window, Head(1, i))
    window.context.apply(window.context.document.recorded.with_heads(Head(0, 0)), "select")
    window.lessons.open()
    settle(qtbot, window)
    return window


def test_what_the_dock_does_not_show_asks_for_no_room(qtbot: Any, told: Window) -> None:
    lessons = told.lessons
    least = lambda: lessons.pages.minimumSizeHint().height()
    assert least() == lessons.front.minimumSizeHint().height() < lessons.page.minimumSizeHint().height()
    lessons.begin_own(0)
    settle(qtbot, told)
    assert least() == lessons.page.minimumSizeHint().height()
    lessons.tour.leave()
    settle(qtbot, told)
    assert least() == lessons.front.minimumSizeHint().height()
    assert told.minimumSizeHint().height() <= 720 and told.height() <= 800


def test_a_view_is_kept_by_a_key_under_the_title_of_its_figure(qtbot: Any, window: Window) -> None:
    document, lessons = window.context.document, window.lessons
    lessons.open()
    settle(qtbot, window)
    part = lessons.session
    assert "Ctrl+K" in part.empty.text() and part.empty.isVisible() and not part.steps.isVisible()
    window.layout_of_docks.go_to("attention")
    settle(qtbot, window)
    step = keep(qtbot, window, Head(1, 2))
    title = dock(window, "attention").view.figure.title
    assert step.title and title.startswith(step.title) and "L1H2" in step.title
    assert step.setup is not None and step.setup.arrange == "Explore" and step.setup.show[-1] == "attention"
    assert states(window) == [document.recorded]
    assert lessons.session.steps.count() == 1 and not lessons.session.empty.isVisible()
    assert window.isWindowModified() and window.windowTitle().startswith("Untitled[*] · "), "it is in no file"
    assert document.work.models[step.setup.model or ""].ref == document.recorded.model
    second = keep(qtbot, window, Head(0, 1))
    assert second.setup == Setup(heads=("L0H1",)), "said once: only the head is another"
    window.undo()
    window.undo()
    window.undo()
    assert document.work.story == Story() and document.work.models == {}
    assert not window.isWindowModified() and "Untitled" not in window.windowTitle()
    window.redo()
    assert titles(window) == [step.title] and lessons.session.steps.isVisible()


def test_a_step_is_called_by_its_figure_and_the_side_of_a_comparison(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("attention")
    window.state_commands.pin()
    window.state_commands.ablate()
    settle(qtbot, window)
    names = []
    for _ in range(3):
        names.append(keep(qtbot, window).title)
        window.state_commands.next_compare()
        settle(qtbot, window)
    now, reference, difference = names
    plain = now.removesuffix(" · L0H0 zeroed")
    assert now.startswith("L0H0 · ") and plain != now, "what is ablated is named, in the words of titles"
    assert (reference, difference) == (f"{plain} · reference", f"{now} · difference")


def test_steps_of_the_same_figure_are_told_apart(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("attention")
    settle(qtbot, window)
    first = keep(qtbot, window).title
    context = window.context
    context.apply(context.document.recorded.select(destination=3, locked=True), "select")
    settle(qtbot, window)
    proposed = [first, *(keep(qtbot, window).title for _ in range(3))]
    assert proposed == titles(window) and len(set(proposed)) == 4 and proposed[1].endswith("position 3")
    assert all(title.startswith(first) for title in proposed)


def test_a_step_with_a_film_says_so_in_the_list(qtbot: Any, window: Window) -> None:
    steps = (Step("One", "Look.", Setup(play=(0, "final"))), Step("Two", "Look."))
    window.context.document.edit(replace(window.context.document.work, story=Story("", steps)), "tell")
    window.lessons.open()
    settle(qtbot, window)
    rows = window.lessons.session.steps
    assert ["film" in " ".join(part.text for part in rows.paragraphs(row)) for row in (0, 1)] == [True, False]
    assert ["film" in rows.item(row).text() for row in (0, 1)] == [True, False], "to a screen reader, too"


def test_a_view_is_kept_while_one_types(qtbot: Any, window: Window) -> None:
    window.prompt.editor.setFocus()
    window.prompt.editor.setPlainText("two two one")
    qtbot.keyClick(window.prompt.editor, Qt.Key.Key_K, CTRL)
    settle(qtbot, window)
    (state,) = states(window)
    assert state.text == "two two one" == window.context.document.recorded.text, "with what has just been typed"


def test_views_kept_in_quick_succession_are_all_kept(qtbot: Any, window: Window) -> None:
    for i in range(4):
        window.context.apply(window.context.document.recorded.with_heads(Head(0, i)), "select")
        window.lessons.own_steps.keep_view()
    settle(qtbot, window)
    assert [state.selection.head for state in states(window)] == [Head(0, i) for i in range(4)]


def test_ones_own_story_is_walked_and_left_as_if_it_had_not_been(qtbot: Any, told: Window) -> None:
    document, lessons, before, docks = told.context.document, told.lessons, told.context.document.recorded, docks_on_screen(told)
    label, tabs_before = document.undo_label, tabs(told)
    lessons.session.steps.setCurrentRow(1)
    lessons.session.steps.setFocus()
    qtbot.keyClick(lessons.session.steps, Qt.Key.Key_Return)
    settle(qtbot, told)
    page = lessons.page
    assert document.recorded.selection.head == Head(1, 1) and lessons.tour.own and lessons.pages.currentIndex() == 1
    assert page.editor.title.text() == titles(told)[1] and page.editor.title.isVisible() and not page.heading.isVisible()
    page.next.click()
    settle(qtbot, told)
    assert document.recorded.selection.head == Head(1, 2)
    assert {"overview", "attention", "predictions", "lessons"} <= docks_on_screen(told)
    page.leave.click()
    settle(qtbot, told)
    assert document.recorded == before and docks_on_screen(told) == docks and document.undo_label == label
    assert tabs(told) == tabs_before


def test_stay_here_keeps_what_is_shown(qtbot: Any, told: Window) -> None:
    document, before = told.context.document, told.context.document.recorded
    told.lessons.begin_own(0)
    settle(qtbot, told)
    told.lessons.page.next.click()
    settle(qtbot, told)
    docks = docks_on_screen(told)
    told.lessons.page.stay.click()
    settle(qtbot, told)
    assert document.recorded.selection.head == Head(1, 1) and told.lessons.tour.lesson is None
    assert docks_on_screen(told) == docks and told.lessons.pages.currentIndex() == 0
    told.undo()
    assert document.recorded == before, "one step of undo, however far one has walked"


def test_a_title_that_is_left_shows_its_beginning(qtbot: Any, told: Window) -> None:
    """The caret says which end of a line that is too long is seen; where one only looks elsewhere for a moment, it stays."""
    told.lessons.begin_own(0)
    settle(qtbot, told)
    editor = told.lessons.page.editor
    editor.title.setFocus()
    editor.title.selectAll()
    qtbot.keyClicks(editor.title, "A title " * 30)
    seen = lambda: editor.title.grab().toImage()
    end, n = seen(), len(editor.title.text())
    for reason in (Qt.FocusReason.PopupFocusReason, Qt.FocusReason.ActiveWindowFocusReason):
        QApplication.sendEvent(editor.title, QFocusEvent(QEvent.Type.FocusOut, reason))
        assert editor.title.cursorPosition() == n
    editor.title.setFocus()
    editor.text.setFocus()
    assert editor.title.cursorPosition() == 0 and seen() != end
    assert told.lessons.own.story.steps[0].title.startswith("A title A title")


def test_words_are_typed_under_a_view_and_taken_back(qtbot: Any, told: Window) -> None:
    document, own, editor = told.context.document, told.lessons.own, told.lessons.page.editor
    told.lessons.begin_own(0)
    settle(qtbot, told)
    assert editor.editing and editor.text.isVisible(), "a step without words is shown with room for them"
    qtbot.keyClicks(editor.text, "It looks **back**.")
    qtbot.keyClicks(editor.aside, "wait")
    editor.title.selectAll()
    qtbot.keyClicks(editor.title, "Look")
    step = own.story.steps[0]
    assert (step.title, step.text, step.aside) == ("Look", "It looks **back**.", "wait")
    for title, text, aside in (
        (titles(told)[0], "It looks **back**.", "wait"),
        (None, "It looks **back**.", "wait"),
        (None, "It looks **back**.", ""),
        (None, "", ""),
    ):
        step = own.story.steps[0]
        assert (step.text, step.aside) == (text, aside) and title in (None, step.title)
        assert (editor.text.toPlainText(), editor.aside.toPlainText(), editor.title.text()) == (text, aside, step.title)
        qtbot.keyClick(editor.text, Qt.Key.Key_Z, CTRL)
    for _ in range(3):
        qtbot.keyClick(editor.text, Qt.Key.Key_Z, CTRL | Qt.KeyboardModifier.ShiftModifier)
    assert own.story.steps[0].text == "It looks **back**."
    editor.edit.click()
    page = told.lessons.page
    assert page.text.isVisible() and page.text.toPlainText() == "It looks back." and "wait" in editor.aside_shown.text()
    page.leave.click()
    settle(qtbot, told)
    assert own.story.steps[0].text == "It looks **back**.", "leaving brings back the view, not the words"
    told.undo()
    step = own.story.steps[0]
    assert (step.text, step.aside) == ("It looks **back**.", ""), "and they can still be undone one by one"
    assert document.recorded.selection.head == Head(0, 0)


def test_steps_are_moved_and_deleted_and_the_others_show_what_they_did(qtbot: Any, told: Window) -> None:
    heads = lambda: [state.selection.head.head for state in states(told)]
    tour, editor = told.lessons.tour, told.lessons.page.editor
    told.lessons.begin_own(0)
    settle(qtbot, told)
    assert not editor.up.isEnabled() and editor.down.isEnabled()
    editor.down.click()
    assert heads() == [1, 0, 2] and tour.number == 1
    editor.down.click()
    assert heads() == [1, 2, 0] and tour.number == 2 and not editor.down.isEnabled()
    told.undo()
    assert heads() == [1, 0, 2] and tour.number == 1
    editor.delete.click()
    settle(qtbot, told)
    assert heads() == [1, 2] and tour.number == 1 and told.context.document.recorded.selection.head == Head(1, 2)
    told.undo()
    settle(qtbot, told)
    assert heads() == [1, 0, 2] and tour.number == 1 and told.context.document.recorded.selection.head == Head(1, 0)
    for _ in range(3):
        editor.delete.click()
        settle(qtbot, told)
    assert heads() == [] and tour.lesson is None and told.lessons.pages.currentIndex() == 0
    assert told.context.document.recorded.selection.head == Head(0, 0)
    told.undo()
    assert len(heads()) == 1


def test_a_step_takes_what_the_window_shows(qtbot: Any, told: Window) -> None:
    lessons = told.lessons
    lessons.begin_own(1)
    settle(qtbot, told)
    told.prompt.editor.setPlainText("two one")
    told.context.apply(told.context.document.recorded.with_heads(Head(0, 3)), "select")
    lessons.page.editor.take.click()
    settle(qtbot, told)
    assert [state.selection.head for state in states(told)] == [Head(1, 0), Head(0, 3), Head(1, 2)]
    first, second, third = (state.text for state in states(told))
    assert first == third != "two one" == second
    assert not lessons.tour.strayed and lessons.tour.number == 1
    keep(qtbot, told, Head(0, 2))
    assert lessons.tour.number == 2 and [s.selection.head for s in states(told)][2] == Head(0, 2), "behind the step one stands at"
    told.undo()
    assert lessons.tour.number == 1


def test_a_maximised_panel_is_kept_alone(qtbot: Any, told: Window) -> None:
    told.layout_of_docks.go_to("overview")
    told.toggle_maximised()
    settle(qtbot, told)
    step = keep(qtbot, told)
    assert step.setup is not None and (step.setup.show, step.setup.alone) == (("overview",), True)
    told.toggle_maximised()
    told.lessons.begin_own(3)
    settle(qtbot, told)
    assert docks_on_screen(told) == {"prompt", "overview", "lessons"}
    told.lessons.tour.leave()
    settle(qtbot, told)
    for name in ("lessons", "prompt"):
        told.toggle_maximised(told.docks[name])
        settle(qtbot, told)
        step = keep(qtbot, told)
        assert step.setup is not None and not step.setup.alone, "what is no panel is nothing to look at"
        told.toggle_maximised()
        told.lessons.begin_own(len(titles(told)) - 1)
        settle(qtbot, told)
        assert {"prompt", "attention", "lessons"} <= docks_on_screen(told)
        told.lessons.tour.leave()
        settle(qtbot, told)


def test_a_view_of_a_lesson_is_kept_in_the_session(qtbot: Any, window: Window) -> None:
    model = window.context.document.recorded.model.source.removeprefix("file:")
    setup = Setup(model=model, prompt="one two", heads=("L1H3",), show=("attention",))
    window.lessons.begin(Lesson("A lesson", (Step("One", "Words.", setup), Step("Two")), name="a"))
    settle(qtbot, window)
    keep(qtbot, window)
    assert window.lessons.tour.number == 0 and not window.lessons.tour.own, "the lesson goes on"
    assert not window.lessons.page.editor.title.isVisible() and not window.lessons.page.editor.tools.isVisible()
    assert states(window)[0].text == "one two"
    window.lessons.tour.leave()
    settle(qtbot, window)
    assert len(window.lessons.own.story.steps) == 1


def test_tokens_that_are_not_those_of_their_text_are_said(qtbot: Any, told: Window) -> None:
    document = told.context.document
    state = document.recorded
    wrong = Encoded(state.text, state.tokens[:-1])
    model = told.lessons.own.story.steps[0].setup
    assert model is not None
    story = Story("", (Step("Kept", "Words.", replace(model, prompt=wrong)), *told.lessons.own.story.steps[1:]))
    document.edit(replace(document.work, story=story), "another tokenizer")
    told.lessons.begin_own(0)
    settle(qtbot, told)
    warning = told.lessons.page.warning
    assert warning.isVisible() and str(len(state.tokens)) in warning.text() and str(len(wrong.ids)) in warning.text()
    assert document.recorded.tokens == wrong.ids


def test_a_model_that_is_gone_is_said_and_its_step_can_be_deleted(qtbot: Any, told: Window) -> None:
    document, story = told.context.document, told.lessons.own.story
    told.context.failed.disconnect(told.dialogs.show_error)
    first = story.steps[0].setup
    assert first is not None
    gone = replace(story, steps=(replace(story.steps[0], setup=replace(first, model="gone")), *story.steps[1:]))
    document.edit(replace(document.work, story=gone), "gone")
    told.lessons.begin_own(0)
    settle(qtbot, told)
    assert told.lessons.page.warning.isVisible() and "gone" in told.lessons.page.warning.text()
    told.lessons.page.editor.delete.click()
    settle(qtbot, told)
    assert len(told.lessons.own.story.steps) == 2 and told.lessons.own.story.setup(1).model == "gone"


def test_notes_are_listed_and_lead_to_what_they_are_about(qtbot: Any, window: Window) -> None:
    context, part = window.context, window.lessons.session
    window.lessons.open()
    ref = context.document.recorded.model
    notes = context.notes
    notes.write(notes.on_model(ref, Note("", head="L1H3")), "copies", ref)
    notes.write(Note("", panel="spectra"), "a panel")
    notes.write(notes.token(ref, context.document.recorded.tokens[2]), "a token", ref)
    settle(qtbot, window)
    assert part.notes.isVisible() and part.notes.count() == 3 and part.notes_title.isVisible() and not part.empty.isVisible()
    part.notes.itemClicked.emit(part.notes.item(0))
    assert context.document.recorded.selection.head == Head(1, 3)
    part.notes.itemClicked.emit(part.notes.item(1))
    settle(qtbot, window)
    assert on_screen(window.docks["spectra"])
    part.notes.itemClicked.emit(part.notes.item(2))
    at = context.document.recorded.selection.destination
    assert at is not None and context.document.recorded.tokens[at] == context.document.recorded.tokens[2]
    window.lessons.open()
    part.notes.setCurrentRow(1)
    part.notes.setFocus()
    qtbot.keyClick(part.notes, Qt.Key.Key_Delete)
    assert part.notes.count() == 2 and len(context.document.work.notes) == 2
    window.undo()
    assert part.notes.count() == 3


def test_a_story_is_walked_again_after_it_was_saved_and_opened(qtbot: Any, told: Window, tmp_path: Path) -> None:
    told.lessons.own.reword(1, "text", "Words.")
    before, path = (told.lessons.own.story, states(told)), tmp_path / "talk.circuitlab"
    told.context.notes.write(Note(""), "of the session")
    told.lessons.begin_own(1)
    settle(qtbot, told)
    told.sessions.save_to(path)
    settle(qtbot, told)
    told.lessons.tour.leave()
    settle(qtbot, told)
    assert not told.sessions.dirty, "a walk changes nothing"
    told.sessions.open(path)
    settle(qtbot, told)
    assert told.lessons.session.steps.count() == 3 and told.lessons.session.notes.count() == 1
    assert (told.lessons.own.story, states(told)) == before
    told.lessons.begin_own(1)
    settle(qtbot, told)
    assert told.context.document.recorded.selection.head == Head(1, 1) and not told.lessons.page.warning.isVisible()
    assert told.lessons.page.text.toPlainText() == "Words."
    told.sessions.open(path)
    settle(qtbot, told)
    assert told.lessons.tour.lesson is None and told.context.document.recorded.selection.head == Head(0, 0)


@pytest.mark.slow
def test_two_hundred_random_edits_leave_a_story_that_stands(qtbot: Any, told: Window) -> None:
    rng, lessons, context, steps = random.Random(7), told.lessons, told.context, told.lessons.own_steps
    texts = ("one two one two one", "two two one", "one one")

    def look() -> None:
        state = context.document.recorded
        if rng.random() < 0.3:
            text = rng.choice(texts)
            tokens = context.engine.store.open(state.model).opened.weights.tokenizer.encode(text, state.bos)  # type: ignore[union-attr]
            state = state.with_text(text, tokens)
        if rng.random() < 0.3:
            state = state.with_edge(Head(0, rng.randrange(4)), Head(1, rng.randrange(4)), "K")
        else:
            state = state.with_heads(Head(rng.randrange(2), rng.randrange(4)))
        if rng.random() < 0.5:
            state = state.select(destination=rng.randrange(len(state.tokens)), locked=True)
        context.apply(state, "look")

    def walk() -> None:
        if lessons.tour.lesson is None:
            if lessons.own.story.steps:
                lessons.begin_own(rng.randrange(len(lessons.own.story.steps)))
        else:
            rng.choice([lessons.tour.next, lessons.tour.back, lessons.tour.leave, lessons.tour.stay])()

    def word() -> None:
        if lessons.tour.own:
            lessons.own.reword(lessons.tour.number, rng.choice(["title", "text", "aside"]), str(rng.random()))

    acts: list[Callable[[], object]] = [look, look, walk, walk, word, steps.keep_view, steps.take_view, steps.delete]
    acts += [lambda: steps.move(rng.choice([-1, 1])), told.undo, told.undo, told.redo, told.state_commands.ablate]
    for number in range(200):
        rng.choice(acts)()
        QApplication.processEvents()
        if number % 3 == 0:
            settle(qtbot, told)
    settle(qtbot, told)
    assert len(states(told)) == len(lessons.own.story.steps)
    lessons.tour.leave()
    settle(qtbot, told)
    while told.can_undo:
        told.undo()
        assert len(states(told)) == len(lessons.own.story.steps), "nor does undo reach one that does not stand"
    settle(qtbot, told)
    assert lessons.own.story == Story()


def test_many_steps_and_notes_give_way_in_a_low_dock(qtbot: Any, window: Window) -> None:
    work = window.context.document.work
    steps = tuple(Step(f"Step {i}", "A line of text.", Setup(show=("attention",))) for i in range(12))
    notes = tuple(Note(f"note {i}", head=f"L0H{i}") for i in range(6))
    window.context.document.edit(replace(work, story=Story("", steps), notes=notes), "tell")
    window.lessons.open()
    settle(qtbot, window)
    session = window.lessons.session
    high = session.steps.height()
    assert high > 150
    window.layout_of_docks.arrange("Training")  # where its stack is low
    window.lessons.open()
    settle(qtbot, window)
    assert session.minimumSizeHint().height() < high, "what was once high must not stay so"
    assert LEAST <= session.steps.height() < high and session.notes.height() >= LEAST
    assert window.height() < 900
