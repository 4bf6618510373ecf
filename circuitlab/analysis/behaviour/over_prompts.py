"""Another analysis on every prompt of a set: mean and standard deviation of the arrays in its `across()`.

    mean = Σ_i w_i x_i / Σ_i w_i,     sd² = n/(n − 1) · Σ_i w_i (x_i − mean)² / Σ_i w_i,     n: prompts with x computed

w_i is 1, or the result's `weight`: the number of tokens that a mean loss is over, so that the mean over prompts is a mean over
tokens. With equal weights sd is the usual standard deviation.
Each prompt's target comes from its line: the answer, or the answer minus the other answer, at the prompt's last position, which
is behind the tokens with which both answers begin; activations for patching or resampling come from the line's other prompt,
and what the answer follows from is the line's source. Beside what is averaged stands how probable the model finds the two
answers there.
The subject's interventions act in every prompt; they must not name positions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from circuitlab.analysis.base import (
    AnyAnalysis,
    Column,
    Ctx,
    Inputs,
    Remainder,
    Result,
    Table,
    TextRef,
    Unit,
    analyses,
    analysis,
    find_analysis,
    naming,
    over,
)
from circuitlab.analysis.cost import ASSUMED
from circuitlab.analysis.ordering import Ranks, rank_in
from circuitlab.analysis.target import target_at
from circuitlab.caption_parts import About, Part, Sense
from circuitlab.counting import number_of
from circuitlab.errors import BadInput, Refused, UsageError, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.plain import from_json
from circuitlab.model.prompts import Prompt
from circuitlab.model.subject import Target

# names of axes, if they are not layer and head alone
AXES: dict[tuple[str, str], tuple[str, ...]] = {
    ("attention", "to_first"): ("head",),
    ("attention", "to_previous"): ("head",),
    ("attention", "to_itself"): ("head",),
    ("token_attribution", "by_distance"): ("distance",),
    ("neurons", "effect"): ("layer", "neuron"),
    ("neurons", "mlp"): ("layer",),
    ("path_patching", "effect"): ("through", "layer", "head"),
    ("path_patching", "normalised"): ("through", "layer", "head"),
    ("term_importance", "reduction"): ("order",),
    ("term_importance", "layers"): ("beside", "layer"),
    ("term_importance", "heads"): ("beside", "layer", "head"),
}


@dataclass(frozen=True)
class OverPromptsParams:
    """`analysis` on every prompt of `file`, with `params` (JSON) and each prompt's own target at its last position.

    `field`: one of the arrays in its `across()`, "" for the first. A line without answers has the target of `params`.
    """

    file: TextRef | None = None
    analysis: str = ""
    params: str = "{}"
    field: str = ""

    @property
    def needs(self) -> Literal["edits"]:
        """The prompts are the file's, so the answer depends on the subject's interventions but not on its own text."""
        return "edits"


@dataclass(frozen=True, kw_only=True, eq=False)
class OverPromptsResult(Result):
    """`values` [prompt, …], `mean` […], `sd` […] (n − 1, NaN below two) and int `n` […] of the array called `field`.

    `units`: the unit of its numbers, or of each entry of an axis by its name; `weighted_by`: the unit of the weights.
    `weights` [prompt]: each prompt's weight in mean and sd, NaN if not computed yet. … are `axes`. `names`: all arrays in
    `across()`. `prompts`: the lines' texts, of which the first `counted` are computed. `common`: the words of caption that the
    answers of all these prompts share.

    `answer`, `other_answer` [prompt]: the tokens that are the prompt's target, −1 for none; of a line without answers those that
    were measured in their place. `answer_probability`, `other_answer_probability` [prompt]: that the prompt goes on with them.
    `answer_rank`, `answer_equal` [prompt]: the answer's rank among all tokens by probability, and how many are equal to it.
    """

    values: np.ndarray = over("prompt", "…", unit="{units}")
    weights: np.ndarray = over("prompt", unit="{weighted_by}")
    mean: np.ndarray = over("…", unit="{units}")
    sd: np.ndarray = over("…", unit="{units}")
    n: np.ndarray = over("…", unit="prompts")
    answer: np.ndarray = over("prompt", unit="token id", none=True)
    answer_probability: np.ndarray = over("prompt", unit="probability")
    other_answer: np.ndarray = over("prompt", unit="token id", none=True)
    other_answer_probability: np.ndarray = over("prompt", unit="probability")
    answer_rank: np.ndarray = over("prompt", unit="rank", none=True, since=5)
    answer_equal: np.ndarray = over("prompt", unit="tokens", none=True, since=5)
    field: str
    units: Any
    weighted_by: str
    names: tuple[str, ...]
    axes: tuple[str, ...]
    prompts: tuple[str, ...] = naming("prompt")
    counted: int
    common: tuple[str, ...] = ()

    @property
    def first_choices(self) -> tuple[int, int]:
        """(prompts whose answer is more probable than every other token, prompts with an answer whose rank is known)."""
        known = self.answer_rank > 0
        return int((Ranks(self.answer_rank, self.answer_equal).last[known] == 1).sum()), int(known.sum())

    @property
    def above_the_other(self) -> tuple[int, int]:
        """(prompts whose answer is more probable than the other answer, prompts with both)."""
        both = ~np.isnan(self.answer_probability) & ~np.isnan(self.other_answer_probability)
        return int((self.answer_probability[both] > self.other_answer_probability[both]).sum()), int(both.sum())

    def table(self) -> Table:
        """One row per entry of the array."""
        where = np.indices(self.mean.shape).reshape(self.mean.ndim, self.mean.size)
        columns = [Column(axis, index) for axis, index in zip(self.axes, where, strict=True)]
        unit = self.units if isinstance(self.units, str) else ""
        columns += [Column("mean", self.mean.ravel(), unit), Column("sd", self.sd.ravel(), unit)]
        columns += [Column("n", self.n.ravel(), "prompts")]
        return Table(tuple(columns))


def can_be_averaged(analysis: AnyAnalysis) -> bool:
    """Whether an analysis has arrays that may be averaged over prompts."""
    return analysis.result.across is not Result.across


def requested_analysis(p: OverPromptsParams) -> tuple[AnyAnalysis, Any]:
    """(analysis, its parameters). Raises `UsageError` for an unknown analysis or invalid parameters."""
    inner = find_analysis(p.analysis)
    try:
        values = json.loads(p.params or "{}")
    except (json.JSONDecodeError, RecursionError) as error:
        expected = f"a JSON object of {inner.name}'s parameters"
        raise UsageError(
            "The parameter params is not JSON.",
            expected=expected,
            got=quoted(p.params),
            remedy='Write it as in params=\'{"target": "12"}\'.',
        ) from error
    return inner, from_json(inner.params, values, "params")


def _refuse(config: ModelConfig, p: OverPromptsParams) -> str | None:
    those = " ".join(name for name, inner in analyses().items() if can_be_averaged(inner))
    if p.file is None:
        return "give a prompt set as `file`, one prompt per line."
    if not p.analysis:
        return f"give the analysis to average as `analysis`: {those}."
    inner, params = requested_analysis(p)
    if not can_be_averaged(inner):
        return f"The analysis {inner.name} has nothing to average over prompts. These have: {those}."
    if getattr(params, "needs", inner.needs) != "tokens":
        return f"under these parameters {inner.name} reads no prompt."
    if any(isinstance(v := getattr(params, f.name), TextRef) and not v.sha256 for f in fields(params)):
        return f"a text file among the parameters of {inner.name} must be named with its sha256."
    return inner.refuse(config, params)


def _memory(config: ModelConfig, n: int, p: OverPromptsParams) -> int:
    """The arrays of a thousand prompts, twice; the inner analysis' own memory is checked for every prompt."""
    entries = (config.n_layers + 1) * max(3 * config.n_heads, config.n_heads + 8)
    return 2 * 8 * 1000 * (config.n_layers * config.d_mlp if p.analysis == "neurons" else entries)


