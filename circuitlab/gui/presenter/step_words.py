"""What is written on the page of a step: its title, the line that everybody reads, the footer, and where its film stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from circuitlab.draw.look.closed_document import ClosedDocument
from circuitlab.figures.contracts.about import name_and_weights
from circuitlab.figures.contracts.compare import shows_reference
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.contracts.panel import panels, view_types
from circuitlab.figures.marks import Figure, joined
from circuitlab.gui.lessons.own_steps import proposed_title
from circuitlab.gui.lessons.text_view import FEATURES
from circuitlab.gui.presenter.page import FilmPlace
from circuitlab.model.subject import Conventions
from circuitlab.state.cuts import edit_words
from circuitlab.state.state import State
from circuitlab.story.film import Scene, title_at_frame
from circuitlab.story.panel_names import unfollowed
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step
from circuitlab.story.text import fill_text

UNTITLED = "Untitled"


def first_line(markdown: str) -> str:
    """The first paragraph of a text as plain words."""
    document = ClosedDocument()
    document.setMarkdown(markdown, FEATURES)
    lines = (line.strip() for line in document.toPlainText().splitlines())
    return next((line for line in lines if line), "")


def title_of(step: Step, setup: Setup, state: State, figures: Iterable[Figure]) -> str:
    """The title of a step that shows these figures of a State; of a film that is called by a figure's values, with those of the
    frame that is shown.
    """
    title, film = step.title or UNTITLED, setup.play
    shown = (proposed_title(figure, state) for figure in figures)
    return title if film is None else title_at_frame(title, shown) or title


def line_of(step: Step, setup: Setup, words: Mapping[str, str], values: Mapping[str, str]) -> str:
    """The line of a step that everybody reads, with its numbers filled in; before it, which panels there are none of."""
    lacking = "".join(f"{words[0].upper()}{words[1:]}. " for words in unfollowed(setup, view_types()))
    return lacking + first_line(fill_text(step.text, words, values))


def footer_of(state: State, facts: Facts | None, figures: Sequence[Figure]) -> str:
    """What is said once for all these figures of a step: the model and its weights, conventions, the interventions that each of
    them is under; the type of numbers if not the usual one. None: the model is not open.
    """
    *norms, dtype = state.conventions.words(None if facts is None else facts.config)
    cut = [words for words in edit_words(state.subject.edits) if figures and all(words in figure.about for figure in figures)]
    conventions = (*norms, *(() if dtype == Conventions().dtype else (dtype,)), *cut)
    return joined(*name_and_weights(state, facts), *conventions)


def side_shown(state: State, figures: Iterable[Figure]) -> State:
    """The State that these figures are of: that of the reference where it is shown alone."""
    pin = state.reference
    alone = pin is not None and any(shows_reference(figure, state) for figure in figures)
    return state.at(pin) if alone and pin is not None else state


def place_of(film: Sequence[Scene], state: State) -> FilmPlace | None:
    """Where a film stands whose scene of this State's model is shown: nowhere where somebody has gone to another model."""
    if not film:
        return None
    every = tuple(scene.words for scene in film)
    at = next((i for i, scene in enumerate(film) if scene.state.model == state.model), None)
    return FilmPlace("", 0.0, every) if at is None else FilmPlace(every[at], (at + 1) / len(film), every)


def title_of_others(setup: Setup, names: Sequence[str]) -> str:
    """The title over panels of a step that its own is not about, "" where it is: a kept view is about the one that was used."""
    if not setup.stage or set(setup.stage) & set(names):
        return ""
    return joined(*(panels()[name].title for name in names))
