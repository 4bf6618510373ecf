"""Plug-ins are found by what they declare, imported when they are first used, and named wherever they fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from circuitlab import doctor, plugins
from circuitlab.analysis import _registry
from circuitlab.analysis.base import analyses, find_analysis
from circuitlab.cli.parser import main
from circuitlab.errors import PluginError, UsageError
from circuitlab.figures.contracts import panel as panel_registry
from circuitlab.figures.contracts import plugin_panels
from circuitlab.plugins import declaring, loading
from tests.models import directory
from tests.patience import SECONDS
from tests.plug_ins import FAMILY, PANEL, RUNS, distribution

TEXT = "a a b b b a"
COMPUTE = ("compute", "runs", "attn-only-2l", "--text", TEXT)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test has plug-ins of its own, in a registry that forgets them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv(plugins.PATHS, "")
    monkeypatch.setattr(loading, "_attempts", {})
    analyses()
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    panel_registry.panels()
    monkeypatch.setattr(panel_registry, "_REGISTRY", dict(panel_registry._REGISTRY))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("plugged", "circuitlab_plugin_")):
            del sys.modules[name]
    for kept in (declaring._installed, declaring._every, declaring._read):
        kept.cache_clear()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def installed(site: Path) -> None:
    """The distributions of the folder are installed in this process."""
    sys.path.append(str(site))
    for kept in (declaring._installed, declaring._every, declaring._read):
        kept.cache_clear()


def written(folder: Path, name: str, source: str) -> Path:
    file = folder / name
    file.write_text(source)
    plugins.requested(str(file))
    return file


def test_an_installed_analysis_is_computed_and_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installed(distribution(site, "run-lengths", "1.2", {"analyses": {"runs": "plugged_runs"}}, plugged_runs=RUNS))
    assert main([*COMPUTE, "--json", "-"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["tokens"]) > 6
    assert answer["result"]["length"] == [i + 1 for _, run in groupby(answer["tokens"]) for i, _ in enumerate(run)]
    assert ["plug-in run-lengths", "1.2"] in answer["provenance"]["versions"]


def test_what_a_plug_in_declares_is_known_without_importing_it(site: Path, tmp_path: Path) -> None:
    points = {
        "analyses": {"runs": "plugged_a"},
        "panels": {"run_panel": "plugged_a.panel:PANEL"},
        "families": {"odd": "plugged_f"},
    }
    installed(distribution(site, "run-lengths", "1.2", points, plugged_a="raise SystemExit", plugged_f="raise SystemExit"))
    written(tmp_path, "mine.py", RUNS + "raise SystemExit\n")
    found = [(one.kind, one.name, str(one.plugin)) for one in plugins.declared()]
    assert found == [
        ("analyses", "runs", "mine 0.3"),
        ("analyses", "runs", "run-lengths 1.2"),
        ("panels", "run_panel", "run-lengths 1.2"),
        ("families", "odd", "run-lengths 1.2"),
    ]
    assert not [name for name in sys.modules if name.startswith(("plugged", "circuitlab_plugin_"))]


def test_a_file_without_a_version_is_named_by_its_hash(tmp_path: Path) -> None:
    from hashlib import sha256

    file = written(tmp_path, "mine.py", RUNS.replace('__version__ = "0.3"', ""))
    assert find_analysis("runs").plugin == plugins.Plugin(
        "mine", f"sha256 {sha256(file.read_bytes()).hexdigest()[:12]}", str(file.resolve())
    )


def test_a_folder_is_its_files_and_the_setting_is_inherited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "one.py").write_text(RUNS)
    (tmp_path / "own" / "_part.py").write_text("raise SystemExit")
    assert main(["--plugin", str(tmp_path / "own"), *COMPUTE]) == 0
    assert os.environ[plugins.PATHS] == str(tmp_path / "own")
    assert "runs" in capsys.readouterr().out
    assert main([*COMPUTE, f"--plugin={tmp_path / 'own' / 'one.py'}"]) == 0
    assert os.environ[plugins.PATHS] == os.pathsep.join(map(str, (tmp_path / "own", tmp_path / "own" / "one.py")))


BROKEN = {
    "raises": ("1 / 0", "ZeroDivisionError"),
    "ends the program": ("raise SystemExit(0)", "ended the program"),
    "wants what is not there": ("import nothing_of_that_name", "nothing_of_that_name"),
    "has a name of CircuitLab": (RUNS.replace("def runs(", "def attention("), "two analyses are called attention"),
    "has no table": (RUNS.replace("def table(", "def row("), "RunsResult has no table()"),
    "registers half": (RUNS + "1 / 0", "ZeroDivisionError"),
    "registers another": (RUNS.replace("def runs(", "def walks("), "does not register runs"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_one_that_cannot_be_imported_is_named_and_the_rest_stays(site: Path, fault: str) -> None:
    source, said = BROKEN[fault]
    before = analyses()
    points = {"analyses": {"runs": "plugged_bad", "walked": "plugged_good"}}
    installed(
        distribution(site, "run-lengths", "1.2", points, plugged_bad=source, plugged_good=RUNS.replace("def runs", "def walked"))
    )
    for _ in range(2):  # the second time, too
        with pytest.raises(PluginError, match=r"run-lengths 1\.2") as caught:
            find_analysis("runs")
    assert said in str(caught.value) and caught.value.plugin == "run-lengths 1.2"
    every = analyses()
    others = {"walks"} if fault == "registers another" else set()
    assert set(every) - set(before) == {"walked"} | others
    assert all(every[name] is before[name] for name in before)
    assert find_analysis("walked").plugin == plugins.Plugin("run-lengths", "1.2")


def test_one_that_hangs_is_given_up_and_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setenv(loading.PATIENCE, "0.2")
    gate = threading.Event()
    monkeypatch.setattr(plugins, "gate", gate, raising=False)
    source = RUNS.replace("__version__", "from circuitlab import plugins\nplugins.gate.wait()\n__version__")
    installed(distribution(site, "run-lengths", "1.2", {"analyses": {"runs": "plugged_slow"}}, plugged_slow=source))
    with pytest.raises(PluginError, match=r"Within .*run-lengths 1\.2 has not been imported"):
        find_analysis("runs")
    assert [str(plugin) for plugin in plugins.failures()] == ["run-lengths 1.2"] and "runs" not in analyses()
    gate.set()  # it comes to an end after all
    next(iter(loading._attempts.values())).ended.wait(SECONDS)
    assert find_analysis("runs").plugin is not None and not plugins.failures()


FAILS = {
    "computes": (RUNS.replace("    lengths = []", "    lengths = [1 / 0]"), "ZeroDivisionError"),
    "returns": (RUNS.replace("    return RunsResult(length=np.array(lengths))", "    return lengths"), "in place of a Result"),
    "estimates": (RUNS.replace("8 * n", "8 / 0"), "ZeroDivisionError"),
}


@pytest.mark.parametrize("what", FAILS)
def test_what_fails_while_it_works_names_the_plug_in(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, said = FAILS[what]
    file = written(tmp_path, "mine.py", source)
    assert main(list(COMPUTE)) == 3
    told = capsys.readouterr().err
    assert "The plug-in mine 0.3 fails" in told and said in told and "the analysis runs" in told
    assert ("bug in CircuitLab" not in told and "Traceback" not in told and file.name in told) or what == "returns"


@pytest.mark.parametrize("name", ["none.py", "text.md", "syntax.py", "nothing.py", "empty"])
def test_a_path_that_is_no_plug_in_is_refused_at_once(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.md").write_text("no Python")
    (tmp_path / "syntax.py").write_text("def (")
    (tmp_path / "nothing.py").write_text("x = 1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="plug-in cannot be read"):
        plugins.requested(str(tmp_path / name))
    assert not os.environ[plugins.PATHS] and not plugins.declared() and not plugins.problems()
    monkeypatch.setenv(plugins.PATHS, str(tmp_path / name))
    assert not plugins.declared() and len(plugins.problems()) == 1


def test_what_needs_no_plug_in_imports_none(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    installed(distribution(site, "run-lengths", "1.2", {"analyses": {"runs": "plugged_runs"}}, plugged_runs=RUNS))
    assert main(["--help"]) == 0 and "--plugin FILE" in capsys.readouterr().out
    assert main(["compute", "token_loss", "attn-only-2l", "--text", TEXT]) == 0
    assert "plugged_runs" not in sys.modules
    capsys.readouterr()
    assert main(["analyses"]) == 0 and "runs" in capsys.readouterr().out
    assert "plugged_runs" in sys.modules


FIGURE = ("figure", "own_losses", "attn-only-2l", "--text", TEXT, "-o")


def test_a_panel_is_drawn_and_listed(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    points = {"panels": {"own_losses": "plugged_panel", "other": "plugged_bad"}}
    installed(distribution(site, "loss-panel", "2.0", points, plugged_panel=PANEL, plugged_bad="1 / 0"))
    assert "own_losses" not in panel_registry.panels()
    out = tmp_path / "own.svg"
    assert main([*FIGURE, str(out), "--set", "digits=5"]) == 0
    assert "Own losses" in out.read_text("utf-8") and "plugged_bad" not in sys.modules
    views = panel_registry.view_types()
    assert list(views["own_losses"].__dataclass_fields__) == ["digits"] and "own_losses" in views
    capsys.readouterr()
    assert main(["panels"]) == 0
    listed = capsys.readouterr()
    assert "own_losses  Own losses  (of loss-panel 2.0)" in listed.out
    assert "The plug-in loss-panel 2.0 cannot be imported: ZeroDivisionError" in listed.err
    assert main(["compute", "token_loss", "attn-only-2l", "--text", TEXT, "--at", str(out)]) == 2  # of two prompts
    assert main(["figure", "own_losses", "--at", str(out), "-o", str(tmp_path / "again.svg")]) == 0


DRAWS = {
    "raises": (PANEL.replace("    answer = answers", "    1 / 0\n    answer = answers"), "ZeroDivisionError"),
    "draws nothing": (PANEL.replace("    return Figure(", "    Figure("), "returned none in place of a Figure"),
    "disagrees with itself": (PANEL.replace("np.arange(len(", "np.arange(1 + len("), "cannot be drawn"),
    "asks for nonsense": (PANEL.replace('return {"loss"', 'return 3, {"loss"'), "in place of a dict or Why"),
    "hangs": (PANEL.replace("    answer = answers", "    plugins.gate.wait()\n    answer = answers"), "does not come to an end"),
}


@pytest.mark.parametrize("what", DRAWS)
def test_a_panel_that_fails_is_named(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    source, said = DRAWS[what]
    gate = threading.Event()
    if what == "hangs":
        monkeypatch.setattr(plugin_panels, "SECONDS", 0.3)
        monkeypatch.setattr(plugins, "gate", gate, raising=False)
        source = source.replace("import time", "from circuitlab import plugins")
    written(tmp_path, "mine.py", source)
    out = tmp_path / "own.svg"
    for _ in range(2):
        assert main([*FIGURE, str(out)]) == 3
        told = capsys.readouterr().err
        assert "The plug-in mine 0.4" in told and said in told and "the panel own_losses" in told and not out.exists(), told
    gate.set()


def test_settings_of_a_panel_that_is_not_there_are_kept(tmp_path: Path) -> None:
    from circuitlab.engine.store import ModelStore, reference
    from circuitlab.session_files.picture_view import PictureView
    from circuitlab.session_files.session_text import parse_session
    from circuitlab.state.state import State

    words = {"digits": 4, "of another version": [1, 2]}
    state = State(reference("builtin:attn-only-2l"), views={"own_losses": words})
    views, store = panel_registry.view_types(), ModelStore()
    store.open(state.model)
    text = PictureView(state, "own_losses").text(store, views)
    assert parse_session(text.encode(), tmp_path).now.view["own_losses"] == words
    written(tmp_path, "mine.py", PANEL)
    view = panel_registry.find_panel("own_losses").view
    assert state.view("own_losses", view) == view()  # a setting of another version: the defaults, and the words stay
    assert State(state.model, views={"own_losses": {"digits": 4}}).view("own_losses", view) == view(4)


def test_a_family_reads_what_no_other_does_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = directory(tmp_path / "odd") / "config.json"
    same = json.loads(config.read_text())
    compute = lambda: main(["compute", "token_loss", str(tmp_path / "odd"), "--text", TEXT, "--json", "-"])
    assert compute() == 0
    own = json.loads(capsys.readouterr().out)
    config.write_text(json.dumps({name: value for name, value in same.items() if name != "format"} | {"model_type": "odd_one"}))
    assert compute() == 3
    assert "odd_one" in capsys.readouterr().err
    file = written(tmp_path, "mine.py", FAMILY)
    assert compute() == 0
    plugged = json.loads(capsys.readouterr().out)
    assert plugged["result"] == own["result"] and ["plug-in mine", "0.5"] in plugged["provenance"]["versions"]
    assert main(["info", str(tmp_path / "odd")]) == 0 and "read by the plug-in mine 0.5" in capsys.readouterr().out
    file.write_text(FAMILY.replace("FAMILY = Family", "1 / 0\nFAMILY = Family"))
    for name in [name for name in sys.modules if name.startswith("circuitlab_plugin_")]:
        del sys.modules[name]
    loading._attempts.clear()
    assert compute() == 3
    assert "The plug-in mine 0.5 cannot be imported: ZeroDivisionError" in capsys.readouterr().err


def test_doctor_names_every_plug_in_and_what_is_wrong_with_it(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"panels": {"own_losses": "plugged_panel"}, "analyses": {"runs": "plugged_bad"}}
    distribution(site, "loss-panel", "2.0", points, plugged_panel=PANEL, plugged_bad="import os; os._exit(7)")
    installed(site)
    written(tmp_path, "mine.py", PANEL.replace("own_losses", "other_losses"))
    root = Path(plugins.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(root), str(site))))
    by_name = {one.name: one for one in doctor._plugins()}
    assert set(by_name) == {"loss-panel", "mine"} and by_name["mine"].problem == ""
    assert by_name["mine"].adds == ("panel other_losses",) and by_name["mine"].version == "0.4"
    assert by_name["loss-panel"].adds == ("analysis runs", "panel own_losses") and by_name["loss-panel"].problem
