"""Controls in one row. Those without room are moved behind a button at the end of the row."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLayout, QLayoutItem, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import GRID, Theme
from circuitlab.draw.pointing.focus_order import chain, stops
from circuitlab.gui.widgets.buttons import tint


class Holder(QWidget):
    """Holds one control, so that the row can hide it for lack of room while its owner hides it where it does not apply."""

    changed = Signal()

    control: QWidget

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.unusual = False  # whether its control has been given another value than it comes with
        self._was_relevant = True
        self._box = QHBoxLayout(self)
        self._box.setContentsMargins(0, 0, 0, 0)

    def hold(self, control: QWidget) -> None:
        """Hold a control, best one that was made in here: Qt styles what moves to another parent anew, with all that is in it."""
        self.control = control
        self._box.addWidget(control)
        control.installEventFilter(self)

    @property
    def relevant(self) -> bool:
        """Whether its owner shows the control."""
        return not self.control.isHidden()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Report when the owner shows or hides the control."""
        if event.type() in (QEvent.Type.ShowToParent, QEvent.Type.HideToParent) and self.relevant != self._was_relevant:
            self._was_relevant = self.relevant
            self.changed.emit()
        return False


class Drawer(QFrame):
    """A popup under the button with the controls that have no room, one below the other. `closed()`: it was hidden."""

    closed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(GRID, GRID, GRID, GRID)
        self.box.setSizeConstraint(QLayout.SizeConstraint.SetFixedSize)

    def hideEvent(self, event: QHideEvent) -> None:
        """Report the end, so that the controls go back to the row."""
        super().hideEvent(event)
        self.closed.emit()


