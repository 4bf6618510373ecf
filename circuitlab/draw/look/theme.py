"""The face: neutral greys, one accent for selection and focus, three text sizes, an 8-px grid, light and dark.

Data colours are not here (see `colours.py`): they mean the same in either theme.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPalette, QPen
from PySide6.QtWidgets import QApplication

SANS = ("Inter", "Noto Sans Mono", "sans-serif")
MONO = ("Noto Sans Mono", "Inter", "monospace")  # Inter holds the ↵ and ␣ that Noto Sans Mono lacks
GRID = 8
NORMAL = 13.0  # px of ordinary text
GUIDE = 0.45  # opacity of a grid, of that of data
WIDE = 4.0  # device px of a curve of many short segments, above which square ends would stand out of it

Face = tuple[int, bool, bool, bool]  # px, mono, bold, tabular figures


@lru_cache(maxsize=64)
def _font(pixels: int, mono: bool, bold: bool, tabular: bool) -> QFont:
    """One font shared by all its copies: Qt searches all faces at the first text of a new one."""
    font = QFont(list(MONO if mono else SANS))
    font.setPixelSize(pixels)
    font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    if tabular:
        font.setFeature(QFont.Tag("tnum"), 1)
    # "->" and "fi" must look like the characters a token is made of.
    for tag in ("calt", "liga"):
        font.setFeature(QFont.Tag(tag), 0)
    return font


@lru_cache(maxsize=16384)
def advance(face: Face, text: str) -> float:
    """Width of a text in px, cached: it is needed for every label at every fit."""
    return QFontMetricsF(_font(*face)).horizontalAdvance(text)


@lru_cache(maxsize=256)
def line_height(face: Face) -> float:
    """px of a line of text."""
    return QFontMetricsF(_font(*face)).height()


@lru_cache(maxsize=256)
def _colour(written: str, alpha: float) -> QColor:
    colour = QColor(written)
    colour.setAlphaF(alpha)
    return colour


@dataclass(frozen=True)
class Theme:
    """Greys from `background` to `text`, the accent, text sizes in pixels, and how heavily and how wordily is drawn.

    `stroke` multiplies the widths of lines and the sizes of dots, symbols and rings, in every mark, on the screen and on paper.
    `weakest`: the least opacity of a line that is data. `words` of captions: all, or what can be read at once. `stage`: maps are
    as large as they can be, and tables say how many rows have no room.
    """

    name: str
    dark: bool
    window: str  # behind the panels
    background: str  # of a picture: where a magnitude of zero disappears
    raised: str  # buttons, headers, tool tips
    line: str  # hairlines, grids
    faint: str  # disabled text, tick marks
    muted: str  # captions, axes
    text: str
    accent: str
    on_accent: str
    small: float = 11.0
    normal: float = NORMAL
    large: float = 15.0
    least: float = 0.0  # least text size in px
    stroke: float = 1.0
    weakest: float = 0.0
    words: Literal["full", "brief"] = "full"
    stage: bool = False
    grey: bool = False  # printed in one ink: what stands on a colour is chosen for its grey
    tabular: bool = True  # False on paper: Qt's PDF maps tabular figures to private characters, which cannot be searched

    @property
    def scale(self) -> float:
        """Text size relative to the normal one."""
        return self.normal / NORMAL

    @property
    def solid(self) -> bool:
        """Whether bars are as dark as what they stand for asks: on a stage and on paper, where no number lies on them."""
        return self.stage or not self.tabular

    def px(self, length: float) -> int:
        """A length that holds text or stands beside it, and so grows with the text."""
        return round(length * self.scale)

    def face(self, size: float | None = None, *, mono: bool = False, bold: bool = False) -> Face:
        """What tells one font of this theme from another."""
        return max(1, round(size or self.normal)), mono, bold, self.tabular

    def font(self, size: float | None = None, *, mono: bool = False, bold: bool = False) -> QFont:
        """A bundled face of `size` px, without ligatures, with tabular figures where `tabular`."""
        return QFont(_font(*self.face(size, mono=mono, bold=bold)))

    def colour(self, name: str, alpha: float = 1.0) -> QColor:
        """One of the colours above, by name."""
        return QColor(_colour(getattr(self, name), alpha))

    def pen(
        self, ink: str | QColor, width: float = 1.0, style: Qt.PenStyle = Qt.PenStyle.SolidLine, *, cosmetic: float = 0.0
    ) -> QPen:
        """The pen of a line `width` px wide at stroke 1, of a colour or of one of the above by name.

        `cosmetic`: device pixels per px, for items in units of data, whose pens do not scale with the painter; 0: it does.
        """
        colour = self.colour(ink) if isinstance(ink, str) else ink
        pen = QPen(colour, width * self.stroke * (cosmetic or 1.0), style)
        pen.setCosmetic(bool(cosmetic))
        if cosmetic and pen.widthF() > WIDE:
            pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        return pen

    def opacity(self, part: float) -> float:
        """The opacity of a line that is data, where `part` is asked for."""
        return max(part, self.weakest)

    def guide_opacity(self, part: float) -> float:
        """The same of a grid and of lines that data is read against: they stay below it."""
        return max(part, GUIDE * self.weakest)


LIGHT = Theme(
    name="light",
    dark=False,
    window="#f3f3f4",
    background="#ffffff",
    raised="#fafafa",
    line="#dedee1",
    faint="#a9a9b0",
    muted="#66666e",
    text="#1d1d21",
    accent="#c2185b",
    on_accent="#ffffff",
)

DARK = Theme(
    name="dark",
    dark=True,
    window="#141416",
    background="#1b1b1e",
    raised="#26262a",
    line="#35353b",
    faint="#6d6d76",
    muted="#a0a0a9",
    text="#e8e8ec",
    accent="#ff5c93",
    on_accent="#1b1b1e",
)


def palette(theme: Theme) -> QPalette:
    """The palette of ordinary widgets."""
    colours = QPalette()
    role = QPalette.ColorRole
    for name, roles in {
        "window": (role.Window,),
        "background": (role.Base,),
        "raised": (role.Button, role.AlternateBase, role.ToolTipBase),
        "text": (role.WindowText, role.Text, role.ButtonText, role.ToolTipText, role.BrightText),
        "faint": (role.PlaceholderText,),
        "accent": (role.Highlight, role.Link, role.Accent),
        "on_accent": (role.HighlightedText,),
        "line": (role.Mid, role.Midlight),
    }.items():
        for one in roles:
            colours.setColor(one, theme.colour(name))
    for one in (role.WindowText, role.Text, role.ButtonText):
        colours.setColor(QPalette.ColorGroup.Disabled, one, theme.colour("faint"))
    return colours


def stylesheet(theme: Theme) -> str:
    """What the palette cannot express: hairlines, headers, tool tips, the focus ring."""
    thin = max(1, round(theme.stroke))
    return f"""
