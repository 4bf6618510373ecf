"""“Train a model…” with the real process: checked, trained, stopped, killed and taken up again, opened; errors in words."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from circuitlab.disk.paths import resource
from circuitlab.errors import BadMachine, CircuitLabError
from circuitlab.figures.marks import Lines
from circuitlab.gui.shell.window import Window
from circuitlab.gui.training import view as training_view
from circuitlab.gui.training.curves import MOST, curves_of, longer
from circuitlab.gui.training.dialog import TrainingDialog
from circuitlab.gui.training.job import (
    Curves,
    Progress,
    TrainingJob,
    check,
    read_curves,
    read_progress,
)
from circuitlab.gui.training.process import ELSEWHERE
from circuitlab.gui.training.view import GOES_ON, NOTHING, left_in_words
from circuitlab.gui.work.own_process import in_words
from circuitlab.training.corpus import find_sources
from circuitlab.training.files import alone_in
from circuitlab.training.identity import claim, identity
from circuitlab.training.part_way import part_way
from circuitlab.training.progress import StepLine
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.series_points import tokens_after
from tests.gui.driving import settle
from tests.models import directory
from tests.patience import SECONDS

TEXT = "One day the fox met two hens, three cats and a dog. The fox said: what a day, what a fine day to meet! " * 60


@pytest.fixture
def dialog(window: Window, qtbot: QtBot) -> Iterator[TrainingDialog]:
    window.dialogs.ask_training()
    widget = window.findChild(TrainingDialog)
    assert isinstance(widget, TrainingDialog)
    yield widget
    widget.process.end()
    settle(qtbot, window)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "fables.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def longer_recipe(folder: Path, steps: int) -> str:
    """`tiny` with so many steps that there is time to stop it."""
    path = folder / "longer.toml"
    kept = resource("recipes", "tiny.toml").read_text(encoding="utf-8")
    path.write_text(kept.replace("steps = 20", f"steps = {steps}"), encoding="utf-8")
    return str(path)


def filled(qtbot: QtBot, dialog: TrainingDialog, recipe: str, text: Path, out: Path) -> None:
    dialog.form.choose_recipe(recipe)
    dialog.form.texts.add(str(text))
    dialog.form.out.setText(str(out))
    qtbot.waitUntil(lambda: dialog.form.checked is not None)
    assert dialog.start.isEnabled()


def training(dialog: TrainingDialog, past: int = 0) -> bool:
    return dialog.view.progress.state == "training" and dialog.view.progress.step > past


def ended(dialog: TrainingDialog) -> bool:
    return not dialog.process.running


def test_a_model_is_trained_and_opened(window: Window, qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    filled(qtbot, dialog, "tiny", text, out)
    assert "2 layers" in dialog.form.message.text()
    assert f"{12 * 4 * 24 + 8 * 2 * 32:,} tokens" in dialog.form.message.text()
    assert not dialog.process.running
    dialog.start.click()
    assert dialog.process.running
    assert dialog.view.stop.isEnabled()
    qtbot.waitUntil(lambda: ended(dialog))
    assert (dialog.process.outcome, dialog.process.error) == ("done", "")
    settle(qtbot, window)
    view = dialog.view
    assert view.progress_label.text().count("20") == 2
    assert view.bar.value() == 1000
    assert str(out / "model") in view.log.toPlainText()
    heads = view.view.figure.find("prefix matching")
    assert isinstance(heads, Lines)
    kept = json.loads((out / "metrics.json").read_text(encoding="utf-8"))["checkpoints"]
    np.testing.assert_array_equal(heads.x, [c["step"] for c in kept])
    np.testing.assert_allclose(heads.ys[heads.names.index("L1H0")], [c["heads"]["prefix_matching"][1][0] for c in kept])
    losses = view.view.figure.find("loss at checkpoints")
    assert isinstance(losses, Lines)
    np.testing.assert_allclose(losses.ys[0], [c["loss"] for c in kept])
    assert not view.resume.isEnabled()
    with qtbot.waitSignal(window.opening.opened):
        view.open.click()
    assert window.context.document.state.model.source == f"file:{out / 'model'}"


@pytest.mark.slow
def test_stopped_killed_and_taken_up_again_nothing_is_lost(
    window: Window, qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path
) -> None:
    out, recipe = tmp_path / "run", longer_recipe(tmp_path, 2500)
    view, process = dialog.view, dialog.process
    filled(qtbot, dialog, recipe, text, out)
    dialog.start.click()
    qtbot.waitUntil(lambda: training(dialog))
    view.stop.click()
    assert process.stopping
    qtbot.waitUntil(lambda: ended(dialog))
    assert (process.outcome, process.error) == ("stopped", "")
    step = view.progress.step
    assert f"{step:,}" in view.progress_label.text()
    view.new_run.click()
    qtbot.waitUntil(lambda: dialog.form.checked is not None and dialog.form.checked.resumes)
    assert "Resume" in dialog.start.text()
    assert dialog.form.message.text()
    dialog.start.click()
    qtbot.waitUntil(lambda: f"resumed at step {step}" in view.log.toPlainText())
    qtbot.waitUntil(lambda: training(dialog, step))
    os.kill(process.pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: ended(dialog))
    assert process.outcome == "failed"
    assert view.error.isVisible() and view.resume.isEnabled()
    assert not (out / "model" / "config.json").is_file()
    view.open.click()
    qtbot.waitUntil(lambda: window.context.document.state.model.source == f"file:{out / 'so-far'}")
    view.resume.click()
    assert view.error.isHidden()
    qtbot.waitUntil(lambda: ended(dialog))
    assert process.outcome == "done"
    steps = [c["step"] for c in json.loads((out / "metrics.json").read_text(encoding="utf-8"))["checkpoints"]]
    assert steps == list(read_recipe(recipe).checkpoints.steps(2500))
    assert (out / "model" / "config.json").is_file()
    assert (part_way(out, read_recipe(recipe)) / "checkpoints" / "step-002500.safetensors").is_file()


@pytest.mark.slow
def test_it_goes_on_without_the_window(
    window: Window, qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    out = tmp_path / "run"
    filled(qtbot, dialog, longer_recipe(tmp_path, 20000), text, out)
    dialog.start.click()
    qtbot.waitUntil(lambda: training(dialog))
    monkeypatch.setattr(dialog, "ask_close", lambda: "keep")
    assert dialog.may_close()
    assert not dialog.process.running
    step = dialog.view.progress.step
    result = lambda: (read_progress(out) or Progress()).step
    try:
        qtbot.waitUntil(lambda: (out / "train.log").is_file() and result() > step + 20)
        assert "resumed at step" in (out / "train.log").read_text(encoding="utf-8")
        dialog.view.resume.click()  # by another window, for instance
        qtbot.waitUntil(lambda: dialog.process.elsewhere)
        assert GOES_ON in dialog.view.error.text()
        qtbot.waitUntil(lambda: training(dialog, step + 20))
        dialog.view.stop.click()
        qtbot.waitUntil(lambda: dialog.process.outcome == "stopped")
        assert not dialog.view.stop.isEnabled()
    finally:
        with contextlib.suppress(OSError):
            os.kill(int((out / "state" / "lock").read_text("ascii").strip()), signal.SIGKILL)


def test_closing_the_window_asks_what_becomes_of_a_run(window: Window, dialog: TrainingDialog, monkeypatch: Any) -> None:
    assert dialog.may_close()
    done, pending = list[str](), ["stay"]
    monkeypatch.setattr(type(dialog.process), "running", property(lambda self: True))
    monkeypatch.setattr(dialog.process, "end", lambda: done.append("stop"))
    monkeypatch.setattr(dialog.process, "hand_over", lambda: not done.append("keep"))
    monkeypatch.setattr(dialog, "ask_close", lambda: pending[0])
    dialog.close()
    assert not window.close()
    assert window.isVisible()
    assert not done
    for pending[0] in ("stop", "keep"):
        assert dialog.may_close()
        assert done[-1] == pending[0]
    monkeypatch.setattr(dialog.process, "hand_over", lambda: False)
    dialog.process.outcome = "stopped"
    assert not dialog.may_close(), "what was to go on and does not is not lost with the window"
    dialog.process.outcome = "done"
    assert dialog.may_close()
    dialog.process.outcome = ""
    assert window.close()
    monkeypatch.undo()


def test_a_process_that_is_gone_is_not_signalled(dialog: TrainingDialog, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").write_text(f" {os.getpid()}\n")  # of a process that ended; its number is ours by now
    sent = list[int]()
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
    dialog.process.job = TrainingJob("tiny", out=str(tmp_path))
    dialog.process.set_outcome("failed", ELSEWHERE)
    dialog.process.stop_elsewhere()
    assert not sent
    assert dialog.process.outcome == "stopped"
    with alone_in(tmp_path / "state"):
        dialog.process.set_outcome("failed", ELSEWHERE)
        dialog.process.stop_elsewhere()
    assert sent == [os.getpid()]
    assert dialog.process.outcome == "failed"


def test_what_cannot_start_is_said_and_what_can_may_be_started(
    qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path
) -> None:
    qtbot.waitUntil(lambda: "Add the text" in dialog.form.message.text())
    assert dialog.form.message.property("role") == ""
    filled(qtbot, dialog, "tiny", text, tmp_path / "run")
    dialog.form.texts.add(str(tmp_path / "missing.txt"))
    assert dialog.form.checked is None
    assert not dialog.start.isEnabled()
    qtbot.waitUntil(lambda: "A text file does not exist." in dialog.form.message.text())
    assert dialog.form.message.property("role") == "warning"
    assert not dialog.start.isEnabled()
    dialog.form.texts.table.selectRow(1)
    dialog.form.texts.remove.click()
    qtbot.waitUntil(dialog.start.isEnabled)
    assert dialog.form.job() == TrainingJob("tiny", ((str(text), ""),), str(tmp_path / "run"))
    dialog.form.seed.setValue(9)
    dialog.form.texts.add("stdlib", "0.25")
    assert dialog.form.job().seed == 9
    assert dialog.form.job().text == ((str(text), ""), ("stdlib", "0.25"))
    assert not (tmp_path / "run").exists()


def test_errors_of_the_process_are_shown_in_its_words(qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path) -> None:
    filled(qtbot, dialog, "tiny", text, tmp_path / "run")
    text.write_text("Too short.", encoding="utf-8")
    dialog.start.click()
    qtbot.waitUntil(lambda: ended(dialog))
    assert dialog.process.outcome == "failed"
    assert dialog.view.error.isVisible()
    assert "Expected:" in dialog.view.error.text()
    assert dialog.view.resume.isEnabled() and not dialog.view.open.isEnabled(), "there is no checkpoint yet"
    assert dialog.view.view.figure.why_empty == NOTHING
    dialog.view.new_run.click()
    assert dialog.pages.currentIndex() == 0


def test_what_a_run_before_left_is_not_how_far_this_one_is(
    qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of progress is that of another run until it changes; what is trained again is drawn again."""
    out, view = tmp_path / "run", dialog.view
    out.mkdir()
    say = lambda **values: (out / "progress.json").write_text(json.dumps({"steps": 20, **values}), encoding="utf-8")
    say(step=20, state="done", loss=4.0)
    monkeypatch.setattr(dialog.process, "start", lambda job: None)
    view.begin(check(TrainingJob("tiny", ((str(text), ""),), str(out))))
    view.look()
    assert (view.progress.step, view.progress.state) == (0, "")
    for step, loss in ((6, 5.5), (9, 5.25), (12, 5.0)):
        say(step=step, state="training", loss=loss)
        view.look()
    assert view.losses == {6: 5.5, 9: 5.25, 12: 5.0} and "step 12 of 20" in view.progress_label.text().lower()
    view._resuming = True  # from what was saved at step 8
    say(step=8, state="training", loss=5.375)
    view.look()
    assert view.losses == {6: 5.5, 8: 5.375}
    say(step=11, state="training", loss=5.125)
    view.look()
    assert view.losses == {6: 5.5, 8: 5.375, 11: 5.125} and view.bar.value() == 550
    view.curves = curves = Curves(*[np.arange(2.0)] * 4)
    (out / "metrics.json").write_text("{", encoding="utf-8")  # while the run is writing it
    view.look()
    runner = dialog.form.runner
    assert runner.busy
    qtbot.waitUntil(lambda: not runner.busy)
    assert view.curves is curves


