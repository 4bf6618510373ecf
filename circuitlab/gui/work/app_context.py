"""What every dock has access to: the document, the runner, the engine, the facts of the open model, the notes, the theme."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.caption_parts import Essential
from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.panel import Facts, facts_of
from circuitlab.figures.marks import joined
from circuitlab.gui.work.document import Document
from circuitlab.gui.work.export_place import ExportPlace
from circuitlab.gui.work.file_watch import A_MOMENT, FileWatch
from circuitlab.gui.work.model_loader import ModelLoader, models_of
from circuitlab.gui.work.notes import Notes
from circuitlab.gui.work.processes import Processes
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.settings import Settings
from circuitlab.model.config import ModelConfig
from circuitlab.model.records.known_heads import with_notes
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.session_files.model_table import refs_of
from circuitlab.session_files.work import Work
from circuitlab.state.model_change import without_missing
from circuitlab.state.state import State

NUMBERS_READ = "numbers are those of the files that were read"
MOST_FACTS = 64  # models whose facts are cached: a slider may pass over thousands


class AppContext(QObject):
    """The shared objects of one window, and the only way to change its State.

    Every part of the window reads `document`, and writes to it through these methods alone. `apply` records a step on
    `document.recorded`, with the models it has; a pending state stays pending and is shown on top of the step. `show` and `go`
    record a step on `target_state`, which may need models that are not open; it replaces what is pending. `preview` shows what
    the pointer is over, without recording it. `jump` records a state that was kept elsewhere. `undo` takes back what is pending
    first. `begin` starts with other work, as when a session is opened.

    `readout(text)`: what the pointer is over, "" when it has left. `message(text)`: what has just happened. `failed(error)`: an
    error to show. `theme_changed(theme)`. `scales_held(on)`: from now on colour scales only grow, or each fits its figure again.
    `model_changed(before, after)`: another model has been opened, or stepped to, in place of the one before; States with what
    was to be kept, and with what is. `read_again()`: the files of a model have been read again, and answers that are shown may
    be of other weights. `reopened()`: what the document shows was closed, and is open again.
    """

    readout = Signal(str)
    message = Signal(str)
    theme_changed = Signal(object)
    failed = Signal(object)
    scales_held = Signal(bool)
    model_changed = Signal(object, object)
    read_again = Signal()
    reopened = Signal()

    def __init__(
        self,
        engine: Engine,
        document: Document,
        settings: Settings | None = None,
        parent: QObject | None = None,
        runner: Runner | None = None,
        files: FileWatch | None = None,
    ) -> None:
        super().__init__(parent)
        self.settings = settings or Settings(remember=False, parent=self)
        self.engine, self.document = engine, document
        self.runner = runner or Runner(engine, self)
        self.files = files or FileWatch(engine.store, self)
        self.loader = ModelLoader(engine.store, document, self.runner, self)
        self.loader.message.connect(self.message)
        self.loader.model_changed.connect(self.model_changed)
        self.loader.failed.connect(self.failed)
        self.notes = Notes(document, engine.store, self)
        self.marks_notes = True  # whether figures have the person's notes
        self.exports = ExportPlace(self.settings.remember)
        self.processes = Processes(self)
        self.theme: Theme = LIGHT
        self.holds_scales = False
        self.stand_ins: dict[ModelRef, str] = {}  # models in use that are not those of the session, with their names there
        self._facts: OrderedDict[ModelRef, Facts] = OrderedDict()
        self.runner.weights_changed.connect(self.forget)
        document.fit = self._fit
        document.dropped.connect(self._dropped)
        document.changed.connect(self._changed)
        document.history_changed.connect(self._keep_models)
        self._keep_models()

    def beside(self, state: State, parent: QObject) -> AppContext:
        """Another context on the same engine, runner and settings, with a document of its own: what is recorded, in this State.

        Its figures are for others to see: they have none of the person's own notes, nor signs of them.
        Slots of the runner belong to their owners, so that requests of the two never replace each other.
        """
        work = replace(self.document.work, state=state)
        other = AppContext(self.engine, Document(state), self.settings, parent, self.runner, self.files)
        other.document.setParent(other)
        other.begin(work)
        other.stand_ins = dict(self.stand_ins)
        other.theme = self.theme
        other.marks_notes = False
        return other

    # -- the door to the State ----------------------------------------------------------------------------------------

    @property
    def target_state(self) -> State:
        """What will be recorded once its models are open; the recorded state where nothing is pending."""
        return self.loader.target_state

    def apply(self, state: State, label: str, merge: str = "") -> None:
        """Record a state of the open models. Steps of one non-empty `merge` in a row are one step of undo."""
        self.document.apply(state, label, merge)

    def show(self, state: State, label: str, merge: str = "") -> None:
        """Record a state, at once where its models are open, else when they are."""
        self.loader.show(state, label, merge)

    def jump(self, state: State, label: str) -> None:
        """Record a state of open models as it is, not fitted to what was shown before, in place of what is pending."""
        self.loader.drop()
        self.document.apply(state, label)

    def go(self, ref: ModelRef, label: str, merge: str = "") -> None:
        """Show the target state on another model: another checkpoint, other parameters."""
        self.show(replace(self.target_state, model=ref), label, merge)

    def mend(self, state: State) -> None:
        """Record `state` in place of what is recorded, without a step of undo."""
        self.document.mend(state)

    def preview(self, state: State) -> None:
        """Show a state without recording it, until `end_preview` or the next step."""
        self.document.apply(state, "")

    def end_preview(self) -> None:
        """Show the recorded state again."""
        self.document.end_preview()

    def gather(self, start: State, merge: str) -> None:
        """Merge all steps after `start` into one, which the next step of the burst `merge` replaces.

        Edits of the story and the notes stay steps of their own.
        """
        self.document.gather(start, merge)

    @Slot()
    def undo(self) -> None:
        """Take back what is pending, else step back."""
        self.loader.undo()

    @Slot()
    def redo(self) -> None:
        """Step forward."""
        self.loader.redo()

    def begin(self, work: Work) -> None:
        """Begin anew with this work, whose models are open: what was pending is given up, and nothing is left to undo."""
        self.loader.drop()
        self.document.begin(work)

    # -- facts of models ----------------------------------------------------------------------------------------------

    def _fit(self, state: State, before: State) -> State:
        """A State without the selected heads that its model lacks, as far as the model's facts are available."""
        facts = self.facts_if_open(state.model)
        return state if facts is None else without_missing(facts.config, state, before.selection)

    @Slot(object)
    def _dropped(self, state: State) -> None:
        facts = self.facts_if_open(state.model)
        if facts is not None and facts.config.n_layers:
            present = set(without_missing(facts.config, state, state.selection).selection.heads)
            if absent := [str(head) for head in state.selection.heads if head not in present]:
                self.message.emit(f"{facts.name} has no {' '.join(absent[:4])}: the selection stays.")

    def tokenizer(self) -> Tokenizer | None:
        """The open model's tokenizer."""
        model = self.engine.store.peek(self.document.state.model)
        return None if model is None else model.opened.weights.tokenizer

    def facts(self, ref: ModelRef | None = None) -> Facts:
        """What panels may know of a model without a request; None: of the open one."""
        ref = ref or self.document.state.model
        if ref not in self._facts:
            facts = facts_of(self.engine, ref)
            inside = lambda head: head.layer < facts.config.n_layers and head.head < facts.config.n_heads
            noted = lambda: tuple((head, text) for head, text in self.notes.on_heads(ref) if inside(head))
            edges = lambda: tuple((edge, text) for edge, text in self.notes.on_edges(ref) if all(map(inside, edge)))
            known_heads = lambda: with_notes(facts.known_heads(), noted(), edges()) if self.marks_notes else facts.known_heads()
            self._facts[ref] = replace(facts, others=self.facts_if_open, known_heads=known_heads)
        self._facts.move_to_end(ref)
        while len(self._facts) > MOST_FACTS:
            self._facts.popitem(last=False)
        return self._facts[ref]

    def facts_if_open(self, ref: ModelRef) -> Facts | None:
        """The facts of a model that is open, or whose facts are still cached; None otherwise, so that drawing never opens one."""
        available = ref in self._facts or self.engine.store.peek(ref) is not None
        return self.facts(ref) if available else None

    def look_at_files(self, seconds: float = 0) -> None:
        """Look whether files of the models in use have changed (`FileWatch.look`)."""
        self.files.look(models_of(self.document.recorded), seconds)

    def before_export(self) -> None:
        """Look at the files once more, so that what is written says what has become of them."""
        self.look_at_files(A_MOMENT)

    def changed_files(self, state: State) -> dict[ModelRef, str]:
        """Those of the models in use whose files are not what was opened, each with words that say which (`FileChange.words`)."""
        changes = {ref: change for ref in models_of(state) if (change := self.files.change(ref)) is not None}
        return {ref: change.words(self.name_of(ref)) for ref, change in changes.items()}

    def remarks_on(self, state: State) -> tuple[str, ...]:
        """For captions: which of the models in use are not those of the session, and whose files have changed since."""
        used = {replace(pin.subject.model if pin else state.model, checkpoint=None) for pin in (None, state.reference)}
        names = (name for ref, name in self.stand_ins.items() if ref in used)
        changed = self.changed_remarks(state).values()
        return (*(Essential(f"not the model of this session: {name}") for name in names), *map(Essential, changed))

    def changed_remarks(self, state: State) -> dict[ModelRef, str]:
        """`changed_files` as parts of a caption, which say of which files numbers are."""
        return {ref: f"{text}; {NUMBERS_READ}" for ref, text in self.changed_files(state).items()}

    def name_of(self, ref: ModelRef) -> str:
        """The name of a model in titles."""
        return joined(*self.name_parts(ref))

    def name_parts(self, ref: ModelRef) -> tuple[str, ...]:
        """The parts of that name; a checkpoint is named by its training step while it is open."""
        model = self.engine.store.peek(ref)
        return ref.name_parts if model is None else model.name_parts

    def config(self, ref: ModelRef) -> ModelConfig | None:
        """The configuration of a model, None while it is not open."""
        return None if self.engine.store.peek(ref) is None else self.facts(ref).config

    @Slot()
    def _keep_models(self) -> None:
        """Have the models of what is recorded and shown stay open, and their words known, with those of pins."""
        recorded, shown = self.document.recorded, self.document.state
        self.engine.store.show(self.document, (*models_of(recorded), *models_of(shown)), (*refs_of(recorded), *refs_of(shown)))

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        self._keep_models()
        if old.model != new.model:
            self.reopen()

    def reopen(self) -> None:
        """Open what the document shows, where it has been closed; `reopened` follows."""
        state = self.document.state
        if not self.loader.waiting and self.engine.store.peek(state.model) is None:
            self.loader.reopen(state, self.reopened.emit)

    @Slot(object)
    def forget(self, ref: ModelRef) -> None:
        """Drop what is known of a model that has been read again, and every answer that is shown: it may be of others."""
        same = replace(ref, checkpoint=None)
        for one in [one for one in self._facts if replace(one, checkpoint=None) == same]:  # each lists the checkpoints of all
            del self._facts[one]
        self.document.refit()
        self.read_again.emit()

    def is_current(self, answer: Answer) -> bool:
        """Whether an answer is of the weights that are open now, as far as both are known: not of files that were read before."""
        model = self.engine.store.peek(answer.request.subject.model)
        return model is None or answer.identity in (None, model.key)

    def hold_scales(self, on: bool) -> None:
        """Hold the colour scales while a series is played or dragged through: a colour means the same number in every frame."""
        if on != self.holds_scales:
            self.holds_scales = on
            self.scales_held.emit(on)

    def set_theme(self, theme: Theme) -> None:
        """Apply a theme to every view."""
        self.theme = theme
        self.theme_changed.emit(theme)
