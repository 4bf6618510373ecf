"""The dialog for a film's size, speed and ground, and for which parameter of a constructed model plays."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QDialogButtonBox, QFormLayout, QPushButton, QVBoxLayout, QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.draw.look.slide import END, LEAST_FPS, MOST_FPS, Slide
from circuitlab.errors import CircuitLabError, reason
from circuitlab.gui.lessons.sweep_fields import slider_ends, slider_names, sliders
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.report.film import film_scenes
from circuitlab.state.state import State

SIZES = {(1280, 720): "1280 × 720", (1920, 1080): "1920 × 1080", (3840, 2160): "3840 × 2160"}
_SLIDE = (
    Field("size", "Size", choices=SIZES, tip="Text grows with the height"),
    Field("fps", "Frames a second", float, "Each is one point", low=LEAST_FPS, high=MOST_FPS, decimals=1, live=True),
    Field("theme", "Ground", choices={"light": "white", "dark": "black"}),
    Field("loop", "Begin anew at the end", bool),
)


class FilmDialog(Dialog):
    """Asks for a `slide`; `state` given: of a constructed model, then also for what plays, which is `over`. `subject`: what is
    filmed, in a few words; `frames`: how many points a training has.
    """

    def __init__(self, slide: Slide, subject: str, frames: int, state: State | None, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Export film")
        self.slide, self.over = slide, ""
        self._frames, self._state = frames, state
        self.subject, self.length = PlainLabel(self), PlainLabel(self)
        self.subject.setText(subject)
        self.subject.setWordWrap(True)
        self.length.setWordWrap(True)
        self.length.setTextFormat(Qt.TextFormat.PlainText)
        self._sliders = sliders() if state is not None else {}
        self.form = Form((*self._played(), *_SLIDE), self)
        self.fields = self.form.widgets
        size = (slide.width, slide.height)
        shown = {"size": size if size in SIZES else next(iter(SIZES)), "fps": slide.fps, "theme": slide.theme, "loop": slide.loop}
        self.form.show_values(shown)
        self._lay_out()
        if state is not None:
            self._parameter_chosen()
        self.form.changed.connect(self._changed)
        self._say()

    def _played(self) -> tuple[Field, ...]:
        if not self._sliders:
            return ()
        ends = (Field(name, label, float, decimals=3, live=True) for name, label in (("first", "From"), ("last", "To")))
        return (Field("parameter", "Plays", choices=slider_names(), tip="The parameter that changes from frame to frame"), *ends)

    def _lay_out(self) -> None:
        form, box = QFormLayout(), QVBoxLayout(self)
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        for field in (*self._played(), *_SLIDE):
            form.addRow("" if field.kind is bool else field.label, self.fields[field.name])
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        self.primary = self.go = QPushButton("Choose a file…", self)
        self.go.clicked.connect(self.accept)
        buttons.addButton(self.primary, QDialogButtonBox.ButtonRole.ApplyRole)
        buttons.rejected.connect(self.reject)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(16)
        box.addWidget(self.subject)
        box.addLayout(form)
        box.addWidget(self.length)
        box.addWidget(buttons)

    @Slot(str)
    def _changed(self, name: str) -> None:
        if name == "parameter":
            self._parameter_chosen()
        self._say()

    def _parameter_chosen(self) -> None:
        """The ends of its slider."""
        self.form.show_values(slider_ends(self.form.value("parameter")))

    def _say(self) -> None:
        """How long the film is, or why there is none; its file cannot be chosen then."""
        try:
            over = self._over()
            frames = self._frames if self._state is None else len(film_scenes(self._state, over))
            slide = self._chosen()
            slide.check(frames)
        except CircuitLabError as error:
            self.length.setText(reason(error))
            self.go.setEnabled(False)
            return
        self.slide, self.over = slide, over
        seconds = (frames - 1) / slide.fps + max(1 / slide.fps, END)
        self.length.setText(f"{number_of(frames, 'frame')}, {seconds:.1f} s. The last one stays for a moment.")
        self.go.setEnabled(True)

    def _over(self) -> str:
        if self._state is None:
            return ""
        name, whole = self.form.value("parameter"), self._sliders[self.form.value("parameter")].kind is int
        first, last = (f"{self.form.value(end):.{0 if whole else 6}f}" for end in ("first", "last"))
        return f"{name}={first}:{last}"

    def _chosen(self) -> Slide:
        width, height = self.form.value("size")
        values = {name: self.form.value(name) for name in ("fps", "theme", "loop")}
        return replace(self.slide, width=width, height=height, **values)
