"""A fault of the program in one step of a talk, a report or a folder of sheets: that step says so, the rest is there."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

from circuitlab.cli.parser import main
from circuitlab.disk.paths import log_file
from circuitlab.draw.export.plate import Plate
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.report.prepare import prepare
from circuitlab.report.requests import requests_of
from circuitlab.report.saved_session import opened_session
from circuitlab.story.arrangements import FRONTS
from tests import talks

original, path = talks.original, talks.path  # the fixtures
REASON = "KeyError: 'nobody expected it'"
TITLES = [step.title for step in talks.STEPS]


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions fail with what no one has foreseen; two of five steps show the panel without a film."""
    compute: Any = Engine._compute

    def failing(self: Engine, cache: object, request: Request, *more: object) -> object:
        if request.analysis.name == "predictions":
            raise KeyError("nobody expected it")
        return compute(self, cache, request, *more)

    monkeypatch.setattr(Engine, "_compute", failing)


def logged() -> str:
    return log_file().read_text(encoding="utf-8")


@pytest.mark.usefixtures("faulty")
def test_a_report_names_the_steps_and_has_the_others(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "talk.html"
    assert main(["report", str(path), "-o", str(out)]) == 1
    printed = capsys.readouterr()
    for number in (1, 2):
        assert f"Step {number}, {TITLES[number - 1]}: " in printed.err
    assert REASON in printed.err and str(log_file()) in printed.err and "Traceback" not in printed.err
    page = html.unescape(out.read_text(encoding="utf-8"))
    assert all(title in page for title in TITLES)
    assert "KeyError" in page and str(log_file()) not in page, "no folder of this machine"
    assert page.count("<svg") >= 4, "attention of every step"
    assert "Traceback" in logged() and "nobody expected it" in logged()


def test_a_figure_that_cannot_be_laid_out_costs_no_other(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out: Any = Plate.__init__

    def failing(self: Plate, cells: Any, *more: Any) -> None:
        if any(cell.figure.find("ranking") is not None for cell in cells):
            raise KeyError("nobody expected it")
        lay_out(self, cells, *more)

    monkeypatch.setattr(Plate, "__init__", failing)
    out = tmp_path / "talk.html"
    assert main(["report", str(path), "-o", str(out)]) == 1
    printed = capsys.readouterr().err
    assert f"{TITLES[0]}, " in printed and REASON in printed and "Traceback" not in printed
    assert all(title in html.unescape(out.read_text(encoding="utf-8")) for title in TITLES)
    assert "Traceback" in logged()


@pytest.mark.usefixtures("faulty")
def test_a_folder_of_sheets_has_those_of_the_other_steps(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "figures"
    assert main(["sheet", str(path), "-o", f"{folder}/"]) == 1
    printed = capsys.readouterr().err
    assert f"Step 1, {TITLES[0]}: {REASON}" in printed and "Traceback" not in printed
    assert {file.name for file in folder.glob("*.pdf")} == {"fig3.pdf", "fig5.pdf"}
    assert "Traceback" in logged()


@pytest.mark.usefixtures("faulty")
def test_a_talk_is_prepared_but_for_what_failed(path: Path) -> None:
    engine = Engine(ModelStore())
    readiness = prepare(opened_session(path, engine).session, engine, FRONTS)
    assert [step.is_ready for step in readiness.steps] == [False, False, True, False, True]
    assert any(REASON in line for line in readiness.steps[0].lacking)
    assert readiness.steps[0].held, "the rest of the step"
    readiness.release(engine)


def test_what_a_step_needs_is_listed_for_the_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from circuitlab.report import requests

    engine, needed = Engine(ModelStore()), requests._needed

    def failing(engine: Engine, place: Any, fronts: Any) -> Any:
        if place.step.title == TITLES[1]:
            raise KeyError("nobody expected it")
        return needed(engine, place, fronts)

    monkeypatch.setattr(requests, "_needed", failing)
    listed = list(requests_of(opened_session(path, engine).session, engine, FRONTS, now=False))
    assert [REASON in one.lacking for one in listed] == [False, True, False, False, False]
    assert all(one.requests for one in listed if not one.lacking)
