"""How a layout is remembered: to come back to it in this window, or at the next start."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from PySide6.QtCore import QByteArray
from PySide6.QtWidgets import QMainWindow

from circuitlab.gui.places.arrangements import ARRANGEMENTS, Arrangement
from circuitlab.gui.places.dock_sizes import Sizes
from circuitlab.gui.work.settings import stored

log = logging.getLogger("circuitlab.layout")


@dataclass(frozen=True)
class Placed:
    """A layout to come back to: Qt's own words for it, what each dock had of the window, the arrangement that it came from.

    `moved`: docks stand elsewhere than that has them. `drawn`: px of a prompt whose height was drawn by hand, else 0.
    """

    state: QByteArray
    sizes: Sizes
    declared: Arrangement
    moved: bool = False
    drawn: int = 0


def kept(declared: Arrangement, sizes: Sizes) -> Placed | None:
    """The layout as the window was last closed, None where none is; `declared` and `sizes` where its own cannot be read."""
    file = stored()
    state = file.value("layout")
    if not isinstance(state, QByteArray):
        return None
    return _read(state, file.value("rooms")) or Placed(state, sizes, declared, True)


def keep(window: QMainWindow, placed: Placed) -> None:
    """For the next start."""
    file = stored()
    file.setValue("geometry", window.saveGeometry())
    file.setValue("layout", placed.state)
    file.setValue("rooms", _written(placed))


def place_on_screen(window: QMainWindow) -> None:
    """Where the window was last, on a screen that is still there, and no larger than that."""
    geometry = stored().value("geometry")
    if isinstance(geometry, QByteArray):
        window.restoreGeometry(geometry)
    screens = [s.availableGeometry() for s in window.screen().virtualSiblings()]
    if not any(s.intersects(window.frameGeometry()) for s in screens):
        window.move(window.screen().availableGeometry().topLeft())
    room = window.screen().availableGeometry().size()
    if isinstance(geometry, QByteArray) and not window.isMaximized() and not window.isFullScreen():
        frame = window.frameGeometry().size() - window.size()
        window.resize(window.size().boundedTo(room - frame))  # it may have been a larger one


def _written(placed: Placed) -> str:
    """What Qt's own words do not hold."""
    own = {"arrangement": placed.declared.name, "moved": placed.moved, "prompt": placed.drawn}
    return json.dumps(own | {"window": placed.sizes.window, "docks": dict(placed.sizes.docks)})


def _read(state: QByteArray, rooms: object) -> Placed | None:
    """With what was written beside Qt's words; None where that cannot be read."""
    try:
        own = json.loads(str(rooms))
        pair = lambda px: (int(px[0]), int(px[1]))
        sizes = Sizes(pair(own["window"]), {str(n): pair(px) for n, px in own["docks"].items()})
        return Placed(state, sizes, ARRANGEMENTS[own["arrangement"]], bool(own["moved"]), int(own["prompt"]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        if rooms:
            log.warning("the kept layout is not used: %s: %s", type(error).__name__, error)
        return None
