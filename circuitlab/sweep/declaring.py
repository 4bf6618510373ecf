"""What a panel asks of the open model, declared as a sweep: the same questions over its training steps and over other prompts.

A declaration is text, and may have no words for what was asked: a model under assumptions, conventions that are set one by one.
Each is read again here, and refused where it does not say the same.
"""

from __future__ import annotations

import dataclasses
import glob
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from circuitlab.analysis.base import AnyAnalysis, Result
from circuitlab.engine.codec import as_text
from circuitlab.engine.request import Request, needs
from circuitlab.engine.store import reference
from circuitlab.errors import BadInput, CircuitLabError, cause, quoted
from circuitlab.lessons.toml_text import toml_lines
from circuitlab.model.intervention import Intervention
from circuitlab.model.origin import Builtin, File, Stored
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.state.edit_syntax import text_of_edit
from circuitlab.state.state import State
from circuitlab.sweep.spec import FINAL, Presented, PromptSource, Spec, Step, is_pattern, spec_of

THIS_TEXT = "this text"  # the name of the prompt that is open
# parameters that say where in a prompt, or what of it: those of another prompt are its own
_OF_A_PROMPT = ("position", "destination", "source")


@dataclass(frozen=True)
class Asked:
    """The questions that are asked of one model. `questions`: (analysis, parameters), each once; `tokens`: of the `text`.

    `special`: spellings of special tokens in the text are read as these tokens.
    """

    title: str
    model: ModelRef
    text: str
    tokens: tuple[int, ...]
    bos: bool
    conventions: Conventions
    edits: tuple[Intervention, ...]
    questions: tuple[tuple[AnyAnalysis, Any], ...]
    special: bool = False

    @property
    def reads_text(self) -> bool:
        """Whether any of them reads the prompt."""
        return any(needs(analysis, params) == "tokens" for analysis, params in self.questions)

    @property
    def edited(self) -> bool:
        """Whether interventions make a difference to any of them."""
        return bool(self.edits) and any(needs(analysis, params) != "weights" for analysis, params in self.questions)


def _cannot(reason: str) -> BadInput:
    return BadInput(reason, remedy="Declare the sweep in a file: README, Sweeps, shows how.")


def asked_of(title: str, state: State, requests: Mapping[str, Request[Result]]) -> Asked:
    """What requests ask of the open model. Raises `BadInput`, with the reason, where no sweep can ask that."""
    if not requests:
        raise _cannot(f"{title} computes nothing that could be asked of other checkpoints or prompts.")
    of_model = [one for one in requests.values() if one.subject.model == state.model]
    if not of_model:
        raise _cannot(f"{title} asks nothing of the open model.")
    if isinstance(state.model.origin, Stored):
        raise _cannot("The model is not on this machine.")
    if state.model.assume:
        raise _cannot("The model was opened under assumptions, and a declaration has no words for them.")
    questions = dict.fromkeys((one.analysis, one.params) for one in of_model if _same_subject(one, state))
    if not questions:
        raise _cannot(f"{title} asks of other prompts than the open one.")
    subject = state.subject
    if state.front and any(needs(*one) == "tokens" for one in questions):
        raise _cannot(f"The prompt begins with {state.front}, and a declaration has no words for that.")
    prompt = (state.text, state.tokens, state.bos)
    asked = Asked(title, state.model, *prompt, subject.conventions, subject.edits, tuple(questions), state.special)
    declaration(asked, (FINAL,), PromptSource(THIS_TEXT, texts=(state.text,)))
    return asked


def _same_subject(request: Request[Result], state: State) -> bool:
    """Whether a request is about what is open, as far as it reads it."""
    reads, one, other = needs(request.analysis, request.params), request.subject, state.subject
    same_edits = reads == "weights" or one.edits == other.edits
    return one.conventions == other.conventions and same_edits and (reads != "tokens" or one.tokens == other.tokens)


def declaration(asked: Asked, steps: tuple[Step, ...], prompts: PromptSource, plain: bool = True) -> str:
    """The declaration as TOML; `plain`: of the unmodified model, too, where there are interventions.

    Raises `BadInput` where a declaration does not say what is asked.
    """
    text = "\n".join(_lines(asked, steps, prompts, plain)) + "\n"
    try:
        _compare(asked, prompts, spec_of(tomllib.loads(text), Path("/"), text))
    except (CircuitLabError, ValueError) as error:
        raise error if isinstance(error, BadInput) else _cannot(f"A declaration cannot say this: {cause(error)}.") from error
    return text


