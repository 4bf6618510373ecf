"""A step with several panels as one figure for print: a sheet of parts A, B, C with its caption and its data.

sheet = lab.session("talk.circuitlab").steps[1].sheet(lab.Paper(width_mm=174))
sheet.save("fig1.pdf")                  # fig1.pdf, fig1.txt and fig1.tex: the caption; fig1.zip: the numbers
"""

from __future__ import annotations

import string
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from circuitlab.analysis.base import Ctx
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable, opened, write_together
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.engine.engine import Engine
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.panel import Panel, find_panels
from circuitlab.figures.contracts.unasked import without_choice
from circuitlab.figures.marks import Figure
from circuitlab.report.prompts import Prompts, PromptText
from circuitlab.report.render import Sides, drawn_of, view_text
from circuitlab.report.sheet_caption import MADE, SheetCaption
from circuitlab.report.sheet_cell import SheetCell
from circuitlab.report.sheet_data import MANIFEST, Numbers, numbers_of, zipped
from circuitlab.session_files.picture_view import PictureView
from circuitlab.session_files.session import UNCHOSEN
from circuitlab.state.state import State
from circuitlab.story.zoom import Parts, of_panel

if TYPE_CHECKING:
    from circuitlab.draw.view.cell_view import Cell

WIDE = Paper(width_mm=174.0)  # two columns of a page
MOST = len(string.ascii_uppercase)
BESIDE = (".txt", ".tex", ".zip")  # what a sheet has beside its picture


@dataclass(frozen=True, eq=False, repr=False)
class Sheet:
    """The parts in their order, on paper. `title`: of the step; `view`: the words that open it again.

    `columns`: so many parts stand side by side; None: two, where they can be read so. `prompts`: in full.
    """

    engine: Engine
    title: str
    cells: tuple[SheetCell, ...]
    view: PictureView
    paper: Paper = WIDE
    columns: int | None = None
    prompts: tuple[PromptText, ...] = ()

    def on(self, paper: Paper, columns: int | None = None) -> Sheet:
        """The same on other paper. Raises `UsageError` for more columns than it has parts, or none."""
        if columns is not None and not 1 <= columns <= len(self.cells):
            parts = number_of(len(self.cells), "part")
            raise UsageError(
                "The sheet cannot have so many columns.",
                expected=f"1 to {len(self.cells)}, as it has {parts}" if len(self.cells) > 1 else "1, as it has one part",
                got=str(columns),
                remedy="Name a number of columns that there is, or none.",
            )
        return replace(self, paper=paper, columns=columns)

    def view_text(self) -> str:
        """The words that open what it shows, for its file. May read the models' files: for a worker thread."""
        return view_text(self.engine, self.view)

    def picture(self, suffix: str, with_view: bool = True) -> bytes:
        """The bytes of a picture of this kind, perhaps with the words that open what it shows. Raises as `save`."""
        return self.drawn(suffix, self.view_text() if with_view else "").data

    def numbers(self) -> Numbers:
        """The numbers of every part as files. May read the models' files: for a worker thread."""
        return numbers_of(self.engine, self.cells)

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        """The picture in a notebook, with the titles of its parts for where no pictures are shown."""
        from circuitlab.report.picture import SHARP, bundle, in_page

        outlined, sharp = replace(self.paper, text="outlines"), replace(self.paper, dpi=SHARP)
        svg = lambda: in_page(replace(self, paper=outlined).drawn(".svg").data, self.title)
        png = lambda: replace(self, paper=sharp).drawn(".png").data
        words = "\n".join((self.title, *(f"{cell.letter} {cell.title}".strip() for cell in self.cells)))
        return bundle(svg, png, words, self.paper, include, exclude)

    def __repr__(self) -> str:
        return f"<Sheet “{self.title}”: {', '.join(f'{cell.letter} {cell.panel}'.strip() for cell in self.cells)}>"

    def output(self, path: Path, numbers: Numbers | None, view: str) -> SheetOutput:
        """What `save` writes; `numbers` None: without them. `view`: the words for the picture, "" none."""
        suffix = format_of(path)
        picture = self.drawn(suffix, view)
        caption = self.caption(picture)
        files = {
            path: picture.data,
            path.with_suffix(".txt"): caption.plain().encode("utf-8"),
            path.with_suffix(".tex"): caption.latex(path.name, self.paper.width_mm).encode("utf-8"),
        }
        if numbers is not None:
            named = {file.name: content for file, content in files.items() if file != path}
            files[path.with_suffix(".zip")] = zipped(numbers, caption, named)
        return SheetOutput(files, picture.height_mm)

    def save(self, path: str | Path, data: bool = True, with_view: bool = True, named: bool = True) -> SheetOutput:
        """Write the picture (.pdf, .svg, .png), and beside it its caption as .txt and .tex and with `data` its numbers as .zip.

        All of them, or nothing, is written. `with_view`: the picture can be opened for what it shows. `named`: a link at `path`
        is followed, as a person has named it; one beside it never is. Raises `UsageError` for
        another format, where a part cannot be read at this size, and where a file beside it is not that of a sheet; `BadMachine`.
        """
        path = Path(path)
        format_of(path)
        refuse_others(path, data)
        output = self.output(path, self.numbers() if data else None, self.view_text() if with_view else "")
        write_together(output.files, named=[path] if named else ())
        return output

    def drawn(self, suffix: str, view: str = "") -> SheetPicture:
        """The picture as a file of this kind, and what it says of itself. Starts an offscreen Qt if there is none."""
        from circuitlab.draw.export.sheets import SheetWords, sheet_picture

        words = SheetWords()
        file = sheet_picture(self.drawn_cells(), suffix, self.paper, self.title, self.columns, view, words)
        return SheetPicture(file.data, words.shared, words.own, file.height_mm)

    def check(self) -> None:
        """Raises the `UsageError` that drawing it would raise: too narrow, too low, type too large."""
        from circuitlab.draw.export.sheets import check_sheet

        check_sheet(self.drawn_cells(), self.paper, self.columns)

    def drawn_cells(self) -> list[Cell]:
        """What is drawn of each part: for the thread of the widgets, where there are any."""
        from circuitlab.draw.export.pictures import as_seen
        from circuitlab.draw.look.app import application
        from circuitlab.draw.view.cell_view import Cell

        application(offscreen=True)
        seen = (as_seen(cell.figure, cell.seen) if cell.seen else (cell.figure, {}) for cell in self.cells)
        return [Cell(cell.letter, figure, parts) for cell, (figure, parts) in zip(self.cells, seen, strict=True)]

    def caption(self, picture: SheetPicture) -> SheetCaption:
        """The caption of what was drawn."""
        return SheetCaption(self.title, self.cells, picture.shared, picture.own, self.prompts)


