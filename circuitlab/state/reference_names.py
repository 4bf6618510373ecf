"""Names of a comparison's reference, from what the pinned subject has otherwise than the one on the screen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from circuitlab.caption_parts import Reference, Sense
from circuitlab.counting import number_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import ModelRef
from circuitlab.state.cuts import edit_words
from circuitlab.state.state import UNCUT, Pin, State

LONGEST = 24  # characters of a text in a name
SHORT = 16  # characters of a name that fits a title and a column header


NameParts = Callable[[ModelRef], tuple[str, ...]]  # the parts of a model's name, its checkpoint last


def reference_name(state: State, pin: Pin, name_parts: NameParts, config: ModelConfig | None = None) -> str:
    """A short name of the reference: its label if that is short, else the first of its differences (`config`: see there)."""
    if len(pin.label) <= SHORT:
        return pin.label
    name = " ".join(next(_differences(state, pin, name_parts, config), (pin.label,)))
    if len(name) <= SHORT:
        return name
    return f"“…{name[2 - SHORT :]}" if name.startswith("“") else f"{name[: SHORT - 1].rstrip()}…"


def differences(state: State, pin: Pin, name_parts: NameParts, config: ModelConfig | None = None) -> tuple[str, ...]:
    """What the pin has that differs from the state, in the pin's words; () if nothing does.

    Of two checkpoints of one training run only the step is named; of a text its end, where typing happens, or where it begins to
    differ from a text with the same end; of conventions those that change something in a model of `config`, where that is known.
    """
    return tuple(" · ".join(parts) for parts in _differences(state, pin, name_parts, config))


def reference_clause(
    state: State,
    pin: Pin,
    name_parts: NameParts,
    config: ModelConfig | None = None,
    reads: Collection[str] = ("tokens",),
) -> Reference:
    """What the reference of a comparison is, beside numbers of this state: `"reference: step 4,000, L1H1 zeroed"`.

    Everything of the pin that differs, and what both sides have cut, as words on now's cut say nothing of the reference's.
    `reads`: what the numbers depend on beside weights and conventions (`figures.contracts.facts.inputs_read`); what they do not
    read is left out. A label that is none of these words stands before them.
    """
    tokens = lambda ids: ids if "tokens" in reads else ()
    now = replace(state, edits=state.edits if reads else (), tokens=tokens(state.tokens))
    subject = replace(pin.subject, edits=pin.subject.edits if reads else (), tokens=tokens(pin.subject.tokens))
    parts = list(differences(now, replace(pin, subject=subject), name_parts, config))
    if subject.edits and subject.edits == now.subject.edits:
        parts.append(f"{', '.join(edit_words(subject.edits))} as now")
    words = ", ".join(parts)
    words = words or "as now"
    named = pin.label not in (*parts, words) and len(pin.label) <= LONGEST
    brief = f"{pin.label}: {words}" if named else words
    return Reference(f"reference {brief}" if named else f"reference: {brief}", Sense(brief=brief))


def _excerpt(text: str, other: str) -> str:
    """A few words of a text that tell it from the other one."""
    if len(text) <= LONGEST:
        return text
    end = text[1 - LONGEST :]
    if not other.endswith(end) or text == other:
        return f"…{end}"
    same = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))
    begin = text.rfind(" ", 0, same) + 1
    return f"{'…' if begin else ''}{text[begin : begin + LONGEST - 2]}…"


def _differences(state: State, pin: Pin, name_parts: NameParts, config: ModelConfig | None) -> Iterator[tuple[str, ...]]:
    """Each difference in its parts: a model's name has several."""
    pinned, now = pin.subject, state.subject
    if pinned.model != now.model:
        of_one_training = replace(pinned.model, checkpoint=None) == replace(now.model, checkpoint=None)
        point = name_parts(pinned.model)[-1:] if pinned.model.checkpoint is not None else ("final weights",)
        yield point if of_one_training else name_parts(pinned.model)
    if pinned.tokens != now.tokens:
        short = _excerpt(pin.text, state.text)
        yield (f"“{short}”" if short.strip() else number_of(len(pinned.tokens), "token"),)
    if pinned.edits != now.edits:
        yield (", ".join(edit_words(pinned.edits)) or UNCUT,)
    yield from ((word,) for word in pinned.conventions.unlike(now.conventions, config))
