"""The dock of a registered panel: its controls and figure, the requests behind them, and the actions of its menu."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields, replace

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDockWidget, QMenu, QVBoxLayout, QWidget

from circuitlab.caption_parts import Essential
from circuitlab.draw.view.figure_view import FigureView
from circuitlab.engine.engine import needs
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import LONGEST, Cancelled, CircuitLabError, bounded, reason
from circuitlab.figures.contracts.held_scales import HeldScales
from circuitlab.figures.contracts.panel import Panel, Why
from circuitlab.figures.contracts.vocabulary import pinned
from circuitlab.figures.marks import Figure, Hit, empty, joined
from circuitlab.gui.panel.controls import Controls
from circuitlab.gui.panel.panel_actions import PanelActions
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.panel.token_search import TokenSearch
from circuitlab.gui.widgets.room import Room
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import StateCommands
from circuitlab.gui.work.work_slot import WorkSlot, WorkSlots
from circuitlab.model.subject import Conventions
from circuitlab.session.gestures import pointed_at, without_stale_positions
from circuitlab.session.state import State

log = logging.getLogger("circuitlab.panel")
RETRY = "To retry, choose Compute again in this panel’s menu (⋯)."
USUAL = (
    Conventions().words()
)  # the bar states these for all panels; any other convention is captioned under the panels it affects
REMEMBERED_REQUESTS = 64  # how many requests a dock remembers with the State they came from


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
        self.answers: dict[str, dict[str, Answer]] = {"now": {}, "ref": {}}
        self.requests: dict[str, dict[str, Request]] = {"now": {}, "ref": {}}
        self._failures: dict[tuple[str, str], CircuitLabError] = {}  # by side and role: these will get no answer
        self._state: State | None = None  # the State that `requests` come from; the document may have moved on since
        self._state_of_request: OrderedDict[Request, State] = OrderedDict()  # the State that each recent request came from
        self._figure_state: State | None = None  # the State of the figure on the screen
        self._slots = WorkSlots(self, context.runner.is_busy, answered=self._answered, failed=self._failed)  # by side and role
        self._scales = HeldScales()
        self._stale = True
        self.quiet = False  # set while docks are rearranged: one that flashes up sends no requests
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
        self.controls.changed.connect(self._controlled)
        self.view.picked.connect(self._picked)
        self.view.hovered.connect(self._hovered)
        self.context.loader.waiting_changed.connect(self._loading_changed)
        self.view.context_requested.connect(self._context)
        self.visibilityChanged.connect(self._visible)
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
    def _visible(self, visible: bool) -> None:
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
        self._state = state
        self._ask("now", state)
        self._remember(state)
        if (before := self._pinned(state)) is not None:  # even while only now is shown, so that both sides share one scale
            self._ask("ref", before)
        else:
            self.requests["ref"], self.answers["ref"] = {}, {}
        self._failures = {(side, role): e for (side, role), e in self._failures.items() if role in self.requests[side]}
        self._let_go_of_slots()
        self.draw()

    def _pinned(self, state: State) -> State | None:
        """The State of the reference; None without a reference, and where the reference has no counterpart to compare."""
        reference = "" if state.reference is None else pinned(state, self.context.facts(state.model))
        return None if isinstance(reference, str) else reference

    def _ask(self, side: str, state: State) -> None:
        """Send the requests that are new on one side. A failure stays until its role gets another request."""
        requests, before = self._requests_of(state), self.requests[side]
        self.requests[side] = requests
        self.answers[side] = {r: a for r, a in self.answers[side].items() if r in requests}
        new = {role: request for role, request in requests.items() if before.get(role) != request}
        for role, request in new.items():
            self._failures.pop((side, role), None)
            answer = self.context.runner.ask(self.slot(side, role), request)
            if answer is not None:
                self.answers[side][role] = answer

    def slot(self, side: str, role: str) -> WorkSlot:
        """The slot in which the runner answers one role of one side."""
        return self._slots[side, role]

    def _let_go_of_slots(self) -> None:
        """Of roles that nobody asks for any more, once nothing runs for them."""
        self._slots.keep_only([(side, role) for side, roles in self.requests.items() for role in roles])

    def _remember(self, state: State) -> None:
        for request in self.requests["now"].values():
            self._state_of_request[request.asked] = state
            self._state_of_request.move_to_end(request.asked)
        while len(self._state_of_request) > REMEMBERED_REQUESTS:
            self._state_of_request.popitem(last=False)

    def ask_again(self) -> None:
        """Send all requests once more: those that failed or were cancelled may succeed now."""
        self.requests, self._failures = {"now": {}, "ref": {}}, {}
        self.refresh()

    @property
    def _failure(self) -> CircuitLabError | None:
        """The error that leaves nothing to draw; None where the other answers can be drawn without the failed ones."""
        compared = self._state is not None and self._state.compare != "now"
        for side in ("now", "ref") if compared else ("now",):
            roles = self.requests[side]
            failed = {role: error for (of, role), error in self._failures.items() if of == side}
            if failed and not self.panel.draws_with(roles, roles.keys() - failed.keys()):
                needed = (e for role, e in failed.items() if not self.panel.draws_with(roles, roles.keys() - {role}))
                return next(needed, next(iter(failed.values())))
        return None

    @property
    def waiting(self) -> bool:
        """Whether an answer to a present request is still outstanding."""
        return any(not self._settled(side) for side in ("now", "ref"))

    def _settled(self, side: str) -> bool:
        answers, failed = self.answers[side], self._failures
        complete = lambda role, request: (
            role in answers and answers[role].request.asked == request.asked and answers[role].complete
        )
        return all((side, role) in failed or complete(role, request) for role, request in self.requests[side].items())

    @Slot(object, object)
    def _answered(self, answer: Answer, place: tuple[str, str]) -> None:
        side, role = place
        request = self.requests.get(side, {}).get(role)
        if request is None:  # this role is no longer requested
            return self._let_go_of_slots()
        held = self.answers[side].get(role)
        if request.asked != answer.request.asked and held is not None and held.request.asked == request.asked:
            return  # a late answer never replaces the present one
        self.answers[side][role] = answer
        if request.asked == answer.request.asked:
            self._failures.pop((side, role), None)
        self._draw_or_defer()

    def _draw_or_defer(self) -> None:
        """Draw the answer that came: now if the panel is on the screen, otherwise when it is shown."""
        if self.shown and not self._stale:
            self.draw()
        else:
            self._stale = True

    @Slot(object, object)
    def _failed(self, error: BaseException, place: tuple[str, str]) -> None:
        side, role = place
        if role not in self.requests.get(side, {}):
            return self._let_go_of_slots()  # this role is no longer requested
        if isinstance(error, Cancelled):
            error = CircuitLabError("Cancelled.", remedy=RETRY)
        self._failures[side, role] = error if isinstance(error, CircuitLabError) else _panel_error(error)
        if isinstance(error, Exception) and not isinstance(error, CircuitLabError):
            self.context.failed.emit(error)
        self._draw_or_defer()

    def figure(self) -> Figure:
        """The figure of the newest complete answers, drawn for the State they answer."""
        if self._failure is not None:
            return empty(bounded(f"{reason(self._failure)} {self._failure.remedy}", 2 * LONGEST), self.panel.title)
        state, now, ref = self._figure_inputs()
        self._figure_state = state
        figure = self.panel.figure(state, self.context.facts(state.model), now, ref)
        missing = dict.fromkeys(f"not computed: {bounded(reason(error), LONGEST)}" for error in self._failures.values())
        return figure.with_caption(*missing, *self._stand_ins(state)) if figure.grid else figure

    def _stand_ins(self, state: State) -> tuple[str, ...]:
        """For the caption: which of the models in use are not those of the session."""
        used = {replace(pin.subject.model if pin else state.model, checkpoint=None) for pin in (None, state.reference)}
        names = (name for ref, name in self.context.stand_ins.items() if ref in used)
        return tuple(Essential(f"not the model of this session: {name}") for name in names)

    def _figure_inputs(self) -> tuple[State, dict[str, Answer], dict[str, Answer]]:
        state = self._state or self.context.document.state
        return self._newest_complete() or (state, *self._answers_to(state))

    def drawn_answers(self) -> dict[str, dict[str, Answer]]:
        """The answers that the figure shows, by side ("now", "ref") and role."""
        _, now, ref = self._figure_inputs()
        return {"now": now, "ref": ref}

    def _with_prompt_note(self, figure: Figure) -> Figure:
        """Add "earlier prompt" to the title while the editor holds a draft with other tokens."""
        requests = [request for side in self.requests.values() for request in side.values()]
        about_text = any(needs(r.analysis, r.params) == "tokens" for r in requests)
        if not (self.context.document.state.draft and about_text and figure.grid):
            return figure
        return replace(figure, title=joined(figure.title, "earlier prompt"))

    def _newest_complete(self) -> tuple[State, dict[str, Answer], dict[str, Answer]] | None:
        """The newest State whose live requests are all answered, with its answers (now, reference); None if there is none.

        That is the present State, or the one of the newest answer: during a drag each answer is outdated by a newer
        request, and is drawn all the same, for the State it answers.
        """
        age = {request: i for i, request in enumerate(self._state_of_request)}
        newest = max(self.answers["now"].values(), key=lambda a: age.get(a.request.asked, -1), default=None)
        older = None if newest is None else self._state_of_request.get(newest.request.asked)
        for state in (self._state, older):
            if state is None or self._state is None or state.model != self._state.model:
                continue
            answers = self._answers_to(state)
            if all(role in side for side, roles in zip(answers, self._live_roles(state), strict=True) for role in roles):
                return state, *answers
        return None

    def _requests_by_side(self, state: State) -> tuple[dict[str, Request], dict[str, Request]]:
        """The requests of a State (now, reference), by role."""
        if state is self._state:
            return self.requests["now"], self.requests["ref"]
        before = self._pinned(state)
        return self._requests_of(state), {} if before is None else self._requests_of(before)

    def _requests_of(self, state: State) -> dict[str, Request]:
        requests = self.panel.requests(state, self.context.facts(state.model))
        return {} if isinstance(requests, Why) else dict(requests)

    def _live_roles(self, state: State) -> list[list[str]]:
        """The roles (now, reference) that a figure waits for: those answered on the live lane; the reference's while compared."""
        sides = self._requests_by_side(state) if state.compare != "now" else (self._requests_by_side(state)[0], {})
        return [
            [role for role, r in requests.items() if r.analysis.lane == "live" and (side, role) not in self._failures]
            for side, requests in zip(("now", "ref"), sides, strict=True)
        ]

    def _answers_to(self, state: State) -> tuple[dict[str, Answer], dict[str, Answer]]:
        """The answers (now, reference) to the requests of a State, in the order of the requests."""
        now, ref = self._requests_by_side(state)
        return _matching(self.answers["now"], now), _matching(self.answers["ref"], ref)

    def draw(self) -> None:
        """Show the figure; the old one stays, dimmed, until there is something new to show."""
        awaited = self.waiting
        if self._newest_complete() is not None or self._failure is not None or not self.view.figure.grid:
            try:
                self.view.say_once(USUAL)
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
        of = self.panel.controls(state), state.compare, state.pins, state.selection.heads, state.tokens, state.edits
        return self._scales.held(figure, of)

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
    def _controlled(self, view: object) -> None:
        context, before = self.context, self.context.target_state
        try:
            state = self.panel.controlled(before, view)
        except CircuitLabError as error:  # an impossible value springs back, and the status line says why
            self.controls.show_view(self.panel.controls(before), context.facts())
            context.message.emit(" · ".join(w for w in (error.what, error.expected, error.remedy) if w))
            return
        shown = self.panel.controls(before)
        changes = [f.name for f in fields(shown) if getattr(view, f.name) != getattr(shown, f.name)]
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
    def _context(self, hit: Hit | None, where: QPoint) -> None:
        self.actions_menu.aim(hit)
        self.actions_menu.popup(where)

    def open_linked_panel(self) -> bool:
        """Bring the panel to the front that a double-click on an item leads to; False where there is none."""
        if self.panel.opens:
            self.opens.emit(self.panel.opens)
        return bool(self.panel.opens)

    def popup_menu(self) -> QMenu:
        """The panel's menu."""
        return self.actions_menu


def _matching(answers: Mapping[str, Answer], requests: Mapping[str, Request]) -> dict[str, Answer]:
    """Those of the answers that answer the present request of their role."""
    pairs = ((role, answers[role], request) for role, request in requests.items() if role in answers)
    return {role: answer for role, answer, request in pairs if answer.request.asked == request.asked}


def _panel_error(error: BaseException) -> CircuitLabError:
    """What a panel shows of an unexpected error: a bug of the program, or an interruption from outside."""
    remedy = "The Log has the details." if isinstance(error, Exception) else RETRY
    return CircuitLabError(f"{reason(error).rstrip('.')}.", remedy=remedy)
