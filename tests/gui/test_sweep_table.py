"""The page that draws a sweep's tables: its numbers are those that pandas reads, and what is missing is counted and said."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

import circuitlab.api as lab
from circuitlab.disk.paths import shipped
from circuitlab.engine.engine import GIB
from circuitlab.errors import BadInput
from circuitlab.figures.marks import Lines, Rows
from circuitlab.gui.panel.panel_actions import TABLES
from circuitlab.gui.shell.window import Window
from circuitlab.gui.sweeping import pictures
from circuitlab.gui.sweeping.pictures import along_figure, prompts_figure
from circuitlab.gui.sweeping.table_dialog import BY_PROMPT, SweepTableDialog
from circuitlab.sweep.reading import Chosen, SweepTable
from circuitlab.sweep.run import run
from circuitlab.sweep.spec import spec_of
from circuitlab.sweep.work import Machine
from tests.gui.driving import dock, settle
from tests.models import CONFIGS, directory

TEXTS = ["one two one two", "a b c a b", "too long " * 4000, "the cat\nsat"]
OPEN = shipped("models") / "attn-only-2l"
KEPT = sorted(int(path.stem.removeprefix("step-")) for path in (OPEN / "checkpoints").glob("step-*"))
STEPS = (KEPT[1], KEPT[len(KEPT) // 2], KEPT[-1])
EARLY, MIDDLE = map(str, STEPS[:2])
SHAPE = json.loads((OPEN / "config.json").read_text())
LINES = 2 * SHAPE["n_layers"] * SHAPE["n_heads"]  # as many as heads, intact and with an intervention
LOSS = Chosen("token_loss", "mean_loss", "texts")
HEADS = Chosen("direct_attribution", "heads", "texts")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A series at three of its steps and the final weights, with an intervention; and a model whose step no file states."""
    folder = tmp_path_factory.mktemp("sweep")
    directory(folder / "small", CONFIGS["attention-only"])
    data: dict[str, Any] = {
        "title": "a try",
        "models": {"open": ["attn-only-2l", "small"], "steps": [*STEPS, "final"]},
        "prompts": [{"texts": TEXTS}],
        "analyses": [{"name": "token_loss"}, {"name": "direct_attribution"}, {"name": "ov_spectrum"}],
        "edits": [{"name": "no L0H2", "cut": ["L0H2"]}],
    }
    run(spec_of(data, folder), folder / "out", Machine(GIB))
    return folder / "out"


def pandas_table(folder: Path, chosen: Chosen) -> Any:
    table = lab.Sweep(folder).to_pandas()
    of = (table["analysis"] == chosen.analysis) & (table["metric"] == chosen.metric)
    return table[of & (table["prompts"].fillna("") == chosen.prompts)].assign(edit=table["edit"].fillna("unmodified"))


def test_means_along_the_training_are_those_of_pandas(swept: Path) -> None:
    data = SweepTable(swept).along_training(HEADS)
    own = pandas_table(swept, HEADS)
    own = own[own["step"].notna()]
    assert data.steps.tolist() == sorted(int(step) for step in own["step"].unique())
    assert data.unit == own["unit"].iloc[0] and not data.doubled and len(data.names) == LINES
    summary = lab.Sweep(swept).summary()
    assert data.unplaced == (summary["step"].isna() & (summary["metric"] == "heads")).sum() > 0
    seen = 0
    for (edit, layer, head, step), group in own.groupby(["edit", "layer", "head", "step"]):
        i, j = data.names.index(f"attn-only-2l · {edit} · L{int(layer)}H{int(head)}"), data.steps.tolist().index(int(step))
        values = group["value"]
        assert data.n[i, j] == values.count() == 3, "the prompt that is too long has no value"
        np.testing.assert_allclose(data.mean[i, j], values.mean(), rtol=1e-9)
        np.testing.assert_allclose(data.sd[i, j], values.std(ddof=1), rtol=1e-9)
        np.testing.assert_allclose(data.se[i, j], values.sem(), rtol=1e-9)
        seen += 1
    assert seen == np.isfinite(data.mean).sum() == LINES * 4


def test_values_by_prompt_are_those_of_pandas(swept: Path) -> None:
    result = SweepTable(swept).by_prompt(LOSS, MIDDLE)
    own = pandas_table(swept, LOSS).query(f"step == {MIDDLE}")
    assert result.numbers.tolist() == [1, 2, 4] and result.texts == (TEXTS[0], TEXTS[1], TEXTS[3]) and result.unit == "nats"
    for i, edit in enumerate(("unmodified", "no L0H2")):
        assert result.names[i] == edit
        values = own[own["edit"] == edit].set_index("prompt")["value"]
        assert result.values[:, i].tolist() == [values[n] for n in (1, 2, 4)]