def of_one_prompt(edit: Intervention) -> bool:
    """Whether an intervention belongs to a single prompt: it names positions, or patches from another one."""
    sites = [edit.site] + ([edit.path_from] if edit.path_from else [])
    return any(site.positions or site.sources for site in sites) or edit.op == "patch"


def of_every_prompt(edits: tuple[Intervention, ...]) -> tuple[Intervention, ...]:
    """The interventions, each of which must apply to any prompt. Raises `Refused` for one that belongs to a single prompt."""
    for e in edits:
        if of_one_prompt(e):
            what = "patches from another prompt" if e.op == "patch" else "names positions"
            where = f"an intervention at {e.site.name} of layer {e.site.layer}"
            raise Refused(f"{where} {what}, so that it belongs to one prompt.")
    return edits


def with_prompt(params: Any, prompt: Prompt) -> Any:
    """The parameters with this prompt's target, last position and other prompt, as far as they have such fields."""
    names = {f.name for f in fields(params)}
    changes: dict[str, Any] = {"position": -1} if "position" in names else {}
    if "target" in names and prompt.target != Target():
        changes["target"] = prompt.target
    if getattr(params, "reads_other", False) and not prompt.other:
        expected = "prompt, answer, other answer, other prompt"
        raise BadInput(
            "A line has no other prompt to patch from.",
            expected=expected,
            got=prompt.text[:60],
            remedy="Add the other prompt as the fourth field of each line, with tabs between the fields.",
        )
    if "source" in names and prompt.other:
        changes["source"] = prompt.other
    if "sources" in names and prompt.source:
        changes["sources"] = prompt.source
    return replace(params, **changes)


