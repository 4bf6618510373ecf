"""Comparison: every panel and page beside the reference pin, with the same requests and the same controls.

A panel draws a State. Here its figure of the pinned State is drawn as well, and the two are combined mark by mark: the reference
alone, or now beside it, always on one scale, and the caption names what is compared. No panel takes differences itself. Where
nothing can be compared, the caption gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import zip_longest

from circuitlab.caption_parts import Essential, reworded
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.compare_marks import difference
from circuitlab.figures.contracts.compare_questions import other_question
from circuitlab.figures.contracts.declaration import Panel
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.contracts.pinned import OF_NOW, SAME, Pinned
from circuitlab.figures.contracts.shared_scales import colours, differences_on_one_scale, shared, tables_on_one_scale
from circuitlab.figures.contracts.vocabulary import aligned, one_vocabulary, pinned_state
from circuitlab.figures.marks import Figure, Heatmap, Lines, Mark, Rows, Tokens, joined
from circuitlab.figures.marks.texts import ALONE
from circuitlab.model.subject import ModelRef
from circuitlab.session.reference_names import reference_name
from circuitlab.session.state import Pin, State

# Relative to the mark's largest value: two ways to compute the same (a reused prefix, raw and folded weights) differ by no more.
ROUNDING, ROUNDING_DOUBLE = 1e-5, 1e-12
NUMBER = re.compile(r"([^\d+−-]*)([+−-]?\d+(?:[.,]\d+)*%?)([^\d]*)")  # a word of a title: before, the number, after
NOT_OF_DIFFERENCES = re.compile(r"(: )?rows sum to .*")  # conventions that hold for values but not for their differences
MOST_NUMBERS = 3  # that may differ in a title which names both values of each


def with_reference(panel: Panel, state: State, facts: Facts, now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> Figure:
    """What the panel draws, beside the reference where there is one."""
    pin = state.reference
    if pin is None:
        return panel.figure(state, facts, now, ref)
    if state.compare == "now":
        figure = panel.figure(state, facts, now, ref)
        ref_figure, _ = _reference_figure(panel, state, pin, facts, ref) if ref and figure.grid else (None, "")
        return figure if ref_figure is None else _on_one_scale(figure, ref_figure, pin)
    if same := _why_the_same(panel, state, pin, facts):
        return _captioned(_titled_the_same(panel, state, pin, facts, now), same)
    ref_figure, why = _reference_figure(panel, state, pin, facts, ref)
    now_alone = panel.figure(replace(state, compare="now"), facts, now, {})
    if ref_figure is None:
        return _captioned(now_alone, why)
    if state.compare == "reference":
        return _reference(now_alone, ref_figure, pin)
    if other := other_question(now, ref, facts, _facts(pin, state, facts) or facts, pin.label):
        return _captioned(now_alone, other)
    return _difference(now_alone, ref_figure, state, pin, facts)


def short_label(state: State, pin: Pin, facts: Facts) -> str:
    """A name of the reference that is short enough for a narrow column's header."""

    def name_parts(ref: ModelRef) -> tuple[str, ...]:
        its_facts = facts if ref == state.model else facts.others(ref)
        return ref.name_parts if its_facts is None else its_facts.name_parts

    return reference_name(state, pin, name_parts)


def _captioned(figure: Figure, *parts: str) -> Figure:
    """The figure with further parts of its caption; unchanged where it is empty and says why."""
    return figure.with_caption(*parts) if figure.grid else figure


def _facts(pin: Pin, state: State, facts: Facts) -> Facts | None:
    return facts if pin.subject.model == state.model else facts.others(pin.subject.model)


def _why_the_same(panel: Panel, state: State, pin: Pin, facts: Facts) -> str:
    """Why the reference shows the same: nothing in which it differs enters the requests; "" where something does."""
    ref_facts = _facts(pin, state, facts)
    requests = panel.requests(state, facts)
    if ref_facts is None or not isinstance(requests, Mapping) or not requests:
        return ""
    ref_state = pinned_state(state, pin, facts, ref_facts)
    if isinstance(ref_state, str) or panel.requests(ref_state, ref_facts) != requests:
        return ""
    if pin.subject == state.subject:
        return Essential(f"not compared: {pin.label} is what is shown; change the text or ablate a head")
    return f"the same in {pin.label}: nothing here depends on {_differs(state, pin)}"


