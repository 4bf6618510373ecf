"""Qt, imported where Ctrl+C can end the process: in the middle of its own import it aborts, or forgets the interrupt."""

from __future__ import annotations

from circuitlab.interrupts import starting


def load_drawing() -> None:
    """Import what draws, before a command does that needs it."""
    with starting():
        import circuitlab.draw.export.pictures  # noqa: F401
