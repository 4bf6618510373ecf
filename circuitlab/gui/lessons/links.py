"""The links in a step's text: to a panel, a head, a checkpoint, another lesson, or a page in the browser."""

from __future__ import annotations

from PySide6.QtCore import QObject, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.plain_text import confirmed
from circuitlab.errors import CircuitLabError, reason
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.ring import Ring
from circuitlab.gui.lessons.tour import Tour
from circuitlab.model.subject import Head


class Links(QObject):
    """`lesson_wanted(name)`: a link to another lesson was followed. `window`: the parent of questions."""

    lesson_wanted = Signal(str)

    def __init__(self, host: Host, tour: Tour, ring: Ring, window: QWidget) -> None:
        super().__init__(window)
        self.main, self.context, self.tour, self.ring, self._window = host, host.context, tour, ring, window

    @Slot(str, str)
    def follow(self, kind: str, where: str) -> None:
        """Follow a link of the text."""
        try:
            self._follow(kind, where)
        except CircuitLabError as error:
            self.context.message.emit(reason(error))
        except ValueError:
            self.context.message.emit(f"The link {kind}:{where} cannot be followed.")

    def _follow(self, kind: str, where: str) -> None:
        if kind == "panel" and where in self.main.docks:
            self.main.layout_of_docks.go_to(where)
            self.ring.around(self.main.docks[where])
        elif kind == "head":
            self._select(Head.parse(where))
        elif kind == "checkpoint":
            self.tour.to_checkpoint(int(where))
        elif kind == "lesson":
            self.lesson_wanted.emit(where)
        elif kind == "value":
            self.context.message.emit(self.tour.tips.get(where, "").replace("\n", " · "))
        elif kind in ("http", "https"):
            self._leave_for(QUrl(f"{kind}:{where}"))

    def _select(self, head: Head) -> None:
        config, state = self.context.facts().config, self.context.document.recorded
        if head.layer < config.n_layers and head.head < config.n_heads:
            self.context.apply(state.with_heads(head), f"select {head}")
        else:
            self.context.message.emit(f"{self.context.name_of(state.model)} has no head {head}.")

    def _leave_for(self, url: QUrl) -> None:
        question = f"Open this page in the browser?\n\n{url.toString()}"
        if confirmed(self._window, "Open a page", question):
            QDesktopServices.openUrl(url)
