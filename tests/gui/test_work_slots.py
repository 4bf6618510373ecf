"""What becomes of a piece of work is heard by the owner of its slot, and by nobody where the owner is gone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject
from pytestqt.qtbot import QtBot

from circuitlab.analysis.base import TextRef, find_analysis
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, Cancelled
from circuitlab.gui.work import prefetch
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.model.subject import Subject
from tests.models import CONFIGS, directory
from tests.patience import SECONDS

Heard = list[tuple[str, object, object]]


@pytest.fixture
def runner(qapp: Any) -> Iterator[Runner]:
    runner = Runner(Engine(ModelStore()))
    yield runner
    runner.close()


def listening(owner: QObject, role: object, heard: Heard) -> WorkSlot:
    def hears(kind: str) -> Callable[[object, object], None]:
        return lambda value, role: heard.append((kind, value, role))

    return WorkSlot(owner, role, finished=hears("finished"), failed=hears("failed"))


def fails(job: Job) -> None:
    raise BadInput("no")


def test_the_owner_alone_hears_and_is_told_which_slot(qtbot: Any, runner: Runner) -> None:
    one, other = QObject(), QObject()
    heard: Heard = []
    elsewhere: Heard = []
    first, second = listening(one, "first", heard), listening(one, "second", heard)
    same_name = listening(other, "first", elsewhere)
    runner.do(first, "one", lambda job: 1)
    runner.do(second, "two", fails)
    qtbot.waitUntil(lambda: len(heard) == 2)
    assert heard[0] == ("finished", 1, "first") and heard[1][::2] == ("failed", "second") and not elsewhere
    assert not runner.is_busy(same_name)
    runner.do(same_name, "three", lambda job: 3)
    qtbot.waitUntil(lambda: not runner.busy)
    assert elsewhere == [("finished", 3, "first")] and len(heard) == 2


def test_freed_memory_goes_back_after_slow_work_and_not_while_somebody_types(
    qtbot: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr("circuitlab.engine.freed_memory.FreedMemory.give_back", lambda self: given.append("back"))
    owner, heard = QObject(), Heard()
    live, slow = listening(owner, "live", heard), listening(owner, "slow", heard)
    runner.do(live, "one", lambda job: 1, lane="live")
    qtbot.waitUntil(lambda: not runner.busy)
    typed = threading.Event()
    runner.do(live, "typing", lambda job: typed.wait(SECONDS), lane="live")
    runner.do(slow, "two", lambda job: 2, lane="slow")
    qtbot.waitUntil(lambda: not runner.is_busy(slow))
    typed.set()
    qtbot.waitUntil(lambda: not runner.busy)
    runner.do(live, "after both", lambda job: 3, lane="live")
    qtbot.waitUntil(lambda: not runner.busy)
    assert not given
    runner.do(slow, "alone", lambda job: 4, lane="slow")
    qtbot.waitUntil(lambda: given == ["back"])


def test_the_newest_of_a_slot_counts_and_takes_nothing_from_another(qtbot: Any, runner: Runner) -> None:
    owner, heard, go_on = QObject(), Heard(), threading.Event()
    slot, beside = listening(owner, "slot", heard), listening(owner, "beside", heard)
    runner.do(slot, "old", lambda job: go_on.wait(SECONDS) and "old")
    runner.do(beside, "beside", lambda job: "beside")
    runner.do(slot, "new", lambda job: "new")
    go_on.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert {value for _, value, _ in heard} == {"beside", "new"} and len(heard) == 2
    last = threading.Event()
    runner.do(slot, "waits", lambda job: last.wait(SECONDS))
    runner.do(beside, "cancelled before it began", lambda job: "never")
    runner.cancel_slot(beside)
    assert isinstance(heard[-1][1], Cancelled) and heard[-1][2] == "beside"
    last.set()
    qtbot.waitUntil(lambda: not runner.busy)


def test_nothing_is_said_to_an_owner_that_is_gone(qtbot: Any, runner: Runner) -> None:
    owner, heard, go_on = QObject(), Heard(), threading.Event()
    runner.do(listening(owner, "slot", heard), "long", lambda job: go_on.wait(SECONDS))
    owner.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # type: ignore[arg-type]
    go_on.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert not heard


def test_slots_that_nobody_needs_are_let_go_but_not_under_work(qtbot: QtBot) -> None:
    owner, busy = QObject(), set[WorkSlot]()
    slots = WorkSlots(owner, busy.__contains__)
    first, second = slots["first"], slots["second"]
    assert slots["first"] is first
    busy.add(second)
    slots.keep_only(["first"])
    assert set(owner.findChildren(WorkSlot)) == {first, second}
    busy.clear()
    slots.keep_only(["first"])
    qtbot.waitUntil(lambda: owner.findChildren(WorkSlot) == [first])
    assert slots["second"] is not second
    cancelled = list[WorkSlot]()
    slots.end(cancelled.append)
    assert len(cancelled) == 2
    qtbot.waitUntil(lambda: not owner.findChildren(WorkSlot))


@pytest.mark.parametrize(("lane", "shown"), [("live", [False, "newest"]), ("slow", ["newest"])])
def test_while_somebody_types_what_runs_is_finished_and_shown_and_a_sweep_is_begun_anew(
    qtbot: Any, runner: Runner, lane: str, shown: list[object]
) -> None:
    """Of three keystrokes the first is at work, the second waits and is overtaken by the third."""
    owner, heard, begun, go_on = QObject(), Heard(), threading.Event(), threading.Event()
    slot = listening(owner, "slot", heard)

    def first(job: Job) -> bool:
        begun.set()
        assert go_on.wait(SECONDS)
        return job.cancelled.is_set()

    runner.do(slot, "first", first, lane)
    assert begun.wait(SECONDS)
    runner.do(slot, "second", lambda job: "overtaken", lane)
    runner.do(slot, "third", lambda job: "newest", lane)
    go_on.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert heard == [("finished", value, "slot") for value in shown]


def test_under_a_drag_every_panel_gets_its_turn(qtbot: Any, runner: Runner) -> None:
    """Four panels ask at every move, which come as fast as answers; none waits while another is answered twice."""
    owner, answered, slots = QObject(), Counter[object](), list[WorkSlot]()

    def move() -> None:
        for slot in slots:
            runner.do(slot, f"panel {slot.role}", lambda job: 1, "live")

    def hears(value: object, role: object) -> None:
        answered[role] += 1
        assert max(answered.values()) - min(answered[slot.role] for slot in slots) <= 1, answered
        if answered.total() < 40:
            move()

    slots += [WorkSlot(owner, number, finished=hears) for number in range(4)]
    move()
    qtbot.waitUntil(lambda: not runner.busy)
    assert answered.total() >= 40


@pytest.mark.parametrize("room", [0, -1])
def test_what_is_large_is_not_computed_ahead(
    qtbot: Any, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """An answer of as many bytes as are allowed, and one of a byte more."""
    ref = reference(str(directory(tmp_path / "model")))
    runner.engine.store.open(ref)
    request = Request.named("token_loss", TokenLossParams(), Subject(ref, (0, 5, 9)))
    monkeypatch.setattr(prefetch, "MOST_BYTES", runner.engine.check(request) + room)
    runner.prefetch.queue([request])
    qtbot.waitUntil(lambda: not runner.prefetch.busy)
    assert (runner.engine.cached(request) is not None) == (room == 0)


def test_of_slow_work_that_waits_what_is_in_sight_goes_first_and_the_cheapest_of_that(
    qtbot: Any, runner: Runner, tmp_path: Path
) -> None:
    """A small model's analyses, asked in the order that is wrong: dear ones first, and first of all one that nobody sees."""
    ref = reference(str(directory(tmp_path / "model", CONFIGS["gpt2"])))
    runner.engine.store.open(ref)
    subject, seen, hidden, go_on, began = Subject(ref, (0, 5, 9)), QObject(), QObject(), threading.Event(), list[object]()
    sets = {"over_prompts": OverPromptsParams(TextRef("none.tsv"), "ablation")}
    asked = {
        name: Request.named(name, sets.get(name, find_analysis(name).params()), subject)
        for name in ("term_importance", "pair_positivity", "over_prompts", "residual_norms", "ablation", "patching")
    }
    runner.do(WorkSlot(seen), "in the way", lambda job: go_on.wait(SECONDS), "slow")
    for name, request in asked.items():
        unseen = name == "term_importance"
        slot = WorkSlot(hidden if unseen else seen, name, in_sight=lambda unseen=unseen: not unseen)
        for signal in (slot.answered, slot.failed):
            signal.connect(lambda value, role: role in began or began.append(role))
        runner.ask(slot, request)
    costs = {name: runner.engine.cost(request) for name, request in asked.items() if name != "term_importance"}
    go_on.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert began == [*sorted(costs, key=costs.__getitem__), "term_importance"]
    assert min(costs.values()) == costs["residual_norms"] > 0 and len(set(costs.values())) == len(costs)


