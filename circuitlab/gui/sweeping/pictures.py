"""The figures of a sweep's table: a value along the training with its means and errors at one step, and a value by prompt."""

from __future__ import annotations

import re

import numpy as np

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.marks import Axis, Figure, Lines, RowColumn, Rows, empty, ids
from circuitlab.model.subject import Head
from circuitlab.sweep.reading import AlongTraining, ByPrompt, Chosen, SweepTable
from circuitlab.sweep.work import DONE

MOST = 24  # lines that are drawn
COLUMNS = 8  # of a table by prompt
_HEAD = re.compile(r"L(\d+)H(\d+)$")


def along_figure(table: SweepTable, chosen: Chosen, data: AlongTraining, step: str) -> Figure:
    """Means against the training step, and a table of the lines at `step`."""
    if not data.names or not len(data.steps):
        return empty("No number of this metric has a training step: no file states for how long the weights were trained.", "")
    order = _most_changed(data.mean)
    at = int(np.flatnonzero(data.steps == int(step))[0]) if step and int(step) in data.steps else len(data.steps) - 1
    names, what = tuple(data.names[i] for i in order), f"mean {chosen.metric}{f', {data.unit}' if data.unit else ''}"
    lines = Lines(
        "along the training",
        data.steps.astype(float),
        data.mean[order],
        names,
        _hues(names),
        current=float(data.steps[at]),
        x_axis=Axis("step", whole=True),
        y_axis=Axis(what),
        joined=True,
    )
    columns = (
        RowColumn("value of", np.array(names)),
        RowColumn("mean", data.mean[order, at], digits=4, tip=what),
        RowColumn("s.e.", data.se[order, at], digits=4, tip="Standard error of the mean, over prompts"),
        RowColumn("sd", data.sd[order, at], digits=4, tip="Standard deviation, over prompts"),
        RowColumn("prompts", data.n[order, at], digits=0, tip="Prompts that have a value"),
    )
    heading = f"At step {data.steps[at]:,}"
    rows = Rows("at one step", columns, ids(np.array(order)), heading=heading, total=len(data.names), own=True)
    shown = (len(order), len(data.names)) if len(order) < len(data.names) else None
    return Figure(((lines,), (rows,)), "", (*_of_means(chosen, data), *about(table, chosen)), shown, weights=(3.0, 2.0))


def _of_means(chosen: Chosen, data: AlongTraining) -> tuple[str, ...]:
    over = f"over the prompts of {chosen.prompts}" if chosen.prompts else "of the weights, without a prompt"
    parts = [f"{chosen.analysis}: {chosen.metric} {over}"]
    parts += [f"means weighted by {data.weighted_by}"] if data.weighted_by else []
    parts += [Essential(f"{number_of(data.unplaced, 'row')} not drawn: no file states the step")] if data.unplaced else []
    same = ", ".join(f"{step:,}" for step in data.doubled)
    return (*parts, *([f"at step {same} the final weights, not the checkpoint"] if same else []))


def prompts_figure(table: SweepTable, chosen: Chosen, data: ByPrompt, step: str) -> Figure:
    """The value in each prompt at one step, a column for each line."""
    if not len(data.numbers):
        return empty("There is no number of this metric at this step.", "")
    shown = min(COLUMNS, len(data.names))
    unit = f", {data.unit}" if data.unit else ""
    tip = f"{chosen.metric}{unit}"
    values = (RowColumn(data.names[i], data.values[:, i], digits=4, tip=tip) for i in range(shown))
    texts = RowColumn("prompt", np.array([text.replace("\n", "↵") for text in data.texts]))
    columns = (RowColumn("#", data.numbers, digits=0), texts, *values)
    rows = Rows("by prompt", columns, ids(data.numbers), searchable=True, own=True)
    at = f"at step {int(step):,}" if step else "of weights whose step no file states"
    what = f"{chosen.analysis}: {chosen.metric}{unit} in each prompt of {chosen.prompts}" if chosen.prompts else chosen.words()
    return Figure(
        ((rows,),), "", (f"{what}, {at}", *about(table, chosen)), (shown, len(data.names)) if shown < len(data.names) else None
    )


def about(table: SweepTable, chosen: Chosen) -> tuple[str, ...]:
    """What the caption says of any figure: what is not done, conventions, weights, versions, and which table it is."""
    cells = number_of(table.counts.total(), "cell")
    left = [f"{n:,} {status}" for status, n in sorted(table.counts.items()) if status != DONE]
    parts: list[str] = [Essential(f"of {cells} {', '.join(left)}")] if left else [f"all {cells} done"]
    parts += [f"{n:,} × {why}" for why, n in table.why.most_common(2)]
    parts += _conventions(table.conventions.get(chosen.analysis, set()))
    models = {model: sha for (model, _), sha in table.weights.items()}  # of the last one in the file, which is the final one
    parts += [f"{model}: weights sha256 {sha[:12]}…" for model, sha in models.items()]
    parts += sorted(table.versions)
    return (*parts, *(f"{name} sha256 {sha[:12]}…" for name, sha in table.sha256.items()))


def _conventions(of_answers: set[str]) -> list[str]:
    """What all answers of an analysis say; and of what differs, such as the target of each prompt, how often and one of it."""
    several = [one.split(" · ") for one in sorted(of_answers)]
    alike = [part for part in several[0] if all(part in one for one in several)] if several else []
    rest = sorted({" · ".join(part for part in one if part not in alike) for one in several} - {""})
    if len(rest) > 1:
        return [*alike, f"{len(rest)} different ones, such as {rest[0]}"]
    return [*alike, *rest]


def _most_changed(mean: np.ndarray) -> list[int]:
    """The lines that are drawn, in their order: all, or the `MOST` whose values lie farthest apart."""
    if len(mean) <= MOST:
        return list(range(len(mean)))
    values = np.where(np.isnan(mean), np.nanmean(mean) if not np.isnan(mean).all() else 0.0, mean)
    spread = values.max(axis=1) - values.min(axis=1)
    return sorted(np.argsort(-spread, kind="stable")[:MOST].tolist())


def _hues(names: tuple[str, ...]) -> tuple[int, ...]:
    """Those of the heads where every line is one, plain colours otherwise."""
    result = [_HEAD.search(name) for name in names]
    heads = [Head(int(one[1]), int(one[2])) for one in result if one is not None]
    return tuple(map(head_hue, heads)) if len(heads) == len(set(heads)) == len(names) else ()
