"""Attention to where an answer stands, against sums over patterns; over prompt sets, and without such a place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attention.answer_attention import NOWHERE, AnswerAttentionParams
from circuitlab.analysis.base import TextRef
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput
from circuitlab.model.forward import forward
from circuitlab.model.subject import Conventions, ModelRef, Subject, Target
from tests.models import CONFIGS, byte_tokenizer, directory

DOUBLE = Conventions(dtype="float64")
TOKENS = (0, 7, 9, 7, 5, 9, 7, 3)


@pytest.fixture
def engine() -> Engine:
    return Engine(ModelStore())


def subject(folder: Path, name: str = "gpt2", tokens: tuple[int, ...] = TOKENS) -> Subject:
    return Subject(ModelRef(f"file:{directory(folder / 'm', CONFIGS[name])}"), tokens, (), DOUBLE)


def answered(engine: Engine, of: Subject, **params: Any) -> Any:
    return engine.answer(Request.named("answer_attention", AnswerAttentionParams(**params), of)).result


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_it_is_the_sum_over_the_places_of_the_answer(engine: Engine, tmp_path: Path, name: str) -> None:
    of = subject(tmp_path, name)
    run = forward(engine.store.open(of.model).weights(DOUBLE), TOKENS)
    rows = np.array([run.get("pattern", i).numpy() for i in range(run.weights.config.n_layers)])
    result = answered(engine, of, target=Target((7, 9)))
    np.testing.assert_allclose(result.to_source, rows[:, :, 7, [1, 3, 6]].sum(-1), atol=1e-12)
    np.testing.assert_allclose(result.to_other, rows[:, :, 7, [2, 5]].sum(-1), atol=1e-12)
    assert result.sources.tolist() == [1, 3, 6] and result.even == pytest.approx(3 / 8)
    earlier = answered(engine, of, target=Target((7, 9)), position=4)
    np.testing.assert_allclose(earlier.to_source, rows[:, :, 4, [1, 3]].sum(-1), atol=1e-12)
    given = answered(engine, of, target=Target((7, 9)), sources=(5, 4, 4))
    np.testing.assert_allclose(given.to_source, rows[:, :, 7, [4, 5]].sum(-1), atol=1e-12)


def test_an_answer_that_stands_nowhere_has_no_value_and_says_so(engine: Engine, tmp_path: Path) -> None:
    result = answered(engine, subject(tmp_path), target=Target((8,)))
    assert np.isnan(result.to_source).all() and np.isnan(result.even) and NOWHERE in result.conventions
    assert [column.name for column in result.table().columns] == ["head", "to the answer"]


def test_a_source_behind_the_answer_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a position before"):
        answered(engine, subject(tmp_path), position=3, sources=(4,))


def test_over_a_set_each_line_has_its_own_source(engine: Engine, tmp_path: Path) -> None:
    """A line with a source, one whose answer stands in it, and one with neither, which does not count."""
    (tmp_path / "set.tsv").write_text("la mer: the\t s\t m\t\tmer\nabcab\tc\tb\nxy\tz\tq\n")
    of = subject(tmp_path, tokens=())
    over = OverPromptsParams(TextRef(str(tmp_path / "set.tsv")), "answer_attention", json.dumps({}), "attention")
    result: Any = engine.answer(Request.named("over_prompts", over, of)).result
    weights, encode = engine.store.open(of.model).weights(DOUBLE), byte_tokenizer().encode
    expected = []
    for text, places in (("la mer: the ", (4, 5, 6)), ("abcab", (3,))):
        run = forward(weights, (0, *encode(text)))
        expected.append([run.get("pattern", i)[:, -1, list(places)].sum(-1).numpy() for i in range(weights.config.n_layers)])
    np.testing.assert_allclose(result.values[:2], expected, atol=1e-12)
    assert np.isnan(result.values[2]).all() and (result.n == 2).all() and result.units == "share of attention"
