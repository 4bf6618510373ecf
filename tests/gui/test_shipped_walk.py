"""Every command of the window on every shipped model and on one without layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from circuitlab.disk.paths import shipped
from circuitlab.gui.shell.commands import COMMANDS
from tests.gui.driving import dock, settle, shown_window
from tests.models import TINY, directory
from tests.words import fault_in_figure

# what asks the person, leaves the program, or is walked elsewhere because it starts something that goes on by itself
ASIDE = {"open", "open-file", "open-hub", "assumed", "train", "reload", "settings", "quit", "export-picture", "export-data"}
ASIDE |= {
    "new-session",
    "note-session",
    "open-session",
    "open-sweep",
    "save-session",
    "save-session-as",
    "save-session-results",
    "export-sheet",
    "report",
    "import-lesson",
    "explain",
    "palette",
    "shortcuts",
    "about",
    "lessons",
    "checkpoint-play",
    "larger",
    "smaller",
}
MODELS = tuple(sorted(path.name for path in shipped("models").iterdir() if (path / "config.json").exists()))
WALKED = [pytest.param(n, marks=() if n in ("gpt-mini", "no layers") else pytest.mark.slow) for n in (*MODELS, "no layers")]


@pytest.mark.parametrize("name", WALKED)
def test_every_command_of_a_model_can_be_given(qtbot: Any, name: str, tmp_path: Path) -> None:
    """None raises, whatever comes before it; what cannot be done is said."""
    source = str(directory(tmp_path / "bare", TINY, n_layers=0)) if name == "no layers" else name
    with shown_window(qtbot, source, "one two one two") as window, qtbot.captureExceptions() as raised:
        for command in COMMANDS:
            if command.name not in ASIDE and command.enabled(window):
                command.run(window)
        window.opening.open(source)
        settle(qtbot, window)
        assert not raised
        assert not any(fault_in_figure(d.view.figure.why_empty) for d in window._panels())


def test_a_model_without_layers_is_never_said_to_have_a_head(qtbot: Any, tmp_path: Path) -> None:
    with shown_window(qtbot, directory(tmp_path / "bare", TINY, n_layers=0)) as window:
        assert window.top.heads.text() == "no heads"
        said: list[str] = []
        window.context.readout.connect(said.append)
        before = window.context.document.recorded
        for command in COMMANDS:
            if command.name in ("head-left", "head-down", "all-heads", "ablate"):
                command.run(window)
        assert window.context.document.recorded is before
        assert all("no layers" in words for words in said) and len(said) == 4
        for name in ("attention", "overview", "heads", "head_finder", "circuits"):
            assert "no layers" in dock(window, name).panel.figure(before, window.context.facts(), {}, {}).why_empty


@pytest.mark.parametrize("name", ["attn-only-0l", "another one"])
def test_a_panel_that_needs_layers_says_so_and_names_one_that_does_not(qtbot: Any, name: str, tmp_path: Path) -> None:
    source = name if name in MODELS else str(directory(tmp_path / "bare", TINY, n_layers=0))
    with shown_window(qtbot, source, "one two one two") as window:
        for one in window._panels():
            window.layout_of_docks.go_to(one.panel.name)
            settle(qtbot, window)
        why = {d.panel.title: d.view.figure.why_empty for d in window._panels() if not d.view.figure.grid}
        assert "circuitlab measure" in why.pop("Training", "circuitlab measure"), "whatever its layers"
        others = {d.panel.title for d in window._panels()} - set(why)
        assert len(why) >= 15 and "Bigram" in others and "Paths" in others
        for title, words in why.items():
            assert "no layers" in words and words.endswith(".") and words.count(".") == 1, f"{title}: {words}"
            assert any(other in words for other in others), f"{title}: {words}"
