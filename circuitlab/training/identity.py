"""Which run a folder holds: recipe, seed, text and tokenizer in `OUT/state/run.json`, so that no other one is taken up there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from circuitlab.errors import BadInput
from circuitlab.training.corpus import Source, checked_bytes
from circuitlab.training.files import write_whole
from circuitlab.training.recipe import Recipe

FILE = "run.json"
_WORDS = ("title", "notes", "name")  # of a recipe: what changes nothing


def identity(recipe: Recipe, sources: tuple[Source, ...], tokenizer: Path | None) -> dict[str, Any]:
    """What decides a run, plain values for JSON. Reads all text; raises `BadInput` for what is no UTF-8 text."""
    decides = {k: v for k, v in dataclasses.asdict(recipe).items() if k not in _WORDS}
    text = [{"share": round(s.share, 9), "content": _content(s), "name": s.label} for s in sources]
    words = "trained on the text" if tokenizer is None else hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    return json.loads(json.dumps({"recipe": decides, "text": text, "tokenizer": words}))


def _content(source: Source) -> str:
    digest = hashlib.sha256()
    for path in source.files:
        data = checked_bytes(source, path)
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def claim(folder: Path, ours: dict[str, Any]) -> None:
    """Note in `OUT/state` which run it holds. Raises `BadInput` where it holds another one; nothing is then changed."""
    path = folder / FILE
    if path.is_file():
        try:
            theirs = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _refused(f"{FILE} that cannot be read: {error}") from error
        if differs := _differences(theirs, ours):
            raise _refused("; ".join(differs[:6]) + (f" and {len(differs) - 6} more" if len(differs) > 6 else ""))
        return
    if found := sorted(p.name for p in folder.iterdir() if p.suffix in (".pt", ".npz", ".json")):
        raise _refused(f"{', '.join(found[:4])} without {FILE}, of a run that does not say what it is")
    write_whole(path, (json.dumps(ours, indent=1) + "\n").encode())


def _refused(got: str) -> BadInput:
    return BadInput(
        "The folder holds another run.",
        expected="the same recipe, seed, text and tokenizer",
        got=got,
        remedy="Give what it was begun with, or another folder with --out.",
    )


def _differences(theirs: Any, ours: Any) -> list[str]:
    there, here = (_flat(x) for x in (theirs, ours))
    names = [n for n in dict.fromkeys((*there, *here)) if not (n.startswith("text") and n.endswith("name"))]
    label = lambda n: here.get(n.rpartition(".")[0] + ".name", there.get(n.rpartition(".")[0] + ".name", "?"))
    out = []
    for name in names:
        if there.get(name) == here.get(name):
            continue
        if name.endswith(".content"):
            out.append(f"text {label(name)}: other content")
        elif name.endswith(".share") and name.startswith("text"):
            out.append(f"text {label(name)}: share {there.get(name, 'none')} there, {here.get(name, 'none')} now")
        elif name == "tokenizer":
            out.append("another tokenizer")
        else:
            out.append(f"{name.removeprefix('recipe.')} {there.get(name, 'none')} there, {here.get(name, 'none')} now")
    return out


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Leaves of nested tables and of lists of tables, by dotted names."""
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        pairs = list(enumerate(value))
    else:
        return {name: value}
    return {k: v for key, inner in pairs for k, v in _flat(inner, f"{name}.{key}" if name else str(key)).items()}
