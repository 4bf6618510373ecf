"""In place of the slider, where the checkpoints of a shipped model are not on this machine: that they can be got."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.theme import Theme
from circuitlab.gui.widgets.buttons import flat, tint
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.widgets.strip import SHORTEST
from circuitlab.model.archives.index import Archive, size_words

TIP = "The weights along the training, as the slider and films need them: download them, or take them from a file"


class CheckpointOffer(QWidget):
    """One line: what is not here, and a button. `asked()`: somebody wants it."""

    asked = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.archive: Archive | None = None
        self.label = ShortLabel(self, "muted", least=64)
        self.label.setContentsMargins(8, 0, 8, 0)
        self.button = flat(self, "checkpoints.get", "", TIP)
        self.button.clicked.connect(self.asked)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        row.addWidget(self.label)
        row.addWidget(self.button)
        row.addStretch(1)

    def show_archive(self, archive: Archive | None) -> None:
        """Offer an archive; None: nothing."""
        self.archive = archive
        if archive is not None:
            verb = "is" if len(archive.lacking) == 1 else "are"
            missing = number_of(len(archive.lacking), "checkpoint")
            self.label.setText(f"{missing} of its training {verb} not on this machine")
            self.button.setText(f"Get checkpoints ({size_words(archive.zip.size)})…")
        self.setVisible(archive is not None)

    def set_theme(self, theme: Theme) -> None:
        """Draw the icon in the theme's grey."""
        tint(self.button, "get", theme)

    def compact(self, stage: int) -> None:
        """Only the button where there is little room."""
        self.label.setVisible(stage < SHORTEST)
