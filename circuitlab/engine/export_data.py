"""Answers as CSV, NPZ and JSON files, each with request, conventions, remainder and provenance, model and training step, prompt
and text of each token, axes and units.

Values that were not computed or do not exist are null in JSON, empty in CSV and NaN in NPZ. Integers have no NaN: NPZ has −1, and
for each array that can lack values a bool array of the same shape, true where one is missing; `missing` in `about` names it:
`{"rank": "rank.missing"}`.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from circuitlab.analysis.base import Column, Result, Table, TextRef
from circuitlab.disk.files import write_whole
from circuitlab.disk.formats import DATA, suffixes
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.paths import without_folders
from circuitlab.engine.codec import to_json
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, TableOf, with_files
from circuitlab.errors import UsageError
from circuitlab.model.subject import ModelRef, Subject

WEIGHTS_UNKNOWN = "sha256 of the weights not known"  # not read yet, or the files are others now
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the date of all files in a zip, so that equal answers give equal bytes


@dataclass(frozen=True, eq=False)
class AnswerExport:
    """An answer with data from its open model.

    `step`: training steps done (None if no file states it); `display`: the text of a token (None without a tokenizer); `prompt`:
    the text of all tokens. `drawn`: the table of what a figure shows of the answer, None for its own. `folders`: whether it says
    in which folders its model and its files lie, as who exports it asked for.
    """

    answer: Answer
    step: int | None = None
    prompt: str = ""
    display: Callable[[int], str] | None = None
    drawn: TableOf | None = None
    folders: bool = False

    @property
    def final(self) -> bool:
        """Whether these are the model's final weights."""
        return self.answer.request.subject.model.checkpoint is None

    @property
    def tokens(self) -> list[str] | None:
        """The text of each token of the prompt."""
        return None if self.display is None else list(map(self.display, self.answer.request.subject.tokens))

    def table(self, beside: Result | None = None) -> Table:
        """The answer's table, with the text of tokens beside their ids and positions; `beside`: as in `Result.table_beside`."""
        result, table = self.answer.result, None if self.drawn is None else self.drawn(self.answer)
        if table is None:
            table = result.table() if beside is None else result.table_beside(beside)
        return with_tokens(table, self.answer.request.subject.tokens, self.display)

    def data(self, form: str) -> bytes:
        """As a file: csv, npz or json."""
        return data_bytes(self, form)


class Exported(Protocol):
    """Anything that can be written to a file: an answer, or two in one table."""

    def data(self, form: str) -> bytes:
        """As csv, npz or json."""
        ...


def export_of(
    engine: Engine, answer: Answer, identified: bool = True, drawn: TableOf | None = None, folders: bool = False
) -> AnswerExport:
    """An answer with everything that a file states besides its numbers. `identified`: including the hash of the weights;
    `drawn`, `folders`: as of an `AnswerExport`.
    """
    answer = engine.identified(answer) if identified else answer
    subject = answer.request.subject
    model = engine.store.open(subject.model)
    tokenizer = model.opened.weights.tokenizer
    prompt = "" if tokenizer is None else tokenizer.told(subject.tokens)
    return AnswerExport(answer, model.steps_trained, prompt, None if tokenizer is None else tokenizer.display, drawn, folders)


def with_tokens(table: Table, tokens: tuple[int, ...], display: Callable[[int], str] | None) -> Table:
    """The table with a column of text after each column of token ids or of positions of the prompt."""
    if display is None:
        return table
    text = lambda i: display(i) if i >= 0 else ""
    texts: dict[str, Callable[[Any], str]] = {
        "token": text,
        "position": lambda i: text(tokens[i]) if i >= 0 else "",
        "tokens": lambda ids: " ".join(text(int(i)) for i in ids.split()),
    }
    columns: list[Column] = []
    for column in table.columns:
        columns.append(column)
        if column.of in texts:
            name = "token" if column.name == "id" else f"{column.name} token{'s' if column.of == 'tokens' else ''}"
            columns.append(Column(name, np.array([texts[column.of](v) for v in column.values.tolist()], dtype=object)))
    return replace(table, columns=tuple(columns))


def described(what: AnswerExport) -> JsonDict:
    """Everything about an answer except its arrays, as plain values.

    Models and files have their names and hashes, and no folder but where it was asked for.
    """
    answer, result = what.answer, what.answer.result
    request, subject = answer.request, replace(answer.request.subject, edits=answer.request.edits)
    return {
        "analysis": answer.request.analysis.name,
        "params": to_json(request.params if what.folders else _placeless(request.params)),
        "subject": to_json(subject if what.folders else _without_place(subject)),
        "model": answer.request.subject.model.named(1),
        "step": what.step,
        "final": what.final,
        "prompt": what.prompt,
        "tokens": what.tokens,
        "conventions": list(result.conventions),
        "remainder": None if result.remainder is None else to_json(result.remainder),
        "complete": answer.complete,
        "done": result.done,
        "axes": {name: list(result.axes_of(name)) for name in result.arrays()},
        "units": {name: to_json(unit) for name in _numbers(result) if (unit := result.unit_of(name))},
        "provenance": to_json(answer.provenance),
        **({} if answer.provenance.weights else {"weights": WEIGHTS_UNKNOWN}),
    }


def _without_place(subject: Subject) -> Subject:
    return replace(subject, model=replace(subject.model, source=_named(subject.model.source)))


def _named(source: str) -> str:
    """The source of a model, of a file its name alone: what is exported is given to others."""
    return f"file:{ModelRef(source).named(1)}" if source.startswith("file:") else source


