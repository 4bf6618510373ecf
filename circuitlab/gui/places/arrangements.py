"""The arrangements of the docks, as a story names them."""

from __future__ import annotations

from circuitlab.story.arrangements import ARRANGEMENTS, FRONTS, HOMES, LOWEST, NARROWEST, TOOLS, Arrangement, Stack

__all__ = ["ARRANGEMENTS", "FRONTS", "HOMES", "LOWEST", "NARROWEST", "TOOLS", "Arrangement", "Stack"]
