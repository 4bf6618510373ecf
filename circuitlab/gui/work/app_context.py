"""What every dock has access to: the document, the runner, the engine, the facts of the open model, the notes, the theme."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from PySide6.QtCore import QObject, Signal, Slot

from circuitlab.draw.look.theme import LIGHT, Theme
from circuitlab.engine.engine import Engine
from circuitlab.figures.contracts.panel import Facts, facts_of
from circuitlab.figures.marks import joined
from circuitlab.gui.work.document import Document
from circuitlab.gui.work.model_loader import ModelLoader
from circuitlab.gui.work.notes import Notes
from circuitlab.gui.work.runner import Runner
from circuitlab.gui.work.settings import Settings
from circuitlab.model.records.known_heads import with_notes
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.session.model_change import without_missing
from circuitlab.session.state import State
from circuitlab.session_files.work import Work

MOST_FACTS = 64  # models whose facts are cached: a slider may pass over thousands


class AppContext(QObject):
    """The shared objects of one window, and the only way to change its State.

    Every part of the window reads `document`, and writes to it through these methods alone. `apply` records a step on
    `document.recorded`, with the models it has; a pending state stays pending and is shown on top of the step. `show` and `go`
    record a step on `target_state`, which may need models that are not open; it replaces what is pending. `preview` shows what
    the pointer is over, without recording it. `undo` takes back what is pending first. `begin` starts with other work, as when a
    session is opened.

    `readout(text)`: what the pointer is over, "" when it has left. `message(text)`: what has just happened. `failed(error)`: an
    error to show. `theme_changed(theme)`. `scales_held(on)`: from now on colour scales only grow, or each fits its figure again.
    """

    readout = Signal(str)
    message = Signal(str)
    theme_changed = Signal(object)
    failed = Signal(object)
    scales_held = Signal(bool)

    def __init__(
        self, engine: Engine, document: Document, settings: Settings | None = None, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.settings = settings or Settings(remember=False, parent=self)
        self.engine, self.document = engine, document
        self.runner = Runner(engine, self)
        self.loader = ModelLoader(engine.store, document, self.runner, self)
        self.loader.message.connect(self.message)
        self.loader.failed.connect(self.failed)
        self.notes = Notes(document, engine.store, self)
        self.theme: Theme = LIGHT
        self.holds_scales = False
        self.stand_ins: dict[ModelRef, str] = {}  # models in use that are not those of the session, with their names there
        self._facts: OrderedDict[ModelRef, Facts] = OrderedDict()
        document.fit = self._fit
        document.dropped.connect(self._dropped)

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

    def go(self, ref: ModelRef, label: str, merge: str = "") -> None:
        """Show the target state on another model: another checkpoint, other parameters."""
        self.show(replace(self.target_state, model=ref), label, merge)

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
        facts = self._facts_if_open(state.model)
        return state if facts is None else without_missing(facts.config, state, before.selection)

    @Slot(object)
    def _dropped(self, state: State) -> None:
        facts = self._facts_if_open(state.model)
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
            known_heads = lambda: with_notes(facts.known_heads(), noted())
            self._facts[ref] = replace(facts, others=self._facts_if_open, known_heads=known_heads)
        self._facts.move_to_end(ref)
        while len(self._facts) > MOST_FACTS:
            self._facts.popitem(last=False)
        return self._facts[ref]

    def _facts_if_open(self, ref: ModelRef) -> Facts | None:
        """The facts of a model that is open, or whose facts are still cached; None otherwise, so that drawing never opens one."""
        available = ref in self._facts or self.engine.store.peek(ref) is not None
        return self.facts(ref) if available else None

    def name_of(self, ref: ModelRef) -> str:
        """The name of a model in titles."""
        return joined(*self.name_parts(ref))

    def name_parts(self, ref: ModelRef) -> tuple[str, ...]:
        """The parts of that name; a checkpoint is named by its training step while it is open."""
        model = self.engine.store.peek(ref)
        return ref.name_parts if model is None else model.name_parts

    def forget(self, ref: ModelRef) -> None:
        """Drop the facts of a model that has been read again: they may have changed."""
        self._facts.pop(ref, None)

    def hold_scales(self, on: bool) -> None:
        """Hold the colour scales while a series is played or dragged through: a colour means the same number in every frame."""
        if on != self.holds_scales:
            self.holds_scales = on
            self.scales_held.emit(on)

    def set_theme(self, theme: Theme) -> None:
        """Apply a theme to every view."""
        self.theme = theme
        self.theme_changed.emit(theme)
