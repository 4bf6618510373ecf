"""Compare: every panel and page beside the reference pin, on the same requests and the same controls.

A panel draws a State. Here its figure of the pinned State is drawn as well, and the two are put together mark by mark: the
reference alone, or now beside it, always on one scale, and the caption says what stands beside what. No panel takes a difference
of its own. Where nothing can be compared the caption gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.compare_marks import difference
from circuitlab.figures.contracts.compare_questions import other_question
from circuitlab.figures.contracts.declaration import Panel
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.contracts.pinned import OF_NOW, SAME, Pinned
from circuitlab.figures.contracts.shared_scales import colours, on_one_scale, shared
from circuitlab.figures.contracts.table_scales import on_one_scale as tables_on_one_scale
from circuitlab.figures.contracts.vocabulary import aligned, one_vocabulary, pinned_state
from circuitlab.figures.marks import Figure, Heatmap, Lines, Mark, Rows, Tokens, joined
from circuitlab.figures.marks.texts import ALONE
from circuitlab.model.subject import ModelRef
from circuitlab.session.reference_names import reference_name
from circuitlab.session.state import Pin, State

# Of what a mark shows: another way to compute the same (a prefix that is reused, raw and folded weights) differs by no more.
ROUNDING, ROUNDING_DOUBLE = 1e-5, 1e-12
NUMBER = re.compile(r"([^\d+−-]*)([+−-]?\d+(?:[.,]\d+)*%?)([^\d]*)")  # a word of a title: before, the number, after
OF_EACH = re.compile(r"(: )?rows sum to .*")  # conventions of values that their differences have not
MOST_NUMBERS = 3  # of a title that are said of both


def with_reference(panel: Panel, state: State, facts: Facts, now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> Figure:
    """What the panel draws, beside the reference where there is one."""
    pin = state.reference
    if pin is None:
        return panel.figure(state, facts, now, ref)
    if state.compare == "now":
        made = panel.figure(state, facts, now, ref)
        there, _ = _there(panel, state, pin, facts, ref) if ref and made.grid else (None, "")
        return made if there is None else _on_one_scale(made, there, pin)
    if same := _the_same(panel, state, pin, facts):
        return _say(_said_the_same(panel, state, pin, facts, now), same)
    there, why = _there(panel, state, pin, facts, ref)
    alone = panel.figure(replace(state, compare="now"), facts, now, {})
    if there is None:
        return _say(alone, why)
    if state.compare == "reference":
        return _reference(alone, there, pin)
    if other := other_question(now, ref, facts, _facts(pin, state, facts) or facts, pin.label):
        return _say(alone, other)
    return _difference(alone, there, state, pin, facts)


def short_label(state: State, pin: Pin, facts: Facts) -> str:
    """A name of the reference that fits a narrow column's header."""

    def name_of(ref: ModelRef) -> str:
        known = facts if ref == state.model else facts.others(ref)
        return ref.name if known is None else known.name

    return reference_name(state, pin, name_of)


def _say(figure: Figure, *parts: str) -> Figure:
    """The figure with further parts of its caption; a figure that says why it is empty stays."""
    return figure.with_caption(*parts) if figure.grid else figure


def _facts(pin: Pin, state: State, facts: Facts) -> Facts | None:
    return facts if pin.subject.model == state.model else facts.others(pin.subject.model)


def _the_same(panel: Panel, state: State, pin: Pin, facts: Facts) -> str:
    """Why the reference shows the same, "" where it does not: nothing that differs enters what is asked."""
    there = _facts(pin, state, facts)
    asked: Any = panel.requests(state, facts)
    if there is None or not isinstance(asked, Mapping) or not asked:
        return ""
    at = pinned_state(state, pin, facts, there)
    if isinstance(at, str) or panel.requests(at, there) != asked:
        return ""
    if pin.subject == state.subject:
        return f"not compared: {pin.label} is what is shown; change the text or cut a head"
    return f"the same in {pin.label}: nothing here depends on {_differs(state, pin)}"


