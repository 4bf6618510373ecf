"""The sessions that were opened or saved last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from circuitlab.gui.work.settings import stored

MOST = 8
KEY = "recent-sessions"


class RecentSessions:
    """Their paths, newest first. `remember` False: none."""

    def __init__(self, remember: bool) -> None:
        self.remember = remember

    def paths(self) -> list[Path]:
        """Newest first; a file may be gone."""
        value: Any = stored().value(KEY, []) if self.remember else []
        return [Path(value)] if isinstance(value, str) else [Path(str(one)) for one in value or ()]

    def add(self, path: Path) -> None:
        """Put a session at the top of the list."""
        if self.remember:
            rest = [str(one) for one in self.paths() if one != path]
            stored().setValue(KEY, [str(path), *rest][:MOST])
