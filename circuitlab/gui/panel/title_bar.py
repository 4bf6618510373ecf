"""The title bar of a dock: its title, its controls and its buttons, in one line."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QRect, Qt, Slot
from PySide6.QtGui import QColor, QMouseEvent, QPainter
from PySide6.QtWidgets import QDockWidget, QHBoxLayout, QMainWindow, QMenu, QSizePolicy, QSpacerItem, QToolButton, QWidget

from circuitlab.draw.look.guarded import guarded_widget
from circuitlab.draw.look.plain_text import PlainLabel, tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.draw.pointing.focus_order import chain, stops
from circuitlab.gui.widgets.buttons import tint
from circuitlab.gui.widgets.one_row import OneRow
from circuitlab.gui.widgets.room import Room
from circuitlab.gui.work.app_context import AppContext

LEAST = 26  # px of height at text size 1
STROKE = 3  # px of width
AFTER = 5  # px between the stroke and what stands behind it
MENU = "Menu of this panel: copy, export, note, pin, explain"


class TitleBar(QWidget):
    """Title, controls, menu, maximise, float, close. Drag it to move the dock; double-click maximises.

    The title is hidden while a tab shows the same. `make_middle(parent)` makes the widget with the controls; if its layout is a
    `OneRow`, those without room are behind a button. With a `menu`, "Float or dock" is an entry of that menu instead of a button.
    """

    def __init__(
        self,
        dock: QDockWidget,
        context: AppContext,
        make_middle: Callable[[QWidget], QWidget] | None = None,
        menu: QMenu | None = None,
    ) -> None:
        super().__init__(dock)
        self.dock = dock
        self.middle: QWidget | None = None
        self.title = PlainLabel(dock.windowTitle(), self)
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setProperty("role", "title")
        self.title.setContentsMargins(0, 0, 8, 0)
        self._used, self._accent = False, QColor()
        self._buttons: list[tuple[QToolButton, str]] = []
        row = QHBoxLayout(self)
        row.setContentsMargins(STROKE + AFTER, 1, 4, 1)
        row.setSpacing(0)
        self._strut = QSpacerItem(0, LEAST)
        row.addSpacerItem(self._strut)
        row.addWidget(self.title)
        if make_middle is None:
            row.addStretch(1)
        else:
            room = Room(self, None)
            self.middle = make_middle(room)
            room.hold(self.middle)
            row.addWidget(room, 1)
        if menu is not None:
            self.more = self._button("menu", MENU, None)
            self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
            self.more.setMenu(menu)
            menu.addSeparator()
            menu.addAction("Float or dock").triggered.connect(self.float_or_dock)
        self.maximiser = self._button("maximise", "Maximise or restore (F10)", self.maximise)
        if menu is None:
            self._button("float", "Float or dock", self.float_or_dock)
        self._button("close", "Close; the View menu brings it back", dock.close)
        for button, _ in self._buttons:
            row.addWidget(button)
        context.theme_changed.connect(self.set_theme)
        self.set_theme(context.theme)
        dock.visibilityChanged.connect(self.refresh)
        dock.topLevelChanged.connect(self.refresh)
        dock.installEventFilter(self)
        self.installEventFilter(self)
        dock.setTitleBarWidget(self)
        self._chain()

    def _chain(self) -> None:
        """Set the Tab order: the controls, the buttons, then the content of the dock."""
        middle, inside = self.middle, self.dock.widget()
        chain([
            *(sorted(stops(middle), key=lambda stop: stop.objectName() == "more") if middle is not None else ()),
            *(button for button, _ in self._buttons),
            *(stops(inside) if inside is not None else ()),
        ])  # fmt: skip

    def _button(self, name: str, tip: str, act: Callable[[], object] | None) -> QToolButton:
        button = QToolButton(self)
        button.setObjectName(f"{self.dock.objectName()}.{name}")
        button.setAccessibleName(tip)
        button.setToolTip(tip_of(tip))
        button.setProperty("role", "small")
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        if act is not None:
            button.clicked.connect(act)
        self._buttons.append((button, name))
        return button

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Draw the icons in the theme's grey, as large as its text."""
        self._accent = theme.colour("accent")
        for button, name in self._buttons:
            tint(button, name, theme)
        if self.middle is not None and isinstance(row := self.middle.layout(), OneRow):
            row.set_theme(theme)
        self._set_least(theme.px(LEAST))

    def _set_least(self, height: int) -> None:
        """Set the least height in px, the same in every dock; by a spacer, which Qt measures without calling Python."""
        row = self.layout()
        assert row is not None
        fixed, least, margins = QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Minimum, row.contentsMargins()
        self._strut.changeSize(0, height - margins.top() - margins.bottom(), fixed, least)
        row.invalidate()

    def show_note(self, note: str) -> None:
        """Show the person's note on the panel in the tips of the title and of the menu's button; "" for none."""
        self.title.setToolTip(tip_of(note))
        self.more.setToolTip(tip_of("\n".join(filter(None, (MENU, note)))))

    def show_used(self, used: bool) -> None:
        """Mark the dock that keyboard commands (F10, export) act on, by a stroke at the left edge."""
        if used != self._used:
            self._used = used
            self.update()

    @guarded_widget
    def paintEvent(self, painter: QPainter) -> None:
        """Draw the stroke of the dock that was last used."""
        if self._used:
            painter.fillRect(QRect(0, 3, STROKE, self.height() - 6), self._accent)

    @Slot()
    def maximise(self) -> None:
        """Show this dock alone, or all docks again."""
        toggle = getattr(self.dock.parentWidget(), "toggle_maximised", None)
        if toggle is not None:
            toggle(self.dock)

    @Slot()
    def float_or_dock(self) -> None:
        """Move the dock out of the window, or back into it."""
        self.dock.setFloating(not self.dock.isFloating())

    @Slot()
    def refresh(self, *_: object) -> None:
        """Show the title only where no tab shows it."""
        window = self.dock.parentWidget()
        tabbed = isinstance(window, QMainWindow) and bool(window.tabifiedDockWidgets(self.dock))
        self.title.setVisible(not tabbed or self.dock.isFloating())

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Maximise on a double-click, on which Qt would float the dock; show the dock's new title."""
        if watched is self and event.type() == QEvent.Type.MouseButtonDblClick and isinstance(event, QMouseEvent):
            self.maximise()
            return True
        if watched is self.dock and event.type() == QEvent.Type.WindowTitleChange:
            self.title.setText(self.dock.windowTitle())
        return False
