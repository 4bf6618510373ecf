"""What the machine is found to lack: the display, libraries by package, the report of `circuitlab doctor`."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from circuitlab import doctor, launch, probe
from circuitlab.errors import BadMachine

ROOT = Path(__file__).resolve().parent.parent.parent

LDD = """
\tlinux-vdso.so.1 (0x00007ffd)
\tlibxcb-cursor.so.0 => not found
\tlibxcb-icccm.so.4 => /lib/x86_64-linux-gnu/libxcb-icccm.so.4 (0x00007f)
\tlibxcb-keysyms.so.1 => not found
/x/libQt6Gui.so.6:
\tlibEGL.so.1 => not found
\tlibxcb-cursor.so.0 => not found
\tlibQt6Core.so.6 => not found
"""

# What Qt prints where no X server answers: its advice on libxcb-cursor0 is there and wrong.
NO_SERVER = """qt.qpa.xcb: could not connect to display :77
qt.qpa.plugin: From 6.5.0, xcb-cursor0 or libxcb-cursor0 is needed to load the Qt xcb platform plugin.
This application failed to start because no Qt platform plugin could be initialized.

Available platform plugins are: minimal, offscreen, xcb.
"""


def test_ldd_names_the_packages() -> None:
    libraries = probe.missing_libraries(LDD)
    assert libraries == ("libxcb-cursor.so.0", "libxcb-keysyms.so.1", "libEGL.so.1")
    assert probe.packages_for(libraries) == ("libxcb-cursor0", "libxcb-keysyms1", "libegl1")


def test_the_loader_names_a_library_too() -> None:
    result = probe.explain("ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n", ())
    assert result.packages == ("libgl1",)
    error = result.error()
    assert isinstance(error, BadMachine)
    assert error.exit_code == 3
    assert "apt-get install libgl1" in str(error)
    assert "libGL.so.1" in str(error)


def test_an_unknown_library_is_named_without_a_package() -> None:
    result = probe.explain("", ("libnew.so.9",))
    assert result.packages == ()
    assert "libnew.so.9" in str(result.error())


def test_qts_advice_is_not_taken_for_the_cause() -> None:
    result = probe.explain(NO_SERVER, ())
    assert result.packages == ()
    assert not result.ok


def test_each_package_that_a_bare_debian_lacks_is_known_by_its_library() -> None:
    assert set(probe.QT_PACKAGES) <= set(probe._PACKAGE_OF.values())


def test_ci_installs_what_the_probe_names() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert set(probe.QT_PACKAGES) <= set(re.findall(r"[\w.+-]+", script))


# -- the display -----------------------------------------------------------------------------------------------------------


def test_no_display_is_a_picture_with_a_reason() -> None:
    plan = probe.display_plan({}, "linux")
    assert plan.kind == "picture"
    assert "DISPLAY" in plan.reason


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_there_is_always_a_window(platform: str) -> None:
    assert probe.display_plan({}, platform).kind == "window"


def test_what_qt_was_told_to_do_is_done() -> None:
    assert probe.display_plan({"QT_QPA_PLATFORM": "offscreen", "DISPLAY": ":0"}, "linux").kind == "picture"
    assert probe.display_plan({"QT_QPA_PLATFORM": "vnc:size=800x600"}, "linux").kind == "window"


def test_a_dead_display_is_a_picture_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "x_answers", lambda display: False)
    plan = probe.display_plan({"DISPLAY": ":77"}, "linux")
    assert plan.kind == "picture"
    assert "DISPLAY=:77" in plan.reason


@pytest.mark.parametrize("answer", [True, None])
def test_a_display_that_answers_or_cannot_be_asked_is_a_window(answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "x_answers", lambda display: answer)
    assert probe.display_plan({"DISPLAY": ":0"}, "linux").kind == "window"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Xvfb")
def test_nobody_answers_at_a_display_number_out_of_range() -> None:
    assert probe.x_answers(":59999") in (False, None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Xvfb")
def test_a_wayland_compositor_is_one_that_listens(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Path(os.environ["XDG_RUNTIME_DIR"])
    monkeypatch.chdir(runtime)  # a socket's path may have 107 characters
    env = {"WAYLAND_DISPLAY": "wl-0", "XDG_RUNTIME_DIR": "."}
    assert probe.display_plan(env, "linux").kind == "picture"
    with socket.socket(socket.AF_UNIX) as compositor:
        compositor.bind("wl-0")
        compositor.listen()
        assert probe.display_plan(env, "linux").kind == "window"
    assert probe.display_plan(env, "linux").kind == "picture", "its socket is still there, and nobody behind it"


# -- the probe -------------------------------------------------------------------------------------------------------------


def test_a_plugin_that_aborts_is_an_answer() -> None:
    result = probe.probe({**os.environ, "QT_QPA_PLATFORM": "no-such-plugin"}, torch=False)
    assert not result.ok
    assert result.problem


def test_the_probe_is_asked_once(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    asked = []

    def fake(environ=None, *, torch=True) -> probe.Probe:
        asked.append(environ)
        return probe.Probe(len(asked) > 1, platform="offscreen")

    monkeypatch.setattr(probe, "probe", fake)
    env = {"QT_QPA_PLATFORM": "offscreen"}
    with pytest.raises(BadMachine):
        probe.require_qt(env)
    assert probe.require_qt(env).ok, "a failure is looked at again"
    assert probe.require_qt(env).platform == "offscreen"
    assert len(asked) == 2, "a success is remembered"
    probe.require_qt({"DISPLAY": ":1"})
    assert len(asked) == 3, "another display is another question"


def test_a_damaged_memory_is_forgotten(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    file = home / ".cache" / "circuitlab" / "probe.json"
    file.parent.mkdir(parents=True)
    file.write_text("[1, 2", "utf-8")
    monkeypatch.setattr(probe, "probe", lambda environ=None, **_: probe.Probe(True, platform="xcb"))
    assert probe.probe_cached({}).platform == "xcb"
    assert json.loads(file.read_text("utf-8"))["probe"]["platform"] == "xcb"


def test_torch_that_cannot_be_imported_is_a_bad_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadMachine, match="torch cannot be imported"):
        launch.import_torch()


class _Window:
    """Stands for `circuitlab.gui.shell.main`: remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def open_window(self, *arguments: object) -> int:
        self.asked.append(("open", *arguments))
        return 7

    def render_window(self, *arguments: object) -> None:
        self.asked.append(("render", *arguments))


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> _Window:
    import circuitlab.gui.shell

    stand_in = _Window()
    monkeypatch.setitem(sys.modules, "circuitlab.gui.shell.main", stand_in)
    monkeypatch.setattr(circuitlab.gui.shell, "main", stand_in, raising=False)
    monkeypatch.setattr(launch, "import_torch", lambda: None)
    monkeypatch.setattr(probe, "probe", lambda environ=None, **_: probe.Probe(True, platform="offscreen"))
    monkeypatch.setenv("QT_QPA_PLATFORM", "")
    return stand_in


