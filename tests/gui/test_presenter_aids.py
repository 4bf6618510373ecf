"""Pointing aids over a widget of painted stripes, by its pixels: black is black, the ring is where the pointer is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QImage, QMouseEvent, QPainter, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.look.theme import LIGHT
from circuitlab.gui.presenter.aids import Aids
from tests.pointer import drag, move

WIDE, HIGH = 480, 280
SHIFT, NO_KEY = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.NoModifier


class Striped(QWidget):
    """Squares of many colours; counts what the pointer does to it."""

    def __init__(self) -> None:
        super().__init__()
        self.setMouseTracking(True)
        self.moves = self.wheels = 0
        self.button = QPushButton("live", self)
        self.button.setGeometry(200, 100, 80, 40)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        for row in range(0, HIGH, 20):
            for column in range(0, WIDE, 20):
                painter.fillRect(column, row, 20, 20, QColor.fromHsv((7 * row + 3 * column) % 360, 200, 120 + row // 4))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.moves += 1

    def wheelEvent(self, event: QWheelEvent) -> None:
        self.wheels += 1


@pytest.fixture
def target(qtbot: Any) -> Iterator[Striped]:
    widget = Striped()
    qtbot.addWidget(widget)
    widget.resize(WIDE, HIGH)
    widget.show()
    yield widget


@pytest.fixture
def aids(target: Striped) -> Aids:
    return Aids(target, exists=lambda number: 1 <= number <= 12)


def pixels(widget: QWidget) -> np.ndarray:
    """The widget as it is seen, [height, width, (r, g, b)]."""
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).copy()


def wheel(widget: QWidget, at: QPoint, notches: float, keys: Qt.KeyboardModifier = SHIFT, sideways: bool = False) -> None:
    """A turn of the wheel over the widget, sent to its native window."""
    angle = QPoint(round(120 * notches), 0) if sideways else QPoint(0, round(120 * notches))
    none, phase = Qt.MouseButton.NoButton, Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(QPointF(at), QPointF(widget.mapToGlobal(at)), QPoint(), angle, none, keys, phase, False)
    QApplication.sendEvent(widget.windowHandle(), event)


@pytest.mark.parametrize(("colour", "value"), [("black", 0), ("white", 255)])
def test_black_is_black_and_white_is_white_and_the_same_key_shows_the_picture_again(
    target: Striped, aids: Aids, colour: str, value: int
) -> None:
    before = pixels(target)
    toggle: Callable[[], None] = getattr(aids, colour)
    aids.ring_pointer()
    move(target, QPoint(100, 100))
    toggle()
    assert (pixels(target) == value).all()
    moves = target.moves
    move(target, QPoint(120, 100))
    assert target.moves == moves
    aids.ring_pointer()
    toggle()
    assert (pixels(target) == before).all()
    assert not aids.active


def test_black_over_white_is_black_and_covers_a_widget_that_grows(target: Striped, aids: Aids) -> None:
    aids.white()
    aids.black()
    target.resize(WIDE + 90, HIGH + 60)
    assert (pixels(target) == 0).all()
    assert aids.back_out()
    assert not aids.back_out()
    assert not (pixels(target) == 0).all()


@pytest.mark.parametrize("at", [QPoint(150, 60), QPoint(240, 120), QPoint(3, 270)])
def test_the_ring_is_where_the_pointer_is_also_over_a_child(target: Striped, aids: Aids, at: QPoint) -> None:
    move(target, QPoint(150, 60))  # the button looks hovered or not as it was
    move(target, at)
    before = pixels(target)
    aids.ring_pointer()
    move(target, at)
    changed = np.argwhere((pixels(target) != before).any(axis=2))  # rows of (y, x)
    distance = np.hypot(changed[:, 1] - at.x(), changed[:, 0] - at.y())
    radius = aids.ring.width() / 2
    assert distance.max() <= radius + 1
    assert distance.min() >= radius - 4 * aids.ring.stroke  # what it points at is left as it is
    angles = {int(8 * (np.arctan2(y - at.y(), x - at.x()) / (2 * np.pi) % 1)) for y, x in changed}
    assert len(angles) == 8 if target.rect().adjusted(40, 40, -40, -40).contains(at) else angles


def contrast(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of colours [..., (r, g, b)] with each other, as WCAG 2 defines it."""
    part = lambda c: np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)
    one, other = part(a / 255.0), part(b / 255.0)
    return (np.maximum(one, other) + 0.05) / (np.minimum(one, other) + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_lies_below_the_ring_is_read_through_it(qtbot: Any, target: Striped, dark: bool) -> None:
    theme = stage_theme(1080, dark)
    plain = QLabel()
    qtbot.addWidget(plain)
    plain.resize(1920, 1080)
    plain.setAutoFillBackground(True)
    aids, seen = Aids(plain), {}
    aids.set_theme(theme)
    plain.show()
    aids.ring_pointer()
    strongest = tuple(rgb(np.array([1.0]), (0.0, 1.0), "magnitude", theme)[0].tolist())
    colours = {"ground": theme.colour("background"), "ink": theme.colour("text"), "cell": QColor(*strongest)}
    for name, colour in colours.items():
        ground = plain.palette()
        ground.setColor(plain.backgroundRole(), colour)
        plain.setPalette(ground)
        move(plain, QPoint(960, 540))
        seen[name] = pixels(plain)
    touched = (seen["ground"] != seen["ground"][0, 0]).any(axis=2) | (seen["cell"] != seen["cell"][0, 0]).any(axis=2)
    assert touched.sum() > 1000
    read = contrast(seen["ink"], seen["ground"])[touched]
    assert read.min() >= 3.0, "a letter below it"
    for name, least in (("ground", 5.5), ("cell", 3.0)):
        row = seen[name][540]
        assert contrast(row, np.broadcast_to(row[0], row.shape)).max() >= least, f"the ring is seen on {name}"


def test_the_ring_takes_no_click_and_leaves_with_the_pointer(qtbot: Any, target: Striped, aids: Aids) -> None:
    aids.ring_pointer()
    move(target, target.button.geometry().center())
    with qtbot.waitSignal(target.button.clicked):
        drag(target, target.button.geometry().center(), target.button.geometry().center())
    move(target, QPoint(-30, 40))
    assert aids.ring.isHidden()


def test_a_frozen_picture_is_the_same_pixels_and_deaf_to_the_pointer(qtbot: Any, target: Striped, aids: Aids) -> None:
    before = pixels(target)
    aids.freeze()
    assert aids.frozen
    target.button.setText("another")
    clicks: list[bool] = []
    target.button.clicked.connect(clicks.append)
    moves = target.moves
    move(target, target.button.geometry().center())
    drag(target, target.button.geometry().center(), target.button.geometry().center())
    wheel(target, QPoint(30, 30), 1, NO_KEY)
    assert (pixels(target) == before).all()
    assert (target.moves, target.wheels, clicks) == (moves, 0, [])
    aids.freeze()
    assert not aids.frozen
    assert (pixels(target) != before).any()


def test_what_is_frozen_is_not_cleared_and_what_is_magnified_alone_is(target: Striped, aids: Aids) -> None:
    before = pixels(target)
    aids.magnify(2, QPointF(100, 100))
    aids.clear()
    assert (pixels(target) == before).all() and not aids.active
    aids.freeze()
    target.button.setText("another")
    aids.magnify(2, QPointF(100, 100))
    aids.magnify(0.5, QPointF(100, 100))
    aids.black()
    aids.clear()
    assert aids.frozen and (pixels(target) == before).all()
    assert aids.back_out() and not aids.back_out()
    assert (pixels(target) != before).any()
    aids.magnify(2, QPointF(100, 100))
    larger = pixels(target)
    aids.freeze()
    aids.clear()
    assert (pixels(target) == larger).all() and "frozen" in aids.state and "2 times" in aids.state


def test_a_frozen_picture_is_seen_whole_on_a_screen_of_another_size(target: Striped, aids: Aids) -> None:
    aids.freeze()
    before = pixels(target)
    target.resize(2 * WIDE, 2 * HIGH + 60)
    after = pixels(target)
    ground = QColor(LIGHT.background)
    assert (after[:29] == (ground.red(), ground.green(), ground.blue())).all() and (after[-29:] == after[0, 0]).all()
    inside = after[30:-30].reshape(HIGH, 2, WIDE, 2, 3).mean(axis=(1, 3))
    assert np.median(np.abs(inside - before)) <= 2


@pytest.mark.parametrize("at", [QPoint(0, 0), QPoint(130, 90), QPoint(WIDE - 1, HIGH - 1)])
@pytest.mark.parametrize("sideways", [False, True])
def test_the_magnified_picture_is_the_pixmap_scaled_about_the_pointer(
    target: Striped, aids: Aids, at: QPoint, sideways: bool
) -> None:
    before = target.grab().toImage()
    for _ in range(3):
        wheel(target, at, 1, sideways=sideways)
    scale = 1.25**3
    assert aids.still.scale == pytest.approx(scale)
    smooth = Qt.TransformationMode.SmoothTransformation
    whole = before.scaled(round(WIDE * scale), round(HIGH * scale), Qt.AspectRatioMode.IgnoreAspectRatio, smooth)
    shifted = QPoint(round(at.x() * (scale - 1)), round(at.y() * (scale - 1)))  # `at` lies under itself
    expected = pixels_of(whole.copy(shifted.x(), shifted.y(), WIDE, HIGH))
    difference = np.abs(pixels(target).astype(int) - expected).max(axis=2)
    assert np.mean(difference > 8) < 0.12  # edges of squares, where interpolations differ by part of a pixel
    inside = pixels(target)[at.y(), at.x()]
    assert np.abs(inside.astype(int) - pixels_of(before)[at.y(), at.x()]).max() <= 8
    assert target.wheels == 0
    aids.clear()
    assert (pixels(target) == pixels_of(before)).all()


def pixels_of(image: QImage) -> np.ndarray:
    image = image.convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).astype(int)


