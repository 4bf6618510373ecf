"""What is looked at and how: settings, conventions, interventions, comparison, and where a double-click leads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QDoubleSpinBox, QPushButton

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.contracts.hues import composition_rgb, hue_rgb
from circuitlab.figures.marks import Heatmap, Hit, Rows
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.command import CommandAction
from circuitlab.gui.shell.settings_dialog import SettingsDialog
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import SETTINGS
from circuitlab.model.intervention import Site
from circuitlab.model.subject import Conventions, Head
from tests.gui.driving import dock, heat, settle, shown_window
from tests.models import CONFIGS, directory
from tests.words import but_for_rounding


def test_the_settings_dialog_holds_every_setting_and_acts_at_once(qtbot: Any, window: Window) -> None:
    dialog = SettingsDialog(window.settings, window)
    qtbot.addWidget(dialog)
    assert set(dialog.fields) == {s.name for s in SETTINGS}
    memory = dialog.fields["memory"]
    assert isinstance(memory, QDoubleSpinBox)
    memory.setValue(1.5)
    assert window.settings["memory"] == 1.5
    assert window.context.engine.memory == round(1.5 * 2**30)
    before = dock(window, "attention").font().pixelSize()
    dialog.fields["text_scale"].setValue(1.4)  # type: ignore[attr-defined]
    assert QApplication.font().pixelSize() > before
    reset = next(b for b in dialog.findChildren(QPushButton) if b.text() == "Defaults")
    qtbot.mouseClick(reset, Qt.MouseButton.LeftButton)
    assert all(window.settings[s.name] == s.default for s in SETTINGS)
    assert QApplication.font().pixelSize() == before
    buttons = dialog.findChild(QDialogButtonBox)
    assert isinstance(buttons, QDialogButtonBox)
    close = buttons.button(QDialogButtonBox.StandardButton.Close)
    dialog.show()
    qtbot.mouseClick(close, Qt.MouseButton.LeftButton)
    assert not dialog.isVisible()


def test_conventions_are_chosen_in_the_bar_and_said_in_every_caption(qtbot: Any, window: Window) -> None:
    logits = dock(window, "predictions").view.figure.find("tokens")
    assert isinstance(logits, Rows)
    assert "centred" in dock(window, "predictions").view.figure.caption
    centred = next(a for a in window.top.conventions.menu().actions() if a.data() == "centre")
    centred.trigger()
    settle(qtbot, window)
    assert not window.context.document.state.conventions.centre
    raw = dock(window, "predictions").view.figure.find("tokens")
    assert isinstance(raw, Rows)
    assert not np.allclose(raw.columns[3].values, logits.columns[3].values)  # logits move
    np.testing.assert_allclose(raw.columns[2].values, logits.columns[2].values, atol=1e-6)  # probabilities do not
    assert "not centred" in dock(window, "predictions").view.figure.caption
    window.context.document.undo()
    assert window.context.document.state.conventions.centre


def test_an_ablated_head_is_named_and_moves_what_comes_after(qtbot: Any, window: Window) -> None:
    window.context.document.apply(window.context.document.recorded.select(heads=(Head(0, 1),)), "x")
    settle(qtbot, window)
    before = dock(window, "overview").view.figure.find("heads")
    assert isinstance(before, Heatmap)
    window.state_commands.ablate()
    settle(qtbot, window)
    (edit,) = window.context.document.state.subject.edits
    assert (edit.site.layer, edit.site.heads) == (0, (1,)), Site
    assert "L0H1" in window.top.edits.text()
    assert window.top.edits.isVisible()
    after = dock(window, "overview").view.figure.find("heads")
    assert isinstance(after, Heatmap)
    tile, cols = before.tiles, before.values.shape[0] // 2
    assert tile is not None
    np.testing.assert_array_equal(after.values[: cols - 2], before.values[: cols - 2])  # layer 0 attends as before
    assert not np.array_equal(after.values[cols + 2 :], before.values[cols + 2 :], equal_nan=True)
    window.state_commands.ablate()
    settle(qtbot, window)
    assert not window.context.document.state.subject.edits
    assert not window.top.edits.isVisible()


@pytest.mark.parametrize(("name", "mark"), [("overview", "heads"), ("heads", "map")])
def test_maps_of_all_heads_show_the_difference_to_the_pin(qtbot: Any, window: Window, name: str, mark: str) -> None:
    panel = dock(window, name)
    window.context.document.apply(window.context.document.recorded.with_view("heads", panel_view(window, on="text")), "x")
    window.state_commands.pin()
    window.context.document.apply(window.context.document.recorded.select(heads=(Head(0, 0),)), "x")
    window.state_commands.ablate()
    settle(qtbot, window)
    now = panel.view.figure.find(mark)
    window.state_commands.compare("reference")
    settle(qtbot, window)
    there = panel.view.figure.find(mark)
    window.state_commands.compare("difference")
    settle(qtbot, window)
    change = panel.view.figure.find(mark)
    assert isinstance(now, Heatmap) and isinstance(there, Heatmap) and isinstance(change, Heatmap)
    assert not np.array_equal(now.values, there.values, equal_nan=True)
    np.testing.assert_allclose(change.values, now.values - there.values, atol=1e-6)
    assert change.map == "signed"
    assert change.levels[0] == -change.levels[1]
    assert "minus" in panel.view.figure.caption
    if name == "heads":
        rows = panel.view.figure.find("ranking")
        assert isinstance(rows, Rows)
        delta, mean, pinned = rows.columns[2:5]
        assert delta.name == "Δ"
        np.testing.assert_allclose(delta.values, mean.values - pinned.values)


def panel_view(window: Window, **changes: Any) -> Any:
    panel = dock(window, "heads").panel
    return replace(window.context.document.state.view("heads", panel.view), **changes)


def test_a_double_click_brings_the_panel_forward_that_reads_closely(qtbot: Any, window: Window) -> None:
    dock(window, "attention").hide()
    dock(window, "overview").view.picked.emit(Hit("heads", (1, 2), "double-click"))
    assert dock(window, "attention").isVisible()
    settle(qtbot, window)
    assert window.context.document.state.selection.head == Head(1, 2)
    assert heat(window).values.shape[0] == len(window.context.document.state.tokens)


@pytest.mark.parametrize(("argument", "name"), [(0, "training"), (2, "theory"), (4, "spectra")])
def test_a_double_click_leads_to_the_picture_behind_the_chosen_argument(
    qtbot: Any, window: Window, argument: int, name: str
) -> None:
    dock(window, "evidence").show()
    dock(window, name).hide()
    dock(window, "evidence").view.picked.emit(Hit("arguments", (argument,), "double-click"))
    assert dock(window, name).isVisible()
    page = {"training": "curves", "theory": "heads", "spectra": "plane"}[name]
    assert window.context.document.state.view(name, dock(window, name).panel.view).page == page
    settle(qtbot, window)


def contrast(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """WCAG 2 contrast ratio."""

    def light(rgb: tuple[int, ...]) -> float:
        c = np.array(rgb) / 255
        return float(np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_hues_stand_out_on_either_ground() -> None:
    for layer in range(12):
        for head in range(16):
            hue = layer * 4096 + head
            assert contrast(hue_rgb(hue), (255, 255, 255)) >= 3
            assert contrast(hue_rgb(hue, dark=True), (27, 27, 30)) >= 4.5
    for kind in range(3):
        assert contrast(composition_rgb(kind), (255, 255, 255)) >= 3
        assert contrast(composition_rgb(kind, dark=True), (27, 27, 30)) >= 4.5


@pytest.fixture
def normed(qtbot: Any, tmp_path: Path) -> Iterator[Window]:
    """A window on a model whose norms have gains, so that raw and folded weights differ."""
    with shown_window(qtbot, directory(tmp_path / "normed", CONFIGS["gpt2"])) as made:
        yield made


def test_folded_is_compared_with_raw_through_the_pin(qtbot: Any, normed: Window) -> None:
    window = normed
    window.layout_of_docks.arrange("Weights")
    document = window.context.document
    view = replace(document.recorded.view("composition", dock(window, "composition").panel.view), form="matrix", by="score")
    document.apply(document.recorded.with_view("composition", view), "x")
    settle(qtbot, window)
    folded = dock(window, "composition").view.figure.find("K")
    window.state_commands.pin()
    window.activateWindow()
    window.setFocus()
    qtbot.keyClick(window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    assert (document.state.conventions.fold_norm, document.state.conventions.centre) == (False, False)
    settle(qtbot, window)
    figure = dock(window, "composition").view.figure
    raw = figure.find("K")
    assert all(words in figure.caption for words in document.state.conventions.words(window.context.facts().config))
    window.state_commands.compare("difference")
    settle(qtbot, window)
    figure = dock(window, "composition").view.figure
    change = figure.find("K")
    assert isinstance(folded, Heatmap) and isinstance(raw, Heatmap) and isinstance(change, Heatmap)
    np.testing.assert_allclose(change.values, raw.values - folded.values, atol=1e-6)
    assert np.abs(change.values).max() > 0.01
    usual = Conventions().words(window.context.facts().config)
    assert all(words in figure.caption for words in usual[:-1])  # what the reference has
    window.layout_of_docks.go_to("attention")
    settle(qtbot, window)
    assert heat(window).map == "magnitude"  # a pattern is what it was: rounding is not drawn as a difference
    assert but_for_rounding(dock(window, "attention").view.figure.caption)
    document.undo()
    document.undo()
    assert document.state.conventions.fold_norm and document.state.conventions.centre


def test_conventions_are_commands_of_the_palette_and_the_menus(qtbot: Any, window: Window) -> None:
    actions = {a.command.name: a for a in window.menus.actions if isinstance(a, CommandAction)}
    for name, field in (("convention-fold_norm", "fold_norm"), ("convention-centre", "centre")):
        assert actions[name].isCheckable()
        actions[name].trigger()
        assert not getattr(window.context.document.state.conventions, field)
        window.menus.refresh()
        assert not actions[name].isChecked()
        assert not next(a for a in window.top.conventions.menu().actions() if a.data() == field).isChecked()
    settle(qtbot, window)
    window.state_commands.pin()
    unusual = replace(Conventions(), fold_norm=False, centre=False).words(window.context.facts().config)[:-1]
    assert window.context.document.state.pins[0].label.endswith(", ".join(unusual))
    actions["raw"].trigger()
    assert window.context.document.state.conventions == Conventions()
    actions["convention-dtype"].trigger()
    assert window.context.document.state.conventions.dtype == "float64"
    settle(qtbot, window)
    assert "float64" in dock(window, "attention").view.figure.caption


def test_conventions_stand_once_in_the_bar_and_in_what_leaves_the_window(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not under each of the panels; a panel's picture that is copied or exported has them."""
    config = window.context.facts().config
    bar, words = window.top.conventions.text(), window.context.document.state.conventions.words(config)
    assert all(word in bar for word in words)
    panels = [d for d in window.docks.values() if isinstance(d, PanelDock) and d.shown and d.view.figure.grid]
    assert len(panels) > 2
    for panel in panels:
        assert not set(panel.view._caption.parts) & set(words), panel.panel.name
        assert set(words) <= set(panel.view.figure.caption_parts) or panel.panel.name in ("model",)
        assert all(word in panel.view._caption.toolTip() for word in words) or words[0] not in panel.view.figure.caption
        assert words[0] in panel.view.accessibleDescription() or words[0] not in panel.view.figure.caption
    window.state_commands.convention("centre", False)
    settle(qtbot, window)
    assert "not centred" in dock(window, "attention").view._caption.text(), "what is unusual is said where it matters"
    window.context.document.undo()
    settle(qtbot, window)
    view, grab = dock(window, "attention").view, FigureView.grab
    seen: list[str] = []
    monkeypatch.setattr(FigureView, "grab", lambda self, *where: (seen.append(self._caption.words), grab(self, *where))[1])
    view.copy_image()
    assert all(word in seen[0] for word in words)
    assert not set(view._caption.parts) & set(words)
