"""The text of a session file: JSON in a fixed order, one step an object, lists of plain values on one line.

    {"circuitlab": "session", "version": 2, "by": "0.9.0",
     "models": {"mine": {"path": "../runs/mine/model", "was": ["…"], "sha256": "77ab…", "assume": {"positions": "shortformer"}},
                "attn-only-2l": {"source": "builtin:attn-only-2l", "sha256": "9b1c…", "settings": "51d0…"}},
     "files": {"names": {"path": "names.tsv", "sha256": "03fe…"}},
     "now": {the words of a step, see `story/words`}, "docks": "…",
     "plugins": {"repeated_loss_panel": "circuitlab-example 0.1.0"},   (of which plug-in a panel is that the words name)
     "unchosen": ["heads", "places"],   (in a picture: what of its selection nobody has chosen, and is not marked)
     "notes": [{"model": "mine", "head": "L1H1", "text": "…"}],
     "story": {"title": "…", "about": "…", "minutes": 5,
               "steps": [{"title": "…", "text": "…", "aside": "…", "set": {words over those of the step before}, "values": {…}}]}}

Paths are relative to the file's folder. Keys that this version does not know are kept where they stand and written back.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from circuitlab import __version__
from circuitlab.disk.files import read_at_most
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput, UsageError, advising, cause, printable, stated
from circuitlab.model.catalogue.places import at_its_place, name_of
from circuitlab.model.origin import Catalogue, File
from circuitlab.model.subject import Head, ModelRef
from circuitlab.session_files.in_pictures.limits import REMEDY as DAMAGED
from circuitlab.session_files.in_pictures.reading import picture_text
from circuitlab.session_files.migrations import VERSION, migrated
from circuitlab.session_files.session import UNCHOSEN, FileEntry, ModelEntry, Note, Session
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import read_value, value_table
from circuitlab.story.words import read_setup, table_of

LARGEST = 2**24  # bytes of a session's text
MOST = 2**20  # entries, and lists and objects, which take much more memory than text
DEEPEST = 64  # lists and objects inside one another
_ENTRY = ("source", "path", "was", "sha256", "settings", "assume")
_NOTE = ("model", "head", "edge", "token", "panel", "text")
_STEP = ("title", "text", "aside", "set", "values")
_STORY = ("title", "about", "minutes", "tiny", "steps")
_TOP = ("circuitlab", "version", "by", "models", "files", "now", "unchosen", "docks", "plugins", "notes", "story")
_REMEDY = (
    "Open a .circuitlab file that CircuitLab has saved. The one before it may lie beside it, with ~ behind its name; "
    "File → Recover a session… lists what was kept without being saved."
)
_CHECK = "Check the path and the spelling of the name. File → Recover a session… lists what was kept without being saved."


# -- reading ------------------------------------------------------------------------------------------------------------------


def read_session(path: Path) -> Session:
    """The session in a file, or in a picture with its view inside. Raises `BadInput` where it cannot be read."""
    try:
        if (view := picture_text(path)) is not None:
            return _of_picture(view, path)
        data = read_at_most(path, LARGEST)
    except OSError as error:
        got = cause(error)
        remedy = _CHECK if isinstance(error, FileNotFoundError) else _REMEDY
        raise BadInput(f"{path.name} cannot be read.", expected="a session file", got=got, remedy=remedy) from error
    if data is None:
        expected = f"at most {LARGEST} bytes"
        raise BadInput(f"{path.name} is too large for a session.", expected=expected, got="more", remedy=_REMEDY)
    return parse_session(data, Path(os.path.realpath(path)).parent)


def _of_picture(view: bytes, path: Path) -> Session:
    try:
        return _session(view, Path(os.path.realpath(path)).parent)
    except BadInput as error:
        if error.remedy:  # the view is whole, and says itself what to do
            raise
        what = f"The view in {path.name} cannot be read: {error.what}"
        raise BadInput(what, expected=error.expected, got=error.got, remedy=DAMAGED) from error


def parse_session(data: bytes, folder: Path) -> Session:
    """The session of a file's bytes; relative paths are those of `folder`. Raises `BadInput` with the place in the file."""
    with advising(_REMEDY):
        return _session(data, folder)


def _session(data: bytes, folder: Path) -> Session:
    folder, table = Path(os.path.realpath(folder)), migrated(_object(_json(data), "the file"))
    return Session(
        {name: _model(entry, f"models.{name}", folder) for name, entry in _object(table.get("models", {}), "models").items()},
        _setup(table.get("now", {}), "now"),
        _story(table.get("story", {})),
        tuple(_note(one, f"notes[{i}]") for i, one in enumerate(_list(table.get("notes", []), "notes"))),
        {name: _file(entry, f"files.{name}", folder) for name, entry in _object(table.get("files", {}), "files").items()},
        _text(table, "docks", ""),
        _rest(table, _TOP),
        _unchosen(table.get("unchosen", [])),
        {name: _text(every, name, "plugins") for every in (_object(table.get("plugins", {}), "plugins"),) for name in every},
    )


def json_of(data: bytes) -> object:
    """The plain values of a JSON text, within the bounds of a session's file. Raises `BadInput`."""
    with advising(_REMEDY):
        return _json(data)