QToolTip {{ color: {theme.text}; background: {theme.raised}; border: 1px solid {theme.line}; padding: 4px; }}
QHeaderView {{ background: {theme.background}; border: none; font-size: {theme.small:.0f}px; }}
QHeaderView::section {{ color: {theme.muted}; background: {theme.background}; border: none;
  border-bottom: {thin}px solid {theme.line}; padding: {theme.px(4) if theme.stage else 4}px {theme.px(8)}px; }}
QTableView {{ background: {theme.background}; border: 1px solid {theme.background}; outline: none;
  selection-background-color: transparent; }}
QTableView:focus {{ border: 1px solid {theme.background if theme.stage else theme.faint}; }}
QLineEdit {{ background: {theme.background}; border: 1px solid {theme.line}; border-radius: 4px; padding: 3px 8px; }}
QLineEdit:focus {{ border: 1px solid {theme.accent}; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
QScrollBar::handle {{ background: {theme.line}; border-radius: 4px; min-height: 24px; min-width: 24px; margin: 1px; }}
QScrollBar::handle:hover {{ background: {theme.faint}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""


def apply_theme(app: QApplication, theme: Theme, more: str = "") -> None:
    """Palette, font and style sheet of the whole application, with `more` in it. A `FigureView` is told by its own `set_theme`.

    There is one sheet: with others below it Qt polishes every widget once for each of them. It is taken away before another is
    set: from one to another Qt polishes a widget once for each of its ancestors (0.55 s against 0.19 for 2 000 widgets).
    """
    app.setPalette(palette(theme))
    app.setFont(theme.font())
    sheet = stylesheet(theme) + more
    if app.styleSheet() != sheet:
        app.setStyleSheet("")
        app.setStyleSheet(sheet)
