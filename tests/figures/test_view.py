"""The view around the marks: titles, reasons, reuse, waiting, keys, and nothing left behind."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAccessible, QContextMenuEvent, QFontMetricsF, QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.app import application, load_fonts
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.stage_theme import stage_theme
from circuitlab.draw.look.theme import DARK, LIGHT, apply_theme
from circuitlab.draw.view.caption import Caption
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.figures.marks import Bars, Figure, Heatmap, Hit, Prose, RowColumn, Rows, Tokens, empty, ids

VALUES = np.eye(4, dtype=np.float32)


def heat(name="map", values=VALUES) -> Heatmap:
    return Heatmap(name, values, (0.0, 1.0))


def shown(view) -> set[str]:
    return {label.text() for label in view.findChildren(QLabel) if label.isVisible() and label.text()}


def test_title_caption_and_pruning_are_said_literally(view):
    view.show_figure(Figure(((heat(),),), "<s> & L0H1", ("norm folded", "<b>"), (200, 9412)))
    assert {"<s> & L0H1", "norm folded · <b>", "showing 200 of 9,412"} <= shown(view)
    labels = view.findChildren(QLabel, options=Qt.FindChildOption.FindDirectChildrenOnly)
    assert {label.textFormat() for label in labels} == {Qt.TextFormat.PlainText}


def test_why_empty_takes_the_place_of_the_picture(view):
    view.show_figure(Figure(((heat(),),), "A"))
    view.show_figure(empty("Type some text.", "Attention"))
    assert shown(view) == {"Type some text.", "Attention"}
    view.show_figure(Figure(((heat(),),), "B"))
    assert shown(view) == {"B"}


def test_a_figure_without_an_answer_keeps_the_old_picture(view):
    first = Figure(((heat(),),), "A")
    view.show_figure(first)
    view.show_figure(Figure(title="A"))
    assert view.figure is first


def test_widgets_are_used_again_by_type_and_name(view):
    view.show_figure(Figure(((heat("a"),), (heat("b"),)), "two"))
    a, b = view.widget("a"), view.widget("b")
    view.show_figure(Figure(((heat("a"), Bars("c", np.ones(2), ("x", "y"))),), "other"))
    assert view.widget("a") is a
    assert b.isHidden()


def test_weights_share_the_height(view):
    view.show_figure(Figure(((heat("a"),), (heat("b"),)), "two", weights=(3.0, 1.0)))
    view.grab()
    QApplication.processEvents()
    assert 2.5 < view.widget("a").height() / view.widget("b").height() < 3.5


def test_text_without_weights_takes_what_it_needs(view):
    view.show_figure(Figure(((heat(),), (Tokens("t", ("a", "b"), np.zeros(2)),)), "two"))
    view.grab()
    QApplication.processEvents()
    assert view.widget("t").height() < 60 < view.widget("map").height()


def test_busy_waits_before_it_dims(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A"))
    veil = view._busy
    view.set_busy(True)
    assert not veil.isVisible()
    qtbot.waitUntil(veil.isVisible)
    view.set_busy(False)
    assert not veil.isVisible()
    view.set_busy(True)
    view.set_busy(False)
    assert not veil._delay.isActive()


def test_right_click_asks_for_a_menu(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A"))
    view.grab()
    widget = view.widget("map")
    at = QPoint(*map(round, widget.to_pixels(np.array([1.5]), np.array([2.5]))[0]))
    with qtbot.waitSignal(view.context_requested) as asked:
        event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, widget.mapToGlobal(at))
        QApplication.sendEvent(widget.viewport(), event)
    assert asked.args[0] == Hit("map", (2, 1), "click")


def test_escape_is_said_once(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A"))
    hits = []
    view.picked.connect(hits.append)
    qtbot.keyClick(view.widget("map"), Qt.Key.Key_Escape)
    assert hits == [Hit("map", (), "leave")]


def test_copy_image(view):
    view.show_figure(Figure(((heat(),),), "A"))
    view.copy_image()
    assert QGuiApplication.clipboard().image().width() == view.width() * view.devicePixelRatio()


def test_themes_change_the_chrome(view):
    view.show_figure(Figure(((heat(),), (Tokens("t", ("a",), np.ones(1)),)), "A"))
    for theme in (DARK, LIGHT):
        view.set_theme(theme)
        image = view.grab().toImage()
        assert image.pixelColor(image.width() - 3, image.height() // 2).name() == theme.background


def test_the_application_has_our_fonts_and_both_palettes(qapp):
    assert {"Inter", "Noto Sans Mono"} <= set(load_fonts())
    for theme in (DARK, LIGHT):
        apply_theme(qapp, theme)
        assert qapp.palette().window().color().name() == theme.window
    assert application() is qapp


def test_twenty_thousand_emits(qapp):
    view = FigureView()
    seen = []
    view.hovered.connect(lambda hit, text: seen.append(text))
    hit = Hit("map", (1, 2), "hover")
    for _ in range(20_000):
        view.hovered.emit(hit, "x")
    assert len(seen) == 20_000
    view.deleteLater()


def test_nothing_is_left_behind(qapp):
    before = len(qapp.topLevelWidgets())
    for i in range(3):
        view = FigureView()
        view.show_figure(Figure(((heat(f"m{i}"),), (Tokens("t", ("a",), np.ones(1)),)), "A"))
        view.set_busy(True)
        view.grab()
        view.deleteLater()
        del view
    from PySide6.QtCore import QCoreApplication, QEvent

    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    assert len(qapp.topLevelWidgets()) == before


PARTS = tuple(f"word {i}" for i in range(60))
WORDS = " · ".join(PARTS)


def test_a_long_caption_takes_few_lines_and_the_rest_is_in_its_tip(view):
    parts = (*PARTS, Essential("≈: estimates"), Essential("remainder 1e-7 of 3 logits"))
    beside = (*PARTS, Essential("aligned 7 tokens here, 9 there"), *PARTS)
    view.show_figure(Figure(((heat(),),), "A", beside))
    view.resize(330, 300)
    QApplication.processEvents()
    assert "aligned 7 tokens" in view.findChild(Caption).text(), "two texts are said to be two"
    view.show_figure(Figure(((heat(),),), "A", parts))
    view.resize(330, 300)
    QApplication.processEvents()
    caption = view.findChild(Caption)
    assert caption.height() <= 2 * caption.fontMetrics().lineSpacing() + 2
    assert caption.text().startswith("word 0 · ")
    assert caption.text().endswith("≈: estimates · remainder 1e-7 of 3 logits · …")  # what does not add up stays in sight
    assert "word 59" in caption.toolTip()
    assert view.accessibleDescription() == " · ".join(parts)
    view.resize(1400, 900)
    QApplication.processEvents()
    assert caption.text() == " · ".join(parts)
    assert not caption.toolTip()


def test_a_caption_that_is_folded_unfolds_and_folds_again_by_button_and_key(view, qtbot):
    view.show_figure(Figure(((heat(),),), "A", PARTS))
    view.resize(330, 400)
    settled = lambda: [QApplication.processEvents() for _ in range(4)]
    settled()
    caption, fold = view.findChild(Caption), view.fold
    state = lambda: (lambda node: (node.state().checkable, node.state().checked))(QAccessible.queryAccessibleInterface(fold))
    few, low = caption.text(), caption.height()
    assert fold.isVisible() and few.endswith("…") and state() == (True, False)
    assert fold.accessibleName() and fold.focusPolicy() & Qt.FocusPolicy.TabFocus
    qtbot.mouseClick(fold, Qt.MouseButton.LeftButton)
    settled()
    assert (
        caption.text() == WORDS and caption.height() >= caption.heightForWidth(caption.width()) > low and state() == (True, True)
    )
    assert fold.isVisible() and fold.text() != "more"
    view.show_figure(Figure(((heat(),),), "A", (*PARTS, "another")))
    settled()
    assert caption.text().endswith("another"), "what was unfolded stays so"
    view.show_figure(Figure(((heat(),),), "A", PARTS))
    qtbot.keyClick(fold, Qt.Key.Key_Space)
    settled()
    assert caption.text() == few and caption.height() == low and state() == (True, False)
    view.resize(1400, 900)
    settled()
    assert caption.text() == WORDS and not fold.isVisible(), "nothing is folded where there is room"
    view.resize(330, 400)
    settled()
    assert caption.text() == few and fold.isVisible()


def test_on_paper_a_caption_is_whole(qtbot):
    paper = FigureView(paper=Paper(caption="full"))
    qtbot.addWidget(paper)
    paper.show_figure(Figure(((heat(),),), "A", PARTS))
    paper.resize(330, 300)
    paper.lay_out_for_paper(330)
    assert paper.findChild(Caption).text() == WORDS
    short = FigureView(paper=Paper(caption="short"))
    qtbot.addWidget(short)
    short.show_figure(Figure(((heat(),),), "A", PARTS))
    short.lay_out_for_paper(330)
    assert short.fold.isHidden()


def table(n: int = 8) -> Rows:
    columns = (RowColumn("#", np.arange(n), digits=0), RowColumn("head", np.array(["L0H0"] * n, dtype=object)))
    return Rows("ranking", (*columns, RowColumn("mean", np.linspace(1, 0, n), bar=True)), ids(np.arange(n)))


def places(view, *names: str) -> list[QRect]:
    view.grab()
    QApplication.processEvents()
    return [QRect(w.mapTo(view, QPoint(0, 0)), w.size()) for w in map(view.widget, names)]


def test_a_table_goes_under_its_map_where_it_is_narrow_and_the_text_follows_at_once(view):
    text = Tokens("text", ("a", "b"), np.zeros(2))
    view.show_figure(Figure(((heat(), table()), (text,)), "A", weights=(3.0, 1.0)))
    view.resize(330, 300)
    under, over = places(view, "ranking", "map")
    assert over.bottom() <= under.top()
    assert over.height() >= 60
    assert under.height() >= 60
    view.resize(330, 200)  # no room for both, one above the other
    beside, map_ = places(view, "ranking", "map")
    assert map_.right() <= beside.left()
    assert map_.width() < beside.width() / 2
    view.resize(1000, 1400)
    beside, map_, below = places(view, "ranking", "map", "text")
    assert map_.right() <= beside.left()
    assert below.top() <= map_.top() + view.widget("map").natural_height(490) + 20  # no gap between


def test_text_under_a_map_stands_beside_it_where_there_is_width_and_no_height(view):
    strip = Tokens("strip", tuple("abc"), np.zeros(3), (0, 1))
    view.show_figure(Figure(((heat(),), (strip,)), weights=(4.0, 1.0)))
    view.resize(700, 220)
    QApplication.processEvents()
    first, second = places(view, "map", "strip")
    assert second.left() >= first.right() and abs(second.top() - first.top()) < 4
    view.resize(700, 480)
    QApplication.processEvents()
    first, second = places(view, "map", "strip")
    assert second.top() >= first.bottom() and first.height() > 2 * second.height()


def test_ranks_go_before_numbers_are_pushed_out(view):
    view.show_figure(Figure(((table(),),), "A"))
    header = view.widget("ranking").table.horizontalHeader()
    for width, hidden in ((640, False), (130, True), (640, False)):
        view.resize(width, 300)
        places(view, "ranking")
        assert header.isSectionHidden(0) is hidden, width


def test_maps_above_each_other_have_their_columns_above_each_other(view):
    values = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    first = Heatmap("first", values, (3.0, 7.0), map="loss", unit="nats", square=False)
    second = Heatmap("second", values, (-0.3062, 0.3062), map="signed", unit="nats", square=False)
    view.show_figure(Figure(((first,), (second,))))
    places(view, "first", "second")
    frames = [view.widget(name).frame() for name in ("first", "second")]
    assert frames[0].left() == frames[1].left() and frames[0].right() == frames[1].right()


def test_a_map_takes_no_width_that_its_table_could_use(view):
    flat = Heatmap("map", np.eye(2, 4, dtype=np.float32), (0.0, 1.0))
    view.resize(560, 170)
    view.show_figure(Figure(((flat, table()),), "A"))
    map_, beside = places(view, "map", "ranking")
    assert map_.width() < beside.width()
    assert view.widget("map").frame().width() > map_.width() / 3


def test_a_reason_stands_in_front_of_what_can_be_clicked(view):
    view.show_figure(Figure(((table(),),), why_empty="Click a line."))
    (rows,) = places(view, "ranking")
    assert view._why.isVisible() and view._why.geometry().bottom() <= rows.top()
    assert view._why.height() < 60
    view.show_figure(empty("Nothing.", "A"))
    places(view)
    assert view._why.height() > 200


def test_a_table_leaves_as_the_person_has_sorted_and_filtered_it(view):
    columns = (
        RowColumn("word", np.array(["one", "two", "three", "ten"], dtype=object)),
        RowColumn("n", np.array([1.0, 2, 3, 10])),
    )
    rows = Rows("t", columns, ids(np.arange(4)), chosen=(1,), searchable=True)
    view.show_figure(Figure(((rows,),), "t", ("c",)))
    assert view.as_shown().marks()[0] is rows
    widget = view.widget("t")
    widget.table.horizontalHeader().setSortIndicator(1, Qt.SortOrder.DescendingOrder)
    widget.filter_box.setText("t")
    shown = view.as_shown()
    assert shown.marks()[0].columns[0].values.tolist() == ["ten", "three", "two"]
    assert (shown.marks()[0].chosen, shown.marks()[0].ids.tolist()) == ((2,), [[3], [2], [1]])
    assert shown.caption.startswith("c · ") and "3 of 4" in shown.caption and "‘t’" in shown.caption


def test_tables_side_by_side_scroll_as_one_by_one_bar(view, qtbot):
    def rows(name: str, n: int) -> Rows:
        columns = (RowColumn("token", np.array([f"{name}{i}" for i in range(n)], dtype=object)),)
        return Rows(name, columns, ids(np.arange(n)), searchable=True)

    view.show_figure(Figure(((rows("a", 60), rows("b", 60)),), "A"))
    QApplication.processEvents()
    left, right = view.widget("a"), view.widget("b")
    bars = [w.table.verticalScrollBar() for w in (left, right)]
    assert [bar.isVisible() for bar in bars] == [False, True]
    bars[1].setValue(20)
    assert bars[0].value() == 20
    left.table.scrollToBottom()
    assert bars[0].value() == bars[1].value() == bars[1].maximum()
    right.filter_box.setText("b1")  # eleven of them
    QApplication.processEvents()
    assert [bar.isVisible() for bar in bars] == [True, False], "the longer one has the bar"
    view.show_figure(Figure(((rows("a", 60),), (rows("b", 60),)), "A"))
    QApplication.processEvents()
    assert all(w.table.verticalScrollBar().isVisible() for w in (left, right))
    before = right.table.verticalScrollBar().value()
    left.table.scrollToTop()
    left.table.scrollToBottom()
    assert right.table.verticalScrollBar().value() == before, "apart, each goes its own way"


@pytest.mark.parametrize("place", ["window", "stage", "paper"])
def test_the_scale_of_colours_without_a_bar_stays_in_sight(qtbot, place):
    theme = stage_theme(720) if place == "stage" else LIGHT
    view = FigureView(theme, paper=Paper(width_mm=84.0) if place == "paper" else None)
    qtbot.addWidget(view)
    view.resize(400, 400)
    view.show()
    long = tuple(f"a clause of many words, the {i}th of them" for i in range(40))
    maps = tuple(Heatmap(name, VALUES, (-0.5, 0.5), map="signed", unit="score", colour_bar=name == "c") for name in "abc")
    view.show_figure(Figure((maps[:1], maps[1:2]), "t", long))
    (caption,) = view.findChildren(Caption, options=Qt.FindChildOption.FindDirectChildrenOnly)
    assert caption.text().count("colours from −0.5 to 0.5 score") == 1
    view.show_figure(Figure((maps[2:],), "t", long))
    assert "colours from" not in caption.text()


@pytest.mark.parametrize("size", [(420, 300), (600, 200), (380, 220)], ids=str)
def test_prose_under_a_table_has_its_lines_and_the_table_scrolls(view, size):
    words = Prose("words", (("1 co-occurrence", "in the whole training, whichever step is open, " * 9),))
    table = Rows("table", (RowColumn("head", np.arange(7.0)),), ids(np.arange(7)))
    view.resize(*size)
    view.show_figure(Figure(((table,), (words,)), "How strong is each argument?", ("strengths as the paper states them",)))
    view.grab()
    prose, rows = view.widget("words"), view.widget("table")
    line = QFontMetricsF(prose.theme.font(prose.theme.normal - 1)).height()
    assert prose.height() >= 3.5 * line
    assert rows.height() >= 50, "its head and a row"
