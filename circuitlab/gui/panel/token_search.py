"""A line that finds a token by its text, the beginning of it, or its id, and says which one was meant."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QStringListModel, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCompleter, QLineEdit, QWidget

from circuitlab.gui.work.app_context import AppContext

MOST = 12


class TokenSearch(QLineEdit):
    """`chosen(id)` when a token has been taken from the list, or with Enter the first of it."""

    chosen = Signal(int)

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context = context
        self._found: tuple[int, ...] = ()
        self._names = QStringListModel(self)
        self.list = QCompleter(self._names, self)
        self.list.setCompletionMode(QCompleter.CompletionMode.UnfilteredPopupCompletion)
        self.list.setMaxVisibleItems(MOST)
        self.setCompleter(self.list)
        self.setPlaceholderText("Token or id")
        self.setToolTip("Find a token by its text, how it begins, or its id; Enter takes the first")
        self.setAccessibleName("Find a token")
        self.setClearButtonEnabled(True)
        self.setFixedWidth(124)
        self.textEdited.connect(self._typed)
        self.list.activated[QModelIndex].connect(self._taken)  # type: ignore[index]

    @Slot(str)
    def _typed(self, text: str) -> None:
        facts = self.context.facts()
        self._found = facts.find_tokens(text, MOST)
        self._names.setStringList([f"{facts.token_text(i)}   {i}" for i in self._found])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter takes what is pointed at in the list, else the first; the open list hands the key on to this line."""
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or not self._found:
            super().keyPressEvent(event)
            return
        popup = self.list.popup()
        pointed = popup is not None and popup.isVisible() and popup.currentIndex().isValid()
        self._take(popup.currentIndex().row() if popup is not None and pointed else 0)
        event.accept()

    @Slot(QModelIndex)
    def _taken(self, index: QModelIndex) -> None:
        self._take(index.row())

    def _take(self, place: int) -> None:
        if 0 <= place < len(self._found):
            token = self._found[place]
            if (popup := self.list.popup()) is not None:
                popup.hide()
            self.setText(self.context.facts().token_text(token))
            self.selectAll()
            self.chosen.emit(token)
