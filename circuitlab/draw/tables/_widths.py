"""Column widths of a table: as the texts need, stretched where there is room, shortened where there is none."""

from __future__ import annotations

from math import ceil

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QHeaderView, QTableView

from circuitlab.draw.look.theme import Theme
from circuitlab.draw.tables._cells import PAD, ROW, TIGHT_PAD, RowsDelegate, RowsHeader
from circuitlab.draw.tables.model import RowsModel, cell_text, is_number
from circuitlab.figures.marks import RowColumn

LEAST_SECTION = 32  # px
LONG = 220  # px at text size 1: words ask for no more, and take what is left
SHORT_BAR = 28  # beside its number
LONG_BAR = 60  # more than that: bars that can be compared
SHORTENED = 84  # words are elided to this, so that the numbers beside them stay visible
SHORTENED_END = 120  # the same of texts that are read from their end
SHORTEST = 36  # and to this, with padding narrowed and at last titles elided, before a column is left out


def _widest(column: RowColumn, metrics: QFontMetricsF) -> float:
    """px of the longest text among the first rows."""
    texts = (cell_text(column, r) for r in range(min(200, len(column.values))))
    return max(map(metrics.horizontalAdvance, texts), default=0.0)


class ColumnWidths:
    """Widths of a table's header. `fit` after other columns, `stretch` after another size; both take it in px."""

    def __init__(self, table: QTableView, model: RowsModel, theme: Theme) -> None:
        self.theme = theme
        self._table, self._model = table, model
        self._widths: list[int] = []
        self._whole: list[int] = []  # with no more room than the words need
        self._least: list[int] = []
        self._titled: list[int] = []  # as little as leaves the title whole
        self._tightest: list[int] = []
        self._stretched: list[int] = []
        self._spare: set[int] = set()
        self._squeezed = False
        self._left_out: tuple[int, ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Titles of the columns without room; the rank is left out first, then the last ones."""
        hidden = bool(self._widths) and 0 not in self._left_out and self._table.horizontalHeader().isSectionHidden(0)
        left_out = (0, *self._left_out) if hidden else self._left_out
        return tuple(str(self._model.headerData(i, Qt.Orientation.Horizontal)) for i in left_out)

    def fit(self, width: int, height: int) -> None:
        """As wide as the first rows and the header; the rest goes to texts read from their end, else bars, tokens, sentences."""
        header = self._table.horizontalHeader()
        strong = bool(self._model.mark.strong)  # bold is wider
        plain = QFontMetricsF(self.theme.font(self.theme.normal, bold=strong))
        mono = QFontMetricsF(self.theme.font(self.theme.normal, mono=True, bold=strong))
        titles = QFontMetricsF(self.theme.font(self.theme.small))
        written = QFontMetricsF(self.theme.font(self.theme.normal - 1, bold=strong))  # as cells are, see `RowsDelegate`
        columns, px = self._model.mark.columns, self.theme.px
        bars = [i for i, c in enumerate(columns) if c.bar]
        widest_of = [_widest(c, mono if c.tokens else plain) for c in columns]
        long = [i for i, c in enumerate(columns) if not is_number(c) and widest_of[i] > px(LONG)]
        from_end = [i for i, c in enumerate(columns) if c.from_end]
        self._stretched = from_end or bars or [i for i, c in enumerate(columns) if c.tokens] or long
        self._spare = {i for i, c in enumerate(columns) if c.spare}
        self._widths, self._whole, self._least, self._titled, self._tightest = [], [], [], [], []
        for i, column in enumerate(columns):
            title = str(self._model.headerData(i, Qt.Orientation.Horizontal) or "")
            widest = widest_of[i]
            natural = max(min(widest, px(LONG)) + px(18 + SHORT_BAR * column.bar), plain.horizontalAdvance(title) + px(34))
            header.setSectionResizeMode(i, QHeaderView.ResizeMode.Interactive)
            header.resizeSection(i, round(natural))
            self._widths.append(round(natural))
            words = px(SHORTENED_END if column.from_end else SHORTENED)
            shortest = widest + px(16 + SHORT_BAR * column.bar) if is_number(column) else min(widest + px(18), words)
            shortest = max(shortest, titles.horizontalAdvance(title) + px(20), LEAST_SECTION)
            self._least.append(round(min(natural, shortest)))
            whole = _widest(column, mono if column.tokens else written) + px(18 + SHORT_BAR * column.bar)
            self._whole.append(ceil(min(natural, max(whole, self._least[-1]))))
            tightest = (widest if is_number(column) else min(widest, px(SHORTEST))) + 2 * px(TIGHT_PAD)
            if self.theme.stage:  # where nobody can ask what an elided title says
                tightest = max(tightest, plain.horizontalAdvance(title) + px(16))
            self._tightest.append(min(ceil(tightest), self._least[-1]))
            named = titles.horizontalAdvance(title) + 2 * px(TIGHT_PAD) + 1
            self._titled.append(min(ceil(max(tightest, named)), self._least[-1]))
        self.stretch(width, height)

    @property
    def natural(self) -> int:
        """px in which nothing is shortened and bars can be compared."""
        return sum(self._widths) + sum(self.theme.px(LONG_BAR) for column in self._model.mark.columns if column.bar)

    def outgrown(self) -> bool:
        """Whether new numbers are too long for their columns; words may be shortened instead of moving columns."""
        plain = QFontMetricsF(self.theme.font(self.theme.normal))
        beside, widths = (2 * self.theme.px(TIGHT_PAD), self._tightest) if self._squeezed else (self.theme.px(16), self._widths)
        pairs = zip(self._model.mark.columns, widths, strict=True)
        return any(is_number(c) and _widest(c, plain) + beside > width for c, width in pairs)

    def stretch(self, width: int, height: int) -> None:
        """Stretch columns over spare width; without any, take the air between them, then shorten words, those of columns that can
        be spared first, before pushing out numbers.
        """
        header, bar = self._table.horizontalHeader(), self._table.verticalScrollBar()
        long = bar.maximum() > 0 or self._model.rowCount() * self.theme.px(ROW) + self.theme.px(32) > height
        scrolls = long and self._table.verticalScrollBarPolicy() != Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        room = width - (bar.sizeHint().width() if scrolls else 0)  # the table itself is laid out later
        fits = sum(self._widths) <= room
        self._hide_rank(room)
        self._leave_out(room)
        for i in self._stretched:
            mode = QHeaderView.ResizeMode.Stretch if fits else QHeaderView.ResizeMode.Interactive
            if i < len(self._widths) and header.sectionResizeMode(i) != mode:
                header.setSectionResizeMode(i, mode)
        if fits or not self._widths:
            if self._squeezed:
                self._spread()
            return
        self._squeezed = True
        visible = [i for i in range(len(self._widths)) if not header.isSectionHidden(i)]
        spared = [
            least if i in self._spare else whole for i, (whole, least) in enumerate(zip(self._whole, self._least, strict=True))
        ]
        sizes_by_level = self._widths, self._whole, spared, self._least, self._titled, self._tightest
        levels = [[sizes[i] for i in visible] for sizes in sizes_by_level]
        fitting = next((k for k, sizes in enumerate(levels[1:-1], 1) if sum(sizes) <= room - 2), len(levels) - 1)
        self._pad(TIGHT_PAD if fitting >= len(levels) - 2 else PAD)
        widths, least = levels[fitting - 1], levels[fitting]
        spare = sum(widths) - sum(least)
        share = min(1.0, max(0.0, sum(widths) - room + 2) / spare) if spare else 0.0
        for i, wide, smallest in zip(visible, widths, least, strict=True):
            header.resizeSection(i, int(wide - share * (wide - smallest)))

    def _spread(self) -> None:
        """Restore widths once there is room again."""
        self._squeezed = False
        self._pad(PAD)
        for i, width in enumerate(self._widths):
            if i not in self._stretched:
                self._table.horizontalHeader().resizeSection(i, width)

    def _leave_out(self, room: int) -> None:
        """Columns are shown whole or not at all, two at least."""
        header = self._table.horizontalHeader()
        first = int(bool(self._widths) and header.isSectionHidden(0) and 0 not in self._left_out)
        visible = list(range(first, len(self._widths)))
        while visible and visible[-1] in self._spare and sum(self._least[i] for i in visible) > room - 2:
            visible.pop()
        while len(visible) > 2 and sum(self._tightest[i] for i in visible) > room - 2:
            visible.pop()
        left_out = tuple(range(visible[-1] + 1, len(self._widths))) if visible else ()
        if left_out != self._left_out or any(not header.isSectionHidden(i) for i in left_out):
            self._left_out = left_out
            for i in range(first, len(self._widths)):
                header.setSectionHidden(i, i in left_out)
            header.sectionPosition(0)

    def _pad(self, px: int) -> None:
        """Set the padding of cells: it shrinks where room is tight."""
        delegate = self._table.itemDelegate()
        if isinstance(delegate, RowsDelegate) and delegate.pad != px:
            delegate.pad = px
            self._table.viewport().update()
        header = self._table.horizontalHeader()
        if isinstance(header, RowsHeader) and header.tight != (px == TIGHT_PAD):
            header.tight = px == TIGHT_PAD
            header.viewport().update()
        header.setMinimumSectionSize(LEAST_SECTION if px == PAD else 16)

    def _hide_rank(self, room: int) -> None:
        """The rank is the first column to be left out: the rows are in its order anyway."""
        header = self._table.horizontalHeader()
        ranked = len(self._widths) > 2 and self._model.mark.columns[0].name == "#"
        hidden = ranked and sum(least for i, least in enumerate(self._least) if i not in self._spare) > room
        if self._widths and header.isSectionHidden(0) != hidden:
            header.setSectionHidden(0, hidden)
            header.sectionPosition(0)  # have Qt place them now; after further resizing it would leave the hidden one its width
