"""The feed of a figure view: the requests of a panel, its answers and failures, its figure, and gestures on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, Signal, Slot

from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.request import Answer, TableOf, needs
from circuitlab.errors import LONGEST, bounded, reason
from circuitlab.figures.contracts.about import name_and_weights
from circuitlab.figures.contracts.compare import titles_beside
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.panel import Panel
from circuitlab.figures.marks import Figure, Hit, empty, joined
from circuitlab.figures.marks.title import with_parts
from circuitlab.gui.panel.exchange import Exchange
from circuitlab.gui.panel.panel_zoom import PanelZoom
from circuitlab.gui.work.app_context import AppContext
from circuitlab.model.subject import CENTRED, Conventions, ModelRef
from circuitlab.session_files.picture_view import PictureView
from circuitlab.state.gestures import pointed_at, without_stale_positions
from circuitlab.state.state import State
from circuitlab.story.zoom import Part

log = logging.getLogger("circuitlab.panel")
# The bar states these for all panels; any other convention is captioned under the panels it affects.
USUAL_CONVENTIONS = (*Conventions().words(None), *(word for exact, word in CENTRED.items() if any(exact)))


def show_in(view: FigureView, figure: Figure, titles: tuple[str, ...] | None) -> None:
    """Show a figure with the words and the room that it has in the window and on the stage.

    `titles`: what it is called on the sides of a reference, None without one: each keeps its room.
    """
    view.say_once(USUAL_CONVENTIONS)
    view.keep_room(titles)
    view.show_figure(figure)


class Feed(QObject):
    """Shows a panel in a view, for the document of one context: a dock of the window, or a view of the stage.

    `shown()`: whether the view can be seen; while it cannot, nothing is requested. `refreshing(State)`: the requests of this
    State are about to be sent. `opens(name)`: a double-click leads to this panel. `drawn()`: a figure is in the view, the same or
    another.
    """

    refreshing = Signal(object)
    opens = Signal(str)
    drawn = Signal()
    _again = Signal()

    def __init__(self, panel: Panel, context: AppContext, view: FigureView, shown: Callable[[], bool], parent: QObject) -> None:
        super().__init__(parent)
        self.panel, self.context, self.view, self._shown = panel, context, view, shown
        self.exchange = Exchange(panel, context, shown, self)
        self.zoom = PanelZoom(panel.title, view, context, lambda: self._up_to_date, self)
        self.stale = True  # what is drawn is not of the present State
        self.quiet = False  # set while views are rearranged, so that one that is visible for a moment sends no requests
        self._figure_state: State | None = None  # the State of the figure on the screen
        self._scales = HeldScales()
        context.document.changed.connect(self._changed)
        context.theme_changed.connect(view.set_theme)
        context.scales_held.connect(self._scales_held)
        context.read_again.connect(self._read_again)
        context.reopened.connect(self._seen_again)
        self._again.connect(self._seen_again, Qt.ConnectionType.QueuedConnection)
        context.notes.changed.connect(self._draw_or_defer)
        context.files.changed.connect(self._draw_or_defer)
        context.loader.waiting_changed.connect(self._loading_changed)
        self.exchange.changed.connect(self._draw_or_defer)
        view.picked.connect(self.picked)
        view.hovered.connect(self._hovered)
        view.reread.connect(context.readout)
        view.set_theme(context.theme)

    # -- requests -----------------------------------------------------------------------------------------------------

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        self.stale = True
        if self._shown():
            self.refresh()

    @Slot()
    def _read_again(self) -> None:
        """The answers may be of other weights; they are asked for anew, once whoever has read the model has shown it."""
        self.exchange.forget()
        self.stale = True
        self._again.emit()

    @Slot()
    def _seen_again(self) -> None:
        if self.stale and self._shown() and not self.quiet:
            self.refresh()

    def catch_up(self) -> None:
        """The view has come to the front: refresh it after a change meanwhile, unless views are still rearranged."""
        if self.stale and not self.quiet:
            self.refresh()

    def hush(self, quiet: bool) -> None:
        """While views are rearranged send no requests; then catch up with what has changed meanwhile."""
        self.quiet = quiet
        if self._shown():
            self.catch_up()

    def refresh(self) -> None:
        """Send the requests of the present State and draw the answers that are available."""
        self.stale = False
        state = self.context.document.state
        if self.context.engine.store.peek(state.model) is None:
            self.stale = True
            self._set_busy(True)  # the figure stays on the screen until the model is open again
            self.context.reopen()
            return
        self.refreshing.emit(state)
        self.exchange.send(state)
        self.draw()

    def ask_again(self) -> None:
        """Send all requests once more: those that failed or were cancelled may succeed now."""
        self.exchange.forget_requests()
        self.refresh()

    @property
    def waiting(self) -> bool:
        """Whether an answer to a present request is still outstanding."""
        return self.exchange.waiting

    # -- the figure ---------------------------------------------------------------------------------------------------

    @Slot()
    def _draw_or_defer(self) -> None:
        """Draw the answer that has come, or another note: now if the view can be seen, otherwise when it is shown."""
        if self._shown() and not self.stale:
            self.draw()
        else:
            self.stale = True

    def figure(self) -> Figure:
        """The figure of the newest complete answers, drawn for the State they answer."""
        return self._figure_and_state()[0]

    def _figure_and_state(self) -> tuple[Figure, State]:
        failure = self.exchange.failure
        if failure is not None:
            state = self.exchange.state or self.context.document.state
            return empty(bounded(f"{reason(failure)} {failure.remedy}", 2 * LONGEST), self.panel.title), state
        asked, now, ref = self.exchange.drawable()
        state = asked.now.state
        figure = self.panel.figure(state, self.context.facts(state.model), now, ref, asked)
        missing = dict.fromkeys(f"not computed: {bounded(reason(error), LONGEST)}" for error in self.exchange.failures.values())
        return figure.with_caption(*missing, *self.context.remarks_on(state)) if figure.grid else figure, state

    @property
    def model(self) -> ModelRef:
        """The model of the figure on the screen, the present one before there is any."""
        return (self._figure_state or self.context.document.state).model

    def picture_view(self, seen: Mapping[str, Part]) -> PictureView | None:
        """What the figure on the screen shows, of which these parts are seen; None before there is one."""
        state = self._figure_state
        return None if state is None else PictureView(state, self.panel.name, seen)

    def drawn_answers(self) -> dict[str, dict[str, Answer]]:
        """The answers that the figure shows, by side ("now", "ref") and role."""
        _, now, ref = self.exchange.drawable()
        return {"now": now, "ref": ref}

    def drawn_table(self) -> TableOf | None:
        """The table of an answer of which the figure shows a part; None where answers' own tables are shown."""
        asked, _, _ = self.exchange.drawable()
        return self.panel.drawn_table(asked.now.state)

    def _with_prompt_note(self, figure: Figure) -> Figure:
        """Add "earlier prompt" to the title while the editor holds a draft with other tokens."""
        requests = [request for side in self.exchange.requests.values() for request in side.values()]
        about_text = any(needs(r.analysis, r.params) == "tokens" for r in requests)
        if not (self.context.document.state.draft and about_text and figure.grid):
            return figure
        return replace(figure, title=with_parts(figure.title, note="earlier prompt"))

    def draw(self) -> None:
        """Show the figure; the old one stays, dimmed, until there is something new to show."""
        awaited, exchange = self.waiting, self.exchange
        if exchange.newest_complete() is not None or exchange.failure is not None or not self.view.figure.grid:
            try:
                figure, state = self._figure_and_state()
                if figure.grid or figure.why_empty or not self.view.figure.grid:  # else the old one stays on the screen
                    self._figure_state = state
                figure = self._on_held_scales(self._with_prompt_note(figure))
                show_in(self.view, figure, self._titles_beside_reference(figure.title))
            except Exception as error:  # a bug in one figure must not crash the window
                log.exception("%s could not be drawn", self.panel.name)
                self.view.show_figure(
                    empty(f"This figure could not be drawn: {reason(error)}. The Log has the details.", self.panel.title)
                )
        self._set_busy(awaited or self.context.loader.waiting)
        self.zoom.drawn()
        self.drawn.emit()

    @property
    def _up_to_date(self) -> bool:
        """Whether the figure on the screen is that of the present State, with every answer to it."""
        context, waits = self.context, self.waiting or self.context.loader.waiting
        return self._shown() and not self.stale and not waits and self.exchange.state == context.document.state

    def _titles_beside_reference(self, title: str) -> tuple[str, ...] | None:
        """The titles that comparing gives the figure; None without a reference."""
        state, requests = self._figure_state, self.exchange.requests
        same = requests["now"] == requests["ref"]
        return None if state is None else titles_beside(title, state, self.context.facts(state.model), same)

    def _on_held_scales(self, figure: Figure) -> Figure:
        """The figure on scales that only grow, while scales are held and only the training step changes."""
        state = self._figure_state
        if not self.context.holds_scales or state is None:
            return figure
        fixed = self.panel.controls(state), state.compare, state.pins, state.selection.heads, state.tokens, state.edits
        return self._scales.held(figure, fixed)

    @Slot(bool)
    def _scales_held(self, on: bool) -> None:
        """Begin with the scale of the figure on the screen; at the end return to the figure's own scale."""
        self._scales.forget()
        self.view.hold_ranges(on)
        if on and self._shown() and not self.stale:
            self._on_held_scales(self.view.figure)
        elif not on:
            self._draw_or_defer()

    @Slot()
    def _loading_changed(self) -> None:
        """Dim the figure while a model is being opened."""
        busy = self.context.loader.waiting or self.waiting
        if not busy or self._shown():
            self._set_busy(busy)

    def _set_busy(self, busy: bool) -> None:
        """Dim the figure, or no longer; of another model than the present one it says which."""
        drawn = self._figure_state
        if not busy or drawn is None or drawn.model == self.context.document.state.model or not self.view.figure.grid:
            self.view.set_busy(busy)
            return
        self.view.set_busy(True, still_of=joined(*name_and_weights(drawn, self.context.facts_if_open(drawn.model))))

    # -- gestures -----------------------------------------------------------------------------------------------------

    def pick(self, state: State, hit: Hit) -> State:
        """The State after a gesture on the figure, which may show an earlier prompt."""
        picked = without_stale_positions(self._figure_state, state, self.panel.pick(state, hit))
        return picked if picked.text or picked.tokens == state.tokens else self._worded(picked)

    def _worded(self, state: State) -> State:
        """The state with the text of its tokens, where that text has these tokens."""
        tokenizer = self.context.tokenizer()
        if tokenizer is None:
            return state
        text = tokenizer.text_of(state.tokens, *state.reading)
        return state.with_text(text, state.tokens) if text else state

    @Slot(object)
    def picked(self, hit: Hit) -> None:
        """Record what a gesture chooses, and say what it could not; a double-click leads to the linked panel."""
        before, pick = self.context.target_state, lambda state: self.pick(state, hit)
        # the first click of a double-click has already selected the item
        state = pointed_at(before, pick) if hit.gesture == "double-click" else pick(before)
        if state is not before:
            self.context.show(state, f"select in {self.panel.title}")
        if words := self.panel.why_not(before, hit):
            self.context.message.emit(words)
        if hit.gesture == "double-click":
            self.open_linked_panel()

    @Slot(object, str)
    def _hovered(self, hit: Hit, readout: str) -> None:
        self.context.readout.emit(readout)
        recorded = self.context.document.recorded
        if hit.gesture == "leave":
            self.context.end_preview()
        elif (state := self.pick(recorded, hit)).model == recorded.model:  # changing the model takes a click
            self.context.preview(state)

    def open_linked_panel(self) -> bool:
        """Ask for the panel that a double-click on an item leads to; False where there is none."""
        if name := self.panel.leads_to(self.context.target_state):
            self.opens.emit(name)
        return bool(name)
