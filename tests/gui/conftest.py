"""One window on a small random model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from circuitlab.gui import main as gui
from circuitlab.gui.window import Window
from tests.gui.driving import TEXT, settle
from tests.models import directory


@pytest.fixture
def window(qtbot: Any, tmp_path: Path) -> Iterator[Window]:
    made = gui.make_window(str(directory(tmp_path / "model")), TEXT, remember=False)
    made.resize(1280, 800)
    made.show()
    settle(qtbot, made)
    yield made
    made.close()
    made.deleteLater()
