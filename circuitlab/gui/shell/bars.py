"""The two bars: model, conventions, interventions, pin and compare at the top; readout, progress and memory at the bottom."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QActionGroup, QIcon
from PySide6.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QMenu,
    QProgressBar,
    QStatusBar,
    QToolBar,
    QToolButton,
    QWidget,
)

from circuitlab.draw.look.plain_text import tip_of
from circuitlab.draw.look.theme import Theme
from circuitlab.engine.memory_report import holding, size
from circuitlab.gui.panel.target_button import TargetButton
from circuitlab.gui.shell.dropped_notice import DroppedNotice
from circuitlab.gui.shell.file_notice import FileNotice
from circuitlab.gui.shell.opening import Opening
from circuitlab.gui.widgets.buttons import flat, icon, tint
from circuitlab.gui.widgets.labels import ShortLabel, label
from circuitlab.gui.widgets.room import Room
from circuitlab.gui.widgets.strip import FULL, SIGNS, Strip
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.state_commands import COMPARE, CONVENTIONS, StateCommands
from circuitlab.model.devices import devices
from circuitlab.model.text.tokenizer import visible
from circuitlab.state.cuts import CUT, short_words, words
from circuitlab.state.reference_names import differences
from circuitlab.state.state import State

MESSAGE = 8000  # ms that a message stays
SHORT_NAME = 20  # characters to which names are shortened where there is little room


def _style(signs: bool) -> Qt.ToolButtonStyle:
    """The style of a button: its icon alone, or with words beside it."""
    return Qt.ToolButtonStyle.ToolButtonIconOnly if signs else Qt.ToolButtonStyle.ToolButtonTextBesideIcon


class TopBar(QToolBar):
    """The subject: model, heads, target, conventions and interventions; the reference, and what the panels compare.

    `asks_folder()`: open a model from a folder; `asks_palette()`: show the command palette; `device_changed()`: computations run
    on another device from now on.
    """

    asks_folder = Signal()
    asks_palette = Signal()
    device_changed = Signal()

    def __init__(self, context: AppContext, opening: Opening, state_commands: StateCommands, parent: QWidget) -> None:
        super().__init__("Subject", parent)
        self.setObjectName("bar.subject")
        self.setMovable(False)
        self.context, self.opening, self.state_commands = context, opening, state_commands
        self._make_subject()
        self._make_comparison()
        self.strip = Strip(self)
        self.strip.left = (self.model, self.heads, self.target, self.conventions, self.edits)
        self.strip.right = (self.pinned, self.unpin, self.pin, *self.compare, self.compared, self.palette_button)
        for widget in (*self.strip.left, *self.strip.right):
            widget.setParent(self.strip)
        self._stage = FULL
        self.strip.owners.append(self.compact)
        self.addWidget(self.strip)
        context.document.changed.connect(self._changed)
        context.theme_changed.connect(self.set_theme)
        self.set_theme(context.theme)
        self.refresh()

    def _make_subject(self) -> None:
        self.model = flat(self, "subject.model", "", "The open model: choose another, recent or shipped")
        self.model.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.model.setProperty("role", "model")
        menu = QMenu(self.model)
        menu.aboutToShow.connect(self._fill_models)
        self.model.setMenu(menu)
        self.heads = ShortLabel(self, "title", least=64)
        self.heads.setContentsMargins(8, 0, 8, 0)
        self.target = TargetButton(self.context, self)
        self.conventions = flat(self, "subject.conventions", "", "Conventions: how weights are presented")
        self.conventions.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.conventions)
        menu.setToolTipsVisible(True)
        self._choices: dict[str, QAction] = {}
        for name, text, _, _, tip in CONVENTIONS:
            action = menu.addAction(text)
            action.setCheckable(True)
            action.setToolTip(tip_of(tip))
            action.setData(name)
            action.triggered.connect(self._convention_chosen)
            self._choices[name] = action
        self._make_devices(menu)
        self.conventions.setMenu(menu)
        self.edits = flat(self, "subject.edits", "", "Ablations and patches in force; click to remove them all")
        self.edits.clicked.connect(self.state_commands.clear_edits)

    def _make_devices(self, menu: QMenu) -> None:
        """Add this computer's devices to the menu of conventions, since results differ between them in rounding."""
        menu.addSection("Compute on")
        self._devices: dict[str, QAction] = {}
        group = QActionGroup(menu)
        for device in devices():
            room = f", {device.memory / 2**30:,.0f} GiB" if device.memory else ""
            action = menu.addAction(f"{device.title}{room}")
            action.setCheckable(True)
            action.setData(device.name)
            action.triggered.connect(self._device_chosen)
            group.addAction(action)
            self._devices[device.name] = action
        self.context.settings.changed.connect(self._setting_changed)
        self.context.engine.use_device(self._device_setting())

    def _device_setting(self) -> str:
        """The device of the settings; the CPU if this computer lacks it."""
        device = self.context.settings["device"]
        return device if device in self._devices else "cpu"

    @Slot()
    def _device_chosen(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.context.settings.set("device", action.data())

    @Slot(str)
    def _setting_changed(self, name: str) -> None:
        """Compute on the device of the settings from now on."""
        device = self._device_setting()
        if name != "device" or device == self.context.engine.device:
            return
        self.context.engine.use_device(device)
        self.refresh()
        self.context.runner.jobs_changed.emit()
        self.device_changed.emit()

    def _make_comparison(self) -> None:
        self.pinned = ShortLabel(self, "caption", 360, least=72, elides=Qt.TextElideMode.ElideMiddle)
        self.unpin = flat(self, "subject.unpin", "", "Unpin: remove the reference (Ctrl+Shift+U)")
        self.unpin.setAccessibleName("Unpin")
        self.unpin.setToolButtonStyle(_style(True))
        self.unpin.clicked.connect(self.state_commands.unpin)
        self.pin = flat(self, "subject.pin", "Pin", "Pin this subject as the reference for differences (Ctrl+P)")
        self.pin.clicked.connect(self.state_commands.pin)
        self._group = QButtonGroup(self)
        self.compare = tuple(flat(self, f"compare.{c}", c, "What the panels show (Ctrl+D)") for c in COMPARE)
        for i, one in enumerate(self.compare):
            one.setCheckable(True)
            self._group.addButton(one, i)
        self._group.idClicked.connect(self._compare)
        self.compared = flat(
            self, "compare", "", "What the panels show (Ctrl+D)"
        )  # in place of the three buttons where they have no room
        self.compared.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu = QMenu(self.compared)
        for i, one in enumerate(COMPARE):
            action = menu.addAction(one)
            action.setData(i)
            action.triggered.connect(self._compare_chosen)
        self.compared.setMenu(menu)
        self.palette_button = flat(self, "subject.palette", "Commands", "Command palette (Ctrl+Shift+P)")
        self.palette_button.clicked.connect(self.asks_palette)

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        self.refresh()

    @Slot(object)
    def set_theme(self, theme: Theme) -> None:
        """Draw the icons in the theme's grey."""
        tint(self.pin, "pin", theme)
        tint(self.unpin, "close", theme)
        self.conventions.setIconSize(self.pin.iconSize())
        tint(self.palette_button, "search", theme)

    def take_middle(self, bar: QWidget, compact: Callable[[int], None]) -> None:
        """Take a bar into the middle of the line; it moves to a second line where there is no room."""
        bar.setParent(self.strip)
        self.strip.middle = bar
        self.strip.owners.append(compact)
        self.strip.lay_out()

    def refresh(self) -> None:
        """Show the state."""
        state = self.context.document.state
        self._model_name = self._name(state)
        heads = self._heads(state)
        hint = self._published(state)
        self.heads.setText(f"{heads} · {hint[0]}" if hint[0] else heads)
        self.heads.setToolTip(tip_of("\n".join(filter(None, (heads, *hint[1:])))))
        self.target.refresh()
        device = self.context.engine.device
        elsewhere = () if device == "cpu" else (device,)
        config = self.context.config(state.model)
        conventions = (*state.conventions.words(config), *elsewhere, visible(state.front) or ("BOS" if state.bos else "no BOS"))
        for name, action in self._devices.items():
            action.setChecked(name == device)
        self._conventions = f"{' · '.join(conventions)} ▾"
        self.conventions.setToolTip(tip_of(f"Conventions, how weights are presented: {' · '.join(conventions)}"))
        self.conventions.setAccessibleName(f"Conventions: {' · '.join(conventions)}")
        for name, _, on, _, _ in CONVENTIONS:
            self._choices[name].setChecked(getattr(state.conventions, name) == on)
        edits = state.subject.edits
        full = words(edits[0]) if len(edits) == 1 else short_words(edits)
        self._edits = tuple(
            f"{text} {CUT}" if text else "" for text in (full, short_words(edits), short_words(edits, room=False))
        )
        self.edits.setToolTip(tip_of("Ablations and patches in force; click to remove all:\n" + "\n".join(map(words, edits))))
        self.edits.setVisible(bool(edits))
        self.pinned.setText(self._reference(state))
        description = "\n".join(filter(None, (self.pinned.text(), self._about_reference(state))))
        self.pinned.setToolTip(tip_of(description))
        self.pinned.setAccessibleDescription(description)
        self.pinned.setVisible(state.reference is not None)
        self.unpin.setVisible(state.pinned is not None)
        self.compare[COMPARE.index(state.compare)].setChecked(True)
        self.compared.setText(f"{state.compare} ▾")
        self.compact(self._stage)

    def compact(self, stage: int) -> None:
        """Show less, the higher the stage: first goes what a tooltip, a menu or every caption also says."""
        self._stage = stage
        beside = self.context.document.state.reference is not None
        self.palette_button.setToolButtonStyle(_style(stage >= 1))
        self.pin.setToolButtonStyle(_style(stage >= SIGNS))
        self.conventions.setToolButtonStyle(_style(stage >= SIGNS))
        self.conventions.setIcon(icon("controls", self.context.theme) if stage >= SIGNS else QIcon())
        name = SHORT_NAME // 2 if stage >= SIGNS else SHORT_NAME if stage >= 4 else 3 * SHORT_NAME
        most = self.fontMetrics().averageCharWidth() * name
        short_name = self.model.fontMetrics().elidedText(self._model_name, Qt.TextElideMode.ElideMiddle, most)
        self.model.setText(f"{short_name} ▾".replace("&", "&&"))
        self.model.setToolTip(tip_of(f"{self._model_name}: choose another model, recent or shipped"))
        self.conventions.setText(self._conventions if stage < 2 else "Conventions ▾")
        for button in self.compare:
            button.setVisible(beside and stage < 3)
        self.compared.setVisible(beside and stage >= 3)
        self.target.show_short(stage >= 4)
        self.edits.setText(self._edits[(stage >= 4) + (stage >= SIGNS)])
        for text in (self.heads, self.pinned):
            text.limit(self.fontMetrics().averageCharWidth() * (SHORT_NAME if stage >= 4 else 3 * SHORT_NAME))

    def _name(self, state: State) -> str:
        """The model's name; without the checkpoint's step where the slider shows it."""
        model = self.context.engine.store.peek(state.model)
        series = model is not None and self.strip.middle is not None and not self.strip.middle.isHidden()
        return state.model.named(1) if series else self.context.name_of(state.model)

    def _heads(self, state: State) -> str:
        """The selected heads, or that the open model has none."""
        if self.context.engine.store.peek(state.model) is not None and not self.context.facts().config.n_layers:
            return "no heads"
        return " ".join(map(str, state.selection.heads[:6])) + (" …" if len(state.selection.heads) > 6 else "")

    def _reference(self, state: State) -> str:
        """How the reference differs from the subject on the screen."""
        pin = state.reference
        if pin is None:
            return ""
        named = differences(state, pin, self.context.name_parts, self.context.config(pin.subject.model))
        return f"vs {', '.join(named) or 'the same, pinned'}"

    @staticmethod
    def _about_reference(state: State) -> str:
        """What the reference is, and whether it is pinned."""
        if state.reference is None:
            return ""
        if state.pinned is None:
            return "The reference: the same model and text with nothing ablated (uncut). Pin (Ctrl+P) sets another one."
        return f"The reference: {state.pinned.label}, as it was when pinned"

    def _published(self, state: State) -> tuple[str, ...]:
        """What papers and notes say of the selected heads: of the first in short, then a line for each head that has any."""
        published = self.context.facts().known_heads() if self.context.engine.store.peek(state.model) is not None else None
        if published is None:
            return ("",)
        head, how = state.selection.head, published.how
        hints = [f"{one} {words}" for one in state.selection.heads if (words := published.words(one))]
        roles = f"published: {published.short(head)}" if published.short(head) else ""
        short = roles or ("your note" if head in published.notes else "")
        return (short, *hints, *([f"Hints: {how}."] if hints and how else []))

    @Slot()
    def _fill_models(self) -> None:
        menu = self.model.menu()
        self.opening.fill(menu)
        menu.addSeparator()
        menu.addAction("Open a folder…").triggered.connect(self.asks_folder)

    @Slot()
    def _convention_chosen(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            on, off = next((on, off) for name, _, on, off, _ in CONVENTIONS if name == action.data())
            self.state_commands.convention(action.data(), on if action.isChecked() else off)

    @Slot(int)
    def _compare(self, index: int) -> None:
        self.state_commands.compare(COMPARE[index])

    @Slot()
    def _compare_chosen(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self._compare(int(action.data()))


class Status(QStatusBar):
    """The readout on the left; what stands until it is mended, running jobs, Cancel, device and memory on the right."""

    def __init__(self, context: AppContext, opening: Opening, parent: QWidget) -> None:
        super().__init__(parent)
        self.context = context
        self.files = FileNotice(context, opening.reload_files, self)
        self.dropped = DroppedNotice(context, self)
        self.readout = ShortLabel(self)
        self.readout.setContentsMargins(8, 0, 8, 0)
        self.standing = ShortLabel(self, "warning", 480)
        self.standing.hide()
        self.running = ShortLabel(self, "caption", 320)
        self.progress = QProgressBar(self)
        self.progress.setFixedWidth(120)
        self.progress.setTextVisible(False)
        self.cancel = flat(self, "status.cancel", "Cancel", "Cancel all running computations (Ctrl+.)")
        self.cancel.setProperty("role", "primary")
        self.cancel.clicked.connect(context.runner.cancel_all)
        self.memory = label(self, "caption")
        self._lay_out()
        self.refresh_timer = QTimer(self)
        self.refresh_timer.setSingleShot(True)
        self.refresh_timer.setInterval(100)
        self.refresh_timer.timeout.connect(self.refresh)
        self._message = ""
        self.message_timer = QTimer(self)
        self.message_timer.setSingleShot(True)
        self.message_timer.setInterval(MESSAGE)
        self.message_timer.timeout.connect(self._end_message)
        context.readout.connect(self._show_readout)
        context.message.connect(self.say)
        context.runner.jobs_changed.connect(self._changed)
        context.theme_changed.connect(self.refresh)
        self.refresh()

    def _lay_out(self) -> None:
        """Lay out all widgets in a `Room`, so that the window is not laid out again when jobs come and go with each keystroke."""
        self.room = Room(self, QSize(160, 0))
        line = QWidget(self.room)
        row = QHBoxLayout(line)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(6)
        row.addWidget(self.readout, 1)
        row.addStretch(0)
        for widget in (self.files, self.dropped, self.standing, self.running, self.progress, self.cancel, self.memory):
            row.addWidget(widget)
        self.room.hold(line)
        self.addWidget(self.room, 1)

    @Slot(str)
    def say(self, message: str) -> None:
        """Show a message for some seconds, or until the next one; a readout covers it while the pointer is on a value."""
        self._message = message
        self.readout.setText(message)
        self.message_timer.start()

    @Slot(str)
    def stand(self, problem: str) -> None:
        """Say that work is not autosaved for as long as that lasts, and why; "" ends it."""
        self.standing.setText(f"Not autosaved: {problem}" if problem else "")
        self.standing.setVisible(bool(problem))

    @Slot(str)
    def _show_readout(self, readout: str) -> None:
        self.readout.setText(readout or self._message)

    @Slot()
    def _end_message(self) -> None:
        message, self._message = self._message, ""
        if self.readout.text() == message:
            self.readout.setText("")

    @Slot()
    def _changed(self) -> None:
        if not self.refresh_timer.isActive():
            self.refresh_timer.start()

    @Slot()
    def refresh(self, *_: object) -> None:
        """Show the running jobs. The bar keeps the height of all its widgets, also while nothing runs."""
        inside = (self.readout, self.running, self.progress, self.cancel, self.memory)
        self.room.setMinimumHeight(max(widget.sizeHint().height() for widget in inside))
        jobs = self.context.runner.jobs
        for widget in (self.running, self.progress, self.cancel):
            widget.setVisible(bool(jobs))
        if jobs:
            job = max(jobs, key=lambda j: (bool(j.started_at), j.total > 0))
            more = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
            self.running.setText(f"{job.title} {job.done}/{job.total}{more}" if job.total else f"{job.title}{more}")
            self.progress.setRange(0, job.total)
            self.progress.setValue(job.done)
        self.memory.setText(f"{self.context.engine.device.upper()} · {size(holding(self.context.engine).total)}")
