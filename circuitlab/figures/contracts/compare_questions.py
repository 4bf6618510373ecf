"""Whether two answers are to the same question: a difference is taken only of the same heads and the same measured token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from circuitlab.caption_parts import Essential
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.facts import Facts
from circuitlab.model.subject import Head

TARGET = "target and other"  # the axis of ids that say what is measured


def other_question(now: Mapping[str, Answer], ref: Mapping[str, Answer], facts: Facts, ref_facts: Facts, label: str) -> str:
    """Why the reference's answers are about other heads or another token than those of now, "" where they are not."""
    for role, answer in now.items():
        ref_answer = ref.get(role)
        if ref_answer is None:
            continue
        heads, ref_heads = set(heads_of_params(answer.request.params)), set(heads_of_params(ref_answer.request.params))
        if heads != ref_heads:
            names = " ".join(map(str, sorted(heads - ref_heads) or sorted(ref_heads - heads)))
            words = f"has no {names}" if heads - ref_heads else f"is of {names} as well"
            return Essential(f"not compared: {label} {words}")
        target, ref_target = _target_name(answer, facts), _target_name(ref_answer, ref_facts)
        if target and ref_target and target != ref_target:
            choose = "choose one token in the bar above"
            return Essential(f"not compared: {target} is measured now, {ref_target} in {label}; {choose}")
    return ""


def heads_of_params(value: object) -> Iterator[Head]:
    """The heads that parameters name, in nested parameters too."""
    if isinstance(value, Head):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from heads_of_params(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from heads_of_params(getattr(value, field.name))


def _target_name(answer: Answer, facts: Facts) -> str:
    """The token or pair of tokens that an answer measures; "" where it measures none, or one at each position."""
    for field in fields(answer.result):
        if TARGET in field.metadata.get("axes", ()):
            ids = np.ravel(getattr(answer.result, field.name))
            if ids.size == 2:
                return " − ".join(f"‘{facts.token_text(int(i))}’" for i in ids if i >= 0)
    return ""
