"""Letting the model write on: how, how many tokens, and the button that starts and stops it."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QSpinBox, QToolButton, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.docks.continuation import Continuation
from circuitlab.gui.widgets.buttons import icon
from circuitlab.gui.work.app_context import AppContext


class WritingControls(QObject):
    """The controls, to be laid out by whoever owns them. `about_to_write` comes before the text is read."""

    about_to_write = Signal()

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self._says: tuple[bool, Theme] | None = None  # what the button says: whether it runs, in which theme
        self.continuation = Continuation(context, self)
        self._make_widgets(parent)
        self.go.clicked.connect(self.start_or_stop)
        self.how.currentIndexChanged.connect(self._how)
        context.runner.jobs_changed.connect(self._writing)
        context.theme_changed.connect(self._writing)
        self._how()
        self._writing()

    def _make_widgets(self, parent: QWidget) -> None:
        self.how = QComboBox(parent)
        self.how.addItems(["greedy", "sampled"])
        self.how.setToolTip("Greedy takes the most probable token; sampled draws one")
        self.how.setAccessibleName("How the text is continued")
        self.temperature = QDoubleSpinBox(parent)
        self.temperature.setRange(0.05, 5.0)
        self.temperature.setSingleStep(0.1)
        self.temperature.setValue(1.0)
        self.temperature.setPrefix("T ")
        self.temperature.setToolTip("Temperature: logits are divided by it before the softmax")
        self.seed = QSpinBox(parent)
        self.seed.setRange(0, 999_999)
        self.seed.setPrefix("seed ")
        self.seed.setToolTip("The same seed draws the same tokens; it moves on by one after each run")
        self.number = QSpinBox(parent)
        self.number.setRange(1, 256)
        self.number.setValue(8)
        self.number.setToolTip("How many tokens are written")
        self.number.setAccessibleName("How many tokens are written")
        self.go = QToolButton(parent)
        self.go.setProperty("role", "primary")
        self.go.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)

    @property
    def widgets(self) -> tuple[QWidget, ...]:
        """In the order in which they stand."""
        return self.how, self.temperature, self.seed, self.number, self.go

    @Slot()
    def _how(self, *_: object) -> None:
        """Temperature and seed only where something is drawn."""
        sampled = self.how.currentText() == "sampled"
        self.temperature.setVisible(sampled)
        self.seed.setVisible(sampled)

    @Slot()
    def _writing(self, *_: object) -> None:
        """The button continues, or stops what is being written."""
        running = self.context.runner.is_busy(self.continuation.slot)
        if (running, self.context.theme) == self._says:
            return  # this runs at every job, and setting the same words would lay the window out again
        self._says = running, self.context.theme
        self.go.setText("Stop" if running else "Continue")
        self.go.setIcon(icon("stop" if running else "play", self.context.theme, "text"))
        self.go.setToolTip(tip_of("Stop writing; what is written stays" if running else "Let the model write on (Ctrl+Return)"))

    @Slot()
    def start_or_stop(self) -> None:
        """The button: start, or stop what is being written."""
        if self.context.runner.is_busy(self.continuation.slot):
            self.context.runner.cancel_slot(self.continuation.slot)
        else:
            self.start()

    def start(self, n: int | None = None) -> None:
        """Let the model write on by `n` tokens, None: as many as the field says."""
        self.about_to_write.emit()
        if self.context.document.recorded.draft:
            self.context.message.emit("The text in the editor is not what the model has read: nothing was added.")
            return
        sampled = self.how.currentText() == "sampled"
        self.continuation.start(n or self.number.value(), sampled, self.temperature.value(), self.seed.value())
        self.seed.setValue(self.seed.value() + sampled)
