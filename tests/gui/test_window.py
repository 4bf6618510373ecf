"""The window, driven as a hand drives it: real widgets, real worker threads, pixels looked at."""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication, QImage
from PySide6.QtWidgets import QApplication, QFileDialog, QTableView

from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.errors import BadModel, Cancelled
from circuitlab.figures.marks import Heatmap, Hit, Rows, Tokens
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen
from circuitlab.gui.panel.why_button import WhyButton
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.palette import Palette, fuzzy
from circuitlab.gui.shell.shortcut_sheet import ShortcutSheet
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import Head
from tests.fuzz.corpus import CORPUS
from tests.gui.driving import TEXT, dock, exported, heat, pixels, settle
from tests.models import directory
from tests.patience import SECONDS
from tests.words import asks_for_text


def test_the_first_picture_is_whole(window: Window) -> None:
    for name in ("attention", "overview", "predictions", "heads"):
        assert dock(window, name).view.figure.grid, name
    n = len(window.context.document.state.tokens)
    assert heat(window).values.shape == (n, n)
    assert len(np.unique(pixels(dock(window, "attention").view).reshape(-1, 4), axis=0)) > 20
    assert window.prompt.editor.toPlainText() == TEXT
    strip = window.prompt.losses.view.figure.marks()[0]
    assert isinstance(strip, Tokens)
    assert np.isfinite(strip.values[1:]).all()


def test_typing_moves_the_attention_and_is_undone_as_one_step(qtbot: Any, window: Window) -> None:
    before, shape = pixels(dock(window, "attention").view), heat(window).values.shape
    qtbot.keyClicks(window.prompt.editor, " two")
    with qtbot.waitSignal(window.context.document.changed):
        pass
    settle(qtbot, window)
    assert heat(window).values.shape == (shape[0] + 4, shape[1] + 4)
    assert not np.array_equal(pixels(dock(window, "attention").view), before)
    assert window.context.document.state.text == TEXT + " two"
    window.context.document.undo()
    settle(qtbot, window)
    assert window.prompt.editor.toPlainText() == TEXT
    assert heat(window).values.shape == shape
    window.context.document.redo()
    settle(qtbot, window)
    assert window.prompt.editor.toPlainText() == TEXT + " two"


