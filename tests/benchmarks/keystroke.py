"""What a keystroke costs the window's own thread, in calls rather than in seconds, which a busy machine changes.

    python -m tests.benchmarks.keystroke

types letters into the prompt of the default window, lets it settle after each, and prints how many Python functions were called,
how many of them were size hints and layouts, and which functions were called most.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

HINTS = ("sizeHint", "minimumSizeHint", "minimumSize", "heightForWidth")
LAYOUTS = ("setGeometry", "lay_out", "proportions", "arrange")


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Calls of Python functions on this thread meanwhile, by module and qualified name."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            calls[f"{frame.f_globals.get('__name__', '')}.{code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def named(calls: Counter[str], names: tuple[str, ...]) -> int:
    """How many calls were to functions of these names, whatever class they belong to."""
    return sum(n for name, n in calls.items() if name.rpartition(".")[2] in names)


def main() -> None:
    """See the module."""
    import torch

    from circuitlab.draw.look.app import application
    from circuitlab.gui.shell.main import make_window, settle

    torch.set_num_threads(1)
    app = application(offscreen=True)
    window = make_window(None, None, remember=False)
    window.resize(1280, 800)
    window.show()
    assert threading.current_thread() is threading.main_thread()

    def quiet() -> None:
        settle(window)
        while window.prompt.timer.isActive() or window.ahead.timer.isActive() or window.context.runner.prefetch.busy:
            app.processEvents()
        settle(window)

    quiet()
    window.prompt.editor.setFocus()
    last: Counter[str] = Counter()
    for letter in "the cat":
        with counted() as calls:
            window.prompt.editor.insertPlainText(letter)
            while window.prompt.timer.isActive():
                app.processEvents()
            settle(window)
        print(f"{letter!r}: {calls.total():,} calls, size hints {named(calls, HINTS)}, layouts {named(calls, LAYOUTS)}")
        last = calls
        quiet()
    for name, n in last.most_common(30):
        print(f"{n:7,} {n / last.total():6.1%}  {name}")
    window.close()


if __name__ == "__main__":
    main()
