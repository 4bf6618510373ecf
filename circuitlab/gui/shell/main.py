"""Open the window, or render it into a file where there is no display."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QDeadlineTimer, QEvent, QEventLoop, QPoint, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication

from circuitlab.disk.file_lock import holder_of
from circuitlab.disk.files import write_whole
from circuitlab.disk.formats import is_session, opens_as_session
from circuitlab.draw.export.pictures import png_bytes
from circuitlab.draw.look.app import application
from circuitlab.engine.engine import GIB, Engine, use_threads
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadMachine, BadModel, CircuitLabError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.sessions.coming_back import Return, where_one_stopped
from circuitlab.gui.sessions.file_hold import in_use
from circuitlab.gui.sessions.file_work import Searcher
from circuitlab.gui.sessions.first_state import first_state, fresh_state
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.ending import ending
from circuitlab.gui.shell.errors import ErrorHook
from circuitlab.gui.shell.opening import assumptions_asked
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.dialog import room_for
from circuitlab.gui.work.garbage import collected_on_this_thread
from circuitlab.gui.work.settings import STOPPED, Settings
from circuitlab.interrupts import uncollected
from circuitlab.session_files.session_lock import session_lock

USUAL, LARGEST, PART = QSize(1280, 800), QSize(2560, 1440), 0.92  # of a first window, and of the screen where that is more
DEFAULT = "builtin:attn-only-2l"


def make_window(
    source: str | None,
    text: str | None,
    remember: bool = True,
    memory: int | None = None,
    assume: tuple[tuple[str, str], ...] = (),
    read_only: bool = False,
    stored: bool = False,
) -> Window:
    """A window on a model, opened before it is shown; `memory` in bytes, None: the setting; `assume`: see `ModelRef`.

    With a session as `source` the window is on that, laid out as it was left, with a picture on what that shows; without a
    source and a text it comes back to where one stopped, unless it is not to `remember`. `read_only`: a session that another
    window has open is opened all the same; `stored`: one whose models are not here is opened by the results in its file.
    Raises `BadInput`, `BadModel` and its kin.
    """
    settings = Settings(remember)
    if settings["threads"]:
        use_threads(settings["threads"])
    engine = Engine(ModelStore(), memory or round(settings["memory"] * GIB))
    if source is not None and opens_as_session(Path(source)):
        return _on_session(engine, Path(source).absolute(), remember, settings, read_only, stored)
    bare = source is None and text is None and settings["start"] == STOPPED
    returning = where_one_stopped(engine, view_types(), bare) if remember else Return()
    if returning.staged is not None and returning.staged.work is not None:
        window = Window(engine, returning.staged.work.state, COMMANDS, remember, settings)
    else:
        model = engine.store.open(replace(reference(source or DEFAULT), assume=assume))
        window = Window(engine, fresh_state(model, text), COMMANDS, remember, settings)
        window.opening.announce(model)
        window.sessions.first_look.begin()
    settings.setParent(window)
    window.come_back(returning)
    return window


def _on_session(
    engine: Engine, path: Path, remember: bool, settings: Settings, read_only: bool = False, stored: bool = False
) -> Window:
    """A window on a session that no other window has open, or on the view of a picture, whose models are all there.

    `read_only`: on one that another window has open, too; `stored`: results in the file stand in for models that are not here.
    Raises `BadInput`, `BadModel`.
    """
    if remember and is_session(path) and not read_only and (holder := holder_of(session_lock(path).path)) is not None:
        raise in_use(path, holder)
    searcher = Searcher(engine, view_types())
    staged = searcher.stage(path)
    if stored and staged.work is None and staged.can_be_shown:
        staged = searcher.resolve_stored(staged)
    if staged.work is None:
        raise BadModel(
            f"{path.name} was made with models or files that are missing here or have changed.",
            expected="every model and file of the session",
            got="without " + ", ".join(staged.in_question),
            remedy="Open it in the window, which asks where they are.",
        )
    window = Window(engine, staged.work.state, COMMANDS, remember, settings)
    settings.setParent(window)
    if staged.of_picture:
        window.come_back(where_one_stopped(engine, view_types(), bare=False) if remember else Return())
        window.sessions.pictures.begin(staged)
    else:
        window.come_back(Return())
        window.sessions.take(staged)
    return window


def show_fitting(window: Window) -> None:
    """Show the window at the usual size, larger on a larger screen, and maximised on a smaller one."""
    room = room_for(window)
    window.resize(room.boundedTo((room * PART).expandedTo(USUAL)).boundedTo(LARGEST))
    if room.width() < USUAL.width() or room.height() < USUAL.height():
        window.showMaximized()
    else:
        window.show()


def open_window(
    source: str | None = None, text: str | None = None, assume: tuple[tuple[str, str], ...] = (), lesson: str = ""
) -> int:
    """Open the window and run until it is closed. What cannot be opened is reported over the default model.

    A session is then tried once more in the window, where it can ask for its models. `lesson`: begun by its name.
    """
    with uncollected():  # up to the loop, whose timer collects: a worker of the window could do it in between
        app = application()
        hook = ErrorHook()
        hook.install()
        failure: CircuitLabError | None = None
        try:
            window = make_window(source, text, assume=assume)
        except CircuitLabError as error:
            if source in (None, DEFAULT):
                raise
            failure = error
            window = make_window(DEFAULT, text)
        hook.caught.connect(window.dialogs.show_error)
        show_fitting(window)
        window.settings.failed.emit(window.settings.problem)
        if failure is not None and source is not None and opens_as_session(Path(source)):
            window.sessions.open(Path(source))
        elif failure is not None and source is not None and assumptions_asked(failure):
            window.dialogs.ask_assumptions(replace(reference(source), assume=assume), failure)
        elif failure is not None:
            window.dialogs.show_error(failure)
        if lesson:
            window.lessons.begin_named(lesson)
        with collected_on_this_thread(), ending(window.end_unasked) as told:
            status = app.exec()
        return told.status or status


def settle(window: Window, seconds: float = 60.0) -> bool:
    """Process events until every visible dock shows its answer and no job runs; False if `seconds` pass first."""
    deadline = QDeadlineTimer(round(seconds * 1000))
    while not deadline.hasExpired():
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 20)
        if not window.waiting and not window.context.runner.busy:
            window.status.refresh()
            window.jobs.refresh()
            QApplication.processEvents()
            return True
    return False


def picture(window: Window, size: QSize, ratio: float) -> QImage:
    """An image of the window, rendered at `ratio` device pixels per px."""
    image = QImage(size * ratio, QImage.Format.Format_RGB32)
    image.setDevicePixelRatio(ratio)
    painter = QPainter(image)
    window.render(painter, QPoint())
    painter.end()
    return image


def render_window(
    path: Path,
    source: str | None = None,
    text: str | None = None,
    size: tuple[int, int] = (1280, 800),
    theme: str = "light",
    ratio: float = 1.0,
) -> None:
    """Render the window with all its answers into a PNG. Raises `BadMachine` if it cannot be written or never settles."""
    application(offscreen=True)
    window = make_window(source, text, remember=False)
    try:
        window.set_theme(theme)
        window.status.say("")
        window.status.message_timer.stop()
        window.resize(*size)
        window.show()
        if not settle(window):
            raise BadMachine(
                "The window did not finish painting.",
                expected="all answers within 60 s",
                got="a timeout",
                remedy="Run the command again on a machine that is less busy, or draw one panel: circuitlab figure.",
            )
        write_whole(path, png_bytes(picture(window, QSize(*size), ratio)), named=True)
    finally:
        window.close()
        window.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # type: ignore[arg-type]


__all__ = ["first_state", "make_window", "open_window", "picture", "render_window", "settle"]
