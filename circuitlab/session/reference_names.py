"""Names of a comparison's reference, from what the pinned subject has otherwise than the one on the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.model.subject import ModelRef
from circuitlab.session.cuts import words
from circuitlab.session.state import Pin, State

LONGEST = 24  # characters of a text in a name
SHORT = 16  # characters of a name that fits a title and a column header


def reference_name(state: State, pin: Pin, name_of: Callable[[ModelRef], str]) -> str:
    """A short name of the reference: its label if that is short, else the first of its differences."""
    if len(pin.label) <= SHORT:
        return pin.label
    name = next(iter(differences(state, pin, name_of)), pin.label).replace(" · ", " ")
    if len(name) <= SHORT:
        return name
    return f"“…{name[2 - SHORT :]}" if name.startswith("“") else f"{name[: SHORT - 1].rstrip()}…"


def differences(state: State, pin: Pin, name_of: Callable[[ModelRef], str]) -> tuple[str, ...]:
    """What the pin has that differs from the state, in the pin's words; () if nothing does.

    Of two checkpoints of one training run only the step is named; of a text its end, where typing happens.
    """
    pinned, now = pin.subject, state.subject
    names: list[str] = []
    if pinned.model != now.model:
        name, mine = name_of(pinned.model), name_of(now.model)
        series = replace(pinned.model, checkpoint=None) == replace(now.model, checkpoint=None)
        base, _, step = name.partition(" · ")
        names.append((step or "final weights") if series and mine.partition(" · ")[0] == base else name)
    if pinned.tokens != now.tokens:
        short = pin.text if len(pin.text) <= LONGEST else f"…{pin.text[1 - LONGEST :]}"
        names.append(f"“{short}”" if short.strip() else number_of(len(pinned.tokens), "token"))
    if pinned.edits != now.edits:
        names.append(", ".join(map(words, pinned.edits[:2])) + (" …" if pinned.edits[2:] else "") if pinned.edits else "uncut")
    pairs = zip(pinned.conventions.words(), now.conventions.words(), strict=True)
    names += [theirs for theirs, mine in pairs if theirs != mine]
    return tuple(names)