def test_curves_of_an_earlier_run_stay_out_of_the_next_one(
    qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is still being read when the next run begins."""
    view, reading, go_on = dialog.view, threading.Event(), threading.Event()
    earlier = Curves(*[np.arange(2.0)] * 4)

    def read(out: Path) -> Curves:
        reading.set()
        assert go_on.wait(SECONDS)
        return earlier

    monkeypatch.setattr(training_view, "read_curves", read)
    monkeypatch.setattr(dialog.process, "start", lambda job: None)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        view.begin(check(TrainingJob("tiny", ((str(text), ""),), str(tmp_path / name))))
        if name == "one":
            (tmp_path / name / "metrics.json").write_text("{}", encoding="utf-8")
            view.look()
            qtbot.waitUntil(reading.is_set)  # behind what the form had asked for, which ends in the loop
    go_on.set()
    qtbot.waitUntil(lambda: not dialog.form.runner.busy)
    assert view.curves is None
    (tmp_path / "two" / "metrics.json").write_text("{}", encoding="utf-8")
    view.look()
    qtbot.waitUntil(lambda: not dialog.form.runner.busy)
    assert view.curves is earlier


def test_a_process_that_cannot_be_started_is_said(qtbot: QtBot, dialog: TrainingDialog, text: Path, tmp_path: Path) -> None:
    filled(qtbot, dialog, "tiny", text, tmp_path / "run")
    dialog.process.program = str(tmp_path / "no-python")
    dialog.start.click()
    qtbot.waitUntil(lambda: "could not be started" in dialog.view.error.text())
    assert not dialog.view.stop.isEnabled()
    assert dialog.view.resume.isEnabled()


# -- what needs no process -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recipe": ""}, "Choose a recipe."),
        ({"recipe": "nothing"}, "There is no such recipe."),
        ({"recipe": "HERE/broken.toml"}, "is not TOML"),
        ({"text": ()}, "Add the text to train on."),
        ({"text": (("HERE/missing.txt", ""),)}, "A text file does not exist."),
        ({"text": (("HERE/fables.txt", "0,5"),)}, "A share is not a number."),
        ({"text": (("HERE/fables.txt", "0.5"),)}, "Shares do not add up."),
        ({"text": (("HERE/empty", ""),)}, "A folder holds no text."),
        ({"out": ""}, "Choose a folder"),
        ({"out": "runs/here"}, "The folder must be a full path."),
        ({"out": "HERE/fables.txt/run"}, "The folder cannot be created."),
        ({"device": "mps"}, "There is no device mps here."),
        ({"tokenizer": "HERE/model/tokenizer.json"}, "not of the recipe's size"),
        ({"seed": 9, "out": "HERE/begun"}, "The folder holds another run."),
    ],
)
def test_what_is_known_before_a_run_starts(text: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    (tmp_path / "broken.toml").write_text("steps = = 3", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    directory(tmp_path / "model")
    good = TrainingJob("tiny", ((str(text), ""),), str(tmp_path / "begun"))
    result = check(good)
    assert not result.resumes
    begun = tmp_path / "begun" / "state"
    begun.mkdir(parents=True)
    claim(begun, identity(result.recipe, find_sources(good.sources()), None))
    assert check(good).resumes
    assert not check(replace(good, seed=9)).resumes, "nothing was trained there yet"
    (begun / "state.pt").touch()
    here = lambda value: value.replace("HERE", str(tmp_path)) if isinstance(value, str) else value
    made = {k: tuple(tuple(map(here, pair)) for pair in v) if isinstance(v, tuple) else here(v) for k, v in change.items()}
    with pytest.raises(CircuitLabError) as error:
        check(replace(good, **made))
    assert words in error.value.what


def test_a_folder_that_cannot_be_written_is_known_before(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(BadMachine):
        check(TrainingJob("tiny", ((str(text), ""),), str(tmp_path / "a" / "run")))


def test_the_command_line_of_a_job() -> None:
    job = TrainingJob("tiny", (("/a b.txt", "0.5"), ("stdlib", "")), "/out", "/t.json", 7, "cuda", 3)
    words = (
        "-m circuitlab train tiny --text|/a b.txt:0.5|stdlib|--out /out --device cuda --threads 3 --seed 7 --tokenizer /t.json"
    )
    assert " ".join(job.arguments()) == words.replace("|", " ")
    assert "--seed" not in TrainingJob("tiny", (("x", ""),), "/out").arguments()


def test_lines_and_files_that_are_not_whole_are_passed_over(tmp_path: Path) -> None:
    line = "step 50/20000  loss 5.432  9,000 tokens/s  3 min left"
    said = StepLine.parse(line)
    assert said == StepLine(50, 20000, 5.432, 9000.0, 3.0) and str(said) == line
    assert StepLine.parse("checkpoint 4: loss 5.7") is None
    for content in (None, "", '{"step": 3, "sta', "[1]", '{"checkpoints": []}', '{"checkpoints": [{"step": 0}]}'):
        if content is not None:
            (tmp_path / "progress.json").write_text(content, encoding="utf-8")
            (tmp_path / "metrics.json").write_text(content, encoding="utf-8")
        assert read_curves(tmp_path) is None
    assert read_progress(tmp_path / "nowhere") is None
    (tmp_path / "progress.json").write_text('{"step": 3, "later": 1, "loss": null}', encoding="utf-8")
    assert read_progress(tmp_path) == Progress(3, loss=None)
    for odd in ('{"step": "3"}', '{"step": 3.5}', '{"loss": "low"}', '{"state": 1}'):
        (tmp_path / "progress.json").write_text(odd, encoding="utf-8")
        assert read_progress(tmp_path) is None


def test_curves_of_a_model_without_layers_and_of_many_steps(qtbot: QtBot) -> None:
    n = np.zeros(3)
    none = curves_of({0: 5.0, 1: 4.0}, Curves(np.array([0.0, 1, 2]), n, n, n))
    assert [m.name for m in none.marks()] == ["training loss", "loss at checkpoints"]
    assert "no heads" in none.caption
    for mark in none.marks():
        assert isinstance(mark, Lines) and "nats" in mark.y_axis.label and mark.x_axis.whole
    many = curves_of({i: float(i) for i in range(3 * MOST + 1)}, None)
    line = many.marks()[0]
    assert isinstance(line, Lines)
    assert len(line.x) <= MOST + 1
    assert line.x[-1] == line.ys[0, -1] == 3 * MOST
    assert curves_of({}, None).why_empty
    QApplication.processEvents()


def test_words_for_times_errors_and_longer_sequences() -> None:
    assert left_in_words(0.4) == "less than a minute"
    assert left_in_words(12.2) == "12 min"
    assert left_in_words(150) == "2.5 h"
    assert in_words("What.\n  expected: a\n  got:      b\n  do:       c") == "What.\nExpected: a\nGot: b\nc"
    recipe = read_recipe("tiny")
    assert longer(recipe) == ((12.0, "sequences of 32"),)
    assert tokens_after(recipe, recipe.optimiser.steps) == 12 * 4 * 24 + 8 * 2 * 32
    assert Progress(tokens_per_second=100.0, tokens=1000).minutes_left(7000) == 1.0