def _said_the_same(panel: Panel, state: State, pin: Pin, facts: Facts, now: Mapping[str, Answer]) -> Figure:
    """The figure, its title with the words that it is no difference; one whose title names the point that is shown is of both."""
    alone = panel.figure(replace(state, compare="now"), facts, now, {})
    other = _facts(pin, state, facts) or facts
    at = pinned_state(state, pin, facts, other)
    if not alone.grid or isinstance(at, str):
        return alone
    there = panel.figure(replace(at, compare="now"), other, now, {})
    words = f"{SAME} {short_label(state, pin, facts)}" if there.title == alone.title else ""
    return replace(alone, title=joined(alone.title, words))


def _differs(state: State, pin: Pin) -> str:
    """What the reference has otherwise, as kinds of things."""
    here, there = state.subject, pin.subject
    kinds = {
        "the model": (here.model, there.model),
        "the prompt": (here.tokens, there.tokens),
        "the cut": (here.edits, there.edits),
    }
    found = [kind for kind, (a, b) in kinds.items() if a != b]
    return " or ".join(found) or "the conventions"


def _there(panel: Panel, state: State, pin: Pin, facts: Facts, ref: Mapping[str, Answer]) -> tuple[Figure | None, str]:
    """The panel's figure of the pinned State, or why there is none."""
    other = _facts(pin, state, facts)
    if other is None:
        return None, f"not compared: the model of {pin.label} is not open"
    at = pinned_state(state, pin, facts, other)
    if isinstance(at, str):
        return None, f"not compared with {pin.label}: {at}"
    if panel.requests(at, other) == {}:
        asks = bool(panel.requests(state, facts))
        return None, f"not compared: this panel itself sets now against {pin.label}" if asks else ""
    figure = panel.figure(replace(at, compare="now"), other, ref, {})
    if figure.grid:
        return figure, ""
    if figure.why_empty:
        return None, f"not compared, in {pin.label}: {figure.why_empty}"
    return None, f"{pin.label} is being computed"


def _on_one_scale(made: Figure, there: Figure, pin: Pin) -> Figure:
    """Now, on the scale of both."""
    grid = tuple(tuple(shared(mark, there.find(mark.name)) for mark in row) for row in made.grid)
    if all(a is b for row, old in zip(grid, made.grid, strict=True) for a, b in zip(row, old, strict=True)):
        return made
    return _say(replace(made, grid=grid), f"on one scale with {pin.label}")


def _reference(made: Figure, there: Figure, pin: Pin) -> Figure:
    """The reference, on the scale of both."""
    grid = tuple(tuple(shared(mark, made.find(mark.name)) for mark in row) for row in there.grid)
    return _say(replace(there, grid=grid, title=joined(pin.label, there.title)), f"reference {pin.label}, on the scale of both")


def _other_conventions(state: State, pin: Pin, label: str) -> str:
    """Which conventions the reference has that this state has not, "" for none."""
    here, there = state.conventions.words(), pin.subject.conventions.words()
    other = [b for a, b in zip(here, there, strict=True) if a != b]
    return f"{label}: {', '.join(other)}" if other else ""


def _of_tokens(mark: Mark) -> bool:
    """Whether what is compared in it are tokens."""
    if isinstance(mark, Rows):
        return any(column.tokens for column in mark.columns)
    if isinstance(mark, Lines):
        return mark.x_axis.tokens
    return isinstance(mark, Tokens) or (isinstance(mark, Heatmap) and mark.x.tokens)


def _titles(here: str, there: str, label: str) -> tuple[str, str]:
    """A title for both, each number said to be whose it is; else that it is of now, and the reference's for the caption."""
    if here == there or not here or not there:
        return here, ""
    words = list(zip_longest(here.split(" "), there.split(" "), fillvalue=""))
    said = [a if a == b else _both(a, b, label) for a, b in words]
    if all(said) and sum(a != b for a, b in words) <= MOST_NUMBERS:
        return " ".join(said), ""
    return f"now: {here}", f"{label}: {there}"


def _both(here: str, there: str, label: str) -> str:
    """A word with a number in it, of now and of the reference; "" where more than the number differs."""
    a, b = NUMBER.fullmatch(here), NUMBER.fullmatch(there)
    return f"{a[1]}now {a[2]}, {label} {b[2]}{a[3]}" if a and b and (a[1], a[3]) == (b[1], b[3]) else ""


def _written(a: Facts, b: Facts) -> Callable[[int], int | None]:
    """From a token of one vocabulary to the one of another that is written so."""
    return lambda i: b.token_of(a.token_text(i))


