"""Comparison: every panel and page beside the reference pin, with the same requests and the same controls.

A panel draws a State. Here its figure of the pinned State is drawn as well, and the two are combined mark by mark: the reference
alone, or now beside it, always on one scale, and the caption names what is compared. No panel takes differences itself. Where
nothing can be compared, the caption gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import zip_longest

from circuitlab.caption_parts import Essential, Reference, of_difference, reworded
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.compare_marks import difference
from circuitlab.figures.contracts.compare_questions import other_question
from circuitlab.figures.contracts.declaration import Panel
from circuitlab.figures.contracts.facts import Facts, inputs_read
from circuitlab.figures.contracts.pinned import SAME, OfNow, Pinned, TheSame
from circuitlab.figures.contracts.questions import Question, Questions
from circuitlab.figures.contracts.shared_scales import colours, differences_on_one_scale, shared, tables_on_one_scale
from circuitlab.figures.contracts.vocabulary import aligned, one_vocabulary, pinned_state
from circuitlab.figures.marks import Figure, Heatmap, Lines, Mark, Rows, Tokens
from circuitlab.figures.marks.title import parts_of, with_parts
from circuitlab.model.subject import ModelRef
from circuitlab.state.reference_names import NameParts, reference_clause, reference_name
from circuitlab.state.state import Pin, State

# Relative to the mark's largest value: two ways to compute the same (a reused prefix, raw and folded weights) differ by no more.
ROUNDING, ROUNDING_DOUBLE = 1e-5, 1e-12
_ONE = r"[+−-]?\d+(?:[.,]\d+)*%?"
TO = "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}"  # between the ends of a range, which are one word
NUMBER = re.compile(rf"([^\d+−-]*)({_ONE}(?:(?:{TO}|–){_ONE})?)([^\d]*)")  # a word: before, the number or the range, after
RANGE = re.compile(rf"({_ONE}) to (?={_ONE})")
WITH_MORE = re.compile(r"([^ ]+?)( \([^()]*\))([^ ]*)|[^ ]+")  # a word, and the parenthesis that belongs to it
MOST_NUMBERS = 3  # that may differ in a title which names both values of each


def with_reference(panel: Panel, asked: Questions, now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> tuple[Figure, bool]:
    """What the panel draws, beside the reference where there is one; and whether it is the reference alone."""
    state, facts = asked.now.state, asked.now.facts
    pin = state.reference
    if pin is None:
        return panel.figure(state, facts, now, ref, asked), False
    if state.compare == "now":
        figure = panel.figure(state, facts, now, ref, asked)
        if not ref or not figure.grid:
            return figure, False
        ref_figure, _ = _reference_figure(panel, _with_ref(panel, asked, pin), pin, ref)
        return figure if ref_figure is None else _on_one_scale(figure, ref_figure, clause(state, pin, facts, now)), False
    asked = _with_ref(panel, asked, pin)
    if same := _why_the_same(asked, pin):
        alone = _same_reference(panel, asked, pin, now)
        return (_captioned(_titled_the_same(panel, asked, pin, now), same), False) if alone is None else (alone, True)
    ref_figure, why = _reference_figure(panel, asked, pin, ref)
    now_alone = _alone(panel, asked.now, now)
    if ref_figure is None:
        return _captioned(now_alone, why), False
    if state.compare == "reference":
        return _reference(now_alone, ref_figure, pin, clause(state, pin, facts, now)), True
    if other := other_question(now, ref, facts, _facts(pin, state, facts) or facts, pin.label):
        return _captioned(now_alone, other), False
    return _difference(now_alone, ref_figure, state, pin, facts, clause(state, pin, facts, now)), False


def _with_ref(panel: Panel, asked: Questions, pin: Pin) -> Questions:
    """With the question of the reference, asked here where it was not or of other facts; None where its model is not open."""
    state, facts = asked.now.state, asked.now.facts
    ref_facts = _facts(pin, state, facts)
    if ref_facts is None:
        return Questions(asked.now)
    if isinstance(asked.ref, Question) and asked.ref.facts is ref_facts:
        return asked
    ref_state = pinned_state(state, pin, facts, ref_facts)
    return Questions(asked.now, ref_state if isinstance(ref_state, str) else panel.ask(ref_state, ref_facts))


def _alone(panel: Panel, question: Question, answers: Mapping[str, Answer]) -> Figure:
    """The figure of one side, beside nothing."""
    return panel.figure(replace(question.state, compare="now"), question.facts, answers, {}, Questions(question))


def shows_reference(figure: Figure, state: State) -> bool:
    """Whether a figure of this State is of the reference alone, as its title then says first."""
    pin = state.reference
    return state.compare == "reference" and pin is not None and parts_of(figure.title).side == pin.label


def clause(state: State, pin: Pin, facts: Facts, now: Mapping[str, Answer]) -> Reference:
    """For the caption: what the reference is, as far as these answers depend on it."""
    ref_facts = _facts(pin, state, facts) or facts
    return reference_clause(state, pin, _name_parts(state, facts), ref_facts.config, inputs_read(now) if now else ("tokens",))


def _name_parts(state: State, facts: Facts) -> NameParts:
    def name_parts(ref: ModelRef) -> tuple[str, ...]:
        its_facts = facts if ref == state.model else facts.others(ref)
        return ref.name_parts if its_facts is None else its_facts.name_parts

    return name_parts


def short_label(state: State, pin: Pin, facts: Facts) -> str:
    """A name of the reference that is short enough for a narrow column's header."""
    return reference_name(state, pin, _name_parts(state, facts), facts.config)


