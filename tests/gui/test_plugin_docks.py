"""A plug-in's panel in the window: its dock is there from the start, imported when it is shown, and says what goes wrong."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from circuitlab import plugins
from circuitlab.figures.contracts import panel as panel_registry
from circuitlab.gui.panel.plugin_dock import PluginDock
from circuitlab.gui.shell.dialogs import about
from circuitlab.plugins import loading
from tests.gui.driving import save, settle, shown_window
from tests.models import directory
from tests.plug_ins import PANEL


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Takes the source of a file that is then among the plug-ins."""
    monkeypatch.setenv(plugins.PATHS, "")
    monkeypatch.setattr(loading, "_attempts", {})
    panel_registry.panels()
    monkeypatch.setattr(panel_registry, "_REGISTRY", dict(panel_registry._REGISTRY))

    def add(source: str) -> None:
        (tmp_path / "mine.py").write_text(source)
        plugins.requested(str(tmp_path / "mine.py"))

    yield add
    for name in [name for name in sys.modules if name.startswith("circuitlab_plugin_")]:
        del sys.modules[name]


def dock_of(window: Any) -> PluginDock:
    dock = window.docks["own_losses"]
    assert isinstance(dock, PluginDock)
    return dock


def test_it_is_imported_when_it_is_shown_and_then_is_a_panel_like_any(qtbot: Any, added: Any, tmp_path: Path) -> None:
    added("import threading\nimport circuitlab\ncircuitlab.imported_on = threading.current_thread()\n" + PANEL)
    import circuitlab

    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        dock = dock_of(window)
        settle(qtbot, window)
        assert not hasattr(circuitlab, "imported_on") and "mine 0.4" in dock.panel.source
        window.layout_of_docks.go_to("own_losses")
        qtbot.waitUntil(lambda: dock.panel.title == "Own losses" and dock.panel.plugin is not None)
        settle(qtbot, window)
        assert circuitlab.imported_on is not threading.main_thread()
        assert dock.view.figure.grid and dock.windowTitle() == "Own losses" and set(dock.controls.form.widgets) == {"digits"}
        state = window.context.document.state
        window.context.document.apply(state.with_view("own_losses", dock.panel.view(5)), "digits")
        settle(qtbot, window)
        assert dock.view.figure.grid[0][0].columns[0].digits == 5
        window.layout_of_docks.arrange("Explore")
        settle(qtbot, window)
    del circuitlab.imported_on


def test_what_a_session_shows_of_it_waits_for_the_import(qtbot: Any, added: Any, tmp_path: Path) -> None:
    added(PANEL)
    part = (0.0, 0.0, 2.0, 2.0)
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        zooms = window.layout_of_docks.zooms
        zooms.show({"own_losses/another mark": part})
        window.layout_of_docks.go_to("own_losses")
        qtbot.waitUntil(lambda: dock_of(window).panel.plugin is not None)
        settle(qtbot, window)
        assert zooms.words() == {"own_losses/another mark": part}


@pytest.mark.parametrize("fault", ["raises", "hangs", "cannot draw"])
def test_one_that_fails_leaves_the_window_alive_and_is_named(
    qtbot: Any, added: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(plugins, "gate", gate, raising=False)
    monkeypatch.setenv(loading.PATIENCE, "0.5" if fault == "hangs" else "60")
    broken = {
        "raises": PANEL.replace("losses = find", "1 / 0\nlosses = find"),
        "hangs": PANEL.replace("losses = find", "from circuitlab import plugins\nplugins.gate.wait()\nlosses = find"),
        "cannot draw": PANEL.replace("    answer = answers", "    1 / 0\n    answer = answers"),
    }
    added(broken[fault])
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        dock = dock_of(window)
        window.layout_of_docks.go_to("own_losses")
        said = lambda: dock.view.figure.why_empty
        qtbot.waitUntil(lambda: "mine 0.4" in said() and "is imported" not in said())
        assert {"raises": "ZeroDivisionError", "hangs": "has not been imported", "cannot draw": "ZeroDivisionError"}[
            fault
        ] in said()
        window.layout_of_docks.go_to("attention")
        settle(qtbot, window)
        assert window.docks["attention"].view.figure.grid
    gate.set()


def test_a_session_keeps_its_part_without_the_plug_in_and_the_panel_says_which_it_wants(
    qtbot: Any, added: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added(PANEL)
    model, file = directory(tmp_path / "model"), tmp_path / "one.circuitlab"
    with shown_window(qtbot, model) as window:
        window.layout_of_docks.go_to("own_losses")
        dock = dock_of(window)
        qtbot.waitUntil(lambda: dock.panel.plugin is not None)
        window.context.document.apply(window.context.document.state.with_view("own_losses", dock.panel.view(5)), "digits")
        settle(qtbot, window)
        written = save(qtbot, window, file)
    assert written["plugins"] == {"own_losses": "mine 0.4"} and written["now"]["view"]["own_losses"] == {"digits": 5}

    monkeypatch.setenv(plugins.PATHS, "")  # on a machine without it
    del panel_registry._REGISTRY["own_losses"]
    with shown_window(qtbot, model) as window:
        assert "own_losses" not in window.docks
        window.sessions.open(file)
        qtbot.waitUntil(lambda: "own_losses" in window.docks)
        settle(qtbot, window)
        window.layout_of_docks.go_to("own_losses")
        settle(qtbot, window)
        assert "of the plug-in mine 0.4, which is not here" in window.docks["own_losses"].view.figure.why_empty
        kept = save(qtbot, window, tmp_path / "again.circuitlab")
    assert kept["plugins"] == written["plugins"] and kept["now"]["view"]["own_losses"] == {"digits": 5}
    assert "own_losses" in kept["now"]["show"]


def test_about_names_plug_ins_and_those_that_fail(qtbot: Any, added: Any, tmp_path: Path) -> None:
    added("import circuitlab\nraise RuntimeError('no such library')\n" + PANEL)
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        words = lambda: (lambda box: (box.informativeText(), box.deleteLater())[0])(about(window))
        assert words().splitlines() == ["Plug-ins", "mine 0.4: panel own_losses"]
        window.layout_of_docks.go_to("own_losses")
        qtbot.waitUntil(lambda: bool(plugins.failures()))
        settle(qtbot, window)
        assert words().startswith("Plug-ins\nmine 0.4: panel own_losses; failed: ") and "no such library" in words()


def test_about_says_that_there_are_none(qtbot: Any, added: Any, tmp_path: Path) -> None:
    with shown_window(qtbot, directory(tmp_path / "model")) as window:
        assert about(window).informativeText() == "No plug-ins."
