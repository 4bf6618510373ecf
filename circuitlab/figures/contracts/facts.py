"""What a panel may know without a request: facts about the open model; and the reason why a panel requests nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from circuitlab.analysis.base import NO_HEADS, Analysis, R, Result
from circuitlab.engine.engine import Engine
from circuitlab.engine.measured_models import measured_models
from circuitlab.engine.memory_report import memory_report
from circuitlab.engine.request import Answer, Request, needs
from circuitlab.errors import Refused
from circuitlab.figures.marks import joined
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.records.known_heads import KnownHeads, complaints, known_heads
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.state.state import State

WITHOUT_HEADS = Refused(NO_HEADS).what
WITHOUT_LAYERS = WITHOUT_HEADS.removesuffix(" heads.")
Requests = Mapping[str, Request[Result]]


class Answers(dict[str, Answer[Any]]):
    """Answers by role, in the order of the requests."""

    def of(self, role: str, analysis: Analysis[Any, R]) -> Answer[R]:
        """The answer in a role. Raises `KeyError` without one, `TypeError` where it is an answer of another analysis."""
        answer = self[role]
        if answer.request.analysis.result is not analysis.result:
            raise TypeError(f"{role!r} is answered by {answer.request.analysis.name}, not by {analysis.name}")
        return answer

    def find(self, role: str, analysis: Analysis[Any, R]) -> Answer[R] | None:
        """`of` a role that the panel can draw without: None where there is no answer."""
        return self.of(role, analysis) if role in self else None


def inputs_read(answers: Mapping[str, Answer[Result]]) -> set[str]:
    """What answers depend on beside weights: "tokens" for the prompt with its interventions, or "edits" for these alone."""
    return {needs(answer.request.analysis, answer.request.params) for answer in answers.values()} - {"weights"}


def edits_read(answers: Mapping[str, Answer[Result]]) -> tuple[Intervention, ...]:
    """The interventions that answers depend on, in their order: what a figure of them says is cut, and no other."""
    return tuple(dict.fromkeys(edit for answer in answers.values() for edit in answer.request.edits))


def as_answered(state: State, answers: Mapping[str, Answer[Result]]) -> State:
    """The State with the prompt and the interventions of its answers: by the time they are drawn it may have others.

    It is the same object where it has these. Answers that read neither, or that are of another model, change nothing.
    """
    requests = [answer.request for answer in answers.values() if answer.request.subject.model == state.model]
    subjects = {needs(request.analysis, request.params): request.subject for request in requests}
    if "tokens" in subjects and subjects["tokens"].tokens != state.tokens:
        state = state.with_tokens(subjects["tokens"].tokens)
    edits = subjects.get("tokens", subjects.get("edits", state.subject)).edits
    return under(state, edits)


def under(state: State, edits: tuple[Intervention, ...]) -> State:
    """The State with these interventions in force and no other; the same object where it has these."""
    return state if edits == state.subject.edits else replace(state, edits=tuple((edit, True) for edit in edits))


@dataclass(frozen=True)
class Why:
    """Why a panel requests nothing: one sentence with what to do next. `elsewhere`: what to do without a window, where the
    sentence speaks of its gestures.
    """

    text: str
    elsewhere: str = ""


PINNED_ELSEWHERE = "It takes values from another prompt: draw it at a step of a session that has one pinned, with --at FILE#STEP."
HEADS_ELSEWHERE = "Name heads, for instance --heads L1H1,L0H3."
PAIR_ELSEWHERE = "Name two heads of different layers, for instance --heads L1H1,L0H3."


@dataclass(frozen=True)
class Facts:
    """What a panel may know about the open model without a request: passed to its `requests` and `draw`.

    `token_text(id)` is the display form of a token (visible spaces and newlines), `find_tokens(text, most)` the ids that a text
    may mean, `config` the model's, `name_parts` the parts of its name in titles; `others(ref)` the facts of another model,
    such as the pinned one.
    `memory_report(subject)` tells where weights are stored and how much memory a forward pass takes, now.
    `known_heads()` are the heads that papers name or the person has noted, looked up at each call: the hash of its files may be
    computed late.
    `vocabulary()` is equal for models in which an id means the same text; `token_of(text)` is the id with this display form.
    `special`: the ids of its special tokens, which stand for no text.
    `steps`: the training steps of its checkpoints; `steps_trained`: that of its final weights, None where no file states it.
    `measured(names)`: sources of models whose training was measured, the open one first (`engine.measured_models`).
    """

    name_parts: tuple[str, ...]
    config: ModelConfig
    token_text: Callable[[int], str]
    find_tokens: Callable[[str, int], tuple[int, ...]] = lambda text, most: ()
    has_tokenizer: bool = True
    bos: int | None = None
    special: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    steps_trained: int | None = None
    others: Callable[[ModelRef], Facts | None] = lambda ref: None
    memory_report: Callable[[Subject], tuple[tuple[str, str, str], ...]] = lambda subject: ()
    known_heads: Callable[[], KnownHeads | None] = lambda: None
    measured: Callable[[str], tuple[str, ...]] = lambda names: ()
    vocabulary: Callable[[], str] = lambda: ""
    token_of: Callable[[str], int | None] = lambda text: None

    @property
    def name(self) -> str:
        """The model's name in titles, its parts in one line."""
        return joined(*self.name_parts)

    @property
    def has_bos(self) -> bool:
        """Whether the tokenizer has a token that begins a sequence; `bos` is its id."""
        return self.bos is not None

    def tokens(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        """Display texts of a prompt."""
        return tuple(map(self.token_text, ids))


def _by_id(n: int) -> Callable[[str, int], tuple[int, ...]]:
    return lambda text, most: (int(text),) if text.isdecimal() and int(text) < n else ()


def _one_of(find: Callable[[str, int], tuple[int, ...]]) -> Callable[[str], int | None]:
    return lambda text: next(iter(find(text, 1)), None)


def facts_of(engine: Engine, ref: ModelRef) -> Facts:
    """The facts of a model, which is opened if it is not. Raises what opening it raises."""
    model = engine.store.open(ref)
    opened = model.opened
    tokenizer, config = opened.weights.tokenizer, opened.weights.config

    def hashes() -> tuple[str, str]:
        open_model = engine.store.peek(ref)  # facts outlive a model that is closed, and must not hold its weights
        return ("", "") if open_model is None or not open_model.sha256 else (open_model.sha256, open_model.settings_sha256)

    def measured(names: str) -> tuple[str, ...]:
        return measured_models(ref.source, names, engine.store.measured_elsewhere)

    return Facts(
        name_parts=model.name_parts,
        config=config,
        token_text=tokenizer.display if tokenizer is not None else str,
        find_tokens=_by_id(config.d_vocab) if tokenizer is None else tokenizer.search,
        has_tokenizer=tokenizer is not None,
        bos=None if tokenizer is None else tokenizer.bos,
        special=frozenset() if tokenizer is None else frozenset(tokenizer.special_tokens),
        notes=(*opened.notes, *complaints()),
        steps=opened.steps,
        steps_trained=replace(model, ref=replace(ref, checkpoint=None)).steps_trained if opened.steps else None,
        others=lambda other: facts_of(engine, other),
        memory_report=lambda subject: memory_report(engine, subject),
        known_heads=lambda: known_heads(config, ref.source, *hashes()),
        measured=measured,
        vocabulary=lambda: f"{config.d_vocab} ids" if tokenizer is None else tokenizer.vocabulary,
        token_of=_one_of(_by_id(config.d_vocab)) if tokenizer is None else tokenizer.shown_as,
    )
