"""Every command of the window, declared once: menus, shortcuts, palette and shortcut sheet all read this table."""

from __future__ import annotations

from collections.abc import Callable

from circuitlab.gui.checkpoints.bar import CheckpointBar
from circuitlab.gui.panel.panel_actions import TABLES, TABLES_TIP
from circuitlab.gui.panel.sweep_question import why_no_sweep
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.shell.command import Command
from circuitlab.gui.shell.window import Window
from circuitlab.gui.work.state_commands import CONVENTIONS
from circuitlab.model.archives.offering import all_obtainable

SHEET_TIP = "Its panels as parts A, B, C of one figure for print, with its caption as text and LaTeX, and its numbers"
FILM_TIP = "What the present step plays, else the whole training, as an animated picture for a slide"
GET_TIP = "Weights along the training of shipped models that are not on this machine: downloaded, or from a file"
MODEL_TIP = "Known models by name, with what each shows, its size and licence: downloaded, then opened"
SWEEP_TIP = "What the panel asks, over training steps and prompts: a sweep in a process of its own, and its table"
CONVENTION_KEYS = {"fold_norm": "Ctrl+Shift+F", "centre": "Ctrl+Shift+M"}


def _has_pin(window: Window) -> bool:
    return bool(window.context.document.state.pins)


def _has_edits(window: Window) -> bool:
    return bool(window.context.document.state.edits)


def _has_assumptions(window: Window) -> bool:
    return bool(window.opening.assumptions())


def _why_no_sweep(window: Window) -> str:
    return why_no_sweep(window.panel.panel, window.context)


def _ask_sweep(window: Window) -> None:
    window.dialogs.ask_sweep(window.panel.panel)


def _can_get(window: Window) -> bool:
    return bool(all_obtainable())


def _get_checkpoints(window: Window) -> None:
    window.dialogs.ask_checkpoints()


def _has_series(window: Window) -> bool:
    return bool(window.checkpoints.points)


def _has_story(window: Window) -> bool:
    return bool(window.context.document.work.story.steps)


def _presentable(window: Window) -> bool:
    return window.presenting.possible


def _present_first(window: Window) -> None:
    window.presenting.from_start()


def _present_here(window: Window) -> None:
    window.presenting.from_here()


def _full_screen(window: Window) -> bool:
    return window.isFullScreen()


def _shows_panels(window: Window) -> bool:
    return bool(window.sheets.panels)


def _export_sheet(window: Window) -> None:
    window.sheets.ask()


def _can_film(window: Window) -> bool:
    return window.films.reel is not None


def _busy(window: Window) -> bool:
    return window.context.runner.busy


def _in_lesson(window: Window) -> bool:
    return window.lessons.tour.lesson is not None


def _in_own_story(window: Window) -> bool:
    return window.lessons.tour.own


def _keep_film(window: Window) -> None:
    window.lessons.own_steps.keep_film()


def _walk(layer: int, head: int) -> Callable[[Window], object]:
    return lambda w: w.state_commands.walk_heads(layer, head)


def _training(
    name: str,
    title: str,
    run: Callable[[CheckpointBar], object],
    shortcut: str = "",
    enabled: Callable[[Window], bool] = _has_series,
) -> Command[Window]:
    go = lambda w: run(w.checkpoints)
    return Command(f"checkpoint-{name}", title, "Go", go, shortcut, enabled=enabled, submenu="Training")


def _panel(name: str, title: str) -> Command[Window]:
    """The command for an action of the panel that was last used."""
    return Command(f"panel-{name.replace('_', '-')}", title, "View", lambda w: w.panel_action(name), submenu="Picture")


def _theme(name: str) -> Command[Window]:
    return Command(
        f"theme-{name}",
        f"Theme: {name}",
        "View",
        lambda w: w.settings.set("theme", name),
        checked=lambda w: w.settings["theme"] == name,
        submenu="Theme",
    )


