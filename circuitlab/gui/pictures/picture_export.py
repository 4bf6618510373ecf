"""The picture of a figure: asked for with its size, type and ink, then with its file; or copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QObject, QSize, Qt, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from circuitlab.disk.formats import PICTURES, dialog_filter
from circuitlab.draw.export.pictures import Preview, check, preview
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Figure
from circuitlab.gui.pictures.paper_dialog import PaperDialog, load_paper, save_paper
from circuitlab.gui.pictures.picture_output import PictureOutput
from circuitlab.gui.work.app_context import AppContext
from circuitlab.session_files.picture_view import PictureView
from circuitlab.story.zoom import Part, TablePart


class PictureExport(QObject):
    """Pictures of what a view shows.

    `widget`: the dialogs stand before its window. `name`: of the file that is suggested, without suffix. `subject()`: what the
    figure shows, in words. `figure()`: what is to be seen while the view shows none. `words(parts)`: what a picture of these
    parts carries to reopen its view, if it can.
    """

    def __init__(
        self,
        view: FigureView,
        context: AppContext,
        widget: QWidget,
        name: str,
        subject: Callable[[], str],
        figure: Callable[[], Figure] | None = None,
        words: Callable[[Mapping[str, Part]], PictureView | None] = lambda parts: None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent or widget)
        self.view, self.context, self.widget, self.name = view, context, widget, name
        self.subject, self._figure, self._words = subject, figure, words
        self.output = PictureOutput(context, self)

    @Slot()
    def copy(self) -> None:
        """Copy the figure to the clipboard as an image."""
        self.output.copy(self.view.image(), self._words(self.view.visible_parts()))

    @Slot()
    def ask(self) -> None:
        """Ask for size, type and ink, then for a file, and write the figure."""
        paper = load_paper(self.context.settings.remember)
        dialog = PaperDialog(paper, self.widget.window(), self.view.part_words(), self.subject(), self._check, self._page)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(self._paper_chosen)
        dialog.open()

    def _shown(self) -> Figure:
        """The figure as it is on the screen."""
        return self.view.as_shown() if self.view.figure.grid or self._figure is None else self._figure()

    def _check(self, paper: Paper) -> None:
        check(self._shown(), paper)

    def _page(self, paper: Paper, whole: bool, room: QSize, ratio: float) -> Preview:
        """The picture as it will be written."""
        return preview(self._shown(), paper, room, {} if whole else self.view.parts(), ratio)

    @Slot()
    def _paper_chosen(self) -> None:
        dialog = self.sender()
        assert isinstance(dialog, PaperDialog)
        if self.context.settings.remember:
            save_paper(dialog.paper)
        suggested = self.context.exports.suggest(f"{self.name}{PICTURES[0].suffix}")
        name, _ = QFileDialog.getSaveFileName(self.widget, "Export picture", suggested, dialog_filter(PICTURES))
        if name:
            self.context.exports.used(Path(name))
            self.write(Path(name), dialog.paper, whole=not dialog.part.isChecked())

    def write(self, path: Path, paper: Paper | None = None, whole: bool = False) -> None:
        """Write the figure: where it is zoomed, the visible part, as its caption then says; or the `whole` figure."""
        seen = {n: part for n, part in self.view.visible_parts().items() if not whole or isinstance(part, TablePart)}
        parts = {} if whole else self.view.parts()
        self.output.write(self._shown(), path, paper, parts, self._words(seen))
