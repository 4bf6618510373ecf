"""The numbers of a sheet in one zip: of every part every answer, now and of the reference, and their difference."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from circuitlab import __version__
from circuitlab.caption_parts import Reference
from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.engine.engine import Engine, versions
from circuitlab.engine.export_data import AnswerExport, described
from circuitlab.engine.export_difference import Difference, exports_of
from circuitlab.report.answer_names import file_name, models_by_role
from circuitlab.report.own_tables import own_files
from circuitlab.report.render import Sides
from circuitlab.report.sheet_caption import MADE, SheetCaption
from circuitlab.report.sheet_cell import SheetCell
from circuitlab.state.cuts import edit_words

MANIFEST = "sheet.json"
FORMS = ("npz", "csv")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the date of all files, so that equal answers give equal bytes


@dataclass(frozen=True, eq=False)
class Numbers:
    """`files`: of each part a folder with each answer as NPZ and CSV; `parts`: what they are, as plain values."""

    files: Mapping[str, bytes]
    parts: list[JsonDict]


def numbers_of(engine: Engine, cells: Sequence[SheetCell]) -> Numbers:
    """The answers of the parts of a sheet as files. Raises `BadModel` where a model is gone. On any thread."""
    files: dict[str, bytes] = {}
    parts: list[JsonDict] = []
    for cell in cells:
        folder = f"{cell.letter}-{cell.panel}" if cell.letter else cell.panel
        exports = exports_of(engine, _timeless(cell.answers), identified=True, drawn=cell.drawn)
        entries: list[JsonDict] = []
        among = models_by_role(cell.answers)
        for name, what in exports.items():
            stem = _file_name(name, among)
            names = {form: f"{folder}/{stem}.{form}" for form in FORMS}
            files |= {file: what.data(form) for form, file in names.items()}
            entries.append({"files": list(names.values()), **_about(name, what)})
        own = {f"{folder}/{name}": content for name, content in own_files(cell.figure).items()}
        files |= own
        entries += [{"files": [name], "side": "as drawn"} for name in own]
        parts.append({"letter": cell.letter, "panel": cell.panel, "title": cell.title, **_reference(cell), "answers": entries})
    return Numbers(files, parts)


def zipped(numbers: Numbers, caption: SheetCaption, beside: Mapping[str, bytes]) -> bytes:
    """One zip of the numbers, the files `beside`, a list of all, and what it is."""
    manifest = {
        "circuitlab": "sheet",
        "version": 1,
        "title": caption.title,
        "versions": dict(versions()),
        "models": caption.models(),
        "parts": numbers.parts,
    }
    text = json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"
    whole = {"README.txt": _readme(caption).encode("utf-8"), MANIFEST: text.encode("utf-8"), **beside, **numbers.files}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in whole.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _timeless(answers: Sides) -> Sides:
    """The answers without how long they took, which is no result: the same sheet gives the same files."""
    timeless = lambda answer: replace(answer, provenance=replace(answer.provenance, seconds=0.0))
    return {side: {role: timeless(answer) for role, answer in roles.items()} for side, roles in answers.items()}


def _reference(cell: SheetCell) -> dict[str, str]:
    """What the figure says of its reference, where it shows a comparison."""
    words = [part.sense.brief for part in cell.figure.caption_parts if isinstance(part, Reference)]
    return {"reference": words[0]} if words else {}


def _about(name: str, what: AnswerExport | Difference) -> dict[str, object]:
    if isinstance(what, Difference):
        return {"side": "now − reference"}
    request = what.answer.request
    return {
        "side": "reference" if name.startswith("reference-") else "now",
        "analysis": request.analysis.name,
        "params": described(what)["params"],
        "model": request.subject.model.named(1),
        "interventions": edit_words(request.edits),
        "sha256": what.answer.provenance.weights,
        "conventions": list(what.answer.result.conventions),
    }


def _file_name(name: str, among: Mapping[tuple[str, str], str]) -> str:
    """The name of files, from that of an export."""
    if name.startswith("reference-"):
        return file_name(name.removeprefix("reference-"), "ref", among)
    return file_name(name.removeprefix("difference-"), "now", among, difference=name.startswith("difference-"))


def _readme(caption: SheetCaption) -> str:
    lines = [
        caption.title,
        "",
        f"The numbers of a figure of {number_of(len(caption.cells), 'part')}: a folder for each part, of each answer two files.",
        "",
        ".npz  arrays as they were computed, under their names; `about` is JSON: request, model, conventions, axes, units.",
        "      numpy.load(file)[name]; missing integers are -1, and the array that `about` names says which are missing",
        ".csv  the same as a table, after lines that begin with #",
        "",
        "reference-…   the same of the reference that is compared with",
        "difference-…  rows that are on both sides: now, reference, now minus reference",
        "a .csv alone  a table of the figure as it is drawn, whose cells are in no answer",
        f"{MANIFEST}    what each file is",
        "",
        f"{MADE} {__version__}.",
    ]
    return "\n".join(lines) + "\n"
