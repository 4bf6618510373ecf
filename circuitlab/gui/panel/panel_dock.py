"""The dock of a registered panel: its controls, its figure, gestures on it, and the actions of its menu."""

from __future__ import annotations

import logging
from dataclasses import fields, replace

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDockWidget, QVBoxLayout, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.engine import needs
from circuitlab.engine.request import Answer
from circuitlab.errors import LONGEST, CircuitLabError, bounded, reason
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.panel import Panel
from circuitlab.figures.marks import Figure, Hit, empty, joined
from circuitlab.gui.panel.controls import Controls
from circuitlab.gui.panel.exchange import Exchange
from circuitlab.gui.panel.panel_actions import PanelActions
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.panel.token_search import TokenSearch
from circuitlab.gui.widgets.room import Room
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.model.subject import Conventions
from circuitlab.session.gestures import pointed_at, without_stale_positions
from circuitlab.session.state import State
from circuitlab.session_files.session import Note

log = logging.getLogger("circuitlab.panel")
# The bar states these for all panels; any other convention is captioned under the panels it affects.
USUAL_CONVENTIONS = Conventions().words()


def on_screen(dock: QDockWidget) -> bool:
    """Whether a dock can be seen. Qt counts one behind a tab as visible, but gives it no visible region."""
    return dock.isVisible() and not dock.visibleRegion().isEmpty()


