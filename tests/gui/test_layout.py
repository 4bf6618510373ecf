"""Where the docks are and how much room each has: after a restart, maximised and back, with larger text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, QRect, QSize, Qt
from PySide6.QtGui import QFontInfo, QFontMetricsF, QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QCheckBox, QScrollBar, QSpinBox, QTabBar, QWidget

from circuitlab.draw.heatmap.heatmap import HeatmapMark
from circuitlab.draw.tables.model import cell_text
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.panel.panel_dock import PanelDock, on_screen
from circuitlab.gui.panel.title_bar import STROKE
from circuitlab.gui.places.arrangements import ARRANGEMENTS, NARROWEST, Arrangement
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.widgets.number_slider import Choices
from tests import pointer
from tests.gui.driving import dock, go, pixels, settle, shown_window
from tests.gui.room import rooms
from tests.gui.training import checkpoints
from tests.models import directory

LONG_WORDS = "one two one two w one two, one two, and so on and on until no bar has room for all of it"
OTHERS = ("interventions", "model", "jobs", "log", "lessons")


def seen(window: Window) -> dict[str, tuple[int, int]]:
    return {name: (d.width(), d.height()) for name, d in window.docks.items() if on_screen(d)}


def cut_tabs(window: Window) -> Iterator[str]:
    """Tabs that are narrower than their words, and those in front that are not wholly in sight."""
    for bar in window.findChildren(QTabBar):
        for i in range(bar.count()) if bar.isVisible() and bar.count() > 1 else ():
            wide = bar.fontMetrics().horizontalAdvance(bar.tabText(i))
            if bar.tabRect(i).width() < wide or (i == bar.currentIndex() and not bar.rect().contains(bar.tabRect(i))):
                yield bar.tabText(i)


def titles(window: Window) -> set[str]:
    """The docks that are seen under their own title although a tab says it, or without either."""
    wrong = set()
    for name, one in window.docks.items():
        bar: Any = one.titleBarWidget()
        if on_screen(one) and bar.title.isVisible() == bool(window.tabifiedDockWidgets(one)):
            wrong.add(name)
    return wrong


@pytest.mark.parametrize("name", ARRANGEMENTS)
@pytest.mark.parametrize(("width", "height"), [(1280, 610), (985, 425), (800, 310), (300, 200)])
def test_every_dock_has_one_home_whatever_the_room(name: str, width: int, height: int) -> None:
    areas = {n: p.area for n, p in panels().items()} | dict.fromkeys(OTHERS, "left")
    placed = ARRANGEMENTS[name].fitted(width, height).with_homes(areas)
    tabs = [one for stack in placed.stacks() for one in stack.tabs]
    assert sorted(tabs) == sorted(areas)
    whole = sum(wide for wide, _ in placed.columns)
    assert len(placed.columns) == 1 or min(w * width // whole for w, _ in placed.columns) >= NARROWEST
    for _, stacks in placed.columns:
        assert len(stacks) == 1 or min(s.share * height // sum(t.share for t in stacks) for s in stacks) >= 200
    if width == 1280:
        assert [len(s) for _, s in placed.columns] == [len(s) for _, s in ARRANGEMENTS[name].columns]


def test_what_a_lesson_names_stays_in_sight_in_a_small_room() -> None:
    firm = Arrangement("x", ARRANGEMENTS["Explore"].columns, ARRANGEMENTS["Explore"].homes, firm=True)
    assert firm.fitted(100, 100) is firm


@pytest.mark.parametrize("name", ["Why this token", "Cut"])
def test_a_restart_finds_the_docks_as_they_were(qtbot: Any, tmp_path: Path, name: str) -> None:
    folder = str(directory(tmp_path / "model"))
    first = gui.make_window(folder, "one two")
    first.resize(1280, 800)
    first.show()
    first.layout_of_docks.arrange(name)
    settle(qtbot, first)
    before = seen(first)
    first.toggle_maximised(first.docks["predictions"])  # and closed like that
    settle(qtbot, first)
    first.close()
    first.deleteLater()
    second = gui.make_window(folder, "one two")
    second.resize(1280, 800)
    second.show()
    settle(qtbot, second)
    qtbot.waitUntil(lambda: second.docks["prompt"].height() < 150)
    assert set(seen(second)) == set(before)
    assert second.layout_of_docks.name == name, "“Reset layout” goes back to it"
    for one, (_, height) in before.items():
        assert seen(second)[one][1] > 0.75 * height, one
    assert not titles(second)
    second.close()
    second.deleteLater()


def test_one_panel_alone_and_back_leaves_every_title_once_and_every_height(qtbot: Any, window: Window) -> None:
    before = seen(window)
    assert not titles(window)
    for _ in range(2):
        window.toggle_maximised(window.docks["predictions"])
        settle(qtbot, window)
        assert set(seen(window)) == {"predictions"} and not titles(window)
        window.toggle_maximised()
        settle(qtbot, window)
        qtbot.waitUntil(lambda: not titles(window))
    assert seen(window).keys() == before.keys()
    for one, size in seen(window).items():
        assert max(abs(a - b) for a, b in zip(size, before[one], strict=True)) <= 4, one


def test_a_command_without_a_pointer_means_the_panel_that_was_last_used(qtbot: Any, window: Window) -> None:
    layout = window.layout_of_docks
    window.docks["predictions"].widget().setFocus()
    window.docks["predictions"].view.setFocus()  # type: ignore[attr-defined]
    layout.go_to("overview")
    assert layout.current is window.docks["overview"]
    where = QPointF(40, 5)
    press = QMouseEvent(
        QMouseEvent.Type.MouseButtonPress, where, where, Qt.MouseButton.LeftButton, Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )  # fmt: skip
    QApplication.sendEvent(window.docks["heads"], press)
    assert layout.current is window.docks["heads"], "clicked beside anything that takes the keyboard"
    layout.go_to("log")
    assert layout.current is window.docks["log"]
    assert layout.current_panel is window.docks["attention"], "the largest one: the log has no figure"
    layout.go_to("overview")
    window.docks["overview"].close()
    window.toggle_maximised()
    assert layout.maximised not in ("", "dock.overview"), "what cannot be seen is not meant"
    layout.toggle_maximised()


def press(window: Window, widget: QWidget, at: QPoint) -> None:
    """As the desktop hands a press to the window, which finds out what stands there."""
    QTest.mouseClick(window.windowHandle(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, widget.mapTo(window, at))
    QApplication.processEvents()


def tab(window: Window, title: str) -> tuple[QTabBar, QPoint]:
    for bar in window.findChildren(QTabBar):
        for i in range(bar.count()):
            if bar.tabText(i) == title and bar.isVisible():
                return bar, bar.tabRect(i).center()
    raise AssertionError(title)


def test_a_click_on_a_tab_a_head_or_a_control_is_enough_to_use_a_panel(qtbot: Any, window: Window) -> None:
    layout, docks = window.layout_of_docks, window.docks

    def used() -> str:
        qtbot.waitUntil(lambda: [d.bar for d in docks.values() if d.bar._used] == [layout.current.bar])  # type: ignore[attr-defined]
        assert layout.current_panel is layout.current
        return layout.current_panel.panel.name

    docks["attention"].take_keyboard()  # type: ignore[attr-defined]
    assert used() == "attention"
    press(window, *tab(window, "Logit lens"))
    assert used() == "logit_lens"
    docks["logit_lens"].take_keyboard()  # type: ignore[attr-defined]
    press(window, *tab(window, "Predictions"))
    assert used() == "predictions", "in front already"
    bar: Any = docks["overview"].titleBarWidget()
    before = pixels(bar)
    press(window, bar, bar.title.geometry().center())
    assert used() == "overview"
    assert (pixels(bar) != before).any(), "and it can be seen"
    field = docks["predictions"].findChild(QSpinBox)
    assert field is not None
    press(window, field, field.rect().center())
    assert used() == "predictions"
    window.prompt.editor.setFocus()
    assert layout.current_panel is docks["predictions"], "the text has no picture to export: the panel before it has"
    docks["heads"].toggleViewAction().trigger()
    docks["heads"].toggleViewAction().trigger()
    assert used() == "heads", "brought up from the menu"
    window.toggle_maximised()
    assert layout.maximised == "dock.heads"
    window.toggle_maximised()


def test_the_prompt_is_as_high_as_its_text(qtbot: Any, window: Window) -> None:
    low = window.docks["prompt"].height()
    panel = window.docks["attention"].height()
    window.prompt.editor.setPlainText(" ".join(["one two"] * 9))
    settle(qtbot, window)
    qtbot.waitUntil(lambda: window.docks["prompt"].height() > low)
    assert window.docks["attention"].height() < panel
    assert window.docks["prompt"].height() < 800 // 3, "a long text scrolls"
    window.prompt.editor.setPlainText("one two")
    settle(qtbot, window)
    qtbot.waitUntil(lambda: window.docks["prompt"].height() <= low)


def test_controls_without_room_stand_behind_a_button_and_work_there(qtbot: Any, window: Window) -> None:
    panel: Any = window.docks["attention"]
    row = panel.controls.layout()
    hidden = [holder.control for holder in row.hidden_holders]
    assert row.more.isVisible() and hidden
    assert panel.bar.height() <= 32, "one line, whatever there is to choose"
    assert all(not one.isVisible() for one in hidden)
    assert "Lock range" in row.more.toolTip() and "Show" not in row.more.toolTip().replace("Show ", "")
    row.more.click()
    assert row.drawer.isVisible() and all(one.isVisible() for one in hidden)
    box = panel.controls.findChild(QCheckBox, "leave_out_bos") or row.drawer.findChild(QCheckBox, "leave_out_bos")
    box.click()
    settle(qtbot, window)
    assert window.context.document.state.view("attention", panel.panel.view).leave_out_bos
    assert row.more.toolTip().count("(changed)") == 1 and "BOS out of scale (changed)" in row.more.toolTip()
    accent = window.context.theme.colour("accent").name()
    picture = row.more.icon().pixmap(QSize(16, 16)).toImage()
    inks = {picture.pixelColor(x, y).name() for x in range(16) for y in range(16) if picture.pixelColor(x, y).alpha() == 255}
    assert accent in inks, "something behind it is not as it comes"
    row.drawer.close()
    qtbot.waitUntil(lambda: box.window() is window)
    qtbot.waitUntil(lambda: [holder.control for holder in row.hidden_holders] == hidden)
    window.toggle_maximised(panel)
    qtbot.waitUntil(lambda: not row.hidden_holders)
    assert not row.more.isVisible() and all(one.isVisible() for one in hidden)
    panel.controls.show_view(replace(panel.controls._view, lock_range=True))
    QApplication.processEvents()
    assert panel.controls.form.widgets["high"].isVisible(), "what has come to have a meaning is in the row"


@pytest.mark.parametrize("scale", [1.0, 1.3, 1.6])
def test_the_top_is_one_line_that_says_less_before_anything_leaves_it(qtbot: Any, tmp_path: Path, scale: float) -> None:
    folder = directory(tmp_path / "a-model-of-a-rather-long-name")
    checkpoints(folder, (100, 200, 12000))
    with shown_window(qtbot, folder, LONG_WORDS) as window:
        window.settings.set("text_scale", scale)
        settle(qtbot, window)
        top, bar = window.top, window.checkpoints
        one_line = lambda: round(top.strip.height() / bar.sizeHint().height()) == 1
        qtbot.waitUntil(one_line)
        widths = set()
        for i in range(len(bar.points)):
            bar.to(i)
            settle(qtbot, window)
            widths.add(bar.slider.width())
        assert len(widths) == 1 and widths.pop() >= 150, "the track does not move under the hand"
        window.state_commands.ablate()
        window.state_commands.pin()
        window.state_commands.compare("difference")
        heights = set()
        for words in ("w", "w one", "w one two, and so on"):
            window.prompt.editor.setPlainText(words)
            settle(qtbot, window)
            heights.add(top.strip.height())
        assert len(heights) == 1 and one_line(), "nor do the panels while one types"
        row = (*top.strip.left, *top.strip.right, bar)
        apart = lambda: [w.geometry() for w in row if w.isVisible()]
        qtbot.waitUntil(lambda: not any(a.intersects(b) for i, a in enumerate(apart()) for b in apart()[:i]))
        inside = top.strip.rect()
        for widget in (top.model, top.edits, top.conventions, top.pin, top.palette_button, bar.slider):
            assert widget.isVisible() and inside.contains(widget.mapTo(top.strip, widget.rect().topRight())), widget.objectName()
            assert widget.accessibleName() or getattr(widget, "text", str)(), widget.objectName()
        compared = top.compared if top.compared.isVisible() else top.compare[2]
        assert "difference" in compared.text() and compared.isVisible()
        assert inside.contains(compared.geometry())
        assert window.width() == 1280
        assert top.pinned.width() >= 60
        for said in (top.pinned.toolTip(), top.pinned.accessibleDescription()):
            assert top.pinned.text() in unescape(said) and window.context.document.state.pins[0].label in unescape(said)


def test_a_label_is_cut_where_it_says_least(qtbot: Any) -> None:
    holder = QWidget()
    qtbot.addWidget(holder)
    middle, end = ShortLabel(holder, elides=Qt.TextElideMode.ElideMiddle), ShortLabel(holder)
    for one in (middle, end):
        one.setText("vs another-model-of-the-same-family, step 12,000")
        one.resize(140, 20)
    tail = lambda w: pixels(w)[:, -40:]
    assert (tail(middle) != tail(end)).any() and (pixels(middle)[:, :20] == pixels(end)[:, :20]).all()


def test_a_change_of_theme_polishes_no_widget_once_for_each_of_its_ancestors(qtbot: Any, window: Window) -> None:
    polished: Counter[int] = Counter()

    class Watch(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() == QEvent.Type.StyleChange:
                polished[id(watched)] += 1
            return False

    watch = Watch()
    kinds = (window.docks["attention"].view, window.docks["heads"].view, window.top.model, window.prompt.editor)  # type: ignore[attr-defined]
    for widget in kinds:
        widget.installEventFilter(watch)
    window.set_theme("dark")
    QApplication.processEvents()
    assert [polished[id(widget)] for widget in kinds] == [2] * len(kinds), "the old sheet goes, the new one comes"
    for widget in kinds:
        widget.removeEventFilter(watch)


def test_tables_follow_the_size_of_text_there_and_back(qtbot: Any, window: Window) -> None:
    table = next(iter(window.docks["predictions"].view._widgets.values())).table  # type: ignore[attr-defined]

    def measured() -> tuple[int, int, float]:
        return table.rowHeight(0), table.horizontalHeader().height(), QFontInfo(table.horizontalHeader().font()).pixelSize()

    before = measured()
    for scale in (1.6, 1.3):
        window.settings.set("text_scale", scale)
        settle(qtbot, window)
        row, header, font = measured()
        assert abs(row - scale * before[0]) <= 1 and header > 1.1 * before[1] and abs(font - scale * before[2]) <= 1
        metrics = QFontMetricsF(window.context.theme.font(window.context.theme.normal))
        head = table.horizontalHeader()
        for i, column in enumerate(table.model().mark.columns):
            if column.name in ("p", "logit") and not head.isSectionHidden(i):
                widest = max(metrics.horizontalAdvance(cell_text(column, r)) for r in range(10))
                assert head.sectionSize(i) >= widest + 14, f"{column.name} is cut"
    window.settings.set("text_scale", 1.0)
    settle(qtbot, window)
    assert measured() == before


SHIPPED = "builtin:attn-only-2l"
TWO_LINES = "Captain Harville and Miss Penrose walked to the harbour. When the rain began, Captain Harville and Miss Pen"


@pytest.mark.parametrize("scale", [1.0, pytest.param(1.3, marks=pytest.mark.slow), pytest.param(1.6, marks=pytest.mark.slow)])
def test_figures_have_the_room_in_every_arrangement(qtbot: Any, scale: float) -> None:
    with shown_window(qtbot, SHIPPED, TWO_LINES) as window:
        window.settings.set("text_scale", scale)
        for width, height in ((1280, 800), (1920, 1080)):
            window.resize(width, height)
            for name in ARRANGEMENTS:
                window.layout_of_docks.arrange(name)
                settle(qtbot, window)
                where = f"{name}, {width}×{height}, text {scale}"
                least = {1.0: 0.55 if name == "Cut" else 0.6, 1.3: 0.58, 1.6: 0.52}[scale]
                qtbot.waitUntil(lambda least=least: rooms(window).figures >= least)
                qtbot.waitUntil(lambda: not rooms(window).cut)
                share = 0.11 if width == 1280 else 0.17
                if name == "Explore" and scale == 1:
                    qtbot.waitUntil(lambda share=share: rooms(window).maps["attention"] >= share)
                room = rooms(window)
                assert (window.width(), window.height()) == (width, height), where
                assert room.docks["prompt"][1] <= 0.2 * height, where
                assert min(h for _, h in room.docks.values()) >= 90 and len(room.docks) >= 3, where
                assert not room.nested and not room.cut, where
                assert not list(cut_tabs(window)), where
                if name == "Explore" and scale == 1:
                    assert room.figures >= 0.65, where
                    assert max(room.maps, key=lambda one: room.maps[one]) == "attention", "the main map is the largest"
        window.toggle_maximised(window.docks["attention"])
        settle(qtbot, window)
        qtbot.waitUntil(lambda: rooms(window).maps["attention"] >= ({1.0: 0.27, 1.3: 0.23, 1.6: 0.2}[scale]))


@pytest.mark.parametrize("name", ["Explore", "Training"])
def test_beside_the_lessons_maps_can_be_read_where_text_is_large(qtbot: Any, name: str) -> None:
    with shown_window(qtbot, SHIPPED, TWO_LINES, name) as window:
        window.settings.set("text_scale", 1.6)
        window.lessons.open()
        settle(qtbot, window)
        qtbot.waitUntil(lambda: not rooms(window).cut)
        result = rooms(window)
        assert "lessons" in result.docks and len(result.docks) >= 3 and not result.nested and not list(cut_tabs(window))
        for mark in (m for m in window.findChildren(HeatmapMark) if m.isVisible() and not m.visibleRegion().isEmpty()):
            assert min(mark.frame().width(), mark.frame().height()) >= 30
            room = mark.bar.height() / max(len(mark.bar.ticks()), 1)
            assert not mark.bar.isVisible() or room >= QFontMetricsF(mark.theme.font(mark.theme.small)).ascent(), (
                "no number on another"
            )


def test_the_value_stands_at_the_pointer_and_goes_with_it(qtbot: Any, window: Window) -> None:
    view = dock(window, "attention").view
    mark = next(iter(view._widgets.values()))
    before = pixels(view)
    at = mark._box(3, 1, 1, 1).center().toPoint()
    pointer.move(mark.viewport(), at)
    qtbot.waitUntil(view.note.isVisible)
    assert view.note.text() == mark.readout((3, 1))
    assert view.rect().contains(view.note.geometry())
    assert not view.note.geometry().contains(mark.viewport().mapTo(view, at)), "what is pointed at stays in sight"
    assert (pixels(view) != before).any()
    qtbot.keyClick(mark, Qt.Key.Key_Right)
    assert not view.note.isVisible(), "the keyboard walks elsewhere than where the pointer is: the status line says it"
    pointer.move(mark.viewport(), mark._box(4, 2, 1, 1).center().toPoint())
    qtbot.waitUntil(view.note.isVisible)
    QApplication.sendEvent(mark, QEvent(QEvent.Type.Leave))
    assert not view.note.isVisible()


def test_a_first_window_fits_its_screen_with_its_frame(qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, shown = (0, 0), list[str]()

    class Screen:
        def availableGeometry(self) -> QRect:
            return QRect(0, 0, *screen)

    monkeypatch.setattr(window, "screen", Screen)
    monkeypatch.setattr(window, "show", lambda: shown.append("usual"))
    monkeypatch.setattr(window, "showMaximized", lambda: shown.append("whole"))
    for screen, whole in (((1280, 800), True), ((1366, 768), True), ((1920, 1080), False), ((3840, 2160), False)):
        shown.clear()
        gui.show_fitting(window)
        assert shown == ["whole" if whole else "usual"], screen
        assert window.width() < screen[0] and window.height() + 40 <= screen[1], screen
        assert whole or (window.width() >= 1280 and window.height() >= 800), screen
        most = min(screen[0], 2560) * min(screen[1], 1440)
        assert whole or window.width() * window.height() >= 0.8 * most, screen  # a large screen is used
        window.resize(1280, 800)


def bars_too_many(place: QWidget) -> list[str]:
    """Scroll bars of a dock that stand side by side, and those that move it sideways."""
    bars = [b for b in place.findChildren(QScrollBar) if b.isVisible()]
    upright = [b for b in bars if b.orientation() == Qt.Orientation.Vertical]
    spans = [QRect(b.mapTo(place, b.rect().topLeft()), b.size()) for b in upright]
    beside = any(p.top() <= q.bottom() and q.top() <= p.bottom() for p, q in combinations(spans, 2))
    return ["side by side"] * beside + ["sideways"] * (len(upright) < len(bars))


@pytest.mark.slow
def test_no_panel_of_any_arrangement_has_two_scroll_bars_side_by_side(qtbot: Any) -> None:
    with shown_window(qtbot, SHIPPED, TWO_LINES) as window:
        for name in ARRANGEMENTS:
            window.layout_of_docks.arrange(name)
            settle(qtbot, window)
            for one in [tab for stack in window.layout_of_docks.fitted.stacks() for tab in stack.tabs]:
                place = window.docks[one]
                if not place.isHidden():
                    place.raise_()
                    settle(qtbot, window)
                    assert on_screen(place), f"{name}, {one}"
                    qtbot.waitUntil(lambda place=place: not bars_too_many(place) and not rooms(window).nested)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spectra", "circuits", "training"])
def test_the_pages_of_a_panel_stay_in_sight_where_text_is_large(qtbot: Any, name: str) -> None:
    with shown_window(qtbot, SHIPPED, TWO_LINES, "Training" if name == "training" else "Weights") as window:
        window.settings.set("text_scale", 1.6)
        window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        panel = dock(window, name)
        pages = panel.controls.findChild(Choices)
        assert pages is not None
        qtbot.waitUntil(lambda: pages.isVisible() and panel.bar.isAncestorOf(pages))
        assert pages.list.isVisible() != pages.button(pages.value()).isVisible()
        assert pages.width() >= pages.minimumSizeHint().width()
        if pages.list.isVisible():
            other = next(i for i in range(pages.list.count()) if pages.list.itemText(i) != pages.value())
            pages.list.setCurrentIndex(other)
            pages.list.activated.emit(other)
            settle(qtbot, window)
            assert panel.controls._view.page == pages.value() == pages.list.itemText(other)
        window.toggle_maximised(panel)
        qtbot.waitUntil(lambda: pages.button(pages.value()).isVisible() and not pages.list.isVisible())


def test_what_stands_first_in_a_bar_does_not_touch_its_marker(qtbot: Any, window: Window) -> None:
    for name, place in window.docks.items():
        window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        bar = place.titleBarWidget()
        children = [w for w in bar.findChildren(QWidget) if w.isVisible() and w.window() is bar.window() and not w.children()]
        assert min(w.mapTo(bar, QPoint()).x() for w in children) >= STROKE + 4, name


def test_pictures_stand_still_while_one_compares(qtbot: Any, window: Window) -> None:
    """What a reference adds to titles and captions has its room from the moment that there is one."""
    go(window, "pin")  # whose name is longer than that of the uncut run
    go(window, "ablate")
    settle(qtbot, window)
    moved: list[str] = []
    for panel in ("attention", "logit_lens", "predictions", "composition"):
        window.layout_of_docks.go_to(panel)
        settle(qtbot, window)
        before = {}
        for _ in range(3):
            for name, place in window.docks.items():
                if isinstance(place, PanelDock) and place.shown:
                    view = place.view
                    places = {key: w.mapTo(view, QPoint()).toTuple() for key, w in view._widgets.items()}
                    if (view._caption.y(), places) != before.setdefault(name, (view._caption.y(), places)):
                        moved.append(f"{name}, {window.context.document.recorded.compare}")
            go(window, "compare")
            settle(qtbot, window)
    assert not moved, moved


def test_a_panel_that_comes_to_the_front_while_text_is_made_larger_is_not_blank(qtbot: Any) -> None:
    """Docks that are arranged anew ask for nothing; one that is seen for the first time in that turn catches up."""
    with shown_window(qtbot, SHIPPED, TWO_LINES) as window:
        layout = window.layout_of_docks
        several = (s for s in layout.fitted.stacks() if len(s.tabs) > 1 and isinstance(window.docks[s.tabs[1]], PanelDock))
        behind = dock(window, next(several).tabs[1])
        assert behind.feed.stale, "it has never been seen"
        before = layout.fitted.columns
        window.settings.set("text_scale", 1.6)
        assert layout.fitted.columns != before and behind.feed.quiet, "or nothing is arranged anew in this turn"
        layout.go_to(behind.panel.name)
        qtbot.waitUntil(lambda: not behind.feed.quiet)
        settle(qtbot, window)
        assert behind.shown and not behind.feed.stale
        assert behind.view.figure.grid or behind.view.figure.why_empty
