"""Panels that show a run as it is, against the forward pass written out: each number at its token, position and head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import panels
from circuitlab.figures.marks import Figure, Hit
from circuitlab.model.subject import Head, ModelRef
from circuitlab.report.render import figure_of
from circuitlab.state.state import Pin, State
from tests.models import TINY, directory
from tests.reference.slow_forward import SlowModel
from tests.rounding import check_largest, check_listed

TOKENS, BEFORE = (0, 5, 9, 5, 7, 5, 9), (0, 5, 9, 200, 7, 5, 9)


class Bench:
    """A small model behind an engine, and the same one written out."""

    def __init__(self, path: Path) -> None:
        self.engine, self.state = Engine(ModelStore()), State(ModelRef(f"file:{path}")).with_tokens(TOKENS)
        self.slow = SlowModel(TINY, load_file(path / "model.safetensors"))

    def draw(self, name: str, state: State | None = None) -> Figure:
        return figure_of(self.engine, panels()[name], state or self.state)

    def probabilities(self, tokens: tuple[int, ...], at: int) -> np.ndarray:
        logits = self.slow.run(tokens)[0][at]
        return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(directory(tmp_path_factory.mktemp("m") / "model", tokenizer=False))


def test_predictions_stand_at_their_tokens(bench: Bench) -> None:
    for at in (None, 3):
        rows: Any = bench.draw("predictions", bench.state.select(destination=at)).find("tokens")
        columns = {c.name: c.values for c in rows.columns}
        p = bench.probabilities(TOKENS, len(TOKENS) - 1 if at is None else at)
        order = rows.ids[:, 0]
        check_largest(order, p, rtol=1e-4)
        assert columns["id"].tolist() == order.tolist()
        assert columns["token"].tolist() == [str(i) for i in order]
        assert columns["#"].tolist() == list(range(1, 21))
        np.testing.assert_allclose(columns["p"], p[order], rtol=1e-4)
        np.testing.assert_allclose(np.diff(columns["logit"]), np.diff(np.log(p[order])), atol=1e-4)


def test_predictions_change_from_then_to_now(bench: Bench) -> None:
    state = bench.state
    pin = Pin("before", state.with_tokens(BEFORE).subject)
    rows: Any = bench.draw("predictions", replace(state, pins=(pin,), compare="difference")).find("tokens")
    columns = {c.name: c.values for c in rows.columns}
    now, then = (bench.probabilities(tokens, 6) for tokens in (TOKENS, BEFORE))
    shown = rows.ids[:, 0].tolist()
    check_listed(shown, 20, now, then, rtol=1e-4)  # what either side lists
    np.testing.assert_allclose(columns["in before"], then[shown], rtol=1e-4)
    np.testing.assert_allclose(columns["Δ"], (now - then)[shown], atol=1e-5)
    assert np.abs(columns["Δ"]).argmax() == 0
    assert (np.diff(np.abs(columns["Δ"])) <= 1e-7).all()


def test_attention_stands_at_its_destination_source_and_head(bench: Bench) -> None:
    patterns = bench.slow.run(TOKENS)[2]
    state = bench.state.select(heads=(Head(1, 2), Head(0, 3)))
    heat: Any = bench.draw("attention", state).find("attention")
    assert (heat.x.label, heat.y.label) == ("source", "destination")
    np.testing.assert_allclose(np.nan_to_num(heat.values), np.tril(patterns[1][2]), atol=1e-5)
    view = replace(panels()["attention"].view(), several="average")
    heat = bench.draw("attention", state.with_view("attention", view)).find("attention")
    np.testing.assert_allclose(np.nan_to_num(heat.values), np.tril(patterns[1][2] + patterns[0][3]) / 2, atol=1e-5)


def test_a_tile_is_the_head_that_a_click_on_it_chooses(bench: Bench) -> None:
    patterns, panel = bench.slow.run(TOKENS)[2], panels()["overview"]
    sheet: Any = bench.draw("overview").find("heads")
    height, width = (size + sheet.tiles.gap for size in (sheet.tiles.height, sheet.tiles.width))
    assert (sheet.x.ticks, sheet.y.ticks) == (("H0", "H1", "H2", "H3"), ("L0", "L1"))
    for row, col in np.ndindex(sheet.tiles.rows, sheet.tiles.cols):
        (head,) = panel.pick(bench.state, Hit("heads", (row, col))).selection.heads
        tile = sheet.values[row * height :][: sheet.tiles.height, col * width :][:, : sheet.tiles.width]
        np.testing.assert_allclose(np.nan_to_num(tile), np.tril(patterns[head.layer][head.head]), atol=1e-5)


@pytest.mark.parametrize(
    ("show", "unit"),
    [("pattern", "weight"), ("scores", "score"), ("value_weighted", "weight · ‖v‖"), ("contribution", "weight · ‖v W_O‖")],
)
def test_what_a_cell_holds_is_its_unit(bench: Bench, show: Any, unit: str) -> None:
    view = replace(panels()["attention"].view(), show=show)
    heat: Any = bench.draw("attention", bench.state.with_view("attention", view)).find("attention")
    assert heat.unit == unit
