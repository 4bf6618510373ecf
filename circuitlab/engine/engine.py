"""The only way anything is computed: Request -> Answer, with a cache, partial results, cancelling and a memory budget.

An answer is keyed by analysis, its version, parameters, conventions and the weights' identity, and, where the analysis needs
tokens, by tokens and interventions. Runs share the same cache; the run with the longest common prefix is handed to the forward
pass, so that a changed end of the prompt costs only the change.
"""

from __future__ import annotations

import hashlib
import platform
import threading
import time
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from circuitlab import __version__
from circuitlab.analysis.base import Analysis, Ctx, Quiet, Result, TextRef, find_analysis
from circuitlab.engine.cache import Cache
from circuitlab.engine.request import Answer, Provenance, Request
from circuitlab.engine.store import ModelStore, OpenModel
from circuitlab.errors import BadInput, Cancelled, OverBudget, Refused
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention
from circuitlab.model.run import Run
from circuitlab.model.subject import Subject
from circuitlab.model.weights import Weights

GIB = 2**30


@lru_cache(maxsize=1)
def versions() -> tuple[tuple[str, str], ...]:
    """Versions that can change a number."""
    libraries = ((name, metadata.version(name)) for name in ("torch", "numpy"))
    return (("circuitlab", __version__), ("python", platform.python_version()), *libraries)


def estimate_run(config: Any, n_tokens: int) -> int:
    """Bytes of one run: streams, queries, keys and values of every layer, float32."""
    per_position = config.d_model + (config.n_heads + 2 * config.n_kv_heads) * config.d_head
    return 4 * n_tokens * per_position * config.n_layers


class _Inputs:
    """What one running analysis sees."""

    def __init__(self, engine: Engine, model: OpenModel, subject: Subject, ctx: Ctx, fresh: bool) -> None:
        self._engine, self._model, self._ctx, self._fresh = engine, model, ctx, fresh
        self.subject = subject
        self.weights: Weights = model.weights(subject.conventions)
        self.memory = engine.memory
        self.reused = 0

    def run(self, tokens: tuple[int, ...] | None = None, edits: tuple[Intervention, ...] | None = None) -> Run:
        made = self._engine.run_of(
            self._model,
            replace(
                self.subject,
                tokens=self.subject.tokens if tokens is None else tokens,
                edits=self.subject.edits if edits is None else edits,
            ),
            self._ctx,
            self._fresh,
        )
        self.reused = max(self.reused, made.reused)
        return made

    def answer(self, name: str, params: Any) -> Result:
        return self._engine.answer(Request(name, params, self.subject), self._ctx, fresh=self._fresh).result

    def text(self, ref: TextRef) -> tuple[int, ...]:
        return self._engine.read_text(self._model, ref)


