"""The line that says that files of the models in use have changed since they were opened."""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QWidget

from circuitlab.gui.widgets.standing_line import StandingLine
from circuitlab.gui.work.app_context import NUMBERS_READ, AppContext
from circuitlab.model.subject import ModelRef


class FileNotice(StandingLine):
    """`reload(refs)`: read these models again."""

    def __init__(self, context: AppContext, reload: Callable[[Collection[ModelRef]], object], parent: QWidget) -> None:
        super().__init__("files", parent)
        self.context, self._reload = context, reload
        self._put_away: dict[ModelRef, str] = {}  # what was said of each
        self.reload_button = self.button("Reload", "Read the model from its files as they are now")
        self.reload_button.clicked.connect(self._reload_all)
        self.dismiss_button = self.button("Dismiss", "Put this line away until the files change again")
        self.dismiss_button.clicked.connect(self._dismiss)
        context.files.changed.connect(self.refresh)
        context.read_again.connect(self.refresh)
        context.document.changed.connect(self.refresh)

    @Slot()
    def refresh(self, *_: object) -> None:
        """Say what is known of the models in use."""
        changed = self.context.changed_files(self.context.document.recorded)
        self._put_away = {ref: text for ref, text in self._put_away.items() if changed.get(ref) == text}
        said = [text for ref, text in changed.items() if ref not in self._put_away]
        self.say(" ".join(f"{text}." for text in (*said, NUMBERS_READ.capitalize())) if said else "")

    @Slot()
    def _reload_all(self) -> None:
        self._reload(list(self.context.changed_files(self.context.document.recorded)))

    @Slot()
    def _dismiss(self) -> None:
        self._put_away = self.context.changed_files(self.context.document.recorded)
        self.refresh()
