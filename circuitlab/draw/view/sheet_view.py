"""A sheet: figures under letters in rows, in one type and one stroke, their pictures in line, and one caption below them all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import ceil, floor

from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from circuitlab.caption_parts import About, Essential, Intervened, Reference, about_of, whose
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.style_rules import set_sheet
from circuitlab.draw.look.theme import GRID, Theme, palette, stylesheet
from circuitlab.draw.look.unreadable import Unreadable
from circuitlab.draw.plots.plot import Range
from circuitlab.draw.view.caption import Caption
from circuitlab.draw.view.cell_view import Cell, CellView
from circuitlab.draw.view.figure_view import SHORT_CAPTION
from circuitlab.figures.marks import joined

GUTTER = 2 * GRID  # px between parts
MOST_INSET = 0.2  # of a part's width that its picture is moved to stand below another
LOW = 0.6  # of the highest picture of a row: lower ones stay as they are
LOWEST = 120  # px of a picture whose height is free, and of one that others of its row are made as low as
WIDE = 0.5  # of its width: the height of a part that has a row for itself, and all of its width, at most
WIDE_BESIDE_BLANK = 0.6  # the same where much would be blank otherwise
WIDE_STACKED = 0.75  # and of plots below one another, each of which has its least height
FREE = 0.35  # the same of one whose pictures may have any height
LEFT_OVER = 0.1  # of a square of the sheet's width: more than this beside or below a part is blank
HIGHER = 0.3  # of such a square is given up as blank where the sheet would be so much higher otherwise
TURNS = 3  # of moving and sizing, until nothing moves
SHORT_TABLES = 4  # beside pictures a table has a quarter of its rows, and more where there is room
TABLES = 2  # where there are only tables, each has half of them


class SheetView(QWidget):
    """`columns`: so many parts stand side by side; None: two, where they can be read so, as a step's panels stand in the window.

    Raises `UsageError` where a part cannot be read.
    """

    def __init__(self, cells: Sequence[Cell], theme: Theme, paper: Paper, title: str = "", columns: int | None = None) -> None:
        super().__init__()
        theme = replace(theme, normal=theme.small, large=theme.small)  # one size of type over all parts
        self.theme, self.title, self._paper = theme, title, paper
        self._n_columns, self._wide = 1, WIDE
        self.setPalette(palette(theme))
        self.setFont(theme.font())
        set_sheet(self, stylesheet(theme))
        self.views = [CellView(cell, theme, paper, self) for cell in cells]
        self._columns = columns
        self.rows: list[list[CellView]] = []
        self._caption = Caption(self)
        self._caption.setFont(theme.font(theme.small))
        self._caption.set_ink(theme.colour("muted"))

    # what it says ----------------------------------------------------------------------------------------------------

    def parts(self) -> dict[str, Range]:
        """The visible ranges of what is not seen whole, by letter and mark."""
        return {f"{view.cell.letter}/{name}": part for view in self.views for name, part in view.parts().items()}

    @property
    def whole_caption(self) -> str:
        """All captions: what they share, then what each part says of itself."""
        return joined(*self.caption_parts)

    @property
    def caption_parts(self) -> tuple[str, ...]:
        """Each once, with the letters of the parts that say it where not all do."""
        first, rest = self._caption_in_two()
        return (*first, *rest)

    def _caption_in_two(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the parts are of and their conventions, and all that gives way to these."""
        of = (part for view in self.views for part in view.figure.about)
        captions = self._captions()
        references = (part for parts in captions.values() for part in parts if isinstance(part, Reference))
        readings = (part for parts in captions.values() for part in parts if about_of(part) is About.READING)
        return lettered_parts(captions, {*of, *references, *readings})

    def words(self) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
        """What all parts say, and what else each says, by its letter."""
        captions = self._captions()
        shared = tuple(part for part, letters in whose(captions).items() if not letters)
        return shared, {letter: tuple(part for part in parts if part not in shared) for letter, parts in captions.items()}

    def left_out(self) -> tuple[str, ...]:
        """What there is no room for, in words, behind the letter of its part."""
        caption = ("caption shortened",) if self._caption.folds and not self._caption.isHidden() else ()
        begin = lambda view: f"{view.cell.letter}: " if view.cell.letter else ""
        return (*(begin(view) + words for view in self.views for words in view.left_out()), *caption)

    def _captions(self) -> dict[str, tuple[str, ...]]:
        """By letter."""
        return {view.cell.letter: (*view.caption_parts, *self._left_out(view)) for view in self.views}

    def _left_out(self, view: CellView) -> tuple[str, ...]:
        return tuple(f"{what} as in {letter}" for what, letter in self._shared.get(view.cell.letter, {}).items())

    # layout ----------------------------------------------------------------------------------------------------------

    def lay_out(self, width: int) -> int:
        """Lay everything out in this width; the height of the whole in px."""
        self.rows = self._in_rows(width)
        self._shared: dict[str, dict[str, str]] = {}
        self._share_legends()
        self._share_bars()
        for row in self.rows:
            self._fit_row(row, width, self._n_columns)
        if len(self.views) > 1:
            self._align()
        return self._place(width)

    def _in_rows(self, width: int) -> list[list[CellView]]:
        """Rows in the order of the letters. A part that cannot be read in a column has a row for itself.

        Where much of one is blank, as it would be below a low part beside a high one, the arrangement that leaves the least of
        it without becoming much higher: parts have rows for themselves, or three stand side by side.
        """
        columns = min(self._columns or 2, len(self.views))
        self._refuse_small(columns if self._columns else 1, width)
        rows = self._filled(columns, width)
        if columns == 2 and self._columns is None and any(self._blank(row, 2, width)[0] >= LEFT_OVER for row in rows):
            self._wide = WIDE_BESIDE_BLANK
            others = [(2, self._least_blank(width))]
            others += [(3, [self.views])] if len(self.views) == 3 and self._fit_in(3, width) else []
            cost = lambda one: sum(self._cost(row, one[0], width) for row in one[1])
            columns, rows = min(((2, rows), *others), key=cost)
        self._n_columns = columns if any(len(row) > 1 for row in rows) else 1
        return rows

    def _least_blank(self, width: int) -> list[list[CellView]]:
        """Rows of one part or two with the least cost in all: the best ones of the first i parts are continued."""
        fits = [view.fits(_each(2, width), width) for view in self.views]
        best: list[tuple[float, list[list[CellView]]]] = [(0.0, [])]
        for i in range(len(self.views)):
            row = self.views[i : i + 1]
            ways = [(best[i][0] + self._cost(row, 2, width), [*best[i][1], row])]
            if i and fits[i - 1] and fits[i]:
                row = self.views[i - 1 : i + 1]
                ways.append((best[i - 1][0] + self._cost(row, 2, width), [*best[i - 1][1], row]))
            best.append(min(ways, key=lambda way: way[0]))
        return best[-1][1]

    def _filled(self, columns: int, width: int) -> list[list[CellView]]:
        """Rows of so many columns, in each as many parts as can be read there."""
        rows, fitted = list[list[CellView]](), list[bool]()
        for view in self.views:
            fits = columns == 1 or self._columns is not None or view.fits(_each(columns, width), width)
            if not fits or not rows or len(rows[-1]) == columns or not fitted[-1]:
                rows.append([])
            rows[-1].append(view)
            fitted.append(fits)
        return rows

    def _fit_in(self, columns: int, width: int) -> bool:
        return all(view.fits(_each(columns, width), width) for view in self.views)

    def _blank(self, row: list[CellView], columns: int, width: int) -> tuple[float, float]:
        """px² of a row on which nothing stands, per px² of a square of the width of the sheet; and the row's height per width."""
        self._fit_row(row, width, columns)
        _lengthen(row)
        high = max(view.height() for view in row)
        return (high * width - sum(view.width() * view.height() for view in row)) / width**2, high / width

    def _cost(self, row: list[CellView], columns: int, width: int) -> float:
        """What is to be said against a row: what is blank in it, and its height."""
        blank, high = self._blank(row, columns, width)
        return blank + HIGHER * high

    def _refuse_small(self, columns: int, width: int) -> None:
        view = max(self.views, key=lambda view: view.least_width())
        least = view.least_width()
        if least <= _each(columns, width):
            return
        raise Unreadable(
            f"Part {view.cell.letter or 1} of the sheet cannot be read at this width in this type.",
            self._paper,
            ceil(least) * columns + GUTTER * (columns - 1),
            width,
            beside=columns,
        )

    def _fit_row(self, row: list[CellView], width: int, columns: int) -> None:
        """Give the parts of a row the width of a column, or the only one all of it where that does not make it too high."""
        each = _each(columns, width)
        pictures = any(view.has_more_than_tables for view in self.views)
        for view in row if len(self.views) > 1 else ():
            view.shorten_tables(SHORT_TABLES if pictures else TABLES)
        if len(row) == 1 < columns:
            can = row[0].fits(each, width)
            row[0].fit(width, FREE * width if can else None)
            most, high = WIDE_STACKED if row[0].stacked and not row[0].rigid else self._wide, row[0].height()
            if high <= most * width + 1 or not can:
                return
            row[0].fit(each)
            if row[0].height() >= high:  # tables do not become higher with their width
                row[0].fit(width, FREE * width)
            return
        columns_fit = self._wide > WIDE and len(self.views) > 1  # then it is not for want of width that there is one column
        for view in row:
            view.fit(each, FREE * width if columns == 1 and columns_fit and view.fits(_each(2, width), width) else None)

    def _align(self) -> None:
        """Put the left edges of the pictures of a column in line, and tops and heights of those of a row."""
        for _ in range(TURNS):
            moved = self._align_lefts()
            for row in self.rows:
                moved = self._align_row(row) or moved
            if not moved:
                break
        for row in self.rows:
            _lengthen(row)

    def _align_lefts(self) -> bool:
        moved = False
        for column in range(max(map(len, self.rows))):
            views = [row[column] for row in self.rows if column < len(row)]
            edges = [(view.frame_of(plot).left(), view, i) for view in views for i, plot in view.firsts().items()]
            for left, view, i in edges:
                near = [other for other, *_ in edges if other - left + view.insets.get(i, 0) <= MOST_INSET * view.width()]
                if (by := round(max(near, default=left) - left)) > 0:
                    view.inset(i, by)
                    moved = True
            for view in views if moved else ():
                view.move_up()
                view.fit_again()
        return moved

    def _align_row(self, row: list[CellView]) -> bool:
        pictures = [view for view in row if view.first is not None and not view.stacked]
        before = [view.geometry() for view in row]
        if pictures:
            heights = {view: view.frame_of(view.first).height() for view in pictures if view.first is not None}
            fixed = [high for view, high in heights.items() if view.rigid]
            fixed = [high for high in fixed if high >= LOW * max(fixed)]
            free = [high for view, high in heights.items() if not view.rigid]
            target = floor(min(fixed) if fixed and (min(fixed) >= LOWEST or not free) else max(LOWEST, *free))
            for view, high in heights.items():
                if not view.rigid or high >= LOW * target:
                    view.give_frame_height(target)
        tops = {view: view.top() for view in row}
        for view, top in tops.items():
            if (by := round(max(tops.values()) - top)) > 0:
                view.move_down(by)
        return [view.geometry() for view in row] != before and len(row) > 1

    def _share_legends(self) -> None:
        """Of equal legends the first stays."""
        first: dict[object, str] = {}
        for view in self.views:
            for legend in view.legends():
                if first.setdefault(legend.key, view.cell.letter) != view.cell.letter:
                    self._shared.setdefault(view.cell.letter, {})["legend"] = first[legend.key]
                    legend.leave_out()

    def _share_bars(self) -> None:
        """Of neighbours in a row with equal colour bars the right one has it."""
        key = lambda mark: (mark.map, mark.levels, mark.unit)
        for row in self.rows:
            for i, view in enumerate(row[:-1]):
                bars = {key(widget.mark) for widget in row[i + 1].maps()}
                if len(bars) != 1:
                    continue
                for widget in view.maps():
                    if key(widget.mark) in bars:
                        view.without_bar(widget.mark.name)
                        self._shared.setdefault(view.cell.letter, {})["colours"] = row[i + 1].cell.letter

    def _place(self, width: int) -> int:
        y = 0
        for row in self.rows:
            x = 0
            for view in row:
                view.move(x, y)
                x += view.width() + GUTTER
            y += max(view.height() for view in row) + GUTTER // 2
        return self._place_caption(width, y)

    def _place_caption(self, width: int, y: int) -> int:
        paper, parts = self._paper, self.caption_parts
        shown = paper.caption != "none" and bool(parts)
        self._caption.setVisible(shown)
        if not shown:
            return y - GUTTER // 2
        inner = width - 2 * GRID
        self._caption.resize(inner, 10)
        self._caption.say(parts, SHORT_CAPTION if paper.caption == "short" else 0, len(self._caption_in_two()[0]))
        self._caption.setGeometry(GRID, y, inner, self._caption.heightForWidth(inner))
        return y + self._caption.height() + GRID // 2

    def set_ratio(self, scale: float) -> None:
        """Device pixels per px of layout, for a scaled painter."""
        for view in self.views:
            view.set_ratio(scale)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The theme's background."""
        painter = QPainter(self)
        painter.fillRect(event.rect(), self.theme.colour("background"))
        painter.end()


