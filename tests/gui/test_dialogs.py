"""What holds for every dialog: Enter in a field presses nothing but the button that the dialog is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import torch
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QDialog,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
)
from safetensors.torch import save_file

from circuitlab import gui
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.plain_text import question
from circuitlab.draw.look.slide import Slide
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadModel, UnknownFamily
from circuitlab.gui.docks.chat_dialog import ChatDialog
from circuitlab.gui.lessons.film_dialog import FilmDialog
from circuitlab.gui.panel.note_dialog import NoteDialog
from circuitlab.gui.panel.sweep_question import sweep_question
from circuitlab.gui.pictures.paper_dialog import PaperDialog
from circuitlab.gui.presenter.dialog import Choice, PresentDialog
from circuitlab.gui.presenter.options import TalkOptions
from circuitlab.gui.presenter.screens import attached
from circuitlab.gui.sessions.controller import unsaved_box
from circuitlab.gui.sessions.file_work import Searcher, Staged
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.sessions.recovery_dialog import RecoveryDialog
from circuitlab.gui.shell.assumptions_dialog import AssumptionsDialog
from circuitlab.gui.shell.dialogs import about
from circuitlab.gui.shell.errors import ErrorDialog
from circuitlab.gui.shell.fetch_dialog import FetchDialog
from circuitlab.gui.shell.get_dialog import GetDialog
from circuitlab.gui.shell.hub_dialog import HubDialog
from circuitlab.gui.shell.model_dialog import ModelDialog
from circuitlab.gui.shell.opening import assumptions_asked
from circuitlab.gui.shell.palette import Palette
from circuitlab.gui.shell.palette_entries import SearchEntries
from circuitlab.gui.shell.settings_dialog import SettingsDialog
from circuitlab.gui.shell.shortcut_sheet import ShortcutSheet
from circuitlab.gui.shell.window import Window
from circuitlab.gui.sweeping.dialog import SweepDialog
from circuitlab.gui.sweeping.table_dialog import SweepTableDialog
from circuitlab.gui.training.dialog import TrainingDialog, closing_box
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.model.archives.index import Archive, Stored
from circuitlab.model.loading.assumptions import Assumed, Assumption
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.orphans import Orphan
from circuitlab.session_files.session import FileEntry, ModelEntry, Note, Session
from circuitlab.story.setup import Setup
from tests.gui.driving import dock, settle
from tests.gui.room import cut

DIALOGS: dict[str, Callable[[Window], QDialog]] = {
    "settings": lambda w: SettingsDialog(w.settings, w),
    "assumed": lambda w: AssumptionsDialog(
        w.opening, w.context.document.state.model, (Assumption("score_scale", "1", (), "no file says it"),), w
    ),
    "models of a session": lambda w: models_dialog(w),
    "recovery": lambda w: RecoveryDialog(orphans(), (Path("damaged.circuitlab"),), None, w),
    "hub": lambda w: HubDialog(w.opening, w),
    "checkpoints": lambda w: get_dialog(w),
    "model": lambda w: ModelDialog(w.context, w),
    "training": lambda w: TrainingDialog(w.context, w),
    "sweep": lambda w: SweepDialog(sweep_question(dock(w, "attention").panel, w.context), w.context, w.dialogs.sweeps, w),
    "table of a sweep": lambda w: SweepTableDialog(Path("/home/somebody/sweeps/attribution"), w.context, w),
    "explain": lambda w: dock(w, "attention").actions_menu.explainer(),
    "error": lambda w: ErrorDialog(BadModel("It is not there.", remedy="Look elsewhere."), w),
    "paper": lambda w: PaperDialog(Paper(), w),
    "note": lambda w: NoteDialog(w.context, Note("", panel="attention"), None, w),
    "palette": lambda w: Palette([*w.menus.actions, *w.menus.lessons], w, SearchEntries(w.context, w.opening)),
    "shortcuts": lambda w: ShortcutSheet(w.menus.actions, w),
    "chat": lambda w: ChatDialog("What stood on the hill?", w),
    "film": lambda w: FilmDialog(Slide(), "Training of attn-only-2l", 25, None, w),
    "present": lambda w: PresentDialog(Choice(["A head", "Without it"], attached()), TalkOptions(), w.preparing, w),
}
BOXES: dict[str, Callable[[Window], QDialog]] = {
    "about": about,
    "question": lambda w: question(w, "Close CircuitLab", "It is still running. Cancel it and close?"),
    "unsaved changes": lambda w: unsaved_box(w, "talk"),
    "training goes on": lambda w: closing_box(w)[0],
}


def get_dialog(window: Window) -> GetDialog:
    """About a long series with a long name, from a far address."""
    steps = tuple(Stored(f"step-{i:06d}.safetensors", 2**21, "ab" * 32) for i in range(100))
    zipped = Stored("a-model-with-a-longer-name-smeared-checkpoints.zip", 200 * 2**20, "ab" * 32)
    archive = Archive(
        "a-model-with-a-longer-name-smeared", zipped, steps, "https://downloads.example.org/circuitlab/releases/v1.20"
    )
    dialog = GetDialog(window.context, window)
    dialog.models.addItem(archive.model, archive)
    return dialog


def orphans() -> tuple[Orphan, ...]:
    """A session with a file and several copies, one of them damaged, and one that was never saved."""
    folder = Path("/home/somebody/.config/circuitlab/recovery")
    copies = tuple(folder / f"{i}.circuitlab" for i in range(3))
    of = Path("/home/somebody/experiments/talk.circuitlab")
    talk = Orphan(folder, "1", copies, of, "Induction in five views", 5, 0.0, 1)
    return talk, Orphan(folder, "2", copies[:1], None, "attn-only-2l · Captain Harville and Miss Penrose", 0, 0.0)


def models_dialog(window: Window) -> ModelsDialog:
    """About a model that was not found, one that only a step needs, one that has other weights, and two files."""
    runs = Path("/home/somebody/experiments/runs")
    names = ("mine", "an earlier one", "attn-only-2l")
    models = {name: ModelEntry(ModelRef(f"file:{runs / name / 'model'}"), "77ab" * 16) for name in names}
    files = {name: FileEntry(f"/home/somebody/texts/{name}.txt", "cd03" * 16) for name in ("names", "a longer text")}
    session = Session(models, Setup(model="mine", pin=(Setup(model="attn-only-2l"),)), files=files)
    other = ModelRef(f"file:{runs / 'again' / 'model'}")
    path, hashes = Path("talk.circuitlab"), {names[2]: "1290" * 16}
    staged = Staged(path, session, path.parent, missing=names[:2], changed={names[2]: other}, hashes=hashes)
    staged = replace(staged, missing_files=("names",), changed_files=("a longer text",))
    return ModelsDialog(staged, window.context.runner, Searcher(window.context.engine, {}), window)


class Screen:
    """One on which everything has to have room."""

    def availableGeometry(self) -> QRect:
        return QRect(0, 0, 1280, 800)


def kinds(of: type[QDialog]) -> set[type[QDialog]]:
    """All dialogs of ours that are a kind of that."""
    below = {kind for one in of.__subclasses__() for kind in {one, *kinds(one)}}
    return {kind for kind in below if kind.__module__.startswith("circuitlab.")}


def test_no_dialog_is_left_out_of_these_walks(window: Window) -> None:
    for module in walk_packages(gui.__path__, f"{gui.__name__}."):
        import_module(module.name)
    made = [make(window) for make in (*DIALOGS.values(), *BOXES.values())]
    assert kinds(QDialog) - {Dialog, FetchDialog} <= {type(one) for one in made}
    for one in made:
        one.deleteLater()


def test_every_dialog_fits_a_small_screen_with_its_frame_and_nothing_in_it_is_cut(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dialog, "screen", lambda self: Screen())
    for scale in (1.0, 1.3, 1.6):
        window.settings.set("text_scale", scale)
        settle(qtbot, window)
        for name, make in (*DIALOGS.items(), *BOXES.items()):
            dialog = make(window)
            dialog.show()
            qtbot.waitExposed(dialog)
            QApplication.processEvents()
            assert dialog.width() <= 1264 and dialog.height() <= 752, (name, scale)
            assert not list(cut(dialog)), (name, scale)
            for area in dialog.findChildren(QScrollArea):
                assert not area.horizontalScrollBar().maximum(), f"{name}, text {scale}: wider than it can be seen"
            dialog.close()
            dialog.deleteLater()


def test_the_sheet_of_shortcuts_scrolls_by_the_keyboard_to_its_end(
    qtbot: Any, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dialog, "screen", lambda self: Screen())
    sheet = ShortcutSheet(window.menus.actions, window)
    sheet.show()
    qtbot.waitExposed(sheet)
    bar = sheet.area.verticalScrollBar()
    assert bar.maximum() > 0, "there is more than a small screen holds"
    for _ in range(60):
        qtbot.keyClick(sheet.area, Qt.Key.Key_PageDown)
    assert bar.value() == bar.maximum()
    last = max(sheet.inside.findChildren(QLabel), key=lambda label: label.geometry().bottom())
    assert not last.visibleRegion().isEmpty()
    sheet.close()
    sheet.deleteLater()


def test_enter_belongs_to_no_button_but_the_one_the_dialog_is_for(qtbot: Any, window: Window) -> None:
    safe = {
        "assumed": {"Open again with these"},
        "hub": {"Download and open"},
        "checkpoints": {"Download"},
        "model": {"Get and open"},
        "error": {"Close"},
        "paper": {"Choose a file…"},
        "film": {"Choose a file…"},
        "note": {"Keep"},
        "present": {"Present"},
        "chat": {"Use as the prompt"},
        "models of a session": {"Use them all the same"},
    }
    for name, make in DIALOGS.items():
        dialog = make(window)
        dialog.show()
        qtbot.waitExposed(dialog)
        assert isinstance(dialog, (Dialog, ErrorDialog)), name
        buttons = dialog.findChildren(QPushButton)
        takers = {b.text().replace("&", "") for b in buttons if b.isDefault() or b.autoDefault()}
        its = safe.get(name, set())
        assert (takers & its if isinstance(dialog, ErrorDialog) else takers) == its, name
        if isinstance(dialog, ErrorDialog):
            assert [b.text().replace("&", "") for b in buttons if b.isDefault()] == ["Close"]
        dialog.close()
        dialog.deleteLater()


def test_enter_in_the_settings_keeps_theme_and_text_size(qtbot: Any, window: Window) -> None:
    dialog = SettingsDialog(window.settings, window)
    dialog.show()
    qtbot.waitExposed(dialog)
    window.settings.set("theme", "dark")
    window.settings.set("text_scale", 1.2)
    field = dialog.fields["debounce"]
    assert isinstance(field, QAbstractSpinBox)
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, "75")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    QApplication.processEvents()
    chosen = {name: window.settings[name] for name in ("theme", "text_scale", "debounce")}
    assert chosen == {"theme": "dark", "text_scale": 1.2, "debounce": 75}
    assert dialog.isVisible()
    dialog.close()
    dialog.deleteLater()


def test_enter_on_a_button_presses_that_button(qtbot: Any, window: Window) -> None:
    dialog = SettingsDialog(window.settings, window)
    dialog.show()
    qtbot.waitExposed(dialog)
    window.settings.set("debounce", 75)
    defaults = next(b for b in dialog.findChildren(QPushButton) if b.text() == "Defaults")
    defaults.setFocus()
    qtbot.keyClick(defaults, Qt.Key.Key_Return)
    assert dialog.isVisible()
    assert window.settings["debounce"] == 60
    dialog.close()
    dialog.deleteLater()


def test_an_unknown_family_shows_the_files_own_names_and_the_command(qtbot: Any, window: Window, tmp_path: Path) -> None:
    file = tmp_path / "<b>odd.safetensors"
    tensors = {f"a.{i}.mixer.<i>w</i>": torch.zeros(4, 4) for i in range(3)} | {f"part{i}": torch.zeros(i + 1) for i in range(90)}
    save_file(tensors, file)
    with pytest.raises(BadModel) as caught:
        ModelStore().open(reference(str(file)))
    error = caught.value
    assert isinstance(error, UnknownFamily)
    dialog = ErrorDialog(error, window)
    dialog.show()
    qtbot.waitExposed(dialog)
    names = dialog.findChild(QPlainTextEdit)
    assert isinstance(names, QPlainTextEdit)
    lines = names.toPlainText().splitlines()
    assert any("mixer.<i>w</i>" in line and "3 of them" in line for line in lines)
    assert "93" in lines[0] and len(lines) <= 50
    assert dialog.height() < window.height()
    assert all(label.textFormat() == Qt.TextFormat.PlainText for label in dialog.findChildren(QLabel) if label.text())
    command = next(line for line in dialog.findChildren(QLineEdit) if line.isReadOnly())
    assert command.text() == error.command and "import" in error.command
    assert dialog.copy_command is not None
    dialog.copy_command.click()
    assert QGuiApplication.clipboard().text() == error.command
    dialog.deleteLater()


def test_what_an_error_asks_is_a_field_of_it(tmp_path: Path) -> None:
    with pytest.raises(BadModel) as caught:
        Assumed({}).size("n_heads", None, "heads")
    assert dict(assumptions_asked(caught.value)) == {"n_heads": ()}
    assert not assumptions_asked(BadModel("It is not there.", remedy="Say it: --assume x=NUMBER"))
