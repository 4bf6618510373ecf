"""Names of a comparison's reference, from what the pinned subject has otherwise than the one on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.model.subject import ModelRef
from circuitlab.session.cuts import words
from circuitlab.session.state import Pin, State

LONGEST = 24  # characters of a text in a name
SHORT = 16  # characters of a name that fits a title and a column header


NameParts = Callable[[ModelRef], tuple[str, ...]]  # the parts of a model's name, its checkpoint last


def reference_name(state: State, pin: Pin, name_parts: NameParts) -> str:
    """A short name of the reference: its label if that is short, else the first of its differences."""
    if len(pin.label) <= SHORT:
        return pin.label
    name = " ".join(next(_differences(state, pin, name_parts), (pin.label,)))
    if len(name) <= SHORT:
        return name
    return f"“…{name[2 - SHORT :]}" if name.startswith("“") else f"{name[: SHORT - 1].rstrip()}…"


def differences(state: State, pin: Pin, name_parts: NameParts) -> tuple[str, ...]:
    """What the pin has that differs from the state, in the pin's words; () if nothing does.

    Of two checkpoints of one training run only the step is named; of a text its end, where typing happens.
    """
    return tuple(" · ".join(parts) for parts in _differences(state, pin, name_parts))


def _differences(state: State, pin: Pin, name_parts: NameParts) -> Iterator[tuple[str, ...]]:
    """Each difference in its parts: a model's name has several."""
    pinned, now = pin.subject, state.subject
    if pinned.model != now.model:
        of_one_training = replace(pinned.model, checkpoint=None) == replace(now.model, checkpoint=None)
        point = name_parts(pinned.model)[-1:] if pinned.model.checkpoint is not None else ("final weights",)
        yield point if of_one_training else name_parts(pinned.model)
    if pinned.tokens != now.tokens:
        short = pin.text if len(pin.text) <= LONGEST else f"…{pin.text[1 - LONGEST :]}"
        yield (f"“{short}”" if short.strip() else number_of(len(pinned.tokens), "token"),)
    if pinned.edits != now.edits:
        yield (", ".join(map(words, pinned.edits[:2])) + (" …" if pinned.edits[2:] else "") if pinned.edits else "uncut",)
    pairs = zip(pinned.conventions.words(), now.conventions.words(), strict=True)
    yield from ((theirs,) for theirs, mine in pairs if theirs != mine)
