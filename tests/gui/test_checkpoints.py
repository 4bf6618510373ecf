"""The slider over a training: it drives every panel, plays, loops, compares; what cannot be read is said and gone back from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication

from circuitlab.errors import Cancelled
from circuitlab.figures.marks import Heatmap, Tokens
from circuitlab.gui.checkpoints.series import Point
from circuitlab.gui.checkpoints.series_slider import SeriesSlider
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.forward import forward, logits
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import ModelRef
from circuitlab.state.cuts import with_edits
from tests import pointer
from tests.gui.driving import TEXT, dock, heat, pixels, settle, shown_window
from tests.gui.training import checkpoints, measures
from tests.models import TINY, directory, weights_of
from tests.words import is_difference, minus

STEPS = (0, 100, 200, 300, 400)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a measured series; the loss on repeated tokens falls between steps 100 and 200."""
    made = directory(tmp_path / "trained")
    checkpoints(made, STEPS)
    measures(made, STEPS, 600, fall=1)
    return made


@pytest.fixture
def trained(qtbot: Any, folder: Path) -> Iterator[Window]:
    with shown_window(qtbot, folder) as made:
        yield made


def shown(window: Window) -> int | None:
    return window.context.document.state.model.checkpoint


def at(window: Window, index: int) -> QPoint:
    slider = window.checkpoints.slider
    return QPoint(round(slider.x_of(index)), 10)


def drag(slider: SeriesSlider, window: Window, *points: int) -> None:
    QApplication.processEvents()  # the slider lies where it will be painted
    pointer.drag(slider, *(at(window, point) for point in points))


def pattern(window: Window, checkpoint: int) -> np.ndarray:
    """Of the leading head, from the tensors of the checkpoint."""
    state = window.context.document.recorded
    weights, _ = weights_of(TINY, 10 + checkpoint)
    head = state.selection.head
    return forward(weights, state.tokens).get("pattern", head.layer, (head.head,))[0].numpy()


def same_pattern(drawn: np.ndarray, expected: np.ndarray) -> None:
    """Where there is attention at all: what lies in the future is not drawn."""
    seen = np.tril(np.ones(expected.shape, dtype=bool))
    np.testing.assert_allclose(drawn[seen], expected[seen], atol=1e-5)
    assert np.isnan(drawn[~seen]).all()


def test_a_model_without_a_series_has_no_bar(qtbot: Any, window: Window) -> None:
    assert not window.checkpoints.isVisible() and window.checkpoints.points == ()
    before = window.context.document.recorded
    for command in (c for c in COMMANDS if c.submenu == "Training"):
        assert not command.enabled(window)
        command.run(window)  # a shortcut may come all the same
    settle(qtbot, window)
    assert window.context.document.recorded == before and not window.checkpoints.player.playing


def test_the_bar_knows_steps_tokens_the_final_weights_and_the_phase_change(trained: Window) -> None:
    bar = trained.checkpoints
    assert bar.isVisible()
    assert [p.step for p in bar.points] == [*STEPS, 600] and [p.tokens for p in bar.points] == [1000 * s for s in (*STEPS, 600)]
    assert bar.slider.value() == 5 and all(fact in bar.label.toolTip() for fact in ("600 k", "step 600"))
    assert bar.slider.band == (1.0, 2.0)
    assert not bar.next.isEnabled() and bar.first.isEnabled()


def test_a_last_checkpoint_that_is_the_final_weights_is_not_shown_twice(qtbot: Any, folder: Path) -> None:
    measures(folder, STEPS, STEPS[-1], fall=1)
    window = gui.make_window(str(folder), TEXT, remember=False)
    window.show()
    settle(qtbot, window)
    bar = window.checkpoints
    assert [(p.checkpoint, p.step) for p in bar.points] == [*zip(range(4), STEPS, strict=False), (None, 400)]
    with qtbot.waitSignal(window.context.loader.settled):
        window.context.go(replace(window.context.document.recorded.model, checkpoint=4), "there")
    assert bar.slider.value() == 4 and bar.position == 4
    window.close()
    window.deleteLater()


