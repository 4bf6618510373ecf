"""Compare: every panel and page beside the reference pin, on the same requests and the same controls.

A panel draws a State. Here its figure of the pinned State is drawn as well, and the two are put together mark by mark: the
reference alone, or now beside it, always on one scale, and the caption says what stands beside what. Pages that compare in a
way of their own say so (`Figure.compared`). Where nothing can be compared the caption gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from circuitlab.figures.compare_marks import Pinned, difference, shared
from circuitlab.figures.marks import Figure, Heatmap, Mark, Rows, Tokens
from circuitlab.figures.vocabulary import aligned, one_vocabulary, pinned_state
from circuitlab.session.state import Pin, State

if TYPE_CHECKING:
    from circuitlab.engine.request import Answer
    from circuitlab.figures.panel import Facts, Panel

# Of what a mark shows: another way to compute the same (a prefix that is reused, raw and folded weights) differs by no more.
ROUNDING, ROUNDING_DOUBLE = 1e-5, 1e-12
SHORT = 12  # letters of a name that fits a header


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
        return _say(panel.figure(replace(state, compare="now"), facts, now, {}), same)
    there, why = _there(panel, state, pin, facts, ref)
    alone = panel.figure(replace(state, compare="now"), facts, now, {})
    if there is None:
        return _say(alone, why)
    if state.compare == "reference":
        return _reference(alone, there, pin)
    made = panel.figure(state, facts, now, ref)
    return made if made.compared and not _presented_otherwise(state, pin) else _difference(alone, there, state, pin, facts)


def short_label(pin: Pin) -> str:
    """A name that fits a narrow column's header."""
    return pin.label if len(pin.label) <= SHORT else "pin"


def _say(figure: Figure, words: str) -> Figure:
    """The figure with words in its caption; a figure that says why it is empty stays."""
    if not figure.grid:
        return figure
    return replace(figure, caption=" · ".join(w for w in (figure.caption, words) if w))


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
    return f"the same in {pin.label}: what differs does not enter here"


def _there(panel: Panel, state: State, pin: Pin, facts: Facts, ref: Mapping[str, Answer]) -> tuple[Figure | None, str]:
    """The panel's figure of the pinned State, or why there is none."""
    other = _facts(pin, state, facts)
    if other is None:
        return None, f"not compared: the model of {pin.label} is not open"
    at = pinned_state(state, pin, facts, other)
    if isinstance(at, str):
        return None, f"not compared with {pin.label}, which has another vocabulary: {at}"
    if panel.requests(at, other) == {}:
        return None, f"not compared: {pin.label} is a part of what this panel measures"
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
    title = f"{pin.label} · {there.title}" if there.title else pin.label
    return _say(replace(there, grid=grid, title=title), f"reference {pin.label}, on the scale of both")


def _presented_otherwise(state: State, pin: Pin) -> bool:
    """Whether the reference is the same run under other conventions: raw and folded weights, for instance."""
    return pin.subject != state.subject and replace(pin.subject, conventions=state.conventions) == state.subject


def _other_conventions(state: State, pin: Pin) -> str:
    """Which conventions the reference has that this state has not, "" for none."""
    here, there = state.conventions.words(), pin.subject.conventions.words()
    other = [b for a, b in zip(here, there, strict=True) if a != b]
    return f"{short_label(pin)}: {', '.join(other)}" if other else ""


def _of_tokens(mark: Mark) -> bool:
    """Whether what is compared in it are tokens."""
    if isinstance(mark, Rows):
        return any(column.tokens for column in mark.columns)
    return isinstance(mark, Tokens) or (isinstance(mark, Heatmap) and mark.x.tokens)


def _difference(made: Figure, there: Figure, state: State, pin: Pin, facts: Facts) -> Figure:
    """Now against the reference, mark by mark."""
    other = _facts(pin, state, facts) or facts
    found, alike = aligned(state, pin, facts, other), one_vocabulary(state, pin, facts, other)
    single = "float32" in (state.conventions.dtype, pin.subject.conventions.dtype)
    rounding = ROUNDING if single else ROUNDING_DOUBLE
    pinned = Pinned(short_label(pin), found.align, len(pin.subject.tokens), rounding, alike)
    said: dict[str, None] = {}
    changed = False

    def compared(mark: Mark) -> Mark:
        nonlocal changed
        made, words = difference(mark, there.find(mark.name), pinned)
        said[words] = None
        changed = changed or (made is not mark and not isinstance(made, Rows))
        return made

    grid = tuple(tuple(map(compared, row)) for row in made.grid)
    texts = any(map(_of_tokens, made.marks()))
    words = found.words if texts and not (alike and pin.subject.tokens == state.tokens) else ""
    title = f"now − {short_label(pin)} · {made.title}" if changed else made.title
    before = f"{pin.label}: {there.title}" if there.title != made.title else ""
    before = " · ".join(w for w in (_other_conventions(state, pin), before) if w)
    before = before or (f"{short_label(pin)}: {pin.label}" if short_label(pin) != pin.label else "")
    return _say(replace(made, grid=grid, title=title), " · ".join(w for w in (*said, words, before) if w))
