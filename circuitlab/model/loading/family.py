"""The contract of a checkpoint family, and `open_model`, through which every model is opened."""

from __future__ import annotations

import importlib
import pkgutil
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from circuitlab.disk.paths import model_dir, shipped_models, typed_path
from circuitlab.errors import BadModel, PluginError, UnknownFamily, advising
from circuitlab.model.files.tensors import CachedTensors
from circuitlab.model.files.whole_file import shown
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.assumptions import YOUR_CHOICE, Assumption
from circuitlab.model.loading.character_vocabulary import character_tokenizer
from circuitlab.model.loading.checkpoint import Checkpoint, look, read_json
from circuitlab.model.loading.listed import listed
from circuitlab.model.loading.llama2c_tokenizer import read_tokenizer
from circuitlab.model.loading.refusals import LACKING, Lacking, refuse_parts
from circuitlab.model.loading.tokenizer_files import find_tokenizer, fitted
from circuitlab.model.records.series import series_of
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import Weights
from circuitlab.plugins import Addition, Plugin, declared, guarded, load

# tensors copied into memory: all of them at once; each when it is first used; none
Keep = Literal["resident", "lazy", "mapped"]
_REMEDY = "Correct the file, or fetch it again if it is damaged; otherwise open another model of this family."
_CHARACTERS = "characters"  # the tokenizer of a vocabulary that was saved with the weights


@dataclass(frozen=True)
class Opened:
    """An opened model. `notes`: what was assumed or left unused; the model's hash is computed over `files`.

    `assumptions` are values that no file states and a person may correct. `steps`: the training steps of its checkpoint series.
    `plugin`: the plug-in whose family read it; None for one of CircuitLab's own.
    """

    weights: Weights
    notes: tuple[str, ...]
    files: tuple[Path, ...]
    card: str = ""
    family: str = ""
    assumptions: tuple[Assumption, ...] = ()
    steps: tuple[int, ...] = ()
    plugin: Plugin | None = None


@dataclass(frozen=True)
class Family:
    """A checkpoint family. `claims` looks at the checkpoint and never raises; `load` raises `BadModel`.

    `title`: the architecture's name; of what is no Hugging Face folder "a …" or "the …".
    `first`: tried before all others, for formats recognised by their bytes, whatever configuration lies beside them.
    `last`: tried after all others, for families that accept files which say little about themselves.
    `plugin`: the plug-in that adds it; None for one of CircuitLab's own.
    """

    name: str
    title: str
    claims: Callable[[Checkpoint], bool]
    load: Callable[[Checkpoint, Keep], Opened]
    last: bool = False
    first: bool = False
    plugin: Plugin | None = None


def families() -> tuple[Family, ...]:
    """Every family of this package, and of plug-ins, which this imports; one that fails is left out (`plugins.failures`)."""
    result = [family for module in _modules() if (family := _family_in(module)) is not None]
    for addition in declared("families"):
        with suppress(PluginError):
            result.append(_plugged(addition))
    return tuple(sorted(result, key=lambda family: family.last - family.first))


def _plugged(addition: Addition) -> Family:
    """The family of a plug-in. Raises `PluginError`."""
    result, plugin = load(addition), addition.plugin
    family = result if isinstance(result, Family) else getattr(result, "FAMILY", None)
    if not isinstance(family, Family):
        what = f"The plug-in {plugin} has no family {addition.name}, which it declares."
        raise PluginError(what, got=f"{addition.module} without FAMILY = Family(…)", plugin=str(plugin))
    sure = lambda call, kind: guarded(plugin, f"the family {addition.name}", call, kind)
    return replace(family, claims=sure(family.claims, bool), load=sure(family.load, Opened), plugin=plugin)


def _modules() -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])))


def _family_in(module: str) -> Family | None:
    return getattr(importlib.import_module(f"{__package__}.{module}"), "FAMILY", None)


def candidates(checkpoint: Checkpoint) -> Iterator[Family]:
    """Families in the order in which they are tried.

    First those whose module is named as the checkpoint names its architecture ("gemma3" for "gemma3_text"): opening a model
    imports its own family, and the others only where none of these claims it. Families that recognise a format by its bytes are
    tried before these for files without named tensors.
    """
    kind = "circuitlab_dir" if "format" in checkpoint.config else checkpoint.model_type.replace("-", "_").lower()
    likely = [m for m in _modules() if kind.startswith(m)] if checkpoint.tensors is not None else []
    for module in sorted(likely, key=len, reverse=True):
        if (family := _family_in(module)) is not None:
            yield family
    for addition in declared("families") if kind else ():
        if kind.startswith(addition.name):
            yield _plugged(addition)
    yield from families()


def open_model(
    path: Path, keep: Keep = "resident", assume: Mapping[str, str] | None = None, checkpoint: int | None = None
) -> Opened:
    """Open a model's folder or file, or a checkpoint of its series.

    Raises `BadModel`.
    """
    with advising(_REMEDY):
        return _opened(look(path, assume, checkpoint), path, keep)


