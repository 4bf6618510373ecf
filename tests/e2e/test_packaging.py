"""The two commands and the wheel, as somebody with nothing but the files meets them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from circuitlab import __version__
from circuitlab.disk import paths
from circuitlab.training.archiving import archived

ROOT = Path(__file__).resolve().parent.parent.parent
LARGEST_WHEEL = 60_000_000  # bytes; what a package index takes is 100 MB a file


def _run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False
    )


def _no_display() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}


# -- what the files say ----------------------------------------------------------------------------------------------------


def test_every_dependency_is_pinned_inside_its_range() -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), flags=re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    for line in project["dependencies"] + project["optional-dependencies"]["test"]:
        requirement = Requirement(line)
        assert pins[requirement.name.lower()] in requirement.specifier, line


@pytest.mark.parametrize("version", ["6.7.3", "6.9.1", "6.11.0", "6.12.0"])
def test_versions_of_qt_that_break_are_refused(version: str) -> None:
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    qt = next(r for r in map(Requirement, project["dependencies"]) if r.name == "PySide6-Essentials")
    assert version not in qt.specifier


def test_the_source_archive_carries_what_its_tests_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    carried = {name.strip("/") for name in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    assert not [name for name in carried if not (ROOT / name).exists()]
    assert carried >= {"circuitlab", "tests", "docs", "resources", "models", "CONTRIBUTING.md", "CHANGELOG.md", "constraints.txt"}


# -- make ------------------------------------------------------------------------------------------------------------------


def _python_without(folder: Path, module: str) -> Path:
    """An interpreter that is new enough and cannot import `module`, like a Debian python3 without python3-venv."""
    fake = folder / "python3-bare"
    fake.write_text(f'#!/bin/sh\ncase "$2" in *{module}*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    fake.chmod(0o755)
    return fake


def test_make_names_the_package_where_venv_is_missing(tmp_path: Path) -> None:
    fake = _python_without(tmp_path, "ensurepip")
    done = _run("make", f"PYTHON={fake}", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/bin/python")
    assert done.returncode != 0
    assert "Error 3" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_make_says_that_no_python_is_new_enough(tmp_path: Path) -> None:
    done = _run("make", "PYTHON=/bin/false", f"VENV={tmp_path}/venv", f"{tmp_path}/venv/bin/python")
    assert "Error 3" in done.stderr
    assert "No Python 3.11 or newer" in done.stderr


def test_make_has_nothing_to_install_the_second_time(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    for stamp in (".installed", ".installed-test"):
        (venv / stamp).touch()
    assert "pip" not in _run("make", "-n", f"VENV={venv}", "test").stdout
    (venv / ".installed").unlink()
    steps = _run("make", "-n", f"VENV={venv}", "run").stdout
    assert steps.index("torch==") < steps.index("-e ."), "torch first, in a call of its own"


@pytest.mark.slow
@pytest.mark.gate
def test_make_run_without_a_display_paints_the_window(tmp_path: Path) -> None:
    """What `make run` runs, in an empty folder: exit 0, a picture with a window in it, and the reason."""
    env = _no_display() | {"PYTHONPATH": str(ROOT)}
    env.pop("QT_QPA_PLATFORM", None)
    done = subprocess.run(
        [sys.executable, "-m", "circuitlab"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "DISPLAY" in done.stdout + done.stderr
    assert "circuitlab.png" in done.stdout + done.stderr
    assert _colours(tmp_path / "circuitlab.png") > 64, "a blank or empty window has a handful of colours"


def _colours(picture: Path) -> int:
    """How many different colours a picture has, counted on a grid of its pixels."""
    from PySide6.QtGui import QImage

    image = QImage(str(picture))
    assert image.width() >= 800
    assert image.height() >= 600
    return len({image.pixel(x, y) for x in range(0, image.width(), 3) for y in range(0, image.height(), 3)})


# -- .ci/run on a machine that is played by scripts -------------------------------------------------------------------------


def _machine(folder: Path, lacks: str = "", user: int = 0, sudo: bool = True) -> Path:
    """A folder of commands: every package is installed but `lacks`; apt-get, sudo and make say what they were asked."""
    scripts = {
        "dpkg-query": f'case " {lacks} " in *" ${{3%t64}} "*) exit 1;; esac; printf installed',
        "apt-get": 'echo "apt-get $*"',
        "make": 'echo "make $*"',
        "id": f"echo {user}",
        "env": 'while [ "${1#*=}" != "$1" ]; do shift; done; exec "$@"',
        "dirname": 'echo "${1%/*}"',
        **({"sudo": 'echo "as root: $*"; exec "$@"'} if sudo else {}),
        **{f"python3{minor}": "exit 0" for minor in ("", ".11", ".12", ".13")},
    }
    folder.mkdir()
    for name, body in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def _ci(machine: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", ROOT / ".ci" / "run"], env={"PATH": str(machine)}, capture_output=True, text=True, check=False
    )


def test_ci_installs_nothing_where_all_is_there(tmp_path: Path) -> None:
    done = _ci(_machine(tmp_path / "bin"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == ["== make gate", "make gate"]
    assert re.fullmatch(r"minutes: \d+", done.stdout.splitlines()[-1])


def test_ci_installs_what_is_missing_as_root(tmp_path: Path) -> None:
    said = _ci(_machine(tmp_path / "bin", lacks="libxcb-cursor0 xvfb", sudo=False)).stdout.splitlines()
    assert said[1] == "apt-get update -qq"
    assert said[2].startswith("apt-get install ")
    assert said[2].split("--no-install-recommends ")[1] == "xvfb libxcb-cursor0"
    assert "make gate" in said


def test_ci_uses_sudo_and_says_so_without(tmp_path: Path) -> None:
    assert "as root: env" in _ci(_machine(tmp_path / "with", lacks="make", user=1000)).stdout
    done = _ci(_machine(tmp_path / "without", lacks="make", user=1000, sudo=False))
    assert done.returncode == 3
    assert "Needs root, or sudo" in done.stderr


def test_ci_fails_where_the_gate_does_and_says_how_long_it_took(tmp_path: Path) -> None:
    machine = _machine(tmp_path / "bin")
    (machine / "make").write_text('#!/bin/sh\necho "make $*"\nexit 2\n')
    done = _ci(machine)
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1].startswith("minutes: ")


# -- the wheel -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def _lend(python: Path) -> None:
    """Lend this environment's libraries to another one, and not the checkout."""
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    # A path entry inside a path entry is not followed: an editable install here does not reach there.
    lent = next(path for path in sys.path if Path(path, "torch").is_dir())
    (site / "lent.pth").write_text(lent + "\n")


