"""The results inside a session file: answers, and of their models as much as panels know without the weights.

A session with results is a zip under the same suffix; its first four bytes tell it from a text. Its members (`container`):

    session.json                 the very text of the session without results
    results/index.json           whose the answers are, and which place of the session needs them; below
    results/KEY.npz              an answer as `engine.stored_answer` writes it, KEY its `key_of`
    models/NAME/…                what `engine.ghost` keeps of a model of the session's table; NAME with %20 for what no path has

    {"models": {"mine": {"final": "77ab…", "4000": "90cd…"}},                       sha256 of the weights, by training step
     "answers": {"KEY": {"analysis": "attention", "version": 1, "model": "mine", "checkpoint": 4000}},
     "places": [{"answers": ["KEY", …], "lacking": ["Training: …"]}, …]}            where the session stands, then each step

Other members, and keys that this version does not know, are kept and written back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import quote

from circuitlab.analysis.base import SeriesRef, TextRef, find_analysis, never_holds
from circuitlab.disk.json_types import JsonDict
from circuitlab.engine.engine import needs
from circuitlab.engine.ghost import config_of
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.stored_answer import Outdated, read_stored
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.model.config import ModelConfig
from circuitlab.model.plain import to_json
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.container import (
    LARGEST_REST,
    MAGIC,
    TEXT,
    Container,
    container_at,
    container_bytes,
    container_of,
    refused,
    unpacked_size,
)
from circuitlab.session_files.session import Session, Unknown
from circuitlab.session_files.session_text import LARGEST, bytes_of, json_of, parse_session, read_session, written
from circuitlab.story.places import real_folder

INDEX = "results/index.json"
FINAL = "final"
Checkpoint = int | None  # a training step, None for the final weights
Assumed = tuple[tuple[str, str], ...]  # of a `ModelRef`
_ANSWER = re.compile(r"results/([0-9a-f]{64})\.npz")
_MODEL = re.compile(r"models/([^/]+)/([A-Za-z0-9_.-]+)")
_SHA256 = re.compile(r"([0-9a-f]{64})?")
_STEP = re.compile(r"[0-9]{1,15}")
_KNOWN = ("models", "answers", "places")


@dataclass(frozen=True)
class Entry:
    """A stored answer. `version`: of the analysis; `model`: its name in the session's table; `checkpoint`: the training step."""

    analysis: str
    version: int
    model: str
    checkpoint: Checkpoint = None

    @property
    def current(self) -> bool:
        """Whether the analysis is the one of today, or one of whose earlier versions some answers hold: the numbers of another
        version are not those that it would give."""
        analysis = None
        with suppress(CircuitLabError):  # there is none, or its plug-in fails
            analysis = find_analysis(self.analysis)
        if analysis is None or self.version > analysis.version:
            return False
        return analysis.version == self.version or analysis.holds is not never_holds


@dataclass(frozen=True)
class Damaged:
    """A stored answer that is not what the index says: its member, the entry, and why."""

    member: str
    entry: Entry
    error: BadInput


