"""A window that ends, in order or not: what it was working on is there again, whole, and nobody else's work is replaced by it."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from circuitlab.disk.files import unwritable
from circuitlab.errors import BadInput, BadMachine, BadModel
from circuitlab.gui.sessions import autosave, file_work, recovery_dialog
from circuitlab.gui.sessions.file_hold import COPY, READ_ONLY, REPLACE
from circuitlab.gui.sessions.recovery_dialog import RecoveryDialog
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import ANEW, Settings
from circuitlab.model.subject import Head
from circuitlab.session_files import last as last_module
from circuitlab.session_files.last import keep_last, last, last_path
from circuitlab.session_files.orphans import orphans
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.recovery_files import recovery_folder
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_lock import session_lock
from circuitlab.session_files.session_text import read_session
from tests.gui.driving import TEXT, answer_questions, go, settle, work_on
from tests.models import directory


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the timers; that they are started is what counts."""
    monkeypatch.setattr(autosave, "INTERVAL", 1)
    monkeypatch.setattr(autosave, "RETRY", 1)


@contextmanager
def started(qtbot: Any, source: str | None = None, text: str | None = None) -> Iterator[Window]:
    """A window as a person starts it, remembered; closed in order."""
    window = gui.make_window(source, text)
    window.resize(1280, 800)
    window.show()
    rest(qtbot, window)
    try:
        yield window
        rest(qtbot, window)
    finally:
        window.close()
        window.deleteLater()
        QApplication.processEvents()


def rest(qtbot: Any, window: Window) -> None:
    """Until nothing is computed, written or looked for."""
    qtbot.waitUntil(lambda: not window.autosave.waiting and not window.recovering.waiting)
    settle(qtbot, window)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(directory(tmp_path / "model"))


def files() -> list[Path]:
    return sorted(recovery_folder().glob("*.circuitlab"))


def killed(window: Window, of: Path | None = None) -> Recovery:
    """What the window would leave behind if it were killed now."""
    gone = Recovery()
    gone.write(window.sessions.session_maker()(), of)
    gone.leave()
    return gone


# -- autosave -------------------------------------------------------------------------------------------------------------------


def test_a_change_is_autosaved_and_what_is_saved_is_not_kept_twice(qtbot: Any, source: str, tmp_path: Path) -> None:
    with started(qtbot, source, TEXT) as window:
        assert files() == [], "nothing was done yet"
        work_on(window)
        rest(qtbot, window)
        assert len(files()) >= 1 and orphans().orphans == (), "it is this window's, which lives"
        table = json.loads(window.autosave._own.recovery.path.read_bytes())
        assert table["now"]["text"] == "ab cab ab" and table["of"] == "" and table["pid"] == os.getpid()
        path = tmp_path / "talk.circuitlab"
        window.sessions.save_to(path)
        qtbot.waitUntil(lambda: not window.sessions.saves.busy)
        rest(qtbot, window)
        assert files() == []
        window.context.apply(window.context.document.recorded.with_heads(Head(0, 3)), "select")
        rest(qtbot, window)
        assert len(files()) == 1
        assert json.loads(files()[0].read_bytes())["of"] == str(path)
        window.undo()
        rest(qtbot, window)
        assert files() == [], "it is as it was saved"


