"""Answers as bytes and back, bit for bit: the results that a session file carries.

The bytes are those of an answer exported as NPZ (`export_data.npz_bytes`), so that any reader of such files reads them, too. One
entry of `about` is for reading them back:

    "stored": {"format": 2, "version": that of the analysis, "arrays": {"values": ["<f4", [2, 9, 9]]},
               "fields": {what of the result is no array, as in `exact_values`}}

Nothing in them says where something lies. Models and files are named by their names in the session, as `session:NAME`: the
subject's model, those of training series, and text files. What the session's tables do not list is named by the last part of its
path; models that lie in no folder of the person's (`builtin:`, `hub:`, `construct:`) as they are.

In format 1 the parts of captions are texts alone, and get their sense where they are read (`former_parts`).
"""

from __future__ import annotations

import dataclasses
import io
import math
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_type_hints

import numpy as np

from circuitlab.analysis.base import AnyAnalysis, Result, TextRef, find_analysis
from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonObject
from circuitlab.disk.paths import base_name
from circuitlab.engine.exact_values import as_json, fits, from_json
from circuitlab.engine.export_data import AnswerExport, npz_bytes
from circuitlab.engine.former_parts import with_sense
from circuitlab.engine.request import Answer, FileRef, Provenance, Request, with_files
from circuitlab.errors import BadInput, BadModel, CircuitLabError, UsageError, printable
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.strict_json import parse
from circuitlab.model.origin import File, InSession, origin_of
from circuitlab.model.plain import from_json as typed
from circuitlab.model.plain import out_of_bounds
from circuitlab.model.subject import ModelRef, Subject

FORMAT = 2
TEXTS_ALONE = 1  # the format whose parts of captions are texts
LARGEST = 2**28  # bytes of a stored answer's arrays
LONGEST_ABOUT = 2**23  # bytes of the text beside them, four a character
MOST_ARRAYS = 256
CAPTIONS = ("conventions", "common")  # fields of results that are parts of captions
NAMED = str(InSession(""))  # before the name of a file in the tables of the session, as before that of a model
NO_NAMES: Mapping[Any, Any] = MappingProxyType({})
_WHAT = "A stored result cannot be read."
_REMEDY = "It is computed anew where the model is on this machine; store the results again there."

Models = ModelRef | Callable[[str], ModelRef]


# -- writing ------------------------------------------------------------------------------------------------------------------


def stored_bytes(answer: Answer, models: Mapping[ModelRef, str] = NO_NAMES, files: Mapping[str, str] = NO_NAMES) -> bytes:
    """An answer as bytes, equal for equal answers. `models`: the names of models in the session by their references without
    checkpoint; `files`: the names of text files by their paths.

    Call `Engine.identified` before: an answer without the hash of its weights is given for no model that is there. Raises
    `BadInput` for one whose parameters are those of another analysis as JSON (`over_prompts`), in which a file has its path.
    """
    result = answer.result
    arrays = {name: [array.dtype.str, list(array.shape)] for name, array in result.arrays().items()}
    values = {f.name: getattr(result, f.name) for f in dataclasses.fields(result) if f.name not in arrays}
    stored = {
        "format": FORMAT,
        "version": answer.request.analysis.version,
        "arrays": arrays,
        "fields": {name: as_json(value) for name, value in values.items()},
    }
    placeless = replace(
        answer,
        request=placeless_request(answer.request, models, files),
        provenance=replace(answer.provenance, stored=False),
    )
    return npz_bytes(AnswerExport(placeless), stored=stored)


def placeless_request(request: Request, models: Mapping[ModelRef, str], files: Mapping[str, str]) -> Request:
    """The request with names of the session in place of paths; assumptions belong to the session's table.

    `models`, `files`: as in `stored_bytes`. Raises `BadInput` where its parameters hold a path inside a text.
    """
    if any(isinstance(value, str) and '"sha256"' in value for value in vars(request.params).values()):
        what = f"This answer of {request.analysis.name} is not stored: its parameters name a file inside a text."
        raise BadInput(what, expected="files among the parameters themselves", got="a path", remedy=_REMEDY)
    ref = replace(request.subject.model, checkpoint=None)
    sources = {one.source: name for one, name in reversed(list(models.items()))}
    if isinstance(ref.origin, File) or ref in models:
        sources[ref.source] = models.get(ref) or sources.get(ref.source) or ref.name

    def named(source: str) -> str:
        if source in sources:
            return str(InSession(sources[source]))
        one = ModelRef(source)
        return str(InSession(one.name)) if isinstance(one.origin, File) else source

    def named_file(file: FileRef) -> FileRef:
        if not isinstance(file, TextRef):
            return replace(file, source=named(file.source))
        return replace(file, path=NAMED + files[file.path] if file.path in files else base_name(file.path))

    model = ModelRef(named(ref.source), request.subject.model.checkpoint)
    params = with_files(request.params, named_file)
    return replace(request, params=params, subject=replace(request.subject, model=model))