@dataclass(frozen=True)
class Place:
    """What is stored for one place of a session: keys of answers, and what is not stored for it, each with why not."""

    answers: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class Results:
    """See the module. `entries` by key; `hashes` by the model's name and training step; `places`: now, then each step.

    `container` reads the members, none before it is needed. `unknown`: keys of the index that this version does not know.
    """

    entries: Mapping[str, Entry]
    hashes: Mapping[str, Mapping[Checkpoint, str]]
    places: tuple[Place, ...]
    container: Container
    unknown: Unknown = field(default_factory=JsonDict)

    @property
    def nbytes(self) -> int:
        """Bytes of the answers in the file."""
        return sum(self.size(key) for key in self.entries)

    def of_other_weights(self, session: Session) -> dict[str, str]:
        """The session's models of whose name results are stored, but of other weights; by name the sha256 of these."""
        named = {name: sha256 for name, hashes in self.hashes.items() if (sha256 := hashes.get(None)) and name in session.models}
        return {name: sha256 for name, sha256 in named.items() if session.models[name].sha256 not in ("", sha256)}

    def models(self, session: Session) -> set[str]:
        """The names of the session's models of which results are stored."""
        return set(self.hashes) & set(session.models) - set(self.of_other_weights(session))

    def size(self, key: str) -> int:
        """Bytes of one answer in the file."""
        return self.container.sizes[answer_member(key)]

    def data(self, key: str) -> bytes:
        """An answer as it is stored. Raises `BadInput`."""
        return self.container.read(answer_member(key))

    def model_members(self, name: str) -> dict[str, bytes]:
        """What is kept of a model, by the names that `engine.ghost` gave it. Raises `BadInput`."""
        before = model_member(name, "")
        names = [member for member in self.container.sizes if member.startswith(before)]
        return {member.removeprefix(before): data for member, data in self.container.each(names)}

    def answers(self, session: Session, refs: Mapping[str, Mapping[Checkpoint, ModelRef]]) -> Iterator[Answer | Damaged]:
        """The answers of these models of a session, which have the references `refs` by name and training step.

        Those of another version of an analysis are left out unless they hold; one that is not what the index says is told in its
        place. Raises `BadInput` where the file cannot be read.
        """
        wanted = lambda entry: entry.current and entry.checkpoint in refs.get(entry.model, {})
        keys = {answer_member(key): key for key, entry in self.entries.items() if wanted(entry)}
        final = session.refs() | {name: by_step[None] for name, by_step in refs.items()}
        files = {name: entry.path for name, entry in session.files.items()}
        left = LARGEST_REST
        for member, data in self.container.fetch(keys):
            entry = self.entries[keys[member]]
            if isinstance(data, BadInput):
                yield Damaged(member, entry, data)
                continue
            try:
                answer = read_stored(data, final.__getitem__, files, left, lambda entry=entry: self._config(entry.model))
            except Outdated:
                continue
            except CircuitLabError as error:
                expected = error.expected or "an answer that CircuitLab has stored"
                yield Damaged(member, entry, refused(member, expected, error.got or error.what))
                left -= size if (size := unpacked_size(data)) <= left else 0  # the others are not unpacked
                continue
            left = max(0, left - answer.result.nbytes)
            sha256, assume = self.hashes[entry.model][entry.checkpoint], session.models[entry.model].ref.assume
            key = key_of(answer.request, sha256, assume, answer.provenance.device, entry.version)
            if key != keys[member] or answer.request.subject.model != refs[entry.model][entry.checkpoint]:
                expected = "the answer to the request that its name stands for"
                yield Damaged(member, entry, refused(member, expected, answer.request.analysis.name))
                continue
            yield answer

    def _config(self, name: str) -> ModelConfig:
        """The configuration of a model of which results are stored. Raises `BadInput`, `BadModel`."""
        return config_of(self.model_members(name))


def answer_member(key: str) -> str:
    """The member of an answer."""
    return f"results/{key}.npz"


def model_member(name: str, member: str) -> str:
    """The member of one thing that is kept of a model."""
    return f"models/{quoted(name)}/{member}"


def quoted(name: str) -> str:
    """A model's name as a part of a path."""
    text = quote(name, safe=" ")
    return text.replace(".", "%2E") if not text.strip(".") else text