def _field_of(arrays: Mapping[str, np.ndarray], field: str, name: str) -> str:
    """The requested field, or the first. Raises `UsageError` with the existing ones."""
    if not arrays:
        raise BadInput(
            f"Under these parameters {name} gave nothing to average.",
            expected="an array",
            got="none",
            remedy="Change the parameters of the analysis.",
        )
    if field and field not in arrays:
        raise UsageError(
            f"There is no such array in what {name} answers.",
            expected=" ".join(arrays),
            got=quoted(field),
            remedy="Name one of these arrays.",
        )
    return field or next(iter(arrays))


def _worse(a: Remainder | None, b: Remainder | None) -> Remainder | None:
    """The remainder that is larger relative to its whole."""
    share = lambda r: -1.0 if r is None else r.size / r.of if r.of else float(r.size > 0)
    return a if share(a) >= share(b) else b


def statistics(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, sd, n) over the first axis without NaN, weighted by `weights` [first axis]: see the module."""
    w = np.ones(len(values)) if weights is None else weights
    w = np.where(np.isnan(values), 0, w.reshape(-1, *(1,) * (values.ndim - 1)))
    n, whole = (w > 0).sum(axis=0), w.sum(axis=0)
    share = w / np.where(whole > 0, whole, 1)
    mean = np.where(n > 0, (share * np.nan_to_num(values)).sum(axis=0), np.nan)
    squares = (share * np.nan_to_num(values - mean) ** 2).sum(axis=0)
    return mean, np.where(n > 1, np.sqrt(squares * n / np.maximum(n - 1, 1)), np.nan), n


def axes_across(analysis: str, field: str, shape: tuple[int, ...], config: ModelConfig) -> tuple[str, ...]:
    """Names of the axes: from `AXES`, else layer and head for the last two if their sizes match."""
    if (analysis, field) in AXES and len(AXES[analysis, field]) == len(shape):
        return AXES[analysis, field]
    if shape[-2:] == (config.n_layers, config.n_heads):
        return (*(f"axis {i}" for i in range(len(shape) - 2)), "layer", "head")
    return tuple(f"axis {i}" for i in range(len(shape)))


SPREAD = Part("sd: standard deviation over prompts", Sense(About.SPREAD))


def measures_target(params: object) -> bool:
    """Whether an analysis with these parameters measures a target."""
    return hasattr(params, "target") and getattr(params, "effect", "target") == "target"


class Answered(NamedTuple):
    """The answer and the other one after a prompt, their probabilities, and the answer's rank; −1 and NaN for none."""

    answer: int = -1
    probability: float = float("nan")
    other: int = -1
    of_other: float = float("nan")
    rank: int = -1
    equal: int = 0


