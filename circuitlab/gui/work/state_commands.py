"""What commands do to the document: walk heads and tokens, release, pin, compare, change conventions, ablate."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Slot

from circuitlab.counting import number_of
from circuitlab.figures.contracts.panel import WITHOUT_HEADS
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, Head
from circuitlab.state.cuts import ablation, edit_words, in_force, seen, switched, with_edits, without_edit, words
from circuitlab.state.state import Compare, Pin, State

COMPARE: tuple[Compare, ...] = ("now", "reference", "difference")
MOST_PINS = 8
# field of `Conventions`, entry of the menu, value when checked and when not, tooltip
CONVENTIONS = (
    ("fold_norm", "Fold norms into the weights", True, False, "Gains and biases of norms are folded into the weights after them"),
    ("centre", "Centre what writes to the stream", True, False, "Means that a LayerNorm or the softmax removes are subtracted"),
    ("dtype", "Compute in float64", "float64", "float32", "Slower, for checking small numbers"),
)  # fmt: skip


class StateCommands(QObject):
    """Each method is one recorded step (or one burst of steps) of the document."""

    def __init__(self, context: AppContext, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.context = context

    def walk_heads(self, layers: int, heads: int) -> None:
        """Select the head `layers` and `heads` on from the leading one, wrapping around."""
        state, config = self.context.document.recorded, self.context.facts().config
        if not config.n_layers:
            return self._report_no_heads()
        lead = state.selection.head
        head = Head((lead.layer + layers) % config.n_layers, (lead.head + heads) % config.n_heads)
        self.context.apply(state.with_heads(head), f"head {head}", "walk heads")

    def select_layer(self) -> None:
        """Select all heads of the leading head's layer."""
        state, config = self.context.document.recorded, self.context.facts().config
        if not config.n_layers:
            return self._report_no_heads()
        lead = state.selection.head
        rest = tuple(Head(lead.layer, h) for h in range(config.n_heads) if h != lead.head)
        self.context.apply(state.with_heads(lead, *rest), "select layer")

    def _report_no_heads(self) -> None:
        self.context.readout.emit(WITHOUT_HEADS)

    def walk_tokens(self, step: int) -> None:
        """Make the token so many positions on the destination, and lock it."""
        state = self.context.document.recorded
        if not state.tokens:
            return
        last, destination = len(state.tokens) - 1, state.selection.destination
        position = min(max((last if destination is None else destination) + step, 0), last)
        self.context.apply(state.select(destination=position, locked=True), "walk tokens", "walk tokens")

    def release(self) -> None:
        """Release the locked token and the chosen edge."""
        state = self.context.document.recorded
        self.context.end_preview()
        self.context.apply(replace(state, selection=state.selection.released()), "release")

    @Slot()
    def pin(self) -> None:
        """Pin the present subject as the reference."""
        state = self.context.document.recorded
        text = state.text if len(state.text) <= 24 else f"…{state.text[-23:]}"
        label = f"“{text}”" if text else number_of(len(state.tokens), "token")
        final = ("final weights",) if self.context.facts(state.model).steps and state.model.checkpoint is None else ()
        self._pin(f"{', '.join((*self.context.name_parts(state.model), *final))} {label}", state.compare)
        self.context.message.emit("Pinned. Change anything, then compare (Ctrl+D).")

    def pin_to_compare(self, label: str) -> None:
        """Pin the present subject as the reference under a name; panels show the difference from it from now on."""
        self._pin(label, "difference")
        self.context.message.emit(f"Panels show the difference to {label} now; Ctrl+D shows now and the reference.")

    def _pin(self, label: str, compare: Compare) -> None:
        state = self.context.document.recorded
        edited = "".join(f", {word}" for word in edit_words(state.subject.edits))
        conventions = "".join(f", {word}" for word in state.conventions.unlike(Conventions(), self.context.config(state.model)))
        pin = Pin(f"{label}{edited}{conventions}", state.subject, state.selection, state.text)
        self.context.apply(replace(state, pins=(pin, *state.pins[: MOST_PINS - 1]), compare=compare), "pin")

    def unpin(self) -> None:
        """Remove every pin; while something is ablated, the reference is then the State without the ablation."""
        state = self.context.document.recorded
        self.context.apply(replace(state, pins=(), compare="now"), "unpin")

    def compare(self, chosen: Compare) -> None:
        """Have panels show now, the reference or the difference."""
        state = self.context.document.recorded
        self.context.apply(replace(state, compare=chosen), f"compare: {chosen}", "compare")

    def next_compare(self) -> None:
        """Have panels show the next of now, the reference and the difference."""
        state = self.context.document.recorded
        if state.reference is not None:
            self.compare(COMPARE[(COMPARE.index(state.compare) + 1) % 3])
        else:
            self.context.message.emit("Pin a reference first (Ctrl+P), or ablate something.")

    def convention(self, name: str, value: object) -> None:
        """Change one field of the conventions."""
        state = self.context.document.recorded
        changed = replace(state.conventions, **{name: value})  # type: ignore[arg-type]
        self.context.apply(replace(state, conventions=changed), f"conventions: {name.replace('_', ' ')}")

    def raw_or_folded(self) -> None:
        """Switch between the weights as the file has them and folded and centred ones."""
        state = self.context.document.recorded
        raw = state.conventions.fold_norm or state.conventions.centre
        changed = replace(state.conventions, fold_norm=not raw, centre=not raw)
        self.context.apply(replace(state, conventions=changed), f"conventions: {'raw' if raw else 'folded and centred'}")

    def ablate(self) -> None:
        """Zero-ablate the chosen heads; if all of them are ablated, restore them."""
        state = self.context.document.recorded
        if not self.context.facts().config.n_layers:
            return self._report_no_heads()
        ablations = [ablation(h) for h in state.selection.heads]
        names = " ".join(map(str, state.selection.heads))
        if in_force(state, ablations):
            self.context.apply(without_edit(state, *ablations), f"restore {names}")
        else:
            self.context.apply(with_edits(state, *ablations), f"ablate {names}")
            self._announce_reference(state)

    def accept_offer(self, state: State, label: str) -> None:
        """Record the state of a menu's offer."""
        before = self.context.document.recorded
        self.context.apply(state, label)
        self._announce_reference(before)

    def _announce_reference(self, before: State) -> None:
        """Report in the status line that the State without the ablation has become the reference, or that now is shown again."""
        state = self.context.document.recorded
        if before.reference is None and state.reference is not None:
            self.context.message.emit(
                "The run without the ablation (uncut) is the reference now: Ctrl+D shows before, after and the difference."
            )
        elif before.compare == "reference" and state.compare == "now" and state.reference is not None:
            self.context.message.emit(
                f"Panels showed {state.reference.label}, which this does not change; they show now. Ctrl+D shows the difference."
            )

    def switch(self, edit: Intervention, on: bool) -> None:
        """Switch an intervention on or off."""
        label, before = f"{'on' if on else 'off'}: {words(edit)}", self.context.document.recorded
        self.context.apply(switched(before, edit, on), label)
        if on:
            self._announce_reference(before)

    def switch_all(self, on: bool) -> None:
        """Switch every intervention on or off."""
        state = self.context.document.recorded
        changed = replace(state, edits=tuple((edit, on) for edit, _ in state.edits))
        self.context.apply(seen(changed) if on else changed, f"all interventions {'on' if on else 'off'}")
        if on:
            self._announce_reference(state)

    def remove(self, edit: Intervention) -> None:
        """Remove an intervention from the list."""
        self.context.apply(without_edit(self.context.document.recorded, edit), f"remove: {words(edit)}")

    def clear_edits(self) -> None:
        """Remove all interventions."""
        state = self.context.document.recorded
        self.context.apply(replace(state, edits=()), "remove interventions")
