"""Differences to a model of another vocabulary: by text where that is exact, refused in words where it is not; never by id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import Why, facts_of, panels
from circuitlab.figures.contracts.vocabulary import aligned, one_vocabulary, pinned_state
from circuitlab.figures.marks import Figure, Heatmap, Rows, Tokens
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.report.render import figure_of
from circuitlab.state.state import Compare, Pin, State
from tests.figures.test_compare import PAGES, on_page
from tests.models import TINY, byte_tokenizer

TEXT = "one two one"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def made(vocabulary: list[str], merges: tuple[tuple[str, str], ...] = ()) -> Tokenizer:
    inner = Inner(BPE(vocab={text: i for i, text in enumerate(vocabulary)}, merges=list(merges)))
    inner.add_special_tokens(["<|bos|>"])
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner)


def turned() -> Tokenizer:
    """The same bytes, each with another id."""
    return made([*reversed(ALPHABET), "<|bos|>"])


def merged() -> Tokenizer:
    """“on” and “tw” are one token each."""
    return made(["<|bos|>", *ALPHABET, "on", "tw"], (("o", "n"), ("t", "w")))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, dict[str, State]]:
    path, states = tmp_path_factory.mktemp("models"), {}
    named = {"bytes": byte_tokenizer(), "same": byte_tokenizer(), "turned": turned(), "merged": merged(), "ids": None}
    for seed, (name, tokenizer) in enumerate(named.items()):
        save_directory(path / name, TINY, random_tensors(TINY, seed, 0.35), tokenizer)
        tokens = (7, 8, 9, 7) if tokenizer is None else tokenizer.encode(TEXT, True)
        text = "" if tokenizer is None else TEXT
        states[name] = State(ModelRef(f"file:{path / name}")).with_text(text, tokens).select(heads=(Head(1, 2), Head(0, 1)))
    return Engine(ModelStore()), states


def beside(states: dict[str, State], name: str, compare: Compare = "difference") -> State:
    other = states[name]
    pin = Pin(name, other.subject, other.selection, other.text)
    return replace(states["bytes"], pins=(pin,), compare=compare)


def facts(engine: Engine, state: State) -> tuple[Any, Any]:
    assert state.reference is not None
    return facts_of(engine, state.model), facts_of(engine, state.reference.subject.model)


def drawn(engine: Engine, name: str, state: State) -> Figure:
    return figure_of(engine, panels()[name], state)


def test_vocabularies_are_equal_by_what_they_hold(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    for name, same in (("same", True), ("turned", False), ("merged", False), ("ids", False)):
        state = beside(states, name)
        assert one_vocabulary(state, state.pins[0], *facts(engine, state)) == same, name


def here_once(engine: Engine, state: State, text: str) -> int | None:
    return facts_of(engine, state.model).token_of(text)


def test_the_same_text_in_other_ids_is_compared_token_by_token(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    state, there = beside(states, "turned").select(destination=4), states["turned"]
    assert state.tokens != there.tokens
    np.testing.assert_array_equal(aligned(state, state.pins[0], *facts(engine, state)).align, np.arange(len(state.tokens)))
    change = drawn(engine, "attention", state).find("attention")
    now, before = (drawn(engine, "attention", replace(s, pins=())).find("attention") for s in (state, there))
    assert isinstance(change, Heatmap) and isinstance(now, Heatmap) and isinstance(before, Heatmap)
    np.testing.assert_allclose(change.values, now.values - before.values, atol=1e-6)
    rows = drawn(engine, "predictions", state).find("tokens")
    assert isinstance(rows, Rows)
    by = {c.name: c.values for c in rows.columns}
    asked = panels()["predictions"].requests(state, facts_of(engine, state.model))
    assert not isinstance(asked, Why)
    answer: Any = engine.answer(Request.named("predictions", asked["predictions"].params, there.subject)).result
    theirs = facts_of(engine, there.model)
    p = np.exp(answer.all_logits.astype(np.float64))
    known = {theirs.token_text(i): one for i, one in enumerate(p / p.sum())}
    for text, p in zip(by["token"], by["in turned"], strict=True):
        assert p == pytest.approx(known[text])
    firsts = {theirs.token_text(int(i)) for i in answer.ids}
    assert firsts - set(by["token"]) <= {t for t in firsts if here_once(engine, state, t) is None}
    assert (np.diff(np.abs(by["Δ"])) <= 0).all()


def test_only_tokens_that_cover_the_same_characters_are_compared(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    state = beside(states, "merged")
    here, there = facts(engine, state)
    found = aligned(state, state.pins[0], here, there)
    ours, theirs = here.tokens(state.tokens), there.tokens(state.pins[0].subject.tokens)
    pairs = [(ours[i], theirs[j]) for i, j in enumerate(found.align.tolist()) if j >= 0]
    assert pairs == [(t, t) for t in ("<|bos|>", "e", "·", "o", "·", "e")]
    figure = drawn(engine, "attention", state)
    text = figure.find("text")
    assert isinstance(text, Tokens)
    assert np.isnan(text.values[1])  # “o” of “on”
    assert "another vocabulary" in figure.caption


def test_what_is_asked_about_is_carried_over_by_its_text(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    state = beside(states, "turned")
    here, there = facts(engine, state)
    token, target = state.tokens[1], state.tokens[3]
    asked = pinned_state(state.select(token=token, target=Target((target,)), destination=3), state.pins[0], here, there)
    assert isinstance(asked, State)
    other = states["turned"].tokens
    assert (asked.selection.token, asked.selection.target.tokens, asked.selection.destination) == (other[1], (other[3],), 3)
    cut = beside(states, "merged").select(destination=1)
    refused = pinned_state(cut, cut.pins[0], *facts(engine, cut))
    assert isinstance(refused, str) and "at 1" in refused


@pytest.mark.parametrize("there", ["ids", "merged", "turned"])
@pytest.mark.parametrize(("name", "page"), [p for p in PAGES if p[0] not in ("training", "laboratory", "prompt_sets")])
def test_no_page_takes_an_id_for_the_same_token(bench: tuple[Engine, dict[str, State]], name: str, page: str, there: str) -> None:
    """Every table beside another vocabulary: a row that has a partner is written the same there."""
    engine, states = bench
    state = on_page(beside(states, there), name, page).select(token=None, destination=None)
    here = facts_of(engine, state.model)
    if isinstance(panels()[name].requests(state, here), Why):
        return
    for compare in get_args(Compare):
        try:
            figure = drawn(engine, name, replace(state, compare=compare))
        except CircuitLabError as error:
            assert error.what
            continue
        for mark in figure.marks():
            if compare != "difference" or not isinstance(mark, Rows):
                continue
            for column in mark.columns:
                if column.tokens and (other := next((c for c in mark.columns if c.name == f"{column.name} in {there}"), None)):
                    assert all(b in ("", a) for a, b in zip(column.values, other.values, strict=True)), (name, page, mark.name)


def test_where_nothing_is_the_same_it_is_refused_in_words(bench: tuple[Engine, dict[str, State]]) -> None:
    engine, states = bench
    figure = drawn(engine, "attention", beside(states, "ids"))
    alone = drawn(engine, "attention", replace(states["bytes"]))
    assert "not compared" in figure.caption
    a, b = figure.find("attention"), alone.find("attention")
    assert isinstance(a, Heatmap) and isinstance(b, Heatmap)
    np.testing.assert_array_equal(a.values, b.values)
    asked = panels()["ablation"].requests(
        beside(states, "turned").with_view("ablation", replace(panels()["ablation"].view(), how="resample")),
        facts_of(engine, states["bytes"].model),
    )
    assert isinstance(asked, Why) and "vocabulary" in asked.text


def test_files_that_hold_the_same_are_one_vocabulary(tmp_path: Path) -> None:
    a, b = byte_tokenizer(), byte_tokenizer()
    b.save(tmp_path / "tokenizer.json")
    again = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert a.vocabulary == b.vocabulary == again.vocabulary
    assert len({a.vocabulary, turned().vocabulary, merged().vocabulary}) == 3
    assert turned().shown_as("e") == turned().encode("e")[0]
    assert a.shown_as("no such token") is None