@dataclass(frozen=True, eq=False)
class SheetPicture:
    """A file, its height, and its caption: what all parts say, and what each says, by letter."""

    data: bytes
    shared: tuple[str, ...] = ()
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    height_mm: float = 0.0


@dataclass(frozen=True, eq=False)
class SheetOutput:
    """The files of a sheet, the picture first, and the height of the picture."""

    files: Mapping[Path, bytes]
    height_mm: float


def sheet_of(
    engine: Engine,
    state: State,
    panels: Sequence[str],
    title: str = "",
    zoom: Parts | None = None,
    unchosen: Sequence[str] = (),
    remarks: Sequence[str] = (),
    ctx: Ctx | None = None,
) -> Sheet:
    """The panels of a State as a sheet, in their order. `zoom`: what is seen of their figures; `unchosen`: see `Session`.

    `remarks`: what every part is to say besides. `ctx` can cancel. Computes what they ask for. Raises `UsageError` for no panel,
    one of another name or named twice, `BadInput` where one has no figure, `Cancelled`.
    """
    names = tuple(panels)
    if not 1 <= len(names) <= MOST:
        raise UsageError(
            "A sheet cannot be made of these panels.",
            expected=f"1 to {MOST} panels",
            got=str(len(names)),
            remedy="Name the panels, or let the step show them.",
        )
    cells: list[SheetCell] = []
    prompts = Prompts(engine)
    for letter, panel in zip(string.ascii_uppercase, find_panels(names), strict=False):
        letter = letter if len(names) > 1 else ""
        figure, answers = _drawn(engine, panel, state, letter, ctx)
        figure = without_choice(figure, *(kind in unchosen for kind in UNCHOSEN)).with_caption(*remarks)
        prompts.add(answers["now"].values(), letter)
        prompts.add(answers["ref"].values(), letter, "reference")
        seen = of_panel(zoom or {}, panel.name)
        cells.append(SheetCell(letter, panel.name, figure, answers, seen, panel.drawn_table(state)))
    beside = {cell.panel: cell.seen for cell in cells[1:]}
    view = PictureView(state, cells[0].panel, cells[0].seen, unchosen, beside)
    return Sheet(engine, title or cells[0].title, tuple(cells), view, prompts=prompts.texts())


def _drawn(engine: Engine, panel: Panel, state: State, letter: str, ctx: Ctx | None) -> tuple[Figure, Sides]:
    """A panel's figure, and its answers with the hashes of their weights."""
    try:
        drawn = drawn_of(engine, panel, state, ctx)
    except BadInput as error:
        where = f"{panel.title} (part {letter})" if letter else panel.title
        raise BadInput(f"{where}: {error.what}", expected=error.expected, got=error.got, remedy=error.remedy) from error
    figure = drawn.figure
    if not figure.grid:
        raise BadInput(f"Nothing is shown in {panel.title}.", got=figure.why_empty, remedy="Leave it out of the sheet.")
    sides = drawn.answers.items()
    return figure, {side: {role: engine.identified(one) for role, one in roles.items()} for side, roles in sides}


def refuse_others(path: Path, data: bool = True) -> None:
    """Raise `UsageError` where a file that a sheet has beside its picture is there, and is none of a sheet: nobody was asked.

    `BadMachine` where one of its files could not be written.
    """
    beside = {suffix: path.with_suffix(suffix) for suffix in (BESIDE if data else BESIDE[:2])}
    need_writable(path)
    need_writable(*beside.values(), named=False)
    for suffix, other in beside.items():
        if other.exists() and not _of_sheet(other):
            raise UsageError(
                "A file of that name exists already.",
                expected=f"an unused name, or that of the {suffix} of a sheet",
                got=str(other),
                remedy="Give the sheet another name.",
            )


def _of_sheet(path: Path) -> bool:
    try:
        if path.suffix == ".zip":
            with opened(path) as file, zipfile.ZipFile(file) as archive:
                return MANIFEST in archive.namelist()
        with opened(path) as file:
            return MADE in file.read(1 << 20).decode("utf-8")
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
