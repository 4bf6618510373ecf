"""What models, sessions, steps, requests and States show of themselves: short, escaped, and of a session its report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import circuitlab.api as lab
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions
from circuitlab.report import session_view
from circuitlab.story.setup import Other, Setup
from tests.figures.test_report import HOSTILE, Parsed, checked, hostile, hostile_model
from tests.models import TINY, directory
from tests.unit.test_session_results import talk

__all__ = ["hostile"]  # a fixture
SAFE = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "iframe"}


def _parsed(html: str) -> Parsed:
    parsed = Parsed(html)
    assert not parsed.open and not parsed.wrong and {tag for tag, _ in parsed.elements} <= SAFE
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    return parsed


@pytest.fixture
def model(tmp_path: Path) -> lab.Model:
    directory(tmp_path / "tiny", TINY)
    return lab.open(str(tmp_path / "tiny"), use=Engine(ModelStore()))


def test_a_model_says_what_it_is_and_no_folder(model: lab.Model, tmp_path: Path) -> None:
    for shown in (repr(model), _parsed(model._repr_html_()).text):
        assert "tiny" in shown and "2 layers" in shown and "d_model 24" in shown and str(tmp_path) not in shown
    trained = lab.open("attn-only-2l")
    assert f"{len(trained.steps)} checkpoints" in repr(trained)
    assert f"step {trained.steps[3]:,}" in repr(trained.at_step(trained.steps[3]))


def test_a_model_that_was_closed_is_not_opened_to_show_itself(model: lab.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.engine.store, "peek", lambda ref: None)
    monkeypatch.setattr(model.engine.store, "open", lambda ref: pytest.fail("it was opened"))
    assert repr(model) == "<Model tiny>" and "tiny" in model._repr_html_()


def test_a_request_and_a_state_say_what_is_asked(model: lab.Model) -> None:
    cut = (Intervention("zero", Site("z", 1, (2,))),)
    answer = model.compute("attention", text="abab", heads="L1H2", edits=cut)
    assert all(word in repr(answer.request) for word in ("attention", "tiny", "L1H2", "1 intervention", "5 tokens"))
    state = model.state(text="abab <b>", heads="L1H2", destination=2)
    for shown in (repr(state), _parsed(state._repr_html_()).text):
        assert all(word in shown for word in ("tiny", "L1H2", "abab <b>", "9 tokens")) and len(shown) < 300
    long = model.state(text="ab" * 20)
    assert len(repr(long)) < 300


def test_a_session_shows_its_steps_and_its_report_in_a_frame(tmp_path: Path) -> None:
    path = talk(tmp_path)
    session = lab.session(path, use=Engine(ModelStore()))
    parsed = _parsed(session._repr_html_())
    for step in session.steps:
        assert step.title in parsed.text and step.title.split()[0] in repr(step)
        assert step.title in _parsed(step._repr_html_()).text
    assert path.name in repr(session) and f"{len(session.steps)} steps" in repr(session)
    (frame,) = [attributes for tag, attributes in parsed.elements if tag == "iframe"]
    assert frame["sandbox"] == ""
    page = checked(frame["srcdoc"] or "")
    assert all(step.title in page.text for step in session.steps)
    assert not page.attributes("download"), "numbers are in Python"


def test_a_step_says_everything_that_its_numbers_depend_on() -> None:
    zeroed = Intervention("zero", Site("pattern", 1, (2,), (5,), (3,)))
    plain, changed = (
        Setup(model="m", prompt="ab", show=("attention",)),
        {
            "conventions": Setup(conventions=Conventions(fold_norm=False)),
            "interventions": Setup(cut=("L0H1", "best previous_token")),
            "by cell": Setup(edits=((zeroed, True), (replace(zeroed, op="mean"), False))),
            "compared": Setup(pin=(Other(Setup(model="n"), "another"),)),
        },
    )
    shown = {name: session_view.step_words("a step", setup.over(plain)) for name, setup in changed.items()}
    assert len({session_view.step_words("a step", plain), *shown.values()}) == 1 + len(changed)
    words = {name: dict(zip(session_view.HEADS[1:], row, strict=True)) for name, row in shown.items()}
    assert words["interventions"]["interventions"] == "L0H1 zeroed, best previous_token zeroed"
    assert "L1H2" in words["by cell"]["interventions"] and "mean" not in words["by cell"]["interventions"]
    assert words["conventions"]["conventions"] == "norm not folded"
    assert words["compared"]["compared"] == "difference: another"
    table = session_view.table_of_steps("talk", "", [shown["interventions"], session_view.step_words("a step", plain)])
    assert "L0H1 zeroed" in table and "conventions" not in table and "compared" not in table


def test_a_session_of_which_everything_is_markup_stays_in_its_place(hostile: Path) -> None:
    parsed = _parsed(lab.session(hostile, use=Engine(ModelStore()))._repr_html_())
    (frame,) = [attributes for tag, attributes in parsed.elements if tag == "iframe"]
    checked(frame["srcdoc"] or "")
    assert "<script>" in parsed.text and "\x1b" not in parsed.text and "\u202e" not in parsed.text


def test_answers_of_tokens_that_are_markup(tmp_path: Path) -> None:
    model = lab.open(str(hostile_model(tmp_path / "m<script>")), use=Engine(ModelStore()))
    for name in ("attention", "predictions", "token_loss", "logit_lens"):
        answer = model.compute(name, text="".join(HOSTILE))
        parsed = _parsed(answer._repr_html_())
        shown = parsed.text + repr(answer)
        assert "<script>" in parsed.text and not set(shown) & set("\x01\x1b\u202e\u2066")


def test_a_session_whose_model_is_gone_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = talk(tmp_path)
    for weights in tmp_path.rglob("*.safetensors"):
        weights.unlink()
    parsed = _parsed(lab.session(path, use=Engine(ModelStore()))._repr_html_())
    assert "cannot be shown" in parsed.text and not [tag for tag, _ in parsed.elements if tag == "iframe"]


def test_a_report_that_is_too_large_for_a_notebook_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_view, "LARGEST", 1000)
    html = lab.session(talk(tmp_path), use=Engine(ModelStore()))._repr_html_()
    assert "iframe" not in html and "report.html" in html and len(html) < 5000
