"""The settings, each declared once with its default, limits and words, for the dialog, the file and the code that reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QSettings, Signal

from circuitlab.disk.paths import config_home
from circuitlab.errors import bounded
from circuitlab.model.devices import NAMES


@dataclass(frozen=True)
class Setting:
    """One setting, of the type of its default.

    `choices` makes it a drop-down; `low` and `high` bound a number, `unit` follows it, and `zero` is shown in place of the lowest
    one; `later`: it takes effect at the next start.
    """

    name: str
    title: str
    default: str | int | float
    tip: str
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    unit: str = ""
    zero: str = ""
    later: bool = False


STOPPED, ANEW = "where I stopped", "anew"
START = "A start without a model comes back to the session of the window that was closed last, or begins with the first model"
WITH_VIEW, WITHOUT_VIEW = "with their view", "without"
INSIDE = (
    "Inside exported and copied pictures: model, prompt, selection and settings, no folder. Dropped on the window they open it"
)
# Hues of heads and signs stay the same; `draw/look/colours.py` has the scales.
THEME = "Window and figures. In dark, scales are reversed: zero is the background, the largest value light. Exports are light"
SETTINGS: tuple[Setting, ...] = (
    Setting("theme", "Theme", "system", THEME, ("system", "light", "dark")),
    Setting("text_scale", "Text size", 1.0, "All text of window and figures", low=0.8, high=1.6, unit=" ×"),
    Setting("debounce", "Typing pause", 60, "How long after a keystroke the prompt is read", low=0, high=1000, unit=" ms"),
    Setting(
        "memory", "Memory budget", 4.0, "An analysis that needs more is refused, and says how much it needs", low=0.25, high=1024,
        unit=" GiB",
    ),
    Setting("device", "Device", "cpu", "Where analyses are computed; the CPU where the device is missing", NAMES),
    Setting(
        "threads", "Threads", 0, "Threads of the numerical work", low=0, high=256, zero="all cores but one", later=True
    ),
    Setting("start", "Start", STOPPED, START, (STOPPED, ANEW)),
    Setting("picture_view", "Exported pictures", WITH_VIEW, INSIDE, (WITH_VIEW, WITHOUT_VIEW)),
    Setting("log_level", "Log file", "INFO", "The lowest level that is written", ("DEBUG", "INFO", "WARNING", "ERROR")),
)  # fmt: skip


def settings_file() -> QSettings:
    """The file that holds settings, layout and progress in lessons."""
    return QSettings(str(config_home() / "circuitlab.ini"), QSettings.Format.IniFormat)


def _problem(file: QSettings, unused: list[str]) -> str:
    """The message about a file that cannot be read, or about values in it that no setting can have; "" if all is well."""
    where = f"{Path(file.fileName()).name} in {config_home()}"
    if file.status() == QSettings.Status.FormatError:
        return f"Settings may be missing: {where} is damaged."
    if file.status() != QSettings.Status.NoError or Path(file.fileName()).is_dir():
        return f"The settings cannot be read: {where} cannot be opened. The defaults are used."
    return f"Some settings could not be used and are at their defaults: {', '.join(unused)}." if unused else ""


class Settings(QObject):
    """The values by name; `changed(name)` after each change. `remember` False keeps them in memory only (pictures, tests).

    `problem`: the message about what could not be read from the file, "" for none. `failed(message)`: a change could not be
    saved; emitted once.
    """

    changed = Signal(str)
    failed = Signal(str)

    def __init__(self, remember: bool = True, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.remember, self._failure_reported = remember, False
        self._declared = {s.name: s for s in SETTINGS}
        file = settings_file() if remember else None
        self._unused: list[str] = []
        self._values = {n: self._read(s, file) for n, s in self._declared.items()}
        self.problem = "" if file is None else _problem(file, self._unused)

    def _read(self, setting: Setting, file: QSettings | None) -> Any:
        """The value in the file if the setting can have it, else the default."""
        stored_value: Any = setting.default if file is None else file.value(setting.name, setting.default)
        try:
            value: str | int | float = type(setting.default)(stored_value)
        except (TypeError, ValueError):
            value = math.nan
        usable = value in setting.choices if isinstance(value, str) else setting.low <= value <= setting.high
        if not usable:
            self._unused.append(f"{setting.title} {bounded(str(stored_value), 40)!r}")
        return value if usable else setting.default

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def set(self, name: str, value: str | int | float) -> None:
        """Change a setting, save it and emit `changed`."""
        value = type(self._declared[name].default)(value)  # type: ignore[call-overload]
        if value == self._values[name]:
            return
        self._values[name] = value
        if self.remember:
            self._save(name, value)
        self.changed.emit(name)

    def reset(self, name: str) -> None:
        """Set a setting to its default."""
        self.set(name, self._declared[name].default)

    def _save(self, name: str, value: str | int | float) -> None:
        file = settings_file()
        file.setValue(name, value)
        file.sync()
        if file.status() == QSettings.Status.NoError or self._failure_reported:
            return
        self._failure_reported = True
        self.failed.emit(f"Settings cannot be saved: {Path(file.fileName()).name} in {config_home()} cannot be written.")
