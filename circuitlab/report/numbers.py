"""The numbers in a step's text, computed at once: what a story's page fills in one by one as answers come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from circuitlab.analysis.base import Ctx
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.facts import facts_of
from circuitlab.model.subject import Head
from circuitlab.story.resolver import Ready
from circuitlab.story.text import PENDING
from circuitlab.story.values import Value, difference, formatted, not_computed, read_out

_WRONG = (CircuitLabError, ValueError, TypeError, ArithmeticError, LookupError)  # what a `read` of a file can lead to


@dataclass(frozen=True)
class Number:
    """A number of a step's text: `text` as it stands there; `why` it is none, "" where it is one; `answer`: read of it."""

    text: str
    why: str = ""
    answer: Answer | None = None


@dataclass
class _Read:
    """What has been read of the answers, by the name of the number."""

    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    numbers: dict[str, float | Head] = field(default_factory=dict[str, float | Head])
    failed: dict[str, BaseException] = field(default_factory=dict[str, BaseException])


def numbers_of(engine: Engine, ready: Ready, ctx: Ctx) -> dict[str, Number]:
    """The numbers that a step declares, by name. One that fails says so in its text. Raises `Cancelled` alone."""
    return _numbers(engine, ready, lambda request: engine.answer(request, ctx))


def held_numbers(engine: Engine, ready: Ready) -> dict[str, str]:
    """The same as text, from answers that are held or cached: `PENDING` where one is not there. Nothing is computed."""
    answers = {name: engine.cached(request) for name, (_, request) in ready.requests.items()}
    lacking = {
        name for name, (value, _) in ready.requests.items() if answers[name] is None or answers.get(value.minus, 1) is None
    }
    held = {request: answer for (_, request), answer in zip(ready.requests.values(), answers.values(), strict=True) if answer}
    texts = {name: number.text for name, number in _numbers(engine, ready, held.__getitem__).items()}
    return {name: PENDING if name in lacking else text for name, text in texts.items()}


def _numbers(engine: Engine, ready: Ready, answer: Callable[[Request], Answer]) -> dict[str, Number]:
    """The numbers of a step, read of what `answer` gives."""
    read = _Read(failed=dict(ready.failed))
    for name, (value, request) in ready.requests.items():
        try:
            read.answers[name] = answer(request)
            about = replace(ready.state, model=request.subject.model)
            read.numbers[name] = read_out(value, read.answers[name].result, about)
        except Cancelled:
            raise
        except _WRONG as error:
            read.failed[name] = error
    texts = {name: _number(engine, read, name, value) for name, (value, _) in ready.requests.items()}
    return texts | {name: _failed(name, error) for name, error in ready.failed.items()}


def _number(engine: Engine, read: _Read, name: str, value: Value) -> Number:
    try:
        token_text: Callable[[int], str] = lambda i: facts_of(engine, read.answers[name].request.subject.model).token_text(i)
        return Number(formatted(_difference(read, name, value), value.format, token_text), answer=read.answers[name])
    except _WRONG as error:
        return _failed(name, read.failed.get(name, read.failed.get(value.minus, error)))


def _difference(read: _Read, name: str, value: Value) -> float | Head:
    """The number, less the one that it names. Raises `LookupError` where one of them has no value, `BadInput` for heads."""
    number = read.numbers[name]
    return difference(name, number, read.numbers[value.minus]) if value.minus else number


def _failed(name: str, error: BaseException) -> Number:
    return Number(not_computed(name), reason(error))