def test_where_there_is_a_display_the_window_opens(window: _Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "display_plan", lambda: probe.Plan("window"))
    assert launch.open_or_render("file:m", "a b", lesson="05-induction") == 7
    assert window.asked == [("open", "file:m", "a b", (), "05-induction")]


def test_where_there_is_none_its_picture_is_painted(
    window: _Window, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    picture = tmp_path / "circuitlab.png"
    assert launch.open_or_render(picture=picture) == 0
    assert window.asked == [("render", picture, launch.DEFAULT_MODEL, None)]
    assert os.environ["QT_QPA_PLATFORM"] == "offscreen"
    told = capsys.readouterr().err
    assert "neither DISPLAY nor WAYLAND_DISPLAY" in told
    assert str(picture) in told


# -- the doctor ------------------------------------------------------------------------------------------------------------


def test_the_doctor_reports_this_machine(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert doctor.run(json_output=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    versions = {package["name"]: package["version"] for package in told["packages"]}
    assert set(versions) == set(doctor.PACKAGES)
    assert all(versions.values())
    assert told["window"]["platform"] == "offscreen"
    assert told["paths"]["log"].startswith(str(home))
    assert told["devices"][0].startswith("cpu: ")


def test_the_doctor_works_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(code: str) -> tuple[bool, str]:
        return False, "ImportError: libtorch_cpu.so: cannot open shared object file"

    missing = probe.explain("", ("libxcb-cursor.so.0",))
    monkeypatch.setattr(doctor, "_child", broken)
    monkeypatch.setattr(probe, "probe", lambda environ=None, **_: missing)
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "circuitlab-has-no-such-dependency"))
    assert doctor.run() == 3
    page = capsys.readouterr().out
    assert "cannot be imported: ImportError: libtorch_cpu.so" in page
    assert "not installed" in page
    assert "apt-get install libxcb-cursor0" in page
    assert re.search(r"device +unknown", page)