def test_as_many_notches_back_show_the_target_itself_again(target: Striped, aids: Aids) -> None:
    for notches in (0.5, 0.5, 1, 1):
        wheel(target, QPoint(200, 80), notches)
    assert aids.still.scale == pytest.approx(1.25**3)
    wheel(target, QPoint(40, 250), -1)
    wheel(target, QPoint(470, 20), -2)
    assert not aids.frozen
    wheel(target, QPoint(40, 250), -1)
    assert not aids.frozen  # a picture is never smaller than the target


def test_a_wheel_without_shift_goes_to_what_is_under_the_pointer(target: Striped, aids: Aids) -> None:
    wheel(target, QPoint(30, 30), 1, NO_KEY)
    assert target.wheels == 1
    assert not aids.frozen


def test_nothing_is_magnified_under_a_black_stage(target: Striped, aids: Aids) -> None:
    before = pixels(target)
    aids.black()
    wheel(target, QPoint(30, 30), 2)
    aids.black()
    assert not aids.active and (pixels(target) == before).all()


def test_a_magnified_picture_is_dragged_to_its_edges_and_no_further(target: Striped, aids: Aids) -> None:
    wheel(target, QPoint(240, 140), 3)
    drag(target, QPoint(100, 100), QPoint(140, 90))
    assert aids.still.seen.center().x() == pytest.approx(240 - 40 / 1.25**3)
    drag(target, QPoint(5, 5), QPoint(475, 275))
    assert aids.still.seen.topLeft() == QPointF(0, 0)
    drag(target, QPoint(475, 275), QPoint(5, 5))
    drag(target, QPoint(475, 275), QPoint(5, 5))
    assert aids.still.seen.right() == pytest.approx(WIDE)
    assert aids.still.seen.bottom() == pytest.approx(HIGH)


