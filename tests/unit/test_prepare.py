"""A prepared talk: everything that its steps show is held, whatever becomes of the models' files, and given back afterwards."""

from __future__ import annotations

import gc
import shutil
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuitlab.analysis.base import NullContext
from circuitlab.disk.paths import shipped
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, Cancelled, CircuitLabError
from circuitlab.figures.contracts.panel import panels, view_types
from circuitlab.gui.sessions.file_work import FRONTS
from circuitlab.model.subject import ModelRef
from circuitlab.report.prepare import Readiness, prepare, readiness_of, time_words
from circuitlab.report.render import figure_of
from circuitlab.report.requests import panels_at
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.assembly import FIRST, base_of, work_of
from circuitlab.session_files.results import file_bytes, read_file, read_results
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.state.state import State
from circuitlab.story.film import film_points
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Setup, Sweep
from circuitlab.story.story import Step, Story
from tests import talks
from tests.figure_prints import figure_print
from tests.talks import STEPS, TEXT, computed, talk


def session_of(path: Path, engine: Engine) -> Session:
    return opened_session(path, engine).session


def walked(session: Session, engine: Engine) -> list[str]:
    """The figures of all steps, those of films at each of their points, as somebody who presents sees them."""
    resolver = Resolver(engine, view_types(), State(FIRST), None, session.refs(), tolerant=True)
    prints: list[str] = []
    for i, step in enumerate(session.story.steps):
        setup = session.story.setup(i)
        ready = resolver.ready(setup, step)
        states = [ready.state, *(scene.state for scene in ready.film)]
        prints += [figure_print(figure_of(engine, panel, state)) for state in states for panel in panels_at(setup, FRONTS)]
        prints += [str(engine.answer(request).fingerprint) for _, request in ready.requests.values()]
    return prints


original, path = talks.original, talks.path  # the fixtures


def prepared(path: Path) -> tuple[Session, Engine, Readiness]:
    engine = Engine(ModelStore())
    session = session_of(path, engine)
    return session, engine, prepare(session, engine, FRONTS)


def test_a_first_step_without_a_text_is_about_that_of_the_session(path: Path) -> None:
    engine = Engine(ModelStore())
    session = session_of(path, engine)
    assert session.now.prompt and session.now.model
    session = replace(session, story=Story("", (Step("bare", "", Setup(show=("attention",))),)))
    (step,) = prepare(session, engine, FRONTS).steps
    base, now = base_of(session), work_of(session, engine, view_types()).state
    assert step.ready is not None and step.is_ready
    assert (base.model, base.text) == (step.ready.state.model, step.ready.state.text) == (now.model, now.text)
    assert step.ready.state.tokens == now.tokens


@pytest.mark.parametrize("gone", [False, True])
def test_a_prepared_talk_is_shown_without_computing_anything(path: Path, gone: bool) -> None:
    fresh = Engine(ModelStore())
    expected = walked(session_of(path, fresh), fresh)
    session, engine, readiness = prepared(path)
    assert readiness.is_ready and readiness.line == "All 5 views ready" and not readiness.reasons
    assert [step.title for step in readiness.steps] == [step.title for step in STEPS]
    assert all(step.held == len(step.requests) > 0 for step in readiness.steps)
    engine.cache.clear()  # other work has pushed everything out of it
    for source in ("builtin:attn-only-2l", "construct:rope-induction"):  # and has opened other models
        engine.store.open(ModelRef(source))
    if gone:
        for name in ("mine", "other"):
            (path.parents[1] / name).rename(path.parents[1] / f"{name} elsewhere")
    with computed() as requests:
        assert walked(session, engine) == expected
        assert readiness.now(engine).is_ready
    assert requests == []


def test_a_film_along_a_parameter_is_prepared_at_each_of_its_values(tmp_path: Path) -> None:
    setup = Setup(
        model="construct:rope-induction", prompt="A B C A B", show=("laboratory", "attention"), play=Sweep("letters", 5, 3)
    )
    path = talk(tmp_path, (Step("Fewer letters", "", setup),))
    fresh = Engine(ModelStore())
    expected = walked(session_of(path, fresh), fresh)
    session, engine, readiness = prepared(path)
    assert readiness.is_ready
    asked = {r.subject.model.source for r in readiness.steps[0].requests if r.analysis.name == "attention"}
    assert asked == {f"construct:rope-induction?letters={n}" for n in (5, 4, 3)} | {"construct:rope-induction"}
    engine.cache.clear()
    with computed() as requests:
        assert walked(session, engine) == expected
    assert requests == [] and len(expected) == 2 * 4


def test_unprepared_it_computes(path: Path) -> None:
    engine = Engine(ModelStore())
    session = session_of(path, engine)
    with computed() as requests:
        walked(session, engine)
    assert requests


def test_a_film_is_prepared_at_each_of_its_points(path: Path) -> None:
    _, _, readiness = prepared(path)
    film = readiness.steps[3]
    assert {request.subject.model.checkpoint for request in film.requests if request.analysis.name == "attention"} == {
        0,
        1,
        2,
        None,
    }
    assert {request.subject.model.checkpoint for request in readiness.steps[2].requests} == {0}