def _opened(candidate: Checkpoint, path: Path, keep: Keep) -> Opened:
    if keep == "lazy":  # for a family a mapped file, whose tensors stay in memory once read
        candidate, keep = (
            (candidate, "resident")
            if candidate.tensors is None
            else (replace(candidate, tensors=CachedTensors(candidate.tensors)), "mapped")
        )
    for family in candidates(candidate):
        if family.claims(candidate):
            opened = _settled(family.load(candidate, keep), candidate)
            if family.plugin is not None:
                notes = (*opened.notes, f"read by the plug-in {family.plugin}")
                opened = replace(opened, notes=notes, plugin=family.plugin)
            return replace(opened, steps=tuple(step for step, _ in series_of(candidate.folder)) if path.is_dir() else ())
    refuse_parts(path)
    if not candidate.config and path.is_dir():
        read_json(path / "config.json")  # raises: it is missing
    raise unknown_family(candidate)


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer of a checkpoint: its file's own, else the one beside it. Raises `BadModel` for damaged files."""
    if checkpoint.tokenizer is None:
        return find_tokenizer(checkpoint.folder)
    return None if "tokenizer" in checkpoint.assume else checkpoint.tokenizer()


def unknown_family(checkpoint: Checkpoint) -> UnknownFamily:
    """The error for a checkpoint that no family claims: its tensor names, and the command that imports it."""
    kind = checkpoint.model_type or checkpoint.config.get("format") or ""
    lines, n = listed(checkpoint.tensors) if checkpoint.tensors is not None else ((), 0)
    stated = f"model_type {str(kind)[:60]!r}" if kind else "no model_type"
    lacking = LACKING.get(str(kind), Lacking(""))
    return UnknownFamily(
        "The model's family is not one of those that are opened." if lacking.has else "The model's family is unknown.",
        expected="an architecture or a format of those at the end of this text",
        got=f"{stated} in {shown(checkpoint.path)}" + (f": {lacking.has}" if lacking.has else ""),
        remedy=lacking.instead or "Import it with a map of its parameter names, or open another model.",
        known=_titles(),
        tensors=lines,
        n_tensors=n,
        command=f"circuitlab import {shlex.quote(shown(checkpoint.path))} --map map.toml --check" if n else "",
    )


def _titles() -> str:
    """What can be opened: architectures in Hugging Face's format, and other formats."""
    titles = sorted((f.title for f in families()), key=str.lower)
    others = [t for t in titles if t.startswith(("a ", "the "))]
    return f"a Hugging Face folder of {', '.join(t for t in titles if t not in others)}; or {', '.join(others)}"


def _settled(opened: Opened, checkpoint: Checkpoint) -> Opened:
    """The opened model with the tokenizer that the person chose, if any, and notes on where it does not fit the model.

    Raises `BadModel` where the person gave a value for something that is not assumed.
    """
    assumptions, weights, notes = (*checkpoint.assumed, *opened.assumptions), opened.weights, tuple[str, ...]()
    choice = checkpoint.assume.get("tokenizer")
    if isinstance(weights, LazyWeights) and (choice is not None or weights.tokenizer is None):
        assumption, notes = _with_tokenizer(weights, checkpoint, choice)
        assumptions = (*assumptions, assumption)
    names = [a.name for a in assumptions]
    if unknown := sorted(set(checkpoint.assume) - set(names)):
        raise BadModel(
            "There is no assumption of that name.",
            expected=" ".join(names) or "nothing: the files state everything",
            got=" ".join(unknown)[:80],
            remedy="Leave it out; `circuitlab info` lists the assumptions of a model.",
        )
    if isinstance(weights, LazyWeights):
        if checkpoint.dequantised:
            config = replace(weights.config, dequantised=checkpoint.dequantised)
            weights = LazyWeights(config, weights.tokenizer, weights.parts, weights.dtype)
            of_file = "every number is of the file's weights, not of those before they were quantised"
            notes = (*notes, f"weights dequantised from {checkpoint.dequantised}: {of_file}")
        weights, more = fitted(weights, checkpoint.folder)
        notes = (*notes, *more)
    if checkpoint.skipped:
        notes = (*notes, f"beside the weights, not read: {', '.join(checkpoint.skipped)}")
    return replace(opened, weights=weights, notes=(*checkpoint.notes, *opened.notes, *notes), assumptions=assumptions)


def _with_tokenizer(weights: LazyWeights, checkpoint: Checkpoint, choice: str | None) -> tuple[Assumption, tuple[str, ...]]:
    """Give the weights the chosen tokenizer, or that of the characters saved with them. Returns the assumption and notes."""
    characters, origin, note = character_tokenizer(checkpoint.metadata, checkpoint.folder)
    default = _CHARACTERS if characters is not None else "none"
    chosen = choice or default
    if chosen == _CHARACTERS and characters is not None:
        weights.tokenizer = characters
    elif chosen != "none":
        weights.tokenizer = tokenizer_at(chosen)
    else:
        weights.tokenizer = None
    why = YOUR_CHOICE if choice is not None else origin or "there is none beside the weights"
    choices = (_CHARACTERS, "none") if characters is not None else ()
    assumption = Assumption("tokenizer", chosen, choices, f"{why}; a path or a shipped model's name also works", free=True)
    return assumption, (note,) if note and choice is None else ()


def tokenizer_at(name: str) -> Tokenizer | None:
    """The tokenizer of a shipped model, of a folder, or of a file. Raises `BadModel`."""
    path = model_dir(name) if name in shipped_models() else typed_path(name)
    if path.is_dir():
        tokenizer = find_tokenizer(path)
    else:
        tokenizer = read_tokenizer(path) if path.suffix == ".bin" else Tokenizer.from_file(path)
    if tokenizer is None:
        remedy = "Name a tokenizer.json, a folder that has one, or a shipped model."
        raise BadModel("No tokenizer was found.", expected="a tokenizer.json", got=str(path), remedy=remedy)
    return tokenizer