def test_digits_are_shown_and_lead_to_a_step_that_there_is(qtbot: Any, target: Striped, aids: Aids) -> None:
    before = pixels(target)
    asked: list[int] = []
    aids.asked.connect(asked.append)
    aids.digit("0")
    assert not aids.typing
    aids.digit("1")
    aids.digit("2")
    assert aids.number.text == "12"
    shown = np.argwhere((pixels(target) != before).any(axis=2))
    assert len(shown) and shown[:, 0].min() > HIGH / 2
    aids.confirm()
    assert asked == [12]
    assert (pixels(target) == before).all()
    for digit in "31":
        aids.digit(digit)
    aids.confirm()
    assert asked == [12]  # there is no step 31
    assert "31" in aids.number.text
    aids.erase()
    aids.confirm()
    assert asked == [12, 3]
    aids.confirm()
    assert asked == [12, 3]


def test_a_number_without_a_step_goes_by_itself_and_the_next_one_begins_anew(target: Striped, aids: Aids, qtbot: QtBot) -> None:
    asked: list[int] = []
    aids.asked.connect(asked.append)
    before = pixels(target)
    for digit in "99":
        aids.digit(digit)
    aids.confirm()
    assert aids.number.text.startswith("99:")
    aids.digit("4")
    assert aids.number.text == "4"
    assert not aids.refusal.isActive()  # what is being typed stays
    aids.confirm()
    assert asked == [4]
    aids.digit("0")
    for digit in "77":
        aids.digit(digit)
    aids.refusal.setInterval(0)
    with qtbot.waitSignal(aids.changed):
        aids.confirm()
    assert not aids.typing and not aids.active
    assert (pixels(target) == before).all()