def _json(data: bytes) -> object:
    try:
        text = data.decode("utf-8-sig")
        if text.count(",") > MOST or text.count("[") + text.count("{") > MOST:
            _refuse("the file", f"at most {MOST} entries", "more")
        table = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        what = "too many lists inside one another" if isinstance(error, RecursionError) else cause(error)
        raise BadInput("The session is not JSON text.", expected="a .circuitlab file", got=printable(what)) from error
    level, depth = [table], 0
    while level:
        depth += 1
        level = [v for one in level if isinstance(one, (dict, list)) for v in (one.values() if isinstance(one, dict) else one)]
        if depth > DEEPEST:
            _refuse("the file", f"at most {DEEPEST} lists and objects inside one another", "more")
    return table


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse("the file", "finite numbers", text)


def _refuse(where: str, expected: str, got: object) -> NoReturn:
    what = f"The session cannot be read at {printable(where)}."
    raise BadInput(what, expected=expected, got=stated(got))


def _object(value: object, where: str) -> JsonDict:
    return value if isinstance(value, dict) else _refuse(where, "an object", value)


def _list(value: object, where: str) -> list[Any]:
    return value if isinstance(value, list) else _refuse(where, "a list", value)


def _text(table: Mapping[str, object], name: str, where: str) -> str:
    value = table.get(name, "")
    return value if isinstance(value, str) else _refuse(f"{where}.{name}".lstrip("."), "a text", value)


def _rest(table: Mapping[str, object], known: tuple[str, ...]) -> JsonDict:
    return {name: value for name, value in table.items() if name not in known}


def _at(where: str) -> Callable[[str, str, str, object], BadInput]:
    """How errors of words and values name their place."""
    return lambda key, what, expected, got: BadInput(
        f"The session cannot be read at {printable(f'{where}.{key}')}: {printable(what, 300)}",
        expected=expected,
        got=stated(got),
    )


def _setup(value: object, where: str) -> Setup:
    return read_setup(_object(value, where), _at(where), tolerant=True)


def _unchosen(value: object) -> tuple[str, ...]:
    named = _list(value, "unchosen")
    kinds = tuple(one for one in named if one in UNCHOSEN)
    return kinds if len(kinds) == len(named) else _refuse("unchosen", " ".join(UNCHOSEN), json.dumps(value))


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder / path)


def _model(value: object, where: str, folder: Path) -> ModelEntry:
    table = _object(value, where)
    source, path = _text(table, "source", where), _text(table, "path", where)
    if bool(source) == bool(path) or "\0" in source + path or (source and ":" not in source):
        _refuse(where, "source, such as builtin:attn-only-2l, or path", json.dumps(value))
    assume = _object(table.get("assume", {}), f"{where}.assume")
    earlier = _list(table.get("was", []), f"{where}.was")
    if not all(isinstance(one, str) and "\0" not in one for one in (*assume.values(), *earlier)):
        _refuse(where, "texts in assume and was", json.dumps(value))
    ref = replace(_ref(source or str(File(_absolute(path, folder)))), assume=tuple(sorted(assume.items())))
    sha256, settings = (_text(table, name, where) for name in ("sha256", "settings"))
    return ModelEntry(ref, sha256, tuple(_absolute(one, folder) for one in earlier), settings, _rest(table, _ENTRY))


def _ref(source: str) -> ModelRef:
    """A model as a file names it: one of the catalogue is where that puts it on this machine, whether or not it is there."""
    ref = ModelRef(source)
    return (at_its_place(ref.origin.where) if isinstance(ref.origin, Catalogue) else None) or ref


def _file(value: object, where: str, folder: Path) -> FileEntry:
    table = _object(value, where)
    path = _text(table, "path", where)
    if not path or "\0" in path:
        _refuse(where, "a path", json.dumps(value))
    return FileEntry(_absolute(path, folder), _text(table, "sha256", where), _rest(table, ("path", "sha256")))


def _note(value: object, where: str) -> Note:
    table = _object(value, where)
    edge, token = table.get("edge"), table.get("token")
    heads = [head for head in (_text(table, "head", where), *(_list(edge, where) if edge is not None else ())) if head != ""]
    if (edge is not None and len(edge) != 2) or isinstance(token, bool) or not isinstance(token, (str, int, type(None))):
        _refuse(where, "two heads as edge, a text or an id as token", json.dumps(value))
    if sum(thing in table for thing in ("head", "edge", "token", "panel")) > 1:
        _refuse(where, "a note about one of head, edge, token, panel", " ".join(table))
    for head in heads:
        try:
            Head.parse(head if isinstance(head, str) else "")
        except UsageError:
            _refuse(where, "a head such as L1H4", head)
    about = {"model": _text(table, "model", where), "head": _text(table, "head", where), "panel": _text(table, "panel", where)}
    pair = None if edge is None else (edge[0], edge[1])
    return Note(_text(table, "text", where), edge=pair, token=token, **about, unknown=_rest(table, _NOTE))


