"""*Present…*: on which screen, from which step, on which ground, for how long; and whether all of it is ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QDialogButtonBox, QFormLayout, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from circuitlab.gui.presenter.options import MOST_MINUTES, TalkOptions
from circuitlab.gui.presenter.preparing import Preparing
from circuitlab.gui.presenter.screens import Screen, described
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import paragraph

OTHER, WINDOW = "another screen", "a window"  # keys of what is no screen's name; a screen's key is its name with a sign before
SCREEN = "screen "
LONGEST = 60  # characters of a step's title in the list


@dataclass(frozen=True)
class Choice:
    """What can be chosen: the steps' titles and the screens."""

    titles: Sequence[str]
    screens: Sequence[Screen]


def _fields(choice: Choice) -> tuple[Field, ...]:
    lines = dict(zip((SCREEN + screen.name for screen in choice.screens), described(choice.screens), strict=True))
    places = {OTHER: "One that is not this window's" if len(choice.screens) > 1 else "This one", **lines, WINDOW: "In a window"}
    if len(choice.screens) == 1:
        places = {key: text for key, text in places.items() if not key.startswith(SCREEN)}
    steps = {i: f"{i + 1} · {title[:LONGEST]}" for i, title in enumerate(choice.titles)}
    grounds = {False: "White, for a projector", True: "Black"}
    return (
        Field("screen", "Stage", str, "Where the stage is shown; S changes it for the speaker's", places),
        Field("first", "From step", int, "", steps),
        Field("dark", "Ground", str, "White is read best from a projector; black suits a dark room", grounds),
        Field("minutes", "Time", int, "Length of the talk, of which the speaker sees what is left", low=0, high=MOST_MINUTES,
              step=5, unit=" min", lowest="no end", live=True),
    )  # fmt: skip


class PresentDialog(Dialog):
    """Asks how to present. `wanted(TalkOptions)`: to begin. `preparing`: None for a lesson, which is set up as it goes."""

    usual = (460, 0)
    wanted = Signal(object)

    def __init__(self, choice: Choice, options: TalkOptions, preparing: Preparing | None, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Present")
        self.preparing = preparing
        self.form = Form(_fields(choice), self)
        names = [screen.name for screen in choice.screens]
        screen = SCREEN + options.screen if options.screen in names and len(names) > 1 else OTHER
        first = min(options.first, max(len(choice.titles) - 1, 0))
        place = WINDOW if options.windowed else screen
        self.form.show_values({"screen": place, "first": first, "dark": options.dark, "minutes": options.minutes})
        self.ready = paragraph(self, selectable=False)
        self.prepare = QPushButton("Prepare", self)
        self.prepare.setToolTip("Compute and hold all that the steps show, so that nothing is computed while you present")
        self.begin = QPushButton("Present", self)
        self.begin.clicked.connect(self._begin)
        self.primary = self.begin
        self._lay_out()
        if preparing is not None:
            self.prepare.clicked.connect(lambda: preparing.prepare())
            preparing.changed.connect(self._show_ready)
        self._show_ready()

    def _lay_out(self) -> None:
        form, ready = QFormLayout(), QHBoxLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        for name, label in (("screen", "Stage"), ("first", "From step"), ("dark", "Ground"), ("minutes", "Time")):
            form.addRow(label, self.form.widgets[name])
        self.ready.setAlignment(Qt.AlignmentFlag.AlignVCenter)
        ready.addWidget(self.ready, 1)
        ready.addWidget(self.prepare)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        buttons.addButton(self.begin, QDialogButtonBox.ButtonRole.AcceptRole)
        buttons.rejected.connect(self.reject)
        keys = paragraph(self, "caption", selectable=False)
        keys.setText(
            "On the stage: Right or Space on, Left back, digits and Enter to a step, B black, Esc end. F1 lists all keys."
        )
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addLayout(form)
        box.addLayout(ready)
        box.addWidget(keys)
        box.addWidget(buttons)

    @property
    def options(self) -> TalkOptions:
        """What is chosen."""
        values = self.form.values()
        screen = values["screen"]
        name = screen.removeprefix(SCREEN) if screen.startswith(SCREEN) else ""
        return TalkOptions(name, screen == WINDOW, values["first"] or 0, bool(values["dark"]), values["minutes"])

    @Slot()
    def _show_ready(self) -> None:
        if self.preparing is None:
            self.prepare.hide()
            self.ready.hide()
            return
        self.ready.setText(self.preparing.line_of_talk)
        self.prepare.setVisible(self.preparing.helps)
        self.prepare.setEnabled(not self.preparing.busy)

    @Slot()
    def _begin(self) -> None:
        options = self.options
        self.accept()
        self.wanted.emit(options)
