"""A session is saved, changed, closed and opened in the real window: the same State, and never anything lost unasked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QByteArray, QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QMenu, QMessageBox
from safetensors.torch import load_file, save_file

from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, BadMachine, BadModel
from circuitlab.figures.panels.induction.panel import InductionView
from circuitlab.figures.panels.term_importance import TermImportanceView
from circuitlab.gui.places import saved_layout
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.places.dock_sizes import Sizes
from circuitlab.gui.places.saved_layout import SavedLayout, layout_from_text, layout_to_text
from circuitlab.gui.sessions.file_work import Searcher, previous_path
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.main import make_window
from circuitlab.gui.shell.window import Window
from circuitlab.lessons.lesson import Lesson
from circuitlab.model.subject import ModelRef
from circuitlab.state.state import State
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step
from tests.gui.driving import answer_questions, dock, go, save, settle, shown_window, work_on
from tests.models import directory
from tests.patience import SECONDS

Answer = Callable[[QMessageBox.StandardButton], list[str]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Answers the questions that come from now on, and lists them."""
    questions: list[str] = []
    return lambda button: answer_questions(monkeypatch, button, questions)


def open_session(qtbot: Any, window: Window, path: Path) -> None:
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.open(path)
    settle(qtbot, window)


def test_a_session_comes_back_in_another_window(qtbot: Any, window: Window, tmp_path: Path) -> None:
    work_on(window)
    settle(qtbot, window)
    path = tmp_path / "talk.circuitlab"
    table = save(qtbot, window, path)
    assert table["now"]["text"] == "ab cab ab" and [m["path"] for m in table["models"].values()] == ["model"]
    title = f"talk[*] · {window.context.document.recorded.model.name} · CircuitLab"
    assert window.windowTitle() == title and not window.isWindowModified()
    state = window.context.document.recorded
    window.sessions.hold.release()  # as when it is closed
    with shown_window(qtbot, directory(tmp_path / "other")) as second:
        open_session(qtbot, second, path)
        assert second.context.document.recorded == state and second.prompt.editor.toPlainText() == "ab cab ab"
        assert second.windowTitle() == title and not second.isWindowModified()
        assert not second.context.document.undo_label
        assert save(qtbot, second, tmp_path / "again.circuitlab") | {"docks": ""} == table | {"docks": ""}
    settle(qtbot, window)


def test_undo_back_to_what_was_saved_takes_the_mark_away(qtbot: Any, window: Window, tmp_path: Path) -> None:
    save(qtbot, window, tmp_path / "talk.circuitlab")
    go(window, "ablate")
    assert window.isWindowModified()
    go(window, "undo")
    assert not window.isWindowModified()
    go(window, "redo")
    assert window.isWindowModified()
    save(qtbot, window, tmp_path / "talk.circuitlab")
    assert not window.isWindowModified()
    go(window, "undo")
    assert window.isWindowModified()
    window.sessions.save()
    qtbot.waitUntil(lambda: not window.isWindowModified())
    settle(qtbot, window)


