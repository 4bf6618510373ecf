"""Heads that papers have named in public models: facts with their sources, one JSON file per model in `resources/known_heads`.

    {"model": "GPT-2 small", "names": ["openai-community/gpt2"], "shape": {"n_layers": 12, …}, "sha256": [], "settings": [],
     "sources": [{"cite": "Wang et al. 2022, …", "where": "…", "heads": {"name mover": ["L9H9", …]}, "note": "…"}]}

`shape` has fields of `ModelConfig`, all of which must match the open model. The model is then recognised by its fingerprint
(`sha256` of its weights and `settings`, the hash of configuration and tokenizer, as `circuitlab info --json` prints them), by its
name on the hub, or by that shape alone. A fine-tuned copy has the same
shape: whatever matched, a published role is a hint about a head, not a finding on it, and states its source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Literal

from circuitlab.disk.json_types import JsonObject
from circuitlab.disk.paths import resource
from circuitlab.errors import BadModel, CircuitLabError, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.origin import Hub, origin_of
from circuitlab.model.sources.hub import HubName
from circuitlab.model.subject import Head

YOURS = "your note: "  # before what the person has noted
By = Literal["fingerprint", "name", "shape"]
FIELDS = ("model", "names", "shape", "sha256", "settings", "sources")
OF_A_SOURCE = ("cite", "where", "heads", "note")


@dataclass(frozen=True)
class Role:
    """A head's published name: `cite` is the work, `where` the place in it (or in its code) that lists the head."""

    name: str
    cite: str
    where: str


@dataclass(frozen=True, eq=False)
class Published:
    """One file: the roles of heads of one public model, and how that model is recognised."""

    model: str
    names: tuple[str, ...]
    shape: JsonObject
    sha256: tuple[str, ...]
    roles: Mapping[Head, tuple[Role, ...]]
    notes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def about(self, config: ModelConfig, source: str, sha256: str, settings: str) -> By | None:
        """The evidence that the open model is this file's, None where it is another."""
        if any(getattr(config, name) != value for name, value in self.shape.items()):
            return None
        if sha256 in self.sha256 and settings in self.settings:
            return "fingerprint"
        return "name" if isinstance(origin_of(source), Hub) and HubName.parse(source).repo in self.names else "shape"


def _yours(note: str) -> str:
    """A note as it is shown, "" for none: `your note: copies names`."""
    return f"{YOURS}{note}" if note else ""


@dataclass(frozen=True, eq=False)
class KnownHeads:
    """What is known of the open model's heads: their published roles, and `by` which evidence the model was recognised, if any
    are; and the person's own `notes` on them and on `edges` between two, by source and destination, each
    in one line: `copies names`.
    """

    published: Published | None
    by: By = "shape"
    notes: Mapping[Head, str] = field(default_factory=dict[Head, str])
    edges: Mapping[tuple[Head, Head], str] = field(default_factory=dict[tuple[Head, Head], str])

    @property
    def model(self) -> str:
        """The name of the model that the papers are about, "" without any."""
        return "" if self.published is None else self.published.model

    @property
    def how(self) -> str:
        """How the model was recognised, in words; "" where nothing is published."""
        if self.published is None:
            return ""
        return {
            "fingerprint": f"this is {self.model} by its fingerprint",
            "name": f"this is {self.model} by its name",
            "shape": f"this has the shape of {self.model}, which a fine-tuned or another model may have too",
        }[self.by]

    @property
    def roles(self) -> Mapping[Head, tuple[Role, ...]]:
        """The published roles by head."""
        return {} if self.published is None else self.published.roles

    @cached_property
    def hints(self) -> Mapping[tuple[int, int], str]:
        """`words` of every head that has any, by layer and head."""
        return {head: self.words(head) for head in (*self.roles, *(head for head in self.notes if head not in self.roles))}

    @cached_property
    def edge_hints(self) -> Mapping[tuple[Head, Head], str]:
        """What is shown of every edge that has a note."""
        return {edge: _yours(text) for edge, text in self.edges.items()}

    @property
    def cites(self) -> tuple[str, ...]:
        """The works cited, each once."""
        return tuple(dict.fromkeys(role.cite for roles in self.roles.values() for role in roles))

    def short(self, head: Head) -> str:
        """The head's roles alone, "" for none: `name mover`."""
        return ", ".join(dict.fromkeys(role.name for role in self.roles.get(head, ())))

    def words(self, head: Head) -> str:
        """The hint with its source, and the person's note; "" for none:
        `published for GPT-2 small: name mover (Wang et al. 2022, indirect objects) · your note: looks at commas`.
        """
        roles = self.roles.get(head, ())
        cited = "; ".join(f"{role.name} ({role.cite})" for role in roles)
        hint = f"published for {self.model}{' (only the shape fits)' if self.by == 'shape' else ''}: {cited}" if roles else ""
        return " · ".join(filter(None, (hint, _yours(self.notes.get(head, "")))))

    def key(self, edges: Collection[tuple[Head, Head]]) -> str:
        """What a mark on a head or on one of these edges means, "" where none is marked: `named in papers`, `your note`."""
        noted = self.notes or any(edge in self.edges for edge in edges)
        return " or ".join(filter(None, ("named in papers" if self.roles else "", "your note" if noted else "")))

    def note_texts(self, edges: Collection[tuple[Head, Head]]) -> tuple[str, ...]:
        """The notes on heads and on these edges, each with what it is on: `L1H1 “copies names”`."""
        on_edges = {_arrow(edge): text for edge, text in self.edges.items() if edge in edges}
        notes = {**{str(head): text for head, text in self.notes.items()}, **on_edges}
        return tuple(f"{on} “{text}”" for on, text in notes.items())

    @property
    def caption(self) -> str:
        """For a caption: the model, the works, and how the model was recognised; and what has a note of one's own."""
        hints = f"heads published for {self.model}: {'; '.join(self.cites)}: hints, {self.how}" if self.roles else ""
        noted = ", ".join((*map(str, self.notes), *map(_arrow, self.edges)))
        return "; ".join(filter(None, (hints, f"your notes: {noted}" if noted else "")))


