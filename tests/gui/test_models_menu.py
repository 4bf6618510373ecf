"""The menu of models: one order, each model once, the open one marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from circuitlab.disk.paths import shipped, shipped_models
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import settings_file
from circuitlab.model.subject import ModelRef


def entries(window: Window) -> list[QAction]:
    menu = QMenu(window)
    window.opening.fill(menu)
    result = [a for a in menu.actions() if a.data()]
    menu.deleteLater()
    return result


def titles(window: Window) -> list[str]:
    return [a.text() for a in entries(window)]


@pytest.fixture
def remembering(window: Window) -> Window:
    window.opening.remember = True
    return window


def test_the_order_stays_whatever_is_opened(remembering: Window, tmp_path: Path) -> None:
    opening = remembering.opening
    for name in ("zeta", "alpha", "mid"):
        opening.remember_model(ModelRef(f"file:{tmp_path / name}"))
    before = titles(remembering)
    assert opening.recent()[0].endswith("mid")
    opening.remember_model(ModelRef(f"file:{tmp_path / 'zeta'}"))
    opening.remember_model(ModelRef("builtin:attn-only-1l"))
    assert titles(remembering) == before
    assert [t.rpartition("/")[2] for t in before][-3:] == ["alpha", "mid", "zeta"]
    assert before[: len(shipped_models())] == list(shipped_models())


def test_a_shipped_model_opened_by_its_path_is_one_entry(remembering: Window) -> None:
    once = titles(remembering)
    remembering.opening.remember_model(ModelRef(f"file:{shipped('models') / 'attn-only-2l'}"))
    remembering.opening.remember_model(ModelRef("builtin:attn-only-2l"))
    assert titles(remembering) == once
    assert len(set(once)) == len(once)


def test_the_open_model_is_marked(remembering: Window, qtbot: Any) -> None:
    remembering.opening.remember_model(remembering.context.document.state.model)
    marked = [a for a in entries(remembering) if a.isChecked()]
    assert [a.data() for a in marked] == [remembering.context.document.state.model.source]
    assert isinstance(settings_file().value("recent"), (list, str))
