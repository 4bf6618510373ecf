"""Answers that are given without being computed: those that a session file carries, and those prepared for a talk.

They stand beside the cache and are never dropped from it. A held answer is given only where computing would give its numbers:

- the analysis, its version and parameters, the conventions, tokens and interventions are the same (`Request.reads`);
- the model has the same weights and configuration by their hashes, or is a ghost of that name (`ghost.Ghost`);
- a file that is named has the same hash, wherever it lies; one that is not on this machine has the same name;
- so have the weights of another model that was run for it, a control.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any

from circuitlab.analysis.base import R, Result, SeriesRef, TextRef
from circuitlab.engine.open_model import OpenModel
from circuitlab.engine.request import Answer, FileRef, Request, files_of, with_files
from circuitlab.model.subject import ModelRef

# The sha256 of the weights of a model that parameters name: "" where they are not on this machine, None where it is not known.
WeightsOf = Callable[[ModelRef], str | None]


class Held:
    """Answers by their question; safe to use from several threads. False while it is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[Hashable, tuple[Answer[Any], ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._answers)

    @property
    def nbytes(self) -> int:
        """Bytes of the results, those that are held several times counted once."""
        with self._lock:
            results = {id(answer.result): answer.result for several in self._answers.values() for answer in several}
        return sum(result.nbytes for result in results.values())

    def hold(self, answers: Iterable[Answer[Result]]) -> None:
        """Hold the complete ones of these."""
        with self._lock:
            for answer in answers:
                if answer.complete:
                    question = _question(answer.request)
                    self._answers[question] = (answer, *self._answers.get(question, ()))

    def release(self, answers: Iterable[Answer[Result]] | None = None) -> None:
        """Let go of these very objects, once for each time that they are held; None: of all."""
        with self._lock:
            if answers is None:
                self._answers.clear()
                return
            for answer in answers:
                question = _question(answer.request)
                several = list(self._answers.pop(question, ()))
                i = next((i for i, one in enumerate(several) if one is answer), len(several))
                if rest := tuple(several[:i] + several[i + 1 :]):
                    self._answers[question] = rest

    def find(self, request: Request[R], model: OpenModel, weights: WeightsOf) -> Answer[R] | None:
        """The answer to a request of an open model, the last held first; the request has the hashes of files that are there.

        Without one that to a wider question, which has all of its numbers.
        """
        same = lambda one: _same_model(one, model) and _same_files(one.request, request) and _same_others(one, request, weights)
        for params in (request.params, *request.analysis.wider(request.params)):
            answers = self._answers.get(_question(replace(request, params=params)), ())
            if (answer := next(filter(same, answers), None)) is not None:
                return answer
        return None


def named_as(answered: Request[R], asked: Request[R]) -> Request[R]:
    """`asked`, with the hashes of the files that `answered` read: they may not be there any more."""
    hashes = iter(files_of(answered.params))
    return replace(asked, params=with_files(asked.params, lambda ref: replace(ref, sha256=next(hashes).sha256)))


def _question(request: Request[Result]) -> Hashable:
    """What is asked, of whichever model and files."""
    params = with_files(request.params, lambda ref: TextRef("") if isinstance(ref, TextRef) else type(ref)(""))
    return request.analysis.name, request.analysis.version, params, request.reads


def _same_model(answer: Answer[Result], model: OpenModel) -> bool:
    """Whether a model would give an answer's numbers; a ghost those that were stored of it."""
    ref, origin = answer.request.subject.model, answer.provenance
    if model.absent:
        return ref == model.ref and (not model.sha256 or origin.weights == model.sha256)
    same = bool(model.sha256) and origin.weights == model.sha256 and origin.config == model.config_sha256
    return same and ref.assume == model.ref.assume


def _same_files(answered: Request[Result], asked: Request[Result]) -> bool:
    """Whether two requests name the same files: by hash, and by name where one is not on this machine."""
    pairs = zip(files_of(answered.params), files_of(asked.params), strict=True)
    return all(one.sha256 == other.sha256 if other.sha256 else _place(one) == _place(other) for one, other in pairs)


def _same_others(answer: Answer[Any], asked: Request[Any], weights: WeightsOf) -> bool:
    """Whether other models that were run for an answer have the weights that they had then, where they are on this machine."""
    named = files_of(asked.params)
    for place, sha256 in answer.provenance.others:
        ref = named[place] if 0 <= place < len(named) else None
        if not isinstance(ref, SeriesRef):
            return False
        if ref.sha256 and weights(ModelRef(ref.source)) not in ("", sha256):
            return False
    return True


def _place(ref: FileRef) -> str:
    return ref.path if isinstance(ref, TextRef) else ref.source