def _lengthen(row: list[CellView]) -> None:
    """Let tables have more rows, and a picture of any height more of it, where others of their row are higher. Pictures of parts
    beside each other stay as high as each other.
    """
    high = max(view.height() for view in row)
    pictures = [view for view in row if view.first is not None and not view.stacked]
    for view in row:
        view.lengthen_table(high)
        if pictures == [view] and len(row) > 1:
            view.lengthen_picture(high)


def _each(columns: int, width: int) -> int:
    return (width - GUTTER * (columns - 1)) // columns


def lettered_parts(
    captions: dict[str, tuple[str, ...]], foremost: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The captions of several figures, by letter, in one: what stays in any case, and what is behind it.

    First stands under which interventions the numbers are, then what is `foremost`, what all say before what only some
    say behind their letters. A letter stands before the first of its parts, so that later ones can give way; what must stay in
    sight is one part.
    """
    groups: dict[str, list[str]] = {}
    for part, names in whose(captions).items():
        groups.setdefault(", ".join(names), []).append(part)
    shared, own = groups.pop("", []), sorted(groups.items())
    cuts = [part for part in shared if isinstance(part, Intervened)]
    first = [part for part in shared if part in foremost and part not in cuts]
    rest = [part for part in shared if part not in cuts and part not in first]
    for letters, parts in own:
        cut = [part for part in parts if isinstance(part, Intervened)]
        fore = [part for part in parts if part in foremost and part not in cut]
        stay = [part for part in parts if isinstance(part, Essential) and part not in cut and part not in fore]
        go = [part for part in parts if not isinstance(part, Essential) and part not in fore]
        cuts += [Intervened(f"{letters}: {joined(*cut)}")] if cut else []
        first += [f"{letters}: {joined(*fore)}"] if fore else []
        rest += [f"{letters}: {go[0]}", *go[1:]] if go else []
        rest += [Essential(f"{letters}: {joined(*stay)}")] if stay else []
    return (*cuts, *first), tuple(rest)
