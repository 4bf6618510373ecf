"""Models side by side: losses by definition, models that cannot be compared, and what a click means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.behaviour.model_comparison import SideBySideParams, SideBySideResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import facts_of, find_panel
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, Tokens
from circuitlab.figures.panels.models.panel import SideBySideView
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.models import CONFIGS, byte_tokenizer, directory, weights_of
from tests.rounding import check_largest, check_ranks

SHAPES = ("attention-only", "gpt2", "llama", "both-norms-capped", "odd", "parallel", "smeared")
TOKENS = (0, 5, 9, 5, 7, 9)
PANEL = find_panel("side_by_side")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(ModelStore(most=8))


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Models of one family, and some that are not of it."""
    root = tmp_path_factory.mktemp("zoo")
    one = CONFIGS["attention-only"]
    for layers in range(3):
        config = replace(one, n_layers=layers)
        save_directory(root / f"small-{layers}l", config, random_tensors(config, layers, 0.35), byte_tokenizer())
    directory(root / "short", n_ctx=4)
    directory(root / "few", d_vocab=7, tokenizer=False)
    directory(root / "ids", tokenizer=False)
    return lambda name: root / name


def state_of(zoo: Callable[[str], Path], models: str, opened: str = "small-2l", **view: Any) -> State:
    listed = ",".join(str(zoo(name)) if not name.startswith("!") else name[1:] for name in models.split())
    state = State(ModelRef(f"file:{zoo(opened)}")).with_tokens(TOKENS)
    return state.with_view("side_by_side", SideBySideView(models=listed, **view))


def drawn(engine: Engine, state: State) -> Figure:
    return figure_of(engine, PANEL, state)


def rows(figure: Figure, name: str) -> Rows:
    mark = figure.find(name)
    assert isinstance(mark, Rows)
    return mark


def column(figure: Figure, table: str, name: str) -> RowColumn:
    return next(c for c in rows(figure, table).columns if c.name == name)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("edits", [(), (Intervention("zero", Site("z", 1, (0,))),)], ids=["plain", "cut"])
def test_losses_ranks_and_guesses_are_those_of_the_distribution(
    tmp_path: Path, name: str, edits: tuple[Intervention, ...]
) -> None:
    tokens = tuple(t % CONFIGS[name].d_vocab for t in TOKENS)
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS[name], tokenizer=False)}")
    request = Request.named("side_by_side", SideBySideParams(), Subject(ref, tokens, edits, Conventions(dtype="float64")))
    made = engine.answer(request)
    result = made.result
    assert isinstance(result, SideBySideResult)
    weights, _ = weights_of(CONFIGS[name])
    p = torch.log_softmax(forward(weights, tokens, edits, None).logits().double(), 1).numpy()
    want = np.array([np.nan, *(-p[i - 1, t] for i, t in enumerate(tokens) if i)])
    np.testing.assert_allclose(result.loss, want, atol=2e-5)
    assert result.mean == pytest.approx(float(np.nanmean(want)), abs=2e-5)
    check_ranks(result.rank[1:], p[:-1], p[np.arange(len(tokens) - 1), tokens[1:]])
    check_largest(result.predicted[:, None], p)
    np.testing.assert_allclose(result.probability, np.exp(p.max(1)), rtol=1e-4)
    assert result.words == tuple(map(str, result.predicted))
    assert engine.answer(request, fresh=True).fingerprint == engine.answer(request, fresh=True).fingerprint


