"""A heatmap draws its numbers, gives back its cells, and uploads an image only when there is another one."""

from __future__ import annotations

import colorsys
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QImage
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import render
from circuitlab.draw.heatmap.heatmap import pooled
from circuitlab.draw.look.colours import inked, rgb, table
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.errors import BadFigure
from circuitlab.figures.marks import Axis, Figure, Heatmap, Tiles
from tests import pointer

RNG = np.random.default_rng(0)
VALUES = RNG.uniform(-1, 1, (7, 9)).astype(np.float32)
VALUES[2, 3] = np.nan


def heat(**more) -> Heatmap:
    fields = {"values": VALUES, "levels": (-1.0, 1.0), "map": "signed"} | more
    return Heatmap("map", **fields)


def figure(mark) -> Figure:
    return Figure(((mark,),), "title", ("caption",))


def centre(widget, row, col) -> QPoint:
    return QPointF(*widget.to_pixels(np.array([col + 0.5]), np.array([row + 0.5]))[0]).toPoint()


def settled(view, mark):
    view.show_figure(figure(mark))
    view.grab()
    QApplication.processEvents()
    return view.widget("map")


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
@pytest.mark.parametrize(("name", "levels"), [("signed", (-1.0, 1.0)), ("magnitude", (0.0, 1.0)), ("loss", (0.0, 0.5))])
def test_pixels_are_the_values(view, theme, name, levels):
    view.set_theme(theme)
    widget = settled(view, heat(map=name, levels=levels))
    image = widget.viewport().grab().toImage()
    wanted = rgb(VALUES, levels, name, theme)
    for row in range(7):
        for col in range(9):
            seen = image.pixelColor(centre(widget, row, col))
            assert np.abs(np.array(seen.getRgb()[:3]) - wanted[row, col].astype(int)).max() <= 1, (row, col)


def test_zero_is_the_background_in_both_themes():
    for theme in (LIGHT, DARK):
        ground = np.array(theme.colour("background").getRgb()[:3])
        for name, levels in (("signed", (-2.0, 2.0)), ("magnitude", (0.0, 2.0)), ("loss", (0.0, 2.0))):
            assert (rgb(np.zeros(1), levels, name, theme)[0] == ground).all(), name


def test_a_theme_changes_how_light_a_number_is_and_not_its_hue():
    for name, low, values in (("signed", -2.0, (-2, -1, 0.5, 2)), ("magnitude", 0.0, (0.5, 1, 2)), ("loss", 0.0, (0.5, 1, 2))):
        for value in values:
            colours = [rgb(np.array([value]), (low, 2.0), name, theme)[0] / 255 for theme in (LIGHT, DARK)]
            light, dark = (colorsys.rgb_to_hsv(*colour)[0] for colour in colours)
            assert min(abs(light - dark), 1 - abs(light - dark)) < 0.16, (name, value)  # of a circle; the sides of signed: 0.5


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_lightness_of_magnitude_is_monotone(theme):
    light = table("magnitude", theme)[1:].astype(float) @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(light) * (1 if theme.dark else -1) > -0.8).all()


def test_cells_have_whole_pixels(view):
    widget = settled(view, heat())
    frame = widget.frame()
    assert frame.width() / 9 == frame.height() / 7 == int(frame.width() / 9)


def test_cells_stay_square_when_the_panel_shrinks(view):
    widget = settled(view, heat())
    for size in ((640, 300), (300, 560), (900, 400)):
        view.resize(*size)
        view.grab()
        QApplication.processEvents()
        frame = widget.frame()
        assert frame.width() / 9 == pytest.approx(frame.height() / 7), size
        assert widget.viewport().rect().contains(frame.toRect()), size


