"""What the answers of a figure are called in titles and in the names of files: of several models each by its model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from circuitlab.engine.request import Answer
from circuitlab.engine.stored_answer import NO_NAMES
from circuitlab.figures.marks.figure import joined
from circuitlab.model.subject import ModelRef
from circuitlab.report.render import Sides


@dataclass(frozen=True, eq=False)
class NamedAnswer:
    """`name`: of its files, without suffix; `title`: analysis, model where there are several, side."""

    name: str
    title: str
    answer: Answer


def named_answers(answers: Sides, reference: str = "", models: Mapping[ModelRef, str] = NO_NAMES) -> list[NamedAnswer]:
    """The answers of a figure, those of now first, each once. `reference`: what the other side is called."""
    among = models_by_role(answers, models)
    side_words = {"now": "", "ref": f"reference {reference}".rstrip()}
    named: dict[object, NamedAnswer] = {}
    for side, words in side_words.items():
        for role, answer in answers[side].items():
            analysis = answer.request.analysis.name.replace("_", " ")
            title = ", ".join(filter(None, (joined(analysis, among.get((side, role), "")), words)))
            one = NamedAnswer(file_name(role, side, among), title, answer)
            key = answer.request.asked
            if key not in named:
                named[key] = one
            elif side == "ref":  # what does not depend on what is compared
                named[key] = replace(named[key], title=named[key].title + f", also of {words}")
    return list(named.values())


def models_by_role(answers: Sides, models: Mapping[ModelRef, str] = NO_NAMES) -> dict[tuple[str, str], str]:
    """The model of each answer by side and role, {} where one side's answers are all of one model."""
    of = {(side, role): answer.request.subject.model for side, roles in answers.items() for role, answer in roles.items()}
    several = any(len({ref for (side, _), ref in of.items() if side == one}) > 1 for one in answers)
    return {at: _named(ref, models) for at, ref in of.items()} if several else {}


def file_name(role: str, side: str, among: Mapping[tuple[str, str], str], difference: bool = False) -> str:
    """The name of an answer's files, of letters, digits and dashes: `model-0-attn-only-1l`, `reference-values`."""
    before = "difference-" if difference else "reference-" if side == "ref" else ""
    return re.sub(r"[^\w.+−-]+", "-", f"{before}{role} {among.get((side, role), '')}".strip()).strip("-.")


def _named(ref: ModelRef, models: Mapping[ModelRef, str]) -> str:
    """A model by its name in the session, with its checkpoint."""
    name = models.get(replace(ref, checkpoint=None), "")
    return joined(name, *ref.name_parts[-1:]) if name and ref.checkpoint is not None else name or ref.name
