"""A picture that the window has exported or copied says what it shows; dropped on a window it shows it, as a step of undo."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication, QImage

from circuitlab.draw.look.paper import Paper
from circuitlab.errors import BadInput
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.sessions.models_dialog import ModelsDialog
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import WITHOUT_VIEW
from circuitlab.state.state import State
from tests.gui.driving import dock, exported, save, settle, shown_window, work_on
from tests.gui.test_commands import go
from tests.gui.test_sessions import at
from tests.models import directory

SUFFIXES = (".png", ".svg", ".pdf")


def dropped(qtbot: Any, window: Window, path: Path) -> None:
    """The file is dropped, and what it shows is on the screen."""
    with qtbot.waitSignal(window.sessions.pictures.shown):
        let_fall(window, path)
    settle(qtbot, window)


def let_fall(window: Window, path: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    none = Qt.KeyboardModifier.NoModifier
    window.dropEvent(QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, none))


def of_attention(state: State) -> State:
    """What a picture of attention says of a State."""
    return replace(state, views={name: view for name, view in state.views.items() if name == "attention"}, draft="")


@pytest.fixture
def worked_on(qtbot: Any, window: Window) -> Iterator[Window]:
    work_on(window)
    settle(qtbot, window)
    yield window
    settle(qtbot, window)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_dropped_picture_shows_what_it_shows_and_undo_brings_back_what_was_there(
    qtbot: Any, worked_on: Window, tmp_path: Path, suffix: str
) -> None:
    state = worked_on.context.document.recorded
    path = exported(qtbot, worked_on, tmp_path / f"a{suffix}")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        go(second, "ablate")
        document, title = second.context.document, second.windowTitle()
        view = dock(second, "predictions").panel.view(k=7)
        second.context.apply(document.recorded.with_view("predictions", view), "setting")
        before = document.work
        second.layout_of_docks.go_to("predictions")
        dropped(qtbot, second, path)
        assert of_attention(document.recorded) == of_attention(state)
        assert document.recorded.views["predictions"] == view, "settings of other panels stay"
        assert second.prompt.editor.toPlainText() == "ab cab ab"
        assert second.layout_of_docks.current_panel is dock(second, "attention") and dock(second, "attention").shown
        assert dock(second, "attention").view.figure.title == dock(worked_on, "attention").view.figure.title
        assert second.sessions.path is None and path.name in document.undo_label
        go(second, "undo")
        settle(qtbot, second)
        assert document.work == before and second.windowTitle() == title


def test_the_session_stays_the_session(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    """Its file, its story and its notes; the picture is a change that is not saved yet."""
    path = exported(qtbot, worked_on, tmp_path / "a.png")
    save(qtbot, worked_on, tmp_path / "talk.circuitlab")
    state = worked_on.context.document.recorded
    worked_on.prompt.editor.setPlainText("ba")
    worked_on.prompt.commit()
    settle(qtbot, worked_on)
    save(qtbot, worked_on, tmp_path / "talk.circuitlab")
    dropped(qtbot, worked_on, path)
    assert worked_on.sessions.path == tmp_path / "talk.circuitlab" and worked_on.isWindowModified()
    assert worked_on.context.document.recorded == state, "of one's own window all of it comes back"
    go(worked_on, "undo")
    assert not worked_on.isWindowModified()


def test_it_names_no_folder_no_person_and_no_machine(qtbot: Any, tmp_path: Path) -> None:
    home = tmp_path / "home" / "geheim.person"
    model = directory(home / "secret-project" / "mine")
    home.joinpath("names.tsv").write_text("a\tb\n")
    with shown_window(qtbot, model) as window:
        work_on(window)
        context = window.context
        listed = dock(window, "side_by_side").panel.view(models=f"attn-only-1l, {model}, {home}/gone")
        context.apply(context.document.recorded.with_view("side_by_side", listed), "setting")
        window.layout_of_docks.go_to("side_by_side")
        settle(qtbot, window)
        session = save(qtbot, window, home / "talk.circuitlab")
        assert session["now"]["view"]["side_by_side"]["models"] == {"models": ["attn-only-1l", {"model": "mine"}, f"{home}/gone"]}
        for panel in ("attention", "side_by_side"):
            for suffix in SUFFIXES:
                path = exported(qtbot, window, tmp_path / f"{panel}{suffix}", panel, Paper(width_mm=174))
                inside = path.read_bytes() if suffix != ".png" else QImage(str(path)).text("CircuitLab view").encode()
                assert b'"mine"' in inside or b"&quot;mine&quot;" in inside
                for secret in (b"geheim", b"secret-project", str(tmp_path).encode(), b"/home"):
                    assert secret not in path.read_bytes() + inside, f"{secret!r} in {path.name}"
        state = context.document.recorded
        dropped(qtbot, window, tmp_path / "side_by_side.png")
        shown = context.document.recorded
        assert shown.views["side_by_side"].models == f"attn-only-1l, {model}, gone"
        assert replace(shown, views={}) == replace(state, views={})
        go(window, "undo")
        settle(qtbot, window)


def test_without_it_the_file_says_nothing(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    with_view = exported(qtbot, worked_on, tmp_path / "with.svg").read_text("utf-8")
    worked_on.settings.set("picture_view", WITHOUT_VIEW)
    for suffix in SUFFIXES:
        path = exported(qtbot, worked_on, tmp_path / f"a{suffix}")
        assert b"circuitlab:view" not in path.read_bytes() and b"CircuitLab view" not in path.read_bytes()
        with pytest.raises(BadInput, match="does not say what it shows"):
            refused(qtbot, worked_on, path)
    plain = (tmp_path / "a.svg").read_text("utf-8")
    assert plain == re.sub(r"<metadata>.*?</metadata>", "", with_view).replace(' xmlns:circuitlab="urn:circuitlab:view#"', "")
    dock(worked_on, "attention").actions_menu.copy_image()
    assert not QGuiApplication.clipboard().mimeData().hasFormat("image/png") or not clipboard_text()
    worked_on.settings.reset("picture_view")


def refused(qtbot: Any, window: Window, path: Path) -> None:
    """Drop a file that cannot be opened, and raise its error; nothing has changed."""
    before = window.context.document.work
    window.context.failed.disconnect(window.dialogs.show_error)
    with qtbot.waitSignal(window.context.failed) as failed:
        let_fall(window, path)
    window.context.failed.connect(window.dialogs.show_error)
    assert window.context.document.work is before
    raise failed.args[0]


def clipboard_text() -> str:
    data = bytes(QGuiApplication.clipboard().mimeData().data("image/png").data())
    return QImage.fromData(data).text("CircuitLab view")


def test_a_copied_image_says_it_too(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    attention = dock(worked_on, "attention")
    with qtbot.waitSignal(worked_on.context.message, check_params_cb=lambda text: text == "Image copied."):
        attention.actions_menu.copy_image()
    assert QGuiApplication.clipboard().image().size() == attention.view.size() * attention.view.devicePixelRatio()
    assert json.loads(clipboard_text())["now"]["show"] == ["attention"]
    pasted = tmp_path / "pasted.png"
    pasted.write_bytes(bytes(QGuiApplication.clipboard().mimeData().data("image/png").data()))
    state = worked_on.context.document.recorded
    go(worked_on, "undo")
    dropped(qtbot, worked_on, pasted)
    assert worked_on.context.document.recorded == state


def test_the_part_that_it_shows_is_shown(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    view = dock(worked_on, "attention").view
    name = view.figure.marks()[0].name
    view.widget(name).show_part(((1.0, 4.0), (2.0, 5.0)))
    path = exported(qtbot, worked_on, tmp_path / "a.svg")
    part = view.parts()[name]
    view.reset_view()
    assert not view.parts()
    go(worked_on, "undo")
    dropped(qtbot, worked_on, path)
    assert view.parts()[name] == (pytest.approx(part[0], abs=1e-6), pytest.approx(part[1], abs=1e-6))
    again = exported(qtbot, worked_on, tmp_path / "b.svg")
    assert again.read_bytes() == path.read_bytes()
    view.reset_view()
    whole = exported(qtbot, worked_on, tmp_path / "whole.svg")
    view.widget(name).show_part(((1.0, 4.0), (2.0, 5.0)))
    dropped(qtbot, worked_on, whole)
    assert not view.parts(), "a picture of the whole shows the whole"


def test_a_table_is_shown_in_its_order(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    worked_on.layout_of_docks.go_to("predictions")
    view = dock(worked_on, "predictions").view
    header = view.widget(view.figure.marks()[0].name).table.horizontalHeader()
    plain = exported(qtbot, worked_on, tmp_path / "plain.svg", "predictions").read_bytes()
    header.setSortIndicator(1, Qt.SortOrder.AscendingOrder)
    path = exported(qtbot, worked_on, tmp_path / "a.svg", "predictions")
    assert path.read_bytes() != plain
    header.setSortIndicator(-1, Qt.SortOrder.DescendingOrder)
    go(worked_on, "undo")
    dropped(qtbot, worked_on, path)
    assert exported(qtbot, worked_on, tmp_path / "b.svg", "predictions").read_bytes() == path.read_bytes()


def test_a_model_that_is_not_here_is_asked_for(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    state, pictures = worked_on.context.document.recorded, tmp_path / "pictures"
    pictures.mkdir()
    path = exported(qtbot, worked_on, pictures / "a.pdf")
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    with shown_window(qtbot, directory(tmp_path / "other", n_ctx=40)) as second:
        before = second.context.document.work
        let_fall(second, path)
        qtbot.waitUntil(lambda: any(d.isVisible() for d in second.findChildren(ModelsDialog)))
        (dialog,) = second.findChildren(ModelsDialog)
        ((name, (line, _)),) = dialog.rows.items()
        assert name == tmp_path.name and "a.pdf does not say where it was" in line.text() and str(pictures) not in line.text()
        assert second.context.document.work is before
        with qtbot.waitSignal(second.sessions.pictures.shown):
            dialog.choose(name, str(tmp_path / "elsewhere"))
        settle(qtbot, second)
        assert of_attention(second.context.document.recorded) == of_attention(at(state, f"file:{tmp_path / 'elsewhere'}"))


def test_a_window_begins_with_a_picture(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    state = worked_on.context.document.recorded
    path = exported(qtbot, worked_on, tmp_path / "a.svg", "predictions")
    with shown_window(qtbot, path) as second:
        assert replace(second.context.document.recorded, views={}) == replace(state, views={})
        assert second.layout_of_docks.current_panel is dock(second, "predictions") and dock(second, "predictions").shown
        assert second.sessions.path is None and not second.sessions.dirty and not second.context.document.undo_label


def test_other_programs_read_it(qtbot: Any, worked_on: Window, tmp_path: Path) -> None:
    """libpng by Qt, poppler."""
    table = json.loads(QImage(str(exported(qtbot, worked_on, tmp_path / "a.png"))).text("CircuitLab view"))
    assert table["circuitlab"] == "session" and table["now"]["text"] == "ab cab ab"
    try:
        run = ["pdfinfo", "-meta", str(exported(qtbot, worked_on, tmp_path / "a.pdf"))]
        meta = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("needs pdfinfo")
    assert "<circuitlab:view>" in meta and "cab ab" in meta
    about = subprocess.run(["pdfinfo", run[-1]], capture_output=True, text=True, check=True)
    assert "Creator:" in about.stdout and "Date" not in about.stdout and not about.stderr


def test_panels_without_a_figure_yet_have_pictures_too(qtbot: Any, window: Window, tmp_path: Path) -> None:
    hidden = next(d for d in window.docks.values() if isinstance(d, PanelDock) and not d.shown)
    assert exported(qtbot, window, tmp_path / "a.svg", hidden.panel.name).stat().st_size > 300