NO_ANSWER = -1, float("nan")


def _answered(at: Inputs, prompt: Prompt, params: Any) -> Answered:
    """The target's tokens and how probable they are after the prompt that `at` is of. `params`: those with its own target."""
    run = at.run()
    ids = prompt.target.tokens
    if not ids and measures_target(params):
        ids = tuple(i for i in target_at(at, params.target, [run.n - 1], run).ids[0].tolist() if i >= 0)
    with torch.inference_mode():
        p = torch.softmax(run.logits(slice(run.n - 1, run.n))[0].double(), dim=0)
        answer, other = ((i, float(p[i])) if 0 <= i < len(p) else NO_ANSWER for i in (*ids, -1, -1)[:2])
        ranks = map(int, rank_in(p, p[answer[0]])) if answer[0] >= 0 else ()
        return Answered(*answer, *other, *ranks)


def target_words(prompts: tuple[Prompt, ...]) -> str:
    """What the lines' answers make of the target, "" where no line has one."""
    kinds = {2: "answer minus other answer", 1: "answer", 0: "no answer"}
    counts = {kinds[n]: sum(len(prompt.target.tokens) == n for prompt in prompts) for n in kinds}
    each = [kind if count == len(prompts) else f"{kind} in {count}" for kind, count in counts.items() if count]
    return f"target in logits: {', '.join(each)}" if counts[kinds[0]] < len(prompts) else ""


def _mean_words(p: OverPromptsParams, counted: int, total: int) -> Part:
    """What is averaged: so many prompts of the file."""
    of = f"{counted} of " if counted < total else ""
    return Part(f"mean of {of}{prompts_words(p, total)}", Sense(About.MEAN))


def prompts_words(p: OverPromptsParams, total: int) -> str:
    """So many prompts of the file."""
    return f"{number_of(total, 'prompt')} of {Path(p.file.path).name if p.file else ''}"


