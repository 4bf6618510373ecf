"""The style sheet of the window: what the palette cannot set. Space separates things where it can, not borders."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.disk.paths import resource
from circuitlab.draw.look.theme import Theme


def scaled(theme: Theme, scale: float) -> Theme:
    """The theme with all three text sizes multiplied, and its strokes."""
    sizes = {"small": theme.small * scale, "normal": theme.normal * scale, "large": theme.large * scale}
    return replace(theme, stroke=theme.stroke * scale, **sizes)


def sheet(theme: Theme) -> str:
    """The style sheet of bars, tabs, buttons, check boxes and fields in a theme."""
    check = resource("icons", f"check-{theme.name}.svg").as_posix()
    hover = theme.line
    return f"""
QMainWindow::separator {{ background: {theme.window}; width: 6px; height: 6px; }}
QMainWindow::separator:hover {{ background: {theme.line}; }}
QMenuBar {{ background: {theme.window}; padding: 0 4px; }}
QToolBar {{ background: {theme.window}; border: none; padding: 0 4px 2px 4px; spacing: 4px; }}
QStatusBar {{ background: {theme.window}; }}
QStatusBar::item {{ border: none; }}
QDialogButtonBox {{ dialogbuttonbox-buttons-have-icons: 0; }}
QLabel[role="caption"] {{ color: {theme.muted}; font-size: {theme.small:.0f}px; }}
QLabel[role="warning"] {{ color: {theme.accent}; font-size: {theme.small:.0f}px; }}
QLabel[role="title"] {{ font-weight: 600; }}
QLabel[role="equation"] {{ background: {theme.background}; padding: 8px; border-radius: 4px; }}
QToolButton {{ border: 1px solid transparent; border-radius: 4px; padding: 2px 6px; background: transparent; }}
QToolButton[role="model"] {{ font-weight: 600; }}
QToolButton:hover, QToolButton:open {{ background: {hover}; }}
QToolButton:pressed, QToolButton:checked {{ background: {hover}; border-color: {theme.faint}; }}
QToolButton:focus {{ border-color: {theme.accent}; }}
QToolButton:disabled {{ color: {theme.faint}; }}
QToolButton::menu-indicator {{ image: none; }}
QToolButton[role="small"] {{ padding: 1px; }}
QToolButton[role="fold"] {{ color: {theme.muted}; font-size: {theme.small:.0f}px; padding: 0 3px; }}
QToolButton[role="fold"]:checked {{ background: transparent; border-color: transparent; }}
QToolButton[role="fold"]:focus {{ border-color: {theme.accent}; }}
QToolButton[role="primary"] {{ border: 1px solid {theme.faint}; background: {theme.raised}; padding: 2px 8px; }}
QToolButton[role="primary"]:hover {{ border-color: {theme.accent}; }}
QCheckBox {{ spacing: 6px; }}
QCheckBox::indicator {{ width: {theme.px(12)}px; height: {theme.px(12)}px; border: 1px solid {theme.faint}; border-radius: 3px;
  background: {theme.background}; }}
QCheckBox::indicator:checked {{ background: {theme.muted}; border-color: {theme.muted}; image: url("{check}"); }}
QCheckBox::indicator:disabled {{ border-color: {theme.line}; background: {theme.window}; }}
QCheckBox::indicator:focus, QCheckBox::indicator:hover {{ border-color: {theme.accent}; }}
QPlainTextEdit {{ background: {theme.background}; border: 1px solid {theme.background}; border-radius: 4px; }}
QPlainTextEdit:focus {{ border-color: {theme.faint}; }}
QTabBar::tab {{ background: transparent; color: {theme.muted}; border: none; border-bottom: 2px solid transparent;
  padding: 4px 8px; }}
QTabBar::tab:selected {{ color: {theme.text}; border-bottom-color: {theme.accent}; }}
QTabBar::tab:hover {{ color: {theme.text}; }}
QTabBar {{ qproperty-drawBase: 0; }}
QTabBar::scroller {{ width: {theme.px(20)}px; }}
QTabBar QToolButton {{ background: {theme.window}; border: none; padding: 0; }}
QTabBar QToolButton:hover {{ background: {hover}; }}
QAbstractScrollArea::corner, QTableCornerButton::section {{ background: {theme.background}; border: none; }}
QProgressBar {{ background: {theme.line}; border: none; border-radius: 2px; max-height: 4px; }}
QProgressBar::chunk {{ background: {theme.muted}; border-radius: 2px; }}
"""
