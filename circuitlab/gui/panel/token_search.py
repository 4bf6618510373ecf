"""A line that finds a token by its text, the beginning of its text, or its id."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QStringListModel, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCompleter, QLineEdit, QWidget

from circuitlab.gui.work.app_context import AppContext

MOST = 12  # tokens in the list


class TokenSearch(QLineEdit):
    """`chosen(id)`: a token was chosen from the list, or with Enter the first one."""

    chosen = Signal(int)

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.context = context
        self._token_ids: tuple[int, ...] = ()  # in the order listed
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
        self.textEdited.connect(self._fill_list)
        self.list.activated[QModelIndex].connect(self._list_activated)  # type: ignore[index]

    @Slot(str)
    def _fill_list(self, text: str) -> None:
        facts = self.context.facts()
        self._token_ids = facts.find_tokens(text, MOST)
        self._names.setStringList([f"{facts.token_text(i)}   {i}" for i in self._token_ids])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """On Enter choose the current token of the list, else the first; the open list passes the key on to this line."""
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or not self._token_ids:
            super().keyPressEvent(event)
            return
        popup = self.list.popup()
        has_current = popup is not None and popup.isVisible() and popup.currentIndex().isValid()
        self._choose(popup.currentIndex().row() if popup is not None and has_current else 0)
        event.accept()

    @Slot(QModelIndex)
    def _list_activated(self, index: QModelIndex) -> None:
        self._choose(index.row())

    def _choose(self, row: int) -> None:
        if 0 <= row < len(self._token_ids):
            token = self._token_ids[row]
            if (popup := self.list.popup()) is not None:
                popup.hide()
            self.setText(self.context.facts().token_text(token))
            self.selectAll()
            self.chosen.emit(token)