# -- reading ------------------------------------------------------------------------------------------------------------------


class Outdated(BadInput):
    """A stored answer of another version of its analysis."""


def read_stored(
    data: bytes,
    model: Models,
    files: Mapping[str, str] = NO_NAMES,
    most: int = LARGEST,
    config: Callable[[], ModelConfig] | None = None,
) -> Answer:
    """The answer that `stored_bytes` wrote, with `provenance.stored`; arrays are read-only.

    `model`: the subject's model, or the model by its name in the session, to which the stored checkpoint is added. `files`: paths
    of text files by their names in the session. `most`: bytes that the arrays may take; no more than that, and `LONGEST_ABOUT`,
    are read. `config`: gives the model's configuration. Raises `BadInput` for anything else, `Outdated` for an answer of another
    version of its analysis: computed today it would not be the same numbers. One of an earlier version is read where the analysis
    says of this model and these parameters that it holds.
    """
    try:
        members = _members(data, most)
        about = parse(_text(members.pop("about", b"")), "about")
        stored = about["stored"]
        if type(stored["format"]) is not int or stored["format"] not in (TEXTS_ALONE, FORMAT):
            raise _refused(f"format {TEXTS_ALONE} or {FORMAT}", printable(stored["format"]))
        analysis, version = _analysis(about["analysis"]), stored["version"]
        if config is None or type(version) is not int or version >= analysis.version:
            _need(analysis, version, version == analysis.version)
        request = _request(analysis, about, model, files)
        if version != analysis.version:
            _need(analysis, version, config is not None and analysis.holds(version, config(), request.params))
        result = _result(analysis, stored, members, about.get("missing", {}))
        provenance = replace(typed(Provenance, about["provenance"]), stored=True)
        if type(about["complete"]) is not bool:
            raise _refused("complete: true or false", printable(about["complete"]))
    except BadInput:
        raise
    except CircuitLabError as error:  # of JSON, parameters, interventions
        raise _refused(error.expected or "values that fit", f"{error.what} {error.got}".strip()) from error
    except Exception as error:  # zipfile, NumPy and results raise whatever damaged bytes lead them to
        raise _refused("an answer that CircuitLab has stored", printable(error, 200) or type(error).__name__) from error
    return Answer(request, result, about["complete"], provenance)


def _refused(expected: str, got: str, what: str = _WHAT) -> BadInput:
    return BadInput(what, expected=expected, got=got, remedy=_REMEDY)


def _members(data: bytes, most: int) -> dict[str, bytes]:
    """The members of the archive by name, without their suffix; no more is unpacked than they say, nor than `most` allows."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in infos}
        if len(sizes) < len(infos) or len(infos) > 2 * MOST_ARRAYS + 1:
            raise _refused(f"at most {MOST_ARRAYS} arrays, each once", str(len(infos)))
        if sizes.pop("about", 0) > LONGEST_ABOUT or sum(sizes.values()) > most:
            raise _refused(f"at most {number_of(most, 'byte')}", number_of(sum(sizes.values()), "byte"))
        if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
            raise _refused("members as NumPy compresses them", "another compression")
        return {info.filename.removesuffix(".npy"): _unpacked(archive, info) for info in infos}


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as member:
        return member.read(info.file_size)


def _array(data: bytes) -> np.ndarray:
    """A .npy file as an array that shares its bytes. Raises `ValueError`; objects are never unpickled."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, in_columns, dtype = header(stream, max_header_size=2000)
    n, left = math.prod(shape), len(data) - stream.tell()
    if dtype.hasobject or dtype.kind not in "biufcU" or not dtype.itemsize or dtype.byteorder == ">":
        raise ValueError(f"an array of {dtype}")
    if min(shape, default=0) < 0 or n * dtype.itemsize != left:
        raise ValueError(f"{number_of(left, 'byte')} for an array of {dtype} {shape}")
    if not n:
        return np.empty(shape, dtype)
    array = np.frombuffer(data, dtype, offset=stream.tell())
    most = {"b": 1, "U": sys.maxunicode}.get(dtype.kind)  # beyond it a truth value or a character is none
    if most is not None and array.view(np.uint8 if most == 1 else np.uint32).max() > most:
        raise ValueError(f"an array of {dtype} with other bytes")
    return array.reshape(shape, order="F" if in_columns else "C")


def _text(data: bytes) -> bytes:
    """The text of a .npy file with one text, as JSON in UTF-8; read as NumPy keeps it, four bytes a character."""
    array = _array(data)
    if array.shape != () or array.dtype.kind != "U":
        raise ValueError("about is not a text")
    return array.tobytes().decode("utf-32-le", "surrogatepass").rstrip("\0").encode("utf-8", "backslashreplace")


def _analysis(name: object) -> AnyAnalysis:
    """The analysis of a stored answer."""
    try:
        return find_analysis(name if isinstance(name, str) else "")
    except UsageError as error:
        what = "A stored result is of an analysis that this version does not have."
        raise _refused("one of those that `circuitlab analyses` lists", printable(name), what) from error