def _environment(folder: Path, *wheels: Path) -> Path:
    """The folder of commands of a fresh environment with these wheels."""
    assert _run(sys.executable, "-m", "venv", "--without-pip", folder).returncode == 0
    _lend(folder / "bin" / "python")
    for wheel in wheels:
        _pip(folder / "bin", "install", "--no-deps", "--no-index", wheel)
    return folder / "bin"


def _pip(commands: Path, *words: str | Path) -> None:
    pip = _run(sys.executable, "-m", "pip", "--python", commands / "python", *words)
    assert pip.returncode == 0, pip.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a fresh environment with the wheel."""
    return _environment(tmp_path_factory.mktemp("fresh"), wheel)


@pytest.mark.slow
@pytest.mark.gate
def test_the_wheel_carries_every_shipped_file_and_no_test(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    git = shutil.which("git") and _run("git", "ls-files", "resources", "models")
    shipped = git.stdout.split("\n") if git and git.returncode == 0 else []
    here = {name for name in shipped if name and (ROOT / name).is_file()}
    inside = {f"circuitlab/{name}" for name in here if "/checkpoints/" not in name}
    assert inside <= names and "circuitlab/models/archives.json" in inside
    assert not {name for name in names if name.endswith(".safetensors") and "/checkpoints/" in name}, (
        "they are in archives: `circuitlab get`"
    )
    assert "circuitlab/resources/recipes/attn-only-2l.toml" in names
    assert not {name for name in names if name.startswith(("tests", "resources", "models"))}
    assert not {name for name in names if name.endswith((".pyc", ".png.orig"))}


@pytest.mark.slow
def test_the_wheel_is_small_enough_for_a_package_index(wheel: Path) -> None:
    assert wheel.stat().st_size <= LARGEST_WHEEL


@pytest.mark.slow
def test_the_installed_wheel_gets_the_checkpoints_of_every_model(installed: Path, tmp_path: Path) -> None:
    """Each series that `models/` has here can be got there, is found there, and is the same."""
    series = {folder.parent.name for folder in (ROOT / "models").glob("*/checkpoints")}
    (zips := tmp_path / "zips").mkdir()
    for name in series:
        archived(ROOT / "models" / name, zips)
    listed = json.loads(_run(installed / "circuitlab", "get", "--json", cwd=tmp_path).stdout)
    rows = [row for row in listed if row["kind"] == "checkpoints"]
    assert {row["name"] for row in rows} == series and not any(row["here"] for row in rows)
    row = min(rows, key=lambda row: row["bytes"])
    name, command = row["name"], (installed / "circuitlab", "compute", "head_scores", f"builtin:{row['name']}")
    lacking = _run(*command, "--checkpoint", "all", "--csv", "-", cwd=tmp_path)
    assert lacking.returncode == 3 and f"circuitlab get {name} (" in lacking.stderr
    for row in rows:
        done = _run(installed / "circuitlab", "get", row["name"], "--from", zips, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        about = json.loads(_run(installed / "circuitlab", "info", f"builtin:{row['name']}", "--json", cwd=tmp_path).stdout)
        own = sorted((ROOT / "models" / row["name"] / "checkpoints").iterdir())
        assert about["checkpoints"] == [int(file.stem.removeprefix("step-")) for file in own]
    assert _run(installed / "circuitlab", "get", "--check", cwd=tmp_path).returncode == 0
    assert not list(installed.parent.rglob("models/*/checkpoints"))


@pytest.mark.slow
def test_the_installed_wheel_finds_itself(installed: Path, tmp_path: Path) -> None:
    told = _run(installed / "circuitlab", "--version", cwd=tmp_path)
    assert told.stdout.strip() == f"circuitlab {__version__}"
    assert _run(installed / "circuitlab", "--help", cwd=tmp_path).returncode == 0

    done = _run(installed / "circuitlab", "doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    for kind in ("resources", "models"):
        assert Path(report["paths"][kind]).is_relative_to(installed.parent) or not paths.shipped_models()
    assert tuple(report["models"]) == paths.shipped_models()


@pytest.mark.slow
@pytest.mark.gate
def test_the_installed_wheel_opens_each_shipped_model(installed: Path, tmp_path: Path) -> None:
    for model in paths.shipped_models():
        done = _run(installed / "circuitlab", "info", f"builtin:{model}", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)


def _works(commands: Path, folder: Path) -> None:
    """Command line, Python and the window, as a picture where there is no display, of an environment."""
    env = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state"), "QT_QPA_PLATFORM": "offscreen"}
    done = _run(commands / "circuitlab", "compute", "token_loss", "attn-only-2l", "--text", "one two one", cwd=folder, **env)
    assert done.returncode == 0 and "loss (nats)" in done.stdout, done.stderr
    script = "import circuitlab.api as lab; print(lab.open('attn-only-2l').compute('token_loss', text='a b').result.loss.shape)"
    done = _run(commands / "python", "-c", script, cwd=folder, **env)
    assert done.returncode == 0 and done.stdout.startswith("("), done.stderr
    script = "from circuitlab.gui.shell.main import render_window; render_window('window.png', 'attn-only-2l', 'one two one')"
    done = _run(
        commands / "python", "-c", script.replace("'window.png'", "__import__('pathlib').Path('window.png')"), cwd=folder, **env
    )
    assert done.returncode == 0, done.stderr
    assert _colours(folder / "window.png") > 64


def _hollow(folder: Path) -> Path:
    """A folder of wheels of the libraries, each its name and version alone: what installers resolve, and `_lend` then fills."""
    folder.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in (re.split(r"[^\w.-]", line)[0] for line in project["dependencies"]):
        stem = f"{name.replace('-', '_')}-{metadata.version(name).partition('+')[0]}"
        version = stem.rpartition("-")[2]
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as hollow:
            hollow.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            hollow.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            hollow.writestr(f"{stem}.dist-info/RECORD", "")
    return folder


@pytest.mark.slow
def test_pip_from_the_wheel_gives_window_command_line_and_python(installed: Path, tmp_path: Path) -> None:
    _works(installed, tmp_path)


@pytest.mark.slow
def test_uv_tool_install_gives_window_command_line_and_python(wheel: Path, tmp_path: Path) -> None:
    if not shutil.which("uv"):
        pytest.skip("needs uv")
    env = {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }
    found = ("--offline", "--no-index", "--find-links", _hollow(tmp_path / "hollow"))
    words = ("uv", "tool", "install", "--python", sys.executable, *found, wheel)
    done = _run(*words, cwd=tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "TOOL_BIN" / "circuitlab").exists()
    _lend(tmp_path / "TOOL" / "circuitlab" / "bin" / "python")
    _works(tmp_path / "TOOL" / "circuitlab" / "bin", tmp_path)


@pytest.mark.slow
def test_pipx_gives_window_command_line_and_python(wheel: Path, tmp_path: Path) -> None:
    if not shutil.which("pipx"):
        pytest.skip("needs pipx")
    env = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    found = f"--pip-args=--no-index --find-links {_hollow(tmp_path / 'hollow')}"
    words = ("pipx", "install", "--python", sys.executable, found, wheel)
    done = _run(*words, cwd=tmp_path, **env)
    assert done.returncode == 0, done.stderr
    commands = tmp_path / "pipx" / "venvs" / "circuitlab" / "bin"
    _lend(commands / "python")
    _works(commands, tmp_path)


@pytest.mark.slow
def test_the_example_plug_in_is_built_installed_computed_drawn_and_tested(wheel: Path, tmp_path: Path) -> None:
    example = shutil.copytree(ROOT / "docs" / "example-plugin", tmp_path / "example")
    built = _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", example)
    assert built.returncode == 0, built.stdout + built.stderr
    commands = _environment(tmp_path / "env", wheel, next((tmp_path / "dist").glob("*.whl")))
    run = lambda *words: _run(commands / "circuitlab", *words, cwd=tmp_path)
    for listing, line in (("analyses", "repeated_loss  (tokens, live, version 1, of circuitlab-example 0.1.0)"),
                          ("panels", "repeated_loss_panel  Repeated loss  (of circuitlab-example 0.1.0)")):  # fmt: skip
        assert line in run(listing).stdout
    prompt = ("attn-only-2l", "--text", "one two three one two three")
    computed = run("compute", "repeated_loss", *prompt, "--json", "-")
    assert computed.returncode == 0, computed.stderr
    answer = json.loads(computed.stdout)
    assert ["plug-in circuitlab-example", "0.1.0"] in answer["provenance"]["versions"]
    assert answer["result"]["loss"][0] < answer["result"]["loss"][1]  # what it repeats surprises the model less
    drawn = run("figure", "repeated_loss_panel", *prompt, "-o", "repeated.svg")
    assert drawn.returncode == 0 and "repeated_loss_panel" in (tmp_path / "repeated.svg").read_text("utf-8"), drawn.stderr
    found = json.loads(run("doctor", "--json").stdout)["plugins"]
    assert [(one["name"], one["version"], one["problem"]) for one in found] == [("circuitlab-example", "0.1.0", "")]
    words = ("-m", "pytest", "-q", "-c", os.devnull, "--rootdir", example, "-p", "no:cacheprovider", example / "tests")
    tested = _run(commands / "python", *words, cwd=tmp_path)
    assert tested.returncode == 0 and "4 passed" in tested.stdout, tested.stdout
    _pip(commands, "uninstall", "-y", "circuitlab-example")
    gone = run("compute", "repeated_loss", *prompt)
    assert gone.returncode == 2 and "There is no such analysis" in gone.stderr


# -- a real X server -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.gate
def test_the_probe_draws_on_a_real_x_server() -> None:
    if not shutil.which("Xvfb"):
        pytest.skip("needs Xvfb")
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x800x24"], pass_fds=[write], stderr=subprocess.DEVNULL
    )
    try:
        os.close(write)
        with os.fdopen(read) as told:
            display = f":{told.readline().strip()}"
        env = _no_display() | {"DISPLAY": display}
        env.pop("QT_QPA_PLATFORM", None)
        done = subprocess.run(
            [sys.executable, "-m", "circuitlab", "doctor", "--json"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        report = json.loads(done.stdout)
        assert report["plan"]["kind"] == "window"
        assert report["window"] == {"ok": True, "platform": "xcb", "problem": "", "libraries": [], "packages": []}
    finally:
        server.terminate()
        server.wait()