@pytest.mark.parametrize(
    ("ends", "points"), [((0, 2), [0, 1, 2]), ((2, 0), [2, 1, 0]), ((1, None), [1, 2, None]), ((None, 2), [None, 2])]
)
def test_the_points_of_a_film(ends: tuple[Any, Any], points: list[Any]) -> None:
    refs = tuple(ModelRef("file:/m", checkpoint) for checkpoint in ends)
    assert [ref.checkpoint for ref in film_points(refs[0], refs[1], 3)] == points


def test_releasing_gives_memory_back_and_closes_the_models(path: Path) -> None:
    _, engine, readiness = prepared(path)
    store, refs = engine.store, readiness.models
    assert {ref.checkpoint for ref in refs} == {0, 1, 2, None} and readiness.nbytes > 10_000
    for source in ("builtin:attn-only-2l", "builtin:attn-only-1l", "construct:rope-induction"):
        store.open(ModelRef(source))
    small = Engine(ModelStore(most=1, room=0))
    again = prepare(session_of(path, small), small, FRONTS)
    assert all(small.store.peek(ref) is not None for ref in again.models), "more than the store would keep"
    arrays = [weakref.ref(array) for answer in again.answers for array in answer.result.arrays().values()]
    again.release(small)
    assert not again.now(small).is_ready and [ref for ref in again.models if small.store.peek(ref) is not None] != list(
        again.models
    )
    assert sum(small.store.peek(ref) is not None for ref in again.models) == 1, "as many as the store would keep"
    small.cache.clear()
    del again
    gc.collect()
    assert not any(array() is not None for array in arrays)


def test_prepared_again_it_stays_held_when_the_earlier_preparation_is_released(path: Path) -> None:
    session, engine, before = prepared(path)
    after = prepare(session, engine, FRONTS)
    before.release(engine)
    engine.cache.clear()
    assert after.now(engine).is_ready
    with computed() as requests:
        walked(session, engine)
    assert requests == []


class _Noted(NullContext):
    """Notes what is reported, and cancels after some reports."""

    def __init__(self, most: int = 10**9) -> None:
        self.reports: list[tuple[int, int, str]] = []
        self.most = most

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.reports.append((done, total, text))
        if len(self.reports) >= self.most:
            raise Cancelled


def test_progress_says_what_is_computed_and_for_which_step(path: Path) -> None:
    engine, noted = Engine(ModelStore()), _Noted()
    readiness = prepare(session_of(path, engine), engine, FRONTS, noted)
    total = len({request for step in readiness.steps for request in step.requests})
    reports = [report for report in noted.reports if report[1]]
    assert {report[1] for report in reports} == {total}
    assert [report[0] for report in reports] == sorted(report[0] for report in reports) and reports[-1][0] == total - 1
    assert any("attention of step 4" in text and "left" in text for _, _, text in reports)


def test_the_time_that_is_left_is_that_of_the_same_analyses(path: Path) -> None:
    from circuitlab.report.prepare import _TimeLeft

    engine = Engine(ModelStore())
    session = session_of(path, engine)
    requests = list(dict.fromkeys(r for step in readiness_of(session, engine, FRONTS).steps for r in step.requests))
    slow, quick = (next(r for r in requests if r.analysis.name == name) for name in ("head_scores", "token_loss"))
    answers = [engine.answer(one) for one in (slow, quick)]
    engine.cache.clear()
    times = _TimeLeft(engine, [quick, slow, slow, quick])
    assert times.left(0, 0.0) is None, "nothing is known yet"
    for answer, seconds in zip(answers, (10.0, 2.0), strict=True):
        times.took(replace(answer, provenance=replace(answer.provenance, seconds=seconds)))
    assert times.left(0, 0.0) == 24.0 and times.left(1, 0.5) == 17.0 and times.left(4, 0.0) == 0.0
    assert time_words(12.2) == "12 s left" and time_words(0.1) == "1 s left" and time_words(200) == "3 min left"


@pytest.mark.parametrize("most", [1, 12, 40])
def test_cancelled_it_holds_and_keeps_nothing(path: Path, most: int) -> None:
    engine = Engine(ModelStore(most=1, room=0))
    session = session_of(path, engine)
    with pytest.raises(Cancelled):
        prepare(session, engine, FRONTS, _Noted(most))
    assert not engine._held and not +engine.store._kept
    assert not any(step.held for step in readiness_of(session, engine, FRONTS).steps)


def test_what_cannot_be_computed_is_said_at_its_step(path: Path) -> None:
    engine = Engine(ModelStore())
    session = session_of(path, engine)
    story = replace(session.story, steps=(*STEPS[:1], Step("Nowhere", setup=Setup(model="gone", prompt="ab")), *STEPS[4:]))
    entries = {**session.models, "gone": replace(session.models["mine"], ref=ModelRef("file:/not/there"))}
    readiness = prepare(replace(session, story=story, models=entries), engine, FRONTS)
    assert [step.is_ready for step in readiness.steps] == [True, False, True] and readiness.unready == (1,)
    assert "2 of 3 views ready" in readiness.line and "2" in readiness.reasons[0] and "Nowhere" in readiness.reasons[0]
    assert readiness.steps[1].ready is None and readiness.steps[0].ready is not None
    lost = prepare(session, Engine(ModelStore()), FRONTS, lost={"other": BadModel("The model other was not found.")})
    assert lost.unready == (4,) and "other" in lost.reasons[0]


