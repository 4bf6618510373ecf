"""“Do this over…” with the real process: declared from a panel, started, stopped, gone on with, watched by another window."""

from __future__ import annotations

import os
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pytestqt.qtbot import QtBot

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.disk.file_lock import holder_of
from circuitlab.gui.docks.process_row import ProcessRow
from circuitlab.gui.shell.window import Window
from circuitlab.gui.sweeping.dialog import SweepDialog
from circuitlab.gui.sweeping.run import SweepRun
from circuitlab.gui.sweeping.sweeps import KEY
from circuitlab.gui.work.settings import settings_file
from circuitlab.model.subject import Head
from circuitlab.sweep.record import LOCK
from tests.gui.driving import command, dock, go, settle


@pytest.fixture
def watched(window: Window) -> Iterator[Window]:
    """The window; at the end no process of it is left."""
    yield window
    for run in runs(window):
        if run.running and run.pid:
            os.kill(run.pid, signal.SIGKILL)
        if run._process is not None:
            run._process.wait()


def runs(window: Window) -> list[SweepRun]:
    return window.dialogs.sweeps.runs


def asked(qtbot: QtBot, window: Window, panel: str, out: Path, **fields: Any) -> SweepDialog:
    """The dialog of a panel's menu, filled in."""
    window.layout_of_docks.go_to(panel)
    settle(qtbot, window)
    dock(window, panel).actions_menu.sweep_action.trigger()
    (dialog,) = [one for one in window.findChildren(SweepDialog) if one.isVisible()]
    for name, value in fields.items():
        dialog.form.form.show_values({name: value})
    dialog.form.out.setText(str(out))
    return dialog


def started(qtbot: QtBot, window: Window, dialog: SweepDialog) -> SweepRun:
    qtbot.waitUntil(dialog.start.isEnabled)
    dialog.start.click()
    return runs(window)[-1]


def row_of(window: Window, run: SweepRun) -> ProcessRow:
    window.jobs.refresh()
    (row,) = [row for row in window.jobs.processes if row.process is run]
    return row


def ended(run: SweepRun) -> bool:
    return not run.running


