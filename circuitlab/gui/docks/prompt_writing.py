"""The controls with which the model continues the text: how, how many tokens, and the button that starts and stops it."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QToolButton, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.docks.continuation import Continuation
from circuitlab.gui.widgets.buttons import icon
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.work.app_context import AppContext

HOW = {"greedy": "greedy", "sampled": "sampled"}
NUMBER_TIP = "How many tokens are written"
# Numbers are live: Ctrl+Return does not take the keyboard from a field, and what has been typed in it counts.
FIELDS = (
    Field("how", "How the text is continued", tip="Greedy takes the most probable token; sampled draws one", choices=HOW),
    Field(
        "temperature", "Temperature", float, "Temperature: logits are divided by it before the softmax", low=0.05, high=5.0,
        step=0.1, prefix="T ", live=True,
    ),
    Field(
        "seed", "Seed", int, "The same seed draws the same tokens; it increases by one after each run", low=0, high=999_999,
        prefix="seed ", live=True,
    ),
    Field("number", NUMBER_TIP, int, NUMBER_TIP, low=1, high=256, live=True),
)  # fmt: skip
DEFAULTS = {"how": "greedy", "temperature": 1.0, "seed": 0, "number": 8}


class WritingControls(QObject):
    """The controls, laid out by their owner. `about_to_write()` is emitted before the document's text is read."""

    about_to_write = Signal()

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self._button_state: tuple[bool, Theme] | None = None  # what the button shows: whether text is being written, the theme
        self.continuation = Continuation(context, self)
        self.form = Form(FIELDS, parent)
        self.form.show_values(DEFAULTS)
        self.go = QToolButton(parent)
        self.go.setProperty("role", "primary")
        self.go.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.go.clicked.connect(self.start_or_stop)
        self.form.changed.connect(self._show_relevant)
        context.runner.jobs_changed.connect(self._show_button)
        context.theme_changed.connect(self._show_button)
        self._show_relevant()
        self._show_button()

    @property
    def widgets(self) -> tuple[QWidget, ...]:
        """The controls from left to right."""
        return (*self.form.widgets.values(), self.go)

    @Slot()
    def _show_relevant(self, *_: object) -> None:
        """Show temperature and seed only while tokens are sampled."""
        sampled = self.form.value("how") == "sampled"
        self.form.widgets["temperature"].setVisible(sampled)
        self.form.widgets["seed"].setVisible(sampled)

    @Slot()
    def _show_button(self, *_: object) -> None:
        """Label the button Continue, or Stop while text is being written."""
        running = self.context.runner.is_busy(self.continuation.slot)
        if (running, self.context.theme) == self._button_state:
            return  # this runs at every job, and setting the same text would lay out the window again
        self._button_state = running, self.context.theme
        self.go.setText("Stop" if running else "Continue")
        self.go.setIcon(icon("stop" if running else "play", self.context.theme, "text"))
        self.go.setToolTip(tip_of("Stop writing; what is written stays" if running else "Let the model continue (Ctrl+Return)"))

    @Slot()
    def start_or_stop(self) -> None:
        """Start to write, or stop what is being written."""
        if self.context.runner.is_busy(self.continuation.slot):
            self.context.runner.cancel_slot(self.continuation.slot)
        else:
            self.start()

    def start(self, n: int | None = None) -> None:
        """Let the model continue the text by `n` tokens; None: as many as the field says."""
        self.about_to_write.emit()
        if self.context.document.recorded.draft:
            self.context.message.emit("The text in the editor is not what the model has read: nothing was added.")
            return
        values = self.form.values()
        sampled = values["how"] == "sampled"
        self.continuation.start(n or values["number"], sampled, values["temperature"], values["seed"])
        self.form.show_values({"seed": values["seed"] + sampled})
