"""What stands between the program and a function of a plug-in: its faults name it, and where somebody waits, it has so long."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from circuitlab.errors import BadFigure, CircuitLabError, PluginError, quoted
from circuitlab.plugins.declaring import Plugin
from circuitlab.plugins.loading import failed

T = TypeVar("T")


def guarded(
    plugin: Plugin, where: str, function: Callable[..., T], kinds: type | tuple[type, ...] = object, seconds: float = 0.0
) -> Callable[..., T]:
    """The function of a plug-in, whose faults become a `PluginError` with its name and `where` they happened.

    `kinds`: what it has to return. `seconds`: how long it may take, on a thread of its own; it is not called again once it has
    not come back in time. 0: as long as it likes, on the thread of the caller. `CircuitLabError` and a lack of memory go through.
    """
    stuck: list[PluginError] = []

    @wraps(function)
    def call(*args: object, **more: object) -> T:
        if stuck:
            raise stuck[0]
        try:
            result = _within(seconds, function, args, more) if seconds else function(*args, **more)
        except _Late:
            what = f"The plug-in {plugin} does not come to an end: {where} took more than {seconds:g} s."
            stuck.append(PluginError(what, remedy="It is not asked again until the program is started anew.", plugin=str(plugin)))
            raise stuck[0] from None
        except BadFigure as error:  # a fault of the panel, not of its user
            raise failed(plugin, where, "", error) from error
        except (CircuitLabError, MemoryError):
            raise
        except Exception as error:
            if isinstance(error, RuntimeError) and "memory" in str(error):  # torch's way of saying that there was not enough
                raise
            raise failed(plugin, where, "", error) from error
        if not isinstance(result, kinds):
            named = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            wrong = TypeError(f"it returned {quoted(result)} in place of a {named}")
            raise failed(plugin, where, "", wrong)
        return result

    return call


class _Late(Exception):
    """A function has not come back in time."""


def _within(seconds: float, function: Callable[..., T], args: tuple[object, ...], more: dict[str, object]) -> T:
    """Call it on a thread of its own. Raises what it raises, and `_Late`."""
    found, raised = list[T](), list[BaseException]()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            found.append(context.run(function, *args, **more))
        except BaseException as error:
            raised.append(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise _Late
    return found[0]
