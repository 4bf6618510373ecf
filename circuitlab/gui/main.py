"""Opening the window, or painting it into a file where there is no display."""

from __future__ import annotations

import logging
from pathlib import Path

from PySide6.QtCore import QDeadlineTimer, QEvent, QEventLoop, QPoint, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication

from circuitlab.draw.app import application
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadMachine, CircuitLabError
from circuitlab.gui.docks.prompt import samples
from circuitlab.gui.errors import ErrorHook
from circuitlab.gui.window import Window
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session.state import State

DEFAULT = "builtin:attn-only-2l"
log = logging.getLogger("circuitlab.main")


def first_state(ref: ModelRef, text: str | None) -> State:
    """The state a window starts with."""
    return State(ref, text=samples()[0][1] if text is None else text)


def make_window(source: str | None, text: str | None, remember: bool = True, memory: int = 4 * GIB) -> Window:
    """A window on a model, opened before it is shown. Raises `BadModel` and its kin."""
    engine = Engine(ModelStore(), memory)
    ref = reference(source or DEFAULT)
    model = engine.store.open(ref)
    window = Window(engine, first_state(ref, text), remember)
    window.adopt(model, None)
    point_at_induction(window)
    return window


def point_at_induction(window: Window) -> None:
    """At the first start look at a head worth looking at: the one whose stored metrics say prefix matching, at a repeat."""
    import json

    model = window.bench.engine.store.peek(window.bench.document.state.model)
    file = None if model is None else model.path / "metrics.json"
    if file is None or not file.is_file():
        return
    try:
        scores = json.loads(file.read_text(encoding="utf-8"))["heads"]["prefix_matching"]
        best = max((v, i, h) for i, row in enumerate(scores) for h, v in enumerate(row))
    except (ValueError, KeyError, TypeError):
        log.warning("%s cannot be read", file)
        return
    state = window.bench.document.recorded
    last = len(state.tokens) - 1
    window.bench.document.apply(
        state.select(heads=(Head(best[1], best[2]),), destination=last if last > 0 else None, locked=last > 0), "start"
    )


def open_window(source: str | None = None, text: str | None = None) -> int:
    """Open the window and run until it is closed. A model that cannot be opened is said, and the default one opened."""
    app = application()
    hook = ErrorHook()
    hook.install()
    failure: CircuitLabError | None = None
    try:
        window = make_window(source, text)
    except CircuitLabError as error:
        if source in (None, DEFAULT):
            raise
        failure = error
        window = make_window(None, text)
    hook.caught.connect(window.show_error)
    window.resize(1280, 800)
    window.show()
    if failure is not None:
        window.show_error(failure)
    return app.exec()


def settle(window: Window, seconds: float = 60.0) -> bool:
    """Run events until every visible dock shows its answer and nothing runs; False when the time is up."""
    deadline = QDeadlineTimer(round(seconds * 1000))
    while not deadline.hasExpired():
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 20)
        if not window.waiting and not window.bench.runner.busy:
            QApplication.processEvents()
            return True
    return False


def picture(window: Window, size: QSize, ratio: float) -> QImage:
    """The window's pixels at `ratio` times its size."""
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
    """Paint the window, all answers in, into a PNG. Raises `BadMachine` where it cannot be written or never settles."""
    application(offscreen=True)
    window = make_window(source, text, remember=False)
    try:
        window.set_theme(theme)
        window.bench.readout.emit("")
        window.resize(*size)
        window.show()
        if not settle(window):
            raise BadMachine("The window did not finish painting.", expected="all answers within 60 s", got="a timeout")
        if not picture(window, QSize(*size), ratio).save(str(path)):
            raise BadMachine("The picture could not be written.", expected="a writable place", got=str(path))
    finally:
        window.close()
        window.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # type: ignore[arg-type]


__all__ = ["first_state", "make_window", "open_window", "picture", "render_window", "settle"]
