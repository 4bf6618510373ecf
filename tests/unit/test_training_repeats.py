"""What is said again in a sequence, tables in code, code of packages, and steps in bfloat16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.errors import BadInput
from circuitlab.training.batches import batch
from circuitlab.training.corpus import Stream, find_sources, texts
from circuitlab.training.loop import Trainer
from circuitlab.training.recipe import Data, Stage
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.repeats import NamePieces, insert_name, name_pieces, repeat_passage, repeat_phrases
from circuitlab.training.tables import without_tables
from tests.models import byte_tokenizer

PIECES = NamePieces(np.arange(100, 110), np.arange(200, 210), np.arange(300) % 3 == 0)


def test_phrases_are_said_again_later_and_nothing_else_changes() -> None:
    body = np.arange(1, 101)
    repeat_phrases(np.random.default_rng(3), body, (4, 4), (1, 1))
    changed = np.flatnonzero(body != np.arange(1, 101))
    assert len(changed) == 4
    assert body[changed[-1]] < changed[0] + 1, "the phrase stood wholly before"
    np.testing.assert_array_equal(np.diff(body[changed]), 1)


@pytest.mark.parametrize("seed", range(8))
def test_a_name_stands_whole_in_front_of_several_words(seed: int) -> None:
    text = np.arange(1, 61) % 90
    body = text.copy()
    insert_name(np.random.default_rng(seed), body, PIECES, (3, 3), (2, 4))
    first = np.flatnonzero(np.isin(body, PIECES.first))
    names = {tuple(body[i : i + 3]) for i in first if i + 3 <= len(body)}
    assert len(names) == 1
    assert set(next(iter(names))[1:]) <= set(PIECES.later.tolist())
    followers = [body[i + 3] for i in first if i + 3 < len(body)]
    assert all(PIECES.begins_word[f] for f in followers)
    rest = body[~np.isin(body, np.concatenate([PIECES.first, PIECES.later]))]
    np.testing.assert_array_equal(rest, text[: len(rest)])


def test_a_passage_is_said_again_to_the_end() -> None:
    for seed in range(20):
        body = np.arange(1, 41)
        repeat_passage(np.random.default_rng(seed), body, (8, 63))
        length = int(np.flatnonzero(body == 1)[1])
        assert 8 <= length <= 20, "twice at least"
        np.testing.assert_array_equal(body, (np.arange(40) % length) + 1)
    short = np.arange(1, 16)
    repeat_passage(np.random.default_rng(0), short, (8, 63))
    np.testing.assert_array_equal(short, np.arange(1, 16))


def test_a_text_without_words_takes_no_name() -> None:
    body = np.full(20, 1)
    insert_name(np.random.default_rng(0), body, PIECES, (2, 4), (2, 5))
    assert (body == 1).all()


def test_pieces_of_names_are_what_the_vocabulary_has() -> None:
    pieces = name_pieces(byte_tokenizer())
    assert pieces.first.size == 0
    assert pieces.begins_word.sum() == 1  # the byte of a space


def _streams() -> tuple[Stream, ...]:
    rng = np.random.default_rng(0)
    return (Stream("a", 1.0, *(rng.integers(1, 300, n).astype(np.uint16) for n in (4000, 200))),)


def test_shares_of_repetition_are_kept() -> None:
    data = Data(phrases=0.25, phrase=(6, 6), phrase_times=(1, 1), names=0.25)
    text = _streams()[0].train.tolist()
    windows = {tuple(text[i : i + 31]) for i in range(len(text) - 30)}
    rows = [tuple(r) for s in range(40) for r in batch(_streams(), data, Stage(0, 32, 16), 300, 0, s, PIECES)[:, 1:].tolist()]
    plain = sum(r in windows for r in rows) / len(rows)
    named = sum(bool(set(r) & set(range(100, 110))) and r not in windows for r in rows)
    assert 0.44 < plain < 0.56
    assert named > 100


def test_each_kind_of_repetition_has_its_share() -> None:
    """Cut at the shares' own sums: copies first, then phrases, names, passages."""
    data = Data(self_copy=0.1, segment=(15, 15), phrases=0.2, phrase=(3, 3), names=0.3, passages=0.25, passage=(5, 5))
    rows = torch.cat([batch(_streams(), data, Stage(0, 32, 16), 300, 0, s, PIECES)[:, 1:] for s in range(60)])
    passages = (rows[:, :26] == rows[:, 5:]).all(1).float().mean()
    assert float(passages) == pytest.approx(0.25, abs=0.06)
    source = _streams()[0].train.tolist()
    windows = {tuple(source[i : i + 31]) for i in range(len(source) - 30)}
    plain = sum(tuple(row) in windows for row in rows.tolist()) / len(rows)
    assert plain == pytest.approx(0.15, abs=0.05)