def test_live_work_has_its_turn_whatever_it_costs(qtbot: Any, runner: Runner) -> None:
    owner, heard, go_on = QObject(), Heard(), threading.Event()
    runner.do(listening(owner, 0, heard), "in the way", lambda job: go_on.wait(SECONDS), "live")
    for number in range(1, 4):
        runner.do(listening(owner, number, heard), "next", lambda job: True, "live")
    go_on.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert [role for _, _, role in heard] == [0, 1, 2, 3]


class Held:
    """An engine's `answer` that waits for `gate`, and what it was begun on in order."""

    def __init__(self, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.begun, self._answer = threading.Event(), list[Request[Any]](), runner.engine.answer
        monkeypatch.setattr(runner.engine, "answer", self)

    def __call__(self, request: Request[Any], ctx: Any, **more: Any) -> Any:
        self.begun.append(request)
        while not self.gate.wait(0.01):
            ctx.tick(0, 1)
        return self._answer(request, ctx, **more)


@pytest.fixture
def asked(runner: Runner, tmp_path: Path) -> list[Request[Any]]:
    """Three slow questions about a small model."""
    ref = reference(str(directory(tmp_path / "model")))
    runner.engine.store.open(ref)
    ways = (CopyingScoresParams(), CopyingScoresParams(embed="normalised tokens"), CopyingScoresParams(qk=False))
    return [Request.named("copying_scores", way, Subject(ref)) for way in ways]


def test_what_is_put_off_goes_on_after_what_is_waited_for(
    qtbot: Any, runner: Runner, asked: list[Request[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, heard, held = QObject(), list[tuple[str, Request[Any]]](), Held(runner, monkeypatch)
    left, later, wanted = (WorkSlot(owner, n, answered=lambda a, role: heard.append((role, a.request))) for n in ("l", "m", "w"))
    runner.ask(left, asked[0])
    runner.ask(later, asked[1])
    qtbot.waitUntil(lambda: len(held.begun) == 1)
    runner.put_off(left)
    runner.put_off(later)
    assert not runner.is_busy(left) and not runner.is_busy(later) and len(runner.jobs) == 2
    runner.ask(wanted, asked[2])
    qtbot.waitUntil(lambda: len(held.begun) == 2)
    held.gate.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert held.begun[:2] == [asked[0], asked[2]] and set(held.begun[2:]) == {asked[0], asked[1]}
    assert heard == [("w", asked[2])] and all(runner.engine.cached(one) is not None for one in asked)
    qtbot.waitUntil(lambda: not runner.findChildren(WorkSlot))


def test_who_asks_for_what_was_put_off_has_what_it_has_begun(
    qtbot: Any, runner: Runner, asked: list[Request[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, heard, held = QObject(), list[tuple[str, Request[Any]]](), Held(runner, monkeypatch)
    left, back = (WorkSlot(owner, name, answered=lambda a, role: heard.append((role, a.request))) for name in ("left", "back"))
    runner.ask(left, asked[0])
    qtbot.waitUntil(lambda: len(held.begun) == 1)
    runner.put_off(left)
    assert runner.ask(back, asked[0]) is None and len(runner.jobs) == 1 and runner.is_busy(back)
    held.gate.set()
    qtbot.waitUntil(lambda: not runner.busy)
    assert held.begun == [asked[0]] and heard == [("back", asked[0])]


def test_what_is_put_off_can_be_cancelled_and_other_work_is(
    qtbot: Any, runner: Runner, asked: list[Request[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, held, failed = QObject(), Held(runner, monkeypatch), list[object]()
    question, work = (WorkSlot(owner, name, failed=lambda error, role: failed.append(role)) for name in ("question", "work"))
    runner.ask(question, asked[0])
    runner.do(work, "work", lambda job: job.cancelled.wait(SECONDS), "io")
    qtbot.waitUntil(lambda: len(held.begun) == 1)
    runner.put_off(question)
    runner.put_off(work)
    assert [job.cancelled.is_set() for job in runner.jobs if job.slot is work] == [True]
    runner.cancel_all()
    qtbot.waitUntil(lambda: not runner.busy)
    assert not failed and runner.engine.cached(asked[0]) is None
