"""What files, scripts and command lines of others name: it stays, wherever the code that answers to it stands.

`tests/data/registered_names.json` is written by hand of `python -m tests.unit.test_registered_names`, and only to add to it:
a name that leaves it is a promise broken. Where parameters or results of an analysis change, so does its version: answers that
sessions carry are then of another version, and left out; otherwise they could not be read.
"""

from __future__ import annotations

import argparse
import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from circuitlab import api
from circuitlab.analysis.base import analyses
from circuitlab.cli.parser import _parser
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.shell.commands import COMMANDS
from circuitlab.report.picture import Picture
from circuitlab.report.saved_session import SavedSession, SavedStep

FROZEN = Path(__file__).parents[1] / "data" / "registered_names.json"


def _options(parser: argparse.ArgumentParser) -> dict[str, Any]:
    found: dict[str, Any] = {"options": sorted(o for action in parser._actions for o in action.option_strings)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found["commands"] = {name: _options(sub) for name, sub in action.choices.items()}
    return found


def _python() -> dict[str, list[str]]:
    """What scripts use, with its parameters: the names of `circuitlab.api`, and the members of what these return."""
    objects = {name: getattr(api, name) for name in api.__all__}
    for kind in (api.Model, SavedSession, SavedStep, Answer, Picture):
        objects |= {f"{kind.__name__}.{name}": member for name, member in vars(kind).items() if not name.startswith("_")}
    names = lambda one: [name for name in inspect.signature(one).parameters if name != "self"] if callable(one) else []
    return {name: names(one) for name, one in sorted(objects.items())}


def registered_names() -> dict[str, Any]:
    """Every name that is kept in a file or typed by somebody: analyses, panels, commands, the command line, Python's names."""
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
            if a.plugin is None
        },
        "panels": sorted(name for name, panel in panels().items() if panel.plugin is None),
        "window commands": sorted(command.name for command in COMMANDS),
        "command line": _options(_parser()),
        "python": _python(),
    }


def of_old_version(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Analyses whose parameters or results have changed, and their version has not."""
    old, new = before["analyses"], now["analyses"]
    parts = ("parameters", "result")
    changed = [name for name in old.keys() & new.keys() if any(old[name][part] != new[name][part] for part in parts)]
    return sorted(name for name in changed if old[name]["version"] == new[name]["version"])


def test_every_registered_name_is_what_it_was() -> None:
    assert registered_names() == json.loads(FROZEN.read_text("utf-8"))


def test_a_field_more_is_another_version() -> None:
    before, now = registered_names(), registered_names()
    assert not of_old_version(before, now)
    now["analyses"]["attention"]["result"].append("surplus")
    now["analyses"]["ablation"]["parameters"].append("surplus")
    del now["analyses"]["bigram"]
    assert of_old_version(before, now) == ["ablation", "attention"]
    now["analyses"]["attention"]["version"] += 1
    assert of_old_version(before, now) == ["ablation"]


if __name__ == "__main__":
    if names := of_old_version(json.loads(FROZEN.read_text("utf-8")), registered_names()):
        raise SystemExit(f"give these analyses a new version, as their parameters or results have changed: {' '.join(names)}")
    FROZEN.write_text(json.dumps(registered_names(), indent=1, ensure_ascii=False) + "\n", "utf-8")