def test_the_prompt_keeps_its_colours_from_one_checkpoint_to_the_next(
    qtbot: Any, trained: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    strip, drawn = trained.prompt.losses.view, []
    show = strip.show_figure
    monkeypatch.setattr(strip, "show_figure", lambda figure: (drawn.append(figure.marks()[0].values), show(figure))[1])
    trained.checkpoints.step_back()
    settle(qtbot, trained)
    assert drawn and all(np.isfinite(values[1:]).all() for values in drawn), "no flash of tokens without a colour"
    weights, _ = weights_of(TINY, 10 + 4)
    tokens = torch.tensor(trained.context.document.recorded.tokens)
    said = logits(weights, tokens[None])[0].double().log_softmax(-1)
    np.testing.assert_allclose(drawn[-1][1:], -said[:-1].gather(1, tokens[1:, None])[:, 0].numpy(), atol=1e-4)
    losses = trained.prompt.losses
    assert losses._request is not None
    losses._request = replace(losses._request, subject=replace(losses._request.subject, tokens=(1, 2)))
    assert losses.waiting
    losses.slot.failed.emit(Cancelled(), None)
    assert np.isnan(drawn[-1]).all(), "what could not be computed is not shown as what was"


def test_a_drag_is_live_drives_every_panel_and_is_one_step_of_undo(qtbot: Any, trained: Window) -> None:
    window, slider = trained, trained.checkpoints.slider
    asked: list[WorkSlot] = []
    submit = window.context.runner._submit
    window.context.runner._submit = lambda slot, *more: (asked.append(slot), submit(slot, *more))[1]  # type: ignore[method-assign]
    first, before = window.context.document.recorded, pixels(dock(window, "predictions").view)
    drag(slider, window, 4, 3, 2, 1, 2)
    qtbot.waitUntil(lambda: shown(window) == 2)
    settle(qtbot, window)
    same_pattern(heat(window).values, pattern(window, 2))
    assert (pixels(dock(window, "predictions").view) != before).any()
    assert window.windowTitle().startswith("trained · step 200")
    assert window.top.model.text() == "trained ▾" and window.checkpoints.label.text().startswith("step 200")
    dock(window, "model").show()
    dock(window, "model").raise_()
    settle(qtbot, window)
    assert dock(window, "model").view.figure.title == "trained · step 200"
    window.undo()
    settle(qtbot, window)
    assert window.context.document.recorded == first and slider.value() == 5
    drag(slider, window, 1)
    settle(qtbot, window)
    drag(slider, window, 3)
    settle(qtbot, window)
    window.undo()
    assert shown(window) == 1  # two drags are two steps
    assert asked and window.opening not in [
        slot.parent() for slot in asked
    ]  # nothing is read whole, hashed, or put into the recent list


def test_interventions_selection_and_text_survive_a_step(qtbot: Any, trained: Window) -> None:
    document = trained.context.document
    state = with_edits(document.recorded, Intervention("zero", Site("result", 1, (2,))))
    document.apply(state.select(destination=3, source=1, locked=True), "x")
    before = document.recorded
    trained.checkpoints.to(2)
    settle(qtbot, trained)
    assert document.recorded == replace(before, model=replace(before.model, checkpoint=2))


def test_keys_step_and_steps_in_a_row_are_one_step_of_undo(qtbot: Any, trained: Window) -> None:
    trained.setFocus()
    first = trained.context.document.recorded
    for expected in (4, 3, 2):
        qtbot.keyClick(trained, Qt.Key.Key_BracketLeft)
        qtbot.waitUntil(lambda wanted=expected: shown(trained) == wanted)
    qtbot.keyClick(trained, Qt.Key.Key_BracketRight)
    qtbot.waitUntil(lambda: shown(trained) == 3)
    trained.checkpoints.slider.setFocus()
    qtbot.keyClick(trained.checkpoints.slider, Qt.Key.Key_Home)
    qtbot.waitUntil(lambda: shown(trained) == 0)
    settle(qtbot, trained)
    assert not trained.checkpoints.previous.isEnabled()
    trained.undo()
    assert trained.context.document.recorded == first
    qtbot.keyClicks(trained.prompt.editor, "[")
    assert trained.prompt.editor.toPlainText() == TEXT + "[" and shown(trained) is None


def test_playing_shows_every_point_whole_and_stops_at_the_end(qtbot: Any, trained: Window) -> None:
    window, bar = trained, trained.checkpoints
    bar.player.speed = 1000
    seen: list[tuple[int | None, bool]] = []
    show = bar._show

    def spy(index: int) -> None:
        seen.append((shown(window), window.waiting or window.context.loader.waiting))
        show(index)

    bar._show = spy  # type: ignore[method-assign]
    first = window.context.document.recorded
    qtbot.keyClick(window, Qt.Key.Key_T, Qt.KeyboardModifier.ControlModifier)
    assert bar.player.playing and bar.play_button.toolTip().startswith("Stop")
    qtbot.waitUntil(lambda: not bar.player.playing)
    assert seen == [(None, False), *((i, False) for i in range(5))]  # from the end to the beginning, then each in turn
    assert shown(window) is None and bar.play_button.toolTip().startswith("Play")
    settle(qtbot, window)
    assert heat(window).values.shape == (len(first.tokens),) * 2
    bar.to(1)
    settle(qtbot, window)
    bar.play_or_stop()
    qtbot.waitUntil(lambda: not bar.player.playing)
    window.undo()
    assert shown(window) == 1  # playing is one step


def test_playing_begins_again_where_it_loops_until_it_is_stopped(qtbot: Any, trained: Window) -> None:
    bar = trained.checkpoints
    bar.player.speed = 1000
    bar.loop.click()
    seen: list[int | None] = []
    trained.context.document.changed.connect(lambda old, new: seen.append(new.model.checkpoint))
    bar.to(4)
    bar.play_button.click()
    qtbot.waitUntil(lambda: seen[-4:] == [None, 0, 1, 2])
    bar.play_button.click()
    assert not bar.player.playing
    settle(qtbot, trained)
    stopped = shown(trained)
    assert not bar.player._timer.isActive(), "nothing more is due"
    assert shown(trained) == stopped and bar.position == stopped
    bar.play_or_stop()
    bar.slider.sliderPressed.emit()
    assert not bar.player.playing  # a hand on the slider


@pytest.mark.parametrize("by", ["play", "drag"])
def test_a_scale_of_differences_only_grows_while_a_training_moves(qtbot: Any, trained: Window, by: str) -> None:
    window, bar = trained, trained.checkpoints
    bar.to(2)
    settle(qtbot, window)
    bar.pin.click()
    bar.to(0)
    settle(qtbot, window)
    views = {"map": dock(window, "attention").view, "text": window.prompt.losses.view}
    seen: dict[str, list[tuple[float, str]]] = {name: [] for name in views}
    for name, view in views.items():
        show = view.show_figure

        def spy(figure: Any, name: str = name, show: Any = show) -> None:
            seen[name].append((figure.marks()[0].levels[1], figure.caption))
            show(figure)

        view.show_figure = spy
    if by == "play":
        bar.player.speed = 1000
        bar.play_or_stop()
        assert window.context.holds_scales
        qtbot.waitUntil(lambda: not bar.player.playing)
    else:
        drag(bar.slider, window, 0, 1, 2, 3, 4)
    settle(qtbot, window)
    assert not window.context.holds_scales
    for name, drawn in seen.items():
        held = [top for top, caption in drawn if "scale held" in caption]
        assert held == sorted(held), name
        assert held or by == "drag", name
        top, caption = drawn[-1]
        assert "scale held" not in caption and "0.00 nats" not in caption
        mark = views[name].figure.marks()[0]
        assert isinstance(mark, Heatmap | Tokens)
        assert top == pytest.approx(max(float(np.nanmax(np.abs(mark.values))), 0.01), rel=0.1)
    assert minus("step 200") in views["text"].figure.caption


def test_the_losses_of_one_point_are_never_set_against_the_reference_of_another(
    qtbot: Any, trained: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uncut reference moves with the slider: until both have come the picture of before stays."""
    window, losses = trained, trained.prompt.losses
    document = window.context.document
    state = with_edits(document.recorded, Intervention("zero", Site("result", 1, (2,))))
    document.apply(replace(state, compare="difference"), "cut")
    settle(qtbot, window)
    drawn: list[np.ndarray] = []
    show = losses.view.show_figure
    monkeypatch.setattr(losses.view, "show_figure", lambda f: (drawn.append(f.marks()[0].values), show(f))[1])
    before = losses._picture[0]
    window.checkpoints.to(1)
    settle(qtbot, window)
    after = drawn[-1]
    assert not np.array_equal(before, after)
    assert all(values is before or np.array_equal(values, after, equal_nan=True) for values in drawn)
    assert "− " in losses.view.figure.caption and re.search(r"mean [+−]\d", losses.view.figure.caption)


def test_a_speed_is_a_limit(qtbot: Any, trained: Window) -> None:
    bar = trained.checkpoints
    bar.pace.menu().actions()[0].trigger()
    assert bar.pace.text() == "1/s ▾"
    bar.to(0)
    settle(qtbot, trained)
    show, pauses = bar.player.point_shown, list[int]()

    def spy() -> None:
        show()
        pauses.append(bar.player._timer.interval())

    bar.player.point_shown = spy  # type: ignore[method-assign]
    bar.play_or_stop()
    qtbot.waitUntil(lambda: shown(trained) == 2)
    bar.player.stop()
    assert len(pauses) >= 2 and set(pauses) == {1000}


def test_compare_to_a_checkpoint_and_slide_shows_differences(qtbot: Any, trained: Window) -> None:
    window, bar = trained, trained.checkpoints
    bar.to(1)
    settle(qtbot, window)
    bar.pin.click()
    assert window.context.document.recorded.pins[0].label == "step 100" and bar.slider.pinned == 1
    settle(qtbot, window)
    before, let_go = bar.slider.geometry(), []
    bar.slider.sliderReleased.connect(lambda: let_go.append(bar.slider.geometry()))
    drag(bar.slider, window, 3, 4)
    assert let_go == [before], "the reference is named now, and yet nothing moves under the pointer"
    qtbot.waitUntil(lambda: shown(window) == 4)
    settle(qtbot, window)
    figure = dock(window, "attention").view.figure
    assert is_difference(figure.title, "step 100") and "L0H0" in figure.title
    same_pattern(heat(window).values, pattern(window, 4) - pattern(window, 1))
    for name in ("overview", "predictions", "heads"):
        found = dock(window, name).view.figure
        assert "step 100" in found.title + found.caption, name
    window.undo()
    window.undo()
    settle(qtbot, window)
    assert not window.context.document.recorded.pins and shown(window) == 1 and bar.slider.pinned is None


def test_a_pin_of_the_final_weights_is_named_so(qtbot: Any, trained: Window) -> None:
    window = trained
    window.state_commands.pin()
    assert "final weights" in window.context.document.recorded.pins[0].label
    window.checkpoints.to(3)
    window.state_commands.compare("difference")
    settle(qtbot, window)
    assert is_difference(dock(window, "attention").view.figure.title, "final weights")
    assert minus("final weights") in window.prompt.losses.view.figure.caption
    window.state_commands.pin()
    assert (
        "step 300" in window.context.document.recorded.pins[0].label
        and "final" not in window.context.document.recorded.pins[0].label
    )


def test_an_unreadable_checkpoint_is_said_and_the_slider_goes_back(
    qtbot: Any, trained: Window, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, bar = trained, trained.checkpoints
    errors: list[Exception] = []
    window.context.failed.disconnect()
    window.context.failed.connect(errors.append)
    monkeypatch.setattr(window.ahead, "requests", lambda: ())  # nothing opens the next step before it is asked for
    bar.to(1)
    settle(qtbot, window)
    window.ahead.look()
    qtbot.waitUntil(lambda: not window.context.runner.prefetch.busy)
    (folder / "checkpoints" / "step-000200.safetensors").write_bytes(b"nothing")
    window.context.engine.store._models.pop(ModelRef(f"file:{folder}", 2), None)
    before = window.context.document.recorded
    with qtbot.waitSignal(window.context.loader.given_up):
        bar.step_on()
    assert len(errors) == 1 and window.context.document.recorded == before
    assert bar.slider.value() == 1 and bar.label.text().startswith("step 100")
    bar.player.speed = 1000
    bar.play_or_stop()
    qtbot.waitUntil(lambda: not bar.player.playing)
    assert shown(window) == 1 and len(errors) == 2
    bar.to(3)
    qtbot.waitUntil(lambda: shown(window) == 3)


def test_the_next_checkpoints_are_ready_before_they_are_asked_for(
    qtbot: Any, trained: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, runner = trained, trained.context.runner
    window.checkpoints.to(1)
    qtbot.waitUntil(lambda: shown(window) == 1)
    asked: list[WorkSlot] = []
    for _ in range(2):
        qtbot.waitUntil(lambda: not (runner.busy or window.ahead.timer.isActive() or runner.prefetch.busy))
        monkeypatch.setattr(Runner, "_submit", lambda self, slot, *more: asked.append(slot))
        window.checkpoints.step_on()
        assert not window.waiting and not window.context.loader.waiting and asked == []
        monkeypatch.undo()
    assert shown(window) == 3


def test_another_model_takes_the_bar_away_and_undo_brings_it_back(qtbot: Any, trained: Window, tmp_path: Path) -> None:
    bar = trained.checkpoints
    bar.to(2)
    settle(qtbot, trained)
    with qtbot.waitSignal(trained.opening.opened):
        trained.opening.open(str(directory(tmp_path / "other")))
    settle(qtbot, trained)
    assert not bar.isVisible() and trained.windowTitle().startswith("other")
    trained.undo()
    settle(qtbot, trained)
    assert bar.isVisible() and bar.slider.value() == 2 and bar.label.text().startswith("step 200")


def test_words_of_points() -> None:
    assert Point(None).words == "final weights" and Point(None).tick == "final"
    assert Point(3, 8192, 16_777_216).words == "step 8,192 · 16.8 M tokens" and Point(3, 8192).tick == "8.19k"
    assert Point(0, 0, 0).words == "step 0 · 0 tokens" and Point(0, 0).tick == "0"
    assert Point(0, 3000, 999).words == "step 3,000 · 999 tokens" and Point(0, 3000).tick == "3k"


def test_a_layout_that_was_kept_without_the_bar_does_not_hide_it(qtbot: Any, folder: Path, tmp_path: Path) -> None:
    source = str(directory(tmp_path / "plain"))
    for model in (source, str(folder), source):  # the layout is kept when a window is closed
        window = gui.make_window(model, TEXT)
        window.show()
        settle(qtbot, window)
        assert window.checkpoints.isVisible() == (model != source)
        window.close()
        window.deleteLater()


def test_a_model_without_layers_is_looked_ahead_of_too(qtbot: Any, tmp_path: Path) -> None:
    made = gui.make_window(str(directory(tmp_path / "bare", replace(TINY, n_layers=0))), TEXT, remember=False)
    made.show()
    settle(qtbot, made)
    assert made.ahead.requests() == (), "there is no head beside"
    made.close()
    made.deleteLater()