def test_the_generation_before_is_kept(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    first = path.read_bytes()
    go(window, "ablate")
    save(qtbot, window, path)
    assert previous_path(path).read_bytes() == first != path.read_bytes()
    window.sessions.save()
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    assert previous_path(path).read_bytes() == first, "the same once more is no new generation"


def test_saves_are_written_in_their_order(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path, other = tmp_path / "talk.circuitlab", tmp_path / "other.circuitlab"
    order: list[str] = []
    window.sessions.save_to(path, lambda: order.append("first"))
    go(window, "ablate")
    window.sessions.save_to(other)
    go(window, "undo")
    window.sessions.save_to(path)
    window.sessions.saves.after(lambda: order.append("all"))
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    assert sorted(order) == ["all", "first"] and window.sessions.path == path and not window.sessions.dirty
    tables = [json.loads(p.read_text("utf-8"))["now"] for p in (path, other)]
    assert ["cut" in table for table in tables] == [False, True]
    settle(qtbot, window)


BUTTONS = QMessageBox.StandardButton


def test_closing_asks_about_unsaved_changes(qtbot: Any, window: Window, tmp_path: Path, answer: Answer) -> None:
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    go(window, "ablate")
    asked = answer(BUTTONS.Cancel)
    assert not window.close() and window.isVisible() and len(asked) == 1 and "“talk”" in asked[0]
    answer(BUTTONS.Save)
    assert not window.close(), "it closes once the file is on disk"
    qtbot.waitUntil(lambda: not window.isVisible())
    assert json.loads(path.read_text("utf-8"))["now"]["cut"]


def test_what_is_discarded_stays_as_it_was_saved(qtbot: Any, window: Window, tmp_path: Path, answer: Answer) -> None:
    path = tmp_path / "talk.circuitlab"
    saved = save(qtbot, window, path)
    go(window, "ablate")
    asked = answer(BUTTONS.Discard)
    assert window.close() and len(asked) == 1 and json.loads(path.read_text("utf-8")) == saved


def test_a_close_waits_for_the_save_that_is_under_way(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    window.sessions.save_to(path)
    assert not window.close()
    qtbot.waitUntil(lambda: not window.isVisible())
    assert path.is_file()


def test_opening_and_beginning_anew_ask_first(qtbot: Any, window: Window, tmp_path: Path, answer: Answer) -> None:
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    go(window, "ablate")
    cut = window.context.document.recorded
    asked = answer(BUTTONS.Cancel)
    window.sessions.open(path)
    go(window, "new-session")
    assert len(asked) == 2 and window.context.document.recorded == cut
    answer(BUTTONS.Save)
    with qtbot.waitSignal(window.sessions.opened):
        go(window, "new-session")
    assert window.sessions.path is None and window.context.document.recorded.edits == () and not window.sessions.dirty
    assert json.loads(path.read_text("utf-8"))["now"]["cut"]
    go(window, "ablate")
    answer(BUTTONS.Discard)
    open_session(qtbot, window, path)
    assert window.context.document.recorded == cut and len(asked) == 4


def test_a_file_that_cannot_be_opened_changes_nothing(qtbot: Any, window: Window, tmp_path: Path) -> None:
    before, title = window.context.document.work, window.windowTitle()
    damaged = tmp_path / "damaged.circuitlab"
    damaged.write_text('{"circuitlab": "session", "version": 99, "by": "9.9"}')
    (picture := tmp_path / "nothing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    for path, of in ((damaged, "session"), (tmp_path / "gone.circuitlab", "session"), (picture, "picture")):
        with qtbot.waitSignal(window.context.failed) as failed:
            window.context.failed.disconnect(window.dialogs.show_error)
            window.sessions.open(path)
        window.context.failed.connect(window.dialogs.show_error)
        assert isinstance(failed.args[0], BadInput) and of in ErrorDialog(failed.args[0], window).windowTitle()
        assert window.context.document.work is before and window.windowTitle() == title and window.sessions.path is None


def test_a_save_that_fails_leaves_the_file_and_the_mark(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    before = path.read_bytes()
    go(window, "ablate")
    window.context.failed.disconnect(window.dialogs.show_error)
    with qtbot.waitSignal(window.context.failed) as failed:
        window.sessions.save_to(tmp_path / "no folder" / "talk.circuitlab")
    assert isinstance(failed.args[0], BadMachine) and path.read_bytes() == before
    assert window.sessions.path == path and window.isWindowModified()
    go(window, "undo")


def test_unknown_words_files_and_notes_are_written_back(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    table = save(qtbot, window, path)
    name = next(iter(table["models"]))
    (tmp_path / "names.tsv").write_bytes(b"names")
    more = {
        "files": {"names": {"path": "names.tsv", "sha256": hashlib.sha256(b"names").hexdigest(), "tomorrow": 1}},
        "notes": [{"model": name, "head": "L1H1", "text": "copies names", "tomorrow": [2]}],
        "story": {"title": "A talk", "steps": [{"title": "One", "set": {"heads": ["L0H1"], "tomorrow": 3}, "tomorrow": 4}]},
        "tomorrow": {"a": 5},
    }
    table = {**table, **more, "now": {**table["now"], "tomorrow": 6}}
    path.write_text(json.dumps(table))
    open_session(qtbot, window, path)
    go(window, "ablate")
    again = save(qtbot, window, path)
    assert again["now"].pop("cut") == ["L0H0"]
    for one in (again, table):
        one.pop("docks")
    assert again == table


def test_what_changes_while_a_save_is_under_way_stays_unsaved(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    window.sessions.save_to(path)
    go(window, "ablate")
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    assert window.isWindowModified() and "cut" not in json.loads(path.read_text("utf-8"))["now"]
    go(window, "undo")
    assert not window.isWindowModified()
    settle(qtbot, window)


def test_what_changes_while_another_session_is_read_is_asked_about(
    qtbot: Any, window: Window, tmp_path: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    read, stage = threading.Event(), Searcher.stage
    monkeypatch.setattr(Searcher, "stage", lambda searcher, path: (read.wait(SECONDS), stage(searcher, path))[1])
    window.sessions.open(path)
    go(window, "ablate")
    cut, asked = window.context.document.recorded, answer(BUTTONS.Cancel)
    read.set()
    qtbot.waitUntil(lambda: bool(asked))
    assert window.context.document.recorded == cut and window.isWindowModified()
    settle(qtbot, window)
    go(window, "undo")


def test_a_session_saved_during_a_lesson_is_as_it_was_before(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path, before = tmp_path / "talk.circuitlab", window.context.document.recorded
    front = set(window.layout_of_docks.sizes.in_front())
    save(qtbot, window, path)
    step = Step("One", setup=Setup(prompt="ab ab", heads=("L1H3",), show=("bigram",)))
    window.lessons.begin(Lesson("Mine", (step,), name="mine", path=path))
    qtbot.waitUntil(lambda: window.context.document.recorded.text == "ab ab")
    settle(qtbot, window)
    assert not window.isWindowModified()
    go(window, "ablate")
    window.sessions.save()
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    assert not window.isWindowModified()
    window.lessons.tour.leave()
    assert window.context.document.recorded == before and not window.isWindowModified()
    with shown_window(qtbot, path) as second:
        assert second.context.document.recorded == before
        assert set(second.layout_of_docks.sizes.in_front()) == front
    settle(qtbot, window)


def test_a_session_dropped_on_the_window_is_opened(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    with qtbot.waitSignal(window.sessions.opened):
        event = QDropEvent(
            QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
        )
        window.dropEvent(event)
    settle(qtbot, window)


def test_recent_sessions_stand_above_the_models(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "R & D.circuitlab"
    window.sessions.recent.remember = True
    save(qtbot, window, path)
    menu = QMenu()
    qtbot.addWidget(menu)
    window.opening.fill(menu)
    models = [action.text() for action in menu.actions()]
    window.sessions.recent.fill(menu)
    assert [action.text() for action in menu.actions()] == ["Sessions", "R && D", *models]
    with qtbot.waitSignal(window.sessions.opened):
        menu.actions()[1].trigger()
    settle(qtbot, window)


def test_a_window_on_a_session_of_the_command_line(qtbot: Any, window: Window, tmp_path: Path) -> None:
    work_on(window)
    window.layout_of_docks.arrange("Weights")
    settle(qtbot, window)
    path = tmp_path / "talk.circuitlab"
    save(qtbot, window, path)
    with shown_window(qtbot, path) as second:
        assert second.context.document.recorded == window.context.document.recorded
        assert second.layout_of_docks.name == "Weights" and second.sessions.path == path and not second.sessions.dirty
        front = {name: set(w.layout_of_docks.sizes.in_front()) for name, w in (("first", window), ("second", second))}
        assert front["first"] == front["second"]


def test_a_panel_alone_stays_alone_and_returns_to_the_others(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    front = set(window.layout_of_docks.sizes.in_front())
    window.resizeDocks([window.docks["attention"], window.docks["predictions"]], [300, 700], Qt.Orientation.Horizontal)
    settle(qtbot, window)
    wide = window.docks["predictions"].width()
    window.toggle_maximised(window.docks["attention"])
    settle(qtbot, window)
    table = save(qtbot, window, path)
    assert table["now"]["alone"] is True and table["now"]["show"] == ["attention"]
    for docks in (table["docks"], "", table["docks"][:-4]):
        path.write_text(json.dumps({**table, "docks": docks}))
        with shown_window(qtbot, path) as second:
            layout = second.layout_of_docks
            assert layout.maximised == "dock.attention" and set(layout.sizes.in_front()) == {"attention"}
            second.toggle_maximised()
            settle(qtbot, second)
            assert set(layout.sizes.in_front()) == front
            assert abs(second.docks["predictions"].width() - wide) < 20 or docks != table["docks"]
    settle(qtbot, window)


@pytest.mark.parametrize("words", [["talk.circuitlab"], ["open", "talk.circuitlab"]])
def test_the_command_line_opens_the_window_on_a_session(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("circuitlab.launch.open_or_render", lambda source: opened.append(source) or 0)
    assert main(words) == 0 and opened == ["talk.circuitlab"]
    assert main([*words, "--text", "a b"]) == 2 and len(opened) == 1


def test_a_layout_is_taken_from_nobody_else_and_only_unaltered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged state of Qt's crashes the process, so that the words of a session lay the window out instead."""
    layout = SavedLayout(QByteArray(b"state"), Sizes((1280, 800), {"attention": (3, 4)}), ARRANGEMENTS["Weights"], True, 5)
    text = layout_to_text(layout)
    assert layout_from_text(text) == layout
    signature, _, own = text.partition(":")
    for altered in ("", own, "nonsense", f"{signature}:{own[:-4]}", f"{'0' * 64}:{own}", f"{signature[:-1]}:{own}", "ü:ü"):
        assert layout_from_text(altered) is None
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody else"))
    monkeypatch.setattr(saved_layout, "_NEW_KEY", "another")
    assert layout_from_text(text) is None


# -- models that are not where they were ----------------------------------------------------------------------------------


@pytest.fixture
def moved(qtbot: Any, window: Window, tmp_path: Path) -> Path:
    """A session whose model lies where nobody would look for it, with none in its place."""
    path = tmp_path / "talk" / "talk.circuitlab"
    path.parent.mkdir()
    work_on(window)
    save(qtbot, window, path)
    save(qtbot, window, tmp_path / "another.circuitlab")  # which that window holds from now on
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    return path


def at(state: State, source: str) -> State:
    """The state with all its models from one source."""
    pins = tuple(replace(pin, subject=replace(pin.subject, model=ModelRef(source))) for pin in state.pins)
    return replace(state, model=ModelRef(source), pins=pins)


def models_dialog(qtbot: Any, window: Window, path: Path) -> ModelsDialog:
    """The one question about a session's models."""
    window.sessions.open(path)
    qtbot.waitUntil(lambda: any(d.isVisible() for d in window.findChildren(ModelsDialog)))
    (dialog,) = (d for d in window.findChildren(ModelsDialog) if d.isVisible())
    return dialog


def test_a_model_that_was_moved_is_asked_for_once(qtbot: Any, window: Window, tmp_path: Path, moved: Path) -> None:
    state = window.context.document.recorded
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        before = second.context.document.work
        dialog = models_dialog(qtbot, second, moved)
        ((name, (line, _)),) = dialog.rows.items()
        assert "Not found" in line.text() and str(tmp_path / "model") in line.text() and not dialog.use.isEnabled()
        dialog.cancel.click()
        assert second.context.document.work is before and second.sessions.path is None

        dialog = models_dialog(qtbot, second, moved)
        dialog.choose(name, str(tmp_path / "other"))  # that is another one
        qtbot.waitUntil(dialog.use.isEnabled)
        assert "other weights" in dialog.rows[name][0].text() and "all the same" in dialog.use.text()
        with qtbot.waitSignal(second.sessions.opened):
            dialog.choose(name, str(tmp_path / "elsewhere"))
        settle(qtbot, second)
        where = f"file:{tmp_path / 'elsewhere'}"
        assert second.context.document.recorded == at(state, where)
        assert not any(part.startswith("not the model") for part in dock(second, "attention").feed.figure().caption_parts)
        (entry,) = save(qtbot, second, moved)["models"].values()
        assert entry["path"] == "../elsewhere" and entry["was"] == ["../model"]
        open_session(qtbot, second, moved)


@pytest.mark.parametrize("others", [False, True])
def test_a_model_that_is_found_elsewhere_is_said(qtbot: Any, window: Window, tmp_path: Path, others: bool) -> None:
    path = tmp_path / "talks" / "talk.circuitlab"
    path.parent.mkdir()
    save(qtbot, window, path)
    window.sessions.hold.release()
    (tmp_path / "model").rename(tmp_path / "talks" / "mm")
    if others:
        directory(tmp_path / "model", n_ctx=30)
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        said: list[str] = []
        second.context.message.connect(said.append)
        open_session(qtbot, second, path)
        (words,) = (one for one in said if "opened from" in one)
        assert str(tmp_path / "talks" / "mm") in words and "the same weights" in words
        assert ("other weights" in words) is others
    settle(qtbot, window)


def test_another_model_used_all_the_same_is_named_in_every_caption(
    qtbot: Any, window: Window, tmp_path: Path, moved: Path, answer: Answer
) -> None:
    state, saved = window.context.document.recorded, json.loads(moved.read_text("utf-8"))
    tensors = load_file(tmp_path / "elsewhere" / "model.safetensors")
    directory(tmp_path / "model")
    save_file({n: t + 1 for n, t in tensors.items()}, tmp_path / "model" / "model.safetensors")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        dialog = models_dialog(qtbot, second, moved)
        ((name, (line, _)),) = dialog.rows.items()
        sha256 = saved["models"][name]["sha256"]
        assert sha256[:12] in line.text() and "other weights" in line.text()
        with qtbot.waitSignal(second.sessions.opened):
            dialog.use.click()
        settle(qtbot, second)
        assert second.context.document.recorded == state
        said = f"not the model of this session: {name}"
        for panel in ("attention", "predictions", "heads"):
            assert said in dock(second, panel).feed.figure().caption_parts
        again = save(qtbot, second, moved)
        assert again["models"][name]["sha256"] == sha256, "the session goes on naming the model that it was made with"
        second.open_model(str(tmp_path / "elsewhere"))
        qtbot.waitUntil(lambda: second.context.document.recorded.model.name == "elsewhere")
        settle(qtbot, second)
        go(second, "unpin")
        settle(qtbot, second)
        assert said not in dock(second, "attention").feed.figure().caption_parts
        answer(BUTTONS.Discard)


def test_a_story_opens_without_a_model_that_only_a_step_needs(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    table = save(qtbot, window, path)
    table["models"]["gone"] = {"path": "gone", "sha256": "00" * 32}
    table["story"] = {"steps": [{"title": "There", "set": {"model": "gone"}}]}
    path.write_text(json.dumps(table))
    dialog = models_dialog(qtbot, window, path)
    assert "Only steps" in dialog.rows["gone"][0].text() and dialog.use.isEnabled()
    with qtbot.waitSignal(window.sessions.opened):
        dialog.use.click()
    settle(qtbot, window)
    assert save(qtbot, window, path)["models"]["gone"] == table["models"]["gone"]


def test_files_of_settings_that_are_gone_or_have_changed_are_asked_about_once(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path, gone, changed = (tmp_path / name for name in ("talk.circuitlab", "gone.txt", "changed.txt"))
    for file in (gone, changed):
        file.write_text(file.stem)
    state = window.context.document.recorded.with_view("term_importance", TermImportanceView(on="file", file=str(gone)))
    window.context.apply(state.with_view("induction", InductionView(on="file", file=str(changed))), "files")
    settle(qtbot, window)
    state = window.context.document.recorded
    save(qtbot, window, path)
    (tmp_path / "deep").mkdir()
    there = gone.rename(tmp_path / "deep" / "kept.txt")
    changed.write_text("something else")

    dialog = models_dialog(qtbot, window, path)
    assert not dialog.rows and set(dialog.file_rows) == {"gone", "changed"} and "iles" in dialog.windowTitle()
    assert str(gone) in dialog.file_rows["gone"][0].text() and str(changed) in dialog.file_rows["changed"][0].text()
    assert dialog.use.isEnabled(), "neither is needed"
    dialog.choose_file("gone", str(there))
    qtbot.waitUntil(dialog.use.isEnabled)
    assert str(there) in dialog.file_rows["gone"][0].text() and window.context.document.recorded == state, "one is in question"
    with qtbot.waitSignal(window.sessions.opened):
        dialog.use.click()
    settle(qtbot, window)
    assert window.context.document.recorded == state.with_view("term_importance", TermImportanceView(on="file", file=str(there)))
    assert {name: entry["path"] for name, entry in save(qtbot, window, path)["files"].items()} == {
        "gone": "deep/kept.txt",
        "changed": "changed.txt",
    }
    open_session(qtbot, window, path)


def test_a_window_is_not_begun_on_a_session_whose_files_have_changed(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path, file = tmp_path / "talk.circuitlab", tmp_path / "texts.txt"
    file.write_text("one")
    view = TermImportanceView(on="file", file=str(file))
    window.context.apply(window.context.document.recorded.with_view("term_importance", view), "file")
    save(qtbot, window, path)
    file.unlink()
    with pytest.raises(BadModel) as refused:
        make_window(str(path), None, remember=False)
    assert "texts" in refused.value.got and refused.value.remedy


def test_a_window_that_was_laid_out_by_words_says_the_same_words(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    window.layout_of_docks.arrange("Weights")
    window.layout_of_docks.go_to("attention")
    settle(qtbot, window)
    table = save(qtbot, window, path)
    path.write_text(json.dumps({**table, "docks": ""}))  # as another person has it
    window.layout_of_docks.arrange("Explore")
    open_session(qtbot, window, path)
    again = save(qtbot, window, path)
    assert again["now"]["arrange"] == "Weights" and set(again["now"]["show"]) == set(table["now"]["show"])
    saved = layout_from_text(again["docks"])
    assert saved is not None and saved.declared == ARRANGEMENTS["Weights"] and saved.moved