def test_an_analysis_that_fails_is_said_and_the_others_are_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(ModelStore())
    session, check = session_of(path, engine), engine.check

    def refused(request: Request) -> int:
        if request.analysis.name == "attention" and request.subject.model.checkpoint == 1:
            raise CircuitLabError("It broke.", remedy="Mend it.")
        return check(request)

    monkeypatch.setattr(engine, "check", refused)
    readiness = prepare(session, engine, FRONTS)
    assert readiness.unready == (3,) and "attention: It broke." in readiness.reasons[0]
    assert readiness.steps[3].held == len(readiness.steps[3].requests) - 1


def test_a_model_that_does_not_fit_in_the_budget_is_named_with_its_step(path: Path) -> None:
    engine = Engine(ModelStore(most=1, room=0), memory=2**22)
    readiness = prepare(session_of(path, engine), engine, FRONTS)
    assert len(readiness.models) < 5 and not readiness.is_ready
    assert "mine" in readiness.line and "has to be opened" in readiness.line
    assert readiness.steps[0].is_ready


def test_what_does_not_fit_in_the_budget_is_not_held(path: Path) -> None:
    engine = Engine(ModelStore())
    session = session_of(path, engine)
    prepare(session, engine, FRONTS).release(engine)  # everything is in the cache
    engine.memory = 5000
    readiness = prepare(session, engine, FRONTS)
    assert readiness.nbytes <= 5000 and any("memory budget" in reason for reason in readiness.reasons)


def test_what_is_released_makes_the_line_say_so(path: Path) -> None:
    _, engine, readiness = prepared(path)
    engine.release()
    assert not readiness.now(engine).is_ready and "to be computed" in readiness.now(engine).line


def test_stored_results_need_no_preparing(path: Path) -> None:
    engine = Engine(ModelStore())
    file = opened_session(path, engine).with_results(FRONTS)
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    for name in ("mine", "other"):
        shutil.rmtree(path.parents[1] / name)
    away = Engine(ModelStore())
    saved = opened_session(path, away)
    with computed() as requests:
        readiness = readiness_of(saved.in_engine, away, FRONTS)
        assert readiness.line == "All 5 views ready", readiness.reasons
        again = prepare(saved.in_engine, away, FRONTS)
        kept = saved.with_results(FRONTS)
    assert requests == [] and again.answers == () and again.models == ()
    assert kept.results is not None and set(kept.results.entries) == set(read_results(path).entries), "saved again they are kept"  # type: ignore[union-attr]


def test_a_film_of_which_a_point_is_not_stored_does_not_play(path: Path) -> None:
    whole = read_file(path).session
    still = replace(STEPS[3], setup=replace(STEPS[3].setup or Setup(), play=None))
    path.write_bytes(file_bytes(replace(whole, story=replace(whole.story, steps=(*STEPS[:3], still))), path.parent, None))
    results = opened_session(path, Engine(ModelStore())).with_results(FRONTS).results
    path.write_bytes(file_bytes(whole, path.parent, results))
    for name in ("mine", "other"):
        shutil.rmtree(path.parents[1] / name)
    away = Engine(ModelStore())
    readiness = readiness_of(opened_session(path, away).in_engine, away, FRONTS)
    assert [step.is_ready for step in readiness.steps[:4]] == [True, True, True, False]
    assert "not on this machine" in readiness.steps[3].lacking[0]


def drawn(engine: Engine, state: State) -> dict[str, str]:
    """The figure of each panel, or why there is none."""
    figures: dict[str, str] = {}
    for panel in panels().values():
        try:
            figures[panel.name] = figure_print(figure_of(engine, panel, state))
        except CircuitLabError as error:
            figures[panel.name] = str(error)
    return figures


def test_every_panel_is_prepared_and_its_model_may_be_gone_then(path: Path) -> None:
    """The whole registry: a new panel is held to it."""
    folder = path.parents[1] / "measured"
    shutil.copytree(shipped("models") / "attn-only-2l-smeared", folder)
    shown = tuple(panels())
    setup = Setup(model="measured", prompt=TEXT, heads=("L1H1",), show=shown)
    ref = ModelRef(f"file:{folder}")
    session = Session({"measured": ModelEntry(ref)}, setup, Story("", (Step("All of them", setup=setup),)))
    engine = Engine(ModelStore())
    readiness = prepare(session, engine, FRONTS)
    ready = readiness.steps[0].ready
    assert ready is not None
    before = drawn(engine, ready.state)
    engine.cache.clear()
    folder.rename(folder.with_name("elsewhere"))
    with computed() as requests:
        after = drawn(engine, ready.state)
    assert [request.analysis.name for request in requests] == []
    assert {name: after[name] for name in shown} == {name: before[name] for name in shown}
