"""A finding shown, from the first look to the figures of a paper, in the real window on a screen with the stage on another.

    python -m tests.shown FOLDER

An X server of one's own has a laptop's screen and a projector's. With mouse and keyboard the induction head is found, cut and
noted, five views are kept, the story is saved and prepared, presented with a clicker, written as a report and as figures of three
widths. `FOLDER` gets the files, a picture of each screen after each act and, in `shown.json`, what was seen on the way.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.x_screens import x_server

PLAYS = __name__ == "__main__" and len(sys.argv) > 2
journey: Any = importlib.import_module("tests.journey") if PLAYS else None  # which imports torch before Qt

TEXT = "Mr and Mrs Hursley of the mill, said that Mr and Mrs Hursley"
MODEL, HEAD = "builtin:attn-only-2l", "L1H1"
LAPTOP, BEAMER = (0, 0, 1280, 800), (1280, 0, 1920, 1080)
WIDTHS = (84, 120, 174)  # mm
Act = Any


def show(folder: Path) -> dict[str, Any]:
    """Play all of it, in a process of its own on a server of its own; what was seen."""
    with x_server(3200, 1080) as server:
        server.add("laptop", LAPTOP)
        server.add("beamer", BEAMER)
        homes = {f"XDG_{name}_HOME": str(folder / "home" / name.lower()) for name in ("STATE", "CONFIG", "CACHE", "DATA")}
        environment = {**os.environ, **homes, "HOME": str(folder / "home"), "QT_QPA_PLATFORM": "xcb", "DISPLAY": server.display}
        (folder / "home").mkdir(parents=True)
        command = [sys.executable, "-m", "tests.shown", str(folder), "play"]
        root = Path(__file__).parents[1]
        done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "shown.json").read_text("utf-8"))


# -- in the process of the window -----------------------------------------------------------------------------------------------


def picture(folder: Path, name: str) -> None:
    """Keep what each screen shows."""
    journey.QApplication.processEvents()
    journey.QTest.qWait(300)  # so that the X server has it
    for screen in journey.QGuiApplication.screens():
        screen.grabWindow(0).save(f"{folder}/{name} {screen.name()}.png")


def click(widget: Any, at: Any = None) -> None:
    """A click at a point of a widget, the middle by default, as the X server gives it: to the native window."""
    window = widget.window()
    place = widget.mapTo(window, widget.rect().center() if at is None else at)
    journey.QTest.mouseClick(window.windowHandle(), journey.BUTTON.LeftButton, pos=place)


def to_panel(window: Any, name: str) -> None:
    """A click on the tab of a panel."""
    from PySide6.QtWidgets import QTabBar

    title = window.docks[name].windowTitle()
    for bar in window.findChildren(QTabBar):
        for i in range(bar.count()):
            if bar.tabText(i) == title and bar.isVisible():
                click(bar, bar.tabRect(i).center())
                return
    journey.fail(f"no tab of {title}")


def command(window: Any, name: str) -> Any:
    """The entry of a menu."""
    return next(a for a in window.menus.actions if getattr(getattr(a, "command", None), "name", "") == name)


def into_file(window: Any, path: Path) -> Act:
    """Name a file in the dialog that asks for one, and press its button, once it has read the folder."""
    yield lambda: journey.dialog_of(journey.QFileDialog)
    box = journey.dialog_of(journey.QFileDialog)
    buttons = box.findChild(journey.QDialogButtonBox)
    buttons.buttons()[0].setFocus()  # a field in which somebody types is not filled by the dialog
    box.selectFile(str(path))
    yield lambda: buttons.buttons()[0].isEnabled() and box.selectedFiles() == [str(path)]
    picture(path.parent, f"file {path.name}")
    journey.later(lambda: journey.QTest.mouseClick(buttons.buttons()[0], journey.BUTTON.LeftButton))
    yield lambda: journey.dialog_of(journey.QFileDialog) is None


def find(window: Any, folder: Path) -> Act:
    """The prompt is typed; of all heads the first in the ranking, which is by prefix matching, is chosen."""
    yield journey.in_front(window)
    click(window.prompt.editor.viewport())
    journey.key(window, journey.KEY.Key_A, journey.CTRL)
    journey.QTest.keyClicks(window.prompt.editor, TEXT)
    yield journey.settled(window)
    to_panel(window, "heads")
    yield journey.settled(window)
    ranking = window.docks["heads"].view.widget("ranking")
    picture(folder, "01 heads")
    table = ranking.table
    first = journey.QPoint(20, table.rowViewportPosition(0) + table.rowHeight(0) // 2)
    click(table.viewport(), first)
    yield lambda: str(window.context.document.recorded.selection.head) == HEAD and journey.settled(window)()
    picture(folder, "02 found")


def keep(window: Any, folder: Path) -> Act:
    """Four views and a film are kept as steps; the head is cut and noted on the way."""
    key, KEY = journey.key, journey.KEY
    to_panel(window, "attention")
    yield journey.settled(window)
    yield from journey.keep_step(window, 1)
    for count, panel in ((2, "composition"), (3, "circuits")):
        to_panel(window, panel)
        yield journey.settled(window)
        yield from journey.keep_step(window, count)
        picture(folder, f"03 kept {panel}")
    target, at = journey.tile(window, journey.Head.parse(HEAD))
    menu = window.docks["overview"].actions_menu
    asked = journey.QContextMenuEvent(journey.QContextMenuEvent.Reason.Mouse, at, target.mapToGlobal(at))
    journey.later(lambda: journey.QApplication.sendEvent(target, asked))
    yield menu.isVisible
    yield from journey.write_note(window, menu.notes_menu, f"Note on {HEAD}", "copies what came after *Mrs* before", "note")
    key(window, KEY.Key_B, journey.CTRL)
    yield journey.settled(window)
    to_panel(window, "predictions")
    yield journey.settled(window)
    yield from journey.keep_step(window, 4)
    picture(folder, "04 cut")
    key(window, KEY.Key_B, journey.CTRL)
    key(window, KEY.Key_6, journey.CTRL | journey.ALT)
    yield journey.settled(window)
    to_panel(window, "training")
    yield journey.settled(window)
    command(window, "checkpoint-film").trigger()
    yield lambda: len(window.lessons.own.story.steps) == 5 and journey.settled(window)()
    picture(folder, "05 five views")


def prepare(window: Any, folder: Path) -> Act:
    """Saved, and prepared by the button under the steps."""
    journey.later(lambda: journey.key(window, journey.KEY.Key_S, journey.CTRL))
    yield from into_file(window, folder / "talk.circuitlab")
    yield lambda: window.sessions.path is not None and not window.sessions.dirty
    yield journey.in_front(window)
    window.lessons.open()
    yield journey.settled(window)
    click(window.preparing.row.button)
    yield lambda: window.preparing.readiness.is_ready and journey.settled(window)()
    picture(folder, "06 prepared")


def present(window: Any, folder: Path, seen: dict[str, Any]) -> Act:
    """*Present…*, four presses of Page Down, a frozen picture, the end. Nothing is computed."""
    from circuitlab.engine.engine import Engine
    from circuitlab.gui.presenter.dialog import PresentDialog

    requests: list[str] = []
    compute: Callable[..., Any] = Engine._compute

    def noted(self: Any, cache: Any, request: Any, *more: Any) -> Any:
        requests.append(request.analysis)
        return compute(self, cache, request, *more)

    Engine._compute = noted  # type: ignore[method-assign]
    press = lambda code: journey.QTest.keyClick(window.presenting.talk.stage.windowHandle(), code)
    command(window, "present").trigger()
    yield lambda: journey.dialog_of(PresentDialog)
    picture(folder, "07 present")
    click(journey.dialog_of(PresentDialog).begin)
    yield lambda: window.presenting.talk is not None
    talk = window.presenting.talk
    quiet = lambda: not talk.stage.waiting and not talk.stage.film.running and not talk._drawing.isActive()
    steps = seen.setdefault("steps", [])
    for number in range(5):
        yield quiet
        picture(folder, f"08 step {number + 1}")
        stage, view = talk.stage, talk.view
        steps.append(
            {
                "number": stage.index,
                "stage": stage.screen().name(),
                "place": stage.frameGeometry().getRect(),
                "window": window.screen().name(),
                "notes": view.notes.toPlainText(),
                "ready": view.ready.text(),
            }
        )
        if number < 4:
            press(journey.KEY.Key_PageDown)
    press(journey.KEY.Key_F)
    press(journey.KEY.Key_PageUp)
    yield quiet
    picture(folder, "09 frozen")
    press(journey.KEY.Key_Escape)
    press(journey.KEY.Key_Escape)
    yield lambda: window.presenting.talk is None
    seen["computed"], Engine._compute = requests, compute  # type: ignore[method-assign]
    yield journey.in_front(window)
    picture(folder, "10 given back")


def write(window: Any, folder: Path) -> Act:
    """A report, and a figure of the window's parts at each width."""
    from circuitlab.gui.lessons.film_dialog import FilmDialog
    from circuitlab.gui.pictures.paper_dialog import PaperDialog

    for name in ("talk.html", "talk.pdf"):
        journey.later(command(window, "report").trigger)
        yield from into_file(window, folder / name)
        yield lambda name=name: (folder / name).exists() and journey.settled(window)()
    for theme in ("theme-dark", "theme-light"):
        command(window, theme).trigger()
        command(window, "export-film").trigger()
        yield lambda: journey.dialog_of(FilmDialog)
        picture(folder, f"11 film {theme}")
        journey.dialog_of(FilmDialog).reject()
        yield journey.in_front(window)
    window.lessons.begin_own(3)
    yield journey.settled(window)
    for width in WIDTHS:
        command(window, "export-sheet").trigger()
        yield lambda: journey.dialog_of(PaperDialog)
        box = journey.dialog_of(PaperDialog)
        box.preset.setCurrentIndex(box.preset.findData(float(width)))
        box.preset.activated.emit(box.preset.currentIndex())
        yield lambda box=box: not box.preview.timer.isActive()
        picture(folder, f"12 paper {width}")
        journey.later(lambda box=box: click(box.primary))
        yield from into_file(window, folder / f"fig{width}.pdf")
        yield lambda width=width: (folder / f"fig{width}.pdf").exists() and journey.settled(window)()
        yield journey.in_front(window)


def whole(window: Any, folder: Path) -> Act:
    """All of it."""
    seen: dict[str, Any] = {}
    for act in (find(window, folder), keep(window, folder), prepare(window, folder)):
        yield from act
    recorded = window.context.document.work
    seen["window"] = window.frameGeometry().getRect()
    seen["titles"] = [step.title for step in recorded.story.steps]
    seen["head"] = next(note.head for note in recorded.notes)
    yield from present(window, folder, seen)
    seen["unchanged"] = window.context.document.work == recorded
    yield from write(window, folder)
    (folder / "shown.json").write_text(json.dumps(seen, indent=1), "utf-8")
    window.sessions.may_close = lambda: True
    window.close()


def play(folder: Path) -> int:
    """The window on the laptop, in which it is played."""
    players: list[Any] = []
    fitted = journey.main.show_fitting

    def shown(window: Any) -> None:
        fitted(window)
        window.setGeometry(*LAPTOP)
        players.append(journey.Player(window, whole(window, folder)))

    journey.main.show_fitting = shown
    return journey.main.open_window(MODEL)


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    sys.exit(play(target) if PLAYS else print(json.dumps(show(target), indent=1)))
