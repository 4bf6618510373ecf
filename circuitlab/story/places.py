"""The names in a story that are places: models and files by their paths from the story's own file, `./mine` or `../runs/mine`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.origin import File
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value

LOCAL = ("./", "../", "/", str(File("")))  # how a path begins, which tells it from a model's name
AnyStory = TypeVar("AnyStory", bound=Story)


def real_folder(file: Path) -> Path:
    """The folder in which a file lies, whatever links lead to it: paths in the file are relative to it."""
    return Path(os.path.realpath(file)).parent


def absolute(path: str, folder: Path) -> str:
    """The absolute path of a place that a file in `folder` names."""
    return os.path.normpath(os.path.join(folder, path.removeprefix(LOCAL[-1])))


def with_absolute_models(story: AnyStory, folder: Path) -> AnyStory:
    """The story with its models' relative paths as those from `folder`."""
    place = lambda name: str(File(absolute(name, folder))) if name is not None and name.startswith(LOCAL[:2]) else name
    return with_setups(story, lambda words: replace(words, model=place(words.model)), lambda value: value)


def file_controls(view: type[Any]) -> tuple[str, ...]:
    """The controls of a panel that name a file."""
    return tuple(f.name for f in fields(view) if f.metadata.get("kind") == "file")


def with_absolute_files(view: type[object], controls: JsonObject, folder: Path) -> JsonObject:
    """A panel's controls with the paths of files that begin as in `LOCAL` as those from `folder`."""
    names = file_controls(view)
    local = lambda name, value: name in names and isinstance(value, str) and value.startswith(LOCAL)
    return {name: absolute(value, folder) if local(name, value) else value for name, value in controls.items()}


def with_setups(story: AnyStory, change: Callable[[Setup], Setup], value: Callable[[Value], Value]) -> AnyStory:
    """The story with each setup changed, those of pins and of values on other subjects too, and then each value."""

    def setup(words: Setup) -> Setup:
        pins = tuple(map(pin, words.pin)) if isinstance(words.pin, tuple) else words.pin
        return change(replace(words, pin=pins))

    def pin(one: Other | Setup) -> Other | Setup:
        return replace(one, words=setup(one.words)) if isinstance(one, Other) else setup(one)

    def with_other(one: Value) -> Value:
        return value(one if one.other is None else replace(one, other=replace(one.other, words=setup(one.other.words))))

    def step(one: Step) -> Step:
        return replace(one, setup=None if one.setup is None else setup(one.setup), values=tuple(map(with_other, one.values)))

    return replace(story, steps=tuple(map(step, story.steps)))
