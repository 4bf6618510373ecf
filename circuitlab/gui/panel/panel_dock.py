"""A dock for any registered panel: controls, figure, requests; export, copy and Explain follow from the registration."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import fields, replace

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDockWidget, QMenu, QVBoxLayout, QWidget

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
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.subject import Conventions
from circuitlab.session.gestures import pointed_at, without_stale_positions
from circuitlab.session.state import State

log = logging.getLogger("circuitlab.panel")
USUAL = Conventions().words()  # the bar says them for all panels; one that is not usual stands under each that it decides
REMEMBERED = 64  # requests of which a dock knows the state that asked


def on_screen(dock: QDockWidget) -> bool:
    """Whether a dock can be seen. One behind a tab counts as visible for Qt, but lies outside its window."""
    return dock.isVisible() and not dock.visibleRegion().isEmpty()


class PanelDock(QDockWidget):
    """See the module. A dock that is not visible asks for nothing. `opens(name)`: bring that panel to the front."""

    opens = Signal(str)

    def __init__(self, panel: Panel, context: AppContext, state_commands: StateCommands, parent: QWidget | None = None) -> None:
        super().__init__(panel.title, parent)
        self.panel, self.context, self.state_commands = panel, context, state_commands
        self.setObjectName(f"dock.{panel.name}")
        self.setAllowedAreas(Qt.DockWidgetArea.AllDockWidgetAreas)
        self.view = FigureView(parent=self)
        self.controls = Controls(panel.view, self, wraps=panel.writes is not None)
        self.answers: dict[str, dict[str, Answer]] = {"now": {}, "ref": {}}
        self.asked: dict[str, dict[str, Request]] = {"now": {}, "ref": {}}
        self._failures: dict[tuple[str, str], CircuitLabError] = {}  # by side and role: no answer is coming
        self._state: State | None = None  # what `asked` is asked for: what is drawn is drawn of it, whatever the document shows
        self._asked_in: OrderedDict[Request, State] = OrderedDict()  # the state that each of the last requests was asked for
        self._pictured: State | None = None  # what the picture on the screen is a picture of
        self._slots: dict[tuple[str, str], WorkSlot] = {}
        self._scales = HeldScales()
        self._stale = True
        self.quiet = False  # while docks are moved about: one that is seen for a moment asks for nothing
        self.actions_menu = PanelActions(self)
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        if self.panel.searches_tokens:
            self.search = TokenSearch(self.context, self.controls)
            self.search.chosen.connect(self._found)
            self.controls.layout().addWidget(self.search)  # type: ignore[union-attr]
        if self.panel.writes is None:
            self.setWidget(Room(self.view, self))
            self.bar = TitleBar(self, self.context, self.controls, self.actions_menu)
            return
        body = QWidget(self)  # its controls are what it is about: all of them are seen, above the figure
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
        self.context.loader.waiting_changed.connect(self._driven)
        self.view.context_requested.connect(self._context)
        self.visibilityChanged.connect(self._visible)
        self.view.set_theme(context.theme)

    @property
    def shown(self) -> bool:
        """Whether it is on the screen, not behind a tab."""
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
        """First look."""
        super().showEvent(event)
        if self._stale and self.shown and not self.quiet:
            self.refresh()

    def take_keyboard(self) -> None:
        """Into the picture, not the controls."""
        self.view.take_keyboard()

    def refresh(self) -> None:
        """Ask for what the state needs, draw what is there."""
        self._stale = False
        state = self.context.document.state
        if self.context.engine.store.peek(state.model) is None:
            self.view.set_busy(True)  # it is being opened again; what is on the screen stays meanwhile
            return
        self.controls.show_view(self.panel.controls(state), self.context.facts())
        self._state = state
        self._ask("now", state)
        self._remember(state)
        if (before := self._pinned(state)) is not None:  # also while only now is shown: before and after stand on one scale
            self._ask("ref", before)
        else:
            self.asked["ref"], self.answers["ref"] = {}, {}
        self._failures = {(side, role): e for (side, role), e in self._failures.items() if role in self.asked[side]}
        self.draw()

    def _pinned(self, state: State) -> State | None:
        """What the reference is asked; None without one, and where it has nothing of what is asked about."""
        reference = "" if state.reference is None else pinned(state, self.context.facts(state.model))
        return None if isinstance(reference, str) else reference

    def _ask(self, side: str, state: State) -> None:
        """Ask for what is new on one side; what has failed stays failed until something else is asked in its place."""
        requests, before = self._requests(state), self.asked[side]
        self.asked[side] = requests
        self.answers[side] = {r: a for r, a in self.answers[side].items() if r in requests}
        new = {role: request for role, request in requests.items() if before.get(role) != request}
        for role, request in new.items():
            self._failures.pop((side, role), None)
            answer = self.context.runner.ask(self.slot(side, role), request)
            if answer is not None:
                self.answers[side][role] = answer

    def slot(self, side: str, role: str) -> WorkSlot:
        """Where the runner answers one request of one side."""
        if (side, role) not in self._slots:
            self._slots[side, role] = WorkSlot(self, (side, role), answered=self._answered, failed=self._failed)
        return self._slots[side, role]

    def _remember(self, state: State) -> None:
        for request in self.asked["now"].values():
            self._asked_in[request.asked] = state
            self._asked_in.move_to_end(request.asked)
        while len(self._asked_in) > REMEMBERED:
            self._asked_in.popitem(last=False)

    def ask_again(self) -> None:
        """Once more, from the beginning: what failed or was cancelled may succeed now."""
        self.asked, self._failures = {"now": {}, "ref": {}}, {}
        self.refresh()

    @property
    def _failure(self) -> CircuitLabError | None:
        """Why nothing can be drawn, None where the answers of other requests can."""
        compared = self._state is not None and self._state.compare != "now"
        for side in ("now", "ref") if compared else ("now",):
            roles = self.asked[side]
            failed = {role: error for (of, role), error in self._failures.items() if of == side}
            if failed and not self.panel.draws_with(roles, roles.keys() - failed.keys()):
                needed = (e for role, e in failed.items() if not self.panel.draws_with(roles, roles.keys() - {role}))
                return next(needed, next(iter(failed.values())))
        return None

    @property
    def waiting(self) -> bool:
        """Whether an answer to what is asked now is still to come."""
        return any(not self._settled(side) for side in ("now", "ref"))

    def _settled(self, side: str) -> bool:
        held, failed = self.answers[side], self._failures
        complete = lambda r, q: r in held and held[r].request.asked == q.asked and held[r].complete
        return all((side, r) in failed or complete(r, q) for r, q in self.asked[side].items())

    @Slot(object, object)
    def _answered(self, answer: Answer, place: tuple[str, str]) -> None:
        side, role = place
        asked = self.asked.get(side, {}).get(role)
        held = self.answers[side].get(role) if asked is not None else None
        if asked is None or (asked.asked != answer.request.asked and held is not None and held.request.asked == asked.asked):
            return
        self.answers[side][role] = answer
        if asked.asked == answer.request.asked:
            self._failures.pop((side, role), None)
        self._news()

    def _news(self) -> None:
        """Something has come: it is drawn, or when somebody looks. What lies hidden knows no newer state than it asked for."""
        if self.shown and not self._stale:
            self.draw()
        else:
            self._stale = True

    @Slot(object, object)
    def _failed(self, error: BaseException, place: tuple[str, str]) -> None:
        side, role = place
        if role not in self.asked.get(side, {}):
            return  # nobody asks for that any more
        if isinstance(error, Cancelled):
            error = CircuitLabError("Cancelled.", remedy="Compute again stands in this panel’s menu (⋯).")
        self._failures[side, role] = error if isinstance(error, CircuitLabError) else _unforeseen(error)
        if isinstance(error, Exception) and not isinstance(error, CircuitLabError):
            self.context.failed.emit(error)
        self._news()

    def figure(self) -> Figure:
        """The figure of what has been answered, of the state that it was asked for."""
        if self._failure is not None:
            return empty(bounded(f"{reason(self._failure)} {self._failure.remedy}", 2 * LONGEST), self.panel.title)
        state, now, ref = self._drawn()
        self._pictured = state
        figure = self.panel.figure(state, self.context.facts(state.model), now, ref)
        missing = dict.fromkeys(f"not computed: {bounded(reason(error), LONGEST)}" for error in self._failures.values())
        return figure.with_caption(*missing) if figure.grid else figure

    def _drawn(self) -> tuple[State, dict[str, Answer], dict[str, Answer]]:
        state = self._state or self.context.document.state
        return self._drawable() or (state, *self._answering(state))

    def drawn(self) -> dict[str, dict[str, Answer]]:
        """The answers that the figure is made of, by side and role."""
        _, now, ref = self._drawn()
        return {"now": now, "ref": ref}

    def _marked(self, figure: Figure) -> Figure:
        """Its title says where the tokens it is about are not those in the editor."""
        asked = [r for side in self.asked.values() for r in side.values()]
        about_text = any(needs(r.analysis, r.params) == "tokens" for r in asked)
        if not (self.context.document.state.draft and about_text and figure.grid):
            return figure
        return replace(figure, title=joined(figure.title, "earlier prompt"))

    def _drawable(self) -> tuple[State, dict[str, Answer], dict[str, Answer]] | None:
        """What is asked for, with its answers, once all that is quick has come; until then what was asked before it.

        Under a drag every answer has a newer question behind it. It is drawn all the same, of the state that it answers.
        """
        place = {request: i for i, request in enumerate(self._asked_in)}
        newest = max(self.answers["now"].values(), key=lambda a: place.get(a.request.asked, -1), default=None)
        older = None if newest is None else self._asked_in.get(newest.request.asked)
        for state in (self._state, older):
            if state is None or self._state is None or state.model != self._state.model:
                continue
            answers = self._answering(state)
            if all(role in held for held, roles in zip(answers, self._quick_ones(state), strict=True) for role in roles):
                return state, *answers
        return None

    def _wanted(self, state: State) -> tuple[dict[str, Request], dict[str, Request]]:
        """What a state asks of now, and of its reference."""
        if state is self._state:
            return self.asked["now"], self.asked["ref"]
        before = self._pinned(state)
        return self._requests(state), {} if before is None else self._requests(before)

    def _requests(self, state: State) -> dict[str, Request]:
        wanted = self.panel.requests(state, self.context.facts(state.model))
        return {} if isinstance(wanted, Why) else dict(wanted)

    def _quick_ones(self, state: State) -> list[list[str]]:
        """Roles whose answers take no time that is worth a picture without them; of the reference where it is looked at."""
        sides = self._wanted(state) if state.compare != "now" else (self._wanted(state)[0], {})
        return [
            [r for r, q in wanted.items() if q.analysis.lane == "live" and (side, r) not in self._failures]
            for side, wanted in zip(("now", "ref"), sides, strict=True)
        ]

    def _answering(self, state: State) -> tuple[dict[str, Answer], dict[str, Answer]]:
        """The answers that are held to what a state asks, of now and of its reference, in the order of the requests."""
        fits = lambda held, wanted: {r: held[r] for r, w in wanted.items() if r in held and held[r].request.asked == w.asked}
        now, ref = self._wanted(state)
        return fits(self.answers["now"], now), fits(self.answers["ref"], ref)

    def draw(self) -> None:
        """Show the figure; keep the old one, dimmed, while there is nothing new to show."""
        awaited = self.waiting
        if self._drawable() is not None or self._failure is not None or not self.view.figure.grid:
            try:
                self.view.say_once(USUAL)
                self.view.show_figure(self._held(self._marked(self.figure())))
            except Exception as error:  # a fault in one figure must not take the window down
                log.exception("%s could not be drawn", self.panel.name)
                self.view.show_figure(
                    empty(f"This figure could not be drawn: {reason(error)}. The Log has the details.", self.panel.title)
                )
        self.view.set_busy(awaited or self.context.loader.waiting)

    def _held(self, figure: Figure) -> Figure:
        """On scales that only grow, while they are held and nothing is looked at but another point of the training."""
        state = self._pictured
        if not self.context.holds_scales or state is None:
            return figure
        of = self.panel.controls(state), state.compare, state.pins, state.selection.heads, state.tokens, state.edits
        return self._scales.held(figure, of)

    @Slot(bool)
    def _scales_held(self, on: bool) -> None:
        """What is on the screen is the first frame; at the end it stands on its own scale again."""
        self._scales.forget()
        if on and self.shown and not self._stale:
            self._held(self.view.figure)
        elif not on:
            self._news()

    @Slot()
    def _driven(self) -> None:
        """Another model is being opened for what is wanted, or it is no longer."""
        busy = self.context.loader.waiting or self.waiting
        if not busy or self.shown:
            self.view.set_busy(busy)

    @Slot(object)
    def _controlled(self, view: object) -> None:
        context, before = self.context, self.context.target_state
        try:
            state = self.panel.controlled(before, view)
        except CircuitLabError as error:  # what cannot be springs back, and the status line says why
            self.controls.show_view(self.panel.controls(before), context.facts())
            context.message.emit(" · ".join(w for w in (error.what, error.expected, error.remedy) if w))
            return
        shown = self.panel.controls(before)
        moved = [f.name for f in fields(shown) if getattr(view, f.name) != getattr(shown, f.name)]
        burst = ".".join(("view", self.panel.name, *moved, str(self.controls.burst)))
        context.show(state, f"{self.panel.title}: {', '.join(moved)}".replace("_", " "), burst)

    def pick(self, state: State, hit: Hit) -> State:
        """The state after a gesture on the picture, which may be of an earlier prompt."""
        return without_stale_positions(self._pictured, state, self.panel.pick(state, hit))

    @Slot(object)
    def _picked(self, hit: Hit) -> None:
        before, pick = self.context.target_state, lambda state: self.pick(state, hit)
        # the click before the second one has chosen it already
        state = pointed_at(before, pick) if hit.gesture == "double-click" else pick(before)
        if state is not before:
            self.context.show(state, f"select in {self.panel.title}")
        if hit.gesture == "double-click" and self.panel.opens:
            self.opens.emit(self.panel.opens)

    @Slot(int)
    def _found(self, token: int) -> None:
        self._picked(Hit("search", (token,)))

    @Slot(object, str)
    def _hovered(self, hit: Hit, readout: str) -> None:
        self.context.readout.emit(readout)
        recorded = self.context.document.recorded
        if hit.gesture == "leave":
            self.context.end_preview()
        elif (state := self.pick(recorded, hit)).model == recorded.model:  # another model takes a click
            self.context.preview(state)

    @Slot(object, QPoint)
    def _context(self, hit: Hit | None, where: QPoint) -> None:
        self.actions_menu.aim(hit)
        self.actions_menu.popup(where)

    def popup_menu(self) -> QMenu:
        """The panel's menu."""
        return self.actions_menu


def _unforeseen(error: BaseException) -> CircuitLabError:
    """What a panel says of a fault of ours, or of what was broken off from outside."""
    remedy = "The Log has the details." if isinstance(error, Exception) else "Compute again stands in this panel’s menu (⋯)."
    return CircuitLabError(f"{reason(error).rstrip('.')}.", remedy=remedy)
