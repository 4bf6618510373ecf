"""The head that a window begins with, from the metrics beside the weights, whatever these hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuitlab.engine.store import ModelStore, reference
from circuitlab.gui.sessions.first_state import first_state, looking_at_induction
from circuitlab.model.subject import Head
from tests.models import directory

HOSTILE = {
    "nested": '{"heads": {"prefix_matching": ' + "[" * 200_000 + "]" * 200_000 + "}}",
    "nested at the end": '{"heads": {"prefix_matching": ' + "[" * 2_000,
    "a head that is not there": json.dumps({"heads": {"prefix_matching": [[0.0, 0.0, 0.0, 0.0, 0.9], [0.0] * 4]}}),
    "a layer that is not there": json.dumps({"heads": {"prefix_matching": [[0.0] * 4] * 3}}),
    "no numbers": json.dumps({"heads": {"prefix_matching": [["a", None, {}, []], [0, 0, 0, 0]]}}),
    "no finite one": json.dumps({"heads": {"prefix_matching": [[float("nan")] * 4, [float("inf")] * 4]}}),
    "another shape": json.dumps({"heads": [1, 2]}),
    "a list": "[1, 2]",
    "no JSON": "{",
    "empty": "",
}


def first_head(folder: Path) -> Head:
    ref = reference(str(folder))
    model = ModelStore().open(ref)
    return looking_at_induction(model, first_state(ref, "one two")).selection.head


@pytest.mark.parametrize("kind", HOSTILE)
def test_metrics_that_mean_nothing_leave_the_first_head(tmp_path: Path, kind: str) -> None:
    folder = directory(tmp_path / "model")
    (folder / "metrics.json").write_text(HOSTILE[kind], encoding="utf-8")
    assert first_head(folder) == Head(0, 0)


def test_the_best_finite_score_is_looked_at_first(tmp_path: Path) -> None:
    folder = directory(tmp_path / "model")
    scores = [[0.1, 0.2, 0.0, 0.0], [0.0, float("nan"), 0.7, 0.3]]
    (folder / "metrics.json").write_text(json.dumps({"heads": {"prefix_matching": scores}}), encoding="utf-8")
    assert first_head(folder) == Head(1, 2)
