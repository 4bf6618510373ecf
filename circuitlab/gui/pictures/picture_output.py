"""A panel's picture on its way out, to a file or the clipboard: what it shows is put into words on the file thread first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QMimeData, QObject, Slot
from PySide6.QtGui import QGuiApplication, QImage

from circuitlab.draw.export.pictures import export, png_bytes
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.plots.plot import Range
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import view_types
from circuitlab.figures.marks import Figure
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.settings import WITH_VIEW
from circuitlab.gui.work.work_slot import WorkSlots
from circuitlab.session_files.picture_view import PictureView


class PictureOutput(QObject):
    """`write` and `copy` what was given to them, whatever the window shows by then.

    A view that cannot be put into words, as its model is gone, keeps nobody from having the picture; the status line says so.
    """

    def __init__(self, context: AppContext, parent: QObject) -> None:
        super().__init__(parent)
        self.context = context
        self._acts: dict[int, Callable[[str], str]] = {}  # what is done with the words, and what is said of it then
        self._count = 0
        self._slots = WorkSlots(self, context.runner.is_busy, finished=self._put, failed=self._not_put)

    def write(
        self, figure: Figure, path: Path, paper: Paper | None, parts: Mapping[str, Range], view: PictureView | None
    ) -> None:
        """Write a figure to a file, of which these parts are visible."""

        def act(text: str) -> str:
            export(figure, path, paper, parts, text)
            return f"Written: {path}"

        self._begin(f"write {path.name}", act, view)

    def copy(self, image: QImage, view: PictureView | None) -> None:
        """Put an image on the clipboard, as a PNG too where that has its view inside."""

        def act(text: str) -> str:
            data = QMimeData()
            data.setImageData(image)
            if text:
                data.setData("image/png", png_bytes(image, text))
            QGuiApplication.clipboard().setMimeData(data)
            return "Image copied."

        self._begin("copy an image", act, view)

    def _begin(self, title: str, act: Callable[[str], str], view: PictureView | None) -> None:
        if view is None or self.context.settings["picture_view"] != WITH_VIEW:
            self._act(act, "")
            return
        self._count += 1
        self._acts[self._count] = act
        store, views = self.context.engine.store, view_types()
        self.context.runner.do(self._slots[self._count], title, lambda job: view.text(store, views))

    def _act(self, act: Callable[[str], str], text: str, lack: str = "") -> None:
        try:
            self.context.message.emit(act(text) + lack)
        except CircuitLabError as error:
            self.context.failed.emit(error)

    @Slot(object, object)
    def _put(self, text: str, key: int) -> None:
        act = self._acts.pop(key)
        self._slots.keep_only(list(self._acts))
        self._act(act, text)

    @Slot(object, object)
    def _not_put(self, error: BaseException, key: int) -> None:
        act = self._acts.pop(key)
        self._slots.keep_only(list(self._acts))
        if isinstance(error, Cancelled):
            self.context.message.emit("There is no picture: it was cancelled.")
        else:
            self._act(act, "", f" Its view is not inside: {reason(error)}")
