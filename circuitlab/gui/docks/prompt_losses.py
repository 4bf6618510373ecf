"""The prompt as a strip of tokens, coloured by their losses, or by how these differ from the pin's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from circuitlab.analysis.behaviour.token_loss import TokenLossParams, TokenLossResult, token_loss
from circuitlab.counting import number_of
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.figures.contracts.common import pick_position
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.shared_scales import figured, scale_of
from circuitlab.figures.contracts.vocabulary import aligned_with_reference
from circuitlab.figures.marks import ColourMap, Figure, Hit, Tokens, empty
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.session.reference_names import reference_name
from circuitlab.session.state import State

Picture = tuple[np.ndarray, tuple[float, float], ColourMap, tuple[str, ...]]  # values, levels, map, caption


class LossStrip(QObject):
    """Asks for the losses of the document's prompt and draws them in `view`.

    `failed(words)`: why there are none; `drawn()`: the picture is another.
    """

    failed = Signal(str)
    drawn = Signal()

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self.view = FigureView(parent=parent)
        self.view.setWindowTitle("the prompt’s tokens")  # what it is called: its figure has no title of its own
        self._answer: Answer[TokenLossResult] | None = None
        self._asked: Request[TokenLossResult] | None = None
        self._before: Answer[TokenLossResult] | None = None
        self._asked_before: Request[TokenLossResult] | None = None
        self._lost: tuple[Request | None, Request | None] = None, None  # the last that failed: now, reference
        self._coloured: tuple[str, ...] = ()  # texts of the tokens that `_answer` is about
        self._texts: tuple[object, tuple[str, ...], tuple[str, ...]] = (None, (), ())
        self.slot = WorkSlot(self, answered=self._answered, failed=self._failed)
        self.reference_slot = WorkSlot(self, answered=self._reference_answered, failed=self._reference_failed)
        self._pictured: object = None  # what besides the model `_picture` is of
        self._picture: Picture = np.zeros(0), (0.0, 1.0), "loss", ()
        self._scales = HeldScales()
        context.scales_held.connect(self._scales_held)
        context.theme_changed.connect(self.view.set_theme)
        self.view.set_theme(context.theme)
        self.view.picked.connect(self._picked)
        self.view.hovered.connect(self._hovered)

    def refresh(self) -> None:
        """Ask for what the document says now, draw what is there."""
        state = self.context.document.state
        request = Request(token_loss, TokenLossParams(), state.subject)
        if not state.tokens:
            self._asked = self._answer = None
        elif request != self._asked:
            self._asked = request
            answer = self.context.runner.ask(self.slot, request)
            self._answer = answer or self._answer
        self._ask_before(state)
        self.draw()

    def _ask_before(self, state: State) -> None:
        """The losses of the reference, where they are compared."""
        pin = state.reference
        compared = pin is not None and state.compare != "now" and state.tokens and pin.subject.tokens
        request = Request(token_loss, TokenLossParams(), pin.subject) if compared and pin is not None else None
        if request != self._asked_before:
            self._asked_before = request
            self._before = None if request is None else self.context.runner.ask(self.reference_slot, request)

    @Slot(object)
    def _answered(self, answer: Answer[TokenLossResult]) -> None:
        if answer.request == self._asked:
            self._answer = answer
            self.draw()

    @Slot(object)
    def _reference_answered(self, answer: Answer[TokenLossResult]) -> None:
        if answer.request == self._asked_before:
            self._before = answer
            self.draw()

    @Slot(object)
    def _failed(self, error: BaseException) -> None:
        self._lost = self._asked, self._lost[1]
        if isinstance(error, CircuitLabError) and not isinstance(error, Cancelled):
            self.failed.emit(f"{error.what} {error.remedy}")
        self.draw()

    @Slot()
    def _reference_failed(self) -> None:
        self._lost = self._lost[0], self._asked_before
        self.draw()

    @property
    def waiting(self) -> bool:
        """Whether the losses of what is shown are still to come; those that failed will not."""
        answered = None if self._answer is None else self._answer.request
        answered_before = None if self._before is None else self._before.request
        awaited = self._asked not in (None, answered, self._lost[0])
        return awaited or self._asked_before not in (None, answered_before, self._lost[1])

    def draw(self) -> None:
        """Coloured where the losses of exactly these tokens are known; while others of them come, those of before stay."""
        state = self.context.document.state
        self.view.set_busy(self.waiting)
        if not state.tokens:
            self.view.show_figure(empty("The prompt is empty: type some text, or choose a sample."))
            return
        texts, tips = self._labels(state)
        of = texts, state.compare, state.pins, state.edits
        if not (self.waiting and state.compare != "now" and self._pictured == of):  # never of two points of a training
            result = self._shown(texts)
            self._pictured, self._picture = of, self._compared(state, result) or self._alone(len(texts), result)
        values, levels, colours, caption = self._picture
        row, locked = state.selection.destination, state.selection.locked
        mark = Tokens("prompt", texts, values, levels, colours, "nats", tips, row, locked)
        earlier = ("the prompt before what is typed now",) if state.draft else ()
        self.view.show_figure(self._held(Figure(((mark,),), "", (*earlier, *caption)), of))
        self.drawn.emit()

    def _held(self, figure: Figure, of: object) -> Figure:
        """On a scale that only grows, while a training is played or dragged through."""
        return self._scales.held(figure, of) if self.context.holds_scales else figure

    @Slot(bool)
    def _scales_held(self, on: bool) -> None:
        """What is seen is the first frame; at the end it stands on its own scale again."""
        self._scales.forget()
        self.draw()

    def _shown(self, texts: tuple[str, ...]) -> TokenLossResult | None:
        """The result that is asked for, or until it comes the one before, if that is of the same texts."""
        if self._answer is None:
            return None
        asked = self._answer.request == self._asked
        if asked:
            self._coloured = texts
        return self._answer.result if asked or (self.waiting and self._coloured == texts) else None

    def _alone(self, n: int, result: TokenLossResult | None) -> Picture:
        top = float(np.log(self.context.facts().config.d_vocab_out))
        values = np.full(n, np.nan, np.float32) if result is None else result.loss
        caption: tuple[str, ...] = ("colour: loss of each token in nats",)
        if result is not None and result.n_predicted:
            mean = f"mean {result.mean:.3f} nats over {number_of(result.n_predicted, 'token')}"
            caption = f"colour: loss of each token, 0 to {top:.1f} nats (uniform guess)", mean
        return values, (0.0, top), "loss", caption

    def _compared(self, state: State, now: TokenLossResult | None) -> Picture | None:
        """Losses of the reference, or how they changed: values, levels, map, caption; None while nothing is compared."""
        before, pin = None if self._before is None else self._before.result, state.reference
        if state.compare == "now" or pin is None or now is None or before is None:
            return None
        aligned = aligned_with_reference(state, self.context.facts(state.model))
        losses_before = np.where((aligned.align >= 0) & ~aligned.differs, before.loss[np.maximum(aligned.align, 0)], np.nan)
        same = () if aligned.whole else (f"{aligned.words}; only equal tokens are compared",)
        top, name = float(np.log(self.context.facts().config.d_vocab_out)), reference_name(state, pin, self.context.name_of)
        if state.compare == "reference":
            return losses_before, (0.0, top), "loss", (f"colour: loss in {name}, mean {before.mean:.3f} nats", *same)
        change = now.loss - losses_before
        top = scale_of(change, (0.0, top))
        colour = f"colour: change of loss, now minus {name}, ± {figured(top, 2)} nats: orange worse, blue better"
        mean = f"mean {_signed(now.mean - before.mean)} nats ({now.mean:.3f} − {before.mean:.3f})"
        return change, (-top, top), "signed", (colour, mean, *same)

    def _labels(self, state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Display texts and tooltips, the same objects while the tokens and the training are the same."""
        known = state.tokens, replace(state.model, checkpoint=None)  # other models may mean other words by the same ids
        if self._texts[0] != known:
            texts = self.context.facts().tokens(state.tokens)
            tips = tuple(f"position {i} · {t} · id {k}" for i, (t, k) in enumerate(zip(texts, state.tokens, strict=True)))
            self._texts = (known, texts, tips)
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


def _signed(value: float) -> str:
    """A change: with its sign, and not as zero where it is not."""
    return (f"{value:+.3f}" if abs(value) >= 0.0005 or not value else f"{value:+.2g}").replace("-", "−")
