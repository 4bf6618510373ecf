"""pip in a process that ends with the one that started it, whatever it waits for: a server may send a byte a minute for ever.

Started as a script by `getting`, with pip's own arguments; it must not import this package. Nothing is written to its standard
input, whose end says that the parent is gone.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def _end_with(pipe: int) -> None:
    """End this process when nobody can write to a pipe any more."""
    while os.read(pipe, 1):
        pass
    os._exit(1)


def main() -> None:
    """Run pip, which has a standard input without anything in it."""
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
    sys.argv[0] = "pip"
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