def _headed(before: Mark, after: Mark, there: Figure, label: str) -> Mark:
    """A table or a text under a heading that says of both what its numbers are."""
    partner = there.find(before.name)
    if after is before or not isinstance(after, Rows | Tokens) or not isinstance(partner, Rows | Tokens):
        return after
    return replace(after, heading=_titles(after.heading, partner.heading, label)[0])


def _shown(shown: tuple[int, int] | None, compared: Mapping[Mark, Mark]) -> tuple[int, int] | None:
    """How many of how many are listed, where the reference's are listed too."""
    listed = lambda mark: int((mark.ids[:, 0] != ALONE).sum()) if isinstance(mark, Rows) and len(mark.ids) else 0
    more = sum(listed(one) - listed(mark) for mark, one in compared.items())
    return None if shown is None else (min(shown[0] + more, shown[1]), shown[1])


def _difference(made: Figure, there: Figure, state: State, pin: Pin, facts: Facts) -> Figure:
    """Now against the reference, mark by mark."""
    other = _facts(pin, state, facts) or facts
    found, alike = aligned(state, pin, facts, other), one_vocabulary(state, pin, facts, other)
    single = "float32" in (state.conventions.dtype, pin.subject.conventions.dtype)
    rounding = ROUNDING if single else ROUNDING_DOUBLE
    ours, theirs = (int, int) if alike else (_written(other, facts), _written(facts, other))
    label = short_label(state, pin, facts)
    pinned = Pinned(label, found.align, len(pin.subject.tokens), rounding, alike, ours, theirs)
    pairs = {mark: difference(mark, there.find(mark.name), pinned) for mark in made.marks()}
    compared = on_one_scale({mark: one for mark, (one, _) in pairs.items()})
    said = [words + (colours(compared[mark]) if one is not mark else "") for mark, (one, words) in pairs.items()]
    said = [words for words in dict.fromkeys(said) if not any(words != other and other.startswith(words) for other in said)]
    moved = [one for mark, one in compared.items() if one is not mark]
    compared = {mark: _headed(mark, one, there, label) for mark, one in compared.items()}
    shown = _shown(made.shown, compared)
    grid = tuple(tuple(compared[mark] for mark in row) for row in made.grid)
    grid = tables_on_one_scale(grid) if any(isinstance(mark, Rows) and mark.key for mark in made.marks()) else grid
    texts = any(map(_of_tokens, made.marks()))
    words = found.words if texts and not (alike and pin.subject.tokens == state.tokens) else ""
    title, theirs_title = _titles(made.title, there.title, label)
    if not moved:
        title = joined(title, _why_as_it_is(said, label) if made.title == there.title else "")
    elif all(isinstance(one, Rows) for one in moved):
        title = joined(title, f"beside {label}")
    else:
        title = joined(f"now − {label}", title)
    named = f"{label}: {pin.label}" if label != pin.label else ""
    after = (named, *said, words, _other_conventions(state, pin, label), theirs_title)
    subtracted = any(not isinstance(one, Rows) for one in moved)
    parts = _conventions(made.caption_parts, there.caption_parts, label, subtracted) if moved else made.caption_parts
    return _say(replace(made, grid=grid, title=title, shown=shown, caption_parts=parts), *after)


def _conventions(here: tuple[str, ...], there: tuple[str, ...], label: str, subtracted: bool) -> tuple[str, ...]:
    """What now's caption says: numbers of both sides are of both, other words that the reference has not are of now alone.

    Where values are subtracted, what they had in common they have no longer: rows that sum to 1 on both sides sum to 0.
    """
    parts = here
    if len(here) == len(there):
        pairs = [(a, *_titles(a, b, label)) for a, b in zip(here, there, strict=True)]
        parts = tuple(f"{a} (now)" if apart else both for a, both, apart in pairs)
    return tuple(filter(None, (OF_EACH.sub("", part) for part in parts))) if subtracted else parts


def _why_as_it_is(said: list[str], label: str) -> str:
    """For a title, why nothing of a figure became a difference, where all of it is for one reason."""
    same = [SAME in words for words in said if not words.endswith(OF_NOW)]
    return f"{SAME} {label}" if same and all(same) else ""
