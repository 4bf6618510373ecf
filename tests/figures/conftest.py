"""Figures are drawn without a display, in our own application."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture(scope="session")
def qapp():
    """pytest-qt's application is ours: its style, options and fonts."""
    from circuitlab.draw.look.app import application

    return application(offscreen=True)


@pytest.fixture(autouse=True)
def collected_between_tests() -> Iterator[None]:
    """As in the window (`gui/work/garbage.py`): a view that a test has let go of is not destroyed while it is painted."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def view(qtbot: Any) -> Any:
    """A shown FigureView of 640 × 560, and nothing left of it afterwards."""
    from circuitlab.draw.view.figure_view import FigureView

    made = FigureView()
    made.resize(640, 560)
    qtbot.addWidget(made)
    with qtbot.waitExposed(made):
        made.show()
    return made