def test_the_caption_says_what_was_measured_what_failed_and_of_which_weights(swept: Path) -> None:
    table, cells = SweepTable(swept), pd.read_csv(swept / "cells.csv")
    assert table.counts == cells["status"].value_counts().to_dict()
    figure = along_figure(table, LOSS, table.along_training(LOSS), MIDDLE)
    refused, unplaced = (cells["status"] == "refused").sum(), 2
    for words in (
        "token_loss: mean_loss over the prompts of texts",
        "means weighted by tokens",
        f"{unplaced} rows not drawn",
        f"of {len(cells)} cells {refused} refused",
        f"table.csv sha256 {hashlib.sha256((swept / 'table.csv').read_bytes()).hexdigest()[:12]}",
        cells.query("model == 'attn-only-2l' and final")["weights"].dropna().iloc[0][:12],
        "torch",
    ):
        assert words in figure.caption, words
    lines, rows = figure.find("along the training"), figure.find("at one step")
    assert isinstance(lines, Lines) and isinstance(rows, Rows)
    assert lines.y_axis.label == "mean mean_loss, nats" and lines.current == int(MIDDLE)
    assert rows.heading == f"At step {int(MIDDLE):,}"
    assert [column.name for column in rows.columns][1:] == ["mean", "s.e.", "sd", "prompts"]


def test_what_is_left_out_is_announced(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = SweepTable(swept)
    data = table.along_training(HEADS)
    monkeypatch.setattr(pictures, "MOST", 3)
    monkeypatch.setattr(pictures, "COLUMNS", 2)
    figure = along_figure(table, HEADS, data, MIDDLE)
    lines = figure.find("along the training")
    assert isinstance(lines, Lines) and figure.shown == (3, len(data.names))
    spread = np.nanmax(data.mean, axis=1) - np.nanmin(data.mean, axis=1)
    assert {data.names.index(name) for name in lines.names} == set(np.argsort(-spread)[:3].tolist())
    result = table.by_prompt(HEADS, MIDDLE)
    assert prompts_figure(table, HEADS, result, MIDDLE).shown == (2, len(result.names))


def test_weights_alone_have_lines_and_no_prompt(swept: Path) -> None:
    table = SweepTable(swept)
    (chosen, *_) = [one for one in table.choices if one.analysis == "ov_spectrum"]
    assert chosen.prompts == "" and "without a prompt" in along_figure(table, chosen, table.along_training(chosen), "").caption


def test_the_dialog_draws_what_is_chosen(window: Window, qtbot: QtBot, swept: Path, tmp_path: Path) -> None:
    window.dialogs.open_sweep(swept)
    (dialog,) = window.findChildren(SweepTableDialog)
    settle(qtbot, window)
    qtbot.waitUntil(lambda: isinstance(dialog.view.figure.find("along the training"), Lines))
    assert dialog.form is not None and dialog.form.value("step") == str(int(pandas_table(swept, LOSS)["step"].max()))
    dialog.form.widgets["step"].setCurrentIndex(dialog.form.widgets["step"].findData(EARLY))
    dialog.form.widgets["page"].setCurrentIndex(dialog.form.widgets["page"].findData(BY_PROMPT))
    qtbot.waitUntil(lambda: dialog.view.figure.find("by prompt") is not None)
    settle(qtbot, window)
    rows, own = dialog.view.figure.find("by prompt"), SweepTable(swept).by_prompt(LOSS, EARLY)
    assert isinstance(rows, Rows) and rows.columns[2].values.tolist() == own.values[:, 0].tolist()
    assert dialog.subject() == f"sweep out, {LOSS.words()}"
    for kind in ("svg", "pdf", "png"):
        with qtbot.waitSignal(window.context.message, check_params_cb=lambda text: "Written" in text):
            dialog.pictures.write(tmp_path / f"s.{kind}")
    words = " ".join(ElementTree.parse(tmp_path / "s.svg").getroot().itertext())
    assert (
        "token_loss: mean_loss" in words
        and f"sha256 {hashlib.sha256((swept / 'table.csv').read_bytes()).hexdigest()[:12]}" in words
    )
    (run_of,) = window.dialogs.sweeps.runs
    assert run_of.outcome == "done" and run_of.shows
    dialog.close()
    settle(qtbot, window)


@pytest.mark.parametrize("panel", ["training", "prompt_sets"])
def test_panels_that_show_the_same_open_it(
    window: Window, qtbot: QtBot, swept: Path, monkeypatch: pytest.MonkeyPatch, panel: str
) -> None:
    chosen = iter(["", str(swept)])
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: next(chosen))
    menu = dock(window, panel).actions_menu
    (action,) = [one for one in menu.actions() if one.text() == TABLES]
    action.trigger()  # and no folder is chosen
    assert not window.findChildren(SweepTableDialog)
    action.trigger()
    (dialog,) = window.findChildren(SweepTableDialog)
    assert dialog.folder == swept
    qtbot.waitUntil(lambda: isinstance(dialog.view.figure.find("along the training"), Lines))
    dialog.close()
    settle(qtbot, window)


def test_other_panels_offer_no_tables(window: Window) -> None:
    offering = {one.panel.name for one in window._panels() if TABLES in {a.text() for a in one.actions_menu.actions()}}
    assert offering == {"training", "prompt_sets"}


def test_a_folder_without_tables_says_so(window: Window, qtbot: QtBot, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no tables yet"):
        SweepTable(tmp_path)
    dialog = SweepTableDialog(tmp_path, window.context, window)
    dialog.show()
    qtbot.waitUntil(lambda: "no tables yet" in dialog.view.figure.why_empty)
    assert not dialog.export.isEnabled() and not dialog.copy.isEnabled()
    dialog.close()
    settle(qtbot, window)
