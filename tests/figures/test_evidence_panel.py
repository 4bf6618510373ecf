"""The table of evidence: what the paper states, what is measured here, and the picture behind each argument."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.counting import below_whole
from circuitlab.disk import paths
from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore, reference
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Hit, Prose, Rows
from circuitlab.figures.panels.evidence import panel as module
from circuitlab.figures.panels.evidence.arguments import ARGUMENTS, COLUMNS, FAMILY, class_of
from circuitlab.figures.panels.evidence.panel import EvidenceView, Measurements
from circuitlab.figures.panels.theory.panel import TheoryView
from circuitlab.figures.panels.training.panel import TrainingView
from circuitlab.figures.panels.training.points import short
from circuitlab.model.subject import ModelRef
from circuitlab.report.answer_data import tables_data
from circuitlab.report.render import drawn, drawn_of, figure_of
from circuitlab.report.sheet_caption import SheetCaption
from circuitlab.report.sheet_cell import SheetCell
from circuitlab.report.sheet_data import numbers_of
from circuitlab.state.state import State
from tests.lesson_models import write_models
from tests.models import CONFIGS, TINY, directory

PANEL = find_panel("evidence")
HEAD = re.compile(r"L\d+H\d+")
# the slides' tables, argument by argument: contributes some, contributes the majority
STATED = {
    0: (("medium",) * 3, ("medium",) * 3),
    1: (("medium", "medium", "weak"), ("medium", "medium", "weak")),
    2: (("strong", "strong", ""), ("strong", "medium", "")),
    3: (("", "", "plausibility"), ("", "", "plausibility")),
    5: (("", "", "analogy"), ("", "", "analogy")),
    6: (("strong", "strong", "medium"), ("strong", "medium", "medium")),
}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("shipped"))


def beside(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """These models stand where the shipped ones do."""
    elsewhere = paths.shipped
    monkeypatch.setattr(paths, "shipped", lambda kind: folder if kind == "models" else elsewhere(kind))


@pytest.fixture
def bench(shipped: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, State]:
    """A small model under the name of the two-layer one, beside the others of the family; answers are those of the whole file."""
    beside(monkeypatch, shipped)
    return engine, State(reference("builtin:attn-only-2l"))


def cells(engine: Engine, state: State) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """(columns of the table, what is said of each argument when it is chosen)."""
    said: dict[str, str] = {}
    columns: dict[str, list[Any]] = {}
    for i in range(len(ARGUMENTS)):
        figure = figure_of(engine, PANEL, PANEL.pick(state, Hit("arguments", (i,))))
        table, words = figure.find("arguments"), figure.find("here")
        assert isinstance(table, Rows) and isinstance(words, Prose) and table.chosen == (i,)
        ((lead, text),) = words.paragraphs
        said[lead.split(" (")[0]] = text
        columns = {c.name: c.values.tolist() for c in table.columns}
    return columns, said


@pytest.mark.parametrize("claim", ["some", "the majority"])
def test_strengths_are_those_that_the_paper_states(bench: tuple[Engine, State], claim: Any) -> None:
    engine, state = bench
    columns, _ = cells(engine, state.with_view("evidence", EvidenceView(claim=claim)))
    for row, stated in STATED.items():
        assert tuple(columns[name][row] for name in COLUMNS) == stated[claim != "some"]
    assert set(columns[COLUMNS[0]][4:5]) == {"not given"}


def test_numbers_are_those_of_the_answers(bench: tuple[Engine, State], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, state = bench
    monkeypatch.setattr(module, "TWICE", 0.0)  # no head of a small random model does induction
    asked = PANEL.requests(state, facts_of(engine, state.model))
    heads, series = (engine.answer(asked[role]).result for role in ("heads", "series"))  # type: ignore[index]
    columns, words = cells(engine, state)
    prefix, rise = heads.of("prefix matching"), heads.of("ablation")
    head = tuple(np.unravel_index(prefix.argmax(), prefix.shape))
    assert f"L{head[0]}H{head[1]}" in words["3 direct ablation"]
    assert columns["here"][2] == f"{rise[head]:+.2f} nats".replace("-", "−")
    assert columns["here"][0] == f"{-series.fall[0, 0]:.2f} nats".replace("-", "−")
    plain, smeared = (series.names.index(name) for name in FAMILY[:2])
    between = np.arange(series.between.size, dtype=float).reshape(series.between.shape)
    few, sentence = Measurements(heads, replace(series, between=between), True).all()[1]
    assert few == f"{between[smeared, plain]:.2f} nats" and f"one layer {between[smeared, plain]:.2f} ± " in sentence, (
        "toy models differ by less than is shown"
    )
    deep = series.shapes[:, 0] > 0
    assert columns["here"][5] == f"{np.isfinite(series.phase[deep, 0, 0]).sum()} of {deep.sum()} models"
    positivity = heads.of("positivity through earlier heads")[head]
    assert columns["here"][4].startswith(f"QK {positivity:.2f}".replace("-", "−"))
    assert "not computed" in columns["here"][3] and "Prompt sets" in words["4 generality"]


def test_a_double_click_opens_the_picture_behind_an_argument(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    for i, argument in enumerate(ARGUMENTS):
        clicked = PANEL.pick(state, Hit("arguments", (i,)))
        assert clicked.views == state.with_view("evidence", EvidenceView(argument=i + 1)).views or i == 0
        opened = PANEL.pick(clicked, Hit("arguments", (i,), "double-click"))
        assert PANEL.leads_to(opened) == argument.panel == find_panel(argument.panel).name
        assert find_panel(argument.panel).requests(opened, facts_of(engine, opened.model)) is not None
    co = PANEL.pick(state, Hit("arguments", (1,), "double-click")).view("training", TrainingView)
    assert (co.page, co.context, co.models) == ("curves", "text", ", ".join(FAMILY))
    ablated = PANEL.pick(state, Hit("arguments", (2,), "double-click")).view("theory", TheoryView)
    assert (ablated.page, ablated.measured) == ("heads", "ablation")
    assert PANEL.pick(state, Hit("arguments", (6,), "double-click")) is state, "the last row sums up"
    assert PANEL.pick(state, Hit("here", (0,), "double-click")) is state


def test_what_is_not_measured_of_a_model_says_so(shipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "TWICE", 0.0)
    beside(monkeypatch, shipped)
    engine, state = Engine(ModelStore()), State(ModelRef(f"file:{directory(tmp_path / 'm', TINY, n_layers=1, n_ctx=64)}"))
    columns, words = cells(engine, state)
    assert columns["here"][0] == columns["here"][4] == "not computed"
    assert "was not measured" in words["1 co-occurrence"] and "nats" in columns["here"][2]
    none = State(reference("builtin:attn-only-0l"))
    why = PANEL.requests(none, facts_of(engine, none.model))
    assert isinstance(why, Why) and "no layers" in why.text


def test_models_have_the_class_that_the_paper_sorts_them_into() -> None:
    assert [class_of(c) for c in (TINY, CONFIGS["gpt2"], replace(CONFIGS["gpt2"], n_layers=12))] == [0, 1, 2]


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler")
def test_paper_has_all_sentences_and_no_gestures(bench: tuple[Engine, State], tmp_path: Path) -> None:
    engine, state = bench
    figure = figure_of(engine, PANEL, state)
    (tmp_path / "page.pdf").write_bytes(drawn(figure, ".pdf", Paper()))
    page = subprocess.run(("pdftotext", str(tmp_path / "page.pdf"), "-"), capture_output=True, text=True, check=True).stdout
    page = " ".join(page.split()).replace("- ", "-")
    assert all(one.name in page and f"({one.kind})" in page for one in ARGUMENTS)
    assert (
        "Olsson" in page
        and "small, attention only" in page
        and "leave argument 5 out" in page
        and "blank: the paper states no strength" in page
    )
    everything = " ".join((page, *figure.caption_parts))
    assert "click" not in everything, "nobody clicks paper"


def test_where_no_head_is_above_chance_none_is_named(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    heads = engine.answer(PANEL.requests(state, facts_of(engine, state.model))["heads"]).result  # type: ignore[index]
    prefix = heads.of("prefix matching")
    for times, named in ((1.9, False), (2.1, True)):
        every = Measurements(heads, None, False, prefix / times).all()
        assert bool(HEAD.search(every[2][1])) == named and (every[2][0] == every[4][0] == "no induction head") != named
        assert f"{prefix.max() / times:.2f}" in every[2][1], "the chance level is said"


def test_an_ablation_says_whether_patterns_were_held(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    heads = engine.answer(PANEL.requests(state, facts_of(engine, state.model))["heads"]).result  # type: ignore[index]
    sentences = [Measurements(heads, None, False, held=held).all()[2][1] for held in (True, False)]
    assert "patterns held" in sentences[0] and "patterns held" not in sentences[1]


def test_whole_trainings_name_their_models_and_tokens(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    series = engine.answer(PANEL.requests(state, facts_of(engine, state.model))["series"]).result  # type: ignore[index]
    _, words = cells(engine, state)
    trained = {name: series.tokens[series.model == i].max() for i, name in enumerate(series.names)}
    for row, names in {"1 co-occurrence": FAMILY[2:], "2 co-perturbation": FAMILY, "6 continuity": FAMILY}.items():
        assert all(f"{name} ({short(trained[name])} tokens)" in words[row] for name in names)


def test_a_sheet_has_the_table_itself_and_the_models_behind_its_rows(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    drawn_panel = drawn_of(engine, PANEL, state)
    cell = SheetCell("", "evidence", drawn_panel.figure, drawn_panel.answers, {})
    numbers = numbers_of(engine, [cell])
    rows = list(csv.reader(io.StringIO(numbers.files["evidence/arguments.csv"].decode())))
    columns, _ = cells(engine, state)
    assert rows == [list(columns), *map(list, zip(*columns.values(), strict=True))], "its cells are in no answer's table"
    assert ["evidence/arguments.csv"] in [one["files"] for one in numbers.parts[0]["answers"]]
    (table,) = tables_data(drawn_panel.figure)
    assert list(table.table.heads) == rows[0] and table.file == numbers.files["evidence/arguments.csv"]
    listed = {line.split(",")[0] for line in SheetCaption("", (cell,), (), {}).models()}
    assert set(FAMILY) <= listed


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.997, "0.997"), (-0.9996, "−0.9996"), (1.0, "1.00"), (0.5, "0.50"), (float("nan"), "nan")],
)
def test_a_number_below_one_is_not_read_as_one(value: float, text: str) -> None:
    assert below_whole(value) == text


def test_the_argument_is_counted_as_in_the_paper(bench: tuple[Engine, State]) -> None:
    engine, state = bench
    figure = figure_of(engine, PANEL, state.with_view("evidence", EvidenceView(argument=2)))
    words = figure.find("here")
    assert isinstance(words, Prose) and words.paragraphs[0][0].startswith("2 ")
