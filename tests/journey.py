"""A session's journey in real windows, each a process of its own: worked on, killed, recovered, moved, without its model.

    python -m tests.journey STAGE FOLDER

plays a stage (a function below that is called so) with keys and clicks, and writes what the window holds then into
`FOLDER/STAGE.json`. With `JOURNEY_PICTURES=FOLDER` in the environment a picture of the screen is kept after each act.
`tests/e2e/test_journey.py` plays them all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from circuitlab.launch import import_torch, settle_environment

settle_environment()
import_torch()

import numpy as np  # noqa: E402
from PySide6.QtCore import QElapsedTimer, QObject, QPoint, Qt, QTimer  # noqa: E402
from PySide6.QtGui import QContextMenuEvent, QGuiApplication  # noqa: E402
from PySide6.QtTest import QTest  # noqa: E402
from PySide6.QtWidgets import QApplication, QDialog, QDialogButtonBox, QFileDialog, QLineEdit, QMenu, QWidget  # noqa: E402

from circuitlab.gui.panel.note_dialog import NoteDialog  # noqa: E402
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen  # noqa: E402
from circuitlab.gui.sessions.models_dialog import ModelsDialog  # noqa: E402
from circuitlab.gui.shell import main  # noqa: E402
from circuitlab.gui.shell.window import Window  # noqa: E402
from circuitlab.model.subject import Head  # noqa: E402
from circuitlab.session_files.session_text import bytes_of  # noqa: E402
from tests.patience import SECONDS  # noqa: E402

TEXT = "ab cab ab"  # as the tests' tokenizer reads it, and any other
KEY, MODIFIER, BUTTON = Qt.Key, Qt.KeyboardModifier, Qt.MouseButton
CTRL, ALT = MODIFIER.ControlModifier, MODIFIER.AltModifier
Act = Generator[Callable[[], object], None, None]  # yields what it waits for


class Player(QObject):
    """Goes on with an act whenever what it waits for has come; ends the process, without ceremony, where that never comes."""

    def __init__(self, window: Window, act: Act) -> None:
        super().__init__(window)
        self.act, self.awaited = act, next(act)
        self.clock, self.timer = QElapsedTimer(), QTimer(self)
        self.clock.start()
        self.timer.timeout.connect(self.go_on)
        self.timer.start(20)

    def go_on(self) -> None:
        """The next part of the act, if its time has come."""
        if self.clock.elapsed() > SECONDS * 1000:
            fail(f"waited in vain, in lines {lines_of(self.act)}")
        if not self.awaited():
            return
        self.clock.restart()
        self.timer.stop()
        try:
            self.awaited = next(self.act)
        except StopIteration:
            return
        except BaseException as error:
            fail(f"{type(error).__name__}: {error}")
        self.timer.start(20)


def lines_of(act: Any) -> list[int]:
    """Where an act is, and each part of it that it waits for."""
    part = act.gi_yieldfrom
    return [act.gi_frame.f_lineno if act.gi_frame else 0, *(lines_of(part) if hasattr(part, "gi_frame") else ())]


def fail(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
    os._exit(3)


def later(act: Callable[[], object]) -> None:
    """Do something that may wait for a dialog, whose own event loop then goes on with the act."""
    QTimer.singleShot(0, act)


# -- what a person sees and does ----------------------------------------------------------------------------------------------


def settled(window: Window) -> Callable[[], bool]:
    """Until everything is computed, written and set up."""
    context = window.context
    return lambda: (
        not (
            window.waiting
            or context.runner.busy
            or context.loader.waiting
            or window.prompt.timer.isActive()
            or window.lessons.waiting
            or window.sessions.saves.busy
            or window.autosave.waiting
            or window.recovering.waiting
            or window.ahead.timer.isActive()
        )
    )


def in_front(window: Window) -> Callable[[], bool]:
    """Until the window has the keyboard, also where no window manager gives it."""

    def asked() -> bool:
        if not window.isActiveWindow():
            window.activateWindow()
        return window.isActiveWindow() and settled(window)()

    return asked


def picture(name: str) -> None:
    """Keep what the screen shows, dialogs and menus with it."""
    folder, screen = os.environ.get("JOURNEY_PICTURES"), QGuiApplication.primaryScreen()
    if folder:
        QApplication.processEvents()
        QTest.qWait(300)  # so that the X server has it
        screen.grabWindow(0).save(f"{folder}/{name}.png")


def dialog_of(kind: type[QDialog]) -> QDialog | None:
    """The visible dialog of this kind."""
    return next((w for w in QApplication.allWidgets() if isinstance(w, kind) and w.isVisible()), None)


def key(window: QWidget, code: Qt.Key, modifier: Qt.KeyboardModifier = MODIFIER.NoModifier) -> None:
    QTest.keyClick(QApplication.focusWidget() or window, code, modifier)


def tile(window: Window, head: Head) -> tuple[QWidget, QPoint]:
    """The tile of a head in the overview: its widget, and where in it."""
    panel = window.docks["overview"]
    assert isinstance(panel, PanelDock)
    heads = panel.view.widget("heads")
    return heads.viewport(), heads._item_box((head.layer, head.head)).center().toPoint()


def save_as(window: Window, path: Path) -> Act:
    """Ctrl+S, and the path in the dialog that asks for it."""
    later(lambda: key(window, KEY.Key_S, CTRL))
    yield lambda: dialog_of(QFileDialog)
    box = dialog_of(QFileDialog)
    assert box is not None
    field, buttons = box.findChild(QLineEdit), box.findChild(QDialogButtonBox)
    assert isinstance(field, QLineEdit) and isinstance(buttons, QDialogButtonBox)
    yield lambda: buttons.buttons()[0].isEnabled()  # the folder has been read
    field.clear()
    QTest.keyClicks(field, str(path))
    picture("03 save")
    yield lambda: buttons.buttons()[0].isEnabled()
    later(lambda: QTest.keyClick(field, KEY.Key_Return))
    yield lambda: window.sessions.path == path and not window.sessions.dirty
    yield in_front(window)


def keep_step(window: Window, count: int) -> Act:
    key(window, KEY.Key_K, CTRL)
    yield lambda: len(window.lessons.own.story.steps) == count and settled(window)()


def write_note(window: Window, menu: QMenu, start: str, text: str, name: str) -> Act:
    """A note by an entry of a panel's Note menu, typed."""
    menu.aboutToShow.emit()
    entry = next(a for a in menu.actions() if a.text().startswith(start))
    for popup in (w for w in QApplication.allWidgets() if isinstance(w, QMenu) and w.isVisible()):
        popup.close()
    later(entry.trigger)
    yield lambda: dialog_of(NoteDialog)
    box = dialog_of(NoteDialog)
    assert isinstance(box, NoteDialog)
    QTest.keyClicks(box.editor, text)
    picture(name)
    later(lambda: QTest.mouseClick(box.keep, BUTTON.LeftButton))
    yield lambda: not dialog_of(NoteDialog)
    yield in_front(window)


