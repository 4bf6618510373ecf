"""Request and Answer: the only way to ask for numbers and the only form in which they are returned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from circuitlab.analysis.base import Analysis, AnyAnalysis, P, R_co, Result, SeriesRef, Table, TextRef, TokenText, find_analysis
from circuitlab.disk.json_types import JsonDict
from circuitlab.engine.answer_frame import answer_frame, wide_frame
from circuitlab.engine.answer_view import AnswerView, asked_words
from circuitlab.model.intervention import Intervention
from circuitlab.model.plain import to_json
from circuitlab.model.subject import ModelRef, Subject

if TYPE_CHECKING:
    import pandas as pd

FileRef = TextRef | SeriesRef
STORED_WORDS = "stored with the session"  # what is said of numbers that were not computed on this machine since


def needs(analysis: AnyAnalysis, params: object) -> str:
    """What an analysis depends on, as declared by its parameters (`needs`) or else by the analysis.

    "tokens": the prompt and its interventions; "edits": the interventions, on prompts of its own; "weights": neither.
    """
    return getattr(params, "needs", analysis.needs)


def with_files(params: object, change: Callable[[FileRef], FileRef]) -> Any:
    """The parameters with every file that they name changed; the same object where nothing changes."""
    if not is_dataclass(params) or isinstance(params, type):
        return params
    values = {f.name: getattr(params, f.name) for f in fields(params) if f.init}
    changed = {name: new for name, value in values.items() if (new := _with_files(value, change)) != value}
    return replace(params, **changed) if changed else params


def _with_files(value: object, change: Callable[[FileRef], FileRef]) -> object:
    if isinstance(value, (TextRef, SeriesRef)):
        return change(value)
    return tuple(_with_files(one, change) for one in value) if type(value) is tuple else value


def files_of(params: object) -> tuple[FileRef, ...]:
    """The files that parameters name, in order."""
    names = (f.name for f in fields(params) if f.init) if is_dataclass(params) and not isinstance(params, type) else ()
    return tuple(ref for name in names for ref in _files_of(getattr(params, name)))


def _files_of(value: object) -> Iterator[FileRef]:
    if isinstance(value, (TextRef, SeriesRef)):
        yield value
    elif type(value) is tuple:
        for one in value:
            yield from _files_of(one)


@dataclass(frozen=True, repr=False)
class Request(Generic[R_co]):
    """(analysis, parameters, subject). Hashable: the cache key is derived from it and the identity of the weights.

    `Request(bigram, BigramParams(token), subject)`: parameters of another analysis do not pass the type checker, and the answer's
    result is a `BigramResult`.
    """

    analysis: Analysis[Any, R_co]
    params: Any
    subject: Subject

    if TYPE_CHECKING:

        def __init__(self, analysis: Analysis[P, R_co], params: P, subject: Subject) -> None: ...

    @classmethod
    def named(cls, name: str, params: object, subject: Subject) -> Request[Result]:
        """A request by the analysis' registered name. Raises `UsageError` listing the names."""
        return Request[Result](find_analysis(name), params, subject)

    @cached_property
    def asked(self) -> Request[R_co]:
        """The same request without the hashes of files, which the engine fills in: equal for two identical requests."""
        params = with_files(self.params, lambda ref: replace(ref, sha256=""))
        return self if params is self.params else replace(self, params=params)

    @property
    def edits(self) -> tuple[Intervention, ...]:
        """The interventions that the answer depends on, which alone may be named beside its numbers; () if it reads none."""
        return () if needs(self.analysis, self.params) == "weights" else self.subject.edits

    @property
    def reads(self) -> tuple[Hashable, Hashable]:
        """What of the subject the answer depends on, beside the model: the conventions, then what the analysis needs."""
        subject = self.subject
        inputs = {"tokens": (subject.tokens, self.edits), "edits": (self.edits,), "weights": ()}
        return subject.conventions, inputs[needs(self.analysis, self.params)]

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens that the positions of its answer are in; () if it is about none, or about texts of its own."""
        of_prompt = needs(self.analysis, self.params) == "tokens" and not getattr(self.params, "own_texts", False)
        return self.subject.tokens if of_prompt else ()

    def __repr__(self) -> str:
        asked = asked_words(self.analysis.name, self.params, self.subject.model, self.edits, self.prompt)
        return f"<Request {' · '.join(asked)}>"


@dataclass(frozen=True)
class Provenance:
    """The origin of an answer, for captions, exports and the record.

    `weights`: the sha256 of the weight file(s), "" until it is known; `config`: that of the model's configuration; `reused`: how
    many positions of the prompt were taken from an earlier run (0: none). `stored`: the answer was read from a session file and
    not computed since: the rest says where and how it was computed then. `others`: of other models that were run for it,
    their place among the files that its parameters name (`files_of`), and the sha256 of their weights, "" until it is known.
    """

    weights: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    threads: int = 1
    device: str = "cpu"
    seconds: float = 0.0
    reused: int = 0
    config: str = ""
    stored: bool = False
    others: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Generic[R_co]):
    """A result with the request that it answers. `complete` is False for partial and cancelled work.

    `token_text`: the text of a token of its model, for what it shows of itself; None without a tokenizer. `identity`: that of
    the weights that it was answered with (`OpenModel.key`), None where that is not known, as of a part or of what a file holds.
    `others`: those of other models that were run for it.
    """

    request: Request[R_co]
    result: R_co
    complete: bool
    provenance: Provenance
    token_text: TokenText | None = None
    identity: Hashable = None
    others: tuple[tuple[ModelRef, Hashable], ...] = ()

    @property
    def fingerprint(self) -> str:
        """A hash of all arrays, equal for bit-equal results."""
        digest = hashlib.sha256()
        for name, array in sorted(self.result.arrays().items()):
            digest.update(name.encode() + str(array.dtype).encode() + str(array.shape).encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    @property
    def prompt(self) -> tuple[int, ...]:
        """The tokens that its arrays are of; () if it does not depend on them."""
        return self.request.prompt

    def asked(self) -> JsonDict:
        """What was asked, as plain values: the analysis with its parameters, of which model with which weights and interventions,
        on which tokens, under which conventions. Interventions that it does not read are left out.
        """
        request, subject = self.request, self.request.subject
        return {
            "analysis": request.analysis.name,
            "params": to_json(request.params),
            "model": subject.model.named(1),
            "weights": self.provenance.weights,
            "edits": to_json(request.edits),
            "tokens": list(self.prompt),
            "conventions": list(self.result.conventions),
        }

    def to_pandas(self, *arrays: str, wide: bool = False) -> pd.DataFrame:
        """The arrays as a data frame of pandas: one row an entry, a column for each axis and each array.

        `arrays`: their names; they must have the same axes. By default all that have those of the first one, or the table of a
        result that is read as one. `wide`: one array with its last axis across. Heads and tokens are named; units are in
        `attrs["units"]` (`engine/answer_frame.py`), beside what was asked (`asked`).

            answer.to_pandas().query("head == 'L1H3' and values > 0.2")
            answer.to_pandas("values", wide=True)              # a row a destination, a column a source

        Raises `UsageError` for arrays that are not there or not alike, `BadMachine` without pandas.
        """
        about = self.asked() | {
            "remainder": "" if self.result.remainder is None else str(self.result.remainder.words()),
            "complete": self.complete,
        }
        return (wide_frame if wide else answer_frame)(self.result, arrays, self.prompt, self.token_text, about)

    def __repr__(self) -> str:
        return self._view.plain()

    def _repr_html_(self) -> str:
        return self._view.html()

    @property
    def _view(self) -> AnswerView:
        request = self.request
        partial = () if self.complete else (f"partial: {self.result.done:.0%}",)
        words = (*partial, *((STORED_WORDS,) if self.provenance.stored else ()))
        name = request.analysis.name
        asked = request.subject.model, request.edits
        return AnswerView(name, request.params, *asked, self.result, self.prompt, self.token_text, words)


TableOf = Callable[[Answer], Table | None]  # of what is drawn of an answer; None for its own table
