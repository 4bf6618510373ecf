"""The engine: Request -> Answer, with a cache, partial results, cancellation and a memory budget. Everything is computed here.

The cache key of an answer is the analysis, its version, its parameters, the conventions, the device (devices differ in rounding)
and the identity of the weights, plus tokens and interventions if the analysis needs them. Runs are in the same cache; the forward
pass starts from the run with the longest common prefix, so that a change at the end of the prompt costs only the change.
"""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from typing import Any

import torch

from circuitlab import __version__
from circuitlab.analysis.base import Ctx, NullContext, R, SeriesRef, TextRef, TokenText
from circuitlab.counting import number_of
from circuitlab.engine.cache import Cache
from circuitlab.engine.estimates import estimate_run, estimate_streaming, estimate_weights
from circuitlab.engine.held import Held, named_as
from circuitlab.engine.in_flight import InFlight
from circuitlab.engine.inputs import Clean, InputsOf, named_version, plugins_of
from circuitlab.engine.recording_context import RecordingContext
from circuitlab.engine.request import Answer, Provenance, Request, files_of, needs
from circuitlab.engine.store import ModelStore, OpenModel
from circuitlab.engine.texts import Texts, read_text
from circuitlab.errors import RAISE_BUDGET, BadInput, BadModel, Cancelled, CircuitLabError, OverBudget, Refused, cause
from circuitlab.model.devices import checked, has_doubles, making_on, memory_of
from circuitlab.model.forward import check_tokens, forward
from circuitlab.model.plain import out_of_bounds
from circuitlab.model.run import Run
from circuitlab.model.subject import ModelRef, Subject
from circuitlab.model.weights import Weights

GIB = 2**30
# Bytes of a cache entry beyond its arrays: objects, key, tokens. Without them, answers without arrays would be free.
ENTRY = 2048
PER_TOKEN = 40
OUT_OF_BOUNDS = "Choose a value within the bounds."


@lru_cache(maxsize=1)
def versions() -> tuple[tuple[str, str], ...]:
    """Versions that can change a number."""
    libraries = ((name, metadata.version(name)) for name in ("torch", "numpy"))
    return (("circuitlab", __version__), ("python", platform.python_version()), *libraries)