def _titled_the_same(panel: Panel, state: State, pin: Pin, facts: Facts, now: Mapping[str, Answer]) -> Figure:
    """The figure of now. Its title says that it is no difference, unless the title differs from the reference's."""
    now_alone = panel.figure(replace(state, compare="now"), facts, now, {})
    ref_facts = _facts(pin, state, facts) or facts
    ref_state = pinned_state(state, pin, facts, ref_facts)
    if not now_alone.grid or isinstance(ref_state, str):
        return now_alone
    ref_figure = panel.figure(replace(ref_state, compare="now"), ref_facts, now, {})
    words = f"{SAME} {short_label(state, pin, facts)}" if ref_figure.title == now_alone.title else ""
    return replace(now_alone, title=joined(now_alone.title, words))


def _differs(state: State, pin: Pin) -> str:
    """In what the reference differs, in words."""
    subject, ref_subject = state.subject, pin.subject
    parts = {
        "the model": (subject.model, ref_subject.model),
        "the prompt": (subject.tokens, ref_subject.tokens),
        "the cut": (subject.edits, ref_subject.edits),
    }
    changed = [part for part, (a, b) in parts.items() if a != b]
    return " or ".join(changed) or "the conventions"


def _reference_figure(panel: Panel, state: State, pin: Pin, facts: Facts, ref: Mapping[str, Answer]) -> tuple[Figure | None, str]:
    """The panel's figure of the pinned State, or why there is none."""
    ref_facts = _facts(pin, state, facts)
    if ref_facts is None:
        return None, Essential(f"not compared: the model of {pin.label} is not open")
    ref_state = pinned_state(state, pin, facts, ref_facts)
    if isinstance(ref_state, str):
        return None, Essential(f"not compared with {pin.label}: {ref_state}")
    if panel.requests(ref_state, ref_facts) == {}:
        has_requests = bool(panel.requests(state, facts))
        return None, Essential(f"not compared: this panel itself sets now against {pin.label}") if has_requests else ""
    figure = panel.figure(replace(ref_state, compare="now"), ref_facts, ref, {})
    if figure.grid:
        return figure, ""
    if figure.why_empty:
        return None, Essential(f"not compared, in {pin.label}: {figure.why_empty}")
    return None, f"{pin.label} is being computed"


def _on_one_scale(figure: Figure, ref_figure: Figure, pin: Pin) -> Figure:
    """Now, on the scale of both."""
    grid = tuple(tuple(shared(mark, ref_figure.find(mark.name)) for mark in row) for row in figure.grid)
    if all(a is b for row, old in zip(grid, figure.grid, strict=True) for a, b in zip(row, old, strict=True)):
        return figure
    return _captioned(replace(figure, grid=grid), f"on one scale with {pin.label}")


def _reference(figure: Figure, ref_figure: Figure, pin: Pin) -> Figure:
    """The reference, on the scale of both."""
    grid = tuple(tuple(shared(mark, figure.find(mark.name)) for mark in row) for row in ref_figure.grid)
    title = joined(pin.label, ref_figure.title)
    return _captioned(replace(ref_figure, grid=grid, title=title), f"reference {pin.label}, on the scale of both")


def _other_conventions(state: State, pin: Pin, label: str) -> str:
    """The reference's conventions that differ from this state's, "" for none."""
    pairs = zip(state.conventions.words(), pin.subject.conventions.words(), strict=True)
    other = [ref_words for words, ref_words in pairs if words != ref_words]
    return f"{label}: {', '.join(other)}" if other else ""


def _has_tokens(mark: Mark) -> bool:
    """Whether its items are tokens."""
    if isinstance(mark, Rows):
        return any(column.tokens for column in mark.columns)
    if isinstance(mark, Lines):
        return mark.x_axis.tokens
    return isinstance(mark, Tokens) or (isinstance(mark, Heatmap) and mark.x.tokens)


def _titles(title: str, ref_title: str, label: str) -> tuple[str, str]:
    """One title that names both values of each number, and ""; else now's title, and the reference's for the caption."""
    if title == ref_title or not title or not ref_title:
        return title, ""
    words = list(zip_longest(title.split(" "), ref_title.split(" "), fillvalue=""))
    merged = [a if a == b else _both(a, b, label) for a, b in words]
    if all(merged) and sum(a != b for a, b in words) <= MOST_NUMBERS:
        return " ".join(merged), ""
    return f"now: {title}", f"{label}: {ref_title}"


def _both(word: str, ref_word: str, label: str) -> str:
    """A word that contains a number, with both values; "" where more than the number differs."""
    a, b = NUMBER.fullmatch(word), NUMBER.fullmatch(ref_word)
    return f"{a[1]}now {a[2]}, {label} {b[2]}{a[3]}" if a and b and (a[1], a[3]) == (b[1], b[3]) else ""


def _by_text(a: Facts, b: Facts) -> Callable[[int], int | None]:
    """From a token id of vocabulary `a` to that of `b` with the same text."""
    return lambda i: b.token_of(a.token_text(i))


