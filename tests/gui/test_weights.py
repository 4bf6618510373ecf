"""The panels of the weights, driven by hand: an edge, a token, a slider, an arrangement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtWidgets import QApplication

from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Edges, Heatmap, Hit, Points, Rows
from circuitlab.figures.panels.circuits.panel import CircuitsView
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell import main as gui
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.number_slider import Choices, NumberSlider
from circuitlab.model.subject import Head
from tests import pointer
from tests.gui.driving import dock, settle
from tests.models import CONFIGS, directory


@pytest.fixture
def weights(qtbot: Any, window: Window) -> Window:
    window.layout_of_docks.arrange("Weights")
    settle(qtbot, window)
    return window


def open_panel(qtbot: Any, window: Window, name: str) -> Any:
    window.layout_of_docks.go_to(name)
    settle(qtbot, window)
    return dock(window, name)


def answer(window: Window, name: str, params: Any) -> Any:
    return window.context.engine.answer(Request.named(name, params, of_weights(window.context.document.state))).result


def click_at(qtbot: Any, widget: Any, place: np.ndarray) -> None:
    at = QPoint(*(round(v) for v in place.tolist()))
    pointer.move(widget.viewport(), at)
    qtbot.mouseClick(widget.viewport(), Qt.MouseButton.LeftButton, pos=at)


def test_an_edge_is_clicked_and_its_pair_is_read_in_the_tables(qtbot: Any, weights: Window) -> None:
    panel = dock(weights, "composition")
    graph = panel.view.figure.find("composition")
    assert isinstance(graph, Edges)
    widget = panel.view.widget("composition")
    strongest = int(np.argmax(graph.weights))
    (start, end), key = widget._lines()[strongest], graph.edge_ids[strongest].tolist()  # type: ignore[index]
    for part in (0.31, 0.43, 0.57, 0.69):  # somewhere along it no other edge is nearer
        place = start + part * (end - start)
        if widget.id_at(QPointF(*place.tolist())) == (1, strongest):
            click_at(qtbot, widget, place)
            break
    settle(qtbot, weights)
    selection = weights.context.document.state.selection
    source, destination = Head(*key[2:4]), Head(*key[:2])
    assert selection.edge == (source, destination)
    assert selection.edge_kind == "QKV"[key[4]]
    assert selection.heads == (destination, source)
    scores = answer(weights, "composition", CompositionParams()).scores
    assert graph.values is not None
    baseline = answer(weights, "composition", CompositionParams()).baseline
    np.testing.assert_allclose(graph.values[strongest] + baseline, scores[(key[4], *destination, *source)], rtol=1e-5)
    assert f"{destination} composed with {source}" in dock(weights, "circuits").view.figure.title
    again = dock(weights, "composition").view.figure.find("composition")
    assert isinstance(again, Edges)
    assert again.chosen_edges == (strongest,)
    dock(weights, "overview").view.picked.emit(Hit("heads", (0, 1), "click"))
    assert weights.context.document.state.selection.edge is None
    settle(qtbot, weights)


def test_sliders_and_pages_change_what_is_drawn(qtbot: Any, weights: Window) -> None:
    panel = dock(weights, "composition")
    top = panel.controls.findChild(NumberSlider, "top")
    top.number.setValue(2)
    settle(qtbot, weights)
    assert panel.view.figure.shown is not None
    assert panel.view.figure.shown[0] == 2
    top.slider.setValue(top.slider.maximum())
    settle(qtbot, weights)
    assert panel.view.figure.shown[0] > 2
    form = panel.controls.findChild(Choices, "form")
    qtbot.mouseClick(form.button("matrix"), Qt.MouseButton.LeftButton)
    settle(qtbot, weights)
    heat = panel.view.figure.find("K")
    assert isinstance(heat, Heatmap)
    result = answer(weights, "composition", CompositionParams())
    n = result.scores.shape[2]
    np.testing.assert_allclose(heat.values[1, 2], result.scores[1, 1, 1, 0, 2] - result.baseline, rtol=1e-5)
    panel.view.picked.emit(Hit("K", (1, 1, 0, 2), "click"))
    settle(qtbot, weights)
    assert weights.context.document.state.selection.edge == (Head(0, 2), Head(1, 1))
    chosen = panel.view.figure.find("K")
    assert isinstance(chosen, Heatmap)
    assert (chosen.row, chosen.col) == (1, 2)
    assert n == 4
    qtbot.mouseClick(form.button("list"), Qt.MouseButton.LeftButton)
    settle(qtbot, weights)
    rows = panel.view.figure.find("pairs")
    assert isinstance(rows, Rows)
    values = rows.columns[3].values
    assert (np.diff(values) <= 1e-6).all()


def test_a_token_is_found_and_read_and_another_is_clicked(qtbot: Any, weights: Window) -> None:
    panel = dock(weights, "circuits")
    qtbot.keyClicks(panel.search, "w")
    qtbot.keyClick(panel.search, Qt.Key.Key_Return)
    settle(qtbot, weights)
    token = weights.prompt.tokens_of("w", False)[0]
    assert weights.context.document.state.selection.token == token
    raises = panel.view.figure.find("raises")
    assert isinstance(raises, Rows)
    head = weights.context.document.state.selection.head
    expected = answer(weights, "ov_table", OvTableParams(head, token, "source", 12))
    np.testing.assert_array_equal(raises.ids[:12, 0], expected.top_ids)
    np.testing.assert_allclose(raises.columns[1].values[:12], expected.top, rtol=1e-5)
    table = panel.view.widget("raises").table
    row = table.visualRect(table.model().index(1, 0)).center()
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=row)
    settle(qtbot, weights)
    assert weights.context.document.state.selection.token == int(expected.top_ids[1])
    # The prompt takes over again when a token of it is clicked.
    weights.prompt.losses.view.picked.emit(Hit("text", (2,), "click"))
    settle(qtbot, weights)
    state = weights.context.document.state
    assert state.selection.token is None
    assert f"(id {state.tokens[2]})" in panel.view.figure.title


def test_a_search_by_id_and_by_beginning(qtbot: Any, weights: Window) -> None:
    search = dock(weights, "circuits").search
    qtbot.keyClicks(search, "13")
    assert search._token_ids[0] == 13
    search.clear()
    qtbot.keyClicks(search, "no such thing")
    assert search._token_ids == ()
    before = weights.context.document.state
    qtbot.keyClick(search, Qt.Key.Key_Return)
    assert weights.context.document.state is before


def test_every_page_of_the_spectra_is_drawn(qtbot: Any, weights: Window) -> None:
    panel = dock(weights, "spectra")
    for page in ("copying", "plane", "singular values", "eigenvalues"):
        qtbot.mouseClick(panel.controls.findChild(Choices, "page").button(page), Qt.MouseButton.LeftButton)
        settle(qtbot, weights)
        assert panel.view.figure.grid, page
        mark = panel.view.figure.marks()[-1 if page == "copying" else 0]
        if isinstance(mark, Points):
            chosen = tuple(weights.context.document.state.selection.head)
            others = [tuple(i) for i in mark.ids.tolist() if tuple(i[:2]) != chosen]
            assert bool(others) == (page != "eigenvalues"), page
            for other in others[-1:]:
                panel.view.picked.emit(Hit(mark.name, other, "click"))
                assert weights.context.document.state.selection.head == Head(*other[:2])


def test_the_other_panels_of_the_weights_are_drawn(qtbot: Any, weights: Window) -> None:
    for name in ("bigram", "virtual", "residual"):
        assert open_panel(qtbot, weights, name).view.figure.grid, name


def test_pages_of_the_circuits(qtbot: Any, weights: Window) -> None:
    panel = dock(weights, "circuits")
    for page in ("triples", "bugs", "in text", "largest"):
        qtbot.mouseClick(panel.controls.findChild(Choices, "page").button(page), Qt.MouseButton.LeftButton)
        settle(qtbot, weights)
        if page == "bugs":  # a model without its corpus' bigrams says so
            assert "corpus" in panel.view.figure.why_empty or "bigram" in panel.view.figure.why_empty
        else:
            assert panel.view.figure.grid, page


def test_an_example_of_a_skip_trigram_becomes_the_prompt(qtbot: Any, weights: Window, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("abcd abce abcf " * 9, "utf-8")
    context, panel = weights.context, dock(weights, "circuits")
    context.apply(
        context.document.state.with_view("circuits", CircuitsView("in text", on="file", file=str(file), texts=3)), "in text"
    )
    settle(qtbot, weights)
    used, result = panel.view.figure.find("used"), panel.feed.exchange.answers["now"]["used"].result
    assert isinstance(used, Rows) and used.ids[:, 0].tolist() == result.source.tolist()
    np.testing.assert_array_equal(used.columns[3].values, result.nats)
    row = panel.view.widget("used").table
    qtbot.mouseClick(row.viewport(), Qt.MouseButton.LeftButton, pos=row.visualRect(row.model().index(1, 0)).center())
    settle(qtbot, weights)
    assert context.document.state.selection.token == result.source[1]
    table = panel.view.widget("examples").table
    qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=table.visualRect(table.model().index(0, 0)).center())
    settle(qtbot, weights)
    state, (text, source, destination) = context.document.state, result.example[1, 0].tolist()
    assert state.tokens == tuple(result.texts[text, : destination + 2].tolist())
    assert (state.selection.source, state.selection.destination, state.selection.locked) == (source, destination, True)
    assert state.tokens[source] == result.source[1]
    assert weights.prompt.editor.toPlainText() == state.text != ""
    assert panel.view.figure.find("used") is not None and state.bos == (state.tokens[0] == context.facts().bos)
    context.document.undo()
    settle(qtbot, weights)
    assert context.document.state.tokens != state.tokens


def test_an_arrangement_shows_what_it_names_and_has_a_home_for_the_rest(qtbot: Any, window: Window) -> None:
    """Also after another one, to which a dock that it does not name was added."""
    for name, arrangement in ARRANGEMENTS.items():
        window.layout_of_docks.arrange(name)
        settle(qtbot, window)
        named = {"prompt", *(one for stack in arrangement.stacks() for one in stack.tabs)}
        assert named <= set(window.docks), name
        assert {one for one, d in window.docks.items() if d.isVisible()} == named, name
        assert not any(d.isFloating() for d in window.docks.values()), name
        assert window.minimumSizeHint().width() <= 1280, name
        assert window.minimumSizeHint().height() <= 800, name
        assert window.width() == 1280, name
        for one in (stack.tabs[0] for stack in arrangement.stacks()):
            front = window.docks[one]
            assert not front.visibleRegion().isEmpty(), (name, one)
            assert front.width() > 300 and front.height() > 150, (name, one, front.size())
        other = next(one for one in window.docks if one not in named)
        window.layout_of_docks.go_to(other)
        QApplication.processEvents()
        assert not window.docks[other].visibleRegion().isEmpty(), name
        assert window.width() == 1280, name


def test_typing_asks_nothing_of_the_weights_again(qtbot: Any, weights: Window) -> None:
    panels = [dock(weights, n) for n in ("composition", "spectra")]
    before = [p.feed.exchange.requests["now"] for p in panels]
    figures = [p.view.figure.marks()[0] for p in panels]
    qtbot.keyClicks(weights.prompt.editor, " x")
    settle(qtbot, weights)
    assert [p.feed.exchange.requests["now"] for p in panels] == before
    for panel, old in zip(panels, figures, strict=True):
        new: Any = panel.view.figure.marks()[0]
        assert (new.xy if isinstance(new, Edges) else new.x) is (old.xy if isinstance(old, Edges) else old.x)  # type: ignore[union-attr]


@pytest.mark.parametrize(("config", "said"), [("post-residual", "eights alone say nothing exact"), ("one-layer", "one layer")])
def test_a_model_that_cannot_be_read_so_says_why(qtbot: Any, tmp_path: Path, config: str, said: str) -> None:
    from dataclasses import replace

    shape = replace(CONFIGS["attention-only"], n_layers=1) if config == "one-layer" else CONFIGS[config]
    made = gui.make_window(str(directory(tmp_path / "model", shape)), "one two", remember=False)
    made.resize(1280, 800)
    made.show()
    made.layout_of_docks.arrange("Weights")
    settle(qtbot, made)
    assert said in dock(made, "composition").view.figure.why_empty
    if config != "one-layer":
        assert said in dock(made, "circuits").view.figure.why_empty
    made.close()
    made.deleteLater()


def test_docks_that_end_behind_a_tab_ask_for_nothing(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.arrange("Weights")
    settle(qtbot, window)
    assert dock(window, "composition").feed.exchange.requests["now"]
    for name in ("virtual", "residual", "bigram"):
        assert not dock(window, name).feed.exchange.requests["now"], name
    window.layout_of_docks.go_to("residual")
    settle(qtbot, window)
    assert dock(window, "residual").feed.exchange.requests["now"]


def test_docks_behind_tabs_do_not_ask_for_the_height_of_a_narrow_one(qtbot: Any, window: Window) -> None:
    window.resize(1280, 800)
    window.layout_of_docks.arrange("Training")
    settle(qtbot, window)
    above, below, behind = (window.docks[name] for name in ("attention", "heads", "head_finder"))
    assert below.minimumSizeHint().height() <= behind.minimumSizeHint().height() < 190
    assert above.height() > below.height()
    assert window.docks["prompt"].height() < 150


def test_a_larger_window_gives_its_room_to_the_panels_and_not_to_the_prompt(qtbot: Any, window: Window) -> None:
    before, panel = window.docks["prompt"].height(), window.docks["attention"].height()
    window.resize(1500, 1200)
    qtbot.waitUntil(lambda: window.docks["attention"].height() > panel + 300)
    assert abs(window.docks["prompt"].height() - before) <= 40
    settle(qtbot, window)
    window.layout_of_docks.reset()
    settle(qtbot, window)
    assert window.docks["prompt"].height() < 260
