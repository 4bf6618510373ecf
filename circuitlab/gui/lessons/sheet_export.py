"""Export as a figure of parts A, B, C: the panels that the window shows, in the order of the present step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.disk.files import write_together
from circuitlab.disk.formats import PICTURES, dialog_filter
from circuitlab.draw.export.sheets import check_sheet, sheet_preview
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.pictures.paper_dialog import PaperDialog, load_paper
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.settings import WITH_VIEW
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.report.saved_session import FILM_NOT_DRAWN
from circuitlab.report.sheet import WIDE, Numbers, Sheet, refuse_others, sheet_of

LANE = "slow"


@dataclass(frozen=True, eq=False)
class _Chosen:
    """What is written, and where to."""

    sheet: Sheet
    path: Path


class SheetExport(QObject):
    """`ask()` computes what is shown, asks for the paper and a file, and writes picture, caption and numbers.

    Answers are computed and exported on workers; the picture is laid out in the window's thread, as Qt wants it.
    """

    def __init__(self, context: AppContext, host: Host, tour: Tour, window: QWidget) -> None:
        super().__init__(window)
        self.context, self.host, self.tour, self._window = context, host, tour, window
        self.paper: Paper | None = None  # as it was chosen last
        self._computing = WorkSlot(self, finished=self._computed, failed=self._failed)
        self._exporting = WorkSlot(self, finished=self._exported, failed=self._failed)

    @property
    def panels(self) -> tuple[str, ...]:
        """The panels that are in front, those of the present step in its order first."""
        shown = [name for name in self.host.layout_words().show if name in panels()]
        step = () if self.tour.lesson is None else self.tour.lesson.setup(self.tour.number).show
        first = [name for name in step if name in shown]
        return (*first, *(name for name in shown if name not in first))

    @Slot()
    def ask(self) -> None:
        """Compute what is shown, then ask for the paper."""
        self.host.commit_typing()
        context, names = self.context, self.panels
        context.before_export()
        engine, state, zoom, runner = context.engine, context.document.recorded, self.host.layout_words().zoom, context.runner
        title = "" if self.tour.lesson is None else self.tour.step.title
        plays = self.tour.lesson is not None and self.tour.ready is not None and bool(self.tour.ready.film)
        remarks = (*context.remarks_on(state), *([Essential(FILM_NOT_DRAWN)] if plays else []))

        def work(job: Job) -> Sheet:
            return sheet_of(engine, state, names, title, zoom, remarks=remarks, ctx=runner.ctx(job))

        runner.do(self._computing, f"figure of {number_of(len(names), 'panel')}", work, LANE)

    @Slot(object)
    def _computed(self, sheet: Sheet) -> None:
        remember = self.context.settings.remember
        paper = self.paper or replace(load_paper(remember), width_mm=WIDE.width_mm, height_mm=None)
        parts = ", ".join(f"{cell.letter} {panels()[cell.panel].title}".strip() for cell in sheet.cells)
        cells = sheet.drawn_cells()
        dialog = PaperDialog(
            paper,
            self._window,
            subject=parts,
            check=lambda asked: check_sheet(cells, asked),
            draw=lambda asked, whole, room, ratio: sheet_preview(cells, asked, room, ratio=ratio),
            usual=WIDE,
        )
        dialog.setWindowTitle("Export figure")
        dialog.accepted.connect(lambda: self._paper_chosen(dialog, sheet))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _paper_chosen(self, dialog: PaperDialog, sheet: Sheet) -> None:
        self.paper = dialog.paper
        number = "" if self.tour.lesson is None else str(self.tour.number + 1)
        suggested = self.context.exports.suggest(f"fig{number}{PICTURES[0].suffix}")
        name, _ = QFileDialog.getSaveFileName(self._window, "Export figure", suggested, dialog_filter(PICTURES))
        if name:
            self.context.exports.used(Path(name))
            self.write(sheet.on(dialog.paper), Path(name))

    def write(self, sheet: Sheet, path: Path) -> None:
        """Write a sheet with its caption and its numbers; one that is being written is given up."""
        with_view = self.context.settings["picture_view"] == WITH_VIEW

        def work(job: Job) -> tuple[str, Numbers]:
            return sheet.view_text() if with_view else "", sheet.numbers()

        def act() -> None:
            format_of(path)
            refuse_others(path)
            self._exporting.role = _Chosen(sheet, path)
            self.context.runner.do(self._exporting, f"write {path.name}", work)

        self._report(act)

    @Slot(object, object)
    def _exported(self, outcome: tuple[str, Numbers], chosen: _Chosen) -> None:
        view, numbers = outcome

        def act() -> None:
            output = chosen.sheet.output(chosen.path, numbers, view)
            write_together(output.files, named=[chosen.path])
            beside = ", ".join(file.name for file in [*output.files][1:])
            self.context.message.emit(f"Written: {chosen.path}, and its caption and numbers: {beside}")

        self._report(act)

    def _report(self, act: Callable[[], None]) -> None:
        try:
            act()
        except CircuitLabError as error:
            self.context.failed.emit(error)

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Cancelled):
            self.context.message.emit("There is no figure: it was cancelled.")
        else:
            self.context.failed.emit(error)