def _story(value: object) -> Story:
    table = _object(value, "story")
    minutes = table.get("minutes", 0)
    if not isinstance(minutes, int) or isinstance(minutes, bool) or minutes < 0:
        _refuse("story.minutes", "a number of minutes", minutes)
    steps = tuple(_step(one, f"story.steps[{i}]") for i, one in enumerate(_list(table.get("steps", []), "story.steps")))
    title, about, tiny = (_text(table, name, "story") for name in ("title", "about", "tiny"))
    return Story(title, steps, about, minutes, tiny, _rest(table, _STORY))


def _step(value: object, where: str) -> Step:
    table = _object(value, where)
    setup = None if table.get("set") is None else _setup(table["set"], f"{where}.set")
    values = _object(table.get("values", {}), f"{where}.values")
    parsed = tuple(read_value(name, one, _at(f"{where}.values"), tolerant=True) for name, one in values.items())
    text, aside = _text(table, "text", where), _text(table, "aside", where)
    return Step(_text(table, "title", where), text, setup, parsed, aside, unknown=_rest(table, _STEP))


# -- writing ------------------------------------------------------------------------------------------------------------------


def text_of(session: Session, folder: Path) -> str:
    """The text of a session file that lies in `folder`."""
    return written(table_of_session(session, folder)) + "\n"


def table_of_session(session: Session, folder: Path | None) -> JsonDict:
    """A session as plain values in the order of a file, with paths as seen from `folder`, None: absolute ones."""
    folder = None if folder is None else Path(os.path.realpath(folder))
    table: JsonDict = {"circuitlab": "session", "version": VERSION, "by": __version__}
    table["models"] = {name: _model_table(entry, folder) for name, entry in session.models.items()}
    table |= {"files": {name: _file_table(entry, folder) for name, entry in session.files.items()}} if session.files else {}
    table["now"] = table_of(session.now)
    table |= {"unchosen": list(session.unchosen)} if session.unchosen else {}
    table |= {"docks": session.docks} if session.docks else {}
    table |= {"plugins": dict(session.plugins)} if session.plugins else {}
    table |= {"notes": [_note_table(note) for note in session.notes]} if session.notes else {}
    table |= {"story": _story_table(session.story)} if session.story != Story() else {}
    return table | dict(session.unknown)


def bytes_of(session: Session, folder: Path) -> bytes:
    """`text_of` as UTF-8; a text that is no Unicode (half of a pair of surrogates) is written as its escape."""
    return text_of(session, folder).encode("utf-8")


def _relative(path: str, folder: Path | None) -> str:
    """A path as seen from a folder, with forward slashes; absolute on another drive and without a folder."""
    try:
        return Path(path if folder is None else os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return Path(path).as_posix()


def _model_table(entry: ModelEntry, folder: Path | None) -> JsonDict:
    name = name_of(entry.ref)
    origin = Catalogue(name) if name else entry.ref.origin
    table: JsonDict = {"path": _relative(origin.where, folder)} if isinstance(origin, File) else {"source": str(origin)}
    table |= {"was": [_relative(one, folder) for one in entry.earlier]} if entry.earlier else {}
    table |= {name: value for name, value in (("sha256", entry.sha256), ("settings", entry.settings)) if value}
    table |= {"assume": dict(entry.ref.assume)} if entry.ref.assume else {}
    return table | dict(entry.unknown)


def _file_table(entry: FileEntry, folder: Path | None) -> JsonDict:
    sha256 = {"sha256": entry.sha256} if entry.sha256 else {}
    return {"path": _relative(entry.path, folder), **sha256, **entry.unknown}


def _note_table(note: Note) -> JsonDict:
    about = {n: getattr(note, n) for n in ("model", "head", "edge", "token", "panel") if getattr(note, n) not in ("", None)}
    about |= {"edge": list(note.edge)} if note.edge is not None else {}
    return about | {"text": note.text, **note.unknown}


def _story_table(story: Story) -> JsonDict:
    front = {n: getattr(story, n) for n in ("title", "about", "minutes", "tiny") if getattr(story, n)}
    return front | {"steps": [_step_table(step) for step in story.steps]} | dict(story.unknown)


def _step_table(step: Step) -> JsonDict:
    table: JsonDict = {"title": step.title}
    table |= {n: getattr(step, n) for n in ("text", "aside") if getattr(step, n)}
    table |= {} if step.setup is None else {"set": table_of(step.setup)}
    table |= {"values": {value.name: value_table(value) for value in step.values}} if step.values else {}
    return table | dict(step.unknown)


def written(value: object, indent: int = 0) -> str:
    """JSON text with one entry a line; lists of plain values, and objects inside a step's words, stand on one line."""
    plain = lambda v: not isinstance(v, (dict, list, tuple))
    if isinstance(value, dict) and value and not all(map(plain, value.values())):
        lines = (f"{' ' * (indent + 1)}{_flat(str(k))}: {written(v, indent + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{' ' * indent}}}"
    if isinstance(value, (list, tuple)) and value and not all(map(plain, value)):
        lines = (" " * (indent + 1) + written(v, indent + 1) for v in value)
        return "[\n" + ",\n".join(lines) + f"\n{' ' * indent}]"
    return _flat(value)


def _flat(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text