def memory_words(size: float) -> str:
    """Bytes to three digits, in the largest unit that gives at least 1: never "0.00 GiB"."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:,.0f} {name}" if size >= 100 * unit else f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def use_threads(n: int) -> None:
    """Set the number of threads for the numerical work of this process."""
    torch.set_num_threads(n)


class Engine:
    """One per process, shared by window, command line and notebook; safe to call from several threads.

    `memory` is the budget in bytes: an analysis whose estimate exceeds it is refused; a quarter of it is for cached runs and
    answers. Weights are not included. `device` is the device to compute on (`model.devices`).
    """

    def __init__(self, store: ModelStore, memory: int = 4 * GIB, device: str = "cpu") -> None:
        self.store, self.cache, self.device = store, Cache(0), checked(device)
        self.budget(memory)
        self._in_flight = InFlight()
        self._texts, self._held = Texts(), Held()
        store.when_closed(self._forget_runs)

    def budget(self, memory: int) -> None:
        """Set the memory budget, in bytes. Open models are not affected."""
        self.memory = memory
        self.cache.limit = memory // 4
        self.store.largest_copy = memory

    def use_device(self, name: str) -> None:
        """Compute on another device from now on; running computations finish where they are. Raises `BadMachine`."""
        self.device = checked(name)
        self.store.leave_devices(("cpu", self.device))

    def place(self, request: Request) -> str:
        """The device for a request: the engine's, or the CPU if float64 is needed and the engine's has none."""
        return self.place_of(request.subject, request.analysis.doubles)

    def place_of(self, subject: Subject, doubles: bool = False) -> str:
        """The device for a forward pass, or for an analysis that also needs float64 (`doubles`)."""
        wide = doubles or subject.conventions.dtype == "float64"
        return self.device if has_doubles(self.device) or not wide else "cpu"

    def _tensors_on(self, place: str) -> AbstractContextManager[object]:
        # an analysis on the CPU may have been requested by one on another device
        return torch.device("cpu") if place == "cpu" and self.device != "cpu" else making_on(place)

    def key(self, request: Request, model: OpenModel, place: str | None = None) -> Hashable:
        """The cache key of an answer. `place`: the device it was computed on, None for the one it would be computed on."""
        analysis, where = request.analysis, place or self.place(request)
        conventions, about = request.reads
        return ("answer", analysis.name, analysis.version, request.params, conventions, where, model.key, about)

    def hold(self, answers: Iterable[Answer]) -> None:
        """Give these complete answers to their requests from now on, without computing them, until they are released.

        They are not part of the cache and never dropped for lack of memory. One is given for a model that is a ghost, or has the
        same weights and configuration, and for files with the same hash (`held.Held`), whatever device it was computed on.
        """
        self._held.hold(answers)

    def release(self, answers: Iterable[Answer] | None = None) -> None:
        """Let go of held answers; None: of all."""
        self._held.release(answers)

    @property
    def held_bytes(self) -> int:
        """Bytes of the results that are held, which are not part of the cache."""
        return self._held.nbytes

    def held(self, request: Request[R], read: bool = True) -> Answer[R] | None:
        """The held answer to a request, None without one. `read`: hash files that it names, and open its model; else neither.

        Raises `BadModel` where a model is opened that cannot be.
        """
        if not self._held:
            return None
        ref = request.subject.model
        model = self.store.open(ref) if read else self.store.peek(ref)
        params = self._texts.settled(request.params, read, absent=True)
        if model is None or params is None:
            return None
        answer = self._held.find(replace(request, params=params), model, lambda other: self._weights_of(other, read))
        return None if answer is None else _for(answer, named_as(answer.request, request), model)

    def _weights_of(self, other: ModelRef, read: bool) -> str | None:
        """The hash of another model's weights, "" where they are not on this machine, None where it is not known.

        `read`: then it is opened and hashed.
        """
        model = self.store.peek(other)
        if model is not None and model.absent:
            return model.sha256
        if read:
            try:
                return self.store.sha256(self.store.open_beside(other).ref)
            except BadModel:
                return ""
        if model is None:
            return self.store.hashes(other)[0] or None
        return None if model.changed_on_disk else model.sha256 or None

    def _still_of(self, answer: Answer[Any], read: bool) -> bool:
        """Whether the other models that were run for an answer are those that would be run now. `read`: opens them where they are
        not open, else such an answer is none."""
        for ref, key in answer.others:
            model = self.store.open_beside(ref) if read else self.store.peek(ref)
            if model is None or model.key != key or (not read and model.changed_on_disk):
                return False
        return True

    def cached(self, request: Request[R]) -> Answer[R] | None:
        """The complete answer if it is held or in the cache. Never blocks, never opens a model."""
        if (held := self.held(request, read=False)) is not None:
            return held
        model = self.store.peek(request.subject.model)
        params = self._texts.settled(request.params, read=False)
        if model is None or params is None:
            return None
        request = replace(request, params=params)
        answer = self.cache.get(self.key(request, model))
        if not isinstance(answer, Answer) or not answer.complete or not self._still_of(answer, read=False):
            return None
        return _for(answer, request, model)

    def answer(self, request: Request[R], ctx: Ctx | None = None, fresh: bool = False) -> Answer[R]:
        """Give a held answer, compute, or take from the cache.

        `fresh` neither reads the cache nor reuses a prefix nor gives a held answer: for bit-equal results. What a running
        analysis asks of another is never held, so that a computed answer is computed in all its parts.

        Raises `Refused`, `OverBudget`, `BadInput`, `BadModel`, or `Cancelled`; the last partial result of a cancelled analysis is
        cached and passed to the next attempt as `ctx.previous`.
        """
        if not fresh and (held := self.held(request)) is not None:
            return held
        cache = Cache(self.memory) if fresh else self.cache
        try:
            answer = self.answer_in(cache, request, ctx or NullContext())
        except OverBudget as error:
            _drop_locals(error)
            cache = None  # of a fresh answer, with its runs
            raise
        if fresh:
            model = self.store.open(answer.request.subject.model)
            if model.key == answer.identity:  # else it has been read again meanwhile
                self._keep(self.key(answer.request, model, answer.provenance.device), answer)
        return replace(answer, token_text=_token_text(self.store.peek(answer.request.subject.model)))

    def answer_in(self, cache: Cache, request: Request[R], ctx: Ctx) -> Answer[R]:
        """`answer` with a given cache, so that an answer requested by another analysis goes to the same cache."""
        model = self.store.open(request.subject.model)
        model.need_weights(request.analysis.name)
        request = replace(request, params=self._texts.settled(request.params, ctx=ctx))
        place = self.place(request)
        key = self.key(request, model, place)
        with self._in_flight.alone((id(cache), key), lambda: ctx.tick(0, 1, "waiting for the same request")):
            cached = cache.get(key)
            if isinstance(cached, Answer) and not self._still_of(cached, read=True):
                cached = None
            if isinstance(cached, Answer) and cached.complete:
                return _for(cached, request, model)
            recording = RecordingContext(ctx, self._in_flight, cached.result if isinstance(cached, Answer) else None)
            return self._compute(cache, request, model, key, recording, place)

    def identified(self, answer: Answer[R]) -> Answer[R]:
        """The answer with the sha256 of its weights, for files. Hashes the model's files if that has not been done yet.

        Without a hash where the model has been read again since from other files, and those before were not hashed: never with
        that of other weights than its own.
        """
        provenance = answer.provenance
        if not provenance.weights:
            weights = self.store.sha256_of(answer.request.subject.model, answer.identity)
            provenance = replace(provenance, weights=weights)
        if not all(sha256 for _, sha256 in provenance.others):
            hashes = {ref.source: self.store.sha256_of(ref, key) for ref, key in answer.others}
            provenance = replace(provenance, others=_others_of(answer.request, hashes))
        return answer if provenance is answer.provenance else replace(answer, provenance=provenance)

    def check(self, request: Request) -> int:
        """The memory estimate in bytes, 0 for a ghost, of which nothing is computed.

        Raises `Refused`; `BadInput` for a parameter out of bounds or a prompt that the model cannot take; then `OverBudget`.
        """
        analysis, subject = request.analysis, request.subject
        if (wrong := out_of_bounds(request.params)) is not None:
            raise BadInput(
                f"In {analysis.name} the value of {wrong[0]} is out of bounds.",
                expected=wrong[1],
                got=wrong[2],
                remedy=OUT_OF_BOUNDS,
            )
        model = self.store.open(subject.model)
        weights, config = model.opened.weights, model.opened.weights.config
        if reason := analysis.refuse(config, request.params):
            raise Refused(reason)
        reads = needs(analysis, request.params) == "tokens"
        own_texts = getattr(request.params, "own_texts", False)  # which need no prompt for the interventions to act in
        if reads and not (analysis.any_prompt and subject.tokens) and not (own_texts and not subject.tokens):
            check_tokens(config, subject.tokens)
        if model.absent:
            return 0
        n = min(len(subject.tokens), config.n_ctx)  # tokens beyond the context are not computed
        needed = analysis.memory(config, n, request.params, subject.conventions.dtype)
        if reads:
            needed += estimate_run(config, n, subject.conventions.dtype)
            needed += 0 if weights.resident else estimate_streaming(config, subject.conventions.dtype)
        self._check_device(request, analysis.name, needed, weights)
        if needed > self.memory:
            raise OverBudget(
                f"The analysis {analysis.name} does not fit in the memory budget.",
                expected=f"at most {memory_words(self.memory)}",
                got=f"{memory_words(needed)}{' for ' + number_of(n, 'token') if reads else ''}",
                remedy=f"{'Shorten the prompt' if reads else 'Choose fewer or smaller samples'}, or {RAISE_BUDGET}.",
            )
        return needed

    def cost(self, request: Request) -> float:
        """About how many operations it takes (`analysis/cost.py`); 0 where its model is not open, or its plug-in fails."""
        model = self.store.peek(request.subject.model)
        if model is None:
            return 0.0
        config = model.opened.weights.config
        try:
            return request.analysis.cost(config, min(len(request.subject.tokens), config.n_ctx), request.params)
        except CircuitLabError:
            return 0.0  # which is reported when it is computed

    def _check_device(self, request: Request, name: str, needed: int, weights: Weights) -> None:
        place = self.place(request)
        capacity = memory_of(place) if place != "cpu" else 0
        weight_bytes = estimate_weights(weights.config, request.subject.conventions.dtype) if weights.resident else 0
        if capacity and needed + weight_bytes > capacity:
            raise OverBudget(
                f"{name} does not fit in the memory of {place}.",
                expected=f"at most {memory_words(capacity)}",
                got=f"{memory_words(needed + weight_bytes)}, {memory_words(weight_bytes)} of them weights",
                remedy="Compute on the CPU, or shorten the prompt.",
            )

    def _compute(
        self, cache: Cache, request: Request[R], model: OpenModel, key: Hashable, ctx: RecordingContext, place: str
    ) -> Answer[R]:
        analysis = request.analysis
        self.check(request)
        began = time.perf_counter()
        inputs = InputsOf(self, model, request.subject, ctx, cache, place, plugins_of(analysis))
        answer_of = lambda result, complete: Answer(
            request,
            result,
            complete,
            replace(_provenance(model, place, time.perf_counter() - began, inputs), others=self._others_known(request, inputs)),
            identity=model.key,
            others=tuple(inputs.others.items()),
        )
        try:
            with self._tensors_on(place):
                result = analysis.run(inputs, request.params, ctx)
        except Cancelled:
            if ctx.last is not None:
                self._keep(key, answer_of(ctx.last, False))
            raise
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
                _drop_locals(error)
                raise _out_of_memory(analysis.name, error) from error
            raise
        answer = answer_of(result, True)
        self._keep(key, answer, cache)
        return answer

    def _others_known(self, request: Request, inputs: InputsOf) -> tuple[tuple[int, str], ...]:
        hashes = {ref.source: "" for ref in inputs.others}
        for ref, key in inputs.others.items():
            if (model := self.store.peek(ref)) is not None and model.key == key:
                hashes[ref.source] = model.sha256
        return _others_of(request, hashes)

    def _keep(self, key: Hashable, answer: Answer, cache: Cache | None = None) -> None:
        n = len(answer.request.subject.tokens)
        (cache or self.cache).put(key, answer, answer.result.nbytes + ENTRY + PER_TOKEN * n)

    def run_of(self, model: OpenModel, subject: Subject, ctx: Ctx, fresh: bool = False) -> Run:
        """A forward pass, from the cache, from a cached prefix, or computed."""
        return self.run_in(Cache(self.memory) if fresh else self.cache, model, subject, ctx, self.place_of(subject))

    def run_in(self, cache: Cache, model: OpenModel, subject: Subject, ctx: Ctx, place: str) -> Run:
        """`run_of` with a given cache; only runs in the engine's own cache reuse the prefix of another run."""
        about = ("run", model.key, subject.conventions, subject.edits, place)
        key = (*about, subject.tokens)
        ctx = ctx if isinstance(ctx, RecordingContext) else RecordingContext(ctx, self._in_flight)
        with self._in_flight.alone((id(cache), key), lambda: ctx.tick(0, 1, "waiting for the same forward pass")):
            cached = cache.get(key)
            if isinstance(cached, Run):
                return cached
            prefix = self._longest_prefix(about, subject.tokens) if cache is self.cache else None
            clean = Clean(self, cache, model, subject, ctx, place)
            tick = lambda i, n: ctx.tick(i, n, "forward pass")
            weights = model.weights(subject.conventions, place)
            run = forward(weights, subject.tokens, subject.edits, prefix, clean, tick)
            clean.let_go()
            cache.put(key, run, run.nbytes + ENTRY + PER_TOKEN * len(subject.tokens))
            if cache is self.cache and not self.store.holds(model):  # closed meanwhile
                self._forget_runs(model)
            return run

    def _forget_runs(self, model: OpenModel) -> None:
        """Drop the runs of a model that has been closed: each holds its weights. Its answers stay."""
        self.cache.drop(lambda key: isinstance(key, tuple) and key[:2] == ("run", model.key))

    def _longest_prefix(self, about: tuple[object, ...], tokens: tuple[int, ...]) -> Run | None:
        keys = self.cache.newest(lambda k: isinstance(k, tuple) and k[:5] == about)[:16]
        best = max(keys, key=lambda k: _common(k[5], tokens), default=None)
        return None if best is None or not _common(best[5], tokens) else self.cache.get(best)

    def read_text(self, model: OpenModel, ref: TextRef, ctx: Ctx | None = None) -> Sequence[int]:
        """Tokens of a text file. Raises `BadInput` if it is missing, not UTF-8, or does not match its hash; `OverBudget`;
        `Cancelled` at a tick of `ctx`."""
        return read_text(ref, model.opened.weights.tokenizer, ctx or NullContext(), self.memory)


