"""The laboratory in the window: a slider is the model, repaints what it changes, is one step of undo, and heaps nothing up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox, QWidget

from circuitlab.engine.store import MOST_CONSTRUCTED
from circuitlab.figures.contracts.panel import control
from circuitlab.figures.panels.laboratory.parameters import LaboratoryView
from circuitlab.gui.panel.controls import Controls
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.shell.window import Window
from circuitlab.gui.widgets.number_slider import NumberSlider
from circuitlab.model.subject import ModelRef
from circuitlab.state.constructed import TEXT, parameters
from tests.gui.driving import dock, heat, pixels, settle, shown_window

LAB = "laboratory"


@dataclass(frozen=True)
class View:
    """Of a panel that there is not."""

    fine: float = control(0.123456, label="fine", low=0.0, high=1.0, kind="slider", step=0.01)
    large: float = control(5.0, label="large", low=1, high=10, kind="slider", step=0.5, typed=(0, 1000))


def _in_laboratory(qtbot: Any, source: str, text: str) -> Iterator[Window]:
    """A window on a model, the laboratory in front."""
    with shown_window(qtbot, source, text, "Laboratory") as made:
        yield made


@pytest.fixture
def lab(qtbot: Any) -> Iterator[Window]:
    yield from _in_laboratory(qtbot, "rope-induction", TEXT)


def slider(panel: PanelDock, name: str) -> NumberSlider:
    widget = panel.controls.findChild(NumberSlider, name)
    assert isinstance(widget, NumberSlider)
    return widget


def typed(panel: PanelDock, name: str, value: Any) -> None:
    """A number typed beside its slider."""
    number: Any = slider(panel, name).number
    number.setValue(value)


def said(panel: PanelDock) -> str:
    """The present numbers."""
    words: Any = panel.view.figure.find("words")
    return words.paragraphs[0][1]


def page(qtbot: Any, window: Window, name: str) -> PanelDock:
    panel, document = dock(window, LAB), window.context.document
    document.apply(document.recorded.with_view(LAB, LaboratoryView(page=name)), f"page {name}")  # type: ignore[arg-type]
    settle(qtbot, window)
    return panel


def alpha(window: Window) -> float:
    result = parameters(window.context.document.recorded)
    assert result is not None
    return result.alpha


def test_a_slider_is_the_model_and_repaints_the_panels(qtbot: Any, lab: Window) -> None:
    panel = page(qtbot, lab, "layer 0")
    measured, attention = panel.view.widget("measured"), dock(lab, "attention").view
    before, beside = pixels(measured), pixels(attention)
    first: Any = panel.view.figure.find("measured")
    typed(panel, "alpha", 1.0)
    settle(qtbot, lab)
    assert lab.context.document.state.model == ModelRef("construct:rope-induction?alpha=1")
    now: Any = panel.view.figure.find("measured")
    assert now.values[4, 3] < 0.6 < first.values[4, 3]
    assert all(fact in said(panel) for fact in ("α 1 ", "too low", "12.8"))
    assert (pixels(measured) != before).any() and (pixels(attention) != beside).any()
    assert lab.prompt.editor.toPlainText() == TEXT
    lab.undo()
    settle(qtbot, lab)
    assert lab.context.document.state.model == ModelRef("construct:rope-induction")
    assert slider(panel, "alpha").value() == 12.8
    np.testing.assert_array_equal(pixels(measured), before)
    lab.redo()
    settle(qtbot, lab)
    assert alpha(lab) == 1 and slider(panel, "alpha").value() == 1


class Counting(QObject):
    """How often each widget was told of each kind of event."""

    def __init__(self, app: QCoreApplication) -> None:
        super().__init__(app)
        self.seen: Counter[tuple[int, QEvent.Type]] = Counter()
        app.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.seen[id(watched), event.type()] += 1
        return False

    def of(self, watched: QObject, kind: QEvent.Type) -> int:
        return self.seen[id(watched), kind]


def test_a_slider_paints_what_it_changes_and_lays_nothing_else_out(qtbot: Any, lab: Window) -> None:
    panel, app = page(qtbot, lab, "clock"), QCoreApplication.instance()
    assert app is not None
    prompt, moved, others = lab.docks["prompt"], slider(panel, "alpha"), [slider(panel, n) for n in ("d_head", "offset", "n_ctx")]
    picture = dock(lab, "attention").view.widget(heat(lab).name).viewport()
    counting = Counting(app)
    moved.slider.setValue(moved.slider.value() - 60)
    settle(qtbot, lab)
    app.removeEventFilter(counting)
    assert counting.of(moved.number, QEvent.Type.Paint) and counting.of(picture, QEvent.Type.Paint)
    assert [counting.of(other.number, QEvent.Type.Paint) for other in others] == [0, 0, 0]
    assert counting.of(prompt, QEvent.Type.LayoutRequest) == 0


def test_a_drag_is_one_step_and_another_drag_another(qtbot: Any, lab: Window) -> None:
    panel = page(qtbot, lab, "clock")
    history: Any = lab.context.document._history
    steps, moved = len(history._steps), slider(panel, "alpha")
    for places in ((300, 400, 500, 510), (600, 650)):
        moved.slider.sliderPressed.emit()
        for place in places:
            moved.slider.setValue(place)
            settle(qtbot, lab)
    assert len(history._steps) == steps + 2
    last = alpha(lab)
    lab.undo()
    settle(qtbot, lab)
    assert 0.1 < alpha(lab) < last
    lab.undo()
    settle(qtbot, lab)
    assert alpha(lab) == 12.8 and len(history._steps) == steps + 2 and not history.before


def test_hundreds_of_values_heap_nothing_up(qtbot: Any, lab: Window) -> None:
    panel, context = page(qtbot, lab, "clock"), lab.context
    for name in ("attention", "predictions", "composition", "circuits", "model"):
        lab.docks[name].hide()
    store = context.engine.store
    for k in range(40):
        typed(panel, "alpha", round(0.5 + 0.1 * k, 1))
        qtbot.waitUntil(lambda k=k: alpha(lab) == round(0.5 + 0.1 * k, 1))
        assert len(store._models) <= MOST_CONSTRUCTED + 1
    settle(qtbot, lab)
    assert len(store._doors) == 0 and len(context._facts) <= 64 and lab.opening.recent() == []
    history: Any = context.document._history
    assert len(history._steps) <= 4
    lab.undo()
    qtbot.waitUntil(lambda: alpha(lab) == 12.8)
    settle(qtbot, lab)  # the first model has been closed meanwhile and is made again
    assert "15.31 of 16" in panel.view.figure.title


def test_what_cannot_be_springs_back_and_says_why(qtbot: Any, lab: Window) -> None:
    panel = page(qtbot, lab, "clock")
    said: list[str] = []
    lab.context.message.connect(said.append)
    offset, before = slider(panel, "offset"), lab.context.document.recorded
    typed(panel, "offset", 70)
    settle(qtbot, lab)
    assert lab.context.document.recorded == before and offset.value() == 1
    assert any("70" in words for words in said)
    assert panel.view.figure.grid


def test_a_variant_takes_its_values_and_the_pages_their_sliders(qtbot: Any, lab: Window) -> None:
    panel = page(qtbot, lab, "layer 1")
    shown = lambda: {w.objectName() for w in panel.controls.findChildren(NumberSlider) if w.isVisible()}
    assert shown() == {"beta", "sigma", "offset", "rank"}
    variant: Any = panel.controls.findChild(QComboBox, "variant")
    variant.setCurrentIndex(variant.findData("sinusoidal"))
    settle(qtbot, lab)
    assert lab.context.document.recorded.model.source == "construct:rope-induction?variant=sinusoidal"
    assert slider(panel, "beta").value() == 615 and "5 of 5" in said(panel)
    # σ is shown with three digits; moving β must not round it
    typed(panel, "beta", 600)
    settle(qtbot, lab)
    assert lab.context.document.recorded.model.source == "construct:rope-induction?variant=sinusoidal&beta=600"
    page(qtbot, lab, "clock")
    assert shown() == {"alpha", "d_head", "offset", "base", "n_ctx"}
    frequencies: Any = panel.controls.findChild(QComboBox, "frequencies")
    frequencies.setCurrentIndex(frequencies.findData("equal"))
    settle(qtbot, lab)
    assert shown() == {"alpha", "d_head", "offset", "period", "n_ctx"}
    slider(panel, "d_head").slider.setValue(700)
    settle(qtbot, lab)
    assert slider(panel, "d_head").value() % 2 == 0


def test_from_another_model_a_click_leads_in(qtbot: Any, window: Window) -> None:
    window.layout_of_docks.arrange("Laboratory")
    settle(qtbot, window)
    panel = dock(window, LAB)
    assert not [w for w in panel.controls.findChildren(NumberSlider) if w.isVisible()]
    table = panel.view.widget("open").table
    at = table.visualRect(table.model().index(0, 0)).center()
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
    qtbot.waitUntil(lambda: window.context.document.recorded.model == ModelRef("construct:rope-induction"))
    settle(qtbot, window)
    assert window.prompt.editor.toPlainText() == TEXT and panel.view.figure.find("hands") is not None
    window.undo()
    settle(qtbot, window)
    assert panel.view.figure.find("open") is not None


@pytest.fixture
def trained(qtbot: Any) -> Iterator[Window]:
    yield from _in_laboratory(qtbot, "attn-only-2l", "A B C")


def test_the_prompt_stays_as_high_when_the_bar_of_a_training_comes_and_goes(qtbot: Any, trained: Window) -> None:
    window, prompt = trained, trained.docks["prompt"]
    before = prompt.height()
    with qtbot.waitSignal(window.opening.opened):
        window.opening.open("rope-induction", TEXT)
    settle(qtbot, window)
    assert window.checkpoints.isHidden()
    qtbot.waitUntil(lambda: abs(prompt.height() - before) <= 6)  # the window is laid out in its own time
    window.undo()
    settle(qtbot, window)
    assert window.checkpoints.isVisible()
    qtbot.waitUntil(lambda: abs(prompt.height() - before) <= 6)


def test_controls_that_appear_all_find_room(qtbot: Any, window: Window) -> None:
    """Another model brings sliders to a panel that is on the screen: all of them stand above its figure, none cut off."""
    window.resize(1280, 800)
    window.layout_of_docks.arrange("Laboratory")
    settle(qtbot, window)
    panel = dock(window, LAB)
    with qtbot.waitSignal(window.opening.opened):
        window.opening.open("rope-induction", TEXT)
    settle(qtbot, window)
    controls = panel.controls
    shown = [w for w in controls.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly) if w.isVisible()]
    assert len(shown) > 5
    assert all(controls.rect().contains(w.geometry()) for w in shown)
    below = panel.view.mapTo(panel, panel.view.rect().topLeft()).y()
    assert panel.rect().contains(controls.mapTo(panel, controls.rect().bottomRight()))
    assert controls.mapTo(panel, controls.rect().bottomLeft()).y() <= below


def test_a_control_that_is_not_moved_keeps_its_value(qtbot: Any) -> None:
    made = Controls(View)
    qtbot.addWidget(made)
    made.show_view(View(large=700.0))
    heard: list[Any] = []
    made.changed.connect(heard.append)
    fine: Any = made.findChild(NumberSlider, "fine")
    large: Any = made.findChild(NumberSlider, "large")
    assert (fine.value(), large.value()) == (0.12, 700.0)
    large.number.setValue(8.5)
    fine.slider.setValue(fine.slider.value())
    assert heard == [View(0.123456, 8.5)]
