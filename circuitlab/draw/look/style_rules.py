"""Style sheets of widgets, and the roles that rules of the application's own sheet are about."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication, QWidget


def set_sheet(widget: QWidget, sheet: str) -> None:
    """Give a widget this style sheet, where it has another one. The one way to do it but for the application's own.

    Qt (6.10) keeps sheets and rules by the address of a widget, and does not forget those of one that was deleted without ever
    having been polished, as what a hidden dock holds. A new widget there is rid of them once it is polished, which has to be
    before it has a sheet of its own.
    """
    if widget.styleSheet() != sheet:
        widget.ensurePolished()
        widget.setStyleSheet(sheet)


def set_role(widget: QWidget, role: str) -> None:
    """Have the rules of this role apply to the widget, such as "caption" or "warning"; of none with "".

    The application's style looks up the rules of any widget. What `widget.style()` answers PySide6 would keep beyond its end.
    """
    if widget.property("role") != role:
        widget.setProperty("role", role)
        QApplication.style().unpolish(widget)
        QApplication.style().polish(widget)
