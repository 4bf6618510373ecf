"""Writes the picture of the window in the README, on a real language model: python -m tests.readme_window"""

from __future__ import annotations

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import torch  # noqa: F401  before Qt
from PySide6.QtCore import QSize

from circuitlab.disk.paths import resource
from circuitlab.draw.look.app import application
from circuitlab.gui.shell.main import make_window, picture, settle
from circuitlab.model.subject import Head
from tests.real_file import smollm2

SIZE = QSize(1280, 800)
TEXT = "Mr and Mrs Dursley of number four, Privet Drive, were proud to say that Mr and Mrs Durs"


def main() -> None:
    """Write it: an induction head of layer 18, at the token that the name goes on from."""
    application(offscreen=True)
    window = make_window(str(smollm2()), TEXT, remember=False)
    window.set_theme("light")
    window.resize(SIZE)
    window.show()
    settle(window)
    context = window.context
    state = context.document.recorded.with_heads(Head(18, 6))
    last = len(state.tokens) - 1
    source = next(i for i in range(last) if state.tokens[i] == state.tokens[last]) + 1
    context.apply(state.select(destination=last, source=source, locked=True), "select")
    settle(window)
    picture(window, SIZE, 1.0).save(str(resource("screenshot.png")))
    window.close()


if __name__ == "__main__":
    main()
