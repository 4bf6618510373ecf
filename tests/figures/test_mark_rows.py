"""Tables: their own order, filter, copy, gestures; Qt's own tester is content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QAbstractItemModel, QPoint, Qt
from PySide6.QtGui import QFontMetricsF, QGuiApplication
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication, QStyleOptionHeader

from circuitlab.draw.look.colours import rgb
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.tables.model import RowsModel, cell_text
from circuitlab.errors import BadFigure
from circuitlab.figures.contracts.compare_marks import difference
from circuitlab.figures.contracts.pinned import Pinned
from circuitlab.figures.marks import Figure, RowColumn, Rows, ids
from tests.words import columns_left_out

TEXTS = np.array(["<s>", "·the", "&amp;", "·of", "·The"], dtype=object)
P = np.array([0.5, 0.1, np.nan, 0.9, -0.25])


def rows(**more) -> Rows:
    columns = (
        RowColumn("token", TEXTS, tokens=True),
        RowColumn("p", P, digits=2, bar=True, levels=(-1.0, 1.0), tip="of <all> tokens"),
        RowColumn("tint", P, map="signed", levels=(-1.0, 1.0)),
        RowColumn("id", np.arange(10, 15), digits=0),
    )
    return Rows("table", **({"columns": columns, "ids": ids(np.arange(10, 15))} | more))


def settled(view, mark):
    view.show_figure(Figure(((mark,),), "Table"))
    view.grab()
    QApplication.processEvents()
    return view.widget("table")


def many(n: int) -> Rows:
    rng = np.random.default_rng(0)
    words = np.array([f"w{i % 977}" for i in range(n)], dtype=object)
    return Rows(
        "table",
        (RowColumn("w", words, tokens=True), RowColumn("x", rng.normal(size=n))),
        ids(np.arange(n)),
        searchable=True,
    )


@pytest.mark.parametrize("drawn", [{"bar": True}, {"map": "magnitude"}], ids=str)
def test_bars_of_other_values_than_shares_say_where_they_end(drawn):
    losses = np.array([8.155, 4.397])
    with pytest.raises(BadFigure, match="levels"):
        RowColumn("loss", losses, **drawn)
    assert RowColumn("loss", losses, levels=(0.0, 9.0), **drawn).levels == (0.0, 9.0)
    assert RowColumn("p", np.array([0.0, np.nan, 1.0]), **drawn).levels == (0.0, 1.0)


def test_the_model_keeps_the_contract(qtbot):
    model = RowsModel()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    assert isinstance(tester.model(), QAbstractItemModel)
    model.show_rows(rows())
    model.sort(1, Qt.SortOrder.DescendingOrder)
    model.filter("the")
    model.filter("")
    model.sort(-1)
    model.show_rows(many(100))


def test_nan_sorts_last_either_way():
    model = RowsModel()
    model.show_rows(rows())
    model.sort(1, Qt.SortOrder.AscendingOrder)
    assert model.order.tolist() == [4, 1, 0, 3, 2]
    model.sort(1, Qt.SortOrder.DescendingOrder)
    assert model.order.tolist() == [3, 0, 1, 4, 2]
    model.sort(-1)
    assert model.order.tolist() == [0, 1, 2, 3, 4]


def test_filter_takes_a_space_and_ignores_case():
    model = RowsModel()
    model.show_rows(rows())
    model.filter(" the")
    assert model.order.tolist() == [1, 4]
    model.filter("13")
    assert model.order.tolist() == [3]


def test_fifty_thousand_rows_are_sorted_in_numpy_calls(monkeypatch):
    model = RowsModel()
    model.show_rows(many(50_000))
    # Fast because no row is asked for one by one: a sort may not read a single cell.
    monkeypatch.setattr(model, "data", lambda *_: pytest.fail("a cell was read while sorting"))
    model.sort(1, Qt.SortOrder.DescendingOrder)
    values = model.mark.columns[1].values[model.order]
    assert (np.diff(values) <= 0).all()
    model.sort(0, Qt.SortOrder.AscendingOrder)
    model.filter("w12")


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_tinted_cells_have_the_colour_of_their_value(view, theme):
    view.set_theme(theme)
    widget = settled(view, rows())
    image = widget.table.viewport().grab().toImage()
    wanted = rgb(P, (-1.0, 1.0), "signed", theme)
    for row in range(5):
        rect = widget.table.visualRect(widget.model.index(row, 2))
        seen = np.array(image.pixelColor(rect.topLeft()).getRgb()[:3])
        assert np.abs(seen - wanted[row].astype(int)).max() <= 1, row


def test_click_gives_the_id_in_the_sorted_order(view, qtbot):
    widget = settled(view, rows())
    widget.table.sortByColumn(1, Qt.SortOrder.DescendingOrder)
    at = widget.table.visualRect(widget.model.index(0, 0)).center()
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.mouseClick(widget.table.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert (picked.args[0].mark, picked.args[0].id, picked.args[0].gesture) == ("table", (13,), "click")


def test_walking_picks(view, qtbot):
    widget = settled(view, rows(chosen=(0,)))
    widget.table.setFocus()
    with qtbot.waitSignal(view.picked) as picked:
        qtbot.keyClick(widget.table, Qt.Key.Key_Down)
    assert picked.args[0].id == (11,)


def test_chosen_rows_are_selected_in_any_order(view):
    mark = rows(chosen=(3,), sort=(1, "down"))
    widget = settled(view, mark)
    assert [i.row() for i in widget.table.selectionModel().selectedRows()] == [0]
    view.show_figure(Figure(((replace(mark, chosen=(4, 0)),),), "Table"))
    assert sorted(i.row() for i in widget.table.selectionModel().selectedRows()) == [1, 3]


def test_copy_is_tab_separated_with_full_numbers(view, qtbot):
    widget = settled(view, rows(chosen=(0, 3)))
    qtbot.keyClick(widget.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "token\tp\ttint\tid\n<s>\t0.5\t0.5\t10\n·of\t0.9\t0.9\t13\n"


def test_tips_are_plain_text_and_cells_are_literal():
    model = RowsModel()
    model.show_rows(rows())
    assert model.data(model.index(0, 0)) == "<s>"
    assert model.data(model.index(2, 1)) == ""
    assert "&lt;s&gt;" in model.data(model.index(0, 0), Qt.ItemDataRole.ToolTipRole)
    tip = model.headerData(1, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)
    assert "of &lt;all&gt; tokens" in tip


def test_the_same_arrays_are_not_read_again(view, monkeypatch):
    mark = rows()
    widget = settled(view, mark)
    monkeypatch.setattr(widget.model, "show_rows", lambda *_: pytest.fail("read again"))
    view.show_figure(Figure(((replace(mark, columns=tuple(replace(c) for c in mark.columns), chosen=(1,)),),), "Table"))


def test_the_persons_order_survives_other_values(view):
    mark = rows()
    widget = settled(view, mark)
    widget.table.sortByColumn(3, Qt.SortOrder.DescendingOrder)
    other = tuple(replace(c, values=c.values.copy()) for c in mark.columns)
    view.show_figure(Figure(((replace(mark, columns=other),),), "Table"))
    assert widget.model.order.tolist() == [4, 3, 2, 1, 0]
    assert widget.table.horizontalHeader().sortIndicatorSection() == 3


def test_a_bar_keeps_room_for_its_number_where_the_table_is_narrow(view):
    values = np.array([0.0833, 0.5, 0.25])
    columns = (
        RowColumn("p", values, digits=4, bar=True),
        RowColumn("name", np.array(["a rather long name of a thing"] * 3, dtype=object)),
        RowColumn("other", values, digits=4),
        RowColumn("another", values, digits=4),
    )
    view.resize(300, 300)
    view.show_figure(Figure(((Rows("rows", columns, ids(np.arange(3))),),), "Rows"))
    view.grab()
    header = view.widget("rows").table.horizontalHeader()
    narrow = header.sectionSize(0)
    assert narrow >= view.fontMetrics().horizontalAdvance("0.0833")
    view.resize(900, 300)
    view.grab()
    QApplication.processEvents()
    view.grab()
    assert header.sectionSize(0) > 2 * narrow  # what is left is the bar's


def test_what_was_shortened_in_a_narrow_table_is_whole_in_a_wide_one_and_nothing_scrolls_that_fits(view):
    names = np.array(["·never", "·harbour", "·penrose"], dtype=object)
    values = np.array([0.0833, 0.5, 0.25])
    columns = (
        RowColumn("#", np.arange(1, 4), digits=0),
        RowColumn("token", names, tokens=True),
        RowColumn("p", values, digits=4, bar=True),
        RowColumn("logit", values, digits=2),
    )
    mark = Rows("table", columns, ids(np.arange(3)))
    view.resize(640, 300)
    table = settled(view, mark).table
    header = table.horizontalHeader()
    usual = header.sectionSize(1)
    least = sum(view.widget("table")._widths._least)
    for width in (least + 20, least + 40, 640):
        view.resize(width, 300)
        view.grab()
        QApplication.processEvents()
        view.grab()
        assert table.horizontalScrollBar().maximum() == 0, width
    assert header.sectionSize(1) == usual


ARGUMENTS = np.array(["co-occurrence", "co-perturbation", "mechanism", "all of them"], dtype=object)
HERE = np.array(["4 of 5 models", "not computed", "0.997", ""], dtype=object)
STRENGTHS = np.array(["medium", "", "strong", "strong"], dtype=object)
PICTURES = np.array(["Training", "Theory and measurement", "Spectra", ""], dtype=object)


def of_words() -> Rows:
    columns = (
        RowColumn("argument", ARGUMENTS),
        RowColumn("here", HERE),
        *(RowColumn(name, STRENGTHS) for name in ("small attn", "small MLP", "large")),
        RowColumn("picture", PICTURES, spare=True),
    )
    return Rows("table", columns, ids(np.arange(4)), strong=(3,))


def elided(table) -> list[str]:
    """Texts that have no room in their cell."""
    model, header, metrics = table.model(), table.horizontalHeader(), QFontMetricsF(LIGHT.font(LIGHT.normal - 1))
    cells = [(model.data(model.index(r, c)), c) for r in range(model.rowCount()) for c in range(model.columnCount())]
    return [text for text, c in cells if text and metrics.horizontalAdvance(text) > header.sectionSize(c) - 16]


def test_words_are_shortened_last_of_all_and_those_that_can_be_spared_before_the_others(view):
    for width, cut in ((640, []), (610, []), (556, ["Theory and measurement"])):
        view.resize(width, 300)
        table = settled(view, of_words()).table
        assert elided(table) == cut, width
        assert table.horizontalScrollBar().maximum() == 0


def test_a_cell_that_rounds_to_nothing_has_no_sign():
    column = RowColumn("logit", np.array([-1e-7, -0.0004, -0.0006, -np.inf, -12345.0]), digits=3)
    assert [cell_text(column, i) for i in range(5)] == ["0.000", "0.000", "−0.001", "−inf", "−12,345.000"]


@pytest.mark.parametrize("falling", [True, False], ids=["by size", "by place"])
def test_the_largest_rows_stay_in_view_whatever_is_chosen(view, falling):
    size = np.linspace(9.0, 0.1, 300)
    values = size if falling else np.random.default_rng(0).permutation(size)
    mark = Rows("table", (RowColumn("x", values, bar=True, levels=(0.0, 9.0)),), ids(np.arange(300)), chosen=(250,))
    table = settled(view, mark).table
    assert (table.verticalScrollBar().value() == 0) == falling
    if falling:
        table.setFocus()
        view.show_figure(Figure(((replace(mark, chosen=(251,)),),), "Table"))
        assert table.viewport().rect().intersects(table.visualRect(table.model().index(251, 0))), "keys are followed"


@pytest.mark.parametrize("ranked", [True, False])
def test_a_ranking_without_bars_opens_at_its_largest_rows(view, ranked):
    tinted = RowColumn("Δ", np.linspace(9.0, -9.0, 300), map="signed", levels=(-9.0, 9.0))
    mark = Rows("table", (tinted,), ids(np.arange(300)), chosen=(250,), ranked=ranked)
    assert (settled(view, mark).table.verticalScrollBar().value() == 0) == ranked


def test_in_a_difference_the_change_is_in_sight_where_the_table_is_narrow(view):
    n = 30
    words = RowColumn("path", np.array([f"L0H{i} → L1H{i} → L2H{i} → L3H{i}" for i in range(n)], dtype=object))
    parts = tuple(RowColumn(f"part {i}", np.linspace(1, -1, n) * i, map="signed", levels=(-9.0, 9.0)) for i in range(1, 6))
    here = Rows("table", (words, *parts), ids(np.arange(n)), ranked=True)
    there = replace(here, columns=(words, *(replace(c, values=c.values**2) for c in parts)))
    made, _ = difference(here, there, Pinned("before", np.arange(3), 3))
    view.resize(300, 300)
    table = settled(view, made).table
    at = [c.name for c in made.columns].index("Δ")
    assert columns_left_out(view.whole_caption), "not all of it has room"
    assert table.viewport().rect().contains(table.visualRect(table.model().index(0, at)))


@pytest.mark.parametrize("width", [300, 340, 380, 400])
def test_numbers_beside_bars_are_whole_however_narrow_the_table(view, width):
    n = 30
    columns = (
        RowColumn("token", np.array(["·would"] * n, dtype=object), tokens=True),
        RowColumn("Δ", np.linspace(-0.2, 0.2, n), digits=4, map="signed", levels=(-0.2, 0.2)),
        RowColumn("p", np.linspace(0, 0.3, n), digits=4, bar=True),
        RowColumn("in step 500", np.linspace(0, 0.3, n), digits=4),
        RowColumn("logit", np.linspace(0, 12, n), digits=2),
        RowColumn("id", np.arange(n) + 300, digits=0),
    )
    view.resize(width, 400)
    table = settled(view, Rows("table", columns, ids(np.arange(n)))).table
    needed = table.fontMetrics().horizontalAdvance("0.3000")
    assert table.horizontalHeader().sectionSize(2) >= needed + 8


def test_rows_and_columns_are_seen_whole_or_not_at_all(view):
    columns = [RowColumn("name", np.array([f"word {i} of some length" for i in range(60)], dtype=object))]
    columns += [RowColumn(f"measure {i}", np.arange(60.0) * 1000 + 0.5) for i in range(4)]
    view.show_figure(Figure(((Rows("r", tuple(columns), ids(np.arange(60))),),), "t"))
    mark = view.widget("r")
    table, header = mark.table, mark.table.horizontalHeader()
    for width, height in ((520, 300), (300, 311), (260, 287), (170, 255)):
        view.resize(width, height)
        QApplication.processEvents()
        for at in (0, 7, table.verticalScrollBar().maximum()):
            table.verticalScrollBar().setValue(at)
            high, row = table.viewport().height(), table.rowHeight(0)
            assert high % row == 0 and table.rowViewportPosition(table.rowAt(2)) == 0
        assert table.rowAt(table.viewport().height() - 1) == 59
        hidden = [i for i in range(5) if header.isSectionHidden(i)]
        assert header.length() <= table.viewport().width()
        said = view.whole_caption
        assert all((f"measure {i - 1}" in said) == (i in hidden) for i in range(1, 5))
    assert hidden and len(hidden) <= 3


def test_a_sentence_takes_the_room_that_is_left(view):
    words = "a direction for each letter: completes whatever has been seen before"
    mark = Rows(
        "table",
        (RowColumn("name", np.array(["one", "two"], object)), RowColumn("what", np.array([words] * 2, object))),
        ids(np.arange(2)),
    )
    view.resize(900, 300)
    widget = settled(view, mark).table
    asked = QFontMetricsF(view.theme.font(view.theme.normal)).horizontalAdvance(words)
    assert 220 < asked < widget.columnWidth(1)
    view.resize(420, 300)
    view.grab()
    assert widget.columnWidth(0) + widget.columnWidth(1) <= widget.viewport().width()


@pytest.mark.parametrize("from_end", [True, False], ids=["prompts", "other words"])
def test_what_is_read_from_its_end_keeps_its_end(view, from_end):
    same = "so one two three four five six seven eight nine ten eleven twelve so one two "
    texts = np.array([f"{same}three", f"{same}five"], dtype=object)
    answers = RowColumn("answer", np.array(["·four", "·six"], dtype=object), tokens=True)
    bars = RowColumn("p", np.array([0.1, 0.2]), bar=True)
    mark = Rows("table", (RowColumn("prompt", texts, from_end=from_end), answers, bars), ids(np.arange(2)))
    view.resize(330, 300)
    table = settled(view, mark).table
    cells = [table.visualRect(table.model().index(row, 0)) for row in range(2)]
    first, second = (table.viewport().grab(cell).toImage() for cell in cells)
    assert cells[0].width() < QFontMetricsF(LIGHT.font(LIGHT.normal - 1)).horizontalAdvance(texts[0])
    assert (first != second) == from_end
    assert table.model().data(table.model().index(0, 0), Qt.ItemDataRole.ToolTipRole).endswith("three</p>")
    view.resize(900, 300)
    settled(view, mark)
    widths = [table.columnWidth(i) for i in range(3)]
    assert (max(widths) == widths[0]) == from_end, "and it takes the room that is left"


def ranking(values, chosen=()) -> Rows:
    order = np.argsort(-np.abs(values), kind="stable")
    columns = (
        RowColumn("head", np.array([f"h{i}" for i in order], dtype=object)),
        RowColumn("x", values[order], bar=True, levels=(-1.2, 1.2)),
    )
    places = tuple(int(np.flatnonzero(order == i)[0]) for i in chosen)
    return Rows("table", columns, ids(order), chosen=places, ranked=True)


@pytest.mark.parametrize("keyboard", [False, True])
def test_after_a_new_order_a_ranking_stands_at_its_top(view, keyboard):
    values = np.random.default_rng(0).uniform(0.1, 1, 60)
    table = settled(view, ranking(values, (7,))).table
    if keyboard:
        table.setFocus()
    table.verticalScrollBar().setValue(table.verticalScrollBar().maximum())
    settled(view, ranking(1.2 - values, (int(values.argmax()),)))  # what was first is last now
    assert table.verticalScrollBar().value() == 0
    named = replace(ranking(values[::-1].copy()), columns=(*ranking(values[::-1].copy()).columns, RowColumn("Δ", values)))
    table.verticalScrollBar().setValue(table.verticalScrollBar().maximum())
    settled(view, named)
    assert table.verticalScrollBar().value() == 0, "with further columns too"


@pytest.mark.parametrize("narrow", [True, False])
def test_after_a_click_on_a_column_the_leading_row_stays_in_sight(view, narrow):
    values = np.linspace(1, 0.1, 60)
    view.resize(90 if narrow else 400, 300)  # where it is narrow the rank is hidden
    ranked = ranking(values, (2, 40))
    mark = replace(ranked, columns=(RowColumn("#", np.arange(1, 61), digits=0), *ranked.columns))
    table = settled(view, mark).table
    assert table.horizontalHeader().isSectionHidden(0) == narrow
    seen = lambda row: table.viewport().rect().intersects(table.visualRect(table.model().index(row, 1)))
    assert seen(2)
    header = table.horizontalHeader()
    header.setSortIndicator(2, Qt.SortOrder.AscendingOrder)
    assert seen(57) and not seen(2), "the leading one of the two"
    header.setSortIndicator(2, Qt.SortOrder.DescendingOrder)
    assert seen(2)


def test_the_leading_row_is_the_one_that_is_marked(view):
    table = settled(view, ranking(np.linspace(1, 0.1, 20), (3, 1))).table
    image = table.viewport().grab().toImage()
    colour = lambda row: image.pixelColor(table.visualRect(table.model().index(row, 0)).topLeft() + QPoint(1, 4)).getRgb()[:3]
    accent = view.theme.colour("accent").getRgb()[:3]
    assert colour(3) == accent and colour(1) != accent != colour(0)
    assert colour(1) != colour(0), "the other one is chosen too"


@pytest.mark.parametrize("width", [120, 400])
def test_the_sign_of_a_sorted_column_stands_before_its_name(view, width):
    view.resize(width, 300)
    header = settled(view, ranking(np.linspace(1, 0.1, 20))).table.horizontalHeader()
    for order, sign in ((Qt.SortOrder.DescendingOrder, "▾"), (Qt.SortOrder.AscendingOrder, "▴")):
        header.setSortIndicator(1, order)
        texts = []
        for section in (0, 1):
            option = QStyleOptionHeader()
            header.initStyleOptionForIndex(option, section)
            texts.append(option.text)
            assert option.sortIndicator == QStyleOptionHeader.SortIndicator.None_, "nothing is drawn over the text"
        assert texts == ["head", f"{sign} x"]


def test_a_rank_without_room_is_named_among_the_columns_left_out(view):
    names = ("#", "first", "second", "third", "fourth", "fifth", "sixth")
    columns = tuple(RowColumn(name, np.linspace(1, 9, 6), digits=4) for name in names)
    for wide in (900, 240):
        view.resize(wide, 300)
        view.show_figure(Figure(((Rows("table", columns, ids(np.arange(6)), ranked=True),),), "t"))
        QApplication.processEvents()
        assert view.widget("table").table.isColumnHidden(0) == ("left out: #" in view.whole_caption) == (wide == 240)


@pytest.mark.parametrize("width", [220, 243, 260, 700])
def test_names_of_columns_are_whole_where_their_numbers_and_they_have_room_without_bars(view, width):
    """As beside the map of heads in a window of 1280 px: the bar gives way before the name of another column does."""
    heads = np.array([f"L{i}H{i % 9}" for i in range(60)], dtype=object)
    measures = [RowColumn(name, np.linspace(1, 0, 60), digits=3, bar=name == "mean") for name in ("mean", "sd", "control")]
    view.resize(width, 300)
    header = settled(view, Rows("table", (RowColumn("head", heads), *measures), ids(np.arange(60)))).table.horizontalHeader()
    metrics = QFontMetricsF(LIGHT.font(LIGHT.small))
    for i, name in enumerate(("head", "mean", "sd", "control")):
        beside = 2 * (4 if header.tight else 8)
        assert not header.isSectionHidden(i) and header.sectionSize(i) >= metrics.horizontalAdvance(name) + beside, name
    assert header.tight == (width < 700)


def test_a_name_is_painted_nearer_to_its_ends_where_columns_are_tight(view):
    heads = np.array([f"L{i}H{i % 9}" for i in range(60)], dtype=object)
    columns = (RowColumn("head", heads), RowColumn("measured twice", np.linspace(1, 0, 60), digits=3))
    inked = {}
    for width in (140, 600):
        view.resize(width, 300)
        header = settled(view, Rows("table", columns, ids(np.arange(60)))).table.horizontalHeader()
        picture = header.grab().toImage()
        right = round((header.sectionPosition(1) + header.sectionSize(1)) * picture.devicePixelRatio())
        line = [picture.pixelColor(x, y).lightness() for x in range(right - 8, right - 4) for y in range(picture.height() - 2)]
        inked[width] = min(line) < 200
    assert inked == {140: True, 600: False}


def test_the_rows_of_a_table_alone_share_the_height_that_they_all_have(view):
    columns = (
        RowColumn("token", np.array([f"t{i}" for i in range(20)], dtype=object)),
        RowColumn("p", np.linspace(1, 0, 20), bar=True),
    )
    mark = Rows("table", columns, ids(np.arange(20)))
    seen = {}
    for height in (300, 600, 700, 1200, 300):
        view.resize(400, height)
        table = settled(view, mark).table
        seen[height] = table.rowHeight(0), table.viewport().height() / 20
    assert seen[300][0] == 22 and seen[1200][0] == 33, "and no more than half as much again"
    for height in (600, 700):
        assert 22 < seen[height][0] == int(seen[height][1]), "what is left is less than a pixel a row"
    view.resize(400, 700)
    view.show_figure(Figure(((mark, replace(mark, name="other")),), "two"))
    QApplication.processEvents()
    assert view.widget("table").table.rowHeight(0) == 22, "beside another, rows are as everywhere"


def test_a_bar_is_no_thicker_in_a_higher_row(view):
    mark = Rows("table", (RowColumn("p", np.ones(3), bar=True),), ids(np.arange(3)))
    view.resize(400, 600)
    table = settled(view, mark).table
    assert table.rowHeight(0) == 33
    picture = table.viewport().grab().toImage()
    background = picture.pixelColor(60, 31)
    assert sum(picture.pixelColor(60, y) != background for y in range(33)) == 14, "22 px, less 4 above and below"


def test_a_spare_column_is_there_only_where_the_others_have_their_room(qtbot, view):
    numbers = [RowColumn(name, np.linspace(0, 1, 6), digits=3) for name in ("mean", "spread", "control")]
    words = np.array(["", "copies names, but only after a comma", "", "", "", ""], dtype=object)
    note, hidden = RowColumn("your note", words, spare=True), {}
    for wide in (700, 240):
        for name, columns in (("without", tuple(numbers)), ("with", (*numbers, note))):
            view.resize(wide, 300)
            view.show_figure(Figure(((Rows("table", columns, ids(np.arange(6))),),), "t"))
            QApplication.processEvents()
            header = view.widget("table").table.horizontalHeader()
            widths = [header.sectionSize(i) for i in range(3)]
            hidden[wide, name] = (header.isSectionHidden(3), widths) if name == "with" else widths
    assert not hidden[700, "with"][0] and hidden[240, "with"] == (True, hidden[240, "without"])
    assert columns_left_out(view.whole_caption), "which is said"
