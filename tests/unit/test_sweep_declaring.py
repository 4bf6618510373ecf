"""What a panel asks, declared as a sweep: the cells ask what the panel asked, and a watch reads what a journal says."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import circuitlab.api as lab
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.request import needs
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.panel import Why, facts_of, panels
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Target
from circuitlab.state.cuts import ablation
from circuitlab.state.state import State
from circuitlab.sweep.declaring import THIS_TEXT, asked_of, declaration
from circuitlab.sweep.plan import plan_of
from circuitlab.sweep.record import need_own
from circuitlab.sweep.run import run
from circuitlab.sweep.spec import FINAL, PromptSource, spec_of
from circuitlab.sweep.status import Watch, status_of
from circuitlab.sweep.work import Machine
from tests.models import CONFIGS, directory

TEXT = 'one "two" one\ttwo \\ one'


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, State]:
    """An engine, and the State of a model in a folder whose name looks like a pattern, with an intervention and a target."""
    folder = directory(tmp_path_factory.mktemp("models") / "a [1]*", CONFIGS["gpt2"])
    engine = Engine(ModelStore(), GIB)
    state = lab.open(str(folder)).state(TEXT)
    edits = ((ablation(Head(0, 1)), True), (Intervention("scale", Site("resid_pre", 1, (), (2,)), (0.5,)), True))
    selection = replace(state.selection, target=Target((3, 5)), destination=2)
    engine.store.open(state.model)
    return engine, replace(state, edits=edits, selection=selection)


@pytest.mark.parametrize("name", panels())
def test_the_cells_ask_what_the_panel_asked(opened: tuple[Engine, State], name: str, tmp_path: Path) -> None:
    engine, state = opened
    state = replace(state, edits=state.edits[:1]) if name == "prompt_sets" else state  # whose prompts have no third position
    requests = panels()[name].requests(state, facts_of(engine, state.model))
    if isinstance(requests, Why) or not requests:
        return
    asked = asked_of(panels()[name].title, state, requests)
    text = declaration(asked, (FINAL,), PromptSource(THIS_TEXT, texts=(state.text,)), plain=False)
    plan = plan_of(spec_of(tomllib.loads(text), tmp_path, text), engine)
    result = [cell.request for cell in plan.cells]
    for request in (one for one in requests.values() if one.subject.model == state.model):
        reads = needs(request.analysis, request.params)
        subject = request.subject if reads == "tokens" else replace(request.subject, tokens=())
        subject = replace(subject, edits=()) if reads == "weights" else subject
        assert replace(request, subject=subject) in result


def test_what_a_declaration_cannot_say_is_refused(opened: tuple[Engine, State]) -> None:
    engine, state = opened
    panel = panels()["attribution"]
    requests = panel.requests(state, facts_of(engine, state.model))
    assert not isinstance(requests, Why)
    asked = asked_of("Attribution", state, requests)
    prompts = PromptSource(THIS_TEXT, texts=(state.text,))
    for change in ({"conventions": Conventions(True, False)}, {"model": ModelRef("file:/nowhere/a [1]*")}):
        with pytest.raises(BadInput):
            declaration(replace(asked, **change), (FINAL,), prompts)
    with pytest.raises(BadInput, match="under assumptions"):
        of, one = replace(state, model=replace(state.model, assume=(("score_scale", "1"),))), requests["parts"]
        asked_of("A", of, {"parts": replace(one, subject=replace(one.subject, model=of.model))})


def test_a_folder_is_that_of_a_sweep_which_is_about_to_begin(tmp_path: Path) -> None:
    need_own(tmp_path / "new")
    (tmp_path / "spec.toml").write_text("title = 'a'", encoding="utf-8")
    (tmp_path / "sweep.log").touch()
    need_own(tmp_path, "title = 'a'")
    with pytest.raises(UsageError, match="other things"):
        need_own(tmp_path, "title = 'b'")
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="other things"):
        need_own(tmp_path, "title = 'a'")


def test_a_watch_reads_a_journal_by_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory(tmp_path / "m", CONFIGS["attention-only"])
    data = {
        "models": {"open": ["m"]},
        "prompts": [{"texts": ["abc abc", "x", "long " * 90]}],
        "analyses": [{"name": "token_loss"}],
    }
    run(spec_of(data, tmp_path), tmp_path / "out", Machine(GIB))
    out, whole = tmp_path / "out", status_of(tmp_path / "out")
    assert (whole.questions, whole.counts, whole.unasked, whole.holder) == (3, {"done": 2, "refused": 1}, 0, "")
    lines = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    monkeypatch.setattr("circuitlab.sweep.status.AT_ONCE", 1)
    (out / "journal.jsonl").write_bytes(lines[0] + lines[1][:-3])
    watch = Watch(out)
    assert watch.look() == {"done": 1, "not yet": 2} and watch.behind
    assert watch.look() == {"done": 1, "not yet": 2} and not watch.behind
    (out / "journal.jsonl").write_bytes(b"".join(lines))
    assert watch.look() == {"done": 2, "not yet": 1} and watch.behind
    assert watch.look() == whole.counts and watch.seconds == whole.seconds > 0
    (out / "journal.jsonl").write_bytes(lines[1])
    assert watch.look() == {"done": 1, "not yet": 2}, "another sweep has the folder"
    assert json.loads(lines[0])["cell"] in watch.plan.asked