def _lines(asked: Asked, steps: tuple[Step, ...], prompts: PromptSource, plain: bool) -> Iterator[str]:
    top = {"title": asked.title} | ({"plain": False} if asked.edited and not plain else {})
    yield from _table(top)
    yield from ("", "[models]", *_table({"open": [_name(asked.model)], "steps": [_step(one) for one in steps]}))
    if asked.reads_text:
        given = {"set": prompts.set, "file": prompts.file, "texts": list(prompts.texts), "most": prompts.most}
        split = {"split": prompts.split} if prompts.file else {}
        special = {"special": True} if asked.special and prompts.texts else {}
        own = {k: v for k, v in given.items() if v} | split | special | {"name": prompts.name}
        yield from ("", "[[prompts]]", *_table(own))
    for analysis, params in asked.questions:
        yield from ("", "[[analyses]]", *_table({"name": analysis.name}))
        yield from (f"set.{line}" for line in _table(_values(params, asked, prompts)))
    if asked.edited:
        yield from ("", "[[edits]]", *_table({"edit": [str(text_of_edit(edit)) for edit in asked.edits]}))
    conventions = {"dtype": asked.conventions.dtype, "raw": not asked.conventions.fold_norm}
    yield from ("", "[conventions]", *_table(conventions | ({"bos": asked.bos} if asked.reads_text else {})))


def _table(values: Mapping[str, object]) -> Iterator[str]:
    refuse = lambda where, expected, got: _cannot(f"A declaration cannot say {where}: {quoted(got)} in place of {expected}.")
    return toml_lines(values, (), refuse)


def _name(model: ModelRef) -> str:
    """The model as a declaration names it; the signs of a pattern in a path mean themselves."""
    match model.origin:
        case Builtin(name):
            return name
        case File(path):
            return glob.escape(path) if is_pattern(path) else path
    return model.source


def _step(step: Step) -> str | int:
    return step if isinstance(step, (str, int)) else f"{step[0]}..{step[1]}"


def _values(params: Any, asked: Asked, prompts: PromptSource) -> dict[str, object]:
    """The parameters that are not at their defaults, without those that belong to the open prompt where others are asked of."""
    values: dict[str, object] = {}
    for field in dataclasses.fields(params):
        value, default = getattr(params, field.name), field.default
        own = field.name in _dropped(asked, prompts) and default is not dataclasses.MISSING
        if field.init and not own and (default is dataclasses.MISSING or value != default):
            values[field.name] = _plain(value)
    return values


def _dropped(asked: Asked, prompts: PromptSource) -> tuple[str, ...]:
    if prompts.texts == (asked.text,):
        return ()
    return (*_OF_A_PROMPT, "target") if prompts.set else _OF_A_PROMPT  # a line of a set has its own answers


def _plain(value: object) -> object:
    """A value as TOML has it: numbers and lists as they are, all else in the words of `--set`."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if type(value) is tuple and value:
        return [_plain(one) for one in value]
    return as_text(value)


def _compare(asked: Asked, prompts: PromptSource, spec: Spec) -> None:
    """Raise `BadInput` unless a declaration that was read says what is asked."""
    if [_plain_ref(name) for name in spec.models] != [replace(asked.model, checkpoint=None)]:
        raise _cannot("A declaration cannot name this model.")
    bos = asked.bos if asked.reads_text else None
    if spec.presented != (Presented(asked.conventions, bos),):
        raise _cannot("A declaration cannot say these conventions: norms folded without centring, or the reverse.")
    for grid, (analysis, params) in zip(spec.analyses, asked.questions, strict=True):
        (read,) = grid.params
        differ = [f.name for f in dataclasses.fields(params) if f.init and getattr(read, f.name) != getattr(params, f.name)]
        if lost := sorted(set(differ) - set(_dropped(asked, prompts))):
            raise _cannot(f"A declaration cannot say {', '.join(lost)} of {analysis.name}.")


def _plain_ref(name: str) -> ModelRef:
    """The model that a declaration names, whose path may have the signs of a pattern in it."""
    if is_pattern(name):
        name = "".join(glob.glob(name)) or name
    return reference(name)
