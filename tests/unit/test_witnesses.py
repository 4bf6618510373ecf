"""The table of what a model can be seen to do: its numbers by code of another hand, its file, its place on the card."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import circuitlab.api as lab
from circuitlab.analysis.attribution.skip_trigrams_in_text import SkipTrigramsInTextResult
from circuitlab.disk.paths import model_dir
from circuitlab.errors import BadModel
from circuitlab.witnesses import prose
from circuitlab.witnesses.__main__ import main
from circuitlab.witnesses.estimate import Mean, mean_of
from circuitlab.witnesses.heads import BLOCK, SAMPLES, random_blocks, sources_used
from circuitlab.witnesses.prompt_sets import SETS, on_set, prompts_of
from circuitlab.witnesses.prose import counted_positions, resting, said_twice
from circuitlab.witnesses.record import FILE, read_record
from circuitlab.witnesses.table import HEADING
from tests.reference import slow_trained

NAME = "attn-only-2l"
PIECES = np.random.default_rng(4).integers(200, 900, size=(5, 60))  # short ids: some stand several times in a piece


@pytest.fixture(scope="module")
def model() -> Any:
    return lab.open(NAME)


@pytest.fixture(scope="module")
def weights() -> slow_trained.Weights:
    return slow_trained.weights(model_dir(NAME), None)


def test_means_and_their_errors() -> None:
    found = mean_of([1.0, float("nan"), 3.0, 5.0])
    assert found == (3.0, pytest.approx(2 / math.sqrt(3)), 3) and found.words() == "3.00 ± 1.15"
    assert Mean(0.5, float("nan"), 1).words() == "0.50" and mean_of([]).words() == "–"


def test_positions_are_counted_where_one_place_decides() -> None:
    piece = (5, 6, 5, 7, 8)
    at = counted_positions((0, *piece, *piece))
    assert at.tolist() == [7, 9], "5 stood twice before, and what comes after the last token is not known"


def test_prose_said_twice_by_plain_products(model: Any, weights: slow_trained.Weights) -> None:
    found, half = said_twice(model, PIECES, 0), PIECES.shape[1]
    ids = np.concatenate([np.zeros((len(PIECES), 1), int), PIECES, PIECES], axis=1)
    right, mass, bos, loss = [], [], [], []
    run, logits = slow_trained.ran(weights, ids), slow_trained.logits(weights, ids)
    for i, row in enumerate(ids.tolist()):
        at = [d for d in range(half + 1, 2 * half) if sum(t == row[d] for t in row[:d]) == 1]
        right.append(np.mean([logits[i, d].argmax() == row[d + 1] for d in at]))
        loss.append(np.mean([run.losses[i, d] for d in at]))
        A = np.concatenate([pattern[i] for pattern in run.patterns])
        mass.append(np.mean([A[:, d, d + 1 - half] for d in at], axis=0))
        bos.append(np.mean([A[:, d, 0] for d in at], axis=0))
    best = int(np.mean(mass, axis=0).argmax())
    assert found.best == divmod(best, slow_trained.N_HEADS) and found.best is not None and found.best.layer == 1
    assert found.first.mean == pytest.approx(np.mean(right), abs=1e-9) and found.first.mean > 0.5
    assert found.second.mean == pytest.approx(np.mean(loss), abs=1e-4)
    assert found.mass.mean == pytest.approx(np.mean(mass, axis=0)[best], abs=1e-5)
    assert found.bos.mean == pytest.approx(np.mean(bos, axis=0)[best], abs=1e-5)
    assert found.mass.error == pytest.approx(np.std(np.array(mass)[:, best], ddof=1) / math.sqrt(len(PIECES)), abs=1e-5)


def test_random_blocks_by_plain_products(model: Any, weights: slow_trained.Weights) -> None:
    found, once = random_blocks(model), np.random.default_rng(11).integers(1, 4096, size=(SAMPLES, BLOCK))
    ids = np.concatenate([np.zeros((SAMPLES, 1), int), once, once], axis=1)
    losses = slow_trained.ran(weights, ids).losses
    saved = losses[:, 1:BLOCK].mean() - losses[:, BLOCK + 1 :].mean()  # other blocks: equal to within their spread
    assert found.saved.mean == pytest.approx(saved, abs=5 * found.saved.error) and found.saved.error < 0.2


def test_heads_rest_where_their_patterns_say(model: Any, weights: slow_trained.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "DEAD", 0.8)

    def on_bos(ids: np.ndarray) -> np.ndarray:
        ids = np.concatenate([np.zeros((len(PIECES), 1), int), ids], axis=1)
        return np.array([pattern[:, :, 1:, 0].mean((0, 2)) for pattern in slow_trained.ran(weights, ids).patterns])

    found, once, twice = resting(model, PIECES, PIECES, 0), on_bos(PIECES), on_bos(np.tile(PIECES, 2))
    np.testing.assert_allclose(found.bos, once, atol=1e-5)
    assert once[1, 1] > 0.8 > twice[1, 1], "the induction head rests until something comes again"
    assert set(found.dead) == {tuple(at) for at in np.argwhere((once >= 0.8) & (twice >= 0.8)).tolist()}


@pytest.mark.parametrize("name", SETS)
def test_prompt_sets_by_plain_products(model: Any, weights: slow_trained.Weights, name: str) -> None:
    found, first, other = on_set(model, name), 0, 0
    for prompt in prompts_of(model, name):
        after = slow_trained.logits(weights, np.array([prompt.tokens]))[0, -1]
        answer, another = prompt.target.tokens
        first, other = first + int(after.argmax() == answer), other + int(after[answer] > after[another])
    assert (found.first.n, round(found.first.mean * 24), round(found.over_other.mean * 24)) == (24, first, other)


def test_sources_in_use_are_those_of_the_best_pairs_with_outs() -> None:
    nats = np.full((50, 8), np.nan)
    nats[0], nats[1:50, 0] = 9.0, np.arange(1, 50) / 100
    used = SimpleNamespace(source=np.arange(100, 150), out_nats=nats)
    assert sources_used(used) == 1 + 32, "one source with eight outs, then one out of each"  # pyright: ignore[reportArgumentType]
    used = SimpleNamespace(source=np.arange(3), out_nats=np.array([[1.0], [0.5], [np.nan]]))
    assert sources_used(used) == 2  # pyright: ignore[reportArgumentType]
    assert SkipTrigramsInTextResult.__dataclass_fields__.keys() >= {"source", "out_nats"}


def test_the_command_writes_file_and_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = tmp_path / "one", tmp_path / "some prose.txt"
    folder.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(model_dir("attn-only-1l") / file, folder / file)
    (folder / "card.md").write_text("# one\n\nWords.\n\n## After\n\nMore.\n")
    words = "the grey heron stood in the shallow water and the small boat went by, and nobody said a word about it. "
    text.write_text(words * 900, encoding="utf-8")
    command = [str(folder), "--text", str(text), "--pieces", "2", "--card"]
    for _ in range(2):
        assert main(command) == 0
    out, card, found = capsys.readouterr().out, (folder / "card.md").read_text(encoding="utf-8"), read_record(folder)
    assert card.count(HEADING) == 1 and card.startswith("# one\n\nWords.\n\n## After\n\nMore.\n\n## ")
    assert out.splitlines()[2] in card and str(folder) not in card
    assert found.step is None and set(found.sets) == set(SETS) and found.protocol["text"] == ["some prose.txt"]
    assert np.array(found.heads["own_tokens"]).shape == np.array(found.heads["in_use"]).shape == (1, 4)
    assert np.isfinite(found.in_context["controlled"].mean), "the shipped model without layers has the same tokenizer"
    (folder / FILE).write_text("{}")
    with pytest.raises(BadModel, match="cannot be read"):
        read_record(folder)
    assert main([str(folder), "--text", str(text), "--step", "3"]) == 3
