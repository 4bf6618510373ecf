"""Accessible names of a figure and its marks: kind of picture, name, title."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtWidgets import QWidget

from circuitlab.figures.marks import Figure

_KINDS = {
    "Heatmap": "map", "Points": "points", "Lines": "curves", "Bars": "bars", "Edges": "graph", "Tokens": "text", "Rows": "table",
}  # fmt: skip


def name_for_readers(view: QWidget, figure: Figure, widgets: Mapping[tuple[type, str], QWidget]) -> None:
    """Name the view and the widgets of its marks (by type and name) for screen readers."""
    about = figure.title or view.windowTitle()
    view.setAccessibleName(about or "Figure")
    for mark in figure.marks():
        widget = widgets[type(mark), mark.name]
        name = f"{_KINDS.get(type(mark).__name__, 'picture')} {mark.name}: {about}".rstrip(": ")
        widget.setAccessibleName(name)
        for inside in (getattr(widget, "table", None), getattr(widget, "viewport", lambda: None)()):
            if inside is not None:
                inside.setAccessibleName(name)
