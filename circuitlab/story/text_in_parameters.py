"""Texts in quotation marks among the parameters of an analysis: tokens, targets and positions by name in place of their numbers.

    token='" cat"'                              the id of a token
    target='" Harville"'                        its logit; or `" Harville" - " Elliot"`, a difference of two,
    target='logit of " Harville" minus " Elliot"'   in words
    position='" cat"'                           the last token of a text, where it occurs last in the prompt

Numbers are put in the place of the texts; what then cannot be read is refused as if they had been typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import get_args

from circuitlab.disk.json_types import JsonDict
from circuitlab.engine.store import OpenModel
from circuitlab.errors import UsageError, quoted
from circuitlab.model.plain import fields
from circuitlab.model.subject import Target
from circuitlab.state.edit_syntax import LITERAL, unquoted
from circuitlab.story.named_in_model import position_of, token_of
from circuitlab.story.setup import Occurrence

_LITERAL = re.compile(LITERAL, re.DOTALL)


def target_of_text(text: str, model: OpenModel | None) -> Target:
    """A target, its tokens by text or id: `" a"`, `" a" - " b"`, `logit of " a" minus " b"`, 12-34, next.

    `model` None: only whether it can be read. Raises `UsageError`, and `BadInput` for what is not one token.
    """
    named = _LITERAL.search(text) is not None
    ids = _with(text, lambda piece: token_of(piece, model) if model else 0)
    if named:
        ids = re.sub(r"\s*(?:-|\bminus\b)\s*", "-", re.sub(r"^\s*logit\s+of\s+", "", ids))
    try:
        return Target.parse(ids)
    except UsageError as error:
        expected = 'next, an id such as 12, a pair 12-34, or texts: " cat", " cat" - " dog"'
        remedy = 'Write a token as the model reads it, in quotation marks: " cat".'
        raise UsageError(error.what, expected=expected, got=quoted(text), remedy=remedy) from error


def with_numbers(
    cls: type[object], values: Mapping[str, object], model: OpenModel | None, tokens: tuple[int, ...] = ()
) -> JsonDict:
    """The values of a parameter class with ids and positions in the place of quoted texts.

    `model` None: 0 for each, to see before a model is opened whether the rest can be read. Raises `BadInput`, `UsageError`.
    """
    kinds = {name: kind for name, (kind, _) in fields(cls).items()}
    result = dict(values)
    for name, value in values.items():
        kind = kinds.get(name, str)
        of = {kind, *get_args(kind)}  # paths and texts may have quotation marks of their own
        if not isinstance(value, str) or not of & {int, Target} or not _LITERAL.search(value):
            continue
        if Target in of:
            result[name] = str(target_of_text(value, model))
        elif "position" in name or name in ("destination", "source"):
            result[name] = _with(value, lambda piece: position_of(Occurrence(piece), model, tokens, True) if model else 0)
        else:
            result[name] = _with(value, lambda piece: token_of(piece, model) if model else 0)
    return result


def _with(text: str, number: Callable[[str], object]) -> str:
    """The text with a number in the place of each literal."""
    try:
        return _LITERAL.sub(lambda match: str(number(unquoted(match[0]))), text)
    except ValueError as error:
        remedy = "Write \\\\ for a backslash, \\n for a line break."
        raise UsageError("A text cannot be read.", expected='a text such as " cat"', got=quoted(text), remedy=remedy) from error
