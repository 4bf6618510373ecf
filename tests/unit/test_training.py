"""Training: the same seed gives the same bits, a killed run ends as an unbroken one, and what is wrong is said."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.cli.parser import main
from circuitlab.disk.paths import resource
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from circuitlab.model.trainable import TrainableWeights
from circuitlab.training.batches import batch
from circuitlab.training.corpus import Stream, find_sources, tokenised
from circuitlab.training.loop import Trainer, initial_tensors, rate_at
from circuitlab.training.metrics import head_scores, losses, measure, repeated_random
from circuitlab.training.recipe import Checkpoints, Data, Recipe, Stage
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.repeats import copy_segment, repeated_block
from tests.models import CONFIGS, byte_tokenizer, weights_of

WORDS = "the grey heron stood in the shallow water and the small boat went by; def f(x): return x + 1\n"


def _quiet(line: str) -> None:
    pass


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 60 + "".join(chr(i) for i in range(0xC0, 0x180)) * 9, encoding="utf-8")
    return path


@pytest.fixture
def recipe() -> Recipe:
    return read_recipe("tiny")


@pytest.fixture
def streams(recipe: Recipe) -> tuple[Stream, ...]:
    rng = np.random.default_rng(0)
    make = lambda label, share: Stream(label, share, *(rng.integers(1, 300, n).astype(np.uint16) for n in (4000, 200)))
    return make("a", 0.75), make("b", 0.25)


def _trained(recipe: Recipe, streams: tuple[Stream, ...], out: Path, stop_at: int | None = None) -> Trainer:
    trainer = Trainer(recipe, streams, out)
    trainer.resume()
    trainer.train(_quiet, stop_at)
    return trainer


def test_the_same_seed_gives_the_same_bits(recipe: Recipe, streams: Any, tmp_path: Path) -> None:
    one, two = (_trained(recipe, streams, tmp_path / n) for n in "ab")
    assert one.history == two.history
    assert all(torch.equal(one.weights.tensors[n], two.weights.tensors[n]) for n in one.weights.tensors)
    other = _trained(replace(recipe, seed=4), streams, tmp_path / "c")
    assert one.history[-1]["loss"] != other.history[-1]["loss"]


@pytest.mark.parametrize("stop", [1, 7, 12, 13, 20])
def test_a_run_that_is_taken_up_again_ends_bit_equal(recipe: Recipe, streams: Any, tmp_path: Path, stop: int) -> None:
    whole = _trained(recipe, streams, tmp_path / "whole")
    _trained(recipe, streams, tmp_path / "broken", stop)
    again = _trained(recipe, streams, tmp_path / "broken")
    assert again.history == whole.history
    assert all(torch.equal(again.weights.tensors[n], whole.weights.tensors[n]) for n in whole.weights.tensors)
    kept = {p.name for p in (tmp_path / "broken" / "checkpoints").iterdir()}
    assert kept == {f"step-{s:06d}.safetensors" for s in recipe.checkpoints.steps(20)}


def test_a_gradient_is_no_longer_than_the_recipe_allows(recipe: Recipe, streams: Any, tmp_path: Path) -> None:
    """Its length by numpy; cut off it keeps its direction."""
    gradients = []
    for clip in (1e9, 0.01):
        optimiser = replace(recipe.optimiser, clip=clip)
        trainer = Trainer(replace(recipe, optimiser=optimiser), streams, tmp_path / f"{clip:g}")
        trainer.resume()
        trainer.one_step()
        parts = [tensor.grad for tensor in trainer.weights.tensors.values()]
        gradients.append(np.concatenate([part.double().numpy().ravel() for part in parts if part is not None]))
    whole, cut = gradients
    length = float(np.linalg.norm(whole))
    assert length > 0.02
    assert np.linalg.norm(cut) == pytest.approx(0.01, rel=1e-3)
    assert np.allclose(cut, whole * (0.01 / length), rtol=1e-3, atol=1e-6)


def test_a_disk_that_cannot_be_written_is_said(recipe: Recipe, streams: Any, tmp_path: Path) -> None:
    trainer = Trainer(recipe, streams, tmp_path / "a")
    for part in (tmp_path / "a" / "state").iterdir():
        part.unlink()
    (tmp_path / "a" / "state").rmdir()
    with pytest.raises(BadMachine, match="could not be written"):
        trainer.save()


def test_the_command_makes_a_model_that_opens(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "tiny", "--text", str(text), "--out", str(tmp_path / "run"), "--no-measure"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "checkpoint 20" in said
    opened = open_model(tmp_path / "run" / "model")
    assert opened.weights.tokenizer is not None
    assert opened.weights.tokenizer.bos == 0
    assert opened.weights.tokenizer.decode(opened.weights.tokenizer.encode(WORDS)) == WORDS
    assert "seed 3" in opened.card
    assert "25.00%" in opened.card
    assert json.loads((tmp_path / "run" / "model" / "metrics.json").read_text())["step"] == 20
    assert main(words) == 0
    assert "resumed at step 20" in capsys.readouterr().out


def test_batches_are_a_function_of_seed_and_step(recipe: Recipe, streams: Any) -> None:
    stage = Stage(0, 24, 8)
    one, two = (batch(streams, recipe.data, stage, 300, 5, 9) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, batch(streams, recipe.data, stage, 300, 5, 10))
    assert not torch.equal(one, batch(streams, recipe.data, stage, 300, 6, 9))
    assert bool((one[:, 0] == 0).all())
    assert bool((one[:, 1:] > 0).all())


def test_plain_batches_are_windows_of_the_text(streams: Any) -> None:
    rows = batch(streams, Data(), Stage(0, 12, 16), 300, 0, 0)[:, 1:].numpy()
    texts = [s.train.tolist() for s in streams]
    for row in rows.tolist():
        assert any(row == t[i : i + 11] for t in texts for i in range(len(t) - 10) if t[i] == row[0])


def test_augmentations_repeat_what_they_say() -> None:
    rng = np.random.default_rng(1)
    block = repeated_block(rng, 50, 300, (5, 5))
    np.testing.assert_array_equal(block[:45], block[5:])
    body = np.arange(1, 41)
    copy_segment(rng, body, (6, 6))
    changed = np.flatnonzero(body != np.arange(1, 41))
    assert len(changed) == 6
    np.testing.assert_array_equal(np.diff(body[changed]), 1)
    assert body[changed[0]] < changed[0] + 1


def test_the_rate_warms_up_and_falls_to_a_tenth(recipe: Recipe) -> None:
    rates = [rate_at(recipe.optimiser, s) for s in range(21)]
    assert rates[0] == pytest.approx(3e-3 / 5)
    assert max(rates) == rates[5] == pytest.approx(3e-3)
    assert rates[20] == pytest.approx(3e-4)
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_initial_weights_have_the_scales_of_the_recipe() -> None:
    recipe = read_recipe("attn-only-2l")
    made = initial_tensors(recipe, recipe.config())
    said = tomllib.loads(resource("recipes", "attn-only-2l.toml").read_text(encoding="utf-8"))
    assert set(said["init"]) == {"W_E", "W_U", "W_Q", "W_K", "W_V", "W_O"}
    for name in ("embed.W_E", "layers.1.W_Q", "layers.0.W_O", "unembed.W_U"):
        assert float(made[name].std()) == pytest.approx(said["init"][name[-3:]], rel=0.05)
    position = made["embed.W_pos"][7]
    assert position[0] == pytest.approx(np.sin(7), abs=1e-6)
    assert position[said["model"]["d_model"] // 2] == pytest.approx(np.cos(7), abs=1e-6)


def test_checkpoints_are_dense_where_they_should_be() -> None:
    assert Checkpoints(4, (14, 18), 2).steps(20) == (0, 4, 8, 14, 16, 18, 20)


@pytest.mark.parametrize("name", ["attention-only", "smeared", "llama", "gpt2"])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    _, tensors = weights_of(CONFIGS[name])
    weights = TrainableWeights(CONFIGS[name], {k: v.double() for k, v in tensors.items()})
    weights.dtype = torch.float64
    tokens = torch.tensor([[0, 3, 5, 1], [0, 2, 5, 3]])
    loss = lambda: torch.nn.functional.cross_entropy(logits(weights, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss().backward()
    for key, value in weights.tensors.items():
        if value.grad is None:
            continue
        at = int(value.grad.abs().argmax())
        with torch.no_grad():
            flat, step = value.view(-1), 1e-6
            before = float(flat[at])
            flat[at] = before + step
            up = float(loss())
            flat[at] = before - step
            down = float(loss())
            flat[at] = before
        assert float(value.grad.view(-1)[at]) == pytest.approx((up - down) / (2 * step), rel=1e-4, abs=1e-7), key
    trained = {k for k, v in weights.tensors.items() if v.grad is not None}
    assert trained == set(weights.tensors)


def test_metrics_are_plain_means(streams: Any) -> None:
    weights, _ = weights_of(replace(CONFIGS["attention-only"], d_vocab=300, d_vocab_out=300))
    tokens = repeated_random(300, 21)
    assert tokens.shape == (16, 21)
    assert torch.equal(tokens[:, 1:11], tokens[:, 11:])
    each = losses(weights, tokens)
    with torch.inference_mode():
        log_p = torch.log_softmax(logits(weights, tokens), -1)
    assert float(each[2, 4]) == pytest.approx(-float(log_p[2, 4, tokens[2, 5]]), abs=1e-4)
    result = measure(weights, streams, 21)
    assert result["rep1"] == pytest.approx(float(each[:, :10].mean()), abs=1e-4)
    assert result["rep2"] == pytest.approx(float(each[:, 11:].mean()), abs=1e-4)
    scores = head_scores(weights, tokens)
    assert np.shape(scores["prefix_matching"]) == (2, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.txt"], "does not exist"),
        (["EMPTY"], "no text"),
        (["TEXT:0.5", "TEXT:0.7"], "add up"),
        (["TEXT:0.5"], "add up"),
        ([], "no text"),
    ],
)
def test_text_that_is_missing_or_contradicts_itself_is_refused(tmp_path: Path, text: Path, words: list[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    names = [w.replace("TEXT", str(text)).replace("EMPTY", str(tmp_path / "empty")) for w in words]
    with pytest.raises(BadInput, match=said):
        find_sources(names)


def test_what_a_run_made_is_no_text_of_the_folder_it_lies_in(tmp_path: Path) -> None:
    """`--text . --out runs/mine` finds the same text again when the run has a model with a card."""
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "about.txt").write_text("a folder of mine that is called so")
    before = find_sources([str(tmp_path)])
    for made in ("runs/mine/state/run.json", "runs/mine/model/card.md", "runs/mine/so-far/card.md"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("{}")
    assert [p.name for p in before[0].files] == ["about.txt", "notes.md"]
    assert find_sources([str(tmp_path)]) == before


def test_text_that_is_too_short_or_no_utf8_is_refused(tmp_path: Path) -> None:
    short, wrong = tmp_path / "a.txt", tmp_path / "b.txt"
    short.write_text("hello")
    wrong.write_bytes(b"\xff\xfehello")
    with pytest.raises(BadInput, match="too little"):
        tokenised(find_sources([str(short)])[0], byte_tokenizer(), 32)
    with pytest.raises(BadInput, match="UTF-8"):
        tokenised(find_sources([str(wrong)])[0], byte_tokenizer(), 32)


def test_a_vocabulary_larger_than_the_text_supports_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab " * 400)
    status = main(["train", "tiny", "--text", str(tmp_path / "a.txt"), "--out", str(tmp_path / "o")])
    assert status == 3


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("x = ", "not TOML"),
        ("seed = 1", "lacks"),
        ("colour = 1", "not known"),
        ("seed=1\nvocab=300\n[model]\n[init]\n[optimiser]\nsteps=1", "no stage"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused(tmp_path: Path, toml: str, said: str) -> None:
    (tmp_path / "r.toml").write_text(toml)
    with pytest.raises(BadInput, match=said):
        read_recipe(str(tmp_path / "r.toml"))
    with pytest.raises(BadInput, match="no such recipe"):
        read_recipe("nope")


def test_a_model_without_layers_is_trained_and_written(recipe: Recipe, streams: Any, tmp_path: Path) -> None:
    """The zero-layer transformer: bigrams and nothing else; it has no heads to score."""
    from circuitlab.training.card import export

    bare = replace(recipe, model={**recipe.model, "n_layers": 0})
    trainer = _trained(bare, streams, tmp_path / "run")
    assert trainer.history[-1]["heads"]["prefix_matching"] == []
    assert np.isfinite(trainer.history[-1]["loss"])
    export(trainer, byte_tokenizer(), tmp_path / "model", "circuitlab train")
    opened = open_model(tmp_path / "model")
    assert opened.weights.config.n_layers == 0
    assert "0 layers" in opened.card