def titles_beside(title: str, state: State, facts: Facts, same: bool) -> tuple[str, ...] | None:
    """What a figure of this title, on whichever side, is called on the others, but for numbers in it: see `_reference`,
    `_difference`; None without a reference. `same`: nothing that it shows depends on what is compared.
    """
    if (pin := state.reference) is None:
        return None
    label = short_label(state, pin, facts)
    alone, unchanged = with_parts(title, side="", beside=""), with_parts(title, side="", beside=_the_same(label))
    reference = with_parts(alone, side=pin.label)
    if same:
        return (reference, unchanged)
    sides = (reference, with_parts(alone, side=_change(label)))
    return (*sides, with_parts(alone, beside=_beside(label)), unchanged)


def _change(label: str) -> str:
    """What a difference says first in its title."""
    return f"now − {label}"


def _beside(label: str) -> str:
    """What the title of a table says that has both sides."""
    return f"beside {label}"


def _the_same(label: str) -> TheSame:
    """What a title says where nothing has changed."""
    return TheSame(f"{SAME} {label}")


def _captioned(figure: Figure, *parts: str) -> Figure:
    """The figure with further parts of its caption; unchanged where it is empty and says why."""
    return figure.with_caption(*parts) if figure.grid else figure


def _facts(pin: Pin, state: State, facts: Facts) -> Facts | None:
    return facts if pin.subject.model == state.model else facts.others(pin.subject.model)


def _why_the_same(asked: Questions, pin: Pin) -> str:
    """Why the reference shows the same: nothing in which it differs enters the requests; "" where something does."""
    state = asked.now.state
    if not asked.now.by_role or not isinstance(asked.ref, Question) or asked.ref.requests != asked.now.requests:
        return ""
    if pin.subject == state.subject:
        return Essential(f"not compared: {pin.label} is what is shown; change the text or ablate a head")
    return f"the same in {pin.label}: nothing here depends on {_differs(state, pin)}"


def _titled_the_same(panel: Panel, asked: Questions, pin: Pin, now: Mapping[str, Answer]) -> Figure:
    """The figure of now. Its title says that it is no difference, unless the title differs from the reference's."""
    now_alone = _alone(panel, asked.now, now)
    if not now_alone.grid or not isinstance(asked.ref, Question):
        return now_alone
    same_title = _alone(panel, asked.ref, now).title == now_alone.title
    words = _the_same(short_label(asked.now.state, pin, asked.now.facts)) if same_title else ""
    return replace(now_alone, title=with_parts(now_alone.title, beside=words))


