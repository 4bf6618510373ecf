"""Estimates in the maps of ablation and patching: every cell says whether it is one, until the exact value is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import NullContext
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Heatmap
from circuitlab.model.subject import Head, ModelRef, Subject
from circuitlab.state.state import Pin, State
from tests.models import CONFIGS, directory

TOKENS, PINNED = (0, 5, 9, 5, 7, 5, 9, 8) * 3, (0, 5, 3, 5, 7, 5, 9, 8) * 3


class Kept(NullContext):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def partial(self, result: Any) -> None:
        self.seen.append(result)


@pytest.mark.parametrize(("name", "mark"), [("ablation", "map"), ("patching", "grid")])
def test_each_estimated_cell_is_hatched_until_it_is_exact(tmp_path: Path, name: str, mark: str) -> None:
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['gpt2'])}")
    state = State(ref).with_tokens(TOKENS).select(heads=(Head(1, 2),))
    state = replace(state, pins=(Pin("pinned", Subject(ref, PINNED)),))
    panel, facts, kept = find_panel(name), facts_of(engine, ref), Kept()
    asked = panel.requests(state, facts)
    assert not isinstance(asked, Why)
    ((kind, request),) = asked.items()
    made, marked = engine.answer(request, kept, fresh=True), []
    results: list[Any] = [*kept.seen, made.result]
    for result in results:
        figure = panel.figure(state, facts, {kind: replace(made, result=result, complete=result is made.result)}, {})
        heat = figure.find(mark)
        assert isinstance(heat, Heatmap) and heat.hatched is not None
        estimated = ~result.exact & np.isfinite(heat.values)
        outside = ~result.inside & result.exact if name == "patching" else np.zeros_like(estimated)
        np.testing.assert_array_equal(heat.hatched, estimated | outside)
        if estimated.any():
            assert heat.texts is not None
            np.testing.assert_array_equal(heat.texts == "≈", estimated)
        assert ("first-order estimates" in figure.caption and "≈" in figure.caption) == bool(estimated.any())
        marked.append(int(estimated.sum()))
    assert max(marked) > marked[-1] == 0
    assert name == "ablation" or "first-order estimates off by" in " ".join(made.result.conventions)
