"""What a screen reader and a keyboard find: names, roles, an order as the eye reads, values spoken, commands for gestures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QApplication, QDockWidget, QLabel, QMenu, QTableView, QWidget
from shiboken6 import invalidate

from circuitlab.draw.plots.plot import PlotMark
from circuitlab.draw.pointing.gestures import Gestures
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.gui.shell.window import Window
from circuitlab.session_files.session import Note
from tests.gui.driving import dock, settle
from tests.gui.test_dialogs import BOXES, DIALOGS
from tests.gui.test_lessons import settle as story_settled

ROLE, TEXT = QAccessible.Role, QAccessible.Text


def walk(interface: Any) -> Iterator[Any]:
    """Every node below, itself included; a table's cells are its own business.

    The nodes are Qt's: Python must not hold one when its widget has gone.
    """
    yield interface
    deeper = interface.role() not in (ROLE.Table, ROLE.Tree, ROLE.List)
    for i in range(interface.childCount()) if deeper else ():
        child = interface.child(i)
        if child is not None and child.isValid():
            yield from walk(child)
    invalidate(interface)


def unique_id(widget: QWidget) -> int:
    """By which a node's widget is known: `node.object()` would make the widget a Python child of the node, which ends soon."""
    node = QAccessible.queryAccessibleInterface(widget)
    number = QAccessible.uniqueId(node)
    invalidate(node)
    return number


def faults(widget: QWidget) -> list[str]:
    """What can be used and has no name, or no role."""
    result, widgets = [], {unique_id(one): one for one in (widget, *widget.findChildren(QWidget))}
    for node in walk(QAccessible.queryAccessibleInterface(widget)):
        state, made = node.state(), widgets.get(QAccessible.uniqueId(node))
        silent = node.role() == ROLE.StaticText and isinstance(made, QLabel) and not made.text()
        if not state.focusable or state.invisible or state.disabled or silent:
            continue
        what = f"{type(made).__name__} {made.objectName() if made else ''}"
        if not node.text(TEXT.Name).strip():
            result.append(f"{what}: no name")
        if node.role() == ROLE.NoRole or (node.role() == ROLE.Client and not isinstance(made, QWidget)):
            result.append(f"{what}: no role")
    return result


def reading(a: tuple[QPoint, QWidget], b: tuple[QPoint, QWidget]) -> int:
    """Above before below, left before right; what overlaps in height stands in one line."""
    (p, v), (q, w) = a, b
    if v.isAncestorOf(w) or w.isAncestorOf(v):
        return -1 if v.isAncestorOf(w) else 1
    if p.y() + v.height() <= q.y() + 4:
        return -1
    if q.y() + w.height() <= p.y() + 4:
        return 1
    return p.x() - q.x()


def in_chain(place: QWidget) -> list[QWidget]:
    """What Tab stops at inside, in its order.

    PySide6 makes each widget that `nextInFocusChain` answers a Python child of the one that was asked. All of them and their
    window would be one circle, in which garbage collection deletes a dialog in any order (and the screen with it, a child by
    `screen()`). So the window is not asked for, and the others are given back to those they stand in.
    """
    start = place.window()
    last: QWidget | None = start.previousInFocusChain()
    passed, widget = list[QWidget](), start
    while widget is not last and widget is not None:
        widget = widget.nextInFocusChain()
        passed += [widget] if widget is not None else []
    for owner in {widget.parentWidget() for widget in passed}:
        _ = owner and owner.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly)
    return [widget for widget in passed if place.isAncestorOf(widget) and _stops(widget)]


def _stops(widget: QWidget) -> bool:
    tabbed = bool(widget.focusPolicy().value & Qt.FocusPolicy.TabFocus.value) and widget.focusProxy() is None
    return tabbed and widget.isVisible() and widget.isEnabled()


def as_read(place: QWidget, widgets: list[QWidget]) -> list[QWidget]:
    at = lambda w: (w.mapTo(place, QPoint()), w)
    return [w for _, w in sorted(map(at, widgets), key=cmp_to_key(reading))]


def order_faults(place: QDockWidget) -> list[str]:
    bar, result = place.titleBarWidget(), in_chain(place)
    assert isinstance(bar, TitleBar)
    buttons = [b for b, _ in bar._buttons]
    controls = [w for w in result if bar.isAncestorOf(w) and w not in buttons]
    body = [w for w in result if not bar.isAncestorOf(w)]
    wanted = [*as_read(place, controls), *(b for b in buttons if b in result), *as_read(place, body)]
    start = result.index(wanted[0]) if result else 0  # Tab goes round
    result = [*result[start:], *result[:start]]
    if result == wanted:
        return []
    names = lambda ws: [w.accessibleName() or type(w).__name__ for w in ws]
    return [f"{place.windowTitle()}: {names(result)}, read as {names(wanted)}"]


def test_every_dock_is_named_and_read_in_order(qtbot: Any, window: Window) -> None:
    window.state_commands.ablate()
    wrong: list[str] = []
    for name, place in window.docks.items():
        window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        assert place.isVisible()
        wrong += [f"{name}: {fault}" for fault in faults(place)] + order_faults(place)
    wrong += faults(window)
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_ones_own_story_is_named_and_read_in_order(qtbot: Any, window: Window) -> None:
    lessons = window.lessons
    for _ in range(2):
        window.state_commands.walk_heads(0, 1)
        lessons.own_steps.keep_view()
        story_settled(qtbot, window)
    window.context.notes.write(Note("", panel="attention"), "a note")
    wrong: list[str] = []

    def look(where: str) -> None:
        story_settled(qtbot, window)
        wrong.extend(f"{where}: {fault}" for fault in [*faults(lessons), *order_faults(lessons)])

    lessons.open()
    look("the lists")
    assert lessons.session.steps.isVisible() and lessons.session.notes.isVisible()
    lessons.begin_own(1)
    story_settled(qtbot, window)
    assert lessons.page.editor.editing
    look("a step that is edited")
    lessons.own.reword(1, "text", "Look at **L0H1**.")
    lessons.own.reword(1, "aside", "slowly")
    lessons.page.editor.edit.click()
    assert not lessons.page.editor.editing and lessons.page.text.isVisible()
    look("a step that is read")
    lessons.tour.leave()
    story_settled(qtbot, window)
    assert not wrong, "\n".join(wrong)