# -- what is compared ---------------------------------------------------------------------------------------------------------


def figures(window: Window) -> dict[str, list[float]]:
    """What can be compared of the numbers in every panel on the screen: sizes, sums and weighted sums of its arrays.

    Not their bits: a run that began as another's rounds otherwise than one of its own.
    """
    result = {}
    for name, panel in window.docks.items():
        if isinstance(panel, PanelDock) and on_screen(panel):
            fields = [vars(mark).values() for mark in panel.view.figure.marks()]
            arrays = [a.ravel() for values in fields for a in values if isinstance(a, np.ndarray) and a.dtype.kind in "fiu"]
            arrays = [np.nan_to_num(a.astype(float)) for a in arrays if a.size]
            result[name] = [float(n) for a in arrays for n in (a.size, a.sum(), (a * np.linspace(0.5, 1.5, a.size)).sum())]
    return result


def held(window: Window) -> dict[str, Any]:
    """What the window holds: its session as a file would have it, models by their hashes, and the numbers it draws."""
    session = json.loads(bytes_of(window.sessions.session_maker()(), Path("/")))
    models = session.pop("models", {})
    session["now"]["show"] = sorted(session["now"].get("show", ()))  # the last is the panel that was used last
    return {
        "session": {name: value for name, value in session.items() if name not in ("by", "docks")},
        "models": {name: entry.get("sha256", "") for name, entry in models.items()},
        "figures": figures(window),
        "title": window.windowTitle(),
        "dirty": window.sessions.dirty,
        "layout": bool(session.get("docks")),
        "captions": [
            dock.view.figure.caption for dock in window.docks.values() if isinstance(dock, PanelDock) and on_screen(dock)
        ],
        "dialogs": [type(w).__name__ for w in QApplication.topLevelWidgets() if isinstance(w, QDialog) and w.isVisible()],
    }


def report(window: Window, folder: Path, stage: str) -> None:
    (folder / f"{stage}.json").write_text(json.dumps(held(window), indent=1))


# -- the stages ---------------------------------------------------------------------------------------------------------------


