"""Python code that computes an answer again (“Copy as Python”)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from circuitlab.analysis.base import Result, TextRef
from circuitlab.engine.codec import as_text
from circuitlab.engine.open_model import step_of
from circuitlab.engine.request import Request
from circuitlab.model.catalogue.places import name_of
from circuitlab.model.subject import Conventions, Head, ModelRef
from circuitlab.state.edit_syntax import text_of_edit


def snippet(request: Request[Result]) -> str:
    """Python code that computes the same answer ("Copy as Python"). Raises `BadModel` if the checkpoint no longer exists."""
    return snippet_of({"": request})


def snippet_of(requests: Mapping[str, Request[Result]], compared: Mapping[tuple[str, str], bool] | None = None) -> str:
    """`snippet` of several requests, each under its name in `answers`; a single request named "" becomes `answer`.

    `compared`: for the names of two answers (now, reference), whether their rows can be matched. If they can, the code also
    computes now minus the reference, under now's name in `changes`; if not, a comment says so.
    """
    models = dict.fromkeys(r.subject.model for r in requests.values())
    names = {ref: "model" if len(models) == 1 else f"model_{i}" for i, ref in enumerate(models, 1)}
    subjects = [r.subject for r in requests.values()]
    lines = ["import circuitlab.api as lab"]
    if any(s.conventions != Conventions() for s in subjects):
        lines.append("from circuitlab.model.subject import Conventions")
    lines += ["", *(f"{name} = {_opened(ref)}" for ref, name in names.items())]
    if list(requests) == [""]:
        return "\n".join([*lines, f"answer = {_computed(requests[''], 'model')}", "print(lab.table(answer))"])
    computed = (f"answers[{role!r}] = {_computed(r, names[r.subject.model])}" for role, r in requests.items())
    printed = ("for role, answer in answers.items():", '    print(f"\\n{role}\\n{lab.table(answer)}")')
    return "\n".join([*lines, "answers = {}", *computed, *printed, *_changes(compared or {})])


def _changes(compared: Mapping[tuple[str, str], bool]) -> list[str]:
    """Lines that compute now minus the reference, or a comment on why there is no difference."""
    lines = [
        f"# {now!r}: its rows cannot be matched, so there is no difference"
        for (now, _), matched in compared.items()
        if not matched
    ]
    pairs = [pair for pair, matched in compared.items() if matched]
    if not pairs:
        return lines
    subtracted = (f"changes[{now!r}] = lab.difference(answers[{now!r}], answers[{before!r}])" for now, before in pairs)
    printed = ("for role, change in changes.items():", '    print(f"\\nnow − reference: {role}\\n{lab.table(change)}")')
    return [*lines, "changes = {}", *subtracted, *printed]


def _opened(ref: ModelRef) -> str:
    step, assumed = step_of(ref), f", assume={dict(ref.assume)!r}" if ref.assume else ""
    return f"lab.open({(name_of(ref) or ref.source)!r}{'' if step is None else f', step={step}'}{assumed})"


def _computed(request: Request[Result], model: str) -> str:
    subject, arguments = request.subject, [repr(request.analysis.name), f"tokens={request.subject.tokens!r}"]
    arguments += [f"edits={[str(text_of_edit(edit)) for edit in subject.edits]!r}"] if subject.edits else []
    arguments += [f"conventions={subject.conventions!r}"] if subject.conventions != Conventions() else []
    defaults = {f.name: f.default for f in dataclasses.fields(request.params)}
    values = ((name, getattr(request.params, name)) for name in defaults)
    changed = {name: _literal(value) for name, value in values if value != defaults[name]}
    arguments += [f"set={changed!r}"] if changed else []
    return f"{model}.compute({', '.join(arguments)})"


def _literal(value: object) -> object:
    """The value as a user would type it: heads as "L1H3,L0H2", files by absolute path, plain values unchanged."""
    if isinstance(value, TextRef):
        return str(Path(value.path).absolute())
    if isinstance(value, tuple) and not isinstance(value, Head):
        return as_text(value) if value and all(isinstance(v, Head) for v in value) else tuple(map(_literal, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else as_text(value)
