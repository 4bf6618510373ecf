"""Probe of this machine's graphics: the display, Qt's platform plugin and the system libraries that it needs.

Qt **aborts** the process if a system library of its platform plugin is missing or the display does not respond; no exception can
be caught. Therefore, before a window is opened:

1. `display_plan` reads the environment and tries to connect to the display: a window, or a picture of it, and why.
2. `probe` creates a `QApplication` in a subprocess, after importing torch. If the subprocess dies, `ldd` on Qt's own files shows
   which libraries are missing, and `packages_for` which Debian packages contain them.
3. A success is stored in the cache folder, keyed by everything that could change it, so that only the first start pays for it.

Standard library only: this module must run where neither torch nor Qt can be imported.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from circuitlab.child_process import environment, finished, python
from circuitlab.disk import paths
from circuitlab.disk.files import made_folder, write_whole
from circuitlab.errors import BadMachine

# Packages that Qt's xcb plugin needs on a bare Debian 12, beyond the base system.
QT_PACKAGES = (
    "libegl1",
    "libgl1",
    "libxkbcommon-x11-0",
    "libxcb-cursor0",
    "libxcb-icccm4",
    "libxcb-image0",
    "libxcb-keysyms1",
    "libxcb-render-util0",
    "libxcb-shape0",
    "libxcb-xinerama0",
)

# Shared library -> Debian package, for everything that Qt's Essentials link to and do not bundle.
_PACKAGE_OF = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libGLX.so.0": "libgl1",
    "libOpenGL.so.0": "libopengl0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxcb.so.1": "libxcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xinerama.so.0": "libxcb-xinerama0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libX11.so.6": "libx11-6",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libSM.so.6": "libsm6",
    "libICE.so.6": "libice6",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libwayland-egl.so.1": "libwayland-egl1",
    "libgomp.so.1": "libgomp1",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
}

_UNSEEN = ("offscreen", "minimal", "minimalegl")
_SECONDS = 120  # until a process is taken to hang; importing torch from a cold disk alone takes tens of seconds

_CHILD = """
import json, sys
if {torch}:
    import torch
from PySide6.QtWidgets import QApplication
app = QApplication(["circuitlab-probe"])
print(json.dumps({{"platform": app.platformName()}}))
"""


@dataclass(frozen=True)
class Plan:
    """A window on the screen, or a picture of it; `reason` is a sentence for the user."""

    kind: Literal["window", "picture"]
    reason: str = ""


@dataclass(frozen=True)
class Probe:
    """The outcome of creating a `QApplication` in a subprocess. `platform`: Qt's name for the plugin that was loaded."""

    ok: bool
    platform: str = ""
    problem: str = ""
    libraries: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def error(self) -> BadMachine:
        """The failure as an error: what happened and what to install."""
        return BadMachine(
            "Qt cannot open a window here." + (f" {self.problem}" if self.problem else ""),
            expected="the system libraries of Qt's platform plugin" if self.libraries else "",
            got=f"not found: {', '.join(self.libraries)}" if self.libraries else "",
            remedy=_remedy(self.packages),
        )


def _remedy(packages: tuple[str, ...]) -> str:
    if packages:
        return f"On Debian or Ubuntu: apt-get install {' '.join(packages)}"
    if sys.platform.startswith("linux"):
        return f"On Debian or Ubuntu, make sure that these are installed: apt-get install {' '.join(QT_PACKAGES)}"
    return "Run `circuitlab doctor` to see which libraries can be imported; reinstalling them often helps."


def x_answers(display: str) -> bool | None:
    """Whether the X server named by `display` accepts a connection, authorisation included; None if libxcb is missing."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return None
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    xcb.xcb_connection_has_error.argtypes = [ctypes.c_void_p]
    xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(display.encode(), None)
    try:
        return xcb.xcb_connection_has_error(connection) == 0
    finally:
        xcb.xcb_disconnect(connection)


def wayland_answers(display: str, runtime_dir: str) -> bool:
    """Whether a Wayland compositor listens at `display`, an absolute path or a name in `runtime_dir`."""
    path = Path(runtime_dir) / display
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(2)
        try:
            knock.connect(str(path))
        except OSError:
            return False
    return True


def display_plan(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> Plan:
    """Whether to open a window or paint a picture: from the environment, then one attempt to connect. Takes milliseconds."""
    env = os.environ if environ is None else environ
    requested = env.get("QT_QPA_PLATFORM", "").split(":")[0]
    if requested in _UNSEEN:
        return Plan("picture", f"QT_QPA_PLATFORM={requested} shows nothing on a screen.")
    if requested not in ("", "xcb", "wayland", "wayland-egl") or not platform.startswith(("linux", "freebsd")):
        return Plan("window")
    x, wayland = env.get("DISPLAY", ""), env.get("WAYLAND_DISPLAY", "")
    if not x and not wayland:
        return Plan("picture", "There is no display: neither DISPLAY nor WAYLAND_DISPLAY is set.")
    if wayland and wayland_answers(wayland, env.get("XDG_RUNTIME_DIR", "")):
        return Plan("window")
    if x and x_answers(x) is not False:
        return Plan("window")
    variables = " and ".join(f"{k}={v}" for k, v in (("DISPLAY", x), ("WAYLAND_DISPLAY", wayland)) if v)
    return Plan("picture", f"The display does not answer: {variables}.")


def missing_libraries(ldd_output: str) -> tuple[str, ...]:
    """The libraries that an `ldd` listing or a loader's message reports as missing; each once, in order."""
    names = re.findall(r"^\s*(\S+) => not found", ldd_output, flags=re.MULTILINE)
    names += re.findall(r"(\S+?): cannot open shared object file", ldd_output)
    return tuple(dict.fromkeys(name for name in names if not name.startswith("libQt6")))