@dataclass
class _PromptRows:
    """Rows and weights of the prompts computed so far, and what their answers have in common."""

    p: OverPromptsParams
    prompts: tuple[Prompt, ...]
    words: tuple[str, ...]
    config: ModelConfig
    rows: list[np.ndarray]
    weights: list[float]
    answers: list[Answered]
    field: str = ""
    units: Unit = ""
    weighted_by: str = "dimensionless"
    names: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    remainder: Remainder | None = None

    def resume(self, previous: Result | None) -> None:
        """Start from what a cancelled answer holds."""
        if isinstance(previous, OverPromptsResult) and previous.counted:
            self.rows = list(previous.values[: previous.counted])
            self.weights = previous.weights[: previous.counted].tolist()
            both = (previous.answer, previous.answer_probability, previous.other_answer, previous.other_answer_probability)
            each = (*both, previous.answer_rank, previous.answer_equal)
            self.answers = list(map(Answered, *(one[: previous.counted].tolist() for one in each)))
            self.field, self.names, self.common = previous.field, previous.names, previous.common
            self.units, self.weighted_by = previous.units, previous.weighted_by
            self.remainder = previous.remainder

    def add(self, result: Result, answered: Answered) -> None:
        """Add one prompt's result. Raises `BadInput` if its array has another shape."""
        arrays = result.across()
        number = len(self.rows) + 1
        if not self.rows:
            self.field, self.names = _field_of(arrays, self.p.field, self.p.analysis), tuple(arrays)
            self.units = result.unit_across(self.field)
            self.weighted_by = "tokens" if hasattr(result, "weight") else "dimensionless"
            self.common = tuple(w for w in result.conventions if w not in self.words)
        row = np.asarray(arrays[self.field], np.float64) if self.field in arrays else np.empty(0)
        if self.rows and row.shape != self.rows[0].shape:
            raise BadInput(
                f"The array {self.field} of {self.p.analysis} has another shape in prompt {number} than in the first.",
                expected=str(self.rows[0].shape),
                got=f"{row.shape} for {self.prompts[number - 1].text[:60]!r}",
                remedy="Use prompts of one length, or another array.",
            )
        self.rows.append(row)
        self.answers.append(answered)
        self.weights.append(float(getattr(result, "weight", 1.0)))
        self.common = tuple(w for w in self.common if w in result.conventions)
        self.remainder = _worse(self.remainder, result.remainder)

    def result(self) -> OverPromptsResult:
        """A snapshot; rows of prompts not computed yet are NaN."""
        rows, counted = np.array(self.rows), len(self.rows)
        mean, sd, n = statistics(rows, np.array(self.weights))
        values, weights = np.full((len(self.prompts), *rows.shape[1:]), np.nan), np.full(len(self.prompts), np.nan)
        values[:counted], weights[:counted] = rows, self.weights
        answers = np.array([*self.answers, *[Answered()] * (len(self.prompts) - counted)])
        return OverPromptsResult(
            values=values,
            weights=weights,
            mean=mean,
            sd=sd,
            n=n,
            answer=answers[:, 0].astype(np.int64),
            answer_probability=answers[:, 1].copy(),
            other_answer=answers[:, 2].astype(np.int64),
            other_answer_probability=answers[:, 3].copy(),
            answer_rank=answers[:, 4].astype(np.int64),
            answer_equal=answers[:, 5].astype(np.int64),
            field=self.field,
            units=self.units,
            weighted_by=self.weighted_by,
            names=self.names,
            axes=axes_across(self.p.analysis, self.field, mean.shape, self.config),
            prompts=tuple(prompt.text for prompt in self.prompts),
            counted=len(rows),
            common=self.common,
            conventions=(*self.words, *self._conventions(len(rows)), *self.common),
            remainder=self.remainder,
            done=len(rows) / len(self.prompts),
        )

    def _target(self) -> tuple[str, ...]:
        """What the answers of the lines are measured as, where the analysis has a target."""
        _, params = requested_analysis(self.p)
        return tuple(filter(None, (target_words(self.prompts) if measures_target(params) else "",)))

    def _conventions(self, counted: int) -> tuple[str, ...]:
        longer = sum(prompt.longer for prompt in self.prompts[:counted])
        first = (
            (number_of(longer, "longer answer, by its first token", "longer answers, by their first tokens"),) if longer else ()
        )
        moved = sum(prompt.moved > 0 for prompt in self.prompts[:counted])
        begun = (f"what both answers begin with is part of {number_of(moved, 'prompt')}",) if moved else ()
        unlike = len(set(self.weights)) > 1
        each = (f"each prompt weighted by its tokens, {sum(self.weights):.0f} in all",) if unlike else ()
        return (
            _mean_words(self.p, counted, len(self.prompts)),
            *self._target(),
            *each,
            SPREAD,
            *begun,
            *first,
        )


def _holds(version: int, config: ModelConfig, p: OverPromptsParams) -> bool:
    """Version 4 had no ranks."""
    return version == 4


def _cost(config: ModelConfig, n: int, p: OverPromptsParams) -> float:
    """Of a set of twenty prompts: how many there are, its file says."""
    inner, params = requested_analysis(p)
    return 20 * inner.cost(config, ASSUMED, params)


@analysis(version=5, needs="tokens", lane="slow", memory=_memory, refuse=_refuse, holds=_holds, cost=_cost)
def over_prompts(inputs: Inputs, p: OverPromptsParams, ctx: Ctx) -> OverPromptsResult:
    """Mean and standard deviation of another analysis over a set of prompts with answers."""
    assert p.file is not None  # else refused
    inner, params = requested_analysis(p)
    edits = of_every_prompt(inputs.subject.edits)
    prompts = inputs.prompts(p.file)
    partial = _PromptRows(p, prompts, inputs.convention_words(), inputs.weights.config, [], [], [])
    partial.resume(ctx.previous)
    for i in range(len(partial.rows), len(prompts)):
        ctx.tick(i, len(prompts), f"prompt {i + 1} of {len(prompts)}")
        at, own = inputs.at(prompts[i].tokens, edits), with_prompt(params, prompts[i])
        partial.add(at.answer(inner, own), _answered(at, prompts[i], own))
        if i + 1 < len(prompts):
            ctx.partial(partial.result())
    return partial.result()
