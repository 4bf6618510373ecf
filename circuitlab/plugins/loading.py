"""The import of plug-ins: at first use, on a thread of their own, for so long and no longer.

Whatever goes wrong becomes a `PluginError` that names the plug-in, is remembered (`failures`) and is the same at every later
use. One whose import has not ended in time is left alone: its thread ends with the process, and where it comes to an end after
all, the next use has it.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn

from circuitlab.counting import number_of
from circuitlab.errors import PluginError, reason
from circuitlab.plugins.declaring import Addition, Plugin, owner
from circuitlab.plugins.plugin_files import import_file
from circuitlab.unforeseen import write_log

log = logging.getLogger("circuitlab.plugins")
PATIENCE = "CIRCUITLAB_PLUGIN_SECONDS"  # the environment variable of how long an import may take
SECONDS = 30.0
_lock = threading.Lock()
_attempts: dict[tuple[str, str], _Attempt] = {}


@dataclass
class _Attempt:
    """One import, running or done: `found` or `error`."""

    addition: Addition
    began: float
    ended: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    found: object = None
    error: PluginError | None = None
    seconds: float = 0.0


def load(addition: Addition) -> Any:
    """The module of an addition, or the object that it names, imported at the first call.

    Raises `PluginError` where the import fails or has not ended in time; the process goes on in either case.
    """
    key = (addition.module, addition.attribute)
    with _lock:
        attempt = _attempts.get(key)
        if attempt is None:
            attempt = _attempts[key] = _Attempt(addition, time.monotonic())
            attempt.thread = threading.Thread(target=_import, args=(attempt,), name=f"plug-in {addition.plugin}", daemon=True)
            attempt.thread.start()
    if attempt.thread is threading.current_thread():
        raise PluginError(
            f"While it is imported, {_of(addition.plugin)} asks for itself.",
            remedy="Import what it needs from its own modules, not from CircuitLab's registries.",
            plugin=str(addition.plugin),
        )
    if not attempt.ended.wait(max(0.0, attempt.began + patience() - time.monotonic())):
        _give_up(attempt)
    if attempt.error is not None:
        raise attempt.error
    return attempt.found


def patience() -> float:
    """Seconds that an import may take."""
    try:
        return float(os.environ.get(PATIENCE, "")) or SECONDS
    except ValueError:
        return SECONDS


def failures() -> dict[Plugin, PluginError]:
    """The plug-ins that have failed in this process so far, each with its first error."""
    with _lock:
        failed = [one for one in _attempts.values() if one.error is not None]
    return {one.addition.plugin: one.error for one in reversed(failed) if one.error is not None}


def _import(attempt: _Attempt) -> None:
    addition, result, error = attempt.addition, None, None
    try:
        path = addition.plugin.path
        result = import_file(path, addition.module) if path else importlib.import_module(addition.module)
        for name in filter(None, addition.attribute.split(".")):
            result = getattr(result, name)
    except BaseException as raised:  # SystemExit, too: a plug-in does not end the program
        error = failed(addition.plugin, f"the {SINGULAR[addition.kind]} {addition.name}", "cannot be imported", raised)
    attempt.found, attempt.error, attempt.seconds = result, error, time.monotonic() - attempt.began
    attempt.ended.set()


SINGULAR = {"analyses": "analysis", "panels": "panel", "families": "family"}


def _give_up(attempt: _Attempt) -> NoReturn:
    plugin = attempt.addition.plugin
    if attempt.error is None:
        waited = number_of(round(patience()), "second")
        error = PluginError(
            f"Within {waited}, {_of(plugin)} has not been imported.",
            got=_line_of(attempt),
            remedy=f"It is left alone. Do without it, or set {PATIENCE} where it needs longer.",
            plugin=str(plugin),
        )
        attempt.error = error
        log.error("%s", error)
    raise attempt.error


def failed(plugin: Plugin, where: str, what: str, raised: BaseException) -> PluginError:
    """The error that names a plug-in by what it raised in `where` ("the panel token_runs"); its traceback goes to the log."""
    told = "".join(traceback.format_exception(raised))
    if logging.getLogger("circuitlab").hasHandlers():
        log.error("%s: %s", plugin, where, exc_info=raised)
        details = "The Log has its traceback."
    else:
        details = write_log(f"{time.strftime('%Y-%m-%d %H:%M:%S')} ERROR circuitlab.plugins {plugin}: {where}\n{told}")
    why = "it ended the program" if isinstance(raised, SystemExit) else reason(raised).rstrip(".")
    words = f"{_of(plugin)} {what}: {why}." if what else f"{_of(plugin)} fails: {why}."
    got = " · ".join(filter(None, (where, _place(raised.__traceback__))))
    owned = "Correct it" if plugin.path else "Tell its authors"
    return PluginError(words, got=got, remedy=f"{owned}, or do without it. {details}", plugin=str(plugin))


def _place(trace: TracebackType | None) -> str:
    """The last line that ran outside the import system and CircuitLab."""
    ours = ("importlib", os.path.dirname(__file__))
    frames = [one for one in traceback.extract_tb(trace) if not any(part in one.filename for part in ours)]
    return f"line {frames[-1].lineno} of {os.path.basename(frames[-1].filename)}" if frames else ""


def blamed(error: BaseException) -> Plugin | None:
    """The plug-in whose code an exception came through last; None for none."""
    modules = (str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((plugin for module in reversed(list(modules)) if (plugin := owner(module)) is not None), None)


def _line_of(attempt: _Attempt) -> str:
    """Where an import that does not end stands."""
    frame = sys._current_frames().get(attempt.thread.ident or 0) if attempt.thread is not None else None
    return "" if frame is None else f"at line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"


def _of(plugin: Plugin) -> str:
    return f"The plug-in {plugin}"
