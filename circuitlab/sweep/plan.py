"""The cells of a sweep, in the order of its table: what is asked in each, or why it cannot be asked.

    models × steps × conventions × interventions × analyses × parameters (× prompts)

An analysis has a cell for each prompt if it reads the prompt, and one without prompts if it does not; one that reads no
interventions has cells without any. A cell is known by its `key`, the hash of its request and of what of the answer is kept: the
same in every process and under every path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from circuitlab.analysis.behaviour.over_prompts import of_every_prompt, with_prompt
from circuitlab.engine.engine import Engine
from circuitlab.engine.fingerprint import fingerprint
from circuitlab.engine.request import Request, needs
from circuitlab.engine.texts import Texts
from circuitlab.errors import CircuitLabError
from circuitlab.model.intervention import Intervention
from circuitlab.model.prompts import Prompt
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.model.text.reading import Reading
from circuitlab.story.edits_in_model import edits_in_model
from circuitlab.sweep.models import Point, points_of
from circuitlab.sweep.prompts import Given, Prompts, under_bos
from circuitlab.sweep.spec import AnalysisGrid, EditSet, Presented, Spec

KEPT = 1  # goes up when `measures.py` takes other numbers from the same answer: cells of before are then asked again
KEY = 32  # hex digits: 128 bits, so that no two of any number of cells are alike


@dataclass(frozen=True, eq=False)
class Cell:
    """One cell. `request` None: it cannot be asked, and `why` says so. `params`: what was said of its parameters, as text."""

    key: str
    point: Point
    edit: str
    presented: Presented
    grid: AnalysisGrid
    params: tuple[tuple[str, str], ...]
    given: Given | None
    request: Request | None
    why: CircuitLabError | None = None

    @property
    def kind(self) -> tuple[str, ...]:
        """What cells that take about the same time have in common: the model, the analysis and its parameters."""
        dtype = self.presented.conventions.dtype
        return (self.point.name, dtype, self.grid.analysis.name, *(f"{name}={value}" for name, value in self.params))


@dataclass(frozen=True, eq=False)
class Plan:
    """The cells of a sweep in the order of its table."""

    spec: Spec
    points: tuple[Point, ...]
    cells: tuple[Cell, ...]

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that the declaration speaks of, in its order; `seed` is the last."""
        names = dict.fromkeys(name for grid in self.spec.analyses for parameters in grid.texts for name, _ in parameters)
        return tuple(name for name in names if name != "seed") + (("seed",) if "seed" in names else ())

    @cached_property
    def asked(self) -> tuple[Cell, ...]:
        """The cells that can be asked, each question once, in the order in which they are: those that share a forward pass are
        neighbours, and a model is left only when it is done."""
        order = {id(point): i for i, point in enumerate(self.points)}
        subjects: dict[object, int] = {}
        place = lambda cell: subjects.setdefault(cell.request.subject, len(subjects)) if cell.request else 0
        once = {cell.key: cell for cell in self.cells if cell.request is not None}
        return tuple(sorted(once.values(), key=lambda cell: (order[id(cell.point)], place(cell))))


def plan_of(spec: Spec, engine: Engine) -> Plan:
    """Every cell of a sweep. Opens its models one after another, hashes their weights and reads the prompts; computes nothing.

    Raises `BadInput` for prompts or patterns that are not there. A model that cannot be opened has cells that say so.
    """
    prompts = Prompts(spec.prompts, spec.folder)
    points, texts = tuple(points_of(spec, engine)), Texts()
    read: dict[tuple[ModelRef, bool | None], list[Given]] = {}
    cells: list[Cell] = []
    for point in points:
        for presented in spec.presented:
            at = (replace(point.ref, checkpoint=None), presented.bos)
            if at not in read and point.config is not None:  # a step that is not there has none, its final weights may have
                read[at] = prompts.read_by(point.tokenizer, under_bos(point.config, presented.bos))
            cells += _of_point(spec, point, presented, read.get(at, []), engine, texts)
    return Plan(spec, points, tuple(cells))


def _of_point(spec: Spec, point: Point, presented: Presented, read: list[Given], engine: Engine, texts: Texts) -> Iterator[Cell]:
    alike = next(one for one in spec.presented if one.conventions == presented.conventions)  # but for how prompts begin
    for edits in spec.edits:
        for grid in spec.analyses:
            for params, parameters in zip(grid.params, grid.texts, strict=True):
                reads = needs(grid.analysis, params)
                if (reads == "weights" and edits is not spec.edits[0]) or (reads != "tokens" and presented is not alike):
                    continue  # what differs is not read: the same numbers once more
                shown = replace(edits, name="", edits=()) if reads == "weights" else edits
                bare = Cell("", point, shown.name, presented, grid, parameters, None, None)
                for given in read if reads == "tokens" and point.why is None else [None]:
                    yield _keyed(_asked(replace(bare, given=given), shown, params, engine), engine, texts)


def _asked(cell: Cell, edits: EditSet, params: object, engine: Engine) -> Cell:
    """The cell with its request, or with why there is none."""
    if cell.point.why is not None or (cell.given is not None and cell.given.prompt is None):
        return replace(cell, why=cell.point.why or (cell.given and cell.given.why))
    prompt = None if cell.given is None else cell.given.prompt
    tokens = () if prompt is None else prompt.tokens
    try:
        subject = Subject(cell.point.ref, tokens, _made(cell, edits, tokens, engine), cell.presented.conventions)
        if needs(cell.grid.analysis, params) != "tokens":
            of_every_prompt(subject.edits)
        own = params if prompt is None else _of_line(cell, params, prompt)
    except CircuitLabError as error:
        return replace(cell, why=error)
    return replace(cell, request=Request(cell.grid.analysis, own, subject))


def _of_line(cell: Cell, params: object, prompt: Prompt) -> object:
    """The parameters for a prompt: of a line of a set with its answers as the target and at its last position, unless these are
    among what is declared.
    """
    if cell.given is None or not cell.given.of_set:
        return params
    return replace(with_prompt(params, prompt), **{name: getattr(params, name) for name, _ in cell.params})


def _made(cell: Cell, edits: EditSet, tokens: tuple[int, ...], engine: Engine) -> tuple[Intervention, ...]:
    """The interventions, on a prompt; the model is opened for those that are words. Raises `BadInput`."""
    plain = tuple(one for one in edits.edits if isinstance(one, Intervention))
    if len(plain) == len(edits.edits):
        return plain
    model = engine.store.open(cell.point.ref)
    bos = cell.presented.bos if cell.presented.bos is not None else model.opened.weights.config.prepend_bos
    special = cell.given is not None and cell.given.special  # another prompt's text is read as that of the cell is
    return edits_in_model(edits.edits, model, tokens, Reading(bos, special), cell.presented.conventions)


def _keyed(cell: Cell, engine: Engine, texts: Texts) -> Cell:
    kept = [KEPT, list(cell.grid.metrics), cell.grid.arrays]
    if cell.request is not None and cell.point.identity is not None:
        try:
            about = fingerprint(cell.request, cell.point.identity, engine.place(cell.request), texts)
            return replace(cell, key=_hash([about, kept]))
        except CircuitLabError as error:
            cell = replace(cell, request=None, why=error)
    given = None if cell.given is None else [cell.given.source, cell.given.number, cell.given.text]
    at = [cell.point.ref.source, cell.point.step, cell.edit, str(cell.presented), cell.grid.analysis.name, cell.params, given]
    return replace(cell, key=_hash([at, kept]))


def _hash(about: object) -> str:
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:KEY]
