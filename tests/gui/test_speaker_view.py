"""What the speaker sees, the clock, and screens: two of them, and one that goes away in the middle of the talk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QGuiApplication, QImage, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QMainWindow, QWidget

from circuitlab.draw.look.theme import LIGHT
from circuitlab.errors import UsageError
from circuitlab.gui.presenter.clock import TalkClock, clock_words
from circuitlab.gui.presenter.screens import Screen, Screens, attached, described, numbered, stage_screen
from circuitlab.gui.presenter.speaker_view import Shown, SpeakerView
from tests.conftest import ROOT

# -- the clock -------------------------------------------------------------------------------------------------------------


class Time:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3600, "1:00:00"), (-61, "−1:01"), (-0.4, "0:00"), (36_061, "10:01:01")],
)
def test_a_time_is_said_in_minutes_and_from_an_hour_on_in_hours(seconds: float, words: str) -> None:
    assert clock_words(seconds) == words


def test_a_pause_does_not_count_and_time_beyond_the_end_is_negative(qapp: Any) -> None:
    time = Time()
    clock = TalkClock(2, now=time)
    assert (clock.running, clock.elapsed, clock.left) == (False, 0, 120)
    clock.start()
    time.now += 50
    clock.pause_or_resume()
    time.now += 500
    assert (clock.running, clock.elapsed) == (False, 50)
    clock.pause_or_resume()
    time.now += 9
    assert (clock.elapsed, clock.left, clock.near_end) == (59, 61, False)
    time.now += 80
    assert (clock.left, clock.near_end) == (-19, True)
    clock.stop()
    time.now += 80
    assert (clock.left, clock.running) == (-19, False)
    assert not TalkClock(0, now=time).near_end  # a talk without an end


# -- the view --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def window(qtbot: Any) -> Iterator[QMainWindow]:
    window = QMainWindow()
    qtbot.addWidget(window)
    window.setCentralWidget(QLabel("a panel"))
    window.resize(1280, 800)
    window.show()
    yield window


Make = Callable[..., SpeakerView]


@pytest.fixture
def make(window: QMainWindow, time: Time) -> Make:
    def view(minutes: float = 20, key: Callable[[QKeyEvent], bool] = lambda event: False) -> SpeakerView:
        clock = TalkClock(minutes, window, time)
        made = SpeakerView(window, LIGHT, clock, key)
        made.show()
        return made

    return view


def words(view: SpeakerView) -> str:
    return " | ".join(label.text() for label in view.findChildren(QLabel))


def test_the_view_covers_the_window_whatever_size_that_has(window: QMainWindow, make: Make) -> None:
    view = make()
    for size in ((1280, 800), (900, 640)):
        window.resize(*size)
        assert view.geometry() == window.rect()
        image = window.grab().toImage()
        assert image.pixelColor(2, 2) == LIGHT.colour("background")


def test_the_note_of_the_step_is_shown_and_of_a_step_without_one_the_public_line(make: Make) -> None:
    view = make()
    view.show_step(2, 5, Shown("Without it", "say *why*", "The loss rises."), Shown("After"))
    assert view.notes.toPlainText() == "say why"
    assert "2 / 5" in words(view) and "Without it" in words(view) and "After" in words(view)
    view.show_step(5, 5, Shown("The last", line="The loss rises."), None)
    assert view.notes.toPlainText() == "The loss rises."
    assert not view.on.isEnabled()
    assert view.back.isEnabled()


def test_time_that_is_left_turns_to_the_accent_when_it_is_short(make: Make, time: Time) -> None:
    view = make(2)
    view.clock.start()
    time.now += 30
    view.clock.ticked.emit()
    assert view.left.text().startswith("1:30")
    calm = view.left.palette().color(view.left.foregroundRole())
    time.now += 100
    view.clock.ticked.emit()
    assert view.left.text().startswith("0:10") and "over" in view.left.text()
    assert view.left.palette().color(view.left.foregroundRole()) == LIGHT.colour("accent") != calm
    view.pause.click()
    time.now += 100
    view.clock.ticked.emit()
    assert view.elapsed.text() == "2:10"


def test_a_talk_without_a_length_has_no_time_left(make: Make) -> None:
    view = make(0)
    view.clock.start()
    assert view.left.text() == ""
    view.clock.stop()


def test_keys_go_to_the_talk_and_not_to_the_commands_of_the_window(qtbot: Any, window: QMainWindow, make: Make) -> None:
    triggered: list[bool] = []
    action = window.addAction("release")
    action.setShortcut("Esc")
    action.triggered.connect(triggered.append)
    keys: list[int] = []
    window.activateWindow()
    view = make(key=lambda event: keys.append(event.key()) is None)
    assert view.hasFocus()
    QTest.mouseClick(view.pause, Qt.MouseButton.LeftButton)
    QTest.keyClick(window.focusWidget(), Qt.Key.Key_Escape)
    assert keys == [Qt.Key.Key_Escape]
    assert not triggered
    view.clock.stop()


def test_the_next_picture_is_drawn_whole_at_the_top_of_its_room(make: Make) -> None:
    view = make()
    image = QImage(1600, 900, QImage.Format.Format_RGB32)
    image.fill(Qt.GlobalColor.darkGreen)
    view.picture.show_image(image)
    place, high = QRect(view.picture.mapTo(view, QPoint()), view.picture.size()), view.picture.width() * 9 // 16
    seen = view.grab().toImage()
    assert all(seen.pixelColor(place.left() + x, place.top() + 20).green() == 128 for x in range(2, place.width() - 2))
    assert seen.pixelColor(place.left() + 9, place.top() + high - 4).green() == 128
    assert seen.pixelColor(place.left() + 9, place.top() + high + 4) == LIGHT.colour("background")


# -- screens ---------------------------------------------------------------------------------------------------------------


def plugged(name: str, *place: int) -> Screen:
    return Screen(name, QRect(*place))


LAPTOP, BEAMER, THIRD = (
    plugged("laptop", 0, 0, 1280, 800),
    plugged("beamer", 1280, 0, 1920, 1080),
    plugged("tv", 3200, 0, 800, 600),
)


def test_a_screen_that_there_is_not_is_refused_with_a_list_of_those_there_are() -> None:
    assert numbered(2, [LAPTOP, BEAMER]) == "beamer"
    for number in (0, 3, -1):
        with pytest.raises(UsageError) as error:
            numbered(number, [LAPTOP, BEAMER])
        assert all(line in str(error.value) for line in described([LAPTOP, BEAMER]))
        assert "1920 × 1080" in str(error.value)


def test_mirrored_screens_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    known = lambda screen: SimpleNamespace(name=lambda: screen.name, geometry=lambda: screen.place)
    primary, mirror, other = map(known, (LAPTOP, plugged("mirror", 0, 0, 1280, 800), BEAMER))
    application = SimpleNamespace(primaryScreen=lambda: primary, screens=lambda: [other, mirror, primary])
    monkeypatch.setattr("circuitlab.gui.presenter.screens.QGuiApplication", application)
    assert attached() == [LAPTOP, BEAMER]


@pytest.mark.parametrize(
    ("screens", "preferred", "stage"),
    [
        ([LAPTOP], "", "laptop"),
        ([LAPTOP], "beamer", "laptop"),
        ([LAPTOP, BEAMER], "", "beamer"),
        ([LAPTOP, BEAMER, THIRD], "tv", "tv"),
        ([LAPTOP, BEAMER, THIRD], "gone", "beamer"),
        ([LAPTOP, BEAMER], "laptop", "laptop"),
    ],
)
def test_the_stage_goes_where_it_was_or_to_a_screen_that_is_not_the_speakers(
    screens: list[Screen], preferred: str, stage: str
) -> None:
    assert stage_screen(screens, "laptop", preferred) == stage


PROGRAM = """
import json, sys
from PySide6.QtWidgets import QApplication, QWidget
from circuitlab.gui.presenter.screens import Screens, attached

