"""Export as a film: what the present step plays, else the whole training of what the window shows, or a constructed model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from circuitlab.disk.files import need_writable, write_whole
from circuitlab.disk.formats import FILMS, dialog_filter
from circuitlab.draw.export.animation import animation, need_pillow, rgb_bytes
from circuitlab.draw.export.film import drawn
from circuitlab.draw.look.slide import Film, Slide, film_format
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.gui.lessons.film_dialog import FilmDialog
from circuitlab.gui.lessons.host import Host
from circuitlab.gui.lessons.tour import Tour
from circuitlab.gui.places.arrangements import FRONTS
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.drawer import Drawer
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import ModelRef
from circuitlab.report.film import FilmPlan, film_scenes, filmed, panels_of
from circuitlab.state.constructed import parameters
from circuitlab.state.state import State
from circuitlab.story.film import Scene, film_points, scenes_of_training, without_repeat
from circuitlab.story.setup import Setup

LANE = "slow"


@dataclass(frozen=True)
class Reel:
    """What is to be filmed: `state` with the words `setup` of its panels, in the `scenes` of a step, or from one of `ends` to the
    other; without either along a parameter of its constructed model.
    """

    title: str
    setup: Setup
    state: State
    ends: tuple[ModelRef, ModelRef] | None = None
    scenes: tuple[Scene, ...] = ()

    @property
    def asks(self) -> bool:
        """Whether it is still to be said which parameter plays."""
        return self.ends is None and not self.scenes

    def played(self, store: ModelStore, over: str) -> tuple[Scene, ...]:
        """Its scenes; `over`: the parameter, where it asks for one. Opens models: for a worker thread."""
        scenes = self.scenes if self.ends is None else scenes_of_training(store, self.state, *self.ends)
        return without_repeat(store, scenes) if scenes else film_scenes(self.state, over)


class FilmExport(QObject):
    """`ask()` asks for size and file. Computing, drawing and writing is one job, which can be cancelled."""

    def __init__(self, context: AppContext, host: Host, tour: Tour, window: QWidget) -> None:
        super().__init__(window)
        self.context, self.host, self.tour, self._window = context, host, tour, window
        self.drawer = Drawer(self)
        self.slide = Slide()  # as it was chosen last
        self._slot = WorkSlot(self, finished=self._written, failed=self._failed)

    @property
    def reel(self) -> Reel | None:
        """What a film would show now, None where nothing can play."""
        tour, bar = self.tour, self.host.checkpoints
        if tour.lesson is not None and tour.ready is not None and tour.ready.film:
            return Reel(tour.step.title, tour.lesson.setup(tour.number), tour.ready.state, None, tour.ready.film)
        state, words = self.context.document.recorded, self.host.layout_words()
        if parameters(state) is not None:
            return Reel("", words, state)
        if not bar.plays:
            return None
        ends = (
            replace(state.model, checkpoint=bar.points[0].checkpoint),
            replace(state.model, checkpoint=bar.points[-1].checkpoint),
        )
        return Reel("", words, state, ends)

    @Slot()
    def ask(self) -> None:
        """Ask for size and speed, then for a file, and write the film."""
        self.host.commit_typing()
        reel = self.reel
        try:
            need_pillow()
            if reel is None:
                return
            panels, _ = panels_of(reel.setup, FRONTS)
        except CircuitLabError as error:
            self.context.failed.emit(error)
            return
        subject = ", ".join(
            (*(panel.title for panel in panels), replace(reel.state.model, checkpoint=None).name.partition("?")[0])
        )
        frames = len(reel.scenes)
        if reel.ends is not None:
            frames = len(film_points(*reel.ends, self._checkpoints(reel.ends[0])))
        dialog = FilmDialog(self.slide, subject, frames, reel.state if reel.asks else None, self._window)
        dialog.accepted.connect(lambda: self._chosen(dialog, reel))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _checkpoints(self, ref: ModelRef) -> int:
        model = self.context.engine.store.peek(ref) or self.context.engine.store.peek(replace(ref, checkpoint=None))
        return 0 if model is None else len(model.opened.steps)

    def _chosen(self, dialog: FilmDialog, reel: Reel) -> None:
        self.slide = dialog.slide
        suggested = self.context.exports.suggest(f"{'film' if not reel.title else _file_name(reel.title)}{FILMS[0].suffix}")
        name, _ = QFileDialog.getSaveFileName(self._window, "Export film", suggested, dialog_filter(FILMS))
        if name:
            self.context.exports.used(Path(name))
            self.write(reel, Path(name), dialog.slide, dialog.over)

    def write(self, reel: Reel, path: Path, slide: Slide, over: str = "") -> None:
        """Write a film; the one that is being written is given up."""
        context = self.context
        engine, runner = context.engine, context.runner
        context.before_export()
        stand_ins = context.remarks_on(reel.state)
        try:
            suffix = film_format(path)
        except CircuitLabError as error:
            context.failed.emit(error)
            return

        def work(job: Job) -> tuple[Path, tuple[str, ...]]:
            ctx = runner.ctx(job)
            need_writable(path)
            scenes = reel.played(engine.store, over)
            slide.check(len(scenes))
            panels, left_out = panels_of(reel.setup, FRONTS)
            film, lacking = filmed(engine, FilmPlan(scenes, panels, reel.title, reel.setup.zoom, (), left_out, stand_ins), ctx)
            frames = self.drawer.parts(lambda: _frames(film, slide), 2 * len(film.frames), ctx)
            images = [frame for frame in frames if frame is not None]
            write_whole(path, animation(images, suffix, slide, film.title, film.about), named=True)
            return path, (*(f"{title}: no room" for title in left_out), *lacking)

        runner.do(self._slot, f"film {path.name}", work, LANE)

    @Slot(object)
    def _written(self, outcome: tuple[Path, tuple[str, ...]]) -> None:
        path, lacking = outcome
        more = f" Not in it: {'; '.join(lacking)}" if lacking else ""
        self.context.message.emit(f"Written: {path}.{more}")

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Cancelled):
            self.context.message.emit("There is no film: it was cancelled.")
        else:
            self.context.failed.emit(error)

    def stop(self) -> None:
        """The window closes."""
        self.context.runner.cancel_slot(self._slot)
        self.drawer.stop()


def _file_name(title: str) -> str:
    """A title as the name of a file."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())[:60] or "film"


def _frames(film: Film, slide: Slide) -> Iterator[bytes | None]:
    """The frames, each once it is drawn; None while they are laid out."""
    for image in drawn(film, slide):
        yield None if image is None else rgb_bytes(image)
