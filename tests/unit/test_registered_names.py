"""What files, scripts and command lines of others name: it stays, wherever the code that answers to it stands.

`tests/data/registered_names.json` is written by hand of `python -m tests.unit.test_registered_names`, and only to add to it:
a name that leaves it is a promise broken.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from circuitlab.analysis.base import analyses
from circuitlab.cli.parser import _parser
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.shell.commands import COMMANDS

FROZEN = Path(__file__).parents[1] / "data" / "registered_names.json"


def _options(parser: argparse.ArgumentParser) -> dict[str, Any]:
    found: dict[str, Any] = {"options": sorted(o for action in parser._actions for o in action.option_strings)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found["commands"] = {name: _options(sub) for name, sub in action.choices.items()}
    return found


def registered_names() -> dict[str, Any]:
    """Every name that is kept in a file or typed by somebody: analyses with their fields, panels, commands, the command line."""
    return {
        "analyses": {
            name: {
                "version": a.version,
                "needs": a.needs,
                "lane": a.lane,
                "parameters": [f.name for f in fields(a.params)],
                "result": [f.name for f in fields(a.result)],
            }
            for name, a in analyses().items()
        },
        "panels": sorted(panels()),
        "window commands": sorted(command.name for command in COMMANDS),
        "command line": _options(_parser()),
    }


def test_every_registered_name_is_what_it_was() -> None:
    assert registered_names() == json.loads(FROZEN.read_text("utf-8"))


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(registered_names(), indent=1, ensure_ascii=False) + "\n", "utf-8")
