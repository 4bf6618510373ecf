"""Running text: literal characters, colours by value, flow, gestures, and a long text that stays fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QRectF, Qt
from PySide6.QtGui import QImage, QPainter, QPicture
from PySide6.QtWidgets import QApplication

from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.painted.mark import plain_tip
from circuitlab.draw.painted.tokens import edited_at
from circuitlab.figures.marks import Figure, Tokens
from tests import pointer

TEXTS = ("<s>", "Mr", "·and", "·&amp;", "↵", "·Привет", "·αβγ", "<b>bold</b>")
VALUES = np.array([0.0, 1.0, 0.5, np.nan, 0.25, 0.75, 0.1, 0.9])


def tokens(**more) -> Tokens:
    return Tokens("text", **({"texts": TEXTS, "values": VALUES} | more))


def settled(view, mark):
    view.show_figure(Figure(((mark,),), "Text"))
    view.grab()
    QApplication.processEvents()
    return view.widget("text")


def middle(widget, i) -> QPoint:
    offset = widget.verticalScrollBar().value()
    return widget.item_rect((i,)).center().toPoint() - QPoint(0, offset)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_boxes_have_the_colours_of_their_values(view, theme):
    view.set_theme(theme)
    widget = settled(view, tokens())
    image = widget.viewport().grab().toImage()
    wanted = rgb(VALUES, (0.0, 1.0), "magnitude", theme)
    for i in range(len(TEXTS)):
        corner = widget.item_rect((i,)).topLeft().toPoint() + QPoint(1, 1)
        assert np.abs(np.array(image.pixelColor(corner).getRgb()[:3]) - wanted[i].astype(int)).max() <= 1, i


def test_text_is_painted_literally(view, monkeypatch):
    widget = settled(view, tokens())
    drawn = []
    real = widget._text
    monkeypatch.setattr(widget, "_text", lambda p, text, *rest: drawn.append(text) or real(p, text, *rest))
    widget.restyle()  # what has been written once is kept
    widget.viewport().grab()
    assert tuple(drawn[: len(TEXTS)]) == TEXTS
    assert set(drawn) == set(TEXTS)


def pixels(widget) -> np.ndarray:
    image = widget.viewport().grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4).astype(int)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_kept_text_looks_like_written_text(view, theme):
    view.set_theme(theme)
    widget = settled(view, tokens())
    stamped = pixels(widget)
    widget._on_paper = True
    written = pixels(widget)
    assert np.abs(stamped - written).max() <= 48  # a layer is blended twice, so the edges of letters are rounded twice
    assert np.abs(stamped - written).mean() < 0.5


def test_tool_tips_are_plain_text():
    assert plain_tip("<s> & </s>").count("<s>") == 0
    assert "&lt;s&gt; &amp; &lt;/s&gt;" in plain_tip("<s> & </s>")


def test_a_newline_ends_the_line(view):
    widget = settled(view, tokens())
    assert widget.item_rect((4,)).top() == widget.item_rect((0,)).top()
    assert widget.item_rect((5,)).top() > widget.item_rect((4,)).top()
    assert widget.item_rect((5,)).left() < 1


def test_gestures(view, qtbot):
    widget = settled(view, tokens(unit="weight"))
    said = []
    view.hovered.connect(lambda hit, text: said.append((hit.id, text)))
    pointer.move(widget.viewport(), middle(widget, 5))
    qtbot.waitUntil(lambda: said[-1:] == [((5,), "5 ‘·Привет’ · 0.7500 weight")])
    for modifier, gesture in (
        (Qt.KeyboardModifier.NoModifier, "click"),
        (Qt.KeyboardModifier.ShiftModifier, "shift-click"),
    ):
        with qtbot.waitSignal(view.picked) as picked:
            qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, modifier, middle(widget, 2))
        assert (picked.args[0].id, picked.args[0].gesture) == ((2,), gesture)
    with qtbot.waitSignal(view.hovered) as left:
        QApplication.sendEvent(widget, QEvent(QEvent.Type.Leave))
    assert (left.args[0].id, left.args[0].gesture) == ((), "leave")


def test_keys_walk_the_text(view, qtbot):
    widget = settled(view, tokens(row=1))
    seen = []
    view.hovered.connect(lambda hit, _: seen.append(hit.id))
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_Left, Qt.Key.Key_Down, Qt.Key.Key_Up):
        qtbot.keyClick(widget, key)
    assert seen[0] == (1,)
    assert seen[1] == (2,)
    assert seen[2] == (1,)
    assert seen[3][0] > 4
    assert seen[4][0] < 5


def test_a_locked_token_is_outlined_in_the_accent(view):
    widget = settled(view, tokens(row=2, locked=True))
    image = widget.viewport().grab().toImage()
    rect = widget.item_rect((2,))
    edge = image.pixelColor(round(rect.center().x()), round(rect.top()))
    assert edge.name() == LIGHT.accent


def test_flow_is_kept_when_only_values_change(view, monkeypatch):
    mark = tokens()
    widget = settled(view, mark)
    monkeypatch.setattr(widget, "_measure", lambda: pytest.fail("measured again"))
    view.show_figure(Figure(((replace(mark, values=VALUES * 0.5, row=3),),), "Text"))
    widget.viewport().grab()


def test_a_long_text_paints_only_what_is_visible(view, monkeypatch):
    widget = settled(view, tokens(texts=tuple(f"·t{i}" for i in range(8192)), values=np.zeros(8192)))
    assert widget.verticalScrollBar().maximum() > 0
    count = []
    real = widget._text
    monkeypatch.setattr(widget, "_text", lambda *a: count.append(1) or real(*a))
    picture = QPicture()
    painter = QPainter(picture)
    widget.draw(painter, QRectF(0, 200, 600, 100))
    painter.end()
    assert 0 < len(count) < 200


def test_no_tokens(view):
    assert settled(view, tokens(texts=(), values=np.zeros(0))).walk(None, 1, 0) is None


def test_lines_are_seen_whole_and_the_token_that_is_read_stays_in_sight(view):
    texts = tuple(f"word{i}" for i in range(200))
    for row in (199, 0, 120):
        view.show_figure(Figure(((Tokens("t", texts, np.zeros(200), row=row, locked=True),),), "t"))
        for height in (200, 211, 223):
            view.resize(400, height)
            QApplication.processEvents()
            mark = view.widget("t")
            high, line = mark.viewport().height(), mark.line_height()
            assert high % line == 0 and mark.offset % line == 0
            box = mark.item_rect((row,)).translated(0, -mark.offset)
            assert box.top() >= 0 and box.bottom() <= high


def in_sight(widget, i) -> bool:
    rect = widget.item_rect((i,)).translated(0, -widget.verticalScrollBar().value())
    return rect.top() >= -1 and rect.bottom() <= widget.viewport().height() + 1


def long_text(*words) -> Tokens:
    return tokens(texts=words, values=np.zeros(len(words)))


def test_what_is_typed_stays_in_sight(view):
    view.resize(300, 120)
    words = [f"·word{i}" for i in range(300)]
    widget = settled(view, long_text(*words))
    assert in_sight(widget, 0)  # a text that is opened begins at its beginning
    widget = settled(view, long_text(*words, "·more"))
    assert in_sight(widget, 300) and not in_sight(widget, 0)
    widget = settled(view, long_text(*words[:7], "·new", *words[7:], "·more"))
    assert in_sight(widget, 7) and not in_sight(widget, 301)
    widget = settled(view, replace(long_text(*words, "·other"), row=150))
    assert in_sight(widget, 150)  # what is selected goes before it


@pytest.mark.parametrize(
    ("old", "new", "at"),
    [
        ("", "abc", None),
        ("abc", "", None),
        ("abcd", "abcde", 4),
        ("aaaa", "aaaaa", 4),
        ("abcd", "abxcd", 2),
        ("abcd", "abc", 2),
        ("abcd", "bcd", 0),
        ("abcd", "abxy", 3),
        ("abcd", "xyzw", None),
    ],
)
def test_where_a_text_was_edited(old, new, at):
    assert edited_at(tuple(old), tuple(new)) == at
