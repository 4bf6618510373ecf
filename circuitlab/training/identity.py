"""The identity of a run: recipe, seed, text and tokenizer in `OUT/state/run.json`, so that no other run is resumed there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path

from circuitlab.disk.files import writing
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput
from circuitlab.model.records.series import series_of
from circuitlab.training.corpus import Source, checked_bytes
from circuitlab.training.files import write_whole
from circuitlab.training.recipe import Data, Optimiser, Recipe, Stage

FILE = "run.json"
_WORDS = ("title", "notes", "name")  # fields of a recipe that do not affect training
_PARTS = {"data": dataclasses.asdict(Data()), "optimiser": dataclasses.asdict(Optimiser(1))}
_WHOLE = {f.name: f.default for f in dataclasses.fields(Recipe) if f.name == "positions_angles"}
_STAGE = {"stages": {name: getattr(Stage(0, 4, 1), name) for name in ("repeats", "counts")}}  # of every stage
_DEFAULTS: JsonDict = json.loads(json.dumps({"recipe": _PARTS | _WHOLE | _STAGE}))


def identity(recipe: Recipe, sources: tuple[Source, ...], tokenizer: Path | None) -> JsonDict:
    """Everything that determines a run, as plain values for JSON. Reads all text; raises `BadInput` where it is not UTF-8."""
    fields = {k: v for k, v in dataclasses.asdict(recipe).items() if k not in _WORDS}
    text = [{"share": round(s.share, 9), "content": _content(s), "name": s.label} for s in sources]
    origin = "trained on the text" if tokenizer is None else hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    return json.loads(json.dumps({"recipe": fields, "text": text, "tokenizer": origin}))


def _content(source: Source) -> str:
    digest = hashlib.sha256()
    for path in source.files:
        data = checked_bytes(source, path)
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def claim(folder: Path, ours: dict[str, object]) -> None:
    """Record in the locked `OUT/state` which run it holds. Raises `BadInput`, changing nothing, where it holds another one.

    Another run that never started to train is replaced: its tokenizer and tokens are removed.
    """
    if holds(folder, ours):
        return
    with writing(folder):
        for file in (*folder.glob("tokens-*.npz"), folder / "tokenizer.json", folder / FILE):
            file.unlink(missing_ok=True)
    write_whole(folder / FILE, (json.dumps(ours, indent=1) + "\n").encode())


def holds(folder: Path, ours: dict[str, object]) -> bool:
    """Whether `OUT/state` holds this run; False where nothing was trained yet. Raises `BadInput` as `claim` does."""
    path, trained = folder / FILE, _trained(folder)
    if not path.is_file():
        names = trained or sorted(p.name for p in folder.glob("*") if p.suffix in (".npz", ".json"))
        if names:
            raise _refused(f"{', '.join(names[:4])} without {FILE}, of an unknown run")
        return False
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(f"{FILE} that cannot be read: {error}") from error
    differences = _differences(theirs, ours)
    if differences and trained:
        raise _refused("; ".join(differences[:6]) + (f" and {len(differences) - 6} more" if len(differences) > 6 else ""))
    return not differences


def _trained(folder: Path) -> list[str]:
    """Names of the files that training has written: states, and checkpoints of the run."""
    return sorted(p.name for p in (*folder.glob("*.pt"), *(file for _, file in series_of(folder.parent))))


def _refused(got: str) -> BadInput:
    return BadInput(
        "The folder holds another run.",
        expected="the same recipe, seed, text and tokenizer",
        got=got,
        remedy="Use what it was started with, or another folder with --out.",
    )


def _differences(theirs: object, ours: object) -> list[str]:
    stored, current = (_flat(x) for x in (theirs, ours))
    later = _flat(_DEFAULTS)  # a run begun before a key existed lacks it, and does what its default says
    names = [n for n in dict.fromkeys((*stored, *current)) if not (n.startswith("text") and n.endswith("name"))]
    label = lambda n: current.get(n.rpartition(".")[0] + ".name", stored.get(n.rpartition(".")[0] + ".name", "?"))
    differences = []
    for name in names:
        of_any = re.sub(r"\.\d+\.", ".", name)
        if stored.get(name) == current.get(name) or (name not in stored and of_any in later and later[of_any] == current[name]):
            continue
        if name.endswith(".content"):
            differences.append(f"text {label(name)}: other content")
        elif name.endswith(".share") and name.startswith("text"):
            shares = f"share {stored.get(name, 'none')} there, {current.get(name, 'none')} now"
            differences.append(f"text {label(name)}: {shares}")
        elif name == "tokenizer":
            differences.append("another tokenizer")
        else:
            values = f"{stored.get(name, 'none')} there, {current.get(name, 'none')} now"
            differences.append(f"{name.removeprefix('recipe.')} {values}")
    return differences


def _flat(value: object, name: str = "") -> JsonDict:
    """Dotted name -> leaf, of nested tables and of lists of tables."""
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        pairs = list(enumerate(value))
    else:
        return {name: value}
    return {k: v for key, inner in pairs for k, v in _flat(inner, f"{name}.{key}" if name else str(key)).items()}