def test_a_stage_multiplies_the_shares() -> None:
    data = Data(random_repeat=0.25, block=(5, 5), passages=0.25, passage=(5, 5))
    share = {}
    for repeats in (0.0, 1.0, 2.0):
        stage = Stage(0, 32, 16, repeats)
        rows = torch.cat([batch(_streams(), data, stage, 300, 0, s)[:, 1:] for s in range(60)])
        share[repeats] = float((rows[:, :26] == rows[:, 5:]).all(1).float().mean())
    assert share == {0.0: 0.0, 1.0: pytest.approx(0.25 + 0.75 * 0.25, abs=0.05), 2.0: pytest.approx(0.5 + 0.5 * 0.5, abs=0.05)}


def test_a_stage_multiplies_numbers_and_lengths() -> None:
    data = Data(self_copy=0.3, segment=(2, 3), phrases=0.3, phrase=(2, 3), phrase_times=(1, 2), names=0.3, name_times=(1, 2))
    written = replace(data, segment=(6, 9), phrase_times=(3, 6), name_times=(3, 6))
    rows = lambda d, stage: torch.cat([batch(_streams(), d, stage, 300, 0, s, PIECES) for s in range(8)])
    tripled = rows(data, Stage(0, 64, 8, counts=3.0))
    assert torch.equal(tripled, rows(written, Stage(0, 64, 8))) and not torch.equal(tripled, rows(data, Stage(0, 64, 8)))
    assert data.counted(1.0) == data and data.counted(0.1).phrase_times == (1, 1)


def test_names_need_pieces(tmp_path: Path) -> None:
    recipe = read_recipe("tiny")
    recipe = replace(recipe, data=replace(recipe.data, names=0.5))
    with pytest.raises(BadInput, match="pieces of names"):
        Trainer(recipe, _streams(), tmp_path, pieces=name_pieces(byte_tokenizer()))


def test_bfloat16_products_follow_float32(tmp_path: Path) -> None:
    recipe = read_recipe("tiny")
    low = replace(recipe, optimiser=replace(recipe.optimiser, precision="bfloat16"))
    a, b = (Trainer(r, _streams(), tmp_path / n) for r, n in ((recipe, "a"), (low, "b")))
    one, two = a.one_step(), b.one_step()
    assert one != two
    assert two == pytest.approx(one, rel=2e-3)
    assert {t.dtype for t in b.weights.tensors.values()} == {torch.float32}


def test_tables_are_left_out_and_code_is_not() -> None:
    table = "\n".join(f"    '\\x{i:02x}'   #  0x{i:02x} -> LATIN LETTER {'X ' * (i % 5)}" for i in range(60))
    code = "\n".join(f"def f{i}(x):\n    return x + {i}\n" for i in range(40))
    kept, dropped = without_tables(f"{code}\n{table}\n{code}")
    assert dropped == 57
    assert kept.count("return") == 80
    assert without_tables("\n" * 100) == ("\n" * 100, 0)


def test_code_of_packages_is_a_source_with_its_licence() -> None:
    (source,) = find_sources(["packages=iniconfig,numpy"])
    assert "iniconfig" in source.label
    assert "BSD-3-Clause" in source.label
    assert not any("tests" in p.parts for p in source.files if "numpy" in p.parts)
    assert next(texts(source))


@pytest.mark.parametrize("name", ["packages=no_such_package", "packages=", "packages=os.path", "packages=numpy,../x"])
def test_a_package_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(BadInput, match="not installed"):
        find_sources([name])


RECIPE = """
seed = 1
vocab = 300
[model]
n_layers = 1
n_heads = 2
d_model = 8
d_head = 4
[[stages]]
start = 0
context = 32
batch = 2
[optimiser]
steps = 2
[data]
"""


@pytest.mark.parametrize(
    "data", [{"phrases": 0.6, "names": 0.6}, {"phrases": 2}, {"names": 0.6, "passages": 0.6}, {"name": "[4, 2]"}]
)
def test_shares_that_cannot_be_are_refused(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "r.toml"
    path.write_text(RECIPE + "".join(f"{k} = {v}\n" for k, v in data.items()))
    with pytest.raises(BadInput):
        read_recipe(str(path))