def test_hover_click_shift_and_double_click_give_the_cell(view, qtbot):
    widget = settled(view, heat())
    at = centre(widget, 4, 6)
    hovered = []
    view.hovered.connect(lambda hit, _: hovered.append((hit.id, hit.gesture)))
    pointer.move(widget.viewport(), at)
    qtbot.waitUntil(lambda: hovered[-1:] == [((4, 6), "hover")])
    for modifier, gesture in (
        (Qt.KeyboardModifier.NoModifier, "click"),
        (Qt.KeyboardModifier.ShiftModifier, "shift-click"),
    ):
        with qtbot.waitSignal(view.picked) as picked:
            qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, modifier, at)
        assert (picked.args[0].mark, picked.args[0].id, picked.args[0].gesture) == ("map", (4, 6), gesture)
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.mouseDClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert picked.args[0].gesture == "double-click"
    with qtbot.waitSignal(view.hovered) as left:
        QApplication.sendEvent(widget, QEvent(QEvent.Type.Leave))
    assert (left.args[0].id, left.args[0].gesture, left.args[1]) == ((), "leave", "")


@pytest.mark.parametrize("part", [(0.04, 0.04), (0.96, 0.04), (0.04, 0.96), (0.96, 0.96)])
def test_a_click_anywhere_in_a_cell_takes_that_cell(view, qtbot, part):
    widget = settled(view, heat())
    at = QPointF(*widget.to_pixels(np.array([6 + part[0]]), np.array([4 + part[1]]))[0]).toPoint()
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert picked.args[0].id == (4, 6)


def test_a_drag_is_not_a_click(view, qtbot):
    widget = settled(view, heat())
    with qtbot.assertNotEmitted(view.picked):
        pointer.drag(widget.viewport(), centre(widget, 1, 1), centre(widget, 3, 3))


def test_readout_names_both_tokens_and_the_value(view):
    x, y = Axis("source", tuple("abcdefghi"), tokens=True), Axis("destination", ("<s>", *"pqrstu"), tokens=True)
    widget = settled(view, heat(x=x, y=y, unit="weight"))
    assert widget.readout((0, 2)) == f"destination 0 ‘<s>’ · source 2 ‘c’ · {VALUES[0, 2]:.4f} weight".replace("-", "−")


def test_arrows_walk_from_the_crosshair_and_enter_clicks(view, qtbot):
    widget = settled(view, heat(row=3, col=4))
    with qtbot.waitSignal(view.hovered) as hovered:
        qtbot.keyClick(widget, Qt.Key.Key_Down)
    assert hovered.args[0].id == (4, 4)
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.keyClick(widget, Qt.Key.Key_Return)
    assert (picked.args[0].id, picked.args[0].gesture) == ((4, 4), "click")
    with qtbot.waitSignal(view.picked) as left:
        qtbot.keyClick(widget, Qt.Key.Key_Escape)
    assert left.args[0].gesture == "leave"


def test_crosshair_does_not_upload_the_image_again(view, monkeypatch):
    mark = heat()
    widget = settled(view, mark)
    calls = []
    real = widget.image.setImage
    monkeypatch.setattr(widget.image, "setImage", lambda *a, **k: calls.append(1) or real(*a, **k))
    for row in range(5):
        view.show_figure(figure(replace(mark, row=row, col=1)))
    assert not calls
    assert view.widget("map") is widget
    view.show_figure(figure(replace(mark, values=VALUES.copy())))
    assert len(calls) == 1


def test_zoom_survives_other_values_and_r_resets(view, qtbot):
    widget = settled(view, heat())
    widget.box.setRange(xRange=(2, 4), yRange=(1, 3), padding=0)
    view.show_figure(figure(heat(values=-VALUES)))
    assert widget.box.viewRange() == [[2, 4], [1, 3]]
    qtbot.keyClick(widget, Qt.Key.Key_R)
    assert widget.box.viewRange() == [[0, 9], [0, 7]]


