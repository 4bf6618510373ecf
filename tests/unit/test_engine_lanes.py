"""Two lanes in one engine: nobody waits for somebody who waits, nobody hears another's listener, equal questions cost once."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.base import NullContext, Result, find_analysis
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.engine import engine as engine_module
from circuitlab.engine.engine import Engine
from circuitlab.engine.file_changes import file_identity
from circuitlab.engine.in_flight import InFlight
from circuitlab.engine.recording_context import RecordingContext
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, Cancelled, OverBudget
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.loading import Keep, Opened, open_model
from circuitlab.model.subject import Conventions, ModelRef, Subject
from tests.models import directory
from tests.patience import SECONDS

TOKENS = (0, 5, 9, 5, 7)


@pytest.fixture
def ref(tmp_path: Path) -> ModelRef:
    return ModelRef(f"file:{directory(tmp_path / 'm')}")


def _started(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class _Slow(NullContext):
    """The slow lane: stands still in its first tick until the live lane is done."""

    def __init__(self) -> None:
        self.inside, self.go = threading.Event(), threading.Event()

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.inside.set()
        assert self.go.wait(SECONDS)


def test_the_live_lane_passes_a_slow_one_that_makes_way_for_it(ref: ModelRef) -> None:
    engine, slow = Engine(ModelStore()), _Slow()
    subject = Subject(ref, TOKENS)
    waiting = _started(lambda: engine.answer(Request.named("token_loss", TokenLossParams(), subject), slow))
    assert slow.inside.wait(SECONDS)  # it holds the forward pass of these tokens now
    live: list[Any] = []
    passing = _started(lambda: live.append(engine.answer(Request.named("attention", AttentionParams(), subject))))
    passing.join(SECONDS)
    assert len(live) == 1, "the live lane waits for the slow one, which waits for the live one"
    slow.go.set()
    waiting.join(SECONDS)
    assert not waiting.is_alive()


def test_who_waits_for_another_can_be_cancelled(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    model, began, go = engine.store.open(ref), threading.Event(), threading.Event()
    request = Request.named("token_loss", TokenLossParams(), Subject(ref, TOKENS))
    key = (id(engine.cache), engine.key(request, model))

    def hold() -> None:
        with engine._in_flight.alone(key, lambda: None):
            began.set()
            assert go.wait(SECONDS)

    class Cancelling(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            raise Cancelled

    holder = _started(hold)
    assert began.wait(SECONDS)
    with pytest.raises(Cancelled):
        engine.answer(request, Cancelling())
    assert holder.is_alive(), "it was waited for"
    go.set()
    holder.join(SECONDS)


def test_many_threads_with_one_question_run_the_model_once(ref: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, calls, original = Engine(ModelStore()), [], engine_module.forward
    waiting, all_but_one = set[int](), threading.Event()

    class Waiting(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            if text == "waiting for the same request":
                waiting.add(threading.get_ident())
            if len(waiting) == 5:
                all_but_one.set()

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args[1])
        if len(calls) > 1:
            all_but_one.set()
        assert all_but_one.wait(SECONDS)
        return original(*args, **kwargs)

    monkeypatch.setattr(engine_module, "forward", counted)
    request = Request.named("token_loss", TokenLossParams(), Subject(ref, TOKENS))
    threads = [_started(lambda: engine.answer(request, Waiting())) for _ in range(6)]
    for thread in threads:
        thread.join(SECONDS)
    assert calls == [TOKENS]


def test_a_computation_that_asks_for_itself_is_a_fault_and_no_standstill() -> None:
    in_flight = InFlight()
    with in_flight.alone("a", lambda: None), pytest.raises(RuntimeError, match="itself"), in_flight.alone("a", lambda: None):
        pass
    with in_flight.alone("a", lambda: None):
        pass


def test_a_kept_run_does_not_hear_the_request_that_made_it(ref: ModelRef) -> None:
    class Once(NullContext):
        dead = False

        def tick(self, done: int, total: int, text: str = "") -> None:
            if self.dead:
                raise Cancelled

    engine, ctx = Engine(ModelStore()), Once()
    freeze = (Intervention("freeze", Site("pattern", 1)),)
    run = engine.run_of(engine.store.open(ref), Subject(ref, TOKENS, freeze), ctx)
    ctx.dead = True
    engine.cache.clear()  # the clean run has to be made again
    assert run.get("pattern", 1).shape[-1] == len(TOKENS)


def test_partial_results_of_an_inner_analysis_are_not_shown_as_the_outer_ones() -> None:
    class Hearing(NullContext):
        def __init__(self) -> None:
            self.heard: list[Result] = []
            self.previous = Result(conventions=("what the outer one left",))

        def partial(self, result: Result) -> None:
            self.heard.append(result)

    hearing = Hearing()
    outer = RecordingContext(hearing, InFlight())
    inner = RecordingContext(outer, InFlight())
    assert outer.previous is hearing.previous
    assert inner.previous is None
    inner.partial(Result(done=0.5))
    assert hearing.heard == []
    assert inner.last is not None
    outer.partial(Result(done=0.5))
    assert len(hearing.heard) == 1


def test_answers_without_arrays_count_against_the_bound_too(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    facts = Request.named("model_facts", find_analysis("model_facts").params(), Subject(ref))
    assert engine.answer(facts).result.nbytes == 0
    assert engine.cache.nbytes > 0


def test_the_cache_of_a_long_session_stays_within_a_quarter_of_the_budget(ref: ModelRef) -> None:
    engine = Engine(ModelStore(), memory=1_000_000)
    for i in range(60):
        engine.answer(Request.named("token_loss", TokenLossParams(), Subject(ref, (*TOKENS, i))))
        assert engine.cache.nbytes <= 250_000
    assert engine.cached(Request.named("token_loss", TokenLossParams(), Subject(ref, (*TOKENS, 59)))) is not None
    assert engine.cached(Request.named("token_loss", TokenLossParams(), Subject(ref, (*TOKENS, 0)))) is None


def test_a_failed_allocation_is_said_as_one(ref: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried …")

    monkeypatch.setattr(engine_module, "forward", full)
    with pytest.raises(OverBudget, match="memory"):
        Engine(ModelStore()).answer(Request.named("token_loss", TokenLossParams(), Subject(ref, TOKENS)))


@pytest.mark.parametrize("fresh", [False, True])
def test_an_error_of_a_failed_allocation_keeps_nothing_of_what_failed(
    ref: ModelRef, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    """A panel keeps the error for as long as it shows it; the memory is needed before."""
    run, kept = engine_module.forward, list[weakref.ref[Any]]()

    def fills(inputs: Any, params: Any, ctx: Any) -> Any:
        held, tensor = inputs.run(), torch.zeros(1000)
        kept.extend((weakref.ref(held), weakref.ref(held.final), weakref.ref(tensor)))
        raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried …")

    monkeypatch.setattr(engine_module, "forward", lambda *args: run(*args))
    analysis = replace(find_analysis("token_loss"), run=fills)
    outer = replace(find_analysis("token_loss"), name="outer", run=lambda i, p, c: _beside(i, analysis, p, kept))
    engine = Engine(ModelStore())
    engine.cache.limit = 0  # what it keeps is no failed run's
    for one in (analysis, outer):
        with pytest.raises(OverBudget) as raised:
            engine.answer(Request(one, TokenLossParams(), Subject(ref, TOKENS)), fresh=fresh)
        assert "can't allocate" in "".join(traceback.format_exception(raised.value)), "the log says where"
        gc.collect()
        assert kept and [one() for one in kept] == [None] * len(kept)


def _beside(inputs: Any, analysis: Any, params: Any, kept: list[weakref.ref[Any]]) -> Any:
    """An analysis that holds something of its own while it asks another one."""
    tensor = torch.zeros(1000)
    kept.append(weakref.ref(tensor))
    return inputs.answer(analysis, params) if tensor.sum() == 0 else None


def test_the_runs_of_a_model_go_when_it_is_closed(tmp_path: Path) -> None:
    """Also of one that is closed while it runs, and of one that is read again; its answers stay."""
    folders = [directory(tmp_path / name, d_head=size) for name, size in zip("abc", (4, 6, 8), strict=True)]  # other weights each
    store, refs = ModelStore(most=1, room=0), [ModelRef(f"file:{folder}") for folder in folders]
    engine, weights = Engine(store), list[weakref.ref[Any]]()
    requests = [Request.named("token_loss", TokenLossParams(), Subject(ref, TOKENS)) for ref in refs]
    for request in requests:
        engine.answer(request)
        weights.append(weakref.ref(store.open(request.subject.model).weights(Conventions())))

    def alive() -> list[bool]:
        gc.collect()
        return [one() is not None for one in weights]

    assert alive() == [False, False, True]
    store.reload(refs[2])
    assert alive() == [False, False, False]

    class Closes(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            if not weights:
                weights.append(weakref.ref(store.open(refs[0]).weights(Conventions())))
                store.open(refs[1])

    weights.clear()
    longer = replace(requests[0], subject=Subject(refs[0], (*TOKENS, 3)))
    answer = engine.answer(longer, Closes())
    assert alive() == [False]
    store.open(refs[0])
    assert engine.answer(longer).result is answer.result


def test_a_lower_budget_frees_at_once(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    for i in range(8):
        engine.answer(Request.named("token_loss", TokenLossParams(), Subject(ref, (*TOKENS, i))))
    assert engine.cache.nbytes > 10_000
    engine.budget(40_000)
    assert 0 < engine.cache.nbytes <= 10_000


def test_fresh_answers_are_bit_equal_whatever_was_computed_before(ref: ModelRef) -> None:
    used, request = Engine(ModelStore()), Request.named("attention", AttentionParams(), Subject(ref, (*TOKENS, 3, 4)))
    used.answer(Request.named("attention", AttentionParams(), Subject(ref, TOKENS)))
    used.answer(request)
    first, second = used.answer(request, fresh=True), Engine(ModelStore()).answer(request, fresh=True)
    assert first.fingerprint == second.fingerprint
    assert first.provenance.reused == 0
    kept = used.cached(request)
    assert kept is not None
    assert kept.fingerprint == first.fingerprint


# -- the store -------------------------------------------------------------------------------------------------------------


def test_open_models_stay_at_hand_while_another_is_being_opened(tmp_path: Path, ref: ModelRef) -> None:
    inside, go = threading.Event(), threading.Event()

    def opener(path: Path, keep: Keep = "resident", *more: object) -> Opened:
        if path.name == "other":
            inside.set()
            assert go.wait(SECONDS)
        return open_model(path)

    store, other = ModelStore(opener=opener), ModelRef(f"file:{directory(tmp_path / 'other')}")
    store.open(ref)
    opening = _started(lambda: store.open(other))
    assert inside.wait(SECONDS)
    got: list[Any] = []
    _started(lambda: got.append(store.open(ref))).join(SECONDS)
    assert got, "an open model waits for another one's files"
    assert store.peek(other) is None
    go.set()
    opening.join(SECONDS)
    assert store.peek(other) is not None


def test_only_so_many_models_stay_open(tmp_path: Path) -> None:
    refs = [ModelRef(f"file:{directory(tmp_path / name)}") for name in "abc"]
    store = ModelStore(most=2, room=0)
    store.open(refs[0])
    store.open(refs[1])
    store.open(refs[0])
    store.open(refs[2])
    assert [store.peek(r) is not None for r in refs] == [True, False, True]


def test_files_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    folder = directory(tmp_path / "m")

    def opener(path: Path, keep: Keep = "resident", *more: object) -> Opened:
        opened = open_model(path)
        directory(folder, n_ctx=40)
        return opened

    with pytest.raises(BadModel, match="changed while"):
        ModelStore(opener=opener).open(ModelRef(f"file:{folder}"))


def test_a_hash_is_never_that_of_other_files_than_those_in_use(ref: ModelRef) -> None:
    store = ModelStore()
    model = store.open(ref)
    first = store.sha256(ref)
    assert model.sha256 == first  # small files at once
    model.sha256 = ""
    directory(Path(ref.source[5:]), n_ctx=40)
    with pytest.raises(BadModel, match="Reload"):
        store.sha256(ref)
    assert file_identity(model.opened.files) != model.identity


def test_a_checkpoint_that_is_not_there_is_not_taken_for_the_final_weights(ref: ModelRef) -> None:
    with pytest.raises(BadModel, match="checkpoint"):
        ModelStore().open(ModelRef(ref.source, 3))


def test_one_presentation_of_the_weights_whoever_asks(ref: ModelRef) -> None:
    model, made = ModelStore().open(ref), []
    threads = [_started(lambda: made.append(model.weights(Conventions(dtype="float64")))) for _ in range(8)]
    for thread in threads:
        thread.join(SECONDS)
    assert len({id(w) for w in made}) == 1
