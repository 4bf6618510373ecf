"""Writes the picture of the speaker's view in the README: python -m tests.readme_speaker"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import torch  # noqa: F401  before Qt
from PySide6.QtCore import QDeadlineTimer, QSize
from PySide6.QtTest import QTest

from circuitlab.disk.paths import resource
from circuitlab.draw.look.app import application
from circuitlab.gui.presenter.options import TalkOptions
from circuitlab.gui.shell.main import make_window, settle

STAGE = QSize(1280, 720)
TEXT = "Mr and Mrs Hursley of the mill, said that Mr and Mrs Hursley"
BASE: dict[str, Any] = {"model": "attn-only-2l", "text": TEXT, "heads": "best prefix_matching", "cut": [], "pin": []}
VALUES = {"earlier": {"analysis": "head_scores", "read": "best(previous_token)", "format": "head"}}
STEPS = (
    ("What follows Mr?", "The model has read the name once.", "Ask the room first.", {"show": ["predictions"]}),
    (
        "One head looks back",
        "At the second *Mrs* it reads what followed the first.",
        "Point at the **stripe**: it begins where the text repeats.\n\n- each row is a token, and sums to 1\n- what is dark "
        "on the left is attention that rests on BOS\n\nIf asked when it learned that: step 4.",
        {"show": ["attention"]},
    ),
    ("It needs a head below", "{earlier} writes what stood before.", "", {"show": ["composition"]}),
    ("Over its training", "", "", {"show": ["training"]}),
)


def main() -> None:
    """Write it."""
    steps: list[dict[str, Any]] = [
        {"title": title, "text": text, "aside": aside, "set": {**BASE, **words}} for title, text, aside, words in STEPS
    ]
    for step in steps:
        step |= {"values": VALUES} if "{earlier}" in step["text"] else {}
    session = {
        "circuitlab": "session",
        "version": 1,
        "models": {"attn-only-2l": {"source": "builtin:attn-only-2l"}},
        "now": {"model": "attn-only-2l"},
        "story": {"title": "An induction head", "steps": steps},
    }
    application(offscreen=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "talk.circuitlab"
        path.write_text(json.dumps(session), encoding="utf-8")
        window = make_window(str(path), None, remember=False)
        window.resize(1280, 800)
        window.show()
        settle(window)
        window.preparing.prepare(lambda: window.presenting.open(TalkOptions(windowed=True, first=1, minutes=20)).begin())
        waiting = QDeadlineTimer(60_000)
        while not waiting.hasExpired():
            QTest.qWait(20)
            talk = window.presenting.talk
            if talk is None:
                continue
            if talk.stage.size() != STAGE:
                talk.stage.resize(STAGE)
                talk.refresh()
            elif not (talk.view.picture.image.isNull() or talk.stage.waiting or talk._drawing.isActive()):
                break
        window.grab().toImage().save(str(resource("speaker.png")))
        window.presenting.end()
        window.close()


if __name__ == "__main__":
    main()
