"""Every text of every panel can be read where the panel stands: none cut, none on another, none shortened unexplained."""

from __future__ import annotations

from typing import Any

import pytest

from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from tests.gui.driving import settle, shown_window
from tests.gui.written import faults

TEXT = "Mr and Mrs Hursley, of the old mill at Brook End, were glad to say that they were perfectly punctual. Mr and Mrs Hurs"


def homes() -> dict[str, list[str]]:
    """The panels by the first arrangement in which they have a place."""
    result: dict[str, list[str]] = {name: [] for name in ARRANGEMENTS}
    for panel in panels():
        placed = (n for n, a in ARRANGEMENTS.items() if any(panel in s.tabs for _, stacks in a.columns for s in stacks))
        result[next(placed)].append(panel)
    return result


@pytest.mark.slow
def test_every_text_of_every_panel_can_be_read(qtbot: Any) -> None:
    assert sorted(name for names in homes().values() for name in names) == sorted(panels())
    wrong: list[str] = []
    with shown_window(qtbot, "builtin:attn-only-2l", TEXT) as window:
        for model in ("attn-only-2l", "gpt-mini"):
            if model != "attn-only-2l":
                window.opening.open(f"builtin:{model}")
                qtbot.waitUntil(lambda: window.context.document.state.model.source == "builtin:gpt-mini")
            for scale in (1.0, 1.3, 1.6):
                window.settings.set("text_scale", scale)
                for arrangement, names in homes().items():
                    window.layout_of_docks.arrange(arrangement)
                    settle(qtbot, window)
                    for name in (*names, "prompt"):
                        window.docks[name].show()
                        window.docks[name].raise_()
                        for _ in range(2):  # a caption that has other words asks for another height
                            settle(qtbot, window)
                        where = f"{model}, {scale}, {arrangement}, {name}"
                        wrong += [f"{where}: {words}" for words in faults(window.docks[name], scale)]
    assert not wrong, "\n".join(wrong)
