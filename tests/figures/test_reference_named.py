"""A difference says what it is a difference to wherever its numbers go, of each kind in which the reference differs."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from circuitlab.caption_parts import Reference
from circuitlab.draw.look.paper import Paper
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import facts_of, find_panel
from circuitlab.gui.presenter.step_words import footer_of, side_shown
from circuitlab.model.subject import ModelRef
from circuitlab.report.page import page_of
from circuitlab.report.render import figure_of
from circuitlab.report.saved_session import SavedSession, opened_session
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from tests.models import directory
from tests.series_files import keep_scaled

TEXT, LATER = "ab ab ab", "cab ab ab"
NOW = Setup(model="mine", checkpoint=200, prompt=TEXT, cut=("L0H1",), compare="difference", show=("attention",))
ALL = Setup(checkpoint=100, prompt=LATER, cut=("L1H2", "L1H3"))
# what the reference has otherwise: its words in a session, and what a reader must find of it
KINDS: Mapping[str, tuple[Setup, tuple[str, ...]]] = {
    "model": (Setup(model="beside"), ("beside", "uncut")),
    "step": (Setup(checkpoint=100), ("step 100", "L0H1 zeroed")),
    "final weights": (Setup(checkpoint="final"), ("final weights", "L0H1 zeroed")),
    "cut": (Setup(cut=("L1H2",)), ("L1H2 zeroed",)),
    "three cuts": (Setup(cut=("L0H0", "L1H2", "L1H3")), ("L0H0 L1H2 L1H3 zeroed",)),
    "uncut": (Setup(cut=()), ("uncut",)),
    "prompt": (Setup(prompt=LATER), (f"“{LATER}”", "L0H1 zeroed")),
    "all": (ALL, ("step 100", f"“{LATER}”", "L1H2 zeroed", "L1H3 zeroed")),
}
NAMES = ("", "before")  # pins are called so; without a name by what they have otherwise


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SavedSession:
    """A step for each kind and name."""
    folder = tmp_path_factory.mktemp("session")
    models = {name: directory(folder / name) for name in ("mine", "beside")}
    keep_scaled(models["mine"], {100: 0.5, 200: 0.8})
    entries = {name: ModelEntry(ModelRef(f"file:{path}")) for name, path in models.items()}
    pinned = lambda words, name: Setup(**{**vars(NOW), "pin": (Other(words, name),)})
    steps = tuple(Step(f"{kind} {name}", setup=pinned(words, name)) for kind, (words, _) in KINDS.items() for name in NAMES)
    path = folder / "talk.circuitlab"
    path.write_bytes(bytes_of(Session(entries, NOW, Story("A talk", steps)), folder))
    return opened_session(path, Engine(ModelStore()))


@pytest.mark.parametrize("name", NAMES, ids=["unnamed", "named"])
@pytest.mark.parametrize("kind", KINDS)
def test_caption_sheet_and_its_list_say_what_the_reference_is(session: SavedSession, kind: str, name: str) -> None:
    step = session.steps[list(KINDS).index(kind) * len(NAMES) + NAMES.index(name)]
    (clause,) = (part for part in step.figure("attention").figure.caption_parts if isinstance(part, Reference))
    assert all(words in clause for words in KINDS[kind][1]), clause
    assert name in clause
    made = step.sheet().on(Paper(width_mm=174, caption="short"))
    archive = zipfile.ZipFile(io.BytesIO(made.output(Path("a.svg"), made.numbers(), "").files[Path("a.zip")]))
    assert clause in archive.read("a.txt").decode("utf-8")
    (part,) = json.loads(archive.read("sheet.json"))["parts"]
    assert part["reference"] in clause
    cuts = {answer["side"]: answer["interventions"] for answer in part["answers"] if "analysis" in answer}
    assert cuts["now"] == ["L0H1 zeroed"]
    assert " ".join(cuts["reference"]) in clause.replace(", ", " ")


def test_a_report_says_it_of_every_step(session: SavedSession) -> None:
    page = unescape(page_of(session.content()))
    captions = page.split("<figcaption")[1:]
    assert len(captions) == len(KINDS) * len(NAMES)
    for caption, (kind, (_, words)) in zip(captions, ((k, v) for k, v in KINDS.items() for _ in NAMES), strict=True):
        clause = caption.split("</figcaption")[0].partition("reference")[2]
        assert all(one in clause for one in words), (kind, clause)


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_of_the_reference_alone_is_about_the_reference(session: SavedSession, kind: str) -> None:
    state = session.steps[list(KINDS).index(kind) * len(NAMES)].state
    reference = figure_of(session.engine, find_panel("attention"), replace(state, compare="reference"))
    assert state.reference is not None
    alone = figure_of(session.engine, find_panel("attention"), replace(state.at(state.reference), pins=(), compare="now"))
    assert reference.about == alone.about
    assert [type(part) for part in reference.about] == [type(part) for part in alone.about]
    now = figure_of(session.engine, find_panel("attention"), replace(state, compare="now"))
    assert now.about != alone.about


def test_a_scale_that_is_shared_names_the_reference_that_it_is_shared_with(session: SavedSession) -> None:
    clauses: dict[str, list[str]] = {}
    for at, (kind, (_, words)) in enumerate(KINDS.items()):
        state = replace(session.steps[at * len(NAMES)].state, compare="now")
        figures = [figure_of(session.engine, find_panel(name), state) for name in ("attribution", "attention", "heads", "paths")]
        clauses[kind] = [part for figure in figures for part in figure.caption_parts if "on one scale with" in part]
        assert all(one in part for one in words for part in clauses[kind])
    assert sum(map(bool, clauses.values())) >= len(KINDS) / 2, "a wider scale of now is none of both"


@pytest.mark.parametrize("kind", ["step", "cut", "model"])
def test_the_footer_of_a_stage_is_of_the_side_that_is_shown(session: SavedSession, kind: str) -> None:
    state = session.steps[list(KINDS).index(kind) * len(NAMES)].state
    footers: dict[str, str] = {}
    for compare in ("now", "difference", "reference"):
        shown = replace(state, compare=compare)
        figures = (figure_of(session.engine, find_panel("attention"), shown),)
        side = side_shown(shown, figures)
        footers[compare] = footer_of(side, facts_of(session.engine, side.model), figures)
    assert footers["now"] == footers["difference"] != footers["reference"]
    assert "step 200" in footers["now"] and "L0H1 zeroed" in footers["now"]
    other = {"step": "step 100", "cut": "L1H2 zeroed", "model": "beside"}
    assert other[kind] in footers["reference"]
