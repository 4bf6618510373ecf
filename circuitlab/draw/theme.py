"""Light and dark: two palettes of our own on the Fusion style. Data colours do not depend on them, but for zero's."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QApplication

GRID = 8  # px: every margin and gap is a multiple or a half of it


@dataclass(frozen=True)
class Theme:
    """Neutral greys and one accent, for selection and focus alone. Colours are #rrggbb, sizes in points."""

    name: str
    window: str
    base: str
    raised: str
    line: str
    text: str
    soft: str
    accent: str
    on_accent: str
    small: float = 8.5
    normal: float = 9.5
    large: float = 11.0

    @property
    def dark(self) -> bool:
        """Whether the background is darker than the text."""
        return QColor(self.base).lightness() < 128


LIGHT = Theme("light", "#f3f4f6", "#ffffff", "#e8eaee", "#d3d7de", "#1b1f26", "#5d6673", "#c2410c", "#ffffff")
DARK = Theme("dark", "#1d2026", "#15171b", "#2a2e36", "#3a404b", "#e6e9ee", "#9aa4b2", "#fb923c", "#15171b")
THEMES = {"light": LIGHT, "dark": DARK}


def palette(theme: Theme) -> QPalette:
    """The Qt palette of a theme."""
    made, roles = QPalette(), QPalette.ColorRole
    pairs = {
        roles.Window: theme.window,
        roles.WindowText: theme.text,
        roles.Base: theme.base,
        roles.AlternateBase: theme.window,
        roles.Text: theme.text,
        roles.Button: theme.raised,
        roles.ButtonText: theme.text,
        roles.ToolTipBase: theme.base,
        roles.ToolTipText: theme.text,
        roles.PlaceholderText: theme.soft,
        roles.Highlight: theme.accent,
        roles.HighlightedText: theme.on_accent,
        roles.Link: theme.accent,
        roles.Mid: theme.line,
        roles.Light: theme.base,
        roles.Dark: theme.line,
    }
    for role, colour in pairs.items():
        made.setColor(role, QColor(colour))
    for role in (roles.WindowText, roles.Text, roles.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, role, QColor(theme.soft))
    return made


def stylesheet(theme: Theme) -> str:
    """What a palette cannot say: quiet docks, tabs and headers."""
    return f"""
    QMainWindow::separator {{ background: {theme.window}; width: 6px; height: 6px; }}
    QMainWindow::separator:hover {{ background: {theme.line}; }}
    QDockWidget {{ font-size: {theme.normal}pt; }}
    QTabBar::tab {{ padding: 5px 12px; border: 0; color: {theme.soft}; background: {theme.window}; }}
    QTabBar::tab:selected {{ color: {theme.text}; background: {theme.base}; border-bottom: 2px solid {theme.accent}; }}
    QToolButton {{ border: 0; padding: 3px 6px; border-radius: 4px; color: {theme.soft}; }}
    QToolButton:hover, QToolButton:checked {{ background: {theme.raised}; color: {theme.text}; }}
    QToolButton::menu-indicator {{ image: none; }}
    QHeaderView::section {{ background: {theme.base}; color: {theme.soft}; border: 0; padding: 3px 6px;
        border-bottom: 1px solid {theme.line}; }}
    QTableView, QPlainTextEdit, QListView {{ border: 0; background: {theme.base}; }}
    QTableView {{ gridline-color: {theme.base}; selection-background-color: {theme.raised}; selection-color: {theme.text}; }}
    QToolTip {{ border: 1px solid {theme.line}; padding: 3px; background: {theme.base}; color: {theme.text}; }}
    QLabel[role="title"] {{ font-size: {theme.large}pt; font-weight: 600; color: {theme.text}; }}
    QLabel[role="caption"] {{ font-size: {theme.small}pt; color: {theme.soft}; }}
    QLabel[role="empty"] {{ font-size: {theme.normal}pt; color: {theme.soft}; }}
    QWidget[role="figure"] {{ background: {theme.base}; }}
    QStatusBar::item {{ border: 0; }}
    """


def apply_theme(app: QApplication, theme: Theme) -> None:
    """Set palette and style sheet; views are told apart, through `set_theme`."""
    app.setPalette(palette(theme))
    app.setStyleSheet(stylesheet(theme))
