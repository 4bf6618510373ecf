"""One window under a list of events, in a process of its own: `python -m tests.monkey.play EVENTS DIRECTORY`.

Before each event its number is written to `DIRECTORY/at`, so that whoever started the process knows what a crash or a hang
followed. What must hold:

- no exception that nobody caught, on any thread, and no error in the log;
- after every event: the State is one (its heads and positions are the model's, its tokens in the vocabulary);
- every so often: undo and redo lead back to the same State; every visible panel gets its answer;
- at the end: undone as far as it goes and redone, the State is the same; brought back to its first State, the window has as many
  objects, timers and threads as it had there before the events.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication, QDialog, QMessageBox

from circuitlab.errors import CircuitLabError
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell.main import make_window
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.runner import LANES
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.state.state import State
from tests.monkey.events import Event, from_text
from tests.monkey.hands import Hands, settle

HANG = 120  # seconds for one event: beyond any load of a machine
LOOK, BACK = 40, 60  # every so many events: all panels answered; undo and redo
MODELS = ("attn-only-0l", "attn-only-1l", "attn-only-2l-smeared", "gpt-mini", "construct:rope-induction", "models/none")
FAILURE = 7  # the exit code of an invariant that does not hold, or of an exception


class Fault(Exception):
    """An invariant does not hold."""


class Watch(logging.Handler):
    """Everything that nobody caught, and what the log calls an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.faults: list[str] = []
        sys.excepthook = lambda kind, error, trace: self._caught(error)
        threading.excepthook = lambda args: self._caught(args.exc_value)
        logging.getLogger("circuitlab").addHandler(self)

    def _caught(self, error: BaseException | None) -> None:
        self.faults.append("".join(traceback.format_exception(error)) if error else "an exception without a value")

    def emit(self, record: logging.LogRecord) -> None:
        """An error that somebody logged; what is refused in words is none."""
        if record.exc_info and isinstance(record.exc_info[1], CircuitLabError):
            return
        self.faults.append(logging.Formatter("%(name)s: %(message)s").format(record))

    def check(self) -> None:
        """Raise `Fault` with the first."""
        if self.faults:
            raise Fault(self.faults[0])


def check_state(window: Window) -> None:
    """Raise `Fault` where the State does not belong to the open model."""
    for state in (window.context.document.state, window.context.document.recorded):
        config = window.context.facts(state.model).config
        if bad := [t for t in state.tokens if not 0 <= t < config.d_vocab]:
            raise Fault(f"tokens {bad[:3]} outside the vocabulary of {config.d_vocab}")
        selection, n = state.selection, len(state.tokens)
        heads = (*selection.heads, *(selection.edge or ()))
        if config.n_layers and any(not (0 <= h.layer < config.n_layers and 0 <= h.head < config.n_heads) for h in heads):
            raise Fault(f"heads {heads} of a model of {config.n_layers} × {config.n_heads}")
        if any(p is not None and not 0 <= p < n for p in (selection.destination, selection.source)):
            raise Fault(f"positions {selection.destination}, {selection.source} of {n} tokens")


def check_undo(window: Window, steps: int) -> None:
    """Back as far as there is, `steps` at most, and on again: the same State. Raises `Fault`."""
    window.prompt.commit()
    settle(window)
    before = window.context.document.recorded
    count = 0
    while count < steps and window.context.document.undo_label:
        window.undo()
        settle(window)
        count += 1
    for _ in range(count):
        window.redo()
        settle(window)
    if (after := window.context.document.recorded) != before:
        raise Fault(f"{count} steps back and on again lead elsewhere: {_difference(before, after)}")


def _difference(before: State, after: State) -> str:
    names = [n for n in vars(before) if getattr(before, n) != getattr(after, n)]
    return "; ".join(f"{n}: {getattr(before, n)!r} → {getattr(after, n)!r}"[:300] for n in names)


