"""“Copy this view as a step”: what is shown as the words of a step, in JSON on the clipboard."""

from __future__ import annotations

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QGuiApplication

from circuitlab.errors import Cancelled
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.sessions.file_work import step_text
from circuitlab.gui.sessions.window_layout import layout_words
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot


class StepCopy(QObject):
    """`copy()` takes what is shown now; the clipboard has it once the texts of tokens have been looked up."""

    def __init__(self, context: AppContext, layout: Layout, parent: QObject) -> None:
        super().__init__(parent)
        self.context, self.layout = context, layout
        self._slot = WorkSlot(self, finished=self._finished, failed=self._failed)

    def copy(self) -> None:
        """Copy the recorded State and the layout."""
        words, state = layout_words(self.layout), self.context.document.recorded
        store, views = self.context.engine.store, view_types()
        self.context.runner.do(self._slot, "copy this view", lambda job: step_text(state, words, store, views))

    @Slot(object)
    def _finished(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.context.message.emit("This view is copied as the words of a step.")

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, Cancelled):
            self.context.failed.emit(error)
