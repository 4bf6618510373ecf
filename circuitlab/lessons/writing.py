"""A story as the Markdown of a lesson: what `lesson.parse` reads from it is the same story again.

Titles and texts are written as they are. One that Markdown would not give back (a text with a `## ` heading or an open fence, a
title with spaces around it) stands word for word in the block of its step, under `[exactly]`. The text is read again before it is
returned, so that a lesson is never another story than the one that was to be written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path

from circuitlab.errors import BadInput, stated
from circuitlab.lessons.lesson import EXACTLY, LARGEST, parse
from circuitlab.lessons.toml_text import Refuse, long_string, toml_lines
from circuitlab.model.plain import to_json
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import value_table
from circuitlab.story.words import table_of

_END = Step("The end")  # behind a step: a fence that its text leaves open would take it in


def markdown_of(story: Story) -> str:
    """The text of a lesson's file. Raises `BadInput`, naming the step, for what a lesson cannot hold.

    That is: a story without steps, words that this version does not know, null, text that is not Unicode, more than `LARGEST`
    bytes.
    """
    if not story.steps:
        raise BadInput(
            "A story without steps is not a lesson.",
            expected="at least one step",
            got="none",
            remedy="Add a view to the story first.",
        )
    whole = lambda where, expected, got: _refusal(f"The story’s {where}", expected, got)
    _check_known(story.unknown, "", whole)
    steps = [_step_text(number, step) for number, step in enumerate(story.steps, 1)]
    text = "\n\n".join((_front_text(story, whole), *steps)) + "\n"
    if (size := len(text.encode("utf-8"))) > LARGEST:
        raise BadInput(
            "The story is too long for one lesson.",
            expected=f"at most {LARGEST} bytes",
            got=str(size),
            remedy="Take out steps or shorten their texts; the session keeps them all.",
        )
    _check_same(story, _as_read(text))
    return text


def _refusal(what: str, expected: str, got: object) -> BadInput:
    remedy = "Keep it as a .circuitlab session, which holds everything, or change this and export again."
    return BadInput(f"{what} cannot be written in a lesson.", expected=expected, got=stated(got), remedy=remedy)


def _as_read(text: str) -> Story:
    """The story that the text gives as a file, in which every line end is \\n."""
    return parse(re.sub("\r\n?", "\n", text), Path("story.md"))


def _check_same(story: Story, again: Story) -> None:
    for number, (step, read) in enumerate(zip(story.steps, again.steps, strict=False), 1):
        if step != read:
            raise _refusal(f"Step {number}, ‘{step.title[:60]}’,", "a step that is read again as it is", "another one")
    if any(getattr(story, f.name) != getattr(again, f.name) for f in fields(Story)):
        raise _refusal("The story", "a story that is read again as it is", "another one")


def _check_known(unknown: Collection[str], where: str, refuse: Refuse) -> None:
    if unknown:
        raise refuse(f"{where}{next(iter(unknown))}", "words that this version knows", " ".join(unknown))


def _check_setup(setup: Setup, refuse: Refuse) -> None:
    _check_known(setup.unknown, "", refuse)
    for pin in setup.pin if isinstance(setup.pin, tuple) else ():
        _check_setup(pin.words if isinstance(pin, Other) else pin, lambda where, *rest: refuse(f"pin.{where}", *rest))


def _front_text(story: Story, refuse: Refuse) -> str:
    words = {name: getattr(story, name) for name in ("about", "minutes", "tiny") if getattr(story, name)}
    return "\n".join(("+++", *toml_lines({"title": story.title, **words}, (), refuse), "+++"))


def _step_text(number: int, step: Step) -> str:
    """A step: heading, block, text, aside."""
    refuse = lambda where, expected, got: _refusal(f"Step {number}, ‘{step.title[:60]}’: {where}", expected, got)
    _check_known(step.unknown, "", refuse)
    exactly = {name: getattr(step, name) for name in ("title", "text", "aside") if not _survives(name, getattr(step, name))}
    heading = " ".join(step.title.split()) or f"Step {number}" if "title" in exactly else step.title
    parts = [f"## {heading}"]
    if step.setup is not None or step.values or exactly:
        parts.append("\n".join(("```circuitlab", *_block(step, exactly, refuse), "```")))
    parts += [step.text] if step.text and "text" not in exactly else []
    parts += [f"```aside\n{step.aside}\n```"] if step.aside and "aside" not in exactly else []
    return "\n\n".join(parts)


def _survives(name: str, value: str) -> bool:
    """Whether a title, a text or an aside is the same again when it has been written as it is."""
    try:
        value.encode("utf-8")
        if name == "title":
            return bool(value) and _as_read(_alone(f"## {value}")).steps == (Step(value), _END)
        body = f"```aside\n{value}\n```" if name == "aside" else value
        step = Step("A step", aside=value) if name == "aside" else Step("A step", value)
        return not value or _as_read(_alone(f"## A step\n\n{body}")).steps == (step, _END)
    except (BadInput, UnicodeEncodeError):
        return False


def _alone(text: str) -> str:
    return f'+++\ntitle = ""\n+++\n\n{text}\n\n## {_END.title}\n'


def _block(step: Step, exactly: dict[str, str], refuse: Refuse) -> Iterator[str]:
    """The lines of a step's block."""
    if step.setup is not None:
        _check_setup(step.setup, refuse)
        yield from toml_lines(to_json(table_of(step.setup)), ("view",), refuse)
    if exactly or step.setup is None:
        yield f"[{EXACTLY}]"
        yield from (f"{name} = {long_string(text, name, refuse)}" for name, text in exactly.items())
        yield from ("words = false",) if step.setup is None else ()
    for value in step.values:
        _check_known(value.unknown, f"values.{value.name}.", refuse)
        yield from toml_lines({"values": {value.name: value_table(value)}}, ("values",), refuse)
