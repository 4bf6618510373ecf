"""A panel of several requests of which one fails: it says why, waits no longer, and draws the others where it can."""

from __future__ import annotations

from pathlib import Path

from pytestqt.qtbot import QtBot

from circuitlab.errors import BadInput
from circuitlab.figures.panels.models.models import SideBySideView
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.window import Window
from tests.gui.driving import settle
from tests.models import directory
from tests.words import not_compared


def _with(window: Window, qtbot: QtBot, models: str, page: str = "table") -> PanelDock:
    """The panel with these models beside the open one, when nothing is awaited."""
    dock = window.docks["side_by_side"]
    assert isinstance(dock, PanelDock)
    view = SideBySideView(page=page, models=models)  # type: ignore[arg-type]
    window.context.document.apply(window.context.document.state.with_view("side_by_side", view), "other models")
    settle(qtbot, window)
    return dock


def test_one_request_that_fails_is_said_and_holds_nothing_up(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    good, bad = directory(tmp_path / "good"), tmp_path / "bad"
    bad.mkdir()
    (bad / "config.json").write_text("{", encoding="utf-8")
    window.layout_of_docks.go_to("side_by_side")
    dock = _with(window, qtbot, f"{bad}, {good}")
    for page, marks in (("table", {"models", "tokens"}), ("text", {"text 1", "text 2"})):
        _with(window, qtbot, f"{bad}, {good}", page)
        figure = dock.view.figure
        assert {mark.name for mark in figure.marks()} == marks and "config.json" in figure.caption and not window.waiting
    _with(window, qtbot, str(bad), "text")
    assert {mark.name for mark in dock.view.figure.marks()} == {"text 1"}  # the open model, which is read all the same
    _with(window, qtbot, str(good))
    assert dock.view.figure.grid and "config.json" not in dock.view.figure.caption


def test_a_request_without_which_nothing_can_be_drawn_is_the_panels_reason(window: Window, qtbot: QtBot) -> None:
    dock = window.docks["composition"]
    assert isinstance(dock, PanelDock)
    window.layout_of_docks.go_to("composition")
    settle(qtbot, window)
    dock.feed.exchange._failed(BadInput("no scores"), ("now", "scores"))
    assert dock.view.figure.grid and "no scores" in dock.view.figure.caption
    dock.feed.exchange._failed(BadInput("no composition"), ("now", "composition"))
    assert not dock.view.figure.grid and "no composition" in dock.view.figure.why_empty


def test_a_folder_without_a_model_is_named_beside_those_that_are_compared(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    good, other = directory(tmp_path / "good"), tmp_path / "other"
    other.mkdir()
    window.layout_of_docks.go_to("side_by_side")
    dock = _with(window, qtbot, f"{other}, {good}")
    assert not dock.view.figure.why_empty and not_compared(dock.view.figure.caption) and "other" in dock.view.figure.caption


FAULTS = [KeyboardInterrupt(), ValueError("x" * 100_000), MemoryError(), BadInput("y" * 100_000), OSError()]


def test_why_a_panel_failed_is_bounded_and_in_words(window: Window, qtbot: QtBot) -> None:
    dock, heard = window.docks["attention"], []
    assert isinstance(dock, PanelDock)
    window.context.failed.disconnect()  # the dialog would wait for somebody
    window.context.failed.connect(heard.append)
    role, before = next(iter(dock.feed.exchange.requests["now"])), ""
    for error in FAULTS:
        heard.clear()
        dock.feed.exchange._failed(error, ("now", role))
        said = dock.view.figure.why_empty
        assert said != before and 10 < len(said) < 700 and ":." not in said and "KeyboardInterrupt" not in said, error
        assert bool(heard) == (isinstance(error, Exception) and not isinstance(error, BadInput)), error
        before = said


def test_an_error_of_any_length_has_a_dialog_that_fits(qtbot: QtBot) -> None:
    dialog = ErrorDialog(BadInput("y" * 100_000, got="z" * 100_000, remedy="w " * 50_000))
    qtbot.addWidget(dialog)
    assert len(dialog.text()) + len(dialog.informativeText()) < 4000 and "y" * 100_000 in dialog.report
