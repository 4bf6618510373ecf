"""What a sweep asks, as declared in a TOML file: the axes of its grid. Nothing is opened here.

    title = "Copying along a training"
    seeds = [0, 1]                          # for analyses that draw at random
    plain = true                            # the unmodified model, too, where there are edits
    arrays = false                          # true: all arrays of every cell, not only the numbers in the table

    [models]
    open = ["attn-only-2l", "runs/*/model"] # names, folders, patterns of folders
    steps = ["final", 1000, "2000..5000"]   # or "all": every checkpoint, and the final weights

    [[prompts]]                             # any number of these
    set = "literal_copying"                 # a shipped prompt set, or a file of that form
    # file = "novel.txt"                    # or a text, split = "lines", "paragraphs" or "tokens:128"
    # texts = ["one two one", "a b a"]      # or the prompts themselves
    most = 50                               # at most so many of them

    [[analyses]]
    name = "token_loss"
    set.heads = "L1H3"                      # parameters, as `circuitlab compute --set` has them
    over.k = [5, 10]                        # alternatives: a cell each
    metrics = ["loss"]                      # numbers of the result in the table (default: what it gives for a prompt)

    [[edits]]
    name = "no L0H2"
    cut = ["L0H2"]                          # heads whose output is 0
    edit = ["scale z L1H1 by 0.5"]          # any intervention, as `--edit` has it (`circuitlab/state/edit_syntax.py`)

    [conventions]                           # one value each, or a list of alternatives
    dtype = ["float32", "float64"]
    raw = false                             # true: neither are norms folded nor weights centred
    bos = "model"                           # true, false: whether BOS begins a prompt; "model": as it was trained

Paths are relative to the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from circuitlab.analysis.base import AnyAnalysis, TextRef, find_analysis
from circuitlab.disk.files import read_at_most
from circuitlab.disk.toml_reading import toml_of
from circuitlab.engine.codec import params_of, parse
from circuitlab.engine.request import needs, with_files
from circuitlab.errors import BadInput, CircuitLabError, advising, cause, quoted
from circuitlab.model.intervention import Intervention
from circuitlab.model.origin import Constructed, Hub, origin_of
from circuitlab.model.subject import Conventions, Head
from circuitlab.state.cuts import ablation
from circuitlab.state.edit_syntax import EditText, read_edits

LONGEST = 16 << 20  # bytes of a declaration
FINAL, ALL = "final", "all"
_REMEDY = "Correct the declaration: README, Sweeps, shows each of its keys."
_RANGE = re.compile(r"(\d{1,15})\.\.(\d{1,15})")
_SPLIT = re.compile(r"lines|paragraphs|tokens:([1-9]\d{0,8})")
Step = str | int | tuple[int, int]  # FINAL, ALL, a step, or first and last
T = TypeVar("T")


@dataclass(frozen=True)
class PromptSource:
    """One [[prompts]]: where prompts come from. Exactly one of `set`, `file` and `texts` is given; `most`: 0 for all.

    `special`: spellings of special tokens in `texts` are read as these tokens; those of files are letters.
    """

    name: str
    set: str = ""
    file: str = ""
    texts: tuple[str, ...] = ()
    split: str = "lines"
    most: int = 0
    special: bool = False


@dataclass(frozen=True)
class AnalysisGrid:
    """One [[analyses]]: an analysis with all combinations of its parameters, each with its parameters as text."""

    analysis: AnyAnalysis
    params: tuple[Any, ...]
    texts: tuple[tuple[tuple[str, str], ...], ...]  # of each combination: (parameter, value as text)
    metrics: tuple[str, ...] = ()
    arrays: bool = False


@dataclass(frozen=True)
class EditSet:
    """One [[edits]]: interventions under a name; "" and none for the unmodified model."""

    name: str = ""
    edits: tuple[Intervention | EditText, ...] = ()


@dataclass(frozen=True)
class Presented:
    """One combination of [conventions]; `bos` None: as the model was trained."""

    conventions: Conventions = Conventions()
    bos: bool | None = None

    @property
    def raw(self) -> bool:
        """Whether weights are as they are stored."""
        return not self.conventions.fold_norm


@dataclass(frozen=True)
class Spec:
    """A sweep as declared. `folder`: that its paths are relative to; `text`: the declaration as it was read."""

    title: str
    models: tuple[str, ...]
    steps: tuple[Step, ...]
    prompts: tuple[PromptSource, ...]
    analyses: tuple[AnalysisGrid, ...]
    edits: tuple[EditSet, ...]
    presented: tuple[Presented, ...]
    folder: Path
    text: str = ""


def is_pattern(name: str) -> bool:
    """Whether the name of a model is a pattern of several paths."""
    return any(sign in name for sign in "*?[") and not isinstance(origin_of(name), (Constructed, Hub))


def read_spec(path: Path) -> Spec:
    """The sweep that a TOML file declares. Raises `BadInput` with the line where a key is not known."""
    try:
        data = read_at_most(path, LONGEST)
        if data is None:
            raise ValueError(f"more than {LONGEST >> 20} MiB")
        text = data.decode("utf-8-sig")
        parsed = toml_of(text)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path.name} declares no sweep.", expected="a TOML file", got=cause(error), remedy=_REMEDY) from error
    return spec_of(parsed, path.resolve().parent, text, path.name)


def spec_of(data: Mapping[str, object], folder: Path, text: str = "", name: str = "sweep") -> Spec:
    """The sweep that these values declare, as read from TOML. Raises `BadInput`, `UsageError`."""
    with advising(_REMEDY):
        top = _Table(data, name, text)
        spec = _spec(top, folder, text)
        _refuse_contradictions(spec, name)
    return spec


def _spec(top: _Table, folder: Path, text: str) -> Spec:
    models = top.table("models", needed=True)
    opened = models.texts("open", needed=True)
    seeds = top.several("seeds", int, "whole numbers")
    arrays = top.one("arrays", bool, False)
    spec = Spec(
        title=top.one("title", str, ""),
        models=opened,
        steps=tuple(_step(step, models) for step in models.values("steps", [FINAL])),
        prompts=tuple(_prompts(one, i) for i, one in enumerate(top.tables("prompts"))),
        analyses=tuple(_analysis(one, seeds, arrays, folder) for one in top.tables("analyses", needed=True)),
        edits=((EditSet(),) if top.one("plain", bool, True) else ()) + tuple(map(_edits, top.tables("edits"))),
        presented=_presented(top.table("conventions")),
        folder=folder,
        text=text,
    )
    models.done()
    top.done()
    return spec


def _refuse_contradictions(spec: Spec, name: str) -> None:
    named = [*(f"[[prompts]] {one.name}" for one in spec.prompts), *(f"[[edits]] {one.name}" for one in spec.edits)]
    if twice := sorted({one for one in named if named.count(one) > 1}):
        raise BadInput(f"{name} has two of one name.", expected="a name for each", got=", ".join(twice))
    if not spec.edits:
        raise BadInput(f"{name} leaves nothing to ask.", expected="[[edits]], or plain = true", got="plain = false alone")
    reads = [grid.analysis.name for grid in spec.analyses if any(needs(grid.analysis, p) == "tokens" for p in grid.params)]
    if reads and not spec.prompts:
        raise BadInput(f"{name} has no prompts.", expected="[[prompts]]", got=f"{reads[0]}, which reads a prompt")


# -- the parts -----------------------------------------------------------------------------------------------------------------


def _step(value: object, models: _Table) -> Step:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if value in (FINAL, ALL):
        return value
    if isinstance(value, str) and (match := _RANGE.fullmatch(value)) and int(match[1]) <= int(match[2]):
        return int(match[1]), int(match[2])
    raise models.bad("steps", 'a training step, "final", "all" or "1000..5000"', value)


def _prompts(table: _Table, i: int) -> PromptSource:
    kinds = [kind for kind in ("set", "file", "texts") if kind in table.data]
    if len(kinds) != 1:
        raise table.bad("prompts", "one of set, file and texts", " and ".join(kinds) or "none of them")
    split = table.one("split", str, "lines")
    if not _SPLIT.fullmatch(split) or (split != "lines" and kinds != ["file"]):
        raise table.bad("split", "lines, paragraphs or tokens:128, of a file", split)
    source = table.one(kinds[0], str, "") if kinds != ["texts"] else ""
    texts = table.texts("texts") if kinds == ["texts"] else ()
    most = table.one("most", int, 0)
    if most < 0:
        raise table.bad("most", "a number of prompts", most)
    special = table.one("special", bool, False)
    if special and not texts:
        raise table.bad("special", "true beside texts: spellings in files are letters", special)
    own = Path(source).stem if source else f"texts {i + 1}" if i else "texts"
    prompts = PromptSource(table.one("name", str, own), texts=texts, split=split, most=most, special=special)
    table.done()
    return replace(prompts, **{kinds[0]: source}) if source else prompts


def _analysis(table: _Table, seeds: tuple[int, ...], arrays: bool, folder: Path) -> AnalysisGrid:
    analysis = find_analysis(table.one("name", str, None))
    fixed, over = dict(table.one("set", dict, {})), dict(table.one("over", dict, {}))
    if both := sorted(set(fixed) & set(over)):
        raise table.bad(both[0], "in set or in over", "in both")
    for name, values in over.items():
        if not isinstance(values, list) or not values:
            raise table.bad(f"over.{name}", "a list of values", values)
    if seeds and "seed" not in fixed and "seed" not in over and "seed" in analysis.params.__dataclass_fields__:
        over["seed"] = list(seeds)
    combinations = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    absolute = lambda ref: replace(ref, path=str(folder / ref.path)) if isinstance(ref, TextRef) else ref
    params = tuple(with_files(params_of(analysis.params, fixed | one), absolute) for one in combinations)
    parameters = tuple(tuple((name, _as_text(value)) for name, value in (fixed | one).items()) for one in combinations)
    grid = AnalysisGrid(analysis, params, parameters, table.texts("metrics"), table.one("arrays", bool, arrays))
    table.done()
    return grid


def _as_text(value: object) -> str:
    """A parameter as text for the table."""
    if isinstance(value, list):
        return ",".join(map(_as_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _edits(table: _Table) -> EditSet:
    heads = [head for text in table.texts("cut") for head in parse(tuple[Head, ...], text, "cut")]
    written = [edit for text in table.texts("edit") for edit in read_edits(text)]
    if not heads and not written:
        raise table.bad("edits", "cut or edit", "neither")
    name = table.one("name", str, "; ".join([*(["no " + " ".join(map(str, heads))] if heads else []), *map(str, written)]))
    table.done()
    if not name.strip():
        raise table.bad("name", "a name", name)
    return EditSet(name, (*map(ablation, heads), *written))


def _presented(table: _Table) -> tuple[Presented, ...]:
    dtypes, raws, bos = table.values("dtype", ["float32"]), table.values("raw", [False]), table.values("bos", ["model"])
    known: dict[str, tuple[list[object], tuple[object, ...]]] = {
        "dtype": (dtypes, ("float32", "float64")),
        "raw": (raws, (False, True)),
        "bos": (bos, ("model", True, False)),
    }
    for key, (values, choices) in known.items():
        for value in values:
            if not any(value is choice or (value == choice and type(value) is type(choice)) for choice in choices):
                raise table.bad(key, " or ".join(map(_as_text, choices)), value)
    table.done()
    of = lambda dtype, raw, first: Presented(Conventions(not raw, not raw, dtype), None if first == "model" else first)
    return tuple(of(*one) for one in product(dtypes, raws, bos))


# -- reading a table strictly --------------------------------------------------------------------------------------------------


class _Table:
    """A table of TOML whose keys are taken one by one; `done` refuses what nobody took."""

    def __init__(self, data: object, where: str, text: str) -> None:
        self.where, self.text, self._taken = where, text, set[str]()
        if not isinstance(data, Mapping):
            raise BadInput(f"{where} is not a table.", expected="keys with values", got=quoted(data))
        self.data = data

    def bad(self, key: str, expected: str, got: object) -> CircuitLabError:
        """The error for a value that cannot be."""
        where, words = self.where, got if isinstance(got, str) else quoted(got)
        return BadInput(f"{where}: {key} cannot have this value{self._line(key)}.", expected=expected, got=words)

    def one(self, key: str, kind: type[T], default: T | None) -> T:
        """The value of a key, `default` without one; default None: it is needed. Raises `BadInput`."""
        self._taken.add(key)
        where, value = self.where, self.data.get(key, default)
        if value is None:
            raise BadInput(f"{where} lacks {key}.", expected=f"{key} = …", got=" ".join(self.data) or "nothing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.bad(
                key, {"str": "a text", "bool": "true or false", "int": "a whole number"}.get(kind.__name__, "keys"), value
            )
        return value

    def values(self, key: str, default: list[object]) -> list[Any]:
        """The elements of a list, or a value by itself as one."""
        self._taken.add(key)
        value = self.data.get(key, default)
        if value == []:
            raise self.bad(key, "at least one value", "none")
        return list(value) if isinstance(value, list) else [value]

    def several(self, key: str, kind: type[T], words: str) -> tuple[T, ...]:
        """A list of values of one kind, () without the key."""
        if key not in self.data:
            self._taken.add(key)
            return ()
        values = self.values(key, [])
        of_kind = tuple(value for value in values if isinstance(value, kind) and not isinstance(value, bool))
        if len(of_kind) < len(values):
            raise self.bad(key, words, values)
        return of_kind

    def texts(self, key: str, needed: bool = False) -> tuple[str, ...]:
        """A list of texts."""
        if needed:
            self.one(key, object, None)
        return self.several(key, str, "texts")

    def table(self, key: str, needed: bool = False) -> _Table:
        """A table inside this one; an empty one where it is not needed and not there."""
        self.one(key, object, None if needed else {})
        return _Table(self.data.get(key, {}), f"{self.where}: [{key}]", self.text)

    def tables(self, key: str, needed: bool = False) -> list[_Table]:
        """A list of tables inside this one."""
        values = self.one(key, object, None if needed else [])
        if not isinstance(values, list) or (needed and not values):
            raise self.bad(key, f"[[{key}]]", values)
        return [_Table(value, f"{self.where}: [[{key}]]", self.text) for value in values]

    def done(self) -> None:
        """Raise `BadInput` for the first key that nobody took."""
        where = self.where
        if unknown := [key for key in self.data if key not in self._taken]:
            raise BadInput(
                f"{where} has a key that is not known{self._line(unknown[0])}.",
                expected=" ".join(sorted(self._taken)),
                got=" ".join(unknown),
            )

    def _line(self, key: str) -> str:
        """Where the key stands, if that can be told: TOML's parser keeps no lines."""
        pattern = re.compile(rf"(^|[\s\[{{,.])[\"']?{re.escape(key.rpartition('.')[2])}[\"']?\s*([=.\]])")
        lines = [i for i, line in enumerate(self.text.split("\n"), 1) if pattern.search(line.partition("#")[0])]
        return f" (line {lines[0]})" if len(lines) == 1 else ""