class Engine:
    """One a process, shared by window, command line and notebook; safe to call from several threads.

    `memory` is the budget in bytes: an analysis whose estimate is larger is refused with the number; a quarter of it holds
    runs and answers. Weights are counted apart.
    """

    def __init__(self, store: ModelStore, memory: int = 4 * GIB) -> None:
        self.store, self.memory = store, memory
        self.cache = Cache(memory // 4)
        self._locks: dict[Hashable, threading.Lock] = {}
        self._guard = threading.Lock()

    def key(self, request: Request, model: OpenModel) -> Hashable:
        """What an answer is kept under."""
        found, subject = find_analysis(request.analysis), request.subject
        about = (subject.tokens, subject.edits) if found.needs == "tokens" else ()
        return ("answer", found.name, found.version, request.params, subject.conventions, model.identity, about)

    def cached(self, request: Request) -> Answer | None:
        """The complete answer if it is in the cache. Never blocks, never opens a model."""
        model = self.store.peek(request.subject.model)
        if model is None:
            return None
        found = self.cache.get(self.key(request, model))
        return replace(found, request=request) if isinstance(found, Answer) and found.complete else None

    def answer(self, request: Request, ctx: Ctx | None = None, fresh: bool = False) -> Answer:
        """Compute, or take from the cache. `fresh` neither reads the cache nor reuses a prefix: for bit-equal results.

        Raises `Refused`, `OverBudget`, `BadInput`, `BadModel`, or `Cancelled`; a cancelled analysis' last partial result is kept
        and handed to the next attempt as `ctx.previous`.
        """
        model = self.store.open(request.subject.model)
        key = self.key(request, model)
        with self._lock_of(key):
            found = None if fresh else self.cache.get(key)
            if isinstance(found, Answer) and found.complete:
                return replace(found, request=request)
            return self._compute(request, model, key, _Listening(ctx or Quiet(), found), fresh)

    def _lock_of(self, key: Hashable) -> threading.Lock:
        """The same question asked twice at once is computed once."""
        with self._guard:
            if len(self._locks) > 4096:
                self._locks = {k: lock for k, lock in self._locks.items() if lock.locked()}
            return self._locks.setdefault(key, threading.Lock())

    def check(self, request: Request) -> int:
        """The memory estimate in bytes. Raises `Refused` or `OverBudget`."""
        found = find_analysis(request.analysis)
        config = self.store.open(request.subject.model).opened.weights.config
        if reason := found.refuse(config, request.params):
            raise Refused(f"{found.name}: {reason}")
        n = len(request.subject.tokens)
        needed = found.memory(config, n, request.params)
        needed += estimate_run(config, n) if found.needs == "tokens" else 0
        if needed > self.memory:
            raise OverBudget(
                f"{found.name} does not fit in the memory budget.",
                expected=f"at most {self.memory / GIB:.2f} GiB",
                got=f"{needed / GIB:.2f} GiB for {n} tokens",
                remedy="Raise the budget in Settings (--budget on the command line), or shorten the prompt.",
            )
        return needed

    def _compute(self, request: Request, model: OpenModel, key: Hashable, ctx: _Listening, fresh: bool) -> Answer:
        found: Analysis[Any, Any] = find_analysis(request.analysis)
        self.check(request)
        if found.needs == "tokens" and not request.subject.tokens:
            raise BadInput("The prompt is empty.", expected="at least one token", got="none", remedy="Type some text.")
        began = time.perf_counter()
        inputs = _Inputs(self, model, request.subject, ctx, fresh)
        made = lambda result, complete: Answer(
            request, result, complete, self._provenance(model, time.perf_counter() - began, inputs.reused)
        )
        try:
            result = found.run(inputs, request.params, ctx)
        except Cancelled:
            if ctx.last is not None:
                self.cache.put(key, made(ctx.last, False), ctx.last.nbytes)
            raise
        answer = made(result, True)
        self.cache.put(key, answer, result.nbytes)
        return answer

    def _provenance(self, model: OpenModel, seconds: float, reused: int) -> Provenance:
        return Provenance(model.sha256, versions(), torch.get_num_threads(), "cpu", seconds, reused)

    def run_of(self, model: OpenModel, subject: Subject, ctx: Ctx, fresh: bool = False) -> Run:
        """A forward pass, from the cache, from a cached prefix, or computed."""
        about = ("run", model.identity, subject.conventions, subject.edits)
        with self._lock_of((about, subject.tokens)):
            found = None if fresh else self.cache.get((*about, subject.tokens))
            if isinstance(found, Run):
                return found
            weights = model.weights(subject.conventions)
            prefix = None if fresh else self._longest_prefix(about, subject.tokens)
            clean = lambda tokens: self.run_of(model, replace(subject, tokens=tokens, edits=()), ctx, fresh)
            tick = lambda i, n: ctx.tick(i, n, "forward pass")
            made = forward(weights, subject.tokens, subject.edits, prefix, clean, tick)
            self.cache.put((*about, subject.tokens), made, made.nbytes)
            return made

    def _longest_prefix(self, about: tuple[Any, ...], tokens: tuple[int, ...]) -> Run | None:
        keys = self.cache.newest(lambda k: isinstance(k, tuple) and k[0] == "run" and k[:4] == about)[:16]
        best = max(keys, key=lambda k: _common(k[4], tokens), default=None)
        return None if best is None or not _common(best[4], tokens) else self.cache.get(best)

    def read_text(self, model: OpenModel, ref: TextRef) -> tuple[int, ...]:
        """Tokens of a text file. Raises `BadInput` where it is missing, no UTF-8, or not what its hash says."""
        path = Path(ref.path)
        if not path.is_file():
            raise BadInput("A text file is not there.", expected="a UTF-8 text file", got=ref.path)
        data = path.read_bytes()
        if ref.sha256 and hashlib.sha256(data).hexdigest() != ref.sha256:
            raise BadInput("A text file has changed.", expected=f"sha256 {ref.sha256[:12]}…", got=ref.path)
        tokenizer = model.opened.weights.tokenizer
        if tokenizer is None:
            raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Type ids instead.")
        try:
            return tokenizer.encode(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise BadInput(f"{path.name} is not UTF-8.", expected="UTF-8", got=str(error)) from error


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


class _Listening:
    """A `Ctx` that remembers the last partial result and passes everything on."""

    def __init__(self, inner: Ctx, found: Any) -> None:
        self._inner = inner
        self.last: Result | None = None
        self.previous: Result | None = found.result if isinstance(found, Answer) else inner.previous

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Passed on."""
        self._inner.tick(done, total, text)

    def partial(self, result: Result) -> None:
        """Kept, and passed on."""
        self.last = result
        self._inner.partial(result)
