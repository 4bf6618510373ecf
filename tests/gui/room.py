"""How a window uses its room: the share of its figures, heights of docks, nested scroll bars, texts that are cut.

    python -m tests.gui.room --model smollm2-135m --size 1280x800 --scale 1.0,1.6 --theme light,dark --out FOLDER

prints a line for every arrangement at every size, and paints each into the folder in every theme.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QAbstractButton, QAbstractScrollArea, QApplication, QComboBox, QLabel, QScrollBar, QWidget

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell.main import make_window, picture, settle
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.labels import ShortLabel


@dataclass
class Rooms:
    """Shares of the window's pixels; `docks` (width, height) by name; `nested`, `cut`: what is wrong, where."""

    figures: float = 0.0
    maps: dict[str, float] = field(default_factory=dict)
    docks: dict[str, tuple[int, int]] = field(default_factory=dict)
    nested: list[str] = field(default_factory=list)
    bars: dict[str, int] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)


def rooms(window: Window) -> Rooms:
    """Of the docks that are on the screen now."""
    result, whole = Rooms(), window.width() * window.height()
    for name, dock in window.docks.items():
        if not on_screen(dock):
            continue
        result.docks[name] = dock.width(), dock.height()
        result.nested += [f"{name}: {words}" for words in _nested(dock)]
        result.cut += [f"{name}: {words}" for words in cut(dock)]
        bars = [bar for bar in dock.findChildren(QScrollBar) if bar.isVisible()]
        result.bars[name] = len(bars)
        if isinstance(dock, PanelDock):
            result.figures += dock.view.width() * dock.view.height() / whole
            frames = [w.frame() for w in dock.view._widgets.values() if isinstance(w, HeatmapMark)]
            result.maps[name] = max((f.width() * f.height() for f in frames), default=0.0) / whole
    result.cut += [f"top: {words}" for words in cut(window.top)]
    return result


def _nested(dock: QWidget) -> Iterator[str]:
    """Visible scroll bars inside something that has a visible one of the same direction itself."""
    for inner in dock.findChildren(QAbstractScrollArea):
        outer = inner.parentWidget()
        while outer is not None and outer is not dock:
            if isinstance(outer, QAbstractScrollArea) and _scrolls(inner) and _scrolls(outer):
                yield f"{type(inner).__name__} in {type(outer).__name__}"
            outer = outer.parentWidget()


def _scrolls(area: QAbstractScrollArea) -> bool:
    return area.isVisible() and (area.verticalScrollBar().isVisible() or area.horizontalScrollBar().isVisible())


def cut(root: QWidget) -> Iterator[str]:
    """Labels and buttons narrower or lower than their text; those that shorten themselves on purpose are not."""
    for widget in root.findChildren(QWidget):
        if not widget.isVisible() or isinstance(widget, ShortLabel):
            continue
        if isinstance(widget, QLabel) and widget.text():
            high = widget.heightForWidth(widget.width()) if widget.wordWrap() else widget.sizeHint().height()
            if high > widget.height() + 2 or (not widget.wordWrap() and widget.sizeHint().width() > widget.width() + 2):
                yield f"{widget.text()[:40]!r} {widget.width()}×{widget.height()}"
        elif isinstance(widget, (QAbstractButton, QComboBox)) and (hint := widget.minimumSizeHint()).isValid():
            text = widget.currentText() if isinstance(widget, QComboBox) else widget.text()
            if text and (hint.width() > widget.width() + 2 or hint.height() > widget.height() + 2):
                yield f"{text[:40]!r} {widget.width()}×{widget.height()}"


def main() -> None:
    """See the module."""
    from circuitlab.draw.look.app import application

    given: Any = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--model", default=None)
    given.add_argument("--text", default=None)
    given.add_argument("--size", default="1280x800,1920x1080")
    given.add_argument("--scale", default="1.0,1.3,1.6")
    given.add_argument("--theme", default="light")
    given.add_argument("--arrangement", default=",".join(ARRANGEMENTS))
    given.add_argument("--out", type=Path, default=None)
    asked = given.parse_args()
    application(offscreen=True)
    window = make_window(asked.model, asked.text, remember=False)
    themes = asked.theme.split(",")
    sizes = [tuple(map(int, size.split("x"))) for size in asked.size.split(",")]
    window.resize(*sizes[0])
    window.show()
    settle(window)
    for scale in map(float, asked.scale.split(",")):
        window.settings.set("text_scale", scale)
        for size in sizes:
            window.resize(*size)
            for name in asked.arrangement.split(","):
                window.layout_of_docks.arrange(name)
                for _ in range(3):
                    QApplication.processEvents()
                    settle(window)
                room = rooms(window)
                docks = " ".join(f"{n} {w}×{h}" for n, (w, h) in room.docks.items())
                maps = " ".join(f"{n} {share:.1%}" for n, share in room.maps.items() if share)
                wide = "" if (window.width(), window.height()) == size else f" NOT {size}"
                print(
                    f"{name} {scale} {window.width()}×{window.height()}{wide}: figures {room.figures:.1%}; maps {maps}; {docks}"
                )
                for words in (*room.nested, *room.cut):
                    print("   ", words)
                if asked.out is None:
                    continue
                asked.out.mkdir(parents=True, exist_ok=True)
                for theme in themes:
                    window.set_theme(theme)
                    settle(window)
                    file = f"{name}-{scale}-{size[0]}-{theme}.png".replace(" ", "-")
                    picture(window, QSize(*size), 1).save(str(asked.out / file))
    window.close()


if __name__ == "__main__":
    main()
