"""A form built from declarations: every kind of field shows, reads and tells of its value in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QLineEdit, QSpinBox, QWidget
from pytestqt.qtbot import QtBot

from circuitlab.figures.contracts.panel import control
from circuitlab.gui.widgets.form import Field, Form, declared_fields
from circuitlab.gui.widgets.number_slider import Choices, NumberSlider


@dataclass(frozen=True)
class View:
    """One field of each kind."""

    flag: bool = control(False, label="Flag", tip="A <b>tip</b>")
    choice: Literal["no_one", "two"] = control("no_one", label="Choice")
    page: Literal["first", "second"] = control("first", label="", kind="tabs")
    whole: int = control(3, label="Whole", low=1, high=9)
    wide: int = control(0, label="Wide")
    part: float = control(0.5, label="Part", low=0.0, high=1.0)
    slid: float = control(2.0, label="Slid", low=0.0, high=4.0, kind="slider", step=0.5)
    text: str = control("", label="Text", tip="Words; empty: all words")
    path: str = control("", label="Path", kind="file")
    secret: str = control("x", label="", hidden=True)


OTHERS = {
    "flag": True,
    "choice": "two",
    "page": "second",
    "whole": 7,
    "wide": -1_000_000,
    "part": 0.25,
    "slid": 3.5,
    "text": "some words",
    "path": "/a/file",
}


@pytest.fixture
def form(qtbot: QtBot) -> Iterator[Form]:
    parent = QWidget()
    qtbot.addWidget(parent)
    yield Form(declared_fields(View), parent)
    parent.deleteLater()


def test_values_come_back_and_showing_them_tells_nobody(form: Form) -> None:
    heard: list[str] = []
    form.changed.connect(heard.append)
    assert set(form.widgets) == set(OTHERS), "all fields but the hidden one"
    form.show_values(OTHERS)
    assert form.values() == OTHERS
    assert heard == []


def _change(widget: Any, value: Any) -> None:
    if isinstance(widget, Choices):
        widget.button(value).click()
    elif isinstance(widget, NumberSlider):
        widget.number.setValue(value)
    elif isinstance(widget, QComboBox):
        widget.setCurrentIndex(widget.findData(value))
    elif isinstance(widget, (QSpinBox, QDoubleSpinBox)):
        widget.setValue(value)
    elif isinstance(widget, QLineEdit):
        widget.setText(value)
        widget.editingFinished.emit()
    else:
        widget.click()


@pytest.mark.parametrize("name", OTHERS)
def test_a_change_is_told_once_by_its_name(form: Form, name: str) -> None:
    heard: list[str] = []
    form.changed.connect(heard.append)
    _change(form.widgets[name], OTHERS[name])
    assert (heard, form.value(name)) == ([name], OTHERS[name])
    if isinstance(form.widgets[name], QLineEdit):
        form.widgets[name].editingFinished.emit()  # the keyboard goes elsewhere
        assert heard == [name]


def test_what_is_declared_is_on_the_widgets(form: Form) -> None:
    assert (form.widgets["whole"].minimum(), form.widgets["whole"].maximum()) == (1, 9)
    assert form.widgets["choice"].itemText(0) == "no one"
    assert form.widgets["text"].placeholderText() == "all words"
    assert form.widgets["part"].accessibleName() == "Part"
    assert "&lt;b&gt;" in form.widgets["flag"].toolTip()


def test_other_declarations(qtbot: QtBot) -> None:
    """A number with a unit and a word for its lowest value, choices that any text may replace, a text that is live."""
    parent = QWidget()
    qtbot.addWidget(parent)
    fields = (
        Field("size", "Size", float, low=0.0, high=9.0, decimals=1, unit=" mm", lowest="as it comes"),
        Field("scale", "Scale", choices={"1": "1", "2": "2"}, style="free"),
        Field("folder", "Folder", live=True),
    )
    form = Form(fields, parent)
    heard: list[str] = []
    form.changed.connect(heard.append)
    assert form.widgets["size"].text() == "as it comes"
    form.show_values({"size": 2.4})
    assert form.widgets["size"].text() == "2.4 mm"
    form.widgets["scale"].setCurrentText("0.125")
    form.widgets["folder"].setText("a")
    assert (form.value("scale"), form.value("folder"), heard) == ("0.125", "a", ["scale", "folder"])


@pytest.mark.parametrize("live", [False, True])
def test_a_typed_number_is_told_when_it_is_entered_or_with_each_key(qtbot: QtBot, live: bool) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    form = Form((Field("whole", "Whole", int, low=0, high=99, live=live),), parent)
    heard: list[str] = []
    form.changed.connect(heard.append)
    spin = form.widgets["whole"]
    spin.selectAll()
    qtbot.keyClicks(spin, "42")
    assert len(heard) == (2 if live else 0)
    qtbot.keyClick(spin, Qt.Key.Key_Return)
    assert (len(heard), form.value("whole")) == (2 if live else 1, 42)


def test_other_choices_keep_the_text_of_a_free_field(qtbot: QtBot) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    form = Form((Field("revision", "Revision", choices={"main": "main"}, style="free"),), parent)
    form.widgets["revision"].setCurrentText("step 64")
    heard: list[str] = []
    form.changed.connect(heard.append)
    form.offer_choices("revision", {"main": "main", "step 1": "step 1"})
    combo = form.widgets["revision"]
    assert [combo.itemText(i) for i in range(combo.count())] == ["main", "step 1"]
    assert (form.value("revision"), heard) == ("step 64", [])
    combo.setCurrentIndex(1)
    assert (form.value("revision"), heard) == ("step 1", ["revision"])
