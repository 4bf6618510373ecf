"""What the pages of the training panel share: the points of a training, the current checkpoint, axes and captions."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from circuitlab.analysis.training.series import RANDOM, TEXT, TrainingSeriesResult
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import with_error
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, ids
from circuitlab.model.subject import ModelRef
from circuitlab.state.state import State

# A hit is (layer, head, checkpoint); checkpoint −1: the final weights; (OWN, −1): no head; layer < OWN: another model.
OWN = -1
MARKS = ("loss", "in-context score", "heads", "loss by index", "slope by index", "zeroed", "plane")
Over = Literal["tokens", "steps"]
LARGE = 2e6  # trainings of more tokens than this have them counted in millions


class HasPoints(Protocol):
    """A result with points along one or more trainings; each array is [point]."""

    @property
    def model(self) -> np.ndarray: ...
    @property
    def steps(self) -> np.ndarray: ...
    @property
    def tokens(self) -> np.ndarray: ...
    @property
    def checkpoint(self) -> np.ndarray: ...


def current_point(result: HasPoints, ref: ModelRef) -> int | None:
    """The index of the first model's point at the checkpoint of `ref`; the last one for final weights. None: it has none."""
    checkpoint = -1 if ref.checkpoint is None else ref.checkpoint
    matches = np.flatnonzero((result.model == 0) & (result.checkpoint == checkpoint))
    if matches.size:
        return int(matches[-1])
    last = np.flatnonzero(result.model == 0)
    return int(last[-1]) if ref.checkpoint is None and last.size else None


def pinned_point(result: HasPoints, state: State) -> tuple[int, str] | None:
    """The index and the label of the pinned checkpoint, if it is another point of the same training."""
    pin = state.pinned
    if pin is None or pin.subject.model.source != state.model.source:
        return None
    at = current_point(result, pin.subject.model)
    return None if at is None or at == current_point(result, state.model) else (at, f"pin, step {result.steps[at]:,}")


def unit(result: HasPoints) -> float:
    """The unit of tokens on axes: 1e6, or 1 for a short training."""
    return 1e6 if len(result.tokens) and result.tokens.max() >= LARGE else 1.0


def time(answer: Answer[TrainingSeriesResult], over: Over, log: bool, bare: bool = False) -> tuple[np.ndarray, Axis]:
    """[point] coordinates on the axis of time, and that axis; `bare`: without labels, where the plot below has them."""
    result = answer.result
    scale = unit(result) if over == "tokens" else 1.0
    label = ("million tokens seen" if scale > 1 else "tokens seen") if over == "tokens" else "steps"
    x = memo(answer, ("x", over), lambda: (result.tokens if over == "tokens" else result.steps) / scale)
    return x, memo(answer, ("x axis", over, log, bare), lambda: Axis(label, log=log, bare=bare))


def columns(answer: Answer[TrainingSeriesResult], bare: bool = False) -> Axis:
    """The column axis of maps with a column for each point of the first model."""
    result = answer.result
    texts = lambda: tuple(short(t) for t in result.tokens[result.points(0)].tolist())
    return memo(answer, ("columns", bare), lambda: Axis("tokens seen", texts(), thin=True, bare=bare))


def place_ids(answer: Answer[TrainingSeriesResult]) -> np.ndarray:
    """[point, 1] the checkpoint of each point, for hits."""
    result = answer.result
    return memo(answer, "places", lambda: ids(result.checkpoint))


def short(count: float, whole: float = 1e4) -> str:
    """A count in running text, to three significant figures: "8.39 M", "131 k"; exact below `whole`: "512"."""
    if count < whole:
        return f"{count:.0f}"
    size, unit = (1e6, "M") if count >= 999_500 else (1e3, "k")
    value = count / size
    return f"{value:.0f} {unit}" if value >= 100 else f"{number(value, '.3g')} {unit}"


def between(first: float, last: float) -> str:
    """A range of tokens; a common unit is written once: "7.68–9.73 M"."""
    ends = short(first).split(" "), short(last).split(" ")
    return f"{ends[0][0] if ends[0][1:] == ends[1][1:] else short(first)}–{short(last)}"


NO_LAYERS = "builtin:attn-only-0l"
HUES = 3 * 4096  # the first hue of models: hues of heads in a layer that small models lack


def model_hues(names: tuple[str, ...]) -> tuple[int, ...]:
    """A hue for each model, the same whichever model is open."""
    order = {name: i for i, name in enumerate(sorted(names))}
    return tuple(HUES + order[name] for name in names)


def phase_words(result: TrainingSeriesResult, kind: int, model: int = 0) -> str:
    """The phase change that the rule finds in the in-context score on a kind of text, in words."""
    first, last = result.phase[model, kind]
    if not np.isfinite(first):
        return "no phase change"
    rise = result.rise[model, kind]
    also = f", best prefix matching {number(rise, '+.2f')}" if np.isfinite(rise) else ""
    return f"phase change at {between(first, last)} tokens, score {number(-result.fall[model, kind])} nats{also}"


def bands(answer: Answer[TrainingSeriesResult], kind: int, over: Over, label: str) -> tuple[tuple[float, float, str], ...]:
    """The phase change as a band on the axis of time, with `label` beside it; () if there is none."""
    result = answer.result
    first, last = result.phase[0, kind]
    if not np.isfinite(first):
        return ()
    x, _ = time(answer, over, False)
    ends = [float(x[int(np.flatnonzero((result.model == 0) & (result.tokens == t))[0])]) for t in (first, last)]
    return ((ends[0], ends[1], label),)


def labels(result: TrainingSeriesResult, kind: int) -> dict[str, str]:
    """The label of the band in each plot: its tokens, the fall of the score in it, the rise of the best prefix matching."""
    first, last = result.phase[0, kind]
    rise = result.rise[0, kind]
    return {
        "loss": f"phase change, {between(first, last)} tokens",
        "in-context score": f"score {number(-result.fall[0, kind])} nats",
        "prefix_matching": f"best head {number(rise, '+.2f')}" if np.isfinite(rise) else "",
        "zeroed": "phase change",
    }


def kind_of(context: str) -> int:
    """The kind of text whose phase change is marked."""
    return {"repeated text": 1, "text": TEXT}.get(context, RANDOM)


def covers_all_texts(result: TrainingSeriesResult, at: int) -> bool:
    """Whether the in-context score of a point on text is the mean over exactly the texts with losses of their own on record."""
    return bool(np.isfinite(result.each_error[at]) and abs(result.each[at] - result.scores[at, TEXT]) < 1e-3)


def score_by_text(result: TrainingSeriesResult, at: int) -> str:
    """For captions: the score over the texts with losses of their own on record; "" if all of them have, or none."""
    if not np.isfinite(result.each_error[at]) or covers_all_texts(result, at):
        return ""
    texts = number_of(int(result.n_each[at]), "text")
    score = f"over the {texts} with losses of their own: {with_error(result.each[at], result.each_error[at])}"
    controlled = with_error(result.each_controlled[at], result.each_controlled_error[at])
    return score + (f", minus a model without layers {controlled}" if np.isfinite(result.each_controlled[at]) else "")


def step_label(result: TrainingSeriesResult, state: State) -> str:
    """For titles: the step of the current checkpoint."""
    at = current_point(result, state.model)
    if at is None:
        return f"checkpoint {state.model.checkpoint} was not measured"
    return f"step {result.steps[at]:,}{' (final)' if state.model.checkpoint is None else ''}"
