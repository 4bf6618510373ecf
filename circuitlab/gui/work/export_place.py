"""Where the file dialogs of exports open: where the last export went, else beside the session's file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from circuitlab.gui.work.settings import settings_file

KEY = "exports/folder"


class ExportPlace:
    """`beside()`: the file of the session, None while it has none. `remember`: also for the next start."""

    def __init__(self, remember: bool) -> None:
        self._remember = remember
        self._last: Path | None = None
        self.beside: Callable[[], Path | None] = lambda: None

    def suggest(self, name: str) -> str:
        """A path of this name to begin with: in the folder of the last export of this window, beside the session's file, in the
        folder of the last export of all, or in that of the person.
        """
        session, kept = self.beside(), settings_file().value(KEY) if self._remember else None
        folders = (
            self._last,
            None if session is None else session.parent,
            Path(kept) if isinstance(kept, str) and kept else None,
        )
        folder = next((one for one in folders if one is not None and os.path.isdir(one)), Path.home())
        return str(folder / name)

    def used(self, path: Path) -> None:
        """A file has been chosen."""
        self._last = path.absolute().parent
        if self._remember:
            with contextlib.suppress(OSError):
                settings_file().setValue(KEY, str(self._last))
