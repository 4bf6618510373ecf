"""A saved layout: to restore in this window, at the next start, or with the session that it is saved in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
from dataclasses import dataclass

from PySide6.QtCore import QByteArray
from PySide6.QtWidgets import QMainWindow

from circuitlab.gui.places.arrangements import ARRANGEMENTS, Arrangement
from circuitlab.gui.places.dock_sizes import Sizes
from circuitlab.gui.work.settings import settings_file

log = logging.getLogger("circuitlab.layout")
KEY = "layout-key"
_NEW_KEY = secrets.token_hex(32)  # of a person who has none; where settings cannot be kept, that of this process


@dataclass(frozen=True)
class SavedLayout:
    """A layout that can be restored: Qt's own state of it, the sizes of the docks, and the arrangement it came from.

    `moved`: docks have been moved from where the arrangement puts them. `prompt_height`: px, where the user has dragged the
    prompt's edge, else 0.
    """

    state: QByteArray
    sizes: Sizes
    declared: Arrangement
    moved: bool = False
    prompt_height: int = 0


def keep_geometry(window: QMainWindow) -> None:
    """Save the window's place on the screen for the next start; its layout belongs to the session."""
    settings_file().setValue("geometry", window.saveGeometry())


def layout_to_text(layout: SavedLayout) -> str:
    """A layout as text, for a session file, signed with the person's key."""
    table = json.loads(_to_json(layout)) | {"state": base64.b64encode(layout.state.data()).decode()}
    text = base64.b64encode(json.dumps(table).encode()).decode()
    return f"{_signature(text)}:{text}"


def layout_from_text(text: str) -> SavedLayout | None:
    """The layout of such a text; None where it cannot be read, has been altered, or was signed by somebody else.

    Qt's own state of a layout crashes the process where it is damaged, so none is restored that this person has not saved.
    """
    signature, _, text = text.partition(":")
    if not hmac.compare_digest(signature.encode(), _signature(text).encode()):
        return None
    try:
        rooms = base64.b64decode(text, validate=True).decode()
        state = base64.b64decode(json.loads(rooms)["state"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return _read(QByteArray(state), rooms)


def _signature(text: str) -> str:
    """The signature of a text with the key of this person, made at the first need and kept among the settings."""
    file = settings_file()
    key = file.value(KEY)
    if not isinstance(key, str) or not key:
        key = _NEW_KEY
        file.setValue(KEY, key)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def place_on_screen(window: QMainWindow) -> None:
    """Move the window to where it was last, on a screen that still exists, and no larger than that screen."""
    geometry = settings_file().value("geometry")
    if isinstance(geometry, QByteArray):
        window.restoreGeometry(geometry)
    screens = [s.availableGeometry() for s in window.screen().virtualSiblings()]
    if not any(s.intersects(window.frameGeometry()) for s in screens):
        window.move(window.screen().availableGeometry().topLeft())
    room = window.screen().availableGeometry().size()
    if isinstance(geometry, QByteArray) and not window.isMaximized() and not window.isFullScreen():
        frame = window.frameGeometry().size() - window.size()
        window.resize(window.size().boundedTo(room - frame))  # the screen may be smaller than last time


def _to_json(layout: SavedLayout) -> str:
    """The part of a layout that Qt's own state does not hold."""
    declared = layout.declared
    own = {
        "arrangement": declared.of or declared.name,
        "moved": layout.moved or bool(declared.of),
        "prompt": layout.prompt_height,
    }
    return json.dumps(own | {"window": layout.sizes.window, "docks": dict(layout.sizes.docks)})


def _read(state: QByteArray, rooms: object) -> SavedLayout | None:
    """The layout of Qt's state and the JSON saved beside it; None where that cannot be read."""
    try:
        own = json.loads(str(rooms))
        pair = lambda px: (int(px[0]), int(px[1]))
        sizes = Sizes(pair(own["window"]), {str(n): pair(px) for n, px in own["docks"].items()})
        return SavedLayout(state, sizes, ARRANGEMENTS[own["arrangement"]], bool(own["moved"]), int(own["prompt"]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        if rooms:
            log.warning("the saved layout is not used: %s: %s", type(error).__name__, error)
        return None