def test_a_panel_is_swept_and_its_table_is_that_of_the_command(watched: Window, qtbot: QtBot, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one two one two\na b a b\n" + "word " * 200, encoding="utf-8")
    dialog = asked(qtbot, watched, "attribution", tmp_path / "out", prompts="a file", file=str(prompts))
    declared = tomllib.loads(dialog.declaration.toPlainText())
    assert declared["prompts"] == [{"file": str(prompts), "split": "lines", "name": "prompts"}]
    assert [one["name"] for one in declared["analyses"]] == ["direct_attribution"]
    qtbot.waitUntil(dialog.start.isEnabled)
    assert "3 cells; 2 to be answered" in dialog.message.text() and "1 refused" in dialog.message.text()
    assert not (tmp_path / "out").exists(), "nothing is written before it starts"
    run = started(qtbot, watched, dialog)
    assert run.running and watched.jobs.isVisible()
    qtbot.waitUntil(lambda: ended(run))
    assert (run.outcome, run.error, run.counts) == ("done", "", {"done": 2, "refused": 1})
    (tmp_path / "by hand.toml").write_text((tmp_path / "out" / "spec.toml").read_text("utf-8"), encoding="utf-8")
    assert main(["sweep", str(tmp_path / "by hand.toml"), "-o", str(tmp_path / "again")]) == 0
    assert (tmp_path / "out" / "table.csv").read_bytes() == (tmp_path / "again" / "table.csv").read_bytes()
    own = pd.read_csv(tmp_path / "out" / "table.csv").query("prompt == 1 and metric == 'heads'")
    model = lab.open(watched.context.document.state.model.source)
    heads = model.compute("direct_attribution", text="one two one two").result.across()["heads"]
    for layer, head, value in zip(*(own[name].tolist() for name in ("layer", "head", "value")), strict=True):
        assert heads[int(layer), int(head)] == pytest.approx(value, rel=1e-6)


@pytest.mark.slow
def test_stopped_gone_on_with_and_put_away(watched: Window, qtbot: QtBot, tmp_path: Path) -> None:
    prompts = tmp_path / "many.txt"
    prompts.write_text("\n".join(f"one two {i} one two" for i in range(3000)), encoding="utf-8")
    out = tmp_path / "out"
    run = started(qtbot, watched, asked(qtbot, watched, "ablation", out, prompts="a file", file=str(prompts)))
    qtbot.waitUntil(lambda: run.answered > 0)
    row = row_of(watched, run)
    assert row.stop.isVisibleTo(row) and not row.away.isVisibleTo(row) and "of 3,000 questions" in row.label.text()
    row.stop.click()
    assert run.stopping and row_of(watched, run).stop.text() == "Kill"
    qtbot.waitUntil(lambda: ended(run))
    assert run.outcome == "stopped" and 0 < run.answered < 3000
    table = pd.read_csv(out / "table.csv", low_memory=False)
    assert len(set(table[table["status"] == "done"]["cell"])) == run.counts["done"], "what is done is in the table"
    dialog = asked(qtbot, watched, "ablation", out, prompts="a file", file=str(prompts))
    qtbot.waitUntil(dialog.start.isEnabled)
    assert dialog.start.text() == "Go on" and f"{run.counts['done']:,} questions answered before" in dialog.message.text()
    before = run.counts["done"]
    dialog.start.click()
    (run,) = runs(watched)
    qtbot.waitUntil(lambda: run.answered > before)
    os.kill(run.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: ended(run))
    assert run.outcome == "failed" and "killed" in run.words()
    row_of(watched, run).away.click()
    watched.jobs.refresh()
    assert not runs(watched) and not watched.jobs.processes and (out / "table.csv").exists()


def test_it_outlives_its_window_and_another_one_takes_it_up(
    watched: Window, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = tmp_path / "many.txt"
    prompts.write_text("\n".join(f"one two {i} one two" for i in range(3000)), encoding="utf-8")
    out, sweeps = tmp_path / "out", watched.dialogs.sweeps
    monkeypatch.setattr(watched.settings, "remember", True)
    run = started(qtbot, watched, asked(qtbot, watched, "ablation", out, prompts="a file", file=str(prompts)))
    qtbot.waitUntil(lambda: run.answered > 0)
    assert settings_file().value(KEY) in (str(out), [str(out)])
    process = run._process
    assert process is not None and os.getsid(run.pid) == run.pid != os.getsid(0), "no signal of a terminal reaches it"
    watched.context.processes.leave()  # what the end of a window does
    watched.context.processes.all.clear()
    sweeps.come_back()
    (again,) = runs(watched)
    assert again is not run and again.running and again.pid == process.pid
    seen = again.answered
    qtbot.waitUntil(lambda: again.answered > seen)
    again.stop()
    qtbot.waitUntil(lambda: ended(again))
    assert again.outcome == "stopped" and again.counts["not yet"] and holder_of(out / LOCK) is None
    process.returncode = None
    assert process.wait() == 130
    run.deleteLater()


def test_what_cannot_be_swept_says_why(window: Window, qtbot: QtBot) -> None:
    for panel, why in (("laboratory", "computes nothing"), ("attribution", "")):
        window.layout_of_docks.go_to(panel)
        settle(qtbot, window)
        window.menus.refresh()
        action, menu = command(window, "sweep"), dock(window, panel).actions_menu
        menu.aboutToShow.emit()
        for one in (action, menu.sweep_action):
            assert one.isEnabled() == (not why) and why in one.toolTip()
        window.menus.enable()
    window.layout_of_docks.go_to("laboratory")
    with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "computes nothing" in text):
        go(window, "sweep")
    assert not window.findChildren(SweepDialog)


def test_the_form_declares_what_is_shown(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    go(window, "ablate")
    dialog = asked(qtbot, window, "attribution", tmp_path / "out")
    said = lambda: tomllib.loads(dialog.declaration.toPlainText())
    assert said()["prompts"][0]["texts"] == [window.context.document.state.text]
    assert said()["analyses"][0]["set"]["position"] == len(window.context.document.state.tokens) - 1
    assert said()["edits"] == [{"edit": [f"zero z {Head(0, 0)}"]}] and "plain" not in said()
    dialog.form.fields["plain"].click()
    assert said()["plain"] is False
    dialog.form.fields["prompts"].setCurrentIndex(dialog.form.fields["prompts"].findData("names_repeated"))
    assert said()["prompts"] == [{"set": "names_repeated", "name": "names_repeated"}]
    assert "set" not in said()["analyses"][0], "a line of a set has a position and an answer of its own"
    dialog.form.fields["prompts"].setCurrentIndex(dialog.form.fields["prompts"].findData("a file"))
    assert dialog.declaration.toPlainText() == "" and "Choose a file" in dialog.message.text()
    dialog.form.fields["file"].setText(str(tmp_path / "nothing.txt"))
    qtbot.waitUntil(lambda: dialog.message.property("role") == "warning")
    assert not dialog.start.isEnabled()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    dialog.form.fields["prompts"].setCurrentIndex(0)
    qtbot.waitUntil(lambda: "holds other things" in dialog.message.text())
    dialog.copy.click()
    dialog.close()
    settle(qtbot, window)