def packages_for(libraries: Iterable[str]) -> tuple[str, ...]:
    """The Debian packages that contain these libraries; unknown libraries are skipped."""
    return tuple(dict.fromkeys(_PACKAGE_OF[name] for name in libraries if name in _PACKAGE_OF))


def _qt_files(platform: str) -> list[Path]:
    """Qt's own shared libraries and the plugin(s) of `platform`, without importing Qt."""
    spec = importlib.util.find_spec("PySide6")
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(next(iter(spec.submodule_search_locations))) / "Qt"
    files = [root / "lib" / f"libQt6{name}.so.6" for name in ("Core", "Gui", "Widgets", "Svg")]
    files.append(root / "plugins" / "platforms" / f"libq{platform}.so")
    return [path for path in files if path.is_file()]


def unmet_libraries(platform: str) -> tuple[str, ...]:
    """The missing system libraries of Qt's files for `platform` ("xcb", "wayland", "offscreen")."""
    files = _qt_files(platform)
    if not files or not sys.platform.startswith("linux"):
        return ()
    try:
        _, output, errors = finished(["ldd", *map(str, files)], _SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return missing_libraries(output + errors)


def _requested_plugin(env: Mapping[str, str]) -> str:
    """The platform plugin that Qt would load."""
    requested = env.get("QT_QPA_PLATFORM", "").split(":")[0]
    return requested or ("xcb" if env.get("DISPLAY") else "wayland" if env.get("WAYLAND_DISPLAY") else "xcb")


def probe(environ: Mapping[str, str] | None = None, *, torch: bool = True) -> Probe:
    """Import torch, then Qt, and load the platform plugin, in a subprocess with this environment."""
    env = environment(environ)
    try:
        status, output, errors = finished(python("-c", _CHILD.format(torch=torch)), _SECONDS, env)
    except subprocess.TimeoutExpired:
        return Probe(False, problem=f"It did not respond within {_SECONDS} seconds.")
    if status == 0:
        return Probe(True, platform=json.loads(output.splitlines()[-1])["platform"])
    return explain(errors, unmet_libraries(_requested_plugin(env)))


def explain(stderr: str, unmet: tuple[str, ...]) -> Probe:
    """A failed attempt, explained by its output and the missing libraries."""
    libraries = tuple(dict.fromkeys((*unmet, *missing_libraries(stderr))))
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    informative = [line for line in lines if re.match(r"qt\.qpa\.xcb:|This application failed|\w*(Error|Exception)\b", line)]
    # Qt adds its advice on libxcb-cursor0 to every failure of the plugin; only the loader knows which library is missing.
    problem = informative[-1] if informative else (lines[-1] if lines else "The attempt ended without a message.")
    return Probe(False, problem=problem, libraries=libraries, packages=packages_for(libraries))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _cache_key(env: Mapping[str, str]) -> str:
    """A key that changes with the interpreter, the versions, the display and the system's installed packages."""
    system = [path.stat().st_mtime_ns for path in (Path("/var/lib/dpkg/status"), Path("/usr/lib")) if path.exists()]
    display = [env.get(name, "") for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY", "XDG_SESSION_TYPE")]
    versions = [_version(name) for name in ("torch", "PySide6-Essentials")]
    return hashlib.sha256(repr((sys.executable, sys.version, versions, display, system)).encode()).hexdigest()


def probe_cached(environ: Mapping[str, str] | None = None) -> Probe:
    """`probe` with a cache: a success is stored in the cache folder, a failure is probed again each time."""
    env = os.environ if environ is None else environ
    key, file = _cache_key(env), paths.cache_home() / "probe.json"
    try:
        stored = json.loads(file.read_text("utf-8"))
        if stored["key"] == key and stored["probe"]["ok"]:
            return Probe(True, platform=str(stored["probe"]["platform"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    result = probe(env)
    if result.ok:
        try:
            made_folder(file.parent)
            write_whole(file, json.dumps({"key": key, "probe": asdict(result)}).encode(), durable=False)
        except BadMachine:
            pass  # a read-only home costs a second at each start, nothing else
    return result


def require_qt(environ: Mapping[str, str] | None = None) -> Probe:
    """The (cached) probe. Raises `BadMachine` with the packages to install if Qt would abort."""
    result = probe_cached(environ)
    if not result.ok:
        raise result.error()
    return result
