"""The head of a dock in one line: what it is, its controls, and buttons; it wraps before anything is clipped."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Slot
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QDockWidget, QHBoxLayout, QLabel, QMainWindow, QMenu, QSizePolicy, QToolButton, QWidget

from circuitlab.draw.theme import Theme
from circuitlab.gui.bench import Bench
from circuitlab.gui.flow import FlowLayout
from circuitlab.gui.icons import icon


class TitleBar(QWidget):
    """Title, controls, menu, maximise, float, close. Drag it to move the dock; double-click maximises.

    The title is left out while a tab says the same. `middle` is any widget, also one whose height depends on its width.
    """

    def __init__(self, dock: QDockWidget, bench: Bench, middle: QWidget | None = None, menu: QMenu | None = None) -> None:
        super().__init__(dock)
        self.dock = dock
        self._height = 0
        self._behind = 0  # px of the dock in front, while this one is behind its tab and has kept an old width; else 0
        self._hints: dict[int, QSize] = {}
        self.title = QLabel(dock.windowTitle(), self)
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setProperty("role", "title")
        self.title.setContentsMargins(4, 0, 4, 0)
        self._buttons: list[tuple[QToolButton, str]] = []
        row = QHBoxLayout(self)
        row.setContentsMargins(4, 2, 4, 2)
        row.setSpacing(0)
        top = Qt.AlignmentFlag.AlignTop
        flow = None if middle is None else middle.layout()
        if isinstance(flow, FlowLayout):
            flow.put_first(self.title)  # controls of a second line then begin at the edge
        else:
            row.addWidget(self.title)
        if middle is None:
            row.addStretch(1)
        else:
            policy = middle.sizePolicy()
            policy.setHorizontalPolicy(QSizePolicy.Policy.Expanding)
            middle.setSizePolicy(policy)
            row.addWidget(middle, 1)
        if menu is not None:
            self.more = self._button("menu", "Menu of this panel: copy, export, pin, explain", None)
            self.more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
            self.more.setMenu(menu)
        self.maximiser = self._button("maximise", "Maximise or restore (F11)", self.maximise)
        self._button("float", "Float or dock", self.float_or_dock)
        self._button("close", "Close; the View menu brings it back", dock.close)
        for button, _ in self._buttons:
            row.addWidget(button, 0, top)
        bench.theme_changed.connect(self.set_theme)
        self.set_theme(bench.theme)
        dock.visibilityChanged.connect(self.refresh)
        dock.topLevelChanged.connect(self.refresh)
        dock.installEventFilter(self)
        self.installEventFilter(self)
        dock.setTitleBarWidget(self)

    def _button(self, name: str, tip: str, act: Callable[[], object] | None) -> QToolButton:
        made = QToolButton(self)
        made.setObjectName(f"{self.dock.objectName()}.{name}")
        made.setAccessibleName(tip)
        made.setToolTip(tip)
        made.setProperty("role", "small")
        made.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        if act is not None:
            made.clicked.connect(act)
        self._buttons.append((made, name))
        return made

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Icons in the theme's grey."""
        for button, name in self._buttons:
            button.setIcon(icon(name, theme))
        self._measure()

    @Slot()
    def maximise(self) -> None:
        """This dock alone, or all again."""
        toggle = getattr(self.dock.parentWidget(), "toggle_maximised", None)
        if toggle is not None:
            toggle(self.dock)

    @Slot()
    def float_or_dock(self) -> None:
        """Out of the window, or back into it."""
        self.dock.setFloating(not self.dock.isFloating())

    @Slot()
    def refresh(self, *_: object) -> None:
        """The title only where no tab shows it."""
        window = self.dock.parentWidget()
        tabbed = isinstance(window, QMainWindow) and bool(window.tabifiedDockWidgets(self.dock))
        self.title.setVisible(not tabbed or self.dock.isFloating())
        fronts = [] if self._on_screen() else [b for b in self._tabs() if b._on_screen()]
        self._behind = fronts[0].dock.width() if fronts else 0
        self._measure()

    def _on_screen(self) -> bool:
        return self.dock.isVisible() and not self.dock.visibleRegion().isEmpty()

    def _tabs(self) -> list[TitleBar]:
        """The bars of the docks that share its place."""
        window = self.dock.parentWidget()
        docks = window.tabifiedDockWidgets(self.dock) if isinstance(window, QMainWindow) else []
        return [bar for d in docks if isinstance(bar := d.titleBarWidget(), TitleBar)]

    def _stand_behind(self, width: int) -> None:
        if self._behind != width and not self._on_screen():
            self._behind = width
            self._measure()

    def _measure(self) -> None:
        """Ask for another height where controls wrap differently."""
        self._hints.clear()
        height = self.sizeHint().height()
        if height != self._height:
            self._height = height
            self.updateGeometry()

    def event(self, event: QEvent) -> bool:
        """What is in the bar has changed: it may need another size."""
        handled = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self._measure()
        return handled

    def sizeHint(self) -> QSize:
        """As high as the controls are at this width. Worked out once: the window asks for it hundreds of times a layout."""
        width = self._behind or self.dock.width()
        if width not in self._hints:
            self._hints[width] = self._hint(width)
        return self._hints[width]

    def _hint(self, width: int) -> QSize:
        layout = self.layout()
        assert layout is not None
        width = max(width, layout.minimumSize().width())
        height = layout.totalHeightForWidth(width) if layout.hasHeightForWidth() else layout.sizeHint().height()
        return QSize(layout.minimumSize().width(), max(height, 26))

    def minimumSizeHint(self) -> QSize:
        """Never less."""
        return self.sizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width may need another height."""
        super().resizeEvent(event)
        if self._on_screen():
            self._behind = 0
            for bar in self._tabs():
                bar._stand_behind(self.dock.width())
        self._measure()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A double-click on the bar maximises rather than floats."""
        if watched is self and event.type() == QEvent.Type.MouseButtonDblClick and isinstance(event, QMouseEvent):
            self.maximise()
            return True
        if watched is self.dock and event.type() == QEvent.Type.WindowTitleChange:
            self.title.setText(self.dock.windowTitle())
        return False
