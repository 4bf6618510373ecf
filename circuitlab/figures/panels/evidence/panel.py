"""Evidence: the arguments that induction heads make for in-context learning, how strong each is, and what is measured here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.checks.theory_and_measurement import (
    TheoryAndMeasurementParams,
    TheoryAndMeasurementResult,
    theory_and_measurement,
)
from circuitlab.analysis.training.series import RANDOM, TEXT, TrainingSeriesParams, TrainingSeriesResult, training_series
from circuitlab.caption_parts import Essential, OnPaper
from circuitlab.counting import below_whole, number, number_of
from circuitlab.engine.request import Request
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.common import captions, with_error
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, control, find_panel, register
from circuitlab.figures.contracts.selection_reading import of_weights
from circuitlab.figures.marks import Figure, Hit, Prose, RowColumn, Rows, ids
from circuitlab.figures.panels.evidence.arguments import (
    ARGUMENTS,
    CLASSES,
    COLUMNS,
    FAMILY,
    KIND_OF_STRONGEST,
    STRONGEST,
    Claim,
    class_of,
)
from circuitlab.figures.panels.theory.pair import Pair
from circuitlab.figures.panels.training.panel import series_subject, without_layers
from circuitlab.figures.panels.training.points import between, phase_words, short
from circuitlab.model.subject import Head
from circuitlab.state.state import State

NOT_COMPUTED = "not computed"
STRENGTH = "Strength of the argument for models of this class, as the paper states it; blank where it states none"
UNMEASURED = f"{NOT_COMPUTED}: this model's training was not measured"
NO_HEAD = "no induction head"
TWICE = 2.0  # its chance level: less prefix matching than that is not called induction


@dataclass(frozen=True)
class EvidenceView:
    """The controls of the panel; `argument`: the number of the one that is chosen."""

    claim: Claim = control(
        "some", label="Contribute", tip="The claim: induction heads contribute some, or the majority, of in-context learning"
    )
    argument: int = control(1, label="Argument", low=1, high=len(ARGUMENTS), hidden=True)

    @property
    def row(self) -> int:
        """The index of the chosen argument, which is counted from 1 as in the paper."""
        return max(1, min(self.argument, len(ARGUMENTS))) - 1


def _view(state: State) -> EvidenceView:
    return state.view("evidence", EvidenceView)


def requests(state: State, facts: Facts) -> Requests:
    """What is measured of the open model's heads with its chance level, and the series of all shipped models with its own."""
    weights = of_weights(state)
    asked: dict[str, Request] = {
        "heads": Request(theory_and_measurement, TheoryAndMeasurementParams(), weights),
        "scores": Request(head_scores, HeadScoresParams(), weights),
    }
    try:
        sources = facts.measured("")
    except CircuitLabError:
        sources = ()
    if sources:
        params = TrainingSeriesParams(tuple(map(SeriesRef, sources)), without_layers(facts))
        asked["series"] = Request(training_series, params, series_subject(state))
    return asked


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The table of arguments, and below it what is measured for each."""
    view = _view(state)
    heads, series = answers.of("heads", theory_and_measurement), answers.find("series", training_series)
    scores = answers.find("scores", head_scores)
    measurements = Measurements(
        heads.result,
        None if series is None else series.result,
        series is not None and series.request.params.models[0].source == state.model.source,
        None if scores is None else scores.result.control[scores.result.names.index("prefix_matching")],
        heads.request.params.frozen,
    )
    here = measurements.all()
    rows = (*ARGUMENTS, STRONGEST)
    text = lambda values: np.array(values, dtype=object)
    strengths = [one.strengths(view.claim) for one in rows]
    at = view.row
    columns = (
        RowColumn("argument", text([one.name for one in rows])),
        RowColumn("here", text([*(few for few, _ in here), ""]), tip="Measured; a click says below what it is"),
        *(
            RowColumn(name, text([each[i] for each in strengths]), tip=f"{CLASSES[i]}. {STRENGTH}")
            for i, name in enumerate(COLUMNS)
        ),
        RowColumn(
            "picture", text([*(find_panel(one.panel).title for one in ARGUMENTS), ""]), tip="A double-click opens it", spare=True
        ),
    )
    table = Rows("arguments", columns, ids(np.arange(len(rows))), chosen=(at,), strong=(len(ARGUMENTS),), own=True)
    paragraphs = tuple((f"{one.name} ({one.kind})", words) for one, (_, words) in zip(ARGUMENTS, here, strict=True))
    words = Prose("here", (paragraphs[at],), on_paper=paragraphs)
    title = f"Induction heads contribute {view.claim} of in-context learning: how strong is each argument?"
    notes = (
        Essential(f"strengths as Olsson et al. 2022 state them; this model: {CLASSES[class_of(facts.config)]}"),
        Essential("blank: the paper states no strength for that class; not given: the slides followed here leave argument 5 out"),
        OnPaper(f"{COLUMNS[0]}: {CLASSES[0]}; {COLUMNS[1]}: {CLASSES[1]}"),
        KIND_OF_STRONGEST[view.claim],
    )
    asked = {"heads": answers.get("heads"), "training": answers.get("series")}  # the first says how heads were scored
    return Figure(((table,), (words,)), title, (*notes, *captions(asked)))


@dataclass(frozen=True, eq=False)
class Measurements:
    """What is measured for each argument. `own`: the first model of the series is the open one.

    `chance` [layer, head]: the control of prefix matching, None where it was not computed; `held`: heads are zeroed with later
    patterns held.
    """

    heads: TheoryAndMeasurementResult
    series: TrainingSeriesResult | None
    own: bool
    chance: np.ndarray | None = None
    held: bool = True

    def all(self) -> tuple[tuple[str, str], ...]:
        """(a few words, a sentence) for each of `ARGUMENTS`."""
        generality = "not computed here: Prompt sets has prompts for each kind, on which heads can be averaged"
        generally = NOT_COMPUTED, generality
        return self._together(), self._architecture(), self._ablation(), generally, self._mechanism(), self._alike()

    def _together(self) -> tuple[str, str]:
        r = self.series
        if r is None or not self.own:
            return NOT_COMPUTED, UNMEASURED
        few = f"{number(-r.fall[0, RANDOM])} nats" if np.isfinite(r.fall[0, RANDOM]) else "no phase change"
        return few, (
            f"in the whole training of {self._trained(0)}, whichever step is open: on repeated random tokens "
            f"{phase_words(r, RANDOM)}; on text {phase_words(r, TEXT)}"
        )

    def _trained(self, model: int) -> str:
        """A model of the series, with the tokens of its training."""
        assert self.series is not None
        count = int(self.series.tokens[self.series.points(model)[-1]])
        return f"{self.series.names[model]} ({short(count)} {'token' if count == 1 else 'tokens'})"

    def _architecture(self) -> tuple[str, str]:
        r = self.series
        places = [] if r is None else [r.names.index(name) for name in FAMILY if name in r.names]
        if r is None or len(places) < len(FAMILY):
            return NOT_COMPUTED, f"{NOT_COMPUTED}: it takes the measured trainings of {', '.join(FAMILY)}"
        plain, smeared, _ = places
        last = [int(r.points(i)[-1]) for i in places]
        each = (
            f"{self._trained(i)} {with_error(r.each_controlled[at], r.each_controlled_error[at])}"
            for i, at in zip(places, last, strict=True)
        )
        change = with_error(r.between[smeared, plain], r.between_error[smeared, plain])
        if not np.isfinite(r.between[smeared, plain]):
            return NOT_COMPUTED, f"{NOT_COMPUTED}: these models were measured on other texts, or not text by text"
        sentence = (
            f"at the end of training, in-context score on text minus that of a model without layers, ± standard error over "
            f"texts: {', '.join(each)} nats; smeared keys against none in one layer {change} nats{self._unequal(smeared, plain)}"
        )
        return f"{number(r.between[smeared, plain])} nats", sentence  # its error is in the sentence

    def _unequal(self, *models: int) -> str:
        """That two models were trained on different numbers of tokens, "" where they were not."""
        assert self.series is not None
        counts = [int(self.series.tokens[self.series.points(i)[-1]]) for i in models]
        return "" if counts[0] == counts[1] else ", after trainings of unequal length"

    def _induction_head(self) -> Head | None:
        """The head with the highest prefix matching."""
        values = self.heads.of("prefix matching")
        return (
            None if not np.isfinite(values).any() else Head(*map(int, np.unravel_index(int(np.nanargmax(values)), values.shape)))
        )

    def _none_does(self, head: Head) -> str:
        """Why the head with the highest prefix matching is no induction head, "" where it is one."""
        if self.chance is None or not np.isfinite(self.chance[head]):
            return ""
        value, chance = self.heads.of("prefix matching")[head], self.chance[head]
        if value >= TWICE * chance:
            return ""
        return (
            f"no head matches prefixes at twice its chance level: the highest score is {number(value)}, chance {number(chance)}"
        )

    def _ablation(self) -> tuple[str, str]:
        head = self._induction_head()
        if head is None or not np.isfinite(self.heads.of("ablation")[head]):
            return NOT_COMPUTED, NOT_COMPUTED
        rise = self.heads.of("ablation")
        held = "with later patterns held" if self.held else "with later patterns recomputed"
        if why := self._none_does(head):
            most = float(np.nanmax(np.abs(rise)))
            bound = f"at most {number(most)}" if most >= 0.01 else "less than 0.01"
            return (
                NO_HEAD,
                f"{why} (attention to the same positions when tokens do not recur); {held}, zeroing any one head "
                f"changes the loss of the second repetition by {bound} nats a token",
            )
        others = np.where(np.arange(rise.size).reshape(rise.shape) == np.ravel_multi_index(head, rise.shape), np.nan, rise)
        matching, chance = below_whole(self.heads.of("prefix matching")[head]), ""
        if self.chance is not None and np.isfinite(self.chance[head]):
            chance = f" (chance {number(self.chance[head])})"
        sentence = (
            f"{held}: without {head}, whose prefix matching is {matching}{chance}, the second repetition of random tokens costs "
            f"{number(rise[head], '+.2f')} nats a token"
        )
        if np.isfinite(others).any():
            second = Head(*map(int, np.unravel_index(int(np.nanargmax(others)), rise.shape)))
            sentence += f"; of the other heads {second} matters most, {number(rise[second], '+.2f')} nats"
        if self.held:
            sentence += ". What a head does through later patterns is left out, and can change this order"
        return f"{number(rise[head], '+.2f')} nats", sentence

    def _mechanism(self) -> tuple[str, str]:
        head = self._induction_head()
        positivity = "positivity through earlier heads"
        if head is not None and (why := self._none_does(head)):
            return NO_HEAD, why
        if head is None or not np.isfinite(self.heads.of(positivity)[head]):
            return NOT_COMPUTED, f"{NOT_COMPUTED}: no head with prefix matching reads through an earlier head"
        qk, ov = below_whole(self.heads.of(positivity)[head]), below_whole(self.heads.of("OV copying")[head])
        words = Pair(self.heads, positivity, "prefix matching").words
        sentence = (
            f"{head}: {positivity} {qk}, OV copying {ov}, each from −1 to 1; over heads {positivity} against prefix matching "
            f"{words}"
        )
        return f"QK {qk}", sentence

    def _alike(self) -> tuple[str, str]:
        r = self.series
        if r is None:
            return NOT_COMPUTED, f"{NOT_COMPUTED}: no training was measured"
        deep = [i for i in range(len(r.names)) if r.shapes[i, 0]]
        phases = [i for i in deep if np.isfinite(r.phase[i, RANDOM, 0])]
        count = f"{len(phases)} of {number_of(len(deep), 'model')}"
        if not phases:
            trained = ", ".join(map(self._trained, deep))
            return count, f"no phase change on repeated random tokens in the whole trainings of models with heads: {trained}"
        each = ", ".join(f"{self._trained(i)} {between(*r.phase[i, RANDOM])}" for i in phases)
        without = ", ".join(self._trained(i) for i in deep if i not in phases)
        return count, (
            f"phase change on repeated random tokens in the whole trainings of {count} with heads, whichever is open, at tokens: "
            f"{each}{f'; none in {without}' if without else ''}"
        )


def pick(state: State, hit: Hit) -> State:
    """A click chooses an argument; a double-click sets up the picture behind it too."""
    if hit.mark != "arguments" or len(hit.id) != 1 or hit.gesture not in ("click", "double-click"):
        return state
    (chosen,) = hit.id
    if not 0 <= chosen < len(ARGUMENTS):
        return state
    view = _view(state)
    state = state if view.row == chosen else state.with_view("evidence", replace(view, argument=chosen + 1))
    return ARGUMENTS[chosen].shown(state) if hit.gesture == "double-click" else state


def _picture(state: State) -> str:
    """The panel behind the chosen argument."""
    return ARGUMENTS[_view(state).row].panel


PANEL = register(
    Panel(
        name="evidence",
        title="Evidence",
        view=EvidenceView,
        equation="argument × class of models → strength; here: what is measured of the models at hand",
        source="Olsson et al. 2022, In-context Learning and Induction Heads: six arguments and their strengths",
        help=(
            "Do induction heads contribute some, or the majority, of in-context learning? The paper has six arguments, and says "
            "of each how far it carries for small attention-only models, for small ones with MLPs, and for large ones. The "
            "column here is what is measured of the models at hand; a click says what it is, a double-click opens the picture "
            "behind it. No number here raises the strength of an argument: what appears together need not be a cause, an "
            "ablation measures what one head adds to the others, and likeness of small and large models is an analogy."
        ),
        requests=requests,
        draw=draw,
        optional=("series", "scores"),
        pick=pick,
        of_heads=True,
        instead="Models side by side has its loss beside those of models that have some",
        area="centre",
        order=67,
        opens=_picture,
    )
)
