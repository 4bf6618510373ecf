"""One window on a small random model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from circuitlab.gui.window import Window
from tests.gui.driving import shown_window
from tests.models import directory


@pytest.fixture
def window(qtbot: Any, tmp_path: Path) -> Iterator[Window]:
    with shown_window(qtbot, directory(tmp_path / "model")) as made:
        yield made