def _same_reference(panel: Panel, asked: Questions, pin: Pin, now: Mapping[str, Answer]) -> Figure | None:
    """The reference alone where its numbers are those of now: with its own cut in names and strokes; None where now is shown."""
    state, facts = asked.now.state, asked.now.facts
    if state.compare != "reference" or pin.subject == state.subject:
        return None
    ref_figure, _ = _reference_figure(panel, asked, pin, now)
    if ref_figure is None:
        return None
    what, words = clause(state, pin, facts, now), f"the same now: nothing here depends on {_differs(state, pin)}"
    return _captioned(replace(ref_figure, title=with_parts(ref_figure.title, side=pin.label)), what, _full_name(pin, what), words)


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


def _reference_figure(panel: Panel, asked: Questions, pin: Pin, ref: Mapping[str, Answer]) -> tuple[Figure | None, str]:
    """The panel's figure of the pinned State, or why there is none."""
    if asked.ref is None:
        return None, Essential(f"not compared: the model of {pin.label} is not open")
    if isinstance(asked.ref, str):
        return None, Essential(f"not compared with {pin.label}: {asked.ref}")
    if asked.ref.requests == {}:
        return None, Essential(f"not compared: this panel itself sets now against {pin.label}") if asked.now.requests else ""
    figure = _alone(panel, asked.ref, ref)
    if figure.grid:
        return figure, ""
    if figure.why_empty:
        return None, Essential(f"not compared, in {pin.label}: {figure.why_empty}")
    return None, f"{pin.label} is being computed"


def _on_one_scale(figure: Figure, ref_figure: Figure, what: Reference) -> Figure:
    """Now, on the scale of both, and what the other one is."""
    grid = tuple(tuple(shared(mark, ref_figure.find(mark.name)) for mark in row) for row in figure.grid)
    if all(a is b for row, old in zip(grid, figure.grid, strict=True) for a, b in zip(row, old, strict=True)):
        return figure
    return _captioned(replace(figure, grid=grid), f"on one scale with {what}")


def _reference(figure: Figure, ref_figure: Figure, pin: Pin, what: Reference) -> Figure:
    """The reference, on the scale of both."""
    grid = tuple(tuple(shared(mark, figure.find(mark.name)) for mark in row) for row in ref_figure.grid)
    title = with_parts(ref_figure.title, side=pin.label)
    return _captioned(replace(ref_figure, grid=grid, title=title), what, _full_name(pin, what), "on the scale of both")


def _full_name(pin: Pin, what: Reference) -> str:
    """The name of a pin that is not in the words on the reference, as it is too long for them."""
    return "" if pin.label in what else f"pinned as {pin.label}"


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
    whole = title, ref_title
    title, ref_title = (RANGE.sub(rf"\1{TO}", side) for side in whole)
    words = list(zip_longest(title.split(" "), ref_title.split(" "), fillvalue=""))
    units = zip_longest(*([result[0] for result in WITH_MORE.finditer(side)] for side in (title, ref_title)), fillvalue="")
    merged = [_merged(a, b, label) for a, b in units]
    if all(merged) and sum(a != b for a, b in words) <= MOST_NUMBERS:
        return " ".join(merged).replace(TO, " to "), ""
    return f"now: {whole[0]}", f"{label}: {whole[1]}"


def _merged(unit: str, ref_unit: str, label: str) -> str:
    """A word, or a word with its parenthesis, with both values; "" where more than numbers differs.

    Where a parenthesis differs in several numbers, or with the number before it, it stays whole on each side: an interval is
    that of the value before it.
    """
    a, b = WITH_MORE.fullmatch(unit), WITH_MORE.fullmatch(ref_unit)
    if unit == ref_unit or not (a and b and a[2] and b[2]):
        return unit if unit == ref_unit else _both(unit, ref_unit, label)
    pairs = list(zip_longest(unit.split(" "), ref_unit.split(" "), fillvalue=""))
    merged = [one if one == other else _both(one, other, label) for one, other in pairs]
    several = sum(one != other for one, other in pairs) > 1
    if not several or not all(merged):
        return " ".join(merged) if all(merged) else ""
    first, second = NUMBER.fullmatch(a[1]), NUMBER.fullmatch(b[1])
    if first and second and not first[3] and a[1] != b[1]:
        return f"{first[1]}now {first[2]}{a[2]}, {label} {second[2]}{b[2]}{a[3]}"
    return f"{a[1]} now{a[2]}, {label}{b[2]}{a[3]}" if a[1] == b[1] else " ".join(merged)


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


