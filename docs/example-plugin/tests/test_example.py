"""The plug-in by the kit, and its numbers by a loop over the losses that another analysis gives."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from circuitlab_example import repeated_loss
from circuitlab_example.repeated_loss import RepeatedLossParams

from circuitlab.testing import Bench, check_analysis, check_panel, check_remainder

TOKENS = (0, 5, 9, 5, 7, 5, 9, 200, 5)


def test_the_analysis_holds_what_every_analysis_holds(tmp_path: Path) -> None:
    check_analysis("repeated_loss", tmp_path)


def test_the_panel_holds_what_every_panel_holds(tmp_path: Path) -> None:
    check_panel("repeated_loss_panel", tmp_path)


def test_the_means_are_those_of_a_loop(tmp_path: Path) -> None:
    bench = Bench.on(tmp_path / "m")
    found = bench.result("repeated_loss", RepeatedLossParams(), TOKENS)
    losses, seen = {True: [], False: []}, {TOKENS[0]}
    for token, loss in zip(TOKENS[1:], bench.result("token_loss", None, TOKENS).loss[1:].tolist(), strict=True):
        losses[token in seen].append(loss)
        seen.add(token)
    for kind, mean, count in zip((True, False), found.loss, found.count, strict=True):
        assert count == len(losses[kind]) and math.isclose(mean, math.fsum(losses[kind]) / count, rel_tol=1e-6)


def test_parts_that_do_not_add_up_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = repeated_loss.shares
    folders = iter(("right", "wrong"))
    check_remainder(
        lambda: Bench.on(tmp_path / next(folders)).result("repeated_loss", None, TOKENS, dtype="float64"),
        lambda: monkeypatch.setattr(repeated_loss, "shares", lambda *args: (right(*args)[0] * 1.1, right(*args)[1])),
    )