app = QApplication()
window, stage = QWidget(), QWidget()
window.setGeometry(40, 30, 800, 600)
window.show()
screens = Screens(stage, window, app)
events = []

def seen():
    for _ in range(3):
        app.processEvents()
    own = next(s.name for s in attached() if s.place.contains(window.geometry().center()))
    events.append([screens.at, stage.geometry().getRect(), stage.isFullScreen() and stage.isVisible(), own, screens.two])

screens.show()
seen()
for _ in range(2):
    screens.swap()
    seen()
"""

ONLY = (
    PROGRAM
    + """
screens.swap()
screens.stop()
app.processEvents()
print(json.dumps([*events, window.geometry().getRect()]))
"""
)


def screens_of(program: str, environment: dict[str, str]) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_stage_covers_the_other_screen_and_changes_places_with_the_speaker(tmp_path: Path) -> None:
    places = {"laptop": (0, 0, 1280, 800), "beamer": (1280, 0, 1920, 1080)}
    # Qt makes the last one of this file the primary screen
    names = ("x", "y", "width", "height")
    listed = [{"name": n, "logicalDpi": 96, "dpr": 1, **dict(zip(names, places[n], strict=True))} for n in ("beamer", "laptop")]
    (tmp_path / "two.json").write_text(json.dumps({"screens": listed}))
    events = screens_of(ONLY, {"QT_QPA_PLATFORM": f"offscreen:configfile={tmp_path / 'two.json'}"})
    on = lambda stage, own: [stage, list(places[stage]), True, own, True]
    *talk, window = events
    assert talk == [on("beamer", "laptop"), on("laptop", "beamer"), on("beamer", "laptop")]
    assert window == [40, 30, 800, 600]  # where it was before, though the last swap had moved it


def test_with_one_screen_the_stage_covers_it_and_has_nothing_to_swap() -> None:
    events = screens_of(ONLY, {"QT_QPA_PLATFORM": "offscreen"})
    assert len(events) == 4 and events[0] == events[1] == events[2]
    name, _, covers, own, two = events[0]
    assert (covers, own, two) == (True, name, False)


def test_a_screen_that_goes_away_leaves_the_stage_on_the_one_that_stays_and_has_it_again_when_it_returns(qtbot: Any) -> None:
    there = [LAPTOP, BEAMER]
    stage, speaker = QWidget(), QWidget()
    for widget in (stage, speaker):
        qtbot.addWidget(widget)
    speaker.setGeometry(100, 100, 600, 400)
    speaker.show()
    screens = Screens(stage, speaker, stage, lambda: there)

    def change(*now: Screen) -> tuple[str, bool, bool]:
        there[:] = now
        with qtbot.waitSignal(screens.changed):
            QGuiApplication.instance().screenRemoved.emit(QGuiApplication.primaryScreen())  # type: ignore[union-attr]
        return screens.at, screens.two, stage.isVisible() and stage.isFullScreen()

    screens.show("beamer")
    assert screens.at == "beamer"
    assert change(LAPTOP) == ("laptop", False, True)
    assert change(LAPTOP, THIRD) == ("tv", True, True)  # not over the speaker's notes
    assert change(LAPTOP, BEAMER) == ("beamer", True, True)
    assert change(BEAMER) == ("beamer", False, True)  # the speaker's screen goes
    assert BEAMER.place.contains(speaker.geometry())
    assert change(BEAMER, LAPTOP) == ("beamer", True, True)
    assert LAPTOP.place.contains(speaker.geometry())


def test_a_screen_that_comes_in_the_middle_of_a_talk_gets_the_stage(qtbot: Any) -> None:
    there = [LAPTOP]
    stage, speaker = QWidget(), QWidget()
    for widget in (stage, speaker):
        qtbot.addWidget(widget)
    speaker.setGeometry(100, 100, 600, 400)
    screens = Screens(stage, speaker, stage, lambda: there)
    screens.show()
    assert (screens.at, screens.two) == ("laptop", False)
    there.append(BEAMER)
    screens.settle()
    assert (screens.at, screens.two) == ("beamer", True)


@pytest.mark.parametrize("place", [BEAMER.place, BEAMER.place.adjusted(100, 100, -100, -80)], ids=["all of it", "part of it"])
def test_a_speakers_window_that_a_smaller_screen_made_smaller_has_its_size_again_on_its_own(qtbot: Any, place: QRect) -> None:
    """Where no window manager maximises it."""
    stage, speaker = QWidget(), QWidget()
    for widget in (stage, speaker):
        qtbot.addWidget(widget)
    speaker.setGeometry(place)
    speaker.show()
    screens = Screens(stage, speaker, stage, lambda: [LAPTOP, BEAMER])
    screens.show("laptop")
    assert speaker.geometry() == place
    screens.swap()
    assert screens.at == "beamer" and speaker.geometry() == LAPTOP.place
    screens.swap()
    assert screens.at == "laptop" and BEAMER.place.contains(speaker.geometry())
    assert speaker.size() == place.size()


def test_a_stage_in_a_window_leaves_the_speaker_their_screen(qtbot: Any) -> None:
    stage, speaker = QWidget(), QWidget()
    for widget in (stage, speaker):
        qtbot.addWidget(widget)
    speaker.setGeometry(100, 100, 600, 400)
    stage.resize(640, 360)
    screens = Screens(stage, speaker, stage, lambda: [LAPTOP])
    screens.show(windowed=True)
    assert (screens.two, stage.isFullScreen(), stage.size().toTuple()) == (True, False, (640, 360))


PULLED = (
    PROGRAM
    + """
