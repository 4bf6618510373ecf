"""What a report of a session says, before it is a page: its steps with their texts, figures and numbers, and their origin.

Opens models and computes: for a worker thread. `page` and `pages` draw it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine, versions
from circuitlab.engine.ghost import placeless
from circuitlab.engine.request import Answer
from circuitlab.errors import BadModel, Cancelled, CircuitLabError, reason
from circuitlab.figures.contracts.panel import view_types
from circuitlab.model.config import ModelConfig
from circuitlab.model.origin import Builtin, Constructed, Hub
from circuitlab.model.subject import ModelRef
from circuitlab.report.answer_data import AnswerData, answers_data, tables_data
from circuitlab.report.numbers import numbers_of
from circuitlab.report.places import NONE_LOST, Lost, Place, places
from circuitlab.report.prompts import Prompts, PromptText
from circuitlab.report.requests import Fronts
from circuitlab.report.step_figures import StepFigure, step_figures
from circuitlab.session_files.model_table import names_by_ref, refs_of
from circuitlab.session_files.notes import subject_of
from circuitlab.session_files.session import Session
from circuitlab.story.panel_names import unfollowed
from circuitlab.story.resolver import Ready
from circuitlab.story.story import Step
from circuitlab.story.text import fill_text
from circuitlab.story.values import not_computed, why_not_computed
from circuitlab.unforeseen import Unforeseen, part

NO_TITLE = "Untitled"
FILM = "The step plays a film; its two ends are shown."


@dataclass(frozen=True, eq=False)
class ReportFigure:
    """A figure of a step with the numbers behind it."""

    drawn: StepFigure
    data: tuple[AnswerData, ...] = ()


@dataclass(frozen=True, eq=False)
class Section:
    """One step. `text`: its Markdown, numbers filled in; `aside`: the speaker's own; `remarks`: what a reader must know besides.

    `conventions`: under which it is shown. `no_numbers`: those of the text that are not computed, and why. `no_panels`: names of
    panels that it shows and that there are not. `error`: why nothing could be set up, None where it was.
    """

    title: str
    text: str = ""
    aside: str = ""
    figures: tuple[ReportFigure, ...] = ()
    remarks: tuple[str, ...] = ()
    conventions: tuple[str, ...] = ()
    no_numbers: tuple[tuple[str, str], ...] = ()
    unfollowed: tuple[str, ...] = ()
    error: CircuitLabError | None = None

    @property
    def faults(self) -> tuple[Unforeseen, ...]:
        """The faults of the program in computing its figures, each with the name of its panel."""
        met = ((one.drawn.panel.title, one.drawn.error) for one in self.figures)
        return tuple(_named(copy(error), title) for title, error in met if isinstance(error, Unforeseen))

    @property
    def lacking(self) -> tuple[str, ...]:
        """What of it could not be computed, and why."""
        if self.error is not None:
            return (reason(self.error),)
        each = [one.drawn for one in self.figures]
        figures = (
            f"{drawn.panel.title}: {drawn.lacking or drawn.why}" for drawn in each if drawn.figure is None or drawn.lacking
        )
        return (*self.unfollowed, *figures, *(f"the number {name}: {why}" for name, why in self.no_numbers))


@dataclass(frozen=True)
class ModelFacts:
    """A model as a report names it: where it comes from without a path, its sizes, and the sha256 of weights that were used.

    `weights`: (which, sha256), and that of what else decides numbers; `assumed`: what no file states; `remarks`: what else must
    be known of it.
    """

    name: str
    origin: str = ""
    sizes: str = ""
    weights: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """All that a report says. `source`: the name of the session's file, "" without one; `notes`: (what it is on, its text).

    `origins`: which answers were computed, where and with what; which were stored. `prompts`: those of all figures and numbers.
    `stands`: it is of where the session stands, which has no steps.
    """

    title: str
    source: str
    sections: tuple[Section, ...]
    models: tuple[ModelFacts, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    origins: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    prompts: tuple[PromptText, ...] = ()
    stands: bool = False


def report_of(
    session: Session,
    engine: Engine,
    fronts: Fronts,
    ctx: Ctx | None = None,
    source: str = "",
    lost: Lost = NONE_LOST,
    stand_ins: Collection[str] = (),
    changed: Mapping[ModelRef, str] | None = None,
) -> Report:
    """The report of a session's story; of one without steps that of where it stands. What cannot be computed says why.

    `fronts`: see `requests_of`. `lost`: see `places`; `stand_ins`: names of models in whose place another one is used;
    `changed`: of models whose files are not what was read, a remark each. Raises `Cancelled` alone.
    """
    return _Reporter(session, engine, fronts, ctx or NullContext(), lost, stand_ins, changed or {}).report(source)


class _Reporter:
    def __init__(
        self,
        session: Session,
        engine: Engine,
        fronts: Fronts,
        ctx: Ctx,
        lost: Lost,
        stand_ins: Collection[str],
        changed: Mapping[ModelRef, str],
    ) -> None:
        self.session, self.engine, self.fronts, self.ctx = session, engine, fronts, ctx
        self.lost, self.stand_ins, self.changed = lost, stand_ins, changed
        self._names = names_by_ref(session.models)
        self._files = {entry.path: name for name, entry in session.files.items()}
        self._answers: dict[int, Answer] = {}
        self._refs: dict[ModelRef, None] = {}
        self._prompts = Prompts(engine)

    def report(self, source: str) -> Report:
        session, story = self.session, self.session.story
        total = max(1, len(story.steps))
        sections: list[Section] = []
        steps = places(session, self.engine, self.ctx, self.lost, now=not story.steps)
        for number in range(1, total + 1):
            self.ctx.tick(number - 1, total, f"step {number}" if story.steps else "where it stands")
            sections.append(self._whole_section(next(steps), number))
        self.ctx.tick(total, total, "drawing")
        return Report(
            story.title or source.rpartition(".")[0] or NO_TITLE,
            source,
            tuple(sections),
            tuple(self._models()),
            tuple((_subject(note.model, subject_of(note)), note.text) for note in session.notes),
            tuple(self._origins()),
            versions(),
            self._prompts.texts(),
            not story.steps,
        )

    # -- steps ----------------------------------------------------------------------------------------------------------

    def _whole_section(self, place: Place, number: int) -> Section:
        """A step, or why nothing of it can be shown."""
        try:
            with part():
                return self._section(place, number)
        except Cancelled:
            raise
        except CircuitLabError as error:
            return self._without(place.step, error)

    def _without(self, step: Step, error: CircuitLabError | None) -> Section:
        missing = {value.name: not_computed(value.name) for value in step.values}
        return Section(self._title(step), fill_text(step.text, {}, missing), step.aside, error=_placeless(error))

    def _title(self, step: Step) -> str:
        return step.title or (self.session.story.title if not self.session.story.steps else "") or NO_TITLE

    def _section(self, place: Place, number: int) -> Section:
        step, ready, total = place.step, place.ready, max(1, len(self.session.story.steps))
        ctx = _Part(self.ctx, number - 1, total, f"step {number}")
        title = self._title(step)
        if ready is None:
            return self._without(step, place.error)
        self._refs |= dict.fromkeys(refs_of(ready.state))
        numbers = numbers_of(self.engine, ready, ctx)
        read = [one.answer for one in numbers.values() if one.answer is not None]
        self._answers |= {id(answer): answer for answer in read}
        where = f"step {number}" if self.session.story.steps else ""
        self._prompts.add(read, where)
        text = fill_text(step.text, ready.words, {name: one.text for name, one in numbers.items()})
        unchosen = () if self.session.story.steps else self.session.unchosen
        figures = ()
        if step.setup is not None:  # words alone leave what was shown
            shown = step_figures(self.engine, place, self.fronts, ctx, unchosen)
            figures = tuple(self._figure(one, where) for one in shown)
        config = self._config(ready.state.model)
        conventions = ready.state.conventions.words(config) if figures else ()
        no_numbers = tuple((name, placeless(one.why)) for name, one in numbers.items() if one.why)
        missing = (why_not_computed(name, why) for name, why in no_numbers)
        film = _film(ready) if figures else ""
        not_followed = unfollowed(place.setup, view_types()) if step.setup is not None else ()
        missing = (*(f"{words[0].upper()}{words[1:]}." for words in not_followed), *missing)
        remarks = tuple(filter(None, (ready.mismatch, *self._stand_ins(ready.state.model), film, *missing)))
        return Section(title, text, step.aside, figures, tuple(map(placeless, remarks)), conventions, no_numbers, not_followed)

    def _figure(self, one: StepFigure, where: str) -> ReportFigure:
        answers = [answer for side in one.answers.values() for answer in side.values()]
        self._answers |= {id(answer): answer for answer in answers}
        if one.error is not None:
            return ReportFigure(replace(one, why=placeless(one.why), error=_placeless(one.error)))
        self._prompts.add(one.answers["now"].values(), where)
        self._prompts.add(one.answers["ref"].values(), where, "reference")
        of, of_state = one.panel.leading, one.panel.drawn_table(one.state)
        leading = None if of is None else partial(of, one.state)
        own = () if one.figure is None else tables_data(one.figure)
        data = answers_data(self.engine, one.answers, self._names, self._files, _reference(one), leading, of_state)
        return ReportFigure(one, (*own, *data))

    def _stand_ins(self, ref: ModelRef) -> Iterable[str]:
        name = self._names.get(replace(ref, checkpoint=None), "")
        if name in self.stand_ins:
            yield f"Another model is used in place of the session’s model {name}."

    # -- where it comes from --------------------------------------------------------------------------------------------

    def _models(self) -> Iterable[ModelFacts]:
        used = dict.fromkeys((*self._refs, *(answer.request.subject.model for answer in self._answers.values())))
        hashes = {answer.request.subject.model: answer.provenance.weights for answer in self._answers.values()}
        for base in dict.fromkeys(replace(ref, checkpoint=None) for ref in used):
            refs = sorted((ref for ref in used if replace(ref, checkpoint=None) == base), key=_order)
            yield self._facts(base, refs, hashes)
        for name in self.lost:
            entry = self.session.models.get(name)
            sha256 = "" if entry is None else entry.sha256
            weights = (("weights", sha256),) if sha256 else ()
            yield ModelFacts(name, weights=weights, remarks=("not on this machine",))

    def _facts(self, base: ModelRef, refs: list[ModelRef], hashes: dict[ModelRef, str]) -> ModelFacts:
        name = self._names.get(base, base.name)
        try:
            model = self.engine.store.open(base)
            opened = model.opened
            which = lambda ref: "final weights" if ref.checkpoint is None else f"step {opened.steps[ref.checkpoint]:,}"
            weights = tuple((which(ref), hashes[ref] if ref in hashes else self.engine.store.sha256(ref)) for ref in refs)
            weights += () if model.absent else (("configuration and tokenizer", model.settings_sha256),)
            remarks = ("known by the results stored with the session",) if model.absent else ()
            remarks += (f"in place of the session’s model {name}",) if name in self.stand_ins else ()
            remarks += tuple(self.changed[ref] for ref in refs if ref in self.changed)
            assumed = tuple(f"{one.name} {one.value}" for one in opened.assumptions)
            return ModelFacts(name, _origin(base), opened.weights.config.sizes, weights, assumed, remarks)
        except CircuitLabError as error:
            return ModelFacts(name, _origin(base), remarks=(placeless(reason(error)),))

    def _config(self, ref: ModelRef) -> ModelConfig | None:
        try:
            return self.engine.store.open(ref).opened.weights.config
        except BadModel:
            return None

    def _origins(self) -> Iterable[str]:
        computed = [answer for answer in self._answers.values() if not answer.provenance.stored]
        stored = [answer for answer in self._answers.values() if answer.provenance.stored]
        if computed:
            yield f"{number_of(len(computed), 'answer')} computed for this report, on {_machines(computed)}."
        if stored:
            with_what = "; ".join(dict.fromkeys(_libraries(answer) for answer in stored))
            yield f"{number_of(len(stored), 'answer')} stored with the session, computed on {_machines(stored)} with {with_what}."


class _Part(NullContext):
    """The `Ctx` of one step of several: it reports the progress of all of them, and what of the step is computed."""

    def __init__(self, ctx: Ctx, done: int, total: int, words: str) -> None:
        self._ctx, self._done, self._total, self._words = ctx, done, total, words

    def tick(self, done: int, total: int, text: str = "") -> None:
        """Report the progress. Raises `Cancelled`."""
        self._ctx.tick(self._done, self._total, f"{self._words}: {text}" if text else self._words)


def _named(fault: Unforeseen, name: str) -> Unforeseen:
    fault.what = f"{name}: {fault.what}"
    return fault


def _reference(one: StepFigure) -> str:
    """What a figure is compared with."""
    return "" if one.state.reference is None else one.state.reference.label


def _film(ready: Ready) -> str:
    """What a reader must know of a step's film, "" where it has none."""
    return FILM if ready.film else f"The film of this step cannot play: {ready.no_film}" if ready.no_film else ""