def work(window: Window, folder: Path) -> Act:
    """Text, a head, an ablation, a pin, an arrangement, a zoom; three steps, two notes; saved; and more work, until a kill."""
    yield in_front(window)
    picture("01 begun")
    QTest.mouseClick(window.prompt.editor.viewport(), BUTTON.LeftButton)
    key(window, KEY.Key_A, CTRL)
    QTest.keyClicks(window.prompt.editor, TEXT)
    yield settled(window)
    target, at = tile(window, Head(1, 2))
    QTest.mouseClick(target, BUTTON.LeftButton, pos=at)
    yield settled(window)
    assert window.context.document.recorded.selection.head == Head(1, 2)
    key(window, KEY.Key_P, CTRL)
    key(window, KEY.Key_B, CTRL)
    yield settled(window)
    picture("02 ablated and pinned")
    yield from keep_step(window, 1)
    key(window, KEY.Key_D, CTRL)
    yield settled(window)
    picture("02b compared")
    key(window, KEY.Key_Right, ALT)
    yield from keep_step(window, 2)
    key(window, KEY.Key_3, CTRL | ALT)
    yield settled(window)
    key(window, KEY.Key_2, CTRL | ALT)
    window.layout_of_docks.go_to("attention")
    yield settled(window)
    window.panel.view.zoom(0.5)
    yield settled(window)
    picture("02c arranged and zoomed")
    yield from keep_step(window, 3)
    key(window, KEY.Key_1, CTRL | ALT)
    yield settled(window)
    target, at = tile(window, Head(1, 2))
    later(lambda: QApplication.sendEvent(target, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, target.mapToGlobal(at))))
    overview, composition = window.docks["overview"], window.docks["composition"]
    assert isinstance(overview, PanelDock) and isinstance(composition, PanelDock)
    yield overview.actions_menu.isVisible
    overview.actions_menu.setActiveAction(overview.actions_menu.offers_menu.menuAction())
    picture("02d menu on an ablated head")
    yield from write_note(window, overview.actions_menu.notes_menu, "Note on L1H2", "copies names", "02e note")
    window.context.apply(window.context.document.recorded.with_edge(Head(0, 1), Head(1, 1), "K"), "an edge")
    window.layout_of_docks.go_to("composition")
    yield settled(window)
    composition.actions_menu.aim(None)
    yield from write_note(window, composition.actions_menu.notes_menu, "Note on L0H1", "who tells it", "02f note on an edge")
    picture("02g noted")
    window.layout_of_docks.go_to("heads")
    yield settled(window)
    picture("02h heads with notes")
    window.lessons.open()
    yield settled(window)
    picture("02i story")
    window.layout_of_docks.go_to("predictions")
    yield settled(window)
    yield from save_as(window, folder / "talk.circuitlab")
    yield settled(window)
    picture("04 saved")
    QTest.keyClicks(window.prompt.editor, " ab")
    yield settled(window)
    key(window, KEY.Key_Left, ALT)
    yield lambda: settled(window)() and window.sessions.dirty
    picture("05 more work, autosaved")
    report(window, folder, "work")
    print("ready", flush=True)


def recover(window: Window, folder: Path) -> Act:
    """Started bare: the killed window's session is offered, recovered and saved."""
    yield lambda: window.recovering.dialog is not None and settled(window)()
    picture("06 offered")
    box = window.recovering.dialog
    assert box is not None
    later(lambda: QTest.mouseClick(box.rows[0].recover, BUTTON.LeftButton))
    yield lambda: window.recovering.dialog is None and window.sessions.path == folder / "talk.circuitlab" and settled(window)()
    yield in_front(window)
    picture("07 recovered")
    report(window, folder, "recover")
    key(window, KEY.Key_S, CTRL)
    yield lambda: not window.sessions.dirty and settled(window)()
    report(window, folder, "saved")
    picture("08 saved again")
    window.close()


def elsewhere(window: Window, folder: Path) -> Act:
    """In another place, for another person: no question."""
    yield lambda: window.sessions.path is not None and settled(window)()
    picture("09 elsewhere")
    report(window, folder, "elsewhere")
    window.lessons.open()
    yield settled(window)
    window.lessons.begin_own(0)
    yield settled(window)
    picture("10 its first step")
    window.lessons.tour.next()
    window.lessons.tour.next()
    yield settled(window)
    picture("10b its last step")
    window.lessons.tour.leave()
    yield settled(window)
    window.close()


def absent(window: Window, folder: Path) -> Act:
    """The model is gone: asked, and nothing is changed when the question is left."""
    yield lambda: dialog_of(ModelsDialog)
    box = dialog_of(ModelsDialog)
    assert isinstance(box, ModelsDialog)
    picture("11 model absent")
    (folder / "absent.json").write_text(json.dumps([line.text() for line, _ in box.rows.values()]))
    later(lambda: QTest.mouseClick(box.cancel, BUTTON.LeftButton))
    yield lambda: not dialog_of(ModelsDialog) and settled(window)()
    assert window.sessions.path is None
    window.close()


def changed(window: Window, folder: Path) -> Act:
    """Another model lies in its place: asked, used all the same, and every caption says so."""
    yield lambda: dialog_of(ModelsDialog)
    box = dialog_of(ModelsDialog)
    assert isinstance(box, ModelsDialog)
    picture("12 model changed")
    later(lambda: QTest.mouseClick(box.use, BUTTON.LeftButton))
    yield lambda: window.sessions.path is not None and settled(window)()
    picture("13 used all the same")
    report(window, folder, "changed")
    window.close()


STAGES = {stage.__name__: stage for stage in (work, recover, elsewhere, absent, changed)}


def play(stage: str, folder: Path, source: str | None) -> int:
    """A window as a person starts it, in which the stage is played."""
    fitted = main.show_fitting
    players = []

    def shown(window: Window) -> None:
        fitted(window)
        window.showNormal()  # offscreen, where the screen is small
        window.resize(1280, 800)
        players.append(Player(window, STAGES[stage](window, folder)))

    main.show_fitting = shown  # type: ignore[assignment]
    return main.open_window(source)


if __name__ == "__main__":
    sys.exit(play(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
