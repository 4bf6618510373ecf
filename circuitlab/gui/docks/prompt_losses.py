"""The prompt as a strip of tokens, coloured by their losses, or by their difference from the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtWidgets import QWidget

from circuitlab.analysis.behaviour.token_loss import TokenLossParams, TokenLossResult, token_loss
from circuitlab.counting import before_and_after, number_of
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.figures.contracts.about import stored
from circuitlab.figures.contracts.common import pick_position
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.shared_scales import figured, scale_of
from circuitlab.figures.contracts.vocabulary import aligned_with_reference
from circuitlab.figures.marks import ColourMap, Figure, Hit, Tokens, empty, joined
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import ModelRef
from circuitlab.state.reference_names import reference_clause, reference_name
from circuitlab.state.state import State

Picture = tuple[np.ndarray, tuple[float, float], ColourMap, tuple[str, ...]]  # values, levels, map, caption


class LossStrip(QObject):
    """Requests the losses of the document's prompt and draws them in `view`.

    `failed(words)`: the losses could not be computed, and why; `figure_changed()`: the figure has been redrawn.
    """

    failed = Signal(str)
    figure_changed = Signal()
    _again = Signal()

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self.view = FigureView(parent=parent)
        self.view.setWindowTitle("the prompt’s tokens")  # its name: the figure has no title of its own
        self._answer: Answer[TokenLossResult] | None = None
        self._request: Request[TokenLossResult] | None = None
        self._reference_answer: Answer[TokenLossResult] | None = None
        self._reference_request: Request[TokenLossResult] | None = None
        self._failed_requests: tuple[Request | None, Request | None] = None, None  # the last ones, now and reference
        self._answer_texts: tuple[str, ...] = ()  # texts of the tokens of `_answer`
        self._texts: tuple[object, tuple[str, ...], tuple[str, ...]] = (None, (), ())
        self.slot = WorkSlot(self, answered=self._answered, failed=self._failed)
        self.reference_slot = WorkSlot(self, answered=self._reference_answered, failed=self._reference_failed)
        self._picture_key: object = None  # the texts and settings that `_picture` shows, of any step of a training
        self._picture: Picture = np.zeros(0), (0.0, 1.0), "loss", ()
        self._scales = HeldScales()
        context.scales_held.connect(self._scales_held)
        context.read_again.connect(self._read_again)
        self._again.connect(self._seen_again, Qt.ConnectionType.QueuedConnection)
        context.theme_changed.connect(self.view.set_theme)
        context.notes.changed.connect(self.draw)
        self.view.set_theme(context.theme)
        self.view.picked.connect(self._picked)
        self.view.hovered.connect(self._hovered)
        self.view.reread.connect(self.context.readout)

    def refresh(self) -> None:
        """Request the losses of the present State and draw those that are available."""
        state = self.context.document.state
        request = Request(token_loss, TokenLossParams(), state.subject)
        if not state.tokens:
            self._request = self._answer = None
        elif request != self._request:
            self._request = request
            answer = self.context.runner.ask(self.slot, request)
            self._answer = answer or self._answer
        self._ask_reference(state)
        self.draw()

    @Slot()
    def _read_again(self) -> None:
        """Ask once more at the next refresh: the answers are of weights that have been read again since."""
        self._request = self._answer = self._reference_request = self._reference_answer = None
        self._again.emit()

    @Slot()
    def _seen_again(self) -> None:
        if self._request is None and self.context.engine.store.peek(self.context.document.state.model) is not None:
            self.refresh()

    def _ask_reference(self, state: State) -> None:
        """Request the losses of the reference, where it is compared."""
        pin = state.reference
        compared = pin is not None and state.compare != "now" and state.tokens and pin.subject.tokens
        request = Request(token_loss, TokenLossParams(), pin.subject) if compared and pin is not None else None
        if request != self._reference_request:
            self._reference_request = request
            self._reference_answer = None if request is None else self.context.runner.ask(self.reference_slot, request)

    @Slot(object)
    def _answered(self, answer: Answer[TokenLossResult]) -> None:
        if answer.request == self._request and self.context.is_current(answer):
            self._answer = answer
            self.draw()

    @Slot(object)
    def _reference_answered(self, answer: Answer[TokenLossResult]) -> None:
        if answer.request == self._reference_request and self.context.is_current(answer):
            self._reference_answer = answer
            self.draw()

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        self._failed_requests = self._request, self._failed_requests[1]
        if isinstance(error, CircuitLabError) and not isinstance(error, Cancelled):
            self.failed.emit(f"{error.what} {error.remedy}")
        self.draw()

    @Slot()
    def _reference_failed(self) -> None:
        self._failed_requests = self._failed_requests[0], self._reference_request
        self.draw()

    @property
    def waiting(self) -> bool:
        """Whether losses are outstanding; those that failed are not."""
        now = None if self._answer is None else self._answer.request
        reference = None if self._reference_answer is None else self._reference_answer.request
        awaited = self._request not in (None, now, self._failed_requests[0])
        return awaited or self._reference_request not in (None, reference, self._failed_requests[1])

    @Slot()
    def draw(self) -> None:
        """Draw the tokens, coloured if the losses of exactly these tokens are available; older losses of them stay meanwhile."""
        state = self.context.document.state
        self.view.set_busy(self.waiting)
        if not state.tokens:
            self.view.show_figure(empty("The prompt is empty: type some text, or choose a sample."))
            return
        texts, tips = self._labels(state)
        key = texts, self._training, state.compare, state.pins, state.edits
        if not (self.waiting and state.compare != "now" and self._picture_key == key):  # never mix two training steps
            result = self._drawable_result(texts)
            self._picture_key, self._picture = key, self._compared(state, result) or self._alone(len(texts), result)
        values, levels, colours, caption = self._picture
        row, locked = state.selection.destination, state.selection.locked
        special = self.context.facts().special
        framed = tuple(i for i, token in enumerate(state.tokens) if token in special)
        mark = Tokens("prompt", texts, values, levels, colours, "nats", tips, row, locked, special=framed)
        earlier = ("the prompt before what is typed now",) if state.draft else ()
        figure = Figure(((mark,),), "", (*earlier, *caption))
        if np.isfinite(values).any():  # of an earlier prompt nothing is drawn
            figure = figure.with_caption(self._stored())
        self.view.show_figure(self._on_held_scales(figure, key))
        self.figure_changed.emit()

    def _stored(self) -> str:
        """For the caption: whether the losses were read from a session file."""
        sides = (("now", self._answer), ("ref", self._reference_answer))
        now, ref = ({} if answer is None else {side: answer} for side, answer in sides)
        return stored(now, ref)

    def _on_held_scales(self, figure: Figure, key: object) -> Figure:
        """The figure on a scale that only grows, while the training steps are played or dragged through."""
        return self._scales.held(figure, key) if self.context.holds_scales else figure

    @Slot(bool)
    def _scales_held(self, on: bool) -> None:
        """Begin with the present figure's scale; at the end return to the figure's own scale."""
        self._scales.forget()
        self.draw()

    def _drawable_result(self, texts: tuple[str, ...]) -> TokenLossResult | None:
        """The requested result; until it arrives the previous one, if that is of the same texts in the same training."""
        if self._answer is None:
            return None
        current = self._answer.request == self._request
        if current:
            self._answer_texts = texts
        trained = replace(self._answer.request.subject.model, checkpoint=None) == self._training
        return self._answer.result if current or (self.waiting and trained and self._answer_texts == texts) else None

    @property
    def _training(self) -> ModelRef:
        """The model at whichever of its steps."""
        return replace(self.context.document.state.model, checkpoint=None)

    def _alone(self, n: int, result: TokenLossResult | None) -> Picture:
        top = float(np.log(self.context.facts().config.d_vocab_out))
        values = np.full(n, np.nan, np.float32) if result is None else result.loss
        failed = result is None and not self.waiting
        caption: tuple[str, ...] = ("no colour: no losses were computed" if failed else "colour: loss of each token in nats",)
        if result is not None and result.n_predicted:
            mean = f"mean {result.mean:.3f} nats over {number_of(result.n_predicted, 'token')}"
            caption = f"colour: loss of each token, 0 to {top:.1f} nats (uniform guess)", mean
        return values, (0.0, top), "loss", caption

    def _compared(self, state: State, now: TokenLossResult | None) -> Picture | None:
        """The losses of the reference, or the change of loss, as a picture; None while nothing is compared."""
        before, pin = None if self._reference_answer is None else self._reference_answer.result, state.reference
        if state.compare == "now" or pin is None or now is None or before is None:
            return None
        aligned = aligned_with_reference(state, self.context.facts(state.model))
        losses_before = np.where((aligned.align >= 0) & ~aligned.differs, before.loss[np.maximum(aligned.align, 0)], np.nan)
        same = () if aligned.whole else (f"{aligned.words}; only equal tokens are compared",)
        config = self.context.facts().config
        top, name = float(np.log(config.d_vocab_out)), reference_name(state, pin, self.context.name_parts, config)
        what = reference_clause(state, pin, self.context.name_parts, config)
        if state.compare == "reference":
            over = "" if aligned.whole else f" over its {number_of(before.n_predicted, 'token')}"
            return losses_before, (0.0, top), "loss", (f"colour: loss in {name}, mean {before.mean:.3f} nats{over}", what, *same)
        change = now.loss - losses_before
        top = scale_of(change, (0.0, top))
        colour = f"colour: change of loss, now minus {name}, ± {figured(top, 2)} nats: orange worse, blue better"
        return change, (-top, top), "signed", (colour, _mean_change(now, losses_before, aligned.whole), what, *same)

    def _labels(self, state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(display texts, tooltips) of the tokens: the same objects while tokens and series are the same."""
        noted = self.context.notes.on_tokens(state.model)
        # the same ids may be other words in another model
        key = state.tokens, self._training, tuple(noted.items())
        if self._texts[0] != key:
            texts, special = self.context.facts().tokens(state.tokens), self.context.facts().special
            tips = tuple(
                joined(f"position {i} · {t} · id {k}{' · special token' if k in special else ''}", noted.get(k, ""))
                for i, (t, k) in enumerate(zip(texts, state.tokens, strict=True))
            )
            self._texts = (key, texts, tips)
        return self._texts[1], self._texts[2]

    @Slot(object)
    def _picked(self, hit: Hit) -> None:
        self.context.apply(pick_position(self.context.document.recorded, hit), "select a token")

    @Slot(object, str)
    def _hovered(self, hit: Hit, readout: str) -> None:
        self.context.readout.emit(readout)
        if hit.gesture == "leave":
            self.context.end_preview()
        else:
            self.context.preview(pick_position(self.context.document.recorded, hit))


def _mean_change(now: TokenLossResult, losses_before: np.ndarray, whole: bool) -> str:
    """The mean change of loss over the tokens that are compared: those of both prompts whose losses are drawn."""
    compared = np.isfinite(now.loss) & np.isfinite(losses_before)
    if not compared.any():
        return "no token can be compared"
    mean, mean_before = (float(losses[compared].mean(dtype=np.float64)) for losses in (now.loss, losses_before))
    over = "" if whole else f" over {number_of(int(compared.sum()), 'compared token')}"
    before, after, change = before_and_after(mean_before, mean)
    return f"mean {change} nats ({after} − {before}){over}"