def _order(ref: ModelRef) -> tuple[bool, int]:
    """Checkpoints in their order, the final weights last."""
    return ref.checkpoint is None, ref.checkpoint or 0


def _subject(model: str, about: str) -> str:
    return f"{about} of {model}" if about and model else about or model


def _origin(ref: ModelRef) -> str:
    """Where a model comes from, in words that name no folder."""
    match ref.origin:
        case Constructed(where):
            return f"constructed, {where}"
        case Builtin():
            return "comes with CircuitLab"
        case Hub(where):
            return f"{where} on the hub"
    return ""


def _machines(answers: list[Answer]) -> str:
    """The devices and threads on which answers were computed."""
    each = dict.fromkeys(f"{a.provenance.device}, {number_of(a.provenance.threads, 'thread')}" for a in answers)
    return "; ".join(each)


def _libraries(answer: Answer) -> str:
    return ", ".join(f"{name} {version}" for name, version in answer.provenance.versions) or "versions unknown"


def _placeless(error: CircuitLabError | None) -> CircuitLabError | None:
    """The same error without folders of this machine."""
    if error is None:
        return None
    shown = copy(error)
    shown.what, shown.expected, shown.got, shown.remedy = map(placeless, (error.what, error.expected, error.got, error.remedy))
    return shown


def compared_words(error: CircuitLabError) -> str:
    """What an error expected and what came, "" where it says neither."""
    expected, got = error.expected and f"Expected: {error.expected}", error.got and f"got: {error.got}"
    return ", ".join(filter(None, (expected, got)))


def refuse_empty(report: Report) -> None:
    """Raise the error of the first step where none could be set up."""
    errors = [section.error for section in report.sections]
    if errors[0] is not None and None not in errors:
        raise named_error(report, 1)


def named_error(report: Report, number: int, error: CircuitLabError | None = None) -> CircuitLabError:
    """Why a step, counted from 1, could not be set up, as an error that names it; `error`: why, where more is known of it."""
    section = report.sections[number - 1]
    shown = copy(error or section.error)
    assert shown is not None
    shown.what = shown.what if report.stands else f"Step {number}, {section.title}: {shown.what}"
    return shown