def _difference(figure: Figure, ref_figure: Figure, state: State, pin: Pin, facts: Facts, what: Reference) -> Figure:
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
    mark_words = [
        words if change is mark else reworded(words, words + colours(compared[mark])) for mark, (change, words) in pairs.items()
    ]
    covered = lambda words: any(words != longer and longer.startswith(words) for longer in mark_words)
    mark_words = [words for words in dict.fromkeys(mark_words) if not covered(words)]
    differences = [change for mark, change in compared.items() if change is not mark]
    compared = {mark: _headed(mark, change, ref_figure, label) for mark, change in compared.items()}
    grid = tuple(tuple(compared[mark] for mark in row) for row in figure.grid)
    grid = tables_on_one_scale(grid) if any(isinstance(mark, Rows) and mark.key for mark in figure.marks()) else grid
    texts = any(map(_has_tokens, figure.marks()))
    words = alignment.words if texts and not (same_ids and pin.subject.tokens == state.tokens) else ""
    title, ref_title = _titles(figure.title, ref_figure.title, label)
    if not differences:
        title = with_parts(title, beside=_why_unchanged(mark_words, label) if figure.title == ref_figure.title else "")
    elif all(isinstance(change, Rows) for change in differences):
        title = with_parts(title, beside=_beside(label))
    else:
        title = with_parts(title, side=_change(label))
    more = (what, _full_name(pin, what), *mark_words, words, ref_title)
    subtracted = any(not isinstance(change, Rows) for change in differences)
    parts = figure.caption_parts
    if differences:
        parts = _conventions(parts, ref_figure.caption_parts, label, subtracted)
    return _captioned(replace(figure, grid=grid, title=title, caption_parts=parts), *more)


def _conventions(now_parts: tuple[str, ...], ref_parts: tuple[str, ...], label: str, subtracted: bool) -> tuple[str, ...]:
    """The parts of now's caption: one that differs in numbers gives both, one that differs otherwise is marked as now's, and what
    is said of the reference in its place stands beside it, with its name.

    Where values are subtracted, a convention of each side need not hold for the difference: rows that sum to 1 on both sum to 0.
    """
    if subtracted:
        now_parts, ref_parts = (tuple(filter(None, map(of_difference, side))) for side in (now_parts, ref_parts))
    parts = list[str]()
    for kind, i, j, k, m in SequenceMatcher(None, now_parts, ref_parts, autojunk=False).get_opcodes():
        ours, theirs = now_parts[i:j], ref_parts[k:m]
        parts += ours if kind == "equal" else _of_both(ours, theirs, label)
    return tuple(parts)


def _of_both(ours: tuple[str, ...], theirs: tuple[str, ...], label: str) -> list[str]:
    """Parts of captions that differ: two that differ in numbers as one with both, the others each with the name of its side."""
    parts, left = list[str](), list(theirs)
    for part in ours:
        same = next((other for other in left if not _titles(part, other, label)[1]), None)
        if same is not None:
            left.remove(same)
        parts.append(reworded(part, f"{part} (now)" if same is None else _titles(part, same, label)[0]))
    return [*parts, *(reworded(part, f"{label}: {part}") for part in left)]


def _why_unchanged(mark_words: list[str], label: str) -> str:
    """For a title: why no mark of a figure became a difference, if the reason is the same for all."""
    same = [isinstance(words, TheSame) for words in mark_words if not isinstance(words, OfNow)]
    return _the_same(label) if same and all(same) else ""