class OneRow(QLayout):
    """Widgets from left to right, never wrapped. It needs a widget of its own. `more`: the button for what does not fit, in the
    accent colour while something behind it has an unusual value, which nobody sees otherwise.
    """

    def __init__(self, parent: QWidget, spacing: int = GRID) -> None:
        super().__init__(parent)
        self._items: list[QLayoutItem] = []  # Qt's view of it
        self._order: list[Holder] = []  # all holders in order, with those in the drawer
        self._lent: list[Holder] = []  # in the drawer, while it is open
        self._theme: Theme | None = None
        self._inked: tuple[Theme, str] | None = None  # the button's icon
        self.setSpacing(spacing)
        self.setContentsMargins(0, 0, 0, 0)
        self.more = QToolButton(parent)
        self.more.setObjectName("more")
        self.more.setAccessibleName("More controls")
        self.more.setProperty("role", "small")
        self.more.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.more.hide()
        self.more.clicked.connect(self.open)
        self.drawer = Drawer(parent)
        self.drawer.closed.connect(self._closed)
        parent.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_theme(self, theme: Theme) -> None:
        """Draw the icon in the theme's grey, or its accent."""
        self._theme = theme
        self._ink()

    def mark_unusual(self, controls: Collection[QWidget]) -> None:
        """Say which controls have another value than they come with."""
        for holder in self._order:
            holder.unusual = holder.control in controls
        self._ink()

    def _ink(self) -> None:
        """Draw the icon where its colour is another one, and name in the button's tip what is behind it."""
        behind = self.hidden_holders
        colour = "accent" if any(holder.unusual for holder in behind) else "muted"
        if self._theme is not None and self._inked != (self._theme, colour):
            self._inked = self._theme, colour
            tint(self.more, "controls", self._theme, colour)
        words = (f"{_words(holder.control)}{' (changed)' * holder.unusual}" for holder in behind)
        self.more.setToolTip(tip_of("More controls: " + ", ".join(words)) if behind else "")

    # -- a layout ---------------------------------------------------------------------------------------------------------

    def addWidget(self, widget: QWidget) -> None:
        """Add a control at the end of the row."""
        self.add(self.holder(), widget)

    def holder(self) -> Holder:
        """A holder to make a control in, which is then added with it."""
        parent = self.parentWidget()
        assert parent is not None
        return Holder(parent)

    def add(self, holder: Holder, control: QWidget) -> None:
        """Add a control in its holder at the end of the row."""
        holder.hold(control)
        holder.changed.connect(self.invalidate_row)
        self._order.append(holder)
        super().addWidget(holder)

    def addItem(self, item: QLayoutItem) -> None:
        """Called by addWidget."""
        self._items.append(item)

    def count(self) -> int:
        """Number of items."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        """One item, None past the end."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        """Remove one item."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        """The row takes all the width available."""
        return Qt.Orientation.Horizontal

    def holders(self) -> list[Holder]:
        """The holders of the controls that apply, in order."""
        return [holder for holder in self._order if holder.relevant]

    @property
    def hidden_holders(self) -> list[Holder]:
        """The holders without room in the row."""
        return [holder for holder in self.holders() if holder.isHidden() or holder in self._lent]

    @Slot()
    def invalidate_row(self) -> None:
        """Lay out again: a control has been shown or hidden."""
        self.update()

    def sizeHint(self) -> QSize:
        """The size of all controls in a row."""
        sizes = [holder.sizeHint() for holder in self.holders()]
        width = sum(size.width() for size in sizes) + self.spacing() * max(0, len(sizes) - 1)
        return QSize(width, max((size.height() for size in sizes), default=0))

    def minimumSize(self) -> QSize:
        """The size of the button alone."""
        return QSize(self.more.sizeHint().width() if self.holders() else 0, self.sizeHint().height())

    def setGeometry(self, rect: QRect) -> None:
        """Place the controls that fit, from the first on; hide the others."""
        super().setGeometry(rect)
        holders = self.holders()
        shown = self._fitting(holders, rect.width())
        x = rect.x()
        for holder, width in zip(holders, shown, strict=False):
            if holder not in self._lent:
                height = min(holder.sizeHint().height(), rect.height())
                holder.setGeometry(x, rect.y() + (rect.height() - height) // 2, width, height)
                holder.show()
                x += width + self.spacing()
        for holder in holders[len(shown) :]:
            if holder not in self._lent:
                holder.hide()
        all_in = len(shown) == len(holders) and not self._lent
        self.more.setVisible(not all_in)
        if not all_in:
            size = self.more.sizeHint()
            self.more.setGeometry(QRect(QPoint(x, rect.y() + (rect.height() - size.height()) // 2), size))
        self._ink()

    def _fitting(self, holders: list[Holder], room: int) -> list[int]:
        """The widths of as many holders as fit into `room` px, from the first on."""
        widths = [holder.sizeHint().width() for holder in holders]
        if sum(widths) + self.spacing() * max(0, len(widths) - 1) <= room:
            return widths
        room -= self.more.sizeHint().width() + self.spacing()
        shown: list[int] = []
        for holder, width in zip(holders, widths, strict=True):
            if width > room:
                least = holder.minimumSizeHint().width()
                return [*shown, room] if not shown and least <= room else shown
            shown.append(width)
            room -= width + self.spacing()
        return shown

    # -- what does not fit ------------------------------------------------------------------------------------------------

    @Slot()
    def open(self) -> None:
        """Show the controls that do not fit, under the button."""
        self._lent = self.hidden_holders
        for holder in self._lent:
            holder.setParent(self.drawer)
            self.drawer.box.addWidget(holder)
            holder.show()
        self.drawer.adjustSize()
        at = self.more.mapToGlobal(QPoint(0, self.more.height()))
        screen = self.more.screen().availableGeometry()
        size = self.drawer.sizeHint()
        self.drawer.move(min(at.x(), screen.right() - size.width()), min(at.y(), screen.bottom() - size.height()))
        self.drawer.show()
        if self._lent:
            self._lent[0].control.setFocus(Qt.FocusReason.PopupFocusReason)

    @Slot()
    def _closed(self) -> None:
        QTimer.singleShot(0, self, self.take_back)

    @Slot()
    def take_back(self) -> None:
        """Take the controls in the drawer back into the row."""
        lent, self._lent = self._lent, []
        for holder in lent:
            self.drawer.box.removeWidget(holder)
            super().addWidget(holder)  # it left the row with its parent
            holder.hide()
        chain([*(stop for holder in self._order for stop in stops(holder)), self.more])
        self.invalidate_row()


def _words(control: QWidget) -> str:
    """The name of a control."""
    named = [w.accessibleName() for w in (control, *control.findChildren(QWidget)) if w.accessibleName()]
    return named[0] if named else control.objectName()
