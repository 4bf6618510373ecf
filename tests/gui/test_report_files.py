"""The report of a session from its window: the same file as on the command line, cancelled without a trace, errors said."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QFileDialog

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.gui.sessions import report_files
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.job import Job
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.session import ModelEntry
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.gui.driving import go, settle


def tell(window: Window, n: int = 2) -> None:
    """A story of n steps with the model of the window."""
    document = window.context.document
    steps = tuple(
        Step(f"Step {i}", "Look.", Setup(model="mine", heads=("L1H2",), show=("attention",)), aside="smile") for i in range(n)
    )
    models = {"mine": ModelEntry(replace(document.recorded.model, checkpoint=None))}
    document.edit(replace(document.work, story=Story("Talk", steps), models=models), "tell")


def choose(monkeypatch: pytest.MonkeyPatch, path: Path, kind: str) -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *args: (str(path), kind))


def test_the_same_page_as_without_a_window(qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(window)
    choose(monkeypatch, tmp_path / "talk", "Page (*.html)")
    with qtbot.waitSignal(window.context.message) as said:
        go(window, "report")
    assert said.args == [f"Written: {tmp_path / 'talk.html'}."]
    page = (tmp_path / "talk.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2 and "smile" not in page
    window.sessions.save_to(tmp_path / "talk.circuitlab")
    settle(qtbot, window)
    saved = opened_session(tmp_path / "talk.circuitlab", Engine(ModelStore()), FRONTS)
    saved.report(tmp_path / "other.html")
    named = page.replace('<p class="kicker">Report</p>', '<p class="kicker">Report of talk.circuitlab</p>')
    assert (tmp_path / "other.html").read_text(encoding="utf-8") == named


def test_a_pdf_with_asides(qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(window, 1)
    choose(monkeypatch, tmp_path / "talk", "PDF with asides (*.pdf)")
    with qtbot.waitSignal(window.context.message):
        go(window, "report")
    assert (tmp_path / "talk.pdf").read_bytes().startswith(b"%PDF")


def test_cancelled_while_it_is_drawn_nothing_is_left(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(window, 6)
    path = tmp_path / "talk.html"
    path.write_text("old")
    drawing, noted = threading.Event(), Job.set_progress

    def held(job: Job, done: int, total: int, text: str) -> bool:
        """On the worker: it draws no further until it is cancelled."""
        if text == "drawing":
            drawing.set()
            job.cancelled.wait()
        return noted(job, done, total, text)

    timer = QTimer(window)
    timer.timeout.connect(lambda: window.context.runner.cancel_all() if drawing.is_set() else None)
    timer.start(1)
    with monkeypatch.context() as patch, qtbot.waitSignal(window.context.message) as said:
        patch.setattr(Job, "set_progress", held)
        window.reports.write(path)
    timer.stop()
    assert "cancelled" in said.args[0]
    settle(qtbot, window)
    assert path.read_text() == "old" and {one.name for one in tmp_path.iterdir()} == {"model", "talk.html"}
    with qtbot.waitSignal(window.context.message) as said:
        window.reports.write(path)
    assert said.args[0].startswith("Written") and path.read_text(encoding="utf-8").count("<svg") == 6


def test_what_cannot_be_written_is_said(qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ErrorDialog, "open", lambda dialog: dialog.done(0))
    with qtbot.waitSignal(window.context.failed) as failed:
        window.reports.write(tmp_path / "talk.doc")
    assert ".html" in failed.args[0].expected and ".pdf" in failed.args[0].expected
    with qtbot.waitSignal(window.context.failed) as failed:
        window.reports.write(tmp_path / "nowhere" / "talk.html")
    assert failed.args[0].remedy and not (tmp_path / "nowhere").exists()


def test_the_kinds_of_files() -> None:
    assert list(report_files.KINDS) == ["Page (*.html)", "PDF (*.pdf)", "Page with asides (*.html)", "PDF with asides (*.pdf)"]