def _others_of(request: Request, hashes: Mapping[str, str]) -> tuple[tuple[int, str], ...]:
    """`Provenance.others`: of the models that the request names, those whose hashes are given by their sources."""
    named = enumerate(files_of(request.params))
    return tuple((i, hashes[ref.source]) for i, ref in named if isinstance(ref, SeriesRef) and ref.source in hashes)


def _for(answer: Answer[Any], request: Request[R], model: OpenModel) -> Answer[R]:
    """A cached answer as the answer to an equal request, with the weights' hash if it is known by now."""
    provenance = replace(answer.provenance, weights=answer.provenance.weights or model.sha256)
    return replace(answer, request=request, provenance=provenance, token_text=_token_text(model), identity=model.key)


def _token_text(model: OpenModel | None) -> TokenText | None:
    """For the answer that goes out: one in the cache does not keep the tokenizer of a model that is closed."""
    tokenizer = None if model is None else model.opened.weights.tokenizer
    return None if tokenizer is None else tokenizer.display


def _provenance(model: OpenModel, place: str, seconds: float, inputs: InputsOf) -> Provenance:
    reader = model.opened.plugin
    all_versions = (*versions(), *sorted({*inputs.plugins, *([named_version(reader)] if reader is not None else ())}))
    return Provenance(model.sha256, all_versions, torch.get_num_threads(), place, seconds, inputs.reused, model.config_sha256)


def _out_of_memory(name: str, error: Exception) -> OverBudget:
    return OverBudget(
        f"The machine ran out of memory during {name}.",
        expected="an allocation that succeeds",
        got=cause(error),
        remedy="Lower the memory budget so that this is refused at once, shorten the prompt, or close other programs.",
    )


def _drop_locals(error: BaseException) -> None:
    """Let go of what the frames held in which an error arose: whoever keeps it, as a panel does, would keep their tensors."""
    for one in (error, error.__cause__):
        traceback.clear_frames(None if one is None else one.__traceback__)


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
