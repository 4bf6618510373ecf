"""The scenes of a film: a State at each point of its training, or along a parameter of the constructed model; and the title of
its step at each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite

import numpy as np

from circuitlab.counting import number
from circuitlab.engine.open_model import steps_trained
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.constructed import RopeInduction
from circuitlab.model.subject import ModelRef
from circuitlab.state.constructed import changed, parameters, with_parameters
from circuitlab.state.state import State
from circuitlab.story.setup import Sweep

VALUES = 25  # of a parameter that is no whole number
MOST_FRAMES = 2000
PARAMETERS = {f.name: type(f.default) for f in fields(RopeInduction) if type(f.default) in (int, float)}  # that a film can play


@dataclass(frozen=True)
class Scene:
    """The State of one frame, and in a few words where it stands: "step 4,000", "offset 3"."""

    state: State
    words: str


def sweep_of(name: str, values: Sequence[object]) -> Sweep:
    """A parameter's film from its first and last value, and perhaps how many. Raises `UsageError`."""
    kind = PARAMETERS[name]
    ends, count = values[:2], values[2:]
    numbers = tuple(one for one in ends if isinstance(one, (int, float)) and not isinstance(one, bool) and isfinite(one))
    if len(numbers) != 2 or len(count) > 1 or (kind is int and any(one != int(one) for one in numbers)):
        expected = "two whole numbers" if kind is int else "two numbers"
        got = ", ".join(map(str, values))[:80]
        raise UsageError("The film’s ends cannot be read.", expected=expected, got=got, remedy="Correct them.")
    first, last = map(kind, numbers)
    if not count:
        return Sweep(name, first, last)
    frames = count[0]
    if not isinstance(frames, int) or isinstance(frames, bool) or not 2 <= frames <= MOST_FRAMES:
        expected = f"2 to {MOST_FRAMES} frames"
        raise UsageError("The film cannot have so many frames.", expected=expected, got=str(frames)[:80], remedy="Correct it.")
    return Sweep(name, first, last, frames)


_VALUE = re.compile(r"“[^”]*”|[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+−-]?\d+)?%?")  # what differs from frame to frame in a title
_FINAL = " (final)"
_TOLD_APART = re.compile(r" · (?:position )?\d+$")  # what a step's title has behind a figure's where another step has that, too


def film_points(first: ModelRef, last: ModelRef, checkpoints: int) -> tuple[ModelRef, ...]:
    """The model at each point from the first to the last, backwards where the last is earlier.

    `checkpoints`: how many its series has; the final weights stand behind them.
    """
    begin, end = (checkpoints if ref.checkpoint is None else ref.checkpoint for ref in (first, last))
    way = 1 if end >= begin else -1
    return tuple(replace(first, checkpoint=None if i == checkpoints else i) for i in range(begin, end + way, way))


def title_at_frame(title: str, shown: Iterable[str]) -> str | None:
    """The one of the titles `shown` at a frame that a step's title is, with other values; None where that has words of its own.

    A step is called by what a figure showed when it was kept, as "step 512: loss 5.35", which is false of other frames. What
    tells it apart from another step is true of all frames, and stays.
    """
    base = _TOLD_APART.sub("", title)
    forms = [(form, apart) for form, apart in ((_form(title), ""), (_form(base), title[len(base) :])) if form]
    return next((one + apart for one in shown for form, apart in forms if _form(one).startswith(form)), None)


def _form(title: str) -> str:
    """A title without its values; one that was cut short, as far as it goes."""
    return _VALUE.sub("#", title.replace(_FINAL, "").removesuffix("…").rstrip())


def scenes_of_training(store: ModelStore, state: State, first: ModelRef, last: ModelRef) -> tuple[Scene, ...]:
    """The State at each checkpoint from one end to the other, in either direction. Opens the model: for a worker thread."""
    steps = store.open(replace(first, checkpoint=None)).opened.steps
    words = lambda ref: "final weights" if ref.checkpoint is None else f"step {steps[ref.checkpoint]:,}"
    return tuple(Scene(replace(state, model=ref), words(ref)) for ref in film_points(first, last, len(steps)))


def without_repeat(store: ModelStore, scenes: tuple[Scene, ...]) -> tuple[Scene, ...]:
    """The scenes without the last checkpoint of a training where its final weights, which are shown too, are the same."""
    final = next((scene.state.model for scene in scenes if scene.state.model.checkpoint is None), None)
    steps = () if final is None else store.open(final).opened.steps
    if final is None or not steps or steps[-1] != steps_trained(final):
        return scenes
    return tuple(scene for scene in scenes if scene.state.model.checkpoint != len(steps) - 1)


def scenes_over(state: State, sweep: Sweep) -> tuple[Scene, ...]:
    """The State along one parameter of the open constructed model.

    Whole numbers go one by one, others in `VALUES` equal steps, unless the sweep says how many. Raises `UsageError`, `BadInput`
    for a model that has no parameters, and `BadModel` for a value that no model can have.
    """
    p = parameters(state)
    if p is None:
        raise BadInput(
            "Only a constructed model has parameters to play.",
            expected="rope-induction",
            got=state.model.name,
            remedy="Open it, or play a training: let the step play one.",
        )
    moved = lambda value: with_parameters(state, changed(p, {sweep.name: value}))
    return tuple(Scene(moved(value), f"{sweep.name} {number(value, '.5g')}") for value in _values(sweep))


def _values(sweep: Sweep) -> list[int] | list[float]:
    first, last, whole = sweep.first, sweep.last, PARAMETERS[sweep.name] is int
    if not whole or sweep.count:
        values = np.linspace(first, last, sweep.count or VALUES)
        return list(dict.fromkeys(np.round(values).astype(int).tolist())) if whole else [float(f"{v:.6g}") for v in values]
    if abs(last - first) >= MOST_FRAMES:
        got = f"{abs(last - first) + 1:,}"
        raise UsageError(
            "The film is too long.", expected=f"at most {MOST_FRAMES} frames", got=got, remedy="Say how many frames."
        )
    first, last = int(first), int(last)
    return list(range(first, last + 1)) if last >= first else list(range(first, last - 1, -1))