def _need(analysis: AnyAnalysis, version: object, holds: bool) -> None:
    """Raises `Outdated` unless what this version of the analysis answered holds."""
    if type(version) is not int or not holds:
        what = f"A stored result of {analysis.name} is by another version of that analysis, so it is not shown."
        raise Outdated(what, expected=f"version {analysis.version}", got=f"version {printable(version)}", remedy=_REMEDY)


def _result(analysis: AnyAnalysis, stored: JsonObject, members: Mapping[str, bytes], masks: Mapping[str, str]) -> Result:
    """The result, its fields of the declared types, its arrays as declared; without values what its version did not have."""
    hints, version = get_type_hints(analysis.result), stored["version"]
    later = [f for f in dataclasses.fields(analysis.result) if f.metadata.get("since", 0) > version]
    declared = {f.name for f in dataclasses.fields(analysis.result)} - {f.name for f in later}
    fields, arrays = {name: from_json(value) for name, value in stored["fields"].items()}, stored["arrays"]
    if set(fields) | set(arrays) != declared or set(fields) & set(arrays):
        raise _refused(" ".join(sorted(declared)), " ".join(sorted({*fields, *arrays})))
    if stored["format"] == TEXTS_ALONE:
        fields |= {name: _with_senses(fields[name]) for name in CAPTIONS if name in fields}
    if set(members) != {*arrays, *masks.values()}:
        raise _refused(" ".join(sorted(arrays)), printable(" ".join(sorted(members)), 200))
    if wrong := [name for name, value in fields.items() if not fits(hints[name], value)]:
        raise _refused(f"{wrong[0]} of type {hints[wrong[0]]}", printable(fields[wrong[0]]))
    for name, (dtype, shape) in arrays.items():
        array = fields[name] = _array(members[name])
        if array.dtype.str != dtype or list(array.shape) != shape or not fits(hints[name], array):
            raise _refused(f"{name}: {printable(dtype)} {printable(shape)}", f"{array.dtype.str} {list(array.shape)}")
    sizes = _sizes(analysis.result, fields)
    absent = {f.name: np.full([sizes[axis] for axis in f.metadata["axes"]], -1) for f in later if "axes" in f.metadata}
    result = analysis.result(**fields, **absent)
    _check_axes(result)
    return result


def _with_senses(parts: Any) -> Any:
    return tuple(map(with_sense, parts)) if fits(tuple[str, ...], parts) else parts


def _sizes(kind: type[Result], values: Mapping[str, object]) -> dict[str, int]:
    """The length of each axis that one of the arrays among these values has by its own name."""
    axes = {f.name: f.metadata.get("axes", ()) for f in dataclasses.fields(kind)}
    of = {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}
    return {axis: size for name, shape in of.items() for axis, size in zip(axes[name], shape, strict=False)}


def _check_axes(result: Result) -> None:
    """Raises `BadInput` unless each array has the declared axes, and axes of one name are equally long."""
    sizes: dict[str, int] = {}
    for name, array in result.arrays().items():
        axes = result.axes_of(name)
        if len(axes) != array.ndim:
            raise _refused(f"{name}: {' '.join(axes)}", str(array.shape))
        for axis, size in zip(axes, array.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise _refused(f"{name}: {sizes[axis]} along {axis}", str(array.shape))


def _request(analysis: AnyAnalysis, about: JsonObject, model: Models, files: Mapping[str, str]) -> Request:
    """The request, with models and files of this machine in place of names."""
    subject, params = typed(Subject, about["subject"]), typed(analysis.params, about["params"])
    if (wrong := out_of_bounds(params)) is not None:
        raise _refused(f"{wrong[0]} {wrong[1]}", wrong[2])
    own = subject.model.source
    ref = model if isinstance(model, ModelRef) else replace(_known(own, model), checkpoint=subject.model.checkpoint)

    def placed(file: FileRef) -> FileRef:
        if isinstance(file, TextRef):
            name = file.path.removeprefix(NAMED)
            return replace(file, path=files.get(name, file.path)) if name != file.path else file
        if file.source == own:
            return replace(file, source=ref.source)
        return file if isinstance(model, ModelRef) else replace(file, source=_known(file.source, model, file.source).source)

    return Request(analysis, with_files(params, placed), replace(subject, model=ref))


def _known(source: str, model: Callable[[str], ModelRef], otherwise: str = "") -> ModelRef:
    """The model of a stored source: of its name in the session, or the source itself where it is no such name."""
    origin = origin_of(source)
    if not isinstance(origin, InSession):
        return ModelRef(source)
    try:
        return model(origin.where)
    except (KeyError, BadModel, UsageError) as error:
        if otherwise:
            return ModelRef(otherwise)
        raise _refused("a model that the session names", printable(origin.where)) from error