class PanelDock(QDockWidget):
    """The dock of one panel. While it is hidden it sends no requests. `opens(name)`: bring that panel to the front."""

    opens = Signal(str)

    def __init__(self, panel: Panel, context: AppContext, state_commands: StateCommands, parent: QWidget | None = None) -> None:
        super().__init__(panel.title, parent)
        self.panel, self.context, self.state_commands = panel, context, state_commands
        self.setObjectName(f"dock.{panel.name}")
        self.setAllowedAreas(Qt.DockWidgetArea.AllDockWidgetAreas)
        self.view = FigureView(parent=self)
        self.controls = Controls(panel.view, self, wraps=panel.writes is not None)
        self.exchange = Exchange(panel, context, self)
        self._figure_state: State | None = None  # the State of the figure on the screen
        self._scales = HeldScales()
        self._stale = True
        self.quiet = False  # set while docks are rearranged, so that one that is visible for a moment sends no requests
        self.actions_menu = PanelActions(self, self)
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        if self.panel.searches_tokens:
            self.search = TokenSearch(self.context, self.controls)
            self.search.chosen.connect(self._token_chosen)
            self.controls.layout().addWidget(self.search)  # type: ignore[union-attr]
        if self.panel.writes is None:
            self.setWidget(Room(self.view, self))
            self.bar = TitleBar(self, self.context, self.controls, self.actions_menu)
            return
        body = QWidget(self)  # a panel that writes to the State shows all its controls, above the figure
        box = QVBoxLayout(body)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        self.controls.setContentsMargins(4, 0, 4, 0)
        box.addWidget(self.controls)
        box.addWidget(Room(self.view, body), 1)
        self.setWidget(body)
        self.bar = TitleBar(self, self.context, None, self.actions_menu)

    def _connect(self) -> None:
        context = self.context
        context.document.changed.connect(self._changed)
        context.theme_changed.connect(self.view.set_theme)
        context.scales_held.connect(self._scales_held)
        context.notes.changed.connect(self._notes_changed)
        self.exchange.changed.connect(self._draw_or_defer)
        self.controls.changed.connect(self._controls_changed)
        self.view.picked.connect(self._picked)
        self.view.hovered.connect(self._hovered)
        self.context.loader.waiting_changed.connect(self._loading_changed)
        self.view.context_requested.connect(self._open_menu)
        self.visibilityChanged.connect(self._visibility_changed)
        self.view.set_theme(context.theme)

    @property
    def shown(self) -> bool:
        """Whether it is on the screen and not behind a tab."""
        return on_screen(self)

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        self._stale = True
        if self.shown:
            self.refresh()

    @Slot(bool)
    def _visibility_changed(self, visible: bool) -> None:
        if visible and self._stale and not self.quiet:
            self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        """Refresh when it is shown for the first time, or after a change while it was hidden."""
        super().showEvent(event)
        if self._stale and self.shown and not self.quiet:
            self.refresh()

    def take_keyboard(self) -> None:
        """Give the figure the keyboard focus, not the controls."""
        self.view.take_keyboard()

    def refresh(self) -> None:
        """Send the requests of the present State and draw the answers that are available."""
        self._stale = False
        state = self.context.document.state
        if self.context.engine.store.peek(state.model) is None:
            self.view.set_busy(True)  # the model is being reopened; the figure stays on the screen until then
            return
        self.controls.show_view(self.panel.controls(state), self.context.facts())
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

    @Slot()
    def _notes_changed(self) -> None:
        """Mark the heads that are noted now; the title and the menu's button show a note on the panel itself."""
        note = self.context.notes.find(Note("", panel=self.panel.name))
        self.bar.show_note("" if note is None else f"your note: {note.text}")
        self._draw_or_defer()

    @Slot()
    def _draw_or_defer(self) -> None:
        """Draw the answer that has come, or another note: now if the panel is on the screen, otherwise when it is shown."""
        if self.shown and not self._stale:
            self.draw()
        else:
            self._stale = True

    def figure(self) -> Figure:
        """The figure of the newest complete answers, drawn for the State they answer."""
        failure = self.exchange.failure
        if failure is not None:
            return empty(bounded(f"{reason(failure)} {failure.remedy}", 2 * LONGEST), self.panel.title)
        state, now, ref = self.exchange.drawable()
        self._figure_state = state
        figure = self.panel.figure(state, self.context.facts(state.model), now, ref)
        missing = dict.fromkeys(f"not computed: {bounded(reason(error), LONGEST)}" for error in self.exchange.failures.values())
        return figure.with_caption(*missing, *self._stand_ins(state)) if figure.grid else figure

    def _stand_ins(self, state: State) -> tuple[str, ...]:
        """For the caption: which of the models in use are not those of the session."""
        used = {replace(pin.subject.model if pin else state.model, checkpoint=None) for pin in (None, state.reference)}
        names = (name for ref, name in self.context.stand_ins.items() if ref in used)
        return tuple(Essential(f"not the model of this session: {name}") for name in names)

    def drawn_answers(self) -> dict[str, dict[str, Answer]]:
        """The answers that the figure shows, by side ("now", "ref") and role."""
        _, now, ref = self.exchange.drawable()
        return {"now": now, "ref": ref}

    def _with_prompt_note(self, figure: Figure) -> Figure:
        """Add "earlier prompt" to the title while the editor holds a draft with other tokens."""
        requests = [request for side in self.exchange.requests.values() for request in side.values()]
        about_text = any(needs(r.analysis, r.params) == "tokens" for r in requests)
        if not (self.context.document.state.draft and about_text and figure.grid):
            return figure
        return replace(figure, title=joined(figure.title, "earlier prompt"))

    def draw(self) -> None:
        """Show the figure; the old one stays, dimmed, until there is something new to show."""
        awaited, exchange = self.waiting, self.exchange
        if exchange.newest_complete() is not None or exchange.failure is not None or not self.view.figure.grid:
            try:
                self.view.say_once(USUAL_CONVENTIONS)
                self.view.show_figure(self._on_held_scales(self._with_prompt_note(self.figure())))
            except Exception as error:  # a bug in one figure must not crash the window
                log.exception("%s could not be drawn", self.panel.name)
                self.view.show_figure(
                    empty(f"This figure could not be drawn: {reason(error)}. The Log has the details.", self.panel.title)
                )
        self.view.set_busy(awaited or self.context.loader.waiting)

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
        if on and self.shown and not self._stale:
            self._on_held_scales(self.view.figure)
        elif not on:
            self._draw_or_defer()

    @Slot()
    def _loading_changed(self) -> None:
        """Dim the figure while a model is being opened."""
        busy = self.context.loader.waiting or self.waiting
        if not busy or self.shown:
            self.view.set_busy(busy)

    @Slot(object)
    def _controls_changed(self, view: object) -> None:
        context, before = self.context, self.context.target_state
        try:
            state = self.panel.controlled(before, view)
        except CircuitLabError as error:  # an impossible value is taken back, and the status line gives the reason
            self.controls.show_view(self.panel.controls(before), context.facts())
            context.message.emit(" · ".join(w for w in (error.what, error.expected, error.remedy) if w))
            return
        view_before = self.panel.controls(before)
        changes = [f.name for f in fields(view_before) if getattr(view, f.name) != getattr(view_before, f.name)]
        burst = ".".join(("view", self.panel.name, *changes, str(self.controls.burst)))
        context.show(state, f"{self.panel.title}: {', '.join(changes)}".replace("_", " "), burst)

    def pick(self, state: State, hit: Hit) -> State:
        """The State after a gesture on the figure, which may show an earlier prompt."""
        return without_stale_positions(self._figure_state, state, self.panel.pick(state, hit))

    @Slot(object)
    def _picked(self, hit: Hit) -> None:
        before, pick = self.context.target_state, lambda state: self.pick(state, hit)
        # the first click of a double-click has already selected the item
        state = pointed_at(before, pick) if hit.gesture == "double-click" else pick(before)
        if state is not before:
            self.context.show(state, f"select in {self.panel.title}")
        if hit.gesture == "double-click":
            self.open_linked_panel()

    @Slot(int)
    def _token_chosen(self, token: int) -> None:
        self._picked(Hit("search", (token,)))

    @Slot(object, str)
    def _hovered(self, hit: Hit, readout: str) -> None:
        self.context.readout.emit(readout)
        recorded = self.context.document.recorded
        if hit.gesture == "leave":
            self.context.end_preview()
        elif (state := self.pick(recorded, hit)).model == recorded.model:  # changing the model takes a click
            self.context.preview(state)

    @Slot(object, QPoint)
    def _open_menu(self, hit: Hit | None, where: QPoint) -> None:
        self.actions_menu.aim(hit)
        self.actions_menu.popup(where)

    def open_linked_panel(self) -> bool:
        """Bring the panel to the front that a double-click on an item leads to; False where there is none."""
        if self.panel.opens:
            self.opens.emit(self.panel.opens)
        return bool(self.panel.opens)
