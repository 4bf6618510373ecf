"""The engine as a running analysis sees it: weights, runs, other answers, texts, all on the device where it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from circuitlab.analysis.base import Analysis, AnyAnalysis, Ctx, NullContext, P, R, SeriesRef, TextRef
from circuitlab.engine.cache import Cache
from circuitlab.engine.recording_context import RecordingContext
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore, OpenModel
from circuitlab.engine.texts import checked_series, checked_text
from circuitlab.model.intervention import Intervention
from circuitlab.model.prompts import Prompt, read_prompts
from circuitlab.model.records.series_measures import SeriesMeasures
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.model.weights import Weights
from circuitlab.plugins import Plugin


class Computes(Protocol):
    """The part of the engine that a running analysis needs (the engine itself imports this module)."""

    memory: int
    store: ModelStore

    def run_in(self, cache: Cache, model: OpenModel, subject: Subject, ctx: Ctx, place: str) -> Run: ...
    def answer_in(self, cache: Cache, request: Request[R], ctx: Ctx) -> Answer[R]: ...
    def read_text(self, model: OpenModel, ref: TextRef, ctx: Ctx | None = None) -> Sequence[int]: ...


def named_version(plugin: Plugin) -> tuple[str, str]:
    """A plug-in among the versions of an answer's provenance."""
    return f"plug-in {plugin.name}", plugin.version


def plugins_of(analysis: AnyAnalysis) -> dict[str, str]:
    """The plug-in that an analysis is of, with its version; empty for CircuitLab's own."""
    return {} if analysis.plugin is None else dict([named_version(analysis.plugin)])


class InputsOf:
    """The inputs of one running analysis. `cache` is the engine's, or a separate one for an answer computed afresh.

    `plugins`: the version of each plug-in that its numbers are of, shared with those `at` other prompts and of `other` models.
    """

    def __init__(
        self,
        engine: Computes,
        model: OpenModel,
        subject: Subject,
        ctx: RecordingContext,
        cache: Cache,
        place: str = "cpu",
        plugins: dict[str, str] | None = None,
    ) -> None:
        self._plugins = {} if plugins is None else plugins
        self._engine, self._model, self._ctx, self._cache, self._place = engine, model, ctx, cache, place
        self._last: tuple[Subject, Run] | None = None
        self.subject = subject
        self.weights: Weights = model.weights(subject.conventions, place)
        self.memory = engine.memory
        self.reused = 0

    @property
    def plugins(self) -> tuple[tuple[str, str], ...]:
        """(name, version) of each plug-in that has had a part in the answer, for its provenance."""
        return tuple(sorted(self._plugins.items()))

    def presented(self, conventions: Conventions) -> Weights:
        return self._model.weights(conventions, self._place)

    def convention_words(self) -> tuple[str, ...]:
        return self.subject.conventions.words(self.weights.config)

    def run(self, tokens: tuple[int, ...] | None = None, edits: tuple[Intervention, ...] | None = None) -> Run:
        subject = replace(
            self.subject,
            tokens=self.subject.tokens if tokens is None else tokens,
            edits=self.subject.edits if edits is None else edits,
        )
        # held here too, so that a run too large for the cache is not recomputed at every call
        if self._last is None or self._last[0] != subject:
            self._last = subject, self._engine.run_in(self._cache, self._model, subject, self._ctx, self._place)
        run = self._last[1]
        self.reused = max(self.reused, run.reused)
        return run

    def answer(self, analysis: Analysis[P, R], params: P) -> R:
        answer = self._engine.answer_in(self._cache, Request(analysis, params, self.subject), self._ctx)
        self.reused = max(self.reused, answer.provenance.reused)
        self._plugins.update((name, version) for name, version in answer.provenance.versions if name.startswith("plug-in "))
        return answer.result

    def at(self, tokens: tuple[int, ...], edits: tuple[Intervention, ...] = ()) -> InputsOf:
        subject = replace(self.subject, tokens=tokens, edits=edits)
        return InputsOf(self._engine, self._model, subject, self._ctx, self._cache, self._place, self._plugins)

    def other(self, ref: SeriesRef) -> InputsOf:
        model = self._engine.store.open(ModelRef(ref.source))
        subject = replace(self.subject, model=model.ref, edits=())
        return InputsOf(self._engine, model, subject, self._ctx, self._cache, self._place, self._plugins)

    def text(self, ref: TextRef) -> Sequence[int]:
        return self._engine.read_text(self._model, ref, self._ctx)

    def prompts(self, ref: TextRef) -> tuple[Prompt, ...]:
        tick = lambda i, n: self._ctx.tick(i, n, "tokens of its prompts")
        return read_prompts(checked_text(ref), ref.path, self.weights.tokenizer, self.weights.config, tick)

    def series(self, ref: SeriesRef) -> SeriesMeasures:
        return checked_series(ref)


class Clean:
    """Runs without interventions, for freeze, patch and mean ablation.

    A run keeps this object to recompute parts later. It must not keep the `Ctx` of the request that created it, which may have
    been cancelled since.
    """

    def __init__(self, engine: Computes, cache: Cache, model: OpenModel, subject: Subject, ctx: Ctx, place: str) -> None:
        self._engine, self._cache, self._model, self._place = engine, cache, model, place
        self._subject, self._ctx = replace(subject, edits=()), ctx

    def __call__(self, tokens: tuple[int, ...]) -> Run:
        return self._engine.run_in(self._cache, self._model, replace(self._subject, tokens=tokens), self._ctx, self._place)

    def let_go(self) -> None:
        """Drop the `Ctx`: the forward pass is done."""
        self._ctx = NullContext()
