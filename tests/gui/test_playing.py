"""A film waits for its panels and for its models; a panel that takes long is waited for once, then passed over."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QObject

from circuitlab.gui.checkpoints import playing
from circuitlab.gui.checkpoints.playing import Player


@pytest.fixture
def player(qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A player at full speed, what it awaits, what it says; its patience is short."""
    monkeypatch.setattr(playing, "PATIENCE", 300)
    monkeypatch.setattr(playing, "BRIEFLY", 1)
    parent, awaits = QObject(), {"panel": False, "model": False}
    made = Player(lambda: awaits["panel"], lambda: awaits["model"], parent)
    made.speed = 1000
    heard: list[str] = []
    made.passed.connect(lambda: heard.append("passed"))
    made.beat.connect(lambda: (heard.append("beat"), made.point_shown()))
    yield made, awaits, heard
    made.stop()


def test_a_slow_panel_is_waited_for_once_and_said_once(player: Any, qtbot: Any) -> None:
    made, awaits, heard = player
    awaits["panel"] = True
    made.begin()
    qtbot.waitUntil(lambda: heard.count("beat") >= 3)
    assert heard[0] == "passed" and heard.count("passed") == 1
    made.stop()
    made.begin()
    qtbot.waitUntil(lambda: heard.count("passed") == 2)


def test_quick_panels_are_never_passed_over(player: Any, qtbot: Any) -> None:
    made, _, heard = player
    made.begin()
    qtbot.waitUntil(lambda: heard.count("beat") >= 5)
    assert "passed" not in heard


def test_a_model_that_is_being_opened_is_always_waited_for(player: Any, qtbot: Any) -> None:
    made, awaits, heard = player
    awaits["model"] = True
    looks: list[int] = []
    made._opening = lambda: (looks.append(1), len(looks) < 60)[1]
    made.begin()
    qtbot.waitUntil(lambda: "beat" in heard)
    assert len(looks) >= 60 and "passed" not in heard
