"""Which screen the stage is on and which is the speaker's; and what happens where one goes away in the middle of a talk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, QRect, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from circuitlab.counting import number_of
from circuitlab.errors import UsageError


@dataclass(frozen=True)
class Screen:
    """A screen by its name and its place on the desktop; a `QScreen` ends with its cable."""

    name: str
    place: QRect


def attached() -> list[Screen]:
    """The screens of this machine, the primary one first, the others from left to right; of mirrored ones the first."""
    primary = QGuiApplication.primaryScreen()
    order = sorted(QGuiApplication.screens(), key=lambda s: (s != primary, s.geometry().x(), s.geometry().y()))
    screens: list[Screen] = []
    for screen in order:
        if all(screen.geometry() != one.place for one in screens):
            screens.append(Screen(screen.name(), screen.geometry()))
    return screens


def described(screens: Sequence[Screen]) -> list[str]:
    """One line for each screen, by its number."""
    return [f"{i}: {screen.name}, {screen.place.width()} × {screen.place.height()}" for i, screen in enumerate(screens, 1)]


def numbered(number: int, screens: Sequence[Screen]) -> str:
    """The name of a screen by its number, counted from 1. Raises `UsageError`, which lists the screens."""
    if not 1 <= number <= len(screens):
        raise UsageError(
            f"There is no screen {number}.",
            expected="; ".join(described(screens)),
            got=f"{number}, with {number_of(len(screens), 'screen')}",
            remedy="Give the number of a screen, or leave it out: the stage then takes the one that is not the window's.",
        )
    return screens[number - 1].name


def stage_screen(screens: Sequence[Screen], speakers: str, preferred: str = "") -> str:
    """The name of the screen for the stage: the preferred one, else one that is not the speaker's, else the only one."""
    names = [screen.name for screen in screens]
    if preferred in names:
        return preferred
    return next((name for name in names if name != speakers), names[0] if names else "")


class Screens(QObject):
    """Keeps a stage on one screen, over all of it, and the speaker's window on another where there are two.

    `changed()`: the stage is on another screen, or there are two where there was one or the other way round. A screen that goes
    away leaves the stage on one that stays; plugged in again, it has the stage again.
    """

    changed = Signal()

    def __init__(
        self, stage: QWidget, speaker: QWidget, parent: QObject, screens: Callable[[], Sequence[Screen]] = attached
    ) -> None:
        super().__init__(parent)
        self.stage, self.speaker, self._screens = stage, speaker, screens
        self._wanted = ""  # for the stage, whether it is there or not; "": the one that is not the speaker's
        self.at = ""  # of the stage
        self._before: tuple[QRect, Qt.WindowState] | None = None  # the speaker's window before it had to move
        self._fills = False  # it covered its screen then
        self.windowed = False
        self._settling = QTimer(self)  # Qt moves windows itself while screens come and go
        self._settling.setSingleShot(True)
        self._settling.timeout.connect(self.settle)
        application = QGuiApplication.instance()
        assert isinstance(application, QGuiApplication)
        application.screenAdded.connect(self._later)
        application.screenRemoved.connect(self._later)

    @property
    def two(self) -> bool:
        """Whether the speaker has a screen that the stage does not cover."""
        return self.windowed or len(self._screens()) > 1

    @property
    def wanted(self) -> str:
        """The screen that was chosen for the stage, at the beginning or by `swap`; "" for none."""
        return self._wanted

    def show(self, preferred: str = "", windowed: bool = False) -> None:
        """Show the stage on a screen by name, "" for the one that is not the speaker's; `windowed`: not over all of it."""
        self._wanted, self.windowed = preferred, windowed
        self.settle()

    @Slot()
    def swap(self) -> None:
        """Let stage and speaker change places; with more than two screens the stage goes to the next one."""
        names = [screen.name for screen in self._screens()]
        if len(names) > 1:
            at = names.index(self.at) if self.at in names else 0
            self._wanted = names[(at + 1) % len(names)]
            self.settle()

    def stop(self) -> None:
        """From now on leave both alone; the speaker's window is where it was, if its screen is still there."""
        self._settling.stop()
        screens, self._screens = self._screens(), list
        if self._before is not None and any(screen.place.contains(self._before[0].center()) for screen in screens):
            self.speaker.showNormal()
            self.speaker.setGeometry(self._before[0])
            self.speaker.setWindowState(self._before[1])

    @Slot()
    def _later(self, *_: object) -> None:
        self._settling.start(0)

    @Slot()
    def settle(self) -> None:
        """Put both where they belong on the screens that there are now."""
        screens = self._screens()
        if not screens:
            return
        speakers = _under(self.speaker, screens)
        self.at = stage_screen(screens, "" if speakers is None else speakers.name, self._wanted)
        others = [screen for screen in screens if screen.name != self.at]
        if speakers is None or (others and speakers.name == self.at and not self.windowed):
            if self._before is None:
                self._before = self.speaker.normalGeometry(), self.speaker.windowState()
                self._fills = speakers is not None and self.speaker.geometry().contains(speakers.place)
            other = next(iter(others), screens[0])
            _move(self.speaker, other, other.place.size() if self._fills else self._before[0].size())
        stage = next(screen for screen in screens if screen.name == self.at)
        if self.windowed:
            _centre(self.stage, stage, self.stage.size())
            self.stage.show()
        else:
            _cover(self.stage, stage)
        self.stage.raise_()
        self.stage.activateWindow()
        self.changed.emit()


def _under(window: QWidget, screens: Sequence[Screen]) -> Screen | None:
    """The screen with the centre of a window; None where that screen has gone."""
    centre = window.geometry().center()
    return next((screen for screen in screens if screen.place.contains(centre)), None)


def _cover(window: QWidget, screen: Screen) -> None:
    """A window over all of a screen."""
    if window.isFullScreen() and window.geometry() == screen.place:
        return
    if window.isFullScreen():
        window.showNormal()  # a window that covers one screen does not move to another
    _tell(window, screen)
    window.setGeometry(screen.place)
    window.showFullScreen()


def _tell(window: QWidget, screen: Screen) -> None:
    """Tell Qt the screen: where windows may not say where they are, as with Wayland, it alone counts."""
    known = next((one for one in QGuiApplication.screens() if one.name() == screen.name), None)
    if known is not None:
        window.setScreen(known)


def _centre(window: QWidget, screen: Screen, size: QSize) -> None:
    """An ordinary window in the middle of a screen, of this size or as large as that is."""
    _tell(window, screen)
    place = QRect(screen.place.topLeft(), size.boundedTo(screen.place.size()))
    place.moveCenter(screen.place.center())
    window.setGeometry(place)


def _move(window: QWidget, screen: Screen, size: QSize) -> None:
    """An ordinary window onto a screen, where there is room in this size; one that fills its screen fills this one."""
    maximised = window.isMaximized()
    if maximised or window.isFullScreen():
        window.showNormal()
    _centre(window, screen, size)
    if maximised:
        window.showMaximized()