def test_one_column_a_model_and_differences_to_the_first_or_the_open_one(engine: Engine, zoo: Any) -> None:
    each = [_losses(engine, zoo(f"small-{i}l")) for i in range(3)]
    figure = drawn(engine, state_of(zoo, "small-0l small-1l small-2l"))
    for i, loss in enumerate(each):
        np.testing.assert_allclose(column(figure, "tokens", f"{i}l").values, loss, rtol=1e-6)
    np.testing.assert_allclose(column(figure, "models", "mean").values, [np.nanmean(x) for x in each], rtol=1e-5)
    assert rows(figure, "models").chosen == (2,)
    assert rows(figure, "tokens").chosen == (5,)
    less = drawn(engine, state_of(zoo, "small-0l small-1l small-2l", measure="less the first"))
    np.testing.assert_allclose(column(less, "tokens", "1l − 0l").values, each[1] - each[0], rtol=1e-4)
    np.testing.assert_allclose(column(less, "tokens", "0l").values, each[0], rtol=1e-6)
    assert column(less, "tokens", "1l − 0l").levels == column(less, "tokens", "2l − 0l").levels
    opened = drawn(engine, state_of(zoo, "small-0l small-1l small-2l", measure="less the open model"))
    np.testing.assert_allclose(column(opened, "tokens", "0l − 2l").values, each[0] - each[2], rtol=1e-4)
    assert "small-2l" in opened.caption


def _losses(engine: Engine, path: Path) -> np.ndarray:
    subject = Subject(ModelRef(f"file:{path}"), TOKENS)
    result: Any = engine.answer(Request.named("token_loss", _params("token_loss"), subject)).result
    return result.loss


def _params(name: str) -> Any:
    from circuitlab.analysis.base import find_analysis

    return find_analysis(name).params()


def test_texts_in_colour_have_a_heading_each_and_one_scale(engine: Engine, zoo: Any) -> None:
    figure = drawn(engine, state_of(zoo, "small-0l small-1l small-2l", page="text"))
    strips = [m for m in figure.marks() if isinstance(m, Tokens)]
    assert [s.heading.partition(" ·")[0] for s in strips] == ["small-0l", "small-1l", "small-2l"]
    assert len({s.levels for s in strips}) == 1
    np.testing.assert_array_equal(strips[1].values, _losses(engine, zoo("small-1l")))
    assert "rank" in strips[1].tips[2]
    again = drawn(engine, state_of(zoo, "small-0l small-1l small-2l", page="text").select(destination=2))
    for before, after in zip(strips, [m for m in again.marks() if isinstance(m, Tokens)], strict=True):
        assert before.values is after.values


def test_at_the_selected_token_loss_rank_and_guess(engine: Engine, zoo: Any) -> None:
    figure = drawn(engine, state_of(zoo, "small-0l small-2l").select(destination=3))
    want = engine.answer(
        Request.named(
            "predictions", replace(_params("predictions"), position=2), Subject(ModelRef(f"file:{zoo('small-2l')}"), TOKENS)
        )
    )
    result: Any = want.result
    assert column(figure, "models", "rank").values[1] == result.actual_rank
    assert column(figure, "models", "loss").values[1] == pytest.approx(-result.actual_log_prob, abs=1e-5)
    assert column(figure, "models", "guess").values[1] == byte_tokenizer().display(int(result.ids[0]))
    first = drawn(engine, state_of(zoo, "small-0l small-2l").select(destination=0))
    assert rows(first, "models").heading
    assert np.isnan(column(first, "models", "rank").values).all()


def test_the_open_model_joins_with_its_interventions(engine: Engine, zoo: Any) -> None:
    cut = Intervention("zero", Site("z", 0, (0, 1)))
    state = replace(state_of(zoo, "small-2l small-1l", "small-1l"), edits=((cut, True),))
    asked = PANEL.requests(state, facts_of(engine, state.model))
    assert isinstance(asked, dict)
    assert [r.subject.edits for r in asked.values()] == [(), (cut,)]
    alone = state_of(zoo, "small-0l", "small-2l")
    assert [r.subject.model.name for r in PANEL.requests(alone, facts_of(engine, alone.model)).values()] == [  # type: ignore[union-attr]
        "small-0l",
        "small-2l",
    ]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("short", "it reads 4 tokens at most, and the prompt has 6"),
        ("few", "its vocabulary ends at 6"),
        ("ids", "it has another tokenizer"),
        ("!nowhere", "no folder"),
        ("!builtin:nothing", "no shipped model"),
        ("!construct:rope-induction?alpha=x", "not compared"),
    ],
)
def test_a_model_that_cannot_be_compared_says_why_and_the_others_stand(engine: Engine, zoo: Any, other: str, why: str) -> None:
    for view in ({}, {"page": "text"}, {"measure": "less the first"}, {"measure": "top token"}):
        figure = drawn(engine, state_of(zoo, f"{other} small-1l small-2l", **view))
        assert why in figure.caption
        if view.get("page") == "text":
            assert [m.name for m in figure.marks()] == ["text 1", "text 2"]
            continue
        assert len(rows(figure, "models").ids) == 3
        assert np.isfinite(column(figure, "models", "mean").values).tolist() == [False, True, True]