def test_tiles_give_the_tile(view, qtbot):
    sheet = np.full((2 * 12 - 2, 3 * 12 - 2), 0.5, dtype=np.float32)
    axes = {"x": Axis("head", ("H0", "H1", "H2")), "y": Axis("layer", ("L0", "L1"))}
    mark = Heatmap("map", sheet, (0, 1), tiles=Tiles(2, 3, 10, 10, 2, ((0, 1),)), colour_bar=False, **axes)
    widget = settled(view, mark)
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=centre(widget, 15, 30))
    assert picked.args[0].id == (1, 2)
    assert widget.readout((1, 2)) == "L1H2"


def test_colours_given_are_colours_drawn(view):
    colours = RNG.integers(0, 256, (7, 9, 3)).astype(np.uint8)
    widget = settled(view, heat(rgb=colours, legend=(("L0H1", 1),), colour_bar=False))
    image = widget.viewport().grab().toImage()
    for row, col in ((0, 0), (3, 5), (6, 8)):
        seen = np.array(image.pixelColor(centre(widget, row, col)).getRgb()[:3])
        assert np.abs(seen - colours[row, col].astype(int)).max() <= 3


def test_a_legend_shows_the_colour_that_the_cells_have(view):
    ink = np.full((7, 9, 3), (240, 150, 50), np.uint8)
    for theme in (LIGHT, DARK):
        view.set_theme(theme)
        widget = settled(view, heat(rgb=ink, legend=(("elsewhere", (240, 150, 50)),), colour_bar=False))
        cell = widget.viewport().grab().toImage().pixelColor(centre(widget, 3, 5)).getRgb()[:3]
        assert np.abs(np.subtract(widget.legend._entries[0][1], cell)).max() <= 3


def test_ink_on_white_is_unchanged_and_white_vanishes_on_black():
    colours = RNG.integers(0, 256, (50, 3)).astype(np.uint8)
    assert np.abs(inked(colours, LIGHT).astype(int) - colours).max() <= 2
    assert (inked(np.full((1, 3), 255, np.uint8), DARK)[0] == DARK.colour("background").getRgb()[:3]).all()


def test_pooling_keeps_the_largest_magnitude_and_its_sign():
    values = np.array([[1, -3, np.nan], [2, 0.5, np.nan]], dtype=np.float32)
    assert np.array_equal(pooled(values), np.array([[-3, np.nan]]), equal_nan=True)