def _headed(before: Mark, after: Mark, ref_figure: Figure, label: str) -> Mark:
    """A table or a text with a heading that gives the numbers of both sides."""
    partner = ref_figure.find(before.name)
    if after is before or not isinstance(after, Rows | Tokens) or not isinstance(partner, Rows | Tokens):
        return after
    return replace(after, heading=_titles(after.heading, partner.heading, label)[0])


def _rows_shown(shown: tuple[int, int] | None, compared: Mapping[Mark, Mark]) -> tuple[int, int] | None:
    """How many of how many rows are listed, counting those that only the reference lists."""
    n_listed = lambda mark: int((mark.ids[:, 0] != ALONE).sum()) if isinstance(mark, Rows) and len(mark.ids) else 0
    more = sum(n_listed(change) - n_listed(mark) for mark, change in compared.items())
    return None if shown is None else (min(shown[0] + more, shown[1]), shown[1])


def _difference(figure: Figure, ref_figure: Figure, state: State, pin: Pin, facts: Facts) -> Figure:
    """Now against the reference, mark by mark."""
    ref_facts = _facts(pin, state, facts) or facts
    alignment, same_ids = aligned(state, pin, facts, ref_facts), one_vocabulary(state, pin, facts, ref_facts)
    single = "float32" in (state.conventions.dtype, pin.subject.conventions.dtype)
    rounding = ROUNDING if single else ROUNDING_DOUBLE
    to_ours, to_theirs = (int, int) if same_ids else (_by_text(ref_facts, facts), _by_text(facts, ref_facts))
    label = short_label(state, pin, facts)
    pinned = Pinned(label, alignment.align, len(pin.subject.tokens), rounding, same_ids, to_ours, to_theirs)
    pairs = {mark: difference(mark, ref_figure.find(mark.name), pinned) for mark in figure.marks()}
    compared = differences_on_one_scale({mark: change for mark, (change, _) in pairs.items()})
    mark_words = [words if change is mark else words + colours(compared[mark]) for mark, (change, words) in pairs.items()]
    covered = lambda words: any(words != longer and longer.startswith(words) for longer in mark_words)
    mark_words = [words for words in dict.fromkeys(mark_words) if not covered(words)]
    differences = [change for mark, change in compared.items() if change is not mark]
    compared = {mark: _headed(mark, change, ref_figure, label) for mark, change in compared.items()}
    shown = _rows_shown(figure.shown, compared)
    grid = tuple(tuple(compared[mark] for mark in row) for row in figure.grid)
    grid = tables_on_one_scale(grid) if any(isinstance(mark, Rows) and mark.key for mark in figure.marks()) else grid
    texts = any(map(_has_tokens, figure.marks()))
    words = alignment.words if texts and not (same_ids and pin.subject.tokens == state.tokens) else ""
    title, ref_title = _titles(figure.title, ref_figure.title, label)
    if not differences:
        title = joined(title, _why_unchanged(mark_words, label) if figure.title == ref_figure.title else "")
    elif all(isinstance(change, Rows) for change in differences):
        title = joined(title, f"beside {label}")
    else:
        title = joined(f"now − {label}", title)
    full_name = f"{label}: {pin.label}" if label != pin.label else ""
    more = (full_name, *mark_words, words, _other_conventions(state, pin, label), ref_title)
    subtracted = any(not isinstance(change, Rows) for change in differences)
    parts = figure.caption_parts
    if differences:
        parts = _conventions(parts, ref_figure.caption_parts, label, subtracted)
    return _captioned(replace(figure, grid=grid, title=title, shown=shown, caption_parts=parts), *more)


def _conventions(now_parts: tuple[str, ...], ref_parts: tuple[str, ...], label: str, subtracted: bool) -> tuple[str, ...]:
    """The parts of now's caption: a part that differs in numbers gives both, a part that differs otherwise is marked as now's.

    Where values are subtracted, a convention of each side need not hold for the difference: rows that sum to 1 on both sum to 0.
    """
    parts = now_parts
    if len(now_parts) == len(ref_parts):
        pairs = [(a, *_titles(a, b, label)) for a, b in zip(now_parts, ref_parts, strict=True)]
        parts = tuple(reworded(part, f"{part} (now)" if differs else both) for part, both, differs in pairs)
    return tuple(filter(None, (reworded(part, NOT_OF_DIFFERENCES.sub("", part)) for part in parts))) if subtracted else parts


def _why_unchanged(mark_words: list[str], label: str) -> str:
    """For a title: why no mark of a figure became a difference, if the reason is the same for all."""
    same = [SAME in words for words in mark_words if not words.endswith(OF_NOW)]
    return f"{SAME} {label}" if same and all(same) else ""
