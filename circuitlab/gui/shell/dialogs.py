"""The dialogs of a window: opens them, keeps two for the next time, and asks before the window closes on running work."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QDialog, QFileDialog, QMessageBox, QWidget

from circuitlab import __version__, plugins
from circuitlab.draw.look.plain_text import PlainBox, confirmed
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Panel
from circuitlab.gui.panel.sweep_question import sweep_question
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.shell.assumptions_dialog import AssumptionsDialog, plain, questions
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.get_dialog import GetDialog
from circuitlab.gui.shell.hub_dialog import HubDialog
from circuitlab.gui.shell.menus import Menus
from circuitlab.gui.shell.model_dialog import ModelDialog
from circuitlab.gui.shell.opening import Opening
from circuitlab.gui.shell.palette import Palette
from circuitlab.gui.shell.palette_entries import SearchEntries
from circuitlab.gui.shell.settings_dialog import SettingsDialog
from circuitlab.gui.shell.shortcut_sheet import ShortcutSheet
from circuitlab.gui.sweeping.dialog import SweepDialog
from circuitlab.gui.sweeping.run import SweepRun
from circuitlab.gui.sweeping.sweeps import Sweeps
from circuitlab.gui.sweeping.table_dialog import SweepTableDialog
from circuitlab.gui.training.dialog import TrainingDialog
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.processes import OwnProcess
from circuitlab.model.archives.offering import obtainable
from circuitlab.model.loading.checkpoint import WEIGHT_FILES
from circuitlab.model.sources.hub import HubName
from circuitlab.model.subject import ModelRef

log = logging.getLogger("circuitlab.dialogs")
LONG = 3.0  # s: work that has run for longer is not cancelled without a question
ABOUT = (
    f"CircuitLab {__version__}\nA laboratory for transformer circuits.\n\n"
    "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits\n"
    "Olsson et al. 2022, In-context Learning and Induction Heads"
)


def about(window: QWidget) -> PlainBox:
    """The box with version, purpose and plug-ins."""
    box = PlainBox(QMessageBox.Icon.NoIcon, "About CircuitLab", ABOUT, QMessageBox.StandardButton.Close, window)
    lines = plugins.listed()
    box.setInformativeText("\n".join(("Plug-ins", *lines)) if lines else "No plug-ins.")
    return box


def _run(dialog: QDialog) -> None:
    """Run a modal dialog until it is closed, then delete it."""
    dialog.exec()
    dialog.deleteLater()


class Dialogs(QObject):
    """See the module. It shows the errors of the window's parts, and the questions that opening a model raises.

    `jobs_wanted()`: something has begun whose progress Jobs shows.
    """

    jobs_wanted = Signal()

    def __init__(self, context: AppContext, opening: Opening, menus: Menus, window: QWidget) -> None:
        super().__init__(window)
        self.context, self.opening = context, opening
        self._menus, self._window = menus, window
        self._hub: HubDialog | None = None
        self._getting: GetDialog | None = None
        self._models: ModelDialog | None = None
        self._training: TrainingDialog | None = None
        self.sweeps = Sweeps(context, self)
        self._error: ErrorDialog | None = None  # the one that is open
        context.failed.connect(self.show_error)
        context.processes.opened.connect(self.show_process)
        opening.hub_download_needed.connect(self.ask_hub)
        opening.assumptions_needed.connect(self.ask_assumptions)

    # -- a model ------------------------------------------------------------------------------------------------------

    @Slot()
    def ask_open(self) -> None:
        """Ask for a model's folder and open it."""
        path = QFileDialog.getExistingDirectory(self._window, "Open model: the folder with config.json")
        if path:
            self.opening.open(path)

    def ask_open_file(self) -> None:
        """Ask for one weight file and open it: a state dict, a checkpoint of nanoGPT or llama2.c."""
        kinds = " ".join(f"*{suffix}" for suffix in WEIGHT_FILES)
        path, _ = QFileDialog.getOpenFileName(self._window, "Open model file", "", f"Weights ({kinds});;All files (*)")
        if path:
            self.opening.open(path)

    @Slot(object)
    def ask_hub(self, name: HubName | None = None) -> None:
        """Show the hub's dialog; with a name it starts at once. Closed, it is only hidden, and its download goes on."""
        if self._hub is None:
            self._hub = HubDialog(self.opening, self._window)
        self._hub.show()
        self._hub.raise_()
        if name is not None:
            self._hub.start(name)

    @Slot()
    def ask_model(self, name: str = "") -> None:
        """Show the catalogue, with the model of this name chosen; what is got opens. Closed, the dialog is only hidden."""
        if self._models is None:
            self._models = ModelDialog(self.context, self._window)
            self._models.opens.connect(self.opening.open)
        if not self._models.busy:
            self._models.list_models(name)
        self._models.show()
        self._models.raise_()

    @Slot(str, object)
    def ask_model_for(self, name: str, asking: ModelsDialog) -> None:
        """Show the catalogue over the dialog of a session that wants the model of this name; what is got is looked for there."""
        dialog = ModelDialog(self.context, asking)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.opens.connect(asking.look_again)
        dialog.list_models(name)
        dialog.show()

    @Slot()
    def ask_checkpoints(self) -> None:
        """Show the dialog that gets checkpoints, with the open model chosen. Closed, it is only hidden."""
        if self._getting is None:
            self._getting = GetDialog(self.context, self._window)
            self._getting.got.connect(self.opening.reread)
        self._getting.offer(obtainable(self.context.document.state.model))
        self._getting.show()
        self._getting.raise_()

    def ask_training(self) -> None:
        """Show the dialog of a training: its form, or the run that is going on."""
        if self._training is None:
            self._training = TrainingDialog(self.context, self._window)
            self._training.opens.connect(self.opening.open)
        self._training.show()
        self._training.raise_()

    def ask_sweep(self, panel: Panel) -> None:
        """Ask over what to do that which a panel shows, or say why it cannot be."""
        try:
            asked = sweep_question(panel, self.context)
        except CircuitLabError as error:
            self.context.message.emit(error.what)
            return
        dialog = SweepDialog(asked, self.context, self.sweeps, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.started.connect(self.jobs_wanted)
        dialog.show()

    @Slot()
    def ask_sweep_folder(self) -> None:
        """Ask for the folder of a sweep, show it in Jobs, and what its table says."""
        path = QFileDialog.getExistingDirectory(self._window, "Open a sweep: its folder, with plan.json")
        if path:
            self.open_sweep(Path(path))

    @Slot(object)
    def show_process(self, process: OwnProcess) -> None:
        """Show what a process has done."""
        if isinstance(process, SweepRun):
            dialog = SweepTableDialog(process.folder, self.context, self._window)
            dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            dialog.show()

    def open_sweep(self, folder: Path) -> None:
        """Show the sweep in a folder."""
        try:
            run = self.sweeps.open(folder)
        except CircuitLabError as error:
            self.show_error(error)
            return
        self.jobs_wanted.emit()
        if not run.running:
            self.show_process(run)

    def show_assumptions(self) -> None:
        """Show what was assumed of the open model because no file of it says so, to be corrected."""
        ref, assumed = self.context.document.state.model, self.opening.assumptions()
        AssumptionsDialog(self.opening, ref, assumed, self._window).show()

    @Slot(object, object)
    def ask_assumptions(self, ref: ModelRef, error: CircuitLabError) -> None:
        """Ask for the choices that a model needs before it can be opened; the open model stays meanwhile."""
        dialog = AssumptionsDialog(self.opening, ref, questions(ref, error), self._window)
        dialog.message.setText(plain(error))
        dialog.show()

    # -- the window ---------------------------------------------------------------------------------------------------

    @Slot(object)
    def show_error(self, error: BaseException) -> None:
        """Show an error, one at a time: further ones go to the log while its dialog is open.

        This runs no event loop of its own and returns at once, as the caller is in the middle of something.
        """
        if self._error is not None:
            log.error("meanwhile: %s", error)
            return
        self._error = ErrorDialog(error, self._window)
        self._error.finished.connect(self._error_closed)
        self._error.open()

    @Slot()
    def _error_closed(self) -> None:
        if self._error is not None:
            self._error.deleteLater()
            self._error = None

    @Slot()
    def show_palette(self) -> None:
        """Show the command palette: commands, panels and lessons; heads, tokens and models."""
        self._menus.refresh()
        entries = SearchEntries(self.context, self.opening)
        palette = Palette([*self._menus.actions, *self._menus.lessons], self._window, entries)
        self._menus.enable()
        _run(palette)

    def show_shortcuts(self) -> None:
        """Show all commands with their keys."""
        _run(ShortcutSheet(self._menus.actions, self._window))

    def show_settings(self) -> None:
        """Show the settings."""
        _run(SettingsDialog(self.context.settings, self._window))

    def show_about(self) -> None:
        """Show version, purpose and plug-ins."""
        _run(about(self._window))

    # -- closing ------------------------------------------------------------------------------------------------------

    def may_close(self) -> bool:
        """Whether the window may close; asks if work that has run for long, or a training, would be lost."""
        return self._may_cancel() and (self._training is None or self._training.may_close())

    def end_unasked(self) -> None:
        """The window ends, and nobody is asked: a training saves its state, from which it can be resumed."""
        if self._training is not None:
            self._training.process.end()

    def _may_cancel(self) -> bool:
        long_jobs = [j for j in self.context.runner.jobs if j.started_at and time.monotonic() - j.started_at > LONG]
        if not long_jobs:
            return True
        text = f"{long_jobs[0].title} is still running. Cancel it and close?"
        return confirmed(self._window, "Close CircuitLab", text)
