"""The window on a session whose story is presented at once, as `circuitlab present` asks for it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QTimer
from PySide6.QtWidgets import QApplication

from circuitlab.counting import number_of
from circuitlab.draw.look.app import application
from circuitlab.errors import BadInput, UsageError
from circuitlab.gui.presenter.options import MOST_MINUTES, TalkOptions, remembered
from circuitlab.gui.presenter.screens import attached, numbered
from circuitlab.gui.shell.ending import ending
from circuitlab.gui.shell.errors import ErrorHook
from circuitlab.gui.shell.main import make_window, show_fitting
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.garbage import collected_on_this_thread
from circuitlab.interrupts import uncollected

WAIT = 100  # ms between looks whether the window is free


def options_of(screen: int | None, windowed: bool, first: int, dark: bool, minutes: int | None) -> TalkOptions:
    """What the command line asks for; what it leaves out is as it was last time. Raises `UsageError`, which lists the screens."""
    if minutes is not None and not 0 <= minutes <= MOST_MINUTES:
        raise UsageError(
            "A talk cannot be so long.",
            expected=f"--minutes from 0, for no end, to {MOST_MINUTES}",
            got=str(minutes),
            remedy="Give another number of minutes.",
        )
    last = remembered()
    name = last.screen if screen is None else numbered(screen, attached())
    return TalkOptions(name, windowed, first - 1, dark, last.minutes if minutes is None else minutes)


def window_of(session: Path, first: int) -> Window:
    """A window on a session, whose story has a step of this number; read-only where another window has it open.

    Raises `BadInput`, `UsageError`, `BadModel` and its kin.
    """
    window = make_window(str(session), None, read_only=True, stored=True)
    steps = window.context.document.work.story.steps
    try:
        if not steps:
            raise BadInput(
                f"There is nothing to present in {session.name}.",
                expected="a session with at least one step",
                got="none",
                remedy="Open it and add a view: Edit, “Add this view as a step”.",
            )
        if not 1 <= first <= len(steps):
            raise UsageError(
                f"There is no step {first}.",
                expected=f"--from 1 to {len(steps)}",
                got=f"{first}, with {number_of(len(steps), 'step')}",
                remedy="Give the number of a step.",
            )
    except BaseException:
        window.close()
        window.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # type: ignore[arg-type]
        raise
    return window


def begin_when_free(window: Window, options: TalkOptions) -> QTimer:
    """Prepare and begin once nothing is asked or read any more: the recovery folder may hold a newer copy of the session.

    Returns the timer that looks, which stops by then.
    """
    timer = QTimer(window)

    def look() -> None:
        recovering = window.recovering
        if recovering.dialog is None and not recovering.waiting and not window.context.runner.busy:
            timer.stop()
            window.presenting.present_prepared(options)

    timer.timeout.connect(look)
    timer.start(WAIT)
    return timer


def present(session: Path, screen: int | None, windowed: bool, first: int, dark: bool, minutes: int | None) -> int:
    """Open the window, prepare, present, and run until the window is closed. Raises what `options_of` and `window_of` raise."""
    with uncollected():  # up to the loop, whose timer collects
        app = application()
        options = options_of(screen, windowed, first, dark, minutes)
        hook = ErrorHook()
        hook.install()
        window = window_of(session, first)
        hook.caught.connect(window.dialogs.show_error)
        show_fitting(window)
        window.settings.failed.emit(window.settings.problem)
        begin_when_free(window, options)
        with collected_on_this_thread(), ending(window.end_unasked) as told:
            status = app.exec()
        return told.status or status
