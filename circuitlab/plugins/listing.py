"""Which plug-ins there are, as lines for people."""

from __future__ import annotations

from circuitlab.plugins.declaring import Addition, Plugin, declared, problems
from circuitlab.plugins.loading import SINGULAR, failures


def listed() -> tuple[str, ...]:
    """A line for each plug-in: what it adds, and why it failed, where it has; one for each file that cannot be read.

    Imports none: one that has not been used yet has not failed either.
    """
    of: dict[Plugin, list[Addition]] = {}
    for one in declared():
        of.setdefault(one.plugin, []).append(one)
    failed = failures()
    lines = []
    for plugin, additions in of.items():
        adds = ", ".join(f"{SINGULAR[one.kind]} {one.name}" for one in additions)
        fault = f"; failed: {failed[plugin].what}" if plugin in failed else ""
        lines.append(f"{plugin}: {adds}{fault}")
    return (*lines, *(f"cannot be read: {problem}" for problem in problems()))