def test_a_diagonal_survives_a_small_panel(view):
    values = np.zeros((1500, 1500), dtype=np.float32)
    values[np.arange(1500), np.arange(1500)] = 1
    widget = settled(view, heat(values=values, levels=(0.0, 1.0), map="magnitude"))
    image = widget.viewport().grab().toImage()
    ground = np.array(LIGHT.colour("background").getRgb()[:3])
    for i in range(100, 1400, 50):
        at = centre(widget, i, i)
        near = [image.pixelColor(at + QPoint(dx, dy)).getRgb()[:3] for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
        assert np.abs(np.array(near) - ground).sum(axis=1).max() > 300, i
    assert "largest of" in view.accessibleDescription()


def test_one_token_and_high_resolution():
    one = Heatmap("map", np.ones((1, 1), np.float32), (0, 1), x=Axis("source", ("a",), True), y=Axis("destination", ("a",), True))
    image = render(figure(one), QSize(300, 200), DARK, 2.0)
    assert (image.width(), image.height()) == (600, 400)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_the_hatching_of_an_estimate_shows_on_every_colour(view, theme):
    view.set_theme(theme)
    values = np.array([[-1, -0.5, 0, 0.5, 1]], dtype=np.float32)
    widget = settled(view, heat(values=values, hatched=np.ones((1, 5), dtype=bool)))
    image = widget.viewport().grab().toImage()
    for col in range(5):
        middle = centre(widget, 0, col)
        seen = {image.pixelColor(middle + QPoint(dx, dy)).lightness() for dx in range(-6, 7) for dy in range(-6, 7)}
        assert max(seen) - min(seen) > 40, (col, seen)


def test_labels_have_room_beside_cells_of_any_size(view):
    """Where tokens fit only without the room they take, numbers stand in their place."""
    names = ("<|bos|>", *"ABCDABCDA")
    axes = {"x": Axis("source", names, tokens=True), "y": Axis("destination", names, tokens=True)}
    widget = settled(view, Heatmap("map", np.eye(10, dtype=np.float32), (0.0, 1.0), **axes))
    kinds = set()
    for height in range(120, 320, 5):
        view.resize(500, height)
        view.grab()
        QApplication.processEvents()
        view.grab()
        axis = widget.left_axis
        labels, numbers = axis.labels, axis.labels.shows_numbers(axis.room)
        kinds.add(numbers)
        longest = max(map(QFontMetricsF(labels.labelling(axis.room).font).horizontalAdvance, labels.labels(numbers)))
        assert longest + 4 < axis.width() < longest + 40, height
    assert kinds == {True, False}


def test_a_map_after_others_is_laid_out_as_it_is_in_a_new_view(view, qtbot):
    values = np.eye(6, dtype=np.float32)
    plain = Heatmap("map", values, (0.0, 1.0), x=Axis("source", tuple("abcdef")), y=Axis("destination", tuple("abcdef")))
    names = tuple("a much longer name" for _ in range(6))
    legend = tuple((f"a head that is named {i}", i) for i in range(9))
    marks = [
        plain,
        replace(plain, y=Axis("destination", names)),
        replace(plain, values=values[:3], y=Axis("destination", tuple("abc"))),
        replace(plain, unit="nats · per token"),
        replace(plain, colour_bar=False),
        replace(plain, square=False),
        replace(plain, legend=legend),
    ]
    for mark in marks:
        settled(view, plain)
        after = settled(view, mark).frame()
        fresh = FigureView()
        qtbot.addWidget(fresh)
        fresh.resize(view.size())
        with qtbot.waitExposed(fresh):
            fresh.show()
        assert settled(fresh, mark).frame() == after, mark
        fresh.hide()


def test_labels_are_measured_again_where_they_or_the_text_size_change(view):
    widths, long, large = [], ("a long name", "b"), replace(LIGHT, small=16.0, normal=19.0)
    for theme, names in ((LIGHT, ("a", "b")), (LIGHT, long), (large, long)):
        view.set_theme(theme)
        widget = settled(view, Heatmap("map", np.eye(2, dtype=np.float32), (0.0, 1.0), y=Axis("row", names)))
        widths.append(widget.left_axis.width())
    assert widths[0] + 30 < widths[1] < widths[2] - 15, widths


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_what_is_struck_is_crossed_on_light_and_dark_cells_and_nothing_else_is(view, theme):
    view.set_theme(theme)
    tiles = Tiles(2, 2, 20, 20)
    full = np.ones((42, 42), np.float32)
    full[20:22] = full[:, 20:22] = np.nan
    for values in (full, 0 * full):
        heat = Heatmap("map", values, (0.0, 1.0), tiles=tiles, colour_bar=False)
        shots = []
        for struck in ((), ((0, 1),)):
            widget = settled(view, replace(heat, struck=struck))
            image = widget.viewport().grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
            shots.append(np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.width(), 4).astype(int))
        y, x = np.nonzero(np.abs(shots[1] - shots[0]).max(axis=2) > 40)
        (left, top), (right, bottom) = widget.to_pixels(np.array([22.0, 42.0]), np.array([0.0, 20.0]))
        ratio = widget.devicePixelRatioF()
        assert len(x) > 20, "it can be seen"
        assert left * ratio <= x.min() and x.max() <= right * ratio and top * ratio <= y.min() and y.max() <= bottom * ratio
    with pytest.raises(BadFigure, match="struck"):
        replace(heat, struck=((2, 0),))


