"""Open the window, or render it into a file where there is no display."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QDeadlineTimer, QEvent, QEventLoop, QPoint, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import png_bytes
from circuitlab.draw.look.app import application
from circuitlab.engine.engine import GIB, Engine, use_threads
from circuitlab.engine.store import ModelStore, OpenModel, reference
from circuitlab.errors import BadMachine, CircuitLabError, reason
from circuitlab.files import write_whole
from circuitlab.gui.docks.prompt import samples
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.errors import ErrorHook
from circuitlab.gui.shell.opening import asked_of
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.dialog import room_for
from circuitlab.gui.work.garbage import collected_on_this_thread
from circuitlab.gui.work.settings import Settings
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session.model_change import state_on
from circuitlab.session.state import State

USUAL, LARGEST, PART = QSize(1280, 800), QSize(1920, 1200), 0.8  # of a first window, and of the screen where that is more
DEFAULT = "builtin:attn-only-2l"
log = logging.getLogger("circuitlab.main")


def first_state(ref: ModelRef, text: str | None) -> State:
    """The State a window starts with."""
    return State(ref, text=samples()[0][1] if text is None else text)


def make_window(
    source: str | None,
    text: str | None,
    remember: bool = True,
    memory: int | None = None,
    assume: tuple[tuple[str, str], ...] = (),
) -> Window:
    """A window on a model, opened before it is shown; `memory` in bytes, None: the setting; `assume`: see `ModelRef`.

    Raises `BadModel` and its kin.
    """
    settings = Settings(remember)
    if settings["threads"]:
        use_threads(settings["threads"])
    engine = Engine(ModelStore(), memory or round(settings["memory"] * GIB))
    ref = replace(reference(source or DEFAULT), assume=assume)
    model = engine.store.open(ref)
    state = looking_at_induction(model, state_on(model, first_state(ref, text), None))
    window = Window(engine, state, COMMANDS, remember, settings)
    settings.setParent(window)
    window.opening.announce(model)
    return window


def looking_at_induction(model: OpenModel, state: State) -> State:
    """The first State with an induction head selected: the head of the highest stored prefix-matching score, at a repeat."""
    file = model.path / "metrics.json"
    if not file.is_file():
        return state
    try:
        head = _best_head(read_object(file), model.opened.weights.config)
    except (CircuitLabError, LookupError, TypeError, ValueError) as error:
        log.warning("%s is not used: %s", file, reason(error))
        return state
    if head is None:  # without layers there are no heads
        return state
    last = len(state.tokens) - 1
    return state.select(heads=(head,), destination=last if last > 0 else None, locked=last > 0)


def _best_head(metrics: dict[str, Any], config: ModelConfig) -> Head | None:
    """The head of the largest finite prefix-matching score, None where there are none. Raises `LookupError` for absent heads."""
    scores = metrics["heads"]["prefix_matching"]
    if len(scores) != config.n_layers or any(len(row) != config.n_heads for row in scores):
        raise LookupError(f"scores of heads that are not the model's {config.n_layers} × {config.n_heads}")
    ranked = [(float(v), Head(i, h)) for i, row in enumerate(scores) for h, v in enumerate(row) if math.isfinite(v)]
    return max(ranked)[1] if ranked else None


def show_fitting(window: Window) -> None:
    """Show the window at the usual size, larger on a larger screen, and maximised on a smaller one."""
    room = room_for(window)
    window.resize(room.boundedTo((room * PART).expandedTo(USUAL)).boundedTo(LARGEST))
    if room.width() < USUAL.width() or room.height() < USUAL.height():
        window.showMaximized()
    else:
        window.show()


def open_window(source: str | None = None, text: str | None = None, assume: tuple[tuple[str, str], ...] = ()) -> int:
    """Open the window and run until it is closed. If a model cannot be opened, its error is shown with the default model."""
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
        window = make_window(None, text)
    hook.caught.connect(window.dialogs.show_error)
    show_fitting(window)
    window.settings.failed.emit(window.settings.problem)
    if failure is not None and source is not None and asked_of(failure):
        window.dialogs.ask_assumptions(replace(reference(source), assume=assume), failure)
    elif failure is not None:
        window.dialogs.show_error(failure)
    with collected_on_this_thread():
        return app.exec()


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
        window.status.ends.stop()
        window.resize(*size)
        window.show()
        if not settle(window):
            raise BadMachine("The window did not finish painting.", expected="all answers within 60 s", got="a timeout")
        write_whole(path, png_bytes(picture(window, QSize(*size), ratio)))
    finally:
        window.close()
        window.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # type: ignore[arg-type]


__all__ = ["first_state", "make_window", "open_window", "picture", "render_window", "settle"]
