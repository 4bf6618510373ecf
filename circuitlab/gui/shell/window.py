"""The main window: its parts, the commands that concern several of them, and how it opens and closes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from PySide6.QtCore import QChildEvent, QEvent, Qt, QTimer, Slot
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QShowEvent
from PySide6.QtWidgets import QDockWidget, QMainWindow, QTabBar, QWidget

from circuitlab.engine.engine import GIB, Engine
from circuitlab.figures.contracts.panel import in_contract, panels
from circuitlab.figures.contracts.plugin_panels import absent, stand_in
from circuitlab.gui.checkpoints.bar import CheckpointBar
from circuitlab.gui.docks.interventions import InterventionsDock
from circuitlab.gui.docks.jobs import JobsDock
from circuitlab.gui.docks.log import LogDock
from circuitlab.gui.docks.prompt import PromptDock
from circuitlab.gui.lessons.dock import LessonsDock
from circuitlab.gui.lessons.film_export import FilmExport
from circuitlab.gui.lessons.sheet_export import SheetExport
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen
from circuitlab.gui.panel.plugin_dock import PluginDock
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.places.saved_layout import keep_geometry, layout_from_text, place_on_screen
from circuitlab.gui.presenter.preparing import Preparing
from circuitlab.gui.presenter.presenting import Presenting
from circuitlab.gui.sessions.autosave import Autosave, MakeSession
from circuitlab.gui.sessions.coming_back import Return
from circuitlab.gui.sessions.controller import SessionController
from circuitlab.gui.sessions.lesson_files import LessonFiles
from circuitlab.gui.sessions.recovering import START, Recovering
from circuitlab.gui.sessions.report_files import ReportFiles
from circuitlab.gui.sessions.step_copy import StepCopy
from circuitlab.gui.sessions.window_layout import layout_words
from circuitlab.gui.shell.bars import Status, TopBar
from circuitlab.gui.shell.command import AnyCommand
from circuitlab.gui.shell.dialogs import Dialogs
from circuitlab.gui.shell.looking_ahead import LookingAhead
from circuitlab.gui.shell.menus import Menus
from circuitlab.gui.shell.opening import Opening
from circuitlab.gui.shell.theme_controller import ThemeController
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.document import Document
from circuitlab.gui.work.settings import Settings
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.plugins import declared
from circuitlab.state.state import State
from circuitlab.story.setup import Setup

log = logging.getLogger("circuitlab.window")


class Window(QMainWindow):
    """See the module. `commands` are those of its menus; `remember` False neither reads nor saves layout and settings."""

    def __init__(
        self,
        engine: Engine,
        state: State,
        commands: Sequence[AnyCommand],
        remember: bool = True,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self.setObjectName("window")
        self.setAcceptDrops(True)
        self.setDockOptions(self.DockOption.AllowTabbedDocks | self.DockOption.AllowNestedDocks)
        self.remember, self._restored, self._ended = remember, False, False
        self.settings = settings or Settings(remember, self)
        self.context = AppContext(engine, Document(state, self), self.settings, self)
        self.state_commands = StateCommands(self.context, self)
        self.opening = Opening(self.context, remember, self)
        self.theme_controller = ThemeController(self.context, self)
        self.theme_controller.apply()
        self._make_docks()
        self.layout_of_docks = Layout(self, self.docks, self.context)
        self.sessions = SessionController(self, self, self.opening.recent)
        self.preparing = Preparing(self.sessions, self.lessons.session.readiness, self)
        self.autosave = Autosave(self.sessions, remember, self)
        self.recovering = Recovering(self.sessions, self.autosave, self)
        self.returning = Return()
        self.step_copy = StepCopy(self.context, self.layout_of_docks, self)
        self.lesson_files = LessonFiles(self.context, self.sessions, self)
        self.reports = ReportFiles(self.context, self.sessions, self)
        self.menus = Menus(self, commands, self.docks, self.lessons, self.layout_of_docks, self.opening, self.sessions)
        self.presenting = Presenting(self, self)
        self.dialogs = Dialogs(self.context, self.opening, self.menus, self)
        self._make_bars()
        self.films = FilmExport(self.context, self, self.lessons.tour, self)
        self.sheets = SheetExport(self.context, self, self.lessons.tour, self)
        self.layout_of_docks.arrange()
        self.ahead = LookingAhead(self.context, self.docks, self)
        self._connect()
        self._set_title()

    def _make_docks(self) -> None:
        # in this order they send their requests when the state changes: attention is drawn before all losses are computed
        self.docks: dict[str, QDockWidget] = {
            name: PanelDock(panel, self.context, self.state_commands, self) for name, panel in panels().items()
        }
        for addition in declared("panels"):  # imported when they are shown, not here
            if addition.name not in self.docks:
                self.docks[addition.name] = PluginDock(addition, self.context, self.state_commands, self)
        self.prompt = PromptDock(self.context, self.state_commands, self)
        self.docks["prompt"] = self.prompt
        self.jobs, self.log_dock = JobsDock(self.context, self), LogDock(self.context, self)
        self.docks["interventions"] = InterventionsDock(self.context, self.state_commands, self)
        self.lessons = LessonsDock(self, self)
        self.docks |= {"jobs": self.jobs, "log": self.log_dock, "lessons": self.lessons}

    def _make_bars(self) -> None:
        self.status = Status(self.context, self.opening, self)
        self.setStatusBar(self.status)
        self.autosave.failing.connect(self.status.stand)
        self.top = TopBar(self.context, self.opening, self.state_commands, self)
        self.addToolBar(self.top)
        self.checkpoints = CheckpointBar(self.context, self.state_commands, lambda: self.waiting, self)
        self.top.take_middle(self.checkpoints, self.checkpoints.compact)
        self.checkpoints.offer.asked.connect(self.dialogs.ask_checkpoints)
        self.lessons.model_wanted.connect(self.dialogs.ask_model)
        self.sessions.opening.model_wanted.connect(self.dialogs.ask_model_for)
        self.checkpoints.slider.sliderPressed.connect(self.top.strip.hold)
        self.checkpoints.slider.sliderReleased.connect(self.top.strip.release)

    def _connect(self) -> None:
        self.context.document.changed.connect(self._changed)
        self.opening.opened.connect(self.refresh)
        self.sessions.opened.connect(self._session_opened)
        self.sessions.pictures.shown.connect(self._session_opened)
        self.sessions.changed.connect(self._set_title)
        self.settings.changed.connect(self._setting_changed)
        self.settings.failed.connect(self._settings_failed)
        self.top.asks_folder.connect(self.dialogs.ask_open)
        self.top.asks_palette.connect(self.dialogs.show_palette)
        self.top.device_changed.connect(self.refresh)
        self.context.notes.changed.connect(self.top.refresh)
        self.top.strip.lines_changed.connect(self.layout_of_docks.keep_prompt)
        for dock in self._panels():
            self._connect_panel(dock)
        self.dialogs.jobs_wanted.connect(self._show_jobs)

    def _connect_panel(self, dock: PanelDock) -> None:
        dock.opens.connect(self.layout_of_docks.go_to)
        dock.sweeps.connect(self.dialogs.ask_sweep)
        dock.tables.connect(self.dialogs.ask_sweep_folder)

    @Slot()
    def _show_jobs(self) -> None:
        self.layout_of_docks.go_to("jobs")

    @Slot(str)
    def _settings_failed(self, message: str) -> None:
        """Report in the log and the status line which settings could not be read or saved; "" for none."""
        if message:
            log.warning(message)
            self.context.message.emit(message)

    def _panels(self) -> list[PanelDock]:
        return [dock for dock in self.docks.values() if isinstance(dock, PanelDock)]

    # -- what is shown ------------------------------------------------------------------------------------------------

    @Slot()
    def refresh(self) -> None:
        """Refresh the bars and every visible dock."""
        for dock in self.docks.values():
            refresh_dock = getattr(dock, "refresh", None)
            if refresh_dock is not None and on_screen(dock):
                refresh_dock()
        self.top.refresh()
        self.checkpoints.refresh()
        self._set_title()

    @property
    def waiting(self) -> bool:
        """Whether any visible dock awaits an answer."""
        return any(getattr(d, "waiting", False) for d in self.docks.values() if on_screen(d))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if old.model != new.model:
            self._set_title()

    @Slot()
    def _set_title(self) -> None:
        model, marked = self.context.name_of(self.context.document.state.model), self.sessions.marked
        session = self.sessions.name or ("Untitled" if marked else "")
        self.setWindowModified(False)
        only = " (read-only)" if self.sessions.read_only else ""
        mark = f"{session.replace('[*]', '[*][*]')}{only}[*] · " if session else ""
        self.setWindowTitle(f"{mark}{model} · CircuitLab")
        self.setWindowModified(marked)

    @Slot()
    def _session_opened(self) -> None:
        """Show the models of another session, which are open, and read and hash the rest of their weights."""
        for name, plugin in self.sessions.saved.plugins.items():
            if name not in self.docks:
                self._hold_place(name, plugin)
        model = self.context.engine.store.peek(self.context.document.state.model)
        if model is not None:
            self.opening.announce(model)
        self.refresh()

    def _hold_place(self, name: str, plugin: str) -> None:
        """A dock in place of a session's panel whose plug-in is not here, which says so."""
        panel = in_contract(stand_in(name, plugin, absent(plugin)))
        dock = self.docks[name] = PanelDock(panel, self.context, self.state_commands, self)
        self.layout_of_docks.add_dock(dock)
        self.menus.add_dock(name, dock)
        self._connect_panel(dock)

    @Slot(str)
    def _setting_changed(self, name: str) -> None:
        if name == "memory":
            self.context.engine.budget(round(self.settings["memory"] * GIB))
            self.jobs.refresh()

    # -- commands -----------------------------------------------------------------------------------------------------

    def open_model(self, source: str, text: str | None = None) -> None:
        """Open a model on the file thread; on success it replaces the present one."""
        self.opening.open(source, text)

    def set_theme(self, name: str) -> None:
        """Set the theme by name; "system" follows the desktop."""
        self.settings.set("theme", name)

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to undo, or typed text that has not been read yet."""
        return bool(self.context.document.undo_label) or self.context.loader.waiting or self.prompt.timer.isActive()

    @property
    def can_redo(self) -> bool:
        """Whether there is a step to redo."""
        return bool(self.context.document.redo_label)

    def undo(self) -> None:
        """Step back; text that is still being typed is recorded as a step first."""
        self.prompt.commit()
        self.context.undo()

    def redo(self) -> None:
        """Step forward."""
        self.context.redo()

    def release(self) -> None:
        """Restore the layout if a panel is maximised, else release the selection."""
        if self.layout_of_docks.maximised:
            self.toggle_maximised()
        else:
            self.state_commands.release()

    def edit_prompt(self) -> None:
        """Show the prompt and give its editor the keyboard focus."""
        self.layout_of_docks.go_to("prompt")
        self.prompt.editor.setFocus()

    def commit_typing(self) -> None:
        """Take text that is still being typed into the State."""
        if self.prompt.timer.isActive():
            self.prompt.commit()

    def layout_words(self) -> Setup:
        """The words of the present layout, for a step."""
        return layout_words(self.layout_of_docks)

    def copy_step(self) -> None:
        """Copy what is shown to the clipboard, as the words of a step."""
        self.commit_typing()
        self.step_copy.copy()

    def panel_action(self, name: str) -> None:
        """Run an action of the panel that was last used."""
        getattr(self.panel.actions_menu, name)()

    @property
    def panel(self) -> PanelDock:
        """The panel that was last used."""
        return self.layout_of_docks.current_panel

    def toggle_maximised(self, dock: QWidget | None = None) -> None:
        """Show one panel alone, or all panels again."""
        self.layout_of_docks.toggle_maximised(dock)

    def toggle_full_screen(self) -> None:
        """Fill the whole screen, or be a window again."""
        self.setWindowState(self.windowState() ^ Qt.WindowState.WindowFullScreen)

    def reset_zoom(self) -> None:
        """Reset the zoom of every panel."""
        for dock in self._panels():
            dock.see_whole()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Accept a session, a picture, a folder, or a file."""
        if event.mimeData().hasUrls() and event.mimeData().urls()[0].isLocalFile():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Open the dropped session, picture or model."""
        if not self.sessions.drop(event.mimeData()):
            self.opening.drop(event.mimeData())

    # -- opening and closing ------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Restore the layout once the window is on the screen."""
        super().showEvent(event)
        if not self._restored:
            self._restored = True
            self.layout_of_docks.proportions()
            if self.remember:
                place_on_screen(self)
            if not self.sessions.restore_layout() and self.remember:
                self._lay_out()
            self.sessions.pictures.bring_to_front()
            if self.remember:
                QTimer.singleShot(0, self, self._begin)
            self.checkpoints.refresh()  # a saved layout may hide it

    def come_back(self, to: Return) -> None:
        """Begin with what the last window left; before it is shown."""
        self.returning = to
        if to.staged is not None:
            self.sessions.resume(to.staged)
            self.autosave.came_back(to.stamp)

    def _lay_out(self) -> None:
        """As the last window was left; the first one shows the lessons."""
        layout = layout_from_text(self.returning.docks)
        if layout is not None:
            self.layout_of_docks.restore_layout(layout)
        elif self.returning.first:
            self.lessons.open()

    @Slot()
    def _begin(self) -> None:
        """What waits for the first paint: the sessions of windows that did not end in order."""
        if self.returning.problem:
            self.context.message.emit(self.returning.problem)
        if self.returning.opens is not None:
            self.sessions.open(self.returning.opens)
        self.recovering.look(START)
        self.dialogs.sweeps.come_back()

    def childEvent(self, event: QChildEvent) -> None:
        """Name the tab bars of docks for screen readers and show their titles in full, neither of which Qt does."""
        super().childEvent(event)
        if event.type() == QEvent.Type.ChildPolished and isinstance(tabs := event.child(), QTabBar):
            tabs.setAccessibleName("Panels that share this place")
            tabs.setElideMode(Qt.TextElideMode.ElideNone)  # scroll buttons lead to the tabs for which there is no room
            tabs.setUsesScrollButtons(True)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the desktop's colour scheme when it changes; whoever comes back may have written a model's files meanwhile."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ActivationChange and self.isActiveWindow():
            self.context.look_at_files()
        if event.type() == QEvent.Type.ThemeChange:
            self.theme_controller.follow()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Save the layout and stop the workers, after a question about unsaved changes and running work."""
        if not self._ended and (not self.sessions.may_close() or not self.dialogs.may_close()):
            event.ignore()
            return
        self._end()
        super().closeEvent(event)

    def end_unasked(self) -> None:
        """End as when it is closed, where nobody can be asked: what is unsaved of a session with a file is offered at the next
        start, running work is cancelled, and a training saves its state."""
        self.commit_typing()
        self.dialogs.end_unasked()
        self._end(self.autosave.unsaved())

    def _end(self, unsaved: MakeSession | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        self.presenting.end()
        self.checkpoints.player.stop()
        self.lessons.put_back()
        session = self.autosave.last_session()
        if self.remember:
            keep_geometry(self)
        if self.context.runner.busy:
            self.statusBar().showMessage("Waiting for running work to stop…")
            self.statusBar().repaint()
        for work in (self.ahead, self.films, self.reports):
            work.stop()
        self.context.processes.leave()
        self.context.runner.close()
        self.autosave.end(session, unsaved)
        self.sessions.hold.release()
        self.log_dock.close_log()