import os, time
from tests.patience import SECONDS
from tests.x_screens import XServer

server = XServer(os.environ["DISPLAY"])
changed = []
screens.changed.connect(lambda: changed.append(1))

def wait():
    changed.clear()
    end = time.monotonic() + SECONDS
    while not changed and time.monotonic() < end:
        app.processEvents()
        time.sleep(0.01)
    seen()

server.remove("beamer")
wait()
server.add("beamer", (1280, 0, 1920, 1080))
wait()
print(json.dumps(events))
"""
)


@pytest.mark.slow
def test_a_cable_that_is_pulled_out_in_the_middle_of_a_talk_and_plugged_in_again() -> None:
    from tests.x_screens import x_server

    places = {"laptop": (0, 0, 1280, 800), "beamer": (1280, 0, 1920, 1080)}
    with x_server(3200, 1080) as server:
        for name, place in places.items():
            server.add(name, place)
        events = screens_of(PULLED, {"QT_QPA_PLATFORM": "xcb", "DISPLAY": server.display})
    on = lambda stage, own, two=True: [stage, list(places[stage]), True, own, two]
    two = [on("beamer", "laptop"), on("laptop", "beamer"), on("beamer", "laptop")]
    assert events == [*two, on("laptop", "laptop", False), on("beamer", "laptop")]