def test_prompts_at_the_end_of_the_context_and_of_one_token(engine: Engine, zoo: Any) -> None:
    for n in (1, CONFIGS["attention-only"].n_ctx):
        for page in ("table", "text"):
            state = state_of(zoo, "small-0l small-1l", page=page).with_tokens((3,) * n)
            figure = drawn(engine, state)
            assert figure.grid and figure.title


def test_a_click_selects_a_token_or_opens_a_model(zoo: Any) -> None:
    state = state_of(zoo, "small-0l small-2l")
    assert PANEL.pick(state, Hit("tokens", (3,))).selection.destination == 3
    assert PANEL.pick(state, Hit("text 1", (3,), "hover")).selection.destination == 3
    opened = PANEL.pick(state, Hit("models", (0,)))
    assert opened.model == ModelRef(f"file:{zoo('small-0l')}")
    assert opened.tokens == state.tokens
    assert PANEL.pick(state, Hit("models", (0,), "hover")) is state
    assert PANEL.pick(state, Hit("models", (1,))) is state
    assert PANEL.pick(state_of(zoo, "!nowhere small-2l"), Hit("models", (0,))).model.name == "small-2l"


def test_two_folders_of_one_name_are_told_apart(engine: Engine, zoo: Any, tmp_path: Path) -> None:
    for place in ("a", "b"):
        directory(tmp_path / place / "small")
    figure = drawn(engine, state_of(zoo, f"!{tmp_path / 'a' / 'small'} !{tmp_path / 'b' / 'small'}"))
    assert column(figure, "models", "model").values.tolist()[:2] == ["a/small", "b/small"]


def test_tokens_that_are_fewer_than_the_texts_are_not_compared(engine: Engine, zoo: Callable[[str], Path]) -> None:
    texts = facts_of(engine, (ref := ModelRef(f"file:{zoo('small-2l')}"))).tokens(TOKENS)

    def ask(some: tuple[str, ...]) -> Any:
        return engine.answer(Request.named("side_by_side", SideBySideParams(some), Subject(ref, TOKENS))).result

    assert not ask(texts).why
    assert ask(texts[:4]).conventions
    assert "6 tokens" in ask(texts[:4]).why and np.isnan(ask(texts[:4]).loss).all()


def test_what_is_not_of_all_models_is_said_of_those_that_it_is_of(engine: Engine, zoo: Any, tmp_path: Path) -> None:
    """A convention of one model is no word on the others."""
    config = replace(CONFIGS["gpt2"], d_vocab=CONFIGS["attention-only"].d_vocab, d_vocab_out=CONFIGS["attention-only"].d_vocab)
    save_directory(tmp_path / "normed", config, random_tensors(config, 0, 0.35), byte_tokenizer())
    parts = drawn(engine, state_of(zoo, f"small-0l small-1l !{tmp_path / 'normed'}")).caption_parts
    assert (
        "normed: norm folded" in parts
        and "normed: centred" in parts
        and "0l, 1l, 2l: W_U centred" in [part.replace("small-", "") for part in parts]
    )
    assert "norm folded" not in parts and "centred" not in parts and "float32" in parts
