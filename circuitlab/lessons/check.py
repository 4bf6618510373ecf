"""Checking a lesson without opening a model: whether every name in it exists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import get_args

from circuitlab.analysis.attention.score_definitions import SCORES
from circuitlab.analysis.base import find_analysis
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.paths import resource
from circuitlab.engine.codec import params_of
from circuitlab.engine.store import reference
from circuitlab.errors import BadInput, CircuitLabError, NotFetched
from circuitlab.lessons.lesson import Lesson, read
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.state.state import Selection, State
from circuitlab.story.setup import BEST, FINAL, Other, Setup, Views
from circuitlab.story.story import Step
from circuitlab.story.text import LINK, PLACE, links
from circuitlab.story.values import READ, WORDS, Value, live_controls

_ANY = ModelRef("builtin:any")
DOCKS = ("prompt", "interventions", "jobs", "log")  # docks that are no panels but can be shown


def check(path: Path, views: Views, arrangements: Collection[str], docks: Collection[str] = DOCKS) -> tuple[str, ...]:
    """The faults of the lesson in a file, one line each; () for none. Raises nothing."""
    try:
        lesson = read(path)
    except BadInput as error:
        return (f"{error.what} expected: {error.expected}; got: {error.got}",)
    missing = [name for name in ("title", "about", "minutes") if not getattr(lesson, name)] if _is_shipped(path) else []
    faults = [f"{path.name}, line 1: no {name}; every shipped lesson has one" for name in missing]
    for number, step in enumerate(lesson.steps):
        faults += [
            f"{path.name}, line {step.line}, ‘{step.title}’: {fault}" for fault in _step(lesson, number, step, views, docks)
        ]
        if step.setup is not None and step.setup.arrange not in ("", *arrangements):
            faults.append(
                f"{path.name}, line {step.line}: no arrangement {step.setup.arrange!r}; there are {', '.join(arrangements)}"
            )
    if lesson.setup(len(lesson.steps) - 1).model is None:
        faults.append(f"{path.name}: no step says which model")
    return tuple(faults)


def _reference(name: str) -> ModelRef:
    """What a name opens; what would be fetched first is any model. Raises `CircuitLabError` for a name of none."""
    try:
        return reference(name)
    except NotFetched:
        return _ANY


def _is_shipped(path: Path) -> bool:
    return path.resolve().parent == resource("lessons").resolve()


def _step(lesson: Lesson, number: int, step: Step, views: Views, docks: Collection[str]) -> Iterable[str]:
    setup = step.setup or Setup()
    for name in setup.show:
        if name not in views and name not in docks:
            yield f"no panel {name!r}; there are {' '.join((*views, *docks))}"
    for name, controls in setup.view.items():
        if (kind := views.get(name)) is None:
            yield f"no panel {name!r} for [view.{name}]"
        else:
            yield from _faults_of(lambda k=kind, c=controls: params_of(k, _with_any_head(k, c)), f"view.{name}")
    others = [v.other.words for v in step.values if v.other is not None]
    others += [pin.words for pin in setup.pin or () if isinstance(pin, Other)]
    for model in (setup.model, *(o.model for o in others)):
        if model is not None:
            yield from _faults_of(lambda model=model: _reference(model), f"model {model!r}")
    cuts = [text for o in others for text in o.cut or ()]
    for text in (*(setup.heads or ()), *(setup.cut or ()), *(setup.edge or ()), *cuts):
        if text.startswith(BEST) and text.removeprefix(BEST).removeprefix(f"{FINAL} ").strip() not in SCORES:
            yield f"no score {text.removeprefix(BEST)!r}; there are {' '.join(SCORES)}"
    if lesson.setup(number).model is None and step.setup is not None:
        yield "no model yet"
    yield from _values(lesson.setup(number), step)
    yield from _text(step)


def _with_any_head(kind: type[object], controls: Mapping[str, object]) -> JsonDict:
    return live_controls(kind, controls, lambda score: Head(0, 0))


def _values(setup: Setup, step: Step) -> Iterable[str]:
    names = {v.name for v in step.values}
    for value in step.values:
        yield from (f"values.{value.name}: {fault}" for fault in _value(value, setup))
        if value.minus and (value.minus not in names or value.minus == value.name):
            yield f"values.{value.name}: minus = {value.minus!r} names no other value of this step"
        if value.pinned and not setup.pin and not setup.cut and not setup.edits:
            yield f"values.{value.name}: on = pin, but nothing is pinned"
        if f"{{{value.name}}}" not in step.text and not any(v.minus == value.name for v in step.values):
            yield f"values.{value.name} is not used: no {{{value.name}}} in the text"


def _value(value: Value, setup: Setup) -> Iterable[str]:
    try:
        analysis = find_analysis(value.analysis)
    except CircuitLabError as error:
        yield f"{error.what} {value.analysis!r}; there are {error.expected}"
        return
    model = _reference(setup.model) if setup.model else _ANY
    stand_in = State(model, selection=Selection((Head(0, 0),), 0, 0, token=0, target=Target((0,))))
    yield from _faults_of(lambda: value.request_params(stand_in, lambda score: Head(0, 0)), "set")
    match = READ.fullmatch(value.read)
    name = match[2] if match else ""
    readable = {f.name for f in fields(analysis.result)} | {n for n in dir(analysis.result) if not n.startswith("_")}
    readable |= {str(n) for f in fields(analysis.result) if f.name == "names" and isinstance(f.default, tuple) for n in f.default}
    if name not in readable:
        yield f"{value.analysis} has no {name!r} to read; there are {' '.join(sorted(f.name for f in fields(analysis.result)))}"


def _text(step: Step) -> Iterable[str]:
    names = {*WORDS, *(v.name for v in step.values)}
    for name in PLACE.findall(step.text):
        if name not in names:
            yield f"{{{name}}} is no value of this step; there are {' '.join(sorted(names))}"
    for kind, where in links(step.text):
        if kind not in (*get_args(LINK), "http", "https"):
            yield f"a link to {kind}:{where}; there are panel: head: checkpoint: lesson: https:"


def _faults_of(work: Callable[[], object], what: str) -> tuple[str, ...]:
    """The error that `work()` raises, after `what` it is about; () for none."""
    try:
        work()
    except CircuitLabError as error:
        return (f"{what}: {error.what} expected: {error.expected}; got: {error.got}",)
    return ()
