"""The main window: docks, menus from the commands, opening models, layout and theme that are remembered."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QEvent, QSettings, Qt, Slot
from PySide6.QtGui import QAction, QCloseEvent, QDragEnterEvent, QDropEvent, QGuiApplication, QShowEvent
from PySide6.QtWidgets import QApplication, QDockWidget, QFileDialog, QMainWindow, QMenu, QMessageBox, QWidget

from circuitlab import __version__
from circuitlab.draw.theme import DARK, LIGHT, Theme, apply_theme
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import OpenModel, reference
from circuitlab.errors import Cancelled
from circuitlab.figures.panel import panels
from circuitlab.gui.bars import Status, TopBar
from circuitlab.gui.bench import Bench
from circuitlab.gui.commands import COMMANDS, MENUS, CommandAction
from circuitlab.gui.docks.jobs import JobsDock
from circuitlab.gui.docks.log import LogDock
from circuitlab.gui.docks.prompt import PromptDock
from circuitlab.gui.document import Document
from circuitlab.gui.errors import ErrorDialog
from circuitlab.gui.palette import Palette, ShortcutSheet
from circuitlab.gui.panel_dock import PanelDock
from circuitlab.model.subject import Head, ModelRef
from circuitlab.paths import config_home, shipped_models
from circuitlab.session.state import Pin, Selection, State

log = logging.getLogger("circuitlab.window")
LAYOUT_VERSION = 1
RECENT = 8
AREAS = {
    "left": Qt.DockWidgetArea.LeftDockWidgetArea,
    "right": Qt.DockWidgetArea.RightDockWidgetArea,
    "bottom": Qt.DockWidgetArea.BottomDockWidgetArea,
}


def settings() -> QSettings:
    """The person's settings, one file."""
    return QSettings(str(config_home() / "circuitlab.ini"), QSettings.Format.IniFormat)


