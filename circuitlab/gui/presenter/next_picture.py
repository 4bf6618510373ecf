"""The picture of a step that is not on the stage yet: its page, small, from answers that are there. Nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain

from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QWidget

from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Figure
from circuitlab.gui.panel.feed import show_in
from circuitlab.gui.presenter.page import StagePage, Words
from circuitlab.story.zoom import Part

PARTS = QWidget.RenderFlag.DrawChildren | QWidget.RenderFlag.DrawWindowBackground


ShownFigure = tuple[
    Figure, tuple[str, ...] | None, Mapping[str, Part]
]  # a figure, its titles beside a reference, what is seen of it


def page_picture(words: Words, rows: Sequence[Sequence[ShownFigure]], size: QSize, room: QSize, dark: bool = False) -> QImage:
    """The page of a step as a stage of `size` px shows it, reduced to `room` device pixels."""
    page = laid_out(words, rows, size, dark)
    try:
        image = QImage(size, QImage.Format.Format_RGB32)
        image.fill(page.theme.colour("background"))
        page.render(image, QPoint(), QRect(QPoint(), size), PARTS)
        return reduced(image, room)
    finally:
        page.deleteLater()
        QCoreApplication.sendPostedEvents(page, QEvent.Type.DeferredDelete.value)


def reduced(image: QImage, room: QSize) -> QImage:
    """A picture of the stage for a room on the speaker's screen, in device pixels."""
    return image.scaled(room, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation)


def laid_out(words: Words, rows: Sequence[Sequence[ShownFigure]], size: QSize, dark: bool = False) -> StagePage:
    """A page of this size with all that it shows in its place, in the order in which a stage comes to it.

    It is shown on no screen. Whoever asks for it deletes it.
    """
    page = StagePage(partial(stage_theme, dark=dark))
    page.setAttribute(Qt.WidgetAttribute.WA_DontShowOnScreen)
    page.setAttribute(Qt.WidgetAttribute.WA_ShowWithoutActivating)
    page.resize(size)
    page.show()
    views = [[FigureView(page.theme, page) for _ in row] for row in rows]
    page.set_step(*words, rows=[list(row) for row in views])
    for view, (figure, titles, seen) in zip(chain(*views), chain(*rows), strict=True):
        show_in(view, figure, titles)
        if seen:
            view.show_visible_parts(seen)
    QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
    return page