def census(window: Window, start: State) -> Counter[str]:
    """How many objects of each class the window has, brought back to where it began: every panel seen, the first State."""
    document = window.context.document
    if window.layout_of_docks.maximised:
        window.toggle_maximised()
    window.presenting.end()
    window.lessons.tour.leave()  # a step's numbers have slots as long as it is open
    window.lessons.put_back()
    settle(window)
    document.apply(start, "the beginning")
    for name in window.docks:  # a panel that was never looked at has no marks yet, a lane that never worked no thread
        window.layout_of_docks.go_to(name)
        settle(window)
    for name in (*ARRANGEMENTS, next(iter(ARRANGEMENTS))):
        window.layout_of_docks.arrange(name)
        settle(window)
    for _ in range(3):
        QApplication.sendPostedEvents(None, 52)  # DeferredDelete
        QApplication.processEvents()
        gc.collect()
    counted = Counter(type(o).__name__ for o in window.findChildren(QObject) if type(o).__module__.startswith("circuitlab"))
    timers = [t for t in window.findChildren(QTimer) if t.isActive() and not t.isSingleShot()]
    counted.update(f"timer of {type(t.parent()).__name__} {t.parent().objectName()}".strip() for t in timers)
    counted.update(f"thread {t.name.rstrip('0123456789')}" for t in threading.enumerate() if t.is_alive())
    return counted


def check_census(before: Counter[str], after: Counter[str]) -> None:
    """Raise `Fault` where there is more of something."""
    more = {name: (before[name], n) for name, n in after.items() if n > before[name]}
    if more:
        raise Fault("left behind: " + ", ".join(f"{name} {a} → {b}" for name, (a, b) in sorted(more.items())))


def play(events: tuple[Event, ...], folder: Path) -> None:
    """Everything. Raises `Fault`."""
    watch, at = Watch(), folder / "at"
    window = make_window("attn-only-2l", "The grey heron stood; the grey heron", remember=False)
    window.resize(1280, 800)
    window.show()
    settle(window)
    start = window.context.document.recorded
    for lane in LANES:  # a lane has its thread from its first work on
        window.context.runner.do(WorkSlot(window), "nothing", lambda job: None, lane)
    window.dialogs.ask_hub()  # outlives being closed
    settle(window)
    for dialog in window.findChildren(QDialog):
        dialog.close()
    before = census(window, start)
    with Hands(window, MODELS, folder) as hands:
        for i, event in enumerate(events):
            at.write_text(f"{i} {event}")
            faulthandler.dump_traceback_later(HANG, exit=True)
            hands.play(event)
            _checked(window, watch, i)
        at.write_text(f"{len(events)} end")
        faulthandler.dump_traceback_later(10 * HANG, exit=True)
        settle(window)
        check_undo(window, 300)
        hands.clear()
        check_census(before, census(window, start))
    watch.check()
    _close(window)


def _close(window: Window) -> None:
    """Close the window; what is not saved by then is discarded. Raises `Fault` where it stays open."""
    timer = QTimer()
    timer.timeout.connect(_discard)
    timer.start(20)
    window.close()
    settle(window)  # what is being saved is saved first
    timer.stop()
    if window.isVisible():
        raise Fault("the window does not close")


def _discard() -> None:
    box = QApplication.activeModalWidget()
    button = box.button(QMessageBox.StandardButton.Discard) if isinstance(box, QMessageBox) else None
    if button is not None:
        button.click()


def _checked(window: Window, watch: Watch, i: int) -> None:
    watch.check()
    check_state(window)
    if not window.isVisible():
        raise Fault("the window has gone")
    if i % LOOK == LOOK - 1:
        settle(window)
    if i % BACK == BACK - 1:
        check_undo(window, 5)


def main(arguments: list[str]) -> int:
    """Play the events of a file in a folder; 0, or `FAILURE` with the reason on the error stream."""
    faulthandler.enable()
    events, folder = from_text(Path(arguments[0]).read_text("utf-8")), Path(arguments[1])
    from circuitlab.draw.look.app import application

    application(offscreen=True)
    try:
        play(events, folder)
    except (Fault, AssertionError) as error:
        sys.stderr.write(f"{error}\n")
    except Exception:  # straight out of what an event called
        traceback.print_exc()
    else:
        return 0
    sys.stderr.flush()
    return FAILURE


if __name__ == "__main__":
    import os

    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads of a window that failed may still run
