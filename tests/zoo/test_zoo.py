"""Every analysis on every model of the zoo: references, laws, and what no logit notices. The gate asks a sample of models."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from circuitlab.analysis.base import analyses
from circuitlab.model.loading.family import families
from tests.zoo import asked, invariances, known, models, page, walk
from tests.zoo.asked import Bench
from tests.zoo.references import REFERENCES

Benches = Callable[..., Bench]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Benches:
    """A model of the zoo by name, or drawn by its seed; opened once."""
    folder, opened = tmp_path_factory.mktemp("zoo"), dict[tuple[str, bool], Bench]()

    def of(name: str, mapped: bool = False) -> Bench:
        if (name, mapped) not in opened:
            config = models.MODELS[name] if name in models.MODELS else models.drawn(int(name))
            opened[name, mapped] = Bench(folder / re.sub(r"\W", "-", f"{name} {mapped}"), config, mapped=mapped)
        return opened[name, mapped]

    return of


def _broken(bench: Benches, name: str, of_models: tuple[str, ...], lengths: tuple[int, ...]) -> dict[str, list[str]]:
    """By law, how an analysis breaks it."""
    result = defaultdict[str, list[str]](list)
    for model in of_models:
        for tokens in (models.prompt(bench(model).config, n) for n in lengths):
            for way in bench(model).ways(name, tokens):
                for law, how in walk.broken(bench(model), way, tokens)[1]:
                    result[law].append(f"{model}, {len(tokens)} tokens: {way}: {how}")
    return dict(result)


def _allowed(name: str) -> set[str]:
    return {law for law, of in known.BROKEN if of == name and law not in invariances.INVARIANCES}


@pytest.mark.parametrize("name", asked.names())
def test_every_analysis_on_every_feature(bench: Benches, name: str) -> None:
    result = _broken(bench, name, models.sample(), (models.LENGTHS[-1],))
    assert not {law: how for law, how in result.items() if law not in _allowed(name)}
    assert not (gone := _allowed(name) - set(result)), f"{name} keeps these laws now, so known.BROKEN loses them: {gone}"


@pytest.mark.slow
@pytest.mark.parametrize("model", [*models.MODELS, *map(str, range(24))])
def test_every_analysis_on_every_model_and_length(bench: Benches, model: str) -> None:
    for name in asked.names():
        result = _broken(bench, name, (model,), models.LENGTHS)
        assert not {law: how for law, how in result.items() if law not in _allowed(name)}, name


def _moved(bench: Benches, folder: Path, change: str, of_models: tuple[str, ...]) -> dict[str, list[str]]:
    """By analysis, what moves under a change of the weights that no logit notices."""
    result = defaultdict[str, list[str]](list)
    for number, model in enumerate(of_models):
        one = bench(model, mapped=True)
        tokens = models.prompt(one.config, models.LENGTHS[-1])
        for name, fields in walk.moved(folder / str(number), one, change, asked.names(), tokens):
            result[name].append(f"{model}: {fields}")
    return dict(result)


SAMPLED = ("gpt2", "llama", "shortformer layernorm", "no positions", "no layer normed")


@pytest.mark.parametrize("change", invariances.INVARIANCES)
def test_what_no_logit_notices_moves_no_answer(bench: Benches, tmp_path: Path, change: str) -> None:
    result = _moved(bench, tmp_path, change, SAMPLED)
    allowed = {name for law, name in known.BROKEN if law == change}
    assert not {name: how for name, how in result.items() if name not in allowed}
    assert not (gone := allowed - set(result)), f"these no longer move, so known.BROKEN loses them: {gone}"


def test_every_change_has_a_place_in_the_sample() -> None:
    for change in invariances.INVARIANCES:
        configs = [models.MODELS[name] for name in SAMPLED]
        assert any(invariances.changed(change, c, models.tensors_of(c)) is not None for c in configs), change


def test_what_is_listed_is_there() -> None:
    names = set(analyses())
    listed = {*REFERENCES, *known.NOT_COMPUTED, *known.REFUSED_IN_RUN, *known.OF_RUNS_OF_THEIR_OWN, *asked.FURTHER}
    assert listed | {name for _, name in known.BROKEN} | {name for name, _ in known.OF_BASIS} | set(known.OF_ROUNDING) <= names
    for name, fields in known.NOT_COMPUTED.items():
        assert set(fields) <= set(analyses()[name].result.__dataclass_fields__), name


def test_every_family_has_a_model_like_its_own() -> None:
    assert {family.name for family in families() if family.plugin is None} == set(models.FAMILIES)
    assert set(models.FAMILIES.values()) <= set(models.MODELS)


def test_what_is_broken_only_becomes_less() -> None:
    assert len(known.BROKEN) == known.MOST


def test_the_page_is_what_the_zoo_says() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "stale: python -m tests.zoo writes it anew"
