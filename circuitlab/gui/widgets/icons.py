"""Icons: small SVG files in `currentColor`, painted in the colour of the theme."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from circuitlab.draw.look.theme import Theme
from circuitlab.paths import resource

SIZE = 16  # px at text size 1


@lru_cache(maxsize=256)
def icon(name: str, theme: Theme, colour: str = "muted") -> QIcon:
    """The icon `name` in one of the theme's colours, sharp at one, two and three pixels a point; paler when disabled."""
    drawing = resource("icons", f"{name}.svg").read_text(encoding="utf-8")
    made, size = QIcon(), theme.px(SIZE)
    for mode, ink in ((QIcon.Mode.Normal, colour), (QIcon.Mode.Disabled, "faint")):
        renderer = QSvgRenderer(QByteArray(drawing.replace("currentColor", getattr(theme, ink)).encode()))
        for ratio in (1, 2, 3):
            pixels = QPixmap(size * ratio, size * ratio)
            pixels.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixels)
            renderer.render(painter, QRectF(0, 0, size * ratio, size * ratio))
            painter.end()
            pixels.setDevicePixelRatio(ratio)
            made.addPixmap(pixels, mode)
    return made