def _arrange(name: str, shortcut: str) -> Command[Window]:
    return Command(
        f"arrange-{name.lower().replace(' ', '-')}",
        f"Arrange: {name}",
        "View",
        lambda w: w.layout_of_docks.arrange(name),
        shortcut,
        checked=lambda w: w.layout_of_docks.name == name,
        submenu="Arrange",
        tip=ARRANGEMENTS[name].tip,
    )


def _convention(name: str, text: str, on: object, off: object) -> Command[Window]:
    now = lambda w: getattr(w.context.document.recorded.conventions, name) == on
    switch = lambda w: w.state_commands.convention(name, off if now(w) else on)
    return Command(f"convention-{name}", text, "View", switch, CONVENTION_KEYS.get(name, ""), checked=now, submenu="Conventions")


COMMANDS: tuple[Command[Window], ...] = (
    Command("new-session", "New session", "File", lambda w: w.sessions.new(), "Ctrl+N"),
    Command("open-session", "Open session or picture…", "File", lambda w: w.sessions.ask_open(), "Ctrl+Alt+O"),
    Command("recover-session", "Recover a session…", "File", lambda w: w.recovering.look()),
    Command("open", "Open model…", "File", lambda w: w.dialogs.ask_open(), "Ctrl+O", separator=True),
    Command("open-file", "Open model file…", "File", lambda w: w.dialogs.ask_open_file()),
    Command("open-hub", "Open from the hub…", "File", lambda w: w.dialogs.ask_hub(), "Ctrl+Shift+O"),
    Command("get-model", "Get a model…", "File", lambda w: w.dialogs.ask_model(), tip=MODEL_TIP),
    Command("assumed", "What was assumed…", "File", lambda w: w.dialogs.show_assumptions(), enabled=_has_assumptions),
    Command("get-checkpoints", "Get checkpoints…", "File", _get_checkpoints, enabled=_can_get, tip=GET_TIP),
    Command("train", "Train a model…", "File", lambda w: w.dialogs.ask_training()),
    Command("sweep", "Do this over…", "File", _ask_sweep, tip=SWEEP_TIP, why_not=_why_no_sweep),
    Command("open-sweep", TABLES, "File", lambda w: w.dialogs.ask_sweep_folder(), tip=TABLES_TIP),
    Command("reload", "Reload model from disk", "File", lambda w: w.opening.reload()),
    Command("save-session", "Save session", "File", lambda w: w.sessions.save(), "Ctrl+S", separator=True),
    Command("save-session-as", "Save session as…", "File", lambda w: w.sessions.save_as(), "Ctrl+Shift+S"),
    Command(
        "save-session-results",
        "Save session with results…",
        "File",
        lambda w: w.sessions.save_as(results=True),
        tip="Computes what this view and the steps of the story show, and stores it in the file, which then opens without its "
        "models. From then on saving keeps the results, and adds what has been computed",
    ),
    Command(
        "report",
        "Write a report…",
        "File",
        lambda w: w.reports.ask(),
        tip="The steps of the story with their figures and numbers, and where they come from, as one page or PDF. Without steps "
        "what the window shows",
    ),
    Command("copy-session", "Copy this view as a step", "File", lambda w: w.copy_step()),
    Command("export-lesson", "Export story as a lesson…", "File", lambda w: w.lesson_files.ask_export(), enabled=_has_story),
    Command("import-lesson", "Import a lesson as a story…", "File", lambda w: w.lesson_files.ask_import()),
    Command(
        "prepare-story",
        "Prepare the story for presenting",
        "File",
        lambda w: w.preparing.prepare(),
        enabled=_has_story,
        tip="Computes and holds everything that its steps show: while presenting nothing is computed",
    ),
    Command("export-picture", "Export the panel's picture…", "File", lambda w: w.panel_action("export_picture"), "Ctrl+E", True),
    Command("export-data", "Export the panel's data…", "File", lambda w: w.panel_action("export_data"), "Ctrl+Shift+E"),
    Command("export-sheet", "Export this view as a figure…", "File", _export_sheet, enabled=_shows_panels, tip=SHEET_TIP),
    Command("export-film", "Export as a film…", "File", lambda w: w.films.ask(), enabled=_can_film, tip=FILM_TIP),
    Command("settings", "Settings…", "File", lambda w: w.dialogs.show_settings(), "Ctrl+,", separator=True),
    Command("quit", "Quit", "File", lambda w: w.close(), "Ctrl+Q", separator=True),
    Command("undo", "Undo", "Edit", lambda w: w.undo(), "Ctrl+Z", enabled=lambda w: w.can_undo),
    Command("redo", "Redo", "Edit", lambda w: w.redo(), "Ctrl+Shift+Z, Ctrl+Y", enabled=lambda w: w.can_redo),
    Command("release", "Release the selection", "Edit", lambda w: w.release(), "Esc", separator=True),
    Command("ablate", "Ablate the chosen heads, or restore them", "Edit", lambda w: w.state_commands.ablate(), "Ctrl+B"),
    Command("clear-edits", "Remove all interventions", "Edit", lambda w: w.state_commands.clear_edits(), enabled=_has_edits),
    Command("add-step", "Add this view as a step", "Edit", lambda w: w.lessons.own_steps.keep_view(), "Ctrl+K", separator=True),
    Command("note-session", "Write a note…", "Edit", lambda w: w.lessons.notes.write()),
    Command("prompt", "Edit the prompt", "Edit", lambda w: w.edit_prompt(), "Ctrl+L", separator=True),
    Command("continue", "Continue the text", "Edit", lambda w: w.prompt.continue_text(), "Ctrl+Return"),
    Command("continue-one", "Continue by one token", "Edit", lambda w: w.prompt.continue_text(1), "Ctrl+Shift+Return"),
    Command("cancel", "Cancel all computations", "Edit", lambda w: w.context.runner.cancel_all(), "Ctrl+.", enabled=_busy),
    Command("head-left", "Previous head", "Go", _walk(0, -1), "Alt+Left"),
    Command("head-right", "Next head", "Go", _walk(0, 1), "Alt+Right"),
    Command("head-up", "Same head, layer before", "Go", _walk(-1, 0), "Alt+Up"),
    Command("head-down", "Same head, layer after", "Go", _walk(1, 0), "Alt+Down"),
    Command("all-heads", "Select all heads of this layer", "Go", lambda w: w.state_commands.select_layer(), "Alt+A"),
    Command("token-left", "Previous token", "Go", lambda w: w.state_commands.walk_tokens(-1), "Alt+Shift+Left", separator=True),
    Command("token-right", "Next token", "Go", lambda w: w.state_commands.walk_tokens(1), "Alt+Shift+Right"),
    _training("first", "First checkpoint", lambda bar: bar.to_first()),
    _training("previous", "Previous checkpoint", lambda bar: bar.step_back(), "["),
    _training("next", "Next checkpoint", lambda bar: bar.step_on(), "]"),
    _training("last", "Final weights", lambda bar: bar.to_last()),
    _training("play", "Play the training, or stop", lambda bar: bar.play_or_stop(), "Ctrl+T", lambda w: w.checkpoints.plays),
    _training("loop", "Loop the training, or not", lambda bar: bar.loop.toggle()),
    Command("checkpoint-film", "Keep it as a step that plays", "Go", _keep_film, enabled=_has_series, submenu="Training"),
    _training("pin", "Pin this checkpoint and show differences", lambda bar: bar.pin_this()),
    *(_convention(name, text, on, off) for name, text, on, off, _ in CONVENTIONS),
    Command("raw", "Raw or folded weights", "View", lambda w: w.state_commands.raw_or_folded(), "Ctrl+R", submenu="Conventions"),
    Command("pin", "Pin this as the reference", "View", lambda w: w.state_commands.pin(), "Ctrl+P"),
    Command("unpin", "Unpin", "View", lambda w: w.state_commands.unpin(), "Ctrl+Shift+U", enabled=_has_pin),
    Command("compare", "Compare: now, reference, difference", "View", lambda w: w.state_commands.next_compare(), "Ctrl+D"),
    _theme("system"),
    _theme("light"),
    _theme("dark"),
    *(_arrange(name, f"Ctrl+Alt+{i}") for i, name in enumerate(ARRANGEMENTS, 1)),
    Command("larger", "Larger text", "View", lambda w: w.theme_controller.scale_text(0.1), "Ctrl++, Ctrl+=", separator=True),
    Command("smaller", "Smaller text", "View", lambda w: w.theme_controller.scale_text(-0.1), "Ctrl+-"),
    Command("usual-size", "Usual text size", "View", lambda w: w.theme_controller.usual_text(), "Ctrl+0"),
    Command("maximise", "Maximise or restore the panel", "View", lambda w: w.toggle_maximised(), "F10", separator=True),
    Command("full-screen", "Full screen", "View", lambda w: w.toggle_full_screen(), "F11", checked=_full_screen),
    Command("present", "Present…", "View", lambda w: w.presenting.ask(), enabled=_presentable, separator=True),
    Command("present-first", "Present from the first step", "View", _present_first, "F5", enabled=_presentable),
    Command("present-here", "Present from this step", "View", _present_here, "Shift+F5", enabled=_presentable),
    Command("explain", "Explain the panel", "View", lambda w: w.panel_action("explain"), "Shift+F1"),
    Command("zoom-in", "Zoom into the picture", "View", lambda w: w.panel.view.zoom(0.8), submenu="Picture"),
    Command("zoom-out", "Zoom out of the picture", "View", lambda w: w.panel.view.zoom(1.25), submenu="Picture"),
    _panel("open_own", "Open what is chosen in its own panel"),
    _panel("show_menu", "Menu of the panel"),
    _panel("copy_image", "Copy the panel's image"),
    _panel("copy_table", "Copy the panel's table"),
    _panel("copy_python", "Copy the panel as Python"),
    _panel("copy_command", "Copy the panel as a command"),
    _panel("fold_caption", "Whole caption of the panel, or a few lines"),
    _panel("again", "Compute the panel again"),
    Command("float", "Float or dock the panel", "View", lambda w: w.panel.bar.float_or_dock(), submenu="Picture"),
    Command("close-panel", "Close the panel", "View", lambda w: w.panel.close(), "Ctrl+W", submenu="Picture"),
    Command("next-panel", "Next panel", "Go", lambda w: w.layout_of_docks.step(1), "F6", separator=True),
    Command("previous-panel", "Previous panel", "Go", lambda w: w.layout_of_docks.step(-1), "Shift+F6"),
    Command("reset-zoom", "Reset zoom", "View", lambda w: w.reset_zoom(), "Alt+0"),
    Command("redock", "Re-dock all panels", "View", lambda w: w.layout_of_docks.redock()),
    Command("reset-layout", "Reset layout", "View", lambda w: w.layout_of_docks.reset()),
    Command("lessons", "Story and lessons", "Help", lambda w: w.lessons.open(), "F2"),
    Command("lesson-next", "Next step of the story", "Help", lambda w: w.lessons.tour.next(), "Alt+PgDown", enabled=_in_lesson),
    Command("lesson-back", "Previous step of the story", "Help", lambda w: w.lessons.tour.back(), "Alt+PgUp", enabled=_in_lesson),
    Command("lesson-again", "Set up the step again", "Help", lambda w: w.lessons.tour.again(), enabled=_in_lesson),
    Command("lesson-leave", "Leave the story", "Help", lambda w: w.lessons.tour.leave(), enabled=_in_lesson),
    Command("story-stay", "Stay at this step of the story", "Help", lambda w: w.lessons.tour.stay(), enabled=_in_own_story),
    Command("palette", "Command palette…", "Help", lambda w: w.dialogs.show_palette(), "Ctrl+Shift+P"),
    Command("shortcuts", "Commands and shortcuts", "Help", lambda w: w.dialogs.show_shortcuts(), "F1"),
    Command("about", "About CircuitLab", "Help", lambda w: w.dialogs.show_about(), separator=True),
)  # fmt: skip
