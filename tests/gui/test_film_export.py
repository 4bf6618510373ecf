"""A film from the window: the step that plays, the whole training, a parameter of the constructed model; cancelled, closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog

from circuitlab import api
from circuitlab.draw.export import film as film_module
from circuitlab.draw.look.slide import Slide
from circuitlab.errors import BadMachine
from circuitlab.gui.lessons.film_dialog import FilmDialog
from circuitlab.gui.shell.window import Window
from tests.gui.driving import command, save, settle, shown_window
from tests.gui.test_zoom import tell
from tests.gui.training import checkpoints
from tests.models import directory

STEPS = (0, 100, 200)


@pytest.fixture
def trained(qtbot: Any, tmp_path: Path) -> Iterator[Window]:
    folder = directory(tmp_path / "trained")
    checkpoints(folder, STEPS)
    with shown_window(qtbot, folder) as made:
        made.films.slide = Slide(640, 360)
        yield made


def asked(window: Window) -> FilmDialog:
    command(window, "export-film").trigger()
    (dialog,) = window.findChildren(FilmDialog)
    return dialog


def test_the_present_step_is_filmed_and_is_what_the_command_line_writes(
    qtbot: Any, trained: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, suggested = tmp_path / "a.webp", list[str]()
    answer = lambda parent, title, name, kinds: (suggested.append(name), (str(path), ""))[1]
    monkeypatch.setattr(QFileDialog, "getSaveFileName", answer)
    tell(trained, {"prompt": "ab cab ab", "play": (0, 200), "show": ("attention", "predictions")})
    (tmp_path / "kept").mkdir()
    save(qtbot, trained, tmp_path / "kept" / "talk.circuitlab")
    trained.checkpoints.player.speed = 1000
    trained.lessons.begin_own(0)
    qtbot.waitUntil(lambda: trained.lessons.tour.ready is not None)
    trained.checkpoints.film.stop()
    settle(qtbot, trained)
    before = trained.context.document.recorded
    dialog = asked(trained)
    assert "3 frames" in dialog.length.text()
    dialog.fields["fps"].setValue(2.0)
    dialog.fields["theme"].setCurrentIndex(1)
    assert "2.5 s" in dialog.length.text()
    dialog.slide = Slide(640, 360, 2.0, "dark")  # the smallest size of the list would take longer
    qtbot.mouseClick(dialog.go, Qt.MouseButton.LeftButton)
    assert Path(suggested[0]).parent == tmp_path / "kept", "beside the session"
    settle(qtbot, trained)
    assert path.exists() and trained.context.document.recorded == before
    by_script = tmp_path / "b.webp"
    api.session(tmp_path / "kept" / "talk.circuitlab").steps[0].film(by_script, Slide(640, 360, 2.0, "dark"))
    assert path.read_bytes() == by_script.read_bytes()
    assert trained.films.slide.theme == "dark", "as it was chosen last"


def test_without_a_story_the_whole_training_of_what_is_shown(qtbot: Any, trained: Window, tmp_path: Path) -> None:
    reel = trained.films.reel
    assert reel is not None
    trained.films.write(reel, tmp_path / "a.webp", trained.films.slide)
    settle(qtbot, trained)
    with Image.open(tmp_path / "a.webp") as image:
        assert image.n_frames == 4  # type: ignore[attr-defined]


def test_a_film_can_be_cancelled_while_it_is_drawn(
    qtbot: Any, trained: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    trained.context.message.connect(said.append)
    shown = film_module.FilmPage.show_frame

    def show(page: film_module.FilmPage, i: int) -> None:
        shown(page, i)
        if i == 2:
            trained.context.runner.cancel_all()

    monkeypatch.setattr(film_module.FilmPage, "show_frame", show)
    reel = trained.films.reel
    assert reel is not None
    trained.films.write(reel, tmp_path / "a.webp", trained.films.slide)
    settle(qtbot, trained)
    assert not (tmp_path / "a.webp").exists() and not trained.films.drawer.busy
    assert any("cancelled" in text for text in said)


def test_a_window_closes_in_the_middle_of_a_film(qtbot: Any, trained: Window, tmp_path: Path) -> None:
    reel = trained.films.reel
    assert reel is not None
    trained.films.write(reel, tmp_path / "a.webp", Slide(1280, 720))
    qtbot.waitUntil(lambda: trained.films.drawer.busy)
    trained.close()
    assert not trained.films.drawer.busy and not (tmp_path / "a.webp").exists()


def test_a_parameter_of_the_constructed_model(qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.webp"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    with shown_window(qtbot, "rope-induction", "A B C A B") as window:
        window.layout_of_docks.toggle_maximised(window.docks["attention"])
        settle(qtbot, window)
        dialog = asked(window)
        field = dialog.fields["parameter"]
        field.setCurrentIndex(field.findData("offset"))
        dialog.fields["last"].setValue(3)
        assert "3 frames" in dialog.length.text() and dialog.go.isEnabled()
        dialog.fields["first"].setValue(0)
        assert not dialog.go.isEnabled(), "no model looks 0 positions back"
        dialog.fields["first"].setValue(1)
        dialog.slide = Slide(640, 360)
        qtbot.mouseClick(dialog.go, Qt.MouseButton.LeftButton)
        settle(qtbot, window)
        with Image.open(path) as image:
            assert image.n_frames == 3  # type: ignore[attr-defined]


def test_what_has_no_training_has_no_film_and_without_pillow_it_is_said_at_once(
    qtbot: Any, trained: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[BaseException] = []
    trained.context.failed.disconnect()
    trained.context.failed.connect(failed.append)
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    command(trained, "export-film").trigger()
    assert isinstance(failed[0], BadMachine) and not trained.findChildren(FilmDialog)


def test_a_model_without_a_training_has_none(window: Window) -> None:
    assert window.films.reel is None
    command(window, "export-film").trigger()
    assert not window.findChildren(FilmDialog)
