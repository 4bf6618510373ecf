"""The button beside a caption that is too long for its few lines: show all of it, or the few lines again."""

from __future__ import annotations

from PySide6.QtCore import Qt, Slot
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.view.caption import Caption

MORE, LESS = "more", "less"


class Fold(QToolButton):
    """Checked while all of `caption` is shown. Hidden where the few lines are enough, and on paper."""

    def __init__(self, caption: Caption, parent: QWidget, on_paper: bool) -> None:
        super().__init__(parent)
        self.caption, self.away = caption, on_paper  # away: in what nobody can press a button of
        self._brief = False
        self.setObjectName("fold")
        self.setProperty("role", "fold")
        self.setAccessibleName("Whole caption")
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.hide()
        self.row = QHBoxLayout()
        self.row.setSpacing(GRID // 2)
        self.row.addWidget(caption, 1)
        self.row.addWidget(self, 0, Qt.AlignmentFlag.AlignBottom)
        self.toggled.connect(self._fold)
        caption.fitted.connect(self.refresh)
        self._say()

    def set_theme(self, theme: Theme) -> None:
        """As small as the caption; not there where captions are brief."""
        self._brief = theme.words == "brief"
        self.setFont(theme.font(theme.small))
        self.refresh()

    @Slot(bool)
    def _fold(self, whole: bool) -> None:
        self._say()
        self.caption.unfold(whole)

    def _say(self) -> None:
        self.setText(LESS if self.isChecked() else MORE)
        self.setToolTip("Show the first lines only" if self.isChecked() else "Show the whole caption")

    @Slot()
    def refresh(self) -> None:
        """The caption or its room has changed."""
        needed = self.caption.folds and bool(self.caption.words) and not (self.away or self._brief)
        if self.isHidden() == needed and not self.caption.frozen:  # nothing appears or disappears under a pointer
            self.caption.beside = self.sizeHint().width() + self.row.spacing() if needed else 0
            self.setVisible(needed)