class Window(QMainWindow):
    """See the module. `remember` False leaves the person's layout and settings alone (pictures, tests)."""

    def __init__(self, engine: Engine, state: State, remember: bool = True) -> None:
        super().__init__()
        self.setObjectName("window")
        self.setAcceptDrops(True)
        self.setDockOptions(
            self.DockOption.AllowTabbedDocks | self.DockOption.AllowNestedDocks | self.DockOption.AnimatedDocks
        )
        self.remember = remember
        self.bench = Bench(engine, Document(state, self), self)
        self.docks: dict[str, QDockWidget] = {}
        self._restored, self._maximised, self._default = False, "", QByteArray()
        self._before = QByteArray()
        self._actions: list[QAction] = []
        self._make_docks()
        self._make_menus()
        self.status = Status(self.bench, self)
        self.setStatusBar(self.status)
        self.top = TopBar(self.bench, self)
        self.addToolBar(self.top)
        self._arrange()
        self._connect()
        self._theme_name = str(settings().value("theme", "system")) if remember else "light"
        self._apply_theme()
        self._title()

    def _make_docks(self) -> None:
        # In this order they ask when the state changes: attention is on the screen before every loss has been unembedded.
        for name, panel in panels().items():
            self.docks[name] = PanelDock(panel, self.bench, self)
        self.prompt = PromptDock(self.bench, self)
        self.docks["prompt"] = self.prompt
        self.jobs, self.log_dock = JobsDock(self.bench, self), LogDock(self)
        self.docks |= {"jobs": self.jobs, "log": self.log_dock}

    def _arrange(self) -> None:
        """The layout "Explore": prompt on top, heads left, attention in the middle, predictions right."""
        self.setTabPosition(Qt.DockWidgetArea.AllDockWidgetAreas, self.tabPosition(AREAS["left"]).North)
        self.setCentralWidget(None)  # type: ignore[arg-type]
        top, left = Qt.DockWidgetArea.TopDockWidgetArea, AREAS["left"]
        self.setCorner(Qt.Corner.TopLeftCorner, top)
        self.setCorner(Qt.Corner.TopRightCorner, top)
        d = self.docks
        self.addDockWidget(top, d["prompt"])
        self.addDockWidget(left, d["overview"])
        self.splitDockWidget(d["overview"], d["attention"], Qt.Orientation.Horizontal)
        self.splitDockWidget(d["attention"], d["predictions"], Qt.Orientation.Horizontal)
        self.splitDockWidget(d["overview"], d["heads"], Qt.Orientation.Vertical)
        for name in ("model", "jobs", "log"):
            self.tabifyDockWidget(d["heads"], d[name])
        for name, panel in panels().items():
            if name not in ("overview", "attention", "predictions", "heads", "model"):
                self.tabifyDockWidget(d["predictions" if panel.area != "left" else "heads"], d[name])
        for dock in d.values():
            dock.setFloating(False)
            dock.show()
        d["heads"].raise_()
        self.resizeDocks([d["overview"], d["attention"], d["predictions"]], [400, 520, 360], Qt.Orientation.Horizontal)
        self.resizeDocks([d["overview"], d["heads"]], [300, 330], Qt.Orientation.Vertical)
        self.resizeDocks([d["prompt"], d["attention"]], [150, 560], Qt.Orientation.Vertical)
        self._default = self.saveState(LAYOUT_VERSION)

    def _make_menus(self) -> None:
        menus: dict[str, QMenu] = {name: self.menuBar().addMenu(f"&{name}") for name in MENUS}
        for command in COMMANDS:
            action = CommandAction(command, self)
            menu = menus[command.menu]
            if command.separator:
                menu.addSeparator()
            menu.addAction(action)
            self.addAction(action)
            self._actions.append(action)
            if command.name == "open":
                self._recent_menu = menu.addMenu("Open recent")
                self._recent_menu.aboutToShow.connect(self._fill_recent)
        panel_menu = menus["View"].addMenu("Panels")
        for name, dock in self.docks.items():
            toggle = dock.toggleViewAction()
            panel_menu.addAction(toggle)
            raise_ = QAction(f"Go to {dock.windowTitle()}", self)
            raise_.setObjectName(f"goto.{name}")
            known = panels().get(name)
            if known is not None and known.shortcut:
                raise_.setShortcut(known.shortcut)
            raise_.setData(name)
            raise_.triggered.connect(self._go_to)
            self.addAction(raise_)
            self._actions.append(raise_)

    def _connect(self) -> None:
        bench = self.bench
        bench.document.changed.connect(self._changed)
        bench.runner.finished.connect(self._finished)
        bench.runner.failed.connect(self._failed)
        bench.failed.connect(self.show_error)

    # -- opening ------------------------------------------------------------------------------------------------------

    def open_model(self, source: str, text: str | None = None) -> None:
        """Open a model on the file thread; on success it takes the place of the present one."""
        ref = reference(source)
        self._opening = (ref, text)
        self.bench.runner.do("open", f"open {ref.name}", lambda job: self.bench.engine.store.open(ref))

    @Slot(str, object)
    def _finished(self, slot: str, value: object) -> None:
        if slot == "open" and isinstance(value, OpenModel):
            self.adopt(value, self._opening[1])

    def adopt(self, model: OpenModel, text: str | None) -> None:
        """Make an open model the subject: text is kept, its tokens are this model's."""
        state, weights = self.bench.document.recorded, model.opened.weights
        tokenizer, config = weights.tokenizer, weights.config
        bos = config.prepend_bos and tokenizer is not None and tokenizer.bos is not None
        words = state.text if text is None else text
        if tokenizer is not None:
            tokens = tokenizer.encode(words, bos)[: config.n_ctx]
            if len(tokenizer.encode(words, bos)) > config.n_ctx:
                words = tokenizer.decode(tokens)
        else:
            words, tokens = "", tuple(t for t in state.tokens if t < config.d_vocab)[: config.n_ctx] or (0,)
        heads = tuple(h for h in state.selection.heads if h.layer < config.n_layers and h.head < config.n_heads)
        made = replace(state, model=model.ref, bos=bos, selection=Selection(heads=heads or (Head(0, 0),)))
        self.bench.document.apply(made.with_text(words, tokens), f"open {model.ref.name}")
        self._remember_model(model.ref)
        self.bench.runner.do("sha256", f"hash {model.ref.name}", lambda job: self.bench.engine.store.sha256(model.ref))
        log.info("opened %s: %s", model.path, "; ".join(model.opened.notes) or "nothing assumed")
        for dock in self.docks.values():
            refresh = getattr(dock, "refresh", None)
            if refresh is not None and dock.isVisible():
                refresh()
        self._title()

    @Slot(str, object)
    def _failed(self, slot: str, error: BaseException) -> None:
        if slot == "open" and not isinstance(error, Cancelled):
            self.show_error(error)

    def ask_open(self) -> None:
        """A folder dialog."""
        path = QFileDialog.getExistingDirectory(self, "Open model: the folder with config.json")
        if path:
            self.open_model(path)

    def reload_model(self) -> None:
        """Read the model's files again."""
        ref = self.bench.document.state.model
        self._opening = (ref, None)
        self.bench.runner.do("open", f"reload {ref.name}", lambda job: self.bench.engine.store.reload(ref))

    def _recent(self) -> list[str]:
        value: Any = settings().value("recent", []) if self.remember else []
        return [value] if isinstance(value, str) else [str(v) for v in value or ()]

    def _remember_model(self, ref: ModelRef) -> None:
        if self.remember:
            rest = [s for s in self._recent() if s != ref.source]
            settings().setValue("recent", [ref.source, *rest][:RECENT])

    @Slot()
    def _fill_recent(self) -> None:
        self._recent_menu.clear()
        shipped = [f"builtin:{name}" for name in shipped_models()]
        for source in dict.fromkeys([*self._recent(), *shipped]):
            action = self._recent_menu.addAction(source.partition(":")[2])
            action.setData(source)
            action.triggered.connect(self._open_recent)

    @Slot()
    def _open_recent(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            self.open_model(str(action.data()))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """A folder, or a file of one."""
        if event.mimeData().hasUrls() and event.mimeData().urls()[0].isLocalFile():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Open it."""
        path = Path(event.mimeData().urls()[0].toLocalFile())
        self.open_model(str(path if path.is_dir() else path.parent))

    # -- selection ----------------------------------------------------------------------------------------------------

    def walk_heads(self, layers: int, heads: int) -> None:
        """The neighbouring head becomes the chosen one."""
        state, c = self.bench.document.recorded, self.bench.facts().config
        now = state.selection.head
        head = Head((now.layer + layers) % c.n_layers, (now.head + heads) % c.n_heads)
        self.bench.document.apply(state.select(heads=(head,)), "walk heads", "walk heads")

    def select_layer(self) -> None:
        """All heads of the leading head's layer."""
        state, c = self.bench.document.recorded, self.bench.facts().config
        lead = state.selection.head
        rest = tuple(Head(lead.layer, h) for h in range(c.n_heads) if h != lead.head)
        self.bench.document.apply(state.select(heads=(lead, *rest)), "select layer")

    def walk_tokens(self, step: int) -> None:
        """The neighbouring token becomes the destination."""
        state = self.bench.document.recorded
        if not state.tokens:
            return
        at = state.selection.destination
        at = len(state.tokens) - 1 if at is None else at
        to = min(max(at + step, 0), len(state.tokens) - 1)
        self.bench.document.apply(state.select(destination=to, locked=True), "walk tokens", "walk tokens")

    def release(self) -> None:
        """Nothing is locked any more; a maximised panel comes back."""
        if self._maximised:
            self.toggle_maximised()
            return
        state = self.bench.document.recorded
        self.bench.document.end_preview()
        self.bench.document.apply(state.select(destination=None, source=None, locked=False), "release")

    def pin(self) -> None:
        """The present subject becomes the reference."""
        state = self.bench.document.recorded
        pin = Pin(f"pin {state.model.name}, {len(state.tokens)} tokens", state.subject, state.selection, state.text)
        self.bench.document.apply(replace(state, pins=(pin, *state.pins[:7])), "pin")

    def unpin(self) -> None:
        """No reference any more."""
        state = self.bench.document.recorded
        self.bench.document.apply(replace(state, pins=(), compare="now"), "unpin")

    def next_compare(self) -> None:
        """Now, the reference, the difference, in turn."""
        state = self.bench.document.recorded
        if not state.pins:
            self.bench.readout.emit("Pin a reference first (Ctrl+P).")
            return
        order = ("now", "reference", "difference")
        self.bench.document.apply(replace(state, compare=order[(order.index(state.compare) + 1) % 3]), "compare")

    def copy_session(self) -> None:
        """The whole State as JSON, on the clipboard."""
        from circuitlab.session.jsonfile import state_to_text

        QGuiApplication.clipboard().setText(state_to_text(self.bench.document.recorded))
        self.bench.readout.emit("Session copied as JSON.")

    # -- looks --------------------------------------------------------------------------------------------------------

    def next_theme(self) -> None:
        """Light, dark, system, in turn."""
        order = ["light", "dark", "system"]
        self.set_theme(order[(order.index(self._theme_name) + 1) % 3] if self._theme_name in order else "light")

    def set_theme(self, name: str) -> None:
        """By name; "system" follows the desktop."""
        self._theme_name = name
        if self.remember:
            settings().setValue("theme", name)
        self._apply_theme()
        self.bench.readout.emit(f"Theme: {name}")

    def _theme(self) -> Theme:
        if self._theme_name == "system":
            dark = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
            return DARK if dark else LIGHT
        return DARK if self._theme_name == "dark" else LIGHT

    def _apply_theme(self) -> None:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        apply_theme(app, self._theme())
        self.bench.set_theme(self._theme())

    def toggle_maximised(self, dock: QWidget | None = None) -> None:
        """One panel alone, or all again."""
        if self._maximised:
            self._maximised = ""
            self.restoreState(self._before, LAYOUT_VERSION)
            return
        focus = dock or self.focusWidget() or self.docks["attention"]
        while focus is not None and not isinstance(focus, QDockWidget):
            focus = focus.parentWidget()
        chosen = focus if isinstance(focus, QDockWidget) else self.docks["attention"]
        self._before = self.saveState(LAYOUT_VERSION)
        self._maximised = chosen.objectName()
        for other in self.docks.values():
            other.setVisible(other is chosen)

    def reset_zoom(self) -> None:
        """In every panel."""
        for dock in self.docks.values():
            if isinstance(dock, PanelDock):
                dock.view.reset_view()

    def redock(self) -> None:
        """Floating panels come back."""
        for dock in self.docks.values():
            dock.setFloating(False)

    def reset_layout(self) -> None:
        """As at the first start."""
        self._maximised = ""
        self.restoreState(self._default, LAYOUT_VERSION)
        self.redock()

    @Slot()
    def _go_to(self) -> None:
        action = self.sender()
        if isinstance(action, QAction):
            dock = self.docks[str(action.data())]
            dock.show()
            dock.raise_()
            dock.setFocus()

    @Slot(object, object)
    def _changed(self, old: State, new: State) -> None:
        if old.model != new.model and self.bench.engine.store.peek(new.model) is None:
            # undo across an open: the model may have been closed since
            ref = new.model
            self._opening = (ref, new.text)
            self.bench.runner.do("open", f"open {ref.name}", lambda job: self.bench.engine.store.open(ref))
        self._title()

    def _title(self) -> None:
        self.setWindowTitle(f"{self.bench.document.state.model.name} · CircuitLab")

    # -- dialogs ------------------------------------------------------------------------------------------------------

    @Slot(object)
    def show_error(self, error: BaseException) -> None:
        """Plain words and a report; the window goes on."""
        ErrorDialog(error, self).exec()

    def show_palette(self) -> None:
        """All commands."""
        Palette(self._actions, self).exec()

    def show_shortcuts(self) -> None:
        """All keys."""
        ShortcutSheet(self._actions, self).exec()

    def show_about(self) -> None:
        """Version and purpose."""
        QMessageBox.about(self, "CircuitLab", f"CircuitLab {__version__}\nA laboratory for transformer circuits.")

    # -- life ---------------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        """Restore the layout once there is a window to lay out."""
        super().showEvent(event)
        if not self._restored:
            self._restored = True
            if self.remember:
                stored = settings()
                geometry, state = stored.value("geometry"), stored.value("layout")
                if isinstance(geometry, QByteArray):
                    self.restoreGeometry(geometry)
                if isinstance(state, QByteArray):
                    self.restoreState(state, LAYOUT_VERSION)

    def changeEvent(self, event: QEvent) -> None:
        """The desktop's scheme may have changed."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ThemeChange and self._theme_name == "system":
            self._apply_theme()

    def close_window(self) -> None:
        """Quit."""
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keep the layout, stop the workers."""
        if self._maximised:
            self.toggle_maximised()
        if self.remember:
            stored = settings()
            stored.setValue("geometry", self.saveGeometry())
            stored.setValue("layout", self.saveState(LAYOUT_VERSION))
        if self.bench.runner.busy:
            self.statusBar().showMessage("Waiting for running work to stop…")
            self.statusBar().repaint()
        self.bench.runner.close()
        self.log_dock.close_log()
        super().closeEvent(event)

    @property
    def waiting(self) -> bool:
        """Whether any visible dock awaits an answer."""
        return any(getattr(d, "waiting", False) for d in self.docks.values() if d.isVisible())
