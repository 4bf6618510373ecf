"""The State enters the window through the methods of `AppContext` alone: read from the source of `gui/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import circuitlab.gui

GUI = Path(circuitlab.gui.__file__).parent
INSIDE = {GUI / "work" / name for name in ("app_context.py", "document.py", "model_loader.py")}
WRITERS = {  # by what the object is called that they are a method of
    "document": {"apply", "gather", "end_preview", "undo", "redo"},
    "loader": {"show", "undo", "redo", "drop"},
}


def written(source: str) -> Iterator[str]:
    """Mentions of what writes the State behind the door."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
            if node.attr in WRITERS.get(owner, ()):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_nobody_writes_the_state_but_through_the_context() -> None:
    files = [file for file in GUI.rglob("*.py") if file not in INSIDE]
    assert len(files) > 50
    assert not [f"{file.name} {line}" for file in files for line in written(file.read_text(encoding="utf-8"))]


def test_the_rule_sees_what_it_forbids() -> None:
    assert list(written("document = self.context.document\ndocument.apply(state, 'x')")) == ["line 2: document.apply"]
    assert list(written("act = self.context.loader.undo")) and list(written("self._document.gather(a, b)"))
    assert not list(written("self.context.apply(state, 'x'); self.context.loader.waiting; document.recorded"))
    for file in INSIDE - {GUI / "work" / "document.py"}:
        assert list(written(file.read_text(encoding="utf-8")))
