"""The view that a picture has inside, shown in the window: one step of undo in the open session, which is not replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, Signal

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons.layout import beside
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.sessions.file_work import Staged
from circuitlab.gui.sessions.opening import SessionOpening
from circuitlab.gui.work.app_context import AppContext
from circuitlab.session_files.picture_view import panels_of
from circuitlab.story.zoom import Parts, of_panel

Front = tuple[tuple[str, ...], Parts]


class Host(Protocol):
    """What it needs of its window."""

    context: AppContext
    layout_of_docks: Layout

    def commit_typing(self) -> None: ...


class PictureViews(QObject):
    """`shown()`: a picture's view is on the screen, its model open.

    The session stays what it is: its file, its story, its notes, and the settings of all other panels.
    """

    shown = Signal()

    def __init__(self, host: Host, opening: SessionOpening, parent: QObject) -> None:
        super().__init__(parent)
        self._host, self._opening = host, opening
        self._front: Front | None = None  # the panels that are to be in front, and what is seen of their figures

    def open(self, path: Path) -> None:
        """Show the view of a picture, once its models are open."""
        self._opening.file(path, self._show)

    def begin(self, staged: Staged) -> None:
        """Let a window that is not shown yet, and was made with a picture's State, lay itself out for it."""
        self._front = _front(staged)
        self.shown.emit()

    def _show(self, staged: Staged) -> None:
        assert staged.work is not None
        self._host.commit_typing()
        context, shown, state = self._host.context, panels_of(staged.session), staged.work.state
        views = {name: view for name, view in context.document.recorded.views.items() if name not in shown}
        views |= {name: state.views[name] for name in shown if name in state.views}
        context.jump(replace(state, views=views), f"open {staged.name}")
        self._front = _front(staged)
        self.shown.emit()
        self.bring_to_front()
        context.message.emit(f"Shown: what {staged.name} shows. Undo brings back what was there.")

    def bring_to_front(self) -> None:
        """Bring the panel of the picture to the front, those of a sheet side by side, and of their figures what it shows."""
        front, self._front = self._front, None
        if front is None or not (names := [name for name in front[0] if name in panels()]):
            return
        layout = self._host.layout_of_docks
        if len(names) > 1:
            layout.place(beside(tuple(names)))
        for name in names:
            dock = layout.docks[name]
            if isinstance(dock, PanelDock):
                dock.see(of_panel(front[1], name))
        layout.go_to(names[0])


def _front(staged: Staged) -> Front:
    return panels_of(staged.session), staged.session.now.zoom
