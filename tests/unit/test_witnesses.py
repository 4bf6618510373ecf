"""The table of what a model can be seen to do: its numbers by code of another hand, its file, its place on the card."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import circuitlab.api as lab
from circuitlab.analysis.attribution.skip_trigrams_in_text import SkipTrigramsInTextResult
from circuitlab.cli.parser import main
from circuitlab.disk.paths import model_dir, resource, shipped_models
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadMachine, BadModel
from circuitlab.model.prompts import lines_of
from circuitlab.witnesses import prose
from circuitlab.witnesses.estimate import Mean, mean_of
from circuitlab.witnesses.heads import BLOCK, SAMPLES, random_blocks, sources_used
from circuitlab.witnesses.measuring import witnesses_of
from circuitlab.witnesses.prompt_sets import NAMES, SETS, names_to_the_end, on_set, prompts_of
from circuitlab.witnesses.prose import counted_positions, passages, resting, said_twice, words_split
from circuitlab.witnesses.record import FILE, Witnesses, read_record
from circuitlab.witnesses.table import HEADING
from tests.models import CONFIGS, directory
from tests.reference import slow_trained
from tests.shipped_models import config_of, induction_head

NAME = "attn-only-2l"
PIECES = np.random.default_rng(4).integers(200, 900, size=(5, 60))  # short ids: some stand several times in a piece


@pytest.fixture(scope="module")
def model() -> Any:
    return lab.open(NAME)


@pytest.fixture(scope="module")
def weights() -> slow_trained.Weights:
    return slow_trained.weights(model_dir(NAME), None)


def test_means_and_their_errors() -> None:
    result = mean_of([1.0, float("nan"), 3.0, 5.0])
    assert result == (3.0, pytest.approx(2 / math.sqrt(3)), 3) and result.words() == "3.00 ± 1.15"
    assert Mean(0.5, float("nan"), 1).words() == "0.50" and mean_of([]).words() == "–"


def test_positions_are_counted_where_one_place_decides() -> None:
    piece = (5, 6, 5, 7, 8)
    at = counted_positions((0, *piece, *piece), 1)
    assert at.tolist() == [7, 9], "5 stood twice before, and what comes after the last token is not known"
    assert counted_positions((*piece, *piece), 0).tolist() == [6, 8]


def test_prose_said_twice_by_plain_products(model: Any, weights: slow_trained.Weights) -> None:
    result, half = said_twice(model, PIECES, (0,)), PIECES.shape[1]
    ids = np.concatenate([np.zeros((len(PIECES), 1), int), PIECES, PIECES], axis=1)
    right, once, mass, bos, loss = [], [], [], [], []
    run, logits = slow_trained.ran(weights, ids), slow_trained.logits(weights, ids)
    for i, row in enumerate(ids.tolist()):
        at = [d for d in range(half + 1, 2 * half) if sum(t == row[d] for t in row[:d]) == 1]
        right.append(np.mean([logits[i, d].argmax() == row[d + 1] for d in at]))
        once.append(np.mean([logits[i, d - half].argmax() == row[d + 1] for d in at]))
        loss.append(np.mean([run.losses[i, d] for d in at]))
        A = np.concatenate([pattern[i] for pattern in run.patterns])
        mass.append(np.mean([A[:, d, d + 1 - half] for d in at], axis=0))
        bos.append(np.mean([A[:, d, 0] for d in at], axis=0))
    best = int(np.mean(mass, axis=0).argmax())
    assert result.best == divmod(best, config_of(NAME)["n_heads"]) and result.best is not None and result.best.layer == 1
    assert result.first.mean == pytest.approx(np.mean(right), abs=1e-9) and result.first.mean > 0.5
    assert result.once.mean == pytest.approx(np.mean(once), abs=1e-9) and result.once.mean < 0.1
    assert result.second.mean == pytest.approx(np.mean(loss), abs=1e-4)
    assert result.mass.mean == pytest.approx(np.mean(mass, axis=0)[best], abs=1e-5)
    assert result.bos.mean == pytest.approx(np.mean(bos, axis=0)[best], abs=1e-5)
    assert result.mass.error == pytest.approx(np.std(np.array(mass)[:, best], ddof=1) / math.sqrt(len(PIECES)), abs=1e-5)


def test_random_blocks_by_plain_products(model: Any, weights: slow_trained.Weights) -> None:
    result, once = random_blocks(model), np.random.default_rng(11).integers(1, config_of(NAME)["d_vocab"], size=(SAMPLES, BLOCK))
    ids = np.concatenate([np.zeros((SAMPLES, 1), int), once, once], axis=1)
    losses = slow_trained.ran(weights, ids).losses
    saved = losses[:, 1:BLOCK].mean() - losses[:, BLOCK + 1 :].mean()  # other blocks: equal to within their spread
    assert result.saved.mean == pytest.approx(saved, abs=5 * result.saved.error) and result.saved.error < 0.2


def test_heads_rest_where_their_patterns_say(model: Any, weights: slow_trained.Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "DEAD", 0.8)

    def on_bos(ids: np.ndarray) -> np.ndarray:
        ids = np.concatenate([np.zeros((len(PIECES), 1), int), ids], axis=1)
        return np.array([pattern[:, :, 1:, 0].mean((0, 2)) for pattern in slow_trained.ran(weights, ids).patterns])

    result, once, twice = resting(model, PIECES, PIECES, (0,)), on_bos(PIECES), on_bos(np.tile(PIECES, 2))
    np.testing.assert_allclose(result.bos, once, atol=1e-5)
    assert once[induction_head()] > 0.8 > twice[induction_head()], "the induction head rests until something comes again"
    assert set(result.dead) == {tuple(at) for at in np.argwhere((once >= 0.8) & (twice >= 0.8)).tolist()}


@pytest.mark.parametrize("name", SETS)
def test_prompt_sets_by_plain_products(model: Any, weights: slow_trained.Weights, name: str) -> None:
    result, first, other = on_set(model, name), 0, 0
    for prompt in prompts_of(model, name):
        after = slow_trained.logits(weights, np.array([prompt.tokens]))[0, -1]
        answer, another = prompt.target.tokens
        first, other = first + int(after.argmax() == answer), other + int(after[answer] > after[another])
    assert (result.first.n, round(result.first.mean * 24), round(result.over_other.mean * 24)) == (24, first, other)


def test_sources_in_use_are_those_of_the_best_pairs_with_outs() -> None:
    nats = np.full((50, 8), np.nan)
    nats[0], nats[1:50, 0] = 9.0, np.arange(1, 50) / 100
    used = SimpleNamespace(source=np.arange(100, 150), out_nats=nats)
    assert sources_used(used) == 1 + 32, "one source with eight outs, then one out of each"  # pyright: ignore[reportArgumentType]
    used = SimpleNamespace(source=np.arange(3), out_nats=np.array([[1.0], [0.5], [np.nan]]))
    assert sources_used(used) == 2  # pyright: ignore[reportArgumentType]
    assert SkipTrigramsInTextResult.__dataclass_fields__.keys() >= {"source", "out_nats"}


def test_names_are_said_to_the_end_where_each_token_comes_first(model: Any, weights: slow_trained.Weights) -> None:
    result, expected = names_to_the_end(model), []
    for prompt, (_, (_, name, _)) in zip(prompts_of(model, NAMES), lines_of(resource_of(f"{NAMES}.tsv")), strict=True):
        spelled = model.tokens(name, bos=False)
        after = slow_trained.logits(weights, np.array([(*prompt.tokens, *spelled)]))[0]
        start = len(prompt.tokens)
        expected.append(all(after[start + k - 1].argmax() == token for k, token in enumerate(spelled) if k))
    assert (result.n, round(result.mean * result.n)) == (24, sum(expected)), "every name has several tokens in this vocabulary"


def resource_of(name: str) -> str:
    return resource("prompts", name).read_text(encoding="utf-8")


def test_words_are_split_where_their_letters_are_in_several_tokens(model: Any, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("the house, Quillfether (the house)\nthe Zabrinsky; 1999 don't", encoding="utf-8")
    one, several = ("the", "house"), ("Quillfether", "Zabrinsky")
    for words, n in ((one, 1), (several, 2)):
        assert all((len(model.tokens(f" {word}", bos=False)) >= n) == (n > 1 or word in one) for word in words)
    result = words_split(model, file)
    assert (result.n, result.mean) == (7, pytest.approx(2 / 7)), "neither numbers nor what has an apostrophe"


def test_the_passages_fit_and_are_new(model: Any) -> None:
    text = passages(model, 8)
    assert text.front == (0,) and text.pieces.shape == (8, 60) and text.windows.shape == (8, 255)
    ids = model.tokens(text.file.read_text(encoding="utf-8"), bos=False)
    starts = {ids[i : i + 60] for i in range(0, len(ids), 60)}
    assert {tuple(piece) for piece in text.pieces.tolist()} <= starts
    assert text.described["held_out"] == [len(ids)] and len(ids) > 3000


@pytest.mark.parametrize("front", [True, False])
def test_a_model_without_bos_is_measured_from_its_first_token(tmp_path: Path, front: bool) -> None:
    c = replace(CONFIGS["attention-only"], d_vocab=260, d_vocab_out=260, n_ctx=160, prepend_bos=front)
    model = lab.open(str(directory(tmp_path / "m", c)), use=Engine(ModelStore()))
    text = passages(model, 2)
    assert text.front == ((0,) if front else ())
    result = said_twice(model, text.pieces, text.front)
    ids = (*text.front, *text.pieces[0].tolist() * 2)
    at = counted_positions(ids, len(text.front))
    A = model.compute("attention", tokens=ids).result.values
    one = said_twice(model, text.pieces[:1], text.front)
    assert result.best is not None and one.mass.mean == pytest.approx(max(a[at, at - 59].mean() for a in A))


def small_folder(path: Path, of: str = "attn-only-1l") -> Path:
    path.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(model_dir(of) / file, path / file)
    return path


def test_the_command_has_a_column_for_each_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = small_folder(tmp_path / "attn-only-0l", "attn-only-0l")
    assert main(["witnesses", "attn-only-0l", str(other), "--pieces", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found.values()
    assert list(found) == ["attn-only-0l", f"{tmp_path.name}/attn-only-0l"] and str(tmp_path) not in json.dumps(found)
    assert first["sets"] == second["sets"] and first["format"] == second["format"]
    assert first["said_twice"]["mass"] == {"mean": None, "error": None, "n": 0}, "no heads"
    assert first["words"]["split"]["n"] > 2000 and 0 < first["words"]["split"]["mean"] < 0.5
    assert not first["absent"] and first["in_context"]["controlled"]["n"] == 0, "it is its own control"


def test_what_cannot_be_measured_says_why_and_the_rest_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mute = directory(tmp_path / "mute", CONFIGS["attention-only"], tokenizer=False)
    assert main(["witnesses", str(mute), "--pieces", "1"]) == 0
    out = capsys.readouterr().out.splitlines()
    row = lambda words: next(line.split(" | ")[-1].rstrip(" |") for line in out if words in line)
    assert row("one token decides: first choice; above") == row("said twice, where one place") == row("words of the prose") == "–"
    assert "±" in row("prefix matching") and "median" in row("by weights")
    assert any(line.startswith("– literal copying: the model has no tokenizer (mute)") for line in out)
    short = directory(tmp_path / "short", replace(CONFIGS["attention-only"], n_ctx=40))
    assert main(["witnesses", str(short), "--pieces", "1"]) == 0
    assert "– prose: the context has no room for a piece said twice (short)" in capsys.readouterr().out


def test_without_a_name_it_is_those_that_ship(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = list[str]()
    nothing = Witnesses("", None, {}, {}, {}, {}, {}, {}, {}, (), {}, {}, {})

    def measured(model: Any, *_: object) -> Witnesses:
        asked.append(model.ref.name)
        return nothing

    monkeypatch.setattr("circuitlab.cli.witnesses_command.witnesses_of", measured)
    assert main(["witnesses", "--json"]) == 0
    assert tuple(asked) == shipped_models() == tuple(json.loads(capsys.readouterr().out))


def test_what_was_measured_before_an_error_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = witnesses_of

    def measured(model: Any, *more: Any) -> Witnesses:
        if model.ref.name == "attn-only-1l":
            raise BadMachine("The disk is gone.", expected="a disk", got="none", remedy="Look for it.")
        return real(model, *more)

    monkeypatch.setattr("circuitlab.cli.witnesses_command.witnesses_of", measured)
    assert main(["witnesses", "attn-only-0l", "attn-only-1l", "--pieces", "1"]) == BadMachine.exit_code
    out, err = capsys.readouterr()
    assert out.startswith("| | attn-only-0l |\n") and "said twice" in out and "The disk is gone." in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["no-such-model"], 3, "no-such-model"),
        ([" "], 2, "No model is named"),
        (["attn-only-1l", "attn-only-2l", "--card"], 2, "about one model"),
        (["attn-only-1l", "--card", "--checkpoint", "3"], 3, "final weights"),
        (["attn-only-1l", "--control", "attn-only-2l"], 3, "sees more than the previous token"),
        (["attn-only-1l", "--checkpoint", "soon"], 2, "--checkpoint"),
        (["attn-only-1l", "attn-only-2l", "--tokens", "a.npz"], 2, "one model"),
        (["attn-only-1l", "--tokens", "a.npz"], 3, "differ in number"),
        (["attn-only-1l", "--pieces", "0"], 2, "number of pieces"),
        (["attn-only-1l", "--text", "nowhere.txt"], 3, "nowhere.txt"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(
    words: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("circuitlab.cli.witnesses_command.witnesses_of", lambda *_: pytest.fail("measured"))
    assert main(["witnesses", *words]) == code
    assert said in capsys.readouterr().err


def test_the_command_writes_file_and_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, text = small_folder(tmp_path / "one"), tmp_path / "some prose.txt"
    (folder / "card.md").write_text("# one\n\nWords.\n\n## After\n\nMore.\n")
    words = "the grey heron stood in the shallow water and the small boat went by, and nobody said a word about it. "
    text.write_text(words * 900, encoding="utf-8")
    command = ["witnesses", str(folder), "--text", str(text), "--pieces", "2", "--card"]
    for _ in range(2):
        assert main(command) == 0
    out, card, found = capsys.readouterr().out, (folder / "card.md").read_text(encoding="utf-8"), read_record(folder)
    assert card.count(HEADING) == 1 and card.startswith("# one\n\nWords.\n\n## After\n\nMore.\n\n## ")
    assert out.splitlines()[2] in card and str(tmp_path) not in card
    assert "`circuitlab witnesses one --text 'some prose.txt' --pieces 2 --card`" in card
    assert found.step is None and set(found.sets) == set(SETS) and found.protocol["text"] == ["some prose.txt"]
    heads = (1, config_of("attn-only-1l")["n_heads"])
    assert np.array(found.heads["own_tokens"]).shape == np.array(found.heads["in_use"]).shape == heads
    assert np.isfinite(found.in_context["controlled"].mean), "the shipped model without layers has the same tokenizer"
    (folder / FILE).write_text("{}")
    with pytest.raises(BadModel, match="cannot be read"):
        read_record(folder)
