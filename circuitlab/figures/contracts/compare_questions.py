"""Whether two answers are to one question: a difference is taken of the same heads and the same measured token, or of nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.facts import Facts
from circuitlab.model.subject import Head

TARGET = "target and other"  # the axis of ids that say what is measured


def other_question(here: Mapping[str, Answer], there: Mapping[str, Answer], facts: Facts, other: Facts, label: str) -> str:
    """Why the numbers of a reference are of something else than ours, "" where they are not."""
    for role, ours in here.items():
        theirs = there.get(role)
        if theirs is None:
            continue
        heads, others = set(asked_heads(ours.request.params)), set(asked_heads(theirs.request.params))
        if heads != others:
            named = " ".join(map(str, sorted(heads - others) or sorted(others - heads)))
            return f"not compared: {label} has no {named}" if heads - others else f"not compared: {label} is of {named} as well"
        measured, beside = _measured(ours, facts), _measured(theirs, other)
        if measured and beside and measured != beside:
            return f"not compared: {measured} is measured now, {beside} in {label}; choose one token in the bar above"
    return ""


def asked_heads(value: Any) -> Iterator[Head]:
    """The heads that parameters name."""
    if isinstance(value, Head):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from asked_heads(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from asked_heads(getattr(value, field.name))


def _measured(answer: Answer, facts: Facts) -> str:
    """The one token, or the pair, that an answer is about; "" where it is about none, or about one at each position."""
    for field in fields(answer.result):
        if TARGET in field.metadata.get("axes", ()):
            ids = np.ravel(getattr(answer.result, field.name))
            if ids.size == 2:
                return " − ".join(f"‘{facts.token_text(int(i))}’" for i in ids if i >= 0)
    return ""
