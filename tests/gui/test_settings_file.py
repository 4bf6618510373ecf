"""A settings file that cannot be used, or not be written, is said once, in the status line and in the log; the window works."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from circuitlab.disk.paths import config_home
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.settings import SETTINGS, Setting, Settings


def _file(text: bytes) -> None:
    config_home().mkdir(parents=True)
    (config_home() / "circuitlab.ini").write_bytes(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[General\ntheme=dark\n", "damaged"),
        (b"[General]\ntheme=purple\n", "purple"),
        (b"[General]\ntext_scale=nan\nthreads=many\n", "Threads 'many'"),
        (b"[General]\ntheme=" + b"x" * 10_000 + b"\n", "x…"),
        (b"[General]\ntheme=dark\n", ""),
        (b"", ""),
    ],
)
def test_what_cannot_be_read_is_named_and_the_defaults_stand(qtbot: Any, text: bytes, said: str) -> None:
    _file(text)
    settings = Settings()
    assert (said in settings.problem and len(settings.problem) < 400) if said else settings.problem == ""
    if said != "damaged":  # of a damaged file Qt reads what it can
        assert settings["theme"] == ("dark" if b"theme=dark" in text else "system")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_what_is_set_is_there_at_the_next_start(qtbot: Any, setting: Setting) -> None:
    chosen = setting.choices[-1] if setting.choices else type(setting.default)(setting.low + 0.6 * (setting.high - setting.low))
    assert chosen != setting.default
    Settings().set(setting.name, chosen)
    after = Settings()
    assert {s.name: after[s.name] for s in SETTINGS} == {s.name: s.default for s in SETTINGS} | {setting.name: chosen}
    Settings(remember=False).set(setting.name, setting.default)  # for a picture: nothing is kept
    assert Settings()[setting.name] == chosen and Settings(remember=False)[setting.name] == setting.default


def test_a_folder_in_the_place_of_the_file_is_said_and_so_is_what_cannot_be_kept(qtbot: Any) -> None:
    (config_home() / "circuitlab.ini").mkdir(parents=True)
    settings, heard = Settings(), []
    settings.failed.connect(heard.append)
    assert "circuitlab.ini" in settings.problem
    settings.set("theme", "dark")
    settings.set("debounce", 70)
    assert settings["theme"] == "dark" and len(heard) == 1 and "circuitlab.ini" in heard[0]


def test_the_window_says_it_in_its_status_line_and_its_log(qtbot: Any, window: Window, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "circuitlab.window"):
        window.settings.failed.emit("The settings cannot be read.")
        window.settings.failed.emit("")
    assert window.status.readout.text() == "The settings cannot be read."
    assert [r.getMessage() for r in caplog.records] == ["The settings cannot be read."]


def test_what_the_theme_is_said_to_do_to_scales_is_what_it_does() -> None:
    from circuitlab.draw.look.colours import table
    from circuitlab.draw.look.theme import DARK, LIGHT
    from circuitlab.gui.work.settings import THEME

    light = lambda rgb: float(sum(rgb))
    for name in ("magnitude", "loss"):
        for theme in (LIGHT, DARK):
            paper = theme.colour("background")
            ground = paper.red() + paper.green() + paper.blue()
            colours = table(name, theme)  # type: ignore[arg-type]
            assert abs(light(colours[1].tolist()) - ground) < 8, "zero is the background"
        assert light(table(name, LIGHT)[255].tolist()) < 200 < 500 < light(table(name, DARK)[255].tolist())  # type: ignore[arg-type]
    assert all(words in THEME for words in ("zero is the background", "largest value light"))
