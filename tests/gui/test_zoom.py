"""What is seen of figures is part of a session and of a step: zoomed, scrolled and sorted by hand, it comes back as it was."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.draw.look.paper import Paper
from circuitlab.gui.sessions import autosave
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import Head
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.zoom import TablePart
from tests import pointer
from tests.figures.test_visible_parts import wheel
from tests.gui.driving import dock, exported, pixels, save, settle, shown_window
from tests.gui.test_recovery import killed, rest, started
from tests.gui.test_sessions import open_session
from tests.gui.test_story import keep
from tests.models import directory

Box = tuple[tuple[float, float], tuple[float, float]]
MAP = "attention/attention"


def map_of(window: Window) -> Any:
    return dock(window, "attention").view.widget("attention")


def seen(window: Window) -> Box:
    (x0, x1), (y0, y1) = map_of(window).box.viewRange()
    return (x0, x1), (y0, y1)


def whole(window: Window) -> bool:
    return seen(window) == map_of(window).full_range()


def zoom(window: Window, notches: int = 4) -> Box:
    """Into the map by the wheel, and moved by a drag."""
    QApplication.processEvents()
    widget = map_of(window)
    middle = widget.frame().center()
    wheel(widget, notches, QPointF(middle.toPoint()))
    place = widget.viewport().mapTo(widget, middle.toPoint())
    pointer.drag(widget, place, place + QPoint(12, 8), place + QPoint(24, 10))
    pointer.move(window, QPoint(2, 2))
    QApplication.processEvents()
    assert not whole(window) and dock(window, "attention").view.visible_parts()
    return seen(window)


def picture(window: Window) -> np.ndarray:
    pointer.move(window, QPoint(2, 2))
    window.setFocus()
    QApplication.processEvents()
    return pixels(map_of(window))


def steps(window: Window) -> tuple[Step, ...]:
    return window.context.document.work.story.steps


def tell(window: Window, *setups: Mapping[str, Any]) -> None:
    """A story whose steps say these words besides their model and text."""
    context = window.context
    made = tuple(Step(f"step {i}", "words", Setup(**words)) for i, words in enumerate(setups))
    work = replace(context.document.work, story=Story("", made))
    context.document.edit(work, "tell")


def heard(window: Window) -> list[str]:
    messages: list[str] = []
    window.context.message.connect(messages.append)
    return messages


def test_a_zoomed_map_comes_back_with_its_session_pixel_for_pixel(qtbot: Any, window: Window, tmp_path: Path) -> None:
    recorded, label = window.context.document.recorded, window.context.document.undo_label
    save(qtbot, window, tmp_path / "whole.circuitlab")
    ranges = zoom(window)
    assert not window.isWindowModified() and not window.sessions.dirty, "looking closer is no change"
    assert window.context.document.recorded is recorded and window.context.document.undo_label == label
    table = save(qtbot, window, tmp_path / "talk.circuitlab")
    assert set(table["now"]["zoom"]) == {MAP}
    np.testing.assert_allclose(np.reshape(table["now"]["zoom"][MAP], (2, 2)).T, ranges, rtol=1e-12)
    before = picture(window)
    window.sessions.hold.release()
    with shown_window(qtbot, directory(tmp_path / "other")) as second:
        open_session(qtbot, second, tmp_path / "talk.circuitlab")
        assert seen(second) == ranges and "part:" in dock(second, "attention").view.whole_caption
        np.testing.assert_array_equal(picture(second), before)
        assert not second.sessions.dirty and not second.context.document.undo_label
        again = save(qtbot, second, tmp_path / "again.circuitlab")
        assert again["now"]["zoom"] == table["now"]["zoom"]
        open_session(qtbot, second, tmp_path / "whole.circuitlab")
        assert whole(second), "the same State, seen whole"
        second.sessions.open(tmp_path / "talk.circuitlab")
        qtbot.waitUntil(lambda: seen(second) == ranges)
        settle(qtbot, second)
    settle(qtbot, window)


def test_another_window_size_shows_the_same_part(qtbot: Any, window: Window, tmp_path: Path) -> None:
    window.toggle_maximised(window.docks["attention"])
    settle(qtbot, window)
    ranges = zoom(window)
    table = save(qtbot, window, tmp_path / "talk.circuitlab")
    assert table["now"]["alone"] is True
    table["docks"] = ""  # somebody else's: laid out by the words
    (tmp_path / "talk.circuitlab").write_text(json.dumps(table))
    window.sessions.hold.release()
    with shown_window(qtbot, directory(tmp_path / "other")) as second:
        second.resize(1700, 1000)
        open_session(qtbot, second, tmp_path / "talk.circuitlab")
        settle(qtbot, second)
        assert second.layout_of_docks.maximised == "dock.attention" and seen(second) == ranges
        second.toggle_maximised()
        settle(qtbot, second)
        assert seen(second) == ranges
    settle(qtbot, window)


def test_a_panel_behind_a_tab_waits_with_its_part_and_loses_it_to_no_save(qtbot: Any, window: Window, tmp_path: Path) -> None:
    window.layout_of_docks.go_to("composition")
    settle(qtbot, window)
    view = dock(window, "composition").view
    name = next(mark.name for mark in view.figure.marks() if hasattr(view.widget(mark.name), "box"))
    wheel(view.widget(name), 3)
    (key,) = save(qtbot, window, tmp_path / "talk.circuitlab")["now"]["zoom"]
    assert key == f"composition/{name}"
    ranges = view.widget(name).box.viewRange()
    window.layout_of_docks.go_to("attention")
    settle(qtbot, window)
    window.sessions.hold.release()
    with shown_window(qtbot, directory(tmp_path / "other")) as second:
        second.layout_of_docks.arrange("Induction")  # without that panel
        table = json.loads((tmp_path / "talk.circuitlab").read_text())
        table["docks"], table["now"]["arrange"], table["now"]["show"] = "", "Induction", []
        (tmp_path / "talk.circuitlab").write_text(json.dumps(table))
        open_session(qtbot, second, tmp_path / "talk.circuitlab")
        assert not dock(second, "composition").shown
        assert save(qtbot, second, tmp_path / "again.circuitlab")["now"]["zoom"] == table["now"]["zoom"]
        second.layout_of_docks.go_to("composition")
        settle(qtbot, second)
        np.testing.assert_allclose(dock(second, "composition").view.widget(name).box.viewRange(), ranges)
    settle(qtbot, window)


def test_steps_are_seen_as_they_were_kept_there_and_back(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("attention")
    first = zoom(window)
    step = keep(qtbot, window)
    assert step.setup is not None and set(step.setup.zoom) == {MAP}
    qtbot.keyClick(window, Qt.Key.Key_0, Qt.KeyboardModifier.AltModifier)
    assert whole(window)
    second = keep(qtbot, window)
    assert second.setup is not None and not second.setup.zoom, "only what is not the whole is said"
    outside = zoom(window, 7)
    lessons = window.lessons
    lessons.begin_own(0)
    settle(qtbot, window)
    assert seen(window) == first
    for number, ranges in ((1, None), (0, first), (1, None), (0, first)):
        lessons.tour.go(number)
        settle(qtbot, window)
        assert whole(window) if ranges is None else seen(window) == ranges
    third = zoom(window, 6)
    lessons.page.editor.take.click()
    settle(qtbot, window)
    assert seen(window) == third and steps(window)[0].setup != step.setup
    wheel(map_of(window), -3)
    lessons.page.again.click()
    settle(qtbot, window)
    assert seen(window) == third
    lessons.tour.leave()
    settle(qtbot, window)
    assert seen(window) == outside, "leaving brings back what was seen"


def test_a_view_that_is_copied_as_a_step_says_what_is_seen(qtbot: Any, window: Window) -> None:
    zoom(window)
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "step" in text):
        window.copy_step()
    assert set(json.loads(QGuiApplication.clipboard().text())["zoom"]) == {MAP}


def test_leaving_by_staying_keeps_what_is_seen(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.go_to("attention")
    first = zoom(window)
    keep(qtbot, window)
    window.reset_zoom()
    window.lessons.begin_own(0)
    settle(qtbot, window)
    window.lessons.tour.stay()
    settle(qtbot, window)
    assert seen(window) == first


def test_the_part_comes_with_the_answer_and_not_before(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(window, {"prompt": "one two three one two three one two", "zoom": {MAP: (20.0, 21.0, 30.0, 32.0)}})
    panel = dock(window, "attention")
    at_draw: list[tuple[int, Box, bool]] = []
    show = panel.view.show_figure

    def spy(figure: Any) -> None:
        show(figure)
        at_draw.append((len(figure.marks()[0].values), seen(window), panel.waiting))

    monkeypatch.setattr(panel.view, "show_figure", spy)
    window.lessons.begin_own(0)
    settle(qtbot, window)
    assert {shape for shape, *_ in at_draw} >= {36}
    assert seen(window) == ((20, 30), (21, 32))
    assert all(ranges[0][1] <= shape for shape, ranges, _ in at_draw), "never on the figure of another prompt"


def test_a_shorter_prompt_is_shown_as_far_as_it_goes_and_says_so(qtbot: Any, window: Window) -> None:
    zoomed = {MAP: (8.0, 8.0, 20.0, 20.0)}
    tell(
        window,
        {"prompt": "one two three four five", "zoom": zoomed},
        {"prompt": "one two thr"},
        {"prompt": "one", "zoom": zoomed},
    )
    messages = heard(window)
    window.lessons.begin_own(0)
    settle(qtbot, window)
    assert seen(window) == ((8, 20), (8, 20)) and not any("Attention" in text for text in messages)
    window.lessons.tour.go(1)
    settle(qtbot, window)
    assert whole(window)
    window.lessons.tour.go(2)
    settle(qtbot, window)
    assert whole(window) and any("Attention" in text and "attention" in text for text in messages)


def test_nonsense_and_what_is_not_known_is_kept_and_said(qtbot: Any, window: Window, tmp_path: Path) -> None:
    table = save(qtbot, window, tmp_path / "talk.circuitlab")
    words = {
        MAP: [3.0, 3.0, 3.0, 3.0],
        "attention/of tomorrow": [1.0, 2.0],
        "overview/heads of tomorrow": {"rows": [1, 2], "filter": "x"},
        "of tomorrow/map": [0.0, 0.0, 1.0, 1.0],
        "tomorrow": [1.0, 2.0],
    }
    table["now"]["zoom"] = words
    (tmp_path / "strange.circuitlab").write_text(json.dumps(table))
    messages = heard(window)
    open_session(qtbot, window, tmp_path / "strange.circuitlab")
    assert whole(window) and not window.sessions.dirty
    for name in ("of tomorrow/map", "tomorrow", "of tomorrow"):
        assert any(name in text for text in messages), name
    again = save(qtbot, window, tmp_path / "again.circuitlab")
    assert again["now"]["zoom"] == {name: part for name, part in words.items() if name != MAP}
    settle(qtbot, window)


def test_rows_order_and_filter_of_a_table_come_back(qtbot: Any, window: Window, tmp_path: Path) -> None:
    window.layout_of_docks.go_to("circuits")
    settle(qtbot, window)
    view = dock(window, "circuits").view
    name, table = next((m.name, w) for m in view.figure.marks() if hasattr(w := view.widget(m.name), "model"))
    header = table.table.horizontalHeader()
    at = QPoint(header.sectionViewportPosition(1) + 12, header.height() // 2)
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
    settle(qtbot, window)
    wheel(table.table, -3)
    part = view.visible_parts()[name]
    assert isinstance(part, TablePart) and part.sort and part.rows is not None and part.rows[0] > 0
    order = table.model.order.tolist()
    words = save(qtbot, window, tmp_path / "talk.circuitlab")["now"]["zoom"][f"circuits/{name}"]
    assert words["rows"][0] == part.rows[0] and words["sort"] == list(part.sort)
    window.sessions.hold.release()
    with shown_window(qtbot, directory(tmp_path / "other")) as second:
        open_session(qtbot, second, tmp_path / "talk.circuitlab")
        second.layout_of_docks.go_to("circuits")
        settle(qtbot, second)
        there = dock(second, "circuits").view.widget(name)
        assert there.table.rowAt(0) == part.rows[0] and there.model.order.tolist() == order
    settle(qtbot, window)


def test_a_hand_on_the_figure_ends_the_waiting(qtbot: Any, window: Window) -> None:
    panel = dock(window, "attention")
    panel.feed.zoom.show({"attention": (2.0, 2.0, 6.0, 6.0)}, at_once=False)
    by_hand = zoom(window)
    window.context.apply(window.context.document.recorded.with_heads(Head(1, 1)), "select")
    settle(qtbot, window)
    assert seen(window) == by_hand
    window.reset_zoom()
    assert panel.feed.zoom.words() == {}


def test_where_one_stopped_is_seen_as_it_was(qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autosave, "INTERVAL", 1)
    source = str(directory(tmp_path / "model"))
    with started(qtbot, source) as window:
        window.lessons.tour.leave()
        window.layout_of_docks.arrange("Explore")
        rest(qtbot, window)
        ranges = zoom(window)
        assert not window.sessions.dirty
    with started(qtbot) as window:
        assert seen(window) == ranges
        window.context.apply(window.context.document.recorded.with_heads(Head(1, 3)), "select")
        rest(qtbot, window)
        left = killed(window)
        assert left is not None
    with started(qtbot) as window:
        assert seen(window) == ranges
        tell(window, {"prompt": "one"}, {"prompt": "two"})
        window.lessons.begin_own(1)
        rest(qtbot, window)
        assert whole(window)
    with started(qtbot) as window:
        assert seen(window) == ranges, "the window was closed during a story, over a shorter prompt"


def test_pictures_and_commands_show_what_is_seen(qtbot: Any, window: Window, tmp_path: Path) -> None:
    zoom(window)
    save(qtbot, window, tmp_path / "talk.circuitlab")
    actions = dock(window, "attention").actions_menu
    file, paper = tmp_path / "window.svg", Paper(caption="full")
    part, full = (exported(qtbot, window, file, paper=paper, whole=whole).read_bytes() for whole in (False, True))
    assert part != full and b"part: " in part and b"part: " not in full
    line = ["figure", "attention", "--at", str(tmp_path / "talk.circuitlab"), "--caption", "full", "-o"]
    assert main([*line, str(tmp_path / "line.svg")]) == 0 and (tmp_path / "line.svg").read_bytes() == part
    assert main([*line, str(tmp_path / "line.svg"), "--whole"]) == 0 and (tmp_path / "line.svg").read_bytes() == full
    assert main(["figure", "attention", str(tmp_path / "model"), "--text", "ab", "--whole", "-o", str(tmp_path / "x.svg")]) == 2
    now = lab.session(tmp_path / "talk.circuitlab").now
    now.figure("attention", tmp_path / "python.svg", Paper(caption="full"))
    assert (tmp_path / "python.svg").read_bytes() == part
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "ommand" in text):
        actions.copy_command()
    words = shlex.split(QGuiApplication.clipboard().text())
    assert set(json.loads(words[4])["now"]["zoom"]) == {MAP}
    words[-1] = str(tmp_path / "copied.svg")
    assert main([*words[1:], "--caption", "full"]) == 0 and (tmp_path / "copied.svg").read_bytes() == part
    window.reset_zoom()
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "ommand" in text):
        actions.copy_command()
    assert "zoom" not in QGuiApplication.clipboard().text()
    settle(qtbot, window)
