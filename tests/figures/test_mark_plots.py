"""Points, curves, bars and graphs: what is drawn is where the data are, and a hit gives back the id."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QFontMetricsF, QImage, QPainter, QPixmap
from PySide6.QtWidgets import QApplication

from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.plots import points as points_module
from circuitlab.draw.plots._line_labels import Around, Label
from circuitlab.draw.plots._point_labels import free_place
from circuitlab.draw.plots.edges import segment_distance
from circuitlab.draw.plots.lines import DASH
from circuitlab.figures.contracts.hues import composition_rgb, head_hue, hue_rgb
from circuitlab.figures.marks import Axis, Bars, Edges, Figure, Heatmap, Lines, Points, ids
from circuitlab.model.subject import Head
from tests import pointer

RNG = np.random.default_rng(0)
HUES = np.array([head_hue(Head(0, i)) for i in range(8)])
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)


def settled(view, mark):
    view.show_figure(Figure(((mark,),), "Plot"))
    view.grab()
    QApplication.processEvents()
    return view.widget(mark.name)


def near(image, at, colour, reach=1) -> bool:
    """Whether a pixel within reach of `at` is close to `colour`."""
    for dx in range(-reach, reach + 1):
        for dy in range(-reach, reach + 1):
            seen = image.pixelColor(round(at[0]) + dx, round(at[1]) + dy).getRgb()[:3]
            if np.abs(np.array(seen) - np.array(colour)).max() <= 60:
                return True
    return False


def click(qtbot, view, widget, at, modifier=Qt.KeyboardModifier.NoModifier):
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, modifier, QPoint(round(at[0]), round(at[1])))
    return picked.args[0]


# -- points -----------------------------------------------------------------------------------------------------------


def points(**more) -> Points:
    fields = {
        "x": np.arange(8.0),
        "y": np.arange(8.0) ** 2,
        "ids": ids(np.zeros(8), np.arange(8)),
        "labels": tuple(f"L0H{i}" for i in range(8)),
        "hues": HUES,
        "x_axis": Axis("a"),
        "y_axis": Axis("b"),
    }
    return Points("points", **(fields | more))


@THEMES
def test_points_are_drawn_in_their_hues(view, theme):
    view.set_theme(theme)
    widget = settled(view, points(labels=()))
    image = widget.viewport().grab().toImage()
    for i, at in enumerate(widget.to_pixels(widget.mark.x, widget.mark.y)):
        assert near(image, at, hue_rgb(int(HUES[i]), theme.dark)), i


def test_a_point_without_a_place_hides_no_label(view):
    x, y = np.ones(8), np.where(np.arange(8) == 0, np.nan, 4 * np.arange(8.0))
    widget = settled(view, points(x=x, y=y))
    with_labels = widget.viewport().grab().toImage()
    widget = settled(view, points(x=x, y=y, labels=()))
    without = widget.viewport().grab().toImage()
    for left, top in widget.to_pixels(widget.mark.x, widget.mark.y)[1:].astype(int).tolist():
        spots = [(left + dx, top + dy) for dx in (*range(-40, -6), *range(7, 40)) for dy in range(-5, 6)]
        assert any(with_labels.pixelColor(*s) != without.pixelColor(*s) for s in spots if 0 <= s[0] < without.width())


def test_the_nearest_point_is_hit(view, qtbot):
    widget = settled(view, points())
    at = widget.to_pixels(widget.mark.x, widget.mark.y)[5]
    hit = click(qtbot, view, widget, at + np.array([3, -3]))
    assert (hit.mark, hit.id, hit.gesture) == ("points", (0, 5), "click")
    assert widget.readout((0, 5)) == "L0H5 · a 5.0000 · b 25.0000"


def test_points_walk_to_the_right(view):
    widget = settled(view, points(chosen=(2,)))
    assert widget.walk(None, 1, 0) == (0, 3)


def test_small_values_stand_on_the_axis_as_they_are(view):
    widget = settled(view, points(y=np.linspace(0, 0.9, 8)))
    axis = widget.left_axis
    assert axis.labelUnitPrefix == ""
    assert "0.001" not in axis.labelString()


FRAME, NAME, RING = QRectF(0, 0, 200, 100), QSizeF(40, 14), 6.5
SIDES = {"right": (8, -5, 100, 10), "left": (-108, -5, 100, 10), "above": (-5, -60, 10, 50), "below": (-5, 10, 10, 50)}


@pytest.mark.parametrize("at", [(100, 50), (199, 50), (1, 50), (100, 1), (100, 99), (199, 99), (1, 1), (190, 4)])
@pytest.mark.parametrize("free", [*SIDES, "corners", "all"])
def test_the_name_of_a_point_stands_on_whichever_side_is_free(at, free):
    point = QPointF(*at)
    taken = [QRectF(*room).translated(point) for side, room in SIDES.items() if free not in (side, "all")]
    box = free_place(point, NAME, RING, FRAME, taken)
    assert box is not None and FRAME.contains(box) and box.size() == NAME
    assert not any(box.intersects(other) for other in taken)
    dx, dy = (max(low - p, p - high, 0) for p, low, high in ((at[0], box.left(), box.right()), (at[1], box.top(), box.bottom())))
    assert RING <= np.hypot(dx, dy) <= RING + 3, "beside its point, off its ring"
    if free == "all":
        assert box.right() < at[0] if at[0] > 150 else box.left() > at[0], "to its right where there is room, else to its left"
    assert free_place(point, NAME, RING, FRAME, [FRAME]) is None


def test_where_room_is_short_the_first_points_are_named(view, monkeypatch):
    boxes = []

    def place(at, *more):
        boxes.append(free_place(at, *more))
        return boxes[-1]

    monkeypatch.setattr(points_module, "free_place", place)
    crowd = np.linspace(0, 1e-3, 40)
    labels = tuple(f"L{i}H0" for i in range(40))
    mark = points(x=crowd, y=crowd, ids=ids(np.arange(40)), labels=labels, hues=None, sight=(-1, 1, -1, 1))
    settled(view, mark).grab()
    named = [box is not None for box in boxes[-40:]]
    assert named[0] and 1 < sum(named) < 40
    assert named == sorted(named, reverse=True), "a later point is named, and an earlier one is not"


def test_names_beside_each_other_keep_apart(view, monkeypatch):
    """Points in a row, a pixel farther apart than their names are wide."""
    boxes = []
    monkeypatch.setattr(points_module, "free_place", lambda *of: boxes.append(free_place(*of)) or boxes[-1])
    mark = points(y=np.zeros(8), labels=("L0H0",) * 8, sight=(0, 1, -1, 1))
    widget = settled(view, replace(mark, x=np.linspace(0.1, 0.9, 8)))
    wide = QFontMetricsF(widget.theme.font(widget.theme.small)).horizontalAdvance("L0H0")
    pixel = np.diff(widget.full_range()[0])[0] / widget.frame().width()
    settled(view, replace(mark, x=0.1 + (wide + 1) * pixel * np.arange(8))).grab()
    drawn = sorted((box for box in boxes[-8:] if box is not None), key=QRectF.left)
    beside = [(a, b) for i, a in enumerate(drawn) for b in drawn[i + 1 :] if abs(a.top() - b.top()) < 1]
    assert len(beside) > 1 and all(b.left() - a.right() >= 4 for a, b in beside)


def test_rings_do_not_draw_the_points_again(view, monkeypatch):
    mark = points()
    widget = settled(view, mark)
    monkeypatch.setattr(widget.scatter, "setData", lambda *a, **k: pytest.fail("drawn again"))
    view.show_figure(Figure(((replace(mark, chosen=(1,)),),), "Plot"))


def test_too_many_points_become_a_density_that_says_so(view):
    n = 20_001
    x = RNG.normal(size=n)
    widget = settled(view, points(x=x, y=x, ids=ids(np.arange(n)), labels=(), hues=None))
    assert "20,001" in view.accessibleDescription()
    assert len(widget.scatter.data) == 0
    assert widget.id_at(QPointF(*widget.to_pixels(x[:1], x[:1])[0])) is not None


@THEMES
def test_a_path_joins_points_in_the_hue_of_its_last_and_a_legend_names_hues(view, theme):
    view.set_theme(theme)
    y = 3 * np.arange(8.0)
    widget = settled(view, points(y=y, labels=(), paths=((0, 3, 7),), legend=(("a model", int(HUES[7])),)))
    image = widget.viewport().grab().toImage()
    (between,) = widget.to_pixels(np.array([5.5]), np.array([16.5]))
    ground = image.pixelColor(round(between[0]), round(between[1]) - 25)
    colours = [image.pixelColor(round(between[0]) + dx, round(between[1])) for dx in (-1, 0, 1)]
    assert any(c != ground for c in colours)
    hue = np.array(hue_rgb(int(HUES[7]), theme.dark))
    paper = np.array(theme.colour("background").getRgb()[:3])
    mixed = paper + (hue - paper) * 150 / 255
    assert min(np.abs(np.array(c.getRgb()[:3]) - mixed).max() for c in colours) < 40
    assert widget.legend.height_for(400) > 0
    settled(view, points(y=np.where(np.arange(8) == 3, np.nan, y), labels=(), paths=((0, 3, 7),)))


def test_a_point_without_a_place_is_not_hit(view):
    widget = settled(view, points(x=np.full(8, np.nan)))
    assert widget.id_at(widget.frame().center()) is None


# -- curves -----------------------------------------------------------------------------------------------------------


def lines(**more) -> Lines:
    x = np.arange(1.0, 21.0)
    fields = {
        "x": x,
        "ys": np.stack([x, 30 - x, np.full(20, 25.0)]),
        "names": ("<up>", "down", "flat"),
        "hues": tuple(HUES[:3].tolist()),
        "x_axis": Axis("step"),
        "y_axis": Axis("loss"),
    }
    return Lines("lines", **(fields | more))


@THEMES
def test_curves_go_through_their_data(view, theme):
    view.set_theme(theme)
    widget = settled(view, lines())
    image = widget.viewport().grab().toImage()
    apart = np.linspace(2.0, 19.0, 120)
    for i, y in enumerate(widget.mark.ys):
        colour = hue_rgb(int(HUES[i]), theme.dark)
        drawn = [near(image, at, colour) for at in widget.to_pixels(apart, np.interp(apart, widget.mark.x, y))]
        assert np.mean(drawn) > 0.6, i  # between dashes there is nothing
        assert all(drawn) == (i == 0), i


def test_series_are_told_apart_without_colour_and_a_control_from_its_series(view):
    widget = settled(view, lines(ys=RNG.normal(size=(5, 20)), names=tuple("abcde"), hues=(), dashed=(False,) * 4 + (True,)))
    pens = [curve.opts["pen"].dashPattern() for curve in widget._curves]
    assert len({tuple(p) for p in pens}) == 5
    assert pens[4] == DASH
    assert [widget.legend._dashes.get(i, []) for i in range(5)] == pens
    many = settled(view, lines(ys=RNG.normal(size=(30, 20)), names=tuple(map(str, range(30))), hues=()))
    assert {tuple(curve.opts["pen"].dashPattern()) for curve in many._curves} == {()}


def test_points_of_a_legend_have_a_shape_each(view):
    hues = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    legend = (("a", 0), ("b", 1), ("c", 2))
    widget = settled(view, points(hues=hues, labels=(), legend=legend))
    shapes = [widget.scatter.points()[i].symbol() for i in range(8)]
    assert shapes[:3] * 2 + shapes[:2] == shapes and len(set(shapes)) == 3
    assert len(widget.legend._symbols) == 3


def test_the_nearest_curve_is_hit_and_read_out(view, qtbot):
    widget = settled(view, lines())
    at = widget.to_pixels(widget.mark.x, widget.mark.ys[1])[2]
    said = []
    view.hovered.connect(lambda hit, text: said.append((hit.id, text)))
    pointer.move(widget.viewport(), QPoint(round(at[0]), round(at[1])))
    # The window may first report where the pointer stood when it opened.
    qtbot.waitUntil(lambda: said[-1:] == [((1,), "down · step 3 · loss 27.0000")])
    assert click(qtbot, view, widget, at).id == (1,)


def test_a_logarithmic_axis_and_a_gap(view):
    ys = np.array([[1.0, 2.0, np.nan, 4.0]])
    widget = settled(view, lines(x=np.array([1.0, 10, 100, 1000]), ys=ys, names=("a",), hues=(), x_axis=Axis("step", log=True)))
    (x0, x1), _ = widget.box.viewRange()
    assert x0 < 0 < 3 < x1 < 3.5


@THEMES
def test_a_band_and_the_current_place_stand_behind_the_curves(view, theme):
    view.set_theme(theme)
    plain = settled(view, lines()).viewport().grab().toImage()
    widget = settled(view, lines(bands=((5.0, 9.0, "change"),), current=14.0))
    image = widget.viewport().grab().toImage()
    frame = widget.frame()
    (inside, _), (outside, _), (line, _) = widget.to_pixels(np.array([7.0, 11.0, 14.0]), np.zeros(3))
    y = round(widget.to_pixels(np.zeros(1), np.array([27.0]))[0, 1])  # between two curves
    assert image.pixelColor(round(inside), y) != plain.pixelColor(round(inside), y)
    assert image.pixelColor(round(outside), y) == plain.pixelColor(round(outside), y)
    for height in (0.15, 0.85):
        assert near(image, (line, frame.top() + height * frame.height()), theme.colour("accent").getRgb()[:3])
    at = widget.to_pixels(widget.mark.x, widget.mark.ys[1])[6]
    assert near(image, at, hue_rgb(int(HUES[1]), theme.dark)), "a curve in the band keeps its colour"


def labels_set(widget, monkeypatch) -> dict[str, Label]:
    """The labels beside lines and bands, by what they say in one line."""
    result, place = {}, Around.place

    def keeping(around, texts, first, last):
        label = place(around, texts, first, last)
        result[label.text.replace("\n", " ")] = label
        return label

    with monkeypatch.context() as patch:
        patch.setattr(Around, "place", keeping)
        widget.viewport().grab()
    return result


def covered(widget, box: QRectF) -> list[int]:
    """Curves that run through a box, by a walk along each in steps of a fifth of a point."""
    x, result = widget.mark.x, []
    for i, y in enumerate(widget.mark.ys):
        fine = np.linspace(x[0], x[-1], 5 * len(x))
        on = widget.to_pixels(fine, np.interp(fine, x, y))
        result += [i] * any(box.contains(QPointF(*at)) for at in on)
    return result


def test_it_is_known_which_curves_go_through_a_box(view):
    x = np.arange(20.0)
    ys = np.stack([np.where(x > 9, 10.0, 0.0), np.where(x > 9, 9.8, 0.2)])
    widget = settled(view, lines(x=x, ys=ys, names=("a", "b"), hues=(), bands=((5.0, 9.0, "change"),)))
    around = widget._around(widget.frame())
    (middle, high) = widget.to_pixels(np.array([9.5]), np.array([10.0]))[0]
    box = lambda left: QRectF(left, high - 5, 60, 30)
    assert (around.crossing(box(middle + 40)), around.crossing(box(middle - 100))) == (2, 0)
    nothing = np.zeros((0, 20))
    settled(view, lines(ys=nothing, names=(), hues=(), bands=((5.0, 9.0, "change"),))).viewport().grab()


@pytest.mark.parametrize("size", [(640, 300), (420, 220)], ids=str)
@pytest.mark.parametrize("current", [1.5, 3.0, 11.0, 19.0])
@pytest.mark.parametrize("pin", [4.0, 10.5, 12.0, 18.8])
def test_labels_cover_no_curve_no_line_no_band_and_no_other_label(view, monkeypatch, pin, current, size):
    x = np.arange(20.0)
    falling = 7.0 - 3.0 * x / 19
    view.resize(*size)
    mark = lines(x=x, ys=falling[None], names=("loss",), hues=(), current=current)
    mark = replace(mark, marks=((pin, "pin, step 4,500"),), bands=((10.0, 12.0, "phase change, 7.68–9.73 M tokens"),))
    widget = settled(view, mark)
    result = labels_set(widget, monkeypatch)
    assert set(result) == {"pin, step 4,500", "phase change, 7.68–9.73 M tokens"}
    boxes = [label.box for label in result.values()]
    upright = widget.to_pixels(np.array([current, pin]), np.zeros(2))[:, 0]
    left, right = widget.to_pixels(np.array([10.0, 12.0]), np.zeros(2))[:, 0]
    assert not boxes[0].intersects(boxes[1])
    for box in boxes:
        assert widget.frame().contains(box) and not covered(widget, box)
        assert not any(box.left() <= at <= box.right() for at in upright)
        assert box.right() <= left or box.left() >= right, "the band keeps its colour"
    for label in result.values():
        if label.leader is not None:
            assert not any(QRectF(*label.leader).intersects(box) for box in boxes)


@pytest.mark.parametrize("at", [4.0, 10.0, 16.0])
def test_a_label_keeps_clear_of_curves_along_the_top(view, monkeypatch, at):
    x = np.arange(20.0)
    ys = np.stack([np.full(20, 7.0), np.where(x > 9, 5.0, 1.0)])
    view.resize(640, 220)  # above the upper curve is no room for a line
    widget = settled(view, lines(x=x, ys=ys, names=("a", "b"), hues=(), marks=((at, "pin, step 4,500"),)))
    (label,) = labels_set(widget, monkeypatch).values()
    assert not covered(widget, label.box)


def test_a_legend_names_the_curves_it_is_given(view):
    widget = settled(view, lines(named=(2,)))
    assert [text for text, _ in widget.legend._entries] == ["flat"]
    assert re.search(r"\b3\b.*\b1\b", view.accessibleDescription())
    widget = settled(view, lines())
    assert len(widget.legend._entries) == 3


NONE = np.full(20, np.nan)
UP, DOWN = np.arange(20.0), 30 - np.arange(20.0)


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ({"named": (2,)}, "3 curves, 1 of them in the legend"),
        ({"named": ()}, "3 curves, named under the pointer"),
        ({"named": (0, 1), "hues": (-1, -1, -1), "dashed": (False, True, True)}, ""),  # both ends of an interval look alike
        ({"named": (0, 1), "ys": np.stack([UP, DOWN, NONE])}, "without any value: flat"),
        ({"named": (2,), "ys": np.stack([UP, DOWN, NONE])}, "without any value: flat · 2 curves, named under the pointer"),
        ({"named": (0,), "ys": np.stack([NONE, NONE, NONE])}, "without any value: <up>, down, flat"),
    ],
)
def test_what_the_legend_lacks_is_said_of_the_curves_that_are_drawn(view, more, note):
    assert " · ".join(settled(view, lines(**more)).notes()) == note


def test_a_bare_axis_says_nothing_and_a_low_plot_little(view):
    bare = Lines("above", np.arange(3.0), np.arange(3.0)[None], ("a",), x_axis=Axis("step", bare=True))
    view.show_figure(Figure(((bare,), (replace(bare, name="below", x_axis=Axis("step")),)), "Plots"))
    view.grab()
    above, below = view.widget("above"), view.widget("below")
    assert above.bottom_axis.height() < 10 < below.bottom_axis.height()
    assert not above.bottom_axis.label.isVisible()
    ticks = [t for _, each in below.left_axis.tickValues(-9, 0, 40) for t in each]
    assert ticks == [-5, 0]


def test_a_band_that_a_logarithmic_axis_cannot_show_is_left_out(view):
    log = Axis("tokens", log=True)
    settled(view, lines(x_axis=log, bands=((0.0, 9.0, "change"),), current=0.0, marks=((0.0, "pin"),))).viewport().grab()


def test_a_step_is_hit_on_a_curve_and_off_it(view, qtbot):
    where = {"curve_ids": ids(np.arange(3), np.arange(3) + 5), "step_ids": ids(np.arange(20) * 100)}
    for more, on, off in (({}, (1, 2), (-1, 2)), (where, (1, 6, 200), (-1, -1, 200))):
        widget = settled(view, lines(steps=True, **more))
        at = widget.to_pixels(widget.mark.x, widget.mark.ys[1])[2]
        assert click(qtbot, view, widget, at).id == on
        below = widget.to_pixels(widget.mark.x[2:3], np.array([14.0]))[0]
        assert click(qtbot, view, widget, below).id == off
        assert widget.readout((-1, 2)) == "step 3"


def test_more_curves_than_a_legend_holds_is_said(view):
    settled(view, lines(ys=RNG.normal(size=(30, 20)), names=tuple(map(str, range(30))), hues=()))
    assert "30 curves" in view.accessibleDescription()


def test_curves_come_and_go(view):
    for n in (3, 1, 5):
        widget = settled(view, lines(ys=RNG.normal(size=(n, 20)), names=tuple(map(str, range(n))), hues=()))
        assert len(widget._curves) == n


# -- bars -------------------------------------------------------------------------------------------------------------


def bars(**more) -> Bars:
    fields = {
        "values": np.array([4.0, 2.0, 1.0, np.nan]),
        "labels": ("<s>", "·the", "·of", "·a"),
        "tokens": True,
        "unit": "nats",
    }
    return Bars("bars", **(fields | more))


@THEMES
def test_a_bar_is_as_long_as_its_value(view, theme):
    view.set_theme(theme)
    widget = settled(view, bars(hues=tuple(HUES[:4].tolist())))
    image = widget.viewport().grab().toImage()
    lengths = []
    for i in range(3):
        y = round(widget.item_rect((i,)).center().y())
        row = [image.pixelColor(x, y).getRgb()[:3] == hue_rgb(int(HUES[i])) for x in range(image.width())]
        lengths.append(sum(row))
    assert lengths[0] == pytest.approx(2 * lengths[1], abs=2)
    assert lengths[1] == pytest.approx(2 * lengths[2], abs=2)


def test_bars_are_hit_and_walked(view, qtbot):
    widget = settled(view, bars())
    centre = widget.item_rect((2,)).center()
    assert click(qtbot, view, widget, (centre.x(), centre.y()), Qt.KeyboardModifier.ShiftModifier).id == (2,)
    assert widget.readout((0,)) == "‘<s>’ · 4.0000 nats"
    assert widget.walk((2,), 0, 5) == (3,)


def test_bars_below_zero_start_at_zero(view):
    widget = settled(view, bars(values=np.array([1.0, -1.0, 0.5, 0.0])))
    assert widget._span == (-1.0, 1.0)
    assert widget.colour(0) != widget.colour(1)


# -- graphs -----------------------------------------------------------------------------------------------------------


def edges(**more) -> Edges:
    xy = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=float)
    fields = {
        "xy": xy,
        "labels": ("L0H0", "L0H1", "L1H0", "L1H1"),
        "hues": HUES[:4],
        "ends": np.array([[0, 2], [1, 3], [0, 3]]),
        "weights": np.array([1.0, 1.0, 1.0]),
        "kinds": np.array([0, 0, 0]),
    }
    return Edges("graph", **(fields | more))


@THEMES
def test_edges_are_drawn_in_the_colour_of_their_kind(view, theme):
    view.set_theme(theme)
    widget = settled(view, edges())
    image = widget.viewport().grab().toImage()
    for a, b in widget._lines():
        assert near(image, a * 0.4 + b * 0.6, composition_rgb(0, theme.dark))


def test_nodes_before_edges(view, qtbot):
    widget = settled(view, edges())
    nodes = widget._nodes()
    assert click(qtbot, view, widget, nodes[3]).id == (0, 3)
    assert click(qtbot, view, widget, nodes[0] * 0.6 + nodes[3] * 0.4).id == (1, 2)
    assert widget.readout((1, 2)) == "L0H0 → L1H1 Q · 1.0000"


def test_a_graph_speaks_in_the_ids_and_values_it_was_given(view, qtbot):
    given = edges(
        node_ids=np.array([[0, 0], [0, 1], [1, 0], [1, 1]]),
        edge_ids=np.arange(15).reshape(3, 5),
        values=np.array([0.1, 0.2, 0.3]),
        unit="score",
    )
    widget = settled(view, given)
    nodes = widget._nodes()
    assert click(qtbot, view, widget, nodes[3]).id == (0, 1, 1)
    assert click(qtbot, view, widget, nodes[0] * 0.6 + nodes[3] * 0.4).id == (1, 10, 11, 12, 13, 14)
    assert widget.readout((1, 2)) == "L0H0 → L1H1 Q · 0.3000 score"


def test_graph_walks(view):
    widget = settled(view, edges())
    assert widget.walk((0, 0), 1, 0) == (0, 1)
    assert widget.walk((0, 0), 0, -1) == (0, 2)


def test_a_choice_does_not_draw_the_edges_again(view):
    mark = edges()
    widget = settled(view, mark)
    before = list(widget._curves)
    view.show_figure(Figure(((replace(mark, chosen_nodes=(1,), chosen_edges=(0,)),),), "Plot"))
    assert widget._curves == before


@THEMES
@pytest.mark.parametrize("way", ["chosen", "hovered"])
def test_a_chosen_or_hovered_edge_keeps_its_dash_width_and_colour(view, theme, way):
    """What is painted before and after is compared in grey: a band is added behind it, and no line over it."""
    view.set_theme(theme)
    mark = edges(kinds=np.array([0, 0, 2]), weights=np.array([1.0, 1.0, 0.3]))
    widget = settled(view, mark)
    a, b = widget._lines()[2]
    grey = lambda: widget.viewport().grab().toImage().convertToFormat(QImage.Format.Format_Grayscale8)
    before = grey()
    if way == "chosen":
        view.show_figure(Figure(((replace(mark, chosen_edges=(2,)),),), "Plot"))
    else:
        widget._hovered = (1, 2)
        widget.show_cursor((1, 2))
    after = grey()
    across = np.array([-(b - a)[1], (b - a)[0]]) / np.hypot(*(b - a))
    places = a + np.linspace(0.3, 0.7, 200)[:, None] * (b - a)  # between the nodes
    read = lambda image, away=0.0: np.array([image.pixelColor(*np.floor(p + across * away).astype(int)).value() for p in places])
    ground = np.median(read(before, 12.0))
    (old, new), band = (read(before), read(after)), np.median(read(after, 4.0))
    assert 10 < abs(band - ground) < 60 and np.abs(read(before, 4.0) - ground).max() < 3, "a pale band is behind it"
    assert np.ptp(old) > 20 and np.corrcoef(old, new)[0, 1] > 0.95, "dashes stay where they were"
    assert 0.6 * np.ptp(old) < np.ptp(new) <= np.ptp(old), "no stronger, and hardly fainter"
    edge = lambda image, level: np.mean([abs(read(image, away) - level) for away in np.arange(-3, 3.5, 0.5)], axis=(0, 1)).item()
    assert 0.6 * edge(before, ground) < edge(after, band) < 1.1 * edge(before, ground), "nor wider"


def test_labels_of_a_crowded_graph_never_stand_over_one_another_and_those_of_the_strongest_edges_are_written(view):
    rng = np.random.default_rng(3)
    n, places = 150, np.stack(np.divmod(rng.permutation(400)[:150], 20), axis=1).astype(float)
    ends, weights = rng.permuted(np.tile(np.arange(n), (60, 1)), axis=1)[:, :2], np.linspace(1, 0.1, 60)
    names, badges = tuple(f"L{i}H{i}" for i in range(n)), tuple("ind 0.93" * (i % 3 == 0) for i in range(n))
    fields = {"hues": np.full(n, -1), "kinds": np.zeros(60, int), "badges": badges}
    view.show_figure(Figure(((edges(xy=places, labels=names, ends=ends, weights=weights, **fields),),), "t"))
    widget, dot = view.widget("graph"), 9.0
    boxes = widget._boxes()
    named = [i for i, box in enumerate(boxes) if box.width() > dot + 0.1]
    assert 20 < len(named) < n
    strongest = np.array([max((w for w, end in zip(weights, ends, strict=True) if i in end), default=0.0) for i in range(n)])
    wide = {i: boxes[i].width() for i in named}
    for i in set(range(n)) - set(named):  # what would have been its label meets a dot, or the label of a stronger edge
        half = QPointF(max(wide.values()) / 2, boxes[named[0]].height() / 2)
        met = QRectF(boxes[i].center() - half, boxes[i].center() + half).adjusted(-3, -3, 3, 3)
        near = [j for j in range(n) if j != i and met.intersects(boxes[j])]
        dots = [j for j in near if met.intersects(QRectF(boxes[j].center() - QPointF(4.5, 4.5), QSizeF(9, 9)))]
        assert dots or any(strongest[j] >= strongest[i] for j in near)
    less = [box.adjusted(2, 2, -2, -2) for box in boxes]
    for i in named:
        assert not [j for j, other in enumerate(less) if j != i and less[i].intersects(other)], names[i]
    canvas = QPixmap(widget.viewport().size())  # outlives its painter
    painter = QPainter(canvas)
    taken = list(boxes)
    for box in boxes:
        widget._draw_badge(painter, [box.center() - QPointF(0, 20)], "ind 0.93", taken=taken)
    painter.end()
    written = [box.adjusted(2, 2, -2, -2) for box in taken[len(boxes) :]]
    assert 0 < len(written) < n and not any(a.intersects(b) for a, b in combinations(written, 2))
    assert not any(a.intersects(b) for a in written for b in less)


def test_thousands_of_edges_are_a_few_curves(view):
    m = 5000
    many = edges(
        xy=RNG.normal(size=(100, 2)),
        labels=tuple(f"L0H{i}" for i in range(100)),
        hues=np.arange(100),
        ends=RNG.integers(0, 100, (m, 2)),
        weights=RNG.random(m),
        kinds=RNG.integers(0, 3, m),
    )
    assert len(settled(view, many)._curves) <= 24


def test_distance_from_a_segment():
    start, end = np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([[10.0, 0.0], [0.0, 0.0]])
    assert segment_distance(np.array([5.0, 3.0]), start, end) == pytest.approx([3.0, np.hypot(5, 3)])
    assert segment_distance(np.array([13.0, 4.0]), start, end)[0] == pytest.approx(5.0)


def test_curves_without_any_value_are_said_and_not_drawn_as_nothing(view) -> None:
    x, none = np.arange(4.0), np.full(4, np.nan)
    some = Lines("curves", x, np.stack([np.ones(4), none]), ("measured", "loss on text"))
    view.show_figure(Figure(((some,),), "T", ("a caption",)))
    assert "loss on text" in view.whole_caption and "measured" not in view.whole_caption
    view.show_figure(Figure(((Lines("curves", x, none[None].copy(), ("loss on text",)),),), "T", ("a caption",)))
    assert "loss on text" in view.whole_caption
    widget = view.widget("curves")
    view.grab()
    frame = widget.frame().toRect()
    words = QRect(QPoint(), QSize(80, 16))
    words.moveCenter(frame.center())
    image = widget.viewport().grab(words).toImage()
    colours = {image.pixel(i, j) for i in range(image.width()) for j in range(image.height())}
    assert len(colours) > 6, "nothing says that there are no values"


def test_a_single_point_without_a_value_is_no_dot(view, qtlog) -> None:
    widget = settled(view, lines(x=np.zeros(1), ys=np.array([[np.nan], [1.0]]), names=("loss on text", "measured"), hues=()))
    widget.viewport().grab()
    assert not [record.message for record in qtlog.records if "NaN" in record.message]


@pytest.mark.parametrize("span", [(-1930.0, 1930.0), (0.3, 1.7), (-0.04, 0.06), (2.1e4, 8.8e4)])
def test_an_axis_has_two_numbers_where_there_is_room_for_two(view, span):
    x = np.linspace(*span, 5)
    for axis in (Axis("x"), Axis("x", log=True)) if span[0] > 0 else (Axis("x"),):
        view.show_figure(Figure(((Lines("l", x, np.zeros((1, 5)), ("a",), x_axis=axis, y_axis=Axis("y")),),), "t"))
        for width in (190, 230, 640):
            view.resize(width, 300)
            QApplication.processEvents()
            bottom = view.widget("l").bottom_axis
            low, high = sorted(bottom.range)
            values = [v for _, result in bottom.tickValues(low, high, bottom.width()) for v in result]
            assert len(values) >= 2 and low <= min(values) <= max(values) <= high


def test_a_title_longer_than_its_axis_is_shortened_and_said_whole(view):
    title = "a measure with a long name that no low picture has room for"
    view.show_figure(
        Figure(((Lines("l", np.arange(5.0), np.zeros((1, 5)), ("a",), x_axis=Axis("x"), y_axis=Axis(title)),),), "t")
    )
    view.resize(400, 160)
    QApplication.processEvents()
    mark = view.widget("l")
    box = mark.left_axis.mapRectToScene(mark.left_axis.label.mapRectToParent(mark.left_axis.label.boundingRect()))
    assert box.top() >= -6 and box.bottom() <= mark.viewport().height() + 6
    assert mark.axis_tip(mark.left_axis.mapToScene(mark.left_axis.rect().center())) == title


@pytest.mark.parametrize("whole", [True, False])
def test_what_counts_has_no_numbers_between_whole_ones(view, whole):
    mark = Lines("curves", np.array([1.0, 2, 3]), np.array([[1.0, 2, 1]]), ("a",), x_axis=Axis("step", whole=whole))
    view.resize(700, 300)
    view.show_figure(Figure(((mark,),), "Plot"))
    view.grab()
    axis = view.widget("curves").plot_item.getAxis("bottom")
    for low, high in ((1.0, 3.0), (1.2, 2.4)):
        ticks = [v for _, values in axis.tickValues(low, high, 600) for v in values]
        assert (all(v == round(v) for v in ticks)) == whole


@pytest.mark.parametrize("kind", ["points", "map"])
def test_the_labels_of_a_vertical_axis_stand_beside_what_they_name(view, kind):
    axis = Axis("layer", ("L0", "L1", "L2"))
    points = Points("m", np.zeros(3), np.arange(3.0), ids(np.arange(3)), y_axis=axis)
    mark = points if kind == "points" else Heatmap("m", np.zeros((3, 3), np.float32), (0.0, 1.0), y=axis)
    view.show_figure(Figure(((mark,),)))
    QApplication.processEvents()
    widget = view.widget("m")
    row = 0.0 if kind == "points" else 0.5  # a cell's middle
    for i in range(3):
        middle = widget.box.mapFromView(QPointF(0.0, i + row)).y()
        assert abs(widget.left_axis.place(i) - middle) < 1.0, f"L{i}"


def test_ranges_that_are_held_only_grow(view):
    axis = Axis("x")
    line = lambda top: Lines("m", np.arange(3.0), np.array([[0.0, top, 1.0]]), ("a",), x_axis=axis, y_axis=Axis("y"))
    point = lambda top: Points("p", np.array([0.0, top]), np.array([0.0, 1.0]), ids(np.arange(2)), x_axis=axis)
    bars = lambda top: Bars("b", np.array([top, -1.0]), ("one", "two"))
    figure = lambda top: Figure(((line(top),), (point(top),), (bars(top),)), "Plot")
    ranges = lambda: (view.widget("m").box.viewRange()[1], view.widget("p").box.viewRange()[0], list(view.widget("b")._span))
    view.resize(500, 700)
    view.show_figure(figure(9.0))
    view.hold_ranges(True)
    first = ranges()
    view.show_figure(figure(2.0))
    assert ranges() == first, "what was on the screen is in view"
    view.show_figure(figure(20.0))
    grown = ranges()
    assert all(now[1] > before[1] for now, before in zip(grown, first, strict=True))
    view.hold_ranges(False)
    view.show_figure(figure(2.0))
    assert all(now[1] < before[1] for now, before in zip(ranges(), first, strict=True)), "each fits again"
