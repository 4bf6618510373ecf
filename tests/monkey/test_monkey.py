"""A thousand random events leave the window whole; and what is broken on purpose is caught and made short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.monkey.events import WEIGHTS, Event, as_text, drawn, from_text
from tests.monkey.runner import ROOT, Outcome, played
from tests.monkey.shrink import shrunk

BROKEN = """
import sys
from PySide6.QtCore import QTimer
from circuitlab.gui.shell.window import Window
def boom(): raise RuntimeError("broken on purpose")
Window.undo = lambda self: QTimer.singleShot(0, boom)
from tests.monkey.play import main
import os
os._exit(main(sys.argv[1:]))
"""


def test_events_are_drawn_from_the_seed_and_survive_being_written() -> None:
    events = drawn(3, 400)
    assert events == drawn(3, 400) != drawn(4, 400)
    assert drawn(3, 100) == events[:100]
    assert from_text("# seed 3\n\n" + as_text(events)) == events
    assert {e.kind for e in events} == set(WEIGHTS)
    with pytest.raises(ValueError, match="no event"):
        from_text("jump 0 0 0")


@pytest.mark.parametrize("needed", [(17,), (3, 80), (0, 1, 98, 99)])
def test_a_failing_list_is_made_as_short_as_it_can_be(needed: tuple[int, ...]) -> None:
    plays = 0

    def fails(some: tuple[int, ...]) -> bool:
        nonlocal plays
        plays += 1
        return set(needed) <= set(some)

    assert shrunk(tuple(range(100)), fails, 200) == needed
    assert plays < 120
    assert shrunk(tuple(range(100)), fails, 0) == tuple(range(100))


def test_failures_are_told_apart_by_their_last_line() -> None:
    one, same, other = (Outcome(7, "1 click", text) for text in ("a\nError: 3 of 4\n", "b\n\nError: 5 of 6", "Error: none"))
    assert one.kind == same.kind != other.kind


@pytest.mark.slow
def test_what_nobody_catches_ends_the_play(tmp_path: Path) -> None:
    listing = tmp_path / "events.txt"
    listing.write_text(as_text([Event("undo", 0.0, 0.0, 0.0)]), "utf-8")
    command = [sys.executable, "-c", BROKEN, str(listing), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 7, done.stderr[-2000:]
    assert "broken on purpose" in done.stderr


@pytest.mark.slow
def test_a_thousand_events() -> None:
    """Answers come when they come: a failure that the same events do not bring about again is printed, not counted."""
    outcome = played(drawn(20_261, 1000))
    if outcome.code:
        print(f"failed once, at {outcome.at}:\n{outcome.report}")
        outcome = played(drawn(20_261, 1000))
    assert outcome.code == 0, f"make monkey ARGS='--seed 20261 --events 1000' to shrink it: {outcome.at}\n{outcome.report}"