@lru_cache(maxsize=16)
def known_heads(config: ModelConfig, source: str, sha256: str = "", settings: str = "") -> KnownHeads | None:
    """What is published of a model's heads; `source` as in `ModelRef`, `sha256` and `settings` "" while they have not been read.

    The surest match of all files. Raises nothing: files that cannot be read are `complaints()`.
    """
    matches = [KnownHeads(file, by) for file in _shipped()[0] if (by := file.about(config, source, sha256, settings)) is not None]
    return min(matches, key=lambda m: ("fingerprint", "name", "shape").index(m.by), default=None)


@lru_cache(maxsize=16)
def with_notes(
    known: KnownHeads | None, notes: tuple[tuple[Head, str], ...], edges: tuple[tuple[tuple[Head, Head], str], ...] = ()
) -> KnownHeads | None:
    """The same with notes on heads and edges; the same object for the same notes, so that nothing is drawn again for them."""
    return replace(known or KnownHeads(None), notes=dict(notes), edges=dict(edges)) if notes or edges else known


def _arrow(edge: tuple[Head, Head]) -> str:
    return f"{edge[0]}→{edge[1]}"


def complaints() -> tuple[str, ...]:
    """What is wrong with the shipped files, one line each."""
    return _shipped()[1]


@cache
def _shipped() -> tuple[tuple[Published, ...], tuple[str, ...]]:
    good, bad = [], []
    for file in sorted(resource("known_heads").glob("*.json")):
        try:
            good.append(read(file))
        except CircuitLabError as error:
            bad.append(" ".join(str(error).split()))
    return tuple(good), tuple(bad)


def read(file: Path) -> Published:
    """One file. Raises `BadModel` with the file's name and what is wrong."""
    data = read_object(file)
    name = file.name
    _check(name, data, FIELDS, ("model", "shape", "sources"))
    shape, sources = data["shape"], data["sources"]
    if not isinstance(data["model"], str) or not isinstance(shape, dict) or not isinstance(sources, list):
        raise _bad(name, "model: a name, shape: an object, sources: a list", "another kind of value")
    if unknown := sorted(set(shape) - set(ModelConfig.__dataclass_fields__)):
        raise _bad(name, "fields of a model's configuration in shape", ", ".join(unknown)[:80])
    if not {"n_layers", "n_heads"} <= set(shape):
        raise _bad(name, "n_layers and n_heads in shape", ", ".join(shape) or "nothing")
    texts = {key: _texts(name, key, data.get(key, [])) for key in ("names", "sha256", "settings")}
    roles: dict[Head, tuple[Role, ...]] = {}
    notes: list[str] = []
    for source in sources:
        _check(name, source, OF_A_SOURCE, ("cite", "where", "heads"))
        for head, role in _roles(name, source, shape):
            roles[head] = (*roles.get(head, ()), role)
        notes += [source["note"]] if "note" in source else []
    return Published(data["model"], texts["names"], shape, texts["sha256"], roles, _texts(name, "note", notes), texts["settings"])


def _roles(file: str, source: Mapping[str, object], shape: JsonObject) -> list[tuple[Head, Role]]:
    """(head, role) of one source."""
    cite, where = _texts(file, "cite and where", [source["cite"], source["where"]])
    if not isinstance(source["heads"], dict):
        raise _bad(file, "heads: lists of heads by role", type(source["heads"]).__name__)
    roles = []
    for name, listed in source["heads"].items():
        for text in _texts(file, name, listed):
            try:
                head = Head.parse(text)
            except CircuitLabError as error:
                raise _bad(file, f"{name}: heads such as L9H6", error.got) from error
            if head.layer >= shape["n_layers"] or head.head >= shape["n_heads"]:
                raise _bad(file, f"{name}: heads below L{shape['n_layers']}H{shape['n_heads']}", text)
            roles.append((head, Role(name, cite, where)))
    return roles


def _check(file: str, data: object, allowed: tuple[str, ...], needed: tuple[str, ...]) -> None:
    if not isinstance(data, dict):
        raise _bad(file, f"an object with {', '.join(needed)}", type(data).__name__)
    if unknown := sorted(set(data) - set(allowed)):
        raise _bad(file, ", ".join(allowed), ", ".join(unknown)[:80])
    if missing := [key for key in needed if key not in data]:
        raise _bad(file, ", ".join(needed), f"no {', '.join(missing)}")


def _texts(file: str, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _bad(file, f"{key}: a list of texts", quoted(value))
    return tuple(value)


def _bad(file: str, expected: str, got: str) -> BadModel:
    return BadModel(
        f"{file} cannot be read: it lists published heads.", expected=expected, got=got, remedy="Correct the file, or remove it."
    )