def test_every_dialog_is_named_and_read_in_order(qtbot: Any, window: Window) -> None:
    wrong: list[str] = []
    for name, make in (DIALOGS | BOXES).items():
        dialog = make(window)
        dialog.show()
        qtbot.waitExposed(dialog)
        result = in_chain(dialog)
        assert result and result == as_read(dialog, result), name
        wrong += [f"{name}: {fault}" for fault in faults(dialog)]
        dialog.close()
        dialog.deleteLater()
    assert not wrong, "\n".join(wrong)


def test_the_value_under_the_keys_is_spoken(qtbot: Any, window: Window) -> None:
    window.activateWindow()
    said: list[str] = []
    window.context.readout.connect(said.append)
    for name in ("attention", "overview"):
        window.layout_of_docks.go_to(name)
        settle(qtbot, window)
        mark = QApplication.focusWidget()
        assert isinstance(mark, Gestures)
        for key in (Qt.Key.Key_Right, Qt.Key.Key_Down):
            qtbot.keyClick(mark, key)
            assert said[-1]
            interface = QAccessible.queryAccessibleInterface(mark)
            assert interface.text(TEXT.Description) == said[-1]
            invalidate(interface)
    window.layout_of_docks.go_to("predictions")
    settle(qtbot, window)
    table = QApplication.focusWidget()
    assert isinstance(table, QTableView)
    qtbot.keyClick(table, Qt.Key.Key_Down)
    row = table.currentIndex().row()
    texts = [table.model().index(row, c).data() for c in range(table.model().columnCount())]
    interface = QAccessible.queryAccessibleInterface(table)
    cells = [interface.child(i) for i in range(interface.childCount())]
    spoken = {cell.text(TEXT.Name) for cell in cells}
    for node in (*cells, interface):
        invalidate(node)
    assert {str(t) for t in texts if t} <= spoken and any(texts)
    settle(qtbot, window)
    assert dock(window, "predictions").view.accessibleName() != PanelDock.__name__


def test_every_gesture_of_the_mouse_has_its_key(qtbot: Any, window: Window) -> None:
    window.activateWindow()
    layout = window.layout_of_docks
    layout.go_to("attention")
    settle(qtbot, window)
    mark, hits = QApplication.focusWidget(), []
    assert isinstance(mark, PlotMark)
    mark.gestured.connect(lambda hit, _: hits.append((hit.gesture, hit.id)))
    qtbot.keyClick(mark, Qt.Key.Key_Right)
    item = hits[-1][1]
    for keys, gesture in (("NoModifier", "click"), ("ShiftModifier", "shift-click"), ("AltModifier", "double-click")):
        qtbot.keyClick(mark, Qt.Key.Key_Return, Qt.KeyboardModifier[keys])
        assert hits[-1] == (gesture, item)
    whole = mark.box.viewRange()
    qtbot.keyClick(mark, Qt.Key.Key_Plus)
    assert mark.box.viewRange()[0][1] - mark.box.viewRange()[0][0] < whole[0][1] - whole[0][0]
    zoomed = mark.box.viewRange()
    qtbot.keyClick(mark, Qt.Key.Key_Right, Qt.KeyboardModifier.ControlModifier)
    assert mark.box.viewRange()[0][0] > zoomed[0][0]
    qtbot.keyClick(mark, Qt.Key.Key_R)
    assert mark.box.viewRange() == whole
    menu = window.docks["attention"].findChild(QMenu, "menu.attention")
    assert isinstance(menu, QMenu)
    window.panel_action("show_menu")
    assert menu.isVisible()
    menu.close()
    window.activateWindow()
    layout.go_to("predictions")
    settle(qtbot, window)
    table = QApplication.focusWidget()
    assert isinstance(table, QTableView)
    for order in (Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder):
        qtbot.keyClick(table, Qt.Key.Key_S)
        assert table.horizontalHeader().sortIndicatorOrder() == order
    with qtbot.waitSignal(table.doubleClicked):
        table.setCurrentIndex(table.model().index(2, 0))
        qtbot.keyClick(table, Qt.Key.Key_Return, Qt.KeyboardModifier.AltModifier)
    settle(qtbot, window)


def test_f6_goes_through_all_docks_and_back(qtbot: Any, window: Window) -> None:
    window.activateWindow()
    layout = window.layout_of_docks
    seen = layout.sizes.in_front()
    visited = []
    for _ in seen:
        layout.step(1)
        QApplication.processEvents()
        focus = window.focusWidget()
        visited.append(next(name for name, place in window.docks.items() if place.isAncestorOf(focus)))
    assert sorted(visited) == sorted(seen)
    layout.step(-1)
    focus = window.focusWidget()
    assert window.docks[visited[-2]].isAncestorOf(focus)
    window.panel.close() if isinstance(window.docks[visited[-2]], PanelDock) else None
    settle(qtbot, window)


def test_what_a_panels_menu_does_is_a_command(qtbot: Any, window: Window) -> None:
    named = {c.name for c in COMMANDS}
    for name in ("copy_image", "copy_table", "copy_python", "again", "open_own"):
        assert f"panel-{name.replace('_', '-')}" in named
        window.panel_action(name)
        settle(qtbot, window)
