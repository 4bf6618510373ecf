"""An X server of one's own with several screens, as Qt sees them, that can be plugged in and out.

One wide screen of Xvfb is divided into monitors by RandR (`XRRSetMonitor`), each of which is a `QScreen` to Qt 6.10; a server
with `+xinerama` and two `-screen` is one `QScreen`. Without `-noreset` the server forgets its monitors with its last client.

As a command, which Xlib needs, as it ends the process at an error:

    python -m tests.x_screens add NAME X Y WIDTH HEIGHT | remove NAME
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.patience import SECONDS

Place = tuple[int, int, int, int]  # x, y, width, height in px


@dataclass(frozen=True)
class XServer:
    """A running server. `display`: for DISPLAY."""

    display: str

    def add(self, name: str, place: Place) -> None:
        """Plug in a screen of this name."""
        self._run("add", name, *map(str, place))

    def remove(self, name: str) -> None:
        """Pull out the cable of a screen."""
        self._run("remove", name)

    def _run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.x_screens", *arguments]
        subprocess.run(command, env={**os.environ, "DISPLAY": self.display}, check=True, timeout=SECONDS)


@contextmanager
def x_server(width: int, height: int) -> Iterator[XServer]:
    """A server with one screen of this size, which is to be divided; the test is skipped where there is none."""
    if not shutil.which("Xvfb"):
        pytest.skip("needs Xvfb")
    read, write = os.pipe()
    size = f"{width}x{height}x24"
    command = ["Xvfb", "-displayfd", str(write), "-noreset", "-screen", "0", size]
    server = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as pipe:
            yield XServer(f":{pipe.readline().strip()}")
    finally:
        server.terminate()
        server.wait(timeout=SECONDS)


class _Monitor(ctypes.Structure):
    """XRRMonitorInfo."""

    _fields_ = (
        ("name", ctypes.c_ulong),
        ("primary", ctypes.c_int),
        ("automatic", ctypes.c_int),
        ("n_outputs", ctypes.c_int),
        ("x", ctypes.c_int),
        ("y", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("width_mm", ctypes.c_int),
        ("height_mm", ctypes.c_int),
        ("outputs", ctypes.c_void_p),
    )


class _Resources(ctypes.Structure):
    """The beginning of XRRScreenResources."""

    _fields_ = (
        ("timestamp", ctypes.c_ulong),
        ("config_timestamp", ctypes.c_ulong),
        ("n_crtcs", ctypes.c_int),
        ("crtcs", ctypes.c_void_p),
        ("n_outputs", ctypes.c_int),
        ("outputs", ctypes.POINTER(ctypes.c_ulong)),
    )


def _main(what: str, name: str, *place: str) -> None:
    x11, randr = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXrandr.so.2")
    pointer, long = ctypes.c_void_p, ctypes.c_ulong
    x11.XOpenDisplay.restype, x11.XOpenDisplay.argtypes = pointer, [ctypes.c_char_p]
    x11.XDefaultRootWindow.restype, x11.XDefaultRootWindow.argtypes = long, [pointer]
    x11.XInternAtom.restype, x11.XInternAtom.argtypes = long, [pointer, ctypes.c_char_p, ctypes.c_int]
    x11.XSync.argtypes = [pointer, ctypes.c_int]
    randr.XRRSetMonitor.argtypes = [pointer, long, ctypes.POINTER(_Monitor)]
    randr.XRRDeleteMonitor.argtypes = [pointer, long, long]
    randr.XRRGetScreenResources.restype = ctypes.POINTER(_Resources)
    randr.XRRGetScreenResources.argtypes = [pointer, long]
    display = x11.XOpenDisplay(None)
    root = x11.XDefaultRootWindow(display)
    atom = x11.XInternAtom(display, name.encode(), 0)
    if what == "remove":
        randr.XRRDeleteMonitor(display, root, atom)
    else:
        x, y, width, height = map(int, place)
        # the screen at the origin takes the only output, so that no monitor of the whole width is left
        outputs = randr.XRRGetScreenResources(display, root).contents.outputs if (x, y) == (0, 0) else None
        first = ctypes.cast(outputs, pointer) if outputs is not None else None
        has = int(first is not None)
        monitor = _Monitor(atom, has, 0, has, x, y, width, height, width // 4, height // 4, first)
        randr.XRRSetMonitor(display, root, ctypes.byref(monitor))
    x11.XSync(display, 0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
