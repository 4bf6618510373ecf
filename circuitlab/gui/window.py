"""The main window: docks, menus from the commands, theme, dialogs. Opening, layout and moves have files of their own."""

from __future__ import annotations

import logging
import time

from PySide6.QtCore import QEvent, Qt, Slot
from PySide6.QtGui import QAction, QCloseEvent, QDragEnterEvent, QDropEvent, QGuiApplication, QShowEvent
from PySide6.QtWidgets import QApplication, QDockWidget, QFileDialog, QMainWindow, QMenu, QMessageBox, QWidget

from circuitlab import __version__
from circuitlab.draw.theme import DARK, LIGHT, Theme, apply_theme
from circuitlab.engine.engine import GIB, Engine
from circuitlab.errors import CircuitLabError
from circuitlab.figures.panel import panels
from circuitlab.gui.assumptions_dialog import AssumptionsDialog, plain, questions
from circuitlab.gui.bars import Status, TopBar
from circuitlab.gui.bench import Bench
from circuitlab.gui.checkpoints import CheckpointBar
from circuitlab.gui.chrome import scaled, sheet
from circuitlab.gui.commands import COMMANDS, MENUS, CommandAction
from circuitlab.gui.docks.interventions import InterventionsDock
from circuitlab.gui.docks.jobs import JobsDock
from circuitlab.gui.docks.lessons import LessonsDock
from circuitlab.gui.docks.log import LogDock
from circuitlab.gui.docks.prompt import PromptDock
from circuitlab.gui.document import Document
from circuitlab.gui.errors import ErrorDialog
from circuitlab.gui.hub_dialog import HubDialog
from circuitlab.gui.layout import Layout
from circuitlab.gui.looking_ahead import LookingAhead
from circuitlab.gui.moves import Moves
from circuitlab.gui.opening import WEIGHT_FILES, Opening
from circuitlab.gui.palette import Palette, ShortcutSheet
from circuitlab.gui.panel_dock import PanelDock, on_screen
from circuitlab.gui.settings import Settings, SettingsDialog
from circuitlab.gui.training_dialog import TrainingDialog
from circuitlab.model.hub import HubName
from circuitlab.model.subject import ModelRef
from circuitlab.session.state import State

log = logging.getLogger("circuitlab.window")
LONG = 3.0  # s: work that has run for longer is not thrown away unasked


