"""“CircuitLab did not end in order”: a row for each session that was not closed, to recover or to throw away.

What is neither stays for the next start. A row has a choice of copies where there are several: a figure that crashes the program
is in the newest one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QComboBox, QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import confirmed, tip_of
from circuitlab.draw.pointing.focus_order import chain_as_read
from circuitlab.gui.sessions.moments import ago, moment
from circuitlab.gui.widgets.buttons import push
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import ShortLabel, paragraph
from circuitlab.session_files.orphans import Orphan

TITLE, CLOSED_TITLE = "CircuitLab did not end in order", "Recover a session"
INTRO = "These sessions had unsaved work when it ended. One that is recovered takes the place of the open session."
CLOSED = "These sessions were never saved. One that is recovered takes the place of the open session."
ONE = "CircuitLab did not end in order. This copy has work that was never saved to the file."
HIGHEST = 460  # px of the list, which scrolls then


def shown_path(path: Path) -> str:
    """A path, from home where it lies there."""
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return str(path)


class Row(QFrame):
    """One session. `recovers(Orphan, copy)`, `thrown_away(Orphan)`."""

    recovers = Signal(object, int)
    thrown_away = Signal(object)

    def __init__(self, orphan: Orphan, parent: QWidget) -> None:
        super().__init__(parent)
        self.orphan = orphan
        self.title = ShortLabel(self, "title", fills=True)
        self.title.setText(orphan.title)
        about = ShortLabel(self, "caption", fills=True, elides=Qt.TextElideMode.ElideMiddle)
        about.setText(self._about())
        self.recover = push(self, "Recover", lambda: self.recovers.emit(orphan, max(0, self.copies.currentIndex())))
        self.away = push(self, "Throw away", lambda: self.thrown_away.emit(orphan))
        self.copies = QComboBox(self)
        for button, verb in ((self.recover, "Recover"), (self.away, "Throw away"), (self.copies, "Copy of")):
            button.setAccessibleName(f"{verb} {orphan.title}")
        for i, copy in enumerate(orphan.copies):
            when = moment(copy.stat().st_mtime) if copy.exists() else "gone"
            self.copies.addItem(f"as of {when}" if i else f"newest, {when}")
        self.copies.setToolTip(tip_of("Take an earlier copy where the newest one does not open or is not what you want"))
        self.copies.setVisible(len(orphan.copies) > 1)
        lines = QVBoxLayout()
        lines.setSpacing(2)
        lines.addWidget(self.title)
        lines.addWidget(about)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 6, 0, 6)
        row.setSpacing(8)
        row.addLayout(lines, 1)
        for widget in (self.copies, self.away, self.recover):
            row.addWidget(widget)

    def _about(self) -> str:
        orphan = self.orphan
        of = "never saved" if orphan.of is None else shown_path(orphan.of)
        steps = number_of(orphan.steps, "step") if orphan.steps else ""
        damaged = f"{number_of(orphan.damaged, 'newer copy is', 'newer copies are')} damaged" if orphan.damaged else ""
        closed = "closed " if orphan.closed else ""
        return " · ".join(part for part in (closed + ago(orphan.time), steps, of, damaged) if part)


class RecoveryDialog(Dialog):
    """See the module. `recovers(Orphan, copy)`: it closes then; `thrown_away(Orphan)`. `file`: the one that all is about."""

    recovers = Signal(object, int)
    thrown_away = Signal(object)
    usual = (720, 0)

    def __init__(
        self, orphans: Sequence[Orphan], damaged: Sequence[Path] = (), file: Path | None = None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.file = file
        closed = all(orphan.closed for orphan in orphans)
        title, about = (CLOSED_TITLE, CLOSED) if closed else (TITLE, INTRO)
        self.setWindowTitle(title if file is None else f"A newer copy of {file.name}")
        intro, aside = paragraph(self, selectable=False), paragraph(self, "caption")
        intro.setText((about if file is None else ONE) if orphans else "Nothing can be recovered.")
        if damaged:
            files = number_of(len(damaged), "file is", "files are")
            aside.setText(f"{files} damaged and kept in {damaged[0].parent}")
        aside.setVisible(bool(damaged))
        self._list_rows(orphans)
        self.later = QPushButton("Later" if orphans else "Close", self)
        self.later.setToolTip(tip_of("Ask again at the next start, or by File → Recover a session…") if orphans else "")
        self.later.clicked.connect(self.reject)
        self._lay_out(intro, aside)
        self._fit()

    def _list_rows(self, orphans: Sequence[Orphan]) -> None:
        """The rows, in an area that scrolls."""
        self.area = QScrollArea(self)
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QScrollArea.Shape.NoFrame)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setAccessibleName("Sessions to recover")
        self.area.setVisible(bool(orphans))
        inside = QWidget(self.area)
        self._list = QVBoxLayout(inside)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(0)
        self.rows = [self._row(orphan, inside) for orphan in orphans]
        self._list.addStretch(1)
        self.area.setWidget(inside)

    def _lay_out(self, intro: QWidget, aside: QWidget) -> None:
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(self.later)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        box.addWidget(intro)
        box.addWidget(self.area, 1)
        box.addWidget(aside)
        box.addLayout(buttons)

    def _row(self, orphan: Orphan, inside: QWidget) -> Row:
        row = Row(orphan, inside)
        row.recovers.connect(self._recover)
        row.thrown_away.connect(self._throw_away)
        self._list.addWidget(row)
        return row

    def _fit(self) -> None:
        """As high as its rows; it scrolls from the seventh or so."""
        high = sum(row.sizeHint().height() for row in self.rows) + 2
        self.area.setMinimumHeight(min(high, HIGHEST))

    @Slot(object, int)
    def _recover(self, orphan: Orphan, copy: int) -> None:
        self.accept()
        self.recovers.emit(orphan, copy)

    @Slot(object)
    def _throw_away(self, orphan: Orphan) -> None:
        if not confirmed(self, "Throw away", f"Throw away “{orphan.title}” for good?"):
            return
        self.thrown_away.emit(orphan)
        row = next(row for row in self.rows if row.orphan is orphan)
        self.rows.remove(row)
        row.hide()
        row.deleteLater()
        if not self.rows:
            self.accept()
            return
        chain_as_read(self)