def test_aids_are_left_one_by_one_the_last_first(target: Striped, aids: Aids) -> None:
    before = pixels(target)
    aids.ring_pointer()
    aids.freeze()
    aids.black()
    aids.digit("4")
    assert [aids.back_out(), aids.typing, aids.curtain.colour] == [True, False, "black"]
    assert [aids.back_out(), aids.curtain.colour, aids.frozen] == [True, "", True]
    assert [aids.back_out(), aids.frozen, aids.ringed] == [True, False, True]
    assert [aids.back_out(), aids.ringed, aids.active] == [True, False, False]
    assert not aids.back_out()
    assert (pixels(target) == before).all()


def test_a_still_picture_is_taken_without_the_aids_over_it(target: Striped, aids: Aids) -> None:
    move(target, QPoint(100, 100))
    before = pixels(target)
    aids.ring_pointer()
    move(target, QPoint(100, 100))
    aids.digit("4")
    aids.freeze()
    assert not aids.ring.isHidden()  # both stay above it
    assert not aids.number.isHidden()
    aids.back_out()
    aids.ring_pointer()
    assert aids.frozen
    assert (pixels(target) == before).all()


def test_what_the_target_gets_later_lies_under_the_aids(target: Striped, aids: Aids) -> None:
    aids.black()
    late = QPushButton("late", target)
    late.setGeometry(20, 20, 90, 40)
    late.show()
    assert (pixels(target) == 0).all()
    aids.black()
    assert (pixels(target)[30, 30] != 0).any()


def test_a_pointer_that_rests_is_hidden_until_it_moves(qtbot: Any, target: Striped, aids: Aids) -> None:
    hidden = lambda: (cursor := QApplication.overrideCursor()) is not None and cursor.shape() == Qt.CursorShape.BlankCursor
    aids.pointer.timer.setInterval(1)
    for end in (
        lambda: move(target, QPoint(60, 60)),
        lambda: QApplication.sendEvent(target.windowHandle(), QEvent(QEvent.Type.Leave)),
        target.hide,
    ):
        aids.pointer.timer.setInterval(1)
        move(target, QPoint(50, 50))
        qtbot.waitUntil(hidden)
        aids.pointer.timer.setInterval(60_000)
        end()
        assert not hidden() and QApplication.overrideCursor() is None
