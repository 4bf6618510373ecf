"""The text of a session file: what is written is read again, and what this version does not know is written back."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.session_files.file_table import with_file_names, with_file_paths
from circuitlab.session_files.migrations import VERSION
from circuitlab.session_files.model_search import located
from circuitlab.session_files.session import UNCHOSEN, FileEntry, ModelEntry, Note, Session
from circuitlab.session_files.session_text import LARGEST, bytes_of, parse_session, read_session
from circuitlab.story.setup import Direction, Encoded, Index, Occurrence, Other, Random, Setup, Sweep
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from circuitlab.story.zoom import TablePart

FOLDER = Path("/somewhere/talks")
VIEWS = view_types()

# -- sessions of every kind ---------------------------------------------------------------------------------------------------

texts = st.text(st.characters(codec=None), max_size=8)  # any code point, halves of surrogate pairs too
names = st.text(st.sampled_from("abc ü/."), min_size=1, max_size=6).filter(str.strip)
whole = st.integers(0, 99)
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


def unknown() -> st.SearchStrategy[dict[str, Any]]:
    """Words that no version knows."""
    return st.dictionaries(texts.map(lambda text: f"of tomorrow {text}"), plain, max_size=1)


heads = st.builds("L{}H{}".format, st.integers(0, 9), st.integers(0, 9))
some_heads = st.lists(heads | st.just("best prefix_matching"), min_size=1, max_size=3).map(tuple)
checkpoints = whole | st.just("final") | st.builds(Index, whole)
prompts = (
    texts
    | st.lists(whole, max_size=3).map(tuple)
    | st.builds(Encoded, texts, st.lists(whole, max_size=3).map(tuple))
    | st.builds(Random, st.integers(1, 9), st.integers(1, 9), whole)
)
sites = st.builds(Site, st.sampled_from(["z", "pattern"]), whole, st.lists(whole, max_size=2).map(tuple), st.just(()))
interventions = st.builds(Intervention, st.sampled_from(["zero", "freeze"]), sites) | st.builds(
    Intervention, st.just("set"), sites, st.lists(numbers, min_size=1, max_size=3).map(tuple)
)
paths = st.builds(Intervention, st.just("zero"), st.just(Site("q", 2)), path_from=st.just(Site("result", 1, (3,))))
places = st.integers(-9, 99) | st.just(()) | st.builds(Occurrence, texts.filter(bool), st.sampled_from([-2, -1, 1, 3]))
tokens = texts | whole
targets = st.lists(texts.filter(bool) | whole, max_size=2).map(tuple) | st.builds(
    Direction, st.lists(numbers, min_size=1, max_size=3).map(tuple)
)
edits = st.lists(st.tuples(interventions | paths, st.booleans()), max_size=2).map(tuple)
subject = {
    "model": names,
    "checkpoint": checkpoints,
    "prompt": prompts,
    "bos": st.booleans(),
    "conventions": st.builds(Conventions, st.booleans(), st.booleans(), st.sampled_from(["float32", "float64"])),
}
selection = {
    "heads": some_heads,
    "edge": st.just(()) | st.tuples(heads, heads),
    "edge_kind": st.sampled_from("QKV"),
    "destination": places,
    "source": places,
    "locked": st.booleans(),
    "token": tokens,
    "target": targets,
}


real = st.floats(-1e9, 1e9, allow_nan=False)
counts = st.none() | st.integers(2, 2000)
sweeps = st.builds(Sweep, st.sampled_from(["offset", "n_ctx"]), st.integers(-9, 99), st.integers(-9, 99), counts)
sweeps |= st.builds(Sweep, st.sampled_from(["alpha", "base"]), real, real, counts)


@st.composite
def setups(draw: st.DrawFn, pins: bool = True, words: tuple[str, ...] = ()) -> Setup:
    """Words of every kind; `words`: those alone."""
    box = st.sampled_from([2, 4]).flatmap(lambda n: st.lists(numbers, min_size=n, max_size=n).map(tuple))
    rows, ways = st.tuples(st.integers(0, 99), st.integers(0, 99)), st.tuples(texts, st.sampled_from(["up", "down"]))
    part = box | st.builds(TablePart, st.none() | rows, st.none() | st.just(()) | ways, texts)
    every = {**subject, **selection, "draft": texts, "compare": st.sampled_from(["now", "reference", "difference"])}
    every |= {"show": st.lists(names, max_size=2).map(tuple), "arrange": names, "alone": st.booleans()}
    every |= {"stage": st.lists(names, max_size=2).map(tuple)}
    every |= {"zoom": st.dictionaries(names, part, max_size=2), "play": st.tuples(checkpoints, checkpoints) | sweeps}
    every |= {"view": st.dictionaries(names, st.dictionaries(texts, plain, max_size=2), max_size=2)}
    chosen = draw(st.sets(st.sampled_from(sorted(set(words) or set(every))), max_size=6))
    values = {name: draw(every[name]) for name in sorted(chosen)}
    values |= draw(st.sampled_from([{}, {"cut": draw(some_heads)}, {"cut": ()}, {"edits": draw(edits)}]))
    if pins and draw(st.booleans()):
        one = st.builds(Other, setups(False, (*subject, *selection)), texts) | setups(False)
        values["pin"] = draw(st.just("before") | st.lists(one, max_size=2).map(tuple))
    return Setup(**values, unknown=draw(unknown()))


@st.composite
def values(draw: st.DrawFn) -> Value:
    other = draw(st.none() | st.builds(Other, setups(False, tuple(subject)).filter(lambda s: s != Setup(unknown=s.unknown))))
    more = draw(unknown()) if other is None else dict(other.words.unknown)
    other = None if other is None else Other(Setup(**{n: getattr(other.words, n) for n in (*subject, "cut", "edits")}))
    form = draw(st.sampled_from([".2f", "head", "+.3f"]))
    params = draw(st.dictionaries(texts, plain, max_size=2))
    return Value(draw(value_names), "token_loss", params, "loss[-1]", form, draw(st.booleans()), other, draw(texts), more)


value_names = st.from_regex(r"\A[a-z][a-z0-9_]{0,5}\Z")
several_values = st.lists(values(), max_size=2, unique_by=lambda value: value.name).map(tuple)
steps = st.builds(Step, texts, texts, st.none() | setups(), several_values, texts, unknown())
stories = st.builds(Story, texts, st.lists(steps, max_size=3).map(tuple), texts, st.integers(0, 60), texts, unknown())
places_on_disk = st.sampled_from(["/somewhere/models/mine", "/somewhere/talks/mine", "/elsewhere/ä b", "/mine"])
sources = places_on_disk.map("file:{}".format) | st.sampled_from(["builtin:attn-only-2l", "hub:a/b@c", "construct:x?y=1"])
assumed = st.dictionaries(texts, texts.filter(lambda text: "\0" not in text), max_size=2).map(
    lambda assume: tuple(sorted(assume.items()))
)
entries = st.builds(
    ModelEntry,
    st.builds(ModelRef, sources, st.none(), assumed),
    st.sampled_from(["", "77ab"]),
    st.lists(places_on_disk, max_size=2).map(tuple),
    st.sampled_from(["", "5e77"]),
    unknown(),
)
about = st.sampled_from(["", "model", "head", "edge", "token", "panel"])
notes = st.one_of(
    st.builds(Note, texts, texts, unknown=unknown()),
    st.builds(Note, texts, texts, head=heads, unknown=unknown()),
    st.builds(Note, texts, texts, edge=st.tuples(heads, heads), unknown=unknown()),
    st.builds(Note, texts, texts, token=texts.filter(bool) | st.integers(0, 9), unknown=unknown()),
    st.builds(Note, texts, texts, panel=texts, unknown=unknown()),
)
sessions = st.builds(
    Session,
    st.dictionaries(texts, entries, max_size=2),
    setups(),
    stories,
    st.lists(notes, max_size=3).map(tuple),
    st.dictionaries(texts, st.builds(FileEntry, places_on_disk, st.sampled_from(["", "03fe"]), unknown()), max_size=2),
    texts,
    unknown(),
    st.lists(st.sampled_from(UNCHOSEN), unique=True).map(tuple),
)


# -- laws ---------------------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(session=sessions)
def test_what_is_written_is_read_again_and_written_alike(session: Session) -> None:
    data = bytes_of(session, FOLDER)
    again = parse_session(data, FOLDER)
    assert again == session
    assert bytes_of(again, FOLDER) == data
    moved = parse_session(data, Path("/other/talks"))
    assert bytes_of(moved, Path("/other/talks")) == data, "no place of its own is in a file"


def test_the_text_is_one_that_a_person_can_read() -> None:
    steps = (Step("The head", "Looks back.", Setup(heads=("L1H1",), show=("attention",), alone=True)), Step("The end"))
    models = {"mine": ModelEntry(ModelRef("file:/somewhere/runs/mine"), "77ab")}
    session = Session(models, Setup(model="mine", prompt=Encoded("Ä b", (0, 34))), Story("Talk", steps))
    assert bytes_of(session, FOLDER).decode("utf-8").splitlines()[3:] == [
        ' "by": ' + bytes_of(session, FOLDER).decode().split('"by": ')[1].splitlines()[0],
        ' "models": {',
        '  "mine": {"path": "../runs/mine", "sha256": "77ab"}',
        " },",
        ' "now": {',
        '  "model": "mine",',
        '  "text": "Ä b",',
        '  "tokens": [0, 34]',
        " },",
        ' "story": {',
        '  "title": "Talk",',
        '  "steps": [',
        "   {",
        '    "title": "The head",',
        '    "text": "Looks back.",',
        '    "set": {',
        '     "heads": ["L1H1"],',
        '     "show": ["attention"],',
        '     "alone": true',
        "    }",
        "   },",
        '   {"title": "The end"}',
        "  ]",
        " }",
        "}",
    ]


def text(**more: Any) -> bytes:
    return json.dumps({"circuitlab": "session", "version": VERSION, **more}).encode()


def test_words_of_tomorrow_survive_wherever_they_may_stand() -> None:
    more: dict[str, Any] = {"of tomorrow": {"x": [1, None]}}
    value = {"analysis": "token_loss", "read": "mean", "format": ".2f", **more}
    setup = {"heads": ["L0H1"], "pin": [{"cut": [], **more}, {"heads": ["L0H0"], **more, "whole": True}], **more}
    table = {
        "models": {"mine": {"path": "mine", **more}},
        "files": {"names": {"path": "names.tsv", **more}},
        "now": {**setup, "view": {"attention": more, "a panel of tomorrow": more}, **more},
        "notes": [{"text": "a note", **more}],
        "story": {"steps": [{"title": "One", "set": setup, "values": {"loss": value}, **more}], **more},
    }
    written = json.loads(bytes_of(parse_session(text(**table, **more), FOLDER), FOLDER))
    assert {name: written[name] for name in table} == table and written["of tomorrow"] == more["of tomorrow"]


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(BadInput) as refusal:
        parse_session(text(version=VERSION + 1, by="7.8.9", of_tomorrow=[1]), FOLDER)
    assert "7.8.9" in str(refusal.value)


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"now": {"heads": ["L1"]}}, "now.heads"),
        ({"now": {"pin": {"heads": 3}}}, "now.pin"),
        ({"now": {"zoom": {"a": [1, 2, 3, 10**400]}}}, "now.zoom"),
        ({"now": []}, "now"),
        ({"models": {"m": {"path": "a", "source": "b:c"}}}, "models.m"),
        ({"models": {"m": {"source": "no kind"}}}, "models.m"),
        ({"models": {"m": {"path": "a\0b"}}}, "models.m"),
        ({"models": {"m": {"path": "a", "was": [1]}}}, "models.m"),
        ({"files": {"f": {"path": ""}}}, "files.f"),
        ({"notes": [{"text": "a"}, {"head": "nobody"}]}, "notes[1]"),
        ({"notes": [{"head": "L0H0", "panel": "attention"}]}, "notes[0]"),
        ({"story": {"steps": [{"set": {"bos": 1}}]}}, "story.steps[0].set.bos"),
        ({"story": {"steps": [{"values": {"x": {"analysis": "a"}}}]}}, "story.steps[0].values.x"),
        ({"story": {"minutes": -1}}, "story.minutes"),
        ({"docks": 1}, "docks"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(more: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_session(text(**more), FOLDER)
    assert f"{where}" in str(refusal.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"circuitlab": "session"}',
        b'{"circuitlab": "session", "version": 0}',
        b'{"circuitlab": "session", "version": true}',
        b'{"circuitlab": "session", "version": 1, "x": NaN}',
        b'{"circuitlab": "session", "version": 1, "x": 1e999}',
        b'{"circuitlab": "session", "version": 1, "x": ' + b"[" * 70 + b"]" * 70 + b"}",
        b"[" * 100_000,
        b'{"circuitlab": "session", "version": 1, "x": [' + b"[]," * 2**20 + b"[]]}",
        b"\xff\xfe",
    ],
    ids=range(13),
)
def test_what_is_no_session_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        parse_session(data, FOLDER)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large.circuitlab").write_bytes(b" " * (LARGEST + 1))
    for path in (tmp_path, tmp_path / "nobody.circuitlab", tmp_path / "large.circuitlab"):
        with pytest.raises(CircuitLabError):
            read_session(path)


def test_relative_paths_are_those_of_the_folder_in_which_the_file_lies(tmp_path: Path) -> None:
    """A link to a folder, or to the file itself, leads to the same models."""
    (tmp_path / "data" / "talks").mkdir(parents=True)
    (tmp_path / "desk").mkdir()
    file = tmp_path / "data" / "talks" / "talk.circuitlab"
    session = Session({"mine": ModelEntry(ModelRef(f"file:{tmp_path / 'data' / 'mine'}"))})
    file.write_bytes(bytes_of(session, file.parent))
    (tmp_path / "desk" / "talks").symlink_to(file.parent)
    (tmp_path / "desk" / "link.circuitlab").symlink_to(file)
    for path in (file, tmp_path / "desk" / "talks" / file.name, tmp_path / "desk" / "link.circuitlab"):
        assert read_session(path) == session
    assert bytes_of(session, tmp_path / "desk" / "talks") == file.read_bytes()


# -- a person's own files -----------------------------------------------------------------------------------------------------


def test_every_panel_that_names_a_file_does_it_through_the_table(tmp_path: Path) -> None:
    file, other = tmp_path / "names.tsv", tmp_path / "deep" / "names.tsv"
    other.parent.mkdir()
    file.write_text("a\tb\n")
    other.write_text("c\td\n")
    now = Setup(view={"term_importance": {"on": "file", "file": str(file)}, "induction": {"file": str(other)}})
    step = Step("One", setup=Setup(view={"prompt_sets": {"file": str(file)}, "of tomorrow": {"file": str(file)}}))
    session = Session(now=now, story=Story(steps=(step, Step("Two"))))
    named = with_file_names(session, VIEWS)
    assert with_file_paths(named) == Session(now=now, story=session.story, files=named.files)
    assert {name: entry.path for name, entry in named.files.items()} == {"names": str(file), "names 2": str(other)}
    table = json.loads(bytes_of(named, tmp_path / "deep"))
    assert table["now"]["view"] == {
        "term_importance": {"on": "file", "file": {"file": "names"}},
        "induction": {"file": {"file": "names 2"}},
    }
    assert [entry["path"] for entry in table["files"].values()] == ["../names.tsv", "names.tsv"]
    assert parse_session(bytes_of(named, tmp_path), tmp_path) == named
    assert with_file_names(with_file_paths(named), VIEWS) == named, "saved again"
    of_files = lambda view: any(field.metadata.get("kind") == "file" for field in dataclasses.fields(view))
    assert {name for name, view in VIEWS.items() if of_files(view)} == {
        *("circuits", "induction", "prompt_sets", "term_importance"),
    }


def test_files_that_moved_are_found_by_their_hash_and_others_are_told(tmp_path: Path) -> None:
    for name in ("here", "changed", "moved", "gone"):
        (tmp_path / name).write_text(name)
    view = {f"panel {name}": {"file": {"file": name}} for name in ("here", "changed", "moved", "gone", "never")}
    files = {name: with_one(tmp_path / name) for name in ("here", "changed", "moved", "gone")}
    session = Session(now=Setup(view=view), files=files)
    (tmp_path / "beside").mkdir()
    os.rename(tmp_path / "moved", tmp_path / "beside" / "moved")
    (tmp_path / "changed").write_text("something else")
    (tmp_path / "beside" / "gone").write_text("something of the same name")
    (tmp_path / "gone").unlink()
    found = located(session, tmp_path / "beside", ModelStore())
    assert (found.missing_files, found.changed_files) == (("gone",), ("changed",))
    assert found.session.files["moved"].path == str(tmp_path / "beside" / "moved")
    paths = with_file_paths(found.session).now.view
    assert paths["panel gone"] == {"file": str(tmp_path / "gone")}, "never another file of the same name"
    assert paths["panel never"] == {"file": {"file": "never"}}


def with_one(path: Path) -> FileEntry:
    """The entry of a file."""
    named = with_file_names(Session(now=Setup(view={"term_importance": {"file": str(path)}})), VIEWS)
    return named.files[path.stem]