def test_undo_in_the_editor_is_the_documents(qtbot: Any, window: Window) -> None:
    qtbot.keyClicks(window.prompt.editor, "x")
    qtbot.waitUntil(lambda: window.context.document.state.text == TEXT + "x")
    qtbot.keyClick(window.prompt.editor, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert window.context.document.state.text == TEXT


def test_choosing_a_head_changes_the_large_picture(qtbot: Any, window: Window) -> None:
    overview = dock(window, "overview")
    overview.view.picked.emit(Hit("heads", (1, 3), "click"))
    settle(qtbot, window)
    assert window.context.document.state.selection.heads == (Head(1, 3),)
    shown = heat(window).values
    overview.view.picked.emit(Hit("heads", (0, 2), "shift-click"))
    settle(qtbot, window)
    assert window.context.document.state.selection.heads == (Head(1, 3), Head(0, 2))
    np.testing.assert_array_equal(heat(window).values, shown)
    window.state_commands.walk_heads(-1, 1)
    assert window.context.document.state.selection.heads == (Head(0, 0),)
    settle(qtbot, window)
    assert "L0H0" in dock(window, "attention").view.figure.title


def test_hover_previews_click_locks_click_again_and_esc_release(qtbot: Any, window: Window) -> None:
    document, view = window.context.document, dock(window, "attention").view
    window.release()
    recorded = document.recorded
    view.hovered.emit(Hit("text", (3,), "hover"), "position 3")
    assert document.state.selection.destination == 3
    assert document.recorded is recorded
    assert window.status.readout.text() == "position 3"
    view.hovered.emit(Hit("text", (), "leave"), "")
    assert document.state.selection.destination is None
    view.picked.emit(Hit("text", (4,), "click"))
    assert document.recorded.selection.locked
    view.hovered.emit(Hit("text", (2,), "hover"), "")
    assert document.state.selection.destination == 4
    view.picked.emit(Hit("text", (4,), "click"))
    assert document.state.selection.destination is None
    view.picked.emit(Hit("attention", (5, 2), "click"))
    assert (document.state.selection.destination, document.state.selection.source) == (5, 2)
    window.release()
    assert not document.state.selection.locked


def test_a_hover_hands_over_no_pixels_again(qtbot: Any, window: Window) -> None:
    view = dock(window, "attention").view
    before = heat(window)
    view.hovered.emit(Hit("text", (3,), "hover"), "")
    after = heat(window)
    assert after is not before
    assert after.values is before.values
    assert after.x is before.x


def test_predictions_follow_the_selection(qtbot: Any, window: Window) -> None:
    view = dock(window, "attention").view
    view.picked.emit(Hit("text", (2,), "click"))
    settle(qtbot, window)
    assert dock(window, "predictions").view.figure.title.startswith("after 2 ")
    rows = dock(window, "predictions").view.figure.marks()[0]
    assert isinstance(rows, Rows)
    dock(window, "predictions").view.picked.emit(Hit("tokens", (int(rows.ids[0, 0]),), "click"))
    assert window.context.document.state.selection.token == int(rows.ids[0, 0])


def test_controls_change_what_is_shown_and_are_undone(qtbot: Any, window: Window) -> None:
    attention = dock(window, "attention")
    shown = heat(window).values
    box = attention.controls.findChild(object, "show")
    for show in ("scores", "value_weighted", "contribution"):
        box.setCurrentIndex(box.findData(show))
        settle(qtbot, window)
        assert not np.array_equal(heat(window).values, shown, equal_nan=True), show
        window.context.document.undo()
        settle(qtbot, window)
        assert box.currentData() == "pattern"
        np.testing.assert_array_equal(heat(window).values, shown)


def test_several_heads_are_averaged_or_told_apart_by_hue(qtbot: Any, window: Window) -> None:
    attention = dock(window, "attention")
    window.state_commands.select_layer()
    for several in ("average", "hue per head"):
        box = attention.controls.findChild(object, "several")
        box.setCurrentIndex(box.findData(several))
        settle(qtbot, window)
        assert (heat(window).rgb is not None) == (several == "hue per head")
    assert len(heat(window).legend) == 4


def put_in_front(window: Window, index: int) -> None:
    """Choose what stands in front of the prompt, as a click in the list does."""
    window.prompt.front.setCurrentIndex(index)
    window.prompt.front.activated.emit(index)


def test_bos_can_be_left_off(qtbot: Any, window: Window) -> None:
    n = len(window.context.document.state.tokens)
    put_in_front(window, 0)
    settle(qtbot, window)
    assert len(window.context.document.state.tokens) == n - 1
    assert not window.context.document.state.bos


def test_a_prompt_that_does_not_fit_keeps_the_last_good_state(qtbot: Any, window: Window) -> None:
    state = window.context.document.state
    window.prompt.editor.setPlainText("x" * 60)
    qtbot.waitUntil(lambda: "13 more tokens" in window.prompt.warning.text())
    assert replace(window.context.document.state, draft="") == state
    window.prompt.editor.setPlainText("")
    qtbot.waitUntil(lambda: window.context.document.state.tokens == (0,))
    settle(qtbot, window)
    assert window.prompt.warning.text() == ""
    assert window.prompt.editor.toPlainText() == "", "BOS alone is the empty text, not the id 0"
    qtbot.keyClicks(window.prompt.editor, "ab")
    qtbot.waitUntil(lambda: window.context.document.state.text == "ab")
    settle(qtbot, window)


def test_an_empty_prompt_says_what_to_do(qtbot: Any, window: Window) -> None:
    put_in_front(window, 0)
    window.prompt.editor.setPlainText("")
    qtbot.waitUntil(lambda: window.context.document.state.tokens == ())
    settle(qtbot, window)
    for name in ("attention", "overview", "predictions"):
        assert asks_for_text(dock(window, name).view.figure.why_empty), name


def test_ids_are_typed_where_there_is_no_tokenizer(qtbot: Any, window: Window, tmp_path: Path) -> None:
    window.open_model(str(directory(tmp_path / "ids", tokenizer=False)))
    settle(qtbot, window)
    qtbot.waitUntil(lambda: window.context.document.state.model.name == "ids")
    window.prompt.editor.setPlainText("3, 4 5")
    qtbot.waitUntil(lambda: window.context.document.state.tokens == (3, 4, 5))
    settle(qtbot, window)
    window.prompt.editor.setPlainText("3 x")
    qtbot.waitUntil(lambda: "token ids" in window.prompt.warning.text())
    assert window.context.document.state.tokens == (3, 4, 5)


def test_a_model_that_cannot_be_opened_changes_nothing(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[ErrorDialog] = []
    monkeypatch.setattr(ErrorDialog, "open", lambda dialog: shown.append(dialog))
    state = window.context.document.state
    for wrong, said in ((tmp_path / "nowhere", "nowhere does not exist"), (tmp_path, "config.json is missing")):
        window.open_model(str(wrong))
        qtbot.waitUntil(lambda: bool(shown))
        dialog = shown.pop()
        assert said in dialog.text()
        assert "Traceback" in dialog.report
        dialog.done(0)
        assert window.context.document.state == state
    assert heat(window).values.shape[0] == len(state.tokens)


def test_a_cancelled_open_changes_nothing(qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while its files are being read; opened again, it opens."""
    state, store, go_on = window.context.document.state, window.context.engine.store, threading.Event()
    opener = store._opener

    def slowly(*words: Any) -> Any:
        go_on.wait(SECONDS)
        return opener(*words)

    monkeypatch.setattr(store, "_opener", slowly)
    path = str(directory(tmp_path / "other", n_layers=1))
    window.open_model(path)
    qtbot.waitUntil(lambda: any(job.slot is window.opening.slot and job.started_at for job in window.context.runner.jobs))
    window.context.runner.cancel_slot(window.opening.slot)
    with qtbot.waitSignal(window.opening.slot.failed):
        go_on.set()
    assert window.context.document.state == state
    with qtbot.waitSignal(window.opening.opened):
        window.open_model(path)
    assert window.context.document.state.model.name == "other"


def test_another_model_takes_text_and_is_undone(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path, before = (
        directory(tmp_path / "wide", n_layers=3, n_heads=2, n_kv_heads=2, d_head=12),
        window.context.document.state.model,
    )
    event = QMimeData()
    event.setUrls([QUrl.fromLocalFile(str(path / "config.json"))])
    drop = QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, event, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    window.dropEvent(drop)
    qtbot.waitUntil(lambda: window.context.document.state.model.name == "wide")
    settle(qtbot, window)
    assert heat(window, "overview").tiles is not None
    assert heat(window, "overview").tiles.rows == 3  # type: ignore[union-attr]
    assert window.context.document.state.text == TEXT
    assert window.windowTitle() == "wide · CircuitLab"
    window.context.document.undo()
    settle(qtbot, window)
    assert window.context.document.state.model == before
    assert window.windowTitle() == f"{window.context.name_of(before)} · CircuitLab"
    assert heat(window, "overview").tiles.rows == 2  # type: ignore[union-attr]


def test_a_dropped_gguf_file_opens_whatever_lies_beside_it(qtbot: Any, window: Window, tmp_path: Path) -> None:
    path = CORPUS["gguf"](tmp_path / "m")
    (path.parent / "config.json").write_text("{}")
    event = QMimeData()
    event.setUrls([QUrl.fromLocalFile(str(path))])
    drop = QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, event, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier)
    window.dropEvent(drop)
    qtbot.waitUntil(lambda: window.context.document.state.model.name == "model.gguf")
    settle(qtbot, window)
    assert "weights dequantised from" in dock(window, "overview").view.figure.caption


def test_pin_and_compare_show_reference_and_difference(qtbot: Any, window: Window) -> None:
    window.state_commands.pin()
    window.context.document.apply(
        window.context.document.recorded.with_text("one two one six one", window.prompt.tokens_of("one two one six one", True)),
        "x",
    )
    settle(qtbot, window)
    now = heat(window).values
    window.state_commands.next_compare()
    settle(qtbot, window)
    reference = heat(window).values
    window.state_commands.next_compare()
    settle(qtbot, window)
    np.testing.assert_allclose(heat(window).values, now - reference)
    assert heat(window).map == "signed"
    assert heat(window).levels[0] == -heat(window).levels[1]
    assert "tokens differ" in dock(window, "attention").view.figure.caption
    changes, caption = window.prompt.losses.view.figure.marks()[0].values, window.prompt.losses.view.figure.caption  # type: ignore[attr-defined]
    stated = re.search(r"mean ([+−][\d.]+) nats .* over (\d+) compared token", caption)
    assert stated is not None, caption
    assert float(stated[1].replace("−", "-")) == pytest.approx(np.nanmean(changes), abs=6e-4), "the mean of what is coloured"
    assert int(stated[2]) == np.isfinite(changes).sum() < len(changes) - 1
    window.state_commands.unpin()
    settle(qtbot, window)
    assert window.context.document.state.compare == "now"


def test_continuing_writes_the_most_probable_tokens(qtbot: Any, window: Window) -> None:
    state = window.context.document.state
    engine = window.context.engine
    number = window.prompt.writing.form.widgets["number"]
    number.selectAll()
    qtbot.keyClicks(number, "3")  # counts as it is typed, without Enter
    window.prompt.writing.go.click()
    qtbot.waitUntil(lambda: len(window.context.document.state.tokens) == len(state.tokens) + 3)
    tokens = state.tokens
    for _ in range(3):
        from dataclasses import replace

        run = engine.run_of(engine.store.open(state.model), replace(state, tokens=tokens).subject, NullContext())
        tokens = (*tokens, int(run.logits()[-1].argmax()))
    assert window.context.document.state.tokens == tokens
    settle(qtbot, window)


def test_themes_change_the_window_and_not_the_numbers(qtbot: Any, window: Window) -> None:
    light = pixels(dock(window, "attention").view)
    values = heat(window).values
    window.set_theme("dark")
    QApplication.processEvents()
    dark = pixels(dock(window, "attention").view)
    assert light[5, 5, :3].mean() > 200
    assert dark[5, 5, :3].mean() < 80
    assert heat(window).values is values
    window.set_theme("light")


def test_maximise_and_back(qtbot: Any, window: Window) -> None:
    attention = dock(window, "attention")
    attention.actions_menu.maximise()
    assert attention.isVisible()
    assert not window.docks["predictions"].isVisible()
    window.release()
    assert window.docks["predictions"].isVisible()
    window.layout_of_docks.reset()
    settle(qtbot, window)


def test_a_hidden_panel_asks_for_nothing(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    window.docks["predictions"].hide()
    asked: list[WorkSlot] = []
    runner = window.context.runner
    ask = runner.ask
    monkeypatch.setattr(runner, "ask", lambda slot, request: (asked.append(slot), ask(slot, request))[1])
    window.prompt.editor.setPlainText("six one six")
    qtbot.waitUntil(lambda: window.context.document.state.text == "six one six")
    settle(qtbot, window)
    assert asked
    assert window.docks["predictions"] not in [slot.parent() for slot in asked]
    window.docks["predictions"].show()
    settle(qtbot, window)
    assert dock(window, "predictions").view.figure.grid


def test_what_is_on_the_screen_goes_into_a_file(qtbot: Any, window: Window, tmp_path: Path) -> None:
    actions = dock(window, "attention").actions_menu
    for suffix in ("png", "svg", "pdf", "csv", "npz", "json"):
        path = tmp_path / f"a.{suffix}"
        exported(qtbot, window, path) if suffix in ("png", "svg", "pdf") else actions.write_data(path)
        assert path.stat().st_size > 300, suffix
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["values"][0], heat(window).values)


def test_every_answer_goes_out_now_and_reference(qtbot: Any, window: Window, tmp_path: Path) -> None:
    attention = dock(window, "attention")
    actions, said = attention.actions_menu, []
    window.context.message.connect(said.append)
    window.state_commands.pin()
    window.state_commands.ablate()
    window.state_commands.compare("difference")
    settle(qtbot, window)
    answers = {("now", r): a for r, a in attention.feed.exchange.answers["now"].items()}
    answers |= {("ref", r): a for r, a in attention.feed.exchange.answers["ref"].items()}
    assert {side for side, _ in answers} == {"now", "ref"}
    for form in ("csv", "npz", "json"):
        actions.write_data(tmp_path / f"a.{form}")
        with zipfile.ZipFile(tmp_path / f"a.{form}.zip") as made:
            names = {f"{'reference-' if side == 'ref' else ''}{role}.{form}" for side, role in answers}
            changes = {f"difference-{role}.{form}" for side, role in answers if side == "ref"}
            assert set(made.namelist()) == names | changes and said[-1].endswith(f"a.{form}.zip")
    with zipfile.ZipFile(tmp_path / "a.json.zip") as made:
        for (side, role), answer in answers.items():
            result = json.loads(made.read(f"{'reference-' if side == 'ref' else ''}{role}.json"))
            assert len(result["subject"]["edits"]) == len(answer.request.subject.edits)
    actions.copy_table()
    text = QGuiApplication.clipboard().text()
    assert all(f"{'reference-' if side == 'ref' else ''}{role}\n" in text for side, role in answers)
    actions.copy_python()
    lines = QGuiApplication.clipboard().text()
    assert lines.count("model.compute(") == len(answers)
    if form == "npz":  # it ends with now minus the reference: the numbers of the file
        space: dict[str, Any] = {}
        exec(lines.replace("print(", "str("), space)
        with zipfile.ZipFile(tmp_path / f"a.{form}.zip") as made:
            wanted = np.load(io.BytesIO(made.read("difference-attention.npz")))
            assert any(name.startswith("Δ ") for name in wanted.files)
        with np.load(io.BytesIO(space["changes"]["attention"].data("npz"))) as result:
            for name in set(wanted.files) - {"about"}:
                np.testing.assert_array_equal(result[name], wanted[name], name)


def test_copying_and_explaining(qtbot: Any, window: Window) -> None:
    actions, clipboard = dock(window, "attention").actions_menu, QGuiApplication.clipboard()
    actions.copy_table()
    assert clipboard.text().startswith("head\tdestination\tdestination token\tsource\tsource token\tvalue")
    actions.copy_python()
    assert "lab.open(" in clipboard.text()
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: text == "Image copied."):
        actions.copy_image()
    assert not clipboard.image().isNull()
    assert "softmax" in actions.explainer().text
    assert "n × n = 20 × 20" in actions.explainer().text
    window.copy_step()
    settle(qtbot, window)
    assert json.loads(clipboard.text())["text"] == TEXT


def test_the_palette_finds_and_runs_every_command(qtbot: Any, window: Window) -> None:
    palette = Palette(window.menus.actions, window)
    qtbot.addWidget(palette)
    titles = {palette.list.item(i).text().split("    ")[0] for i in range(palette.list.count())}
    assert {c.title for c in COMMANDS} <= titles
    qtbot.keyClicks(palette.line, "nxthd")
    assert palette.list.item(0).text().startswith("Next head")
    head = window.context.document.state.selection.head
    palette.choose()
    assert window.context.document.state.selection.head == Head(head.layer, (head.head + 1) % 4)
    settle(qtbot, window)


def test_the_top_bar_asks_for_a_folder_and_shows_the_commands(
    qtbot: Any, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Palette] = []
    monkeypatch.setattr(Palette, "exec", lambda palette: shown.append(palette))
    window.top.palette_button.click()
    assert len(shown) == 1 and shown[0].list.count() > len(COMMANDS) - 10
    chosen = str(directory(tmp_path / "chosen"))
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: chosen)
    menu = window.top.model.menu()
    menu.aboutToShow.emit()
    with qtbot.waitSignal(window.opening.opened):
        next(a for a in menu.actions() if a.text() == "Open a folder…").trigger()
    assert window.context.document.state.model.name == "chosen"
    settle(qtbot, window)


def test_panels_are_drawn_again_when_it_is_computed_on_another_device(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(dock(window, "attention").feed, "draw", lambda: drawn.append(window.context.engine.device))
    window.context.engine.device = "elsewhere"
    window.settings.changed.emit("device")
    assert drawn == ["cpu"]


def test_fuzzy_prefers_starts_of_words() -> None:
    assert fuzzy("rl", "Reset layout") > fuzzy("rl", "World") > 0
    assert fuzzy("zz", "Reset layout") == 0


def test_the_shortcut_sheet_lists_every_shortcut(qtbot: Any, window: Window) -> None:
    from PySide6.QtWidgets import QLabel

    sheet = ShortcutSheet(window.menus.actions, window)
    qtbot.addWidget(sheet)
    words = {label.text() for label in sheet.findChildren(QLabel)}
    assert {c.title for c in COMMANDS if c.shortcut} <= words


def test_keys_make_text_larger_smaller_and_usual_again(qtbot: Any, window: Window) -> None:
    usual = window.prompt.editor.fontInfo().pixelSize()
    ctrl = Qt.KeyboardModifier.ControlModifier
    window.activateWindow()
    for key, times, wanted in (
        (Qt.Key.Key_Equal, 3, 1.3),
        (Qt.Key.Key_0, 1, 1.0),
        (Qt.Key.Key_Minus, 1, 0.9),
        (Qt.Key.Key_0, 1, 1.0),
    ):
        for _ in range(times):
            qtbot.keyClick(window.prompt.editor, key, ctrl)
        settle(qtbot, window)
        assert window.settings["text_scale"] == pytest.approx(wanted)
        assert window.prompt.editor.fontInfo().pixelSize() == round(wanted * usual)


def test_no_shortcut_is_taken_twice(window: Window) -> None:
    keys = [s.toString() for a in window.menus.actions for s in a.shortcuts()]
    assert len(keys) == len(set(keys))


def test_cancelling_a_slow_answer_keeps_the_window_alive(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    looks = list[int]()

    def slow(self: Engine, request: Request, ctx: Any, fresh: bool = False) -> Any:
        while True:
            time.sleep(0.005)
            looks.append(1)
            ctx.tick(0, 1)

    for name, other in window.docks.items():
        other.setVisible(name == "heads")
    settle(qtbot, window)
    monkeypatch.setattr(Engine, "answer", slow)
    monkeypatch.setattr(Engine, "cached", lambda *a: None)
    box = dock(window, "heads").controls.findChild(object, "on")
    box.setCurrentIndex(1)
    qtbot.waitUntil(lambda: bool(looks))
    window.context.runner.cancel_all()
    until = len(looks) + 2  # one of each lane
    qtbot.waitUntil(lambda: not window.context.runner.busy)
    assert len(looks) <= until, "the next look whether it is cancelled is the last"
    assert "Cancelled" in dock(window, "heads").view.figure.why_empty
    view = dock(window, "heads").view
    (again,) = view.findChildren(WhyButton)
    assert again.isVisible() and again.text() == "Compute again"
    assert view.rect().contains(again.geometry()) and again.y() >= view.below_why()
    monkeypatch.undo()
    again.click()
    settle(qtbot, window)
    assert view.figure.grid and not again.isVisible()
    assert not any(one.isVisible() for one in window.findChildren(WhyButton))


def test_an_empty_patching_panel_is_filled_by_the_button_below_its_words(qtbot: Any, window: Window) -> None:
    """From a prompt alone: pinned, then a head of it ablated, of which the patches show which undo that."""
    state = window.context.document.state
    window.docks["patching"].show()
    window.docks["patching"].raise_()
    settle(qtbot, window)
    view = dock(window, "patching").view
    (button,) = view.findChildren(WhyButton)
    for words, text in (
        ("takes values from another prompt", "Pin this prompt"),
        ("The pinned prompt is this one", "Zero-ablate"),
    ):
        assert words in view.figure.why_empty and button.text().startswith(text)
        assert button.isVisible() and view.rect().contains(button.geometry()) and button.y() >= view.below_why()
        button.click()
        settle(qtbot, window)
    assert not button.isVisible() and any(isinstance(mark, Heatmap) for mark in view.figure.marks())
    after = window.context.document.state
    assert after.pinned.subject == state.subject and len(after.subject.edits) == 1
    assert after.subject.edits[0].site.heads == (state.selection.head.head,)
    window.context.document.undo()
    settle(qtbot, window)
    assert button.isVisible() and button.text() == f"Zero-ablate {state.selection.head}"


def test_a_fault_on_a_worker_is_shown_and_the_window_goes_on(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[ErrorDialog] = []
    monkeypatch.setattr(ErrorDialog, "open", lambda dialog: shown.append(dialog))
    monkeypatch.setattr(Engine, "cached", lambda *a: None)
    with monkeypatch.context() as broken:
        broken.setattr(Engine, "answer", lambda *a, **k: 1 / 0)
        window.state_commands.walk_heads(0, 1)
        qtbot.waitUntil(lambda: bool(shown))
        qtbot.waitUntil(lambda: not window.context.runner.busy)
    assert "ZeroDivisionError" in shown[0].report
    (button,) = dock(window, "attention").view.findChildren(WhyButton)
    assert not button.isVisible(), "a fault of ours comes again"
    window.state_commands.walk_heads(0, 1)
    settle(qtbot, window)
    assert dock(window, "attention").view.figure.grid


def test_the_log_filters_by_level_and_search(qtbot: Any, window: Window) -> None:
    import logging

    window.docks["log"].show()
    window.docks["log"].raise_()
    logger = logging.getLogger("circuitlab.test")
    logger.info("green apple")
    logger.warning("red pear")
    qtbot.waitUntil(lambda: "pear" in window.log_dock.text.toPlainText())
    window.log_dock.search.setText("apple")
    assert "pear" not in window.log_dock.text.toPlainText()
    window.log_dock.search.setText("")
    window.log_dock.level.setCurrentText("WARNING")
    assert "apple" not in window.log_dock.text.toPlainText()


def test_every_dock_has_a_name_and_fits_1280_by_800(window: Window) -> None:
    names = [d.objectName() for d in window.docks.values()]
    assert all(names)
    assert len(set(names)) == len(names)
    assert window.size().width() <= 1280
    assert window.size().height() <= 800


def test_opening_what_is_not_there_raises_before_there_is_a_window(qtbot: Any) -> None:
    with pytest.raises(BadModel):
        gui.make_window("no/such/model", None, remember=False)


def test_the_window_is_painted_without_a_display(qtbot: Any, tmp_path: Path) -> None:
    path = tmp_path / "w.png"
    gui.render_window(path, str(directory(tmp_path / "model")), TEXT, size=(1280, 800), theme="dark", ratio=2.0)
    image = QImage(str(path))
    assert (image.width(), image.height()) == (2560, 1600)
    colours = {image.pixel(QPoint(x, y)) for x in range(0, 2560, 40) for y in range(0, 1600, 40)}
    assert len(colours) > 8


def test_cancelled_is_no_error(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(ErrorDialog, "open", lambda dialog: shown.append(dialog))
    job: Callable[..., Any] = lambda j: (_ for _ in ()).throw(Cancelled())
    window.context.runner.do(window.opening.slot, "x", job)
    qtbot.waitUntil(lambda: not window.context.runner.busy)
    assert not shown


def test_a_table_that_hides_its_ranks_starts_at_its_edge(window: Window) -> None:
    for each in window.docks.values():
        if not isinstance(each, PanelDock) or not on_screen(each):
            continue
        for table in each.findChildren(QTableView):
            header = table.horizontalHeader()
            shown = [i for i in range(header.count()) if not header.isSectionHidden(i)]
            assert header.length() == sum(map(header.sectionSize, shown)), each.objectName()
            assert not shown or header.sectionPosition(shown[0]) == 0, each.objectName()
