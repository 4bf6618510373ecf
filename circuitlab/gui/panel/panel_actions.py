"""The actions of every panel, which follow from its requests and registration: maximise, copy, export, Python, Explain."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QPoint, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from circuitlab.disk.formats import DATA, PICTURES, dialog_filter, listed
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.engine import Engine
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.figures.contracts.panel import Panel
from circuitlab.figures.marks import Hit
from circuitlab.gui.panel import panel_data
from circuitlab.gui.panel.explain import ExplainDialog
from circuitlab.gui.panel.feed import Feed
from circuitlab.gui.panel.notes_menu import NotesMenu
from circuitlab.gui.panel.offers_menu import OffersMenu
from circuitlab.gui.panel.sweep_question import why_no_sweep
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.pictures.picture_export import PictureExport
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.story.zoom import name_of

SWEEP, SWEEP_TIP = "Do this over…", "Over training steps and prompts: a sweep in a process of its own"
TABLES, TABLES_TIP = "Open a sweep…", "The folder of a sweep: how far it is, and what its table says"


class PanelHost(Protocol):
    """What the actions need of the panel they act on."""

    panel: Panel
    context: AppContext
    state_commands: StateCommands

    @property
    def view(self) -> FigureView: ...

    @property
    def bar(self) -> TitleBar: ...

    @property
    def feed(self) -> Feed: ...


class PanelActions(QMenu):
    """The menu behind ⋯ and under the right mouse button. `parent`: the widget of `dock`, the same object in the application.

    `sweep_wanted()`: what the panel asks is to be asked over training steps and prompts. `tables_wanted()`: those of a sweep.
    """

    sweep_wanted = Signal()
    tables_wanted = Signal()

    def __init__(self, dock: PanelHost, parent: QWidget) -> None:
        super().__init__(parent)
        self.dock, self.widget = dock, parent
        self.setTitle(dock.panel.title)
        self.setObjectName(f"menu.{dock.panel.name}")
        for title, handler in (
            ("Maximise or restore", self.maximise),
            ("Reset zoom", self.reset_zoom),
            ("Compute again", self.again),
            (None, None),
            ("Pin as the reference", self.pin),
            (SWEEP, self.sweep_wanted),
            *(((TABLES, self.tables_wanted),) if dock.panel.opens_sweeps else ()),
            (None, None),
            ("Copy image", self.copy_image),
            ("Copy table", self.copy_table),
            ("Copy as Python", self.copy_python),
            ("Copy as command", self.copy_command),
            (None, None),
            (f"Export picture ({listed(PICTURES)})…", self.export_picture),
            (f"Export data ({listed(DATA)})…", self.export_data),
            ("Export data with full paths…", self.export_data_with_paths),
            (None, None),
            ("Explain", self.explain),
        ):
            if title is None:
                self.addSeparator()
            else:
                self.addAction(title).triggered.connect(handler)
        self.offers_menu = OffersMenu(dock.context, dock.feed.pick, dock.state_commands, self)
        self.offers_menu.setObjectName(f"menu.{dock.panel.name}.cuts")
        self.notes_menu = NotesMenu(dock.context, dock.feed.pick, self, dock.panel.name)
        self.notes_menu.setObjectName(f"menu.{dock.panel.name}.notes")
        self.sweep_action = next(action for action in self.actions() if action.text() == SWEEP)
        self.setToolTipsVisible(True)
        self.aboutToShow.connect(self._say_whether_it_can_be_swept)
        first = self.actions()[0]
        self.insertMenu(first, self.offers_menu)
        self.insertMenu(first, self.notes_menu)
        self.insertSeparator(first)
        self.aboutToHide.connect(self.offers_menu.forget)
        self.aboutToHide.connect(self.notes_menu.forget)
        runner = dock.context.runner
        self._command = WorkSlot(self, finished=self._command_ready, failed=self._command_failed)
        feed, panel = dock.feed, dock.panel
        self.pictures = PictureExport(
            dock.view, dock.context, parent, panel.name, self.subject, feed.figure, feed.picture_view, parent=self
        )
        self._slots = WorkSlots(self, runner.is_busy, finished=self._export_finished, failed=self._export_failed)  # by file

    @Slot()
    def _say_whether_it_can_be_swept(self) -> None:
        why_not = why_no_sweep(self.dock.panel, self.dock.context)
        self.sweep_action.setEnabled(not why_not)
        self.sweep_action.setToolTip(tip_of(why_not or SWEEP_TIP))

    @Slot()
    def open_own(self) -> None:
        """What a double-click on the selected item does: go to the linked panel."""
        if not self.dock.feed.open_linked_panel():
            self.dock.context.message.emit(f"{self.dock.panel.title} has no panel to go on to.")

    @Slot()
    def show_menu(self) -> None:
        """This menu, about the selection, at the top of the panel."""
        self.aim(None)
        self.popup(self.widget.mapToGlobal(QPoint(0, 0)))

    @Slot()
    def fold_caption(self) -> None:
        """Show the whole caption of the figure, or only a few lines of it."""
        fold = self.dock.view.fold
        if not fold.isHidden():
            fold.toggle()
        else:
            self.dock.context.message.emit(f"The whole caption of {self.dock.panel.title} is already shown.")

    @Slot()
    def maximise(self) -> None:
        """Show this panel alone, or all panels again."""
        self.dock.bar.maximise()

    @Slot()
    def pin(self) -> None:
        """Pin the present subject as the reference of differences."""
        self.dock.state_commands.pin()

    def aim(self, hit: Hit | None) -> None:
        """Set what the menu is about: the item under the pointer, or with None the selection."""
        self.offers_menu.aim(hit)
        self.notes_menu.aim(hit)

    @Slot()
    def again(self) -> None:
        """Compute again, including what failed or was cancelled."""
        self.dock.feed.ask_again()

    @Slot()
    def reset_zoom(self) -> None:
        """Bring the whole figure into view."""
        self.dock.view.reset_view()

    @Slot()
    def copy_image(self) -> None:
        """Copy the figure to the clipboard as an image."""
        self.pictures.copy()

    @Slot()
    def copy_table(self) -> None:
        """Copy the numbers behind the figure, tab-separated."""
        table = self.dock.feed.drawn_table()
        self._copy(lambda engine, drawn: panel_data.table_text_of(engine, drawn, table), "Table copied.", "tables copied.")

    @Slot()
    def copy_python(self) -> None:
        """Copy a Python snippet that computes the same numbers."""
        self._copy(panel_data.python_of, "Python copied.", "answers copied as Python.")

    @Slot()
    def copy_command(self) -> None:
        """Copy the command that draws this figure in a terminal, with all that is looked at."""
        context, panel, state = self.dock.context, self.dock.panel.name, self.dock.context.document.recorded
        zoom = {name_of(panel, mark): part for mark, part in self.dock.feed.zoom.words().items()}
        work = lambda job: panel_data.command_of(context.engine.store, panel, state, zoom)
        context.runner.do(self._command, f"copy {panel} as a command", work)

    @Slot(object)
    def _command_ready(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.dock.context.message.emit("Command copied.")

    @Slot(object)
    def _command_failed(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.dock.context.failed.emit(error)

    def _copy(self, text_of: Callable[[Engine, panel_data.Drawn], tuple[str, int]], one: str, more: str) -> None:
        """Copy a text of the drawn answers and report how many it covers; without answers the clipboard is left alone."""
        try:
            text, n = text_of(self.dock.context.engine, self.dock.feed.drawn_answers())
        except CircuitLabError as error:
            self.dock.context.failed.emit(error)
            return
        if n:
            QGuiApplication.clipboard().setText(text)
        self.dock.context.message.emit((one if n == 1 else f"{n} {more}") if n else panel_data.NOTHING)

    @Slot()
    def export_picture(self) -> None:
        """Ask for size, type and ink, then for a file, and write the figure."""
        self.pictures.ask()

    def subject(self) -> str:
        """What the figure shows: panel, heads, model."""
        view, context = self.dock.view, self.dock.context
        title = (view.figure if view.figure.grid else self.dock.feed.figure()).title
        heads = dict.fromkeys(re.findall(r"\bL\d+H\d+\b", title))
        shown = self.dock.feed.model
        facts = context.facts_if_open(shown)
        return ", ".join((self.dock.panel.title, *heads, shown.name if facts is None else facts.name))

    def write_picture(self, path: Path, paper: Paper | None = None, whole: bool = False) -> None:
        """Write the figure: where it is zoomed, the visible part, as its caption then says; or the `whole` figure."""
        self.pictures.write(path, paper, whole)

    @Slot()
    def export_data(self) -> None:
        """Ask for a file and write the numbers, with models and files by their names."""
        self._ask_and_write(folders=False)

    @Slot()
    def export_data_with_paths(self) -> None:
        """The same, saying in which folders models and files lie: for oneself, not for others."""
        self._ask_and_write(folders=True)

    def _ask_and_write(self, folders: bool) -> None:
        n = sum(map(len, self.dock.feed.drawn_answers().values()))
        if not n:
            self.dock.context.message.emit(panel_data.NOTHING)
            return
        suggested = self.dock.context.exports.suggest(f"{self.dock.panel.name}{DATA[0].suffix}{'.zip' if n > 1 else ''}")
        name, _ = QFileDialog.getSaveFileName(self.widget, "Export data", suggested, dialog_filter(DATA, zipped=n > 1))
        if name:
            self.dock.context.exports.used(Path(name))
            self.write_data(Path(name), folders)

    def write_data(self, path: Path, folders: bool = False) -> None:
        """Write every drawn answer: one as a file, several as a zip; on a worker where files must be read first."""
        context, drawn, table = self.dock.context, self.dock.feed.drawn_answers(), self.dock.feed.drawn_table()
        context.before_export()
        write = lambda: panel_data.write(context.engine, drawn, path, table, folders)
        if not panel_data.at_hand(context.engine, drawn):
            context.runner.do(self._slots[path], f"write {path.name}", lambda job: write())
            return
        try:
            self._report_written(write())
        except CircuitLabError as error:
            context.failed.emit(error)

    @Slot(object)
    def _export_finished(self, path: Path | None) -> None:
        self._slots.keep_only(())
        self._report_written(path)

    def _report_written(self, path: Path | None) -> None:
        self.dock.context.message.emit(f"Written: {path}" if path else panel_data.NOTHING)

    @Slot(object)
    def _export_failed(self, error: BaseException) -> None:
        self._slots.keep_only(())
        if not isinstance(error, Cancelled):
            self.dock.context.failed.emit(error)

    @Slot()
    def explain(self) -> None:
        """Show the panel's equation, its shapes for this model, and its source."""
        self.explainer().exec()

    def explainer(self) -> ExplainDialog:
        """The dialog that Explain shows."""
        context = self.dock.context
        n = len(context.document.state.tokens)
        caption = self.dock.view.figure.caption
        return ExplainDialog(self.dock.panel, context.facts(), n, caption, context.theme, self.widget)