def test_a_map_without_room_gives_its_titles_to_the_caption_and_gets_theirs(view):
    square = np.zeros((30, 30), np.float32)
    mark = Heatmap("map", square, (0.0, 1.0), x=Axis("source"), y=Axis("destination"), unit="weight")
    sides = {}
    for height in (400, 150, 120, 110):
        view.resize(420, height)
        widget = settled(view, mark)
        sides[height] = widget.frame().height()
        titled = all(axis.labels.shows_title(axis.room) for axis in (widget.left_axis, widget.bottom_axis))
        assert titled == ("down: destination · across: source" not in view.whole_caption), height
        assert titled or not widget.bar.isVisible()
    assert sides[400] > sides[150] and not titled
    view.resize(420, 400)
    assert not settled(view, mark).left_axis.room.untitled, "and back"


def test_a_map_whose_cells_have_no_room_for_their_texts_says_so(view):
    values = np.ones((3, 6), np.float32)
    named = Heatmap("m", values, (0.0, 1.0), square=False, texts=np.full(values.shape, "token", dtype=object))
    view.resize(900, 300)
    view.show_figure(Figure(((named,),), "t"))
    view.grab()
    QApplication.processEvents()
    assert "no room" not in view.whole_caption
    view.resize(160, 300)
    QApplication.processEvents()
    view.grab()
    QApplication.processEvents()
    assert "no room for the texts of cells" in view.whole_caption
    view.show_figure(Figure(((replace(named, texts=None),),), "t"))
    view.grab()
    QApplication.processEvents()
    assert "no room" not in view.whole_caption


def test_a_bracket_holds_the_steps_that_belong_together_whichever_way_the_map_lies(view):
    names = tuple(f"H{i}" for i in range(6))
    for across in (True, False):
        shown = []
        for brackets in ((), ((0, 3), (3, 6))):
            heads, layers = Axis("head", names, brackets=brackets), Axis("layer", ("L0", "L1"))
            x, y = (heads, layers) if across else (layers, heads)
            values = np.zeros((len(y.ticks), len(x.ticks)), np.float32)
            view.show_figure(Figure(((Heatmap("map", values, (0.0, 1.0), x=x, y=y),),), "t"))
            view.grab()
            QApplication.processEvents()
            widget = view.widget("map")
            image = widget.viewport().grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
            bits = np.frombuffer(bytes(image.constBits()), np.uint8)
            shown.append(bits.reshape(image.height(), -1, 4)[:, : image.width(), :3])
        axis, frame = (widget.bottom_axis if across else widget.left_axis), widget.frame()
        ys, xs = np.nonzero((shown[0] != shown[1]).any(axis=2))
        along, away = (xs, ys) if across else (ys, xs)
        edge = frame.bottom() if across else frame.left()
        assert len(along) and np.abs(away - edge).max() <= 6  # between the labels and the map
        start = frame.left() if across else frame.top()
        middle = start + (axis.place(2) + axis.place(3)) / 2
        assert not (np.abs(along - middle) < 1).any()  # one ends before the other begins
        for first, last in ((0, 2), (3, 5)):
            inside = along[(along >= start + axis.place(first)) & (along <= start + axis.place(last))]
            assert len(np.unique(inside)) >= axis.place(last) - axis.place(first) - 2


def test_names_of_many_ranges_stand_side_by_side_and_the_chosen_one_is_among_them(view):
    names = tuple((9 * i, 9 * i + 9, f"L{i}") for i in range(29))
    values = np.zeros((261, 261), np.float32)
    for row in (None, 100, 161):
        heat = Heatmap(
            "map", values, (0.0, 1.0), x=Axis("source", spans=names), y=Axis("destination", spans=names), row=row, col=row
        )
        view.show_figure(Figure(((heat,),), "t"))
        view.grab()
        QApplication.processEvents()
        widget = view.widget("map")
        for axis in (widget.left_axis, widget.bottom_axis):
            metrics = axis.labels.labelling(axis.room).metrics
            named = axis._named_spans(metrics)
            middles = [axis._middle(first, stop) for first, stop, _ in named]
            assert 4 < len(named) <= 29 and np.diff(middles).min() >= min(axis._along(metrics, n) for *_, n in named) - 1
            assert row is None or any(first <= row < stop for first, stop, _ in named)