def key_of(request: Request, sha256: str, assume: Assumed, device: str, version: int | None = None) -> str:
    """What an answer depends on, as a hash: the analysis and its version, parameters, prompt and interventions where they are
    read, conventions, the device, and of the model the hash of its weights and what was assumed. No path is in it. `version`: of
    an earlier version of the analysis, whose key has no parameters that came later."""
    analysis, subject = request.analysis, request.subject
    reads = needs(analysis, request.params)
    about = {
        "analysis": analysis.name,
        "version": version or analysis.version,
        "params": _placeless(request.params, version or analysis.version),
        "tokens": list(subject.tokens) if reads == "tokens" else [],
        "edits": to_json(request.edits),
        "conventions": to_json(subject.conventions),
        "weights": sha256,
        "assume": [list(pair) for pair in assume],
        "device": device,
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _placeless(params: Any, version: int) -> object:
    """The parameters of a version as plain values, with the hash of a file in place of its path."""
    later = {f.name for f in fields(params) if f.metadata.get("since", 0) > version}

    def plain(value: object) -> object:
        if isinstance(value, (TextRef, SeriesRef)):
            return {"sha256": value.sha256} if value.sha256 else to_json(value)
        return [plain(one) for one in value] if type(value) is tuple else to_json(value)

    return {name: plain(getattr(params, name)) for name in sorted(to_json(params)) if name not in later}


# -- a file ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SessionFile:
    """A session as it was read, and the results inside its file, None where it is a text."""

    session: Session
    results: Results | None = None


def read_file(path: Path) -> SessionFile:
    """The session in a file, with or without results, which are not read yet. Raises `BadInput` where it cannot be read."""
    if _begin(path) != MAGIC:
        return SessionFile(read_session(path))
    container = container_at(path)
    return SessionFile(parse_session(container.read(TEXT), real_folder(path)), results_of(container))


def read_results(path: Path) -> Results | None:
    """The results inside a session's file; None where there are none, or it cannot be read."""
    try:
        return results_of(container_at(path)) if _begin(path) == MAGIC else None
    except BadInput:
        return None


def _begin(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(len(MAGIC))
    except OSError:
        return b""


def file_bytes(session: Session, folder: Path, results: Results | None) -> bytes:
    """The file of a session in `folder`: its text, or a zip of that and of the results."""
    text = bytes_of(session, folder)
    if results is None:
        return text
    members = dict(results.container.each(name for name in results.container.sizes if name not in (TEXT, INDEX)))
    members |= {TEXT: text, INDEX: (written(_index_table(results)) + "\n").encode()}
    return container_bytes(members)


def results_in(
    entries: Mapping[str, Entry],
    hashes: Mapping[str, Mapping[Checkpoint, str]],
    places: Iterable[Place],
    members: Mapping[str, bytes],
    unknown: Unknown = MappingProxyType({}),
) -> Results:
    """Results whose members are in memory: those of answers, of models and others. Raises `BadInput` where they are too large."""
    if (size := sum(_unpacked(name, data) for name, data in members.items())) > LARGEST_REST:
        raise BadInput(
            "The results are too large for a session file.",
            expected=f"at most {LARGEST_REST >> 20} MiB",
            got=f"{size / 2**20:.0f} MiB",
            remedy="Save the session without them (Save session as…), or show fewer panels in its steps.",
        )
    return Results(entries, hashes, tuple(places), container_of(members), unknown)


def _unpacked(name: str, data: bytes) -> int:
    """Bytes of a member with all that is in it: arrays are packed once more."""
    return unpacked_size(data) if _ANSWER.fullmatch(name) else len(data)


def unknown_members(results: Results) -> tuple[str, ...]:
    """The members that this version does not know."""
    own = lambda name: name in (TEXT, INDEX) or _ANSWER.fullmatch(name) or _MODEL.fullmatch(name)
    return tuple(name for name in results.container.sizes if not own(name))


# -- the index ------------------------------------------------------------------------------------------------------------------


def results_of(container: Container) -> Results:
    """The results among the members of a session's file. Raises `BadInput` for an index that is none, or not of these members."""
    table = _index(container)
    hashes = {name: _hashes(name, one) for name, one in _object(table.get("models", {}), "models").items()}
    entries = {key: _entry(key, one, hashes) for key, one in _object(table.get("answers", {}), "answers").items()}
    places = tuple(_place(i, one, entries) for i, one in enumerate(_list(table.get("places", []), "places")))
    stored = {match[1] for name in container.sizes if (match := _ANSWER.fullmatch(name))}
    if stored != set(entries):
        odd = min(stored ^ set(entries))
        raise refused(answer_member(odd), "each answer in results/ and in its index", "only one of both")
    unknown = {name: value for name, value in table.items() if name not in _KNOWN}
    return Results(entries, hashes, places, container, unknown)


def _index(container: Container) -> JsonDict:
    if INDEX not in container.sizes:
        raise refused(INDEX, "an index of the results", "none")
    if container.sizes[INDEX] > LARGEST:
        raise refused(INDEX, f"at most {LARGEST} bytes", container.sizes[INDEX])
    data = container.read(INDEX)
    try:
        return _object(json_of(data), "the index")
    except BadInput as error:
        raise refused(INDEX, error.expected, error.got) from error


def _object(value: object, where: str) -> JsonDict:
    return value if isinstance(value, dict) else _refuse(where, "names with values", value)


def _list(value: object, where: str) -> list[Any]:
    return value if isinstance(value, list) else _refuse(where, "a list", value)


def _refuse(where: str, expected: str, got: object) -> NoReturn:
    raise refused(f"{INDEX}, {where}", expected, got)


def _hashes(name: str, table: object) -> dict[Checkpoint, str]:
    hashes: dict[Checkpoint, str] = {}
    for step, sha256 in _object(table, f"models.{name}").items():
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            _refuse(f"models.{name}", "a sha256", sha256)
        hashes[_step(step, f"models.{name}")] = sha256
    return hashes


def _step(text: str, where: str) -> Checkpoint:
    if text != FINAL and not _STEP.fullmatch(text):
        _refuse(where, f"training steps, or {FINAL}", text)
    return None if text == FINAL else int(text)


def _entry(key: str, table: object, hashes: Mapping[str, Mapping[Checkpoint, str]]) -> Entry:
    where, one = f"answers.{key[:12]}", _object(table, f"answers.{key[:12]}")
    analysis, version, model, step = (one.get(name) for name in ("analysis", "version", "model", "checkpoint"))
    if not re.fullmatch(r"[0-9a-f]{64}", key) or not isinstance(analysis, str) or not isinstance(model, str):
        raise refused(f"{INDEX}, {where}", "a key with an analysis and a model", one)
    if isinstance(version, bool) or not isinstance(version, int):
        raise refused(f"{INDEX}, {where}", "the version of an analysis", version)
    if isinstance(step, bool) or not isinstance(step, (int, type(None))) or step not in hashes.get(model, {}):
        _refuse(where, "a model and a training step of the index", f"{model} {step}")
    return Entry(analysis, version, model, step)


def _place(number: int, table: object, entries: Mapping[str, Entry]) -> Place:
    where, one = f"places[{number}]", _object(table, f"places[{number}]")
    keys, lacking = (_list(one.get(name, []), f"{where}.{name}") for name in ("answers", "lacking"))
    if not all(isinstance(key, str) and key in entries for key in keys):
        _refuse(where, "keys of answers", keys)
    if not all(isinstance(line, str) for line in lacking):
        _refuse(where, "texts in lacking", lacking)
    return Place(tuple(keys), tuple(lacking))


def _index_table(results: Results) -> JsonDict:
    step = lambda checkpoint: {} if checkpoint is None else {"checkpoint": checkpoint}
    by_step = lambda item: (item[0] is not None, item[0] or 0)
    return {
        "models": {
            name: {FINAL if at is None else str(at): sha256 for at, sha256 in sorted(hashes.items(), key=by_step)}
            for name, hashes in sorted(results.hashes.items())
        },
        "answers": {
            key: {"analysis": entry.analysis, "version": entry.version, "model": entry.model, **step(entry.checkpoint)}
            for key, entry in sorted(results.entries.items())
        },
        "places": [
            {"answers": list(place.answers), **({"lacking": list(place.lacking)} if place.lacking else {})}
            for place in results.places
        ],
        **results.unknown,
    }
