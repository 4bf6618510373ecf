"""A session's story for a lesson, and a lesson's story for a session: models and files by names that need no table.

In a lesson a model is named as on the command line: `attn-only-2l`, `hub:OWNER/NAME`, `construct:…`, a name of the catalogue; a
person's own model or file by its path from the lesson's folder, `./mine` or `../runs/mine`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.paths import shipped_models
from circuitlab.engine.store import reference
from circuitlab.errors import BadInput
from circuitlab.model.catalogue.places import name_of
from circuitlab.model.origin import Builtin, File
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.assembly import with_paths
from circuitlab.session_files.file_table import with_file_names
from circuitlab.session_files.model_table import Models, mentioned, with_models
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_text import bytes_of, parse_session
from circuitlab.story.places import LOCAL, absolute, file_controls, real_folder, with_setups
from circuitlab.story.setup import Setup, Views
from circuitlab.story.story import Step, Story

Name = Callable[[str], str]


@dataclass(frozen=True)
class LessonStory:
    """A story as a lesson says it. `local`: models and files in it that are a person's own, by their paths from the lesson.

    `assumed`: the models whose assumed settings a lesson does not hold. `notes`: how many notes it does not hold.
    """

    story: Story
    local: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    notes: int = 0

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person who passes the lesson on must know, a sentence each."""
        paths = f"Named by their paths from the lesson, to be passed on with it: {', '.join(self.local)}." if self.local else ""
        assumed = f"Not in the lesson: the assumed settings of {', '.join(self.assumed)}." if self.assumed else ""
        notes = f"Not in the lesson, which has no place for them: {number_of(self.notes, 'note')}." if self.notes else ""
        return tuple(filter(None, (paths, assumed, notes)))


# -- to a lesson --------------------------------------------------------------------------------------------------------------


def for_lesson(session: Session, path: Path, views: Views) -> LessonStory:
    """The story of a session for a lesson at `path`, by whose name a story is called that has no title."""
    story, folder = with_paths(session).story, real_folder(path)
    story = replace(story, title=story.title or path.stem)
    entries = {name: session.models[name] for name in sorted(mentioned(Setup(), story, ())) if name in session.models}
    names = {name: _lesson_name(entry.ref, folder) for name, entry in entries.items()}
    paths: dict[str, str] = {}

    def file_name(path: str) -> str:
        return paths.setdefault(path, _relative(path, folder)) if os.path.isabs(path) else path

    story = _renamed(story, lambda name: names.get(name, name), views, file_name)
    local = [name for name in names.values() if name.startswith(LOCAL)]
    assumed = [names[name] for name, entry in entries.items() if entry.ref.assume]
    local = tuple(dict.fromkeys((*local, *paths.values())))
    return LessonStory(_without_null(story), local, tuple(dict.fromkeys(assumed)), len(session.notes))


def _lesson_name(ref: ModelRef, folder: Path) -> str:
    """How a lesson in `folder` names a model."""
    if name := name_of(ref):
        return name
    match ref.origin:
        case File(path):
            return _relative(path, folder)
        case Builtin(name) if name in shipped_models():
            return name
    return ref.source


def _relative(path: str, folder: Path) -> str:
    """A path as seen from a folder, told from a model's name by its first character; absolute on another drive."""
    try:
        text = Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return str(File(Path(path).as_posix()))
    return text if text.startswith("../") else f"./{text}"


def _without_null(story: Story) -> Story:
    """The story with settings and parameters that are null by their name in text, "none": TOML has no null."""
    named = lambda table: {name: "none" if value is None else value for name, value in table.items()}
    setup = lambda setup: replace(setup, view={panel: named(controls) for panel, controls in setup.view.items()})
    return with_setups(story, setup, lambda value: replace(value, params=named(value.params)))


# -- to a session -------------------------------------------------------------------------------------------------------------


def with_lesson(models: Models, story: Story, folder: Path, views: Views) -> tuple[Models, Story]:
    """(the table of models with those of the lesson, its story with the names of that table). A model that the table has, with
    whatever is assumed of it, is that one.

    `folder`: of the lesson. Raises `UsageError` for a name that no model can have, `BadInput` for words that are TOML but not
    JSON.
    """
    refs = {name: _reference(name, folder) for name in sorted(mentioned(Setup(), story, ()))}
    sources = {entry.ref.source for entry in models.values()}
    table = with_models(models, (ref for ref in refs.values() if ref.source not in sources))
    names = {entry.ref.source: name for name, entry in reversed(tuple(table.items()))}
    file_name = lambda path: absolute(path, folder) if path.startswith(LOCAL) else path
    story = _renamed(story, lambda name: names[refs[name].source], views, file_name)
    for number, step in enumerate(story.steps, 1):
        _check_kept(number, step)
    return table, story


def session_of_lesson(story: Story, folder: Path, views: Views) -> Session:
    """The session of a lesson's story, standing at its first step."""
    models, story = with_lesson({}, story, folder, views)
    now = replace(story.setup(0), play=None)
    return with_file_names(Session({name: models[name] for name in mentioned(now, story, ())}, now, story), views)


def _reference(name: str, folder: Path) -> ModelRef:
    if name.startswith(LOCAL) and "\0" not in name:
        return ModelRef.of(File(absolute(name, folder)))
    return ModelRef.of(Builtin(name)) if name in shipped_models() else reference(name)


def _check_kept(number: int, step: Step) -> None:
    """Raise `BadInput` for what TOML has and a session file has not: a date, a NaN, an infinity, deep nesting."""
    session, folder, reason = Session(story=Story(steps=(step,))), Path("/"), "it is read again as another step"
    try:
        if parse_session(bytes_of(session, folder), folder) == session:
            return
    except BadInput as error:
        reason = f"{error.expected}: {error.got}"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    what = f"Step {number}, ‘{step.title[:60]}’, cannot be kept in a session."
    raise BadInput(
        what,
        expected="texts, finite numbers, true, false, lists and tables",
        got=reason[:120],
        remedy="Change the step in the lesson's file, or take it out.",
    )


# -- names --------------------------------------------------------------------------------------------------------------------


def _renamed(story: Story, model: Name, views: Views, file: Name) -> Story:
    """The story with other names of its models and of the files that settings of panels name."""

    def controls(panel: str, words: Mapping[str, object]) -> JsonDict:
        named = file_controls(views[panel]) if panel in views else ()
        return {n: file(value) if n in named and isinstance(value, str) and value else value for n, value in words.items()}

    def setup(words: Setup) -> Setup:
        view = {panel: controls(panel, inner) for panel, inner in words.view.items()}
        return replace(words, model=model(words.model) if words.model is not None else None, view=view)

    return with_setups(story, setup, lambda value: value)
