"""What answers of a figure are called: of several models each by its model, of a reference by what it is, each once."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.figures.marks import Figure
from circuitlab.figures.panels.models.models import SideBySideView
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.answer_data import answers_data
from circuitlab.report.render import Sides, drawn_of
from circuitlab.report.sheet_cell import SheetCell
from circuitlab.report.sheet_data import numbers_of
from circuitlab.state.cuts import ablation, with_edits
from circuitlab.state.state import State
from tests.models import CONFIGS, directory


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Three models beside each other, of which the open one is cut."""
    folder = tmp_path_factory.mktemp("models")
    paths = [directory(folder / name, CONFIGS["gpt2"]) for name in ("first", "second one", "third")]
    state = State(ModelRef(f"file:{paths[0]}")).with_tokens((0, 5, 9, 5))
    state = state.with_view("side_by_side", SideBySideView(models=",".join(map(str, paths))))
    return with_edits(state, ablation(Head(0, 1)))


def answers(engine: Engine, state: State) -> Sides:
    return drawn_of(engine, find_panel("side_by_side"), replace(state, compare="difference")).answers


def test_of_several_models_each_table_and_file_names_its_own(engine: Engine, state: State) -> None:
    sides = answers(engine, state)
    data = answers_data(engine, sides, reference="uncut")
    titles, names = [one.title for one in data], [one.name for one in data]
    # the two models that are not cut are the same on both sides; the one that is has a difference
    assert len(set(titles)) == len(set(names)) == len(data) == 5
    assert titles.pop().endswith("now minus uncut") and names.pop().startswith("difference-model-0-first")
    for name, title, file, n in zip(("first", "second one", "third"), titles, names, (2, 1, 1), strict=False):
        assert name in title and f"-{name.replace(' ', '-')}" in file
        assert sum(name in one for one in titles) == n
    sides_named = [("reference uncut" in title, "also of" in title) for title in titles]
    assert sides_named == [(False, False), *[(True, True)] * 2, (True, False)]
    assert all(re.fullmatch(r"[\w.+-]+", name) for name in names)


def test_files_of_a_sheet_are_named_alike_and_are_the_same_again(engine: Engine, state: State) -> None:
    sides = answers(engine, state)
    numbers = [numbers_of(engine, [SheetCell("B", "side_by_side", Figure(), s, {})]).files for s in (sides, _slower(sides))]
    assert numbers[0] == numbers[1]
    assert all(" " not in file for file in numbers[0])
    for file in ("model-0-first", "reference-model-0-first", "difference-model-1-second-one"):
        assert f"B-side_by_side/{file}.npz" in numbers[0]


def test_of_one_model_names_are_the_roles(engine: Engine, state: State) -> None:
    sides = drawn_of(engine, find_panel("predictions"), state).answers
    data = answers_data(engine, sides, reference="uncut")
    (role,) = sides["now"]
    assert [one.name for one in data] == [role, f"reference-{role}", f"difference-{role}"]
    assert [one.title for one in data] == ["predictions", "predictions, reference uncut", "predictions, now minus uncut"]


def _slower(sides: Sides) -> Sides:
    later = lambda one: replace(one, provenance=replace(one.provenance, seconds=one.provenance.seconds + 1))
    return {side: {role: later(one) for role, one in roles.items()} for side, roles in sides.items()}