class Window(QMainWindow):
    """See the module. `remember` False leaves the person's layout and settings alone (pictures, tests)."""

    def __init__(self, engine: Engine, state: State, remember: bool = True, settings: Settings | None = None) -> None:
        super().__init__()
        self.setObjectName("window")
        self.setAcceptDrops(True)
        self.setDockOptions(self.DockOption.AllowTabbedDocks | self.DockOption.AllowNestedDocks)
        self.remember = remember
        self.settings = settings or Settings(remember, self)
        self.bench = Bench(engine, Document(state, self), self.settings, self)
        self.moves = Moves(self.bench, self)
        self.opening = Opening(self.bench, remember, self)
        self.docks: dict[str, QDockWidget] = {}
        self._hub: HubDialog | None = None
        self._training: TrainingDialog | None = None
        self._restored, self._saying = False, False
        self._actions: list[QAction] = []
        self._apply_theme()
        self._make_docks()
        self.layout_of_docks = Layout(self, self.docks)
        self._make_menus()
        self.status = Status(self.bench, self)
        self.setStatusBar(self.status)
        self.top = TopBar(self.bench, self.opening, self.moves, self)
        self.addToolBar(self.top)
        self.checkpoints = CheckpointBar(self.bench, self.moves, lambda: self.waiting, self)
        self.addToolBarBreak()
        self.addToolBar(self.checkpoints)
        self.layout_of_docks.arrange()
        self.ahead = LookingAhead(self.bench, self.docks, self)
        self._connect()
        self._title()

    def _make_docks(self) -> None:
        # In this order they ask when the state changes: attention is on the screen before every loss has been unembedded.
        for name, panel in panels().items():
            self.docks[name] = PanelDock(panel, self.bench, self)
        self.prompt = PromptDock(self.bench, self)
        self.docks["prompt"] = self.prompt
        self.jobs, self.log_dock = JobsDock(self.bench, self), LogDock(self.bench, self)
        self.docks["interventions"] = InterventionsDock(self.bench, self.moves, self)
        self.lessons = LessonsDock(self)
        self.docks |= {"jobs": self.jobs, "log": self.log_dock, "lessons": self.lessons}

    def _make_menus(self) -> None:
        menus: dict[str, QMenu] = {name: self.menuBar().addMenu(f"&{name}") for name in MENUS}
        for menu in list(menus.values()):
            menu.aboutToShow.connect(self.refresh_actions)
            menu.aboutToHide.connect(self.enable_actions)
        for command in COMMANDS:
            action = CommandAction(command, self)
            menu = menus[command.menu]
            if command.submenu:
                if command.submenu not in menus:
                    menus[command.submenu] = menu.addMenu(command.submenu)
                menu = menus[command.submenu]
            if command.separator:
                menu.addSeparator()
            menu.addAction(action)
            self.addAction(action)
            self._actions.append(action)
            if command.name == "open":
                self._recent_menu = menu.addMenu("Open recent")
                self._recent_menu.aboutToShow.connect(self._fill_recent)
        self._lesson_actions = self.lessons.fill_menu(menus["Help"].addMenu("Lesson"))
        panel_menu = menus["View"].addMenu("Panels")
        for name, dock in self.docks.items():
            panel_menu.addAction(dock.toggleViewAction())
            go = QAction(f"Go to {dock.windowTitle()}", self)
            go.setObjectName(f"goto.{name}")
            known = panels().get(name)
            if known is not None and known.shortcut:
                go.setShortcut(known.shortcut)
            go.setData(name)
            go.triggered.connect(self._go_to)
            self.addAction(go)
            menus["Go"].addAction(go)
            self._actions.append(go)

    def _connect(self) -> None:
        bench = self.bench
        bench.document.changed.connect(self._changed)
        bench.failed.connect(self.show_error)
        self.opening.opened.connect(self.refresh)
        self.opening.wanted.connect(self.ask_hub)
        self.opening.asked.connect(self.ask_assumptions)
        self.settings.changed.connect(self._setting)
        self.checkpoints.moving.connect(self.layout_of_docks.keep_prompt)
        for dock in self.docks.values():
            if isinstance(dock, PanelDock):
                dock.opens.connect(self.layout_of_docks.go_to)

    # -- what is shown ------------------------------------------------------------------------------------------------

    @Slot()
    def refresh(self) -> None:
        """Ask again for what every visible dock shows."""
        for dock in self.docks.values():
            again = getattr(dock, "refresh", None)
            if again is not None and on_screen(dock):
                again()
        self.top.refresh()
        self.checkpoints.refresh()
        self._title()

    @Slot()
    def refresh_actions(self) -> None:
        """Before menu or palette: what can be run, and what undo would take back."""
        document = self.bench.document
        for action in self._actions:
            if isinstance(action, CommandAction):
                action.refresh()
                label = {"undo": document.undo_label, "redo": document.redo_label}.get(action.command.name, "")
                action.setText(f"{action.command.title} {label}".strip())

    @Slot()
    def enable_actions(self) -> None:
        """A disabled action would swallow its shortcut: whether it can be run is asked when it is."""
        for action in self._actions:
            action.setEnabled(True)

    @property
    def waiting(self) -> bool:
        """Whether any visible dock awaits an answer."""
        return any(getattr(d, "waiting", False) for d in self.docks.values() if on_screen(d))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if old.model != new.model:
            self._title()

    def _title(self) -> None:
        self.setWindowTitle(f"{self.bench.name_of(self.bench.document.state.model)} · CircuitLab")

    # -- commands -----------------------------------------------------------------------------------------------------

    def open_model(self, source: str, text: str | None = None) -> None:
        """Open a model on the file thread; on success it takes the place of the present one."""
        self.opening.open(source, text)

    def ask_open(self) -> None:
        """A folder dialog."""
        path = QFileDialog.getExistingDirectory(self, "Open model: the folder with config.json")
        if path:
            self.open_model(path)

    def ask_open_file(self) -> None:
        """A dialog for one weight file: state dicts, nanoGPT's and llama2.c's checkpoints."""
        kinds = " ".join(f"*{suffix}" for suffix in WEIGHT_FILES)
        path, _ = QFileDialog.getOpenFileName(self, "Open model file", "", f"Weights ({kinds});;All files (*)")
        if path:
            self.open_model(path)

    @Slot(object)
    def ask_hub(self, name: HubName | None = None) -> None:
        """The hub's dialog; with a name it begins at once. It outlives being closed, as a download does."""
        if self._hub is None:
            self._hub = HubDialog(self.opening, self)
        self._hub.show()
        self._hub.raise_()
        if name is not None:
            self._hub.start(name)

    def ask_training(self) -> None:
        """What to train, or the run that is going on."""
        if self._training is None:
            self._training = TrainingDialog(self.bench, self)
            self._training.opens.connect(self.open_model)
        self._training.show()
        self._training.raise_()

    def show_assumptions(self) -> None:
        """What no file of the open model says, to correct."""
        AssumptionsDialog(self.opening, self.bench.document.state.model, self.opening.assumptions(), self).show()

    @Slot(object, object)
    def ask_assumptions(self, ref: ModelRef, error: CircuitLabError) -> None:
        """What must be said before a model can be opened; the open one stays meanwhile."""
        dialog = AssumptionsDialog(self.opening, ref, questions(ref, error), self)
        dialog.said.setText(plain(error))
        dialog.show()

    @property
    def can_undo(self) -> bool:
        """Whether there is a step back, or typing that has not been taken in yet."""
        return bool(self.bench.document.undo_label) or self.bench.driver.waiting or self.prompt.timer.isActive()

    @property
    def can_redo(self) -> bool:
        """Whether there is a step forward."""
        return bool(self.bench.document.redo_label)

    def undo(self) -> None:
        """Step back; what is being typed is a step of its own."""
        self.prompt.commit()
        self.bench.driver.undo()

    def redo(self) -> None:
        """Step forward."""
        self.bench.driver.redo()

    def release(self) -> None:
        """Nothing is locked any more; a maximised panel comes back."""
        if self.layout_of_docks.maximised:
            self.toggle_maximised()
        else:
            self.moves.release()

    def edit_prompt(self) -> None:
        """The keyboard to the editor."""
        self.layout_of_docks.go_to("prompt")
        self.prompt.editor.setFocus()

    def copy_session(self) -> None:
        """The whole State as JSON, on the clipboard."""
        from circuitlab.session.jsonfile import state_to_text

        QGuiApplication.clipboard().setText(state_to_text(self.bench.document.recorded))
        self.bench.readout.emit("Session copied as JSON.")

    def panel_action(self, name: str) -> None:
        """Run an action of the panel that has the keyboard, else of the attention."""
        widget = self.focusWidget()
        while widget is not None and not isinstance(widget, PanelDock):
            widget = widget.parentWidget()
        dock = widget if isinstance(widget, PanelDock) else self.docks["attention"]
        assert isinstance(dock, PanelDock)
        getattr(dock.actions_menu, name)()

    def toggle_maximised(self, dock: QWidget | None = None) -> None:
        """One panel alone, or all again."""
        self.layout_of_docks.toggle_maximised(dock)

    def reset_zoom(self) -> None:
        """In every panel."""
        for dock in self.docks.values():
            if isinstance(dock, PanelDock):
                dock.view.reset_view()

    @Slot()
    def _fill_recent(self) -> None:
        self.opening.fill(self._recent_menu)

    @Slot()
    def _go_to(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.layout_of_docks.go_to(str(action.data()))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """A folder, or a file of one."""
        if event.mimeData().hasUrls() and event.mimeData().urls()[0].isLocalFile():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Open it."""
        self.opening.drop(event.mimeData())

    # -- looks --------------------------------------------------------------------------------------------------------

    def set_theme(self, name: str) -> None:
        """By name; "system" follows the desktop."""
        self.settings.set("theme", name)

    def scale_text(self, by: float) -> None:
        """Larger or smaller text everywhere."""
        self.settings.set("text_scale", min(max(round(self.settings["text_scale"] + by, 2), 0.8), 1.6))

    @Slot(str)
    def _setting(self, name: str) -> None:
        if name in ("theme", "text_scale"):
            self._apply_theme()
        elif name == "memory":
            self.bench.engine.budget(round(self.settings["memory"] * GIB))
            self.jobs.refresh()

    def _theme(self) -> Theme:
        name = self.settings["theme"]
        if name == "system":
            name = "dark" if QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"
        return scaled(DARK if name == "dark" else LIGHT, self.settings["text_scale"])

    def _apply_theme(self) -> None:
        app, theme = QApplication.instance(), self._theme()
        assert isinstance(app, QApplication)
        apply_theme(app, theme)
        self.setStyleSheet(sheet(theme))
        self.bench.set_theme(theme)

    # -- dialogs ------------------------------------------------------------------------------------------------------

    @Slot(object)
    def show_error(self, error: BaseException) -> None:
        """Plain words and a report; the window goes on. One at a time: the others are in the log."""
        if self._saying:
            log.error("meanwhile: %s", error)
            return
        self._saying = True
        try:
            ErrorDialog(error, self).exec()
        finally:
            self._saying = False

    def show_palette(self) -> None:
        """All commands."""
        self.refresh_actions()
        palette = Palette([*self._actions, *self._lesson_actions], self)
        self.enable_actions()
        palette.exec()

    def show_shortcuts(self) -> None:
        """All commands with their keys."""
        ShortcutSheet(self._actions, self).exec()

    def show_settings(self) -> None:
        """What is remembered from one start to the next."""
        SettingsDialog(self.settings, self).exec()

    def show_about(self) -> None:
        """Version and purpose."""
        words = (
            f"CircuitLab {__version__}\nA laboratory for transformer circuits.\n\n"
            "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits\n"
            "Olsson et al. 2022, In-context Learning and Induction Heads"
        )
        QMessageBox.about(self, "About CircuitLab", words)

    # -- life ---------------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Restore the layout once there is a window to lay out."""
        super().showEvent(event)
        if not self._restored:
            self._restored = True
            self.layout_of_docks.proportions()
            if self.remember and not self.layout_of_docks.restore():
                self.lessons.open()  # the first start
            self.checkpoints.refresh()  # a layout that was kept may hide it

    def changeEvent(self, event: QEvent) -> None:
        """The desktop's scheme may have changed."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ThemeChange and self.settings["theme"] == "system":
            self._apply_theme()

    def _may_close(self) -> bool:
        """Work that has run for long is not thrown away unasked."""
        long = [j for j in self.bench.runner.jobs if j.began and time.monotonic() - j.began > LONG]
        if not long:
            return True
        text = f"{long[0].title} is still running. Cancel it and close?"
        return QMessageBox.question(self, "Close CircuitLab", text) == QMessageBox.StandardButton.Yes

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keep the layout, stop the workers."""
        if not self._may_close() or (self._training is not None and not self._training.may_close()):
            event.ignore()
            return
        if self.layout_of_docks.maximised:
            self.toggle_maximised()
        self.lessons.put_back()
        if self.remember:
            self.layout_of_docks.keep()
        if self.bench.runner.busy:
            self.statusBar().showMessage("Waiting for running work to stop…")
            self.statusBar().repaint()
        self.ahead.stop()
        self.bench.runner.close()
        self.log_dock.close_log()
        super().closeEvent(event)