def _placeless(params: object) -> Any:
    """Parameters whose files have their names and hashes alone; also inside those of another analysis, which are JSON text."""
    files = with_files(
        params,
        lambda ref: (
            replace(ref, path=without_folders(ref.path)) if isinstance(ref, TextRef) else replace(ref, source=_named(ref.source))
        ),
    )
    texts = {f.name: value for f in dataclasses.fields(files) if f.init and isinstance(value := getattr(files, f.name), str)}
    inner = {name: new for name, text in texts.items() if (new := _placeless_json(text)) != text}
    return replace(files, **inner) if inner else files


def _placeless_json(text: str) -> str:
    """A JSON text whose files (an object with `sha256`) have no folders; any other text as it is."""
    if '"sha256"' not in text:
        return text

    def named(one: dict[str, object]) -> JsonDict:
        if "sha256" not in one:
            return one
        changes = {"path": without_folders, "source": _named}
        return {k: changes[k](v) if k in changes and isinstance(v, str) else v for k, v in one.items()}

    try:
        return json.dumps(json.loads(text, object_hook=named))
    except (ValueError, RecursionError):
        return text


def _numbers(result: Result) -> list[str]:
    return [f.name for f in dataclasses.fields(result) if isinstance(getattr(result, f.name), (np.ndarray, float, int))]


def scalars(answer: Answer) -> JsonDict:
    """The result's own fields that are not arrays."""
    shared = {"conventions", "remainder", "done"}
    fields = (f.name for f in dataclasses.fields(answer.result) if f.name not in shared)
    values = {n: getattr(answer.result, n) for n in fields}
    none = lambda n, v: answer.result.has_none(n) and v < 0
    return {n: None if none(n, v) else to_json(v) for n, v in values.items() if not isinstance(v, np.ndarray)}


def missing(result: Result) -> dict[str, np.ndarray]:
    """For each array of integers that can lack values, a bool array: true where a value is missing."""
    return {f"{name}.missing": array < 0 for name, array in result.arrays().items() if result.has_none(name)}


def table_text(table: Table, separator: str = ",") -> str:
    """A table as separated text with a header line; missing values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator="\n")
    writer.writerow([c.title for c in table.columns])
    for row in zip(*(c.cells() for c in table.columns), strict=True):
        writer.writerow(["" if v is None else v for v in row])
    return out.getvalue()


def json_text(what: AnswerExport) -> str:
    """Description, scalars and arrays as JSON; NaN is null, a complex number [real, imaginary]."""
    result = what.answer.result
    arrays = {name: _plain(_or_none(a) if result.has_none(name) else a.tolist()) for name, a in result.arrays().items()}
    return json.dumps({**described(what), "result": {**_plain(scalars(what.answer)), **arrays}}, ensure_ascii=False)


def _or_none(array: np.ndarray) -> object:
    values = array.astype(object)
    values[array < 0] = None
    return values.tolist()


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(what: AnswerExport) -> str:
    """The table, after lines `# name: value` that describe it."""
    head = "".join(f"# {k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in described(what).items())
    return head + table_text(what.table())


def npz_bytes(what: AnswerExport, **more: object) -> bytes:
    """The arrays under their field names, and everything else as JSON text in `about`; for missing values see the module.

    `more`: further entries of `about`.
    """
    result = what.answer.result
    lacking = missing(result)
    about = {**described(what), "missing": masks(lacking), "scalars": _plain(scalars(what.answer)), **more}
    arrays: dict[str, Any] = {**result.arrays(), **lacking, "about": np.array(json.dumps(about, ensure_ascii=False))}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def masks(lacking: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The mask arrays, by the name of the array whose missing entries they mark."""
    return {name.removesuffix(".missing"): name for name in lacking}


def data_bytes(what: AnswerExport, form: str) -> bytes:
    """The answer in a data format (`formats.DATA`), by its name. Raises `UsageError` for any other."""
    if form not in _WRITERS:
        raise UsageError(
            "That is not a data format.",
            expected=" ".join(suffixes(DATA)),
            got=form or "no suffix",
            remedy="Choose a name with one of these suffixes.",
        )
    return _WRITERS[form](what)


_WRITERS: dict[str, Callable[[AnswerExport], bytes]] = {
    "csv": lambda what: csv_text(what).encode("utf-8"),
    "npz": npz_bytes,
    "json": lambda what: (json_text(what) + "\n").encode("utf-8"),
}


def several_bytes(answers: Mapping[str, Exported], form: str) -> bytes:
    """One answer as a file of format `form`; several as a zip with one file each, by name."""
    if len(answers) == 1:
        return next(iter(answers.values())).data(form)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, what in answers.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.{form}", _EPOCH), what.data(form), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def write_answers(answers: Mapping[str, Exported], path: Path) -> Path:
    """Write in the format of the suffix and return the path; several answers go into a zip, `a.csv.zip`.

    Raises `UsageError` for an unknown suffix or if that zip exists already, `BadMachine` if it cannot be written. On failure an
    existing file is unchanged.
    """
    plain = path.with_suffix("") if path.suffix.lower() == ".zip" else path
    data = several_bytes(answers, plain.suffix.lower().removeprefix("."))
    target = plain if len(answers) == 1 else plain.with_name(plain.name + ".zip")
    if target != path and target.exists():  # the user was not asked about overwriting this one
        raise UsageError(
            "A file of that name exists already.", expected="an unused name", got=str(target), remedy="Choose another name."
        )
    write_whole(target, data, named=target == path)
    return target