def test_one_is_written_at_a_time_and_never_on_the_window_s_thread(
    qtbot: Any, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    running, most, threads, write = [], [], set(), Recovery.write

    def slowly(self: Recovery, *words: Any, **more: Any) -> None:
        running.append(1)
        most.append(len(running))
        threads.add(threading.current_thread().name)
        write(self, *words, **more)
        running.pop()

    monkeypatch.setattr(Recovery, "write", slowly)
    with started(qtbot, source, TEXT) as window:
        for head in (1, 2, 3, 0, 2, 1):
            window.context.apply(window.context.document.recorded.with_heads(Head(1, head)), "select")
            window.autosave.write()
            window.autosave.write()
        rest(qtbot, window)
        assert set(most) == {1} and all(name.startswith("circuitlab-io") for name in threads)
        assert json.loads(window.autosave._own.recovery.path.read_bytes())["now"]["heads"] == ["L1H1"], "the last one"


def test_the_timer_is_not_put_off_by_further_changes(qtbot: Any, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(qtbot, source, TEXT) as window:
        monkeypatch.setattr(autosave, "INTERVAL", 1500)
        left = []
        for head in (1, 2, 3):
            window.context.apply(window.context.document.recorded.with_heads(Head(1, head)), "select")
            left.append(window.autosave.timer.remainingTime())
            QApplication.processEvents()
        assert left == sorted(left, reverse=True) and window.autosave.timer.isSingleShot()
        assert autosave.INTERVAL < 2000
        window.autosave.write()


def test_a_disk_that_cannot_be_written_is_said_as_long_as_it_lasts_and_asked_about(
    qtbot: Any, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with started(qtbot, source, TEXT) as window:
        window.context.message.connect(said.append)
        recovery_folder().parent.mkdir(parents=True, exist_ok=True)
        recovery_folder().write_bytes(b"in the way")
        tries = []
        window.autosave._slot.failed.connect(lambda error, role: tries.append(error))
        window.context.apply(window.context.document.recorded.with_heads(Head(1, 1)), "select")
        qtbot.waitUntil(lambda: len(tries) > 2)
        window.status.say("of something else")
        standing = window.status.standing
        assert standing.isVisible() and "Not autosaved" in standing.toolTip() + standing.text() and "way" in standing.toolTip()
        asked = answer_questions(monkeypatch, "Cancel")
        assert not window.close() and len(asked) == 1 and "in the way" in asked[0]
        recovery_folder().unlink()
        rest(qtbot, window)
        assert len(files()) == 1 and "again" in said[-1] and not standing.isVisible()
        assert window.sessions.may_close() and len(asked) == 1, "the next start comes back to it"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_window_that_could_not_be_kept_asks_before_it_was_autosaved(
    qtbot: Any, source: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with started(qtbot, source, TEXT) as window:
        monkeypatch.setattr(autosave, "INTERVAL", 1_000_000)
        window.context.apply(window.context.document.recorded.with_heads(Head(1, 1)), "select")

        def refused(path: Path, *_: object, **__: object) -> None:
            raise unwritable(path, OSError(number, os.strerror(number)))

        with monkeypatch.context() as patch:
            patch.setattr(last_module, "write_whole", refused)
            asked = answer_questions(patch, "Cancel")
            assert not window.close() and len(asked) == 1 and "cannot be kept" in asked[0]
        window.autosave.write()


def test_a_pinned_model_that_is_gone_neither_fails_a_save_nor_closes_unasked(
    qtbot: Any, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever capturing says of it: a save that fails says so, and the window asks."""
    with started(qtbot, source, TEXT) as window:

        def gone(*_: object, **__: object) -> Session:
            raise BadModel("The pinned model is gone.")

        with monkeypatch.context() as patch:
            patch.setattr(file_work, "session_of", gone)
            window.context.apply(window.context.document.recorded.with_heads(Head(1, 1)), "select")
            qtbot.waitUntil(lambda: bool(window.autosave.problem))
            asked = answer_questions(patch, "Cancel")
            assert not window.close() and "pinned model is gone" in asked[0]
        rest(qtbot, window)


# -- recovering -----------------------------------------------------------------------------------------------------------------


def test_a_window_that_was_killed_is_offered_and_comes_back_whole(qtbot: Any, source: str, tmp_path: Path) -> None:
    of = tmp_path / "talk.circuitlab"
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        rest(qtbot, window)
        state, gone = window.context.document.recorded, killed(window, of)
    with started(qtbot, source, TEXT) as second:
        dialog = second.recovering.dialog
        assert dialog is not None and [row.orphan.id for row in dialog.rows] == [gone.id]
        assert dialog.windowTitle() == recovery_dialog.TITLE
        with qtbot.waitSignal(second.sessions.opened):
            dialog.rows[0].recover.click()
        rest(qtbot, second)
        assert second.context.document.recorded == state and second.sessions.path == of and second.sessions.dirty
        assert second.isWindowModified() and not gone.path.exists()
        own = second.autosave._own.recovery
        assert [p.name.split(".")[0] for p in files()] == [own.id] * 2, "the copy it came from is one generation older"
        assert orphans().orphans == ()
        second.sessions.save_to(of)
        qtbot.waitUntil(lambda: not second.sessions.saves.busy)
        rest(qtbot, second)
        assert files() == [] and read_session(of).now.prompt is not None


def test_later_leaves_it_and_throwing_away_removes_it(qtbot: Any, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        gone = [killed(window), killed(window)]
    last_path().unlink()  # a window that is killed leaves none
    with started(qtbot, source, TEXT) as second:
        dialog = second.recovering.dialog
        assert dialog is not None and len(dialog.rows) == 2
        asked = answer_questions(monkeypatch, "No")
        dialog.rows[0].away.click()
        assert len(dialog.rows) == 2 and len(asked) == 1
        answer_questions(monkeypatch, "Yes")
        dialog.rows[0].away.click()
        assert len(dialog.rows) == 1 and len({p.name for p in files()} & {g.path.name for g in gone}) == 1
        dialog.later.click()
        assert second.recovering.dialog is None
        go(second, "recover-session")
        rest(qtbot, second)
        dialog = second.recovering.dialog
        assert dialog is not None and len(dialog.rows) == 1
        dialog.rows[0].away.click()
        assert second.recovering.dialog is None, "nothing is left to ask about"
        go(second, "recover-session")
        rest(qtbot, second)
        assert second.recovering.dialog is None and "nothing to recover" in second.status.readout.text()


def test_a_killed_recovery_can_be_recovered(qtbot: Any, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy stays until the session has been written by the window that took it, and is not offered meanwhile."""
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        gone = killed(window)

    def refused(*_: object) -> None:
        raise BadMachine("The disk is full.")

    with started(qtbot, source, TEXT) as second, monkeypatch.context() as patch:
        patch.setattr(Recovery, "write", refused)
        assert second.recovering.dialog is not None
        with qtbot.waitSignal(second.sessions.opened):
            second.recovering.dialog.rows[0].recover.click()
        qtbot.waitUntil(lambda: bool(second.autosave.problem))
        assert gone.path.exists() and orphans().orphans == (), "another window does not take it, too"
        claim = second.autosave._own.adopts[1]  # type: ignore[index]
        claim.release()  # type: ignore[union-attr]  # as its end by a signal does
        assert [o.id for o in orphans().orphans] == [gone.id]
        assert claim.take() is None  # type: ignore[union-attr]
        second.sessions._saved_work = second.sessions.work  # saved before it could be autosaved
        rest(qtbot, second)
        assert files() == []


def test_an_earlier_copy_can_be_chosen_and_a_damaged_one_changes_nothing(qtbot: Any, source: str) -> None:
    with started(qtbot, source, TEXT) as window:
        gone = Recovery(spacing=0)
        for head in (1, 2, 3):
            window.context.apply(window.context.document.recorded.with_heads(Head(1, head)), "select")
            gone.write(window.sessions.session_maker()(), None)
        gone.leave()
    with started(qtbot, source, TEXT) as second:
        row = second.recovering.dialog.rows[0]  # type: ignore[union-attr]
        assert row.copies.count() == 3
        row.copies.setCurrentIndex(1)
        with qtbot.waitSignal(second.sessions.opened):
            row.recover.click()
        assert second.context.document.recorded.selection.heads == (Head(1, 2),)
        second.sessions._saved_work = second.sessions.work
        rest(qtbot, second)


def test_a_file_with_a_newer_copy_offers_it(qtbot: Any, source: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    with started(qtbot, source, TEXT) as window:
        window.sessions.save_to(path)
        qtbot.waitUntil(lambda: not window.sessions.saves.busy)
        rest(qtbot, window)
        os.utime(path, (1, 1))
        work_on(window)
        rest(qtbot, window)
        gone, other = killed(window, path), killed(window)
        window.sessions._saved_work = window.sessions.work
    with started(qtbot, source, TEXT) as second:
        assert len(second.recovering.dialog.rows) == 2  # type: ignore[union-attr]
        second.recovering.dialog.reject()  # type: ignore[union-attr]
        with qtbot.waitSignal(second.sessions.opened):
            second.sessions.open(path)
        rest(qtbot, second)
        dialog = second.recovering.dialog
        assert dialog is not None and [row.orphan.id for row in dialog.rows] == [gone.id] and path.name in dialog.windowTitle()
        assert other.path.exists()
        dialog.reject()


# -- where one stopped ----------------------------------------------------------------------------------------------------------


def test_a_bare_start_comes_back_to_where_one_stopped(qtbot: Any) -> None:
    with started(qtbot) as window:
        assert window.docks["lessons"].isVisible(), "the first start"
        work_on(window)
        window.layout_of_docks.arrange("Cut")
        settle(qtbot, window)
        state = window.context.document.recorded
    assert last() is not None and files() == []
    with started(qtbot) as second:
        assert second.context.document.recorded == state
        assert second.layout_of_docks.name == "Cut" and not second.docks["lessons"].isVisible()
        assert not second.context.document.undo_label and second.sessions.dirty
        assert files() == [], "it is kept where it is until this window ends"
        context = second.context
        context.apply(context.document.recorded.with_heads(Head(0, 2)), "select")
        rest(qtbot, second)
        assert len(files()) == 1
    kept = last()
    assert kept is not None and kept.session.now.heads == ("L0H2",) and orphans().orphans == ()


def test_another_window_s_unsaved_session_is_found_again(qtbot: Any, source: str) -> None:
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        state = window.context.document.recorded
    keep_last(Session(), None, False)  # at the end of a window that was started on a model
    with started(qtbot, source, TEXT) as third:
        assert third.context.document.recorded != state and third.recovering.dialog is None, "it ended in order"
        go(third, "recover-session")
        rest(qtbot, third)
        dialog = third.recovering.dialog
        assert dialog is not None and dialog.windowTitle() == recovery_dialog.CLOSED_TITLE
        with qtbot.waitSignal(third.sessions.opened):
            dialog.rows[0].recover.click()
        assert third.context.document.recorded == state


def test_what_the_last_window_left_is_there_to_recover_at_once(qtbot: Any, source: str) -> None:
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        state = window.context.document.recorded
    left = last()
    assert left is not None and left.unsaved
    minute_ago = last_path().stat().st_mtime - 75
    os.utime(last_path(), (minute_ago, minute_ago))
    with started(qtbot, source, TEXT) as second:  # on a model or a picture: it does not come back to that session
        go(second, "recover-session")
        rest(qtbot, second)
        dialog = second.recovering.dialog
        assert dialog is not None and len(dialog.rows) == 1
        assert dialog.rows[0].orphan.time == pytest.approx(minute_ago, abs=0.01), "when it was closed"
        dialog.reject()
        qtbot.waitUntil(lambda: second.recovering.dialog is None)
        go(second, "recover-session")
        rest(qtbot, second)
        dialog = second.recovering.dialog
        assert dialog is not None and len(dialog.rows) == 1, "once, however often it is asked for"
        with qtbot.waitSignal(second.sessions.opened):
            dialog.rows[0].recover.click()
        assert second.context.document.recorded == state
        assert "ab cab ab" in second.status.readout.text(), "by its name"
    with started(qtbot) as third:
        assert third.context.document.recorded == state
        assert orphans().orphans == ()
        go(third, "recover-session")
        rest(qtbot, third)
        assert third.recovering.dialog is None, "it is open here"


def test_a_start_begins_anew_where_that_is_set_and_keeps_the_layout(qtbot: Any) -> None:
    Settings().set("start", ANEW)
    with started(qtbot) as window:
        first = window.context.document.recorded
        work_on(window)
        window.layout_of_docks.arrange("Weights")
    with started(qtbot) as second:
        assert second.context.document.recorded == first and second.layout_of_docks.name == "Weights"


def test_a_session_with_a_file_is_opened_again(qtbot: Any, source: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.circuitlab"
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        window.sessions.save_to(path)
        qtbot.waitUntil(lambda: not window.sessions.saves.busy)
        state = window.context.document.recorded
        window.layout_of_docks.arrange("Cut")
    with started(qtbot) as second:
        assert (second.sessions.path, second.sessions.dirty) == (path, False)
        assert second.context.document.recorded == state and second.layout_of_docks.name == "Cut"
    path.rename(tmp_path / "elsewhere.circuitlab")
    with started(qtbot) as third:
        assert (third.sessions.path, third.sessions.dirty) == (None, True)
        assert third.context.document.recorded == state and "is gone" in third.status.readout.text()


def test_a_model_that_is_gone_opens_the_first_window_and_says_so(qtbot: Any, source: str) -> None:
    with started(qtbot, source, TEXT) as window:
        work_on(window)
    Path(source).rename(Path(source).with_name("moved"))
    with started(qtbot) as second:
        assert second.context.document.recorded.model.name == "attn-only-2l"
        assert "cannot be opened" in second.status.readout.text()
    result = orphans().orphans
    assert [o.closed for o in result] == [True], "the work is not replaced by this window's"


def test_a_damaged_last_session_is_said(qtbot: Any) -> None:
    last_path().parent.mkdir(parents=True)
    last_path().write_bytes(b"{")
    with started(qtbot) as window:
        assert "cannot be read" in window.status.readout.text()
    assert last() is not None and (recovery_folder() / "damaged" / last_path().name).exists()


# -- one file, two windows ------------------------------------------------------------------------------------------------------


@pytest.fixture
def talk(qtbot: Any, source: str, tmp_path: Path) -> Path:
    """A saved session."""
    path = tmp_path / "talk.circuitlab"
    with started(qtbot, source, TEXT) as window:
        work_on(window)
        window.sessions.save_to(path)
        qtbot.waitUntil(lambda: not window.sessions.saves.busy)
        assert session_lock(path).path.exists()
    assert not session_lock(path).path.exists() and not path.with_name(".talk.circuitlab.lock").exists()
    return path


def test_the_second_window_on_a_file_is_told_by_whom_and_saves_elsewhere(
    qtbot: Any, window: Window, talk: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lock = session_lock(talk)
    assert lock.take() is None  # by another window
    before = talk.read_bytes()
    asked = answer_questions(monkeypatch, "Cancel")
    window.sessions.open(talk)
    assert str(os.getpid()) in asked[0] and "since" in asked[0] and window.sessions.path is None
    answer_questions(monkeypatch, READ_ONLY)
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.open(talk)
    settle(qtbot, window)
    assert window.sessions.read_only and "read-only" in window.windowTitle()
    window.context.apply(window.context.document.recorded.with_heads(Head(0, 3)), "select")
    failed: list[Any] = []
    window.context.failed.disconnect()
    window.context.failed.connect(failed.append)
    window.sessions.save_to(talk)
    assert "another window" in str(failed[0]) and talk.read_bytes() == before
    named: list[str] = []
    monkeypatch.setattr(
        "circuitlab.gui.sessions.controller.QFileDialog.getSaveFileName",
        lambda parent, title, where, kinds: (named.append(where), (str(tmp_path / "mine.circuitlab"), ""))[1],
    )
    window.sessions.save()
    qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    assert named == [str(tmp_path / "talk copy.circuitlab")] and talk.read_bytes() == before
    assert not window.sessions.read_only and window.sessions.path == tmp_path / "mine.circuitlab"
    lock.release(remove=True)


def test_a_file_that_another_program_changed_is_asked_about(
    qtbot: Any, window: Window, talk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    saved = lambda: qtbot.waitUntil(lambda: not window.sessions.saves.busy)
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.open(talk)
    settle(qtbot, window)
    asked = answer_questions(monkeypatch, "Cancel")
    for head in (2, 3):  # one save after the other changes it, too
        window.context.apply(window.context.document.recorded.with_heads(Head(0, head)), "select")
        window.sessions.save()
    saved()
    assert not asked and not window.sessions.dirty
    theirs = talk.read_bytes() + b"\n"
    talk.write_bytes(theirs)
    window.context.apply(window.context.document.recorded.with_heads(Head(0, 1)), "select")
    window.sessions.save()
    qtbot.waitUntil(lambda: len(asked) == 1)
    saved()
    assert "another program" in asked[0] and talk.read_bytes() == theirs and window.sessions.dirty
    (noted,) = (record for record in caplog.records if "another program" in record.getMessage())
    assert (noted.levelno, noted.exc_info) == (logging.INFO, None), "nothing failed"
    answer_questions(monkeypatch, REPLACE)
    window.sessions.save()
    qtbot.waitUntil(lambda: not window.sessions.dirty)
    assert talk.read_bytes() != theirs and talk.with_name(f"{talk.name}~").read_bytes() == theirs


def test_a_copy_of_a_file_in_use_is_a_session_of_its_own(
    qtbot: Any, window: Window, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = session_lock(talk)
    assert lock.take() is None
    answer_questions(monkeypatch, COPY)
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.open(talk)
    settle(qtbot, window)
    assert (window.sessions.path, window.sessions.read_only, window.sessions.dirty) == (None, False, True)
    assert window.context.document.recorded.text == "ab cab ab"
    lock.release(remove=True)
    window.sessions._saved_work = window.sessions.work


def test_a_bare_start_beside_a_window_on_that_file_begins_anew(qtbot: Any, talk: Path) -> None:
    lock = session_lock(talk)
    assert lock.take() is None
    with started(qtbot) as second:
        assert second.sessions.path is None and second.context.document.recorded.model.name == "attn-only-2l"
    with pytest.raises(BadInput, match="another window"):  # on the command line: the first window asks then
        gui.make_window(str(talk), None)
    lock.release(remove=True)


def test_a_file_is_let_go_of_with_the_session(qtbot: Any, window: Window, talk: Path) -> None:
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.open(talk)
    settle(qtbot, window)
    other = session_lock(talk)
    holder = other.take()
    assert holder is not None and holder.pid == os.getpid() and not window.sessions.read_only
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.open(talk)  # it is this window's
    with qtbot.waitSignal(window.sessions.opened):
        window.sessions.new()
    assert other.take() is None
    other.release(remove=True)


# -- the dialog -----------------------------------------------------------------------------------------------------------------


def test_twenty_five_are_listed_as_twenty_and_scroll(qtbot: Any) -> None:
    for _ in range(25):
        gone = Recovery()
        gone.write(Session(), None)
        gone.leave()
    dialog = RecoveryDialog(orphans().orphans)
    qtbot.addWidget(dialog)
    dialog.open()
    QApplication.processEvents()
    assert len(dialog.rows) == 20 and dialog.area.verticalScrollBar().maximum() > 0
    assert dialog.area.horizontalScrollBar().maximum() == 0
    assert len({row.recover.accessibleName() for row in dialog.rows}) >= 1
    dialog.reject()
