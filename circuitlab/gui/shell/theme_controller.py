"""Applies the theme and the text size that the settings name to a window."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget

from circuitlab.draw.look.theme import DARK, LIGHT, Theme, apply_theme
from circuitlab.gui.widgets.chrome import scaled, sheet
from circuitlab.gui.work.app_context import AppContext

SMALLEST, LARGEST = 0.8, 1.6  # text size


class ThemeController(QObject):
    """See the module. The theme "system" follows the desktop."""

    def __init__(self, context: AppContext, window: QWidget) -> None:
        super().__init__(window)
        self.context = context
        context.settings.changed.connect(self._setting)

    def scale_text(self, by: float) -> None:
        """Make all text larger or smaller by a part of its normal size."""
        settings = self.context.settings
        settings.set("text_scale", min(max(round(settings["text_scale"] + by, 2), SMALLEST), LARGEST))

    def usual_text(self) -> None:
        """Reset the text size to its default."""
        self.context.settings.reset("text_scale")

    def follow(self) -> None:
        """Apply the desktop's colour scheme, which may have changed, if the theme follows it."""
        if self.context.settings["theme"] == "system":
            self.apply()

    @Slot(str)
    def _setting(self, name: str) -> None:
        if name in ("theme", "text_scale"):
            self.apply()

    def _theme(self) -> Theme:
        name = self.context.settings["theme"]
        if name == "system":
            name = "dark" if QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"
        return scaled(DARK if name == "dark" else LIGHT, self.context.settings["text_scale"])

    def apply(self) -> None:
        """Apply theme and text size to the application, the window and all figures."""
        app, theme = QApplication.instance(), self._theme()
        assert isinstance(app, QApplication)
        apply_theme(app, theme, sheet(theme))
        self.context.set_theme(theme)
